-- report/pooling.lua: decides which sweeps of an experiment are one set of results.
--
-- Pooled are the newest sweep of an experiment and scale, and those earlier sweeps of the same code
-- (of the script and the files that it loads) and data whose configurations differ only in the axes
-- and the seed: more seeds, or other values of an axis.
local code = require "toeplab.trials.code"
local config = require "toeplab.base.config"
local json = require "toeplab.base.json"
local sweeps = require "toeplab.store.sweeps"

local pooling = {}

-- Returns those sweeps of a list that have trials, each with the configuration of one trial.
function pooling.with_trials(store, list)
  local found = {}
  for _, s in ipairs(list) do
    local row = store:rows([[SELECT t.config FROM v_members m JOIN v_trials t ON t.id = m.trial
      WHERE m.sweep = ? ORDER BY m.position LIMIT 1]], { s.id })[1]
    if row then
      s.plan, s.config = store:object(s.plan), store:config(row.config)
      s.axes, s.row_keys = s.plan.axes or {}, s.plan.row_keys or {}
      s.axes = table.move(s.row_keys, 1, #s.row_keys, #s.axes + 1,
        table.move(s.axes, 1, #s.axes, 1, {}))
      found[#found + 1] = s
    end
  end
  return found
end

-- Returns the text of a configuration without the seed and the keys of a set.
local function rest(values, without)
  local left = config.copy(values)
  for key in pairs(without) do left[key] = nil end
  left.seed = nil
  return json.encode(left)
end

-- Returns a function that tells whether values (a configuration, or the part of it that varies)
-- hold the value of a key that the newest sweep chose for them (trials/tuning.lua; key nil: none
-- was chosen). It remembers the first value that it sees, so it is asked from the newest sweep on.
function pooling.newest_choice(key)
  local first, without = {}, key and { [key] = true }
  return function(values)
    if not key then return true end
    local others, value = rest(values, without), json.encode { values[key] }
    first[others] = first[others] or value
    return first[others] == value
  end
end

-- Returns a predicate on two sweeps: whether their scripts have the same code, comments aside.
local function same_code(store)
  local hashes = {}
  local function hash(s)
    hashes[s.sha256] = hashes[s.sha256]
      or code.hash(sweeps.get(store, s.id).source)
    return hashes[s.sha256]
  end
  return function(a, b) return a.sha256 == b.sha256 or hash(a) == hash(b) end
end

-- Returns a predicate on sweeps, to be called from the newest one on: whether the trials of a sweep
-- loaded the same files of code and read the same data as those of the sweeps before for which it
-- was true. Without a trial that has begun it is true.
local function same_files(store)
  local modules, data = nil, {}
  return function(s)
    local row = store:rows([[SELECT json_extract(t.provenance, '$.module_tokens') AS tokens
      FROM v_members m JOIN v_trials t ON t.id = m.trial WHERE m.sweep = ?
      AND json_extract(t.provenance, '$.modules') IS NOT NULL LIMIT 1]], { s.id })[1]
    local tokens = row and (row.tokens or "")
    if tokens and modules and tokens ~= modules then return false end
    local read = store:rows([[SELECT DISTINCT d.value AS hash,
        coalesce(json_extract(g.config, '$."' || d.key || '"'), d.key) AS name
      FROM (SELECT t.config, t.provenance, max(t.started) FROM v_members m
          JOIN v_trials t ON t.id = m.trial WHERE m.sweep = ? GROUP BY t.data_hash) g,
        json_each(g.provenance, '$.data') d]], { s.id })
    for _, file in ipairs(read) do
      if (data[file.name] or file.hash) ~= file.hash then return false end
    end
    for _, file in ipairs(read) do data[file.name] = file.hash end
    modules = modules or tokens
    return true
  end
end

-- Returns the sweeps that can be pooled with the newest one, all keys that vary in them, and how
-- many of its experiment and scale cannot. Trials whose key was chosen by a small sweep are not
-- pooled with those that were given its value.
function pooling.sweeps(store, list)
  local newest, same, axes, alike, count = list[1], {}, {}, same_code(store), 0
  for _, s in ipairs(list) do
    local near = s.experiment == newest.experiment and s.scale == newest.scale
    count = count + (near and 1 or 0)
    if near and s.plan.tuned_key == newest.plan.tuned_key and alike(s, newest) then
      same[#same + 1] = s
      for _, key in ipairs(s.axes) do axes[key] = true end
    end
  end
  local kept, want = {}, rest(newest.config, axes)
  local of_same_files = same_files(store)
  for _, s in ipairs(same) do
    if rest(s.config, axes) == want and of_same_files(s) then kept[#kept + 1] = s end
  end
  return kept, axes, count - #kept
end

-- Returns those of the trials, a list of ids of one experiment, that belong to the newest sweep
-- which asks for any of them or to one that may be pooled with it, without those at a value that it
-- chose otherwise. A trial that no sweep asks for any more stays.
function pooling.newest(store, experiment, ids)
  local wanted, of_sweep, list, members = {}, {}, {}, {}
  for _, id in ipairs(ids) do wanted[id] = true end
  for _, s in ipairs(pooling.with_trials(store, sweeps.find(store, "experiment", experiment))) do
    local some = false
    of_sweep[s] = {}
    local sql = "SELECT trial FROM v_members WHERE sweep = ?"
    for i, row in ipairs(store:rows(sql, { s.id })) do
      of_sweep[s][i] = row.trial
      some, members[row.trial] = some or wanted[row.trial] ~= nil, true
    end
    if some then list[#list + 1] = s end
  end
  local kept, chosen, pooled = {}, {}, #list > 0 and pooling.sweeps(store, list) or {}
  local key = pooled[1] and pooled[1].plan.tuned_key
  local in_force = pooling.newest_choice(key)
  local configs = [[SELECT m.trial, t.config FROM v_members m JOIN v_trials t ON t.id = m.trial
    WHERE m.sweep = ?]]
  for _, s in ipairs(pooled) do
    if key then
      for _, row in ipairs(store:rows(configs, { s.id })) do
        chosen[row.trial] = in_force(store:config(row.config)) or chosen[row.trial]
      end
    else
      for _, id in ipairs(of_sweep[s]) do chosen[id] = true end
    end
  end
  for _, id in ipairs(ids) do
    if chosen[id] or not members[id] then kept[#kept + 1] = id end
  end
  return kept
end

return pooling
