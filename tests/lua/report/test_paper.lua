-- test_paper.lua: figures for papers: names, order, panels, sizes and fonts; on the page no text is
-- cut and none touches another.
local t = require "harness"
local core = require "toeplab.core"
local curves = require "toeplab.report.figures.curves"
local differences = require "toeplab.report.figures.differences"
local groups = require "toeplab.report.groups"
local labels = require "toeplab.report.labels"
local plot = require "toeplab.report.figures.plot"
local records = require "toeplab.store.records"
local series = require "toeplab.report.figures.series"
local shell = require "toeplab.base.shell"
local sweeps = require "sweeps"

local label = { ppl = "perplexity", decay = "λ", ["mixer=tnn"] = "TNN (ours)" }

-- A store with three mixers at two decays, three seeds of each.
local function with_store(fn)
  t.in_folder(function(folder)
    local s = { experiment = "abl", axes = { "mixer", "decay" }, trials = {}, labels = label,
      tex = { ["mixer=tnn"] = "\\textsc{tnn}", ppl = "PPL$_{x}$" }, title = "Of longer texts",
      columns = { "ppl" } }
    for i, mixer in ipairs { "attention", "tnn", "ski" } do
      for _, decay in ipairs { 0.9, 0.99 } do
        for seed = 1, 3 do
          s.trials[#s.trials + 1] = { config = { mixer = mixer, decay = decay }, seed = seed,
            metrics = { ppl = i + decay + seed / 10 + seed * i % 4 / 100,
              ["ppl@64"] = i + seed / 10 + decay, ["ppl@128"] = 20 * i + seed / 10 } }
        end
      end
    end
    local ids = {}
    for i, trial in ipairs(sweeps.write(folder, s)) do ids[i] = trial.id end
    local store <close> = records.open(folder, "r")
    fn(store, ids, folder)
  end)
end

local function names(spec)
  local list = {}
  for i, s in ipairs(spec.series) do list[i] = s.name or false end
  return list
end

-- ---- Names ------------------------------------------------------------------------------------

t.test("labels name metrics, keys and values; the rest keep their names", function()
  local names_of = labels.new(label)
  t.eq({ names_of:name "ppl", names_of:name "ppl@512", names_of:name "loss" },
    { "perplexity", "perplexity at 512", "loss" })
  t.eq({ names_of:part("mixer", "tnn"), names_of:part("mixer", "ski"),
    names_of:part("decay", 0.9) }, { "TNN (ours)", "mixer=ski", "λ=0.9" })
  t.eq({ names_of:value("mixer", "tnn"), names_of:value("decay", 0.9),
    names_of:value("decay", nil) }, { "TNN (ours)", "0.9", "-" })
  local tex = labels.new(label, { decay = "$\\lambda$" })
  t.eq(labels.raw("a_" .. tex:part("decay", 0.9) .. "_" .. tex:name "ppl", function(text)
    return (text:gsub("_", "\\_"))
  end), "a\\_$\\lambda$=0.9\\_perplexity")
end)

t.test("figures have the labels, in legends, along axes and in the title", function()
  with_store(function(store, ids)
    local set = groups.set(store, ids)
    local spec = curves.against(set, "ppl", "decay", { by = { "mixer" } })
    t.eq(names(spec), { "mixer=attention", "TNN (ours)", "mixer=ski" })
    t.eq({ spec.xlabel, spec.ylabel }, { "λ", "perplexity" })
    t.eq(spec.title, "Of longer texts: mean and 95 % interval of 3 trials")
    spec = curves.against(set, "ppl", "mixer", { by = { "decay" } })
    t.eq(spec.xnames, { "attention", "TNN (ours)", "ski" })
    t.eq(names(spec), { "λ=0.9", "λ=0.99" })
  end)
end)

t.test("tables have the labels, and LaTeX its own", function()
  with_store(function(_, _, folder)
    local function table_of(words)
      return t.toeplab(("table abl %s -C '%s'"):format(words, folder))
    end
    local text = table_of "--rows mixer --columns decay --metric ppl"
    t.ok(text:find("Of longer texts, perplexity %(lower is better%) by mixer and λ"), text)
    t.ok(text:find "\nTNN %(ours%) " and text:find "\nski ", text)
    text = table_of ""
    t.ok(text:find "^abl: Of longer texts\n" and text:find " perplexity ↓" , text)
    t.ok(text:find "\nλ=0.9 TNN %(ours%)  " or text:find "\nTNN %(ours%) λ=0.9  ", text)
    text = table_of "--rows mixer --tex"
    t.ok(text:find("\n    \\textsc{tnn} & ", 1, true), text)
    t.ok(text:find("mixer & PPL$_{x}$ $\\downarrow$", 1, true), text)
    t.ok(not text:find "[\1\2]", "a mark of TeX is left")
    t.ok(table_of("--csv"):find ",decay=0.9 mixer=tnn,ppl,", "CSV has the names to type")
    for _, word in ipairs { "'TNN (ours)/0.9'", "tnn/0.9" } do
      text = table_of("--rows mixer --columns decay --metric ppl --why " .. word)
      t.ok(text:find "decay=0.9 mixer=tnn seed=2", text)
    end
  end)
end)

t.test("checks label and title where they are declared", function()
  t.in_folder(function(folder)
    for _, row in ipairs {
      { "label = { ['mixr=tnn'] = 'TNN' }", "label of mixr=tnn: .* 'mixr'; did you mean 'mixer'" },
      { "label = { 'TNN' }", "label has 'TNN' without a name" },
      { "label = { ppl = 3 }", "label of ppl must be one line of text" },
      { "label = { ppl = { 'PPL', latex = '$x$' } }", "label of ppl must be .* has 'latex'" },
      { "label = { ['mixer = tnn'] = 'TNN' }", "without blanks around =" },
      { "title = 'two\\nlines'", "title must be one line of text" },
      { "title = ''", "title must be one line of text" },
    } do
      local file = folder .. "/x.lua"
      t.write(file, ([[local tl = require "toeplab"
return tl.experiment "x" { grid = { mixer = { "tnn", "ski" } },
  %s,
  trial = function(t, c) t:log { ppl = #c.mixer } end }
]]):format(row[1]))
      local _, code, text = t.toeplab(("plan '%s' -C '%s/r'"):format(file, folder))
      t.ok(text:find("x.lua:3: ", 1, true) and text:find(row[2]), text)
      t.eq(code, 2)
    end
  end)
end)

-- ---- Order and panels -------------------------------------------------------------------------

t.test("lines and words along x follow --order; the rest come after", function()
  with_store(function(store, ids)
    local set = groups.set(store, ids)
    local spec = curves.against(set, "ppl", "decay", { by = { "mixer" },
      order = { "ski", "TNN (ours)" } })
    t.eq(names(spec), { "mixer=ski", "TNN (ours)", "mixer=attention" })
    t.eq({ spec.series[1].colour, spec.series[1].y[1] },
      { 1, 3 + 0.9 + 0.2 + (3 + 2 + 1) / 300 }, 1e-12)
    spec = curves.against(set, "ppl", "mixer", { by = { "decay" }, order = { "tnn", "0.99" } })
    t.eq(spec.xnames, { "TNN (ours)", "attention", "ski" })
    t.eq(names(spec), { "λ=0.99", "λ=0.9" })
  end)
end)

t.test("panels of a key keep the colours of lines", function()
  with_store(function(store, ids)
    local set = groups.set(store, ids)
    local panels = curves.panels(set, "mixer", { "tnn" })
    t.eq({ panels[1].title, panels[2].title, panels[3].title },
      { "TNN (ours)", "mixer=attention", "mixer=ski" })
    local spec = curves.at(set, "ppl@", { panel = panels[3] })
    t.eq(names(spec), { "λ=0.9", "λ=0.99" })
    t.eq(spec.series[2].y, { 3 + 0.2 + 0.99, 60.2 }, 1e-9)
    t.raises(curves.panels, "no key 'mixr'; did you mean 'mixer'", set, "mixr")
  end)
end)

t.test("two values with one label have separate places", function()
  with_store(function(store, ids)
    local set = groups.set(store, ids)
    set.labels = labels.new { ["mixer=tnn"] = "same", ["mixer=ski"] = "same" }
    local spec = curves.against(set, "ppl", "mixer", { by = { "decay" } })
    t.eq(spec.xnames, { "attention", "same", "same" })
    t.eq(#spec.series[1].x, 3)
  end)
end)

t.test("panels have the same places along x, and one legend has the lines of all", function()
  with_store(function(store, ids)
    local set = groups.set(store, ids)
    local _, last = table.unpack(curves.panels(set, "decay"))
    for i, trial in ipairs(set.trials) do -- the second panel lacks a mixer
      if trial.config.decay == 0.99 and trial.config.mixer == "tnn" then set.trials[i] = nil end
    end
    local kept = {}
    for _, trial in pairs(set.trials) do kept[#kept + 1] = trial end
    set.trials = kept
    local spec = curves.against(set, "ppl", "mixer", { panel = last })
    t.eq(#spec.xnames, 3)
    local a = { series = { { name = "one", colour = 1 }, { name = "three", colour = 3 } } }
    local b = { series = { { name = "two", colour = 2 }, { name = "one", colour = 1 }, {} } }
    t.eq(names(series.together { a, b }), { "one", "two", "three" })
  end)
end)

t.test("over words points have bars and no line; over numbers lines have bands", function()
  with_store(function(store, ids)
    local set = groups.set(store, ids)
    for _, s in ipairs(curves.against(set, "ppl", "mixer", { by = { "decay" } }).series) do
      t.eq({ s.style, s.error ~= nil, s.low ~= nil }, { "points", true, false })
    end
    for _, s in ipairs(curves.against(set, "ppl", "decay", { by = { "mixer" } }).series) do
      t.eq({ s.style, s.error ~= nil, s.low ~= nil }, { "both", false, true })
    end
  end)
end)

-- ---- The command line -------------------------------------------------------------------------

t.test("options of the command line appear in the figure", function()
  if not shell.on_path "gnuplot" then t.skip "no gnuplot" end
  with_store(function(_, _, folder)
    local file = folder .. "/a.svg"
    local function draw(words)
      local text, code, said = t.toeplab(("%s -C '%s' -o '%s'"):format(words, folder, file))
      return t.read(file) or said, text .. said, code
    end
    local svg, text = draw "plot abl --at ppl@ --panels decay --order tnn --xlabel Länge --log x"
    t.ok(svg:find ">Länge<" and svg:find "λ=0.99" and svg:find "TNN %(ours%)", text)
    t.eq(select(2, svg:gsub("<text>TNN %(ours%)</text>", "")), 1) -- one legend for both panels
    t.ok(svg:find "Of longer texts: mean")
    svg, text = draw "plot abl --at ppl@ --by mixer --size 3.25x2.2 --font Times,8 --legend none"
    t.ok(svg:find 'width="312" height="211"', "3.25 x 2.2 inches of 96 points")
    t.ok(svg:find 'font%-family="Times"[^>]*font%-size="10.67"' and not svg:find "Of longer texts")
    t.ok(text:find "caption: Of longer texts: mean and 95 %% interval of 6 trials", text)
    t.ok(not svg:find "<text>TNN", "a legend")
    svg, text = draw "compare abl mixer=attention --metric ppl"
    t.ok(svg:find "TNN %(ours%) λ=0.9" and svg:find ">worse<"
      and svg:find "perplexity minus mixer=attention", text)
    t.ok(text:find "mixer=tnn decay=0.9 is worse than mixer=attention", text)
    os.remove(file)
    for words, why in pairs {
      ["plot abl --size 3x"] = "--size takes inches like 3.25x2.2, each 0.5 to 100, got '3x'",
      ["plot abl --size 0.1x2"] = "--size takes inches",
      ["plot abl --font Times,8,9"] = "--font: 'Times,8,9' is not a family, a size of 1 to 100",
      ["plot abl --font 0"] = "--font: '0' is not",
      ["plot abl --metric ppl --order tnn,fd"] = "--order fd: no line, panel or word along x",
      ["plot abl --legend left"] = "left",
      ["plot abl --metric ppl --order tnn,ski --order ski"] = "--order tnn,ski: no line",
      ["plot abl --at ppl@ --panels decay --fit power"] = "choose one of --panels and --fit",
      ["plot abl matrix --panels decay"] = "--panels is for curves",
      ["compare abl mixer=tnn --metric loss"] = "loss",
    } do
      local _, said, code = draw(words)
      t.ok(said:find(why, 1, true), words .. ": " .. said)
      t.eq({ code, core.sys.exists(file) }, { 2, false })
    end
    text = t.toeplab(("compare abl mixer=tnn --csv -C '%s' -o '%s'"):format(folder, file))
    t.ok(text:find "^a,b,row" and not text:find(file, 1, true), text)
    local _, _, said = t.toeplab(("compare abl mixer=tnn --size 3x2 -C '%s'"):format(folder))
    t.ok(said:find("--size needs --output FILE", 1, true), said)
  end)
end)

-- ---- The page ---------------------------------------------------------------------------------

-- Returns the boxes of the words on the page of a PDF, and its size in points.
local function boxes(file)
  local list, text = {}, assert(io.popen(("pdftotext -bbox '%s' -"):format(file))):read "a"
  local width, height = text:match '<page width="([%d.]+)" height="([%d.]+)"'
  for a, b, c, d, word in text:gmatch(
    '<word xMin="([-%d.]+)" yMin="([-%d.]+)" xMax="([-%d.]+)" yMax="([-%d.]+)">([^<]*)<') do
    list[#list + 1] = { tonumber(a), tonumber(b), tonumber(c), tonumber(d), word }
  end
  return list, tonumber(width), tonumber(height)
end

-- Returns the words that are cut by the edge of the page or lie on one another. The height of a box
-- is that of a line, with room above and below the letters, of which a quarter is left out.
local function faults(list, width, height)
  local found = {}
  for i, a in ipairs(list) do
    local flat = a[3] - a[1] >= a[4] - a[2] or #a[5] < 3
    local dx, dy = flat and 0 or (a[3] - a[1]) / 4, flat and (a[4] - a[2]) / 4 or 0
    a[1], a[2], a[3], a[4] = a[1] + dx, a[2] + dy, a[3] - dx, a[4] - dy
    if a[1] < 0 or a[2] < 0 or a[3] > width or a[4] > height then
      found[#found + 1] = a[5] .. " is cut"
    end
    for k = 1, i - 1 do
      local b = list[k]
      if math.min(a[3], b[3]) - math.max(a[1], b[1]) > 0.1
        and math.min(a[4], b[4]) - math.max(a[2], b[2]) > 0.1 then
        found[#found + 1] = a[5] .. " is on " .. b[5]
      end
    end
  end
  return found
end

-- Returns the number of pixels at the edge of the page that are not white.
local function edge(file)
  local pgm = assert(io.popen(("pdftoppm -r 100 -gray '%s'"):format(file))):read "a"
  local width, height, at = pgm:match "^P5%s+(%d+)%s+(%d+)%s+255%s()"
  width, height = tonumber(width), tonumber(height)
  local dark = 0
  for y = 0, height - 1 do
    for x = 0, width - 1, (y == 0 or y == height - 1) and 1 or width - 1 do
      dark = dark + (pgm:byte(at + y * width + x) < 200 and 1 or 0)
    end
  end
  return dark, width * height
end

-- The figure of n lines with names, on the axes that the other fields of the spec say.
local function lines(n, spec)
  spec.series = {}
  for i = 1, n do
    local s = { name = (spec.key == "top right" and "mixer %d" or "mixer=number%d layers=12")
      :format(i), x = {}, y = {} }
    for k = 1, 6 do
      s.x[k] = spec.logx == 2 and 2 ^ (3 * k) or spec.x and spec.x * k or k
      s.y[k] = (spec.y or 1) * (1 + i / (k + 1))
    end
    spec.series[i] = s
  end
  spec.x, spec.y = nil, nil
  return spec
end

local function matrix(n, scale)
  local rows = {}
  for i = 1, n do
    rows[i] = {}
    for j = 1, n do rows[i][j] = scale * math.sin(i - j) + (scale > 1e3 and 2 * scale or 0) end
  end
  return rows
end

local function words(count, length)
  local list = {}
  for i = 1, count do list[i] = ("mixer%d"):format(i) .. ("x"):rep(length - 6) end
  return list
end

local specs = {
  ["few lines, a legend beside"] = function()
    return lines(3, { title = "A title", xlabel = "step", ylabel = "loss", key = "outside" })
  end,
  ["many lines, a legend below"] = function()
    return lines(16, { xlabel = "step", ylabel = "validation perplexity", key = "below" })
  end,
  ["logarithmic axes"] = function()
    return lines(4, { xlabel = "length", ylabel = "perplexity", logx = 2, logy = true, y = 3,
      key = "below" })
  end,
  ["logarithms of ten"] = function()
    return lines(2, { xlabel = "FLOP", ylabel = "loss", logx = true, x = 1e12, logy = true,
      y = 1e-5, key = "top right" })
  end,
  ["large numbers"] = function()
    return lines(2, { xlabel = "tokens", ylabel = "rows", x = 123456, y = 98765432,
      key = "none" })
  end,
  ["words along x"] = function()
    return { xlabel = "mixer", ylabel = "accuracy", xnames = words(8, 14), key = "none",
      series = { { style = "points", y = { 1, 2, 3, 4, 5, 6, 7, 8 },
        error = { 1, 1, 1, 1, 1, 1, 1, 1 } } } }
  end,
  ["words up y"] = function()
    return { xlabel = "perplexity minus attention, at 2048", ynames = words(5, 20), xline = 0,
      key = "below", series = { { name = "better", style = "points", x = { 1, 2, 3, 4, 5 },
        y = { 1, 2, 3, 4, 5 }, xlow = { 0, 1, 2, 3, 4 }, xhigh = { 2, 3, 4, 5, 6 } } } }
  end,
  ["a matrix"] = function()
    return { title = "T", xlabel = "from position j", ylabel = "to position i",
      zlabel = "T, mean over all channels", matrix = matrix(16, 2.5e-3) }
  end,
  ["a matrix of large numbers"] = function()
    return { xlabel = "j", ylabel = "i", zlabel = "value", matrix = matrix(64, 123456) }
  end,
  ["a matrix of logarithms"] = function()
    return { xlabel = "j", ylabel = "i", zlabel = "|T|", logz = true, matrix = matrix(8, 1e-7) }
  end,
  ["panels with one legend"] = function()
    local list = {}
    for i = 1, 3 do
      list[i] = lines(4, { title = "decay=0.9" .. i, xlabel = "length", ylabel = "perplexity",
        logx = 2, key = "none" })
    end
    return { title = "Texts that are longer than those of training", panels = list, columns = 3,
      legend = true }
  end,
}

local sizes = { {}, { size = { 6.5, 3 }, font = "9" }, { size = { 3.25, 2.5 }, font = "8" },
  { size = { 3.25, 2.5 }, font = "Times,8" } }

for name, make in pairs(specs) do
  t.test("no text is cut and none touches another: " .. name, function()
    for _, program in ipairs { "gnuplot", "pdftotext", "pdftoppm" } do
      if not shell.on_path(program) then t.skip("no " .. program) end
    end
    t.in_folder(function(folder)
      for i, more in ipairs(sizes) do
        local spec, file = make(), folder .. "/a.pdf"
        if not (more.size and more.size[1] < 4 and spec.panels) then
          spec.size, spec.font = more.size, more.font
          if more.size then spec.title = nil end
          if more.size and spec.key == "outside" then spec.key = "below" end
          local ok, why = pcall(plot.svg, file, spec)
          if not ok then
            t.ok(more.size and why:find("leave no room in", 1, true), why)
            goto continue
          end
          local list, width, height = boxes(file)
          t.ok(#list > 5, "text is not text")
          t.eq(faults(list, width, height), {})
          local dark, all = edge(file)
          t.ok(all > 1e4 and dark == 0, ("size %d: ink at the edge"):format(i))
        end
        ::continue::
      end
    end)
  end)
end

t.test("the page test finds cut-off and overlapping text", function()
  local found = faults({ { 10, 10, 40, 20, "one" }, { 38, 12, 60, 22, "two" },
    { 90, 50, 110, 60, "three" }, { 41, 30, 60, 40, "four" } }, 100, 100)
  t.eq(found, { "two is on one", "three is cut" })
end)

t.test("refuses to draw a comparison without pairs", function()
  t.eq(differences({ rows = {}, sides = { {}, {} } }, labels.none), nil)
end)

t.done()
