-- verify/mixers/forms.lua: says, for each mixer of the reference cases, how the released code names
-- its parameters, and which of our options the attributes of a case are.

local forms = {}

-- mixer is our name where it differs from that of the cases. A parameter whose name matches none of
-- names (verify/module_case.lua) has the published one.
forms.transformer = {
  mixer = "attention",
  names = { { "([qkv])_proj%.(%a+)", "%1.%2" }, { "out_proj%.(%a+)", "o.%1" } },
  options = function() return {} end,
}

forms.alibi = forms.transformer

local function synthesizer(a)
  return { max_length = a.max_length, as_published = true }
end

forms.synthesizer_dense = { names = {}, options = synthesizer }
forms.synthesizer_random = { names = {}, options = synthesizer }

forms.gmlp = {
  names = {
    { "proj_1%.(%a+)", "i.%1" },
    { "proj_2%.(%a+)", "o.%1" },
    { "spatial_gating_unit%.norm%.(%a+)", "gate_norm.%1" },
    { "spatial_gating_unit%.proj%.(%a+)", "gate.%1" },
  },
  options = function(a)
    return { ffn_dim = a.ffn_dim, max_length = a.max_length, as_published = true }
  end,
}

forms.fnet_mixing = { names = {}, options = function() return { as_published = true } end }

forms.fnet = {
  names = {
    { "mixing_layer_norm%.(%a+)", "mixing_norm.%1" },
    { "output_layer_norm%.(%a+)", "output_norm.%1" },
    { "feed_forward%.(%a+)", "i.%1" },
    { "output_dense%.(%a+)", "o.%1" },
  },
  options = function(a) return { ffn_dim = a.ffn_dim, as_published = true } end,
}

forms.gfnet = {
  names = { { "complex_weight", "filter" } },
  options = function(a) return { length = 2 * (a.frequencies - 1), as_published = true } end,
}

forms.afno = {
  names = {},
  options = function(a) return { blocks = a.blocks, shrink = a.shrink, as_published = true } end,
}

return forms
