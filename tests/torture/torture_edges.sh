#!/bin/sh
# torture_edges.sh - disturbs runs by signals, a second coordinator, readers, damaged checkpoints
# and unusual environments, and checks for clear messages, the right exit codes and the same tables.
# torture_edges.sh TOEPLAB SOURCE [CC]
set -eu

toeplab=$1
source=$2
compiler=${3:-cc}
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
passed=0
failed=0
unset TOEPLAB_DIR TOEPLAB_TRACEBACK
export TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua" TOEPLAB_THREADS=1 NO_COLOR=1

check() { # NAME COMMAND...: COMMAND must succeed
    name=$1
    shift
    if "$@" >"$top/said" 2>&1; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "not ok $name"
        cat "$top/said" "$top/out" "$top/err" 2>/dev/null | head -20 | sed 's/^/  /'
    fi
}

got() { # COMMAND...: runs COMMAND; its exit code is in $code
    code=0
    timeout 60 "$@" >"$top/out" 2>"$top/err" || code=$?
}

exits() { # NAME CODE [PATTERN]: checks the last got
    check "$1: exit code $2" test "$code" -eq "$2"
    if [ $# -gt 2 ]; then check "... with its message" grep -q -e "$3" "$top/err"; fi
}

until_true() { # COMMAND...: waits until COMMAND succeeds, at most 15 seconds
    for _ in $(seq 150); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    return 1
}

cat >"$top/sweep.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "sweep" {
  fixed = { steps = 30, pause = 0.0, locale = "" },
  grid = { rate = { 0.25, 0.5 } },
  seeds = 4,
  checkpoint = { steps = 7 },
  trial = function(t, c)
    if c.locale ~= "" then assert(os.setlocale(c.locale)) end
    local x = tl.zeros(4096)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * c.rate + noise:normal(tl.zeros(4096), 0, 1))
      t:log { loss = (x * x):mean():item() }
      tl.sys.sleep(c.pause)
    end
    t:text("note", "the sum is " .. x:sum():item())
    t:log { final = x:sum():item() }
  end,
  report = { rows = "rate", columns = { "loss", "final" } },
}
END

# FOLDER: prints the metrics with all digits, without the ids, which depend on the configuration
result() {
    "$toeplab" lua - "$1" <<'END'
local store = require "toeplab.core".store(arg[1], "r")
for _, m in ipairs(store:exec [[SELECT json_extract(t.config, '$.rate') AS rate, t.seed, m.name,
    m.step, m.value FROM v_trials t JOIN v_metrics m ON m.trial = t.id ORDER BY 1, 2, 3, 4]]) do
  print(m.rate, m.seed, m.name, m.step, ("%a"):format(m.value))
end
END
}

same() { # FOLDER: compares its metrics and table with those of the plain run
    result "$1" | cmp - "$top/metrics" && cmp "$top/out" "$top/table"
}

got "$toeplab" run -q -C "$top/plain" "$top/sweep.lua"
exits "a plain run" 0
cp "$top/out" "$top/table"
result "$top/plain" >"$top/metrics"
check "... has all metrics" test "$(wc -l <"$top/metrics")" -eq 248

# ---- A reader in the way -------------------------------------------------------------------------

cat >"$top/reader.lua" <<'END'
local core = require "toeplab.core"
local store
for _ = 1, 100 do
  store = core.store(arg[1], "r")
  if store then break end
  core.sys.sleep(0.1)
end
store:exec "BEGIN"
local count = store:exec("SELECT count(*) AS n FROM v_metrics")[1].n
core.sys.sleep(tonumber(arg[2]))
assert(store:exec("SELECT count(*) AS n FROM v_metrics")[1].n == count)
store:exec "COMMIT"
END
"$toeplab" lua "$top/reader.lua" "$top/read" 4 2>"$top/reader.err" &
reader=$!
got "$toeplab" run -C "$top/read" -j 8 "$top/sweep.lua" pause=0.05
check "a reader that holds a transaction" wait "$reader"
exits "8 workers beside it" 0
check "... and nothing was locked" sh -c "! grep -qi locked '$top/err' '$top/reader.err'"
check "... and the result is the same" same "$top/read"

# ---- Signals, two coordinators -------------------------------------------------------------------

cat >"$top/slow.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "slow" {
  fixed = { step_seconds = 0.05 },
  seeds = 2,
  trial = function(t, c)
    local x = tl.zeros(4)
    local part = { state = function() return { x = x } end, load = function() end }
    for _ in t:steps(100000, part, part) do
      t:log { loss = 1 }
      local till = tl.sys.clock() + c.step_seconds -- a signal would end a sleep
      while tl.sys.clock() < till do end
      t:log { end_of_step = 1 }
    end
  end,
}
END

begin() { # FOLDER WORDS...: starts the slow run in the background and waits until it logs
    folder=$1
    shift
    # The shell makes background processes ignore SIGINT.
    env --default-signal=INT "$toeplab" run -C "$top/$folder" -j 2 "$top/slow.lua" "$@" \
        >"$top/out" 2>"$top/err" &
    pid=$!
    until_true sh -c "'$toeplab' export -C '$top/$folder' --metrics | grep -q ,loss,1,"
}

none_of() { ! pgrep -f "toeplab .*$1"; } # no process runs in that folder

ended() { # waits for the run; sets its exit code and its time
    began=$(date +%s)
    code=0
    (sleep 30; kill -s KILL "$pid" 2>/dev/null) &
    guard=$!
    wait "$pid" || code=$?
    kill "$guard" 2>/dev/null || true
    took=$(($(date +%s) - began))
}

signalled() { # SIGNAL CODE TEXT: TEXT describes the stop
    begin "sig-$1"
    until_true sh -c "[ \$('$toeplab' export -C '$top/sig-$1' --metrics | grep -c ,loss,1,) = 2 ]"
    kill -s "$1" "$pid"
    ended
    exits "SIG$1" "$2" "stopped $3.*same command continues"
    check "... within 10 seconds" test "$took" -le 10
    check "... each trial with a checkpoint" sh -c "[ \$('$toeplab' ls -C '$top/sig-$1' --csv \
        status=interrupted 'step>0' | sed 1d | wc -l) -eq 2 ]"
    check "... and no process is left" none_of "$top/sig-$1"
}

signalled INT 130 "on request"
signalled TERM 143 "by SIGTERM"
signalled USR2 143 "by SIGUSR2"
signalled HUP 129 "by SIGHUP"

begin once step_seconds=3
kill -s INT "$pid"
ended
exits "SIGINT in a long step" 130
check "... which was ended" sh -c "'$toeplab' export -C '$top/once' --metrics | grep -q end_of_step,1,"
begin twice step_seconds=60
kill -s INT "$pid"
sleep 0.5
kill -s INT "$pid"
ended
exits "SIGINT twice in a step of a minute" 130
check "... at once" test "$took" -le 5

begin two
got "$toeplab" run -C "$top/two" "$top/slow.lua"
exits "a second coordinator" 5
check "... leaves the trials to the first" grep -q "run by other processes" "$top/out" "$top/err"
kill -s KILL "$pid"
wait "$pid" 2>/dev/null || true
check "the workers of a killed coordinator end" until_true none_of "$top/two"
env --default-signal=INT "$toeplab" run -C "$top/two" "$top/slow.lua" >"$top/out" 2>"$top/err" &
pid=$!
check "... and the same command continues" until_true grep -q "resumed after step" "$top/err"
kill -s INT "$pid"
ended
exits "... until SIGINT" 130 "stopped on request"

"$toeplab" ls -C "$top/plain" 2>"$top/err" | head -1 >"$top/out"
check "ls | head: silent" test -s "$top/out" -a ! -s "$top/err"
many="WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200000) SELECT i FROM n"
{
    trap '' PIPE
    code=0
    "$toeplab" ls -C "$top/plain" --sql "$many" 2>"$top/err" || code=$?
    echo "$code" >"$top/code"
} | head -1 >"$top/out"
check "a closed pipe, also if the parent ignores SIGPIPE: 141 and silent" \
    test "$(cat "$top/code")" -eq 141 -a ! -s "$top/err"

# ---- Damaged checkpoints -------------------------------------------------------------------------

# An interrupted sweep of one trial with checkpoints of steps 7 and 14. Each cut at 4 KB and some
# flipped bits of the second one must be detected.
cat >"$top/stops.lua" <<END
local text = io.open("$top/sweep.lua"):read("a")
text = text:gsub('t:log { loss', 'if step == 17 and not tl.sys.exists("$top/go") '
  .. 'then error("stopped") end t:log { loss'):gsub('"sweep"', '"stops"')
io.write(text)
END
"$toeplab" lua "$top/stops.lua" >"$top/stopped.lua"
got "$toeplab" run -q -C "$top/cut" "$top/stopped.lua" rate=0.5 seed=1
exits "a trial that fails at step 17" 1
: >"$top/go"
cp -r "$top/cut" "$top/straight"
got "$toeplab" run -q -C "$top/straight" "$top/stopped.lua" rate=0.5 seed=1
result "$top/straight" >"$top/cut.want"

# NAME: after damage to the checkpoint $file, the older one must be used and the damaged one named
damage() {
    got "$toeplab" run -C "$top/bad" "$top/stopped.lua" rate=0.5 seed=1
    good=1
    [ "$code" -eq 0 ] && grep -q "step-00000014.h5 is damaged.*trying the one before" "$top/err" &&
        grep -q "resumed after step 7 of 30" "$top/err" &&
        result "$top/bad" | cmp -s - "$top/cut.want" || good=0
    if [ "$good" -eq 1 ]; then found=$((found + 1)); else check "checkpoint $1" false; fi
}

anew() {
    rm -rf "$top/bad"
    cp -r "$top/cut" "$top/bad"
    file=$(echo "$top/bad"/runs/*/step-00000014.h5)
}

found=0 tried=0
anew
size=$(wc -c <"$file")
cut=0
while [ "$cut" -lt "$size" ]; do
    anew
    truncate -s "$cut" "$file"
    damage "cut at $cut"
    tried=$((tried + 1)) cut=$((cut + 4096))
done
for at in 0 9 100 1000 2500 5000 20000 $((size - 1)); do
    anew
    "$toeplab" lua - "$file" "$at" <<'END'
local file = io.open(arg[1], "r+b")
file:seek("set", arg[2])
local byte = file:read(1):byte()
file:seek("set", arg[2])
file:write(string.char(byte ~ 16))
file:close()
END
    damage "bit flipped at $at"
    tried=$((tried + 1))
done
check "$tried damaged checkpoints of $size bytes: $found found and reported, and the older one used" \
    test "$found" -eq "$tried" -a "$tried" -gt 10

# ---- Surroundings --------------------------------------------------------------------------------

got env TZ=Pacific/Kiritimati "$toeplab" run -q -C "$top/tz" "$top/sweep.lua"
check "another time zone: the same" same "$top/tz"
"$compiler" -O1 -shared -fPIC "$source/tests/faults/clock.c" -o "$top/clock.so"
got "$toeplab" run -q -C "$top/clock" "$top/sweep.lua" seeds=2
got env LD_PRELOAD="$top/clock.so" CLOCK_BACK=3600 "$toeplab" run -q -C "$top/clock" "$top/sweep.lua"
check "the clock set back an hour between two runs: the same" same "$top/clock"
got env LD_PRELOAD="$top/clock.so" CLOCK_BACK=7200 "$toeplab" ls -C "$top/clock"
exits "... and ls" 0
if localedef -i de_DE -f UTF-8 "$top/de_DE.UTF-8" 2>/dev/null || [ -e "$top/de_DE.UTF-8" ]; then
    got env LOCPATH="$top" LC_ALL=de_DE.UTF-8 "$toeplab" run -q -C "$top/comma" "$top/sweep.lua" \
        locale=de_DE.UTF-8
    exits "a script that sets a locale with a decimal comma" 0
    check "... the same" same "$top/comma"
    got env LOCPATH="$top" LC_ALL=de_DE.UTF-8 "$toeplab" export -C "$top/comma"
    check "... and CSV with points" grep -q ',0.25,' "$top/out"
else
    echo "no locale with a decimal comma can be made here: not tried"
fi

got env -u HOME -u XDG_CACHE_HOME "$toeplab" run -q -C "$top/home" "$top/sweep.lua"
check "no HOME: the same" same "$top/home"
got env -i TOEPLAB_LUA="$TOEPLAB_LUA" TOEPLAB_THREADS=1 "$toeplab" run -q -C "$top/env" "$top/sweep.lua"
check "no environment: the same" same "$top/env"

code=0
"$toeplab" run -C "$top/shut" "$top/sweep.lua" <&- >&- 2>&- || code=$?
exits "all standard descriptors closed: it runs to its end" 0
got "$toeplab" run -q -C "$top/shut" "$top/sweep.lua"
check "... and all was done and stored" same "$top/shut"
check "... and nothing printed into a file" sh -c "'$toeplab' fsck -C '$top/shut'"
code=0
"$toeplab" ls -C "$top/plain" >&- 2>"$top/err" || code=$?
exits "ls without standard output" 1 "standard output: "
code=0
"$toeplab" ls -C "$top/plain" >/dev/full 2>"$top/err" || code=$?
exits "ls to a full device" 1 "standard output: "

if command -v script >/dev/null; then
    script -qec "stty cols 40; '$toeplab' run -C '$top/narrow' '$top/sweep.lua' pause=0.02" \
        "$top/typed" >/dev/null 2>&1 || true
    widest=$(tr '\r' '\n' <"$top/typed" | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | grep 'step [0-9]' |
        awk '{ if (length > n) n = length } END { print n + 0 }')
    check "40 columns: the line of progress has $widest" test "$widest" -gt 10 -a "$widest" -le 40
fi

cp -r "$top/plain" "$top/fixed"
chmod 755 "$top" "$top/fixed"
chmod -R a+rX,a-w "$top/fixed"
as= # the user nobody, because root ignores permissions
if [ "$(id -u)" -eq 0 ]; then as="setpriv --reuid 65534 --clear-groups"; fi
got $as "$toeplab" ls -C "$top/fixed"
exits "ls of a read-only folder" 0
got $as "$toeplab" run -C "$top/fixed" "$top/sweep.lua"
exits "a finished run in a read-only folder shows its results" 0 "the results folder is read-only"
got $as "$toeplab" run -C "$top/fixed" "$top/sweep.lua" seeds=9
exits "a run that has more to do there" 6 "fixed"
got $as "$toeplab" plan -C "$top/fixed" "$top/sweep.lua"
exits "a plan of a read-only folder" 0
chmod -R u+w "$top/fixed"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
