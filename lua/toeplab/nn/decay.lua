-- nn/decay.lua: defines Decay, which multiplies the coefficient of lag k by gamma^|k|.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local alibi_slopes = require("toeplab.nn.position").alibi_slopes
local shapes = require "toeplab.nn.shapes"

local SMALLEST = 0x1p-126 -- the smallest normal float32

local function usable(kind)
  if type(kind) ~= "number" or (kind > 0 and kind <= 1) then return true end
  return false, ("= %g must be above 0 and at most 1%s"):format(kind,
    kind == 0 and "; max_lag = 1 computes what 0 would" or "")
end

-- Declares an option for the kind of decay. Further arguments are more accepted words, such as
-- "none" where a model may have no decay.
local function decay_option(default, ...)
  return options.field {
    type = "number|string|table", default = default, choices = { "alibi", "learnable", ... },
    check = usable,
  }
end

-- coef_k <- coef_k gamma^|k|, gamma in (0,1] per channel (TNN, Eq. 5).   coef [p,dim]   lags [p]
-- The option kind defines gamma:
--   a number       the same for all channels; a fixed parameter, counted but not trained
--   a list         one number per channel, fixed
--   "alibi"        exp(-slope of the head), fixed; channels are head-major
--   "learnable"    gamma = floor + (1-floor) sigmoid(theta), theta ~ mean + N(0,1). TNN's Table 10
--                  has mean 3 and floor 0; tnn-pytorch has mean 0, and its fixed gamma as floor.
local kind = decay_option(0.99)
kind.help = "gamma: a number, one per channel, or a word"

local Decay = class("Decay", {
  dim = options.field { type = "int", min = 1 },
  kind = kind,
  heads = options.field { default = 1, min = 1, help = "heads of kind alibi" },
  mean = options.field { default = 3.0, help = "mean of the initial parameters of kind learnable" },
  floor = options.field { default = 0.0, min = 0, max = 1,
    help = "smallest gamma of kind learnable" },
}, { "dim", "kind" }, "coef [p,dim], lags [p] -> [p,dim]: the coefficient of lag k times gamma^|k|")

local function alibi(dim, heads)
  local gamma = {}
  for _, slope in ipairs(alibi_slopes(heads)) do
    for _ = 1, dim // heads do gamma[#gamma + 1] = math.exp(-slope) end
  end
  return gamma
end

local function fixed(o)
  if type(o.kind) == "number" then return core.full({ o.dim }, o.kind) end
  local gamma = o.kind == "alibi" and alibi(o.dim, o.heads) or o.kind
  if #gamma ~= o.dim then
    error(("Decay: %d numbers for %d channels: give one number, or one for each channel"):format(
      #gamma, o.dim), 0)
  end
  for i, g in ipairs(gamma) do
    if type(g) ~= "number" or not (g > 0 and g <= 1) then
      error(("Decay: number %d is %s, not above 0 and at most 1"):format(i, tostring(g)), 0)
    end
  end
  return core.tensor(gamma)
end

function Decay:build(o)
  if o.kind == "learnable" then
    self.theta = initial.parameter(initial.init.normal(core.zeros(o.dim), o.mean, 1))
  else
    self.gamma = fixed(o)
  end
end

-- Returns the gamma of each channel: [dim].
function Decay:value()
  if self.gamma then return self.gamma end
  local gamma = core.affine(core.sigmoid(self.theta), 1 - self.opt.floor, self.opt.floor)
  return core.max(gamma, SMALLEST) -- the sigmoid underflows to 0, which gamma must not be
end

-- Returns whether gamma is the same for all channels.
local uniform = cache.reading(function(gamma)
  local first = gamma:get(1)
  return gamma:amax():item() == first and core.neg(gamma):amax():item() == -first
end)

-- Returns gamma^|k|, [p], if gamma is fixed and the same for all channels; else nil. An encoder
-- with a scale per point then applies the decay itself.
function Decay:factors(lags)
  local gamma = self.gamma
  if not gamma or gamma:requires_grad() or not uniform(gamma) then return nil end
  return core.decay(core.ones(lags:dim(1), 1), lags, gamma:narrow(1, 1, 1)):reshape(-1)
end

-- part: the channels that coef holds (shapes.part); nil: all.
function Decay:forward(coef, lags, part)
  return core.decay(coef, lags, shapes.part(self:value(), 1, part))
end

function Decay:brief()
  return type(self.opt.kind) == "table" and "per channel" or tostring(self.opt.kind)
end

return { Decay = Decay, decay_option = decay_option }
