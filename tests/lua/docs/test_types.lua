-- test_types.lua: toeplab.d.lua against the library: each function, class and option, and no other.
local t = require "harness"
local core = require "toeplab.core"
local tl = require "toeplab"

local docs = t.root .. "docs/"
package.path = docs .. "make/?.lua;" .. package.path
local functions = require "functions"
local reference = require "reference"
local types = require "types"

local read, mixers_page = reference.functions(), reference.read "mixers.md"
local text = types.file(read, mixers_page)
local classes = types.classes(mixers_page)

t.test("a block of signatures declares functions, fields and classes", function()
  local small = functions.read { [[
```signatures
with x, y: Tensor
with axis: integer
class Tensor  of numbers
tl.full(dims: integer[], v?: number): Tensor  f(a) * v
    goes on
Tensor.name: string?  or nil
x:sum([axis, keep: boolean]): Tensor  places, slots = x:topk(k: integer): Tensor, Tensor
    both
tl.none(f: fun(x: Tensor): (number, string), ...: any)
```
tl.text(x): not in a block
]], "```signatures\nwith axis: string\ntl.f(axis, x: string)\n```\n" }
  t.eq(small.classes, { "Tensor" })
  t.eq(small.fields, { { path = "Tensor.name", type = "string?" } })
  t.eq(small.functions, {
    { path = "tl.full", returns = { "Tensor" }, text = "f(a) * v goes on", parameters = {
      { name = "dims", type = "integer[]", optional = false },
      { name = "v", type = "number", optional = true } } },
    { path = "x:sum", class = "Tensor", method = "sum", returns = { "Tensor" }, text = "both",
      parameters = { { name = "axis", type = "integer", optional = true },
        { name = "keep", type = "boolean", optional = true } } },
    { path = "x:topk", class = "Tensor", method = "topk", returns = { "Tensor", "Tensor" },
      names = { "places", "slots" }, text = "both",
      parameters = { { name = "k", type = "integer", optional = false } } },
    { path = "tl.none", returns = {}, parameters = {
      { name = "f", type = "fun(x: Tensor): (number, string)", optional = false },
      { name = "...", type = "any", optional = false } } },
    { path = "tl.f", returns = {}, parameters = {
      { name = "axis", type = "string", optional = false },
      { name = "x", type = "string", optional = false } } },
  })
  local function raises(line, why)
    t.raises(functions.read, why, { "```signatures\n" .. line .. "\n```\n" })
  end
  raises("tl.f(z): number", "tl.f: the type of 'z' is not known")
  raises("z:f(): number", "z:f: the type of the receiver is not known")
  raises("a word", "not a declaration: a word")
  raises("    a word", "text before a declaration: a word")
end)

t.test("nothing is declared twice", function()
  local seen = {}
  for _, list in ipairs { read.functions, read.fields } do
    for _, d in ipairs(list) do
      local path = d.class and d.class .. ":" .. d.method or d.path
      t.ok(not seen[path] or path == "Tensor:backward", path .. " is declared twice")
      seen[path] = true
    end
  end
end)

t.test("the file is Lua, and gives the library's names", function()
  local made = assert(load(text, "=toeplab.d.lua"))()
  for _, s in ipairs(read.functions) do
    local value, real = made, tl
    for part in (s.path:match "^tl%.(.*)$" or ""):gmatch "[^.]+" do
      t.ok(value ~= nil and value[part] ~= nil, s.path .. " is not in the file")
      t.ok(real[part] ~= nil, s.path .. " is not in the library")
      value, real = value[part], real[part]
    end
  end
end)

-- Names of the library that are no part of what the manual promises.
local inner = { sys = "*", experiment = "*", ["recurrent.can_step"] = 1, ["recurrent.kernel"] = 1,
  ["recurrent.inside"] = 1, ["recurrent.mixing_step"] = 1, ["recurrent.operators"] = 1,
  ["recurrent.session"] = 1, ["corpus.open"] = 1, ["corpus.spec"] = 1, ["plot.picture"] = 1,
  ["scaling.DRAWS"] = 1, ["scaling.curve"] = 1, ["lm.sizes"] = 1 }

t.test("every function of the library is declared", function()
  local declared, count = {}, 0
  for path in text:gmatch "function (tl[%w_.]+)%(" do declared[path] = true end
  for path in text:gmatch "\n(tl[%w_.]+) = nil" do declared[path] = true end
  for path, name in text:gmatch '\n(tl[%w_.]+)%["([^"]+)"%]' do
    declared[path .. "." .. name] = true
  end
  for name in pairs(core) do
    count = count + 1
    t.ok(declared["tl." .. name] or name == "sys", "tl." .. name .. " is not declared")
  end
  for _, part in ipairs { "nn", "models", "optim", "schedule", "train", "eval", "recurrent",
    "distill", "options", "published", "corpus", "lm", "mlm", "tasks", "classify", "masking",
    "recall", "metrics", "plot", "scaling", "cost" } do
    for name in pairs(tl[part]) do
      local path = part .. "." .. name
      count = count + 1
      t.ok(declared["tl." .. path] or inner[path] or name:find "^__", path .. " is not declared")
    end
  end
  t.ok(count > 200, count .. " names")
end)

-- The tables of methods by class, of those that Lua can see.
local function methods()
  local registry, list = debug.getregistry(), {}
  local streams = tl.stream(1, "types")
  for class, name in pairs { Tensor = "tensor", Stream = "stream", Operator = "tno",
    Recurrence = "recurrence", Vocabulary = "vocab", Counter = "counter", Encoder = "encoder",
    Images = "images", Graph = "graph", Ranks = "ranks", Store = "store", Hdf5File = "h5" } do
    local meta = registry["toeplab." .. name]
    list[class] = meta and meta.__index
  end
  t.ok(streams and list.Tensor and list.Stream, "no metatables")
  list.Module = tl.nn.Module
  return list
end

-- Methods of language models alone, which the manual gives to all modules.
local of_models = { ["Module:generate"] = true, ["Module:stream"] = true, ["Module:batch"] = true,
  ["Module:score"] = true }

t.test("every method of the engine's objects is declared, and every declared one exists", function()
  local declared, count = {}, 0
  for path in text:gmatch "\nfunction (%u%w*:[%w_]+)%(" do declared[path] = true end
  for class, list in pairs(methods()) do
    for name in pairs(list) do
      t.ok(declared[class .. ":" .. name] or class == "Module" or class == "Store"
        or name:find "^__", class .. ":" .. name .. " is not declared")
    end
    for path in pairs(declared) do
      local of, name = path:match "^(%w+):(.*)$"
      if of == class then
        count = count + 1
        t.ok(list[name] or of_models[path], "there is no " .. path)
      end
    end
  end
  t.ok(count > 100, count .. " methods")
end)

-- The names of all methods and fields of functions that the sources of the library define.
local function defined(folder, names)
  for _, name in ipairs(tl.sys.list(folder)) do
    local path = folder .. "/" .. name
    if tl.sys.kind(path) == "folder" then
      defined(path, names)
    else
      local source = t.read(path)
      for method in source:gmatch "function %w+[:.]([%w_]+)%(" do names[method] = true end
      for list in source:gmatch "%f[%w_]([%w_][%w_., ]*) = " do
        for field in list:gmatch "[%w_]+" do names[field] = true end
      end
    end
  end
  return names
end

t.test("the sources define every method and field of the library's own objects", function()
  local names, engine = defined(docs .. "../lua/toeplab", {}), methods()
  local count = 0
  for _, s in ipairs(read.functions) do
    local class, name = s.class, s.method
    if not class then class, name = s.path:match "^(%u%w*)%.([%w_]+)$" end
    if class and not engine[class] and class ~= "Ranks" and class ~= "Graph" then
      count = count + 1
      t.ok(names[name], ("%s has no %s"):format(class, name))
    end
  end
  for _, f in ipairs(read.fields) do
    local name = f.path:match "^%u%w*%.([%w_]+)$"
    count = count + (name and 1 or 0)
    t.ok(not name or names[name], f.path)
  end
  t.ok(count > 60, count .. " names")
end)

t.test("functions in Lua take as many values as they are declared to", function()
  local count = 0
  for _, s in ipairs(read.functions) do
    local real, rest = tl, s.path:match "^tl%.(.*)$"
    for part in (rest or ""):gmatch "[^.]+" do real = real[part] end
    local info = rest and type(real) == "function" and debug.getinfo(real, "uS")
    if info and info.what == "Lua" and not info.isvararg then
      count = count + 1
      t.ok(#s.parameters <= info.nparams, ("%s takes %d values"):format(s.path, info.nparams))
    end
  end
  t.ok(count > 50, count .. " functions")
end)

t.test("functions of masked models give what they are declared to", function()
  local declared = {}
  for _, s in ipairs(read.functions) do declared[s.path] = s.returns end
  local data = tl.masking(core.ids { 1, 2, 3, 0 }, { vocab = 4, eos = 0, length = 4, batch = 1 })
  for path, values in pairs {
    ["tl.masking.tokens"] = table.pack(tl.masking.tokens { vocab = 4 }),
    ["MaskedData:epoch"] = table.pack(data:epoch(1)),
  } do
    local kinds = {}
    for i = 1, values.n do kinds[i] = math.type(values[i]) or type(values[i]) end
    t.eq({ path, declared[path] }, { path, kinds })
  end
  t.eq(declared["tl.mlm.start"][3], "Module?") -- none for "random"
end)

t.test("every option of every class is declared with its type, default and meaning", function()
  local count = 0
  for _, entry in ipairs(classes) do
    local block = text:match("\n%-%-%-@class toeplab%." .. entry.name:gsub("%p", "%%%0")
      .. "%.Options\n(.-)\n\n")
    t.ok(block or #entry.class.spec.order == 0, entry.name .. " has no options")
    t.ok(entry.about ~= nil, entry.name .. " does not say what it is")
    for _, o in ipairs(tl.options.describe(entry.class.spec)) do
      count = count + 1
      local line = ("\n" .. block):match("\n(%-%-%-@field " .. o.name .. "%? [^\n]*)")
      local wanted = o.default == "required" and "(required" or o.default ~= "" and
        "(default " .. o.default or "(optional"
      t.ok(line and line:find(types.option_type(o.name, entry.class.spec.fields[o.name]), 1, true)
        and line:find(wanted, 1, true) and o.help ~= "" and line:find(" # " .. o.help, 1, true),
        ("%s: %s: %s"):format(entry.name, o.name, line))
    end
  end
  t.ok(count > 550, count .. " options")
end)

-- What classes are made with, if they have options of these names, besides dim = 8.
local needs = { grid = { 2, 3 }, length = 6, max_length = 8, vocab = 7, inputs = 8, outputs = 5,
  classes = 3, patch = 1, channels = 3, blocks = 2, heads = 2, layers = 1, chunk = 2, window = 2,
  head_dim = 4, cutoffs = { 3 } }

local function build(entry)
  local given, class = {}, entry.class
  for name in pairs(class.spec.fields) do given[name] = needs[name] end
  if class.spec.fields.dim then given.dim = 8 end
  if entry.name:find "TNO$" or entry.name:find "GTU$" then given.heads, given.grid = nil, nil end
  if entry.name == "nn.Block" then given.token = tl.nn.Conv(8) end
  if entry.name == "nn.FrequencyTable" or entry.name == "nn.Table" then given.length = 6 end
  if class.spec.fields.grid and not entry.name:find "2d" and not entry.name:find "image" then
    given.grid = nil
  end
  if entry.name:find "stu" then given.filters = 2 end
  return class(given)
end

-- The shape that a text like [b,n,dim] means for a module.
local function shape(words, module)
  local sizes, list = { b = 2, n = 6, p = 6, height = 2, width = 3 }, {}
  for word in words:gmatch "[^%[%],]+" do
    if word == ".." then
      list[#list + 1] = 4
    else
      list[#list + 1] = sizes[word] or rawget(module.opt, word) or module.opt[word]
    end
  end
  return list
end

t.test("modules take and give the shapes that they say", function()
  local count = 0
  for _, entry in ipairs(classes) do
    local what, from, more, to = entry.about:match "^(%l+) (%[[^%]]*%])(.*) %-> (%[[^%]]*%]):"
    t.ok(what or entry.class.variadic, entry.name .. " says no shapes: " .. entry.about)
    if what then
      local module = build(entry):eval()
      local given = shape(from, module)
      local x = what == "ids" and tl.ids { 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6 }:narrow(1, 1,
        math.min(12, given[1] * (given[2] or 1))):reshape(given) or tl.full(given, 0.5)
      if what == "points" then x = tl.range(0, 5) end
      local y = module(x, more:find "lags" and tl.range(0, 5) or nil)
      t.eq({ entry.name, y:shape() }, { entry.name, shape(to, module) })
      count = count + 1
    end
  end
  t.ok(count > 60, count .. " classes")
end)

t.done()
