-- torture_hosts.lua: two hosts run, mark and kill in one results folder, again and again; one of
-- them sees names late. In the end all is there once, and both know the same.
--   toeplab lua torture_hosts.lua [ROUNDS [SEED]], in tests/lua
local t = require "harness"
local core = require "toeplab.core"
local hosts = require "hosts"
local journal = require "toeplab.store.journal"

local rounds, seed = tonumber(arg[1] or 8), math.tointeger(tonumber(arg[2] or os.time()))

local script = [[
local tl = require "toeplab"
return tl.experiment "shared" {
  fixed = { steps = 12, pause = 0.05 }, grid = { a = { 1, 2, 3, 4 } }, seeds = 3,
  checkpoint = { steps = 3 },
  trial = function(t, c)
    local x = tl.zeros(4)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * 0.5 + noise:normal(tl.zeros(4), 0, c.a))
      t:log { loss = (x * x):mean():item() }
      tl.sys.sleep(c.pause)
    end
    t:log { final = x:sum():item() }
  end,
  report = { rows = "a", columns = { "final" } },
}
]]

local RESULTS = [["SELECT json_extract(t.config, '$.a') AS a, t.seed, t.status, t.step, t.TAGS,
  m.name, m.step, m.value FROM v_trials t JOIN v_metrics m ON m.trial = t.id
  ORDER BY a, t.seed, m.name, m.step"]]

-- What a host knows of the trials; column: one of theirs more.
local function results(f, host, column)
  return (f:ask(host, "ls --csv --sql " .. RESULTS:gsub("TAGS", column)))
end

-- Kills a run of the folder, and leaves its workers, which then save and end by themselves.
local function kill_one(f)
  local list = {}
  for pid in t.shell(("pgrep -f '[/]%s/x.lua -C'"):format(f.folder:sub(2))):gmatch "%d+" do
    if core.sys.read_file(("/proc/%s/comm"):format(pid)) == "toeplab\n" then
      list[#list + 1] = pid
    end
  end
  if #list > 0 then t.shell("kill -9 " .. list[math.random(#list)]) end
end

-- Counts the attempts that reached the end of their trials; a second one is a trial run twice.
local function ends(f)
  local count = 0
  for _, name in ipairs(core.sys.list(f.root .. "/runs")) do
    for _, file in ipairs(core.sys.list(f.root .. "/runs/" .. name)) do
      local lines = {}
      if file:find "^events" then
        lines = journal.read(("%s/runs/%s/%s"):format(f.root, name, file), 0)
      end
      for _, line in ipairs(lines) do
        if line[1] == "end" and line[2] == "done" then count = count + 1 end
      end
    end
  end
  return count
end

t.test(("two hosts that are killed %d times run each trial once (seed %d)"):format(rounds, seed),
  function()
    hosts.with_folder(function(f)
      math.randomseed(seed)
      t.write(f.folder .. "/x.lua", script)
      local late = f.folder .. "/late.so"
      local said, code = t.shell(("cc -O1 -shared -fPIC '%stests/faults/late.c' -o '%s' -ldl 2>&1")
        :format(t.root, late))
      t.ok(code == 0, said)
      f.environment.b = ("LD_PRELOAD='%s' LATE_PATH='%s' LATE_SECONDS=2"):format(late, f.root)
      local names = { "a", "b" }
      local running, marks = {}, 0
      for round = 1, rounds do
        for _, host in ipairs(names) do
          if math.random() < 0.7 then
            running[#running + 1] = f:start(host, "-j" .. math.random(2) .. " -q")
          end
        end
        core.sys.sleep(0.3 + math.random() * 1.5)
        if math.random() < 0.5 then
          said, code = f:ask(names[math.random(2)], ("mark a=%d --tag t%d"):format(math.random(4),
            round))
          t.ok(code == 0 or said:find "no trial" or said:find "holds no runs", said)
          if code == 0 then marks = marks + 1 end
        end
        kill_one(f)
      end
      for _, finish in ipairs(running) do finish() end
      for _ = 1, 10 do
        code, said = f:start("a", "-q")()
        if code == 0 then break end
        core.sys.sleep(1)
      end
      t.eq(code, 0)
      t.eq(select(2, f:ask("a", "rm a=2 seed=1")), 0)
      core.sys.sleep(2.5) -- as long as b remembers that a name was missing
      local all = results(f, "a", "tags")
      t.ok(results(f, "b", "tags") == all, "the hosts know different things")
      t.ok(results(f, "c", "tags") == all, "the files say something else")
      t.eq(select(2, f:ask("b", "rm --restore a=2 seed=1")), 0)
      local got = results(f, "a", "seed")
      t.eq(ends(f), 12)
      local tags = f:ask("a", [[ls --csv --sql "SELECT tags FROM v_trials"]])
      local _, count = tags:gsub("t%d+", "")
      t.ok(count >= marks, tags)
      for _, host in ipairs { "a", "b" } do
        said, code = f:ask(host, "fsck")
        t.ok(code == 0, said)
      end
      f.root = f.folder .. "/alone"
      t.eq(f:start("d", "-q")(), 0)
      t.ok(results(f, "d", "seed") == got, "a run without kills has other results")
    end)
  end)

t.done()
