-- nn/mixers/gtu.lua: defines GTU, the gated Toeplitz unit, which is the token mixer of a TNN.

local class = require("toeplab.nn.class").class
local act = require "toeplab.nn.act"
local Dropout = require("toeplab.nn.dropout").Dropout
local Linear = require("toeplab.nn.linear").Linear
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local Shift = require("toeplab.nn.mixers.shift").Shift
local overlay = require "toeplab.base.overlay"
local TNO = require("toeplab.nn.mixers.tno").TNO
local TNO2d = require("toeplab.nn.mixers.tno2d").TNO2d

-- y = (u * TNO(v)) Wo + bo,  u = act(x Wu + bu),  v = act(x Wv + bv) (TNN, Fig. 2).
--   x, y [b,n,dim]
-- u and v are expand * dim wide, rounded down to a multiple of the heads. bias = false leaves out
-- bu, bv and bo; tno.rpe.bias = false the encoder's. norm is applied to
-- u * TNO(v); the papers have none. dropout acts on TNO(v); only the 2-D LRA models use it. tno
-- holds options of the TNO (tno.lua), which is as causal as the GTU unless they set it. The TNO
-- mixes padding in, as in the published code, unless hide_padding was called. With grid = {height,
-- width} the positions are a grid's, row by row, and the operator is a TNO2d of form grid_form,
-- with one encoder for both axes if grid_shared. Options of the published code, off in the papers:
--   shift s > 0      x_i <- (1 - s) x_i + s x_(i-1) first; its token shift of type 1 has s = 1, of
--                    type 2 s = 0.5
--   form "shared"    u = v, one map less (its type 3)
--   form "dtu"       v = act(x Wv + bv) * act(x Wq + bq) (its DTU)
local GTU = class("GTU", {
  dim = options.field { type = "int", min = 1 },
  expand = options.field { type = "number", default = 3.0, min = 0 },
  act = act.act_option "silu",
  bias = true,
  norm = norms.norm_option "none",
  dropout = options.field { default = 0.0, min = 0, max = 0.999 },
  grid = TNO2d.spec.fields.grid,
  grid_form = TNO2d.spec.fields.form,
  grid_shared = options.field { default = false, help = "one operator for both axes of the grid" },
  shift = options.field { default = 0.0, min = 0, max = 1,
    help = "share of the position before in x" },
  form = options.field { default = "gtu", choices = { "gtu", "shared", "dtu" },
    help = "gates: u of the output; shared: u = v; dtu: a second one of v" },
  init = options.field { type = "function|string", default = "torch" },
  causal = true,
  tno = options.field { default = {}, help = "options of its TNO or TNO2d" },
}, { "dim" }, "x [b,n,dim] -> [b,n,dim]: the gated Toeplitz unit, (u * T v) Wo")

function GTU:build(o)
  local heads = o.tno.heads or 1
  local width = math.floor(o.expand * o.dim) // heads * heads
  if width < 1 then
    error(("GTU: expand = %g leaves no channel for dim = %d, heads = %d"):format(
      o.expand, o.dim, heads), 0)
  end
  local tno = overlay({ causal = o.causal }, o.tno)
  local how = { init = o.init, bias = o.bias }
  if o.shift > 0 then self.shift = Shift(o.dim, o.shift) end
  if o.form ~= "shared" then self.u = Linear(o.dim, width, how) end
  self.v = Linear(o.dim, width, how)
  if o.form == "dtu" then self.q = Linear(o.dim, width, how) end
  local two = { tno = tno, form = o.grid_form, grid = o.grid, shared = o.grid_shared }
  self.tno = o.grid and TNO2d(width, two) or TNO(width, tno)
  if o.dropout > 0 then self.drop = Dropout(o.dropout) end
  if o.norm ~= "none" then self.norm = norms.norm(o.norm, width) end
  self.o = Linear(width, o.dim, how)
end

-- Makes forward take a mask [b,n], 1 for a token and 0 for padding, and gives the TNO 0 at padding,
-- where v would be act(bv).
function GTU:hide_padding()
  if self.opt.grid then error("GTU: the images of a grid have no padding to hide", 0) end
  for _, name in ipairs { "nodes", "normalize" } do
    if self.tno.opt[name] then
      error(("GTU: with %s, results depend on the padded length, so padding cannot be hidden")
        :format(name), 0)
    end
  end
  self.takes_mask = true
end

function GTU:forward(x, mask)
  local o = self.opt
  if self.shift then x = self.shift(x) end
  local before = self.v(x)
  local v = act.act[o.act](before)
  if self.q then v = act.gate(o.act, self.q(x), v) end
  if mask then v = v * mask:reshape(mask:dim(1), mask:dim(2), 1) end
  local mixed = self.tno(v)
  if self.drop then mixed = self.drop(mixed) end
  local gated = act.gate(o.act, self.u and self.u(x) or before, mixed)
  return self.o(self.norm and self.norm(gated) or gated)
end

GTU.ignores_later = true

return { GTU = GTU }
