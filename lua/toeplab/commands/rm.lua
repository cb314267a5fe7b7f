-- commands/rm.lua: toeplab rm: trials into the trash.
local output = require "toeplab.report.listing"
local records = require "toeplab.store.records"
local select = require "toeplab.store.select"
local errors = require "toeplab.base.errors"
local trash = require "toeplab.store.trash"

local rm = {
  example = "toeplab rm quickstart status=failed\n  toeplab restore @last",
  usage = "toeplab rm TRIAL...",
  about = "Puts trials into the trash: nothing shows or counts them any more, and nothing is lost\n"
    .. "until toeplab gc frees what has been there for 30 days. toeplab restore undoes it, and so\n"
    .. "does a run that asks for the trial. A running trial is refused.\n" .. select.help,
  options = {
    { name = "dry-run", short = "n", help = "only say what would be done" },
    output.dir,
  },
}

local function bytes_of(store, ids)
  local files, bytes = 0, 0
  for _, id in ipairs(ids) do
    local row = store:rows("SELECT count(*) AS n, total(bytes) AS b FROM artifacts WHERE trial = ?",
      { id })[1]
    files, bytes = files + row.n, bytes + row.b
  end
  return files, bytes
end

function rm.run(set, words)
  if #words == 0 then errors.usage("rm: which trials? Give ids (see toeplab ls), or @all") end
  local store <close> = records.open(records.folder(set.dir), set["dry-run"] and "r" or "u")
  local ids = select.ids(store, words, "rm")
  local files, bytes = bytes_of(store, ids)
  local what = ("%s, %s, %s"):format(output.count(#ids, "trial"), output.count(files, "file"),
    output.bytes(bytes))
  if set["dry-run"] then
    print(what .. " would go into the trash")
    return errors.DONE
  end
  trash.put(store, ids)
  print(what .. " into the trash (undo: toeplab restore @last; freed by toeplab gc in 30 days)")
  return errors.DONE
end

return rm
