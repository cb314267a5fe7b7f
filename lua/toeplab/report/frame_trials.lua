-- report/frame_trials.lua: reads the trials of the sweeps of a frame (frames.lua), and their
-- results, from the store.
local code = require "toeplab.trials.code"
local config = require "toeplab.base.config"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local sweeps = require "toeplab.store.sweeps"

local frame_trials = {}

-- Returns the query of the trials of a sweep, with the values of the axes as a JSON array.
local function query(keys)
  local at = "'[]'"
  if #keys > 0 then
    local paths = {}
    for i, key in ipairs(keys) do
      if not key:find "^[%a_][%w_.]*$" then errors.usage("'%s' cannot be a key", key) end
      paths[i] = "'$.\"" .. key .. "\"'"
    end
    if #paths == 1 then paths[2] = paths[1] end -- with one path the value would not be an array
    at = "json_extract(t.config, " .. table.concat(paths, ", ") .. ")"
  end
  return [[SELECT m.position, t.id, t.seed, t.status, t.seconds, substr(t.git_commit, 1, 12),
    t.git_dirty, substr(t.code_hash, 1, 12), coalesce(t.numerics, 1), EXISTS (SELECT 1
    FROM v_events e WHERE e.trial = t.id AND e.kind = 'code'), t.data_hash,
    t.provenance -> '$.data', t.provenance -> '$.code', t.provenance ->> '$.module_tokens', ]]
    .. at .. [[
    FROM v_members m JOIN v_trials t ON t.id = m.trial WHERE m.sweep = ? ORDER BY m.position]]
end

-- Returns the newest values of a metric for the trials of a sweep: position -> number. The + makes
-- SQLite use the index by trial, whose order is the values', so that it reads each page
-- once.
local function values_of(self, sweep, name)
  local set = {}
  self.store.store:tuples([[SELECT m.position, l.value FROM v_members m JOIN v_last l
    ON l.trial = m.trial AND l.name = ? WHERE +m.sweep = ? ORDER BY m.trial]], { name, sweep },
    function(position, value) set[position] = value or 0 / 0 end)
  return set
end

-- Returns a function that returns the origin of a trial: {commit= and code= (of the program, 12
-- characters each), dirty=, numerics= (of the engine), mixed= (whether a different program
-- continued the trial), script= (a string that identifies the version of the experiment's code),
-- version= (one that also identifies the data and the engine), data= (JSON: key -> hash, or nil)}.
-- Trials of equal origin share one table.
local function origins()
  local known = {}
  return function(commit, dirty, hash, numerics, mixed, data_hash, data, script)
    local key = ("%s %s %s %s %s %s %s"):format(commit, dirty, hash, mixed, numerics, data_hash,
      script)
    known[key] = known[key] or { commit = commit, code = hash, dirty = dirty == 1,
      numerics = numerics, mixed = mixed == 1, script = script, data = data,
      version = ("%s %s %s"):format(numerics, data_hash, script) }
    return known[key]
  end
end

-- Returns a function of a sweep that returns a hash of its script's code, the only record of the
-- code that earlier releases stored.
local function script_codes(store)
  local known = {}
  return function(s)
    known[s.sha256] = known[s.sha256] or code.hash(sweeps.get(store, s.id).source)
    return known[s.sha256]
  end
end

-- Returns for each JSON array (a key of the set texts) of the values of keys a point: `values`, the
-- configuration without the seed, and `at`, the part of it that varies.
local function points(self, keys, texts)
  local list, found = {}, {}
  for text in pairs(texts) do list[#list + 1] = text end
  local arrays = #list > 0 and self.store:decode("[" .. table.concat(list, ",") .. "]") or {}
  for i, text in ipairs(list) do
    local p = { values = config.copy(self.fixed), at = {} }
    for k, key in ipairs(keys) do
      p.values[key], p.at[key] = arrays[i][k], arrays[i][k]
    end
    found[text] = p
  end
  return found
end

-- Reads the trials of all sweeps, by sweep from the newest on, each once.
function frame_trials.read(self)
  local rows, texts, seen, origin, script = {}, {}, {}, origins(), script_codes(self.store)
  local keys, steps = sorted_keys(self.axes), {}
  for _, s in ipairs(self.sweeps) do
    if s.plan.rule then steps[s.plan.rule] = s.id end -- the oldest one
  end
  for _, s in ipairs(self.sweeps) do
    self.store.store:tuples(query(keys), { s.id }, function(position, id, seed, status, seconds,
        commit, dirty, hash, numerics, mixed, data_hash, data, parts, tokens, at)
      if not seen[id] then
        texts[at] = true
        seen[id] = { id = id, seed = seed, status = status, seconds = seconds, point = at,
          made = origin(commit, dirty, hash, numerics, mixed, data_hash, data,
            parts or script(s) .. (tokens or "")), sweep = s.id, position = position }
        rows[#rows + 1] = seen[id]
      end
      seen[id].rule = seen[id].rule or s.plan.rule
      seen[id].step = steps[s.plan.rule or s.id] or s.id
    end)
  end
  local point_of = points(self, keys, texts)
  for _, row in ipairs(rows) do row.point = point_of[row.point] end
  return rows
end

-- Returns a function that returns the values of the listed metrics of a row: a number, nan or nil
-- each.
function frame_trials.values(self, metrics)
  local sets = {}
  return function(row)
    local values, of = {}, sets[row.sweep] or {}
    sets[row.sweep] = of
    for i, name in ipairs(metrics) do
      of[i] = of[i] or values_of(self, row.sweep, name)
      values[i] = of[i][row.position]
    end
    return values
  end
end

return frame_trials
