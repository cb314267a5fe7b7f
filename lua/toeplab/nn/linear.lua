-- nn/linear.lua: defines Linear, the affine map.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"

-- y = x W^T + b.   x [..,inputs]   weight [outputs,inputs]   bias [outputs]   y [..,outputs]
-- init is the name of an initialiser in nn/initial.lua, or a function of (weight, bias).
local Linear = class("Linear", {
  inputs = options.field { type = "int", min = 1, help = "channels of x" },
  outputs = options.field { type = "int", min = 1, help = "channels of y" },
  bias = options.field { default = true, help = "add a bias" },
  init = options.field { type = "function|string", default = "torch" },
}, { "inputs", "outputs" }, "x [..,inputs] -> [..,outputs]: x W^T + bias")

function Linear:build(o)
  self.weight = initial.parameter(core.zeros(o.outputs, o.inputs))
  if o.bias then self.bias = initial.parameter(core.zeros(o.outputs)) end
  local init = type(o.init) == "function" and o.init or initial.init.linear[o.init]
  init(self.weight, self.bias)
end

function Linear:forward(x)
  return core.linear(x, self.weight, self.bias)
end

function Linear:own_cost(n)
  return 2.0 * n * self.opt.inputs * self.opt.outputs, 1.0 * n * self.opt.outputs
end

function Linear:brief()
  local o = self.opt
  return ("%d -> %d%s"):format(o.inputs, o.outputs, o.bias and "" or " no bias")
end

return { Linear = Linear }
