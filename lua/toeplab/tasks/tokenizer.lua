-- tasks/tokenizer.lua: tokenizes the parts of a corpus, and caches the ids of large texts. Every
-- tokenizer has a vocabulary and a key; equal keys mean equal ids for the same text.
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"
local fetch = require "toeplab.tasks.fetch"
local source = require "toeplab.tasks.source"
local errors = require "toeplab.base.errors"
local watch = require "toeplab.base.watch"

local tokenizer = {}

local CACHED = 1 << 18 -- size in bytes from which the ids of a text are cached

-- Returns the folder `name` in the cache folder, or nil without a cache folder.
local function cache_folder(name)
  local cache = core.sys.cache_dir()
  local folder = cache and cache .. "/" .. name
  return folder and core.sys.mkdir(folder) and folder or nil
end

-- Calls fn(...) and raises its errors as usage errors, since the user's text or file caused them,
-- except when memory or disk space ran out.
local function blame_input(who, fn, ...)
  local ok, result = pcall(fn, ...)
  if ok then return result end
  local exhausted = errors.storage_problem(result) == "full"
    or type(result) == "table" and rawget(result, "status") == "ENOMEM"
  if exhausted or errors.is(result) then error(result, 0) end
  errors.usage("%s: %s", who, errors.text(result))
end

-- Feeds the pieces of a part to a counter or an encoder. what: the progress text. If o.ended, adds
-- a newline to a last line without one.
local function feed(part, to, what, o)
  local ends = true
  watch.work(what .. " " .. part.name:match("[^/]*$"), part.bytes, nil, function(show)
    source.each(part, o.plain, function(piece, done)
      to:feed(piece)
      show(done)
      ends = piece:byte(-1) == 10
    end)
  end)
  if o.ended and not ends then to:feed("\n") end
end

-- ---- The tokenizers: functions of the parts of a source and the options -------------------------

local kinds = {}

function kinds.byte()
  return { vocab = core.vocab_bytes(), key = "byte", plain = true, quick = true }
end

-- The vocabulary has the characters of all parts, as is usual for character models.
function kinds.char(parts)
  local texts, keys = {}, {}
  for _, name in ipairs { "train", "valid", "test" } do
    if parts[name] then
      source.each(parts[name], false, function(piece) texts[#texts + 1] = piece end)
      keys[#keys + 1] = parts[name].key
    end
  end
  return { vocab = core.vocab_chars(table.concat(texts)), key = "char " .. table.concat(keys, " "),
    quick = true }
end

function kinds.word(parts)
  local counter <close> = core.counter "words"
  feed(parts.train, counter, "counting the words of", { ended = true })
  return { vocab = core.vocab_words(counter), key = "word " .. parts.train.key, ended = true }
end

-- Learns the merges for vocab_size tokens from a part, and writes them to path.
function tokenizer.learn(part, vocab_size, path)
  local counter <close> = core.counter "pieces"
  feed(part, counter, "counting the pieces of", {})
  blame_input("corpus " .. part.name, core.bpe_train, counter, vocab_size, path)
end

-- Returns the file of the merges of the training part, and its vocabulary. Takes the merges from
-- the cache, or learns them.
local function learnt(part, o)
  local size = o.vocab_size
  if not size then
    errors.usage("corpus: tokenizer 'bpe' requires merges (a file made by 'toeplab data bpe') or "
      .. "vocab_size (to learn them from the training text)")
  end
  local folder = cache_folder "bpe"
  if not folder then
    errors.usage("corpus: no folder to store learnt merges in: set TOEPLAB_CACHE, or give merges")
  end
  local path = ("%s/%s.bpe"):format(folder, core.sha256(("bpe 1 %s %d"):format(part.key, size)))
  if core.sys.exists(path) then
    local ok, vocab = pcall(core.vocab_bpe, path)
    if ok then return path, vocab end
    watch.warn("%s; learning again", errors.text(vocab))
  end
  tokenizer.learn(part, size, path)
  return path, core.vocab_bpe(path)
end

function kinds.bpe(parts, o)
  local path, vocab = o.merges, nil
  if path then
    vocab = blame_input("tokenizer bpe", core.vocab_bpe, path)
  else
    path, vocab = learnt(parts.train, o)
  end
  if o.vocab_size and vocab:size() ~= o.vocab_size then
    errors.usage("corpus: %s has %d tokens, but vocab_size is %d", path, vocab:size(),
      o.vocab_size)
  end
  return { vocab = vocab, key = "bpe " .. core.sha256_file(path), files = { vocabulary = path } }
end

-- The ids of GPT-2's byte pairs in fairseq's dictionary, as in the published runs.
function kinds.gpt2()
  local set, files, keys = datasets.find "gpt2-bpe", {}, {}
  fetch.unpacked(set)
  for i, name in ipairs { "vocab.bpe", "encoder.json", "dict.txt" } do
    name = set.name .. "/" .. name
    if not datasets.place(name) then
      errors.usage("tokenizer gpt2: %s is not here. %s", name, datasets.advice(set))
    end
    local part = source.of_set(set, name)
    files[i], keys[i] = part.path, part.key
  end
  return { vocab = blame_input("tokenizer gpt2", core.vocab_bpe, table.unpack(files)),
    key = "gpt2 " .. table.concat(keys, " "), ended = true,
    files = { vocabulary = files[1], encoder = files[2], dictionary = files[3] } }
end

tokenizer.names = { "char", "byte", "word", "bpe", "gpt2" }

-- Returns the tokenizer `name` for parts {train=, ...}: {vocab=, key=, plain= (accepts any bytes),
-- quick= (too fast to cache its ids), ended= (adds a newline to a last line without one), files=
-- (the vocabulary's files)}. options: merges, vocab_size (bpe).
function tokenizer.new(name, parts, options) return kinds[name](parts, options or {}) end

-- ---- Ids ----------------------------------------------------------------------------------------

local function encode(tok, part)
  local encoder <close> = tok.vocab:encoder()
  blame_input("corpus " .. part.name, feed, part, encoder, "tokenising", tok)
  return encoder:finish()
end

-- Returns the ids in a cache file; nil and the reason if the file is damaged or its attributes
-- differ from `want`.
local function load(path, want)
  local ok, result = pcall(function()
    local file <close> = core.h5_open(path)
    local have = file:attrs "/"
    for name, value in pairs(want) do
      if have[name] ~= value then error(("%s: its %s differs"):format(path, name), 0) end
    end
    local ids = file:read "ids"
    if ids:type() ~= "int32" or ids:ndim() ~= 1 or ids:numel() ~= have.count then
      error(path .. ": its ids do not match their attributes", 0)
    end
    return ids
  end)
  if ok then return result end
  return nil, errors.text(result)
end

-- Returns the ids of a part, from the cache if it has them, else encodes and caches them.
function tokenizer.ids(tok, part)
  local folder = not tok.quick and part.bytes >= CACHED and cache_folder "tokens"
  if not folder then return encode(tok, part) end
  local about = { format = 2, text = part.key, tokenizer = tok.key, size = tok.vocab:size() }
  local path = ("%s/%s.h5"):format(folder, core.sha256(about.text .. "\n" .. about.tokenizer))
  if core.sys.exists(path) then
    local ids, why = load(path, about)
    if ids then return ids end
    watch.warn("token cache %s; writing it again", why)
  end
  local ids = encode(tok, part)
  about.count = ids:numel()
  local ok, why = pcall(core.h5_write, path, { { "ids", ids } }, about)
  if not ok then watch.warn("no token cache: %s", errors.text(why)) end
  return ids
end

return tokenizer
