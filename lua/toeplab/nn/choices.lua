-- nn/choices.lua: which backend "auto" stands for, by length, channels and causality. The engine
-- chooses by measuring, and every backend rounds in its own way, so a trial must use the backends
-- that it chose first, however often it is interrupted and wherever it goes on.
--
-- As text, choices are a line each: LENGTH CHANNELS causal|bidirectional BACKEND
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"

local choices = {}

local open = { made = {} } -- those of the innermost choices.with, else those of the program

local function problem(n, dim, causal)
  return ("%08d %08d %s"):format(n, dim, causal and "causal" or "bidirectional")
end

local function parsed(text)
  local made = {}
  for n, dim, how, name in (text or ""):gmatch "(%d+) (%d+) (%l+) ([%w_]+)\n" do
    made[problem(tonumber(n), tonumber(dim), how == "causal")] = name
  end
  return made
end

local function text(made)
  local lines = {}
  for key, name in pairs(made) do lines[#lines + 1] = key .. " " .. name end
  table.sort(lines)
  for i, line in ipairs(lines) do lines[i] = line:gsub("%f[%d]0+(%d)", "%1") .. "\n" end
  return table.concat(lines)
end

-- Calls fn(...) with the choices in given (text; nil: none) and with those that it makes, of which
-- the caller's are independent. changed is called with the text of all after each new one.
function choices.with(given, changed, fn, ...)
  local outer = open
  local restore <close> = defer(function() open = outer end)
  open = { made = parsed(given), changed = changed }
  return fn(...)
end

-- The backend for operators of that length and number of channels, causal or not.
function choices.of(n, dim, causal)
  local made, key = open.made, problem(n, dim, causal)
  if not made[key] then
    local operator <close> = core.tno("auto", n, dim, causal)
    made[key] = operator:chosen()
    if open.changed then open.changed(text(made)) end
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
