#!/bin/sh
# python.sh - tests the Python package with the first python of TOEPLAB_PYTHON, or python3.
# python.sh TOEPLAB SOURCE; the exit code is 77 where that python lacks numpy or pandas. Where it
# lacks PyTorch the tests that need it are skipped, which is printed.
set -eu

toeplab=$1 source=$2
python=${TOEPLAB_PYTHON:-python3}
python=${python%%:*}
if ! "$python" -c 'import numpy, pandas' 2>/dev/null; then
    echo "skipped: $python has no numpy or no pandas"
    exit 77
fi
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
export TOEPLAB_DIR="$top/results" TOEPLAB_CACHE="$top/cache"
export TOEPLAB_LIBRARY="${toeplab%/*}/libtoeplab.so"
export PYTHONPATH="$source/python:$source/python/examples:$source/tests/python"
export PYTHONDONTWRITEBYTECODE=1
export TOEPLAB_THREADS=2 OMP_NUM_THREADS=2
for experiment in quickstart custom-mixer; do
    "$toeplab" run "$source/experiments/$experiment.lua" scale=smoke >"$top/run" 2>&1 ||
        { cat "$top/run"; exit 1; }
done
cd "$top"
"$python" -m unittest -v test_package test_torch
