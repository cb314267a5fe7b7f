-- models/carried.lua: lets a model read texts window by window in training. Every layer that mixes
-- positions begins a window with the state after the one before (truncated backpropagation through
-- time).
--
--   local states = tl.carried(model, { memory = 128 })
--   for step in t:steps(n, model, opt, data, { carried = states }) do
--     if batches:begins_epoch(step) then states:reset() end
--     tl.train.lm_step(model, opt, batches:batch(step), nil, nil, states)
--   end
--
-- Recurrent mixers carry their whole state (nn/mixers/carry.lua). Attention keeps its last keys and
-- values, as Transformer-XL does, and a TNO its last inputs: unlike a recurrent state, they are
-- multiplied by the present coefficients. States are values without gradients.

local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local errors = require "toeplab.base.errors"
local mixers = require "toeplab.nn.mixers"
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local ranks = require "toeplab.train.ranks"
local recurrent = require "toeplab.models.recurrent"

local Carried = {}
Carried.__index, Carried.__name = Carried, "Carried"

local spec = options.declare "tl.carried" {
  { "memory", options.field { type = "int", min = 1, optional = true },
    "positions before a window that its attention and its TNOs see; other mixers need none" },
}

-- ---- The layers with a state --------------------------------------------------------------------

local function refuse(name, module, format, ...)
  errors.usage("carry: %s (%s) %s", name == "" and "the model" or name, module.kind,
    format:format(...))
end

-- Position encodings by the number of positions since the beginning of a text.
local numbered_from_start = { Learned = true, Sinusoidal = true }

local carrying_mixers -- the names of the mixers that carry a state

-- Raises the error for a module that may mix positions and carries no state.
local function refuse_mixer(name, module)
  if not carrying_mixers then
    local names = {}
    for _, mixer in ipairs(mixers.names) do
      local class = mixers.class(mixer)
      if recurrent.can_step(class) and not class.by_kernel_length then names[#names + 1] = mixer end
    end
    carrying_mixers = table.concat(names, ", ")
  end
  refuse(name, module, "has no state that a window could begin with; these mixers have one if "
    .. "causal: %s", carrying_mixers)
end

-- Raises unless a TNO is the same operator at all lengths.
local function check_tno(name, tno)
  if not tno.opt.causal then refuse(name, tno, "is not causal: it sees later positions") end
  if tno.opt.normalize then
    refuse(name, tno, "divides by sums that grow with the position (normalize)")
  end
  if not tno:is_steady() then
    refuse(name, tno, "has other coefficients at another length, by its encoder, nodes or backend "
      .. "'%s'", tno.opt.backend)
  end
end

-- Returns how many of the last positions a layer keeps; nil for a state of a fixed size.
local function kept_by(name, module, memory)
  local is_tno = getmetatable(module) == nn.TNO
  if not is_tno and not module.grows then return nil end
  if module.kind == "Retention" then return nil end -- its state is fixed, only positions count
  if not memory then
    refuse(name, module, "keeps earlier positions: give the option memory, their number")
  end
  local most = is_tno and module.opt.max_lag or rawget(module.opt, "window")
  return math.min(memory, (most or math.huge) - 1)
end

-- Adds the layers with a state in a module to list: {name=, module=, kept=}.
local function visit(module, name, memory, seen, list)
  local class = getmetatable(module)
  local is_tno = class == nn.TNO
  local carries = is_tno or class.carries and not (module.kind == "Conv" and module.opt.taps == 1)
  if seen[module] then
    if not carries then return end
    refuse(name, module, "is used twice, but has only one state")
  end
  seen[module] = true
  if numbered_from_start[module.kind] then
    refuse(name, module, "numbers positions from the beginning of a text: use positions = 'none', "
      .. "or those of the mixer")
  end
  if is_tno then
    check_tno(name, module)
  elseif carries and rawget(module.opt, "causal") == false then
    refuse(name, module, "is not causal: it sees later positions")
  elseif not recurrent.can_step(class) then
    refuse_mixer(name, module)
  end
  local step = class == nn.Sequential and recurrent.mixing_step(module)
  if step then refuse(name, module, "has a function as step %d, which may mix positions", step) end
  if carries then
    list[#list + 1] = { name = name, module = module, kept = kept_by(name, module, memory) }
  end
  if is_tno then return end
  for _, inner in ipairs(recurrent.inside(module, name, seen)) do
    visit(inner.module, inner.name, memory, seen, list)
  end
end

-- ---- States -------------------------------------------------------------------------------------

-- tl.carried(model, options): returns the empty states of a causal model. A layer that mixes
-- positions and has no state is a usage error.
local function new(model, given)
  local o = options.check("carried", spec, given)
  if not nn.ismodule(model) then errors.usage "carry: takes a model" end
  local layers = {}
  visit(model, "", o.memory, {}, layers)
  return setmetatable({ model = model, layers = layers, parts = {} }, Carried)
end

-- The axis of positions of the values of which the last are kept.
local axes = { inputs = 2, keys = 3, values = 3 }

-- Returns a state without gradients, of the last `kept` positions; nil for none.
local function detached(name, value, kept)
  if type(value) ~= "userdata" then return value end
  local axis = kept and axes[name]
  if axis and kept == 0 then return nil end
  local n = axis and value:dim(axis)
  if n and n > kept then value = value:narrow(axis, n - kept + 1, kept) end
  return value:clone()
end

-- Raises if the states are another model's, or rows have documents of their own, or are of several
-- ranks.
function Carried:check(who, model, separator)
  if model ~= self.model then error(who .. ": the carried states are of another model", 0) end
  if separator then
    error(who .. ": packed documents begin at empty states, so carry requires joined ones", 0)
  end
  if ranks.current() then
    error(who .. ": carried states are not exchanged between ranks: leave out ranks or carry", 0)
  end
end

-- Raises unless every layer has been called between two states.
local function check_called(layers, before, after)
  for i, layer in ipairs(layers) do
    local called = false
    for name, value in pairs(after[i]) do
      called = called or not before[i] or not rawequal(before[i][name], value)
    end
    if not called then
      refuse(layer.name, layer.module, "was not called: after a change of the model call "
        .. "tl.carried again")
    end
  end
end

-- Calls fn(...), which computes the next window, from the states of micro batch number `part`, and
-- stores the states after it. Returns the results of fn. A window whose fn fails leaves the states.
function Carried:window(part, fn, ...)
  if math.type(part) ~= "integer" or part < 1 or part > #self.parts + 1 then
    error(("carry: micro batch %s, must be an integer from 1 to %d, the next one"):format(
      tostring(part), #self.parts + 1), 2)
  end
  local before = self.parts[part] or {}
  local after = {}
  local restore <close> = defer(function()
    for _, layer in ipairs(self.layers) do rawset(layer.module, "carry", nil) end
  end)
  for i, layer in ipairs(self.layers) do
    after[i] = {}
    for name, value in pairs(before[i] or {}) do after[i][name] = value end
    rawset(layer.module, "carry", after[i])
  end
  local results = table.pack(fn(...))
  check_called(self.layers, before, after)
  core.no_grad(function()
    for i, layer in ipairs(self.layers) do
      for name, value in pairs(after[i]) do
        after[i][name] = detached(name, value, layer.kept)
      end
    end
  end)
  self.parts[part] = after
  return table.unpack(results, 1, results.n)
end

-- Empties the states: the next window begins a text. Returns the states.
function Carried:reset()
  self.parts = {}
  return self
end

-- Returns empty states of the same model, such as for an evaluation.
function Carried:fresh()
  return setmetatable({ model = self.model, layers = self.layers, parts = {} }, Carried)
end

-- For checkpoints.
function Carried:state() return { parts = self.parts } end

function Carried:load(state)
  for _, part in ipairs(state.parts or {}) do
    if #part ~= #self.layers then
      error(("carry: the checkpoint has states of %d layers, the model %d"):format(#part,
        #self.layers), 0)
    end
  end
  self.parts = state.parts or {}
end

return new
