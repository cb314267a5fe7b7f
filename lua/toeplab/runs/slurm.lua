-- runs/slurm.lua: submits trials to Slurm as one array job and asks Slurm about it. Slurm
-- schedules, restarts and logs; the shared file system carries plans, claims and journals
-- (store/claims.lua). slurm/N/ in the results folder holds plan, job and script.sh of submission N,
-- slurm/logs/ what its tasks print.
local claims = require "toeplab.store.claims"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local files = require "toeplab.base.files"
local quantity = require "toeplab.base.quantity"
local shell = require "toeplab.base.shell"
local slurm_options = require "toeplab.runs.slurm_options"
local slurm_plan = require "toeplab.runs.slurm_plan"
local slurm_queue = require "toeplab.runs.slurm_queue"
local takeover = require "toeplab.store.takeover"
local temporary = require "toeplab.base.temporary"
local trial_files = require "toeplab.store.trial_files"

local slurm = {}

local NO_ID = "sbatch names no job" -- where it succeeds without

-- Returns whether there are submissions in the results folder.
function slurm.pending(root) return #slurm_queue.submissions(root) > 0 end

-- Returns the submissions with tasks in the queue: {job=, tasks= (of read_queue), name= (of the
-- experiment; nil if the plan cannot be read)}; nil and the reason if the queue cannot be known.
function slurm.open(root)
  if not slurm.pending(root) then return {} end
  local queue, why = slurm_queue.read(root)
  if not queue then return nil, why end
  local list = slurm_queue.open(root, queue)
  for _, s in ipairs(list) do
    local readable, plan = pcall(slurm_plan.read, s.folder .. "/plan")
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
  local readable, plan = pcall(slurm_plan.read, s.folder .. "/plan")
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

-- Whether a submission is one of the list.
local function was_there(list, submission)
  for _, s in ipairs(list) do
    if s.folder == submission.folder and s.job == submission.job then return true end
  end
  return false
end

-- Copies what tasks have written so far into the store (opened for writing), and removes what jobs
-- that have left the queue no longer need. Returns the state of the submissions: open (a list with
-- tasks), held (id of a trial -> the claim of the task that runs it); and silent, why the queue
-- cannot be known, if so: nothing is removed then, and every claim counts as held.
function slurm.refresh(store, warn)
  local root = store.folder
  local queue, silent, queued = {}, nil, {}
  local all = slurm_queue.submissions(root)
  -- The queue is read before the claims: what ends later is still held.
  if slurm.pending(root) then queue, silent = slurm_queue.read(root) end
  for _, task in ipairs(queue or {}) do queued[task.job .. "_" .. task.task] = true end
  local held = takeover.run(store, function(claim)
    return queue and queued[claim.job .. "_" .. claim.task] ~= nil
  end, warn)
  if not queue then return { open = all, held = held, silent = silent } end
  local open, others = slurm_queue.open(root, queue)
  -- Another command may have submitted a job after the queue was read.
  local new = false
  for _, s in ipairs(slurm_queue.submissions(root)) do new = new or not was_there(all, s) end
  if #open == 0 and not new then
    for _, s in ipairs(others and all or {}) do explain(store, s, warn) end
    -- A task that was taken for dead claims nothing once its plan is gone.
    for _, s in ipairs(others and all or {}) do files.remove(s.folder) end
    takeover.clear(store, held)
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

-- Gives the trials of a plan to the `room` places of the tasks that have it in the queue, and sets
-- missing[id] = false for them. The tasks take the trials that no task has begun first, then those
-- that were interrupted, but none that has failed since the plan was written.
local function hand_round(plan, room, claimed, missing, held)
  for _, begun in ipairs { false, true } do
    for _, t in ipairs(plan.trials) do
      local one = claimed[claims.short(t.id)]
      local has_begun = one ~= nil and one.attempt > t.attempt
      local ended = has_begun and one.ends[one.attempt]
      if room > 0 and has_begun == begun and not held[t.id] and ended ~= "failed"
        and ended ~= "done" then
        room, missing[t.id] = room - 1, false
      end
    end
  end
end

-- Returns the trials of list to submit: no task runs them, and the tasks in the queue, each of
-- which takes trials of its own plan only, cannot take them.
function slurm.missing(root, state, list)
  local missing, left = {}, {}
  for _, t in ipairs(list) do missing[t.id] = not state.held[t.id] end
  local claimed = #state.open > 0 and claims.list(root) or {}
  local taken = taken_by_tasks(root, claimed)
  for _, s in ipairs(state.open) do
    local plan, room = slurm_plan.read(s.folder .. "/plan"), 0
    for _, task in ipairs(s.tasks or {}) do
      local begun = task.state ~= "PENDING" and taken[task.job .. "_" .. task.task]
      room = room + math.max(0, plan.options.trials - (begun and begun.count or 0))
    end
    hand_round(plan, room, claimed, missing, state.held)
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
      if value:find "%c" then
        errors.usage("--on slurm: %s of the job would be %q: a script for sbatch can have no line "
          .. "break or control character there", option, value)
      end
      if not value:find "^[%w_@%+=:,./%%-]+$" then value = '"' .. value:gsub('"', '\\"') .. '"' end
      lines[#lines + 1] = ("#SBATCH --%s=%s"):format(option, value)
    end
  end
  add("job-name", "toeplab-" .. name)
  add("comment", folder and slurm_queue.comment_of(root, math.tointeger(folder:match "%d+$")))
  add("array", ("1-%d%s"):format(tasks, o.limit and "%" .. o.limit or ""))
  add("output", root:gsub("%%", "%%%%") .. "/slurm/logs/%A_%a.log")
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
  lines[#lines + 1] = "exec " .. shell.line(words)
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

-- Returns the command line of a task.
function slurm.words(o, folder)
  return { core.sys.executable(), "--threads", tostring(o.cpus), "worker", "--array",
    folder .. "/plan" }
end

-- Returns how many tasks run `trials` trials.
function slurm.tasks(o, trials) return math.ceil(trials / o.trials) end

-- Writes the folder of a new submission of `at` (of slurm_queue.here): an array of `tasks` tasks
-- that run the trials of list; path is that of the experiment's script. Returns the folder.
local function write_submission(run, list, o, tasks, path, at)
  local folder = trial_files.make(run.folder, slurm_queue.next_name(run.folder))
  local ok, why = pcall(function()
    slurm_queue.write_job(folder, at.user, at.cluster)
    errors.stored(core.sys.write_file(folder .. "/plan",
      slurm_plan.text(run, list, o, path)))
    errors.stored(core.sys.write_file(folder .. "/script.sh", slurm.script(o, run.exp.name,
      run.folder, folder, tasks, slurm.words(o, folder))))
  end)
  if ok then return folder end
  files.remove(folder)
  error(why, 0)
end

-- Raises, before anything changes, if the plan of `tasks` tasks that run the trials of list would
-- hold a secret, or if the cluster takes no array of so many.
function slurm.check(list, tasks)
  slurm_plan.check_secrets(list)
  check_size(tasks, #list)
end

-- Raises, before anything changes, if Slurm would refuse an array of `tasks` tasks.
function slurm.rehearse(run, o, tasks)
  local folder = trial_files.make(run.folder, "slurm")
  local path = temporary.beside(folder .. "/script.sh")
  errors.stored(core.sys.write_file(path, slurm.script(o, run.exp.name, run.folder, nil, tasks,
    slurm.words(o, folder))))
  local taken, why = sbatch(o, "--test-only", path)
  core.sys.remove(path)
  if not taken then refuse(why) end
end

-- Submits an array of `tasks` tasks that run the trials of list; path is that of the experiment's
-- script. Returns the id of the job. enlist() inserts the rows of the trials and returns a function
-- that removes them again: the rows come first, since a command that is killed while Slurm takes
-- the job would leave results that belong to no row. If Slurm refuses it, nothing of it stays.
function slurm.submit(run, list, o, tasks, path, enlist)
  slurm.check(list, tasks)
  local at, silent = slurm_queue.here()
  if not at then errors.raise(errors.FAILED, "Slurm does not answer: %s", silent) end
  claims.make(run.folder)
  trial_files.make(run.folder, "slurm")
  trial_files.make(run.folder, "slurm/logs")
  local folder = write_submission(run, list, o, tasks, path, at)
  local undo = enlist()
  local job, why = sbatch(o, "--parsable", folder .. "/script.sh")
  local id = job and (job:match "^(%d+)" or job:match "\n(%d+)[;\n]")
  if not id then -- Slurm may have taken the job, and its answer was lost
    local queue, unknown = slurm_queue.read(run.folder)
    if not queue then
      errors.raise(errors.FAILED, "%s; %s. Whether the job was taken is not known, so %s stays: "
        .. "give the same command once Slurm answers", why or NO_ID, unknown, folder)
    end
    for _, s in ipairs(slurm_queue.open(run.folder, queue)) do
      if s.folder == folder then id = s.job end
    end
  end
  if not id then
    files.remove(folder)
    undo()
    refuse(why or NO_ID)
  end
  -- A line of the script or the environment may have sent it to another cluster: "12;cluster".
  slurm_queue.write_job(folder, at.user, (job or ""):match "%d+;([^%s;]+)" or at.cluster, id)
  return id
end

return slurm
