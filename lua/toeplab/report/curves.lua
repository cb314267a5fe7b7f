-- report/curves.lua: what trials have logged, as pictures for plot.lua and terminal.lua: metrics
-- against the step, against a key of the configuration, or against the number at the end of their
-- names.
--
--   local set = gathered.set(store, ids)
--   plot.svg(path, curves.steps(set, "loss", { by = { "decay" } }))
--
-- Trials that differ in the seed alone are one line, the mean. options: by (keys: one line for each
-- of their values), each (one line per trial).
local gathered = require "toeplab.report.groups"
local plan = require "toeplab.trials.plan"
local stats = require "toeplab.report.stats"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local curves = { NAMED = 14 } -- lines that a picture can name

local MOST = 400 -- points of a line
local NAN = 0 / 0

-- ---- Against the step -------------------------------------------------------------------------

local function extent(store, trials, metric)
  local first, last, most = math.huge, -math.huge, 0
  for _, t in ipairs(trials) do
    local row = store:rows([[SELECT min(step) AS low, max(step) AS high, count(*) AS n
      FROM v_metrics WHERE trial = ? AND name = ?]], { t.id, metric })[1]
    if row.n > 0 then
      first, last = math.min(first, row.low), math.max(last, row.high)
      most = math.max(most, row.n)
    end
  end
  return first, last, most
end

-- One line: all values or, of many, the least and the greatest of each stretch of steps.
local function single(store, t, metric)
  local first, last, n = extent(store, { t }, metric)
  if n <= MOST then return store:of(t.id):series(metric) end
  local width, x, y = (last - first) // (MOST // 2) + 1, {}, {}
  local rows = store:rows([[SELECT step, value FROM (
      SELECT step, min(value) AS value FROM v_metrics WHERE trial = ?1 AND name = ?2
        GROUP BY (step - ?3) / ?4
      UNION SELECT step, max(value) FROM v_metrics WHERE trial = ?1 AND name = ?2
        GROUP BY (step - ?3) / ?4) ORDER BY step]], { t.id, metric, first, width })
  for i, row in ipairs(rows) do x[i], y[i] = row.step, row.value or NAN end
  return x, y
end

-- The mean over trials at the steps that all of them have, with the least and the greatest; of many
-- steps the means of stretches.
local function mean(store, trials, metric)
  local first, last, most = extent(store, trials, metric)
  local width = most > MOST and (last - first) // MOST + 1 or 1
  local at, steps = {}, {}
  for _, t in ipairs(trials) do
    for _, row in ipairs(store:rows([[SELECT ?3 + (step - ?3) / ?4 * ?4 + ?4 / 2 AS at,
        CASE WHEN count(value) = count(*) THEN avg(value) END AS value
        FROM v_metrics WHERE trial = ?1 AND name = ?2 GROUP BY 1]],
        { t.id, metric, first, width })) do
      if not at[row.at] then
        at[row.at] = {}
        steps[#steps + 1] = row.at
      end
      table.insert(at[row.at], row.value or NAN)
    end
  end
  table.sort(steps)
  local s = { x = {}, y = {}, low = {}, high = {} }
  for _, step in ipairs(steps) do
    if #at[step] == #trials then
      local i = #s.x + 1
      s.x[i], s.y[i] = step, stats.mean(at[step])
      s.low[i], s.high[i] = math.min(table.unpack(at[step])), math.max(table.unpack(at[step]))
    end
  end
  return s
end

-- The lines of a group: the mean of the trials that are done, if they are several, and each of the
-- others by itself, dashed if the mean is without it.
local function lines_of(set, group, metric)
  local done, rest, list = {}, {}, {}
  for _, t in ipairs(group.trials) do
    local _, _, n = extent(set.store, { t }, metric)
    local kind = t.status == "done" and done or rest
    if n > 0 then kind[#kind + 1] = t end
  end
  local together = #done > 1 and mean(set.store, done, metric)
  if together and #together.x > 0 then
    together.of, together.trials = #done, done
    list[1] = together
  else
    table.move(done, 1, #done, #rest + 1, rest)
  end
  for _, t in ipairs(rest) do
    local x, y = single(set.store, t, metric)
    list[#list + 1] = { x = x, y = y, trials = { t }, dashed = t.status ~= "done" }
  end
  return list
end

-- The value of a drawn line at a step, nil before its beginning.
local function value_at(line, step)
  local y
  for i, x in ipairs(line.x) do
    if x > step then break end
    y = line.y[i]
  end
  return y
end

local marked = { { "rollback", "rolled back by the guard", 4 }, { "prune", "pruned", 2 } }

-- Interventions, as points on the lines they belong to.
local function marks(set, places)
  local list = {}
  for _, kind in ipairs(marked) do
    local s = { name = kind[2], x = {}, y = {}, style = "points", colour = 7, marker = kind[3] }
    for _, place in ipairs(places) do
      for _, row in ipairs(set.store:rows([[SELECT step FROM v_events WHERE trial = ? AND kind = ?
          ORDER BY step]], { place.trial, kind[1] })) do
        local y = value_at(place.line, row.step)
        if y then
          s.x[#s.x + 1], s.y[#s.y + 1] = row.step, y
        end
      end
    end
    if #s.x > 0 then list[#list + 1] = s end
  end
  return list
end

-- what: of means, what they are of.
local function finish(spec, set, o, count, what)
  spec.title, spec.logx, spec.logy = gathered.title(set) .. what, o.logx, o.logy
  spec.key = "none"
  if count <= curves.NAMED then
    for _, s in ipairs(spec.series) do
      if s.name then spec.key = "outside" end
    end
  else
    for _, s in ipairs(spec.series) do s.name = nil end
  end
  return spec
end

-- What means are of, and what their bands or bars are; nothing if there are no means.
local function spread(least, most, what)
  if not least then return "" end
  local n = least == most and tostring(most) or ("%d to %d"):format(least, most)
  return (": mean and %s of %s trials"):format(what, n)
end

-- A metric against the step: a spec for plot.svg.
function curves.steps(set, metric, options)
  local o, series, places, least, most = options or {}, {}, {}, nil, nil
  local dashed
  gathered.check(set, metric)
  local list = gathered.groups(set, o)
  for colour, group in ipairs(list) do
    for i, line in ipairs(lines_of(set, group, metric)) do
      if line.of then
        least, most = math.min(least or line.of, line.of), math.max(most or line.of, line.of)
      end
      for _, t in ipairs(line.trials) do
        places[#places + 1] = { trial = t.id, line = line }
      end
      dashed = dashed or line.dashed
      series[#series + 1] = { name = i == 1 and group.label or nil, x = line.x, y = line.y,
        low = line.low, high = line.high, dashed = line.dashed or nil, colour = colour }
    end
  end
  local events = marks(set, places)
  table.move(events, 1, #events, #series + 1, series)
  return finish({ xlabel = "step", ylabel = metric, series = series }, set, o, #list,
    spread(least, most, "range") .. (dashed and (most and ", " or ": ")
      .. "dashed: a trial that is not done" or ""))
end

-- ---- Last values ------------------------------------------------------------------------------

local function last(store, t, metric)
  local row = store:rows("SELECT value FROM v_last WHERE trial = ? AND name = ?",
    { t.id, metric })[1]
  if row then return row.value or NAN end
end

-- Lines through the means of values: samples: a list {label=, at= x -> list of values}, over the
-- sorted list of x. A mean over the finite ones alone would flatter: it is a gap.
local function through(samples, places)
  local series, least, most = {}, nil, nil
  for colour, sample in ipairs(samples) do
    local s = { name = sample.label, x = {}, y = {}, error = {}, style = "both", colour = colour }
    for i, at in ipairs(places) do
      local interval = sample.at[at] and stats.interval(sample.at[at])
      if interval then
        local k = #s.x + 1
        s.x[k], s.y[k] = type(at) == "number" and at or i, interval.mean
        s.error[k] = interval.half or 0
        least, most = math.min(least or interval.n, interval.n), math.max(most or 1, interval.n)
      end
    end
    if (most or 1) == 1 then s.error = nil end
    series[#series + 1] = s
  end
  local several = most and most > 1
  return series, several and spread(least, most, "95 % interval") or ""
end

-- Over words the intervals of several lines would hide each other: each is beside the last.
local function aside(series)
  local apart = math.min(0.06, 0.4 / #series)
  for i, s in ipairs(series) do
    for k, x in ipairs(s.x) do s.x[k] = x + (i - (#series + 1) / 2) * apart end
  end
end

-- The base of a logarithmic axis: 2 where all numbers are powers of it.
local function base(places, log)
  for _, x in ipairs(log and places or {}) do
    if x < 1 or math.floor(x) ~= x or math.floor(x) & math.floor(x) - 1 ~= 0 then return true end
  end
  return log and 2 or nil
end

local function add(at, x, value)
  at[x] = at[x] or {}
  table.insert(at[x], value)
end

-- The last value of a metric against a key of the configuration.
function curves.against(set, metric, key, options)
  local o = options or {}
  gathered.check(set, metric)
  gathered.check_keys(set, { key })
  local samples, places, seen, numbers = {}, {}, {}, true
  local list = gathered.groups(set, { by = o.by, each = o.each, without = key })
  for i, group in ipairs(list) do
    samples[i] = { label = group.label, at = {} }
    for _, t in ipairs(group.trials) do
      local x, y = gathered.value(t, key), last(set.store, t, metric)
      if x ~= nil and y and t.status == "done" then
        if type(x) ~= "number" then x = plan.show(x) end
        numbers = numbers and type(x) == "number"
        if not seen[x] then
          seen[x], places[#places + 1] = true, x
        end
        add(samples[i].at, x, y)
      end
    end
  end
  local names
  if numbers then
    table.sort(places)
  else -- numbers among words are words too
    names = {}
    for i, x in ipairs(places) do names[i] = plan.show(x) end
    for _, sample in ipairs(samples) do
      local at = {}
      for x, values in pairs(sample.at) do at[plan.show(x)] = values end
      sample.at = at
    end
  end
  local series, what = through(samples, names or places)
  if names then aside(series) end
  return finish({ xlabel = key, ylabel = metric, series = series, xnames = names }, set,
    { logx = not names and base(places, o.logx) or nil, logy = o.logy }, #list, what)
end

-- Metrics NAME whose names are prefix and a number, as one line against the number.
function curves.at(set, prefix, options)
  local o, names, seen = options or {}, {}, {}
  for name in pairs(gathered.metrics(set)) do
    local number = tonumber(name:sub(#prefix + 1))
    if name:sub(1, #prefix) == prefix and number then names[number] = name end
    local head = name:match("^(.-[^%d.])[%d.]+$")
    if head then seen[head] = true end
  end
  if not next(names) then
    errors.usage("plot: these trials have no metrics '%sNUMBER'%s", prefix,
      suggest.hint(prefix, suggest.keys(seen)))
  end
  local places, samples, list = {}, {}, gathered.groups(set, o)
  for number in pairs(names) do places[#places + 1] = number end
  table.sort(places)
  for i, group in ipairs(list) do
    samples[i] = { label = group.label, at = {} }
    for _, t in ipairs(group.trials) do
      for _, number in ipairs(t.status == "done" and places or {}) do
        local value = last(set.store, t, names[number])
        if value then add(samples[i].at, number, value) end
      end
    end
  end
  local series, what = through(samples, places)
  local name = prefix:gsub("[%s@_:/.-]+$", "")
  return finish({ xlabel = prefix .. "...", ylabel = name, series = series }, set,
    { logx = base(places, o.logx), logy = o.logy }, #list, what)
end

return curves
