-- runs/launch.lua: what mpirun or srun says about the processes that it has started, and whether
-- these can run the trials of an experiment (docs/ranks.md).
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
-- the number of this rank among those of its machine, from 0. Nil: this process was started alone.
function launch.ours()
  local rank = number("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
  local size = number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
  if not rank or not size or size < 2 then return nil end
  return { rank = rank, size = size,
    place = number("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID") or 0 }
end

-- Returns the words of a command with those that start its processes, if it was started so.
function launch.words(words)
  local ours = launch.ours()
  if not ours then return words end
  local by = number "OMPI_COMM_WORLD_SIZE" and "mpirun" or "srun"
  return { by, "-n", tostring(ours.size), table.unpack(words) }
end

-- Returns what tells the commands of two ranks apart: their script and keys must be the same.
function launch.digest(words) return core.sha256(table.concat(words, "\0")) end

local function complain(format, ...) errors.usage("ranks: " .. format, ...) end

-- Raises if a trial of list, by several ranks, asks for what needs another worker in the place of
-- rank 0's: a process that was started later cannot join the others.
local function check_worker(list, options, limit)
  local what = options.timeout and "--timeout" or limit and "budget.trial"
  if what then
    complain("%s may end the worker of rank 0, which no other process can replace: leave it out",
      what)
  end
  local first = list[1] and list[1].config.device
  for _, t in ipairs(list) do
    local device = t.config.device
    if device ~= first then
      complain("the trials have the devices %s and %s, and each rank keeps that of the first "
        .. "trial: run those of one device at a time, by device=%s", first, device, first)
    end
    local base = tostring(device):match "^(.*):%d+$"
    if base then
      complain("device = %s is one GPU, and each rank takes one of its own: device=%s", device,
        base)
    end
  end
end

-- Raises unless the ranks of trial t and those that share a sequence are numbers that divide.
-- Returns how many ranks it wants.
function launch.check_keys(t)
  local want, cut = t.config.ranks, t.config.sequence_ranks
  if type(want) == "table" then want = 1 end -- a key of the experiment with another meaning
  if want % cut ~= 0 then complain("sequence_ranks = %d does not divide ranks = %d", cut, want) end
  return want
end

-- Raises unless the processes that were started together, or this one alone, can run the trials of
-- list: their ranks must be as many as the processes. words: the command line; limit: the seconds
-- that the experiment gives each trial, or nil.
function launch.check(list, words, options, limit)
  local ours = launch.ours()
  local size = ours and ours.size or 1
  for _, t in ipairs(list) do
    local want = launch.check_keys(t)
    local command = table.concat(words, " ")
    if want > 1 and want ~= size then
      complain("the trial wants ranks = %d, and %s: mpirun -n %d %s", want, size == 1
        and "this is one process" or ("%d processes were started"):format(size), want, command)
    end
    if want == 1 and size > 1 then
      complain("%d processes were started for a trial of ranks = 1: add ranks=%d, or start one: %s",
        size, size, command)
    end
    if want > 1 and t.config.backend == "auto" then
      complain("backend = auto may choose otherwise on each rank: name a backend")
    end
  end
  if size == 1 then return end
  local file, why = core.ranks_file()
  if not file then complain("%s", why) end
  if (options.jobs or 1) > 1 then complain("-j runs trials side by side: take -j1") end
  check_worker(list, options, limit)
end

-- Releases the other ranks, if there are any, when there is no trial to run: they wait for rank 0.
function launch.release()
  if not launch.ours() then return end
  local world <close> = core.ranks_open()
  world:text(0, "")
end

return launch
