-- report/verdicts/claims.lua: judges a paper's claims about a table by the trials that answer the
-- table.
--
-- A claim compares the values of two rows, seed by seed, by their ratio; published_tables.lua
-- describes how a table's file declares it. The ratio is the ratio of the geometric means; its
-- interval comes from Student's t on the logarithms of the ratios.
local config = require "toeplab.base.config"
local groups = require "toeplab.report.groups"
local labels = require "toeplab.report.labels"
local judgement = require "toeplab.report.verdicts.judgement"
local overlay = require "toeplab.base.overlay"
local published_tables = require "toeplab.trials.published_tables"
local quantity = require "toeplab.base.quantity"
local space = require "toeplab.trials.space"
local stats = require "toeplab.report.stats"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
local versions = require "toeplab.report.versions"
local yardsticks = require "toeplab.report.yardsticks"

local claims = {}

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
    return { name = labels.none:parts(row, sorted_keys(row)), where = row }
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
  local part = { names = { name } }
  for c, column in ipairs(published.columns) do
    for _, metric in ipairs(column.metrics or {}) do
      if metric == name then part.place = c + 1 end
    end
  end
  return part
end

-- Returns the measures of both sides, {name= (nil: the metric's), of= (parts), over= (parts of the
-- other side)}: the value of a side is the mean of its parts.
local function measures_of(published, claim)
  local list = {}
  local function add(name, of, over)
    list[#list + 1] = { name = name, of = of, over = over or of }
  end
  for _, id in ipairs(list_of(claim.column)) do
    local part = column_of(published, id)
    local over = claim.over_metric and metric_of(published, claim.over_metric)
    if over then over.where = part.where end
    add(part.title, { part }, over and { over })
  end
  if claim.mean_of then
    local parts = {}
    for i, id in ipairs(claim.mean_of) do parts[i] = column_of(published, id) end
    add("mean of " .. table.concat(claim.mean_of, ", "), parts)
  end
  for _, name in ipairs(list_of(claim.metric)) do
    local over = claim.over_metric and { metric_of(published, claim.over_metric) }
    add(nil, { metric_of(published, name) }, over)
  end
  return list
end

-- Returns the region of log ratios that a claim allows, and its description.
local function region_of(claim)
  local above, below, within = claim.above, claim.below, claim.within
  local low = within and -math.log(within) or above and math.log(above) or -math.huge
  return { low = low, high = math.log(within or below or math.huge) },
    within and ("%.3g to %g"):format(1 / within, within) or above and ("above %g"):format(above)
      or ("below %g"):format(below)
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

-- Returns the title of a comparison: "0.90 over 0.99 (ours), PPL (val)".
function claims.title(c)
  local m = c.measure
  local what = m.name or m.of[1].name or m.of[1].names[1]
  if m.over ~= m.of then
    return ("%s, %s over %s"):format(c.a.name, what, m.over[1].name or m.over[1].names[1])
  end
  return ("%s over %s, %s"):format(c.a.name, c.b.name, what)
end

-- ---- What was measured ------------------------------------------------------------------------

-- Assigns to each part of the comparisons the number of its metric in the returned list of names.
local function metrics_of(list, frame)
  local logged, names, length = frame:metrics(), {}, frame.fixed.length
  for _, c in ipairs(list) do
    for _, parts in ipairs { c.measure.of, c.measure.over } do
      for _, part in ipairs(parts) do
        part.value, part.name = groups.place_metric(part.names, length, logged, names)
        part.name = part.name or groups.at_length(part.names[1], length)
      end
    end
  end
  return names
end

-- Returns a function (side, part) -> the trials of the side in the part's column; without a part,
-- all trials of the side.
local function finder(published, frame, trials)
  local match, row_of, columns = published_tables.matcher(published.rows, frame.axes), {}, {}
  for _, t in ipairs(trials) do row_of[t.point] = match(t.point.values) or false end
  return function(side, part)
    local list, where = {}, part and part.where
    if where then
      columns[part] = columns[part]
        or published_tables.matcher({ { where = { where } } }, frame.axes)
    end
    for _, t in ipairs(trials) do
      local in_row = side.row and row_of[t.point] == side.row
        or side.where and space.fits(side.where, t.point.values)
      if in_row and (not where or columns[part](t.point.values)) then list[#list + 1] = t end
    end
    return list
  end
end

-- Returns the reason that a side has no value because trials of several settings match it.
local function several(side, trials)
  local keys, values, known = {}, {}, {}
  for _, t in ipairs(trials) do
    for key, value in pairs(t.point.at) do
      local text = config.text(value)
      values[key], known[key] = values[key] or {}, known[key] or {}
      if not known[key][text] then table.insert(values[key], text) end
      known[key][text] = true
    end
  end
  for _, key in ipairs(sorted_keys(values)) do
    if #values[key] > 1 then keys[#keys + 1] = key end
  end
  local list = values[keys[1]] or {}
  return { ("several settings match %s: choose with %s=%s%s"):format(side.name, keys[1] or "KEY",
    table.concat(list, (" or %s="):format(keys[1]), 1, math.min(#list, 3)),
    keys[2] and " (also: " .. table.concat(keys, ", ", 2) .. ")" or "") }
end

-- Returns the value of part in trial t, nil without one. A perplexity is converted to unit.bytes
-- bytes, if trials logged how many a token has; a mean over lengths is a mean of such perplexities.
-- unit: {bytes= (nil: none is converted), place= (of bytes_per_token among a trial's values),
-- lengths= (the places of the perplexities at all lengths)}.
local function value_of(t, part, unit)
  local v, own = t.values[part.value], t.values[unit.place]
  if not v or not unit.bytes or not part.name:find "ppl" then return v end
  if not own or part.name:find "^mean_" and #unit.lengths == 0 then return nil end
  if not part.name:find "^mean_" then return v ^ (unit.bytes / own) end
  local sum = 0.0
  for _, place in ipairs(unit.lengths) do
    if not t.values[place] then return nil end
    sum = sum + t.values[place] ^ (unit.bytes / own)
  end
  return sum / #unit.lengths
end

-- Returns the results of a side: {values= (seed -> the mean of the parts, false for a seed that
-- lacks one), steps= (judgement.count_looks), rule= (judgement.rule), lost= (the set of the ids of
-- the trials that ended without a result), point=}; nil and the reason if there are none or two
-- settings match; the third result is whether it diverged.
local function values_of(find, side, parts, unit)
  local sums, counts, steps, lost = {}, {}, {}, {}
  if #find(side) == 0 then return nil, { "no trial of", side.name } end
  for _, part in ipairs(parts) do
    local trials, name = find(side, part), part.title or part.name
    if not part.value then return nil, { "no trial has logged", name } end
    if #trials == 0 then return nil, { "no trial of", side.name .. ", " .. name } end
    for _, t in ipairs(trials) do
      if t.point ~= trials[1].point then
        return nil, several(side, trials)
      end
      local v = t.status == "done" and value_of(t, part, unit)
      -- A ratio over only the seeds that did not diverge would flatter.
      if t.status == "guard" or v and v - v ~= 0 then
        return nil, { "diverged:", side.name }, true
      end
      lost[t.id] = versions.lost[t.status]
      if v then
        steps[t.seed] = math.max(steps[t.seed] or 0, t.step)
        sums[t.seed], counts[t.seed] = (sums[t.seed] or 0.0) + v, (counts[t.seed] or 0) + 1
      end
    end
  end
  for seed, sum in pairs(sums) do sums[seed] = counts[seed] == #parts and sum / #parts end
  local trials = find(side)
  return { values = sums, steps = steps, rule = judgement.rule(trials), lost = lost,
    point = trials[1].point }
end

-- Sets pair (judgement.pair) with lost (how many trials ended without a result) and tuned (the
-- values of the tuned key on both sides, if one was tuned), or why, the reason that there is none.
-- Sets untested if there is no p because trials diverged or ended without a result.
local function measure(c, find, tuned_key, unit)
  local a, why, of_a = values_of(find, c.a, c.measure.of, unit)
  local b, other, of_b = values_of(find, c.b, c.measure.over, unit)
  c.why = why or other
  c.untested = c.why and (a or of_a) and (b or of_b)
  if c.why then return end
  local pair = judgement.pair(b.values, a.values, true)
  local lost = #sorted_keys(overlay(a.lost, b.lost))
  c.untested = lost > 0 and pair and #pair.x < 2
  if not pair then
    c.why = { claims.title(c) .. ": a value is not above 0" }
  elseif #pair.x == 0 then
    c.why = { claims.title(c) .. ": no seed is done on both sides" }
  else
    c.pair, pair.region, pair.rule, pair.lost = pair, c.region, a.rule or b.rule, lost
    judgement.count_looks(pair, a.steps, b.steps)
    if tuned_key then
      pair.tuned = { config.show(a.point.values[tuned_key]),
        config.show(b.point.values[tuned_key]) }
    end
  end
end

-- Returns the name of a yardstick that all trials of both sides of a comparison miss; nil: none.
-- first: the index before the values of yardsticks.names in a trial's values.
local function untrained(c, find, first)
  local trials = {}
  for _, side in ipairs { { c.a, c.measure.of }, { c.b, c.measure.over } } do
    for _, part in ipairs(side[2]) do
      local list = find(side[1], part)
      table.move(list, 1, #list, #trials + 1, trials)
    end
  end
  return yardsticks.unreached(trials, first, c.measure.of[1].names[1])
end

-- ---- Verdicts ---------------------------------------------------------------------------------

-- Gives every comparison its verdict, with Holm's correction over all of the table, including
-- comparisons without a p because trials diverged or ended without a result. A claim holds if all
-- of its comparisons support it, and fails if one contradicts it. Models that miss a yardstick of
-- their data decide nothing, nor do comparisons with a trial that ended without a result.
local function judge(result, all)
  local measured, untested = {}, 0
  for _, c in ipairs(all) do
    measured[#measured + 1], untested = c.pair, untested + (c.untested and 1 or 0)
  end
  result.pairs = measured
  result.tests, result.measured = judgement.judge(measured, untested), #measured
  for _, claim in ipairs(result.claims) do
    claim.verdict = SUPPORTS
    for _, c in ipairs(claim.list) do
      local x = c.pair
      local inside = x and x.mean > c.region.low and x.mean < c.region.high
      local sound = x and x.decided and not c.untrained and x.lost == 0
      c.verdict = sound and (inside and SUPPORTS or CONTRADICTS)
        or OPEN
      if c.verdict == CONTRADICTS or claim.verdict == SUPPORTS then claim.verdict = c.verdict end
    end
  end
end

-- Returns the unit of perplexities (value_of), and adds the metrics that it needs to the names. If
-- no trial logged bytes_per_token, perplexities are per token.
local function unit_of(published, frame, names)
  local unit = { lengths = {} }
  if not published.bytes_per_token or not frame:metrics().bytes_per_token then return unit end
  unit.bytes = published.bytes_per_token
  names[#names + 1] = "bytes_per_token"
  unit.place = #names
  for i, length in ipairs(frame.fixed.lengths or {}) do
    names[#names + 1] = ("ppl@%d"):format(length)
    unit.lengths[i] = #names
  end
  return unit
end

-- Returns the line that names the unit; nil if no perplexity is converted.
local function unit_text(trials, unit)
  for _, t in ipairs(trials) do
    local own = t.values[unit.place]
    if own then
      return ("claims compare perplexities per %g bytes, the mean length of the paper's tokens; a "
        .. "token here has %.3g"):format(unit.bytes, own)
    end
  end
end

-- Judges the claims of a published table by the trials of frame (nil: there are none). Returns
-- {claims = { {says=, verdict=, list= (comparisons)} }, count= (of the comparisons), tests= (how
-- many Holm's correction counts), measured= (how many were measured)}. A comparison has a, b
-- (sides), measure, wanted (in words), region (of the logarithm), paper (the ratio of the paper's
-- numbers, or nil), and with a frame verdict, and either why (the reason that it was not measured:
-- {text}, or {text, its subject}) or pair (of judgement.judge).
function claims.of(published, frame)
  local result, all = { claims = {}, tests = 0, measured = 0 }, {}
  for i, claim in ipairs(published.claims or {}) do
    local list = comparisons_of(published, claim)
    result.claims[i] = { says = claim.says, list = list }
    table.move(list, 1, #list, #all + 1, all)
  end
  result.count = #all
  for _, c in ipairs(all) do
    local a, b = paper_value(c.a, c.measure.of), paper_value(c.b, c.measure.over)
    c.paper = a and b and a / b or nil
  end
  if not frame or #all == 0 then return result end
  local names = metrics_of(all, frame)
  local first = #names
  table.move(yardsticks.names, 1, #yardsticks.names, first + 1, names)
  local unit = unit_of(published, frame, names)
  local trials = frame:trials(names)
  local find = finder(published, frame, trials)
  result.unit = unit_text(trials, unit)
  for _, c in ipairs(all) do
    measure(c, find, frame.plan.tuned_key, unit)
    c.untrained = c.pair and untrained(c, find, first)
  end
  judge(result, all)
  return result
end

-- ---- Words ------------------------------------------------------------------------------------

-- Returns the ratio with its interval, with the decimals that this supports, but at least 3, and
-- the level if it is corrected for looks.
local function ratio_text(pair)
  local ratio, low, high = judgement.range(pair)
  local deserved = low and stats.decimals((high - low) / 2) or 3
  local form = ("%%.%df"):format(math.max(deserved, 3))
  local function text(x) return (x >= 1e-3 and x < 1e4 and form or "%.3g"):format(x) end
  local level = pair.alpha < judgement.ALPHA and (" (%s, corrected)"):format(
    judgement.level { pair }) or ""
  return text(ratio) .. (low and (" [%s, %s]%s"):format(text(low), text(high), level) or "")
end

-- Returns p or why there is none. Where several looks were possible, also p without corrections.
local function p_text(pair)
  if not pair.p then
    return #pair.x == 1 and "one seed has no interval"
      or "the seeds do not differ, so no test applies"
  end
  if pair.alpha == judgement.ALPHA then return ("p %.2g"):format(pair.p) end
  return ("p %.2g, corrected for %s%s %.2g"):format(pair.alone_p,
    pair.rule and "looks" or quantity.count(pair.looks, "look"),
    pair.tests > 1 and (" and %d comparisons"):format(pair.tests) or "", pair.p)
end

-- Returns why a comparison decides nothing; nil if it does.
local function open_reason(c)
  if c.verdict ~= OPEN then return nil end
  return c.pair.lost > 0 and quantity.count(c.pair.lost, "trial") .. " ended without a result"
    or c.untrained and "both sides predict worse than " .. c.untrained
    or not c.pair.p and p_text(c.pair) or ("p is not below %g"):format(judgement.ALPHA)
end

-- Returns a comparison in words, which begin with its verdict and the reason that decides it.
local function sentence(c, key)
  local why, parts, seeds = open_reason(c), {}, quantity.count(#c.pair.x, "seed")
  parts[1] = c.verdict .. (why and ": " .. why or "")
  parts[2] = ("%s: ratio %s, %s"):format(claims.title(c), ratio_text(c.pair), seeds)
  parts[3] = "claimed: " .. c.wanted
  if c.paper then
    parts[4] = (c.paper < 1e-3 and "the paper's numbers: %.2g" or "the paper's numbers: %.3f")
      :format(c.paper)
  end
  if c.pair.alone > 0 then
    parts[#parts + 1] = ("left out: %s done on one side only"):format(
      quantity.count(c.pair.alone, "seed"))
  end
  if c.pair.tuned and c.pair.tuned[1] ~= c.pair.tuned[2] then
    parts[#parts + 1] = ("%s %s and %s"):format(key, table.unpack(c.pair.tuned))
  end
  if why ~= p_text(c.pair) then parts[#parts + 1] = p_text(c.pair) end
  return table.concat(parts, "; ")
end

-- Returns a line that says that all comparisons have one value of the tuned key on both sides; nil
-- if they have not, or no key was tuned.
local function one_value(result, key)
  local same = true
  for _, pair in ipairs(result.pairs) do
    same = same and pair.tuned and pair.tuned[1] == pair.tuned[2]
  end
  return key and same and ("both sides of each comparison have the same %s"):format(key) or nil
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

-- Returns lines about the claims of a published table: each claim with its verdict, its
-- comparisons, and the rule; and the number of comparisons that were measured. Without a frame it
-- returns the claims alone.
function claims.words(published, frame)
  local result, lines = claims.of(published, frame), {}
  for i, claim in ipairs(result.claims) do
    local name = "claim " .. i
    lines[#lines + 1] = ("%s%s: %s"):format(name, frame and " (" .. claim.verdict .. ")" or "",
      claim.says)
    for _, c in ipairs(frame and claim.list or {}) do
      if not c.why then lines[#lines + 1] = name .. ": " .. sentence(c, frame.plan.tuned_key) end
    end
    local why = frame and reasons(claim.list)
    if why then lines[#lines + 1] = ("%s: not measured: %s"):format(name, why) end
  end
  lines[#lines + 1] = result.unit
  if result.tests > 0 and #result.pairs > 0 then
    local all = quantity.count(result.count, "comparison")
    lines[#lines + 1] = ("claims: ratios of geometric means, paired by seed, with %s intervals "
      .. "(t on the logarithms). 'supports' or 'contradicts': the interval lies within or outside "
      .. "the claimed range, with p < %g after Holm's correction over the %s in this table; a "
      .. "claim of several needs all of them"):format(judgement.level(result.pairs),
      judgement.ALPHA,
      result.tests < result.count and ("%d of %s that were run"):format(result.tests, all) or all)
    lines[#lines + 1] = judgement.least_pairs(result.pairs, true)
    local corrected = judgement.corrected(result.pairs)
    table.move(corrected, 1, #corrected, #lines + 1, lines)
    lines[#lines + 1] = one_value(result, frame.plan.tuned_key)
  end
  return lines, result.measured
end

return claims
