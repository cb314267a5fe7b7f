-- test_spelling.lua: tokens become text in whole characters, up to a string at which it stops.
local t = require "harness"
local spelling = require "toeplab.models.spelling"

-- Returns the pieces of text that tokens become, the last one being what the end brings, and
-- whether a string ended the text.
local function pieces(tokens, stops, before)
  local vocab = { token = function(_, id) return tokens[id] end }
  local of, list = spelling(vocab, stops or {}, before or ""), {}
  for i in ipairs(tokens) do
    local stopped
    list[i], stopped = of:add(i)
    if stopped then return list, true end
  end
  list[#list + 1] = of:finish()
  return list, false
end

local EURO, SMILE, WHAT = "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\u{FFFD}"

for _, case in ipairs {
  { "plain tokens are shown at once", { "a", "bc" }, { "a", "bc", "" } },
  { "a character of three tokens", { "\xe2", "\x82", "\xac!" }, { "", "", EURO .. "!", "" } },
  { "a character of four", { "x\xf0", "\x9f\x98", "\x80" }, { "x", "", SMILE, "" } },
  { "one that never ends is left out", { "a", "\xe2\x82" }, { "a", "", "" } },
  { "one that is not gone on with", { "\xe2\x82", "a" }, { "", WHAT .. WHAT .. "a", "" } },
  { "bytes that begin nothing", { "a\x82", "\xff" }, { "a" .. WHAT, WHAT, "" } },
  { "an overlong form", { "\xc0\xaf" }, { WHAT .. WHAT, "" } },
  { "a surrogate", { "\xed\xa0\x80" }, { WHAT .. WHAT .. WHAT, "" } },
  { "a prompt cut within a character", { "\xac", "." }, { EURO, ".", "" }, nil, "a\xe2\x82" },
} do
  t.test(case[1], function() t.eq(pieces(case[2], case[4], case[5]), case[3]) end)
end

for _, case in ipairs { -- tokens, stops, text, stopped
  { "within a token", { "a b. c" }, { "." }, "a b", true },
  { "straddling tokens", { "a", " EN", "D", "x" }, { " END" }, "a", true },
  { "straddling three", { "a", "x", "y", "z", "b" }, { "xyz" }, "a", true },
  { "begun and not ended", { "a", " EN", "T" }, { " END" }, "a ENT", false },
  { "begun at the end", { "a", " EN" }, { " END" }, "a EN", false },
  { "begun again within itself", { "aa", "ab" }, { "aab" }, "a", true },
  { "of two the one that is complete first", { "xyz" }, { "xyz", "y" }, "x", true },
  { "and of those the longer one", { "xyz" }, { "yz", "xyz", "z" }, "", true },
  { "of characters of several bytes", { "a\xe2", "\x82", "\xac" }, { EURO }, "a", true },
  { "that shares the first bytes with another character", { "\xe2", "\x82\xad" }, { EURO },
    "\u{20AD}", false },
  { "as the first token", { "x" }, { "x" }, "", true },
  { "with magic characters", { "a%", "d+" }, { "%d" }, "a", true },
} do
  t.test("a stop " .. case[1], function()
    local list, stopped = pieces(case[2], case[3])
    t.eq({ table.concat(list), stopped }, { case[4], case[5] })
    for _, piece in ipairs(list) do t.ok(utf8.len(piece), "not whole: " .. piece) end
    -- The same text by single bytes ends at the same place.
    local bytes = {}
    for byte in table.concat(case[2]):gmatch "." do bytes[#bytes + 1] = byte end
    list, stopped = pieces(bytes, case[3])
    t.eq({ table.concat(list), stopped }, { case[4], case[5] })
  end)
end

t.test("the prompt does not stop the text", function()
  local list, stopped = pieces({ "b" }, { "ab" }, "a")
  t.eq({ table.concat(list), stopped }, { "b", false })
end)

t.done()
