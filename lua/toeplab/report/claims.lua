-- report/claims.lua: judges what a paper claims about a table by the trials that answer the table.
--
-- A claim compares the values of two rows, seed by seed, by their ratio; published_tables.lua says
-- how a table's file declares it. The ratio is that of the geometric means, its interval comes from
-- Student's t on the logarithms of the ratios.
local groups = require "toeplab.report.groups"
local looks = require "toeplab.report.looks"
local published_tables = require "toeplab.trials.published_tables"
local space = require "toeplab.trials.space"
local stats = require "toeplab.report.stats"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local claims = { ALPHA = 0.05 }

local SUPPORTS, CONTRADICTS, OPEN = "supports", "contradicts", "cannot tell"

-- ---- What is compared -------------------------------------------------------------------------

local function choose(published, what, name, names)
  local ok, why = suggest.choose(what, name, names)
  if not ok then error(("%s: claims: %s"):format(published.id, why), 0) end
end

local function list_of(value)
  return type(value) == "table" and value[1] ~= nil and value or { value }
end

-- Returns a side of a comparison: {name=, row= (a published one, or nil), where= (or nil)}.
local function side_of(published, row)
  if type(row) == "table" then
    return { name = groups.label(row, sorted_keys(row)), where = row }
  end
  local names = {}
  for i, other in ipairs(published.rows) do
    names[i] = other[1]
    if other[1] == row then return { name = row, row = other } end
  end
  choose(published, "row", row, names)
end

-- Returns the sides that `over` of a claim names; without it, the claim's own row.
local function overs_of(published, claim)
  local list = {}
  for _, over in ipairs(list_of(claim.over or claim.row)) do
    for _, row in ipairs(over == "others" and published.rows or { { over } }) do
      if over ~= "others" or row[1] ~= claim.row then
        list[#list + 1] = side_of(published, row[1])
      end
    end
  end
  return list
end

local function column_of(published, id)
  local ids = {}
  for c, column in ipairs(published.columns) do
    ids[#ids + 1] = column.metrics and column.id
    if column.id == id and column.metrics then
      return { title = column.name, names = column.metrics, where = column.where, place = c + 1 }
    end
  end
  choose(published, "column", id, ids)
end

-- Returns the metric of a claim as a part of a measure, with the place of its column in the paper.
local function metric_of(published, name)
  local part = { metric = name }
  for c, column in ipairs(published.columns) do
    for _, metric in ipairs(column.metrics or {}) do
      if metric == name then part.place = c + 1 end
    end
  end
  return part
end

-- Returns what is measured on both sides, {name=, of= (parts), over= (parts of the other side)}:
-- the value of a side is the mean of its parts.
local function measures_of(published, claim)
  local list = {}
  for _, id in ipairs(list_of(claim.column)) do
    local parts = { column_of(published, id) }
    list[#list + 1] = { name = published.columns[parts[1].place - 1].name, of = parts,
      over = parts }
  end
  if claim.mean_of then
    local parts = {}
    for i, id in ipairs(claim.mean_of) do parts[i] = column_of(published, id) end
    list[#list + 1] = { name = "mean of " .. table.concat(claim.mean_of, ", "), of = parts,
      over = parts }
  end
  for _, name in ipairs(list_of(claim.metric)) do
    local over = claim.over_metric and { metric_of(published, claim.over_metric) }
    local parts = { metric_of(published, name) }
    list[#list + 1] = { metric = name, over_metric = claim.over_metric, of = parts,
      over = over or parts }
  end
  return list
end

-- Returns the region of log ratios that a claim allows, and its words.
local function region_of(claim)
  if claim.above then
    return { low = math.log(claim.above), high = math.huge }, ("above %g"):format(claim.above)
  elseif claim.below then
    return { low = -math.huge, high = math.log(claim.below) }, ("below %g"):format(claim.below)
  end
  return { low = -math.log(claim.within), high = math.log(claim.within) },
    ("%.3g to %g"):format(1 / claim.within, claim.within)
end

-- Returns the comparisons of a claim: {a=, b= (sides), measure=, region=, wanted=}.
local function comparisons_of(published, claim)
  local list, a = {}, side_of(published, claim.row)
  local region, wanted = region_of(claim)
  for _, measure in ipairs(measures_of(published, claim)) do
    for _, b in ipairs(overs_of(published, claim)) do
      list[#list + 1] = { a = a, b = b, measure = measure, region = region, wanted = wanted }
    end
  end
  return list
end

-- Returns the mean of a row's numbers in the paper; nil if the paper lacks one.
local function paper_value(side, parts)
  local sum = 0.0
  for _, part in ipairs(parts) do
    local v = side.row and part.place and side.row[part.place]
    if type(v) ~= "number" then return nil end
    sum = sum + v
  end
  return sum / #parts
end

-- Returns what a comparison compares: "0.90 over 0.99 (ours), PPL (val)".
function claims.title(c)
  local function metric(part, name) return part.name or name end
  local what = c.measure.name or metric(c.measure.of[1], c.measure.metric)
  if c.measure.over_metric then
    what = ("%s over %s"):format(what, metric(c.measure.over[1], c.measure.over_metric))
    return c.a.name .. ", " .. what
  end
  return ("%s over %s, %s"):format(c.a.name, c.b.name, what)
end

-- ---- What was measured ------------------------------------------------------------------------

-- Assigns to each part of the comparisons the number of its metric in the returned list of names.
local function metrics_of(list, pool)
  local logged, names = pool:metrics(), {}
  local function assign(part)
    part.value, part.name = groups.place_metric(part.names or { part.metric }, pool.fixed.length,
      logged, names)
    part.name = part.name or groups.at_length(part.metric or part.title, pool.fixed.length)
  end
  for _, c in ipairs(list) do
    for _, parts in ipairs { c.measure.of, c.measure.over } do
      for _, part in ipairs(parts) do assign(part) end
    end
  end
  return names
end

-- Returns a function side, part -> the trials of the side that belong to the part's column; without
-- a part, all of the side.
local function finder(published, pool, trials)
  local match, row_of, known = published_tables.matcher(published.rows, pool.axes), {}, {}
  for _, t in ipairs(trials) do row_of[t.point] = match(t.point.values) or false end
  return function(side, part)
    local list = {}
    for _, t in ipairs(trials) do
      local in_column = true
      if part and part.where then
        known[part] = known[part]
          or published_tables.matcher({ { where = { part.where } } }, pool.axes)
        in_column = known[part](t.point.values) ~= nil
      end
      local in_row
      if side.row then
        in_row = row_of[t.point] == side.row
      else
        in_row = space.fits(side.where, t.point.values)
      end
      if in_row and in_column then list[#list + 1] = t end
    end
    return list
  end
end

-- Returns the values of a side: seed -> {sum=, count=}; nil and the reason if there are none or two
-- settings fit.
local function values_of(find, side, parts)
  local by_seed = {}
  if #find(side) == 0 then return nil, { "no trial of", side.name } end
  for _, part in ipairs(parts) do
    local trials, name = find(side, part), part.title or part.name
    if not part.value then return nil, { "no trial has logged", name } end
    if #trials == 0 then return nil, { "no trial of", side.name .. ", " .. name } end
    for _, t in ipairs(trials) do
      if t.point ~= trials[1].point then
        return nil, { "several settings fit " .. side.name .. ": choose with key=value" }
      end
      local v = t.status == "done" and t.values[part.value]
      -- A ratio over only the seeds that did not diverge would flatter.
      if t.status == "guard" or v and v - v ~= 0 then return nil, { "diverged:", side.name } end
      if v then
        by_seed[t.seed] = by_seed[t.seed] or { sum = 0.0, count = 0 }
        by_seed[t.seed].sum, by_seed[t.seed].count = by_seed[t.seed].sum + v,
          by_seed[t.seed].count + 1
      end
    end
  end
  return by_seed
end

-- Sets logs, the logarithms of the ratios by seed, or why, the reason that there are none.
local function measure(c, find)
  local a, why = values_of(find, c.a, c.measure.of)
  local b, other = values_of(find, c.b, c.measure.over)
  c.why = why or other
  if c.why then return end
  c.logs, c.alone = {}, 0
  local seeds, set = {}, {}
  for _, values in ipairs { a, b } do
    for seed in pairs(values) do
      if not set[seed] then seeds[#seeds + 1], set[seed] = seed, true end
    end
  end
  table.sort(seeds)
  for _, seed in ipairs(seeds) do
    local x, y = a[seed] or { count = 0 }, b[seed] or { count = 0 }
    if x.count < #c.measure.of or y.count < #c.measure.over then
      c.alone = c.alone + 1
    elseif x.sum <= 0 or y.sum <= 0 then
      c.why = { claims.title(c) .. ": a value is not above 0" }
    else
      c.logs[#c.logs + 1] = stats.log_ratio(x.sum / #c.measure.of, y.sum / #c.measure.over)
    end
  end
  if #c.logs == 0 then
    c.why = c.why or { claims.title(c) .. ": no seed is done on both sides" }
  end
end

local LEARNT = { "test_ppl", "bigram_ppl" } -- metrics of recipes/lm.lua

-- Returns whether all trials of both sides of a comparison predict worse than bigrams of their
-- training text. first: the place before the values of LEARNT in those of a trial.
local function untrained(c, find, first)
  local count = 0
  for _, side in ipairs { c.a, c.b } do
    for _, t in ipairs(find(side)) do
      local ppl, bigram = t.values[first + 1], t.values[first + 2]
      if t.status == "done" and not (ppl and bigram and ppl > bigram) then return false end
      count = count + 1
    end
  end
  return count > 0
end

-- ---- Verdicts ---------------------------------------------------------------------------------

-- Sets the ratio with its interval, and p, that of the t test against the nearest bound of the
-- claim, scaled so that it is compared with ALPHA also after looks. One seed has neither, and equal
-- ratios have no p.
local function estimate(c, pool)
  local alpha = looks.alpha(pool, #c.logs)
  local i = stats.interval(c.logs, 1 - alpha, 1)
  c.ratio, c.inside = math.exp(i.mean), i.mean > c.region.low and i.mean < c.region.high
  if not i.low then return end
  c.low, c.high = math.exp(i.low), math.exp(i.high)
  local p = stats.p_value(i, math.min(math.abs(i.mean - c.region.low),
    math.abs(i.mean - c.region.high)))
  c.p = p and p * claims.ALPHA / alpha
end

-- Gives every comparison its verdict, with Holm's correction over all of the table. Models that
-- have learnt less than bigrams decide nothing. Returns the number of comparisons that Holm's
-- correction counts, and that of all that were measured.
local function judge(list, pool)
  local ps, of, measured = {}, {}, 0
  for _, c in ipairs(list) do
    c.verdict = OPEN
    if not c.why then
      estimate(c, pool)
      measured = measured + 1
    end
    if c.p then ps[#ps + 1], of[#of + 1] = c.p, c end
  end
  for i, p in ipairs(stats.holm(ps)) do
    of[i].p = p
    local decides = p < claims.ALPHA and not of[i].untrained
    if decides then of[i].verdict = of[i].inside and SUPPORTS or CONTRADICTS end
  end
  return #ps, measured
end

-- A claim holds if all of its comparisons support it, and fails if one contradicts it.
local function total(list)
  local verdict = SUPPORTS
  for _, c in ipairs(list) do
    if c.verdict == CONTRADICTS then return CONTRADICTS end
    if c.verdict == OPEN then verdict = OPEN end
  end
  return verdict
end

-- Judges the claims of a published table by the trials of pool (nil: there are none). Returns
-- {claims = { {says=, verdict=, list= (comparisons)} }, tests= (how many comparisons Holm's
-- correction counts), measured= (how many were measured)}. A comparison has a, b (sides), measure,
-- wanted (in words), region (of the logarithm), paper (the ratio of the paper's numbers, or nil),
-- and with a pool verdict, and either why (it was not measured: {text}, or {text, what it is said
-- of}) or ratio, low, high, logs, p (after Holm) and alone (the number of seeds without a partner).
function claims.of(published, pool)
  local result, all = { claims = {}, tests = 0, measured = 0 }, {}
  for i, claim in ipairs(published.claims or {}) do
    local list = comparisons_of(published, claim)
    result.claims[i] = { says = claim.says, list = list }
    table.move(list, 1, #list, #all + 1, all)
  end
  for _, c in ipairs(all) do
    local a, b = paper_value(c.a, c.measure.of), paper_value(c.b, c.measure.over)
    c.paper = a and b and a / b or nil
  end
  if not pool or #all == 0 then return result end
  local names = metrics_of(all, pool)
  local first = #names
  table.move(LEARNT, 1, #LEARNT, first + 1, names)
  local find = finder(published, pool, pool:trials(names))
  for _, c in ipairs(all) do measure(c, find) end
  for _, c in ipairs(all) do c.untrained = not c.why and untrained(c, find, first) end
  result.tests, result.measured = judge(all, pool)
  for _, claim in ipairs(result.claims) do claim.verdict = total(claim.list) end
  return result
end

-- ---- Words ------------------------------------------------------------------------------------

-- Returns the ratio with its interval, with the decimals that it deserves, but at least 3.
local function ratio_text(c)
  local deserved = c.low and stats.decimals((c.high - c.low) / 2) or 3
  local form = ("%%.%df"):format(math.max(deserved, 3))
  local function text(x) return (x >= 1e-3 and x < 1e4 and form or "%.3g"):format(x) end
  return text(c.ratio) .. (c.low and (" [%s, %s]"):format(text(c.low), text(c.high)) or "")
end

local function sentence(c)
  local n, parts = #c.logs, {}
  parts[1] = ("%s: ratio %s, %d seed%s"):format(claims.title(c), ratio_text(c), n,
    n == 1 and "" or "s")
  parts[#parts + 1] = "claimed: " .. c.wanted
  if c.paper then
    parts[#parts + 1] = (c.paper < 1e-3 and "the paper's numbers: %.2g"
      or "the paper's numbers: %.3f"):format(c.paper)
  end
  if c.alone > 0 then
    parts[#parts + 1] = ("left out: %d seed%s not done on both sides"):format(c.alone,
      c.alone == 1 and "" or "s")
  end
  parts[#parts + 1] = c.p and ("p %.2g"):format(c.p) or n == 1 and "one seed has no interval"
    or "the seeds do not differ, so that no test applies"
  if c.untrained then
    parts[#parts + 1] = "all of these predict worse than bigrams of their training text"
  end
  return table.concat(parts, "; ") .. ": " .. c.verdict
end

-- Returns why comparisons were not measured: "no trial of S4, gMLP; ..."; nil if all were.
local function reasons(list)
  local texts, place = {}, {} -- the place of a reason among the texts
  for _, c in ipairs(list) do
    local text, of = table.unpack(c.why or {})
    local whole = of and text .. " " .. of or text
    if text and not place[whole] then
      if of and place[text] then
        texts[place[text]] = texts[place[text]] .. ", " .. of
        place[whole] = place[text]
      else
        texts[#texts + 1] = whole
        place[text], place[whole] = #texts, #texts
      end
    end
  end
  return #texts > 0 and table.concat(texts, "; ") or nil
end

-- Returns how many comparisons Holm's correction counts: "the 3 comparisons", or "the 3 of 5
-- comparisons that have a p".
local function counted(result)
  local all = 0
  for _, claim in ipairs(result.claims) do all = all + #claim.list end
  if result.tests < all then
    return ("the %d of %d comparisons that have a p"):format(result.tests, all)
  end
  return ("the %d comparison%s"):format(all, all == 1 and "" or "s")
end

-- Returns lines about the claims of a published table: each claim with its verdict, its
-- comparisons, and the rule; and the number of comparisons that were measured. Without a pool it
-- returns the claims alone.
function claims.words(published, pool)
  local result, lines = claims.of(published, pool), {}
  for i, claim in ipairs(result.claims) do
    local name = "claim " .. i
    lines[#lines + 1] = ("%s%s: %s"):format(name, pool and " (" .. claim.verdict .. ")" or "",
      claim.says)
    for _, c in ipairs(pool and claim.list or {}) do
      if not c.why then lines[#lines + 1] = name .. ": " .. sentence(c) end
    end
    local why = pool and reasons(claim.list)
    if why then lines[#lines + 1] = ("%s: not measured: %s"):format(name, why) end
  end
  if result.tests > 0 then
    lines[#lines + 1] = ("claims: ratios of geometric means, paired by seed, with 95 %% intervals "
      .. "(t on the logarithms). 'supports' or 'contradicts': the interval lies within or outside "
      .. "of what is claimed, with p < %g after Holm's correction over %s in this table; a claim "
      .. "of several needs all of them"):format(claims.ALPHA, counted(result))
    lines[#lines + 1] = looks.corrected(pool)
  end
  return lines, result.measured
end

return claims
