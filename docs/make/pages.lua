-- docs/make/pages.lua: by the name of each page a function that returns its text.
local commands = require "toeplab.commands"
local functions = require "functions"
local layers = require "layers"
local page = require "page"
local types = require "types"

local docs = debug.getinfo(1, "S").source:match "^@(.*)make/[^/]*$"

local function read(name)
  local file = assert(io.open(docs .. name))
  local text = file:read "a"
  file:close()
  return text
end

local pages = {}

pages["toeplab.1"] = function() return page.fill(read "toeplab.1.in", commands.of) end

pages["toeplab-lua.7"] = function() return functions.read(read "toeplab-lua.7.in").page end

pages["toeplab-layers.7"] = function()
  return layers.fill(read "toeplab-layers.7.in", types.classes(read "mixers.md"))
end

pages["toeplab.d.lua"] = function()
  return types.file(read "toeplab-lua.7.in", read "mixers.md")
end

return pages
