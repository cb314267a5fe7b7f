-- test_reproduce.lua: plans with estimates, and trials that are run again.
local t = require "harness"
local core = require "toeplab.core"
local estimate = require "toeplab.runs.estimate"
local experiment = require "toeplab.trials.experiment"
local plan = require "toeplab.trials.plan"
local provenance = require "toeplab.trials.provenance"
local progress = require "toeplab.base.progress"
local records = require "toeplab.store.records"
local reproduce = require "toeplab.runs.reproduce"
local errors = require "toeplab.base.errors"
local sweeps = require "sweeps"
local trials = require "trials"

local in_folder, write = t.in_folder, t.write

-- ---- Plans ------------------------------------------------------------------------------------

t.test("a plan counts what each rule adds", function()
  in_folder(function(folder)
    write(folder .. "/x.lua", [[
return require("toeplab").experiment "x" {
  fixed = { rank = 0 },
  grid = { model = { "tno", "ski" }, causal = { true, false } },
  zip = { length = { 8, 16 }, batch = { 4, 2 } },
  when = { { where = { model = "ski" }, grid = { rank = { 1, 2, 3 } } } },
  except = { { where = { model = "ski", causal = true }, reason = "none" } },
  seeds = 2, trial = function() end }
]])
    local list, about = plan.trials(experiment.load(folder .. "/x.lua"), {})
    t.eq(about.counts, { 8, 16 })
    t.eq(#about.left_out, 6)
    t.eq(#list, 2 * (16 - 6))
  end)
end)

local function learnt(folder)
  local list = {}
  for i, lr in ipairs { 0.1, 0.2 } do
    for seed = 1, 2 do
      list[#list + 1] = { config = { lr = lr, steps = 100, batch = 4 }, seed = seed,
        seconds = 10.0 * i + seed }
    end
  end
  list[#list + 1] = { config = { lr = 0.1, steps = 100, batch = 64 }, seed = 1, seconds = 500.0 }
  list[#list + 1] = { config = { lr = 0.3, steps = 100, batch = 4 }, seed = 1, seconds = 1e6,
    status = "failed" }
  sweeps.write(folder, { experiment = "x", trials = list })
  return records.open(folder, "r")
end

t.test("an estimate is the mean of the trials that are nearest", function()
  in_folder(function(folder)
    local store <close> = learnt(folder)
    local model = estimate.new(store, "x")
    t.eq(model.finished, 5)
    local function check(config, seconds, far, of)
      local p = model:whole(config)
      t.eq({ p.seconds, p.far, p.trials }, { seconds, far, of })
    end
    check({ lr = 0.1, steps = 100, batch = 4, seed = 9 }, 11.5, 0, 2)
    check({ lr = 0.2, steps = 100, batch = 4, seed = 1 }, 21.5, 0, 2)
    check({ lr = 0.7, steps = 100, batch = 4 }, 16.5, 1, 4)
    check({ lr = 0.7, steps = 100, batch = 64 }, 500.0, 1, 1)
    check({ lr = 0.1, steps = 1000, batch = 4 }, 115.0, 0, 2)
    t.eq(model:left({ lr = 0.1, steps = 100, batch = 4 }, 50, 20.0).seconds, 20.0)
    t.eq(model:left({ lr = 0.1, steps = 100, batch = 4 }, 50).seconds, 5.75)
    t.eq(estimate.new(store, "y"):whole { lr = 0.1 }, nil)
  end)
end)

t.test("an estimate from many trials goes through those keys only that vary", function()
  in_folder(function(folder)
    local list, asked, count, n = {}, {}, 0, 200
    for i = 1, n do
      list[i] = { config = { lr = i / 1000, steps = 10 }, seed = 1, seconds = 1.0 }
      asked[i] = { lr = -i / 1000, steps = 10 }
      for k = 1, 40 do list[i].config["key" .. k], asked[i]["key" .. k] = k, k end
    end
    sweeps.write(folder, { experiment = "wide", trials = list })
    local store <close> = records.open(folder, "r")
    local model = estimate.new(store, "wide")
    debug.sethook(function() count = count + 100 end, "", 100) -- instructions of Lua
    for _, config in ipairs(asked) do model:whole(config) end
    debug.sethook()
    t.ok(count < 100 * n * n, ("%d instructions for a pair"):format(count // (n * n)))
    local p = model:whole(asked[1])
    t.eq({ p.seconds, p.far, p.trials }, { 1.0, 1, n })
  end)
end)

t.test("the time left: from finished trials, and the pace of running ones", function()
  in_folder(function(folder)
    local store <close> = learnt(folder)
    local config = { lr = 0.1, steps = 100, batch = 4 } -- takes 11.5 s
    local function left(jobs, queue, step, had)
      local workers = { { trial = { config = config }, began = core.sys.clock() - had, seconds = 5,
        step = step }, {} }
      return estimate.of_run(store, "x", jobs)(queue, workers)
    end
    t.eq(left(1, {}, 50, 5), 10, 0.1) -- 10 s for 50 steps
    t.eq(left(1, {}, nil, 5), 6.5, 0.1)
    t.eq(left(1, { { config = config } }, 50, 5), 21.5, 0.1)
    t.eq(left(2, { { config = config } }, 50, 5), 11.5, 0.1)
    t.eq(left(1, { { config = config, step = 80, had = 10 } }, 50, 5), 12.5, 0.1)
    t.eq(estimate.of_run(store, "y", 1)({ { config = config } }, {}), nil)
  end)
end)

t.test("progress says when all will be done", function()
  local said = {}
  local out = { write = function(_, ...) said[#said + 1] = table.concat { ... } end,
    flush = function() end }
  local function left() return 63 end
  local p = progress.new { out = out, every = 0 }
  p:expect(4, 2, 1)
  p:show({ { trial = { label = "a" }, step = 1, total = 2, text = "" } }, { done = 1 }, left)
  p:expect(4, 1)
  p:start "[1/4] a"
  p:update(1, 2, "loss 1", left)
  p:ended({ head = "[1/4] a", text = "loss 1" }, {}, "done", 75)
  p:expect(4, 2)
  p:ended({ head = "[1/4] a", text = "loss 1" }, {}, "done", 75)
  t.eq(said, { "[2/4 done, eta 1m03s] a 1/2\n", "[1/4] a  step 1/2  loss 1  eta of all 1m03s\n",
    "[1/4] a  done  loss 1  1m15s\n" })
end)

t.test("trials are handed out in order to workers that are free", function()
  t.eq(estimate.makespan({ 3.0, 1.0, 1.0, 1.0, 4.0 }, 1), 10.0)
  t.eq(estimate.makespan({ 3.0, 1.0, 1.0, 1.0, 4.0 }, 2), 7.0)
  t.eq(estimate.makespan({ 3.0, 1.0 }, 5), 3.0)
end)

-- ---- Provenance -------------------------------------------------------------------------------

t.test("provenance leaves the checkout as it is: git may be killed while it looks", function()
  in_folder(function(folder)
    local library, path = folder .. "/toeplab", package.path
    assert(core.sys.mkdir(library))
    write(library .. "/init.lua", "return 1")
    local git = ("git -C '%s' -c user.name=a -c user.email=a@b "):format(library)
    t.ok(os.execute(git .. "init -q && " .. git .. "add init.lua && " .. git .. "commit -qm a"))
    t.ok(os.execute(("touch -d 2001-01-01 '%s/init.lua'"):format(library))) -- git looks again
    local before = core.sys.read_file(library .. "/.git/index")
    package.path = folder .. "/?/init.lua"
    local commit, dirty = provenance.commit()
    local changes = provenance.changes()
    write(library .. "/init.lua", "return 2")
    local changed = { provenance.commit() }
    local text = provenance.changes()
    package.path = path
    t.eq({ #commit, dirty, changes }, { 40, false })
    t.eq(changed, { commit, true })
    t.ok(text:find("+return 2", 1, true), text)
    t.ok(core.sys.read_file(library .. "/.git/index") == before, "the index was written")
  end)
end)

t.test("provenance says what numbers may depend on, and no secrets", function()
  local about = provenance.collect { "toeplab", "run" }
  local known = " sse4_2 avx avx2 fma avx512f avx512bw avx512vl amx_tile asimd sve "
  for name in about.features:gmatch "%S+" do
    t.ok(known:find(" " .. name .. " ", 1, true), name)
  end
  t.ok(about.build.sqlite and about.build.hdf5 and about.build.blas)
  local text = provenance.masked(table.concat({ "diff --git a/x.sh b/x.sh", "+++ b/x.sh",
    "+API_TOKEN=abcdef0123456789abcdef", "+token = next_token(line)", " plain", "" }, "\n"))
  t.ok(not text:find "abcdef0123456789")
  t.ok(text:find "\n%+%(masked%)\n" and text:find "next_token" and text:find "\n plain\n")
  t.ok(not provenance.masked("diff --git a/.env b/.env\n+PASSWORD=1\n"):find "PASSWORD")
end)

-- ---- Reproducing ------------------------------------------------------------------------------

-- What the program answers to words, and its exit code, in a folder with tuning results of its own.
local function answer(folder, words)
  return t.shell(("cd '%s' && TOEPLAB_CACHE='%s' '%s' %s 2>&1"):format(folder, folder,
    core.sys.executable(), words))
end

local script = [[
local tl = require "toeplab"
return tl.experiment "again" {
  fixed = { steps = 12, flag = "" },
  grid = { width = { 8, 16, 65536 } },
  seeds = 2,
  checkpoint = { steps = 5 },
  trial = function(t, c)
    local x = tl.zeros(c.width)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * 0.5 + noise:normal(tl.zeros(c.width), 0, 1))
      local flag = step == 9 and io.open(c.flag)
      if flag then
        flag:close()
        x:copy(x * 1.5)
      end
      t:log { loss = (x * x):mean():item(), nan = 0 / 0, seconds = tl.sys.clock(),
        state = step % 3 == 0 and x or nil }
    end
    t:text("note", "the sum is " .. x:sum():item())
  end,
}
]]

local quiet = { write = function() end, flush = function() end }

-- Runs the trial of width and seed 2 again; returns what reproduce.compare tells, differences, and
-- how many instructions of Lua the comparison took, in hundreds.
local function again(folder, width, ignored, threads)
  local store <close> = records.open(folder .. "/results", "r")
  local id = store:rows([[SELECT id FROM trials WHERE seed = 2
    AND json_extract(config, '$.width') = ?]], { width })[1].id
  local row = reproduce.stored(store, id)
  local scratch = ("%s/scratch-%d"):format(folder, width)
  local new_id = reproduce.run(row, scratch, { threads = threads or 1, quiet = true,
    out = quiet, command = { "toeplab", "reproduce" } })
  local new <close> = records.open(scratch .. "/results", "r")
  t.eq(#new:rows "SELECT id FROM trials", 1)
  local hundreds = 0
  debug.sethook(function() hundreds = hundreds + 1 end, "", 100)
  local told = reproduce.compare(store, id, new, new_id, ignored)
  debug.sethook()
  return told, reproduce.differences(row, reproduce.stored(new, new_id)), hundreds
end

-- Writes the logged tensors there again, in files of other bytes, as another library might.
local function write_tensors_again(folder)
  local store <close> = records.open(folder .. "/results", "w")
  for _, row in ipairs(store:rows "SELECT path FROM artifacts WHERE kind = 'tensor:state'") do
    local path = folder .. "/results/" .. row.path
    local file = core.h5_open(path)
    core.h5_write(path, { { "state", file:read "state" } }, { by = "another" })
    store:rows("UPDATE artifacts SET sha256 = ? WHERE path = ?", { core.sha256_file(path),
      row.path })
  end
end

t.test("a trial that is run again is bit-identical, or the first difference is reported", function()
  in_folder(function(folder)
    local code = trials.run(folder, script, { "flag=" .. folder .. "/flag" }, { threads = 1 })
    t.eq(code, 0)
    local told, differences = again(folder, 16, { seconds = true })
    t.ok(told.equal)
    t.eq({ told.metrics.same, told.metrics.differ, told.metrics.ignored }, { 24, 0, 12 })
    t.eq({ told.checkpoint.step, told.checkpoint.tensors, told.texts }, { 12, 2, 2 })
    t.eq(told.tensors, { same = 4, differ = 0 })
    t.eq(differences, {})
    write_tensors_again(folder)
    t.ok(not again(folder, 16).equal, "the time was the same")
    local large, _, hundreds = again(folder, 65536, { seconds = true })
    t.ok(large.equal and hundreds < 655, "Lua looks at the elements of tensors: " .. hundreds)

    write(folder .. "/flag", "")
    told, differences = again(folder, 8, { seconds = true }, 2)
    t.ok(not told.equal)
    t.eq({ told.metrics.first.step, told.metrics.first.name }, { 9, "loss" })
    t.eq(told.metrics.same, 12 + 8)
    t.eq(told.checkpoint.differ, { "model/x", "optim/x" })
    t.eq(told.other_texts, { "note" })
    t.eq(told.tensors, { same = 2, differ = 2, first = "state of step 9" })
    t.eq(differences, { { name = "threads", was = "1", is = "2" } })
  end)
end)

t.test("where nothing that is recorded differs, the order of pairs is named as a cause", function()
  in_folder(function(folder)
    t.eq(trials.run(folder, [[local tl = require "toeplab"
      return tl.experiment "clock" { trial = function(t) t:log { now = tl.sys.now() } end }]]), 0)
    local text, code = t.toeplab(("reproduce @last -C '%s/results'"):format(folder))
    t.eq(code, 4)
    t.holds(text, "no recorded property differs", "the order of pairs(), which differs in each")
  end)
end)

t.test("a stored checkpoint that is damaged or missing is an error that names it", function()
  in_folder(function(folder)
    t.eq(trials.run(folder, script, { "flag=none", "width=8", "seeds=1" }), 0)
    local store <close> = records.open(folder .. "/results", "r")
    local id = store:rows("SELECT id FROM v_trials")[1].id
    local path = folder .. "/results/" .. store:rows([[SELECT path FROM v_artifacts
      WHERE kind = 'checkpoint' ORDER BY step DESC]])[1].path
    t.ok(reproduce.stored(store, id) and reproduce.compare(store, id, store, id).equal)
    local text = core.sys.read_file(path)
    local function check()
      for _, ask in ipairs { reproduce.stored, reproduce.compare } do
        local ok, why = pcall(ask, store, id, store, id)
        t.ok(not ok and errors.is(why) and why.code == errors.STORAGE, why)
        t.eq(why.message:match "^(.-) is missing or damaged: the checkpoint", path)
      end
      local told, code = answer(folder, "reproduce @last")
      t.ok(code == errors.STORAGE and told:find("is missing or damaged", 1, true), told)
      t.ok(not core.sys.exists(folder .. "/results/reproduce-" .. id:sub(1, 12)), "it was run")
    end
    local middle = #text // 2
    write(path, text:sub(1, middle - 1) .. string.char(text:byte(middle) ~ 1)
      .. text:sub(middle + 1))
    check()
    core.sys.remove(path)
    check()
  end)
end)

-- ---- The backend auto -------------------------------------------------------------------------

local choosing = [[
local tl = require "toeplab"
return tl.experiment "choosing" {
  fixed = { flag = "" },
  checkpoint = { steps = 1 },
  trial = function(t, c)
    local tno = tl.nn.TNO(4, { backend = "auto", encoder = "table" })
    for step in t:steps(2, tno, tno) do
      t:log { loss = tno(tl.ones(1, 40, 4)):sum() }
      if step == 1 and not tl.sys.exists(c.flag) then error "not yet" end
    end
    t:text("chosen", tno:chosen(40))
  end,
}
]]

t.test("what auto chose first is chosen again, in later attempts and in a reproduction", function()
  in_folder(function(folder)
    local run, cache = "run x.lua -q flag=flag", folder .. "/backends.chosen"
    write(folder .. "/x.lua", choosing)
    t.eq(select(2, answer(folder, run)), 1)
    local first = answer(folder, "show @last"):match "backends    auto: (%l+) at 40\n"
    local other = first == "rac" and "fft" or "rac"
    t.ok(first, "show says nothing of it")
    -- Another measurement: the machine would choose another one now.
    local chosen = core.sys.read_file(cache):gsub("%l+\n", other .. "\n")
    write(cache, chosen)
    write(folder .. "/flag", "")

    -- Lost, it is not quietly another one.
    local store <close> = records.open(folder .. "/results", "r")
    local row = store:rows("SELECT trial, path FROM artifacts WHERE kind = 'backends'")[1]
    local file = folder .. "/results/" .. row.path
    t.ok(core.sys.rename(file, folder .. "/aside"))
    local told, code = answer(folder, run)
    t.ok(code == 1 and told:find "is missing or damaged: the trial does not know", told)
    t.ok(core.sys.rename(folder .. "/aside", file))

    t.eq(select(2, answer(folder, run)), 0)
    t.ok(answer(folder, "show @last"):find("auto: " .. first .. " at 40", 1, true))
    t.eq(select(2, store:results(row.trial)).chosen, first)
    told, code = answer(folder, "reproduce @last")
    t.eq({ code, told:match "texts +(.-)\n" }, { 0, "3 of 3 the same" })

    write(file, other) -- damaged, they are not chosen anew
    told, code = answer(folder, "reproduce @last")
    t.ok(code == 6 and told:find "is missing or damaged: the backends", told)
  end)
end)

t.test("a trial that its stored script no longer declares is not run again", function()
  in_folder(function(folder)
    write(folder .. "/x.lua", choosing)
    write(folder .. "/flag", "")
    t.eq(select(2, answer(folder, "run x.lua -q flag=flag")), 0)
    do
      local store <close> = records.open(folder .. "/results", "w")
      store:rows("UPDATE trials SET config = json_set(config, '$.precision', 'bf16')")
    end
    local told, code = answer(folder, "reproduce @last")
    t.ok(code == 4 and told:find "no longer declares this", told)
  end)
end)

-- Dies once, where the second choice is made: its file is written, its row is not ("write_file"),
-- or the old file is still there ("remove").
local dying = [[
local tl = require "toeplab"
local core = require "toeplab.core"
return tl.experiment "dying" {
  fixed = { at = "remove", flag = "" },
  trial = function(t, c)
    local plain, count = core.sys[c.at], c.at == "remove" and 1 or 0
    core.sys[c.at] = function(path, text)
      local chosen = path:find("/backends-", 1, true)
      count = count + (chosen and 1 or 0)
      if chosen and count == 2 and not tl.sys.exists(c.flag) then
        io.open(c.flag, "w"):close()
        if text then plain(path, text) end
        core.sys.kill(core.sys.getpid())
      end
      return plain(path, text)
    end
    local names = {}
    for i, n in ipairs { 40, 48, 56 } do
      local tno = tl.nn.TNO(4, { backend = "auto", encoder = "table" })
      tno(tl.ones(1, n, 4))
      names[i] = tno:chosen(n)
    end
    core.sys[c.at] = plain
    t:text("chosen", table.concat(names, " "))
  end,
}
]]

t.test("a kill at any moment of a second choice leaves the first one", function()
  for _, at in ipairs { "write_file", "remove" } do
    in_folder(function(folder)
      write(folder .. "/x.lua", dying)
      local told, code = answer(folder, "run x.lua -q flag=flag at=" .. at)
      t.ok(code == 0 and core.sys.exists(folder .. "/flag"), told)
      local store <close> = records.open(folder .. "/results", "r")
      local rows = store:rows("SELECT path, sha256 FROM artifacts WHERE kind = 'backends'")
      t.eq(#rows, 1)
      local text = core.sys.read_file(folder .. "/results/" .. rows[1].path)
      t.eq(core.sha256(text), rows[1].sha256)
      t.eq(select(2, text:gsub("\n", "")), 3)
      local files = 0
      for _, name in ipairs(core.sys.list((folder .. "/results/" .. rows[1].path):match "(.+)/")) do
        files = files + (name:find "^backends" and 1 or 0)
      end
      t.eq(files, 1)
    end)
  end
end)

t.test("only what is done can be run again", function()
  in_folder(function(folder)
    sweeps.write(folder, { experiment = "x", trials = { { config = { a = 1 }, seed = 1,
      status = "failed" } } })
    local store <close> = records.open(folder, "r")
    local ok, why = pcall(reproduce.stored, store, store:rows("SELECT id FROM trials")[1].id)
    t.ok(not ok and errors.is(why) and why.code == errors.USAGE)
    t.ok(tostring(why):find "is failed: only finished trials")
    t.ok(core.sys.exists(folder))
  end)
end)

t.done()
