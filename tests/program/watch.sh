#!/bin/sh
# watch.sh - tests toeplab watch in a pseudo-terminal, which script(1) makes: keys, another size,
# Ctrl-C, the end of the run; and without a terminal. watch.sh TOEPLAB SOURCE; the exit code is 77
# where there is no script(1).
set -eu

toeplab=$1
source=$2
if ! command -v script >/dev/null; then
    echo "skipped: there is no script(1) to make a pseudo-terminal"
    exit 77
fi
top=$(mktemp -d)
run=
trap '[ -z "$run" ] || kill "$run" 2>/dev/null || :; wait; rm -rf "$top"' EXIT
trap 'exit 1' HUP TERM PIPE
passed=0
failed=0
unset TOEPLAB_TRACEBACK FORCE_COLOR COLUMNS LINES LC_ALL LC_CTYPE
export TOEPLAB_DIR="$top/results" TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua"
export LANG=C.UTF-8 TERM=xterm
cd "$top"

result() { # NAME STATUS: reports the test of that name
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $1"
    else
        failed=$((failed + 1))
        echo "not ok $1"
        tail -c 3000 screen 2>/dev/null | cat -v
        cat said 2>/dev/null || :
    fi
}

# until_true COMMAND...: waits until COMMAND succeeds, a minute at most.
until_true() {
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    return 1
}

seen() { grep -q -e "$1" screen; }
gone() { grep -A 1 'no trial is running' screen | grep -q '^  trial '; } # right below the title
lists() { "$toeplab" ls --csv --sql "SELECT status FROM v_trials ORDER BY json_extract(config, '\$.a')" |
    tr '\n' ' ' | grep -q "^status $1 $"; }
check() { # NAME COMMAND...: COMMAND must succeed within a minute
    name=$1
    shift
    if until_true "$@"; then result "$name" 0; else result "$name" 1; fi
}

# open ARGUMENTS...: watches in a pseudo-terminal, whose keys are what is written to descriptor 3.
open() {
    rm -f keys screen code modes
    mkfifo keys
    cat >start <<END_OF_START
trap : INT # Ctrl-C reaches this shell, too
stty rows 12 cols 100
"$toeplab" watch $*
echo \$? >code
stty -a >modes
END_OF_START
    # a shell lets its background jobs ignore SIGINT
    env --default-signal=INT script -qfc "sh ./start" screen <keys >/dev/null 2>&1 &
    exec 3>keys
}

closed() { # CODE: it must have ended with that code and left the terminal as it was
    until_true test -s modes && [ "$(cat code)" = "$1" ] && ! grep -q -e '-icanon' modes &&
        ! grep -q -e '-echo ' modes && seen '\[?1049l'
    status=$?
    exec 3>&-
    return "$status"
}

cat >slow.lua <<'END_OF_SCRIPT'
local tl = require "toeplab"
return tl.experiment "slow" {
  fixed = { go = "", steps = 9 }, grid = { a = { 1, 2 } }, checkpoint = { steps = 1 },
  trial = function(t, c)
    local model = tl.nn.Linear(1, 1)
    for step in t:steps(c.steps, model, tl.optim.sgd(model, { lr = 0.1 })) do
      t:log { loss = c.a / step, accuracy = step }
      if step == 8 then io.stdout:write("eight steps are made\n"):flush() end
      while step == 8 and not tl.sys.exists(c.go) do tl.sys.sleep(0.02) end
    end
  end,
}
END_OF_SCRIPT

got=0
"$toeplab" watch >said 2>&1 || got=$?
[ "$got" = 2 ] && grep -q "holds no runs" said && result "no folder" 0 || result "no folder" 1
"$toeplab" run -q slow.lua "go=$top/go" -j2 >run.out 2>&1 &
run=$!
working() { "$toeplab" status --json | grep -q '"step":8.*"step":8'; }
check "two trials are at work" working
"$toeplab" watch </dev/null >said 2>&1
grep -q "^slow  2 trials: 2 running" said && grep -q "the output is not a terminal, so the state" said &&
    result "without a terminal it prints once" 0 || result "without a terminal it prints once" 1
got=0
"$toeplab" watch --metric loss </dev/null >said 2>&1 || got=$?
[ "$got" = 2 ] && grep -q -e "--metric requires a terminal" said &&
    result "... and has no metric" 0 || result "... and has no metric" 1
got=0
"$toeplab" watch slwo >said 2>&1 || got=$?
[ "$got" = 2 ] && grep -q "did you mean 'slow'" said && result "a name misspelt" 0 ||
    result "a name misspelt" 1

open slow --every 0.3
check "it shows the trials with a curve" seen 'a=1 .*running .*8/9 .*0.1250 .*█▄▂▂▁'
printf 'm' >&3
check "m: another metric" seen 'a=1 .*running .*8/9 .*8.0000 .*▁▂▃▄▅▆▇█'
printf 'c' >&3
check "c: the curve" seen 'any key: back'
printf 'x\033[B' >&3
check "arrow down: the other trial" seen '> a=2'
printf 'l' >&3
check "l: the log" seen 'eight steps are made'
printf 'xs' >&3
check "s: asks first" seen 'stop .* a=2? y: yes'
printf 'n' >&3
sleep 1
lists "running running" && result "n: nothing is stopped" 0 || result "n: nothing is stopped" 1
printf 'sy' >&3
check "y: the trial is stopped" lists "running interrupted"
check "... and shown so" seen 'a=2 .*interrupted'
watcher=$(pgrep -f "toeplab watch slow --every 0.3" | while read -r id; do
    [ "$(readlink "/proc/$id/exe")" = "$(readlink -f "$toeplab")" ] && echo "$id"; done | head -n 1)
stty rows 6 cols 30 <"$(readlink "/proc/$watcher/fd/0")"
check "another size: it is drawn again, within it" seen 'slow  2 trials: 1 running, 1 i.\[K'
stty rows 12 cols 100 <"$(readlink "/proc/$watcher/fd/0")"
touch go
check "the end of the run is shown" seen 'no trial is running'
printf 'q' >&3
closed 0 && result "q: it ends and the terminal is as before" 0 ||
    result "q: it ends and the terminal is as before" 1
wait "$run" 2>/dev/null || :
run=
open
check "without a name it takes the newest sweep" seen 'slow  2 trials: 1 done, 1 interrupted'
printf '\003' >&3
closed 130 && result "Ctrl-C: it ends and the terminal is as before" 0 ||
    result "Ctrl-C: it ends and the terminal is as before" 1

emulated=${toeplab%/*}/tests/emulated.so
if [ -e "$emulated" ]; then
    cat >nvidia-smi <<'END_OF_SCRIPT'
#!/bin/sh
echo "0, 97, 1000, 80000"
END_OF_SCRIPT
    chmod +x nvidia-smi
    rm go
    PATH=$top:$PATH
    "$toeplab" run -q slow.lua "go=$top/go" a=2 "device=$emulated" >run.out 2>&1 &
    run=$!
    until_true sh -c "'$toeplab' status --json | grep -q '\"step\":8'" || :
    open --every 0.3
    check "the GPU's use is shown above the trials" seen 'gpu 0 *97 %   1.0 GB of 83.9 GB   a=2'
    touch go
    wait "$run" || :
    run=
    check "... and no longer, once the trial has ended" gone
    printf 'q' >&3
    closed 0 || :
fi

cat >silent.lua <<'END_OF_SCRIPT'
local tl = require "toeplab"
return tl.experiment "silent" { trial = function() error("before anything is logged") end }
END_OF_SCRIPT
"$toeplab" run -q silent.lua >run.out 2>&1 || :
open
check "before anything is logged, it shows the trials" seen 'silent  1 trial: 1 failed'
printf 'q' >&3
closed 0 && result "... and ends" 0 || result "... and ends" 1

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
