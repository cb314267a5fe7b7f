-- live/tensorboard.lua: writes TensorBoard's event files about trials, a folder for each:
--   DIR/EXPERIMENT/LABEL-ID/events.out.tfevents.TIME.HOST.PID.N
--
-- A run passes on the lines that it reads from journals (coordinator.lua, run.follow). Each attempt
-- at a trial writes a new file, which begins with the trial's stored values. TensorBoard reads the
-- files of a folder in the order of their names, and the record `restart` makes it discard the
-- earlier ones, so a file that a killed run left half-written does no harm.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local metrics = require "toeplab.store.metrics"
local modules = require "toeplab.live.modules"
local config = require "toeplab.base.config"
local secrets = require "toeplab.base.secrets"

local tensorboard = {}

local Follower = {}
Follower.__index = Follower

local LONGEST = 120 -- bytes of a label in the name of a folder
local PATTERN = "^events%.out%.tfevents%."

-- Prepares to write below folder; raises a usage error if the build cannot.
function tensorboard.new(folder)
  if folder == "" then errors.usage("--tensorboard: the name of the folder is empty") end
  return setmetatable({ folder = folder, module = modules.load "tensorboard", open = {},
    count = 0 }, Follower)
end

-- ---- Files ------------------------------------------------------------------------------------

local function plain(text) return (text:gsub("[^%w_=.,+-]+", "_"):gsub("^%.", "_")) end

-- Returns the folder of a trial. An existing folder keeps its name, since the label names the keys
-- that vary, which differ from command to command.
local function folder_of(self, experiment, t)
  local above, ending = self.folder .. "/" .. plain(experiment), "-" .. t.id:sub(1, 8)
  for _, name in ipairs(core.sys.list(above) or {}) do
    if name:sub(-#ending) == ending then return above .. "/" .. name end
  end
  return above .. "/" .. plain(t.label):sub(1, LONGEST) .. ending
end

-- Returns the names of the event files in a folder.
local function files_in(folder)
  local list = {}
  for _, name in ipairs(core.sys.list(folder) or {}) do
    if name:find(PATTERN) then list[#list + 1] = name end
  end
  return list
end

-- Returns ok, or raises the reason of a failure. The io library returns only its errno, functions
-- of core.sys a status too.
local function check(ok, why, number, status)
  if ok then return ok end
  errors.raise(errors.code_of(status or errors.status_of(number)), "TensorBoard's files: %s", why)
end

-- Opens a new event file in the folder of a trial, whose name sorts after the existing ones.
local function new_file(self, folder, others)
  check(core.sys.mkdir(folder))
  local time = math.floor(core.sys.now())
  local newest = others[#others] and tonumber(others[#others]:match(PATTERN .. "(%d+)"))
  if newest and newest >= time then time = newest + 1 end -- the clock was set back
  self.count = self.count + 1
  local path = ("%s/events.out.tfevents.%010d.%s.%d.%d"):format(folder, time, core.sys.hostname(),
    core.sys.getpid(), self.count)
  local file = check(io.open(path, "wb"))
  file:setvbuf "full"
  check(file:write(self.module.version(core.sys.now())))
  return file, path
end

-- Returns names and values of hyperparameters as one list. Tables and other values become text.
local function hyperparameters(values, keys)
  local list = {}
  for _, key in ipairs(keys) do
    local value = values[key]
    local kind = type(value)
    if value ~= nil then
      local simple = kind == "boolean" or kind == "number" and value - value == 0
      list[#list + 1] = key
      list[#list + 1] = simple and value or core.sys.clean(config.show(value))
    end
  end
  return list
end

-- Writes the stored values of a trial. Writes a metric with an index of its own, such as a lag, at
-- the end, since it is logged repeatedly. Returns the values of such metrics: name -> index ->
-- value.
local function write_history(self, file, store, id)
  local indexed, now = {}, core.sys.now()
  metrics.each(store, id, function(m)
    local value = m.value or 0 / 0
    if m.indexed == 1 then
      indexed[m.name] = indexed[m.name] or {}
      indexed[m.name][m.step] = value
    else
      check(file:write(self.module.scalars(now, m.step, { m.name, value })))
    end
  end)
  return indexed
end

-- Begins a file about trial t ({id=, label=, config=}), and returns {file=, path=, indexed=,
-- others= (the names of older files in its folder), folder=}. continues: the file replaces older
-- ones.
local function begin(self, store, experiment, t, keys, continues)
  local folder = folder_of(self, experiment, t)
  local others = files_in(folder)
  local file, path = new_file(self, folder, others)
  local names = table.move(keys, 1, #keys, 1, {})
  names[#names + 1] = "seed"
  local now = core.sys.now()
  check(file:write(self.module.begin(now, hyperparameters(secrets.config(t.config), names))))
  if continues and #others > 0 then check(file:write(self.module.restart(now, 0))) end
  local w = { file = file, path = path, folder = folder, others = others }
  w.indexed = write_history(self, file, store, t.id)
  check(file:flush())
  return w
end

local good = { done = true, pruned = true }
local over = { failed = true, timeout = true, budget = true, guard = true }

-- Ends the file w. A trial that was interrupted continues later, in another file.
local function finish(self, w, status)
  local now = core.sys.now()
  for name, values in pairs(w.indexed) do
    local steps = {}
    for step in pairs(values) do steps[#steps + 1] = step end
    table.sort(steps)
    for _, step in ipairs(steps) do
      check(w.file:write(self.module.scalars(now, step, { name, values[step] })))
    end
  end
  if good[status] or over[status] then
    check(w.file:write(self.module.finish(now, good[status])))
  end
  check(w.file:close())
end

-- ---- During a run -------------------------------------------------------------------

-- Calls fn unless writing has failed before. A failure is a warning, since a full disk must not end
-- the run.
local function try(self, fn)
  if self.broken then return end
  local ok, why = pcall(fn)
  if ok then return end
  self.broken = true
  errors.say("warning: no more files for TensorBoard in %s: %s", self.folder, errors.text(why))
end

-- Opens the file of trial t, which begins or continues.
function Follower:began(run, t)
  try(self, function()
    self.open[t.id] = begin(self, run.records, run.exp.name, t, run.axes, true)
  end)
end

-- Handlers of the lines of a journal (store/journal.lua).
local lines = {}

function lines.metric(self, w, step, name, value, at)
  if at then
    w.indexed[name] = w.indexed[name] or {}
    w.indexed[name][step] = value
  else
    check(w.file:write(self.module.scalars(core.sys.now(), step, { name, value })))
  end
end

-- The trial resumes from a checkpoint at this step.
function lines.forget(self, w, step)
  check(w.file:write(self.module.restart(core.sys.now(), step + 1)))
end

-- Writes lines of trial t's journal, which the store has already copied.
function Follower:read(t, list)
  local w = self.open[t.id]
  if not w then return end
  try(self, function()
    for _, line in ipairs(list) do
      local act = lines[line[1]]
      if act then act(self, w, table.unpack(line, 2, line.n)) end
    end
    check(w.file:flush())
  end)
end

function Follower:ended(t, status)
  local w = self.open[t.id]
  if not w then return end
  self.open[t.id] = nil
  try(self, function() finish(self, w, status) end)
end

-- ---- From the store ---------------------------------------------------------------------------

-- Writes the file of a stored trial: its row of v_trials, and the keys that were swept. Older files
-- in its folder are removed unless the trial is running. Returns the path of the file.
function Follower:write(store, row, keys)
  local t = { id = row.id, config = store:config(row.config),
    label = store:object(row.provenance).label or row.experiment }
  local w = begin(self, store, row.experiment, t, keys, row.status == "running")
  finish(self, w, row.status)
  for _, name in ipairs(row.status == "running" and {} or w.others) do
    core.sys.remove(w.folder .. "/" .. name)
  end
  return w.path
end

return tensorboard
