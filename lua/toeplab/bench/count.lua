-- bench/count.lua: counts the arithmetic and the minimal memory traffic of a problem by formula,
-- and relates a measured time to them.
--
-- Both counts describe the mathematics, independent of the implementation: transforms of length n
-- cost 5 n log2 n, matrix products 2 m n k, and each input, result and gradient crosses to or from
-- memory once. The share thus shows how close a time is to the machine's limits, not how busy the
-- code kept it.
local operators = require "toeplab.bench.operators"

local count = {}

local BYTES = 4 -- per float32

-- Counts transforms of length n (2b+1 per channel forward, 3b+1 backward) and the products between
-- them.
local function convolution(p, channels)
  local both = p.pass ~= "fwd"
  local transforms = (both and 5 or 2) * p.b + (both and 2 or 1)
  local products = 6 * p.n * ((both and 3 or 1) * p.b)
  return channels * (transforms * 5 * p.n * math.log(p.n, 2) + products)
end

local function points(p) return p.causal and p.n or 2 * p.n - 1 end

-- Returns the number of weights of the encoder. block_weights, below, counts the weights of the
-- matrix products of a block, per channel of the stream.
local function encoder_weights(p, channels)
  return p.rpe_dim * (1 + p.rpe_layers * p.rpe_dim + channels)
end

local function block_weights(p) return 12 * p.dim * p.dim end -- 3 maps to or from 3 dim, 3 of dim

-- A forward pass costs a third of a whole training step.
local function times(p) return p.pass == "fwd" and 2 or 6 end

local function encoder(p, channels) return times(p) * encoder_weights(p, channels) * points(p) end

-- Counts a block without the encoder of its operator, whose coefficients may be cached.
local function block(p)
  return times(p) * block_weights(p) * p.b * p.n + convolution(p, 3 * p.dim)
end

local function stream(p) -- x and y with their gradients
  return BYTES * (p.pass == "fwd" and 2 or 4) * p.b * p.n * p.dim
end

local function coefficients(p) return BYTES * (p.pass == "fwd" and 1 or 2) * points(p) * p.dim end

local kinds = {}

function kinds.tno(p) return convolution(p, p.dim), stream(p) + coefficients(p) end

function kinds.encoder(p)
  return encoder(p, p.dim), coefficients(p)
end

function kinds.operator(p)
  return convolution(p, p.dim) + encoder(p, p.dim), stream(p)
end

function kinds.layer(p)
  local weights = BYTES * (p.pass == "fwd" and 1 or 2) * block_weights(p)
  return block(p) + encoder(p, 3 * p.dim), stream(p) + weights
end

-- Mixers give their own arithmetic (Module:cost), for the passes with gradients alone.
function kinds.mixers(p, parameters, made)
  if (made.flop or 0) == 0 then return nil, nil end
  return made.flop, stream(p) + BYTES * 2 * parameters
end

kinds.peers = kinds.mixers

-- Adam moves 28 bytes per parameter.
function kinds.lm(p, parameters)
  local flop = p.layers * (block(p) + encoder(p, 3 * p.dim)) + 6 * p.vocab * p.dim * p.b * p.n
  return flop, 28 * parameters + p.layers * stream(p)
end

-- A token that is one step of a recurrence reads all weights, states and kernels; a relaxed
-- recurrence reads most of them seldom. A token by the whole window (method "window") reuses cached
-- coefficients in Toeplab, but not in other libraries.
function kinds.generate(p, parameters, made)
  local weights = p.layers * block_weights(p) + p.vocab * p.dim
  if p.method == "window" or not p.method then
    local whole = { pass = "fwd", b = 1, n = p.n, dim = p.dim, causal = true, rpe_dim = p.rpe_dim,
      rpe_layers = p.rpe_layers }
    local each = block(whole) + (p.method and 0 or encoder(whole, 3 * p.dim))
    return p.layers * each + 2 * p.vocab * p.dim, BYTES * parameters
  end
  if p.method == "relaxed" then return nil, nil end
  return 2 * weights, BYTES * weights + (made.state or 0) + (made.kernels or 0)
end

function kinds.ops(p) return operators.count(p) end

function kinds.gemm(p) return 2.0 * p.n ^ 3, BYTES * 3 * p.n ^ 2 end
function kinds.inplace(p) return nil, 28 * p.n end
function kinds.triad(p) return nil, BYTES * 3 * p.n end

-- Returns the FLOP and bytes of problem p; nil if they depend on the implementation. parameters: of
-- the model; made: the contestant's report about it (flop, state, kernels).
function count.of(p, parameters, made)
  local kind = kinds[p.what]
  if not kind then return nil, nil end
  return kind(p, parameters or 0, made or {})
end

-- Returns the minimal time that the limits allow as a share of the measured one. limits: {gemm =
-- {float32 = FLOP/s, ...}, inplace = bytes/s, triad = bytes/s}; nil if nothing was counted.
function count.share(flop, bytes, seconds, precision, limits)
  local peak = limits.gemm[precision] or limits.gemm.float32
  local least = math.max((flop or 0) / peak, (bytes or 0) / math.max(limits.inplace, limits.triad))
  return least > 0 and least / seconds or nil
end

return count
