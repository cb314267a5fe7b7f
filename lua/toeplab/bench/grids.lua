-- bench/grids.lua: lists what each bench measures: its problems (described in workloads.lua), its
-- passes, and the Toeplab contestants. Ratios are relative to the first contestant.
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"
local operators = require "toeplab.bench.operators"
local overlay = require "toeplab.base.overlay"
local recurrent = require "toeplab.models.recurrent"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local grids = {}

local SMALL = 512 -- largest b n for backends with n^2 work
local MOST_TILED = 4096 -- largest n of the backend matrix on a GPU, by tensor cores

local function on_gpu(device) return device ~= nil and device ~= "cpu" end

local function small(p) return p.b * p.n <= SMALL end

local function small_or_tiled(p, device)
  return small(p) or on_gpu(device) and p.n <= MOST_TILED
end

local benches = {}
local order = { "ops", "tno", "operator", "encoder", "layer", "mixers", "peers", "lm", "classify",
  "generate", "stream", "ski", "fd" }

-- Returns a list of {key = name}.
local function each(names, key)
  local list = {}
  for i, name in ipairs(names) do list[i] = { [key] = name } end
  return list
end

-- With a small batch a GPU mostly waits for launches, so it gets its own shapes.
benches.ops = {
  about = "single operators beside the limits of the machine",
  dim = 512, passes = { "fwd", "fwd+bwd" }, more = { vocab = 8192 },
  shapes = { { 512, 4 } }, quick = { { 256, 2 } }, gpu = { { 2048, 32 } }, gpu_dim = 1024,
  vary = each(operators.names, "op"),
  quick_vary = each({ "silu", "layer-norm", "linear", "adam" }, "op"),
  ours = { { by = "toeplab" } },
}

local decayed = { rpe_dim = 64, rpe_layers = 6, decay = 0.99, encoder = "mlp" }

benches.tno = {
  about = "the operator with given coefficients: equivalent backends, and plain FFTW",
  dim = 512, passes = { "fwd", "fwd+bwd" }, modes = true, peers = true, fftw = true,
  axis = true, shapes = { { 512, 1, 2, 4, 8 }, { 1024, 1, 2, 4, 8 }, { 2048, 1, 2, 4, 8 },
    { 4096, 1, 8 }, { 8192, 1, 8 }, { 16384, 1, 8 } },
  quick = { { 512, 1 }, { 2048, 8 } },
  gpu = { { 512, 8, 64 }, { 2048, 8, 64 }, { 8192, 1, 16 } },
  ours = {
    { by = "rac", backend = "rac" }, { by = "fft", backend = "fft" },
    { by = "matrix", backend = "matrix", when = small_or_tiled },
    { by = "naive", backend = "naive", when = small },
  },
}

benches.operator = {
  about = "the whole operator, encoder and decay included",
  dim = 512, passes = { "fwd+bwd" }, modes = true, peers = true, more = decayed,
  shapes = { { 512, 1 }, { 2048, 8 }, { 8192, 1 } }, quick = { { 512, 1 }, { 2048, 1 } },
  second = "rac horizon",
  ours = {
    { by = "rac", backend = "rac" }, { by = "fft", backend = "fft" },
    { by = "rac horizon", backend = "rac", horizon = 1e-7 },
  },
}

benches.encoder = {
  about = "the encoder mlp",
  dim = 512, passes = { "fwd", "fwd+bwd" }, peers = true, more = decayed,
  axis = true, shapes = { { 512, 1 }, { 2048, 1 }, { 8192, 1 } },
  quick = { { 512, 1 }, { 2048, 1 } },
  ours = { { by = "mlp" } },
}

benches.layer = {
  about = "a block: GTU and GLU with their norms",
  dim = 512, passes = { "fwd", "fwd+bwd" }, peers = true, more = decayed, matrices = true,
  shapes = { { 512, 1, 4 }, { 2048, 1 } }, quick = { { 512, 1 } },
  ours = { { by = "rac", backend = "rac" }, { by = "fft", backend = "fft" } },
}

-- The length up to which mixers are measured whose work or memory grows as n^2.
local QUADRATIC = 4096
local quadratic = { attention = true, cat = true, flash_quad = true, gmlp = true,
  kernelized = true, synthesizer_dense = true, synthesizer_random = true }

local function up_to_quadratic(p) return p.n <= QUADRATIC end

-- Returns the contestants of a mixer: the mixer itself, and etsc too if it generates by the
-- recurrence of a TNO, which has the methods ring and etsc. A mixer that is not causal by default
-- has that in its name, and generates nothing.
local function contestants(name)
  local class = mixers.class(name)
  local fields = class.spec.fields
  local causal = fields.causal.default
  local list = { { by = causal and name or name .. ", both ways", mixer = name,
    when = quadratic[name] and up_to_quadratic or nil, pass = not causal and "fwd+bwd" or nil } }
  if recurrent.can_step(class) and (fields.backend or fields.tno) then
    list[2] = { by = name .. " etsc", mixer = name, method = "etsc", pass = "token" }
  end
  return list
end

-- Returns the contestants of all mixers except duplicates in another frame. gtu is first, because
-- the others are compared with the first one.
local function all_mixers()
  local list, left_out = contestants "gtu", { gtu = true, fnet_mixing = true,
    gated_attention = true }
  for _, name in ipairs(mixers.names) do
    local more = left_out[name] and {} or contestants(name)
    table.move(more, 1, #more, #list + 1, list)
  end
  return list
end

benches.mixers = {
  about = "every token mixer alone, causal if possible, by length: with gradients, and per token",
  dim = 64, passes = { "fwd+bwd", "token" }, axis = true, exponents = true, more = { heads = 4 },
  shapes = { { 512, 1 }, { 1024, 1 }, { 2048, 1 }, { 4096, 1 }, { 8192, 1 }, { 16384, 1 } },
  quick = { { 512, 1 } },
  ours = all_mixers(),
}

-- The mixers that benches/torch_mixers.py has too. Both sides have the same weights, and results
-- are compared before they are timed.
local beside = each({ "attention", "linear_attention", "gla", "retention", "ssd", "mamba", "s4d",
  "hyena", "longconv", "gmlp", "fnet", "linformer", "gru", "lstm" }, "mixer")
table.insert(beside, 2, { mixer = "attention", positions = "alibi" })
for _, one in ipairs(beside) do one.causal = mixers.class(one.mixer).spec.fields.causal.default end

benches.peers = {
  about = "token mixers, each beside its usual form in PyTorch",
  dim = 256, passes = { "fwd+bwd" }, peers = true, more = { heads = 4 },
  shapes = { { 512, 1, 8 }, { 2048, 1, 8 }, { 8192, 1 } }, quick = { { 512, 1 } },
  vary = beside,
  ours = { { by = "toeplab" } },
}

local published = { layers = 6, rpe_dim = 64, rpe_layers = 6, decay = 0.99 }

-- Six configurations of published sizes, and one for a laptop.
benches.lm = {
  about = "a training step of a language model: loss, gradients, Adam",
  dim = 512, passes = { "step" }, peers = true, more = published, matrices = true,
  shapes = { { 512, 1, 4 }, { 2048, 1 } }, quick = { { 256, 1 } },
  gpu = { { 512, 8, 32 }, { 2048, 8 } },
  vary = { { vocab = 8192 }, { vocab = 50265 } }, quick_vary = { { vocab = 8192 } },
  extra = { { n = 256, b = 8, dim = 128, layers = 4, rpe_dim = 32, rpe_layers = 2, vocab = 63 } },
  ours = { { by = "rac", backend = "rac" }, { by = "fft", backend = "fft", asked = true },
    { by = "fft, no graphs", backend = "fft", graphs = false, asked = true, gpu = true } },
}

benches.classify = {
  about = "a training step of a classifier of long sequences",
  dim = 64, passes = { "step" }, bidirectional = true, matrices = true,
  more = { layers = 2, vocab = 256 },
  shapes = { { 1024, 8 }, { 4096, 8 } }, quick = { { 1024, 4 } },
  ours = { { by = "rac", backend = "rac" }, { by = "fft", backend = "fft" } },
}

-- Leaves out problems that a contestant would need minutes or gigabytes to prepare.
local function up_to(most) return function(p) return p.b * p.n <= most end end

benches.generate = {
  about = "a generated token after n others: fft, ring, etsc, relaxed",
  dim = 64, passes = { "token" }, peers = true, axis = true, exponents = true,
  more = { layers = 2, rpe_dim = 64, rpe_layers = 6, decay = 0.99, vocab = 1000 },
  shapes = { { 256, 1 }, { 512, 1 }, { 1024, 1 }, { 2048, 1 }, { 4096, 1 }, { 8192, 1 } },
  quick = { { 256, 1 }, { 1024, 1 } },
  peer_methods = { false, "ring" }, -- false: all of the text again
  ours = {
    { by = "ring", backend = "rac", method = "ring", when = up_to(2 ^ 16) },
    { by = "relaxed", backend = "rac", method = "relaxed" },
    { by = "etsc exact", backend = "rac", method = "etsc", form = "exact", when = up_to(2 ^ 14) },
    { by = "etsc published", backend = "rac", method = "etsc", form = "published",
      when = up_to(2 ^ 14) },
    { by = "fft", backend = "fft", method = "window", when = up_to(2 ^ 18) },
    { by = "rac", backend = "rac", method = "window", when = up_to(2 ^ 18) },
  },
}

benches.stream = {
  about = "a position of one causal operator whose kernel is as long as the stream",
  dim = 16, passes = { "token" }, axis = true, exponents = true, crossovers = true,
  shapes = { { 1 << 10, 1 }, { 1 << 12, 1 }, { 1 << 14, 1 }, { 1 << 16, 1 }, { 1 << 17, 1 },
    { 1 << 18, 1 }, { 1 << 20, 1 } },
  quick = { { 64, 1 }, { 256, 1 }, { 1024, 1 } },
  ours = {
    { by = "relaxed", method = "relaxed" },
    { by = "full ring", method = "ring", when = up_to(2 ^ 17) },
    { by = "etsc exact", method = "etsc", when = up_to(2 ^ 14) },
    { by = "fft again", method = "fft" },
  },
}

benches.ski = {
  about = "the whole operator by ski and by rac, each with its encoder, and their exponents",
  dim = 512, passes = { "fwd+bwd" }, modes = true, first = "bidirectional", axis = true,
  exponents = true, more = { rpe_dim = 64, rpe_layers = 6 },
  shapes = { { 4096, 1 }, { 8192, 1 }, { 16384, 1 } }, quick = { { 4096, 1 }, { 16384, 1 } },
  ours = {
    { by = "ski", backend = "ski", encoder = "mlp", decay = "none" },
    { by = "ski piecewise", backend = "ski", encoder = "piecewise", decay = "none" },
    { by = "rac", backend = "rac", encoder = "mlp", decay = 0.99 },
    { by = "fft", backend = "fft", encoder = "mlp", decay = 0.99 },
  },
}

benches.fd = {
  about = "a training step by fd and by rac, encoders of equal depth",
  dim = 512, passes = { "step" }, modes = true, matrices = true,
  more = { layers = 6, rpe_dim = 64, rpe_layers = 3, vocab = 8192 },
  shapes = { { 512, 1 }, { 2048, 1 } }, quick = { { 256, 1 } },
  extra = { { n = 512, b = 8, dim = 64, layers = 2, rpe_dim = 64, rpe_layers = 3, vocab = 256 } },
  ours = {
    { by = "fd", backend = "fd", decay = "none" },
    { by = "rac", backend = "rac", decay = 0.99 },
    { by = "fft", backend = "fft", decay = 0.99, asked = true },
  },
}

-- Returns whether a device is a GPU, as opposed to the CPU and to a plugin file, which tests use.
function grids.is_gpu(device) return device ~= nil and device ~= "cpu" and not device:find "/" end

-- Returns the names of all benches, or of those that have products in o.precisions (see
-- grids.takes_precision), in the order of "all".
function grids.names(o)
  local list = {}
  for _, name in ipairs(order) do
    if not o or grids.takes_precision(name, o) then list[#list + 1] = name end
  end
  return list
end

function grids.get(name) return benches[name] end

-- ---- Problems ---------------------------------------------------------------------------------

local function distinct(shapes, what)
  local seen, list = {}, {}
  for _, shape in ipairs(shapes) do
    for i = what == "n" and 1 or 2, what == "n" and 1 or #shape do
      if not seen[shape[i]] then list[#list + 1] = shape[i] end
      seen[shape[i]] = true
    end
  end
  return list
end

-- Returns the lengths and batches as {n, b, b, ...}. If either is given, every length is combined
-- with every batch.
local function shapes_of(bench, o)
  local usual = o.quick and bench.quick or grids.is_gpu(o.device) and bench.gpu or bench.shapes
  if not o.lengths and not o.batches then return usual end
  local list, batches = {}, o.batches or { distinct(usual, "b")[1] }
  for i, n in ipairs(o.lengths or distinct(usual, "n")) do
    list[i] = { n, table.unpack(batches) }
  end
  return list
end

local function modes_of(bench, quick)
  if not bench.modes then return { not bench.bidirectional } end
  local first = bench.first ~= "bidirectional"
  return quick and { first } or { first, not first }
end

-- Returns the problems of a bench. o: quick, lengths, batches (lists), dim, device.
function grids.problems(name, o)
  local bench, list = benches[name], {}
  local given = o.lengths or o.batches or o.dim
  local vary = o.quick and bench.quick_vary or bench.vary or { {} }
  for _, causal in ipairs(modes_of(bench, o.quick)) do
    local usual = not o.quick and grids.is_gpu(o.device) and bench.gpu_dim or bench.dim
    local fixed = { what = name, causal = causal, dim = o.dim or usual }
    for _, more in ipairs(vary) do
      for _, shape in ipairs(shapes_of(bench, o)) do
        for i = 2, #shape do
          list[#list + 1] = overlay(bench.more, fixed, more, { n = shape[1], b = shape[i] })
        end
      end
    end
    for _, extra in ipairs(not (given or o.quick) and bench.extra or {}) do
      list[#list + 1] = overlay(bench.more, fixed, extra)
    end
  end
  return list
end

-- Returns the passes over a problem.
function grids.passes(name, p)
  return p.op and not operators.has_gradient(p.op) and { "fwd" } or benches[name].passes
end

-- ---- Contestants -------------------------------------------------------------------------------

-- Returns whether a backend takes coefficients by lag, as rac does.
local function is_by_lag(backend)
  for _, causal in ipairs { true, false } do
    local ok, operator = pcall(core.tno, backend, 2, 1, causal)
    if ok then return operator:domain() == "lag" end
  end
  return false
end

-- Returns the contestants of a bench, plus one for each given backend that it does not list; each
-- must compute what rac does.
local function entries(bench, backends)
  local list, seen, model = {}, {}, nil
  for i, entry in ipairs(bench.ours) do
    list[i], seen[entry.backend or ""] = entry, true
    if entry.by == "rac" then model = entry end
  end
  for _, backend in ipairs(model and backends or {}) do
    if not seen[backend] and is_by_lag(backend) then
      list[#list + 1] = overlay(model, { by = backend, backend = backend })
    end
  end
  return list
end

-- Raises unless every name is a backend of the bench.
function grids.check_backends(name, names)
  local known, seen, all = {}, {}, {}
  for i, backend in ipairs(core.backends()) do all[i] = backend.name end
  for _, entry in ipairs(entries(benches[name], all)) do
    if entry.backend and not seen[entry.backend] then known[#known + 1] = entry.backend end
    seen[entry.backend or ""] = true
  end
  if #known == 0 then errors.usage("bench %s: has no backends to choose from", name) end
  for _, backend in ipairs(names) do
    local ok, why = suggest.choose("backend", backend, known)
    if not ok then errors.usage("bench %s: %s", name, why) end
  end
end

-- Returns whether an entry of a bench is available on a device.
local function there(entry, device)
  if not on_gpu(device) then return not entry.gpu end
  -- Recurrences run on the CPU only.
  if entry.method and entry.method ~= "window" then return false end
  return not entry.backend or entry.backend == "auto" or core.device_takes(device, entry.backend)
end

-- Returns a function that tells whether o.backends has an entry of a bench, if any are given.
local function asked_for(o)
  local wanted
  for _, backend in ipairs(o.backends or {}) do
    wanted = wanted or {}
    wanted[backend] = true
  end
  return function(entry)
    local asked = not wanted and not entry.asked or wanted and wanted[entry.backend]
    return asked and there(entry, o.device)
  end
end

local tiled = { matrix = true, auto = true } -- operators with products on tensor cores

-- Returns whether an entry of a bench has matrix products, in which a precision is chosen.
local function has_products(bench, entry, device)
  return bench.matrices or on_gpu(device) and tiled[entry.backend] or false
end

-- Returns whether a contestant of a bench has matrix products. o: backends, device, as below.
function grids.takes_precision(name, o)
  local bench, asked = benches[name], asked_for(o)
  for _, entry in ipairs(entries(bench, o.backends)) do
    if asked(entry) and has_products(bench, entry, o.device) then return true end
  end
  return false
end

local apart = { by = true, when = true, asked = true, gpu = true }

-- Returns the Toeplab contestants for problem p, in each precision if they have matrix products:
-- {by=, precision=, options= (added to p)}. o: backends (a list: only these), precisions (a list),
-- device. Also returns the names of o.backends that are too slow or too large for p.
function grids.ours(name, p, o)
  local bench, asked, list, too_slow = benches[name], asked_for(o), {}, {}
  for i, precision in ipairs(o.precisions) do
    for _, entry in ipairs(entries(bench, o.backends)) do
      local products = has_products(bench, entry, o.device)
      if asked(entry) and (products or i == 1) then
        local fits = not entry.when or entry.when(p, o.device)
        if o.backends and not fits then too_slow[#too_slow + 1] = entry.by end
        local options = { precision = products and precision or "float32" }
        for key, value in pairs(entry) do
          if not apart[key] then options[key] = value end
        end
        if fits then
          list[#list + 1] = { by = entry.by, precision = options.precision, options = options }
        end
      end
    end
  end
  return list, too_slow
end

return grids
