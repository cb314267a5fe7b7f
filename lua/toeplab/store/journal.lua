-- store/journal.lua: what a worker has to say for the store, in a file that only grows: the one way
-- from a trial to its rows.
--
-- A record is some lines (wire.lua) and a last one, "= HASH", the first 16 digits of the sha256 of
-- the lines before it. It is written by one write(): a kill leaves it whole or not at all, or torn
-- at the end of the file, where its hash is missing. Kinds of lines:
--   metric STEP NAME VALUE [AT]          drop PATH          forget STEP
--   artifact KIND STEP PATH BYTES SHA256               step STEP SECONDS
--   event STEP KIND TEXT            end STATUS WHY ENDED SECONDS
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local wire = require "toeplab.base.wire"

local journal = {}

local function seal(lines)
  return ("= %s\n"):format(core.sha256(lines):sub(1, 16))
end

-- The path of the journal of an attempt at the trial whose folder is path.
function journal.path(path, attempt)
  return ("%s/events-%d.jnl"):format(path, attempt)
end

-- ---- Writing ----------------------------------------------------------------------------------

local Writer = {}
Writer.__index = Writer

local problems = { [5] = "EIO", [23] = "EIO", [24] = "EIO", -- by errno; 23, 24: too many open files
  [27] = "ENOSPC", [28] = "ENOSPC", [122] = "ENOSPC" }

local function failure(path, why, code)
  local message = why:find(path, 1, true) and why or path .. ": " .. why
  return problems[code] and core.error(problems[code], message) or message
end

-- A writer that appends to the journal at path. When it returns, a power failure leaves the file
-- in its folder.
function journal.writer(path)
  local file, why, code = io.open(path, "ab")
  if not file then error(failure(path, why, code), 0) end
  file:setvbuf("no")
  local ok, problem, number = core.sys.sync_folder(path:match "^(.*)/" or ".")
  if not ok then error(failure(path, problem, number), 0) end
  for _ = 1, 20 do -- who looks whether it is in use holds the lock for a moment
    if core.sys.lock(file) then break end
    core.sys.sleep(0.01)
  end
  return setmetatable({ file = file, path = path }, Writer)
end

-- Appends a record of lines, each a list of values. When it returns, the death of this process
-- loses nothing of it; with sync, that of the machine neither. After a write that failed none is
-- accepted: what followed a torn record could not be read.
function Writer:add(lines, sync)
  if self.broken then error(self.broken, 0) end
  local texts = {}
  for i, values in ipairs(lines) do
    texts[i] = wire.line(table.unpack(values, 1, values.n or #values))
  end
  local text = table.concat(texts)
  local ok, why, code = self.file:write(text .. seal(text))
  if ok and sync then ok, why, code = core.sys.sync(self.file) end
  if ok then return end
  self.broken = failure(self.path, why, code)
  error(self.broken, 0)
end

function Writer:close() self.file:close() end

-- Whether a writer is at work on the journal at path. A pipe of that name would never open.
function journal.in_use(path)
  if core.sys.kind(path) ~= "file" then return false end
  local file <close> = io.open(path, "rb")
  return file ~= nil and not core.sys.lock(file)
end

-- ---- Reading ----------------------------------------------------------------------------------

local MOST = 1 << 20

-- The lines of the whole records from byte offset on, and where they end. A torn record at the end
-- is left for later; a damaged one ends what can be read: third result, why.
local function records(text)
  local lines, from, good = {}, 1, 0
  local pending = {}
  local at = 1
  local stop = text:find("\n", at, true) -- a pattern would take forever to find none
  while stop do
    local line, next_at = text:sub(at, stop - 1), stop + 1
    local hash = line:match("^= (%x+)$")
    if hash then
      if core.sha256(text:sub(from, at - 1)):sub(1, 16) ~= hash then
        return lines, good, "a record is damaged"
      end
      table.move(pending, 1, #pending, #lines + 1, lines)
      pending, from, good = {}, next_at, next_at - 1
    else
      pending[#pending + 1] = wire.parse(line)
    end
    at, stop = next_at, text:find("\n", next_at, true)
  end
  return lines, good
end

local NO_FILE = 2 -- errno's ENOENT

local function refuse(path, why)
  why = why:find(path, 1, true) and why or path .. ": " .. why
  errors.raise(errors.STORAGE, "%s: what the trial has said there is not known", why)
end

-- What the journal at path says from byte offset on: the list of its lines, the offset after the
-- last whole record, and why what follows cannot be read (nil: it can, or there is nothing). A file
-- that was never there says nothing; one that the system cannot read raises a storage error. At
-- most about a megabyte is read: call it until it says nothing.
function journal.read(path, offset)
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
    local lines, good, damage = records(text)
    if good > 0 or damage or #text < size then return lines, offset + good, damage end
    file:seek("set", offset) -- one record larger than that
    size = size * 4
  end
end

return journal
