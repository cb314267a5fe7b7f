-- live/curves.lua: reads the curves of trials for a display that is redrawn: each again only once
-- the trial has logged more and, since a curve of a million steps takes a second, only after some
-- twenty times as long as reading it took.
local core = require "toeplab.core"
local logged = require "toeplab.store.logged"

local curves = {}

local Curves = {}
Curves.__index = Curves

local REST = 20 -- between two readings, in times of what one takes

function curves.new() return setmetatable({ known = {} }, Curves) end

-- Returns the curve of metric `name` of trial id in about `count` points: {steps=, values=}, and
-- another table once it has been read again. newest: the newest value of the metric, {index=,
-- value= (nil for NaN), step= (of training)}, which tells whether the trial has logged more.
function Curves:get(store, id, name, count, newest)
  local key = ("%s %d %s"):format(id, count, name)
  local last = ("%s %s %s"):format(newest.index, newest.value, newest.step)
  local curve, began = self.known[key], core.sys.clock()
  if curve and (curve.last == last or began < curve.due) then return curve end
  local steps, values = logged.thinned(store, id, name, count)
  local now = core.sys.clock()
  curve = { steps = steps, values = values, last = last, due = now + REST * (now - began) }
  self.known[key] = curve
  return curve
end

return curves
