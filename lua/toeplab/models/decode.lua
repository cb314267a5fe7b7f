-- models/decode.lua: generates text with a causal language model, token by token, for one prompt or
-- for many at once, and scores given texts.
--
--   for token in decode.stream(model, { vocab = vocab, prompt = "In the", n = 100 }) do
--     io.write(token.text)
--   end

local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local errors = require "toeplab.base.errors"
local eval = require "toeplab.train.eval"
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local predictor = require "toeplab.models.predictor"
local sampler = require "toeplab.models.sampler"
local spelling = require "toeplab.models.spelling"
local streams = require "toeplab.base.streams"
local suggest = require "toeplab.base.suggest"

local decode = { methods = predictor.methods, method_of = predictor.method_of }

-- ---- Options ------------------------------------------------------------------------------------

local field = options.field

-- Returns false and the reason if a value is not a list of stop strings and ids.
local function check_stops(list)
  for i, stop in ipairs(list) do
    if stop == "" then return false, "has an empty string, at which any text would stop" end
    if type(stop) ~= "string" and math.type(stop) ~= "integer" then
      return false, ("takes strings and ids of tokens, but value %d is a %s"):format(i, type(stop))
    end
  end
  return true
end

-- Returns the declared options: the given ones and the common ones of generation.
local function declared(name, own)
  local all = { { "vocab", field { type = "any", optional = true },
    "the vocabulary; without it, prompts are lists of ids, and tokens have no text" } }
  for _, list in ipairs { own, predictor.fields(), sampler.fields(), {
    { "stop", field { type = "table", default = {}, check = check_stops },
      "strings and token ids before the first of which a text ends" },
    { "logprobs", false, "with the log-probability of each token, in nats" },
  } } do
    for _, entry in ipairs(list) do all[#all + 1] = entry end
  end
  return options.declare(name)(all)
end

local PROMPT = field { type = "string|table", default = "" }

local of_stream = declared("tl.decode.stream", {
  { "prompt", PROMPT, "the beginning of the text, or the list of its ids" },
  { "n", field { type = "int", min = 0, optional = true },
    "number of tokens to add (default: no limit)" },
  { "seed", field { type = "int", optional = true },
    "random seed (default: the stream named sample)" },
})

local of_batch = declared("tl.decode.batch", {
  { "prompts", "table", "a list of prompts" },
  { "n", field { default = 200, min = 0 }, "number of tokens to add to each" },
  { "seed", 1, "text i uses the seed seed + i - 1" },
  { "batch", field { default = 16, min = 1, max = 1 << 16 }, "texts at a time" },
})

local of_score = options.declare "tl.decode.score" {
  { "vocab", field { type = "any", optional = true }, "the vocabulary; without it, ids are given" },
  { "prompt", PROMPT, "the text before, or the list of its ids" },
  { "continuation", field { type = "string|table" }, "the text to score, or the list of its ids" },
  { "session", field { type = "table", optional = true },
    "a session of toeplab.recurrent to use, instead of one pass over all" },
}

-- ---- Texts and ids ------------------------------------------------------------------------------

-- Returns the token after which a text without a prompt begins: the one that ends a line or, if the
-- vocabulary names none, a newline or a space; nil if it has none of them.
local function boundary(vocab)
  local eos = vocab.eos and vocab:eos()
  if eos then return eos end
  for _, text in ipairs { "\n", " " } do
    local known, ids = pcall(vocab.encode, vocab, text)
    if known and ids:numel() > 0 then return ids:totable()[1] end
  end
end

-- Returns the ids of a text. Drops the line end that encoding adds, unless the text has it.
local function encoded(vocab, text)
  local ids = vocab:encode(text):totable()
  local eos = vocab.eos and vocab:eos()
  if #ids > 0 and ids[#ids] == eos and not text:find "\n$" then ids[#ids] = nil end
  return ids
end

-- Returns the ids of a string or of a list of ids.
local function ids_of(vocab, given, name)
  if type(given) == "string" then
    if not vocab and given ~= "" then
      errors.usage("generate: the %s is a string, which requires the option vocab", name)
    end
    return vocab and encoded(vocab, given) or {}
  end
  for i, id in ipairs(given) do
    if math.type(id) ~= "integer" or id < 0 then
      errors.usage("generate: the %s: value %d is %s, not the id of a token", name, i, tostring(id))
    end
  end
  return table.move(given, 1, #given, 1, {})
end

-- decode.ids(vocab, prompt): returns the ids of a prompt, at least one.
function decode.ids(vocab, prompt)
  local ids = ids_of(vocab, prompt, "prompt")
  if #ids == 0 and vocab then ids[1] = boundary(vocab) end
  if #ids == 0 then
    errors.usage("generate: the prompt needs at least one token%s", vocab
      and ", as the vocabulary has no newline" or "")
  end
  return ids
end

-- ---- One text -----------------------------------------------------------------------------------

local Text = {}
Text.__index = Text

-- Returns the strings and the set of ids at which a text stops.
local function stops_of(o)
  local texts, ids = {}, {}
  for _, stop in ipairs(o.stop) do
    if type(stop) == "string" then texts[#texts + 1] = stop else ids[stop] = true end
  end
  if #texts > 0 and not o.vocab then
    errors.usage("generate: a string in stop requires the option vocab")
  end
  return texts, ids
end

-- Returns a text to which o.n tokens will be added from a random stream. before: the prompt, if the
-- shown text follows it without a break; else "".
local function text_of(o, ids, random, before)
  local text = setmetatable({ logprobs = o.logprobs, left = o.n or math.huge }, Text)
  text.sampler = sampler.new(o, random)
  for _, id in ipairs(ids) do text.sampler:note(id) end
  local texts, stop_ids = stops_of(o)
  text.stop_ids = stop_ids
  text.spelling = o.vocab and spelling(o.vocab, texts, before)
  return text
end

-- Returns the next token: its id, its text (the part that can be shown now, perhaps empty), logprob
-- if requested, and reason if it is the last one: "stop" or "length".
function Text:take(logits)
  local token = { id = self.sampler:draw(logits), text = "" }
  local stopped = self.stop_ids[token.id]
  self.sampler:note(token.id)
  self.left = self.left - 1
  if self.logprobs then
    token.logprob = core.log_softmax(logits):get(token.id + 1)
  end
  if self.spelling and not stopped then token.text, stopped = self.spelling:add(token.id) end
  token.reason = stopped and "stop" or self.left == 0 and "length" or nil
  if token.reason and self.spelling then token.text = token.text .. self.spelling:finish() end
  return token
end

-- Returns a function that calls fn() with the model in evaluation mode. A model already in this
-- mode costs no walk through its modules.
local function evaluator(model)
  local cached = nn.cache()
  return function(fn)
    if model.training then return eval.evaluating(model, fn, cached) end
    return core.no_grad(cached, fn)
  end
end

local function check_causal(model)
  if model.causal == false then
    error("generate: the model is not causal, so it cannot continue a text", 0)
  end
end

-- model:stream(options): returns an iterator over the tokens that the model adds to a prompt, each
-- {id=, text=, logprob=, reason=} as described at Text.take. The parameters must not change during
-- the iteration.
function decode.stream(model, given)
  local o = options.check("generate", of_stream, given)
  check_causal(model)
  local within, ids = evaluator(model), decode.ids(o.vocab, o.prompt)
  local random = o.seed and core.stream(o.seed, "generate") or streams.get "sample"
  local text = text_of(o, ids, random, type(o.prompt) == "string" and o.prompt or "")
  local source, ended = nil, o.n == 0
  if not ended then
    local _, why = predictor.method_of(model, o)
    if why and not o.n then
      errors.usage("generate: without a limit a text requires method window: %s", why)
    end
  end
  local function step()
    source = source or predictor.open(model, o, #ids, o.n)
    local token = text:take(source:feed(ids))
    ids, ended = { token.id }, token.reason ~= nil
    return token
  end
  local function close()
    if source then source:close() end
    source, ended = nil, true
  end
  return function()
    local token = not ended and within(step) or nil
    if ended then close() end
    return token
  end, nil, nil, defer(close)
end

-- ---- Many texts ---------------------------------------------------------------------------------

-- Records a token of the text in a row. The last token of a text frees its row.
local function note(self, row, token)
  local slot = self.slots[row]
  local result = slot.result
  result.ids[#result.ids + 1] = token.id
  slot.parts[#slot.parts + 1] = token.text
  result.logprob = result.logprob and result.logprob + token.logprob
  if not token.reason then return end
  result.text, result.reason = table.concat(slot.parts), token.reason
  self.done[slot.index], self.slots[row] = result, nil
  if self.begun < #self.prompts then
    self.free[row] = slot.source
  else
    slot.source:close()
  end
end

-- Returns the predictor of a text in a row. Kernels that all texts share are computed only once,
-- because that may take longer than the prompt.
local function source_of(self, row, count)
  local o, last = self.options, self.free[row]
  self.free[row] = nil
  if last and self.common then
    last.session:reset()
    return last
  end
  if last then last:close() end
  if not self.common and #self.prompts > 1 then self.common = predictor.common(self.model, o) end
  return predictor.open(self.model, o, count, o.n, self.common and self.common:fork())
end

-- Begins the next text in a row, if there is one.
local function begin(self, row)
  local o, index = self.options, self.begun + 1
  local ids = self.prompts[index]
  self.begun = index
  local seed = o.seed + index - 1
  local result = { index = index, ids = {}, text = "", seed = seed, prompt = o.prompts[index],
    logprob = o.logprobs and 0.0 or nil, reason = "length" }
  if o.n == 0 then
    self.done[index] = result
    return
  end
  local source = source_of(self, row, #ids)
  local text = text_of(o, ids, core.stream(seed, "generate"), "")
  self.slots[row] = { index = index, result = result, text = text, parts = {}, source = source }
  note(self, row, text:take(source:feed(ids)))
end

-- Adds one token to each running text, after giving every free row its next text.
local function advance(self)
  local rows = self.options.batch
  for row = 1, rows do
    while not self.slots[row] and self.begun < #self.prompts do begin(self, row) end
  end
  local sources, ids = {}, {}
  for row, slot in pairs(self.slots) do
    sources[row], ids[row] = slot.source, slot.result.ids[#slot.result.ids]
  end
  local logits = predictor.feed_rows(self.model, sources, rows, ids)
  for row = 1, rows do
    if logits[row] then note(self, row, self.slots[row].text:take(logits[row])) end
  end
end

local function close_batch(self)
  for _, slot in pairs(self.slots) do slot.source:close() end
  for _, source in pairs(self.free) do source:close() end
  if self.common and self.common ~= self.options.session then self.common:close() end
  self.common = nil
  self.slots, self.free, self.begun = {}, {}, #self.prompts
end

-- model:batch(options): returns an iterator over the continuations of the prompts, in their order:
-- {index=, prompt=, text=, ids=, seed=, reason=, logprob=}, where ids include a token at which the
-- text stopped, and logprob is the sum for all ids. The parameters must not change during the
-- iteration.
--
-- A text depends on its prompt, the options and its seed only, not on the other prompts or their
-- number: each has its own states and random numbers, and matrix products always have o.batch rows,
-- some of which may be unused.
function decode.batch(model, given)
  local o = options.check("generate", of_batch, given)
  check_causal(model)
  local self = { model = model, options = o, prompts = {}, begun = 0, slots = {}, free = {},
    done = {} }
  for i, prompt in ipairs(o.prompts) do self.prompts[i] = decode.ids(o.vocab, prompt) end
  predictor.method_of(model, o)
  stops_of(o)
  local within, shown = evaluator(model), 0
  local function close() close_batch(self) end
  return function()
    while not self.done[shown + 1] and (self.begun < #self.prompts or next(self.slots)) do
      within(function() advance(self) end)
    end
    local result = self.done[shown + 1]
    self.done[shown + 1], shown = nil, shown + 1
    if not result then close() end
    return result
  end, nil, nil, defer(close)
end

-- ---- Given texts --------------------------------------------------------------------------------

local PIECE = 256 -- positions whose logits are computed at once, because they take much memory

-- Returns the log-probabilities [n] of targets (a list) after the states or logits [1,n,..].
local function logprobs_of(model, states, targets)
  local parts = {}
  for first = 1, #targets, PIECE do
    local count = math.min(PIECE, #targets - first + 1)
    local logits = states:narrow(2, first, count)
    if model.hidden then logits = model:logits(logits) end
    local rows, ids = core.log_softmax(logits:reshape(count, -1)), {}
    for i = 1, count do ids[i] = { targets[first + i - 1] } end
    parts[#parts + 1] = rows:batch_gather(core.ids(ids)):reshape(-1)
  end
  return core.concat(parts, 1):totable()
end

-- Returns the ids of a text, and the ids that follow them in text .. continuation; nil if that does
-- not begin with them.
local function continued(vocab, text, continuation)
  local before = ids_of(vocab, text, "prompt")
  local all = ids_of(vocab, text .. continuation, "prompt")
  for i, id in ipairs(before) do
    if all[i] ~= id then return nil end
  end
  return before, table.move(all, #before + 1, #all, 1, {})
end

-- Returns the ids of a prompt, at least one, and of its continuation. Encodes two strings as one,
-- since the continuation alone may begin with other tokens. If a token would span both, moves
-- blanks from the end of the prompt to the continuation.
function decode.split(vocab, prompt, continuation)
  local texts = type(prompt) == "string" and type(continuation) == "string"
  if not texts or #ids_of(vocab, prompt, "prompt") == 0 then
    return decode.ids(vocab, prompt), ids_of(vocab, continuation, "continuation")
  end
  local before, after = continued(vocab, prompt, continuation)
  if not before then
    local text, blanks = prompt:match "^(.-)(%s*)$"
    before, after = continued(vocab, text, blanks .. continuation)
  end
  if not before or #before == 0 then
    errors.usage("generate: a token spans the prompt and the continuation: end the prompt "
      .. "elsewhere, or give both as lists of ids")
  end
  return before, after
end

-- ---- Options of one method ----------------------------------------------------------------------

-- By option: the methods that it requires.
local of_methods = {
  { "window", "for method window", function(method) return method == "window" end },
  { "trained", "for method window", function(method) return method == "window" end },
  { "lags", "for the methods other than window", function(method) return method ~= "window" end },
  { "form", "for method etsc", function(method) return method == "etsc" end },
}

-- Returns the name of a given option that has no effect with a method, and the methods that it
-- requires; nil if all have an effect.
function decode.idle(given, method)
  for _, option in ipairs(of_methods) do
    local name, whose, fits = table.unpack(option)
    if given[name] ~= nil and not fits(method) then return name, whose end
  end
end

-- model:score(options): returns the probability of a continuation after a prompt:
-- {tokens=, logprob=, perplexity=, logprobs=}, the number of its tokens, the sum of their
-- log-probabilities in nats, exp(-logprob/tokens), and the list of these log-probabilities.
function decode.score(model, given)
  local o = options.check("score", of_score, given)
  check_causal(model)
  local before, targets = decode.split(o.vocab, o.prompt, o.continuation)
  if #targets == 0 then errors.usage("generate: the continuation to score has no tokens") end
  local all = table.move(before, 1, #before, 1, {})
  table.move(targets, 1, #targets - 1, #all + 1, all)
  local list = evaluator(model)(function()
    local ids, states = core.ids { all }, nil
    local of = o.session and o.session:reset() or model
    if model.hidden then
      states = of:hidden(ids)
    else
      states = o.session and of:forward(ids) or model(ids)
    end
    return logprobs_of(model, states:narrow(2, #before, #targets), targets)
  end)
  local sum = 0.0
  for _, x in ipairs(list) do sum = sum + x end
  return { tokens = #list, logprob = sum, perplexity = math.exp(-sum / #list), logprobs = list }
end

return suggest.strict("decode", decode)
