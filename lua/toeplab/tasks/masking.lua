-- tasks/masking.lua: makes batches for masked language models, as fairseq does: blocks of whole
-- lines, in which a share of the tokens is masked.
--
-- data = tl.masking(ids, {...}) takes a stream of ids below vocab. It adds three tokens: vocab is
-- <s>, which begins every block, vocab + 1 is the padding and vocab + 2 is <mask>. Byte pairs have
-- no token that ends every line, as a newline is merged with its neighbours; for these, vocab + 3
-- is </s>, which replaces every token with a newline. A vocabulary that already has <s> and the
-- padding, such as fairseq's dictionary, gets <mask> only (masking.specials). The masked tokens of
-- a block depend on the seed, the epoch and the block only, so a run can resume without saved
-- masks, and every epoch has different ones.

local core = require "toeplab.core"
local epochs = require "toeplab.tasks.epochs"
local evaluating = require("toeplab.train.eval").evaluating
local options = require "toeplab.base.options"
local ranks = require "toeplab.train.ranks"
local streams = require "toeplab.base.streams"
local suggest = require "toeplab.base.suggest"
local update = require "toeplab.train.update"
local watch = require "toeplab.base.watch"

local Masking = {}
Masking.__index = Masking

local field = options.field
local share = function(default) return field { default = default, min = 0, max = 1 } end

local spec = options.declare "tl.masking" {
  { "vocab", field { type = "int", min = 2 }, "tokens of the stream, without the added ones" },
  { "length", field { type = "int", min = 2 }, "most tokens of a block, <s> included" },
  { "batch", field { type = "int", min = 1 }, "blocks in a batch" },
  { "eos", field { type = "int", min = 0, optional = true },
    "the token that ends a line; blocks end at line ends, unless a line is longer than a block" },
  { "newlines", field { type = "table", optional = true },
    "in place of eos, the tokens with a newline: each becomes a new token that ends a line" },
  { "first", field { type = "int", min = 0, optional = true },
    "the token <s> (default: a new one)" },
  { "pad", field { type = "int", min = 0, optional = true },
    "the token of the padding (default: a new one)" },
  { "special", field { default = 0, min = 0 },
    "tokens below this one never replace another at random" },
  { "share", share(0.15), "share of the tokens to predict" },
  { "kept", share(0.1), "share of these that stay unchanged" },
  { "replaced", share(0.1), "share of these that become a random token; the rest become <mask>" },
  { "multiple", field { default = 32, min = 1 }, "rows are padded to a multiple of this length" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of order and masks (default: tl.seed's)" },
}

-- ---- Blocks -------------------------------------------------------------------------------------

-- Replaces the tokens of ids, a list, that are keys of newlines by eos.
local function end_lines(ids, newlines, eos)
  for i, id in ipairs(ids) do
    if newlines[id] then ids[i] = eos end
  end
  return ids
end

-- Calls fn(first, last) for each line of ids. A line of more than most tokens is cut.
local function each_line(ids, eos, most, fn)
  local first = 1
  for i, id in ipairs(ids) do
    if id == eos or i - first + 1 == most or i == #ids then
      fn(first, i)
      first = i + 1
    end
  end
end

-- Packs the lines of ids, a list, into blocks of at most length tokens. Returns the stream, in
-- which tokens.first precedes each block, and the starts of the blocks (from 0) followed by the end
-- of the stream.
local function pack(ids, tokens, length)
  local list, starts = {}, {}
  local most, size = length - 1, math.huge
  each_line(ids, tokens.eos, most, function(first, last)
    if size + last - first + 1 > most then
      starts[#starts + 1] = #list
      list[#list + 1] = tokens.first
      size = 0
    end
    size = size + last - first + 1
    table.move(ids, first, last, #list + 1, list)
  end)
  starts[#starts + 1] = #list
  return list, starts
end

-- Returns the tokens {first=, pad=, mask=, eos= (nil: lines have no end)} and their number vocab,
-- including the ones added to a vocabulary of o.vocab tokens because o does not name them.
local function added(o)
  local tokens = { vocab = o.vocab, eos = rawget(o, "eos") }
  for _, name in ipairs { "first", "pad", "mask", rawget(o, "newlines") and "eos" } do
    tokens[name] = rawget(o, name) or tokens.vocab
    if tokens[name] == tokens.vocab then tokens.vocab = tokens.vocab + 1 end
  end
  return tokens
end

-- Raises for special tokens that are not in the vocabulary, for two ways to end a line, and if no
-- token is left that may replace another at random.
local function check_tokens(o)
  local function inside(name, id)
    if math.type(id) ~= "integer" or id < 0 or id >= o.vocab then
      error(("masking: %s = %s is not in 0..vocab - 1 = %d"):format(name, tostring(id),
        o.vocab - 1), 4)
    end
  end
  for _, name in ipairs { "first", "pad", "eos" } do
    if o[name] then inside(name, o[name]) end
  end
  if o.eos and o.newlines then
    error("masking: give one of newlines and eos", 3)
  end
  local ends = { [o.eos or -1] = true }
  for i, id in ipairs(o.newlines or {}) do
    inside(("newlines[%d]"):format(i), id)
    ends[id] = true
  end
  for id = o.special, o.vocab - 1 do
    if not ends[id] then return end
  end
  if o.replaced > 0 then
    error(("masking: no token from special = %d on may replace another, as all end a line"):format(
      o.special), 3)
  end
end

-- tl.masking(ids, options): returns the batches of a stream ids [t] int32.
local function new(ids, given)
  local o = options.check("masking", spec, given)
  local self = setmetatable(added(o), Masking)
  self.opt, self.seed = o, o.seed or streams.seed_of()
  self.epoch_order = epochs.order(self.seed, "masking.epoch.")
  options.stream("masking", ids)
  if ids:numel() == 0 then error("masking: the stream is empty", 2) end
  if o.kept + o.replaced > 1 then
    error(("masking: kept = %g and replaced = %g exceed 1 together"):format(o.kept, o.replaced), 2)
  end
  if o.special >= o.vocab - 1 then
    error(("masking: special = %d leaves no token of %d to replace by"):format(o.special, o.vocab),
      2)
  end
  check_tokens(o)
  self.newlines = {}
  for _, id in ipairs(rawget(o, "newlines") or {}) do self.newlines[id] = true end
  local all = ids:totable()
  for i, id in ipairs(all) do
    if id < 0 or id >= o.vocab then
      error(("masking: token %d of the stream is %d, which is not in 0..vocab - 1 = %d"):format(
        i, id, o.vocab - 1), 2)
    end
  end
  local list, starts = pack(end_lines(all, self.newlines, self.eos), self, o.length)
  self.stream, self.starts, self.count = core.ids(list), core.ids(starts), #starts - 1
  self.sizes, self.order = {}, {}
  for i = 1, self.count do
    self.sizes[i], self.order[i] = starts[i + 1] - starts[i], i
  end
  table.sort(self.order, function(a, b) -- batch blocks of similar length, to pad little
    if self.sizes[a] ~= self.sizes[b] then return self.sizes[a] < self.sizes[b] end
    return a < b
  end)
  return self
end

-- Returns the number of batches in an epoch.
function Masking:steps()
  return (self.count + self.opt.batch - 1) // self.opt.batch
end

-- Returns the epoch of a step, both counted from 1, and whether it is the epoch's last step.
function Masking:epoch(step)
  options.count("masking", "step", step)
  local steps = self:steps()
  return (step - 1) // steps + 1, step % steps == 0
end

-- ---- Masks --------------------------------------------------------------------------------------

-- Returns the token that replaces id, a token to predict.
local function hidden(self, stream, id)
  local o, draw = self.opt, stream:unit()
  if draw < o.kept then return id end
  if draw >= o.kept + o.replaced then return self.mask end
  local other
  repeat other = o.special + stream:below(o.vocab - o.special)
  until other ~= self.eos and not self.newlines[other]
  return other
end

-- Masks a row of a batch in place; its first size ids are block number `block`. Appends to places
-- and targets; before is the number of ids in the rows before this one.
local function mask_row(self, row, size, epoch, block, before, places, targets)
  local stream = core.stream(self.seed, ("mask.%d.%d"):format(epoch, block))
  local count = math.floor(self.opt.share * size + stream:unit()) -- unbiased random rounding
  local chosen = stream:permutation(size):totable()
  for i = 1, count do
    local at = chosen[i] + 1
    places[#places + 1], targets[#targets + 1] = before + at - 1, row[at]
    row[at] = hidden(self, stream, row[at])
  end
end

-- Returns batch number index (from 0) of the blocks sorted by length, with the masks of an epoch,
-- and its ids without masks.
local function masked(self, index, epoch)
  local o, blocks, longest = self.opt, {}, 1
  for place = index * o.batch + 1, math.min((index + 1) * o.batch, self.count) do
    blocks[#blocks + 1] = self.order[place]
    longest = math.max(longest, self.sizes[self.order[place]])
  end
  local n, numbers = epochs.padded(longest, o.multiple, o.length), {}
  for i, block in ipairs(blocks) do numbers[i] = block - 1 end
  local ids = core.padded(self.stream, self.starts, core.ids(numbers), n, nil, self.pad)
  local rows, places, targets = ids:totable(), {}, {}
  for i, block in ipairs(blocks) do
    mask_row(self, rows[i], self.sizes[block], epoch, block, (i - 1) * n, places, targets)
  end
  if #places == 0 then -- a batch of a few tokens may get no mask: mask its first token
    places[1], targets[1], rows[1][1] = 0, rows[1][1], self.mask
  end
  return { ids = core.ids(rows), places = core.ids(places), targets = core.ids(targets) }, ids
end

-- Returns the batch of a step (1, 2, ...) for tl.models.tnn_mlm: {ids= [b,n], places= [m],
-- targets= [m]}, int32. Every epoch takes every block once.
function Masking:batch(step)
  options.count("masking", "step", step)
  local epoch, steps = self:epoch(step), self:steps()
  return masked(self, self.epoch_order(epoch, steps)[(step - 1) % steps + 1], epoch)
end

-- Returns the count batches of a step that accumulates gradients, as a list for masking.step.
function Masking:batches(step, count)
  local list = {}
  for i = 1, count do list[i] = self:batch((step - 1) * count + i) end
  return list
end

-- ---- Training and evaluation --------------------------------------------------------------------

local masking = {}

local FAIRSEQ = { first = 0, pad = 1, eos = 2, special = 4 } -- <s>, <pad>, </s>; <unk> is 3

-- Returns the special tokens of a vocabulary as options of tl.masking: {vocab=, eos= or
-- newlines=, first=, pad=, special=}. tokenizer: the option of the corpus; fairseq's dictionary
-- ("gpt2") has its own <s> and padding.
function masking.specials(vocab, tokenizer)
  local o = { vocab = vocab:size(), eos = vocab:eos() }
  for name, id in pairs(tokenizer == "gpt2" and FAIRSEQ or {}) do o[name] = id end
  if o.eos then return o end
  local newlines = {}
  for id = 0, o.vocab - 1 do
    if vocab:decode(core.ids { id }):find("\n", 1, true) then newlines[#newlines + 1] = id end
  end
  if #newlines > 1 then o.newlines = newlines else o.eos = newlines[1] end
  return o
end

-- Returns the masked model's tokens for these specials: {first=, pad=, mask=, eos=, vocab= (their
-- number)}.
masking.tokens = added

-- Updates the model from a batch, or from a list of batches whose masked tokens have equal weight.
-- Returns the loss in nats per masked token, and {step=, lr=, grad_norm=, tokens=}, with the number
-- of masked tokens.
function masking.step(model, opt, batch)
  local list, counts, tokens = batch.ids and { batch } or batch, {}, 0
  for i, one in ipairs(list) do
    counts[i] = one.targets:numel()
    tokens = tokens + counts[i]
  end
  update.check_cut("masking.step", #list)
  ranks.check_whole "a masked language model"
  ranks.check_cut(#list)
  local loss, info = update.make { model = model, opt = opt, list = list, counts = counts,
    loss_of = function(one) return (model:loss(one.ids, one.places, one.targets)) end }
  info.tokens = tokens
  return loss, info
end

-- Returns exp(mean nats) over the masked tokens of data, which are the same at every call, and
-- their number. batches limits the evaluation to this number of batches, spread over all lengths.
function masking.perplexity(model, data, batches)
  local nats, count, steps = 0.0, 0, data:steps()
  local some = math.min(steps, batches or steps)
  local function all(part)
    for i = 0, some - 1 do
      local batch = masked(data, i * steps // some, 0)
      local size = batch.targets:numel()
      nats = nats + model:loss(batch.ids, batch.places, batch.targets):item() * size
      count = count + size
      part(i + 1)
    end
  end
  evaluating(model, function() watch.work("evaluating", some, "batches", all) end)
  return math.exp(nats / count), count
end

-- ---- N-grams of both sides ----------------------------------------------------------------------

local SIDE = 2 -- tokens of context before and after a token
local COUNTED = 20000000

-- Returns the masked tokens of a batch (masked) or, if all, all tokens except padding, as rows of
-- core.ngram_bits: the masked context, the nearest tokens last, and the token.
local function rows_of(batch, ids, pad, all)
  local edge, starts, tokens = core.ids { pad, pad }, batch.places, ids:reshape(-1)
  if all then
    local list = {}
    for place, id in ipairs(tokens:totable()) do
      if id ~= pad then list[#list + 1] = place - 1 end
    end
    starts = core.ids(list)
  end
  local seen = core.windows(core.concat({ edge, batch.ids:reshape(-1), edge }, 1), starts,
    2 * SIDE + 1)
  local columns = {}
  for far = SIDE, 1, -1 do
    columns[#columns + 1] = seen:narrow(2, SIDE + 1 + far, 1)
    columns[#columns + 1] = seen:narrow(2, SIDE + 1 - far, 1)
  end
  columns[#columns + 1] = core.windows(tokens, starts, 1)
  return core.concat(columns, 2)
end

-- Returns the rows of all batches of data in an epoch.
local function all_rows(data, epoch, all)
  local list = {}
  for index = 0, data:steps() - 1 do
    local batch, ids = masked(data, index, epoch)
    list[index + 1] = rows_of(batch, ids, data.pad, all)
  end
  return core.concat(list, 1)
end

-- Returns a yardstick for models: the perplexity of test, on the same tokens as
-- masking.perplexity, by an n-gram with Kneser-Ney smoothing of the two tokens on either side,
-- masked as the model sees them; nearer and earlier tokens count more. It learns from every token
-- of train, with the masks of the first epoch. nil: train has more than COUNTED tokens, whose rows
-- take 40 bytes each.
function masking.both_sides(train, test)
  local tokens = 0
  for _, size in ipairs(train.sizes) do tokens = tokens + size end
  if tokens > COUNTED then return nil end
  return 2 ^ core.ngram_bits(all_rows(train, 1, true), all_rows(test, 0), 2 * SIDE + 1,
    test.vocab, "kneser-ney")
end

suggest.strict("masking", masking)
getmetatable(masking).__call = function(_, ids, given) return new(ids, given) end
return masking
