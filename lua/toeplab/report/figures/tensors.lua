-- report/figures/tensors.lua: draws the tensors that a trial has logged: a vector over the steps as
-- colours or, at chosen steps, as lines; a matrix at chosen steps.
--
--   plot.svg(path, { panels = tensors.panels(store, id, "kernel", { steps = { 100 } }) })
--
-- options: steps (numbers; without them a vector is drawn over all, a matrix at the last), log (of
-- the values, by magnitude), logx (of lines), title (what the panels' titles begin with).
local errors = require "toeplab.base.errors"
local kept_tensors = require "toeplab.store.logged_tensors"

local tensors = {}

local MOST = 400 -- rows and columns of colours; longer axes are thinned to every second, third, ...
local TICKS = 6

-- ---- Data ---------------------------------------------------------------------------------------

-- Returns the positions to draw of n, from the first on.
local function spaced(n)
  local list, every = {}, (n + MOST - 1) // MOST
  for i = 1, n, every do list[#list + 1] = i end
  return list, every
end

-- Returns names for some positions of an axis: position -> its label.
local function ticks(labels)
  local names, every = {}, (#labels + TICKS - 1) // TICKS
  for i = 1, #labels, every do names[i] = tostring(labels[i]) end
  return names
end

-- Returns the shape of a tensor without axes of size 1.
local function shape_of(tensor)
  local shape = {}
  for _, size in ipairs(tensor:shape()) do
    if size > 1 then shape[#shape + 1] = size end
  end
  return shape
end

-- Returns the rows of the chosen steps; nil for no choice.
local function at_steps(rows, steps, name)
  if not steps then return nil end
  local list, by_step = {}, {}
  for _, row in ipairs(rows) do by_step[row.step] = row end
  for i, step in ipairs(steps) do
    local nearest
    for _, row in ipairs(rows) do
      if not nearest or math.abs(row.step - step) < math.abs(nearest.step - step) then
        nearest = row
      end
    end
    list[i] = by_step[step] or errors.usage("plot: '%s' was not logged at step %d: it has %d steps "
      .. "from %d to %d, of which %d is the nearest", name, step, #rows, rows[1].step,
      rows[#rows].step, nearest.step)
  end
  return list
end

-- Returns the values of a list at the positions, as magnitudes if log.
local function picked(values, positions, log)
  local list = {}
  for i, p in ipairs(positions) do list[i] = log and math.abs(values[p]) or values[p] end
  return list
end

local function axis(what, every)
  return every > 1 and ("%s (1 in %d)"):format(what, every) or what
end

-- ---- Panels -------------------------------------------------------------------------------------

-- A vector over the steps: a row for each step.
local function over_steps(store, rows, length, o)
  local columns, every = spaced(length)
  local matrix, steps = {}, {}
  local drawn, each = spaced(#rows)
  for i, r in ipairs(drawn) do
    local values = kept_tensors.read(store, rows[r]):reshape(length):totable()
    matrix[i], steps[i] = picked(values, columns, o.log), rows[r].step
  end
  return { matrix = matrix, xnames = ticks(columns), ynames = ticks(steps), logz = o.log,
    xlabel = axis("element", every), ylabel = axis("step", each) }
end

-- A vector at some steps: a line each.
local function lines(store, rows, length, o)
  local series, columns = {}, {}
  for i = 1, length do columns[i] = i end
  for i, row in ipairs(rows) do
    local values = kept_tensors.read(store, row):reshape(length):totable()
    series[i] = { name = "step " .. row.step, x = columns, y = picked(values, columns, o.log) }
  end
  return { series = series, xlabel = "element", logx = o.logx, logy = o.log,
    key = #series > 1 and "outside" or "none" }
end

-- A matrix at one step.
local function matrix(store, row, shape, o)
  local values = kept_tensors.read(store, row):reshape(shape[1], shape[2]):totable()
  local down, each = spaced(shape[1])
  local across, every = spaced(shape[2])
  local cells = {}
  for i, r in ipairs(down) do cells[i] = picked(values[r], across, o.log) end
  return { matrix = cells, xnames = ticks(across), ynames = ticks(down), logz = o.log,
    xlabel = axis("column", every), ylabel = axis("row", each), title = ", step " .. row.step }
end

-- Returns the panels of a tensor of trial id.
function tensors.panels(store, id, name, o)
  local rows, list = kept_tensors.rows(store, id, name), nil
  local chosen = at_steps(rows, o.steps, name)
  local first = kept_tensors.read(store, rows[1])
  local shape = shape_of(first)
  if #shape == 1 then
    list = { chosen and lines(store, chosen, shape[1], o) or over_steps(store, rows, shape[1], o) }
  elseif #shape == 2 then
    list = {}
    for i, row in ipairs(chosen or { rows[#rows] }) do list[i] = matrix(store, row, shape, o) end
  else
    errors.usage("plot: '%s' has the shape [%s]: only vectors and matrices can be drawn; log a "
      .. "part, or toeplab export --tensors", name, table.concat(first:shape(), ","))
  end
  for _, panel in ipairs(list) do
    local shown = o.log and "|" .. name .. "|" or name
    panel[panel.matrix and "zlabel" or "ylabel"] = shown
    panel.title = (o.title and o.title .. ", " or "") .. name .. (panel.title or "")
  end
  return list
end

return tensors
