-- runs/slurm.lua: submits trials to Slurm as one array job, and reports jobs that have ended. Slurm
-- schedules, restarts and logs; its tasks (array_task.lua) share the results folder like all runs.
-- slurm/N/ holds the files job and script.sh of submission N (slurm_queue.lua), slurm/logs/ the
-- output of its tasks.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local journal = require "toeplab.store.journal"
local quantity = require "toeplab.base.quantity"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local slurm_options = require "toeplab.runs.slurm_options"
local slurm_queue = require "toeplab.runs.slurm_queue"
local trial_files = require "toeplab.store.trial_files"

local slurm = {}

-- Locks the submissions in the results folder until the returned file is closed, so that no other
-- process adds or removes one. wait: whether to wait for another process; otherwise returns nil if
-- another process has the lock or the file cannot be opened.
function slurm.lock(root, wait)
  local path = trial_files.own(root, "slurm") .. "/lock"
  local kind, link = core.sys.kind(path)
  local file, why = nil, path .. " is not a file"
  if not kind or kind == "file" and not link then file, why = io.open(path, "a") end
  if wait then errors.stored(file, why) end
  while file and not journal.lock(file, path) do
    if not wait then
      file:close()
      return nil
    end
    core.sys.sleep(0.1)
    errors.check_signals()
  end
  return file
end

-- ---- What tasks will run -----------------------------------------------------------------------

-- Returns the row of a trial of a submission if its task may begin it; nil if the trial is done or
-- running, or if it has failed or the user has stopped it since the submission.
function slurm.free(store, t)
  local _, row = store:status(t.id)
  local over = row and row.attempt > t.attempt and (row.status == "failed"
    or store:stop_signal { id = t.id, attempt = row.attempt })
  return row and not (row.trashed or row.busy or row.status == "done" or over) and row or nil
end

-- Returns the trials of the open submissions whose tasks are in the queue: id -> trial.
function slurm.queued(open)
  local set = {}
  for _, s in ipairs(open) do
    local tasks = {}
    for _, task in ipairs(s.tasks) do tasks[task.task] = true end
    for _, t in ipairs(s.trials) do set[t.id] = tasks[t.task] and t or set[t.id] end
  end
  return set
end

-- Returns the trials of list to submit, which no process runs and no task in the queue will run;
-- and the others. A killed trial is to submit even if its task is in the queue, because the task
-- may be about to end; if Slurm restarts it instead, the first of the two tasks takes the trial.
function slurm.left(store, open, list)
  local queued, left, others = slurm.queued(open), {}, {}
  for _, t in ipairs(list) do
    local _, row = store:status(t.id)
    local waits = row and row.status ~= "running" and queued[t.id]
      and slurm.free(store, queued[t.id])
    table.insert((waits or row and row.busy) and others or left, t)
  end
  return left, others
end

-- ---- Jobs that have ended ----------------------------------------------------------------------

-- Warns about trials that a job has not finished although it has left the queue, and quotes the
-- last line of the log of one of their tasks.
local function explain(store, s)
  local count, said = 0, nil
  for _, t in ipairs(s.job and s.trials or {}) do
    if slurm.free(store, t) then
      local log = ("%s/slurm/logs/%s_%d.log"):format(store.folder, s.job, t.task)
      local line = (core.sys.read_file(log) or ""):match "([^\n]+)%s*$"
      count, said = count + 1, said or line and ("; %s says: %s"):format(log, line)
    end
  end
  if count > 0 then
    errors.say("warning: job %s has ended, and %d of its %d trials are not done%s", s.job, count,
      #s.trials, said or "")
  end
end

-- Returns the submissions in the folder root with tasks in the queue; nil and the reason if the
-- queue cannot be read. Removes submissions whose jobs have left the queue, after a warning (if
-- store is not nil). locked: whether the caller has the lock, without which the queue may be older
-- than a submission.
function slurm.open(root, store, locked)
  local own <close> = not locked and slurm.lock(root) or nil
  local open, others = slurm_queue.open(root)
  for _, s in ipairs(open and (locked or own) and others or {}) do
    if store then explain(store, s) end
    slurm_queue.remove(s.folder)
  end
  return open, not open and others or nil
end

-- ---- The script --------------------------------------------------------------------------------

-- Returns the number of tasks for `trials` trials.
function slurm.tasks(o, trials) return math.ceil(trials / o.trials) end

-- Returns the command line of the tasks of submission `number`, in words. path: of the script;
-- options: as for runner.run, with overrides (the words of the command that set keys).
local function task_words(run, path, options, number)
  local words = { core.sys.executable(), "--threads", tostring(options.on.cpus), "run",
    shell.absolute(path) }
  for i, word in ipairs(secrets.words(options.overrides)) do
    if word ~= options.overrides[i] then
      errors.usage("--on slurm: %s: the job's script would store this secret; let the experiment "
        .. "read it from the environment", word)
    end
    words[#words + 1] = word
  end
  for _, o in ipairs { { "dir", shell.absolute(run.folder) }, { "jobs", options.jobs },
    { "share", options.share }, { "timeout", options.timeout },
    { "checkpoint-steps", options.steps }, { "checkpoint-seconds", options.seconds },
    { "array-task", number } } do
    if o[2] then words[#words + 1] = ("--%s=%s"):format(o[1], o[2]) end
  end
  return words
end

-- Returns the batch script of submission `number`, an array of `tasks` tasks. Other arguments: as
-- for task_words.
function slurm.script(run, path, options, tasks, number)
  local o, lines = options.on, { "#!/bin/sh" }
  local function add(option, value)
    if not value then return end
    value = tostring(value)
    if value:find "%c" then
      errors.usage("--on slurm: %s of the job would be %q, but sbatch accepts no line breaks or "
        .. "control characters there", option, value)
    end
    if not value:find "^[%w_@%+=:,./%%-]+$" then value = '"' .. value:gsub('"', '\\"') .. '"' end
    lines[#lines + 1] = ("#SBATCH --%s=%s"):format(option, value)
  end
  local seconds = o.time and quantity.seconds(o.time)
  add("job-name", "toeplab-" .. run.exp.name)
  add("comment", slurm_queue.comment_of(run.folder, number))
  add("array", ("1-%d%s"):format(tasks, o.limit and "%" .. o.limit or ""))
  add("output", shell.absolute(run.folder):gsub("%%", "%%%%") .. "/slurm/logs/%A_%a.log")
  lines[#lines + 1] = "#SBATCH --open-mode=append --requeue"
  add("signal", "B:USR1@" .. slurm_options.LEAD_SECONDS)
  add("partition", o.partition)
  add("account", o.account)
  add("time", seconds and math.ceil(seconds / 60) or o.time)
  add("mem", o.memory)
  add("cpus-per-task", o.cpus)
  add("gpus", o.gpus)
  local uses = false
  for _, t in ipairs(run.trials) do uses = uses or t.config.device ~= "cpu" end
  if o.gpus and not uses then
    run.progress:warn("gpus: the job requests GPUs, but all trials have device=cpu: set "
      .. "device=cuda")
  end
  for _, own in ipairs { true, false } do -- Slurm ignores #SBATCH lines after the first command
    for _, line in ipairs(o.line) do
      if (line:find "^#SBATCH" ~= nil) == own then lines[#lines + 1] = line end
    end
  end
  lines[#lines + 1] = "exec " .. shell.line(task_words(run, path, options, number))
  return table.concat(lines, "\n") .. "\n"
end

-- ---- Submitting --------------------------------------------------------------------------------

-- Removes a submission that Slurm has rejected, and raises the reason.
local function refuse(folder, why)
  slurm_queue.remove(folder)
  local hint = why:find "array" and "; --trials N runs more trials per task, in fewer tasks"
  if why:find "artition" then
    local list = slurm_queue.ask { "sinfo", "-h", "-o", "%R" }
    hint = list and "; the partitions here: " .. list:gsub("\n$", ""):gsub("\n", ", ")
  end
  errors.usage("Slurm rejects the job: %s%s", why, hint or "")
end

-- Calls sbatch. The options in o override environment variables.
local function sbatch(o, ...)
  local without = {}
  for key, name in pairs { partition = "PARTITION", account = "ACCOUNT", time = "TIMELIMIT",
    memory = "MEM_PER_NODE", gpus = "GPUS" } do
    if o[key] then without[#without + 1] = "SBATCH_" .. name end
  end
  return slurm_queue.ask({ "sbatch", ... }, without)
end

-- Returns the content of the file job of an array that runs the trials of list. words: the stored
-- command; at: the result of slurm_queue.here.
local function describe(run, list, o, words, at)
  local job = { user = at.user, cluster = at.cluster, name = run.exp.name, command = words,
    trials = {} }
  for i, t in ipairs(list) do
    local _, row = run.records:status(t.id)
    job.trials[i] = { id = t.id, attempt = row and row.attempt or 0, code = t.code_hash,
      task = (i - 1) // o.trials + 1 }
  end
  return job
end

-- Returns the id of a submission's job that sbatch did not report, because the answer may have been
-- lost; nil if Slurm has not accepted the job.
local function lost_job(run, folder, why)
  local open, silent = slurm_queue.open(run.folder)
  if not open then
    errors.raise(errors.FAILED, "%s; %s. Slurm may have accepted the job, so %s is kept: run the "
      .. "same command again when Slurm answers", why, silent, folder)
  end
  for _, s in ipairs(open) do
    if s.folder == folder then return s.job end
  end
end

-- Submits an array that runs the trials of list. path: of the experiment's script; words: the
-- stored command. Returns the id of the job. enlist() inserts the rows of the trials, without which
-- a task begins none, and returns a function that removes them. With options.redo it may delete
-- results, so a dry run of sbatch comes first. If Slurm rejects the job, removes all traces of it.
function slurm.submit(run, path, options, list, words, enlist)
  local o, number = options.on, slurm_queue.next_number(run.folder)
  local script = slurm.script(run, path, options, slurm.tasks(o, #list), number)
  local at, silent = slurm_queue.here()
  if not at then errors.raise(errors.FAILED, "Slurm does not answer: %s", silent) end
  trial_files.make(run.folder, "slurm/logs")
  local folder = trial_files.make(run.folder, "slurm/" .. number)
  local file, about = folder .. "/script.sh", describe(run, list, o, words, at)
  slurm_queue.write_job(folder, about)
  errors.stored(core.sys.write_file(file, script))
  if options.redo then
    local accepted, why = sbatch(o, "--test-only", file)
    if not accepted then refuse(folder, why) end
  end
  local undo = enlist()
  local said, why = sbatch(o, "--parsable", file)
  local id, cluster = ("\n" .. (said or "")):match "\n(%d+);?(%S*)"
  why = why or "sbatch exited 0 but printed no job id"
  id = id or lost_job(run, folder, why)
  if not id then
    undo()
    refuse(folder, why)
  end
  -- The script or the environment may have sent it to another cluster: "12;cluster".
  about.job, about.cluster = id, cluster and cluster ~= "" and cluster or at.cluster
  slurm_queue.write_job(folder, about)
  return id
end

return slurm
