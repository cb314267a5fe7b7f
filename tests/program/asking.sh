#!/bin/sh
# asking.sh - tests the verbs that query and tidy the results folder: what they print and change,
# and their exit codes. asking.sh TOEPLAB SOURCE
set -eu

toeplab=$1
source=$2
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
passed=0
failed=0
unset LAB_NAME TOEPLAB_DATA TOEPLAB_BACKENDS TOEPLAB_TRACEBACK FORCE_COLOR
export TOEPLAB_DIR="$top/results" TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua" NO_COLOR=1

result() { # GOOD NAME: reports the test of that name; GOOD is 0 if it passed
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $2"
    else
        failed=$((failed + 1))
        echo "not ok $2 (exit code $got)"
        sed 's/^/  /' "$top/out" "$top/err"
    fi
}

# said NAME PATTERN: the last command must have printed PATTERN (a basic regular expression).
said() {
    good=0
    cat "$top/out" "$top/err" | grep -q -e "$2" || good=1
    result $good "$1"
}

# run COMMAND...: runs COMMAND with its output in $top/out and $top/err and its exit code in $got.
run() {
    got=0
    "$@" >"$top/out" 2>"$top/err" </dev/null || got=$?
}

# expect NAME CODE PATTERN COMMAND...: COMMAND must exit with CODE and print PATTERN.
expect() {
    name=$1 code=$2 pattern=$3
    shift 3
    run "$@"
    if [ "$got" -eq "$code" ]; then said "$name" "$pattern"; else result 1 "$name"; fi
}

# lines NAME COUNT COMMAND...: COMMAND must succeed and print COUNT lines.
lines() {
    name=$1 count=$2
    shift 2
    run "$@"
    good=0
    [ "$got" -eq 0 ] && [ "$(grep -c '' "$top/out")" -eq "$count" ] || good=1
    result $good "$name"
}

cat >"$top/sweep.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "sweep" {
  fixed = { steps = 4, broken = 0, flag = false },
  grid = { width = { 1, 2, 3 }, op = { "tno", "ski" } },
  checkpoint = { steps = 2 },
  trial = function(t, c)
    local model = tl.nn.Linear(1, 1)
    local opt = tl.optim.sgd(model, { lr = 0.1 })
    for step in t:steps(c.steps, model, opt) do
      t:log { loss = c.width / step }
      if c.width == 3 and step == 3 and c.broken == 0 then
        error(("loss is nan at step %d of /some/%s.txt"):format(step, c.op))
      end
    end
    t:log { acc = c.op == "ski" and c.width or 0 }
  end,
}
END

for verb in ls show mark rm merge export lua doctor fsck; do
    expect "$verb --help" 0 "^usage: toeplab $verb" "$toeplab" $verb --help
    said "... an example first" "^toeplab $verb"
done
for words in ls "mark @all --tag x" "rm @all" "rm --restore @all" "mark @all --note x" \
    "rm --purge" "ls --failures" "ls --schema" "fsck --repair"; do
    expect "$words without a store" 2 "holds no runs" "$toeplab" $words
done
expect "a sweep with failures" 1 "4 done, 2 failed" "$toeplab" run "$top/sweep.lua"

sed 's/op = {/unread = { 1, 2 }, op = {/; s/"sweep"/"axes"/' "$top/sweep.lua" >"$top/axes.lua"
expect "an axis that no trial reads" 2 "no trial read 'unread', so its values made no difference" \
    "$toeplab" run -q "$top/axes.lua" width=1 -C "$top/axes"
said "... is reported after the first trial" "^warning: .*first trial did not read 'unread'"
cp "$top/err" "$top/warned"
expect "... unless it has one value" 0 "" "$toeplab" run -q "$top/axes.lua" unread=1 width=2 \
    -C "$top/axes"
cp "$top/warned" "$top/err"
grep -q "did not read '[^u]" "$top/err" && result 1 "... and no other" || result 0 "... and no other"
sed 's/grid = {.*/grid = { width = { 1, 2 }, op = { "tno", "ski" } }, when = { { where = { width = 2 },\
  grid = { more = { 1, 2 } } } },/; s/steps = 4/more = 0, steps = 4/; s/, broken = 0, flag = false//; s/c.width == 3/c.width == 2 and c.more == 9/' \
    "$top/sweep.lua" >"$top/when.lua"
expect "plan of a rule" 0 "when width=2: more(2)  *+2" "$toeplab" plan "$top/when.lua"
expect "... that the command line overrides" 0 \
    "when width=2: nothing, since the command line sets its keys  *+0" \
    "$toeplab" plan "$top/when.lua" more=1
run "$toeplab" run -q "$top/when.lua" -C "$top/axes"
good=0
[ "$got" -eq 0 ] && [ ! -s "$top/err" ] || good=1
result $good "a key of some trials alone may be read late"

# ---- Looking -------------------------------------------------------------------------------------

lines "ls" 7 "$toeplab" ls
lines "ls with filters" 3 "$toeplab" ls status=done op=tno --csv
lines "ls by a metric" 2 "$toeplab" ls 'loss<0.3' op=ski
expect "ls --sort and --columns" 0 "^[0-9a-f]*,0.5,2,ski$" \
    "$toeplab" ls @done --sort -loss --columns loss,width,op --csv
expect "... in this order" 0 ",0.25,1,ski$" sh -c "'$toeplab' ls @done --sort loss \\
    --columns loss,width,op --csv | sed -n '2,3p'"
lines "ls of one of several values" 5 "$toeplab" ls width=1,3 status=done,failed --csv
first=$("$toeplab" ls --csv | sed -n '2s/,.*//p')
second=$("$toeplab" ls --csv | sed -n '3s/,.*//p')
lines "ls of one of two ids" 3 "$toeplab" ls "id=$first,$second" --csv
lines "ls of none of two ids" 5 "$toeplab" ls "id!=$first,$second" --csv
lines "ls of one id and of none" 2 "$toeplab" ls "id=$first," --csv
cat > "$top/named.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "named" {
  fixed = { tag = "mine", causal = true }, grid = { status = { 1 } },
  trial = function(t, c) t:log { started = 7, tags = c.status, time = c.tag and c.causal and 3 } end,
}
END
expect "keys and metrics with the names of columns" 0 "1 done" "$toeplab" run "$top/named.lua" \
    -C "$top/named"
expect "... leave --status as it is" 0 "  named  " "$toeplab" ls --status done -C "$top/named"
expect "... and --tag" 0 "^id  *experiment  *trial  *status  *step  *loss  *started  *time$" \
    "$toeplab" ls --tag mine -C "$top/named"
expect "... and are shown as they are" 0 '"causal":true,.*"started":7.0,"tag":"mine","time":3.0' \
    "$toeplab" ls --json --columns causal,started,tag,time -C "$top/named"
expect "ls of no id" 2 "'id=': the value is missing" "$toeplab" ls id=
lines "two tags" 1 "$toeplab" mark "$first" --tag old
lines "... on two trials" 1 "$toeplab" mark "$second" --tag paper
lines "ls of one of several tags" 3 "$toeplab" ls tag=old,paper --csv
lines "ls of tags with a blank between them" 3 "$toeplab" ls "tag=old, paper" --csv
lines "ls of none of several tags" 5 "$toeplab" ls 'tag!=old,paper' --csv
lines "no tags" 1 "$toeplab" mark "$first" --untag old
lines "... any more" 1 "$toeplab" mark "$second" --untag paper
lines "ls of none of several values" 3 "$toeplab" ls 'width!=1,3' --csv
expect "ls of a misspelt status among others" 2 "did you mean 'failed'" \
    "$toeplab" ls status=done,faled
expect "ls shows what is sorted by" 0 "^id  .*  loss  *acc  *started" "$toeplab" ls --sort -acc
lines "ls --limit" 1 "$toeplab" ls --limit 1 --json
expect "ls of a misspelt key" 2 "did you mean 'width'" "$toeplab" ls widht=1
expect "ls of a misspelt experiment" 2 "did you mean 'sweep'" "$toeplab" ls swep
expect "ls of two forms" 2 "choose one of" "$toeplab" ls --csv --json
expect "ls of no trial that fits" 0 "^id " "$toeplab" ls 'width>9'
expect "show of the best" 0 "width = 1" "$toeplab" show @best:loss
expect "show of provenance" 0 "^features    .*" "$toeplab" show @best:loss
said "... and the environment" "^  *TOEPLAB_DIR="
expect "show of the best by its name" 0 "width = 2" "$toeplab" show @best:acc
expect "show --json" 0 '"metrics":{"acc":{"step":4,' "$toeplab" show @best:loss --json
expect "show of none" 1 "show: no trial matches" "$toeplab" show 'width>9'
expect "show --diff" 0 "^  width  *1  *2" "$toeplab" show --diff @best:loss @best:max:loss
expect "show --diff --csv" 0 "^metric,loss,0.25,0.5,0.25" "$toeplab" show --diff @best:loss @best:max:loss --csv
expect "show --diff of one" 2 "takes two trials" "$toeplab" show --diff @last
expect "failures are grouped" 0 "^A  2x  sweep  failed: sweep.lua:N: loss is nan at step N of PATH" \
    "$toeplab" ls --failures
said "... with what they share" "width=3.*probably systematic"
said "... and the command" "again: toeplab run .*sweep.lua"
said "... and their checkpoint" "last checkpoint: step 2"
expect "failures --json" 0 '"shared":\["width=3"\]' "$toeplab" ls --failures --json
expect "no failures" 0 "^no trial has failed$" "$toeplab" ls --failures width=1
expect "a sweep with a flag" 1 "2 failed" \
    "$toeplab" run "$top/sweep.lua" flag=true width=3 -C "$top/truth"
expect "... and one without" 0 "2 done" "$toeplab" run "$top/sweep.lua" width=1 -C "$top/truth"
expect "failures share truth values" 0 "all have flag=true width=3" \
    "$toeplab" ls --failures -C "$top/truth"
expect "@best: without a metric" 2 "'@best:' selects no trials; known: .*best:METRIC" \
    "$toeplab" show @best:
expect "a full disk behind ls" 1 "standard output: No space left" sh -c "'$toeplab' ls >/dev/full"
expect "a full disk behind export" 1 "standard output: No space left" \
    sh -c "'$toeplab' export >/dev/full"

expect "a full disk behind a run whose trials fail" 1 "standard output: No space left" \
    sh -c "'$toeplab' run -q '$top/sweep.lua' -C '$top/lost' >/dev/full"
expect "export of what fits" 0 ",ski," "$toeplab" export op=ski
expect "export of none" 1 "no trial matches" "$toeplab" export op=none

expect "a verb of old" 2 "^toeplab: 'diff' is now: toeplab show --diff" "$toeplab" diff @last @all
expect "its help too" 2 "is now: toeplab rm --purge" "$toeplab" help gc
lines "the help leaves it out" 0 sh -c "'$toeplab' help | sed -n '/^  gc /p; /^  tag /p; /^  repl /p'"
expect "failures with what they do not take" 2 "ls: --failures cannot be combined with --sort" \
    "$toeplab" ls --failures --sort lr
expect "show of one form" 2 "choose one of --script and --diff" "$toeplab" show --script --diff @last
expect "a script is no JSON" 2 "json cannot be combined with --script" "$toeplab" show --script --json @last
expect "a day is no moment" 2 "compare started by <" "$toeplab" ls started=2026-11-21
expect "a day that there is not" 2 "a day like" "$toeplab" ls 'started>2026-02-31'
expect "nor is a time" 2 "compare age by <" "$toeplab" ls 'age!=2d'
expect "no folder" 2 "-C: the name of the folder is empty" "$toeplab" ls -C ""
deep=$top/$(printf '%0200d/%0200d' 0 0)
deep=$deep/$(printf "%0$((495 - ${#deep}))d" 0)
expect "a folder as deep as SQLite opens" 0 "2 done" "$toeplab" run "$top/sweep.lua" width=1 -C "$deep"
for words in "run $top/sweep.lua" "plan $top/sweep.lua" ls "table sweep"; do
    expect "$words in a deeper one" 2 "path has 497 bytes, and SQLite takes at most 496" \
        "$toeplab" $words -C "${deep}x"
done
expect "a page of one sweep" 0 "^$TOEPLAB_DIR/reports/sweep-1.html$" "$toeplab" report 1
long=$(printf '%0300d' 0)
expect "... of a long filter" 0 "^$TOEPLAB_DIR/reports/sweep-op-ski-000*-[0-9a-f]*.html$" \
    "$toeplab" report sweep "op=ski,$long"
expect "... of some of its trials" 0 "^$TOEPLAB_DIR/reports/sweep-op-ski-tno-[0-9a-f]*.html$" \
    "$toeplab" report sweep op=ski,tno
expect "report to standard output" 0 "^<!doctype html>" "$toeplab" report sweep -o -
: >"$top/target.html"
ln -s target.html "$top/link.html"
expect "report to the target of a link" 0 "link.html" "$toeplab" report sweep -o "$top/link.html"
expect "... which stays one" 0 "link" \
    sh -c "test -L '$top/link.html' && test -s '$top/target.html' && echo link"
expect "report to a full disk: exit code 6" 6 "No space left" "$toeplab" report sweep -o /dev/full

# ---- Asking in other languages -------------------------------------------------------------------

expect "sql" 0 "^done  *4" "$toeplab" ls --sql \
    "SELECT status, count(*) AS n FROM v_trials GROUP BY 1 ORDER BY n DESC"
expect "sql as CSV, columns in order" 0 "^b,a$" "$toeplab" ls --csv --sql "SELECT 1 AS b, 2 AS a;"
expect "sql as JSON" 0 '^{"n":6}$' "$toeplab" ls --json --sql "SELECT count(*) AS n FROM v_trials"
expect "sql of no rows keeps its header" 0 "^id$" "$toeplab" ls --sql "SELECT id FROM v_trials WHERE 0"
expect "sql of what is not there" 2 "^toeplab: ls --sql: no such column: x" "$toeplab" ls --sql "SELECT x"
expect "sql of a key" 2 "no such column: width: a key is json_extract(config, '$.width')" \
    "$toeplab" ls --sql "SELECT width FROM v_trials"
expect "sql of a metric" 2 "no such column: acc: a metric is a row of v_last, whose name is 'acc'" \
    "$toeplab" ls --sql "SELECT acc FROM v_trials"
expect "sql changes nothing" 2 "sql: near" "$toeplab" ls --sql "DELETE FROM trials"
expect "sql takes one statement" 2 "takes one SELECT" "$toeplab" ls --sql "SELECT 1; SELECT 2"
expect "sql from standard input" 0 "^7$" \
    sh -c "echo 'SELECT 3 + 4 AS x' | '$toeplab' ls --csv --sql -"
expect "sql --schema" 0 "^v_last  *trial, name, step, value" "$toeplab" ls --schema
expect "lua -i" 0 "^0.25	2$" sh -c "printf '%s\n' 'local x =' '1' 'nonsense(' ')' \
    'trial(\"@best:loss\").metrics.loss, 1 + 1' | '$toeplab' lua -i"
expect "lua -i without a store" 0 "^ *1 *2$" \
    sh -c "echo 'tl.tensor { 1, 2 }' | '$toeplab' lua -i -C '$top/none'"
expect "lua with an option there is none of" 2 "lua: unknown option" "$toeplab" lua --interactiv
expect "help in lua -i" 0 "series(TRIAL, METRIC)" sh -c "echo help | '$toeplab' lua -i"

# ---- Changing ------------------------------------------------------------------------------------

expect "tag" 0 "1 trial now 'good'" "$toeplab" mark @best:loss --tag good
lines "... finds it" 2 "$toeplab" ls tag=good
lines "... and the others" 6 "$toeplab" ls tag!=good
expect "tag again changes nothing" 0 "0 trials now" "$toeplab" mark @best:loss --tag good
expect "mark --untag" 0 "1 trial no longer" "$toeplab" mark --untag good @all
expect "no tag" 2 "a tag has 1 to 64 characters" "$toeplab" mark --tag "" @last
expect "status of what is not there" 2 "no sweep of 'none'" "$toeplab" status none
expect "status of a misspelt experiment" 2 "did you mean 'sweep'" "$toeplab" status swep
expect "mark of several things" 0 "^1 trial now 'b'$" "$toeplab" mark @last -t a -t b --note one \
    --note two
said "... tells of each" "^1 trial noted$"
expect "... and shows them" 0 "tags: a b$" "$toeplab" mark @last
said "... notes too" "  two$"
"$toeplab" mark @last --untag a -u b --clear >/dev/null
expect "mark of none" 2 "mark: which trials" "$toeplab" mark --tag x
expect "tag of two words" 2 "other characters" "$toeplab" mark @last --tag "a b"
expect "note" 0 "1 trial noted" "$toeplab" mark @last --note "needs a second look"
expect "no note" 2 "mark: a note is empty" "$toeplab" mark @last --note ""
expect "... is printed" 0 "needs a second look" "$toeplab" mark @last
lines "... and found" 2 "$toeplab" ls 'note~SECOND look'
expect "mark --clear" 0 "1 trial cleared" "$toeplab" mark @last --clear
lines "... leaves none" 0 "$toeplab" mark @last
expect "the same command tries again what failed" 1 "4 already done, 2 failed" \
    "$toeplab" run "$top/sweep.lua"

expect "rm --dry-run" 0 "4 trials of sweep, .* would be moved" "$toeplab" rm @done -n
expect "rm" 0 "2 trials of sweep, .* moved to the trash" "$toeplab" rm width=2
lines "... hides them" 5 "$toeplab" ls
lines "... but not in the trash" 3 "$toeplab" ls --trash
expect "rm in two forms" 2 "choose one of --restore and --purge" "$toeplab" rm --restore --purge
expect "rm --days of what is not freed" 2 "days requires --purge" "$toeplab" rm @done --days 3
expect "rm --purge of trials" 2 "takes no trials" "$toeplab" rm --purge @done
expect "rm --restore --dry-run" 0 "2 trials of sweep would be restored" "$toeplab" rm --restore -n @last
expect "rm of nothing" 2 "rm: which trials" "$toeplab" rm
expect "rm --purge leaves what is new" 0 "freed 0 trials" "$toeplab" rm --purge
expect "rm --restore" 0 "2 trials of sweep restored" "$toeplab" rm --restore @last
lines "... brings them back" 7 "$toeplab" ls
expect "rm --restore of what is not there" 2 "no trial's id begins with 'abc'" "$toeplab" rm --restore abc

cp -R "$top/results" "$top/copy"
one=$("$toeplab" ls width=1 op=tno --csv | sed -n '2s/,.*//p')
touch "$top/copy/runs/$one/step-00000001.h5"
expect "rm --purge --dry-run lists" 0 "step-00000001.h5 .*no row mentions it" "$toeplab" rm --purge -n -C "$top/copy"
"$toeplab" rm -C "$top/copy" width=2 >/dev/null
expect "rm --purge --days 0" 0 "freed 2 trials from the trash (.*), 1 file left behind" \
    "$toeplab" rm --purge -C "$top/copy" --days 0
expect "... files and all" 0 "^4$" sh -c "ls '$top/copy/runs' | wc -l | tr -d ' '"
expect "... and no problems" 0 "4 trials, .*: no problems" "$toeplab" fsck -C "$top/copy"

# ---- Merging -------------------------------------------------------------------------------------

expect "merge brings back what is missing" 0 "^2 added, 4 already here$" \
    "$toeplab" merge -C "$top/copy" "$top/results"
expect "merge again" 0 "^6 already here$" "$toeplab" merge -C "$top/copy" "$top/results/runs.db"
expect "... and the same command finds them done" 1 "4 already done, 2 failed" \
    "$toeplab" run -C "$top/copy" "$top/sweep.lua"
dump="SELECT trial, name, step, value FROM v_metrics UNION ALL SELECT id, status, seed, config
    FROM v_trials UNION ALL SELECT trial, path, bytes, sha256 FROM v_artifacts ORDER BY 1, 2, 3"
"$toeplab" ls --csv --sql "$dump" >"$top/dump"
met=0 # kills that found a merge at work
for delay in 0 0.002 0.004 0.007 0.01 0.015 0.02 0.03; do # after it has made the database
    rm -rf "$top/killed-merge"
    "$toeplab" merge -C "$top/killed-merge" "$top/results" >/dev/null 2>&1 &
    pid=$!
    while [ ! -e "$top/killed-merge/runs.db" ] && kill -0 "$pid" 2>/dev/null; do :; done
    sleep "$delay"
    kill -KILL "$pid" 2>/dev/null || :
    got=0
    wait "$pid" 2>/dev/null || got=$?
    if [ "$got" -eq 137 ]; then met=$((met + 1)); fi
    expect "merge after one that was killed $delay s on" 0 "6 already here\|added" \
        "$toeplab" merge -C "$top/killed-merge" "$top/results"
    expect "... is whole" 0 "^6 trials, .* files:" "$toeplab" fsck -C "$top/killed-merge"
    "$toeplab" ls --csv -C "$top/killed-merge" --sql "$dump" >"$top/dump2"
    lines "... and the same" 0 cmp "$top/dump" "$top/dump2"
done
lines "$met kills met a merge" 0 test "$met" -gt 0
expect "merge of itself" 2 "results folder itself" "$toeplab" merge "$top/results"
for itself in "$top/./results" "$top/results/../results/runs.db"; do
    expect "merge of itself by another name" 2 "results folder itself" "$toeplab" merge "$itself"
done
expect "merge of what is not there" 2 "holds no runs" "$toeplab" merge "$top/none"
for op in tno ski; do
    expect "one part of a sweep: $op" 0 "width=" "$toeplab" run -q -C "$top/part-$op" \
        "$top/sweep.lua" broken=1 op=$op
    expect "... comes to the others" 0 "3 added" "$toeplab" merge -C "$top/all" "$top/part-$op"
done
expect "... and nothing is left to do" 0 "6 already done" \
    "$toeplab" run -C "$top/all" "$top/sweep.lua" broken=1

# ---- Checking ------------------------------------------------------------------------------------

expect "doctor" 0 "^sqlite  *3" "$toeplab" doctor
said "... tells of the store" "^store  *6 trials"
expect "doctor --json" 0 '"name":"folder","state":' "$toeplab" doctor --json
expect "fsck" 0 "no problems" "$toeplab" fsck
hurt="$top/hurt"
cp -R "$top/results" "$hurt"
file=$(cd "$hurt" && ls runs/*/step-00000004.h5 | head -1)
printf x | dd of="$hurt/$file" bs=1 seek=200 conv=notrunc 2>/dev/null
expect "fsck finds a changed byte" 6 "^damage  $file .* sha256" "$toeplab" fsck -C "$hurt"
expect "... --quick does not look" 0 "no problems" "$toeplab" fsck -q -C "$hurt"
rm "$hurt/$(cd "$hurt" && ls runs/*/step-00000002.h5 | head -1)"
expect "... but misses a file" 6 "is missing" "$toeplab" fsck -q -C "$hurt"
expect "... as JSON too" 6 '^{"damage":[1-9][0-9]*,"files":[0-9]*,"trials":[0-9]*}$' \
    "$toeplab" fsck -q --json -C "$hurt"
said "... each finding" '^{"state":"damage","text":".* is missing"}$'
cat >"$top/hurt.lua" <<'END'
local store = require("toeplab.core").store(arg[1], "w")
store:exec "UPDATE last SET value = 7 WHERE name = 'loss'"
store:exec("UPDATE trials SET status = 'running', pid = 4194305, host = ? WHERE status = 'failed'",
  { require("toeplab.core").sys.hostname() })
END
"$toeplab" lua "$top/hurt.lua" "$hurt"
expect "... and rows that do not agree" 6 "6 last values of metrics" "$toeplab" fsck -C "$hurt"
said "... and processes that are gone" "but process 4194305 has died"
lines "... which ls knows too" 3 "$toeplab" ls -C "$hurt" @killed
expect "fsck --repair" 0 "database was copied to" "$toeplab" fsck --repair -C "$hurt"
lines "... keeps a damaged file" 0 test -s "$hurt/$file.damaged"
expect "... and then no problems" 0 "no problems" "$toeplab" fsck -C "$hurt"
expect "... and the values are the right ones" 0 "^0.25$" \
    "$toeplab" ls --csv -C "$hurt" --sql "SELECT min(value) AS x FROM v_last WHERE name = 'loss'"
expect "... and killed trials go on" 1 "2 failed" "$toeplab" run -C "$hurt" "$top/sweep.lua"
expect "fsck of no database" 6 "runs.db" sh -c "mkdir '$top/no' &&
    head -c 5000 /dev/zero | tr '\\0' x >'$top/no/runs.db' && '$toeplab' fsck -C '$top/no'"

# ---- A killed run --------------------------------------------------------------------------------

cat >"$top/killed.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "killed" { trial = function(t) t:log { x = 0 / 0 } tl.sys.sleep(60) end }
END
"$toeplab" run -C "$top/killed" "$top/killed.lua" >/dev/null 2>&1 &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    "$toeplab" ls -C "$top/killed" x=nan 2>/dev/null | grep -q killed && break
    sleep 0.25
done
expect "ls distinguishes nan from nothing" 0 ",nan$" "$toeplab" ls -C "$top/killed" --columns x --csv
kill -KILL $pid
wait $pid 2>/dev/null || :
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do # until its worker has ended
    "$toeplab" fsck -C "$top/killed" | grep -q "is not copied to the store" && break
    "$toeplab" ls -C "$top/killed" | grep -q interrupted && break
    sleep 0.25
done
journal=$(echo "$top"/killed/runs/*/events-1.jnl) # as if it could not write its end
sed '/^+end/,$d' "$journal" >"$top/torn" && cp "$top/torn" "$journal" && rm "$top/killed/runs.db"
expect "fsck reports the journal that a killed run left open" 0 \
    "events-1.jnl is not copied to the store" "$toeplab" fsck -C "$top/killed"
expect "rm --purge leaves it" 0 "^would free 0 trials" "$toeplab" rm --purge -n -C "$top/killed"
grep -q events "$top/out" && result 1 "... and does not list it" || result 0 "... and does not list it"
expect "merge leaves its trial out" 0 "^1 running, not copied" \
    "$toeplab" merge -C "$top/merged" "$top/killed"
expect "fsck --repair copies it" 0 "^mended .*: copied to the store" \
    "$toeplab" fsck --repair -C "$top/killed"
expect "... and there is no damage" 0 "^1 trial, 0 files:" \
    "$toeplab" fsck -C "$top/killed"
expect "... and the trial is interrupted" 0 "killed .*interrupted" "$toeplab" ls -C "$top/killed"

# ---- While a run is at work ----------------------------------------------------------------------

cat >"$top/slow.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "slow" { trial = function(t) t:log({ x = 1 }, 7) tl.sys.sleep(60) end }
END
"$toeplab" run "$top/slow.lua" >/dev/null 2>&1 &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    "$toeplab" ls @running 2>/dev/null | grep -q "slow .*running  *7 " && break
    sleep 0.25
done
expect "ls while a run is at work: what it logged last" 0 "slow .*running  *7 " "$toeplab" ls
expect "status --json while a run is at work" 0 '"at_work":\[{"alive":true,"host":"[^"]*","id":"[0-9a-f]*"' \
    "$toeplab" status --json slow
expect "rm of a running trial" 2 "is running .*stop it first" "$toeplab" rm slow
expect "mark while a run is at work" 0 "1 trial now 'late'" "$toeplab" mark slow --tag late
expect "rm --purge while a run is at work" 0 "^freed 0 trials" "$toeplab" rm --purge
kill -TERM $pid
wait $pid || :

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
