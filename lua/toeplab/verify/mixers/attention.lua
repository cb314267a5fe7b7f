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

local flash_names = {
  { "base_proj%.(%l+)", "z.%1" }, { "(%l)_proj%.(%l+)", "%1.%2" },
  { "(%l+_%l)_(%l+)", "%1.%2" }, { "([qk])_(%l+)", "%1.%2" },
  { "norm%.scala", "norm.weight" }, { "w", "lags" },
}

for _, name in ipairs { "flash", "flash_quad" } do
  kinds[name] = function(case)
    return module_case.run(case, make(name, case, { as_published = true }), flash_names)
  end
end

function kinds.ls_bidirectional(case)
  local mixer = make("ls_bidirectional", case, { as_published = true })
  return module_case.run(case, mixer, {
    { "W_(%l)%.(%l+)", "%1.%2" }, { "dconv_fc%.(%l+)", "scores.%1" },
    { "dual_ln_l%.(%l+)", "norm_window.%1" }, { "dual_ln_s%.(%l+)", "norm_landmarks.%1" },
  })
end

function kinds.transformer_ls(case)
  return module_case.run(case, make("transformer_ls", case), {
    { "proj_query%.(%l+)", "q.%1" }, { "proj_key%.(%l+)", "k.%1" }, { "proj_val%.(%l+)", "v.%1" },
    { "proj_out%.(%l+)", "o.%1" }, { "dconv_1%.(%l+)", "scores.%1" },
    { "r_net%.(%l+)", "window_place.%1" }, { "r_net_chunk%.(%l+)", "chunk_place.%1" },
    { "dual_ln_win%.(%l+)", "norm_window.%1" }, { "dual_ln_dproj%.(%l+)", "norm_chunks.%1" },
    { "r_w_bias", "content" }, { "r_r_bias", "place" },
  }, case:read "before")
end

return kinds
