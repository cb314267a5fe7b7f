-- test_attempts.lua: which trials a run may begin, whatever others have done to them; and that what
-- decides about a trial looks at it again in the transaction that acts.
local alive = require "toeplab.store.alive"
local marks = require "toeplab.store.marks"
local check = require "toeplab.store.check"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local journal = require "toeplab.store.journal"
local merge = require "toeplab.store.merge"
local records = require "toeplab.store.records"
local replay = require "toeplab.store.replay"
local selection = require "toeplab.store.selection"
local stores = require "stores"
local sweeps = require "toeplab.store.sweeps"
local t = require "harness"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"

local ID = stores.id "a"
local PATH = "runs/" .. ID:sub(1, 12)
local DONE = { "end", "done", nil, nil, 2.5, 9.0, n = 6 }

local function trial(attempt)
  return { id = ID, label = "a", data = {}, code_hash = "c", path = PATH, attempt = attempt,
    provenance = { host = core.sys.hostname(), command = "toeplab run x.lua" } }
end

-- Opens a store in folder/r that has the one trial, queued.
local function open(folder)
  local store = records.open(folder .. "/r", "w")
  if not store:status(ID) then
    local sweep = store:sweep { experiment = "x", script = "x.lua", source = "", sha256 = "0",
      command = "toeplab run x.lua", scale = "", plan = "{}" }
    store:enlist(sweep, sweeps.rows_of { { id = ID, experiment = "x", seed = 1, code_hash = "c",
      data_hash = "", config = { a = 1 }, json = '{"a":1}', label = "a" } })
  end
  return store
end

-- Writes lines to the journal of an attempt, and closes it unless it is to stay open.
local function log(store, attempt, lines, stays)
  local writer = journal.writer(store.folder .. "/" .. journal.path(PATH, attempt))
  writer:add(lines)
  if stays then return writer end
  writer:close()
end

-- Begins an attempt by another run and lets that die: its file is gone, its journal unread.
local function killed(folder, lines)
  local other <close> = open(folder)
  other:begin(trial(), core.sys.getpid())
  log(other, 1, lines)
end

-- name; what others have done before, which may return something to be closed; what begin gives:
-- the attempt, or nil and why; the status afterwards
local cases = {
  { "nothing", function() end, 1, nil, "running" },
  { "a run that was killed before its trial ended", function(folder)
    killed(folder, { { "metric", 1, "loss", 0.5 }, { "step", 21, 2.0 } })
  end, 2, nil, "running" },
  { "a run that was killed after its trial ended", function(folder)
    killed(folder, { { "metric", 1, "loss", 0.5 }, DONE })
  end, nil, "done", "done" },
  { "a run that is at work", function(folder)
    local other = open(folder)
    other:begin(trial(), core.sys.getpid())
    return other
  end, nil, "running", "running" },
  { "a run on a host of another name that is at work", function(folder)
    local other = open(folder)
    other:begin(trial(), core.sys.getpid())
    other:rows("UPDATE trials SET host = 'n2', pid = ?", { stores.gone })
    return other
  end, nil, "running", "running" },
  { "a run that was killed, whose worker still saves", function(folder)
    local other <close> = open(folder)
    other:begin(trial(), core.sys.getpid())
    return log(other, 1, { { "metric", 1, "loss", 0.5 } }, true)
  end, nil, "running", "running" },
  { "a run killed after it made the journal", function(folder)
    local other <close> = open(folder)
    other:make_folder(ID)
    t.ok(journal.create(other.folder .. "/" .. journal.path(PATH, 1), { "begin", 1, 5.0, 77, "c",
      '{"label":"a","host":"n2"}', n = 6 }))
  end, 2, nil, "running" },
  { "rm", function(folder)
    local other <close> = open(folder)
    trash.put(other, { ID })
  end, nil, "removed", "queued" },
  { "rm and rm --purge", function(folder)
    local other <close> = open(folder)
    other:transaction(function() trash.delete(other, { ID }) end)
  end, nil, "removed", nil },
}

for _, case in ipairs(cases) do
  t.test("a trial after " .. case[1], function()
    t.in_folder(function(folder)
      local store <close> = open(folder)
      local others = case[2](folder)
      local attempt, why = store:begin(trial(), core.sys.getpid())
      if others then others:close() end
      t.eq({ attempt or 0, not attempt and why or "" }, { case[3] or 0, case[4] or "" })
      t.eq(store:status(ID), case[5])
      if attempt and attempt > 1 then
        local rows = store:rows "SELECT bytes FROM journals"
        t.eq({ #rows, rows[1].bytes > 100 }, { 1, true }) -- of the new attempt
      end
    end)
  end)
end

t.test("a new attempt first stores the rest of a killed run's journal", function()
  t.in_folder(function(folder)
    local store <close> = open(folder)
    killed(folder, { { "metric", 1, "loss", 0.5 },
      { "artifact", "checkpoint", 21, PATH .. "/step-21.h5", 3, core.sha256 "abc", 5.0 },
      { "step", 21, 2.5 } })
    local attempt, seconds, artifacts = store:begin(trial(), core.sys.getpid())
    t.eq({ attempt, seconds, #artifacts }, { 2, 2.5, 1 })
    t.eq(store:rows("SELECT value FROM v_metrics")[1].value, 0.5)
  end)
end)

t.test("the end of an earlier attempt is ignored", function()
  t.in_folder(function(folder)
    local store <close> = open(folder)
    local first = trial()
    killed(folder, { { "step", 1, 1.0 } })
    store:begin(trial(), core.sys.getpid())
    first.attempt = 1
    store:finish(first, "failed", "late")
    store:end_journal(first)
    t.eq({ (store:status(ID)), store:count_journals() }, { "running", 1 })
  end)
end)

t.test("a run removes its lock file at its end, and the files of killed runs", function()
  t.in_folder(function(folder)
    local root = folder .. "/r"
    local store <close> = open(folder)
    core.sys.mkdir(root .. "/at-work")
    t.write(root .. "/at-work/n2.7-1", "")
    store:begin(trial(), core.sys.getpid())
    local row = select(2, store:status(ID))
    t.eq(core.sys.list(root .. "/at-work"), { row.run })
    t.ok(alive.has_run(root, row))
    store:close()
    t.eq(core.sys.list(root .. "/at-work"), {})
    t.ok(not alive.has_run(root, row))
  end)
end)

-- Calls fn() while object[name] runs meanwhile() before each call, once.
local function with(object, name, meanwhile, fn)
  local old, called = object[name], false
  object[name] = function(...)
    if not called then
      called = true
      meanwhile()
    end
    return old(...)
  end
  local ok, why = pcall(fn)
  object[name] = old
  t.ok(ok, why)
  t.ok(called)
end

t.test("a concurrent mark is not lost", function()
  t.in_folder(function(folder)
    local store <close> = open(folder)
    with(selection, "ids", function()
      local other <close> = open(folder)
      other:mark(ID, "marks", "one", "")
    end, function() marks.mark(store, { words = { "@all" }, tag = { "two" } }) end)
    t.eq(store:rows("SELECT tags FROM trials")[1].tags, "one two")
  end)
end)

t.test("merge skips a trial that a run begins meanwhile", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/there", { { name = "a", experiment = "x", config = { a = 1 },
      files = { step = "state" }, step = 4 } })
    local store <close> = open(folder)
    local other <close> = records.open(folder .. "/there", "r")
    local run <close> = open(folder)
    local told
    with(trial_files, "intact", function()
      run:begin(trial(), core.sys.getpid())
    end, function() told = merge.run(store, other) end)
    t.eq({ told.add, told.replace, told.busy }, { 0, 0, 1 })
    t.eq((store:status(ID)), "running")
    t.ok(not core.sys.exists(folder .. "/r/" .. PATH .. "/step-00000004.h5"))
    for _, name in ipairs(core.sys.list(folder .. "/r/runs")) do
      t.ok(not name:find "tmp", name)
    end
  end)
end)

t.test("fsck --repair skips a trial that a run begins meanwhile", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/r", { { name = "a", experiment = "x", config = { a = 1 },
      status = "failed", files = { step = "state" }, step = 4 } })
    records.open(folder .. "/r", "w"):close()
    t.write(folder .. "/r/" .. PATH .. "/step-00000004.h5", "other")
    local run <close> = open(folder)
    local how
    with(os, "date", function() run:begin(trial(1), core.sys.getpid()) end, function()
      check.run(folder .. "/r", { repair = true }, function(item) how = item.how or how end)
    end)
    t.eq(how, "left: a run has begun it")
    t.eq(core.sys.list(folder .. "/r/" .. PATH),
      { "events-1.jnl", "events-2.jnl", "step-00000004.h5" })
  end)
end)

t.test("a store locked for too long gives the exit code LOCKED", function()
  t.in_folder(function(folder)
    local store <close> = open(folder)
    local held = store.store
    store.store = { exec = function() error({ status = "ELOCKED", message = "held" }, 0) end }
    local ok, why = pcall(store.transaction, store, function() end)
    store.store = held
    t.eq({ ok, errors.is(why) and why.code }, { false, errors.LOCKED })
  end)
end)

-- name; the lines of a journal that follow; the last values afterwards
local followed = {
  { "earlier steps change nothing", { { "metric", 3, "loss", 7.0 } },
    { "acc 2 0.5", "loss 9 1.0" } },
  { "the same step may be logged again", { { "metric", 9, "loss", 7.0 } },
    { "acc 2 0.5", "loss 9 7.0" } },
  { "a value that is no number counts", { { "metric", 10, "loss" } },
    { "acc 2 0.5", "loss 10 nil" } },
  { "what is forgotten gives way to what is before", { { "forget", 5 } },
    { "acc 2 0.5", "loss 5 5.0" } },
  { "a metric that is forgotten as a whole has none", { { "forget", 1 } }, { "loss 1 9.0" } },
  { "an index is not a step", { { "metric", 50, "acc", 2.0, 3 }, { "forget", 4 } },
    { "acc 50 2.0", "loss 4 6.0" } },
}

for _, case in ipairs(followed) do
  local name, lines, want = table.unpack(case)
  t.test("last values follow the metrics: " .. name, function()
    t.in_folder(function(folder)
      local store <close> = open(folder)
      for step = 1, 9 do replay.apply(store, ID, { "metric", step, "loss", 10.0 - step }) end
      replay.apply(store, ID, { "metric", 2, "acc", 0.5 })
      for _, line in ipairs(lines) do replay.apply(store, ID, line) end
      local found = {}
      for i, row in ipairs(store:rows "SELECT * FROM last ORDER BY name") do
        found[i] = ("%s %d %s"):format(row.name, row.step, row.value)
      end
      t.eq(found, want)
    end)
  end)
end

t.done()
