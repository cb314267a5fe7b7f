-- nn/mixers/approximate/bigbird.lua: defines BigBird, attention to the first and the last block, a
-- window of blocks, and random blocks.

local core = require "toeplab.core"
local block_pattern = require "toeplab.nn.mixers.approximate.block_pattern"
local cache = require "toeplab.nn.cache"
local cost = require "toeplab.nn.cost"
local frame = require "toeplab.nn.mixers.approximate.frame"
local heads = require "toeplab.nn.mixers.heads"
local options = require "toeplab.base.options"

-- o_i = sum of softmax_j(q_i k_j / sqrt p) v_j over the keys j that the block B of i sees; 0 for
-- padding (Zaheer et al. 2020, Sec. 2). Of N = n / block blocks, B sees 0, B-1, B, B+1, N-1 and
-- random_blocks others; blocks 0 and N-1 see all keys. Costs n block (7 + random_blocks). With
-- fewer than 5 blocks, n <= 4 block, all queries see all keys.
-- choices [h,N-2,random_blocks]: the random blocks of each query block but the first and the last.
-- They are drawn once per length from `seed`, so that all layers and all runs have one pattern; a
-- random block is never one that B sees anyway.
-- as_published draws them among fewer: at n = 4096 all lie in the first quarter, and at most other
-- lengths among the first 2 random_blocks + 5 blocks (block_pattern.lua). With padding = "tokens",
-- the zero rows that fill the last block are attended to.
local BigBird = frame.class("BigBird", frame.padding {
  block = options.field { default = 64, min = 1, help = "positions of a block" },
  random_blocks = options.field { default = 3, min = 0,
    help = "random blocks that a block of queries sees" },
  seed = options.field { default = 0, help = "seed of the random blocks" },
  as_published = false,
})

local FEWEST = 5 -- blocks, below which all queries see all keys

-- Returns, for the N-2 middle blocks of queries of all rows and heads, the blocks of keys as
-- indices among b h N blocks and among the b N blocks of the mask, and a mask that is 0 at absent
-- blocks.
--   places, mask_places [b h (N-2) width]   present [1,h (N-2),width size]
local function tables(random, b, count, size)
  local h, places, mask_places, present = #random, {}, {}, {}
  for row = 0, b - 1 do
    for head = 1, h do
      for q = 1, count - 2 do
        for _, key in ipairs(block_pattern.keys(q, count, random[head][q])) do
          local at = math.max(key, 0)
          places[#places + 1] = (row * h + head - 1) * count + at
          mask_places[#mask_places + 1] = row * count + at
          if row == 0 then present[#present + 1] = key < 0 and 0 or 1 end
        end
      end
    end
  end
  return {
    places = core.ids(places), mask_places = core.ids(mask_places),
    present = (core.tensor(present):reshape(-1, 1) + core.zeros(size))
      :reshape(1, h * (count - 2), -1),
  }
end

BigBird.by_length = true -- its choices depend on the length of the padded row

function BigBird:prepare(o)
  self.patterns = cache.recent(function(n)
    local random = block_pattern.random(o.seed, o.heads, n, o.block, o.random_blocks,
      o.as_published)
    return cache.recent(function(b) return tables(random, b, n // o.block, o.block) end)
  end)
end

function BigBird:aligned(n)
  local size = self.opt.block
  return -(-n // size) * size
end

-- Returns the results of the middle blocks: [b,h,n-2 size,p].
local function middle(self, q, k, v, mask, at)
  local b, h, n, p, size = q:dim(1), q:dim(2), q:dim(3), q:dim(4), self.opt.block
  local count = n // size
  local function seen(x)
    return x:reshape(b * h * count, size * p):gather(at.places):reshape(b * h, count - 2, -1, p)
  end
  local tokens = core.ones(b, 1, 1)
  if mask then
    tokens = mask:reshape(b * count, size):gather(at.mask_places):reshape(b, h * (count - 2), -1)
  end
  local keys = (at.present * tokens):reshape(b * h * (count - 2), -1)
  local own = q:narrow(3, size + 1, n - 2 * size):reshape(b * h, count - 2, size, p)
  return heads.attend(own, seen(k), seen(v), self.width ^ -0.5, { mask = keys })
    :reshape(b, h, n - 2 * size, p)
end

function BigBird:mix(q, k, v, mask, random)
  local n, size, scale = q:dim(3), self.opt.block, self.width ^ -0.5
  if n < FEWEST * size then
    return frame.tokens(frame.attend(q, k, v, scale, mask), mask)
  end
  local ends = core.concat({ q:narrow(3, 1, size), q:narrow(3, n - size + 1, size) }, 3)
  ends = frame.attend(ends, k, v, scale, mask)
  local b = q:dim(1)
  local at = random and tables(random, b, n // size, size) or self.patterns(n)(b)
  local inner = middle(self, q, k, v, mask, at)
  local o = core.concat({ ends:narrow(3, 1, size), inner, ends:narrow(3, size + 1, size) }, 3)
  return frame.tokens(o, mask)
end

function BigBird:own_cost(n)
  local o, all = self.opt, self.opt.heads * self.width
  n = self:aligned(n)
  if n < FEWEST * o.block then return cost.blockwise(n, n, all, all, o.heads) end
  local ends, numbers = cost.blockwise(2 * o.block, n, all, all, o.heads)
  local seen = (5 + o.random_blocks) * o.block
  local inner, inner_numbers = cost.blockwise(n - 2 * o.block, seen, all, all, o.heads)
  return ends + inner, numbers + inner_numbers
end

return { BigBird = BigBird }
