-- store/trial_files.lua: locates the store and the files of trials in a results folder. The folder
-- may come from somebody else, so every path in its rows is checked before a file is read, written
-- or deleted.
--
-- An id is a sha256 in lower case, a file is runs/ID12/NAME (ID12: the first 12 digits of the id),
-- and neither runs, nor ID12, nor the file is a symbolic link. Anything else raises an error that
-- names the row.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local process = require "toeplab.base.process"
local shell = require "toeplab.base.shell"
local temporary = require "toeplab.base.temporary"

local trial_files = {}

local LAST_SECOND = 253402300799 -- of the year 9999, the last that SQLite knows
local absent = { [2] = true, [20] = true } -- ENOENT, ENOTDIR

local HASH, NAME = "^" .. ("[%da-f]"):rep(64) .. "$", "^[^%./%c][^/%c]*$"

local function refuse(root, format, ...)
  errors.raise(errors.STORAGE, "%s/runs.db: %s", root, format:format(...))
end

-- Raises if path is a symbolic link, or neither a file nor a folder: reading a pipe would never
-- end.
local function refuse_link(path)
  local kind, link = core.sys.kind(path)
  if link or kind == "other" then
    errors.raise(errors.STORAGE, "%s %s, which a results folder does not hold", path,
      link and "is a symbolic link" or "is not a regular file")
  end
end

-- Returns whether a value can be the id of a trial.
function trial_files.is_id(id) return type(id) == "string" and id:find(HASH) ~= nil end

-- Returns the folder itself, or its nearest existing parent.
function trial_files.nearest(folder)
  while not core.sys.exists(folder) do
    local above = folder:match("^(.+)/[^/]+/*$") or (folder:sub(1, 1) == "/" and "/" or ".")
    if above == folder then break end
    folder = above
  end
  return folder
end

-- Returns whether name is the name of a trial's file that has a row.
function trial_files.keeps(name)
  return name:find("^[%w_%-]+%-%d+%.txt$") or name:find("^%l+%-%d+%.json$")
    or name:find("^%l+%-%d+%-?r?%d*%.h5$") or name:find("^tensor%-[%w_%-]+%-%d+%.h5$")
    or name:find("^backends%-%x+%.txt$")
end

-- Returns the folder of trial id, relative to the results folder root.
function trial_files.folder(root, id)
  if not trial_files.is_id(id) then
    refuse(root, "the id of trial '%s' is not a sha256: this program did not write the row", id)
  end
  local path = "runs/" .. id:sub(1, 12)
  refuse_link(root .. "/runs")
  refuse_link(root .. "/" .. path)
  return path
end

-- Raises unless the path of a row ({path=}) belongs to trial id.
function trial_files.check_row(root, id, row)
  local short, name
  if type(row.path) == "string" then short, name = row.path:match("^runs/(%x+)/(.*)$") end
  if not trial_files.is_id(id) or short ~= id:sub(1, 12) or not name:find(NAME) then
    refuse(root, "this program did not write the row of file '%s' of trial '%s': its path is not "
      .. "runs/ID/NAME", row.path, id)
  end
end

-- Returns the full path of the file in row ({path=}) of trial id.
function trial_files.path(root, id, row)
  trial_files.check_row(root, id, row)
  trial_files.folder(root, id)
  local path = root .. "/" .. row.path
  refuse_link(path)
  return path
end

-- Removes the files of the trial with the folder path (of root) that have no row in artifacts: a
-- worker was killed before it wrote their rows, or they belong to an earlier run that is redone.
function trial_files.clean(root, path, artifacts)
  local folder, known = root .. "/" .. path, {}
  for _, row in ipairs(artifacts) do known[row.path] = true end
  for _, name in ipairs(core.sys.list(folder) or {}) do
    local host, pid = temporary.owner(name)
    local ours = trial_files.keeps(name) or host and process.has_died(host, pid)
    if ours and not known[path .. "/" .. name] then core.sys.remove(folder .. "/" .. name) end
  end
end

-- Returns whether the file at path can be read and has this sha256.
function trial_files.intact(path, sha256)
  local ok, hash = pcall(core.sha256_file, path)
  return ok and hash == sha256
end

-- Returns the text of the file; nil if it is missing or has a different sha256.
function trial_files.text(path, sha256)
  local text = core.sys.read_file(path)
  return text and core.sha256(text) == sha256 and text or nil
end

-- Raises if the folder of trial id has links; call it before reading or writing there. Returns its
-- path.
function trial_files.check_all(root, id)
  local folder = root .. "/" .. trial_files.folder(root, id)
  for _, name in ipairs(core.sys.list(folder) or {}) do refuse_link(folder .. "/" .. name) end
  return folder
end

-- Creates the folder called name in the results folder if it does not exist.
function trial_files.make(root, name)
  local path = root .. "/" .. name
  refuse_link(path)
  errors.stored(core.sys.mkdir(path))
  return path
end

-- Returns the path of a file of the results folder that does not belong to a trial.
function trial_files.own(root, name)
  local path = root .. "/" .. name
  refuse_link(path)
  return path
end

-- Lists the names of the regular files in the folder called name in the results folder; none if it
-- is a link or not a folder. Skips pipes, because reading one would never end.
function trial_files.plain(root, name)
  local folder, names = root .. "/" .. name, {}
  local kind, link = core.sys.kind(folder)
  for _, file in ipairs(kind == "folder" and not link and core.sys.list(folder) or {}) do
    local what, out = core.sys.kind(folder .. "/" .. file)
    if what == "file" and not out then names[#names + 1] = file end
  end
  return names
end

-- Returns an unused name under which to keep a damaged file.
function trial_files.set_aside_name(path)
  local name, count = ("%s.damaged-%s"):format(path, os.date "%Y%m%d-%H%M%S"), 1
  local free = name
  while core.sys.exists(free) do count, free = count + 1, ("%s-%d"):format(name, count + 1) end
  return free
end

-- Returns the set of the ids of the sweeps that have a file, sweeps/N.json.
function trial_files.sweeps(root)
  local set = {}
  for _, name in ipairs(trial_files.plain(root, "sweeps")) do
    local id = math.tointeger(tonumber(name:match "^(%d+)%.json$"))
    if id then set[id] = true end
  end
  return set
end

-- Returns whether the file at path lies in the results folder, also by way of links.
function trial_files.holds(root, path)
  local folder = path:match("^(.*)/[^/]*$") or "."
  if folder == "" then folder = "/" end
  for _ = 1, 200 do -- more parents than any path has
    if core.sys.same(folder, root) then return true end
    if not core.sys.exists(folder) or core.sys.same(folder, folder .. "/..") then return false end
    folder = folder .. "/.."
  end
  return true
end

-- ---- The store ---------------------------------------------------------------------------------

-- Returns the path of the database of a results folder.
function trial_files.database(folder)
  return errors.stored(core.store_place(folder)) .. "/runs.db"
end

-- Returns whether the database lies outside the folder, which other machines may share (place.c).
function trial_files.is_elsewhere(folder) return core.store_place(folder) ~= folder end

-- Returns whether the folder has a store: a database, or files from which to make one. Raises if
-- this cannot be read, e.g. without permission.
function trial_files.has_store(folder)
  local size, why, errno = core.sys.size(trial_files.database(folder))
  if not size and not absent[errno] then errors.raise(errors.STORAGE, "%s", why) end
  return size ~= nil or next(trial_files.sweeps(folder)) ~= nil
end

-- Raises if array jobs of an older release, whose tasks wrote files claims/ID12-K, have left
-- results that only that release can copy: it cannot open the database once this one has.
local function check_claims(folder)
  for _, name in ipairs(trial_files.plain(folder, "claims")) do
    if name:find "^%x+%-%d+$" then
      errors.raise(errors.LOCKED, "%s/claims: array jobs of an older release may have results that "
        .. "are not in the store: after these jobs have ended, run `toeplab ls -C %s` of that "
        .. "release, which copies them; or move the folder away to lose them", folder,
        shell.word(folder))
    end
  end
end

-- Raises unless records.open can open the store in folder in this mode. Also raises for an empty
-- store beside files of trials: a store is made before any file, so its rows are lost.
function trial_files.check_store(folder, mode)
  local path = trial_files.database(folder)
  if mode == "w" or mode == "u" then check_claims(folder) end
  if not trial_files.has_store(folder) and mode ~= "w" then
    errors.usage("%s holds no runs; `toeplab run` makes some (or name another folder: -C or "
      .. "TOEPLAB_DIR)", folder)
  end
  local lost = core.sys.size(path) == 0 and not core.sys.exists(path .. "-wal")
    and #(core.sys.list(folder .. "/runs") or {}) > 0
  if lost then
    errors.raise(errors.STORAGE, "%s is damaged: it is empty, but %s/runs holds trials; restore a "
      .. "copy, or move both away", path, folder)
  end
  if (mode == "w" or mode == "u") and os.time() > LAST_SECOND then
    errors.raise(errors.STORAGE, "%s: the clock of this machine is beyond the year 9999, which the "
      .. "store cannot hold; set the clock", path)
  end
end

return trial_files
