-- tasks/tables/columns.lua: reads the user's own tables, whose first row names their columns.

local errors = require "toeplab.base.errors"
local labelled_text = require "toeplab.tasks.labelled_text"
local options = require "toeplab.base.options"
local recorded = require "toeplab.tasks.recorded"
local source = require "toeplab.tasks.source"
local suggest = require "toeplab.base.suggest"

local columns = {}

-- The options that select the table to read.
columns.file = { "file", "string", "a table whose first row names its columns: a file, or "
  .. "text:CONTENT" }
columns.separator = { "separator", options.field { type = "string", optional = true,
  choices = { ",", ";", "\t" } }, "the separator of columns (default: a tab in files .tsv, else a "
  .. "comma)" }

-- Returns a name for messages.
function columns.shown(name) return name:find "^text:" and "text" or name end

-- Returns the field that begins at byte `at` of text, and the place after it; nil if a quote is not
-- closed. A field in quotes may hold separators, line ends, and quotes written twice.
local function field_at(text, at, separator)
  if text:byte(at) ~= 34 then
    local past = text:find("[" .. separator .. "\r\n]", at) or #text + 1
    return text:sub(at, past - 1), past
  end
  local last = at
  repeat
    last = text:find('"', last + 1, true)
    if not last then return nil end
    local twice = text:byte(last + 1) == 34
    if twice then last = last + 1 end
  until not twice
  return (text:sub(at + 1, last - 1):gsub('""', '"')), last + 1
end

-- Returns "csv: valid_file" of the option of task csv that names a file.
local function option_of(task, name, o)
  for _, key in ipairs { "file", "valid_file", "test_file" } do
    if rawget(o, key) == name then return ("%s: %s"):format(task, key) end
  end
  return task .. ":"
end

-- Calls fn(fields, complain) for each row of a table that is not empty. complain(format, ...)
-- raises a usage error that names the task, the file and the line where the row begins.
local function each(task, name, o, separator, fn)
  local from = source.naming(option_of(task, name, o), source.find, name)
  recorded.check(name, from.hash, task .. " " .. name)
  if not from.whole or from.several then errors.usage("%s: %s is not a file", task, name) end
  local text = source.text(from.whole):gsub("\r\n", "\n")
  local shown = columns.shown(name)
  local at, line = 1, 1
  while at <= #text do
    local row, first = {}, line
    local function complain(format, ...)
      errors.usage("%s: %s:%d: %s", task, shown, first, format:format(...))
    end
    repeat
      local value, past = field_at(text, at, separator)
      if not value then complain "a quote is not closed" end
      row[#row + 1] = value
      line = line + select(2, text:sub(at, past - 1):gsub("\n", ""))
      local after = text:sub(past, past)
      if after ~= "" and not after:find("[" .. separator .. "\r\n]") then
        complain("after a closing quote comes '%s'", after)
      end
      at = past + math.max(#after, 1)
    until after ~= separator
    line = line + 1
    if #row > 1 or row[1] ~= "" then fn(row, complain) end
  end
end

-- Returns the index of a named column.
local function column(header, name, complain)
  local found = labelled_text.column(header, name, complain)
  if found then return found end
  local other = #header == 1 and header[1]:match "[;\t]"
  if other then complain("one column '%s': set separator = %q", header[1], other) end
  complain("there is no column '%s'%s (present: %s)", name, suggest.near(name, header),
    table.concat(header, ", "))
end

-- Calls fn(values, complain) for each row below the first: values lists the values of the columns
-- that names(header) lists. task: the name of the task for messages; o: resolved options.
function columns.each(task, name, o, names, fn)
  local separator = o.separator or name:find "%.tsv$" and "\t" or ","
  local width, places, count = nil, {}, 0
  each(task, name, o, separator, function(row, complain)
    if not width then
      width = #row
      for i, wanted in ipairs(names(row)) do places[i] = column(row, wanted, complain) end
      return
    end
    if #row ~= width then
      complain("must have %d columns, as in the first row, not %d", width, #row)
    end
    local values = {}
    for i, place in ipairs(places) do values[i] = row[place] end
    count = count + 1
    fn(values, complain)
  end)
  if count == 0 then
    errors.usage("%s: %s has no row below its column names", task, columns.shown(name))
  end
end

return columns
