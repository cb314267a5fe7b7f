-- test_gpu_tiles.lua: compares the backend matrix on a GPU, which multiplies on tensor cores, with
-- the definition on the same GPU (naive, with float64 sums), at lengths up to 4,096. The GPU is
-- tests/emulated.so, or the device in TOEPLAB_TEST_GPU.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"
local t = require "harness"

local gpu = require "gpu"

-- Each length beside a power of two, where tiles, chunks and blocks of rows end. The emulation
-- takes seconds for a long one, so those are not tested in each way.
local lengths = {}
for power = 1, 9 do
  for n = (1 << power) - 1, (1 << power) + 1 do
    lengths[#lengths + 1] = n < 300 and { n, 3, 2 } or { n, 1, 1, power % 2 }
  end
end
local long = {
  float32 = { { 1025, 1, 1, 0 }, { 2048, 1, 1, 1 } },
  tf32 = { { 1024, 1, 1, 0 }, { 2047, 1, 1, 1 } },
  bf16 = { { 1023, 2, 1, 0 }, { 2049, 1, 2, 1 }, { 4096, 1, 1, 1 } },
}
local shapes = {}
for b = 1, 33, 2 do shapes[#shapes + 1] = { 1 + b * 7 % 40, 1 + b * 5 % 18, b, b // 2 % 2 } end

for precision, tolerance in pairs { float32 = 1e-5, tf32 = 3e-5, bf16 = 1e-2 } do
  t.test("lengths up to 4,096 in " .. precision, function()
    gpu.compare("matrix", precision, lengths, tolerance)
    gpu.compare("matrix", precision, long[precision], tolerance)
  end)
  t.test("batches and channels in " .. precision, function()
    gpu.compare("matrix", precision, shapes, tolerance)
  end)
  if gpu.emulated then
    t.test("the shared memory of capability 8.6 and 8.9 is enough in " .. precision, function()
      gpu.compare("matrix", precision, { { 70, 9, 17 }, { 130, 3, 2 } }, tolerance,
        "EMULATE_SHARED_KIB=99")
    end)
  end
end

-- Returns the backends that a new process chooses at each length, by lines, and how many lines the
-- file of choices in a folder then has, and the first.
local function chosen(folder, lengths, settings)
  t.write(folder .. "/x.lua", [[
    local core = require "toeplab.core"
    for _, n in ipairs(arg) do
      print(core.tno("auto", math.tointeger(n), math.tointeger(os.getenv "D" or 2), true):chosen())
    end]])
  local out = t.shell(("TOEPLAB_CACHE=%s TOEPLAB_DEVICE=%s %s %s lua %s %s 2>&1"):format(
    shell.quote(folder), shell.quote(gpu.name), settings or "",
    shell.quote(core.sys.executable()), shell.quote(folder .. "/x.lua"), lengths))
  local path = folder .. "/backends.chosen"
  local text = core.sys.exists(path) and core.sys.read_file(path) or ""
  return out, select(2, text:gsub("\n", "\n")), text:match "^[^\n]*"
end

t.test("at the lengths of its forms auto measures a GPU once, and believes the file", function()
  if not gpu.emulated then t.skip "the emulated GPU is measured only on request" end
  t.in_folder(function(folder)
    t.eq({ chosen(folder, "16 512 513 3000 16384 16385") },
      { "matrix\nmatrix\nrac\nrac\nrac\nfft\n", 0, "" })
    local small = "D=20 EMULATE_MEASURE=1 EMULATE_MIB=1" -- the form decides where nothing fits
    t.eq({ chosen(folder, "200", small) }, { "matrix\n", 0, "" })
    local text, lines, line = chosen(folder, "100 200 16385", "EMULATE_MEASURE=1")
    local begin, name = line:match "^(.*emulated card, .* precision 0 200 2 1 )(%w+)$"
    t.eq({ text, lines }, { ("matrix\n%s\nfft\n"):format(name), 1 })
    for word, count in pairs { matrix = 1, fft = 1, rac = 1, naive = 2 } do -- not a candidate
      t.write(folder .. "/backends.chosen", begin .. word .. "\n")
      text, lines = chosen(folder, "200", "EMULATE_MEASURE=1")
      t.eq(lines, count)
      t.ok(text == word .. "\n" or word == "naive" and ("matrix fft rac"):find(text:sub(1, -2)),
        text)
    end
  end)
end)

t.test("auto takes matrix up to a length that depends on the precision", function()
  if not gpu.emulated then t.skip "near that length a GPU is measured" end
  local path, script = os.tmpname(), [[
    local core = require "toeplab.core"
    for _, word in ipairs(arg) do
      local precision, n, causal = word:match "(%w+)=(%d+)(c?)"
      core.precision(precision)
      local operator = core.tno("auto", math.tointeger(n), 2, causal == "c")
      io.write(operator:chosen() == "matrix" and "m" or "-")
    end]]
  assert(core.sys.write_file(path, script))
  t.eq(t.shell(("TOEPLAB_DEVICE=%s %s lua %s %s 2>&1"):format(shell.quote(gpu.name),
    shell.quote(core.sys.executable()), shell.quote(path), "float32=16 float32=512c float32=513c "
    .. "tf32=1024c tf32=1025c bf16=2048c bf16=2049c bf16=1024 bf16=1025")), "mm-m-m-m-")
  os.remove(path)
end)

t.done()
