-- test_trial.lua: the object t of a trial's function in this process: its rows are a list here, and
-- orders and signals come from the cases.
local t = require "harness"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local recorded = require "toeplab.tasks.recorded"
local tl = require "toeplab"
local trial = require "toeplab.trials.trial"

-- ---- What a worker gives a trial ----------------------------------------------------------------

-- The rows of a trial: what its attempts have stored, newest checkpoint first.
local Rows = {}
Rows.__index = Rows

local function new_rows()
  return setmetatable({ metrics = {}, artifacts = {}, events = {}, began = 0 }, Rows)
end

function Rows:add_metrics(list) table.move(list, 1, #list, #self.metrics + 1, self.metrics) end

function Rows:add_artifact(a) table.insert(self.artifacts, 1, a) end

function Rows:drop_artifact(a)
  for i, b in ipairs(self.artifacts) do
    if b == a then table.remove(self.artifacts, i) end
  end
end

function Rows:checkpoints()
  local list = {}
  for _, a in ipairs(self.artifacts) do
    if a.kind == "checkpoint" or a.kind == "best" then list[#list + 1] = a end
  end
  table.sort(list, function(a, b)
    if a.step ~= b.step then return a.step > b.step end
    return a.kind > b.kind
  end)
  return list
end

function Rows:add_checkpoint(a, keep)
  table.insert(self.artifacts, 1, a)
  local old, count = {}, 0
  for _, b in ipairs(self:checkpoints()) do
    count = count + (b.kind == a.kind and 1 or 0)
    if b.kind == a.kind and count > keep then old[#old + 1] = b end
  end
  for _, b in ipairs(old) do self:drop_artifact(b) end
  return old
end

function Rows:artifact(kind, step)
  for _, a in ipairs(self.artifacts) do
    if a.kind == kind and (not step or a.step == step) then return a end
  end
end

function Rows:forget_after(step)
  local kept = {}
  for _, m in ipairs(self.metrics) do
    if (m.at or m.step) <= step then kept[#kept + 1] = m end
  end
  self.metrics = kept
end

function Rows:event(step, kind, why) table.insert(self.events, { step, kind, why }) end

-- Calls fn(new, folder): new(more) makes a trial on the same rows, as another attempt does, with
-- more fields of trial.new; its field said lists what it has printed.
local function with_trial(fn)
  t.in_folder(function(folder)
    core.sys.mkdir(folder .. "/x")
    local rows = new_rows()
    fn(function(more)
      local said = {}
      local function say(_, format, ...) said[#said + 1] = format:format(...) end
      local o = { rows = rows, folder = folder, path = "x", checkpoint = {}, seed = 1,
        progress = { note = say, warn = say, update = function() end } }
      for name, value in pairs(more or {}) do o[name] = value end
      local self = trial.new(o)
      self.said = said
      return self
    end, folder, rows)
  end)
end

-- A part of a trial that counts its steps.
local function counter()
  local self = { count = 0 }
  function self:state() return { count = self.count } end
  function self:load(state) self.count = state.count end
  return self
end

-- Runs n steps of a trial with one part; each(step) may return "break". Returns the part.
local function run(self, n, each)
  local part = counter()
  for step in self:steps(n, nil, nil, nil, { part = part }) do
    part.count = part.count + 1
    if each and each(step) == "break" then break end
  end
  return part
end

-- Returns the names of the trial's checkpoints.
local function files(folder)
  local names = {}
  for _, name in ipairs(core.sys.list(folder .. "/x")) do
    if name:find "%.h5$" then names[#names + 1] = name end
  end
  table.sort(names)
  return table.concat(names, " ")
end

-- ---- The log ------------------------------------------------------------------------------------

t.test("values are logged by name, at the step or at an index", function()
  with_trial(function(new, _, rows)
    local self = new()
    run(self, 2, function(step)
      self:log { b = step, a = tl.zeros(1) }
      self:log({ lag = 0.5 }, 7)
    end)
    self:log { final = 1 }
    self:log {}
    local list = {}
    for i, m in ipairs(rows.metrics) do
      list[i] = ("%s %d %s %.17g"):format(m.name, m.step, m.at, m.value)
    end
    t.eq(list, { "a 1 nil 0", "b 1 nil 1", "lag 7 1 0.5", "a 2 nil 0", "b 2 nil 2", "lag 7 2 0.5",
      "final 2 nil 1" })
  end)
end)

t.test("values that cannot be logged or stored as text are refused", function()
  with_trial(function(new)
    local self = new()
    for _, case in ipairs {
      { "takes a table: t:log", "loss" }, { "takes a table { name = number }", { 1 } },
      { "must be one line of UTF%-8", { ["a\nb"] = 1 } },
      { "must be one line of UTF%-8", { ["\xff"] = 1 } },
      { "'loss' must be a number or a tensor, got a string", { loss = "1" } },
      { "'loss' must be a number or a tensor, got a nil", setmetatable({}, { __pairs = function()
        return function(_, k) if not k then return "loss" end end
      end }) },
      { "the index must be an integer", { loss = 1 }, 0.5 },
    } do
      t.raises(self.log, case[1], self, case[2], case[3])
    end
    for _, case in ipairs { { "takes a name of letters", "a b", "" }, { "takes a name", "a", 1 },
      { "'best' is a reserved name", "best", "" },
      { "'vocabulary' is a reserved name", "vocabulary", "" } } do
      t.raises(self.text, case[1], self, case[2], case[3])
    end
  end)
end)

t.test("a text is a file of its step, and the row of it is stored after the file", function()
  with_trial(function(new, folder, rows)
    local self = new()
    function rows:add_artifact(a)
      t.eq(core.sha256_file(folder .. "/" .. a.path), a.sha256)
      Rows.add_artifact(self, a)
    end
    run(self, 3, function(step) if step == 2 then self:text("sample", "abc") end end)
    t.eq(t.read(folder .. "/x/sample-00000002.txt"), "abc")
    t.eq({ rows.artifacts[2].path, rows.artifacts[2].kind, rows.artifacts[2].step },
      { "x/sample-00000002.txt", "sample", 2 })
  end)
end)

t.test("a tensor is a file of its step; its row comes after it and goes before another", function()
  with_trial(function(new, folder, rows)
    local self, write = new(), core.h5_write
    core.h5_write = function(...)
      t.eq(#rows.artifacts, 0)
      write(...)
    end
    self:log { kernel = tl.zeros(2) }
    self:log { kernel = tl.ones(2) }
    core.h5_write = write
    local a = rows.artifacts[1]
    t.eq({ #rows.artifacts, a.kind, a.step, a.path, a.sha256 },
      { 1, "tensor:kernel", 0, "x/tensor-kernel-00000000.h5",
        core.sha256_file(folder .. "/x/tensor-kernel-00000000.h5") })
    t.eq(tl.h5_open(folder .. "/" .. a.path):read "kernel", { 1, 1 })
  end)
end)

-- ---- The loop -----------------------------------------------------------------------------------

t.test("t:steps checks its arguments and runs once", function()
  with_trial(function(new)
    for _, case in ipairs { { "integer of at least 0", -1 }, { "integer of at least 0", 1.0 },
      { "integer of at least 0", "3" }, { "got more", 3, nil, nil, nil, nil, counter() } } do
      local self = new()
      t.raises(self.steps, case[1], self, table.unpack(case, 2, 7))
    end
    local self = new()
    run(self, 0)
    t.raises(run, "a trial can have only one loop of steps", self, 1)
    self = new { guard = { metric = "loss", nan = "rollback", retries = 1, every = 2, window = 8 } }
    t.raises(run, "pass the optimiser", self, 1)
    t.raises(self.best, "inside the loop", self, 1)
    t.raises(new().load_best, "after the loop", new())
  end)
end)

-- name, fields of trial.new, steps, what each step does, checkpoints left
local ends = {
  { "only the end is saved", {}, 5, nil, "step-00000005.h5" },
  { "by steps, and the last two stay", { checkpoint = { steps = 3 } }, 10, nil,
    "step-00000009.h5 step-00000010.h5" },
  { "at every step by a clock", { checkpoint = { seconds = 0 } }, 4, nil,
    "step-00000003.h5 step-00000004.h5" },
  { "where the script breaks", { checkpoint = { steps = 2 } }, 9,
    function(step) return step == 5 and "break" end, "step-00000004.h5 step-00000005.h5" },
  { "no steps", {}, 0, nil, "" },
}

for _, case in ipairs(ends) do
  t.test("checkpoints: " .. case[1], function()
    with_trial(function(new, folder)
      run(new(case[2]), case[3], case[4])
      t.eq(files(folder), case[5])
    end)
  end)
end

t.test("an error in the loop saves nothing, and the next attempt resumes before it", function()
  with_trial(function(new, folder, rows)
    local first = new { checkpoint = { steps = 2 } }
    t.raises(run, "broken", first, 9, function(step)
      first:log { loss = step }
      if step == 5 then error "broken" end
    end)
    t.eq(files(folder), "step-00000002.h5 step-00000004.h5")
    local second, steps = new { checkpoint = { steps = 2 } }, {}
    local part = run(second, 9, function(step) steps[#steps + 1] = step end)
    t.eq({ part.count, steps, #rows.metrics }, { 9, { 5, 6, 7, 8, 9 }, 4 })
    t.holds(second.said[1], "resumed after step 4 of 9")
    t.raises(run, "n = 8, but the trial has a checkpoint of step 9", new(), 8)
    t.eq(run(new(), 9, error).count, 9) -- nothing is left
  end)
end)

t.test("a damaged checkpoint is reported and skipped, and the one before it is used", function()
  with_trial(function(new, folder, rows)
    run(new { checkpoint = { steps = 2 } }, 6)
    t.write(folder .. "/x/step-00000006.h5", "torn")
    local self = new()
    t.eq(run(self, 6).count, 6)
    t.holds(self.said[1], "step-00000006.h5 is damaged", "trying the one before it")
    os.remove(folder .. "/x/step-00000006.h5")
    t.write(folder .. "/x/step-00000004.h5", "torn")
    self = new()
    run(self, 6)
    t.holds(self.said[1], "step-00000006.h5 is missing", "trying the one before it")
    t.holds(self.said[2], "step-00000004.h5 is damaged", "starting over from step 1")
    t.eq(#rows:checkpoints(), 1)
  end)
end)

t.test("the checkpoint of the lowest value is kept, and patience ends the loop", function()
  for _, case in ipairs { -- values, patience, steps run, best step
    { { 3, 2, 1 }, nil, 3, 3 }, { { 1, 2, 3 }, 1, 2, 1 }, { { 2, 1, 1, 1, 0 }, 2, 4, 2 },
    { { 0 / 0, 2, 0 / 0 }, nil, 3, 2 }, { { 0 / 0, 0 / 0, 1 }, 2, 2, nil },
    { { 1, 2, 0, 2, 2, 5 }, 2, 5, 3 },
  } do
    with_trial(function(new, folder)
      local self, last = new(), 0
      local part = run(self, #case[1], function(step)
        last = step
        self:best(case[1][step], case[2])
      end)
      t.eq({ last, part.count }, { case[3], case[3] })
      t.eq(self.lowest.step, case[4])
      local kept = files(folder):match "best%-(%d+)%.h5"
      t.eq(tonumber(kept), case[4])
    end)
  end
  with_trial(function(new)
    local self = new()
    t.raises(run, "takes a number", self, 1, function() self:best "low" end)
    self = new()
    t.raises(run, "patience is an integer", self, 1, function() self:best(1, 0) end)
  end)
end)

t.test("a failed write ends its call alone, and the trial remembers its error", function()
  with_trial(function(new, _, rows)
    local full = tl.error("ENOSPC", "no space")
    local self, add, signal = new(), rows.add_metrics, errors.signal
    for _, case in ipairs { { "add_artifact", { kernel = tl.zeros(2) } },
      { "add_metrics", { loss = 1 } } } do
      rows[case[1]] = function() error(full, 0) end
      local ok, why = pcall(self.log, self, case[2])
      t.eq({ ok, why == full, self.unstored == full }, { false, true, true })
      rows[case[1]] = nil
      errors.signal = function() return "INT", errors.INTERRUPT end
      t.raises(self.check_signals, "stopped on request at step 0", self, true)
      errors.signal = signal
    end
    t.eq(add, rows.add_metrics)
    self:log { loss = 2 }
    t.eq(rows.metrics[1].value, 2.0)
  end)
end)

t.test("a partial state is recorded as an event of the first attempt", function()
  with_trial(function(new, _, rows)
    recorded.begin({}, {})
    recorded.add_part "corpus x: here only the first 7 tokens of its training part"
    for _ = 1, 2 do run(new(), 2) end
    recorded.begin({}, {})
    t.eq(rows.events, { { 0, "part",
      "corpus x: here only the first 7 tokens of its training part" } })
  end)
end)

-- ---- Orders, signals, budgets -------------------------------------------------------------------

-- Returns the error of a call that must fail with a code of errors.
local function code_of(fn, ...)
  local ok, why = pcall(fn, ...)
  t.eq(ok, false)
  t.ok(errors.is(why), tostring(why))
  return why.code, why.message
end

t.test("the coordinator prunes, and its death saves and ends", function()
  with_trial(function(new, folder)
    local order = { [3] = "gone" }
    local self
    self = new { hear = function() return order[self.step] end }
    local code, why = code_of(run, self, 9)
    t.eq({ code, why }, { errors.TERMINATE, "the coordinator died at step 3" })
    t.eq(files(folder), "step-00000003.h5")
    order = { [5] = "prune" }
    self = new { hear = function() return order[self.step] end }
    code = code_of(run, self, 9)
    t.eq({ code, self.why_ended, files(folder) }, { errors.DONE, "pruned", "step-00000003.h5" })
  end)
end)

t.test("a signal saves between steps; the second waits for nothing but what is stored", function()
  with_trial(function(new, folder)
    local signal, interrupted = errors.signal, core.sys.interrupted
    local now, count = nil, 1
    errors.signal = function() if now then return now, errors.INTERRUPT end end
    core.sys.interrupted = function() return count end
    local self = new()
    local function at(step, fn) return function(s) if s == step then fn() end end end
    local ok, why = pcall(function()
      local code, said = code_of(run, self, 9, at(4, function()
        now = "INT"
        self:check_signals(true) -- inside a step it waits for the end of it
      end))
      t.eq({ code, said }, { errors.INTERRUPT, "stopped on request at step 4" })
      t.eq(files(folder), "step-00000004.h5")
      now, self = nil, new()
      code_of(run, self, 9, at(6, function()
        now, count, self.busy = "INT", 2, true
        self:check_signals(true)
        self.busy = false
        self:check_signals(true)
        error "not reached"
      end))
      t.eq(files(folder), "step-00000004.h5")
    end)
    errors.signal, core.sys.interrupted = signal, interrupted
    t.ok(ok, why)
  end)
end)

t.test("a budget of memory and a guard end a trial at the step that breaks them", function()
  with_trial(function(new, folder)
    local self = new { memory = 1 }
    t.raises(run, "budget: %d+ MB of memory used at step 1; the limit is 0", self, 3)
    t.eq({ self.why_ended, files(folder) }, { "budget", "" })
    self = new { guard = { metric = "loss", nan = "stop", retries = 0, every = 2, window = 8 } }
    t.raises(run, "guard: loss is nan at step 2", self, 3, function(step)
      self:log { loss = step == 2 and 0 / 0 or 1, other = 0 / 0 }
    end)
    t.eq(self.why_ended, "guard")
    self = new { guard = { metric = "loss", nan = "stop", retries = 0, every = 2, window = 8 } }
    t.raises(run, "guard: loss is inf at step 1", self, 3, function()
      self:log { loss = math.huge }
      return "break" -- leaving the loop is no way round
    end)
  end)
end)

t.test("a loop of the script's own on a full GPU says what would need less memory", function()
  with_trial(function(new)
    local device, self = core.device, new {}
    core.device = function() return "cuda" end
    local ok, why = pcall(run, self, 2, function()
      error(core.error("ENOMEM", "out of memory on the GPU"), 0)
    end)
    core.device = device
    t.eq({ ok, why.message }, { false, "out of memory on the GPU\n  less memory: a smaller batch, "
      .. "precision bf16" })
    ok, why = pcall(run, new {}, 2, function() error(core.error("ENOMEM", "out of memory"), 0) end)
    t.eq({ ok, why.message }, { false, "out of memory" })
  end)
end)

t.done()
