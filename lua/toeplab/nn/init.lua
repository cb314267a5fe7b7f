-- nn/init.lua: collects the layers, which are defined in the other files of this folder, in one
-- table: nn.Linear, nn.GTU, ..., and nn.class, which declares new ones.

local class = require "toeplab.nn.class"
local coefficient_cache = require "toeplab.nn.coefficient_cache"
local pytorch = require "toeplab.tensors.pytorch"
local suggest = require "toeplab.base.suggest"

local nn = {
  class = class.class, Module = class.Module, ismodule = class.ismodule, istensor = class.istensor,
  cached = coefficient_cache.cached, cache = coefficient_cache.cache,
  share = coefficient_cache.share,
}

for _, file in ipairs { "act", "initial", "linear", "embedding", "dropout", "container", "norm",
  "glu", "feed_forward", "block", "encoders.rpe", "encoders.table", "encoders.piecewise",
  "encoders.ssm", "encoders.shortconv", "decay", "mixers.tno", "mixers.tno2d", "mixers.gtu",
  "mixers.attention.softmax", "position",
  "mixers.conv", "documents" } do
  for name, value in pairs(require("toeplab.nn." .. file)) do nn[name] = value end
end

return suggest.strict("nn", nn, pytorch.hint)
