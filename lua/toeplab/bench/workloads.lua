-- bench/workloads.lua: turns a problem into a function that does Toeplab's side of the work once,
-- with gradients if there are any.
--
-- A problem is a flat table: what, n, b, dim, causal, pass ("fwd", "fwd+bwd", "step", "token"),
-- precision, and the options of its kind: mixer, heads, backend, encoder, rpe_dim, rpe_layers,
-- decay, layers, vocab, graphs (false: a step on a GPU without CUDA graph).
local core = require "toeplab.core"
local classify = require "toeplab.train.classify"
local cost = require "toeplab.train.cost"
local mixers = require "toeplab.nn.mixers"
local models = require "toeplab.models"
local nn = require "toeplab.nn"
local operators = require "toeplab.bench.operators"
local optim = require "toeplab.train.optim"
local overlay = require "toeplab.base.overlay"
local recurrent = require "toeplab.models.recurrent"
local streams = require "toeplab.base.streams"
local suggest = require "toeplab.base.suggest"
local tensor_files = require "toeplab.models.files.tensor_files"
local train = require "toeplab.train"

local workloads = {}

-- The precisions of matrix products that can be measured here.
workloads.precisions = core.precisions

-- Selects the precision of the matrix products that follow.
local function enter(name)
  local ok, why = suggest.choose("precision", name, workloads.precisions())
  if not ok then error(why, 0) end
  core.precision(name)
end

local function numbers(stream, ...)
  return stream:normal(core.zeros(...), 0, 1)
end

local function leaf(stream, ...)
  return numbers(stream, ...):require_grad()
end

local function text(stream, b, n, vocab)
  local rows = {}
  for r = 1, b do
    rows[r] = {}
    for i = 1, n do rows[r][i] = stream:below(vocab) end
  end
  return core.ids(rows)
end

-- Returns a function that runs forward() and, unless only the forward pass is measured, computes
-- the gradients of all leaves from dy, the gradient of the result.
local function passes(p, forward, leaves, dy)
  if p.pass == "fwd" then
    return function() core.no_grad(forward) end
  end
  return function()
    for _, t in ipairs(leaves) do t:set_grad(nil) end
    forward():backward(dy)
  end
end

local function trained(module)
  local list = {}
  for _, q in ipairs(module:parameters()) do
    if q.tensor:requires_grad() then list[#list + 1] = q.tensor end
  end
  return list
end

-- Makes the work of a module on x [b,n,dim].
local function of_module(p, stream, module)
  local x, leaves = leaf(stream, p.b, p.n, p.dim), trained(module)
  leaves[#leaves + 1] = x
  local run = passes(p, function() return module(x) end, leaves,
    numbers(stream, p.b, p.n, p.dim))
  return { run = run, parameters = module:count() }
end

-- ---- Operators --------------------------------------------------------------------------------

local makers = {}

function makers.ops(p, stream)
  local made = operators.make(p, stream)
  if p.pass == "fwd" then return { run = function() core.no_grad(made.forward) end } end
  local y = core.no_grad(made.forward)
  local dy = y:numel() > 1 and stream:normal(core.zeros(y:shape()), 0, 1) or nil
  return { run = passes(p, made.forward, made.leaves, dy) }
end

function makers.tno(p, stream)
  local operator = core.tno(p.backend, p.n, p.dim, p.causal)
  local coef = leaf(stream, operator:points():numel(), p.dim)
  local x = leaf(stream, p.b, p.n, p.dim)
  local run = passes(p, function() return operator:apply(coef, {}, x) end, { coef, x },
    numbers(stream, p.b, p.n, p.dim))
  return { run = run, parameters = 0 }
end

-- Returns the work of a stream of p.n positions, in which each call of step computes the next one
-- and start begins again. Its time is the mean of all positions, since some cost more than others.
local function streamed(p, made, start, step)
  function made.stream()
    start()
    local begin, longest = core.sys.clock(), 0.0
    local last = begin
    for _ = 1, p.n do
      step()
      local now = core.sys.clock()
      longest, last = math.max(longest, now - last), now
    end
    made.longest = longest
    return (last - begin) / p.n
  end
  made.run, made.positions = made.stream, p.n
  return made
end

-- Makes the work of position n of one causal operator, or of all n positions of a relaxed one. The
-- kernel has no decay.
function makers.stream(p, stream)
  local t, x = numbers(stream, p.n, p.dim), numbers(stream, p.b, p.n, p.dim)
  if p.method == "fft" then
    local operator, kept = core.tno("rac", p.n, p.dim, true), nil
    return { parameters = 0, run = function()
      kept = core.no_grad(function()
        return select(2, operator:apply(not kept and t or nil, {}, x, kept or true))
      end)
    end }
  end
  local kind = p.method == "etsc" and "exact" or p.method
  local r = kind == "relaxed" and core.relaxed_recurrence(t, nil, p.b, p.n)
    or core.recurrence(t, nil, kind, p.b)
  local sizes, last = r:sizes(), x:narrow(2, p.n, 1)
  local y = core.zeros(p.b, 1, p.dim)
  local made = { parameters = 0, state = sizes.state_bytes, kernels = sizes.kernel_bytes,
    run = function() r:step(last, y) end, close = function() r:close() end }
  if kind == "relaxed" then
    return streamed(p, made, function() r:reset() end, made.run)
  end
  r:step(x) -- so that the ring is full
  return made
end

local function tno_options(p)
  local o = { causal = p.causal, backend = p.backend, encoder = p.encoder, decay = p.decay,
    horizon = p.horizon }
  if p.encoder == "mlp" then o.rpe = { hidden = p.rpe_dim, layers = p.rpe_layers } end
  return o
end

function makers.operator(p, stream)
  return of_module(p, stream, nn.TNO(p.dim, tno_options(p)))
end

function makers.encoder(p, stream)
  local module = nn.RPE(p.dim, { hidden = p.rpe_dim, layers = p.rpe_layers })
  local lags = core.range(p.causal and 0 or 1 - p.n, p.n - 1)
  local run = passes(p, function() return module(lags, p.n, "lag") end, trained(module),
    numbers(stream, lags:dim(1), p.dim))
  return { run = run, parameters = module:count() }
end

function makers.layer(p, stream)
  local gtu = nn.GTU(p.dim, { tno = tno_options(p) })
  return of_module(p, stream, nn.Block(p.dim, gtu, nn.GLU(p.dim)))
end

-- Returns a list of tables, copied.
local function copies(list)
  local result = {}
  for i, each in ipairs(list) do result[i] = overlay(each) end
  return result
end

-- Makes the work of computing position n from its input, after the positions before it: by a step
-- of a session or, for a mixer without steps, from all n inputs. The recurrences of TNOs run on the
-- CPU only.
local function next_position(p, stream, mixer)
  local x, count = numbers(stream, p.b, p.n, p.dim), mixer:count()
  local steps = recurrent.can_step(getmetatable(mixer))
  mixer:eval()
  if not steps or #recurrent.operators(mixer) > 0 and core.device() ~= "cpu" then
    return { parameters = count, cached = true, run = function()
      core.no_grad(mixer.forward, mixer, x)
    end }
  end
  local session = recurrent.new(mixer, { method = p.method, lags = p.n, batch = p.b })
  session:forward(x:narrow(2, 1, p.n - 1))
  local last, before = x:narrow(2, p.n, 1), copies(session.carried)
  session:forward(last)
  local sizes = session:sizes()
  return { parameters = count, state = sizes.state, kernels = sizes.kernels, run = function()
    session.carried = copies(before) -- otherwise attention would advance in each call
    session:forward(last)
  end, close = function() session:close() end }
end

-- Makes the gradients of a mixer, and counts their arithmetic by its own formula.
local function counted(p, stream, mixer)
  local made = of_module(p, stream, mixer)
  made.flop = cost.step_flop(mixer, p.n, p.b)
  return made
end

-- Makes a mixer with its own default sizes. Mixers for a fixed length get x's.
function makers.mixers(p, stream)
  local lengths = { heads = p.heads, max_length = p.n, length = p.n }
  local mixer = mixers.make(p.mixer, p.dim, lengths, {})
  if p.pass == "token" then return next_position(p, stream, mixer) end
  return counted(p, stream, mixer)
end

local CHECKED = 64 -- positions of the input whose result a peer compares

-- Makes a mixer whose weights, with an input and its result, are in the file p.file, by which a
-- peer computes the same.
function makers.peers(p, stream)
  local sizes = { heads = p.heads, max_length = p.n, length = p.n, dropout = 0, causal = p.causal }
  local mixer = mixers.make(p.mixer, p.dim, sizes, { positions = p.positions })
  local tensors, x = mixer:state(), numbers(stream, 2, math.min(p.n, CHECKED), p.dim)
  tensors.x, tensors.y = x, core.no_grad(mixer.forward, mixer, x)
  tensor_files.save(p.file, tensors)
  return counted(p, stream, mixer)
end

-- ---- Models -----------------------------------------------------------------------------------

local function model_options(p)
  return { vocab = p.vocab, layers = p.layers, dim = p.dim, rpe_dim = p.rpe_dim,
    rpe_layers = p.rpe_layers, decay = p.decay, backend = p.backend, causal = p.causal }
end

local function adam(model)
  return optim.adam(model, { lr = 1e-4, betas = { 0.9, 0.98 } })
end

function makers.lm(p, stream)
  local model = models.tnn_lm(model_options(p))
  local opt, batch = adam(model), text(stream, p.b, p.n + 1, p.vocab)
  if p.graphs ~= false then train.graph(model, opt) end
  return {
    run = function() train.lm_step(model, opt, batch) end, parameters = model:count(),
  }
end

makers.fd = makers.lm

function makers.classify(p, stream)
  local model = models.tnn_classifier { vocab = p.vocab, classes = 2, layers = p.layers,
    dim = p.dim, backend = p.backend, causal = p.causal }
  local opt, labels = adam(model), {}
  for i = 1, p.b do labels[i] = i % 2 end
  local batch = { ids = text(stream, p.b, p.n, p.vocab), labels = core.ids(labels) }
  return {
    run = function() classify.step(model, opt, batch) end, parameters = model:count(),
  }
end

makers.ski = makers.operator

-- ---- Generation -------------------------------------------------------------------------------

local PIECE = 1024 -- tokens that a session takes at once; more would take more memory

-- Runs the model on all n tokens to predict the next one, with cached coefficients; or one step of
-- a recurrence that has seen n tokens; or, if that is relaxed, n steps.
function makers.generate(p, stream)
  local model = models.tnn_lm(model_options(p)):eval()
  local ids, count = text(stream, p.b, p.n, p.vocab), model:count()
  if p.method == "window" then
    return { parameters = count, cached = true, run = function()
      core.no_grad(function() return model:logits(model:hidden(ids):narrow(2, p.n, 1)) end)
    end }
  end
  local session = recurrent.new(model, { method = p.method, form = p.form, lags = p.n,
    batch = p.b, positions = p.n })
  local token, sizes = ids:narrow(2, 1, 1), session:sizes()
  local made = { parameters = count, state = sizes.state, kernels = sizes.kernels, run = function()
    core.no_grad(function() return model:logits(session:hidden(token)) end)
  end, close = function() session:close() end }
  if p.method == "relaxed" then
    return streamed(p, made, function() session:reset() end, made.run)
  end
  for at = 1, p.n, PIECE do session:hidden(ids:narrow(2, at, math.min(PIECE, p.n - at + 1))) end
  return made
end

-- ---- Limits of the machine ---------------------------------------------------------------------

-- A product of matrices [n,n].
function makers.gemm(p, stream)
  local a, b = numbers(stream, p.n, p.n), numbers(stream, p.n, p.n)
  return { run = function() core.no_grad(core.matmul, a, b) end }
end

-- Adam on n parameters in place: reads four numbers of each and writes three.
function makers.inplace(p, stream)
  local w, m, v = leaf(stream, p.n), core.zeros(p.n), core.zeros(p.n)
  w:set_grad(numbers(stream, p.n))
  local step = { kind = "adam", lr = 1e-6, beta1 = 0.9, beta2 = 0.98, eps = 1e-8,
    weight_decay = 0, step = 1 }
  return { run = function() core.adam_step({ w }, { m }, { v }, step) end }
end

-- The sum of two vectors of n numbers, stored in a third.
function makers.triad(p, stream)
  local a, b = numbers(stream, p.n), numbers(stream, p.n)
  return { run = function() core.no_grad(function() return a + b end) end }
end

-- ---- Preparation -------------------------------------------------------------------------------

-- Prepares problem p: returns {run=, parameters=, cached= (whether coefficients are cached between
-- calls)} and, for a recurrence, state= and kernels= (bytes) and close=. Equal problems get equal
-- numbers. A stream has positions= and, once it has run, longest=: the seconds of the slowest one.
function workloads.make(p)
  local maker = makers[p.what]
  if not maker then error("unknown work " .. tostring(p.what), 0) end
  enter(p.precision)
  streams.seed(1)
  return maker(p, core.stream(1, "bench"))
end

local function timed(made, calls)
  made.run() -- warms the caches, which other contestants have used in between
  core.synchronize()
  local start = core.sys.clock()
  for _ = 1, calls do made.run() end
  core.synchronize() -- launches on a GPU are asynchronous
  return (core.sys.clock() - start) / calls
end

-- Returns the seconds per call, averaged over `calls` calls, or over the positions of a stream.
function workloads.time(made, calls)
  if made.stream then return made.stream() end
  if made.cached then return nn.cached(timed, made, calls) end
  return timed(made, calls)
end

return workloads
