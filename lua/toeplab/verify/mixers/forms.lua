-- verify/mixers/forms.lua: for each mixer of the reference cases, the released code's names of its
-- parameters, and the translation of a case's attributes to our options.
--
-- A form holds names, a list as in verify/module_case.lua (a parameter that matches none has the
-- published name), and options, a function of the attributes of a case. mixer is our name if it
-- differs, and state returns further entries of the module's state.

local core = require "toeplab.core"

local forms = {}

-- ---- Attention ----------------------------------------------------------------------------------

-- The published names of the maps of q, k, v and o.
local maps = { { "(%l)_proj%.(%l+)", "%1.%2" }, { "out_proj%.(%l+)", "o.%1" } }

forms.transformer = {
  mixer = "attention", names = maps, options = function(a) return { positions = a.positions } end,
}
forms.alibi = forms.transformer
forms.linear_attention = { names = maps, options = function() return {} end }

forms.cosformer = {
  names = maps,
  options = function(a) return { output = a.out == 1, as_published = true } end,
}

forms.performer = {
  names = { { "eval_proj", "projection" }, table.unpack(maps) },
  options = function(a) return { features = a.features, as_published = true } end,
}

local flash_names = {
  { "base_proj%.(%l+)", "z.%1" }, { "(%l)_proj%.(%l+)", "%1.%2" },
  { "(%l+_%l)_(%l+)", "%1.%2" }, { "([qk])_(%l+)", "%1.%2" },
  { "norm%.scala", "norm.weight" }, { "w", "lags" },
}

for _, name in ipairs { "flash", "flash_quad" } do
  forms[name] = {
    names = flash_names,
    options = function(a)
      return { shared = a.shared, expand = a.expand, max_length = a.max_length, norm = a.norm,
        chunk = a.chunk, as_published = true }
    end,
  }
end

forms.ls_bidirectional = {
  names = {
    { "W_(%l)%.(%l+)", "%1.%2" }, { "dconv_fc%.(%l+)", "scores.%1" },
    { "dual_ln_l%.(%l+)", "norm_window.%1" }, { "dual_ln_s%.(%l+)", "norm_landmarks.%1" },
  },
  options = function(a)
    return { landmarks = a.landmarks, window = a.window, as_published = true }
  end,
}

forms.transformer_ls = {
  names = {
    { "proj_query%.(%l+)", "q.%1" }, { "proj_key%.(%l+)", "k.%1" }, { "proj_val%.(%l+)", "v.%1" },
    { "proj_out%.(%l+)", "o.%1" }, { "dconv_1%.(%l+)", "scores.%1" },
    { "r_net%.(%l+)", "window_place.%1" }, { "r_net_chunk%.(%l+)", "chunk_place.%1" },
    { "dual_ln_win%.(%l+)", "norm_window.%1" }, { "dual_ln_dproj%.(%l+)", "norm_chunks.%1" },
    { "r_w_bias", "content" }, { "r_r_bias", "place" },
  },
  options = function(a) return { chunk = a.chunk, rank = a.rank, window = a.window } end,
}

-- ---- State spaces -------------------------------------------------------------------------------

forms.s4 = {
  names = {
    { "kernel%.kernel%.inv_w_real", "kernel.a" }, { "kernel%.kernel%.w_imag", "kernel.w" },
    { "kernel%.kernel%.log_dt", "kernel.log_dt" }, { "kernel%.kernel%.B", "kernel.b" },
    { "kernel%.kernel%.P", "kernel.p" }, { "kernel%.kernel%.C", "kernel.c" },
    { "D", "kernel.skip" }, { "output_linear%.0%.(.*)", "o.%1" },
  },
  options = function(a) return { state = a.state, as_published = a.pairs == "half" } end,
  state = function(a) return { ["kernel.length"] = core.ids { a.kernel_length } } end,
}

forms.s4d = {
  names = {
    { "kernel%.kernel%.log_w_real", "kernel.a" }, { "kernel%.kernel%.w_imag", "kernel.w" },
    { "kernel%.kernel%.log_dt", "kernel.log_dt" }, { "kernel%.kernel%.C", "kernel.c" },
    { "D", "kernel.skip" }, { "output_linear%.0%.(.*)", "o.%1" },
  },
  options = function(a) return { state = a.state, copies = a.copies } end,
}

forms.dss = {
  names = {
    { "kernel%.Lambda", "kernel.lambda" }, { "kernel%.W", "kernel.w" }, { "D", "kernel.skip" },
    { "kernel%.log_dt", "kernel.log_dt" }, { "output_linear%.(.*)", "o.%1" },
  },
  options = function(a) return { state = a.state, eps = a.eps, as_published = true } end,
}

-- The two parts of C are one parameter of ours (module_case.joined).
forms.gss = {
  names = {
    { "dss%.C", "kernel.c" }, { "dss%.param_D", "kernel.skip" },
    { "dss%.Lambda_real", "kernel.a" }, { "dss%.Lambda_imag", "kernel.w" },
    { "dss%.norm%.(.*)", "inner_norm.%1" }, { "to_u%.0%.(.*)", "u.%1" },
    { "to_v%.0%.(.*)", "v.%1" }, { "to_gate%.(.*)", "g.%1" }, { "to_out%.(.*)", "o.%1" },
  },
  options = function(a) return { expand = a.expand, state = a.state, inner = a.dss_dim } end,
  joined = "dss%.C",
}

-- The taps of the convolution are in another order (states.lua).
forms.mamba = {
  names = {
    { "conv1d%.weight", false }, { "conv1d%.bias", "conv_bias" }, { "A_log", "a_log" },
    { "D", "skip" }, { "in_proj%.(.*)", "input.%1" }, { "x_proj%.(.*)", "choice.%1" },
    { "dt_proj%.weight", "step.weight" }, { "dt_proj%.bias", "step_bias" },
    { "out_proj%.(.*)", "o.%1" },
  },
  options = function(a)
    return { state = a.state, expand = a.expand, taps = a.conv, dt_rank = a.dt_rank }
  end,
}

-- ---- Matrices over positions, transforms --------------------------------------------------------

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
