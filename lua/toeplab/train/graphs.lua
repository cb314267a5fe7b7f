-- train/graphs.lua: captures the forward and backward pass of a training step as a CUDA graph, if
-- the caller requests it (tl.train.graph). A graph launches the whole pass at once, so that neither
-- Lua nor the driver spends time on each kernel.
--
-- A graph repeats the captured pass, so the caller promises that the pass depends only on its
-- inputs, on tensors and on random streams, and on nothing that Lua code decides at each step. The
-- pass over inputs of the same shapes is captured after its second run. It is captured again when a
-- field or an option of a module changes, or the set of trained parameters, or the value of a fixed
-- one, because modules read such values (a decay) to choose kernels.

local core = require "toeplab.core"
local class = require "toeplab.nn.class"
local streams = require "toeplab.base.streams"

local MOST = 4 -- graphs per optimiser, as each has its own memory
local PAYS = 4 -- runs of a graph that make its capture worthwhile
local TRIES = 3 -- captures that did not pay, after which an input shape is not captured again
-- After these errors the pass runs without a graph.
local excused = { EDEVICE = true, ENOMEM = true }

-- ---- Whether a model has changed ----------------------------------------------------------------

-- Returns whether a field's new value may change what a module computes. Plain tables are caches.
local function counts(value)
  return type(value) ~= "table" or class.ismodule(value)
end

-- Records what a captured pass depends on besides the values of its inputs and trained parameters.
-- Returns nil if the model trains parameters that are not in params, because the graph would not
-- set their gradients.
local function snapshot(model, params)
  local s = { fields = {}, sizes = {}, trained = {} }
  s.params = table.move(params, 1, #params, 1, {})
  for _, p in ipairs(params) do s.trained[p] = p:requires_grad() or p:version() end
  for _, p in ipairs(model:parameters()) do
    local t = p.tensor
    if s.trained[t] == nil and t:requires_grad() then return nil end
    s.trained[t] = s.trained[t] or t:version()
  end
  for _, entry in ipairs(model:modules()) do
    for _, t in ipairs { entry.module, entry.module.opt, getmetatable(entry.module) } do
      local copy, size = {}, 0
      for name, value in next, t do copy[name], size = value, size + 1 end
      s.fields[t], s.sizes[t] = copy, size
    end
  end
  return s
end

-- Returns whether a snapshot still holds. It compares every field of every module at every step, so
-- it is written for speed.
local function unchanged(s, params)
  for t, was in next, s.trained do
    if (t:requires_grad() or t:version()) ~= was then return false end
  end
  if #params ~= #s.params then return false end
  for i, p in ipairs(params) do
    if p ~= s.params[i] then return false end
  end
  for t, copy in next, s.fields do
    local size = 0
    for name, value in next, t do
      local was = copy[name]
      if was ~= value and (counts(value) or counts(was)) then return false end
      size = size + 1
    end
    if size ~= s.sizes[t] then return false end
  end
  return true
end

-- ---- One graph ----------------------------------------------------------------------------------

-- Returns the key of the graph for these inputs: precision, types and shapes.
local function key_of(inputs)
  local words = { core.precision() }
  for _, t in ipairs(inputs) do words[#words + 1] = tostring(t) end
  return table.concat(words, " ")
end

-- Returns the random streams of these names; nil if one of them is not in use.
local function named_streams(names)
  local list, all = {}, {}
  for _, entry in ipairs(streams.list()) do all[entry.name] = entry.stream end
  for i, name in ipairs(names) do
    list[i] = all[name]
    if not list[i] then return nil end
  end
  return list
end

-- Returns the results of a pcall; nil and the error if the pass may succeed without a graph. Raises
-- other errors.
local function checked(ok, ...)
  if ok then return ... end
  local why = ...
  if type(why) == "table" and excused[why.status] then return nil, why end
  error(why, 0)
end

-- Captures a pass and returns {graph=, inputs=, names= (of streams), results=, grads=, runs=}. The
-- parameters must not have gradients.
local function captured(params, inputs, pass)
  local g = { inputs = {}, names = {}, grads = {}, runs = 0 }
  for i, t in ipairs(inputs) do g.inputs[i] = t:clone() end
  for i, entry in ipairs(streams.list()) do g.names[i] = entry.name end
  local graph, why = core.capture(named_streams(g.names), function()
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

-- Captures a pass that has just run, so that its plans and tables exist, and preserves the
-- gradients of that run. Returns nil, with a warning, if the device refuses.
local function capture(self, inputs, pass)
  local model, had = snapshot(self.model, self.params), {}
  if not model then return nil end
  for i, p in ipairs(self.params) do
    had[i] = p:grad() or false
    p:set_grad(nil)
  end
  local ok, g = pcall(captured, self.params, inputs, pass)
  for i, p in ipairs(self.params) do
    p:set_grad(had[i] or nil)
    if had[i] then had[i]:close() end -- the parameter holds its own reference
  end
  local why
  g, why = checked(ok, g)
  if g then
    g.model = model
  else
    warn("toeplab: this step runs without a CUDA graph, and so slower: ", tostring(why))
  end
  return g
end

-- Runs graph g on these inputs; returns false if it has to be captured again.
local function replay(self, g, inputs)
  local list = unchanged(g.model, self.params) and named_streams(g.names)
  if not list then return false end
  for i, t in ipairs(inputs) do g.inputs[i]:copy(t) end
  if not checked(pcall(g.graph.run, g.graph, list)) then return false end
  for i, p in ipairs(self.params) do p:set_grad(g.grads[i] or nil) end
  core.tape_clear() -- as backward does
  g.runs = g.runs + 1
  return true
end

-- Closes a graph. Its memory is freed once its gradients are freed.
local function close(g)
  g.graph:close()
  for _, list in ipairs { g.inputs, g.results, g.grads } do
    for _, t in ipairs(list) do
      if t then t:close() end
    end
  end
end

-- ---- The graphs of an optimiser -----------------------------------------------------------------

local Graphs = {}
Graphs.__index = Graphs

-- Returns the graphs of a model and its trained params. The field of maps a key to false (the shape
-- was seen once), {never=true}, or the result of capture.
local function new(model, params)
  return setmetatable({ model = model, params = params, count = 0, of = {} }, Graphs)
end

-- Captures a graph for the next pass of key if that is expected to pay.
local function renew(self, key, inputs, pass)
  local g = self.of[key]
  if g == nil then -- a shape seen once may not recur
    self.of[key] = false
    return
  end
  if not g and self.count == MOST then return end
  local wasted = 0
  if g then
    wasted = g.wasted + (g.runs < PAYS and 1 or 0)
    close(g)
    self.count = self.count - 1
  end
  g = wasted < TRIES and capture(self, inputs, pass) or { never = true }
  g.wasted = wasted
  self.of[key] = g
  if g.graph then self.count = self.count + 1 end
end

-- Calls pass(inputs), or launches its graph, and returns its list of results. pass also computes
-- the gradients; the parameters must not have any before. Results and gradients are valid until the
-- next call.
function Graphs:run(inputs, pass)
  if not core.has_graphs() or not core.recording() then return pass(inputs) end
  local key = key_of(inputs)
  local g = self.of[key]
  if g and g.never then return pass(inputs) end
  if g and replay(self, g, inputs) then return g.results end
  local results = pass(inputs)
  renew(self, key, inputs, pass)
  return results
end

-- Returns how many graphs there are, and how often they ran.
function Graphs:counts()
  local runs = 0
  for _, g in next, self.of do runs = runs + (g and g.runs or 0) end
  return self.count, runs
end

return { new = new }
