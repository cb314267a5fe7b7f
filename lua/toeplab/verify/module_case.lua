-- verify/module_case.lua: runs a module on a reference case that holds its parameters under
-- published names.
--
-- The functions below take a list names of {pattern, replacement} for string.gsub; the first whose
-- whole pattern matches is used; the replacement false means that the module has no such parameter.
-- Without a match the name is ours. A function names.rename, from a published name to ours, may
-- replace the list. The optional field names.state holds tensors by our names that are added to
-- the case's, or replace them.

local core = require "toeplab.core"
local distance = require("toeplab.verify.distance").distance

local module_case = {}

-- Returns our name of a published parameter; nil if the module has none.
function module_case.ours(names, name)
  if names.rename then return names.rename(name) end
  for _, pair in ipairs(names) do
    local pattern = "^" .. pair[1] .. "$"
    if name:find(pattern) then return pair[2] and (name:gsub(pattern, pair[2])) end
  end
  return name
end

-- Returns the same as a function of the name.
function module_case.renaming(names)
  return function(name) return module_case.ours(names, name) end
end

-- Returns t in the shape of `like` if the two differ by sizes of 1 only; else t.
local function fitted(t, like)
  local function plain(shape)
    return (table.concat(shape, " "):gsub("%f[%d]1%f[%D]", ""):gsub(" +", " "):gsub("^ ", ""))
  end
  if like and plain(t:shape()) == plain(like:shape()) then return t:reshape(like:shape()) end
  return t
end

-- Loads the group param of the case into module.
function module_case.load(case, module, names)
  local state, own_state = {}, module:state()
  for _, name in ipairs(case:children "param") do
    local own = module_case.ours(names, name)
    if own then state[own] = fitted(case:read("param/" .. name), own_state[own]) end
  end
  for name, t in pairs(names.state or {}) do state[name] = t end
  return module:load(state)
end

-- Returns a case like case in which each two datasets NAME_real and NAME_imag, where pattern
-- matches the end of NAME, are one dataset NAME with a last axis of 2.
function module_case.joined(case, pattern)
  local proxy = { attributes = case.attributes }
  function proxy:children(group)
    local names = {}
    for _, name in ipairs(case:children(group)) do
      local stem = name:match("^(.*" .. pattern .. ")_real$")
      if stem or not name:find(pattern .. "_imag$") then names[#names + 1] = stem or name end
    end
    return names
  end
  function proxy:read(name)
    if not name:find(pattern .. "$") then return case:read(name) end
    local re, im = case:read(name .. "_real"), case:read(name .. "_imag")
    local shape = re:shape()
    shape[#shape + 1] = 1
    return core.concat({ re:reshape(shape), im:reshape(shape) }, #shape)
  end
  return proxy
end

-- Compares a tensor with the dataset name of the case.
function module_case.compare(case, results, name, got)
  results[#results + 1] = { name = name, error = distance(got, case:read(name)) }
end

-- Compares the gradients of module's parameters with the group grad of the case. ours: a function
-- from a published name to ours.
function module_case.gradients(case, module, ours, results)
  local named = module:named()
  for _, name in ipairs(case:children "grad") do
    local own = ours(name)
    if own then
      local parameter = named[own]
      local got = parameter and parameter:grad()
      results[#results + 1] = { name = "grad " .. name, grad = true,
        error = got and distance(got, case:read("grad/" .. name)) or math.huge }
    end
  end
end

-- Runs module(x, ...) with the parameters of the case, backpropagates dy, and returns the results
-- for y, dx and each gradient.
function module_case.run(case, module, names, ...)
  module_case.load(case, module, names)
  local x, results = case:read("x"):require_grad(), {}
  local y = module(x, ...);
  (y * case:read "dy"):sum():backward()
  module_case.compare(case, results, "y", y)
  module_case.compare(case, results, "dx", x:grad())
  module_case.gradients(case, module, module_case.renaming(names), results)
  return results
end

return module_case
