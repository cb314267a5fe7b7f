-- docs/make/pages.lua: by the name of each page a function that returns its text.
local reference = require "reference"
local roff = require "roff"
local tl = require "toeplab"
local types = require "types"

local read = reference.read
-- The manuals that are made of pages of docs, in the order of these.
local manuals = {
  { name = "toeplab", section = 1, about = "a laboratory for Toeplitz neural operators",
    of = { "reference/command.md" } },
  { name = "toeplab-lua", section = 7, about = "tensors, training and experiments in Lua",
    of = { "reference/README.md", "reference/tensors.md", "reference/operators.md",
      "reference/training.md", "reference/tasks.md", "reference/experiments.md",
      "reference/report.md", "reference/store.md" } },
  { name = "toeplab-layers", section = 7, about = "layers, encoders, mixers and models in Lua",
    of = { "reference/layers.md", "reference/encoders.md", "mixers.md", "reference/models.md" } },
}

local pages = {}

-- Returns a manual's page. It calls its own pages by their headings, others by their manuals.
local function page(manual)
  local of = { version = tl.version, pages = {}, names = {}, see = {} }
  for key, value in pairs(manual) do of[key] = value end
  for _, other in ipairs(manuals) do
    local title = ("%s(%d)"):format(other.name, other.section)
    if other ~= manual then of.see[#of.see + 1] = title end
    for _, name in ipairs(other.of) do
      local text = read(name)
      if other == manual then of.pages[#of.pages + 1] = text end
      of.names[name:match "[^/]*$"] = other == manual and text:match "^# ([^\n]*)":upper() or title
    end
  end
  return roff.page(of)
end

for _, manual in ipairs(manuals) do
  pages[manual.name .. "." .. manual.section] = function() return page(manual) end
end

pages["toeplab.d.lua"] = function()
  return types.file(reference.functions(), read "mixers.md")
end

return pages
