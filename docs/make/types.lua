-- docs/make/types.lua: makes toeplab.d.lua, by which the Lua language server knows the library: the
-- functions of docs/reference, and the classes and options that the library declares.
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"
local options = require "toeplab.base.options"
local sorted_keys = require "toeplab.base.sorted_keys"
local tl = require "toeplab"

local types = {}

-- ---- The library's classes ----------------------------------------------------------------------

-- Returns the names in a part of the library: those that it says are known when asked for another.
local function names_in(part)
  local list = {}
  local _, why = pcall(function() return part["no such name there"] end)
  for name in why:match "known: (.*)$":gmatch "[^, ]+" do list[#list + 1] = name end
  return list
end

-- Returns what docs/mixers.md says that a mixer computes: name -> text.
local function mixer_texts(page)
  local texts, tables = {}, page:match "^(.-)\n## Options\n"
  for name, text in tables:gmatch "\n| `([%w_]+)` | ([^|]*) |" do texts[name] = text end
  return texts
end

-- Returns all classes of modules: {name= (as in types), path= (nil for a mixer that is known by its
-- name only), class=, about=, group= (the page that lists it)}.
function types.classes(mixers_page)
  local list, seen = {}, {}
  local function add(entry)
    entry.about = entry.class.about or entry.about
    entry.group = entry.about:find "^points" and "encoders" or entry.group
    list[#list + 1], seen[entry.class] = entry, entry
  end
  for _, name in ipairs(names_in(tl.nn)) do
    local class = tl.nn[name]
    if type(class) == "table" and rawget(class, "__module") then
      add { name = "nn." .. name, path = "tl.nn." .. name, class = class, group = "layers" }
    end
  end
  for _, name in ipairs(tl.models.names()) do
    add { name = "models." .. name, path = "tl.models." .. name, class = tl.models[name],
      base = "Model", group = "models" }
  end
  local texts = mixer_texts(mixers_page)
  for _, name in ipairs(mixers.names) do
    local class = mixers.class(name)
    if seen[class] then
      seen[class].mixer = name
    else
      add { name = "mixers." .. name, class = class, mixer = name, group = "mixers",
        about = "x [b,n,dim] -> [b,n,dim]: " .. texts[name] }
    end
  end
  return list
end

-- ---- Options ------------------------------------------------------------------------------------

local plain = { int = "integer", number = "number", string = "string", boolean = "boolean",
  table = "table", ["function"] = "function", module = "toeplab.Module", class = "any",
  tensor = "toeplab.Tensor", any = "any" }

-- The tables that are options of something else, by the name of the option.
local nested = { rpe = "toeplab.nn.RPE.Options", tno = "toeplab.nn.TNO.Options",
  grid = "integer[]", mixer_options = "toeplab.MixerOptions",
  encoder_options = "toeplab.EncoderOptions", lengths = "integer[]", betas = "number[]" }

-- Returns the type of an option, for the language server.
local function option_type(name, field)
  local list = {}
  for kind in field.type:gmatch "[^|]+" do
    if kind == "table" and nested[name] then
      list[#list + 1] = nested[name]
    elseif kind == "string" and field.choices then
      for _, choice in ipairs(field.choices) do list[#list + 1] = ('"%s"'):format(choice) end
    elseif kind == "string" and name == "mixer" then
      for _, mixer in ipairs(mixers.names) do list[#list + 1] = ('"%s"'):format(mixer) end
    else
      list[#list + 1] = plain[kind]
    end
  end
  return table.concat(list, "|")
end

types.option_type = option_type

-- Writes the class of the options of something.
local function write_options(write, name, spec)
  write("---@class toeplab.%s", name)
  for _, row in ipairs(options.describe(spec)) do
    local field = options.set(spec).fields[row.name]
    local range = not field.choices and row.range ~= "" and "; " .. row.range or ""
    local default = row.default == "required" and "required"
      or row.default ~= "" and "default " .. row.default or "optional"
    write("---@field %s? %s # %s (%s%s)", row.name, option_type(row.name, field), row.help, default,
      range)
  end
  write ""
end

-- ---- Functions ----------------------------------------------------------------------------------

local known -- names of classes in the page -> those in toeplab.d.lua

-- Returns a type of the page as a type of the language server. path: the function, whose options
-- are the type Options.
local function type_of(text, path)
  text = text:gsub("Options<([%w_.]+)>", "toeplab.options.%1")
  text = text:gsub("^Options$", "toeplab.options." .. (path or ""):gsub("%-", "_"))
  return (text:gsub("%f[%w_.]%u[%w_]*", function(name) return known[name] end))
end

local function write_function(write, s, path)
  if s.text then write("---%s", s.text) end
  local names = {}
  for i, p in ipairs(s.parameters) do
    names[i] = p.name
    local kind = p.name == "..." and "..." or p.name .. (p.optional and "?" or "")
    write("---@param %s %s", kind, type_of(p.type, path))
  end
  for i, kind in ipairs(s.returns) do
    write("---@return %s %s", type_of(kind, path), s.names and s.names[i] or "")
  end
  local place, odd = path:match "^(.*)%.([%w_]*%-[%w_%-]*)$"
  local words = table.concat(names, ", ")
  if odd then
    write('%s["%s"] = function(%s) end\n', place, odd, words)
  else
    write("function %s(%s) end\n", path, words)
  end
end

-- Writes the tables that functions are in, of which some are functions themselves, before these.
-- Returns the set of their paths.
local function write_places(write, read)
  local seen, callable = { tl = true }, {}
  for _, s in ipairs(read.functions) do callable[s.path] = s end
  local function place(path)
    local parent = path:match "^(tl.*)%.[^.]+$"
    if not parent or seen[parent] then return end
    place(parent)
    seen[parent] = true
    local s = callable[parent]
    if s then
      local list = {}
      for i, p in ipairs(s.parameters) do
        list[i] = p.name .. (p.optional and "?" or "") .. ": " .. type_of(p.type, s.path)
      end
      write("\n---@class toeplab.%s\n---@overload fun(%s): %s", parent, table.concat(list, ", "),
        type_of(s.returns[1]))
    end
    write("%s = {}", parent)
  end
  for _, s in ipairs(read.functions) do place(s.path) end
  for _, f in ipairs(read.fields) do place(f.path) end
  place "tl.models.x"
  write ""
  return seen
end

-- ---- The file -----------------------------------------------------------------------------------

local function write_module_class(write, entry)
  local class, positional = entry.class, entry.class.positional
  write("---%s", entry.about)
  write("---@class toeplab.%s: toeplab.%s", entry.name, entry.base or "Module")
  write "---@overload fun(x: toeplab.Tensor, ...: any): toeplab.Tensor"
  write("---@field opt toeplab.%s.Options\n", entry.name)
  write_options(write, entry.name .. ".Options", class.spec)
  if not entry.path then return end
  local names = table.move(positional, 1, #positional, 1, {})
  write("---%s", entry.about)
  write("---@overload fun(options: toeplab.%s.Options): toeplab.%s", entry.name, entry.name)
  for _, name in ipairs(positional) do
    local field = class.spec.fields[name]
    local optional = field.optional or field.default ~= nil
    write("---@param %s %s # %s", name .. (optional and "?" or ""), option_type(name, field),
      field.help)
  end
  if class.variadic then
    write "---@param ... any"
    names[#names + 1] = "..."
  else
    write("---@param options? toeplab.%s.Options", entry.name)
    names[#names + 1] = "options"
  end
  write("---@return toeplab.%s", entry.name)
  write("function %s(%s) end\n", entry.path, table.concat(names, ", "))
end

-- Writes a class of the page: its fields, and its functions with a point or a colon.
local function write_class(write, name, read)
  write("do\n---@class %s%s", known[name], (name == "Model") and ": toeplab.Module" or "")
  for _, f in ipairs(read.fields) do
    local class, field = f.path:match "^(%u%w*)%.([%w_]+)$"
    if class == name then write("---@field %s %s", field, type_of(f.type)) end
  end
  if name == "Tensor" then
    for _, operator in ipairs { "add", "sub", "mul", "div" } do
      write("---@operator %s(toeplab.Tensor|number): toeplab.Tensor", operator)
    end
    write "---@operator unm: toeplab.Tensor"
  elseif name == "Module" then
    write "---@overload fun(x: toeplab.Tensor, ...: any): toeplab.Tensor"
  end
  write("local %s = {}\n", name)
  local seen = {}
  for _, s in ipairs(read.functions) do
    local path = s.class == name and name .. ":" .. s.method
      or s.path:match("^" .. name .. "%.[%w_]+$")
    if path and not seen[path] then write_function(write, s, path) end
    if path then seen[path] = true end
  end
  if name == "Tensor" then
    for _, unary in ipairs(core.unary_names()) do
      write("---%s of each element\n---@return toeplab.Tensor\nfunction Tensor:%s() end\n", unary,
        unary)
    end
  end
  write "end\n"
end

local function write_unions(write, classes)
  local list, encoders = {}, {}
  for _, entry in ipairs(classes) do
    if entry.mixer then list[#list + 1] = "toeplab." .. entry.name .. ".Options" end
    if entry.group == "encoders" and entry.class ~= tl.nn.RPE then
      encoders[#encoders + 1] = "toeplab." .. entry.name .. ".Options"
    end
  end
  write("---@alias toeplab.MixerOptions %s\n", table.concat(list, "|"))
  write("---@alias toeplab.EncoderOptions %s\n", table.concat(encoders, "|"))
end

-- Returns the text of toeplab.d.lua, from what functions.read returns and from docs/mixers.md.
function types.file(read, mixers_page)
  local lines = {}
  local function write(format, ...)
    lines[#lines + 1] = select("#", ...) > 0 and format:format(...) or format
  end
  local classes = types.classes(mixers_page)
  known = { TNO = "toeplab.nn.TNO" }
  for _, name in ipairs(read.classes) do known[name] = "toeplab." .. name end
  write "---@meta toeplab\n-- Made by docs/make/types.lua of Toeplab: what the Lua language server"
  write "-- knows of the library.\n\n---@class toeplab\nlocal tl = {}\n"
  local places = write_places(write, read)
  for _, name in ipairs(read.classes) do write_class(write, name, read) end
  write_unions(write, classes)
  for _, entry in ipairs(classes) do write_module_class(write, entry) end
  for _, name in ipairs(sorted_keys(options.declared)) do
    write_options(write, "options." .. name:gsub("%-", "_"), options.declared[name])
  end
  for _, f in ipairs(read.fields) do
    if f.path:find "^tl%." and not places[f.path] then
      write("---@type %s\n%s = nil\n", type_of(f.type), f.path)
    end
  end
  for _, s in ipairs(read.functions) do
    if s.path:find "^tl%." and not places[s.path] then write_function(write, s, s.path) end
    places[s.path] = true
  end
  for _, unary in ipairs(core.unary_names()) do
    write("---%s of each element\n---@param x toeplab.Tensor", unary)
    write("---@return toeplab.Tensor\nfunction tl.%s(x) end\n", unary)
  end
  write "return tl"
  return table.concat(lines, "\n") .. "\n"
end

return types
