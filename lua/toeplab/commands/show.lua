-- commands/show.lua: toeplab show: prints all that is known of a trial, or the differences of two.
local chosen_backends = require "toeplab.nn.chosen_backends"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local logged_tensors = require "toeplab.store.logged_tensors"
local metrics = require "toeplab.store.metrics"
local output = require "toeplab.report.output"
local config = require "toeplab.base.config"
local progress = require "toeplab.base.progress"
local records = require "toeplab.store.records"
local text_table = require "toeplab.base.text_table"
local secrets = require "toeplab.base.secrets"
local selection = require "toeplab.store.selection"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local sweeps = require "toeplab.store.sweeps"
local trial_files = require "toeplab.store.trial_files"

local show = {
  example = "toeplab show @last\n  toeplab show 3f9c1a\n  toeplab show @best:val_ppl --json\n"
    .. "  toeplab show --diff @best:val_ppl @last",
  usage = "toeplab show TRIAL...\n       toeplab show --diff TRIAL TRIAL",
  about = "Shows the configuration, results, events, files and provenance of trials; with --diff\n"
    .. "which of configuration, script, program and data two trials share, and the keys, last\n"
    .. "metrics and origins in which they differ.\n"
    .. selection.help,
  words = { "trials" },
  options = {
    { name = "script", help = "print only the script that the trial was run from" },
    { name = "diff", help = "show only the differences of two trials",
      more = [[
        The first line names which of configuration, script (its parts that a trial reaches),
        program and data differ. The keys, last metrics and origins that differ follow.]] },
    { name = "csv", help = "as CSV, with --diff" },
    output.json, output.dir,
  },
}

-- ---- Reading ----------------------------------------------------------------------------------

-- Describes the journal of a trial that still has unread records; nil if there is none.
local function journal_of(store, row)
  local path, copied = store:journal(row.id)
  return path and ("%s, %d of %d bytes copied to the store"):format(path, copied,
    core.sys.size(path) or 0)
end

-- Describes the backends that "auto" chose in a trial; nil if there are none.
local function backends_of(store, files)
  for _, f in ipairs(files) do
    if f.kind == "backends" then
      local text = core.sys.read_file(trial_files.path(store.folder, f.trial, f))
      return text and chosen_backends.words(text) or f.path .. " is missing"
    end
  end
end

-- Returns all that is stored of the trial in row, as one table.
local function collect(store, row)
  local log = ("%s/%s/log.txt"):format(store.folder, trial_files.folder(store.folder, row.id))
  local files = store:rows("SELECT * FROM v_artifacts WHERE trial = ? ORDER BY path", { row.id })
  local others = {}
  for _, f in ipairs(files) do
    if not f.kind:find "^tensor:" then others[#others + 1] = f end
  end
  return {
    row = row, folder = store.folder, files = files, backends = backends_of(store, files),
    config = store:config(row.config), about = store:object(row.provenance),
    metrics = store:rows("SELECT * FROM v_last WHERE trial = ? ORDER BY name", { row.id }),
    events = store:rows("SELECT * FROM v_events WHERE trial = ? ORDER BY created", { row.id }),
    tensors = logged_tensors.names(store, row.id), other_files = others,
    journal = journal_of(store, row), log = core.sys.exists(log) and log or nil,
  }
end

-- ---- As text ----------------------------------------------------------------------------------

local function field(name, value)
  if value == nil or value == "" then return end
  print(("%-11s %s"):format(name, (tostring(value):gsub("\n", "\n" .. (" "):rep(12)))))
end

-- Formats a table of strings as lines "corpus=9f3c...", "lang=C".
local function pairs_of(set)
  local parts = {}
  for i, name in ipairs(sorted_keys(set)) do parts[i] = ("%s=%s"):format(name, set[name]) end
  return table.concat(parts, "\n")
end

local function show_head(t)
  local row, about = t.row, t.about
  print(("%s  %s  %s"):format(row.id:sub(1, 12), row.experiment, about.label or ""))
  field("status", output.state(row))
  field("step", row.step)
  field("attempts", row.attempt)
  field("started", row.started and os.date("%Y-%m-%d %H:%M:%S", math.floor(row.started)))
  field("time", row.seconds and progress.duration(row.seconds))
  field("tags", row.tags)
  field("notes", row.notes)
  field("command", row.command and secrets.text(row.command))
  local dirty = row.git_dirty == 1 and " with changes" or ""
  field("commit", row.git_commit and row.git_commit .. dirty)
  field("changes", about.changes and t.folder .. "/" .. about.changes)
  field("code", row.code_hash)
  field("data", about.data and pairs_of(about.data) or row.data_hash)
  field("host", row.host)
  field("version", about.version)
  field("threads", about.threads)
  field("device", about.device)
  field("backends", t.backends and "auto: " .. t.backends)
  for _, name in ipairs(sorted_keys(about.build or {})) do
    if about[name] == nil then field(name, about.build[name]) end
  end
  field("features", about.features)
  field("environment", about.environment and
    pairs_of(secrets.environment(about.environment)))
  field("log", t.log)
  field("journal", t.journal)
end

local function show_rows(header, list, cells)
  local rows = {}
  for i, item in ipairs(list) do rows[i] = cells(item) end
  if #rows == 0 then return end
  print()
  text_table.print(header, rows)
end

local function show_tables(store, t)
  print("\nconfiguration")
  for _, key in ipairs(sorted_keys(t.config)) do
    print("  " .. key .. " = " .. config.show(t.config[key]))
  end
  show_rows({ "  metric", "step", "value" }, t.metrics, function(m)
    return { "  " .. m.name, m.step, m.value or 0 / 0 }
  end)
  show_rows({ "  event", "step", "when", "" }, t.events, function(e)
    return { "  " .. e.kind, e.step, output.when(e.created), e.text }
  end)
  show_rows({ "  tensor", "count", "from step", "to step", "bytes" }, t.tensors, function(k)
    return { "  " .. k.name, k.count, k.first, k.last, k.bytes }
  end)
  show_rows({ "  file", "kind", "step", "bytes", "sha256" }, t.other_files, function(f)
    return { "  " .. store.folder .. "/" .. f.path, f.kind, f.step, f.bytes, f.sha256:sub(1, 12) }
  end)
end

-- ---- JSON and scripts --------------------------------------------------------------------------

-- Drops the column that names the trial, which is the same in all rows; nil if there are no rows.
local function without_trial(rows)
  for _, row in ipairs(rows) do row.trial = nil end
  return #rows > 0 and rows or nil
end

local function show_json(t)
  local object = {}
  for name, value in pairs(t.row) do object[name] = value end
  object.config, object.provenance, object.metrics = t.config, t.about, {}
  for _, m in ipairs(t.metrics) do
    object.metrics[m.name] = { step = m.step, value = json.named(m.value or 0 / 0) }
  end
  object.events, object.files = without_trial(t.events), without_trial(t.files)
  object.log, object.journal, object.backends = t.log, t.journal, t.backends
  print(json.show(object))
end

local function show_script(store, row)
  local sweep = sweeps.get(store, row.sweep)
  if not sweep then errors.usage("the script of trial %s is not stored", row.id:sub(1, 12)) end
  io.write(output.data(sweep.source))
end

-- ---- Two trials -------------------------------------------------------------------------------

local from = { "experiment", "status", "seed", "step", "seconds", "host", "command", "git_commit",
  "git_dirty", "code_hash", "data_hash", "error" }

-- Returns the compared properties of a trial: three tables of values by name.
local function sides(store, row)
  local last, about, provenance = {}, {}, store:object(row.provenance)
  for _, m in ipairs(store:rows("SELECT name, value FROM v_last WHERE trial = ?", { row.id })) do
    last[m.name] = m.value or 0 / 0
  end
  for _, name in ipairs(from) do about[name] = row[name] end
  about.step = metrics.reached(store, row)
  about.version, about.threads = provenance.version, provenance.threads
  for name, value in pairs(provenance.build or {}) do about[name] = about[name] or value end
  return { config = store:config(row.config), metric = last, trial = about }
end

local function same(a, b)
  if a == nil or b == nil then return a == b end
  return json.line { v = a } == json.line { v = b }
end

local function all_keys(a, b)
  local set = {}
  for key in pairs(a) do set[key] = true end
  for key in pairs(b) do set[key] = true end
  return sorted_keys(set)
end

local function text(v)
  if v == nil or math.type(v) == "float" then return v end
  return type(v) == "table" and config.show(v) or v
end

-- Returns the change from a to b if both are finite numbers.
local function change(a, b)
  if math.type(a) and math.type(b) and a - a == 0 and b - b == 0 then return b - a end
end

local function differences(a, b)
  local rows = {}
  for _, kind in ipairs { "config", "metric", "trial" } do
    for _, key in ipairs(all_keys(a[kind], b[kind])) do
      local x, y = a[kind][key], b[kind][key]
      if not same(x, y) then
        local row = { kind, key }
        row[3], row[4], row[5] = text(x), text(y), kind == "metric" and change(x, y) or nil
        rows[#rows + 1] = row
      end
    end
  end
  return rows
end

-- Returns the names of the keys by which two tables differ, such as the parts of two scripts.
local function changed(a, b)
  local names = {}
  for _, key in ipairs(all_keys(a, b)) do
    if not same(a[key], b[key]) then names[#names + 1] = key end
  end
  return names
end

-- Describes which of configuration, script, program and data two trials share; of a difference, the
-- keys or the parts of the script, if they are stored. a, b: rows of v_trials.
local function summary(store, a, b)
  local one, other = store:object(a.provenance), store:object(b.provenance)
  local all, equal = {}, {}
  local function add(what, is_equal, names)
    if is_equal then
      equal[#equal + 1] = what
    else
      all[#all + 1] = what .. (#names > 0 and " (" .. table.concat(names, ", ") .. ")" or "")
    end
  end
  local keys = changed(store:config(a.config), store:config(b.config))
  add("the configuration", #keys == 0, keys)
  local parts = one.code and other.code and changed(one.code, other.code)
  for i, key in ipairs(parts or {}) do parts[i] = (key:gsub("^(%a+) (.*)$", "%1 '%2'")) end
  if parts then add("the script", #parts == 0, parts) end
  add("the program", a.code_hash == b.code_hash, {})
  add("the data", a.data_hash == b.data_hash, changed(one.data or {}, other.data or {}))
  local unknown = not parts and "; the code of the script is not stored" or ""
  return ("%s%s%s"):format(#all > 0 and "different: " .. table.concat(all, ", ") or "",
    #equal > 0 and (#all > 0 and "; " or "") .. "the same: " .. table.concat(equal, ", ") or "",
    unknown)
end

local titles = { config = "configuration", metric = "metrics (last values)", trial = "origin" }

local function show_differences(header, rows)
  for _, kind in ipairs { "config", "metric", "trial" } do
    local part = {}
    for _, row in ipairs(rows) do
      if row[1] == kind then part[#part + 1] = { "  " .. row[2], row[3], row[4], row[5] } end
    end
    local head = { "  " .. titles[kind], header[3], header[4] }
    if kind == "metric" then head[4] = "change" end
    local exact = kind == "config" and { [2] = true, [3] = true } or nil
    if #part > 0 then text_table.print(head, part, exact) end
  end
end

local function show_diff(store, set, words)
  if #words ~= 2 then errors.usage("show: --diff takes two trials, got %d", #words) end
  local a, b = selection.one(store, words[1]), selection.one(store, words[2])
  local rows = differences(sides(store, a), sides(store, b))
  local header = { "kind", "name", a.id:sub(1, 12), b.id:sub(1, 12), "change" }
  if not set.csv and not set.json then
    print(summary(store, a, b))
    return show_differences(header, rows)
  end
  header[3], header[4] = "a", "b"
  output.rows(set, header, rows)
end

local function show_all(store, set, words)
  for i, id in ipairs(selection.ids(store, words, "show")) do
    local row = store:rows("SELECT * FROM v_trials WHERE id = ?", { id })[1]
    row.step = metrics.reached(store, row)
    if set.script then
      show_script(store, row)
    elseif set.json then
      show_json(collect(store, row))
    else
      if i > 1 then print() end
      local t = collect(store, row)
      show_head(t)
      show_tables(store, t)
    end
  end
end

function show.run(set, words)
  output.check("show", set)
  if set.csv and not set.diff then errors.usage("show: --csv requires --diff") end
  if set.script and set.diff then errors.usage("show: choose one of --script and --diff") end
  if set.script and set.json then errors.usage("show: --json cannot be combined with --script") end
  if #words == 0 then errors.usage("show: which trial? Give an id (see toeplab ls) or @last") end
  local store <close> = records.snapshot(records.folder(set.dir))
  if set.diff then show_diff(store, set, words) else show_all(store, set, words) end
end

return show
