-- clusters.lua: a stand-in for Slurm's commands, and an experiment that is run by them, for the
-- tests of array jobs.
local t = require "harness"
local core = require "toeplab.core"
local records = require "toeplab.store.records"

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
show) echo "ClusterName = $(cat "$here/cluster" 2>/dev/null || echo alpha)"
    echo "MaxArraySize = 101" ;;
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

-- The command line of the program with these words, here as the task of an array job if one is
-- given: {job, task, restarts}.
function Cluster:line(words, task)
  local set = ("HOME='%s' PATH='%s/bin':\"$PATH\" TOEPLAB_THREADS=1"):format(self.folder,
    self.folder)
  set = set .. " " .. (self.set or "")
  if task then
    set = set .. (" SLURM_ARRAY_JOB_ID=%d SLURM_ARRAY_TASK_ID=%d SLURM_RESTART_COUNT=%d "
      .. "SLURM_JOB_ID=%d"):format(task[1], task[2], task[3] or 0, task[1])
  end
  return ("unset XDG_CONFIG_HOME TOEPLAB_DIR; exec env %s '%s' %s"):format(set, program, words)
end

-- Runs it; returns the exit code and all that it printed.
function Cluster:ask(words, task)
  local out = self.folder .. "/said"
  local _, kind, code = os.execute(("(%s) >'%s' 2>&1 </dev/null"):format(self:line(words, task),
    out))
  return kind == "signal" and 128 + code or code, t.read(out)
end

-- toeplab run of the experiment as a job.
function Cluster:submit(words)
  return self:ask(("run '%s/x.lua' -C '%s' --on slurm %s"):format(self.folder, self.root,
    words or ""))
end

function Cluster:task(job, number, restarts, submission)
  return self:ask(("worker --array '%s/slurm/%d/plan'"):format(self.root, submission or job),
    { job, number, restarts })
end

-- Starts the first task of the first job.
function Cluster:start()
  local words = ("worker --array '%s/slurm/1/plan'"):format(self.root)
  return core.sys.spawn({ "/bin/sh", "-c", self:line(words, { 1, 1 }) }, self.folder .. "/log")
end

-- Lets squeue list these tasks: {job, number, state}.
function Cluster:queue(list)
  local lines = {}
  for i, task in ipairs(list) do
    lines[i] = ("%d|%d|%s|n1|None|"):format(task[1], task[2], task[3] or "RUNNING")
  end
  t.write(self.folder .. "/queue", table.concat(lines, "\n") .. "\n")
end

-- The rows of a query, after the verb ls has copied what tasks wrote.
function Cluster:rows(sql)
  t.eq(self:ask(("ls -C '%s'"):format(self.root)), 0)
  local store <close> = records.open(self.root, "r")
  return store:rows(sql)
end

function Cluster:statuses()
  local counts = {}
  for _, row in ipairs(self:rows "SELECT status FROM v_trials") do
    counts[row.status] = (counts[row.status] or 0) + 1
  end
  return counts
end

return clusters
