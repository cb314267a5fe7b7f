-- test_queue.lua: what Slurm's queue says about the submissions of a results folder, and what it
-- does not say, with a stand-in for Slurm's commands (clusters.lua).
local t = require "harness"
local clusters = require "clusters"
local core = require "toeplab.core"
local journal = require "toeplab.store.journal"
local records = require "toeplab.store.records"

local with_cluster = clusters.with

-- A command while the tasks of the sweep are in the queue, which must lose none of their trials:
-- the file that says where it is given, or the environment; what it then says.
local unseen = {
  { "on another cluster", file = "cluster", text = "beta",
    says = "job 1 belongs to anna on cluster alpha, but you are anna on cluster beta" },
  { "by another user", file = "user", text = "root",
    says = "job 1 belongs to anna on cluster alpha, but you are root on cluster alpha" },
  { "where the environment filters the queue", set = "SLURM_CLUSTERS=beta SQUEUE_STATES=PENDING "
    .. "SQUEUE_PARTITION=long SQUEUE_NAMES=x SQUEUE_QOS=low SQUEUE_ACCOUNT=us" },
}

for _, case in ipairs(unseen) do
  t.test("a live sweep stays whole when a command is given " .. case[1], function()
    with_cluster(function(c)
      t.eq(c:submit(), 0)
      c:queue { { 1, 1 }, { 1, 2, "PENDING" }, { 1, 3, "PENDING" }, { 1, 4, "PENDING" } }
      t.eq(c:task(1, 1), 0)
      if case.file then t.write(c.folder .. "/" .. case.file, case.text .. "\n") end
      c.set = case.set
      local code, said = c:ask(("status -C '%s'"):format(c.root))
      t.eq(code, 0)
      t.ok(said:find(case.says or "", 1, true), said)
      t.ok(core.sys.exists(c.root .. "/slurm/1/job"))
      code, said = c:submit()
      t.eq(code, case.says and 1 or 0)
      t.ok(said:find(case.says or "nothing to submit: 3 trials in the queue", 1, true), said)
      t.ok(not core.sys.exists(c.root .. "/slurm/2"))
      c.set = nil
      for _, name in ipairs { "cluster", "user" } do os.remove(c.folder .. "/" .. name) end
      c:queue {}
      t.eq(c:statuses(), { done = 1, queued = 3 })
      code, said = c:ask(("status -C '%s'"):format(c.root))
      t.eq(code, 0)
      t.holds(said, "job 1 has ended, and 3 of its 4 trials are not done")
      t.ok(not core.sys.exists(c.root .. "/slurm/1"))
    end)
  end)
end

t.test("status of one experiment names only its jobs", function()
  with_cluster(function(c)
    t.eq(c:submit(), 0)
    c:queue { { 1, 1, "PENDING" } }
    t.write(c.folder .. "/x.lua", (c.script:gsub('"sweep"', '"other"')))
    t.eq(c:submit(), 0)
    c:queue { { 1, 1, "PENDING" }, { 2, 1, "PENDING" } }
    for word, jobs in pairs { [""] = "1 of sweep 2 of other", sweep = "1 of sweep",
      other = "2 of other" } do
      local code, said = c:ask(("status -C '%s' %s"):format(c.root, word))
      local list = {}
      for job in said:gmatch "job (%d of %w+): 1 waiting" do list[#list + 1] = job end
      t.eq({ code, table.concat(list, " ") }, { 0, jobs })
    end
  end)
end)

t.test("unexpected output of squeue does not end a sweep", function()
  with_cluster(function(c)
    t.eq(c:submit(), 0)
    c:queue { { 1, 1 }, { 1, 2, "PENDING" } }
    t.write(c.folder .. "/queue", "slurm maintenance at noon\n")
    local code, said = c:submit()
    t.eq(code, 1)
    t.ok(said:find("Slurm does not answer: squeue printed: slurm maintenance at", 1, true), said)
    t.ok(core.sys.exists(c.root .. "/slurm/1/job"))
  end)
end)

t.test("a command of Slurm that fails silently is named with its status", function()
  with_cluster(function(c)
    t.eq(c:submit(), 0)
    t.write(c.folder .. "/bin/squeue", "#!/bin/sh\nexit 3\n")
    local code, said = c:submit()
    t.eq(code, 1)
    t.ok(said:find("does not answer: squeue failed without a message (exit 3)", 1, true), said)
    code, said = c:ask(("status -C '%s' --cancel"):format(c.root))
    t.eq(code, 1)
    t.ok(select(2, said:gsub("squeue failed without a message", "")) == 1, said)
  end)
end)

t.test("a command of Slurm that hangs is killed", function()
  with_cluster(function(c)
    t.eq(c:submit(), 0)
    t.write(c.folder .. "/bin/squeue", "#!/bin/sh\nsleep 100\n")
    t.write(c.folder .. "/bin/timeout", "#!/bin/sh\nshift 3\nPATH=/usr/bin:/bin exec timeout 1 "
      .. "env PATH=\"$PATH\" \"$@\"\n")
    os.execute(("chmod +x '%s/bin/timeout'"):format(c.folder))
    local began = core.sys.clock()
    local code, said = c:submit()
    t.eq(code, 1)
    t.ok(said:find("squeue did not end within 60 s and was killed", 1, true), said)
    t.ok(core.sys.clock() - began < 60)
  end)
end)

t.test("a submission that Slurm may have accepted is kept, with a message", function()
  with_cluster(function(c)
    t.write(c.folder .. "/bin/sbatch", "#!/bin/sh\nexit 1\n")
    t.write(c.folder .. "/silent", "")
    local code, said = c:submit()
    t.eq(code, 1)
    t.ok(said:find("sbatch failed without a message (exit 1); Slurm does not", 1, true), said)
    t.ok(said:find("r/slurm/1 is kept: run the same command again when Slurm", 1, true), said)
    os.remove(c.folder .. "/silent")
    t.write(c.folder .. "/bin/sbatch", "#!/bin/sh\ntrue\n")
    code, said = c:submit()
    t.eq(code, 2)
    t.ok(said:find("Slurm rejects the job: sbatch exited 0 but printed no job id", 1, true), said)
  end)
end)

t.test("a job that sbatch rejects but squeue lists counts as submitted", function()
  with_cluster(function(c)
    t.write(c.folder .. "/bin/sbatch", ([[#!/bin/sh
printf '9|%%d|PENDING|None|toeplab %s 1\n' 1 2 3 4 >'%s/queue'
echo "sbatch: error: Socket timed out" >&2
exit 1
]]):format(c.root, c.folder))
    local code, said = c:submit()
    t.ok(said:find("job 9", 1, true), said)
    t.eq(code, 0)
    t.ok(core.sys.exists(c.root .. "/slurm/1/job"))
    t.eq((c:submit()), 0)
    t.ok(not core.sys.exists(c.root .. "/slurm/2"))
  end)
end)

t.test("a job on another cluster does not count as ended", function()
  with_cluster(function(c)
    t.write(c.folder .. "/bin/sbatch", "#!/bin/sh\necho '7;beta'\n")
    t.eq(c:submit(), 0)
    local code, said = c:ask(("status -C '%s'"):format(c.root))
    t.eq(code, 0)
    t.ok(said:find("job 7 belongs to anna on cluster beta, but you are anna on", 1, true),
      said)
    t.ok(core.sys.exists(c.root .. "/slurm/1/job"))
  end)
end)

t.test("environment variables do not override options of the submission", function()
  with_cluster(function(c)
    c.set = "SBATCH_SIGNAL=INT@5 SBATCH_ARRAY_INX=1-3 SBATCH_PARTITION=long SBATCH_ACCOUNT=us"
    t.eq(c:submit "--partition main", 0)
    t.eq(t.read(c.folder .. "/environment"), "SBATCH_ACCOUNT=us\n")
  end)
end)

-- ---- What is submitted --------------------------------------------------------------------------

-- The labels of the trials of a submission.
local function labels(c, number)
  local list = {}
  for i, trial in ipairs(c:submitted(number)) do list[i] = trial.label end
  return list
end

t.test("a command that waits submits the trials that earlier tasks have left", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    c:queue { { 1, 1, "PENDING" } } -- it will be killed before it begins
    local words = ("run '%s/x.lua' -C '%s' --on slurm --wait rate=0.5"):format(c.folder, c.root)
    local command = core.sys.spawn({ "/bin/sh", "-c", c:line(words .. " seeds=1") },
      c.folder .. "/log")
    local function wait_for_line(line)
      for _ = 1, 400 do
        if t.read(c.folder .. "/log"):find(line, 1, true) then return end
        core.sys.sleep(0.05)
      end
      error(line .. " is not said in\n" .. t.read(c.folder .. "/log"))
    end
    wait_for_line "nothing to submit: 1 trial in the queue or in other runs"
    c:queue {}
    wait_for_line "1 of 1 trials: job 2, 1 task "
    c:queue { { 2, 1 } }
    t.eq(c:task(2, 1, 1), 0)
    c:queue {}
    t.eq(command:wait(true), 0)
    t.eq(c:rows "SELECT status, attempt FROM v_trials", { { status = "done", attempt = 1 } })
  end)
end)

t.test("a command that waits survives another one that locks the store", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    c:queue { { 1, 1, "PENDING" } }
    local words = ("run '%s/x.lua' -C '%s' --on slurm --wait rate=0.5"):format(c.folder, c.root)
    local command = core.sys.spawn({ "/bin/sh", "-c", c:line(words .. " seeds=1") },
      c.folder .. "/log")
    for _ = 1, 400 do
      if t.read(c.folder .. "/log"):find("0 of 1 trials done", 1, true) then break end
      core.sys.sleep(0.05)
    end
    do
      local store <close> = records.open(c.root, "u")
      store:transaction(function()
        store:rows "UPDATE sweeps SET created = created + 1"
        core.sys.sleep(8) -- SQLite waits five seconds
      end)
    end
    t.eq(c:task(1, 1), 0)
    c:queue {}
    local code = command:wait(true)
    t.eq({ code, code ~= 0 and t.read(c.folder .. "/log") or "" }, { 0, "" })
  end)
end)

t.test("a command that waits ignores a dead task that is still in the queue", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    c:die(1, 1)
    c:queue { { 1, 1, "COMPLETING" } }
    local code, said = c:submit "rate=0.5 seeds=1"
    t.eq(code, 0)
    t.holds(said, "1 of 1 trials: job 2, 1 task ")
    c:queue { { 1, 1, "COMPLETING" }, { 2, 1 } }
    t.eq(c:task(2, 1), 0)
    t.eq(c:rows "SELECT status, attempt FROM v_trials", { { status = "done", attempt = 2 } })
  end)
end)

t.test("a command that waits submits no trial twice", function()
  with_cluster(function(c)
    c:queue {} -- the job is gone before any task begins
    local code, said = c:submit "--wait rate=0.5 seeds=1"
    t.eq(code, 1)
    t.ok(said:find("1 of 1 trials are not done; the same command resubmits them", 1, true), said)
    t.eq(t.read(c.folder .. "/last"), "1\n")
  end)
end)

-- Runs the given tasks of the first job, while a command waits for them; returns its exit code and
-- what it says.
local function wait_for_tasks(c, words, tasks)
  local list = {}
  for i = 1, tasks do list[i] = { 1, i } end
  c:queue(list)
  local command = core.sys.spawn({ "/bin/sh", "-c", c:line(("run '%s/x.lua' -C '%s' --on slurm "
    .. "--wait %s"):format(c.folder, c.root, words)) }, c.folder .. "/log")
  local function waits() -- its last word before it does
    local said = t.read(c.folder .. "/log")
    return said:find(": job %d") or said:find("nothing to submit", 1, true)
  end
  for _ = 1, 1200 do
    if waits() then break end
    core.sys.sleep(0.05)
  end
  for i = 1, tasks do c:task(1, i) end
  c:queue {}
  local code = command:wait(true)
  return code, t.read(c.folder .. "/log")
end

-- Gives the experiment a field, and a loss that is no number in the step `fail`.
local function diverging(c, field)
  t.write(c.folder .. "/x.lua", (c.script:gsub("seeds = 2,", "seeds = 2, " .. field)
    :gsub("loss = ", "loss = step == c.fail and 0 / 0 or ")
    :gsub("if step == c.fail then.-end", "")))
end

t.test("trials ended by a guard or a limit count as failed for a command that waits", function()
  for what, field in pairs { guard = 'guard = { metric = "loss" },',
    budget = 'budget = { memory = "1K" },' } do
    with_cluster(function(c)
      diverging(c, field)
      local code, said = wait_for_tasks(c, "fail=3 rate=0.5 seeds=1", 1)
      t.eq(code, 1)
      t.holds(said, "1 trial: 1 failed")
      t.ok(not said:find "submits them again", said)
      t.eq(c:rows "SELECT status, attempt FROM v_trials", { { status = what, attempt = 1 } })
    end)
  end
end)

t.test("a command that waits does not resubmit trials that a guard ended in another job", function()
  with_cluster(function(c)
    diverging(c, 'guard = { metric = "loss" },')
    t.eq(c:submit "fail=3 rate=0.5 seeds=1", 0)
    local code, said = wait_for_tasks(c, "fail=3 rate=0.5 seeds=1", 1)
    t.eq(code, 1)
    t.holds(said, "nothing to submit: 1 trial in the queue", "1 trial: 1 failed")
    t.eq(t.read(c.folder .. "/last"), "1\n")
  end)
end)

t.test("a command that waits counts trials done before its job separately", function()
  with_cluster(function(c)
    local _, code = t.shell(("(%s) >/dev/null 2>&1"):format(c:line(
      ("run '%s/x.lua' -C '%s' rate=0.5 seeds=1"):format(c.folder, c.root))))
    t.eq(code, 0)
    local said
    code, said = wait_for_tasks(c, "rate=0.5 seeds=2", 1)
    t.eq(code, 0)
    t.holds(said, "2 trials: 1 done, 1 already done")
  end)
end)

t.test("a failed trial does not block the queued task of another one", function()
  with_cluster(function(c)
    local text = c.script:gsub(", fail = 0", ""):gsub("grid = {", "grid = { fail = { 7, 0 },")
    t.write(c.folder .. "/x.lua", text)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    t.eq(labels(c, 1), { "fail=7 rate=0.5", "fail=0 rate=0.5" })
    c:queue { { 1, 1 }, { 1, 2, "PENDING" } }
    t.eq(c:task(1, 1), 1)
    c:queue { { 1, 2, "PENDING" } }
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    t.eq(labels(c, 2), { "fail=7 rate=0.5" })
  end)
end)

t.test("trials begun by a dead task are submitted, trials of a queued task are not", function()
  with_cluster(function(c)
    t.eq(c:submit(), 0)
    local trials = c:submitted(1)
    for i = 1, 2 do c:die(1, i) end
    c:queue { { 1, 3, "PENDING" }, { 1, 4, "PENDING" } }
    t.eq(c:submit(), 0)
    t.eq(labels(c, 2), { trials[1].label, trials[2].label })
  end)
end)

t.test("a --redo that Slurm rejects deletes no results", function()
  with_cluster(function(c)
    t.eq(c:submit(), 0)
    for i = 1, 4 do t.eq(c:task(1, i), 0) end
    c:queue {}
    t.eq(c:statuses(), { done = 4 })
    do
      local store <close> = records.open(c.root, "u")
      store:rows "UPDATE trials SET code_hash = 'other'"
    end
    local before = c:rows "SELECT count(*) AS n FROM v_metrics"
    t.write(c.folder .. "/refuse", "sbatch: error: invalid partition specified: x\n")
    local code, said = c:submit "--redo --partition x"
    t.eq(code, 2)
    t.ok(said:find("invalid partition specified: x", 1, true), said)
    t.eq(c:statuses(), { done = 4 })
    t.eq(c:rows "SELECT count(*) AS n FROM v_metrics", before)
    t.eq(core.sys.list(c.root .. "/slurm"), { "lock", "logs" })
    os.remove(c.folder .. "/refuse")
    t.eq(c:submit "--redo", 0)
    t.eq(#labels(c, 1), 4)
    c:queue { { 2, 1, "PENDING" } }
    t.eq(c:statuses(), { queued = 4 })
  end)
end)

t.test("--redo does not continue the journal of a killed command", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    t.eq(c:task(1, 1), 0)
    c:queue {}
    local id = c:rows("SELECT id FROM trials")[1].id
    do
      local store <close> = records.open(c.root, "u")
      store:rows "UPDATE trials SET code_hash = 'other'"
    end
    t.write(("%s/runs/%s/events-1.jnl"):format(c.root, id:sub(1, 12)),
      journal.record { { "end", "done", nil, nil, 1.0, n = 5 } })
    t.eq(c:submit "--redo rate=0.5 seeds=1", 0)
    c:queue { { 2, 1 } }
    t.eq(c:task(2, 1, 1), 0)
    t.eq(c:statuses(), { done = 1 })
    t.eq(#c:rows "SELECT 1 FROM v_metrics", 13)
  end)
end)

t.test("ranks that do not divide are refused", function()
  with_cluster(function(c)
    for words, why in pairs { ["sequence_ranks=2"] = "sequence_ranks = 2 does not divide ranks = 1",
      ["ranks=0"] = "ranks must be an integer of at least 1, not 0",
      ["ranks=2"] = "ranks = 2: submit your own script with mpirun" } do
      local code, said = c:submit(words)
      t.eq(code, 2)
      t.ok(said:find(why, 1, true), said)
    end
  end)
end)

t.test("a dry run prints what would be submitted", function()
  with_cluster(function(c)
    t.eq(c:submit "--trials 2", 0)
    c:queue { { 1, 1, "PENDING" } }
    local code, said = c:submit "-n"
    t.eq(code, 0)
    t.ok(said:find("--array=1-2\n", 1, true), said)
    t.ok(said:find("--array-task=2", 1, true), said)
    t.ok(not core.sys.exists(c.root .. "/slurm/2"))
    c:queue { { 1, 1, "PENDING" }, { 1, 2, "PENDING" } }
    code, said = c:submit "-n"
    t.eq(code, 0)
    t.ok(said:find("nothing to submit: 4 trials in the queue or in other runs", 1, true), said)
    t.ok(not said:find("#SBATCH", 1, true), said)
    code, said = c:submit "-n --redo"
    t.eq(code, 5)
    t.ok(said:find("--redo: job 1 of Slurm uses", 1, true), said)
    t.write(c.folder .. "/silent", "")
    code, said = c:submit "-n"
    t.eq(code, 1)
    t.ok(said:find("Slurm does not answer: slurm_load_jobs", 1, true), said)
    os.remove(c.folder .. "/silent")
    for i = 1, 2 do t.eq(c:task(1, i), 0) end
    c:queue {}
    code, said = c:submit "-n"
    t.eq(code, 0)
    t.ok(said:find("nothing to submit: all trials are done", 1, true), said)
  end)
end)

t.test("a command that is killed while Slurm takes its job loses no result", function()
  with_cluster(function(c)
    t.write(c.folder .. "/hold", "")
    local words = ("run '%s/x.lua' -C '%s' --on slurm"):format(c.folder, c.root)
    local command = core.sys.spawn({ "/bin/sh", "-c", c:line(words) }, c.folder .. "/log")
    for _ = 1, 400 do
      if core.sys.exists(c.folder .. "/last") then break end
      core.sys.sleep(0.05)
    end
    t.ok(core.sys.exists(c.folder .. "/last"), "sbatch was not called")
    command:kill()
    os.remove(c.folder .. "/hold")
    for i = 1, 3 do t.eq(c:task(1, i), 0) end
    c:queue {}
    t.eq(c:statuses(), { done = 3, queued = 1 })
    t.eq(c:rows "SELECT count(*) AS n FROM v_metrics", { { n = 3 * 13 } })
    local code, said = c:submit()
    t.eq(code, 0)
    t.ok(said:find("1 of 4 trials: job 2, 1 task", 1, true), said)
  end)
end)

t.test("a refused job leaves the sweep that was there, and only that", function()
  with_cluster(function(c)
    t.eq(c:submit "rate=0.5 seeds=1", 0)
    t.eq(c:task(1, 1), 0)
    c:queue {}
    local all = "SELECT t.id, t.status, m.sweep FROM trials t JOIN members m ON m.trial = t.id"
    local before, metrics = c:rows(all), c:rows "SELECT count(*) AS n FROM v_metrics"
    t.eq({ #before, metrics[1].n }, { 1, 13 })
    t.write(c.folder .. "/refuse", "sbatch: error: no\n")
    t.eq(c:submit(), 2)
    t.eq(c:rows(all), before)
    t.eq(c:rows "SELECT count(*) AS n FROM v_metrics", metrics)
    t.eq(c:rows "SELECT count(*) AS n FROM sweeps", { { n = 1 } })
  end)
end)

t.test("a queue that was read before a job was submitted does not end that job", function()
  with_cluster(function(c)
    t.write(c.folder .. "/bin/squeue", ([[#!/bin/sh
here='%s'
cat "$here/queue"
if [ "$LATE" ]; then
    touch "$here/asked"
    until [ -e "$here/go-on" ]; do sleep 0.05; done
fi
]]):format(c.folder))
    t.eq(c:submit "seeds=1", 0)
    c:queue { { 1, 1 }, { 1, 2 } }
    t.eq(c:task(1, 1), 0)
    t.eq(c:task(1, 2), 0)
    c:queue {}
    local status = core.sys.spawn({ "/bin/sh", "-c", "export LATE=1; "
      .. c:line(("status -C '%s'"):format(c.root)) }, c.folder .. "/log")
    for _ = 1, 400 do
      if core.sys.exists(c.folder .. "/asked") then break end
      core.sys.sleep(0.05)
    end
    local submit = core.sys.spawn({ "/bin/sh", "-c", c:line(
      ("run '%s/x.lua' -C '%s' --on slurm rate=0.7,0.8 seeds=1"):format(c.folder, c.root)) },
      c.folder .. "/log2")
    core.sys.sleep(1) -- it may submit meanwhile, or wait for the other command
    c:queue { { 2, 1 }, { 2, 2 } }
    t.write(c.folder .. "/go-on", "")
    t.eq(status:wait(true), 0)
    t.eq(submit:wait(true), 0)
    local number = core.sys.exists(c.root .. "/slurm/2") and 2 or 1
    t.eq(#labels(c, number), 2)
    t.eq(c:task(2, 1, number), 0)
  end)
end)

t.done()
