-- store/journal.lua: reads and writes journals, the append-only files through which results of
-- trials reach the store.
--
-- A record is a group of lines (wire.lua), closed by "= HASH", the first 16 digits of the sha256 of
-- the lines before it. A single write() appends it: after a kill the record is complete, absent, or
-- torn at the end of the file, where its hash is missing. Kinds of lines in the journal of an
-- attempt, events-K.jnl:
--   begin ATTEMPT TIME PID CODE PROVENANCE             code SHA256 TIME
--   metric STEP NAME VALUE [AT]          drop PATH          forget STEP
--   artifact KIND STEP PATH BYTES SHA256 TIME          step STEP SECONDS
--   event STEP KIND TEXT TIME            end STATUS WHY ENDED SECONDS TIME
-- Kinds of lines in marks.jnl, where ATTEMPT and TIME follow the kind:
--   marks TAGS NOTES     adopt KEY CODE WHY     trash SINCE   restore   queue   redo   stop ATTEMPT
--   end STATUS WHY ENDED     event STEP KIND TEXT     artifact KIND STEP PATH BYTES SHA256
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local temporary = require "toeplab.base.temporary"
local wire = require "toeplab.base.wire"

local journal = {}

local NO_FILE = 2 -- ENOENT

local function seal(lines)
  return ("= %s\n"):format(core.sha256(lines):sub(1, 16))
end

-- Returns the record of lines, each a list of values, as a string.
function journal.record(lines)
  local texts = {}
  for i, values in ipairs(lines) do
    texts[i] = wire.line(table.unpack(values, 1, values.n or #values))
  end
  local text = table.concat(texts)
  return text .. seal(text)
end

-- Returns the path of the journal of an attempt. path: the folder of the trial.
function journal.path(path, attempt)
  return ("%s/events-%d.jnl"):format(path, attempt)
end

-- ---- Writing ----------------------------------------------------------------------------------

local Writer = {}
Writer.__index = Writer

local function failure(path, why, code)
  local message = why:find(path, 1, true) and why or path .. ": " .. why
  local status = errors.status_of(code)
  return status and core.error(status, message) or message
end

-- Tries to lock the open file at path, exclusively or shared. Returns whether it could; raises if
-- the file system has no locks.
function journal.lock(file, path, shared)
  local locked, why = core.sys.lock(file, shared)
  if why then errors.raise(errors.STORAGE, "%s: %s", path, why) end
  return locked
end

-- Opens and locks the journal at path for appending. Then the entry of the file in its folder
-- survives a power failure.
function journal.writer(path)
  local file, why, code = io.open(path, "ab")
  if not file then error(failure(path, why, code), 0) end
  file:setvbuf("no")
  local ok, problem, number = core.sys.sync_folder(path:match "^(.*)/" or ".")
  if not ok then error(failure(path, problem, number), 0) end
  for _ = 1, 20 do -- journal.in_use of another process holds the lock for a moment
    if journal.lock(file, path) then break end
    core.sys.sleep(0.01)
  end
  return setmetatable({ file = file, path = path }, Writer)
end

-- Appends a record of lines, each a list of values. Then the record survives a kill of this process
-- and, with sync, a crash of the machine. After a failed write every later call fails, because a
-- record behind a torn one cannot be read.
function Writer:add(lines, sync)
  if self.broken then error(self.broken, 0) end
  local ok, why, code = self.file:write(journal.record(lines))
  if ok and sync then ok, why, code = core.sys.sync(self.file) end
  if ok then return end
  self.broken = failure(self.path, why, code)
  error(self.broken, 0)
end

function Writer:close() self.file:close() end

-- Creates the file at path with one record of one line, atomically. Returns false if the file
-- exists.
function journal.create(path, line)
  local temp, text = temporary.beside(path), journal.record { line }
  errors.stored(core.sys.write_file(temp, text))
  local made, why = core.sys.link(temp, path)
  -- If the reply of an NFS server got lost, the repeated request finds our own file.
  if not made then made = core.sys.read_file(path) == text end
  core.sys.remove(temp)
  if not made and not core.sys.exists(path) then
    errors.raise(errors.STORAGE, "%s: %s (the file system of the results folder must support hard "
      .. "links)", path, why)
  end
  if made then errors.stored(core.sys.sync_folder(path:match "^(.*)/[^/]*$")) end
  return made
end

-- Returns whether a process, such as the writer of a journal, holds the lock of the file at path.
-- Checks the kind first, because opening a pipe would block.
function journal.in_use(path)
  if core.sys.kind(path) ~= "file" then return false end
  local file <close>, why, code = io.open(path, "rb")
  if not file and code ~= NO_FILE then errors.raise(errors.STORAGE, "%s", why) end
  return file ~= nil and not journal.lock(file, path, true)
end

-- ---- Reading ----------------------------------------------------------------------------------

local CHUNK_BYTES = 1 << 20

-- Returns the lines of the complete records at the beginning of text, and the size of these records
-- in bytes. Leaves a torn record at the end for a later call. At a damaged record it stops or, with
-- `past`, skips the record; the third result is then the reason.
local function records(text, past)
  local lines, from, good, damage = {}, 1, 0, nil
  local pending = {}
  local at = 1
  local stop = text:find("\n", at, true) -- a pattern is slow if no newline follows
  while stop do
    local line, next_at = text:sub(at, stop - 1), stop + 1
    local hash = line:match("^= (%x+)$")
    if hash then
      if core.sha256(text:sub(from, at - 1)):sub(1, 16) == hash then
        table.move(pending, 1, #pending, #lines + 1, lines)
      else
        damage = "a record is damaged"
        if not past then return lines, good, damage end
      end
      pending, from, good = {}, next_at, next_at - 1
    else
      pending[#pending + 1] = wire.parse(line)
    end
    at, stop = next_at, text:find("\n", next_at, true)
  end
  return lines, good, damage
end

-- Appends a record of one line to the file at path. First cuts off a torn record that a killed
-- process left at the end. The caller must hold the lock of the store (records.lua).
function journal.append(path, line)
  local text = core.sys.read_file(path)
  if text and text ~= "" and not text:find "\n= %x+\n$" then
    local _, good = records(text, true)
    errors.stored(core.sys.write_file(path, text:sub(1, good)))
  end
  local file = errors.stored(io.open(path, "ab"))
  local ok, why = file:write(journal.record { line })
  local closed, problem = file:close() -- flushes
  errors.stored(ok and closed, why or problem)
end

local function refuse(path, why)
  why = why:find(path, 1, true) and why or path .. ": " .. why
  errors.raise(errors.STORAGE, "%s: the trial's results in this file cannot be read", why)
end

-- Reads the journal at path from a byte offset. Returns the list of its lines, the offset after the
-- last complete record, and the reason why lines may be missing (nil: none are). past: whether to
-- skip damaged records. A missing file gives no lines, and the reason "it is gone" if offset > 0.
-- An unreadable file raises a storage error. A call reads about a megabyte, or one record if that
-- is larger: repeat it until the offset no longer changes.
function journal.read(path, offset, past)
  local file <close>, why, code = io.open(path, "rb")
  if not file and code ~= NO_FILE then refuse(path, why) end
  if not file then return {}, offset, offset > 0 and "it is gone" or nil end
  local bytes, problem = file:seek("end")
  if not bytes then refuse(path, problem) end
  if bytes < offset then return {}, offset, "it has been cut" end
  file:seek("set", offset)
  local size = CHUNK_BYTES
  while true do
    local text, failed = file:read(size)
    if failed then refuse(path, failed) end
    text = text or ""
    local lines, good, damage = records(text, past)
    if good > 0 or damage or #text < size then return lines, offset + good, damage end
    file:seek("set", offset) -- the record is larger: read it again as a whole
    size = size * 4
  end
end

return journal
