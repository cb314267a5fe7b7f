-- nn/horizon.lua: computes the decay horizon: the lag from which a decaying kernel may be cut, and
-- a bound on the error.
--
-- With t_k = act(e_k gamma^|k|), |act(v)| <= |v|, |e_k| <= E and |x| <= X, cutting all lags from K
-- changes no entry of y by more than
--   E X  sum over |k| >= K of gamma^|k|  =  bound  E X  sum over all k of gamma^|k|,
--   bound = (gamma^K - gamma^n) / (1 - gamma^n)              k = 0..n-1, causal
--   bound = 2 (gamma^K - gamma^n) / (1 + gamma - 2 gamma^n)  |k| < n, bidirectional
-- E is the largest magnitude in the encoder's output; if channels differ in gamma, the largest
-- decides. The horizon is the least K for which the bound of an endless sequence, gamma^K or
-- 2 gamma^K / (1 + gamma), does not exceed the option horizon; a finite sequence has a smaller one.
-- gamma = 0.99 with horizon 1e-7 gives K = 1604, where the error is about float32's in y.

local options = require "toeplab.base.options"

local horizon = {}

-- Activations with |act(v)| <= |v|.
local contractions = { none = true, relu = true, silu = true, gelu = true, tanh = true }

-- Declares the option horizon: a number above 0 and below 1, or nil.
function horizon.option()
  return options.field { type = "number", optional = true, check = function(h)
    return h > 0 and h < 1, ("= %g must be above 0 and below 1"):format(h)
  end }
end

-- Returns the largest gamma of the options o of a TNO, rounded to float32.
local function gamma_of(o)
  local largest = o.decay
  if type(o.decay) == "table" then largest = math.max(table.unpack(o.decay)) end
  return type(largest) == "number" and string.unpack("f", string.pack("f", largest)) or largest
end

local function check(o, largest)
  if type(largest) ~= "number" or not (largest > 0 and largest < 1) then
    error(("TNO: a horizon requires a decay that is fixed and below 1, a number or a list, not %s")
      :format(type(largest) == "string" and "'" .. largest .. "'" or tostring(largest)), 0)
  end
  if not contractions[o.act] then
    error(("TNO: a horizon needs act none, relu, silu, gelu or tanh, not '%s': its bound holds for "
      .. "activations with |act(v)| <= |v|")
      :format(o.act), 0)
  end
end

-- Returns K and its bound at length n (may be infinite) for the options o of a TNO and the largest
-- gamma in use (nil: from the options).
function horizon.at(o, n, gamma)
  gamma = gamma or gamma_of(o)
  check(o, gamma)
  local share = o.causal and o.horizon or o.horizon * (1 + gamma) / 2
  local count = math.max(1, math.log(share) // math.log(gamma) | 0)
  while gamma ^ count > share do count = count + 1 end
  if count >= n then return n, 0.0 end
  local rest = gamma ^ count - gamma ^ n
  if o.causal then return count, rest / (1 - gamma ^ n) end
  return count, 2 * rest / (1 + gamma - 2 * gamma ^ n)
end

-- Returns the lag from which max_lag and horizon in the options o of a TNO cut the coefficients at
-- every length, or nil if they cut none. gamma is as in horizon.at.
function horizon.lags(o, gamma)
  local count = o.max_lag
  if o.horizon then
    count = math.min(count or math.maxinteger, (horizon.at(o, math.huge, gamma)))
  end
  return count
end

return horizon
