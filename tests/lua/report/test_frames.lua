-- test_frames.lua: which trials of several commands count together, and the notes about them.
local t = require "harness"
local frames = require "toeplab.report.frames"
local records = require "toeplab.store.records"
local sweeps = require "sweeps"

local function run(folder, words)
  return t.toeplab(("compare %s -C '%s'"):format(words, folder))
end

-- Five seeds: fd is better than tno by gap, give or take.
local function pairs_of(gap, more)
  local list = {}
  for seed = 1, 5 do
    local noise = (seed * 7 % 5 - 2) / 10
    for op, value in pairs { tno = 20.0 + seed, fd = 20 + seed - gap + noise } do
      local config = { op = op }
      for key, other in pairs(more) do config[key] = other end
      list[#list + 1] = { config = config, seed = seed, metrics = { val_ppl = value } }
    end
  end
  return list
end

t.test("looks correct only comparisons of trials that their command asked for", function()
  t.in_folder(function(folder)
    for _, part in ipairs { { "lm", "until 2 %, at most 18" }, { "text" } } do
      sweeps.write(folder, { experiment = "ops", axes = { "op" }, columns = { "val_ppl" },
        trials = pairs_of(1.0, { task = part[1] }), rule = part[2] })
    end
    local looks = "corrected for that"
    t.eq(run(folder, "ops op=tno op=fd task=text"):find(looks, 1, true), nil)
    t.holds(run(folder, "ops op=tno op=fd task=lm"), looks)
    local text = run(folder, "ops op=tno op=fd")
    t.holds(text, looks, "task=text: op=fd is better than op=tno: by 1, 95 % interval")
  end)
end)

t.test("trials of a key that only commands varied are outside the family, and are read once",
  function()
    t.in_folder(function(folder)
      for _, steps in ipairs { 5, 1000 } do
        local list = pairs_of(0.0, { task = "image", steps = steps })
        local text = pairs_of(0.2, { task = "text", steps = steps })
        table.move(text, 1, #text, #list + 1, list)
        sweeps.write(folder, { experiment = "ops", axes = { "op", "task" }, trials = list,
          columns = { "val_ppl" }, overrides = { "steps=" .. steps } })
      end
      -- p 0.047 alone, 0.094 of two: of four it would be 0.19
      local text = run(folder, "ops op=tno op=fd")
      t.holds(text, "steps=1000 task=text", " 0.0948\n",
        "p is corrected separately for each value of steps, which commands set",
        "undecided (p is not below 0.05 after Holm's correction for 2 rows)")
      t.eq(text:find("overall", 1, true), nil)
      local store <close> = records.open(folder, "r")
      local frame, tuples = frames.find(store, "experiment", "ops", {}), store.store.tuples
      local count = 0
      local counting = setmetatable({ tuples = function(_, sql, ...)
        count = count + (sql:find("t.config", 1, true) and 1 or 0)
        return tuples(store.store, sql, ...)
      end }, { __index = function(_, name)
        local fn = store.store[name]
        return function(_, ...) return fn(store.store, ...) end
      end })
      frame.store = setmetatable({ store = counting }, { __index = store })
      t.eq({ #frame:trials {}, #frame:trials { "val_ppl" }, count }, { 40, 40, 2 })
    end)
  end)

t.test("names what several sweeps left out, with each sweep", function()
  t.in_folder(function(folder)
    for i, code in ipairs { "a", "b", "c" } do
      local list = {}
      for seed = 1, 4 - i do
        list[seed] = { config = { op = "tno" }, seed = seed, metrics = { val_ppl = i },
          code = code }
      end
      sweeps.write(folder, { experiment = "ops", axes = { "op" }, columns = { "val_ppl" },
        trials = list, source = code })
    end
    t.holds(t.toeplab(("table ops -C '%s'"):format(folder)),
      "left out: 5 trials of earlier code or data (toeplab table 2 has 2, toeplab table 1 has 3)")
  end)
end)

t.test("failed trials that later ones replace are named as such, with their sweep", function()
  t.in_folder(function(folder)
    for i, status in ipairs { "failed", "done" } do
      sweeps.write(folder, { experiment = "ops", axes = { "op" }, columns = { "val_ppl" },
        source = status, trials = { { config = { op = "a" }, seed = 1, status = status,
          metrics = { val_ppl = i } }, { config = { op = "b" }, seed = 1, status = status,
          metrics = { val_ppl = i } } } })
    end
    t.holds(t.toeplab(("table ops -C '%s'"):format(folder)),
      "left out: 2 failed trials of sweep 1 (toeplab table 1 has them)")
  end)
end)

t.test("a table names the corpus of which its trials used only a part", function()
  t.in_folder(function(folder)
    local said = "corpus big: here only the first 71 tokens of its training part"
    sweeps.write(folder, { experiment = "e", axes = { "op" }, columns = { "loss" }, trials = {
      { config = { op = "a", train_tokens = 50 }, seed = 1, metrics = { loss = 1 },
        events = { "part" }, said = said },
      { config = { op = "b", train_tokens = 50 }, seed = 1, metrics = { loss = 2 } } } })
    t.holds(t.toeplab(("table e -C '%s'"):format(folder)), said .. "\n",
      "trained on the first 50 tokens of the corpus\n")
    local text = t.toeplab(("table e op=b -C '%s'"):format(folder))
    t.eq(text:find("corpus big", 1, true), nil)
  end)
end)

t.test("failed trials of a newer scale do not hide finished ones, and a line names them", function()
  t.in_folder(function(folder)
    local function write(scale, status)
      local trials = {}
      for seed = 1, 3 do
        for op, value in pairs { tno = 20.0, fd = 21 } do
          trials[#trials + 1] = { config = { op = op, of = scale }, seed = seed, status = status,
            metrics = { val_ppl = value + seed % 2 } }
        end
      end
      sweeps.write(folder, { experiment = "ops", axes = { "op" }, columns = { "val_ppl" },
        scale = scale, trials = trials, source = status,
        overrides = { scale ~= "" and "scale=" .. scale or nil } })
    end
    write("", "done")
    write("smoke", "failed")
    local line = "the newer ops scale=smoke, of which no trial is done (toeplab ls ops scale=smoke)"
    t.holds(t.toeplab(("table ops -C '%s'"):format(folder)), "ops: experiment ops\n",
      "also in this folder: ops scale=smoke", "left out: " .. line)
    t.holds(run(folder, "op=tno op=fd"), "ops: val_ppl", line)
    t.holds(t.toeplab(("table ops scale=smoke -C '%s'"):format(folder)), "failed",
      "also in this folder: ops scale=")
    t.holds(t.toeplab(("status -C '%s'"):format(folder)), "ops  6 trials: 6 failed",
      "of earlier commands: 6 done (toeplab ls ops status=done)")
    write("smoke", "done")
    local text = t.toeplab(("table ops -C '%s'"):format(folder))
    t.holds(text, "ops scale=smoke: 6 done", "also in this folder: ops scale=")
    t.ok(not text:find "the newer")
  end)
end)

t.test("rows and lines of a zip are named by all its keys, or by the one that the report names",
  function()
    for _, rows in ipairs { false, "length" } do
      t.in_folder(function(folder)
        t.write(folder .. "/x.lua", ([[local tl = require "toeplab"
return tl.experiment "x" {
  fixed = { steps = 2 }, zip = { length = { 16, 32 }, batch = { 4, 8 } },
  trial = function(t, c)
    for step in t:steps(c.steps) do t:log { loss = c.length + c.batch + step } end
  end,
  report = { rows = %s, columns = { "loss" } },
}]]):format(rows and '"length"' or "nil"))
        t.toeplab(("run -q '%s/x.lua' -C '%s/r'"):format(folder, folder))
        local text = t.toeplab(("table x -C '%s/r'"):format(folder))
        t.holds(text, rows and "\nlength=16 " or "\nbatch=4 length=16 ")
        t.toeplab(("plot x -C '%s/r' -o '%s/x.svg'"):format(folder, folder))
        t.holds(t.read(folder .. "/x.svg"), ">batch=4 length=16<", ">batch=8 length=32<")
      end)
    end
  end)

t.done()
