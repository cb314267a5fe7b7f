-- tasks/retrieval.lua: loads the task Retrieval of Long Range Arena: whether one of two papers of
-- the ACL Anthology Network cites the other, read character by character.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local fetch = require "toeplab.tasks.fetch"
local labelled = require "toeplab.tasks.labelled"
local labelled_text = require "toeplab.tasks.labelled_text"
local options = require "toeplab.base.options"

local retrieval = { STOP = 2, CLASSES = 2 }

local COLUMNS = { "label", "id1", "id2", "text1", "text2" }

-- By part: the name of the published file, and its number of pairs.
local published = { train = { "train", 147086 }, valid = { "eval", 18090 },
  test = { "test", 17437 } }

retrieval.PARTS = { "train", "valid", "test" } -- in the order in which they are read

local field = options.field

local spec = options.declare "tl.tasks.retrieval" {
  { "length", field { default = 4000, min = 2 }, "most tokens of a row, the end included" },
  { "least", field { default = 1, min = 1 },
    "characters that occur less often in the training documents become the token <unk>" },
  { "train", field { type = "int", min = 1, optional = true }, "limit of the training pairs" },
  { "valid", field { type = "int", min = 1, optional = true }, "limit of the validation pairs" },
  { "test", field { type = "int", min = 1, optional = true }, "limit of the test pairs" },
  { "data_seed", field { default = 1, min = 0 }, "seed of the choice of these pairs" },
  { "multiple", field { default = 64, min = 1 }, "rows are padded to a multiple of this length" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" },
  { "train_file", field { type = "string", optional = true },
    "another file of training pairs, or text:CONTENT" },
  { "valid_file", field { type = "string", optional = true },
    "another file of validation pairs, or text:CONTENT" },
  { "test_file", field { type = "string", optional = true },
    "another file of test pairs, or text:CONTENT" },
}

-- Returns the path of the published file of a part.
local function place(part)
  return fetch.file("aan", ("aan/new_aan_pairs.%s.tsv"):format(published[part][1]))
end

-- Returns the hash of the published files, which must be present.
function retrieval.hash()
  local paths = {}
  for i, part in ipairs(retrieval.PARTS) do paths[i] = place(part) end
  return fetch.hash(paths)
end

-- Reads the pairs of a file: the labels, and the indices (from 0) of their documents. documents
-- collects the distinct texts, cut to `most` characters, of all parts; numbers maps a text to its
-- index in documents, from 0. Each text is stored once, though it is in many pairs, so that all fit
-- in memory.
local function read(name, most, documents, numbers)
  local part = { labels = {}, first = {}, second = {} }
  local function number_of(text)
    text = labelled_text.cut(text, most)
    if not numbers[text] then
      documents[#documents + 1], numbers[text] = text, #documents
    end
    return numbers[text]
  end
  labelled_text.each("retrieval", name, COLUMNS, function(fields, complain)
    local i = #part.labels + 1
    part.labels[i] = labelled_text.label(fields[1], retrieval.CLASSES, complain)
    part.first[i], part.second[i] = number_of(fields[4]), number_of(fields[5])
  end)
  return part
end

-- Raises a usage error if a part from the published file lacks some of its pairs.
local function check_count(part, path, count)
  local wanted = published[part][2]
  if count ~= wanted then
    errors.usage("retrieval: %s has %d pairs, the published file %d: truncated, or another one",
      path, count, wanted)
  end
end

-- tl.tasks.retrieval(options): returns {train=, valid=, test= (sets of pairs: tasks/labelled.lua),
-- vocab= (its size), classes= 2, characters= (the vocabulary)}.
function retrieval.open(given)
  local o = options.check("retrieval", spec, given)
  local documents, numbers, parts, of_train = {}, {}, {}, 0
  for _, name in ipairs(retrieval.PARTS) do
    local file = o[name .. "_file"] or place(name)
    parts[name] = read(file, o.length - 1, documents, numbers)
    if not o[name .. "_file"] then check_count(name, file, #parts[name].labels) end
    if name == "train" then of_train = #documents end
  end
  local vocab = core.vocab_frequent(table.concat(documents, "", 1, of_train), o.least)
  local ids, starts = labelled_text.encode(vocab, documents, o.length - 1)
  local task = { vocab = vocab:size(), classes = retrieval.CLASSES, characters = vocab }
  for name, part in pairs(parts) do
    task[name] = labelled.pairs(ids, starts, part.first, part.second, part.labels,
      { length = o.length, multiple = o.multiple, classes = retrieval.CLASSES,
        stop = retrieval.STOP, seed = o.seed })
    if o[name] then task[name] = task[name]:split(o[name], o.data_seed, "retrieval: " .. name) end
  end
  return task
end

return retrieval
