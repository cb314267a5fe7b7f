-- test_gpu.lua: tests training and running experiments on a GPU: the emulated one in
-- tests/emulated.so, or the device in TOEPLAB_TEST_GPU.
local checkpoint = require "toeplab.models.files.checkpoint"
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"
local t = require "harness"
local the_gpu = require "gpu"
local trials = require "trials"

local program = core.sys.executable()
local gpu, emulated = the_gpu.name, the_gpu.emulated
local STEPS = emulated and 20 or 100

-- Returns what a command prints, and whether it succeeded. environment: "NAME=value".
local function says(environment, ...)
  local words = { "env", environment }
  for _, word in ipairs { program, "--threads", "2", ... } do
    words[#words + 1] = shell.quote(word)
  end
  local text, code = t.shell(table.concat(words, " ") .. " 2>&1")
  return text, code == 0
end

-- Returns the same for a script on a device.
local function script(text, device, environment)
  local path = os.tmpname()
  t.write(path, text)
  local out, good = says(("TOEPLAB_DEVICE=%s %s"):format(shell.quote(device), environment or ""),
    "lua", path)
  os.remove(path)
  return out, good
end

-- ---- Training ---------------------------------------------------------------------------------

local TRAIN = [[
local tl = require "toeplab"
tl.seed(7)
local model = tl.models.tnn_lm { vocab = 40, layers = 2, dim = 16, backend = "rac", dropout = 0.1,
  rpe_dim = 8, rpe_layers = 2, layout = "%s", norm = "%s" }
local opt = tl.optim.adam(model, { lr = 0.003, clip = 1.0, schedule = "inverse_sqrt", warmup = 5 })
tl.train.graph(model, opt)
local s = tl.stream(3, "data")
local text = {}
for i = 1, 500 do text[i] = i %% 7 + s:below(4) end
local ids = tl.ids(text)
for step = 1, %d do
  local loss = tl.train.lm_step(model, opt, tl.windows(ids, tl.ids { step, 20 * step %% 470 }, 25))
  print(("%%.9g"):format(loss))
end
]]

for layout, norm in pairs { A = "simplermsnorm", B = "layernorm" } do
  t.test(("%d steps on a GPU are those on the CPU: layout %s"):format(STEPS, layout), function()
    local text = TRAIN:format(layout, norm, STEPS)
    local here, there = script(text, "cpu"), script(text, gpu)
    local count, numbers = 0, there:gmatch "%S+"
    for word in here:gmatch "%S+" do
      local a, b = tonumber(word), tonumber(numbers())
      t.ok(a and b and math.abs(a - b) < 1e-4 * math.abs(a), here .. there)
      count = count + 1
    end
    t.eq(count, STEPS)
  end)
end

t.test("memory is the GPU's, and is given back", function()
  local out = script([[
    local core = require "toeplab.core"
    local before = core.memory()
    local x = core.zeros(256, 1024)
    core.memory_reset_peak()
    local y = core.zeros(512, 1024)
    local m = core.memory()
    y:close()
    core.synchronize()
    print(m.live - before.live, m.peak - core.memory().live, core.memory().tensors,
      core.memory().cached >= 2 << 20)
    core.memory_reset_peak()
    print(core.memory().peak == core.memory().live)]], gpu)
  t.eq(out, ("%d\t%d\t1\ttrue\ntrue\n"):format(3 << 20, 2 << 20))
end)

local FULL = [[
local tl = require "toeplab"
local x = tl.ones(1024, 1024)
local ok, why = pcall(function()
  local list = {}
  for i = 1, 1 << 20 do list[i] = tl.zeros(1024, 1024) end
end)
print(ok, why.status, (tostring(why):gsub("^.-:%d+: ", "")))
collectgarbage()
print((x + x):sum():item())
]]

t.test("a GPU that is full is an error with sizes, and work goes on", function()
  if not emulated then t.skip "a real GPU has too much memory to fill" end
  local out = script(FULL, gpu, "EMULATE_MIB=64 EMULATE_OTHERS=7")
  local all, left, live, cached, others = out:match("^false\tENOMEM\tcuda: %d+ bytes requested: "
    .. "out of memory on the GPU: of (%d+) MiB (%d+) are free, (%d+) in use here, (%d+) cached "
    .. "here, and (%d+) held by other processes and CUDA\n2097152.0\n$")
  t.ok(all, out)
  t.eq({ all, others }, { "64", "7" })
  t.ok(math.abs(64 - 7 - left - live - cached) <= 3, out) -- each is rounded down
end)

-- Options of a model, its precision and micro batches, and what an update that does not fit tells.
for name, o in pairs {
  all = { "{}", "float32", 1, "more micro batches than 1, recompute = true, precision bf16" },
  ["recompute is on"] = { "{ recompute = true }", "tf32", 2,
    "more micro batches than 2, precision bf16" },
  ["bf16 is on"] = { "{}", "bf16", 1, "more micro batches than 1, recompute = true" },
} do
  t.test("an update for which the GPU is too small says what would need less: " .. name, function()
    if not emulated then t.skip "a real GPU has too much memory to fill" end
    local out = script(([[
      local tl = require "toeplab"
      tl.precision %q
      local model = tl.models.tnn_lm(tl.overlay({ vocab = 40, layers = 2, dim = 64, rpe_dim = 8,
        rpe_layers = 1 }, %s))
      local opt = tl.optim.adam(model, { lr = 0.003 })
      local row = {}
      for i = 1, 513 do row[i] = i %% 40 end
      print(pcall(tl.train.lm_step, model, opt, tl.ids { row, row, row, row }, %d))]]):format(
        o[2], o[1], o[3]), gpu, "EMULATE_MIB=4")
    t.holds(out, "held by other processes and CUDA")
    t.eq(out:match "less memory: ([^\n]*)", o[4])
  end)
end

local RANGES = [[
local tl = require "toeplab"
local net = tl.nn.Sequential(tl.nn.Linear(4, 4), tl.relu, tl.nn.Linear(4, 2))
net(tl.ones(3, 4))
print(pcall(net, tl.ones(3, 5)))
]]

t.test("a profiler sees calls of modules, also of one that fails, and backward passes", function()
  if not emulated then t.skip "only the emulated GPU shows its ranges" end
  local path = os.tmpname()
  local settings = "EMULATE_RANGES=" .. shell.quote(path)
  script(RANGES, gpu, settings)
  t.eq(core.sys.read_file(path), "") -- no profiler is attached
  script(RANGES .. "net(tl.ones(3, 4)):sum():backward()", gpu,
    settings .. " NVTX_INJECTION64_PATH=/its/library.so")
  local call = "+ Sequential\n+ Linear 1\n-\n+ Linear 3\n-\n-\n"
  t.eq(core.sys.read_file(path), call .. "+ Sequential\n+ Linear 1\n-\n-\n" .. call
    .. "+ backward\n-\n")
  os.remove(path)
end)

t.test("a GPU for which no kernels are built is refused by name", function()
  if not emulated then t.skip "only the emulated GPU has any compute capability" end
  local out = script("print(1)", gpu, "EMULATE_CAPABILITY=75")
  t.holds(out, "emulated card has compute capability 7.5, but the kernels are built for 8.0 and")
end)

t.test("the peak is never below what is in use", function()
  local out = script([[
    local core = require "toeplab.core"
    local x = core.zeros(256, 1024)
    core.memory_reset_peak()
    print(core.memory().peak >= core.memory().live)]], gpu)
  t.eq(out, "true\n")
end)

t.test("a GPU without room for a graph takes the steps without it", function()
  if not emulated then t.skip "only the emulated GPU can refuse a graph" end
  local text = TRAIN:format("A", "simplermsnorm", 8)
  local want = script(text, gpu, "TOEPLAB_GRAPHS=off")
  for _, when in ipairs { "upload", "launch" } do
    local out = script(text, gpu, "EMULATE_FULL=" .. when)
    t.eq(out:gsub("Lua warning: [^\n]*slower: [^\n]*out of memory[^\n]*\n", ""), want)
    t.eq(out:find("slower", 1, true) ~= nil, when == "upload")
  end
end)

t.test("a GPU without pinned memory for uploads computes the same", function()
  if not emulated then return end
  local text = TRAIN:format("A", "simplermsnorm", 3):gsub('"rac"',
    '"ski", decay = "none", encoder = "piecewise"') -- ski uploads tables
  local want = script(text, gpu)
  t.ok(want:find "^%d+%.%d+\n", want)
  t.eq(script(text, gpu, "EMULATE_PINNED=0"), want)
end)

t.test("whatever reads first reports an index out of range", function()
  local out = script([[
    local core = require "toeplab.core"
    for i, name in ipairs { "totable", "item", "item" } do
      local ok, why = pcall(function()
        local y = core.ones(3, 2):gather(core.ids { ({ 5, -1, 2147483647 })[i] })
        return name == "item" and y:sum():item() or y:totable()
      end)
      print(ok, why.status, (tostring(why):match "index [-%d]+ is out of range"))
    end
    local ok, why = pcall(function()
      return core.decay(core.ones(2, 1), core.range(0, 1), core.zeros(1)):totable()
    end)
    print(ok, why.status, (tostring(why):match "a gamma is outside %(0,1%]"))
    print(core.ones(3):sum():item())]], gpu)
  local told = "false\tEINVAL\tindex %d is out of range\n"
  t.eq(out, told:format(5) .. told:format(-1) .. told:format(2147483647)
    .. "false\tEINVAL\ta gamma is outside (0,1]\n3.0\n")
end)

-- ---- Experiments ------------------------------------------------------------------------------

local EXPERIMENT = [[
local tl = require "toeplab"
return tl.experiment "device" {
  fixed = { steps = 6, fail = 0, wait = 0.0, folder = "" }, grid = { width = { 8 } },
  checkpoint = { steps = 2 },
  trial = function(t, c)
    t:log({ gpu = tl.device() == "cpu" and 0 or 1, pid = tl.sys.getpid() }, 0)
    if c.wait > 0 then -- waits for the other trial to begin
      local file = io.open(c.folder .. "/" .. t.seed, "w")
      file:close()
      local last = tl.sys.clock() + c.wait
      local other = c.folder .. "/" .. 3 - t.seed
      while not tl.sys.exists(other) and tl.sys.clock() < last do tl.sys.sleep(0.02) end
      t:log({ met = tl.sys.exists(other) and 1 or 0 }, 0)
    end
    local data = tl.corpus("text:" .. ("how now brown cow, "):rep(40), { batch = 2, length = 16 })
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 1, dim = c.width,
      rpe_dim = 4, rpe_layers = 1, dropout = 0.1 }
    local opt = tl.train.graph(model, tl.optim.adam(model, { lr = 0.01 }))
    for step in t:steps(c.steps, model, opt, data) do
      if step == 5 and (t.seed == c.fail or os.getenv "FAIL") then error "on purpose" end
      t:log { loss = tl.train.lm_step(model, opt, data:batch(step)) }
    end
    t:log { bits = tl.eval.bits_per_token(model, data.test, 16) }
  end,
}
]]

-- Returns the rows of a query as {a, b, ...}, in text.
local function column(folder, sql)
  local list = {}
  for i, row in ipairs(trials.query(folder, sql)) do list[i] = row.x end
  return list
end

t.test("device is a key: of the configuration and the id, recorded with the GPU", function()
  t.in_folder(function(folder)
    local axis = EXPERIMENT:gsub("width = { 8 }", ("width = { 8, 12 }, device = { 'cpu', %q }")
      :format(gpu))
    t.eq(trials.run(folder, axis), 0)
    t.eq(#trials.query(folder, "SELECT DISTINCT id FROM v_trials"), 4)
    t.eq(column(folder, [[SELECT json_extract(t.config, '$.device') || ' ' || l.value AS x
      FROM v_trials t JOIN v_last l ON l.trial = t.id WHERE l.name = 'gpu'
      GROUP BY x ORDER BY l.value]]), { "cpu 0.0", gpu .. " 1.0" })
    local about = column(folder, [[SELECT json_extract(provenance, '$.device') AS x FROM v_trials
      WHERE json_extract(config, '$.device') <> 'cpu']])
    t.ok(#about == 2 and about[1]:find("compute capability", 1, true), about[1])
    local losses = column(folder, [[SELECT l.value AS x FROM v_trials t
      JOIN v_last l ON l.trial = t.id
      WHERE l.name = 'bits' AND json_extract(t.config, '$.width') = 8]])
    t.ok(#losses == 2 and math.abs(losses[1] - losses[2]) < 1e-4 * losses[1])
    local shown = says("X=", "show", "-C", folder .. "/results", "@last")
    t.ok(shown:find("\ndevice +%S+: ") and shown:find("\n  device = ", 1, true), shown)
    -- belongs to a second sweep, but is done
    t.eq(trials.run(folder, EXPERIMENT, { "device=" .. gpu }), 0)
    t.eq(#trials.query(folder, "SELECT DISTINCT id FROM v_trials"), 4)
  end)
end)

t.test("one trial has a GPU at a time, or several that share it", function()
  for share, met in pairs { { 1.0, 0.0 }, { 1.0, 1.0 } } do
    t.in_folder(function(folder)
      local words = { "device=" .. gpu, "seeds=2", "folder=" .. folder,
        "wait=" .. (share == 1 and "0.6" or "60") }
      t.eq(trials.run(folder, EXPERIMENT, words, { jobs = 2, share = share }), 0)
      t.eq(column(folder, "SELECT value AS x FROM v_last WHERE name = 'met' ORDER BY x DESC"), met)
    end)
  end
end)

t.test("several trials in turn on one GPU; after one that failed, in another process", function()
  t.in_folder(function(folder)
    local words = { "device=" .. gpu, "seeds=3", "fail=2" }
    t.eq(trials.run(folder, EXPERIMENT, words), 1)
    t.eq(column(folder, "SELECT status AS x FROM v_trials ORDER BY seed"),
      { "done", "failed", "done" })
    local pids = column(folder, [[SELECT l.value AS x FROM v_trials t
      JOIN v_last l ON l.trial = t.id WHERE l.name = 'pid' ORDER BY t.seed]])
    t.ok(pids[1] == pids[2] and pids[2] ~= pids[3], table.concat(pids, " "))
  end)
end)

local LARGE = [[
local tl = require "toeplab"
return tl.experiment "large" {
  fixed = {},
  trial = function(t)
    t:log({ pid = tl.sys.getpid(), cached = tl.memory().cached }, 0)
    t:log({ sum = tl.ones(32 << 20):sum():item() }, 1) -- 128 MiB
  end,
}
]]

t.test("a process keeps no memory of a trial that ended from others that share the GPU", function()
  t.in_folder(function(folder)
    t.eq(trials.run(folder, LARGE, { "device=" .. gpu, "seeds=2" }), 0)
    local pids = column(folder, "SELECT DISTINCT value AS x FROM v_last WHERE name = 'pid'")
    t.eq(#pids, 1)
    for _, bytes in ipairs(column(folder, "SELECT value AS x FROM v_last WHERE name = 'cached'")) do
      t.ok(bytes < 64 << 20, bytes)
    end
  end)
end)

for word, want in pairs {
  cud = "there is no device 'cud'; did you mean 'cuda'", ["cpu:1"] = "has no GPU numbers",
  ["cuda:99999"] = "device 'cuda:99999'", ["/no:such.so"] = "device '/no:such.so'",
  ["/"] = "device '/': ",
  ["cuda:x"] = "there is no device 'cuda:x'", ["cuda:99"] = "device 'cuda",
  ["/no/such.so"] = "device '/no/such.so'", [gpu .. ":99"] = "numbered from 0",
} do
  t.test("refused before any trial: device=" .. word:gsub("^/.*/", ""), function()
    t.in_folder(function(folder)
      local code, said = trials.run(folder, EXPERIMENT, { "device=" .. word })
      t.eq(code, 2)
      t.ok(said:find("x.lua:", 1, true) and said:find(want, 1, true), said)
      t.ok(not core.sys.exists(folder .. "/results/runs"), "a trial was begun")
    end)
  end)
end

t.test("TOEPLAB_DEVICE is the device of experiments that do not say", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", EXPERIMENT)
    local out, good = says("TOEPLAB_DEVICE=" .. shell.quote(gpu), "run", "-q", "-C",
      folder .. "/results", folder .. "/x.lua")
    t.ok(good, out)
    t.eq(column(folder, "SELECT json_extract(config, '$.device') AS x FROM v_trials"), { gpu })
    out, good = says("X=", "reproduce", "--ignore", "pid", "-C", folder .. "/results", "@last")
    t.ok(good and out:find "bit%-identical" and not out:find "has changed since the training", out)
    out = says("X=", "run", "-q", "-C", folder .. "/results", folder .. "/x.lua")
    t.eq(#trials.query(folder, "SELECT id FROM v_trials"), 2)
  end)
end)

-- ---- Checkpoints ------------------------------------------------------------------------------

local LOAD = [[
local tl = require "toeplab"
local checkpoint = require "toeplab.models.files.checkpoint"
local state = checkpoint.read(%q)
local model = tl.models.tnn_lm { vocab = %d, layers = 1, dim = 8, rpe_dim = 4, rpe_layers = 1 }
local opt = tl.train.graph(model, tl.optim.adam(model, { lr = 0.01 }))
model:load(state.model)
opt:load(state.optim)
local ids = {}
for i = 1, 40 do ids[i] = i * i %% 9 end
for i = 1, 3 do print(("%%.9g"):format(tl.train.lm_step(model, opt, tl.ids { ids }))) end
]]

t.test("checkpoints move between devices", function()
  t.in_folder(function(folder)
    for _, device in ipairs { "cpu", gpu } do
      t.eq(trials.run(folder, EXPERIMENT, { "device=" .. device }), 0)
    end
    for _, row in ipairs(trials.query(folder, [[SELECT path FROM v_artifacts
      WHERE kind = 'checkpoint' AND step = 6]])) do
      local path = folder .. "/results/" .. row.path
      local vocab = checkpoint.read(path).model["embed.weight"]:dim(1)
      local text = LOAD:format(path, vocab)
      local here, there = script(text, "cpu"), script(text, gpu)
      local a, b = {}, {}
      for word in here:gmatch "%S+" do a[#a + 1] = tonumber(word) end
      for word in there:gmatch "%S+" do b[#b + 1] = tonumber(word) end
      t.ok(#a == 3, here)
      t.eq(a, b, 1e-4)
    end
  end)
end)

t.test("a trial goes on from a checkpoint, and says if it was another kind of GPU's", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", EXPERIMENT)
    local words = { "run", "-C", folder .. "/results", folder .. "/x.lua", "device=" .. gpu }
    local out, good = says("FAIL=1", table.unpack(words))
    t.ok(not good and out:find("on purpose", 1, true), out)
    out, good = says("EMULATE_MIB=2048", table.unpack(words))
    t.ok(good and out:find("resumed after step 4 of 6", 1, true), out)
    t.eq(out:find("made on another device", 1, true) ~= nil, emulated)
    local sql = "SELECT value AS x FROM v_metrics WHERE name = 'loss' ORDER BY step"
    local losses = column(folder, sql)
    t.in_folder(function(other) -- here the steps after the resumption are captured as graphs
      t.eq(trials.run(other, EXPERIMENT, { "device=" .. gpu }), 0)
      t.eq(column(other, sql), losses)
      t.eq(#losses, 6)
    end)
    local path = column(folder, [[SELECT path AS x FROM v_artifacts WHERE kind = 'checkpoint'
      ORDER BY step DESC]])[1]
    t.ok(checkpoint.read(folder .. "/results/" .. path).device:find "compute capability")
  end)
end)

-- ---- The bench --------------------------------------------------------------------------------

t.test("bench gpu tests a GPU and measures on it", function()
  if not emulated then t.skip "on a GPU, `bench gpu` runs this test" end
  t.in_folder(function(folder)
    local out, good = says("TOEPLAB_PYTHON=", "bench", "gpu", "-q", "--device", gpu, "--lengths",
      "8", "--batches", "1", "--dim", "4", "-r", "1", "-C", folder)
    t.ok(good, out)
    for _, words in ipairs { "ok     glue/core_ops ", "ok     verify ", "layer-norm n 8 b 1",
      "run 1 of bench-ops", "run 1 of bench-tno", "run 1 of bench-lm" } do
      t.ok(out:find(words, 1, true), words .. " is not in\n" .. out)
    end
    local shown = says("X=", "show", "-C", folder, "@last")
    t.ok(shown:find("\ndevice +emulated card") and shown:find("\n  device = ", 1, true), shown)
  end)
end)

t.test("bench gpu is not of the processor", function()
  local out, good = says("X=", "bench", "gpu", "-d", "cpu")
  t.ok(not good and out:find "is not a GPU", out)
end)

t.test("bench gpu without a GPU says so, and checks the kernels on the processor", function()
  if core.look_at_device "cuda" then t.skip "this machine has a GPU" end
  local out, good = says("X=", "bench", "gpu", "-q")
  t.ok(good and out:find "^no GPU: device 'cuda': " and out:find("ok     verify ", 1, true), out)
end)

-- ---- The quickstart ---------------------------------------------------------------------------

local quickstart = t.root .. "experiments/quickstart.lua"

-- Returns the process of a run in folder.
local function start(folder)
  local path = quickstart
  return assert(core.sys.spawn({ program, "--threads", "1", "run", "-C", folder, path,
    "scale=smoke", "device=" .. gpu, "sample=4", "lengths=32",
    "--checkpoint-steps", "2" }, folder .. "/log"))
end

local function ended(process)
  local code, signal = process:wait()
  return code or signal
end

local function wait(process)
  while not ended(process) do core.sys.sleep(0.02) end
  return ended(process)
end

-- Whether a trial in folder has a checkpoint.
local function begun(folder)
  for _, id in ipairs(core.sys.list(folder .. "/runs") or {}) do
    for _, name in ipairs(core.sys.list(folder .. "/runs/" .. id) or {}) do
      if name:find "^step%-.*%.h5$" then return true end
    end
  end
end

local function results(folder)
  return (says("X=", "export", "-C", folder, "--metrics", "--csv"))
end

t.test("the quickstart at smoke scale, killed and resumed, ends in the same numbers", function()
  t.in_folder(function(folder)
    local straight, killed = folder .. "/straight", folder .. "/killed"
    assert(core.sys.mkdir(straight) and core.sys.mkdir(killed))
    t.eq(wait(start(straight)), 0)
    local process = start(killed)
    while not begun(killed) and not ended(process) do core.sys.sleep(0.02) end
    process:signal "KILL"
    wait(process)
    t.eq(wait(start(killed)), 0)
    local log = t.read(killed .. "/log")
    t.ok(log:find("resumed after step", 1, true), log)
    local want = results(straight)
    t.ok(select(2, want:gsub("\n", "")) > 60, want)
    t.eq(results(killed), want)
  end)
end)

t.done()
