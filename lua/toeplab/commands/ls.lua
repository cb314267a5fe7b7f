-- commands/ls.lua: toeplab ls: lists the trials of the results folder, also by cause of failure or
-- by a query in SQL.
local arguments = require "toeplab.base.arguments"
local failures = require "toeplab.report.failures"
local metrics = require "toeplab.store.metrics"
local output = require "toeplab.report.output"
local progress = require "toeplab.base.progress"
local records = require "toeplab.store.records"
local selection = require "toeplab.store.selection"
local quantity = require "toeplab.base.quantity"
local query = require "toeplab.report.query"
local stats = require "toeplab.report.stats"
local errors = require "toeplab.base.errors"

local ls = {
  example = "toeplab ls\n  toeplab ls quickstart status=failed\n"
    .. "  toeplab ls decay=0.99 'val_ppl<200' --sort val_ppl --columns seed,lr,val_ppl\n"
    .. "  toeplab ls decay --columns loss,val_ppl,time --correlate\n"
    .. "  toeplab ls --failures\n"
    .. "  toeplab ls --sql 'SELECT name, avg(value) AS mean FROM v_last GROUP BY 1' --csv",
  usage = "toeplab ls [TRIAL...]\n       toeplab ls --failures [TRIAL...]\n"
    .. "       toeplab ls --sql QUERY | --schema",
  about = "Lists trials, the last started first. A table shows at most 100 unless --limit is\n"
    .. "given.\n" .. selection.help .. "\n\n"
    .. "With --failures groups the trials that failed, were killed or took too long by their\n"
    .. "messages, ignoring numbers and paths, and lists for each group which keys of the\n"
    .. "configuration they share, how far their checkpoints go, and the command that tries them\n"
    .. "again.\n\n"
    .. "QUERY is one SELECT, or - for standard input; it cannot change anything. The views\n"
    .. "v_trials, v_metrics, v_last, v_artifacts, v_members, v_events and v_trash stay as they\n"
    .. "are from version to version; json_extract(config, '$.lr') is a key.",
  words = { "trials" },
  options = {
    { name = "status", value = "STATUS", choices = selection.statuses, list = true,
      help = "as status=STATUS" },
    { name = "tag", value = "TAG", of = "tags", help = "as tag=TAG" },
    { name = "sort", value = "NAME", of = "columns",
      help = "by a key, metric or column; -NAME: greatest first" },
    { name = "columns", value = "NAMES", of = "columns", list = true,
      help = "keys, metrics and columns to show: lr,loss,host" },
    { name = "correlate", help = "the correlation of each pair of --columns over the trials",
      more = [[
        Pearson's correlation r, with its 95 % interval by Fisher's transformation, and Kendall's
        tau-b, which takes only the order of the values, over the trials in which both are finite
        numbers.]] },
    { name = "limit", value = "N", help = "at most N trials (0: all)" },
    { name = "trash", help = "list the trials in the trash instead" },
    { name = "failures", short = "f", help = "group failed trials by cause" },
    { name = "sql", value = "QUERY",
      help = "print the rows of a query instead",
      more = [[
        QUERY is one SELECT, or `-` for standard input; it cannot change anything.]] },
    { name = "schema", help = "print the columns of the views instead" },
    output.csv, output.json, output.dir,
  },
}

local PAGE = 100

-- The store keeps nan as NULL, which must not look like a missing value.
local LOGGED = "SELECT coalesce(value, char(0) || 'nan')"

-- The default columns.
local usual = { "id", "experiment", "trial", "status", "step", "loss", "started", "time", "tags" }

local function is_usual(name)
  for _, known in ipairs(usual) do
    if known == name then return true end
  end
end

-- Returns the columns to print; a table also shows the one that it is sorted by.
local function names(set)
  if not set.columns then
    local list, by = table.move(usual, 1, #usual, 1, {}), (set.sort or "loss"):gsub("^%-", "")
    if not is_usual(by) and not set.csv and not set.json then table.insert(list, 7, by) end
    return list
  end
  local list = { "id" }
  for name in set.columns:gmatch("[^,]+") do
    if name ~= "id" then list[#list + 1] = name end
  end
  return list
end

-- Running trials log steps beyond their checkpoint.
local STEP = [[CASE WHEN %s = 'running'
  THEN max(coalesce(t.step, 0), coalesce(]] .. metrics.STEP .. [[, 0)) ELSE t.step END]]

-- Formatters of the program's own columns. A key or metric may share a column's name.
local shown = { id = function(value) return value:sub(1, 12) end, started = output.when,
  finished = output.when, created = output.when, time = progress.duration }

-- Returns the SQL of a name, the function that formats its values, or nil, and whether it is a key
-- of the configuration. The default columns exist even if no trial of the store logs a loss.
local function sql_of(query, name, chosen)
  if not chosen and name == "loss" then
    return ("(%s FROM v_last WHERE trial = t.id AND name = %s)"):format(LOGGED, query:bind("loss"))
  end
  if not chosen and name == "step" then return STEP:format(query.status) end
  local own = not chosen or name == "id"
  local sql, kind = query:value(own and "column:" .. name or name)
  if kind == "metric" then return (sql:gsub("SELECT value", LOGGED)) end
  return sql, kind == "column" and shown[name:match "^column:(.*)" or name] or nil, kind == "config"
end

local function cell(show, value)
  if value == nil or value == "" then return nil end
  if value == "\0nan" then return 0 / 0 end
  if value == selection.TRUE or value == selection.FALSE then return value == selection.TRUE end
  return show and show(value) or value
end

local function order(query, word, chosen)
  if not word then return "ORDER BY t.started DESC, t.id" end
  local down = word:match("^%-(.+)$")
  local name = down or word
  if not chosen and name ~= "loss" and is_usual(name) then name = "column:" .. name end
  return ("ORDER BY %s %s NULLS LAST, t.id"):format(query:value(name), down and "DESC" or "ASC")
end

-- Returns the rows, and the set of the columns that are keys of the configuration.
local function read(query, set, header, limit)
  local what, show, keys = {}, {}, {}
  for c, name in ipairs(header) do
    local sql
    sql, show[c], keys[c] = sql_of(query, name, set.columns or not is_usual(name))
    if set.correlate then show[c] = nil end
    what[c] = ("%s AS c%d"):format(sql, c)
  end
  local rows, found = {}, query:rows(table.concat(what, ", "),
    order(query, set.sort, set.columns), limit > 0 and limit or nil)
  for i, t in ipairs(found) do
    rows[i] = {}
    for c in ipairs(header) do rows[i][c] = cell(show[c], t["c" .. c]) end
    found[i] = false
  end
  return rows, keys
end

-- Drops a last column without values from a table.
local function trim(header, rows)
  for _, row in ipairs(rows) do
    if row[#header] ~= nil then return header end
  end
  return table.move(header, 1, #header - 1, 1, {})
end

-- Prints the correlation of each pair of columns.
local function correlate(set, header, rows)
  local found = {}
  local function finite(v) return type(v) == "number" and v - v == 0 end
  for i = 2, #header do
    for k = i + 1, #header do
      local x, y = {}, {}
      for _, row in ipairs(rows) do
        if finite(row[i]) and finite(row[k]) then x[#x + 1], y[#y + 1] = row[i], row[k] end
      end
      if #x < 3 then
        errors.usage("ls: --correlate: only %s have numbers for both %s and %s; it takes 3",
          quantity.count(#x, "trial"), header[i], header[k])
      end
      local r, low, high = stats.correlation(x, y)
      found[#found + 1] = { header[i], header[k], #x, r, low, high, stats.kendall(x, y) }
    end
  end
  output.rows(set, { "a", "b", "trials", "r", "low", "high", "tau" }, found)
end

local function list(store, set, words, given)
  local header, plain = names(set), not set.csv and not set.json
  local page = plain and not given and not set.correlate
  local query = selection.new(store, words, set.trash)
  local rows, keys = read(query, set, header, page and PAGE + 1 or given or 0)
  if set.correlate then return correlate(set, header, rows) end
  local more = page and #rows > PAGE and table.remove(rows)
  if plain and not set.columns then header = trim(header, rows) end
  output.rows(set, header, rows, keys)
  if more then io.stderr:write(("the first %d; --limit 0 lists all\n"):format(PAGE)) end
end

-- Options that each form of the verb refuses, because they would silently have no effect.
local apart = {
  failures = { "csv", "sort", "columns", "correlate", "limit", "trash", "sql", "schema" },
  sql = { "status", "tag", "sort", "columns", "correlate", "limit", "trash", "schema" },
  schema = { "csv", "json", "status", "tag", "sort", "columns", "correlate", "limit", "trash" },
}

local function check(set, words)
  output.check("ls", set)
  if set.correlate and not (set.columns or ""):find "[^,],+[^,]" then
    errors.usage "ls: --correlate needs --columns A,B: keys, metrics or columns that are numbers"
  end
  for form, names_apart in pairs(apart) do
    for _, name in ipairs(set[form] and names_apart or {}) do
      if set[name] then errors.usage("ls: --%s cannot be combined with --%s", form, name) end
    end
  end
  if (set.sql or set.schema) and #words > 0 then
    errors.usage("ls: --%s takes no trials; put a query in quotes", set.sql and "sql" or "schema")
  end
end

function ls.run(set, words)
  check(set, words)
  if set.status then words[#words + 1] = "column:status=" .. set.status end
  if set.tag then words[#words + 1] = "column:tag=" .. set.tag end
  local limit = arguments.integer("ls", set, "limit", 0)
  local asks = set.sql or set.schema
  local folder = records.folder(set.dir)
  local store <close> = asks and records.open(folder, "ask") or records.snapshot(folder)
  if set.schema then
    query.schema(store)
  elseif set.sql then
    query.print(store, set, set.sql)
  elseif set.failures then
    failures.print(store, words, set.json)
  else
    list(store, set, words, limit)
  end
end

return ls
