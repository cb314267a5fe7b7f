-- test_core_system.lua: the glue of files, the store of runs and the system.
local core = require "toeplab.core"
local t = require "harness"
local eq, ok, raises, test = t.eq, t.ok, t.raises, t.test
local sys = core.sys

local folder = os.tmpname()
sys.remove(folder)
assert(sys.mkdir(folder))

-- ---- Files --------------------------------------------------------------------------------------

test("crc32 is that of zip files, in one go or continued", function()
  eq(core.crc32 "123456789", 0xCBF43926)
  eq(core.crc32("6789", core.crc32 "12345"), 0xCBF43926)
  eq(core.crc32(core.ids { 0x34333231 }), core.crc32 "1234")
end)

test("sha256", function()
  eq(core.sha256 "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
  sys.write_file(folder .. "/abc", "abc")
  eq(core.sha256_file(folder .. "/abc"), core.sha256 "abc")
  raises(core.sha256_file, "/none", folder .. "/none")
end)

test("parts of a file that are no tensors", function()
  local closed, path = core.ones(1), folder .. "/raw"
  closed:close()
  for _, part in ipairs { 3, closed, { closed } } do
    raises(core.raw_write, "bad argument #2 .*part 2 is a [a-z]*, not text or an open tensor", path,
      { "a", part })
  end
end)

test("HDF5", function()
  local path = folder .. "/x.h5"
  core.h5_write(path, {
    { "model/w", core.tensor { { 1, 2 }, { 3, 4 } } },
    { "ids", core.ids { 7 } },
    { "none", core.zeros(0) },
  }, { name = "x", step = 3, lr = 0.5, done = true })
  local f <close> = core.h5_open(path)
  eq(f:children "/", { { name = "ids", kind = "dataset" }, { name = "model", kind = "group" },
    { name = "none", kind = "dataset" } })
  eq(f:children "model", { { name = "w", kind = "dataset" } })
  eq(f:attrs "/", { name = "x", step = 3, lr = 0.5, done = 1 })
  eq(math.type(f:attrs("/").step), "integer")
  eq(f:attrs "model", {})
  eq(f:read "model/w", { { 1, 2 }, { 3, 4 } })
  eq(f:read("ids"):type(), "int32")
  eq(f:read("none"):shape(), { 0 })
  raises(f.read, "nothing", f, "nothing")
  raises(f.children, "bad argument #2", f)
  f:close()
  raises(f.read, "h5 is closed", f, "ids")
end)

test("what HDF5 refuses", function()
  raises(core.h5_open, "/none.h5", folder .. "/none.h5")
  sys.write_file(folder .. "/bad.h5", "not HDF5")
  raises(core.h5_open, "/bad.h5", folder .. "/bad.h5")
  local write, path, one = core.h5_write, folder .. "/y.h5", { "x", core.ones(1) }
  raises(write, "bad argument #2 .*entry 1 is {string, number}", path, { { "x", 3 } })
  raises(write, "bad argument #2 .*entry 2 is not {name, tensor}", path, { one, 3 })
  raises(write, "bad argument #3 .*attribute 'a' is a table", path, {}, { a = {} })
  raises(write, "bad argument #3 .*key '1' is not a string", path, {}, { 1 })
  raises(write, "/no", "/no/such/folder/y.h5", {})
  eq(sys.exists(folder .. "/y.h5"), false)
end)

-- ---- The store ----------------------------------------------------------------------------------

test("the store", function()
  local s <close> = core.store(folder .. "/runs", "w")
  s:exec "CREATE TEMP TABLE t (id INTEGER PRIMARY KEY, a, b)"
  eq(s:exec("INSERT INTO t (a, b) VALUES (?, ?)", { "text\0with zero", 2.5 }), {})
  s:exec("INSERT INTO t (a, b) VALUES (?, ?)", { true, nil, n = 2 })
  eq(s:exec "SELECT * FROM t ORDER BY id", { { id = 1, a = "text\0with zero", b = 2.5 }, { id = 2,
    a = 1 } })
  local row = s:exec("SELECT 1 AS i, 2.0 AS f, 'x' AS s, NULL AS z")[1]
  eq({ math.type(row.i), math.type(row.f), row.s, row.z == nil }, { "integer", "float", "x", true })
  local seen = {}
  s:each("SELECT id FROM t WHERE id > ? ORDER BY id", { 0 }, function(r) seen[#seen + 1] = r.id end)
  eq(seen, { 1, 2 })
  eq(#s:exec "SELECT id FROM t WHERE id > 10", 0)
  raises(s.exec, "no such table", s, "SELECT * FROM nowhere")
  raises(s.exec, "bad argument #3 .*parameter 1 is a table", s, "SELECT ?", { {} })
  raises(s.exec, "bad argument #3 .*n is not in", s, "SELECT ?", { n = -1 })
  raises(s.each, "bad argument #4", s, "SELECT 1", {})
end)

test("the columns of rows as arguments", function()
  local s <close> = core.store(folder .. "/runs", "w")
  local got = {}
  s:tuples("SELECT 1, 'x', NULL, ? UNION ALL SELECT 2, 'y', 0.5, NULL", { 7 }, function(...)
    got[#got + 1] = table.pack(...)
  end)
  eq(got, { { 1, "x", nil, 7, n = 4 }, { 2, "y", 0.5, nil, n = 4 } })
  raises(s.tuples, "bad argument #4", s, "SELECT 1", {})
  local many, count = {}, 0
  for i = 1, 500 do many[i] = i end
  s:tuples("SELECT " .. table.concat(many, ","), nil, function(...) count = select("#", ...) end)
  eq(count, 500)
  raises(s.tuples, "x is too", s, "SELECT 1 AS x", nil, function(x) error("x is too " .. x) end)
end)

test("errors of a row function stop the statement", function()
  local s <close> = core.store(folder .. "/runs", "w")
  local count, three = 0, "SELECT 1 AS x UNION SELECT 2 UNION SELECT 3"
  local fine, e = pcall(s.each, s, three, nil, function()
    count = count + 1
    error { code = 5 }
  end)
  eq({ fine, e.code, count }, { false, 5, 1 })
  raises(s.each, "close: the store is in use", s, three, nil, function() s:close() end)
  local inner = 0
  s:each(three, nil, function(r) inner = inner + s:exec("SELECT ? AS y", { r.x })[1].y end)
  eq(inner, 6)
  s:close()
  raises(s.exec, "store is closed", s, "SELECT 1")
end)

test("a store that does not open", function()
  local s, message, status = core.store(folder .. "/none", "r")
  eq({ s == nil, type(message), status }, { true, "string", "ENOTFOUND" })
  local first <close> = core.store(folder .. "/runs", "w")
  first:exec "BEGIN IMMEDIATE"
  s, message, status = core.store(folder .. "/runs", "w")
  eq({ s == nil, status }, { true, "ELOCKED" })
  ok(message:find(tostring(sys.getpid()), 1, true), message)
  first:exec "COMMIT"
  local reader <close> = core.store(folder .. "/runs", "r")
  eq(reader:exec("SELECT 1 AS x")[1].x, 1)
  raises(reader.exec, "attempt to write a readonly database", reader, "CREATE TABLE z (a)")
  raises(core.store, "bad argument #2 .*invalid option 'x'", folder, "x")
end)

-- ---- The system ---------------------------------------------------------------------------------

test("clocks and process", function()
  eq(sys.now(), os.time(), 2.0)
  local start = sys.clock()
  sys.sleep(0.02)
  local slept = sys.clock() - start
  ok(slept >= 0.019 and slept < 5, tostring(slept))
  ok(sys.getpid() > 1 and #sys.hostname() > 0)
  ok(sys.executable():find "/toeplab$")
  raises(sys.sleep, "bad argument #1", -1)
end)

test("terminal", function()
  eq(type(sys.isatty(1)), "boolean")
  eq(sys.isatty(99), false)
  ok(sys.columns() > 0)
  raises(sys.isatty, "bad argument #1", -1)
end)

test("folders and files", function()
  local sub = folder .. "/a/b//c"
  eq(sys.exists(sub), false)
  eq(sys.mkdir(sub), true)
  eq(sys.mkdir(sub), true)
  eq(sys.mkdir(sub .. "/"), true)
  eq(sys.exists(sub), true)
  eq(sys.write_file(sub .. "/two", "one"), true)
  eq(sys.write_file(sub .. "/two", "x\0y"), true)
  eq(sys.read_file(sub .. "/two"), "x\0y")
  eq(sys.write_file(sub .. "/one", ""), true)
  eq(sys.read_file(sub .. "/one"), "")
  eq({ sys.size(sub .. "/two"), sys.size(sub .. "/one") }, { 3, 0 })
  eq(sys.list(sub), { "one", "two" })
  eq(sys.rename(sub .. "/one", sub .. "/three"), true)
  eq(sys.list(sub), { "three", "two" })
  eq(sys.remove(sub .. "/three"), true)
  eq(sys.remove(sub .. "/two"), true)
  eq(sys.list(sub), {})
  ok(sys.free_space(folder) > 0)
  local long = ("0123456789"):rep(10000)
  sys.write_file(folder .. "/long", long)
  ok(sys.read_file(folder .. "/long") == long)
end)

test("file functions that fail", function()
  local none = folder .. "/no/such"
  for name, f in pairs { list = sys.list, read_file = sys.read_file, remove = sys.remove,
    free_space = sys.free_space, size = sys.size } do
    local result, message, code = f(none)
    eq(result == nil, true)
    ok(message:find(none, 1, true) and message:find "No such file", name .. ": " .. message)
    eq(code, 2)
  end
  eq({ select("#", sys.rename(none, none)), (sys.rename(none, none)) == nil }, { 3, true })
  eq(select(3, sys.write_file(none, "x")), 2)
  sys.write_file(folder .. "/file", "x")
  eq({ sys.mkdir(folder .. "/file/x") }, { nil, folder .. "/file: mkdir failed: File exists", 17 })
  eq(select(3, sys.mkdir(folder .. "/file")), 17)
  eq(sys.read_file(folder) == nil, true)
  raises(sys.mkdir, "empty path", "")
end)

-- ---- The program --------------------------------------------------------------------------------

local function quoted(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

-- Standard output, standard error and exit status of a shell line, in which $T is the program.
local function shell(line)
  local out, err = folder .. "/out", folder .. "/err"
  local program = "T=" .. quoted(sys.executable()) .. "\n"
  local _, _,
    code = os.execute(program .. "{ " .. line .. "\n} >" .. quoted(out) .. " 2>" .. quoted(err))
  return sys.read_file(out), sys.read_file(err), code
end

-- The same for a Lua script.
local function program(script, arguments, before)
  local file = folder .. "/script.lua"
  sys.write_file(file, script)
  return shell(("%s \"$T\" lua %s %s"):format(before or "", quoted(file), arguments or ""))
end

test("scripts and their arguments", function()
  eq({ program("print(#arg, arg[0]:match '[^/]*$', arg[2], ...)", "one 'two words'") },
    { "2\tscript.lua\ttwo words\tone\ttwo words\n", "", 0 })
  sys.write_file(folder .. "/beside.lua", "return 42")
  eq({ program "print(require 'beside', require('toeplab.core').version)" },
    { "42\t" .. core.version .. "\n", "", 0 })
  eq({ shell "echo 'print(1.5, #arg)' | \"$T\" lua" }, { "1.5\t0\n", "", 0 })
  eq({ shell "echo 'print(...)' | \"$T\" lua - a b" }, { "a\tb\n", "", 0 })
  eq(select(3, program "os.exit(7)"), 7)
end)

test("an exit of a library is a failure", function()
  local out, err, code = program "print '1' package.loadlib('libc.so.6', 'exit')()"
  eq({ out, err, code }, { "1\n", "toeplab: a plugin or a library ended the program by exit()\n",
    1 })
end)

test("the cache folder", function()
  for environment, want in pairs {
    ["TOEPLAB_CACHE=/a/b"] = "/a/b", ["TOEPLAB_CACHE="] = "nil",
    ["-u TOEPLAB_CACHE XDG_CACHE_HOME=/c"] = "/c/toeplab",
    ["-u TOEPLAB_CACHE -u XDG_CACHE_HOME HOME=/h"] = "/h/.cache/toeplab",
    ["-u TOEPLAB_CACHE -u XDG_CACHE_HOME -u HOME"] = "nil",
  } do
    local script = "print((require('toeplab.core').sys.cache_dir()))"
    eq(program(script, "", "env " .. environment), want .. "\n")
  end
end)

test("an error loses places in the library, also of a path so long that Lua shortens it", function()
  local errors = require "toeplab.base.errors"
  for file, want in pairs {
    ["/lua/toeplab/models/decode.lua"] = "wrong",
    ["/toeplab/experiments/decode.lua"] = "...*/experiments/decode.lua:1: wrong",
  } do
    local _, message = pcall(load("error 'wrong'", "@" .. ("/long"):rep(20) .. file))
    ok(message:find("...", 1, true) == 1, message)
    eq(errors.plain(message):gsub("^%.%.%..*/experiments", "...*/experiments"), want)
  end
end)

test("transforms are measured at lengths that FFTW has code for, and at short ones", function()
  local script = [[
    local core = require "toeplab.core"
    core.rfft(core.zeros(math.tointeger(arg[1])), 1)
    for _, name in ipairs(core.sys.list(core.sys.cache_dir()) or {}) do
      if name:find "%.wisdom$" then print "measured" end
    end]]
  for n, want in pairs { [100] = "measured\n", [101] = "measured\n", [8192] = "measured\n",
    [100003] = "" } do
    local got = { program(script, n, ("env TOEPLAB_CACHE=%s/wisdom-%d"):format(folder, n)) }
    eq(got, { want, "", 0 })
  end
end)

test("a run that waits for transforms to be measured says so, once", function()
  local cache = folder .. "/waits"
  local out, err = program([[
    local core = require "toeplab.core"
    local line = require("toeplab.base.progress").new()
    local path = core.sys.cache_dir() .. "/fftw-3.3.10-0.lock"
    core.sys.write_file(path, "")
    local file <close> = io.open(path, "r+")
    print(core.sys.lock(file))
    line:expect(1, 1)
    for _ = 1, 24 do
      line:show({}, {})
      core.sys.poll({}, 0.1)
    end]], "", "env TOEPLAB_CACHE=" .. cache)
  eq({ out, err }, { "true\n", ("FFTW is measuring transforms; %s caches the result\n")
    :format(cache) })
end)

test("errors of scripts", function()
  local out, err, code = program [[
    print 'x'
    local core = require 'toeplab.core'
    core.matmul(core.ones(2, 3), core.ones(2, 3))]]
  eq({ out, code }, { "x\n", 1 })
  ok(err:find "^toeplab: .*script.lua:3: matmul: [^\n]*%[2,3%][^\n]*\n$", err)
  eq({ program "error({code = 2, message = 'wrong word'})" }, { "", "toeplab: wrong word\n", 2 })
  eq({ program "error({code = 5, message = 'locked'})" }, { "", "toeplab: locked\n", 5 })
  eq({ program "error('two\\nlines', 0)" }, { "", "toeplab: two lines\n", 1 })
  eq({ program "error(setmetatable({}, {__tostring = function() return 'odd' end}))" }, { "",
    "toeplab: odd\n", 1 })
  out, err, code = program("error('deep', 0)", "", "TOEPLAB_TRACEBACK=1")
  ok(err:find "^toeplab: deep\nstack traceback:\n" and code == 1, err)
  out, err, code = program "return +"
  ok(err:find "^toeplab: .*script.lua:1:" and code == 2, err)
  out, err, code = shell '"$T" lua /no/such.lua'
  ok(err:find "^toeplab: cannot open /no/such.lua[^\n]*\n$" and code == 2, err)
  eq(out, "")
end)

test("threads", function()
  local show = "print(require('toeplab.core').threads())"
  sys.write_file(folder .. "/threads.lua", show)
  local file = quoted(folder .. "/threads.lua")
  eq({ shell('"$T" --threads 3 lua ' .. file) }, { "3\n", "", 0 })
  eq({ shell('"$T" --threads=2 lua ' .. file) }, { "2\n", "", 0 })
  eq({ shell('TOEPLAB_THREADS=4 "$T" lua ' .. file) }, { "4\n", "", 0 })
  eq({ shell('TOEPLAB_THREADS=4 "$T" --threads 1 lua ' .. file) }, { "1\n", "", 0 })
  local bad_ones = { "--threads 0", "--threads x", "--threads=", "--threads", "--threads 99999999" }
  for _, bad in ipairs(bad_ones) do
    local out, err, code = shell('"$T" ' .. bad .. (bad == "--threads" and "" or " lua " .. file))
    eq({ out, code }, { "", 2 })
    ok(err:find "^toeplab: the number of threads must be 1 to 4096, not '[^\n]*\n$", err)
  end
end)

test("pipes, full disks, absent libraries", function()
  eq({ shell "\"$T\" lua - <<'E' | head -n 1; true\nfor i = 1, 1e6 do print(i) end\nE" }, { "1\n",
    "", 0 })
  local endless = folder .. "/endless.lua"
  sys.write_file(endless, "while true do print 'x' end")
  local status = "{ \"$T\" lua " .. quoted(endless) .. "; echo $? >&2; } | head -n 1"
  eq({ shell(status) }, { "x\n", "141\n", 0 })
  if sys.exists "/dev/full" then
    local _, err, code = shell "echo 'print(1)' | \"$T\" lua >/dev/full"
    eq({ err, code }, { "toeplab: standard output: No space left on device\n", 1 })
  end
  local _, err, code = shell 'TOEPLAB_LUA=/no/such "$T" ls'
  eq({ err, code }, { "toeplab: no Lua library in /no/such; set TOEPLAB_LUA to its folder\n", 2 })
end)

test("signals", function()
  local out = program([[
    local sys = require "toeplab.core".sys
    sys.catch_signals()
    print(sys.interrupted())
    local kill = "kill -%s " .. sys.getpid()
    for _, name in ipairs { "INT", "INT", "TERM" } do
      io.popen(kill:format(name)):close()
      sys.sleep(0.01)
      print(sys.interrupted())
    end
    io.popen(kill:format "INT"):close()
    sys.sleep(5)
    print "still here"]])
  eq(out, "0\n1\n2\n2\tTERM\n")
end)

-- Any interpreter may have inherited that children are not waited for, whose ends are then lost.
test("a child's exit code where SIGCHLD is ignored", function()
  sys.write_file(folder .. "/child.lua", ([[
    local sys = require "toeplab.core".sys
    print(sys.spawn({ "/bin/sh", "-c", "exit 3" }, %q):wait(true))]]):format(folder .. "/log"))
  local out, err = shell("LUA_CPATH=\"${T%/*}/lua/?.so\" env --ignore-signal=CHLD lua5.4 "
    .. quoted(folder .. "/child.lua"))
  local cannot = err:find "runtime does not come first" or err:find "lua5.4.*No such file"
  if not cannot then eq({ out, err }, { "3\n", "" }) end
end)

test("the folder is removed", function()
  ok(os.execute("rm -rf " .. quoted(folder)))
  eq(sys.exists(folder), false)
end)

t.test("the kind of what a path names", function()
  local path = os.tmpname()
  local function kind(name)
    local what, link = core.sys.kind(name)
    return { tostring(what), link }
  end
  t.eq(kind(path), { "file", false })
  t.eq(kind("/dev/null"), { "other", false })
  t.eq(kind("/"), { "folder", false })
  t.eq(kind("/proc/self/exe"), { "file", true })
  t.eq(core.sys.same(path, "/./" .. path), true)
  t.eq(core.sys.same(path, "/dev/null"), false)
  os.remove(path)
  t.eq(core.sys.same(path, path), false)
  t.eq(kind(path), { "nil", false })
end)

t.done()
