-- commands/gc.lua: toeplab gc: frees what nobody needs any more.
local arguments = require "toeplab.commands.arguments"
local output = require "toeplab.report.listing"
local records = require "toeplab.store.records"
local errors = require "toeplab.base.errors"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"

local gc = {
  example = "toeplab gc --dry-run\n  toeplab gc --days 0",
  usage = "toeplab gc",
  about = "Deletes the trials that have been in the trash for 30 days, with their files, and what\n"
    .. "kills have left behind: files that no row knows, temporaries of processes that are gone,\n"
    .. "journals that are taken over. Says what it frees.",
  options = {
    { name = "days", value = "N", help = "trials that have been in the trash for N days (30)" },
    { name = "dry-run", short = "n", help = "list what would be freed; free nothing" },
    output.dir,
  },
}

local function size(store)
  return store:rows [[SELECT page_count * page_size AS bytes, freelist_count * page_size AS free
    FROM pragma_page_count, pragma_page_size, pragma_freelist_count]][1]
end

-- Gives unused pages of the database back to the disk, if they are many. Returns the bytes.
local function shrink(store)
  local before = size(store)
  if before.free * 4 < before.bytes then return 0 end
  store:rows "VACUUM"
  return before.bytes - size(store).bytes
end

-- Rows first: a file without a row is found by the next gc, a row without a file is damage.
local function free_trash(store, ids, dry)
  local bytes = 0
  for _, id in ipairs(ids) do
    local folder = store.folder .. "/" .. trial_files.folder(store.folder, id)
    bytes = bytes + trash.bytes(folder)
    if not dry then
      trash.delete(store, id)
      trash.remove(folder)
    end
  end
  if not dry then
    store:rows [[DELETE FROM sweeps WHERE id NOT IN (SELECT sweep FROM members)
      AND id NOT IN (SELECT sweep FROM trials WHERE sweep IS NOT NULL)]]
  end
  return bytes
end

local function free_stale(store, list, dry)
  local bytes = 0
  for _, item in ipairs(list) do
    bytes = bytes + item.bytes
    if dry then
      print(("%s  %s  (%s)"):format(store.folder .. "/" .. item.path, output.bytes(item.bytes),
        item.why))
    else
      trash.remove(store.folder .. "/" .. item.path)
    end
  end
  return bytes
end

function gc.run(set, words)
  if #words > 0 then errors.usage("gc: takes no words, got '%s'", words[1]) end
  local days, dry = arguments.number("gc", set, "days", 0) or 30, set["dry-run"]
  local store <close> = records.open(records.folder(set.dir), dry and "r" or "u")
  local ids = trash.expired(store, days)
  local trashed = free_trash(store, ids, dry)
  local list = trash.stale(store)
  local stale = free_stale(store, list, dry)
  local database = #ids > 0 and not dry and shrink(store) or 0
  print(("%s %s from the trash (%s), %s left behind (%s)%s"):format(
    dry and "would free" or "freed", output.count(#ids, "trial"), output.bytes(trashed),
    output.count(#list, "file"), output.bytes(stale),
    database > 0 and ", database " .. output.bytes(database) or ""))
  return errors.DONE
end

return gc
