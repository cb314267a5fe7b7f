-- verify/mixers/attention.lua: runs the reference cases of attention in its softmax, linear and
-- windowed forms.

local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"
local module_case = require "toeplab.verify.module_case"
local position = require "toeplab.nn.position"

local kinds = {}

-- The published names of the maps of q, k, v and o.
local maps = { { "(%l)_proj%.(%l+)", "%1.%2" }, { "out_proj%.(%l+)", "o.%1" } }

-- Makes the mixer name for the case, with the options that both have and those of more.
local function make(name, case, more)
  local a, common = case.attributes, {}
  for key, value in pairs(a) do common[key] = value end
  common.init, common.dim = nil, nil
  return mixers.make(name, a.dim, common, more or {})
end

function kinds.softmax_attention(case)
  return module_case.run(case, make("attention", case), maps)
end

function kinds.sinusoidal_positions(case)
  local a, results = case.attributes, {}
  local table_ = position.Sinusoidal(a.dim, { form = "halves", first = a.first })
  module_case.compare(case, results, "y", table_(core.zeros(1, a.n, a.dim)))
  return results
end

function kinds.linear_attention(case)
  return module_case.run(case, make("linear_attention", case), maps)
end

function kinds.cosformer(case)
  local more = { as_published = true, out = case.attributes.out == 1 }
  return module_case.run(case, make("cosformer", case, more), maps)
end

-- The projection is random inside the published module, so the case holds it apart from the
-- parameters. In evaluation the mixer uses the one that it has loaded.
function kinds.performer(case)
  local with_projection = {}
  function with_projection.children(_, group)
    local names = case:children(group)
    if group == "param" then names[#names + 1] = "projection" end
    return names
  end
  function with_projection.read(_, name)
    return case:read(name == "param/projection" and "projection" or name)
  end
  return module_case.run(with_projection, make("performer", case, { as_published = true }):eval(),
    maps)
end

return kinds
