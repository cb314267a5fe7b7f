-- nn/norm.lua: norms over the last axis, and norm(name, dim), which makes one by its name.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

local parameter = initial.parameter

-- A class of norms over the last axis, of dim numbers; eps: its default.
local function kind(name, eps, more)
  local spec = more or {}
  spec.dim = options.field { type = "int", min = 1 }
  spec.eps = options.field { default = eps, min = 0 }
  return class(name, spec, { "dim" })
end

local function affine(self, o)
  self.weight = parameter(core.ones(o.dim))
  self.bias = parameter(core.zeros(o.dim))
end

-- y = (x - mean) / sqrt(var + eps) weight + bias (Ba et al. 2016); affine = false: without the two.
local LayerNorm = kind("LayerNorm", 1e-5, { affine = true })

function LayerNorm:build(o)
  if o.affine then affine(self, o) end
end

function LayerNorm:forward(x)
  return core.layer_norm(x, self.weight, self.bias, self.opt.eps)
end

-- y = x / sqrt(mean x^2 + eps) weight (Zhang & Sennrich 2019).
local RMSNorm = kind("RMSNorm", 1e-6)

function RMSNorm:build(o)
  self.weight = parameter(core.ones(o.dim))
end

function RMSNorm:forward(x)
  return core.rms_norm(x, self.weight, self.opt.eps)
end

-- y = x / (||x||/sqrt(dim) + eps): no parameters (TNN code).
local SimpleRMSNorm = kind("SimpleRMSNorm", 1e-8)

function SimpleRMSNorm:forward(x)
  return core.simple_rms_norm(x, self.opt.eps)
end

-- y = weight x / max(||x||/sqrt(dim), eps), weight one number (Nguyen & Salazar 2019, as in FLASH).
local ScaleNorm = kind("ScaleNorm", 1e-5)

function ScaleNorm:build()
  self.weight = parameter(core.ones(1))
end

function ScaleNorm:forward(x)
  return core.scale_norm(x, self.weight, self.opt.eps)
end

-- The formula of LayerNorm with mean and var per channel over all other axes; in evaluation running
-- statistics stand for these (Ioffe & Szegedy 2015; PyTorch's defaults).
local BatchNorm = kind("BatchNorm", 1e-5, {
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

-- x itself.
local NoNorm = class("NoNorm", { dim = "int" }, { "dim" })

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
