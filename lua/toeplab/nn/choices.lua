-- nn/choices.lua: which backend "auto" stands for, problem by problem. The choice is by
-- measurement, and each backend rounds in its own way: a trial keeps to what it chose first,
-- however often it is interrupted, wherever it goes on.
--
-- As text, a line for each problem: LENGTH CHANNELS causal|bidirectional BACKEND
local core = require "toeplab.core"

local choices = {}

local made, changed = {}, nil -- problem -> backend; who is told of a new one

local function problem(n, dim, causal)
  return ("%08d %08d %s"):format(n, dim, causal and "causal" or "bidirectional")
end

-- From now on those in text (nil: none) are made; fn (nil: nobody) is told the text of all after
-- each new one.
function choices.begin(text, fn)
  made, changed = {}, fn
  for n, dim, how, name in (text or ""):gmatch "(%d+) (%d+) (%l+) ([%w_]+)\n" do
    made[problem(tonumber(n), tonumber(dim), how == "causal")] = name
  end
end

local function text()
  local lines = {}
  for key, name in pairs(made) do lines[#lines + 1] = key .. " " .. name end
  table.sort(lines)
  for i, line in ipairs(lines) do lines[i] = line:gsub("%f[%d]0+(%d)", "%1") .. "\n" end
  return table.concat(lines)
end

-- The backend for operators of that length, so many channels, causal or not.
function choices.of(n, dim, causal)
  local key = problem(n, dim, causal)
  if not made[key] then
    local operator <close> = core.tno("auto", n, dim, causal)
    made[key] = operator:chosen()
    if changed then changed(text()) end
  end
  return made[key]
end

-- A text of choices for people: "rac at 512, 1024; matrix at 64".
function choices.words(lines)
  local lengths, names = {}, {}
  for n, name in lines:gmatch "(%d+) %d+ %l+ ([%w_]+)\n" do
    if not lengths[name] then lengths[name], names[#names + 1] = {}, name end
    local list = lengths[name]
    if list[#list] ~= n then list[#list + 1] = n end
  end
  for i, name in ipairs(names) do
    names[i] = name .. " at " .. table.concat(lengths[name], ", ")
  end
  return table.concat(names, "; ")
end

return choices
