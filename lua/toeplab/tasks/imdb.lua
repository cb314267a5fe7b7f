-- tasks/imdb.lua: loads the task IMDB: whether a film review is positive, read character by
-- character (the task Text of Long Range Arena).

local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"
local fetch = require "toeplab.tasks.fetch"
local labelled = require "toeplab.tasks.labelled"
local options = require "toeplab.base.options"
local errors = require "toeplab.base.errors"

local imdb = { STOP = 2, CLASSES = 2 }

local field = options.field

local spec = options.set {
  { "length", field { default = 4096, min = 2 }, "most tokens of a row, the end included" },
  { "least", field { default = 15, min = 1 },
    "characters that occur less often in the training texts become the token <unk>" },
  { "valid", field { default = 0, min = 0 },
    "training reviews held out to validate with; 0: validate with the test reviews, as published" },
  { "train", field { type = "int", min = 1, optional = true }, "train on so many reviews only" },
  { "test", field { type = "int", min = 1, optional = true }, "test with so many reviews only" },
  { "data_seed", field { default = 1, min = 0 }, "seed of the choice of these reviews" },
  { "multiple", field { default = 64, min = 1 }, "rows are padded to a multiple of this length" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: that of tl.seed)" },
  { "train_file", field { type = "string", optional = true },
    "another file of training reviews, or text:CONTENT" },
  { "test_file", field { type = "string", optional = true },
    "another file of test reviews, or text:CONTENT" },
}

-- Returns the path of the published file of a part ("train" or "test"), after verifying it.
local function published(name)
  local set = datasets.find "imdb"
  fetch.unpacked(set)
  for _, file in ipairs(set.files) do
    if file[1]:find("." .. name .. ".", 1, true) then
      local path = datasets.place(file[1])
      if not path then
        errors.usage("imdb is not here. Either %s", table.concat(datasets.advice(set), ",\nor "))
      end
      local state = datasets.file_state(path, file, true)
      if state ~= "here" then
        errors.usage("imdb: %s is not the published file: %s", path, state)
      end
      return path
    end
  end
end

local known -- the hash of both files, cached once they are verified

-- Returns the sha256 of the sha256 of the published files, which must be present.
function imdb.hash()
  if not known then
    local keys = {}
    for i, name in ipairs { "train", "test" } do keys[i] = core.sha256_file(published(name)) end
    known = core.sha256(table.concat(keys, "\n"))
  end
  return known
end

local function bad(name, line, format, ...)
  errors.usage("imdb: %s:%d: %s", name, line, format:format(...))
end

-- Reads the reviews in a file: returns the lists of texts and labels.
local function read(name)
  local literal = name:match "^text:(.*)$"
  local content, why = literal, nil
  if not literal then content, why = core.sys.read_file(name) end
  if not content then errors.usage("imdb: %s", why) end
  local shown, texts, labels, number = literal and "text" or name, {}, {}, 0
  for line in content:gmatch "([^\n]*)\n?" do
    number = number + 1
    local label, text = line:match "^([^\t]*)\t[^\t]*\t[^\t]*\t([^\t]*)$"
    if not label and line ~= "" then
      bad(shown, number, "wanted label, rating, id and text between tabs, got '%s'",
        line:sub(1, 40))
    elseif label then
      if label ~= "0" and label ~= "1" then
        bad(shown, number, "the label is '%s', wanted 0 or 1", label:sub(1, 20))
      end
      local _, at = utf8.len(text)
      if at then bad(shown, number, "byte %d of the text is not UTF-8", at) end
      texts[#texts + 1], labels[#labels + 1] = text, math.tointeger(label)
    end
  end
  if #texts == 0 then errors.usage("imdb: %s has no review", shown) end
  return texts, labels
end

-- Encodes texts, cut to length - 1 characters, as ids [t] one after another, and their starts.
local function encode(vocab, texts, length)
  local encoder <close> = vocab:encoder()
  local starts = { 0 }
  for i, text in ipairs(texts) do
    local past = #text >= length and utf8.offset(text, length)
    encoder:feed(past and text:sub(1, past - 1) or text)
    starts[i + 1] = encoder:count()
  end
  return encoder:finish(), core.ids(starts)
end

-- tl.tasks.imdb(options): returns {train=, valid=, test= (tasks/labelled.lua), vocab= (its size),
-- classes= 2, characters= (the vocabulary)}.
function imdb.open(given)
  local o = options.check("imdb", spec, given)
  local texts, labels = read(o.train_file or published "train")
  local vocab = core.vocab_frequent(table.concat(texts), o.least)
  local rows = { length = o.length, multiple = o.multiple, classes = imdb.CLASSES,
    stop = imdb.STOP, seed = o.seed }
  local function set(some_texts, some_labels)
    local ids, starts = encode(vocab, some_texts, o.length)
    return labelled.new(ids, starts, some_labels, rows)
  end
  local task = { vocab = vocab:size(), classes = imdb.CLASSES, characters = vocab }
  task.train = set(texts, labels)
  if o.valid >= task.train.count then
    errors.usage("imdb: %d of %d training reviews leave none to train on", o.valid,
      task.train.count)
  end
  if o.valid > 0 then task.valid, task.train = task.train:split(o.valid, o.data_seed) end
  if o.train then task.train = task.train:split(o.train, o.data_seed) end
  task.test = set(read(o.test_file or published "test"))
  if o.test then task.test = task.test:split(o.test, o.data_seed) end
  task.valid = task.valid or task.test
  return task
end

return imdb
