-- test_coordinator.lua: what a coordinator makes of its workers: here objects of this process that
-- log, report and die as each case says.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local journal = require "toeplab.store.journal"
local t = require "harness"
local trials = require "trials"
local wire = require "toeplab.base.wire"
local worker_process = require "toeplab.runs.worker_process"

local Worker = {}
Worker.__index = Worker

function Worker:kill() self.dead = true end

-- A worker that waits obeys.
function Worker:ask_to_stop()
  if self.waits then
    self:tell("ended", "interrupted", errors.TERMINATE, "stopped by SIGTERM at step 0")
  end
end

function Worker:kill_if_overdue() end

function Worker:cause() return self.why, self.by end

-- Lets the worker log lines to the journal of its trial.
function Worker:log(...)
  local w = journal.writer(self.journal)
  w:add { ... }
  w:close()
end

function Worker:tell(...) self.answers[#self.answers + 1] = wire.line(...) end

-- Lets the process end: by a signal (a number), or by itself (nil).
function Worker:die(why, by) self.over, self.why, self.by = true, why, by end

local DONE = { "end", "done", nil, nil, 1.5, 2.0, n = 6 }

-- How a worker can take a trial.
local acts = {}

function acts.done(w)
  w:log({ "metric", 1, "loss", 0.5 }, DONE)
  w:tell("ended", "done")
end

function acts.fails(w)
  w:log { "end", "failed", "no such luck", nil, 1.5, 2.0, n = 6 }
  w:tell("ended", "failed", nil, "no such luck")
end

-- It says that it is done, but the disk refused the last record.
function acts.boasts(w) w:tell("ended", "done") end

function acts.killed(w) w:die("its process was killed by signal 9", 9) end

function acts.exits(w) w:die "its process ended with exit code 3" end

function acts.silent(w) -- it logs its end, and dies before it can report it
  w:log({ "metric", 1, "loss", 0.5 }, DONE)
  w:die("its process was killed by signal 9", 9)
end

function acts.full(w) w:tell("ended", "interrupted", errors.STORAGE, "no space left") end

function acts.waits(w) w.waits = true end

function acts.unfit(w)
  w:tell("unfit", errors.FAILED, "the script has changed")
  w:die "its process ended with exit code 1"
end

-- Takes the place of worker_process.start. plan: by trial, a name of acts for each attempt; tally
-- counts the workers that get trials: number 0 only checks options, and finds none wrong.
local function stub(folder, plan, tally)
  return function(_, number, device, place)
    tally.workers = tally.workers + (number > 0 and 1 or 0)
    local self = setmetatable({ read = wire.reader(), answers = {}, device = device,
      place = place }, Worker)
    local orders = wire.reader()
    self.process = {
      pid = function() return core.sys.getpid() end,
      send = function(_, text)
        for _, line in ipairs(orders(text)) do
          if line[1] == "check" then
            self:tell("checked", nil, false)
          elseif line[1] == "trial" then
            local config, path, attempt = wire.unpack(line[2]), line[4], line[5]
            self.journal = ("%s/results/%s"):format(folder, journal.path(path, attempt))
            local name = plan[config.b or config.a][attempt]
            self:tell("read", "a")
            acts[name](self)
          end
        end
      end,
      receive = function()
        if #self.answers > 0 then return table.remove(self.answers, 1) end
        return not self.over and "" or nil
      end,
    }
    return self
  end
end

local SCRIPT = [[
local tl = require "toeplab"
return tl.experiment "x" { grid = { a = VALUES }, trial = function(t, c) t:log { loss = c.a } end }
]]

-- name, acts by trial and attempt, exit code, statuses of the trials, workers, a part of what is
-- said
local cases = {
  { "a worker runs one trial after the other", { { "done" }, { "done" } }, 0, "done done", 1,
    "2 trials: 2 done" },
  { "a failure leaves the others alone", { { "fails" }, { "done" } }, 1, "failed done", 1,
    "a=1 failed: no such luck" },
  { "a worker that was killed is replaced once", { { "killed", "done" }, { "done" } }, 0,
    "done done", 2, "a=1: its process was killed by signal 9; it continues in another process" },
  { "a trial whose workers are killed twice has failed", { { "killed", "killed" }, { "done" } }, 1,
    "failed done", 3, "a=1 failed: its process was killed by signal 9" },
  { "a worker that ends by itself is not replaced for its trial", { { "exits" }, { "done" } }, 1,
    "failed done", 2, "a=1 failed: its process ended with exit code 3" },
  { "an end in the journal counts, though nobody reports it", { { "silent" }, { "done" } }, 0,
    "done done", 2, "2 trials: 2 done" },
  { "a report without an end in the journal does not", { { "boasts" }, { "done" } }, errors.STORAGE,
    "running queued", 1, "its worker has reported its end, but its journal" },
  { "a worker that cannot run trials ends the run", { { "unfit" }, { "done" } }, errors.FAILED,
    "interrupted queued", 1, "the script has changed" },
  { "a trial that cannot be stored ends the run", { { "full" }, { "done" } }, errors.STORAGE,
    "interrupted queued", 1, "free some space and run the same command again" },
}

-- Runs a script with such workers. Returns its exit code, what is said, and the number of workers.
local function run(folder, plan, text, options)
  local tally, start, poll = { workers = 0 }, worker_process.start, core.sys.poll
  worker_process.start, core.sys.poll = stub(folder, plan, tally), function() end
  local ok, code, said = pcall(trials.run, folder, text, {}, options)
  worker_process.start, core.sys.poll = start, poll
  t.ok(ok, code)
  return code, said, tally.workers
end

t.test("a signal that stops several trials: their number, their steps, and what is queued",
  function()
    t.in_folder(function(folder)
      local calls, interrupted = 0, core.sys.interrupted
      core.sys.interrupted = function()
        calls = calls + 1
        if calls > 20 then return 1 end
        return 0
      end
      local code, said = run(folder, { { "waits" }, { "waits" }, { "done" } },
        (SCRIPT:gsub("VALUES", "{ 1, 2, 3 }")), { jobs = 2 })
      core.sys.interrupted = interrupted
      t.eq(code, errors.INTERRUPT)
      t.holds(said, "2 trials stopped on request, 1 queued; the same command "
        .. "continues")
    end)
  end)

for _, case in ipairs(cases) do
  t.test(case[1], function()
    t.in_folder(function(folder)
      local values = {}
      for i in ipairs(case[2]) do values[i] = tostring(i) end
      local code, said, workers = run(folder, case[2],
        (SCRIPT:gsub("VALUES", "{ " .. table.concat(values, ", ") .. " }")))
      t.holds(said, case[6])
      local statuses = {}
      for i, row in ipairs(trials.query(folder, [[SELECT status FROM v_trials
        ORDER BY config ->> '$.a']])) do statuses[i] = row.status end
      t.eq({ code, table.concat(statuses, " "), workers }, { case[3], case[4], case[5] })
    end)
  end)
end

t.test("the first error of a small sweep is reported, not the trials that it stops", function()
  t.in_folder(function(folder)
    local code, said = run(folder, { { "waits" }, { "done" } }, [[local tl = require "toeplab"
      return tl.experiment "x" { fixed = { a = 1 }, grid = { b = { 1, 2 } },
        better = { los = "lower" },
        tune = { key = "a", values = { 1, 2 }, metric = "los", seed = 101 },
        trial = function(t, c) t:log { loss = c.a * c.b } end }
    ]], { jobs = 3 })
    t.holds(said, "the trials of x-tuning log no 'los'")
    t.eq(code, errors.FAILED)
  end)
end)

t.done()
