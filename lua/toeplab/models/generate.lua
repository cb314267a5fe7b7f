-- models/generate.lua: generates text with a causal language model, as one string.

local characters = require "toeplab.base.characters"
local decode = require "toeplab.models.decode"
local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

local known = { "tokens" } -- the options, where tokens stands for n
for _, name in ipairs(options.declared["tl.decode.stream"].order) do
  if name ~= "vocab" and name ~= "prompt" and name ~= "n" then known[#known + 1] = name end
end

-- Raises for an unknown option, or one that would have no effect.
local function check(given)
  for name in pairs(given) do
    local fine, why = suggest.choose("option", name, known)
    if not fine then error("generate: " .. why, 3) end
  end
  local idle, whose = decode.idle(given, given.method or "window")
  if idle then error(("generate: option '%s' is %s"):format(idle, whose), 3) end
  for _, name in ipairs { "method", "window", "trained", "lags", "form" } do
    if given.session and given[name] ~= nil then
      error(("generate: option '%s' cannot be combined with a session"):format(name), 3)
    end
  end
end

-- tl.generate(model, vocab, prompt, options): returns the prompt and its continuation as one
-- string: options.tokens tokens, by default 200, and the other options of decode.stream. vocab
-- encodes and decodes the text (tl.vocab_chars, ...).
local function generate(model, vocab, prompt, given)
  check(given or {})
  local o = { vocab = vocab, prompt = prompt, n = 200 }
  for name, value in pairs(given or {}) do
    if name == "tokens" then name = "n" end
    o[name] = value
  end
  local before = prompt == "" and "" or vocab:decode(decode.ids(vocab, prompt))
  if type(prompt) == "string" then -- decode.stream first completes a character that the prompt cuts
    before = before:sub(1, characters.complete(before))
  end
  local parts = { before }
  for token in decode.stream(model, o) do parts[#parts + 1] = token.text end
  return table.concat(parts)
end

return generate
