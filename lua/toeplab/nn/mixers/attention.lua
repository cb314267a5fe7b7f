-- nn/mixers/attention.lua: defines softmax attention: multi-head Attention, and the GatedAttention
-- of TNN's Table 7.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local act = require "toeplab.nn.act"
local cache = require "toeplab.nn.cache"
local Dropout = require("toeplab.nn.dropout").Dropout
local Linear = require("toeplab.nn.linear").Linear
local options = require "toeplab.base.options"
local position = require "toeplab.nn.position"

-- [b,n,h w] -> [b,h,n,w]
local function split_heads(x, heads)
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  return x:reshape(b, n, heads, d // heads):permute { 1, 3, 2, 4 }
end

-- [b,h,n,w] -> [b,n,h w]
local function join_heads(x)
  local b, h, n, w = x:dim(1), x:dim(2), x:dim(3), x:dim(4)
  return x:permute({ 1, 3, 2, 4 }):reshape(b, n, h * w)
end

local NEVER = 1e9 -- lowers a score by so much that its weight rounds to 0

-- Returns softmax(q k^T / sqrt(w) + bias) v, computed per head. With the option causal, a token
-- attends to itself and earlier ones.   q, k [b,n,h w]   v [b,n,h w']   bias [h,n,n], of ALiBi only
-- inside [b,n,1], if given, is 0 at positions that no token attends to.
local function attend(self, q, k, v, inside)
  local heads, n = self.opt.heads, q:dim(2)
  q, k, v = split_heads(q, heads), split_heads(k, heads), split_heads(v, heads)
  local scores = core.affine(core.matmul(q, k, false, true), 1 / math.sqrt(q:dim(4)), 0)
  if self.opt.positions == "alibi" then
    scores = scores + self.bias(n)
  end
  if inside then
    scores = scores + core.affine(inside, NEVER, -NEVER):reshape(inside:dim(1), 1, 1, n)
  end
  local weights = core.softmax(scores, self.opt.causal)
  if self.drop then weights = self.drop(weights) end
  return join_heads(core.matmul(weights, v))
end

local function spec(more)
  local all = {
    dim = options.field { type = "int", min = 1 },
    heads = options.field { default = 1, min = 1 },
    causal = true,
    positions = options.field { default = "none", choices = { "none", "sinusoidal", "alibi" } },
    dropout = options.field { default = 0.0, min = 0, max = 0.999 },
    init = options.field { type = "function|string", default = "torch" },
  }
  for name, field in pairs(more) do all[name] = field end
  return all
end

local function prepare(self, o, width)
  if o.dim % o.heads ~= 0 or width % o.heads ~= 0 then
    error(("%s: %d and %d channels do not divide into %d heads"):format(
      self.kind, o.dim, width, o.heads), 0)
  end
  self.bias = cache.recent(function(n) return position.alibi_bias(o.heads, n) end)
  if o.dropout > 0 then self.drop = Dropout(o.dropout) end
  if o.positions == "sinusoidal" then self.position = position.Sinusoidal(o.dim) end
end

-- y = Wo attend(x Wq, x Wk, x Wv), where all maps have a bias (Vaswani et al. 2017).
--   x, y [b,n,dim]
-- positions: "sinusoidal" adds an encoding to x, "alibi" a bias to the scores.
-- Attention(x, inside) leaves out keys at padding, where inside [b,n,1] is 0.
local Attention = class("Attention", spec {}, { "dim" })

Attention.takes_padding = true

function Attention:build(o)
  prepare(self, o, o.dim)
  for _, name in ipairs { "q", "k", "v", "o" } do
    self[name] = Linear(o.dim, o.dim, { init = o.init })
  end
end

function Attention:forward(x, inside)
  if self.position then x = self.position(x) end
  return self.o(attend(self, self.q(x), self.k(x), self.v(x), inside))
end

-- y = (u * attend(x Wq, x Wk, v)) Wo,  u = act(x Wu),  v = act(x Wv).   x, y [b,n,dim]
-- u and v are expand * dim wide. The row "Attention+GLU" of TNN's Table 7 has this token mixer; it
-- was run without a mask and without positions.
local GatedAttention = class("GatedAttention", spec {
  expand = options.field { default = 2.0, min = 0 },
  act = act.act_option "silu",
}, { "dim" })

function GatedAttention:build(o)
  local width = math.floor(o.expand * o.dim)
  prepare(self, o, width)
  for _, name in ipairs { "q", "k" } do self[name] = Linear(o.dim, o.dim, { init = o.init }) end
  for _, name in ipairs { "u", "v" } do self[name] = Linear(o.dim, width, { init = o.init }) end
  self.o = Linear(width, o.dim, { init = o.init })
end

function GatedAttention:forward(x)
  if self.position then x = self.position(x) end
  local mixed = attend(self, self.q(x), self.k(x), act.act[self.opt.act](self.v(x)))
  return self.o(act.gate(self.opt.act, self.u(x), mixed))
end

return { Attention = Attention, GatedAttention = GatedAttention }
