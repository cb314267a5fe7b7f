-- harness.lua: what every Lua test file is made of. Run one, or of it the tests whose names match:
--   cd tests/lua && toeplab lua FOLDER/test_x.lua [PATTERN]
--
--   local t = require "harness"
--   t.test("sums", function() t.eq(1 + 1, 2) end)
--   t.done()
--
-- Tests run in the order they are written, each with new random streams, so that one that runs
-- alone draws the same numbers. After each one the garbage is collected, the tape cleared, and
-- every tensor that the test made must be gone; no test may create a global. done() prints
-- "N passed, N failed" and, if a test was skipped, ", N skipped". It ends the program with status 1
-- if a test failed or none ran, and 77 if all that ran were skipped.
local core = require "toeplab.core"
local streams = require "toeplab.base.streams"

local harness = {}
local tests, names = {}, {}
local pattern = arg and arg[1] or ""
local Skipped = {} -- the metatable of what skip() raises

-- Adds a test. only: "cpu" if it is skipped on a device (TOEPLAB_DEVICE), where the CPU has
-- something that the device lacks or does otherwise.
function harness.test(name, fn, only)
  if names[name] then error("two tests are named '" .. name .. "'", 2) end
  names[name] = true
  tests[#tests + 1] = { name = name, fn = fn, only = only }
end

-- Ends the running test as skipped; why: what this machine or build lacks.
function harness.skip(why) error(setmetatable({ why = why }, Skipped), 0) end

-- Ends the program, all of whose tests need what is lacking.
function harness.skip_all(why)
  print("skipped: " .. why)
  os.exit(77)
end

-- ---- Comparisons --------------------------------------------------------------------------------

local function plain(x)
  local is_tensor = type(x) == "userdata" and getmetatable(x).__name == "toeplab.tensor"
  return is_tensor and x:totable() or x
end

-- nil, or where and how a and b differ. Numbers may differ by tol; NaN equals nothing.
local function difference(a, b, tol, where)
  a, b = plain(a), plain(b)
  if type(a) == "table" and type(b) == "table" then
    for k in pairs(b) do
      if a[k] == nil then return where .. "[" .. tostring(k) .. "] is missing" end
    end
    for k, v in pairs(a) do
      local d = difference(v, b[k], tol, where .. "[" .. tostring(k) .. "]")
      if d then return d end
    end
  elseif type(a) == "number" and type(b) == "number" then
    if a == b or math.abs(a - b) <= tol then return nil end
    return ("%s: %.9g is not %.9g"):format(where, a, b)
  elseif a ~= b then
    return ("%s: %s is not %s"):format(where, tostring(a), tostring(b))
  end
end

-- a equals b: numbers within tol (default 0), strings, and tensors or nested tables of them. An
-- integer as tol is refused: in eq(a, f()) it would be a second result of f that was not meant.
function harness.eq(a, b, tol)
  if tol ~= nil and math.type(tol) ~= "float" then
    error("the tolerance is " .. tostring(tol) .. ", which is no float", 2)
  end
  local d = difference(a, b, tol or 0, "value")
  if d then error(d, 2) end
end

-- Returns the condition.
function harness.ok(condition, message)
  return condition or error(message or "condition is false", 2)
end

-- fn(...) raises an error whose text matches the Lua pattern; on a device perhaps only when that
-- has done what was asked of it.
function harness.raises(fn, want, ...)
  local fine, message = pcall(fn, ...)
  if fine then fine, message = pcall(core.synchronize) end
  if fine then error("no error, wanted '" .. want .. "'", 2) end
  if not tostring(message):find(want) then
    error(("error '%s' does not match '%s'"):format(tostring(message), want), 2)
  end
end

-- The pattern of a message about an index, for raises: on_cpu, or what a GPU says, which knows only
-- the number, because its kernel has run by then.
function harness.out_of_range(number, on_cpu)
  return core.device() == "cpu" and on_cpu or ("cuda: index %s is out of range"):format(number)
end

-- text holds each of the plain texts.
function harness.holds(text, ...)
  for _, part in ipairs { ... } do
    if not text:find(part, 1, true) then error(("no '%s' in\n%s"):format(part, text), 2) end
  end
end

-- ---- Programs -----------------------------------------------------------------------------------

-- Runs a command of the shell. Returns what it prints and its exit code (the number of the signal
-- if one killed it).
function harness.shell(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  return text, select(3, pipe:close())
end

-- The folder of the sources, with a slash at its end.
harness.root = harness.shell(("cd '%s../..' && pwd"):format(
  debug.getinfo(1, "S").source:match "^@(.*/)")):gsub("\n$", "/")

-- Runs toeplab with words. Returns what it prints, its exit code as shell does, and what it writes
-- to standard error.
function harness.toeplab(words)
  local path = os.tmpname()
  local text, code = harness.shell(("'%s' %s 2>'%s'"):format(core.sys.executable(), words, path))
  local said = harness.read(path)
  os.remove(path)
  return text, code, said
end

-- ---- Files --------------------------------------------------------------------------------------

-- The content of a file, nil if there is none.
function harness.read(path)
  local file = io.open(path, "rb")
  local text = file and file:read("a")
  if file then file:close() end
  return text
end

function harness.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

-- Of a symbolic link only the link goes, so that a test which links to the sources loses none.
local function remove_all(path)
  local _, link = core.sys.kind(path)
  for _, name in ipairs(not link and core.sys.list(path) or {}) do
    remove_all(path .. "/" .. name)
  end
  os.remove(path)
end

-- Runs fn with the name of an empty folder, which is removed after it.
function harness.in_folder(fn)
  local path = os.tmpname()
  os.remove(path)
  assert(core.sys.mkdir(path))
  local ok, why = xpcall(fn, debug.traceback, path)
  remove_all(path)
  if not ok then error(why, 0) end
end

-- ---- States ------------------------------------------------------------------------------------

-- A nested state of tensors and plain values as text, a line each, bit for bit.
function harness.bits(state)
  local lines = {}
  local function walk(value, path)
    if type(value) == "table" then
      for key, item in pairs(value) do walk(item, path .. "/" .. tostring(key)) end
    elseif type(value) == "userdata" then
      local bits = {}
      for i, x in ipairs(value:reshape(-1):totable()) do bits[i] = ("%a"):format(x) end
      lines[#lines + 1] = path .. " " .. core.sha256(table.concat(bits, " "))
    else
      lines[#lines + 1] = path .. " " .. tostring(value)
    end
  end
  walk(state, "")
  table.sort(lines)
  return table.concat(lines, "\n")
end

-- ---- Running ------------------------------------------------------------------------------------

local function globals()
  local set = {}
  for name in pairs(_G) do set[name] = true end
  return set
end

local function live()
  core.tape_clear()
  collectgarbage()
  collectgarbage()
  return core.memory().tensors
end

-- nil, or why the test failed, a text, or was skipped, an object of Skipped.
local function failure(test)
  local before, known = live(), globals()
  streams.seed(1)
  local fine, message = xpcall(test.fn, debug.traceback)
  if not fine then return message end
  for name in pairs(_G) do
    if not known[name] then return "global '" .. tostring(name) .. "' was created" end
  end
  local leaked = live() - before
  if leaked ~= 0 then return leaked .. " tensors are left over" end
end

-- Runs a test and prints what became of it. Returns "passed", "failed" or "skipped".
local function outcome(test)
  local why = test.only and test.only ~= core.device()
    and setmetatable({ why = "on the " .. test.only .. " only" }, Skipped) or failure(test)
  if getmetatable(why) == Skipped then
    print(("skipped %s: %s"):format(test.name, why.why))
    return "skipped"
  elseif why then
    print("not ok " .. test.name)
    print("  " .. tostring(why):gsub("\n", "\n  "))
    return "failed"
  end
  print("ok " .. test.name)
  return "passed"
end

function harness.done()
  local count = { passed = 0, failed = 0, skipped = 0 }
  for _, test in ipairs(tests) do
    if test.name:find(pattern) then
      local what = outcome(test)
      count[what] = count[what] + 1
      io.stdout:flush()
    end
  end
  print(("%d passed, %d failed%s"):format(count.passed, count.failed,
    count.skipped > 0 and (", %d skipped"):format(count.skipped) or ""))
  if count.failed == 0 and count.passed == 0 and count.skipped > 0 then os.exit(77) end
  os.exit(count.failed == 0 and count.passed > 0)
end

return harness
