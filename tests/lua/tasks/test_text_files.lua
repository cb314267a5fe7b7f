-- test_text_files.lua: texts as other systems write them: with a byte order mark, with lines that
-- end in a carriage return.
local t = require "harness"
local core = require "toeplab.core"
local corpus = require "toeplab.tasks.corpus"

local TEXT = "Der Zug kam schnell.\nEr hielt .\n\nUnd fuhr\n"

-- Returns the vocabulary size and the ids of a text that lies in a file.
local function tokens(text, tokenizer)
  local found
  t.in_folder(function(folder)
    local path = folder .. "/text.txt"
    assert(core.sys.write_file(path, text))
    local data = corpus(path, { tokenizer = tokenizer, valid = 0.0, test = 0.0, length = 2 })
    found = { data.vocab:size(), data.train:totable() }
  end)
  t.ok(#found[2] > 5)
  return found
end

t.test("a byte order mark is not a token", function()
  for _, tokenizer in ipairs { "char", "word", "byte" } do
    t.eq(tokens("\xef\xbb\xbf" .. TEXT, tokenizer), tokens(TEXT, tokenizer))
  end
  t.raises(tokens, "is empty", "\xef\xbb\xbf", "char")
end)

t.test("a carriage return before a line end is not a token, except of bytes", function()
  local half = 1 << 20 -- a text is read in pieces of this many bytes
  local long = ("a"):rep(half - 1) .. "\n" .. TEXT
  for _, tokenizer in ipairs { "char", "word" } do
    for _, text in ipairs { TEXT, long, "\r" .. TEXT } do
      t.eq(tokens(text:gsub("\n", "\r\n"), tokenizer), tokens(text, tokenizer))
    end
  end
  t.eq(#tokens(TEXT:gsub("\n", "\r\n"), "byte")[2], #TEXT + 4)
end)

t.test("a folder is a corpus: files of the parts, or else consecutive texts", function()
  t.in_folder(function(folder)
    local function read(more)
      local data = corpus(folder, { tokenizer = "char", valid = 0.0, test = 0.0, length = 2 })
      local text = data.vocab:decode(data.train)
      return more and { text, data.vocab:decode(data.valid), data.vocab:decode(data.test) } or text,
        data.hash
    end
    t.raises(read, "has no file")
    t.write(folder .. "/b.txt", "second")
    t.write(folder .. "/a.txt", "first\n")
    t.write(folder .. "/.hidden", "no")
    assert(core.sys.mkdir(folder .. "/more"))
    local text, hash = read()
    t.eq(text, "first\nsecond\n")
    t.write(folder .. "/b.txt", "second time")
    t.eq({ read() == text, select(2, read()) == hash }, { false, false })
    t.write(folder .. "/b.txt", "second\n\xff")
    t.raises(read, "corpus .*/b%.txt: line 2 has the byte 0xff")
    t.eq(corpus(folder, { tokenizer = "byte", valid = 0.0, test = 0.0 }).train:numel(), 15)
    t.write(folder .. "/train.txt", "to learn")
    t.raises(read, "has .*/train%.txt, but no file valid%.txt")
    t.write(folder .. "/valid.txt", "to tell")
    t.write(folder .. "/test.md", "to learn")
    t.eq(read(true), { "to learn", "to tell", "to learn" })
    t.write(folder .. "/test.txt", "another")
    t.raises(read, "both .*/test%.md and .*/test%.txt are its test part")
  end)
end)

t.test("three texts are a corpus, in a table or by options", function()
  t.in_folder(function(folder)
    assert(core.sys.mkdir(folder .. "/test"))
    local names = { train = folder .. "/train.txt", valid = folder .. "/valid.txt",
      test = folder .. "/test" }
    for part, text in pairs { train = "to learn\r\n", valid = "to tell\n" } do
      t.write(names[part], text)
    end
    t.write(names.test .. "/a.txt", "to judge")
    local function parts(...)
      local data, text = corpus(...), {}
      for part in pairs(names) do text[part] = data.vocab:decode(data[part]) end
      return text, data.hash
    end
    local by_options = { valid_file = names.valid, test_file = names.test, valid = 0.5 }
    local text, hash = parts(names)
    t.eq({ text, hash }, { { train = "to learn\n", valid = "to tell\n", test = "to judge\n" },
      corpus.hash(names) })
    t.eq({ parts(names.train, by_options) }, { text, hash })
    t.eq(corpus(names.train, { valid = 0.0, test = 0.0 }).train:numel(), 9) -- of this file alone
    t.write(names.valid, "to say")
    t.ok(select(2, parts(names)) ~= hash)
    t.write(folder .. "/test.txt", "to judge\n")
    os.remove(names.test .. "/a.txt")
    os.remove(names.test)
    local hashed = parts { train = names.train, valid = names.valid, test = folder .. "/test.txt" }
    t.eq({ hashed, corpus.hash(folder) }, { parts(folder) })
    for _, case in ipairs {
      { "option 'test' is missing: name a text", { train = names.train, valid = names.valid } },
      { "option 'valid_file' is missing", names.train, { test_file = names.valid } },
      { "its name has three texts, so it does not take valid_file", names,
        { valid_file = names.valid } },
      { "its train part is named by a string, not by a table", { train = { names.train },
        valid = names.valid, test = names.valid } },
      { "there is no part of a corpus 'dev'", { train = names.train, dev = names.valid } },
      { "has parts of its own, and cannot be the valid part",
        { train = names.train, valid = folder, test = names.valid } },
      { "test: No such file", names },
    } do
      t.raises(corpus, case[1], case[2], case[3])
    end
  end)
end)

t.test("a folder or file that is named without ./ is pointed out", function()
  t.in_folder(function(folder)
    assert(core.sys.mkdir(folder .. "/texts"))
    t.write(folder .. "/notes", "words")
    local script = "require(\"toeplab.tasks.corpus\")(arg[1])"
    t.write(folder .. "/x.lua", script)
    for name, kind in pairs { texts = "folder", notes = "file" } do
      t.holds(t.shell(("cd '%s' && '%s' lua x.lua %s 2>&1"):format(folder, core.sys.executable(),
        name)), ("unknown corpus '%s': there is a %s ./%s: write corpus=./%s"):format(name, kind,
        name, name))
    end
  end)
end)

t.test("a corpus names what 5-grams of it reach", function()
  local data = corpus("text:" .. ("to be or not "):rep(40), {})
  local found = data.yardsticks()
  t.eq(found, { ngram_bits = core.ngram_bits(data.train, data.test, 5, data.vocab:size(),
    "kneser-ney") })
  t.ok(found.ngram_bits < 1)
  t.raises(corpus("text:to be or not", { test = 0.0 }).yardsticks, "requires a test part")
end)

t.done()
