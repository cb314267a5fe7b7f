-- generate.lua -- text from a causal language model, one token at a time.

local core = require "toeplab.core"
local eval = require "toeplab.eval"
local options = require "toeplab.options"
local streams = require "toeplab.streams"

local spec = options.set {
  { "tokens", options.field { default = 200, min = 0 }, "how many to add" },
  { "temperature", options.field { default = 1.0, min = 0 },
    "of the softmax; 0: always the likeliest" },
  { "top_k", options.field { default = 0, min = 0 }, "draw among the likeliest k; 0: among all" },
  { "window", options.field { default = 256, min = 1 }, "the model sees this many last tokens" },
  { "stream", options.field { type = "any", optional = true },
    "random stream (default: the one named sample)" },
  { "each", options.field { type = "function", optional = true },
    "called with the text of every new token" },
}

-- The logits after the last of ids (a Lua array), seen through a window of fixed length: shorter
-- texts are filled up at the right, which a causal model cannot see.
local function next_logits(model, ids, window)
  local seen = math.min(#ids, window)
  local row = {}
  for i = 1, window do row[i] = i <= seen and ids[#ids - seen + i] or 0 end
  local x = core.ids { row }
  local last
  if model.hidden then
    last = model:logits(model:hidden(x):narrow(2, seen, 1))
  else
    last = model(x):narrow(2, seen, 1)
  end
  return last:reshape(-1)
end

-- The ids of the prompt; of an empty one, the end of a line, after which everything begins.
local function first_ids(vocab, prompt)
  local ids = vocab:encode(prompt):totable()
  local eos = vocab.eos and vocab:eos()
  if #ids == 0 and eos then return { eos } end
  if #ids == 0 then error("generate: the prompt needs at least one token", 3) end
  if #ids > 1 and ids[#ids] == eos and not prompt:find "\n$" then ids[#ids] = nil end
  return ids
end

-- prompt and what the model adds to it, as text.   vocab: encode and decode (tl.vocab_chars, ...)
local function generate(model, vocab, prompt, given)
  local o = options.check("generate", spec, given)
  local stream = o.stream or streams.get "sample"
  if model.causal == false then error("generate: the model is not causal", 2) end
  local ids = first_ids(vocab, prompt)
  eval.evaluating(model, function()
    for _ = 1, o.tokens do
      ids[#ids + 1] = stream:sample(next_logits(model, ids, o.window), o.temperature, o.top_k)
      if o.each then o.each(vocab:token(ids[#ids])) end
    end
  end)
  return vocab:decode(ids)
end

return generate
