-- test_showing.lua: what toeplab plot and report show: lines through the right numbers, and pages
-- that hold every text as it is and nothing foreign.
local t = require "harness"
local core = require "toeplab.core"
local curves = require "toeplab.report.figures.curves"
local groups = require "toeplab.report.groups"
local html = require "toeplab.report.html"
local pages = require "toeplab.report.page"
local plot = require "toeplab.report.figures.plot"
local frames = require "toeplab.report.frames"
local records = require "toeplab.store.records"
local replay = require "toeplab.store.replay"
local stats = require "toeplab.report.stats"
local sweeps = require "sweeps"
local trials = require "trials"

-- A store with two settings and three seeds of each; the loss of seed s at step i is i + s, ten
-- times that with decay "learnable". change: of the list of trials before they are written.
local function with_store(fn, change, more)
  t.in_folder(function(folder)
    local s = { experiment = "decay", axes = { "decay" }, trials = {}, source = "-- why\n" }
    for key, value in pairs(more or {}) do s[key] = value end
    for _, decay in ipairs { 0.9, "learnable" } do
      for seed = 1, 3 do
        s.trials[#s.trials + 1] = { config = { decay = decay, width = 8 }, seed = seed,
          metrics = { ppl = 10 * seed, ["ppl@64"] = seed, ["ppl@512"] = 2 * seed } }
      end
    end
    if change then change(s.trials) end
    local list = sweeps.write(folder, s)
    local store <close> = records.open(folder, "w")
    local ids = {}
    for i, trial in ipairs(list) do
      ids[i] = trial.id
      for step = 1, 10 do
        local times = s.trials[i].config.decay == "learnable" and 10.0 or 1.0
        replay.apply(store, trial.id, { "metric", step, "loss", times * (step + trial.seed) })
      end
    end
    fn(store, ids, folder)
  end)
end

local function names(spec)
  local list = {}
  for i, s in ipairs(spec.series) do list[i] = s.name or false end
  return list
end

-- ---- Curves -----------------------------------------------------------------------------------

t.test("trials that differ only in the seed are one line, with their range", function()
  with_store(function(store, ids)
    local spec = curves.steps(groups.set(store, ids), "loss")
    t.eq(names(spec), { "decay=0.9", "decay=learnable" })
    t.eq(spec.series[1].x, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 })
    t.eq({ spec.series[1].y[4], spec.series[1].low[4], spec.series[1].high[4] }, { 6, 5, 7 })
    t.eq(spec.series[2].y[10], 120)
    t.ok(spec.title:find("mean and range of 3 trials", 1, true), spec.title)
  end)
end)

t.test("each trial by itself, and means over other keys", function()
  with_store(function(store, ids)
    local set = groups.set(store, ids, true)
    local spec = curves.steps(set, "loss", { each = true })
    t.eq(#spec.series, 6)
    t.eq(spec.series[2].name, "decay=0.9 seed=2")
    t.eq(spec.series[2].y[1], 3)
    spec = curves.steps(set, "loss", { by = { "seed" } })
    t.eq(names(spec), { "seed=1", "seed=2", "seed=3" })
    t.eq(spec.series[1].y[1], (2 + 20) / 2)
    spec = curves.steps(set, "loss", { by = { "experiment" } })
    t.eq(#spec.series, 1)
    t.eq(spec.key, "none")
  end)
end)

t.test("an unfinished trial is drawn, but not in the mean", function()
  with_store(function(store, ids)
    local spec = curves.steps(groups.set(store, ids), "loss")
    t.eq(#spec.series, 3)
    t.eq({ spec.series[1].y[1], spec.series[1].low[1], spec.series[1].high[1] }, { 2.5, 2, 3 })
    t.ok(spec.series[2].dashed and not spec.series[2].name)
    t.eq(spec.series[2].y[1], 4)
    t.ok(spec.title:find("2 to 3 trials, dashed", 1, true), spec.title)
  end, function(trials) trials[3].status = "failed" end)
end)

t.test("marks rollbacks and prunings on their lines", function()
  with_store(function(store, ids)
    store:rows("INSERT INTO events (trial, step, kind) VALUES (?, 7, 'rollback')", { ids[5] })
    store:rows("INSERT INTO events (trial, step, kind) VALUES (?, 3, 'retry')", { ids[1] })
    local spec = curves.steps(groups.set(store, ids), "loss")
    local mark = spec.series[3]
    t.eq(#spec.series, 3)
    t.eq(mark.style, "points")
    t.eq(mark.x, { 7 })
    t.eq(mark.y, { spec.series[2].y[7] })
  end)
end)

t.test("long series are thinned and keep their extremes", function()
  with_store(function(store, ids)
    store:transaction(function()
      for step = 11, 5000 do
        local value = step == 3333 and 1e6 or 1.0
        for i = 1, 2 do
          replay.apply(store, ids[i], { "metric", step, "loss", value })
        end
      end
    end)
    local spec = curves.steps(groups.set(store, { ids[1] }), "loss")
    local s = spec.series[1]
    t.ok(#s.x <= 402 and #s.x > 100, #s.x)
    t.eq(math.max(table.unpack(s.y)), 1e6)
    spec = curves.steps(groups.set(store, { ids[1], ids[2] }), "loss")
    t.ok(#spec.series[1].x <= 402 and #spec.series[1].x > 100, #spec.series[1].x)
    t.eq(spec.series[1].y[#spec.series[1].y], 1)
  end)
end)

t.test("a seed that diverged leaves a gap, not the mean of the others", function()
  with_store(function(store, ids)
    replay.apply(store, ids[2], { "metric", 4, "loss", nil })
    replay.apply(store, ids[2], { "metric", 1, "ppl", nil })
    local set = groups.set(store, ids)
    local y = curves.steps(set, "loss").series[1].y
    t.ok(y[4] ~= y[4] and y[5] == 7)
    local spec = curves.against(set, "ppl", "decay")
    t.ok(spec.series[1].y[1] ~= spec.series[1].y[1] and spec.series[1].y[2] == 20)
  end)
end)

t.test("last values against a key: numbers in order, words by name, with intervals", function()
  with_store(function(store, ids)
    local spec = curves.against(groups.set(store, ids), "ppl", "decay")
    t.eq(spec.xnames, { "0.9", "learnable" })
    t.eq(spec.series[1].x, { 1, 2 })
    t.eq(spec.series[1].y, { 20, 20 })
    t.eq(spec.series[1].error[1], stats.interval({ 10, 20, 30 }).half, 1e-12)
    spec = curves.against(groups.set(store, ids), "ppl", "decay", { by = { "seed" } })
    t.eq({ spec.series[1].x, spec.series[2].x, spec.series[3].x },
      { { 0.88, 1.88 }, { 1, 2 }, { 1.12, 2.12 } }, 1e-12) -- beside each other
    spec = curves.against(groups.set(store, ids), "ppl", "seed", { logx = true })
    t.eq(spec.series[1].x, { 1, 2, 3 })
    t.eq(spec.series[1].y, { 10, 20, 30 })
    t.eq(spec.logx, true)
    t.eq(#spec.series, 2) -- of each decay
  end)
end)

t.test("metrics that end in numbers are one line", function()
  with_store(function(store, ids)
    local spec = curves.at(groups.set(store, ids), "ppl@", { logx = true })
    t.eq(spec.series[1].x, { 64, 512 })
    t.eq(spec.series[1].y, { 2, 4 })
    t.eq(spec.logx, 2)
    t.eq(spec.ylabel, "ppl")
    t.raises(curves.at, "no metrics 'pl@NUMBER'; did you mean 'ppl@'", groups.set(store, ids),
      "pl@")
  end)
end)

t.test("unknown names are errors with the nearest name", function()
  with_store(function(store, ids)
    local set = groups.set(store, ids)
    t.raises(curves.steps, "no metric 'los'; did you mean 'loss'", set, "los")
    t.raises(curves.steps, "no key 'decy'; did you mean 'decay'", set, "loss", { by = { "decy" } })
    t.raises(curves.against, "no key or metric 'widht'; did you mean 'width'", set, "loss", "widht")
  end)
end)

t.test("leaves out the same trial by older code, except with --each", function()
  with_store(function(store, ids)
    local set = groups.set(store, ids)
    t.eq({ #set.trials, set.older }, { 6, 1 })
    set = groups.set(store, ids, true)
    t.eq({ #set.trials, set.older }, { 7, 0 })
    local seen = {}
    for _, s in ipairs(curves.steps(set, "loss", { each = true }).series) do
      t.ok(not seen[s.name], s.name)
      seen[s.name] = true
    end
  end, function(trials)
    trials[7] = { config = { decay = 0.9, width = 8 }, seed = 1, code = "older" }
  end)
end)

t.test("draws figures of experiments, their keys and bands", function()
  with_store(function(store, ids, folder)
    local set, path = groups.set(store, ids), folder .. "/a.svg"
    t.ok(plot.svg(path, curves.steps(set, "loss")))
    local svg = t.read(path)
    t.ok(svg:find "fill%-opacity" and svg:find "decay=learnable")
    t.ok(plot.svg(path, curves.against(set, "ppl", "decay")))
    t.ok(t.read(path):find "learnable")
    local bad = { series = { { y = { 1 }, low = { 1 } } } }
    t.raises(plot.svg, "low and high are given together", path, bad)
    bad = { series = { { y = { 1 }, low = { 1, 2 }, high = { 1 } } } }
    t.raises(plot.svg, "1 of y, 2 of low", path, bad)
  end)
end)

t.test("draws all commands of an experiment, the newest version at each setting", function()
  t.in_folder(function(folder)
    local function add(width, seeds, source)
      local list = {}
      for i, seed in ipairs(seeds) do
        list[i] = { config = { decay = 0.9, width = width }, seed = seed,
          metrics = { loss = 100 * width } }
      end
      sweeps.write(folder, { experiment = "decay", axes = { "decay" }, source = source,
        overrides = { "width=" .. width, "seeds=" .. table.concat(seeds, ",") }, trials = list })
    end
    local function drawn(words)
      local said, code = t.shell(("'%s' plot %s --against width -C '%s' -o '%s/x.svg' 2>&1"):format(
        core.sys.executable(), words, folder, folder))
      t.ok(code == 0, said)
      return said:match "(%d+ trials?) of other scales, earlier code or rejected values" or "all"
    end
    add(8, { 1, 2, 3 })
    add(8, { 4 })
    add(16, { 1 })
    t.eq(drawn "decay", "all")
    add(8, { 1 }, "other code")
    t.eq(drawn "decay", "4 trials")
    t.eq(drawn "decay width=8", "4 trials")
    t.eq(drawn "@all experiment=decay", "all")
    t.eq(drawn "decay sweep=1", "all")
    local names = {}
    for _, filter in ipairs { "width=8", "width!=8", "width<9", "width>9", "width>=9", "width>-9",
      "@done" } do
      local said = t.shell(("'%s' plot decay '%s' --against width -C '%s'"):format(
        core.sys.executable(), filter, folder))
      local name = said:match "/figures/decay%-loss%-against%-width%-(.*)%.svg"
      t.ok(name and not names[name], filter .. ": " .. said)
      names[name] = true
    end
    t.ok(names["width-8"])
  end)
end)

t.test("labels leave out keys that vary together, and keep names rather than numbers", function()
  with_store(function(store, ids)
    local function labels()
      local list = {}
      for i, g in ipairs(groups.of(groups.set(store, ids), {})) do list[i] = g.label end
      return list
    end
    t.eq(labels(), { "mixer=a", "mixer=b" }) -- as decay, depth and wide
    store:rows([[UPDATE trials SET config = json_set(config, '$.mixer', 'c') WHERE id = ?]],
      { ids[1] })
    t.eq(labels(), { "mixer=c", "mixer=a", "mixer=b" })
    store:rows([[UPDATE trials SET config = json_set(config, '$.mixer', 'a', '$.depth', 9)
      WHERE id = ?]], { ids[1] })
    t.eq(labels(), { "depth=9", "depth=2", "depth=4" })
  end, function(trials)
    for i, trial in ipairs(trials) do
      local c, first = trial.config, i <= 3
      c.mixer, c.depth, c.wide = first and "a" or "b", first and 2 or 4, first
      c.decay = first and 0.9 or 0.99
    end
  end)
end)

t.test("many lines have a legend below the axes; too many have none, and the title reports it",
  function()
    for count, want in pairs { [14] = "outside", [15] = "below", [35] = "below", [36] = "none" } do
      t.in_folder(function(folder)
        local trials, ids = {}, {}
        for i = 1, count do
          trials[i] = { config = { width = i }, seed = 1, metrics = { loss = i } }
        end
        for i, trial in ipairs(sweeps.write(folder, { experiment = "many", axes = { "width" },
          trials = trials })) do ids[i] = trial.id end
        local store <close> = records.open(folder, "r")
        local spec = curves.steps(groups.set(store, ids), "loss")
        t.eq({ count, spec.key, spec.series[count].name or false },
          { count, want, count < 36 and "width=" .. count })
        t.eq(spec.title:find("(36 lines: too many for a legend)", 1, true) ~= nil, count == 36)
        local path = folder .. "/x.svg"
        t.ok(plot.svg(path, spec))
        for i = 1, count do
          t.eq(t.read(path):find(">width=" .. i .. "<", 1, true) ~= nil, count < 36)
        end
      end)
    end
  end)

-- ---- Pages ------------------------------------------------------------------------------------

t.test("escapes any text", function()
  t.eq(html.escape "<b a='1'>&\"", "&lt;b a=&#39;1&#39;&gt;&amp;&quot;")
  t.ok(utf8.len(html.escape "a\xff\0b\27[31m"))
  t.eq(html.text("<p>%s</p>%%", "<i>"), "<p>&lt;i&gt;</p>%")
  local text = html.table({ "<a>", "n" }, { { "x&y", 1.5 }, { html.raw "<i>z</i>", nil } }, "c<d")
  for _, part in ipairs { '<th scope="col">&lt;a&gt;</th>', '<td class="n">1.5000</td>',
    '<th scope="row"><i>z</i></th>', "<caption>c&lt;d</caption>", 'aria-label="c&lt;d"' } do
    t.ok(text:find(part, 1, true), part .. " is not in " .. text)
  end
end)

t.test("a figure has unique ids and no background", function()
  local spec = { xlabel = "x", ylabel = "y", title = "T", logx = true,
    series = { { name = "a<b", x = { 1, 10 }, y = { 1, 2 }, style = "both" } } }
  local one, two = assert(html.figure(spec, 1, "C")), assert(html.figure(spec, 2, "C"))
  t.ok(one:find('role="img" aria-label="T; y against x; a&lt;b ends at 2"', 1, true), one)
  t.ok(one:find("rgb(  0, 114, 178)", 1, true) and not one:find("#ffffff", 1, true))
  t.ok(one:find(">a&lt;b<", 1, true), "the line has no name")
  t.ok(not one:find("http", 1, true) and not one:find "Produced by")
  for id in one:gmatch " id=['\"]([^'\"]+)" do
    t.ok(id:find "^f1" and not two:find("'" .. id .. "'", 1, true), id)
  end
  for id in one:gmatch " href=['\"]#([^'\"]+)" do
    t.ok(one:find(" id='" .. id .. "'", 1, true), "nothing is named " .. id)
  end
end)

local hostile = "<script>alert('x')</script>"

local function page_of(store)
  local frame = assert(frames.find(store, "experiment", "decay", {}))
  return pages.sweep(store, frame)
end

t.test("a page is complete, identical each time, and treats no text as markup", function()
  with_store(function(store, ids)
    store:rows("UPDATE trials SET error = ? WHERE id = ?", { hostile, ids[3] })
    store:rows("INSERT INTO events (trial, step, kind, text) VALUES (?, 7, 'rollback', ?)",
      { ids[5], hostile .. " back" })
    store:rows("UPDATE trials SET command = ?, host = ?",
      { "toeplab run /own/place/x.lua", hostile })
    local page, missing = page_of(store)
    t.eq(page, (page_of(store)))
    t.eq(missing, nil)
    t.ok(not page:find "<script" and not page:find "https?://" and not page:find "/own/place")
    for _, text in ipairs { '<html lang="en">', "<title>decay</title>", "Is it so?",
      "toeplab run x.lua", "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; back",
      "5 done, 1 failed", "learnable",
      "loss against step; decay=0.9 ends", "0123456789ab", "Default-src 'none'" } do
      t.ok(page:lower():find(text:lower(), 1, true), "no " .. text)
    end
    for _, id in ipairs(ids) do t.ok(page:find(id:sub(1, 12), 1, true)) end
    local seen = {}
    for id in page:gmatch " id=['\"]([^'\"]+)" do
      t.ok(not seen[id], "two are named " .. id)
      seen[id] = true
    end
  end, function(trials) trials[3].status = "failed" end, { source = "-- x.lua: is it so?\n" })
end)

t.test("the page has the sha256 of each corpus, not the hash over all of them", function()
  with_store(function(store)
    store:rows([[UPDATE trials SET data_hash = 'over all', provenance = json_set(provenance,
      '$.data', json('{"corpus":"of the text","width":"of the width"}'))]])
    local page = page_of(store)
    for _, row in ipairs { "corpus</th><td>of the text", "8</th><td>of the width" } do
      t.eq(select(2, page:gsub(row, "")), 1)
    end
    t.ok(not page:find("over all", 1, true))
  end)
end)

t.test("shows the first of many trials, counts all, and misses no failure", function()
  with_store(function(store, ids)
    local most = pages.MOST
    pages.MOST = 2
    local page = page_of(store)
    pages.MOST = most
    t.ok(page:find("5 done, 1 failed", 1, true) and page:find("6 trials: the last value of each "
      .. "metric; the first 2 of them", 1, true))
    t.ok(page:find("There are more than 2 trials", 1, true))
    t.ok(page:find(ids[5]:sub(1, 12), 1, true) and not page:find(ids[4]:sub(1, 12), 1, true))
  end, function(trials) trials[5].status = "failed" end)
end)

t.test("paper and measured values are side by side", function()
  with_store(function(store)
    local page = page_of(store)
    t.ok(page:find("Paper against measured", 1, true) and page:find("0.99 (ours)", 1, true))
    t.ok(page:find '<figure class="paper">.-<th scope="row">')
  end, nil, { answers = { "tnn/table10" } })
end)

local script = [[
-- own.lua: what does it say?
local tl = require "toeplab"
return tl.experiment "decay" {
  grid = { decay = { 0.9, "learnable" } }, trial = function() end,
  report = function(trials, report)
    print("seen", #trials, "<of them>")
    report.table({ "label", "ppl" }, { { trials[1].label, trials[1].metrics.ppl } }, nil,
      "a note\27[0m")
    report.plot { title = "Drawn", series = { { y = { 1, 2 } } } }
    if trials[1].config.width ~= 8 then error("another width") end
    %s
  end,
}
]]

t.test("a report loses neither a file nor a cell", function()
  local figure = "report.plot { series = { { y = { 1 } } } } "
  for words, message in pairs {
    [('report.table({ "a" }, {}) '):rep(2)] = "tables/x%.md is written twice",
    [figure:rep(2)] = "figures/x%.svg is written twice",
    ['report.table({ "a" }, { { 1 }, { 1, 2 } })'] = "row 2 of the table has 2 cells, its header",
    ['report.table({ "a" }, {}, nil, 3)'] = "the note of a table must be a string, not a number",
  } do
    t.in_folder(function(folder)
      local text = ('local tl = require "toeplab"\nreturn tl.experiment "x" { trial = function() '
        .. "end, report = function(_, report) %s end }"):format(words)
      t.raises(trials.run, "^[^\n]*x%.lua:2: report: [^\n]*" .. message, folder, text)
    end)
  end
end)

t.test("the experiment's own report is on the page if its script is unchanged", function()
  t.in_folder(function(place)
    local path, text = place .. "/own.lua", script:format ""
    local function shown(fn, source)
      with_store(function(store) fn((page_of(store))) end, nil, { source = source, script = path })
    end
    t.write(path, text)
    shown(function(page)
      t.ok(page:find("seen\t6\t&lt;of them&gt;", 1, true), page:match "<pre>.-</pre>")
      t.ok(page:find(">10<", 1, true) and page:find(">Drawn<", 1, true))
      t.ok(page:find("a note", 1, true))
    end, text)
    shown(function(page)
      t.ok(page:find("is missing or has changed since it was run", 1, true))
    t.ok(not page:find("seen\t", 1, true))
    end, text .. "-- another\n")
    t.write(path, script:format 'error "broken"')
    shown(function(page)
      t.ok(page:find("the report of the script failed: .-broken") and page:find "seen\t")
    end, script:format 'error "broken"')
  end)
end)

t.done()
