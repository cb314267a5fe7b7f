-- models/sizes.lua: computes the number of parameters and the memory that a model would need from
-- its options alone, without making the model.

local core = require "toeplab.core"
local encoders = require "toeplab.nn.encoders"
local horizon = require "toeplab.nn.horizon"
local initial = require "toeplab.nn.initial"
local stack = require "toeplab.models.stack"

local sizes = {}

local OBJECTS = 65536 -- bytes of small Lua and C objects per block and per layer of its encoder

-- bias: false for a map without biases.
local function linear(inputs, outputs, bias)
  return (inputs + (bias == false and 0.0 or 1.0)) * outputs
end

local norms = { layernorm = 2.0, batchnorm = 2.0, rmsnorm = 1.0, gatedrmsnorm = 2.0 }

local function norm(name, dim)
  return name == "scalenorm" and 1.0 or (norms[name] or 0.0) * dim
end

-- ---- Operators ----

local function product(shape)
  local count = 1.0
  for _, size in ipairs(shape) do count = count * size end
  return count
end

-- Returns the backend's requirements for the options t of a TNO and d channels: numbers per point
-- and channel, their domain, and how many parameters it owns. A backend that refuses the problem
-- raises its error when the model is made, not here.
local function probe(t, d)
  local ok, o = pcall(core.tno, t.backend, 2, d, t.causal, t.backend_options)
  if not ok then return 1, "lag", 0.0 end
  local width, domain, own = o:width(), o:domain(), 0.0
  for _, p in ipairs(o:params()) do own = own + product(p.shape) end
  o:close()
  return width, domain, own
end

-- Returns the same for many channels without planning for them, by extrapolating the backend's
-- parameters from one and two channels.
local function operator(t, d)
  local width, domain, one = probe(t, 1)
  local _, _, two = probe(t, 2)
  return width, domain, one + (d - 1.0) * (two - one)
end

-- Returns at how many points the backend takes coefficients at length n.
local function points(t, n)
  local ok, o = pcall(core.tno, t.backend, n // 1 | 0, 1, t.causal, t.backend_options)
  if not ok then return t.causal and n or 2 * n - 1 end
  local count = o:points():dim(1)
  o:close()
  local lags = horizon.lags(t)
  if lags then count = math.min(count, (t.causal and 1 or 2) * lags) end
  return count
end

-- By class of an encoder: its number of parameters, for the resolved options e.
local counts = {}

function counts.RPE(e)
  local inner = norm(e.norm, e.hidden)
  local inputs = e.input == "sincos" and 2 * e.frequencies or 1
  return linear(inputs, e.hidden, e.bias)
    + e.layers * (inner + linear(e.hidden, e.hidden, e.bias))
    + norm(e.output_norm or e.norm, e.hidden) + linear(e.hidden, e.dim, e.bias)
end

function counts.Table(e) return (2.0 * e.length - 1) * e.dim end
function counts.FrequencyTable(e) return (e.length + (e.dc and 1.0 or 0.0)) * e.dim end
function counts.Piecewise(e) return (e.nodes - 1.0) * e.dim end
function counts.ShortConv(e) return (e.taps + 0.0) * e.dim end

function counts.SSM(e)
  return e.dim * ((e.causal and 1 or 2) * (1.0 + 2 * e.state) + (e.skip and 1 or 0))
end

-- By class of an encoder evaluated at p points: the numbers per point that the tape stores inside
-- it, besides the coefficients themselves.
local encoder_activations = {
  RPE = function(e) return 3.0 * (e.layers + 1) * e.hidden end,
  Piecewise = function(e) return 4.0 * e.dim end,
  FrequencyTable = function(e) return 4.0 * e.dim end,
  SSM = function(e, p) return 2.0 * e.dim + 12.0 * e.state * e.dim / math.sqrt(p) end,
}

-- Returns the width inside the token mixer, which is its TNO's.
local function inside(o)
  return (o.expand * o.dim) // 1 // o.heads * o.heads
end

-- Returns the class name and the resolved options of the encoder of a block; nil for a function.
local function encoder(o, t, width, domain)
  if type(o.encoder) ~= "string" then return nil end
  t.encoder_options, t.rpe = t.encoder_options or {}, t.rpe or {}
  local kind, resolved = encoders.resolve(t, (width * inside(o)) | 0, domain)
  return kind.kind, resolved
end

local function tno(o)
  local t, d = stack.tno_options(o), inside(o)
  local width, domain, own = operator(t, d)
  local kind, e = encoder(o, t, width, domain)
  own = own + (t.taps + 0.0) * d
  local one = own + (kind and counts[kind](e) or 0.0) + (o.decay == "none" and 0 or d)
  return (o.grid and not o.grid_shared) and 2 * one or one
end

-- ---- Parameters ----

local function gtu(o)
  local width = inside(o)
  local maps = ({ gtu = 2, shared = 1, dtu = 3 })[o.gtu_form]
  return maps * linear(o.dim, width, o.bias) + linear(width, o.dim, o.bias) + tno(o)
    + norm(o.mixer_norm, width)
end

local function token(o)
  local width = (o.expand * o.dim) // 1
  if type(o.mixer) == "string" then -- making one is simpler than a second list of formulas
    return initial.without_init(stack.token, o):count() + 0.0
  end
  if o.mixer then return 0.0 end -- unknown for a user's function
  if o.structure:find "^gtu" then return gtu(o) end
  if o.structure == "mha+glu" then return 4 * linear(o.dim, o.dim) end
  return 2 * (linear(o.dim, o.dim) + linear(o.dim, width)) + linear(width, o.dim)
end

-- Returns the sum of f over the options of all blocks. Blocks with one mixer are equal.
local function over_blocks(o, f)
  if type(o.mixer) ~= "table" then return o.layers * f(o) end
  local sum = 0.0
  for i = 1, math.min(#o.mixer, o.layers) do
    sum = sum + ((o.layers - i) // #o.mixer + 1) * f(stack.of_block(o, i))
  end
  return sum
end

-- Returns the number of parameters (a float) of the blocks of a model with the resolved options o,
-- without the unknown ones of a user's mixer or encoder function.
function sizes.blocks(o)
  local one_norm = o.layout == "none" and 0.0 or norm(o.norm, o.dim)
  local block, channel = one_norm, stack.channel(o)
  if o.layout == "B" then block = block + norm(o.inner_norm or o.norm, o.dim) end
  if channel ~= "none" then
    local hidden, maps = o.glu_dim or o.dim, channel == "glu" and o.glu_form == "glu" and 2 or 1
    block = block + one_norm + maps * linear(o.dim, hidden, o.bias)
      + linear(hidden, o.dim, o.bias)
  end
  return o.layers * block + over_blocks(o, token)
end

-- Returns the number of parameters (a float) of an adaptive embedding and softmax.
local function adaptive(o)
  local first, sum = 0, 1.0 * #o.adaptive * o.dim
  for i = 1, #o.adaptive + 1 do
    local past, width = o.adaptive[i] or o.vocab, o.dim // o.adaptive_factor ^ (i - 1)
    local rows, map = (past - first) * width, o.dim * width
    sum, first = sum + rows + map, past
    if not o.tied then sum = sum + rows end
    if i > 1 and not (o.tied and o.tied_maps) then sum = sum + map end
  end
  return sum
end

-- Returns the number of parameters (a float) of a tnn_lm with the resolved options o.
function sizes.parameters(o)
  local width = (o.embed_dim or o.dim) + 0.0
  local outside = o.adaptive and adaptive(o) or o.vocab * width * (o.tied and 1 or 2)
  outside = outside + norm(o.final_norm, o.dim)
  if o.embed_dim then outside = outside + 2 * width * o.dim end
  if o.output_bias then outside = outside + o.vocab end
  local position = o.positions:find "^learned" and initial.without_init(stack.positions, o)
  if position then outside = outside + position:count() end
  return outside + sizes.blocks(o)
end

-- ---- Memory ----

local hidden_activations = { glu = 3, ffn = 2, none = 0 } -- per number of the inner width

-- Returns how many numbers per token the tape stores for token mixer and channel mixer.
local function mixer_activations(o)
  local width, channel = (o.expand * o.dim) // 1, stack.channel(o)
  local feature = hidden_activations[channel] * (o.glu_dim or o.dim)
  if channel ~= "none" then feature = feature + 2 * o.dim end
  if o.mixer then return feature + 2 * o.dim end
  local mixed = 2 * o.dim + 5 * width
  if o.grid then mixed = mixed + 2 * width end -- of the second axis and the transpositions
  if o.structure == "attention+glu" then mixed = mixed + 2 * o.dim end
  if o.structure == "mha+glu" then mixed = 7 * o.dim end
  return mixed + feature + (o.layout == "B" and o.dim or 0)
end

-- Returns how many numbers the tape stores for the coefficients of one block.
local function coefficient_activations(o, n)
  local t, axes = stack.tno_options(o), o.grid or { n }
  local width, domain = probe(t, 1)
  local kind, e = encoder(o, t, width, domain)
  local per_point, sum = kind and encoder_activations[kind] or function() return 0 end, 0.0
  for _, length in ipairs(axes) do
    local p = points(t, length)
    sum = sum + p * (per_point(e, p) + 2 * width * inside(o))
  end
  return sum
end

-- Estimates how many numbers (a float) training stores for the blocks of a model on batch sequences
-- of length n. For a mixer given by the option mixer, counts only input and output.
function sizes.activations(o, n, batch)
  n, batch = n + 0.0, batch + 0.0 -- products of integers would wrap
  local tokens, width = batch * n, o.mixer and 0 or (o.expand * o.dim) // 1
  local blocks = o.recompute and 1 or o.layers -- whose operators are on the tape
  local numbers = tokens * stack.stored(o, mixer_activations(o)) -- on the tape
  numbers = numbers + tokens * 4 * math.max(width, o.dim)  -- gradients during the backward pass
  if o.mixer then return numbers end
  if o.structure:find "^gtu" then return numbers + blocks * coefficient_activations(o, n) end
  return numbers + (blocks + 3) * batch * o.heads * n * n
end

-- Returns how many bytes of memory this process may still allocate, by the machine and by its
-- control groups; infinity if the system does not report it.
function sizes.available()
  local info = core.sys.read_file "/proc/meminfo"
  local kib = info and info:match "MemAvailable:%s*(%d+) kB"
  local _, allowed = core.sys.group_limits()
  return math.min(kib and tonumber(kib) * 1024 or math.huge, allowed)
end

local function gib(bytes) return ("%.1f GiB"):format(bytes / 2 ^ 30) end

-- Raises an error if a model, called who, with the resolved options o would not fit into the
-- available memory. parameters: their number; nil for a model of blocks.
function sizes.check(who, o, parameters)
  local vocab, tied = rawget(o, "vocab") or 0, rawget(o, "tied")
  local width = rawget(o, "embed_dim") or o.dim
  if rawget(o, "adaptive") then parameters = sizes.parameters(o) end
  parameters = parameters or sizes.blocks(o) + vocab * width * (tied == false and 2.0 or 1.0)
  local available = sizes.available()
  local bytes = 4 * parameters + OBJECTS * o.layers * (1 + (rawget(o, "rpe_layers") or 0))
  if bytes <= available then return end
  error(("%s: about %.3g parameters take %s (with gradients and Adam's moments %s), and %s of "
    .. "memory are available"):format(who, parameters, gib(bytes), gib(bytes + 12 * parameters),
    gib(available)), 0)
end

return sizes
