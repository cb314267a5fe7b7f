-- test_device.lua: a context on a device whose memory the CPU cannot touch (tests/device/apart.c):
-- training there is training on the CPU, bit for bit, and what a device lacks is named.
require "toeplab"
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"
local t = require "harness"

local program = core.sys.executable()
local apart = program:gsub("[^/]*$", "") .. "tests/apart.so"

local TRAIN = [[
local tl = require "toeplab"
local core = require "toeplab.core"
tl.seed(7)
local model = tl.models.tnn_lm { vocab = 40, layers = 2, dim = 16, backend = "%s", decay = "none",
  dropout = 0.1, rpe_dim = 8, rpe_layers = 2 }
local opt = tl.train.graph(model, tl.optim.adam(model, { lr = 0.01, clip = 1.0 }))
local s = core.stream(3, "data")
local text = {}
for i = 1, 500 do text[i] = s:below(40) end
local ids = core.ids(text)
for step = 1, 3 do
  local starts = core.ids { step, 40 * step, 90 * step }
  local loss, info = tl.train.lm_step(model, opt, core.windows(ids, starts, 25))
  print(("%%.17g %%.17g"):format(loss, info.grad_norm))
end
]]

-- What a script prints with the device, and whether it succeeded; settings: of the environment.
local function run(text, device, settings)
  local path = os.tmpname()
  assert(core.sys.write_file(path, text))
  local command = ("%s TOEPLAB_DEVICE=%s %s --threads 2 lua %s 2>&1"):format(settings or "",
    shell.quote(device), shell.quote(program), shell.quote(path))
  local out, code = t.shell(command)
  os.remove(path)
  return out, code == 0
end

for _, backend in ipairs { "fft", "naive", "ski", "fd" } do
  t.test("training on a device is training on the CPU: " .. backend, function()
    local text = TRAIN:format(backend)
    local here, there = run(text, "cpu"), run(text, apart)
    t.ok(select(2, here:gsub("\n", "")) == 3, here)
    t.eq(there, here)
  end)
end

t.test("tensors come to the CPU when it reads or writes them", function()
  local out = run([[
    local core = require "toeplab.core"
    local a = core.tensor { { 1, 2 }, { 3, 4 } }
    local b = core.matmul(a, a)
    print(core.device())
    print(b:get(2, 1), b:sum():item(), b:narrow(1, 2, 1):totable()[1][2], (a + b):get(1, 1))
    local path = os.tmpname()
    core.h5_write(path, { { "b", b } }, {})
    print((b * b):get(1, 1), core.h5_open(path):read("b"):get(2, 2))
    os.remove(path)
    local s = core.stream(1, "x")
    local p = s:permutation(4)
    print(p:type(), s:sample(core.tensor { 0, 100 }, 1.0))
    local d = core.decay(core.ones(3, 2), core.tensor { 0, 1, 2 }, core.tensor { 0.5, 0.25 })
    print(d:get(3, 1), d:get(3, 2))
    local r = core.recurrence(core.ones(4, 2), nil, "ring", 1)
    r:step(core.ones(1, 1, 2))
    print((r:step(core.ones(1, 1, 2)) * core.ones(2)):get(1, 1, 2))
  ]], apart)
  t.eq(out, [[
apart	apart: the CPU, on memory of its own
15.0	54.0	22.0	8.0
49.0	22.0
int32	1
0.25	0.0625
2.0
]])
end)

for _, form in ipairs { "ring", "exact" } do
  t.test("steps of a recurrence copy nothing between device and CPU: " .. form, function()
    local out = run(([[
      local core = require "toeplab.core"
      local r = core.recurrence(core.ones(40, 20), nil, %q, 1)
      local x = core.ones(1, 1, 20)
      r:step(x)
      local _, before = core.device()
      for _ = 1, 5 do x = r:step(x) end
      local _, after = core.device()
      print(before == after, r:step(x):get(1, 1, 1))
      local fork = r:fork()
      r:reset()
      local second = core.ones(1, 1, 20)
      print(("%%.3f %%.3f"):format(r:step(second):get(1, 1, 1), fork:step(second):get(1, 1, 20)))
    ]]):format(form), apart, "APART_COUNTS=1")
    local same, value, rest = out:match "^(%a+)\t([%d.]+)\n(.*)$"
    t.eq({ same, rest }, { "true", "1.000 1.000\n" })
    t.ok(math.abs(tonumber(value) - 64) < 1e-3, out)
  end)
end

t.test("what a script writes down is filled on the CPU and uploaded once", function()
  local out = run([[
    local core = require "toeplab.core"
    local function copies(what)
      local _, text = core.device()
      print(what, text)
    end
    local x, n, r = core.tensor { { 1, 2 }, { 3, 4 } }, core.ids { 1, 0 }, core.range(1, 4)
    copies "made"
    local y = x:gather(n):sum() + r:sum()
    copies "used"
    y = y + x:sum() + r:sum()
    copies "used again"
    print(y:item())
  ]], apart, "APART_COUNTS=1")
  t.eq(out, "made\t0 uploads, 0 downloads\nused\t3 uploads, 0 downloads\n"
    .. "used again\t3 uploads, 0 downloads\n40.0\n")
end)

t.test("a profile times the kernels of a device, not their launches", function()
  local out = run([[
    local tl = require "toeplab"
    local x = tl.tensor { 1, 2, 3 }
    local p = tl.profile(function() return (x * x):sum() end)
    for _, k in ipairs(p.kernels) do print(k.name, k.calls, k.seconds >= 0.05) end
    print(#p.kernels, p.seconds > 0.1, p.other < 0.05)
    print(tostring(p):match "[^\n]*$")
  ]], apart, "APART_LATE=0.05")
  t.ok(out:find "binary\t1\ttrue" and out:find "reduce\t1\ttrue", out)
  t.ok(out:find "2\ttrue\ttrue\ntimed: each kernel on apart until it had finished", out)
end)

for _, case in ipairs {
  { "an operator that a device lacks", [[
      local core = require "toeplab.core"
      core.ones(4, 2):cumsum(1)]], "cumsum is not available on apart" },
  { "a device after the first tensor", [[
      local core = require "toeplab.core"
      local x = core.ones(1)
      core.use_device("/tmp/other.so")]], "the context already computes on apart" },
} do
  t.test("refused: " .. case[1], function()
    local out, ok = run(case[2], apart)
    t.ok(not ok and out:find(case[3], 1, true), out)
  end)
end

t.test("a device is the same by every name for it", function()
  local other = apart:gsub("[^/]*$", "./%0")
  local out = run(([[
    local core = require "toeplab.core"
    local x = core.ones(1)
    for _, name in ipairs { %q, %q, "apart", "apart:0", %q } do core.use_device(name) end
    print(core.device())
  ]]):format(apart, other, apart .. ":0"), apart)
  t.ok(out:find "^apart\t", out)
end)

for _, case in ipairs {
  { "of no such name", "cud", "device 'cud': this build has no such device" },
  { "with a wrong card", "cuda:x", "device 'cuda:x': unknown: use cpu, cuda, or cuda:1" },
  { "with a card beyond all", "cuda:99999", "device 'cuda:99999': unknown: use cpu, cuda" },
  { "cpu with a card", "cpu:0", "device 'cpu'" },
  { "of no such file, with colons", "/no:such/x:y.so", "'/no:such/x:y.so': /no:such/x:y.so: " },
  { "without its card", apart .. ":3", "has one GPU, no number 3" },
  { "that is no device", program:gsub("[^/]*$", "") .. "backends/fft.so", "tl_engine_entry" },
} do
  t.test("refused: a device " .. case[1], function()
    local out, ok = run("", case[2])
    t.ok(not ok and out:find(case[3], 1, true), out)
  end)
end

-- The device needy links libnvtest.so.1 in tests/vendor, where the loader does not look.
t.test("a library of CUDA is found where a variable, Python or a toolkit has it", function()
  local tests = program:gsub("[^/]*$", "") .. "tests"
  local top = os.tmpname()
  os.remove(top)
  t.shell(("mkdir -p '%s/lib/python3.9/site-packages/nvidia/cu13' '%s/bin' && ln -s '%s/vendor' "
    .. "'%s/lib/python3.9/site-packages/nvidia/cu13/lib' && ln -s '%s/vendor' '%s/lib64' && "
    .. "ln -s /bin/true '%s/bin/python3'"):format(top, top, tests, top, tests, top, top))
  local text = "print(require 'toeplab.core'.device())"
  for _, setting in ipairs { "TOEPLAB_CUDA=/none:%s/lib64", "VIRTUAL_ENV=%s", "CUDA_HOME=%s",
      "PATH=%s/bin:$PATH" } do
    local out, ok = run(text, tests .. "/needy.so", setting:format(shell.quote(top)))
    t.ok(ok and out:find "^apart", setting .. ": " .. out)
  end
  local out, ok = run(text, tests .. "/needy.so", "TOEPLAB_CUDA=/none")
  t.shell("rm -r " .. shell.quote(top))
  t.ok(not ok)
  t.holds(out, "libnvtest.so.1: cannot open shared object file: No such file or directory, neither")
  t.holds(out, "TOEPLAB_CUDA=FOLDER")
end)

t.done()
