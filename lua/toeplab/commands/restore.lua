-- commands/restore.lua: toeplab restore: trials out of the trash.
local output = require "toeplab.report.listing"
local records = require "toeplab.store.records"
local select = require "toeplab.store.select"
local errors = require "toeplab.base.errors"
local trash = require "toeplab.store.trash"

local restore = {
  example = "toeplab restore @last\n  toeplab restore quickstart\n  toeplab ls --trash",
  usage = "toeplab restore TRIAL...",
  about = "Takes trials out of the trash, as they were. Here @last means all that the last rm put\n"
    .. "there.\n" .. select.help,
  options = { output.dir },
}

function restore.run(set, words)
  if #words == 0 then
    errors.usage("restore: which trials? Give ids (see toeplab ls --trash), @last or @all")
  end
  local store <close> = records.open(records.folder(set.dir), "u")
  local ids = select.ids(store, words, "restore", true)
  trash.restore(store, ids)
  print(output.count(#ids, "trial") .. " restored")
  return errors.DONE
end

return restore
