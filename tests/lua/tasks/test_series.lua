-- test_series.lua: series of numbers of a user's own: windows, parts, errors and yardsticks.
local t = require "harness"
local tl = require "toeplab"

-- Returns a table whose column c is 100 + row and whose column d is 3 row^2, rows from 0.
local function rows_of(count)
  local lines = { "c,word,d" }
  for i = 0, count - 1 do lines[#lines + 1] = ("%d,x,%d"):format(100 + i, 3 * i * i) end
  return "text:" .. table.concat(lines, "\n")
end

local function open(more)
  return tl.tasks.series(tl.overlay({ file = rows_of(100), columns = { "c" }, length = 8 }, more))
end

-- Returns the rows that a column c of numbers in units of its deviation stands for.
local function back(task, name, x)
  local list = {}
  for i, v in ipairs(x:reshape(-1):totable()) do
    list[i] = math.floor(v * task.deviation[name] + task.mean[name] + 0.5)
  end
  return list
end

t.test("a window has consecutive rows and their targets", function()
  local task = open { targets = { "d" }, ahead = 3, seed = 1 }
  t.eq({ task.columns, task.targets }, { { "c" }, { "d" } })
  local seen = {}
  for step = 1, 30 do -- half an epoch: 70 rows have 60 windows of 8 whose targets are among them
    local batch = task.train:batch(step, 1)
    local x, y = back(task, "c", batch.x), back(task, "d", batch.y)
    local first = x[1] - 100
    t.ok(first >= 0 and first + 7 + 3 < 70 and not seen[first], tostring(first))
    seen[first] = true
    for i = 1, 8 do
      t.eq({ x[i], y[i] }, { 100 + first + i - 1, 3 * (first + i - 1 + 3) ^ 2 // 1 })
    end
  end
  t.eq({ back(task, "c", task.train:batch(61, 1).x) }, { back(open { targets = { "d" }, ahead = 3,
    seed = 1 }, "c", task.train:batch(61, 1).x) })
end)

t.test("each row of a part is predicted once, with half a window before it", function()
  for _, case in ipairs { { 8, 1, 1 }, { 8, 5, 3 }, { 7, 2, 4 }, { 2, 1, 100 }, { 64, 1, 2 } } do
    local task, seen = open { length = case[1], ahead = case[2] }, {}
    for batch, score in task.test:each(case[3]) do
      local b, n = batch.y:dim(1), batch.y:dim(2)
      t.ok(score <= n // 2)
      local x, y = back(task, "c", batch.x), back(task, "c", batch.y)
      for i = 0, b * n - 1 do t.eq(y[i + 1], x[i + 1] + case[2]) end
      for _, row in ipairs(back(task, "c", batch.y:narrow(2, n - score + 1, score))) do
        seen[#seen + 1] = row - 100
      end
    end
    local want = {}
    for row = 80, 99 do want[#want + 1] = row end
    t.eq(seen, want)
  end
end)

t.test("errors are means over rows in units of the deviation", function()
  local task = open { targets = { "c", "d" }, columns = { "d", "c" } }
  local sum = 0
  for row = 80, 99 do
    for name, value in pairs { c = 100 + row, d = 3 * row * row } do
      sum = sum + ((value - task.mean[name]) / task.deviation[name]) ^ 2 / 40
    end
  end
  local model = tl.nn.Linear(2, 2, { bias = false })
  model.weight:fill(0)
  t.eq(task.test:mse(model), sum, 1e-5)
  local found = task.yardsticks()
  local change = 0 -- from row to row
  for row = 80, 99 do
    for name, by in pairs { c = 1, d = 3 * (row ^ 2 - (row - 1) ^ 2) } do
      change = change + (by / task.deviation[name]) ^ 2 / 40
    end
  end
  t.eq(found.last_mse, change, 1e-4)
  t.ok(found.linear_mse < change, found.linear_mse)
end)

t.test("a constant column stays 0, and the training part can be scored", function()
  local lines = { "c,v" }
  for i = 1, 100 do lines[i + 1] = "0.1," .. i end
  local task = tl.tasks.series { file = "text:" .. table.concat(lines, "\n"), length = 8 }
  t.eq({ task.mean.c, task.deviation.c }, { 0.1, 1.0 })
  local model = tl.nn.Linear(2, 2)
  local scored = 0
  for batch, score in task.train:each(4) do scored = scored + batch.x:dim(1) * score end
  t.eq(scored, 70 - 5) -- of 70 rows, the first of which have no half window before
  t.ok(task.train:mse(model) > 0)
end)

t.test("a linear regression predicts what is linear in the earlier rows", function()
  local lines, a, b = { "v" }, 1.0, 0.5
  for _ = 1, 600 do
    a, b = 1.6 * a - b, a
    lines[#lines + 1] = ("%.6f"):format(a)
  end
  local task = tl.tasks.series { file = "text:" .. table.concat(lines, "\n"), length = 8 }
  local found = task.yardsticks()
  t.ok(found.linear_mse < 0.001 * found.last_mse, found.linear_mse .. " " .. found.last_mse)
  t.eq(tl.tasks.series { file = rows_of(100), columns = { "c" }, targets = { "d" }, length = 8 }
    .yardsticks().last_mse, nil)
end)

t.test("an unusable series is an error with its place", function()
  t.raises(open, "text:2: column 'word' is 'x', not a number", { columns = { "c", "word" } })
  t.raises(open, "text:1: there is no column 'cc'; did you mean 'c'", { columns = { "cc" } })
  t.raises(open, "no row below its column names", { file = "text:c,d\n" })
  t.raises(open, "text:3: column 'c' is '', not a number", { file = "text:c,d\n1,2\n,3\n" })
  t.raises(open, "of 9 rows 6 are to train on, fewer than length %+ ahead = 9",
    { file = rows_of(9) })
  t.raises(open, "valid = 0.5 and test = 0.5 leave nothing", { valid = 0.5, test = 0.5 })
  t.raises(open, "columns", { columns = {} })
  t.raises(open, "columns", { columns = { 3 } })
  t.raises(open, "list of different column names", { columns = { "c", "c" } })
  t.raises(open, "column 'c' has numbers that are too large",
    { file = "text:c\n" .. ("1e200\n-1e200\n"):rep(50) })
  local task = open { valid = 0 }
  t.eq(task.valid, nil)
  t.raises(function() task.train:batch(1, 1000) end, "80 rows have 72 windows")
end)

t.done()
