-- verify/mixers/attention.lua: runs the reference cases of attention in its softmax, linear and
-- windowed forms.

local core = require "toeplab.core"
local mixer_case = require "toeplab.verify.mixers.mixer_case"
local module_case = require "toeplab.verify.module_case"
local position = require "toeplab.nn.position"

local kinds = {}

for _, name in ipairs { "linear_attention", "cosformer", "flash", "flash_quad",
  "ls_bidirectional" } do
  kinds[name] = function(case) return mixer_case.run(name, case) end
end

function kinds.softmax_attention(case)
  return mixer_case.run("transformer", case)
end

function kinds.transformer_ls(case)
  return mixer_case.run("transformer_ls", case, case:read "before")
end

-- The projection is random inside the published module, so the case stores it apart from the
-- parameters. In evaluation the mixer uses the loaded one.
function kinds.performer(case)
  local mixer = mixer_case.make("performer", case):eval()
  local names = mixer_case.names("performer", { projection = case:read "projection" })
  return module_case.run(case, mixer, names)
end

function kinds.sinusoidal_positions(case)
  local a, results = case.attributes, {}
  local table_ = position.Sinusoidal(a.dim, { form = "halves", first = a.first })
  module_case.compare(case, results, "y", table_(core.zeros(1, a.n, a.dim)))
  return results
end

return kinds
