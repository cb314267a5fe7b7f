#!/bin/sh
# rock.sh - `luarocks make` into an empty tree, which then moves; a plain Lua and the program use it
# while the sources are gone. rock.sh SOURCE
set -eu

skip() { echo "skipped: $*"; exit 77; }
for tool in luarocks lua5.4 git ninja; do
    command -v $tool >/dev/null || skip "no $tool"
done

source=$(readlink -f "$1")
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
# The CUDA device takes long to build, and nothing of it depends on the package.
export TOEPLAB_CMAKE=-DCMAKE_CUDA_COMPILER=NOTFOUND
"$source/tests/packages/copied" "$source" "$top/source"
(cd "$top/source" && luarocks --lua-version 5.4 --tree "$top/tree" make) >"$top/log" 2>&1 || {
    tail -n 20 "$top/log"
    exit 1
}
rm -rf "$top/source"
mv "$top/tree" "$top/a tree"
tree="$top/a tree"
cd "$top"
unset TOEPLAB_BACKENDS TOEPLAB_LUA TOEPLAB_DIR LD_LIBRARY_PATH LUA_PATH_5_4 LUA_CPATH_5_4
export LUA_PATH="$tree/share/lua/5.4/?.lua;$tree/share/lua/5.4/?/init.lua"
export LUA_CPATH="$tree/lib/lua/5.4/?.so"
cat >use.lua <<'END'
local tl = require "toeplab"
local names = {}
for i, backend in ipairs(tl.backends()) do names[i] = backend.name end
local model = tl.nn.Linear(2, 3)
assert(model(tl.ones(4, 2)):dim(2) == 3)
assert(table.concat(names, " "):find "naive.*rac", table.concat(names, " "))
assert(tl.sys.executable() == arg[1], tl.sys.executable())
print "ok lua5.4 computes, finds the backends and the program"
END
lua5.4 use.lua "$tree/bin/toeplab"
unset LUA_PATH LUA_CPATH
"$tree/bin/toeplab" lua use.lua "$tree/bin/toeplab"
set -- "$tree"/lib/luarocks/rocks-5.4/toeplab/*/experiments/quickstart.lua
"$tree/bin/toeplab" run "$1" -q -C "$top/runs" scale=smoke | grep "n-gram"
echo "3 passed, 0 failed"
