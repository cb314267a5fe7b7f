-- nn/mixers/approximate/block_pattern.lua: decides which blocks of keys each block of queries
-- attends to in BigBird.

local core = require "toeplab.core"

local block_pattern = {}

-- Returns the blocks that block q of count may draw: those in the middle outside its window.
local function candidates(q, count)
  local list = {}
  for key = 1, count - 2 do
    if key < q - 1 or key > q + 1 then list[#list + 1] = key end
  end
  return list
end

-- Returns the same by the published plan, which has two branches.
-- At n = 1024, 3072 and 4096 the candidates end with the block that ends at position 1024.
local function published_early(q, count, size)
  local list, last = {}, 1024 // size - 1
  local whole = q - 2 > last or q >= count - 3 -- the window is not left out
  for key = 1, math.min(last, count - 2) do
    if whole or key <= q - 2 or (key >= q + 2 and q + 1 ~= last) then list[#list + 1] = key end
  end
  return list
end

-- At other lengths they are the first 2 draws + 5 blocks.
local function published_first(q, count, draws)
  local last, list = math.min(2 * draws + 5, count), {}
  for key = 1, last - 2 do
    local window = key >= q - 1 and key <= q + 1
    local edge = (q == 1 and key == last - 2) or (q == last - 2 and key == 1)
    if not window and not edge then list[#list + 1] = key end
  end
  return list
end

-- Returns the random blocks of each query block 1 .. count-2 (blocks count from 0) at length n:
-- lists [h][count-2][draws]. -1 stands for no block, where there are fewer candidates than draws.
-- The lists depend on the arguments alone, so that a model has one pattern per length.
function block_pattern.random(seed, heads, n, size, draws, as_published)
  local stream, count = core.stream(seed, "bigbird " .. n), n // size
  local early = n == 1024 or n == 3072 or n == 4096
  local all = {}
  for head = 1, heads do
    all[head] = {}
    for q = 1, count - 2 do
      local list, drawn = not as_published and candidates(q, count)
        or early and published_early(q, count, size) or published_first(q, count, draws), {}
      for i = 1, draws do
        drawn[i] = #list > 0 and table.remove(list, stream:below(#list) + 1) or -1
      end
      all[head][q] = drawn
    end
  end
  return all
end

-- Returns all blocks that query block q of count attends to: the first, its window, the last and
-- random. -1 stands for a block that would be listed twice.
function block_pattern.keys(q, count, random)
  local keys = { 0, q > 1 and q - 1 or -1, q, q < count - 2 and q + 1 or -1, count - 1 }
  return table.move(random, 1, #random, #keys + 1, keys)
end

return block_pattern
