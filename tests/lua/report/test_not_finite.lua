-- test_not_finite.lua: inf, NaN and a value that was never logged are three things wherever values
-- are shown, chosen or averaged.
local t = require "harness"
local html = require "toeplab.report.html"
local json = require "toeplab.base.json"
local frames = require "toeplab.report.frames"
local records = require "toeplab.store.records"
local sweeps = require "sweeps"
local tables = require "toeplab.report.tables"
local mean_table = require "toeplab.report.mean_table"
local text_table = require "toeplab.base.text_table"

local INF, NAN = math.huge, 0 / 0

-- Trials of four values of `model`, named by what one of their three seeds has beside 0.5 and 0.7.
local function with_store(fn)
  t.in_folder(function(folder)
    local list = {}
    for model, odd in pairs { finite = 0.6, inf = INF, nan = NAN, missing = false } do
      for seed, value in ipairs { 0.5, 0.7, odd } do
        list[#list + 1] = { config = { model = model }, seed = seed,
          metrics = { loss = value or nil, other = 1.0 } }
      end
    end
    sweeps.write(folder, { experiment = "e", axes = { "model" }, columns = { "loss" },
      trials = list })
    fn(folder, function(words) return t.toeplab(("%s -C '%s'"):format(words, folder)) end)
  end)
end

t.test("JSON writes inf, -inf and nan as three strings", function()
  with_store(function(_, toeplab)
    for model, text in pairs { inf = '"loss":"inf"', nan = '"loss":"nan"',
      finite = '"loss":0.6' } do
      local odd = (" model=%s seed=3"):format(model)
      t.holds(toeplab("ls --json --columns loss" .. odd), text)
      t.holds(toeplab("export --json" .. odd), '"metric.' .. text:sub(2))
      t.holds(toeplab("export --metrics --json" .. odd), text:gsub("loss", "value"))
      t.holds(toeplab("show --json" .. odd), '"step":1,' .. text:gsub("loss", "value"))
    end
    for _, verb in ipairs { "ls --json --columns loss", "export --json", "show --json" } do
      t.ok(not toeplab(verb .. " model=missing seed=3"):find "loss")
    end
  end)
  t.eq(json.line { a = INF, b = -INF, c = NAN }, '{"a":"inf","b":"-inf","c":"nan"}')
end)

t.test("filters find inf and nan, and @best: ignores them", function()
  with_store(function(_, toeplab)
    local function models(words)
      local text = toeplab("ls --csv --columns model " .. words)
      return (text:gsub("[^\n]*,", ""):gsub("^model\n", ""):gsub("\n", " "))
    end
    t.eq(models "loss=inf", "inf ")
    t.eq(models "'loss>=inf'", "inf ")
    t.eq(models "loss=nan", "nan ")
    t.eq(models "seed=3 'loss<1'", "finite ")
    t.holds(toeplab "ls --columns loss @best:max:loss", " 0.7000")
    t.holds(select(3, toeplab "ls @best:max:loss seed=3 model=inf,nan"),
      "no finished trial has a finite 'loss'")
  end)
end)

t.test("a query returns NaN as NULL, which JSON shows and coalesce can replace", function()
  with_store(function(_, toeplab)
    local text = toeplab([[ls --json --sql "SELECT l.name, l.value,
      iif(l.name IS NULL, NULL, coalesce(l.value, 'nan')) AS text
      FROM v_trials t LEFT JOIN v_last l ON l.trial = t.id AND l.name = 'loss'
      WHERE json_extract(t.config, '$.model') <> 'finite' AND t.seed = 3
      ORDER BY json_extract(t.config, '$.model')"]])
    t.eq(text, '{"name":"loss","text":"inf","value":"inf"}\n'
      .. '{"name":null,"text":null,"value":null}\n'
      .. '{"name":"loss","text":"nan","value":null}\n')
  end)
end)

t.test("a mean in a table reports inf and nan among its values", function()
  with_store(function(folder, toeplab)
    local store <close> = records.open(folder, "r")
    local result = tables.fill(nil, frames.find(store, "experiment", "e", {}))
    local text = toeplab "table e"
    for _, row in ipairs(result.rows) do
      local cell, wanted = row.cells[1], { ["model=finite"] = { 0, 0, 3 },
        ["model=inf"] = { 1, 0, 0 }, ["model=nan"] = { 1, 0, 0 }, ["model=missing"] = { 0, 1, 2 } }
      t.eq({ cell.diverged, cell.lacking, cell.interval and cell.interval.n or 0 },
        wanted[row.name])
    end
    t.ok(text:find "model=inf +diverged %(1/3%)" and text:find "model=nan +diverged %(1/3%)", text)
  end)
  for text, odd in pairs { inf = INF, nan = NAN, ["0.6000"] = false } do -- that of a run
    local list = {}
    for i, value in ipairs { 0.5, 0.7, odd } do
      list[i] = { config = { model = "x" }, metrics = { loss = value or nil } }
    end
    local _, rows = mean_table.by({ rows = "model", columns = { "loss" } }, list)
    t.eq(text_table.cell(rows[1][2]), text)
  end
end)

t.test("a setting that diverged at a seed is not claimed to be better", function()
  t.in_folder(function(folder)
    local list = {}
    for seed = 1, 7 do
      for model, value in pairs { a = 0.6, b = 0.5 } do
        if model == "b" and seed == 7 then value = INF end
        list[#list + 1] = { config = { model = model }, seed = seed,
          metrics = { loss = value + 0.001 * (seed * 3 % 5) * (model == "a" and 1 or 2) } }
      end
    end
    sweeps.write(folder, { experiment = "e", axes = { "model" }, trials = list })
    for metric, said in pairs { ["--lower"] = "undecided (the side that looks better diverged at 1 "
      .. "seed): neither", ["--higher"] = "model=b is worse than model=a" } do
      t.holds(t.toeplab(("compare e model=a model=b -m loss %s -C '%s'"):format(metric, folder)),
        said, "1 trial is left out", "1 trial of these diverged, and leaving it out flatters")
    end
  end)
end)

t.test("a spread that is a small share of the mean is shown with the mean's digits", function()
  t.in_folder(function(folder)
    local trials = {}
    for i, v in ipairs { 1, 4, 2, 8, 5, 7 } do
      trials[i] = { config = { a = 1 }, seed = i, metrics = { x = 1e10 + v } }
    end
    sweeps.write(folder, { experiment = "e", columns = { "x" }, trials = trials })
    t.holds(t.toeplab(("table e -C '%s'"):format(folder)), "10000000004.5 ± 2.9")
    local header, rows = mean_table.by({ rows = "a", columns = { "x" } }, trials)
    t.eq(text_table.lines(header, rows), { "a              x  trials", "1  10000000004.5       6" })
    t.holds(html.table(header, rows, ""), ">10000000004.5<")
    t.holds(t.toeplab(("table e --csv -C '%s'"):format(folder)),
      ",10000000004.5,10000000001.626001,10000000007.373999,2.7386127875258306,6")
  end)
end)

t.done()
