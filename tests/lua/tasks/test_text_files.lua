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
