-- clusters.lua: a stand-in for Slurm's commands, and an experiment that is run by them, for the
-- tests of array jobs.
local t = require "harness"
local core = require "toeplab.core"
local records = require "toeplab.store.records"
local slurm_queue = require "toeplab.runs.slurm_queue"
local stores = require "stores"

local clusters = {}

local program = core.sys.executable()

clusters.script = [[
local tl = require "toeplab"
return tl.experiment "sweep" {
  fixed = { steps = 12, pause = 0.0, fail = 0 },
  grid = { rate = { 0.25, 0.5 } },
  seeds = 2,
  checkpoint = { steps = 5 },
  trial = function(t, c)
    local x = tl.zeros(16)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * c.rate + noise:normal(tl.zeros(16), 0, 1))
      t:log { loss = (x * x):mean():item() }
      if tl.sys.exists "FOLDER/slow" then tl.sys.sleep(c.pause) end
      if step == c.fail then error("broken at " .. step) end
    end
    t:log { final = x:sum():item() }
  end,
}
]]

-- Commands of Slurm: sbatch gives the next number from 1 on, unless the file refuse says why not,
-- and ends once there is no file hold. squeue prints the file queue, but nothing if the environment
-- tells the real one to leave something out, or without -a, as if the partition were hidden; it
-- fails while the file silent exists. The files cluster and user say where and by whom commands are
-- given.
local commands = {
  sbatch = [[if [ -e "$here/refuse" ]; then cat "$here/refuse" >&2; exit 1; fi
case "$*" in *--test-only*) exit 0 ;; esac
env | grep ^SBATCH_ | sort >"$here/environment"
job=$(($(cat "$here/last" 2>/dev/null || echo 0) + 1)); echo $job | tee "$here/last"
while [ -e "$here/hold" ]; do sleep 0.05; done]],
  squeue = [[if [ -e "$here/silent" ]; then echo "slurm_load_jobs error: timed out" >&2; exit 1; fi
if [ "$SLURM_CLUSTERS$SQUEUE_STATES$SQUEUE_PARTITION$SQUEUE_NAMES$SQUEUE_QOS$SQUEUE_ACCOUNT" ]; then
    exit 0
fi
case "$*" in
*%T\ -j*) echo RUNNING ;;
*\ -a\ *"-u $(id -un) "*) cat "$here/queue" 2>/dev/null || true ;;
*) ;;
esac]],
  scontrol = [[case $1 in
show) echo "ClusterName = $(cat "$here/cluster" 2>/dev/null || echo alpha)" ;;
*) echo "$@" >>"$here/asked" ;;
esac]],
  id = [[cat "$here/user" 2>/dev/null || echo anna]],
  scancel = [[: >"$here/queue"]],
  sinfo = "printf 'main\\nlong\\n'",
}

local Cluster = {}
Cluster.__index = Cluster

-- Calls fn with a cluster: folder, with the experiment x.lua in it; root, its results folder; and
-- script, the text of the experiment.
function clusters.with(fn)
  t.in_folder(function(folder)
    local self = setmetatable({ folder = folder, root = folder .. "/r" }, Cluster)
    core.sys.mkdir(folder .. "/bin")
    for name, text in pairs(commands) do
      t.write(folder .. "/bin/" .. name, ("#!/bin/sh\nhere='%s'\n%s\n"):format(folder, text))
    end
    os.execute(("chmod +x '%s'/bin/*"):format(folder))
    self.script = clusters.script:gsub("FOLDER", folder)
    t.write(folder .. "/x.lua", self.script)
    fn(self)
  end)
end

-- The beginning of a command line that sets the environment of the cluster.
function Cluster:environment()
  return ("unset XDG_CONFIG_HOME TOEPLAB_DIR; exec env HOME='%s' PATH='%s/bin':\"$PATH\" "
    .. "TOEPLAB_THREADS=1 %s"):format(self.folder, self.folder, self.set or "")
end

-- The command line of the program with these words.
function Cluster:line(words)
  return ("%s '%s' %s"):format(self:environment(), program, words)
end

-- Runs a command line; returns the exit code and all that it printed.
function Cluster:wait_for(line)
  local out = self.folder .. "/said"
  local _, kind, code = os.execute(("(%s) >'%s' 2>&1 </dev/null"):format(line, out))
  return kind == "signal" and 128 + code or code, t.read(out)
end

-- Runs the program with these words in the same way.
function Cluster:ask(words) return self:wait_for(self:line(words)) end

-- The trials of a submission, with their labels.
function Cluster:submitted(number)
  local list = slurm_queue.submission(self.root, number).trials
  for _, trial in ipairs(list) do
    trial.label = self:rows(([[SELECT json_extract(provenance, '$.label') AS label
      FROM v_trials WHERE id = '%s']]):format(trial.id))[1].label
  end
  return list
end

-- toeplab run of the experiment as a job.
function Cluster:submit(words)
  return self:ask(("run '%s/x.lua' -C '%s' --on slurm %s"):format(self.folder, self.root,
    words or ""))
end

-- The command line that Slurm gives a task, which is the script of its submission.
function Cluster:task_line(job, number, submission)
  return ("%s SLURM_ARRAY_JOB_ID=%d SLURM_ARRAY_TASK_ID=%d SLURM_JOB_ID=%d /bin/sh "
    .. "'%s/slurm/%d/script.sh'"):format(self:environment(), job, number, job, self.root,
    submission or job)
end

-- Runs a task; returns the exit code and all that it printed.
function Cluster:task(job, number, submission)
  return self:wait_for(self:task_line(job, number, submission))
end

-- Starts the first task of the first job, or another one.
function Cluster:start(job, number, submission)
  return core.sys.spawn({ "/bin/sh", "-c", self:task_line(job or 1, number or 1, submission) },
    self.folder .. "/log")
end

-- A task begins its trial, and dies with it and with the worker.
function Cluster:die(job, number)
  local trial = self:submitted(job)[number]
  local store <close> = records.open(self.root, "w")
  t.eq(store:begin({ id = trial.id, label = trial.label, data = {}, attempt = trial.attempt,
    code_hash = "c", provenance = { host = "n2", job = ("%d_%d"):format(job, number),
      command = "toeplab run x.lua" } }, stores.gone), trial.attempt + 1)
end

-- Lets squeue list these tasks: {job, number, state, comment}.
function Cluster:queue(list)
  local lines = {}
  for i, task in ipairs(list) do
    lines[i] = ("%d|%d|%s|None|%s"):format(task[1], task[2], task[3] or "RUNNING", task[4] or "")
  end
  t.write(self.folder .. "/queue", table.concat(lines, "\n") .. "\n")
end

-- The rows of a query.
function Cluster:rows(sql)
  local store <close> = records.open(self.root, "r")
  return store:rows(sql)
end

-- The first row of a query, nil if there is none or no store yet.
function Cluster:ran(sql)
  local ok, rows = pcall(self.rows, self, sql)
  return ok and rows[1] or nil
end

function Cluster:statuses()
  local counts = {}
  for _, row in ipairs(self:rows "SELECT status FROM v_trials") do
    counts[row.status] = (counts[row.status] or 0) + 1
  end
  return counts
end

return clusters
