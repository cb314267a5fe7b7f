-- test_hosts.lua: two machines with one results folder on a network.
local t = require "harness"
local core = require "toeplab.core"
local hosts = require "hosts"

local with_folder, any = hosts.with_folder, hosts.any
local program = core.sys.executable()

local DONE = "done done done done done done"

t.test("two hosts share the trials of a sweep, and each knows all", function()
  with_folder(function(f)
    local first = f:start "a"
    f:wait_for("a", "running queued queued queued queued queued")
    local second = f:start "b"
    f:wait_for("a", "running running queued queued queued queued")
    f:wait_for("b", "running running queued queued queued queued")
    local known = f:known "b"
    t.ok(any(known, ",loss,")) -- what the run of the other one has logged
    t.eq(f:known "a", known)
    t.write(f.folder .. "/go", "")
    for _, finish in ipairs { first, second } do
      local code, said = finish()
      t.ok(code == 0 or code == 5, said) -- 5: the other one still runs the last trial
    end
    t.eq(f:statuses "a", DONE)
    known = f:known "a"
    t.eq(f:known "b", known)
    t.eq(f:known "c", known) -- a host that has never seen the folder
    t.ok(not any(known, ",done,2,") and not core.sys.exists(f.root .. "/runs.db"))
    local said, code = f:ask("b", "fsck")
    t.ok(code == 0 and said:find "^6 trials, %d+ files: all is whole\n$", said)
    t.holds(f:ask("b", "doctor"), "; its database is " .. f.folder .. "/b/index/")
    said, code = f:ask("b", "run '" .. f.folder .. "/x.lua'")
    t.ok(code == 0 and said:find("6 already done", 1, true), said)
  end)
end)

t.test("a host continues what a killed run of another one has left, bit for bit", function()
  with_folder(function(f)
    local first = f:start "a"
    f:wait_for("b", "running queued queued queued queued queued")
    local run = f:ask("b", [[ls --csv --sql "SELECT json_extract(provenance, '$.run') AS run
      FROM v_trials WHERE status = 'running'"]])
    t.shell("kill -9 " .. run:match "%.(%d+)%-")
    t.eq(first(), 137)
    t.write(f.folder .. "/go", "")
    local code, said = f:start("b", "-j2")()
    t.ok(code == 0, said)
    t.eq(f:statuses "a", DONE)
    t.eq(f:known "a", f:known "b")
    local got = f:known "a"
    for i, line in ipairs(got) do got[i] = line:gsub(",done,2,", ",done,1,") end
    f.root = f.folder .. "/alone"
    t.eq(f:start "a"(), 0)
    t.eq(got, f:known "a")
  end)
end)

t.test("marks, the trash, purges and merges of one host reach the others while a run goes on",
  function()
    with_folder(function(f)
      t.write(f.folder .. "/go", "")
      local root = f.root
      f.root = f.folder .. "/there"
      t.eq(f:start("a", "a=7")(), 0)
      f.root = root
      t.eq(f:start("a", "a=1,2")(), 0)
      t.eq(core.sys.remove(f.folder .. "/go"), true)
      local going = f:start("a", "a=3")
      f:wait_for("b", "done done done done running queued")
      for _, step in ipairs { { "mark a=1 --tag good" }, { "rm a=2" },
          { ("merge '%s/there'"):format(f.folder) }, { "rm --purge --days 0" },
          { "mark a=7 --tag far", "a" } } do
        local said, code = f:ask(step[2] or "b", step[1])
        t.ok(code == 0, step[1] .. ": " .. said)
        t.eq({ step[1], f:known "a" }, { step[1], f:known "b" })
      end
      t.ok(any(f:known "a", ",good,") and any(f:known "a", ",far,"))
      t.eq(f:statuses "a", "done done running queued done done")
      t.write(f.folder .. "/go", "")
      local code, said = going()
      t.ok(code == 0, said)
      t.eq(f:statuses "b", "done done done done done done")
      local known = f:known "a"
      t.eq(f:known "b", known)
      t.shell(("rm -r '%s/a'"):format(f.folder))
      t.eq(f:known "a", known)
      said, code = f:ask("b", "fsck")
      t.ok(code == 0, said)
    end)
  end)

t.test("a trial is stopped from another host", function()
  with_folder(function(f)
    local going = f:start("a", "a=1 seeds=1")
    f:wait_for("b", "running")
    local said, code = f:ask("b", "status --stop a=1")
    t.ok(code == 0, said)
    t.ok(going() ~= 0)
    t.eq(f:statuses "b", "interrupted")
  end)
end)

t.test("a folder that replaces another one at its path is not taken for it", function()
  with_folder(function(f)
    t.write(f.folder .. "/go", "")
    t.eq(f:start("a", "a=1 seeds=1")(), 0)
    t.shell(("rm -r '%s'"):format(f.root))
    t.eq(f:start("b", "a=2 seeds=2")(), 0)
    t.eq(f:statuses "a", "done done")
    t.eq(f:known "a", f:known "b")
  end)
end)

t.test("a folder that was used on its own machine is used on a network, and back", function()
  with_folder(function(f)
    t.write(f.folder .. "/go", "")
    local run = ("TOEPLAB_THREADS=1 '%s' run '%s/x.lua' -C '%s' 2>&1 "):format(program, f.folder,
      f.root)
    t.eq(select(2, t.shell(run .. "a=1")), 0)
    t.ok(core.sys.exists(f.root .. "/runs.db"))
    t.eq(f:statuses "a", "done done")
    t.eq(f:start("a", "a=1,2")(), 0)
    local said, code = t.shell(run .. "a=1,2")
    t.ok(code == 0 and said:find("4 trials: 4 already done", 1, true), said)
    -- of a version that kept no files of sweeps
    t.shell(("rm -r '%s/a' '%s/sweeps' '%s/news'"):format(f.folder, f.root, f.root))
    t.eq(f:statuses "a", "done done done done")
    t.eq(f:start("a", "a=1,2,3")(), 0)
    t.eq(f:statuses "b", DONE)
  end)
end)

t.done()
