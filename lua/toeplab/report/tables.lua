-- report/tables.lua: fills a published table, or the table of an experiment, with measured values.
--
-- The result, which formats.lua can print in any form, is
--   { id=, caption=, source=, corner=, columns = { {id=, name=, better=, here=} }, rows = { {name=,
--     cells = { {paper=, all the fields of a cell} } } }, agreement = { {column=, ...} } }
-- A cell has interval (of stats.interval, over the values of finished trials), asked, done,
-- diverged (with inf or nan, or stopped by the guard), early, rescued, failed, open, lacking (done
-- without having logged the metric): numbers of trials, of which done includes the diverged ones;
-- trials (the trials themselves) and of (the name of such a number -> its trials). interval is nil
-- if a trial diverged or none is done.
local groups = require "toeplab.report.groups"
local json = require "toeplab.base.json"
local frames = require "toeplab.report.frames"
local published_tables = require "toeplab.trials.published_tables"
local stats = require "toeplab.report.stats"
local sorted_keys = require "toeplab.base.sorted_keys"

local tables = {}

local early = { pruned = true, timeout = true, budget = true }

-- ---- Cells ------------------------------------------------------------------------------------

-- Returns the cell of trials, for the number of a metric in their values. times: a factor, or nil;
-- rescued: the set of the ids of trials that the guard rolled back.
function tables.cell(trials, metric, times, rescued)
  local c = { asked = #trials, done = 0, diverged = 0, early = 0, rescued = 0, failed = 0, open = 0,
    lacking = 0, trials = trials, values = {}, of = {} }
  local function count(name, t)
    c[name], c.of[name] = c[name] + 1, c.of[name] or {}
    table.insert(c.of[name], t)
  end
  for _, t in ipairs(trials) do
    local v = t.values[metric]
    if early[t.status] then
      count("early", t)
    elseif t.status == "guard" then
      count("done", t)
      count("diverged", t)
    elseif t.status == "failed" then
      count("failed", t)
    elseif t.status ~= "done" then
      count("open", t)
    elseif not v then
      count("lacking", t)
    else
      count("done", t)
      if rescued[t.id] then count("rescued", t) end
      if v - v == 0 then
        c.values[#c.values + 1] = v * (times or 1)
      else
        count("diverged", t)
      end
    end
  end
  -- A mean over only the seeds that did not diverge would flatter.
  if c.diverged == 0 then c.interval = stats.interval(c.values) end
  return c
end

-- ---- Rows -------------------------------------------------------------------------------------

-- Returns the keys that distinguish rows: all axes except those that select columns, and those that
-- follow from these and are not in the set `wanted`.
local function row_keys(pool, columns, trials, wanted)
  local of_columns, keys = published_tables.keys(columns), {}
  local own = {}
  for _, key in ipairs(pool:own_axes(trials)) do own[key] = true end
  for _, key in ipairs(sorted_keys(pool.axes)) do
    if not of_columns[key] and (wanted[key] or own[key]
      and not frames.follows(key, of_columns, trials)) then
      keys[#keys + 1] = key
    end
  end
  return keys
end

-- Labels the groups by the keys that distinguish them. Of keys that vary together, as in a zip,
-- those in the set `wanted` stay.
local function name_groups(list, keys, wanted)
  local kept = table.move(keys, 1, #keys, 1, {})
  local function distinct()
    local seen = {}
    for _, group in ipairs(list) do
      local label = groups.label(group.at, kept)
      if seen[label] then return false end
      seen[label] = true
    end
    return true
  end
  for i = #kept, 1, -1 do
    local key = table.remove(kept, i)
    if wanted[key] or #kept == 0 or not distinct() then table.insert(kept, i, key) end
  end
  local count = {}
  for _, group in ipairs(list) do -- numbers may differ beyond the digits that a label shows
    local label = groups.label(group.at, kept)
    count[label] = (count[label] or 0) + 1
    group.label = (label ~= "" and label or "all")
      .. (count[label] > 1 and (" (%d)"):format(count[label]) or "")
  end
end

-- Groups the trials by row: {row= (a published one, or nil), label=, at=, trials=}.
local function group_rows(trials, keys, match)
  local list, found, of_point = {}, {}, {}
  for _, t in ipairs(trials) do
    local group = of_point[t.point]
    if not group then
      local at = {}
      for _, key in ipairs(keys) do at[key] = t.point.at[key] end
      local text = json.encode(at)
      group = found[text]
      if not group then
        group = { row = match(t.point.values), at = at, trials = {} }
        found[text], list[#list + 1] = group, group
      end
      of_point[t.point] = group
    end
    table.insert(group.trials, t)
  end
  return list
end

-- Returns the rows to show: those of the paper in its order, each as often as groups match it, then
-- the groups that the paper lacks.
local function lines(rows, list)
  local result, more = {}, {}
  for _, row in ipairs(rows) do
    local found = 0
    for _, group in ipairs(list) do
      if group.row == row then
        found = found + 1
        result[#result + 1] = { name = row[1], published = row, group = group }
      end
    end
    if found == 0 then result[#result + 1] = { name = row[1], published = row } end
    for i = #result - found + 1, found > 1 and #result or 0 do
      result[i].name = row[1] .. " " .. result[i].group.label
      result[i].one_of = found
    end
  end
  for _, group in ipairs(list) do
    if not group.row then more[#more + 1] = { name = group.label, group = group } end
  end
  return table.move(more, 1, #more, #result + 1, result)
end

-- ---- Columns ----------------------------------------------------------------------------------

-- Assigns to each column the number of its metric in the returned list of names; nil if none of its
-- metrics was logged.
local function assign(columns, pool)
  local list, logged = {}, pool:metrics()
  for _, column in ipairs(columns) do
    column.metric, column.name_of_metric = groups.place_metric(column.metrics or {},
      pool.fixed.length, logged, list)
  end
  return list
end

-- Returns the trials of a row that belong to a column.
local function of_column(column, trials, axes)
  if not column.where then return trials end
  local list, fits, match = {}, {}, published_tables.matcher({ { where = { column.where } } }, axes)
  for _, t in ipairs(trials) do
    if fits[t.point] == nil then fits[t.point] = match(t.point.values) ~= nil end
    if fits[t.point] then list[#list + 1] = t end
  end
  return list
end

local function fill(result, pool)
  local rescued = pool and pool:rescued()
  for _, row in ipairs(result.rows) do
    row.cells = {}
    for c, column in ipairs(result.columns) do
      local trials = row.group and column.metric and of_column(column, row.group.trials, pool.axes)
      local filled = trials and #trials > 0
        and tables.cell(trials, column.metric, column.times, rescued) or { asked = 0 }
      local paper = row.published and row.published[c + 1]
      filled.paper = paper ~= nil and paper or nil
      if row.published and paper == false then filled.dash = true end
      row.cells[c] = filled
      if filled.asked > 0 then column.here = true end
    end
  end
end

-- ---- Agreement --------------------------------------------------------------------------------

local LEAST_RANKED = 4 -- rows: the orders of fewer agree by chance once in three times, or always

-- Computes Kendall's tau between the paper's and the measured order of the rows in a column that
-- says which values are better: {column=, rows= (their number), tau=, p= (nil if the paper has
-- ties), low=, high= (nil if a row has one value)}; nil for fewer than LEAST_RANKED rows, if all
-- are tied, or if several groups match one row.
local function agreement(result, c)
  if not result.columns[c].better then return nil end
  local paper, samples, means = {}, {}, {}
  for _, row in ipairs(result.rows) do
    local cell = row.cells[c]
    if row.one_of then return nil end
    if type(cell.paper) == "number" and cell.interval then
      local i = #paper + 1
      paper[i], samples[i], means[i] = cell.paper, cell.values, cell.interval.mean
    end
  end
  if #paper < LEAST_RANKED then return nil end
  local tau = stats.kendall(paper, means)
  if tau ~= tau then return nil end
  local a = { column = result.columns[c], rows = #paper, tau = tau }
  local distinct = {}
  for _, v in ipairs(paper) do distinct[v] = true end
  if #sorted_keys(distinct) == #paper then a.p = stats.kendall_p(tau, #paper) end
  a.low, a.high = stats.kendall_interval(paper, samples)
  return a
end

-- ---- The table ---------------------------------------------------------------------------------

-- The metrics to which the results of language models are compared (recipes/lm.lua).
tables.yardsticks = { "unigram_ppl", "bigram_ppl", "trigram_ppl", "tokens_seen" }

-- Returns the yardsticks of trials, name -> value; false if trials that logged it have different
-- values. first: the place before their values in the values of a trial.
local function yardsticks(trials, first)
  local found = {}
  for i, name in ipairs(tables.yardsticks) do
    for _, t in ipairs(trials) do
      local value = t.values[first + i]
      if value then
        local same = found[name] == nil or found[name] == value
        found[name] = same and value
      end
    end
  end
  return found
end

-- Returns the table of an experiment without a published one: a column for each of the metrics; if
-- none is given, of those that its report names or, failing that, of all that it logged.
local function own(pool, name, metrics)
  local columns, asked = {}, #metrics > 0 and metrics or pool.plan.columns
    or sorted_keys(pool:metrics())
  for i, metric in ipairs(asked) do
    columns[i] = { id = metric, name = metric, metrics = { metric },
      better = pool:better(metric) }
  end
  return { id = name, caption = "experiment " .. name, rows_are = "trials", columns = columns,
    rows = {} }
end

-- Fills the published table `published` from pool. published = nil makes the table of the pool's
-- experiment (own); pool = nil leaves the paper's numbers alone. The result (see above) also has
-- pool, trials and published.
function tables.fill(published, pool, metrics)
  local from = published or own(pool, pool.experiment, metrics or {})
  local result = { id = from.id, caption = from.caption, source = from.source,
    corner = from.rows_are, columns = from.columns, published = published, pool = pool,
    columns_are = from.columns_are, agreement = {} }
  local list = {}
  if pool then
    local names = assign(from.columns, pool)
    local first = #names
    table.move(tables.yardsticks, 1, #tables.yardsticks, first + 1, names)
    result.trials = pool:trials(names)
    result.yardsticks = yardsticks(result.trials, first)
    local match = published_tables.matcher(from.rows, pool.axes)
    local wanted, rows = published_tables.keys(from.rows), pool.plan.rows
    for _, key in ipairs(type(rows) == "table" and rows or { rows }) do wanted[key] = true end
    local keys = row_keys(pool, from.columns, result.trials, wanted)
    list = group_rows(result.trials, keys, match)
    name_groups(list, keys, wanted)
  end
  result.rows = lines(from.rows, list)
  fill(result, pool)
  for c, column in ipairs(result.columns) do
    result.agreement[#result.agreement + 1] = column.here and agreement(result, c) or nil
  end
  return result
end

-- Returns the best measured row of a column if its interval overlaps that of no other row, else
-- nil. A row of one seed has no interval, and then no row is clearly the best.
function tables.best(result, c)
  local better, rows = result.columns[c].better, {}
  for r, row in ipairs(result.rows) do
    local interval = not row.margin and row.cells[c].interval
    if interval then rows[#rows + 1] = { r = r, i = interval } end
  end
  if not better or #rows < 2 then return nil end
  table.sort(rows, function(x, y)
    if better == "lower" then return x.i.mean < y.i.mean end
    return x.i.mean > y.i.mean
  end)
  local a = rows[1].i
  for i = 2, #rows do
    local b = rows[i].i
    if not a.low or not b.low then return nil end
    local apart
    if better == "lower" then apart = a.high < b.low else apart = a.low > b.high end
    if not apart then return nil end
  end
  return rows[1].r
end

return tables
