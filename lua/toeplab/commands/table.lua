-- commands/table.lua: toeplab table: prints a published table beside the measured values.
local arguments = require "toeplab.base.arguments"
local core = require "toeplab.core"
local formats = require "toeplab.report.formats"
local html = require "toeplab.report.html"
local answers = require "toeplab.report.answers"
local provenance = require "toeplab.trials.provenance"
local output = require "toeplab.report.output"
local published_tables = require "toeplab.trials.published_tables"
local records = require "toeplab.store.records"
local sweeps = require "toeplab.store.sweeps"
local text_table = require "toeplab.report.text_table"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"
local tables = require "toeplab.report.tables"

local command = {
  example = "toeplab table tnn/table10 scale=laptop\n  toeplab table tnn/table10 --tex > t10.tex\n"
    .. "  toeplab table tnn/table10 --why 0.95/val",
  usage = "toeplab table [NAME [KEY=VALUE...]]",
  about = "Prints a published table beside the measurements of this folder: mean and 95 %\n"
    .. "interval over seeds, rank agreement, differences from the paper's runs. Without NAME:\n"
    .. "the published tables and their experiments. NAME may be an experiment too: then its\n"
    .. "own table. KEY=VALUE chooses trials by configuration, scale=NAME by scale,\n"
    .. "experiment=NAME if several answer one table (default: the newest).",
  options = {
    { name = "md", help = "as Markdown" },
    { name = "tex", help = "as LaTeX (booktabs), a clearly best value in bold" },
    { name = "csv", help = "as CSV, a line for each cell" },
    { name = "html", help = "as a page of HTML" },
    { name = "why", value = "ROW/COLUMN", help = "the trials of a cell, and their commands" },
    { name = "metric", value = "NAME", many = true,
      help = "a column of an experiment's own table (may be repeated)" },
    { name = "tolerance", value = "PERCENT",
      help = "mark what is within PERCENT of the paper; exit code 4 if any is not" },
    { name = "dir", short = "C", value = "DIR", help = "the results folder" },
  },
}

-- ---- The list ---------------------------------------------------------------------------------

-- Collects the program's experiment files -> the ids of the tables that they declare to answer.
local function experiments(folder, prefix, list)
  for _, name in ipairs(core.sys.list(folder) or {}) do
    local path = folder .. "/" .. name
    if name:find "%.lua$" then
      local text = core.sys.read_file(path) or ""
      local said = text:match "%f[%w_]answers%s*=%s*(%b{})"
        or text:match "%f[%w_]answers%s*=%s*(\"[^\"\n]*\")" or ""
      for id in said:gmatch "[\"']([^\"']+)[\"']" do
        list[id] = list[id] or {}
        table.insert(list[id], prefix .. name)
      end
    elseif not name:find "%." then
      experiments(path, prefix .. name .. "/", list)
    end
  end
  return list
end

-- Returns table id -> "18 of 18 done", for the newest sweep that answers it.
local function progress_by_table(store)
  local set = {}
  for _, sweep in ipairs(sweeps.answering(store)) do
    local n = store:rows([[SELECT count(*) AS n, sum(t.status = 'done') AS done FROM v_members m
      JOIN v_trials t ON t.id = m.trial WHERE m.sweep = ?]], { sweep.id })[1]
    local scale = sweep.scale ~= "" and " " .. sweep.scale or ""
    set[sweep.answers] = ("%s%s: %d of %d"):format(sweep.experiment, scale, n.done or 0, n.n)
  end
  return set
end

local function list(set, store)
  local here = store and progress_by_table(store) or {}
  local files = experiments(provenance.library() .. "/../../experiments", "experiments/", {})
  local rows = {}
  for i, id in ipairs(published_tables.ids()) do
    rows[i] = { id, published_tables.read(id).title, table.concat(files[id] or {}, " "),
      here[id] or "" }
  end
  local header = { "table", "what", "experiments", "trials done here" }
  output.rows(set, header, rows)
  return errors.DONE
end

-- ---- A cell -----------------------------------------------------------------------------------

local function normal(text) return (text:lower():gsub("%s+", "")) end

-- Returns the index of the only item (a list of names) that word names: in full, by its first word,
-- or by its beginning.
local function index_of(items, word)
  local wanted = normal(word)
  for _, short in ipairs { function(name) return name end,
    function(name) return name:match "^%S*" end,
    function(name) return normal(name):sub(1, #wanted) end } do
    local found, count = nil, 0
    for i, names in ipairs(items) do
      for _, name in ipairs(names) do
        if normal(short(name)) == wanted and found ~= i then found, count = i, count + 1 end
      end
    end
    if count == 1 then return found end
  end
end

local function items(result)
  local rows, columns = {}, {}
  for r, row in ipairs(result.rows) do rows[r] = { row.name } end
  for c, column in ipairs(result.columns) do columns[c] = { column.name, column.id } end
  return rows, columns
end

-- Returns the rows and columns that --why selects: all columns if it names only a row.
local function find_cell(result, text)
  local rows, columns = items(result)
  local r = index_of(rows, text)
  if r then return r, nil end
  local left, right = text:match "^(.*)/([^/]*)$"
  r = left and index_of(rows, left)
  local c = r and index_of(columns, right)
  if r and c then return r, c end
  local names = {}
  for i, item in ipairs(r and columns or rows) do names[i] = item[#item] end
  errors.usage("table: --why: no %s '%s' (there are: %s)", r and "column" or "row",
    r and right or left or text, table.concat(names, ", "))
end

local function why(result, text)
  local r, only = find_cell(result, text)
  local row = result.rows[r]
  if not row.group then
    print(("%s: no trial answers it"):format(row.name))
    return
  end
  local header, rows, shown, seen = { "id", "seed", "status" }, {}, {}, {}
  for c, column in ipairs(result.columns) do
    if (not only or c == only) and column.metric then
      header[#header + 1] = column.name_of_metric
      shown[#shown + 1] = column.metric
      for _, t in ipairs(row.cells[c].trials or {}) do seen[t] = true end
    end
  end
  for _, t in ipairs(row.group.trials) do
    if seen[t] or #shown == 0 then
      local line = { t.id:sub(1, 12), t.seed, t.status }
      for _, metric in ipairs(shown) do line[#line + 1] = t.values[metric] or "-" end
      line[#line + 1] = result.pool:command(t.point.at, "seed=" .. t.seed)
      rows[#rows + 1] = line
    end
  end
  header[#header + 1] = "command"
  print(row.name)
  text_table.print(header, rows)
end

-- ---- A table ----------------------------------------------------------------------------------

-- Marks the measured cells by whether they agree with the paper's value; returns whether all do.
local function check(result, percent)
  local fine = true
  for _, row in ipairs(result.rows) do
    for _, cell in ipairs(row.cells) do
      if type(cell.paper) == "number" and cell.interval then
        local off = math.abs(cell.interval.mean - cell.paper)
        cell.verdict = off <= math.abs(cell.paper) * percent / 100
        fine = fine and cell.verdict
      end
    end
  end
  return fine
end

local function format_of(set)
  local chosen
  for _, name in ipairs { "md", "tex", "csv", "html" } do
    if set[name] and chosen then errors.usage("table: choose one of --%s and --%s", chosen,
      name) end
    chosen = set[name] and name or chosen
  end
  return chosen or "text"
end

-- Returns the table of that name, filled from the store as far as there is one.
local function filled(set, store, name, filters)
  local known = suggest.choose("table", name, published_tables.ids())
  -- Raises for an unknown name.
  if not store then return tables.fill(published_tables.read(name)) end
  local published = known and published_tables.read(name) or nil
  local pool, others = answers.pool(store, known and "answers" or "experiment", name, filters)
  if not pool and next(filters) and #others > 0 then
    errors.usage("table: no trials of %s fit; there are: %s", name,
      table.concat(others, "; "))
  end
  if not pool and not published then
    local names = published_tables.ids()
    for _, row in ipairs(store:rows "SELECT DISTINCT experiment AS name FROM v_trials") do
      names[#names + 1] = row.name
    end
    errors.usage("table: there is no table or experiment '%s'%s", name, suggest.hint(name, names))
  end
  local logged = pool and suggest.keys(pool:metrics()) or {}
  for _, metric in ipairs(#logged > 0 and set.metric or {}) do
    local ok, why = suggest.choose("metric", metric, logged)
    if not ok then errors.usage("table: %s", why) end
  end
  return tables.fill(published, pool, set.metric)
end

local function show(result, set)
  local format = format_of(set)
  if set.why then
    if not result.pool then errors.usage("table: --why: no trial here answers %s", result.id) end
    why(result, set.why)
  elseif format == "html" then
    io.write(core.sys.clean(html.page(result.id, formats.html(result))))
  else
    io.write(core.sys.clean(formats[format](result)))
  end
end

function command.run(set, words)
  local percent = arguments.number("table", set, "tolerance", 0)
  local folder = records.folder(set.dir)
  local store <close> = core.sys.exists(folder .. "/runs.db") and records.open(folder, "r") or nil
  if #words == 0 then return list(set, store) end
  local filters = answers.filters("table", table.move(words, 2, #words, 1, {}))
  local result = filled(set, store, words[1], filters)
  if #result.columns == 0 then
    errors.usage("table: the report of '%s' names no columns: give --metric NAME", words[1])
  end
  local fine = not percent or check(result, percent)
  show(result, set)
  if not result.pool then
    errors.say("no trial here answers %s (toeplab table lists what does)", words[1])
  end
  return fine and errors.DONE or errors.CHECK
end

return command
