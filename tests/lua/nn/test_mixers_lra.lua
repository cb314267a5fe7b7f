-- test_mixers_lra.lua -- the attentions of nn/mixers/approximate, and the softmax attention which
-- they approximate: each against its formula, gradients, padding, random choices, memory, errors.

local t = require "harness"
local formula = require "attentions"
local tl = require "toeplab"
local core = require "toeplab.core"
local block_pattern = require "toeplab.nn.mixers.approximate.block_pattern"
local mixers = require "toeplab.nn.mixers"
local streams = require "toeplab.base.streams"

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

local function largest(x) return core.abs(x):amax():item() end

local function make(name, more)
  local o = { heads = 2 }
  for key, value in pairs(more or {}) do o[key] = value end
  return mixers.class(name)(o.dim or 6, o)
end

-- ---- The mixers and the lengths at which they are compared ----

-- Mixer, options, lengths: n beyond one group, block or chunk, and around its ends.
local cases = {
  { "attention", { causal = false }, { 1, 2, 7 } },
  { "kernelized", {}, { 1, 2, 7 } },
  { "linformer", { rank = 3, max_length = 11 }, { 1, 2, 7, 11 } },
  { "nystrom", { landmarks = 4 }, { 1, 2, 4, 5, 8, 13 } },
  { "informer", { features = 4, max_length = 20 }, { 1, 2, 7, 20 } },
  { "bigbird", { block = 2, random_blocks = 1 }, { 1, 2, 5, 9, 10, 13, 20 } },
  { "reformer", { chunk = 4, hashes = 2 }, { 1, 2, 4, 8, 16, 32 } },
  { "reformer", { chunk = 3, hashes = 1, bias = true }, { 3, 6, 15 } },
  { "skyformer", { features = 6 }, { 1, 2, 7, 20 } },
}

-- The random choices of module at length n, for it and for the formula.
local function choices(module, name, n)
  if name == "bigbird" then
    local size, o = module.opt.block, module.opt
    local random_blocks = block_pattern.random(7, o.heads, module:aligned(n), size,
      o.random_blocks, false)
    return random_blocks, random_blocks
  end
  if not module.draw then return nil, nil end
  local drawn = module:draw(name == "skyformer" and core.tensor { n, n } or n)
  return drawn, drawn:totable()
end

-- The formula for x and mask [b,n]: [b,n,h p].
local function expected(module, name, x, mask, plain)
  local h, out = module.opt.heads, {}
  local function heads(map)
    return map and map(x):reshape(x:dim(1), x:dim(2), h, -1):permute({ 1, 3, 2, 4 }):totable()
  end
  local q, k, v = heads(module.q), heads(module.k), heads(module.v)
  for row, m in ipairs(mask) do
    out[row] = {}
    for i in ipairs(m) do out[row][i] = {} end
    local own = name == "skyformer" and plain[row] or plain
    for head = 1, h do
      local o = formula[name](q[row][head], k and k[row][head], v[row][head], m, module, own,
        head)
      for i, values in ipairs(o) do
        table.move(values, 1, #values, #out[row][i] + 1, out[row][i])
      end
    end
  end
  return out
end

local function ones(b, n) return core.ones(b, n):totable() end

-- Makes a mixer whose output map is left out, or is the identity where it has no such option.
local function without_output(name, more)
  local o = { output = false }
  for key, value in pairs(more) do o[key] = value end
  if mixers.class(name).spec.fields.output then return make(name, o) end
  o.output = nil
  local module = make(name, o)
  module.o.weight:fill(0)
  for i = 0, 5 do module.o.weight:view(7 * i, { 1 }):fill(1) end
  module.o.bias:fill(0)
  return module
end

-- Row 1 ends with padding, row 2 has some in between; of few positions, all are tokens.
local function some_padding(n)
  local mask = ones(2, n)
  for i = n - n // 3 + 1, n do mask[1][i] = 0 end
  if n > 4 then mask[2][3] = 0 end
  return mask
end

test("every mixer agrees with its formula, with and without padding, at any length", function()
  tl.seed(3)
  for _, case in ipairs(cases) do
    local name, more, lengths = table.unpack(case)
    local module = without_output(name, more)
    for _, n in ipairs(lengths) do
      local x = random(2, n, 6)
      local drawn, plain = choices(module, name, n)
      for _, mask in ipairs { ones(2, n), some_padding(n) } do
        local y = core.no_grad(module, x, core.tensor(mask), drawn)
        local ok_, why = pcall(eq, y, expected(module, name, x, mask, plain), 2e-4)
        ok(ok_, ("%s, n = %d: %s"):format(name, n, why))
      end
      local y = core.no_grad(module, x, nil, drawn) -- the same as a mask of ones
      eq(largest(y - core.no_grad(module, x, core.ones(2, n), drawn)) < 1e-5, true)
    end
  end
end)

test("lengths between the multiples of a chunk: hidden rows are added and removed", function()
  tl.seed(4)
  local module = make("reformer", { chunk = 4, output = false })
  for _, n in ipairs { 5, 7, 9 } do
    local m = module:aligned(n)
    local x, drawn = random(1, n, 6), module:draw(m)
    local longer = core.concat({ x, random(1, m - n, 6) }, 2)
    local mask = core.concat({ core.ones(1, n), core.zeros(1, m - n) }, 2)
    local want = core.no_grad(module, longer, mask, drawn):narrow(2, 1, n)
    eq(largest(core.no_grad(module, x, nil, drawn) - want) < 1e-5, true)
  end
end)

-- Makes the module repeat the first choice that it derives from its input, because a difference
-- would see the choice change, and no gradient flows through it.
local function hold_choices(module)
  for _, name in ipairs { "top", "buckets" } do
    local choose_, first = module[name], nil
    if choose_ then
      module[name] = function(...)
        first = first or table.pack(choose_(...))
        return table.unpack(first)
      end
    end
  end
end

test("gradients of every mixer against finite differences", function()
  tl.seed(5)
  local lengths = { attention = 5, kernelized = 5, linformer = 7, nystrom = 8, informer = 9,
    bigbird = 11, reformer = 9, skyformer = 7 }
  for _, case in ipairs(cases) do
    local name, more = table.unpack(case)
    local module, n = make(name, more), lengths[case[1]]
    local x, mask = random(2, n, 6):require_grad(), core.tensor(some_padding(n))
    local drawn = choices(module, name, module.aligned and module:aligned(n) or n)
    hold_choices(module)
    local tensors = module:parameters()
    tensors[#tensors + 1] = { name = "x", tensor = x }
    local worst, rows = tl.gradcheck(function() return module(x, mask, drawn) end, tensors,
      { step = 2e-3, most = 8 })
    for _, row in ipairs(rows) do
      -- a bias of keys shifts all scores of a softmax alike, so its gradient is 0 up to rounding
      local apart = math.abs(row.gradient - row.difference)
      if row.error > 2e-2 and not (apart < 1e-3) then
        error(("%s %s: %g, by differences %g"):format(name, row.name, row.gradient,
          row.difference))
      end
    end
    ok(worst == worst and #rows == #tensors)
  end
end)

-- ---- Padding, random choices, memory ----

test("values at padding change no token", function()
  tl.seed(6)
  for _, case in ipairs(cases) do
    local name, more, lengths = table.unpack(case)
    local module, n = make(name, more), lengths[#lengths]
    local mask = core.tensor(some_padding(n))
    local drawn = choices(module, name, n)
    local x, tokens = random(2, n, 6), mask:reshape(2, n, 1)
    local other = x * tokens + random(2, n, 6) * (1 - tokens)
    local function at_tokens(input) return core.no_grad(module, input, mask, drawn) * tokens end
    ok(largest(at_tokens(x) - at_tokens(other)) < 1e-5, name)
    ok(largest(at_tokens(x) - core.no_grad(module, x, nil, drawn) * tokens) > 1e-4, name)
  end
end)

test("choices are drawn at each training step, and evaluation leaves training's stream", function()
  for _, name in ipairs { "informer", "reformer", "skyformer" } do
    local more = name == "informer" and { features = 4 }
      or name == "reformer" and { chunk = 2 } or { features = 4 }
    local function outputs(evaluations)
      tl.seed(7)
      local module, all = make(name, more), {}
      local x = random(1, 24, 6)
      for step = 1, 2 do
        all[step] = core.no_grad(module, x)
        module:eval()
        for _ = 1, evaluations do core.no_grad(module, x) end
        module:train()
      end
      return all[1], all[2]
    end
    local first, second = outputs(0)
    local first2, second2 = outputs(2)
    ok(largest(first - second) > 1e-5, name .. " drew the same twice")
    eq({ largest(first - first2), largest(second - second2) }, { 0, 0 })
  end
end)

test("Skyformer's landmarks lie among the tokens of each row, at the same part of each", function()
  local module = make("skyformer", { features = 40 })
  tl.seed(4)
  local drawn = module:draw(core.tensor { 3, 50 }):totable()
  tl.seed(4)
  local stream = streams.get "skyformer"
  for i = 1, 40 do
    local u = stream:unit()
    eq({ drawn[1][i], drawn[2][i] }, { math.floor(3 * u), math.floor(50 * u) })
  end
  local x, mask = random(1, 9, 6), core.tensor { { 1, 1, 1, 1, 1, 0, 0, 0, 0 } }
  tl.seed(4)
  local want = core.no_grad(module, x, mask, module:draw(core.tensor { 5 }))
  tl.seed(4)
  eq(largest(core.no_grad(module, x, mask) - want), 0)
end)

test("a stream that is reset, as by a resumed run, gives the same choices again", function()
  for name, more in pairs { informer = { features = 4 }, reformer = { chunk = 2 },
    skyformer = { features = 4 } } do
    local module, x, states = make(name, more), random(1, 24, 6), {}
    core.no_grad(module, x)
    for _, entry in ipairs(streams.list()) do states[entry.name] = { entry.stream:state() } end
    ok(states[name], name .. " has no stream of its name")
    local first = core.no_grad(module, x)
    for stream, state in pairs(states) do streams.get(stream):set_state(table.unpack(state)) end
    eq(largest(first - core.no_grad(module, x)), 0)
  end
end)

test("BigBird has one pattern for a length, which its seed decides", function()
  local x = random(1, 20, 6)
  local module = make("bigbird", { block = 2 })
  eq(largest(core.no_grad(module, x) - core.no_grad(module, x)), 0)
  tl.seed(99)
  local again = make("bigbird", { block = 2 }):load(module:state())
  eq(largest(core.no_grad(module, x) - core.no_grad(again, x)), 0)
  again = make("bigbird", { block = 2, seed = 1 }):load(module:state())
  ok(largest(core.no_grad(module, x) - core.no_grad(again, x)) > 1e-4)
end)

test("neither attention nor a linear mixer holds n x n numbers, forward and backward", function()
  local n = 2048
  local small = {
    attention = { causal = false, positions = "relative", window = 100, dropout = 0.1 },
    linformer = { rank = 8, max_length = n }, nystrom = { landmarks = 8 },
    informer = { features = 2 }, bigbird = { block = 8, random_blocks = 1 },
    reformer = { chunk = 8, hashes = 1 }, skyformer = { features = 8 },
  }
  local function peak(name, more)
    more.heads, more.dim = 1, 2
    local module, x = make(name, more), random(1, n, 2):require_grad()
    collectgarbage()
    core.memory_reset_peak()
    local before = core.memory().live
    module(x):sum():backward()
    local bytes = core.memory().peak - before
    collectgarbage()
    return bytes
  end
  ok(peak("kernelized", {}) > 4 * n * n)
  for name, more in pairs(small) do
    local bytes = peak(name, more)
    ok(bytes < 4 * n * n, ("%s needs %d bytes"):format(name, bytes))
  end
end)

test("padding = 'tokens': the added rows of zeros are attended to", function()
  tl.seed(10)
  local options = {
    nystrom = { landmarks = 4, max_length = 16, bias = false },
    bigbird = { block = 2, random_blocks = 1, bias = false },
    reformer = { chunk = 4, max_length = 16, bias = true }, -- its rows are added before the maps
  }
  for name, more in pairs(options) do
    local plain = make(name, more)
    more.padding = "tokens"
    local module, x = make(name, more):load(plain:state()), random(2, 11, 6)
    local n = module:aligned(11)
    local drawn, rows = choices(module, name, n), core.concat({ x, core.zeros(2, n - 11, 6) }, 2)
    local got = core.no_grad(module, x, nil, drawn)
    ok(largest(got - core.no_grad(plain, rows, nil, drawn):narrow(2, 1, 11)) < 1e-5, name)
    local hidden = core.concat({ core.ones(2, 11), core.zeros(2, n - 11) }, 2)
    ok(largest(got - core.no_grad(plain, rows, hidden, drawn):narrow(2, 1, 11)) > 1e-4, name)
    local mask = core.tensor(some_padding(11)) -- of the tokens that x has
    local longer = core.concat({ mask, core.ones(2, n - 11) }, 2)
    ok(largest(core.no_grad(module, x, mask, drawn)
      - core.no_grad(plain, rows, longer, drawn):narrow(2, 1, 11)) < 1e-5, name)
  end
end)

-- ---- What as_published changes ----

test("as_published: Nystrom and Skyformer depend on the other rows of the batch", function()
  for name, more in pairs { nystrom = { landmarks = 4 }, skyformer = { features = 6 } } do
    for _, published in ipairs { false, true } do
      tl.seed(8)
      more.as_published = published
      local module = make(name, more)
      local x, drawn = core.affine(random(2, 16, 6), 3, 0), choices(module, name, 16)
      local both, apart = core.no_grad(module, x, nil, drawn), 0
      for row = 1, 2 do
        local own = drawn and drawn:narrow(1, row, 1)
        local alone = core.no_grad(module, x:narrow(1, row, 1), nil, own)
        apart = math.max(apart, largest(alone - both:narrow(1, row, 1)))
      end
      ok((apart > 1e-5) == published, ("%s %s: %g"):format(name, published, apart))
    end
  end
end)

test("as_published: Linformer's map is fixed, Informer sees padding", function()
  tl.seed(9)
  local linformer = make("linformer", { rank = 2, max_length = 4, as_published = true })
  ok(not linformer.positions:requires_grad() and linformer:state().positions)
  ok(make("linformer", { rank = 2, max_length = 4 }).positions:requires_grad())
  local x, mask = random(1, 9, 6), core.tensor { { 1, 1, 1, 1, 1, 1, 0, 0, 0 } }
  local informer = make("informer", { features = 4, as_published = true })
  local drawn = informer:draw(9)
  eq(largest(core.no_grad(informer, x, mask, drawn) - core.no_grad(informer, x, nil, drawn)), 0)
end)

test("BigBird's random blocks: outside the window; as published among few", function()
  local function each(n, size, draws, published, check)
    for _, head in ipairs(block_pattern.random(1, 2, n, size, draws, published)) do
      eq(#head, n // size - 2)
      for q, drawn in ipairs(head) do
        local before = {}
        eq(#drawn, draws)
        for _, key in ipairs(drawn) do
          ok(key == -1 or not before[key], "a block is drawn twice")
          before[key] = true
          check(q, key)
        end
      end
    end
  end
  local furthest = 0
  each(4096, 64, 3, false, function(q, key)
    ok(key >= 1 and key <= 62 and math.abs(key - q) > 1)
    furthest = math.max(furthest, key)
  end)
  ok(furthest > 40)
  each(4096, 64, 3, true, function(_, key) ok(key >= 1 and key <= 15) end)
  each(2048, 64, 3, true, function(q, key)
    ok(key >= 1 and key <= 9 and math.abs(key - q) > 1)
  end)
  each(10, 2, 3, false, function(q, key) ok(key == -1 or math.abs(key - q) > 1) end)
  eq(block_pattern.keys(1, 6, { 3 }), { 0, -1, 1, 2, 5, 3 })
  eq(block_pattern.keys(2, 6, { 4 }), { 0, 1, 2, 3, 5, 4 })
  eq(block_pattern.keys(4, 6, { 1 }), { 0, 3, 4, -1, 5, 1 })
end)

-- ---- Errors ----

test("wrong use of the mixers is one clear error", function()
  raises(make, "Nystrom: option 'causal' must be false: this mixer sees all positions", "nystrom",
    { causal = true })
  raises(make, "BigBird: 6 channels do not divide into 4 heads: give head_dim", "bigbird",
    { heads = 4 })
  for _, name in ipairs { "attention", "kernelized" } do
    eq(make(name, { heads = 4, head_dim = 2 })(random(1, 3, 6)):shape(), { 1, 3, 6 })
  end
  raises(make, "Linformer: option 'max_length' is required", "linformer")
  local x = random(2, 5, 6)
  raises(make("linformer", { max_length = 4 }), "Linformer: 5 positions, but max_length = 4", x)
  raises(make("nystrom", { max_length = 4, padding = "tokens" }),
    "Nystrom: 5 positions, but max_length = 4", x)
  for _, name in ipairs { "attention", "kernelized" } do
    raises(make(name), "%w+: x is tensor %[2,6%] float32, not %[b,n,6%]", random(2, 6))
    raises(make(name), "the mask is tensor %[2,4%] float32, not %[2,5%]", x, core.ones(2, 4))
  end
  raises(tl.models.tnn_lm, "option 'causal' must be false", { vocab = 4, dim = 6, layers = 1,
    mixer = "skyformer" })
  local model = tl.models.tnn_classifier { vocab = 4, classes = 3, dim = 6, layers = 1, heads = 2,
    mixer = "reformer" }
  eq(core.no_grad(model, core.ids { { 1, 2, 3 } }):shape(), { 1, 3 })
end)

t.done()
