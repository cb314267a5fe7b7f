-- store/news.lua: the file "news" of a results folder, which lists what changed in the files of
-- trials and sweeps, so that the rows of another machine, or those of a process that was killed
-- before it could store them, need not be made from all files again. Its lines:
--   folder ID       the first one, which tells this folder from others that had its name
--   trial ID [K]    files of the trial change; K: its attempt K begins
--   gone ID         the files of the trial are deleted
--   sweep N         sweeps/N.json changes
-- A line is written before the files change, by a process that holds the store (records.lua) until
-- they have, so that who reads the line finds them changed, or knows that the change failed.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local trial_files = require "toeplab.store.trial_files"

local news = {}

local function path_of(root) return trial_files.own(root, "news") end

-- Returns the first line and the size of the file; nil and 0 if there is none.
function news.state(root)
  local file <close> = io.open(path_of(root), "rb")
  if not file then return nil, 0 end
  return file:read "l", file:seek "end"
end

-- Whether the rows of a store do not know all of its news.
function news.unread(store)
  local row = store:rows "SELECT folder, bytes FROM news"[1] or { bytes = 0 }
  local folder, bytes = news.state(store.folder)
  return folder ~= row.folder or bytes ~= row.bytes
end

-- Returns whether the rows are those of another folder, or of files that were replaced since.
function news.foreign(store)
  local row = store:rows "SELECT folder FROM news"[1]
  local folder = news.state(store.folder)
  return folder and folder ~= (row or {}).folder or false
end

-- Records that the rows of the store know the news up to the byte `bytes`; nil: all.
local function set_read(store, bytes)
  local folder, all = news.state(store.folder)
  if not folder then return end
  store:rows "DELETE FROM news"
  store:rows("INSERT INTO news VALUES (?, ?)", { folder, bytes or all })
end

-- Takes all news as known: the rows were just made from all files.
function news.skip(store) set_read(store) end

-- Returns what the rows do not know yet: {gone= (a set of ids), sweeps= (a list in order), trials=
-- (id -> the number of the last attempt that began, or 0)}; and takes it as known. The caller then
-- brings the rows up to date in the same transaction.
function news.take(store)
  local row = store:rows "SELECT bytes FROM news"[1] or { bytes = 0 }
  local list, sweeps = { gone = {}, sweeps = {}, trials = {} }, {}
  local file <close> = io.open(path_of(store.folder), "rb")
  local text = file and file:seek("set", row.bytes) and file:read "a" or ""
  for line in text:gmatch "[^\n]+" do
    local kind, name, attempt = line:match "^(%l+) (%x+) ?(%d*)$"
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

-- Appends a line of these words, in a transaction of the store.
function news.tell(store, ...)
  assert(store.inside, "news are told of within a transaction")
  local path = path_of(store.folder)
  local folder, bytes = news.state(store.folder)
  local text = table.concat({ ... }, " ") .. "\n"
  if not folder then
    local name = ("%s %d %.6f"):format(core.sys.hostname(), core.sys.getpid(), core.sys.now())
    text = ("folder %s\n"):format(core.sha256(name):sub(1, 16)) .. text
  end
  local file <close> = errors.stored(io.open(path, "ab"))
  errors.stored(file:write(text))
  errors.stored(file:flush())
  set_read(store, bytes + #text)
end

return news
