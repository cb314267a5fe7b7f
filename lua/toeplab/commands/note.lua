-- commands/note.lua: toeplab note: what a person has to say of a trial.
local output = require "toeplab.report.listing"
local records = require "toeplab.store.records"
local select = require "toeplab.store.select"
local errors = require "toeplab.base.errors"

local note = {
  example = "toeplab note @last 'learning rate too high?'\n  toeplab note 3f9c1a",
  usage = "toeplab note TRIAL [TEXT]",
  about = "Adds a line to the notes of trials, which show prints and 'note~TEXT' finds; without\n"
    .. "TEXT prints them. TRIAL is one word:\n" .. select.help,
  options = {
    { name = "clear", help = "forget the notes there are first" },
    output.dir,
  },
}

local function print_notes(store, ids)
  for _, id in ipairs(ids) do
    local notes = store:rows("SELECT notes FROM trials WHERE id = ?", { id })[1].notes
    for line in notes:gmatch("[^\n]+") do print(("%s  %s"):format(id:sub(1, 12), line)) end
  end
end

function note.run(set, words)
  local word = table.remove(words, 1)
  if not word then errors.usage("note: which trial? Give an id (see toeplab ls) or @last") end
  local text = table.concat(words, " ")
  local writes = text ~= "" or set.clear
  local store <close> = records.open(records.folder(set.dir), writes and "u" or "r")
  local ids = select.ids(store, { word }, "note")
  if not writes then
    print_notes(store, ids)
    return errors.DONE
  end
  store:transaction(function()
    for _, id in ipairs(ids) do
      store:rows([[UPDATE trials SET notes = CASE WHEN ?2 OR notes = '' THEN ?3
        WHEN ?3 = '' THEN notes ELSE notes || char(10) || ?3 END WHERE id = ?1]],
        { id, set.clear or false, text })
    end
  end)
  print(("%s noted"):format(output.count(#ids, "trial")))
  return errors.DONE
end

return note
