-- models/recurrent.lua: runs a causal model position by position. Each TNO in it becomes a
-- recurrence (core.recurrence), and mixers with a state keep it between calls, as attention keeps
-- its keys and values (nn/mixers/carry.lua); the other layers process every position independently.
--
--   local session = recurrent.new(model:eval(), { method = "etsc", lags = 1000 })
--   local states = session:hidden(core.ids { { 5, 2, 7 } })   -- of the first three positions
--   states = session:hidden(core.ids { { 1 } })               -- of the fourth

local core = require "toeplab.core"
local act = require "toeplab.nn.act"
local carry = require "toeplab.nn.mixers.carry"
local defer = require "toeplab.base.defer"
local mixers = require "toeplab.nn.mixers"
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local recurrent = {}

recurrent.methods = { "ring", "etsc", "relaxed", "auto" }
recurrent.forms = { "exact", "published" }

local spec = options.declare "tl.recurrent.new" {
  { "method", options.field { default = "ring", choices = recurrent.methods },
    "of TNOs. ring: sums over the last inputs; etsc: the state of a sum of exponentials; relaxed: "
    .. "adds up old inputs in blocks; auto: ring for few lags or on a GPU, or else relaxed" },
  { "form", options.field { default = "exact", choices = recurrent.forms },
    "method etsc: exact at any length, or published, exact for the first lags positions" },
  { "lags", options.field { type = "int", min = 1 },
    "a TNO sees a position and the lags-1 before it" },
  { "positions", options.field { default = 0, min = 0 },
    "method relaxed: memory for this many positions after the prompt; 0: no limit" },
  { "batch", options.field { default = 1, min = 1 }, "number of sequences" },
}

-- ---- Which modules can be stepped -------------------------------------------------------------

-- Classes of layers that process each position independently if their submodules do. A user's class
-- declares this by Class.stepwise = true.
local stepwise = {}
for _, name in ipairs { "Linear", "Embedding", "Dropout", "Activation", "LayerNorm", "RMSNorm",
  "SimpleRMSNorm", "ScaleNorm", "GatedRMSNorm", "BatchNorm", "GLU", "FeedForward", "GTU", "Block",
  "ModuleList", "Sequential" } do
  stepwise[nn[name]] = true
end

local reasons = {
  TNO2d = "mixes the cells of a grid, which have no order",
  TnnClassifier = "classifies a whole sequence, not each position",
  TnnMLM = "is not causal: it sees later positions",
}
reasons.AttentionClassifier = reasons.TnnClassifier
reasons.TnnImage = "classifies a whole image, not each patch"

-- Returns whether modules of this class can be stepped, provided that they are causal and that the
-- modules inside them can.
function recurrent.can_step(class)
  return stepwise[class] or class.stepwise or class.carries
end

-- Returns the names of the mixers that can be stepped, and whether class is any registered mixer.
local function registered(class)
  local names, found = {}, false
  for _, name in ipairs(mixers.names) do
    local mixer = mixers.class(name)
    found = found or mixer == class
    if recurrent.can_step(mixer) then names[#names + 1] = name end
  end
  return names, found
end

-- Returns whether a module has the option causal, and it is false.
local function not_causal(module) return rawget(module.opt, "causal") == false end

-- Returns why a module of a class that cannot be stepped is refused.
local function reason(class, module)
  local names, found = registered(class)
  if (found or class.carries) and not_causal(module) then
    return "is not causal: it sees later positions"
  end
  if reasons[class.kind] then return reasons[class.kind] end
  if not found then
    return ("may mix positions; if only its submodules may, set %s.stepwise = true"):format(
      class.kind)
  end
  return ("mixes positions, and cannot be computed position by position; the mixers %s can. "
    .. "generate takes any causal model with its methods window and fft"):format(
      table.concat(names, ", "))
end

local function refuse(name, format, ...)
  errors.usage("recurrent: %s %s", name == "" and "the model" or name, format:format(...))
end

local elementwise -- a set of the functions that may be steps of a Sequential

-- Returns the number of the first step of a Sequential that may mix positions; nil: there is none.
function recurrent.mixing_step(module)
  if not elementwise then
    elementwise = {}
    for _, unary in ipairs(core.unary_names()) do elementwise[core[unary]] = true end
    for _, f in pairs(act.act) do elementwise[f] = true end
  end
  for i = 1, module.steps do
    if type(module[i]) == "function" and not elementwise[module[i]] then return i end
  end
end

-- Returns the modules in a module called name, an array of {name=, module=}. Adds the encoders of
-- its TNOs to seen: a state space holds its TNO's encoder, too.
function recurrent.inside(module, name, seen)
  local list = {}
  for _, field in ipairs(module:fields()) do
    if getmetatable(field.value) == nn.TNO then seen[field.value.encoder] = true end
    if nn.ismodule(field.value) then
      list[#list + 1] = { module = field.value,
        name = name == "" and tostring(field.name) or name .. "." .. field.name }
    end
  end
  return list
end

-- Adds the TNOs in a module to found, and the modules that carry a state to carriers.
local function visit(module, name, seen, found, carriers)
  local class = getmetatable(module)
  if seen[module] then
    if not class.carries then return end
    refuse(name, "(%s) is used twice, but has only one state", module.kind)
  end
  seen[module] = true
  if class == nn.TNO then
    if not module.opt.causal then
      refuse(name, "(TNO) is not causal: it sees later positions")
    end
    if module.opt.normalize then
      refuse(name, "(TNO) divides by sums that grow with the position (normalize)")
    end
    found[#found + 1] = { name = name, module = module }
    return
  end
  if not recurrent.can_step(class) or class.carries and not_causal(module) then
    refuse(name, "(%s) %s", module.kind, reason(class, module))
  end
  if class.carries then carriers[#carriers + 1] = module end
  local step = class == nn.Sequential and recurrent.mixing_step(module)
  if step then refuse(name, "has a function as step %d, which may mix positions", step) end
  for _, inner in ipairs(recurrent.inside(module, name, seen)) do
    visit(inner.module, inner.name, seen, found, carriers)
  end
end

-- Returns the TNOs of a model in order, an array of {name=, module=}, and the modules that carry a
-- state, an array. A model that cannot be stepped is a usage error.
function recurrent.operators(model)
  local found, carriers = {}, {}
  visit(model, "", {}, found, carriers)
  return found, carriers
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

-- Returns the kernel of a TNO whose coefficients are not lags: its response to an impulse. Compares
-- the responses at several positions, because such an operator need not be shift-invariant (ski
-- interpolates between inducing points).
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
    if o.taps > 0 then return tno:coefficients(lags) end
    local t = tno.cache:encoded(lags)
    if o.act_first then t = act.act[o.act](t) end
    if o.act == "none" or o.act_first then return t, tno.decay and tno.decay:value() end
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
  local layers, carriers = recurrent.operators(model)
  for _, layer in ipairs(layers) do
    layer.recurrence = make(layer.module, layer.name)
    layer.step = stepper(layer)
  end
  local session = { model = model, layers = layers, carriers = carriers, carried = {},
    make = make }
  return setmetatable(session, Session):reset()
end

-- Returns whether the relaxed form of a kernel t [lags,dim] is faster than a full ring. Their times
-- per token cross between 128 and 256 lags with 16 channels, 32 and 64 with 64, 16 and 32 with 192,
-- and below 16 with 1,536 (results/tables/generation.md). A ring that is still filling takes half
-- the time of a full one on average, so texts shorter than the kernel cross later.
-- A GPU steps a ring, and the relaxed form is stepped on the CPU, so that each position would wait
-- for copies.
local FEW = 32
local function is_long(t) return core.device() == "cpu" and t:dim(1) > FEW end

-- Returns a session that steps a model from position 0. The kernels are computed here, for a text
-- of lags positions, so later changes of the parameters have no effect before a reset.
function recurrent.new(model, given)
  local o = options.check("recurrent", spec, given)
  return recurrent.session(model, function(tno, name)
    local t, gamma = recurrent.kernel(tno, o.lags, name)
    if o.method == "relaxed" or o.method == "auto" and is_long(t) then
      return core.relaxed_recurrence(t, gamma, o.batch, o.positions)
    end
    return core.recurrence(t, gamma, o.method == "etsc" and o.form or "ring", o.batch)
  end)
end

-- Calls fn(...) while the session's steppers replace the TNOs and its states are in the modules
-- that carry them.
local function session_run(session, fn, ...)
  if session.model.training then
    error("recurrent: the model is in training; call model:eval() first", 3)
  end
  local restore <close> = defer(function()
    for _, layer in ipairs(session.layers) do rawset(layer.module, "stepper", nil) end
    for _, module in ipairs(session.carriers) do rawset(module, "carry", nil) end
  end)
  session.begun = true
  for _, layer in ipairs(session.layers) do
    layer.called = false
    rawset(layer.module, "stepper", layer.step)
  end
  for i, module in ipairs(session.carriers) do rawset(module, "carry", session.carried[i]) end
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

-- Returns a session of the same kind before its first position, with its own state. It shares the
-- kernels of this one, unless this one has begun or is closed.
function Session:fork()
  local layers = {}
  for _, layer in ipairs(self.layers) do layers[layer.name] = layer end
  return recurrent.session(self.model, function(tno, name)
    if self.begun or self.closed then return self.make(tno, name) end
    return layers[name].recurrence:fork()
  end)
end

-- Resets the session to before the first position, and returns it. A relaxed recurrence that has
-- begun is rebuilt, because it takes a prompt only once.
function Session:reset()
  for _, layer in ipairs(self.layers) do
    if self.begun and layer.recurrence:sizes().kind == "relaxed" then
      layer.recurrence:close()
      layer.recurrence = self.make(layer.module, layer.name)
    else
      layer.recurrence:reset()
    end
  end
  self.begun = false
  for i in ipairs(self.carriers) do self.carried[i] = {} end
  return self
end

-- Returns {state=, kernels=} in bytes: the states of all sequences, and the kernels that they
-- share. A carried state counts from the first position.
function Session:sizes()
  local state, kernels = 0, 0
  for _, layer in ipairs(self.layers) do
    local sizes = layer.recurrence:sizes()
    state, kernels = state + sizes.state_bytes, kernels + sizes.kernel_bytes
  end
  for _, carried in ipairs(self.carried) do state = state + carry.bytes(carried) end
  return { state = state, kernels = kernels }
end

-- Frees the memory of the recurrences at once.
function Session:close()
  for _, layer in ipairs(self.layers) do layer.recurrence:close() end
  self.carried, self.closed = {}, true
end

-- ---- Several sessions at once ------------------------------------------------------------------

-- Returns the function that replaces the forward pass of TNO number `at` of a model: row i of its
-- input, one position, goes to the recurrence of sessions[i]. Rows without a session become 0.
local function stepper_of_rows(sessions, count, at)
  return function(x)
    local dim = x:dim(3)
    local y, shape = core.zeros(count, 1, dim), { 1, 1, dim }
    for i = 1, count do
      local offset, layer = (i - 1) * dim, sessions[i] and sessions[i].layers[at]
      if layer then y:view(offset, shape):copy(layer.recurrence:step(x:view(offset, shape))) end
    end
    return y
  end
end

-- Returns the states that carrier number `at` has in the sessions, joined: name -> [count,..].
local function join(sessions, count, at)
  local all, shapes = {}, {}
  for i = 1, count do
    for name, state in pairs(sessions[i] and sessions[i].carried[at] or {}) do
      all[name], shapes[name] = all[name] or {}, state:shape()
      all[name][i] = state
    end
  end
  for name, states in pairs(all) do
    for i = 1, count do states[i] = states[i] or core.zeros(shapes[name]) end
    all[name] = core.concat(states, 1)
  end
  return all
end

-- Returns the indices of carrier `at` and of the carriers inside it.
local function within(carriers, at)
  local number, list = {}, {}
  for k, module in ipairs(carriers) do number[module] = k end
  for _, entry in ipairs(carriers[at]:modules()) do list[#list + 1] = number[entry.module] end
  return list
end

-- Returns the function that replaces the forward pass of a carrier whose state may differ in size
-- between sessions: it computes row by row. own: the indices of this carrier and of those inside it
-- (within), whose states change with the row; class: the carrier's.
local function rows_one_by_one(sessions, count, carriers, own, class)
  return function(module, x)
    local rows, shape = {}, nil
    for i = 1, count do
      if sessions[i] then
        for _, k in ipairs(own) do rawset(carriers[k], "carry", sessions[i].carried[k]) end
        rows[i] = class.forward(module, x:narrow(1, i, 1))
        shape = rows[i]:shape()
      end
    end
    for i = 1, count do rows[i] = rows[i] or core.zeros(shape) end
    return core.concat(rows, 1)
  end
end

-- Computes the next position of several sessions of one model at once: row i of ids [count,1]
-- belongs to sessions[i]; rows without a session are unused. fn is model.hidden or model.forward;
-- returns its result.
--
-- The rows do not change each other's results. Nor does the number of sessions for equal count,
-- because a matrix product computes all rows alike; another count may round differently.
function recurrent.step_rows(model, sessions, count, fn, ids)
  local _, first = next(sessions)
  local restore <close> = defer(function()
    for _, layer in ipairs(first.layers) do rawset(layer.module, "stepper", nil) end
    for _, module in ipairs(first.carriers) do
      rawset(module, "carry", nil)
      rawset(module, "forward", nil)
    end
  end)
  local carried, inside = {}, {} -- inside: the carriers that another one runs row by row
  for at, layer in ipairs(first.layers) do
    rawset(layer.module, "stepper", stepper_of_rows(sessions, count, at))
  end
  for at, module in ipairs(first.carriers) do -- an outer one comes before its inner ones
    local class = getmetatable(module)
    if class.grows and not inside[at] then
      local own = within(first.carriers, at)
      for _, k in ipairs(own) do inside[k] = true end
      rawset(module, "forward", rows_one_by_one(sessions, count, first.carriers, own, class))
    elseif not inside[at] then
      carried[at] = join(sessions, count, at)
      rawset(module, "carry", carried[at])
    end
  end
  for _, session in pairs(sessions) do session.begun = true end
  local result = core.no_grad(fn, model, ids)
  for at, states in pairs(carried) do
    for name, state in pairs(states) do
      for i, session in pairs(sessions) do session.carried[at][name] = state:narrow(1, i, 1) end
    end
  end
  return result
end

return suggest.strict("recurrent", recurrent)
