-- test_tokens.lua: tokenisers of corpora against independent ids and known counts, the cache of
-- ids, learnt byte pairs, and the errors of wrong texts and vocabularies.
local t = require "harness"
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"
local options = require "toeplab.base.options"
local corpus = require "toeplab.tasks.corpus"
local recorded = require "toeplab.tasks.recorded"
local source = require "toeplab.tasks.source"
local quote = require("toeplab.base.shell").quote

local awkward = require "awkward"
local small = t.root .. "tests/small.bpe"

local folder = os.tmpname()
os.remove(folder)
assert(core.sys.mkdir(folder))

local function write(name, text)
  local path = folder .. "/" .. name
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read("a")
end

-- Runs Lua code, or a verb of the program, in a process of its own with these variables; returns
-- what it said and its exit code.
local function process(environment, words)
  return t.shell(("env -u TOEPLAB_DATA TOEPLAB_CACHE=%s/cache %s %s %s 2>&1"):format(folder,
    environment, quote(core.sys.executable()), words))
end

local function run(environment, code)
  return process(environment, "lua " .. quote(write("script.lua", code)))
end

local function sha_of(ids)
  return core.sha256(table.concat(ids:totable(), " "))
end

-- The file of a set; skips the test where there is none.
local function file_of(name)
  return datasets.place(name) or t.skip(name .. " is not here; TOEPLAB_DATA may hold it")
end

-- ---- Byte pairs ---------------------------------------------------------------------------------

local function check_awkward(vocab, column)
  for i, case in ipairs(awkward) do
    local text, ids = case[1], vocab:encode(case[1])
    t.ok(table.concat(ids:totable(), " ") == table.concat(case[column], " "),
      ("text %d, %q: ids %s"):format(i, text, table.concat(ids:totable(), " ")))
    t.eq(vocab:decode(ids), text)
    local encoder <close> = vocab:encoder()
    for at = 1, #text, 3 do encoder:feed(text:sub(at, at + 2)) end
    t.eq(encoder:finish(), ids)
  end
end

t.test("the ids of awkward texts, by a small vocabulary", function()
  t.ok(#awkward >= 50)
  check_awkward(core.vocab_bpe(small), 3)
end)

t.test("the ids of awkward texts, as the published encoder gives them", function()
  local merges, encoder = file_of "gpt2-bpe/vocab.bpe", file_of "gpt2-bpe/encoder.json"
  local vocab = core.vocab_bpe(merges, encoder)
  t.eq(vocab:size(), 50257)
  t.eq(vocab:token(50256), "<|endoftext|>")
  check_awkward(vocab, 2)
end)

t.test("fairseq's ids", function()
  local merges, encoder = file_of "gpt2-bpe/vocab.bpe", file_of "gpt2-bpe/encoder.json"
  local dictionary = file_of "gpt2-bpe/dict.txt"
  local vocab = core.vocab_bpe(merges, encoder, dictionary)
  t.eq({ vocab:size(), vocab:eos() }, { 50264, 2 })
  -- "." is GPT-2's 13, the dictionary's first line; " the" is 262, the second; "," 11, the third
  t.eq(vocab:encode(" .\n\n . the,\n"), { 4, 2, 2, 4, 5, 6, 2 })
  t.eq(vocab:decode { 4, 2, 2, 0, 1, 3, 50263 }, ".\n\n")
end)

t.test("the whole of WikiText-2 survives GPT-2's byte pairs", function()
  local merges, encoder = file_of "gpt2-bpe/vocab.bpe", file_of "gpt2-bpe/encoder.json"
  local files = { -- number and sha256 of the ids that Hugging Face tokenizers gives
    { "wikitext-2/wiki.train.shuffled-docs.tokens", 2448382,
      "9f1acf8c078ae1cf62dc8f75cd204ad8ca9fb3e53a7cb26ab54ba2f114635041" },
    { "wikitext-2/wiki.valid.tokens", 258659,
      "3a8e0861206eb6b304825bc3ad1995f6371f1947768df53e17bf8c9bd0269970" },
    { "wikitext-2/wiki.test.tokens", 295877,
      "cd675cde7ec0a8fa79908032009b550de552ed9c3b3053690cf2c671f3e8f736" },
  }
  for _, file in ipairs(files) do
    local path = file_of(file[1])
    local vocab = core.vocab_bpe(merges, encoder)
    local text = read(path)
    local ids = vocab:encode(text)
    t.eq({ ids:numel(), sha_of(ids) }, { file[2], file[3] })
    t.ok(vocab:decode(ids) == text, file[1] .. " is not the same after encoding and decoding")
  end
end)

t.test("the small vocabulary follows from its text", function()
  local path = file_of "tinyshakespeare/input.txt"
  local counter <close> = core.counter "pieces"
  counter:feed(read(path))
  core.bpe_train(counter, 512, folder .. "/again.bpe")
  t.ok(read(folder .. "/again.bpe") == read(small), "the merges are others")
end)

-- ---- Corpora ------------------------------------------------------------------------------------

t.test("WikiText-2 has the published numbers of words", function()
  file_of "wikitext-2/wiki.train.shuffled-docs.tokens"
  local data = corpus("wikitext-2", { tokenizer = "word" })
  t.eq({ data.train:numel(), data.valid:numel(), data.test:numel(), data.vocab:size() },
    { 2088628, 217646, 245569, 33278 })
  t.eq(data.vocab:decode(data.test), read(datasets.place "wikitext-2/wiki.test.tokens"))
  t.eq(data.vocab:token(data:stream("test"):get(1)), " \n")
  t.eq(data.bytes_per_token.test, 1256449 / 245569, 1e-12)
end)

local lines = {}
for i = 1, 1000 do lines[i] = (" word%d of line %d , it 's 3 @.@ 5 \n"):format(i % 50, i) end
local long = table.concat(lines)

t.test("a text is split at line ends; its words come from the training part", function()
  local path = write("words.txt", long .. " unseen word1")
  local data = corpus(path, { tokenizer = "word", valid = 0.1, test = 0.1 })
  local back = {}
  for i, part in ipairs { "train", "valid", "test" } do
    back[i] = data.vocab:decode(data[part])
    t.eq(back[i]:sub(-2), " \n") -- an end where there was none
    t.eq(data:stream(part):totable(), { data.vocab:eos(), table.unpack(data[part]:totable()) })
    t.eq(data.bytes_per_token[part], #long / (11 * 1000), 0.2)
  end
  local whole = table.concat(back)
  t.eq(whole:sub(1, #back[1]), long:sub(1, #back[1]))
  t.ok(math.abs(#back[1] / #long - 0.8) < 0.02 and math.abs(#back[2] / #long - 0.1) < 0.02)
  t.ok(back[3]:find("<unk>", 1, true), "a line number of the test part was known")
  t.ok(not back[1]:find("<unk>", 1, true))
end)

t.test("a trial records that only the beginning of its text is present", function()
  local find, place = datasets.find, datasets.place
  local set = { name = "tiny", head = "head", files = {},
    parts = { train = { "whole", "head" }, valid = { "rest" }, test = { "rest" } } }
  local files = { head = write("head.txt", "a b c\n"), rest = write("rest.txt", "b c\n") }
  datasets.find = function(name) return name == "tiny" and set or find(name) end
  datasets.place = function(file) return files[file] end
  local ok, why = pcall(function()
    recorded.begin({}, {})
    local tokens = corpus("tiny", { tokenizer = "word" }).train:numel()
    t.eq(recorded.parts()[1],
      ("corpus tiny: here only the first %d tokens of its training part"):format(tokens))
    files.whole = write("whole.txt", "a b c d\n")
    recorded.begin({}, {})
    source.find(files.rest) -- else tiny is cached
    corpus("tiny", { tokenizer = "word" })
    t.eq(#recorded.parts(), 0)
  end)
  datasets.find, datasets.place = find, place
  t.ok(ok, why)
end)

t.test("train_tokens shortens the training part, and keeps the vocabulary and the rest", function()
  local path = write("short.txt", long)
  for _, kind in ipairs { "word", "char" } do
    local whole, short = corpus(path, { tokenizer = kind }), nil
    short = corpus(path, { tokenizer = kind, train_tokens = 100 })
    t.eq(short.train:totable(), whole.train:narrow(1, 1, 100):totable())
    t.eq({ short.vocab:size(), short.test:totable() }, { whole.vocab:size(),
      whole.test:totable() })
    t.eq(short.bytes_per_token.train, #short.vocab:decode(short.train) / 100)
    local count = whole.train:numel()
    t.eq(corpus(path, { tokenizer = kind, train_tokens = count }).train:numel(), count)
    t.raises(corpus, ("train_tokens = %d, but the training part has %d tokens"):format(count + 1,
      count), path, { tokenizer = kind, train_tokens = count + 1 })
    t.raises(corpus, "100 training tokens are fewer than length %+ 1 = 101", path,
      { tokenizer = kind, train_tokens = 100, length = 100 })
    t.raises(corpus, "train_tokens", path, { tokenizer = kind, train_tokens = 1 })
  end
end)

t.test("a text of one line is split between words, one of no words between characters", function()
  local one = source.split({ name = "x", key = "x", bytes = 1200, first = 0,
    text = ("wörd "):rep(200) }, 0.2, 0.1)
  t.eq({ one.train.bytes % 6, one.valid.bytes % 6, one.test.bytes % 6 }, { 0, 0, 0 })
  t.eq(one.train.bytes + one.valid.bytes + one.test.bytes, 1200)
  for size = 1, 40 do
    local text = ("€"):rep(size)
    local parts, back = source.split({ name = "x", key = "x", bytes = #text, first = 0,
      text = text }, 0.3, 0.2), ""
    for _, name in ipairs { "train", "valid", "test" } do
      local piece = parts[name] and source.text(parts[name]) or ""
      t.ok(utf8.len(piece), "a character was cut")
      back = back .. piece
    end
    t.eq(back, text)
  end
end)

t.test("pieces of a file are whole characters, and together the whole file", function()
  local text = ("ab€😀\n"):rep(300000)
  local part = source.find(write("pieces.txt", text)).whole
  local pieces, last = {}, 0
  source.each(part, false, function(piece, done)
    t.ok(utf8.len(piece) and #piece <= (1 << 20) + 3 and done > last)
    pieces[#pieces + 1], last = piece, done
  end)
  t.ok(#pieces >= 3 and last == #text)
  t.ok(table.concat(pieces) == text)
end)

t.test("every tokenizer reads every text, and names its files", function()
  local path = write("any.txt", long)
  for _, name in ipairs { "char", "byte", "word", "bpe" } do
    local data = corpus(path, { tokenizer = name, merges = name == "bpe" and small or nil,
      batch = 2, length = 16 })
    t.eq(data:batch(1):shape(), { 2, 17 })
    t.ok(data.bytes_per_token.valid >= 1)
    t.ok(data.valid:numel() > 100 and data.test:numel() > 100)
  end
  local data = corpus(path, { tokenizer = "bpe", merges = small, valid = 0.1 })
  t.eq(data.vocab_files.vocabulary, small)
  t.eq(data.vocab:decode(data.train) .. data.vocab:decode(data.valid)
    .. data.vocab:decode(data.test), long)
  t.eq(data:stream("valid"):get(1), data.train:get(data.train:numel()))
  t.eq(data:stream "train", data.train) -- nothing is before it
end)

-- ---- The cache ----------------------------------------------------------------------------------

local print_ids = [[
local core, corpus = require "toeplab.core", require "toeplab.tasks.corpus"
local data = corpus(%q, { tokenizer = %q, vocab_size = %s })
print("ids " .. core.sha256(table.concat(data.train:totable(), " ")) .. " of " .. data.vocab:size())
]]

local function cached()
  local names = {}
  for _, sub in ipairs { "tokens", "bpe" } do
    for _, name in ipairs(core.sys.list(folder .. "/cache/" .. sub) or {}) do
      names[#names + 1] = folder .. "/cache/" .. sub .. "/" .. name
    end
  end
  return names
end

-- Writes text over what is in the middle of a file.
local function damage(path, at, text)
  local file = assert(io.open(path, "r+b"))
  file:seek("set", at < 0 and #read(path) // 2 or at)
  file:write(text)
  file:close()
end

t.test("ids are cached, checked, and encoded again if damaged", function()
  local code = print_ids:format(write("long.txt", long:rep(12)), "word", "nil")
  t.eq(#cached(), 0)
  local first = run("", code)
  t.ok(first:find "^ids %x+ of %d+\n$", first)
  local files = cached()
  t.eq(#files, 1) -- of the training part; the others are small
  local whole = read(files[1])
  t.eq(run("", code), first)
  for _, harm in ipairs { function() damage(files[1], -1, "harm") end,
    function() write("cache/tokens/" .. files[1]:match("[^/]*$"), whole:sub(1, 5000)) end,
    function() write("cache/tokens/" .. files[1]:match("[^/]*$"), "") end,
    function()
      core.h5_write(files[1], { { "ids", core.ids { 1, 2 } } }, { count = 2, text = "another" })
    end } do
    harm()
    local said = run("", code)
    t.ok(said:find("^warning: token cache .*writing it again\n") and said:sub(-#first) == first,
      said)
    t.eq(read(files[1]) == whole, true)
    t.eq(run("", code), first)
  end
  t.eq(run("TOEPLAB_CACHE=", code), first)
  t.eq(run("TOEPLAB_CACHE=" .. write("file", "x"), code), first)
  write("long.txt", long:rep(12) .. "more\n")
  t.ok(run("", code):find "^ids")
  t.eq(#cached(), 2) -- another text, another file
end)

t.test("byte pairs of a size are learnt once, and again if the file is damaged", function()
  local code = print_ids:format(write("learn.txt", long:rep(12)), "bpe", "300")
  local before = #cached()
  local first = run("", code)
  t.ok(first:find "^ids %x+ of 300\n$", first)
  local path
  for _, name in ipairs(cached()) do path = name:find "%.bpe$" and name or path end
  t.eq(#cached(), before + 2) -- and its ids
  local whole = read(path)
  damage(path, 120, "x")
  local said = run("", code)
  t.ok(said:find("^warning: .*damaged or trunc.*learning again\n") and said:sub(-#first) == first,
    said)
  t.ok(read(path) == whole)
  t.ok(run("TOEPLAB_CACHE=", code):find "no folder to store learnt merges in")
end)

-- ---- The command --------------------------------------------------------------------------------

t.test("toeplab data bpe", function()
  local text, out = write("train.txt", long), folder .. "/out.bpe"
  local said, code = process("", ("data bpe %s --size 300 --out %s"):format(text, out))
  t.ok(code == 0 and said:find "300 tokens learnt from", said)
  local first = read(out)
  t.eq({ process("", ("data bpe %s -q -s 300 -o %s"):format(text, out)) }, { "", 0 })
  t.ok(read(out) == first, "the second file is another")
  for words, want in pairs {
    [""] = "usage: toeplab data bpe", ["x y"] = "usage: toeplab data bpe",
    [text .. " --size 300"] = "usage: toeplab data bpe",
    [text .. " --size 200 --out x"] = "takes a number from 256 to 2147483647",
    [text .. " --size 5000000000 --out x"] = "takes a number from 256 to 2147483647",
    ["text: --size 300 --out x"] = "the text is empty",
    [text .. " --size 300 --out x --check"] = "%-%-check is an option of data list, show, path",
    ["none.txt --size 300 --out x"] = "none.txt: No such file",
    ["wikitext-2 --size 300 --out x"] = "wikitext%-2 is not here",
  } do
    said, code = process("XDG_CACHE_HOME=" .. folder, "data bpe " .. words)
    t.ok(code == 2 and said:find(want), said)
  end
  said, code = process("", ("data bpe %s --size 99999 --out %s/none"):format(text, folder))
  local want = "train.txt: bpe: the text yields %d+ tokens, fewer than the vocabulary of 99999"
  t.ok(code == 2 and said:find(want), said)
  t.ok(not core.sys.exists(folder .. "/none"))
end)

t.test("toeplab data bpe learns only from the training part of a set", function()
  local from, corpus = require "toeplab.tasks.source", require "toeplab.tasks.corpus"
  local sets, data = require "toeplab.tasks.datasets", require "toeplab.commands.data"
  local find, found = sets.find, from.find
  local whole = { name = "set", text = long .. ("xyzzy "):rep(99), first = 0, key = "k" }
  whole.bytes = #whole.text
  local ok, why = pcall(function()
    sets.find = function() return {} end
    from.find = function() return { name = "set", whole = whole, hash = "h" } end
    data.run({ size = "300", out = folder .. "/part.bpe", quiet = true }, { "bpe", "set" })
  end)
  sets.find, from.find = find, found
  t.ok(ok, why)
  local path = write("part.txt", whole.text:sub(1, from.split(whole, 0.05, 0.05).train.bytes))
  t.eq({ process("", ("data bpe %s -q -s 300 -o %s/file.bpe"):format(path, folder)) }, { "", 0 })
  t.ok(read(folder .. "/part.bpe") == read(folder .. "/file.bpe"))
  t.eq(corpus.spec.fields.valid.default + corpus.spec.fields.test.default, 0.1)
end)

t.test("toeplab data bpe overwrites only merges", function()
  local text = write("train.txt", long)
  assert(os.execute("mkfifo " .. quote(folder .. "/pipe")))
  for name, want in pairs { ["train.txt"] = "exists and holds no merges", pipe = "not a plain file",
    ["."] = "not a plain file", ["none/x"] = "there is no folder " .. folder .. "/none/" } do
    local said, code = process("", ("data bpe %s --size 260 --out %s/%s"):format(text, folder,
      name))
    t.ok(code == 2 and said:find(want, 1, true), said)
  end
  t.ok(read(text) == long and core.sys.kind(folder .. "/pipe") == "other")
end)

-- ---- What is wrong ------------------------------------------------------------------------------

t.test("wrong texts", function()
  local wrong = {
    empty = { "", "empty%.txt: is empty" },
    binary = { "one\ntwo\n\0\1\2", "binary%.txt: line 3 has the byte 0x00: this is not UTF%-8" },
    latin = { "a\nb\ncaf\xe9 x\n", "latin%.txt: line 3 has the byte 0xe9" },
    truncated = { "one\neuro \xe2\x82", "truncated%.txt: line 2 has the byte 0xe2" },
    far = { ("x\n"):rep(900000) .. "\xff\n", "far%.txt: line 900001 has the byte 0xff" },
  }
  for name, case in pairs(wrong) do
    local path = write(name .. ".txt", case[1])
    for _, kind in ipairs { "word", "char", "bpe" } do
      t.raises(corpus, case[2], path, { tokenizer = kind, merges = kind == "bpe" and small or nil })
    end
  end
  t.eq(corpus(folder .. "/binary.txt", { tokenizer = "byte" }).train:numel(), 11)
  t.raises(corpus, "is not a file", "/dev/null", { tokenizer = "word" })
  t.raises(corpus, "1 tokens leave nothing to train on", "text:x")
end)

t.test("wrong vocabularies and options", function()
  local path, name = write("right.txt", long), "text:" .. long
  t.raises(corpus, "'bpe' requires merges .* or vocab_size", path, { tokenizer = "bpe" })
  t.raises(corpus, "has 512 tokens, but vocab_size is 600", path,
    { tokenizer = "bpe", merges = small, vocab_size = 600 })
  t.raises(corpus, "none.bpe: open failed: No such file", path,
    { tokenizer = "bpe", merges = folder .. "/none.bpe" })
  t.raises(corpus, "^tokenizer bpe: [^:]*right.txt:1: not two tokens", path,
    { tokenizer = "bpe", merges = path })
  t.raises(corpus, "'wrd' is not one of char, byte, word, bpe, gpt2", name, { tokenizer = "wrd" })
  t.raises(corpus, "unknown option 'tokens'", name, { tokens = "byte" })
  for option, value in pairs { merges = small, vocab_size = 300 } do
    local given = { tokenizer = "word", [option] = value }
    t.raises(corpus, option .. " requires the tokenizer 'bpe'; 'word' does not", name, given)
    t.ok(corpus(name, options.shared("c", given)))
  end
  local short = "%d+ training tokens are fewer than length %+ 1 = 100001"
  t.raises(corpus, short, name, { tokenizer = "word", length = 100000 })
  local data = corpus(name, { tokenizer = "word", batch = 1 })
  t.raises(data.batch, short, data, 1, 1, 100000)
  t.raises(data.vocab.decode, "id %d+ is not in 0%.%.", data.vocab, { data.vocab:size() })
  t.raises(data.vocab.decode, "id %-1 is not in 0%.%.", data.vocab, { -1 })
end)

t.test("refuses a set that is absent or not the published one", function()
  assert(core.sys.mkdir(folder .. "/data/tinyshakespeare"))
  write("data/tinyshakespeare/input.txt", "To be, or not")
  local environment = "XDG_CACHE_HOME=" .. folder .. " TOEPLAB_DATA=" .. folder .. "/data"
  local code = "require 'toeplab.tasks.corpus'(%q, { tokenizer = %q })"
  local function says(name, kind) return (run(environment, code:format(name, kind))) end
  t.ok(says("tinyshakespeare", "word"):find(
    "has 13 bytes, the published file 1115394: truncated, or another text", 1, true))
  write("data/tinyshakespeare/input.txt", ("x"):rep(1115394))
  t.ok(says("tinyshakespeare", "word"):find("differs from the published file", 1, true))
  t.ok(says("wikitext-2", "word"):find("corpus wikitext-2 is not here. Either", 1, true))
  t.ok(says("text:abc abc", "gpt2"):find("gpt2-bpe/vocab.bpe is not here. Either", 1, true))
  assert(core.sys.mkdir(folder .. "/data/gpt2-bpe"))
  for _, name in ipairs { "vocab.bpe", "encoder.json", "dict.txt" } do
    write("data/gpt2-bpe/" .. name, ("x"):rep(456318))
  end
  t.ok(says("text:abc abc", "gpt2"):find("vocab.bpe differs from the published file", 1, true))
  write("data/gpt2-bpe/vocab.bpe", "#version: 0.2\n")
  t.ok(says("text:abc abc", "gpt2"):find("has 14 bytes, the published file 456318", 1, true))
  t.ok(says(1, "word"):find("a corpus is named by a string, not by a number", 1, true))
end)

t.test("a set with a file for each part uses them as its parts", function()
  assert(core.sys.mkdir(folder .. "/data/mine"))
  for name, text in pairs { train = " a b \n", valid = " b c \n", test = " c \n" } do
    write("data/mine/" .. name, text)
  end
  local said = run("TOEPLAB_DATA=" .. folder .. "/data", [[
    local datasets, corpus = require "toeplab.tasks.datasets", require "toeplab.tasks.corpus"
    table.insert(datasets.list, { name = "mine", files = { { "mine/train" }, { "mine/valid" },
      { "mine/test" } }, parts = { train = { "mine/train" }, valid = { "mine/valid" },
      test = { "mine/test" } } })
    local data = corpus("mine", { tokenizer = "word" })
    for _, part in ipairs { "train", "valid", "test" } do
      print(data.vocab:decode(data[part]), data:stream(part):get(1))
    end
    print(#data.hash, data.bytes_per_token.test)
    data = corpus("mine", { tokenizer = "char" })
    print(data.vocab:size(), data.test:numel(), data:stream("test"):get(1))
  ]])
  t.eq(said, " a b \n\t2\n b <unk> \n\t2\n <unk> \n\t2\n64\t2.0\n5\t4\t0\n")
end)

t.test("a file that changes between two uses in one process is read and hashed again", function()
  local line, other = "the old man told a tale\n", "tale told a old man the\n"
  local path = write("changing.txt", line:rep(40))
  t.eq(corpus.hash(path), core.sha256(line:rep(40)))
  write("changing.txt", (line .. other):rep(20))
  t.eq(corpus.hash(path), core.sha256((line .. other):rep(20)))
  t.eq(corpus(path, { tokenizer = "word" }).hash, core.sha256_file(path))
end)

t.test("train_tokens does not change the token before the validation part", function()
  local text = "text:" .. ("abcdefghij"):rep(60)
  local whole, some = corpus(text), corpus(text, { train_tokens = 101 })
  t.eq(some.train:numel(), 101)
  t.eq(some:stream "valid", whole:stream "valid")
end)

t.test("the end", function() os.execute("rm -rf " .. quote(folder)) end)

t.done()
