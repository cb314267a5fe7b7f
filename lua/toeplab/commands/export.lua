-- commands/export.lua: toeplab export: writes trials or metrics for other programs.
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"
local text_table = require "toeplab.report.text_table"
local selection = require "toeplab.store.selection"
local errors = require "toeplab.base.errors"

local export = {
  example = "toeplab export quickstart --csv -o trials.csv\n"
    .. "  toeplab export @last --metrics --json\n  toeplab export tag=paper 'lr<0.01'",
  usage = "toeplab export [TRIAL...]",
  about = "Writes one row per trial with its configuration and last metrics, or with --metrics\n"
    .. "one row per logged value. Without words: all trials. For Parquet, convert the CSV\n"
    .. "with duckdb or pandas in one line.\n" .. selection.help,
  options = {
    { name = "metrics", short = "m", help = "every logged value instead of one row per trial" },
    { name = "csv", help = "CSV (the default)" },
    { name = "json", help = "JSON, one object a line; inf and nan are null" },
    { name = "output", short = "o", value = "FILE",
      help = "write to FILE instead of standard output (-)" },
    output.dir,
  },
}

-- Returns the rows of v_trials that the words select, in order of experiment and start.
local function chosen(store, words)
  local query = selection.new(store, words)
  local list = query:rows("t.id", "ORDER BY t.experiment, t.created, t.id")
  if #list == 0 and #words > 0 then errors.raise(errors.FAILED, "export: no trial fits") end
  return list
end

local function row_of(store, id)
  return store:rows("SELECT * FROM v_trials WHERE id = ?", { id })[1]
end

local fixed = { "id", "experiment", "status", "seed", "attempt", "step", "started", "seconds",
  "host", "git_commit", "git_dirty", "code_hash", "data_hash", "command", "error" }

-- Returns one flat record per trial: its columns, config.KEY and metric.NAME.
local function trial_record(store, row)
  local record = {}
  for _, name in ipairs(fixed) do record[name] = row[name] end
  for key, value in pairs(store:config(row.config)) do
    record["config." .. key] = type(value) == "table" and json.encode(value) or value
  end
  for _, m in ipairs(store:rows("SELECT name, value FROM v_last WHERE trial = ?", { row.id })) do
    record["metric." .. m.name] = m.value or 0 / 0
  end
  return record
end

local function trials(store, rows, write, as_json)
  if as_json then
    for _, row in ipairs(rows) do
      write(json.line(trial_record(store, row_of(store, row.id))) .. "\n")
    end
    return
  end
  local list = {}
  for i, row in ipairs(rows) do list[i] = trial_record(store, row_of(store, row.id)) end
  write(text_table.csv(output.columns(list, fixed)))
end

local function metrics(store, rows, write, as_json)
  local header = { "trial", "experiment", "seed", "name", "step", "value" }
  if not as_json then write(text_table.csv(header, {})) end
  for _, short in ipairs(rows) do
    local row = row_of(store, short.id)
    local sql = "SELECT name, step, value FROM v_metrics WHERE trial = ? ORDER BY name, step"
    store.store:each(sql, { row.id }, function(m)
      if as_json then
        write(json.line { trial = row.id, experiment = row.experiment, seed = row.seed,
          name = m.name, step = m.step, value = m.value or 0 / 0 } .. "\n")
      else
        local line = { row.id, row.experiment, row.seed, m.name, m.step, m.value or 0 / 0 }
        write(text_table.csv(line, {}))
      end
    end)
  end
end

-- Writes text to the file at path atomically. A pipe, a device or the target of a link is written
-- in place.
local function save(path, text)
  local kind, link = core.sys.kind(path)
  if kind ~= "other" and not link then return core.sys.write_file(path, text) end
  local file, why = io.open(path, "wb")
  if not file then return nil, why end
  local ok, problem = file:write(text)
  local closed, late = file:close()
  if ok and closed then return true end
  return nil, ("%s: %s"):format(path, problem or late)
end

function export.run(set, words)
  if set.csv and set.json then errors.usage("export: choose one of --csv and --json") end
  local store <close> = records.open(records.folder(set.dir), "r")
  local rows, parts = chosen(store, words), {}
  if set.output == "-" then set.output = nil end
  local write = set.output and function(s) parts[#parts + 1] = s end or function(s) io.write(s) end
  local dump = set.metrics and metrics or trials
  dump(store, rows, write, set.json)
  if set.output then
    local ok, why, _, status = save(set.output, table.concat(parts))
    if not ok then
      errors.raise(errors.storage_problem(status) and errors.STORAGE or errors.FAILED, "%s", why)
    end
  end
end

return export
