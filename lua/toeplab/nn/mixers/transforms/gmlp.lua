-- nn/mixers/transforms/gmlp.lua: defines GMLP, a gated network whose gate mixes the positions.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local cache = require "toeplab.nn.cache"
local cost = require "toeplab.nn.cost"
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local LayerNorm = require("toeplab.nn.norm").LayerNorm
local matrix = require "toeplab.nn.mixers.transforms.matrix"
local options = require "toeplab.base.options"
local shapes = require "toeplab.nn.shapes"

-- y = x + Wo (u * (M LN(v) + bias)),  [u, v] = gelu(Wi LN(x)) (Liu et al. 2021, Eq. 1 to 5).
--   x, y [b,n,dim]   u, v [b,n,ffn_dim/2]   M [max_length,max_length]   bias [max_length]
-- M and bias are cut to n positions; with causal, M is 0 above its diagonal. The module has its own
-- norm and shortcut and needs no channel mixer: use it in a Block with the layout none. M starts
-- near 0 and bias at 1, as in the paper. With as_published, as in the code that TNN compares with,
-- M starts like a linear map, bias is an unused parameter, and M v is 0 at positions beyond
-- max_length; otherwise a longer sequence is an error. M costs n^2 products per channel.
local GMLP = class("GMLP", {
  dim = options.field { type = "int", min = 1 },
  causal = true,
  ffn_dim = options.field { type = "int", min = 2, optional = true },
  max_length = options.field { default = 512, min = 1 },
  init = options.field { type = "function|string", default = "torch" },
  as_published = false,
}, { "dim" })

-- The deviation of M from 0 at the start, over max_length: the rows of M v are then about 0.001 v.
local NEAR = 1e-3

function GMLP:build(o)
  local width = o.ffn_dim or 4 * o.dim
  if width % 2 ~= 0 then
    error(("GMLP: ffn_dim = %d must be even"):format(width), 0)
  end
  self.norm = LayerNorm(o.dim)
  self.i = Linear(o.dim, width, { init = o.init })
  self.gate_norm = LayerNorm(width // 2)
  self.gate = Linear(o.max_length, o.max_length, { init = o.as_published and o.init
    or function(weight, bias)
      initial.init.uniform(weight, -NEAR / o.max_length, NEAR / o.max_length)
      bias:fill(1)
    end })
  self.o = Linear(width // 2, o.dim, { init = o.init })
  self.lower = cache.recent(shapes.lower)
end

-- Returns M v + bias over positions: [b,n,w] -> [b,n,w].
local function mix(self, v)
  local o, n = self.opt, v:dim(2)
  local m = matrix.covered("GMLP", o, n)
  local weight = self.gate.weight:narrow(1, 1, m):narrow(2, 1, m)
  if o.causal then weight = weight * self.lower(m) end
  local y = matrix.apply(weight, m < n and v:narrow(2, 1, m) or v)
  if not o.as_published then return y + self.gate.bias:narrow(1, 1, m):reshape(m, 1) end
  return shapes.pad(y, 2, 0, n - m)
end

function GMLP:forward(x)
  local h = core.gelu(self.i(self.norm(x)))
  local half = h:dim(3) // 2
  local u, v = h:narrow(3, 1, half), h:narrow(3, half + 1, half)
  return x + self.o(u * mix(self, self.gate_norm(v)))
end

GMLP.apart = { gate = true } -- a map of positions

function GMLP:own_cost(n)
  local m, width = matrix.covered("GMLP", self.opt, n), self.o.opt.inputs
  return cost.attention(m, m, 0, width, 1)
end

GMLP.ignores_later = true

return { GMLP = GMLP }
