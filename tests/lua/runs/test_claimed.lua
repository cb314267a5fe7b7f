-- test_claimed.lua: what a task of an array job that holds several trials makes of the claims of
-- others, and of the steps that its trials have made.
local t = require "harness"
local claimed = require "toeplab.runs.claimed"
local claims = require "toeplab.store.claims"
local core = require "toeplab.core"
local journal = require "toeplab.store.journal"

-- A trial of a plan that the store knows up to this step.
local function trial(name, step)
  local id = core.sha256(name)
  return { id = id, path = "runs/" .. claims.short(id), label = name, data = {}, code = "c",
    provenance = { host = "n1" }, attempt = 0, step = step, seconds = 0.0, artifacts = {} }
end

-- Calls fn with the records of a task that has begun the trials of list, and their folder.
local function with_task(list, fn)
  t.in_folder(function(folder)
    claims.make(folder)
    core.sys.mkdir(folder .. "/runs")
    local task = claimed.new(folder, list, { job = "1", task = 1, restarts = 0 })
    for _, one in ipairs(list) do
      core.sys.mkdir(folder .. "/" .. one.path)
      task:begin(one)
    end
    fn(task, folder)
  end)
end

-- Appends a line to the journal of the first attempt at a trial, and lets the task read it.
local function log(task, folder, one, line)
  local writer = journal.writer(folder .. "/" .. journal.path(one.path, 1))
  writer:add({ line }, true)
  writer:close()
  task:take(one)
end

-- How the first attempt ended here before another job took the trial: nil if it goes on.
for _, case in ipairs { { ended = nil }, { ended = "failed" }, { ended = "interrupted" } } do
  t.test("another job takes a trial that here has " .. (case.ended or "not ended"), function()
    local one, other = trial("one", 0), trial("other", 0)
    with_task({ one, other }, function(task, folder)
      if case.ended then
        task:finish(one, case.ended, "broken")
        task:end_journal(one)
      end
      t.ok(claims.take(folder, one.id, 2, { job = "2", task = 1, restarts = 0, host = "n2", pid = 5,
        started = 1.0, code = "c", provenance = "{}" }))
      for _, held in pairs(task.held) do held.checked = -math.huge end -- as if long ago
      if case.ended then
        task:check()
        t.eq(task.held[one.id].attempt, 1)
        t.eq(task:begin(one), nil) -- the coordinator goes on with its other trials
      else
        t.raises(function() task:check() end, "was taken over by another task")
      end
    end)
  end)
end

t.test("a trial that this task begins again after its end is looked after again", function()
  local one = trial("one", 0)
  with_task({ one }, function(task, folder)
    task:finish(one, "interrupted", "its worker died")
    task:end_journal(one)
    t.eq(task:begin(one), 2)
    t.ok(claims.take(folder, one.id, 3, { job = "2", task = 1, restarts = 0, host = "n2", pid = 5,
      started = 1.0, code = "c", provenance = "{}" }))
    task.held[one.id].checked = -math.huge
    t.raises(function() task:check() end, "was taken over by another task")
  end)
end)

-- The steps that a fresh and a resumed trial had made before, what their journals then say, and
-- whether the task has got further.
local moves = {
  { "neither has made a step", fresh = nil, resumed = nil, moved = false },
  { "the resumed one is where it was", fresh = nil, resumed = 100, moved = false },
  { "the resumed one went back", fresh = nil, resumed = 90, moved = false },
  { "the resumed one has made a step", fresh = nil, resumed = 101, moved = true },
  { "the fresh one has made a step", fresh = 1, resumed = nil, moved = true },
}

for _, case in ipairs(moves) do
  t.test("progress of a task with several trials: " .. case[1], function()
    local fresh, resumed = trial("fresh", nil), trial("resumed", 100)
    with_task({ fresh, resumed }, function(task, folder)
      for _, pair in ipairs { { fresh, case.fresh }, { resumed, case.resumed } } do
        if pair[2] then
          log(task, folder, pair[1], { "step", pair[2], 1.0, n = 3 })
        else
          task:take(pair[1])
        end
      end
      t.eq(task.moved, case.moved)
    end)
  end)
end

t.done()
