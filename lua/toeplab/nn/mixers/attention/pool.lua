-- nn/mixers/attention/pool.lua: summarises chunks of positions by a few vectors each, as
-- long-short attention does (Zhu et al. 2021, Sec. 3.2).

local core = require "toeplab.core"

-- Returns rank vectors per chunk of c positions, chunk by chunk: per head, sums of t over the chunk
-- with weights softmax(scores).   t [b,N c,h w]   scores [b,N c,h rank]   result [b,N rank,h w]
local function pool(t, scores, c, heads, rank)
  local b, dim = t:dim(1), t:dim(3)
  local w = dim // heads
  local weights = scores:reshape(b, -1, c, heads, rank):permute { 1, 2, 4, 5, 3 }
  local values = t:reshape(b, -1, c, heads, w):permute { 1, 2, 4, 3, 5 }
  local sums = core.matmul(core.softmax(weights), values) -- [b,N,h,rank,w]
  return sums:permute({ 1, 2, 4, 3, 5 }):reshape(b, -1, dim)
end

return pool
