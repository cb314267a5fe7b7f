-- nn/gtu.lua -- GTU, the gated Toeplitz unit: the token mixer of a TNN.

local class = require("toeplab.class").class
local act = require "toeplab.nn.act"
local Linear = require("toeplab.nn.linear").Linear
local norms = require "toeplab.nn.norm"
local options = require "toeplab.options"
local TNO = require("toeplab.nn.tno").TNO

-- y = (u * TNO(v)) Wo + bo,  u = act(x Wu + bu),  v = act(x Wv + bv) (TNN, Eq. 9).
--   x, y [b,n,dim]
-- u, v are expand * dim wide, rounded down to a multiple of the heads. norm: over u * TNO(v); none
-- in the papers. tno: options of the TNO (tno.lua).
local GTU = class("GTU", {
  dim = options.field { type = "int", min = 1 },
  expand = options.field { type = "number", default = 3.0, min = 0 },
  act = act.act_option "silu",
  norm = norms.norm_option "none",
  init = options.field { type = "function|string", default = "torch" },
  tno = {},
}, { "dim" })

function GTU:build(o)
  local heads = o.tno.heads or 1
  local width = math.floor(o.expand * o.dim) // heads * heads
  if width < 1 then
    error(("GTU: expand = %g leaves no channel for dim = %d, heads = %d"):format(
      o.expand, o.dim, heads), 0)
  end
  self.u = Linear(o.dim, width, { init = o.init })
  self.v = Linear(o.dim, width, { init = o.init })
  self.tno = TNO(width, o.tno)
  if o.norm ~= "none" then self.norm = norms.norm(o.norm, width) end
  self.o = Linear(width, o.dim, { init = o.init })
end

function GTU:forward(x)
  local mixed = self.tno(act.act[self.opt.act](self.v(x)))
  local gated = act.gate(self.opt.act, self.u(x), mixed)
  if self.norm then gated = self.norm(gated) end
  return self.o(gated)
end

return { GTU = GTU }
