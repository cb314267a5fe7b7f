-- commands/table.lua: toeplab table: prints a published table beside the measured values.
local arguments = require "toeplab.base.arguments"
local filter = require "toeplab.store.filter"
local core = require "toeplab.core"
local compare = require "toeplab.report.verdicts.compare"
local formats = require "toeplab.report.formats"
local html = require "toeplab.report.html"
local shell = require "toeplab.base.shell"
local trial_files = require "toeplab.store.trial_files"
local provenance = require "toeplab.trials.provenance"
local output = require "toeplab.report.output"
local published_tables = require "toeplab.trials.published_tables"
local frames = require "toeplab.report.frames"
local records = require "toeplab.store.records"
local sweeps = require "toeplab.store.sweeps"
local text_table = require "toeplab.base.text_table"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
local tables = require "toeplab.report.tables"

local command = {
  example = "toeplab table tnn/table10 scale=laptop\n"
    .. "  toeplab table mqar --rows mixer --columns dim\n"
    .. "  toeplab table tnn/table10 --tex > t10.tex\n"
    .. "  toeplab table tnn/table10 --why 0.95/val",
  usage = "toeplab table [NAME [KEY=VALUE...]]",
  about = "Prints a published table, or the numbers of a figure, beside the measurements of this\n"
    .. "folder: mean and 95 % interval over seeds, rank agreement, differences from the paper's\n"
    .. "runs. Without NAME: lists the published tables and figures, and the commands that answer\n"
    .. "and draw them. NAME may also be an experiment or the number of a sweep: then its table.\n"
    .. "KEY=VALUE selects trials by configuration, scale=NAME by scale, experiment=NAME if\n"
    .. "several answer one table (default: the newest).",
  words = { "tables", "filters" },
  options = {
    { name = "md", help = "as Markdown" },
    { name = "tex", help = "as LaTeX (booktabs), a clearly best value in bold",
      more = "A value is clearly best if its interval overlaps no other row's." },
    { name = "csv", help = "as CSV, a line for each cell" },
    { name = "html", help = "as a page of HTML" },
    { name = "why", value = "ROW/COLUMN", help = "the trials of a cell, and their commands" },
    { name = "metric", value = "NAME", many = true, of = "metrics",
      help = "a column of an experiment's own table (may be repeated)" },
    { name = "rows", value = "KEYS", of = "keys_stored", list = true,
      help = "a row for each value of KEYS (A,B), averaged over all others that vary",
      more = [[
        A cell averages over all keys that neither `--rows` nor `--columns` names: over their
        settings for each seed first, then over the seeds, so that a difference between settings
        does not widen the interval. A seed that lacks a value in one of these settings is left
        out of the cell. The row and the column `mean` average over rows and columns that have the
        same settings; other means are left out, and cells that average over different settings
        are reported.]] },
    { name = "columns", value = "KEYS", of = "keys_stored", list = true,
      help = "with --rows: a column for each value of KEYS",
      more = "By default a column for each metric." },
    { name = "tolerance", value = "PERCENT",
      help = "mark cells within PERCENT of the paper; exit code 4 if any is not, or diverged" },
    output.dir,
  },
}

-- ---- The list ---------------------------------------------------------------------------------

-- Returns table id -> the program's experiment files that declare to answer it.
local function experiments(folder, prefix, list)
  for _, name in ipairs(core.sys.list(folder) or {}) do
    local path = folder .. "/" .. name
    if name:find "%.lua$" then
      local text = core.sys.read_file(path) or ""
      local ids = text:match "%f[%w_]answers%s*=%s*(%b{})"
        or text:match "%f[%w_]answers%s*=%s*(\"[^\"\n]*\")" or ""
      for id in ids:gmatch "[\"']([^\"']+)[\"']" do
        list[id] = list[id] or {}
        table.insert(list[id], prefix .. name)
      end
    elseif not name:find "%." then
      experiments(path, prefix .. name .. "/", list)
    end
  end
  return list
end

-- Returns table id -> "copy: 18 of 18", for the newest sweep that answers it.
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

-- Returns the commands that measure and draw a table or figure, or a note if there are none.
local function commands_of(published, files)
  local lines = {}
  for i, file in ipairs(files or {}) do lines[i] = shell.named("toeplab run " .. file) end
  if #lines == 0 then return { published.instead or "no experiment here answers it" } end
  if published.draw then lines[#lines + 1] = shell.named("toeplab " .. published.draw) end
  return lines
end

-- Prints the tables and figures, in text a line for each command.
local function list(set, store)
  local here = store and progress_by_table(store) or {}
  local rows = {}
  local files = experiments(provenance.data "experiments", "experiments/", {})
  for _, id in ipairs(published_tables.ids()) do
    local published = published_tables.read(id)
    local lines = commands_of(published, files[id])
    if set.csv then lines = { table.concat(lines, "; ") } end
    rows[#rows + 1] = { id, published.title, here[id] or "", lines[1] }
    for i = 2, #lines do rows[#rows + 1] = { "", "", "", lines[i] } end
  end
  output.rows(set, { "table", "what", "trials done here", "command" }, rows)
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
  local rows, columns = formats.names(result)
  for r, row in ipairs(result.rows) do rows[r] = { rows[r], row.name } end
  for c, column in ipairs(result.columns) do columns[c] = { columns[c], column.name, column.id } end
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

-- Returns the part of a point that a command can set. A list on the command line means several
-- values of an axis. A free key whose value is a list is left out, and the command then runs all
-- values of that key. Keys that are bound together, as in a zip, are set all or none.
local function given(frame, at)
  local alone, left, fits = frame:free_keys(), {}, true
  for key, value in pairs(at) do
    if type(value) == "table" then left[key], fits = true, fits and alone[key] end
  end
  local set = {}
  for key, value in pairs(at) do
    if not left[key] and (fits or alone[key]) then set[key] = value end
  end
  return set
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
    if (not only or c == only) and column.metric and header[#header] ~= column.name_of_metric then
      header[#header + 1] = column.name_of_metric
      shown[#shown + 1] = column.metric
    end
    for _, t in ipairs((not only or c == only) and row.cells[c].trials or {}) do seen[t] = true end
  end
  for _, t in ipairs(row.group.trials) do
    if seen[t] or #shown == 0 then
      local line = { t.id:sub(1, 12), t.seed, t.status }
      for _, metric in ipairs(shown) do line[#line + 1] = t.values[metric] or "-" end
      line[#line + 1] = result.frame:command(given(result.frame, t.point.at),
        "seed=" .. t.seed)
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
      if type(cell.paper) == "number" and (cell.interval or (cell.diverged or 0) > 0) then
        local off = cell.interval and math.abs(cell.interval.mean - cell.paper) or math.huge
        cell.verdict = off <= math.abs(cell.paper) * percent / 100
        fine = fine and cell.verdict
      end
    end
  end
  return fine
end

-- Returns what is printed: a format, or "why" for the trials behind a cell.
local function format_of(set)
  local chosen = set.why and "why" or nil
  for _, name in ipairs { "md", "tex", "csv", "html" } do
    if set[name] and chosen then errors.usage("table: choose one of --%s and --%s", chosen,
      name) end
    chosen = set[name] and name or chosen
  end
  return chosen or "text"
end

-- Returns the pivot table of --rows and --columns.
local function pivoted(set, frame)
  local metrics = set.metric or not set.columns
    and (frame.plan.columns or sorted_keys(frame:metrics()))
    or { compare.metric(frame, frame:metrics()) }
  if #metrics == 0 then
    errors.usage("table: which metric? Give --metric, one of: %s",
      table.concat(sorted_keys(frame:metrics()), ", "))
  elseif set.columns and #metrics > 1 then
    errors.usage("table: with --columns choose one --metric, got %s", table.concat(metrics, ", "))
  end
  return tables.pivot(frame, arguments.list("table", set, "rows"),
    arguments.list("table", set, "columns") or {}, metrics)
end

-- Raises for options that a pivot table cannot combine.
local function check_pivot(set)
  if set.columns and not set.rows then errors.usage("table: --columns needs --rows KEYS") end
  if set.rows and set.tolerance then
    errors.usage("table: --tolerance is for published tables, not for --rows")
  end
end

-- Returns the table of that name, filled from the store as far as there is one.
local function filled(set, store, name, filters)
  local known = suggest.choose("table", name, published_tables.ids())
  -- Raises for an unknown name.
  if not store and not set.rows then return tables.fill(published_tables.read(name)) end
  if not store then
    errors.usage("table: --rows: there are no trials in %s", records.folder(set.dir))
  end
  local published = known and published_tables.read(name) or nil
  local frame, others = frames.named(store, name, filters)
  if not frame and (#others > 0 or not published or set.rows) then
    frames.none_is("table", store, name, others)
  end
  local logged = frame and sorted_keys(frame:metrics()) or {}
  for _, metric in ipairs(#logged > 0 and set.metric or {}) do
    local ok, why = suggest.choose("metric", metric, logged)
    if not ok then errors.usage("table: %s", why) end
  end
  return set.rows and pivoted(set, frame) or tables.fill(published, frame, set.metric)
end

local function show(result, set)
  local format = format_of(set)
  if format == "why" then
    if not result.frame then
      errors.usage("table: --why: no trial here answers %s (toeplab table lists the experiments "
        .. "that do)", result.id)
    end
    why(result, set.why)
  elseif format == "html" then
    io.write(core.sys.clean(html.page(result.id, formats.html(result))))
  else
    io.write(core.sys.clean(formats[format](result)))
  end
end

function command.run(set, words)
  local percent = arguments.number("table", set, "tolerance", 0)
  check_pivot(set)
  local folder = records.folder(set.dir)
  local store <close> = trial_files.has_store(folder) and records.snapshot(folder) or nil
  if #words == 0 then
    for _, option in ipairs { "md", "tex", "html", "why", "metric", "rows", "tolerance" } do
      if set[option] and (option ~= "metric" or #set.metric > 0) then
        errors.usage("table: --%s needs the NAME of a table; the list takes only --csv", option)
      end
    end
    return list(set, store)
  end
  local filters = filter.read("table", table.move(words, 2, #words, 1, {}))
  local result = filled(set, store, words[1], filters)
  if #result.columns == 0 then
    errors.usage("table: no trial of '%s' has logged a metric yet", words[1])
  end
  local fine = not percent or check(result, percent)
  show(result, set)
  if not result.frame then
    errors.say("no trial here answers %s (toeplab table lists the experiments that do)", words[1])
  end
  return fine and errors.DONE or errors.CHECK
end

return command
