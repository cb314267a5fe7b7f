-- nn/glu.lua: defines GLU, the gated linear unit, which is the channel mixer of a TNN.

local class = require("toeplab.nn.class").class
local act = require "toeplab.nn.act"
local Dropout = require("toeplab.nn.dropout").Dropout
local Linear = require("toeplab.nn.linear").Linear
local options = require "toeplab.base.options"

-- y = final_act((drop(act(x W1 + b1)) * (x W2 + b2)) W3 + b3) (TNN, Sec. 3.3; Shazeer 2020).
--   x, y [..,dim]
-- hidden is the inner width, by default dim. dropout acts on the gate; only the LRA models use it.
-- bias = false leaves out b1, b2 and b3. With form "shared" both factors are of x W1 + b1.
local GLU = class("GLU", {
  dim = options.field { type = "int", min = 1 },
  hidden = options.field { type = "int", min = 1, optional = true },
  act = act.act_option "silu",
  final_act = act.act_option "none",
  bias = true,
  form = options.field { default = "glu", choices = { "glu", "shared" },
    help = "shared: both factors are of one linear map" },
  dropout = options.field { default = 0.0, min = 0, max = 0.999 },
  init = options.field { type = "function|string", default = "torch" },
}, { "dim" }, "x [..,dim] -> [..,dim]: the gated linear unit")

function GLU:build(o)
  local hidden = o.hidden or o.dim
  local how = { init = o.init, bias = o.bias }
  self.l1 = Linear(o.dim, hidden, how)
  if o.form == "glu" then self.l2 = Linear(o.dim, hidden, how) end
  self.l3 = Linear(hidden, o.dim, how)
  if o.dropout > 0 then self.drop = Dropout(o.dropout) end
end

function GLU:forward(x)
  local o, a = self.opt, self.l1(x)
  local b = self.l2 and self.l2(x) or a
  local gated = self.drop and self.drop(act.act[o.act](a)) * b or act.gate(o.act, a, b)
  return act.act[o.final_act](self.l3(gated))
end

return { GLU = GLU }
