-- verify/module_case.lua: runs a module on a reference case that holds its parameters under
-- published names.

local distance = require("toeplab.verify.distance").distance

local module_case = {}

-- Returns our name of a published parameter. names is a list of {pattern, replacement} for
-- string.gsub, of which the first whose whole pattern matches is used; a replacement of false says
-- that the module has no such parameter. Without a match the name is ours.
local function ours(names, name)
  for _, pair in ipairs(names) do
    local pattern = "^" .. pair[1] .. "$"
    if name:find(pattern) then return pair[2] and (name:gsub(pattern, pair[2])) end
  end
  return name
end

-- Loads the group param of the case into module.
function module_case.load(case, module, names)
  local state = {}
  for _, name in ipairs(case:children "param") do
    local own = ours(names, name)
    if own then state[own] = case:read("param/" .. name) end
  end
  return module:load(state)
end

-- Compares a tensor with the dataset name of the case.
function module_case.compare(case, results, name, got)
  results[#results + 1] = { name = name, error = distance(got, case:read(name)) }
end

-- Compares the gradients of module's parameters with the group grad of the case.
function module_case.gradients(case, module, names, results)
  local named = module:named()
  for _, name in ipairs(case:children "grad") do
    local own = ours(names, name)
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
  module_case.gradients(case, module, names, results)
  return results
end

return module_case
