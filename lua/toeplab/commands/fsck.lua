-- commands/fsck.lua: toeplab fsck: checks that the results folder is intact, and repairs what can
-- be repaired.
local check = require "toeplab.store.check"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"

local fsck = {
  example = "toeplab fsck\n  toeplab fsck --repair",
  usage = "toeplab fsck",
  about = "Checks the database, the sha256 of every file that a trial keeps, files without rows,\n"
    .. "journals, and trials marked as running whose process died. With --repair, copies the\n"
    .. "database and repairs what it can. A damaged database is rebuilt from the journals, and\n"
    .. "the old one kept; a damaged journal is rewritten from the database. Exit code 6\n"
    .. "if damage remains.",
  options = {
    { name = "repair", help = "repair, after a copy of the database beside it" },
    { name = "quick", short = "q", help = "check sizes instead of sha256, and no journals" },
    { name = "json", help = "as JSON: an object for each finding, then a summary" },
    output.dir,
  },
}

local function printer(as_json)
  return function(item)
    if item.copy then
      if not as_json then print("the database was copied to " .. item.copy) end
      return
    end
    local state = item.how and "mended" or item.lost and "damage" or "note"
    print(as_json and json.line { state = state, text = item.text, how = item.how }
      or ("%-7s %s%s"):format(state, item.text, item.how and ": " .. item.how or ""))
  end
end

local function summary(found, as_json)
  if as_json then
    print(json.line { trials = found.trials, files = found.files, damage = found.left,
      copy = found.copy })
    return
  end
  print(("%s, %s: %s"):format(output.count(found.trials, "trial"),
    output.count(found.files, "file"),
    found.left > 0 and "damage remains" or found.all == 0 and "no problems" or "no damage"))
end

function fsck.run(set, words)
  if #words > 0 then errors.usage("fsck: takes no words, got '%s'", words[1]) end
  local found = check.run(records.folder(set.dir), set, printer(set.json))
  summary(found, set.json)
  if found.mendable and not set.repair then
    errors.say "toeplab fsck --repair repairs what it can"
  end
  return found.left > 0 and errors.STORAGE or errors.DONE
end

return fsck
