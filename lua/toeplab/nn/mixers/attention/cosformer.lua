-- nn/mixers/attention/cosformer.lua: defines Cosformer, linear attention whose weights fall with
-- the distance as a cosine.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local chunks = require "toeplab.nn.mixers.attention.chunks"
local heads = require "toeplab.nn.mixers.heads"
local Linear = require("toeplab.nn.linear").Linear
local options = require "toeplab.base.options"

local LEAST = 1e-4 -- least sum of a row's weights

-- y = Wo A v,  A_ij = relu(q_i) . relu(k_j) cos(pi (i-j) / (2 length)), and each row is divided by
-- its sum, at least 1e-4, per head (Qin et al. 2022, Eq. 10-12). If causal, j <= i.
--   x, y [b,n,dim]   q, k, v = maps of x with bias
-- The cosine is cos a_i cos a_j + sin a_i sin a_j with a_i = pi i / (2 length), so that q and k
-- become twice as wide and time grows as n dim (dim/heads). length is the distance at which a
-- weight becomes 0, so n may not exceed it; as_published uses n instead, so that the same tokens
-- mix differently in a longer text. output = false leaves out Wo, as the published code does. init
-- = "xavier" starts v and o as in heads.maps, but q and k as "torch".
local Cosformer = class("Cosformer", heads.spec {
  length = options.field { default = 512, min = 1,
    help = "length over which the weights fall to 0" },
  output = true,
  as_published = false,
}, { "dim" })

function Cosformer:build(o)
  heads.width(self, o.dim)
  local xavier = o.init == "xavier"
  for _, name in ipairs { "q", "k" } do
    self[name] = Linear(o.dim, o.dim, { init = xavier and "torch" or o.init })
  end
  self.v = Linear(o.dim, o.dim, { init = xavier and "xavier_input" or o.init })
  if o.output then self.o = Linear(o.dim, o.dim, { init = o.init }) end
  self.sum = chunks.summer(o.causal)
  self.angles = cache.recent(function(n)
    local angle = core.affine(core.range(0, n - 1), math.pi / (2 * self:length(n)), 0)
    return { cos = core.cos(angle):reshape(n, 1), sin = core.sin(angle):reshape(n, 1) }
  end)
end

-- Returns the length by which distances are divided for an input of n tokens.
function Cosformer:length(n)
  local o = self.opt
  if o.as_published then return n end
  if n > o.length then
    error(("Cosformer: an input of %d tokens is longer than length = %d, beyond which weights "
      .. "would be negative: set length to the longest input"):format(n, o.length), 0)
  end
  return o.length
end

function Cosformer:forward(x)
  local count, t = self.opt.heads, self.angles(x:dim(2))
  local function features(z)
    z = core.relu(heads.split(z, count))
    return core.concat({ z * t.cos, z * t.sin }, 4)
  end
  local q, k, v = features(self.q(x)), features(self.k(x)), heads.split(self.v(x), count)
  local y = heads.join(chunks.normalised(self.sum, q, k, v, LEAST))
  return self.o and self.o(y) or y
end

function Cosformer:own_cost(n)
  local o, w = self.opt, self.opt.dim // self.opt.heads
  return chunks.cost(o.causal, n, o.heads, 2 * w, w + 1)
end

Cosformer.ignores_later = true

return { Cosformer = Cosformer }
