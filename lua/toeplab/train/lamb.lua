-- train/lamb.lua: LAMB (You et al. 2020, Alg. 2): Adam's direction, scaled for each parameter to
-- the parameter's norm. For large batches.
local core = require "toeplab.core"

local lamb = {}

local function norm(t) return core.sqrt((t * t):sum()) end

-- Updates the parameters of an optimiser (train/optim.lua): with Adam's direction r, without its
-- rate, and g = r + weight_decay p, p -= lr |p| / |g| g; the factor |p| / |g| is 1 where one of
-- them is 0. Nothing is read from the device.
function lamb.update(self, lr, scale, beta)
  local o = self.opt
  for i, p in ipairs(self.own) do
    local moved = p:grad() and core.zeros(p:shape()):require_grad()
    if moved then
      core.no_grad(function()
        moved:set_grad(p:grad())
        core.adam_step({ moved }, { self.moments.m[i] }, { self.moments.v[i] }, { kind = "adamw",
          lr = 1.0, beta1 = beta or o.betas[1], beta2 = o.betas[2], eps = o.eps,
          step = self.steps }, scale)
        local g = p * o.weight_decay - moved
        local own, other = norm(p), norm(g)
        local ratio = core.where((own * other):gt(0), own / other, 1.0)
        p:copy(p - g * (ratio * lr))
      end)
    end
  end
end

return lamb
