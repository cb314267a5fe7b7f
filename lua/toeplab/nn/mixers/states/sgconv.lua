-- nn/mixers/states/sgconv.lua: defines SGConv, a convolution whose kernel is learnt at scales that
-- double with the lag.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local modes = require "toeplab.nn.mixers.states.modes"
local options = require "toeplab.base.options"
local rows = require "toeplab.nn.encoders.rows"
local shapes = require "toeplab.nn.shapes"
local TNO = require("toeplab.nn.mixers.tno").TNO

local init, parameter = initial.init, initial.parameter

local function fields(backend)
  return {
    dim = options.field { type = "int", min = 1 },
    causal = true,
    length = options.field { type = "int", min = 1,
      help = "lags of the kernel, which is 0 beyond them" },
    size = options.field { default = 32, min = 1,
    help = "numbers of each sub-kernel, whose scales grow" },
    backend = backend, -- the plugin that applies the convolution
  }
end

-- The encoder of SGConv:  K = [2^(s-1) k_1, 2^(s-2) up(k_2, 1), 2^(s-3) up(k_3, 2), ..,
-- up(k_s, 2^(s-2))]/Z with s sub-kernels k_i of `size` numbers, where up(k, f) interpolates
-- linearly to f times the numbers (Li et al. 2023, What makes convolutional models great on long
-- sequence modeling?, Sec. 3.2 and the published code).
--   k [1 or 2,s size,dim] ~ N(0,1)   skip [1,dim] ~ N(0,1)
-- s is the least for which K has `length` numbers; lags beyond have the coefficient 0. Z [1 or
-- 2,dim] is the norm of K as initialised, so that each channel starts with a kernel of norm 1.
local Kernel = class("SGConvKernel", fields(), { "dim" })

Kernel.domains, Kernel.by_point = { lag = true }, true

local function scales(o)
  local count, reach = 1, o.size
  while reach < o.length do
    count, reach = count + 1, reach + (o.size << (count - 1))
  end
  return count
end

-- Returns the matrix [lags,s size] from sub-kernels to K, without Z.
local function interpolation(o)
  local count, matrix = scales(o), {}
  for i = 1, count do
    local factor = 1 << math.max(0, i - 2)
    for j = 0, o.size * factor - 1 do
      local row, low, high, weight = {}, rows.cell((j + 0.5) / factor - 0.5, o.size)
      for k = 1, count * o.size do row[k] = 0.0 end
      local scale, first = 2.0 ^ (count - i), (i - 1) * o.size + 1
      row[first + low] = scale * (1 - weight)
      row[first + high] = row[first + high] + scale * weight
      if #matrix < o.length then matrix[#matrix + 1] = row end
    end
  end
  return core.tensor(matrix)
end

function Kernel:build(o)
  modes.prepare(self)
  local directions = o.causal and 1 or 2
  self.matrix = { interpolation(o) } -- in a table, because it is neither trained nor saved
  self.k = parameter(init.normal(core.zeros(directions, scales(o) * o.size, o.dim), 0, 1))
  self.skip = parameter(init.normal(core.zeros(1, o.dim), 0, 1))
  self:buffer("norm", core.no_grad(function()
    local norms = {}
    for i = 1, directions do
      local kernel = core.matmul(self.matrix[1], self.k:narrow(1, i, 1):reshape(-1, o.dim))
      norms[i] = core.sqrt(core.affine((kernel * kernel):sum(1, true), 1, 1e-12))
    end
    return core.concat(norms, 1):reshape(directions, o.dim):clone()
  end))
end

function Kernel:forward(points)
  local o, n = self.opt, modes.length(points)
  local known = math.min(n, o.length)
  local matrix = self.matrix[1]:narrow(1, 1, known)
  local function kernel(direction)
    local k = core.matmul(matrix, self.k:narrow(1, direction, 1):reshape(-1, o.dim))
    k = k / self.norm:narrow(1, direction, 1)
    return shapes.pad(k, 1, 0, n - known)
  end
  return modes.coefficients(self, kernel(1), not o.causal and kernel(2), self.skip)
end

function Kernel:own_cost(p)
  return 2.0 * p * self.k:dim(2) * self.opt.dim, 0.0
end

-- y = GLU(Wo gelu(K x) + bo), as S4.   x, y [b,n,dim]
-- The kernel takes n s size dim products, where s size is about size log2(length/size), the
-- convolution n log n steps.
local SGConv = class("SGConv", fields "rac", { "dim" })
SGConv.ignores_zeros = true

function SGConv:build(o)
  self.kernel = Kernel(o.dim, { causal = o.causal, length = o.length, size = o.size })
  self.tno = TNO(o.dim, { encoder = self.kernel, causal = o.causal, decay = "none",
    backend = o.backend })
  self.o = Linear(o.dim, 2 * o.dim)
end

function SGConv:forward(x)
  return modes.glu(self.o(core.gelu(self.tno(x))))
end

SGConv.apart = { kernel = true } -- the TNO counts its encoder
SGConv.stepwise = true -- only its TNO mixes positions

return { SGConv = SGConv }
