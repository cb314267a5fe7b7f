-- runs/launch.lua: reads the ranks that mpirun or srun has started from the environment, and checks
-- whether they can run the trials of an experiment (docs/ranks.md).
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"

local launch = {}

local function number(...)
  for _, name in ipairs { ... } do
    local value = math.tointeger(tonumber(os.getenv(name) or ""))
    if value then return value end
  end
end

-- Returns {rank=, size=, place=} of this process, from variables that mpirun or srun sets; place is
-- the local rank on its machine, from 0. nil: this process was started alone.
function launch.ours()
  local rank = number("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
  local size = number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
  if not rank or not size or size < 2 then return nil end
  return { rank = rank, size = size,
    place = number("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID") or 0 }
end

-- Returns the words of a command, after mpirun or srun if that has started it.
function launch.words(words)
  local ours = launch.ours()
  if not ours then return words end
  local by = number "OMPI_COMM_WORLD_SIZE" and "mpirun" or "srun"
  return { by, "-n", tostring(ours.size), table.unpack(words) }
end

-- Returns a hash to compare the commands of two ranks, whose script and keys must be the same.
function launch.digest(words) return core.sha256(table.concat(words, "\0")) end

local function complain(format, ...) errors.usage("ranks: " .. format, ...) end

-- Raises if a trial of several ranks could need a second worker of rank 0: a process that was
-- started later cannot join the others.
local function check_worker(list, options, limit)
  local what = options.timeout and "--timeout" or limit and "budget.trial"
  if what then
    complain("%s may end the worker of rank 0, which cannot be replaced: remove it", what)
  end
  local first = list[1] and list[1].config.device
  for _, t in ipairs(list) do
    local device = t.config.device
    if device ~= first then
      complain("the trials have the devices %s and %s, but each rank keeps the device of the first "
        .. "trial: run one device at a time, e.g. device=%s", first, device, first)
    end
    local base = tostring(device):match "^(.*):%d+$"
    if base then
      complain("device = %s is one GPU, but each rank takes its own: write device=%s", device, base)
    end
  end
end

-- Returns the number of ranks of trial t. Raises unless sequence_ranks divides it.
function launch.check_keys(t)
  local ranks, cut = t.config.ranks, t.config.sequence_ranks
  if type(ranks) == "table" then ranks = 1 end -- a key of the experiment with another meaning
  if ranks % cut ~= 0 then
    complain("sequence_ranks = %d does not divide ranks = %d", cut, ranks)
  end
  return ranks
end

-- Raises unless the processes that were started together, or this one alone, can run the trials of
-- list: the number of processes must equal the ranks. words: the command line; limit: budget.trial
-- of the experiment, or nil.
function launch.check(list, words, options, limit)
  local ours = launch.ours()
  local size = ours and ours.size or 1
  for _, t in ipairs(list) do
    local ranks = launch.check_keys(t)
    local command = table.concat(words, " ")
    if ranks > 1 and ranks ~= size then
      complain("the trial needs %d processes, but %s: run mpirun -n %d %s", ranks, size == 1
        and "this is one process" or ("%d were started"):format(size), ranks, command)
    end
    if ranks == 1 and size > 1 then
      complain("%d processes were started for a trial of ranks = 1: add ranks=%d, or start one: %s",
        size, size, command)
    end
    if ranks > 1 and t.config.backend == "auto" then
      complain("backend = auto may choose a different backend on each rank: name a backend")
    end
  end
  if size == 1 then return end
  local file, why = core.ranks_file()
  if not file then complain("%s", why) end
  if (options.jobs or 1) > 1 then complain("-j cannot be used with several ranks: use -j1") end
  check_worker(list, options, limit)
end

-- Releases other ranks, which wait for rank 0, when there is no trial to run.
function launch.release()
  if not launch.ours() then return end
  local world <close> = core.ranks_open()
  world:text(0, "")
end

return launch
