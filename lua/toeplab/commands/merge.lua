-- commands/merge.lua: toeplab merge: copies the trials of another results folder into this one.
local core = require "toeplab.core"
local merge = require "toeplab.store.merge"
local trial_files = require "toeplab.store.trial_files"
local output = require "toeplab.report.output"
local quantity = require "toeplab.base.quantity"
local records = require "toeplab.store.records"
local errors = require "toeplab.base.errors"

local command = {
  example = "toeplab merge node7/results\n  toeplab merge /mnt/node8/results --dry-run",
  usage = "toeplab merge FOLDER",
  about = "Copies the trials of another results folder here, with metrics, events and files, and\n"
    .. "checks their sha256. Of a trial in both folders, the further one is kept, with the\n"
    .. "tags, notes and adoptions of both; if both are done and their results differ, the one\n"
    .. "here is kept, an event records how they differ, and the exit code is 4. Running trials\n"
    .. "are skipped. Merging again changes nothing.",
  words = { "folder" },
  options = {
    output.dry_run,
    output.dir,
  },
}

local words = {
  { "add", "added" }, { "replace", "further there" }, { "same", "already here" },
  { "ahead", "further here" }, { "busy", "running, not copied" },
  { "trash", "in the trash here" }, { "conflict", "in conflict" },
}

local function print_counts(counts)
  local parts = {}
  for _, word in ipairs(words) do
    if counts[word[1]] > 0 then parts[#parts + 1] = ("%d %s"):format(counts[word[1]], word[2]) end
  end
  print(#parts > 0 and table.concat(parts, ", ") or "no trials there")
  if counts.others > 0 then
    print(("%d places in sweeps now show finished trials of other code")
      :format(counts.others))
  end
  if counts.files > 0 then
    print(quantity.count(counts.files, "file") .. " copied to trials that lacked them")
  end
  if counts.marked > 0 then
    print(quantity.count(counts.marked, "trial") .. " here with new tags, notes or adoptions")
  end
  for _, c in ipairs(counts.conflicts) do
    print(("conflict %s: %s"):format(c.id:sub(1, 12), table.concat(c.differences, "; ")))
  end
  for _, path in ipairs(counts.damaged) do
    errors.say("%s is missing or damaged, and was not copied", path)
  end
end

function command.run(set, given)
  if #given ~= 1 then errors.usage("merge: takes one folder, got %d", #given) end
  local from = given[1]:gsub("/runs%.db$", ""):gsub("(.)/+$", "%1")
  local folder = records.folder(set.dir)
  if from == folder or core.sys.same(from, folder) then
    errors.usage("merge: %s is the results folder itself", given[1])
  end
  local other <close> = records.snapshot(from)
  local empty = set["dry-run"] and not trial_files.has_store(folder)
  if empty then errors.usage("merge: %s holds no runs yet: all would be added", folder) end
  local store <close> = records.open(folder, set["dry-run"] and "r" or "w")
  local counts = merge.run(store, other, set["dry-run"])
  print_counts(counts)
  if #counts.damaged > 0 then return errors.STORAGE end
  return counts.conflict > 0 and errors.CHECK or errors.DONE
end

return command
