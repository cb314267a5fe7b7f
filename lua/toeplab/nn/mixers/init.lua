-- nn/mixers/init.lua: lists the token mixers by name, and makes one for a model.
--
-- A mixer is a module from x [b,n,dim] to y [b,n,dim] with the option `causal`. A class that sets
-- takes_mask = true hides padding: forward takes a second argument mask [b,n], which is 1 for a
-- token and 0 for padding. If it sets by_length = true too, its results for tokens still depend on
-- the number of padded positions. A class that sets ignores_zeros = true mixes rows of zeros in as
-- if they were absent, at any length. A class that sets ignores_later = true has results, if causal
-- and not as published, that depend neither on later positions nor on their number; so do
-- classes with carries = true. nn/init.lua loads the files of the mixers that are in nn; the others
-- are loaded on first use.

local overlay = require "toeplab.base.overlay"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

-- The file of each mixer below this folder, and the class that the file returns.
local files = {
  afno = { "transforms.afno", "AFNO" },
  attention = { "attention.softmax", "Attention" },
  bigbird = { "approximate.bigbird", "BigBird" },
  cat = { "attention.cat", "CAT" },
  conv = { "conv", "Conv" },
  cosformer = { "attention.cosformer", "Cosformer" },
  delta_net = { "states.delta_net", "DeltaNet" },
  dss = { "states.dss", "DSS" },
  fft_rpe = { "attention.fft_rpe", "FFTRPE" },
  flash = { "attention.flash", "Flash" },
  flash_quad = { "attention.flash", "FlashQuad" },
  fnet = { "transforms.fnet", "FNet" },
  fnet_mixing = { "transforms.fnet", "FNetMixing" },
  gated_attention = { "attention.softmax", "GatedAttention" },
  gated_delta_net = { "states.delta_net", "GatedDeltaNet" },
  gfnet = { "transforms.gfnet", "GFNet" },
  gla = { "states.gla", "GLA" },
  gmlp = { "transforms.gmlp", "GMLP" },
  gru = { "states.rnn", "GRU" },
  gss = { "states.gss", "GSS" },
  gtu = { "gtu", "GTU" },
  hgrn = { "states.hgrn", "HGRN" },
  hgrn2 = { "states.hgrn2", "HGRN2" },
  hyena = { "states.hyena", "Hyena" },
  informer = { "approximate.informer", "Informer" },
  kernelized = { "approximate.kernelized", "Kernelized" },
  linear_attention = { "attention.linear_attention", "LinearAttention" },
  linformer = { "approximate.linformer", "Linformer" },
  longconv = { "states.longconv", "LongConv" },
  ls_bidirectional = { "attention.ls_bidirectional", "LSBidirectional" },
  lstm = { "states.rnn", "LSTM" },
  mamba = { "states.mamba", "Mamba" },
  nystrom = { "approximate.nystrom", "Nystrom" },
  performer = { "attention.performer", "Performer" },
  reformer = { "approximate.reformer", "Reformer" },
  retention = { "states.retention", "Retention" },
  s4 = { "states.s4", "S4" },
  s4d = { "states.s4d", "S4D" },
  sgconv = { "states.sgconv", "SGConv" },
  skyformer = { "approximate.skyformer", "Skyformer" },
  ssd = { "states.ssd", "SSD" },
  stu = { "states.stu", "STU" },
  synthesizer_dense = { "transforms.synthesizer", "SynthesizerDense" },
  synthesizer_random = { "transforms.synthesizer", "SynthesizerRandom" },
  tmm = { "transforms.tmm", "TMM" },
  transformer_ls = { "attention.transformer_ls", "TransformerLS" },
}

local mixers = { names = sorted_keys(files) }

-- Returns the class of a mixer. An unknown name is an error.
function mixers.class(name)
  local file = files[name]
  if not file then error(select(2, suggest.choose("mixer", name, mixers.names)), 0) end
  return require("toeplab.nn.mixers." .. file[1])[file[2]]
end

-- Raises an error if options given for a mixer contradict the options `common` of the model around
-- it.
local function check_given(name, common, given)
  for _, key in ipairs { "dim", "causal" } do
    if given[key] ~= nil and (key == "dim" or common[key] ~= nil) then
      error(("mixer_options of '%s': %s is an option of the model"):format(name, key), 0)
    end
  end
end

-- Overlays the options of a TNO that are given for a mixer on the model's, and the options of its
-- network, rpe, one by one. An encoder other than the model's takes no options from it.
local function tno_of(common, given)
  local all = overlay(common, given)
  if given.encoder == nil or given.encoder == common.encoder then
    if common.rpe then all.rpe = overlay(common.rpe, given.rpe) end
  else
    all.rpe, all.encoder_options = given.rpe, given.encoder_options
  end
  return all
end

-- Makes the mixer `name` with dim channels. It takes the options of the model in common that it
-- declares; given overrides them, except causal.
function mixers.make(name, dim, common, given)
  local class, all = mixers.class(name), {}
  for key, value in pairs(common) do
    if class.spec.fields[key] then all[key] = value end
  end
  check_given(name, common, given)
  if type(given.tno) == "table" then
    check_given(name, common, given.tno)
    given = overlay(given, { tno = tno_of(all.tno or {}, given.tno) })
  end
  return class(dim, overlay(all, given))
end

return mixers
