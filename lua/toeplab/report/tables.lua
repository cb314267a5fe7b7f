-- report/tables.lua: makes the tables of a frame: a published table with measured values beside its
-- own, the table of an experiment, and a pivot table with a row for each value of some keys, a
-- column for each value of others, and the means over rows and columns.
--
-- The result, which formats.lua can print in any form, is
--   { id=, caption=, source=, corner=, columns = { {id=, name=, better=, here=} }, rows = { {name=,
--     cells = { {paper=, all the fields of a cell} } } }, agreement = { {column=, ...} } }
-- with the cells of cells.lua. A row or column of means has the field margin. It gives a mean only
-- if that averages over the same settings as its neighbours: a missing cell would otherwise look
-- like an effect.
local cells = require "toeplab.report.cells"
local errors = require "toeplab.base.errors"
local frames = require "toeplab.report.frames"
local groups = require "toeplab.report.groups"
local labels = require "toeplab.report.labels"
local published_tables = require "toeplab.trials.published_tables"
local sorted_keys = require "toeplab.base.sorted_keys"
local stats = require "toeplab.report.stats"
local suggest = require "toeplab.base.suggest"
local yardsticks = require "toeplab.report.yardsticks"

local tables = {}

-- ---- Rows -------------------------------------------------------------------------------------

-- Splits trials by the values of keys: {at= (key -> value), keys=, name= (the values), trials=}, in
-- their order.
local function split(trials, keys)
  local list, found, of_point = {}, {}, {}
  for _, key in ipairs(keys) do of_point = key ~= "seed" and of_point end
  for _, t in ipairs(trials) do
    local text = of_point and of_point[t.point] or cells.place(t, keys)
    if of_point then of_point[t.point] = text end
    local group = found[text]
    if not group then
      group = { at = {}, trials = {}, keys = keys }
      for _, key in ipairs(keys) do group.at[key] = cells.value(t, key) end
      group.name = #keys > 0 and labels.none:values(group.at, keys) or "all"
      found[text], list[#list + 1] = group, group
    end
    table.insert(group.trials, t)
  end
  return list
end

-- Returns the keys that distinguish rows: all axes except those that select columns, and except
-- those that follow from these and are not in the set `wanted`.
local function row_keys(frame, columns, trials, wanted)
  local of_columns, keys = published_tables.keys(columns), {}
  local own = {}
  for _, key in ipairs(frame:own_axes(trials)) do own[key] = true end
  for _, key in ipairs(sorted_keys(frame.axes)) do
    if not of_columns[key] and (wanted[key] or own[key]
      and not frames.follows(key, of_columns, trials)) then
      keys[#keys + 1] = key
    end
  end
  return keys
end

-- Adds the keys of each zip of which the set `wanted` has none: a row that names only one of them
-- does not say what was compared.
local function add_zips(frame, wanted)
  for _, keys in ipairs(frame.plan.zip or {}) do
    local some = false
    for _, key in ipairs(keys) do some = some or wanted[key] end
    for _, key in ipairs(some and {} or keys) do wanted[key] = true end
  end
end

-- Labels the groups by the keys that distinguish them. Of keys that vary together, those in the set
-- `wanted` stay.
local function name_groups(list, keys, wanted)
  local kept = table.move(keys, 1, #keys, 1, {})
  local function distinct()
    local seen = {}
    for _, group in ipairs(list) do
      local label = labels.none:parts(group.at, kept)
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
    local label = labels.none:parts(group.at, kept)
    count[label] = (count[label] or 0) + 1
    group.keys, group.more = kept, count[label] > 1 and (" (%d)"):format(count[label]) or ""
    group.label = (label ~= "" and label or "all") .. group.more
  end
end

-- Returns the rows to show: the paper's in its order, each as often as groups match it, then
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

-- Assigns to each column of a published table or an experiment the index of its metric in the
-- returned list of names (nil: none of its metrics was logged), and which trials it has.
local function assign(columns, frame)
  local list, logged = {}, frame:metrics()
  for _, column in ipairs(columns) do
    column.metric, column.name_of_metric = groups.place_metric(column.metrics or {},
      frame.fixed.length, logged, list)
    if column.where then
      local match, fits = published_tables.matcher({ { where = { column.where } } }, frame.axes), {}
      function column.has(t)
        if fits[t.point] == nil then fits[t.point] = match(t.point.values) ~= nil end
        return fits[t.point]
      end
    end
  end
  return list
end

-- Returns the column of the success rate by that metric; nil if the experiment declares no success
-- by it.
local function rate_of(frame, metric)
  local rule = frame.plan.success
  return rule and rule.metric == metric and { id = metric .. " success", name = metric .. " "
    .. cells.success_text(rule), metrics = { metric }, name_of_metric = metric, rate = rule,
    better = "higher" } or nil
end

-- Returns the columns of a pivot: a metric each, or one for each value of the keys.
local function columns_of(frame, trials, keys, metrics)
  local list = {}
  for i, name in ipairs(#keys == 0 and metrics or {}) do
    list[#list + 1] = { id = name, name = name, metric = i, name_of_metric = name, here = true,
      better = frame:better(name) }
    local rate = rate_of(frame, name)
    if rate then rate.metric, rate.here, list[#list + 1] = i, true, rate end
  end
  for i, part in ipairs(#keys > 0 and split(trials, keys) or {}) do
    local set = {}
    for _, t in ipairs(part.trials) do set[t] = true end
    list[i] = { id = part.name, name = part.name, group = part, metric = 1,
      name_of_metric = metrics[1], here = true, plain = true, better = frame:better(metrics[1]),
      has = function(t) return set[t] end }
  end
  return list
end

local function in_column(column, trials)
  if not column.has then return trials end
  local list = {}
  for _, t in ipairs(trials) do
    if column.has(t) then list[#list + 1] = t end
  end
  return list
end

-- Fills the cells of the rows, each with an optional group of trials and a paper's numbers.
local function fill(result, rescued)
  for _, row in ipairs(result.rows) do
    row.cells = {}
    for c, column in ipairs(result.columns) do
      local trials = row.group and column.metric and in_column(column, row.group.trials) or {}
      local cell, paper = cells.of(trials, column.metric, rescued, column.times), nil
      if column.rate then cells.as_rate(cell, column.metric, column.rate) end
      if row.published then paper = row.published[c + 1] end
      cell.paper, cell.dash = paper or nil, paper == false or nil
      row.cells[c], column.here = cell, column.here or cell.asked > 0
    end
  end
end

-- ---- Agreement --------------------------------------------------------------------------------

local LEAST_RANKED = 4 -- rows: the orders of fewer agree by chance in a third of all cases or more

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
  local seen, ties = {}, false
  for _, v in ipairs(paper) do ties, seen[v] = ties or seen[v], true end
  if not ties then a.p = stats.kendall_p(tau, #paper) end
  a.low, a.high = stats.kendall_interval(paper, samples)
  return a
end

-- ---- Means over rows and columns ---------------------------------------------------------------

-- Returns the cells of a column without a row of means.
local function cells_of(result, c)
  local list = {}
  for _, row in ipairs(result.rows) do
    if not row.margin then list[#list + 1] = row.cells[c] end
  end
  return list
end

-- Returns the keys of several lists as one list, without the seed: means are taken over it anyway.
local function together(...)
  local all = {}
  for _, list in ipairs { ... } do
    for _, key in ipairs(list) do
      if key ~= "seed" then all[#all + 1] = key end
    end
  end
  return all
end

-- Appends a column of the means over the columns, and a row of the means over the rows. Returns
-- whether it left out some of these means.
local function add_means(result, keys, rescued)
  local columns, rows, missing, last = result.columns, result.rows, false, #result.columns
  if keys.columns[1] and last > 1 then
    local means, first = {}, columns[1]
    for r, row in ipairs(rows) do means[r] = cells.of(row.group.trials, 1, rescued) end
    missing = cells.blank_incomplete(means, together(keys.columns, keys.others))
    for r, row in ipairs(rows) do row.cells[last + 1] = means[r] end
    columns[last + 1] = { id = "mean", name = "mean", metric = 1, here = true, plain = true,
      margin = true, better = first.better, name_of_metric = first.name_of_metric }
  end
  if #rows < 2 then return missing end
  local means, over = {}, together(keys.rows, keys.others)
  for c, column in ipairs(columns) do
    means[c] = cells.of(in_column(column, result.trials), column.metric, rescued)
    if column.rate then cells.as_rate(means[c], column.metric, column.rate) end
    if not keys.columns[1] and not cells.alike(cells_of(result, c), keys.others) then
      means[c], missing = { asked = 0 }, true
    end
  end
  -- The mean over all cells also averages over the columns, so its settings differ from its
  -- neighbours'. It is given if all of these are.
  local total = columns[last + 1] and table.remove(means)
  local incomplete = cells.blank_incomplete(means, over)
  if total then means[last + 1] = (incomplete or missing) and { asked = 0 } or total end
  local some = false
  for _, c in ipairs(means) do some = some or c.asked > 0 end
  if some then rows[#rows + 1] = { name = "mean", margin = true, cells = means } end
  return missing or incomplete
end

local function notes_of(result, others, missing)
  local notes = {}
  if #others > 0 then
    notes[1] = ("each number averages over %s: for each seed first, then over the seeds"):format(
      table.concat(others, ", "))
  end
  local own, partial = {}, false
  for _, column in ipairs(result.columns) do
    if column.rate then
      notes[#notes + 1] = column.name .. ": the seeds that succeed among those that ended or "
        .. "diverged, with the 95 % interval of Clopper and Pearson"
    end
  end
  for c, column in ipairs(result.columns) do
    local list = column.margin and {} or cells_of(result, c)
    table.move(list, 1, #list, #own + 1, own)
    for _, row in ipairs(result.rows) do partial = partial or row.cells[c].partial end
  end
  if partial then
    notes[#notes + 1] = "a seed that lacks a value in one of the settings averaged over is left "
      .. "out; where none is left, there is no mean"
  end
  if #others > 0 and not cells.alike(own, others) then
    notes[#notes + 1] = "the cells do not all average over the same settings, so their differences "
      .. "include differences of settings"
  end
  if missing then
    notes[#notes + 1] = "a mean is left out if it would average over other settings than those "
      .. "beside it"
  end
  return notes
end

-- ---- Tables -----------------------------------------------------------------------------------

-- Returns the table of an experiment without a published one: a column for each of the metrics; if
-- none is given, for those of its report or, without a report, for all that it logged.
local function own(frame, name, metrics)
  local columns, asked = {}, #metrics > 0 and metrics or frame.plan.columns
    or sorted_keys(frame:metrics())
  for _, metric in ipairs(asked) do
    columns[#columns + 1] = { id = metric, name = metric, metrics = { metric },
      better = frame:better(metric) }
    columns[#columns + 1] = rate_of(frame, metric)
  end
  return { id = name, caption = frame.plan.title or "experiment " .. name, rows_are = "trials",
    columns = columns, rows = {} }
end

-- Fills the published table `published` from frame. published = nil makes the table of the frame's
-- experiment (own); frame = nil leaves the paper's numbers alone. The result (see above) also has
-- frame, trials and published.
function tables.fill(published, frame, metrics)
  local from = published or own(frame, frame.experiment, metrics or {})
  local result = { id = from.id, caption = from.caption, source = from.source,
    corner = from.rows_are, columns = from.columns, published = published, frame = frame,
    columns_are = from.columns_are, agreement = {} }
  local list = {}
  if frame then
    local names = assign(from.columns, frame)
    local first = #names
    table.move(yardsticks.names, 1, #yardsticks.names, first + 1, names)
    result.trials = frame:trials(names)
    result.yardsticks = yardsticks.of(result.trials, first)
    local match = published_tables.matcher(from.rows, frame.axes)
    local wanted, rows = published_tables.keys(from.rows), frame.plan.rows
    for _, key in ipairs(type(rows) == "table" and rows or { rows }) do wanted[key] = true end
    add_zips(frame, wanted)
    local keys = row_keys(frame, from.columns, result.trials, wanted)
    list = split(result.trials, keys)
    for _, group in ipairs(list) do group.row = match(group.trials[1].point.values) end
    name_groups(list, keys, wanted)
  end
  result.rows = lines(from.rows, list)
  fill(result, frame and frame:events "rollback")
  if frame then result.notes = notes_of(result, {}) end
  for c, column in ipairs(result.columns) do
    result.agreement[#result.agreement + 1] = column.here and agreement(result, c) or nil
  end
  return result
end

-- ---- Pivots -----------------------------------------------------------------------------------

local function check_keys(frame, rows, columns)
  local known, seen = sorted_keys(frame.axes), {}
  known[#known + 1] = "seed"
  for option, keys in pairs { rows = rows, columns = columns } do
    for _, key in ipairs(keys) do
      if key ~= "seed" and not frame.axes[key] then
        errors.usage("table: --%s: '%s' does not vary in %s%s", option, key, frame:title(),
          suggest.hint(key, known))
      elseif seen[key] then
        errors.usage("table: '%s' is named twice in --rows and --columns", key)
      end
      seen[key] = true
    end
  end
  return seen
end

-- Returns the keys over which cells average: those that vary besides the chosen ones, the seed, a
-- tuned key, which belongs to its setting, and keys that follow from the chosen ones.
local function other_keys(frame, chosen, trials)
  local keys = {}
  for _, key in ipairs(sorted_keys(frame.axes)) do
    if not chosen[key] and key ~= frame:tuned_key()
      and not frames.follows(key, chosen, trials) then
      keys[#keys + 1] = key
    end
  end
  return keys
end

-- Adds to the keys of the rows the keys that vary only from command to command: nobody expects a
-- mean over these, in which a trial run would take part.
local function add_between(frame, rows, chosen, trials)
  local all = table.move(rows, 1, #rows, 1, {})
  for _, key in ipairs(sorted_keys(frame.between)) do
    if not chosen[key] and not frames.follows(key, chosen, trials) then
      all[#all + 1], chosen[key] = key, true
    end
  end
  return all
end

-- Returns the table of a frame with a row for each value of the keys `rows`, and a column for each
-- value of the keys `columns` or, if that list is empty, for each metric. A cell averages over all
-- keys that neither names. Raises a usage error if a key does not vary.
function tables.pivot(frame, rows, columns, metrics)
  local chosen = check_keys(frame, rows, columns)
  local trials = frame:trials(metrics, chosen)
  rows = add_between(frame, rows, chosen, trials)
  local others, rescued = other_keys(frame, chosen, trials), frame:events "rollback"
  local result = { id = frame.experiment, frame = frame, trials = trials, agreement = {},
    apart = chosen, yardsticks = {}, rows = {},
    pivot = { rows = rows, columns = columns, metric = metrics[1] },
    columns = columns_of(frame, trials, columns, metrics) }
  for r, part in ipairs(split(trials, rows)) do
    result.rows[r] = { name = part.name, group = part }
  end
  fill(result, rescued)
  local missing = add_means(result, { rows = rows, columns = columns, others = others }, rescued)
  result.notes = notes_of(result, others, missing)
  return result
end

-- Returns the best measured row of a column if its interval overlaps no other row's, else
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
