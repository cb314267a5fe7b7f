-- test_hosts.lua: two machines with one results folder on a network.
local t = require "harness"
local core = require "toeplab.core"
local hosts = require "hosts"
local stores = require "stores"

local with_folder, any = hosts.with_folder, hosts.any
local program = core.sys.executable()

local DONE = "done done done done done done"

t.test("two hosts share the trials of a sweep, and each sees all results", function()
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

t.test("two hosts of one name, or two paths of the folder on one host, see all results", function()
  with_folder(function(f)
    f.hostname = "box"
    local first = f:start("a", "a=1,2")
    f:wait_for("b", "running queued queued queued")
    local second = f:start("b", "a=1,2")
    f:wait_for("a", "running running queued queued")
    t.ok(any(f:known "b", ",loss,3,"))
    t.eq(f:known "a", f:known "b")
    t.write(f.folder .. "/go", "")
    local codes = {}
    for i, finish in ipairs { first, second } do
      local said
      codes[i], said = finish()
      t.ok(codes[i] == 0 or codes[i] == 5, said) -- 5: the other one still runs the last trial
    end
    t.ok(codes[1] == 0 or codes[2] == 0)
    for _, host in ipairs { "a", "b", "c" } do t.eq(f:statuses(host), "done done done done") end
    t.eq(f:known "a", f:known "b")
    local said, code = f:ask("b", "fsck")
    t.ok(code == 0 and said:find "all is whole", said)
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

t.test("marks, the trash, purges and merges of one host reach the others during a run",
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
      f:wait_for("a", "done done done done running queued")
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

t.test("a folder that replaces another one at its path is recognised", function()
  with_folder(function(f)
    t.write(f.folder .. "/go", "")
    t.eq(f:start("a", "a=1 seeds=1")(), 0)
    t.shell(("rm -r '%s'"):format(f.root))
    t.eq(f:start("b", "a=2 seeds=2")(), 0)
    t.eq(f:statuses "a", "done done")
    t.eq(f:known "a", f:known "b")
    t.shell(("rm -r '%s'"):format(f.root))
    local code, said = f:start("b", "a=2 seeds=2")()
    t.ok(code == 0 and said:find "2 trials: 2 done", said)
    t.eq(f:statuses "a", "done done")
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
    stores.make_old(f.root)
    t.shell(("rm -r '%s/a' '%s/sweeps' '%s/news'"):format(f.folder, f.root, f.root))
    t.holds(f:ask("c", "ls"), "its schema version 5 is old") -- and the copy does not stay
    t.eq(core.sys.list(f.folder .. "/c/index/" .. core.sys.list(f.folder .. "/c/index")[1]), {})
    t.eq(f:start("a", "a=1,2,3")(), 0)
    t.eq(f:statuses "b", DONE)
    -- a database that was copied alone
    f.root = f.folder .. "/copy"
    core.sys.mkdir(f.root)
    t.shell(("cp '%s'/a/index/*/runs.db '%s'"):format(f.folder, f.root))
    local own = ("'%s' ls -C '%s'"):format(program, f.root)
    t.eq(select(2, t.shell(own):gsub("done", "")), 6)
    t.eq(select(2, t.shell(own):gsub("done", "")), 6)
  end)
end)

t.test("each of two runs on two hosts prints the whole table, and so does a host without an index",
  function()
    with_folder(function(f)
      local first = f:start("a", "a=1")
      f:wait_for("b", "running queued")
      local second = f:start("b", "a=1,2")
      f:wait_for("b", "running running queued queued")
      local own = ("TOEPLAB_THREADS=1 '%s' ls -C '%s'"):format(program, f.root)
      t.holds(t.shell(own), "running")
      t.write(f.folder .. "/go", "")
      t.eq(first(), 0)
      local code, said = second()
      t.ok(code == 0 and said:find "4 trials: %d done, %d already done", said)
      local _, count = t.shell(own):gsub("done", "")
      t.eq(count, 4)
    end)
  end)

t.test("a folder that was restored from a copy is recognised", function()
  with_folder(function(f)
    t.write(f.folder .. "/go", "")
    t.eq(f:start("a", "a=1 seeds=1")(), 0)
    local early = f:known "b"
    t.shell(("cp -r '%s' '%s/copy'"):format(f.root, f.folder))
    t.eq(f:start("a", "a=1,2 seeds=1")(), 0)
    t.eq(f:ask("b", "rm a=1"):find "trash" ~= nil, true)
    t.eq(#f:known "a", #f:known "b")
    t.shell(("rm -r '%s'; cp -r '%s/copy' '%s'"):format(f.root, f.folder, f.root))
    t.eq(f:known "a", early)
    t.eq(f:known "b", early)
    local said, code = f:ask("a", "fsck")
    t.ok(code == 0, said)
    t.eq(f:start("b", "a=1,2 seeds=1")(), 0)
    t.eq(f:statuses "a", "done done")
  end)
end)

t.test("a line of news torn by a full disk does not hide later lines", function()
  with_folder(function(f)
    t.write(f.folder .. "/go", "")
    t.eq(f:start("a", "a=1 seeds=1")(), 0)
    t.eq(f:statuses "b", "done")
    t.shell(("printf 'trial abcd' >>'%s/news'"):format(f.root))
    t.eq(f:start("a", "a=2 seeds=1")(), 0)
    t.eq(f:start("b", "a=3 seeds=1")(), 0)
    for _, host in ipairs { "a", "b", "c" } do t.eq(f:statuses(host), "done done done") end
    local said, code = f:ask("b", "fsck")
    t.ok(code == 0 and said:find "all is whole", said)
    t.eq(#core.sys.list(f.root .. "/sweeps"), 3)
  end)
end)

t.test("files without rows yet do not count as stale", function()
  with_folder(function(f)
    t.write(f.folder .. "/go", "")
    t.eq(f:start("a", "a=1 seeds=1")(), 0)
    t.eq(f:statuses "b", "done")
    local news = t.read(f.root .. "/news")
    t.eq(f:start("a", "a=2 seeds=1")(), 0)
    t.write(f.root .. "/news", news) -- as if the rest were lost
    t.eq((select(2, f:ask("b", "rm --purge --days 0"))), 0)
    t.eq(f:start("b", "a=3 seeds=1")(), 0)
    t.eq(#core.sys.list(f.root .. "/sweeps"), 3)
    t.eq(#core.sys.list(f.root .. "/runs"), 3)
    t.eq(f:statuses "c", "done done done")
  end)
end)

t.test("an index path that is not absolute is refused", function()
  with_folder(function(f)
    local said, code = t.shell(("TOEPLAB_INDEX=x '%s' ls -C '%s' 2>&1"):format(program, f.root))
    t.ok(code ~= 0 and said:find("TOEPLAB_INDEX=x: must be an absolute path", 1, true), said)
  end)
end)

t.done()
