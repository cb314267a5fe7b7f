-- nn/chosen_backends.lua: records the backend that "auto" stands for at each length, number of
-- channels and causality. The engine chooses by timing the backends, and every backend rounds
-- differently, so a trial that resumes, perhaps on another machine, must reuse its first choices.
--
-- Choices are stored as text, one per line: LENGTH CHANNELS causal|bidirectional BACKEND
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"

local chosen_backends = {}

-- The current scope: the innermost chosen_backends.with's, or else the program's.
local scope = { made = {} }

local function problem_key(n, dim, causal)
  return ("%08d %08d %s"):format(n, dim, causal and "causal" or "bidirectional")
end

local function parsed(text)
  local made = {}
  for n, dim, how, name in (text or ""):gmatch "(%d+) (%d+) (%l+) ([%w_]+)\n" do
    made[problem_key(tonumber(n), tonumber(dim), how == "causal")] = name
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

-- Calls fn(...) in a new scope that starts with the choices in the text `given` (nil: none) and
-- does not affect the caller's. Calls changed with the text of all choices after each new one.
function chosen_backends.with(given, changed, fn, ...)
  local outer = scope
  local restore <close> = defer(function() scope = outer end)
  scope = { made = parsed(given), changed = changed }
  return fn(...)
end

-- Returns the name of the backend for operators of length n with dim channels. The first request
-- for a problem times the backends.
function chosen_backends.of(n, dim, causal)
  local made, key = scope.made, problem_key(n, dim, causal)
  if not made[key] then
    local operator <close> = core.tno("auto", n, dim, causal)
    made[key] = operator:chosen()
    if scope.changed then scope.changed(text(made)) end
  end
  return made[key]
end

-- Describes the text of choices: "rac at 512, 1024; matrix at 64".
function chosen_backends.words(lines)
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

return chosen_backends
