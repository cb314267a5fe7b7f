#!/bin/sh
# debian.sh - builds the Debian packages of a copy of the checkout, asks lintian, and uses what the
# packages hold. debian.sh SOURCE [FOLDER]: FOLDER gets the packages.
set -eu

skip() { echo "skipped: $*"; exit 77; }
for tool in dpkg-buildpackage dh lintian lua5.4 git; do
    command -v $tool >/dev/null || skip "no $tool"
done

source=$(readlink -f "$1")
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
"$source/tests/packages/copied" "$source" "$top/source"
cd "$top/source"
missing=$(dpkg-checkbuilddeps 2>&1) || skip "${missing##*: error: }"
dpkg-buildpackage -us -uc -b >"$top/log" 2>&1 || {
    tail -n 30 "$top/log"
    exit 1
}
grep "tests passed" "$top/log"
cd "$top"
lintian --allow-root --fail-on error,warning -- *.changes
echo "ok lintian says nothing"
for package in *.deb; do
    case $package in *-dbgsym_*) ;; *) dpkg-deb -x "$package" root ;; esac
done
if [ -n "${2-}" ]; then cp -- *.deb "$2"; fi
rm -rf source

unset TOEPLAB_BACKENDS TOEPLAB_LUA TOEPLAB_DIR LUA_PATH_5_4 LUA_CPATH_5_4
libraries=$top/root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
export LD_LIBRARY_PATH="$libraries" LUA_CPATH="$libraries/lua/5.4/?.so"
export LUA_PATH="$top/root/usr/share/lua/5.4/?.lua;$top/root/usr/share/lua/5.4/?/init.lua"
cat >use.lua <<'END'
local tl = require "toeplab"
assert(tl.nn.Linear(2, 3)(tl.ones(4, 2)):dim(2) == 3)
assert(#tl.backends() == 6, #tl.backends())
assert(tl.sys.executable() == arg[1], tl.sys.executable())
print "ok lua5.4 computes, finds the backends and the program"
END
lua5.4 use.lua "$top/root/usr/bin/toeplab"
unset LUA_CPATH LUA_PATH
"$top/root/usr/bin/toeplab" table tnn/table10 | grep "^learnable"
"$top/root/usr/bin/toeplab" run -q "$top/root/usr/share/toeplab/experiments/quickstart.lua" \
    -C "$top/runs" scale=smoke | grep "n-gram"
echo "4 passed, 0 failed"
