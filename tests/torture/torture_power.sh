#!/bin/sh
# torture_power.sh - cuts the power of a sweep's machine at random moments, so that everything not
# synced is lost. The same command on what is left must end with the undisturbed result: no trial
# that was reported as done is trained again, nor a step that was reported as safe in a checkpoint.
# torture_power.sh TOEPLAB SOURCE CC [MOMENTS] [FORM]
#
# FORM image: the results folder is on an ext4 image in a loop device. The processes are frozen, and
# the image is copied without what the kernel has not yet written to it; then the copy is mounted.
#
# FORM record: where that is not permitted, record.c records the calls that change files, and
# replay.lua writes the folder as ext4 may have left it after one of them.
set -eu

toeplab=$1
source=$2
compiler=$3
moments=${4:-8}
top=$(mktemp -d)
unset TOEPLAB_DIR TOEPLAB_TRACEBACK
export TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua" TOEPLAB_THREADS=1 NO_COLOR=1
each=4 # moments of one sweep
failed=0 lost=0 again=0 other=0

finish() {
    trap - EXIT
    [ -z "${pid:-}" ] || { kill -CONT "$pid"; kill -KILL "$pid"; } 2>/dev/null || true
    for folder in "$top"/disk "$top"/copy; do
        if mountpoint -q "$folder"; then umount "$folder" || umount -l "$folder"; fi
    done
    rm -rf "$top"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

sweep() { # FOLDER [WORDS...]: replaces the shell by the one command, started by these words
    folder=$1
    shift
    rm -rf "$top/trained"
    mkdir "$top/trained"
    exec "$@" "$toeplab" run -j 2 -C "$folder" "$source/tests/faults/power.lua" \
        "trained=$top/trained"
}

run() { # FOLDER: runs the sweep; its exit code is in $code
    code=0
    (sweep "$1" timeout 120) >"$top/table" 2>"$top/err" || code=$?
}

result() { # FOLDER: prints the result of the last run
    "$toeplab" lua "$source/tests/faults/result.lua" "$1" && cat "$top/table"
}

bad() { # WHAT: reports what went wrong after this moment
    echo "not ok moment $n: $1"
    fine=""
}

# Compares what had been reported when power was lost, in the file REPORTED, with what the command
# trained afterwards.
trained_again() { # REPORTED
    while read -r trial safe; do
        first=$(head -n 1 "$top/trained/$trial" 2>/dev/null) || continue
        if [ "$safe" = "done" ]; then
            echo "trial $trial was done and is trained again"
        elif [ -n "$first" ] && [ "$first" -le "$safe" ]; then
            echo "trial $trial was safe at step $safe and goes on from step $first"
        fi
    done <"$1"
}

check() { # FOLDER REPORTED: what the power loss left, and what had been reported before it
    fine=yes
    run "$1"
    if [ "$code" -ne 0 ]; then
        other=$((other + 1))
        bad "exit code $code"
        sed 's/^/  /' "$top/err"
    elif ! result "$1" >"$top/got" || ! cmp -s "$top/want" "$top/got"; then
        other=$((other + 1))
        bad "the result is another"
        diff "$top/want" "$top/got" | head -n 6 | sed 's/^/  /'
    fi
    trained_again "$2" | sort -u >"$top/again"
    if [ -s "$top/again" ]; then
        bad "power took what was safe"
        sed 's/^/  /' "$top/again"
        lost=$((lost + $(grep -c "was done" "$top/again" || true)))
        again=$((again + $(grep -c "was safe" "$top/again" || true)))
    fi
    if ! "$toeplab" fsck -C "$1" >"$top/fsck" 2>&1; then
        bad "fsck finds damage"
        sed 's/^/  /' "$top/fsck"
    fi
    [ -n "$fine" ] || failed=$((failed + 1))
}

# ---- Where a sweep starts -----------------------------------------------------------------------

# Prepares where the sweep of a moment starts: every second one resumes a sweep that was stopped
# after two trials were rolled back. span: about how many milliseconds the sweep takes.
begin() { # MOMENT
    start=$top/new span=$took
    if [ $(($1 / each % 2)) -eq 1 ]; then start=$top/begun span=$((took / 2)); fi
}

# Prints random moments of the sweep in order, as seconds from each to the next.
gaps() { # COUNT
    awk -v seed="$n" -v count="$1" -v span="$span" 'BEGIN {
        srand(seed + 1)
        rand()
        for (i = 0; i < count; i++) print rand() * span / 1000 }' | sort -n |
        awk '{ printf "%.3f\n", $1 - last; last = $1 }'
}

make_starts() {
    mkdir "$top/new" "$top/begun"
    : >"$top/live"
    sweep "$top/begun/r" env >"$top/table" 2>"$top/live" &
    pid=$!
    for _ in $(seq 3000); do
        if [ "$(grep -c "back to step" "$top/live")" -ge 2 ]; then break; fi
        sleep 0.01
    done
    kill -TERM "$pid"
    wait "$pid" || code=$?
    pid=""
    [ "$code" -eq 143 ] || { echo "exit code $code of a sweep that is stopped"; exit 1; }
}

# ---- An image -----------------------------------------------------------------------------------

make_image() {
    rm -f "$top/image"
    truncate -s 32M "$top/image"
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$top/image"
}

attach() { # IMAGE FOLDER
    mount -o loop,noatime "$1" "$2" 2>"$top/err"
}

mountable() {
    mkdir -p "$top/disk" "$top/copy"
    command -v mkfs.ext4 >/dev/null && command -v mountpoint >/dev/null && make_image &&
        attach "$top/image" "$top/disk" && umount "$top/disk"
}

stopped() { # PID...: whether all their threads are stopped, outside of system calls
    for one in "$@"; do
        for stat in /proc/"$one"/task/*/stat; do
            state=$(sed 's/.*) //; s/ .*//' "$stat" 2>/dev/null) || continue
            case $state in T | t | Z | X | "") ;; *) return 1 ;; esac
        done
    done
}

signal() { # SIGNAL: sends it to the coordinator and then to its workers
    kill "-$1" "$pid" 2>/dev/null || return 0 # it has ended
    # a stopped coordinator starts no more workers
    while [ "$1" = STOP ] && ! stopped "$pid"; do :; done
    workers=$(cat /proc/"$pid"/task/"$pid"/children 2>/dev/null) || workers=
    for one in $workers; do kill "-$1" "$one" 2>/dev/null || true; done
    # shellcheck disable=SC2086
    while [ "$1" = STOP ] && ! stopped $workers; do :; done
}

# The kernel may write while the image is copied. A copy is consistent if the image is unchanged
# after it.
copy_image() { # TO
    while :; do
        cp --sparse=always "$top/image" "$1"
        if cmp -s "$top/image" "$1"; then return; fi
    done
}

image_round() { # GAPS: the moments of one sweep, in seconds from one to the next
    make_image
    attach "$top/image" "$top/disk"
    cp -r "$start/." "$top/disk"
    sync -f "$top/disk"
    sweep "$top/disk/r" env >"$top/table" 2>"$top/live" &
    pid=$!
    copies=""
    for gap in $1; do
        sleep "$gap"
        signal STOP
        n=$((n + 1))
        copies="$copies $n"
        "$toeplab" lua "$source/tests/faults/reported.lua" "$top/disk/r" \
            >"$top/reported-$n" 2>/dev/null ||
            : >"$top/reported-$n"
        sed -n 's/^.*rate=\([0-9.]*\) seed=\([0-9]*\)  done .*/\1-\2 done/p' "$top/live" \
            >>"$top/reported-$n"
        copy_image "$top/image-$n"
        signal CONT
    done
    wait "$pid" || { cat "$top/live"; exit 1; }
    pid=""
    umount "$top/disk"
    last=$n
    for n in $copies; do
        attach "$top/image-$n" "$top/copy"
        check "$top/copy/r" "$top/reported-$n"
        umount "$top/copy"
        e2fsck -fn "$top/image-$n" >"$top/err" 2>&1 || { cat "$top/err"; exit 1; }
        rm "$top/image-$n"
    done
    n=$last
}

# ---- A record -----------------------------------------------------------------------------------

record_round() { # COUNT: the number of moments
    cp -r "$start" "$top/work"
    (sweep "$top/work/r" env LD_PRELOAD="$top/record.so" RECORD_PATH="$top/work/" \
        RECORD_TO="$top/log") >"$top/table" 2>"$top/work/messages"
    rm -rf "$top/work"
    for _ in $(seq "$1"); do
        n=$((n + 1))
        rm -rf "$top/left"
        mkdir "$top/left"
        "$toeplab" lua "$source/tests/faults/replay.lua" "$top/log" "$start" "$top/left" "$n" \
            >"$top/reported-$n"
        check "$top/left/r" "$top/reported-$n"
    done
    rm "$top/log"
}

# ---- Both ---------------------------------------------------------------------------------------

form=${5:-}
if [ -z "$form" ]; then
    form=record
    if mountable; then form=image; fi
fi
case $form in
image)
    mountable || { echo "skipped: no ext4 image can be mounted here"; exit 77; }
    ;;
*)
    if ! "$compiler" -O1 -shared -fPIC "$source/tests/faults/record.c" -o "$top/record.so" -ldl
    then
        echo "skipped: no ext4 image can be mounted, and no compiler makes the recorder"
        exit 77
    fi
    ;;
esac
began=$(date +%s%N)
run "$top/calm"
took=$((($(date +%s%N) - began) / 1000000))
[ "$code" -eq 0 ] || { cat "$top/err"; exit 1; }
result "$top/calm" >"$top/want"
make_starts
n=0
while [ "$n" -lt "$moments" ]; do
    count=$((moments - n < each ? moments - n : each))
    begin "$n"
    case $form in
    image) image_round "$(gaps "$count")" ;;
    *) record_round "$count" ;;
    esac
done
echo "$form: power lost $n times, $failed failed: $lost finished trials and $again checkpoints" \
    "lost, $other other results"
[ "$failed" -eq 0 ] && [ "$n" -gt 0 ]
