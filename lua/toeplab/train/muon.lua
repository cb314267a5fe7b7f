-- train/muon.lua: Muon (Jordan et al. 2024): makes the momentum of a matrix orthogonal by five
-- Newton-Schulz iterations, so that all its directions learn at one rate. AdamW trains vectors,
-- embeddings, maps to tokens or classes, and tables of coefficients.
local core = require "toeplab.core"

local muon = {}

-- The coefficients of the published iteration, which brings singular values of 0 to 1 near 1.
local A, B, C = 3.4445, -4.7750, 2.0315
local ITERATIONS = 5

-- Returns a matrix with the singular vectors of x [m,n] and singular values near 1: starting at
-- x / |x|, x <- A x + (B s + C s s) x with s = x x^T.
function muon.orthogonal(x)
  local m, n = table.unpack(x:shape())
  if m > n then return muon.orthogonal(x:transpose(1, 2)):transpose(1, 2) end
  x = x / (core.sqrt((x * x):sum()) + 1e-7)
  for _ = 1, ITERATIONS do
    local s = core.matmul(x, x, false, true)
    x = x * A + core.matmul(s * B + core.matmul(s, s) * C, x)
  end
  return x
end

-- Returns whether Muon trains the parameter: the weight of a map between channels.
local function is_map(name, p)
  return #p:shape() == 2 and name:find "%.weight$" and not name:find "embed"
    and not name:find "^head%." and not name:find "^output%."
end

-- Updates the parameters of an optimiser (train/optim.lua). For matrices m = momentum m + g and
-- p -= lr (0.2 sqrt(max(rows, columns)) orthogonal(g + momentum m) + weight_decay p): the factor
-- gives the update the size that AdamW's has (Liu et al. 2025), so that all share one rate.
function muon.update(self, lr, scale, beta)
  local o, others, m, v = self.opt, {}, {}, {}
  for i, p in ipairs(self.own) do
    local moment = self.moments.m[i]
    if not is_map(self.own_names[i], p) then
      others[#others + 1], m[#m + 1], v[#v + 1] = p, moment, self.moments.v[i]
    elseif p:grad() then
      core.no_grad(function()
        local g, rows, columns = p:grad() * scale, table.unpack(p:shape())
        moment:copy(moment * o.momentum + g)
        local direction = muon.orthogonal(g + moment * o.momentum)
        local size = 0.2 * math.sqrt(math.max(rows, columns))
        p:copy(p * (1 - lr * o.weight_decay) - direction * (lr * size))
      end)
    end
  end
  if #others == 0 then return end
  core.adam_step(others, m, v, { kind = "adamw", lr = lr, beta1 = beta or o.betas[1],
    beta2 = o.betas[2], eps = o.eps, weight_decay = o.weight_decay, step = self.steps }, scale)
end

return muon
