-- store/logged_tensors.lua: writes and reads the tensors that trials log, such as a kernel over
-- training.
--
-- Each tensor of a step is a separate HDF5 file, tensor-NAME-STEP.h5, and an artifact of kind
-- "tensor:NAME". The file is complete before its row is written and does not change afterwards, so
-- a kill never leaves half a tensor. A resumed trial replaces the tensors of repeated steps.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"
local trial_files = require "toeplab.store.trial_files"

local logged_tensors = {}

local ROWS = [[SELECT substr(kind, 8) AS name, step, path, bytes, sha256, trial FROM v_artifacts
  WHERE trial = ? AND kind %s ORDER BY kind, step]]

function logged_tensors.kind(name) return "tensor:" .. name end

-- Writes the tensor of a step to a file in the folder of the trial (path, relative to the results
-- folder). Returns the row of the artifact.
function logged_tensors.write(folder, path, name, step, tensor)
  local row = { kind = logged_tensors.kind(name), step = step,
    path = ("%s/tensor-%s-%08d.h5"):format(path, name, step) }
  local file = folder .. "/" .. row.path
  core.h5_write(file, { { name, tensor } }, nil, true)
  row.bytes, row.sha256 = assert(core.sys.size(file)), core.sha256_file(file)
  return row
end

-- Lists the rows of a trial's tensors (name nil: of all names) by name and step: {name=, step=,
-- path=, bytes=, sha256=, trial=}. Raises a usage error if the name is unknown.
function logged_tensors.rows(store, id, name)
  if not name then return store:rows(ROWS:format "GLOB 'tensor:*'", { id }) end
  local rows = store:rows(ROWS:format "= ?", { id, logged_tensors.kind(name) })
  if #rows > 0 then return rows end
  local names = {}
  for i, known in ipairs(logged_tensors.names(store, id)) do names[i] = known.name end
  errors.usage("trial %s has no tensor '%s'%s", id:sub(1, 12), name,
    #names > 0 and suggest.hint(name, names) or ": it has logged no tensors")
end

-- Lists the names of a trial's tensors: {name=, count=, first=, last= (steps), bytes= (of files)}.
function logged_tensors.names(store, id)
  return store:rows([[SELECT substr(kind, 8) AS name, count(*) AS count, min(step) AS first,
      max(step) AS last, sum(bytes) AS bytes FROM v_artifacts
    WHERE trial = ? AND kind GLOB 'tensor:*' GROUP BY kind ORDER BY kind]], { id })
end

-- Returns the tensor in the file at path, which a row {path=, sha256=} describes.
function logged_tensors.open(path, name, row)
  if not trial_files.intact(path, row.sha256) then
    errors.raise(errors.STORAGE, "%s is missing or damaged; `toeplab fsck --repair` drops its row",
      path)
  end
  local file <close> = core.h5_open(path)
  return file:read(name)
end

-- Returns the tensor of a row that logged_tensors.rows returned.
function logged_tensors.read(store, row)
  return logged_tensors.open(trial_files.path(store.folder, row.trial, row), row.name, row)
end

-- Returns a string with the type, the shape and the sha256 of the elements of a row's tensor.
function logged_tensors.digest(store, row)
  local tensor <close> = logged_tensors.read(store, row)
  return ("%s [%s] %s"):format(tensor:type(), table.concat(tensor:shape(), ","),
    core.sha256(tensor))
end

-- Returns the steps of a trial's tensor, and all its values as one tensor [steps, ...].
function logged_tensors.series(store, id, name)
  local steps, list = {}, {}
  for i, row in ipairs(logged_tensors.rows(store, id, name)) do
    local tensor = logged_tensors.read(store, row)
    steps[i], list[i] = row.step, tensor:reshape(1, table.unpack(tensor:shape()))
  end
  return steps, core.concat(list, 1)
end

return logged_tensors
