-- test_takeover.lua: what the store makes of tasks of array jobs that were taken for dead, whether
-- they have ended or go on.
local t = require "harness"
local claimed = require "toeplab.runs.claimed"
local claims = require "toeplab.store.claims"
local clusters = require "clusters"
local core = require "toeplab.core"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local records = require "toeplab.store.records"
local sweeps = require "toeplab.store.sweeps"
local takeover = require "toeplab.store.takeover"
local trash = require "toeplab.store.trash"
local worker_process = require "toeplab.runs.worker_process"

local PROVENANCE = json.encode { label = "x", host = "n2", command = "toeplab run x.lua" }
local id = core.sha256 "trial"
local path = "runs/" .. claims.short(id)

-- ---- A trial and the task that has it ---------------------------------------------------------

local Case = {}
Case.__index = Case

-- Claims an attempt at the trial for another process.
function Case:claim(attempt)
  t.ok(claims.take(self.folder, id, attempt, { job = "1", task = 1, restarts = 0, host = "n2",
    pid = 5, started = 1.0, code = "c", provenance = PROVENANCE }))
end

-- Appends a record of these lines to the journal of an attempt.
function Case:log(attempt, lines)
  local writer = journal.writer(self.folder .. "/" .. journal.path(path, attempt))
  writer:add(lines, true)
  writer:close()
end

local function metric(step) return { "metric", step, "loss", 0.5, n = 4 } end

local DONE = { "end", "done", nil, nil, 1.0, n = 5 }

-- Copies what was written. in_queue: whether Slurm's queue still has the task.
function Case:run(in_queue)
  return takeover.run(self.store, function() return in_queue end, error)
end

function Case:clear() takeover.clear(self.store, {}) end

-- The status of the trial and the number of its metrics.
function Case:stored()
  return { self.store:rows("SELECT status FROM trials WHERE id = ?", { id })[1].status,
    self.store:rows("SELECT count(*) AS n FROM metrics")[1].n }
end

function Case:files() return core.sys.list(self.folder .. "/claims") end

-- Calls fn with a store that has one trial, of which a task has begun the first attempt and logged
-- one step.
local function with_task(fn)
  t.in_folder(function(folder)
    local store <close> = records.open(folder, "w")
    local config = { seed = 1 }
    store:enlist(store:sweep { experiment = "x", script = "x.lua", source = "", sha256 = "s",
      command = "toeplab run x.lua", scale = "", plan = "{}" }, sweeps.rows_of { { id = id,
      experiment = "x", config = config, json = json.encode(config), seed = 1, code_hash = "c",
      data_hash = "", label = "x" } })
    claims.make(folder)
    core.sys.mkdir(folder .. "/runs")
    core.sys.mkdir(folder .. "/" .. path)
    local self = setmetatable({ folder = folder, store = store }, Case)
    self:claim(1)
    self:log(1, { metric(1) })
    fn(self)
  end)
end

-- ---- The tests --------------------------------------------------------------------------------

t.test("what a task logs after it was taken for dead is read before its claim goes", function()
  with_task(function(c)
    t.eq(c:run(true)[id].job, "1")
    t.eq(c:run(false), {})
    t.eq(c:stored(), { "interrupted", 1 })
    c:log(1, { metric(2), DONE })
    c:clear()
    t.eq(c:stored(), { "done", 2 })
    t.eq(c:files(), {})
    t.eq(core.sys.list(c.folder .. "/" .. path), { "events-1.jnl", "marks.jnl" })
  end)
end)

t.test("a trial that ends after it was taken for dead stays done", function()
  with_task(function(c)
    c:run(false)
    c:log(1, { metric(2), DONE })
    for _ = 1, 3 do -- its process was killed before it could write an ending
      c:run(false)
      t.eq(c:stored(), { "done", 2 })
    end
  end)
end)

t.test("a takeover that is killed before it stores an end writes none beside the claim", function()
  with_task(function(c)
    local commit, seen = c.store.transaction, nil
    c.store.transaction = function(self, fn)
      local outer = not self.inside
      local result = commit(self, function()
        local inner = fn()
        if outer then seen = c:files() end -- what a kill before the commit would leave
        return inner
      end)
      return result
    end
    c:run(false)
    t.eq(#seen, 1)
    t.eq(#c:files(), 2)
    t.eq(c:stored(), { "interrupted", 1 })
  end)
end)

t.test("a takeover that is killed between the row and the ending is made good", function()
  with_task(function(c)
    c:run(false)
    core.sys.remove(("%s/claims/%s-1.interrupted"):format(c.folder, claims.short(id)))
    c:log(1, { metric(2) })
    c:run(false)
    t.eq(#c:files(), 2)
    t.eq(c:stored(), { "interrupted", 2 })
  end)
end)

t.test("an ending without a claim does not keep others from the trial", function()
  with_task(function(c)
    c:run(false)
    c:clear()
    claims.finish(c.folder, id, 1, "done", nil, nil, core.sys.now()) -- of the task that goes on
    t.eq(claims.list(c.folder), {})
    t.eq(c:run(false), {})
    t.eq(c:stored(), { "interrupted", 1 })
    c:claim(2)
    t.eq(claims.list(c.folder)[claims.short(id)], { attempt = 2, first = 2, ends = {} })
    claims.finish(c.folder, id, 2, "failed", "broken", nil, core.sys.now())
    c:run(true)
    t.eq(c:stored(), { "failed", 1 })
    c:clear()
    t.eq(c:files(), {})
  end)
end)

t.test("claims that others keep are not cleared, nor endings of theirs", function()
  with_task(function(c)
    claims.finish(c.folder, id, 2, "done", nil, nil, core.sys.now())
    takeover.clear(c.store, { [id] = true })
    t.eq(#c:files(), 2)
  end)
end)

t.test("files of a task that has just begun are not taken for stale ones", function()
  with_task(function(c)
    t.write(("%s/%s/checkpoint-00000002.h5"):format(c.folder, path), "x")
    t.eq(trash.stale(c.store), {})
    c:run(false)
    c:clear()
    t.eq(trash.stale(c.store)[1].path, path .. "/checkpoint-00000002.h5")
  end)
end)

t.test("temporary files of dead processes do not stay, nor count as claims", function()
  with_task(function(c)
    c:run(false)
    c:clear()
    local here, dead = core.sys.hostname(), 2 ^ 30 | 0
    local function write(host, pid)
      t.write(("%s/claims/.%s-1.tmp.%s.%d"):format(c.folder, claims.short(id), host, pid), "x")
    end
    write(here, dead)
    write(here, core.sys.getpid())
    write("n9", 77)
    t.ok(not claims.any(c.folder))
    t.eq(trash.stale(c.store)[1].path, ("claims/.%s-1.tmp.%s.%d"):format(claims.short(id), here,
      dead))
    takeover.clear(c.store, { [core.sha256 "other"] = true })
    t.eq(#c:files(), 2) -- who is at work may be about to give them their names
    takeover.clear(c.store, {})
    t.eq(c:files(), {})
  end)
end)

t.test("logs of workers have names of their own on each machine, and go with these", function()
  with_task(function(c)
    local process = worker_process.start({ folder = c.folder, shared = true,
      worker = function() return { "/bin/sh", "-c", "echo words >&2; exit 3" } end }, 1, "cpu", {})
    local here, dead = core.sys.hostname(), 2 ^ 30 | 0
    local own = ("worker-%s.%d-1.log"):format(here, core.sys.getpid())
    t.ok(process:cause():find("exit code 3: words", 1, true))
    for _, name in ipairs { "worker-1.log", "worker-77-1.log", "worker-n9.77-1.log",
      "worker-notes.log", ("worker-%s.%d-1.log"):format(here, dead) } do
      t.write(c.folder .. "/" .. name, "x")
    end
    local function stale()
      local names = {}
      for i, file in ipairs(trash.stale(c.store)) do names[i] = file.path end
      table.sort(names)
      return names
    end
    local all = { "worker-1.log", "worker-77-1.log", ("worker-%s.%d-1.log"):format(here, dead),
      "worker-n9.77-1.log" }
    table.sort(all)
    t.eq(stale(), all) -- this process is alive, so its own is not among them
    t.ok(core.sys.exists(c.folder .. "/" .. own))
    c:run(true) -- a trial is running
    t.eq(stale(), { ("worker-%s.%d-1.log"):format(here, dead) })
    process:kill()
    t.ok(not core.sys.exists(c.folder .. "/" .. own))
  end)
end)

t.test("a journal of a later attempt than the claims is left to the next run", function()
  with_task(function(c)
    c:run(true)
    claims.finish(c.folder, id, 1, "interrupted", "stopped", nil, core.sys.now())
    c:run(true)
    c.store:mark_running(id, 2, core.sys.now(), 77, "c", c.store:object(PROVENANCE))
    c:log(2, { metric(2) })
    c:clear()
    t.eq(c:files(), {})
    t.eq(#c.store:open_journals(), 1)
    t.eq(core.sys.list(c.folder .. "/" .. path), { "events-1.jnl", "events-2.jnl",
      "marks.jnl" })
  end)
end)

t.test("a clearing that is killed after the claim is gone loses nothing", function()
  with_task(function(c)
    c:run(false)
    c:log(1, { metric(2), DONE })
    core.sys.remove(("%s/claims/%s-1"):format(c.folder, claims.short(id)))
    c:run(false)
    c:clear()
    local open = c.store:open_journals()
    t.eq(#open, 1) -- prepared.replay reads it
    c.store:take(open[1])
    t.eq(c:stored(), { "done", 2 })
    t.eq(c:files(), {})
  end)
end)

t.test("a task whose claim was removed ends, and takes nothing as ended", function()
  for _, ended in ipairs { false, true } do
    with_task(function(c)
      c:run(false)
      c:clear()
      local trial = { id = id, path = path, label = "x", data = {}, code = "c",
        provenance = { host = "n1" }, attempt = 1, artifacts = {} }
      local task = claimed.new(c.folder, { trial }, { job = "1", task = 1, restarts = 0 })
      t.eq(task:begin(trial), 2)
      core.sys.remove(("%s/claims/%s-2"):format(c.folder, claims.short(id)))
      task.held[id].checked = -math.huge -- as if long ago
      if ended then task:finish(trial, "done") end
      t.raises(function()
        if ended then task:end_journal(trial) else task:check() end
      end, "its task was given up")
      t.eq(c:files(), {})
    end)
  end
end)

t.test("a claim whose number no attempt can have is no claim", function()
  with_task(function(c)
    t.write(("%s/claims/%s-999999999"):format(c.folder, claims.short(id)), "")
    t.eq(claims.list(c.folder)[claims.short(id)].attempt, 1)
    t.eq(c:run(true)[id].job, "1")
  end)
end)

t.test("a claim that cannot be read loses nothing that its task has logged", function()
  with_task(function(c)
    t.write(("%s/claims/%s-1"):format(c.folder, claims.short(id)), "")
    c:log(1, { metric(2), DONE })
    c:run(false)
    c:clear()
    t.eq(core.sys.list(c.folder .. "/" .. path), { "events-1.jnl" })
    t.eq(#journal.read(c.folder .. "/" .. path .. "/events-1.jnl", 0), 3)
  end)
end)

t.test("a trial that a task has claimed is not purged", function()
  with_task(function(c)
    trash.put(c.store, { id })
    t.eq(trash.expired(c.store, 0), {})
    c:run(false)
    c:clear()
    t.eq(trash.expired(c.store, 0), { id })
  end)
end)

t.test("a task whose submission was removed takes no further trial", function()
  clusters.with(function(c)
    local slow = c.folder .. "/slow"
    t.write(slow, "")
    t.write(c.folder .. "/x.lua", (c.script:gsub("if (tl.sys.exists %b\"\") then %S+ end",
      "while %1 do tl.sys.sleep(0.01) end")))
    t.eq(c:submit "seeds=1 --trials 2", 0)
    c:queue { { 1, 1 } }
    local task = c:start()
    local function has_begun()
      for _, id in ipairs(core.sys.list(c.root .. "/runs") or {}) do
        if core.sys.exists(("%s/runs/%s/events-1.jnl"):format(c.root, id)) then return true end
      end
    end
    for _ = 1, 400 do
      if has_begun() then break end
      core.sys.sleep(0.05)
    end
    core.sys.remove(c.root .. "/slurm/1/plan")
    os.remove(slow)
    t.eq(task:wait(true), 5)
    t.ok(t.read(c.folder .. "/log"):find("this task takes no further trial", 1, true))
    t.eq(#core.sys.list(c.root .. "/claims"), 2) -- the claim and the ending of one trial
    t.eq(c:statuses(), { done = 1, queued = 1 })
  end)
end)

t.done()
