-- base/shell.lua: quotes command lines and runs programs of the system.
local core = require "toeplab.core"

-- program: the command that runs this program, for hints: the script lab sets LAB_NAME to its own
-- path as it was given.
local shell = { program = os.getenv "LAB_NAME" or "toeplab" }

-- Quotes s as one word of a command line.
function shell.quote(s)
  return "'" .. s:gsub("'", "'\\''") .. "'"
end

-- Quotes s only if necessary.
function shell.word(s)
  return s:find "^[%w_@%%+=:,./-]+$" and s or shell.quote(s)
end

-- Joins words to a command line, with quotes where necessary.
function shell.line(words)
  local quoted = {}
  for i, word in ipairs(words) do quoted[i] = shell.word(word) end
  return table.concat(quoted, " ")
end

-- Returns a text of ours with shell.program in each command to type: in place of "toeplab" before a
-- word, which may still be a %s or in brackets.
function shell.named(text)
  if shell.program == "toeplab" then return text end
  local program = shell.word(shell.program):gsub("%%", "%%%%")
  return (text:gsub("%f[%w_./-]toeplab%f[%W]( [%a%%%[])", program .. "%1"))
end

-- Removes absolute folders, which belong to one machine, from a command line.
function shell.portable(text)
  return ((" " .. text):gsub("(%s'?)/[^%s']*/", "%1"):sub(2))
end

-- Returns whether PATH has a program of this name.
function shell.on_path(program)
  for folder in (os.getenv("PATH") or ""):gmatch("[^:]+") do
    if core.sys.exists(folder .. "/" .. program) then return true end
  end
  return false
end

-- Returns how to install a program: with apt, by the names of Debian's packages, if this system has
-- it; other systems have other names, so `names` are the programs' own.
function shell.install(debian, names)
  if shell.on_path "apt-get" then return "apt install " .. debian end
  return ("install %s with the package manager of this system"):format(names)
end

-- Runs a command line, during which this process ignores SIGINT. Returns whether it succeeded and
-- its exit code, which is 128 + N if signal N ended it.
function shell.run(command)
  local _, kind, code = os.execute(command)
  if kind == "signal" then code = 128 + code end
  return code == 0, code
end

-- Returns the output of a command line without the last newline; nil if it fails.
function shell.output(command)
  local pipe = assert(io.popen("{ " .. command .. "; } 2>/dev/null"))
  local text = pipe:read "a"
  return pipe:close() and (text:gsub("\n$", "")) or nil
end

-- Returns the absolute path of a folder; resolves symbolic links in its existing part.
function shell.absolute(folder)
  local path = shell.output("cd -- " .. shell.quote(folder) .. " && pwd -P")
  if path or folder == "." then return path or folder end -- "." may have been removed
  local parent, name = folder:gsub("/+$", ""):match "^(.-)([^/]+)$"
  return shell.absolute(parent == "" and "." or parent):gsub("/$", "") .. "/" .. name
end

return shell
