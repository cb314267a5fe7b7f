-- test_runner.lua: trials that end, fail, stop and go on; checkpoints good and damaged; the store.
local t = require "harness"
local checkpoint = require "toeplab.models.files.checkpoint"
local core = require "toeplab.core"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local errors = require "toeplab.base.errors"
local trials = require "trials"
local wire = require "toeplab.base.wire"

local read, write, in_folder = t.read, t.write, t.in_folder

-- A model with dropout, so that a lost stream would show.
local script = [[
local tl = require "toeplab"
return tl.experiment "test" {
  fixed = { steps = 12, fail_at = 0, flag = "", corpus = "text:" .. ("a bc def ghij "):rep(20) },
  grid = { width = { 4 } },
  checkpoint = { steps = 4 },
  trial = function(t, c)
    local data = tl.corpus(c.corpus, { batch = 2, length = 8 })
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 1, dim = c.width,
      rpe_dim = 4, rpe_layers = 1, dropout = 0.2, backend = "naive" }
    local opt = tl.optim.adam(model, { lr = 0.01 })
    t:log { start = 1 }
    t:log({ size = 0.5 }, 40) -- of an index of its own, beyond all steps
    for step in t:steps(c.steps, model, opt, data) do
      t:log { loss = tl.train.lm_step(model, opt, data:batch(step)), step = step }
      if step == 6 then t:log({ size = 1.5 }, 100) end
      if step == 9 then t:log({ size = 2.5 }, 3) end
      local flag = step == c.fail_at and io.open(c.flag)
      if flag then
        flag:close()
        t:log { before = 1 }
        tl.sys.sleep(0.2)
        error("broken at " .. step)
      end
    end
    t:log { bits = tl.eval.bits_per_token(model, data.test, 8) }
    t:text("sample", "some text")
  end,
  report = function(trials)
    for _, trial in ipairs(trials) do assert(trial.metrics.bits and trial.texts.sample) end
  end,
}
]]

local query = trials.query

local function run(folder, words, text) return trials.run(folder, text or script, words) end

local function metrics(folder)
  local lines, sql = {}, "SELECT name, step, value FROM v_metrics ORDER BY name, step"
  for i, m in ipairs(query(folder, sql)) do
    lines[i] = ("%s %d %a"):format(m.name, m.step, m.value)
  end
  return table.concat(lines, "\n")
end

-- The newest checkpoint as text, bit for bit.
local function final_state(folder)
  local row = query(folder, [[SELECT path FROM v_artifacts WHERE kind = 'checkpoint'
    ORDER BY step DESC LIMIT 1]])[1]
  return t.bits(checkpoint.read(folder .. "/results/" .. row.path))
end

t.test("a state of tensors, numbers, texts and booleans survives a checkpoint", function()
  in_folder(function(folder)
    local path = folder .. "/a.h5"
    checkpoint.write(path, { step = 3, x = { on = true, off = false, name = "n", rate = 0.1,
      none = {}, list = { 5, 6 }, ["a.b"] = core.tensor { 1.5, -0.0 }, ids = core.ids { 7, 8 } } })
    local s = checkpoint.read(path)
    t.eq(s.step, 3)
    t.eq({ s.x.on, s.x.off, s.x.name, s.x.rate, s.x.none, s.x.list },
      { true, false, "n", 0.1, {}, { 5, 6 } })
    t.eq(s.x["a.b"], { 1.5, 0.0 })
    t.eq(s.x.ids, { 7, 8 })
    t.raises(checkpoint.write, "the state at 'f' is a function", path, { f = print })
    t.raises(checkpoint.write, "cannot be the name of a state", path, { ["a/b"] = 1 })
    t.raises(checkpoint.write, "the string at 'x/s' has a zero byte", path, { x = { s = "a\0b" } })
    t.raises(core.h5_write, "attribute 's' has a zero byte", path, {}, { s = "a\0b" })
  end)
end)

t.test("a trial that is done is not run again", function()
  in_folder(function(folder)
    t.eq(run(folder), 0)
    local before = metrics(folder)
    t.eq(run(folder), 0)
    t.eq(metrics(folder), before)
    local row = query(folder, "SELECT * FROM v_trials")
    t.eq(#row, 1)
    t.eq({ row[1].status, row[1].attempt, row[1].step }, { "done", 1, 12 })
    t.eq(#query(folder, "SELECT 1 FROM v_metrics WHERE name = 'loss'"), 12)
    t.eq(#query(folder, "SELECT 1 FROM v_metrics WHERE name = 'start' AND step = 0"), 1)
    t.eq(#query(folder, "SELECT 1 FROM v_metrics WHERE name = 'bits' AND step = 12"), 1)
  end)
end)

t.test("another value, seed or code of the trial is another trial, other code is not", function()
  in_folder(function(folder)
    t.eq(run(folder), 0)
    t.eq(run(folder, { "steps=5" }), 0)
    t.eq(run(folder, { "seed=2" }), 0)
    t.eq(run(folder, {}, "-- changed\n" .. script), 0)
    t.eq(#query(folder, "SELECT DISTINCT id FROM v_trials"), 3)
    t.eq(run(folder, {}, "local changed = 1\n" .. script), 0)
    t.eq(#query(folder, "SELECT DISTINCT id FROM v_trials"), 3)
    t.eq(run(folder, {}, (script:gsub("start = 1", "start = 1 + 0"))), 0)
    t.eq(#query(folder, "SELECT DISTINCT id FROM v_trials"), 4)
  end)
end)

t.test("the last two checkpoints are kept, as rows and as files", function()
  in_folder(function(folder)
    t.eq(run(folder), 0)
    local rows = query(folder, [[SELECT path, bytes, sha256 FROM v_artifacts
      WHERE kind = 'checkpoint' ORDER BY step]])
    t.eq(#rows, 2)
    local run_folder = folder .. "/results/" .. rows[1].path:match("^(.*)/")
    t.eq(core.sys.list(run_folder), { "events-1.jnl", "model-00000000.json", "sample-00000012.txt",
      "step-00000008.h5", "step-00000012.h5", "vocabulary-00000000.txt" })
    for _, row in ipairs(rows) do
      local text = read(folder .. "/results/" .. row.path)
      t.eq({ #text, core.sha256(text) }, { row.bytes, row.sha256 })
    end
  end)
end)

-- Breaks the run at step 10, applies damage to its folder, and goes on.
local function broken_run(folder, damage)
  local flag = folder .. "/flag"
  write(flag, "")
  local words = { "fail_at=10", "flag=" .. flag }
  local code, said = run(folder, words)
  t.eq(code, 1)
  t.ok(said:find("width=4 failed: .*x%.lua:%d+: broken at 10"), said)
  os.remove(flag)
  t.eq(#query(folder, "SELECT 1 FROM v_metrics WHERE step = 10 AND name IN ('before', 'loss')"), 2)
  t.eq(#query(folder, "SELECT 1 FROM v_metrics WHERE name = 'size'"), 3)
  local id = query(folder, "SELECT id FROM v_trials")[1].id
  if damage then damage(folder .. "/results/runs/" .. id:sub(1, 12)) end
  return run(folder, words)
end

-- A run of the same trial that nothing breaks: the flag is never there.
local function straight_run(folder)
  t.eq(run(folder, { "fail_at=10", "flag=none" }), 0)
  return metrics(folder), final_state(folder)
end

local function goes_on(damage, check)
  in_folder(function(folder)
    local code, said = broken_run(folder, damage)
    t.eq(code, 0)
    local got_metrics, got_state = metrics(folder), final_state(folder)
    t.eq(query(folder, "SELECT attempt FROM v_trials")[1].attempt, 2)
    in_folder(function(other)
      local want_metrics, want_state = straight_run(other)
      t.eq(got_metrics, want_metrics)
      t.eq(got_state, want_state)
    end)
    check(said)
  end)
end

t.test("a broken run goes on from its checkpoint to the same bits", function()
  goes_on(nil, function(said) t.ok(said:find("resumed after step 8 of 12"), said) end)
end)

t.test("a damaged checkpoint is reported and the one before it taken", function()
  goes_on(function(folder)
    local path = folder .. "/step-00000008.h5"
    local text = read(path)
    write(path, text:sub(1, 600) .. string.char(text:byte(601) ~ 1) .. text:sub(602))
  end, function(said)
    t.ok(said:find("checkpoint .*step%-00000008%.h5 is damaged"), said)
    t.ok(said:find("resumed after step 4 of 12"), said)
  end)
end)

t.test("a truncated and a missing checkpoint: from the beginning", function()
  goes_on(function(folder)
    write(folder .. "/step-00000008.h5", "short")
    os.remove(folder .. "/step-00000004.h5")
  end, function(said)
    t.ok(said:find("step%-00000008%.h5 is damaged"), said)
    t.ok(said:find("step%-00000004%.h5 is missing"), said)
    t.ok(not said:find("resumed"), said)
  end)
end)

t.test("with no checkpoint left it says that it starts over", function()
  goes_on(function(folder)
    os.remove(folder .. "/step-00000008.h5")
    os.remove(folder .. "/step-00000004.h5")
  end, function(said) t.ok(said:find("starting over from step 1"), said) end)
end)

t.test("a checkpoint that is there but cannot be read ends the run, and is kept", function()
  in_folder(function(folder)
    local code = broken_run(folder, function(path)
      os.remove(path .. "/step-00000008.h5")
      assert(core.sys.mkdir(path .. "/step-00000008.h5")) -- it opens, and does not read
    end)
    t.eq(code, errors.STORAGE)
    t.eq(#query(folder, "SELECT 1 FROM v_artifacts WHERE step = 8 AND kind = 'checkpoint'"), 1)
  end)
end)

t.test("a stored text that was changed or removed is reported in its place", function()
  in_folder(function(folder)
    local path = folder .. "/a.txt"
    local text = script:gsub("report = function.-\n  end,", function()
      return "report = function(trials, report) io.open('" .. path
        .. "', 'w'):write(trials[1].texts.sample):close() end,"
    end)
    t.eq(run(folder, {}, text), 0)
    t.eq(read(path), "some text")
    local file = folder .. "/results/" .. query(folder,
      "SELECT path FROM v_artifacts WHERE kind = 'sample'")[1].path
    write(file, "")
    t.eq(run(folder, {}, text), 0)
    t.ok(read(path):find("sample.*has changed"), read(path))
    os.remove(file)
    t.eq(run(folder, {}, text), 0)
    t.ok(read(path):find("No such file"), read(path))
  end)
end)

t.test("files that no row knows are removed", function()
  local orphans
  goes_on(function(folder)
    orphans = { folder .. "/step-00000009.h5",
      ("%s/.step-00000010.h5.tmp.%s.4194305"):format(folder, core.sys.hostname()) }
    for _, path in ipairs(orphans) do write(path, "an orphan") end
  end, function()
    for _, path in ipairs(orphans) do t.ok(not core.sys.exists(path), path) end
  end)
end)

t.test("one failure does not stop the others; the exit code tells", function()
  in_folder(function(folder)
    local text = script:gsub("width = { 4 }", "width = { 4, 0, 6 }"):gsub("steps = 12", "steps = 2")
      :gsub("dim = c.width", "dim = 4") -- option_check.lua does not see what the loop makes
      :gsub("t:log { loss", "tl.nn.LayerNorm(c.width) %0")
    local code, said = run(folder, {}, text)
    t.eq(code, 1)
    t.ok(said:find("width=0 failed: .*x%.lua:%d+: .*'dim' = 0 must be at least 1"), said)
    t.ok(said:find("3 trials: 2 done, 1 failed"), said)
    local rows = query(folder, "SELECT status, error FROM v_trials ORDER BY status")
    t.eq({ rows[1].status, rows[2].status, rows[3].status }, { "done", "done", "failed" })
    t.ok(rows[3].error:find("must be at least 1"))
  end)
end)

t.test("an axis that no trial reads is an error", function()
  in_folder(function(folder)
    local text = script:gsub("width = { 4 }", "width = { 4 }, other = { 1 }")
    text = text:gsub("steps = 12", "steps = 1")
    local code, said = run(folder, {}, text)
    t.eq(code, 2)
    t.ok(said:find("x%.lua:4: no trial read 'other'"), said)
    t.ok(not said:find("'width'"), said)
  end)
end)

t.test("a trial that resumes need not read an axis again", function()
  in_folder(function(folder)
    local text = script:gsub("width = { 4 }", "%0, late = { 1 }")
      :gsub("t:log { loss", "local _ = c.late %0")
      :gsub("t:log { bits", "assert(not os.remove(c.flag)) %0")
    local flag = "flag=" .. folder .. "/flag"
    write(folder .. "/flag", "")
    t.eq(run(folder, { flag }, text), 1)
    local code, said = run(folder, { flag }, text)
    t.eq(code, 0)
    t.ok(said:find "resumed after step 12 of 12" and not said:find "read", said)
  end)
end)

t.test("what a trial asks of t wrongly is an error", function()
  in_folder(function(folder)
    local function fails(body, want)
      local text = script:gsub("trial = function%(t, c%).-\n  end,\n", function()
        return "trial = function(t, c) " .. body .. " end,\n"
      end)
      local code, said = run(folder, {}, text)
      t.eq(code, 1)
      t.ok(said:find(want), said)
    end
    fails("t:log { loss = 'x' }",
      "x%.lua:6: log: 'loss' must be a number or a tensor, got a string")
    fails("t:steps(-1)", "x%.lua:6: steps: takes an integer of at least 0")
    fails("t:steps(3, {}, {})",
      "x%.lua:6: steps: '[mo]%l+' needs methods state%(%) and load%(state%)\n")
    fails("local m = tl.nn.Linear(1, 1) t:steps(3, m, m, nil, { step = m })",
      "x%.lua:6: steps: 'step' is a reserved name")
    fails("local m = tl.nn.Linear(1, 1) t:steps(3, m, m, nil, m)",
      "x%.lua:6: steps: the last argument is a table { name = object }")
    fails("local m = tl.nn.Linear(1, 1) t:steps(3, m, m, nil, { m })",
      "x%.lua:6: steps: the last argument needs names: .* not %[1%]")
    fails("local m = tl.nn.Linear(1, 1) t:steps(3, m, m, nil, { count = 7 })",
      "x%.lua:6: steps: 'count' needs methods state")
    fails("local m = tl.nn.Linear(1, 1) t:steps(3, m, m, nil, nil, m)",
      "x%.lua:6: steps: takes the number, .* got more")
    fails("t:text('best', '')", "x%.lua:6: text: 'best' is a reserved name")
    fails("t:text('a b', '')", "x%.lua:6: text: takes a name")
    fails("t:log({ a = 1 }, 0.5)", "x%.lua:6: log: the index must be an integer")
    fails("t:model_of('ffff')", "x%.lua:6: no trial's id begins with 'ffff'")
    fails("local _ = c.wdth", "x%.lua:6: .*'wdth'; did you mean 'width'")
  end)
end)

t.test("nothing is started on a wrong word", function()
  in_folder(function(folder)
    t.eq(run(folder, { "widht=3" }), 2)
    t.eq(run(folder, { "corpus=none.txt" }), 2)
    local code, said = trials.run(folder, script, {}, { share = 2 })
    t.eq({ code, said }, { 2, "run: --share requires trials on GPUs, but none has device=cuda" })
    t.ok(not core.sys.exists(folder .. "/results"))
  end)
end)

-- The program itself on text, which may require modules of folder; what it says is the second
-- result.
local function program(folder, text)
  write(folder .. "/x.lua", text)
  local command = "cd '%s' && LUA_PATH='./?.lua;;' '%s' run x.lua -C results >said 2>&1"
  local fine = os.execute(command:format(folder, core.sys.executable()))
  return fine, read(folder .. "/said")
end

t.test("what a trial prints is shown and in its log; what it writes to standard output only there",
  function()
    in_folder(function(folder)
      local fine, said = program(folder, (script:gsub("t:log { start",
        'print(math.type(c.steps), "shown") io.write("written\\n") t:log { start')))
      t.ok(fine and said:find("integer\tshown", 1, true), said)
      t.ok(not said:find "written", said)
      local row = query(folder, "SELECT id FROM v_trials")[1]
      t.eq(read(("%s/results/runs/%s/log.txt"):format(folder, row.id:sub(1, 12))),
        "integer\tshown\nwritten\n")
    end)
  end)

t.test("a configuration reaches the worker bit for bit", function()
  local given = { a = { 1, 2.5, "x\n\0'" }, b = -0.0, c = 5e-324, d = math.mininteger, e = true,
    f = 1.0, g = {}, ["local"] = 0.1 }
  local back = load("return " .. wire.pack(given))()
  t.eq(json.encode(back), json.encode(given))
  t.eq({ math.type(back.f), 1 / back.b }, { "float", -math.huge })
end)

t.test("a module of one's own whose value changes makes another trial", function()
  in_folder(function(folder)
    local text = 'local own = require "own_part"\n' .. script:gsub("start = 1", "start = own")
    for _, own in ipairs { "return 1", "return 1 -- changed", "return 1 + 0", "return 2" } do
      write(folder .. "/own_part.lua", own)
      t.ok(program(folder, text))
    end
    t.eq(#query(folder, "SELECT 1 FROM v_trials"), 2)
  end)
end)

t.test("a module that only the running trial requires is refused: it is not in the id", function()
  in_folder(function(folder)
    write(folder .. "/own_part.lua", "return 1")
    local fine, said = program(folder, (script:gsub("t:log { start",
      'local own = require "own_part" t:log { start')))
    t.ok(not fine)
    t.ok(said:find "x.lua:%d+: 'own_part' must be required at the top of the script", said)
    t.eq(run(folder, {}, (script:gsub("t:log { start",
      'local text = require "toeplab.base.suggest" t:log { start'))), 0)
  end)
end)

t.test("resuming with another number of threads is reported", function()
  local threads = core.threads
  core.threads = function() return 7 end
  local ok, why = pcall(goes_on, function() core.threads = threads end, function(said)
    t.ok(said:find("made with 7 threads, but this run has " .. threads()), said)
  end)
  core.threads = threads
  t.ok(ok, why)
  goes_on(nil, function(said) t.ok(not said:find("threads"), said) end)
end)

t.test("the seconds of a trial are those of all its attempts", function()
  in_folder(function(folder)
    local between
    broken_run(folder, function()
      between = query(folder, "SELECT seconds FROM v_trials")[1].seconds
    end)
    local after = query(folder, "SELECT seconds FROM v_trials")[1].seconds
    t.ok(between > 0.2 and after > between and after < 100, between .. " " .. after)
  end)
end)

t.test("a text logged at two steps is two files; the report has the last", function()
  in_folder(function(folder)
    local text = script:gsub('t:log { bits', 't:text("sample", "last") t:log { bits')
    text = text:gsub('local flag = step', 't:text("sample", "step " .. step) local flag = step')
    text = text:gsub('t:text%("sample", "some text"%)', "")
    text = text:gsub('trial%.texts%.sample', 'trial.texts.sample == "last"')
    t.eq(run(folder, { "steps=3" }, text), 0)
    local rows = query(folder, "SELECT step, path, sha256 FROM v_artifacts WHERE kind = 'sample'")
    t.eq(#rows, 3)
    for _, row in ipairs(rows) do
      local want = row.step == 3 and "last" or "step " .. row.step
      t.eq(read(folder .. "/results/" .. row.path), want)
    end
  end)
end)

t.test("a record of any length is read, and a torn one waits", function()
  in_folder(function(folder)
    local path, long = folder .. "/x.jnl", ("n"):rep(3000000)
    local writer = journal.writer(path)
    writer:add { { "metric", 1, long, 2.0 } }
    writer:close()
    local lines, offset = journal.read(path, 0)
    t.eq({ #lines, lines[1][3] == long, offset }, { 1, true, core.sys.size(path) })
    write(path, read(path):sub(1, -40))
    t.eq({ #journal.read(path, 0), select(2, journal.read(path, 0)) }, { 0, 0 })
  end)
end)

t.test("an error of the engine that is not of the storage fails one trial only", function()
  in_folder(function(folder)
    local text = script:gsub("width = { 4 }", "width = { 4, 5 }"):gsub("steps = 12", "steps = 1")
    text = text:gsub('t:log { start = 1 }', 'if c.width == 4 then tl.h5_open(c.flag) end')
    write(folder .. "/bad.h5", "no HDF5")
    local code, said = run(folder, { "flag=" .. folder .. "/bad.h5" }, text)
    t.eq(code, 1)
    t.ok(said:find("2 trials: 1 done, 1 failed"), said)
    text = text:gsub("tl%.h5_open%(c%.flag%)", 'error(tl.error("ENOSPC", "it is full"), 0)')
    code = run(folder, {}, text)
    t.eq(code, errors.STORAGE)
  end)
end)

t.test("a guard or a prune by a metric that no trial logs is reported", function()
  in_folder(function(folder)
    for _, field in ipairs { "guard", "prune" } do
      local text = script:gsub("checkpoint = { steps = 4 },", function()
        return ('checkpoint = { steps = 4 }, better = { los = "lower" }, %s = { metric = "los" },')
          :format(field)
      end)
      local code, said = run(folder, { "steps=1" }, text)
      t.eq(code, 0)
      t.holds(said, ("x.lua:5: no trial logged 'los', so that %s did nothing; did you mean 'loss'?")
        :format(field))
      code, said = run(folder, { "steps=1" }, (text:gsub('"los"', '"loss"')))
      t.eq(code, 0)
      t.ok(not said:find "did nothing", said)
    end
  end)
end)

t.test("an error of a report names its line, whatever was raised", function()
  in_folder(function(folder)
    for raised, want in pairs { ["{ code = 3 }"] = 'an error object {"code":3}',
      ["'bad', 0"] = "bad", [""] = "nil" } do
      local text = script:gsub("report = function.-\n  end,", function()
        return "report = function() error(" .. raised .. ") end,"
      end)
      local ok, why = pcall(run, folder, { "steps=1" }, text)
      t.ok(not ok)
      t.ok(tostring(why):find("x%.lua:%d+: ") and tostring(why):find(want, 1, true), why)
      t.holds(why, "All results are stored")
    end
  end)
end)

t.test("a report without rows, of an experiment without an axis, has one row", function()
  in_folder(function(folder)
    local text = script:gsub("report = function.-\n  end,", 'report = { columns = { "start" } },')
      :gsub("grid = %b{},", ""):gsub("fixed = {", "fixed = { width = 4,")
    t.write(folder .. "/x.lua", text)
    local fine, said = program(folder, text)
    t.ok(fine and said:find("start  trials\n +1 +1\n"), said)
  end)
end)

t.test("a column that no trial logged is reported", function()
  in_folder(function(folder)
    local text = script:gsub("report = function.-\n  end,", function()
      return 'report = { rows = "width", columns = { "bits", "los", "rate" } },'
    end) .. "\n-- t:log { rate = nil }" -- logged where it is known
    local code, said = run(folder, { "steps=1" }, text)
    t.eq(code, 0)
    t.ok(said:find("no trial logged 'los'; did you mean 'loss'"), said)
    t.ok(not said:find "'bits'" and not said:find "'rate'", said)
  end)
end)

t.done()
