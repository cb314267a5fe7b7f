-- test_plateau.lua: the schedule plateau beside PyTorch's, and resumed.
local t = require "harness"
local tl = require "toeplab"
local trials = require "trials"

local function optimiser(more)
  local o = { lr = 0.1, schedule = "plateau", plateau_factor = 0.5, plateau_patience = 1,
    end_lr = 0.02 }
  for name, value in pairs(more or {}) do o[name] = value end
  tl.seed(1)
  local model = tl.nn.Linear(2, 1)
  return tl.optim.sgd(model, o), model
end

local function rate(opt, model)
  opt:zero_grad()
  model(tl.ones(1, 2)):sum():backward()
  return opt:step().lr
end

-- The values, and the rates after each of them of torch.optim.lr_scheduler.ReduceLROnPlateau(factor
-- 0.5, patience 1, min_lr 0.02) of PyTorch 1.13.
local values = { 5, 4, 4, 3.9999, 3.9995, 3.9996, 3.9995, 3, 3, 3, 0 / 0, 3, 2.99, 3, 3, 3, 3 }
local rates = { 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.02, 0.02, 0.02, 0.02, 0.02,
  0.02, 0.02, 0.02 }

t.test("the rate falls as by PyTorch's ReduceLROnPlateau, also after a state is loaded", function()
  for cut = 0, #values do
    local opt, model = optimiser()
    for i, value in ipairs(values) do
      opt:measured(value)
      t.eq(rate(opt, model), rates[i], 1e-12)
      if i == cut then
        local state = opt:state()
        opt, model = optimiser()
        opt:load(state)
      end
    end
  end
end)

t.test("a warm-up comes first, negative measures fall too, and other schedules ignore them",
  function()
    local opt, model = optimiser { warmup = 4, end_lr = 0.0, plateau_patience = 0 }
    local got = {}
    for i, value in ipairs { -1, -2, -2, -1.9999, -3, -2.9 } do
      opt:measured(value)
      got[i] = rate(opt, model)
    end
    t.eq(got, { 0, 0.025, 0.05, 0.075, 0.025, 0.0125 }, 1e-12)
    t.eq(tl.schedule.plateau { lr = 1, plateau_factor = 0.5 } (9, 3), 0.125)
    t.eq(tl.schedule.plateau { lr = 1 } (9), 1.0)
    local plain = tl.optim.sgd(model, { lr = 0.1 })
    for _ = 1, 20 do plain:measured(1) end
    t.eq(rate(plain, model), 0.1)
    t.eq(plain:state().plateau, nil)
    t.raises(tl.optim.sgd, "the schedule 'plateau' does not take steps", model,
      { schedule = "plateau", steps = 3 })
    t.raises(tl.optim.sgd, "the schedule 'constant' does not take plateau_factor", model,
      { plateau_factor = 0.5 })
  end)

local script = [[
local tl = require "toeplab"
return tl.experiment "plateau" {
  fixed = { steps = 12, lr = 1.0, schedule = "plateau", plateau_factor = 0.5,
    plateau_patience = 1 },
  checkpoint = { steps = 2 },
  trial = function(t, c)
    local model = tl.nn.Linear(2, 1)
    local opt = tl.optim.sgd(model, c)
    for step in t:steps(c.steps, model, opt) do
      opt:zero_grad()
      model(tl.ones(1, 2)):sum():backward()
      t:log { loss = opt:step().lr }
      t:best(math.max(6 - step, 2))
    end
  end,
  report = function() end,
}
]]

t.test("a trial stopped anywhere has the same rates", function()
  local function rates_of(folder)
    local list = {}
    for i, row in ipairs(trials.query(folder, [[SELECT value FROM v_metrics WHERE name = 'loss'
      ORDER BY step]])) do list[i] = row.value end
    return list
  end
  local want = { 1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125 }
  t.in_folder(function(folder)
    t.eq((trials.run(folder, script)), 0)
    t.eq(rates_of(folder), want)
  end)
  t.in_folder(function(folder)
    t.eq({ trials.run_stopped(folder, script, { 3, 5, 6, 8, 11 }, "step") }, { 0, 6 })
    t.eq(rates_of(folder), want)
  end)
end)

t.done()
