-- tasks/corpus.lua: turns a text into token ids, splits it into train, valid and test, and makes
-- the batches of a training run.
local core = require "toeplab.core"
local epochs = require "toeplab.tasks.epochs"
local images = require "toeplab.tasks.images"
local options = require "toeplab.base.options"
local recorded = require "toeplab.tasks.recorded"
local source = require "toeplab.tasks.source"
local errors = require "toeplab.base.errors"
local streams = require "toeplab.base.streams"
local suggest = require "toeplab.base.suggest"
local tasks = require "toeplab.tasks"
local tokenizer = require "toeplab.tasks.tokenizer"

local corpus = {}

local PARTS = { "train", "valid", "test" }

local Corpus = {}
Corpus.__index = Corpus

local spec = options.declare "tl.corpus" {
  { "tokenizer", options.field { default = "char", choices = tokenizer.names },
    "the kind of tokens" },
  { "merges", options.field { type = "string", optional = true },
    "for bpe: a file made by 'toeplab data bpe'" },
  { "vocab_size", options.field { type = "int", min = 256, optional = true },
    "for bpe without merges: number of tokens to learn from the training text" },
  { "length", options.field { type = "int", min = 1, max = 1 << 31, optional = true },
    "tokens predicted per row of a batch" },
  { "batch", options.field { type = "int", min = 1, max = 1 << 31, optional = true },
    "rows of a batch" },
  { "order", options.field { default = "blocks", choices = { "blocks", "random" } },
    "consecutive blocks, shuffled every epoch, or rows at random places" },
  { "valid", options.field { default = 0.05, min = 0, max = 0.9 },
    "fraction held out before the test part, of a text that is not split already" },
  { "test", options.field { default = 0.05, min = 0, max = 0.9 }, "fraction held out at the end" },
  { "valid_file", options.field { type = "string", optional = true },
    "a text to validate with, and nothing is held out; requires test_file" },
  { "test_file", options.field { type = "string", optional = true },
    "a text to test with; requires valid_file" },
  { "train_tokens", options.field { type = "int", min = 2, max = 1 << 53, optional = true },
    "tokens at the start of the training part to train on (default: all)" },
  { "seed", options.field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's, which is the trial's)" },
  { "documents", options.field { default = "joined", choices = { "joined", "packed" } },
    "whether tl.lm reads the documents of a row as one text, or each alone" },
  { "separator", options.field { type = "string", optional = true },
    "the token between packed documents, as text (default: the end of a line)" },
}

corpus.spec = spec -- for options.check

-- Returns the sha256 of a corpus, equal to tl.corpus(name).hash, or of a task (tl.tasks). If the
-- data is absent, raises a usage error on how to get it.
function corpus.hash(name)
  local of_task = type(name) == "string" and (tasks.hash(name) or images.hash(name))
  return of_task or source.find(name).hash
end

-- Encodes a text of characters or bytes as a whole, and splits it at fractions of its tokens.
local function cut_ids(self, tok, part)
  local ids = tokenizer.ids(tok, part)
  local total = ids:numel()
  local counts = { test = math.floor(total * self.options.test),
    valid = math.floor(total * self.options.valid) }
  counts.train = total - counts.valid - counts.test
  local first = 1
  for _, name in ipairs { "train", "valid", "test" } do
    local count = counts[name]
    if count > 0 then
      self[name] = ids:narrow(1, first, count)
      self.bytes_per_token[name] = #self.vocab:decode(self[name]) / count
    end
    first = first + count
  end
end

-- Encodes the texts of the parts separately.
local function encode_parts(self, tok, parts)
  for name, part in pairs(parts) do
    self[name] = tokenizer.ids(tok, part)
    self.bytes_per_token[name] = source.bytes(part) / math.max(1, self[name]:numel())
  end
end

-- Returns the token before the first one of a part: the end-of-line token, or else the last token
-- of the preceding part; nil if there is neither.
local function token_before(self, part)
  local before = self.vocab:eos()
  if before then return before end
  for _, name in ipairs(PARTS) do
    if name == part then return before end
    if self[name] then
      before = name == "train" and self.train_end or self[name]:get(self[name]:numel())
    end
  end
end

-- Returns the ids of a part ("train", "valid" or "test") preceded by one token, so that the first
-- of them is a target too, for tl.blocks and tl.eval; nil if the part is empty.
function Corpus:stream(part)
  if getmetatable(self) ~= Corpus then
    error("corpus: stream is a method: write data:stream \"test\"", 2)
  end
  local ok, why = suggest.choose("part of a corpus", part, PARTS)
  if not ok then error("corpus: " .. why, 2) end
  local ids = self[part]
  if ids and not self.streams[part] then
    local before = token_before(self, part)
    self.streams[part] = before and core.concat({ core.ids { before }, ids }, 1) or ids
  end
  return self.streams[part]
end

-- Returns the name for messages; shortens a name that is itself a text to a line.
local function shown(name)
  local long = #name > 40 or name:find "%c"
  return long and name:find "^text:" and "text:..." or name
end

-- level: of the user's call, as for error.
local function too_short(self, total, length, level)
  error(("corpus %s: %d training tokens are fewer than length + 1 = %.0f"):format(shown(self.name),
    total, length + 1.0), level)
end

-- Raises an error if a part is empty that the given options request. A part may be empty by
-- default.
local function check_parts(self, given)
  local o, total = self.options, self.train:numel()
  for _, part in ipairs { "valid", "test" } do
    if o[part] > 0 and not self[part] and options.given(given or {}, part) then
      error(("corpus %s: %d tokens are too few to hold out the fraction %g"):format(
        shown(self.name), total, o[part]), 3)
    end
  end
  if o.length and total <= o.length then too_short(self, total, o.length, 4) end
end

-- Shortens the training part to its first count tokens. Keeps the vocabulary of the whole part, so
-- that losses after training on texts of different sizes can be compared.
local function shorten(self, count)
  local total = self.train:numel()
  if count > total then
    error(("corpus %s: train_tokens = %d, but the training part has %d tokens"):format(
      shown(self.name), count, total), 0)
  end
  self.train_end = self.train:get(total) -- the token before the next part
  self.train = self.train:narrow(1, 1, count)
  self.bytes_per_token.train = #self.vocab:decode(self.train) / count
end

-- Raises an error for options that other options leave without effect; a shared configuration may
-- have them.
local function check_taken(o, given)
  if not given or options.is_shared(given) then return end
  if given.separator and o.documents == "joined" then
    errors.usage "corpus: separator requires documents = 'packed'"
  end
  if o.tokenizer == "bpe" then return end
  for _, name in ipairs { "merges", "vocab_size" } do
    if given[name] ~= nil then
      errors.usage("corpus: %s requires the tokenizer 'bpe'; '%s' does not take it", name,
        o.tokenizer)
    end
  end
end

-- Returns the id of the token between documents if they are packed, else nil.
local function separator(o, vocab)
  local text, eos = o.separator, vocab:eos()
  if o.documents == "joined" then return nil end
  if not text and eos then return eos end
  local known, ids = pcall(function() return vocab:encode(text or "\n"):totable() end)
  if known and #ids == 2 and ids[2] == eos then ids[2] = nil end -- encode adds the end of a line
  if not known or #ids ~= 1 or not vocab:decode(core.ids(ids)):find(text or "\n", 1, true) then
    errors.usage("corpus: separator = '%s' is not one token of this vocabulary", text or "\\n")
  end
  return ids[1]
end

-- Returns the bits a token that 5-grams of the training part need on the test part: {ngram_bits=}.
local function yardsticks(self)
  if not self.test then errors.usage "corpus: yardsticks requires a test part" end
  return { ngram_bits = core.ngram_bits(self.train, self.test, 5, self.vocab:size(),
    "kneser-ney") }
end

-- tl.corpus(name, options): returns a corpus with the fields train, valid and test (int32 vectors
-- of ids; the last two are nil if empty), vocab, vocab_files (the files it was read from), hash,
-- separator (an id if documents are packed, else nil), bytes_per_token.train, .valid, .test, and
-- yardsticks(). name: of a text, or {train=, valid=, test=}. The options may be a trial's
-- configuration, of which only those above are read.
function corpus.open(name, given)
  local o = options.check("corpus", spec, given)
  check_taken(o, given)
  local texts = source.texts(name, o)
  local from = source.find(texts or name)
  name = texts and texts.train or name
  local self = setmetatable({ name = name, options = o, seed = o.seed or streams.seed_of(),
    bytes_per_token = {}, streams = {} }, Corpus)
  self.order = epochs.order(self.seed, "data.epoch.")
  if o.valid + o.test >= 1 then
    errors.usage("corpus: valid = %g and test = %g leave nothing to train on", o.valid, o.test)
  end
  self.hash = from.hash
  for one, hash in pairs(from.hashes or { [name] = from.hash }) do
    recorded.check(one, hash, "corpus " .. shown(one))
  end
  local by_ids = from.whole and (o.tokenizer == "char" or o.tokenizer == "byte")
  local parts = from.parts or by_ids and { train = from.whole }
    or source.split(from.whole, o.valid, o.test)
  if not parts.train then
    errors.usage("corpus %s: %d bytes leave nothing to train on", shown(name), from.whole.bytes)
  end
  local tok = tokenizer.new(o.tokenizer, parts, { merges = o.merges, vocab_size = o.vocab_size })
  self.vocab, self.vocab_files = tok.vocab, tok.files
  self.separator = separator(o, tok.vocab)
  if o.tokenizer == "bpe" and o.merges then
    recorded.check_file(o.merges, "the file of merges " .. o.merges)
  end
  if by_ids then
    cut_ids(self, tok, from.whole)
  else
    encode_parts(self, tok, parts)
  end
  if not self.train or self.train:numel() < 2 then
    errors.usage("corpus %s: %d tokens leave nothing to train on", shown(name),
      self.train and self.train:numel() or 0)
  end
  if from.head then
    recorded.add_part(("corpus %s: here only the first %d tokens of its training part")
      :format(name, self.train:numel()))
  end
  if o.train_tokens then shorten(self, o.train_tokens) end
  check_parts(self, given)
  function self.yardsticks() return yardsticks(self) end
  return self
end

-- Raises an error if a part has fewer tokens than one of the lengths, so that a run fails before
-- its training, not after it.
function Corpus:check_lengths(part, lengths)
  local tokens = self[part] and self[part]:numel() or 0
  for _, n in ipairs(lengths) do
    if n < 1 or n > tokens then
      error(("length %d is not from 1 to %d, the tokens of the %s part: set shorter lengths, or "
        .. "take a longer text"):format(n, tokens, part), 0)
    end
  end
end

local function block_starts(self, step, batch, length, total)
  local blocks = (total - 1) // length
  local starts = {}
  for row = 1, batch do
    local place = (step - 1) * batch + row - 1
    starts[row] = self.order(place // blocks, blocks)[place % blocks + 1] * length
  end
  return starts
end

local function random_starts(self, step, batch, length, total)
  local stream = core.stream(self.seed, "data.step." .. step)
  local starts = {}
  for row = 1, batch do starts[row] = stream:below(total - length) end
  return starts
end

-- Returns the batch of a step (1, 2, ...): ids [batch, length+1] from the training part. The first
-- length tokens of a row are the inputs, the last length the targets. The batch depends on the seed
-- and the step only. In order "blocks" the targets are consecutive blocks, each epoch takes every
-- block once, and the remainder of the text is left out.
function Corpus:batch(step, batch, length)
  batch, length = batch or self.options.batch, length or self.options.length
  if not batch or not length then
    error("corpus: batch and length must be given to tl.corpus or to :batch", 2)
  end
  options.count("corpus:batch", "step", step)
  options.count("corpus:batch", "batch", batch)
  options.count("corpus:batch", "length", length)
  local total = self.train:numel()
  if total <= length then too_short(self, total, length, 3) end
  local starts_of = self.options.order == "blocks" and block_starts or random_starts
  local starts = starts_of(self, step, batch, length, total)
  return core.windows(self.train, core.ids(starts), length + 1)
end

return setmetatable(corpus, {
  __call = function(_, name, given) return corpus.open(name, given) end,
})
