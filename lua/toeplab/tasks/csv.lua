-- tasks/csv.lua: loads labelled texts from tables of a user's own, whose tokens are characters.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local labelled = require "toeplab.tasks.labelled"
local labelled_text = require "toeplab.tasks.labelled_text"
local options = require "toeplab.base.options"
local recorded = require "toeplab.tasks.recorded"
local simple_models = require "toeplab.tasks.simple_models"
local sorted_keys = require "toeplab.base.sorted_keys"
local source = require "toeplab.tasks.source"
local suggest = require "toeplab.base.suggest"

local csv = {}

local STOP = 2 -- the token <eos> of core.vocab_frequent

local field = options.field

local spec = options.declare "tl.tasks.csv" {
  { "file", "string", "a table whose first row names its columns: a file, or text:CONTENT" },
  { "valid_file", field { type = "string", optional = true }, "one of examples to validate with" },
  { "test_file", field { type = "string", optional = true }, "one of examples to test with" },
  { "text", "text", "the column of the texts" },
  { "label", "label", "the column of the labels, which may be any words" },
  { "separator", field { type = "string", optional = true, choices = { ",", ";", "\t" } },
    "what separates columns (default: a tab in files .tsv, else a comma)" },
  { "length", field { default = 1024, min = 2 }, "most tokens of a row, the end included" },
  { "least", field { default = 1, min = 1 },
    "characters that occur less often in file, held-out rows included, become <unk>" },
  { "valid", field { default = 0.1, min = 0, max = 0.9 },
    "share of the examples of file held out if there is no valid_file" },
  { "test", field { default = 0.1, min = 0, max = 0.9 }, "the same without a test_file" },
  { "data_seed", field { default = 1, min = 0 }, "seed of the choice of these examples" },
  { "multiple", field { default = 64, min = 1 }, "rows are padded to a multiple of this length" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: that of tl.seed)" },
}

-- ---- Rows ---------------------------------------------------------------------------------------

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

-- Calls fn(fields, complain) for each row of a table that is not empty. complain(format, ...)
-- raises a usage error that names the file and the line where the row begins.
local function each(name, separator, fn)
  local from = source.find(name)
  recorded.check(name, from.hash, "csv " .. name)
  if not from.whole or from.folder then errors.usage("csv: %s is not a file", name) end
  local text, shown = source.text(from.whole), name:find "^text:" and "text" or name
  local at, line = 1, 1
  while at <= #text do
    local row, first = {}, line
    local function complain(format, ...)
      errors.usage("csv: %s:%d: %s", shown, first, format:format(...))
    end
    repeat
      local value, past = field_at(text, at, separator)
      if not value then complain "a quote is not closed" end
      row[#row + 1] = value
      line = line + select(2, text:sub(at, past - 1):gsub("\n", ""))
      local after = text:match("^\r?\n", past) or text:sub(past, past)
      if after ~= "" and not after:find("[" .. separator .. "\r\n]") then
        complain("after a closing quote comes '%s'", after)
      end
      at = past + math.max(#after, 1)
    until after ~= separator
    line = line + 1
    if #row > 1 or row[1] ~= "" then fn(row, complain) end
  end
end

-- ---- Examples -----------------------------------------------------------------------------------

local function column(header, name, complain)
  local found = labelled_text.column(header, name, complain)
  if found then return found end
  local other = #header == 1 and header[1]:match "[;\t]"
  if other then complain("one column '%s': set separator = %q", header[1], other) end
  complain("there is no column '%s'%s (present: %s)", name, suggest.hint(name, header),
    table.concat(header, ", "))
end

-- Returns the texts and the labels, as they are written, in a table, and for each example the
-- function that raises an error about its row.
local function read(name, o)
  local separator = o.separator or name:find "%.tsv$" and "\t" or ","
  local texts, labels, complaints, header = {}, {}, {}, nil
  each(name, separator, function(row, complain)
    if not header then
      header = { #row, column(row, o.text, complain), column(row, o.label, complain) }
      return
    end
    if #row ~= header[1] then
      complain("wanted %d columns, as the first row has, got %d", header[1], #row)
    end
    local text = row[header[2]]
    local _, at = utf8.len(text)
    if at then complain("byte %d of the text is not UTF-8", at) end
    if row[header[3]] == "" then complain "the label is empty" end
    texts[#texts + 1], labels[#labels + 1] = text, row[header[3]]
    complaints[#complaints + 1] = complain
  end)
  if #texts == 0 then errors.usage("csv: %s has no row below that of the names", name) end
  return texts, labels, complaints
end

-- Returns the names of the classes, sorted, as numbers if all are.
local function classes_of(labels)
  local set, numbers = {}, true
  for _, label in ipairs(labels) do
    set[label], numbers = true, numbers and tonumber(label) ~= nil
  end
  local names = sorted_keys(set)
  if numbers then table.sort(names, function(a, b) return tonumber(a) < tonumber(b) end) end
  return names
end

-- tl.tasks.csv(options): returns {train=, valid=, test= (tasks/labelled.lua; a part of no examples
-- is nil), vocab= (its size), classes= (their number), labels= (their names, of class 0 first),
-- characters= (the vocabulary), yardsticks()}.
function csv.open(given)
  local o = options.check("csv", spec, given)
  local texts, labels, complaints = read(o.file, o)
  local names, number = classes_of(labels), {}
  for i, name in ipairs(names) do number[name] = i - 1 end
  local vocab = core.vocab_frequent(table.concat(texts), o.least)
  local task = { vocab = vocab:size(), classes = #names, labels = names, characters = vocab }
  local function set(some_texts, some_labels, complain_of)
    local numbers = {}
    for i, label in ipairs(some_labels) do
      numbers[i] = number[label] or complain_of[i]("the label '%s' is not one of %s", label,
        table.concat(names, ", "))
    end
    local ids, starts = labelled_text.encode(vocab, some_texts, o.length - 1)
    return labelled.new(ids, starts, numbers, { length = o.length, multiple = o.multiple,
      classes = #names, stop = STOP, seed = o.seed })
  end
  task.train = set(texts, labels, complaints)
  local all = task.train.count
  for _, part in ipairs { "valid", "test" } do
    local count = math.ceil(o[part] * all)
    if o[part .. "_file"] then
      task[part] = set(read(o[part .. "_file"], o))
    elseif count > 0 then
      if count >= task.train.count then
        errors.usage("csv: of %d examples valid = %g and test = %g leave none to train on", all,
          o.valid, o.test)
      end
      task[part], task.train = task.train:split(count, o.data_seed, "csv: " .. part)
    end
  end
  function task.yardsticks()
    if not task.test then errors.usage "csv: yardsticks needs examples to test with" end
    return { bayes_accuracy = simple_models.bayes(task) }
  end
  return task
end

return csv
