-- nn/mixers/attention/transformer_ls.lua: defines TransformerLS, causal long-short attention: a
-- window of the last tokens, and a few vectors for each chunk before (Zhu et al. 2021).

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local cost = require "toeplab.nn.cost"
local heads = require "toeplab.nn.mixers.heads"
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local LayerNorm = require("toeplab.nn.norm").LayerNorm
local options = require "toeplab.base.options"
local pool = require "toeplab.nn.mixers.attention.pool"
local position = require "toeplab.nn.position"
local shapes = require "toeplab.nn.shapes"

-- y = Wo a V, where a is one softmax per head over two sets of keys (Zhu et al. 2021, Sec. 3):
--   window  the tokens i-W+1 .. i (option window), with keys LN_w(x Wk) and values LN_w(x Wv), and
--           logits (q_i + content) . k_j + (q_i + place) . R(e(i-j))
--   chunks  r vectors (option rank) for each chunk of c positions (option chunk) before the
--           token's own, numbered by t: keys LN_d(pool(x Wk)), values likewise (pool.lua, with
--           scores x Ws), and logits q_i . k_t + q_i . R'(e(D-1-t)), where D counts these vectors
--   x, y [b,n,dim]   q = x Wq / sqrt(w)   e(p) = the sines, then the cosines of p 10000^(-2k/dim)
-- forward(x, memory) also takes the memory that precedes x, [b,m,dim] with c | m, as tokens that
-- are seen but have no output and get no gradient; its vectors are pooled before Wk and Wv instead
-- of after. The published training code passes the end of the last batch, of other texts; here
-- there is no memory unless the caller gives one. The cost of the window grows as n W, the cost of
-- the chunks as n^2 r / c by the paper's design: c / r times less than softmax attention. Weights
-- start as N(0, 0.02^2) with bias 0 (init = "bert"), the norms' as N(1, 0.02^2).
local TransformerLS = class("TransformerLS", heads.spec {
  chunk = options.field { default = 32, min = 1, help = "positions of a chunk" },
  rank = options.field { default = 1, min = 1, help = "vectors for each chunk" },
  window = options.field { default = 64, min = 1, help = "last tokens that are seen individually" },
  init = options.field { type = "function|string", default = "bert" },
}, { "dim" })

local function check(_, o)
  if not o.causal then
    error("TransformerLS: causal = false is impossible, as a token sees whole chunks before its "
      .. "own: use the mixer ls_bidirectional, or causal = true", 0)
  end
  if o.dim % 2 == 1 then
    error(("TransformerLS: dim = %d must be even, as sines and cosines encode distances")
      :format(o.dim), 0)
  end
end

-- Returns e(p) for p = count-1 .. 0, as sin(-a) = -sin(a): [count,dim].
local function encodings(count, dim)
  local f = {}
  for k = 0, dim // 2 - 1 do f[k + 1] = 10000 ^ (-2 * k / dim) end
  local sin, cos = position.sincos(1 - count, count, f)
  return core.concat({ -sin, cos }, 2)
end

-- Returns the term that hides the positions of windows() that a token does not see:
-- [count,size,reach + size].
local function hidden_positions(cuts, window)
  local row = core.range(0, cuts.size - 1):reshape(1, -1, 1)
  local column = core.range(0, cuts.reach + cuts.size - 1):reshape(1, 1, -1)
  local block = core.range(0, cuts.count - 1):reshape(-1, 1, 1)
  local distance = core.affine(row - column, 1, cuts.reach)
  local place = core.affine(block, cuts.size, cuts.memory - cuts.reach) + column
  local seen = shapes.step(distance) * shapes.step(core.affine(distance, -1, window - 1))
    * shapes.step(place)
  return heads.hide(seen)
end

-- Returns the term that hides the vectors of a token's own chunk and later ones: [n/c,1,t].
local function hidden_chunks(o, cuts)
  local count = cuts.size * cuts.count // o.chunk
  local last = core.affine(core.range(0, count - 1), o.rank, cuts.memory // o.chunk * o.rank - 1)
  local vectors = core.range(0, (cuts.memory // o.chunk + count - 1) * o.rank - 1)
  local seen = shapes.step(last:reshape(count, 1, 1) - vectors:reshape(1, 1, -1))
  return heads.hide(seen)
end

-- Returns how x of n positions is cut into count blocks of size positions, each of which sees its
-- own and the reach positions before, when memory positions precede x; and the hiding terms. An
-- input no longer than the window is a single block, so that it is not filled up to the window's
-- length.
local function cut(o, n, memory)
  local function filled(length) return (length + o.chunk - 1) // o.chunk * o.chunk end
  local size = filled(math.min(n, o.window))
  local single = n <= o.window
  local cuts = { size = size, count = single and 1 or (n + size - 1) // size,
    reach = single and o.window or size, memory = memory }
  cuts.hidden_positions = hidden_positions(cuts, o.window)
  cuts.hidden_chunks = hidden_chunks(o, cuts)
  return cuts
end

function TransformerLS:build(o)
  check(self, o)
  heads.maps(self, o)
  self.scores = Linear(o.dim, o.heads * o.rank, { init = o.init })
  self.window_place = Linear(o.dim, o.dim, { init = o.init })
  self.chunk_place = Linear(o.dim, o.dim, { init = o.init })
  for _, name in ipairs { "norm_window", "norm_chunks" } do
    self[name] = LayerNorm(o.dim)
    initial.init.normal(self[name].weight, 1, 0.02)
  end
  local w = o.dim // o.heads
  local function offset(...)
    return initial.parameter(initial.init.normal(core.zeros(...), 0, 0.02))
  end
  self.content, self.place = offset(1, o.heads, 1, 1, w), offset(1, o.heads, 1, w)
  self.encodings = cache.recent(function(count) return encodings(count, o.dim) end)
  self.cuts = cache.recent(function(memory)
    return cache.recent(function(n) return cut(o, n, memory) end)
  end)
end

-- Returns q_i . map(e(p)) in columns p = count-1 .. 0.   q [b,h,n,w]   result [b,h,n,count]
local function by_distance(self, q, map, count)
  local b, h, n, w = q:dim(1), q:dim(2), q:dim(3), q:dim(4)
  local places = map(self.encodings(count)):reshape(count, h, w):permute { 2, 1, 3 }
  local rows = q:permute({ 2, 1, 3, 4 }):reshape(h, b * n, w)
  return core.matmul(rows, places, false, true):reshape(h, b, n, count):permute { 2, 1, 3, 4 }
end

-- Returns x with the reach positions before it, which are the memory's or zeros.
--   x [b,count size,dim]   result [b,reach + count size,dim]
local function extended(x, memory, cuts)
  local used = math.min(cuts.memory, cuts.reach)
  if used > 0 then x = core.concat({ memory:narrow(2, cuts.memory - used + 1, used), x }, 2) end
  return shapes.pad(x, 2, cuts.reach - used, 0)
end

-- Returns for each block its positions and the reach positions before it.
--   t [b,h,reach + count size,w]   result [b,h,count,reach + size,w]
local function windows(t, cuts)
  local b, h, w = t:dim(1), t:dim(2), t:dim(4)
  if cuts.count == 1 then return t:reshape(b, h, 1, -1, w) end
  t = t:reshape(b, h, -1, cuts.size, w) -- reach is size
  return core.concat({ t:narrow(3, 1, cuts.count), t:narrow(3, 2, cuts.count) }, 4)
end

-- Returns the logits of the window: [b,h,count,size,reach + size].
--   q [b,h,count size,w]   k [b,h,count,reach + size,w]
-- Row i of a block has distance W-1 in column reach-W+1+i, one column later than the row before.
-- So distances are written to rows of one column more, and read as rows of reach + size.
local function window_logits(self, q, k, cuts)
  local b, h, window = q:dim(1), q:dim(2), self.opt.window
  local count, size, columns = cuts.count, cuts.size, cuts.reach + cuts.size
  local content = core.matmul(q:reshape(b, h, count, size, -1) + self.content, k, false, true)
  local place = by_distance(self, q + self.place, self.window_place, window)
  place = shapes.pad(place:reshape(b, h, count, size, window), 5, cuts.reach - window + 1, size)
  place = place:reshape(b, h, count, -1):narrow(4, 1, size * columns)
  return content + place:reshape(b, h, count, size, columns) + cuts.hidden_positions
end

-- Returns the vectors of all chunks but the last, which no token sees: [b,h,t,w].
--   x [b,count size,dim]   map: the keys' or the values'
local function chunk_vectors(self, x, memory, map)
  local o, parts = self.opt, {}
  local function pooled(t, scored) return pool(t, self.scores(scored), o.chunk, o.heads, o.rank) end
  if memory then parts[1] = map(pooled(memory, memory)) end
  if x:dim(2) > o.chunk then
    x = x:narrow(2, 1, x:dim(2) - o.chunk)
    parts[#parts + 1] = pooled(map(x), x)
  end
  return heads.split(self.norm_chunks(core.concat(parts, 2)), o.heads)
end

-- Returns the logits of the vectors of chunks: [b,h,n,t].   q [b,h,n,w]   k [b,h,t,w]
-- A token of chunk a has the distance 0 in column D-1, which is r columns later than for chunk a-1.
-- So distances are written to rows of r columns more, and read as rows of t.
local function chunk_logits(self, q, k, cuts)
  local o, b, h, n, total = self.opt, q:dim(1), q:dim(2), q:dim(3), k:dim(3)
  local c, r, count = o.chunk, o.rank, n // o.chunk
  local place = by_distance(self, q, self.chunk_place, total):reshape(b, h, count, c, total)
  place = shapes.pad(place, 5, r, 0):permute { 1, 2, 4, 3, 5 }
  place = place:reshape(b, h, c, -1):narrow(4, count * r + 1, count * total)
  place = place:reshape(b, h, c, count, total):permute { 1, 2, 4, 3, 5 }
  local logits = core.matmul(q, k, false, true):reshape(b, h, count, c, total) + place
  return (logits + cuts.hidden_chunks):reshape(b, h, n, total)
end

-- Returns the values of both sets of keys under one softmax of their logits: [b,h,n,w].
local function mix(close, far, near_values, far_values, cuts)
  local b, h, w = close:dim(1), close:dim(2), far_values:dim(4)
  local columns, total = close:dim(5), far:dim(4)
  local a = core.softmax(core.concat({ close, far:reshape(b, h, cuts.count, cuts.size, total) }, 5))
  return core.matmul(a:narrow(5, 1, columns), near_values):reshape(b, h, -1, w)
    + core.matmul(a:narrow(5, columns + 1, total):reshape(b, h, -1, total), far_values)
end

function TransformerLS:forward(x, memory)
  local o, n, h = self.opt, x:dim(2), self.opt.heads
  local before = memory and memory:dim(2) or 0
  if before % o.chunk ~= 0 then
    error(("TransformerLS: a memory of %d positions is not a multiple of chunk = %d"):format(
      before, o.chunk), 0)
  end
  local cuts = self.cuts(before)(n)
  memory = before > 0 and memory:clone() or nil -- the copy has no gradient
  x = shapes.fill(x, 2, cuts.size)
  local q, all = heads.split(self.q(x), h), extended(x, memory, cuts)
  q = core.affine(q, q:dim(4) ^ -0.5, 0)
  local function near(map) return windows(heads.split(self.norm_window(map(all)), h), cuts) end
  local close, y = window_logits(self, q, near(self.k), cuts), nil
  if memory or x:dim(2) > o.chunk then
    local far = chunk_logits(self, q, chunk_vectors(self, x, memory, self.k), cuts)
    y = mix(close, far, near(self.v), chunk_vectors(self, x, memory, self.v), cuts)
  else
    y = core.matmul(core.softmax(close), near(self.v)):reshape(q:shape())
  end
  return self.o(heads.join(y):narrow(2, 1, n))
end

TransformerLS.apart = { window_place = true, chunk_place = true } -- applied to distances

-- A token is compared with two windows, and with the vectors of all chunks but the last, whether it
-- sees them or not. Both have products by distance. Chunks map x to keys and values again.
function TransformerLS:own_cost(n)
  local o, window = self.opt, math.min(n, self.opt.window)
  local far = (n - 1) // o.chunk * o.rank
  local flop, numbers = cost.attention(n, 2 * window + far, o.dim, o.dim, o.heads)
  flop = flop + 2.0 * (n + o.dim) * o.dim * (window + far)
  if far > 0 then flop = flop + 4.0 * n * o.dim * (o.dim + o.rank) end
  return flop, 3 * numbers -- logits of both kinds are stored before they are joined
end

TransformerLS.ignores_later = true

return { TransformerLS = TransformerLS }
