-- test_nn_share.lua -- nn.share: one pass of the encoders for the gradients of several losses.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

local rpe = { hidden = 4, layers = 1 }
local kinds = {
  { "mlp", { rpe = rpe, decay = 0.9 } },
  { "mlp that acts after the decay", { rpe = rpe, decay = 0.9, act = "silu" } },
  { "mlp, ski", { rpe = rpe, decay = "none", backend = "ski",
    backend_options = { inducing = 4, taps = 3 } } },
  { "mlp, fd", { rpe = rpe, decay = "none", backend = "fd" } },
  { "table", { encoder = "table", table_length = 16, decay = 0.9 } },
  { "bare table", { encoder = "table", table_length = 16, decay = "none" } },
  { "horizon", { rpe = rpe, decay = 0.5, horizon = 1e-3 } },
}

-- The gradients of all parameters of m, by the losses of each x.
local function gradients(m, list, how)
  for _, p in ipairs(m:parameters()) do p.tensor:set_grad(nil) end
  local function all()
    for _, x in ipairs(list) do (m(x) * x):sum():backward() end
  end
  if how then how(all) else all() end
  local result = {}
  for i, p in ipairs(m:parameters()) do
    local g = p.tensor:grad()
    result[i] = g and g:clone() or false
  end
  return result
end

local function same(a, b)
  eq(#a, #b)
  for i = 1, #a do
    eq(not a[i], not b[i])
    if a[i] then
      local size = core.abs(a[i]):amax():item()
      ok(core.abs(a[i] - b[i]):amax():item() <= 1e-5 * size + 1e-7, "gradient " .. i)
    end
  end
end

for _, case in ipairs(kinds) do
  test("gradients are those of one loss after another: " .. case[1], function()
    tl.seed(3)
    local m = nn.TNO(2, case[2])
    local list = { random(1, 9, 2), random(2, 9, 2), random(1, 12, 2) }
    local apart, shared = gradients(m, list), gradients(m, list, nn.share)
    ok(#apart > 0 and apart[1], "there are gradients")
    same(apart, shared)
    m:parameters()[1].tensor:require_grad(false)
    same(gradients(m, list), gradients(m, list, nn.share))
  end)
end

-- How often the operator runs.
local function calls(fn, name)
  core.profile_start()
  fn()
  for _, kernel in ipairs(core.profile_stop()) do
    if kernel.name == name then return kernel.calls end
  end
  return 0
end

test("a step of micro batches runs each encoder once to know, and once to learn", function()
  tl.seed(4)
  local model = tl.models.tnn_lm { vocab = 5, layers = 2, dim = 4, expand = 2, rpe_dim = 4,
    rpe_layers = 1 }
  local opt = tl.optim.sgd(model, { lr = 0.1 })
  local rows = {}
  for r = 1, 6 do rows[r] = { 1, 2, 3, 4, r % 5 } end
  local ids = core.ids(rows)
  for parts, want in pairs { [1] = 2, [2] = 4, [6] = 4 } do
    eq(calls(function() tl.train.lm_step(model, opt, ids, parts) end, "mlp"), want)
  end
  eq(calls(function() tl.train.lm_step(model, opt, ids, 6) end, "mlp_grad"), 2)
end)

test("a user's encoder runs each time, as it may draw random numbers", function()
  local asked = 0
  local m = nn.TNO(2, { encoder = function(points)
    asked = asked + 1
    return core.ones(points:dim(1), 2)
  end })
  nn.share(function() for _ = 1, 3 do (m(random(1, 4, 2):require_grad())):sum():backward() end end)
  eq(asked, 3)
end)

test("after an error nothing is shared", function()
  local m = nn.TNO(2, { rpe = rpe })
  raises(nn.share, "stopped", function()
    m(random(1, 4, 2))
    error "stopped"
  end)
  local before = gradients(m, { random(1, 4, 2) })
  ok(before[1], "an encoder's gradient comes with the loss again")
  eq(nn.share(function(a, b) return b, a end, 1, 2), 2)
end)

t.done()
