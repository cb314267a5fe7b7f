-- train/schedule.lua: makes schedules of the learning rate: functions of the update number, which
-- is 1 for the first update.
--
-- The published codes count the updates already made, u = s - 1 at update s: with a warm-up of w
-- updates, lr(s) = warmup_init_lr + u (lr - warmup_init_lr) / w while u < w, so the first update
-- has warmup_init_lr.
--
-- A schedule may return a second number, which replaces the decay rate of the first moment at this
-- update: Adam's beta1, and the momentum of SGD. With the schedule plateau an optimiser gives as a
-- second argument how often it has lowered the rate.

local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

local field = options.field

local function common(more)
  local spec = {
    { "lr", field { type = "number", min = 0 }, "the highest learning rate" },
    { "warmup", field { default = 0, min = 0 }, "updates of linear warm-up" },
    { "warmup_init_lr", field { default = 0.0, min = 0 },
      "learning rate of the first update, if warming up" },
  }
  return table.move(more, 1, #more, #spec + 1, spec)
end

local total = { "steps", field { type = "int", min = 1 }, "total number of updates" }

-- Returns a maker of schedules, where after(u, o, lowered) is the learning rate once the warm-up is
-- over.
local function maker(name, spec, after)
  local set = options.declare("tl.schedule." .. name)(common(spec))
  return function(given)
    local o = options.check("schedule." .. name, set, given)
    return function(step, lowered)
      local u = step - 1
      if u < o.warmup then return o.warmup_init_lr + u * (o.lr - o.warmup_init_lr) / o.warmup end
      return after(u, o, lowered)
    end
  end
end

-- Returns the finished share of the updates after the warm-up at u: 0 at its start, 1 at the end.
local function progress(u, o)
  return (u - o.warmup) / math.max(o.steps - o.warmup, 1)
end

local schedule = {}

-- lr, after the warm-up.
schedule.constant = maker("constant", {}, function(_, o) return o.lr end)

-- lr sqrt(w / u) (Vaswani et al. 2017; fairseq), with w = 1 if there is no warm-up.
schedule.inverse_sqrt = maker("inverse_sqrt", {}, function(u, o)
  local w = math.max(o.warmup, 1)
  return o.lr * math.sqrt(w / math.max(u, w))
end)

-- end_lr + (lr - end_lr) (1 + cos(pi p)) / 2, p the progress (Loshchilov & Hutter 2017). After the
-- end the rate stays at end_lr; with wraps = true it follows the cosine back up to lr, as in the
-- published LRA runs.
schedule.cosine = maker("cosine", {
  total,
  { "end_lr", field { default = 0.0, min = 0 }, "learning rate at the end" },
  { "wraps", false, "continue along the cosine after the end" },
}, function(u, o)
  local p = progress(u, o)
  if not o.wraps then p = math.min(p, 1) end
  return o.end_lr + (o.lr - o.end_lr) * (1 + math.cos(math.pi * p)) / 2
end)

-- end_lr + (lr - end_lr) (1 - p)^power; linear for power 1.
schedule.polynomial = maker("polynomial", {
  total,
  { "end_lr", field { default = 0.0, min = 0 }, "learning rate at the end" },
  { "power", field { default = 1.0, min = 0 }, "exponent" },
}, function(u, o)
  return o.end_lr + (o.lr - o.end_lr) * (1 - math.min(progress(u, o), 1)) ^ o.power
end)

-- lr until the last share `cooldown` of all updates, over which it falls linearly to end_lr:
-- warm-up, stable, decay (Hu et al. 2024). Trainings of several lengths share the part before.
schedule.wsd = maker("wsd", {
  total,
  { "end_lr", field { default = 0.0, min = 0 }, "learning rate at the end" },
  { "cooldown", field { default = 0.2, min = 0, max = 1 }, "share of the updates of the fall" },
}, function(u, o)
  local first = math.max(o.warmup, o.steps * (1 - o.cooldown))
  local p = math.max(0.0, math.min((u - first) / math.max(o.steps - first, 1), 1))
  return o.lr + p * (o.end_lr - o.lr)
end)

-- lr, times plateau_factor each time that the rate was lowered, at least end_lr. It is lowered
-- after more than plateau_patience measures in a row (Optimizer:measured) that are not lower than
-- the lowest one by 0.01 %, as by PyTorch's ReduceLROnPlateau.
schedule.plateau = maker("plateau", {
  { "plateau_factor", field { default = 0.1, min = 0, max = 1 }, "it multiplies the rate by this" },
  { "plateau_patience", field { default = 10, min = 0 },
    "values of t:best without improvement that it waits for" },
  { "end_lr", field { default = 0.0, min = 0 }, "the lowest learning rate" },
}, function(_, o, lowered)
  return math.max(o.lr * o.plateau_factor ^ (lowered or 0), math.min(o.end_lr, o.lr))
end)

-- From lr / 25 linearly up to lr at the end of the warm-up, then linearly down to lr / 250000 at
-- the last update, where it stays. The second number goes from 0.95 down to 0.85 and back (Smith &
-- Topin 2018, with the numbers of PyTorch; Skyformer's runs).
local one_cycle = options.declare "tl.schedule.one_cycle" {
  { "lr", field { type = "number", min = 0 }, "the highest learning rate" },
  { "warmup", field { type = "int", min = 1 }, "updates until the highest rate" },
  total,
}

function schedule.one_cycle(given)
  local o = options.check("schedule.one_cycle", one_cycle, given)
  local low, last = o.lr / 25, o.lr / 250000
  return function(step)
    local u, top = step - 1, o.warmup - 1
    if u < top then
      local p = u / top
      return low + p * (o.lr - low), 0.95 - 0.1 * p
    end
    local p = math.min((u - top) / math.max(o.steps - 1 - top, 1), 1)
    return o.lr + p * (last - o.lr), 0.85 + 0.1 * p
  end
end

return suggest.strict("schedule", schedule)
