-- test_baselines.lua: which words name the baseline, several settings compared with it, and ratios.
local t = require "harness"
local sweeps = require "sweeps"

local function run(folder, words)
  return t.toeplab(("compare %s -C '%s'"):format(words, folder))
end

-- Writes trials {op, task, seed, value} as an experiment.
local function write(folder, list)
  local trials = {}
  for i, row in ipairs(list) do
    trials[i] = { config = { op = row[1], task = row[2] }, seed = row[3],
      metrics = { val_ppl = row[4] } }
  end
  sweeps.write(folder, { experiment = "ops", scale = "laptop", script = "experiments/ops.lua",
    axes = { "op", "task" }, columns = { "val_ppl" }, overrides = { "scale=laptop" },
    trials = trials })
end

-- Values of three settings on two tasks: fd is better than tno, ski differs by noise alone.
local function three()
  local list = {}
  for k, task in ipairs { "image", "lm" } do
    for i, op in ipairs { "tno", "fd", "ski" } do
      for seed = 1, 5 do
        local noise = i > 1 and (seed * 7 % 5 - 2) / 10 or 0
        list[#list + 1] = { op, task, seed, 10 * k + seed + noise - (op == "fd" and 1 or 0) }
      end
    end
  end
  return list
end

t.test("a baseline is compared with several settings, and Holm counts all rows", function()
  t.in_folder(function(folder)
    write(folder, three())
    local text = run(folder, "op=tno")
    t.holds(text, "difference: each setting minus op=tno, paired by seed", "op=tno  setting",
      "op=fd task=image                 5 ", "op=ski task=lm ", "op=fd overall, middle half ",
      "op=fd task=lm is better than op=tno: by 1, 95 % interval",
      "op=ski task=lm: undecided (the interval contains 0)",
      "which Holm's correction requires of the smallest")
    -- the p of fd on one task alone is 0.000145: four rows make it 4 times as large
    t.holds(run(folder, "op=tno op=fd task=lm"), " 0.000145\n")
    t.holds(text, " 0.000581\n")
    for _, words in ipairs { "op=tno,fd,ski", "op=tno op=fd op=ski", "ops --baseline op=tno" } do
      t.eq((run(folder, words)), text)
    end
    t.holds(run(folder, "op=tno op=fd op=ski --resolve 0.1"),
      "to resolve ±0.1, 4 times in 5: about ", "op=tno,fd,ski seeds=")
    local csv = run(folder, "op=tno --csv")
    t.holds(csv, "a,b,row,pairs,mean_a,mean_b,difference,low,high,p_better,p_holm\n",
      "tno,fd,task=image,5,13.0,12.0,-1.0,", "tno,ski,task=lm,5,23.0,")
    t.eq(select(2, csv:gsub("\n", "")), 5)
  end)
end)

t.test("the only word of a key that varies is the baseline; else --baseline names it", function()
  t.in_folder(function(folder)
    write(folder, three())
    local _, code, said = run(folder, "ops op=tno task=lm")
    t.eq(code, 2)
    t.holds(said, "both 'op' and 'task' vary: name the one to compare, like --baseline op=tno")
    local text = run(folder, "ops task=lm --baseline op=tno")
    t.holds(text, "each setting minus op=tno", "op=ski   ")
    t.eq((run(folder, "task=lm op=tno op=fd op=ski")), text)
    text = run(folder, "seed=1,2,3,4,5 op=tno,fd scale=laptop")
    t.holds(text, "op=fd minus op=tno")
  end)
  t.in_folder(function(folder) -- two values of a key have one form
    write(folder, { { "tno", "lm", 1, 2 }, { "fd", "lm", 1, 3 }, { "tno", "lm", 2, 3 },
      { "fd", "lm", 2, 3.5 } })
    for _, more in ipairs { "", " --csv" } do
      local text = run(folder, "op=tno" .. more)
      t.eq(text, (run(folder, "op=tno op=fd" .. more)))
    end
  end)
end)

t.test("a value with a comma is one setting", function()
  t.in_folder(function(folder)
    write(folder, { { "a,b", "lm", 1, 2 }, { "b", "lm", 1, 3 }, { "a", "lm", 1, 4 } })
    t.holds(run(folder, "op=a,b"), "each setting minus op=a,b", "op=b ", "op=a ")
    t.holds(run(folder, "op=a"), "each setting minus op=a,")
  end)
end)

t.test("ratios are of geometric means, and require values above 0", function()
  t.in_folder(function(folder)
    local list = {}
    for seed, log in ipairs { 0.6, 0.7, 0.8 } do
      list[#list + 1] = { "tno", "lm", seed, 10 * seed }
      list[#list + 1] = { "fd", "lm", seed, 10 * seed * math.exp(log) }
    end
    write(folder, list)
    local half = 4.302652729911275 * 0.1 / math.sqrt(3)
    t.holds(run(folder, "op=tno op=fd --ratio"), "ratio: op=fd over op=tno, paired by seed",
      "op=fd  ratio  95 % interval", ("op=fd is worse than op=tno: ratio %.4g, 95 %% interval %.4g "
      .. "to %.4g (t on the logarithms, paired)"):format(math.exp(0.7), math.exp(0.7 - half),
      math.exp(0.7 + half)), "p rests on Student's t, which takes the log ratios as normal")
    local csv = run(folder, "op=tno op=fd --ratio --csv")
    local a, b, ratio = csv:match "mean_a,mean_b,ratio,low,high.*\nall,3,(%S-),(%S-),(%S-),"
    t.eq({ tonumber(a), tonumber(b) / a, tonumber(ratio) },
      { 6000 ^ (1 / 3), math.exp(0.7), math.exp(0.7) }, 1e-9)
    t.holds(run(folder, "op=tno op=fd --ratio --resolve 0.02"),
      "to resolve a ratio of 1.02, 4 times in 5: about ")
  end)
  t.in_folder(function(folder)
    write(folder, { { "tno", "lm", 1, 2 }, { "fd", "lm", 1, 2.01 }, { "tno", "lm", 2, 3 },
      { "fd", "lm", 2, 2.99 } })
    t.holds(run(folder, "op=tno op=fd --ratio"), "undecided (the interval contains 1)",
      "with these seeds ratios within a factor of 1.054 stay")
    local stored = sweeps.write(folder, { experiment = "zero", axes = { "op" }, trials = {
      { config = { op = "a" }, seed = 1, metrics = { loss = 2 } },
      { config = { op = "b" }, seed = 1, metrics = { loss = 0 } } }, columns = { "loss" } })
    local _, code, said = run(folder, "zero op=a op=b --ratio")
    t.eq(code, 2)
    t.holds(said, ("trial %s has loss = 0, and a ratio needs values above 0"):format(
      stored[2].id:sub(1, 12)))
  end)
end)

t.test("of several rows, the seeds that each needs are named", function()
  t.in_folder(function(folder)
    local list = {}
    for task, gap in pairs { image = 0.1, text = 0.15, lm = 1.0 } do
      for seed = 1, 5 do
        local noise = (seed * 7 % 5 - 2) / 10
        list[#list + 1] = { "tno", task, seed, 20 + seed }
        list[#list + 1] = { "fd", task, seed, 20 + seed - gap + noise }
      end
    end
    write(folder, list)
    local text = run(folder, "op=tno op=fd")
    local image, words =
      text:match "seeds that each row needs: task=image: (%d+); task=text: (%d+)\n"
    t.ok(tonumber(image) > tonumber(words), text)
    t.holds(text, ("about %s seeds in all"):format(image))
    t.ok(not run(folder, "op=tno op=fd task=image"):find "each row needs")
  end)
end)

-- Writes trials of mixers for `steps`, as a try of 3 steps and then a longer run.
local function write_try(folder)
  for sweep, steps in ipairs { 3, 150 } do
    local list = {}
    for _, mixer in ipairs { "gtu", "conv" } do
      list[#list + 1] = { config = { mixer = mixer, steps = steps }, seed = 1,
        metrics = { loss = #mixer / steps } }
    end
    sweeps.write(folder, { experiment = "mixers", axes = { "mixer" }, columns = { "loss" },
      trials = list, source = "s" .. sweep })
  end
end

t.test("a word whose key varies only between commands selects", function()
  t.in_folder(function(folder)
    write_try(folder)
    for _, words in ipairs { "mixers mixer=gtu steps=150", "mixers steps=150 mixer=gtu",
      "mixers steps=150 --baseline mixer=gtu" } do
      t.holds(run(folder, words), "difference: mixer=conv minus mixer=gtu", "all      1     0.0200")
    end
    t.holds(run(folder, "mixers mixer=gtu --baseline steps=3"),
      "difference: steps=150 minus steps=3")
    local _, code, said = run(folder, "mixers mixer=gtu --baseline mixer=gtu")
    t.eq(code, 2)
    t.holds(said, "compare: the word mixer=gtu beside --baseline leaves only gtu: drop the word")
  end)
end)

t.done()
