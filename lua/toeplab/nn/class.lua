-- nn/class.lua: defines Module, the base of all layers and models, and class, which declares new
-- kinds of modules.
--
--   local Gate = class("Gate", { dim = "int", act = "silu" }, { "dim" })
--   function Gate:build(o) self.w = nn.Linear(o.dim, o.dim) end
--   function Gate:forward(x) return nn.act[self.opt.act](self.w(x)) * x end
--   local g = Gate(64, { act = "relu" })  ...  y = g(x)
--
-- Assignment registers, as in PyTorch: a tensor assigned to a field of a module becomes its
-- parameter, trained if it requires a gradient, else fixed; a module becomes a submodule. Tensors
-- inside a plain table are not registered.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local meanings = require "toeplab.nn.meanings"
local options = require "toeplab.base.options"
local tree = require "toeplab.nn.tree"

local Module = {}

local tensor_meta = getmetatable(core.zeros(1))

local function istensor(v)
  return type(v) == "userdata" and getmetatable(v) == tensor_meta
end

local function ismodule(v)
  return type(v) == "table" and (getmetatable(v) or {}).__module == true
end

-- Returns whether v is a class that class() returned, rather than an instance of one.
local function isclass(v)
  return type(v) == "table" and rawget(v, "__module") == true
end

-- __newindex of modules: registers parameters and submodules in the order of their assignment.
local function register(self, name, value)
  if Module[name] ~= nil then
    error(("%s: a field cannot be called '%s', which is a method of every module"):format(
      self.kind, name), 2)
  end
  if type(value) == "table" and not getmetatable(value) and ismodule(value[1]) then
    error(("%s: '%s' is a plain table of modules, which would not be trained; make it an "
      .. "nn.ModuleList"):format(self.kind, name), 2)
  end
  if istensor(value) or ismodule(value) then
    local order = rawget(self, "_order")
    order[#order + 1] = name
    if ismodule(value) and not rawget(value, "_name") then
      rawset(value, "_name", tostring(name))
    end
  end
  rawset(self, name, value)
end

-- Handles an error in a module, while the functions that led to it are known.
local function locate(message)
  if type(message) == "table" and message.status then -- an error object of the engine
    message.message = errors.located(message.message)
  end
  return type(message) == "string" and errors.located(message) or message
end

local settled = nil -- the last message whose place is final: its module is not the library's

-- Returns a message with the line where the module's forward begins, if forward has passed the call
-- that failed on to Lua (return f(x)), which then knows no line of it.
local function with_forward(self, message)
  if message == settled then return message end
  local own = errors.own_file(self.forward)
  if not own then return message end
  local info = debug.getinfo(self.forward, "S")
  local path, line, rest = message:match "^([^\n:]*):(%d+): (.*)$"
  line = tonumber(line)
  local inside = path == own and line >= info.linedefined and line <= info.lastlinedefined
  settled = rest and not inside and ("%s:%d: %s"):format(own, info.linedefined, rest) or message
  return settled
end

-- Appends to an error message the path of the module that raised it:
-- "... \n  in TnnLM.layers.3.token.u".
local function with_module(self, message)
  if type(message) == "table" and message.status then
    message.message = with_module(self, message.message)
  end
  if type(message) ~= "string" then return message end
  local place = rawget(self, "_name") or self.kind
  local text, inner = message:match "^(.*)\n  in ([^\n]*)$"
  return ("%s\n  in %s"):format(with_forward(self, text or message), inner and place .. "." .. inner
    or place)
end

-- Whether a profiler that reads NVTX is attached, which sets this variable. Each call of a module
-- is then a range on its timeline.
local profiled = os.getenv "NVTX_INJECTION64_PATH" ~= nil

local function results(self, ok, ...)
  if profiled then core.profiler_range() end
  if ok then return ... end
  error(with_module(self, (...)), 0)
end

local function call(self, ...)
  if profiled then
    local name = rawget(self, "_name")
    core.profiler_range(name and ("%s %s"):format(self.kind, name) or self.kind)
  end
  return results(self, xpcall(self.forward, locate, self, ...))
end

-- Returns whether v is an option table: plain, resolved by options.check, or a shared
-- configuration.
local function isoptions(v)
  if type(v) ~= "table" or ismodule(v) then return false end
  return not getmetatable(v) or options.is_resolved(v) or options.is_shared(v)
end

-- Splits constructor arguments into the option table, the options given by position, and a list of
-- the remaining values of a variadic class.
local function arguments(class, ...)
  local args, count = { ... }, select("#", ...)
  local given = nil
  if count > 0 and isoptions(args[count]) then
    given, count = args[count], count - 1
  end
  local over, rest = {}, {}
  for i = 1, count do
    local name = class.positional[i]
    if name then over[name] = args[i] else rest[#rest + 1] = args[i] end
  end
  if #rest > 0 and not class.variadic then
    error(("%s takes %d values and a table of options, got %d values"):format(
      class.kind, #class.positional, count), 0)
  end
  if class.variadic and given and not getmetatable(given) then
    local named = {}
    for key, value in pairs(given) do
      if math.type(key) ~= "integer" then named[key] = value end
    end
    table.move(given, 1, #given, #rest + 1, rest)
    given = named
  end
  return given, over, rest
end

local function construct(class, ...)
  local given, over, rest = arguments(class, ...)
  local opt = options.check(class.kind, class.spec, given, over)
  local self = setmetatable({ _order = {}, _buffers = {}, _trained = {}, training = true,
    opt = opt }, class)
  self:build(opt, table.unpack(rest))
  return self
end

-- Declares and returns a new kind of module. spec declares its options (base/options.lua).
-- positional lists the options that can be given by position, e.g. {"inputs", "outputs"}; after a
-- final "...", further values and the array part of the option table are passed to build. The class
-- defines build(o, ...), which creates parameters and submodules, forward(x, ...), and optionally
-- brief(), whose text print(model) shows for the module. about is the description for the manual
-- and editors: the shapes of forward's input and output, and one sentence, e.g. "x [b,n,dim] ->
-- [b,n,dim]: a gate".
local function class(kind, spec, positional, about)
  local new = { kind = kind, spec = options.set(spec or {}), about = about, __module = true }
  for name, field in pairs(new.spec.fields) do field.help = field.help or meanings[name] end
  new.positional = positional or {}
  if new.positional[#new.positional] == "..." then
    new.positional, new.variadic = table.move(new.positional, 1, #new.positional - 1, 1, {}), true
  end
  new.__index, new.__newindex, new.__call, new.__tostring = new, register, call, tree.text
  new.__name = kind
  return setmetatable(new, { __index = Module, __call = construct })
end

function Module:build() end

function Module:forward()
  error(self.kind .. " has no forward: define function " .. self.kind .. ":forward(x)", 0)
end

-- Registers a tensor that is saved with the module but is neither trained nor counted as a
-- parameter, such as the running statistics of a batch norm.
function Module:buffer(name, tensor)
  self._buffers[name] = true
  self[name] = tensor
end

-- Registers tensors and modules that replaced another value of a field, because Lua calls
-- __newindex for absent fields only. Sorts them by name, as their order is unknown.
local function register_replaced(self)
  local known, names = {}, {}
  for _, name in ipairs(self._order) do known[name] = true end
  for name, value in next, self do
    if not known[name] and (istensor(value) or ismodule(value)) then names[#names + 1] = name end
  end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, name in ipairs(names) do register(self, name, rawget(self, name)) end
end

-- Raises if a parameter that is trained was replaced by a tensor without a gradient, which no
-- optimiser would train.
local function check_replaced(self, name, tensor)
  local before = self._trained[name]
  if rawequal(before, tensor) then return end
  if tensor:requires_grad() then
    self._trained[name] = tensor
  elseif before and before:requires_grad() and not self._buffers[name] then
    error(("%s: '%s' was a parameter, and is now a tensor without a gradient, which is not "
      .. "trained; write %s:copy(t), or assign nn.parameter(t)"):format(self.kind, name, name), 0)
  end
end

-- Returns the module's own tensors and submodules in the order of their assignment: an array of
-- {name=, value=}.
function Module:fields()
  local list = {}
  register_replaced(self)
  for _, name in ipairs(self._order) do
    local value = rawget(self, name)
    if istensor(value) then check_replaced(self, name, value) end
    if istensor(value) or ismodule(value) then list[#list + 1] = { name = name, value = value } end
  end
  return list
end

local function join(prefix, name)
  return prefix == "" and tostring(name) or prefix .. "." .. name
end

local function walk(module, prefix, seen, visit)
  if seen[module] then return end
  seen[module] = true
  visit(module, prefix)
  for _, field in ipairs(module:fields()) do
    if ismodule(field.value) then
      walk(field.value, join(prefix, field.name), seen, visit)
    end
  end
end

-- Returns this module and all modules below it, depth first: an array of {name="layers.1",
-- module=}. A module that is used in two places is listed once, under its first name.
function Module:modules()
  local list = {}
  walk(self, "", {}, function(module, name) list[#list + 1] = { name = name, module = module } end)
  return list
end

local function gather(module, prefix, buffers, seen, list)
  if seen[module] then return list end
  seen[module] = true
  for _, field in ipairs(module:fields()) do
    local value, name = field.value, join(prefix, field.name)
    if ismodule(value) then
      gather(value, name, buffers, seen, list)
    elseif not seen[value] and (buffers or not module._buffers[field.name]) then
      seen[value] = true
      list[#list + 1] = { name = name, tensor = value }
    end
  end
  return list
end

-- Returns the parameters in order, fixed ones included: an array of
-- {name="layers.1.token.u.weight", tensor=}. A tensor that is used in two places is listed once,
-- under its first name. The tensors still belong to the module.
function Module:parameters()
  return gather(self, "", false, {}, {})
end

-- Returns the parameters as a table name -> tensor.
function Module:named()
  local named = {}
  for _, p in ipairs(self:parameters()) do named[p.name] = p.tensor end
  return named
end

-- Returns the number of parameters (elements) and how many of them are trained.
function Module:count()
  local all, trained = 0, 0
  for _, p in ipairs(self:parameters()) do
    all = all + p.tensor:numel()
    if p.tensor:requires_grad() then trained = trained + p.tensor:numel() end
  end
  return all, trained
end

-- Returns the FLOP of a forward pass over one sequence of n positions, and how many numbers the
-- tape stores for it, both floats, by formula: linear maps count 2 FLOP per weight and position,
-- and classes add own_cost(n) -> FLOP, numbers, without their submodules. Class.apart names the
-- submodules that are not applied once to each position; their cost is part of own_cost. The rest,
-- such as norms and activations, is not counted.
function Module:cost(n)
  local flop, numbers = 0.0, 0.0
  if self.own_cost then flop, numbers = self:own_cost(n) end
  for _, field in ipairs(self:fields()) do
    if ismodule(field.value) and not (self.apart and self.apart[field.name]) then
      local more_flop, more_numbers = field.value:cost(n)
      flop, numbers = flop + more_flop, numbers + more_numbers
    end
  end
  return flop, numbers
end

-- Switches this module and all below it to training mode, or with on = false to evaluation mode.
-- Dropout and batch norm behave differently in the two. Returns the module.
function Module:train(on)
  for _, entry in ipairs(self:modules()) do rawset(entry.module, "training", on ~= false) end
  return self
end

-- Switches to evaluation mode; same as train(false).
function Module:eval()
  return self:train(false)
end

-- Returns parameters and buffers as a table name -> tensor: the tensors themselves, not copies.
function Module:state()
  local state = {}
  for _, p in ipairs(gather(self, "", true, {}, {})) do state[p.name] = p.tensor end
  return state
end

local function same(a, b)
  return table.concat(a:shape(), ",") == table.concat(b:shape(), ",") and a:type() == b:type()
end

-- Copies the tensors of state (name -> tensor) into the parameters and buffers of the same names.
-- Raises one error that lists all missing, unknown and mismatched names, before it copies anything.
-- Returns the module.
function Module:load(state)
  local own, problems = self:state(), {}
  for name, t in pairs(own) do
    if not state[name] then
      problems[#problems + 1] = ("missing: %s %s"):format(name, tostring(t))
    elseif not same(t, state[name]) then
      problems[#problems + 1] = ("mismatch: %s is %s, given %s"):format(
        name, tostring(t), tostring(state[name]))
    end
  end
  for name in pairs(state) do
    if not own[name] then problems[#problems + 1] = "unknown: " .. tostring(name) end
  end
  if #problems > 0 then
    table.sort(problems)
    error(("%s cannot load this state:\n  %s"):format(self.kind, table.concat(problems, "\n  ")), 2)
  end
  for name, t in pairs(own) do t:copy(state[name]) end
  return self
end

return { class = class, Module = Module, ismodule = ismodule, istensor = istensor,
  isclass = isclass }
