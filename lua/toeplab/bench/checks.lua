-- bench/checks.lua: runs commands that must succeed, several at a time and until a deadline, and
-- reports each as it ends.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"

local checks = {}

local MOST = 7 -- at a time: each also occupies a core

-- The script that runs the command in file $1: prints $1, its seconds and its exit code.
local STEP = [[
cd %s || exit
began=$(date +%%s)
left=$((%d - began))
if [ $left -le 0 ]; then echo "$1 0 124"; exit; fi
%s sh %s/$1 >%s/$1.out 2>&1
code=$? took=$(($(date +%%s) - began))
if [ $code = 137 ] && [ $took -ge $left ]; then code=124; fi # it ignored the signal of timeout
echo "$1 $took $code"
]]

local function states(code) return code == 0 and "ok" or code == 124 and "LATE" or "FAILED" end

-- Reports the outcome of a check: its counts or, if it failed, its whole output.
local function report(o, check, text, seconds, code)
  local state = states(code)
  local counted = text:match "([^\n]*passed[^\n]*)" or text:match "([^\n]+)\n*$" or ""
  if state == "LATE" then counted = "not finished within the time limit" end
  local begun = seconds > 0 or state ~= "LATE"
  if begun then o.say("%-6s %-22s %s (%d s)", state, check.title, counted, seconds) end
  if state == "FAILED" then o.say("%s", text) end
  o.record { step = "check", name = check.title, state = state, seconds = seconds, text = counted,
    output = state == "FAILED" and text or nil }
  return state ~= "FAILED", begun
end

-- Writes the scripts that run the commands, with a deadline, into a new folder, and returns it.
local function write_scripts(list, where, deadline)
  local folder = os.tmpname()
  os.remove(folder)
  assert(core.sys.mkdir(folder))
  local quoted = shell.quote(folder)
  for i, check in ipairs(list) do
    local words = {}
    for k, word in ipairs(check.words) do words[k] = shell.quote(word) end
    assert(core.sys.write_file(folder .. "/" .. i, "exec " .. table.concat(words, " ") .. "\n"))
  end
  assert(core.sys.write_file(folder .. "/step", STEP:format(shell.quote(where),
    math.floor(deadline or 1 << 40), deadline and "timeout -k 3 $left" or "", quoted, quoted)))
  return folder
end

-- Runs checks, each {title=, words= of a command}, in the folder `where`. o: say, progress; with
-- check_deadline, a time, several run at once and none after it; record(t), if given, gets each
-- outcome. Returns whether none failed.
function checks.run(o, list, where)
  o.record = o.record or function() end
  local folder = write_scripts(list, where, o.check_deadline)
  local jobs = o.check_deadline and math.max(1, math.min(MOST, core.threads() // 2)) or 1
  local pipe = assert(io.popen(("seq 1 %d | xargs -P %d -I@ sh %s/step @"):format(#list, jobs,
    shell.quote(folder))))
  local good, done, begun = true, 0, 0
  o.progress(("bench gpu: %s"):format(list[1].title))
  for line in pipe:lines() do
    local i, seconds, code = line:match "^(%d+) (%d+) (%d+)$"
    i, done = tonumber(i), done + 1
    o.progress ""
    local text = core.sys.read_file(("%s/%d.out"):format(folder, i)) or ""
    local fine, ran = report(o, list[i], text, tonumber(seconds), tonumber(code))
    good, begun = good and fine, begun + (ran and 1 or 0)
    o.progress(("bench gpu: %d of %d checks are done"):format(done, #list))
  end
  pipe:close()
  o.progress ""
  shell.run("rm -r " .. shell.quote(folder))
  if done == #list then
    if begun < done then
      o.say("%-6s %d of %d checks did not begin within the time limit", "LATE", done - begun, done)
    end
    return good
  end
  local text = ("only %d of %d checks ran"):format(done, #list)
  o.say("%-6s %s", "FAILED", text)
  o.record { step = "check", state = "FAILED", text = text }
  return false
end

return checks
