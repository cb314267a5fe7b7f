-- runs/slurm_queue.lua: asks Slurm's commands which submissions of a results folder (slurm.lua) are
-- in its queue.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local shell = require "toeplab.base.shell"
local trial_files = require "toeplab.store.trial_files"

local slurm_queue = {}

-- ---- Slurm's commands --------------------------------------------------------------------------

-- Environment variables to hide from Slurm's commands: they would query another cluster, show only
-- a part of the queue or other columns, or override options that the submission's script sets.
local WITHOUT = { "SBATCH_ARRAY_INX", "SBATCH_NO_REQUEUE", "SBATCH_OPEN_MODE", "SBATCH_OUTPUT",
  "SBATCH_REQUEUE", "SBATCH_SIGNAL", "SLURM_CLUSTERS", "SQUEUE_ACCOUNT", "SQUEUE_FORMAT2",
  "SQUEUE_LICENSES", "SQUEUE_LOCAL", "SQUEUE_NAMES", "SQUEUE_PARTITION", "SQUEUE_QOS",
  "SQUEUE_SIBLING", "SQUEUE_STATES", "SQUEUE_USERS" }

local LIMIT_SECONDS = 60 -- of a command of Slurm, whose controller may hang

-- Runs a command of Slurm, given in words, without those variables and the variables in `more`.
-- Returns its output; nil and the reason if it failed.
function slurm_queue.ask(words, more)
  local command = { "timeout", "-k", "5", tostring(LIMIT_SECONDS), "env" }
  for _, list in ipairs { WITHOUT, more } do
    for _, name in ipairs(list) do command[#command + 1] = "-u" .. name end
  end
  table.move(words, 1, #words, #command + 1, command)
  local pipe = assert(io.popen(shell.line(command) .. " 2>&1 </dev/null"))
  local text = pipe:read "a"
  local ok, kind, code = pipe:close()
  if ok then return text end
  if code == 124 then
    return nil, ("%s did not end within %d s and was killed"):format(words[1], LIMIT_SECONDS)
  end
  local said = text:gsub("[%a]+: error: ", ""):gsub("%s*\n%s*", "; "):gsub("; $", "")
  return nil, said:find "%S" and said or ("%s failed without a message (%s %d)"):format(words[1],
    kind, code)
end

-- Puts a running task, named JOB_TASK, back into the queue, unless Slurm is ending it: a cancelled
-- job must not come back, and Slurm itself requeues what it preempts.
function slurm_queue.requeue(name)
  local text = slurm_queue.ask { "squeue", "-h", "-a", "-t", "all", "-o", "%T", "-j", name } or ""
  if not ("\n" .. text):find("\nRUNNING\n", 1, true) then return end
  errors.say("job %s: requeued", name)
  slurm_queue.ask { "scontrol", "requeue", name }
end

local answered = nil -- the cached result of slurm_queue.here

-- Returns {user=, cluster=} of this process; nil and the reason if Slurm does not answer.
function slurm_queue.here()
  if answered then return answered end
  local text, why = slurm_queue.ask { "scontrol", "show", "config" }
  local cluster = text and text:match "ClusterName%s*=%s*(%S+)"
  local user = shell.output "id -un" or shell.output "id -u"
  if not cluster or not user then
    return nil, why or "scontrol show config does not name the cluster"
  end
  answered = { user = user, cluster = cluster }
  return answered
end

-- ---- Submissions -------------------------------------------------------------------------------

-- Returns the comment of a job, which identifies its submission if the command was killed before it
-- stored the job's id.
function slurm_queue.comment_of(root, number)
  return ("toeplab %s %d"):format(shell.absolute(root):gsub("[|%c]", "?"), number)
end

-- Writes the file job of a submission, before it is submitted and again when its job has an id:
-- {user=, cluster=, job= (the id), name= (of the experiment), command= (words), trials=}; trials is
-- a list of {id=, attempt= (the last one before), code= (hash), task= (the number of its task)}.
function slurm_queue.write_job(folder, job)
  errors.stored(core.sys.write_file(folder .. "/job", json.encode(job) .. "\n"))
end

-- Returns whether the content of a file job is valid: a stranger or an older release may have
-- written it.
local function is_job(s)
  local good = type(s) == "table" and type(s.trials) == "table" and type(s.command) == "table"
  for _, key in ipairs { "user", "cluster", "name" } do
    good = good and type(s[key]) == "string"
  end
  for _, t in ipairs(good and s.trials or {}) do
    good = good and type(t) == "table" and trial_files.is_id(t.id)
      and math.type(t.attempt) == "integer" and math.type(t.task) == "integer"
  end
  return good and (s.job == nil or type(s.job) == "string" and s.job:find "^%d+$" ~= nil)
end

-- Returns submission `number` of the results folder: number, folder and the fields of its file job.
-- If the file is invalid, returns only the valid ones of user, cluster and job, and no trials.
function slurm_queue.submission(root, number)
  local folder = ("%s/slurm/%d"):format(root, number)
  local ok, s = pcall(json.decode, core.sys.read_file(folder .. "/job") or "")
  if not ok or not is_job(s) then
    local known = ok and type(s) == "table" and s or {}
    s = { trials = {} }
    for _, key in ipairs { "user", "cluster", "job" } do
      s[key] = type(known[key]) == "string" and known[key] or nil
    end
    s.job = s.job and s.job:match "^%d+$"
  end
  s.number, s.folder = number, folder
  return s
end

-- Lists the submissions in the results folder: the folders with a file job.
local function submissions(root)
  local list = {}
  for _, name in ipairs(core.sys.list(trial_files.own(root, "slurm")) or {}) do
    local number = math.tointeger(tonumber(name:match "^%d+$"))
    for _, file in ipairs(number and trial_files.plain(root, "slurm/" .. name) or {}) do
      if file == "job" then list[#list + 1] = slurm_queue.submission(root, number) end
    end
  end
  return list
end

-- Returns the number of the next submission in the results folder.
function slurm_queue.next_number(root)
  local last = 0
  for _, s in ipairs(submissions(root)) do last = math.max(last, s.number) end
  return last + 1
end

-- Removes the files of a submission, and its folder if that is then empty.
function slurm_queue.remove(folder)
  for _, name in ipairs { "script.sh", "job" } do core.sys.remove(folder .. "/" .. name) end
  core.sys.remove(folder)
end

-- ---- The queue ---------------------------------------------------------------------------------

-- Returns the tasks of the user in the queue: a list of {job=, task= (a number), state=, reason=,
-- comment=}; nil and the reason if Slurm does not answer.
local function tasks_of(user)
  -- -a: also hidden partitions
  local text, why = slurm_queue.ask { "squeue", "-hr", "-a", "-u", user, "-o", "%F|%K|%T|%r|%k" }
  if not text then return nil, why end
  local list, unlike = {}, nil
  for line in text:gmatch "[^\n]+" do
    local job, task, state, reason, comment = line:match "^(%d+)|(%d+)|([^|]*)|([^|]*)|(.*)$"
    if job then
      list[#list + 1] = { job = job, task = math.tointeger(tonumber(task)), state = state,
        reason = reason, comment = comment }
    elseif not line:find "^%d+|" then
      unlike = line
    end
  end
  if unlike and #list == 0 then return nil, "squeue printed: " .. unlike end
  return list
end

-- Returns the submissions in the results folder with tasks in the queue (listed in their field
-- tasks), and the other submissions; nil and the reason if the queue cannot be read here.
function slurm_queue.open(root)
  local all, open, others = submissions(root), {}, {}
  if #all == 0 then return open, others end
  local at, why = slurm_queue.here()
  for _, s in ipairs(at and all or {}) do
    local user, cluster = s.user or at.user, s.cluster or at.cluster
    if user ~= at.user or cluster ~= at.cluster then
      return nil, ("job %s belongs to %s on cluster %s, but you are %s on cluster %s: run the "
        .. "command there, where Slurm knows whether the job has ended"):format(s.job or "?", user,
        cluster, at.user, at.cluster)
    end
  end
  local queue
  if at then queue, why = tasks_of(at.user) end
  if not queue then return nil, "Slurm does not answer: " .. why end
  for _, s in ipairs(all) do
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

return slurm_queue
