-- test_asking.lua: which trials words mean; the trash; merging; the large verbs' smaller parts.
local t = require "harness"
local check = require "toeplab.store.check"
local core = require "toeplab.core"
local logged = require "toeplab.store.logged"
local merge = require "toeplab.store.merge"
local rebuild = require "toeplab.store.rebuild"
local records = require "toeplab.store.records"
local selection = require "toeplab.store.selection"
local stores = require "stores"
local sweeps = require "toeplab.store.sweeps"
local trash = require "toeplab.store.trash"

local id = stores.id
local gone = 2 ^ 22 // 1 | 0 -- more than any process has

local sample = {
  { name = "a", experiment = "decay", config = { decay = 0.9, op = "tno", causal = true, seed = 1,
    lengths = { 8, 16 }, steps = 4 }, metrics = { loss = { 5, 4, 3, 2 }, acc = { 0.1, 0.5 } },
    files = { step = "state a" }, step = 4 },
  { name = "b", experiment = "decay", config = { decay = 0.99, op = "ski", causal = true, seed = 2,
    lengths = { 8 }, steps = 4 }, metrics = { loss = { 5, 1 }, acc = { 0.1, 0.3 } } },
  { name = "c", experiment = "decay", config = { decay = "learnable", op = "ski", causal = false,
    seed = 1, lengths = { 8 }, steps = 4 }, status = "failed", error = "NaN in loss at step 3",
    metrics = { loss = { 5, 0.5 } } },
  { name = "d", experiment = "other", config = { width = 4, note = "x=1" }, status = "failed",
    ended = "timeout", error = "took longer than 3 seconds", metrics = { gap = { 1, 0 / 0 } } },
  { name = "e", experiment = "other", config = { width = 8, note = "y" }, status = "running",
    host = core.sys.hostname(), pid = gone },
  { name = "f", experiment = "other", config = { width = 16, note = "y" }, status = "running",
    host = core.sys.hostname(), pid = core.sys.getpid() },
}

-- The names of the trials that words (separated by blanks) mean, in order of name.
local function names(store, words, in_trash)
  local list = {}
  for word in words:gmatch "%S+" do list[#list + 1] = word end
  local found = {}
  for _, row in ipairs(selection.new(store, list, in_trash):rows(
    "json_extract(t.provenance, '$.label') AS name", "ORDER BY name")) do
    found[#found + 1] = row.name
  end
  return table.concat(found)
end

local function with_store(fn)
  t.in_folder(function(folder)
    stores.fill(folder .. "/r", sample)
    local store <close> = records.open(folder .. "/r", "w")
    fn(store, folder)
  end)
end

t.test("words mean trials by id, experiment, status and place", function()
  with_store(function(store)
    for words, want in pairs {
      [""] = "abcdef", ["@all"] = "abcdef", decay = "abc", other = "def", [id "a"] = "a",
      [id("b"):sub(1, 9)] = "b", [id("b"):sub(1, 9):upper()] = "b", ["@last"] = "f",
      ["@last:3"] = "def", ["@failed"] = "c", ["@timeout"] = "d", ["@killed"] = "e",
      ["@running"] = "f", ["@done"] = "ab", ["decay @last"] = "abcf", ["@last decay=0.99"] = "b",
      ["decay @failed"] = "c", ["@failed decay"] = "c", ["other @done"] = "",
      ["other @timeout"] = "d",
      ["@failed @timeout"] = "cd", ["other @failed @killed"] = "e", ["@all @done"] = "ab",
      ["@last @done"] = "b", ["@last:2 @failed @timeout"] = "cd", ["@done op=ski"] = "b",
      [id("a") .. " " .. id("d")] = "ad",
    } do
      t.eq(names(store, words), want)
    end
    for _, word in ipairs { "@last:0", "@last:99999999999999999999" } do
      t.raises(names, "write @last:1 or more", store, word)
    end
  end)
end)

t.test("status counts a trial whose process has died as killed, not as running", function()
  with_store(function(_, folder)
    for words, want in pairs {
      [""] = "decay  6 trials: 2 done, 1 running, 1 killed, 1 failed, 1 timeout",
      ["--json"] = '"killed":1,"running":1,"sweep":1',
    } do
      local text, code = t.shell(("'%s' status %s -C '%s/r' 2>&1"):format(core.sys.executable(),
        words, folder))
      t.eq(code, 0)
      t.holds(text, want)
    end
  end)
end)

t.test("filters are on keys, metrics and columns, by what the values are", function()
  with_store(function(store)
    for words, want in pairs {
      ["decay=0.9"] = "a", ["decay=.90"] = "a", ["decay!=0.9"] = "bcdef", ["decay>0.5"] = "ab",
      ["decay<=0.99"] = "ab", ["decay=learnable"] = "c", ["decay~LEARN"] = "c",
      ["causal=true"] = "ab", ["causal=false"] = "c", ["lengths=8,16"] = "a",
      ["loss<1.5"] = "bc", ["loss>=1"] = "ab", ["metric:loss=2"] = "a",
      ["gap=nan"] = "d", ["gap>0"] = "", ["acc!=0.5"] = "bcdef",
      ["status=failed"] = "c", ["status!=failed"] = "abdef", ["status=killed"] = "e",
      ["column:status=timeout"] = "d", ["error~nan"] = "c", ["host=elsewhere"] = "abcd",
      ["seed=1 op=ski"] = "c", ["config:seed=1"] = "ac", ["column:seed=1"] = "acdef",
      ["scale=smoke width>4"] = "ef", ["note=x=1"] = "d", ["seconds<25s"] = "ab",
      ["started<1970-01-03"] = "abcdef", ["age<2d"] = "", ["trial=b"] = "b", ["label=b"] = "b",
      ["id=" .. id("c"):sub(1, 6)] = "c", ["decay op=tno"] = "a",
    } do
      t.eq(words .. ": " .. names(store, words), words .. ": " .. want)
    end
  end)
end)

t.test("the best is the least last value of those done, or the greatest by name or word", function()
  with_store(function(store)
    t.eq(names(store, "@best:loss"), "b")
    t.eq(names(store, "@best:max:loss"), "a")
    t.eq(names(store, "@best:acc"), "a")
    t.eq(names(store, "@best:min:acc"), "b")
    t.eq(names(store, "@best:loss seed=1"), "a")
    t.eq(selection.goal "test_acc", "max")
    t.eq(selection.goal "val_ppl", "min")
    t.eq(selection.goal "distance", "min")
    t.raises(names, "no trial of .* has a metric 'los'; did you mean 'loss'", store, "@best:los")
    t.raises(names, "no finished trial has a 'loss'", store, "@best:loss op=x")
  end)
end)

t.test("words that mean nothing are errors that help", function()
  with_store(function(store)
    for words, want in pairs {
      ["dekay=1"] = "no trial of .* has a key, metric or column 'dekay'; did you mean 'decay'",
      ["metric:los<1"] = "a metric 'los'; did you mean 'loss'",
      ["column:hots=x"] = "a column 'hots'; did you mean 'host'",
      ["status=faild"] = "no status 'faild'; did you mean 'failed'",
      ["@faild"] = "'@faild' selects no trials; did you mean '@failed'",
      ["loss<x"] = "'loss<x': loss is compared with a number",
      ["started>x"] = "a day like", ["age<x"] = "a time like",
      ["deca"] = "no trial's id begins with 'deca'", ["dekay"] = "did you mean 'decay'",
    } do
      t.raises(names, want, store, words)
    end
    t.raises(selection.one, "'decay' selects 3 trials", store, "decay")
    t.raises(selection.ids, "rm: no trial fits", store, { "decay<0" }, "rm")
  end)
end)

t.test("whether there were changes is true or false", function()
  with_store(function(store)
    for value, want in pairs { ["0"] = false, ["1"] = true, ["NULL"] = false } do
      store:rows("UPDATE trials SET git_dirty = " .. value)
      t.eq(store:origin(id "a").dirty, want)
    end
  end)
end)

t.test("of an older schema, the error says what upgrades it, and that does", function()
  t.in_folder(function(folder)
    stores.fill(folder, sample)
    stores.make_old(folder)
    local want = "version 5 is old; .*without a run, toeplab fsck %-%-repair does, and keeps a "
      .. "copy, runs%.db%.v5$"
    t.raises(records.open, want, folder, "r")
    t.raises(check.run, want, folder, {}, function() end)
    check.run(folder, { repair = true }, function() end)
    t.ok(core.sys.exists(folder .. "/runs.db.v5"))
    local store <close> = records.open(folder, "r")
    t.eq(names(store, "@all"), "abcdef")
  end)
end)

t.test("a rebuild counts trials whose own row is lost, and calls nothing theirs free", function()
  t.in_folder(function(folder)
    stores.fill(folder, { sample[1], sample[2] })
    local store <close> = records.open(folder, "w")
    store:rows "PRAGMA foreign_keys = OFF"
    store:rows("DELETE FROM trials WHERE id = ?", { id "a" })
    store:close()
    t.eq(rebuild.run(folder).lost, 1)
    local texts = {}
    check.run(folder, {}, function(item) texts[#texts + 1] = item.text end)
    t.ok(table.concat(texts, "\n"):find "may have lost its row; toeplab generate reads", texts[1])
  end)
end)

t.test("thousands of ids may be named", function()
  with_store(function(store)
    local words = {}
    for i = 1, 3000 do words[i] = id(i % 2 == 0 and "a" or "b"):sub(1, 12) end
    t.eq(#selection.ids(store, words, "ls"), 2)
  end)
end)

t.test("a value in a filter is a value, whatever it holds", function()
  with_store(function(store)
    t.eq(selection.new(store, { "op=' OR 1=1 --" }):rows "t.id", {})
    t.eq(names(store, "error~'"), "")
    t.eq(names(store, "op=tno'||'"), "")
    t.raises(names, "has a key", store, [[x"y=1]])
  end)
end)

t.test("what is in the trash is nowhere else, and comes back", function()
  with_store(function(store)
    trash.put(store, { id "a", id "c" })
    t.eq(names(store, ""), "bdef")
    t.eq(names(store, "@best:max:loss"), "b")
    trash.put(store, { id "d" })
    t.eq(names(store, "", true), "acd")
    t.eq(names(store, "@last", true), "d")
    t.eq(names(store, "op=ski", true), "c")
    t.raises(trash.put, "is running %(process", store, { id "b", id "f" })
    t.eq(names(store, ""), "bef")
    trash.restore(store, { id "a", id "c", id "d" })
    t.eq(names(store, ""), "abcdef")
    t.eq(names(store, "", true), "")
  end)
end)

t.test("the running trials of a sweep are in its order, without the trash", function()
  with_store(function(store)
    local sweep = sweeps.last(store)[1].id
    local function labels()
      local text = ""
      for _, row in ipairs(sweeps.running(store, sweep)) do text = text .. row.label end
      return text
    end
    store:rows("UPDATE members SET position = 0 WHERE trial = ?", { id "f" })
    t.eq(labels(), "fe")
    store:rows("INSERT INTO metrics (trial, name, step, value) VALUES (?, 'loss', 1, NULL)",
      { id "f" })
    local loss = sweeps.running(store, sweep)[1].loss
    t.ok(loss ~= loss, "NaN is not a missing value")
    loss = logged.trials(store, sweep, "loss")[1].value
    t.ok(loss ~= loss, "nor is it for watch")
    trash.put(store, { id "e" })
    t.eq(labels(), "f")
  end)
end)

t.test("an index of a metric is not a step of training", function()
  with_store(function(store)
    local sweep = sweeps.last(store)[1].id
    store:rows("INSERT INTO metrics (trial, name, step, value, at) VALUES (?, 'lag', 3000, 1.0, 7)",
      { id "f" })
    local function steps()
      local running = sweeps.running(store, sweep)
      local own = running[1].id == id "f" and running[1] or running[2]
      for _, row in ipairs(logged.trials(store, sweep, "lag")) do
        if row.id == id "f" then return { own.step, row.step } end
      end
    end
    t.eq(steps(), { 7, 7 })
    local said = t.toeplab(("ls -c step,lag f -C '%s'"):format(store.folder))
    t.ok(not said:find "3000", said)
    store:rows("INSERT INTO metrics (trial, name, step, value) VALUES (?, 'loss', 9, 1.0)",
      { id "f" })
    t.eq(steps(), { 9, 7 })
  end)
end)

t.test("a snapshot is of one moment", function()
  with_store(function(store)
    local snapshot <close> = records.snapshot(store.folder)
    t.eq(names(snapshot, ""), "abcdef")
    trash.put(store, { id "a", id "c" })
    t.eq(names(store, ""), "bdef")
    t.eq(names(snapshot, ""), "abcdef")
  end)
end)

t.test("a trial whose first sweep was deleted belongs to the last that asks for it", function()
  with_store(function(store)
    local first = sweeps.last(store)[1].id
    for i = 1, 2 do
      local later = store:sweep { experiment = "decay", script = "y.lua", source = "-- y",
        sha256 = core.sha256 "y", command = "", scale = "", plan = '{"axes":["' .. i .. '"]}' }
      store:rows("INSERT INTO members VALUES (?, 1, ?)", { later, id "a" })
    end
    local function of() return sweeps.of_trial(store, selection.one(store, id "a")) end
    t.eq(of().id, first)
    store:rows("DELETE FROM sweeps WHERE id = ?", { first })
    t.eq({ of().id, of().source, sweeps.find(store, "varies", "2")[1].id }, { first + 2, "-- y",
      first + 2 })
    t.eq(sweeps.get(store, first), nil)
  end)
end)

t.test("what is deleted leaves no row of it, and only that is", function()
  with_store(function(store)
    trash.put(store, { id "a" })
    t.eq(trash.expired(store, 1), {})
    t.eq(trash.expired(store, 0), { id "a" })
    local others = stores.dump(store.folder,
      ("SELECT * FROM metrics WHERE trial <> '%s'"):format(id "a"))
    trash.delete(store, id "a")
    for _, name in ipairs { "metrics", "last", "artifacts", "members" } do
      local sql = ("SELECT count(*) AS n FROM %s WHERE trial = ?"):format(name)
      t.eq(store:rows(sql, { id "a" })[1].n, 0)
    end
    t.eq(stores.dump(store.folder, "SELECT * FROM metrics"), others)
    t.eq(trash.stale(store), { { path = "runs/" .. id("a"):sub(1, 12), bytes = 7,
      why = "no trial has that name" } })
  end)
end)

t.test("files that no row knows are found, those of running trials and journals left", function()
  with_store(function(store)
    local host = core.sys.hostname()
    local function put(path) t.write(store.folder .. "/" .. path, "xyz") end
    local a, e, f = id("a"):sub(1, 12), id("e"):sub(1, 12), id("f"):sub(1, 12)
    for _, name in ipairs { a, e, f } do core.sys.mkdir(store.folder .. "/runs/" .. name) end
    put("runs/" .. a .. "/step-00000002.h5")
    put("runs/" .. a .. "/events-1.jnl")
    put("runs/" .. a .. "/log.txt")
    put("runs/" .. a .. "/mine.md")
    put(("runs/%s/.step-00000002.h5.tmp.%s.%d"):format(a, host, gone))
    put(("runs/%s/.step-00000003.h5.tmp.%s.%d"):format(a, host, core.sys.getpid()))
    put("runs/" .. e .. "/step-00000002.h5")
    put("runs/" .. e .. "/events-1.jnl")
    put("runs/" .. f .. "/step-00000002.h5")
    store:rows("INSERT INTO journals VALUES (?, 1, 0)", { id "e" })
    local found = {}
    for i, item in ipairs(trash.stale(store)) do
      t.eq(item.bytes, 3)
      found[i] = item.path
    end
    table.sort(found)
    t.eq(found, { ("runs/%s/.step-00000002.h5.tmp.%s.%d"):format(a, host, gone),
      "runs/" .. a .. "/events-1.jnl", "runs/" .. a .. "/step-00000002.h5" })
  end)
end)

-- ---- Merging ----------------------------------------------------------------------------------

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

t.test("merging brings all but running trials, and again nothing", function()
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

t.test("of a trial in both the further one stays", function()
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

t.test("a trial that was ended early is not as far as one that was not", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/here", { variant(sample[1], { ended = "pruned", step = 2 }) })
    stores.fill(folder .. "/there", { sample[1] })
    t.eq(merged(folder .. "/here", folder .. "/there").replace, 1)
    t.eq(#stores.dump(folder .. "/here", "SELECT 1 AS x FROM trials WHERE ended IS NULL"), 1)
  end)
end)

t.test("what another program made takes the place of what is not done here", function()
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

t.test("other results of one trial are a conflict: ours stay, an event tells once", function()
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

t.test("a damaged file is not taken over, nor its row", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/there", sample)
    local path = "/runs/" .. id("a"):sub(1, 12) .. "/step-00000004.h5"
    t.write(folder .. "/there" .. path, "state A")
    local told = merged(folder .. "/here", folder .. "/there")
    t.eq(told.damaged, { folder .. "/there" .. path })
    t.eq(core.sys.exists(folder .. "/here" .. path), false)
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM artifacts"), 0)
    t.eq(#stores.dump(folder .. "/here", "SELECT * FROM trials"), 4)
    t.eq(core.sys.list(folder .. "/here/runs/" .. id("a"):sub(1, 12)), {})
  end)
end)

t.test("merging a trial that is further there keeps its tags and notes here", function()
  t.in_folder(function(folder)
    stores.fill(folder .. "/here", { variant(sample[2], { status = "interrupted", metrics = {} }) })
    stores.fill(folder .. "/there", { sample[2] })
    for name, tag in pairs { here = "mine", there = "theirs" } do
      local store <close> = records.open(folder .. "/" .. name, "w")
      store:mark(id "b", tag, "seen " .. name)
    end
    t.eq(merged(folder .. "/here", folder .. "/there").replace, 1)
    t.eq(stores.dump(folder .. "/here", "SELECT tags, notes FROM trials"),
      { [[{"notes":"seen here\nseen there","tags":"mine theirs"}]] })
  end)
end)

t.test("a damaged checkpoint does not displace the sound one of the trial here", function()
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

t.test("a sweep keeps the time of its command, and so the newest one stays the newest", function()
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

t.test("sweeps keep their order over shards", function()
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
