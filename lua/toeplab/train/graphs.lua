-- train/graphs.lua -- the forward and backward pass of a training step as a CUDA graph.
--
-- On a card the pass over inputs of the same shapes is captured after its second time and from then
-- on launched as a whole, so that neither Lua nor the driver spends time on each kernel. What a
-- graph does is what it did when it was captured: so it is used only for models made of Toeplab's
-- own modules, as long as they are what they were (structure.lua) and the numbers that they have
-- read of their tensors are (memo.lua). TOEPLAB_GRAPHS=off: no graphs.

local core = require "toeplab.core"
local memo = require "toeplab.nn.memo"
local streams = require "toeplab.base.streams"
local structure = require "toeplab.nn.structure"

local graphs = { on = os.getenv "TOEPLAB_GRAPHS" ~= "off" }

local KEPT = 4 -- graphs of an optimiser: each has memory of its own
local PAYS = 4 -- runs for which a capture was worth its time
local TRIES = 3 -- captures that did not pay; then there are no more
local excused = { EDEVICE = true, ENOMEM = true } -- errors: the pass is taken without a graph

-- optimiser -> {model=, count=, of = {key -> false (once), {never=} or what capture gives}}
local known = setmetatable({}, { __mode = "k" })

-- What of the inputs a graph is for.
local function key_of(inputs)
  local words = { core.precision() }
  for _, t in ipairs(inputs) do words[#words + 1] = tostring(t) end
  return table.concat(words, " ")
end

-- The streams of the names, those in use by now; nil if one is not.
local function named(names)
  local list, all = {}, {}
  for _, entry in ipairs(streams.list()) do all[entry.name] = entry.stream end
  for i, name in ipairs(names) do
    list[i] = all[name]
    if not list[i] then return nil end
  end
  return list
end

-- What pcall gives; nil and the error if a pass without a graph may do better; others are raised.
local function checked(ok, ...)
  if ok then return ... end
  local why = ...
  if type(why) == "table" and excused[why.status] then return nil, why end
  error(why, 0)
end

-- A graph of pass: {graph=, inputs=, names= (of streams), results=, grads=, runs=}, to which
-- capture adds parts= and asked=, renew wasted=. The parameters have no gradients.
local function captured(params, inputs, pass)
  local g = { inputs = {}, names = {}, grads = {}, runs = 0 }
  for i, t in ipairs(inputs) do g.inputs[i] = t:clone() end
  for i, entry in ipairs(streams.list()) do g.names[i] = entry.name end
  local graph, why = core.capture(named(g.names), function()
    g.results = pass(g.inputs)
    local all = table.move(g.results, 1, #g.results, 1, {})
    for i, p in ipairs(params) do
      g.grads[i] = p:grad() or false
      all[#all + 1] = g.grads[i] or nil
    end
    return all
  end)
  if not graph then error(why, 0) end
  g.graph = graph
  return g
end

-- The same of a pass that has just been taken, so that its plans and tables are made, and whose
-- gradients stay as they are; nil, with a warning if the device refuses.
local function capture(model, params, inputs, pass)
  local parts = structure.of(model, params)
  if not parts then return nil end
  local had = {}
  for i, p in ipairs(params) do
    had[i] = p:grad() or false
    p:set_grad(nil)
  end
  local asked, ok, g = memo.watch(captured, params, inputs, pass)
  for i, p in ipairs(params) do
    p:set_grad(had[i] or nil)
    if had[i] then had[i]:close() end -- the slot has it
  end
  local why
  g, why = checked(ok, g)
  if not g then
    warn("toeplab: a step is not a CUDA graph, so it is slower: ", tostring(why))
    return nil
  end
  g.parts, g.asked = parts, asked
  return g
end

-- Does what g has captured, of these inputs; false if it has to be captured again.
local function run(g, params, inputs)
  if not (structure.same(g.parts, params) and memo.same(g.asked)) then return false end
  local list = named(g.names)
  if not list then return false end
  for i, t in ipairs(inputs) do g.inputs[i]:copy(t) end
  if not checked(pcall(g.graph.run, g.graph, list)) then return false end
  for i, p in ipairs(params) do p:set_grad(g.grads[i] or nil) end
  core.tape_clear() -- as backward does
  g.runs = g.runs + 1
  return true
end

-- Ends a graph: its memory is free once nobody has its gradients.
local function close(g)
  g.graph:close()
  for _, list in ipairs { g.inputs, g.results, g.grads } do
    for _, t in ipairs(list) do
      if t then t:close() end
    end
  end
end

-- After a pass without a graph: captures one for the next of key, if that is expected to pay.
local function renew(all, key, model, params, inputs, pass)
  local g = all.of[key]
  if g == nil then -- once is no reason to expect it again
    all.of[key] = false
    return
  end
  if not g and all.count == KEPT then return end
  local wasted = 0
  if g then
    wasted = g.wasted + (g.runs < PAYS and 1 or 0)
    close(g)
    all.count = all.count - 1
  end
  g = wasted < TRIES and capture(model, params, inputs, pass) or { never = true }
  g.wasted = wasted
  all.of[key] = g
  if g.graph then all.count = all.count + 1 end
end

-- pass(inputs): a list of tensors, after going backward from them. It depends on the model, of
-- which opt trains the parameters (they have no gradient), and on inputs, a list of tensors, alone.
-- Its results, and the gradients, are valid until the next pass.
function graphs.run(model, opt, inputs, pass)
  local params = opt.params
  if not graphs.on or not params or not core.has_graphs() or not core.recording() then
    return pass(inputs)
  end
  local all = known[opt]
  if not all or all.model ~= model then
    all = { model = model, count = 0, of = {} }
    known[opt] = all
  end
  local key = key_of(inputs)
  local g = all.of[key]
  if g and g.never then return pass(inputs) end
  if g and run(g, params, inputs) then return g.results end
  local results = pass(inputs)
  renew(all, key, model, params, inputs, pass)
  return results
end

-- How many graphs an optimiser has, and how often they ran.
function graphs.count(opt)
  local count, runs = 0, 0
  for _, g in next, known[opt] and known[opt].of or {} do
    if g and g.graph then count, runs = count + 1, runs + g.runs end
  end
  return count, runs
end

return graphs
