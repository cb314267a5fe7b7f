-- torture_strangers.lua: runs every verb on malicious results folders. Nothing outside the folder
-- may be read, written or deleted, nothing may hang, and no control character may be printed.
--   cd tests/lua && toeplab lua ../torture/torture_strangers.lua [PATTERN [STRIDE]]
-- STRIDE 3 (default 1) runs a third of the verbs on each folder, other ones on the next folder.
local t = require "harness"
local core = require "toeplab.core"

local SCRIPT = [[
local tl = require "toeplab"
return tl.experiment "sweep" {
  fixed = { steps = 20 },
  grid = { rate = { 0.25, 0.5 } },
  seeds = 2,
  checkpoint = { steps = 10 },
  trial = function(t, c)
    local x = tl.zeros(4)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    for step in t:steps(c.steps, part, part) do
      x:copy(x * c.rate + 1)
      t:log { loss = x:mean():item() }
    end
    io.write("in the log\n")
    t:text("note", "a note")
  end,
  report = { rows = "rate", columns = { "loss" } },
}
]]

local CANARY = "CANARY that nobody may read"
local top = os.tmpname()
os.remove(top)
assert(core.sys.mkdir(top .. "/outside/folder"))
t.write(top .. "/sweep.lua", SCRIPT)
t.write(top .. "/outside/precious.txt", CANARY)
t.write(top .. "/outside/folder/log.txt", CANARY)
t.write(top .. "/outside/folder/step-00000020.h5", CANARY)

local function sh(command, ...) assert(os.execute(command:format(...)), command) end

-- Runs the program in the folder top; returns its exit code (124 if it did not end within a minute)
-- and its output.
local function toeplab(words)
  local _, _, code = os.execute(("cd '%s' && timeout 20 '%s' --threads 1 %s >out 2>&1 </dev/null")
    :format(top, core.sys.executable(), words))
  return code, t.read(top .. "/out")
end

assert(toeplab "run -q -C plain sweep.lua" == 0)
assert(toeplab "run -q -C other sweep.lua steps=10" == 0)

-- Describes everything outside the folder as text: names, kinds, times of change, sha256.
local function outside()
  local pipe <close> = io.popen(("cd '%s' && find outside -printf '%%p %%y %%T@ ' -exec sh -c "
    .. "'test -f \"$1\" && sha256sum <\"$1\" || echo' sh {} \\;"):format(top))
  return pipe:read "a"
end

local before = outside()

-- ---- Folders ----------------------------------------------------------------------------------

local ID = "(SELECT min(id) FROM trials)"
local SUM = core.sha256(CANARY)

-- Executes statements on the database of a folder, ignoring its constraints.
local function sql(...)
  local list = { ... }
  return function(dir)
    local store = assert(core.store(dir, "w"))
    store:exec "PRAGMA foreign_keys = OFF"
    store:exec "PRAGMA ignore_check_constraints = ON"
    for _, statement in ipairs(list) do store:exec(statement) end
    store:close()
  end
end

-- Replaces the file that pattern names by a link to target (relative to top).
local function link(pattern, target)
  return function(dir)
    sh("cd '%s' && for f in %s; do rm -rf \"$f\"; ln -s '%s/%s' \"$f\"; break; done", dir, pattern,
      top, target)
  end
end

local function file_row(path, sum)
  return sql(("UPDATE artifacts SET path = %s, bytes = %d, sha256 = '%s' WHERE trial = %s AND kind "
    .. "= 'note'"):format(path, #CANARY, sum or SUM, ID))
end

local ODD = ("CAST(x'%s' AS TEXT)"):format(("\27[31mred\27]0;title\7\194\155 2J\226\128\174 "
  .. "\255\0end"):gsub(".", function(c) return ("%02x"):format(c:byte()) end))

-- name, what is done to a copy of `plain`, what merge must say as it refuses (true: it takes all
-- trials over)
local folders = {
  { "a path with dots", file_row "'../outside/precious.txt'", "outside/precious.txt" },
  { "a path out of its own folder",
    file_row("'runs/' || substr(trial, 1, 12) || '/../../../outside/precious.txt'"),
    "outside/precious.txt" },
  { "an absolute path", file_row(("'%s/outside/precious.txt'"):format(top)), "precious.txt" },
  { "a path to another trial", file_row "'runs/000000000000/note-00000020.txt'", "000000000000" },
  { "a path with a newline", file_row("'runs/' || substr(trial, 1, 12) || '/a\nb'"),
    "did not write" },
  { "a file that is a link", function(dir)
    link("runs/*/note-*.txt", "outside/precious.txt")(dir)
    sql(("UPDATE artifacts SET bytes = %d, sha256 = '%s' WHERE kind = 'note'")
      :format(#CANARY, SUM))(dir)
  end, "symbolic link" },
  { "a checkpoint that is a link", link("runs/*/step-00000020.h5", "outside/precious.txt"),
    "symbolic link" },
  { "a checkpoint that is a pipe", function(dir)
    sh("cd '%s' && for f in runs/*/step-00000020.h5; do rm $f; mkfifo $f; done", dir)
  end, "is not a regular file" },
  { "a log that is a pipe", function(dir)
    sh("cd '%s' && for f in runs/*/; do rm -f $f/log.txt; mkfifo $f/log.txt; done", dir)
  end },
  { "a stale journal that is a pipe", function(dir)
    sh("cd '%s' && for f in runs/*/; do mkfifo $f/events-9.jnl; done", dir)
  end },
  { "claims that are pipes", function(dir)
    sh("cd '%s' && mkdir claims && mkfifo claims/%s-1", dir,
      ("0"):rep(12))
  end },
  { "a submission that is none, and its lock a pipe", function(dir)
    sh("cd '%s' && mkdir -p slurm/1 && mkfifo slurm/lock && echo '%s' >slurm/1/job", dir,
      '{"name":3,"job":[],"each":"x","trials":[1,{"id":2}]}')
  end },
  { "a log that is a link", link("runs/*/log.txt", "outside/precious.txt") },
  { "a trial that is a link", link("runs/*", "outside/folder"), "symbolic link" },
  { "runs that is a link", link("runs", "outside/folder"), "symbolic link" },
  { "a database that is a link", function(dir)
    sh("mv '%s/runs.db' '%s/outside.db' && ln -s '%s/outside.db' '%s/runs.db'", dir, top, top, dir)
  end, "symbolic link" },
  { "a lock that is a link", function(dir)
    link("lock", "outside/precious.txt")(dir)
  end, "symbolic link" },
  { "a write-ahead log that leads nowhere", link("runs.db-wal", "outside/new"), "symbolic link" },
  { "folders and logs that are links", function(dir)
    for _, name in ipairs { "reports", "figures", "changes", "claims",
      "worker-1.log" } do
      sh("ln -sfn '%s/outside/%s' '%s/%s'", top, name == "worker-1.log" and "log" or "folder", dir,
        name)
    end
  end },
  { "a journal that is a link", function(dir)
    sql("UPDATE trials SET status = 'running', pid = 4194305, host = '" .. core.sys.hostname()
      .. "'", "INSERT INTO journals SELECT id, attempt, 0 FROM trials")(dir)
    sh("cd '%s/runs' && for f in *; do ln -sf '%s/outside/precious.txt' $f/events-1.jnl; done", dir,
      top)
  end },
  { "ids that lead outside", sql("UPDATE trials SET id = '../../outside', trashed = 5 WHERE id = "
    .. ID), "../../outside" },
  { "ids that are no hashes", sql("UPDATE artifacts SET trial = '../outside/folder' WHERE trial = "
    .. ID, "UPDATE trials SET id = '../outside/folder' WHERE id = " .. ID), "../outside/folder" },
  { "an id of blanks", sql("UPDATE trials SET id = '' WHERE id = " .. ID), "is not a sha256" },
  { "a trigger", sql("CREATE TRIGGER swallow BEFORE INSERT ON metrics BEGIN SELECT raise(IGNORE); "
    .. "END"), true },
  { "a trigger on trials", sql("CREATE TRIGGER hide AFTER UPDATE ON trials BEGIN DELETE FROM "
    .. "metrics; END"), true },
  { "an endless view", sql("DROP VIEW v_last", "CREATE VIEW v_last AS WITH RECURSIVE n (i) AS "
    .. "(VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT 'x' AS trial, 'y' AS name, i AS step, "
    .. "0.5 AS value FROM n"), true },
  { "a view of what is no table", sql("DROP VIEW v_trials", "CREATE VIEW v_trials AS SELECT "
    .. "t.*, load_extension('x.so') AS code FROM trials t, pragma_database_list"), true },
  { "a table more", sql "CREATE TABLE more (x)", true },
  { "a table less", sql("DROP TABLE events"), "no such table: events" },
  { "columns of other types", sql(
    "UPDATE trials SET pid = 'abc', started = 'then', finished = x'00', step = 'far', seed = 'x', "
    .. "seconds = 'long', attempt = 'none', created = 'x', git_dirty = 'y', status = 'running'") },
  { "a status of no name", sql "UPDATE trials SET status = 'odd', ended = x'FF'" },
  { "configurations that are none", sql "UPDATE trials SET config = 'x{', provenance = '[1'" },
  { "configurations that are lists", sql "UPDATE trials SET config = '[1]', provenance = '7'" },
  { "provenance of other shapes", sql([=[UPDATE trials SET provenance =
    '{"label":[1],"environment":7,"build":"x","data":3,"changes":{"a":1},"threads":[]}']=]) },
  { "provenance of tables", sql([=[UPDATE trials SET provenance =
    '{"label":"x","environment":{"a":{"b":1}},"build":[[1]],"threads":{"a":1},"version":[]}']=]) },
  { "metrics of text", sql("UPDATE metrics SET value = 'text', at = 'x'",
    "UPDATE last SET value = 'text', step = 'x'") },
  { "blobs for names", sql(
    "INSERT INTO metrics SELECT trial, x'FF00', step, value, at FROM metrics",
    "UPDATE trials SET experiment = x'1B5B'") },
  { "files of other types", sql("UPDATE artifacts SET bytes = 'many', sha256 = 7, "
    .. "step = kind || step, kind = x'1B'") },
  { "sweeps of other types", sql "UPDATE sweeps SET plan = '[]', script = x'00', source = x'1B'" },
  { "plans that are none", sql "UPDATE sweeps SET plan = 'x', created = 'then', scale = x'1B'" },
  { "a script in the folder", function(dir)
    local text = ("io.open('%s/outside/run', 'w'):close()\n"):format(top)
    t.write(dir .. "/evil.lua", text)
    sql("UPDATE sweeps SET script = 'hurt/evil.lua', sha256 = '" .. core.sha256(text) .. "'")(dir)
  end },
  { "an experiment whose name is a path", sql("UPDATE trials SET experiment = '../../outside/x'",
    "UPDATE sweeps SET experiment = '../../outside/x'") },
  { "control characters everywhere", sql(("UPDATE trials SET experiment = %s, error = %s, tags = "
    .. "%s, notes = %s, host = %s, command = %s, status = 'failed', provenance = "
    .. "json_object('label', %s, 'version', %s)"):format(ODD, ODD, ODD, ODD, ODD, ODD, ODD, ODD),
    ("UPDATE trials SET config = json_object(%s, 'a', 'b', %s)"):format(ODD, ODD),
    ("INSERT INTO metrics SELECT trial, %s, step, value, at FROM metrics"):format(ODD),
    ("UPDATE artifacts SET kind = %s || step || kind"):format(ODD),
    ("INSERT INTO events (trial, kind, text) SELECT id, %s, %s FROM trials"):format(ODD, ODD),
    ("UPDATE sweeps SET experiment = %s, script = %s, source = %s, command = %s"):format(ODD, ODD,
      ODD, ODD)) },
  { "a text of 20 MB", sql "UPDATE trials SET error = hex(zeroblob(10000000)), notes = 'x'" },
  { "a page that is its own child", function(dir)
    local text, at = t.read(dir .. "/runs.db"), nil
    for n = 2, #text // 4096 do
      if text:byte((n - 1) * 4096 + 1) == 10 then at = (n - 1) * 4096 end
    end
    -- an inner page of 300 cells, each pointing to the page itself
    local child = (">I4"):pack(at // 4096 + 1)
    local page = { "\5\0\0", (">I2I2"):pack(300, 1000), "\0", child }
    for i = 0, 299 do page[#page + 1] = (">I2"):pack(1000 + 5 * i) end
    page = table.concat(page)
    page = page .. ("\0"):rep(1000 - #page) .. (child .. "\1"):rep(300)
    page = page .. ("\0"):rep(4096 - #page)
    for n = 2, #text // 4096 do
      if text:byte((n - 1) * 4096 + 1) == 13 then
        text = text:sub(1, (n - 1) * 4096) .. page .. text:sub(n * 4096 + 1)
      end
    end
    t.write(dir .. "/runs.db", text)
  end },
}

-- ---- Verbs ------------------------------------------------------------------------------------

local reading = { "ls", "ls --csv", "ls --json", "status", "status --json", "show @all",
  "show --json @all", "show --script @last", "ls --failures", "ls --failures --json",
  "table sweep", "table",
  "report sweep -o page.html", "report ../../outside/x", "report 1", "plot --term", "compare rate",
  "export", "export --json", "export --metrics", "export --metrics --json", "doctor",
  "show --diff @last @best:loss", "plan sweep.lua", "run --list sweep.lua", "rm --dry-run @all",
  "ls --sql 'SELECT * FROM v_trials'", "ls --json --sql 'SELECT * FROM v_metrics'",
  "mark @last",
  "generate @last", "generate @last -o m.h5", "fsck", "fsck --json", "fsck --quick",
  "rm --purge --dry-run" }

-- Each verb runs on a folder of its own.
local writing = { "run -q sweep.lua", "run sweep.lua --report", "rm --purge --days 0",
  "fsck --repair", "rm @all", "rm --restore @all", "mark @all -t x", "merge other" }

local good = { [0] = true, true, true, [4] = true, [5] = true, [6] = true }

-- Returns what is wrong with the exit or the output of the program; nil: nothing. data: the output
-- goes to a file, not to a terminal, and must be as stored.
local function wrong(code, said, data)
  if not good[code] then return "exit code " .. tostring(code) end
  for _, word in ipairs { "CANARY", "stack traceback", "attempt to", "bad argument" } do
    if said:find(word, 1, true) then return "it says " .. word end
  end
  local control = said:find "[\0-\8\11-\31\127]" or said:find "\194[\128-\159]"
    or said:find "\226\128[\168-\174]"
  if control and not data then
    return ("it prints a control character: %q"):format(said:sub(control, control + 9))
  end
  if not utf8.len(said) and not data then return "it prints what is no UTF-8" end
end

-- Returns all that is wrong after running the words on the folder named dir there; reads: changes
-- outside are checked later.
local function try(list, dir, words, reads)
  local code, said = toeplab(("%s -C %s"):format(words, dir))
  local why = wrong(code, said, words:find("--script", 1, true) ~= nil)
  if not reads and outside() ~= before then
    why = "something outside has changed:\n" .. outside()
  end
  if why then list[#list + 1] = ("%s: %s\n    %s"):format(words, why, said:sub(1, 300)) end
  return code, said
end

local stride = tonumber(arg[2] or 1)
for number, folder in ipairs(folders) do
  local function has_turn(i) return (i + number) % stride == 0 end
  t.test(folder[1], function()
    local list = {}
    local function fresh()
      sh("rm -rf '%s/hurt' '%s/ours' '%s/outside.db' && cp -r '%s/plain' '%s/hurt'", top, top, top,
        top, top)
      folder[2](top .. "/hurt")
    end
    fresh()
    for i, words in ipairs(reading) do
      if has_turn(i) then try(list, "hurt", words, i + stride <= #reading) end
    end
    for i, words in ipairs(writing) do
      if has_turn(i) then
        fresh()
        try(list, "hurt", words)
      end
    end
    fresh()
    local code, said = try(list, "ours", "merge hurt")
    local fine = not folder[3]
      or folder[3] == true and code == 0 and said:find("4 added", 1, true)
      or folder[3] ~= true and code == 6 and said:find(folder[3], 1, true)
    if not fine then
      list[#list + 1] = ("merge: exit code %s: %s"):format(code, said:sub(1, 300))
    end
    t.ok(#list == 0, table.concat(list, "\n  "))
  end)
end

t.done()
