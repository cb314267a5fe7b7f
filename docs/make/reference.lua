-- docs/make/reference.lua: fills the parts of the pages of docs/reference that are made from what
-- the program declares: what stands between <!-- made: WHAT --> and <!-- end -->.
local commands = require "toeplab.commands"
local functions = require "functions"
local options = require "toeplab.base.options"
local types = require "types"
local tl = require "toeplab"

local reference = {}

local docs = debug.getinfo(1, "S").source:match "^@(.*)make/[^/]*$"

-- Reads a page of docs by its name.
function reference.read(name)
  local file = assert(io.open(docs .. name))
  local text = file:read "a"
  file:close()
  return text
end

-- Escapes text for a cell of a table.
local function cell(text)
  return (text:gsub("%s+", " "):gsub("|", "\\|"):gsub("<", "\\<"))
end

-- Returns a sentence: with a capital, unless it begins with a literal or a shape, and a full stop.
local function sentence(text)
  local word = text:find "^%l[%l ]" and not text:find "^%l+ %["
  if word then text = text:sub(1, 1):upper() .. text:sub(2) end
  return text:find "[.:]$" and text or text .. "."
end

local function table_of(header, rows)
  local lines = { "| " .. table.concat(header, " | ") .. " |", ("|---"):rep(#header) .. "|" }
  for _, row in ipairs(rows) do lines[#lines + 1] = "| " .. table.concat(row, " | ") .. " |" end
  return table.concat(lines, "\n") .. "\n"
end

-- ---- The program --------------------------------------------------------------------------------

-- Returns how a verb is given, one form a line.
local function usage(verb)
  return ("```text\n%s\n```\n"):format(commands.of(verb).usage:gsub("^%s*", ""):gsub("%s*$", "")
    :gsub("\n%s+|", " |"):gsub("\n%s+", "\n"))
end

local function verb_options(verb)
  local rows = {}
  for _, o in ipairs(commands.of(verb).options) do
    if not o.unlisted then
      local words = (o.short and ("`-%s`, "):format(o.short) or "")
        .. ("`--%s%s`"):format(o.name, o.value and " " .. o.value or "")
      local text = sentence(o.help) .. (o.more and " " .. o.more or "")
      rows[#rows + 1] = { cell(words), cell(text) }
    end
  end
  return #rows > 0 and table_of({ "option", "meaning" }, rows) or ""
end

-- ---- The library --------------------------------------------------------------------------------

local function option_table(spec)
  local rows = {}
  for _, o in ipairs(options.describe(spec)) do
    local choices = options.set(spec).fields[o.name].choices
    local range = choices and '"' .. table.concat(choices, '", "') .. '"' or o.range
    local kind = o.type:gsub("|", " or ") .. (range ~= "" and ", " .. range or "")
    local default = o.default == "required" and "required"
      or o.default ~= "" and ("`%s`"):format(o.default) or ""
    rows[#rows + 1] = { ("`%s`"):format(o.name), cell(sentence(o.help)), cell(default), cell(kind) }
  end
  return #rows > 0 and table_of({ "option", "meaning", "default", "type" }, rows) or ""
end

-- Returns how a class is made: tl.nn.GTU(dim, {...}).
local function form(entry)
  local words = table.move(entry.class.positional, 1, #entry.class.positional, 1, {})
  if entry.class.variadic then words[1] = "..." end
  if #entry.class.spec.order > #words then words[#words + 1] = "{...}" end
  if not entry.path then return entry.mixer end
  return #words == 0 and entry.path or ("%s(%s)"):format(entry.path, table.concat(words, ", "))
end

local function classes(list, group)
  local parts = {}
  for _, entry in ipairs(list) do
    if entry.group == group then
      local rows = option_table(entry.class.spec)
      parts[#parts + 1] = ("### %s\n\n%s\n%s"):format(form(entry),
        cell(sentence(entry.about)):gsub("\\|", "|"), rows ~= "" and "\n" .. rows or "")
    end
  end
  return table.concat(parts, "\n")
end

-- Returns what a marker stands for: "verb NAME", "options NAME", a group of classes, or a function
-- of the library, whose options it lists.
local function made(what, list)
  local kind, verb = what:match "^(%l+) (%l+)$"
  if kind == "verb" then return usage(verb) end
  if kind == "options" then return verb_options(verb) end
  if options.declared[what] then return option_table(options.declared[what]) end
  local text = classes(list, what)
  if text == "" then error("nothing is made of: " .. what, 0) end
  return text
end

-- Returns a page with its made parts as they are now; list: the classes, as of types.classes.
local function fill(page, list)
  local part = "(<!%-%- made: ([^\n]-) %-%->\n).-(<!%-%- end %-%->)"
  return (page:gsub(part, function(start, what, stop)
    return start .. "\n" .. made(what, list) .. "\n" .. stop
  end))
end

local names = { "README", "tensors", "operators", "layers", "encoders", "models", "training",
  "tasks", "experiments", "report", "store", "command" }

-- Returns what the pages declare, as functions.read. Loads what declares options when it is first
-- used, so that options.declared has them all.
function reference.functions()
  local texts = {}
  for i, name in ipairs(names) do texts[i] = reference.read("reference/" .. name .. ".md") end
  local read = functions.read(texts)
  require "toeplab.trials.open_model"
  require "toeplab.models.files.tensor_files"
  require "toeplab.report.scaling_report"
  for _, s in ipairs(read.functions) do
    local value = tl
    for part in (s.path:match "^tl%.(.*)$" or ""):gmatch "[^.]+" do value = value[part] end
  end
  return read
end

-- Returns all pages that have made parts, as they are to be: path -> text.
function reference.pages()
  reference.functions()
  local mixers = reference.read "mixers.md"
  local list = types.classes(mixers)
  local filled = { [docs .. "mixers.md"] = fill(mixers, list) }
  for _, name in ipairs(names) do
    local path = "reference/" .. name .. ".md"
    filled[docs .. path] = fill(reference.read(path), list)
  end
  return filled
end

return reference
