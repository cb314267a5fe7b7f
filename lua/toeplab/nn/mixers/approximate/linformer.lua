-- nn/mixers/approximate/linformer.lua: defines Linformer, attention to a few learnt combinations of
-- the keys.

local core = require "toeplab.core"
local cost = require "toeplab.nn.cost"
local frame = require "toeplab.nn.mixers.approximate.frame"
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"

-- o = softmax(q (E k)^T / sqrt p) E v, where the keys and values of padding are 0 (Wang et al.
-- 2020, Eq. 7, with one E for keys and values).
--   positions: E [h,r,max_length] ~ N(0, 0.02^2), r = rank
-- A shorter sequence uses the first n columns of E, which equals padding it with zero rows to
-- max_length. Costs n r. as_published leaves E at its initial value: on a GPU the published code
-- trains a copy that the optimiser does not know.
local Linformer = frame.class("Linformer", {
  rank = options.field { default = 128, min = 1, help = "rows that keys and values are summed to" },
  max_length = options.field { type = "int", min = 1 },
  as_published = false,
})

function Linformer:prepare(o)
  local positions = initial.init.normal(core.zeros(o.heads, o.rank, o.max_length), 0, 0.02)
  self.positions = initial.parameter(positions, not o.as_published)
end

-- Returns E x: [b,h,n,p] -> [b,h,r,p]. The heads are the batch of one product for all rows.
local function shortened(e, x)
  local b, h, n, p = x:dim(1), x:dim(2), x:dim(3), x:dim(4)
  local columns = x:permute({ 2, 3, 1, 4 }):reshape(h, n, b * p)
  return core.matmul(e, columns):reshape(h, -1, b, p):permute { 3, 1, 2, 4 }
end

function Linformer:mix(q, k, v, mask)
  local n, longest = q:dim(3), self.opt.max_length
  if n > longest then
    error(("Linformer: %d positions, but max_length = %d: set max_length to the longest length")
      :format(n, longest), 0)
  end
  local e = n < longest and self.positions:narrow(3, 1, n) or self.positions
  k, v = shortened(e, frame.tokens(k, mask)), shortened(e, frame.tokens(v, mask))
  return frame.attend(q, k, v, self.width ^ -0.5)
end

-- Besides the attention, keys and values are multiplied by E.
function Linformer:own_cost(n)
  local o, all = self.opt, self.opt.heads * self.width
  local flop, numbers = cost.blockwise(n, o.rank, all, all, o.heads)
  return flop + 4.0 * n * o.rank * all, numbers
end

return { Linformer = Linformer }
