-- nn/mixers/attention/heads.lua: holds what mixers with queries, keys, values and heads share.

local Linear = require("toeplab.nn.linear").Linear
local options = require "toeplab.base.options"

local heads = {}

-- [b,n,h w] -> [b,h,n,w]
function heads.split(x, count)
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  return x:reshape(b, n, count, d // count):permute { 1, 3, 2, 4 }
end

-- [b,h,n,w] -> [b,n,h w]
function heads.join(x)
  local b, h, n, w = x:dim(1), x:dim(2), x:dim(3), x:dim(4)
  return x:permute({ 1, 3, 2, 4 }):reshape(b, n, h * w)
end

-- Returns a declaration of the options that all these mixers have, and those of more.
function heads.spec(more)
  local all = {
    dim = options.field { type = "int", min = 1 },
    heads = options.field { default = 1, min = 1 },
    causal = true,
    init = options.field { type = "function|string", default = "xavier" },
  }
  for name, field in pairs(more) do all[name] = field end
  return all
end

-- Raises an error unless channels divide into the heads of mixer self.
function heads.check(self, channels)
  local count = self.opt.heads
  if channels % count ~= 0 then
    error(("%s: %d channels do not divide into %d heads"):format(self.kind, channels, count), 0)
  end
end

-- Makes the linear maps q, k, v and o of self. With init = "xavier" they start as fairseq's: o as
-- "xavier", the others as "xavier_input".
function heads.maps(self, o)
  local input = o.init == "xavier" and "xavier_input" or o.init
  for _, name in ipairs { "q", "k", "v" } do self[name] = Linear(o.dim, o.dim, { init = input }) end
  self.o = Linear(o.dim, o.dim, { init = o.init })
end

return heads
