-- live/screen.lua: makes the lines of `toeplab watch` for a terminal of any size.
local core = require "toeplab.core"
local progress = require "toeplab.base.progress"
local sweep_progress = require "toeplab.live.sweep_progress"
local text_table = require "toeplab.base.text_table"
local width = require "toeplab.base.width"

local screen = {}

local BARS = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }
local PLAIN = { "_", ".", "-", "~", "=", "+", "*", "#" }

-- Returns whether the locale says that the terminal shows UTF-8.
local function is_utf8()
  for _, name in ipairs { "LC_ALL", "LC_CTYPE", "LANG" } do
    local value = os.getenv(name)
    if value and value ~= "" then return value:lower():find "utf%-?8" ~= nil end
  end
  return false
end

-- Returns the values as a line of bars of eight heights, from the least value to the largest, with
-- an x for NaN. plain: in ASCII (by default, if the locale is not UTF-8).
function screen.sparkline(values, plain)
  if plain == nil then plain = not is_utf8() end
  local low, high, bars, parts = math.huge, -math.huge, plain and PLAIN or BARS, {}
  for _, v in ipairs(values) do
    if v == v then low, high = math.min(low, v), math.max(high, v) end
  end
  for i, v in ipairs(values) do
    local part = high > low and (v / 2 - low / 2) / (high / 2 - low / 2) or 0
    parts[i] = v ~= v and "x" or bars[1 + math.min(7, math.floor(part * 8))]
  end
  return table.concat(parts)
end

-- Returns text without control characters, cut or padded to `columns` columns.
function screen.fit(text, columns, right)
  text = core.sys.clean(text):gsub("[\n\t]", " ")
  return width.pad(width.cut(text, columns), columns, right)
end

-- ---- The list of trials -----------------------------------------------------------------------

local function time_of(t)
  if t.status == "running" then return progress.duration(core.sys.now() - t.started) end
  return t.seconds and progress.duration(t.seconds) or ""
end

-- The columns of the list: title, width, the value of a trial, and the width of the terminal below
-- which the column is left out. The label and the curve share what is left.
local cells = {
  { "id", 8, function(t) return t.id:sub(1, 8) end, 72 },
  { "status", 11, function(t) return t.status end, 50 },
  { "step", 11, sweep_progress.far, 40, true },
  { nil, 9, function(t) return t.value and text_table.cell(t.value) or "" end, 0, true },
  { "for", 7, time_of, 60, true },
}

-- Returns the line of a trial, or of the titles if t is nil. s: metric, columns, curve(t, width).
local function line_of(s, t)
  local parts, used = {}, 2
  for _, cell in ipairs(cells) do
    if s.columns >= cell[4] then
      local text = cell[1] or s.metric or ""
      if t then text = cell[3](t) end
      parts[#parts + 1] = screen.fit(text, cell[2], cell[5])
      used = used + cell[2] + 2
    end
  end
  local left = s.columns - used
  local curve = left >= 40 and math.min(left // 2, 60) or left >= 24 and 10 or 0
  local label = math.max(0, left - (curve > 0 and curve + 2 or 0))
  table.insert(parts, 1, screen.fit(t and (t.label or "?") or "trial", label))
  if curve > 0 then
    parts[#parts + 1] = t and s.curve(t, curve) or screen.fit("curve", curve)
  end
  return table.concat(parts, "  ")
end

-- Returns the first row to show of `all`, so that row `at` is among the `count` that fit.
local function first_row(at, all, count)
  return math.max(1, math.min(at - count // 2, all - count + 1))
end

-- Returns the lines of the list. s: title, trials, at (the chosen row), metric, columns, rows, note
-- (nil, or a line at the bottom), curve (a function of a trial and a width that returns a line of
-- bars), cards (lines about GPUs; a third of the rows of trials at most).
function screen.list(s)
  local lines = { screen.fit(s.title, s.columns), table.unpack(s.cards, 1, (s.rows - 4) // 3) }
  local room = math.max(1, s.rows - 3 - #lines)
  lines[#lines + 1] = "  " .. line_of(s)
  local first = first_row(s.at, #s.trials, room)
  for i = first, math.min(#s.trials, first + room - 1) do
    lines[#lines + 1] = (i == s.at and "> " or "  ") .. line_of(s, s.trials[i])
  end
  local hidden = #s.trials - math.min(#s.trials, room)
  lines[#lines + 1] = hidden > 0 and ("  %d more trials: up, down"):format(hidden) or ""
  lines[#lines + 1] = s.note
    or "up down: choose   c: curve   l: log   s: stop   m: metric   q: quit"
  return lines
end

-- Returns the last lines of a text under a title.
function screen.text(s, text)
  local all, lines = {}, { s.title }
  for line in text:gmatch "[^\n]+" do all[#all + 1] = line end
  local room = math.max(1, s.rows - 2)
  for i = math.max(1, #all - room + 1), #all do lines[#lines + 1] = all[i] end
  while #lines < s.rows - 1 do lines[#lines + 1] = "" end
  lines[#lines + 1] = s.note or "any key: back to the list   q: quit"
  return lines
end

-- Returns the output that redraws the terminal with these lines, each cut to its width.
function screen.draw(lines, columns, rows)
  local parts = { "\27[H" }
  for i = 1, math.min(#lines, rows) do
    local text = screen.fit(lines[i], columns):gsub(" +$", "")
    parts[#parts + 1] = (i > 1 and "\r\n" or "") .. text .. "\27[K"
  end
  parts[#parts + 1] = "\27[J"
  return table.concat(parts)
end

return screen
