-- test_core.lua: the glue of tensors: making, looking, filling, gradients, memory, words of errors.
local core = require "toeplab.core"
local t = require "harness"
local eq, ok, raises, test = t.eq, t.ok, t.raises, t.test

local nan, inf = 0 / 0, 1 / 0

-- ---- Every name of the floor --------------------------------------------------------------------

local function check_names(table_, names, what)
  for name in names:gmatch "%S+" do
    ok(table_[name] ~= nil, what .. " lacks " .. name)
  end
end

test("all names are there", function()
  check_names(core, [[
    tensor ids zeros ones full range max min unary unary_names gate affine matmul linear concat
    softmax log_softmax cross_entropy linear_cross_entropy layer_norm rms_norm simple_rms_norm
    attention scale_norm batch_norm depthwise_conv selective_scan linear_recurrence
    cauchy fft ifft rfft irfft no_grad recording tape_clear
    tape_length stream adam_step sgd_step grad_norm tno decay backends backend_problems
    load_backend vocab_bytes vocab_chars windows ngram_bits sha256 sha256_file crc32 raw_bytes
    raw_read raw_write h5_write h5_open
    store sys memory memory_reset_peak memory_trim threads version build_info]], "core")
  check_names(core.sys, [[
    now clock isatty columns catch_signals interrupted getpid mkdir list exists size free_space
    hostname rename remove write_file read_file sleep executable cache_dir]], "core.sys")
  check_names(core.zeros(1), [[
    shape dim ndim numel type item get totable copy fill clone view close sum mean amax argmax
    cumsum reshape transpose permute narrow gather require_grad requires_grad grad set_grad
    backward float]], "a tensor")
  check_names(core.stream(1, "x"),
    "uniform normal permutation below unit dropout sample state set_state", "a stream")
  for _, name in ipairs(core.unary_names()) do
    ok(core[name] and core.zeros(1)[name], "no function " .. name)
  end
end)

test("no globals but Lua's own", function()
  local known = {}
  for name in ([[
    _G _VERSION assert collectgarbage coroutine debug dofile error getmetatable io ipairs load
    loadfile math next os package pairs pcall print rawequal rawget rawlen rawset require select
    setmetatable string table tonumber tostring type utf8 warn xpcall arg]]):gmatch "%S+" do
    known[name] = true
  end
  for name in pairs(_G) do ok(known[name], "global " .. tostring(name)) end
end)

-- ---- Making and looking -------------------------------------------------------------------------

test("tensor and totable", function()
  local x = core.tensor { { 1, 2, 3 }, { 4, 5, 6.5 } }
  eq(x:shape(), { 2, 3 })
  eq(x:totable(), { { 1, 2, 3 }, { 4, 5, 6.5 } })
  eq({ x:ndim(), x:numel(), x:dim(1), x:dim(-1), x:type() }, { 2, 6, 2, 3, "float32" })
  eq(math.type(x:get(1, 1)), "float")
  eq(core.tensor({}):shape(), { 0 })
  eq(core.tensor({ {}, {} }):shape(), { 2, 0 })
  eq(core.tensor(3.5):shape(), {})
  eq(core.tensor(3.5):totable(), 3.5)
  eq(core.tensor({ inf }):item(), inf)
  ok(core.tensor({ nan }):item() ~= core.tensor({ nan }):item())
end)

test("ids are 32-bit integers", function()
  local x = core.ids { { 1, -2 }, { 2147483647, 0 } }
  eq(x:totable(), { { 1, -2 }, { 2147483647, 0 } })
  eq(x:type(), "int32")
  eq(math.type(x:get(2, 1)), "integer")
  raises(core.ids,
    "bad argument #1 to '.*ids' %(element 2 is not a 32%-bit integer %(2147483648%)%)",
    { 0, 2147483648 })
  raises(core.ids, "element 1 is not a 32%-bit integer %(1.5%)", { 1.5 })
end)

test("tables that are no tensor", function()
  raises(core.tensor, "bad argument #1 to '.*tensor'", nil)
  raises(core.tensor, "value expected")
  raises(core.tensor, "element 1 is not a number %(x%)", "x")
  raises(core.tensor, "element 3 is not a number %(1%)", { 1, 2, "1" })
  raises(core.tensor, "ragged: 1 elements at depth 2, not 2", { { 1, 2 }, { 3 } })
  raises(core.tensor, "number at depth 1, where tables are", { { 1, 2 }, 3 })
  raises(core.tensor, "nested too deep", { { { { { { { 1 } } } } } } })
end)

test("zeros, ones, full, range", function()
  eq(core.zeros(2, 2), { { 0, 0 }, { 0, 0 } })
  eq(core.zeros { 1, 2 }, { { 0, 0 } })
  eq(core.zeros():item(), 0)
  eq(core.ones(3), { 1, 1, 1 })
  eq(core.ones { 2 }, { 1, 1 })
  eq(core.full({ 2 }, -1.5), { -1.5, -1.5 })
  eq(core.full({}, 7):item(), 7)
  eq(core.range(1, 4), { 1, 2, 3, 4 })
  eq(core.range(0, -1, -0.5), { 0, -0.5, -1 })
  eq(core.range(1, 0):shape(), { 0 })
  raises(core.zeros, "dimension 2 is negative", 2, -1)
  raises(core.zeros, "bad argument #2 to '.*zeros'", 2, "x")
  raises(core.zeros, "bad argument #1 .*dimension 2 is not an integer %(string%)", { 2, "x" })
  raises(core.zeros, "7 dimensions, at most 6", 1, 1, 1, 1, 1, 1, 1)
  raises(core.zeros, "out of memory", 1 << 40, 1 << 40)
  raises(core.full, "bad argument #1 to '.*full' %(table expected", 2, 3)
  raises(core.full, "bad argument #2 to '.*full'", { 2 })
  raises(core.range, "bad argument #3 to '.*range' %(step is 0%)", 1, 2, 0)
  raises(core.range, "range has no end", 1, inf)
  raises(core.range, "range has no end", 1, nan)
end)

test("item and get", function()
  local x = core.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
  eq(x:get(2, 3), 6)
  eq(x:get(1, 2), 2)
  eq(core.tensor({ { 9 } }):item(), 9)
  raises(x.item, "item: the tensor has 6 elements", x)
  raises(x.get, "get: 1 positions for 2 axes", x, 1)
  raises(x.get, "bad argument #3 to .*position 4 of 3", x, 1, 4)
  raises(x.get, "position 0 of 2", x, 0, 1)
  raises(x.dim, "no axis 3: the axes are 1 to 2, or %-1 for the last", x, 3)
  raises(x.dim, "no axis 0: the axes are 1 to 2, or %-1 for the last", x, 0)
end)

test("tostring", function()
  eq(tostring(core.zeros(2, 3)), "tensor [2,3] float32")
  eq(tostring(core.ids { 1 }), "tensor [1] int32")
  eq(tostring(core.zeros()), "tensor [] float32")
end)

test("show", function()
  local head, rows = core.tensor({ { 1, 2.5 }, { -3, nan } }):show():match("^([^\n]*)\n(.*)$")
  eq(head, "tensor [2,2] float32")
  eq((rows:gsub("-nan", " nan")), (" %10s %10s\n %10s %10s"):format("1", "2.5", "-3", "nan"))
  eq(core.ids({ 1, 20 }):show(), "tensor [2] int32\n      1     20")
  eq(core.full({}, 0.5):show(), "tensor [] float32\n        0.5")
  eq(core.zeros(2, 0):show(), "tensor [2,0] float32")
  local closed = core.ones(1)
  closed:close()
  eq(closed:show(), "tensor (closed)")
end)

test("show leaves out the middle of much", function()
  local _, count = core.zeros(9, 1000):show():gsub("%f[%d]0%f[%D]", "")
  eq(count, 8 * 8)
  eq(core.ids({ { 1, 2, 3, 4, 5, 6, 7, 8, 9 } }):show(),
    "tensor [1,9] int32\n      1      2      3      4 ...      6      7      8      9")
  local text = core.range(1, 24):reshape(2, 6, 1, 2):show()
  eq(select(2, text:gsub("%(%d,%d,%.,%.%)", "")), 4)
  assert(text:find("(2,6,.,.)\n         23         24", 1, true), text)
end)

-- ---- Contents -----------------------------------------------------------------------------------

test("copy, fill, clone, view", function()
  local x = core.range(1, 6)
  eq(core.zeros(6):copy(x), x)
  eq(core.zeros(2):fill(2.5), { 2.5, 2.5 })
  eq(core.ids({ 0, 0 }):fill(3), { 3, 3 })
  local y = x:clone():fill(0)
  eq(x, { 1, 2, 3, 4, 5, 6 })
  eq(y, core.zeros(6))
  local v = x:view(2, { 2, 2 })
  eq(v, { { 3, 4 }, { 5, 6 } })
  v:fill(0)
  eq(x, { 1, 2, 0, 0, 0, 0 })
  x:close()
  eq(v, core.zeros(2, 2))
  raises(y.view, "view: 4 elements from 3 do not fit in %[6%]", y, 3, { 4 })
  raises(y.copy, "copy: the source is %[2%], the target %[6%]", y, core.ones(2))
  raises(y.copy, "copy: the source is int32, the target float32", y, core.ids { 1, 2, 3, 4, 5, 6 })
  raises(core.ids({ 1 }).fill, "bad argument #2 .*not 32 bits", core.ids { 1 }, 1e10)
end)

test("closed tensors", function()
  local x = core.ones(2)
  x:close()
  x:close()
  eq(tostring(x), "tensor (closed)")
  raises(core.silu, "bad argument #1 to '.*silu' %(tensor is closed%)", x)
  raises(core.max, "bad argument #2 to '.*max' %(tensor is closed%)", core.ones(2), x)
  raises(function() return x + 1 end, "tensor is closed")
  raises(core.concat, "element 2 is a closed one, not an open tensor", { core.ones(1), x }, 1)
  do
    local y <close> = core.ones(2)
    x = y
  end
  eq(tostring(x), "tensor (closed)")
end)

test("other things than tensors", function()
  raises(core.silu, "bad argument #1 to '.*silu' %(toeplab.tensor expected, got number%)", 3)
  raises(core.silu, "toeplab.tensor expected, got no value")
  raises(core.linear,
    "bad argument #2 to '.*linear' %(toeplab.tensor expected, got toeplab.stream%)", core.ones(2),
    core.stream(1, "x"))
  raises(core.ones(1).close, "toeplab.tensor expected", io.stdout)
  raises(core.concat, "element 2 is string, not an open tensor", { core.ones(1), "x" }, 1)
end)

-- ---- Gradients ----------------------------------------------------------------------------------

-- A composed function of x [2,3] and w [3,2] with most kinds of operators in it.
local function composed(x, w)
  local h = core.matmul(x, w):tanh()
  h = core.gate("sigmoid", h, h * 2 - 0.5) / (h:square() + 1)
  return (core.log_softmax(core.concat({ h, x:narrow(2, 2, 2) }, 1)):narrow(2, 1, 1) * 0.5):sum()
end

test("gradient against finite differences", function()
  local x = core.tensor { { 0.1, -0.4, 0.9 }, { 0.7, 0.3, -0.2 } }
  local w = core.tensor { { 0.5, -0.3 }, { 0.2, 0.8 }, { -0.6, 0.4 } }
  composed(x:require_grad(), w:require_grad()):backward()
  for _, leaf in ipairs { x, w } do
    local values, step = leaf:totable(), 1e-2
    for i, line in ipairs(values) do
      for j, v in ipairs(line) do
        local around = {}
        for k, sign in ipairs { 1, -1 } do
          line[j] = v + sign * step
          local moved = core.tensor(values)
          around[k] = core.no_grad(composed, leaf == x and moved or x,
            leaf == w and moved or w):item()
        end
        line[j] = v
        eq(leaf:grad():get(i, j), (around[1] - around[2]) / (2 * step), 2e-3)
      end
    end
  end
end)

test("leaves and gradients", function()
  local x = core.ones(2)
  eq({ x:requires_grad(), x:grad() == nil }, { false, true })
  ok(x:require_grad() == x)
  eq(x:requires_grad(), true);
  (x * 3):sum():backward()
  eq(x:grad(), { 3, 3 });
  (x * 3):sum():backward()
  eq(x:grad(), { 6, 6 })
  x:set_grad(core.zeros(2))
  eq(x:grad(), { 0, 0 })
  x:set_grad(nil)
  eq(x:grad() == nil, true)
  eq(x:require_grad(false):requires_grad(), false)
  raises(x.set_grad, "grad: .*is not a leaf", x, core.zeros(2))
  x:require_grad()
  raises(x.set_grad, "grad: the gradient is %[3%], the tensor %[2%]", x, core.zeros(3))
  raises(x.backward, "backward: the loss was not recorded", x)
  raises(function() (x * 2):backward() end, "backward: the loss is %[2%]")
  raises(function() (x * 2):backward(core.ids { 1, 2 }) end, "the gradient is not float32")
  raises(function() core.ids({ 1 }):require_grad() end, "only float32 tensors")
end)

test("the tape", function()
  local x = core.ones(2):require_grad()
  core.tape_clear()
  eq(core.tape_length(), 0)
  local loss = x:silu():sum()
  eq(core.tape_length(), 2)
  core.tape_clear()
  eq(core.tape_length(), 0)
  ok(loss:requires_grad())
end)

test("no_grad and recording", function()
  local x = core.ones(2):require_grad()
  eq(core.recording(), true)
  local a, b, none, c = core.no_grad(function(...)
    eq(core.recording(), false)
    eq((x * 2):requires_grad(), false)
    core.no_grad(function() eq(core.recording(), false) end)
    eq(core.recording(), false)
    return 1, select("#", ...), nil, 4
  end, nil, nil)
  eq({ a, b, none == nil, c }, { 1, 2, true, 4 })
  eq(core.recording(), true)
  raises(core.no_grad, "boom", function() error "boom" end)
  eq(core.recording(), true)
  eq(select(2, pcall(core.no_grad, error, { code = 7 })).code, 7)
  local callable = setmetatable({}, { __call = function(_, x) return x, core.recording() end })
  eq({ core.no_grad(callable, 3) }, { 3, false })
  raises(core.no_grad, "function expected, got table", {})
  eq(core.recording(), true)
  eq(core.recording(false), true)
  eq(core.no_grad(core.recording), false)
  eq(core.recording(true), false)
  raises(core.no_grad, "bad argument #1 to '.*no_grad' %(function expected", 3)
  local routine = coroutine.wrap(function() core.no_grad(coroutine.yield) end)
  raises(routine, "yield across")
  eq(core.recording(), true)
end)

-- ---- Memory -------------------------------------------------------------------------------------

test("memory is accounted and collected", function()
  collectgarbage()
  core.memory_reset_peak()
  local before = core.memory()
  eq(before.peak, before.live)
  for _ = 1, 200 do core.zeros(1024, 256) end -- 1 MiB each
  local after = core.memory()
  ok(after.peak - before.live < 20 << 20,
    ("%d MiB of garbage gathered"):format((after.peak - before.live) >> 20))
  collectgarbage()
  collectgarbage()
  eq(core.memory().live, before.live)
  eq(core.memory().tensors, before.tensors)
  core.memory_trim()
  ok(core.memory().cached == 0 or core.device() ~= "cpu") -- whose pieces may be in use in part
end)

test("small tensors and views are collected as fast as they are made", function()
  local x = core.ones(4)
  local kinds = { view = function() return x:reshape(2, 2) end }
  if core.device() == "cpu" then -- kernels of an emulated GPU would take a minute
    kinds.operator, kinds.zeros = function() return -x end, function() return core.zeros(1) end
  end
  for name, make in pairs(kinds) do
    collectgarbage()
    local most = 0
    local bound = 3 * core.memory().tensors + math.max(16384, 5 * collectgarbage "count") + 1000
    for i = 1, 150000 do
      make()
      if i % 100 == 0 then most = math.max(most, core.memory().tensors) end
    end
    ok(most < bound, ("%s: %d tensors at once, at most %d"):format(name, most, bound // 1))
  end
end)

test("a generational collector finds tensors too", function()
  local mode <close> = setmetatable({}, { __close = function() collectgarbage "incremental" end })
  collectgarbage "generational"
  core.memory_reset_peak()
  local before = core.memory().live
  for _ = 1, 200 do core.zeros(1024, 256) end
  ok(core.memory().peak - before < 100 << 20, mode and "garbage gathered")
end)

test("views and gradients hold memory no longer than needed", function()
  local before = core.memory().tensors
  local x <close> = core.ones(4, 4):require_grad()
  do
    local loss <close> = x:reshape(16):sum()
    loss:backward()
  end
  collectgarbage()
  collectgarbage()
  eq(core.memory().tensors - before, 2) -- x and its gradient
end)

test("a tensor's version is another once it was written", function()
  local x = core.ones(2)
  local was = x:version()
  ok(x:sum():item() == 2 and x:totable() and (x + x) and x:get(1))
  eq(x:version(), was)
  for _, write in ipairs { function() x:fill(3) end, function() x:copy(core.zeros(2)) end,
    function() core.stream(1, "x"):uniform(x) end } do
    write()
    ok(x:version() ~= was)
    was = x:version()
  end
end)

test("version, threads, build", function()
  ok(core.version:find "^%d+%.%d+%.%d+$")
  ok(core.threads() >= 1)
  local info = core.build_info()
  eq(info.version, core.version)
  eq(info.threads, tostring(core.threads()))
  ok(#info.blas > 0 and #info.sqlite > 0 and #info.hdf5 > 0 and #info.compiler > 0)
end)

t.done()
