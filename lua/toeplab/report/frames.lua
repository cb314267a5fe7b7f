-- report/frames.lua: finds the trials of an experiment that a table, a comparison, a page or a
-- figure is about, their results, and the keys that vary among them.
--
-- A frame has the trials of all commands of an experiment and scale. If trials at one setting have
-- several versions of the experiment's code or data, the newest command's version counts; the frame
-- reports what it leaves out.
local config = require "toeplab.base.config"
local direction = require "toeplab.base.direction"
local errors = require "toeplab.base.errors"
local filter = require "toeplab.store.filter"
local frame_trials = require "toeplab.report.frame_trials"
local json = require "toeplab.base.json"
local overlay = require "toeplab.base.overlay"
local published_tables = require "toeplab.trials.published_tables"
local quantity = require "toeplab.base.quantity"
local records = require "toeplab.store.records"
local shell = require "toeplab.base.shell"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
local sweeps = require "toeplab.store.sweeps"
local versions = require "toeplab.report.versions"

local frames = {}

local Frame = {}
Frame.__index = Frame

local SHOWN = 60    -- bytes of a text in a command
local SAMPLE = 1000 -- trials that are searched for metrics

-- ---- Sweeps -----------------------------------------------------------------------------------

-- Returns the sweeps with trials that `what` and name select (sweeps.find), newest first,
-- each with its plan, axes (with the keys of named rows) and the configuration of one trial.
local function with_trials(store, what, name)
  local found = {}
  for _, s in ipairs(sweeps.find(store, what, name)) do
    local row = store:rows([[SELECT t.config FROM v_members m JOIN v_trials t ON t.id = m.trial
      WHERE m.sweep = ? ORDER BY m.position LIMIT 1]], { s.id })[1]
    if row then
      s.plan, s.config, s.axes = store:object(s.plan), store:config(row.config), {}
      for _, name_of in ipairs { "axes", "row_keys" } do
        for _, key in ipairs(s.plan[name_of] or {}) do s.axes[key] = true end
      end
      found[#found + 1] = s
    end
  end
  return found
end

-- Returns whether a sweep fits the filters (filter.read) on keys that do not vary in it.
local function fits(s, filters)
  for key, texts in pairs(filters) do
    local value = s.config[key]
    if key == "scale" then value = s.scale end
    if key == "experiment" and value == nil then value = s.experiment end
    if not s.axes[key] and key ~= "seed" and not filter.matches(value, texts) then return false end
  end
  return true
end

-- Raises if a filter is on a key that no trial of the sweeps has.
local function check_keys(list, filters)
  local known = { scale = true, experiment = true, seed = true }
  for _, s in ipairs(list) do
    for key in pairs(s.config) do known[key] = true end
    for key in pairs(s.axes) do known[key] = true end
  end
  for _, key in ipairs(#list > 0 and sorted_keys(filters) or {}) do
    local ok, why = suggest.choose("key", key, sorted_keys(known))
    if not ok then errors.usage("%s=%s: %s", key, filters[key][1], why) end
  end
end

-- Returns the newest sweep that has results, else the newest of all, so that a table stays filled
-- while a run at another scale, or of another experiment that answers it, begins or fails.
local function with_results(store, list)
  for _, s in ipairs(list) do
    if store:rows([[SELECT 1 AS one FROM v_members m JOIN v_trials t ON t.id = m.trial
        WHERE m.sweep = ? AND t.status = 'done' LIMIT 1]], { s.id })[1] then
      return s
    end
  end
  return list[1]
end

-- Returns the name of the experiment and scale of a sweep, or of a frame.
local function title_of(s) return s.experiment .. (s.scale ~= "" and " scale=" .. s.scale or "") end

-- Returns the titles of the experiments and scales of sweeps, in their order, each once, as words
-- that select them: without a scale as "NAME scale=", if the others have one.
local function titles_of(list)
  local titles, seen, scaled = {}, {}, {}
  for _, s in ipairs(list) do scaled[s.experiment] = scaled[s.experiment] or s.scale ~= "" end
  for _, s in ipairs(list) do
    local title = title_of(s)
    if not seen[title] then
      titles[#titles + 1] = title .. (s.scale == "" and scaled[s.experiment] and " scale=" or "")
    end
    seen[title] = true
  end
  return titles
end

-- Sets the fields of a frame that follow from its sweeps: axes (the set of keys that vary), between
-- (those that vary only from command to command, for example because two gave a different lr=),
-- row_keys (those that named rows set) and fixed (the configuration without the axes and the seed).
local function set_axes(self)
  local newest = self.sweeps[1]
  self.axes, self.between, self.row_keys = {}, {}, {}
  for _, s in ipairs(self.sweeps) do
    for key in pairs(s.axes) do self.axes[key] = true end
    for _, key in ipairs(s.plan.row_keys or {}) do self.row_keys[key] = true end
  end
  for _, s in ipairs(self.sweeps) do
    for key in pairs(overlay(newest.config, s.config)) do
      local same = json.encode { s.config[key] } == json.encode { newest.config[key] }
      if key ~= "seed" and not self.axes[key] and not same then self.between[key] = true end
    end
  end
  for key in pairs(self.between) do self.axes[key] = true end
  self.fixed = config.copy(newest.config)
  for key in pairs(self.axes) do self.fixed[key] = nil end
  self.fixed.seed = nil
end

-- ---- Finding ----------------------------------------------------------------------------------

-- Returns the frame of the newest sweep that fits the filters and that `what` and name select:
-- "answers" and the id of a published table, "experiment" and its name, or "sweep" and its number,
-- for its trials alone. Its fields are store, experiment, scale, script, plan (of the newest
-- sweep), sweeps (newest first), the fields of set_axes, others (the other experiments and scales
-- that `what` and name select) and newer (one of these, if its sweep is newer but has no result).
-- If no sweep fits, returns nil and the list of all of these.
function frames.find(store, what, name, filters)
  local list, all = {}, with_trials(store, what, name)
  local others = titles_of(all)
  for _, s in ipairs(all) do
    if fits(s, filters) then list[#list + 1] = s end
  end
  if #list == 0 then
    check_keys(all, filters)
    return nil, others
  end
  local first, newest = with_results(store, list), list[1]
  if what == "answers" then list = with_trials(store, "experiment", first.experiment) end
  local self = setmetatable({ store = store, filters = filters, experiment = first.experiment,
    scale = first.scale, sweeps = {}, otherwise = {}, others = {} }, Frame)
  for _, s in ipairs(list) do
    if title_of(s) == title_of(first) and fits(s, filters) then
      self.plan, self.script = self.plan or s.plan, self.script or s.script
      table.insert(s.plan.tuned_key == self.plan.tuned_key and self.sweeps or self.otherwise, s)
    end
  end
  set_axes(self)
  for _, label in ipairs(others) do
    local title = label:gsub(" scale=$", "")
    if title ~= self:title() then
      self.newer = title == title_of(newest) and label or self.newer
      table.insert(self.others, label)
    end
  end
  return self
end

-- Returns the frame that a user names: a published table, an experiment, or the number of a sweep;
-- else as frames.find. Without a name, the frame of the experiment in which key varied last.
function frames.named(store, name, filters, key)
  if not name then
    local without = {}
    for _, s in ipairs(sweeps.last(store)) do
      local self, others = frames.find(store, "experiment", s.experiment, filters)
      for _, label in ipairs(self and self.others or {}) do -- of other scales
        if self.axes[key] then break end
        self = frames.find(store, "experiment", s.experiment,
          overlay(filters, { scale = { label:match " scale=(.*)$" or "" } }))
      end
      if self and self.axes[key] then return self end
      table.move(others or {}, 1, #(others or {}), #without + 1, without)
    end
    return nil, without
  end
  local number = math.tointeger(tonumber(name))
  local known = suggest.choose("table", name, published_tables.ids())
  return frames.find(store, number and "sweep" or known and "answers" or "experiment",
    number or name, filters)
end

-- Raises the usage error of a verb for a name that selects no frame. others: what frames.find
-- returned.
function frames.none_is(verb, store, name, others)
  if #others > 0 then
    errors.usage("%s: no trial of %s matches; there are: %s", verb, name,
      table.concat(others, "; "))
  end
  if math.tointeger(tonumber(name)) then
    errors.usage("%s: there is no sweep %s (see toeplab status --json)", verb, name)
  end
  local names = published_tables.ids()
  if suggest.choose("table", name, names) then
    errors.usage("%s: no trial here answers %s (toeplab table lists the experiments that do)",
      verb, name)
  end
  for _, row in ipairs(store:rows "SELECT DISTINCT experiment AS name FROM v_trials") do
    names[#names + 1] = row.name
  end
  local file = name:match "([^/]+)%.lua$"
  errors.usage("%s: there is no table or experiment '%s'%s%s", verb, name,
    file and ": give the name of the experiment, not its file" or "",
    suggest.hint(file or name, names))
end

-- Returns whether the values of the keys in a set determine the value of key in all trials, as a
-- rule of `when` does that gives each task its own length.
function frames.follows(key, set, trials)
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

-- Returns the axes, sorted, except keys of named rows that follow from the other axes; a key that
-- commands gave several values does not follow.
function Frame:own_axes(trials)
  local keys, own = {}, overlay(self.axes)
  for key in pairs(self.row_keys) do own[key] = nil end
  for _, key in ipairs(sorted_keys(self.axes)) do
    if own[key] or not frames.follows(key, own, trials) then keys[#keys + 1] = key end
  end
  return keys
end

Frame.title = title_of

-- Returns what the frame leaves out, with the name that selects it; nil if nothing, or if the
-- trials have not been read.
function Frame:left_out()
  local parts, count, failed, places, numbers = {}, 0, 0, {}, {}
  for i, of in ipairs(self.replaced or {}) do
    count, failed, numbers[i] = count + of.count, failed + of.failed, of.sweep
    places[i] = ("toeplab table %d has %d"):format(of.sweep, of.count)
  end
  if #places == 1 then
    places[1] = places[1]:gsub("%d+$", count == 1 and "it" or "them")
  end
  if count > 0 then
    local key, what = self.plan.tuned_key, quantity.count(count, "trial")
    what = failed == count and ("%s of sweep%s %s"):format(quantity.count(count, "failed trial"),
      #numbers > 1 and "s" or "", table.concat(numbers, ", "))
      or what .. " of earlier code or data"
        .. (key and ", or of an earlier choice of " .. key or "")
    parts[1] = ("%s (%s)"):format(what, table.concat(places, ", "))
  end
  if #self.otherwise > 0 then
    for i, s in ipairs(self.otherwise) do places[i] = ("toeplab table %d"):format(s.id) end
    parts[#parts + 1] = ("%s that chose the %s in another way (%s)"):format(
      quantity.count(#self.otherwise, "command"), self.plan.tuned_key
      or self.otherwise[1].plan.tuned_key, table.concat(places, ", ", 1, #self.otherwise))
  end
  if self.newer then
    parts[#parts + 1] = ("the newer %s, of which no trial is done (toeplab ls %s)"):format(
      self.newer, self.newer)
  end
  return #parts > 0 and shell.named("left out: " .. table.concat(parts, "; ")) or nil
end

-- Returns the columns of the published tables that the experiment reproduces.
function Frame:columns()
  local list = {}
  for _, id in ipairs(self.plan.answers or {}) do
    local columns = published_tables.read(id).columns
    table.move(columns, 1, #columns, #list + 1, list)
  end
  return list
end

-- Returns the key that was tuned for each setting; nil if none was, or if its values stay apart
-- because a filter or the set `apart` (may be nil) names it.
function Frame:tuned_key(apart)
  local key = self.plan.tuned_key
  return key and not self.filters[key] and not (apart and apart[key]) and key or nil
end

-- Returns whether "lower" or "higher" values of a metric are better; nil if unknown.
function Frame:better(metric) return direction.of(self.plan.better, metric) end

-- ---- Trials -----------------------------------------------------------------------------------

-- Returns the set of the names of the metrics that the trials have logged; of a sweep, about SAMPLE
-- trials are searched, evenly spaced.
function Frame:metrics()
  local set = {}
  for _, s in ipairs(self.sweeps) do
    local sql = [[SELECT DISTINCT l.name FROM v_last l WHERE l.trial IN (SELECT trial
      FROM v_members WHERE sweep = ?1 AND position % (1 + (SELECT max(position) FROM v_members
      WHERE sweep = ?1) / ?2) = 0)]]
    for _, row in ipairs(self.store:rows(sql, { s.id, SAMPLE })) do set[row.name] = true end
  end
  return set
end

-- Returns the value of a trial that a filter on key is compared with.
local function filtered(row, key)
  if key == "seed" then return row.seed end
  return row.point.values[key]
end

-- Returns the filters on trials. Filters on scale choose sweeps; filters on experiment too, unless
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
    if not filter.matches(filtered(row, key), texts) then return false end
  end
  return true
end

-- Raises the error that no trial matches; if a single filter matches none, lists the values that
-- there are.
local function none_fits(self, rows, filters)
  for _, key in ipairs(sorted_keys(filters)) do
    local values, some = {}, false
    for _, row in ipairs(rows) do
      values[#values + 1] = filtered(row, key)
      some = some or fits_all(row, { [key] = filters[key] })
    end
    if not some then
      filter.refuse(self:title(), key, filters[key][1], values)
    end
  end
  local left = self:left_out()
  errors.usage("no trial of %s matches%s", self:title(), left and "; " .. left or "")
end

-- Returns the trials that count, of those that were read, and those that others replace (versions).
local function in_force(self, rows)
  local old, is_newest = versions.replaced(rows), versions.newest_choice(self.plan.tuned_key)
  local list, replaced = {}, {}
  for _, row in ipairs(rows) do
    local here = is_newest(row.point.at, row.sweep) and not old[row.id]
    table.insert(here and list or replaced, row)
  end
  return list, replaced
end

-- Returns the trials whose value of the tuned key counts.
local function chosen(self, rows)
  local key, metric = self.plan.tuned_key, self.plan.tuned_metric
  if not self.chosen then
    local results, list = frame_trials.values(self, { metric }), {}
    for i, row in ipairs(rows) do
      list[i] = { at = row.point.at, seed = row.seed, status = row.status,
        result = results(row)[1] }
    end
    local counts = versions.chosen(list, key, self.plan.tuned_goal)
    self.chosen = {}
    for _, row in ipairs(rows) do
      self.chosen[#self.chosen + 1] = counts(row.point.at) and row or nil
    end
  end
  return self.chosen
end

-- Returns the trials, by sweep from the newest on and then in the order of their declaration: {id=,
-- seed=, status=, seconds=, made= (of origins), point=, values=, rule= (of the newest command for
-- the trial that added seeds by a rule, or nil), step= (the first command that requested it; those
-- of one rule count as one)}. They are read once; values: for each metric of the list a number, nan
-- or nil. Trials at the same point share one table point = {values=, at=}: the configuration
-- without the seed, and the part of it that varies. Of a key that was tuned for a setting
-- (trials/tuning.lua) only the value with the better results counts, unless the key is in the set
-- `apart` or a filter names it. Raises a usage error if the filters leave no trial.
function Frame:trials(metrics, apart)
  self.read = self.read or frame_trials.read(self)
  local rows, filters, list = self.read, trial_filters(self), {}
  local current, replaced = in_force(self, rows)
  local values = frame_trials.values(self, metrics)
  local counting = self.plan.tuned_metric and self:tuned_key(apart)
  for _, row in ipairs(counting and chosen(self, current) or current) do
    if fits_all(row, filters) then
      list[#list + 1] = overlay(row, { values = values(row) })
    end
  end
  self.replaced = {}
  for _, row in ipairs(replaced) do
    local last = self.replaced[#self.replaced] -- rows are in the order of the sweeps
    if fits_all(row, filters) then
      if not last or last.sweep ~= row.sweep then
        last = { sweep = row.sweep, count = 0, failed = 0 }
        table.insert(self.replaced, last)
      end
      last.count = last.count + 1
      last.failed = last.failed + (row.status == "failed" and 1 or 0)
    end
  end
  if #list == 0 and #rows > 0 then none_fits(self, rows, filters) end
  return list
end

-- Returns for the id of each trial whether tables count it (true), or another value of the tuned
-- key or a newer version instead (false); nil if no key was tuned.
function Frame:counted()
  if not self:tuned_key() then return nil end
  local set = {}
  for _, row in ipairs(self:trials {}) do set[row.id] = true end
  for _, row in ipairs(self.read) do set[row.id] = set[row.id] or false end
  return set
end

-- Returns the texts of the last events of a kind, such as 'rollback' of the guard, for the trials
-- of any experiment: id -> text.
function Frame:events(kind)
  local set = {}
  for _, row in ipairs(self.store:rows("SELECT trial, text FROM v_events WHERE kind = ?",
    { kind })) do
    set[row.trial] = row.text or ""
  end
  return set
end

-- ---- Commands ---------------------------------------------------------------------------------

-- Returns the set of the keys that a command can set independently: axes of grid that no rule of
-- `when` uses, and keys that commands have set, except those of a zip.
function Frame:free_keys()
  local set = overlay(self.between)
  for _, key in ipairs(self.plan.grid or {}) do set[key] = true end
  for _, s in ipairs(self.sweeps) do
    for _, override in ipairs(s.plan.overrides or {}) do
      local key = override:match "^[^=]*"
      set[key] = set[key] or self.axes[key]
    end
  end
  for _, keys in ipairs(self.plan.zip or {}) do
    for _, key in ipairs(keys) do set[key] = nil end
  end
  return set
end

-- Returns the command that runs the trials at a point (nil: all) with the seeds given by a word, as
-- the command of a sweep (by default the newest) did. Leaves out a tuned key, whose value the
-- command chooses again: with a given value it would run trials that this frame leaves out. A list
-- in `at` has several values of its key.
function Frame:command(at, seeds, sweep)
  -- A long text is shortened to a name that no corpus has, so that a command that is pasted as it
  -- stands is refused.
  local function short(word)
    local key, text = word:match "^([^=]*=)text:(.*)$"
    return key and #text > SHOWN and ("%s<a text of %d bytes>"):format(key, #text) or word
  end
  local words, tuned = { shell.program, "run", self.script }, self.plan.tuned_key
  for _, override in ipairs((sweep or self).plan.overrides or {}) do
    local key = override:match "^[^=]*"
    local replaced = key == "seed" or key == "seeds" or key == "compare" or at and at[key] ~= nil
    if not replaced then words[#words + 1] = short(override) end
  end
  at = overlay(at)
  if tuned then at[tuned] = nil end
  for _, key in ipairs(sorted_keys(at)) do
    words[#words + 1] = short(key .. "=" .. config.text(at[key]))
  end
  words[#words + 1] = seeds
  if self.store.folder ~= records.folder() then
    words[#words + 1], words[#words + 2] = "-C", self.store.folder
  end
  return shell.line(words)
end

return frames
