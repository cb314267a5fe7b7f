-- nn/mixers/approximate/reformer.lua: defines Reformer, attention within chunks of positions that
-- were sorted by a hash (LSH attention).

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local cost = require "toeplab.nn.cost"
local frame = require "toeplab.nn.mixers.approximate.frame"
local heads = require "toeplab.nn.mixers.heads"
local options = require "toeplab.base.options"
local shapes = require "toeplab.nn.shapes"

-- o_i = sum over j of softmax_j(s_i k_j) v_j,   s = x Wq,   k_j = s_j / (rms(s_j) sqrt p), where
-- position i sees itself only if it sees nothing else (Kitaev et al. 2020, Sec. 2). The keys that
-- it sees are found in `hashes` rounds. In round r, position t has the bucket
--   argmax [s_t R_r, -s_t R_r],   R_r [p,B/2] ~ N(0,1),   B = 2^floor(log2(2 n / chunk)),
-- and padding the bucket B. The positions sorted by bucket, one round after the other, are cut into
-- chunks; a chunk attends to itself and to the chunk before it, the first chunk to the last. The
-- results of the rounds are averaged with the weights softmax_r(L_r), where L_r is the logsumexp of
-- the scores. Costs n chunk per round, and a sort. Up to `chunk` positions there is exact attention
-- instead.
-- choices [h,p,hashes,B/2]: the rotations R, drawn at every forward pass, one for all rows. In the
-- published code the first sequence that the model sees fixes B; here it follows n. The maps have
-- no bias, as published; the lra port has biases, and with padding = "tokens" zero rows are added
-- to x up to max_length.
local Reformer = frame.class("Reformer", frame.padding {
  chunk = options.field { default = 64, min = 1, help = "positions of a chunk" },
  hashes = options.field { default = 2, min = 1, help = "rounds of hashing" },
  max_length = options.field { type = "int", min = 1, optional = true,
    help = "length to which padding = tokens fills up" },
  bias = false,
})

Reformer.one_map, Reformer.pads_input = true, true

local SELF = -1e5 -- the score of a position with itself
local LAST = 1e30 -- more than the largest projection, so that padding has the last bucket

Reformer.by_length = true -- its choices depend on the length of the padded row

function Reformer:prepare()
  self.identity = cache.recent(shapes.identity)
  self.positions = cache.recent(function(n) return core.range(0, n - 1):reshape(1, 1, n, 1) end)
end

function Reformer:aligned(n)
  local c = self.opt.chunk
  n = frame.tokens_length(self, n)
  return n <= c and n or -(-n // c) * c
end

function Reformer:draw(n)
  local half = 1
  while 2 * half <= n // self.opt.chunk do half = 2 * half end
  return frame.stream(self):normal(
    core.zeros(self.opt.heads, self.width, self.opt.hashes, half), 0, 1)
end

local function keys(s)
  return core.affine(core.rms_norm(s, nil, 1e-6), s:dim(-1) ^ -0.5, 0)
end

-- Returns the bucket of each position: [b,h,hashes,n] int32.
function Reformer:buckets(s, mask, rotations)
  local b, h, n, p = s:dim(1), s:dim(2), s:dim(3), s:dim(4)
  local rounds, half = rotations:dim(3), rotations:dim(4)
  local turned = core.matmul(s:permute({ 2, 1, 3, 4 }):reshape(h, b * n, p),
    rotations:reshape(h, p, rounds * half)):reshape(h, b, n, rounds, half)
  turned = turned:permute { 2, 1, 4, 3, 5 }
  local sides = { turned, -turned }
  if mask then
    sides[3] = core.affine(mask:reshape(b, 1, 1, n, 1), -2 * LAST, LAST)
      + core.zeros(b, h, rounds, n, 1)
  end
  return core.concat(sides, 5):argmax()
end

-- Returns x [g,chunks,c,..] with, in each chunk, the chunk before it in front: [g,chunks,2 c,..].
local function with_previous(x)
  local chunks = x:dim(2)
  local before = core.concat({ x:narrow(2, chunks, 1), x:narrow(2, 1, chunks - 1) }, 2)
  return core.concat({ before, x }, 3)
end

-- Returns the bias of the scores: SELF where a key is at the position of the query, and the hiding
-- term at padding.   place [g,chunks,c,1]: the sorted positions   mask the same, or nil
local function bias(place, mask)
  local keys_at = with_previous(place):transpose(3, 4)
  local same = shapes.impulse(place - keys_at)
  if not mask then return core.affine(same, SELF, 0) end
  local hidden = heads.hide(with_previous(mask):transpose(3, 4))
  return same * SELF + core.affine(same, -1, 1) * hidden
end

-- Returns softmax(scores) v and the logsumexp of the scores: [..,c,p], [..,c,1].
local function weighted(scores, v)
  local top = core.no_grad(scores.amax, scores, -1, true)
  local powers = core.exp(scores - top)
  local sum = powers:sum(-1, true)
  return core.matmul(powers, v) / sum, core.log(sum) + top
end

-- Returns attention of n <= chunk positions, all to all.   same: the identity [n,n]
local function whole(s, v, mask, same)
  local hide = same * SELF
  if mask then hide = hide + core.affine(same, -1, 1) * heads.hide(mask):transpose(3, 4) end
  return core.matmul(core.softmax(core.matmul(s, keys(s), false, true) + hide), v)
end

function Reformer:mix(s, _, v, mask, rotations)
  local b, h, n, p, c = s:dim(1), s:dim(2), s:dim(3), s:dim(4), self.opt.chunk
  if n <= c then return whole(s, v, mask, self.identity(n)) end
  rotations = rotations or self:draw(n)
  local rounds = rotations:dim(3)
  local order, rank = core.no_grad(self.buckets, self, s, mask, rotations):argsort()
  order, rank = order:reshape(b * h, rounds * n), rank:reshape(b * h * rounds, n)
  local function chunks(x) -- [b,h,n,w] sorted, and cut: [b h,rounds n/c,c,w]
    local w = x:dim(4)
    return x:reshape(b * h, n, w):batch_gather(order):reshape(b * h, rounds * n // c, c, w)
  end
  local function spread(x) return x + core.zeros(b, h, n, 1) end
  local hide = core.no_grad(bias, chunks(spread(self.positions(n))), mask and chunks(spread(mask)))
  local queries = chunks(s)
  local scores = core.matmul(queries, with_previous(keys(queries)), false, true) + hide
  local o, log_sum = weighted(scores, with_previous(chunks(v)))
  local function unsorted(x)
    return x:reshape(b * h * rounds, n, -1):batch_gather(rank):reshape(b, h, rounds, n, -1)
  end
  if rounds == 1 then return unsorted(o):reshape(b, h, n, p) end
  local weights = core.softmax(unsorted(log_sum):reshape(b, h, rounds, n):transpose(3, 4))
  return (unsorted(o) * weights:transpose(3, 4):reshape(b, h, rounds, n, 1)):sum(3)
end

-- In each round, positions are multiplied by R and compared with two chunks.
function Reformer:own_cost(n)
  local o, all = self.opt, self.opt.heads * self.width
  n = self:aligned(n)
  if n <= o.chunk then return cost.attention(n, n, all, all, o.heads) end
  local half = 2.0 ^ (math.log(n // o.chunk, 2) // 1)
  local flop, numbers = cost.attention(n, 2 * o.chunk, all, all, o.heads)
  return o.hashes * (flop + 2.0 * n * half * all), o.hashes * numbers
end

return { Reformer = Reformer }
