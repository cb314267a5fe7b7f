-- runs/slurm.lua: submits trials to Slurm as one array job and asks Slurm about it. Slurm
-- schedules, restarts and logs; its tasks (array_task.lua) share the results folder as all runs do.
-- There slurm/N/ holds job and script.sh of submission N (slurm_queue.lua), slurm/logs/ what its
-- tasks print.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local quantity = require "toeplab.base.quantity"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local slurm_options = require "toeplab.runs.slurm_options"
local slurm_queue = require "toeplab.runs.slurm_queue"
local sweeps = require "toeplab.store.sweeps"
local temporary = require "toeplab.base.temporary"
local trial_files = require "toeplab.store.trial_files"

local slurm = {}

local NO_ID = "sbatch names no job" -- where it succeeds without

-- Locks the submissions in the results folder until the returned file is closed: no other process
-- then adds or removes one. Returns nil if another one has the lock; nil and the reason if the file
-- cannot be opened.
function slurm.lock(root)
  local path = trial_files.own(root, "slurm") .. "/lock"
  local kind, link = core.sys.kind(path)
  if kind and kind ~= "file" or link then return nil, path .. " is not a file" end
  local file, why = io.open(path, "a")
  if not file or core.sys.lock(file) then return file, why end
  file:close()
end

-- ---- Jobs that have ended ----------------------------------------------------------------------

-- Returns the last line that a task of job printed with the name of its log, and that line alone;
-- nil if there is none.
local function last_words(root, job, task)
  local log = ("%s/slurm/logs/%s_%s.log"):format(root, job, task)
  local line = (core.sys.read_file(log) or ""):match "([^\n]+)%s*$"
  return line and log .. " says: " .. line, line
end

-- Returns the last words of a task of the job that had one of the trials in the set lost; if none
-- had one, of a task that refused to take any; nil if there is none.
local function reason(store, job, lost)
  local began = {}
  for _, row in ipairs(sweeps.begun_by(store, job)) do
    local task = row.job:match "%d+$"
    local text = lost[row.id] and last_words(store.folder, job, task)
    if text then return text end
    began[task] = true
  end
  for _, name in ipairs(core.sys.list(store.folder .. "/slurm/logs") or {}) do
    local of, task = name:match "^(%d+)_(%d+)%.log$"
    if of == job and not began[task] then
      local text, line = last_words(store.folder, job, task)
      if line and line:find "^toeplab: " then return text end
    end
  end
end

-- Warns of the trials of a submission that are neither done nor failed although its job has left
-- the queue, and says why if the log of a task tells.
local function explain(store, s, warn)
  local lost, count = {}, 0
  for _, t in ipairs(s.trials) do
    local status, row = store:status(t.id)
    if status == "queued" or status == "interrupted" or status == "running" and not row.busy then
      lost[t.id], count = true, count + 1
    end
  end
  if count == 0 or not s.job then return end
  local said = reason(store, s.job, lost)
  warn("job %s has ended, and %d of its %d trials are not done%s", s.job, count, #s.trials,
    said and "; " .. said or "")
end

-- Returns the submissions in the folder of the store (nil: there is none) with tasks in the queue;
-- and why that cannot be known, if so: then all of them. Those whose jobs have left the queue are
-- removed, and warn(format, ...) tells what these have left. locked: whether the caller has the
-- lock, without which the queue may be older than a submission.
function slurm.open(root, store, warn, locked)
  if #slurm_queue.submissions(root) == 0 then return {} end
  local own <close> = not locked and slurm.lock(root) or nil
  local all = slurm_queue.submissions(root)
  local queue, silent = slurm_queue.read(root)
  if not queue then return all, silent end
  local open, others = slurm_queue.open(root, all, queue)
  for _, s in ipairs((locked or own) and others or {}) do
    if store then explain(store, s, warn) end
    slurm_queue.remove(s.folder)
  end
  return open
end

-- ---- What is left ------------------------------------------------------------------------------

-- Returns the trials of a submission in the order in which its task of that number takes them: from
-- its own place on, so that tasks rarely meet.
function slurm.order(s, number)
  local list, count = {}, #s.trials
  for i = 0, count - 1 do list[i + 1] = s.trials[((number - 1) * s.each + i) % count + 1] end
  return list
end

-- Returns whether a task (JOB_TASK; nil: of any) leaves a trial that was begun since its submission
-- to the next command: it has failed, or the user has stopped it, or it was killed together with
-- another task, whose end may be its fault.
local function is_over(store, id, row, task)
  return row.status == "failed" or store:asks_to_stop { id = id, attempt = row.attempt }
    or row.status == "running" and store:rows([[SELECT json_extract(provenance, '$.job') AS job
      FROM v_trials WHERE id = ?]], { id })[1].job ~= task
end

-- Returns the row of a trial of a submission if a task may begin it now; else nil.
function slurm.free(store, t, task)
  local _, row = store:status(t.id)
  local taken = not row or row.trashed or row.busy or row.status == "done"
    or row.attempt > t.attempt and is_over(store, t.id, row, task)
  return not taken and row or nil
end

-- Adds to the set taken (of ids) the trials that the tasks of a submission will take. A task that
-- Slurm has started again takes as many trials again as it had, and the one that was killed with
-- it; those are not counted here, because a task that finds no trial left ends at once.
local function hand_round(store, s, taken)
  local begun, free = {}, {}
  for _, t in ipairs(s.trials) do free[t.id] = slurm.free(store, t) ~= nil end
  for _, row in ipairs(sweeps.begun_by(store, s.job)) do
    begun[row.job] = (begun[row.job] or 0) + 1
  end
  for _, task in ipairs(s.tasks) do
    local has = task.state ~= "PENDING" and begun[task.job .. "_" .. task.task] or 0
    local room = s.each - has
    for _, t in ipairs(room > 0 and slurm.order(s, task.task) or {}) do
      if room > 0 and free[t.id] and not taken[t.id] then
        taken[t.id], room = true, room - 1
      end
    end
  end
end

-- Returns the trials of list to submit: no process runs them, and the tasks of the submissions in
-- the list open will not take them. store: nil if there is none.
function slurm.left(store, open, list)
  local taken, left = {}, {}
  for _, s in ipairs(store and open or {}) do hand_round(store, s, taken) end
  for _, t in ipairs(list) do
    local _, row = nil, nil
    if store then _, row = store:status(t.id) end
    if not taken[t.id] and not (row and row.busy) then left[#left + 1] = t end
  end
  return left
end

-- ---- The script --------------------------------------------------------------------------------

local function time_text(text)
  local seconds = quantity.seconds(text)
  return seconds and tostring(math.max(1, math.ceil(seconds / 60))) or text
end

-- Returns the command line of the tasks of submission `number`, in words. path: of the script;
-- options: those of runner.run, with overrides, the words of the command that set keys.
function slurm.words(run, path, options, number)
  local words = { core.sys.executable(), "--threads", tostring(options.on.cpus), "run",
    shell.absolute(path) }
  table.move(options.overrides, 1, #options.overrides, #words + 1, words)
  for _, o in ipairs { { "dir", shell.absolute(run.folder) }, { "jobs", options.jobs },
    { "share", options.share }, { "timeout", options.timeout },
    { "checkpoint-steps", options.steps }, { "checkpoint-seconds", options.seconds },
    { "array-task", number } } do
    if o[2] then words[#words + 1] = ("--%s=%s"):format(o[1], o[2]) end
  end
  return words
end

-- Returns the batch script of submission `number`, an array of `tasks` tasks. The other arguments
-- are those of slurm.words.
function slurm.script(run, path, options, tasks, number)
  local o, lines = options.on, { "#!/bin/sh" }
  local function add(option, value)
    if value then
      value = tostring(value)
      if value:find "%c" then
        errors.usage("--on slurm: %s of the job would be %q: a script for sbatch can have no line "
          .. "break or control character there", option, value)
      end
      if not value:find "^[%w_@%+=:,./%%-]+$" then value = '"' .. value:gsub('"', '\\"') .. '"' end
      lines[#lines + 1] = ("#SBATCH --%s=%s"):format(option, value)
    end
  end
  add("job-name", "toeplab-" .. run.exp.name)
  add("comment", slurm_queue.comment_of(run.folder, number))
  add("array", ("1-%d%s"):format(tasks, o.limit and "%" .. o.limit or ""))
  add("output", shell.absolute(run.folder):gsub("%%", "%%%%") .. "/slurm/logs/%A_%a.log")
  lines[#lines + 1] = "#SBATCH --open-mode=append --requeue"
  add("signal", "B:USR1@" .. slurm_options.LEAD_SECONDS)
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
  lines[#lines + 1] = "exec " .. shell.line(slurm.words(run, path, options, number))
  return table.concat(lines, "\n") .. "\n"
end

-- ---- Submitting --------------------------------------------------------------------------------

-- Raises if the cluster takes no array of so many tasks.
local function check_size(tasks, trials)
  local config = slurm_queue.ask("scontrol", "show", "config") or ""
  local most = tonumber(config:match "MaxArraySize%s*=%s*(%d+)")
  if not most or tasks < most then return end
  errors.usage("--on slurm: %d tasks are too many for this cluster, whose arrays have at most %d: "
    .. "--trials %d makes them fewer", tasks, most - 1, math.ceil(trials / (most - 1)))
end

local function refuse(why)
  local hint = ""
  if why:find "artition" then
    local list = slurm_queue.ask("sinfo", "-h", "-o", "%R")
    hint = list and ("; the partitions here: " .. list:gsub("\n$", ""):gsub("\n", ", ")) or ""
  end
  errors.usage("Slurm does not take the job: %s%s", why, hint)
end

-- Calls sbatch (slurm_queue.ask), for which the options in o come before those of the environment.
local function sbatch(o, ...)
  local without = {}
  for key, name in pairs { partition = "PARTITION", account = "ACCOUNT", time = "TIMELIMIT",
    memory = "MEM_PER_NODE", gpus = "GPUS" } do
    if o[key] then without[#without + 1] = "SBATCH_" .. name end
  end
  return slurm_queue.ask_without(without, "sbatch", ...)
end

-- Returns how many tasks run `trials` trials.
function slurm.tasks(o, trials) return math.ceil(trials / o.trials) end

-- Returns what the file job says of an array that `at` (of slurm_queue.here) submits and that runs
-- the trials of list. words: of the command that is stored.
local function describe(run, list, o, words, at)
  local job = { user = at.user, cluster = at.cluster, name = run.exp.name, each = o.trials,
    command = words, codes = {}, trials = {} }
  for i, t in ipairs(list) do
    local _, row = run.records:status(t.id)
    job.trials[i] = { id = t.id, attempt = row and row.attempt or 0 }
    job.codes[t.config.device] = t.code_hash
  end
  return job
end

-- Writes the folder of a new submission, an array of `tasks` tasks. Returns the folder.
local function write_submission(run, path, options, tasks, job)
  local number = slurm_queue.next_number(run.folder)
  local folder = trial_files.make(run.folder, "slurm/" .. number)
  local ok, why = pcall(function()
    slurm_queue.write_job(folder, job)
    errors.stored(core.sys.write_file(folder .. "/script.sh", slurm.script(run, path, options,
      tasks, number)))
  end)
  if ok then return folder end
  slurm_queue.remove(folder)
  error(why, 0)
end

-- Raises, before anything changes, if the script of an array of `tasks` tasks, which run `trials`
-- trials, would hold a secret, or if the cluster takes no array of that size.
function slurm.check(options, tasks, trials)
  for i, word in ipairs(secrets.words(options.overrides)) do
    if word ~= options.overrides[i] then
      errors.usage("--on slurm: %s: the script of the job would store this secret: let the "
        .. "experiment read it from the environment", word)
    end
  end
  check_size(tasks, trials)
end

-- Raises, before anything changes, if Slurm would refuse an array of `tasks` tasks.
function slurm.rehearse(run, path, options, tasks)
  local folder = trial_files.make(run.folder, "slurm")
  local file = temporary.beside(folder .. "/script.sh")
  errors.stored(core.sys.write_file(file, slurm.script(run, path, options, tasks,
    slurm_queue.next_number(run.folder))))
  local taken, why = sbatch(options.on, "--test-only", file)
  core.sys.remove(file)
  if not taken then refuse(why) end
end

-- Submits an array that runs the trials of list; path is that of the experiment's script, words are
-- those of the command that is stored. Returns the id of the job. enlist() inserts the rows of the
-- trials and returns a function that removes them again: the rows come first, since a task begins
-- no trial without a row. If Slurm refuses the job, nothing of it stays.
function slurm.submit(run, path, options, list, words, enlist)
  local o, tasks = options.on, slurm.tasks(options.on, #list)
  slurm.check(options, tasks, #list)
  local at, silent = slurm_queue.here()
  if not at then errors.raise(errors.FAILED, "Slurm does not answer: %s", silent) end
  trial_files.make(run.folder, "slurm")
  trial_files.make(run.folder, "slurm/logs")
  local about = describe(run, list, o, words, at)
  local folder = write_submission(run, path, options, tasks, about)
  local undo = enlist()
  local job, why = sbatch(o, "--parsable", folder .. "/script.sh")
  local id = job and (job:match "^(%d+)" or job:match "\n(%d+)[;\n]")
  if not id then -- Slurm may have taken the job, and its answer was lost
    local queue, unknown = slurm_queue.read(run.folder)
    if not queue then
      errors.raise(errors.FAILED, "%s; %s. Whether the job was taken is not known, so %s stays: "
        .. "give the same command once Slurm answers", why or NO_ID, unknown, folder)
    end
    for _, s in ipairs(slurm_queue.open(run.folder, slurm_queue.submissions(run.folder), queue)) do
      if s.folder == folder then id = s.job end
    end
  end
  if not id then
    slurm_queue.remove(folder)
    undo()
    refuse(why or NO_ID)
  end
  -- A line of the script or the environment may have sent it to another cluster: "12;cluster".
  about.job, about.cluster = id, (job or ""):match "%d+;([^%s;]+)" or at.cluster
  slurm_queue.write_job(folder, about)
  return id
end

return slurm
