#!/bin/sh
# example.sh - docs/generate.c, which uses libtoeplab alone, continues a text with the same tokens as
# the program. example.sh TOEPLAB SOURCE EXAMPLE
set -eu

toeplab=$1
source=$2
example=$3
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
passed=0
failed=0
export TOEPLAB_DIR="$top/results" TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua"

# check NAME COMMAND...: COMMAND must succeed; its output is shown if it fails.
check() {
    name=$1
    shift
    if "$@" >"$top/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "not ok $name"
        cat "$top/out"
    fi
}

# same MODEL PROMPT TOKENS
same() {
    "$toeplab" generate "$1" --prompt "$2" --tokens "$3" >"$top/want" || return 1
    "$example" "$1" "$2" "$3" >"$top/got" || return 1
    [ "$(wc -c <"$top/got")" -eq $((${#2} + $3 + 1)) ] && cmp "$top/want" "$top/got"
}

# refused CODE PATTERN ARGUMENT...
refused() {
    code=$1 pattern=$2 got=0
    shift 2
    "$example" "$@" 2>&1 >"$top/none" | grep -q "$pattern" || return 1
    "$example" "$@" >"$top/none" 2>&1 || got=$?
    [ "$got" -eq "$code" ]
}

smoke="scale=smoke steps=40 dim=8 rpe_dim=4"
check "quickstart" "$toeplab" run "$source/experiments/quickstart.lua" $smoke layers=2
check "convert" "$toeplab" generate @last --convert "$top/model.h5"
for prompt in "In the beginning" w; do
    check "the same tokens after '$prompt'" same "$top/model.h5" "$prompt" 200
done
check "no tokens" same "$top/model.h5" "was" 0
check "no words" refused 2 "usage: generate MODEL.h5"
check "an empty prompt" refused 2 "usage: generate MODEL.h5" "$top/model.h5" "" 3
check "tokens that are no number" refused 2 "usage: generate MODEL.h5" "$top/model.h5" was x
check "no such file" refused 1 "open failed" "$top/none.h5" a 3
check "an unknown character" refused 1 "is not in the vocabulary" "$top/model.h5" "#" 3
check "convert to another form" \
    "$toeplab" generate @last --convert "$top/other.h5" --form balanced --modes 4
check "another form" refused 1 "recurrent/form is not exact" "$top/other.h5" was 3
# A model of another option gives another text, and is refused.
cat >"$top/alter.lua" <<'END'
local checkpoint = require "toeplab.models.files.checkpoint"
local state = checkpoint.read(arg[1])
state.options[arg[3]] = load("return " .. arg[4])()
checkpoint.write(arg[2], state)
END
while read -r option value; do
    check "a file with $option = $value" \
        "$toeplab" lua "$top/alter.lua" "$top/model.h5" "$top/altered.h5" "$option" "$value"
    check "it is refused" refused 1 "$option" "$top/altered.h5" was 3
done <<'END'
act "relu"
positions "sinusoidal"
embed_scale false
output_bias true
mixer_norm "layernorm"
layers 100
END

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
