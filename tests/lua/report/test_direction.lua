-- test_direction.lua: whether lower or higher values of a metric are better is declared once, and
-- all that decides asks for it in one place.
local t = require "harness"
local direction = require "toeplab.base.direction"
local experiment = require "toeplab.trials.experiment"
local guard = require "toeplab.trials.guard"
local sweeps = require "sweeps"

t.test("the last known word of a metric's name tells its direction, others tell nothing", function()
  for metric, better in pairs { Accuracy = "higher", auc = "higher", auroc = "higher",
    acc5 = "higher", matthews = "higher", valid_mcc = "higher", spearman = "higher",
    pearson = "higher", f1 = "higher", ["recall@10"] = "higher", steps_per_second = "higher",
    val_loss = "lower", ["ppl@16x"] = "lower", recall_error = "lower", step_seconds = "lower",
    bits_per_character = "lower", margin = "none", parameters = "none", accuracy_drop = "none",
    delta_loss = "none", acceleration = "none", glossary = "none", incorrect = "none" } do
    t.eq({ metric, direction.of(nil, metric) or "none" }, { metric, better })
  end
  t.eq(direction.of({ ppl = "higher" }, "ppl@512"), "higher")
  t.eq(direction.of({ ["ppl@512"] = "higher" }, "ppl"), "lower")
end)

-- Six seeds of the models a and b, whose metrics are higher for b in each.
local function write(folder, names, s)
  local list = {}
  for seed = 1, 6 do
    for model, gap in pairs { a = 0.0, b = 0.1 } do
      local metrics = {}
      for _, name in ipairs(names) do
        metrics[name] = 0.5 + 0.01 * (seed * 7 % 5) * (1 + gap) + gap
      end
      list[#list + 1] = { config = { model = model }, seed = seed, metrics = metrics }
    end
  end
  sweeps.write(folder, { experiment = s.experiment or "e", axes = { "model" }, columns = names,
    trials = list, better = s.better, source = s.experiment })
end

local function toeplab(folder, words) return t.toeplab(("%s -C '%s'"):format(words, folder)) end

t.test("compare, @best: and tables follow the declaration before the name", function()
  t.in_folder(function(folder)
    write(folder, { "matthews", "margin", "loss" },
      { better = { margin = "higher", loss = "higher" } })
    for _, metric in ipairs { "matthews", "margin", "loss" } do
      t.holds(toeplab(folder, "compare e model=a model=b -m " .. metric),
        metric .. ", higher is better", "model=b is better than model=a: by 0.102", " 1.00 ")
      t.holds(toeplab(folder, "ls --columns model @best:" .. metric), "  b")
    end
    t.holds(toeplab(folder, "table e"), "matthews ↑", "margin ↑", "loss ↑")
    t.holds(toeplab(folder, "table e --rows model --columns seed --metric loss"),
      "loss (higher is better)")
    t.holds(toeplab(folder, "compare e model=a model=b -m margin --lower"),
      "model=b is worse than model=a")
  end)
end)

t.test("a decision by a metric of unknown direction is refused, with what to type", function()
  t.in_folder(function(folder)
    write(folder, { "margin" }, {})
    local said = "it is unknown whether lower or higher values of 'margin' are better: declare "
      .. "better = { margin = \"higher\" } (or \"lower\") in the experiment, or give "
    local _, code, message = toeplab(folder, "compare e model=a model=b")
    t.eq(code, 2)
    t.holds(message, "compare: " .. said .. "--higher or --lower")
    _, code, message = toeplab(folder, "ls @best:margin")
    t.eq(code, 2)
    t.holds(message, "@best:margin: " .. said .. "@best:max:margin or @best:min:margin")
    t.holds(toeplab(folder, "ls --columns model @best:max:margin"), "  b")
    t.holds(toeplab(folder, "compare e model=a model=b --higher"), "model=b is better than model=a")
    t.ok(not toeplab(folder, "table e"):find "[↑↓]")
    write(folder, { "margin" }, { experiment = "f", better = { margin = "higher" } })
    t.holds(toeplab(folder, "ls --columns model @best:margin experiment=f"), "  b")
    write(folder, { "margin" }, { experiment = "e", better = { margin = "lower" } })
    t.holds(select(3, toeplab(folder, "ls @best:margin")), "disagree on whether lower or higher")
  end)
end)

-- Returns the experiment that a declaration gives, or raises.
local function define(fields)
  fields.trial, fields.fixed = print, { lr = 1.0 }
  return experiment "x"(fields)
end

t.test("tune, prune and a guard against spikes know the direction of their metric", function()
  local function tune(metric, goal)
    return { key = "lr", values = { 1.0, 2.0 }, metric = metric, seed = 9, goal = goal }
  end
  t.eq(define { tune = tune "spearman" }.tune.goal, "max")
  t.eq(define { prune = { metric = "val_accuracy" } }.prune.goal, "max")
  t.eq(define { prune = { metric = "val_ppl" } }.prune.goal, "min")
  t.eq(define { guard = { metric = "mcc", zscore = 3 } }.guard.goal, "max")
  t.eq(define { guard = { metric = "margin" } }.guard.goal, nil) -- looks only for inf and NaN
  t.eq(define { better = { margin = "higher" }, tune = tune "margin" }.tune.goal, "max")
  local by_goal = define { tune = tune("margin", "max"), prune = { metric = "margin" } }
  t.eq({ by_goal.prune.goal, by_goal.better.margin }, { "max", "higher" })
  t.eq(define { answers = "tnn/table15" }.better["ppl@16x"], "lower")
  for _, fields in ipairs { { tune = tune "margin" }, { prune = { metric = "margin" } },
    { guard = { metric = "margin", zscore = 3 } } } do
    t.raises(define, next(fields) .. ": it is unknown whether lower or higher values of 'margin'",
      fields)
  end
  t.raises(define, "prune says that higher values of loss are better, and another .* says lower",
    { better = { loss = "lower" }, prune = { metric = "loss", goal = "max" } })
  t.raises(define, "tnn/table15 says that lower values of ppl@16x",
    { answers = "tnn/table15", better = { ["ppl@16x"] = "higher" } })
  t.raises(define, "better: margin: there is no direction 'hiher'; did you mean 'higher'",
    { better = { margin = "hiher" } })
end)

t.test("a guard takes a fall of an accuracy for a spike, and not its rise", function()
  for goal, sign in pairs { min = 1, max = -1 } do
    for _, way in ipairs { 1, -1 } do
      local g = guard.new { metric = "m", goal = goal, zscore = 3, window = 10, retries = 1,
        nan = "stop" }
      for i = 1, 8 do g:logged("m", 0.5 + 0.01 * (i % 2)) end
      g:logged("m", 0.5 + 0.3 * way)
      t.eq(g:verdict(), way == sign and "rollback" or nil)
    end
  end
end)

t.done()
