-- tasks/tables/csv.lua: loads labelled texts from the user's own tables; the tokens are characters.

local columns = require "toeplab.tasks.tables.columns"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local labelled = require "toeplab.tasks.labelled"
local labelled_text = require "toeplab.tasks.labelled_text"
local options = require "toeplab.base.options"
local simple_models = require "toeplab.tasks.simple_models"
local sorted_keys = require "toeplab.base.sorted_keys"

local csv = {}

local STOP = 2 -- the token <eos> of core.vocab_frequent

local field = options.field

local spec = options.declare "tl.tasks.csv" {
  columns.file,
  { "valid_file", field { type = "string", optional = true }, "the same to validate with" },
  { "test_file", field { type = "string", optional = true }, "the same to test with" },
  { "text", "text", "the column of the texts" },
  { "label", "label", "the column of the labels, which may be any strings" },
  columns.separator,
  { "length", field { default = 1024, min = 2 }, "most tokens of a row, the end included" },
  { "least", field { default = 1, min = 1 },
    "characters that occur less often in file, held-out rows included, become <unk>" },
  { "valid", field { default = 0.1, min = 0, max = 0.9 },
    "share of the examples of file held out if there is no valid_file" },
  { "test", field { default = 0.1, min = 0, max = 0.9 }, "the same if there is no test_file" },
  { "data_seed", field { default = 1, min = 0 }, "seed of the choice of these examples" },
  { "multiple", field { default = 64, min = 1 }, "rows are padded to a multiple of this length" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" },
}

-- ---- Examples -----------------------------------------------------------------------------------

-- Returns the texts and labels (strings) in a table, and for each example a function that raises an
-- error about its row.
local function read(name, o)
  local texts, labels, complaints = {}, {}, {}
  columns.each("csv", name, o, function() return { o.text, o.label } end,
    function(values, complain)
      local text, label = values[1], values[2]
      local _, at = utf8.len(text)
      if at then complain("byte %d of the text is not UTF-8", at) end
      if label == "" then complain "the label is empty" end
      texts[#texts + 1], labels[#labels + 1] = text, label
      complaints[#complaints + 1] = complain
    end)
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
    if not task.test then errors.usage "csv: yardsticks requires examples to test with" end
    return { bayes_accuracy = simple_models.bayes(task) }
  end
  return task
end

return csv
