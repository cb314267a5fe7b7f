-- test_rebuild.lua: runs.db is an index: whatever was done to the trials, the same rows come back
-- from the files of the folder once it is removed.
local t = require "harness"
local core = require "toeplab.core"
local marks = require "toeplab.store.marks"
local check = require "toeplab.store.check"
local journal = require "toeplab.store.journal"
local merge = require "toeplab.store.merge"
local records = require "toeplab.store.records"
local stores = require "stores"
local sweeps = require "toeplab.store.sweeps"
local trash = require "toeplab.store.trash"

local id = stores.id

-- What everybody may rely on, in an order of its own.
local VIEWS = { "v_trials ORDER BY id", "v_trash ORDER BY id", "v_metrics", "v_last", "v_artifacts",
  "v_members", "v_events ORDER BY trial, created, kind", "sweeps ORDER BY id" }

local function dump(folder)
  local list = {}
  for _, view in ipairs(VIEWS) do
    for _, row in ipairs(stores.dump(folder, "SELECT * FROM " .. view)) do
      list[#list + 1] = view .. ": " .. row
    end
  end
  return list
end

local function rows_of(names)
  local list = {}
  for i, name in ipairs(names) do
    list[i] = { id = id(name), experiment = "decay", config = { op = name },
      json = ('{"op":"%s"}'):format(name), seed = i, code_hash = "c", data_hash = "",
      label = "op=" .. name }
  end
  return sweeps.rows_of(list)
end

local function sweep(store, plan)
  return store:sweep { experiment = "decay", script = "x.lua", source = "-- x",
    sha256 = core.sha256 "x", command = "toeplab run x.lua", scale = "", plan = plan }
end

local function begin(store, name)
  store:rows("UPDATE trials SET status = 'queued', ended = NULL WHERE id = ?", { id(name) })
  return store:begin({ id = id(name), label = "op=" .. name, data = {}, code_hash = "c",
    provenance = { host = core.sys.hostname(), command = "toeplab run x.lua", commit = "abc",
      dirty = true } }, core.sys.getpid())
end

-- Logs lines to the journal of an attempt and copies them.
local function log(store, name, attempt, lines)
  local path = "runs/" .. id(name):sub(1, 12)
  local w = journal.writer(store.folder .. "/" .. journal.path(path, attempt))
  w:add(lines)
  w:close()
  store:take { id = id(name), path = path, attempt = attempt }
end

local function done(at) return { "end", "done", nil, nil, 2.5, at, n = 6 } end

-- What was done: a name, and a function of the store, opened for writing, and its folder.
local cases = {
  { "nothing", function() end },
  { "marks", function(store)
    marks.mark(store, { words = { "@all" }, tag = { "paper", "b" },
      note = { "one", "two\nthree" } })
    marks.mark(store, { words = { id "a" }, untag = { "b" }, clear = true })
  end },
  { "the trash", function(store)
    trash.put(store, { id "a", id "b", id "c" })
    trash.restore(store, { id "b" })
  end },
  { "somebody's wish that a trial stops", function(store)
    begin(store, "d")
    marks.stop(store, { words = { id "d" } })
  end },
  { "a run again from the start", function(store)
    store:mark(id "a", "redo")
    begin(store, "a")
    log(store, "a", 2, { { "metric", 1, "loss", 0.5 }, done(3.0) })
    store:end_journal { id = id "a", attempt = 2 }
  end },
  { "a run that goes on", function(store)
    begin(store, "d")
    log(store, "d", 2, { { "code", "other", 5.0 }, { "metric", 1, "gap", 0 / 0 },
      { "event", 1, "rollback", "nan", 6.0 }, { "step", 1, 2.0 } })
  end },
  { "an attempt that other code went on with", function(store)
    begin(store, "c")
    log(store, "c", 2, { { "step", 3, 2.0 }, { "metric", 4, "loss", 1.0 },
      { "end", "interrupted", "stopped", nil, 2.0, 7.0, n = 6 } })
    store:end_journal { id = id "c", attempt = 2 }
    begin(store, "c")
    log(store, "c", 3, { { "code", "other", 8.0 }, { "forget", 3 }, { "metric", 4, "loss", 2.0 },
      done(9.0) })
    store:end_journal { id = id "c", attempt = 3 }
  end },
  { "an end that its run recorded, and one that came after it", function(store)
    for _, name in ipairs { "c", "d" } do
      begin(store, name)
      local _, row = store:status(id(name))
      store:finish({ id = id(name), attempt = row.attempt }, "interrupted", "gone")
    end
    log(store, "d", 2, { done(9.0) })
    store:end_journal { id = id "d", attempt = 2 }
  end },
  { "events and files beside the journal", function(store)
    store:event(id "a", 4, "judged", "it goes on")
    t.write(store.folder .. "/runs/" .. id("a"):sub(1, 12) .. "/backends-00.txt", "abc")
    store:artifact(id "a", "backends", 0, "runs/" .. id("a"):sub(1, 12) .. "/backends-00.txt", 3,
      core.sha256 "abc")
  end },
  { "sweeps that share trials and lose some", function(store)
    local one, two = sweep(store, "{}"), sweep(store, '{"axes":["op"]}')
    store:enlist(one, rows_of { "new", "a", "newer" })
    store:enlist(two, rows_of { "b", "new", "a" })
    store:enlist(one, rows_of { "newer" })
    trash.put(store, { id "newer" })
    store:enlist(two, rows_of { "newer", "b" })
  end },
  { "a purge", function(store)
    store:enlist(sweep(store, "{}"), rows_of { "new" })
    trash.put(store, { id "a", id "new" })
    store:transaction(function() trash.delete(store, { id "a", id "new" }) end)
  end },
  { "trials of another folder", function(store, folder)
    stores.fill(folder .. "/there", { { name = "z", experiment = "decay", config = { op = "z" },
      metrics = { loss = { 1, 0 / 0 } }, files = { step = "state z" } },
      { name = "b", experiment = "decay", config = { op = "b" }, metrics = { loss = { 3 } } } })
    local other <close> = records.open(folder .. "/there", "r")
    local told = merge.run(store, other)
    t.eq({ told.add, told.conflict }, { 1, 1 })
  end },
  { "rows of a bench", function(store)
    store:enlist(sweep(store, "{}"), rows_of { "fast" })
    begin(store, "fast")
    store:complete(id "fast", { { "ms", 0, 1.5 }, { "ms", 1, 2.5 } }, 0.25)
  end },
}

for _, case in ipairs(cases) do
  t.test("the same rows come back after " .. case[1], function()
    t.in_folder(function(folder)
      local root = folder .. "/results"
      stores.fill(root, stores.sample)
      do
        local store <close> = records.open(root, "w")
        case[2](store, folder)
      end
      local before = dump(root)
      t.ok(#before > 9)
      os.execute(("rm '%s'/runs.db*"):format(root))
      t.eq(dump(root), before)
      check.run(root, {}, function(item) t.ok(not item.lost, item.text) end)
    end)
  end)
end

t.test("a damaged file of a sweep is set aside, and its command restores the results", function()
  for _, text in ipairs { "", "garbage", "{}", "[]", "null", '{"experiment":5,"trials":[]}',
    '{"experiment":"decay","trials":[]}' } do
    t.in_folder(function(folder)
      stores.fill(folder, stores.sample)
      local made, want
      do
        local store <close> = records.open(folder, "w")
        made = sweep(store, "{}")
        store:enlist(made, rows_of { "new", "newer" })
        begin(store, "new")
        log(store, "new", 1, { { "metric", 1, "loss", 0.5 }, done(3.0) })
        store:end_journal { id = id "new", attempt = 1 }
        want = store:rows("SELECT status, attempt FROM trials WHERE id = ?", { id "new" })
      end
      os.execute(("rm '%s'/runs.db*"):format(folder))
      t.write(("%s/sweeps/%d.json"):format(folder, made), text)
      local store <close> = records.open(folder, "w")
      t.eq(#store:rows("SELECT 1 FROM trials WHERE id = ?", { id "new" }), 0)
      for _, item in ipairs(trash.stale(store)) do
        t.ok(not item.path:find(id("new"):sub(1, 12), 1, true), item.path)
      end
      store:enlist(sweep(store, "{}"), rows_of { "new", "newer" })
      t.eq(store:rows("SELECT status, attempt FROM trials WHERE id = ?", { id "new" }), want)
      t.eq(#store:rows("SELECT 1 FROM metrics WHERE trial = ?", { id "new" }), 1)
    end)
  end
end)

t.test("a mark torn by a kill is cut off before the next one is appended", function()
  t.in_folder(function(folder)
    stores.fill(folder, stores.sample)
    local store <close> = records.open(folder, "w")
    store:mark(id "a", "marks", "one", "")
    local path = folder .. "/runs/" .. id("a"):sub(1, 12) .. "/marks.jnl"
    local whole = t.read(path)
    t.write(path, whole .. "marks 1 0x1p+3 +tw")
    store:mark(id "a", "marks", "three", "")
    t.eq(t.read(path):sub(1, #whole), whole)
    t.eq(#journal.read(path, 0), 2)
  end)
end)

t.test("a damaged offset into the news rebuilds the rows from the files", function()
  t.in_folder(function(folder)
    stores.fill(folder, stores.sample)
    os.execute(("rm '%s'/runs.db*"):format(folder)) -- rows as the files tell them
    records.open(folder, "w"):close()
    local want = dump(folder)
    for _, bytes in ipairs { "-28831", "-9223372036854775807 - 1", "9223372036854775807" } do
      do
        local store <close> = records.open(folder, "w")
        store:rows "PRAGMA ignore_check_constraints = ON"
        store:rows("UPDATE news SET bytes = " .. bytes)
      end
      records.open(folder, "w"):close()
      t.eq(dump(folder), want)
    end
  end)
end)

t.test("an empty database without files of sweeps counts as damaged", function()
  t.in_folder(function(folder)
    t.write(folder .. "/runs.db", "")
    assert(core.sys.mkdir(folder .. "/runs/" .. id("a"):sub(1, 12)))
    t.raises(records.open, "is damaged: it is empty, but .*/runs holds trials", folder, "r")
  end)
end)

t.done()
