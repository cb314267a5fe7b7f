-- report/groups.lua: selects the trials of a figure or report and groups them by the keys that
-- vary; each group becomes one line of the figure.
local json = require "toeplab.base.json"
local labels = require "toeplab.report.labels"
local overlay = require "toeplab.base.overlay"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
local sweeps = require "toeplab.store.sweeps"

local groups = {}

local SAMPLE = 1000 -- trials that are searched for metrics

-- ---- Trials -----------------------------------------------------------------------------------

-- Returns the keys whose values differ among the trials, without the seed.
local function axes_of(trials)
  local first, count, differs = {}, {}, {}
  for _, t in ipairs(trials) do
    for key, value in pairs(t.config) do
      local text = json.encode { value }
      if first[key] == nil then first[key] = text end
      if first[key] ~= text then differs[key] = true end
      count[key] = (count[key] or 0) + 1
    end
  end
  for key, n in pairs(count) do
    if n < #trials then differs[key] = true end
  end
  differs.seed = nil
  return sorted_keys(differs)
end

-- Of trials with equal configuration and seed but different code, keeps the most recently started.
-- Returns these and the number of dropped ones.
local function started_last(trials)
  local best, list = {}, {}
  for i, t in ipairs(trials) do
    t.key = t.experiment .. json.encode(t.config)
    local other = trials[best[t.key]]
    if not other or (t.started or 0) > (other.started or 0) then best[t.key] = i end
  end
  for i, t in ipairs(trials) do
    if best[t.key] == i then list[#list + 1] = t end
  end
  return list, #trials - #list
end

-- Returns the labels of some experiments, and the title if there is only one and it has a title, as
-- their newest sweeps declare them.
local function presentation(store, names)
  local texts, title = {}, nil
  for _, name in ipairs(names) do
    local newest = sweeps.find(store, "experiment", name)[1]
    local plan = newest and store:object(newest.plan) or {}
    texts, title = overlay(texts, plan.labels), plan.title
  end
  return labels.new(texts), #names == 1 and title or nil
end

-- Returns the trials with the ids in the order of their declaration: {store=, trials=, axes= (of
-- each experiment), experiments=, labels=, title= (or nil), ordered= (names that
-- an order of lines has named: curves.lua), older= (the number of trials dropped
-- because newer code ran them again)}. all: drops none.
function groups.set(store, ids, all)
  local trials, by_experiment, axes = store:declared(ids), {}, {}
  local kept, older = started_last(trials)
  if all then kept, older = trials, 0 end
  for _, t in ipairs(kept) do
    by_experiment[t.experiment] = by_experiment[t.experiment] or {}
    table.insert(by_experiment[t.experiment], t)
  end
  for name, list in pairs(by_experiment) do axes[name] = axes_of(list) end
  local experiments = sorted_keys(axes)
  local names, title = presentation(store, experiments)
  return { store = store, trials = kept, axes = axes, experiments = experiments, labels = names,
    title = title, ordered = {}, older = older }
end

-- ---- Names ------------------------------------------------------------------------------------

-- Returns metric -> the largest number of values that a trial has of it, among the first SAMPLE
-- trials.
function groups.metrics(set)
  local found = {}
  for i = 1, math.min(#set.trials, SAMPLE) do
    local sql = "SELECT name, count(*) AS n FROM v_metrics WHERE trial = ? GROUP BY name"
    for _, row in ipairs(set.store:rows(sql, { set.trials[i].id })) do
      found[row.name] = math.max(found[row.name] or 0, row.n)
    end
  end
  return found
end

local function check_name(what, name, known)
  if not known[name] then
    errors.usage("plot: these trials have no %s '%s'%s", what, name,
      suggest.hint(name, sorted_keys(known)))
  end
end

-- Raises unless the trials have logged the metric.
function groups.check(set, metric)
  local known = groups.metrics(set)
  if not next(known) then
    errors.raise(errors.FAILED, "plot: these trials have logged no metric")
  end
  check_name("metric", metric, known)
end

-- Returns the set of the keys of the configurations.
local function keys_of_all(set)
  local known = { experiment = true }
  for _, t in ipairs(set.trials) do
    for key in pairs(t.config) do known[key] = true end
  end
  return known
end

-- Raises unless the configurations of the trials have the keys.
function groups.check_keys(set, keys)
  local known = keys_of_all(set)
  for _, key in ipairs(keys) do check_name("key", key, known) end
end

-- Returns whether name is a key of the configurations; else it is a metric, or raises.
function groups.is_key(set, name)
  local known = keys_of_all(set)
  if known[name] then return true end
  local metrics = groups.metrics(set)
  for metric in pairs(metrics) do known[metric] = true end
  check_name("key or metric", name, known)
  return false
end

-- ---- Groups -----------------------------------------------------------------------------------

function groups.value(t, key)
  if key == "experiment" and t.config[key] == nil then return t.experiment end
  return t.config[key]
end

-- Returns the keys that distinguish the line of a trial from others.
local function keys_of(set, t, o)
  local keys = o.by and table.move(o.by, 1, #o.by, 1, {}) or {}
  for _, key in ipairs(o.by and {} or set.axes[t.experiment]) do
    if not (o.without or {})[key] then keys[#keys + 1] = key end
  end
  if o.each then keys[#keys + 1] = "seed" end
  return keys
end

-- Names a line; the experiment is included if the trials are of several or if requested.
local function name_of(set, t, keys, o)
  local named = #set.experiments > 1 and not o.by
  for _, key in ipairs(keys) do
    named = named or key == "experiment" and t.config[key] == nil
  end
  local label = set.labels:parts(t.config, keys)
  return named and t.experiment .. (label ~= "" and " " .. label or "") or label
end

-- Returns how well a key names the groups: strings are better than numbers, and more different
-- values are better than fewer.
local function naming(list, key)
  local seen, count, text = {}, 0, 0
  for _, g in ipairs(list) do
    local value = groups.value(g.trials[1], key)
    local at = json.encode { value }
    if not seen[at] then seen[at], count = true, count + 1 end
    if type(value) == "string" then text = #list + 1 end
  end
  return text > 0 and text + count or 0
end

-- Returns the set of the keys that the newest sweep of each experiment varied in a zip.
local function zipped(set)
  local keys = {}
  for _, name in ipairs(set.experiments) do
    local newest = sweeps.find(set.store, "experiment", name)[1]
    for _, list in ipairs(newest and set.store:object(newest.plan).zip or {}) do
      for _, key in ipairs(list) do keys[key] = true end
    end
  end
  return keys
end

-- Shortens the labels of groups whose keys vary together, as in named rows: leaves out keys without
-- which all labels still differ, the worst names first. Keys of a zip stay.
local function shorten(set, list, o)
  local all, dropped, stay = {}, {}, zipped(set)
  for _, g in ipairs(list) do
    for _, key in ipairs(g.keys) do
      all[key] = not stay[key] and (all[key] or naming(list, key)) or nil
    end
  end
  local order = sorted_keys(all)
  table.sort(order, function(a, b)
    if all[a] ~= all[b] then return all[a] < all[b] end
    return a > b
  end)
  local function labels()
    local found, seen = {}, {}
    for i, g in ipairs(list) do
      local keys = {}
      for _, key in ipairs(g.keys) do
        if not dropped[key] then keys[#keys + 1] = key end
      end
      found[i] = name_of(set, g.trials[1], keys, o)
      if seen[found[i]] or found[i] == "" then return nil end
      seen[found[i]] = true
    end
    return found
  end
  for _, key in ipairs(order) do
    dropped[key] = true
    if not labels() then dropped[key] = nil end
  end
  for i, label in ipairs(labels() or {}) do list[i].label = label end
end

-- Returns the trials as lists, one for each line: {label=, trials=, keys=}; label is nil if there
-- is only one line or nothing to name. o: by (the keys that distinguish lines; nil: all that vary),
-- each (one line per trial), without (a set of keys to ignore). The other keys distinguish a trial
-- that lacks one; raises a usage error if no trial has a key of `by`.
function groups.of(set, o)
  groups.check_keys(set, o.by or {})
  local list, found = {}, {}
  for _, t in ipairs(set.trials) do
    local keys = keys_of(set, t, o)
    local name = name_of(set, t, keys, o)
    local at = {}
    for i, name_of_key in ipairs(keys) do at[i] = { groups.value(t, name_of_key) } end
    -- Not by the name, which shortens long strings.
    local key = o.each and t.id or name .. "\n" .. json.encode(at)
    if not found[key] then
      found[key] = { label = name, trials = {}, keys = keys }
      list[#list + 1] = found[key]
    end
    table.insert(found[key].trials, t)
  end
  if not o.by and not o.each and #list > 1 then shorten(set, list, o) end
  local seen = {}
  for _, g in ipairs(list) do -- equal trials of different code
    if seen[g.label] then g.label = (g.label .. " " .. g.trials[1].id:sub(1, 7)) end
    seen[g.label] = true
    if #list == 1 or g.label == "" then g.label = nil end
  end
  return list
end

function groups.title(set)
  if set.title then return set.title end
  local names = table.concat(set.experiments, ", ")
  local n = #set.trials
  return n == 1 and names .. " " .. set.trials[1].id:sub(1, 12) or names
end

-- Returns the name of a metric at a training length: "ppl@1.5x" is the one at 1.5 times this
-- length. Returns name unchanged if the length is unknown (nil) or the product is not an integer.
function groups.at_length(name, length)
  return (name:gsub("@([%d.]+)x$", function(times)
    local at = length and math.tointeger(tonumber(times) * length)
    return at and ("@%d"):format(at)
  end))
end

-- Returns the place in list of the first of names that was logged (a set) by trials of a training
-- length (nil: unknown), and its name; it is appended to list if it is new there. Returns nil if
-- none was logged.
function groups.place_metric(names, length, logged, list)
  for _, relative in ipairs(names) do
    local name = groups.at_length(relative, length)
    if logged[name] then
      for i, other in ipairs(list) do
        if other == name then return i, name end
      end
      list[#list + 1] = name
      return #list, name
    end
  end
end

return groups
