-- store/news.lua: reads and writes the file "news" of a results folder, a log of the changes to the
-- files of trials and sweeps. With it, the database of another machine, or of a process that was
-- killed before it stored its rows, catches up without reading all files. Its lines:
--   folder ID            the first line, which distinguishes this folder from others of its name
--   begin ID K @TIME     attempt K at the trial begins
--   mark ID BYTES @TIME  its marks.jnl, of BYTES bytes, gets another record
--   files ID @TIME       other files of the trial change
--   gone ID @TIME        its files are deleted
--   sweep N @TIME        sweeps/N.json changes
--   dropped N @TIME      sweeps/N.json is deleted
-- A process writes the line before it changes the files, and holds the lock of the store
-- (records.lua) until it has changed them. On a network file system the change may become visible
-- later than its line; the line counts as unread until then, or until LATE_SECONDS have passed and
-- the change must have failed. The times make the lines unique, so that a folder that was restored
-- from a copy is recognised.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local trial_files = require "toeplab.store.trial_files"

local news = {}

local LAST = 48         -- bytes before an offset to compare; they include the time of a line
local LATE_SECONDS = 60 -- the longest delay of a network file system

-- Returns the first line of an open file (nil: there is none), its size, and the LAST bytes before
-- the offset `bytes` (nil: the end).
local function inspect(file, bytes)
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

-- Returns how far the database has read the news.
local function row_of(store) return store:rows "SELECT * FROM news"[1] or { bytes = 0 } end

-- Returns whether there are news that the database has not read.
function news.unread(store)
  local file <close>, row = open(store), row_of(store)
  local folder, size = inspect(file)
  return folder ~= row.folder or size ~= row.bytes
end

-- Returns whether the file begins with the part that the database has read.
local function continues(file, row)
  local folder, size, last = inspect(file, row.bytes)
  return folder == row.folder and (not folder or size >= row.bytes and last == row.last)
end

-- Returns whether the database belongs to another folder, or to files that were replaced since.
-- False for a database inside a folder without such files: there it is the only record.
function news.foreign(store)
  local file <close> = open(store)
  local alone = not file and not next(trial_files.sweeps(store.folder))
    and not trial_files.is_elsewhere(store.folder)
  return not alone and not continues(file, row_of(store))
end

-- Records that the database has read the news up to the offset `bytes` (nil: the end).
local function set_read(store, file, bytes)
  local folder, size, last = inspect(file, bytes)
  store:rows "DELETE FROM news"
  if not folder then return end
  store:rows("INSERT INTO news VALUES (?, ?, ?, NULL)", { folder, bytes or size, last })
end

-- Marks all news as read: the rows were just made from all files.
function news.skip(store)
  local file <close> = open(store)
  set_read(store, file)
end

-- The kinds of earlier lines that a later line makes obsolete.
local replaces = { gone = { "begin", "mark", "files" }, dropped = { "sweep" } }

-- Returns the unread news: kind of line -> name -> its number, or 0. Marks them as read, unless
-- is_shown(kind, name, number) says that a change is not visible yet. The caller then updates the
-- rows in the same transaction.
function news.take(store, is_shown)
  local list = { begin = {}, mark = {}, files = {}, gone = {}, sweep = {}, dropped = {} }
  local file <close>, row = open(store), row_of(store)
  local now, late = core.sys.now(), false
  if row.folder and not continues(file, row) then
    errors.raise(errors.STORAGE, "%s: another folder has replaced it: run the command again",
      store.folder)
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

-- Appends a line of these words, within a transaction of the store. Ends a torn line that a full
-- disk or a kill has left before it.
function news.append(store, ...)
  assert(store.inside, "news.append is called within a transaction")
  local file <close> = errors.stored(open(store, "a+b"))
  local _, size, last = inspect(file)
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
  -- Otherwise news.take reads this line later, together with unread ones before it.
  local all_read = size == row_of(store).bytes and select(2, inspect(file)) == size + #text
  if all_read then set_read(store, file) end
end

return news
