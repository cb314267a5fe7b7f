-- test_asking.lua: which trials words mean; the trash; the large verbs' smaller parts.
local t = require "harness"
local check = require "toeplab.store.check"
local core = require "toeplab.core"
local metrics = require "toeplab.store.metrics"
local records = require "toeplab.store.records"
local replay = require "toeplab.store.replay"
local selection = require "toeplab.store.selection"
local stores = require "stores"
local sweeps = require "toeplab.store.sweeps"
local trash = require "toeplab.store.trash"

local id, gone, sample = stores.id, stores.gone, stores.sample
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

t.test("words select trials by id, experiment, status and order", function()
  with_store(function(store)
    for words, want in pairs {
      [""] = "abcdef", ["@all"] = "abcdef", decay = "abc", other = "def", [id "a"] = "a",
      [id("b"):sub(1, 9)] = "b", [id("b"):sub(1, 9):upper()] = "b", ["@last"] = "f",
      ["@last:3"] = "def", ["@failed"] = "c", ["@timeout"] = "d", ["@killed"] = "e",
      ["@running"] = "f", ["@done"] = "ab", ["decay @last"] = "c", ["@last decay=0.99"] = "b",
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

t.test("filters compare keys, metrics and columns by the type of the value", function()
  with_store(function(store)
    for words, want in pairs {
      ["decay=0.9"] = "a", ["decay=.90"] = "a", ["decay!=0.9"] = "bcdef", ["decay>0.5"] = "ab",
      ["decay<=0.99"] = "ab", ["decay=learnable"] = "c", ["decay~LEARN"] = "c",
      ["causal=true"] = "ab", ["causal=false"] = "c",
      ["causal=1"] = "", ["causal<5"] = "", ["causal!=true"] = "cdef",
      ["causal=true,false"] = "abc", ["lengths=8,16"] = "a",
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

t.test("@best takes the lowest last value of finished trials, or the highest", function()
  with_store(function(store)
    t.eq(names(store, "@best:loss"), "b")
    t.eq(names(store, "@best:max:loss"), "a")
    t.eq(names(store, "@best:acc"), "a")
    t.eq(names(store, "@best:min:acc"), "b")
    t.eq(names(store, "@best:loss seed=1"), "a")
    t.eq(names(store, "@best:loss decay"), "b") -- an experiment beside @best is a filter
    t.raises(names, "no finished trial has a finite 'loss'", store, "other @best:loss")
    t.raises(names, "no trial of .* has a metric 'los'; did you mean 'loss'", store, "@best:los")
    t.raises(names, "no finished trial has a finite 'loss'", store, "@best:loss op=x")
  end)
end)

t.test("words that select nothing are errors with a suggestion", function()
  with_store(function(store)
    for words, want in pairs {
      ["dekay=1"] = "no trial of .* has a key, metric or column 'dekay'; did you mean 'decay'",
      ["metric:los<1"] = "a metric 'los'; did you mean 'loss'",
      ["column:hots=x"] = "a column 'hots'; did you mean 'host'",
      ["status=faild"] = "no status 'faild'; did you mean 'failed'",
      ["@faild"] = "'@faild' selects no trials; did you mean '@failed'",
      ["loss<x"] = "'loss<x': compare loss with a number",
      ["started>x"] = "a day like", ["age<x"] = "a time like",
      ["deca"] = "no trial's id begins with 'deca'", ["dekay"] = "did you mean 'decay'",
    } do
      t.raises(names, want, store, words)
    end
    t.raises(selection.one, "'decay' selects 3 trials", store, "decay")
    t.raises(selection.ids, "rm: no trial matches$", store, { "decay<0" }, "rm")
    for _, word in ipairs { "@failed", "status=failed" } do
      t.raises(selection.ids, "rm: no trial matches; trials that ended otherwise: @guard, ", store,
        { word, "decay<0" }, "rm")
    end
  end)
end)

t.test("the field dirty is true or false", function()
  with_store(function(store)
    for value, want in pairs { ["0"] = false, ["1"] = true, ["NULL"] = false } do
      store:rows("UPDATE trials SET git_dirty = " .. value)
      t.eq(store:origin(id "a").dirty, want)
    end
  end)
end)

t.test("the error for an older schema names the command that upgrades it", function()
  t.in_folder(function(folder)
    stores.fill(folder, sample)
    stores.make_old(folder)
    local want = "version 5 is old; .*`toeplab fsck %-%-repair %-C .*` converts it without a run, "
      .. "and keeps a copy, runs%.db%.v5$"
    t.raises(records.open, want, folder, "r")
    t.raises(check.run, want, folder, {}, function() end)
    check.run(folder, { repair = true }, function() end)
    t.ok(core.sys.exists(folder .. "/runs.db.v5"))
    local store <close> = records.open(folder, "r")
    t.eq(names(store, "@all"), "abcdef")
  end)
end)

t.test("thousands of ids may be named", function()
  with_store(function(store)
    local words = {}
    for i = 1, 3000 do words[i] = id(i % 2 == 0 and "a" or "b"):sub(1, 12) end
    t.eq(#selection.ids(store, words, "ls"), 2)
  end)
end)

t.test("a value in a filter is never parsed as SQL", function()
  with_store(function(store)
    t.eq(selection.new(store, { "op=' OR 1=1 --" }):rows "t.id", {})
    t.eq(names(store, "error~'"), "")
    t.eq(names(store, "op=tno'||'"), "")
    t.raises(names, "has a key", store, [[x"y=1]])
  end)
end)

t.test("trials in the trash are hidden, and can be restored", function()
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

t.test("the running trials of a sweep are listed in its order, without the trash", function()
  with_store(function(store)
    local sweep = sweeps.last(store)[1].id
    local function labels()
      local text = ""
      for _, row in ipairs(sweeps.running(store, sweep)) do text = text .. row.label end
      return text
    end
    store:rows("UPDATE members SET position = 0 WHERE trial = ?", { id "f" })
    t.eq(labels(), "fe")
    replay.apply(store, id "f", { "metric", 1, "loss", nil })
    local loss = sweeps.running(store, sweep)[1].loss
    t.ok(loss ~= loss, "NaN is not a missing value")
    loss = metrics.trials(store, sweep, "loss")[1].value
    t.ok(loss ~= loss, "nor is it for watch")
    t.eq(metrics.trials(store, sweep, nil)[1].value, nil) -- as long as no metric is known
    trash.put(store, { id "e" })
    t.eq(labels(), "f")
  end)
end)

t.test("an index of a metric is not a step of training", function()
  with_store(function(store)
    local sweep = sweeps.last(store)[1].id
    replay.apply(store, id "f", { "metric", 3000, "lag", 1.0, 7 })
    local function steps()
      local running = sweeps.running(store, sweep)
      local own = running[1].id == id "f" and running[1] or running[2]
      for _, row in ipairs(metrics.trials(store, sweep, "lag")) do
        if row.id == id "f" then return { own.step, row.step } end
      end
    end
    t.eq(steps(), { 7, 7 })
    local said = t.toeplab(("ls -c step,lag f -C '%s'"):format(store.folder))
    t.ok(not said:find "3000", said)
    replay.apply(store, id "f", { "metric", 9, "loss", 1.0 })
    t.eq(steps(), { 9, 7 })
    local words = ("%s %s -C '%s'"):format(id "f", id "a", store.folder)
    t.ok(t.toeplab("show --diff " .. words):find "\n  step +9 ", "the step of a running trial")
    t.ok(t.toeplab("show " .. words):find "\nstep +9\n")
  end)
end)

t.test("ls --correlate says how two columns depend on one another, and needs numbers of both",
  function()
    with_store(function(store)
      local function ls(words)
        local text, code, said = t.toeplab(("ls %s --correlate -C '%s'"):format(words,
          store.folder))
        return code == 0 and text or said
      end
      -- loss 2, 1, 0.5 against 10, 20, 30 seconds
      t.holds(ls "decay --columns loss,time --csv", "a,b,trials,r,low,high,tau\n"
        .. "loss,time,3,-0.981980506061", ",,,-1.0\n")
      t.holds(ls "decay --columns loss,acc",
        "only 2 trials have numbers for both loss and acc; it takes 3")
      t.holds(ls "decay --columns loss", "ls: --correlate needs --columns A,B")
    end)
  end)

t.test("a snapshot does not change", function()
  with_store(function(store)
    local snapshot <close> = records.snapshot(store.folder)
    t.eq(names(snapshot, ""), "abcdef")
    trash.put(store, { id "a", id "c" })
    t.eq(names(store, ""), "bdef")
    t.eq(names(snapshot, ""), "abcdef")
  end)
end)

t.test("a trial whose first sweep was deleted belongs to the last sweep that has it", function()
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
    t.eq({ of().id, of().source }, { first + 2, "-- y" })
    t.eq(sweeps.get(store, first), nil)
  end)
end)

t.test("deletion removes all rows of a trial, and no others", function()
  with_store(function(store)
    trash.put(store, { id "a" })
    t.eq(trash.expired(store, 1), {})
    t.eq(trash.expired(store, 0), { id "a" })
    local others = stores.dump(store.folder,
      ("SELECT * FROM metrics WHERE trial <> '%s'"):format(id "a"))
    replay.delete(store, id "a")
    for _, name in ipairs { "metrics", "last", "artifacts", "members" } do
      local sql = ("SELECT count(*) AS n FROM %s WHERE trial = ?"):format(name)
      t.eq(store:rows(sql, { id "a" })[1].n, 0)
    end
    t.eq(stores.dump(store.folder, "SELECT * FROM metrics"), others)
    local stale = trash.stale(store)
    t.eq({ #stale, stale[1].path, stale[1].why }, { 1, "runs/" .. id("a"):sub(1, 12),
      "no trial has that name" })
    t.ok(stale[1].bytes > 7)
  end)
end)

t.test("stale files are found, except those of running trials and unread journals", function()
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
      "runs/" .. a .. "/step-00000002.h5" })
  end)
end)

t.done()
