-- commands/run.lua: toeplab run: runs the trials of an experiment.
local arguments = require "toeplab.base.arguments"
local core = require "toeplab.core"
local launch = require "toeplab.runs.launch"
local array_task = require "toeplab.runs.array_task"
local quantity = require "toeplab.base.quantity"
local records = require "toeplab.store.records"
local runner = require "toeplab.runs.runner"
local shell = require "toeplab.base.shell"
local slurm_options = require "toeplab.runs.slurm_options"
local team_trial = require "toeplab.runs.team_trial"
local tensorboard = require "toeplab.live.tensorboard"
local errors = require "toeplab.base.errors"
local options = require "toeplab.base.options"

local run = {
  example = "toeplab run experiments/quickstart.lua\n"
    .. "  toeplab run experiments/quickstart.lua scale=smoke steps=20 seeds=3",
  usage = "toeplab run FILE [key=value...]",
  about = "Runs every trial of an experiment that is not done yet. The same command continues\n"
    .. "after an interruption of any kind, and repeats only what failed. key=value sets a key of\n"
    .. "the experiment, key=a,b,c or 'key=range(1,9)' or 'key=log2(16,256)' takes several values;\n"
    .. "scale=NAME selects a scale; seeds=N or seed=N sets the seeds; seeds=\"until 2 %\" adds\n"
    .. "seeds to each row until its ratio to the row of compare=KEY=VALUE is known to 2 %.\n"
    .. "Before the first trial it makes one model of each new value, to find wrong options.\n"
    .. "With --on slurm submits the trials as one array job and returns; toeplab status, ls and\n"
    .. "this command see the results while it runs. The options from --partition on describe the\n"
    .. "job; a file slurm.lua beside FILE, or in ~/.config/toeplab, gives them as a Lua table.",
  words = { "experiment", "keys" },
  options = {
    { name = "dry-run", short = "n", help = "list the trials with their status; run nothing" },
    { name = "jobs", short = "j", value = "N", help = "N trials at a time, each in a process",
      more = [[
        By default 1, at most 128. If a process dies, the other trials go on, and its own resumes
        from its checkpoint.]] },
    { name = "share", value = "N", help = "N trials at a time on each GPU (1; needs device=cuda)",
      more = [[
        With `-j` and `device=cuda` each GPU runs one trial at a time, in a process of its own;
        the others wait.]] },
    { name = "timeout", value = "TIME", help = "stop a trial that takes longer (90s, 30m)",
      more = "Such a trial counts as failed." },
    { name = "fail-fast", help = "stop all at the first failure" },
    { name = "alert", value = "COMMAND", help = "run COMMAND when a trial fails or diverges, and "
      .. "at the end",
      more = [[
        A trial diverges when it logs a value that is not finite, when its guard stops it or rolls
        it back, or when its gradient is not finite. The end is reported if trials have begun.
        sh(1) runs the command with these variables: `TOEPLAB_EVENT` (failed, diverged or end),
        `TOEPLAB_EXPERIMENT`, `TOEPLAB_TRIAL` (the id; not at the end), `TOEPLAB_DIR`, and
        `TOEPLAB_TEXT`, a sentence on what happened. Only the first ten trials are reported, each
        once. The command is not stored, as it may hold a secret. It is stopped after a minute;
        its standard error goes to `alert.log` in the results folder. Example: `--alert 'mail -s
        "$TOEPLAB_EVENT $TOEPLAB_TEXT" me'`.]] },
    { name = "tensorboard", value = "DIR", writes = true,
      help = "write event files for TensorBoard below DIR",
      more = [[
        The files are in DIR/EXPERIMENT/LABEL-ID of each trial. They hold its logged values, the
        varied keys and the seed as hyperparameters, and its final status. Each attempt at a trial
        makes a new file, which begins with the trial's stored values and makes TensorBoard
        discard the files before it. Only running trials are written; `toeplab export
        --tensorboard` writes finished ones. The option requires a build with protobuf-c, which
        `toeplab doctor` reports; docs/live.md names tools that import these files.]] },
    { name = "redo", help = "run trials of other code again, from the start",
      more = [[
        These are trials that other code ran, wholly or in part; their old metrics and files are
        deleted.]] },
    { name = "adopt", help = "take over old results of the same configuration and seed",
      more = [[
        A trial that is new because its code, data or numerics have changed counts as done if it
        is done under its old id. An event, which `toeplab show` prints, records what has
        changed.]] },
    { name = "dir", short = "C", value = "DIR", help = "the results folder" },
    { name = "quiet", short = "q", help = "no progress" },
    { name = "checkpoint-steps", value = "N", help = "a checkpoint every N steps" },
    { name = "checkpoint-seconds", value = "S", help = "a checkpoint every S seconds" },
    { name = "on", value = "SYSTEM", choices = { "slurm" },
      help = "submit as one array job to slurm (with -n: print the script)",
      more = [[
        Submits the unfinished trials and returns. While the job runs, the other verbs show its
        results so far, and the same command submits only trials that no queued task will run.
        The results folder must lie on a file system that all nodes share. A task saves its
        trials 90 seconds before its time limit and is requeued.
        `docs/cluster.md` says what the file system must do, and shows profiles.]] },
    { name = "wait", help = "wait for the job, and print the results" },
    { name = "shard", value = "I/K", unlisted = true, help = "of an older release" },
    { name = "array-task", value = "N", unlisted = true,
      help = "be a task of submission N in the results folder" },
  },
}

for _, o in ipairs(options.describe(slurm_options.spec)) do
  table.insert(run.options, { name = o.name, value = o.name:upper(), many = o.type == "table",
    help = o.help .. (o.default ~= "" and o.type == "int" and " (" .. o.default .. ")" or "") })
end

-- Returns the options of the array job; nil without --on.
local function job_options(set, path, jobs)
  local flags, given = {}, nil
  for _, o in ipairs(options.describe(slurm_options.spec)) do
    flags[o.name] = set[o.name]
    if o.type == "int" then flags[o.name] = arguments.integer("run", set, o.name, 1) end
    if set[o.name] then given = o.name end
  end
  given = set.wait and "wait" or given
  if not set.on and given then errors.usage("run: --%s requires --on slurm", given) end
  if not set.on then return nil end
  for _, name in ipairs { "fail-fast", "alert", "tensorboard" } do
    if set[name] then errors.usage("run: --%s cannot be combined with --on slurm", name) end
  end
  if not set["dry-run"] and not shell.on_path "sbatch" then
    errors.usage("run: there is no Slurm here (sbatch is not in PATH): run the command on a login "
      .. "node of the cluster")
  end
  return slurm_options.read(path, flags, jobs)
end

local function duration(text)
  if not text then return nil end
  return quantity.seconds(tonumber(text) or text)
    or errors.usage("run: --timeout takes a time like 90s, 30m or 4h, got '%s'", text)
end

-- Half the processes that can be polled: each may be exiting while its successor starts.
local MOST = 128

function run.run(set, words, command)
  local path = table.remove(words, 1)
  if not path then errors.usage("run: which experiment? Give the path of its file") end
  if path:find("=") and not core.sys.exists(path) then
    errors.usage("run: the file comes first, then key=value; got '%s'", path)
  end
  if set.shard then
    errors.usage("run: --shard was removed: give the same command without it on each "
      .. "machine, with one results folder, and they divide the trials among themselves")
  end
  local o = {
    dir = set.dir, quiet = set.quiet, command = { "toeplab", table.unpack(command) },
    jobs = arguments.integer("run", set, "jobs", 1, MOST),
    share = arguments.integer("run", set, "share", 1), timeout = duration(set.timeout),
    fail_fast = set["fail-fast"],
    redo = set.redo, adopt = set.adopt, alert = set.alert, wait = set.wait,
    steps = arguments.integer("run", set, "checkpoint-steps", 1),
    seconds = arguments.number("run", set, "checkpoint-seconds", 0),
  }
  if o.alert and not o.alert:find "%S" then errors.usage "run: --alert takes a command for sh" end
  if o.redo and o.adopt then errors.usage "run: choose one of --redo and --adopt" end
  local ours = launch.ours()
  if ours and ours.rank > 0 then
    return (set["dry-run"] or set.on) and errors.DONE or team_trial.follow(o.command)
  end
  if ours and set.on then
    errors.usage("run: --on slurm submits from one process, but %d were started", ours.size)
  end
  o.on = job_options(set, path, o.jobs or 1)
  if set["dry-run"] then return (o.on and runner.script or runner.list)(path, words, o) end
  local number = arguments.integer("run", set, "array-task", 1)
  o.task = number and array_task.new(records.folder(set.dir), number)
  o.follow = set.tensorboard and tensorboard.new(set.tensorboard) or nil
  return runner.run(path, words, o)
end

return run
