#!/bin/sh
# slurm.sh - runs sweeps on a cluster of two nodes: Debian's munged, slurmctld and two slurmd on this
# machine. A node and a job are killed, a task is requeued, commands are misused; the results must be
# those of a run without Slurm, metric for metric. Exits with 77 where the daemons cannot start.
# slurm.sh TOEPLAB SOURCE
set -eu

toeplab=$1
source=$2
PATH=$PATH:/usr/sbin:/sbin
top=$(mktemp -d)
passed=0
failed=0
unset TOEPLAB_DIR TOEPLAB_TRACEBACK XDG_CONFIG_HOME
export HOME="$top" TOEPLAB_LUA="$source/lua" TOEPLAB_THREADS=1 NO_COLOR=1

# Prints the ids of the processes of this cluster whose environment holds LINE.
with_environment() { # LINE
    grep -lzxF "SLURM_CONF=$top/slurm.conf" /proc/[0-9]*/environ 2>/dev/null |
        xargs -r grep -lzxF "$1" 2>/dev/null | sed 's|/proc/||; s|/environ||'
}

finish() {
    set +e
    for pid in $(with_environment "SLURM_CONF=$top/slurm.conf"); do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$top"
}
trap finish EXIT

skip() {
    echo "skipped: $1"
    exit 77
}

for name in munged slurmctld slurmd sbatch squeue scontrol scancel; do
    command -v $name >/dev/null || skip "$name is not installed (apt install slurm-wlm munge)"
done

# ---- The cluster ----

export SLURM_CONF="$top/slurm.conf"
port=$((20000 + $$ % 10000 * 4))
host=$(hostname)
user=$(id -un)
mkdir "$top/state" "$top/n1" "$top/n2"
chmod 755 "$top"
head -c 1024 /dev/urandom >"$top/munge.key"
chmod 600 "$top/munge.key"
munged --force --key-file="$top/munge.key" --socket="$top/munge.socket" \
    --pid-file="$top/munge.pid" --log-file="$top/munge.log" --seed-file="$top/munge.seed" \
    >"$top/said" 2>&1 || skip "munged cannot start: $(tail -1 "$top/said")"
cat >"$SLURM_CONF" <<END
ClusterName=toeplab
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$top/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$top/state
SlurmdSpoolDir=$top/%n
SlurmctldPidFile=$top/slurmctld.pid
SlurmdPidFile=$top/%n.pid
SlurmctldLogFile=$top/slurmctld.log
SlurmdLogFile=$top/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=6
KillWait=5
MinJobAge=10
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 2))-$((port + 3))] CPUs=2 State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
END

until_true() { # SECONDS COMMAND...: waits until COMMAND succeeds
    tries=$(($1 * 5))
    shift
    while [ $tries -gt 0 ]; do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.2
        tries=$((tries - 1))
    done
    return 1
}

nodes_are() { test "$(sinfo -h -o '%D %t' 2>/dev/null)" = "$1"; }

slurmctld >"$top/said" 2>&1 || skip "slurmctld cannot start: $(tail -1 "$top/said")"
for node in n1 n2; do
    slurmd -N $node >"$top/said" 2>&1 || skip "slurmd cannot start: $(tail -1 "$top/said")"
done
until_true 60 nodes_are "2 idle" || skip "the nodes do not come up: $(tail -1 "$top/slurmctld.log")"

# ---- Checks ----

check() { # NAME COMMAND...: COMMAND must succeed
    name=$1
    shift
    if "$@" >"$top/said" 2>&1; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "not ok $name"
        cat "$top/said" "$top/out" "$top/err" 2>/dev/null | head -40 | sed 's/^/  /'
    fi
}

got() { # COMMAND...: runs COMMAND; its exit code is in $code
    code=0
    timeout 180 "$@" >"$top/out" 2>"$top/err" || code=$?
}

exits() { # NAME CODE [PATTERN]: checks the last got
    check "$1: exit code $2" test "$code" -eq "$2"
    if [ $# -gt 2 ]; then check "... with its message" grep -q -e "$3" "$top/err"; fi
}

ask() { # FOLDER QUERY
    "$toeplab" ls -C "$1" --csv --sql "$2" 2>/dev/null | sed 1d
}

is() { # FOLDER QUERY VALUE
    test "$(ask "$1" "$2")" = "$3"
}

same_metrics() { # FOLDER FOLDER
    for folder in "$1" "$2"; do
        ask "$folder" "SELECT trial, name, step, printf('%.17g', value) FROM v_metrics
            ORDER BY trial, name, step" >"$folder.metrics"
    done
    test -s "$1.metrics" && cmp "$1.metrics" "$2.metrics"
}

cat >"$top/sweep.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "sweep" {
  fixed = { steps = 45, pause = 0.04 },
  grid = { rate = { 0.25, 0.5, 0.75 } },
  seeds = 4,
  checkpoint = { steps = 7 },
  trial = function(t, c)
    local x = tl.zeros(64)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * c.rate + noise:normal(tl.zeros(64), 0, 1))
      t:log { loss = (x * x):mean():item() }
      tl.sys.sleep(c.pause)
    end
    t:text("note", "the sum is " .. x:sum():item())
    t:log { final = x:sum():item() }
  end,
  report = { rows = "rate", columns = { "loss", "final" } },
}
END
run() { # ARGUMENTS...: got toeplab run of that sweep
    got "$toeplab" run "$top/sweep.lua" "$@"
}

# ---- A node and a job die ----

"$toeplab" run -q -j2 "$top/sweep.lua" -C "$top/alone" >"$top/table" 2>"$top/err" &
alone=$!
run -C "$top/r" --on slurm --trials 2
exits "a sweep is submitted" 0 "12 of 12 trials: job [0-9]*, 6 tasks"
running="SELECT count(*) FROM v_trials WHERE status = 'running'"
four_at_work() { is "$top/r" "$running" 4 && is "$top/r" "SELECT count(*) > 32 FROM v_metrics" 1; }
check "four tasks run at once" until_true 60 four_at_work
got "$toeplab" status -C "$top/r"
check "status names the tasks" grep -q "rate=.* [0-9]*_[1-6] on $host" "$top/out"
check "... and those that wait" grep -q "^job [0-9]* of sweep: .*2 waiting" "$top/out"
# Prints "STEPD TASK" for each task on NODE; its daemon starts a slurmstepd, and that the task.
tasks_on() { # NODE
    for pid in $(with_environment "SLURMD_NODENAME=$1"); do
        parent=$(sed -n 's/^PPid:\t//p' "/proc/$pid/status" 2>/dev/null)
        case $(cat "/proc/$parent/comm" 2>/dev/null) in slurmstepd*) echo "$parent $pid" ;; esac
    done
}
kill -9 "$(cat "$top/n2.pid")" # the node: its daemons, and one task; the other goes on unseen
tasks_on n2 >"$top/tasks"
first=yes
while read -r stepd task; do
    kill -9 "$stepd"
    if [ $first ]; then kill -9 "$task"; fi
    first=
done <"$top/tasks"
kill -9 "$(tasks_on n1 | sed -n '1s/.* //p')" # one job
scontrol update nodename=n2 state=down reason=test # as Slurm does after SlurmdTimeout
check "no acknowledged metric is lost" is "$top/r" "SELECT count(*) > 32 FROM v_metrics" 1
wait $alone || true
slurmd -N n2
scontrol update nodename=n2 state=resume 2>/dev/null || true # or it is back already
run -C "$top/r" --on slurm --wait
exits "the same command submits what is missing and waits" 0
check "... and prints the same table" cmp "$top/table" "$top/out"
check "the store is that of a run without Slurm" same_metrics "$top/alone" "$top/r"
check "each trial is done once" is "$top/r" \
    "SELECT count(*) FROM v_trials WHERE status = 'done'" 12
check "the killed ones were continued" is "$top/r" \
    "SELECT count(*) >= 2 FROM v_trials WHERE attempt > 1" 1
run -C "$top/r" --on slurm
exits "nothing is left to be submitted" 0 "12 already done"

# ---- A task is told that its time ends ----

run -C "$top/time" --on slurm seeds=1 rate=0.5 steps=120
job=$(sed -n 's/.*job \([0-9]*\),.*/\1/p' "$top/err")
at_work() { is "$1" "SELECT count(*) > 20 FROM v_metrics" 1; }
check "the trial runs" until_true 60 at_work "$top/time"
scancel --batch --signal=USR1 "${job}_1" # what Slurm sends 90 s before the end
requeued() { squeue -h -j "$job" -o %T | grep -q PENDING; }
check "its task goes back into the queue" until_true 60 requeued
check "the trial is interrupted" is "$top/time" "SELECT status FROM v_trials" interrupted
run -C "$top/time" --on slurm seeds=1 rate=0.5 steps=120 --wait
exits "its job continues it" 0 "in the queue or in other runs"
"$toeplab" run -q "$top/sweep.lua" -C "$top/once" seeds=1 rate=0.5 steps=120 >/dev/null
check "the requeued trial has the metrics of one run" same_metrics "$top/once" "$top/time"
check "it took two attempts" is "$top/time" "SELECT attempt FROM v_trials" 2

# ---- Two ranks that srun starts (docs/ranks.md) ----

cat >"$top/ranks.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "ranks" {
  fixed = { steps = 6, micro_batches = 2 },
  trial = function(t, c)
    local data = tl.tasks.listops { length = 32, min_length = 10, max_length = 31, train = 24,
      valid = 8, test = 8 }
    local model = tl.models.tnn_classifier { vocab = data.vocab, classes = data.classes,
      layers = 1, dim = 8, glu_dim = 8, rpe_dim = 4, dropout = 0.1 }
    local opt = tl.optim.adam(model, { lr = 1e-2 })
    for step in t:steps(c.steps, model, opt) do
      t:log { loss = tl.classify.step(model, opt, data.train:batch(step, 4)) }
    end
    t:log { accuracy = tl.classify.accuracy(model, data.test, 4) }
  end,
}
END
if test ! -e "${toeplab%/*}/ranks/mpi.so"; then
    echo "skipped: ranks that srun starts: this build lacks MPI"
elif ! srun --mpi=list 2>&1 | grep -q pmix; then
    echo "skipped: ranks that srun starts: this Slurm lacks PMIx"
else
    "$toeplab" run -q "$top/ranks.lua" -C "$top/rank" >/dev/null
    got srun -n 2 --mpi=pmix --kill-on-bad-exit=1 "$toeplab" run -q "$top/ranks.lua" \
        -C "$top/ranks" ranks=2
    exits "srun starts two ranks" 0
    check "... which train as one process" same_metrics "$top/rank" "$top/ranks"
fi

# ---- Cancel ----

run -C "$top/stop" --on slurm steps=2000
check "trials run" until_true 60 at_work "$top/stop"
"$toeplab" run -q "$top/sweep.lua" -C "$top/stop" steps=2000 >/dev/null 2>"$top/err" &
beside=$!
alone="SELECT count(*) FROM v_trials WHERE step > 0 AND json_extract(provenance, '$.job') IS NULL
    AND status = 'running'"
check "a run beside the job takes a trial that no task has" until_true 60 is "$top/stop" "$alone" 1
kill -TERM $beside
wait $beside || true
got "$toeplab" status --cancel -C "$top/stop"
exits "cancel" 0 "^cancelled: "
check "cancelled trials keep a checkpoint" is "$top/stop" \
    "SELECT count(*) FROM v_trials WHERE status = 'interrupted' AND step > 0" 5
check "... and none was begun twice" is "$top/stop" "SELECT max(attempt) FROM v_trials" 1

# ---- Trials of other code ----

run -C "$top/redo" -q steps=4 pause=0
cat >"$top/other.lua" <<END
local store <close> = require("toeplab.store.records").open("$top/redo", "u")
store:rows "UPDATE trials SET code_hash = 'other'"
END
"$toeplab" lua "$top/other.lua"
metrics="SELECT count(*) FROM v_metrics"
before=$(ask "$top/redo" "$metrics")
run -C "$top/redo" --on slurm --redo --partition nowhere steps=4 pause=0
exits "a redo in a wrong partition" 2 "invalid partition"
check "... deletes nothing" test "$before" -gt 0 -a "$(ask "$top/redo" "$metrics")" = "$before"
run -C "$top/redo" --on slurm --redo --wait --trials 6 steps=4 pause=0
exits "a redo" 0
check "... makes them again" is "$top/redo" \
    "SELECT count(*) FROM v_trials WHERE status = 'done' AND code_hash <> 'other'" 12

# ---- Misuse: one clear message each ----

run -C "$top/bad" --on slurm --partition nowhere
exits "a wrong partition" 2 "invalid partition.*the partitions here: main"
check "... leaves nothing of the submission" test ! -e "$top/bad/slurm/1"
check "... and no trials" is "$top/bad" "SELECT count(*) FROM v_trials" 0
run -C /proc/toeplab --on slurm
exits "a folder that cannot be written" 6 "/proc/toeplab"
cp -r "$source/lua" "$top/other"
echo "-- another build" >>"$top/other/toeplab/init.lua"
run -C "$top/builds" --on slurm seeds=1 --line '#SBATCH --nodelist=n2' \
    --line "export TOEPLAB_LUA='$top/other'" --wait
exits "another build on a node" 1 "this build of toeplab .* differs from the one that began the sweep"
check "... has run nothing" is "$top/builds" "SELECT count(*) FROM v_metrics" 0
got env PATH=/nowhere "$toeplab" run "$top/sweep.lua" -C "$top/bad" --on slurm
exits "a machine without Slurm" 2 "there is no Slurm here"

echo "$passed passed, $failed failed"
test $failed -eq 0
