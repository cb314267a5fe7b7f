-- test_gpu_capture.lua: captures GPU work as graphs and runs them again. The GPU is
-- tests/emulated.so, or the device in TOEPLAB_TEST_GPU.
local gpu = require("gpu").name
local core = require "toeplab.core"
core.use_device(gpu)
local named = require "toeplab.base.streams"
local mixers = require "toeplab.nn.mixers"
local tl = require "toeplab"
local t = require "harness"

local function streams() return { named.get "one" } end

t.test("a graph draws the numbers that follow", function()
  tl.seed(3)
  local x, s = core.ones(8), streams()[1]
  local y
  local g = assert(core.capture(streams(), function()
    y = s:dropout(x, 0.5)
    return { y }
  end))
  local shown = {}
  for i = 1, 3 do
    t.eq(g:run(streams()), true)
    shown[i] = y:totable()
  end
  tl.seed(3)
  s = streams()[1]
  for i = 1, 3 do t.eq(s:dropout(x, 0.5):totable(), shown[i]) end
  t.eq({ s:state() }, { streams()[1]:state() })
  t.eq(g:run(streams()), true)
  streams()[1]:set_state((s:state()), 6)
  t.eq(y:totable(), s:dropout(x, 0.5):totable())
  tl.seed(4)
  t.eq(g:run(streams()), false) -- the stream has another key
  t.raises(function() g:run {} end, "captured with 1 streams, run with 0")
end)

t.test("so do random indices, and each run sorts what it finds", function()
  tl.seed(3)
  local s = streams()[1]
  local lengths, x = core.tensor { 3, 90 } * 1, core.zeros(1, 3) -- both are on the GPU
  local ids, places, order, top
  local g = assert(core.capture(streams(), function()
    ids, places = s:integers(1000, 7), s:places(lengths, 5)
    order, top = x:argsort(), x:topk(2)
    return { ids, places, order, top }
  end))
  local rows = { { { 5, 1, 3 }, { 1, 2, 0 }, { 0, 2 } }, { { 1, 1, 0 }, { 2, 0, 1 }, { 0, 1 } } }
  local shown = {}
  for i, row in ipairs(rows) do
    x:copy(core.tensor { row[1] })
    t.eq(g:run(streams()), true)
    t.eq({ order:totable(), top:totable() }, { { row[2] }, { row[3] } })
    shown[i] = { ids:totable(), places:totable() }
  end
  tl.seed(3)
  s = streams()[1]
  for i = 1, 2 do
    t.eq({ s:integers(1000, 7):totable(), s:places(lengths, 5):totable() }, shown[i])
  end
end)

-- Mixers that make indices from their input or from a stream.
local CHOOSING = {
  reformer = { chunk = 4 }, informer = { features = 4, max_length = 20 },
  skyformer = { features = 4 }, bigbird = { block = 2, random_blocks = 1 },
}

for name, given in pairs(CHOOSING) do
  t.test("a mixer with padding: " .. name, function()
    local ones, mask = core.ones(1, 14), core.concat({ core.ones(1, 9), core.zeros(1, 5) }, 2)
    mask = core.concat({ ones, mask }, 1)
    local function outputs(make)
      tl.seed(3)
      local o = { heads = 2 }
      for key, value in pairs(given) do o[key] = value end
      local mixer, list = mixers.class(name)(6, o), {}
      local x = tl.stream_of("x"):normal(core.zeros(2, 14, 6), 0, 1)
      core.no_grad(mixer, x, mask) -- its tables exist from now on
      local run = make(function() return core.no_grad(mixer, x, mask) end)
      for i = 1, 3 do list[i] = run():totable() end
      return list
    end
    local want = outputs(function(f) return f end)
    t.eq(outputs(function(f)
      local used, y = {}, nil
      for _, entry in ipairs(named.list()) do used[#used + 1] = entry.stream end
      local g = assert(core.capture(used, function()
        y = f()
        return { y }
      end))
      return function()
        t.eq(g:run(used), true)
        return y
      end
    end), want)
  end)
end

local REFUSED = {
  ["reading"] = { function(x) return (x + x):item() end, "to the CPU" },
  ["a tensor of the CPU"] = { function(x) return x + core.tensor { 2 } end, "on the CPU" },
  ["waiting"] = { function() core.synchronize() end, "to the CPU" },
  ["a capture"] = { function() return core.capture({}, print) end,
    "another capture is in progress" },
  ["a stream that is not given"] = { function(x)
    return core.stream(1, "own"):dropout(x, 0.5)
  end, "a random stream that was not declared" },
  ["a transform of a new size"] = { function() return core.fft(core.zeros(34, 2), 1) end,
    "a new size" },
  ["an error of its own"] = { function() error "on purpose" end, "on purpose" },
}

for name, case in pairs(REFUSED) do
  t.test("no part of a graph: " .. name, function()
    local x, w = core.ones(1), core.ones(1):require_grad()
    local s = streams()[1]
    local _, offset = s:state()
    local g, why = core.capture(streams(), function()
      s:dropout(x, 0.5)
      local lost = w * x
      case[1](x)
      return { lost }
    end)
    t.eq(g, nil)
    t.ok(tostring(why):find(case[2], 1, true), tostring(why))
    t.eq(select(2, s:state()), offset)
    t.eq(core.tape_length(), 0)
    t.eq((x + x):item(), 2.0) -- unchanged
  end)
end

t.test("memory of before that goes in a capture, and of the capture that goes after", function()
  core.memory_trim()
  local before = core.memory().live
  for _ = 1, 5 do
    local old, x = core.ones(4096), core.ones(4096)
    local y
    local g = assert(core.capture({}, function()
      local z = x + x
      old:close()
      z = z + x
      y = z * z
      return { y }
    end))
    g:run {}
    t.eq(y:sum():item(), 9.0 * 4096)
    x:fill(2)
    g:run {}
    t.eq(y:sum():item(), 36.0 * 4096)
    g:close() -- y outlives the graph
    t.eq(y:sum():item(), 36.0 * 4096)
  end
  collectgarbage()
  collectgarbage()
  core.memory_trim()
  t.eq(core.memory().live, before)
end)

t.test("the peak of memory has what was in use at one time, in graphs and outside", function()
  local MIB, x, y = 1 << 20, core.ones(16 << 20), nil -- 64 MiB
  core.memory_reset_peak()
  local before = core.memory().live
  local function more() return (core.memory().peak - before) // MIB end
  local function shown() -- whether memory is still in use, or its peak was not reset
    local m = core.memory()
    return ("live %d, peak %d MiB more"):format((m.live - before) // MIB, (m.peak - before) // MIB)
  end
  core.zeros(16 << 20):close()
  local g = assert(core.capture({}, function()
    y = x + x
    return { y }
  end))
  g:run {}
  t.ok(more() >= 64 and more() < 112, shown()) -- CUDA may round the memory of graphs up
  core.zeros(16 << 20):close()
  t.ok(more() >= 128 and more() < 176, shown())
  local most = more()
  y:close()
  g:close()
  core.zeros(16 << 20):close()
  t.ok(more() == most, shown())
  core.memory_reset_peak()
  t.ok(more() <= 0, shown())
end)

t.test("what a capture made is not readable before a run, or if it is not a result", function()
  local x, one, two = core.ones(3), nil, nil
  local g = assert(core.capture({}, function()
    one, two = x + x, x * x
    return { one }
  end))
  for _, f in ipairs { one.totable, one.sum, function(y) return y + y end } do
    t.raises(f, "made in a capture", one)
  end
  local _, unborn = pcall(core.sha256, one)
  t.eq(unborn.status, "EINVAL") -- not out of memory
  g:run {}
  t.eq(one:totable(), { 2, 2, 2 })
  t.raises(two.totable, "made in a capture", two)
  local _, why = core.capture({}, function() return { two } end)
  t.ok(tostring(why):find("result 1 was made in another capture", 1, true), tostring(why))
  core.capture({}, function()
    two = x + x
    error "on purpose"
  end)
  t.raises(two.totable, "made in a capture", two)
  t.raises(core.capture, "streams 1 and 2 have the same key", { streams()[1], streams()[1] }, print)
  one:close()
  two:close()
end)

t.test("a capture refuses a function that does not return a list of tensors", function()
  for _, wrong in ipairs { 1, "x", { 1 } } do
    local g, why = core.capture({}, function() return wrong end)
    t.ok(g == nil and why, tostring(why))
    t.eq((core.ones(2) + 1):totable(), { 2, 2 })
  end
  t.raises(core.capture, "element 1 is not a stream", { 1 }, print)
  t.raises(core.capture, "table expected", nil, print)
end)

t.test("a graph keeps the plans of its transforms until it is closed", function()
  local x, y = core.range(1, 36):reshape(18, 2), nil
  local want = core.fft(x, 1):totable()
  local g = assert(core.capture({}, function()
    y = core.fft(x, 1)
    return { y }
  end))
  for round = 1, 2 do
    for n = 1, 70 do core.fft(core.ones(n, 2), 1) end
    if round == 1 then
      g:run {}
      t.eq(y:totable(), want)
      g:close()
      y:close()
    end
  end
  t.eq(core.fft(x, 1):totable(), want)
end)

t.test("a graph knows where its tensors are", function()
  local x = core.ones(3, 3)
  local y
  local g = assert(core.capture({}, function()
    y = x + x
    return { y }
  end))
  t.eq(g:run {}, true)
  core.svd(x)
  t.eq(g:run {}, false)
  t.eq((x + x):sum():item(), 18.0) -- back on the GPU, perhaps at the same address
  if g:run {} then t.eq(y:sum():item(), 18.0) end
end)

t.test("the processor has no graphs", function()
  local text = t.shell(core.sys.executable() .. [[ lua -e '
    print(pcall(require "toeplab.core".capture, {}, print))' 2>&1]])
  t.ok(text:find("device 'cpu' has no graphs", 1, true), text)
end)

t.done()
