-- store/metrics.lua: reads the metrics of trials. Each function takes the store first.
local alive = require "toeplab.store.alive"

local metrics = {}

-- SQL: the training step at which trial t last logged a metric, or NULL. A metric with its own
-- index, such as a lag, counts at the training step of its t:log. If a trial has logged only before
-- its first step, or has no loop of steps, this is the greatest index.
metrics.STEP = [[(SELECT coalesce(nullif(max(coalesce(m.at, l.step)), 0), max(l.step)) FROM last l
  JOIN metrics m USING (trial, name, step) WHERE l.trial = t.id)]]

-- Returns the training step that the trial in a row of v_trials has reached; a running one logs
-- steps beyond its checkpoint. nil: none.
function metrics.reached(store, row)
  if row.status ~= "running" then return row.step end
  local sql = "SELECT " .. metrics.STEP .. " AS step FROM trials t WHERE id = ?"
  return math.max(row.step or 0, store:rows(sql, { row.id })[1].step or 0)
end

-- Replaces the string 'nan' by NaN in a column, and returns the rows. The store has NULL for NaN; a
-- query with outer joins writes 'nan' to distinguish it from a missing value.
function metrics.with_nan(column, rows)
  for _, row in ipairs(rows) do
    if row[column] == "nan" then row[column] = 0 / 0 end
  end
  return rows
end

-- Calls fn for each value of trial id, in order of names and steps: {name=, step=, value= (nil for
-- NaN), indexed= (1: step is the metric's own index, such as a lag)}.
function metrics.each(store, id, fn)
  store:each([[SELECT name, step, value, at IS NOT NULL AS indexed FROM metrics
    WHERE trial = ? ORDER BY name, step]], { id }, fn)
end

-- Returns a metric of trial id, averaged over at most `count` equal ranges of its steps: lists of
-- the last step and of the mean of the finite values (NaN if there are none) of each range. `step`
-- may be the metric's own index.
function metrics.thinned(store, id, name, count)
  local steps, values = {}, {}
  local span = store:rows("SELECT min(step) AS low, max(step) AS high FROM metrics "
    .. "WHERE trial = ? AND name = ?", { id, name })[1]
  if not span.low then return steps, values end
  local width = (span.high - span.low) // count + 1
  local rows = store:rows([[SELECT max(step) AS step,
      avg(iif(value BETWEEN -1e300 AND 1e300, value, NULL)) AS value
    FROM metrics WHERE trial = ?1 AND name = ?2
    GROUP BY (step - ?3) / ?4 ORDER BY 1]], { id, name, span.low, width })
  for i, row in ipairs(rows) do steps[i], values[i] = row.step, row.value or 0 / 0 end
  return steps, values
end

-- Lists the newest value of each metric of trial id: {name=, index= (the metric's own, or the
-- step), value= (nil for NaN), step= (of training; nil if index is the step)}.
function metrics.newest(store, id)
  return store:rows([[SELECT name, step AS "index", l.value, m.at AS step FROM last l
    JOIN metrics m USING (trial, name, step) WHERE trial = ?]], { id })
end

-- Returns the sorted names of the metrics of a sweep's trials.
function metrics.names(store, sweep)
  return store:values([[SELECT DISTINCT l.name FROM members m JOIN last l ON l.trial = m.trial
    WHERE m.sweep = ? ORDER BY 1]], { sweep })
end

-- Lists the trials of a sweep, running ones first, each with the last value of a metric (nil: none
-- was logged): {id=, label=, error=, seconds=, started=, steps= (in all; nil if the configuration
-- has no key `steps`), step= (of training, when the metric was logged), index= (the metric's own,
-- or the step), value=, alive.COLUMNS}.
function metrics.trials(store, sweep, metric)
  local rows = store:rows(([[SELECT %s, coalesce(t.ended, t.status) AS status, t.id,
      provenance ->> '$.label' AS label, t.error, t.seconds, t.started,
      config ->> '$.steps' AS steps, coalesce(nullif(o.at, 0), l.step, t.step) AS step,
      l.step AS "index", iif(l.name IS NULL, NULL, coalesce(l.value, 'nan')) AS value
    FROM members m JOIN trials t ON t.id = m.trial
    LEFT JOIN last l ON l.trial = t.id AND l.name = ?2
    LEFT JOIN metrics o ON o.trial = l.trial AND o.name = l.name AND o.step = l.step
    WHERE m.sweep = ?1 AND t.trashed IS NULL
    ORDER BY t.status <> 'running', m.position]]):format(alive.COLUMNS), { sweep, metric, n = 2 })
  return metrics.with_nan("value", rows)
end

return metrics
