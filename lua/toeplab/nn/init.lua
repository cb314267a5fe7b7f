-- nn/init.lua -- the layers: nn.class makes new kinds; nn.Linear, nn.GTU, ... have a file each.

local class = require "toeplab.nn.class"
local suggest = require "toeplab.base.suggest"

local files = {
  act = "act", gate = "act", Activation = "act",
  init = "initial", parameter = "initial", without_init = "initial",
  Linear = "linear", Embedding = "embedding", Dropout = "dropout",
  Sequential = "container", ModuleList = "container",
  norm_option = "norm", decay_option = "mixers.decay", act_option = "act", layout_option = "block",
  norm = "norm", LayerNorm = "norm", RMSNorm = "norm", SimpleRMSNorm = "norm", ScaleNorm = "norm",
  BatchNorm = "norm",
  GLU = "glu", GTU = "mixers.gtu", RPE = "encoders.rpe", Table = "encoders.table",
    FrequencyTable = "encoders.table",
  Piecewise = "encoders.piecewise", SSM = "encoders.ssm", ShortConv = "encoders.shortconv",
    Decay = "mixers.decay",
  TNO = "mixers.tno", cached = "coefficients", share = "coefficients", TNO2d = "mixers.tno2d",
  Attention = "mixers.attention", GatedAttention = "mixers.attention",
  Sinusoidal = "mixers.position", alibi_slopes = "mixers.position", alibi_bias = "mixers.position",
  Conv = "mixers.conv", Block = "block", layouts = "block",
}

local nn = {
  class = class.class, Module = class.Module, ismodule = class.ismodule, istensor = class.istensor,
}

return setmetatable(nn, {
  __index = function(_, name)
    local file = files[name]
    if not file then
      local names = suggest.keys(files)
      for own in pairs(nn) do names[#names + 1] = own end
      error(("nn has no '%s'%s"):format(tostring(name), suggest.hint(name, names)), 2)
    end
    for key, value in pairs(require("toeplab.nn." .. file)) do rawset(nn, key, value) end
    return rawget(nn, name)
  end,
})
