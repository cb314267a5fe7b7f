-- test_published.lua: the tables and figures of the papers as data, and the list of the commands
-- that answer them.
local t = require "harness"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local experiment = require "toeplab.trials.experiment"
local plan = require "toeplab.trials.plan"
local published_tables = require "toeplab.trials.published_tables"
local space = require "toeplab.trials.space"

-- ---- The published numbers --------------------------------------------------------------------

t.test("every published table is valid", function()
  local ids, lm = published_tables.ids(), 0
  t.eq(#ids, 12 + 3 + 2 + 11 + 5)
  t.eq({ ids[1], ids[10], ids[12], ids[13], ids[15] },
    { "tnn/table1", "tnn/table10", "tnn/table15", "tnn/figure1a", "tnn/figure3" })
  t.eq({ ids[16], ids[18], ids[22], ids[23], ids[28], ids[33] }, { "ski/table1", "ski/figure1a",
    "ski/figure6", "ski/figure7a", "ski/figure11", "field/wikitext103" })
  for _, id in ipairs(ids) do
    local p = published_tables.read(id)
    t.ok(p.title and p.caption and p.source and p.rows_are, id)
    for _, column in ipairs(p.columns) do
      t.ok(column.id and column.name, id)
      t.ok(({ lower = true, higher = true })[column.better] or column.better == nil, id)
    end
    for _, row in ipairs(p.rows) do
      t.eq(#row, #p.columns + 1)
      for c = 2, #row do
        local kind = type(row[c])
        local worded = id == "tnn/table1" or id:find "/figure"
        t.ok(kind == "number" or row[c] == false or worded and kind == "string",
          id .. " " .. row[1])
      end
    end
    if p.setting and p.setting.steps == 50000 then lm = lm + 1 end
  end
  t.ok(lm >= 8)
end)

t.test("a figure takes its table's numbers, and has those in the text", function()
  local figure, table15 = published_tables.read "tnn/figure1b", published_tables.read "tnn/table15"
  t.eq({ figure.rows, figure.columns, figure.setting }, { table15.rows, table15.columns,
    table15.setting })
  t.ok(figure.title ~= table15.title and figure.id == "tnn/figure1b")
  local function row(id, r) return table.move(published_tables.read(id).rows[r], 1, 5, 1, {}) end
  t.eq(row("ski/figure10", 1), { "SKI-TNN", 25, 30, 17, 42 })
  t.eq(row("ski/figure1b", 2), { "causal, RPE of 6 layers", 15 })
  t.eq(row("ski/figure11", 1), { "low rank", "drawn", "drawn", "drawn", "drawn" })
  for r, name in ipairs { "TNN (reproduced, 3 layers)", "FD-TNN: Ours, 3 layers" } do
    for _, theirs in ipairs(published_tables.read("ski/table1").rows) do
      if theirs[1] == name then
        t.eq(row("ski/figure7a", r)[2], theirs[3])
        t.eq(row("ski/figure7b", r)[2], theirs[2])
      end
    end
  end
end)

t.test("averages agree with the numbers beside them", function()
  local checked = 0
  for _, id in ipairs(published_tables.ids()) do
    local p, place = published_tables.read(id), nil
    for c, column in ipairs(p.columns) do
      if p.average and column.id == p.average.column then place = c + 1 end
    end
    for _, row in ipairs(place and not p.numbers and p.rows or {}) do
      local sum = 0.0
      for c = 2, p.average.of + 1 do sum = sum + (row[c] or 0.0) end -- a dash counts as 0
      local mean, given = sum / p.average.of, row[place]
      -- three digits where it is printed as a power of ten
      local off = mean > 1e6 and 0.007 * mean or 0.0051
      if given then
        t.eq(given, mean, off)
        checked = checked + 1
      else
        t.eq({ id, row[1] }, { "ski/table2", "TNN" })
        t.eq(mean, 74.97, 0.0051)
      end
    end
  end
  t.eq(checked, 16 + 14 + 2 + 14 + 2) -- Tables 3, 4, 14, 15 and SKI's 2
end)

t.test("each number of the field has a source, and its means agree with the tasks", function()
  for _, id in ipairs { "field/lra", "field/nanogpt", "field/wikitext103" } do
    for _, row in ipairs(published_tables.read(id).rows) do
      t.ok(row[1]:find " %[[RASK]%]$", row[1])
    end
  end
  for _, row in ipairs(published_tables.read("field/lra").rows) do
    local sum, count = 0.0, 0
    for c = 2, 7 do
      if row[c] then sum, count = sum + row[c], count + 1 end
    end
    t.eq(row[8], sum / count, 0.0051)
  end
end)

-- What stands in two tables is the same number.
t.test("tables agree with each other", function()
  local function value(id, row, column)
    local p = published_tables.read(id)
    for _, r in ipairs(p.rows) do
      for c, col in ipairs(p.columns) do
        if r[1] == row and col.id == column then return r[c + 1] end
      end
    end
    error(id .. " has no " .. row .. "/" .. column)
  end
  for _, row in ipairs { "Trans", "LS", "1+elu", "Performer", "Syn(D)", "Syn(R)", "gMLP", "S4",
    "DSS", "GSS", "TNN" } do
    for _, column in ipairs { "val", "test", "parameters" } do
      t.eq(value("ski/table1", row, column), value("tnn/table2", row, column))
    end
  end
  for _, row in ipairs { "LS", "1+elu", "Performer", "cosFormer", "Syn(D)", "Syn(R)", "gMLP", "DSS",
    "TNN" } do
    t.eq(value("tnn/table15", row, "512"), value("tnn/table2", row, "test"))
  end
  -- the errata: S4 and GSS exchanged, FLASH different
  t.eq(value("tnn/table15", "GSS", "512"), value("tnn/table2", "S4", "test"))
  t.eq(value("tnn/table15", "S4", "512"), value("tnn/table2", "GSS", "test"))
  t.ok(value("tnn/table15", "FLASH", "512") ~= value("tnn/table2", "FLASH", "test"))
  for _, place in ipairs { { "tnn/table7", "GTU+GLU" }, { "tnn/table9", "TNN" },
    { "tnn/table8", "(-(n-1),...,(n-1))" }, { "tnn/table10", "0.99 (ours)" } } do
    t.eq(value(place[1], place[2], "val"), value("tnn/table2", "TNN", "val"))
  end
  t.eq(value("tnn/table10", "0.99 (ours)", "extrapolation"), value("tnn/table15", "TNN", "avg"))
  for _, column in ipairs { "val", "test", "parameters" } do
    for name, row in pairs { ["Transformer [R]"] = "Trans", ["TNN [R]"] = "TNN" } do
      t.eq(value("field/wikitext103", name, column), value("tnn/table2", row, column))
    end
    t.eq(value("field/wikitext103", "FD-TNN [R]", column),
      value("ski/table1", "FD-TNN: Ours, 3 layers", column))
  end
  for _, column in ipairs { "text", "listops", "retrieval", "pathfinder", "image" } do
    t.eq(value("ski/table2", "TNN", column), value("tnn/table4", "TNN", column))
    for name, place in pairs { ["TNN, small [R]"] = "tnn/table4/TNN",
      ["Transformer, Skyformer's code [S]"] = "tnn/table4/Transformer",
      ["TNN, large [R]"] = "tnn/table14/TNN-Large", ["S4 [S]"] = "tnn/table14/S4-Large",
      ["SKI-TNN [R]"] = "ski/table2/SKI-TNN", ["FD-TNN [R]"] = "ski/table2/FD-TNN" } do
      local id, row = place:match "^(.*)/(.-)$"
      t.eq(value("field/lra", name, column), value(id, row, column))
    end
  end
end)

t.test("the key that varies first matches a row", function()
  local p = published_tables.read "tnn/table10"
  local match = published_tables.matcher(p.rows, { decay = true })
  t.eq(match({ decay = "none", preset = "decay-0.90" })[1], "1 (no decay)")
  t.eq(match({ decay = 1 })[1], "1 (no decay)")
  t.eq(match({ decay = 0.5 }), nil)
  match = published_tables.matcher(p.rows, { preset = true })
  t.eq(match({ decay = 0.99, preset = "decay-0.90" })[1], "0.90")
  match = published_tables.matcher(p.rows, { lr = true })
  t.eq(match({ decay = 0.95 })[1], "0.95")
  match = published_tables.matcher(published_tables.read("tnn/table7").rows, { structure = true })
  t.eq(match({ structure = "attention+glu", causal = true }), nil)
  t.eq(match({ structure = "attention+glu", causal = false })[1], "Attention+GLU")
end)

t.test("every table that an experiment names exists", function()
  local spec = { answers = "tnn/table10", trial = function() end }
  t.eq(experiment "a" (spec).answers, { "tnn/table10" })
  spec = { answers = { "tnn/table10", "tnn/table15" }, trial = function() end }
  t.eq(experiment "a" (spec).answers, { "tnn/table10", "tnn/table15" })
  t.raises(experiment "a", "test_published.lua:%d+: answers: .*'tnn/table1O'.*did you mean 'tnn/t",
    { answers = "tnn/table1O", trial = function() end })
  t.raises(experiment "a", "answers: must be the id of a published table", { answers = {},
    trial = function() end })
end)

-- ---- The list ---------------------------------------------------------------------------------

-- Returns what toeplab table prints for words in an empty folder.
local function list_of(words)
  local text, code
  t.in_folder(function(folder)
    text, code = t.toeplab(("table %s -C '%s'"):format(words, folder))
  end)
  t.eq(code, 0)
  return text
end

-- Returns the lines of the list by the id that they belong to.
local function listed(text)
  local lines, id = {}, nil
  for row in text:gmatch "[^\n]+" do
    id = row:match "^(%l+/%w+)" or id
    if id then
      lines[id] = lines[id] or {}
      table.insert(lines[id], row)
    end
  end
  return lines
end

t.test("the list refuses options for a single table", function()
  for _, option in ipairs { "md", "tex", "html", "why=a/b", "metric=loss", "tolerance=3" } do
    local _, code, said = t.toeplab(("table --%s -C none"):format(option))
    t.eq(code, errors.USAGE)
    t.ok(said:find(("--%s needs the NAME of a table"):format(option:match "%l+"), 1, true), said)
  end
end)

-- Returns the rows of "What can be filled" in experiments/README.md: id -> {filled=, of=}.
local function fillable()
  local text = t.read "../../experiments/README.md":match "## What can be filled\n(.-)\n## "
  local list = {}
  for id, filled, of, why in text:gmatch "\n| ([^|]*) | (%d+) of (%d+) | ([^\n]*) |" do
    t.ok(#why > 5 and not list[id], id)
    list[id] = { filled = tonumber(filled), of = tonumber(of) }
  end
  return list
end

-- Adds to filled, id -> name of a row -> true, the rows that the trials of an experiment fill.
local function add_rows(path, filled)
  local exp = experiment.load(path)
  local trials = exp.answers and plan.trials(exp, {})
  for _, id in ipairs(exp.answers or {}) do
    filled[id] = filled[id] or {}
    for _, row in ipairs(published_tables.read(id).rows) do
      for _, where in ipairs(row.where) do
        for _, trial in ipairs(trials) do
          if space.fits(where, trial.config) then filled[id][row[1]] = true end
        end
      end
    end
  end
end

t.test("experiments/README.md lists the rows of every table that has gaps", function()
  local said, filled = fillable(), {}
  for _, folder in ipairs { "../../experiments/", "../../experiments/theory/" } do
    for _, name in ipairs(core.sys.list(folder)) do
      if name:find "%.lua$" then add_rows(folder .. name, filled) end
    end
  end
  for _, id in ipairs(published_tables.ids()) do
    local count, rows = 0, #published_tables.read(id).rows
    local entry = said[id] or { filled = rows, of = rows }
    for _ in pairs(filled[id] or {}) do count = count + 1 end
    t.eq({ id, entry.filled, entry.of }, { id, count, rows })
    said[id] = nil
  end
  t.eq(next(said), nil)
end)

t.test("the list names the commands that answer and draw each table and figure", function()
  local text = list_of ""
  local lines = listed(text)
  for _, id in ipairs(published_tables.ids()) do
    local published = published_tables.read(id)
    local first = lines[id] and lines[id][1] or ""
    local path = first:match "toeplab run (experiments/%S+%.lua)$"
    t.ok(path or published.instead and first:find(published.instead, 1, true)
      or first:find "no experiment here answers it$", id .. ": " .. first)
    if path then
      local said = t.read("../../" .. path):match "answers = (%b{})" or t.read("../../" .. path)
      t.ok(said:find('"' .. id .. '"', 1, true), id .. " is not answered by " .. path)
    end
    if path and published.draw then
      t.ok(lines[id][#lines[id]]:find("  toeplab " .. published.draw, 1, true), id)
      local name = published.draw:match "^plot (%S+)"
      local answers = false
      for _, row in ipairs(lines[id]) do
        answers = answers or row:find("experiments/" .. name .. ".lua", 1, true)
      end
      t.ok(answers, published.draw .. " draws what no experiment of " .. id .. " trains")
    end
  end
  t.ok(#lines["tnn/table2"] >= 2, text)
  t.ok(lines["tnn/figure1a"][1]:find "experiments/lra.lua$", text)
  t.eq(#lines["ski/figure1a"], 3) -- two experiments and a plot
  t.eq(lines["tnn/figure3"][2]:match "^%s+(.*)$", "toeplab plot mlm model=tnn seed=1 matrix")
  local csv = list_of "--csv"
  t.eq(select(2, csv:gsub("\n", "")), 1 + #published_tables.ids())
  t.ok(csv:find("tnn/figure3,Toeplitz matrices of a trained model's layers,,toeplab run "
    .. "experiments/mlm.lua; toeplab plot mlm model=tnn seed=1 matrix\n", 1, true), csv)
end)

t.test("every page of results names its command, and is listed with its verdict", function()
  local readme, pages = t.read "../../experiments/README.md", 0
  for _, name in ipairs(core.sys.list "../../results/tables") do
    local text = t.read("../../results/tables/" .. name)
    local script = text:match "experiments/[%w_/-]+%.lua"
    t.ok(not script and text:find "`%./lab " or core.sys.exists("../../" .. (script or "?")),
      name .. " names no command")
    t.ok(readme:find(("](../results/tables/%s)"):format(name), 1, true), name .. " is not listed")
    pages = pages + 1
  end
  t.ok(pages >= 15, pages)
end)

t.done()
