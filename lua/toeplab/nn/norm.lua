-- nn/norm.lua: defines the norms over the last axis, and norm(name, dim), which makes one by name.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local defer = require "toeplab.base.defer"
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local parameter = initial.parameter

-- Declares a class of norms over a last axis of dim numbers. eps: the default of the option eps;
-- about: the description of the divisor.
local function norm_class(name, eps, about, more)
  local spec = more or {}
  spec.dim = options.field { type = "int", min = 1 }
  spec.eps = options.field { default = eps, min = 0 }
  return class(name, spec, { "dim" }, "x [..,dim] -> [..,dim]: " .. about)
end

local function affine(self, o)
  self.weight = parameter(core.ones(o.dim))
  self.bias = parameter(core.zeros(o.dim))
end

-- y = (x - mean) / sqrt(var + eps) weight + bias (Ba et al. 2016); affine = false leaves out weight
-- and bias.
local LayerNorm = norm_class("LayerNorm", 1e-5, "over mean and deviation", {
  affine = options.field { default = true, help = "weights and biases" },
})

function LayerNorm:build(o)
  if o.affine then affine(self, o) end
end

function LayerNorm:forward(x)
  return core.layer_norm(x, self.weight, self.bias, self.opt.eps)
end

-- y = x / sqrt(mean x^2 + eps) weight (Zhang & Sennrich 2019).
local RMSNorm = norm_class("RMSNorm", 1e-6, "over the root mean square, weighted")

function RMSNorm:build(o)
  self.weight = parameter(core.ones(o.dim))
end

function RMSNorm:forward(x)
  return core.rms_norm(x, self.weight, self.opt.eps)
end

-- y = x / (||x||/sqrt(dim) + eps), without parameters, as in the published code of TNN.
local SimpleRMSNorm = norm_class("SimpleRMSNorm", 1e-8, "over the root mean square")

function SimpleRMSNorm:forward(x)
  return core.simple_rms_norm(x, self.opt.eps)
end

-- y = weight x / (||x||/sqrt(dim) + eps) sigmoid(gate x), as in the published code of TNN.
local GatedRMSNorm = norm_class("GatedRMSNorm", 1e-8,
  "over the root mean square, weighted and gated")

function GatedRMSNorm:build(o)
  self.weight = parameter(core.ones(o.dim))
  self.gate = parameter(core.ones(o.dim))
end

function GatedRMSNorm:forward(x)
  return core.sigmoid(self.gate * x) * (self.weight * core.simple_rms_norm(x, self.opt.eps))
end

-- y = weight x / max(||x||/sqrt(dim), eps), weight one number (Nguyen & Salazar 2019, as in FLASH).
local ScaleNorm = norm_class("ScaleNorm", 1e-5, "over the root mean square, with one weight")

function ScaleNorm:build()
  self.weight = parameter(core.ones(1))
end

function ScaleNorm:forward(x)
  return core.scale_norm(x, self.weight, self.opt.eps)
end

-- The formula of LayerNorm with mean and var taken per channel over all other axes; evaluation uses
-- running statistics instead (Ioffe & Szegedy 2015; PyTorch's defaults). With kept
-- (models/padding.lua) x is [b,n,d], only its tokens count, and padding becomes 0.
local BatchNorm = norm_class("BatchNorm", 1e-5, "by channel of the batch", {
  momentum = options.field { default = 0.1, min = 0, max = 1,
    help = "share of the batch in the running statistics" },
})

function BatchNorm:build(o)
  affine(self, o)
  self:buffer("running_mean", core.zeros(o.dim))
  self:buffer("running_var", core.ones(o.dim))
end

local carrier -- of BatchNorm.carried

-- Calls fn(...) while other processes train on the micro batches before and after this one. Each
-- use of a batch norm in training then takes the running statistics to update from how.take(norm),
-- which returns mean and variance, and afterwards calls how.hand_on(norm). Returns the results of
-- fn.
function BatchNorm.carried(how, fn, ...)
  local outer = carrier
  local restore <close> = defer(function() carrier = outer end)
  carrier = how
  return fn(...)
end

local spare = { -- a value for BatchNorm.carried, with which the running statistics do not change
  take = function(norm) return norm.running_mean:clone(), norm.running_var:clone() end,
  hand_on = function() end,
}

-- Calls fn(...), in which batch norms in training leave their running statistics as they are.
-- Returns the results of fn.
function BatchNorm.without_update(fn, ...) return BatchNorm.carried(spare, fn, ...) end

function BatchNorm:forward(x, kept)
  local shape, d, how = x:shape(), self.opt.dim, self.training and carrier or nil
  if kept then x = x:reshape(-1, d):gather(kept.tokens) end
  local mean, var = self.running_mean, self.running_var
  if how then mean, var = how.take(self) end
  local y = core.batch_norm(x, self.weight, self.bias, mean, var, self.training, self.opt.momentum,
    self.opt.eps)
  if how then how.hand_on(self) end
  if not kept then return y end
  return core.concat({ y, core.zeros(1, d) }, 1):gather(kept.places):reshape(table.unpack(shape))
end

local NoNorm = class("NoNorm", { dim = "int" }, { "dim" })

function NoNorm:forward(x)
  return x
end

local kinds = {
  layernorm = LayerNorm, rmsnorm = RMSNorm, simplermsnorm = SimpleRMSNorm, scalenorm = ScaleNorm,
  gatedrmsnorm = GatedRMSNorm, batchnorm = BatchNorm, none = NoNorm,
}

-- Declares an option whose value is the name of a norm.
local function norm_option(default)
  return options.field { default = default, choices = sorted_keys(kinds) }
end

-- Makes the norm `name` over width channels: norm("layernorm", 512).
local function norm(name, width)
  return suggest.strict("nn.norm", kinds)[name](width)
end

return {
  norm = norm, norm_option = norm_option, LayerNorm = LayerNorm, RMSNorm = RMSNorm,
  SimpleRMSNorm = SimpleRMSNorm, ScaleNorm = ScaleNorm, GatedRMSNorm = GatedRMSNorm,
  BatchNorm = BatchNorm,
}
