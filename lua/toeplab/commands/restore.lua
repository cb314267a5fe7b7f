-- restore.lua: toeplab restore: trials out of the trash.
local output = require "toeplab.commands.output"
local records = require "toeplab.records"
local select = require "toeplab.select"
local stop = require "toeplab.stop"
local trash = require "toeplab.trash"

local restore = {
  example = "toeplab restore @last\n  toeplab restore quickstart\n  toeplab ls --trash",
  usage = "toeplab restore TRIAL...",
  about = "Takes trials out of the trash, as they were. Here @last means all that the last rm put\n"
    .. "there.\n" .. select.help,
  options = { output.dir },
}

function restore.run(set, words)
  if #words == 0 then
    stop.usage("restore: which trials? Give ids (see toeplab ls --trash), @last or @all")
  end
  local store <close> = records.open(records.folder(set.dir), "u")
  local ids = select.ids(store, words, "restore", true)
  trash.restore(store, ids)
  print(output.count(#ids, "trial") .. " restored")
  return stop.DONE
end

return restore
