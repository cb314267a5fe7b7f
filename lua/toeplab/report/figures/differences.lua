-- report/figures/differences.lua: draws a comparison (compare.new): for each row the difference, or
-- the ratio, with its interval, beside the line of no difference.
local judgement = require "toeplab.report.verdicts.judgement"
local learning_curves = require "toeplab.report.verdicts.learning_curves"
local sorted_keys = require "toeplab.base.sorted_keys"

local HEIGHT, ROW = 170, 26 -- in screen points: the figure without rows, and each row

local kinds = { "better", "worse", "undecided" }

local function kind_of(row)
  if not row.claimed then return "undecided" end
  return row.good == "b" and "better" or "worse"
end

-- Returns the spec (plot.lua) of a comparison; names: labels.lua. Returns nil if no row has a pair.
return function(result, names)
  local series, rows = {}, {}
  for i, kind in ipairs(kinds) do
    series[kind] = { name = kind, style = "points", colour = ({ 3, 2, 7 })[i], x = {}, y = {},
      xlow = {}, xhigh = {}, marker = ({ 7, 5, 6 })[i] }
  end
  for _, row in ipairs(result.rows) do
    local middle, low, high = judgement.range(row)
    if middle and middle - middle == 0 then
      local s = series[kind_of(row)]
      local called = names:part(result.key, row.setting)
      local place = names:parts(row.values, sorted_keys(row.values))
      if row.part then
        place = (place ~= "" and place .. " " or "") .. learning_curves.label(row.part)
      end
      rows[#rows + 1] = place == "" and called or #result.sides == 2 and place
        or called .. " " .. place
      s.x[#s.x + 1], s.y[#s.y + 1] = middle, #rows
      s.xlow[#s.xlow + 1], s.xhigh[#s.xhigh + 1] = low or middle, high or middle
    end
  end
  if #rows == 0 then return nil end
  local list, base = {}, names:part(result.key, result.sides[1].text)
  for _, kind in ipairs(kinds) do
    if #series[kind].x > 0 then list[#list + 1] = series[kind] end
  end
  local other = #result.sides == 2 and "of " .. names:part(result.key, result.sides[2].text) .. " "
    or ""
  local metric, corrected = names:name(result.metric), judgement.corrected(result.rows)
  return { series = list, ynames = rows, xline = result.ratio and 1 or 0, key = "below",
    logx = result.ratio or nil, height = HEIGHT + ROW * #rows,
    xlabel = ("%s %s%s %s"):format(metric, other, result.ratio and "over" or "minus", base),
    title = ("%s: %s with %s, paired by seed"):format(result.frame.plan.title
      or result.frame:title(), result.ratio and "ratios" or "differences",
      corrected and "intervals" or "95 % intervals") }
end
