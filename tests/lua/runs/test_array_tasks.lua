-- test_array_tasks.lua: array jobs share a results folder with one another and with runs, whatever
-- is killed; with a stand-in for Slurm's commands.
local t = require "harness"
local clusters = require "clusters"
local core = require "toeplab.core"
local records = require "toeplab.store.records"

local with_cluster = clusters.with
local METRICS = [[SELECT trial, name, step, printf('%a', value) AS value FROM v_metrics
  ORDER BY trial, name, step]]

local function wait_until(what, fn)
  for _ = 1, 200 do
    if fn() then return end
    core.sys.sleep(0.05)
  end
  error("waited in vain until " .. what)
end

t.test("a killed task loses no metric, and only its trial is submitted again", function()
  with_cluster(function(c)
    t.write(c.folder .. "/slow", "")
    t.eq(c:submit "pause=0.05 steps=200", 0)
    c:queue { { 1, 1 } }
    local task = c:start()
    local seven = "SELECT count(*) AS n FROM v_metrics WHERE step >= 7"
    wait_until("7 steps are logged", function() return (c:ran(seven) or { n = 0 }).n > 0 end)
    task:kill()
    os.remove(c.folder .. "/slow")
    for i = 2, 4 do t.eq(c:task(1, i), 0) end
    t.eq(c:statuses().done, 3)
    c:queue {}
    local code, said = c:submit "pause=0.05 steps=200"
    t.eq(code, 0)
    t.ok(said:find("1 of 4 trials: job 2, 1 task ", 1, true), said)
    local row = c:rows "SELECT error, step FROM v_trials WHERE status <> 'done'"[1]
    t.ok(row.step >= 5)
    c:queue { { 2, 1 } }
    t.eq(c:task(2, 1, 1), 0)
    t.eq(c:statuses(), { done = 4 })
    t.eq(c:rows "SELECT max(attempt) AS attempt, count(*) AS n FROM v_trials",
      { { attempt = 2, n = 4 } })
    t.eq(#c:rows(METRICS), 4 * 201)
  end)
end)

t.test("one trial of a task can be stopped, and the next command continues it", function()
  with_cluster(function(c)
    t.write(c.folder .. "/slow", "")
    local words = "pause=0.05 rate=0.5 seeds=2 steps=200"
    t.eq(c:submit(words .. " --trials 2"), 0)
    c:queue { { 1, 1 } }
    local task = c:start()
    wait_until("a step is logged", function() return c:ran "SELECT 1 FROM v_metrics" end)
    local id = c:rows "SELECT id FROM v_trials WHERE status = 'running'"[1].id
    local code, said = c:ask(("status --stop %s -C '%s'"):format(id, c.root))
    t.eq({ code, code == 0 and "" or said }, { 0, "" })
    wait_until("it is stopped", function()
      return c:ran "SELECT 1 FROM v_trials WHERE status = 'interrupted'"
    end)
    os.remove(c.folder .. "/slow")
    t.eq(task:wait(true), 1)
    t.eq(c:task(1, 1), 0) -- does not take it again
    t.eq(c:rows("SELECT id, attempt FROM v_trials WHERE status = 'interrupted'"),
      { { id = id, attempt = 1 } })
    t.eq(c:statuses(), { done = 1, interrupted = 1 })
    code, said = c:submit(words)
    t.eq(code, 0)
    t.holds(said, "1 of 2 trials: job 2, 1 task ")
    t.eq(c:task(2, 1), 0)
    t.eq(c:statuses(), { done = 2 })
  end)
end)

t.test("a task that was considered dead ends when another process has begun its trial", function()
  with_cluster(function(c)
    t.write(c.folder .. "/slow", "")
    t.eq(c:submit "pause=0.1 rate=0.5 seeds=1 steps=300", 0)
    c:queue { { 1, 1 } }
    local task = c:start()
    wait_until("it has begun", function() return c:ran "SELECT 1 FROM v_metrics" end)
    do
      local store <close> = records.open(c.root, "u")
      store:rows "UPDATE journals SET attempt = 2, bytes = 0"
      store:rows "UPDATE trials SET attempt = 2, host = 'n2'"
    end
    t.eq(task:wait(true), 1)
    t.holds(t.read(c.folder .. "/log"), "1 trial: 1 stopped")
    t.eq(c:rows "SELECT status, attempt, host, error FROM v_trials",
      { { status = "running", attempt = 2, host = "n2" } })
    t.eq(#c:rows "SELECT 1 FROM journals", 1)
  end)
end)

t.test("a trial that was killed with its task is begun again only by this task", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=2", 0)
    c:die(1, 1)
    t.eq(c:task(1, 2), 0)
    t.eq(c:statuses(), { done = 1, running = 1 })
    t.eq(c:task(1, 1), 0) -- Slurm has started it again
    t.eq(c:statuses(), { done = 2 })
    t.eq(c:rows "SELECT max(attempt) AS n FROM v_trials", { { n = 2 } })
  end)
end)

t.test("repeatedly killed tasks lose no metrics and run no trial twice", function()
  with_cluster(function(c)
    t.write(c.folder .. "/slow", "")
    local watch = ([[
    local held = io.open(("FOLDER/held-%g-%d"):format(c.rate, c.seed), "a")
    if not tl.sys.lock(held) then tl.sys.write_file("FOLDER/twice", "") end
    ]]):gsub("FOLDER", c.folder)
    t.write(c.folder .. "/x.lua", (c.script:gsub("local noise", function(text)
      return watch .. text
    end)))
    local words = "seeds=4 steps=60 pause=0.02"
    t.eq(c:submit(words .. " --trials 2"), 0)
    local queue, tasks = {}, {}
    for i = 1, 4 do
      queue[i] = { 1, i }
      tasks[i] = c:start(1, i)
    end
    c:queue(queue)
    for round = 1, 8 do
      core.sys.sleep(0.6)
      local i = round % 4 + 1
      tasks[i]:kill()
      tasks[i] = c:start(1, i) -- Slurm starts it again
      if round == 4 then t.eq((c:ask(("status -C '%s'"):format(c.root))), 0) end
    end
    for i = 1, 4 do
      local code = tasks[i]:wait(true)
      t.ok(code == 0, t.read(c.folder .. "/log"))
    end
    c:queue {}
    for _ = 1, 8 do -- what tasks left to the next command
      local code, said = c:submit(words)
      t.eq(code, 0)
      local job, count = said:match "trials: job (%d+), (%d+) task"
      if not job then break end
      for i = 1, count do t.eq(c:task(job, i, 1), 0) end
      c:queue {}
    end
    t.eq(c:statuses(), { done = 8 })
    t.ok(not core.sys.exists(c.folder .. "/twice"), "a trial was run by two processes at a time")
    local metrics, root = c:rows(METRICS), c.root
    t.eq((c:ask(("fsck -C '%s'"):format(c.root))), 0)
    c.root = c.folder .. "/alone"
    os.remove(c.folder .. "/slow")
    t.eq((c:ask(("run -q '%s/x.lua' -C '%s' %s"):format(c.folder, c.root, words))), 0)
    t.eq(c:rows(METRICS), metrics)
    c.root = root
  end)
end)

t.test("a run beside a job and its tasks share the trials", function()
  with_cluster(function(c)
    t.write(c.folder .. "/slow", "")
    t.eq(c:submit "pause=0.05 steps=100", 0)
    c:queue { { 1, 1 }, { 1, 2, "PENDING" }, { 1, 3, "PENDING" }, { 1, 4, "PENDING" } }
    local task = c:start(1, 3)
    wait_until("a step is logged", function() return c:ran "SELECT 1 FROM v_metrics" end)
    os.remove(c.folder .. "/slow")
    local code, said = c:ask(("run '%s/x.lua' -C '%s' pause=0.05 steps=100"):format(c.folder,
      c.root))
    t.ok(code == 0 or code == 5, said) -- 5: the task still runs its trial
    t.eq(task:wait(true), 0)
    t.eq(c:statuses(), { done = 4 })
    t.eq(c:rows "SELECT max(attempt) AS n FROM v_trials", { { n = 1 } })
    t.eq(c:rows "SELECT 1 AS n FROM v_trials WHERE json_extract(provenance, '$.job') = '1_3'",
      { { n = 1 } })
    for i = 1, 4 do t.eq(c:task(1, i), 0) end
    t.eq(c:rows "SELECT max(attempt) AS n FROM v_trials", { { n = 1 } })
  end)
end)

t.test("a results folder with claims of an older release loses nothing", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    local id = c:submitted(1)[1].id:sub(1, 12)
    for _, name in ipairs { "claims", "runs", "runs/" .. id } do
      core.sys.mkdir(c.root .. "/" .. name)
    end
    t.write(("%s/claims/%s-1"):format(c.root, id), "x")
    t.write(("%s/runs/%s/checkpoint-00000002.h5"):format(c.root, id), "x")
    for _, ask in ipairs { function() return c:task(1, 1) end, function() return c:submit() end,
      function() return c:ask(("run '%s/x.lua' -C '%s'"):format(c.folder, c.root)) end } do
      local code, said = ask()
      t.eq(code, 5)
      t.holds(said, "/claims: array jobs of an older release may have results",
        ("run `toeplab ls -C %s` of that release"):format(c.root))
    end
    for _, verb in ipairs { "rm --purge", "fsck --repair", "mark @last --tag x" } do
      t.eq((c:ask(("%s -C '%s'"):format(verb, c.root))), 5)
    end
    t.ok(core.sys.exists(("%s/runs/%s/checkpoint-00000002.h5"):format(c.root, id)))
    t.ok(core.sys.exists(("%s/claims/%s-1"):format(c.root, id)))
  end)
end)

t.test("files other than submissions are not removed with ended submissions", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    local photo = c.folder .. "/data/2023/photo"
    for _, path in ipairs { c.folder .. "/data", c.folder .. "/data/2023", c.root .. "/slurm/7" } do
      core.sys.mkdir(path)
    end
    t.write(photo, "x")
    t.write(c.root .. "/slurm/7/photo", "x")
    t.write(c.root .. "/slurm/1/photo", "x")
    c:queue {} -- the job has ended
    c:ask(("status -C '%s'"):format(c.root))
    t.eq(core.sys.exists(c.root .. "/slurm/1/job"), false)
    local kept = c.root .. "/slurm/%d/photo"
    t.ok(core.sys.exists(kept:format(7)) and core.sys.exists(kept:format(1)))
    t.shell(("rm -r '%s/slurm'; ln -s '%s/data' '%s/slurm'"):format(c.root, c.folder, c.root))
    local code, said = c:ask(("status -C '%s'"):format(c.root))
    t.eq(code, 6)
    t.holds(said, "/slurm is a symbolic link")
    t.ok(core.sys.exists(photo))
  end)
end)

t.test("a rejected job keeps trials that a run has begun meanwhile", function()
  with_cluster(function(c)
    t.write(c.folder .. "/bin/sbatch", ("#!/bin/sh\n(%s) >/dev/null 2>&1\necho no >&2\nexit 1\n")
      :format(c:line(("run -q '%s/x.lua' -C '%s' rate=0.5 seeds=1"):format(c.folder, c.root))))
    local code, said = c:submit()
    t.eq(code, 2)
    t.holds(said, "Slurm rejects the job: no")
    t.eq(c:statuses(), { done = 1 })
    t.eq(#c:rows "SELECT 1 FROM v_metrics", 13)
    t.eq(#c:rows "SELECT 1 FROM v_members", 1) -- of the sweep of that run
    local text
    code, text = c:ask(("fsck -C '%s'"):format(c.root))
    t.eq({ code, code == 0 and "" or text }, { 0, "" })
  end)
end)

-- ---- What is said of a job that has ended -------------------------------------------------------

-- Which tasks have written which last line to their logs, and which of these is quoted. The first
-- task has ended well, the second had a trial when it died, and the third has begun none.
local words = {
  { "of the task that had the lost trial", logs = { "fine", "Killed", "toeplab: no code" },
    quoted = "1_2.log says: Killed\n" },
  { "of a task that refused to begin", logs = { "toeplab: 1 failed", nil, "toeplab: no code" },
    quoted = "1_3.log says: toeplab: no code\n" },
  { "of no task whose trial is done", logs = { "toeplab: 1 failed", nil, nil },
    quoted = "job 1 has ended, and 3 of its 4 trials are not done\n" },
}

for _, case in ipairs(words) do
  t.test("a job that has ended is explained by the words " .. case[1], function()
    with_cluster(function(c)
      t.eq(c:submit(), 0)
      t.eq(c:task(1, 1), 0)
      if case.logs[2] then c:die(1, 2) end
      for i = 1, 3 do
        if case.logs[i] then
          t.write(("%s/slurm/logs/1_%d.log"):format(c.root, i), "x\n" .. case.logs[i] .. "\n")
        end
      end
      c:queue {}
      local _, said = c:ask(("status -C '%s'"):format(c.root))
      t.ok(said:find(case.quoted, 1, true), said)
    end)
  end)
end

t.done()
