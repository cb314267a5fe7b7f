-- sizes.lua -- what a model would need, from its options alone: nothing is made.

local core = require "toeplab.core"

local sizes = {}

local OBJECTS = 65536 -- bytes of small objects of a block, and of each layer of its encoder

local function linear(inputs, outputs) return (inputs + 1.0) * outputs end

local norms = { layernorm = 2.0, batchnorm = 2.0, rmsnorm = 1.0 }

local function norm(name, dim)
  return name == "scalenorm" and 1.0 or (norms[name] or 0.0) * dim
end

local function rpe(o, width)
  local hidden = norm(o.rpe_norm, o.rpe_dim)
  local inputs = o.rpe_input == "sincos" and 20 or 1
  return linear(inputs, o.rpe_dim) + o.rpe_layers * (hidden + linear(o.rpe_dim, o.rpe_dim))
    + hidden + linear(o.rpe_dim, width)
end

local function gtu(o, inside)
  local width = inside // o.heads * o.heads
  local encoder = 0.0
  if o.encoder == "mlp" then encoder = rpe(o, width) end
  if o.encoder == "table" then encoder = (2.0 * o.table_length - 1) * width end
  return 2 * linear(o.dim, width) + linear(width, o.dim) + encoder
    + (o.decay == "none" and 0 or width) + norm(o.mixer_norm, width)
end

local function token(o)
  local inside = (o.expand * o.dim) // 1
  if o.mixer then return 0.0 end -- of its own
  if o.structure:find "^gtu" then return gtu(o, inside) end
  if o.structure == "mha+glu" then return 4 * linear(o.dim, o.dim) end
  return 2 * (linear(o.dim, o.dim) + linear(o.dim, inside)) + linear(inside, o.dim)
end

-- The number of parameters (a float) of a tnn_lm with the resolved options o. Those of a mixer of
-- its own, of an encoder function and of a backend are not known, and not counted.
function sizes.parameters(o)
  local block = token(o) + norm(o.norm, o.dim) * (o.layout == "B" and 2 or 1)
  if o.structure ~= "gtu" then
    local hidden = o.glu_dim or o.dim
    block = block + norm(o.norm, o.dim) + 2 * linear(o.dim, hidden) + linear(hidden, o.dim)
  end
  return o.vocab * o.dim * (o.tied and 1.0 or 2.0) + o.layers * block + norm(o.final_norm, o.dim)
end

local groups = { -- limit and use, as versions 2 and 1 of control groups tell them
  { "memory.max", "memory.current" },
  { "memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes" },
}

-- Bytes of memory that this process may still take: of the machine and of its control group; nil if
-- the system does not tell.
function sizes.available()
  local info = core.sys.read_file "/proc/meminfo"
  local kib = info and info:match "MemAvailable:%s*(%d+) kB"
  local bytes = kib and tonumber(kib) * 1024
  for _, names in ipairs(groups) do
    local most = tonumber(core.sys.read_file("/sys/fs/cgroup/" .. names[1]) or "")
    local used = tonumber(core.sys.read_file("/sys/fs/cgroup/" .. names[2]) or "")
    if most and used then bytes = math.min(bytes or most, math.max(most - used, 0)) end
  end
  return bytes
end

local function gib(bytes) return ("%.1f GiB"):format(bytes / 2 ^ 30) end

-- Raises if a tnn_lm with the resolved options o would not fit into the memory that is available.
function sizes.check(o)
  local parameters, available = sizes.parameters(o), sizes.available()
  local bytes = 4 * parameters + OBJECTS * o.layers * (1 + o.rpe_layers)
  if not available or bytes <= available then return end
  error(("TnnLM: about %.3g parameters take %s (with gradients and Adam's moments %s), and %s of "
    .. "memory are available"):format(parameters, gib(bytes), gib(bytes + 12 * parameters),
    gib(available)), 0)
end

return sizes
