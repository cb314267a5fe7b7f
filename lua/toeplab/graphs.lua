-- graphs.lua -- the forward and backward pass of a training step as a CUDA graph.
--
-- On a card the pass over inputs of the same shapes is captured after its second time and from then
-- on launched as a whole, so that neither Lua nor the driver spends time on each kernel. What a
-- graph does is what it did when it was captured: so it is used only for models made of Toeplab's
-- own modules, whose passes depend on nothing but shapes. TOEPLAB_GRAPHS=off: no graphs.

local core = require "toeplab.core"
local class = require "toeplab.class"
local streams = require "toeplab.streams"

local graphs = { on = os.getenv "TOEPLAB_GRAPHS" ~= "off" }

local KEPT = 4 -- graphs of a model: each has its own memory
local cannot = { EDEVICE = true, ENOMEM = true } -- what a step without a graph may still do

-- model -> {own=, count=, key -> {inputs=, graph=, results=, grads=}, {why=} or false}
local known = setmetatable({}, { __mode = "k" })

local function has_function(options)
  for name, value in pairs(options) do -- what init does is done
    if type(value) == "function" and name ~= "init" then return true end
  end
  return false
end

-- Whether a model is made of Toeplab's own modules, and nobody gave them functions.
local function own(model)
  if not class.ismodule(model) then return false end
  for _, entry in ipairs(model:modules()) do
    local module = entry.module
    if module.scripted or has_function(module.opt) or has_function(module) then return false end
  end
  return true
end

-- What a graph is for: the shapes of its inputs, the precision, and how many parameters are
-- trained.
local function key_of(inputs, params)
  local words, trained = { core.precision() }, 0
  for _, t in ipairs(inputs) do words[#words + 1] = tostring(t) end
  for _, p in ipairs(params) do
    if p:requires_grad() then trained = trained + 1 end
  end
  words[#words + 1] = trained
  return table.concat(words, " ")
end

-- The streams of the names.
local function named(names)
  local list = {}
  for i, name in ipairs(names) do list[i] = streams.get(name) end
  return list
end

-- Captures pass for inputs of the shapes of these, which it has just taken: so its plans and tables
-- are made.
local function capture(params, inputs, pass)
  local g, had, results = { inputs = {}, names = {}, grads = {} }, {}, nil
  for i, t in ipairs(inputs) do g.inputs[i] = t:clone() end
  for i, entry in ipairs(streams.list()) do g.names[i] = entry.name end
  for i, p in ipairs(params) do
    had[i] = p:grad()
    p:set_grad(nil)
  end
  local graph, why = core.capture(named(g.names), function() results = pass(g.inputs) end)
  for i, p in ipairs(params) do
    g.grads[i] = graph and p:grad()
    p:set_grad(had[i])
  end
  g.graph, g.results = graph, results
  if graph then return g end
  if not (type(why) == "table" and cannot[why.status]) then error(why, 0) end
  warn("toeplab: a step is not a CUDA graph, so it is slower: ", tostring(why))
  return { why = tostring(why) }
end

-- Does what g has captured, of these inputs; false if it has to be captured again.
local function run(g, params, inputs)
  for i, t in ipairs(inputs) do g.inputs[i]:copy(t) end
  if not g.graph:run(named(g.names)) then return false end
  for i, p in ipairs(params) do p:set_grad(g.grads[i]) end
  return true
end

-- pass(inputs): a list of tensors, after going backward from them. It depends on the model, of
-- which opt trains the parameters (they have no gradient), and on inputs, a list of tensors, alone.
-- Its results are valid until the next pass of these shapes.
function graphs.run(model, opt, inputs, pass)
  local params = opt.params
  if not core.has_graphs() or not params or not graphs.on then return pass(inputs) end
  local all = known[model]
  if not all then
    all = { own = own(model), count = 0 }
    known[model] = all
  end
  local key = all.own and key_of(inputs, params)
  local g = key and all[key]
  if g and g.graph and run(g, params, inputs) then return g.results end
  local results = pass(inputs)
  if not key then return results end
  if g == nil then
    all[key] = false -- once is no reason to expect it again
  elseif g and g.graph or not g and all.count < KEPT then
    all.count = all.count + (g and 0 or 1)
    all[key] = capture(params, inputs, pass)
  end
  return results
end

-- How many graphs a model has.
function graphs.count(model)
  local count = 0
  for _, g in pairs(known[model] or {}) do
    if type(g) == "table" and g.graph then count = count + 1 end
  end
  return count
end

return graphs
