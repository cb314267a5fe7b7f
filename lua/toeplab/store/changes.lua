-- store/changes.lua: the changes that a user makes to trials: tags and notes, the trash, trying
-- again, stopping, and a sweep beside the run that is at work. Each function takes the store,
-- opened for writing, and a table of arguments, and returns a table of what was done. requests.lua
-- calls them here or in the process that holds the store, and then gives them a third argument
-- about the run of that process: {needs= (the ids of trials that it needs -> what it does with
-- them: "waits in"), stop= (a function that stops the running trial of an id; it returns why that
-- cannot be, or nil)}.
local errors = require "toeplab.base.errors"
local guests = require "toeplab.store.guests"
local selection = require "toeplab.store.selection"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"

local changes = {}

-- Adds the tags to the set or removes them; counts per tag the trials whose set changed.
local function change_tags(tags, list, wanted, tally)
  for _, tag in ipairs(list) do
    tally[tag] = (tally[tag] or 0) + (tags[tag] ~= wanted and 1 or 0)
    tags[tag] = wanted
  end
end

-- Changes one trial in its row of v_trials.
local function write_marks(store, row, a, given, taken)
  local tags, list, lines = {}, {}, { not a.clear and row.notes ~= "" and row.notes or nil }
  for tag in row.tags:gmatch("%S+") do tags[tag] = true end
  change_tags(tags, a.tag or {}, true, given)
  change_tags(tags, a.untag or {}, nil, taken)
  for tag in pairs(tags) do list[#list + 1] = tag end
  table.sort(list)
  for _, line in ipairs(a.note or {}) do
    if line ~= "" then lines[#lines + 1] = line end
  end
  store:mark(row.id, "marks", table.concat(list, " "), table.concat(lines, "\n"))
end

-- Sets tags and notes. a: words (which trials), tag, untag and note (lists, or nil), clear. Returns
-- {trials= (their number), given= and taken= (tag -> number of trials whose tags changed)}.
function changes.mark(store, a)
  local rows, given, taken = {}, {}, {}
  for i, id in ipairs(selection.ids(store, a.words, "mark")) do
    rows[i] = store:rows("SELECT id, tags, notes FROM v_trials WHERE id = ?", { id })[1]
  end
  store:transaction(function()
    for _, row in ipairs(rows) do write_marks(store, row, a, given, taken) end
  end)
  return { trials = #rows, given = given, taken = taken }
end

-- Moves trials to the trash. a: words, dry (nothing moves). Returns {trials=, files=, bytes=}.
function changes.rm(store, a, run)
  local ids, files, bytes = selection.ids(store, a.words, "rm"), 0, 0
  local guests_have = guests.trials(store.folder)
  for _, id in ipairs(ids) do
    local why = run and run.needs[id] or guests_have[id] and "waits in"
    if why then
      errors.usage("trial %s %s the run that is at work: stop that first; nothing was removed",
        id:sub(1, 12), why)
    end
    local row = store:rows("SELECT count(*) AS n, total(bytes) AS b FROM v_artifacts "
      .. "WHERE trial = ?", { id })[1]
    files, bytes = files + row.n, bytes + row.b
  end
  if not a.dry then trash.put(store, ids) end
  return { trials = #ids, files = files, bytes = bytes }
end

-- Takes trials out of the trash. a: words, dry. Returns {trials=}.
function changes.restore(store, a)
  local ids = selection.ids(store, a.words, "rm --restore", true)
  if not a.dry then trash.restore(store, ids) end
  return { trials = #ids }
end

-- Queues trials that did not end well. a: words, dry. Returns {trials=, commands= (those that run
-- them, each once)}.
function changes.retry(store, a)
  local query = selection.new(store, a.words)
  local list = query:rows("t.id, t.command",
    ("AND (t.status IN ('failed', 'interrupted') OR %s = 'killed') ORDER BY t.started, t.id")
      :format(query.status))
  store:transaction(function()
    for _, t in ipairs(a.dry and {} or list) do store:mark(t.id, "retry") end
  end)
  local commands, seen = {}, {}
  for _, t in ipairs(list) do
    if t.command and not seen[t.command] then
      seen[t.command], commands[#commands + 1] = true, t.command
    end
  end
  return { trials = #list, commands = commands }
end

-- Asks running trials to save and stop; the run goes on with its other trials. a: words. Returns
-- {trials=}.
function changes.stop(store, a, run)
  local ids = selection.ids(store, a.words, "stop")
  if #ids > 1 then errors.usage("stop: one trial at a time, and %d are meant", #ids) end
  for _, id in ipairs(ids) do
    local why = run and run.stop(id) or not run and "there is no run at work in this folder"
    if why then errors.usage("trial %s cannot be stopped: %s", id:sub(1, 12), why) end
  end
  return { trials = #ids }
end

-- Inserts the rows of a sweep and of its trials for a run beside the one that holds the store, and
-- records that it runs those that have not ended. a: host and pid of that run, sweep (of
-- Records:sweep), trials (of sweeps.rows_of; with ours: whether that run is to run it). Returns
-- {taken=}: in words, which of these trials another run has; nothing is changed then.
function changes.enlist(store, a, run)
  local open = {}
  for _, t in ipairs(a.trials) do
    if not trial_files.is_id(t.id) then errors.usage("'%s' is not the id of a trial", t.id) end
    local status = t.ours and store:status(t.id)
    if status == "running" or t.ours and run and run.needs[t.id] then
      return { taken = "another run has trial " .. t.id:sub(1, 12) }
    end
    if t.ours and status ~= "done" and status ~= "pruned" then open[#open + 1] = t.id end
  end
  local taken = guests.taken(store.folder, open)
  if taken then return { taken = taken } end
  store:transaction(function() store:enlist(store:sweep(a.sweep), a.trials) end)
  guests.enter(store.folder, a.host, a.pid, open)
  return {}
end

return changes
