-- report/pools.lua: finds the trials in a store that reproduce a published table or belong to an
-- experiment, and their results. A pool holds the trials of all sweeps that are one set of results
-- (pooling.lua).
local config = require "toeplab.base.config"
local direction = require "toeplab.base.direction"
local errors = require "toeplab.base.errors"
local filter = require "toeplab.report.filter"
local json = require "toeplab.base.json"
local overlay = require "toeplab.base.overlay"
local pooling = require "toeplab.report.pooling"
local published_tables = require "toeplab.trials.published_tables"
local quantity = require "toeplab.base.quantity"
local records = require "toeplab.store.records"
local shell = require "toeplab.base.shell"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
local sweeps = require "toeplab.store.sweeps"

local pools = {}

local Pool = {}
Pool.__index = Pool

local SAMPLE = 1000 -- trials that are searched for metrics

-- ---- Finding ----------------------------------------------------------------------------------

local function set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

-- Returns whether a sweep fits the filters (filter.read) on keys that do not vary in it.
local function fits(s, filters)
  local vary = set_of(s.axes)
  for key, texts in pairs(filters) do
    local value = s.config[key]
    if key == "scale" then value = s.scale end
    if key == "experiment" and value == nil then value = s.experiment end
    if not vary[key] and key ~= "seed" and not filter.says(value, texts) then return false end
  end
  return true
end

-- Raises if a filter is on a key that no trial of the sweeps has.
local function check_keys(list, filters)
  local known = { scale = true, experiment = true, seed = true }
  for _, s in ipairs(list) do
    for key in pairs(s.config) do known[key] = true end
    for _, key in ipairs(s.axes) do known[key] = true end
  end
  for _, key in ipairs(#list > 0 and sorted_keys(filters) or {}) do
    local ok, why = suggest.choose("key", key, sorted_keys(known))
    if not ok then errors.usage("%s=%s: %s", key, filters[key][1], why) end
  end
end

-- Returns the sweeps from the newest one on of an experiment and scale that has results; all of
-- them if none has. So a published table does not go empty while another experiment begins to
-- answer it.
local function with_results(store, list)
  for i, s in ipairs(list) do
    local done = store:rows([[SELECT 1 AS one FROM v_members m JOIN v_trials t ON t.id = m.trial
      WHERE m.sweep = ? AND t.status = 'done' LIMIT 1]], { s.id })[1]
    for k = 1, done and i or 0 do
      if list[k].experiment == s.experiment and list[k].scale == s.scale then
        return table.move(list, k, #list, 1, {})
      end
    end
  end
  return list
end

-- Returns the pool of the newest sweep that fits the filters and that `what` and name select
-- (sweeps.find). Its fields are experiment, scale, script, plan, sweeps, axes (a set), fixed (the
-- configuration without the axes and the seed), row_keys (the set of the axes that named rows set),
-- others (the other experiments and scales that what
-- and name select) and older (how many sweeps of the same experiment and scale are left out). If no
-- sweep fits, returns nil and the list of all of these.
function pools.find(store, what, name, filters)
  local list, others, seen = {}, {}, {}
  local all = pooling.with_trials(store, sweeps.find(store, what, name))
  for _, s in ipairs(all) do
    if fits(s, filters) then list[#list + 1] = s end
    local label = s.experiment .. (s.scale ~= "" and " scale=" .. s.scale or "")
    if not seen[label] then others[#others + 1] = label end
    seen[label] = true
  end
  if #list == 0 then
    check_keys(all, filters)
    return nil, others
  end
  if what == "answers" then list = with_results(store, list) end
  local kept, axes, older = pooling.sweeps(store, list)
  local newest = kept[1]
  local self = setmetatable({ store = store, sweeps = kept, axes = axes, filters = filters,
    experiment = newest.experiment, scale = newest.scale, script = newest.script,
    plan = newest.plan, fixed = config.copy(newest.config), others = {}, older = older,
    row_keys = {} }, Pool)
  for _, s in ipairs(kept) do
    for _, key in ipairs(s.row_keys) do self.row_keys[key] = true end
  end
  for key in pairs(axes) do self.fixed[key] = nil end
  self.fixed.seed = nil
  local own = self:title()
  for _, label in ipairs(others) do
    if label ~= own then table.insert(self.others, label) end
  end
  return self
end

-- Returns the pool that a user names: a published table, an experiment, or a sweep by its number;
-- else as pools.find.
function pools.named(store, name, filters)
  local number = math.tointeger(tonumber(name))
  local known = suggest.choose("table", name, published_tables.ids())
  return pools.find(store, number and "sweep" or known and "answers" or "experiment",
    number or name, filters)
end

-- Raises the usage error of a verb for a name, of a published table or an experiment, that selects
-- no pool. others: what pools.find returned.
function pools.none_is(verb, store, name, others)
  if #others > 0 then
    errors.usage("%s: no trials of %s fit; there are: %s", verb, name, table.concat(others, "; "))
  end
  if math.tointeger(tonumber(name)) then
    errors.usage("%s: there is no sweep %s (see toeplab status --json)", verb, name)
  end
  local names = published_tables.ids()
  if suggest.choose("table", name, names) then
    errors.usage("%s: no trial here answers %s", verb, name)
  end
  for _, row in ipairs(store:rows "SELECT DISTINCT experiment AS name FROM v_trials") do
    names[#names + 1] = row.name
  end
  local file = name:match "([^/]+)%.lua$"
  errors.usage("%s: there is no table or experiment '%s'%s%s", verb, name,
    file and ": give the name of the experiment, not its file" or "",
    suggest.hint(file or name, names))
end

-- Whether the values of the keys in a set tell that of key in all trials, as where a rule of `when`
-- gives each task its own length.
function pools.follows(key, set, trials)
  local names, known = sorted_keys(set), {}
  for _, t in ipairs(trials) do
    local values, at = t.point.values, {}
    for i, name in ipairs(names) do at[i] = { values[name] } end
    at = json.encode(at)
    local value = json.encode { values[key] }
    if known[at] and known[at] ~= value then return false end
    known[at] = value
  end
  return true
end

-- Returns the axes, sorted, without those keys of named rows that follow from the other axes, as
-- they do unless commands gave such a key several values.
function Pool:own_axes(trials)
  local keys, own = {}, overlay(self.axes)
  for key in pairs(self.row_keys) do own[key] = nil end
  for _, key in ipairs(sorted_keys(self.axes)) do
    if own[key] or not pools.follows(key, own, trials) then keys[#keys + 1] = key end
  end
  return keys
end

function Pool:title()
  return self.experiment .. (self.scale ~= "" and " scale=" .. self.scale or "")
end

-- Returns which sweeps of the experiment are not in the pool, in words; nil if all are.
function Pool:left_out()
  if self.older == 0 then return nil end
  return ("left out: %s of %s, of other code or data, other values of fixed keys, or another way "
    .. "to the tuned key"):format(quantity.count(self.older, "earlier command"), self:title())
end

-- Returns the columns of the published tables that the experiment reproduces.
function Pool:columns()
  local list = {}
  for _, id in ipairs(self.plan.answers or {}) do
    local columns = published_tables.read(id).columns
    table.move(columns, 1, #columns, #list + 1, list)
  end
  return list
end

-- Returns whether "lower" or "higher" values of a metric are better; nil if nothing says it.
function Pool:better(metric) return direction.of(self.plan.better, metric) end

-- ---- Trials -----------------------------------------------------------------------------------

-- Returns the set of the names of the metrics that the trials have logged; of a sweep, about SAMPLE
-- trials are searched, evenly spaced.
function Pool:metrics()
  local set = {}
  for _, s in ipairs(self.sweeps) do
    local sql = [[SELECT DISTINCT l.name FROM v_last l WHERE l.trial IN (SELECT trial
      FROM v_members WHERE sweep = ?1 AND position % (1 + (SELECT max(position) FROM v_members
      WHERE sweep = ?1) / ?2) = 0)]]
    for _, row in ipairs(self.store:rows(sql, { s.id, SAMPLE })) do set[row.name] = true end
  end
  return set
end

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
    FROM v_events e WHERE e.trial = t.id AND e.kind = 'code'), ]] .. at .. [[ FROM v_members m
    JOIN v_trials t ON t.id = m.trial WHERE m.sweep = ? ORDER BY m.position]]
end

-- Returns the newest values of a metric for the trials of a sweep: position -> number. The + makes
-- SQLite use the index by trial, whose order is that of the values, so that it reads each page
-- once.
local function values_of(self, sweep, name)
  local set = {}
  self.store.store:tuples([[SELECT m.position, l.value FROM v_members m JOIN v_last l
    ON l.trial = m.trial AND l.name = ? WHERE +m.sweep = ? ORDER BY m.trial]], { name, sweep },
    function(position, value) set[position] = value or 0 / 0 end)
  return set
end

-- Returns a cache of the origin of trials, {commit=, code=, dirty=, numerics=, mixed=}: trials of
-- equal origin share one table.
local function origin_cache()
  local known = {}
  return function(commit, dirty, hash, numerics, mixed)
    local key = ("%s %s %s %s %s"):format(commit, dirty, hash, numerics, mixed)
    known[key] = known[key] or { commit = commit, code = hash, dirty = dirty == 1,
      numerics = numerics, mixed = mixed == 1 }
    return known[key]
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

-- Returns the value of a trial that a filter on key is compared with.
local function filtered(row, key)
  if key == "seed" then return row.seed end
  return row.point.values[key]
end

-- Returns the filters on trials; those on scale choose sweeps, as do those on experiment, unless
-- the configurations have such a key.
local function trial_filters(self)
  local set = {}
  for key, texts in pairs(self.filters) do
    local own = key ~= "experiment" or self.axes[key] or self.fixed[key] ~= nil
    if key ~= "scale" and own then set[key] = texts end
  end
  return set
end

-- Returns whether a trial fits filters.
local function fits_all(row, filters)
  for key, texts in pairs(filters) do
    if not filter.says(filtered(row, key), texts) then return false end
  end
  return true
end

-- Raises the error that no trial fits; if one filter alone fits none, with the values there are.
local function none_fits(self, rows, filters)
  for _, key in ipairs(sorted_keys(filters)) do
    local values, some = {}, false
    for _, row in ipairs(rows) do
      values[#values + 1] = filtered(row, key)
      some = some or fits_all(row, { [key] = filters[key] })
    end
    if not some then
      filter.none_has(self:title(), key, filters[key][1], values)
    end
  end
  errors.usage("no trial of %s fits", self:title())
end

-- Returns the trials, by sweep from the newest on and then in the order of their declaration: {id=,
-- seed=, status=, seconds=, made= {commit= and code= (12 characters of each), dirty=, numerics= (of
-- the engine), mixed= (whether other code continued the trial than began it)}, point=, values=}.
-- values: for each metric of the list a number, nan or nil. Trials at the same point share one
-- table point = {values=, at=}: the configuration without the seed, and the part of it that varies.
-- If several sweeps have a seed at a point, or chose a key for it (trials/tuning.lua), the newest
-- counts. Raises a usage error if the filters leave no trial.
function Pool:trials(metrics)
  local keys, rows, taken, maker = sorted_keys(self.axes), {}, {}, origin_cache()
  for _, s in ipairs(self.sweeps) do
    local sets = {}
    for i, name in ipairs(metrics) do sets[i] = values_of(self, s.id, name) end
    self.store.store:tuples(query(keys), { s.id },
      function(position, id, seed, status, seconds, commit, dirty, hash, numerics, mixed, at)
        taken[at] = taken[at] or {}
        if taken[at][seed] then return end
        taken[at][seed] = true
        local values = {}
        for i, set in ipairs(sets) do values[i] = set[position] end
        rows[#rows + 1] = { id = id, seed = seed, status = status, seconds = seconds,
          made = maker(commit, dirty, hash, numerics, mixed), point = at, values = values }
      end)
  end
  local point_of, list, filters = points(self, keys, taken), {}, trial_filters(self)
  local in_force = pooling.newest_choice(self.plan.tuned_key)
  for _, row in ipairs(rows) do
    row.point = point_of[row.point]
    if in_force(row.point.at) and fits_all(row, filters) then list[#list + 1] = row end
  end
  if #list == 0 and #rows > 0 then none_fits(self, rows, filters) end
  return list
end

-- Returns the set of the ids of trials, of any experiment, that the guard rolled back.
function Pool:rescued()
  local set = {}
  for _, row in ipairs(self.store:rows [[SELECT DISTINCT trial FROM v_events
    WHERE kind = 'rollback']]) do
    set[row.trial] = true
  end
  return set
end

-- ---- Commands ---------------------------------------------------------------------------------

-- Returns the set of the keys that a command can set by themselves: of grid, of no rule of when.
function Pool:free_keys()
  local set = {}
  for _, key in ipairs(self.plan.grid or {}) do set[key] = true end
  return set
end

-- Returns the command that runs the trials at a point (nil: all) with the seeds given by a word, as
-- the command of a sweep (by default the newest) did. It leaves out a key that was tuned, since the
-- command chooses its value again: given it, it would run trials of a sweep that is not pooled with
-- this one.
function Pool:command(at, seeds, sweep)
  local words, tuned = { "toeplab", "run", self.script }, self.plan.tuned_key
  for _, override in ipairs((sweep or self).plan.overrides or {}) do
    local key = override:match "^[^=]*"
    local replaced = key == "seed" or key == "seeds" or key == "compare" or at and at[key] ~= nil
    if not replaced then words[#words + 1] = override end
  end
  at = overlay(at)
  if tuned then at[tuned] = nil end
  for _, key in ipairs(sorted_keys(at)) do
    words[#words + 1] = key .. "=" .. config.text(at[key])
  end
  words[#words + 1] = seeds
  if self.store.folder ~= records.folder() then
    words[#words + 1], words[#words + 2] = "-C", self.store.folder
  end
  return shell.line(words)
end

return pools
