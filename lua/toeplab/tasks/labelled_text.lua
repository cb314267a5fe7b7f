-- tasks/labelled_text.lua: reads labelled texts from files of lines with tabs, and encodes them
-- character by character.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"

local labelled_text = {}

-- Returns the fields of a line, which tabs separate.
local function split(line)
  local fields = {}
  for field in (line .. "\t"):gmatch "([^\t]*)\t" do fields[#fields + 1] = field end
  return fields
end

-- Opens a file to read; a failure is a usage error of the task who.
local function open(who, name)
  if core.sys.kind(name) == "folder" then errors.usage("%s: %s: is a folder", who, name) end
  local file, why = io.open(name, "rb")
  return file or errors.usage("%s: %s", who, why)
end

-- Calls fn(fields, complain) for each line of the file name, or of CONTENT if name is text:CONTENT.
-- fields holds the strings between tabs, in UTF-8, one for each name in the list columns. If
-- columns is a function, the first line has the names, and columns(names, complain) is called
-- first. Skips empty lines and, if skips is set, lines with another number of fields. A file
-- without any other line is an error. Drops a byte order mark and carriage returns at line ends,
-- which editors add. complain(format, ...) raises a usage error that names the task who, the file
-- and the line; it can be called later. Reads line by line, because Retrieval's files have
-- gigabytes.
function labelled_text.each(who, name, columns, fn, skips)
  local literal = name:match "^text:(.*)$"
  local shown, number, count = literal and "text" or name, 0, 0
  local function complaint()
    local at = number
    return function(format, ...)
      errors.usage("%s: %s:%d: %s", who, shown, at, format:format(...))
    end
  end
  local file <close> = not literal and open(who, name) or nil
  for line in literal and literal:gmatch "([^\n]*)\n?" or file:lines() do
    number = number + 1
    line = line:gsub("\r$", "")
    if number == 1 then line = line:gsub("^\xef\xbb\xbf", "") end
    local fields, complain = split(line), complaint()
    if type(columns) == "function" then
      columns(fields, complain)
      columns = fields
    elseif line ~= "" and #fields == #columns then
      for i, column in ipairs(columns) do
        local _, at = utf8.len(fields[i])
        if at then complain("byte %d of the %s is not UTF-8", at, column) end
      end
      count = count + 1
      fn(fields, complain)
    elseif line ~= "" and not skips then
      complain("must be %s and %s between tabs, not '%s'",
        table.concat(columns, ", ", 1, #columns - 1), columns[#columns], line:sub(1, 40))
    end
  end
  if count == 0 then errors.usage("%s: %s has no row", who, shown) end
end

-- Returns the index of a named column in a header; nil if there is none; two are an error.
function labelled_text.column(header, name, complain)
  local found = nil
  for i, have in ipairs(header) do
    if have == name then
      if found then complain("there are two columns '%s'", name) end
      found = i
    end
  end
  return found
end

-- Returns the label in a field as an integer; it must be in 0..classes-1.
function labelled_text.label(field, classes, complain)
  local label = field:find "^%d+%.?0*$" and math.tointeger(tonumber(field))
  if not label or label >= classes then
    complain("the label is '%s', not %s", field:sub(1, 20),
      classes == 2 and "0 or 1" or "0.." .. classes - 1)
  end
  return label
end

-- Returns the first count characters of a text.
function labelled_text.cut(text, count)
  local past = #text > count and utf8.offset(text, count + 1)
  return past and text:sub(1, past - 1) or text
end

-- Encodes texts, each cut to count characters: returns their concatenated ids [t], and their starts
-- [#texts + 1].
function labelled_text.encode(vocab, texts, count)
  local encoder <close> = vocab:encoder()
  local starts = { 0 }
  for i, text in ipairs(texts) do
    encoder:feed(labelled_text.cut(text, count))
    starts[i + 1] = encoder:count()
  end
  return encoder:finish(), core.ids(starts)
end

return labelled_text
