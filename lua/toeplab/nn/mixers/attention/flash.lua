-- nn/mixers/attention/flash.lua: defines FlashQuad, gated attention with squared relu instead of a
-- softmax, and Flash, which confines it to chunks and mixes chunks linearly (Hua et al. 2022).

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local chunks = require "toeplab.nn.mixers.attention.chunks"
local cost = require "toeplab.nn.cost"
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local LayerNorm = require("toeplab.nn.norm").LayerNorm
local options = require "toeplab.base.options"
local position = require "toeplab.nn.position"
local shapes = require "toeplab.nn.shapes"

-- Returns a parameter of that shape, drawn from N(0, 0.02^2).
local function small(...)
  return initial.parameter(initial.init.normal(core.zeros(...), 0, 0.02))
end

-- y = weight x / sqrt(mean x^2 + 1e-5), where weight is one number.
local RootScale = class("RootScale", {})

function RootScale:build()
  self.weight = initial.parameter(core.ones(1))
end

function RootScale:forward(x)
  return core.rms_norm(x, self.weight, 1e-5)
end

-- y = z weight + bias per channel, which makes queries and keys from one shared map.   z, y
-- [..,dim] weight [1,dim] ~ N(0, 0.02^2)   bias [1,dim], from 0
local Offset = class("Offset", { dim = "int" }, { "dim" })

function Offset:build(o)
  self.weight = small(1, o.dim)
  self.bias = initial.parameter(core.zeros(1, o.dim))
end

function Offset:forward(z)
  return z * self.weight + self.bias
end

local function spec(more)
  local all = {
    dim = options.field { type = "int", min = 1 },
    causal = true,
    expand = options.field { default = 2.0, min = 0 },
    shared = options.field { default = 128, min = 2, help = "channels of queries and keys" },
    max_length = options.field { default = 512, min = 1, help = "distances with a bias" },
    norm = options.field { default = "scalenorm", choices = { "layernorm", "scalenorm" } },
    as_published = false,
    init = options.field { type = "function|string", default = "torch" },
  }
  for name, field in pairs(more) do all[name] = field end
  return all
end

-- Makes the common part of both kinds; offsets are the names of their queries and keys.
local function prepare(self, o, offsets)
  if o.shared % 2 == 1 then
    error(("%s: shared = %d must be even, as rotary positions turn pairs of channels"):format(
      self.kind, o.shared), 0)
  end
  local width = math.floor(o.expand * o.dim)
  if width < 1 then
    error(("%s: expand = %g leaves no channel for dim = %d"):format(self.kind, o.expand, o.dim), 0)
  end
  self.norm = o.norm == "scalenorm" and RootScale() or LayerNorm(o.dim)
  for _, name in ipairs { "u", "v" } do self[name] = Linear(o.dim, width, { init = o.init }) end
  self.z = Linear(o.dim, o.shared, { init = o.init })
  self.o = Linear(width, o.dim, { init = o.init })
  for _, name in ipairs(offsets) do self[name] = Offset(o.shared) end
  self.lags = small(2 * o.max_length - 1)
  if o.as_published then self.a, self.b = small(1, o.shared), small(1, o.shared) end
  self.rotate = position.rotary(o.shared)
  self.lower = cache.recent(shapes.lower)
end

-- Returns u, v and z, each silu of a map of norm(x).   x [b,n,dim]
local function branches(self, x)
  x = self.norm(x)
  return core.silu(self.u(x)), core.silu(self.v(x)), core.silu(self.z(x))
end

-- Returns B [n,n] with B_ij = lags[j-i+L-1], counted from 0, for n <= L. The 2n-1 lags and a 0 are
-- repeated n times and read as rows of 2n-1, so that each row begins one lag before the last.
local function bias(self, n)
  local lags = self.lags:narrow(1, self.opt.max_length - n + 1, 2 * n - 1)
  local repeated = shapes.pad(lags, 1, 0, 1):reshape(1, 2 * n) + core.zeros(n, 1)
  return repeated:reshape(-1):narrow(1, n, n * (2 * n - 1)):reshape(n, 2 * n - 1):narrow(2, 1, n)
end

-- Returns relu(q k^T / scale + added)^2, masked if causal.   q, k [..,n,s]   added [n,n] or nil
local function kernel(self, q, k, scale, added)
  local scores = core.affine(core.matmul(q, k, false, true), 1 / scale, 0)
  if added then scores = scores + added end
  local weights = core.relu2(scores)
  return self.opt.causal and weights * self.lower(q:dim(-2)) or weights
end

-- Returns the FLOP of K v, for a K [n,m], and the numbers stored: K in four stages, and K v.
local function kernel_cost(n, m, o)
  local flop, numbers = cost.attention(n, m, o.shared, o.expand * o.dim // 1, 1)
  return flop, numbers + 3.0 * n * m
end

-- y = x + (u * (K v)) Wo,  K_ij = relu(q_i . k_j / L + w[j-i])^2 (Hua et al. 2022, Sec. 3), where
-- u = silu(norm(x) Wu), v likewise, and q and k are silu(norm(x) Wz), each scaled and shifted per
-- channel (Offset), with rotary positions. If causal, j <= i.
--   x, y [b,n,dim]   u, v [b,n,expand dim]   q, k [b,n,shared]   w [2L-1], L = max_length
-- Time and memory grow as n^2, as in the paper's FLASH-Quad; Flash is its linear form.
-- It has its own norm and residual connection. n > L is an error, except as_published, where K is
-- then relu(q_i . k_j / n)^2 without w, which no training has seen. as_published also adds two
-- unused vectors, a and b, which the published counts of parameters include.
local FlashQuad = class("FlashQuad", spec {}, { "dim" })

function FlashQuad:build(o)
  prepare(self, o, { "q", "k" })
end

function FlashQuad:forward(x)
  local o, n = self.opt, x:dim(2)
  if n > o.max_length and not o.as_published then
    error(("FlashQuad: an input of %d tokens has distances for which no bias was learned: "
      .. "max_length = %d must be at least the longest input"):format(n, o.max_length), 0)
  end
  local u, v, z = branches(self, x)
  local q, k = self.rotate(self.q(z)), self.rotate(self.k(z))
  local known = n <= o.max_length
  local weights = kernel(self, q, k, known and o.max_length or n, known and bias(self, n) or nil)
  return x + self.o(u * core.matmul(weights, v))
end

function FlashQuad:own_cost(n)
  local o = self.opt
  return kernel_cost(n, n, o)
end

-- y = x + (u * ((K + G) v)) Wo (Hua et al. 2022, Sec. 4: mixed chunk attention):
--   K_ij = relu(q_i . k_j / c + w[j-i])^2 where i and j are in one chunk of c positions, else 0
--   G_ij = q'_i . k'_j / c where j is in an earlier chunk or, unless causal, for all j
-- Shapes and other parts are as in FlashQuad. x is filled with zeros up to a multiple of c, the
-- option chunk. Time grows as n (c + shared) expand dim, since G v comes from a running sum over
-- chunks. G is not divided by the number of chunks, and so grows with n.
-- as_published lets the filled positions, whose u, v and z are not 0, take part in bidirectional
-- models, and adds a and b as in FlashQuad.
local Flash = class("Flash", spec {
  chunk = options.field { type = "int", min = 1, optional = true,
    help = "positions of a chunk (default: 256, or max_length if it is less)" },
}, { "dim" })

function Flash:build(o)
  self.chunk = o.chunk or math.min(256, o.max_length)
  if self.chunk > o.max_length then
    error(("Flash: chunk = %d has more distances than the bias of max_length = %d: set chunk to at "
      .. "most max_length"):format(o.chunk, o.max_length), 0)
  end
  prepare(self, o, { "quad_q", "quad_k", "lin_q", "lin_k" })
end

function Flash:forward(x)
  local o, b, n, c = self.opt, x:dim(1), x:dim(2), self.chunk
  local function cut(t) return t:reshape(b, -1, c, t:dim(3)) end
  local u, v, z = branches(self, shapes.fill(x, 2, c))
  if not (o.causal or o.as_published) then v = shapes.fill(v:narrow(2, 1, n), 2, c) end
  local function turned(name) return self.rotate(self[name](z)) end
  local near = kernel(self, cut(turned "quad_q"), cut(turned "quad_k"), c, bias(self, c))
  local mixed = core.matmul(near, cut(v)):reshape(v:shape())
  local q, k, far = turned "lin_q", turned "lin_k", nil
  if o.causal then
    far = core.matmul(cut(q), chunks.before(cut(k), cut(v))):reshape(v:shape())
  else
    far = core.matmul(q, core.matmul(k, v, true))
  end
  mixed = mixed + core.affine(far, 1 / c, 0)
  return x + self.o((u * mixed):narrow(2, 1, n))
end

function Flash:own_cost(n)
  local o, c, width = self.opt, self.chunk, self.opt.expand * self.opt.dim // 1
  n = -(-n // c) * c
  local flop, numbers = kernel_cost(n, c, o)
  local states = o.causal and n // c or 1
  return flop + 4.0 * n * o.shared * width, numbers + states * o.shared * width
end

Flash.ignores_later, FlashQuad.ignores_later = true, true

return { Flash = Flash, FlashQuad = FlashQuad }
