-- files.lua: for lua_oom; HDF5 files, the store of runs, and files of the system. Its argument is
-- an empty folder.
local core = require "toeplab.core"
local folder = ...
local path = folder .. "/sub/x.h5"

assert(core.sys.mkdir(folder .. "/sub"))
core.h5_write(path, { { "a/b", core.ones(2, 2) }, { "c", core.ids { 1 } } }, { name = "x", step = 3,
  lr = 0.5 })
do
  local file <close> = core.h5_open(path)
  assert(file:read("a/b"):sum():item() == 4)
  assert(#file:children "/" == 2 and file:attrs("/").lr == 0.5)
end
assert(#core.sha256_file(path) == 64)
core.raw_write(folder .. "/raw", { "text", core.ones(2), { core.full({ 3 }, 2) } })
assert(core.raw_read(folder .. "/raw", 12, "BF16", { 3 }):sum():item() == 6)
assert(core.sys.write_file(folder .. "/text",
  "abc") and core.sys.read_file(folder .. "/text") == "abc")
assert(#core.sys.list(folder) >= 2)

local store <close>, message = core.store(folder, "w")
if not store then error(message, 0) end
store:exec "CREATE TEMP TABLE t (a, b)"
store:exec("INSERT INTO t VALUES (?, ?), (?, ?)", { 1, "one", nil, 2.5, n = 4 })
local rows = store:exec "SELECT a, b FROM t ORDER BY b"
assert(#rows == 2 and rows[2].b == "one")
store:each("SELECT a FROM t WHERE a = ?", { 1 }, function(row) assert(row.a == 1) end)
