-- docs/make/layers.lua: fills the template of toeplab-layers.7: a line ".Layers GROUP" becomes the
-- classes whose name in types.lua begins with the group, with their options.
local options = require "toeplab.base.options"
local page = require "page"

local layers = {}

-- Returns how a class is made: tl.nn.GTU(dim, {...}).
local function form(entry)
  local words = table.move(entry.class.positional, 1, #entry.class.positional, 1, {})
  if entry.class.variadic then words[1] = "..." end
  if #entry.class.spec.order > #words then words[#words + 1] = "{...}" end
  if not entry.path then return entry.mixer end
  return #words == 0 and entry.path or ("%s(%s)"):format(entry.path, table.concat(words, ", "))
end

local function option(o)
  local default = o.default == "required" and "required" or o.default ~= "" and o.default
  local about = o.type:gsub("|", " or ") .. (o.range ~= "" and ": " .. o.range or "")
  return (".It Li %s%s\n%s\n.Pq %s\n"):format(o.name,
    default and " = " .. page.prose(default) or "", page.prose(page.sentence(o.help)),
    page.prose(about))
end

local function entry_text(entry)
  local lines = { (".It Li %s\n"):format(page.prose(form(entry))) }
  lines[2] = page.prose(entry.about) .. ".\n"
  local rows = options.describe(entry.class.spec)
  if #rows > 0 then lines[#lines + 1] = ".Bl -tag -width Ds -compact\n" end
  for _, o in ipairs(rows) do lines[#lines + 1] = option(o) end
  if #rows > 0 then lines[#lines + 1] = ".El\n" end
  return table.concat(lines)
end

-- Returns the page; classes as types.classes returns them.
function layers.fill(template, classes)
  return (template:gsub("%f[^\n]%.Layers (%l+)\n", function(group)
    local texts = {}
    for _, entry in ipairs(classes) do
      if entry.name:find("^" .. group .. "%.") then texts[#texts + 1] = entry_text(entry) end
    end
    return ".Bl -tag -width Ds\n" .. table.concat(texts) .. ".El\n"
  end))
end

return layers
