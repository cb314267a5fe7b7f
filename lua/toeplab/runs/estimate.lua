-- runs/estimate.lua: predicts how long trials will take from finished trials of the same
-- experiment.
--
-- A trial is predicted to take the mean of the finished trials that are most similar: those whose
-- configuration, apart from the seed, differs in the fewest keys. Time scales with the number of
-- steps.
--
-- The range of a prediction is that of the trials it is taken from. If these differ from the trial
-- in some key, the range also allows the errors that predictions of the same kind have made: each
-- finished configuration is predicted from the others, and compared with what it took.
local config = require "toeplab.base.config"
local json = require "toeplab.base.json"
local sorted_keys = require "toeplab.base.sorted_keys"

local estimate = {}

local Estimate = {}
Estimate.__index = Estimate

local MOST = 500 -- newest configurations that are read
local TESTED = 100 -- newest configurations that are predicted from the others

-- Returns the values of a configuration as comparable texts: key -> text. Those of finished trials
-- come from the store, which has only the keys that decide their results.
local function texts(c)
  local set = {}
  for key, value in pairs(config.result_keys(c)) do
    if key ~= "seed" then set[key] = json.encode(value) end
  end
  return set
end

local function count_steps(c)
  local n = c.steps
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
      avg(seconds) AS seconds, min(seconds) AS low, max(seconds) AS high,
      avg(max(0.0, min(seconds, coalesce(finished - (SELECT created FROM v_artifacts a
        WHERE a.trial = t.id AND a.kind = 'checkpoint' AND a.step = t.step), 0.0)))) AS after
    FROM v_trials t WHERE experiment = ? AND status = 'done' AND seconds IS NOT NULL
    GROUP BY 1 ORDER BY max(finished) DESC LIMIT ?]], { experiment, MOST })
  local list, finished = {}, 0
  for i, row in ipairs(rows) do
    local c = store:config(row.config)
    list[i] = { values = texts(c), steps = count_steps(c), trials = row.trials,
      seconds = row.seconds, low = row.low, high = row.high, after = row.after,
      low_after = math.min(row.low, row.after) }
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

-- Returns the keys in which a configuration differs from the values that all finished trials share;
-- the number of steps is ignored.
local function keys_apart(self, values)
  local keys = {}
  for key, text in pairs(values) do
    if not self.varies[key] and self.common[key] ~= text then keys[#keys + 1] = key end
  end
  for key in pairs(self.common) do
    if values[key] == nil then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end

-- Returns the known configurations that differ from values in the fewest keys, and that number.
-- but: one that does not count, or nil.
local function nearest(self, values, but)
  local least, list = math.huge, {}
  for _, known in ipairs(self.list) do
    local far = known == but and math.huge or 0
    for _, key in ipairs(self.others) do
      if values[key] ~= known.values[key] then far = far + 1 end
    end
    if far < least then least, list = far, {} end
    if far == least and known ~= but then list[#list + 1] = known end
  end
  return list, least
end

-- Returns {seconds=, trials= (their number), low=, high=, keys= (in which they differ)} of the
-- finished trials nearest to a configuration; nil if none has finished.
local function predict(self, values, steps, apart, but)
  local list, far = nearest(self, values, but)
  if #list == 0 then return nil end
  local sum, after, trials, low, high, keys = 0.0, 0.0, 0, math.huge, 0.0, {}
  for _, known in ipairs(list) do
    local scale = steps and known.steps and steps / known.steps or 1
    local fixed = known.after * (1 - scale) -- an evaluation takes as long after fewer steps
    sum, trials = sum + known.trials * (known.seconds * scale + fixed), trials + known.trials
    after = after + known.trials * known.after
    local least = known.low * scale + known.low_after * (1 - scale)
    local most = known.high * scale + fixed
    if least < low then low = least end
    if most > high then high = most end
  end
  for _, key in ipairs(self.others) do
    for _, known in ipairs(list) do
      if values[key] ~= known.values[key] then
        keys[key] = true
        break
      end
    end
  end
  for _, key in ipairs(apart) do keys[key] = true end
  return { seconds = sum / trials, after = after / trials, trials = trials, low = low, high = high,
    far = far + #apart, keys = sorted_keys(keys) }
end

-- Returns what finished configurations took over what the others predict for them, at least and at
-- most: {low=, high=}; nil for fewer than two of them.
local function errors_of(self)
  if self.errors == nil then
    local found = { low = 1.0, high = 1.0 }
    for i = 1, math.min(#self.list, TESTED) do
      local known = self.list[i]
      local p = predict(self, known.values, known.steps, {}, known)
      local ratio = p and p.seconds > 0 and known.seconds / p.seconds
      if ratio then
        found.low, found.high = math.min(found.low, ratio), math.max(found.high, ratio)
      end
    end
    self.errors = #self.list > 1 and found or false
  end
  return self.errors
end

-- Widens the range of a prediction from trials that differ in some key.
local function widen(self, p)
  local wrong = p and p.far > 0 and errors_of(self)
  if wrong then
    p.low, p.high = math.min(p.low, p.seconds * wrong.low), math.max(p.high, p.seconds * wrong.high)
  end
  return p
end

-- Returns the seconds that a trial of that configuration takes in all, the number of keys in which
-- the underlying trials differ from it, and the whole prediction: {seconds=, after= (those after
-- the last checkpoint, as for an evaluation), far= (that number), keys= (their names), trials= (how
-- many there are), low=, high= (the range)}; nil if none has finished.
function Estimate:seconds(c)
  local values, steps = texts(c), count_steps(c)
  local apart = keys_apart(self, values)
  local parts = { table.concat(apart, ","), tostring(steps) }
  for _, key in ipairs(self.others) do parts[#parts + 1] = values[key] or "" end
  local text = table.concat(parts, "\n")
  if self.known[text] == nil then
    self.known[text] = widen(self, predict(self, values, steps, apart)) or false
  end
  local p = self.known[text]
  if p then return p.seconds, p.far, p end
end

-- Returns the remaining seconds of a trial that has reached `step`: by its own pace if it has spent
-- `seconds` on these steps, else by what others took. The other results, and nil, are those of
-- Estimate:seconds, the range that of the remaining seconds; a trial's own pace counts as one trial
-- that differs in no key.
function Estimate:left(c, step, seconds)
  local steps = count_steps(c)
  if not steps or not step or step <= 0 then return self:seconds(c) end
  local share, all, far, p = math.max(0, steps - step) / steps, self:seconds(c)
  local after = p and p.after or 0.0
  if seconds and seconds > 0 then
    local left = seconds / step * steps * share + after
    return left, 0, { seconds = left, after = after, far = 0, keys = {}, trials = 1, low = left,
      high = left }
  end
  if not all then return nil end
  local function rest(x) return math.max(0.0, x - after) * share + math.min(x, after) end
  return rest(all), far, { seconds = rest(all), after = after, far = far, keys = p.keys,
    trials = p.trials, low = rest(p.low), high = rest(p.high) }
end

-- Returns the seconds until `workers` workers have done the trials of list, handed out in order:
-- {config=, step= (reached), spent= (seconds on these steps), had= (of a running trial, since it
-- began; else nil), count= (how many there are of these; nil: one)} each. nil if the time of one is
-- unknown.
function Estimate:remaining(list, workers)
  local times = {}
  for _, t in ipairs(list) do
    local seconds = self:left(t.config, t.step, t.spent)
    if not seconds then return nil end
    local paced = count_steps(t.config) and (t.step or 0) > 0 and (t.spent or 0) > 0
    if t.had and not paced then seconds = math.max(0, seconds - t.had) end
    for _ = 1, t.count or 1 do times[#times + 1] = seconds end
  end
  return estimate.makespan(times, workers)
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
