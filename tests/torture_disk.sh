#!/bin/sh
# torture_disk.sh - a disk that is full or broken from the n-th write, sync or rename on, for n = 1,
# 2, ..., seen by the coordinator or by the workers: the run ends with exit code 6, what was
# committed can be read, and the same command on a good disk ends as if nothing had been.
# torture_disk.sh TOEPLAB SOURCE CC [STRIDE]
set -eu

toeplab=$1
source=$2
compiler=$3
stride=${4:-1}
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
unset TOEPLAB_DIR TOEPLAB_TRACEBACK
export TOEPLAB_LUA="$source/lua" TOEPLAB_THREADS=1 NO_COLOR=1

"$compiler" -O1 -shared -fPIC "$source/tests/faults/disk.c" -o "$top/disk.so" -ldl

cat >"$top/small.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "small" {
  fixed = { steps = 5 },
  seeds = 2,
  checkpoint = { steps = 2 },
  trial = function(t, c)
    local x = tl.zeros(64)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * 0.7 + noise:normal(tl.zeros(64), 0, 1))
      t:log { loss = (x * x):mean():item() }
    end
    t:text("note", "the sum is " .. x:sum():item())
    t:log { final = x:sum():item() }
  end,
  report = { rows = "seed", columns = { "loss", "final" } },
}
END
cat >"$top/result.lua" <<'END'
local core = require "toeplab.core"
local store = core.store(arg[1], "r")
for _, sql in ipairs {
  "SELECT 'trial' AS a, id AS b, status AS c, step AS d FROM v_trials ORDER BY id",
  "SELECT trial AS a, name AS b, step AS c, value AS d FROM v_metrics ORDER BY 1, 2, 3",
  [[SELECT trial AS a, kind AS b, max(step) AS c, sha256 AS d FROM v_artifacts GROUP BY 1, 2
    ORDER BY 1, 2]] } do
  for _, row in ipairs(store:exec(sql)) do
    print(row.a, row.b, row.c, math.type(row.d) == "float" and ("%a"):format(row.d) or row.d)
  end
end
END

run() { # FOLDER: the sweep; its exit code in $code
    code=0
    timeout 60 "$toeplab" run -q -C "$top/$1" "$top/small.lua" >"$top/table" 2>"$top/err" || code=$?
}

faulty() { # FOLDER NAME=VALUE...: the same on a disk that fails
    folder=$1
    shift
    code=0
    env LD_PRELOAD="$top/disk.so" FAULT_PATH="$top/$folder/" FAULT_MET="$top/met" "$@" \
        timeout 60 "$toeplab" run -q -C "$top/$folder" "$top/small.lua" >"$top/table" \
        2>"$top/err" || code=$?
}

result() { # FOLDER
    "$toeplab" lua "$top/result.lua" "$top/$1"
    cat "$top/table"
}

bad() { # WHAT: went wrong, at this call
    echo "not ok $role, error $error, call $n of $all$once: $1"
    sed 's/^/  /' "$top/err"
    failed=$((failed + 1))
}

one() { # the disk fails at call n
    rm -rf "$top/d" "$top/met"
    mkdir "$top/d"
    faulty d FAULT_ROLE="$role" FAULT_ERROR="$error" FAULT_AT="$n" ${once:+FAULT_ONCE=1}
    if [ ! -e "$top/met" ]; then # how many calls there are depends on the moments
        [ "$code" -eq 0 ] || bad "exit code $code, and no failure was met"
        return
    fi
    met=$((met + 1))
    if [ "$code" -eq 0 ]; then
        spared=$((spared + 1)) # e.g. a log: nothing was lost by it
    elif [ "$code" -ne 6 ]; then
        bad "exit code $code"
    fi
    # If the store could not even be made, there is nothing in it.
    if [ -s "$top/d/runs.db" ] && ! grep -q "cannot set up" "$top/err" &&
        ! "$toeplab" fsck -C "$top/d" >"$top/fsck" 2>&1; then
        cat "$top/fsck" >>"$top/err"
        bad "the store is damaged"
    fi
    [ "$code" -eq 0 ] || run d
    if [ "$code" -ne 0 ]; then
        bad "exit code $code once the disk is good"
    elif ! result d | cmp -s - "$top/want"; then
        bad "the result is another"
    fi
}

run calm
[ "$code" -eq 0 ] || { cat "$top/err"; exit 1; }
result calm >"$top/want"
failed=0 met=0 spared=0
for role in run worker; do
    rm -rf "$top/count" "$top/met"
    mkdir "$top/count"
    faulty count FAULT_ROLE="$role"
    all=$(wc -c <"$top/met")
    for error in 28 5; do # ENOSPC, EIO
        for once in "" " alone"; do
            n=1
            while [ "$n" -le "$all" ]; do
                one
                n=$((n + stride))
            done
        done
    done
    echo "$role: $all calls"
done
echo "$met failures met, $spared without harm, $failed failed"
[ "$failed" -eq 0 ] && [ "$met" -gt 20 ]
