-- bench/keep.lua: the rows of a bench in the store of runs: an experiment bench-NAME whose trials
-- are the rows, and whose seed is the number of the run: benches are repeated, not skipped.
local core = require "toeplab.core"
local config = require "toeplab.config"
local json = require "toeplab.json"
local provenance = require "toeplab.provenance"
local records = require "toeplab.records"
local show = require "toeplab.bench.show"
local suggest = require "toeplab.suggest"

-- What stands for a script: times are no result that can be had again.
local SOURCE = 'error("a bench is measured again, not reproduced: %s", 0)\n'

-- "rac, causal n 512 b 1, fwd, float32, threads=2"
local function label_of(row, rows)
  return table.concat({ row.by, show.case(row, rows), row.pass, row.precision,
    "threads=" .. row.threads }, ", ")
end

-- A trial as records wants it.
local function trial_of(row, label, number, code, about)
  local values = show.record(row)
  values.bench, values.seed = nil, number
  local text = json.encode(values)
  return { id = core.sha256(json.encode { config = values, code = code, bench = row.bench }),
    experiment = "bench-" .. row.bench, json = text, seed = number, code_hash = code,
    data_hash = "", data = {}, label = label, provenance = about }
end

local function add_metrics(store, id, row)
  local _, metrics = show.record(row)
  local sql = "INSERT INTO metrics (trial, name, step, value) VALUES (?, ?, ?, ?)"
  for _, name in ipairs(suggest.keys(metrics)) do
    store:rows(sql, { id, name, 0, metrics[name] + 0.0 })
  end
  for i, seconds in ipairs(row.samples) do
    store:rows(sql, { id, "sample_ms", i, 1e3 * seconds })
  end
end

-- Stores the rows of bench name in folder, made by the command of these words in so many seconds;
-- about: what more is known (limits, device). Returns the number of the run.
return function(name, rows, folder, words, seconds, about)
  local store <close> = records.open(folder, "w")
  local code, origin = provenance.code_hash(), provenance.collect(words)
  local experiment = "bench-" .. name
  local number = store:rows([[SELECT coalesce(max(seed), 0) + 1 AS n FROM trials
    WHERE experiment = ?]], { experiment })[1].n
  local source = SOURCE:format(origin.command)
  local sweep = store:sweep { experiment = experiment, script = "bench " .. name, source = source,
    sha256 = core.sha256(source), command = origin.command, scale = "",
    plan = json.encode { axes = { "by", "n", "b" }, overrides = {}, trials = #rows, run = number,
      rows = "by", columns = { "ms", "ratio" }, about = about } }
  local trials = {}
  for i, row in ipairs(rows) do
    local own = config.copy(origin)
    own.threads, own.limits, own.device = row.threads, about.limits, about.device
    trials[i] = trial_of(row, label_of(row, rows), number, code, own)
  end
  store:enlist(sweep, trials)
  for i, t in ipairs(trials) do
    store:begin(t, core.sys.getpid())
    store:transaction(function()
      add_metrics(store, t.id, rows[i])
      store:finish(t.id, "done")
      store:rows("UPDATE trials SET seconds = ? WHERE id = ?", { seconds / #rows, t.id })
      store:rows("DELETE FROM journals WHERE trial = ?", { t.id })
    end)
  end
  return number
end
