#!/bin/sh
# torture_workers.sh - makes workers die in every way, or never end. The other trials must go on,
# and in the end all trials must have the metrics of an undisturbed sweep. torture_workers.sh
# TOEPLAB SOURCE
set -eu

toeplab=$1
source=$2
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
unset TOEPLAB_DIR TOEPLAB_TRACEBACK
export TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua" TOEPLAB_THREADS=1 NO_COLOR=1

fail() {
    echo "not ok $1"
    sed 's/^/  /' "$top/err"
    exit 1
}

# Each trial dies once, at step 17; the file flags/END records it.
cat >"$top/ends.lua" <<END
local tl = require "toeplab"
local ends = {}
local function by(signal)
  return function()
    os.execute("kill -" .. signal .. " \$PPID")
    tl.sys.sleep(60)
  end
end
for _, signal in ipairs { "KILL", "SEGV", "FPE", "ABRT", "BUS", "ILL" } do
  ends[signal] = by(signal)
end
function ends.none() end
function ends.exit() os.exit(3) end
function ends.loop() while true do end end
function ends.hang() os.execute "sleep 1000.$$" end
function ends.memory()
  os.execute "prlimit --pid \$PPID --as=400000000"
  local all = {}
  for i = 1, 1000 do all[i] = tl.zeros(1000, 1000) end
end
function ends.lua_memory()
  os.execute "prlimit --pid \$PPID --as=400000000"
  local all = ("x"):rep(1000)
  while true do all = all .. all end
end
return tl.experiment "ends" {
  fixed = { steps = 30 },
  grid = { how = { "none", "KILL", "SEGV", "FPE", "ABRT", "BUS", "ILL", "exit", "loop", "hang",
    "memory", "lua_memory" } },
  checkpoint = { steps = 7 },
  trial = function(t, c)
    local x = tl.zeros(64)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * 0.7 + noise:normal(tl.zeros(64), 0, 1))
      t:log { loss = (x * x):mean():item() }
      local flag = "$top/flags/" .. c.how
      if step == 17 and not tl.sys.exists(flag) then
        assert(tl.sys.write_file(flag, ""))
        ends[c.how]()
      end
    end
    t:log { final = x:sum():item() }
  end,
  report = { rows = "how", columns = { "loss", "final" } },
}
END
ends="none KILL SEGV FPE ABRT BUS ILL exit loop hang memory lua_memory"

run() { # FOLDER OPTIONS...: runs the sweep in FOLDER
    folder=$1
    shift
    "$toeplab" run -C "$top/$folder" "$@" "$top/ends.lua" >"$top/$folder.table" 2>"$top/err"
}

count() { # STATUS: counts the trials of the disturbed sweep with that status
    "$toeplab" ls -C "$top/wild" --csv "status=$1" 2>/dev/null | sed 1d | grep -c . || true
}

expect() { # STATUS COUNT
    [ "$(count "$1")" -eq "$2" ] || fail "$(count "$1") trials are $1, not $2"
}

result() { # FOLDER: prints all metrics and the table
    "$toeplab" export -C "$top/$1" --metrics --csv | sort
    cat "$top/$1.table"
}

mkdir "$top/flags"
for end in $ends; do : >"$top/flags/$end"; done
run calm || fail "the undisturbed run"
result calm >"$top/want"

rm "$top/flags"/*
code=0
run wild -j 3 --timeout 8s || code=$?
[ "$code" -eq 1 ] || fail "exit code $code of the disturbed run, not 1"
cp "$top/err" "$top/all"
met=$(find "$top/flags" -type f | wc -l)
[ "$met" -eq 12 ] || fail "only $met of 12 trials met their end"
expect done 7
expect timeout 2
expect failed 3
for signal in 9 11 8 6 7 4; do
    grep -q "killed by signal $signal[ ;].*continues" "$top/err" || fail "no word of signal $signal"
done
grep -q "how=exit failed: .*os.exit would end the program" "$top/err" || fail "no word of os.exit"
grep -q "how=memory failed: .*out of memory" "$top/err" || fail "no word of the memory"
grep -q "how=lua_memory failed: .*not enough memory" "$top/err" || fail "no word of Lua's memory"
if pgrep -f "^sleep 1000[.]$$\$" >/dev/null; then
    fail "what a killed worker had started lives on"
fi

run wild -j 3 --timeout 8s || fail "the second run"
cat "$top/err" >>"$top/all"
expect done 12
resumed=$(grep -c "resumed after step 14 of 30" "$top/all" || true)
[ "$resumed" -eq 11 ] || fail "$resumed trials went on from step 14, not 11"
result wild >"$top/got"
cmp "$top/want" "$top/got" || fail "the metrics or the table differ"
echo "ok 11 ends of workers, $resumed trials resumed, $(wc -l <"$top/want") lines are equal"
