-- runs/slurm_plan.lua: the plan of an array job of Slurm, a journal that says what its tasks run.
local errors = require "toeplab.base.errors"
local journal = require "toeplab.store.journal"
local secrets = require "toeplab.base.secrets"
local wire = require "toeplab.base.wire"
local worker = require "toeplab.runs.worker"

local slurm_plan = {}

-- Returns the contents of a plan: options (name -> value), axes (names), trials ({id=, number=,
-- label=, config= (text), data= (text), code=, attempt= (of the store), open= (whether that may
-- go on), step=, seconds=, artifacts=}).
function slurm_plan.read(path)
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
          open = line[11], artifacts = {} })
      elseif line[1] == "artifact" then
        table.insert(p.trials[#p.trials].artifacts, { kind = line[2], step = line[3],
          path = line[4], bytes = line[5], sha256 = line[6] })
      end
    end
  until #lines == 0
  if damage or #p.trials == 0 then
    errors.raise(errors.STORAGE, "%s: %s; if its job is still in the queue, toeplab status "
      .. "--cancel ends it", path, damage or "it is no plan of a sweep")
  end
  return p
end
-- Raises if a configuration holds a secret: the plan would store it.
function slurm_plan.check_secrets(list)
  for _, t in ipairs(list) do
    if secrets.config(t.config) ~= t.config then
      errors.usage("--on slurm: %s: the configuration holds a secret, which the plan of the job "
        .. "would store: let the script read it from the environment", t.label)
    end
  end
end

-- Returns the plan of an array job with the options o that runs the trials of list, as the text of
-- its file; path is that of the experiment's script.
function slurm_plan.text(run, list, o, path)
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
      wire.pack(t.data), t.code_hash, row.attempt, row.step, row.seconds, row.open == 1, n = 11 }
    for _, a in ipairs(artifacts) do
      lines[#lines + 1] = { "artifact", a.kind, a.step, a.path, a.bytes, a.sha256 }
    end
  end
  return journal.record(lines)
end

return slurm_plan
