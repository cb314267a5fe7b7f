-- test_edits.lua: which trials an edit of a script, of its modules or of its data makes new, and
-- what is said of it.
local core = require "toeplab.core"
local other_ids = require "toeplab.trials.other_ids"
local experiment = require "toeplab.trials.experiment"
local identity = require "toeplab.trials.identity"
local plan = require "toeplab.trials.plan"
local prepare = require "toeplab.runs.prepare"
local records = require "toeplab.store.records"
local t = require "harness"
local trials = require "trials"

-- As of the harness; the modules of the scripts here set a global.
local function in_folder(fn)
  t.in_folder(fn)
  rawset(_G, "shared", nil)
end

local files = {
  ["x.lua"] = [[
local tl = require "toeplab"
local own = require "own"
local rates = { low = 0.5, high = { 1, 2 } }
local sizes = { small = 1, big = 2 }
local FACTOR = 3; local WIDTH <const> = 4 * 2
local one = function() return 1 end
local function inner(x)
  return x * FACTOR
end
local function scaled(x)
  return inner(x) + own.used(x)
end
local function unused(x) return x end
local mixed = setmetatable({}, { __index = function(_, name) return #name end })
local classes = { own = tl.nn.class("Own", { dim = "int" }) }
function classes.own:forward(x) return x end

return tl.experiment "edits" {
  fixed = { corpus = "FOLDER/text", steps = 1, lr = 0.5 },
  grid = { a = { 1, 2 } },
  zip = { b = { 3 }, d = { 4 } },
  guard = { metric = "loss", nan = "stop", window = 8 },
  seeds = 1,
  check = function(c) assert(unused(c.a) > 0) end,
  trial = function(t, c)
    local rate = rates[c.a == 1 and "low" or "high"]
    local class, read = classes.own, { c.b, c.d, c.lr, c.corpus }
    for step in t:steps(c.steps) do
      t:log { loss = scaled(c.a) + sizes.small + tonumber(mixed.name) + shared(step) }
    end
    return rate, class, read, one, WIDTH
  end,
  report = { rows = "a", columns = { "loss" } },
}
]],
  ["own.lua"] = [[
local own = {}
function shared(x) return x end
local function deep(x)
  return x
end
function own.used(x) return deep(x) end
function own.unused(x) return -x end
function math.twice(x) return x + x end
return own
]],
  text = ("the old man told the moon a tale . "):rep(40),
}

-- The files with FOLDER replaced, and the pattern of an edit in one of them; it must be there once.
local function write_files(folder, name, pattern, text)
  for path, content in pairs(files) do
    content = content:gsub("FOLDER", folder)
    if path == name then
      local count
      content, count = content:gsub(pattern, text)
      t.eq({ pattern, count }, { pattern, 1 })
    end
    t.write(folder .. "/" .. path, content)
  end
end

-- Returns the labels of the trials of x.lua that the store has not, the lines that say why, and all
-- trials with their experiment.
local function new_trials(folder, words)
  local exp = experiment.load(folder .. "/x.lua")
  local store <close> = records.open(folder .. "/results", "r")
  local list, new = plan.trials(exp, words or {}), {}
  identity.identify(exp, list, store)
  for _, one in ipairs(list) do
    if not store:status(one.id) then new[#new + 1] = one.label end
  end
  return table.concat(new, ", "), table.concat(prepare.why_new(list), "\n"), list, exp
end

local ALL = "a=1 b=3 d=4, a=2 b=3 d=4"

-- An edit: its name, the file, a pattern and what replaces it; which trials are new (nil: none),
-- and what is said of them; a second edit of x.lua, or nil.
local edits = {
  { "nothing", "x.lua", "local tl", "local tl" },
  { "a comment", "x.lua", "    local rate", "    -- a comment\n    local rate" },
  { "layout", "x.lua", "return x %* FACTOR", "\n\n  return x*FACTOR" },
  { "seeds", "x.lua", "seeds = 1", "seeds = 2",
    "a=1 b=3 d=4 seed=2, a=2 b=3 d=4 seed=2" },
  { "report", "x.lua", '{ "loss" }', '{ "loss", "other" }' },
  { "a report that is a function", "x.lua", "report = %b{}", "report = function() end" },
  { "a value of grid", "x.lua", "{ 1, 2 } },\n", "{ 1, 2, 5 } },\n", "a=5 b=3 d=4" },
  { "a row of zip", "x.lua", "{ 3 }, d = { 4 }", "{ 3, 6 }, d = { 4, 7 }",
    "a=1 b=6 d=7, a=2 b=6 d=7" },
  { "fixed to grid", "x.lua", ", lr = 0.5 },\n  grid = { ", " },\n  grid = { lr = { 0.5 }, " },
  { "zip to fixed", "x.lua", "steps = 1, lr = 0.5 },(.-)  zip = %b{},\n",
    "steps = 1, b = 3, d = 4, lr = 0.5 },%1" },
  { "scale", "x.lua", "zip =", "scale = { smoke = { lr = 0.1 } }, zip =" },
  { "budget", "x.lua", "zip =", "budget = { trial = '1h' }, zip =" },
  { "checkpoint", "x.lua", "zip =", "checkpoint = { seconds = 5 }, zip =" },
  { "better", "x.lua", "zip =", "better = { margin = 'higher' }, zip =" },
  { "tune", "x.lua", "zip =", "tune = { key = 'lr', values = { 0.5, 0.7 }, metric = 'loss', "
    .. "seed = 9 }, zip =" },
  { "when and except", "x.lua", "zip =", "when = { { where = { a = 7 }, fixed = { lr = 1.5 } } }, "
    .. "except = { { where = function(c) return c.a == 8 end, reason = 'eight' } }, zip =" },
  { "check", "x.lua", "c%.a%) > 0", "c.a) > -1" },
  { "a function in front", "x.lua", "local rates", "local function f() return 1 end\nlocal rates" },
  { "the order of fields", "x.lua", "grid = (.-)zip = (.-)guard", "zip = %2grid = %1guard" },
  { "a table in another order", "x.lua", "low = 0.5, high = { 1, 2 }",
    "high = { 1, 2 }, low = .5" },
  { "a helper that trial does not use", "x.lua", "unused%(x%) return x end",
    "unused(x) return 7 * x end" },
  { "another field of a table", "x.lua", "big = 2", "big = 3" },
  { "a table that a key chooses from", "x.lua", "high = { 1, 2 }", "high = { 1, 3 }", ALL,
    "table 'rates' changed" },
  { "a field that trial reads", "x.lua", "small = 1", "small = 4", ALL,
    "value 'sizes.small' changed" },
  { "a helper that trial uses", "x.lua", "return inner%(x%)", "return 2 * inner(x)", ALL,
    "helper 'scaled' changed: x.lua line 11" },
  { "a helper of a helper", "x.lua", "return x %* FACTOR", "return x + FACTOR", ALL,
    "helper 'inner' changed: x.lua line 8" },
  { "a number", "x.lua", "FACTOR = 3", "FACTOR = 5", ALL, "value 'FACTOR' changed" },
  { "trial", "x.lua", "rate, class, read,", "class, read,", ALL,
    "trial() changed: x.lua line 31" },
  { "a metatable", "x.lua", "return #name", "return 2", ALL,
    "helper 'mixed.__index' changed: x.lua line 14" },
  { "a method of a class", "x.lua", "forward%(x%) return x", "forward(x) return 2 * x", ALL,
    "helper 'classes.own.forward' changed: x.lua line 16" },
  { "an option of a class", "x.lua", 'dim = "int"', "dim = 4", ALL,
    "table 'classes.own' changed" },
  { "another function of the library", "x.lua", "local FACTOR = 3",
    "local FACTOR, function_of = 3, tl.zeros", nil },
  { "guard", "x.lua", 'nan = "stop"', 'nan = "rollback"', ALL, "table 'guard' changed" },
  { "prune", "x.lua", "zip =", "prune = { metric = 'loss' }, zip =", ALL, "table 'prune' is new" },
  { "a function put into the library", "x.lua", "local FACTOR",
    "function tl.train.patched() end\nlocal FACTOR", ALL,
    "helper 'tl.train.patched' is new: x.lua line 5" },
  { "a tensor", "x.lua", "local rate =", "local rate = weights or", ALL,
    "the id now covers the whole script: weights is a userdata", { "local FACTOR",
      "local weights = tl.zeros(1)\nlocal FACTOR" } },
  { "two functions on a line", "x.lua", "one = ", "two, one = function() return 2 end, ", ALL,
    "the id now covers the whole script: one is one of several functions on line 6" },
  { "a part of a module that is used", "own.lua", "  return x\n", "  return 2 * x\n", ALL,
    "helper 'deep' changed: own.lua line 3" },
  { "a function of a module that is used", "own.lua", "return deep%(x%)", "return -deep(x)", ALL,
    "helper 'own.used' changed: own.lua line 6" },
  { "a part of a module that is not used", "own.lua", "return %-x", "return 0" },
  { "a global of a module", "own.lua", "shared%(x%) return x", "shared(x) return 2 * x", ALL,
    "helper 'shared' changed: own.lua line 2" },
  { "a constant that Lua folds", "x.lua", "4 %* 2", "4 * 3", ALL, "value 'WIDTH' changed" },
  { "a function put into a table of Lua's", "own.lua", "x %+ x", "2 * x", ALL,
    "helper 'math.twice' changed: own.lua line 8" },
  { "the data", "text", "moon", "sun", ALL, "data FOLDER/text changed" },
}

-- Runs the script of the files in folder, once.
local function run_first(folder)
  write_files(folder)
  local code, said = trials.run(folder, t.read(folder .. "/x.lua"))
  t.eq({ code, said }, { 0, said })
end

t.test("an edit makes only affected trials new, and the reason is printed", function()
  in_folder(function(folder)
    files.text = "the old man told the moon a tale . " .. ("and so on . "):rep(40)
    run_first(folder)
    for _, edit in ipairs(edits) do
      local name, file, pattern, text, new, why, also = table.unpack(edit)
      write_files(folder, file, pattern, text)
      if also then
        t.write(folder .. "/x.lua", (t.read(folder .. "/x.lua"):gsub(also[1], also[2])))
      end
      local found, said = new_trials(folder, name == "tune" and { "lr=0.5" } or nil)
      rawset(require "toeplab.train", "patched", nil)
      t.eq({ name, found }, { name, new or "" })
      if why then
        t.holds(said:gsub(folder, "FOLDER"):gsub("FOLDER/x.lua", "x.lua")
          :gsub("FOLDER/own.lua", "own.lua"), "2 trials are new: " .. why .. "\n",
          "2 of them have old results")
        t.eq({ name, select(2, said:gsub("\n", "")) }, { name, 1 })
      else
        t.eq({ name, said }, { name, "" })
      end
    end
  end)
end)

-- An edit of a script with named rows: its name, a plain part and what replaces it; the rows whose
-- trials are new.
local edits_of_rows = {
  { "a row added", "full = {}", "full = {}, wide = { taps = 32 }", "row=wide" },
  { "the order of rows", "full = {}, short = { taps = 8 }", "short = { taps = 8 }, full = {}", "" },
  { "a key of a row", "taps = 8", "taps = 9", "row=short" },
  { "a row that says what holds anyhow", "full = {}", "full = { taps = 16 }", "" },
  { "a row removed", "full = {}, ", "", "" },
  { "another name", "short =", "brief =", "row=brief" },
}

-- what differs in two trials; the file, a pattern and what replaces it before the second run; the
-- second trial's a; the first line of show --diff
local differences = {
  { "a key", "x.lua", "local tl", "local tl", 2,
    "different: the configuration (a); the same: the script, the program, the data" },
  { "the script", "x.lua", "x %* FACTOR", "2 * x * FACTOR", 1,
    "different: the script (helper 'inner'); the same: the configuration, the program, the data" },
  { "the data", "text", "^the", "this", 1,
    "different: the data (corpus); the same: the configuration, the script, the program" },
}

for _, case in ipairs(differences) do
  t.test("show --diff names what differs: " .. case[1], function()
    in_folder(function(folder)
      local _, file, pattern, text, a, line = table.unpack(case)
      run_first(folder)
      local first = trials.query(folder, "SELECT id FROM v_trials WHERE config ->> '$.a' = 1")[1].id
      write_files(folder, file, pattern, text)
      trials.run(folder, t.read(folder .. "/x.lua"))
      local second = trials.query(folder, ("SELECT id FROM v_trials WHERE config ->> '$.a' = %d "
        .. "AND id <> '%s'"):format(a, first))[1].id
      local function diff(other)
        return (t.toeplab(("show --diff %s %s -C '%s/results'"):format(first, other, folder))
          :match "^[^\n]*")
      end
      t.eq(diff(second), line)
      t.eq(diff(first), "the same: the configuration, the script, the program, the data")
      local store <close> = records.open(folder .. "/results", "w")
      store:rows "UPDATE trials SET provenance = json_remove(provenance, '$.code')"
      t.holds(diff(second), "; the code of the script is not stored")
    end)
  end)
end

t.test("a key that fixed lacked before makes all trials new, and is named", function()
  in_folder(function(folder)
    local script = [[return require("toeplab").experiment "keys" { fixed = { a = 1, KEY },
      grid = { b = { 1, 2 } }, trial = function(t, c) t:log { loss = c.a + c.b } end }]]
    trials.run(folder, (script:gsub("KEY", "")))
    t.write(folder .. "/y.lua", (script:gsub("KEY", "act = 'relu', bias = true")))
    local exp = experiment.load(folder .. "/y.lua")
    local list = plan.trials(exp, {})
    local store <close> = records.open(folder .. "/results", "r")
    identity.identify(exp, list, store)
    t.eq(prepare.why_new(list), { "2 trials are new: new keys act, bias" })
    list = plan.trials(exp, { "a=2" }) -- which differ in more
    identity.identify(exp, list, store)
    t.eq(prepare.why_new(list), {})
  end)
end)

t.test("an edit of named rows makes only the trials of changed rows new", function()
  local script = [[
local tl = require "toeplab"
return tl.experiment "rows" {
  fixed = { taps = 16 }, rows = { full = {}, short = { taps = 8 } },
  trial = function(t, c) t:log { loss = c.taps } end,
}
]]
  in_folder(function(folder)
    t.holds(select(2, trials.run(folder, script)), "2 trials: 2 done")
    for _, edit in ipairs(edits_of_rows) do
      local name, part, text, new = table.unpack(edit)
      local from, to = script:find(part, 1, true)
      t.write(folder .. "/x.lua", script:sub(1, from - 1) .. text .. script:sub(to + 1))
      t.eq({ name, (new_trials(folder)) }, { name, new })
    end
  end)
end)

t.test("other numerics make all trials new, and the reason is printed", function()
  in_folder(function(folder)
    run_first(folder)
    local numerics = core.numerics
    core.numerics = numerics + 1
    local ok, new, said = pcall(new_trials, folder)
    core.numerics = numerics
    t.eq({ ok, new }, { true, ALL })
    t.holds(said, ("2 trials are new: numerics %d -> %d"):format(numerics, numerics + 1))
  end)
end)

t.test("--adopt takes over finished results, and records why the trials were new", function()
  in_folder(function(folder)
    run_first(folder)
    local old = trials.query(folder, "SELECT id FROM v_trials ORDER BY id")
    write_files(folder, "x.lua", "FACTOR = 3", "FACTOR = 4")
    local text = t.read(folder .. "/x.lua"):gsub("{ 1, 2 } },\n", "{ 1, 2, 5 } },\n")
    local _, said = trials.run(folder, text, {}, { adopt = true })
    t.holds(said, "2 trials are new: value 'FACTOR' changed", "2 adopted", "1 done, 2 already done")
    t.eq(trials.query(folder, [[SELECT id FROM v_trials WHERE config ->> '$.a' < 5
      ORDER BY id]]), old)
    t.eq(trials.query(folder, "SELECT kind, text FROM v_events"), {
      { kind = "adopt", text = "value 'FACTOR' changed" },
      { kind = "adopt", text = "value 'FACTOR' changed" } })
    t.holds(select(2, trials.run(folder, text)), "3 trials: 3 already done")
    t.eq(new_trials(folder), "")
    write_files(folder)
    t.eq(new_trials(folder), "") -- the code that made them
  end)
end)

t.test("--adopt takes over the seeds of every look of a rule", function()
  in_folder(function(folder)
    local script = [[
local tl = require "toeplab"
local FACTOR = 1
return tl.experiment "rule" {
  fixed = { steps = 1 }, grid = { a = { 1, 2 } }, seeds = "until 2 %",
  compare = { with = { a = 1 }, metric = "loss" },
  trial = function(t, c)
    for _ in t:steps(c.steps) do t:log { loss = FACTOR * (c.a + c.seed % 5 / 10) } end
  end,
  report = { rows = "a", columns = { "loss" } },
}
]]
    t.holds(select(2, trials.run(folder, script)), "36 trials: 36 done")
    local other = script:gsub("FACTOR = 1", "FACTOR = 2")
    t.holds(select(2, trials.run(folder, other, {}, { adopt = true })), "36 already done")
    t.eq(#trials.query(folder, "SELECT 1 FROM v_trials"), 36)
  end)
end)

-- Runs the script once, in folder/results, as a release whose ids were hashes of whole scripts.
local function run_old(folder)
  local identify = identity.identify
  function identity.identify(exp, list, store)
    identify(exp, list, store)
    for _, one in ipairs(list) do
      one.id = core.sha256(one.json .. identity.script(exp))
      one.key, one.path = one.id, other_ids.path(one.id)
    end
  end
  local ok, why = pcall(run_first, folder)
  identity.identify = identify
  t.eq({ ok, why }, { true, why })
  local store <close> = records.open(folder .. "/results", "w")
  store:rows "UPDATE trials SET provenance = json_remove(provenance, '$.code', '$.key')"
end

t.test("trials whose ids are hashes of whole scripts are found by their reachable code", function()
  in_folder(function(folder)
    run_old(folder)
    local old = trials.query(folder, "SELECT id FROM v_trials ORDER BY id")
    t.eq(new_trials(folder), "")
    write_files(folder, "x.lua", "seeds = 1", "seeds = 2")
    t.eq(new_trials(folder), "a=1 b=3 d=4 seed=2, a=2 b=3 d=4 seed=2")
    write_files(folder, "x.lua", "FACTOR = 3", "FACTOR = 4")
    local new, said = new_trials(folder)
    t.eq(new, ALL)
    t.holds(said, "2 trials are new: value 'FACTOR' changed\n")
    write_files(folder, "own.lua", "return %-x", "return 0") -- its old text is not stored
    new, said = new_trials(folder)
    t.eq(new, ALL)
    t.holds(said, "2 trials are new: the script or its modules changed; the old code cannot be "
      .. "loaded")
    write_files(folder, "x.lua", "unused%(x%) return x end", "unused(x) return 7 * x end")
    t.holds(select(2, trials.run(folder, t.read(folder .. "/x.lua"))), "2 trials: 2 already done")
    t.eq(trials.query(folder, "SELECT id FROM v_trials ORDER BY id"), old)
    t.eq(trials.query(folder, "SELECT 1 FROM v_events"), {})
    write_files(folder, "own.lua", "return %-x", "return 0") -- now the parts of its code are
    t.eq(new_trials(folder), "")
  end)
end)

t.test("--adopt takes over only finished trials", function()
  in_folder(function(folder)
    run_first(folder)
    local store = records.open(folder .. "/results", "w")
    store:rows "UPDATE trials SET status = 'failed' WHERE config ->> '$.a' = 2"
    store:close()
    write_files(folder, "x.lua", "FACTOR = 3", "FACTOR = 4")
    local _, _, list = new_trials(folder)
    t.eq({ other_ids.adoptable(list[1]), other_ids.adoptable(list[2]) }, { true, false })
  end)
end)

t.done()
