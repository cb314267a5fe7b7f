-- models/generate.lua: generates text with a causal language model, one token at a time.

local core = require "toeplab.core"
local eval = require "toeplab.train.eval"
local options = require "toeplab.base.options"
local recurrent = require "toeplab.models.recurrent"
local errors = require "toeplab.base.errors"
local streams = require "toeplab.base.streams"

-- The methods of computing the logits after each token. fft, ring and etsc compute the same
-- function, that of the model at one length (lags), so greedy decoding gives the same tokens.
--   window  runs the model on the last tokens only, as many as the window, so that it forgets the
--           beginning of a longer text
--   fft     runs the model on the whole text: each token costs a forward pass of length lags
--   ring    stores the last inputs of each operator: a token costs lags products per channel
--   etsc    stores the state of a sum of exponentials for each operator (recurrent.lua)
local methods = { "window", "fft", "ring", "etsc" }

local spec = options.set {
  { "tokens", options.field { default = 200, min = 0 }, "how many tokens to add" },
  { "temperature", options.field { default = 1.0, min = 0 },
    "temperature of the softmax; 0: always the most likely token" },
  { "top_k", options.field { default = 0, min = 0 },
    "draw among the k most likely tokens; 0: among all" },
  { "method", options.field { default = "window", choices = methods },
    "how the logits are computed" },
  { "window", options.field { default = 256, min = 1 },
    "method window: the model sees this many last tokens" },
  { "lags", options.field { type = "int", min = 1, optional = true },
    "other methods: an operator sees this many last tokens (default: all of the text)" },
  { "form", options.field { default = "exact", choices = recurrent.forms },
    "method etsc: exact, or published, which is right for the first lags tokens" },
  { "session", options.field { type = "table", optional = true },
    "a session of toeplab.recurrent to use, instead of a method" },
  { "stream", options.field { type = "any", optional = true },
    "random stream (default: the one named sample)" },
  { "each", options.field { type = "function", optional = true },
    "called with the text of every new token" },
}

-- Returns the logits [vocab] at position `at` (from 1) of ids [1,n]. With a session, ids are the
-- tokens that follow those it has already processed.
local function logits_at(model, session, ids, at)
  if model.hidden then
    local states = session and session:hidden(ids) or model:hidden(ids)
    return model:logits(states:narrow(2, at, 1)):reshape(-1)
  end
  local all = session and session:forward(ids) or model(ids)
  return all:narrow(2, at, 1):reshape(-1)
end

-- Returns a function ids (a list) -> the logits after the last one, which runs the model on a
-- window of fixed length. A shorter text is padded at the right, which a causal model never sees.
local function recomputing(model, window)
  return function(ids)
    local seen = math.min(#ids, window)
    local row = {}
    for i = 1, window do row[i] = i <= seen and ids[#ids - seen + i] or 0 end
    return logits_at(model, nil, core.ids { row }, seen)
  end
end

-- Returns a function as recomputing does, which passes to a session the ids that are new to it.
local function stepping(model, session)
  local had = 0
  return function(ids)
    local row = table.move(ids, had + 1, #ids, 1, {})
    had = #ids
    return logits_at(model, session, core.ids { row }, #row)
  end
end

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

-- Returns the ids of the prompt. A prompt that does not end its line loses the end that encoding
-- adds.
local function first_ids(vocab, prompt)
  local ids = vocab:encode(prompt):totable()
  if #ids == 0 then ids[1] = boundary(vocab) end
  if #ids == 0 then
    errors.usage("generate: the prompt needs at least one token, as the vocabulary has no newline")
  end
  local eos = vocab.eos and vocab:eos()
  if #ids > 1 and ids[#ids] == eos and not prompt:find "\n$" then ids[#ids] = nil end
  return ids
end

-- Returns the function ids -> logits of the method, and the session to close afterwards, if any.
local function predictor(model, o, total)
  if o.session then return stepping(model, o.session:reset()) end
  if o.method == "window" then return recomputing(model, o.window) end
  local lags = o.lags or total
  if o.method == "fft" then
    if lags < total then
      errors.usage("generate: method fft computes the whole text again: lags = %d is less than its "
        .. "%d tokens (method window cuts it)", lags, total)
    end
    return recomputing(model, lags)
  end
  local session = recurrent.new(model, { method = o.method, form = o.form, lags = lags })
  return stepping(model, session), session
end

-- tl.generate(model, vocab, prompt, options): returns the prompt and the text that the model adds.
-- vocab encodes and decodes the text (tl.vocab_chars, ...).
local function generate(model, vocab, prompt, given)
  local o = options.check("generate", spec, given)
  local stream = o.stream or streams.get "sample"
  if model.causal == false then error("generate: the model is not causal", 2) end
  local ids = first_ids(vocab, prompt)
  eval.evaluating(model, function()
    local next_logits, session = predictor(model, o, math.max(1, #ids + o.tokens - 1))
    for _ = 1, o.tokens do
      ids[#ids + 1] = stream:sample(next_logits(ids), o.temperature, o.top_k)
      if o.each then o.each(vocab:token(ids[#ids])) end
    end
    if session then session:close() end
  end)
  return vocab:decode(ids)
end

return generate
