-- test_carry.lua: two windows, of which the second begins with the state after the first, have the
-- results of one pass over both; so have their gradients, if the state has them.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local D, FIRST, N = 8, 67, 100 -- longer than a chunk of any mixer

-- Options with which a mixer is small.
local small = {
  dss = { state = 4 }, hgrn2 = { head_dim = 4 }, longconv = { dropout = 0, length = N },
  mamba = { state = 3 }, s4 = { state = 4 }, s4d = { state = 4 }, sgconv = { size = 4, length = N },
  ssd = { state = 3, head_dim = 4 }, gla = { heads = 2, rank = 3 }, retention = { heads = 2 },
  delta_net = { heads = 2 }, gated_delta_net = { heads = 2 }, linear_attention = { heads = 2 },
  hyena = { length = N }, stu = { length = N, filters = 4 },
  attention = { heads = 2 }, gated_attention = { heads = 2 },
}

-- More cases: name -> { mixer, options }.
local more = {
  ["attention with alibi"] = { "attention", { heads = 2, positions = "alibi" } },
  ["attention with rotary positions"] = { "attention", { heads = 2, positions = "rotary" } },
  ["attention with relative positions"] = { "attention", { heads = 2, positions = "relative" } },
  ["attention with urpe"] = { "attention", { heads = 2, urpe = true } },
  ["attention in a window"] = { "attention", { heads = 2, window = 9 } },
  ["linear attention with a feature map wider than a head"] = { "linear_attention",
    { heads = 2, feature_map = "taylor" } },
  ["gtu with a shift and max_lag"] = { "gtu", { shift = 0.5, tno = { max_lag = 12 } } },
  ["gtu of backend fft"] = { "gtu", { tno = { backend = "fft", encoder = "table" } } },
  ["mamba of many states"] = { "mamba", { state = 16 } },
}

local cases = {}
for _, name in ipairs(mixers.names) do
  if tl.recurrent.can_step(mixers.class(name)) and name ~= "dss" then
    cases[#cases + 1] = { name, name, small[name] or {} }
  end
end
for name, case in pairs(more) do cases[#cases + 1] = { name, case[1], case[2] } end
table.sort(cases, function(a, b) return a[1] < b[1] end)

local function random(...) return tl.stream_of("test"):normal(core.zeros(...), 0, 1) end

local function largest(x) return core.abs(x):amax():item() end

-- Returns a mixer with random parameters, so that decays and gates differ.
local function mixer_of(name, options)
  tl.seed(11)
  local mixer = mixers.make(name, D, { causal = true }, options)
  for _, p in ipairs(mixer:parameters()) do
    if p.tensor:requires_grad() then
      core.no_grad(function() p.tensor:copy(p.tensor + random(p.tensor:shape()) * 0.05) end)
    end
  end
  return mixer
end

-- Returns the layers with a state, by tl.carried.
local function layers_of(mixer) return tl.carried(mixer, { memory = 1000 }).layers end

-- Returns y of x in windows of these lengths, with states that have gradients.
local function in_windows(mixer, x, lengths)
  local layers, list, first = layers_of(mixer), {}, 1
  for _, layer in ipairs(layers) do rawset(layer.module, "carry", {}) end
  for i, n in ipairs(lengths) do
    list[i] = mixer(x:narrow(2, first, n))
    first = first + n
  end
  for _, layer in ipairs(layers) do rawset(layer.module, "carry", nil) end
  return core.concat(list, 2)
end

-- Returns {y, the gradient of x, those of the parameters...} of fn(x).
local function results(mixer, x, fn)
  for _, p in ipairs(mixer:parameters()) do p.tensor:set_grad(nil) end
  x:set_grad(nil)
  local y = fn()
  local loss = (y * core.sin(core.range(1, y:numel())):reshape(y:shape())):reshape(-1):sum()
  local list = { { "y", core.no_grad(y.clone, y) } }
  loss:backward()
  list[2] = { "the gradient of x", x:grad() }
  for _, p in ipairs(mixer:parameters()) do
    if p.tensor:grad() then list[#list + 1] = { p.name, p.tensor:grad() } end
  end
  return list
end

local function check(who, got, want)
  eq(#got, #want)
  for i, entry in ipairs(want) do
    local name, value = entry[1], entry[2]
    local off = largest(got[i][2] - value) / math.max(largest(value), 1e-2)
    ok(off < 3e-4, ("%s: %s is off by %g"):format(who, name, off))
  end
end

for _, case in ipairs(cases) do
  test(case[1] .. ": windows have the results and gradients of one pass over all", function()
    local mixer = mixer_of(case[2], case[3])
    local x = random(2, N, D):require_grad()
    core.no_grad(mixer, x) -- S4's weights are of the longest x so far
    local whole = results(mixer, x, function() return mixer(x) end)
    local last = N - FIRST
    for _, lengths in ipairs { { FIRST, last }, { 1, 1, N - 2 }, { 40, 59, 1 } } do
      local parts = results(mixer, x, function() return in_windows(mixer, x, lengths) end)
      check(table.concat(lengths, " + "), parts, whole)
    end
  end)

  test(case[1] .. ": tl.carried has the values of one pass, and no gradient of the past",
    function()
      local mixer = mixer_of(case[2], case[3])
      local x = random(2, N, D):require_grad()
      core.no_grad(mixer, x)
      local whole = core.no_grad(mixer, x)
      local states = tl.carried(mixer, { memory = N })
      states:window(1, mixer, x:narrow(2, 1, FIRST))
      core.tape_clear()
      local y = states:window(1, mixer, x:narrow(2, FIRST + 1, N - FIRST))
      check(case[1], { { "y", y } }, { { "y", whole:narrow(2, FIRST + 1, N - FIRST) } })
      x:set_grad(nil)
      y:reshape(-1):sum():backward()
      eq(largest(x:grad():narrow(2, 1, FIRST)), 0.0)
      for _, layer in ipairs(states.layers) do ok(rawget(layer.module, "carry") == nil) end
    end)
end

test("a linear recurrence forgets a state exactly, whatever its decays", function()
  local carry = require "toeplab.nn.mixers.carry"
  local q, k, v = random(1, N, 1, 3), random(1, N, 1, 3), random(1, N, 1, 2)
  local g = core.affine(core.abs(random(1, N, 1, 3)), -30, 0) -- the sums reach -2,000
  local whole, carried, list = core.linear_recurrence(q, k, v, g), {}, {}
  local function part(x, first, n) return x:narrow(2, first, n) end
  for i, window in ipairs { { 1, FIRST }, { FIRST + 1, N - FIRST } } do
    local function of(x) return part(x, window[1], window[2]) end
    list[i] = carry.linear_recurrence(carried, of(q), of(k), of(v), of(g))
  end
  ok(largest(core.concat(list, 2) - whole) < 1e-6 * largest(whole))
end)

test("attention and a TNO keep the last positions, as many as memory says", function()
  for _, case in ipairs { { "attention", { heads = 2 }, "keys", 3 },
    { "gtu", {}, "inputs", 2 }, { "gtu", { tno = { max_lag = 5 } }, "inputs", 2, 4 } } do
    local mixer = mixer_of(case[1], case[2])
    local states = tl.carried(mixer, { memory = 7 })
    for _ = 1, 3 do states:window(1, mixer, random(2, 6, D)) end
    local kept
    for _, state in ipairs(states.parts[1]) do
      kept = kept or state[case[3]] and state[case[3]]:dim(case[4])
    end
    eq(kept, case[5] or 7)
  end
  local one = mixer_of("attention", { heads = 2, window = 1 })
  local states = tl.carried(one, { memory = 7 })
  local x = random(2, 6, D)
  states:window(1, one, x)
  t.bits(states:window(1, one, x), core.no_grad(one, x))
end)

test("mixers without a state are refused by name, with those that have one", function()
  local function refused(options, pattern)
    local model = tl.models.tnn_lm(11, tl.overlay({ layers = 1, dim = D, rpe_dim = 4 }, options))
    raises(tl.carried, pattern, model, { memory = 4 })
  end
  refused({ mixer = "nystrom", causal = false }, "layers.1.token %(Nystrom%) has no state")
  refused({ mixer = "gmlp" }, "layers.1.token %(GMLP%) has no state.*delta_net.*gla.*gtu.*mamba")
  refused({ mixer = "dss" }, "%(TNO%) has other coefficients at another length")
  refused({ mixer = "attention", causal = false }, "layers.1.token %(Attention%) is not causal")
  refused({ causal = false }, "layers.1.token.tno %(TNO%) is not causal")
  refused({ normalize = true }, "layers.1.token.tno %(TNO%) divides by sums")
  refused({ nodes = 4 }, "layers.1.token.tno %(TNO%) has other coefficients")
  refused({ positions = "sinusoidal" }, "position %(Sinusoidal%) numbers positions")
  refused({ mixer = "gla", positions = "learned" }, "position %(Learned%) numbers positions")
  raises(tl.carried, "layers.1.token.tno %(TNO%) keeps earlier positions: give the option memory",
    tl.models.tnn_lm(11, { layers = 1, dim = D, rpe_dim = 4 }))
  tl.carried(tl.models.tnn_lm(11, { layers = 1, dim = D, mixer = "gru" })) -- needs no memory
  raises(tl.carried, "%(Sequential%) has a function as step 2, which may mix positions",
    nn.Sequential(nn.Linear(D, D), function(x) return x:cumsum(2) end))
  local gru = mixers.make("gru", D, {}, {})
  raises(tl.carried, "2 %(GRU%) is used twice", nn.Sequential { gru, gru })
end)

test("another number of rows, and states of another model, are refused", function()
  for _, name in ipairs { "gru", "mamba", "gla", "gtu", "attention", "delta_net", "conv" } do
    local mixer = mixer_of(name, small[name] or {})
    local states = tl.carried(mixer, { memory = 9 })
    states:window(1, mixer, random(2, 6, D))
    raises(states.window, "3 sequences after 2: call session:reset%(%), or states:reset%(%)",
      states, 1, mixer, random(3, 6, D))
    ok(rawget(states.layers[1].module, "carry") == nil, "a failed window leaves no state behind")
    states:window(1, mixer, random(2, 6, D))
    states:reset():window(1, mixer, random(3, 6, D))
  end
  local model = nn.Sequential { mixer_of("gru", {}), mixer_of("gla", small.gla) }
  local moved, x = tl.carried(model), random(2, 6, D)
  moved:window(1, model, x)
  model[1], model[2] = model[2], model[1]
  tl.carried(model):window(1, model, x)
  local loaded = tl.carried(model)
  loaded:load(moved:state())
  raises(loaded.window, "the state state is .*, not .*: it is another layer's", loaded, 1, model,
    x)
  model[1] = mixer_of("gla", small.gla)
  raises(moved.window, "2 %(GLA%) was not called: after a change of the model call tl.carried",
    moved, 1, model, x)
  local one, two = mixer_of("gru", {}), nn.Sequential { mixer_of("gru", {}), mixer_of("gru", {}) }
  local states = tl.carried(one)
  states:window(1, one, random(2, 6, D))
  raises(function() tl.carried(two):load(states:state()) end, "states of 1 layers, the model 2")
end)

t.done()
