-- kernels.lua: tests of layers that are convolutions: what every such layer has to pass, and the
-- comparison of its convolution with a kernel that the test computes.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"

local test, eq, ok = t.test, t.eq, t.ok

local kernels = {}

function kernels.random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

function kernels.largest(x) return core.abs(x:reshape(-1)):amax():item() end

local random, largest = kernels.random, kernels.largest

-- Applies the rows K[l][c], and of lags -1, -2, ... those of later, to x [1,n,d].
local function convolve(x, k, later, skip)
  local xs, y = x:totable()[1], {}
  for i = 1, #xs do
    y[i] = {}
    for c = 1, #xs[1] do
      local sum = skip[c] * xs[i][c]
      for l = 0, i - 1 do sum = sum + k[l + 1][c] * xs[i - l][c] end
      for l = 0, later and #xs - i - 1 or -1 do sum = sum + later[l + 1][c] * xs[i + 1 + l][c] end
      y[i][c] = sum
    end
  end
  return y
end

kernels.convolve = convolve

-- Compares the convolution of a layer with rows made by kernel(channel, direction, l).
function kernels.compare(mixer, n, kernel)
  local d, k = mixer.kernel.opt.dim, { {}, {} }
  local x = random(1, n, d)
  local directions = mixer.opt.causal and 1 or 2
  for direction = 1, directions do
    for l = 0, n - 1 do
      k[direction][l + 1] = {}
      for c = 1, d do k[direction][l + 1][c] = kernel(c, direction, l) end
    end
  end
  local want = convolve(x, k[1], directions == 2 and k[2], mixer.kernel.skip:totable()[1])
  local y = core.no_grad(mixer.tno.forward, mixer.tno, x)
  local scale = largest(y)
  eq(y:totable()[1], want, 1e-5 * scale + 0.0)
end

local function each(all, fn)
  for _, entry in ipairs(all) do
    tl.seed(1)
    local words = { entry[1] }
    for name, value in pairs(entry[2]) do words[#words + 1] = name .. "=" .. tostring(value) end
    fn(mixers.class(entry[1])(4, entry[2]), table.concat(words, " "))
    core.tape_clear()
  end
end

-- Declares the tests of all mixers, a list of {name, options}; they take 40 tokens and fewer.
function kernels.tests(all)
  test("gradients agree with differences", function()
    each(all, function(mixer, name)
      local x = random(2, 5, 4):require_grad()
      mixer(x) -- S4 takes its length from the first call
      if name:find "hyena" then mixer.kernel.freq:fill(1) end -- three sines of 10 v are too steep
      core.tape_clear()
      local tensors = mixer:parameters()
      tensors[#tensors + 1] = { name = "x", tensor = x }
      local worst = tl.gradcheck(function() return mixer(x) end, tensors, { most = 6 })
      ok(worst < 2e-2, ("%s: %g"):format(name, worst))
    end)
  end)

  test("every length is taken, and causal ones see no later token", function()
    each(all, function(mixer, name)
      for _, n in ipairs { 33, 1, 2, 3, 16, 40 } do
        local x = random(2, n, 4)
        local y = core.no_grad(mixer.forward, mixer, x)
        eq(y:shape(), { 2, n, 4 })
        local seen = n // 2
        if mixer.opt.causal and seen > 0 then
          local other = core.concat({ x:narrow(2, 1, seen), random(2, n - seen, 4) }, 2)
          local z = core.no_grad(mixer.forward, mixer, other)
          local leak = largest((y - z):narrow(2, 1, seen))
          ok(leak < 1e-5 * largest(y), ("%s at %d: %g"):format(name, n, leak))
          ok(largest((y - z):narrow(2, seen + 1, n - seen)) > 1e-3, name)
        end
      end
    end)
  end)

  test("a saved state gives the same results", function()
    each(all, function(mixer, name)
      local x = random(1, 9, 4)
      local y = core.no_grad(mixer.forward, mixer, x)
      tl.seed(2)
      local again = mixers.class(name:match "^%w+")(4, mixer.opt):load(mixer:state())
      eq(core.no_grad(again.forward, again, x), y)
    end)
  end)
end

return kernels
