-- nn/container.lua: defines Sequential and ModuleList, whose submodules are named by their number.

local class = require("toeplab.nn.class")

-- Applies modules or functions one after the other:
--   nn.Sequential { nn.Linear(4, 8), tl.relu, nn.Linear(8, 2) }
local Sequential = class.class("Sequential", {}, { "..." }, "calls its parts one after the other")

local function callable(v)
  return type(v) == "function" or class.ismodule(v)
end

function Sequential:build(_, ...)
  self.steps = select("#", ...)
  for i, step in ipairs { ... } do
    if not callable(step) then
      error(("Sequential: value #%d is a %s, not a module or a function"):format(i, type(step)), 0)
    end
    self[i] = step
  end
end

function Sequential:forward(x)
  for i = 1, self.steps do x = self[i](x) end
  return x
end

-- Holds a list of submodules: self.layers = nn.ModuleList {...}, then self.layers[1].
local ModuleList = class.class("ModuleList", {}, { "..." },
  "a list of modules, which are parts of the module that has it")

function ModuleList:build(_, ...)
  for _, module in ipairs { ... } do self:append(module) end
end

function ModuleList:append(module)
  if not class.ismodule(module) then
    error(("ModuleList: value #%d is a %s, not a module"):format(#self + 1, type(module)), 0)
  end
  self[#self + 1] = module
end

-- Iterates over the modules in order: for i, layer in self.layers:each() do ... end
function ModuleList:each()
  return ipairs(self)
end

return { Sequential = Sequential, ModuleList = ModuleList }
