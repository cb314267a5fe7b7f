-- sweeps.lua: stores with trials that were never run, for tests of what is read from them.
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local records = require "toeplab.store.records"
local replay = require "toeplab.store.replay"
local stored_sweeps = require "toeplab.store.sweeps"

local sweeps = {}

-- Writes a sweep into folder. s: experiment, scale, script, source, answers, columns, axes, grid
-- (by default all axes), zip, overrides, better, labels, tex, title, success, rule (of seeds added
-- by looks), trials: a list of { config =, seed =, status =, ended =, metrics = {name = value},
-- code =, seconds =, curves = {name = {values of the steps 1, 2, ...}}, events =, said = (text)
-- }. The id of a trial is a hash of the configuration, seed and source.
function sweeps.write(folder, s)
  local store <close> = records.open(folder, "w")
  local source = s.source or "source"
  local plan = json.encode { axes = s.axes or {}, grid = s.grid or s.axes or {}, zip = s.zip,
    overrides = s.overrides or {}, trials = #s.trials, answers = s.answers, columns = s.columns,
    rule = s.rule, better = s.better, labels = s.labels, tex = s.tex, title = s.title,
    success = s.success }
  local sweep = store:sweep { experiment = s.experiment, script = s.script or "x.lua",
    sha256 = core.sha256(source), source = source, command = "toeplab run x.lua",
    scale = s.scale or "", plan = plan }
  local list = {}
  for i, t in ipairs(s.trials) do
    t.config.seed = t.seed
    local text = json.encode(t.config)
    list[i] = { id = core.sha256(text .. source .. (t.code or "")), experiment = s.experiment,
      json = text, seed = t.seed, code_hash = t.code or "code", data_hash = "", label = "x" }
  end
  store:enlist(sweep, stored_sweeps.rows_of(list))
  store:transaction(function()
    for i, t in ipairs(s.trials) do
      store:rows([[UPDATE trials SET status = ?, ended = ?, seconds = ?,
        git_commit = '0123456789abcdef', git_dirty = 0 WHERE id = ?]],
        { t.status or "done", t.ended, t.seconds or 60.0, list[i].id, n = 4 })
      for name, value in pairs(t.metrics or {}) do
        replay.apply(store, list[i].id, { "metric", 1, name, value + 0.0 })
      end
      for name, values in pairs(t.curves or {}) do
        for step, value in ipairs(values) do
          replay.apply(store, list[i].id, { "metric", step, name, value + 0.0 })
        end
      end
      for _, kind in ipairs(t.events or {}) do
        store:rows("INSERT INTO events (trial, kind, text) VALUES (?, ?, ?)",
          { list[i].id, kind, t.said or "" })
      end
    end
  end)
  return list
end

return sweeps
