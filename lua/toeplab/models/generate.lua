-- models/generate.lua: generates text with a causal language model, as one string.

local characters = require "toeplab.base.characters"
local decode = require "toeplab.models.decode"
local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

local known = { "tokens" } -- the options, where tokens stands for n
for _, name in ipairs(options.declared["tl.decode.stream"].order) do
  if name ~= "vocab" and name ~= "prompt" and name ~= "n" then known[#known + 1] = name end
end

-- Raises for an option that is none, or that would have no effect.
local function check(given)
  for name in pairs(given) do
    local fine, why = suggest.choose("option", name == "n" and "tokens" or name, known)
    if not fine then error("generate: " .. why, 3) end
  end
  local method = given.method or "window"
  local function only(name, fits, whose)
    if given[name] ~= nil and (given.session or not fits) then
      error(("generate: option '%s' is %s"):format(name, given.session
        and "for a model without a session" or whose), 4)
    end
  end
  only("method", true)
  only("window", method == "window", "for method window")
  only("trained", method == "window", "for method window")
  only("lags", method ~= "window", "for the methods other than window")
  only("form", method == "etsc", "for method etsc")
end

-- tl.generate(model, vocab, prompt, options): returns one text, the prompt and what the model adds:
-- options.tokens tokens, by default 200, and the other options of decode.stream. vocab encodes and
-- decodes the text (tl.vocab_chars, ...).
local function generate(model, vocab, prompt, given)
  check(given or {})
  local o = { vocab = vocab, prompt = prompt, n = 200 }
  for name, value in pairs(given or {}) do
    if name == "tokens" then name = "n" end
    o[name] = value
  end
  local before = prompt == "" and "" or vocab:decode(decode.ids(vocab, prompt))
  if type(prompt) == "string" then -- decode.stream begins with a character that the prompt cuts
    before = before:sub(1, characters.complete(before))
  end
  local parts = { before }
  for token in decode.stream(model, o) do parts[#parts + 1] = token.text end
  return table.concat(parts)
end

return generate
