-- nn/norm.lua -- norms over the last axis, and norm(name, dim), which makes one by its name.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

local parameter = initial.parameter

local function dim() return options.field { type = "int", min = 1 } end
local function eps(default) return options.field { default = default, min = 0 } end

-- y = (x - mean) / sqrt(var + eps) weight + bias (Ba et al. 2016); affine = false: without the two.
local LayerNorm = class("LayerNorm", { dim = dim(), eps = eps(1e-5), affine = true }, { "dim" })

function LayerNorm:build(o)
  if not o.affine then return end
  self.weight = parameter(core.ones(o.dim))
  self.bias = parameter(core.zeros(o.dim))
end

function LayerNorm:forward(x)
  return core.layer_norm(x, self.weight, self.bias, self.opt.eps)
end

-- y = x / sqrt(mean x^2 + eps) weight (Zhang & Sennrich 2019).
local RMSNorm = class("RMSNorm", { dim = dim(), eps = eps(1e-6) }, { "dim" })

function RMSNorm:build(o)
  self.weight = parameter(core.ones(o.dim))
end

function RMSNorm:forward(x)
  return core.rms_norm(x, self.weight, self.opt.eps)
end

-- y = x / (||x||/sqrt(dim) + eps): no parameters (TNN code).
local SimpleRMSNorm = class("SimpleRMSNorm", { dim = dim(), eps = eps(1e-8) }, { "dim" })

function SimpleRMSNorm:forward(x)
  return core.simple_rms_norm(x, self.opt.eps)
end

-- y = weight x / max(||x||/sqrt(dim), eps), weight one number (Nguyen & Salazar 2019, as in FLASH).
local ScaleNorm = class("ScaleNorm", { dim = dim(), eps = eps(1e-5) }, { "dim" })

function ScaleNorm:build()
  self.weight = parameter(core.ones(1))
end

function ScaleNorm:forward(x)
  return core.scale_norm(x, self.weight, self.opt.eps)
end

-- As LayerNorm but per channel over all other axes, with running statistics in evaluation (Ioffe &
-- Szegedy 2015; PyTorch's defaults).
local BatchNorm = class("BatchNorm", {
  dim = dim(), eps = eps(1e-5), momentum = options.field { default = 0.1, min = 0, max = 1 },
}, { "dim" })

function BatchNorm:build(o)
  self.weight = parameter(core.ones(o.dim))
  self.bias = parameter(core.zeros(o.dim))
  self:buffer("running_mean", core.zeros(o.dim))
  self:buffer("running_var", core.ones(o.dim))
end

function BatchNorm:forward(x)
  return core.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var,
    self.training, self.opt.momentum, self.opt.eps)
end

-- x itself.
local NoNorm = class("NoNorm", { dim = dim() }, { "dim" })

function NoNorm:forward(x)
  return x
end

local kinds = {
  layernorm = LayerNorm, rmsnorm = RMSNorm, simplermsnorm = SimpleRMSNorm, scalenorm = ScaleNorm,
  batchnorm = BatchNorm, none = NoNorm,
}

-- An option that names a norm.
local function norm_option(default)
  return options.field { default = default, choices = suggest.keys(kinds) }
end

-- The norm of a name over dim channels: norm("layernorm", 512).
local function norm(name, width)
  return suggest.strict("nn.norm", kinds)[name](width)
end

return {
  norm = norm, norm_option = norm_option, LayerNorm = LayerNorm, RMSNorm = RMSNorm,
  SimpleRMSNorm = SimpleRMSNorm, ScaleNorm = ScaleNorm, BatchNorm = BatchNorm,
}
