#!/bin/sh
# kill_resume.sh - kills a run again and again at random moments. It must end with the same metrics
# and parameters, bit for bit, as an undisturbed run, with one thread and with two. kill_resume.sh
# TOEPLAB SOURCE [KILLS [SEED]]
set -eu

toeplab=$1
source=$2
kills=${3:-5}
seed=${4:-$(date +%s)}
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
unset TOEPLAB_DIR TOEPLAB_TRACEBACK
export TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua" TOEPLAB_THREADS

echo "seed $seed"

run() { # DIR: runs in the folder DIR; the dropout would expose a lost random stream
    exec "$toeplab" run -C "$1" --checkpoint-steps 20 "$top/trial.lua"
}

cat >"$top/trial.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "kill" {
  fixed = { steps = 300 },
  trial = function(t, c)
    local text = "text:" .. ("how now brown cow, said he; "):rep(90)
    local data = tl.corpus(text, { batch = 4, length = 32 })
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 2, dim = 24, rpe_dim = 8,
      rpe_layers = 1, dropout = 0.1 }
    local opt = tl.optim.adam(model, { lr = 0.003, clip = 1.0, schedule = "cosine",
      steps = c.steps })
    tl.train.graph(model, opt)
    for step in t:steps(c.steps, model, opt, data) do
      local loss, info = tl.train.lm_step(model, opt, data:batch(step))
      t:log { loss = loss, grad_norm = info.grad_norm }
      if step % 15 == 0 then
        local bits = tl.eval.bits_per_token(model, data.valid, 32)
        t:log { val_bits = bits }
        t:best(bits, 8)
      end
      tl.sys.sleep(0.005)
    end
    local best_step = t:load_best()
    t:log { best_step = best_step, bits = tl.eval.bits_per_token(model, data.test, 32) }
  end,
}
END

# Prints the log, the final state and the best one in DIR, bit for bit.
print_result() {
    "$toeplab" export -C "$1" --metrics --csv
    "$toeplab" lua - "$1" "$source" <<'END'
package.path = arg[2] .. "/tests/lua/?.lua;" .. package.path
local checkpoint = require "toeplab.models.files.checkpoint"
local core = require "toeplab.core"
local store = core.store(arg[1], "r")
local rows = store:exec([[SELECT kind, max(step) AS step, path FROM v_artifacts
  WHERE kind IN ('best', 'checkpoint') GROUP BY kind ORDER BY kind]])
assert(#rows == 2, "no checkpoint of both kinds")
for _, row in ipairs(rows) do
  print(row.kind, row.step)
  print(require("harness").bits(checkpoint.read(arg[1] .. "/" .. row.path)))
end
END
}

# Kills the run that often, and counts how often it was resumed.
kill_often() {
    for kill in $(seq "$kills"); do
        # The delay is a share of the undisturbed run's time, so that a busy machine reaches a
        # checkpoint too.
        delay=$(awk -v seed=$((seed + kill)) -v whole="$start $end $part" 'BEGIN {
            srand(seed); split(whole, t, " ")
            printf "%.3f", t[3] * (t[2] - t[1]) * (0.15 + 0.5 * rand()) }')
        (run "$top/killed-$TOEPLAB_THREADS") >"$top/out" 2>&1 &
        pid=$!
        sleep "$delay"
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        if grep -q 'resumed after step' "$top/out"; then resumed=$((resumed + 1)); fi
        grep -h 'resumed after step' "$top/out" || true
    done
}

for TOEPLAB_THREADS in 1 2; do
    start=$(date +%s.%N)
    (run "$top/straight-$TOEPLAB_THREADS") >"$top/out" 2>&1 || {
        cat "$top/out"
        echo "not ok the undisturbed run"
        exit 1
    }
    end=$(date +%s.%N)
    print_result "$top/straight-$TOEPLAB_THREADS" >"$top/want"

    # If the machine was busier before, the run may end before the first kill.
    for part in 1 0.4 0.15; do
        resumed=0
        rm -rf "$top/killed-$TOEPLAB_THREADS"
        kill_often
        [ "$resumed" -eq 0 ] || break
    done
    (run "$top/killed-$TOEPLAB_THREADS") >"$top/out" 2>&1 || {
        cat "$top/out"
        echo "not ok the last run"
        exit 1
    }
    if grep -h 'resumed after step' "$top/out"; then resumed=$((resumed + 1)); fi
    print_result "$top/killed-$TOEPLAB_THREADS" >"$top/got"

    if [ "$resumed" -eq 0 ]; then
        echo "not ok no run was resumed: nothing was tested"
        exit 1
    fi
    if ! cmp "$top/want" "$top/got"; then
        diff "$top/want" "$top/got" | head -20
        echo "not ok $kills kills: the results differ"
        exit 1
    fi
    lines=$(wc -l <"$top/want")
    [ "$lines" -gt 600 ] || { echo "not ok only $lines lines were compared"; exit 1; }
    echo "ok threads $TOEPLAB_THREADS: $kills kills, $resumed runs resumed, $lines lines are equal"
done
