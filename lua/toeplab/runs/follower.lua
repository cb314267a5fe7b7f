-- runs/follower.lua: runs the trials of a run on all ranks but the first (docs/ranks.md).
--
-- Rank 0 has the coordinator and its worker, which writes the journal, the checkpoints and the log.
-- The other ranks get from that worker the script, each trial with its configuration, and after
-- every step whether it goes on. They run the same function of the script, and write nothing.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local launch = require "toeplab.runs.launch"
local team_trial = require "toeplab.runs.team_trial"
local wire = require "toeplab.base.wire"

local follower = {}

-- Selects the device of this rank and loads the script at path: each rank of a machine takes a GPU
-- of its own. srun may show each process one GPU only, which then has the number 0 for all of them.
local function load(path, device)
  if device ~= "cpu" then
    local gpus = core.look_at_device(device) or 1 -- team_trial.load raises if there is none
    device = ("%s:%d"):format(device, launch.ours().place % gpus)
  end
  return team_trial.load(path, device)
end

-- Joins the other ranks and runs the trials that rank 0 sends, until it sends none. words: the
-- command line, which must be that of rank 0.
function follower.main(words)
  core.sys.catch_signals() -- rank 0 decides when to stop
  local world <close> = core.ranks_open()
  local order = world:text(0, "")
  if order == "" then return errors.DONE end
  local about = wire.unpack(order)
  local ready, exp = pcall(load, about.path, about.device)
  local own = ready and team_trial.describe(exp, about.device, launch.digest(words)) or nil
  team_trial.compare(world, about, own, not ready and errors.text(exp) or nil)
  while true do
    order = world:text(0, "")
    if order == "" then return errors.DONE end
    team_trial.follow(world, exp, wire.unpack(order))
    collectgarbage() -- as rank 0 does in worker.lua
    core.memory_trim()
  end
end

return follower
