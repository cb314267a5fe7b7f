-- torture_rebuild.lua: damages databases in many ways. The files of the trials are the truth, so
-- nothing may be lost.
--   cd tests/lua && toeplab lua ../torture/torture_rebuild.lua [PATTERN]
local t = require "harness"
local core = require "toeplab.core"

local SCRIPT = [[
local tl = require "toeplab"
return tl.experiment "sweep" {
  fixed = { steps = 250 },
  grid = { rate = { 0.25, 0.5 } },
  seeds = 3,
  checkpoint = { steps = 100 },
  trial = function(t, c)
    local x = tl.zeros(16)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * c.rate + noise:normal(tl.zeros(16), 0, 1))
      t:log { loss = (x * x):mean():item(), one = step }
    end
    t:text("note", "the sum is " .. x:sum():item())
    t:log { final = x:sum():item() }
  end,
  report = { rows = "rate", columns = { "loss", "final" } },
}
]]

local folder = os.tmpname()
os.remove(folder)
assert(core.sys.mkdir(folder))

-- Runs the program; returns its exit code and its output on both streams.
local function toeplab(words)
  local out = folder .. "/out"
  local _, _, code = os.execute(("'%s' --threads 1 %s >'%s' 2>&1 </dev/null"):format(
    core.sys.executable(), words, out))
  return code, t.read(out)
end

local function results(dir)
  local store <close> = require "toeplab.store.records".open(dir, "r")
  local lines = {}
  for i, m in ipairs(store:rows [[SELECT json_extract(t.config, '$.rate') AS rate, t.seed, t.status,
      m.name, m.step, m.value FROM v_trials t JOIN v_metrics m ON m.trial = t.id
      ORDER BY 1, 2, 4, 5]]) do
    lines[i] = ("%s %d %s %s %d %a"):format(m.rate, m.seed, m.status, m.name, m.step, m.value)
  end
  return table.concat(lines, "\n")
end

t.write(folder .. "/sweep.lua", SCRIPT)
local RUN = ("run -q -C '%s/%%s' '%s/sweep.lua'"):format(folder, folder)
assert(toeplab(RUN:format "plain") == 0)
local _, TABLE = toeplab(RUN:format "plain")
local WANTED = results(folder .. "/plain")
local _, lines = WANTED:gsub("\n", "\n")
assert(lines == 6 * 501 - 1, lines)
local DATABASE = t.read(folder .. "/plain/runs.db")
local SIZE = 4096
local PAGES = #DATABASE // SIZE
assert(PAGES > 60)

-- ---- Damage -----------------------------------------------------------------------------------

local function patch(text, at, new) return text:sub(1, at) .. new .. text:sub(at + #new + 1) end

local function noise(bytes, seed)
  math.randomseed(seed)
  local list = {}
  for i = 1, bytes do list[i] = string.char(math.random(0, 255)) end
  return table.concat(list)
end

local function zero(...)
  local numbers = { ... }
  return function(text)
    for _, n in ipairs(numbers) do text = patch(text, (n - 1) * SIZE, ("\0"):rep(SIZE)) end
    return text
  end
end

-- Returns the numbers of the pages of a kind: 2 and 5 are inner pages of an index and of a table,
-- 10 and 13 their leaves.
local function pages_of(kind)
  local list = {}
  for n = 2, PAGES do
    if DATABASE:byte((n - 1) * SIZE + 1) == kind then list[#list + 1] = n end
  end
  return list
end

local inner, leaves, rows = pages_of(2), pages_of(10), pages_of(13)

-- Each case: a name, and a function that damages the bytes of the database.
local damages = {
  { "cut in half", function(text) return text:sub(1, #text // 2) end },
  { "cut in a page", function(text) return text:sub(1, #text * 3 // 4 + 99) end },
  { "cut by its last page", function(text) return text:sub(1, -SIZE - 1) end },
  { "cut to its first page", function(text) return text:sub(1, SIZE) end },
  { "cut to 50 bytes", function(text) return text:sub(1, 50) end },
  { "the first page zeroed", zero(1) },
  { "the first 100 bytes zeroed", function(text) return patch(text, 0, ("\0"):rep(100)) end },
  { "another magic", function(text) return patch(text, 0, "SQLite format 4") end },
  { "another size of pages", function(text) return patch(text, 16, "\x02\x00") end },
  { "the count of pages too large", function(text) return patch(text, 28, "\x00\x0F\x00\x00") end },
  { "the versions of the format", function(text) return patch(text, 18, "\x09\x09") end },
  { "another encoding", function(text) return patch(text, 56, "\0\0\0\x02") end },
  { "another application", function(text) return patch(text, 68, "\0\0\0\x02") end },
  { "no schema", function(text) return patch(text, 100, ("\xFF"):rep(200)) end },
  { "all inner pages zeroed", zero(table.unpack(inner)) },
  { "a root zeroed", zero(inner[1]) },
  { "a leaf of metrics zeroed", zero(leaves[#leaves // 2]) },
  { "ten leaves zeroed", zero(table.unpack(leaves, 5, 14)) },
  { "the rows of tables zeroed", zero(table.unpack(rows)) },
  { "one page of rows zeroed", zero(rows[#rows]) },
  { "every tenth page garbage", function(text)
    for n = 10, PAGES, 10 do text = patch(text, (n - 1) * SIZE, noise(SIZE, n)) end
    return text
  end },
  { "pages changed round", function(text)
    local a, b = (leaves[8] - 1) * SIZE, (leaves[12] - 1) * SIZE
    local one, other = text:sub(a + 1, a + SIZE), text:sub(b + 1, b + SIZE)
    return patch(patch(text, a, other), b, one)
  end },
  { "an inner page that is its own child", function(text)
    local at = (inner[1] - 1) * SIZE
    return patch(text, at + 8, (">I4"):pack(inner[1]))
  end },
  { "an index of other ids", function(text) -- the index of trials holds what the table does not
    local at = text:find("done", (leaves[1] - 1) * SIZE + 1, true)
    return patch(text, at - 1, "dome")
  end },
  { "bits flipped in a hundred places", function(text)
    math.randomseed(7)
    for _ = 1, 100 do
      local at = math.random(4096, #text - 1)
      text = patch(text, at, string.char(text:byte(at + 1) ~ 1 << math.random(0, 7)))
    end
    return text
  end },
}

-- ---- Repair -----------------------------------------------------------------------------------

local function copy_of_plain()
  local dir = folder .. "/hurt"
  os.execute(("rm -rf '%s' && cp -r '%s/plain' '%s'"):format(dir, folder, dir))
  return dir
end

-- Checks that the same command ends with the results of an undisturbed run. said: the output of the
-- repair.
local function check_run(dir, said)
  local code, shown = toeplab(RUN:format "hurt")
  t.ok(code == 0, shown)
  code, shown = toeplab(RUN:format "hurt")
  t.eq(code, 0)
  t.eq(shown, TABLE)
  t.ok(results(dir) == WANTED, "other results after: " .. said)
end

-- Repairs the folder, runs it again, and compares the results.
local function check_repair(dir)
  local code, said = toeplab(("fsck -C '%s'"):format(dir))
  t.eq(code, 6)
  code, said = toeplab(("fsck --repair -C '%s'"):format(dir))
  t.ok(code == 0, said)
  t.ok(said:find("mended", 1, true), said)
  local again, after = toeplab(("fsck -C '%s'"):format(dir))
  t.ok(again == 0, after)
  t.ok(results(dir) == WANTED, "other results after: " .. said)
  check_run(dir, said)
  return said
end

for _, damage in ipairs(damages) do
  t.test(damage[1], function()
    local dir = copy_of_plain()
    t.write(dir .. "/runs.db", damage[2](DATABASE))
    local said = check_repair(dir)
    io.write("# ", said:match "[^\n]*rebuilt[^\n]*" or said:match "[^\n]*", "\n")
  end)
end

t.test("a schema of the future is a newer program's: refused, and left as it is", function()
  local dir = copy_of_plain()
  local future = patch(DATABASE, 60, "\0\0\0\x55")
  t.write(dir .. "/runs.db", future)
  for _, command in ipairs { "fsck -C '%s'", "fsck --repair -C '%s'", "ls -C '%s'" } do
    local code, said = toeplab(command:format(dir))
    t.eq(code, 6)
    t.ok(said:find("its schema version 85 is newer than", 1, true), said)
  end
  t.ok(t.read(dir .. "/runs.db") == future)
end)

-- ---- A write-ahead log ------------------------------------------------------------------------

-- All pages are in the log too, as after the death of a writer; the pages in the database are older
-- and in another order.
local function with_log()
  local dir = copy_of_plain()
  local store = core.store(dir, "w")
  store:exec "VACUUM"
  store:exec "UPDATE trials SET notes = 'in the log'"
  local log = t.read(dir .. "/runs.db-wal")
  store:close()
  t.write(dir .. "/runs.db", DATABASE)
  t.write(dir .. "/runs.db-wal", log)
  core.sys.remove(dir .. "/runs.db-shm")
  return dir, log
end

local FRAME = SIZE + 24

-- Each case: a name, a function that damages the bytes of database and log (nil removes the log),
-- and whether fsck must report something: losing a log means going back to an older state.
local logs = {
  { "a log, and the first page zeroed", function(text, log) return zero(1)(text), log end },
  { "a log, and half the database", function(text, log) return text:sub(1, #text // 2), log end },
  { "a missing log", function(text) return text end },
  { "half a log", function(text, log) return text, log:sub(1, #log // 2) end },
  { "a log of noise", function(text, log) return text, noise(#log, 3) end },
  { "a missing log of which half was copied", function(text, log)
    for i = 0, PAGES // 2 do
      local frame = log:sub(33 + i * FRAME, 32 + (i + 1) * FRAME)
      text = patch(text, ((">I4"):unpack(frame) - 1) * SIZE, frame:sub(25))
    end
    return text
  end, true },
  { "a log with a database whose header is no more", function(text, log)
    text = patch(zero(table.unpack(inner))(text), 0, "no magic")
    return text, patch(log, 40 * FRAME, noise(9, 1))
  end, true },
}

for _, damage in ipairs(logs) do
  t.test(damage[1], function()
    local dir, log = with_log()
    local text
    text, log = damage[2](DATABASE, log)
    t.write(dir .. "/runs.db", text)
    if log then t.write(dir .. "/runs.db-wal", log) else os.remove(dir .. "/runs.db-wal") end
    if damage[3] then
      check_repair(dir)
    else
      check_run(dir, "")
    end
  end)
end

t.test("the folder is removed", function() assert(os.execute("rm -rf '" .. folder .. "'")) end)

t.done()
