-- commands/lua.lua: toeplab lua -i: an interactive Lua prompt with the library and the store of
-- runs. lua/main.c runs scripts itself, without this file.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"
local text_table = require "toeplab.base.text_table"
local selection = require "toeplab.store.selection"

local lua = {
  example = "toeplab lua script.lua\n  toeplab lua -e 'local tl = require \"toeplab\" "
    .. "print(tl.tno(\"rac\", 4, 1, true):points())'\n  rlwrap toeplab lua -i",
  usage = "toeplab lua [FILE | -e CODE [ARGUMENTS]]\n       toeplab lua -i",
  about = "Runs FILE, CODE or standard input as Lua; require \"toeplab\" gives the library.\n"
    .. "With -i, reads a line at a time and prints its values. Available, besides the library\n"
    .. "as tl:\n"
    .. "  sql(QUERY, ...)         rows of a query, with values for its question marks\n"
    .. "  trials(TRIAL, ...)      rows of the trials that the words of toeplab ls select\n"
    .. "  trial(TRIAL)            one: its row with config and metrics as tables\n"
    .. "  series(TRIAL, METRIC)   lists of steps and values\n"
    .. "  show(ROWS)              a table of rows\n"
    .. "  help                    this text\n"
    .. "An expression needs no return; an incomplete line continues on the next one. The store\n"
    .. "is opened for reading. rlwrap adds line editing and a history.",
  computes = true,
  words = { "file" },
  options = {
    { name = "interactive", short = "i", help = "read Lua a line at a time" },
    output.dir,
  },
}

-- Returns the printable form of a value: a plain table as JSON; print formats tensors itself.
local function printable(v)
  if type(v) ~= "table" or getmetatable(v) then return v end
  local ok, encoded = pcall(json.encode, v)
  return ok and encoded or v
end

local function show(rows) text_table.print(output.columns(rows)) end

-- Returns the environment of the lines, in addition to the globals of Lua. The store is opened on
-- first use, so that the library can be tried without any runs.
local function surroundings(folder)
  local opened
  local function store()
    opened = opened or records.open(folder, "r")
    return opened
  end
  local function row(id) return store():rows("SELECT * FROM v_trials WHERE id = ?", { id })[1] end
  local env = { tl = require "toeplab", show = show }
  env.help = setmetatable({}, { __tostring = function() return lua.about end,
    __call = function() return lua.about end })
  function env.sql(query, ...) return store():rows(query, table.pack(...)) end
  function env.trials(...)
    local rows = selection.ids(store(), { ... }, "trials")
    for i, id in ipairs(rows) do rows[i] = row(id) end
    return rows
  end
  function env.trial(word)
    local t = selection.one(store(), word)
    t.config, t.metrics = store():config(t.config), store():results(t.id)
    return t
  end
  function env.series(word, metric)
    return store():series(selection.one(store(), word).id, metric)
  end
  return setmetatable(env, { __index = _G })
end

-- Compiles an expression or statements. Returns the function, or nil, the message, and whether the
-- source is merely incomplete.
local function compile(source, env)
  local fn = load("return " .. source, "=line", "t", env)
  if fn then return fn end
  local made, why = load(source, "=line", "t", env)
  return made, why, why and why:find("<eof>$") ~= nil
end

local function answer(ok, ...)
  local values = table.pack(...)
  if not ok then return errors.say("%s", errors.text((...))) end
  if values.n == 0 then return end
  for i = 1, values.n do values[i] = printable(values[i]) end
  print(table.unpack(values, 1, values.n))
end

function lua.run(set, words)
  if not set.interactive then errors.usage("lua: --dir requires -i (see toeplab lua --help)") end
  if #words > 0 then errors.usage("lua: -i takes no words, got '%s'", words[1]) end
  local env, asks, source = surroundings(records.folder(set.dir)), core.sys.isatty(0), ""
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
end

return lua
