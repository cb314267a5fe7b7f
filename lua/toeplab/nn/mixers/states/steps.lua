-- nn/mixers/states/steps.lua: helpers for layers with a state: check that they are causal, and
-- initialise step sizes and decays.

local core = require "toeplab.core"
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"

local steps = {}

-- Declares the option causal of a layer called name, which must be true.
function steps.causal(name)
  return options.field { default = true, check = function(causal)
    return causal, ("= false: %s sees earlier tokens only; use causal = true or another "
      .. "mixer"):format(name)
  end }
end

-- Returns a parameter [count] whose softplus is log-uniform from 0.001 to 0.1.
function steps.bias(count)
  local size = initial.init.uniform(core.zeros(count), math.log(1e-3), math.log(1e-1))
  return initial.parameter(core.no_grad(function()
    local dt = core.exp(size)
    return dt + core.log(-core.elu(-dt)) -- elu: e^x - 1
  end))
end

-- Returns a parameter [count] whose exponential is uniform from 1 to 16.
function steps.decay_log(count)
  local decay = initial.init.uniform(core.zeros(count), 1, 16)
  return initial.parameter(core.no_grad(core.log, decay))
end

-- Returns the logarithm of the forget gate f = lower + (1 - lower) sigmoid(z), which with lower = 0
-- is finite for any z, and 1 - f.
function steps.forget(z, lower)
  local log_f = lower == 0 and -core.softplus(-z)
    or core.log(core.affine(core.sigmoid(z), 1 - lower, lower))
  return log_f, core.affine(core.sigmoid(-z), 1 - lower, 0)
end

-- Returns x [b,n,heads w] as [b,n,heads,w], and back.
function steps.split(x, heads)
  return x:reshape(x:dim(1), x:dim(2), heads, x:dim(3) // heads)
end

function steps.join(x)
  return x:reshape(x:dim(1), x:dim(2), x:dim(3) * x:dim(4))
end

-- Returns the number of heads of head_dim channels each among width channels, 1 if there are fewer.
function steps.heads(kind, width, head_dim)
  local one = math.min(width, head_dim)
  if width % one ~= 0 then
    error(("%s: %d channels do not divide into heads of head_dim = %d"):format(kind, width, one), 0)
  end
  return width // one
end

-- A depthwise convolution with a bias and silu, in a module with the fields conv (nn.Conv) and
-- conv_bias.
function steps.short_conv(self, x)
  return core.silu(self.conv(x) + self.conv_bias)
end

-- Returns the initial bias of that convolution, as PyTorch draws it.
function steps.conv_bias(width, taps)
  local bound = 1 / math.sqrt(taps)
  return initial.parameter(initial.init.uniform(core.zeros(width), -bound, bound))
end

-- Returns the FLOP of n steps of a state of `state` numbers, each of which takes `each` FLOP a
-- step, and how many numbers are stored: the state after every 64th step.
function steps.cost(n, state, each)
  return 1.0 * n * state * each, n / 64 * state
end

return steps
