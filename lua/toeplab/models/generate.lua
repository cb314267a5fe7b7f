-- models/generate.lua: generates text with a causal language model, as one string.

local characters = require "toeplab.base.characters"
local decode = require "toeplab.models.decode"

-- tl.generate(model, vocab, prompt, options): returns one text, the prompt and what the model adds:
-- options.tokens tokens, by default 200, and the other options of decode.stream. vocab encodes and
-- decodes the text (tl.vocab_chars, ...).
local function generate(model, vocab, prompt, given)
  local o = { vocab = vocab, prompt = prompt, n = 200 }
  for name, value in pairs(given or {}) do
    if name == "tokens" then name = "n" end
    o[name] = value
  end
  local before = vocab:decode(decode.ids(vocab, prompt))
  if type(prompt) == "string" then -- decode.stream begins with a character that the prompt cuts
    before = before:sub(1, characters.complete(before))
  end
  local parts = { before }
  for token in decode.stream(model, o) do parts[#parts + 1] = token.text end
  return table.concat(parts)
end

return generate
