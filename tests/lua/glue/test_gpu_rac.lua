-- test_gpu_rac.lua: compares the backend rac on a GPU, one kernel up to 16,384 tokens, with the
-- definition on the same GPU (naive, with float64 sums), and counts the bytes that it moves. The
-- GPU is tests/emulated.so, or the device in TOEPLAB_TEST_GPU.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"
local t = require "harness"

local gpu = require "gpu"

local TOLERANCE = 4.6e-7

-- Each length beside a power of two, where the number and radix of passes change.
local lengths = {}
for power = 1, 10 do
  for n = (1 << power) - 1, (1 << power) + 1 do
    lengths[#lengths + 1] = n < 300 and { n, 3, 2 } or { n, 1, 1, power % 2 }
  end
end
local shapes = {}
for b = 1, 33, 2 do shapes[#shapes + 1] = { 1 + b * 7 % 90, 1 + b * 5 % 37, b } end
shapes[#shapes + 1] = { 600, 9, 3, 0 } -- several warps

t.test("lengths up to 16,384", function()
  gpu.compare("rac", "float32", lengths, TOLERANCE)
  gpu.compare("rac", "float32", { { 2047, 1, 1, 0 }, { 2048, 9, 1, 1 }, { 2500, 3, 2, 1 },
    { 4096, 5, 1, 1 }, { 8192, 1, 2, 0 }, { 16384, 1, 2, 1 } }, TOLERANCE)
end)

t.test("batches and channels", function()
  gpu.compare("rac", "float32", shapes, TOLERANCE)
end)

t.test("bf16 and tf32 leave it in float32", function()
  gpu.compare("rac", "bf16", { { 70, 9, 17 } }, TOLERANCE)
  gpu.compare("rac", "tf32", { { 130, 3, 2 } }, TOLERANCE)
end)

-- Returns the bytes that the kernels of rac move for a pass forward, or for one with backward.
local function moved(n, d, b, passes, settings)
  local path, file = os.tmpname(), os.tmpname()
  assert(core.sys.write_file(path, [[
    local core = require "toeplab.core"
    local n, d, b = math.tointeger(arg[1]), math.tointeger(arg[2]), math.tointeger(arg[3])
    local o = core.tno("rac", n, d, true)
    local coef, x = core.ones(n, d), core.ones(b, n, d)
    if arg[4] == "2" then coef, x = coef:require_grad(), x:require_grad() end
    local y = o:apply(coef, {}, x)
    if arg[4] == "2" then y:sum():backward() end
    core.synchronize()]]))
  local out = t.shell(("%s EMULATE_MOVED=%s TOEPLAB_DEVICE=%s %s lua %s %d %d %d %d 2>&1"):format(
    settings or "", file, shell.quote(gpu.name), shell.quote(core.sys.executable()), path, n, d, b,
    passes))
  local bytes = core.sys.read_file(file)
  os.remove(path)
  os.remove(file)
  t.eq(out, "")
  return math.tointeger(tonumber(bytes))
end

if gpu.emulated then
  -- A batch of twice the size moves these bytes more: the coefficients' do not depend on it.
  -- Past 8,192 the spectrum of dy is written and read too, 8 bytes for each of the N points.
  t.test("reads a sequence once and writes it once, and twice as much backward", function()
    for _, case in ipairs { { 512, 8, 4, 2, 4 }, { 700, 8, 2, 2, 4 }, { 4096, 4, 2, 2, 4 },
        { 8192, 2, 1, 2, 4 }, { 16384, 1, 1, 2, 8 } } do
      local n, d, b, forward, backward = table.unpack(case)
      local one, more = moved(n, d, b, 1), moved(n, d, 2 * b, 1)
      local both, all = moved(n, d, b, 2), moved(n, d, 2 * b, 2)
      local x = 4 * n * d * b -- bytes
      t.eq({ n, (more - one) / x, (all - both - more + one) / x }, { n, forward, backward })
      local rest = (one - forward * x) / (x / b) -- coef once, and spectra by each of up to 4 parts
      t.ok(rest > 0 and rest <= 11, ("n = %d: %g for the coefficients"):format(n, rest))
    end
  end)

  t.test("the shared memory of other GPUs is enough, or it computes as fft", function()
    for _, kib in ipairs { 163, 99, 8 } do
      local settings = "EMULATE_SHARED_KIB=" .. kib
      gpu.compare("rac", "float32", { { 70, 9, 17 }, { 1024, 3, 2, 1 }, { 1025, 1, 1, 1 } },
        TOLERANCE, settings)
      t.eq({ kib, moved(1025, 1, 1, 1, settings) > 0 }, { kib, kib > 8 })
    end
  end)
end

t.done()
