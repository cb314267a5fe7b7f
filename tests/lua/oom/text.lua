-- text.lua: for lua_oom; vocabularies, encoders, counters and learnt byte pairs. Its argument is an
-- empty folder.
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
