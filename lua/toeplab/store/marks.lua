-- store/marks.lua: applies a user's changes to trials: tags, notes, trash, stop. Each function
-- takes the store, opened for writing (for reading with dry), and a table of arguments, and returns
-- a table of counts. Runs continue meanwhile.
local errors = require "toeplab.base.errors"
local selection = require "toeplab.store.selection"
local trash = require "toeplab.store.trash"

local marks = {}

-- Returns the ids of the trials that the words of a verb select, and prints their number.
local function chosen(store, a, verb, trash_only)
  local ids = selection.ids(store, a.words, verb, trash_only)
  if #ids > 1 and not a.dry then errors.say("%s: %d trials", verb, #ids) end
  return ids
end

-- Adds tags to a set (present: true) or removes them (nil). Counts the changed trials per tag.
local function change_tags(tags, list, present, tally)
  for _, tag in ipairs(list) do
    tally[tag] = (tally[tag] or 0) + (tags[tag] ~= present and 1 or 0)
    tags[tag] = present
  end
end

-- Writes the new tags and notes of one trial, a row of v_trials.
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
-- {trials= (a number), given= and taken= (tag -> number of trials that gained or lost it)}.
function marks.mark(store, a)
  local ids, given, taken = chosen(store, a, "mark"), {}, {}
  store:transaction(function()
    for _, id in ipairs(ids) do
      local row = store:rows("SELECT id, tags, notes FROM v_trials WHERE id = ?", { id })[1]
      if row then write_marks(store, row, a, given, taken) end
    end
  end)
  return { trials = #ids, given = given, taken = taken }
end

-- Moves trials to the trash; a run that has queued one skips it. a: words, dry (move nothing).
-- Returns {trials=, files=, bytes=, experiments= (name -> its trials)}.
function marks.rm(store, a)
  local ids, files, bytes, of = chosen(store, a, "rm"), 0, 0, {}
  for _, id in ipairs(ids) do
    local row = store:rows("SELECT experiment, (SELECT count(*) FROM v_artifacts WHERE trial = ?1) "
      .. "AS n, (SELECT total(bytes) FROM v_artifacts WHERE trial = ?1) AS b FROM v_trials "
      .. "WHERE id = ?1", { id })[1]
    files, bytes = files + row.n, bytes + row.b
    of[row.experiment] = (of[row.experiment] or 0) + 1
  end
  if not a.dry then trash.put(store, ids) end
  return { trials = #ids, files = files, bytes = bytes, experiments = of }
end

-- Restores trials from the trash. a: words, dry. Returns {trials=, experiments= (name -> its
-- trials)}.
function marks.restore(store, a)
  local ids, of = chosen(store, a, "rm --restore", true), {}
  for _, id in ipairs(ids) do
    local name = store:rows("SELECT experiment FROM trials WHERE id = ?", { id })[1].experiment
    of[name] = (of[name] or 0) + 1
  end
  if not a.dry then trash.restore(store, ids) end
  return { trials = #ids, experiments = of }
end

-- Asks a running trial to save and stop; its run continues with the others. a: words.
function marks.stop(store, a)
  local ids = selection.ids(store, a.words, "stop")
  if #ids > 1 then errors.usage("stop: name one trial; these words select %d", #ids) end
  local status, row = store:status(ids[1])
  local why = status ~= "running" and "it is " .. status or not row.busy and "its process has died"
    or row.whole and "only its whole run can be stopped (press Ctrl-C there)"
  if why then errors.usage("trial %s cannot be stopped: %s", ids[1]:sub(1, 12), why) end
  store:mark(ids[1], "stop", row.attempt)
end

return marks
