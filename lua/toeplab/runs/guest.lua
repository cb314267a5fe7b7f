-- runs/guest.lua: takes the place of the store's records (store/records.lua) in a run while another
-- run holds the store of the folder. The guest asks the holder for the rows of its sweep
-- (store/requests.lua), claims its trials (claimed.lua), and reads the store like any verb. The
-- holder copies what the guest's trials log, and whoever opens the store next if it has ended.
local array_run = require "toeplab.runs.array_run"
local claimed = require "toeplab.runs.claimed"
local claims = require "toeplab.store.claims"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local guests = require "toeplab.store.guests"
local launch = require "toeplab.runs.launch"
local prepared = require "toeplab.runs.prepared"
local records = require "toeplab.store.records"
local requests = require "toeplab.store.requests"
local rules = require "toeplab.trials.overrides"
local slurm = require "toeplab.runs.slurm"
local slurm_queue = require "toeplab.runs.slurm_queue"

local guest = {}

-- For a verb that holds the store for a moment: a run that can be a guest, and one that cannot.
local OPEN_SECONDS, ALONE_SECONDS = 1, 5
local SILENT_SECONDS = 10 -- that a guest waits for another run to copy its results without a word
local PAUSE_SECONDS = 0.1

local Guest = {}

Guest.__index = Guest

-- Returns why a run cannot be a guest; nil if it can.
local function problem(exp, overrides, options)
  if options.redo then return "--redo needs the folder for itself" end
  if options.adopt then return "--adopt needs the folder for itself" end
  if options.only then return "single trials are run again in a folder without a run" end
  if launch.ours() then return "ranks need the folder for themselves" end
  if exp.prune then return "prune compares trials while they run, which needs the folder alone" end
  if exp.budget and exp.budget.total then return "budget.total needs the folder for itself" end
  if rules.apply(exp, overrides).rule then return 'seeds = "until ..." needs the folder alone' end
end

-- Opens the store in folder for the run of an experiment: for writing or, while another run holds
-- it, as its guest.
function guest.open(folder, exp, overrides, options)
  local since, store, locked = core.sys.clock(), nil, nil
  local why = problem(exp, overrides, options)
  repeat
    store, locked = records.try_open(folder, "w")
    if store then return store end
    core.sys.sleep(PAUSE_SECONDS)
    errors.check_signals()
  until core.sys.clock() - since > (why and ALONE_SECONDS or OPEN_SECONDS)
  if why then errors.raise(errors.LOCKED, "%s; %s", locked.message, why) end
  return setmetatable({ exp = exp, folder = folder, store = records.open(folder, "r"),
    locked = locked.message, shard = options.shard }, Guest)
end

-- ---- What the run asks and records -------------------------------------------------------------

for _, name in ipairs { "status", "finished", "rows", "each", "config", "decode" } do
  Guest[name] = function(self, ...) return self.store[name](self.store, ...) end
end

for _, name in ipairs { "begin", "check", "take", "outcome", "finish", "end_journal",
  "check_code" } do
  Guest[name] = function(self, ...) return self.claimed[name](self.claimed, ...) end
end

-- Takes the place of Records:sweep; enlist sends the description itself.
function Guest:sweep(sweep) return sweep end

-- Raises if array jobs run or will run trials of rows that this run would run.
local function check_jobs(self, rows)
  local open, silent = slurm.open(self.folder)
  local list = {}
  for _, row in ipairs(rows) do
    local finished = prepared.is_finished(self.exp, (self.store:status(row.id)))
    if row.ours and not finished then list[#list + 1] = row end
  end
  array_run.check_jobs({ open = open or slurm_queue.submissions(self.folder), silent = silent },
    list)
end

-- Has the holder of the store insert the rows of the sweep and of its trials. If the holder ends
-- before that, another command may submit these trials to Slurm first, so jobs are looked for once
-- more; a command that submits them later finds this run among the guests.
function Guest:enlist(sweep, rows)
  for i, row in ipairs(rows) do row.ours = prepared.is_ours(i, self.shard) end
  check_jobs(self, rows)
  local done = requests.perform(self.folder, "enlist", { host = core.sys.hostname(),
    pid = core.sys.getpid(), sweep = sweep, trials = rows })
  if done.taken then errors.raise(errors.LOCKED, "%s; %s", self.locked, done.taken) end
  check_jobs(self, rows)
end

-- Prepares the claims of the trials of list, whose rows are there.
function Guest:prepare(list)
  claims.make(self.folder)
  for _, t in ipairs(list) do
    local row, artifacts = self.store:resumable(t.id)
    t.code, t.attempt, t.step, t.seconds = t.code_hash, row.attempt, row.step, row.seconds
    t.artifacts, t.open = artifacts, row.open == 1
  end
  self.list = list
  self.claimed = claimed.new(self.folder, list, { job = claims.GUEST, task = 0, restarts = 0 })
end

-- ---- The end -----------------------------------------------------------------------------------

-- Returns whether the store holds all that the trials have logged.
local function is_stored(self)
  for _, t in ipairs(self.list) do
    local held = self.claimed.held[t.id]
    if held and not guests.is_stored(self.store, t.id, held.attempt) then return false end
  end
  return true
end

-- Waits until the store holds the results: the other run copies them, or this one if that has
-- ended.
function Guest:settle(warn)
  local since, said = core.sys.clock(), false
  while not is_stored(self) do
    local store <close>, locked = records.try_open(self.folder, "w")
    if store then slurm.refresh(store, warn) end
    if locked and not said and core.sys.clock() - since > SILENT_SECONDS then
      warn("the results wait for the run that holds the store: %s", locked.message)
      said = true
    end
    core.sys.sleep(PAUSE_SECONDS)
    errors.check_signals()
  end
end

function Guest:close()
  guests.leave(self.folder)
  self.store:close()
end

Guest.__close = Guest.close

-- Whether value is an open store of this file.
function guest.is(value) return getmetatable(value) == Guest end

return guest
