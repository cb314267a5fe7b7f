-- test_experiment.lua: declarations, trials, overrides; configurations, JSON, corpora.
local t = require "harness"
local config = require "toeplab.base.config"
local corpus = require "toeplab.tasks.corpus"
local experiment = require "toeplab.trials.experiment"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local plan = require "toeplab.trials.plan"
local progress = require "toeplab.base.progress"
local provenance = require "toeplab.trials.provenance"

-- The experiment in text, loaded from a file of a known name; what fails is raised as text.
local function declare(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  local ok, result = pcall(experiment.load, path)
  os.remove(path)
  if not ok then error((tostring(result):gsub(path:gsub("%p", "%%%0"), "x.lua")), 0) end
  return result, path
end

local good = [[
local tl = require "toeplab"
return tl.experiment "test" {
  fixed = { layers = 2, rate = 0.5, name = "a", on = true, sizes = { 1, 2 } },
  grid = {
    decay = { 0.99, 1, "learnable" },
    width = { 8, 16 },
  },
  seeds = 2,
  scale = { small = { layers = 1, width = { 4 } } },
  trial = function(t, c) end,
}
]]

-- head: what stands before the experiment; nil: nothing.
local function refused(old, new, want, head)
  local place, last = good:find(old, 1, true)
  t.ok(place, "the text has no " .. old)
  t.raises(declare, want, (head or "") .. good:sub(1, place - 1) .. new .. good:sub(last + 1))
end

local loop = "local LOOP, LIST = {}, {} LOOP.on = LOOP LIST[1] = LIST\n"

t.test("a misspelt field is an error with its line and a suggestion", function()
  refused("fixed =", "fixd =",
    "x%.lua:3: an experiment has no field 'fixd'; did you mean 'fixed'%?")
  refused("seeds = 2", "seeds = 0", "x%.lua:8: seeds must be")
  refused("width = { 8, 16 }", "width = 8", "x%.lua:6: grid: width must be a list")
  refused("width = { 8, 16 }", "layers = { 8 }", "layers is declared twice")
  refused("on = true", '["a.b"] = 7, a = { b = 8 }', "x%.lua:3: a%.b is declared twice")
  refused("on = true", 'c = { ["a.b"] = 7, a = { b = 8 } }', "x%.lua:3: c%.a%.b is declared twice")
  refused("decay =", '["a.b"] = { 7 }, a = { b = { 8 } }, decay =', "a%.b is declared twice")
  refused("layers = 1,", "layrs = 1,", "x%.lua:9: .*'layrs'.*did you mean 'layers'")
  refused("trial = function(t, c) end,", "", "has no trial")
  refused("on = true", "seed = 3", "x%.lua:3: the key 'seed' is set by the runner")
  refused("on = true", "on = print", "x%.lua:3: on must be .*not a function")
  refused("scale = { small", 'scale = { ["../up"] = {}, small', "x%.lua:9: .*'%.%./up' cannot be")
  refused("seeds = 2,", "data = { a = 'name' },", "x%.lua:8: data must be a list of keys")
  refused("seeds = 2,", "checkpoint = { steps = 1.5 },",
    "x%.lua:8: checkpoint: option 'steps' must be an integer, got 1%.5")
  refused("seeds = 2,", "checkpoint = { steps = 0 },", "'steps' = 0 must be at least 1")
  refused("seeds = 2,", "checkpoint = { step = 5 },", "'step'.*did you mean 'steps'")
  refused("seeds = 2,", "checkpoint = { seconds = 0 / 0 },", "'seconds' = .*must be a number")
  refused("seeds = 2,", "checkpoint = { seconds = 0 },", "'seconds' must be above 0")
end)

t.test("values without names or that no store keeps are errors with their line", function()
  refused("fixed =", "5, fixed =", "x%.lua:2: test has a value, 5, without a name")
  refused("on = true", "[3] = true", "x%.lua:3: fixed has %[3%], true, without a name")
  refused("width = { 8, 16 }", "{ 8, 16 }", "x%.lua:4: grid has a value, a table, without a name")
  refused("layers = 1,", "1,", "x%.lua:9: small has a value, 1, without a name")
  refused("rate = 0.5", "rate = 0/0", "x%.lua:3: rate must be a finite number, not nan")
  refused("0.99, 1", "0.99, 1/0", "x%.lua:5: decay must be a finite number, not inf")
  refused('"learnable"', '"a\\0b"', "x%.lua:5: decay must be a string without NUL bytes")
  refused('name = "a"', 'name = "\\0"', "x%.lua:3: name must be a string without NUL bytes")
  refused("on = true", "on = LOOP", "x%.lua:4: on%.on contains itself", loop)
  refused("small = {", "small = { name = LOOP,", "name%.on contains itself", loop)
  refused("on = true", "on = { LIST }", "x%.lua:4: on contains itself", loop)
  refused("{ 8, 16 }", "{ LIST }", "x%.lua:7: width contains itself", loop)
  refused("{ 1, 2 }", "{ 1, 2, x = 3 }", "x%.lua:3: sizes must be .*not a table with names")
  t.raises(json.encode, "^JSON has no nan$", { -(0 / 0) })
end)

t.test("the rows and columns of a report are checked when the script is loaded", function()
  local function report_is(text, want)
    refused("seeds = 2,", "seeds = 2,\n  report = " .. text .. ",", want)
  end
  report_is('{ rows = "decy", columns = { "loss" } }',
    "x%.lua:9: report: rows: there is no key 'decy'; did you mean 'decay'")
  report_is('{ rows = {}, columns = { "loss" } }', "report: rows must be a key or a list of keys")
  report_is('{ rows = { "decay", { 1 } }, columns = { "loss" } }', "rows: there is no key 'table")
  report_is('{ rows = { "decay", "sed" }, columns = { "loss" } }', "did you mean 'seed'")
  report_is('{ rows = "decay", columns = "loss" }', "columns must be a list of metrics")
  report_is('{ rows = "decay" }', "columns must be a list of metrics")
  report_is('{ row = "decay" }', "x%.lua:9: report has no field 'row'; did you mean 'rows'")
  local text = good:gsub("seeds = 2,", 'seeds = 2, report = { rows = "seed", columns = { "x" } },')
  t.eq(declare(text).report.rows, "seed")
end)

t.test("a script cannot make or use an undeclared global", function()
  t.raises(declare, "x%.lua:1: global 'y' is not allowed", "y = 1\n" .. good)
  t.raises(declare, "x%.lua:1: 'prnt' is not declared; did you mean 'print'", "prnt(1)\n" .. good)
  t.raises(declare, "ends with: return tl%.experiment", "return 3")
  t.raises(declare, "x%.lua:1: .*expected", "return return")
end)

t.test("a script that calls os.exit, or is compiled, is refused", function()
  t.raises(declare, "os.exit would end the program", "os.exit(0)")
  t.raises(declare, "os.exit would end the program", "load 'os.exit(0)'()")
  t.raises(declare, "os.exit would end the program", "_G.os.exit(0)")
  t.raises(declare, "x.lua: attempt to load a binary chunk", string.dump(load "return 1"))
end)

t.test("trials are all combinations with each seed, in a fixed order", function()
  local trials, about = plan.trials(declare(good), {})
  t.eq(#trials, 12)
  t.eq(about.axes, { "decay", "width" })
  t.eq(trials[1].label, "decay=0.99 width=8 seed=1")
  t.eq(trials[2].label, "decay=0.99 width=8 seed=2")
  t.eq(trials[3].label, "decay=0.99 width=16 seed=1")
  t.eq(trials[12].label, "decay=learnable width=16 seed=2")
  t.eq(trials[12].config, { layers = 2, rate = 0.5, name = "a", on = true, sizes = { 1, 2 },
    decay = "learnable", width = 16, seed = 2, precision = "float32", device = "cpu",
    ranks = 1, sequence_ranks = 1, micro_batches = 1 })
end)

t.test("overrides are parsed as the declared type", function()
  local exp = declare(good)
  local trials = plan.trials(exp, { "layers=3", "rate=2", "name=b=c", "on=false", "sizes=4,5,6",
    "decay=learnable,0.5", "width=32", "seed=7" })
  t.eq(#trials, 2)
  t.eq(trials[1].config, { layers = 3, rate = 2.0, name = "b=c", on = false, sizes = { 4, 5, 6 },
    decay = "learnable", width = 32, seed = 7, precision = "float32", device = "cpu",
    ranks = 1, sequence_ranks = 1, micro_batches = 1 })
  t.eq(math.type(trials[1].config.rate), "float")
  t.eq(trials[2].config.decay, 0.5)
  t.eq(#plan.trials(exp, { "seeds=3" }), 18)
  t.eq(plan.trials(exp, { "layers=1e1" })[1].config.layers, 10)
end)

t.test("a scale sets values, and later words override it", function()
  local exp = declare(good)
  local trials = plan.trials(exp, { "scale=small", "decay=1" })
  t.eq(#trials, 2)
  t.eq({ trials[1].config.layers, trials[1].config.width }, { 1, 4 })
  t.eq(plan.trials(exp, { "layers=5", "scale=small" })[1].config.layers, 5)
end)

t.test("invalid overrides are errors that name the line", function()
  local exp = declare(good)
  local function refuse(want, ...) t.raises(plan.trials, want, exp, { ... }) end
  refuse(":3: unknown key 'layrs' on the command line; did you mean 'layers'%?", "layrs=3")
  refuse("unknown key 'ema' .* must be added to fixed: ema = VALUE%)", "ema=0.9")
  refuse(":3: layers takes an integer, got 'two'", "layers=two")
  refuse(":3: layers takes an integer, got '2.5'", "layers=2.5")
  refuse(":3: on takes true or false, got 'yes'", "on=yes")
  refuse(":6: width takes an integer in each place", "width=8,x")
  refuse(":9: there is no scale 'smal'; did you mean 'small'", "scale=smal")
  refuse("seeds takes integers of at least 1, got '0'", "seeds=0")
  refuse("'layers' is not a setting", "layers")
  refuse(": draws requires random, which this experiment does not declare", "draws=3")
  exp = declare((good:gsub("width = { 8, 16 }", "width = { { 8, 16 }, { 4 } }")))
  refuse(":6: width takes a list like %[8,16%] in each place", "width=8,16")
  t.eq(plan.trials(exp, { "width=6" })[1].config.width, { 6 })
end)

t.test("a key that only scales set needs a scale", function()
  local exp = declare((good:gsub("small = {", "large = { steps = 9 }, small = { steps = 1,")))
  t.raises(plan.trials, ":9: 'steps' has a value only in a scale: add scale=large or scale=small",
    exp, {})
  t.eq(plan.trials(exp, { "scale=small", "steps=4" })[1].config.steps, 4)
end)

t.test("an experiment's check runs before anything", function()
  local exp = declare((good:gsub("seeds = 2,",
    'seeds = 2, check = function(c) assert(c.width > 8, "width is small") end,')))
  t.raises(plan.trials, ":%d+: .*width is small %(trial .*seed=1%)", exp, {})
  t.eq(#plan.trials(exp, { "width=9" }), 6)
  exp = declare((good:gsub("seeds = 2,", 'seeds = 2, check = function() error("bad") end,')))
  local _, why = pcall(plan.trials, exp, {})
  t.eq(select(2, tostring(why):gsub(":%d+: ", "")), 1) -- its place is said once
end)

t.test("labels of trials have enough digits to differ", function()
  local function labels(list, ...)
    local found = {}
    local exp = declare((good:gsub("{ 0.99, 1, \"learnable\" }", list)))
    for i, trial in ipairs(plan.trials(exp, { "width=8", "seed=1", ... })) do
      found[i] = trial.label:match "decay=(%S+)"
    end
    return found
  end
  t.eq(labels "{ 100001.0, 100002.0 }", { "100001", "100002" })
  t.eq(labels "{ 1.00000000000001, 1 + 2^-52 }", { "1.00000000000001", "1" })
  t.eq(labels "{ 1 / 3, 0.25 }", { "0.3333", "0.25" })
  t.eq(labels "{ 3.16227766e-4 }", { "0.0003162" })
end)

t.test("a declared string with a comma is one value", function()
  local exp = declare((good:gsub("{ 0.99, 1, \"learnable\" }", '{ "a,b", "a", "c" }')))
  local function values(word)
    local found = {}
    for i, trial in ipairs(plan.trials(exp, { "width=8", "seed=1", word })) do
      found[i] = trial.config.decay
    end
    return found
  end
  t.eq(values "decay=a,b", { "a,b" })
  t.eq(values "decay=c,a,b,d", { "c", "a,b", "d" })
  t.eq(values "decay=a,c", { "a", "c" })
  t.eq(values "decay=a,bc", { "a", "bc" })
end)

t.test("a value formatted for the command line parses to the same value", function()
  for _, value in ipairs { 3, 0.1, 1.0, 1 / 3, 0.1 + 0.2, 5e-324, true, "a=b", "a,b",
    { 1 / 3, 0.5 }, { "a,b", "c" }, { { 1, 2 }, { 3 } }, "[a,b]", "range(1,3)" } do
    local list = type(value) == "table"
    local read = config.parse_list(config.text(value), list and value or { value })
    t.eq(list and read or read[1], value)
  end
  t.eq(config.text { 0.003, 1e-5, 64 }, "0.003,1e-05,64")
end)

t.test("reading an undeclared key is an error, writing too", function()
  local c = config.new { layers = 2, sizes = { 1 } }
  t.raises(function() return c.layer end, "no 'layer'; did you mean 'layers'")
  t.raises(function() c.layers = 3 end, "cannot be changed")
  local reads = {}
  t.eq(c.layers, 2)
  config.add_reads(c, reads)
  t.eq(reads, { layers = true })
end)

t.test("JSON is canonical", function()
  t.eq(json.encode { b = { 1, 2.0, 0.1 }, a = { y = true, x = "q\"\n\1" } },
    '{"a":{"x":"q\\"\\n\\u0001","y":true},"b":[1,2.0,0.1]}')
  for _, x in ipairs { 1e-7, 1 / 3, -2.5e300, 5e-324, 123456789.125 } do
    t.eq(tonumber(json.number(x)), x)
  end
  t.raises(json.encode, "has no", { 0 / 0 })
  t.raises(json.encode, "cannot hold a function", { print })
  for _, mixed in ipairs { { 1, 2, x = 3 }, { 1, [0] = 2 }, { 1, [1.5] = 2 } } do
    t.raises(json.encode, "a JSON list cannot have the key", mixed)
  end
end)

t.test("progress off a terminal is plain lines, and quiet is silent", function()
  local lines = {}
  local out = { write = function(_, ...) lines[#lines + 1] = table.concat { ... } end,
    flush = function() end }
  local p = progress.new { out = out, every = 0 }
  p:start("[1/2] a")
  p:update(1, 2, "loss 1.5")
  p:update(2, 2, "loss 1.4")
  t.eq(lines[1], "[1/2] a  step 1/2  loss 1.5\n")
  t.ok(lines[2]:find("step 2/2  loss 1.4", 1, true) and not lines[2]:find("\27"), lines[2])
  local clock, now = core.sys.clock, 0
  core.sys.clock = function() return now end
  p:start("")
  p:update(10, 100)
  for _, left in ipairs { 300, 30 } do -- all trials take no less than this one
    now = now + 10
    p:update(10 + now, 100, nil, function() return left end)
  end
  core.sys.clock = clock
  t.eq({ lines[4], lines[5] }, { "step 20/100  eta 1m20s, of all 5m00s  1 steps/s\n",
    "step 30/100  eta 1m10s, of all 1m10s  1 steps/s\n" })
  local columns = core.sys.columns
  core.sys.columns = function() return 8 end
  p.tty = true
  p:line "模型模型"
  p:clear()
  core.sys.columns = columns
  t.eq(lines[#lines - 1], "\r模型模\27[K") -- the last column stays free
  lines = {}
  p = progress.new { out = out, quiet = true }
  p:start("")
  p:update(1, 2, "x")
  t.eq(#lines, 0)
  t.eq(progress.duration(59.2), "59s")
  t.eq(progress.duration(3599), "59m59s")
  t.eq(progress.duration(3723), "1h02m")
end)

-- ---- Corpora ------------------------------------------------------------------------------------

local letters = {}
for i = 0, 999 do letters[i + 1] = string.char(97 + i % 23) end
local text = "text:" .. table.concat(letters)

t.test("a corpus is split in order: train, valid, test", function()
  local data = corpus(text, { valid = 0.1, test = 0.05 })
  t.eq({ data.train:numel(), data.valid:numel(), data.test:numel() }, { 850, 100, 50 })
  t.eq(data.vocab:size(), 23)
  t.eq(data.vocab:decode(data.test), text:sub(5 + 951))
  t.eq(data:stream("test"):get(1), data.valid:get(100))
  t.eq(data:stream("test"):numel(), 51)
  t.ok(not corpus(text, { valid = 0.0 }):stream "valid")
  data:check_lengths("test", { 1, 50 })
  t.raises(data.check_lengths, "length 51 is not from 1 to 50, the tokens of the test part", data,
    "test", { 50, 51 })
  t.raises(data.check_lengths, "length 0 is not from 1 to 100", data, "valid", { 0 })
  t.eq(data.hash, core.sha256(text:sub(6)))
  data = corpus("text:" .. ("a"):rep(90) .. ("\u{e9}"):rep(10), { valid = 0.0, test = 0.1 })
  t.eq({ data.bytes_per_token.train, data.bytes_per_token.test }, { 1, 2 })
end)

t.test("each epoch takes every block once, in an order of seed and epoch", function()
  local numbers = {}
  for i = 1, 250 do numbers[i] = ("%03d "):format(i) end
  local text = "text:" .. table.concat(numbers)
  local data = corpus(text, { valid = 0.0, test = 0.0, batch = 3, length = 11, seed = 5 })
  local blocks, orders = (1000 - 1) // 11, {}
  t.eq(blocks % 3, 0)
  for epoch = 1, 2 do
    local seen, order = {}, {}
    for step = 1, blocks // 3 do
      local ids = data:batch((epoch - 1) * (blocks // 3) + step)
      t.eq(ids:shape(), { 3, 12 })
      for _, row in ipairs(ids:totable()) do
        order[#order + 1] = table.concat(row, " ")
        t.ok(not seen[order[#order]], "a block came twice")
        seen[order[#order]] = true
      end
    end
    orders[epoch] = table.concat(order, "|")
  end
  t.ok(orders[1] ~= orders[2], "both epochs have one order")
  local again = corpus(text, { valid = 0.0, test = 0.0, batch = 3, length = 11, seed = 5 })
  local other = corpus(text, { valid = 0.0, test = 0.0, batch = 3, length = 11, seed = 6 })
  t.eq(again:batch(17), data:batch(17))
  t.ok(table.concat(other:batch(17):totable()[1]) ~= table.concat(data:batch(17):totable()[1]))
end)

t.test("targets are the inputs one token on, also in random order", function()
  for _, order in ipairs { "blocks", "random" } do
    local data = corpus(text, { order = order, batch = 4, length = 7, seed = 1 })
    for _, row in ipairs(data:batch(3):totable()) do
      for i = 2, #row do t.eq(row[i], (row[i - 1] + 1) % 23) end
    end
  end
end)

t.test("wrong corpora are errors that name the problem", function()
  t.raises(corpus, "unknown option 'lenght'; did you mean 'length'", text, { lenght = 3 })
  t.raises(corpus, "unknown corpus 'bible%-kvj'; did you mean 'bible%-kjv'", "bible-kvj")
  t.raises(corpus, "there is a folder %./runs: write corpus=%./runs", "runs")
  t.raises(corpus, "no/such/file.txt: No such file", "no/such/file.txt")
  t.raises(corpus, "gpt2%-bpe is a data set but not a plain text", "gpt2-bpe")
  local all = { batch = 1, valid = 0.0, test = 0.0 }
  local short = corpus("text:abcdefgh", all)
  local want = "8 training tokens are fewer than length %+ 1 = "
  t.raises(short.batch, want .. "9", short, 1, 1, 8)
  t.raises(short.batch, want .. "9223372036854775808", short, 1, 1, math.maxinteger)
  all.length = 8
  t.raises(corpus, want .. "9", "text:abcdefgh", all)
  t.raises(function() local _ = corpus("text:abcdefgh", all) end,
    "test_experiment.lua:%d+: corpus text:abcdefgh: " .. want .. "9")
  t.raises(function() local _ = short:batch(1, 1, 8) end, "test_experiment.lua:%d+: corpus")
  t.raises(function() local _ = corpus("text:abc", { test = 0.05 }) end,
    "test_experiment.lua:%d+: corpus text:abc: 3 tokens are too few")
  t.raises(corpus, "3 tokens are too few to hold out the fraction 0.05", "text:abc",
    { test = 0.05 })
  t.raises(corpus, "/dev/null: is not a file", "/dev/null")
  t.raises(corpus, "must be between 1 and", text, { length = 0 })
  t.raises(corpus, "valid = 0.9 and test = 0.9 leave nothing", text, { valid = 0.9, test = 0.9 })
  t.raises(corpus, "a corpus is named by a string, not by a nil")
  t.raises(short.batch, "step must be an integer of at least 1, got 0", short, 0, 1, 2)
  t.raises(short.batch, "batch must be an integer of at least 1, got 0", short, 1, 0, 2)
  t.raises(short.batch, "length must be an integer of at least 1, got %-1", short, 1, 1, -1)
end)

t.test("the hash of the code covers program, engine, backends and Lua files", function()
  local files = {}
  local sha256_file = core.sha256_file
  core.sha256_file = function(path)
    files[#files + 1] = path
    return sha256_file(path)
  end
  local ok, hash = pcall(provenance.code_hash)
  core.sha256_file = sha256_file
  t.ok(ok and #hash == 64, hash)
  local all = table.concat(files, "\n") .. "\n"
  t.ok(all:find("/libtoeplab.so", 1, true) and all:find("/libtoeplab-lab.so", 1, true), all)
  t.ok(all:find(core.sys.executable() .. "\n", 1, true), all)
  for _, backend in ipairs(core.backends()) do
    t.ok(all:find(backend.path .. "\n", 1, true), all)
  end
  t.ok(all:find("/nn/decay.lua\n", 1, true), all)
  t.ok(all:find("/report/figures/curves.lua\n", 1, true), all)
end)

t.test("long strings are cut between characters", function()
  for n = 36, 40 do
    local shown = config.show("text:" .. ("x"):rep(n) .. ("ä"):rep(40))
    t.ok(utf8.len(shown), shown)
    t.ok(#shown < 62, shown)
  end
end)

t.test("a stored command can be pasted into a shell", function()
  local words = { "toeplab", "run", "x.lua", "corpus=text:a b; c", "decay=0.9", "note=it's" }
  local command = provenance.collect(words).command
  t.eq(command, [[toeplab run x.lua 'corpus=text:a b; c' decay=0.9 'note=it'\''s']])
  t.eq(t.shell("printf '%s\n' " .. command), table.concat(words, "\n") .. "\n")
end)

t.done()
