-- test_tables.lua: tables of paper against measured.
local t = require "harness"
local html = require "toeplab.report.html"
local records = require "toeplab.store.records"
local stats = require "toeplab.report.stats"
local sweeps = require "sweeps"
local text_table = require "toeplab.base.text_table"

local function run(folder, words)
  return t.toeplab(("table %s -C '%s'"):format(words, folder))
end

-- The words of the line of text that begins with name.
local function line(text, name)
  local start = ("\n" .. text):find("\n" .. name, 1, true)
  return start and ("\n" .. text):match("\n([^\n]*)", start) or nil
end

-- ---- Filled -----------------------------------------------------------------------------------

local base = { layers = 4, dim = 512, steps = 2000 }

-- A sweep over decays; change(trial) may alter each.
local function sweep(folder, s, change)
  local trials = {}
  for i, decay in ipairs { 0.9, 0.99, "none", 0.5 } do
    for _, seed in ipairs(s.seeds or { 1, 2, 3 }) do
      local config = { decay = decay }
      for key, value in pairs(base) do config[key] = value end
      for key, value in pairs(s.fixed or {}) do config[key] = value end
      local trial = { config = config, seed = seed, metrics = { best_val_ppl = 30 - i + seed / 10,
        mean_extrapolation_ppl = 40 + i + seed / 10 } }
      if not change or change(trial) ~= false then trials[#trials + 1] = trial end
    end
  end
  return sweeps.write(folder, { experiment = s.experiment or "decays", scale = s.scale or "laptop",
    script = "experiments/x.lua", answers = { "tnn/table10" }, source = s.source,
    columns = { "best_val_ppl" }, axes = { "decay" },
    overrides = s.overrides or { "scale=laptop", "note=it's" }, trials = trials })
end

t.test("means, intervals, differences, and rows beside the paper's", function()
  t.in_folder(function(folder)
    sweep(folder, {})
    local text, code = run(folder, "tnn/table10")
    t.eq(code, 0)
    -- 28.1, 28.2, 28.3: the half interval is 4.3027 * 0.1 / sqrt(3)
    t.ok(line(text, "0.99 (ours)"):find "23%.98 +28%.20 ± 0%.25 +23%.70 +42%.20 ± 0%.25", text)
    t.ok(line(text, "1 (no decay)"):find "24%.03 +27%.20 ± 0%.25 +672%.72 +43%.20", text)
    t.ok(line(text, "0.95"):find "^0%.95 +24%.56 +24%.63$", text)
    t.ok(line(text, "decay=0.5"):find "^decay=0%.5 +26%.20 ± 0%.25 +44%.20", text)
    t.ok(text:find("95 % interval (Student's t) over 3 seeds", 1, true), text)
    t.ok(text:find("layers 7, here 4; steps 50000, here 2000", 1, true), text)
    t.ok(not text:find "dim 512", text)
    t.ok(text:find("decays scale=laptop note=it's: 12 done, 12m00s in all; commit 0123456789ab", 1,
      true), text)
    t.ok(not text:find "rank agreement", text) -- three rows say nothing
    t.eq(run(folder, "tnn/table10"), text)
  end)
end)

t.test("from four rows, Kendall's tau reports how the orders agree", function()
  t.in_folder(function(folder)
    sweep(folder, {}, function(trial)
      if trial.config.decay == 0.5 then trial.config.decay = 0.95 end
    end)
    -- the paper's 25.28, 23.98, 24.03, 24.56 fall once and rise twice where ours always fall
    t.holds(run(folder, "tnn/table10"), "PPL (val): rank agreement with the paper over 4 rows",
      "tau-b 0.00 [0.00,", "by chance with probability 1")
  end)
end)

t.test("our numbers beside a column of words keep two decimals; TNN is rac or fft", function()
  for _, name in ipairs { "rac", "fft" } do t.in_folder(function(folder)
    sweeps.write(folder, { experiment = "e", answers = { "tnn/table1" }, axes = { "backend" },
      trials = { { config = { backend = name }, seed = 1, metrics = { time_exponent = 1.13 } } } })
    t.ok(line(run(folder, "tnn/table1"), "TNN"):find "^TNN +n d log n  1%.13 +n d +yes$")
  end) end
end)

t.test("marks unfinished, failed, pruned, rescued and diverged trials", function()
  t.in_folder(function(folder)
    sweep(folder, {}, function(trial)
      local decay, seed = trial.config.decay, trial.seed
      if decay == 0.9 and seed == 2 then trial.status, trial.metrics = "running", {} end
      if decay == 0.99 then trial.status, trial.metrics = "queued", {} end
      if decay == "none" and seed == 3 then trial.metrics.best_val_ppl = 0 / 0 end
      if decay == "none" and seed == 2 then trial.ended = "guard" end
      if decay == 0.5 and seed == 1 then trial.ended = "pruned" end
      if decay == 0.5 and seed == 2 then trial.events = { "rollback" } end
      if decay == 0.5 and seed == 3 then trial.status, trial.metrics = "failed", {} end
    end)
    local text = run(folder, "tnn/table10")
    t.ok(line(text, "0.90"):find "29%.2 ± 1%.3 %(2/3%)", text)
    t.ok(line(text, "0.99 (ours)"):find "23%.98 +… +23%.70 +…$", text)
    t.ok(line(text, "1 (no decay)"):find "24%.03 +diverged %(2/3%) +672%.72 +diverged %(1/3%)",
      text)
    t.ok(line(text, "decay=0.5"):find "26%.20 %(1/3%) † ‡", text)
    t.ok(line(text, "† 1 trial returned"), text)
    t.ok(line(text, "‡ 1 trial ended early"), text)
    t.ok(text:find("1 failed, 1 guard, 1 pruned, 3 queued, 1 running", 1, true), text)
    local csv = run(folder, "tnn/table10 --csv")
    t.ok(csv:find("tnn/table10,decay=0.5,PPL (val),,26.2,,,,1,3,0,1,1,1,0\n", 1, true), csv)
  end)
end)

t.test("joins all commands of an experiment and scale, and separates settings", function()
  t.in_folder(function(folder)
    sweep(folder, {})
    sweep(folder, { overrides = { "steps=9" }, fixed = { steps = 9 }, seeds = { 1 } })
    sweep(folder, { overrides = { "scale=laptop", "seeds=4,5" }, seeds = { 4, 5 } })
    sweep(folder, { scale = "smoke", seeds = { 1 }, fixed = { layers = 1 } })
    local text = run(folder, "tnn/table10 scale=laptop")
    t.holds(text, "over 1 to 5 seeds", "also in this folder: decays scale=smoke",
      "layers 7, here 4; steps 50000, here 2000 or 9")
    t.ok(line(text, "0.99 (ours) decay=0.99 steps=2000"):find "28%.30 ±", text)
    t.ok(line(text, "0.99 (ours) decay=0.99 steps=9"):find "23%.98 +28%.10 +", text)
    text = run(folder, "tnn/table10 scale=laptop steps=2000")
    t.ok(text:find "over 5 seeds", text)
    t.ok(not text:find("steps=", 1, true), text)
    text = run(folder, "tnn/table10")
    t.ok(text:find("decays scale=smoke note=it's: 4 done", 1, true), text)
    t.ok(not text:find "left out", text)
    t.ok(line(text, "0.99 (ours)"):find "28%.10 +23", text)   -- one seed: no interval
    text = run(folder, "tnn/table10 scale=laptop steps=9")
    t.ok(text:find "over 1 seed\n", text)
    text = run(folder, "tnn/table10 scale=laptop seed=1,4 decay=0.9 steps=2000")
    t.ok(text:find "over 2 seeds", text)
    t.ok(not text:find "decay=0.5", text)
    local _, code, said = run(folder, "tnn/table10 scale=paper")
    t.eq(code, 2)
    t.ok(said:find("there are: decays scale=smoke; decays scale=laptop", 1, true), said)
  end)
end)

t.test("reports a row of several codes or numerics; a comment does not count", function()
  t.in_folder(function(folder)
    sweep(folder, { source = "f()", seeds = { 1, 2 } })
    t.ok(not run(folder, "tnn/table10"):find "version of the code")
    sweep(folder, { source = "f() -- a comment", seeds = { 3 },
      overrides = { "scale=laptop", "seeds=3" } }, function(trial)
      trial.code = trial.config.decay == 0.99 and "other" or nil
    end)
    local text = run(folder, "tnn/table10")
    t.ok(text:find "over 3 seeds", text)
    t.ok(text:find("made by more than one version of the code: 0.99 (ours) (toeplab run --redo "
      .. "runs them again)", 1, true), text)
    t.ok(not text:find "numerics", text)
    local store = records.open(folder, "w")
    store:rows "UPDATE trials SET numerics = 77 WHERE code_hash = 'other'"
    store:close()
    text = run(folder, "tnn/table10")
    t.ok(text:find("of the numerics %d+ and 77: results of one may differ"), text)
  end)
end)

t.test("seeds of two commands count once, as in the newer one", function()
  t.in_folder(function(folder)
    sweep(folder, { seeds = { 1, 2 } })
    sweep(folder, { seeds = { 2, 3 }, overrides = { "scale=laptop", "seeds=2,3" } })
    t.ok(run(folder, "tnn/table10"):find "over 3 seeds")
  end)
end)

t.test("never averages over settings that vary beside the rows", function()
  t.in_folder(function(folder)
    local trials = {}
    for _, lr in ipairs { 0.1, 0.2 } do
      for seed = 1, 2 do
        trials[#trials + 1] = { config = { decay = 0.9, lr = lr }, seed = seed,
          metrics = { val_ppl = 20 + lr } }
      end
    end
    sweeps.write(folder, { experiment = "e", answers = { "tnn/table10" }, axes = { "decay", "lr" },
      trials = trials })
    local text = run(folder, "tnn/table10")
    t.ok(line(text, "0.90 decay=0.9 lr=0.1"):find "20%.10", text)
    t.ok(line(text, "0.90 decay=0.9 lr=0.2"):find "20%.20", text)
    t.ok(text:find "no rank agreement", text)
    t.ok(line(run(folder, "tnn/table10 lr=0.2"), "0.90 "):find "^0%.90 +25%.28 +20%.20", text)
  end)
end)

t.test("separates trials of the same script with other code files or data",
  function()
    local script = [[local tl = require "toeplab"
local by = dofile(FOLDER .. "/by.lua")
return tl.experiment "files" {
  fixed = { steps = 1, corpus = FOLDER .. "/text" }, grid = { op = { 1, 2 } }, seeds = 3,
  trial = function(t, c)
    for _ in t:steps(c.steps) do t:log { loss = by * c.op * c.seed } end
  end,
  report = { rows = "op", columns = { "loss" } },
}]]
    t.in_folder(function(folder)
      local function command(by, words, text)
        t.write(folder .. "/by.lua", "return " .. by)
        t.write(folder .. "/text", text:rep(100))
        t.eq(select(2, t.toeplab(("run -q '%s/x.lua' %s -C '%s/r'"):format(folder, words,
          folder))), 0)
        return run(folder .. "/r", "files")
      end
      t.write(folder .. "/x.lua", (script:gsub("FOLDER", ("%q"):format(folder))))
      t.ok(command(1, "", "abc"):find("over 3 seeds", 1, true))
      t.ok(command(1, "seeds=4,5", "abc"):find("over 5 seeds", 1, true))
      local text = command(10, "seeds=4,5", "abc")
      t.holds(text, "over 2 seeds", "left out: 6 trials of earlier code or data (toeplab table 1")
      text = command(10, "seeds=3 op=2", "abd")
      t.holds(text, "over 2 to 3 seeds", "made by another version of the experiment's code or "
        .. "data: op=1\n")
    end)
  end)

t.test("marks count the trials of all columns, each once", function()
  t.in_folder(function(folder)
    local trials = {}
    for _, task in ipairs { "imdb", "listops" } do
      for seed, ended in ipairs { false, "guard", "pruned", "" } do
        trials[#trials + 1] = { config = { task = task, model = "fd" }, seed = seed,
          ended = ended or nil, metrics = { test_accuracy = ended ~= "" and 0.5 or nil } }
        if ended == "" then trials[#trials].ended = nil end
      end
    end
    sweeps.write(folder, { experiment = "lra", answers = { "ski/table2" },
      axes = { "model", "task" }, trials = trials })
    local text = run(folder, "ski/table2")
    for _, want in ipairs { "‡ 2 trials ended early", "diverged: 2 trials ended with inf or nan",
      "2 trials are done and lack the metric of a column" } do
      t.ok(text:find(want, 1, true), text)
    end
    t.eq(select(2, run(folder, "ski/table2 --tolerance 99")), 4) -- a row that diverged is far off
  end)
end)

t.test("columns by a key, and accuracies in percent", function()
  t.in_folder(function(folder)
    local trials = {}
    for task, accuracy in pairs { listops = 0.5, imdb = 0.75, other = 0.1 } do
      trials[#trials + 1] = { config = { task = task, model = "fd" }, seed = 1,
        metrics = { test_accuracy = accuracy } }
    end
    sweeps.write(folder, { experiment = "lra", answers = { "ski/table2" },
      axes = { "model", "task" }, trials = trials })
    local text = run(folder, "ski/table2")
    t.ok(line(text, "FD-TNN"):find "85%.00 +75%.00 +55%.21 +50%.00 +90%.26 +69%.45", text)
    t.ok(text:find "1 trial of the experiment match no column", text)
  end)
end)

t.test("a key that follows from the columns' key does not split rows", function()
  local trials = {}
  local function add(task, model, length, accuracy)
    trials[#trials + 1] = { config = { task = task, model = model, length = length }, seed = 1,
      metrics = { test_accuracy = accuracy } }
  end
  local function text()
    local said
    t.in_folder(function(folder)
      sweeps.write(folder, { experiment = "lra", answers = { "ski/table2" },
        axes = { "length", "model", "task" }, trials = trials })
      said = run(folder, "ski/table2")
    end)
    return said
  end
  add("listops", "fd", 256, 0.5)
  add("imdb", "fd", 512, 0.75)
  t.ok(line(text(), "FD-TNN "):find "85%.00 +75%.00 +55%.21 +50%.00 +90%.26")
  add("imdb", "fd", 1024, 0.5)
  t.ok(line(text(), "FD-TNN length=1024"):find "85%.00 +50%.00")
end)

-- ---- Forms ------------------------------------------------------------------------------------

t.test("the best row is bold only if its interval clears the others'", function()
  t.in_folder(function(folder)
    sweep(folder, {})
    local tex = run(folder, "tnn/table10 --tex")
    -- 26.2 +- 0.25 and 27.2 +- 0.25; 41.2 and 42.2
    t.ok(tex:find("decay=0.5 &  & \\textbf{26.20 $\\pm$ 0.25} &", 1, true), tex)
    t.ok(tex:find("\\textbf{41.20 $\\pm$ 0.25} \\\\", 1, true), tex)
    t.eq(select(2, tex:gsub("\\textbf", "")), 2)
    t.ok(tex:find("\\begin{tabular}{lrrrr}", 1, true) and tex:find("\\bottomrule", 1, true))
    t.ok(tex:find("95 \\% interval (Student's t) over 3 seeds", 1, true), tex)
    t.ok(tex:find("commit 0123456789ab", 1, true), tex)
  end)
  t.in_folder(function(folder)
    sweep(folder, {}, function(trial)
      trial.metrics.best_val_ppl = 30 + trial.seed
    end)
    t.eq(select(2, run(folder, "tnn/table10 --tex"):gsub("\\textbf", "")), 1)
  end)
end)

t.test("an experiment's own table shows its best row in bold too",
  function()
    local function bold(values, metric)
      local text
      t.in_folder(function(folder)
        local trials = {}
        for row, list in ipairs(values) do
          for seed, value in ipairs(list) do
            trials[#trials + 1] = { config = { row = row }, seed = seed,
              metrics = { [metric] = value } }
          end
        end
        sweeps.write(folder, { experiment = "e", axes = { "row" }, columns = { metric },
          trials = trials })
        text = run(folder, "e --tex")
      end)
      return text:match "\n *row=(%d) & \\textbf", text
    end
    local clear = { { 1.0, 1.1 }, { 3.0, 3.1 }, { 5.0, 5.1 } }
    for metric, want in pairs { val_ppl = "1", loss = "1", bits_per_char = "1", rmse = "1",
      test_accuracy = "3", steps_per_second = "3" } do
      local row, text = bold(clear, metric)
      t.eq({ metric, row, text }, { metric, want, text })
    end
    t.eq(bold(clear, "parameters"), nil) -- nothing says which is better
    t.eq(bold({ { 1.0, 1.1 }, { 3.0, 3.1 }, { 5.0, 0.0 } }, "loss"), nil) -- it overlaps the third
    t.eq(bold({ { 1.0, 1.1 }, { 3.0, 3.1 }, { 5.0 } }, "loss"), nil) -- one seed: no interval
  end)

t.test("Markdown and HTML hold the same cells", function()
  t.in_folder(function(folder)
    sweep(folder, {})
    local md = run(folder, "tnn/table10 --md")
    t.ok(md:find("| 0.99 (ours)  |       23.98 | 28.20 ± 0.25 |", 1, true), md)
    t.ok(md:find("\n| %-+ | %-+: |"), md)
    local html = run(folder, "tnn/table10 --html")
    t.ok(html:find('<th scope="row">0.99 (ours)</th><td class="n">23.98</td><td class="n">'
      .. "28.20 ± 0.25</td>", 1, true), html)
    t.ok(html:find("<b>26.20 ± 0.25</b>", 1, true), html)
    t.ok(html:find "^<!doctype html>" and html:find "</html>\n$", html)
    t.ok(html:find("half of its 95 % interval", 1, true) and not html:find("%%", 1, true), html)
    for words, want in pairs { ["--md --tex"] = "choose one of --md and --tex",
      ["--why 0.99 --csv"] = "choose one of --why and --csv" } do
      local text, code, said = run(folder, "tnn/table10 " .. words)
      t.eq({ text, code }, { "", 2 })
      t.holds(said, want)
    end
  end)
end)

t.test("transposes a table of many columns", function()
  t.in_folder(function(folder)
    sweeps.write(folder, { experiment = "e", answers = { "tnn/table15" }, axes = { "decay" },
      trials = { { config = { decay = 0.99, length = 128 }, seed = 1,
        metrics = { ["ppl@128"] = 31, ["ppl@192"] = 30, ["ppl@512"] = 29 } },
        { config = { decay = 0.9, length = 128 }, seed = 1, metrics = { ["ppl@128"] = 32 } } } })
    local text = run(folder, "tnn/table15")
    t.ok(line(text, "length"):find "^length +TNN +here +ALiBi .* decay=0.9$", text)
    -- what was trained at 128 stands at the same multiples of the training length
    t.ok(line(text, "512 (1x) ↓"):find " ↓ +24%.67 +31%.00 +24%.15 .* 32%.00$", text)
    t.ok(line(text, "768 (1.5x) ↓"):find " ↓ +24%.25 +30%.00 +23%.38", text)
    t.ok(line(text, "2048 (4x) ↓"):find " ↓ +23%.73 +29%.00 +22%.43", text)
  end)
end)

t.test("--why lists the trials of a cell with their commands", function()
  t.in_folder(function(folder)
    local list = sweep(folder, {})
    local text, code = run(folder, "tnn/table10 --why 0.99/val")
    t.eq(code, 0)
    t.ok(line(text, list[4].id:sub(1, 12)):find("done +28%.1000  toeplab run experiments/x.lua "
      .. "scale=laptop 'note=it'\\''s' decay=0.99 seed=1 %-C " .. folder), text)
    t.eq(select(2, text:gsub("toeplab run", "")), 3)
    t.ok(not text:find "mean_extrapolation", text)
    text = run(folder, "tnn/table10 --why learnable")
    t.eq(text, "learnable: no trial answers it\n")
    sweeps.write(folder, { experiment = "split", axes = { "list", "op", "word" },
      columns = { "loss" }, trials = { { config = { op = "a b", word = "p, q", list = { 1, 2 } },
        seed = 1, metrics = { loss = 1 } }, { config = { op = "a c", word = "r", list = { 1 } },
        seed = 1, metrics = { loss = 1 } } } })
    text = run(folder, "split --why 'list=1,2'") -- which the command line takes as two values
    t.ok(text:find([[toeplab run x.lua 'op=a b' 'word="p, q"' seed=1 -C]], 1, true), text)
    local _, bad, said = run(folder, "tnn/table10 --why 0.99/tset")
    t.eq(bad, 2)
    t.ok(said:find "no column 'tset' %(there are: val, extrapolation%)", said)
    _, bad = run(folder, "tnn/table10 --why 7")
    t.eq(bad, 2)
  end)
end)

t.test("--tolerance marks cells and sets the exit code", function()
  t.in_folder(function(folder)
    sweep(folder, {}, function(trial) trial.metrics.mean_extrapolation_ppl = nil end)
    local text, code = run(folder, "tnn/table10 --tolerance 20")
    t.eq(code, 0)
    t.ok(line(text, "0.99 (ours)"):find "28%.20 ± 0%.25 ✓", text)
    text, code = run(folder, "tnn/table10 --tolerance 16")
    t.eq(code, 4)
    t.ok(line(text, "0.99 (ours)"):find "✗" and line(text, "0.90"):find "✓", text)
    t.ok(not line(text, "decay=0.5"):find "[✓✗]", text)
  end)
end)

t.test("an experiment's own table, the list, and unknown names", function()
  t.in_folder(function(folder)
    local text, code, said = run(folder .. "/none", "tnn/table10")
    t.eq(code, 0)
    t.ok(line(text, "learnable"):find "^learnable +27%.65 +24%.39$", text)
    t.ok(said:find "no trial here answers tnn/table10", said)
    sweep(folder, {})
    text = run(folder, "decays")
    t.ok(line(text, "decay=0.5"):find "^decay=0%.5 +26%.20 ± 0%.25$", text)
    text = run(folder, "decays --metric mean_extrapolation_ppl")
    t.ok(line(text, "decay=0.5"):find "44%.20 ", text)
    text = run(folder, "")
    t.ok(line(text, "tnn/table10 "):find "decays laptop: 12 of 12", text)
    t.ok(line(text, "tnn/table2 "):find "experiments/tnn%-lm%.lua", text)
    for _, words in ipairs { "decay", "tnn/table11", "tnn/table10 decay", "--tolerance -1",
      "decays decay=7", "tnn/table10 seed=99", "decays --metric nix" } do
      local _, bad = run(folder, words)
      t.eq(bad, 2)
    end
    said = select(3, run(folder, "dekays"))
    t.ok(said:find "did you mean 'decays'", said)
  end)
end)

t.test("a figure without printed numbers reports how to draw it", function()
  t.in_folder(function(folder)
    sweeps.write(folder, { experiment = "mlm", answers = { "tnn/figure3", "ski/figure9" },
      axes = { "model" }, trials = { { config = { model = "tnn" }, seed = 1,
        metrics = { best_val_ppl = 5 } } } })
    local text = run(folder, "tnn/figure3")
    t.ok(line(text, "1 to 12"):find "^1 to 12 +drawn$", text)
    t.ok(line(text, "drawn by"):find "toeplab plot mlm model=tnn seed=1 matrix$", text)
    t.ok(not text:find "no trial has logged", text)
    text = run(folder, "ski/figure9")
    t.ok(line(text, "TNN"):find "^TNN +near 4 +5%.00$", text)
  end)
end)

t.test("a column of whole numbers has no decimals", function()
  local header, rows = { "mixer", "parameters", "accuracy" }, { { "tnn", 1160.0, 0.0 },
    { "attention", 776.0, 0.5 }, { "fd", nil, 0 / 0 }, { "ski", 1 / 0, 1.0 } }
  t.eq(text_table.lines(header, rows), { "mixer      parameters  accuracy",
    "tnn              1160    0.0000", "attention         776    0.5000",
    "fd                  -       nan", "ski               inf    1.0000" })
  local page = html.table(header, rows, "x")
  t.ok(page:find(">776<", 1, true) and page:find(">0.0000<", 1, true), page)
  t.in_folder(function(folder)
    local trials = {}
    for i, count in ipairs { 776.0, 1160.0 } do
      for seed = 1, 2 do
        trials[#trials + 1] = { config = { dim = i }, seed = seed,
          metrics = { count = count, half = i + seed / 2 } }
      end
    end
    sweeps.write(folder, { experiment = "e", axes = { "dim" }, columns = { "count", "half" },
      trials = trials })
    t.ok(line(run(folder, "e"), "dim=1"):find "^dim=1 +776 ± 0 +1%.8 ± 3%.2", run(folder, "e"))
  end)
end)

t.test("a mean has the decimals of its interval, with two significant digits", function()
  for half, want in pairs { [0.2484] = 2, [0.0996] = 2, [0.0251] = 3, [1.27] = 1, [9.96] = 0,
    [43.0] = 0, [1e-5] = 6 } do
    t.eq({ half, stats.decimals(half) }, { half, want })
  end
  t.eq({ stats.decimals(nil) or false, stats.decimals(0.0) or false, stats.decimals(0 / 0) or false,
    stats.decimals(1 / 0) or false }, { false, false, false, false })
  t.in_folder(function(folder)
    local trials = {}
    for row, spread in ipairs { 10.0, 1.0, 0.01, 0.0, 1e-13 } do -- the last one is rounding
      for seed = 1, 3 do
        trials[#trials + 1] = { config = { row = row }, seed = seed,
          metrics = { x = 123.456 + spread * (seed - 2) } }
      end
    end
    sweeps.write(folder, { experiment = "e", axes = { "row" }, columns = { "x" },
      trials = trials })
    local text = run(folder, "e") -- half = 4.3027 * spread / sqrt(3)
    for row, want in ipairs { "123 ± 25", "123.5 ± 2.5", "123.456 ± 0.025", "123.4560 ± 0.0000",
      "123.4560 ± 0.0000" } do
      t.ok(line(text, "row=" .. row):find(" " .. want, 1, true), text)
    end
  end)
end)

t.test("a run records which tables it answers", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", [[
      local tl = require "toeplab"
      return tl.experiment "tiny" { answers = "tnn/table10", grid = { decay = { 0.9, 0.99 } },
        seeds = 2, trial = function(t, c) t:log { val_ppl = c.decay + c.seed } end,
        report = { rows = "decay", columns = { "val_ppl" } } }
    ]])
    local _, code, said = t.toeplab(("run -q '%s/x.lua' -C '%s'"):format(folder, folder))
    t.eq({ code, said }, { 0, "" })
    local text = run(folder, "tnn/table10")
    t.ok(line(text, "0.90"):find "25%.28 +2%.4 ± 6%.4", text)
  end)
end)

t.done()
