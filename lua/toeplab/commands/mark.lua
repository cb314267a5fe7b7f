-- commands/mark.lua: toeplab mark: sets tags and notes of trials, by which every verb finds them.
local errors = require "toeplab.base.errors"
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"
local selection = require "toeplab.store.selection"

local mark = {
  example = "toeplab mark @best:val_ppl --tag baseline --note 'learning rate too high?'\n"
    .. "  toeplab mark @all --untag baseline\n  toeplab ls tag=baseline note~rate",
  usage = "toeplab mark TRIAL... [--tag TAG | --untag TAG | --note TEXT | --clear]...",
  about = "Gives trials tags, words that tag=TAG finds, and lines of notes, which note~TEXT\n"
    .. "finds and show prints. Without an option prints the tags and notes of the trials.\n"
    .. selection.help,
  options = {
    { name = "tag", short = "t", value = "TAG", many = true, help = "give them a tag" },
    { name = "untag", short = "u", value = "TAG", many = true, help = "take a tag from them" },
    { name = "note", value = "TEXT", many = true, help = "add a line to their notes" },
    { name = "clear", help = "first delete the existing notes" },
    output.dir,
  },
}

local LONGEST = 64

local function check(tags)
  for _, tag in ipairs(tags) do
    if tag == "" or #tag > LONGEST then
      errors.usage("mark: a tag has 1 to %d characters", LONGEST)
    elseif tag:find("[^%w_%-%.:/+]") then
      errors.usage("mark: '%s' has other characters than letters, digits and _-.:/+", tag)
    end
  end
end

-- Adds the tags to the set or removes them; counts per tag the trials whose set changed.
local function change_tags(tags, list, wanted, tally)
  for _, tag in ipairs(list) do
    tally[tag] = (tally[tag] or 0) + (tags[tag] ~= wanted and 1 or 0)
    tags[tag] = wanted
  end
end

-- Changes one trial in its row of v_trials.
local function write_marks(store, row, set, given, taken)
  local tags, list, lines = {}, {}, { not set.clear and row.notes ~= "" and row.notes or nil }
  for tag in row.tags:gmatch("%S+") do tags[tag] = true end
  change_tags(tags, set.tag or {}, true, given)
  change_tags(tags, set.untag or {}, nil, taken)
  for tag in pairs(tags) do list[#list + 1] = tag end
  table.sort(list)
  for _, line in ipairs(set.note or {}) do
    if line ~= "" then lines[#lines + 1] = line end
  end
  store:mark(row.id, table.concat(list, " "), table.concat(lines, "\n"))
end

local function show_marks(row)
  local id = row.id:sub(1, 12)
  if row.tags ~= "" then print(("%s  tags: %s"):format(id, row.tags)) end
  for line in row.notes:gmatch("[^\n]+") do print(("%s  %s"):format(id, line)) end
end

local function report(count, set, given, taken)
  for _, tag in ipairs(set.tag or {}) do
    print(("%s now '%s'"):format(output.count(given[tag], "trial"), tag))
  end
  for _, tag in ipairs(set.untag or {}) do
    print(("%s no longer '%s'"):format(output.count(taken[tag], "trial"), tag))
  end
  if set.note or set.clear then print(output.count(count, "trial") .. " noted") end
end

function mark.run(set, words)
  if #words == 0 then errors.usage("mark: which trials? Give ids (see toeplab ls) or @last") end
  check(set.tag or {})
  check(set.untag or {})
  local writes = set.tag or set.untag or set.note or set.clear
  local store <close> = records.open(records.folder(set.dir), writes and "u" or "r")
  local rows, given, taken = {}, {}, {}
  for i, id in ipairs(selection.ids(store, words, "mark")) do
    rows[i] = store:rows("SELECT id, tags, notes FROM v_trials WHERE id = ?", { id })[1]
  end
  if writes then
    store:transaction(function()
      for _, row in ipairs(rows) do write_marks(store, row, set, given, taken) end
    end)
    report(#rows, set, given, taken)
  else
    for _, row in ipairs(rows) do show_marks(row) end
  end
end

return mark
