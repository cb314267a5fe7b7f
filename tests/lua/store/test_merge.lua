-- test_merge.lua: merging one results folder into another.
local t = require "harness"
local core = require "toeplab.core"
local merge = require "toeplab.store.merge"
local records = require "toeplab.store.records"
local stores = require "stores"

local id, sample = stores.id, stores.sample

local function merged(into, from, dry)
  local other <close> = records.open(from, "r")
  local store <close> = records.open(into, "w")
  return merge.run(store, other, dry)
end

local tables = { "SELECT * FROM metrics", "SELECT * FROM last", "SELECT * FROM artifacts",
  "SELECT * FROM members", "SELECT trial, kind, text FROM events",
  "SELECT * FROM trials" }

local function everything(folder)
  local all = {}
  for i, sql in ipairs(tables) do all[i] = stores.dump(folder, sql) end
  return all
end

t.test("merge copies all trials except running ones; a second merge changes nothing", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/there", sample)
    stores.fill(folder .. "/here", { sample[2] })
    local there <close> = records.open(folder .. "/there", "w")
    there:rows("INSERT INTO events (trial, kind, text) VALUES (?, 'rollback', 'x')", { id "a" })
    there:rows("UPDATE metrics SET at = 9 WHERE name = 'acc'")
    there:close()
    t.eq(merged(folder .. "/here", folder .. "/there", true).add, 3)
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM trials"), 1)
    local told = merged(folder .. "/here", folder .. "/there")
    t.eq({ told.add, told.same, told.busy, told.conflict, #told.damaged }, { 3, 1, 2, 0, 0 })
    local path = "/runs/" .. id("a"):sub(1, 12) .. "/step-00000004.h5"
    t.eq(t.read(folder .. "/here" .. path), "state a")
    local of_a = "SELECT trial, name, step, value, at FROM metrics WHERE trial = '" .. id "a" .. "'"
    t.eq(stores.dump(folder .. "/here", of_a), stores.dump(folder .. "/there", of_a))
    local columns = [[SELECT config, status, ended, error, step, host, seconds, provenance
      FROM trials WHERE status <> 'running']]
    t.eq(stores.dump(folder .. "/here", columns), stores.dump(folder .. "/there", columns))
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM events"), 1)
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM sweeps"), 1)
    local before = everything(folder .. "/here")
    told = merged(folder .. "/here", folder .. "/there")
    t.eq({ told.add, told.same, told.busy }, { 0, 4, 2 })
    t.eq(everything(folder .. "/here"), before)
  end)
end)

local function variant(of, changes)
  local copy = {}
  for key, value in pairs(of) do copy[key] = value end
  for key, value in pairs(changes) do copy[key] = value end
  return copy
end

t.test("merge keeps the trial with more progress", function()
  t.in_folder(function(folder)
    local a, b = sample[1], sample[2]
    stores.fill(folder .. "/here", {
      variant(a, { status = "interrupted", step = 2, metrics = { loss = { 5, 4 } },
        files = { old = "state of 2" } }), b })
    stores.fill(folder .. "/there", { a, variant(b, { status = "interrupted", metrics = {} }) })
    local told = merged(folder .. "/here", folder .. "/there")
    t.eq({ told.replace, told.ahead, told.add }, { 1, 1, 0 })
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM metrics WHERE name = 'loss'"), 6)
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM v_trials WHERE status = 'done'"), 2)
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM artifacts"), 1)
  end)
end)

t.test("a trial that was ended early has less progress than a finished one", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/here", { variant(sample[1], { ended = "pruned", step = 2 }) })
    stores.fill(folder .. "/there", { sample[1] })
    t.eq(merged(folder .. "/here", folder .. "/there").replace, 1)
    t.eq(#stores.dump(folder .. "/here", "SELECT 1 AS x FROM trials WHERE ended IS NULL"), 1)
  end)
end)

t.test("finished trials of other code replace our unfinished members", function()
  t.in_folder(function(folder)
    local a, b = sample[1], sample[2]
    stores.fill(folder .. "/here",
      { a, variant(b, { name = "z", status = "queued", metrics = {} }) })
    stores.fill(folder .. "/there", { variant(a, { name = "y" }), b })
    local told = merged(folder .. "/here", folder .. "/there")
    t.eq({ told.add, told.others }, { 2, 1 })
    local shown = stores.dump(folder .. "/here", [[SELECT json_extract(provenance, '$.label')
      AS name FROM trials JOIN members ON trial = id]])
    t.eq(shown, { '{"name":"a"}', '{"name":"b"}' })
    t.eq(merged(folder .. "/here", folder .. "/there").others, 0)
  end)
  local b = sample[2]
  local waits = variant(b, { name = "z", status = "queued", metrics = {} })
  t.in_folder(function(folder) -- one that was ended early does not
    stores.fill(folder .. "/here", { waits })
    stores.fill(folder .. "/there", { variant(b, { ended = "pruned" }) })
    local told = merged(folder .. "/here", folder .. "/there")
    t.eq({ told.add, told.others }, { 1, 0 })
  end)
  t.in_folder(function(folder) -- nor does one that is in the trash here
    stores.fill(folder .. "/here", { waits, b })
    stores.fill(folder .. "/there", { b })
    local here <close> = records.open(folder .. "/here", "w")
    here:rows "UPDATE trials SET trashed = 1.0 WHERE status = 'done'"
    here:close()
    t.eq(merged(folder .. "/here", folder .. "/there").others, 0)
  end)
end)

t.test("different results of one trial are a conflict, which one event records", function()
  t.in_folder(function(folder)
    local a = sample[1]
    stores.fill(folder .. "/here", { a })
    stores.fill(folder .. "/there", { variant(a, { metrics = { loss = { 5, 4, 3, 2.5 },
      acc = { 0.1, 0.5 }, steps_per_second = { 7 } } }) })
    for _ = 1, 2 do
      local told = merged(folder .. "/here", folder .. "/there")
      t.eq({ told.conflict, told.conflicts[1].id }, { 1, id "a" })
      t.eq(told.conflicts[1].differences, { "loss is 2 at step 4 here and 2.5 at step 4 there" })
    end
    local events = stores.dump(folder .. "/here", "SELECT kind, text FROM events")
    t.eq(#events, 1)
    t.ok(events[1]:find "on elsewhere differ: loss is 2", events[1])
    t.eq(#stores.dump(folder .. "/here", "SELECT 1 AS x FROM metrics WHERE value = 2.5"), 0)
  end)
end)

t.test("only metrics of the machine may differ, whatever letters their names share", function()
  for name, conflicts in pairs { secondary_loss = 1, sentiment_accuracy = 1, timed = 1,
    peak_accuracy = 1, walltime = 0, latency_ms = 0, seconds = 0, steps_per_second = 0,
    peak_mib = 0, ["memory/bytes"] = 0 } do
    t.in_folder(function(folder)
      local a = sample[1]
      stores.fill(folder .. "/here", { variant(a, { metrics = { [name] = { 1 } } }) })
      stores.fill(folder .. "/there", { variant(a, { metrics = { [name] = { 2 } } }) })
      t.eq({ name, merged(folder .. "/here", folder .. "/there").conflict }, { name, conflicts })
    end)
  end
end)

t.test("merge skips a damaged file and its row", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/there", sample)
    local path = "/runs/" .. id("a"):sub(1, 12) .. "/step-00000004.h5"
    t.write(folder .. "/there" .. path, "state A")
    local told = merged(folder .. "/here", folder .. "/there")
    t.eq(told.damaged, { folder .. "/there" .. path })
    t.eq(core.sys.exists(folder .. "/here" .. path), false)
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM artifacts"), 0)
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM trials"), 4)
    t.eq(core.sys.list(folder .. "/here/runs/" .. id("a"):sub(1, 12)), { "events-1.jnl" })
  end)
end)

t.test("a trial with more progress there keeps our tags and notes", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/here", { variant(sample[2], { status = "interrupted", metrics = {} }) })
    stores.fill(folder .. "/there", { sample[2] })
    for name, tag in pairs { here = "mine", there = "theirs" } do
      local store <close> = records.open(folder .. "/" .. name, "w")
      store:mark(id "b", "marks", tag, "seen " .. name)
    end
    t.eq(merged(folder .. "/here", folder .. "/there").replace, 1)
    t.eq(stores.dump(folder .. "/here", "SELECT tags, notes FROM trials"),
      { [[{"notes":"seen here\nseen there","tags":"mine theirs"}]] })
  end)
end)

t.test("a later merge copies a file that was unreadable, and one that we have lost", function()
  local path = "/runs/" .. id("a"):sub(1, 12) .. "/step-00000004.h5"
  local ARTIFACTS = "SELECT trial, kind, step, path, bytes, sha256 FROM artifacts"
  t.in_folder(function(folder)
    local here, there = folder .. "/here", folder .. "/there"
    stores.fill(there, sample)
    local state = t.read(there .. path)
    core.sys.remove(there .. path)
    for _ = 1, 2 do t.eq(merged(here, there).damaged, { there .. path }) end
    t.write(there .. path, state)
    t.eq(merged(here, there, true).files, 1)
    t.eq(core.sys.exists(here .. path), false)
    for _, lost in ipairs { function() end, core.sys.remove,
        function(file) t.write(file, "stat") end } do
      lost(here .. path)
      local told = merged(here, there)
      t.eq({ told.same, told.files, #told.damaged }, { 4, 1, 0 })
      t.eq(t.read(here .. path), state)
      t.eq(stores.dump(here, ARTIFACTS), stores.dump(there, ARTIFACTS))
      t.eq(merged(here, there).files, 0)
    end
  end)
end)

t.test("merge copies no older checkpoint of a trial with more progress here", function()
  t.in_folder(function(folder)
    local broke = variant(sample[1], { status = "interrupted", files = { checkpoint = "state" } })
    stores.fill(folder .. "/here", { sample[1] })
    stores.fill(folder .. "/there", { broke })
    local told = merged(folder .. "/here", folder .. "/there")
    t.eq({ told.ahead, told.files }, { 1, 0 })
  end)
end)

-- Merges the folders there and here into one another until each has seen all, and again.
local function merge_both_ways(folder)
  local here, there = folder .. "/here", folder .. "/there"
  local told = { merged(here, there), merged(there, here) }
  local before = { everything(here), everything(there) }
  for _ = 1, 2 do
    t.eq(merged(there, here).marked + merged(here, there).marked, 0)
    t.eq({ everything(here), everything(there) }, before)
  end
  return told
end

local MARKS = "SELECT tags, notes FROM trials ORDER BY id"

t.test("merge unites tags and notes of both sides, in both directions", function()
  local a = sample[1]
  for what, here in pairs { same = a, ahead = a, conflict = variant(a, { metrics = {} }) } do
    t.in_folder(function(folder)
      stores.fill(folder .. "/here", { here })
      stores.fill(folder .. "/there", { what == "ahead" and variant(a, { status = "interrupted",
        metrics = {} }) or a })
      for name, tags in pairs { here = "both mine", there = "both theirs" } do
        local store <close> = records.open(folder .. "/" .. name, "w")
        store:mark(id "a", "marks", tags, "of both\nseen " .. name)
      end
      local told = merged(folder .. "/here", folder .. "/there", true)
      t.eq({ told[what], told.marked }, { 1, 1 })
      t.eq(stores.dump(folder .. "/here", MARKS),
        { [[{"notes":"of both\nseen here","tags":"both mine"}]] })
      told = merge_both_ways(folder)
      t.eq({ told[1][what], told[1].marked }, { 1, 1 })
      t.eq(stores.dump(folder .. "/here", MARKS),
        { [[{"notes":"of both\nseen here\nseen there","tags":"both mine theirs"}]] })
      if what ~= "ahead" then -- else the trial there has become that of here
        t.eq(stores.dump(folder .. "/there", MARKS),
          { [[{"notes":"of both\nseen there\nseen here","tags":"both mine theirs"}]] })
      end
    end)
  end
end)

t.test("a trial that is in the trash here gets no marks", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/here", { sample[1] })
    stores.fill(folder .. "/there", { sample[1] })
    do
      local there <close> = records.open(folder .. "/there", "w")
      local here <close> = records.open(folder .. "/here", "w")
      there:mark(id "a", "marks", "theirs", "")
      here:mark(id "a", "trash", 1000.0)
    end
    local told = merged(folder .. "/here", folder .. "/there")
    t.eq({ told.trash, told.marked }, { 1, 0 })
  end)
end)

local ADOPTED = [[SELECT provenance ->> '$.key' AS key, group_concat(e.text, ' ') AS why
  FROM trials t LEFT JOIN (SELECT * FROM events ORDER BY text) e ON e.trial = t.id]]

t.test("merge unites adoptions of both sides, and the newest key counts", function()
  t.in_folder(function(folder)
    for _, name in ipairs { "here", "there" } do
      stores.fill(folder .. "/" .. name, { sample[1] })
    end
    do
      local there <close> = records.open(folder .. "/there", "w")
      there:mark(id "a", "adopt", id "new", nil, "edited")
    end
    t.eq(merge_both_ways(folder)[1].marked, 1)
    for _, name in ipairs { "here", "there" } do
      t.eq(stores.dump(folder .. "/" .. name, ADOPTED),
        { ('{"key":"%s","why":"edited"}'):format(id "new") })
    end
    do
      local here <close> = records.open(folder .. "/here", "w")
      local there <close> = records.open(folder .. "/there", "w")
      there:mark(id "a", "adopt", id "newer", nil, "edited again")
      here:mark(id "a", "adopt", id "newest", nil, "edited here")
    end
    merge_both_ways(folder)
    for _, name in ipairs { "here", "there" } do
      t.eq(stores.dump(folder .. "/" .. name, ADOPTED), {
        ('{"key":"%s","why":"edited edited again edited here"}'):format(id "newest") })
    end
  end)
  t.in_folder(function(folder) -- also where the trial there is further
    stores.fill(folder .. "/here", { variant(sample[1], { ended = "pruned" }) })
    stores.fill(folder .. "/there", { sample[1] })
    do
      local here <close> = records.open(folder .. "/here", "w")
      here:mark(id "a", "adopt", id "new", nil, "edited")
    end
    t.eq(merge_both_ways(folder)[1].replace, 1)
    t.eq(stores.dump(folder .. "/here", ADOPTED),
      { ('{"key":"%s","why":"edited"}'):format(id "new") })
  end)
end)

t.test("a damaged checkpoint does not replace our intact one", function()
  t.in_folder(function(folder)
    local broke = variant(sample[1], { status = "interrupted", files = { checkpoint = "state" } })
    stores.fill(folder .. "/here", { variant(broke, { step = 4 }) })
    stores.fill(folder .. "/there", { variant(broke, { step = 8,
      files = { checkpoint = "later state" } }) })
    local path = "/runs/" .. id("a"):sub(1, 12) .. "/checkpoint-00000004.h5"
    t.write(folder .. "/there" .. path, "spoilt")
    local told = merged(folder .. "/here", folder .. "/there")
    t.eq({ told.replace, told.ahead, #told.damaged }, { 0, 1, 1 })
    t.eq(stores.dump(folder .. "/here", "SELECT step FROM trials"), { '{"step":4}' })
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM artifacts"), 1)
    t.eq(t.read(folder .. "/here" .. path), "state")
  end)
end)

t.test("a merged sweep keeps the time of its command", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/there", { sample[1] })
    local there <close> = records.open(folder .. "/there", "w")
    there:rows "UPDATE sweeps SET created = 1000.0"
    there:close()
    merged(folder .. "/here", folder .. "/there")
    t.eq(stores.dump(folder .. "/here", "SELECT created FROM sweeps"), { '{"created":1000.0}' })
    local again <close> = records.open(folder .. "/there", "w")
    again:rows "UPDATE sweeps SET created = 3000.0" -- the command was given once more
    again:close()
    merged(folder .. "/here", folder .. "/there")
    t.eq(stores.dump(folder .. "/here", "SELECT created FROM sweeps"), { '{"created":3000.0}' })
  end)
end)

t.test("a sweep keeps its order when its trials come from several folders", function()
  t.in_folder(function(folder)
    local a, b = sample[1], sample[2]
    local queued = { status = "queued", metrics = {}, files = {}, step = false }
    stores.fill(folder .. "/one", { a, variant(b, queued) })
    stores.fill(folder .. "/two", { variant(a, queued), b })
    t.eq(merged(folder .. "/all", folder .. "/one").add, 2)
    local told = merged(folder .. "/all", folder .. "/two")
    t.eq({ told.replace, told.ahead }, { 1, 1 })
    t.eq(#stores.dump(folder .. "/all", "SELECT * FROM v_trials WHERE status = 'done'"), 2)
    t.eq(stores.dump(folder .. "/all", "SELECT position, trial FROM members"),
      stores.dump(folder .. "/one", "SELECT position, trial FROM members"))
  end)
end)

t.done()
