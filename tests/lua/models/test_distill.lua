-- test_distill.lua: kernels by few modes: exact where they have no more, else within the bound.
local t = require "harness"
local tl = require "toeplab"
local converted = require "toeplab.models.files.converted"
local distill = require "toeplab.models.distill"
local recurrent = require "toeplab.models.recurrent"

local LAGS, DIM = 120, 3

-- A kernel whose channels have 1, 3 and 2 modes.
local function of_modes()
  local rows = {}
  for n = 0, LAGS - 1 do
    rows[n + 1] = { 0.8 ^ n, 0.85 ^ n * math.cos(0.5 * n) + 0.5 * 0.8 ^ n,
      0.87 ^ n - 0.7 * 0.5 ^ n }
  end
  return tl.tensor(rows)
end

-- A kernel that has as many modes as lags.
local function random()
  local k = tl.stream(1, "k"):normal(tl.zeros(LAGS, DIM), 0, 1)
  return tl.decay(k, tl.range(0, LAGS - 1), tl.tensor { 0.9 })
end

local function response(system, count)
  local x = tl.zeros(1, count, DIM)
  x:view(0, { DIM }):fill(1)
  return distill.recurrence(system, LAGS):step(x):reshape(count, DIM)
end

-- The largest error of each channel at any frequency, over its largest gain.
local function errors_of(k, system)
  local long = tl.concat({ k, tl.zeros(3 * LAGS, DIM) }, 1)
  local off, list = distill.gains(response(system, 4 * LAGS) - long), {}
  for i, gain in ipairs(distill.gains(k)) do list[i] = off[i] / gain end
  return list
end

t.test("a kernel of few modes needs no more", function()
  local k = of_modes()
  for _, form in ipairs(distill.forms) do
    local one = errors_of(k, (distill.system(k, 1, form)))
    t.ok(one[1] < 1e-5 and one[2] > 1e-2 and one[3] > 1e-3)
    for _, modes in ipairs { 3, 8 } do
      for i, off in ipairs(errors_of(k, (distill.system(k, modes, form)))) do
        t.ok(off < 1e-5, ("%s, %d modes, channel %d: %g"):format(form, modes, i, off))
      end
    end
  end
end)

t.test("balanced truncation keeps its bound, and least squares has the smaller squared error",
  function()
    local k = random()
    local gains, before = distill.gains(k), math.huge
    for _, modes in ipairs { 1, 2, 4, 8, 16, 32 } do
      local system, bounds = distill.system(k, modes, "balanced")
      local sum = 0.0
      for i, off in ipairs(errors_of(k, system)) do
        t.ok(off <= bounds[i] / gains[i] * 1.0001 + 1e-5, off)
        sum = sum + bounds[i]
      end
      t.ok(sum < before, "a mode more lowers the bound")
      before = sum
      local fitted, none = distill.system(k, modes, "fitted")
      t.eq(none, nil)
      local function squares(s) return tl.square(response(s, LAGS) - k):sum():item() end
      t.ok(squares(fitted) <= squares(system) * 1.0001, "squares")
    end
  end)

t.test("steps: one by one, several at once, several sequences, again after a reset", function()
  local r = distill.recurrence(distill.system(of_modes(), 4, "balanced"), LAGS, 2)
  local ring = tl.recurrence(of_modes(), nil, "ring", 2)
  local x = tl.stream(2, "x"):normal(tl.zeros(2, 40, DIM), 0, 1)
  local want = ring:step(x)
  t.eq(r:step(x), want, 1e-4)
  r:reset()
  for i = 1, 40 do
    t.eq(r:step(x:narrow(2, i, 1):reshape(2, DIM)), want:narrow(2, i, 1):reshape(2, DIM), 1e-4)
  end
  local sizes = r:sizes()
  t.eq({ sizes.modes, sizes.state_bytes }, { 4, 2 * 4 * DIM * 4 })
end)

t.test("a file holds the systems of a model", function()
  t.in_folder(function(folder)
    local path = folder .. "/m.h5"
    tl.seed(3)
    local model = tl.models.tnn_lm { vocab = 11, layers = 2, dim = 8, rpe_dim = 6,
      rpe_layers = 1 }:eval()
    local session = recurrent.session(model, function(tno, name)
      local k, gamma = recurrent.kernel(tno, 20, name)
      k = tl.decay(k, tl.range(0, 19), gamma)
      return distill.recurrence(distill.system(k, 5, "balanced"), 20)
    end)
    local ids = tl.ids { { 1, 5, 9, 2, 7, 3 } }
    converted.write(path, session, { trial = "feed", step = 7, kind = "best" }, "balanced", 20)
    local opened, _, about = converted.open(path)
    t.eq({ about.form, about.lags }, { "balanced", 20 })
    t.eq(opened:hidden(ids), session:hidden(ids))
    t.eq(opened:sizes().state, 2 * 5 * 24 * 4)
  end)
end)

t.test("a kernel without values, and invalid numbers of modes", function()
  t.eq(response(distill.system(tl.zeros(9, DIM), 2, "balanced"), 9), tl.zeros(9, DIM))
  t.eq(response(distill.system(tl.zeros(9, DIM), 2, "fitted"), 9), tl.zeros(9, DIM))
  t.raises(distill.system, "9 modes are not fewer than the kernel's 9 lags", tl.zeros(9, 1), 9,
    "balanced")
  t.raises(distill.system, "the kernel has 2 lags, and at least 3", tl.zeros(2, 1), 1, "balanced")
end)

t.done()
