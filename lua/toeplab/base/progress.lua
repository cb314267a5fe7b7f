-- base/progress.lua: shows the progress of a run on stderr: one line that is rewritten on a
-- terminal, a line every few seconds elsewhere. NO_COLOR, FORCE_COLOR and TERM decide on colour.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"
local width = require "toeplab.base.width"

local progress = {}

local Progress = {}
Progress.__index = Progress

local function set(name)
  local value = os.getenv(name)
  return value ~= nil and value ~= ""
end

-- Returns whether output to file descriptor fd may be coloured.
function progress.colour(fd)
  if set("NO_COLOR") then return false end
  if set("FORCE_COLOR") or set("CLICOLOR_FORCE") then return true end
  return os.getenv("TERM") ~= "dumb" and core.sys.isatty(fd)
end

-- Returns seconds as 9s, 1m05s, 2h03m, and from ten days on as 12d03h.
function progress.duration(seconds)
  local s = math.max(0, math.floor(seconds + 0.5))
  if s < 60 then return ("%ds"):format(s) end
  if s < 3600 then return ("%dm%02ds"):format(s // 60, s % 60) end
  if s < 10 * 86400 then return ("%dh%02dm"):format(s // 3600, s // 60 % 60) end
  return ("%dd%02dh"):format(s // 86400, s // 3600 % 24)
end

-- Returns a progress display. options: quiet (prints messages only), every (seconds between plain
-- lines, default 5), out (a file, default stderr).
function progress.new(options)
  local o = options or {}
  local out = o.out or io.stderr
  local tty = not o.quiet and o.out == nil and core.sys.isatty(2) and os.getenv("TERM") ~= "dumb"
  return setmetatable({
    quiet = o.quiet, every = o.every or 5, out = out, tty = tty, colour = progress.colour(2),
    prefix = "", shown = false, last = -math.huge,
  }, Progress)
end

-- Sets the prefix of the line of a trial: "[2/6] decay=0.99 seed=1".
function Progress:start(prefix)
  self:clear()
  self.prefix, self.last, self.marks = prefix, -math.huge, {}
end

-- Clears the progress line. w: the worker whose work (Progress:begin) has ended, or nil.
function Progress:clear(w)
  if w then w.work = nil end
  if self.shown then self.out:write("\r\27[K") end
  self.shown = false
end

local function due(self)
  return core.sys.clock() - self.last >= (self.tty and 0.1 or self.every)
end

-- Shows a line, which replaces the last one on a terminal.
local function put(self, text)
  text = core.sys.clean(text)
  if self.tty then
    self.out:write("\r", width.cut(text, core.sys.columns() - 1), "\27[K")
    self.shown = true
  else
    self.out:write(text, "\n")
  end
  self.out:flush()
end

-- Shows text as the progress line; without a terminal, only if the next line is due.
function Progress:line(text)
  if self.quiet or not (self.tty or due(self)) then return end
  self.last = core.sys.clock()
  put(self, text)
end

-- Prints a message on a line that is not replaced.
function Progress:say(format, ...)
  self:clear()
  format = shell.named(format)
  local text = select("#", ...) > 0 and format:format(...) or format
  self.out:write(core.sys.clean(text), "\n")
  self.out:flush()
end

function Progress:note(format, ...)
  if not self.quiet then self:say(format, ...) end
end

function Progress:warn(format, ...)
  self:clear()
  self.out:write(self.colour and "\27[33mwarning:\27[0m " or "warning: ")
  self:say(format, ...)
end

-- Returns the steps per second over about the last 20 seconds; nil at the beginning.
local function rate(self, step, now)
  local marks = self.marks
  marks[#marks + 1] = { step, now }
  while #marks > 2 and now - marks[1][2] > 20 do table.remove(marks, 1) end
  local steps, seconds = step - marks[1][1], now - marks[1][2]
  return seconds > 0 and steps > 0 and steps / seconds or nil
end

local function bar(done, columns)
  local full = math.floor(done * columns + 0.5)
  return "[" .. ("#"):rep(full) .. ("."):rep(columns - full) .. "]"
end

-- Returns the progress line. Omits parts that do not fit into the columns, the last ones first.
-- left: the estimated time of all trials in seconds, or nil.
local function line(self, step, total, speed, values, columns, left)
  local done = total > 0 and step / total or 1
  local parts = { ("step %d/%d"):format(step, total) }
  if values then parts[#parts + 1] = values end
  if speed then
    local own = (total - step) / speed
    local all = left and ", of all " .. progress.duration(math.max(left, own)) or ""
    parts[#parts + 1] = "eta " .. progress.duration(own) .. all
    parts[#parts + 1] = (speed < 100 and "%.3g steps/s" or "%.0f steps/s"):format(speed)
  elseif left then
    parts[#parts + 1] = "eta of all " .. progress.duration(left)
  end
  local text = parts[1]
  for i = 2, #parts do
    if width.of(text) + 2 + width.of(parts[i]) <= columns then text = text .. "  " .. parts[i] end
  end
  local spare = columns - width.of(text) - 1
  if self.tty and spare >= 12 then text = bar(done, math.min(spare - 2, 24)) .. " " .. text end
  if self.prefix ~= "" and width.of(text) + width.of(self.prefix) + 2 <= columns then
    text = self.prefix .. "  " .. text
  end
  return width.cut(text, columns)
end

-- Shows step of total with values, a short string such as "loss 1.234". left: a function that
-- returns the remaining seconds of all trials (or nil), or nil. Cheap to call at every step.
function Progress:update(step, total, values, left)
  if self.quiet then return end
  if not due(self) and step < total then return end
  self.last = core.sys.clock()
  local columns = self.tty and core.sys.columns() - 1 or 200
  put(self, line(self, step, total, rate(self, step, self.last), values, columns,
    left and left()))
end

-- ---- Several trials ---------------------------------------------------------------------------

-- Announces a run of total trials, `before` of which are already done, in `jobs` workers.
function Progress:expect(total, jobs, before)
  self.total, self.jobs, self.before = total, jobs, before or 0
end

local function head(self, t)
  return self.total > 1 and ("[%d/%d] %s"):format(t.number, self.total, t.label) or ""
end

-- Reports that worker w begins trial t.
function Progress:began(w, t)
  w.drawn, w.head = nil, head(self, t)
  if self.jobs == 1 then self:start(w.head) end
  self:note("%s  %s", w.head ~= "" and w.head or t.label, t.path)
end

-- Reports that worker w has ended a trial after `seconds` seconds.
function Progress:ended(w, _, status, seconds)
  if self.jobs == 1 or status ~= "done" then return end
  self:note("%s  done  %s%s", w.head, w.text and w.text ~= "" and w.text .. "  " or "",
    progress.duration(seconds))
end

-- Prints a message of worker w, where how is "say", "note" or "warn".
function Progress:from(w, how, text)
  local before = self.jobs > 1 and w.head ~= "" and w.head .. ": " or ""
  self[how](self, "%s%s", before, text)
end

local function short(w)
  local work = w.work
  local text = work and ("%s %d%%"):format(work.what, 100 * work.done // work.total) or w.text
  return ("%s %d/%d%s"):format(w.trial.label, w.step, w.total, text ~= "" and " " .. text or "")
end

-- Returns the cache folder if a process is measuring transforms, i.e. holds a lock there
-- (backends/fft/plan.c).
local function measuring()
  local folder = core.sys.cache_dir()
  for _, name in ipairs(folder and core.sys.list(folder) or {}) do
    local file <close> = name:find "^fftw.*%.lock$" and io.open(folder .. "/" .. name, "r+") or nil
    if file and not core.sys.lock(file) then return folder end
  end
end

-- Prints once that a step waits for the measurement of transforms; long ones take a minute.
local function explain_wait(self)
  local now = core.sys.clock()
  if self.quiet or self.explained or now - (self.looked or 0) < 1 then return end
  local folder = measuring()
  self.explained = folder and self.measuring
  self.looked, self.measuring = now, folder ~= nil
  if not self.explained then return end
  self:say("FFTW is measuring transforms; %s caches the result", folder)
end

-- Shows the steps of all workers. counts is {done=, failed=} so far; left is as in update.
function Progress:show(workers, counts, left)
  explain_wait(self)
  if self.jobs == 1 then
    local w = workers[1]
    if not w or not w.trial or not w.step or w.step == w.drawn then return end
    w.drawn = w.step
    return self:update(w.step, w.total, w.text ~= "" and w.text or nil,
      self.total > 1 and left or nil)
  end
  if self.quiet or not due(self) then return end
  self.last = core.sys.clock()
  local parts = {}
  for _, w in ipairs(workers) do
    if w.trial and w.step then parts[#parts + 1] = short(w) end
  end
  if #parts == 0 then return end
  local seconds = left and left()
  local text = ("[%d/%d done%s] %s"):format(self.before + counts.done, self.total,
    seconds and ", eta " .. progress.duration(seconds) or "", table.concat(parts, " | "))
  put(self, text)
end

-- Shows work on `total` units ("tokens"; nil: bytes) if it takes longer than a second. w: its
-- worker, or nil; with several workers Progress:show shows the share of each.
function Progress:begin(what, total, unit, w)
  local work = { what = what, total = total, unit = unit, start = core.sys.clock(), done = 0 }
  if w and self.jobs > 1 then
    w.work = work
  else
    self.work, self.last = work, work.start
  end
end

-- Reports that the worker `by` (or nil) has done `done` units.
function Progress:part(done, by)
  if by and by.work then by.work.done = done end
  if self.quiet or by and by.work then return end
  local w, now = self.work, core.sys.clock()
  if now - w.start < 1 or not due(self) then return end
  self.last = now
  local speed = done / (now - w.start)
  local amount = w.unit and ("%d %s, %.3g/s"):format(w.total, w.unit, speed)
    or ("%.1f MB, %.1f MB/s"):format(w.total / 1e6, speed / 1e6)
  local text = ("%s: %d%% of %s, eta %s"):format(w.what, 100 * done // w.total, amount,
    progress.duration((w.total - done) / speed))
  put(self, text)
end

return progress
