-- commands/tag.lua: toeplab tag: words that trials can be found by.
local output = require "toeplab.report.listing"
local records = require "toeplab.store.records"
local select = require "toeplab.store.select"
local errors = require "toeplab.base.errors"

local tag = {
  example = "toeplab tag baseline @best:val_ppl\n  toeplab tag --remove baseline @all\n"
    .. "  toeplab ls tag=baseline",
  usage = "toeplab tag TAG TRIAL...",
  about = "Gives trials a tag, a word by which ls tag=TAG and all other verbs find them.\n"
    .. select.help,
  options = {
    { name = "remove", short = "r", help = "take the tag from them instead" },
    output.dir,
  },
}

local LONGEST = 64

-- The tags with or without one of them, sorted.
local function changed(tags, word, remove)
  local list = { not remove and word or nil }
  for other in tags:gmatch("%S+") do
    if other ~= word then list[#list + 1] = other end
  end
  table.sort(list)
  return table.concat(list, " ")
end

function tag.run(set, words)
  local word = table.remove(words, 1)
  if not word or #words == 0 then errors.usage("tag: give a tag and the trials it is for") end
  if word == "" or #word > LONGEST then
    errors.usage("tag: a tag has 1 to %d characters", LONGEST)
  elseif word:find("[^%w_%-%.:/+]") then
    errors.usage("tag: '%s' has other characters than letters, digits and _-.:/+", word)
  end
  local store <close> = records.open(records.folder(set.dir), "u")
  local count = 0
  store:transaction(function()
    for _, id in ipairs(select.ids(store, words, "tag")) do
      local old = store:rows("SELECT tags FROM trials WHERE id = ?", { id })[1].tags
      local new = changed(old, word, set.remove)
      if new ~= old then
        count = count + 1
        store:rows("UPDATE trials SET tags = ? WHERE id = ?", { new, id })
      end
    end
  end)
  print(("%s %s '%s'"):format(output.count(count, "trial"), set.remove and "no longer" or "now",
    word))
  return errors.DONE
end

return tag
