-- test_imdb.lua: IMDB by characters: the vocabulary, cutting, held out reviews, wrong files.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"

local function row(label, text, id)
  return ("%s\t7\t%d\t%s\n"):format(label, id or 0, text)
end

-- 40 reviews: two words, a rare character, and one that is not ASCII.
local function reviews(count)
  local rows = {}
  for i = 1, count do
    rows[i] = row(i % 2, (i % 2 == 0 and "bad film" or "good \xe2\x82\xac film"):rep(1 + i % 3), i)
  end
  return table.concat(rows) .. row(0, "film #", count + 1)
end

local train, test = "text:" .. reviews(40), "text:" .. reviews(9)

local function open(more)
  local o = { train_file = train, test_file = test, length = 24, multiple = 1 }
  for key, v in pairs(more or {}) do o[key] = v end
  return tl.tasks.imdb(o)
end

local function text_of(task, ids)
  return task.characters:decode(ids)
end

t.test("characters in order of frequency, after the special ones; rare ones are unknown", function()
  local task = open()
  t.eq({ task.vocab, task.classes }, { 14, 2 }) -- 3, and " bdfgilmo", "a" and the euro sign
  local seen = {}
  for id = 0, 2 do seen[#seen + 1] = task.characters:token(id) end
  t.eq(seen, { "<pad>", "<unk>", "<eos>" })
  for _, c in ipairs { "a", "b", "d", "f", "g", "i", "l", "m", "o", " ", "\xe2\x82\xac" } do
    t.ok(task.characters:encode(c):get(1) > 2, c)
  end
  t.eq(task.characters:encode "#":get(1), 1)
  t.eq(open { least = 1 }.characters:encode "#":numel(), 1)
  t.ok(open { least = 1 }.characters:encode "#":get(1) > 2)
  t.eq(open { least = 1000 }.vocab, 3)
end)

t.test("reviews are cut by characters and ended", function()
  local task = open()
  t.eq({ task.train.count, task.test.count }, { 41, 10 })
  t.ok(task.valid == task.test) -- as published
  local batch = task.test:each(10)()
  t.eq(batch.ids:shape(), { 10, 24 })
  local rows, lengths, labels = batch.ids:totable(), batch.lengths:totable(), batch.labels:totable()
  local found = {} -- by text: the length and the label
  for i, row in ipairs(rows) do found[text_of(task, row)] = { lengths[i], labels[i] } end
  t.eq(found[("good \xe2\x82\xac film"):rep(2) .. "<eos><pad>"], { 23, 1 })
  t.eq(found[("bad film"):rep(3):sub(1, 23) .. "<eos>"], { 24, 0 }) -- 23 of 24 characters
  t.eq(found["film <unk><eos>" .. ("<pad>"):rep(17)], { 7, 0 })
end)

t.test("the first test reviews have both labels, though the file is sorted by them", function()
  local rows = {}
  for i = 1, 64 do rows[i] = row(i > 32 and 1 or 0, "film " .. i, i) end
  local task = open { test_file = "text:" .. table.concat(rows) }
  local ones, first = 0, task.test:each(32)()
  for _, label in ipairs(first.labels:totable()) do ones = ones + label end
  t.ok(ones > 4 and ones < 28, ones)
  t.eq({ task.test.count, task.test:chance() }, { 64, 0.5 })
  local again = open { test_file = "text:" .. table.concat(rows), seed = 7 }
  t.eq(t.bits(again.test:each(32)()), t.bits(first)) -- the same for every seed of the order
end)

t.test("held-out reviews and smaller sets, the same for every seed of the order", function()
  local function labels(set)
    local list = {}
    for batch in set:each(64) do list[#list + 1] = t.bits(batch) end
    return table.concat(list)
  end
  local a, b = open { valid = 8, train = 20, test = 5, seed = 1 },
    open { valid = 8, train = 20, test = 5, seed = 2 }
  t.eq({ a.train.count, a.valid.count, a.test.count }, { 20, 8, 5 })
  for _, part in ipairs { "train", "valid", "test" } do t.eq(labels(a[part]), labels(b[part])) end
  t.ok(labels(open { valid = 8, data_seed = 5 }.valid) ~= labels(a.valid))
  t.ok(t.bits(a.train:batch(1, 9)) ~= t.bits(b.train:batch(1, 9)))
  t.raises(open, "50 of 41 training reviews leave none to train on", { valid = 50 })
end)

t.test("a file with a byte order mark and carriage returns holds the same reviews", function()
  local text = reviews(12)
  local plain = open { train_file = "text:" .. text }
  local other = open { train_file = "text:\xef\xbb\xbf" .. text:gsub("\n", "\r\n") }
  t.eq(other.vocab, plain.vocab)
  t.eq(t.bits(other.train:batch(1, 13)), t.bits(plain.train:batch(1, 13)))
end)

t.test("wrong rows are errors with their line", function()
  local good = row(1, "fine", 1)
  for text, want in pairs {
    [""] = "has no row", ["\n\n"] = "has no row",
    [good .. "1\t2\tno text"] = "text:2: must be label, rating, id and text between tabs, not '1",
    [good .. good .. row("2", "x", 1)] = "text:3: the label is '2', not 0 or 1",
    [row("", "x", 1)] = "text:1: the label is ''",
    [good .. row(1, "one\ttwo", 1)] = "text:2: must be label",
    [good .. row(0, "caf\xe9", 1)] = "text:2: byte 4 of the text is not UTF%-8",
  } do
    t.raises(open, want, { train_file = "text:" .. text })
  end
  t.raises(open, "none/x.tsv: No such file", { train_file = "none/x.tsv" })
  t.in_folder(function(folder)
    t.write(folder .. "/t.tsv", reviews(16) .. "0\tx")
    t.raises(open, "t.tsv:18: must be label", { train_file = folder .. "/t.tsv" })
    t.write(folder .. "/t.tsv", reviews(16):gsub("\n$", ""))
    t.eq(open { train_file = folder .. "/t.tsv" }.train.count, 17)
  end)
end)

t.test("refuses data that are not the published ones, with how to get them", function()
  t.in_folder(function(folder)
    assert(core.sys.mkdir(folder .. "/data/imdb"))
    local function says()
      return (t.shell(("XDG_CACHE_HOME=%s TOEPLAB_DATA=%s/data '%s' lua - 2>&1 <<'E'\n"
        .. "require 'toeplab'.tasks.imdb {}\nE"):format(folder, folder, core.sys.executable())))
    end
    t.ok(says():find("imdb is not here. Put the files imdb.train.tsv", 1, true), says())
    t.write(folder .. "/data/imdb/imdb.train.tsv", row(1, "x"))
    t.ok(says():find("imdb.train.tsv is not the published file: wrong size", 1, true), says())
  end)
end)

t.done()
