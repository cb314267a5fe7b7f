-- store/journal.lua: reads and writes the append-only file through which the results of a trial
-- reach the store.
--
-- A record is some lines (wire.lua) and a last one, "= HASH", the first 16 digits of the sha256 of
-- the lines before it. A single write() appends it, so that a kill leaves the record complete,
-- absent, or torn at the end of the file, where its hash is missing. Kinds of lines in the journal
-- of an attempt, events-K.jnl:
--   begin ATTEMPT TIME PID CODE PROVENANCE             code SHA256 TIME
--   metric STEP NAME VALUE [AT]          drop PATH          forget STEP
--   artifact KIND STEP PATH BYTES SHA256 TIME          step STEP SECONDS
--   event STEP KIND TEXT TIME            end STATUS WHY ENDED SECONDS TIME
-- and in marks.jnl, each after its kind with ATTEMPT and TIME:
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

-- Returns a record of lines, each a list of values, as text.
function journal.record(lines)
  local texts = {}
  for i, values in ipairs(lines) do
    texts[i] = wire.line(table.unpack(values, 1, values.n or #values))
  end
  local text = table.concat(texts)
  return text .. seal(text)
end

-- Returns the path of the journal of an attempt at the trial whose folder is path.
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

-- Returns whether this process alone, or shared, could lock the open file at path; raises where the
-- file system has no locks.
function journal.lock(file, path, shared)
  local locked, why = core.sys.lock(file, shared)
  if why then errors.raise(errors.STORAGE, "%s: %s", path, why) end
  return locked
end

-- Opens a writer that appends to the journal at path and locks it. After it returns, the entry of
-- the file in its folder survives a power failure.
function journal.writer(path)
  local file, why, code = io.open(path, "ab")
  if not file then error(failure(path, why, code), 0) end
  file:setvbuf("no")
  local ok, problem, number = core.sys.sync_folder(path:match "^(.*)/" or ".")
  if not ok then error(failure(path, problem, number), 0) end
  for _ = 1, 20 do -- a reader that asks whether it is in use holds the lock for a moment
    if journal.lock(file, path) then break end
    core.sys.sleep(0.01)
  end
  return setmetatable({ file = file, path = path }, Writer)
end

-- Appends a record of lines, each a list of values. After it returns, the record survives the death
-- of this process and, with sync, that of the machine. After a failed write the writer accepts
-- nothing more, because a record behind a torn one cannot be read.
function Writer:add(lines, sync)
  if self.broken then error(self.broken, 0) end
  local ok, why, code = self.file:write(journal.record(lines))
  if ok and sync then ok, why, code = core.sys.sync(self.file) end
  if ok then return end
  self.broken = failure(self.path, why, code)
  error(self.broken, 0)
end

function Writer:close() self.file:close() end

-- Makes the file at path with one record of a line, which nobody sees before it is whole. Returns
-- false if there is a file of that name.
function journal.create(path, line)
  local temp, text = temporary.beside(path), journal.record { line }
  errors.stored(core.sys.write_file(temp, text))
  local made, why = core.sys.link(temp, path)
  -- The reply of an NFS server may get lost, and the repeated request then finds our own file.
  if not made then made = core.sys.read_file(path) == text end
  core.sys.remove(temp)
  if not made and not core.sys.exists(path) then
    errors.raise(errors.STORAGE, "%s: %s (the file system of the results must have hard links)",
      path, why)
  end
  if made then errors.stored(core.sys.sync_folder(path:match "^(.*)/[^/]*$")) end
  return made
end

-- Returns whether a process holds the lock of the file at path, such as the writer of a journal.
-- Opening a pipe of that name would block.
function journal.in_use(path)
  if core.sys.kind(path) ~= "file" then return false end
  local file <close>, why, code = io.open(path, "rb")
  if not file and code ~= NO_FILE then errors.raise(errors.STORAGE, "%s", why) end
  return file ~= nil and not journal.lock(file, path, true)
end

-- ---- Reading ----------------------------------------------------------------------------------

local MOST = 1 << 20

-- Returns the lines of the complete records at the beginning of text, and the bytes that these
-- take. A torn record at the end is left for a later call. A damaged one gives the third result,
-- the reason, and ends the readable part or, with `past`, is left out.
local function records(text, past)
  local lines, from, good, damage = {}, 1, 0, nil
  local pending = {}
  local at = 1
  local stop = text:find("\n", at, true) -- a pattern is slow where there is none
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

-- Appends a record of one line to the file at path; the caller holds the store (records.lua). What
-- a killed process left torn at its end is cut off.
function journal.append(path, line)
  local text = core.sys.read_file(path)
  if text and text ~= "" and not text:find "\n= %x+\n$" then
    local _, good = records(text, true)
    errors.stored(core.sys.write_file(path, text:sub(1, good)))
  end
  local file = errors.stored(io.open(path, "ab"))
  local ok, why = file:write(journal.record { line })
  local closed, problem = file:close() -- which writes what is left
  errors.stored(ok and closed, why or problem)
end

local function refuse(path, why)
  why = why:find(path, 1, true) and why or path .. ": " .. why
  errors.raise(errors.STORAGE, "%s: the results that the trial wrote there are unknown", why)
end

-- Reads the journal at path from byte offset on. Returns the list of its lines, the offset after
-- the last complete record, and why there may be others (nil: nothing is wrong). past: whether to
-- read on behind a damaged record. A missing file gives no lines, and the reason "it is gone" if
-- offset > 0; one that the system cannot read raises a storage error. A call reads about a
-- megabyte, or one record if that is larger: repeat it until the offset stays.
function journal.read(path, offset, past)
  local file <close>, why, code = io.open(path, "rb")
  if not file and code ~= NO_FILE then refuse(path, why) end
  if not file then return {}, offset, offset > 0 and "it is gone" or nil end
  local bytes, problem = file:seek("end")
  if not bytes then refuse(path, problem) end
  if bytes < offset then return {}, offset, "it has been cut" end
  file:seek("set", offset)
  local size = MOST
  while true do
    local text, failed = file:read(size)
    if failed then refuse(path, failed) end
    text = text or ""
    local lines, good, damage = records(text, past)
    if good > 0 or damage or #text < size then return lines, offset + good, damage end
    file:seek("set", offset) -- a record larger than that
    size = size * 4
  end
end

return journal
