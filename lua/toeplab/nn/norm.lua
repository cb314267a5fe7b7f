-- nn/norm.lua: defines the norms over the last axis, and norm(name, dim), which makes one by name.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

local parameter = initial.parameter

-- Declares a class of norms over a last axis of dim numbers. eps is its default for the option eps.
local function norm_class(name, eps, more)
  local spec = more or {}
  spec.dim = options.field { type = "int", min = 1 }
  spec.eps = options.field { default = eps, min = 0 }
  return class(name, spec, { "dim" })
end

local function affine(self, o)
  self.weight = parameter(core.ones(o.dim))
  self.bias = parameter(core.zeros(o.dim))
end

-- y = (x - mean) / sqrt(var + eps) weight + bias (Ba et al. 2016); affine = false leaves out weight
-- and bias.
local LayerNorm = norm_class("LayerNorm", 1e-5, { affine = true })

function LayerNorm:build(o)
  if o.affine then affine(self, o) end
end

function LayerNorm:forward(x)
  return core.layer_norm(x, self.weight, self.bias, self.opt.eps)
end

-- y = x / sqrt(mean x^2 + eps) weight (Zhang & Sennrich 2019).
local RMSNorm = norm_class("RMSNorm", 1e-6)

function RMSNorm:build(o)
  self.weight = parameter(core.ones(o.dim))
end

function RMSNorm:forward(x)
  return core.rms_norm(x, self.weight, self.opt.eps)
end

-- y = x / (||x||/sqrt(dim) + eps), without parameters, as in the published code of TNN.
local SimpleRMSNorm = norm_class("SimpleRMSNorm", 1e-8)

function SimpleRMSNorm:forward(x)
  return core.simple_rms_norm(x, self.opt.eps)
end

-- y = weight x / max(||x||/sqrt(dim), eps), weight one number (Nguyen & Salazar 2019, as in FLASH).
local ScaleNorm = norm_class("ScaleNorm", 1e-5)

function ScaleNorm:build()
  self.weight = parameter(core.ones(1))
end

function ScaleNorm:forward(x)
  return core.scale_norm(x, self.weight, self.opt.eps)
end

-- The formula of LayerNorm with mean and var taken per channel over all other axes; evaluation uses
-- running statistics instead (Ioffe & Szegedy 2015; PyTorch's defaults).
local BatchNorm = norm_class("BatchNorm", 1e-5, {
  momentum = options.field { default = 0.1, min = 0, max = 1 },
})

function BatchNorm:build(o)
  affine(self, o)
  self:buffer("running_mean", core.zeros(o.dim))
  self:buffer("running_var", core.ones(o.dim))
end

function BatchNorm:forward(x)
  return core.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var,
    self.training, self.opt.momentum, self.opt.eps)
end

local NoNorm = class("NoNorm", { dim = "int" }, { "dim" })

function NoNorm:forward(x)
  return x
end

local kinds = {
  layernorm = LayerNorm, rmsnorm = RMSNorm, simplermsnorm = SimpleRMSNorm, scalenorm = ScaleNorm,
  batchnorm = BatchNorm, none = NoNorm,
}

-- Declares an option whose value is the name of a norm.
local function norm_option(default)
  return options.field { default = default, choices = suggest.keys(kinds) }
end

-- Makes the norm of that name over width channels: norm("layernorm", 512).
local function norm(name, width)
  return suggest.strict("nn.norm", kinds)[name](width)
end

return {
  norm = norm, norm_option = norm_option, LayerNorm = LayerNorm, RMSNorm = RMSNorm,
  SimpleRMSNorm = SimpleRMSNorm, ScaleNorm = ScaleNorm, BatchNorm = BatchNorm,
}
