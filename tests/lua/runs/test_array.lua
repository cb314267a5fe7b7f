-- test_array.lua: array jobs with a stand-in for Slurm's commands: what is submitted, what tasks
-- begin, and what comes into the store. tests/program/slurm.sh starts the real daemons.
local t = require "harness"
local clusters = require "clusters"
local core = require "toeplab.core"
local json = require "toeplab.base.json"

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

-- ---- Options and script ------------------------------------------------------------------------

t.test("options come from flags, the experiment's profile and the user's profile", function()
  with_cluster(function(c)
    core.sys.mkdir(c.folder .. "/.config/toeplab")
    t.write(c.folder .. "/.config/toeplab/slurm.lua",
      'return { partition = "long", account = "us", time = "2h" }')
    t.write(c.folder .. "/slurm.lua", 'return { partition = "main", gpus = 2, line = '
      .. '{ "module load hdf5", "#SBATCH --qos=low" } }')
    local code, said = c:submit "-n -j2 --time 90m --limit 3"
    t.eq(code, 0)
    for _, line in ipairs { "#SBATCH --partition=main", "#SBATCH --account=us",
      "#SBATCH --time=90", "#SBATCH --gpus=2", "#SBATCH --cpus-per-task=2",
      "#SBATCH --array=1-2%3", "#SBATCH --signal=B:USR1@90", "--requeue",
      "#SBATCH --qos=low\nmodule load hdf5\nexec ",
      "gpus: the job requests GPUs, but all trials have device=cpu: set device=cuda" } do
      t.ok(said:find(line, 1, true), line .. " is missing in\n" .. said)
    end
    t.ok(said:find(('#SBATCH --comment="toeplab %s 1"'):format(c.root), 1, true), said)
    t.ok(not core.sys.exists(c.root), "a dry run has made the folder")
    code, said = c:submit "-n --time 1-2:30"
    t.eq(code, 0)
    t.ok(said:find("#SBATCH --time=1-2:30\n", 1, true), said)
  end)
end)

local wrong = { -- words, profile, exit code, message
  { "--partition", nil, 2, "needs PARTITION" },
  { "--time soon", nil, 2, "option 'time' takes a time like 90m, 4h, 2d or 1%-12:00:00" },
  { "--time 3600", nil, 2, "'time' needs a unit: write 3600s for seconds or 3600m for minutes" },
  { "", "return { time = 3600 }", 2, "slurm.lua: option 'time' needs a unit: write 3600s for" },
  { "--time 1m", nil, 2, "option 'time' must be longer than the 90 seconds before its end" },
  { "--time 0:30", nil, 2, "option 'time' takes a time like" },
  { "--time 1-", nil, 2, "option 'time' takes a time like" },
  { "--memory 16", nil, 2, "'memory' needs a unit: write 16M for megabytes or 16G for" },
  { "--memory 16X", nil, 2, "option 'memory' takes a size like 500M or 16G" },
  { "--partition ''", nil, 2, "option 'partition' must be one line" },
  { "--line '#SBATCH -n 1 --array=1-3'", nil, 2, "'line' sets %-%-array, which toeplab sets" },
  { "", "return { line = { a = '#SBATCH --qos=low' } }", 2, "'line' must be a list of strings" },
  { "--cpus 0", nil, 2, "takes a number of at least 1" },
  { "--fail-fast", nil, 2, "%-%-fail%-fast cannot be combined with %-%-on slurm" },
  { "", "return { partitoin = 'x' }", 2, "unknown option 'partitoin'; did you mean 'partition'" },
  { "", "return 3", 2, "slurm.lua: takes a table of options, not a number" },
  { "", "return {", 2, "slurm.lua:1:" },
}

t.test("a secret is not written to a script, and may be in the experiment's file", function()
  with_cluster(function(c)
    local text = clusters.script:gsub("fail = 0", "fail = 0, password = 'opensesame'")
    t.write(c.folder .. "/x.lua", text)
    local code, said = c:submit "password=otherword rate=0.5 seeds=1"
    t.eq(code, 2)
    t.holds(said, "password=***: the job's script would store this secret")
    t.ok(not core.sys.exists(c.root .. "/slurm/1"))
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    t.eq(c:task(1, 1), 0)
    t.eq(c:statuses(), { done = 1 })
    t.eq(os.execute(("grep -rqE 'opensesame|otherword' '%s/slurm'"):format(c.root)), nil)
  end)
end)

for _, case in ipairs(wrong) do
  t.test("refused: " .. (case[1] ~= "" and case[1] or case[2]), function()
    with_cluster(function(c)
      if case[2] then t.write(c.folder .. "/slurm.lua", case[2]) end
      local code, said = c:submit(case[1])
      t.eq(code, case[3])
      t.ok(said:find(case[4]), said)
      t.ok(not core.sys.exists(c.root .. "/slurm/1"), "a submission is left over")
    end)
  end)
end

t.test("a job that Slurm rejects leaves no files", function()
  with_cluster(function(c)
    t.write(c.folder .. "/refuse", "sbatch: error: invalid partition specified: x\n")
    local code, said = c:submit "--partition x"
    t.eq(code, 2)
    t.holds(said, "invalid partition specified: x; the partitions here: main, long")
    t.write(c.folder .. "/refuse", "sbatch: error: Invalid job array specification\n")
    code, said = c:submit "seeds=200"
    t.eq(code, 2)
    t.holds(said, "Invalid job array specification; --trials N runs more trials per task")
    t.ok(not core.sys.exists(c.root .. "/slurm/1"))
    t.eq(#c:rows "SELECT 1 FROM v_trials", 0)
  end)
end)

t.test("a flag of a job without --on, and an experiment that prunes, are refused", function()
  with_cluster(function(c)
    local code, said = c:ask(("run '%s/x.lua' -C '%s' --time 2h"):format(c.folder, c.root))
    t.eq(code, 2)
    t.ok(said:find("--time requires --on slurm", 1, true), said)
    t.write(c.folder .. "/x.lua", (clusters.script:gsub("seeds = 2", "budget = { total = 9 }")))
    code, said = c:submit()
    t.eq(code, 2)
    t.ok(said:find("budget.total needs one process that compares all running", 1, true), said)
  end)
end)

-- ---- Tasks --------------------------------------------------------------------------------------

t.test("tasks log the metrics of a run without Slurm, and each trial runs once", function()
  with_cluster(function(c)
    local code, said = c:submit "--trials 2"
    t.eq(code, 0)
    t.ok(said:find("4 of 4 trials: job 1, 2 tasks", 1, true), said)
    c:queue { { 1, 1 }, { 1, 2, "PENDING" } }
    code, said = c:submit "--trials 2"
    t.eq(code, 0)
    t.ok(said:find("nothing to submit: 4 trials in the queue or in other runs", 1, true), said)
    for _ = 1, 2 do t.eq(c:task(1, 1), 0) end -- the second time none of its own is left
    t.eq(c:statuses(), { done = 2, queued = 2 })
    t.eq(c:task(1, 2), 0)
    t.eq(c:task(1, 2), 0)
    local metrics = c:rows(METRICS)
    t.eq(#metrics, 4 * 13)
    t.eq(c:rows "SELECT DISTINCT attempt, json_extract(provenance, '$.job') AS job FROM v_trials",
      { { attempt = 1, job = "1_1" }, { attempt = 1, job = "1_2" } })
    c:queue {}
    t.eq(c:submit(), 0)
    t.eq(core.sys.list(c.root .. "/slurm"), { "lock", "logs" })
    t.eq(core.sys.list(c.root .. "/at-work"), {})
    local root = c.root
    c.root = c.folder .. "/alone"
    t.eq(c:ask(("run -q '%s/x.lua' -C '%s'"):format(c.folder, c.root)), 0)
    t.eq(c:rows(METRICS), metrics)
    c.root = root
  end)
end)

t.test("a signal makes a task save and requeue itself", function()
  with_cluster(function(c)
    t.write(c.folder .. "/slow", "")
    t.eq(c:submit "pause=0.05 rate=0.5 seeds=1 steps=200", 0)
    c:queue { { 1, 1 } }
    local task = c:start()
    wait_until("8 steps are logged", function()
      return #c:rows "SELECT 1 FROM v_metrics WHERE step >= 8" > 0
    end)
    task:signal "USR1"
    t.eq(task:wait(true), 143)
    t.eq(t.read(c.folder .. "/asked"), "requeue 1_1\n") -- not "1", which is the whole array
    local row = c:rows "SELECT status, step, attempt FROM v_trials"[1]
    t.eq({ row.status, row.attempt }, { "interrupted", 1 })
    t.ok(row.step >= 8)
    os.remove(c.folder .. "/slow")
    t.eq(c:task(1, 1), 0)
    t.eq(c:rows "SELECT status, attempt FROM v_trials", { { status = "done", attempt = 2 } })
    t.eq(c:rows "SELECT count(*) AS n, max(step) AS step FROM v_metrics WHERE name = 'loss'",
      { { n = 200, step = 200 } })
  end)
end)

t.test("a task whose time is too short for a checkpoint is not requeued", function()
  with_cluster(function(c)
    t.write(c.folder .. "/x.lua", (c.script:gsub("local noise", function(text)
      return ([[tl.sys.write_file("%s/begun", "")
    while tl.sys.exists "%s/slow" do tl.sys.sleep(0.01) end
    %s]]):format(c.folder, c.folder, text)
    end)))
    t.write(c.folder .. "/slow", "")
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    c:queue { { 1, 1 } }
    local task = c:start()
    wait_until("it has begun", function() return core.sys.exists(c.folder .. "/begun") end)
    task:signal "USR1"
    t.eq(task:wait(true), 143)
    t.holds(t.read(c.folder .. "/log"),
      "job 1_1 is not requeued, because its time was too short for one checkpoint")
    t.eq(t.read(c.folder .. "/asked"), nil) -- nothing was asked of scontrol
    t.eq(c:rows "SELECT status, step FROM v_trials", { { status = "interrupted" } })
  end)
end)

t.test("a signal ends --wait, but not the job", function()
  with_cluster(function(c)
    local words = ("run '%s/x.lua' -C '%s' --on slurm --wait rate=0.5"):format(c.folder, c.root)
    c:queue { { 1, 1, "PENDING" }, { 1, 2, "PENDING" } }
    local run = core.sys.spawn({ "/bin/sh", "-c", c:line(words) }, c.folder .. "/log")
    wait_until("it waits", function()
      return (t.read(c.folder .. "/log") or ""):find("0 of 2 trials done", 1, true)
    end)
    run:signal "INT"
    local code
    wait_until("it ends", function()
      code = run:wait()
      return code
    end)
    t.eq(code, 130)
    t.holds(t.read(c.folder .. "/log"), "no longer waiting (SIGINT); the job continues")
    t.ok(core.sys.exists(c.root .. "/slurm/1/job"))
    t.eq(select(2, t.read(c.folder .. "/queue"):gsub("PENDING", "")), 2) -- nothing was cancelled
    t.eq(c:task(1, 1), 0)
    t.eq(c:statuses(), { done = 1, queued = 1 })
  end)
end)

t.test("tasks receive the settings of the command, from any folder", function()
  with_cluster(function(c)
    local text = c.script:gsub("grid = { rate = { 0.25, 0.5 } }", "grid = { rate = { 0.25 } }, "
      .. "tune = { key = 'steps', values = { 4, 6 }, metric = 'final', seed = 7 }, "
      .. "better = { final = 'lower' }")
    t.write(c.folder .. "/x.lua", text)
    local function submit()
      return c:wait_for(("cd '%s' && (%s)"):format(c.folder, c:line("run x.lua rate=0.5 -C r -j2 "
        .. "--checkpoint-steps 3 --timeout 2m --on slurm --trials 3")))
    end
    local code, said = submit() -- the small sweep that chooses the steps
    t.eq(code, 0)
    t.holds(said, "2 of 2 trials: job 1, 1 task ")
    local script = t.read(c.root .. "/slurm/1/script.sh")
    t.holds(script, ("run %s/x.lua rate=0.5 --dir=%s --jobs=2 --timeout=120 "
      .. "--checkpoint-steps=3 --array-task=1\n"):format(c.folder, c.root))
    t.eq(c:task(1, 1), 0)
    t.eq(c:statuses(), { done = 2 })
    c:queue {}
    code, said = submit()
    t.eq(code, 0)
    t.holds(said, "2 of 2 trials: job 2, 1 task ")
    t.eq(c:task(2, 1, 1), 0)
    t.eq(c:rows [[SELECT experiment, count(*) AS n, sum(status = 'done') AS done FROM v_trials
      GROUP BY 1 ORDER BY 1]], { { experiment = "sweep", n = 2, done = 2 },
      { experiment = "sweep-tuning", n = 2, done = 2 } })
    t.holds(c:rows("SELECT command FROM v_trials WHERE experiment = 'sweep'")[1].command,
      "toeplab run x.lua rate=0.5 -C r -j2", "--on slurm")
    t.eq(c:task(2, 1, 1), 0)
  end)
end)

t.test("a failed trial stays failed until another command tries it again", function()
  with_cluster(function(c)
    t.eq(c:submit "fail=7 rate=0.5 seeds=1", 0)
    c:queue { { 1, 1 } }
    t.eq(c:task(1, 1), 1)
    t.eq(c:task(1, 1), 0) -- it is not tried twice by one job
    t.eq(c:rows "SELECT status, attempt FROM v_trials", { { status = "failed", attempt = 1 } })
    c:queue {}
    local code, said = c:submit "fail=7 rate=0.5 seeds=1"
    t.eq(code, 0)
    t.ok(said:find("1 of 1 trials: job 2, 1 task", 1, true), said)
  end)
end)

t.test("other code on a node, and a changed script, are refused before a trial begins", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    t.write(c.folder .. "/x.lua", (c.script:gsub("loss = ", "loss = 2 * ")))
    local code, said = c:task(1, 1)
    t.eq(code, 1)
    t.ok(said:find("has changed since the sweep was submitted; submit again", 1, true), said)
    t.write(c.folder .. "/x.lua", c.script)
    local path = c.root .. "/slurm/1/job"
    local job = json.decode(t.read(path))
    job.trials[1].code = ("0"):rep(64)
    t.write(path, json.encode(job))
    code, said = c:task(1, 1)
    t.eq(code, 1)
    t.ok(said:find("this build of toeplab %(code %x+%) differs from .* began the sweep %(0+%)"),
      said)
    t.eq(c:statuses(), { queued = 1 })
  end)
end)

t.test("while Slurm does not answer, no submission is removed and no job cancelled", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    c:queue { { 1, 1 } }
    t.eq(c:task(1, 1), 0)
    t.write(c.folder .. "/silent", "")
    t.eq(c:statuses(), { done = 1 })
    t.eq((c:ask(("status -C '%s'"):format(c.root))), 0)
    t.ok(core.sys.exists(c.root .. "/slurm/1/job"))
    local code, said = c:submit "rate=0.5 seeds=2"
    t.eq(code, 1)
    t.ok(said:find("Slurm does not answer: slurm_load_jobs error: timed out", 1, true), said)
    code, said = c:ask(("status --cancel -C '%s'"):format(c.root))
    t.eq(code, 1)
    t.ok(said:find("toeplab: Slurm does not answer: slurm_load_jobs", 1, true), said)
    t.ok(not said:find("no job is in the queue", 1, true), said)
  end)
end)

t.test("a submission that was removed, or is damaged, is refused by its tasks", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    local path = c.root .. "/slurm/1/job"
    for _, text in ipairs { t.read(path):sub(1, -20), "", "{}\n",
      (t.read(path):gsub('"1"', '"9"')) } do
      t.write(path, text)
      local code, said = c:task(1, 1)
      t.eq(code, 5)
      t.holds(said, "slurm/1/job does not describe job 1: the submission was removed")
    end
    os.remove(path)
    t.eq(c:task(1, 1), 5)
    t.eq(c:statuses(), { queued = 1 })
  end)
end)

t.test("the tasks of one experiment do not count for another", function()
  with_cluster(function(c)
    t.eq(c:submit "seeds=1", 0)
    c:queue { { 1, 1, "PENDING" }, { 1, 2, "PENDING" } }
    local code, said = c:submit "seeds=1 fail=7" -- other trials
    t.eq(code, 0)
    t.ok(said:find("2 of 2 trials: job 2, 2 tasks", 1, true), said)
    c:queue { { 1, 1, "PENDING" }, { 1, 2, "PENDING" }, { 2, 1, "PENDING" }, { 2, 2, "PENDING" } }
    code, said = c:submit "seeds=2"
    t.eq(code, 0)
    t.ok(said:find("2 of 4 trials: job 3, 2 tasks", 1, true), said)
  end)
end)

t.test("a folder with a damaged submission can be read and used", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    c:queue { { 1, 1, "PENDING", ("toeplab %s 1"):format(c.root) } }
    t.write(c.root .. "/slurm/1/job", "user anna\ncluster alpha\njob 1\n") -- of an older release
    local code, said = c:ask(("status -C '%s'"):format(c.root))
    t.eq(code, 0)
    t.ok(said:find("job 1 of ?: 1 waiting", 1, true), said)
    t.eq(c:task(1, 1), 5)
    code, said = c:submit "rate=0.5 seeds=1" -- as no task in the queue will run it
    t.eq(code, 0)
    t.ok(said:find("1 of 1 trials: job 2", 1, true), said)
    t.eq(c:task(2, 1), 0)
    t.eq(c:statuses(), { done = 1 })
    code, said = c:ask(("status --cancel -C '%s'"):format(c.root))
    t.eq(code, 0)
    t.ok(said:find("cancelled: 1", 1, true), said)
    t.ok(not core.sys.exists(c.root .. "/slurm/1"))
  end)
end)

t.test("a file name with blanks and quotes works", function()
  with_cluster(function(c)
    c.root = c.folder .. "/a b%c"
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    t.ok(t.read(c.root .. "/slurm/1/script.sh"):find('output="' .. c.folder
      .. '/a b%%c/slurm/logs/', 1, true))
    t.eq(c:task(1, 1), 0)
    t.eq(c:statuses(), { done = 1 })
  end)
end)

t.test("a file name with a line break is refused, and leaves nothing", function()
  with_cluster(function(c)
    c.root = c.folder .. "/a\nb"
    local code, said = c:submit "rate=0.5 seeds=1"
    t.eq(code, 2)
    t.holds(said, "but sbatch accepts no line breaks")
    t.ok(not core.sys.exists(c.root .. "/slurm/1"))
  end)
end)

t.test("the error names a Slurm variable that is not a number", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    for _, set in ipairs { "abc", "" } do
      local said, code = t.shell(("env SLURM_ARRAY_JOB_ID=1 SLURM_ARRAY_TASK_ID=%s "
        .. "/bin/sh '%s/slurm/1/script.sh' 2>&1"):format(set, c.root))
      t.eq(code, 2)
      t.holds(said, "--array-task is only for array jobs that toeplab run --on slurm "
        .. "submits: SLURM_ARRAY_TASK_ID is not a number\n")
    end
  end)
end)

t.done()
