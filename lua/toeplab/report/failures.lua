-- report/failures.lua: groups the trials that failed, were killed or took too long by cause, and
-- prints what each group has in common, how far its checkpoints go, and the command that retries
-- it.
local json = require "toeplab.base.json"
local output = require "toeplab.report.output"
local config = require "toeplab.base.config"
local selection = require "toeplab.store.selection"
local shell = require "toeplab.base.shell"

local failures = {}

-- Removes from a message what differs between trials with one cause: paths other than a script's
-- name, numbers, ids.
local function cause(message)
  local text = message:match("^[^\n]*"):gsub("[%w_%-%.]*/[^%s:,'\"]+", function(path)
    return path:match("([^/]+%.lua)$") or "PATH"
  end)
  text = text:gsub("%f[%w]%x%x%x%x%x%x%x%x+%f[%W]", "ID")
  text = text:gsub("%f[%w][-+]?%d+%.?%d*[eE]?[-+]?%d*", "N"):gsub("%-N", "N")
  return text
end

local function read_failures(store, words)
  local query = selection.new(store, words)
  return query:rows("t.id, t.experiment, t.sweep, t.step, t.command, t.error, "
    .. query.status .. " AS status, json_extract(t.provenance, '$.label') AS label",
    ("AND (t.status = 'failed' OR %s = 'killed') ORDER BY t.started, t.id"):format(query.status))
end

-- Returns the groups of trials with one cause, experiment and status, the largest first: {cause=,
-- experiment=, status=, trials=}.
local function grouped(list)
  local groups, by = {}, {}
  for _, t in ipairs(list) do
    t.error = t.error or t.status == "killed" and "its run was killed" or "no message"
    local key = t.experiment .. "\0" .. t.status .. "\0" .. cause(t.error)
    if not by[key] then
      by[key] = { cause = cause(t.error), experiment = t.experiment, status = t.status,
        trials = {} }
      groups[#groups + 1] = by[key]
    end
    table.insert(by[key].trials, t)
  end
  table.sort(groups, function(a, b)
    if #a.trials ~= #b.trials then return #a.trials > #b.trials end
    return a.trials[1].id < b.trials[1].id
  end)
  return groups
end

-- ---- Common keys -------------------------------------------------------------------------------

local function ids_of(group)
  local ids = {}
  for i, t in ipairs(group.trials) do ids[i] = t.id end
  return json.encode(ids)
end

-- Returns the keys that have one value within the group and others elsewhere in the experiment, as
-- strings "op=ski", and the same as a condition on trials t in SQL, with its parameters.
local function shared(store, group)
  local rows = store:rows([[
    WITH here AS (SELECT value AS id FROM json_each(?1)),
    one AS (SELECT j.key, min(j.value) AS value, min(j.type) AS type
      FROM v_trials t, json_each(t.config) j WHERE t.id IN here GROUP BY j.key
      HAVING count(DISTINCT j.value) = 1 AND count(*) = (SELECT count(*) FROM here))
    SELECT one.key, one.value, one.type FROM one
    WHERE one.key <> 'seed' AND EXISTS (SELECT 1 FROM v_trials t
      WHERE t.experiment = ?2
      AND json_extract(t.config, '$."' || one.key || '"') IS NOT one.value) ORDER BY one.key]],
    { ids_of(group), group.experiment })
  local texts, where, params = {}, { "" }, {}
  for i, row in ipairs(rows) do
    local truth = row.type == "true" or row.type == "false" -- SQLite stores these as 1 and 0
    texts[i] = ("%s=%s"):format(row.key, config.show(truth and row.type or row.value))
    where[i + 1] = ("json_extract(t.config, ?) IS ?")
    params[2 * i - 1], params[2 * i] = '$."' .. row.key .. '"', row.value
  end
  return texts, table.concat(where, " AND "), params
end

-- Returns how many trials of the experiment share those values and have finished or failed.
local function spread(store, group, where, params)
  local all = { group.experiment }
  table.move(params, 1, #params, 2, all)
  return store:rows([[SELECT count(*) AS tried FROM v_trials t WHERE t.experiment = ?
    AND t.status NOT IN ('queued', 'running', 'interrupted')]] .. where, all)[1].tried
end

local function checkpoints(group)
  local least, most, none = nil, nil, 0
  for _, t in ipairs(group.trials) do
    if t.step and t.step > 0 then
      least, most = math.min(least or t.step, t.step), math.max(most or t.step, t.step)
    else
      none = none + 1
    end
  end
  if not least then return nil end
  local range = least == most and ("step %d"):format(least) or ("steps %d-%d"):format(least, most)
  return none > 0 and ("%s (%d have none)"):format(range, none) or range
end

local function describe(store, group)
  local texts, where, params = shared(store, group)
  group.shared = texts
  group.tried = spread(store, group, where, params)
  group.checkpoint = checkpoints(group)
  group.commands = {}
  local seen = {}
  for _, t in ipairs(group.trials) do
    local command = t.command and output.again(t.command)
    if command and not seen[command] then
      seen[command] = true
      table.insert(group.commands, command)
    end
  end
end

-- ---- Printing ---------------------------------------------------------------------------------

local function show_group(letter, g)
  local n = #g.trials
  print(("%s  %dx  %s  %s: %s"):format(letter, n, g.experiment, g.status,
    n == 1 and g.trials[1].error:match("^[^\n]*") or g.cause))
  if #g.shared > 0 then
    local others = math.max(0, g.tried - n)
    local note = others > 0 and ("; %d trial%s with the same values ended differently"):format(
      others, others == 1 and "" or "s")
      or n > 1 and ", and every trial with it fails: probably systematic"
    print(("       %s %s%s"):format(n == 1 and "it has" or "all have", table.concat(g.shared, " "),
      note or ""))
  end
  local ids = {}
  for i = 1, math.min(n, 6) do ids[i] = g.trials[i].id:sub(1, 12) end
  print(("       %s%s"):format(table.concat(ids, " "), n > 6 and " ..." or ""))
  if n > 1 then print("       the first: " .. g.trials[1].error:match("^[^\n]*")) end
  if g.checkpoint then print("       last checkpoint: " .. g.checkpoint) end
  for _, command in ipairs(g.commands) do print(shell.named("       again: " .. command)) end
end

local function show_json(letter, g)
  local ids = {}
  for i, t in ipairs(g.trials) do ids[i] = t.id end
  print(json.show { group = letter, count = #ids, cause = g.cause, experiment = g.experiment,
    status = g.status, first = g.trials[1].error, shared = g.shared, tried = g.tried, trials = ids,
    checkpoint = g.checkpoint, commands = g.commands })
end

-- A, B, ... Z, A1, B1, ...
local function letter_of(i)
  local round = (i - 1) // 26
  return string.char(65 + (i - 1) % 26) .. (round > 0 and round or "")
end

-- Prints the groups of the failed trials that the words select; as_json: one object per group.
function failures.print(store, words, as_json)
  local list = read_failures(store, words)
  local groups = grouped(list)
  if not as_json then
    print(#list == 0 and "no trial has failed" or ("%s in %s"):format(
      output.count(#list, "failed trial"), output.count(#groups, "group")))
  end
  for i, group in ipairs(groups) do
    describe(store, group)
    local put = as_json and show_json or show_group
    put(letter_of(i), group)
  end
end

return failures
