-- report/verdicts/compare.lua: compares values of a key with one of them, the baseline: pairs their
-- trials by seed for judgement.lua. sentences.lua words what may be claimed.
local cells = require "toeplab.report.cells"
local direction = require "toeplab.base.direction"
local filter = require "toeplab.store.filter"
local groups = require "toeplab.report.groups"
local labels = require "toeplab.report.labels"
local judgement = require "toeplab.report.verdicts.judgement"
local learning_curves = require "toeplab.report.verdicts.learning_curves"
local config = require "toeplab.base.config"
local json = require "toeplab.base.json"
local stats = require "toeplab.report.stats"
local text_error = require "toeplab.report.verdicts.text_error"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
local versions = require "toeplab.report.versions"
local yardsticks = require "toeplab.report.yardsticks"

local compare = {}

-- Returns the default metric of a comparison: the first logged one among the columns of the frame's
-- report or, failing that, of the tables that it reproduces; nil if there is none. logged: a set.
function compare.metric(frame, logged)
  local lists = { frame.plan.columns or {} }
  for _, column in ipairs(frame:columns()) do lists[#lists + 1] = column.metrics end
  for _, names in ipairs(lists) do
    local _, name = groups.place_metric(names, frame.fixed.length, logged, {})
    if name then return name end
  end
end

-- ---- Settings ---------------------------------------------------------------------------------

-- Returns the values of a key among trials, as filter strings, in the order of the trials.
function compare.values(trials, key)
  local texts = {}
  for _, t in ipairs(trials) do
    local v = t.point.values[key]
    if v ~= nil and not filter.matches(v, texts) then
      texts[#texts + 1] = type(v) == "string" and v or config.show(v)
    end
  end
  return texts
end

-- Returns for each value (a string) the side of its trials: {text=, asked= (all), done= (the finite
-- ones, whose `value` is set)}; marks trials that diverged, and those that ended without a result
-- (lost). Raises a usage error if a value has no trial.
local function sides_of(frame, trials, key, texts)
  local sides = {}
  for s, text in ipairs(texts) do
    local side = { text = text, asked = {}, done = {} }
    for _, t in ipairs(trials) do
      if filter.matches(t.point.values[key], { text }) then
        local v = t.status == "done" and t.values[1]
        local finite = v and v - v == 0
        t.value, t.diverged = finite and v or nil, t.status == "guard" or v and not finite
        t.lost = versions.lost[t.status]
        table.insert(side.asked, t)
        if finite then table.insert(side.done, t) end
      end
    end
    if #side.asked == 0 then
      local values = {}
      for _, t in ipairs(trials) do values[#values + 1] = t.point.values[key] end
      filter.refuse(frame:title(), key, text, values)
    end
    sides[s] = side
  end
  return sides
end

-- Returns the trials that all sides have in the list `name`.
function compare.together(sides, name)
  local all = {}
  for _, side in ipairs(sides) do table.move(side[name], 1, #side[name], #all + 1, all) end
  return all
end

-- Returns the number of distinct values of a varying key among trials, and the first one, as an
-- exact string (long strings may be shown alike) and itself.
function compare.distinct(trials, key)
  local count, seen, first = 0, {}, nil
  for _, t in ipairs(trials) do
    local text = json.encode { t.point.at[key] }
    count, seen[text], first = count + (seen[text] and 0 or 1), true, first or text
  end
  return count, first, first and trials[1].point.at[key]
end

-- Separates the axes other than key into those that vary within a side, and those whose value
-- follows from key: {name=, and the value of each side}. Unfinished trials count too, since a key
-- with several values may have only one among the finished ones. A tuned key follows from the
-- point, not only from key, and separates nothing.
local function other_axes(frame, key, sides, tuned_key)
  local vary, along = {}, {}
  for _, name in ipairs(frame:own_axes(compare.together(sides, "asked"))) do
    local tuned, values, lead = name == tuned_key, { name = name }, nil
    local several, lacks, differ = false, false, false
    for s, side in ipairs(sides) do
      local count, first, value = compare.distinct(side.done, name)
      several = several or (tuned and count or compare.distinct(side.asked, name)) > 1
      lead, lacks = lead or first, lacks or not first
      differ = differ or first ~= lead
      values[s] = value == nil and "-" or config.show(value)
    end
    if name ~= key and several and not tuned then
      vary[#vary + 1] = name
    elseif name ~= key and not tuned and not several and differ and not lacks then
      along[#along + 1] = values
    end
  end
  return vary, along
end

-- ---- Pairs ------------------------------------------------------------------------------------

-- Returns a string that identifies the family of a trial: the values of the keys, except the
-- compared one, that vary only from command to command.
local function family_of(t, result)
  local values = {}
  for key in pairs(result.frame.between) do
    values[key] = key ~= result.key and { t.point.at[key] } or nil
  end
  return json.encode(values)
end

-- Returns the places of the trials, by label: {label=, family=, diverged= and lost= (how many of
-- each side), asked= (of each side, its trials), steps= (of each side, what
-- judgement.count_looks takes), and for each side with done trials a table seed -> trial}. keys:
-- those that tell places apart. Raises a usage error if two trials of a side have the same place
-- and seed, as for 1 and 1.0.
local function places_of(result, keys)
  local list, found = {}, {}
  for s, side in ipairs(result.sides) do
    for _, t in ipairs(side.asked) do
      local at = {}
      for _, name in ipairs(keys) do at[name] = t.point.at[name] end
      local text = json.encode { at, t.part and t.part.place }
      local label = labels.none:parts(at, keys)
      if not found[text] then
        local step = t.part and learning_curves.label(t.part)
        found[text] = { diverged = {}, lost = {}, asked = {}, success = {}, steps = {},
          family = family_of(t, result), part = t.part, at = label, values = at,
          label = step and (label ~= "" and label .. " " or "") .. step
            or label ~= "" and label or "all" }
        list[#list + 1] = found[text]
      end
      local p = found[text]
      p.diverged[s] = (p.diverged[s] or 0) + (t.diverged and 1 or 0)
      p.lost[s] = (p.lost[s] or 0) + (t.lost and 1 or 0)
      p.asked[s] = p.asked[s] or {}
      table.insert(p.asked[s], t)
      if result.success and (t.value or t.diverged) then
        p.success[s] = p.success[s] or { 0, 0 }
        local good = t.value and cells.succeeds(result.success, t.value)
        p.success[s] = { p.success[s][1] + (good and 1 or 0), p.success[s][2] + 1 }
      end
      p[s], p.steps[s] = p[s] or t.value and {}, p.steps[s] or {}
      local other = t.value and p[s][t.seed]
      if other then
        errors.usage("compare: the trials %s and %s have the same place, %s, and seed %d: remove "
          .. "one with toeplab rm", other.id:sub(1, 12), t.id:sub(1, 12), p.label, t.seed)
      end
      if t.value then p[s][t.seed] = t end
      if t.value or t.diverged then p.steps[s][t.seed] = t.step end
    end
  end
  table.sort(list, function(x, y)
    if x.part and y.part and x.at == y.at then return x.part.place < y.part.place end
    return x.label < y.label
  end)
  return list
end

-- Returns a field of trials by seed.
local function by_seed(trials, field)
  local values = {}
  for seed, t in pairs(trials or {}) do values[seed] = t[field] end
  return values
end

-- Returns the value of a tuned key (nil: none) that the trials of a place have.
local function tuned_value(key, trials)
  local _, t = next(trials or {})
  return t and key and t.point.values[key]
end

-- Returns the row of a place for a side, a pair (judgement.pair) with label, at (the values of
-- keys), setting (the text of the side), diverged {a=, b=}, lost, tuned {a=, b=} (values), and of
-- the perplexity of a test text text_error (the results of text_error.of).
local function row_of(result, p, s)
  local setting = result.sides[s].text
  local a, b = p[1], p[s]
  local row, seed = judgement.pair(by_seed(a, "value"), by_seed(b, "value"), result.ratio)
  if not row then
    local t = a[seed].value <= 0 and a[seed] or b[seed]
    errors.usage("compare: trial %s has %s = %g, and a ratio needs values above 0: compare "
      .. "without --ratio", t.id:sub(1, 12), result.metric, t.value)
  end
  judgement.count_looks(row, p.steps[1] or {}, p.steps[s] or {})
  row.place, row.setting, row.family = p.label, setting, p.family
  row.part, row.at, row.values = p.part, p.at, p.values
  row.rule = judgement.rule(a or {}) or judgement.rule(b or {})
  row.diverged = { a = p.diverged[1] or 0, b = p.diverged[s] or 0 }
  row.lost = (p.lost[1] or 0) + (p.lost[s] or 0)
  row.tuned = { a = tuned_value(result.tuned_key, a), b = tuned_value(result.tuned_key, b) }
  row.label = #result.sides == 2 and p.label
    or ("%s=%s%s"):format(result.key, setting, p.label ~= "all" and " " .. p.label or "")
  local good, other = p.success[1], p.success[s]
  row.success = good and other and { other[1], other[2], good[1], good[2] } or nil
  local both = table.move(p.asked[1] or {}, 1, #(p.asked[1] or {}), 1, {})
  table.move(p.asked[s] or {}, 1, #(p.asked[s] or {}), #both + 1, both)
  row.untrained = yardsticks.unreached(both, 1, result.metric, 1)
  row.broken = p.asked[1] and p.asked[s] and row.diverged.a + row.diverged.b + row.lost > 0
  if text_error.metrics[result.metric] and not result.curves then
    row.text_error = { text_error.of(result.frame.store, a, b, row.seeds) }
  end
  return row
end

-- Returns the rows of all other sides, for each place at which one of them has a result, or at
-- which trials of both ended without one.
local function rows_of(result, keys)
  local rows, places = {}, places_of(result, keys)
  for s = 2, #result.sides do
    for _, p in ipairs(places) do
      local row = row_of(result, p, s)
      if p[1] or p[s] or row.broken then rows[#rows + 1] = row end
    end
  end
  return rows
end

-- ---- The comparison ---------------------------------------------------------------------------

local function check_by(frame, by, vary, key)
  local set = {}
  for _, name in ipairs(by) do
    set[name] = true
    if not frame.axes[name] then
      errors.usage("compare: --by %s: it does not vary in %s%s", name, frame:title(),
        suggest.hint(name, sorted_keys(frame.axes)))
    end
  end
  for _, name in ipairs(vary) do
    if not set[name] then
      errors.usage("compare: '%s' varies too: add --by %s, or choose with %s=VALUE", name, name,
        name)
    end
  end
  if set[key] then errors.usage("compare: --by %s: this key is being compared", key) end
end

-- Returns the keys without "step", nil if none is left, and whether it was among them and is not a
-- key.
local function without_step(frame, by)
  local list, found = {}, false
  for _, name in ipairs(by or {}) do
    if name == "step" and not frame.axes.step then found = true else list[#list + 1] = name end
  end
  return list[1] and list, found
end

-- Judges the rows of a family. Holm's correction also counts rows in which a side diverged or has
-- seeds without a result, though they may have no p.
local function judge_family(family)
  local counted, untested = {}, 0
  for _, row in ipairs(family) do
    untested = untested + (row.broken and #row.x < 2 and 1 or 0)
    counted[#counted + 1] = row.success and row or nil
  end
  judgement.judge(family, untested)
  judgement.judge_success(counted)
end

-- Judges the rows of each family separately, since a trial run with other values of keys is not
-- part of the question. A side that diverged at a seed is not claimed to be better, since its
-- diverged values are not compared. Nothing is claimed where seeds ended without a result, because
-- their outcome is unknown, nor where all models miss a yardstick of their data.
local function judge(result)
  local families = {}
  for _, row in ipairs(result.rows) do
    families[row.family] = families[row.family] or {}
    table.insert(families[row.family], row)
  end
  result.families = 0
  for _, family in pairs(families) do
    judge_family(family)
    result.families = result.families + 1
  end
  for _, row in ipairs(result.rows) do
    row.chance = #row.x > 0 and stats.improvement(row.a, row.b, result.better) or nil
    if row.success then
      row.claimed = row.decided and row.lost == 0 and not row.untrained
    elseif row.p then
      row.good = (row.mean < 0) == (result.better == "lower") and "b" or "a"
      row.flattered = row.diverged[row.good] > 0
      row.claimed = row.decided and not row.flattered and row.lost == 0 and not row.untrained
    end
  end
end

-- Compares values of a key (as strings) with the first of them, the baseline, by metric. options:
-- ratio= (whether by ratios of geometric means, not by differences), better= ("lower" or "higher",
-- nil: the frame decides), by= (a list of keys, nil: all others that vary; "step": the parts of the
-- training, unless it is a key).
-- Returns {frame=, key=, metric=, better=, ratio=, sides= (sides_of; with overall=, of its rows, by
-- judgement.overall, unless commands gave other keys several values), rows=, along=, tuned_key=
-- (Frame:tuned_key), seconds= (the mean of a trial, or nil), families= (the number of separately
-- judged lists of rows), yardsticks= (yardsticks.of)}. A row is a judged pair with label, place,
-- setting, tests (the rows that Holm's correction counts), chance (the share of pairs in which b is
-- better), untrained (the yardstick that all its models miss, or nil) and claimed. Raises a usage
-- error if a value has no trial.
function compare.new(frame, key, texts, metric, options)
  options = options or {}
  local by, curves = without_step(frame, options.by)
  local apart = { [key] = true }
  for _, name in ipairs(by or {}) do apart[name] = true end
  local trials = frame:trials({ metric, table.unpack(yardsticks.names) }, apart)
  if curves then trials = learning_curves.cut(frame.store, trials, metric) end
  local sides = sides_of(frame, trials, key, texts)
  local tuned_key = frame:tuned_key(apart)
  local vary, along = other_axes(frame, key, sides, tuned_key)
  if by then check_by(frame, by, vary, key) end
  local success = frame.plan.success
  if success and (success.metric ~= metric or curves or options.ratio) then success = nil end
  local result = { frame = frame, key = key, metric = metric, ratio = options.ratio, sides = sides,
    yardsticks = yardsticks.of(compare.together(sides, "asked"), 1),
    tuned_key = tuned_key, along = along, curves = curves, success = success,
    better = options.better
      or success and (success.above and "higher" or "lower")
      or direction.needed(frame.plan.better, metric, "compare", "--higher or --lower") }
  result.rows = rows_of(result, by or vary)
  judge(result)
  for s = 2, #sides do
    local own = {}
    for _, row in ipairs(result.rows) do own[#own + 1] = row.setting == texts[s] and row or nil end
    sides[s].overall = result.families == 1 and not curves and judgement.overall(own) or nil
  end
  local seconds = {}
  for _, t in ipairs(compare.together(sides, "done")) do seconds[#seconds + 1] = t.seconds end
  result.seconds = #seconds > 0 and stats.mean(seconds) or nil
  return result
end

return compare
