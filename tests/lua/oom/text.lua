-- text.lua: for lua_oom; vocabularies, encoders, counters and learnt byte pairs, images. Its
-- argument is an empty folder.
local core = require "toeplab.core"
local folder = ...
local text = " the cat on the mat \n that the rat sat at \n"

local words <close> = core.counter "words"
words:feed(text)
local vocab <close> = core.vocab_words(words)
assert(vocab:decode(vocab:encode(text)) == text and vocab:eos())

local pieces <close> = core.counter "pieces"
pieces:feed(text)
assert(pieces:size() > 5)
core.bpe_train(pieces, 258, folder .. "/merges")
local bpe <close> = core.vocab_bpe(folder .. "/merges")
local encoder <close> = bpe:encoder()
encoder:feed(text:sub(1, 10))
encoder:feed(text:sub(11))
local ids <close> = encoder:finish()
assert(bpe:decode(ids) == text and encoder:count() == ids:numel())

local frequent <close> = core.vocab_frequent(text, 2)
assert(frequent:eos() == 2 and frequent:encode("t"):get(1) > 2)
local list, starts, answers = core.listops { seed = 1, count = 3, min_length = 3, max_length = 9 }
local first = starts:get(2)
assert(core.listops_value(list, 0, first) == answers:get(1))
local again <close> = core.listops_parse(core.listops_text(list, 0, first))
assert(again:numel() == first)
local rows, lengths = core.padded(list, starts, core.ids { 2, 0 }, 6, 2, 0)
assert(rows:dim(2) == 6 and lengths:get(1) <= 6)
local images <close> = core.images("abcdef", 3)
local pixels <close> = images:batch(core.ids { 1 })
assert(pixels:get(1, 1) == 100 and images:bytes(0) == "abc")
for _, t in ipairs { list, starts, answers, rows, lengths } do t:close() end
