-- runs/eta.lua: how long a run still takes: what estimate.lua has learnt from finished trials, and
-- the pace of those at work.
local core = require "toeplab.core"
local estimate = require "toeplab.runs.estimate"

local eta = {}

local Eta = {}
Eta.__index = Eta

local PAUSE, SHARE = 2, 50 -- seconds between two looks, and how many times as long as one took

-- Of a run of the trials of an experiment by so many workers, whose rows are in store.
function eta.new(store, experiment, jobs)
  return setmetatable({ store = store, experiment = experiment, jobs = jobs, due = -math.huge },
    Eta)
end

-- The seconds that the trial of worker w still takes, by its own pace once it has one; nil if that
-- is not known.
local function left(model, w, now)
  local had, config = now - w.began, w.trial.config
  local seconds = model:left(config, w.step, w.seconds + had)
  local paced = math.type(config.steps) == "integer" and (w.step or 0) > 0
  return seconds and not paced and math.max(0, seconds - had) or seconds
end

local function look(self, queue, workers, now)
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

-- The seconds until all trials of queue are done and those that the workers are at; nil as long as
-- nothing is known. Cheap to call often.
function Eta:seconds(queue, workers)
  local now = core.sys.clock()
  if now >= self.due then
    self.ends = look(self, queue, workers, now)
    self.due = now + math.max(PAUSE, SHARE * (core.sys.clock() - now))
  end
  return self.ends and math.max(0, self.ends - now)
end

return eta
