-- test_reach.lua: which edits change the hash of the code that a trial function can reach, and that
-- this hash is the same in each process.
local experiment = require "toeplab.trials.experiment"
local t = require "harness"

local script = [[
local tl = require "toeplab"
%s
return tl.experiment "reach" {
  fixed = { steps = 1 },
  trial = function(t, c) return %s end,
}
]]

-- Returns what the trial function of a script reaches. modules: name -> text.
local function reach_of(folder, head, expression, modules)
  for name, text in pairs(modules or {}) do t.write(folder .. "/" .. name .. ".lua", text) end
  t.write(folder .. "/x.lua", script:format(head, expression))
  return experiment.load(folder .. "/x.lua").reach
end

-- An edit: its name, what the trial function returns, the lines in front of the experiment and
-- those after the edit, and the parts that change or are new (nil: none).
local edits = {
  -- Constants, which Lua folds into the functions that use them.
  { "a number", "K", "local K <const> = 3", "local K <const> = 4", "value K" },
  { "a string", "K", "local K <const> = 'a'", "local K <const> = 'b'", "value K" },
  { "a long string", "K", "local K <const> = [[a]]", "local K <const> = [[b]]", "value K" },
  { "a boolean", "K", "local K <const> = true", "local K <const> = false", "value K" },
  { "nil", "K", "local K <const> = nil", "local K <const> = false", "value K" },
  { "an expression", "K", "local K <const> = -(2 * 3) // ~1", "local K <const> = -(2 * 4) // ~1",
    "value K" },
  { "a constant of a constant", "K", "local J <const> = 3 local K <const> = J * 2",
    "local J <const> = 4 local K <const> = J * 2", "value J" },
  { "a constant of a helper", "f(1)", "local K <const> = 3 local function f(x) return x * K end",
    "local K <const> = 4 local function f(x) return x * K end", "value K" },
  { "the last of two names", "K",
    "local J <const>, K <const> = { f = function() return 1, 2 end }, 3",
    "local J <const>, K <const> = { f = function() return 1, 2 end }, 4", "value K" },
  { "the first of two names", "J", "local J <const>, K <const> = 3, 3",
    "local J <const>, K <const> = 4, 3", "value J" },
  { "an attribute with blanks and a comment", "K", "local K < const --[[ a ]] > = 3",
    "local K<const> = 4", "value K" },
  { "a constant that is hidden", "K", "local K <const> = 3 do local K <const> = 4 end",
    "local K <const> = 5 do local K <const> = 4 end", "value K" },
  { "a constant of a factory", "f(1)",
    "local function make() local K <const> = 3\nreturn function() return K end end local f=make()",
    "local function make() local K <const> = 4\nreturn function() return K end end local f=make()",
    "value K" },
  { "a constant in a loop", "f()", "local f repeat local K <const> = 3 f = function() return K end "
    .. "until K", "local f repeat local K <const> = 4 f = function() return K end until K",
    "value K" },
  { "a constant of a function in until", "f()", "local f repeat local K <const> = 3 "
    .. "until (function() f = function() return K end return true end)()", "local f repeat "
    .. "local K <const> = 4 until (function() f = function() return K end return true end)()",
    "value K" },
  { "constants of two functions of equal text on a line", "f() + g()", "local f, g "
    .. "do local K <const> = 1 f = function() return K end end "
    .. "do local K <const> = 2 g = function() return K end end", "local f, g "
    .. "do local K <const> = 1 f = function() return K end end "
    .. "do local K <const> = 3 g = function() return K end end", "value K'" },
  { "the layout of a constant", "K", "local K <const> = 2*3", "local K <const> =\n2 * 3 -- six" },
  { "a constant that is not used", "c.K", "local K <const> = 3", "local K <const> = 4" },
  { "a constant that is a field elsewhere", "{ K = 1 }", "local K <const> = 3",
    "local K <const> = 4" },
  { "a constant of another block", "K", "do local K <const> = 3 end local K = 5",
    "do local K <const> = 4 end local K = 5" },
  { "a constant of another function", "f(1)",
    "local function g() local K <const> = 3 return K end\nlocal function f(K) return K end",
    "local function g() local K <const> = 4 return K end\nlocal function f(K) return K end" },
  { "a table", "K", "local K <const> = { 3 }", "local K <const> = { 4 }", "table K" },
  { "what Lua does not fold", "K", "local K <const> = 1 / 0", "local K <const> = -1 / 0",
    "value K" },
  { "a call", "K", "local K <const> = ('a'):rep(3)", "local K <const> = ('a'):rep(3 + 0)" },

  -- Lua's own tables.
  { "a function in math", "math.clamp(1)", "function math.clamp(x) return x + 1 end",
    "function math.clamp(x) return x + 100 end", "helper math.clamp" },
  { "a method of strings", "('q'):sz()", "function string.sz(x) return 1 end",
    "function string.sz(x) return 100 end", "helper string.sz" },
  { "a helper of a function in table", "table.map({})", "local function f() return 1 end\n"
    .. "function table.map(x) return f(x) end", "local function f() return 2 end\n"
    .. "function table.map(x) return f(x) end", "helper f" },
  { "a number in math", "math.tau2", "math.tau2 = 6", "math.tau2 = 7", "table math" },
  { "a table in math", "math.primes", "math.primes = { 2, 3 }", "math.primes = { 2, 5 }",
    "table math" },
  { "a function instead of Lua's", "math.random()", "function math.random() return 1 end",
    "function math.random() return 2 end", "helper math.random" },
  { "another name for a function", "math.f(1) + f(1) + g(1)", "local function f(x) return x end\n"
    .. "local function g(x) return -x end\nmath.f = f", "local function f(x) return x end\n"
    .. "local function g(x) return -x end\nmath.f = g", "table math" },
  { "a field that is taken out", "utf8.charpattern", "", "utf8.charpattern = nil", "table utf8" },
  { "a function in os", "os.half(1)", "function os.half(x) return x / 2 end",
    "function os.half(x) return x / 3 end", "helper os.half" },
  { "the metatable of strings", "-'q'", "getmetatable('').__unm = function() return 1 end",
    "getmetatable('').__unm = function() return 2 end",
    "helper the metatable of strings.__unm" },
  { "another metatable of strings", "#'q'",
    "debug.setmetatable('', { __index = string, __name = 'a' })",
    "debug.setmetatable('', { __index = string, __name = 'b' })", "table metatables" },
  { "a metatable of numbers", "(1).k", "debug.setmetatable(1, { __index = { k = 1 } })",
    "debug.setmetatable(1, { __index = { k = 2 } })", "table metatables" },
  { "a metatable of math", "math.k", "setmetatable(math, { __index = { k = 1 } })",
    "setmetatable(math, { __index = { k = 2 } })", "table metatables" },
  { "package.preload", "require('pp').f()", "package.preload.pp = function() return 1 end",
    "package.preload.pp = function() return 2 end", "helper package.preload.pp" },
  { "package.loaded", "require('pp').k", "package.loaded.pp = { k = 1 }",
    "package.loaded.pp = { k = 2 }", "table pp" },
  { "a searcher", "require('pp').k", "package.searchers[5] = function() return nil end",
    "package.searchers[5] = function() return 'no' end", "helper package.searchers.5" },
  { "package.path", "1", "package.path = './a/?.lua;' .. package.path",
    "package.path = './b/?.lua;' .. package.path" },
  { "a metatable that hides itself", "T.k",
    "local T = setmetatable({}, { __metatable = false, __index = { k = 3 } })",
    "local T = setmetatable({}, { __metatable = false, __index = { k = 4 } })", "table T" },
}

-- Returns the parts that differ, in the order of their names, as one text.
local function difference(before, after)
  local list = {}
  for key, hash in pairs(after.parts) do
    if before.parts[key] ~= hash then list[#list + 1] = key end
  end
  table.sort(list)
  return table.concat(list, ", ")
end

for _, edit in ipairs(edits) do
  local name, expression, first, second, part = table.unpack(edit)
  t.test("an edit changes the parts that it is about: " .. name, function()
    t.in_folder(function(folder)
      local before = reach_of(folder, first, expression)
      local after = reach_of(folder, second, expression)
      local again = reach_of(folder, first, expression)
      t.eq(before.whole or after.whole, nil)
      t.eq(difference(before, after), part or "")
      t.eq(before.total == after.total, part == nil)
      t.eq(again.total, before.total)
    end)
  end)
end

t.test("ids cover constants of a module and its changes of Lua's own tables", function()
  t.in_folder(function(folder)
    local function total(number)
      return reach_of(folder, "local own = require 'own'", "own.f()", { own = ([[
local K <const> = %d
local own = {}
function own.f() return K end
function math.more() return %d end
return own]]):format(number // 10, number % 10) }).total
    end
    local seen = {}
    for _, number in ipairs { 11, 12, 21, 11 } do seen[total(number)] = true end
    local count = 0
    for _ in pairs(seen) do count = count + 1 end
    t.eq(count, 3)
  end)
end)

t.test("a function that uses no constant has the same hash in a file that declares some", function()
  t.in_folder(function(folder)
    local plain = reach_of(folder, "local function f(x) return x end local K = 5", "f(K)")
    for _, head in ipairs { "local Z <const> = 1 ", "do local K <const> = 1 end ",
      "local K <const> = 1 ", "local function g() local x <const> = 1 return x end\n" } do
      local other = reach_of(folder, head .. "local function f(x) return x end local K = 5", "f(K)")
      t.eq({ head, other.total }, { head, plain.total })
    end
  end)
end)

-- Scripts that put functions of one name and line into tables of the library: their name, the text
-- of each module, %d being its number, and the line that makes table number %d.
local alike = {
  { "modules made from one template", "return { forward = function(x) return x + %d end }",
    "tl.nn.alike%d = require 'own%d'" },
  { "functions of one line", nil, "tl.nn.alike%d = make(%d)" },
}

for _, case in ipairs(alike) do
  local name, text, line = table.unpack(case)
  t.test("the hash does not depend on the order of pairs: " .. name, function()
    t.in_folder(function(folder)
      local modules, lines = {}, { "local function make(k)",
        "  return { forward = function(x) return x + k end }", "end" }
      for i = 1, 9 do
        modules["own" .. i] = text and text:format(i)
        lines[#lines + 1] = line:format(i, i)
      end
      local first, head = nil, table.concat(lines, "\n")
      for _ = 1, 8 do -- each has its functions elsewhere in memory
        local found = reach_of(folder, head, "1", modules)
        first = first or found
        t.ok(found.parts["helper forward''"])
        t.eq(found.parts, first.parts)
      end
      for i = 1, 9 do rawset(require "toeplab.nn", "alike" .. i, nil) end
    end)
  end)
end

t.done()
