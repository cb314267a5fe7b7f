-- nn/init.lua -- the layers: nn.class makes new kinds; nn.Linear, nn.GTU, ... have a file each.

local class = require "toeplab.class"
local suggest = require "toeplab.suggest"

local files = {
  act = "act", gate = "act", Activation = "act",
  init = "initial", parameter = "initial", without_init = "initial",
  Linear = "linear", Embedding = "embedding", Dropout = "dropout",
  Sequential = "container", ModuleList = "container",
  norm_option = "norm", decay_option = "decay", act_option = "act", layout_option = "block",
  norm = "norm", LayerNorm = "norm", RMSNorm = "norm", SimpleRMSNorm = "norm", ScaleNorm = "norm",
  BatchNorm = "norm",
  GLU = "glu", GTU = "gtu", RPE = "rpe", Table = "table", FrequencyTable = "table",
  Piecewise = "piecewise", SSM = "ssm", ShortConv = "shortconv", Decay = "decay",
  TNO = "tno", cached = "tno", share = "tno", TNO2d = "tno2d",
  Attention = "attention", GatedAttention = "attention",
  Sinusoidal = "position", alibi_slopes = "position", alibi_bias = "position",
  Conv = "conv", Block = "block", layouts = "block",
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
