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

t.test("a byte order mark is no token", function()
  for _, tokenizer in ipairs { "char", "word", "byte" } do
    t.eq(tokens("\xef\xbb\xbf" .. TEXT, tokenizer), tokens(TEXT, tokenizer))
  end
  t.raises(tokens, "is empty", "\xef\xbb\xbf", "char")
end)

t.test("lines that end in a carriage return have the words of others", function()
  t.eq(tokens(TEXT:gsub("\n", "\r\n"), "word"), tokens(TEXT, "word"))
end)

t.done()
