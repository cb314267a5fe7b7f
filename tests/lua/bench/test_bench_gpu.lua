-- test_bench_gpu.lua: `bench gpu` runs the tests of a GPU and measures it within its time.
local t = require "harness"
local core = require "toeplab.core"
local grids = require "toeplab.bench.grids"
local json = require "toeplab.base.json"
local shell = require "toeplab.base.shell"

-- Calls bench gpu's checks of a device in a process whose tests are those of the folder dir, nil:
-- of none. settings: of its environment.
local function checks(dir, code, device, settings)
  local words = ([[%s %s %s lua -e "
    local say = function(...) print(string.format(...)) end
    local o = { quick = true, say = say, progress = say }
    %s
    require('toeplab.bench.gpu').correct(o, '%s')" 2>&1]])
  return (t.shell(words:format(settings or "", dir and "TOEPLAB_TESTS=" .. shell.quote(dir) or "",
    shell.quote(core.sys.executable()), code or "", device or "cpu")))
end

t.test("bench gpu starts the tests where ctest does, whatever the user's folder", function()
  t.in_folder(function(folder)
    t.shell(("mkdir -p '%s/lua/a' && cp %stests/reference.h5 '%s'"):format(folder, t.root, folder))
    t.write(folder .. "/lua/on_devices.txt", "a/b\n")
    t.write(folder .. "/lua/helper.lua", "return 'helped'")
    t.write(folder .. "/lua/a/test_b.lua",
      "print(require 'helper', io.open 'a/test_b.lua' and '7 passed')")
    local text = checks(folder)
    t.ok(text:find "\nok +a/b +helped\t7 passed", text)
    t.holds(checks(folder .. "/none"), folder .. "/none/reference.h5: set TOEPLAB_TESTS to the")
  end)
  t.holds(checks(nil, "package.searchpath = function() return '/usr/share/lua/bench/gpu.lua' end"),
    "an installation does not contain them; set TOEPLAB_TESTS to the tests folder")
end)

t.test("a GPU runs all tests of kernels, then the tools of compute-sanitizer", function()
  t.in_folder(function(folder)
    t.shell(("mkdir -p '%s/lua/glue' && cp %stests/reference.h5 '%s'"):format(folder, t.root,
      folder))
    t.write(folder .. "/lua/on_devices.txt", "glue/core_ops\n")
    for _, name in ipairs { "gpu", "gpu_tiles", "other" } do
      t.write(("%s/lua/glue/test_%s.lua"):format(folder, name), "")
    end
    for _, name in ipairs { "program", "compute-sanitizer" } do -- both say what they are given
      t.write(folder .. "/" .. name, "#!/bin/sh\n"
        .. [[echo "${TOEPLAB_DEVICE+device }${TOEPLAB_TEST_GPU+gpu }${0##*/} $* passed"]])
    end
    t.shell(("chmod +x '%s/program' '%s/compute-sanitizer'"):format(folder, folder))
    local code = ("o.quick = false require('toeplab.core').sys.executable = "
      .. "function() return '%s/program' end"):format(folder)
    local text, said = checks(folder, code, "cuda:7", ([[PATH='%s':"$PATH"]]):format(folder)), {}
    for line in text:gsub(folder .. "/", ""):gmatch "ok +([^\n]+) passed %(" do
      if not line:find "^verify" then said[#said + 1] = line:gsub(" +", " ") end
    end
    local options = "--target-processes all --error-exitcode 9 --log-file /dev/stderr program lua "
    local ops, tiles = "glue/test_core_ops.lua", "glue/test_gpu_tiles.lua"
    t.eq(said, { "glue/gpu gpu program lua glue/test_gpu.lua",
      "glue/gpu_tiles gpu program lua " .. tiles, "glue/core_ops device program lua " .. ops,
      "memcheck glue/core_ops device compute-sanitizer --tool memcheck " .. options .. ops,
      "racecheck glue/gpu_tiles gpu compute-sanitizer --tool racecheck " .. options .. tiles
        .. " batches and channels",
      "racecheck glue/gpu_rac gpu compute-sanitizer --tool racecheck " .. options
        .. "glue/test_gpu_rac.lua batches and channels",
      "initcheck glue/core_ops device compute-sanitizer --tool initcheck " .. options .. ops,
      "synccheck glue/gpu_tiles gpu compute-sanitizer --tool synccheck " .. options .. tiles
        .. " batches and channels" })
    t.holds(core.sys.read_file(t.root .. "tests/lua/" .. tiles), '"batches and channels in "')
  end)
end)

local device = core.sys.executable():gsub("[^/]*$", "") .. "tests/emulated.so"

local function need_device()
  if not core.sys.exists(device) then t.skip "the emulated GPU needs a C++ compiler" end
end

-- The lines of results.jsonl that `bench gpu` writes on the emulated GPU, with one test, and its
-- output and exit code.
local function gpu_lines(folder, words)
  need_device()
  local tests = folder .. "/tests"
  t.shell(("mkdir -p '%s/lua/a' && cp %stests/reference.h5 '%s'"):format(tests, t.root, tests))
  t.write(tests .. "/lua/on_devices.txt", "a/quick\n")
  t.write(tests .. "/lua/a/test_quick.lua", "print '7 passed'")
  local text, code = t.shell(("TOEPLAB_TESTS='%s' TOEPLAB_PYTHON= '%s' bench gpu --device '%s' -q "
    .. "-C '%s' -o '%s/out' --lengths 8 --batches 1 --dim 4 -r 1 %s 2>&1"):format(tests,
    core.sys.executable(), device, folder, folder, words))
  local lines = {}
  for line in assert(io.lines(folder .. "/out/results.jsonl"), text) do
    lines[#lines + 1] = json.decode(line)
  end
  return lines, text, code
end

t.test("bench gpu writes a line for each check and measurement", function()
  t.in_folder(function(folder)
    local lines, text, code = gpu_lines(folder, "--seconds 300")
    t.ok(code == 0, text)
    t.eq({ lines[1].step, lines[1].state }, { "device", "ok" })
    local names, benches, measured = {}, {}, {}
    for _, line in ipairs(lines) do
      if line.step == "check" then
        t.ok(line.state == "ok", text)
        names[#names + 1] = line.name
      elseif line.bench then
        t.ok(line.ms > 0 and line.by and line.pass, text)
        if benches[#benches] ~= line.bench then benches[#benches + 1] = line.bench end
        measured[line.bench .. " " .. line.by] = true
      end
    end
    table.sort(names)
    t.eq(names, { "a/quick", "verify", "verify bf16", "verify tf32" })
    t.eq(benches, { "tno", "lm", "ops" }) -- the most valuable first
    for _, by in ipairs { "fft", "rac", "matrix", "auto" } do
      t.ok(measured["tno " .. by] and measured["lm " .. by], by .. ":\n" .. text)
    end
  end)
end)

t.test("bench gpu begins nothing after its time", function()
  t.in_folder(function(folder)
    local lines, text, code = gpu_lines(folder, "--seconds 1")
    t.ok(code == 0, text) -- what is late has not failed
    t.eq({ lines[#lines].step, lines[#lines].state }, { "ops", "no time" })
    t.holds(text, "bench tno: not measured: no time is left")
    t.ok(lines[5].state == "LATE", text) -- the last check
  end)
end)

t.test("on a GPU bench tno has matrix to n 4,096, and it alone in each precision", function()
  need_device()
  local o = { device = device, precisions = { "float32", "bf16" } }
  local function who(n)
    local names, list, too_slow = {}, grids.ours("tno", { b = 8, n = n }, o)
    for i, c in ipairs(list) do names[i] = c.by .. " " .. c.options.precision end
    return table.concat(names, ", "), table.concat(too_slow, ", ")
  end
  t.eq({ who(4096) }, { "rac float32, fft float32, matrix float32, matrix bf16", "" })
  o.backends = { "matrix", "fft", "auto" }
  t.eq({ who(8192) }, { "fft float32, auto float32, auto bf16", "matrix, matrix" })
  for name, backends in pairs { tno = {}, operator = { "matrix" }, lm = { "fft" } } do
    t.ok(grids.takes_precision(name, { device = device, backends = #backends > 0 and backends }),
      name)
  end
  t.eq({ grids.takes_precision("tno", { device = device, backends = { "fft" } }),
    grids.takes_precision("tno", { device = "cpu" }), grids.takes_precision("encoder", o) },
    { false, false, false })
end)

t.test("a ratio of bench tno is to fft, whatever the precision", function()
  need_device()
  t.in_folder(function(folder)
    local out, code = t.shell(("TOEPLAB_PYTHON= '%s' bench tno --device '%s' --backends fft,matrix "
      .. "--precision float32,bf16 -q -r 1 --lengths 8 --batches 1 --dim 4 --json -C '%s' "
      .. "2>/dev/null"):format(core.sys.executable(), device, folder))
    t.ok(code == 0, out)
    local rows = {}
    for line in out:gmatch "[^\n]+" do
      local row = json.decode(line)
      rows[#rows + 1] = ("%s %s %s over %s"):format(row.pass, row.by, row.precision, row.over)
      if row.by == "fft" then t.eq(row.ratio, 1.0) end
    end
    t.eq(rows, { "fwd fft float32 over fft", "fwd matrix float32 over fft",
      "fwd matrix bf16 over fft", "fwd+bwd fft float32 over fft",
      "fwd+bwd matrix float32 over fft", "fwd+bwd matrix bf16 over fft" })
  end)
end)

t.done()
