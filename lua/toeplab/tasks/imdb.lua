-- tasks/imdb.lua: loads the task IMDB: whether a film review is positive, read character by
-- character (the task Text of Long Range Arena).

local core = require "toeplab.core"
local fetch = require "toeplab.tasks.fetch"
local labelled = require "toeplab.tasks.labelled"
local labelled_text = require "toeplab.tasks.labelled_text"
local options = require "toeplab.base.options"
local errors = require "toeplab.base.errors"
local simple_models = require "toeplab.tasks.simple_models"

local imdb = { STOP = 2, CLASSES = 2 }

local COLUMNS = { "label", "rating", "id", "text" }

local field = options.field

local spec = options.declare "tl.tasks.imdb" {
  { "length", field { default = 4096, min = 2 }, "most tokens of a row, the end included" },
  { "least", field { default = 15, min = 1 },
    "characters that occur less often in the training texts become the token <unk>" },
  { "valid", field { default = 0, min = 0 },
    "training reviews held out to validate with; 0: validate with the test reviews, as published" },
  { "train", field { type = "int", min = 1, optional = true }, "limit of the training reviews" },
  { "test", field { type = "int", min = 1, optional = true }, "limit of the test reviews" },
  { "data_seed", field { default = 1, min = 0 }, "seed of the choice of these reviews" },
  { "multiple", field { default = 64, min = 1 }, "rows are padded to a multiple of this length" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" },
  { "train_file", field { type = "string", optional = true },
    "another file of training reviews, or text:CONTENT" },
  { "test_file", field { type = "string", optional = true },
    "another file of test reviews, or text:CONTENT" },
}

-- Returns the path of the published file of a part ("train" or "test"), after verifying it.
local function published(name)
  return fetch.file("imdb", ("imdb/imdb.%s.tsv"):format(name))
end

-- Returns the hash of the published files, which must be present.
function imdb.hash()
  return fetch.hash { published "train", published "test" }
end

-- Reads the reviews in a file: returns the lists of texts and labels.
local function read(name)
  local texts, labels = {}, {}
  labelled_text.each("imdb", name, COLUMNS, function(fields, complain)
    labels[#labels + 1] = labelled_text.label(fields[1], imdb.CLASSES, complain)
    texts[#texts + 1] = fields[4]
  end)
  return texts, labels
end

-- tl.tasks.imdb(options): returns {train=, valid=, test= (tasks/labelled.lua), vocab= (its size),
-- classes= 2, characters= (the vocabulary), yardsticks()}.
function imdb.open(given)
  local o = options.check("imdb", spec, given)
  local texts, labels = read(o.train_file or published "train")
  local vocab = core.vocab_frequent(table.concat(texts), o.least)
  local rows = { length = o.length, multiple = o.multiple, classes = imdb.CLASSES,
    stop = imdb.STOP, seed = o.seed }
  local function set(some_texts, some_labels)
    local ids, starts = labelled_text.encode(vocab, some_texts, o.length - 1)
    return labelled.new(ids, starts, some_labels, rows)
  end
  local task = { vocab = vocab:size(), classes = imdb.CLASSES, characters = vocab }
  task.train = set(texts, labels)
  if o.valid >= task.train.count then
    errors.usage("imdb: %d of %d training reviews leave none to train on", o.valid,
      task.train.count)
  end
  if o.valid > 0 then task.valid, task.train = task.train:split(o.valid, o.data_seed) end
  if o.train then task.train = task.train:split(o.train, o.data_seed, "imdb: train") end
  task.test = set(read(o.test_file or published "test"))
  -- The published file has all negative reviews first: without shuffling, an evaluation that is
  -- limited to the first examples would see one class only.
  task.test = task.test:split(o.test, o.data_seed, "imdb: test")
  task.valid = task.valid or task.test
  function task.yardsticks() return { bayes_accuracy = simple_models.bayes(task) } end
  return task
end

return imdb
