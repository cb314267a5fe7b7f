-- commands/mark.lua: toeplab mark: sets tags and notes of trials, by which every verb finds them.
local marks = require "toeplab.store.marks"
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
  words = { "trials" },
  options = {
    { name = "tag", short = "t", value = "TAG", many = true, of = "tags",
      help = "add a tag" },
    { name = "untag", short = "u", value = "TAG", many = true, of = "tags",
      help = "remove a tag" },
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

local function show_marks(row)
  local id = row.id:sub(1, 12)
  if row.tags ~= "" then print(("%s  tags: %s"):format(id, row.tags)) end
  for line in row.notes:gmatch("[^\n]+") do print(("%s  %s"):format(id, line)) end
end

local function report(done, set)
  for _, tag in ipairs(set.tag or {}) do
    print(("%s now '%s'"):format(output.count(done.given[tag], "trial"), tag))
  end
  for _, tag in ipairs(set.untag or {}) do
    print(("%s no longer '%s'"):format(output.count(done.taken[tag], "trial"), tag))
  end
  local noted = set.note and "noted" or set.clear and "cleared"
  if noted then print(("%s %s"):format(output.count(done.trials, "trial"), noted)) end
end

function mark.run(set, words)
  if #words == 0 then errors.usage("mark: which trials? Give ids (see toeplab ls) or @last") end
  check(set.tag or {})
  check(set.untag or {})
  for _, note in ipairs(set.note or {}) do
    if note == "" then errors.usage "mark: a note is empty" end
  end
  local folder = records.folder(set.dir)
  local changed = set.tag or set.untag or set.note or set.clear
  local store <close> = records.open(folder, changed and "u" or "r")
  if changed then
    report(marks.mark(store, { words = words, tag = set.tag, untag = set.untag, note = set.note,
      clear = set.clear }), set)
    return
  end
  for _, id in ipairs(selection.ids(store, words, "mark")) do
    show_marks(store:rows("SELECT id, tags, notes FROM v_trials WHERE id = ?", { id })[1])
  end
end

return mark
