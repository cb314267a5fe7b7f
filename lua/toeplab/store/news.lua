-- store/news.lua: the file "news" of a results folder, which lists what changed in the files of
-- trials and sweeps, so that the rows of another machine, or those of a process that was killed
-- before it could store them, need not be made from all files again. Its lines:
--   folder ID            the first one, which tells this folder from others that had its name
--   begin ID K @TIME     attempt K at the trial begins
--   mark ID BYTES @TIME  its marks.jnl, of so many bytes, gets another record
--   files ID @TIME       others of its files change
--   gone ID @TIME        its files are deleted
--   sweep N @TIME        sweeps/N.json changes
--   dropped N @TIME      sweeps/N.json is deleted
-- A line is written before the files change, by a process that holds the store (records.lua) until
-- they have. A network may show what is new some time later than the line, which then counts as
-- unread until it does, or for so long that the change must have failed. The times make lines
-- differ, so that a folder that was put back from a copy is known as such.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local trial_files = require "toeplab.store.trial_files"

local news = {}

local LAST = 48         -- bytes, which hold the time of a line
local LATE_SECONDS = 60 -- for which a network may not show what another machine has written

-- Returns what is to be known of an open file (nil: there is none): its first line, its size, and
-- what stands before the byte `bytes` (nil: the end).
local function look(file, bytes)
  if not file then return nil, 0 end
  file:seek "set"
  local folder, size = file:read "l", file:seek "end"
  bytes = math.max(0, bytes or size) -- a damaged row may hold any number
  file:seek("set", math.max(0, bytes - LAST))
  return folder or "", size, file:read(math.min(LAST, bytes)) or ""
end

local function open(store, mode)
  return io.open(trial_files.own(store.folder, "news"), mode or "rb")
end

-- Returns what the rows of a store know.
local function row_of(store) return store:rows "SELECT * FROM news"[1] or { bytes = 0 } end

-- Whether the rows of a store do not know all of its news.
function news.unread(store)
  local file <close>, row = open(store), row_of(store)
  local folder, size = look(file)
  return folder ~= row.folder or size ~= row.bytes
end

-- Whether the file continues what a row knows of it.
local function continues(file, row)
  local folder, size, last = look(file, row.bytes)
  return folder == row.folder and (not folder or size >= row.bytes and last == row.last)
end

-- Returns whether the rows are those of another folder, or of files that were replaced since. A
-- database that lies in its folder alone, without files, is its own truth.
function news.foreign(store)
  local file <close> = open(store)
  local alone = not file and not next(trial_files.sweeps(store.folder))
    and not trial_files.is_elsewhere(store.folder)
  return not alone and not continues(file, row_of(store))
end

-- Records that the rows know the news up to the byte `bytes` (nil: the end).
local function set_read(store, file, bytes)
  local folder, size, last = look(file, bytes)
  store:rows "DELETE FROM news"
  if not folder then return end
  store:rows("INSERT INTO news VALUES (?, ?, ?, NULL)", { folder, bytes or size, last })
end

-- Takes all news as known: the rows were just made from all files.
function news.skip(store)
  local file <close> = open(store)
  set_read(store, file)
end

-- What later lines make of earlier ones.
local replaces = { gone = { "begin", "mark", "files" }, dropped = { "sweep" } }

-- Returns what the rows do not know yet: kind of line -> name -> its number, or 0; and takes it as
-- known, unless is_shown(kind, name, number) says that a change is not seen yet. The caller then
-- brings the rows up to date in the same transaction.
function news.take(store, is_shown)
  local list = { begin = {}, mark = {}, files = {}, gone = {}, sweep = {}, dropped = {} }
  local file <close>, row = open(store), row_of(store)
  local now, late = core.sys.now(), false
  if row.folder and not continues(file, row) then
    errors.raise(errors.STORAGE, "%s: another folder was put into its place: give the command "
      .. "again", store.folder)
  end
  local text = file and file:seek("set", row.bytes) and file:read "a" or ""
  for line in text:gmatch "[^\n]+" do
    local kind, name, number = line:match "^(%l+) (%x+) ?(%d*) @[%d.]+$"
    if list[kind] then
      list[kind][name] = math.tointeger(tonumber(number)) or 0
      for _, other in ipairs(replaces[kind] or {}) do list[other][name] = nil end
    end
  end
  for kind, names in pairs(list) do
    for name, number in pairs(names) do late = late or not is_shown(kind, name, number) end
  end
  if late and math.abs(now - (row.since or now)) < LATE_SECONDS then
    store:rows("UPDATE news SET since = coalesce(since, ?)", { now })
  else
    set_read(store, file, row.bytes + #text)
  end
  return list
end

-- Appends a line of these words, in a transaction of the store. What a full disk or a kill has left
-- of another line becomes one of its own.
function news.tell(store, ...)
  assert(store.inside, "news are told of within a transaction")
  local file <close> = errors.stored(open(store, "a+b"))
  local _, size, last = look(file)
  local text = ("%s @%.6f\n"):format(table.concat({ ... }, " "), core.sys.now())
  if size == 0 then
    local name = ("%s %d %.6f"):format(core.sys.hostname(), core.sys.getpid(), core.sys.now())
    text = ("folder %s\n"):format(core.sha256(name):sub(1, 16)) .. text
  elseif last:sub(-1) ~= "\n" then
    text = "\n" .. text
  end
  local ok, why = file:write(text)
  if ok then ok, why = file:flush() end
  errors.stored(ok, why)
  -- Else the line is read with what is not seen yet, or with that of another machine before it.
  local all_read = size == row_of(store).bytes and select(2, look(file)) == size + #text
  if all_read then set_read(store, file) end
end

return news
