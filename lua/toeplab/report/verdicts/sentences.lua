-- report/verdicts/sentences.lua: words the result of a comparison (compare.lua): what may be
-- claimed, on what evidence, and how many seeds a claim would need.
local cells = require "toeplab.report.cells"
local compare = require "toeplab.report.verdicts.compare"
local judgement = require "toeplab.report.verdicts.judgement"
local learning_curves = require "toeplab.report.verdicts.learning_curves"
local config = require "toeplab.base.config"
local quantity = require "toeplab.base.quantity"
local reruns = require "toeplab.report.verdicts.reruns"
local sorted_keys = require "toeplab.base.sorted_keys"
local yardsticks = require "toeplab.report.yardsticks"

local sentences = {}

local MOST = 1000 -- seeds that a command is proposed for

-- Returns a phrase about the seeds of a row without a result.
local function lost_text(row)
  return quantity.count(row.lost, "seed") .. " ended without a result"
end

-- Returns the sentence of a row whose models have learnt too little for a claim.
local function untrained_text(row)
  return "cannot tell: both sides predict worse than " .. row.untrained
    .. ", so nothing may be claimed before they are trained better"
end

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
    or row.lost > 0 and lost_text(row) .. ", so nothing may be claimed; "
    or row.untrained and untrained_text(row) .. "; "
    or "undecided, ") .. p
end

local function sentence_of(result, row)
  if row.success then return success_sentence(result, row) end
  local mean, low, high = judgement.range(row)
  local n, ratio, where = #row.x, result.ratio, #result.rows > 1 and row.label .. ": " or ""
  if n == 0 then return where .. "no seed has both" end
  if n == 1 then return where .. "one pair: no difference can be judged" end
  if row.untrained then return where .. untrained_text(row) end
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
    return ("%s%s at each of %d seeds: nothing varies, so no test applies"):format(where,
      row.mean == 0 and "equal" or ("%s %.4g"):format(by, mean), n)
  end
  local open = row.low <= 0 and row.high >= 0
  local reason = row.lost > 0 and lost_text(row)
    or open and "the interval contains " .. (ratio and 1 or 0)
    or row.flattered and "the side that looks better diverged at "
      .. quantity.count(row.diverged[row.good], "seed")
    or "p is not below 0.05 after Holm's correction for " .. row.tests .. " rows"
  local small = ratio and "ratios within a factor of %.4g" or "differences below %.4g"
  return ("%sundecided (%s): neither that they differ nor that they are equal may be claimed%s")
    :format(where, reason, open and ("; with these seeds " .. small .. " stay undecided")
      :format(ratio and math.exp(row.half) or row.half) or "")
end

-- Returns the number of seeds that decides a row if its true mean is the measured one or, with
-- `resolve`, that detects a difference of this size (a ratio of 1 + resolve) in it; nil if the row
-- needs or allows no estimate.
local function needs(result, row, resolve)
  local mean = resolve and (result.ratio and math.log(1 + resolve) or resolve)
    or row.p and not row.claimed and not row.flattered and not row.untrained and row.half > 0
      and row.mean
  return mean and row.half and judgement.seeds(row, row.tests, mean)
end

-- Returns the number of seeds that every row needs; nil if no row needs or allows an estimate. Also
-- returns whether a row has fewer than it needs, and the fewest that such a row has.
local function needed(result, resolve)
  local most, least, lacks = nil, math.huge, false
  for _, row in ipairs(result.rows) do
    local n = needs(result, row, resolve)
    if n then
      most, least, lacks = math.max(most or n, n), math.min(least, #row.x), lacks or n > #row.x
    end
  end
  return most, lacks, least
end

-- Returns how many trials are missing for n seeds on all sides.
local function lacking(sides, n)
  local have, count = {}, 0
  for _, t in ipairs(compare.together(sides, "done")) do
    have[t.point] = (have[t.point] or 0) + (t.seed >= 1 and t.seed <= n and 1 or 0)
  end
  for _, seeds in pairs(have) do count = count + n - seeds end
  return count
end

local function more_seeds(result, resolve, duration)
  local n, lacks, have = needed(result, resolve)
  if not n then return {} end
  local what = not resolve and ("to decide this if the true %s is the measured one"):format(
      result.ratio and "ratio" or "difference")
    or (result.ratio and "to resolve a ratio of %.4g" or "to resolve ±%.4g"):format(
      result.ratio and 1 + resolve or resolve)
  if n > MOST then
    return { ("%s: more than %d seeds"):format(what, MOST) }
  end
  if not lacks then
    return { ("%s: %d seeds suffice, and there are %d"):format(what, n, have) }
  end
  local seed = result.frame.plan.tuned_seed
  if seed and n >= seed then
    return { ("%s: about %d seeds, but seed %d chose the %s and cannot count: list the seeds")
      :format(what, n, seed, result.frame.plan.tuned_key) }
  end
  local trials = lacking(result.sides, n)
  local time = result.seconds and ", about " .. duration(trials * result.seconds) or ""
  local commands = reruns(result.frame, result.key, compare.together(result.sides, "done"),
    "seeds=" .. n)
  return { ("%s, 4 times in 5: about %d seeds in all, %s more%s"):format(what, n,
    quantity.count(trials, "trial"), time), table.unpack(commands) }
end

-- Returns a line that names the number of seeds of each row, if there are several rows and one
-- lacks seeds; else none.
local function seeds_by_row(result, resolve)
  local parts, lacks = {}, false
  for _, row in ipairs(#result.rows > 1 and result.rows or {}) do
    local n = needs(result, row, resolve)
    lacks = lacks or n and n > #row.x
    parts[#parts + 1] = n and ("%s: %s%d"):format(row.label, n > MOST and "more than " or "",
      math.min(n, MOST)) or nil
  end
  return lacks and { "seeds that each row needs: " .. table.concat(parts, "; ") } or {}
end

-- Returns lines that name the values of a tuned key with which the rows were compared; none if no
-- key was tuned.
local function tuned_lines(result)
  local key, equal, lines = result.tuned_key, {}, {}
  local function text(v) return v == nil and "none" or config.show(v) end
  for _, row in ipairs(key and not result.curves and result.rows or {}) do
    local a, b = text(row.tuned.a), text(row.tuned.b)
    local label = #result.rows > 1 and row.label .. ": " or ""
    if a == b then
      equal[a] = equal[a] or {}
      table.insert(equal[a], row.label)
    elseif row.tuned.a ~= nil and row.tuned.b ~= nil then
      lines[#lines + 1] = ("%s%s was tuned for each side: %s here, %s for %s=%s"):format(
        label, key, b, a, result.key, result.sides[1].text)
    end
  end
  for _, value in ipairs(sorted_keys(equal)) do
    lines[#lines + 1] = ("%s%s is %s on both sides"):format(#result.rows > 1
      and table.concat(equal[value], ", ") .. ": " or "", key, value)
  end
  return lines
end

-- Adds to the lines how much of each difference may come from the test text alone.
local function text_errors(result, lines)
  for _, row in ipairs(result.rows) do
    local error_of, parts = table.unpack(row.text_error or {})
    if error_of then
      lines[#lines + 1] = ("%sanother test text of this kind may move the ratio by %.2g %% (2 "
        .. "standard errors over %d parts of this one), beside the interval over the seeds"):format(
        #result.rows > 1 and row.label .. ": " or "", 100 * (math.exp(2 * error_of) - 1), parts)
    end
  end
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

-- Returns lines that state what may be claimed. duration: a function seconds -> string.
function sentences.of(result, resolve, duration)
  local lines, out, diverged, alone = {}, 0, 0, 0
  local function add(n, one, many)
    if n > 0 then lines[#lines + 1] = quantity.count(n, "trial") .. (n == 1 and one or many) end
  end
  for _, row in ipairs(result.curves and {} or result.rows) do
    lines[#lines + 1], alone = sentence_of(result, row), alone + row.alone
  end
  if result.curves then crossings(result, lines) end
  local simple = result.curves and {} or yardsticks.lines(result.yardsticks, result.metric)
  table.move(simple, 1, #simple, #lines + 1, lines)
  for _, a in ipairs(result.along) do
    lines[#lines + 1] = ("%s varies with %s: %s and %s"):format(a.name, result.key,
      table.concat(a, ", ", 1, #a - 1), a[#a])
  end
  if result.success then
    lines[#lines + 1] = ("p compares how many trials succeed; means of %s and their intervals "
      .. "decide nothing, since its values lie near two levels"):format(result.metric)
  else
    lines[#lines + 1] = judgement.least_pairs(result.rows, result.ratio)
  end
  text_errors(result, lines)
  table.move(tuned_lines(result), 1, #result.rows, #lines + 1, lines)
  local corrected = judgement.corrected(result.rows)
  table.move(corrected, 1, #corrected, #lines + 1, lines)
  if result.families > 1 then
    lines[#lines + 1] = ("p is corrected separately for each value of %s, which commands set")
      :format(table.concat(sorted_keys(result.frame.between), ", "))
  end
  local seen, fell = {}, {}
  for _, t in ipairs(compare.together(result.sides, "asked")) do -- of curves a trial for each part
    if not t.value and not seen[t.id] then out, seen[t.id] = out + 1, true end
    if t.diverged and not fell[t.id] then diverged, fell[t.id] = diverged + 1, true end
  end
  local why = "left out: not done, or without a finite " .. result.metric
  add(out, " is " .. why, " are " .. why)
  add(diverged, " of these diverged, and leaving it out flatters its side",
    " of these diverged, and leaving them out flatters their sides")
  add(alone, " has no partner of the same seed", " have no partner of the same seed")
  local rescued, rolled = 0, result.frame:events "rollback"
  for _, t in ipairs(compare.together(result.sides, "done")) do
    rescued = rescued + (rolled[t.id] and 1 or 0)
  end
  local how = "rolled back by the guard and continued at a lower rate"
  add(rescued, " was " .. how, " were " .. how)
  if result.curves or result.success then return lines end
  for _, more in ipairs { seeds_by_row(result, resolve), more_seeds(result, resolve, duration) } do
    table.move(more, 1, #more, #lines + 1, lines)
  end
  return lines
end

return sentences
