-- test_pivot.lua: tables of experiments by the keys of rows and columns, and the means over the
-- others.
local t = require "harness"
local core = require "toeplab.core"
local sweeps = require "sweeps"
local trials = require "trials"

local program = "'" .. core.sys.executable() .. "'"

-- Returns what toeplab table prints for words, and its exit code.
local function run(folder, words)
  return t.shell(("%s table %s -C '%s' 2>&1"):format(program, words, folder))
end

-- Returns the cells of the table's lines: row name -> the texts beside it.
local function rows(text)
  local found = {}
  for line in text:gmatch "[^\n]+" do
    local cells = {}
    for cell in (line .. "  "):gmatch "(.-)  +" do cells[#cells + 1] = cell end
    found[cells[1]] = table.concat(cells, " | ", 2)
  end
  return found
end

-- Writes a sweep with the effects structure (0, 5, 0.1), decay (0, 3), lr (1, 3) and seed (0.1
-- each).
-- change: of the list of trials before they are written.
local function write(folder, change)
  local trials = {}
  for s, structure in ipairs { "gtu+glu", "gtu", "attention" } do
    for d, decay in ipairs { 0.99, "none" } do
      for _, lr in ipairs { 1, 3 } do
        for seed = 1, 3 do
          local value = 20 + ({ 0, 5, 0.1 })[s] + 3 * (d - 1) + lr + seed / 10
          trials[#trials + 1] = { config = { structure = structure, decay = decay, lr = lr,
            layers = 2 * s }, seed = seed, metrics = { val_ppl = value, count = 7.0 } }
        end
      end
    end
  end
  if change then change(trials) end
  sweeps.write(folder, { experiment = "p", axes = { "decay", "layers", "lr", "structure" },
    columns = { "val_ppl", "count" }, trials = trials })
end

t.test("cells and means average over settings for each seed first, then over the seeds", function()
  t.in_folder(function(folder)
    write(folder)
    local text, code = run(folder, "p --rows decay --columns structure")
    t.eq(code, 0)
    local found = rows(text)
    t.eq(found.decay, "gtu+glu | gtu | attention | mean")
    -- mean over lr 2, over seeds 0.2; half = 4.3027 * 0.1 / sqrt(3), though lr differs by 2
    t.eq(found["0.99"], "22.20 ± 0.25 | 27.20 ± 0.25 | 22.30 ± 0.25 | 23.90 ± 0.25")
    t.eq(found.none, "25.20 ± 0.25 | 30.20 ± 0.25 | 25.30 ± 0.25 | 26.90 ± 0.25")
    t.eq(found.mean, "23.70 ± 0.25 | 28.70 ± 0.25 | 23.80 ± 0.25 | 25.40 ± 0.25")
    t.ok(text:find("each number averages over lr: for each seed first", 1, true), text)
    t.ok(not text:find("layers", 1, true), text) -- it follows from the structure
    found = rows((run(folder, "p --rows structure,lr --columns decay")))
    t.eq(found["structure, lr"], "0.99 | none | mean")
    t.eq(found["gtu, 3"], "28.20 ± 0.25 | 31.20 ± 0.25 | 29.70 ± 0.25")
    found = rows((run(folder, "p --rows structure")))
    t.eq(found.structure, "val_ppl ↓ | count")
    t.eq({ found.gtu, found.mean }, { "28.70 ± 0.25 | 7 ± 0", "25.40 ± 0.25 | 7 ± 0" })
    found = rows((run(folder, "p --rows seed --columns structure lr=1 decay=none")))
    t.eq(found["2"], "24.2000 | 29.2000 | 24.3000 | 25.9000")
    t.eq(found.mean, "24.20 ± 0.25 | 29.20 ± 0.25 | 24.30 ± 0.25 | 25.90 ± 0.25")
  end)
end)

-- Rows that differ in two keys, of which a command changes one.
local NAMED = [[local tl = require "toeplab"
return tl.experiment "named" {
  fixed = { decay = 0.99, opt = { taps = 2 } }, seeds = 2,
  rows = { { "b", decay = "none" }, { "a", opt = { taps = 4 } }, { "c" } },
  trial = function(t, c)
    t:log { loss = c.opt.taps + (c.decay == "none" and 1 or 0) + c.seed / 10 }
  end,
  report = { columns = { "loss" } },
}]]

t.test("tables name a row by its name, and by a key of rows that a command gave a value",
  function()
    t.in_folder(function(folder)
      t.eq(trials.run(folder, NAMED), 0)
      local results = folder .. "/results"
      local found = rows((run(results, "named")))
      t.eq({ found["row=b"], found["row=a"], found["row=c"] },
        { "3.15 ± 0.64", "4.15 ± 0.64", "2.15 ± 0.64" })
      t.eq(rows((run(results, "named --rows decay"))).none, "3.15 ± 0.64")
      t.eq(rows((run(results, "named opt.taps=4"))).all, "4.15 ± 0.64")
      local text, code = t.shell(("%s compare named row=a row=c -C '%s' 2>&1"):format(program,
        results))
      t.ok(code == 0 and text:find("difference: row=c minus row=a", 1, true), text)
      t.eq(trials.run(folder, NAMED, { "opt.taps=8", "row=a,b" }), 0)
      found = rows((run(results, "named")))
      t.eq({ found["opt.taps=8 row=a"], found["opt.taps=4 row=a"], found["opt.taps=8 row=b"] },
        { "8.15 ± 0.64", "4.15 ± 0.64", "9.15 ± 0.64" })
    end)
  end)

t.test("leaves out means over other settings than their neighbours'", function()
  local function without(fits)
    return function(trials)
      for i = #trials, 1, -1 do
        if fits(trials[i].config, trials[i].seed) then table.remove(trials, i) end
      end
    end
  end
  t.in_folder(function(folder) -- a cell is missing
    write(folder, without(function(c) return c.structure == "gtu" and c.decay == "none" end))
    local text = run(folder, "p --rows decay --columns structure")
    local found = rows(text)
    t.eq(found["0.99"], "22.20 ± 0.25 | 27.20 ± 0.25 | 22.30 ± 0.25 | 23.90 ± 0.25")
    t.eq(found.none:gsub(" ", ""), "25.20±0.25|25.30±0.25")
    t.eq(found.mean:gsub(" ", ""), "23.70±0.25|23.80±0.25")
    t.ok(text:find("a mean is left out if", 1, true), text)
    text = run(folder, "p --rows structure")
    t.ok(text:find("do not all average over the same settings", 1, true), text)
    t.eq(rows(text).mean, nil)
  end)
  t.in_folder(function(folder) -- a setting of a cell is missing
    write(folder, without(function(c) return c.structure == "gtu" and c.lr == 3 end))
    local text = run(folder, "p --rows decay --columns structure")
    t.ok(text:find("do not all average over the same settings", 1, true), text)
    t.eq(rows(text).mean:gsub(" ", ""), "23.70±0.25|23.80±0.25")
  end)
  t.in_folder(function(folder) -- a seed of a setting is missing: that seed is left out
    write(folder, without(function(c, seed)
      return c.structure == "gtu" and c.lr == 3 and c.decay == "none" and seed == 3
    end))
    local found = rows((run(folder, "p --rows decay --columns structure")))
    t.eq(found.none, "25.20 ± 0.25 | 30.15 ± 0.64 | 25.30 ± 0.25 | 26.85 ± 0.64")
  end)
  t.in_folder(function(folder) -- a rate for each seed: no seed has both
    write(folder, without(function(c, seed) return (c.lr == 3) == (seed == 1) end))
    local text = run(folder, "p --rows decay --columns structure")
    t.eq(rows(text).none, "- | - | - | -")
    t.ok(text:find("a seed that lacks a value in one of the settings averaged over is left", 1,
      true), text)
  end)
end)

t.test("shows unfinished and diverged trials, and leaves out their means", function()
  t.in_folder(function(folder)
    write(folder, function(trials)
      trials[1].metrics.val_ppl = 0 / 0                   -- gtu+glu, 0.99
      for i = 19, 24 do trials[i].status, trials[i].metrics = "queued", {} end -- gtu, none
    end)
    local text = run(folder, "p --rows decay --columns structure")
    local found = rows(text)
    t.eq(found["0.99"], "diverged (1/6) | 27.20 ± 0.25 | 22.30 ± 0.25 | diverged (1/18)")
    t.eq(found.none, "25.20 ± 0.25 | … | 25.30 ± 0.25 | …")
    t.ok(text:find("diverged: 1 trial ended", 1, true), text)
  end)
end)

t.test("pivot tables: every format, the trials of a cell, wrong arguments", function()
  t.in_folder(function(folder)
    write(folder)
    local words = "p --rows decay --columns structure"
    local tex = run(folder, words .. " --tex")
    t.ok(tex:find("0.99 & \\textbf{22.20 $\\pm$ 0.25} & \\textbf{27.20", 1, true), tex)
    t.ok(tex:find("\n    mean & 23.70", 1, true), tex)
    t.ok(run(folder, words .. " --md"):find("| none  |", 1, true))
    t.ok(run(folder, words .. " --csv"):find("\np,0.99,gtu,,27.2", 1, true))
    t.ok(run(folder, words .. " --html"):find("<b>22.20 ± 0.25</b>", 1, true))
    local why = run(folder, words .. " --why none/gtu")
    t.eq(select(2, why:gsub("structure=gtu ", "")), 6)
    t.ok(why:find("decay=none layers=4 lr=1 structure=gtu seed=1", 1, true), why)
    for wrong, want in pairs {
      ["p --rows deca"] = "--rows: 'deca' does not vary in p; did you mean 'decay'?",
      ["p --columns decay"] = "--columns needs --rows KEYS",
      ["p --rows ,"] = "--rows takes words like A or A,B, got ','",
      ["p --rows decay --columns ''"] = "--columns takes words like A or A,B, got ''",
      ["p --rows decay --columns decay"] = "'decay' is named twice",
      [words .. " --metric count --metric val_ppl"] = "choose one --metric, got count, val_ppl",
      [words .. " --tolerance 5"] = "--tolerance is for published tables",
      ["tnn/table10 --rows decay"] = "no trial here answers tnn/table10",
      ["--rows decay"] = "--rows needs the NAME of a table",
    } do
      local text, code = run(folder, wrong)
      t.eq({ wrong, code }, { wrong, 2 })
      t.ok(text:find(want, 1, true), text)
    end
    t.eq((run(folder, "p --rows 'lr, decay'")), (run(folder, "p --rows lr,decay")))
    local text, code = run(folder .. "/none", words)
    t.eq(code, 2)
    t.ok(text:find("there are no trials in", 1, true), text)
  end)
end)

t.test("a metric's name is text in the caption and the notes of Markdown", function()
  t.in_folder(function(folder)
    local name = "[a](javascript:1)"
    write(folder, function(trials)
      for _, one in ipairs(trials) do one.metrics[name] = one.seed end
    end)
    local text, code = run(folder, ("p --rows decay --columns structure --metric '%s' --md"):format(
      name))
    t.eq(code, 0)
    t.holds(text, "**p** \\[a\\](javascript:1)")
    t.ok(not text:gsub("\\%[a\\%]", ""):find("[a]", 1, true), text)
  end)
end)

t.test("an experiment whose report names no columns has one per metric", function()
  t.in_folder(function(folder)
    sweeps.write(folder, { experiment = "e", axes = { "a" }, trials = {
      { config = { a = 1 }, seed = 1, metrics = { loss = 2, acc = 0.5 } },
      { config = { a = 2 }, seed = 1, metrics = { loss = 3, acc = 0.25 } } } })
    local text, code = run(folder, "e")
    t.eq(code, 0)
    t.ok(text:find "trials +acc ↑ +loss ↓\n" and text:find "a=2 +0%.2500 +3\n", text)
  end)
end)

t.test("keys that vary only from command to command distinguish rows", function()
  t.in_folder(function(folder)
    local function command(lr, steps, seeds)
      local list = {}
      for _, op in ipairs { "tno", "fd" } do
        for seed = 1, seeds do
          list[#list + 1] = { config = { op = op, lr = lr, steps = steps }, seed = seed,
            metrics = { loss = (op == "fd" and 1 or 0) + lr + seed / 10 } }
        end
      end
      sweeps.write(folder, { experiment = "q", axes = { "op" }, columns = { "loss" },
        overrides = { "lr=" .. lr, "steps=" .. steps }, trials = list })
    end
    command(1, 100, 3)
    command(2, 100, 3)
    local found = rows((run(folder, "q --rows lr,op")))
    t.eq({ found["1, tno"], found["2, fd"] }, { "1.20 ± 0.25", "3.20 ± 0.25" })
    found = rows((run(folder, "q --rows op")))
    t.eq({ found["op, lr"], found["tno, 1"], found["fd, 2"] },
      { "loss ↓", "1.20 ± 0.25", "3.20 ± 0.25" })
    command(1, 5, 1) -- a trial run takes part in no mean
    found = rows((run(folder, "q --rows op lr=1")))
    t.eq({ found["tno, 100"], found["tno, 5"] }, { "1.20 ± 0.25", "1.1000" })
    found = rows((run(folder, "q --rows op lr=1 steps=100")))
    t.eq({ found.op, found.tno, found.fd }, { "loss ↓", "1.20 ± 0.25", "2.20 ± 0.25" })
  end)
end)

t.done()
