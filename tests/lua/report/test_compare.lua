-- test_compare.lua: comparisons of settings paired by seed, and their reports.
local t = require "harness"
local core = require "toeplab.core"
local groups = require "toeplab.report.groups"
local frames = require "toeplab.report.frames"
local records = require "toeplab.store.records"
local sweeps = require "sweeps"

local function run(folder, words)
  return t.toeplab(("compare %s -C '%s'"):format(words, folder))
end

-- Writes trials {op, task, seed, value, more} as an experiment.
local function write(folder, list, s)
  local trials = {}
  for i, row in ipairs(list) do
    trials[i] = { config = { op = row[1], task = row[2] }, seed = row[3],
      metrics = { val_ppl = row[4], accuracy = row[4] } }
    for key, value in pairs(row[5] or {}) do trials[i][key] = value end
  end
  s = s or {}
  return sweeps.write(folder, { experiment = s.experiment or "ops", scale = "laptop",
    script = "experiments/ops.lua", axes = s.axes or { "op", "task" }, columns = { "val_ppl" },
    grid = s.grid, overrides = { "scale=laptop" }, trials = trials, answers = s.answers })
end

-- n seeds on one task: b is better than a by gap, give or take.
local function pairs_of(n, gap)
  local list = {}
  for seed = 1, n do
    local noise = (seed * 7 % 5 - 2) / 10
    list[#list + 1] = { "tno", "lm", seed, 20 + seed }
    list[#list + 1] = { "fd", "lm", seed, 20 + seed - gap + noise }
  end
  return list
end

t.test("a sweep is named by its number, and the newest reports what it leaves out", function()
  t.in_folder(function(folder)
    write(folder, pairs_of(5, 1.0))
    local text = run(folder, "op=tno op=fd")
    t.ok(not text:find "left out", text)
    local list = {}
    for i, op in ipairs { "tno", "fd" } do
      list[i] = { config = { op = op, task = "lm" }, seed = 1, metrics = { val_ppl = 2 + i } }
    end
    sweeps.write(folder, { experiment = "ops", scale = "laptop", axes = { "op" }, trials = list,
      columns = { "val_ppl" }, source = "other code" })
    t.holds(run(folder, "ops op=tno op=fd"), "one pair",
      "left out: 10 trials of earlier code or data (toeplab table 1 has them)")
    t.eq(run(folder, "1 op=tno op=fd"), text)
    local _, code, said = run(folder, "9 op=tno op=fd")
    t.eq(code, 2)
    t.holds(said, "compare: there is no sweep 9")
    for number, cells in pairs { [1] = "5 seeds", [2] = "op=tno          3" } do
      t.holds(t.toeplab(("table %d -C '%s'"):format(number, folder)), cells)
    end
  end)
end)

t.test("a row of one pair does not hide that the others' p rests on Student's t", function()
  t.in_folder(function(folder)
    local list = pairs_of(5, 1.0)
    for _, op in ipairs { "tno", "fd" } do list[#list + 1] = { op, "mt", 1, 7 } end
    write(folder, list)
    t.holds(run(folder, "op=tno op=fd"), "mt: one pair: no difference can be judged",
      "p rests on Student's t, which takes the differences as normal: with 5 paired seeds the")
  end)
end)

t.test("settings that differ only in the last bit are two, each with a name", function()
  t.in_folder(function(folder)
    local low, high = 0.3, 0.1 + 0.2
    local list = write(folder, { { low, 1, 1, 5 }, { high, 1, 1, 7 } })
    local long = "0.30000000000000004"
    t.holds(run(folder, "op=0.3 op=" .. long), "all      1  5.0000" .. (" "):rep(18) .. "7.0000",
      "difference: op=" .. long .. " minus op=0.3")
    for words, rows in pairs { ["table ops"] = { "op=0.3 ", "op=" .. long .. " " },
      ["table ops --rows op"] = { "\n0.3 ", "\n" .. long .. " " },
      ["ls --columns op,task"] = { long .. "     1\n", (" "):rep(16) .. "0.3     1\n" },
      [("show --diff %s %s"):format(list[1].id, list[2].id)] = { "  0.3  " .. long .. "\n" } } do
      t.holds(t.toeplab(("%s -C '%s'"):format(words, folder)), table.unpack(rows))
    end
  end)
end)

t.test("refuses to compare two trials of one place and seed, such as 1 and 1.0", function()
  t.in_folder(function(folder)
    write(folder, { { 1, "lm", 1, 5 }, { 1.0, "lm", 1, 8 }, { 2, "lm", 1, 7 } })
    local _, code, said = run(folder, "op=1 op=2")
    t.eq(code, 2)
    t.holds(said, "have the same place, all, and seed 1: remove one with toeplab rm")
  end)
end)

t.test("a key named experiment is the user's in filters and figures", function()
  t.in_folder(function(folder)
    local trials = {}
    for i, name in ipairs { "a", "b" } do
      trials[i] = { config = { experiment = name, status = "s" .. i, script = 1 }, seed = 1,
        metrics = { loss = 4 + i } }
    end
    local list = sweeps.write(folder, { experiment = "own", axes = { "experiment", "status" },
      trials = trials, columns = { "loss" } })
    local text = t.toeplab(("table own experiment=b script=1 -C '%s'"):format(folder))
    t.holds(text, "\nall ", " 6\n")
    t.eq(text:find(" 5\n", 1, true), nil)
    local store <close> = records.open(folder, "r")
    local lines = groups.of(groups.set(store, { list[1].id, list[2].id }),
      { by = { "experiment" } })
    t.eq({ #lines, lines[1].label, lines[2].label }, { 2, "experiment=a", "experiment=b" })
  end)
end)

t.test("a clear difference of paired seeds is claimed, with its interval", function()
  t.in_folder(function(folder)
    write(folder, pairs_of(5, 1.0))
    local text, code = run(folder, "op=tno op=fd")
    t.eq(code, 0)
    -- differences -1 and 0, 0.2, -0.1, 0.1, -0.2: deviation 0.1581, half 2.7764 * 0.0707
    t.holds(text, "ops scale=laptop: val_ppl, lower is better; difference: op=fd minus op=tno",
      "-1.00", "[-1.20, -0.80]",
      "op=fd is better than op=tno: by 1, 95 % interval 0.8037 to 1.196 (t, paired)",
      "with 5 paired seeds the sign-flip test cannot reach p < 0.05 (",
      "(its smallest p is 0.0625); with 6 it can")
    t.ok(not text:find "seeds=", text)
    t.holds(run(folder, "op=fd op=tno"), "op=tno is worse than op=fd: by 1")
    t.holds(run(folder, "op=tno op=fd -m accuracy"), "op=fd is worse than op=tno",
      "higher is better")
    t.holds(run(folder, "op=tno op=fd --higher"), "op=fd is worse than op=tno")
    local store <close> = records.open(folder, "r")
    local frame = frames.find(store, "experiment", "ops", {})
    for metric, better in pairs { Accuracy = "higher", auc = "higher", ["recall@10"] = "higher",
      val_loss = "lower", recall_error = "lower", accumulated_loss = "lower",
      steps_per_second = "higher", incorrect = "lower" } do
      t.eq({ metric, frame:better(metric) or "lower" }, { metric, better })
    end
  end)
  t.in_folder(function(folder)
    write(folder, pairs_of(6, 1.0))
    t.ok(not run(folder, "op=tno op=fd"):find("sign-flip", 1, true))
  end)
end)

t.test("seeds, not the spread of the runs, decide", function()
  t.in_folder(function(folder)
    write(folder, pairs_of(5, 1.0))
    -- unpaired, 21 to 25 against 20 to 24 would show nothing
    local text = run(folder, "op=tno op=fd")
    t.holds(text, " 23.00 ", " 22.00 ", " 0.68 ")
  end)
end)

t.test("an undecided difference says how many seeds it needs, and the command", function()
  t.in_folder(function(folder)
    write(folder, pairs_of(5, 0.1))
    local text = run(folder, "op=tno op=fd")
    t.holds(text, "undecided (the interval contains 0): neither that they differ nor that "
      .. "they are equal may be claimed; with these seeds differences "
      .. "below 0.1963 stay undecided",
      "about 33 seeds in all, 56 trials more, about 56m00s", -- at 1 %: a second look
      "toeplab run experiments/ops.lua scale=laptop op=tno,fd seeds=33 -C " .. folder)
    t.holds(run(folder, "op=tno op=fd --resolve 0.05"), "to resolve ±0.05", "seeds=121")
    t.holds(run(folder, "op=tno op=fd --resolve 0.001"), "more than 1000 seeds")
    t.holds(run(folder, "op=tno op=fd --resolve 1"), "suffice, and there are 5")
  end)
end)

t.test("a row for each task, Holm over them, and all together", function()
  t.in_folder(function(folder)
    local list = {}
    for _, task in ipairs { "image", "listops", "text" } do
      local gap = task == "image" and 0.0 or task == "text" and 0.2 or 1.0
      for _, row in ipairs(pairs_of(5, gap)) do
        list[#list + 1] = { row[1], task, row[3], row[4] }
      end
    end
    write(folder, list)
    local text = run(folder, "ops op=tno op=fd")
    t.holds(text, "task=image", "p (Holm)", "overall, middle half", "15 ", "bootstrap",
      "task=listops: op=fd is better", "task=image: undecided")
    -- p of a mean of -0.2 and se 0.0707 is 0.047: claimed alone, not among three
    t.holds(text, "task=text: undecided (p is not below 0.05 after Holm's correction for 3 rows)")
    t.holds(run(folder, "ops op=tno op=fd task=text"), "op=fd is better than op=tno: by 0.2")
    t.eq(run(folder, "ops op=tno op=fd --by task"), text)
    t.eq(run(folder, "ops op=tno op=fd"), text)
    local csv = run(folder, "op=tno op=fd --csv")
    t.holds(csv, "row,pairs,mean_a,mean_b,difference,low,high,p_better,p_holm\ntask=image,5,23.0,")
    local _, code, said = run(folder, "ops op=tno op=fd --by op")
    t.eq(code, 2)
    t.holds(said, "'task' varies too: add --by task, or choose with task=VALUE")
  end)
end)

t.test("only done trials with a partner of the same seed count", function()
  t.in_folder(function(folder)
    local list = pairs_of(5, 1.0)
    list[1][5] = { status = "running" }
    list[4][5] = { ended = "pruned" }
    list[5][4] = 0 / 0
    list[9] = nil
    table.remove(list)
    local text = run(write(folder, list) and folder, "op=tno op=fd")
    t.holds(text, "all      1 ", "one pair: no difference can be judged",
      "3 trials are left out: not done, or without a finite val_ppl",
      "3 trials have no partner of the same seed")
    t.ok(not text:find "rests on", text)
  end)
  t.in_folder(function(folder)
    write(folder, { { "tno", "lm", 1, 2 }, { "fd", "lm", 2, 2 } })
    t.holds(run(folder, "op=tno op=fd"), "no seed has both")
  end)
end)

t.test("names a key that varies together with the compared one", function()
  t.in_folder(function(folder)
    local trials = {}
    for seed = 1, 3 do
      for op, layers in pairs { gtu = 9, ["gtu+glu"] = 7 } do
        trials[#trials + 1] = { config = { op = op, layers = layers }, seed = seed,
          metrics = { loss = seed + layers + seed % 2 * layers / 10 } }
      end
    end
    sweeps.write(folder, { experiment = "e", axes = { "layers", "op" }, trials = trials })
    t.holds(run(folder, "op=gtu+glu op=gtu -m loss"), "layers varies with op: 7 and 9",
      "all      3")
  end)
end)

t.test("a value without finished trials has no key that varies with it", function()
  t.in_folder(function(folder)
    sweeps.write(folder, { experiment = "e", axes = { "op", "rank" }, columns = { "loss" },
      trials = { { config = { op = "a", rank = 1 }, seed = 1, metrics = { loss = 1 } },
        { config = { op = "b", rank = 2 }, seed = 1, status = "queued" } } })
    local text = run(folder, "op=a op=b")
    t.holds(text, "no seed has both")
    t.ok(not text:find("goes", 1, true), text)
  end)
end)

t.test("a key with other finished values on each side does not vary with it", function()
  t.in_folder(function(folder)
    local trials = {}
    for seed = 1, 4 do
      for _, at in ipairs { { "a", 1 }, { "a", 2 }, { "b", 1 }, { "b", 2 } } do
        local done = (at[1] == "a") == (at[2] == 1)
        trials[#trials + 1] = { config = { op = at[1], rank = at[2] }, seed = seed,
          status = done and "done" or "failed",
          metrics = { loss = done and at[2] + seed * seed / 100 or nil } }
      end
    end
    sweeps.write(folder, { experiment = "e", axes = { "op", "rank" }, columns = { "loss" },
      trials = trials })
    local text = run(folder, "op=a op=b")
    t.holds(text, "rank=1: no seed has both", "rank=2: no seed has both")
    t.ok(not text:find("worse", 1, true) and not text:find("goes", 1, true), text)
  end)
end)

t.test("long strings that look alike are two settings, and a filter selects one", function()
  t.in_folder(function(folder)
    local list, long = {}, ("x"):rep(70)
    for seed = 1, 3 do
      for i, task in ipairs { long .. "a", long .. "b" } do
        list[#list + 1] = { "tno", task, seed, 100 * i + seed }
        list[#list + 1] = { "fd", task, seed, 100 * i + seed + seed * seed / 10 }
      end
    end
    write(folder, list)
    local text = run(folder, "op=tno op=fd")
    t.holds(text, " 3   102.0  102.5 ", " 3   202.0  202.5 ", "p (Holm)")
    t.holds(run(folder, "op=tno op=fd task=" .. long .. "b"), "all      3   202.0  202.5 ")
  end)
end)

t.test("a row with fewer seeds than it needs counts, whatever others have", function()
  t.in_folder(function(folder)
    local list = pairs_of(12, 1.0)
    for _, row in ipairs(pairs_of(4, 1.0)) do
      list[#list + 1] = { row[1], "image", row[3], row[4] }
    end
    write(folder, list)
    t.holds(run(folder, "op=tno op=fd --resolve 0.32"), "about 6 seeds in all, 4 trials more",
      "seeds=6")
    t.holds(run(folder, "op=tno op=fd --resolve 0.9"), "seeds suffice, and there are 4")
  end)
end)

t.test("equal values have no difference that more seeds would show", function()
  t.in_folder(function(folder)
    local list = {}
    for seed = 1, 3 do
      for _, op in ipairs { "tno", "fd" } do list[#list + 1] = { op, "lm", seed, 20 + seed } end
    end
    write(folder, list)
    local text = run(folder, "op=tno op=fd")
    t.holds(text, "equal at each of 3 seeds: nothing varies, so no test applies")
    t.ok(not text:find("more than 1000 seeds", 1, true), text)
  end)
end)

t.test("the needed seeds allow for the looks", function()
  t.in_folder(function(folder)
    local trials = {}
    for seed = 1, 3 do -- differences 0.01, 0.02, 0.03
      trials[2 * seed - 1] = { config = { op = "a" }, seed = seed, metrics = { loss = 10 + seed } }
      trials[2 * seed] = { config = { op = "b" }, seed = seed,
        metrics = { loss = 10 + seed + seed / 100 } }
    end
    for rule, want in pairs { [false] = "about 7 seeds", ["until 2 %, at most 5"] =
      "about 6 seeds" } do
      sweeps.write(folder, { experiment = "e", axes = { "op" }, columns = { "loss" },
        trials = trials, rule = rule or nil, source = tostring(rule) })
      local text = run(folder, "op=a op=b")
      t.holds(text, want)
      t.eq(text:find("95 % interval ", 1, true) ~= nil, not rule) -- looks: the row's level
    end
  end)
end)

t.test("the direction of a metric comes from the answered table", function()
  t.in_folder(function(folder)
    write(folder, pairs_of(3, 1.0), { answers = { "tnn/table5" } })
    t.holds(run(folder, "tnn/table5 op=tno op=fd"), "lower is better")
    local list = sweeps.write(folder, { experiment = "speed", answers = { "tnn/table5" },
      axes = { "model" }, trials = {
        { config = { model = "a" }, seed = 1, metrics = { ["steps_per_second@1024"] = 3 } },
        { config = { model = "b" }, seed = 1, metrics = { ["steps_per_second@1024"] = 4 } } } })
    t.eq(#list, 2)
    t.holds(run(folder, "model=a model=b -m steps_per_second@1024"), "higher is better")
  end)
end)

t.test("the command for more seeds runs only the compared trials, if their key is in grid",
  function()
    local function more(list, words, grid)
      local said
      t.in_folder(function(folder)
        write(folder, list, { grid = grid })
        said = run(folder, words)
      end)
      return said:match "seeds in all, (%d+) trials? more", said:match "laptop (.*seeds=%d+) %-C"
    end
    local list = pairs_of(5, 0.1)
    local function add(op, task, seeds)
      for seed = 1, seeds do
        list[#list + 1] = { op, task, seed, 20 + seed + (op == "fd" and seed % 2 or 0) / 10 }
      end
    end
    add("ski", "lm", 5)
    t.eq({ more(list, "op=tno op=fd") }, { "56", "op=tno,fd seeds=33" }) -- 28 more seeds of each
    for _, op in ipairs { "tno", "fd", "ski" } do add(op, "image", 3) end
    t.eq({ more(list, "op=tno op=fd task=lm") }, { "56", "op=tno,fd task=lm seeds=33" })
    t.eq({ more(list, "op=tno op=fd task=lm", { "op" }) }, -- task belongs to a zip
      { "56", "op=tno,fd seeds=33" })
    t.eq({ more(list, "op=tno op=fd task=lm", { "task" }) }, { "56", "task=lm seeds=33" })
  end)

t.test("the command for more seeds runs as it is printed", function()
  -- a grid beside a zip, a rule that sets keys, floats, and values that the command line splits
  local script = [[local tl = require "toeplab"
return tl.experiment "real" {
  fixed = { steps = 1, rank = 0, lr = 0.1 },
  grid = { op = { "a", "b" }, x = { 1 / 3, 2 / 3 }, text = { "p, q", "r" } },
  zip = { dim = { 1, 2 }, n = { 3, 4 } },
  when = { { where = { op = "b" }, grid = { rank = { 4, 8 } }, fixed = { lr = 0.5 } } },
  seeds = 3,
  trial = function(t, c)
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps) do
      local size = c.x + c.dim + c.n + #c.text + c.op:byte() + c.rank + c.lr
      t:log { loss = size * noise:normal(tl.zeros(1), 0, 1):item() }
    end
  end,
  report = { rows = { "op", "dim" }, columns = { "loss" } },
}]]
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", script)
    local program = core.sys.executable()
    t.eq(select(2, t.shell(("'%s' run -q '%s/x.lua' -C '%s/r' 2>&1"):format(program, folder,
      folder))), 0)
    for _, words in ipairs { "dim=1 dim=2 op=a x=0.3333333333333333 text=r",
      "x=0.3333333333333333 x=0.6666666666666666 op=a dim=1 text=r",
      "text=r text='p, q' op=a dim=1 x=0.3333333333333333",
      "rank=4 rank=8 op=b dim=1 text=r x=0.3333333333333333" } do
      local said = t.shell(("'%s' compare real %s --resolve 1 -C '%s/r' 2>&1"):format(program,
        words, folder))
      local command = said:match "\n(toeplab run [^\n]*)\n"
      t.ok(command, words .. ": " .. said)
      local planned, code = t.shell(("'%s' plan %s --json 2>&1"):format(program,
        command:match "^toeplab run (.*)$"))
      t.ok(code == 0, command .. ": " .. planned)
      local least = tonumber(said:match "seeds in all, (%d+) trials? more")
      t.ok(tonumber(planned:match '"to_run":(%d+)') >= least, planned)
      t.ok(tonumber(planned:match '"done":(%d+)') >= 3, planned) -- it goes on with this sweep
    end
  end)
end)

t.test("the default metric without a report is the table's", function()
  t.in_folder(function(folder)
    sweeps.write(folder, { experiment = "e", axes = { "decay" }, answers = { "tnn/table10" },
      trials = { { config = { decay = 0.9 }, seed = 1, metrics = { a = 1, val_ppl = 2 } },
        { config = { decay = 0.99 }, seed = 1, metrics = { a = 1, val_ppl = 2 } },
        { config = { decay = 0.5 }, seed = 2, metrics = { a = 1 } } } })
    t.holds(run(folder, "decay=0.9 decay=0.99"), "e: val_ppl, lower is better")
    t.holds(run(folder, "decay=0.9 decay=0.5"), "no seed has both")
  end)
end)

t.test("trials without logged metrics are not a usage error", function()
  t.in_folder(function(folder)
    sweeps.write(folder, { experiment = "e", scale = "", axes = { "op" }, trials = {
      { config = { op = "a" }, seed = 1, status = "queued" },
      { config = { op = "b" }, seed = 1, status = "queued" } } })
    local _, code, said = run(folder, "op=a op=b")
    t.eq(code, 1)
    t.holds(said, "no trial of e has logged anything yet")
  end)
end)

t.test("wrong arguments are usage errors", function()
  t.in_folder(function(folder)
    write(folder, pairs_of(3, 1.0))
    for words, want in pairs {
      [""] = "give two values of one key",
      ["op=tno op=fd op=tno"] = "op=tno is given twice",
      ["task=lm"] = "task has no other value in ops scale=laptop",
      ["nix=3"] = "'nix' varies in no experiment",
      ["op=tno seed=99"] = "no trial of ops scale=laptop has seed=99",
      ["op=x"] = "has op=x (there are: fd, tno)",
      ["ops --baseline tno"] = "--baseline takes KEY=A, got 'tno'",
      ["ops --baseline oq=tno"] = "'oq' does not vary in ops",
      ["ops --baseline op=tno op=tno"] = "leaves only tno: drop the word",
      ["op=tno op=fd task=lm task=x"] = "one key at a time; 'task=x' varies another",
      ["op=tno op=nix"] = "no trial of ops scale=laptop has op=nix (there are: fd, tno)",
      ["op=tno op=fdd"] = "has op=fdd; did you mean 'fd'? (there are: fd, tno)",
      ["pos=tno pos=fd"] = "'pos' varies in no experiment",
      ["ops oq=tno oq=fd"] = "'oq' does not vary in ops scale=laptop; did you mean 'op'?",
      ["nix op=tno op=fd"] = "there is no table or experiment 'nix'; known:",
      ["ops other op=tno op=fd"] = "one name at most",
      ["op=tno op=tno"] = "op=tno is given twice",
      ["op="] = "op= has no value", ["op=,"] = "op=, has no value",
      ["op=1 op=1.0"] = "op=1.0 is given twice",
      ["op=tno op=fd --by nix"] = "--by nix: it does not vary in ops",
      ["op=tno op=fd seed=99"] = "no trial of ops scale=laptop has seed=99 (there are: 1, 2, 3)",
      ["op=tno op=fd -m los"] = "there is no metric 'los'",
      ["op=tno op=fd scale=paper"] = "there are: ops scale=laptop",
      ["op=tno op=fd --higher --lower"] = "choose one of",
      ["op=tno op=fd --resolve 0"] = "takes a number of at least",
    } do
      local _, code, said = run(folder, words)
      t.eq(code, 2)
      t.holds(said, want)
    end
  end)
end)

t.test("a row whose trials all ended without a result is reported and counts", function()
  for _, how in ipairs { { status = "failed" }, { ended = "guard" } } do
    t.in_folder(function(folder)
      local list = {}
      for seed = 1, 4 do
        for i, model in ipairs { "a", "b" } do
          list[#list + 1] = { config = { model = model, task = "x" }, seed = seed,
            metrics = { loss = i + seed ^ 2 / 100 * i } }
          list[#list + 1] = { config = { model = model, task = "y" }, seed = seed,
            status = how.status, ended = how.ended, metrics = how.ended and { loss = 0 / 0 } }
        end
      end
      sweeps.write(folder, { experiment = "e", axes = { "model", "task" }, columns = { "loss" },
        trials = list })
      t.holds(t.toeplab(("compare e model=a model=b -C '%s'"):format(folder)),
        "task=y: no seed has both", "which Holm's correction requires of the smallest")
    end)
  end
end)

t.done()
