-- runs/slurm_queue.lua: asks Slurm's commands which submissions of a results folder (slurm.lua) are
-- in its queue.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local shell = require "toeplab.base.shell"
local trial_files = require "toeplab.store.trial_files"

local slurm_queue = {}

-- ---- Slurm's commands ----------------------------------------------------------------------

-- What the environment must not say to Slurm's commands: to ask another cluster, to show a part of
-- the queue only or other columns, or to replace what the script of a submission relies on.
local WITHOUT = { "SBATCH_ARRAY_INX", "SBATCH_NO_REQUEUE", "SBATCH_OPEN_MODE", "SBATCH_OUTPUT",
  "SBATCH_REQUEUE", "SBATCH_SIGNAL", "SLURM_CLUSTERS", "SQUEUE_ACCOUNT", "SQUEUE_FORMAT2",
  "SQUEUE_LICENSES", "SQUEUE_LOCAL", "SQUEUE_NAMES", "SQUEUE_PARTITION", "SQUEUE_QOS",
  "SQUEUE_SIBLING", "SQUEUE_STATES", "SQUEUE_USERS" }

local LIMIT_SECONDS = 60 -- of a command of Slurm, whose controller may hang

-- Runs a command of Slurm without those variables and those in the list more. Returns what it
-- printed; nil and what it said if it failed, or at least its exit status.
function slurm_queue.ask_without(more, ...)
  local command = { "timeout", "-k", "5", tostring(LIMIT_SECONDS), "env" }
  for _, list in ipairs { WITHOUT, more } do
    for _, name in ipairs(list) do table.move({ "-u", name }, 1, 2, #command + 1, command) end
  end
  table.move({ ... }, 1, select("#", ...), #command + 1, command)
  local pipe = assert(io.popen(shell.line(command) .. " 2>&1 </dev/null"))
  local text = pipe:read "a"
  local ok, kind, code = pipe:close()
  if ok then return text end
  if code == 124 then
    return nil, ("%s has not ended after %d s and was killed"):format(..., LIMIT_SECONDS)
  end
  local said = text:gsub("[%a]+: error: ", ""):gsub("%s*\n%s*", "; "):gsub("; $", "")
  if said:find "%S" then return nil, said end
  return nil, ("%s says nothing (%s %d)"):format(..., kind == "signal" and "signal" or "status",
    code)
end

local function ask(...) return slurm_queue.ask_without({}, ...) end

slurm_queue.ask = ask

-- Raises unless the commands of Slurm are here.
function slurm_queue.check()
  for _, name in ipairs { "sbatch", "squeue", "scontrol", "scancel" } do
    if not shell.on_path(name) then
      errors.usage("--on slurm: there is no Slurm here (%s is not in PATH); give the command on a "
        .. "login node of the cluster", name)
    end
  end
end

-- Puts a running task, named JOB_TASK, back into the queue, unless Slurm is ending it: a cancelled
-- job must not come back, and Slurm itself requeues what it preempts.
function slurm_queue.requeue(name)
  local text = ask("squeue", "-h", "-a", "-t", "all", "-o", "%T", "-j", name) or ""
  if not ("\n" .. text):find("\nRUNNING\n", 1, true) then return end
  errors.say("job %s: requeued", name)
  ask("scontrol", "requeue", name)
end

local answered = nil -- what slurm_queue.here has found out, which stays as it is

-- Returns {user=, cluster=}: who asks here which cluster; nil and the reason if Slurm does not
-- answer.
function slurm_queue.here()
  if answered then return answered end
  local text, why = ask("scontrol", "show", "config")
  local cluster = text and text:match "ClusterName%s*=%s*(%S+)"
  local user = shell.output "id -un" or shell.output "id -u"
  if not cluster or not user then
    return nil, why or "scontrol show config does not name the cluster"
  end
  answered = { user = user, cluster = cluster }
  return answered
end

-- ---- Submissions -------------------------------------------------------------------------------

-- The comment of a job, by which a submission is found whose command was killed before it could
-- write the id of its job down.
function slurm_queue.comment_of(root, number)
  return ("toeplab %s %d"):format(shell.absolute(root):gsub("[|%c]", "?"), number)
end

-- Writes down what a submission is, before it is submitted and again once its job has an id: user
-- and cluster (who submits it where), job (the id), name (of the experiment), command (its words),
-- each (how many trials a task runs), codes (device -> hash of the code), and trials, a list of
-- {id=, attempt= (the last one before)}.
function slurm_queue.write_job(folder, job)
  errors.stored(core.sys.write_file(folder .. "/job", json.encode(job) .. "\n"))
end

-- Returns the trials of a list that may be of a stranger: those that are well-formed.
local function trials_of(list)
  local good = {}
  for _, t in ipairs(type(list) == "table" and list or {}) do
    if type(t) == "table" and trial_files.is_id(t.id) and math.type(t.attempt) == "integer" then
      good[#good + 1] = t
    end
  end
  return good
end

-- Returns the submission of that number in the results folder: number, folder and what its file job
-- says; of one that cannot be read, or is of an older release, as much as is known.
function slurm_queue.submission(root, number)
  local folder = ("%s/slurm/%d"):format(root, number)
  local text = core.sys.read_file(folder .. "/job") or ""
  local ok, s = pcall(json.decode, text)
  if not ok or type(s) ~= "table" then
    s = {}
    for key, value in text:gmatch "(%l+) (%S+)\n" do s[key] = value end
  end
  for _, key in ipairs { "user", "cluster", "name" } do
    if type(s[key]) ~= "string" then s[key] = nil end
  end
  if type(s.command) ~= "table" then s.name = nil end
  s.number, s.folder = number, folder
  s.job = type(s.job) == "string" and s.job:match "^%d+$" or nil
  s.each, s.trials = math.tointeger(s.each) or 0, trials_of(s.trials)
  return s
end

-- Lists the submissions in the results folder: its folders with a file job.
function slurm_queue.submissions(root)
  local list = {}
  for _, name in ipairs(core.sys.list(trial_files.own(root, "slurm")) or {}) do
    local number = math.tointeger(tonumber(name:match "^%d+$"))
    for _, file in ipairs(number and trial_files.plain(root, "slurm/" .. name) or {}) do
      if file == "job" then list[#list + 1] = slurm_queue.submission(root, number) end
    end
  end
  return list
end

-- Removes the files of a submission, and its folder unless that holds others.
function slurm_queue.remove(folder)
  for _, name in ipairs { "script.sh", "plan", "job" } do core.sys.remove(folder .. "/" .. name) end
  core.sys.remove(folder)
end

-- Returns why the queue that is seen from here tells nothing about the submissions in the results
-- folder, as one of them is of another user or cluster; nil if it tells.
local function foreign(root, at)
  for _, s in ipairs(slurm_queue.submissions(root)) do
    local user, cluster = s.user or at.user, s.cluster or at.cluster
    if user ~= at.user or cluster ~= at.cluster then
      return ("job %s is of %s on cluster %s, and this is %s on cluster %s: only a command given "
        .. "there can tell whether the job has ended"):format(s.job or "?", user, cluster, at.user,
        at.cluster)
    end
  end
end

-- Returns the tasks in the queue to which the submissions in the results folder may belong: a list
-- of {job=, task= (a number), state=, node=, reason=, comment=}; nil and the reason in a sentence
-- if the queue cannot be known here.
function slurm_queue.read(root)
  if not shell.on_path "squeue" then return nil, "Slurm does not answer: squeue is not in PATH" end
  local at, why = slurm_queue.here()
  local other = at and foreign(root, at)
  if other then return nil, other end
  local text, list, unlike = nil, {}, nil
  -- -a: partitions that are hidden too
  if at then text, why = ask("squeue", "-hr", "-a", "-u", at.user, "-o", "%F|%K|%T|%N|%r|%k") end
  if not text then return nil, "Slurm does not answer: " .. why end
  for line in text:gmatch "[^\n]+" do
    local job, task, state, node, reason, comment =
      line:match "^(%d+)|(%d+)|([^|]*)|([^|]*)|([^|]*)|(.*)$"
    if job then
      list[#list + 1] = { job = job, task = math.tointeger(tonumber(task)), state = state,
        node = node, reason = reason, comment = comment }
    elseif not line:find "^%d+|" then
      unlike = line
    end
  end
  if unlike and #list == 0 then return nil, "Slurm does not answer: squeue says " .. unlike end
  return list
end

-- Returns the number of the next submission in the results folder.
function slurm_queue.next_number(root)
  local last = 0
  for _, s in ipairs(slurm_queue.submissions(root)) do last = math.max(last, s.number) end
  return last + 1
end

-- Returns the submissions of list with tasks in the queue, each with tasks, the list of these, and
-- the others.
function slurm_queue.open(root, list, queue)
  local open, others = {}, {}
  for _, s in ipairs(list) do
    local comment = not s.job and slurm_queue.comment_of(root, s.number)
    s.tasks = {}
    for _, task in ipairs(queue) do
      if task.job == s.job or comment == task.comment then
        s.job = task.job
        table.insert(s.tasks, task)
      end
    end
    table.insert(#s.tasks > 0 and open or others, s)
  end
  return open, others
end

-- Cancels the jobs of open submissions. Returns their ids.
function slurm_queue.cancel(open)
  local ids = {}
  for _, s in ipairs(open) do
    local ok, why = ask("scancel", s.job)
    if not ok then errors.raise(errors.FAILED, "job %s cannot be cancelled: %s", s.job, why) end
    ids[#ids + 1] = s.job
  end
  return ids
end

return slurm_queue
