-- test_journal.lua: the way from a trial to its rows: words, records, torn and damaged ones, and
-- that each is taken over once.
local core = require "toeplab.core"
local journal = require "toeplab.store.journal"
local records = require "toeplab.store.records"
local stores = require "stores"
local t = require "harness"
local wire = require "toeplab.base.wire"

local in_folder = t.in_folder

local awkward = { "", "%", "-", "+", " ", "a b\n= 0123456789abcdef\n", "%41", "\0\1\r\127\255",
  "true", "nan", "12", 0, -7, math.maxinteger, math.mininteger, 0.1, -0.0, 5e-324, 1e308, math.pi,
  math.huge, -math.huge, true, false }

t.test("a line decodes to its values, bit for bit", function()
  local line = wire.line(table.unpack(awkward))
  t.eq(select(2, line:gsub("\n", "")), 1)
  local back = wire.parse(line:sub(1, -2))
  t.eq(back.n, #awkward)
  for i, value in ipairs(awkward) do
    t.eq({ math.type(back[i]) or type(back[i]), back[i] }, { math.type(value) or type(value),
      value })
  end
  t.eq(1 / back[17], -math.huge)
  local holes = wire.parse(wire.line(nil, 0 / 0, nil):sub(1, -2))
  t.eq({ holes.n, holes[1] == nil, holes[2] ~= holes[2], holes[3] == nil }, { 3, true, true, true })
end)

t.test("lines are decoded from pieces of any size", function()
  local text = wire.line("a", 1) .. wire.line("b c\n", 2.5)
  for size = 1, #text do
    local read, lines = wire.reader(), {}
    for from = 1, #text, size do
      table.move(read(text:sub(from, from + size - 1)), 1, #text, #lines + 1, lines)
    end
    t.eq({ #lines, lines[1][1], lines[2][1], lines[2][2] }, { 2, "a", "b c\n", 2.5 })
  end
end)

local function bytes(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- A journal of three records at path; returns its text and where they end.
local function three(path)
  local w, ends = journal.writer(path), {}
  for i = 1, 3 do
    w:add({ { "metric", i, "loss", i + 0.5 }, { "event", i, "note", "a b\n" } }, i == 2)
    ends[i] = core.sys.size(path)
  end
  w:close()
  return bytes(path), ends
end

t.test("a torn record is not read, wherever it is torn", function()
  in_folder(function(folder)
    local path = folder .. "/j"
    local text, ends = three(path)
    for size = 0, #text do
      t.write(path, text:sub(1, size))
      local whole = 0
      while whole < 3 and ends[whole + 1] <= size do whole = whole + 1 end
      local lines, offset, why = journal.read(path, 0)
      t.eq({ #lines, offset, why == nil }, { 2 * whole, whole > 0 and ends[whole] or 0, true })
    end
    t.eq({ journal.read(folder .. "/none", 0) }, { {}, 0 })
  end)
end)

t.test("a journal that is missing or shorter is damaged; an unreadable one is an error",
  function()
    in_folder(function(folder)
      local path = folder .. "/j"
      local text = three(path)
      t.eq({ journal.read(folder .. "/none", 7) }, { {}, 7, "it is gone" })
      t.eq({ journal.read(path, #text) }, { {}, #text })
      t.eq({ journal.read(path, #text + 1) }, { {}, #text + 1, "it has been cut" })
      for _, other in ipairs { folder, path .. "/x" } do -- cannot be read, cannot be opened
        local ok, why = pcall(journal.read, other, 0)
        t.eq({ ok, why.code }, { false, 6 })
        t.ok(why.message:find(other, 1, true), why.message)
      end
  end)
end)

t.test("a record with a changed byte is damaged; others can still be read", function()
  in_folder(function(folder)
    local path = folder .. "/j"
    local text, ends = three(path)
    for at = ends[1] + 1, ends[2] - 20 do -- all of its lines; the hash stays
      local other = string.char(text:byte(at) ~ 1)
      t.write(path, text:sub(1, at - 1) .. other .. text:sub(at + 1))
      for _, case in ipairs { { false, 2, ends[1] }, { true, 4, ends[3] } } do
        local lines, offset, why = journal.read(path, 0, case[1])
        t.eq({ #lines, offset, why }, { case[2], case[3], "a record is damaged" })
      end
    end
  end)
end)

t.test("a record may be larger than one read", function()
  in_folder(function(folder)
    local w, long = journal.writer(folder .. "/j"), ("x y"):rep(1 << 19)
    w:add { { "event", 1, "note", long } }
    w:add { { "event", 2, "note", "" } }
    w:close()
    local lines, offset = journal.read(folder .. "/j", 0)
    t.eq(lines[1][4] == long, true)
    local more = #lines == 1 and journal.read(folder .. "/j", offset)[1] or lines[2]
    t.eq(more[2], 2)
  end)
end)

t.test("after a failed write the writer accepts nothing", function()
  if not core.sys.exists("/dev/full") then t.skip "there is no /dev/full" end
  local w = journal.writer "/dev/full"
  for _ = 1, 2 do
    local ok, why = pcall(w.add, w, { { "metric", 1, "loss", 1.0 } })
    t.eq({ ok, why.status }, { false, "ENOSPC" })
    w.path = "not the full one" -- the second time it is not even tried
  end
  t.ok(tostring(w.broken):find "/dev/full")
end)

t.test("a journal is in use until its writer closes it", function()
  in_folder(function(folder)
    local path = folder .. "/j"
    t.eq(journal.in_use(path), false)
    local w = journal.writer(path)
    t.eq(journal.in_use(path), true)
    w:close()
    t.eq(journal.in_use(path), false)
  end)
end)

-- ---- Into the store ---------------------------------------------------------------------------

local function with_trial(fn)
  in_folder(function(folder)
    stores.fill(folder, { { name = "a", experiment = "x", config = {} } })
    local store <close> = records.open(folder, "w")
    local id = stores.id "a"
    local path = "runs/" .. id:sub(1, 12)
    core.sys.remove(folder .. "/" .. journal.path(path, 1))
    store:rows("INSERT INTO journals VALUES (?, 1, 0)", { id })
    fn(store, id, path, folder .. "/" .. journal.path(path, 1))
  end)
end

local function events(store)
  local list = {}
  for i, row in ipairs(store:rows "SELECT step FROM v_events ORDER BY rowid") do
    list[i] = row.step
  end
  return list
end

t.test("a journal is copied once, and continues where it was left", function()
  with_trial(function(store, id, path, file)
    local w <close> = setmetatable({}, { __close = function(w) w.it:close() end })
    w.it = journal.writer(file)
    w.it:add { { "event", 1, "note", "" }, { "metric", 1, "loss", 0 / 0 } }
    t.eq(store:take { id = id, path = path, attempt = 1 }, false)
    t.eq(store:take { id = id, path = path, attempt = 1 }, false)
    t.eq(events(store), { 1 })
    t.eq(store:rows("SELECT bytes FROM journals")[1].bytes, core.sys.size(file))
    w.it:add { { "event", 2, "note", "" }, { "metric", 1, "loss", 2.0 } }
    w.it:add { { "end", "done", nil, nil, 7.5, n = 5 } }
    t.eq(store:take { id = id, path = path, attempt = 1 }, true)
    t.eq(events(store), { 1, 2 })
    local row = store:rows("SELECT status, seconds FROM trials")[1]
    t.eq({ row.status, row.seconds }, { "done", 7.5 })
    local metrics = store:rows "SELECT step, value FROM v_metrics"
    t.eq({ #metrics, metrics[1].value }, { 1, 2.0 }) -- the last one counts
  end)
end)

t.test("lines apply in order: forget affects only earlier lines", function()
  with_trial(function(store, id, path, file)
    local w = journal.writer(file)
    local hash = ("0"):rep(64)
    w:add { { "metric", 5, "loss", 1.0 }, { "metric", 9, "loss", 9.0 } }
    w:add { { "metric", 50, "size", 1.0, 5 }, { "metric", 2, "size", 2.0, 7 } } -- at steps 5 and 7
    w:add { { "artifact", "checkpoint", 4, path .. "/step-4", 1, hash }, { "step", 4, 1.0 },
      { "artifact", "checkpoint", 8, path .. "/step-8", 1, hash }, { "drop", path .. "/step-4" } }
    w:add { { "forget", 5 } }
    w:add { { "metric", 6, "loss", 6.0 } }
    w:close()
    store:take { id = id, path = path, attempt = 1 }
    local steps = {}
    for i, row in ipairs(store:rows "SELECT step FROM v_metrics ORDER BY step") do
      steps[i] = row.step
    end
    t.eq(steps, { 5, 6, 50 })
    t.eq(store:rows("SELECT value FROM v_last WHERE name = 'loss'")[1].value, 6.0)
    t.eq(#store:rows "SELECT 1 FROM v_artifacts", 0)
    t.eq(store:rows("SELECT step FROM trials")[1].step, 5)
  end)
end)

t.test("the part of a journal before the damage is stored, and the damage reported", function()
  with_trial(function(store, id, path, file)
    local text, ends = three(file)
    t.write(file, text:sub(1, ends[2] - 25) .. "X" .. text:sub(ends[2] - 23))
    local ended, why = store:take { id = id, path = path, attempt = 1 }
    t.eq({ ended, why }, { false, "a record is damaged" })
    t.eq(events(store), { 1 })
  end)
end)

t.done()
