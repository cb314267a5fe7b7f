-- store/sweeps.lua: reads the rows of sweeps; v_members has their trials. Each function except
-- rows_of takes the store (Records) first.
--
-- A repeated command keeps its row, and `created` becomes the time of the last repetition. So
-- sweeps are ordered by `created`, not by id.
local alive = require "toeplab.store.alive"
local config = require "toeplab.base.config"
local json = require "toeplab.base.json"
local metrics = require "toeplab.store.metrics"
local secrets = require "toeplab.base.secrets"

local sweeps = {}

-- Returns the rows of planned trials, which Records:enlist takes.
function sweeps.rows_of(trials)
  local rows = {}
  for i, t in ipairs(trials) do
    local masked = t.config and secrets.config(t.config) -- a bench has no configuration
    rows[i] = { id = t.id, experiment = t.experiment, seed = t.seed,
      config = masked == t.config and t.json or json.encode(config.result_keys(masked)),
      code_hash = t.code_hash, data_hash = t.data_hash,
      provenance = json.encode { label = t.label } }
  end
  return rows
end

-- Returns sweep id: {id=, experiment=, script= (path), sha256=, source= (text of the script),
-- command=, scale=, plan= (JSON), created=}; nil if there is none, or id is nil.
function sweeps.get(store, id)
  return store:rows("SELECT * FROM sweeps WHERE id = ?", { id, n = 1 })[1]
end

-- Returns the first sweep of trial t (a row of v_trials) or, if that was deleted, the last one that
-- has the trial; nil if none has.
function sweeps.of_trial(store, t)
  return store:rows([[SELECT * FROM sweeps WHERE id IN (?1,
    (SELECT max(sweep) FROM members WHERE trial = ?2)) ORDER BY id LIMIT 1]],
    { t.sweep, t.id, n = 2 })[1]
end

local conditions = {
  answers = "EXISTS (SELECT 1 FROM json_each(plan, '$.answers') WHERE value = ?)",
  experiment = "experiment = ?",
  sweep = "id = ?",
}

-- Lists the sweeps that `what` and name select, newest first, without command, source and created.
-- what and name: "answers" and the id of a published table, "experiment" and its name, or "sweep"
-- and its id.
function sweeps.find(store, what, name)
  return store:rows("SELECT id, experiment, script, sha256, scale, plan FROM sweeps WHERE "
    .. conditions[what] .. " ORDER BY created DESC, id DESC", { name })
end

-- Lists the newest sweep of each experiment, or of the given one: {id=, experiment=}, newest first.
function sweeps.last(store, experiment)
  return store:rows([[SELECT id, experiment, max(created) FROM sweeps
    WHERE ?1 IS NULL OR experiment = ?1 GROUP BY experiment ORDER BY max(created) DESC]],
    { experiment, n = 1 })
end

-- Returns the number of done trials of the experiment of a sweep {id=, experiment=} that other
-- sweeps have.
function sweeps.done_earlier(store, sweep)
  return store:rows([[SELECT count(*) AS count FROM trials WHERE experiment = ? AND status = 'done'
    AND trashed IS NULL AND id NOT IN (SELECT trial FROM members WHERE sweep = ?)]],
    { sweep.experiment, sweep.id })[1].count
end

-- Lists for each published table the newest sweep with trials that answers it: {answers= (the
-- table's id), id=, experiment=, scale=}.
function sweeps.answering(store)
  return store:rows [[SELECT a.value AS answers, s.id, s.experiment, s.scale, max(s.created)
    FROM sweeps s, json_each(s.plan, '$.answers') a
    WHERE EXISTS (SELECT 1 FROM members m WHERE m.sweep = s.id) GROUP BY a.value]]
end

-- Returns the trials of sweep id that are marked as running, in its order: {id=, label=, config=
-- (JSON), job= (Slurm's id, or nil), started= (time of this attempt), steps= (in all), step= and
-- loss= (last logged), saved= (step of the last checkpoint), spent= (seconds until then, over all
-- attempts), alive.COLUMNS}.
function sweeps.running(store, id)
  local rows = store:rows(([[SELECT id, provenance ->> '$.label' AS label, config,
      provenance ->> '$.job' AS job, started, config ->> '$.steps' AS steps, %s AS step,
      (SELECT coalesce(value, 'nan') FROM last l WHERE l.trial = t.id AND l.name = 'loss') AS loss,
      step AS saved, seconds AS spent, %s
    FROM members m JOIN trials t ON t.id = m.trial
    WHERE m.sweep = ? AND t.status = 'running' AND t.trashed IS NULL
    ORDER BY m.position]]):format(metrics.STEP, alive.COLUMNS), { id })
  return metrics.with_nan("loss", rows)
end

-- Returns the trials of all sweeps that are marked as running on a device of a machine: {id=,
-- label=, device= ("cuda:1: ..."), visible= (CUDA_VISIBLE_DEVICES, or nil), job=, ranks=,
-- alive.COLUMNS}.
function sweeps.on_devices(store, host)
  return store:rows(([[SELECT id, provenance ->> '$.label' AS label,
      provenance ->> '$.device' AS device, provenance ->> '$.job' AS job,
      provenance ->> '$.environment.CUDA_VISIBLE_DEVICES' AS visible,
      config ->> '$.ranks' AS ranks, %s
    FROM trials WHERE status = 'running' AND trashed IS NULL AND host = ? AND device IS NOT NULL
    ORDER BY started, id]]):format(alive.COLUMNS), { host })
end

return sweeps
