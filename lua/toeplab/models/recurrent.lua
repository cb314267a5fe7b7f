-- models/recurrent.lua: runs a causal model position by position: each TNO in it becomes a
-- recurrence (core.recurrence); the other layers treat every position by itself anyway.
--
--   local session = recurrent.new(model:eval(), { method = "etsc", lags = 1000 })
--   local states = session:hidden(core.ids { { 5, 2, 7 } })   -- of the first three positions
--   states = session:hidden(core.ids { { 1 } })               -- of the fourth

local core = require "toeplab.core"
local act = require "toeplab.nn.act"
local defer = require "toeplab.base.defer"
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local recurrent = {}

recurrent.methods = { "ring", "etsc" }
recurrent.forms = { "exact", "published" }

local spec = options.set {
  { "method", options.field { default = "ring", choices = recurrent.methods },
    "ring: the last inputs, summed directly; etsc: modes" },
  { "form", options.field { default = "exact", choices = recurrent.forms },
    "of etsc: exact at any length, or published: for the first lags positions" },
  { "lags", options.field { type = "int", min = 1 },
    "an operator sees a position and lags-1 before it" },
  { "batch", options.field { default = 1, min = 1 }, "sequences side by side" },
}

-- ---- Which modules can be stepped -------------------------------------------------------------

-- Layers that treat each position by itself, given parts that do. A kind of one's own says so by
-- Kind.stepwise = true.
local plain = {}
for _, name in ipairs { "Linear", "Embedding", "Dropout", "Activation", "LayerNorm", "RMSNorm",
  "SimpleRMSNorm", "ScaleNorm", "BatchNorm", "GLU", "GTU", "Block", "ModuleList", "Sequential" } do
  plain[nn[name]] = true
end

local reasons = {
  Attention = "attends to all positions before, which no state of fixed size holds",
  Sinusoidal = "adds numbers that depend on the position",
  Conv = "mixes positions, and has no recurrence here",
  TNO2d = "mixes the cells of a grid, which have no order",
  TnnClassifier = "says one thing of a whole sequence, nothing of each position",
  TnnMLM = "sees what comes later",
}
reasons.GatedAttention = reasons.Attention

local function refuse(name, format, ...)
  errors.usage("recurrent: %s %s", name == "" and "the model" or name, format:format(...))
end

local elementwise -- the functions that a Sequential may have as steps

local function check_steps(module, name)
  if not elementwise then
    elementwise = {}
    for _, unary in ipairs(core.unary_names()) do elementwise[core[unary]] = true end
    for _, f in pairs(act.act) do elementwise[f] = true end
  end
  for i = 1, module.steps do
    if type(module[i]) == "function" and not elementwise[module[i]] then
      refuse(name, "has a function as step %d, which may mix positions", i)
    end
  end
end

local function visit(module, name, seen, found)
  local class = getmetatable(module)
  if seen[module] then return end
  seen[module] = true
  if class == nn.TNO then
    if not module.opt.causal then refuse(name, "(TNO) is not causal: it sees what comes later") end
    found[#found + 1] = { name = name, module = module }
    return
  end
  if not (plain[class] or class.stepwise) then
    refuse(name, "(%s) %s", module.kind, reasons[module.kind] or "may mix positions in a way that "
      .. "is not known here; if it does not, beside its parts, set " .. module.kind
      .. ".stepwise = true")
  end
  if class == nn.Sequential then check_steps(module, name) end
  for _, field in ipairs(module:fields()) do
    if nn.ismodule(field.value) then
      local inner = name == "" and tostring(field.name) or name .. "." .. field.name
      visit(field.value, inner, seen, found)
    end
  end
end

-- The TNOs of a model in order: an array of {name=, module=}; an error if it cannot be stepped.
function recurrent.operators(model)
  local found = {}
  visit(model, "", {}, found)
  return found
end

-- ---- Kernels ----------------------------------------------------------------------------------

-- The answers [4,lags,dim] of a TNO to impulses at four positions, and these (0-based).
local function impulses(tno, lags)
  local at = { 0, lags > 1 and 1 or 0, lags // 3, lags * 2 // 3 }
  local x, dim = {}, tno.opt.dim
  for row, position in ipairs(at) do
    x[row] = core.zeros(1, lags, dim)
    x[row]:view(position * dim, { dim }):fill(1)
  end
  return tno(core.concat(x, 1)), at
end

-- The kernel of a TNO whose coefficients are not lags, from its answer to an impulse. Nothing says
-- that such an operator is the same everywhere (ski interpolates between its inducing points), so
-- it is asked at several places.
local function measured(tno, lags, name)
  local answers, at = impulses(tno, lags)
  local first = answers:narrow(1, 1, 1)
  local size = core.abs(first):reshape(-1):amax():item()
  for row = 2, #at do
    local count = lags - at[row]
    local here = answers:narrow(1, row, 1):narrow(2, at[row] + 1, count)
    local off = core.abs(here - first:narrow(2, 1, count)):reshape(-1):amax():item()
    if off > 1e-4 * size then
      refuse(name, "(TNO, backend '%s') is not a Toeplitz operator at %d positions: an impulse at "
        .. "position %d and one at 0 are answered differently, by %.1g of the largest",
        tno.opt.backend, lags, at[row], off / size)
    end
  end
  return first:reshape(lags, tno.opt.dim)
end

-- The coefficients t [lags,dim] of a TNO for texts up to lags positions, and its gamma or nil:
-- position i sees gamma^k t_k of the one k before. Fewer rows if the TNO has a max_lag.
function recurrent.kernel(tno, lags, name)
  return core.no_grad(function()
    local o, entry = tno.opt, tno:plan(lags)
    if tno.domain ~= "lag" then return measured(tno, lags, name or "") end
    local t = tno.encoder(entry.asked, lags, tno.domain)
    if o.act == "none" then return t, tno.decay and tno.decay:value() end
    if tno.decay then t = tno.decay(t, entry.asked) end
    return act.act[o.act](t)
  end)
end

-- ---- Sessions ---------------------------------------------------------------------------------

local Session = {}
Session.__index = Session

-- The function that stands in for the operator of a layer while the session runs.
local function stepper(layer)
  return function(x)
    if layer.called then
      error("recurrent: this TNO is used twice in the model, and has but one state", 0)
    end
    layer.called = true
    return layer.recurrence:step(x)
  end
end

-- A session over model with make(module, name) -> the recurrence of each TNO.
function recurrent.session(model, make)
  local layers = recurrent.operators(model)
  for _, layer in ipairs(layers) do
    layer.recurrence = make(layer.module, layer.name)
    layer.step = stepper(layer)
  end
  return setmetatable({ model = model, layers = layers }, Session)
end

-- A model made ready to be stepped from position 0 on. Its parameters may not change any more: the
-- kernels are computed here, those of a text of lags positions.
function recurrent.new(model, given)
  local o = options.check("recurrent", spec, given)
  local kind = o.method == "ring" and "ring" or o.form
  return recurrent.session(model, function(tno, name)
    local t, gamma = recurrent.kernel(tno, o.lags, name)
    return core.recurrence(t, gamma, kind, o.batch)
  end)
end

-- fn(...) while the TNOs are steppers.
local function run(session, fn, ...)
  if session.model.training then
    error("recurrent: the model is in training; call model:eval() first", 3)
  end
  local restore <close> = defer(function()
    for _, layer in ipairs(session.layers) do rawset(layer.module, "stepper", nil) end
  end)
  for _, layer in ipairs(session.layers) do
    layer.called = false
    rawset(layer.module, "stepper", layer.step)
  end
  return core.no_grad(fn, ...)
end

-- model:hidden(ids) and model(ids) for the next positions.   ids [b,n]
function Session:hidden(ids)
  return run(self, self.model.hidden, self.model, ids)
end

function Session:forward(ids)
  return run(self, self.model, ids)
end

-- Back to before the first position.
function Session:reset()
  for _, layer in ipairs(self.layers) do layer.recurrence:reset() end
  return self
end

-- Bytes: state, of all sequences, and kernels, which they share.
function Session:sizes()
  local state, kernels = 0, 0
  for _, layer in ipairs(self.layers) do
    local sizes = layer.recurrence:sizes()
    state, kernels = state + sizes.state_bytes, kernels + sizes.kernel_bytes
  end
  return { state = state, kernels = kernels }
end

-- Gives the memory back at once.
function Session:close()
  for _, layer in ipairs(self.layers) do layer.recurrence:close() end
end

return suggest.strict("recurrent", recurrent)
