-- report/pivot.lua: makes a table of a sweep with a row for each value of some keys and a column
-- for each value of others, and with the means over rows and columns.
--
-- A cell averages over all keys that neither rows nor columns name. The settings of these are
-- averaged for each seed first, and the mean and its interval are taken over the seeds, so that a
-- difference between settings does not widen the interval. A seed that lacks a setting is left out.
-- A mean over rows or columns is given only where it averages over the same settings as the others
-- beside it: a missing cell would otherwise look like an effect.
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local config = require "toeplab.base.config"
local frames = require "toeplab.report.frames"
local stats = require "toeplab.report.stats"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
local tables = require "toeplab.report.tables"

local pivot = {}

-- ---- Keys -------------------------------------------------------------------------------------

local function value_of(t, key)
  if key == "seed" then return t.seed end
  return t.point.values[key]
end

-- Returns the values of keys of a trial as a text that tells them apart, and as one to show.
local function place(t, keys)
  local values, shown = {}, {}
  for i, key in ipairs(keys) do
    local value = value_of(t, key)
    values[i] = { value }
    shown[i] = value == nil and "-" or config.show(value)
  end
  return json.encode(values), #keys > 0 and table.concat(shown, ", ") or "all"
end

local function check_keys(pool, rows, columns)
  local known, seen = sorted_keys(pool.axes), {}
  known[#known + 1] = "seed"
  for option, keys in pairs { rows = rows, columns = columns } do
    for _, key in ipairs(keys) do
      if key ~= "seed" and not pool.axes[key] then
        errors.usage("table: --%s: '%s' does not vary in %s%s", option, key, pool:title(),
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
local function other_keys(pool, chosen, trials)
  local keys = {}
  for _, key in ipairs(sorted_keys(pool.axes)) do
    if not chosen[key] and key ~= pool.plan.tuned_key
      and not frames.follows(key, chosen, trials) then
      keys[#keys + 1] = key
    end
  end
  return keys
end

-- ---- Cells ------------------------------------------------------------------------------------

-- Returns for each seed that has a finite value in every setting the mean over these, the set of
-- the settings, and whether a seed has values in some of them only.
local function means_by_seed(trials, metric, others)
  local settings, count, seeds, order = {}, 0, {}, {}
  for _, t in ipairs(trials) do
    local at, v = place(t, others), t.values[metric]
    if not settings[at] then settings[at], count = true, count + 1 end
    if not seeds[t.seed] then
      seeds[t.seed], order[#order + 1] = { sum = 0.0, n = 0 }, t.seed
    end
    if t.status == "done" and v and v - v == 0 then
      seeds[t.seed].sum, seeds[t.seed].n = seeds[t.seed].sum + v, seeds[t.seed].n + 1
    end
  end
  local means, partial = {}, false
  for _, seed in ipairs(order) do
    local s = seeds[seed]
    if s.n == count then means[#means + 1] = s.sum / count end
    partial = partial or s.n > 0 and s.n < count
  end
  return means, settings, partial
end

-- Returns a cell (of tables.lua) of trials, whose values are the means by seed; settings is the set
-- of what it averages over.
local function cell(trials, metric, others, rescued)
  if #trials == 0 then return { asked = 0 } end
  local c = tables.cell(trials, metric, nil, rescued)
  c.values, c.settings, c.partial = means_by_seed(trials, metric, others)
  c.interval = c.diverged == 0 and stats.interval(c.values) or nil
  return c
end

-- Returns the texts of a set as one text.
local function signature(settings) return table.concat(sorted_keys(settings or {}), "\n") end

-- Blanks those of the cells that do not average over the same settings as all of them together;
-- returns whether there are any.
local function blank_incomplete(cells)
  local all, blanked = {}, false
  for _, c in ipairs(cells) do
    for at in pairs(c.settings or {}) do all[at] = true end
  end
  local wanted = signature(all)
  for i, c in ipairs(cells) do
    if signature(c.settings) ~= wanted then cells[i], blanked = { asked = 0 }, true end
  end
  return blanked
end

-- Whether all cells with trials average over the same settings.
local function alike(cells)
  local first
  for _, c in ipairs(cells) do
    local own = c.settings and signature(c.settings)
    if own and first and own ~= first then return false end
    first = first or own
  end
  return true
end

-- Returns the cells of a column without those of a row of means.
local function cells_of(result, c)
  local cells = {}
  for _, row in ipairs(result.rows) do
    if not row.margin then cells[#cells + 1] = row.cells[c] end
  end
  return cells
end

-- ---- The table ---------------------------------------------------------------------------------

-- Splits trials by the values of keys: {name=, trials=, at= (a set of the trials)}, in their order.
local function split(trials, keys)
  local list, found = {}, {}
  for _, t in ipairs(trials) do
    local text, name = place(t, keys)
    if not found[text] then
      found[text] = { name = name, trials = {}, at = {} }
      list[#list + 1] = found[text]
    end
    table.insert(found[text].trials, t)
    found[text].at[t] = true
  end
  return list
end

-- Returns the keys of several lists as one list, without the seed: means are taken over it anyway.
local function settings_of(...)
  local all = {}
  for _, list in ipairs { ... } do
    for _, key in ipairs(list) do
      if key ~= "seed" then all[#all + 1] = key end
    end
  end
  return all
end

-- Returns the columns: a metric each, or one for each value of the keys.
local function columns_of(pool, trials, keys, metrics)
  local list = {}
  if #keys == 0 then
    for i, name in ipairs(metrics) do
      list[i] = { id = name, name = name, metric = i, name_of_metric = name, here = true,
        better = pool:better(name), trials = trials }
    end
    return list
  end
  for i, part in ipairs(split(trials, keys)) do
    list[i] = { id = part.name, name = part.name, metric = 1, name_of_metric = metrics[1],
      here = true, plain = true, better = pool:better(metrics[1]), trials = part.trials,
      at = part.at }
  end
  return list
end

local function of_column(column, trials)
  if not column.at then return trials end
  local list = {}
  for _, t in ipairs(trials) do
    if column.at[t] then list[#list + 1] = t end
  end
  return list
end

-- Appends a column of the means over the columns, and a row of the means over the rows. Returns
-- whether some of these means are left out.
local function add_means(result, rows, keys, others, rescued)
  local columns, missing, last = result.columns, false, #result.columns
  if keys.columns[1] and last > 1 then
    local means, first = {}, columns[1]
    for r, row in ipairs(rows) do
      means[r] = cell(row.trials, 1, settings_of(keys.columns, others), rescued)
    end
    missing = blank_incomplete(means)
    for r, row in ipairs(result.rows) do row.cells[last + 1] = means[r] end
    columns[last + 1] = { id = "mean", name = "mean", metric = 1, here = true, plain = true,
      margin = true, better = first.better, name_of_metric = first.name_of_metric,
      trials = result.trials }
  end
  if #rows < 2 then return missing end
  local means, over = {}, settings_of(keys.rows, others)
  for c, column in ipairs(columns) do
    local more = column.margin and settings_of(over, keys.columns) or over
    means[c] = cell(column.trials, column.metric, more, rescued)
    if not keys.columns[1] and not alike(cells_of(result, c)) then
      means[c], missing = { asked = 0 }, true
    end
  end
  -- The mean over all cells averages over the columns too, so its settings are not those of the
  -- means beside it. It is given if all of these are.
  local total = columns[last + 1] and table.remove(means)
  local incomplete = blank_incomplete(means)
  if total then means[last + 1] = (incomplete or missing) and { asked = 0 } or total end
  local some = false
  for _, c in ipairs(means) do some = some or c.asked > 0 end
  if some then
    result.rows[#result.rows + 1] = { name = "mean", margin = true, cells = means }
  end
  return missing or incomplete
end

local function notes_of(result, others, missing)
  local notes = {}
  if #others > 0 then
    notes[1] = ("each number averages over %s: for each seed first, then over the seeds"):format(
      table.concat(others, ", "))
  end
  local cells, partial = {}, false
  for c, column in ipairs(result.columns) do
    local own = column.margin and {} or cells_of(result, c)
    table.move(own, 1, #own, #cells + 1, cells)
    for _, row in ipairs(result.rows) do partial = partial or row.cells[c].partial end
  end
  if partial then
    notes[#notes + 1] = "a seed that lacks a value in one of the settings averaged over is left "
      .. "out; where none is left, there is no mean"
  end
  if not alike(cells) then
    notes[#notes + 1] = "the cells do not all average over the same settings, so that they differ "
      .. "by these too"
  end
  if missing then
    notes[#notes + 1] = "a mean is left out where it would average over other settings than those "
      .. "beside it"
  end
  return notes
end

-- Appends to the keys of the rows those that vary only from command to command: a mean over these
-- is nobody's question, and a trial run would take part in it.
local function add_between(pool, rows, chosen, trials)
  local all = table.move(rows, 1, #rows, 1, {})
  for _, key in ipairs(sorted_keys(pool.between)) do
    if not chosen[key] and not frames.follows(key, chosen, trials) then
      all[#all + 1], chosen[key] = key, true
    end
  end
  return all
end

-- Returns the table (of tables.lua) of a pool with a row for each value of the keys `rows`, and a
-- column for each value of the keys `columns` or, if that list is empty, for each metric. A row or
-- column of means has the field margin. Raises a usage error if a key does not vary.
function pivot.fill(pool, rows, columns, metrics)
  local chosen, trials = check_keys(pool, rows, columns), pool:trials(metrics)
  rows = add_between(pool, rows, chosen, trials)
  local others, rescued = other_keys(pool, chosen, trials), pool:rescued()
  local by = table.concat(rows, ", ")
  local result = { id = pool.experiment, pool = pool, trials = trials, pivot = true, agreement = {},
    yardsticks = {}, corner = by, columns_are = table.concat(columns, ", "), rows = {},
    columns = columns_of(pool, trials, columns, metrics) }
  local better = pool:better(metrics[1])
  result.caption = #columns == 0 and "by " .. by or ("%s%s by %s and %s"):format(metrics[1],
    better and (" (%s is better)"):format(better) or "", by, result.columns_are)
  local parts = split(trials, rows)
  for r, part in ipairs(parts) do
    local cells = {}
    for c, column in ipairs(result.columns) do
      cells[c] = cell(of_column(column, part.trials), column.metric, others, rescued)
    end
    result.rows[r] = { name = part.name, group = { trials = part.trials }, cells = cells }
  end
  local missing = add_means(result, parts, { rows = rows, columns = columns }, others, rescued)
  result.notes = notes_of(result, others, missing)
  return result
end

return pivot
