-- trials/reachable_code.lua: finds the code that the trial function of an experiment can reach,
-- because this code is part of the ids of its trials and the rest of the script is not.
--
-- The code consists of the tokens of the function and, transitively, of all user functions that it
-- closes over, and the contents of all tables and other values. It includes globals that user code
-- has set, and modules that the code requires. Of a table that a function only indexes by names, as
-- in sizes.small, it includes only these fields. It includes constants, although Lua folds them
-- into the functions that use them. Functions, modules and classes of the library are represented
-- by their names, because `numerics` covers their results; but functions that user code has put
-- into tables of the library, and its changes of Lua's own tables, are included.
--
-- If the code refers to something opaque (userdata, coroutines, C functions of others, code from
-- strings), the id covers the whole script.
local code = require "toeplab.trials.code"
local core = require "toeplab.core"
local options = require "toeplab.base.options"
local own_code = require "toeplab.trials.own_code"
local sorted_keys = require "toeplab.base.sorted_keys"

local reachable_code = {}

local DEEPEST = 100 -- tables in tables
local Field = getmetatable(options.field { default = 1 }) -- of declared options

local Walk = {}
Walk.__index = Walk

-- Ends a walk; reach.of catches it.
local function give_up(why, ...) error({ opaque = why:format(...) }, 0) end

-- ---- The library --------------------------------------------------------------------------------

local standard = { "_G", "coroutine", "debug", "io", "math", "os", "package", "string", "table",
  "utf8" }

-- Returns the pairs of a table, {name=, value=} each, in the same order in each process.
local function ordered_pairs(t)
  local list = {}
  for key, value in next, t do
    local kind = type(key)
    local name = (kind == "string" or kind == "number") and kind .. " " .. tostring(key) or kind
    list[#list + 1] = { name = name, value = value }
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

-- Adds everything that a table of the library reaches by fields and metatables, and collects the
-- user functions in it, with the name of the place where each was first found.
local function add_library(self, t, place)
  if self.library[t] then return end
  self.library[t] = true
  local meta = debug.getmetatable(t)
  if meta then add_library(self, meta, place .. ".metatable") end
  for _, pair in ipairs(ordered_pairs(t)) do
    local value, name = pair.value, place .. "." .. pair.name
    if type(value) == "table" then
      add_library(self, value, name)
    elseif type(value) == "function" and self.texts[debug.getinfo(value, "S").source:sub(2)] then
      self.patches[value] = self.patches[value] or name
    end
  end
end

local function add_c_functions(self, t, name, deep)
  for key, value in next, t do
    if deep and type(value) == "table" then
      add_c_functions(self, value, ("%s.%s"):format(name, tostring(key)))
    elseif type(value) == "function" and debug.getinfo(value, "S").what == "C" then
      local known, here = self.c[value], ("%s.%s"):format(name, tostring(key))
      self.c[value] = known and known < here and known or here
    end
  end
end

local function add_libraries(self)
  for _, name in ipairs(standard) do
    local t = package.loaded[name]
    self.library[t], self.modules[t] = true, name
    add_c_functions(self, t, name)
  end
  add_c_functions(self, core, "core", true)
  for _, name in ipairs(sorted_keys(package.loaded)) do
    local module = package.loaded[name]
    if type(module) == "table" and (name == "toeplab" or name:find "^toeplab%.") then
      self.modules[module] = name:match "[^.]*$"
      add_library(self, module, name)
    end
  end
end

-- ---- Files --------------------------------------------------------------------------------------

-- Returns {list=, lines=, spans=, constants=} of a file of the user or of the library; nil if it is
-- neither.
local function file_of(self, path)
  local file = self.files[path]
  if file == nil then
    local text = self.texts[path] or not own_code.is_own(path) and core.sys.read_file(path)
    if text then
      file = {}
      file.list, file.lines = code.list(text)
      file.spans, file.constants = code.spans(file.list, file.lines)
    end
    self.files[path] = file or false
  end
  return file or nil
end

-- Returns the functions of a file that may be the one of info (debug.getinfo): those on its lines.
local function candidates(file, info)
  local list = {}
  for _, f in ipairs(file.spans) do
    local begins = f.line == info.linedefined or f.head == info.linedefined
    if begins and f.stop == info.lastlinedefined then list[#list + 1] = f end
  end
  return list
end

-- Returns the tokens of a function, their lines, and its places, {first=, last=} each; nil if no
-- function on its lines may be it, or several may. Of nested functions it takes the outer one.
local function body_of(file, info)
  if info.what == "main" then return file.list, file.lines, {} end
  local list, text, after, places = nil, nil, 0, {}
  local found, lines = candidates(file, info), nil
  table.sort(found, function(a, b) return a.first < b.first end)
  for _, f in ipairs(found) do
    local other = table.concat(file.list, "\n", f.first, f.last)
    if list and f.first > after and other ~= text then return nil end
    if f.first > after then places[#places + 1] = f end
    if not list then
      list, text, after = table.move(file.list, f.first, f.last, 1, {}), other, f.last
      lines = table.move(file.lines, f.first, f.last, 1, {})
    end
  end
  return list, lines, places
end

-- Returns the name by which a function of the library is declared, or a hash of its tokens, and
-- whether it was made by a call of another function.
local function library_name(self, path, info)
  local file = file_of(self, path)
  local f = file and candidates(file, info)[1]
  if not f then return info.what == "main" and path:match "[^/]*$" or "?", false end
  local list, name = file.list, {}
  for i = f.first + 1, f.last do
    if list[i] == "(" then break end
    name[#name + 1] = list[i]
  end
  if not name[1] and list[f.first - 1] == "=" then name[1] = list[f.first - 2] end
  return name[1] and table.concat(name) or core.sha256(table.concat(list, "\n", f.first, f.last)),
    f.depth > 0
end

-- ---- Values -------------------------------------------------------------------------------------

local function hash_of(text) return core.sha256(text):sub(1, 16) end

-- Adds a part under a key of its kind and name; more: the tokens, lines and path of a function.
local function add_part(self, key, text, more)
  local part = more or {}
  part.key, part.hash = key, hash_of(text)
  self.list[#self.list + 1] = part
  self.parts[key] = part.hash
end

-- Returns a name that no other value uses.
local function free_name(self, name)
  while self.taken[name] do name = name .. "'" end
  self.taken[name] = true
  return name
end

-- Adds a part for a value that is neither a function nor a table, unless there is one with its name
-- and text. Returns its name.
local function add_value(self, name, text)
  if self.parts["value " .. name] ~= hash_of(text) then
    name = free_name(self, name)
    add_part(self, "value " .. name, text)
  end
  return name
end

-- Returns the text that represents a value in the part that refers to it. name: of the value;
-- apart: whether it becomes a separate part even if it is not a function.
function Walk:value(value, name, apart)
  local kind = type(value)
  if kind == "function" then return self:fn(value, name) end
  if kind == "table" then return self:table(value, name, apart) end
  if kind == "userdata" or kind == "thread" then give_up("%s is a %s", name, kind) end
  local text = ("%q"):format(value)
  return apart and add_value(self, name, text) or text
end

local function is_visible(constant, places)
  for _, place in ipairs(places) do
    if constant.first < place.first and place.last <= constant.stop then return true end
  end
  return false
end

-- Appends to texts the constants that tokens at places of a file name, and the constants that these
-- name. upvalues: a set of names that are not constants there.
local function constants_used(self, file, places, tokens, texts, upvalues)
  local seen = {}
  for i, token in ipairs(tokens) do
    local before = tokens[i - 1]
    local field = before == "." or before == ":" or tokens[i + 1] == "="
    local list = not field and not seen[token] and not upvalues[token] and file.constants[token]
    for _, constant in ipairs(list or {}) do
      seen[token] = true
      if is_visible(constant, places) then
        texts[#texts + 1] = token .. "=" .. self:constant(file, constant)
      end
    end
  end
end

function Walk:constant(file, constant)
  if not self.names[constant] then
    local texts = { table.concat(constant.tokens, "\n") }
    constants_used(self, file, { constant }, constant.tokens, texts, {})
    self.names[constant] = add_value(self, constant.name, table.concat(texts, "\n"))
  end
  return self.names[constant]
end

-- Returns the fields of `name` that tokens use; nil if they use it otherwise.
local function fields_used(tokens, name)
  local set = {}
  for i, token in ipairs(tokens) do
    local before = tokens[i - 1]
    if token == name and before ~= "." and before ~= ":" then
      if tokens[i + 1] ~= "." then return nil end
      set[tokens[i + 2]] = true
    end
  end
  return sorted_keys(set)
end

-- Adds the part of a closed-over value that a function uses. Returns the text that represents it.
local function add_used(self, value, name, tokens)
  local own = type(value) == "table" and not self.library[value]
  local fields = own and fields_used(tokens, name)
  for _, field in ipairs(fields or {}) do
    if rawget(value, field) == nil and debug.getmetatable(value) then fields = nil end
  end
  if not fields then return self:value(value, name, true) end
  local texts = {}
  for i, field in ipairs(fields) do
    texts[i] = field .. "=" .. self:value(rawget(value, field), name .. "." .. field, true)
  end
  return "{" .. table.concat(texts, ",") .. "}"
end

local hidden = { debug = true, package = true, _G = true }

-- Appends to texts the globals of user code that tokens read, and the user's modules that they
-- require.
local function globals_used(self, tokens, texts, place)
  local seen = {}
  for i, token in ipairs(tokens) do
    local field = tokens[i - 1] == "." or tokens[i - 1] == ":"
    local value = not field and not seen[token] and rawget(_G, token)
    if token == "require" and not field then
      local name = tokens[i + (tokens[i + 1] == "(" and 2 or 1)]:match "^[\"'](.*)[\"']$"
      if not name and next(self.own) then
        give_up("%s requires a module whose name is computed", place)
      end
      if self.own[name] then
        texts[#texts + 1] = self:value(package.loaded[name], name, true)
      end
    elseif value and hidden[token] or token == "_ENV" then
      give_up("%s uses %s", place, token)
    elseif value and value ~= own_code.globals[token] then
      texts[#texts + 1] = token .. "=" .. self:value(value, token, true)
    end
    seen[token] = true
  end
end

-- Returns the values that a function closes over, except _ENV: {name=, value=} each, by name.
local function upvalues(self, f)
  local list = {}
  for i = 1, 255 do
    local name, value = debug.getupvalue(f, i)
    if not name then break end
    local globals = name == "_ENV" and (value == _G or value == self.env)
    if not globals then list[#list + 1] = { name = name, value = value, i = i } end
  end
  table.sort(list, function(a, b)
    if a.name ~= b.name then return a.name < b.name end
    return a.i < b.i
  end)
  return list
end

-- Returns the text that represents a function of the library.
local function library_function(self, f, path, info)
  local name, made = library_name(self, path, info)
  local texts = { "library " .. name }
  if made and not self.names[f] then
    self.names[f] = texts[1]
    for _, u in ipairs(upvalues(self, f)) do
      texts[#texts + 1] = u.name .. "=" .. self:value(u.value, name .. "." .. u.name)
    end
  end
  return table.concat(texts, " ")
end

function Walk:fn(f, name, key)
  if self.names[f] then return self.names[f] end
  local info = debug.getinfo(f, "Su")
  if info.what == "C" then
    local known = self.c[f]
    if not known then give_up("%s is a C function", name) end
    if f == require and next(self.own) then give_up("%s is require", name) end
    return known
  end
  local path = info.source:match "^@(.*)"
  if path and not own_code.is_own(path) then return library_function(self, f, path, info) end
  local file = path and self.texts[path] and file_of(self, path)
  if not file then give_up("the code of %s is in no file", name) end
  local tokens, lines, places = body_of(file, info)
  if not tokens then
    give_up("%s is one of several functions on line %d", name, info.linedefined)
  end
  name = free_name(self, name)
  self.names[f] = name
  local texts, closed = { table.concat(tokens, "\n"), tostring(info.nparams) }, {}
  for _, u in ipairs(upvalues(self, f)) do
    closed[u.name] = true
    texts[#texts + 1] = u.name .. "=" .. add_used(self, u.value, u.name, tokens)
  end
  constants_used(self, file, places, tokens, texts, closed)
  globals_used(self, tokens, texts, name)
  add_part(self, key or "helper " .. name, table.concat(texts, "\n"),
    { tokens = tokens, lines = lines, path = path })
  return name
end

-- Returns the text of a metatable without the values of the library.
local function meta_text(self, meta, name)
  if not meta or self.library[meta] then return "" end
  local texts = {}
  for _, key in ipairs(sorted_keys(meta)) do
    local value = meta[key]
    local info = type(value) == "function" and debug.getinfo(value, "S")
    local ours = info and (info.what == "C" or not own_code.is_own(info.source:sub(2)))
      or self.library[value]
    if not ours then
      texts[#texts + 1] = key .. "=" .. self:value(value, ("%s.%s"):format(name, key))
    end
  end
  return #texts > 0 and " meta{" .. table.concat(texts, ",") .. "}" or ""
end

-- Returns the keys of a table in a fixed order.
local function ordered_keys(t, name)
  local keys, texts = {}, {}
  for key in next, t do
    local kind = type(key)
    if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then
      give_up("a key of %s is a %s", name, kind)
    end
    keys[#keys + 1], texts[key] = key, kind .. ("%q"):format(key)
  end
  table.sort(keys, function(a, b)
    if math.type(a) and math.type(b) then return a < b end
    return texts[a] < texts[b]
  end)
  return keys
end

function Walk:table(t, name, apart)
  if self.modules[t] then return "library " .. self.modules[t] end
  if self.library[t] and rawget(t, "__module") then return "library " .. tostring(t.kind) end
  if self.names[t] then return self.names[t] end
  if apart then name = free_name(self, name) end
  self.names[t], self.depth = name, self.depth + 1
  if self.depth > DEEPEST then give_up("%s... is nested too deeply", name:sub(1, 20)) end
  local texts = {}
  for i, key in ipairs(ordered_keys(t, name)) do
    -- Skips the help of a declared option, which may come from the library.
    local silent = key == "help" and getmetatable(t) == Field
    texts[i] = silent and "" or ("[%q]=%s"):format(key,
      self:value(rawget(t, key), ("%s.%s"):format(name, tostring(key))))
  end
  local text = ("{%s}%s"):format(table.concat(texts, ","),
    meta_text(self, debug.getmetatable(t), name))
  self.depth = self.depth - 1
  if not apart then return text end
  add_part(self, "table " .. name, text)
  return name
end

-- ---- The whole ----------------------------------------------------------------------------------

local function total(parts)
  local lines = {}
  for i, key in ipairs(sorted_keys(parts)) do lines[i] = key .. " " .. parts[key] end
  return core.sha256(table.concat(lines, "\n"))
end

-- Returns a hash of parts (key -> hash).
reachable_code.total = total

-- Adds the functions that user code has put into tables of the library.
local function add_patches(self)
  local patches = {}
  for f, place in pairs(self.patches) do
    local info = debug.getinfo(f, "S")
    local path = info.source:sub(2)
    local name = library_name(self, path, info)
    patches[#patches + 1] = { f = f, name = name,
      order = { name, info.linedefined, path:match "[^/]*$", path, place } }
  end
  table.sort(patches, function(a, b)
    for i, value in ipairs(a.order) do
      if value ~= b.order[i] then return value < b.order[i] end
    end
    return false
  end)
  for _, patch in ipairs(patches) do self:fn(patch.f, patch.name) end
end

-- Adds the changes that user code has made to Lua's own tables.
local function add_standard(self, standard)
  for _, name in ipairs(sorted_keys(standard)) do self:value(standard[name], name, true) end
end

local function walk(self, exp)
  add_libraries(self)
  local text = self:fn(exp.trial, "trial()", "trial()")
  if not self.parts["trial()"] then add_part(self, "trial()", text) end -- the library's
  add_patches(self)
  add_standard(self, exp.own.standard)
  for _, field in ipairs { "guard", "prune" } do -- they decide how far a trial goes
    if exp[field] then self:value(exp[field], field, true) end
  end
end

-- Returns the code that decides the results of the trials of exp: {parts= (name -> hash), list=
-- (the parts, {key=, hash=} each, with tokens=, lines= and path= for functions), total= (a hash of
-- all), whole= (why it includes the whole script, or nil)}. path: of the script; env: its globals.
function reachable_code.of(exp, path, env)
  local texts = { [path] = exp.text }
  for other, text in pairs(exp.own.texts) do texts[other] = text end
  local self = setmetatable({ texts = texts, own = exp.own.modules, env = env, files = {},
    library = {}, modules = {}, c = {}, patches = {}, names = {}, taken = {}, list = {},
    parts = {}, depth = 0 }, Walk)
  local ok, why = pcall(walk, self, exp)
  if not ok and not (type(why) == "table" and why.opaque) then error(why, 0) end
  if not ok then
    local tokens, lines = code.list(exp.text)
    self.list, self.parts = {}, {}
    add_part(self, "script", table.concat(tokens, "\n") .. exp.own.tokens,
      { tokens = tokens, lines = lines, path = path })
  end
  return { parts = self.parts, list = self.list, total = total(self.parts),
    whole = not ok and why.opaque or nil }
end

return reachable_code
