-- test_retrieval.lua: pairs of documents: reading, cutting, batches of pairs, wrong files, and the
-- stand-in, which is learnt and is never taken for the published documents.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"

local function row(label, one, two)
  return ("%s\tP00\tP01\t%s\t%s\n"):format(label, one, two)
end

local train = "text:" .. row("1.0", "abc", "abcdefgh") .. row("0.0", "abcdefgh", "b")
  .. row("1", "\xe2\x82\xacuro", "ab")
local valid = "text:" .. row("0.0", "abc", "zzz")
local test = "text:" .. row("1.0", "b", "b") .. row("0.0", "ab", "abcdefgh")

local function open(more)
  local o = { train_file = train, valid_file = valid, test_file = test, length = 6, multiple = 1 }
  for key, v in pairs(more or {}) do o[key] = v end
  return tl.tasks.retrieval(o)
end

local function texts(task, batch)
  local list, rows, lengths = {}, batch.ids:totable(), batch.lengths:totable()
  for i, ids in ipairs(rows) do
    list[i] = task.characters:decode(table.move(ids, 1, lengths[i], 1, {}))
  end
  return list
end

t.test("a batch has the first documents and then the second ones, of one length", function()
  local task = open()
  t.eq({ task.train.count, task.valid.count, task.test.count, task.classes }, { 3, 1, 2, 2 })
  local batch = task.train:each(3)()
  t.eq(batch.ids:shape(), { 6, 6 })
  t.eq(texts(task, batch), { "abc<eos>", "abcde<eos>", "\xe2\x82\xacuro<eos>", "abcde<eos>",
    "b<eos>", "ab<eos>" })
  t.eq(batch.lengths, { 4, 6, 5, 6, 2, 3 })
  t.eq(batch.labels, { 1, 0, 1 })
  t.eq(batch.ids:narrow(1, 5, 1):narrow(2, 3, 4), { { 0, 0, 0, 0 } })
end)

t.test("the characters come from the training documents, as far as they are read", function()
  local task = open()
  t.eq(task.vocab, 3 + 5 + 4) -- a to e, and the euro sign, u, r, o; f to h are cut off
  t.eq(texts(task, task.valid:each(1)()), { "abc<eos>", "<unk><unk><unk><eos>" })
  t.eq(open({ least = 2 }).vocab, 3 + 3) -- documents count once: a, b and c are in two of them
end)

t.test("an epoch has each pair once, in an order of the seed", function()
  local task = open()
  for epoch = 1, 2 do
    local seen = {}
    for step = 1, 3 do
      local batch, number = task.train:batch((epoch - 1) * 3 + step, 1)
      t.eq(number, epoch)
      seen[#seen + 1] = table.concat(texts(task, batch), " ") .. batch.labels:get(1)
    end
    table.sort(seen)
    t.eq(seen, { "abc<eos> abcde<eos>1", "abcde<eos> b<eos>0", "\xe2\x82\xacuro<eos> ab<eos>1" })
  end
  local part = open { train = 2, data_seed = 3 }
  t.eq({ part.train.count, part.vocab }, { 2, 12 })
end)

t.test("wrong rows are errors with their line", function()
  local good = row("1.0", "a", "b")
  for text, want in pairs {
    [""] = "text has no row",
    [good .. "1.0\tP\tQ\tno second text"] =
      "text:2: must be label, id1, id2, text1 and text2 between tabs, not '1.0",
    [good .. row("2.0", "a", "b")] = "text:2: the label is '2.0', not 0 or 1",
    [row("0.5", "a", "b")] = "text:1: the label is '0.5', not 0 or 1",
    [row("yes", "a", "b")] = "text:1: the label is 'yes'",
    [good .. good .. row("1", "a", "caf\xe9")] = "text:3: byte 4 of the text2 is not UTF%-8",
  } do
    t.raises(open, want, { valid_file = "text:" .. text })
  end
  t.raises(open, "none.tsv: No such file", { test_file = "none.tsv" })
  t.in_folder(function(folder)
    t.raises(open, "is a folder", { test_file = folder })
  end)
end)

-- Runs a script with the data folder; returns all it says.
local function says(folder, script)
  local form = "XDG_CACHE_HOME=%s TOEPLAB_DATA=%s/data '%s' lua - 2>&1 <<'E'\n%s\nE"
  return (t.shell(form:format(folder, folder, core.sys.executable(), script)))
end

t.test("missing published files, or a part of them, are an error with how to get them", function()
  t.in_folder(function(folder)
    assert(core.sys.mkdir(folder .. "/data/aan"))
    local script = "require 'toeplab'.tasks.retrieval {}"
    local said = says(folder, script)
    t.ok(said:find("aan is not here. Put the files new_aan_pairs.train.tsv", 1, true), said)
    for _, part in ipairs { "train", "eval", "test" } do
      t.write(("%s/data/aan/new_aan_pairs.%s.tsv"):format(folder, part), row("1.0", "a", "b"))
    end
    said = says(folder, script)
    t.ok(said:find("aan/new_aan_pairs.train.tsv has 1 pairs, the published file 147086", 1, true),
      said)
    said = says(folder, "print(require 'toeplab'.tasks.hash 'retrieval')")
    t.ok(said:find "^%x+\n$" and #said == 65, said)
  end)
end)

t.test("the stand-in is a separate task, the same for every order", function()
  local tasks = require "toeplab.tasks"
  t.ok(tasks.hash "retrieval-standin" ~= core.sha256 "listops 1")
  t.ok(datasets.find("retrieval-standin").generated)
  local function all(more)
    local o = { train = 6, valid = 4, test = 4, words = 9, length = 64, multiple = 1 }
    for key, v in pairs(more or {}) do o[key] = v end
    return tl.tasks["retrieval-standin"](o)
  end
  local one, two = all { seed = 1 }, all { seed = 2 }
  for _, part in ipairs { "train", "valid", "test" } do
    t.eq(t.bits(one[part]:each(9)()), t.bits(two[part]:each(9)()))
  end
  t.ok(t.bits(one.train:batch(1, 4)) ~= t.bits(two.train:batch(1, 4)))
  t.eq(one.train:each(9)().labels, { 1, 0, 1, 0, 1, 0 })
  t.ok(t.bits(all({ data_seed = 2 }).test:each(9)()) ~= t.bits(one.test:each(9)()))
  local more = all { train = 9 } -- whose characters may have other numbers
  t.eq(texts(more, more.test:each(9)()), texts(one, one.test:each(9)()))
  t.raises(all, "option 'train' = 0 must be between", { train = 0 })
end)

t.test("toeplab data generate writes files that the task reads", function()
  t.in_folder(function(folder)
    local command = ("'%s' data generate -q retrieval-standin %s/x train=5 valid=3 test=2 words=7")
      :format(core.sys.executable(), folder)
    local said, code = t.shell(command)
    local files = {}
    for path in said:gmatch "[^\n]+" do files[#files + 1] = path end
    t.eq({ code, #files }, { 0, 3 })
    t.eq(core.sys.list(folder .. "/x"), { "standin_pairs.test.tsv", "standin_pairs.train.tsv",
      "standin_pairs.valid.tsv" })
    local read = tl.tasks.retrieval { train_file = files[1], valid_file = files[2],
      test_file = files[3], length = 64, multiple = 1 }
    local drawn = tl.tasks["retrieval-standin"] { train = 5, valid = 3, test = 2, words = 7,
      length = 64, multiple = 1 }
    for _, part in ipairs { "train", "valid", "test" } do
      t.eq(t.bits(read[part]:each(9)()), t.bits(drawn[part]:each(9)()))
    end
  end)
end)

t.test("a classifier of pairs learns the stand-in", function()
  tl.seed(1)
  local data = tl.tasks["retrieval-standin"] { train = 200, valid = 60, test = 60, words = 6,
    share = 0.9, length = 48, multiple = 48 }
  local model = tl.models.attention_classifier { vocab = data.vocab, classes = data.classes,
    max_length = 48, dim = 16, hidden = 32, layers = 1, pair = true }
  local opt = tl.optim.adam(model, { lr = 4e-3 })
  local first, last = 0.0, 0.0
  for step = 1, 60 do
    local loss = tl.classify.step(model, opt, data.train:batch(step, 20))
    if step <= 10 then first = first + loss / 10 end
    if step > 50 then last = last + loss / 10 end
  end
  t.ok(last < 0.9 * first, ("%.3f is not well below %.3f"):format(last, first))
  t.ok(tl.classify.accuracy(model, data.train, 50) > 0.6)
end)

t.done()
