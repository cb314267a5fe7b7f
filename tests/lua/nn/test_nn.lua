-- test_nn.lua -- modules: registration, options, state, the tree of a print.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

-- ---- Modules ------------------------------------------------------------------------------------

test("a module registers assigned fields, in order, shared tensors once", function()
  local Pair = nn.class("Pair", { dim = "int" })
  function Pair:build(o)
    self.b = nn.Linear(o.dim, o.dim)
    self.a = nn.Linear(o.dim, o.dim, { bias = false })
    self.a.weight = self.b.weight
    self.scale = core.ones(o.dim)
    self.cache = { core.ones(3) }
    self:buffer("seen", core.zeros(1))
  end
  local pair = Pair { dim = 3 }
  local names = {}
  for i, p in ipairs(pair:parameters()) do names[i] = p.name end
  eq(names, { "b.weight", "b.bias", "scale" })
  local all, trained = pair:count()
  eq({ all, trained }, { 15, 12 })
  local keys = {}
  for name in pairs(pair:state()) do keys[#keys + 1] = name end
  table.sort(keys)
  eq(keys, { "b.bias", "b.weight", "scale", "seen" })
end)

test("refuses a plain table of modules and a method's name", function()
  local Bad = nn.class("Bad", {})
  function Bad:build() self.parts = { nn.Linear(1, 1) } end
  raises(Bad, "ModuleList")
  local Worse = nn.class("Worse", {})
  function Worse:build() self.count = core.ones(1) end
  raises(Worse, "a method of every module")
end)

test("options are strict, typed, and suggest", function()
  raises(nn.GTU, "GTU: unknown option 'exapnd'; did you mean 'expand'%?", { dim = 4, exapnd = 2 })
  raises(nn.GTU, "GTU: option 'dim' must be an integer, got 4.0", { dim = 4.0 })
  raises(nn.GTU, "GTU: option 'dim' is required: an integer")
  raises(nn.GTU, "GTU: option 'act' = 'sillu' is not one of .*silu.*; did you mean 'silu'%?",
    { dim = 4, act = "sillu" })
  raises(nn.Dropout, "Dropout: option 'p' = 1.5 must be between 0 and 0.999", 1.5)
  raises(nn.Linear, "Linear takes 2 values and a table of options, got 3", 1, 2, 3)
  raises(nn.Decay, "must be above 0 and at most 1$", 4, 1.01)
  raises(nn.TNO, "'decay' = 0 must be above 0 .*; max_lag = 1 computes what 0 would$", 4,
    { decay = 0 })
  raises(function() return nn.Linear(1, 2).opt.input end, "Linear has no option named 'input'")
  raises(function() return nn.Liner end, "nn has no 'Liner'; did you mean 'Linear'")
  for _, name in ipairs { "gate", "alibi_bias" } do -- whatever was asked for before
    package.loaded["toeplab.nn"] = nil
    t.ok(require("toeplab.nn")[name], name)
  end
  package.loaded["toeplab.nn"] = nn
  raises(function() return tl.modles end, "toeplab has no 'modles'; did you mean 'models'")
  raises(function() return nn.act.rellu end, "nn.act has no 'rellu'; did you mean 'relu'")
  eq(nn.GTU(4).opt.expand, 3.0)
end)

test("mistakes with tensors name what to write instead", function()
  local x = core.tensor { 1, 2, 3 }
  local function slip(code, want)
    raises(assert(load(code, "=slip", "t", { x = x })), "^slip:1: " .. want)
  end
  slip("x:sun()", "a tensor has no method 'sun'; did you mean 'sin' or 'sum'%?")
  slip("x:sume(1)", "a tensor has no method 'sume'; did you mean 'sum'%?")
  slip("return x.grads", "a tensor has no method 'grads'; did you mean 'grad'%?")
  slip("x[1] = 5", "nothing can be assigned to x%[1%] of a tensor: x:fill%(v%)")
  slip("x.width = 5", "nothing can be assigned to x%.width of a tensor")
  slip("return x[1]", "a tensor is not indexed as x%[1%]: x:get%(i, j%) reads an element")
  x:view(1, { 1 }):fill(5) -- what the messages advise
  eq({ x:get(2), x:sum():item() }, { 5, 9 })
end)

test("a shared configuration: each part takes what it declares; reports unread keys", function()
  local c = tl.options.shared("c", { inputs = 2, outputs = 3, lr = 1e-3, sped = 1 })
  eq(nn.Linear(c).weight:shape(), { 3, 2 })
  local unread = {}
  for name in pairs(c) do
    if not getmetatable(c).__read[name] then unread[#unread + 1] = name end
  end
  table.sort(unread)
  eq(unread, { "lr", "sped" })
  raises(function() return c.learning end, "c has no 'learning'")
end)

test("values over a shared configuration: only what comes from below counts as read", function()
  local c = tl.options.shared("c", { inputs = 2, outputs = 3, lr = 1e-3 })
  local over = tl.options.over(c, { outputs = 4, bias = false })
  local map = nn.Linear(over)
  eq(map.weight:shape(), { 4, 2 })
  eq(map.bias == nil or map.bias == false, true)
  eq(getmetatable(c).__read, { inputs = true })
  eq(over.lr, 1e-3)
  local names = {}
  for name, value in pairs(over) do names[#names + 1] = ("%s=%s"):format(name, value) end
  table.sort(names)
  eq(names, { "bias=false", "inputs=2", "lr=0.001", "outputs=4" })
  raises(function() return over.output end, "no 'output'; did you mean 'outputs'")
  raises(function() tl.options.over(c) end, "takes a configuration and a table of values")
end)

test("a field that was false first is registered once it is a tensor or a module", function()
  local Late = nn.class("Late", {})
  function Late:build()
    self.first = nn.Linear(2, 2)
    self.w, self.part = false, false
    self.w = nn.parameter(tl.ones(3))
    self.part = nn.Linear(1, 1)
  end
  local late, names = Late(), {}
  for i, p in ipairs(late:parameters()) do names[i] = p.name end
  eq(names, { "first.weight", "first.bias", "part.weight", "part.bias", "w" })
  eq(late:count(), 6 + 2 + 3)
  late.w = nn.parameter(tl.zeros(5))
  eq(late:count(), 6 + 2 + 5)
end)

test("a parameter that is replaced by a tensor without a gradient is an error", function()
  local map, x = nn.Linear(2, 2), random(3, 2)
  tl.optim.adam(map)
  map.weight = tl.no_grad(function() return map.weight - map.weight * 0.1 end)
  raises(map.parameters, "Linear: 'weight' was a parameter, and is now a tensor without a "
    .. "gradient, which is not trained; write weight:copy%(t%), or assign nn.parameter%(t%)", map)
  map.weight = nn.parameter(tl.ones(2, 2))
  eq({ map:count() }, { 6, 6 })
  map.weight:require_grad(false) -- frozen on purpose
  eq({ map:count() }, { 6, 2 })
  eq(map(x):shape(), { 3, 2 })
end)

test("errors of the engine name the module, and keep their status", function()
  local fine, e = pcall(nn.Sequential(nn.Linear(2, 2)), tl.ones(1, 3))
  eq({ fine, type(e), e.status }, { false, "table", "ESHAPE" })
  ok(tostring(e):find "%[1,3%].*\n  in Sequential%.1$", tostring(e))
  eq("so: " .. e, "so: " .. e.message)
end)

test("errors in a module name the line of its author's code", function()
  local Own = nn.class("Own", { dim = "int" }, { "dim" })
  function Own:build(o) self.up = nn.Linear(o.dim, 2) end
  function Own:forward(x)
    local y = self.up(x)
    return y
  end
  local line = debug.getinfo(Own.forward, "S").linedefined + 1
  local file = debug.getinfo(1, "S").source:sub(2)
  local wanted = ("%s:%d: linear: x is [1,4], w is [2,3], not [..,inputs] and [outputs,inputs]\n"
    .. "  in Own.up"):format(file, line)
  local fine, e = pcall(Own(3), tl.ones(1, 4))
  eq({ fine, e.message }, { false, wanted })
  -- A call that ends forward leaves no line of it, but that where it begins.
  function Own:forward(x) return self.up(x) end
  line = debug.getinfo(Own.forward, "S").linedefined
  fine, e = pcall(nn.Sequential(Own(3)), tl.ones(1, 4))
  eq({ fine, e.message }, { false, (wanted:gsub(":%d+:", (":%d:"):format(line)):gsub("in Own.up",
    "in Sequential.1.up")) })
end)

test("options are parsed from text by their types", function()
  local spec = { { "n", 3 }, { "x", 1.0 }, { "on", true }, { "s", "a" }, { "l", { 1 } } }
  local o = tl.options.parse("cmd", spec, { "n=5", "x=2", "on=false", "s=3", "l={0.9, 0.98}" })
  eq({ o.n, o.x, o.on, o.s, o.l }, { 5, 2.0, false, "3", { 0.9, 0.98 } })
  for text, want in pairs { ["7"] = { 7 }, ["[8,16]"] = { 8, 16 }, ["0.9,0.98"] = { 0.9, 0.98 } } do
    eq(tl.options.parse("cmd", spec, { "l=" .. text }).l, want)
  end
  raises(tl.options.parse, "option 'l' must be a table, got 'a,b'", "cmd", spec, { "l=a,b" })
  raises(tl.options.parse, "option 'n' must be an integer, got '5.5'", "cmd", spec, { "n=5.5" })
  raises(tl.options.parse, "unknown option 'm'", "cmd", spec, { "m=1" })
  raises(tl.options.parse, "cmd: n is given twice", "cmd", spec, { "n=1", "n=2" })
  raises(tl.options.parse, "must have the form name=value", "cmd", spec, { "n" })
end)

test("state and load: all problems in one message, nothing copied", function()
  local a, b = nn.Linear(2, 3), nn.Linear(2, 3)
  b:load(a:state())
  eq(b.weight, a.weight)
  ok(b.weight ~= a.weight, "load must copy")
  local before = b.bias:totable()
  local bad = { weight = core.zeros(3, 3), bais = core.zeros(3) }
  local message = select(2, pcall(b.load, b, bad))
  local wanted = { "missing: bias", "mismatch: weight is .*3,2.* given .*3,3", "unknown: bais" }
  for _, want in ipairs(wanted) do
    ok(message:find(want), message)
  end
  eq(b.bias, before)
end)

test("an inner error names its module", function()
  local s = nn.Sequential { nn.Linear(2, 3), nn.Sequential { nn.Linear(4, 5) } }
  raises(s, "in Sequential%.2%.1", core.zeros(1, 2))
end)

test("print shows a tree with counts, equal neighbours once", function()
  local s = nn.Sequential { nn.Linear(4, 4), nn.Linear(4, 4), nn.GLU(4) }
  local text = tostring(s)
  ok(text:find "^Sequential +100\n", text)
  ok(text:find "\n  1%-2: Linear 4 %-> 4 +40\n", text)
  ok(text:find "\n  3: GLU dim=4 +60\n", text)
end)

test("Sequential takes functions; train and eval reach every part", function()
  local s = nn.Sequential { nn.Linear(2, 2), core.relu, nn.Sequential { nn.Dropout(0.5) } }
  eq(s(random(3, 2)):shape(), { 3, 2 })
  s:eval()
  local x = core.ones(64, 2)
  eq(s(x), core.relu(s[1](x)))
  s:train()
  ok(s[3][1].training, "train must reach the dropout")
  raises(nn.Sequential, "value #1 is a number", { 3 })
end)

t.done()
