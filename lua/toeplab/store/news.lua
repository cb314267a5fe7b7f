-- store/news.lua: the file "news" of a results folder, which lists what changed in the files of
-- trials and sweeps, so that the rows of another machine, or those of a process that was killed
-- before it could store them, need not be made from all files again. Its lines:
--   folder ID              the first one, which tells this folder from others that had its name
--   trial ID [K] @TIME     files of the trial change; K: its attempt K begins
--   gone ID @TIME          the files of the trial are deleted
--   sweep N @TIME          sweeps/N.json changes
-- A line is written before the files change, by a process that holds the store (records.lua) until
-- they have, so that who reads the line finds them changed, or knows that the change failed. The
-- times make lines differ, so that a folder that was put back from a copy is known as such.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local trial_files = require "toeplab.store.trial_files"

local news = {}

local LAST = 48 -- bytes, which hold the time of a line

local function path_of(root) return trial_files.own(root, "news") end

local function row_of(store)
  return store:rows "SELECT folder, bytes, last FROM news"[1] or { bytes = 0 }
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
-- news do not continue what the rows know. A database alone, without files, is its own truth.
function news.foreign(store)
  local row = row_of(store)
  local folder, size, last = state(store.folder, row.bytes)
  if not folder and not next(trial_files.sweeps(store.folder)) then return false end
  return folder ~= row.folder or row.folder ~= nil and (size < row.bytes or last ~= row.last)
end

-- Records that the rows of the store know all news.
local function set_read(store)
  local folder, size, last = state(store.folder)
  store:rows "DELETE FROM news"
  if folder then store:rows("INSERT INTO news VALUES (?, ?, ?)", { folder, size, last }) end
end

-- Takes all news as known: the rows were just made from all files.
news.skip = set_read

-- Returns what the rows do not know yet: {gone= (a set of ids), sweeps= (a list in order), trials=
-- (id -> the number of the last attempt that began, or 0)}; and takes it as known. The caller then
-- brings the rows up to date in the same transaction.
function news.take(store)
  local list, sweeps = { gone = {}, sweeps = {}, trials = {} }, {}
  local file <close> = io.open(path_of(store.folder), "rb")
  local text = file and file:seek("set", row_of(store).bytes) and file:read "a" or ""
  for line in text:gmatch "[^\n]+" do
    local kind, name, attempt = line:match "^(%l+) (%x+) ?(%d*) ?@[%d.]+$"
    if kind == "gone" then list.gone[name] = true end
    if kind == "sweep" then sweeps[math.tointeger(tonumber(name)) or 0] = true end
    if kind == "trial" then
      local last = math.tointeger(tonumber(attempt)) or 0
      list.trials[name] = math.max(list.trials[name] or 0, last)
    end
  end
  for id in pairs(sweeps) do table.insert(list.sweeps, id) end
  table.sort(list.sweeps)
  set_read(store)
  return list
end

-- Appends a line of these words, in a transaction of the store. What a full disk or a kill has left
-- of another line becomes one of its own.
function news.tell(store, ...)
  assert(store.inside, "news are told of within a transaction")
  local folder, _, last = state(store.folder)
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
  set_read(store)
end

return news
