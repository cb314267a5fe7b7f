-- tasks/retrieval_standin.lua: generates documents in the format of the task Retrieval, for
-- machines without the published ones.
--
-- It is a separate task, retrieval-standin, so that its results are never mistaken for Retrieval's.
-- Documents consist of random words; two are related if they have the same subject, which a few of
-- their words tell.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local options = require "toeplab.base.options"
local retrieval = require "toeplab.tasks.retrieval"

local standin = {}

local SUBJECTS, WORDS, COMMON = 8, 6, 40 -- WORDS of each subject, and COMMON ones

local field = options.field
local count = function(default) return field { default = default, min = 1, max = 1 << 24 } end

-- The options of the generator.
standin.drawing = {
  { "train", count(4000), "pairs to train on" },
  { "valid", count(500), "pairs to validate with" },
  { "test", count(500), "pairs to test with" },
  { "words", count(120), "words of a document, about" },
  { "share", field { default = 0.15, min = 0, max = 1 },
    "share of the words about the document's subject" },
  { "data_seed", field { default = 1, min = 0 }, "seed of the documents" },
}

local function words_of(stream, count)
  local words = {}
  for i = 1, count do
    local letters = {}
    for k = 1, 3 + stream:below(5) do letters[k] = string.char(97 + stream:below(26)) end
    words[i] = table.concat(letters)
  end
  return words
end

-- Returns a document about a subject.
local function document(stream, o, common, subject)
  local words = {}
  for i = 1, o.words // 2 + stream:below(o.words) + 1 do
    local from = stream:unit() < o.share and subject or common
    words[i] = from[stream:below(#from) + 1]
  end
  return table.concat(words, " ")
end

-- Returns the pairs of a part as lines of the published format; half of them are related.
local function draw(o, part)
  local names, lines = core.stream(o.data_seed, "retrieval.words"), {}
  local common, subjects = words_of(names, COMMON), {}
  for i = 1, SUBJECTS do subjects[i] = words_of(names, WORDS) end
  local stream = core.stream(o.data_seed, "retrieval." .. part)
  for i = 1, o[part] do
    local label, one = i % 2, stream:below(SUBJECTS)
    local two = label == 1 and one or (one + 1 + stream:below(SUBJECTS - 1)) % SUBJECTS
    local first = document(stream, o, common, subjects[one + 1])
    local second = document(stream, o, common, subjects[two + 1])
    lines[i] = ("%d.0\t%s%d\t%s%d\t%s\t%s\n"):format(label, part, 2 * i - 1, part, 2 * i, first,
      second)
  end
  return table.concat(lines)
end

local declare = options.declare "tl.tasks.retrieval-standin"
local spec = declare(table.move(standin.drawing, 1, #standin.drawing, 1, {
  [#standin.drawing + 1] = { "length", field { default = 1024, min = 2 },
    "most tokens of a row, the end included" },
  [#standin.drawing + 2] = { "multiple", field { default = 64, min = 1 },
    "rows are padded to a multiple of this length" },
  [#standin.drawing + 3] = { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" },
}))

-- tl.tasks["retrieval-standin"](options): as tl.tasks.retrieval, of generated documents.
function standin.open(given)
  local o = options.check("retrieval-standin", spec, given)
  local files = { length = o.length, multiple = o.multiple, seed = o.seed }
  for _, part in ipairs(retrieval.PARTS) do files[part .. "_file"] = "text:" .. draw(o, part) end
  return retrieval.open(files)
end

-- Returns the hash that, with the options, identifies the documents: it names the generator's
-- version.
function standin.hash() return core.sha256 "retrieval-standin 1" end

-- Writes standin_pairs.train.tsv, .valid.tsv and .test.tsv into folder, each completely or not at
-- all, and returns their paths. The names differ from the published files', so that the two cannot
-- be confused.
function standin.write(folder, given)
  local o = options.check("retrieval-standin", standin.drawing, given)
  errors.stored(core.sys.mkdir(folder))
  local paths = {}
  for i, part in ipairs(retrieval.PARTS) do
    paths[i] = ("%s/standin_pairs.%s.tsv"):format(folder, part)
    errors.stored(core.sys.write_file(paths[i], draw(o, part)))
  end
  return paths
end

return standin
