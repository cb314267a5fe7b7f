-- vocabularies.lua: mutates the files of byte pair encodings (merges, ids, rows) for fuzz.lua.
local core = require "toeplab.core"
local json = require "toeplab.base.json"

-- GPT-2's alphabet: how vocabulary files write each byte, in the order of the ids.
local function alphabet()
  local plain, others = {}, {}
  for byte = 0, 255 do
    local printable = byte >= 33 and byte <= 126 or byte >= 161 and byte ~= 173
    local list = printable and plain or others
    list[#list + 1] = utf8.char(printable and byte or 256 + #others)
  end
  return table.move(others, 1, #others, #plain + 1, plain)
end

-- The three files of a vocabulary. None has a checksum, so that damage reaches the parser.
local function vocabulary(m)
  local merges = "#version: 0.2\n" .. m.read(m.tests .. "small.bpe"):gsub("^[^\n]*\n", "")
  local tokens, ids, rows = alphabet(), {}, {}
  for left, right in merges:gsub("^[^\n]*\n", ""):gmatch "(%S+) (%S+)\n" do
    tokens[#tokens + 1] = left .. right
  end
  for i, token in ipairs(tokens) do
    ids[i] = ("%s: %d"):format(json.encode(token), i - 1)
    rows[i] = ("%d %d\n"):format(i - 1, 9 * #tokens - i)
  end
  return { merges, "{" .. table.concat(ids, ", ") .. "}", table.concat(rows) }
end

-- Takes m, the functions and folders of fuzz.lua: folder, tests, read, write, below, mutate and
-- thrifty. Returns a function that mutates one of the files number first to last.
return function(m, first, last)
  local whole, paths = vocabulary(m), {}
  for i, text in ipairs(whole) do
    paths[i] = m.folder .. "/part" .. i
    m.write(paths[i], text)
  end
  core.vocab_bpe(table.unpack(paths)) -- the undamaged files are valid
  return function()
    local at = first + m.below(last - first + 1)
    local text = m.mutate(whole[at])
    m.write(m.folder .. "/input", text)
    m.write(paths[at], text)
    local ok, why = pcall(m.thrifty, 1000 * #text, function()
      local vocab = core.vocab_bpe(table.unpack(paths, 1, math.max(at, 1 + m.below(3))))
      vocab:decode(vocab:encode "The quick brown fox, and \xff\n 12 more")
    end)
    m.write(paths[at], whole[at])
    if not ok then error(why, 0) end
  end
end
