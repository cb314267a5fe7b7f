-- hosts.lua: a results folder that two machines share, each with a database of its own, for tests.
-- Here they are two names of hosts on one machine.
local t = require "harness"
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"

local hosts = {}

local program = core.sys.executable()
local apart -- the command that gives what follows a name of its own for the host
for _, command in ipairs { "unshare --uts", "unshare --user --map-root-user --uts" } do
  if not apart and select(2, t.shell(command .. " hostname a 2>/dev/null")) == 0 then
    apart = command
  end
end
if not apart then t.skip_all "no process may have a host name of its own here (unshare --uts)" end

-- Each trial waits in step 3 until the file FOLDER/go exists.
local script = [[
local tl = require "toeplab"
return tl.experiment "shared" {
  fixed = { steps = 6 }, grid = { a = { 1, 2, 3 } }, seeds = 2, checkpoint = { steps = 2 },
  trial = function(t, c)
    local x = tl.zeros(4)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * 0.5 + noise:normal(tl.zeros(4), 0, c.a))
      t:log { loss = (x * x):mean():item() }
      while step == 3 and not tl.sys.exists "FOLDER/go" do tl.sys.sleep(0.01) end
    end
    t:log { final = x:sum():item() }
  end,
  report = { rows = "a", columns = { "final" } },
}
]]

local Folder = {}
Folder.__index = Folder

-- Calls fn with a folder that has the script x.lua.
function hosts.with_folder(fn)
  t.in_folder(function(folder)
    local self = setmetatable({ folder = folder, root = folder .. "/r", count = 0,
      environment = {} }, Folder) -- environment: what a host's commands get, in the shell's words;
    -- hostname: one name for all hosts, or nil
    t.write(folder .. "/x.lua", (script:gsub("FOLDER", folder)))
    local ok, why = pcall(fn, self)
    t.write(folder .. "/go", "")
    t.shell(("for i in $(seq 100); do pgrep -f '[/]%s' >/dev/null || break; sleep 0.1; done")
      :format(folder:sub(2)))
    if not ok then error(why, 0) end
  end)
end

-- Returns the line of shell that runs toeplab with words on a host.
function Folder:line(host, words)
  local line = ("TOEPLAB_THREADS=1 TOEPLAB_INDEX='%s/%s' %s '%s' %s -C '%s'"):format(self.folder,
    host, self.environment[host] or "", program, words, self.root)
  return apart .. " sh -c " .. shell.quote("hostname " .. (self.hostname or host) .. "; exec env "
    .. line)
end

function Folder:ask(host, words)
  local text, code = t.shell(self:line(host, words) .. " 2>&1")
  return text, code
end

-- Starts the sweep on a host; returns a function that waits for its end, and returns the exit code
-- and what it said.
function Folder:start(host, words)
  self.count = self.count + 1
  local name = ("%s/%d"):format(self.folder, self.count)
  local line = self:line(host, ("run '%s/x.lua' %s"):format(self.folder, words or ""))
  os.execute(("{ %s >%s.out 2>&1; echo $? >%s.code; } &"):format(line, name, name))
  return function()
    for _ = 1, 600 do
      if (core.sys.read_file(name .. ".code") or "") ~= "" then break end
      core.sys.sleep(0.05)
    end
    return tonumber(t.read(name .. ".code")), t.read(name .. ".out")
  end
end

-- What a host knows of the trials, a list of lines.
local ASKED = [["SELECT t.config, t.seed, t.status, t.attempt, t.tags, m.name, m.step, m.value
  FROM v_trials t LEFT JOIN v_metrics m ON m.trial = t.id
  ORDER BY t.config, t.seed, m.name, m.step"]]

function Folder:known(host)
  local list = {}
  for line in self:ask(host, "ls --csv --sql " .. ASKED):gmatch "[^\n]+" do
    list[#list + 1] = line
  end
  return list
end

-- Whether a line of a list has a text.
function hosts.any(list, text)
  for _, line in ipairs(list) do
    if line:find(text, 1, true) then return true end
  end
  return false
end

function Folder:statuses(host)
  local text = self:ask(host, [[ls --csv --sql "SELECT group_concat(status, ' ') AS s
    FROM (SELECT status FROM v_trials ORDER BY json_extract(config, '$.a'), seed)"]])
  return text:match "\n(.-)\n" or text
end

-- Waits until the trials have these statuses, and those that are running have logged all that they
-- do until FOLDER/go exists.
function Folder:wait_for(host, statuses)
  local last
  local _, running = statuses:gsub("running", "")
  for _ = 1, 400 do
    last = self:statuses(host)
    local _, ready = table.concat(self:known(host), "\n"):gsub(",running,%d,%w*,loss,3,", "")
    if last == statuses and ready == running then return end
    core.sys.sleep(0.05)
  end
  t.eq(last, statuses)
end

return hosts
