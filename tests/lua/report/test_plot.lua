-- test_plot.lua: pictures by gnuplot, and the tables and pictures that a report leaves behind.
local t = require "harness"
local core = require "toeplab.core"
local cost = require "toeplab.train.cost"
local plot = require "toeplab.report.figures.plot"
local text_table = require "toeplab.base.text_table"
local script_report = require "toeplab.report.script_report"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"

local read, write, in_folder = t.read, t.write, t.in_folder
local NAN = 0 / 0

-- The text of the picture of spec, drawn twice, which must be the same.
local function drawn(spec, name, how)
  local text
  in_folder(function(folder)
    for i = 1, 2 do
      local path = ("%s/%d%s"):format(folder, i, name or "a.svg")
      local ok, why = (how or plot.svg)(path, spec)
      t.ok(ok, why)
      local again = read(path)
      t.ok(not text or text == again, "a second drawing differs")
      text = again
    end
    t.eq(#core.sys.list(folder), 2) -- nothing else is left
    t.ok(not text:find(folder, 1, true) and not text:find("/tmp", 1, true), "names a folder")
  end)
  return text
end

local function count(text, pattern)
  return select(2, text:gsub(pattern, ""))
end

-- The coordinates of the line of series number i, its parts between gaps apart.
local function line(svg, i)
  local group = svg:match('<g id="gnuplot_plot_' .. i .. '".-\n\t</g>')
  local parts = {}
  for d in group:gmatch("<path [^>]-d='([^']*)'") do
    for part in d:gmatch("M[^M]*") do parts[#parts + 1] = count(part, ",") end
  end
  return parts
end

t.test("a line and points, with their names", function()
  local svg = drawn { title = "A title", xlabel = "across", ylabel = "up",
    series = { { name = "first", y = { 1, 2, 4 } },
      { name = "second", x = { 1, 3 }, y = { 2, 3 }, style = "points" } } }
  t.ok(svg:find("^<%?xml"))
  t.ok(svg:find("</svg>%s*$"))
  for _, text in ipairs { "A title", "across", "up", "first", "second" } do
    t.ok(svg:find("<text>[^<]*" .. text), "no " .. text)
  end
  t.ok(svg:find("<title>A title</title>", 1, true))
  t.eq(line(svg, 1), { 3 })
  t.eq(count(svg:match('id="gnuplot_plot_2".-\n\t</g>'), "<use xlink"), 2)
end)

t.test("a value without a neighbour is a point, also of a mean with a range", function()
  local svg = drawn { series = { { name = "one", x = { 3 }, y = { 2 } },
    { name = "gaps", y = { 1, NAN, 2, 3, NAN, 1 } }, { x = { 1 }, y = { 2 }, low = { 1 },
      high = { 3 } }, { name = "none", y = { NAN } } } }
  local points = {}
  for i = 1, 8 do -- the band, and then each line before its points
    local group = svg:match('<g id="gnuplot_plot_' .. i .. '".-\n\t</g>')
    points[i] = count(group, "<use xlink") > 0
  end
  t.eq(points, { false, false, true, false, true, false, true, false })
  t.ok(svg:find("none (no value to draw)", 1, true))
  local text = plot.text { series = { { x = { 2, 3, 4 }, y = { 2, NAN, 1 } },
    { x = { 3 }, y = { 4 } }, { x = { 1, 5 }, y = { 0, 5 } } } }
  t.eq({ count(text, "%*"), count(text, "#") }, { 2, 1 })
end)

t.test("text is shown verbatim and runs nothing", function()
  for _, text in ipairs { "'; plot x; '", "''", "a''b'", '"`date`' } do
    local shown = text:gsub('"', "&quot;"):gsub("'", "&#39;")
    local svg = drawn { title = text, ylabel = text, series = { { name = text, y = { 1, 2 } } } }
    t.ok(svg:find(text, 1, true) or svg:find(shown, 1, true), text)
  end
  in_folder(function(folder)
    local words = "x_1 ^2 {/Bold b} <b> & 'q' \"d\" `touch " .. folder .. "/ran` $HOME \\n %s @a λ"
    local svg = {}
    local wide = { title = words, width = 2000, series = { { y = { 1, 2 } } } }
    for i, spec in ipairs { wide,
      { xlabel = words, ylabel = words, series = { { name = words, y = { 1, 2 } } } } } do
      t.ok(plot.svg(folder .. "/a.svg", spec))
      svg[i] = read(folder .. "/a.svg")
    end
    local shown = words:gsub("[&<]", { ["&"] = "&amp;", ["<"] = "&lt;" })
    local function times(text) return count(text, (shown:gsub("%p", "%%%0"))) end
    t.ok(times(svg[1]) >= 2, "the title is another")
    t.ok(times(svg[2]) >= 3, "the labels are others")
    t.ok(not core.sys.exists(folder .. "/ran"), "a command was run")
  end)
  local svg = drawn { title = "two\nlines\0 and \xff", series = { { y = { 1, 2 } } } }
  t.ok(svg:find("two lines  and ?", 1, true))
end)

t.test("names of ticks are shown verbatim", function()
  local names = { "5%", "a%%b", "%s", "%d {x}_1 \\n @_^", "'q' \"d\"", "50 % < 1", 7 }
  local y = {}
  for i in ipairs(names) do y[i] = i end
  local svg = drawn { xnames = names, series = { { y = y } } }
  for _, name in ipairs(names) do
    local shown = tostring(name):gsub("<", "&lt;")
    t.ok(svg:find(">" .. shown .. "</", 1, true) or svg:find("> " .. shown .. "</", 1, true), name)
  end
  local text = plot.text({ xnames = { "5%", "a%%b" }, series = { { y = { 1, 2 } } } },
    { columns = 60, colour = false })
  t.ok(text:find(" 5%% .* a%%%%b"), text)
end)

t.test("values that are not finite are gaps", function()
  local svg = drawn { series = { { y = { 1, 2, NAN, 3, 4, math.huge, 1, -math.huge, 1, 2 } } } }
  t.eq(line(svg, 1), { 2, 2, 1, 2 })
  svg = drawn { logy = true, logx = true, series = { { y = { 1, 2, 0, 3, 4, -1, 5, 6 } },
    { x = { 0, 1, 2, 3 }, y = { 1, 1, 1, 1 } } } }
  t.eq(line(svg, 1), { 2, 2, 2 })
  t.eq(line(svg, 2), { 3 })
end)

t.test("draws figures of nothing, of one point and of a constant", function()
  for _, y in ipairs { {}, { NAN }, { 3 }, { 2, 2, 2 } } do
    for _, log in ipairs { true, false } do
      local svg = drawn { logx = log, logy = log, series = { { name = "named", y = y } } }
      t.ok(svg:find "named")
    end
  end
  drawn { series = {} }
  drawn { logx = true, series = { { x = { 0 }, y = { 5 } } } } -- no place for what there is
  drawn { logy = true, series = { { y = { -1, -2 } } } }
end)

t.test("error bars on a logarithmic axis stay above 0", function()
  local spec = { series = { { y = { 1, 2 }, error = { 0.5, 3 }, style = "points" } } }
  local plain = drawn(spec)
  spec.series[1].error = nil
  t.ok(#plain > #drawn(spec), "no bars")
  spec.series[1].error, spec.logy = { 0.5, 3 }, true
  drawn(spec)
end)

t.test("logarithms of base 2 have ticks at powers of 2", function()
  local svg = drawn { logx = 2, series = { { x = { 256, 4096 }, y = { 1, 2 } } } }
  for _, text in ipairs { "256", "512", "1024", "2048", "4096" } do
    t.ok(svg:find("<text>%s*<?[^<]*" .. text .. "<") or svg:find(">%s*" .. text .. "<"), text)
  end
end)

t.test("panels are side by side", function()
  local one = { title = "one", series = { { y = { 1, 2 } } } }
  local two = { title = "two", matrix = { { 1, 2 }, { 3, 4 } } }
  local svg = drawn { title = "both", panels = { one, two }, width = 300, height = 200 }
  t.ok(svg:find('width="600" height="230"', 1, true), svg:match "<svg.->")
  for _, text in ipairs { "one", "two", "both" } do t.ok(svg:find(">" .. text .. "<"), text) end
  svg = drawn { panels = { one, two }, columns = 1, width = 300, height = 200 }
  t.ok(svg:find('width="300" height="400"', 1, true))
end)

-- How far from the top the first tick with this label on the vertical axis is.
local function tick(svg, label)
  local place = 'translate%([%d.]+,([%d.]+)%)"[^\n]-text%-anchor="end">%s*<text>(.-)</text>'
  for y, text in svg:gmatch(place) do
    if text:gsub("<.->", ""):gsub(" ", "") == label then return tonumber(y) end
  end
end

t.test("a matrix as colours: the first row is on top, NaN is a hole", function()
  local spec = { title = "T", matrix = { { 1, NAN, 3 }, { 4, 5, 6 } }, zlabel = "size" }
  local svg = drawn(spec, "a.svg", plot.heat)
  t.eq(count(svg, "<image "), 1)
  t.ok(svg:find(">size<"))
  t.ok(not svg:find("$data", 1, true))
  local first = tick(svg, "1")
  t.ok(first and first < tick(svg, "2"), "row 1 is below row 2")
  drawn({ matrix = { { 0, -1 }, { 1e-3, 2 } } }, "a.svg", plot.heat)
  drawn({ matrix = { { 0, 1e-8 }, { 1, 1e4 } }, logz = true }, "a.svg", plot.heat)
  svg = drawn({ matrix = { { 1, 2 } }, zrange = { 0, 40 } }, "a.svg", plot.heat)
  t.ok(svg:find "> ?40<", "the colours are those of zrange")
  drawn({ matrix = { { 5 } } }, "a.svg", plot.heat)
  drawn({ matrix = { { NAN } } }, "a.svg", plot.heat)
  drawn({ matrix = core.tensor { { 1, 2 }, { 3, 4 } } }, "a.svg", plot.heat)
end)

t.test("PNG by the ending of the name; tensors as numbers", function()
  local png = drawn({ series = { { x = core.range(1, 4), y = core.ones(4) } } }, "a.png")
  t.eq(png:sub(1, 8), "\x89PNG\r\n\x1a\n")
end)

t.test("PDF by the ending of the name, identical each time", function()
  local pdf = drawn({ title = "A title", series = { { y = { 1, 2 } } } }, "a.pdf")
  t.eq(pdf:sub(1, 5), "%PDF-")
  t.ok(not pdf:find("CreationDate %(D:[1-9]"))
end)

t.test("breaks a title that is too long", function()
  local title = ("decay=none "):rep(9) .. "it's layer 1"
  for _, spec in ipairs { { series = { { y = { 1, 2 } } } }, { matrix = { { 1, 2 } } } } do
    spec.title, spec.width = title, 560
    local svg = drawn(spec)
    t.eq(svg:match "<title>(.-)</title>", title) -- what viewers show is whole
    svg = svg:gsub("<title>.-</title>", "", 1)
    t.ok(svg:find(">it's layer 1<", 1, true) or svg:find("none it's layer 1<", 1, true))
    t.ok(not svg:find(("decay=none "):rep(6), 1, true))
  end
end)

t.test("invalid specs are errors", function()
  local function fails(spec, want, path)
    t.raises(plot.svg, want, path or "a.svg", spec)
  end
  fails({ titel = "x" }, "plot has no field 'titel'; did you mean 'title'")
  fails({ title = 1 }, "plot: title must be a string, not a number")
  fails({ series = { { y = { 1 }, nam = "x" } } },
    "series 1 has no field 'nam'; did you mean 'name'")
  fails({ series = { { x = { 1 } } } }, "series 1 has no y")
  fails({ series = { { x = { 1 }, y = { 1, 2 } } } }, "series 1: 2 of y, 1 of x")
  fails({ series = { { y = { 1, 2 }, error = { 1 } } } }, "2 of y, 1 of error")
  fails({ series = { { y = { 1 }, style = "lines" } } }, "style 'lines'; did you mean 'line'")
  fails({ key = "top", series = {} }, "key 'top'")
  fails({ panels = { { logz = 3 } } }, "panel 1: logz must be a boolean")
  fails({ matrix = { { 1, 2 }, { 3 } } }, "row 2 of the matrix has 1 numbers, row 1 2")
  fails({ panels = {} }, "plot: panels is empty")
  fails({ panels = { {} }, columns = 0 }, "plot: columns must be at least 1")
  fails({ panels = { {} }, columns = 1.5 }, "plot: columns must be a whole number")
  fails({ yrange = { 1 }, series = {} }, "plot: yrange must be two numbers")
  fails({ matrix = { 1, 2 } }, "plot: a matrix must be a list of rows")
  fails({ width = -3, series = {} }, "plot: width must be at least 1")
  fails({ matrix = {} }, "the matrix is empty")
  fails({ series = {} }, "must end in %.svg, %.png or %.pdf", "a.eps")
  t.raises(plot.heat, "there is no matrix", "a.svg", { series = {} })
end)

t.test("a missing folder and a missing gnuplot are errors", function()
  local spec = { series = { { y = { 1, 2 } } } }
  local ok, why = plot.svg("no such folder/a.svg", spec)
  t.ok(not ok and why:find "no such folder", why)
  local on_path = shell.on_path
  shell.on_path = function(program) return program == "apt-get" end
  ok, why = plot.svg("a.svg", spec)
  shell.on_path = on_path
  t.ok(not ok and why:find "gnuplot is not.*gnuplot%-nox", why)
  t.ok(not core.sys.exists "a.svg")
end)

t.test("a failure of gnuplot leaves the old figure and no other file", function()
  in_folder(function(folder)
    write(folder .. "/a.svg", "old")
    local run = shell.run
    shell.run = function(command) return run(command:gsub("gnuplot %-d", "false") .. "") end
    local ok, why = plot.svg(folder .. "/a.svg", { series = { { y = { 1, 2 } } } })
    shell.run = run
    t.ok(not ok and why:find "gnuplot: no picture", why)
    t.eq(read(folder .. "/a.svg"), "old")
    t.eq(core.sys.list(folder), { "a.svg" })
  end)
end)

-- ---- Text -------------------------------------------------------------------------------------

local function lines_of(text)
  local list = {}
  for row in text:gmatch "([^\n]*)\n" do list[#list + 1] = row end
  return list
end

t.test("text: lines pass through the numbers, and have their names", function()
  local spec = { title = "A title", xlabel = "across", series = {
    { name = "up", y = { 1, 2, 5 } }, { name = "down", y = { 5, 3, 1 } } } }
  local o = { columns = 60, colour = false }
  local list = lines_of(assert(plot.text(spec, o)))
  t.ok(list[1]:find "A title" and list[2]:find "^ +5.5 [+]%-", list[2])
  local first, last
  for _, row in ipairs(list) do
    t.ok(#row <= 60, row)
    if row:find "[*#]" and row:find "|" then first, last = first or row, row end
  end
  t.ok(first:find "#.*%*" and last:find "%*.*#", table.concat(list, "\n"))
  local text = table.concat(list, "\n")
  t.ok(text:find "across" and text:find "up" and text:find "down")
  o.colour = true
  text = plot.text(spec, o)
  t.ok(text:find "\27%[38;5;%d+m•" and utf8.len(text))
end)

t.test("text: points at the least and the greatest value are visible", function()
  local text = assert(plot.text({ key = "none", series = { { name = "a", x = { 1 }, y = { 1 } },
    { name = "b", x = { 1 }, y = { 2 } }, { name = "c", x = { 1 }, y = { 3 } } } },
    { columns = 60, colour = false }))
  for _, mark in ipairs { "%*", "#", "%$" } do t.ok(text:find(mark), text) end
end)

t.test("text: draws everything that can be drawn", function()
  local o = { columns = 50, colour = false }
  for _, y in ipairs { {}, { NAN }, { 3 }, { 2, 2 }, { -1, 0, 10 }, { math.huge, 1 } } do
    for _, log in ipairs { false, true } do
      t.ok(#assert(plot.text({ logy = log, series = { { y = y } } }, o)) > 0)
    end
  end
  local heat = { zlabel = "T", matrix = { { 1, 0 }, { -2, NAN } } }
  local text = plot.text(heat, o)
  t.ok(text:find "|▒[^|]* |" and text:find "|█[^|]*|" and text:find "T\n", text)
  t.ok(not text:find "\27", text)
  t.ok(assert(plot.text({ title = "both", panels = { { matrix = { { 1 } } },
    { series = { { y = { 1, 2 } } } } } }, o)):find "both")
end)

-- ---- What a report leaves ---------------------------------------------------------------------

local function quietly(fn, ...)
  local said, show = {}, print
  rawset(_G, "print", function(...) said[#said + 1] = table.concat({ ... }, " ") end)
  local ok, why = pcall(fn, ...)
  rawset(_G, "print", show)
  if not ok then error(why, 0) end
  return table.concat(said, "\n")
end

local function made(seed, command)
  return { seed = seed, made = { command = command or "toeplab run /a/b/x.lua scale=smoke",
    commit = ("0123456789abcdef"):rep(2), dirty = true, host = "there", threads = 2 } }
end

local function sheet_in(folder, trials, said)
  local progress = { say = function(_, ...) said[#said + 1] = string.format(...) end }
  progress.warn = progress.say
  return script_report.new { folder = folder, name = "bounds", scale = "smoke", progress = progress,
    text = "-- bounds.lua: is it so,\n-- or not?\n--\n-- More.\nlocal x", trials = trials }
end

t.test("a table is printed, and written with its question and origin", function()
  in_folder(function(folder)
    local said = {}
    local s = sheet_in(folder, { made(1), made(2), made(3), made(9, "toeplab run y.lua") }, said)
    local text = quietly(s.table, { "name", "value" }, { { "a|b", 0.5 }, { "c", nil } })
    t.ok(text:find "a|b")
    local file = read(folder .. "/tables/bounds-smoke.md"):gsub(" +", " ")
    for _, line in ipairs { "# bounds", "Is it so, or not?", "| name | value |",
      "| ---- | -----: |",
      "| a\\|b | 0.5000 |", "| c | - |",
      "Made by `toeplab run x.lua scale=smoke`, commit 0123456789ab with changes, there with 2 "
        .. "threads, seeds 1 to 3.", "toeplab run y.lua" } do
      t.ok(file:find(line, 1, true), "no " .. line .. " in\n" .. file)
    end
    t.ok(not file:find("More", 1, true))
    t.ok(said[1]:find "wrote .*tables/bounds%-smoke%.md", said[1])
    t.eq(s.cell(0.5), text_table.cell(0.5)) -- and what report.lua has
    t.raises(s.table, "'a/b' cannot be the name of a file", { "x" }, {}, "a/b")
  end)
end)

t.test("without gnuplot the figure is missing with one warning, and the table is there", function()
  in_folder(function(folder)
    local said, on_path = {}, shell.on_path
    local s = sheet_in(folder, { made(1) }, said)
    s.plot({ series = { { y = { 1, 2 } } } }, "drawn")
    t.ok(read(folder .. "/figures/drawn-smoke.svg"):find "</svg>")
    shell.on_path = function() return false end
    s.plot { series = { { y = { 1, 2 } } } }
    s.plot({ series = { { y = { 1, 2 } } } }, "other")
    shell.on_path = on_path
    quietly(s.table, { "x" }, { { 1 } })
    t.eq(#said, 3)
    t.ok(said[2]:find "no figure .*bounds%-smoke%.svg: gnuplot is not installed", said[2])
    t.ok(core.sys.exists(folder .. "/tables/bounds-smoke.md"))
  end)
end)

t.test("a full disk while writing a figure ends the report", function()
  in_folder(function(folder)
    local draw = plot.svg
    rawset(plot, "svg", function() return nil, "a.svg: the disk is full", 28, "ENOSPC" end)
    local ok, problem = pcall(sheet_in(folder, { made(1) }, {}).plot, { series = {} })
    rawset(plot, "svg", draw)
    t.eq({ ok, problem.code, problem.message }, { false, errors.STORAGE,
      "a.svg: the disk is full" })
  end)
end)

-- ---- Costs --------------------------------------------------------------------------------------

t.test("exponents agree with powers, over the points that count", function()
  local x, square, late = { 1, 2, 4, 8, 16 }, {}, {}
  for i, v in ipairs(x) do square[i], late[i] = 3 * v * v, v < 4 and 100 or v end
  t.eq(cost.exponent(x, square), 2, 1e-9)
  t.eq(cost.exponent(x, late, 4), 1, 1e-9)
  t.eq(cost.exponent({ 1, 2, 4, 0 }, { 5, NAN, 20, 3 }), 1, 1e-9)
  t.eq(cost.exponent({ 1 }, { 1 }), nil)
  t.eq(cost.exponent({}, {}), nil)
  t.eq(cost.exponent({ 2, 2 }, { 1, 3 }), nil)
end)

-- Calls fn with a clock that only sleep moves, so that the machine's other work moves nothing.
local function with_clock(fn)
  local clock, now = core.sys.clock, 0
  core.sys.clock = function() return now end
  local ok, err = pcall(fn, function(seconds) now = now + seconds end)
  core.sys.clock = clock
  t.ok(ok, err)
end

t.test("seconds are the shortest call's, bytes the peak", function()
  with_clock(function(sleep)
    local calls = 0
    local seconds = cost.seconds(function()
      calls = calls + 1
      sleep(calls == 2 and 0.25 or 0.5)
    end, 1.5)
    t.eq({ calls, seconds }, { 4, 0.25 })
  end)
  local bytes = cost.bytes(function()
    for _ = 1, 3 do
      local guard <close> = core.zeros(1000000)
    end
  end)
  t.ok(bytes >= 4e6 and bytes < 8e6, bytes)
end)

t.test("steps of several models are timed in turns, each with its median and memory", function()
  local order, a, b = {}
  with_clock(function(sleep)
    local function maker(name, size, naps)
      return function()
        local held, calls = core.zeros(size), 0
        return function()
          calls = calls + 1
          order[#order + 1] = name
          sleep(naps[(calls - 1) % #naps + 1] + 0 * held:dim(1))
        end
      end
    end
    a, b = table.unpack(cost.in_turns({ maker("a", 1000000, { 0.125, 0.125, 8, 0.5 }),
      maker("b", 10, { 0.25 }) }, 0.01))
  end)
  t.eq(table.concat(order), "aabbababab") -- two to begin with, then three turns
  t.eq({ a.seconds, b.seconds }, { 0.5, 0.25 }) -- the median of 8, 0.5 and 0.125
  t.ok(a.bytes >= 4e6 and a.bytes < 8e6 and b.bytes < 1e5, a.bytes)
  local ids = cost.tokens(2, 3, 5):totable()
  t.eq({ #ids, #ids[1] }, { 2, 3 })
  t.eq(cost.tokens(2, 3, 5):totable(), ids)
end)

t.test("times the steps of a trial, except three after each start", function()
  local clock, now, trial = core.sys.clock, 0.0, { first = 5, step = 5, looping = true }
  core.sys.clock = function() return now end
  local timer = cost.timer(trial)
  t.eq(timer:rate(), nil)
  for step = 6, 10 do
    trial.step = step
    t.eq({ timer:time(function()
      now = now + (step <= 8 and 100 or 0.5)
      return step, nil, "more"
    end) }, { step, nil, "more" })
  end
  trial.looping = false -- what is outside of the loop is no step
  timer:time(function() now = now + 100 end)
  core.sys.clock = clock
  t.eq(timer:rate(), 2.0)
end)

t.test("an operator has a time, and a memory that grows with its length", function()
  local o = { backend = "naive", dim = 2, causal = true, budget = 0.01, length = 128 }
  local short = cost.operator(o)
  o.length = 1024
  local long = cost.operator(o)
  t.ok(short.seconds > 0 and long.seconds > 0 and long.bytes > short.bytes)
  o.casual, o.causal = true, nil
  t.raises(cost.operator, "unknown option 'casual'; did you mean 'causal'", o)
end)

t.done()
