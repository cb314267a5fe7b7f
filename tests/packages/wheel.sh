#!/bin/bash
# wheel.sh - makes a wheel, installs it into a new virtual environment, and compares it with the
# program of the build, and with its own while nobody can read the sources and the build.
# wheel.sh TOEPLAB SOURCE: NumPy, pandas and PyTorch are those of the first python of
# TOEPLAB_PYTHON, or of python3; the exit code is 77 where it lacks one of the first two, or a tool
# is missing.
set -euo pipefail

skip() { echo "skipped: $*"; exit 77; }

# A namespace in which file systems may be mounted. Some machines allow none to users.
if [ -z "${APART-}" ] && unshare -rm true 2>/dev/null; then
    APART=1 exec unshare -rm "$0" "$@"
fi

toeplab=$1 source=$2 build=${1%/*}
python=${TOEPLAB_PYTHON:-python3}
python=${python%%:*}
command -v patchelf >/dev/null || skip "no patchelf"
[ "$(uname -m)" = x86_64 ] || skip "wheels are made on x86-64"
python3 -c 'import tomllib' 2>/dev/null || skip "python3 is older than 3.11"
"$python" -c 'import numpy, pandas, pip, venv' 2>/dev/null ||
    skip "$python has no numpy, pandas, pip or venv"
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
export TOEPLAB_DIR="$top/results" TOEPLAB_CACHE="$top/cache" WEIGHTS="$top/model.safetensors"

TOEPLAB_BUILD=$build "$source/lab" wheel "$top/wheels"
"$toeplab" run "$source/experiments/quickstart.lua" scale=smoke >"$top/run" 2>&1 ||
    { cat "$top/run"; exit 1; }
"$toeplab" export quickstart --weights "$WEIGHTS" >/dev/null
"$python" -m venv --system-site-packages "$top/an environment"
"$top/an environment/bin/python" -m pip install -q --no-index --no-deps "$top"/wheels/*.whl
mkdir "$top/tests"
cp "$source/tests/python/test_wheel.py" "$top/tests"

# use VARIABLES...: runs the tests with these variables alone.
use() {
    (cd "$top" && env -i HOME="$top" TOEPLAB_DIR="$TOEPLAB_DIR" WEIGHTS="$WEIGHTS" \
        TOEPLAB_CACHE="$TOEPLAB_CACHE" PYTHONPATH="$top/tests" PYTHONDONTWRITEBYTECODE=1 "$@" \
        "$top/an environment/bin/python" -m unittest -v test_wheel)
}
echo "compared with the program of the build:"
use TOEPLAB_PROGRAM="$toeplab"
if [ -n "${APART-}" ]; then
    mount -t tmpfs none "$source"
    [ ! -d "$build" ] || mount -t tmpfs none "$build"
    [ ! -e "$source/CMakeLists.txt" ] && [ ! -e "$toeplab" ]
else
    echo "the sources stay in reach: no namespaces here"
fi
echo "compared with its own program:"
use
echo "... as on a processor of the lowest level:"
use ENGINE=lib/libtoeplab.so.0 GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2
