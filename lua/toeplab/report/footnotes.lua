-- report/footnotes.lua: writes the notes below a filled table: how the cells were computed, which
-- settings differ from the paper's, how well the orders agree, errata, and the paper's claims.
local claims = require "toeplab.report.verdicts.claims"
local groups = require "toeplab.report.groups"
local seed_looks = require "toeplab.report.verdicts.seed_looks"
local config = require "toeplab.base.config"
local overlay = require "toeplab.base.overlay"
local progress = require "toeplab.base.progress"
local published_tables = require "toeplab.trials.published_tables"
local quantity = require "toeplab.base.quantity"
local shell = require "toeplab.base.shell"
local sorted_keys = require "toeplab.base.sorted_keys"
local space = require "toeplab.trials.space"
local yardsticks = require "toeplab.report.yardsticks"

local footnotes = { RESCUED = "†", EARLY = "‡" }

-- Returns the distinct texts of trials or of sweeps, sorted.
local function distinct(list, text)
  local set = {}
  for _, t in ipairs(list) do set[text(t) or ""] = true end
  set[""] = nil
  return sorted_keys(set)
end

-- Returns the number of values behind the means, "3" or "2 to 5", and the largest such number; nil
-- without means.
local function seeds(result)
  local least, most
  for _, row in ipairs(result.rows) do
    for _, c in ipairs(row.cells) do
      local n = c.interval and c.interval.n
      least = n and math.min(least or n, n) or least
      most = n and math.max(most or n, n) or most
    end
  end
  if not least then return nil end
  return least == most and tostring(least) or ("%d to %d"):format(least, most), most
end

local function status_counts(trials)
  local count = {}
  for _, t in ipairs(trials) do count[t.status] = (count[t.status] or 0) + 1 end
  local parts = {}
  for _, status in ipairs(sorted_keys(count)) do
    parts[#parts + 1] = ("%d %s"):format(count[status], status)
  end
  return table.concat(parts, ", ")
end

-- Returns ", 3h06m in all", the time that the trials took, or "" if no trial has a time.
local function time_taken(trials)
  local sum = 0
  for _, t in ipairs(trials) do sum = sum + (t.seconds or 0) end
  return sum > 0 and (", %s in all"):format(progress.duration(sum)) or ""
end

-- Returns the words of the newest command that set keys, except axes and
-- seeds: " steps=200 lr=0.01".
local function given(frame)
  local words = {}
  for _, word in ipairs(frame.plan.overrides or {}) do
    local key = word:match "^[^=]*"
    local covered = key:find "^seeds?$" or key == "scale" or key == "compare" or frame.axes[key]
    if not covered then words[#words + 1] = " " .. config.show(word) end
  end
  return table.concat(words)
end

local function measured(result, add)
  local frame, trials = result.frame, result.trials
  local n, most = seeds(result)
  if n then
    local spread = most > 1 and " ± half of its 95 % interval (Student's t)" or ""
    add("here: the mean%s over %s seed%s", spread, n, n == "1" and "" or "s")
  end
  local commits = distinct(trials, function(t)
    return t.made.commit and t.made.commit .. (t.made.dirty and " with changes" or "")
  end)
  local made = #commits > 0 and "; commit " .. table.concat(commits, ", ") or ""
  add("%s%s: %s%s%s", frame:title(), given(frame), status_counts(trials), time_taken(trials), made)
  local apart = frame.plan.tuned_key and not frame:tuned_key(result.apart)
  local how = distinct(frame.sweeps, function(s) return s.plan.tuned end)
  for _, text in ipairs(apart and {} or how) do add("%s", text) end
  for _, line in ipairs(seed_looks.of_frame(frame)) do add("%s", line) end
end

-- Names the data of which the trials used only a part.
local function parts(result, add)
  local of = result.frame:events "part"
  for _, text in ipairs(distinct(result.trials, function(t) return of[t.id] end)) do
    add("%s", text)
  end
  local tokens = result.frame.fixed.train_tokens
  if tokens then add("trained on the first %d tokens of the corpus", tokens) end
end

local MOST_NAMED = 3 -- rows

local function named(names)
  local more = #names > MOST_NAMED and (" and %d more"):format(#names - MOST_NAMED) or ""
  return table.concat(names, ", ", 1, math.min(#names, MOST_NAMED)) .. more
end

-- Returns a function that returns for a trial whether the same code of the experiment made it as
-- made the newest one, and whether its data equal the newest data of the same name.
local function newest_test(store, trials)
  local script, hashes, data = nil, {}, {}
  local function files(t)
    local made = t.made
    data[made] = data[made] or made.data and store:decode(made.data) or {}
    return data[made]
  end
  for _, t in ipairs(trials) do
    script = script or t.status ~= "queued" and t.made.script
    for key, hash in pairs(files(t)) do
      local name = config.show(t.point.values[key] or key)
      hashes[name] = hashes[name] or hash
    end
  end
  return function(t)
    local newest = t.status == "queued" or t.made.script == script
    for key, hash in pairs(files(t)) do
      newest = newest and hashes[config.show(t.point.values[key] or key)] == hash
    end
    return newest
  end
end

-- Names the rows whose trials have different code, or other versions (frames.lua) than the newest
-- command's, and reports whether their results may differ.
local function codes(result, add)
  local mixtures, earlier, numbers = {}, {}, {}
  local is_newest = newest_test(result.frame.store, result.trials)
  for _, row in ipairs(result.rows) do
    local made, mixed, old = {}, false, false
    for _, t in ipairs(row.group and row.group.trials or {}) do
      made[t.made.code], numbers[tostring(t.made.numerics)] = true, true
      mixed, old = mixed or t.made.mixed, old or not is_newest(t)
    end
    if mixed or next(made, next(made)) then mixtures[#mixtures + 1] = row.name end
    if old then earlier[#earlier + 1] = row.name end
  end
  if #mixtures > 0 then
    add(shell.named("made by more than one version of the code: %s (toeplab run --redo runs them "
      .. "again)"), named(mixtures))
  end
  if #earlier > 0 then
    add("made by another version of the experiment's code or data: %s", named(earlier))
  end
  local list = sorted_keys(numbers)
  if #list > 1 then
    add("of the numerics %s: results of one may differ from those of another",
      table.concat(list, " and "))
  end
end

local function same(a, b)
  if type(a) == "table" then return config.show(a) == config.show(b) end
  return a == b
end

-- Returns the setting that the paper states for a trial: that of all trials, and those whose where
-- fits it.
local function setting_of(published, t)
  local set = overlay(published.setting or {}, {})
  for _, part in ipairs(published.settings or {}) do
    if space.fits(part.where, t.point.values) then set = overlay(set, part.setting) end
  end
  return set
end

-- Lists the settings in which the paper's runs differ from ours, among those that the paper states
-- and that distinguish neither its rows or columns nor named rows. A whole 0 stands for the
-- preset's value.
local function settings(result, add)
  local published, found, parts = result.published or {}, {}, {}
  local rows, columns = published_tables.keys(published.rows or {}),
    published_tables.keys(published.columns or {})
  for _, t in ipairs(result.trials) do
    for key, theirs in pairs(setting_of(published, t)) do
      local own = t.point.values[key]
      local preset = math.type(own) == "integer" and own == 0
      local apart = rows[key] or columns[key] or result.frame.row_keys[key]
      if own ~= nil and not preset and not apart then
        local f = found[key] or { theirs = {}, ours = {}, differs = false }
        f.theirs[config.show(theirs)], f.ours[config.show(own)] = true, true
        f.differs, found[key] = f.differs or not same(theirs, own), f
      end
    end
  end
  for _, key in ipairs(sorted_keys(found)) do
    local f = found[key]
    if f.differs then
      parts[#parts + 1] = ("%s %s, here %s"):format(key,
        table.concat(sorted_keys(f.theirs), " or "), table.concat(sorted_keys(f.ours), " or "))
    end
  end
  if #parts > 0 then add("unlike the paper's runs: %s", table.concat(parts, "; ")) end
end

-- Returns the number of trials that a field of the cells counts. A trial that several cells count
-- counts once.
local function total(result, field)
  local seen, sum = {}, 0
  for _, row in ipairs(result.rows) do
    for _, cell in ipairs(row.cells) do
      for _, t in ipairs(cell.of and cell.of[field] or {}) do
        sum, seen[t] = sum + (seen[t] and 0 or 1), true
      end
    end
  end
  return sum
end

local function marks(result, add)
  local n = total(result, "rescued")
  if n > 0 then
    add("%s %s returned to an earlier step after a spike or nan (guard) and continued",
      footnotes.RESCUED, quantity.count(n, "trial"))
  end
  n = total(result, "early")
  if n > 0 then
    add("%s %s ended early (pruned, or over a budget): not in the mean", footnotes.EARLY,
      quantity.count(n, "trial"))
  end
  n = total(result, "diverged")
  if n > 0 then
    add("diverged: %s ended with inf or nan, or stopped by the guard or by a gradient that was "
      .. "not finite; a row with such a seed has no mean", quantity.count(n, "trial"))
  end
  local fewer = { total(result, "open") > 0 and "… not finished" or nil }
  n = total(result, "lacking")
  if n > 0 then
    fewer[#fewer + 1] = ("%s %s done and lack%s the metric of a column"):format(
      quantity.count(n, "trial"), n == 1 and "is" or "are", n == 1 and "s" or "")
  end
  if fewer[1] then add("%s; (2/3): a mean of 2 of 3 seeds", table.concat(fewer, "; ")) end
end

local function agreements(result, add)
  for _, a in ipairs(result.agreement) do
    local interval = a.low
      and (" [%.2f, %.2f], 95 %% by the spread of the seeds"):format(a.low, a.high)
      or " (a row of one seed: no interval)"
    local chance = a.p and ("; an order that agrees or disagrees as much comes by chance with "
      .. "probability %.2g"):format(a.p) or ""
    add("%s: rank agreement with the paper over %d rows, Kendall's tau-b %.2f%s%s", a.column.name,
      a.rows, a.tau, interval, chance)
  end
  for _, row in ipairs(result.rows) do
    if row.one_of and #result.agreement == 0 then
      return add("no rank agreement: several settings fit one row; choose with key=value")
    end
  end
end

local function left_over(result, add)
  local here, seen = false, {}
  for _, row in ipairs(result.rows) do
    for _, c in ipairs(row.cells) do
      here = here or c.asked > 0
      for _, t in ipairs(c.trials or {}) do seen[t] = true end
    end
  end
  local left = 0
  for _, t in ipairs(result.trials) do left = left + (seen[t] and 0 or 1) end
  if here and left > 0 then
    add("%s of the experiment match no column", quantity.count(left, "trial"))
  elseif not here then
    local names = {}
    for _, column in ipairs(result.columns) do
      for _, name in ipairs(column.metrics or {}) do
        names[#names + 1] = groups.at_length(name, result.frame.fixed.length)
      end
    end
    if #names > 0 then
      local lengths = result.frame.axes.length and "; training lengths differ, and 1x with them: "
        .. "choose one by a run of its own, with length=N" or ""
      add("no trial has logged the metrics of the columns (%s)%s", table.concat(names, ", "),
        lengths)
    end
  end
end

-- Returns the command that runs the rows of a published table without trials, as far as they differ
-- in one key of grid; nil if there are none.
local function missing(result)
  local frame, there, values, axis = result.frame, {}, {}, nil
  local match = published_tables.matcher(result.published.rows, frame.axes)
  for _, t in ipairs(result.trials) do there[match(t.point.values) or t] = true end
  local free = frame:free_keys()
  for _, row in ipairs(result.published.rows) do
    for _, where in ipairs(not there[row] and row.where or {}) do
      local key, value = next(where)
      if key and next(where, key) == nil and free[key] and (axis or key) == key then
        axis, values[#values + 1] = key, type(value) == "table" and value[1] or value
        break
      end
    end
  end
  if not axis or (frame.filters or {})[axis] then return nil end -- a filter may hide their trials
  return frame:command { [axis] = values }
end

-- Returns the list of texts below a table (the result of tables.fill).
function footnotes.of(result)
  local list = {}
  local function add(format, ...) list[#list + 1] = format:format(...) end
  if result.frame then
    measured(result, add)
    table.move(result.notes or {}, 1, #(result.notes or {}), #list + 1, list)
    parts(result, add)
    for _, line in ipairs(yardsticks.lines(result.yardsticks)) do add("%s", line) end
    codes(result, add)
    settings(result, add)
    marks(result, add)
    agreements(result, add)
    left_over(result, add)
    if #result.frame.others > 0 then
      add("also in this folder: %s", table.concat(result.frame.others, "; "))
    end
    list[#list + 1] = result.frame:left_out()
  end
  local draw = result.published and result.published.draw
  if draw then add("drawn by toeplab %s", draw) end
  if result.source then list[#list + 1] = "paper: " .. result.source end
  for _, note in ipairs(result.published and result.published.notes or {}) do
    list[#list + 1] = "paper: " .. note
  end
  if result.published then
    local lines = claims.words(result.published, result.frame)
    table.move(lines, 1, #lines, #list + 1, list)
    local command = result.frame and missing(result)
    if command then add("to measure the rows without trials: %s", command) end
  end
  return list
end

return footnotes
