-- runs/estimate.lua: predicts how long trials will take from finished trials of the same
-- experiment.
--
-- A trial is predicted to take the mean of the finished trials that are most similar: those whose
-- configuration, apart from the seed, differs in the fewest keys. Time scales with the number of
-- steps.
local json = require "toeplab.base.json"

local estimate = {}

local Estimate = {}
Estimate.__index = Estimate

local MOST = 500 -- newest configurations that are read

-- Returns the values of a configuration as comparable texts: key -> text.
local function texts(config)
  local set = {}
  for key, value in pairs(config) do
    if key ~= "seed" then set[key] = json.encode(value) end
  end
  return set
end

local function count_steps(config)
  local n = config.steps
  return math.type(n) == "integer" and n > 0 and n or nil
end

-- Returns what the configurations have in common (key -> text) and the set of their other keys. The
-- number of steps is handled separately.
local function split_configs(list)
  local common, varies = {}, { steps = true }
  for i, known in ipairs(list) do
    for key, text in pairs(known.values) do
      if i == 1 then common[key] = text elseif common[key] ~= text then varies[key] = true end
    end
    for key in pairs(common) do
      if known.values[key] == nil then varies[key] = true end
    end
  end
  for key in pairs(varies) do common[key] = nil end
  return common, varies
end

-- Loads the durations of the finished trials of an experiment from the store.
function estimate.new(store, experiment)
  local rows = store:rows([[SELECT json_remove(config, '$.seed') AS config, count(*) AS trials,
      avg(seconds) AS seconds FROM v_trials
    WHERE experiment = ? AND status = 'done' AND seconds IS NOT NULL
    GROUP BY 1 ORDER BY max(finished) DESC LIMIT ?]], { experiment, MOST })
  local list, finished = {}, 0
  for i, row in ipairs(rows) do
    local config = store:config(row.config)
    list[i] = { values = texts(config), steps = count_steps(config), trials = row.trials,
      seconds = row.seconds }
    finished = finished + row.trials
  end
  local common, varies = split_configs(list)
  local self = { list = list, finished = finished, known = {}, common = common, varies = varies,
    others = {} }
  for key in pairs(varies) do
    if key ~= "steps" then table.insert(self.others, key) end
  end
  return setmetatable(self, Estimate)
end

-- Returns in how many keys a configuration differs from the values that all finished trials share;
-- the number of steps is ignored.
local function keys_apart(self, values)
  local count = 0
  for key, text in pairs(values) do
    if not self.varies[key] and self.common[key] ~= text then count = count + 1 end
  end
  for key in pairs(self.common) do
    if values[key] == nil then count = count + 1 end
  end
  return count
end

-- Averages the nearest finished trials: {seconds, number of keys in which they differ, number of
-- trials}; empty if none has finished.
local function nearest(self, values, steps, alike)
  local least, sum, trials = math.huge, 0.0, 0
  for _, known in ipairs(self.list) do
    local far = alike
    for _, key in ipairs(self.others) do
      if values[key] ~= known.values[key] then far = far + 1 end
    end
    if far < least then least, sum, trials = far, 0.0, 0 end
    if far == least then
      local scale = steps and known.steps and steps / known.steps or 1
      sum, trials = sum + known.trials * known.seconds * scale, trials + known.trials
    end
  end
  return trials > 0 and { sum / trials, least, trials } or {}
end

-- Returns the seconds that a trial of that configuration takes in all, the number of keys in which
-- the underlying trials differ from it, and the number of those trials; nil if none has finished.
function Estimate:seconds(config)
  local values, steps = texts(config), count_steps(config)
  local alike = keys_apart(self, values)
  local parts = { tostring(alike), tostring(steps) }
  for _, key in ipairs(self.others) do parts[#parts + 1] = values[key] or "" end
  local text = table.concat(parts, "\n")
  self.known[text] = self.known[text] or nearest(self, values, steps, alike)
  return table.unpack(self.known[text])
end

-- Returns the remaining seconds of a trial that has reached `step`: by its own pace if it has spent
-- `seconds` on these steps, else by what others took. The other results, and nil, are those of
-- Estimate:seconds; a trial's own pace counts as one trial that differs in no key.
function Estimate:left(config, step, seconds)
  local steps = count_steps(config)
  if not steps or not step or step <= 0 then return self:seconds(config) end
  local rest = math.max(0, steps - step)
  if seconds and seconds > 0 then return seconds / step * rest, 0, 1 end
  local all, far, trials = self:seconds(config)
  return all and all * rest / steps, far, trials
end

-- Returns the seconds until `workers` workers have done all of list (seconds each), handed out in
-- order.
function estimate.makespan(list, workers)
  local free = {}
  for i = 1, math.max(1, math.min(workers, #list)) do free[i] = 0.0 end
  for _, seconds in ipairs(list) do
    local first = 1
    for i = 2, #free do
      if free[i] < free[first] then first = i end
    end
    free[first] = free[first] + seconds
  end
  return math.max(table.unpack(free))
end

return estimate
