-- runs/slurm.lua: submits trials to Slurm as one array job and asks Slurm about it. Slurm
-- schedules, restarts and logs; the shared file system carries plans, claims and journals
-- (store/claims.lua). slurm/N/ in the results folder holds plan, job and script.sh of submission N,
-- slurm/logs/ what its tasks print.
local claims = require "toeplab.store.claims"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local guests = require "toeplab.store.guests"
local journal = require "toeplab.store.journal"
local quantity = require "toeplab.base.quantity"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local takeover = require "toeplab.store.takeover"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"
local wire = require "toeplab.base.wire"
local worker = require "toeplab.runs.worker"

local slurm = {}

local LEAD_SECONDS = 90 -- from the signal that the time is nearly up to its end

-- ---- Slurm's commands ----------------------------------------------------------------------

-- What the environment must not say to Slurm's commands: to ask another cluster, or to show only a
-- part of the queue or other columns.
local WITHOUT = {}
for i, name in ipairs { "SLURM_CLUSTERS", "SQUEUE_ACCOUNT", "SQUEUE_FORMAT2", "SQUEUE_LICENSES",
  "SQUEUE_LOCAL", "SQUEUE_NAMES", "SQUEUE_PARTITION", "SQUEUE_QOS", "SQUEUE_SIBLING",
  "SQUEUE_STATES", "SQUEUE_USERS" } do
  WITHOUT[i] = "-u " .. name
end

-- Runs a command of Slurm. Returns what it printed; nil and what it said if it failed.
local function ask(...)
  local pipe = assert(io.popen(("env %s %s 2>&1 </dev/null"):format(table.concat(WITHOUT, " "),
    shell.line { ... })))
  local text = pipe:read "a"
  if pipe:close() then return text end
  return nil, text:gsub("[%a]+: error: ", ""):gsub("%s*\n%s*", "; "):gsub("; $", "")
end

-- Raises unless the commands of Slurm are here.
function slurm.check()
  for _, name in ipairs { "sbatch", "squeue", "scontrol", "scancel" } do
    if not shell.on_path(name) then
      errors.usage("--on slurm: there is no Slurm here (%s is not in PATH); give the command on a "
        .. "login node of the cluster", name)
    end
  end
end

-- Puts a running task, named JOB_TASK, back into the queue, unless Slurm is ending it: a cancelled
-- job must not come back, and Slurm itself requeues what it preempts.
function slurm.requeue(name)
  local text = ask("squeue", "-h", "-a", "-t", "all", "-o", "%T", "-j", name) or ""
  if not ("\n" .. text):find("\nRUNNING\n", 1, true) then return end
  errors.say("job %s: requeued", name)
  ask("scontrol", "requeue", name)
end

local answered = nil -- what here() has found out, which stays as it is

-- Returns {user=, cluster=}: who asks here which cluster; nil and the reason if Slurm does not
-- answer.
local function here()
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
local function comment_of(root, number)
  return ("toeplab %s %d"):format((shell.absolute(root) or root):gsub("[|%c]", "?"), number)
end

-- Returns the contents of a plan: options (name -> value), axes (names), trials ({id=, number=,
-- label=, config= (text), data= (text), code=, attempt= (of the store), step=, seconds=,
-- artifacts=}).
function slurm.read_plan(path)
  local p, offset, lines, damage = { options = {}, axes = {}, trials = {} }, 0, nil, nil
  repeat
    lines, offset, damage = journal.read(path, offset)
    for _, line in ipairs(lines) do
      if line[1] == "option" then
        p.options[line[2]] = line[3]
      elseif line[1] == "axis" then
        table.insert(p.axes, line[2])
      elseif line[1] == "trial" then
        table.insert(p.trials, { id = line[2], number = line[3], label = line[4], config = line[5],
          data = line[6], code = line[7], attempt = line[8], step = line[9], seconds = line[10],
          artifacts = {} })
      elseif line[1] == "artifact" then
        table.insert(p.trials[#p.trials].artifacts, { kind = line[2], step = line[3],
          path = line[4], bytes = line[5], sha256 = line[6] })
      end
    end
  until #lines == 0
  if damage or #p.trials == 0 then
    errors.raise(errors.STORAGE, "%s: %s; toeplab status --cancel ends its job", path,
      damage or "it is no plan of a sweep")
  end
  return p
end

-- Writes down to whom a submission belongs, before it is submitted, and then the id of its job.
local function write_job(folder, user, cluster, id)
  errors.stored(core.sys.write_file(folder .. "/job", ("user %s\ncluster %s\n%s"):format(user,
    cluster, id and "job " .. id .. "\n" or "")))
end

-- Lists the submissions in the results folder: {number=, folder=, user=, cluster=, job=}, each of
-- the last three nil where it is unknown.
local function submissions(root)
  local list = {}
  for _, name in ipairs(core.sys.list(root .. "/slurm") or {}) do
    local number = math.tointeger(tonumber(name:match "^%d+$"))
    if number then
      local folder = root .. "/slurm/" .. name
      local s = { number = number, folder = folder }
      for key, value in (core.sys.read_file(folder .. "/job") or ""):gmatch "(%l+) (%S+)\n" do
        s[key] = value
      end
      list[#list + 1] = s
    end
  end
  return list
end

-- Returns why the queue that is seen from here tells nothing about the submissions in the results
-- folder, as one of them is of another user or cluster; nil if it tells.
local function foreign(root, at)
  for _, s in ipairs(submissions(root)) do
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
local function read_queue(root)
  if not shell.on_path "squeue" then return nil, "Slurm does not answer: squeue is not in PATH" end
  local at, why = here()
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

-- Returns the name of the folder of the next submission within the results folder.
function slurm.next_name(root)
  local last = 0
  for _, s in ipairs(submissions(root)) do last = math.max(last, s.number) end
  return ("slurm/%d"):format(last + 1)
end

-- Returns the submissions with tasks in the queue, each with tasks, the list of these, and whether
-- there are others.
local function open_submissions(root, queue)
  local open, others = {}, false
  for _, s in ipairs(submissions(root)) do
    local comment = not s.job and comment_of(root, s.number)
    s.tasks = {}
    for _, task in ipairs(queue) do
      if task.job == s.job or comment == task.comment then
        s.job = task.job
        table.insert(s.tasks, task)
      end
    end
    if #s.tasks > 0 then open[#open + 1] = s else others = true end
  end
  return open, others
end

-- Returns whether there are submissions in the results folder.
function slurm.pending(root) return #submissions(root) > 0 end

-- Returns the submissions with tasks in the queue: {job=, tasks= (of read_queue), name= (of the
-- experiment; nil if the plan cannot be read)}; nil and the reason if the queue cannot be known.
function slurm.open(root)
  if not slurm.pending(root) then return {} end
  local queue, why = read_queue(root)
  if not queue then return nil, why end
  local list = open_submissions(root, queue)
  for _, s in ipairs(list) do
    local readable, plan = pcall(slurm.read_plan, s.folder .. "/plan")
    s.name = readable and plan.options.name or nil
  end
  return list
end

-- Returns the last line that a task of job printed with the name of its log, and that line alone;
-- nil if there is none.
local function last_words(root, job, task)
  local log = ("%s/slurm/logs/%s_%s.log"):format(root, job, task)
  local line = (core.sys.read_file(log) or ""):match "([^\n]+)%s*$"
  return line and log .. " says: " .. line, line
end

-- Returns the last words of a task of the job that had one of the trials in lost (a list of ids);
-- if none had one, of a task that refused to take any; nil if there is none.
local function reason(root, job, lost)
  local list, began = claims.list(root), {}
  for short, one in pairs(list) do
    local claim = claims.read(root, short, one.attempt)
    if claim and claim.job == job then began[claim.task] = true end
  end
  for _, id in ipairs(lost) do
    local one = list[claims.short(id)]
    local claim = one and claims.read(root, claims.short(id), one.attempt)
    local text = claim and claim.job == job and last_words(root, job, claim.task)
    if text then return text end
  end
  for _, name in ipairs(core.sys.list(root .. "/slurm/logs") or {}) do
    local of, task = name:match "^(%d+)_(%d+)%.log$"
    if of == job and not began[math.tointeger(tonumber(task))] then
      local text, line = last_words(root, job, task)
      if line and line:find "^toeplab: " then return text end
    end
  end
end

-- Warns of the trials of a submission that are neither done nor failed although its job has left
-- the queue, and says why if the log of a task tells.
local function explain(store, s, warn)
  local lost = {}
  local readable, plan = pcall(slurm.read_plan, s.folder .. "/plan")
  if not readable then return warn("job %s has ended; %s", s.job or "?", errors.text(plan)) end
  for _, t in ipairs(plan.trials) do
    local status = store:status(t.id)
    if not status or status == "queued" or status == "interrupted" then lost[#lost + 1] = t.id end
  end
  if #lost == 0 or not s.job then return end
  local said = reason(store.folder, s.job, lost)
  warn("job %s has ended, and %d of its %d trials are not done%s", s.job, #lost, #plan.trials,
    said and "; " .. said or "")
end

-- Copies what tasks and guests have written so far into the store (opened for writing), and removes
-- what guests and jobs that have left the queue no longer need. Returns the state of the
-- submissions: open (a list with tasks), held (id of a trial -> the claim of the task or guest that
-- runs it); and silent, why the queue cannot be known, if so: nothing is removed then, and every
-- claim of a task counts as held.
function slurm.refresh(store, warn)
  local root = store.folder
  local queue, silent, queued = {}, nil, {}
  -- The queue is read before the claims: what ends later is still held.
  if slurm.pending(root) then queue, silent = read_queue(root) end
  for _, task in ipairs(queue or {}) do queued[task.job .. "_" .. task.task] = true end
  local held = takeover.run(store, function(claim)
    local alive = guests.is_alive(claim)
    if alive == nil and queue then alive = queued[claim.job .. "_" .. claim.task] ~= nil end
    return alive
  end, warn)
  -- A guest may claim a trial at any time, so the claims of all its trials stay until it leaves.
  local kept = guests.trials(root)
  for id, claim in pairs(held) do kept[id] = claim end
  if not queue then return { open = submissions(root), held = held, silent = silent } end
  local open, others = open_submissions(root, queue)
  if #open == 0 then
    for _, s in ipairs(others and submissions(root) or {}) do explain(store, s, warn) end
    takeover.clear(store, kept)
    for _, s in ipairs(others and submissions(root) or {}) do trash.remove(s.folder) end
  end
  return { open = open, held = held }
end

-- Returns how many trials each task that has a claim in list (of claims.list) has claimed since it
-- started last: "job_task" -> {restarts=, count=}. A task that starts again has its whole share
-- again.
local function taken_by_tasks(root, list)
  local taken = {}
  for short, one in pairs(list) do
    local claim = claims.read(root, short, one.attempt)
    local name = claim and claim.job .. "_" .. claim.task
    local was = taken[name]
    if claim and (not was or claim.restarts > was.restarts) then
      taken[name] = { restarts = claim.restarts, count = 1 }
    elseif claim and claim.restarts == was.restarts then
      was.count = was.count + 1
    end
  end
  return taken
end

-- Returns the trials of list that no task runs and none in the queue will take. A task takes trials
-- of its own plan, which may be that of another experiment, and none that has failed since that was
-- written.
function slurm.missing(root, state, list)
  local missing, left = {}, {}
  for _, t in ipairs(list) do missing[t.id] = not state.held[t.id] end
  local claimed = #state.open > 0 and claims.list(root) or {}
  local taken = taken_by_tasks(root, claimed)
  for _, s in ipairs(state.open) do
    local plan, room = slurm.read_plan(s.folder .. "/plan"), 0
    for _, task in ipairs(s.tasks or {}) do
      local begun = task.state ~= "PENDING" and taken[task.job .. "_" .. task.task]
      room = room + math.max(0, plan.options.trials - (begun and begun.count or 0))
    end
    for _, t in ipairs(plan.trials) do
      local one = claimed[claims.short(t.id)]
      local failed = one and one.ends[one.attempt] == "failed" and one.attempt > t.attempt
      if room > 0 and missing[t.id] and not failed then room, missing[t.id] = room - 1, false end
    end
  end
  for _, t in ipairs(list) do
    if missing[t.id] then left[#left + 1] = t end
  end
  return left
end

-- ---- The script --------------------------------------------------------------------------------

local function time_text(text)
  local seconds = quantity.seconds(text)
  return seconds and tostring(math.max(1, math.ceil(seconds / 60))) or text
end

-- Returns the batch script of an array of so many tasks. folder: of the submission; words: the
-- command of a task.
function slurm.script(o, name, root, folder, tasks, words)
  local lines = { "#!/bin/sh" }
  local function add(option, value)
    if value then
      value = tostring(value)
      if not value:find "^[%w_@%+=:,./%%-]+$" then value = '"' .. value:gsub('"', '\\"') .. '"' end
      lines[#lines + 1] = ("#SBATCH --%s=%s"):format(option, value)
    end
  end
  add("job-name", "toeplab-" .. name)
  add("comment", folder and comment_of(root, math.tointeger(folder:match "%d+$")))
  add("array", ("1-%d%s"):format(tasks, o.limit and "%" .. o.limit or ""))
  add("output", root:gsub("%%", "%%%%") .. "/slurm/logs/%A_%a.log")
  lines[#lines + 1] = "#SBATCH --open-mode=append --requeue"
  add("signal", "B:USR1@" .. LEAD_SECONDS)
  add("partition", o.partition)
  add("account", o.account)
  add("time", o.time and time_text(o.time))
  add("mem", o.memory)
  add("cpus-per-task", o.cpus)
  add("gpus", o.gpus)
  for _, own in ipairs { true, false } do -- Slurm reads its lines up to the first command
    for _, line in ipairs(o.line) do
      if (line:find "^#SBATCH" ~= nil) == own then lines[#lines + 1] = line end
    end
  end
  lines[#lines + 1] = "exec " .. shell.line(words)
  return table.concat(lines, "\n") .. "\n"
end

-- ---- Submitting --------------------------------------------------------------------------------

-- Raises if a configuration holds a secret: the plan would store it.
local function check_secrets(list)
  for _, t in ipairs(list) do
    if secrets.config(t.config) ~= t.config then
      errors.usage("--on slurm: %s: the configuration holds a secret, which the plan of the job "
        .. "would store: let the script read it from the environment", t.label)
    end
  end
end

local function plan_lines(run, list, o, path)
  local lines = { { "option", "script", path }, { "option", "check", worker.check(run.exp) },
    { "option", "name", run.exp.name }, { "option", "jobs", run.jobs },
    { "option", "trials", o.trials }, { "option", "share", run.share },
    { "option", "command", run.command } }
  local function option(name, value)
    if value ~= nil then lines[#lines + 1] = { "option", name, value } end
  end
  option("timeout", run.timeout)
  option("checkpoint_steps", run.checkpoint.steps)
  option("checkpoint_seconds", run.checkpoint.seconds)
  for _, name in ipairs(run.axes) do lines[#lines + 1] = { "axis", name } end
  for _, t in ipairs(list) do
    local row, artifacts = run.records:resumable(t.id)
    lines[#lines + 1] = { "trial", t.id, t.number, t.label, wire.pack(t.config),
      wire.pack(t.data), t.code_hash, row.attempt, row.step, row.seconds, n = 10 }
    for _, a in ipairs(artifacts) do
      lines[#lines + 1] = { "artifact", a.kind, a.step, a.path, a.bytes, a.sha256 }
    end
  end
  return lines
end

-- Raises if the cluster takes no array of so many tasks.
local function check_size(tasks, trials)
  local most = tonumber((ask("scontrol", "show", "config") or ""):match "MaxArraySize%s*=%s*(%d+)")
  if not most or tasks < most then return end
  errors.usage("--on slurm: %d tasks are too many for this cluster, whose arrays have at most %d: "
    .. "--trials %d makes them fewer", tasks, most - 1, math.ceil(trials / (most - 1)))
end

local function refuse(why)
  local hint = ""
  if why:find "artition" then
    local list = ask("sinfo", "-h", "-o", "%R")
    hint = list and ("; the partitions here: " .. list:gsub("\n$", ""):gsub("\n", ", ")) or ""
  end
  errors.usage("Slurm does not take the job: %s%s", why, hint)
end

-- Returns the command line of a task.
function slurm.words(o, folder)
  return { core.sys.executable(), "--threads", tostring(o.cpus), "worker", "--array",
    folder .. "/plan" }
end

-- Returns how many tasks run `trials` trials.
function slurm.tasks(o, trials) return math.ceil(trials / o.trials) end

-- Writes the folder of a new submission of `at` (of here): an array of `tasks` tasks that run the
-- trials of list; path is that of the experiment's script. Returns the folder.
local function write_submission(run, list, o, tasks, path, at)
  local folder = trial_files.make(run.folder, slurm.next_name(run.folder))
  local ok, why = pcall(function()
    write_job(folder, at.user, at.cluster)
    errors.stored(core.sys.write_file(folder .. "/plan",
      journal.record(plan_lines(run, list, o, path))))
    errors.stored(core.sys.write_file(folder .. "/script.sh", slurm.script(o, run.exp.name,
      run.folder, folder, tasks, slurm.words(o, folder))))
  end)
  if ok then return folder end
  trash.remove(folder)
  error(why, 0)
end

-- Submits an array of `tasks` tasks that run the trials of list; path is that of the experiment's
-- script. Returns the id of the job. enlist() inserts the rows of the trials and returns a function
-- that removes them again: the rows come first, since a command that is killed while Slurm takes
-- the job would leave results that belong to no row. If Slurm refuses it, nothing of it stays.
function slurm.submit(run, list, o, tasks, path, enlist)
  check_secrets(list)
  check_size(tasks, #list)
  local at, silent = here()
  if not at then errors.raise(errors.FAILED, "Slurm does not answer: %s", silent) end
  claims.make(run.folder)
  trial_files.make(run.folder, "slurm")
  trial_files.make(run.folder, "slurm/logs")
  local folder = write_submission(run, list, o, tasks, path, at)
  local undo = enlist()
  local job, why = ask("sbatch", "--parsable", folder .. "/script.sh")
  local id = job and (job:match "^(%d+)" or job:match "\n(%d+)[;\n]")
  if not id then -- Slurm may have taken the job, and its answer was lost
    local queue, unknown = read_queue(run.folder)
    if not queue then errors.raise(errors.FAILED, "%s; %s", why or job, unknown) end
    for _, s in ipairs(open_submissions(run.folder, queue)) do
      if s.folder == folder then id = s.job end
    end
  end
  if not id then
    trash.remove(folder)
    undo()
    refuse(why or job)
  end
  -- A line of the script or the environment may have sent it to another cluster: "12;cluster".
  write_job(folder, at.user, (job or ""):match "%d+;([^%s;]+)" or at.cluster, id)
  return id
end

-- Cancels the jobs of open submissions (of slurm.refresh). Returns their ids.
function slurm.cancel(open)
  local ids = {}
  for _, s in ipairs(open) do
    local ok, why = ask("scancel", s.job)
    if not ok then errors.raise(errors.FAILED, "job %s cannot be cancelled: %s", s.job, why) end
    ids[#ids + 1] = s.job
  end
  return ids
end

return slurm
