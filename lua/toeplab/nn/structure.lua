-- nn/structure.lua -- what a model is made of, remembered: whether it is Toeplab's own modules
-- alone, and whether it still is the same.

local class = require "toeplab.nn.class"

local structure = {}

local library = debug.getinfo(1, "S").source:match "^(.*)nn/structure%.lua$"

-- Whether f is a function of this library, or no function at all.
local function ours(f)
  return type(f) ~= "function" or debug.getinfo(f, "S").source:sub(1, #library) == library
end

-- What tells whether a module has changed. Plain tables do not: there it keeps what it has
-- computed.
local function tells(value)
  return type(value) ~= "table" or class.ismodule(value)
end

local function remembered(t)
  local copy, size = {}, 0
  for name, value in next, t do copy[name], size = value, size + 1 end
  return { of = t, copy = copy, size = size }
end

-- Whether a table has what it had. Asked of every module at every step, so it is quick.
local function unchanged(r)
  local copy, size = r.copy, 0
  for name, value in next, r.of do
    local was = copy[name]
    if was ~= value and (tells(value) or tells(was)) then return false end
    size = size + 1
  end
  return size == r.size
end

-- Whether module is of a kind of ours and has no functions of a script, init apart, which has done
-- its work. seen: kinds of which the answer is known.
local function own(module, seen)
  for _, t in ipairs { module, module.opt } do
    for name, value in next, t do
      if type(value) == "function" and name ~= "init" then return false end
    end
  end
  local kind = getmetatable(module)
  if seen[kind] == nil then
    seen[kind] = true
    for _, method in next, kind do seen[kind] = seen[kind] and ours(method) end
  end
  return seen[kind]
end

-- What a model is made of now; nil if not of our modules alone, or if it trains parameters that are
-- not among params.
function structure.of(model, params)
  if not class.ismodule(model) then return nil end
  local s, seen = { forwards = {}, tables = {}, trains = {} }, {}
  for i, entry in ipairs(model:modules()) do
    local module = entry.module
    if not own(module, seen) then return nil end
    s.forwards[i] = { module = module, forward = module.forward }
    s.tables[2 * i - 1], s.tables[2 * i] = remembered(module), remembered(module.opt)
  end
  s.params = table.move(params, 1, #params, 1, {})
  for _, p in ipairs(params) do s.trains[p] = p:requires_grad() end
  for _, p in ipairs(model:parameters()) do
    if s.trains[p.tensor] == nil then
      if p.tensor:requires_grad() then return nil end
      s.trains[p.tensor] = false
    end
  end
  return s
end

-- Whether a model and the list of its trained parameters are what they were.
function structure.same(s, params)
  for _, f in ipairs(s.forwards) do
    if f.module.forward ~= f.forward then return false end
  end
  for _, r in ipairs(s.tables) do
    if not unchanged(r) then return false end
  end
  if #params ~= #s.params then return false end
  for i, p in ipairs(params) do
    if p ~= s.params[i] then return false end
  end
  for t, was in next, s.trains do
    if t:requires_grad() ~= was then return false end
  end
  return true
end

return structure
