-- models/recurrent.lua: runs a causal model position by position. Each TNO in it becomes a
-- recurrence (core.recurrence); the other layers process every position independently anyway.
--
--   local session = recurrent.new(model:eval(), { method = "etsc", lags = 1000 })
--   local states = session:hidden(core.ids { { 5, 2, 7 } })   -- of the first three positions
--   states = session:hidden(core.ids { { 1 } })               -- of the fourth

local core = require "toeplab.core"
local act = require "toeplab.nn.act"
local defer = require "toeplab.base.defer"
local mixers = require "toeplab.nn.mixers"
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local recurrent = {}

recurrent.methods = { "ring", "etsc" }
recurrent.forms = { "exact", "published" }

local spec = options.set {
  { "method", options.field { default = "ring", choices = recurrent.methods },
    "ring: sums over the last inputs; etsc: the state of a sum of exponentials" },
  { "form", options.field { default = "exact", choices = recurrent.forms },
    "method etsc: exact at any length, or published, exact for the first lags positions" },
  { "lags", options.field { type = "int", min = 1 },
    "an operator sees a position and the lags-1 before it" },
  { "batch", options.field { default = 1, min = 1 }, "number of sequences" },
}

-- ---- Which modules can be stepped -------------------------------------------------------------

-- Classes of layers that process each position independently, as long as their submodules do. A
-- user's class declares this by Class.stepwise = true.
local stepwise = {}
for _, name in ipairs { "Linear", "Embedding", "Dropout", "Activation", "LayerNorm", "RMSNorm",
  "SimpleRMSNorm", "ScaleNorm", "BatchNorm", "GLU", "FeedForward", "GTU", "Block", "ModuleList",
  "Sequential" } do
  stepwise[nn[name]] = true
end

local reasons = {
  Attention = "attends to all positions before, which no state of fixed size holds",
  Sinusoidal = "adds numbers that depend on the position",
  Learned = "adds numbers that depend on the position",
  TNO2d = "mixes the cells of a grid, which have no order",
  TnnClassifier = "classifies a whole sequence, not each position",
  TnnMLM = "is not causal: it sees later positions",
}
reasons.GatedAttention = reasons.Attention
reasons.AttentionClassifier = reasons.TnnClassifier

local function can_step(class) return stepwise[class] or class.stepwise end

-- Returns the names of the mixers that can be stepped, and whether class is any registered mixer.
local function registered(class)
  local names, found = {}, false
  for _, name in ipairs(mixers.names) do
    local mixer = mixers.class(name)
    found = found or mixer == class
    if can_step(mixer) then names[#names + 1] = name end
  end
  return names, found
end

-- Returns why a module of a class that cannot be stepped is refused.
local function reason(class, module)
  local names, found = registered(class)
  if found and not module.opt.causal then return "is not causal: it sees later positions" end
  if reasons[class.kind] then return reasons[class.kind] end
  if not found then
    return ("may mix positions; if only its submodules may, set %s.stepwise = true"):format(
      class.kind)
  end
  return ("mixes positions, and has no form here that computes one position after the other; the "
    .. "mixers %s have one. generate takes any causal model by its methods window and fft"):format(
      table.concat(names, ", "))
end

local function refuse(name, format, ...)
  errors.usage("recurrent: %s %s", name == "" and "the model" or name, format:format(...))
end

local elementwise -- a set of the functions that may be steps of a Sequential

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
    if not module.opt.causal then
      refuse(name, "(TNO) is not causal: it sees later positions")
    end
    found[#found + 1] = { name = name, module = module }
    return
  end
  if not can_step(class) then refuse(name, "(%s) %s", module.kind, reason(class, module)) end
  if class == nn.Sequential then check_steps(module, name) end
  for _, field in ipairs(module:fields()) do -- a state space holds its TNO's encoder, too
    if getmetatable(field.value) == nn.TNO then seen[field.value.encoder] = true end
  end
  for _, field in ipairs(module:fields()) do
    if nn.ismodule(field.value) then
      local inner = name == "" and tostring(field.name) or name .. "." .. field.name
      visit(field.value, inner, seen, found)
    end
  end
end

-- Returns the TNOs of a model in order: an array of {name=, module=}. A model that cannot be
-- stepped is a usage error.
function recurrent.operators(model)
  local found = {}
  visit(model, "", {}, found)
  return found
end

-- ---- Kernels ----------------------------------------------------------------------------------

-- Returns the responses [4,lags,dim] of a TNO to impulses at four positions, and these positions
-- (from 0).
local function impulses(tno, lags)
  local at = { 0, lags > 1 and 1 or 0, lags // 3, lags * 2 // 3 }
  local x, dim = {}, tno.opt.dim
  for row, position in ipairs(at) do
    x[row] = core.zeros(1, lags, dim)
    x[row]:view(position * dim, { dim }):fill(1)
  end
  return tno(core.concat(x, 1)), at
end

-- Returns the kernel of a TNO whose coefficients are not lags: its response to an impulse. Such an
-- operator need not be shift-invariant (ski interpolates between inducing points), so the responses
-- at several positions are compared.
local function impulse_kernel(tno, lags, name)
  local answers, at = impulses(tno, lags)
  local first = answers:narrow(1, 1, 1)
  local size = core.abs(first):reshape(-1):amax():item()
  for row = 2, #at do
    local count = lags - at[row]
    local here = answers:narrow(1, row, 1):narrow(2, at[row] + 1, count)
    local off = core.abs(here - first:narrow(2, 1, count)):reshape(-1):amax():item()
    if off > 1e-4 * size then
      refuse(name, "(TNO, backend '%s') is not a Toeplitz operator at %d positions: its responses "
        .. "to impulses at positions %d and 0 differ by %.1g of the largest value",
        tno.opt.backend, lags, at[row], off / size)
    end
  end
  return first:reshape(lags, tno.opt.dim)
end

-- Returns the coefficients t [lags,dim] of a TNO for texts of up to lags positions, and its gamma
-- [dim] or nil: position i receives gamma^k t_k x_(i-k). t has fewer rows if the TNO has a max_lag.
function recurrent.kernel(tno, lags, name)
  return core.no_grad(function()
    local o, entry = tno.opt, tno:plan(lags)
    if tno.domain ~= "lag" then return impulse_kernel(tno, lags, name or "") end
    local t = tno.encoder(entry.asked, lags, tno.domain)
    if o.act == "none" then return t, tno.decay and tno.decay:value() end
    if tno.decay then t = tno.decay(t, entry.asked) end
    return act.act[o.act](t)
  end)
end

-- ---- Sessions ---------------------------------------------------------------------------------

local Session = {}
Session.__index = Session

-- Returns the function that replaces the forward pass of a TNO while the session runs.
local function stepper(layer)
  return function(x)
    if layer.called then
      error("recurrent: this TNO is used twice in the model, but has only one state", 0)
    end
    layer.called = true
    return layer.recurrence:step(x)
  end
end

-- Returns a session over model, in which make(tno, name) returns the recurrence of each TNO.
function recurrent.session(model, make)
  local layers = recurrent.operators(model)
  for _, layer in ipairs(layers) do
    layer.recurrence = make(layer.module, layer.name)
    layer.step = stepper(layer)
  end
  return setmetatable({ model = model, layers = layers }, Session)
end

-- Returns a session that steps a model from position 0 on. The kernels are computed here, for a
-- text of lags positions, so later changes of the parameters have no effect.
function recurrent.new(model, given)
  local o = options.check("recurrent", spec, given)
  local kind = o.method == "ring" and "ring" or o.form
  return recurrent.session(model, function(tno, name)
    local t, gamma = recurrent.kernel(tno, o.lags, name)
    return core.recurrence(t, gamma, kind, o.batch)
  end)
end

-- Calls fn(...) while the session's steppers replace the TNOs.
local function session_run(session, fn, ...)
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

-- Returns model:hidden(ids) for the next n positions.   ids [b,n]
function Session:hidden(ids)
  return session_run(self, self.model.hidden, self.model, ids)
end

-- Returns model(ids) for the next n positions.   ids [b,n]
function Session:forward(ids)
  return session_run(self, self.model, ids)
end

-- Returns to before the first position. Returns the session.
function Session:reset()
  for _, layer in ipairs(self.layers) do layer.recurrence:reset() end
  return self
end

-- Returns {state=, kernels=} in bytes: the states of all sequences, and the kernels they share.
function Session:sizes()
  local state, kernels = 0, 0
  for _, layer in ipairs(self.layers) do
    local sizes = layer.recurrence:sizes()
    state, kernels = state + sizes.state_bytes, kernels + sizes.kernel_bytes
  end
  return { state = state, kernels = kernels }
end

-- Frees the memory of the recurrences at once.
function Session:close()
  for _, layer in ipairs(self.layers) do layer.recurrence:close() end
end

return suggest.strict("recurrent", recurrent)
