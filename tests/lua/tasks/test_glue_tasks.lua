-- test_glue_tasks.lua: tl.tasks.glue: the columns and labels of each task, how pairs of sentences
-- become rows, the most frequent class, and the errors of damaged files.
local t = require "harness"
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"
local fetch = require "toeplab.tasks.fetch"
local glue = require "toeplab.tasks.glue"
local tl = require "toeplab"

local vocab = core.vocab_bytes()
local FIRST, PAD, END = 256, 257, 10

local function open(task, train, more)
  local o = { task = task, vocab = vocab, tokenizer = "byte", multiple = 1,
    train_file = "text:" .. train, valid_file = "text:" .. train }
  for key, v in pairs(more or {}) do o[key] = v end
  return tl.tasks.glue(o)
end

-- The texts of a set's rows in their order, where < is the first token and | the end.
local function texts(set)
  local list = {}
  for batch in set:each(1) do
    local out = {}
    for i, id in ipairs(batch.ids:reshape(-1):totable()) do
      out[i] = id == FIRST and "<" or id == END and "|" or id == PAD and "_" or string.char(id)
    end
    list[#list + 1] = table.concat(out)
  end
  return list
end

local function labels(set)
  local list = {}
  for batch in set:each(1) do list[#list + 1] = batch.labels:totable()[1] end
  return list
end

-- A file of each task, the texts of its rows, its labels, the metric of the most frequent class.
local files = {
  cola = { "a\t1\t\tok ok\nb\t0\t*\tno\nc\t1\t\tyes", { "<ok ok|", "<no|", "<yes|" },
    { 1, 0, 1 }, 0.0 },
  sst2 = { "sentence\tlabel\nfine . \t1\r\nbad\t0\nbad\t0\n", { "<fine .|", "<bad|", "<bad|" },
    { 1, 0, 0 }, 2 / 3 },
  mrpc = { "\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tab\tcd\n",
    { "<ab||cd|" }, { 1 }, 1.0 },
  rte = { "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\tc\td\tentailment\n"
    .. "2\te\tf\tnot_entailment\n", { "<a||b|", "<c||d|", "<e||f|" }, { 1, 0, 1 }, 2 / 3 },
  wnli = { "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n", { "<a||b|" }, { 1 }, 1.0 },
  stsb = { "index\tgenre\tsentence1\tsentence2\tscore\n0\tx\ta\tb\t5.000\n1\tx\tc\td\t1.5\n",
    { "<a||b|", "<c||d|" }, { 1.0, 0.3 } },
  mnli = { "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\ta\tb\tx\tneutral\n",
    { "<a||b|" }, { 1 }, 1.0 },
  qnli = { "index\tquestion\tsentence\tlabel\n0\ta\tb\tentailment\n", { "<a||b|" }, { 0 }, 1.0 },
  qqp = { "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\ta\tb\t0\nbroken\tline\n",
    { "<a||b|" }, { 0 }, 1.0 }, -- as fairseq does, a line of other columns is left out
}

for name, want in pairs(files) do
  t.test(name .. ": columns, labels and rows", function()
    local data = open(name, want[1])
    t.eq(texts(data.train), want[2])
    for i, label in ipairs(labels(data.train)) do t.eq(label, want[3][i], 1e-6) end
    t.eq({ data.vocab, data.pad, data.classes }, { 259, PAD, name == "stsb" and 1
      or name == "mnli" and 3 or 2 })
    local majority = data.valid[1].majority
    if want[4] then t.eq(majority, want[4], 1e-12) else t.ok(majority ~= majority) end
    t.eq(data.measure({ 1, 0, 1 }, { 1, 0, 1 }), 1.0, 1e-12)
    t.eq(#data.valid, name == "mnli" and 2 or 1)
  end)
end

t.test("the longer sentence of a pair is cut first", function()
  local header = "index\tsentence1\tsentence2\tlabel\n"
  local function row(a, b, length)
    return texts(open("wnli", ("%s0\t%s\t%s\t1\n"):format(header, a, b), { length = length })
      .train)[1]
  end
  t.eq(row("abcdefgh", "xyz", 10), "<abc||xyz|")
  t.eq(row("abc", "stuvwxyz", 10), "<abc||stu|")
  t.eq(row("abc", "xyz", 10), "<abc||xyz|")
  t.eq(texts(open("sst2", "sentence\tlabel\nabcdefghijkl\t1\n", { length = 8 }).train)[1],
    "<abcdef|")
end)

t.test("spaced puts a space before punctuation at the end of a word", function()
  local data = open("sst2", "sentence\tlabel\nIt's a 3.5, she said: well-made!\t1\n",
    { spaced = true })
  t.eq(texts(data.train)[1], "<It 's a 3.5 , she said : well-made !|")
end)

t.test("fairseq's dictionary: its own <s>, padding and end, which its encoder adds", function()
  local fake = { size = function() return 20 end, eos = function() return 2 end,
    encode = function(_, text) return core.ids { #text + 4, 2 } end }
  local data = open("wnli", "index\tsentence1\tsentence2\tlabel\n0\taa\tb\t1\n",
    { vocab = fake, tokenizer = "gpt2" })
  t.eq({ data.vocab, data.pad }, { 21, 1 })
  t.eq(data.train:batch(1, 1).ids:reshape(-1):totable(), { 0, 6, 2, 2, 5, 2 })
end)

t.test("train limits the examples, the same for every seed of the order", function()
  local lines = { "sentence\tlabel" }
  for i = 1, 30 do lines[i + 1] = ("%d\t%d"):format(i, i % 2) end
  local text = table.concat(lines, "\n")
  local function some(seed)
    local list = texts(open("sst2", text, { train = 7, seed = seed }).train)
    table.sort(list)
    return list
  end
  t.eq(#some(1), 7)
  t.eq(some(1), some(2))
end)

t.test("a damaged file is one message with file, line and value", function()
  local header = "index\tsentence1\tsentence2\tlabel\n"
  for _, row in ipairs {
    { "rte", header .. "0\ta\tb\tmaybe\n",
      "glue: text:2: the label is 'maybe', not entailment or not_entailment" },
    { "rte", header .. "0\ta\tb\tentailment\n1\ta\tentailment\n",
      "glue: text:3: must be index, sentence1, sentence2 and label between tabs, not '1\ta\tent" },
    { "rte", header .. "0\ta\tb\tentailment\r\n\r\n1\tc\td\tyes\r\n",
      "glue: text:4: the label is 'yes'" },
    { "rte", "index\tsentence1\tlabel\n",
      "glue: text:1: there is no column 'sentence2'; the columns are index, sentence1, label" },
    { "sst2", "sentence\tlabel\tlabel\na\t1\t0\n", "glue: text:1: there are two columns 'label'" },
    { "rte", header, "glue: text has no row" },
    { "stsb", "sentence1\tsentence2\tscore\na\tb\t5.5\n",
      "glue: text:2: the score is '5.5', not a number from 0 to 5" },
    { "stsb", "sentence1\tsentence2\tscore\na\tb\thigh\n", "the score is 'high'" },
    { "sst2", "sentence\tlabel\na\xff\t1\n", "glue: text:2: byte 2 of the sentence is not UTF" },
    { "cola", "a\t2\t\tok\n", "glue: text:1: the label is '2', not 0 or 1" },
  } do
    t.raises(open, row[3], row[1], row[2])
  end
  t.raises(open, "glue: text:2: the masked model's vocabulary: character 'c' [^\n]*$", "sst2",
    "sentence\tlabel\nabc\t1\n", { vocab = core.vocab_chars "ab\n", tokenizer = "char" })
  t.raises(open, "glue: /nowhere", "cola", "a\t1\t\tok",
    { valid_file = "/nowhere/dev.tsv" })
  t.raises(open, "option 'task' = 'colla' is not one of cola, mnli", "colla", "")
  t.raises(open, "option 'tokenizer' = 'bpee' is not one of char, byte", "cola", "",
    { tokenizer = "bpee" })
  t.raises(open, "option 'vocab' must be a vocabulary", "cola", "", { vocab = 3 })
  t.raises(tl.tasks.glue, "option 'vocab' is required: the vocabulary of the masked model",
    { task = "cola" })
end)

t.test("with byte pairs, a sentence ends as a line of the masked model's text does", function()
  local text = ("the old man told it . \n to the young man . \n \n"):rep(30)
  local bpe = tl.corpus("text:" .. text, { tokenizer = "bpe", vocab_size = 270 }).vocab
  local data = open("rte", "index\tsentence1\tsentence2\tlabel\n0\tthe old\ta man\tentailment\n",
    { vocab = bpe, tokenizer = "bpe" })
  local size = bpe:size()
  t.eq({ data.vocab, data.pad }, { size + 4, size + 1 })
  local first, second = bpe:encode("the old"):totable(), bpe:encode("a man"):totable()
  local row = { size, table.unpack(first) }
  for _, id in ipairs { size + 3, size + 3, table.unpack(second) } do row[#row + 1] = id end
  row[#row + 1] = size + 3
  for batch in data.train:each(1) do t.eq(batch.ids:reshape(-1):totable(), row) end
end)

t.test("the published files, if they are here", function()
  local counts = { cola = { 8551, 1043 }, sst2 = { 67349, 872 }, mrpc = { 3668, 408 },
    rte = { 2490, 277 }, stsb = { 5749, 1500 }, wnli = { 635, 71 } }
  local here = datasets.state(datasets.find "glue", false)
  if here ~= "here" then t.skip "toeplab data fetch glue brings them" end
  for name, want in pairs(counts) do
    local data = tl.tasks.glue { task = name, vocab = vocab, tokenizer = "byte", length = 64 }
    t.eq({ data.train.count, data.valid[1].set.count }, want)
    t.eq(#tl.tasks.hash(name), 64)
  end
end)

t.test("every task has a hash and a name", function()
  t.eq(glue.names, { "cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli" })
  t.eq(tl.tasks.hash "no such task", nil)
  for _, name in ipairs { "MNLI", "QNLI", "QQP" } do
    local set = datasets.find(name)
    t.ok(set and #set.download[1].sha256 == 64 and set.files[1][1]:find("^" .. name .. "/"), name)
  end
end)

t.test("the files of a task are read once for its hash", function()
  local file, hash, counts = fetch.file, fetch.hash, {}
  fetch.file = function(_, name) return name end
  fetch.hash = function(paths)
    local first = paths[1]
    counts[first] = (counts[first] or 0) + 1
    return "hash of " .. first
  end
  local ok, why = pcall(function()
    for name, first in pairs { cifar = "cifar-10-batches-bin/data_batch_1.bin",
      ["cifar-part"] = "cifar10/lossless_train_0000-3999.bin", imdb = "imdb/imdb.train.tsv",
      mnli = "MNLI/train.tsv", qqp = "QQP/train.tsv",
      retrieval = "aan/new_aan_pairs.train.tsv" } do
      for _ = 1, 2 do t.eq(tl.tasks.hash(name), "hash of " .. first) end
      t.eq({ name, counts[first] }, { name, 1 })
    end
  end)
  fetch.file, fetch.hash = file, hash
  if not ok then error(why, 0) end
end)

t.done()
