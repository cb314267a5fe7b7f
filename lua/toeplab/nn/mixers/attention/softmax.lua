-- nn/mixers/attention/softmax.lua: defines softmax attention: multi-head Attention, and the
-- GatedAttention of TNN's Table 7. Both take time in n^2 and memory in n, with urpe in n^2.

local class = require("toeplab.nn.class").class
local act = require "toeplab.nn.act"
local cache = require "toeplab.nn.cache"
local carry = require "toeplab.nn.mixers.carry"
local cost = require "toeplab.nn.cost"
local Dropout = require("toeplab.nn.dropout").Dropout
local heads = require "toeplab.nn.mixers.heads"
local initial = require "toeplab.nn.initial"
local LagBias = require("toeplab.nn.mixers.attention.lag_bias").LagBias
local Linear = require("toeplab.nn.linear").Linear
local options = require "toeplab.base.options"
local position = require "toeplab.nn.position"
local Urpe = require("toeplab.nn.mixers.attention.urpe").Urpe

-- Returns softmax(q k^T / sqrt(w) + bias) v, computed per head. With the option causal, a token
-- attends to itself and earlier ones.
--   q, k [b,n,h w]   v [b,n,h w']   bias [h,before+2n-1], of ALiBi or LagBias
-- mask [b,n], if given, is 0 at positions that no token attends to. In a session (carry.lua) the n
-- positions follow previous ones, whose keys and values are kept, or the last of them.
local function attend(self, q, k, v, mask)
  local o, n, bias = self.opt, q:dim(2), nil
  local before = carry.advance(self.carry, n)
  q, k, v = heads.split(q, o.heads), heads.split(k, o.heads), heads.split(v, o.heads)
  if self.rotate then q, k = self.rotate(q, before), self.rotate(k, before) end
  if self.carry then k, v = carry.append(self.carry, k, v) end
  local kept = k:dim(3) - n -- of the positions before
  if o.positions == "alibi" then
    bias = kept == 0 and self.bias(n) or position.alibi_lags(o.heads, kept, n)
  elseif self.lag_bias then
    bias = self.lag_bias(kept, n)
  end
  return heads.join((self.urpe or heads.attend)(q, k, v, q:dim(4) ^ -0.5, { causal = o.causal,
    window = options.given(o, "window"), bias = bias, mask = mask, drop = self.drop }))
end

-- Returns the cost of attend for keys of all heads width wide and values values wide.
local function cost_of(self, n, width, values)
  local flop, numbers = cost.blockwise(n, n, width, values, self.opt.heads)
  if self.urpe then numbers = numbers + 4.0 * self.opt.heads * n * n end -- its weights
  return flop, numbers
end

-- The option positions selects how positions are encoded:
--   "sinusoidal"  an encoding is added to x (nn.Sinusoidal)
--   "learned"     rows of a table of max_length are added to x (nn.Learned)
--   "rotary"      queries and keys are turned, by head (position.rotary)
--   "alibi"       a bias is added to the scores
--   "relative"    trained numbers are added to them, for each lag up to max_length (LagBias)
--   "t5"          the same for 32 ranges of lags
local function spec(more)
  more.positions = options.field { default = "none",
    choices = { "none", "sinusoidal", "learned", "rotary", "alibi", "relative", "t5" } }
  more.urpe = options.field { default = false,
    help = "multiply the weights by trained numbers of the lag, up to max_length" }
  more.window = options.field { type = "int", min = 1, optional = true,
    help = "tokens seen: itself and those before it; if not causal, equally many after it" }
  more.max_length = position.Learned.spec.fields.max_length
  more.dropout = options.field { default = 0.0, min = 0, max = 0.999 }
  more.init = options.field { type = "function|string", default = "torch" }
  return heads.spec(more)
end

local function rotary(self, o)
  local width = heads.width(self, o.dim)
  if width % 2 == 1 then
    error(("%s: positions = 'rotary' turns pairs of channels, so the channels of a head, %d, must "
      .. "be even"):format(self.kind, width), 0)
  end
  return position.rotary(width)
end

local function prepare(self, o)
  self.bias = cache.recent(function(n) return position.alibi_lags(o.heads, 0, n) end)
  if o.dropout > 0 then self.drop = Dropout(o.dropout) end
  if o.positions == "sinusoidal" then self.position = position.Sinusoidal(o.dim) end
  if o.positions == "learned" then self.position = position.Learned(o.dim, o.max_length) end
  if o.positions == "rotary" then self.rotate = rotary(self, o) end
  if o.urpe then
    self.urpe = Urpe(o.heads, { causal = o.causal, max_length = o.max_length })
  end
  if o.positions == "relative" or o.positions == "t5" then
    self.lag_bias = LagBias(o.heads, { causal = o.causal, max_length = o.max_length,
      form = o.positions == "t5" and "t5" or "each" })
  end
end

-- y = Wo attend(x Wq, x Wk, x Wv), where all maps have a bias (Vaswani et al. 2017).
--   x, y [b,n,dim]   q, k, v [b,n,heads head_dim]
-- A head has dim/heads channels unless head_dim says otherwise. init = "xavier" starts the maps as
-- fairseq does (heads.maps). Attention(x, mask) leaves out keys at padding, where mask [b,n] is 0.
local Attention = class("Attention", spec {
  head_dim = options.field { type = "int", min = 1, optional = true },
}, { "dim" }, "x [b,n,dim] -> [b,n,dim]: attention by softmax")

Attention.takes_mask = true
Attention.carries, Attention.grows = true, true

function Attention:build(o)
  prepare(self, o)
  heads.maps(self, o)
end

function Attention:forward(x, mask)
  heads.check_input(self, x, mask)
  if self.position then x = self.position(x) end
  return self.o(attend(self, self.q(x), self.k(x), self.v(x), mask))
end

function Attention:own_cost(n)
  local width = self.opt.heads * heads.width(self, self.opt.dim)
  return cost_of(self, n, width, width)
end

-- The initial values of the maps of queries, keys and values in TNN's Table 7: weights as
-- fairseq's, biases as in the maps u and o.
local function gated_input(weight, bias)
  initial.init.linear.xavier_input(weight)
  initial.init.normal(bias, 0, 0.02)
end

-- y = (u * attend(x Wq, x Wk, v)) Wo,  u = act(x Wu),  v = act(x Wv).   x, y [b,n,dim]
-- u and v are expand * dim wide. The row "Attention+GLU" of TNN's Table 7 has this token mixer; it
-- was run without a mask and without positions, and with init = "normal": u and o start with
-- N(0, 0.02^2), and so do the biases of q, k and v, whose weights start with U(-a, a),
-- a = sqrt(3 / (inputs + outputs)).
local GatedAttention = class("GatedAttention", spec {
  expand = options.field { default = 2.0, min = 0 },
  act = act.act_option "silu",
}, { "dim" }, "x [b,n,dim] -> [b,n,dim]: attention times a gate")

GatedAttention.carries, GatedAttention.grows = true, true

function GatedAttention:build(o)
  local width = math.floor(o.expand * o.dim)
  heads.width(self, o.dim)
  heads.width(self, width)
  prepare(self, o)
  local input = o.init == "normal" and gated_input or o.init
  for _, name in ipairs { "q", "k" } do self[name] = Linear(o.dim, o.dim, { init = input }) end
  self.u = Linear(o.dim, width, { init = o.init })
  self.v = Linear(o.dim, width, { init = input })
  self.o = Linear(width, o.dim, { init = o.init })
end

function GatedAttention:forward(x)
  if self.position then x = self.position(x) end
  local mixed = attend(self, self.q(x), self.k(x), act.act[self.opt.act](self.v(x)))
  return self.o(act.gate(self.opt.act, self.u(x), mixed))
end

function GatedAttention:own_cost(n)
  return cost_of(self, n, self.opt.dim, self.opt.expand * self.opt.dim // 1)
end

return { Attention = Attention, GatedAttention = GatedAttention }
