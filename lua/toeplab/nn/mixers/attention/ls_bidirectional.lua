-- nn/mixers/attention/ls_bidirectional.lua: defines LSBidirectional, long-short attention whose
-- tokens see a window and a few landmarks of the whole text (Zhu et al. 2021).

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local cost = require "toeplab.nn.cost"
local heads = require "toeplab.nn.mixers.heads"
local Linear = require("toeplab.nn.linear").Linear
local LayerNorm = require("toeplab.nn.norm").LayerNorm
local options = require "toeplab.base.options"
local pool = require "toeplab.nn.mixers.attention.pool"
local shapes = require "toeplab.nn.shapes"

-- y = Wo a V, where a is one softmax per head over two sets of keys (Zhu et al. 2021, Sec. 3):
--   landmarks  r keys LN_s(A k) and values LN_s(A v), where A is a softmax over all positions of
--              r linear scores of x per head (option landmarks)
--   window     the tokens from W/2 before to W/2 after the token's own block of W (option window;
--              W/2 is rounded down, but is at least 1)
--   x, y [b,n,dim]   q = x Wq / sqrt(w)   k = LN_l(x Wk)   v = LN_l(x Wv)
-- Its time grows as n (r + 2W) dim. It cannot be causal, since landmarks hold all positions.
-- x is filled with zeros up to a multiple of W. as_published lets these positions take part in
-- landmarks and windows like tokens.
local LSBidirectional = class("LSBidirectional", heads.spec {
  causal = false,
  landmarks = options.field { default = 32, min = 1, help = "landmarks of the whole text" },
  window = options.field { default = 8, min = 1,
    help = "width of the window, and positions of a block" },
  as_published = false,
  init = options.field { type = "function|string", default = "torch" },
}, { "dim" })

-- Returns the term that hides the rows of windows() beyond the first n: [N,1,size + 2 reach].
local function hidden(n, count, size, reach)
  local start = core.affine(core.range(0, count - 1), size, -reach):reshape(count, 1, 1)
  local at = start + core.range(0, size + 2 * reach - 1):reshape(1, 1, -1)
  local seen = shapes.step(at) * shapes.step(core.affine(at, -1, n - 1))
  return heads.hide(seen)
end

-- Returns how an input of n positions is cut: count blocks of size that see reach positions before
-- and after, the first `seen` positions of which take part, and the term that hides the others.
local function cut(o, n)
  local size, reach = o.window, math.max(o.window // 2, 1)
  local count = (n + size - 1) // size
  local seen = o.as_published and count * size or n
  return { size = size, reach = reach, count = count, seen = seen,
    hidden = hidden(seen, count, size, reach) }
end

function LSBidirectional:build(o)
  if o.causal then
    error("LSBidirectional: causal = true is impossible, as landmarks hold all positions: use the "
      .. "mixer transformer_ls, or causal = false", 0)
  end
  heads.maps(self, o)
  self.scores = Linear(o.dim, o.heads * o.landmarks, { init = o.init })
  self.norm_window, self.norm_landmarks = LayerNorm(o.dim), LayerNorm(o.dim)
  self.cuts = cache.recent(function(n) return cut(o, n) end)
end

-- Returns for each block of size positions the rows from reach before to reach after it, with rows
-- of zeros where there are none.   t [b,h,N size,w]   result [b,h,N,size + 2 reach,w]
local function windows(t, size, reach)
  local b, h, w = t:dim(1), t:dim(2), t:dim(4)
  t = t:reshape(b, h, -1, size, w)
  local others, none = t:dim(3) - 1, core.zeros(b, h, 1, reach, w)
  local tails = t:narrow(3, 1, others):narrow(4, size - reach + 1, reach)
  local starts = t:narrow(3, 2, others):narrow(4, 1, reach)
  local before, behind = core.concat({ none, tails }, 3), core.concat({ starts, none }, 3)
  return core.concat({ before, t, behind }, 4)
end

function LSBidirectional:forward(x)
  local o, b, n, dim = self.opt, x:dim(1), x:dim(2), x:dim(3)
  local h, w, r, cuts = o.heads, dim // o.heads, o.landmarks, self.cuts(n)
  local count, size, seen = cuts.count, cuts.size, cuts.seen
  x = shapes.fill(x, 2, size)
  local q = core.affine(heads.split(self.q(x), h), w ^ -0.5, 0)
  local k, v = self.norm_window(self.k(x)), self.norm_window(self.v(x))
  local scores = self.scores(x):narrow(2, 1, seen)
  local function landmarks(t)
    return heads.split(self.norm_landmarks(pool(t:narrow(2, 1, seen), scores, seen, h, r)), h)
  end
  local function near(t) return windows(heads.split(t, h), size, cuts.reach) end
  local far = core.matmul(q, landmarks(k), false, true):reshape(b, h, count, size, r)
  local close = core.matmul(q:reshape(b, h, count, size, w), near(k), false, true) + cuts.hidden
  local a = core.softmax(core.concat({ far, close }, 5))
  local y = core.matmul(a:narrow(5, 1, r):reshape(b, h, -1, r), landmarks(v))
    + core.matmul(a:narrow(5, r + 1, close:dim(5)), near(v)):reshape(b, h, -1, w)
  return self.o(heads.join(y):narrow(2, 1, n))
end

-- Besides the attention, keys and values are summed to landmarks.
function LSBidirectional:own_cost(n)
  local o = self.opt
  local seen = o.landmarks + o.window + 2 * math.max(o.window // 2, 1)
  local flop, numbers = cost.attention(n, seen, o.dim, o.dim, o.heads)
  return flop + 4.0 * n * o.landmarks * o.dim, numbers
end

return { LSBidirectional = LSBidirectional }
