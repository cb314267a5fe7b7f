-- test_optim.lua -- optimisers against their formulas, clipping, saved state, and the schedules in
-- closed form.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

-- A model of one parameter w [2] whose loss is sum(g * w): its gradient is g.
local Point = nn.class("Point", {})
function Point:build()
  self.w = core.tensor({ 1, -2 }):require_grad()
  self.fixed = core.tensor { 5 }
end
function Point:forward(g)
  return (self.w * g):sum()
end

local function step(model, opt, g)
  opt:zero_grad()
  model(core.tensor(g)):backward()
  return opt:step()
end

test("adam recovers from a gradient whose square exceeds float32", function()
  local m = Point()
  local opt = tl.optim.adam(m, { lr = 0.5, betas = { 0, 0 }, eps = 1e-8 })
  step(m, opt, { 1e30, -1e20 })
  eq(m.w, { 0.5, -1.5 }, 1e-5)
  step(m, opt, { 1, 1 })
  eq(m.w, { 0, -2 }, 1e-5)
end)

test("what a function cannot take is named", function()
  local x = tl.ones(2):require_grad()
  local opt = tl.optim.adam(Point(), { lr = 0.5 })
  for want, wrong in pairs {
    ["adam: load takes what state%(%) returns"] = function() opt:load({}) end,
    ["optim has no 'AdamW'; for PyTorch's 'AdamW' write tl.optim.adam%("] =
      function() return tl.optim.AdamW end,
    ["gradcheck: the first argument is a function"] = function() tl.gradcheck(x:sum(), { x }) end,
    ["gradcheck: the function must return a tensor"] =
      function() tl.gradcheck(function() return 3 end, { x }) end,
    ["gradcheck: two calls of the function differ"] =
      function() tl.gradcheck(function() return tl.nn.Dropout(0.5)(x) end, { x }) end,
    ["'integer' is not a type of options: write 'int'"] =
      function() nn.class("Wrong", { dim = "integer" }) end,
    ["'int%?' is not a type of options: write tl.options.field { type = 'int', optional = true }"] =
      function() nn.class("Wrong", { dim = "int?" }) end,
  } do raises(wrong, want) end
  local _, rows = tl.gradcheck(function() return (x * x):sum() end, { x })
  eq(rows[1].gradient, 2)
end)

test("sgd: plain, momentum, weight decay", function()
  local m = Point()
  step(m, tl.optim.sgd(m, { lr = 0.1 }), { 1, 2 })
  eq(m.w, { 0.9, -2.2 }, 1e-6)
  local opt = tl.optim.sgd(m, { lr = 0.1, momentum = 0.5 })
  step(m, opt, { 1, 2 })
  step(m, opt, { 1, 2 })
  eq(m.w, { 0.9 - 0.1 - 0.15, -2.2 - 0.2 - 0.3 }, 1e-6)
  m = Point()
  step(m, tl.optim.sgd(m, { lr = 0.1, weight_decay = 0.5 }), { 0, 0 })
  eq(m.w, { 0.95, -1.9 }, 1e-6)
  eq(m.fixed, { 5 })
end)

-- Reference of Adam for one scalar: fairseq and adamw decouple the decay, adam adds it to g.
local function by_hand(kind, w, grads, o)
  local m, v = 0, 0
  for s, g in ipairs(grads) do
    if kind == "adam" then g = g + o.weight_decay * w else w = w - o.lr * o.weight_decay * w end
    m = o.betas[1] * m + (1 - o.betas[1]) * g
    v = o.betas[2] * v + (1 - o.betas[2]) * g * g
    local c1, c2 = 1 - o.betas[1] ^ s, 1 - o.betas[2] ^ s
    if kind == "fairseq" then
      w = w - o.lr * math.sqrt(c2) / c1 * m / (math.sqrt(v) + o.eps)
    else
      w = w - o.lr * (m / c1) / (math.sqrt(v / c2) + o.eps)
    end
  end
  return w
end

test("adam: the three kinds follow their formulas", function()
  for _, kind in ipairs { "fairseq", "adam", "adamw" } do
    local m = Point()
    local o = { kind = kind, lr = 0.05, betas = { 0.8, 0.95 }, eps = 1e-2, weight_decay = 0.3 }
    local opt = tl.optim.adam(m, o)
    for _, g in ipairs { 0.5, -1.5, 0.1 } do step(m, opt, { g, 2 * g }) end
    eq(m.w:totable(), {
      by_hand(kind, 1, { 0.5, -1.5, 0.1 }, o), by_hand(kind, -2, { 1, -3, 0.2 }, o),
    }, 1e-6)
  end
end)

test("clipping scales by the global norm and reports the norm before", function()
  local m = Point()
  local info = step(m, tl.optim.sgd(m, { lr = 1, clip = 1 }), { 3, 4 })
  eq(info.grad_norm, 5, 1e-6)
  eq(m.w, { 1 - 0.6, -2 - 0.8 }, 1e-5)
  m = Point()
  step(m, tl.optim.sgd(m, { lr = 1, clip = 10 }), { 3, 4 })
  eq(m.w, { -2, -6 }, 1e-6)
end)

test("a gradient that is not finite is an error and changes nothing", function()
  local m = Point()
  local opt = tl.optim.adam(m)
  raises(step, "norm is .*nan at update 1", m, opt, { 0 / 0, 1 })
  raises(step, "norm is inf at update 1", m, opt, { math.huge, 1 })
  eq(m.w, { 1, -2 })
  eq(opt.steps, 0)
end)

test("an invalid learning rate is an error and changes nothing", function()
  local m = Point()
  for _, rate in ipairs { 0 / 0, math.huge, -1, "0.1", false } do
    local opt = tl.optim.adam(m, { schedule = function() return rate or nil end })
    raises(step, "the schedule returned the rate .* at update 1", m, opt, { 3, 4 })
    eq({ m.w, opt.steps }, { { 1, -2 }, 0 })
  end
end)

test("state: a saved optimiser continues exactly", function()
  local a, b = Point(), Point()
  local oa = tl.optim.adam(a, { lr = 0.1, schedule = "inverse_sqrt", warmup = 3 })
  step(a, oa, { 1, 2 })
  step(a, oa, { -1, 1 })
  local ob = tl.optim.adam(b, { lr = 0.1, schedule = "inverse_sqrt", warmup = 3 })
  b:load(a:state())
  local state = oa:state()
  eq(state.step, 2)
  ob:load(state)
  ok(ob.moments.m[1] ~= oa.moments.m[1], "load must copy")
  eq(step(a, oa, { 3, 1 }), step(b, ob, { 3, 1 }))
  eq(a.w, b.w)
  raises(ob.load, "lacks 'm.w'", ob, { step = 1, tensors = {} })
  state.tensors.extra = core.zeros(1)
  raises(ob.load, "unknown 'extra'", ob, state)
  local wrong = { step = 1, tensors = { ["m.w"] = core.zeros(3), ["v.w"] = core.zeros(2) } }
  raises(ob.load, "'m.w' is", ob, wrong)
end)

test("options of optimisers are strict", function()
  local m = Point()
  raises(tl.optim.adam, "unknown option 'bets'; did you mean 'betas'", m, { bets = { 0, 0 } })
  raises(tl.optim.adam, "'betas' must be two numbers", m, { betas = { 0.9 } })
  for _, lr in ipairs { 0, math.huge } do
    raises(tl.optim.adam, "'lr' = %w+ must be above 0 and finite", m, { lr = lr })
  end
  raises(tl.optim.sgd, "'lr' = %-?nan must be a number", m, { lr = 0 / 0 })
  raises(tl.optim.adam, "'eps' = 0 must be above 0", m, { eps = 0 })
  raises(tl.optim.adam, "'kind' = 'adamax' is not one of", m, { kind = "adamax" })
  raises(tl.optim.adam, "schedule.cosine: option 'steps' is required", m, { schedule = "cosine" })
  raises(tl.optim.adam, "no parameter to train", nn.Dropout(0.1))
  raises(tl.optim.adam, "takes the model itself, as in tl%.optim%.adam%(model",
    nn.Linear(2, 2):parameters())
  raises(function() return tl.optim.adamm end, "did you mean 'adam'")
end)

-- ---- Schedules ----------------------------------------------------------------------------------

local function values(rate, ...)
  local list = {}
  for i, s in ipairs { ... } do list[i] = rate(s) end
  return list
end

test("inverse square root: fairseq's numbers", function()
  local rate = tl.schedule.inverse_sqrt { lr = 5e-3, warmup = 4, warmup_init_lr = 1e-7 }
  eq(values(rate, 1, 2, 3, 4, 5, 6, 12), {
    1e-7, 1.250075e-3, 2.50005e-3, 3.750025e-3, 5e-3, 4.47213595e-3, 3.01511345e-3,
  }, 1e-11)
  rate = tl.schedule.inverse_sqrt { lr = 5e-4, warmup = 4000, warmup_init_lr = 1e-7 }
  eq(rate(16001), 2.5e-4, 1e-12)
  eq(values(tl.schedule.inverse_sqrt { lr = 1 }, 1, 2, 5), { 1, 1, 0.5 }, 1e-12)
end)

test("constant, cosine and polynomial, with warm-up and at their ends", function()
  eq(values(tl.schedule.constant { lr = 0.1 }, 1, 1000), { 0.1, 0.1 })
  eq(values(tl.schedule.constant { lr = 1, warmup = 2 }, 1, 2, 3, 4), { 0, 0.5, 1, 1 }, 1e-12)
  local cosine = tl.schedule.cosine { lr = 1, warmup = 10, steps = 110, end_lr = 0.1 }
  eq(values(cosine, 1, 6, 11, 61, 111, 500), { 0, 0.5, 1, 0.55, 0.1, 0.1 }, 1e-12)
  local wraps = tl.schedule.cosine { lr = 1, warmup = 5000, steps = 50000, wraps = true }
  eq(values(wraps, 50001, 95001), { 0, 1 }, 1e-12)
  local linear = tl.schedule.polynomial { lr = 1, warmup = 10, steps = 110 }
  eq(values(linear, 11, 61, 111, 200), { 1, 0.5, 0, 0 }, 1e-12)
  local square = tl.schedule.polynomial { lr = 1, steps = 100, power = 2, end_lr = 0.5 }
  eq(values(square, 1, 51, 101), { 1, 0.625, 0.5 }, 1e-12)
  local wsd = tl.schedule.wsd { lr = 1, warmup = 10, steps = 100, end_lr = 0.2, cooldown = 0.4 }
  eq(values(wsd, 1, 6, 11, 61, 81, 101, 500), { 0, 0.5, 1, 1, 0.6, 0.2, 0.2 }, 1e-12)
  eq(values(tl.schedule.wsd { lr = 1, steps = 10 }, 1, 9, 10), { 1, 1, 0.5 }, 1e-12)
  eq(values(tl.schedule.wsd { lr = 1, steps = 10, cooldown = 0 }, 10, 12), { 1, 0 }, 1e-12)
  eq(values(tl.schedule.wsd { lr = 1, warmup = 4, steps = 10, cooldown = 1 }, 5, 8, 11),
    { 1, 0.5, 0 }, 1e-12) -- the fall begins after the warm-up
  local both = {} -- one_cycle: the rate and the decay of the first moment
  local cycle = tl.schedule.one_cycle { lr = 1, warmup = 5, steps = 9 }
  for i, s in ipairs { 1, 3, 5, 7, 9, 50 } do both[i] = { cycle(s) } end
  eq(both, { { 0.04, 0.95 }, { 0.52, 0.9 }, { 1, 0.85 }, { 0.500002, 0.9 }, { 4e-6, 0.95 },
    { 4e-6, 0.95 } }, 1e-12)
  eq({ tl.schedule.one_cycle { lr = 1, warmup = 1, steps = 1 } (1) }, { 1, 0.85 })
  raises(tl.schedule.one_cycle, "'warmup' = 0 must be at least 1",
    { lr = 1, warmup = 0, steps = 2 })
  raises(function() return tl.schedule.cosin end, "did you mean 'cosine'")
end)

test("refuses options that a schedule does not use, unless other parts share them", function()
  local m = Point()
  for _, case in ipairs {
    { { lr = 1, steps = 4 }, "optim.adam: the schedule 'constant' does not take steps" },
    { { schedule = "one_cycle", warmup = 2, steps = 4, end_lr = 0.1 }, "does not take end_lr" },
    { { schedule = "cosine", steps = 4, cooldown = 0.1 }, "does not take cooldown" },
    { { schedule = function() return 1 end, warmup = 2 }, "a function does not take warmup" },
    { 0.1, "optim.adam: takes a table of options, not a number" },
    { { schedule = function() return 1 end, lr = 2 }, "a function does not take lr" },
  } do
    raises(tl.optim.adam, case[2], m, case[1])
  end
  tl.optim.adam(m, tl.options.shared("the configuration", { steps = 4, end_lr = 0.1 }))
  tl.optim.adam(m, tl.options.check("x", tl.optim.specs.adam, { lr = 1 }))
  tl.optim.adam(m, { schedule = "cosine", warmup = 3, steps = 4 })
end)

test("an optimiser follows its schedule", function()
  local m = Point()
  local opt = tl.optim.sgd(m, { lr = 1, schedule = "polynomial", steps = 4, end_lr = 0.5 })
  local rates = {}
  for i = 1, 6 do rates[i] = step(m, opt, { 0, 0 }).lr end
  eq(rates, { 1, 0.875, 0.75, 0.625, 0.5, 0.5 }, 1e-12)
  local own = tl.optim.sgd(m, { schedule = function(s) return s / 10 end })
  eq(step(m, own, { 0, 0 }).lr, 0.1, 1e-12)
end)

test("the second number of a schedule is beta1 of Adam and the momentum of SGD", function()
  local rates, betas = { 0.1, 0.3, 0.2 }, { 0.9, 0.7, 0.8 }
  local function given(s) return rates[s], betas[s] end
  local m, first, w, v, grads = Point(), 0, 1, 0, { 0.5, -1.5, 0.1 }
  local opt = tl.optim.adam(m, { kind = "adamw", schedule = given, betas = { 0.5, 0.95 } })
  for s, g in ipairs(grads) do
    step(m, opt, { g, g })
    first, v = betas[s] * first + (1 - betas[s]) * g, 0.95 * v + 0.05 * g * g
    w = w - rates[s] * first / (1 - betas[s] ^ s) / (math.sqrt(v / (1 - 0.95 ^ s)) + 1e-8)
  end
  eq(m.w:totable()[1], w, 1e-6)
  for momentum, want in pairs { [0.0] = 1 - 0.1 * 0.5 + 0.3 * 1.5,
    [0.5] = 1 - 0.1 * 0.5 - 0.3 * (0.7 * 0.5 - 1.5) } do
    m = Point()
    opt = tl.optim.sgd(m, { schedule = given, momentum = momentum })
    for s = 1, 2 do step(m, opt, { grads[s], 0 }) end
    eq(m.w:totable()[1], want, 1e-6)
  end
  opt = tl.optim.adam(Point(), { lr = 1, schedule = "one_cycle", warmup = 3, steps = 6 })
  eq({ opt.rate(3) }, { 1, 0.85 }, 1e-12)
end)

t.done()
