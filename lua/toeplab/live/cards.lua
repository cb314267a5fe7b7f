-- live/cards.lua: the use of this machine's GPUs while trials of a store run on them. Nothing waits
-- for nvidia-smi, which may hang with its driver: it runs on the side; its last answer is shown.
local alive = require "toeplab.store.alive"
local core = require "toeplab.core"
local output = require "toeplab.report.output"
local sweeps = require "toeplab.store.sweeps"

local cards = {}

local Cards = {}
Cards.__index = Cards

-- Not the shell's last command, for which it would not fork: a kill must not wait for nvidia-smi.
local COMMAND = "nvidia-smi --query-gpu=index,utilization.gpu,memory.used,memory.total "
  .. "--format=csv,noheader,nounits >&3 || exit"
local PAUSE, LIMIT, LATER = 2, 5, 60 -- seconds: between starts, of an answer, after a failure

function cards.new() return setmetatable({ answer = "", next = 0 }, Cards) end

-- Returns the labels of the trials on each GPU of this machine, by its number as nvidia-smi counts;
-- [-1]: on GPUs without a known number, as of several ranks or of a job, which may count its own.
local function by_card(store)
  local lists = {}
  for _, t in ipairs(sweeps.on_devices(store, core.sys.hostname())) do
    local card, names = math.tointeger(t.device:match "^.-:(%d+): "), {}
    if card and alive.possibly(store.folder, t) then
      for name in (t.visible or ""):gmatch "[^, ]+" do names[#names + 1] = name end
      if #names > 0 then card = math.tointeger(names[card + 1]) end
      if t.job or t.ranks and t.ranks ~= 1 then card = nil end
      lists[card or -1] = lists[card or -1] or {}
      table.insert(lists[card or -1], t.label or t.id:sub(1, 8))
    end
  end
  return lists
end

-- Starts nvidia-smi if it is time, and takes its answer if it has given one.
local function ask(self)
  local now = core.sys.clock()
  if not self.process and now >= self.next then
    self.process, self.text = core.sys.spawn { "/bin/sh", "-c", COMMAND }, ""
    self.next, self.limit = now + PAUSE, now + LIMIT
  end
  local text = self.process and self.process:receive()
  while text and text ~= "" do
    self.text, text = self.text .. text, self.process:receive()
  end
  if self.process and (not text or now >= self.limit) then
    self.process, self.answer = self.process:kill(), text and "" or self.text
    if not self.answer:find "^%d+, " then self.next = now + LATER end
  end
end

-- Returns a line for each GPU with trials, "gpu 1     97 %   12.3 GB of 80.0 GB   a=1, a=2"; for
-- every GPU, if that of a trial is unknown. Without such trials nvidia-smi is not started. seconds:
-- the longest wait for its answer.
function Cards:lines(store, seconds)
  local lists, lines, stop = by_card(store), {}, core.sys.clock() + (seconds or 0)
  if not next(lists) then return lines end
  repeat
    ask(self)
    local left = self.process and stop - core.sys.clock() or 0
  until left <= 0 or not core.sys.poll({ self.process }, left)
  for card, busy, used, total in self.answer:gmatch "(%d+), ([^,\n]+), ([^,\n]+), ([^,\n]+)" do
    local labels = lists[math.tointeger(card)] or lists[-1] and {}
    local function bytes(mib) return tonumber(mib) and output.bytes(mib * 2.0 ^ 20) or "?" end
    lines[#lines + 1] = labels and ("gpu %-3s %3s %%   %s of %s   %s"):format(card,
      tonumber(busy) or "?", bytes(used), bytes(total), table.concat(labels, ", "))
  end
  return lines
end

return cards
