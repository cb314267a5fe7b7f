-- test_versions.lua: stores of every earlier schema are upgraded, with a backup, and keep their
-- rows.
local t = require "harness"
local core = require "toeplab.core"
local records = require "toeplab.store.records"

local NEWEST = 7

-- The statements of schema.sql up to a version, in order.
local function statements(version)
  local text = t.read(t.root .. "core/store/schema.sql")
  text = text:gsub("%-%- version " .. version + 1 .. "\n.*", "")
  local list, part = {}, ""
  for line in text:gmatch "[^\n]*\n" do
    part = part .. line
    if line:find ";%s*$" or line:find "; +%-%- " then
      list[#list + 1], part = part, ""
    end
  end
  return list
end

-- Makes a store of an old version, with one trial of 5 seconds and two metrics.
local function make(folder, version)
  local store <close> = records.open(folder, "w")
  local function run(sql) store.store:exec(sql) end
  run "PRAGMA foreign_keys = OFF"
  for _, kind in ipairs { "view", "table" } do
    for _, row in ipairs(store:rows([[SELECT name FROM sqlite_schema WHERE type = ?
      AND name NOT LIKE 'sqlite_%']], { kind })) do
      run(("DROP %s %s"):format(kind, row.name))
    end
  end
  for _, sql in ipairs(statements(version)) do run(sql) end
  run [[INSERT INTO sweeps (id, experiment, script, sha256, source, command)
    VALUES (3, 'x', 'x.lua', 'h', '-- x', 'toeplab run x.lua')]]
  run [[INSERT INTO trials (id, sweep, experiment, status, seed, started, finished)
    VALUES ('a', 3, 'x', 'done', 7, 100.0, 105.0)]]
  if version >= 3 then run "UPDATE trials SET seconds = 5.0" end
  run [[INSERT INTO metrics (trial, name, step, value)
    VALUES ('a', 'loss', 1, 2.5), ('a', 'loss', 2, 1.5)]]
  run "INSERT INTO last VALUES ('a', 'loss', 2, 1.5)"
  run("PRAGMA user_version = " .. version)
end

local function check(store)
  t.eq(store:rows "SELECT id, sweep, experiment, status, seed, seconds FROM v_trials",
    { { id = "a", sweep = 3, experiment = "x", status = "done", seed = 7, seconds = 5.0 } })
  t.eq(store:rows "SELECT step, value FROM v_last", { { step = 2, value = 1.5 } })
  t.eq(store:rows "PRAGMA user_version"[1].user_version, NEWEST)
  t.eq(store:rows "PRAGMA integrity_check"[1].integrity_check, "ok")
end

t.test("a new store has the newest schema", function()
  t.in_folder(function(folder)
    local store <close> = records.open(folder, "w")
    t.eq(store:rows "PRAGMA user_version"[1].user_version, NEWEST)
    t.eq(#statements(NEWEST), #statements(NEWEST + 1))
    t.ok(#statements(NEWEST) > #statements(NEWEST - 1))
  end)
end)

t.test("a clock beyond the year 9999 is an error before anything is written", function()
  t.in_folder(function(folder)
    local time = os.time
    os.time = function() return 253402300800 end -- luacheck: ignore
    local ok, why = pcall(records.open, folder, "w")
    os.time = time -- luacheck: ignore
    t.eq(ok, false)
    t.holds(tostring(why), "the clock of this machine is beyond the year 9999")
    t.eq(core.sys.list(folder), {})
  end)
end)

for version = 1, NEWEST - 1 do
  t.test(("a store of version %d is refused to readers, and upgraded to write"):format(version),
    function()
      t.in_folder(function(folder)
        make(folder, version)
        t.raises(records.open, ("its schema version %d is old; the next run there"):format(version),
          folder, "r")
        t.raises(records.open, "fsck %-%-repair %-C '?" .. folder:gsub("%p", "%%%0"), folder, "r")
        do
          local store <close> = records.open(folder, "w")
          check(store)
        end
        do -- its schema is the same as that of a new store
          local store <close> = records.open(folder, "r")
          check(store)
        end
        t.ok(core.sys.exists(folder .. "/runs.db.v" .. version), "there is no backup")
      end)
    end)
end

t.done()
