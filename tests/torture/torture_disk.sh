#!/bin/sh
# torture_disk.sh - runs a sweep on a disk that fails for the coordinator or for the workers.
# torture_disk.sh TOEPLAB SOURCE CC [STRIDE] [MODE]
#
# MODE write: the disk is full or broken from the n-th write, sync or rename on, or at that one
# alone, for n = 1, 1 + STRIDE, ...: the run must end with exit code 6, what was committed must be
# readable, and the same command on a good disk must end with the undisturbed result.
#
# MODE read: the same at the n-th open or read of a sweep that resumes after a kill; reads may also
# be short. In addition, files are removed, moved or damaged while the sweep runs.
set -eu

toeplab=$1
source=$2
compiler=$3
stride=${4:-1}
mode=${5:-write}
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
unset TOEPLAB_DIR TOEPLAB_TRACEBACK
export TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua" TOEPLAB_THREADS=1 NO_COLOR=1
failed=0 met=0 spared=0

"$compiler" -O1 -shared -fPIC "$source/tests/faults/disk.c" -o "$top/disk.so" -ldl

begin() { # FOLDER: prepares what a sweep starts from
    rm -rf "${top:?}/$1" "$top/met"
    if [ "$mode" = read ] && [ -d "$top/begun" ]; then
        cp -r "$top/begun" "$top/$1"
    else
        mkdir "$top/$1"
        cp "$source/tests/faults/small.lua" "$top/$1"
    fi
}

run() { # FOLDER [NAME=VALUE...]: runs the sweep; its exit code is in $code
    folder=$1
    shift
    code=0
    env "$@" timeout 60 "$toeplab" run -q -C "$top/$folder/r" "$top/$folder/small.lua" \
        >"$top/table" 2>"$top/err" || code=$?
}

faulty() { # FOLDER [NAME=VALUE...]: runs it on a failing disk
    folder=$1
    shift
    run "$folder" LD_PRELOAD="$top/disk.so" FAULT_PATH="$top/$folder/" FAULT_MET="$top/met" \
        FAULT_ROLE="$role" FAULT_CALLS="$calls" "$@"
}

result() { # FOLDER
    "$toeplab" lua "$source/tests/faults/result.lua" "$top/$1/r"
    cat "$top/table"
}

bad() { # WHAT: reports what went wrong at this call
    echo "not ok $what: $1"
    sed 's/^/  /' "$top/err"
    failed=$((failed + 1))
}

# Checks the exit code, in $code, of a run in which something failed. A script that cannot be read
# is a usage error.
check_exit_code() {
    if [ "$code" -ge 128 ] || grep -q "killed by signal" "$top/err"; then
        bad "exit code $code, a crash"
    elif [ "$code" -eq 2 ] && grep -q "small\.lua" "$top/err"; then
        :
    elif [ "$code" -ne 6 ] && [ "$code" -ne 0 ]; then
        bad "exit code $code"
    fi
}

# Runs the same command on a good disk, unless the first run finished.
ends_well() { # FOLDER
    fate=$code
    [ "$code" -eq 0 ] || run "$1"
    if [ "$code" -ne 0 ]; then
        bad "exit code $code once the disk is good"
    elif ! result "$1" 2>&1 | cmp -s - "$top/want"; then
        bad "exit code $fate, and the result is another"
    fi
}

fail_call() { # runs with a disk that fails at call n
    what="$role, $calls, error $error, call $n of $all$once"
    begin d
    faulty d FAULT_ERROR="$error" FAULT_AT="$n" ${once:+FAULT_ONCE=1}
    if [ ! -e "$top/met" ]; then # the number of calls varies from run to run
        [ "$code" -eq 0 ] || bad "exit code $code, and no failure was met"
        return
    fi
    met=$((met + 1))
    check_exit_code
    # a failed write to a log, for instance, loses nothing
    [ "$code" -ne 0 ] || spared=$((spared + 1))
    # If the store could not even be created, it holds nothing.
    if [ -s "$top/d/r/runs.db" ] && ! grep -q "cannot set up" "$top/err" &&
        ! "$toeplab" fsck -C "$top/d/r" >"$top/fsck" 2>&1; then
        cat "$top/fsck" >>"$top/err"
        bad "the store is damaged"
    fi
    ends_well d
}

each_call() { # CALLS STRIDE ERROR...: fails from a call on, and at that call alone, in both roles
    calls=$1 step=$2
    shift 2
    for role in run worker; do
        begin count
        faulty count
        all=$(wc -c <"$top/met")
        for error in "$@"; do
            for once in "" " alone"; do
                n=1
                while [ "$n" -le "$all" ]; do
                    fail_call
                    n=$((n + step))
                done
            done
        done
        echo "$role: $all calls, $calls"
    done
}

# WHAT COMMANDS [COMMANDS]: runs COMMANDS during a sweep; the second COMMANDS repair the folder
attacked() {
    what=$1
    met=$((met + 1))
    begin d
    run d ATTACK="cd '$top/d'; $2"
    check_exit_code
    if [ $# -gt 2 ]; then
        [ "$code" -eq 6 ] || bad "exit code $code"
        (cd "$top/d" && eval "$3")
        code=6
    fi
    ends_well d
}

flip='flip() { # Flips a byte of the only live journal, at that many thousandths of its length.
    file=$(ls -t r/runs/*/events-*.jnl | head -n 1)
    at=$(($(wc -c <"$file") * $1 / 1000))
    printf "\377" | dd of="$file" bs=1 seek="$at" conv=notrunc 2>/dev/null
}'

attacks() {
    attacked "the lock is removed" "mv r/lock lock; sleep 0.5" "mv lock r/lock"
    attacked "the lock is another file" "cp r/lock lock; mv lock r/lock; sleep 0.5" :
    attacked "the database is removed" "rm -f r/runs.db*; sleep 0.5"
    attacked "the database is another file" "mv r/runs.db runs.db; cp runs.db r/runs.db; sleep 0.5"
    attacked "the folder is moved" "mv r moved; sleep 0.5" "rm -rf r; mv moved r"
    for where in 3 250 500 750 995; do
        attacked "a byte of a live journal is another, at $where/1000" "$flip; flip $where"
    done
    attacked "a live journal is cut" "truncate -s 100 r/runs/*/events-*.jnl"
    attacked "a live journal is removed" "rm r/runs/*/events-*.jnl"
}

begin calm
run calm
[ "$code" -eq 0 ] || { cat "$top/err"; exit 1; }
result calm >"$top/want"
case $mode in
write)
    each_call write "$stride" 28 5 # ENOSPC, EIO
    ;;
read)
    attacks
    begin begun.new
    run begun.new ATTACK='kill -9 $(cut -d" " -f4 /proc/$PPID/stat) $PPID'
    [ "$code" -eq 137 ] || { echo "exit code $code where a kill was to come"; exit 1; }
    mv "$top/begun.new" "$top/begun"
    each_call open $((stride / 5 + 1)) 5 24 # EIO, EMFILE; there are fewer opens than reads
    each_call read "$stride" 5 0            # EIO, a short read
    ;;
esac
echo "$met failures met, $spared without harm, $failed failed"
[ "$failed" -eq 0 ] && [ "$met" -gt 20 ]
