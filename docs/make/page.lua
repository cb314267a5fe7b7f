-- docs/make/page.lua: fills the template of toeplab.1: a line ".Verb NAME" becomes the forms of a
-- verb, ".Options NAME" the list of its options, from what lua/toeplab/commands declares.

local page = {}

-- Escapes text for roff, where a backslash, a hyphen of an option, and a point or an apostrophe at
-- the beginning of a line have meanings.
local function escaped(text)
  return (text:gsub("\\", "\\e"):gsub("%-%-", "\\-\\-"):gsub("^([.'])", "\\&%1"))
end

local function bold(text) return "\\fB" .. escaped(text) .. "\\fR" end

-- Sets the word of an option's value, or each part of one like I/K, in italics and small letters.
local function valued(text, value)
  for word in (value or ""):gmatch "%u+" do
    text = text:gsub("%f[%w]" .. word .. "%f[%W]", "\\fI" .. word:lower() .. "\\fR")
  end
  return text
end

-- Returns plain text as roff, on one line: `words` in backquotes and options are bold.
local function prose(text, value)
  local out, at = {}, 1
  text = text:gsub("%s+", " ")
  local function plain(part)
    part = escaped(part):gsub("%f[\\]\\%-\\%-[%l-]+", "\\fB%0\\fR")
    out[#out + 1] = valued(part, value)
  end
  for before, literal, next_ in text:gmatch "(.-)`(.-)`()" do
    plain(before)
    out[#out + 1] = bold(literal)
    at = next_
  end
  plain(text:sub(at))
  return table.concat(out)
end

page.prose = prose

-- Breaks text into lines at the ends of sentences, as roff wants it.
local function sentences(text)
  return (text:gsub("([%.:]) (%u)", "%1\n%2"):gsub("\n([.'])", "\n\\&%1"))
end

-- Returns a sentence: with a capital, unless it begins with a literal, and a full stop.
local function sentence(text)
  if text:find "^%l" then text = text:sub(1, 1):upper() .. text:sub(2) end
  return text:find "[.:]$" and text or text .. "."
end

page.sentence = sentence

-- Returns the entry of an option in a list.
local function entry(o)
  local words = (o.short and bold("-" .. o.short) .. ", " or "") .. bold("--" .. o.name)
  if o.value then words = words .. " \\fI" .. o.value:lower() .. "\\fR" end
  local text = prose(sentence(o.help), o.value)
  if o.more then text = text .. " " .. prose(o.more, o.value) end
  return (".It \"%s\"\n%s\n"):format(words, sentences(text))
end

-- Returns the heads of a verb's entry, one for each form of its usage.
local function forms(verb, command)
  local lines = {}
  for form in command.usage:gsub("\n%s+|", " |"):gmatch "[^\n]+" do
    local words = form:match("^%s*toeplab " .. verb .. "(.*)$")
    words = escaped(words):gsub("\\%-\\%-[%l-]+", "\\fB%0\\fR")
    words = words:gsub("[%a_]+", function(word)
      if word:find "^%u+$" or word == "key" or word == "value" then
        return "\\fI" .. word:lower() .. "\\fR"
      end
    end)
    local any = #command.options > 0 and " [\\fIoption\\fR ...]" or ""
    lines[#lines + 1] = (".It \"%s%s%s\"\n"):format(bold(verb), any, words)
  end
  return table.concat(lines)
end

local function list(command)
  local entries = {}
  for _, o in ipairs(command.options) do
    if not o.unlisted then entries[#entries + 1] = entry(o) end
  end
  return ".Bl -tag -width Ds\n" .. table.concat(entries) .. ".El\n"
end

-- Returns the page that a template describes. command(verb) returns what a verb declares.
function page.fill(template, command)
  return (template:gsub("%f[^\n]%.(%u%l+) (%l+)\n", function(macro, verb)
    if macro == "Verb" then return forms(verb, command(verb)) end
    if macro == "Options" then return list(command(verb)) end
  end))
end

return page
