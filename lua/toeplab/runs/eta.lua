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

local function predict(self, queue, workers, now)
  local list = {}
  for _, w in ipairs(workers) do
    local had = now - (w.began or now)
    list[#list + 1] = w.trial and { config = w.trial.config, step = w.step, had = had,
      spent = w.seconds + had }
  end
  for _, t in ipairs(queue) do
    list[#list + 1] = { config = t.config, step = t.step, spent = t.had }
  end
  local seconds = estimate.new(self.store, self.experiment):remaining(list, self.jobs)
  return seconds and now + seconds
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
