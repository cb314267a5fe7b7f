-- test_text_table.lua: tables as aligned text, as Markdown and as CSV.
local t = require "harness"
local text_table = require "toeplab.base.text_table"

t.test("tables are aligned, CSV is quoted", function()
  t.eq(text_table.lines({ "name", "x" }, { { "a", 1.5 }, { "bé", 22 } }),
    { "name       x", "a     1.5000", "bé        22" })
  -- Of two columns, of none (a combining accent, a joiner), and both.
  t.eq(text_table.lines({ "name", "x" }, { { "模型", 1 }, { "e\u{301}a\u{200d}", 2 }, { "😀b", 3 } }),
    { "name  x", "模型  1", "e\u{301}a\u{200d}    2", "😀b   3" })
  t.eq(text_table.lines({ "two\nlines", 3 }, { { "\27[2J", "x" } }),
    { "two lines  3", "\\x1b[2J    x" })
  t.eq(text_table.markdown({ "[a](javascript:b)" }, {})[1], "| \\[a\\](javascript:b) |")
  local wide = ("n"):rep(100000) -- a pattern that looks for blanks from the left takes minutes
  t.eq(#text_table.lines({ "a", wide }, { { "b", 1 } })[2], 100003)
  t.eq(text_table.csv({ "a", "b" }, { { 'say "x"', 1.5 }, { "p,q", nil } }),
    'a,b\n"say ""x""",1.5\n"p,q",\n')
end)

t.done()
