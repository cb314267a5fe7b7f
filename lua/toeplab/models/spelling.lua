-- models/spelling.lua: turns the tokens of a generated text into text that can be shown at once:
-- whole characters of UTF-8, without the string at which the text stops.

local characters = require "toeplab.base.characters"

local Spelling = {}
Spelling.__index = Spelling

-- Returns where the string begins that is complete first in text, among those that end after byte
-- `from`; nil if there is none. Of two that end together the longer one counts.
local function first_stop(text, stops, from)
  local first, last
  for _, stop in ipairs(stops) do
    local a, b = text:find(stop, math.max(1, from - #stop + 2), true)
    if a and (not first or b < last or b == last and a < first) then first, last = a, b end
  end
  return first
end

-- Returns how many bytes at the end of text may be the beginning of one of the strings.
local function begun(text, stops)
  local most = 0
  for _, stop in ipairs(stops) do
    for count = math.min(#stop - 1, #text), most + 1, -1 do
      if text:sub(-count) == stop:sub(1, count) then most = count break end
    end
  end
  return most
end

-- Returns the part of the next token's text that can be shown, and whether the text ends before a
-- stop string.
function Spelling:add(id)
  local had = #self.held
  local text = self.held .. self.vocab:token(id)
  local first = first_stop(text, self.stops, had)
  if first then
    self.held = ""
    return characters.valid(text:sub(1, first - 1)), true
  end
  local count = characters.complete(text:sub(1, #text - begun(text, self.stops)))
  self.held = text:sub(count + 1)
  return characters.valid(text:sub(1, count)), false
end

-- Returns the held-back text at the end of a text, without a character that the last token leaves
-- incomplete.
function Spelling:finish()
  local held = self.held
  self.held = ""
  return characters.valid(held:sub(1, characters.complete(held)))
end

-- Returns the state of a text without tokens; the tokens belong to vocab. It stops at the strings
-- in the list stops, and begins in the middle of a character if `before`, the text that it
-- continues, ends there.
return function(vocab, stops, before)
  local cut = before:sub(characters.complete(before) + 1)
  return setmetatable({ vocab = vocab, stops = stops, held = cut }, Spelling)
end
