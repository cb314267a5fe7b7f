-- base/quantity.lua: parses times and sizes with a unit ("90s", "4h", "512M"), and formats counts
-- ("3 trials") and amounts with a prefix ("2.5 GFLOP").
local quantity = {}

local time_units = { s = 1, m = 60, h = 3600, d = 86400 }
local size_units = { K = 1 << 10, M = 1 << 20, G = 1 << 30, T = 1 << 40 }

local function read(v, units, pattern)
  if type(v) == "number" then return v > 0 and v < math.huge and v + 0.0 or nil end
  local digits, unit = tostring(v):match("^([%d.]+)(" .. pattern .. ")$")
  local x = digits and tonumber(digits)
  return x and x > 0 and units[unit] and x * units[unit] or nil
end

-- Returns the seconds in 90, "90s", "30m", "4h" or "2d"; nil if v is not a time.
function quantity.seconds(v) return read(v, time_units, "[smhd]") end

-- Returns the bytes in 1e9, "512M" or "6G"; nil if v is not a size.
function quantity.bytes(v) return read(v, size_units, "[KMGT]") end

-- Returns "1 trial", "3 trials".
function quantity.count(n, what) return ("%d %s%s"):format(n, what, n == 1 and "" or "s") end

local prefixes = { "", "k", "M", "G", "T", "P", "E", "Z" }

-- Returns "2.5 GFLOP" for 2.5e9, with the prefix that makes the number at least 1 and below 1000.
function quantity.flop(number)
  local at = 1
  while number >= 999.95 and at < #prefixes do number, at = number / 1000, at + 1 end
  return ("%.1f %sFLOP"):format(number, prefixes[at])
end

-- Returns a number with two digits if it is below 100, otherwise as an integer.
function quantity.short(number)
  return (number < 99.5 and "%.2g" or "%.0f"):format(number)
end

return quantity
