-- models/recompute.lua: computes a module again in the backward pass, instead of storing what its
-- gradients need (activation checkpointing: Chen et al. 2016, Training deep nets with sublinear
-- memory cost).

local class = require "toeplab.nn.class"
local coefficient_cache = require "toeplab.nn.coefficient_cache"
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local overlay = require "toeplab.base.overlay"
local BatchNorm = require("toeplab.nn.norm").BatchNorm
local sequence = require "toeplab.nn.sequence"
local streams = require "toeplab.base.streams"

-- Returns the states in which the modules inside a module begin (nn/mixers/carry.lua), copied: a
-- list of {module=, carry=}.
local function states_of(module)
  local list = {}
  for _, entry in ipairs(module:modules()) do
    local carry = rawget(entry.module, "carry")
    if carry then list[#list + 1] = { module = entry.module, carry = overlay(carry) } end
  end
  return list
end

-- Lets modules begin in these states; closing the result ends that.
local function with_states(list)
  local before = {}
  for i, state in ipairs(list) do
    before[i] = rawget(state.module, "carry")
    rawset(state.module, "carry", state.carry)
  end
  return defer(function()
    for i, state in ipairs(list) do rawset(state.module, "carry", before[i]) end
  end)
end

-- Its arguments are the result, how to compute it again, and the tensors on which it depends. These
-- are inputs so that the pass knows their uses. They get their gradients inside, where operators
-- read the same tensors, so that all gradients are added in the order of a pass without recompute.
local stored = core.func { name = "recompute",
  forward = function(saved, y, call, ...)
    saved.call, saved.count = call, select("#", ...)
    for i, tensor in ipairs { ... } do saved[i] = tensor end -- which must not change until then
    return y
  end,
  backward = function(saved, dy)
    local call = saved.call
    if call.module.training ~= call.training then
      error(("recompute: %s changed between training and evaluation before the backward pass")
        :format(call.module.kind), 0)
    end
    core.recording(true)
    local restore <close> = with_states(call.states)
    local y = streams.replay(call.positions, sequence.with, call.group, BatchNorm.without_update,
      call.module, table.unpack(call.args, 1, call.args.n))
    call.args = nil
    if y:requires_grad() then y:backward(dy, true) end
    return table.unpack({}, 1, saved.count + 2)
  end }

-- Returns the tensors that require gradients among a module's parameters, its arguments and shared
-- coefficients.
local function dependencies(module, args, coefficients)
  local list = {}
  local function add(tensor)
    if tensor:requires_grad() then list[#list + 1] = tensor end
  end
  for _, p in ipairs(module:parameters()) do add(p.tensor) end
  for i = 1, args.n do
    if class.istensor(args[i]) then add(args[i]) end
  end
  for _, tensor in ipairs(coefficients) do add(tensor) end
  return list
end

-- tl.recompute(module, ...): returns module(...), a tensor. The tape stores only its arguments, and
-- the backward pass calls the module again, with the same random numbers. Results and gradients are
-- those of module(...), bit for bit, and batch norms update their running statistics once. No
-- argument may be closed or changed before the backward pass.
return function(module, ...)
  if not class.ismodule(module) then
    error(("recompute: takes a module, got a %s"):format(type(module)), 2)
  end
  if not core.recording() then return module(...) end
  local call = { module = module, args = table.pack(...), positions = streams.positions(),
    group = sequence.group(), training = module.training, states = states_of(module) }
  local y, coefficients = coefficient_cache.as_recorded(module, ...)
  if not class.istensor(y) then
    error(("recompute: %s returned a %s, not a tensor"):format(module.kind, type(y)), 0)
  end
  if y:requires_grad() then return y end -- it was not computed, as nothing is recorded
  return stored(y, call, table.unpack(dependencies(module, call.args, coefficients)))
end
