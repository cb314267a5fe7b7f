#!/bin/sh
# cli.sh - tests the messages and exit codes of the program: each wrong use must give one clear
# message and the right exit code, and leave nothing half-written. cli.sh TOEPLAB SOURCE
set -eu

toeplab=$1
source=$2
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
passed=0
failed=0
unset LAB_NAME TOEPLAB_DATA TOEPLAB_BACKENDS TOEPLAB_TRACEBACK FORCE_COLOR
export TOEPLAB_DIR="$top/results" TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua" NO_COLOR=1
quick="$source/experiments/quickstart.lua"

result() { # NAME: reports the test of that name, which passed if $? is 0
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $2"
    else
        failed=$((failed + 1))
        echo "not ok $2"
        sed 's/^/  /' "$top/out" "$top/err"
    fi
}

# expect NAME CODE PATTERN COMMAND...: COMMAND must exit with CODE and print PATTERN (a basic
# regular expression).
expect() {
    name=$1 code=$2 pattern=$3
    shift 3
    got=0
    "$@" >"$top/out" 2>"$top/err" || got=$?
    good=0
    [ "$got" -eq "$code" ] || { good=1; echo "exit code $got, not $code" >>"$top/err"; }
    cat "$top/out" "$top/err" | grep -q -e "$pattern" || good=1
    result "$good" "$name"
}

# refuse NAME CODE PATTERN COMMAND...: like expect, but COMMAND may print only one line, on standard
# error.
refuse() {
    expect "$@"
    good=0
    [ ! -s "$top/out" ] && [ "$(grep -c . "$top/err")" -eq 1 ] || good=1
    result "$good" "$1: one line"
}

# check NAME COMMAND...: COMMAND must succeed. It may read what the last one printed.
check() {
    name=$1
    shift
    good=0
    "$@" >"$top/checked" 2>&1 || { good=1; cat "$top/checked" >>"$top/err"; }
    result "$good" "$name"
}

absent() { [ ! -e "$1" ]; }

# ---- What the parent leaves ----------------------------------------------------------------------

echo 'print(os.execute "exit 3")' >"$top/exit.lua"
expect "a parent that ignores SIGCHLD" 0 "exit	3" \
    env --ignore-signal=CHLD "$toeplab" lua "$top/exit.lua"

# ---- Help ----------------------------------------------------------------------------------------

expect "help lists the verbs" 0 "^  verify " "$toeplab" --help
expect "no verb: the same" 0 "^  verify " "$toeplab"
for verb in run ls show export generate bench verify model doctor data; do
    expect "$verb --help begins with an example" 0 "^usage: toeplab $verb" "$toeplab" "$verb" --help
    check "$verb: an example first" \
        sh -c "'$toeplab' help $verb | head -1 | grep -q '^toeplab $verb'"
done
# named NAME HINT COMMAND...: the program called NAME must print HINT, and no other command to type.
named() {
    name=$1 hint=$2
    shift 2
    "$@" >"$top/said" 2>&1 || true
    expect "$name: $hint" 0 "$hint" cat "$top/said"
    check "... and no other" sh -c "! grep -v '^toeplab: ' '$top/out' | grep 'toeplab [a-z[]'"
}
export LAB_NAME=./lab
for verb in $("$toeplab" help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    named "help $verb" "[.]/lab $verb" "$toeplab" help "$verb"
done
named "--help" "^usage: [.]/lab .* [.]/lab VERB --help" "$toeplab" --help
named "a message" "holds no runs; \`[.]/lab run\`" "$toeplab" ls
named "a renamed verb" "is now: [.]/lab rm --purge" "$toeplab" gc
named "a hint that is printed" "[.]/lab data NAME shows" "$toeplab" data
named "published tables" "[.]/lab run experiments/lra.lua" "$toeplab" table
LAB_NAME="/a b/lab" named "a path with a space" "'/a b/lab' rm --purge" "$toeplab" gc
unset LAB_NAME
expect "exit codes" 0 "storage is damaged or full" "$toeplab" help exit-codes
for name in DIR DATA BACKENDS CACHE THREADS LUA TRACEBACK; do
    expect "environment: TOEPLAB_$name" 0 "TOEPLAB_$name " "$toeplab" help environment
done
expect "lua -e, with arguments" 0 "^b.*2.*x$" "$toeplab" lua -e 'print(arg[2], #arg, (...))' x b
refuse "lua -e without code" 2 "-e needs CODE" "$toeplab" lua -e
refuse "lua -e with a slip" 2 "toeplab: -e:1: " "$toeplab" lua -e 'x('
expect "print shows the numbers of a tensor" 0 "^ *1 *2.5$" \
    "$toeplab" lua -e 'print(require("toeplab").tensor { 1, 2.5 })'
expect "version" 0 "^toeplab [0-9]" "$toeplab" --version
refuse "a topic of help that is nearly one" 2 "; did you mean 'exit-codes'?" \
    "$toeplab" help exit-code
refuse "an option's value that reads --help" 2 "results holds no runs" \
    "$toeplab" mark @last --note --help
refuse "help on words that no section has" 2 "no section of the manual has any of these words: xyz" \
    "$toeplab" help xyzzy plugh
expect "help on words of which sections lack one" 0 "^[a-z/-]*[.]md: .* (without: xyzzy)$" \
    "$toeplab" help ls xyzzy
expect "help on fillers alone" 0 "^questions[.]md: 1[.] How did" "$toeplab" help how do I
expect "help on another ending" 0 "^guide[.]md: .*Tune a rate$" "$toeplab" help learning rates?
for slip in rn runn; do
    expect "help $slip suggests the verb beside sections" 0 "^Did you mean 'run'?" "$toeplab" help $slip
    check "... and has sections" grep -q "^[a-z/-]*[.]md: " "$top/out"
done
# The library's names, of which the manual has the declaration, options and example.
while IFS='|' read -r name line; do
    expect "help $name" 0 "$line" "$toeplab" help "$name"
done <<'END'
tl.einsum|^    tl[.]einsum(equation: string, a \[, b\]): Tensor$
tl.einsum|^        sums of products by letters: .*(torch[.]einsum)$
tl.einsum|^    print(tl.einsum("ij,ij->i", a, b):show())$
tl.einsum|^    -->           2          3$
einsum|^from-pytorch[.]md: Names$
x:argsort|^        x \[[.][.],n\] -> int32 .* the order of each row,
torch.cat|^    tl[.]concat(tensors: Tensor\[\], axis): Tensor
tl.optim.adam|^        betas: Decay rates of the two moments[.] (default {0.9, 0.98}; table)$
tl.nn.GTU|^        x \[b,n,dim\] -> \[b,n,dim\]: the gated Toeplitz unit
GTU|^        causal: Position i sees only j <= i[.] (default true; boolean)$
END
refuse "help on a function that is not there" 2 "the library has no 'tl.nosuch'$" "$toeplab" help tl.nosuch
refuse "help on a misspelt function" 2 "no 'tl.einsm'; did you mean 'tl.einsum'" "$toeplab" help tl.einsm
expect "help on a word of the manual" 0 "^guide[.]md: " "$toeplab" help rate
check "... suggests no verb" sh -c "! grep -q 'Did you mean' '$top/out'"
refuse "help on an unknown word" 2 "unknown verb or topic 'xyzzy'" "$toeplab" help xyzzy
refuse "help on a verb that is nearly one" 2 "did you mean 'table'" "$toeplab" help tabel
# The questions of newcomers: the section that must be among the first N, and the words.
while read -r most section words; do
    "$toeplab" help $words >"$top/out" 2>"$top/err" || :
    check "help answers: $words" \
        sh -c "grep '^[a-z/-]*[.]md: ' '$top/out' | head -n $most | grep -q '^$section'"
done <<'END'
1 guide.md:.3 sweep two keys together
1 guide.md:.5 continue on another machine
1 own-data.md: use my own text
1 extend.md: add a mixer
1 guide.md:.7 read a kernel
1 guide.md:.8 pick the learning rate fairly
2 papers.md: LaTeX table
1 eight-gpus.md: run on 8 GPUs
1 guide.md:.9 longer than it was trained
1 files.md:.What.an.edit what does an edit of my experiment invalidate?
1 guide.md:.5 resume after kill
2 trouble.md: out of memory
1 python.md: import pretrained weights
1 questions.md:.7 how many seeds do I need?
1 reference/command.md:.rm delete old trials
1 reference/experiments.md:.The.trial early stopping
1 reference/experiments.md:.The.trial validation loss early stopping
1 reference/command.md:.model number of parameters
1 files.md: where are results stored
1 reference/tensors.md:.Products mixed precision
1 python.md: jupyter
1 from-pytorch.md: freeze layers
END
for verb in version --version; do
    refuse "$verb of a word" 2 "version: takes no words, got 'x'" "$toeplab" $verb x
done
expect "backends" 0 "^naive" "$toeplab" doctor --backends
expect "backends as JSON" 0 '^{.*"devices":\["cpu".*"name":"ski","options":{.*"taps":{"default":"32"' \
    "$toeplab" doctor --backends --json
check "... and nothing else" sh -c "! grep -v '^{' '$top/out'"
expect "data" 0 "^wikitext-2  *13175278" "$toeplab" data
expect "data of one set" 0 "728c77e87e176af4730f9a80fc6008bc" "$toeplab" data wikitext-2
expect "model" 0 "48,677,376" "$toeplab" model tnn_lm
expect "model with 3 layers of the encoder" 0 "48,590,016" "$toeplab" model tnn_lm rpe_layers=3
expect "model: the published ones" 0 "^without-rpe-5  *49,354,752  *as published" \
    "$toeplab" model tnn_lm --presets
expect "model preset" 0 "48,140,288" "$toeplab" model tnn_lm preset=gtu-only-9
expect "model by the name of a preset" 0 "124,701,273" "$toeplab" model blm-fnet
expect "model preset with a key changed" 0 "parameters 27,949,056" \
    "$toeplab" model tnn_lm preset=gtu-only-9 layers=3 vocab=40000
expect "data path of what is not here" 1 "wikitext-2 is not here. Either fetch it" \
    "$toeplab" data path wikitext-2

# ---- Wrong words ---------------------------------------------------------------------------------

refuse "unknown verb" 2 "unknown verb 'rnu'; did you mean 'run'" "$toeplab" rnu
refuse "unknown option" 2 "unknown option '--quite'; did you mean '--quiet'" \
    "$toeplab" run --quite x
refuse "-C before the verb" 2 "^toeplab: -C, the results folder, follows the verb: toeplab ls -C " \
    "$toeplab" -C results ls
refuse "--dir=results before the verb" 2 "--dir=results, the results folder, follows the verb" \
    "$toeplab" --dir=results ls
refuse "another option before the verb" 2 "unknown option '--directory' (see" "$toeplab" --directory ls
refuse "no file" 2 "which experiment" "$toeplab" run
refuse "a file that is not there" 2 "none.lua: No such file" "$toeplab" run none.lua
refuse "unknown model" 2 "no model 'tnn_ml'; did you mean 'tnn_lm'" "$toeplab" model tnn_ml
refuse "model with an unknown key" 2 "layrs.*did you mean 'layers'" "$toeplab" model tnn_lm layrs=3
refuse "model with a wrong type" 2 "layers.*must be an integer" "$toeplab" model tnn_lm layers=x
refuse "model of length 0" 2 "length takes an integer of at least 1" \
    "$toeplab" model tnn_lm length=0
refuse "unknown preset" 2 "no preset 'tnn-7/9'; did you mean" \
    "$toeplab" model tnn_lm preset=tnn-7/9
refuse "model with an absurd number of layers" 2 "'layers' = 100000000 must be between" \
    "$toeplab" model tnn_lm layers=100000000
refuse "model of a length beyond integers" 2 "length takes .* at most 2147483648" \
    "$toeplab" model tnn_lm length=1000000000000000000
refuse "model with a key twice" 2 "dim is given twice" "$toeplab" model tnn_lm dim=3 dim=4
refuse "model with a length twice" 2 "length is given twice" \
    "$toeplab" model tnn_lm length=3 length=4
refuse "a preset of a preset" 2 "gtu-only-9 is already a preset: remove preset=tnn-7/6" \
    "$toeplab" model gtu-only-9 preset=tnn-7/6
refuse "model --keys with --presets" 2 "choose one of" "$toeplab" model tnn_lm --keys --presets
refuse "model --keys with a key" 2 "takes only the name of a model, got 'dim=3' too" \
    "$toeplab" model tnn_lm --keys dim=3
refuse "model with a misspelt length" 2 "'lenght'; did you mean 'length'" \
    "$toeplab" model tnn_lm lenght=3
expect "model with an integer written 1e2" 0 "Embedding" "$toeplab" model tnn_lm dim=1e2
refuse "model that no memory holds" 2 "e+1[0-9] parameters take [0-9.]* GiB.*GiB of memory are available" \
    "$toeplab" model tnn_lm dim=1000000 vocab=2000000
refuse "unknown data set" 2 "did you mean 'wikitext-2'" "$toeplab" data wikitext2
refuse "data list of a set" 2 "takes no name" "$toeplab" data list wikitext-2
refuse "data show of nothing" 2 "which set?" "$toeplab" data show
refuse "unknown data set to fetch" 2 "did you mean 'wikitext-2'" "$toeplab" data fetch wikitext2
refuse "no folder to generate in" 2 "takes a name, a folder" "$toeplab" data generate listops ""
refuse "lists that are longer than the longest" 2 "min_length = 9 is more than max_length = 5" \
    "$toeplab" data generate listops "$top/lists" min_length=9 max_length=5
refuse "a set without an address" 2 "imdb: its address is not known. Put the files" \
    "$toeplab" data fetch imdb
refuse "a mirror that is not there" 2 "none: is neither a folder nor an address" \
    "$toeplab" data fetch -q --from "$top/none" imdb
refuse "a set that only hands bring" 2 "aan: its address is not known. Put the files" \
    "$toeplab" data fetch aan
refuse "a mirror that does not hold it" 1 "/imdb-labelled.tar.xz: .*the same command continues" \
    "$toeplab" data fetch -q --from "$top" imdb
refuse "an endless file of prompts" 2 "prompts: /dev/zero has more than 256 MiB" \
    "$toeplab" generate x --prompts /dev/zero
refuse "generate without a trial" 2 "which trial" "$toeplab" generate --prompt x
refuse "nothing stored yet" 2 "holds no runs" "$toeplab" ls
refuse "verify without a file" 2 "give reference files" "$toeplab" verify
refuse "verify with a file that is not there" 2 "no such file" "$toeplab" verify none.h5
expect "verify of the reference cases, all backends" 0 "29 passed, 0 failed, 0 skipped" \
    "$toeplab" verify "$source/tests/reference.h5"
expect "verify of products in bf16" 0 "29 passed, 0 failed, 0 skipped, worst [0-9.]*e-0[23]" \
    "$toeplab" verify --precision bf16 "$source/tests/reference.h5"
refuse "verify of images where there are none" 2 "images requires the statistics of Pathfinder" \
    "$toeplab" verify naive --images 200
refuse "verify of two backends" 2 "give fft as a name or by --backend" \
    "$toeplab" verify naive --backend fft
refuse "verify of a backend in all detail" 2 "all requires a reference file" "$toeplab" verify naive --all
refuse "verify of a backend in a precision" 2 "precision requires a reference file" \
    "$toeplab" verify --precision bf16 rac
refuse "verify in a precision of GPUs" 2 "tf32 needs an NVIDIA GPU (device cuda)" \
    "$toeplab" verify -p tf32 "$source/tests/reference.h5"
refuse "verify in no precision" 2 "no precision 'half'" "$toeplab" verify -p half none.h5
expect "the reference cases are what the script computes" 0 "29 passed, 0 failed, 0 skipped" \
    sh -c "'$toeplab' lua '$source/tests/lua/make_reference.lua' '$top/made.h5' &&
        '$toeplab' verify -q '$top/made.h5'"
cat >"$top/plant.lua" <<'END'
local core = require "toeplab.core"
local file, entries = core.h5_open(arg[1]), {}
local function walk(group)
  for _, child in ipairs(file:children(group)) do
    local path = (group == "/" and "" or group) .. "/" .. child.name
    if child.kind == "group" then walk(path) end
    if child.kind == "dataset" then entries[#entries + 1] = { path:sub(2), file:read(path) } end
  end
end
walk("/")
for _, entry in ipairs(entries) do
  if entry[1] == "layer/y" then
    local one = entry[2]:view(2, { 1 })
    one:fill(one:item() + 1e-3)
  end
end
core.h5_write(arg[2], entries, file:attrs("/"))
END
"$toeplab" lua "$top/plant.lua" "$source/tests/reference.h5" "$top/planted.h5"
expect "verify with one planted wrong value: exit code 4" 4 "25 passed, 4 failed" \
    "$toeplab" verify "$top/planted.h5"
expect "... and it says where" 4 "^FAILED layer  *fft .* y [0-9.e-]*!" \
    "$toeplab" verify -b fft "$top/planted.h5"
expect "verify of a backend without a file" 0 "fft: 30 passed, 0 failed" "$toeplab" verify fft
expect "... in vector lanes" 0 "rac: 30 passed, 0 failed, 0 skipped" "$toeplab" verify rac
expect "... by frequency" 0 "fd: 84 passed, 0 failed, 6 skipped" "$toeplab" verify -qb fd
expect "... by warped lag" 0 "ski: 156 passed, 0 failed" "$toeplab" verify ski
expect "... with one option of several" 0 "ski: 24 passed, 0 failed, 6 skipped" \
    "$toeplab" verify -q ski inducing=5
expect "verify says what concerns no chosen backend" 0 "not run: 6 cases by lag" \
    "$toeplab" verify -b fd "$source/tests/reference.h5"
refuse "verify with an unknown backend" 2 "no backend 'ftf'; did you mean 'fft'" \
    "$toeplab" verify -b ftf none.h5

# ---- Wrong configurations: nothing is started ----------------------------------------------------

smoke="scale=smoke"
refuse "misspelt key" 2 "quickstart.lua:[0-9]*: unknown key 'layrs'.*did you mean 'layers'" \
    "$toeplab" run "$quick" $smoke layrs=3
refuse "wrong type" 2 "quickstart.lua:[0-9]*: layers takes an integer, got 'two'" \
    "$toeplab" run "$quick" $smoke layers=two
refuse "a number beyond all" 2 "lr takes a number, got '1e999'" \
    "$toeplab" run "$quick" $smoke lr=1e999
refuse "quickstart: a length of 0 to evaluate at" 2 "lengths must be at least 1, not 0" \
    "$toeplab" run "$quick" $smoke lengths=32,0
refuse "quickstart: a prompt that the text has no characters for" 2 "character 'Z' " \
    "$toeplab" run "$quick" $smoke prompt=Zeus
refuse "quickstart: a negative temperature" 2 "temperature must be at least 0, not -1" \
    "$toeplab" run "$quick" $smoke temperature=-1
for words in "ngram_first=-3 ngram_first must be at least 1, not -3" \
    "ngram_last=33 ngram_last must be at most 32, not 33" \
    "temperature=1e7 temperature must be at most 1000000, not 10000000.0" \
    "expand=0 expand must be at least 1, not 0" "rpe_dim=0 'rpe_dim' = 0 must be between 1" \
    "mixer_norm=x .x. is not one of" "lengths=99999999 lengths must be at most 171, not 99999999" \
    "ranks=0 ranks must be an integer of at least 1, not 0" "ranks=-1 ranks must be" \
    "sequence_ranks=0 sequence_ranks must be" "micro_batches=0 micro_batches must be an integer" \
    "micro_batches=-1 micro_batches must be an integer of at least 1, not -1"; do
    refuse "quickstart: ${words%% *}" 2 "${words#* }" "$toeplab" run "$quick" $smoke ${words%% *}
done
for seconds in 0 -1; do
    refuse "ski-speed: no time to measure" 2 "seconds must be above 0" \
        "$toeplab" run "$source/experiments/ski-speed.lua" $smoke seconds=$seconds
done
refuse "run again and take over" 2 "choose one of --redo and --adopt" \
    "$toeplab" run "$quick" $smoke --redo --adopt
refuse "quickstart: a length to evaluate at beyond the text" 2 "lengths must be at most 171" \
    "$toeplab" run "$quick" $smoke lengths=999
refuse "a length whose successor is no integer" 2 "'length' = 9223372036854775807 must be between" \
    "$toeplab" run "$quick" $smoke length=9223372036854775807
refuse "a text of three letters" 2 "3 tokens are too few to hold out" \
    "$toeplab" run "$quick" $smoke corpus=text:äöü
for word in lr=0 clip=-1 decay_low=1 decay_high=1.5 glu_dim=0; do
    refuse "quickstart: $word" 2 "${word%=*} must be at" "$toeplab" run "$quick" $smoke $word
done
refuse "a key given twice" 2 "steps is given twice" "$toeplab" run "$quick" $smoke steps=2 steps=3
refuse "seeds given twice" 2 "seed is given twice" "$toeplab" run "$quick" $smoke seeds=2 seed=3
refuse "seeds without end" 2 "a count up to 1000000" "$toeplab" run "$quick" $smoke seeds=1000001
refuse "a device as corpus" 2 "/dev/zero: is not a file" \
    "$toeplab" run "$quick" $smoke corpus=/dev/zero
refuse "unknown scale" 2 "no scale 'smok'; did you mean 'smoke'" "$toeplab" run "$quick" scale=smok
refuse "n = 0" 2 "length must be at least 1" "$toeplab" run "$quick" $smoke length=0
refuse "unknown backend" 2 "no backend 'ftf'; did you mean 'fft'.*present: .*naive" \
    "$toeplab" run "$quick" $smoke backend=ftf
refuse "missing file of a corpus" 2 "none.txt: No such file" \
    "$toeplab" run "$quick" $smoke corpus=none.txt
refuse "misspelt corpus" 2 "unknown corpus 'bible-kvj'; did you mean 'bible-kjv'" \
    "$toeplab" run "$quick" $smoke corpus=bible-kvj
refuse "misspelt corpus in a plain script" 2 "unknown corpus 'bible-kvj'; did you mean" \
    "$toeplab" lua "$source/docs/mixer.lua" bible-kvj
mkdir "$top/empty" "$top/debian"
printf '#!/bin/sh\n' >"$top/debian/apt-get"
chmod +x "$top/debian/apt-get"
expect "missing program of a corpus" 2 "apt install bible-kjv" \
    env PATH="$top/debian" "$toeplab" run "$quick" $smoke corpus=bible-kjv
expect "... and the other way to get it" 2 "TOEPLAB_DATA" \
    env PATH="$top/empty" "$toeplab" run "$quick" $smoke corpus=bible-kjv
check "nothing was started" absent "$top/results"

echo 'return require("toeplab").experiment "x" { trail = print }' >"$top/typo.lua"
refuse "misspelt field" 2 "typo.lua:1: .*no field 'trail'; did you mean 'trial'" \
    "$toeplab" run "$top/typo.lua"
echo 'retrun 1' >"$top/syntax.lua"
refuse "syntax error" 2 "syntax.lua:1: " "$toeplab" run "$top/syntax.lua"
for path in /dev/stdin /dev/fd/0 "$top"; do
    refuse "a script from $path" 2 "must be a regular file, because every worker reads it again" \
        "$toeplab" run "$path" <"$top/syntax.lua"
done
cat >"$top/-x=1.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "odd" { fixed = { code = 0 }, trial = function(t, c)
  if c.code > 0 then os.exit(c.code) end
  t:log { value = 7 }
end }
END
cd "$top"
expect "a script with a name like an option, and with =" 0 "seed=1  *7$" \
    "$toeplab" run -q -C "$top/odd" -- "-x=1.lua"
expect "a script that exits with any code fails like any other" 1 "1 failed" \
    "$toeplab" run -C "$top/odd" -- "-x=1.lua" code=86
cd "$OLDPWD"

# ---- Runs ----------------------------------------------------------------------------------------

expect "a dry run lists the trials" 0 "new .*mixer=gtu" \
    "$toeplab" run -n "$source/experiments/custom-mixer.lua" $smoke
check "a dry run stores nothing" absent "$top/results"
expect "quickstart, smoke" 0 "n-gram of order 4" "$toeplab" run "$quick" $smoke
cp "$top/out" "$top/first"
expect "again: nothing to do" 0 "1 already done" "$toeplab" run "$quick" $smoke
cp "$top/out" "$top/second"
check "again: the same table" cmp "$top/second" "$top/first"
for method in window ring fft etsc; do # README.md, docs/gpu.md: right after the quickstart
    expect "generate without a prompt, by $method" 0 . "$toeplab" generate @last --method $method -n 9
done
ln -s "$top/results/runs.db" "$top/link.csv"
for own in results/runs.db results/runs.db-wal results/lock results/sweeps/1.json \
    results/alert.log results/worker-vm.7-1.log results/runs/new/deep.csv link.csv; do
    refuse "export to $own" 2 "results uses this file itself" \
        "$toeplab" export --metrics -o "$top/$own"
done
mkdir -p "$top/mine/sweeps" "$top/mine/runs"
check "export to folders of the user's own, called as those of results" \
    "$toeplab" export --metrics -o "$top/mine/runs/x.csv"
refuse "a page to a trial's folder" 2 "results uses this file itself" \
    "$toeplab" report quickstart -o "$(ls -d "$top"/results/runs/*)/step-00000020.h5"
refuse "event files to the trials" 2 "results uses this file itself" \
    "$toeplab" export --tensorboard "$top/results/runs"
rm -r "$top/results/runs.db"* # the next command makes the index again
refuse "a figure to the trials, without an index" 2 "results uses this file itself" \
    "$toeplab" plot -o "$top/results/runs/x.svg"
expect "custom mixer, smoke" 0 "^conv " "$toeplab" run "$source/experiments/custom-mixer.lua" $smoke
for experiment in wikitext2-bpe tnn-lm wikitext2; do
    expect "$experiment, a length beyond the test part" 1 "lua:[0-9]*: length 9999 is not from 1 to" \
        "$toeplab" run -C "$top/lengths" "$source/experiments/$experiment.lua" \
        $smoke lengths=9999
    expect "$experiment, a valid part of less than one block" 1 "the valid part" \
        "$toeplab" run -C "$top/lengths" "$source/experiments/$experiment.lua" \
        $smoke length=1000 lengths=16
done
refuse "no patience" 2 "patience must be at least 1, not 0" \
    "$toeplab" run "$source/experiments/wikitext2.lua" $smoke patience=0
for experiment in wikitext2-bpe tnn-lm wikitext2; do
    expect "$experiment, smoke" 0 " done  (" "$toeplab" run "$source/experiments/$experiment.lua" $smoke
done
cp "$top/out" "$top/report"
check "wikitext2 reports perplexities" grep -q "^none  *[0-9.]* *[0-9.]* *[0-9.]*$" "$top/report"
check "... and what a long text costs" \
    grep -q "^decay 0.99: perplexity at 128 tokens is [-+][0-9.]* % of that at 16" "$top/report"
expect "generate" 0 "^the old man " "$toeplab" generate @last --prompt "the old man" --tokens 5
expect "generate by modes" 0 "^the old man " "$toeplab" generate @last -p "the old man" -n 5 -m etsc
expect "convert" 0 "^$top/model.h5: trial .* exact form, 40 lags" \
    "$toeplab" generate @last --convert "$top/model.h5" --lags 40
expect "generate from what was converted" 0 "^the old man " \
    "$toeplab" generate "$top/model.h5" --prompt "the old man" --tokens 5
refuse "convert of what is not there" 2 "neither the id of a trial" "$toeplab" generate xyz -o x.h5
refuse "convert with a prompt" 2 "prompt is for text" "$toeplab" generate @last -o x.h5 -p x
refuse "convert to a form that there is none of" 2 "did you mean 'exact'" \
    "$toeplab" generate @last -o x.h5 --form exakt
refuse "generate from no such file" 2 "there is no such file" "$toeplab" generate none.h5
expect "bench lists" 0 "^generate " "$toeplab" bench
refuse "a bench of nothing" 2 "which one" "$toeplab" bench --quick
TOEPLAB_PYTHON='' expect "bench generate" 0 "^ring, causal, .* from 16 to 32" \
    "$toeplab" bench generate --quick --repeats 1 --lengths 32,16,32 -C "$top/benches"
expect "a bench is kept" 0 "bench-generate  *etsc exact, n 32 b 1, token.*done" \
    "$toeplab" ls bench-generate -C "$top/benches"
refuse "no such bench" 2 "did you mean 'generate'" "$toeplab" bench generat
expect "ls" 0 "quickstart  *seed=1  *done" "$toeplab" ls
refuse "ls of a status that there is none of" 2 "no status 'don'; did you mean\|'don' (present:" \
    "$toeplab" ls --status don
refuse "ls of what is no experiment" 2 "'nosuch' is neither the id .* experiment" "$toeplab" ls nosuch
refuse "ls in two forms" 2 "choose one of --csv and --json" "$toeplab" ls --csv --json
expect "short options together" 0 "done .*seed=1" "$toeplab" run -nq "$quick" $smoke
expect "ls --json" 0 '"experiment":"quickstart"' "$toeplab" ls --json
expect "show" 0 "layers = 1" "$toeplab" show @last
refuse "show of what is not there" 2 "neither the id of a trial" "$toeplab" show xyz
expect "export" 0 "^id,experiment,.*,metric.loss" "$toeplab" export
expect "export of metrics" 0 ',quickstart,1,loss,20,' "$toeplab" export quickstart --metrics
check "export -o" "$toeplab" export -o "$top/all.csv"
check "export -o wrote it" grep -q custom-mixer "$top/all.csv"
expect "export -o -" 0 "^id,experiment" "$toeplab" export -o -
mkfifo "$top/pipe"
cat "$top/pipe" >"$top/piped" &
check "export into a pipe" "$toeplab" export -o "$top/pipe"
wait
check "... wrote through it" cmp "$top/piped" "$top/all.csv"
check "... and left it" test -p "$top/pipe"
"$toeplab" export --metrics 2>"$top/err2" | head -1 >"$top/out2"
check "a closed pipe is silent" sh -c "[ -s '$top/out2' ] && [ ! -s '$top/err2' ]"
expect "a folder named as an option" 0 "n-gram" "$toeplab" run -C "$top/other" "$quick" $smoke
check "... is used" test -s "$top/other/runs.db"

cat >"$top/fails.lua" <<'END'
return require("toeplab").experiment "fails" {
  grid = { width = { 1, 2 } },
  trial = function(t, c)
    if c.width == 1 then error("too narrow") end
    t:log { loss = 1 }
  end,
}
END
expect "a failed trial: exit code 1, the others go on" 1 "2 trials: 1 done, 1 failed" \
    "$toeplab" run "$top/fails.lua"
expect "... and its message is stored" 0 "failed: .*fails.lua:4: too narrow" \
    sh -c "'$toeplab' show \$('$toeplab' ls --status failed --csv | tail -1 | cut -d, -f1)"
expect "... and it is tried again" 1 "1 already done, 1 failed" "$toeplab" run "$top/fails.lua"
for outputs in "2>&1 |" "|" ">&- 2>&- |"; do
    rm -rf "$top/outlived"
    expect "a run outlives its output: $outputs" 0 "^code 1$" bash -c "
        '$toeplab' run '$top/fails.lua' -C '$top/outlived' $outputs : ; echo code \${PIPESTATUS[0]}"
    cp "$top/err" "$top/err2"
    check "... silently" sh -c "! grep 'standard output' '$top/err2'"
    lines_of=$("$toeplab" ls -C "$top/outlived" --csv | grep -c -e ',done,' -e ',failed,') || :
    check "... to its end" test "$lines_of" = 2
done

expect "a plan counts what is done, and estimates the rest" 0 "already done  *-1" \
    "$toeplab" plan "$top/fails.lua"
expect "... from what is of the same size" 0 "time  *unknown: the finished trials are of another size" \
    "$toeplab" plan -j 3 "$top/fails.lua"
expect "... as JSON" 0 '"done":1,.*"to_run":1' "$toeplab" plan --json "$top/fails.lua"
expect "... the trials themselves" 0 "done .*width=2" "$toeplab" plan --list "$top/fails.lua"
refuse "a plan of nothing" 2 "which experiment" "$toeplab" plan
expect "a trial run again is the same" 0 "bit-identical" "$toeplab" reproduce -q width=2
expect "... and as JSON an empty list stays a list" 0 '"different_texts":\[\]' \
    "$toeplab" reproduce -q --json width=2
expect "... with a metric left out" 0 "0 of 0 the same, 1 not compared" \
    "$toeplab" reproduce -q --ignore loss width=2
refuse "... that it has" 2 "--ignore: there is no metric 'los'; did you mean 'loss'" \
    "$toeplab" reproduce -q --ignore loss,los width=2
refuse "one that failed cannot be" 2 "is failed: only finished trials" "$toeplab" reproduce -q width=1
refuse "nor several" 2 "selects [0-9]* trials" "$toeplab" reproduce @all

cat >"$top/inf.lua" <<'END'
return require("toeplab").experiment "inf" {
  seeds = 3,
  trial = function(t) t:log { a = t.seed > 1 and 1 / 0 or 1, b = t.seed > 2 and 0 / 0 or 2 } end,
  report = { rows = "seed", columns = { "a", "b" } },
}
END
check "metrics that are not finite" "$toeplab" run -q "$top/inf.lua"
expect "... as CSV" 0 ",3,b,0,nan" "$toeplab" export inf --metrics
expect "... and CSV of trials" 0 ",inf,2.0" "$toeplab" export inf
expect "... as JSON" 0 '"metric.a":"inf","metric.b":2.0' "$toeplab" export inf --json

cat >"$top/table.lua" <<'END'
return require("toeplab").experiment "table" { trial = function() error { reason = 3 } end }
END
expect "a trial that raises a table: its content is printed" 1 'failed: .*table.lua:1: an error object {"reason":3}' \
    "$toeplab" run "$top/table.lua"

mkdir "$top/bin"
printf '#!/bin/sh\necho "a warning" >&2\necho "Ge1:1 In the beginning"\n' >"$top/bin/bible"
chmod +x "$top/bin/bible"
echo 'local data = require("toeplab").corpus("bible-kjv", { valid = 0.0, test = 0.0 })
io.write(data.vocab:decode(data.train))' >"$top/bible.lua"
check "what a program of a corpus complains of is no text" \
    sh -c "[ \"\$(PATH='$top/bin:$PATH' '$toeplab' lua '$top/bible.lua')\" = 'In the beginning' ]"

mkdir "$top/plugins"
sed 's/"shift"/"mine"/' "$source/tests/plugin/shift.c" >"$top/plugins/mine.c"
check "the template of a backend compiles" \
    cc -shared -fPIC -I "$source/core" "$top/plugins/mine.c" -o "$top/plugins/mine.so"
mkfifo "$top/plugins/pipe.so"
expect "... is listed, and a pipe passed over" 0 "^mine " \
    env TOEPLAB_BACKENDS="$top/plugins" timeout 20 "$toeplab" doctor --backends
expect "... is what the definition says" 0 "mine: 15 passed, 0 failed" \
    env TOEPLAB_BACKENDS="$top/plugins" "$toeplab" verify mine
expect "... and measured" 0 "^n 16 b 1 .* mine " env TOEPLAB_BACKENDS="$top/plugins" \
    "$toeplab" bench tno --quick --repeats 1 --lengths 16 --dim 4 --threads 1 --backends mine
sed -e 's/"mine"/"late"/' -e 's/\*s = \*p, /&first = 5 * p->options->i, /' \
    -e 's/a->y\[k\] = /&(k \/ d % n < first ? 1 : 2) * /' \
    -e 's/^static int accepts/static int64_t first;\nstatic const tl_option options[] = {OPTION, {0}};\n&/' \
    -e "s/OPTION/{\"block\", 'i', \"999\", \"1..\", \"positions\"}/" \
    -e 's/\.accepts/.options = options, &/' "$top/plugins/mine.c" >"$top/plugins/late.c"
check "a backend with an option compiles" \
    cc -shared -fPIC -I "$source/core" "$top/plugins/late.c" -o "$top/plugins/late.so"
expect "a backend that is wrong from its sixth block on fails" 4 "late: 12 passed, 3 failed" \
    env TOEPLAB_BACKENDS="$top/plugins" "$toeplab" verify -q late block=64
refuse "verify of an option that a backend lacks" 2 "did you mean 'block'" \
    env TOEPLAB_BACKENDS="$top/plugins" "$toeplab" verify late blok=64
refuse "verify of an option without a backend" 2 "'block=64' follows no backend" \
    "$toeplab" verify block=64 naive
sed -e 's/"mine"/"odd"/' -e '/^static tl_status forward/,/^}/s/return TL_OK/return 77/' \
    "$top/plugins/mine.c" >"$top/plugins/odd.c"
check "a backend whose status is none compiles" \
    cc -shared -fPIC -I "$source/core" "$top/plugins/odd.c" -o "$top/plugins/odd.so"
expect "... is named by the failure" 4 "backend 'odd' failed: unknown status (77)" \
    env TOEPLAB_BACKENDS="$top/plugins" "$toeplab" verify odd
for way in "_exit(0)" "exit(0)" "raise(SIGKILL)"; do
    case $way in raise*) code=137 ;; *) code=1 ;; esac
    sed -e 's/"mine"/"quits"/' -e '1i #include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>' \
        -e "/^static tl_status forward/,/^}/s/return TL_OK/$way; &/" \
        "$top/plugins/mine.c" >"$top/plugins/quits.c"
    check "a backend that calls $way compiles" \
        cc -shared -fPIC -I "$source/core" "$top/plugins/quits.c" -o "$top/plugins/quits.so"
    expect "... fails in verify and is named" "$code" "^toeplab: backend 'quits' ended the program (" \
        env TOEPLAB_BACKENDS="$top/plugins" "$toeplab" verify quits
done
rm "$top/plugins/late.so" "$top/plugins/odd.so" "$top/plugins/quits.so"
expect "... and trains" 0 "n-gram of order 4" \
    env TOEPLAB_BACKENDS="$top/plugins" "$toeplab" run -q "$quick" $smoke backend=mine
expect "... and is missed when its trial is run again without it" 2 \
    "; TOEPLAB_BACKENDS was .*/plugins, is not set" "$toeplab" reproduce backend=mine

# ---- Two at once, signals ------------------------------------------------------------------------

cat >"$top/slow.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "slow" {
  fixed = { steps = 100000 },
  trial = function(t, c)
    local data = tl.corpus("text:" .. ("some text "):rep(50), { batch = 1, length = 8 })
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 1, dim = 4, rpe_dim = 4,
      rpe_layers = 0 }
    local opt = tl.optim.adam(model, {})
    for step in t:steps(c.steps, model, opt, data) do
      t:log { loss = tl.train.lm_step(model, opt, data:batch(step)) }
      tl.sys.write_file(os.getenv "BEGUN", "")
      tl.sys.sleep(0.01)
    end
  end,
}
END
export BEGUN="$top/begun" # what a trial writes when a signal may come

interrupt() { # COMMAND...: sends it SIGINT once $BEGUN is there; returns its exit code
    rm -f "$BEGUN"
    env --default-signal=INT timeout -k 5 60 "$@" & # the shell would have it ignore SIGINT
    child=$!
    for _ in $(seq 600); do
        if [ -e "$BEGUN" ]; then break; fi
        sleep 0.05
    done
    kill -s INT "$child"
    wait "$child"
}

running() { # waits until the background run has logged something
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        "$toeplab" export slow --metrics 2>/dev/null | grep -q ',loss,1,' && return 0
        sleep 0.25
    done
    return 1
}

"$toeplab" run "$top/slow.lua" >"$top/out2" 2>"$top/err2" &
pid=$!
check "a long run is under way" running
expect "a second run leaves the trial to the first" 5 "1 run by other processes" \
    "$toeplab" run "$top/slow.lua"
expect "readers read meanwhile" 0 "slow .*running" "$toeplab" ls
kill -TERM $pid
got=0
wait $pid || got=$?
cp "$top/err2" "$top/err"
check "SIGTERM: exit code 143" test "$got" -eq 143
check "... and the message explains how to resume" \
    grep -q "stopped by SIGTERM at step .*same command continues" "$top/err2"
expect "... and the trial is interrupted, with a checkpoint" 0 "slow .*interrupted  *[1-9]" \
    "$toeplab" ls
expect "SIGINT: exit code 130" 130 "resumed after step" interrupt "$toeplab" run "$top/slow.lua"
cp "$top/err" "$top/err2"
check "... and a message reports it" grep -q "stopped on request at step" "$top/err2"

# Whatever the script does with a signal, its trial must not count as done.
caught() { # NAME: runs a trial whose body is on standard input and expects exit code 130
    { echo 'local tl = require "toeplab"'
      echo 'local function begun() tl.sys.write_file(os.getenv "BEGUN", "") end'
      echo "return tl.experiment \"caught$1\" { trial = function(t)"
      cat
      echo "end }"; } >"$top/caught.lua"
    expect "SIGINT: $1" 130 "stopped on request" interrupt "$toeplab" run "$top/caught.lua"
    expect "... interrupted" 0 "caught$1 .*interrupted" "$toeplab" ls "caught$1"
}
part='local m = tl.nn.Linear(1, 1) local o = tl.optim.sgd(m, { lr = 0.1 })'
echo "$part pcall(function() for _ in t:steps(1 << 40, m, o) do begun() end end) t:log { x = 1 }" |
    caught in-pcall
echo "begun() tl.sys.sleep(30)" | caught in-sleep
echo "$part for _ in t:steps(9, m, o) do break end begun() while true do end" | caught after-break
echo "coroutine.wrap(function() begun() while true do end end)()" | caught in-coroutine

# ---- Storage -------------------------------------------------------------------------------------

cat >"$top/big.lua" <<'END'
local tl = require "toeplab"
return tl.experiment "big" {
  fixed = { steps = 30 },
  checkpoint = { steps = 10 },
  trial = function(t, c)
    local data = tl.corpus("text:" .. ("some text "):rep(50), { batch = 1, length = 8 })
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 1, dim = 64 }
    local opt = tl.optim.adam(model, {})
    for step in t:steps(c.steps, model, opt, data) do
      t:log { loss = tl.train.lm_step(model, opt, data:batch(step)) }
    end
  end,
}
END

# No file may grow beyond 500 KB: enough for the store, not for a checkpoint.
expect "files too large: exit code 6, and what to do" 6 \
    "raise the limit of a file's size (ulimit -f) and run the same command" \
    sh -c "ulimit -f 1000; exec '$toeplab' run -C '$top/full' '$top/big.lua'"
check "... and no half file is left" \
    sh -c "! find '$top/full/runs' -type f ! -name 'model-*' ! -name 'vocabulary-*' \
    ! -name '*.jnl' | grep ."
expect "... and ls shows the trial as interrupted" 0 "big .*interrupted" "$toeplab" ls -C "$top/full"
expect "... and with space it goes on" 0 "1 done" "$toeplab" run -C "$top/full" "$top/big.lua"

# This is too little even for the store.
for blocks in 1 8 10 100; do
    expect "files too large from the start, $blocks blocks: exit code 6" 6 "file size limit was reached" \
        sh -c "ulimit -f $blocks; exec '$toeplab' run -C '$top/tiny' '$top/fails.lua'"
done
expect "... and with space it starts" 1 "1 done, 1 failed" \
    "$toeplab" run -C "$top/tiny" "$top/fails.lua"

# A smaller stack than the program and the libraries need is raised, where it may be.
expect "a stack of 64 KiB: it is raised" 1 "1 done, 1 failed" \
    sh -c "ulimit -S -s 64; exec '$toeplab' run -C '$top/stack' '$top/fails.lua'"
expect "... also for the threads of a backend" 0 "0 failed" \
    sh -c "ulimit -S -s 64; exec '$toeplab' verify fft"
expect "... and without the right to it, what is needed" 1 "at least 1024 KiB are needed" \
    sh -c "ulimit -s 64; exec '$toeplab' version"

cat >"$top/long.lua" <<'END'
local tl = require "toeplab"
if tl.sys.exists "at-once" then error(("y"):rep(1000000), 0) end
return tl.experiment "long" { trial = function() error(("x"):rep(1000000), 0) end }
END
expect "a message of a megabyte" 1 "xxx... (1.*more in toeplab show [0-9a-f]*)" \
    "$toeplab" run -C "$top/long" "$top/long.lua"
check "... is cut where it is printed" sh -c "[ \$(cat '$top/err' | wc -c) -lt 1500 ]"
cd "$top"
: >at-once
expect "... also that of the script itself" 2 "yyy... (1.* bytes)" \
    "$toeplab" run -C "$top/long" "$top/long.lua"
cd - >/dev/null

# Without permission the same is said by another errno, which the superuser would not meet.
ln -s loop "$top/loop"
for verb in ls status "table long" "show 1" fsck "export trials" "merge $top/long" "rm --purge" \
    "report long" "compare x" "plot long"; do
    # shellcheck disable=SC2086
    expect "$verb: a folder that cannot be seen is not empty" 6 "Too many levels" \
        "$toeplab" $verb -C "$top/loop"
done

mkdir "$top/broken"
echo "this is no database, it is a text of some length, longer than a header" >"$top/broken/runs.db"
refuse "a damaged store: exit code 6" 6 "runs.db" "$toeplab" run -C "$top/broken" "$quick" $smoke
check "... and it is left as it was" grep -q "this is no database" "$top/broken/runs.db"
mkdir -p "$top/lost/runs/0123456789ab"
: >"$top/lost/runs.db"
refuse "an empty store beside trials: exit code 6" 6 "runs.db is damaged: it is empty" \
    "$toeplab" run -C "$top/lost" "$quick" $smoke
echo "no file" >"$top/file"
expect "a results folder that cannot be" 6 "file" "$toeplab" run -C "$top/file" "$quick" $smoke

echo "not HDF5" >"$top/bad.h5"
refuse "verify of what is no HDF5 file" 2 "bad.h5" "$toeplab" verify "$top/bad.h5"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
