-- report/compare.lua: compares two values of a key, paired by seed: computes the interval of their
-- difference, and words what may be claimed and how many seeds a claim would need.
local direction = require "toeplab.base.direction"
local filter = require "toeplab.report.filter"
local groups = require "toeplab.report.groups"
local looks = require "toeplab.report.looks"
local config = require "toeplab.base.config"
local json = require "toeplab.base.json"
local stats = require "toeplab.report.stats"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local compare = { ALPHA = 0.05, MOST = 1000 }

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

-- ---- Pairs ------------------------------------------------------------------------------------

-- Splits the trials into {a = {...}, b = {...}}, keeping those that are done and finite; the second
-- result counts the dropped ones of each side, and those of both that diverged; the third is the
-- first with the dropped ones.
local function sides(trials, key, a, b)
  local list, out = { a = {}, b = {} }, { a = 0, b = 0, diverged = 0 }
  local asked = { a = {}, b = {} }
  for _, t in ipairs(trials) do
    local v = t.values[1]
    for side, text in pairs { a = a, b = b } do
      if filter.says(t.point.values[key], { text }) then
        table.insert(asked[side], t)
        if t.status == "done" and v and v - v == 0 then
          table.insert(list[side], t)
        else
          t.diverged = t.status == "guard" or t.status == "done" and v and v - v ~= 0
          out[side], out.diverged = out[side] + 1, out.diverged + (t.diverged and 1 or 0)
        end
      end
    end
  end
  return list, out, asked
end

-- Returns the values of a key among trials, each as it is shown: two of them may read alike, as do
-- long texts that begin alike. The second result is the set of their exact texts.
local function values_of(trials, key)
  local list, seen = {}, {}
  for _, t in ipairs(trials) do
    local v = t.point.at[key]
    local text = json.encode { v }
    if not seen[text] then
      seen[text], list[#list + 1] = true, v == nil and "-" or config.show(v)
    end
  end
  return list, seen
end

-- Separates the axes other than key into those that vary within a side, and those whose value
-- follows from key: {name=, a=, b=}. list: the done trials of each side; asked: all of them, since
-- a key with several values may have only one among those that are done. A key that was tuned
-- follows from the point, not only from key, and separates nothing.
local function other_axes(pool, key, list, asked)
  local vary, along = {}, {}
  local both = table.move(asked.a, 1, #asked.a, 1, {})
  table.move(asked.b, 1, #asked.b, #both + 1, both)
  for _, name in ipairs(pool:own_axes(both)) do
    local a, set_a = values_of(list.a, name)
    local b, set_b = values_of(list.b, name)
    local tuned = name == pool.plan.tuned_key
    local of = tuned and list or asked
    local several = #values_of(of.a, name) > 1 or #values_of(of.b, name) > 1
    if name ~= key and several and not tuned then
      vary[#vary + 1] = name
    elseif name ~= key and not several and a[1] and b[1] and not set_b[next(set_a)] then
      along[#along + 1] = { name = name, a = a[1], b = b[1] }
    end
  end
  return vary, along
end

local function place(t, keys)
  local at = {}
  for _, name in ipairs(keys) do at[name] = t.point.at[name] end
  local label = groups.label(at, keys)
  return json.encode(at), label ~= "" and label or "all"
end

-- Returns rows of pairs: {label=, a = {values}, b = {values}, alone= (trials without a partner),
-- diverged = {a=, b=} (how many of asked)}. Raises a usage error if two trials of a side have the
-- same row and seed, as those of 1 and 1.0 have.
local function pair(list, asked, keys)
  local rows, found = {}, {}
  local function row_of(t)
    local text, label = place(t, keys)
    if not found[text] then
      found[text] = { label = label, a = {}, b = {}, of = { a = {}, b = {} }, alone = 0,
        diverged = { a = 0, b = 0 } }
      rows[#rows + 1] = found[text]
    end
    return found[text]
  end
  for side, trials in pairs(list) do
    for _, t in ipairs(trials) do
      local row = row_of(t)
      local other = row.of[side][t.seed]
      if other then
        errors.usage("compare: the trials %s and %s have the same place, %s, and seed %d: take one "
          .. "away with toeplab rm", other.id:sub(1, 12), t.id:sub(1, 12), row.label, t.seed)
      end
      row.of[side][t.seed] = t
    end
  end
  for side, trials in pairs(asked) do
    for _, t in ipairs(trials) do
      local row = found[place(t, keys)]
      if row and t.diverged then row.diverged[side] = row.diverged[side] + 1 end
    end
  end
  for _, row in ipairs(rows) do
    local seeds = {}
    for seed in pairs(row.of.a) do seeds[#seeds + 1] = seed end
    table.sort(seeds)
    for seed in pairs(row.of.b) do row.alone = row.alone + (row.of.a[seed] and 0 or 1) end
    for _, seed in ipairs(seeds) do
      if row.of.b[seed] then
        table.insert(row.a, row.of.a[seed].values[1])
        table.insert(row.b, row.of.b[seed].values[1])
      else
        row.alone = row.alone + 1
      end
    end
  end
  table.sort(rows, function(x, y) return x.label < y.label end)
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

-- Returns how many seeds a row needs to show a difference. Where looks added seeds, the level of
-- the test depends on their number (looks.alpha), so the estimate is repeated with its result.
local function seeds_for(result, row, difference)
  local n = #row.a
  for _ = 1, 2 do
    local alpha = looks.alpha(result.pool, n) / compare.ALPHA * result.alpha
    n = stats.pairs_needed(row.difference.deviation, difference, nil, 1 - alpha)
  end
  return n
end

local function judge(result)
  local ps, of = {}, {}
  for _, row in ipairs(result.rows) do
    local alpha = looks.alpha(result.pool, #row.a)
    row.difference = stats.paired(row.a, row.b, 1 - alpha)
    row.chance = #row.a > 0 and stats.improvement(row.a, row.b, result.better) or nil
    if row.difference and row.difference.p then
      ps[#ps + 1], of[#of + 1] = row.difference.p * compare.ALPHA / alpha, row
    end
  end
  result.tests = #ps
  result.alpha = compare.ALPHA / math.max(1, #ps) -- Holm's bound for the smallest p
  for i, p in ipairs(stats.holm(ps)) do of[i].p = p end
  for _, row in ipairs(of) do
    row.good = (row.difference.mean < 0) == (result.better == "lower") and "b" or "a"
    -- Its values that diverged are not among those that are compared.
    row.flattered = row.diverged[row.good] > 0
    row.claimed = row.p < compare.ALPHA and not row.flattered
    -- Equal values say nothing of how many seeds would show a difference.
    row.needed = row.difference.half > 0 and not row.flattered
      and seeds_for(result, row, row.difference.mean) or nil
  end
end

local function overall(result)
  local strata, count, alpha = {}, 0, compare.ALPHA
  for _, row in ipairs(result.rows) do
    local differences = {}
    for i, v in ipairs(row.a) do differences[i] = stats.difference(v, row.b[i]) end
    if #differences > 1 then
      strata[#strata + 1], count = differences, count + #differences
      alpha = math.min(alpha, looks.alpha(result.pool, #differences))
    end
  end
  if #strata < 2 then return nil end
  local all = {}
  for _, list in ipairs(strata) do table.move(list, 1, #list, #all + 1, all) end
  local low, high = stats.bootstrap(strata, stats.middle_mean, 1 - alpha)
  return { mean = stats.middle_mean(all), low = low, high = high, pairs = count }
end

-- Compares b with a, two values of key (as texts), by metric. better: "lower" or "higher", nil: as
-- the pool says (frames.lua); by: a list of keys, or nil for all others that vary.
-- Returns {key=, a=, b=, metric=, better=, rows=, overall= (nil for fewer than two rows of several
-- pairs), along=, out=, seconds= (the mean of a trial, or nil), tests= (the number of rows that
-- Holm's correction counts), alpha= (Holm's bound for the smallest p)}. A row is {label=, a=, b=
-- (values by seed), difference= (of stats.paired), chance= (the share of pairs in which b is
-- better), p= (after Holm), claimed=, needed= (seeds), alone= (trials without a partner)}. Raises a
-- usage error if a or b has no trial.
function compare.new(pool, key, a, b, metric, better, by)
  local trials = pool:trials { metric }
  local list, out, asked = sides(trials, key, a, b)
  for _, side in ipairs { { "a", a }, { "b", b } } do
    if #list[side[1]] + out[side[1]] == 0 then
      local values = {}
      for _, t in ipairs(trials) do values[#values + 1] = t.point.values[key] end
      filter.none_has(pool:title(), key, side[2], values)
    end
  end
  local vary, along = other_axes(pool, key, list, asked)
  if by then check_by(pool, by, vary, key) end
  local result = { key = key, a = a, b = b, metric = metric, along = along, out = out, pool = pool,
    better = better or direction.needed(pool.plan.better, metric, "compare", "--higher or --lower"),
    sides = list, rows = pair(list, asked, by or vary) }
  judge(result)
  result.overall = overall(result)
  local seconds, count = 0.0, 0
  for _, side in pairs(list) do
    for _, t in ipairs(side) do
      if t.seconds then seconds, count = seconds + t.seconds, count + 1 end
    end
  end
  result.seconds = count > 0 and seconds / count or nil
  return result
end

-- ---- Words ------------------------------------------------------------------------------------

local function sentence_of(result, row)
  local d = row.difference
  local where = #result.rows > 1 and row.label .. ": " or ""
  if not d then return where .. "no seed has both" end
  if d.n < 2 then return where .. "one pair: no difference can be judged" end
  if row.claimed then
    local low, high = math.abs(d.low), math.abs(d.high)
    return ("%s%s=%s is %s than %s=%s: by %.4g, %.3g %% interval %.4g to %.4g (t, paired)"):format(
      where, result.key, result.b, row.good == "b" and "better" or "worse", result.key, result.a,
      math.abs(d.mean), 100 * (1 - looks.alpha(result.pool, #row.a)), math.min(low, high),
      math.max(low, high))
  end
  if d.half == 0 and d.mean == 0 then
    return ("%sequal at each of %d seeds: nothing varies, so that no test applies"):format(where,
      d.n)
  elseif not d.p then
    return ("%sby %.4g at each of %d seeds: nothing varies, so that no test applies"):format(where,
      d.mean, d.n)
  end
  local open = d.low <= 0 and d.high >= 0
  local reason = open and "the interval contains 0"
    or row.flattered and ("the side that looks better diverged at %d seed%s"):format(
      row.diverged[row.good], row.diverged[row.good] == 1 and "" or "s")
    or "not after Holm's correction for " .. result.tests .. " rows"
  return ("%sundecided (%s): neither that they differ nor that they are equal may be claimed%s")
    :format(where, reason, open and ("; differences below %.4g are too small for these seeds")
      :format(d.half) or "")
end

local function least_pairs(result)
  local least, alpha, needed = nil, result.alpha, 1
  for _, row in ipairs(result.rows) do
    least = #row.a > 0 and math.min(least or #row.a, #row.a) or least
  end
  local function least_p(n) -- corrected for looks, as the p of the rows are
    return math.min(1.0, stats.least_p(n) * compare.ALPHA / looks.alpha(result.pool, n))
  end
  while least_p(needed) >= alpha do needed = needed + 1 end
  local p = least_p(least or 1)
  if least and least < needed then
    return ("%d paired seed%s cannot reach p < %.2g%s unless the differences are taken as normal "
      .. "(the smallest sign-flip p is %.4g); %d can"):format(least, least == 1 and "" or "s",
      alpha, alpha < compare.ALPHA and ", which Holm's correction asks of the first row," or "", p,
      needed)
  end
end

-- Returns the number of seeds that decides every row which is still open if its true difference is
-- the measured one or, with `resolve`, that detects a difference of this size in every row; nil if
-- no row needs or allows an estimate. The other results: whether a row has fewer than it needs, and
-- the fewest that one of these rows has.
local function needed(result, resolve)
  local most, least, lacks = nil, math.huge, false
  for _, row in ipairs(result.rows) do
    local d = row.difference
    local n = resolve and d and d.n > 1 and seeds_for(result, row, resolve)
      or not resolve and not row.claimed and row.needed or nil
    if n then
      most, least, lacks = math.max(most or n, n), math.min(least, d.n), lacks or n > d.n
    end
  end
  return most, lacks, least
end

-- Returns a value as the command line takes it; nil for what it might take otherwise.
local function word_of(value)
  if type(value) == "string" then return value:match "^[%w_.+-]+$" end
  return type(value) ~= "table" and value ~= nil and config.text(value) or nil
end

-- Returns the only value of a key among trials as a word; nil if there are several or none.
local function only(trials, key)
  local word
  for _, t in ipairs(trials) do
    local own = word_of(t.point.values[key])
    if not own or word and own ~= word then return nil end
    word = own
  end
  return word
end

-- Returns what a command sets to run only what is compared, key -> word; nil if it cannot set the
-- compared key by itself.
local function chosen(result, list)
  local alone, at = result.pool:free_keys(), {}
  local a, b = only(list.a, result.key), only(list.b, result.key)
  if not alone[result.key] or not a or not b then return nil end
  local both = table.move(list.b, 1, #list.b, #list.a + 1, table.move(list.a, 1, #list.a, 1, {}))
  for key in pairs(result.pool.filters) do
    at[key] = alone[key] and result.pool.axes[key] and only(both, key) or nil
  end
  at[result.key] = { a, b }
  return at
end

-- Returns the newest sweep of the pool that asked for trials of both sides; nil if none did.
local function sweep_of_both(result, list)
  for _, s in ipairs(result.pool.sweeps) do
    local both = true
    for _, trials in pairs(list) do
      local sql = "SELECT 1 AS one FROM v_members WHERE sweep = ? AND trial = ? LIMIT 1"
      both = both and trials[1] and #result.pool.store:rows(sql, { s.id, trials[1].id }) > 0
    end
    if both then return s end
  end
end

-- Returns how many trials of what is compared n seeds lack.
local function lacking(list, n)
  local have, count = {}, 0
  for _, trials in pairs(list) do
    for _, t in ipairs(trials) do
      have[t.point] = (have[t.point] or 0) + (t.seed >= 1 and t.seed <= n and 1 or 0)
    end
  end
  for _, seeds in pairs(have) do count = count + n - seeds end
  return count
end

local function more_seeds(result, resolve, duration)
  local n, lacks, have = needed(result, resolve)
  if not n then return {} end
  local what = resolve and ("to resolve ±%.4g"):format(resolve)
    or "if the true difference is the measured one, to show it"
  if n > compare.MOST then
    return { ("%s: more than %d seeds"):format(what, compare.MOST) }
  end
  if not lacks then
    return { ("%s: %d seeds, and there are %d"):format(what, n, have) }
  end
  local list, seed = result.sides, result.pool.plan.tuned_seed
  if seed and n >= seed then
    return { ("%s: about %d seeds, and seed %d chooses the %s: give a list of seeds without it")
      :format(what, n, seed, result.pool.plan.tuned_key) }
  end
  local trials = lacking(list, n)
  local time = result.seconds and ", about " .. duration(trials * result.seconds) or ""
  return { ("%s (4 times in 5): about %d seeds, %d trial%s more of what is compared%s"):format(what,
    n, trials, trials == 1 and "" or "s", time),
    result.pool:command(chosen(result, list), "seeds=" .. n, sweep_of_both(result, list)) }
end

-- Returns lines of text that state what may be claimed. duration: a function seconds -> text.
function compare.words(result, resolve, duration)
  local lines = {}
  for _, row in ipairs(result.rows) do lines[#lines + 1] = sentence_of(result, row) end
  for _, a in ipairs(result.along) do
    lines[#lines + 1] = ("with %s goes %s: %s and %s"):format(result.key, a.name, a.a, a.b)
  end
  lines[#lines + 1] = least_pairs(result)
  lines[#lines + 1] = looks.corrected(result.pool)
  local out, alone = result.out.a + result.out.b, 0
  for _, row in ipairs(result.rows) do alone = alone + row.alone end
  local function add(n, one, many)
    if n > 0 then lines[#lines + 1] = n .. " trial" .. (n == 1 and one or many) end
  end
  local why = "not done, or without a finite " .. result.metric
  add(out, " is left out: " .. why, "s are left out: " .. why)
  add(result.out.diverged, " of these diverged: its side looks better than it is without it",
    "s of these diverged: their sides look better than they are without them")
  add(alone, " has no partner of the same seed", "s have no partner of the same seed")
  local more = more_seeds(result, resolve, duration)
  return table.move(more, 1, #more, #lines + 1, lines)
end

return compare
