-- trials/own_code.lua: records the files of code that an experiment file loads, by require, dofile
-- or loadfile, because their code is part of the ids of its trials.
--
-- It records a file when it is loaded, because package.loaded, package.path and the file may change
-- later.
local code = require "toeplab.trials.code"
local core = require "toeplab.core"
local provenance = require "toeplab.trials.provenance"
local sorted_keys = require "toeplab.base.sorted_keys"

local own_code = {}

local plain = { dofile = dofile, loadfile = loadfile }
local library = provenance.library() .. "/"

local watched -- what has been recorded: modules and files, by name and by path; nil: not watching
local closed = false -- whether a trial runs, which may load no further code
local known = {} -- the names of all modules that were recorded in this process

-- Returns whether the file at path does not belong to the library.
function own_code.is_own(path) return path:sub(1, #library) ~= library end

local is_own = own_code.is_own

local function is_binary(text) return text:sub(1, 1) == "\27" end

-- Records code. set: watched.modules or watched.files; text: of the file at path.
local function record(set, key, path, text, compiled)
  text = text or core.sys.read_file(path) or ""
  local bytes = core.sha256(text)
  set[key] = { bytes = bytes, tokens = compiled and bytes or code.hash(text) }
  if not compiled then watched.texts[path] = text end
end

local function refuse(name, participle, verb)
  error(("'%s' must be %s at the top of the script: code that only a running trial %s is not part "
    .. "of its id"):format(name, participle, verb), 0)
end

-- ---- dofile and loadfile ------------------------------------------------------------------------

-- Returns whether the library called the caller of this function.
local function by_library()
  local caller = debug.getinfo(3, "S") -- nil in a coroutine of dofile itself
  return caller and caller.source:sub(2, #library + 1) == library
end

-- Like loadfile, but records the file.
local function load_own(path, ...)
  if closed then refuse(path, "loaded", "loads") end
  local text = core.sys.read_file(path)
  if not text then return plain.loadfile(path, ...) end -- for its error message
  record(watched.files, path, path, text, is_binary(text))
  return load(code.source(text), "@" .. path, ...)
end

function _G.loadfile(path, ...)
  if not path or not (watched or closed) or by_library() then return plain.loadfile(path, ...) end
  return load_own(path, ...)
end

function _G.dofile(path)
  if not path or not (watched or closed) or by_library() then return plain.dofile(path) end
  local chunk, why = load_own(path)
  if not chunk then error(why, 0) end
  return chunk()
end

-- ---- require ------------------------------------------------------------------------------------

local function search_lua(searcher, name)
  local path, why = package.searchpath(name, package.path)
  if not path then return why end
  local text = is_own(path) and core.sys.read_file(path)
  if not text then return searcher(name) end
  local chunk, problem = load(code.source(text), "@" .. path)
  if not chunk then
    error(("error loading module '%s' from file '%s':\n\t%s"):format(name, path, problem), 0)
  end
  record(watched.modules, name, path, text, is_binary(text))
  return chunk, path
end

local function search_c(searcher, name)
  local loader, path = searcher(name)
  if type(loader) == "function" and path and is_own(path) then
    record(watched.modules, name, path, nil, true)
  end
  return loader, path
end

-- The searchers of Lua: package.preload, Lua files, C libraries, C libraries of several modules.
for i, search in ipairs { false, search_lua, search_c, search_c } do
  local searcher = package.searchers[i]
  package.searchers[i] = search and function(name)
    if not watched then return searcher(name) end
    return search(searcher, name)
  end or searcher
end

-- Returns the file of a module that belongs to the script; nil for modules of the library and for
-- modules that the script has put into package.preload.
local function own_module(name)
  local path = not package.preload[name] and (package.searchpath(name, package.path)
    or package.searchpath(name, package.cpath))
  return path and is_own(path) and path or nil
end

local standard = { _G = true, package = true, coroutine = true, table = true, io = true, os = true,
  string = true, math = true, utf8 = true, debug = true }

-- Returns all modules except those of Lua and of the library: name -> the value of require.
local function others()
  local found = {}
  for name, value in pairs(package.loaded) do
    local ours = type(name) == "string" and (name == "toeplab" or name:find "^toeplab%.")
    if known[name] or not (standard[name] or ours) then found[name] = value end
  end
  return found
end

-- Removes the other modules from package.loaded, and returns them: require would otherwise not load
-- them again, so they would not be recorded.
local function set_aside()
  local aside = others()
  for name in pairs(aside) do package.loaded[name] = nil end
  return aside
end

-- ---- Lua's own tables ---------------------------------------------------------------------------

local tables = { ["package.preload"] = package.preload, ["package.searchers"] = package.searchers,
  ["the metatable of strings"] = debug.getmetatable "" }
local holders = { strings = { "" }, numbers = { 0 }, booleans = { true }, functions = { print },
  coroutines = { coroutine.create(print) }, ["nil"] = {} } -- of the metatables of types
for name in pairs(standard) do
  holders[name] = { _G[name] }
  if name ~= "_G" then tables[name] = _G[name] end -- reachable_code.lua looks for globals
end

-- Fields of package that locate modules, which are recorded when require loads them.
local excluded = { loaded = true, path = true, cpath = true }

local added = {} -- what scripts have changed: name -> key -> {value=, before=}

local function current(name, key)
  if name == "metatables" then return debug.getmetatable(holders[key][1]) end
  return rawget(tables[name], key)
end

local function put(name, key, value)
  if name == "metatables" then
    debug.setmetatable(holders[key][1], value)
  else
    rawset(tables[name], key, value)
  end
end

-- Returns the contents of Lua's own tables, and of the metatables of these and of types: name ->
-- key -> value.
local function contents()
  local all = { metatables = {} }
  for key, holder in pairs(holders) do all.metatables[key] = debug.getmetatable(holder[1]) end
  for name, t in pairs(tables) do
    all[name] = {}
    for key, value in next, t do
      if t ~= package or not excluded[key] then all[name][key] = value end
    end
  end
  return all
end

-- Returns the changes since `before`: name -> key -> value, or "removed".
local function changes(before)
  local found = {}
  local function note(name, key, value)
    found[name], added[name] = found[name] or {}, added[name] or {}
    found[name][key] = value == nil and "removed" or value
    added[name][key] = { value = value, before = before[name][key] }
  end
  for name, now in pairs(contents()) do
    for key, value in next, now do
      if not rawequal(value, before[name][key]) then note(name, key, value) end
    end
    for key in next, before[name] do
      if now[key] == nil then note(name, key, nil) end
    end
  end
  return found
end

-- Undoes the changes of earlier scripts of this process, as if the next script ran in a new one.
-- Returns a function that restores them where nothing has changed since.
local function undo_changes()
  local undone = {}
  for name, list in pairs(added) do
    for key, change in pairs(list) do
      if rawequal(current(name, key), change.value) then
        put(name, key, change.before)
        undone[#undone + 1] = { name = name, key = key, change = change }
      end
    end
  end
  added = {}
  return function()
    for _, one in ipairs(undone) do
      local name, key, change = one.name, one.key, one.change
      if rawequal(current(name, key), change.before) then
        put(name, key, change.value)
        added[name] = added[name] or {}
        added[name][key] = change
      end
    end
  end
end

-- ---- Modules beside the script ------------------------------------------------------------------

local home = "" -- what package.path begins with

-- Makes require find the modules in the folder of the script at path, whatever the working
-- directory is, and no longer those beside an earlier script.
function own_code.beside(path)
  local rest = package.path
  if rest:sub(1, #home) == home then rest = rest:sub(#home + 1) end
  local folder = path:match "^(.*)/" or "."
  home = ("%s/?.lua;%s/?/init.lua;"):format(folder, folder)
  package.path = home .. rest
end

-- ---- Watching -----------------------------------------------------------------------------------

-- Returns one hash over all recorded code; "" if there is none. kind: "tokens" or "bytes".
local function combined(seen, kind)
  local lines, files = {}, {}
  for i, name in ipairs(sorted_keys(seen.modules)) do
    lines[i] = name .. " " .. seen.modules[name][kind]
  end
  -- Without the folder of a file: moving an experiment does not change its code.
  for path, hashes in pairs(seen.files) do
    files[#files + 1] = "/" .. path:match "[^/]*$" .. " " .. hashes[kind]
  end
  table.sort(files)
  table.move(files, 1, #files, #lines + 1, lines)
  return #lines > 0 and core.sha256(table.concat(lines, "\n")) or ""
end

-- Calls call(...), which must not raise, and records the files of code that it loads. Returns
-- {tokens= (a hash of their code without comments), bytes= (a hash of their text), texts= (path ->
-- text of a Lua file), modules= (the set of the names of modules that it has loaded or put into
-- package.loaded), standard= (its changes of Lua's own tables)}, then the results of call.
function own_code.watch(call, ...)
  local outer, aside, redo_changes = watched, set_aside(), undo_changes()
  local seen, before = { modules = {}, files = {}, texts = {} }, contents()
  watched = seen
  local results = table.pack(call(...))
  watched = outer
  local changed, modules = changes(before), others()
  redo_changes()
  for name, value in pairs(aside) do
    if package.loaded[name] == nil then package.loaded[name] = value end
  end
  for name in pairs(seen.modules) do known[name], modules[name] = true, true end
  return { tokens = combined(seen, "tokens"), bytes = combined(seen, "bytes"), texts = seen.texts,
    modules = modules, standard = changed }, table.unpack(results, 1, results.n)
end

-- Forbids the script to load more of its own code until the returned function is called: the id of
-- a trial would not cover that code.
function own_code.close()
  local function refuse_own(name)
    if not own_module(name) then return nil end
    refuse(name, "required", "requires")
  end
  table.insert(package.searchers, 1, refuse_own)
  closed = true
  return function()
    table.remove(package.searchers, 1)
    closed = false
  end
end

own_code.globals = {} -- the globals that no script has set: name -> value
for name, value in pairs(_G) do own_code.globals[name] = value end

return own_code
