#!/bin/sh
# torture_endless.sh - runs a step that never ends, in Lua, in C or behind pcall. It must end within
# 10 seconds of SIGINT or SIGTERM to the run, or of the death of its coordinator. torture_endless.sh
# TOEPLAB SOURCE
set -eu

toeplab=$1
source=$2
top=$(mktemp -d)
trap 'pkill -KILL -f "$top/" 2>/dev/null || true; rm -rf "$top"' EXIT
unset TOEPLAB_DIR TOEPLAB_TRACEBACK
export TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua" TOEPLAB_THREADS=1 NO_COLOR=1

cat >"$top/endless.lua" <<'END'
local tl = require "toeplab"
local how = {}
function how.lua() while true do end end
function how.c() return ("a"):rep(60):find(("a?"):rep(60) .. ("a"):rep(60)) end -- never returns
function how.pcall() while true do pcall(function() while true do end end) end end
function how.asleep() while true do tl.sys.sleep(1e6) end end
return tl.experiment "endless" {
  fixed = { how = "lua" },
  trial = function(t, c)
    for _ in t:steps(1, tl.nn.Linear(1, 1)) do
      t:log { begun = 1 }
      how[c.how]()
    end
  end,
}
END

# one HOW SIGNAL CODE: runs one case in a folder of its own, and writes any failure to FOLDER.wrong.
one() {
    folder=$top/$1-$2
    # The shell makes background processes ignore SIGINT.
    env --default-signal=INT "$toeplab" run -C "$folder" "$top/endless.lua" "how=$1" \
        >/dev/null 2>"$folder.err" &
    run=$!
    for _ in $(seq 200); do
        grep -q begun "$folder"/runs/*/events-1.jnl 2>/dev/null && break
        sleep 0.1
    done
    grep -q begun "$folder"/runs/*/events-1.jnl || echo "its step never began" >>"$folder.wrong"
    began=$(date +%s)
    kill -s "$2" "$run"
    (sleep 20; kill -s KILL "$run" 2>/dev/null) &
    guard=$!
    code=0
    wait "$run" || code=$?
    kill "$guard" 2>/dev/null || true
    [ "$code" -eq "$3" ] || echo "exit code $code, not $3" >>"$folder.wrong"
    until ! pgrep -f "toeplab .*$folder" >/dev/null; do
        sleep 0.1
        [ $(($(date +%s) - began)) -le 20 ] || break
    done
    took=$(($(date +%s) - began))
    # The design takes 8.5 seconds; 12 runs that end at once on a busy machine take longer.
    [ "$took" -le 13 ] || echo "took $took seconds" >>"$folder.wrong"
}

count=0
for how in lua c pcall asleep; do
    for signal in INT:130 TERM:143 KILL:137; do
        one "$how" "${signal%:*}" "${signal#*:}" &
        count=$((count + 1))
    done
done
wait
bad=0
for wrong in "$top"/*.wrong; do
    [ -e "$wrong" ] || continue
    bad=$((bad + 1))
    echo "not ok $(basename "$wrong" .wrong): $(cat "$wrong")"
    sed 's/^/  /' "${wrong%.wrong}.err"
done
echo "$bad of $count runs with an endless step did not end in time"
[ "$bad" -eq 0 ]
