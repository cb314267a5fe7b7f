-- commands/repl.lua: toeplab repl: Lua, a line at a time, with the engine and the store at hand.
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local output = require "toeplab.report.listing"
local records = require "toeplab.store.records"
local report = require "toeplab.report.table_text"
local select = require "toeplab.store.select"
local errors = require "toeplab.base.errors"

local repl = {
  example = "toeplab repl\n  rlwrap toeplab repl",
  usage = "toeplab repl",
  about = "Reads Lua and prints what it gives. At hand, besides the library as tl:\n"
    .. "  sql(QUERY, ...)         rows of a query, with values for its question marks\n"
    .. "  trials(TRIAL, ...)      rows of the trials that the words of toeplab ls mean\n"
    .. "  trial(TRIAL)            one: its row with config and metrics as tables\n"
    .. "  series(TRIAL, METRIC)   lists of steps and values\n"
    .. "  show(ROWS)              a table of rows\n"
    .. "  help                    this text\n"
    .. "An expression needs no return; what is not finished goes on in the next line. The store\n"
    .. "is open for reading. rlwrap adds line editing and a history.",
  computes = true,
  options = { output.dir },
}

-- A value for the eye: tensors with their numbers, tables as JSON where they can be.
local function text(v)
  if type(v) == "userdata" and tostring(v):find("^tensor %[") then return v:show() end
  if type(v) ~= "table" or getmetatable(v) then return tostring(v) end
  local ok, encoded = pcall(json.encode, v)
  return ok and encoded or tostring(v)
end

local function columns_of(rows)
  local set, header = {}, {}
  for _, row in ipairs(rows) do
    for name in pairs(row) do
      if not set[name] then
        set[name] = true
        header[#header + 1] = name
      end
    end
  end
  table.sort(header)
  return header
end

local function show(rows)
  local header, lists = columns_of(rows), {}
  for i, row in ipairs(rows) do
    lists[i] = {}
    for c, name in ipairs(header) do lists[i][c] = row[name] end
  end
  report.print(header, lists)
end

-- What the lines may use, besides the globals of Lua.
local function surroundings(store)
  local env = { tl = require "toeplab", show = show }
  env.help = setmetatable({}, { __tostring = function() return repl.about end,
    __call = function() return repl.about end })
  function env.sql(query, ...) return store:rows(query, table.pack(...)) end
  function env.trials(...)
    local rows = {}
    for i, id in ipairs(select.ids(store, { ... }, "trials")) do
      rows[i] = store:rows("SELECT * FROM v_trials WHERE id = ?", { id })[1]
    end
    return rows
  end
  function env.trial(word)
    local row = select.one(store, word)
    row.config = store:config(row.config)
    row.metrics = store:results(row.id)
    return row
  end
  function env.series(word, metric) return store:of(select.one(store, word).id):series(metric) end
  return setmetatable(env, { __index = _G })
end

-- A line as a function: an expression or statements; nil and why not, and whether more may help.
local function compile(source, env)
  local fn = load("return " .. source, "=repl", "t", env)
  if fn then return fn end
  local made, why = load(source, "=repl", "t", env)
  return made, why, why and why:find("<eof>$") ~= nil
end

local function answer(ok, ...)
  local values = table.pack(...)
  if not ok then
    errors.say("%s", errors.text((...)))
  elseif values.n > 0 then
    for i = 1, values.n do values[i] = text(values[i]) end
    print(table.concat(values, "\t"))
  end
end

function repl.run(set, words)
  if #words > 0 then errors.usage("repl: takes no words, got '%s'", words[1]) end
  local store <close> = records.open(records.folder(set.dir), "r")
  local env, asks, source = surroundings(store), core.sys.isatty(0), ""
  while true do
    if asks then io.stderr:write(source == "" and "> " or ">> ") end
    local line = io.read("L")
    if not line then break end
    source = source .. line
    local fn, why, more = compile(source, env)
    if fn then
      answer(pcall(fn))
    elseif not more then
      errors.say("%s", why)
    end
    if fn or not more then source = "" end
  end
  if asks then io.stderr:write("\n") end
  return errors.DONE
end

return repl
