-- test_gpu_mlp.lua: compares core.mlp and all its gradients on a GPU with the CPU's. The GPU is
-- tests/emulated.so, or the device in TOEPLAB_TEST_GPU.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"
local t = require "harness"

local program = core.sys.executable()
local gpu = require "gpu"

local SCRIPT = [[
local core = require "toeplab.core"
local s, number = core.stream(5, "mlp"), 0
local function normal(...) return s:normal(core.zeros(...), 0, 1) end
local function show(name, x)
  local list = x:numel() > 0 and x:reshape(-1):totable() or {}
  for i, v in ipairs(list) do list[i] = ("%.9g"):format(v) end
  print(number .. " " .. name .. ":" .. table.concat(list, " "))
end
-- layers: {norm, given, eps}; given: b bias, w norm_weight, c norm_bias; frozen: no gradients
local function case(rows, sizes, kinds, act, residual, scaled, frozen, spread)
  number = number + 1
  local x, layers, all = normal(rows, sizes[1]), {}, {}
  if rows > 2 then -- one row of zeros
    local mask = {}
    for r = 1, rows do mask[r] = { r == 2 and 0 or 1 } end
    x = x * core.tensor(mask)
  end
  if spread then x = x * spread end
  all[1] = { "x", x }
  for l, kind in ipairs(kinds) do
    local k, o = sizes[l], sizes[l + 1]
    local p = { weight = normal(o, k), norm = kind[1], eps = kind[3] or 1e-5 }
    if kind[2]:find "b" then p.bias = normal(o) end
    if kind[2]:find "w" then p.norm_weight = normal(k) end
    if kind[2]:find "c" then p.norm_bias = normal(k) end
    for _, name in ipairs { "weight", "bias", "norm_weight", "norm_bias" } do
      if p[name] then all[#all + 1] = { name .. l, p[name] } end
    end
    layers[l] = p
  end
  if not frozen then for _, p in ipairs(all) do p[2]:require_grad() end end
  if frozen == "x" then for i = 2, #all do all[i][2]:require_grad() end end
  local scale = scaled and normal(rows) or nil
  local y = core.mlp(x, layers, act, residual, scale)
  show("y", y)
  if frozen == true then return end
  if number % 2 == 0 then layers[1].weight:get(1, 1) end -- moves the weight to the CPU
  (y * normal(rows, sizes[#sizes])):sum():backward()
  for _, p in ipairs(all) do
    if p[2]:grad() then show(p[1], p[2]:grad()) end
  end
end
case(37, { 1, 40, 40, 40, 5 }, { { nil, "b" }, { "layer", "bwc" }, { "simple", "b", 0.5 },
  { "rms", "b", 0.1 } }, "relu", true, true)
case(9, { 3, 70, 33, 2 }, { { nil, "" }, { "rms", "w" }, { "layer", "c" } }, "silu", false, false)
case(8, { 3, 6, 6, 4 }, { { nil, "b" }, { nil, "wc" }, { "simple", "bw" } }, "gelu", true, true)
case(8, { 3, 6, 4 }, { { nil, "" }, { nil, "" } }, "identity", false, true, "x")
case(5, { 2, 7, 7, 3 }, { { nil, "b" }, { "rms", "b" }, { "rms", "b" } }, "tanh", true, true, true)
case(5, { 2, 7, 9, 7, 3 }, { { nil, "" }, { "rms", "b" }, { "rms", "b" }, { "rms", "" } }, "tanh",
  false, false, true)
case(0, { 2, 7, 3 }, { { nil, "b" }, { "rms", "b" } }, "relu", false, false)
case(1, { 1, 1, 1 }, { { nil, "b" }, { "layer", "b" } }, "relu", false, false)
case(6, { 2, 5, 5, 3 }, { { nil, "" }, { "simple", "" }, { "rms", "" } }, "silu", true, false, nil,
  1e22)
]]

local function run(device)
  local path = os.tmpname()
  assert(core.sys.write_file(path, SCRIPT))
  local pipe = assert(io.popen(("TOEPLAB_DEVICE=%s %s --threads 2 lua %s 2>&1"):format(
    shell.quote(device), shell.quote(program), shell.quote(path))))
  local results, order, last = {}, {}, ""
  for line in pipe:lines() do
    local name, numbers = line:match "^(%d+ [^:]*):(.*)$"
    last = line:sub(1, 200)
    if name then
      results[name], order[#order + 1] = {}, name
      for n in numbers:gmatch "%S+" do table.insert(results[name], tonumber(n) or 0 / 0) end
    end
  end
  local ok = pipe:close()
  os.remove(path)
  t.ok(ok, device .. ": " .. last)
  return results, order
end

t.test("a network and its gradients", function()
  local here, order = run "cpu"
  local there = run(gpu.name)
  t.ok(#order > 40, "too few results")
  for _, name in ipairs(order) do
    local a, b, largest = here[name], there[name], 0
    t.ok(b and #a == #b, name .. ": not the same numbers")
    for i = 1, #a do largest = math.max(largest, math.abs(a[i])) end
    for i = 1, #a do
      t.ok(math.abs(a[i] - b[i]) <= 1e-5 * largest,
        ("%s: %g is not %g, the largest is %g"):format(name, b[i], a[i], largest))
    end
  end
end)

-- On a GPU of 1 MiB only the first network fits; what does not raises an error and keeps no memory.
local SMALL = [[
local layers = { { weight = core.ones(64, 1) }, { weight = core.ones(1, 64) } }
local before = live()
for _, trained in ipairs { false, true } do
  layers[1].weight:require_grad(trained)
  for _, rows in ipairs { 100, 2000, 16000 } do
    local ok, why = pcall(function()
      local loss = core.mlp(core.ones(rows, 1), layers, "relu"):sum()
      local sum = loss:item()
      if trained then loss:backward() end
      return sum
    end)
    layers[1].weight:set_grad(nil)
    print(ok, ok and why or why.status)
    why = nil
    if live() ~= before then error "memory is kept" end
  end
end
]]

if not os.getenv "TOEPLAB_TEST_GPU" then
  t.test("a GPU that is too small", function()
    t.eq(gpu.in_one_mib(SMALL), ("true\t6400.0\n" .. ("false\tENOMEM\n"):rep(2)):rep(2))
  end)
end

t.done()
