-- test_processes.lua: a process is known by its number and by when it started.
local t = require "harness"
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local journal = require "toeplab.store.journal"
local prepare = require "toeplab.runs.prepare"
local process = require "toeplab.base.process"
local records = require "toeplab.store.records"
local selection = require "toeplab.store.selection"
local stores = require "stores"
local trash = require "toeplab.store.trash"
local worker_process = require "toeplab.runs.worker_process"

local host, me = core.sys.hostname(), core.sys.getpid()

-- Starts a process, calls fn with it, and ends it.
local function with_process(words, fn)
  t.in_folder(function(folder)
    local child <close> = core.sys.spawn(words, folder .. "/log")
    fn(child, folder)
  end)
end

t.test("a reused pid with another start time counts as a dead process", function()
  local start = process.start(me)
  t.eq(math.type(start), "integer")
  t.eq(process.has_died(host, me, start), false)
  t.eq(process.has_died(host, me, nil), false)
  t.eq(process.has_died(host, me, start - 1), true)
  t.eq(process.has_died(host, stores.gone, nil), true)
  t.eq(process.has_died("elsewhere", stores.gone, nil), false)
  t.eq(process.has_died(host, nil, nil), false)
end)

t.test("a zombie process counts as dead", function()
  with_process({ "/bin/true" }, function(child)
    local pid = child:pid()
    repeat core.sys.sleep(0.01) until process.has_died(host, pid)
    t.eq(core.sys.exists("/proc/" .. pid), true)
  end)
end)

t.test("a process name may look like the fields of /proc/PID/stat", function()
  t.in_folder(function(folder)
    local path = folder .. "/) Z 1 (x) R"
    os.execute(("cp /bin/sleep '%s'"):format(path))
    local child <close> = core.sys.spawn({ path, "100" }, folder .. "/log")
    t.ok(process.start(child:pid()) >= process.start(me))
  end)
end)

-- A trial that is marked as running in process pid, which started then, with a journal; in_use:
-- whether a process holds that.
local function with_running(folder, pid, start, in_use, fn)
  stores.fill(folder, { { name = "a", experiment = "x", config = {}, status = "running",
    host = host, pid = pid } })
  local store <close> = records.open(folder, "w")
  store:rows("UPDATE trials SET provenance = json_set(provenance, '$.process_start', ?)", { start })
  store:rows("INSERT INTO journals VALUES (?, 1, 0)", { stores.id "a" })
  local path = "runs/" .. stores.id("a"):sub(1, 12)
  core.sys.mkdir(folder .. "/" .. path)
  local writer = journal.writer(folder .. "/" .. journal.path(path, 1))
  local guard <close> = defer(function()
    if in_use then writer:close() end
  end)
  if not in_use then writer:close() end
  fn(store)
end

t.test("a trial whose pid was reused is killed, not running", function()
  for _, in_use in ipairs { false, true } do -- what holds its journal is at work on it
    t.in_folder(function(folder)
      with_running(folder, me, process.start(me) - 1, in_use, function(store)
        t.eq(#selection.ids(store, { in_use and "@running" or "@killed" }), 1)
      end)
    end)
  end
end)

t.test("a process that holds the journal of a killed run is not killed", function()
  with_process({ "/bin/sleep", "100" }, function(child, folder)
    local clock = core.sys.clock
    with_running(folder, child:pid(), process.start(child:pid()) - 1, true, function(store)
      core.sys.clock = function() return clock() * 1000 end
      local said
      local progress = { warn = function(_, ...) said = string.format(...) end }
      local ok, why = pcall(prepare.replay, { records = store, folder = folder,
        progress = progress })
      core.sys.clock = clock
      t.ok(ok, why)
      t.holds(said, "its worker still runs, though its run was killed")
      t.eq(#selection.ids(store, { "@running" }), 1)
      t.eq(store:count_journals(), 1)
    end)
    t.eq(child:wait(), nil)
    t.eq(child:pid() > 0, true)
  end)
end)

t.test("a worker asked to stop before it catches signals was stopped, not killed", function()
  t.in_folder(function(folder)
    for signal, want in pairs { INT = "stopped on request", TERM = "stopped by SIGTERM",
      [false] = "its process was killed by signal 15" } do
      local child = worker_process.start({ folder = folder, worker = function()
        return { "/bin/sh", "-c", "exec sleep 20" }
      end }, 1, "cpu", {})
      local guard <close> = defer(function() child:kill() end)
      if signal then child:ask_to_stop(signal) else child.process:signal "TERM" end
      t.eq((child:cause()), want)
    end
  end)
end)

t.test("a worker that closes its pipe and does not end is killed", function()
  t.in_folder(function(folder)
    local grace <const>, since = worker_process.GRACE_SECONDS, core.sys.clock()
    local restore <close> = defer(function() worker_process.GRACE_SECONDS = grace end)
    worker_process.GRACE_SECONDS = 0.3
    local child = worker_process.start({ folder = folder, worker = function()
      return { "/bin/sh", "-c", "exec 0<&- 1>&- 2>&- 3>&-; exec sleep 20" }
    end }, 1, "cpu", {})
    local guard <close> = defer(function() child:kill() end)
    while child.process:receive() do core.sys.sleep(0.01) end
    local why, signal = child:cause()
    t.eq(signal, 9)
    t.holds(why, "had closed its pipe and did not end")
    t.ok(core.sys.clock() - since < 15)
  end)
end)

t.test("logs of workers have unique names, and are removed with the workers", function()
  t.in_folder(function(folder)
    local process_of = worker_process.start({ folder = folder, worker = function()
      return { "/bin/sh", "-c", "echo words >&2; exit 3" }
    end }, 1, "cpu", {})
    local own, dead = ("worker-%s.%d-1.log"):format(host, me),
      ("worker-%s.%d-1.log"):format(host, 2 ^ 30 | 0)
    t.ok(process_of:cause():find("exit code 3: words", 1, true))
    for _, name in ipairs { "worker-1.log", "worker-77-1.log", "worker-n9.77-1.log",
      "worker-notes.log", dead } do
      t.write(folder .. "/" .. name, "x")
    end
    local function stale(store)
      local names = {}
      for i, file in ipairs(trash.stale(store)) do names[i] = file.path end
      table.sort(names)
      return names
    end
    local all = { "worker-1.log", "worker-77-1.log", dead, "worker-n9.77-1.log" }
    table.sort(all)
    do
      local store <close> = records.open(folder, "w")
      t.eq(stale(store), all) -- this process is alive, so its own is not among them
    end
    t.ok(core.sys.exists(folder .. "/" .. own))
    with_running(folder, me, process.start(me), false, function(store)
      t.eq(stale(store), { dead })
    end)
    process_of:kill()
    t.ok(not core.sys.exists(folder .. "/" .. own))
  end)
end)

t.done()
