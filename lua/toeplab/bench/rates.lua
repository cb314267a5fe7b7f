-- bench/rates.lua: the rates of the machine, from which the time of trials is estimated that
-- resemble no finished trial (workload.rates).
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local measure = require "toeplab.bench.measure"
local workload = require "toeplab.runs.workload"

local rates = {}

-- Returns the newest limits of a GPU that toeplab bench stored in the results folder, or nil.
local function stored(store)
  local row = store and store:rows([[SELECT json_extract(provenance, '$.limits') AS limits
    FROM v_trials WHERE experiment LIKE 'bench-%' AND status = 'done'
    AND json_extract(provenance, '$.device') IS NOT NULL
    AND json_extract(provenance, '$.limits') IS NOT NULL ORDER BY finished DESC LIMIT 1]])[1]
  return row and json.decode(row.limits)
end

-- Measures the limits of a device with `threads` threads, in about a second; nil if it is missing
-- or cannot be measured now.
local function measured(device, threads)
  if device ~= "cpu" and not core.look_at_device(device) then return nil end
  local ok, limits = pcall(measure.limits, threads, { quick = true, precisions = {},
    device = device })
  return ok and limits or nil
end

-- Returns a function (device, precision) -> the rates for a worker with `threads` threads, or nil.
-- A GPU's rates are the last that toeplab bench stored; otherwise, as for the processor, they are
-- measured at the first call.
function rates.of(store, threads)
  local known = {}
  return function(device, precision)
    if known[device] == nil then
      known[device] = device ~= "cpu" and stored(store) or measured(device, threads) or false
    end
    return known[device] and workload.rates(device, precision, known[device]) or nil
  end
end

return rates
