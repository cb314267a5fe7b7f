-- verify/mixers/transforms.lua: runs the reference cases of the Synthesizers, gMLP, FNet, GFNet and
-- AFNO, in the forms of the released code.

local mixer_case = require "toeplab.verify.mixers.mixer_case"

local kinds = {}

for _, name in ipairs { "synthesizer_dense", "synthesizer_random", "gmlp", "fnet_mixing", "fnet",
  "gfnet", "afno" } do
  kinds[name] = function(case) return mixer_case.run(name, case) end
end

return kinds
