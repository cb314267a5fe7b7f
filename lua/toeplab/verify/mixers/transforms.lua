-- verify/mixers/transforms.lua: runs the reference cases of the Synthesizers, gMLP, FNet, GFNet and
-- AFNO, in the forms of the released code.

local forms = require "toeplab.verify.mixers.forms"
local mixers = require "toeplab.nn.mixers"
local module_case = require "toeplab.verify.module_case"

local kinds = {}

for _, kind in ipairs { "synthesizer_dense", "synthesizer_random", "gmlp", "fnet_mixing", "fnet",
  "gfnet", "afno" } do
  local form = forms[kind]
  kinds[kind] = function(case)
    local a = case.attributes
    local mixer = mixers.make(kind, a.dim, { causal = a.causal }, form.options(a))
    return module_case.run(case, mixer, form.names)
  end
end

return kinds
