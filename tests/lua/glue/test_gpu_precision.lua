-- test_gpu_precision.lua: compares products on a GPU in each precision with the CPU's. The GPU is
-- tests/emulated.so, or the device in TOEPLAB_TEST_GPU.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"
local t = require "harness"
local trials = require "trials"

local program = core.sys.executable()
local gpu = require("gpu").name

-- Returns the lines that a script prints on a device. setting: a variable of its environment
local function lines(text, device, setting)
  local path = os.tmpname()
  t.write(path, text)
  local pipe = assert(io.popen(("%s TOEPLAB_DEVICE=%s %s --threads 2 lua %s 2>&1"):format(
    setting or "", shell.quote(device), shell.quote(program), shell.quote(path))))
  local list = {}
  for line in pipe:lines() do list[#list + 1] = line end
  local ok = pipe:close()
  os.remove(path)
  t.ok(ok, device .. ": " .. tostring(list[#list]))
  return list
end

-- Functions of the scripts: show prints a tensor as a line "name: numbers".
local START = [[
local core = require "toeplab.core"
local s = core.stream(1, "precision")
local function normal(...) return s:normal(core.zeros(...), 0, 1) end
local function show(name, x)
  local list = x:reshape(-1):totable()
  for i, v in ipairs(list) do list[i] = ("%%.9g"):format(v) end
  print(name .. ": " .. table.concat(list, " "))
end
]]

-- Shows products and their gradients.
local PRODUCTS = START .. [[
core.precision("%s", function()
  for i, shape in ipairs { { 1, 5, 7, 33 }, { 3, 4, 6, 9 }, { 2, 8, 1, 17 } } do
    local b, m, n, k = table.unpack(shape)
    for transposed = 0, 3 do
      local ta, tb = transposed %% 2 == 1, transposed > 1
      local x = (ta and normal(b, k, m) or normal(b, m, k)):require_grad()
      local y = (tb and normal(b, n, k) or normal(b, k, n)):require_grad()
      local z = core.matmul(x, y, ta, tb)
      show(("z %%d %%d"):format(i, transposed), z)
      z:backward(normal(b, m, n))
      show(("dx %%d %%d"):format(i, transposed), x:grad())
      show(("dy %%d %%d"):format(i, transposed), y:grad())
    end
  end
  local x, w, bias = normal(9, 20):require_grad(), normal(12, 20):require_grad(),
    normal(12):require_grad()
  core.linear(x, w, bias):backward(normal(9, 12))
  local targets = core.ids { 0, 1, 2, 3, 4, 5, 11, 10, 9 }
  local loss = core.linear_cross_entropy(x, w, bias, targets)
  show("loss", loss)
  loss:backward()
  for i, p in ipairs { x, w, bias } do show("of the loss " .. i, p:grad()) end
  show("empty", core.matmul(core.zeros(2, 0), core.zeros(0, 3)))
  -- a network stays float32 in each precision, and so does each operator but matrix
  local o = core.tno("rac", 16, 3, true)
  show("float32 tno", o:apply(normal(16, 3), {}, normal(2, 16, 3)))
  show("float32 mlp", core.mlp(normal(6, 2), { { weight = normal(5, 2) }, { weight = normal(3, 5),
    norm = "rms", eps = 1e-5 } }, "relu", false))
end)
]]

-- Returns, by name, the largest difference of two results relative to the largest number.
local function differences(here, there)
  local list = {}
  t.ok(#here == #there and #here > 40, "not as many results")
  for i, line in ipairs(here) do
    local name, a = line:match "^([^:]+):(.*)$"
    local numbers = there[i]:match("^" .. name .. ":(.*)$"):gmatch "%S+"
    local worst, largest = 0, 1e-30
    for word in a:gmatch "%S+" do
      local x, y = tonumber(word), tonumber(numbers())
      worst = math.max(worst, y == y and math.abs(x - y) or math.huge)
      largest = math.max(largest, math.abs(x))
    end
    list[name] = worst / largest
  end
  return list
end

local exact = lines(PRODUCTS:format "float32", "cpu")

t.test("bf16 on a GPU is bf16 on the CPU, and not float32", function()
  local low = lines(PRODUCTS:format "bf16", gpu)
  for name, off in pairs(differences(lines(PRODUCTS:format "bf16", "cpu"), low)) do
    t.ok(off < 1e-5, ("%s: off by %g"):format(name, off))
  end
  for name, off in pairs(differences(exact, low)) do
    local float32 = name:find "^float32" or name == "empty"
    t.ok(off < (float32 and 1e-5 or 2e-2), ("%s: off by %g"):format(name, off))
    t.ok(float32 or off > 1e-5, ("%s: is not rounded: %g"):format(name, off))
  end
end)

-- A head of 13 tokens has rows that are padded to 16. The 150 rows are three blocks on the emulated
-- GPU. Masked logits are -inf; every fifth target is ignored.
local HEAD = START .. [[
local ids, bias = {}, {}
for i = 1, 150 do ids[i] = i %% 5 == 0 and 12 or i * i %% 12 end
for i = 1, 13 do bias[i] = i == 3 and -math.huge or 0.1 * i end
for i = 1, 150 do if ids[i] == 2 then ids[i] = 1 end end
core.precision("%s", function()
  for _, masked in ipairs { false, true } do
    local x, w = normal(150, 20):require_grad(), normal(13, 20):require_grad()
    local b = masked and core.tensor(bias):require_grad() or nil
    local loss = core.linear_cross_entropy(x, w, b, core.ids(ids), 12)
    print(("loss%%s: %%.9g"):format(masked and " with bias" or "", loss:item()))
    loss:backward()
    for name, y in pairs { x = x:grad(), w = w:grad(), b = b and b:grad() } do
      show(name .. (masked and " with bias" or ""), y)
    end
  end
end)
]]

t.test("the loss of a head is the CPU's in bf16 and float32, with ignored rows", function()
  -- On a real GPU, the last bit of an exponential may round a gradient to another bf16.
  local exact_bf16 = require("gpu").emulated and 1e-5 or 2e-3
  for precision, limit in pairs { bf16 = exact_bf16, float32 = 1e-5 } do
    local named = {}
    for _, line in ipairs(lines(HEAD:format(precision), gpu)) do
      named[line:match "^[^:]+"] = line
    end
    for _, line in ipairs(lines(HEAD:format(precision), "cpu")) do
      local name, largest, worst = line:match "^[^:]+", 1e-30, 0
      local there = named[name]:match ":(.*)":gmatch "%S+"
      for word in line:match ":(.*)":gmatch "%S+" do
        local a, b = tonumber(word), tonumber(there())
        worst = math.max(worst, b == b and math.abs(a - b) or math.huge)
        largest = math.max(largest, math.abs(a))
      end
      t.ok(worst < limit * largest, ("%s %s: off by %g of %g"):format(precision, name, worst,
        largest))
    end
  end
end)

t.test("the loss in bf16 rounds its weights once for all blocks of rows", function()
  if not require("gpu").emulated then t.skip "only the emulation counts bytes" end
  local asked = os.tmpname()
  local text = [[
    local core = require "toeplab.core"
    core.precision "bf16"
    local ids = {}
    for i = 1, 640 do ids[i] = i end
    local x, w = core.zeros(640, 8):require_grad(), core.zeros(2000, 8):require_grad()
    core.linear_cross_entropy(x, w, nil, core.ids(ids)):backward()]]
  lines(text, gpu, "EMULATE_ASKED=" .. asked)
  local bytes = tonumber(t.read(asked))
  os.remove(asked)
  -- A block has 64 rows: 512,000 bytes of logits and 256,000 of their gradient. Copies of both
  -- for each product of each of ten blocks were 5.8 MB.
  t.ok(bytes and bytes < 1500000, "asked for " .. tostring(bytes))
end)

-- Returns the bytes that the loss of a head of v tokens asks the emulated GPU for.
local function asked_for(precision, v)
  local asked = os.tmpname()
  lines(([[
    local core = require "toeplab.core"
    core.precision "%s"
    local ids = {}
    for i = 1, 64 do ids[i] = i end
    core.linear_cross_entropy(core.zeros(64, 8), core.zeros(%d, 8), nil, core.ids(ids))]]):format(
    precision, v), gpu, "EMULATE_ASKED=" .. asked)
  local bytes = tonumber(t.read(asked))
  os.remove(asked)
  return bytes
end

t.test("rows of logits are aligned for tensor cores, in each precision", function()
  if not require("gpu").emulated then t.skip "only the emulation counts bytes" end
  for _, precision in ipairs { "float32", "tf32", "bf16" } do
    -- 64 unpadded rows of 513 instead of 520 tokens would be 1,792 bytes less, the weights are 224
    local less = asked_for(precision, 520) - asked_for(precision, 513)
    t.ok(less < 1000, ("%s: %d bytes less"):format(precision, less))
  end
end)

-- tf32 permits rounding; cuBLAS may still multiply small or narrow matrices in float32.
t.test("tf32 is between the two", function()
  local rounded = 0
  for name, off in pairs(differences(exact, lines(PRODUCTS:format "tf32", gpu))) do
    local float32 = name:find "^float32" or name == "empty"
    t.ok(off < (float32 and 1e-5 or 5e-3), ("%s: off by %g"):format(name, off))
    if off > 1e-5 then rounded = rounded + 1 end
  end
  t.ok(rounded > 0, "no product is rounded")
end)

t.test("each device says what it has", function()
  t.eq(core.precisions "cpu", { "float32", "bf16" })
  t.eq(core.precisions "cuda:1", { "float32", "bf16", "tf32" })
  t.eq(lines([[print(table.concat(require "toeplab.core".precisions(), " "))]], gpu),
    { "float32 bf16 tf32" })
  local ok, why = pcall(core.precision, "tf32")
  t.ok(not ok and tostring(why):find("device cpu has float32 and bf16 only", 1, true), why)
  t.eq(core.precision(), "float32")
end)

t.test("a model trains in each", function()
  for _, precision in ipairs { "bf16", "tf32" } do
    local losses = lines(([[
      local tl = require "toeplab"
      tl.seed(7)
      local model = tl.models.tnn_lm { vocab = 20, layers = 1, dim = 16, rpe_dim = 8,
        rpe_layers = 1 }
      local opt = tl.train.graph(model, tl.optim.adam(model, { lr = 0.02, clip = 1.0 }))
      local list = {}
      for i = 1, 33 do list[i] = i * i %% 20 end
      tl.precision "%s"
      for step = 1, 8 do print(tl.train.lm_step(model, opt, tl.ids { list })) end
      assert(tl.precision() == "%s")]]):format(precision, precision), gpu)
    local first, last = tonumber(losses[1]:match "%S+"), tonumber(losses[8]:match "%S+")
    t.ok(first and last and last < 0.8 * first, precision .. ": " .. table.concat(losses, " "))
  end
end)

t.test("precision is a key of experiments on GPUs", function()
  t.in_folder(function(folder)
    local code, said = trials.run(folder, [[
      local tl = require "toeplab"
      return tl.experiment "x" {
        fixed = { precision = "tf32" }, grid = { size = { 1 } },
        trial = function(t, c) t:log { low = tl.precision() == c.precision and c.size or 0 } end,
      }]], { "device=" .. gpu })
    t.ok(code == 0, said)
    local rows = trials.query(folder, [[SELECT json_extract(t.config, '$.precision') || ' ' ||
      m.value AS x FROM v_trials t JOIN v_metrics m ON m.trial = t.id AND m.name = 'low']])
    t.eq(rows, { { x = "tf32 1.0" } })
  end)
end)

t.done()
