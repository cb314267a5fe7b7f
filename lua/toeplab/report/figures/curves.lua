-- report/figures/curves.lua: turns the metrics of trials into specs for plot.lua: against the step,
-- a key of the configuration, another metric, or the number at the end of metrics' names.
--
--   local set = groups.set(store, ids)
--   plot.svg(path, curves.steps(set, "loss", { by = { "decay" } }))
--
-- Trials that differ only in the seed become one line, their mean. options: by (keys: one line for
-- each of their values), each (one line per trial), order (names of lines and of places along x
-- that come first), panel ({key=, and at=, a value of it}: draws only its trials, in the colours
-- that their lines have in all panels), logx, logy; fit, of last values.
local groups = require "toeplab.report.groups"
local config = require "toeplab.base.config"
local json = require "toeplab.base.json"
local overlay = require "toeplab.base.overlay"
local scaling = require "toeplab.report.scaling"
local stats = require "toeplab.report.stats"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

-- NAMED: the most lines in a legend, since colours and dashes repeat beyond them; BESIDE: the most
-- that fit beside the axes; a longer legend stands below them in columns.
local curves = { NAMED = 35, BESIDE = 14 }

local MOST = 400 -- points of a line
local NAN = 0 / 0

-- ---- Order and panels -------------------------------------------------------------------------

-- Moves the items that `order` names to the front, in this order. names_of(item) returns the list
-- of an item's names. found: the set of the names that have matched so far.
local function arrange(list, order, names_of, found)
  local rank, place = {}, {}
  for i, item in ipairs(list) do
    place[item], rank[item] = i, math.huge
    for _, name in ipairs(names_of(item)) do
      for k, wanted in ipairs(order) do
        if name == wanted then rank[item], found[wanted] = math.min(rank[item], k), true end
      end
    end
  end
  table.sort(list, function(a, b)
    if rank[a] ~= rank[b] then return rank[a] < rank[b] end
    return place[a] < place[b]
  end)
end

local function same(a, b) return json.encode { a } == json.encode { b } end

-- Returns the groups of the trials (groups.of), in order and, of a panel, with its trials alone.
local function lines_in(set, o, without)
  local key = o.panel and o.panel.key
  local list = groups.of(set, { by = o.by, each = o.each,
    without = { [without or ""] = true, [key or ""] = true } })
  arrange(list, o.order or {}, function(group)
    local names = { group.label }
    for _, name in ipairs(group.keys) do
      local value = groups.value(group.trials[1], name)
      names[#names + 1] = value ~= nil and config.show(value) or nil
      names[#names + 1] = value ~= nil and set.labels:part(name, value) or nil
    end
    return names
  end, set.ordered)
  for _, group in ipairs(key and list or {}) do
    local own = {}
    for _, t in ipairs(group.trials) do
      own[#own + 1] = same(groups.value(t, key), o.panel.at) and t or nil
    end
    group.all, group.trials = group.trials, own
  end
  return list
end

-- Returns the values of a key, in order, each as {key=, at=, title=}: a panel for each.
function curves.panels(set, key, order)
  groups.check_keys(set, { key })
  local list = {}
  for _, t in ipairs(set.trials) do
    local at, known = groups.value(t, key), false
    for _, other in ipairs(list) do known = known or same(other.at, at) end
    if not known then
      list[#list + 1] = { key = key, at = at, title = set.labels:part(key, at) }
    end
  end
  arrange(list, order or {}, function(panel) return { panel.title, config.show(panel.at) } end,
    set.ordered)
  return list
end

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

-- Returns one line: all values or, if they are many, the minimum and maximum of each bin of steps.
local function single(store, t, metric)
  local first, last, n = extent(store, { t }, metric)
  if n <= MOST then return store:series(t.id, metric) end
  local width, x, y = (last - first) // (MOST // 2) + 1, {}, {}
  local rows = store:rows([[SELECT step, value FROM (
      SELECT step, min(value) AS value FROM v_metrics WHERE trial = ?1 AND name = ?2
        GROUP BY (step - ?3) / ?4
      UNION SELECT step, max(value) FROM v_metrics WHERE trial = ?1 AND name = ?2
        GROUP BY (step - ?3) / ?4) ORDER BY step]], { t.id, metric, first, width })
  for i, row in ipairs(rows) do x[i], y[i] = row.step, row.value or NAN end
  return x, y
end

-- Returns the mean over trials, with minimum and maximum, at the steps that all of them have; if
-- those are many, averages over bins of steps.
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

-- Returns the lines of a group: the mean of its finished trials, if there are several with steps in
-- common, and each other trial by itself, dashed if it is not finished.
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

-- Returns the value of a drawn line at a step, nil before its beginning.
local function value_at(line, step)
  local y
  for i, x in ipairs(line.x) do
    if x > step then break end
    y = line.y[i]
  end
  return y
end

local marked = { { "rollback", "rolled back by the guard", 4 }, { "prune", "pruned", 2 } }

-- Marks interventions as points on the lines of their trials.
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

-- what: the part of the title that describes the means.
local function finish(spec, set, o, count, what)
  spec.title, spec.logx, spec.logy = groups.title(set) .. what, o.logx, o.logy
  spec.xlabel, spec.ylabel = set.labels:name(spec.xlabel), set.labels:name(spec.ylabel)
  spec.key = "none"
  for _, s in ipairs(spec.series) do
    if s.name then spec.key = count <= curves.BESIDE and "outside" or "below" end
    if count > curves.NAMED then s.name = nil end
  end
  if count > curves.NAMED then
    spec.key = "none"
    spec.title = ("%s (%d lines: too many for a legend)"):format(spec.title, count)
  end
  return spec
end

-- Describes the trials of the means and the meaning of their bands or bars; "" without means.
local function spread(least, most, what)
  if not least then return "" end
  local n = least == most and tostring(most) or ("%d to %d"):format(least, most)
  return (": mean and %s of %s trials"):format(what, n)
end

-- Returns the spec of a metric against the step.
function curves.steps(set, metric, options)
  local o, series, places, least, most = options or {}, {}, {}, nil, nil
  local dashed
  groups.check(set, metric)
  local list = lines_in(set, o)
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

-- Over words, the intervals of several lines would overlap, so each line is shifted a
-- little.
local function aside(series)
  local apart = math.min(0.12, 0.6 / #series)
  for i, s in ipairs(series) do
    for k, x in ipairs(s.x) do s.x[k] = x + (i - (#series + 1) / 2) * apart end
  end
end

-- Returns the base of a logarithmic axis: 2 if all places are powers of it, else true, which means
-- 10; nil if the axis is not logarithmic.
local function base(places, log)
  for _, x in ipairs(log and places or {}) do
    if x < 1 or math.floor(x) ~= x or math.floor(x) & math.floor(x) - 1 ~= 0 then return true end
  end
  return log and 2 or nil
end

-- Collects the last values of the finished trials of each group at each x: returns the lists
-- values[group][x]; the list of the x, sorted if all are numbers, else as words; and whether they
-- are words. points(t) returns the metrics to read, by x. The places of a panel are all panels'.
local function last_values(set, list, points, o)
  local values, places, seen, words, shown = {}, {}, {}, false, {}
  local found = {} -- {group, x, value, whether it is of the panel}
  for i, group in ipairs(list) do
    local own = {}
    for _, t in ipairs(group.trials) do own[t] = true end
    for _, t in ipairs(group.all or group.trials) do
      for x, metric in pairs(t.status == "done" and points(t) or {}) do
        local row = set.store:rows("SELECT value FROM v_last WHERE trial = ? AND name = ?",
          { t.id, metric })[1]
        if row then found[#found + 1] = { i, x, row.value or NAN, own[t] } end
        words = words or row and type(x) ~= "number"
      end
    end
  end
  for _, f in ipairs(found) do
    local x = words and config.show(f[2]) or f[2] -- beside words, numbers are words
    shown[x] = words and set.labels:value(o.key, f[2])
    if not seen[x] then seen[x], places[#places + 1] = true, x end
    values[f[1]] = values[f[1]] or {}
    values[f[1]][x] = values[f[1]][x] or {}
    if f[4] then table.insert(values[f[1]][x], f[3]) end
  end
  if words then
    local short = set.labels:name(o.key or "") .. "="
    arrange(places, o.order or {}, function(x)
      return { x, shown[x], short .. x }
    end, set.ordered)
  else
    table.sort(places)
  end
  return values, places, words and shown
end

-- Returns the line through the means at the places, with the numbers of trials: the least and most.
local function means_at(values, places, words)
  local s, least, most = { x = {}, y = {}, error = {} }, nil, nil
  for i, at in ipairs(places) do
    local interval = values[at] and #values[at] > 0 and stats.interval(values[at])
    if interval then
      local k = #s.x + 1
      s.x[k], s.y[k], s.error[k] = words and i or at, interval.mean, interval.half or 0
      least, most = math.min(least or interval.n, interval.n), math.max(most or 1, interval.n)
    end
  end
  return s, least, most
end

-- Makes points of the lines, fits curves to the values behind their means, and appends the
-- exponents to the names of the points.
local function add_fits(series, values, places, form)
  local lists, fitted = {}, {}
  for i, s in ipairs(series) do
    local points = { name = s.name }
    for _, at in ipairs(places) do
      if values[i] and values[i][at] then
        points[#points + 1] = { x = at, y = values[i][at] }
      end
    end
    if #points > 0 then
      lists[#lists + 1], fitted[#fitted + 1] = points, s
    end
  end
  local ok, fits = pcall(scaling.fits, lists, form)
  if not ok then
    errors.usage("plot: --fit: %s (--by KEYS chooses the lines)", fits:gsub("^scaling: ", ""))
  end
  for i, s in ipairs(fitted) do
    s.name = (s.name and s.name .. ": " or "") .. scaling.describe(fits[i])
    s.style = "points"
    local x, y = scaling.curve(fits[i])
    series[#series + 1] = { x = x, y = y, colour = s.colour }
  end
end

-- Turns the bars of a line into a band, so that several lines do not hide one another.
local function as_band(s)
  s.low, s.high = {}, {}
  for i, y in ipairs(s.y) do s.low[i], s.high[i] = y - s.error[i], y + s.error[i] end
  s.error = nil
end

-- Returns the spec of lines through the means of last values, one per group. A mean over only the
-- finite values would flatter, so a point with other values becomes a gap.
local function through(set, list, points, o)
  local values, places, words = last_values(set, list, points, o)
  local series, least, most = {}, nil, nil
  for colour, group in ipairs(list) do
    local s, low, high = means_at(values[colour] or {}, places, words)
    s.name, s.colour, series[colour] = group.label, colour, s
    if low then least, most = math.min(least or low, low), math.max(most or 1, high) end
    s.style = words and "points" or "both"
  end
  for _, s in ipairs(series) do
    if (most or 1) == 1 then s.error = nil end
    if s.error and not words and not o.fit then as_band(s) end
  end
  if o.fit and words then
    errors.usage("plot: --fit requires numbers along %s, which has words", o.xlabel)
  end
  if o.fit then add_fits(series, values, places, o.fit) end
  if words then aside(series) end
  local called = {}
  for i, x in ipairs(words and places or {}) do called[i] = words[x] end
  local spec = { xlabel = o.xlabel, ylabel = o.ylabel, series = series,
    xnames = words and called or nil }
  finish(spec, set, { logx = not words and base(places, o.logx) or nil, logy = o.logy }, #list,
    most and most > 1 and spread(least, most, "95 % interval") or "")
  if o.fit and spec.key == "outside" then spec.key = "below" end -- its names are long
  return spec
end

-- Returns the spec of the last value of a metric against a key of the configuration or against
-- the last value of another metric.
function curves.against(set, metric, key, options)
  local o = options or {}
  groups.check(set, metric)
  local is_key = groups.is_key(set, key)
  local list = lines_in(set, o, key)
  local function points(t)
    local x
    if is_key then
      x = groups.value(t, key)
    else
      local row = set.store:rows("SELECT value FROM v_last WHERE trial = ? AND name = ?",
        { t.id, key })[1]
      x = row and row.value
    end
    return x ~= nil and { [type(x) == "table" and config.show(x) or x] = metric } or {}
  end
  return through(set, list, points, overlay(o, { xlabel = key, ylabel = metric, key = key }))
end

-- Returns the spec of the metrics whose names are prefix and a number, as one line against the
-- number.
function curves.at(set, prefix, options)
  local o, names, seen = options or {}, {}, {}
  for name in pairs(groups.metrics(set)) do
    local number = tonumber(name:sub(#prefix + 1))
    if name:sub(1, #prefix) == prefix and number then names[number] = name end
    local head = name:match("^(.-[^%d.])[%d.]+$")
    if head then seen[head] = true end
  end
  if not next(names) then
    errors.usage("plot: these trials have no metrics '%sNUMBER'%s", prefix,
      suggest.hint(prefix, sorted_keys(seen)))
  end
  return through(set, lines_in(set, o), function() return names end,
    overlay(o, { xlabel = ("N of %sN"):format(prefix), ylabel = prefix:gsub("[%s@_:/.-]+$", "") }))
end

return curves
