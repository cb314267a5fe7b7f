-- base/shell.lua: what is needed to run programs of the system.
local core = require "toeplab.core"

local shell = {}

-- s as one word of a command line.
function shell.quote(s)
  return "'" .. s:gsub("'", "'\\''") .. "'"
end

-- The same, quoted only where that is needed: for people to read.
function shell.word(s)
  return s:find "^[%w_@%%+=:,./-]+$" and s or shell.quote(s)
end

-- The words of a command line, as one that does the same again.
function shell.line(words)
  local quoted = {}
  for i, word in ipairs(words) do quoted[i] = shell.word(word) end
  return table.concat(quoted, " ")
end

-- A command line without the folders of one machine.
function shell.portable(text)
  return ((" " .. text):gsub("(%s'?)/[^%s']*/", "%1"):sub(2))
end

-- Whether there is a program of this name.
function shell.on_path(program)
  for folder in (os.getenv("PATH") or ""):gmatch("[^:]+") do
    if core.sys.exists(folder .. "/" .. program) then return true end
  end
  return false
end

-- Runs a command line, while we ignore SIGINT; returns whether it succeeded and its exit code,
-- 128 + N if signal N ended it.
function shell.run(command)
  local _, kind, code = os.execute(command)
  if kind == "signal" then code = 128 + code end
  return code == 0, code
end

return shell
