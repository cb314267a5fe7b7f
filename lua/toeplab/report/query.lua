-- report/query.lua: runs one SELECT of the user on a store opened for queries, and prints its rows.
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local output = require "toeplab.report.output"
local shell = require "toeplab.base.shell"
local text_table = require "toeplab.base.text_table"
local selection = require "toeplab.store.selection"

local query = {}

-- Returns how to query a key or a metric, if the column unknown to SQLite is one.
local function hint(store, message)
  local name = message:match("no such column: ([%w_@]+)$")
  local keys, metrics = selection.names(store)
  for _, key in ipairs(name and keys or {}) do
    if key == name then return (": a key is json_extract(config, '$.%s')"):format(name) end
  end
  for _, metric in ipairs(name and metrics or {}) do
    if metric == name then
      return (": a metric is a row of v_last, whose name is '%s'"):format(name)
    end
  end
  return name and shell.named " (toeplab ls --schema lists them)" or ""
end

-- Raises SQLite's message about the query, without the query itself.
local function complain(store, why, text)
  local message = errors.text(why)
  if message:find("not one statement", 1, true) then errors.usage("ls: --sql takes one SELECT") end
  local _, at = message:find(text .. ": ", 1, true)
  message = at and message:sub(at + 1) or message
  errors.usage("ls --sql: %s%s", message, hint(store, message))
end

-- Makes the query a temporary view, which names its columns in order. SQLite makes views of single
-- SELECTs only, so that no other statement can run.
local function run_query(store, text)
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

-- Returns a value as a cell. JSON has NULL as null. Tables round numbers, but times in seconds are
-- too large for rounding.
local function cell(v, set)
  if set.json and v == nil then return json.null end
  if set.json or set.csv then return v end
  local large = math.type(v) == "float" and math.abs(v) >= 1e6 and v - v == 0
  return large and ("%.12g"):format(v) or v
end

-- Prints the views that a query may read, with their columns.
function query.schema(store)
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
  text_table.print({ "view", "columns" }, rows)
end

-- Prints the rows of a query ("-": read from standard input) in the form of the options in set
-- (output.lua).
function query.print(store, set, text)
  text = (text == "-" and io.read("a") or text):gsub("[%s;]+$", "")
  local header, found = run_query(store, text)
  local rows = {}
  for i, row in ipairs(found) do
    rows[i] = {}
    for c, name in ipairs(header) do rows[i][c] = cell(row[name], set) end
  end
  output.rows(set, header, rows)
end

return query
