-- report/compare.lua: compares values of a key with one of them, the baseline: pairs their trials
-- by seed for judgement.lua, and words what may be claimed and how many seeds a claim would need.
local direction = require "toeplab.base.direction"
local filter = require "toeplab.report.filter"
local groups = require "toeplab.report.groups"
local judgement = require "toeplab.report.judgement"
local config = require "toeplab.base.config"
local json = require "toeplab.base.json"
local quantity = require "toeplab.base.quantity"
local stats = require "toeplab.report.stats"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local compare = {}

local MOST = 1000 -- seeds that a command is proposed for

-- Returns the default metric of a comparison: the first logged one among the columns of the pool's
-- report or, failing that, of the tables that it reproduces; nil if there is none. logged: a set.
function compare.metric(pool, logged)
  local lists = { pool.plan.columns or {} }
  for _, column in ipairs(pool:columns()) do lists[#lists + 1] = column.metrics end
  for _, names in ipairs(lists) do
    local _, name = groups.place_metric(names, pool.fixed.length, logged, {})
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
local function sides_of(pool, trials, key, texts)
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
      filter.none_has(pool:title(), key, text, values)
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
local function other_axes(pool, key, sides)
  local vary, along = {}, {}
  for _, name in ipairs(pool:own_axes(together(sides, "asked"))) do
    local tuned, values, lead = name == pool.plan.tuned_key, { name = name }, nil
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

-- Returns the places of the trials, by label: {label=, diverged= (how many of each side), and for
-- each side with done trials a table seed -> trial}. keys: those that tell places apart. Raises a
-- usage error if two trials of a side have the same place and seed, as those of 1 and 1.0 have.
local function places_of(sides, keys)
  local list, found = {}, {}
  for s, side in ipairs(sides) do
    for _, t in ipairs(side.asked) do
      local at = {}
      for _, name in ipairs(keys) do at[name] = t.point.at[name] end
      local text, label = json.encode(at), groups.label(at, keys)
      if not found[text] then
        found[text] = { label = label ~= "" and label or "all", diverged = {} }
        list[#list + 1] = found[text]
      end
      local p = found[text]
      p.diverged[s] = (p.diverged[s] or 0) + (t.diverged and 1 or 0)
      p[s] = p[s] or t.value and {}
      local other = t.value and p[s][t.seed]
      if other then
        errors.usage("compare: the trials %s and %s have the same place, %s, and seed %d: take one "
          .. "away with toeplab rm", other.id:sub(1, 12), t.id:sub(1, 12), p.label, t.seed)
      end
      if t.value then p[s][t.seed] = t end
    end
  end
  table.sort(list, function(x, y) return x.label < y.label end)
  return list
end

local function values_by_seed(trials)
  local values = {}
  for seed, t in pairs(trials or {}) do values[seed] = t.value end
  return values
end

-- Returns the pairs (judgement.pair) of each other side with the baseline, for each place at which
-- one of them has a result, with label, setting (the text of the side) and diverged {a=, b=}.
local function rows_of(result, keys)
  local rows, places = {}, places_of(result.sides, keys)
  for s = 2, #result.sides do
    local setting = result.sides[s].text
    for _, p in ipairs(places) do
      local row, seed = judgement.pair(values_by_seed(p[1]), values_by_seed(p[s]), result.ratio)
      if not row then
        local t = p[1][seed].value <= 0 and p[1][seed] or p[s][seed]
        errors.usage("compare: trial %s has %s = %g, and a ratio needs values above 0: compare "
          .. "without --ratio", t.id:sub(1, 12), result.metric, t.value)
      end
      row.place, row.setting = p.label, setting
      row.diverged = { a = p.diverged[1] or 0, b = p.diverged[s] or 0 }
      row.label = #result.sides == 2 and p.label
        or ("%s=%s%s"):format(result.key, setting, p.label ~= "all" and " " .. p.label or "")
      if p[1] or p[s] then rows[#rows + 1] = row end
    end
  end
  return rows
end

-- ---- The comparison ---------------------------------------------------------------------------

local function check_by(pool, by, vary, key)
  local set = {}
  for _, name in ipairs(by) do
    set[name] = true
    if not pool.axes[name] then
      errors.usage("compare: --by %s: it does not vary in %s%s", name, pool:title(),
        suggest.hint(name, sorted_keys(pool.axes)))
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

-- Judges the rows. A side that diverged at a seed is not claimed to be better: its values that
-- diverged are not among those that are compared.
local function judge(result)
  result.tests = judgement.judge(result.rows, result.pool)
  for _, row in ipairs(result.rows) do
    row.chance = #row.x > 0 and stats.improvement(row.a, row.b, result.better) or nil
    if row.p then
      row.good = (row.mean < 0) == (result.better == "lower") and "b" or "a"
      row.flattered = row.diverged[row.good] > 0
      row.claimed = row.decided and not row.flattered
    end
  end
end

-- Compares values of a key (as texts) with the first of them, the baseline, by metric. options:
-- ratio= (whether by ratios of geometric means, not by differences), better= ("lower" or "higher",
-- nil: as the pool says), by= (a list of keys, nil: all others that vary).
-- Returns {pool=, key=, metric=, better=, ratio=, sides= (sides_of; with overall=, of its rows, by
-- judgement.overall), rows=, along=, seconds= (the mean of a trial, or nil), tests= (the number of
-- rows that Holm's correction counts)}. A row is a judged pair with label, place, setting, chance
-- (the share of pairs in which b is better) and claimed. Raises a usage error if a value has no
-- trial.
function compare.new(pool, key, texts, metric, options)
  options = options or {}
  local sides = sides_of(pool, pool:trials { metric }, key, texts)
  local vary, along = other_axes(pool, key, sides)
  if options.by then check_by(pool, options.by, vary, key) end
  local result = { pool = pool, key = key, metric = metric, ratio = options.ratio, sides = sides,
    along = along, better = options.better
      or direction.needed(pool.plan.better, metric, "compare", "--higher or --lower") }
  result.rows = rows_of(result, options.by or vary)
  judge(result)
  for s = 2, #sides do
    local own = {}
    for _, row in ipairs(result.rows) do own[#own + 1] = row.setting == texts[s] and row or nil end
    sides[s].overall = judgement.overall(own, pool)
  end
  local seconds = {}
  for _, t in ipairs(together(sides, "done")) do seconds[#seconds + 1] = t.seconds end
  result.seconds = #seconds > 0 and stats.mean(seconds) or nil
  return result
end

-- ---- Words ------------------------------------------------------------------------------------

local function sentence_of(result, row)
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
    or "not after Holm's correction for " .. result.tests .. " rows"
  local small = ratio and "ratios within a factor of %.4g" or "differences below %.4g"
  return ("%sundecided (%s): neither that they differ nor that they are equal may be claimed%s")
    :format(where, reason, open and ("; " .. small .. " are too small for these seeds")
      :format(ratio and math.exp(row.half) or row.half) or "")
end

-- Returns the line of judgement.least_pairs for the row with the fewest pairs, if there is one.
local function least_pairs(result)
  local least = math.huge
  for _, row in ipairs(result.rows) do least = #row.x > 0 and math.min(least, #row.x) or least end
  return judgement.least_pairs(least, result.tests, result.ratio, function(n)
    return judgement.alpha(result.pool, n)
  end)
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
    local n = mean and row.half and judgement.seeds(row, result.pool, result.tests, mean)
    if n then
      most, least, lacks = math.max(most or n, n), math.min(least, #row.x), lacks or n > #row.x
    end
  end
  return most, lacks, least
end

-- Returns what a command sets to run only what is compared, key -> value; nil if it cannot set the
-- compared key by itself.
local function chosen(result)
  local alone, at, both = result.pool:free_keys(), {}, together(result.sides, "done")
  local function only(trials, key) -- a value that all of them have
    local count, _, value = distinct(trials, key)
    if alone[key] and count == 1 and type(value) ~= "table" then return value end
  end
  for key in pairs(result.pool.filters) do at[key] = only(both, key) end
  at[result.key] = {}
  for s, side in ipairs(result.sides) do
    at[result.key][s] = only(side.done, result.key)
    if at[result.key][s] == nil then return nil end
  end
  return at
end

-- Returns the newest sweep of the pool that asked for trials of all sides; nil if none did.
local function sweep_of_all(result)
  for _, s in ipairs(result.pool.sweeps) do
    local all = true
    for _, side in ipairs(result.sides) do
      local sql = "SELECT 1 AS one FROM v_members WHERE sweep = ? AND trial = ? LIMIT 1"
      local t = side.done[1]
      all = all and t and #result.pool.store:rows(sql, { s.id, t.id }) > 0
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
  local seed = result.pool.plan.tuned_seed
  if seed and n >= seed then
    return { ("%s: about %d seeds, and seed %d chooses the %s: give a list of seeds without it")
      :format(what, n, seed, result.pool.plan.tuned_key) }
  end
  local trials = lacking(result.sides, n)
  local time = result.seconds and ", about " .. duration(trials * result.seconds) or ""
  return { ("%s (4 times in 5): about %d seeds, %s more of what is compared%s"):format(what, n,
    quantity.count(trials, "trial"), time),
    result.pool:command(chosen(result), "seeds=" .. n, sweep_of_all(result)) }
end

-- Returns lines of text that state what may be claimed. duration: a function seconds -> text.
function compare.words(result, resolve, duration)
  local lines, out, diverged, alone = {}, 0, 0, 0
  local function add(n, one, many)
    if n > 0 then lines[#lines + 1] = quantity.count(n, "trial") .. (n == 1 and one or many) end
  end
  for _, row in ipairs(result.rows) do
    lines[#lines + 1], alone = sentence_of(result, row), alone + row.alone
  end
  for _, a in ipairs(result.along) do
    lines[#lines + 1] = ("with %s goes %s: %s and %s"):format(result.key, a.name,
      table.concat(a, ", ", 1, #a - 1), a[#a])
  end
  lines[#lines + 1] = least_pairs(result)
  lines[#lines + 1] = judgement.corrected(result.pool)
  for _, t in ipairs(together(result.sides, "asked")) do
    out, diverged = out + (t.value and 0 or 1), diverged + (t.diverged and 1 or 0)
  end
  local why = "left out: not done, or without a finite " .. result.metric
  add(out, " is " .. why, " are " .. why)
  add(diverged, " of these diverged: its side looks better than it is without it",
    " of these diverged: their sides look better than they are without them")
  add(alone, " has no partner of the same seed", " have no partner of the same seed")
  local more = more_seeds(result, resolve, duration)
  return table.move(more, 1, #more, #lines + 1, lines)
end

return compare
