-- tasks/tables/series.lua: loads a series of numbers, a row per moment, to predict later rows.
--
-- A window is x [n,c], consecutive rows, and y [n,k], the targets `ahead` rows after each of them,
-- so that a causal model predicts at every position. Columns have mean 0 and deviation 1 over the
-- training part, and errors are in these units. Parts follow each other in time.
-- Each row of the validation and test parts is predicted once, by a window that sees at least
-- half of `length` rows; the first windows' rows lie in the part before.
local columns = require "toeplab.tasks.tables.columns"
local core = require "toeplab.core"
local epochs = require "toeplab.tasks.epochs"
local errors = require "toeplab.base.errors"
local evaluating = require("toeplab.train.eval").evaluating
local options = require "toeplab.base.options"
local simple_models = require "toeplab.tasks.simple_models"

local series = {}

local LAGS = 48 -- most rows that the linear yardstick sees
local RIDGES = { 1e-5, 1e-3, 1e-1 } -- terms added to the diagonal, as shares of its mean
local ROWS = 1024 -- rows in a batch of an evaluation, about

local field = options.field

local spec = options.declare "tl.tasks.series" {
  columns.file,
  { "columns", field { type = "table", optional = true },
    "the columns that the model sees (default: all)" },
  { "targets", field { type = "table", optional = true },
    "the columns that it predicts (default: the same)" },
  { "ahead", field { default = 1, min = 1 }, "rows from the last input row to the predicted one" },
  { "length", field { default = 256, min = 2 }, "rows of a window" },
  { "valid", field { default = 0.1, min = 0, max = 0.9 },
    "share of the rows, before the test part" },
  { "test", field { default = 0.2, min = 0, max = 0.9 }, "share of the rows at the end" },
  columns.separator,
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" },
}

-- Raises a usage error unless an option is a list of different names, or absent.
local function check_names(o, option)
  local list, seen = o[option], {}
  if not list then return end
  local fine = #list > 0
  for _, name in ipairs(list) do
    fine = fine and type(name) == "string" and not seen[name]
    seen[name] = true
  end
  if not fine then errors.usage("series: %s must be a list of different column names", option) end
end

-- ---- Numbers ------------------------------------------------------------------------------------

-- Returns the columns of a table as lists of numbers, by name, and all names in their order.
local function read(o)
  local names, lists = nil, {}
  columns.each("series", o.file, o, function(header)
    names = o.columns or header
    names = table.move(names, 1, #names, 1, {})
    for _, name in ipairs(names) do lists[name] = {} end
    for _, name in ipairs(o.targets or {}) do
      if not lists[name] then names[#names + 1], lists[name] = name, {} end
    end
    return names
  end, function(values, complain)
    for i, name in ipairs(names) do
      local number = tonumber(values[i])
      if not number or number ~= number or math.abs(number) == math.huge then
        complain("column '%s' is '%s', not a number; `columns` chooses columns", name, values[i])
      end
      table.insert(lists[name], number)
    end
  end)
  return lists, o.columns or names
end

-- Returns the mean and the deviation of the first count numbers of a list; 1 instead of 0.
local function moments(list, count)
  local mean, squares = list[1], 0.0 -- a constant column has this mean exactly
  for i = 1, count do mean = mean + (list[i] - list[1]) / count end
  for i = 1, count do squares = squares + (list[i] - mean) ^ 2 / count end
  return mean, squares > 0 and math.sqrt(squares) or 1.0
end

-- ---- Parts --------------------------------------------------------------------------------------

local Part = {}
Part.__index = Part

-- Returns the windows whose first rows have these indices, from 0: x [b,n,c], y [b,n,k].
local function windows(self, starts)
  local ids, n = {}, self.length
  for i, start in ipairs(starts) do
    local row = {}
    for j = 1, n do row[j] = start + j - 1 end
    ids[i] = row
  end
  local rows = core.ids(ids)
  return { x = self.inputs:gather(rows), y = self.targets:gather(rows) }
end

-- Returns the batch of a step (1, 2, ...): {x=, y=} of size windows at random places.
function Part:batch(step, size)
  options.count("series", "step", step)
  options.count("series", "size", size)
  local places = self.last - self.first - self.ahead - self.length + 1
  if places < size then
    errors.usage("series: %d rows have %d windows of length = %d, fewer than a batch of "
      .. "%d", self.last - self.first, math.max(places, 0), self.length, size)
  end
  local steps, starts = places // size, {}
  local order = self.order((step - 1) // steps + 1, places)
  local first = (step - 1) % steps * size
  for i = 1, size do starts[i] = self.first + order[first + i] end
  return windows(self, starts)
end

-- Iterates over the rows of a part once: for batch, score in part:each(size) do ... end. The last
-- score positions of each window count. The first rows of the series are not scored, as half a
-- window must lie before.
function Part:each(size)
  options.count("series", "size", size)
  local n, half = self.length, self.length // 2
  local at = math.max(self.first, n - half + self.ahead)
  return function()
    local starts, score = {}, math.min(half, self.last - at)
    if score <= 0 then return nil end
    while #starts < size and at + score <= self.last do
      at = at + score
      starts[#starts + 1] = at - n - self.ahead
    end
    return windows(self, starts), score
  end
end

-- Returns the mean squared error of fn(x) [b,n,k] over all rows of the part and all targets.
function Part:error_of(fn)
  local sum, count = 0.0, 0
  for batch, score in self:each(math.max(1, ROWS // self.length)) do
    local first = self.length - score + 1
    local difference = (fn(batch.x) - batch.y):narrow(2, first, score)
    sum = sum + core.square(difference):sum():item()
    count = count + difference:numel()
  end
  return sum / count
end

-- Returns the mean squared error of a model, in evaluation, without gradients.
function Part:mse(model)
  local found
  evaluating(model, function() found = self:error_of(function(x) return model(x) end) end)
  return found
end

-- ---- Yardsticks ---------------------------------------------------------------------------------

-- Returns the rows of x [b,n,c], each joined with the m - 1 rows before it, [b,n-m+1,m c].
local function lagged(x, m)
  local n, list = x:dim(2), {}
  for lag = 0, m - 1 do list[lag + 1] = x:narrow(2, m - lag, n - m + 1) end
  return core.concat(list, 3)
end

-- Returns a function x [b,n,c] -> [b,n,k], c = size: the ridge regression of the targets on m rows.
-- Uses the ridge that is best on the validation part, if there is one.
local function regression(task, m, size)
  local part = task.train
  local xx, xy, rows = 0.0, 0.0, part.last - part.first - part.ahead
  for start = part.first, part.first + rows - part.length, part.length - m + 1 do
    local batch = windows(part, { start })
    local x = lagged(batch.x, m):reshape(-1, m * size)
    local y = batch.y:narrow(2, m, part.length - m + 1):reshape(x:dim(1), -1)
    xx, xy = xx + core.matmul(x, x, true, false), xy + core.matmul(x, y, true, false)
  end
  local weights = simple_models.ridge_weights(xx, xy)
  local function with(ridge)
    local weight = weights(ridge)
    return function(x)
      local predicted = core.matmul(lagged(x, m), weight)
      local before = core.zeros(x:dim(1), m - 1, predicted:dim(3))
      return m > 1 and core.concat({ before, predicted }, 2) or predicted
    end
  end
  if not task.valid then return with(RIDGES[2]) end
  local least, best = math.huge, nil
  for _, ridge in ipairs(RIDGES) do
    local fn = with(ridge)
    local error_of = task.valid:error_of(fn)
    if not best or error_of < least then least, best = error_of, fn end
  end
  return best
end

-- Returns the test errors of simple predictions: last_mse, the last row repeated (if the model sees
-- all targets), and linear_mse, a ridge regression on the last rows, at most 48, half a window, and
-- 4,096 numbers.
local function yardsticks(task, places)
  if not task.test then errors.usage "series: yardsticks requires a test part" end
  return core.precision("float32", function()
    local found = {}
    local m = math.max(1, math.min(LAGS, (task.train.length + 1) // 2, 4096 // #task.columns))
    found.linear_mse = task.test:error_of(regression(task, m, #task.columns))
    if #places == #task.targets then
      found.last_mse = task.test:error_of(function(x)
        local list = {}
        for i, place in ipairs(places) do list[i] = x:narrow(3, place, 1) end
        return core.concat(list, 3)
      end)
    end
    return found
  end)
end

-- ---- The task -----------------------------------------------------------------------------------

-- Returns the columns of these names, as [rows,c], with mean 0 and deviation 1.
local function tensor(lists, names, mean, deviation, first, rows)
  local list = {}
  for i = 1, rows do
    local row = {}
    for j, name in ipairs(names) do
      row[j] = (lists[name][i + first] - mean[name]) / deviation[name]
    end
    list[i] = row
  end
  return core.tensor(list)
end

-- Returns the rows first .. last - 1 (from 0) as a part. Its tensors share the storage of the task.
local function part(task, name, first, last, o)
  if first == last then return nil end
  return setmetatable({ inputs = task.inputs, targets = task.outputs, first = first, last = last,
    ahead = o.ahead, length = o.length, order = epochs.order(o.seed, "series." .. name .. ".") },
    Part)
end

-- tl.tasks.series(options): returns {train=, valid=, test= (parts; one of no rows is nil),
-- columns=, targets= (lists of names), mean=, deviation= (of the training part, by name),
-- yardsticks()}.
function series.open(given)
  local o = options.check("series", spec, given)
  if o.valid + o.test >= 1 then
    errors.usage("series: valid = %g and test = %g leave nothing to train on", o.valid, o.test)
  end
  check_names(o, "columns")
  check_names(o, "targets")
  local lists, names = read(o)
  local task = { columns = names, targets = o.targets or names, mean = {}, deviation = {} }
  local rows = #lists[names[1]]
  local ends = { math.floor(rows * (1 - o.valid - o.test)), math.floor(rows * (1 - o.test)) }
  if ends[1] < o.length + o.ahead then
    errors.usage("series: of %d rows %d are to train on, fewer than length + ahead = %d", rows,
      ends[1], o.length + o.ahead)
  end
  for name, list in pairs(lists) do
    task.mean[name], task.deviation[name] = moments(list, ends[1])
    if task.deviation[name] == math.huge then
      errors.usage("series: column '%s' has numbers that are too large", name)
    end
  end
  task.inputs = tensor(lists, names, task.mean, task.deviation, 0, rows - o.ahead)
  task.outputs = tensor(lists, task.targets, task.mean, task.deviation, o.ahead,
    rows - o.ahead)
  task.train = part(task, "train", 0, ends[1], o)
  task.valid = part(task, "valid", ends[1], ends[2], o)
  task.test = part(task, "test", ends[2], rows, o)
  local places = {}
  for _, target in ipairs(task.targets) do
    for i, name in ipairs(names) do
      if name == target then places[#places + 1] = i end
    end
  end
  function task.yardsticks() return yardsticks(task, places) end
  return task
end

return series
