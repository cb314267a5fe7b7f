-- commands/sql.lua: toeplab sql: questions to the store that no verb asks.
local output = require "toeplab.report.listing"
local records = require "toeplab.store.records"
local report = require "toeplab.report.table_text"
local select = require "toeplab.store.select"
local errors = require "toeplab.base.errors"

local sql = {
  example = "toeplab sql 'SELECT experiment, count(*) AS n FROM v_trials GROUP BY 1'\n"
    .. "  toeplab sql --csv 'SELECT name, avg(value) AS mean FROM v_last GROUP BY 1'",
  usage = "toeplab sql QUERY",
  about = "Prints what one SELECT gives; QUERY may be - for standard input. Nothing can be\n"
    .. "changed by it. The views v_trials, v_metrics, v_last, v_artifacts, v_members, v_events\n"
    .. "and v_trash stay as they are from version to version; json_extract(config, '$.lr') is a\n"
    .. "key.",
  options = {
    { name = "schema", help = "print the columns of the views instead" },
    output.csv, output.json, output.dir,
  },
}

-- How to ask for the column that SQLite does not know, where it is a key or a metric.
local function hint(store, message)
  local name = message:match("no such column: ([%w_@]+)$")
  local keys, metrics = select.names(store)
  for _, key in ipairs(name and keys or {}) do
    if key == name then return (": a key is json_extract(config, '$.%s')"):format(name) end
  end
  for _, metric in ipairs(name and metrics or {}) do
    if metric == name then
      return (": a metric is a row of v_last, whose name is '%s'"):format(name)
    end
  end
  return name and " (toeplab sql --schema lists them)" or ""
end

-- What SQLite said of the query, without the query.
local function complain(store, why, text)
  local message = errors.text(why)
  if message:find("not one statement", 1, true) then errors.usage("sql: takes one SELECT") end
  local _, at = message:find(text .. ": ", 1, true)
  message = at and message:sub(at + 1) or message
  errors.usage("sql: %s%s", message, hint(store, message))
end

-- The query becomes a view of this connection only, which names its columns in order; SQLite makes
-- views of single SELECTs and of nothing else.
local function ask(store, text)
  local view = "CREATE TEMP VIEW asked AS " .. text
  local ok, why = pcall(store.rows, store, view)
  if not ok then complain(store, why, view) end
  local results = {}
  for i, statement in ipairs { "PRAGMA table_info(asked)", "SELECT * FROM asked" } do
    ok, results[i] = pcall(store.rows, store, statement)
    if not ok then complain(store, results[i], statement) end
  end
  local header, found = table.unpack(results)
  for i, column in ipairs(header) do header[i] = column.name end
  return header, found
end

-- A table rounds numbers; times in seconds are too large for that.
local function cell(v)
  local large = math.type(v) == "float" and math.abs(v) >= 1e6 and v - v == 0
  return large and ("%.12g"):format(v) or v
end

local function show_schema(store)
  local rows = {}
  for _, row in ipairs(store:rows [[SELECT v.name AS view, p.name AS column FROM sqlite_schema v
      JOIN pragma_table_info(v.name) p WHERE v.type = 'view' ORDER BY v.name, p.cid]]) do
    local last = rows[#rows]
    if last and last[1] == row.view then
      last[2] = last[2] .. ", " .. row.column
    else
      rows[#rows + 1] = { row.view, row.column }
    end
  end
  report.print({ "view", "columns" }, rows)
end

function sql.run(set, words)
  output.check("sql", set)
  local store <close> = records.open(records.folder(set.dir), "ask")
  if set.schema then
    show_schema(store)
    return errors.DONE
  end
  if #words ~= 1 then errors.usage("sql: takes one query, in quotes (see toeplab sql --help)") end
  local text = (words[1] == "-" and io.read("a") or words[1]):gsub("[%s;]+$", "")
  local header, found = ask(store, text)
  local rows = {}
  for i, row in ipairs(found) do
    rows[i] = {}
    for c, name in ipairs(header) do
      rows[i][c] = (set.csv or set.json) and row[name] or cell(row[name])
    end
  end
  output.rows(set, header, rows)
  return errors.DONE
end

return sql
