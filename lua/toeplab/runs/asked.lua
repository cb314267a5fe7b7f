-- runs/asked.lua: what other processes want of a run at work, if it holds the store: changes of
-- trials (store/requests.lua), and that the results of its guests are copied (store/guests.lua).
local errors = require "toeplab.base.errors"
local guests = require "toeplab.store.guests"
local launch = require "toeplab.runs.launch"
local records = require "toeplab.store.records"
local requests = require "toeplab.store.requests"

local asked = {}

local GUEST_SECONDS = 1 -- between two copies of what guests have logged

-- Returns why trials must not be removed: their ids -> what the run does with them.
local function needs(pool)
  local set = {}
  for _, t in ipairs(pool.run.chosen and pool.run.trials or {}) do set[t.id] = "is compared by" end
  for _, t in ipairs(pool.queue) do set[t.id] = "waits in" end
  return set
end

-- Asks the running trial of that id to save and stop. Returns why that cannot be; nil if it can.
local function stop(pool, id)
  if pool.pruner or launch.ours() then return "only its whole run can be (Ctrl-C there)" end
  for _, w in ipairs(pool.workers) do
    if w.trial and w.trial.id == id then
      w.stopped, w.closed = true, true -- the worker ends after this trial
      return w:ask_to_stop("TERM")
    end
  end
  return guests.taken(pool.run.folder, { id }) or "the run at work does not run it now"
end

-- Serves the others, between two turns of the coordinator whose pool of workers is given.
function asked.serve(pool, now)
  local store = pool.run.records
  if not records.is(store) then return end
  requests.serve(store, function()
    return { needs = needs(pool), stop = function(id) return stop(pool, id) end }
  end)
  if now - (pool.looked or -math.huge) < GUEST_SECONDS then return end
  pool.looked = now
  local function warn(...) pool.run.progress:warn(...) end
  local ok, why = pcall(guests.take_over, store, warn)
  if ok or pool.said then return end
  pool.said = true -- what is wrong with another run must not end this one
  warn("what another run has logged cannot be copied: %s", errors.text(why))
end

return asked
