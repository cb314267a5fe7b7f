-- test_horizon.lua: the decay horizon: the last lag, the bound on the error, and that the layer
-- computes the cut operator.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function largest(x) return core.abs(x):reshape(-1):amax():item() end

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

test("the least number of lags whose bound is within the horizon", function()
  for _, word in ipairs { 0.1, 0.5, 0.9, 0.99, 0.999 } do
    local gamma = string.unpack("f", string.pack("f", word)) -- as the layer has it
    for _, share in ipairs { 0.5, 1e-2, 1e-3, 1e-7 } do
      for _, causal in ipairs { true, false } do
        local tno = nn.TNO(1, { decay = word, horizon = share, causal = causal })
        local count = tno:horizon(1 << 30)
        local function left(k)
          return causal and gamma ^ k or 2 * gamma ^ k / (1 + gamma)
        end
        ok(left(count) <= share, "its bound")
        ok(count == 1 or left(count - 1) > share, "one less is too few")
        local n, neglected, sum = count + 50, 0, 0
        for k = causal and 0 or 1 - n, n - 1 do
          sum = sum + gamma ^ math.abs(k)
          if math.abs(k) >= count then neglected = neglected + gamma ^ math.abs(k) end
        end
        local kept, bound = tno:horizon(n)
        eq(kept, count)
        eq(bound / (neglected / sum), 1, 1e-6)
        ok(bound <= share)
        eq({ tno:horizon(count) }, { count, 0.0 })
      end
    end
  end
  eq({ nn.TNO(1, { decay = 0.99, horizon = 1e-7 }):horizon(8192) },
    { 1604, string.unpack("f", string.pack("f", 0.99)) ^ 1604 }, 1e-12)
  eq({ nn.TNO(1):horizon(8192) }, { 8192, 0.0 })
  eq(nn.TNO(3, { decay = { 0.5, 0.9, 0.1 }, horizon = 1e-3 }):horizon(999), 66)
  eq(nn.TNO(1, { decay = 0.9, horizon = 1e-3, max_lag = 7 }):plan(99).points:dim(1), 7)
end)

-- y of x = 1 with the encoder that is 1 everywhere, and the options o with the horizon share.
local function constant(o, n, share)
  local own = { encoder = function(p) return core.ones(p:dim(1), 4) end, horizon = share }
  for _, name in ipairs { "causal", "decay", "backend" } do own[name] = o[name] end
  return nn.TNO(4, own)(core.ones(1, n, 4))
end

-- Of the encoder's output at the lags short of n, by magnitude.
local function largest_encoded(tno, n)
  local points = {}
  for k = tno.opt.causal and 0 or 1 - n, n - 1 do points[#points + 1] = k end
  return largest(tno.encoder(core.tensor(points), n, "lag"))
end

test("the loss is within the bound, and near it at worst", function()
  for _, causal in ipairs { true, false } do
    for _, backend in ipairs { "rac", "fft", "auto" } do
      local n, o = 300, { causal = causal, decay = 0.9, backend = backend, rpe = { hidden = 8 } }
      tl.seed(4)
      local whole = nn.TNO(4, o)
      o.horizon = 1e-3
      tl.seed(4)
      local cut = nn.TNO(4, o)
      core.no_grad(function()
        local kept, bound = cut:horizon(n)
        ok(kept < 80)
        local allowed = bound * largest_encoded(whole, n) * (causal and 10 or 19)
        local x = tl.stream_of("test"):uniform(core.zeros(2, n, 4), -1, 1)
        local lost = largest(whole(x) - cut(x))
        ok(lost <= allowed, ("lost %g, allowed %g"):format(lost, allowed))
        lost = largest(constant(o, n) - constant(o, n, 1e-3))
        allowed = bound * (causal and 10 or 19)
        ok(lost <= allowed * 1.01 and lost >= allowed * 0.9, "the bound is met")
      end)
    end
  end
end)

test("gradients agree with the cut operator", function()
  for _, causal in ipairs { true, false } do
    local o = { causal = causal, decay = 0.8, horizon = 1e-2, rpe = { hidden = 4, layers = 1 } }
    local got = {}
    for i, backend in ipairs { "rac", "matrix" } do
      tl.seed(5)
      o.backend = backend
      local tno = nn.TNO(3, o)
      local x = random(2, 150, 3):require_grad()
      local loss = (tno(x) * core.range(1, 150):reshape(1, 150, 1)):sum()
      loss:backward()
      got[i] = { x = x:grad() }
      for _, p in ipairs(tno:parameters()) do got[i][p.name] = p.tensor:grad() end
    end
    for name, grad in pairs(got[2]) do
      ok(largest(got[1][name] - grad) <= 1e-4 * largest(grad), name)
    end
  end
end)

test("requires a fixed decay below 1, and an act that adds nothing", function()
  for _, decay in ipairs { "none", "learnable", "alibi", 1.0 } do
    raises(nn.TNO, "a horizon requires a decay that is fixed and below 1, a number or a list, not",
      2, { decay = decay, horizon = 1e-3 })
  end
  raises(nn.TNO, "not 1.0", 2, { decay = { 0.5, 1.0 }, horizon = 1e-3 })
  raises(nn.TNO, "not 'exp'", 2, { act = "exp", horizon = 1e-3 })
  raises(nn.TNO, "'horizon' = 2 must be above 0 and below 1", 2, { horizon = 2 })
  ok(tostring(nn.TNO(2, { horizon = 1e-7 })):find("horizon 1e-07: lags below 1604", 1, true))
  local model = tl.models.tnn_lm(20, { layers = 1, dim = 8, horizon = 1e-2, decay = 0.9 })
  ok(tostring(model):find("horizon 0.01: lags below 44", 1, true))
end)

test("uses the gamma in use, even from a loaded state", function()
  local o = { decay = 0.9, horizon = 1e-3 }
  local quick = nn.TNO(2, o)
  eq(quick:plan(200).asked:dim(1), 66)
  o.decay = { 0.95, 0.97 }
  local slow = nn.TNO(2, o)
  local kept, bound = slow:horizon(1000)
  ok(kept > 200)
  quick:load(slow:state())
  eq({ quick:horizon(1000) }, { kept, bound })
  eq(quick:plan(200).asked:dim(1), 200)
  eq(quick:plan(1000).asked:dim(1), kept)
  local x = random(1, 300, 2)
  eq(quick(x):totable(), slow(x):totable())
  quick.decay.gamma:fill(1)
  raises(quick, "a horizon requires a decay that is fixed and below 1.*not 1.0", x)
end)

test("of max_lag, horizon and the backend's lags, the fewest count", function()
  local o = { decay = 0.99, max_lag = 50, horizon = 1e-7, rpe = { hidden = 4, layers = 1 } }
  local tno = nn.TNO(2, o)
  eq({ tno:horizon(2000) }, { 50, 0.0 })
  eq({ tno:horizon(30) }, { 30, 0.0 })
  ok(tostring(tno):find("horizon 1e-07: lags below 50", 1, true), tostring(tno))
  o.max_lag = 1900
  local of_1900 = { nn.TNO(2, o):horizon(1900) }
  eq({ nn.TNO(2, o):horizon(2000) }, of_1900)
  eq(of_1900[1], 1604)
  for own, left in pairs { [0] = 50, [30] = 30, [50] = 50, [80] = 50 } do
    for _, causal in ipairs { true, false } do
      tl.seed(6)
      local less = nn.TNO(2, { max_lag = 50, causal = causal, backend_options = { lags = own } })
      tl.seed(6)
      local plain = nn.TNO(2, { max_lag = left, causal = causal })
      local x = random(1, 200, 2)
      eq(less(x):totable(), plain(x):totable())
    end
  end
end)

t.done()
