-- nn/mixers/transforms/synthesizer.lua: defines the dense and the random Synthesizer, whose
-- attention weights do not come from products of queries and keys.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local cost = require "toeplab.nn.cost"
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local matrix = require "toeplab.nn.mixers.transforms.matrix"
local options = require "toeplab.base.options"
local shapes = require "toeplab.nn.shapes"

local function spec(more)
  local all = {
    dim = options.field { type = "int", min = 1 },
    causal = true,
    max_length = options.field { default = 512, min = 1 },
    as_published = false,
  }
  for name, field in pairs(more) do all[name] = field end
  return all
end

-- Returns P x with P = softmax(scores(n)) for the first max_length positions; later ones, which
-- only as_published allows, become 0.   x [b,n,dim]
local function mix(self, x, scores)
  local n = x:dim(2)
  local m = matrix.covered(self.kind, self.opt, n)
  local inside = m < n and x:narrow(2, 1, m) or x
  local y = matrix.apply(core.softmax(scores(inside, m), self.opt.causal), inside)
  return shapes.pad(y, 2, 0, n - m)
end

-- y = softmax(W2 relu(W1 x)) x, where row i of the weights comes from token i alone (Tay et al.
-- 2021, Eq. 1 to 3).   x, y [b,n,dim]   w1 [dim,dim]   w2 [max_length,dim], its first n rows
-- The paper mixes values V x; the code that TNN compares with has no values, no output map and one
-- matrix for all channels, and so does this module. With as_published, positions beyond max_length
-- are 0; otherwise a longer sequence is an error. A channel costs n^2 products for the weights and
-- n^2 for their use.
local SynthesizerDense = class("SynthesizerDense", spec {
  init = options.field { type = "function|string", default = "torch" },
}, { "dim" })

function SynthesizerDense:build(o)
  self.w1 = Linear(o.dim, o.dim, { init = o.init })
  self.w2 = Linear(o.dim, o.max_length, { init = o.init })
end

function SynthesizerDense:forward(x)
  return mix(self, x, function(inside, n)
    local h = core.relu(self.w1(inside))
    return core.linear(h, self.w2.weight:narrow(1, 1, n), self.w2.bias:narrow(1, 1, n))
  end)
end

SynthesizerDense.apart = { w2 = true } -- of which n rows are used

function SynthesizerDense:own_cost(n)
  local m = matrix.covered(self.kind, self.opt, n)
  return cost.attention(m, m, self.opt.dim, self.opt.dim, 1)
end

-- y = softmax(w) x, where w [max_length,max_length] ~ N(0,1) is learned and cut to n x n (Tay et
-- al. 2021, Sec. 3.1).   x, y [b,n,dim]
-- As above, there are no values and no output map. The matrix has no structure, so a sequence costs
-- n^2 products per channel in any implementation.
local SynthesizerRandom = class("SynthesizerRandom", spec {}, { "dim" })

function SynthesizerRandom:build(o)
  local w = core.zeros(o.max_length, o.max_length)
  self.w = initial.parameter(initial.init.normal(w, 0, 1))
end

function SynthesizerRandom:forward(x)
  return mix(self, x, function(_, n) return self.w:narrow(1, 1, n):narrow(2, 1, n) end)
end

function SynthesizerRandom:own_cost(n)
  local m = matrix.covered(self.kind, self.opt, n)
  return cost.attention(m, m, 0, self.opt.dim, 1)
end

SynthesizerDense.ignores_later, SynthesizerRandom.ignores_later = true, true

return { SynthesizerDense = SynthesizerDense, SynthesizerRandom = SynthesizerRandom }
