-- nn/mixers/states/layer.lua: defines the layers around the kernels of state spaces.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local Linear = require("toeplab.nn.linear").Linear
local modes = require "toeplab.nn.mixers.states.modes"
local TNO = require("toeplab.nn.mixers.tno").TNO

local layer = {}

-- y = Wo gelu(K x) + bo, or y = GLU(Wo gelu(K x) + bo) with GLU(a, b) = a sigmoid(b) on the halves
-- of the channels. K is the convolution whose coefficients come from Kernel, an encoder class.
--   x, y [b,n,dim]   o [dim,dim], with GLU [2 dim,dim]
-- Returns the class kind of such layers. Its options are Kernel's and modes.layer_fields.
local function of(kind, Kernel, glu)
  local Layer = class(kind, modes.layer_fields(Kernel.spec.fields), { "dim" })

  Layer.stepwise = true -- only its TNO mixes positions
  Layer.apart = { kernel = true } -- the TNO counts its encoder

  function Layer:build(o)
    local own = {}
    for name in pairs(Kernel.spec.fields) do own[name] = o[name] end
    self.kernel = Kernel(own)
    self.tno = TNO(o.dim, { encoder = self.kernel, causal = o.causal, decay = "none",
      backend = o.backend })
    self.o = Linear(o.dim, (glu and 2 or 1) * o.dim, { init = o.init })
  end

  function Layer:forward(x)
    local y = self.o(core.gelu(self.tno(x)))
    return glu and modes.glu(y) or y
  end

  return Layer
end

function layer.linear(kind, Kernel) return of(kind, Kernel, false) end

function layer.glu(kind, Kernel) return of(kind, Kernel, true) end

return layer
