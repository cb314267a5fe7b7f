-- test_check.lua: what fsck finds in a database that something else has written to, what it
-- repairs, and what is then left.
local t = require "harness"
local check = require "toeplab.store.check"
local records = require "toeplab.store.records"
local stores = require "stores"

local ID = stores.id "a"
local FOLDER = "runs/" .. ID:sub(1, 12)

-- An experiment of two trials that are done, the first with a file.
local function fill(folder)
  stores.fill(folder, {
    { name = "a", experiment = "x", config = { n = 1 }, metrics = { loss = { 3, 2 } },
      files = { step = "state" }, step = 4 },
    { name = "b", experiment = "x", config = { n = 2 }, metrics = { loss = { 4 } } },
  })
end

-- Damage by a statement that the constraints of the schema would refuse.
local function by(sql)
  return function(folder)
    local store <close> = records.open(folder, "w")
    store.store:exec "PRAGMA foreign_keys = OFF"
    store.store:exec((sql:gsub("$ID", ID)))
  end
end

-- Damage to the index of statuses, whose entries then are those of no row.
local function to_an_index(folder)
  local root, size
  do
    local store <close> = records.open(folder, "w")
    root = store:rows("SELECT rootpage FROM sqlite_schema WHERE name = 'trials_status'")[1].rootpage
    size = store:rows("PRAGMA page_size")[1].page_size
  end
  local text = t.read(folder .. "/runs.db")
  local page, count = text:sub((root - 1) * size + 1, root * size):gsub("done", "dona")
  t.eq(count, 2)
  t.write(folder .. "/runs.db", text:sub(1, (root - 1) * size) .. page .. text:sub(root * size + 1))
end

-- Other contents of a file of the folder.
local function of_file(path, change)
  return function(folder)
    records.open(folder, "w"):close() -- it writes the files
    local whole = folder .. "/" .. path
    t.write(whole, change(t.read(whole)))
  end
end

local MADE, WRITTEN = "rebuilt", "written again from the database"
local JOURNAL = FOLDER .. "/events-1.jnl"

-- name, damage, what is found: {text (a plain part), lost, how it is repaired} each; how many of
-- these the repair finds (nil: all), since a database that is made again has no other faults; what
-- the second repair still finds; a query and what it gives in the end
local cases = {
  { "nothing", function() end, {}, nil, 0, "SELECT count(*) AS n FROM trials", '{"n":2}' },
  { "an empty journal", of_file(JOURNAL, function() return "" end), {
    { JOURNAL .. ": is not the journal of the attempt", true, WRITTEN } }, nil, 0,
    "SELECT status FROM trials WHERE id = '" .. ID .. "'", '{"status":"done"}' },
  { "a journal of another trial", of_file(JOURNAL, function(text)
      return (text:gsub("= %x+\n$", "")):gsub("begin 1 ", "begin 2 ") .. "= 0000000000000000\n"
    end), { { JOURNAL .. ": a record is damaged", true, WRITTEN } }, nil, 0,
    "SELECT status FROM trials WHERE id = '" .. ID .. "'", '{"status":"done"}' },
  { "garbage in the file of a sweep", of_file("sweeps/1.json", function() return "garbage" end), {
    { "sweeps/1.json: is not the file of a sweep", true, WRITTEN } }, nil, 0,
    "SELECT count(*) AS n FROM members", '{"n":2}' },
  { "a trial whose id is a path", by "UPDATE trials SET id = '../up' WHERE id = '$ID'", {
    { "runs.db: 4 rows refer to missing rows; the first is in table members", true, MADE },
    { "the id of trial '../up' is not a sha256: this program did not write the row", true, MADE },
    { FOLDER .. ": no trial has that name", false } }, 1, 0,
    "SELECT count(*) AS n FROM trials WHERE id = '" .. ID .. "'", '{"n":1}' },
  { "a file outside of the folder", by "UPDATE artifacts SET path = '../../etc/passwd'", {
    { "this program did not write the row of file '../../etc/passwd' of trial '" .. ID, true,
      MADE },
    { FOLDER .. "/step-00000004.h5: no row mentions it", false } }, 1, 0,
    "SELECT path FROM artifacts", ('{"path":"%s/step-00000004.h5"}'):format(FOLDER) },
  { "a trial that was deleted alone", by "DELETE FROM trials WHERE id = '$ID'", {
    { "runs.db: 4 rows refer to missing rows; the first is in table members", true, MADE },
    { FOLDER .. ": no trial has that name", false } }, 1, 0,
    "SELECT count(*) AS n FROM metrics", '{"n":3}' },
  { "a sweep that was deleted alone", by "DELETE FROM sweeps", {
    { "runs.db: 4 rows refer to missing rows", true, MADE } }, nil, 0,
    "SELECT count(*) AS n FROM trials WHERE sweep = 1", '{"n":2}' },
  { "a journal that is gone", function(folder)
    by "SELECT 1"(folder)
    os.remove(folder .. "/" .. FOLDER .. "/events-1.jnl")
  end, { { FOLDER .. "/events-1.jnl: is missing", true, "written again from the database" } }, nil,
    0, "SELECT count(*) AS n FROM metrics", '{"n":3}' },
  { "a journal with a bit flipped", function(folder)
    by "SELECT 1"(folder)
    local path = folder .. "/" .. FOLDER .. "/events-1.jnl"
    local text = t.read(path)
    t.write(path, (text:gsub("loss", "lass", 1)))
  end, { { FOLDER .. "/events-1.jnl: a record is damaged", true,
    "written again from the database" } }, nil, 0, "SELECT count(*) AS n FROM metrics", '{"n":3}' },
  { "a last value of another step", by "UPDATE last SET step = 1, value = 3.0 WHERE trial = '$ID'",
    { { "1 last value of metrics disagree", true, MADE } }, nil, 0,
    "SELECT step, value FROM last WHERE trial = '" .. ID .. "'", '{"step":2,"value":2.0}' },
  { "an index", to_an_index, { { "index trials_status", true, MADE } }, nil, 0,
    "SELECT count(*) AS n FROM trials INDEXED BY trials_status WHERE status = 'done'", '{"n":2}' },
}

-- Returns the result of a check and what it found.
local function look(folder, repair)
  local list = {}
  local result = check.run(folder, { repair = repair }, function(item)
    if item.text then list[#list + 1] = item end
  end)
  return result, list
end

local function compare(list, wanted, repaired)
  t.eq(#list, #wanted)
  for i, want in ipairs(wanted) do
    t.holds(list[i].text, want[1])
    t.eq(list[i].lost, want[2])
    t.holds(list[i].how or "", repaired and want[3] or "")
  end
end

for _, case in ipairs(cases) do
  t.test("fsck of " .. case[1], function()
    t.in_folder(function(folder)
      local _, damage, wanted, most, left, sql, row = table.unpack(case, 1, 7)
      fill(folder)
      damage(folder)
      local lost = 0
      for _, want in ipairs(wanted) do lost = lost + (want[2] and 1 or 0) end
      for _ = 1, 2 do -- a check changes nothing
        local result, list = look(folder, false)
        compare(list, wanted, false)
        t.eq({ result.all, result.left, result.copy }, { #wanted, lost, nil })
      end
      local result, list = look(folder, true)
      compare(list, table.move(wanted, 1, most or #wanted, 1, {}), true)
      t.eq(result.left, 0)
      result = look(folder, true)
      t.eq({ result.all, result.left }, { left, 0 })
      t.eq(stores.dump(folder, sql), { row })
    end)
  end)
end

t.test("a report omits a trial that was removed after it ended", function()
  t.in_folder(function(folder)
    fill(folder)
    local store <close> = records.open(folder, "r")
    local function trial(name)
      return { id = stores.id(name), status = "done", config = {}, label = name }
    end
    local list = store:finished { trial "a", trial "removed", trial "b" }
    t.eq({ #list, list[1].label, list[2].label }, { 2, "a", "b" })
  end)
end)

t.done()
