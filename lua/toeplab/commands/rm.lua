-- commands/rm.lua: toeplab rm: moves trials to the trash and back, and deletes them for good.
local arguments = require "toeplab.base.arguments"
local marks = require "toeplab.store.marks"
local errors = require "toeplab.base.errors"
local files = require "toeplab.base.files"
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"
local selection = require "toeplab.store.selection"
local shell = require "toeplab.base.shell"
local sorted_keys = require "toeplab.base.sorted_keys"
local trash = require "toeplab.store.trash"

local rm = {
  example = "toeplab rm quickstart @failed\n  toeplab rm --restore @last\n"
    .. "  toeplab rm --purge --dry-run",
  usage = "toeplab rm TRIAL...\n       toeplab rm --restore TRIAL...\n       toeplab rm --purge",
  about = "Moves trials to the trash. No verb shows or counts them any more; nothing is deleted\n"
    .. "until --purge frees trials that have been there for 30 days. A running trial is refused.\n"
    .. "--restore takes trials out of the trash, unchanged; there @last selects all that the\n"
    .. "last rm moved. A run that needs a trial restores it too.\n"
    .. "--purge deletes the trials that have been in the trash that long, with their files, and\n"
    .. "what killed processes left behind: files that no row mentions, temporary files,\n"
    .. "journals that are in the store. It prints what it frees.\n" .. selection.help,
  words = { "trials" },
  options = {
    { name = "restore", help = "take trials out of the trash",
      more = [[
        Unchanged; `@last` selects all that the last toeplab rm moved. A run that needs them
        restores them too.]] },
    { name = "purge", help = "delete what has been in the trash for 30 days, and stray files",
      more = [[
        With their files, and what killed processes left behind: files that no row mentions,
        temporary files, journals that are in the store.]] },
    { name = "days", value = "N", help = "with --purge: trials that have been there for N days" },
    output.dry_run,
    output.dir,
  },
}

-- Counts trials: "3 trials of copy" or, of several experiments, "3 trials (2 of copy, 1 of lm)".
-- done: a result of store/marks.lua.
local function count(done)
  local names, of = sorted_keys(done.experiments), {}
  for i, name in ipairs(names) do of[i] = ("%d of %s"):format(done.experiments[name], name) end
  return output.count(done.trials, "trial") .. (#of > 1 and " (" .. table.concat(of, ", ") .. ")"
    or of[1] and " of " .. names[1] or "")
end

local function put(store, words, dry)
  local done = marks.rm(store, { words = words, dry = dry })
  local what = ("%s, %s, %s"):format(count(done), output.count(done.files, "file"),
    output.bytes(done.bytes))
  if dry then return print(what .. " would be moved to the trash") end
  print(what .. shell.named(" moved to the trash (undo: toeplab rm --restore @last; freed by "
    .. "toeplab rm --purge in 30 days)"))
end

local function restore(store, words, dry)
  local done = marks.restore(store, { words = words, dry = dry })
  print(count(done) .. (dry and " would be restored" or " restored"))
end

local function purge(store, days, dry)
  local ids, list, trashed, left = nil, nil, nil, 0
  local function free()
    ids = trash.expired(store, days)
    trashed = trash.bytes(store, ids)
    if not dry then trash.delete(store, ids) end
    list = trash.stale(store)
    for _, item in ipairs(list) do
      local path = store.folder .. "/" .. item.path
      left = left + item.bytes
      if dry then
        print(("%s  %s  (%s)"):format(path, output.bytes(item.bytes), item.why))
      else
        files.remove(path)
      end
    end
  end
  if dry then free() else store:transaction(free) end -- so that no run begins one meanwhile
  local database = #ids > 0 and not dry and trash.shrink(store) or 0
  print(("%s %s from the trash (%s), %s left behind (%s)%s"):format(
    dry and "would free" or "freed", output.count(#ids, "trial"), output.bytes(trashed),
    output.count(#list, "file"), output.bytes(left),
    database > 0 and ", database " .. output.bytes(database) or ""))
end

local function check(set, words)
  if set.restore and set.purge then errors.usage("rm: choose one of --restore and --purge") end
  if set.days and not set.purge then errors.usage("rm: --days requires --purge") end
  if set.purge and #words > 0 then
    errors.usage("rm: --purge takes no trials, got '%s'", words[1])
  elseif #words == 0 and not set.purge then
    errors.usage("rm: which trials? Give ids (see toeplab ls%s), or @all",
      set.restore and " --trash" or "")
  end
end

function rm.run(set, words)
  check(set, words)
  local days, dry = arguments.number("rm", set, "days", 0) or 30, set["dry-run"]
  local store <close> = records.open(records.folder(set.dir), dry and "r" or "u")
  if set.purge then
    purge(store, days, dry)
  else
    (set.restore and restore or put)(store, words, dry)
  end
end

return rm
