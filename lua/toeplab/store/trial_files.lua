-- store/trial_files.lua: where in a results folder the files of a trial lie. A results folder may
-- come from somebody else: what its rows say is checked before anybody reads, writes or deletes
-- there.
--
-- An id is a sha256 in lower case, a file is runs/ID12/NAME (ID12: the first 12 digits of the id),
-- and neither runs, nor ID12, nor the file is a symbolic link. Whatever is not so is refused by the
-- name of its row.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"

local trial_files = {}

local HASH, NAME = "^" .. ("[%da-f]"):rep(64) .. "$", "^[^%./%c][^/%c]*$"

local function refuse(root, format, ...)
  errors.raise(errors.STORAGE, "%s/runs.db: %s", root, format:format(...))
end

-- Whether path is a symbolic link, or neither a file nor a folder (a pipe would never be read to
-- its end), in words; nil: it is a file, a folder, or not there.
local function foreign(path)
  local kind, link = core.sys.kind(path)
  return link and "is a symbolic link" or kind == "other" and "is no file" or nil
end

-- Refuses path if it is a link.
local function check(path)
  local why = foreign(path)
  if why then
    errors.raise(errors.STORAGE, "%s %s, which a results folder does not hold", path, why)
  end
end

-- Whether a value can be the id of a trial.
function trial_files.is_id(id) return type(id) == "string" and id:find(HASH) ~= nil end

-- The folder of trial id, relative to the results folder root.
function trial_files.folder(root, id)
  if not trial_files.is_id(id) then
    refuse(root, "the id of trial '%s' is no sha256: the row is not of this program", id)
  end
  local path = "runs/" .. id:sub(1, 12)
  check(root .. "/runs")
  check(root .. "/" .. path)
  return path
end

-- Refuses what no file of trial id can be called; row: {path=}.
function trial_files.check_row(root, id, row)
  local short, name
  if type(row.path) == "string" then short, name = row.path:match("^runs/(%x+)/(.*)$") end
  if not trial_files.is_id(id) or short ~= id:sub(1, 12) or not name:find(NAME) then
    refuse(root, "the row of file '%s' of trial '%s' is not of this program: a file is "
      .. "runs/ID/NAME", row.path, id)
  end
end

-- The path of the file in row ({path=}) of trial id.
function trial_files.path(root, id, row)
  trial_files.check_row(root, id, row)
  trial_files.folder(root, id)
  local path = root .. "/" .. row.path
  check(path)
  return path
end

-- Refuses links in the folder of trial id, into which somebody is about to write.
function trial_files.check_all(root, id)
  local folder = root .. "/" .. trial_files.folder(root, id)
  for _, name in ipairs(core.sys.list(folder) or {}) do check(folder .. "/" .. name) end
end

-- The folder called name in the results folder, made if it is not there.
function trial_files.make(root, name)
  local path = root .. "/" .. name
  check(path)
  local ok, why = core.sys.mkdir(path)
  if not ok then errors.raise(errors.STORAGE, "%s", why) end
  return path
end

-- Whether the file at path lies in the results folder.
function trial_files.holds(root, path)
  local folder = path:match("^(.*)/[^/]*$") or "."
  if folder == "" then folder = "/" end
  for _ = 1, 200 do -- folders up to the root of the file system
    if core.sys.same(folder, root) then return true end
    if not core.sys.exists(folder) or core.sys.same(folder, folder .. "/..") then return false end
    folder = folder .. "/.."
  end
  return true
end

return trial_files
