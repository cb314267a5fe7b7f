-- runs/eta.lua: predicts the remaining time of a run from finished trials (estimate.lua) and the
-- pace of the running ones.
local core = require "toeplab.core"
local estimate = require "toeplab.runs.estimate"

local eta = {}

local Eta = {}
Eta.__index = Eta

-- Predictions are at least PAUSE seconds apart, and at least SHARE times as long as one took.
local PAUSE, SHARE = 2, 50

-- Makes a predictor for a run of the experiment's trials by `jobs` workers; store holds their rows.
function eta.new(store, experiment, jobs)
  return setmetatable({ store = store, experiment = experiment, jobs = jobs, due = -math.huge },
    Eta)
end

-- Returns the remaining seconds of the trial of worker w, by its own pace once it has one; nil if
-- they are unknown.
local function left(model, w, now)
  local had, config = now - w.began, w.trial.config
  local seconds = model:left(config, w.step, w.seconds + had)
  local paced = math.type(config.steps) == "integer" and (w.step or 0) > 0
  return seconds and not paced and math.max(0, seconds - had) or seconds
end

local function predict(self, queue, workers, now)
  local model, times = estimate.new(self.store, self.experiment), {}
  for _, w in ipairs(workers) do
    if w.trial then
      local seconds = left(model, w, now)
      if not seconds then return nil end
      times[#times + 1] = seconds
    end
  end
  for _, t in ipairs(queue) do
    local seconds = model:left(t.config, t.step, t.had)
    if not seconds then return nil end
    times[#times + 1] = seconds
  end
  return now + estimate.makespan(times, self.jobs)
end

-- Returns the seconds until the trials of queue and those of the workers are done; nil while this
-- is unknown. The result is cached for some seconds, so that the call is cheap.
function Eta:seconds(queue, workers)
  local now = core.sys.clock()
  if now >= self.due then
    self.ends = predict(self, queue, workers, now)
    self.due = now + math.max(PAUSE, SHARE * (core.sys.clock() - now))
  end
  return self.ends and math.max(0, self.ends - now)
end

return eta
