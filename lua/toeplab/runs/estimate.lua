-- runs/estimate.lua: predicts the time of trials from finished trials of the same experiment, and
-- the remaining time of a run.
--
-- The prediction is the mean time of the most similar finished trials, whose configuration, apart
-- from the seed, differs in the fewest keys. Time scales with the number of steps and, if the costs
-- of both are known (workload.lua), with the cost of a step. The time after the last step, e.g. of
-- an evaluation, scales with the cost of a token. Finished trials of another size (comparable) are
-- ignored: seconds of a tiny model are mostly the start of its process. Without others, the
-- prediction uses the rates of the machine, if these are given.
--
-- The range of a prediction is the range of the similar trials. If these differ from the trial in
-- some key, the range also allows for the errors of such predictions: each finished configuration
-- is predicted from the others, and compared with its measured time.
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local overlay = require "toeplab.base.overlay"
local sorted_keys = require "toeplab.base.sorted_keys"
local workload = require "toeplab.runs.workload"

local estimate = {}

local Estimate = {}
Estimate.__index = Estimate

local MOST = 500 -- newest configurations to read
local TESTED = 100 -- newest configurations to predict from the others

-- Predictions for a run are at least PAUSE seconds apart, and SHARE times as long as one took.
local PAUSE, SHARE = 2, 50

-- The assumed error factor of a time that was scaled with the cost of a step, until finished trials
-- show the real one. Costs within a factor of SAME count as equal.
local ERROR, SAME = 2, 1.25

-- The greatest ratio of the FLOP of a step, or of its tokens, of two trials of which one predicts
-- the other.
local BOUND = 10

-- Keys on which the cost of a step depends. If a cost is unknown, a trial predicts only trials with
-- the same values.
local SIZES = { "batch", "corpus", "depth", "dim", "layers", "length", "micro", "mixer", "model",
  "n", "tokenizer", "vocab", "vocab_size", "width" }

-- The least seconds of a trial: its process starts, and opens its data.
local START = 0.4

-- Returns the values of a configuration as JSON, key -> string, without the seed, the number of
-- steps, and the keys that the store omits because they do not affect results.
local function texts(c)
  local set = {}
  for key, value in pairs(config.result_keys(c)) do
    if key ~= "seed" and key ~= "steps" then set[key] = json.encode(value) end
  end
  return set
end

local function count_steps(c)
  local n = c.steps
  return math.type(n) == "integer" and n > 0 and n or nil
end

-- Adds the keys whose values differ to the set, and returns it.
local function add_differing(set, a, b)
  for key, text in pairs(a) do
    if b[key] ~= text then set[key] = true end
  end
  for key in pairs(b) do
    if a[key] == nil then set[key] = true end
  end
  return set
end

-- Loads the durations of the finished trials of an experiment from the store (nil: none).
-- machine: {cost= (of workload.new), rates= (a function of a device and a precision that returns
-- the measured rates of workload.rates, or nil)}; nil: the time scales with the steps only.
function estimate.new(store, experiment, machine)
  local rows = store and store:rows([[SELECT json_remove(config, '$.seed') AS config,
      count(*) AS trials, avg(seconds) AS seconds, min(seconds) AS low, max(seconds) AS high,
      avg(max(0.0, min(seconds, coalesce(finished - (SELECT created FROM v_artifacts a
        WHERE a.trial = t.id AND a.kind = 'checkpoint' AND a.step = t.step), 0.0)))) AS after
    FROM v_trials t WHERE experiment = ? AND status = 'done' AND seconds IS NOT NULL
    GROUP BY 1 ORDER BY max(finished) DESC LIMIT ?]], { experiment, MOST }) or {}
  local finished, varies = 0, {}
  for _, row in ipairs(rows) do
    local c = store:config(row.config)
    row.values, row.steps, row.low_after = texts(c), count_steps(c), math.min(row.low, row.after)
    row.keys = c
    finished = finished + row.trials
    add_differing(varies, row.values, rows[1].values)
  end
  return setmetatable({ list = rows, finished = finished, known = {},
    machine = machine, others = sorted_keys(varies) }, Estimate)
end

-- Returns the keys in which all known configurations agree and this one differs.
local function keys_apart(self, values)
  local keys = self.list[1] and add_differing({}, values, self.list[1].values) or {}
  for _, key in ipairs(self.others) do keys[key] = nil end
  return sorted_keys(keys)
end

-- Returns the cost of a trial with the keys c, with the seconds of a step and of a token at the
-- usual rates of its device; nil if it is unknown.
local function cost_of(self, c)
  local cost = self.machine and self.machine.cost(c)
  if not cost then return nil end
  local step = workload.seconds(cost, workload.rates(c.device or "cpu", c.precision))
  return { step = step, token = step / cost.tokens, device = c.device or "cpu", cost = cost }
end

-- Sets the cost of a known configuration (cost_of), or false, and returns it.
local function known_cost(self, known)
  if known.cost == nil then known.cost = cost_of(self, known.keys) or false end
  return known.cost
end

local function bounded(a, b) return a <= BOUND * b and b <= BOUND * a end

-- Returns whether a known configuration may predict a trial with these values and this cost (nil:
-- unknown).
local function comparable(self, known, values, cost)
  local other = known_cost(self, known)
  if cost and other then
    return bounded(cost.cost.flop, other.cost.flop) and bounded(cost.cost.tokens, other.cost.tokens)
  end
  for _, key in ipairs(SIZES) do
    if values[key] ~= known.values[key] then return false end
  end
  return true
end

-- Returns the comparable configurations that differ from values in the fewest of the keys that vary
-- among the known ones, and that number. but: a configuration to ignore, or nil.
local function nearest(self, values, cost, but)
  local least, list = math.huge, {}
  for _, known in ipairs(self.list) do
    -- Without self.machine nothing is known of costs.
    if known ~= but and (not self.machine or comparable(self, known, values, cost)) then
      local far = 0
      for _, key in ipairs(self.others) do
        if values[key] ~= known.values[key] then far = far + 1 end
      end
      if far < least then least, list = far, {} end
      if far == least then list[#list + 1] = known end
    end
  end
  return list, least
end

-- Returns the mean bytes of a checkpoint of the finished trials by formula; nil if unknown.
function Estimate:checkpoint()
  local sum, trials = 0.0, 0
  for _, known in ipairs(self.list) do
    local found = known_cost(self, known)
    if not found then return nil end
    sum, trials = sum + known.trials * found.cost.checkpoint, trials + known.trials
  end
  return trials > 0 and sum / trials or nil
end

-- Returns the ratios of the seconds of a step, and of a token, of a trial with this cost to those
-- of a known configuration, and whether the ratio is a guess; 1 if the known cost is missing, or
-- the devices differ.
local function ratios(self, cost, known)
  local other = known_cost(self, known)
  if not other or other.device ~= cost.device then return 1, 1 end
  local ratio = cost.step / other.step
  return ratio, cost.token / other.token, ratio > SAME or ratio < 1 / SAME
end

-- Returns the prediction of Estimate:whole without the errors of other predictions. apart: the
-- result of keys_apart; cost: the result of cost_of; but: a known configuration to ignore, or nil.
local function predict(self, values, steps, apart, cost, but)
  local list, far = nearest(self, values, cost, but)
  if #list == 0 then return nil end
  local sum, after, trials, low, high, keys, scaled = 0.0, 0.0, 0, math.huge, 0.0, {}, false
  for _, key in ipairs(apart) do keys[key] = true end
  for _, known in ipairs(list) do
    local scale, token = steps and known.steps and steps / known.steps or 1, 1
    if cost then
      local step, of_token, guessed = ratios(self, cost, known)
      scale, token, scaled = scale * step, of_token, scaled or guessed
    end
    local n, rest = known.trials, token - scale
    local fixed = known.after * rest -- an evaluation takes as long after fewer steps
    sum, trials = sum + n * (known.seconds * scale + fixed), trials + n
    after = after + n * known.after * token
    local least = known.low * scale + known.low_after * rest
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
  return { seconds = sum / trials, after = after / trials, trials = trials, low = low, high = high,
    far = far + #apart, keys = sorted_keys(keys), scaled = scaled }
end

-- Returns the least and the greatest ratio of a finished configuration's time to its prediction
-- from the others: {low=, high=, scaled= (whether a prediction was scaled with a cost)}.
local function errors_of(self)
  if self.errors then return self.errors end
  self.errors = { low = 1.0, high = 1.0 }
  for i = 1, math.min(#self.list, TESTED) do
    local known = self.list[i]
    local p = predict(self, known.values, known.steps, {}, known_cost(self, known) or nil, known)
    if p and p.seconds > 0 then
      self.errors.low = math.min(self.errors.low, known.seconds / p.seconds)
      self.errors.high = math.max(self.errors.high, known.seconds / p.seconds)
      self.errors.scaled = self.errors.scaled or p.scaled
    end
  end
  return self.errors
end

-- Predicts a trial from the rates of its device alone. Counts only its start and its steps.
local function by_rates(self, c, steps, cost)
  local of = self.machine and self.machine.rates
  local rates = steps and cost and of and of(cost.device, c.precision)
  if not rates then return nil end
  local seconds = START + steps * workload.seconds(cost.cost, rates)
  return { seconds = seconds, after = 0.0, trials = 0, low = seconds / ERROR,
    high = seconds * ERROR, far = 0, keys = {}, scaled = true }
end

-- Predicts a trial of this configuration: {seconds= (in all), low=, high= (the range), after= (the
-- seconds after the last checkpoint, e.g. of an evaluation), trials= (the number of finished trials
-- behind it; 0: rates of the machine), far= (the number of keys in which these differ from the
-- trial), keys= (their names), scaled= (whether the cost of a step differs)}; nil if nothing is
-- known.
function Estimate:whole(c)
  local values, steps = texts(c), count_steps(c)
  local apart = keys_apart(self, values)
  local cost = cost_of(self, c)
  local parts = { table.concat(apart, ","), tostring(steps), cost and cost.step or "" }
  for _, key in ipairs(self.others) do parts[#parts + 1] = values[key] or "" end
  local text = table.concat(parts, "\n")
  if self.known[text] == nil then
    local p = predict(self, values, steps, apart, cost) or by_rates(self, c, steps, cost)
    if p and p.far > 0 then
      local known = errors_of(self)
      local guess = p.scaled and not known.scaled and ERROR or 1
      p.low = math.min(p.low, p.seconds * math.min(known.low, 1 / guess))
      p.high = math.max(p.high, p.seconds * math.max(known.high, guess))
    end
    self.known[text] = p or false
  end
  return self.known[text] or nil
end

-- Predicts, like Estimate:whole, the remaining seconds of a trial that has reached `step`. Uses the
-- trial's own pace if `seconds`, its time until then, is given; that counts as one trial that
-- differs in no key. Otherwise uses other trials.
function Estimate:left(c, step, seconds)
  local steps, p = count_steps(c), self:whole(c)
  if not steps or not step or step <= 0 then return p end
  local share, after = math.max(0, steps - step) / steps, p and p.after or 0.0
  if seconds and seconds > 0 then
    local left = seconds / step * steps * share + after
    return { seconds = left, after = after, far = 0, keys = {}, trials = 1, low = left,
      high = left }
  end
  if not p then return nil end
  local function rest(x) return math.max(0.0, x - after) * share + math.min(x, after) end
  return overlay(p, { seconds = rest(p.seconds), low = rest(p.low), high = rest(p.high) })
end

-- Returns the seconds until `workers` workers have finished the trials of list, assigned in order:
-- {config=, step= (reached), spent= (seconds until then), had= (seconds since a running trial
-- began, or nil), count= (number of such trials; nil: one)} each. nil if one time is unknown.
function Estimate:remaining(list, workers)
  local times = {}
  for _, t in ipairs(list) do
    local p = self:left(t.config, t.step, t.spent)
    if not p then return nil end
    local seconds = p.seconds
    local paced = count_steps(t.config) and (t.step or 0) > 0 and (t.spent or 0) > 0
    if t.had and not paced then seconds = math.max(0, seconds - t.had) end
    for _ = 1, t.count or 1 do times[#times + 1] = seconds end
  end
  return estimate.makespan(times, workers)
end

-- Returns the seconds until `workers` workers have finished all of list (seconds each), assigned in
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

-- Returns a function of the queue and the workers of a run that predicts the seconds until all its
-- trials are done; nil while unknown. It caches its results, so that calls are cheap. jobs: the
-- number of workers.
function estimate.of_run(store, experiment, jobs)
  local due, ends = -math.huge, nil
  return function(queue, workers)
    local now = core.sys.clock()
    if now >= due then
      local list = {}
      for _, w in ipairs(workers) do
        local had = now - (w.began or now)
        list[#list + 1] = w.trial and { config = w.trial.config, step = w.step, had = had,
          spent = w.seconds + had }
      end
      for _, t in ipairs(queue) do
        list[#list + 1] = { config = t.config, step = t.step, spent = t.had }
      end
      local seconds = estimate.new(store, experiment):remaining(list, jobs)
      ends, due = seconds and now + seconds, now + math.max(PAUSE, SHARE * (core.sys.clock() - now))
    end
    return ends and math.max(0, ends - now)
  end
end

return estimate
