-- tasks/glue.lua: loads the tasks of GLUE (Wang et al. 2019): sentences, or pairs of them, with a
-- class or a number. The labels of its test parts are not public, so the official development part
-- serves for validation and there is no test part.
--
-- A row of tokens is <s> A </s>, or <s> A </s> </s> B </s>, as fairseq joins them for RoBERTa. The
-- tokens are the fine-tuned masked model's (tasks/masking.lua).

local core = require "toeplab.core"
local fetch = require "toeplab.tasks.fetch"
local labelled = require "toeplab.tasks.labelled"
local labelled_text = require "toeplab.tasks.labelled_text"
local masking = require "toeplab.tasks.masking"
local metrics = require "toeplab.train.metrics"
local options = require "toeplab.base.options"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local tokenizer = require "toeplab.tasks.tokenizer"

local glue = {}

local field = options.field

-- ---- The tasks ----------------------------------------------------------------------------------
-- The fields of a task:
--   set, folder   the data set, and the folder of the task's files in it
--   train, valid  files; valid is a list of {name of the logged metric, file}
--   texts, label  names of columns; a file without a header has the names in columns
--   labels        the classes, in the order of their numbers; scale: labels are numbers, divided by
--                 it
--   metric        a function of tl.metrics
--   skips         lines of another number of columns are skipped, as fairseq does

local pair, entails = { "sentence1", "sentence2" }, { "entailment", "not_entailment" }
local tasks = {
  cola = { set = "glue", folder = "glue/glue_data/CoLA", metric = "matthews",
    columns = { "source", "label", "mark", "sentence" }, texts = { "sentence" }, label = "label",
    labels = { "0", "1" } },
  sst2 = { set = "glue", folder = "glue/glue_data/SST-2", metric = "accuracy",
    texts = { "sentence" }, label = "label", labels = { "0", "1" } },
  mrpc = { set = "glue", folder = "glue/glue_data/MRPC", metric = "f1",
    train = "train.rebuilt.tsv", valid = { { "mrpc", "dev.rebuilt.tsv" } },
    texts = { "#1 String", "#2 String" }, label = "Quality", labels = { "0", "1" } },
  rte = { set = "glue", folder = "glue/glue_data/RTE", metric = "accuracy",
    texts = pair, label = "label", labels = entails },
  stsb = { set = "glue", folder = "glue/glue_data/STS-B", metric = "pearson",
    texts = pair, label = "score", scale = 5.0 },
  wnli = { set = "glue", folder = "glue/glue_data/WNLI", metric = "accuracy",
    texts = pair, label = "label", labels = { "0", "1" } },
  mnli = { set = "MNLI", folder = "MNLI", metric = "accuracy",
    valid = { { "mnli_m", "dev_matched.tsv" }, { "mnli_mm", "dev_mismatched.tsv" } },
    texts = pair, label = "gold_label", labels = { "entailment", "neutral", "contradiction" } },
  qnli = { set = "QNLI", folder = "QNLI", metric = "accuracy",
    texts = { "question", "sentence" }, label = "label", labels = entails },
  qqp = { set = "QQP", folder = "QQP", metric = "accuracy", skips = true,
    texts = { "question1", "question2" }, label = "is_duplicate", labels = { "0", "1" } },
}
for name, task in pairs(tasks) do
  task.train, task.valid = task.train or "train.tsv", task.valid or { { name, "dev.tsv" } }
end

glue.names = sorted_keys(tasks)

-- Returns whether a value is a vocabulary, and the error text if not.
local function is_vocabulary(value)
  local fine, encode = pcall(function() return value.encode and value.size end)
  return fine and encode ~= nil, "must be a vocabulary, such as data.vocab of a corpus"
end

local spec = options.declare "tl.tasks.glue" {
  { "task", field { type = "string", choices = glue.names }, "which task" },
  { "vocab", field { type = "any", check = is_vocabulary }, "the vocabulary of the masked model" },
  { "tokenizer", field { default = "bpe", choices = tokenizer.names },
    "its kind (masking.specials)" },
  { "length", field { default = 512, min = 8 },
    "most tokens of a row; of two sentences the longer one is cut first" },
  { "multiple", field { default = 16, min = 1 }, "rows are padded to a multiple of this length" },
  { "spaced", false,
    "put a space before punctuation at the end of a word, as WikiText's word tokens have it" },
  { "train", field { type = "int", min = 1, optional = true },
    "train on at most this number of examples" },
  { "data_seed", field { default = 1, min = 0 }, "seed of the choice of these examples" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" },
  { "train_file", field { type = "string", optional = true },
    "another file of training examples, or text:CONTENT" },
  { "valid_file", field { type = "string", optional = true },
    "another file of validation examples, or text:CONTENT" },
}

-- ---- Files --------------------------------------------------------------------------------------

-- Returns the path of a file of a task, which must be present and, where its sha256 is known, the
-- published one.
local function published(task, name)
  return fetch.file(task.set, task.folder .. "/" .. name)
end

-- Returns the hash of the files of a task, which must be present.
function glue.hash(name)
  local task = tasks[name]
  local paths = { published(task, task.train) }
  for i, part in ipairs(task.valid) do paths[i + 1] = published(task, part[2]) end
  return fetch.hash(paths)
end

-- Returns the places of the columns of a task: {texts = {4, 5}, label = 1}.
local function columns_of(task, header, complain)
  local at = { texts = {} }
  local function place(name)
    return labelled_text.column(header, name, complain)
      or complain("there is no column '%s'; the columns are %s", name, table.concat(header, ", "))
  end
  for i, name in ipairs(task.texts) do at.texts[i] = place(name) end
  at.label = place(task.label)
  return at
end

-- Returns the label of a text as a number.
local function label_of(task, text, complain)
  if task.scale then
    local number = tonumber(text)
    if not number or not (number >= 0 and number <= task.scale) then
      complain("the %s is '%s', not a number from 0 to %g", task.label, text:sub(1, 20),
        task.scale)
    end
    return number / task.scale
  end
  for i, name in ipairs(task.labels) do
    if name == text then return i - 1 end
  end
  complain("the %s is '%s', not %s", task.label, text:sub(1, 20),
    table.concat(task.labels, " or "))
end

-- Reads the examples in a file: returns a list of lists of one or two texts, each with a function
-- complain (labelled_text.each), and the labels.
local function read(task, name)
  local texts, labels, at = {}, {}, nil
  local function find(header, complain) at = columns_of(task, header, complain) end
  if task.columns then find(task.columns) end
  labelled_text.each("glue", name, task.columns or find, function(fields, complain)
    local row = { complain = complain }
    for i, column in ipairs(at.texts) do row[i] = fields[column]:match "^%s*(.-)%s*$" end
    texts[#texts + 1] = row
    labels[#labels + 1] = label_of(task, fields[at.label], complain)
  end, task.skips)
  return texts, labels
end

-- ---- Tokens -------------------------------------------------------------------------------------

local function space_out(text)
  return (text:gsub("(%w)([.,;:!?]+)%f[%s\0]", "%1 %2"):gsub("(%w)('%l+)%f[%W]", "%1 %2"))
end

-- Returns the ids of a text as a list without an end.
local function encode(text, o)
  local ids = o.vocab:encode(o.spaced and space_out(text) or text):totable()
  if ids[#ids] == o.vocab:eos() then ids[#ids] = nil end -- fairseq's dictionary ends each line
  return ids
end

-- Drops the last tokens of the longer list until both have at most room.
local function trim(a, b, room)
  while #a + #b > room do
    local longer = #a >= #b and a or b
    longer[#longer] = nil
  end
end

-- Returns the rows of texts as ids [t] one after another, and their starts. tokens: the masked
-- model's.
local function rows(texts, tokens, o)
  local list, starts, ends = {}, { 0 }, tokens.eos
  for i, row in ipairs(texts) do
    local fine, a, b = pcall(function()
      return encode(row[1], o), row[2] and encode(row[2], o)
    end)
    if not fine then
      row.complain("the masked model's vocabulary: %s", errors.text(a))
    end
    trim(a, b or {}, o.length - (b and 4 or 2))
    list[#list + 1] = tokens.first
    table.move(a, 1, #a, #list + 1, list)
    list[#list + 1] = ends
    if b then
      list[#list + 1] = ends
      table.move(b, 1, #b, #list + 1, list)
      list[#list + 1] = ends
    end
    starts[i + 1] = #list
  end
  return core.ids(list), core.ids(starts)
end

-- ---- Opening ------------------------------------------------------------------------------------

-- Returns the metric, a function (predicted, labels), and a function of labels that returns the
-- metric of always predicting the most frequent class of the training labels (of numbers: their
-- mean).
local function measure(task, labels)
  local counts, best, sum = {}, labels[1], 0.0
  for _, label in ipairs(labels) do
    counts[label], sum = (counts[label] or 0) + 1, sum + label
    if counts[label] > counts[best] then best = label end
  end
  local always, of = task.scale and sum / #labels or best, metrics[task.metric]
  return of, function(wanted)
    local predicted = {}
    for i = 1, #wanted do predicted[i] = always end
    return of(predicted, wanted)
  end
end

-- tl.tasks.glue(options): returns {train= (tasks/labelled.lua), valid= a list of {name=, set=,
-- majority=}, classes= (1 for numbers), metric= its name, measure= its function, vocab= the number
-- of tokens of the masked model, pad= its padding}. majority is the metric of the most frequent
-- class of the training part; NaN for a correlation.
function glue.open(given)
  local o = options.check("glue", spec, given)
  local task, special = tasks[o.task], masking.specials(o.vocab, o.tokenizer)
  local data = masking.tokens(special)
  local form = { length = o.length, multiple = o.multiple, pad = data.pad, seed = o.seed,
    classes = task.labels and #task.labels or nil }
  local function set(file)
    local texts, labels = read(task, file)
    local ids, starts = rows(texts, data, o)
    return labelled.new(ids, starts, labels, form), labels
  end
  local train, labels = set(o.train_file or published(task, task.train))
  local of, majority = measure(task, labels)
  local result = { train = train, valid = {}, classes = form.classes or 1, metric = task.metric,
    measure = of, vocab = data.vocab, pad = data.pad }
  -- One number serves all tasks, and small ones have fewer examples.
  if o.train then result.train = train:split(math.min(o.train, train.count), o.data_seed) end
  for i, part in ipairs(task.valid) do
    local valid, wanted = set(o.valid_file or published(task, part[2]))
    result.valid[i] = { name = part[1], set = valid, majority = majority(wanted) }
  end
  return result
end

return glue
