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

local function path_of(root) return trial_files.own(root, "news") end

local function row_of(store)
  return store:rows "SELECT * FROM news"[1] or { bytes = 0 }
end

-- Returns the first line of the file, its size, and what stands before the byte `bytes` (nil: the
-- end); nil, 0 and nil if there is no file.
local function state(root, bytes)
  local file <close> = io.open(path_of(root), "rb")
  if not file then return nil, 0 end
  local folder, size = file:read "l", file:seek "end"
  bytes = bytes or size
  file:seek("set", math.max(0, bytes - LAST))
  return folder or "", size, file:read(math.min(LAST, bytes)) or ""
end

-- Whether the rows of a store do not know all of its news.
function news.unread(store)
  local row = row_of(store)
  local folder, size = state(store.folder)
  return folder ~= row.folder or size ~= row.bytes
end

-- Returns whether the rows are those of another folder, or of files that were replaced since: the
-- news do not continue what the rows know. A database that lies in its folder alone, without files,
-- is its own truth.
function news.foreign(store)
  local row = row_of(store)
  local folder, size, last = state(store.folder, row.bytes)
  local alone = not folder and not next(trial_files.sweeps(store.folder))
  if alone and not store:is_elsewhere() then return false end
  return folder ~= row.folder or row.folder ~= nil and (size < row.bytes or last ~= row.last)
end

-- Records that the rows of the store know all news.
local function set_read(store)
  local folder, size, last = state(store.folder)
  store:rows "DELETE FROM news"
  if folder then store:rows("INSERT INTO news VALUES (?, ?, ?, NULL)", { folder, size, last }) end
end

-- Whether the rows were ever brought up to date with news.
function news.any_read(store) return row_of(store).folder ~= nil end

-- Takes all news as known: the rows were just made from all files.
news.skip = set_read

-- What later lines make of earlier ones.
local replaces = { gone = { "begin", "mark", "files" }, dropped = { "sweep" } }

-- Returns what the rows do not know yet: kind of line -> name -> its number, or 0; and takes it as
-- known, unless is_shown(kind, name, number) says that a change is not seen yet. The caller then
-- brings the rows up to date in the same transaction.
function news.take(store, is_shown)
  local list = { begin = {}, mark = {}, files = {}, gone = {}, sweep = {}, dropped = {} }
  local row, now = row_of(store), core.sys.now()
  local file <close> = io.open(path_of(store.folder), "rb")
  local text = file and file:seek("set", row.bytes) and file:read "a" or ""
  for line in text:gmatch "[^\n]+" do
    local kind, name, number = line:match "^(%l+) (%x+) ?(%d*) @[%d.]+$"
    if list[kind] then
      list[kind][name] = math.tointeger(tonumber(number)) or 0
      for _, other in ipairs(replaces[kind] or {}) do list[other][name] = nil end
    end
  end
  local late = false
  for kind, names in pairs(list) do
    for name, number in pairs(names) do late = late or not is_shown(kind, name, number) end
  end
  if late and math.abs(now - (row.since or now)) < LATE_SECONDS then
    store:rows("UPDATE news SET since = coalesce(since, ?)", { now })
  else
    set_read(store)
  end
  return list
end

-- Appends a line of these words, in a transaction of the store. What a full disk or a kill has left
-- of another line becomes one of its own.
function news.tell(store, ...)
  assert(store.inside, "news are told of within a transaction")
  local folder, size, last = state(store.folder)
  local all_read = size == row_of(store).bytes
  local text = ("%s @%.6f\n"):format(table.concat({ ... }, " "), core.sys.now())
  if not folder then
    local name = ("%s %d %.6f"):format(core.sys.hostname(), core.sys.getpid(), core.sys.now())
    text = ("folder %s\n"):format(core.sha256(name):sub(1, 16)) .. text
  elseif last:sub(-1) ~= "\n" then
    text = "\n" .. text
  end
  local file = errors.stored(io.open(path_of(store.folder), "ab"))
  local ok, why = file:write(text)
  local closed, problem = file:close() -- which writes what is left
  errors.stored(ok and closed, why or problem)
  if all_read then set_read(store) end -- else it is read again with what is not seen yet
end

return news
