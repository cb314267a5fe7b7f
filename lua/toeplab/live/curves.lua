-- live/curves.lua: caches the curves of trials for a display that is redrawn. A curve is read again
-- only if the trial has logged more and, since reading a million steps takes a second, only after
-- REST times the time that reading it took.
local core = require "toeplab.core"
local metrics = require "toeplab.store.metrics"

local curves = {}

local Curves = {}
Curves.__index = Curves

local REST = 20 -- between two readings, in units of a reading's time

function curves.new() return setmetatable({ known = {} }, Curves) end
-- Returns the curve of metric `name` of trial id in about `count` points: {steps=, values=}; a new
-- table after it has been read again. newest: the newest value of the metric, {index=, value= (nil
-- for NaN), step= (of training)}, from which it sees whether the trial has logged more.
function Curves:get(store, id, name, count, newest)
  local key = ("%s %d %s"):format(id, count, name)
  local last = ("%s %s %s"):format(newest.index, newest.value, newest.step)
  local curve, began = self.known[key], core.sys.clock()
  if curve and (curve.last == last or began < curve.due) then return curve end
  local steps, values = metrics.thinned(store, id, name, count)
  local now = core.sys.clock()
  curve = { steps = steps, values = values, last = last, due = now + REST * (now - began) }
  self.known[key] = curve
  return curve
end

return curves
