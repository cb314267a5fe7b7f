-- proposition1.lua: is the relative position encoder with ReLU piecewise linear, as Proposition 1
-- of "SKI to go Faster" says, with a norm inside and without one?
--
-- The second differences of a piecewise linear function are 0 except across a kink, which is where
-- a unit of the network becomes active or inactive. So second differences are taken only where no
-- unit changes. A norm divides by a length that depends on the input, so with it the pieces are
-- curved.
local tl = require "toeplab"

-- Returns RPE(points), and for each point a string that encodes which units are active.
local function rpe_active(rpe, points)
  local relu, x, active = tl.nn.act.relu, rpe.input(points:reshape(-1, 1)), {}
  local blocks = {}
  for _, layer in rpe.layers:each() do blocks[#blocks + 1] = layer end
  blocks[#blocks + 1] = rpe.output
  for i = 1, points:dim(1) do active[i] = {} end
  for _, block in ipairs(blocks) do
    local before = block.norm(x)
    for i, units in ipairs(before:totable()) do
      for _, v in ipairs(units) do active[i][#active[i] + 1] = v > 0 and "1" or "0" end
    end
    x = block.linear(relu(before))
  end
  for i, units in ipairs(active) do active[i] = table.concat(units) end
  return x:totable(), active
end

-- Returns the greatest second difference over the channels of y at points i-1, i, i+1.
local function bend(y, i)
  local most = 0.0
  for c = 1, #y[i] do most = math.max(most, math.abs(y[i - 1][c] - 2 * y[i][c] + y[i + 1][c])) end
  return most
end

local function largest(y)
  local most = 0.0
  for _, row in ipairs(y) do
    for _, v in ipairs(row) do most = math.max(most, math.abs(v)) end
  end
  return most
end

local norms = { "none", "simplermsnorm", "layernorm" }

local function values_of(trials, norm, metric)
  local values = {}
  for _, t in ipairs(trials) do
    if t.config.norm == norm then values[#values + 1] = t.metrics[metric] end
  end
  return values
end

-- Returns the curve of a metric over the points of the first trial with this norm.
local function curve(trials, norm, metric, number)
  for _, t in ipairs(trials) do
    if t.config.norm == norm then
      local at, y = t:series(metric)
      local c, x, all, known = t.config, {}, {}, {}
      for i, index in ipairs(at) do known[index] = y[i] end
      for i = 1, c.points do
        x[i], all[i] = -c.reach + 2 * c.reach * (i - 1) / (c.points - 1), known[i] or 0 / 0
      end
      return { name = norm, x = x, y = all, colour = number }
    end
  end
end

local function picture(trials)
  local values, bends = {}, {}
  for i, norm in ipairs(norms) do
    values[#values + 1] = curve(trials, norm, "value", i)
    bends[#bends + 1] = curve(trials, norm, "curvature at", i)
  end
  for _, s in ipairs(bends) do s.style = "points" end
  return { panels = {
    { title = "One channel of the encoder", xlabel = "relative position t", ylabel = "RPE(t)",
      key = "below", series = values },
    { title = "Its curvature, where no unit changes", xlabel = "relative position t", logy = true,
      ylabel = "|second difference| / step^2 / max |RPE|", key = "below", series = bends },
  } }
end

return tl.experiment "proposition1" {
  label = { step = "point" },
  fixed = {
    layers = 3, hidden = 64, channels = 16,
    reach = 10.0, points = 321,    -- positions -reach .. reach
  },
  grid = { norm = norms },
  check = function(c)
    if c.points < 3 or not (c.reach > 0) then
      error("points must be at least 3, and reach above 0", 0)
    end
  end,
  seeds = 10,
  scale = { smoke = { hidden = 32, channels = 8 } },

  trial = function(t, c)
    local rpe = tl.nn.RPE(c.channels, { hidden = c.hidden, layers = c.layers, norm = c.norm })
    local step = 2 * c.reach / (c.points - 1)
    local x = {}
    for i = 1, c.points do x[i] = -c.reach + step * (i - 1) end
    local y, active = tl.no_grad(rpe_active, rpe, tl.tensor(x))
    local size, most, free, curved = largest(y), 0.0, 0, 0
    local noise = 4 * 2.0 ^ -24 / step ^ 2 -- of a second difference of rounded values
    for i = 1, c.points do t:log({ value = y[i][1] }, i) end
    for i = 2, c.points - 1 do
      if active[i - 1] == active[i] and active[i + 1] == active[i] then
        local curvature = bend(y, i) / size / step ^ 2
        t:log({ ["curvature at"] = curvature }, i)
        free, most = free + 1, math.max(most, curvature)
        if curvature > 100 * noise then curved = curved + 1 end
      end
    end
    t:log { positions = free, curvature = most, curved = curved / math.max(free, 1),
      rounding = noise }
  end,

  report = function(trials, report)
    local rows = {}
    for _, norm in ipairs(norms) do
      local row = { norm }
      for _, metric in ipairs { "positions", "curvature", "curved", "rounding" } do
        row[#row + 1] = report.mean(values_of(trials, norm, metric))
      end
      if row[2] then rows[#rows + 1] = row end
    end
    report.table({ "norm", "positions without a kink", "greatest curvature there",
      "share above 100 times rounding", "rounding" }, rows)
    report.plot(picture(trials))
  end,
}
