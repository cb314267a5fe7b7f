-- commands/export.lua: toeplab export: writes trials, metrics or weights for other programs.
local core = require "toeplab.core"
local experiment = require "toeplab.trials.experiment"
local exported = require "toeplab.models.files.exported"
local frames = require "toeplab.report.frames"
local json = require "toeplab.base.json"
local logged_tensors = require "toeplab.store.logged_tensors"
local open_model = require "toeplab.trials.open_model"
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"
local sweeps = require "toeplab.store.sweeps"
local tensorboard = require "toeplab.live.tensorboard"
local tensor_files = require "toeplab.models.files.tensor_files"
local text_table = require "toeplab.base.text_table"
local selection = require "toeplab.store.selection"
local sorted_keys = require "toeplab.base.sorted_keys"
local errors = require "toeplab.base.errors"

local export = {
  example = "toeplab export quickstart --csv -o trials.csv\n"
    .. "  toeplab export @last --metrics --json\n  toeplab export tag=paper 'lr<0.01'\n"
    .. "  toeplab export @last --tensors kernels.npz\n"
    .. "  toeplab export @last --weights model.safetensors --names fairseq --bf16",
  usage = "toeplab export [TRIAL...]\n       toeplab export TRIAL --weights FILE.safetensors\n"
    .. "       toeplab export TRIAL --tensors FILE\n"
    .. "       toeplab export [TRIAL...] --tensorboard DIR",
  about = "Writes one row per trial with its configuration and last metrics, or with --metrics\n"
    .. "one row per logged value. Without words: all trials. Where tune chose a key for each\n"
    .. "setting, the column chosen is 1 if toeplab table counts the trial, and 0 if it counts one\n"
    .. "with another value of that key, or of newer code. Spreadsheets open the CSV file; for\n"
    .. "Parquet, convert it with duckdb or pandas in one line.\n\n"
    .. "--weights writes the parameters of one trial's model as safetensors, from its best\n"
    .. "checkpoint or else from its newest, with all that tl.model and toeplab generate need to\n"
    .. "open them. --names chooses the parameters' names: toeplab (the default), tnn-pytorch (its\n"
    .. "layers, numbered, between embed and norm) or fairseq (the TNN models, ready for\n"
    .. "load_state_dict). Names alone are not enough: the output lists the options with which\n"
    .. "that code computes the same function.\n\n"
    .. "--tensors writes the tensors that one trial logged: one array per name, whose first axis\n"
    .. "is the steps, and the steps themselves as NAME.steps.\n\n"
    .. "--tensorboard writes the event files that toeplab run --tensorboard writes during a run,\n"
    .. "for any stored trials, and replaces existing ones.\n" .. selection.help,
  words = { "trials" },
  options = {
    { name = "metrics", short = "m", help = "every logged value instead of one row per trial" },
    { name = "csv", help = "CSV (the default)" },
    output.json,
    { name = "output", short = "o", value = "FILE", writes = true,
      help = "write to FILE instead of standard output (-)" },
    { name = "weights", short = "w", value = "FILE", writes = true,
      help = "write the model to FILE.safetensors" },
    { name = "names", value = "FORM", choices = exported.names,
      help = "with --weights: toeplab (the default), tnn-pytorch or fairseq",
      more = [[
        The names of the parameters: Toeplab's; the names of that package's layers as `layers.0`,
        `layers.1` and so on, with `embed.weight` and `norm`; or the names of the published TNN
        models, causal and RoBERTa, with all that `load_state_dict` requires. A model that the
        published code cannot compute is refused. Otherwise the options with which it computes
        the same are printed and stored in the file's metadata.]] },
    { name = "bf16", help = "with --weights: round float32 to bfloat16, half the size" },
    { name = "last", help = "with --weights: the newest checkpoint, not the best" },
    { name = "script", value = "FILE", of = "experiment",
      help = "with --weights: the experiment whose function model makes the model" },
    { name = "tensors", value = "FILE", writes = true,
      help = "write logged tensors to FILE.npz, FILE.h5 or FILE.safetensors" },
    { name = "tensorboard", value = "DIR", writes = true,
      help = "event files for TensorBoard below DIR" },
    output.dir,
  },
}

-- Returns the rows of v_trials that the words select, in order of experiment and start.
local function chosen(store, words)
  local query = selection.new(store, words)
  local list = query:rows("t.id", "ORDER BY t.experiment, t.created, t.rowid")
  if #list == 0 and #words > 0 then
    errors.raise(errors.FAILED, "export: no trial matches %s", table.concat(words, " "))
  end
  return list
end

local function row_of(store, id)
  return store:rows("SELECT * FROM v_trials WHERE id = ?", { id })[1]
end

local fixed = { "id", "experiment", "status", "seed", "attempt", "step", "started", "started_at",
  "seconds", "host", "git_commit", "git_dirty", "code_hash", "data_hash", "command", "error",
  "chosen" }

-- Returns a function of a row of v_trials: 1 if tables count the trial, 0 if not, and nil if no key
-- was tuned for it.
local function counter(store)
  local known = {}
  local function read(experiment)
    local of, scales = {}, {}
    for _, s in ipairs(sweeps.find(store, "experiment", experiment)) do
      local frame = not scales[s.scale]
        and frames.find(store, "experiment", experiment, { scale = { s.scale } })
      scales[s.scale] = true
      for id, counts in pairs(frame and frame:counted() or {}) do of[id] = of[id] or counts end
    end
    return of
  end
  return function(row)
    known[row.experiment] = known[row.experiment] or read(row.experiment)
    local counts = known[row.experiment][row.id]
    if counts ~= nil then return counts and 1 or 0 end
  end
end

-- Returns one flat record per trial: its columns, config.KEY and metric.NAME.
local function trial_record(store, row, chosen_of)
  local record = { chosen = chosen_of(row) }
  for _, name in ipairs(fixed) do
    if name ~= "chosen" then record[name] = row[name] end
  end
  record.started_at = row.started and os.date("!%Y-%m-%d %H:%M:%S", math.floor(row.started)) or nil
  for key, value in pairs(store:config(row.config)) do
    record["config." .. key] = type(value) == "table" and json.encode(value) or value
  end
  for _, m in ipairs(store:rows("SELECT name, value FROM v_last WHERE trial = ?", { row.id })) do
    record["metric." .. m.name] = m.value or 0 / 0
  end
  return record
end

local function trials(store, rows, write, as_json)
  local chosen_of = counter(store)
  if as_json then
    for _, row in ipairs(rows) do
      write(json.line(trial_record(store, row_of(store, row.id), chosen_of)) .. "\n")
    end
    return
  end
  local list = {}
  for i, row in ipairs(rows) do list[i] = trial_record(store, row_of(store, row.id), chosen_of) end
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

-- ---- TensorBoard ----------------------------------------------------------------------------

-- Returns the axes of a trial's sweep.
local function swept(store, row, known)
  local sweep = sweeps.of_trial(store, row)
  if not sweep then return {} end
  known[sweep.id] = known[sweep.id] or store:object(sweep.plan).axes or {}
  return known[sweep.id]
end

local function event_files(set, words)
  local files, known = tensorboard.new(set.tensorboard), {}
  local store <close> = records.snapshot(records.folder(set.dir))
  local rows = chosen(store, words)
  for _, short in ipairs(rows) do
    local row = row_of(store, short.id)
    files:write(store, row, swept(store, row, known))
  end
  print(("%s: %s"):format(set.tensorboard, output.count(#rows, "trial")))
end

-- ---- Tensors ----------------------------------------------------------------------------------

local function write_tensors(set, words)
  if #words == 0 then
    errors.usage("export: tensors of which trial? Give one id (see toeplab ls) or @last")
  end
  local store <close> = records.snapshot(records.folder(set.dir))
  local id, arrays = selection.one(store, words).id, {}
  local names = logged_tensors.names(store, id)
  if #names == 0 then
    errors.raise(errors.FAILED, "export: trial %s has logged no tensors", id:sub(1, 12))
  end
  for _, kept in ipairs(names) do
    local steps, array = logged_tensors.series(store, id, kept.name)
    arrays[kept.name], arrays[kept.name .. ".steps"] = array, core.ids(steps)
    kept.shape = table.concat(array:shape(), " x ")
  end
  tensor_files.save(set.tensors, arrays)
  for _, kept in ipairs(names) do
    print(("%s: %s, %s, of steps %d to %d"):format(set.tensors, kept.name, kept.shape, kept.first,
      kept.last))
  end
end

-- ---- Weights ------------------------------------------------------------------------------------

local for_weights, for_rows = { "names", "bf16", "last", "script" },
  { "metrics", "csv", "json", "output", "tensors", "tensorboard" }

-- Endings of tables in a format that this verb does not write.
local other_tables = { xlsx = true, xls = true, ods = true, numbers = true, parquet = true,
  feather = true }

-- Raises for options that would have no effect, and for a file whose name contradicts its format.
local function check_together(set)
  local ending = (set.output or ""):lower():match "%.(%w+)$"
  if other_tables[ending] then
    errors.usage("export: --output '%s': export writes CSV, or JSON with --json; name the file %s, "
      .. "which spreadsheets open", set.output, set.output:gsub("%w+$", "csv"))
  end
  for _, name in ipairs(set.weights and for_rows or for_weights) do
    if set[name] then
      errors.usage("export: --%s %s", name, set.weights and "cannot be combined with --weights"
        or "requires --weights FILE")
    end
  end
  for _, what in ipairs { "tensorboard", "tensors" } do
    for _, name in ipairs(set[what] and for_rows or {}) do
      if set[name] and name ~= what then
        errors.usage("export: --%s and --%s: choose one", name, what)
      end
    end
  end
  if set.weights and not set.weights:find "[^/]%.safetensors$" then
    errors.usage("export: --weights '%s' must end in .safetensors", set.weights)
  end
  local kind = (set.tensors or ".npz"):match "%.(%w+)$"
  if kind ~= "npz" and kind ~= "h5" and kind ~= "safetensors" then
    errors.usage("export: --tensors '%s' must end in .npz, .h5 or .safetensors", set.tensors)
  end
end

local function weights(set, words)
  if #words == 0 then
    errors.usage("export: weights of which trial? Give one id (see toeplab ls) or @last")
  end
  local model, _, about
  do
    local store <close> = records.snapshot(records.folder(set.dir))
    model, _, about = open_model.trial(store, words, { last = set.last,
      build = experiment.builder(set.script) })
  end
  open_model.check_script("export", set.script, about)
  local there = exported.write(set.weights, model, about, { names = set.names, bf16 = set.bf16 })
  print(("%s: trial %s, step %d, %s"):format(set.weights, about.trial:sub(1, 12), about.step,
    set.names and "names of " .. set.names or "toeplab's names"))
  if not there then return end
  local list = {}
  for i, name in ipairs(sorted_keys(there)) do
    list[i] = ("%s=%s"):format(name, tostring(there[name]))
  end
  print("that code computes the same function with " .. table.concat(list, " "))
end

function export.run(set, words)
  check_together(set)
  if set.weights then return weights(set, words) end
  if set.tensors then return write_tensors(set, words) end
  if set.tensorboard then return event_files(set, words) end
  if set.csv and set.json then errors.usage("export: choose one of --csv and --json") end
  local store <close> = records.snapshot(records.folder(set.dir))
  local rows, parts = chosen(store, words), {}
  if set.output == "-" then set.output = nil end
  local write = set.output and function(s) parts[#parts + 1] = s end or output.write
  local dump = set.metrics and metrics or trials
  dump(store, rows, write, set.json)
  if set.output then
    output.save(set.output, table.concat(parts))
  end
end

return export
