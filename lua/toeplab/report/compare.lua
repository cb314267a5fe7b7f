-- report/compare.lua: compares values of a key with one of them, the baseline: pairs their trials
-- by seed for judgement.lua, and words what may be claimed and how many seeds a claim would need.
local cells = require "toeplab.report.cells"
local direction = require "toeplab.base.direction"
local filter = require "toeplab.report.filter"
local groups = require "toeplab.report.groups"
local labels = require "toeplab.report.labels"
local judgement = require "toeplab.report.judgement"
local learning_curves = require "toeplab.report.learning_curves"
local config = require "toeplab.base.config"
local json = require "toeplab.base.json"
local quantity = require "toeplab.base.quantity"
local stats = require "toeplab.report.stats"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local compare = {}

local MOST = 1000 -- seeds that a command is proposed for

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

-- Returns the values of a key among trials, as filters take them, in the order of the trials.
function compare.values(trials, key)
  local texts = {}
  for _, t in ipairs(trials) do
    local v = t.point.values[key]
    if v ~= nil and not filter.says(v, texts) then
      texts[#texts + 1] = type(v) == "string" and v or config.show(v)
    end
  end
  return texts
end

-- Returns for each text the side of its trials: {text=, asked= (all), done= (those that are done
-- and finite, whose `value` is set)}; marks those that diverged. Raises a usage error if a text has
-- no trial.
local function sides_of(frame, trials, key, texts)
  local sides = {}
  for s, text in ipairs(texts) do
    local side = { text = text, asked = {}, done = {} }
    for _, t in ipairs(trials) do
      if filter.says(t.point.values[key], { text }) then
        local v = t.status == "done" and t.values[1]
        local finite = v and v - v == 0
        t.value, t.diverged = finite and v or nil, t.status == "guard" or v and not finite
        table.insert(side.asked, t)
        if finite then table.insert(side.done, t) end
      end
    end
    if #side.asked == 0 then
      local values = {}
      for _, t in ipairs(trials) do values[#values + 1] = t.point.values[key] end
      filter.none_has(frame:title(), key, text, values)
    end
    sides[s] = side
  end
  return sides
end

-- Returns the trials of a list of all sides.
local function together(sides, name)
  local all = {}
  for _, side in ipairs(sides) do table.move(side[name], 1, #side[name], #all + 1, all) end
  return all
end

-- Returns how many values a varying key has among trials, and the first one: exactly as text (two
-- of them may be shown alike, as are long texts that begin alike), and itself.
local function distinct(trials, key)
  local count, seen, first = 0, {}, nil
  for _, t in ipairs(trials) do
    local text = json.encode { t.point.at[key] }
    count, seen[text], first = count + (seen[text] and 0 or 1), true, first or text
  end
  return count, first, first and trials[1].point.at[key]
end

-- Separates the axes other than key into those that vary within a side, and those whose value
-- follows from key: {name=, and the value of each side}. The trials that are not done count, too,
-- since a key with several values may have only one among those that are. A key that was tuned
-- follows from the point, not only from key, and separates nothing.
local function other_axes(frame, key, sides)
  local vary, along = {}, {}
  for _, name in ipairs(frame:own_axes(together(sides, "asked"))) do
    local tuned, values, lead = name == frame.plan.tuned_key, { name = name }, nil
    local several, lacks, differ = false, false, false
    for s, side in ipairs(sides) do
      local count, first, value = distinct(side.done, name)
      several = several or (tuned and count or distinct(side.asked, name)) > 1
      lead, lacks = lead or first, lacks or not first
      differ = differ or first ~= lead
      values[s] = value == nil and "-" or config.show(value)
    end
    if name ~= key and several and not tuned then
      vary[#vary + 1] = name
    elseif name ~= key and not several and differ and not lacks then
      along[#along + 1] = values
    end
  end
  return vary, along
end

-- ---- Pairs ------------------------------------------------------------------------------------

-- Returns a text that tells apart what commands asked that gave keys other values: the values of
-- those keys, without the compared one, that vary only from command to command.
local function family_of(t, result)
  local values = {}
  for key in pairs(result.frame.between) do
    values[key] = key ~= result.key and { t.point.at[key] } or nil
  end
  return json.encode(values)
end

-- Returns the places of the trials, by label: {label=, family=, diverged= (how many of each side),
-- and for each side with done trials a table seed -> trial}. keys: those that tell places apart.
-- Raises a usage error if two trials of a side have the same place and
-- seed, as those of 1 and 1.0 have.
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
        found[text] = { diverged = {}, success = {}, family = family_of(t, result),
          part = t.part, at = label, values = at,
          label = step and (label ~= "" and label .. " " or "") .. step
            or label ~= "" and label or "all" }
        list[#list + 1] = found[text]
      end
      local p = found[text]
      p.diverged[s] = (p.diverged[s] or 0) + (t.diverged and 1 or 0)
      if result.success and (t.value or t.diverged) then
        p.success[s] = p.success[s] or { 0, 0 }
        local good = t.value and cells.succeeds(result.success, t.value)
        p.success[s] = { p.success[s][1] + (good and 1 or 0), p.success[s][2] + 1 }
      end
      p[s] = p[s] or t.value and {}
      local other = t.value and p[s][t.seed]
      if other then
        errors.usage("compare: the trials %s and %s have the same place, %s, and seed %d: take one "
          .. "away with toeplab rm", other.id:sub(1, 12), t.id:sub(1, 12), p.label, t.seed)
      end
      if t.value then p[s][t.seed] = t end
    end
  end
  table.sort(list, function(x, y)
    if x.part and y.part and x.at == y.at then return x.part.place < y.part.place end
    return x.label < y.label
  end)
  return list
end

local function values_by_seed(trials)
  local values = {}
  for seed, t in pairs(trials or {}) do values[seed] = t.value end
  return values
end

-- Returns the pairs (judgement.pair) of each other side with the baseline, for each place at which
-- one of them has a result, with label, at (the values of keys), setting (the text of the side) and
-- diverged {a=, b=}.
local function rows_of(result, keys)
  local rows, places = {}, places_of(result, keys)
  for s = 2, #result.sides do
    local setting = result.sides[s].text
    for _, p in ipairs(places) do
      local row, seed = judgement.pair(values_by_seed(p[1]), values_by_seed(p[s]), result.ratio)
      if not row then
        local t = p[1][seed].value <= 0 and p[1][seed] or p[s][seed]
        errors.usage("compare: trial %s has %s = %g, and a ratio needs values above 0: compare "
          .. "without --ratio", t.id:sub(1, 12), result.metric, t.value)
      end
      row.place, row.setting, row.family = p.label, setting, p.family
      row.part, row.at, row.values = p.part, p.at, p.values
      row.rule = judgement.rule(p[1] or {}) or judgement.rule(p[s] or {})
      row.diverged = { a = p.diverged[1] or 0, b = p.diverged[s] or 0 }
      row.label = #result.sides == 2 and p.label
        or ("%s=%s%s"):format(result.key, setting, p.label ~= "all" and " " .. p.label or "")
      local a, b = p.success[1], p.success[s]
      row.success = a and b and { b[1], b[2], a[1], a[2] } or nil
      if p[1] or p[s] then rows[#rows + 1] = row end
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

-- Judges the rows, those of each family apart, since a trial run with other values of keys is no
-- part of the question. A side that diverged at a seed is not claimed to be better: its values that
-- diverged are not among those that are compared.
local function judge(result)
  local families = {}
  for _, row in ipairs(result.rows) do
    families[row.family] = families[row.family] or {}
    table.insert(families[row.family], row)
  end
  result.families = 0
  for _, family in pairs(families) do
    judgement.judge(family)
    local counted = {}
    for _, row in ipairs(family) do counted[#counted + 1] = row.success and row or nil end
    judgement.judge_success(counted)
    result.families = result.families + 1
  end
  for _, row in ipairs(result.rows) do
    row.chance = #row.x > 0 and stats.improvement(row.a, row.b, result.better) or nil
    if row.success then
      row.claimed = row.decided
    elseif row.p then
      row.good = (row.mean < 0) == (result.better == "lower") and "b" or "a"
      row.flattered = row.diverged[row.good] > 0
      row.claimed = row.decided and not row.flattered
    end
  end
end

-- Compares values of a key (as texts) with the first of them, the baseline, by metric. options:
-- ratio= (whether by ratios of geometric means, not by differences), better= ("lower" or "higher",
-- nil: as the frame says), by= (a list of keys, nil: all others that vary; "step": the parts of the
-- training, unless it is a key).
-- Returns {frame=, key=, metric=, better=, ratio=, sides= (sides_of; with overall=, of its rows, by
-- judgement.overall, unless commands gave other keys several values), rows=, along=, seconds= (the
-- mean of a trial, or nil), families= (in how many lists the rows are judged)}. A row is a judged
-- pair with label, place, setting, tests (the rows that Holm's correction counts), chance (the
-- share of pairs in which b is better) and claimed. Raises a usage error if a value has no
-- trial.
function compare.new(frame, key, texts, metric, options)
  options = options or {}
  local by, curves = without_step(frame, options.by)
  local trials = frame:trials { metric }
  if curves then trials = learning_curves.cut(frame.store, trials, metric) end
  local sides = sides_of(frame, trials, key, texts)
  local vary, along = other_axes(frame, key, sides)
  if by then check_by(frame, by, vary, key) end
  local success = frame.plan.success
  if success and (success.metric ~= metric or curves or options.ratio) then success = nil end
  local result = { frame = frame, key = key, metric = metric, ratio = options.ratio, sides = sides,
    along = along, curves = curves, success = success, better = options.better
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
  for _, t in ipairs(together(sides, "done")) do seconds[#seconds + 1] = t.seconds end
  result.seconds = #seconds > 0 and stats.mean(seconds) or nil
  return result
end

-- ---- Words ------------------------------------------------------------------------------------

local function success_sentence(result, row)
  local k, n, l, m = table.unpack(row.success)
  local where, name = #result.rows > 1 and row.label .. ": " or "", result.key .. "="
  if #result.sides > 2 then where = "" end
  local text = ("%s%s succeeds (%s %s) in %d of %d, %s in %d of %d: "):format(where,
    #result.sides > 2 and row.label or name .. row.setting, result.metric,
    cells.success_text(result.success), k, n, name .. result.sides[1].text, l, m)
  local p = ("Fisher's exact p %.3g%s"):format(row.p, row.tests > 1
    and " after Holm's correction for " .. row.tests .. " rows" or "")
  return text .. (row.claimed and (row.good == "b" and "more often, " or "less often, ")
    or "undecided, ") .. p
end

local function sentence_of(result, row)
  if row.success then return success_sentence(result, row) end
  local mean, low, high = judgement.range(row)
  local n, ratio, where = #row.x, result.ratio, #result.rows > 1 and row.label .. ": " or ""
  if n == 0 then return where .. "no seed has both" end
  if n == 1 then return where .. "one pair: no difference can be judged" end
  local by = ratio and "ratio" or "by"
  if row.claimed then
    local subject = where .. result.key .. "=" .. row.setting
    if #result.sides > 2 then subject = row.label end
    if not ratio then
      mean, low, high = math.abs(mean), math.abs(low), math.abs(high)
      low, high = math.min(low, high), math.max(low, high)
    end
    return ("%s is %s than %s=%s: %s %.4g, %.3g %% interval %.4g to %.4g (t%s, paired)"):format(
      subject, row.good == "b" and "better" or "worse", result.key, result.sides[1].text, by, mean,
      100 * (1 - row.alpha), low, high, ratio and " on the logarithms" or "")
  end
  if row.half == 0 then
    return ("%s%s at each of %d seeds: nothing varies, so that no test applies"):format(where,
      row.mean == 0 and "equal" or ("%s %.4g"):format(by, mean), n)
  end
  local open = row.low <= 0 and row.high >= 0
  local reason = open and "the interval contains " .. (ratio and 1 or 0)
    or row.flattered and "the side that looks better diverged at "
      .. quantity.count(row.diverged[row.good], "seed")
    or "not after Holm's correction for " .. row.tests .. " rows"
  local small = ratio and "ratios within a factor of %.4g" or "differences below %.4g"
  return ("%sundecided (%s): neither that they differ nor that they are equal may be claimed%s")
    :format(where, reason, open and ("; " .. small .. " are too small for these seeds")
      :format(ratio and math.exp(row.half) or row.half) or "")
end

-- Returns the number of seeds that decides every row which is still open if its true mean is the
-- measured one or, with `resolve`, that detects a difference of this size (a ratio of 1 + resolve)
-- in every row; nil if no row needs or allows an estimate. The other results: whether a row has
-- fewer than it needs, and the fewest that one of these rows has.
local function needed(result, resolve)
  local most, least, lacks = nil, math.huge, false
  for _, row in ipairs(result.rows) do
    local mean = resolve and (result.ratio and math.log(1 + resolve) or resolve)
      or row.p and not row.claimed and not row.flattered and row.half > 0 and row.mean
    local n = mean and row.half and judgement.seeds(row, row.tests, mean)
    if n then
      most, least, lacks = math.max(most or n, n), math.min(least, #row.x), lacks or n > #row.x
    end
  end
  return most, lacks, least
end

-- Returns what a command sets to run only what is compared, key -> value; nil if it cannot set the
-- compared key by itself.
local function chosen(result)
  local alone, at, both = result.frame:free_keys(), {}, together(result.sides, "done")
  local function only(trials, key) -- a value that all of them have
    local count, _, value = distinct(trials, key)
    if alone[key] and count == 1 and type(value) ~= "table" then return value end
  end
  for key in pairs(result.frame.filters) do at[key] = only(both, key) end
  at[result.key] = {}
  for s, side in ipairs(result.sides) do
    at[result.key][s] = only(side.done, result.key)
    if at[result.key][s] == nil then return nil end
  end
  return at
end

-- Returns the newest sweep of the frame that asked for trials of all sides; nil if none did.
local function sweep_of_all(result)
  for _, s in ipairs(result.frame.sweeps) do
    local all = true
    for _, side in ipairs(result.sides) do
      local sql = "SELECT 1 AS one FROM v_members WHERE sweep = ? AND trial = ? LIMIT 1"
      local t = side.done[1]
      all = all and t and #result.frame.store:rows(sql, { s.id, t.id }) > 0
    end
    if all then return s end
  end
end

-- Returns how many trials of what is compared n seeds lack.
local function lacking(sides, n)
  local have, count = {}, 0
  for _, t in ipairs(together(sides, "done")) do
    have[t.point] = (have[t.point] or 0) + (t.seed >= 1 and t.seed <= n and 1 or 0)
  end
  for _, seeds in pairs(have) do count = count + n - seeds end
  return count
end

local function more_seeds(result, resolve, duration)
  local n, lacks, have = needed(result, resolve)
  if not n then return {} end
  local what = not resolve and ("if the true %s is the measured one, to show it"):format(
      result.ratio and "ratio" or "difference")
    or (result.ratio and "to resolve a ratio of %.4g" or "to resolve ±%.4g"):format(
      result.ratio and 1 + resolve or resolve)
  if n > MOST then
    return { ("%s: more than %d seeds"):format(what, MOST) }
  end
  if not lacks then
    return { ("%s: %d seeds, and there are %d"):format(what, n, have) }
  end
  local seed = result.frame.plan.tuned_seed
  if seed and n >= seed then
    return { ("%s: about %d seeds, and seed %d chooses the %s: give a list of seeds without it")
      :format(what, n, seed, result.frame.plan.tuned_key) }
  end
  local trials = lacking(result.sides, n)
  local time = result.seconds and ", about " .. duration(trials * result.seconds) or ""
  return { ("%s (4 times in 5): about %d seeds, %s more of what is compared%s"):format(what, n,
    quantity.count(trials, "trial"), time),
    result.frame:command(chosen(result), "seeds=" .. n, sweep_of_all(result)) }
end

-- Adds to the lines where the curves cross, at each place.
local function crossings(result, lines)
  local lists, order = {}, {}
  for _, row in ipairs(result.rows) do
    local name = ("%s=%s"):format(result.key, row.setting)
    local id = name .. " " .. row.at
    if not lists[id] then
      lists[id], order[#order + 1] = { name = name, at = row.at }, id
    end
    if row.part then table.insert(lists[id], row) end
  end
  for _, id in ipairs(order) do
    local list = lists[id]
    lines[#lines + 1] = (list.at ~= "" and list.at .. ": " or "") .. learning_curves.crossing(list,
      list.name, ("%s=%s"):format(result.key, result.sides[1].text))
  end
end

-- Returns lines of text that state what may be claimed. duration: a function seconds -> text.
function compare.words(result, resolve, duration)
  local lines, out, diverged, alone = {}, 0, 0, 0
  local function add(n, one, many)
    if n > 0 then lines[#lines + 1] = quantity.count(n, "trial") .. (n == 1 and one or many) end
  end
  for _, row in ipairs(result.curves and {} or result.rows) do
    lines[#lines + 1], alone = sentence_of(result, row), alone + row.alone
  end
  if result.curves then crossings(result, lines) end
  for _, a in ipairs(result.along) do
    lines[#lines + 1] = ("%s varies with %s: %s and %s"):format(a.name, result.key,
      table.concat(a, ", ", 1, #a - 1), a[#a])
  end
  if result.success then
    lines[#lines + 1] = ("p counts the trials that succeed; means of %s and their intervals do not "
      .. "decide, since it jumps"):format(result.metric)
  else
    lines[#lines + 1] = judgement.least_pairs(result.rows, result.ratio)
  end
  lines[#lines + 1] = judgement.corrected(result.rows)
  if result.families > 1 then
    lines[#lines + 1] = ("p is corrected apart for each value of %s, which commands set")
      :format(table.concat(sorted_keys(result.frame.between), ", "))
  end
  local seen, fell = {}, {}
  for _, t in ipairs(together(result.sides, "asked")) do -- of curves a trial for each part
    if not t.value and not seen[t.id] then out, seen[t.id] = out + 1, true end
    if t.diverged and not fell[t.id] then diverged, fell[t.id] = diverged + 1, true end
  end
  local why = "left out: not done, or without a finite " .. result.metric
  add(out, " is " .. why, " are " .. why)
  add(diverged, " of these diverged: its side looks better than it is without it",
    " of these diverged: their sides look better than they are without them")
  add(alone, " has no partner of the same seed", " have no partner of the same seed")
  local more = (result.curves or result.success) and {} or more_seeds(result, resolve, duration)
  return table.move(more, 1, #more, #lines + 1, lines)
end

return compare
