-- nn/mixers/init.lua: lists the token mixers by name, and makes one for a model.
--
-- A mixer is a module from x [b,n,dim] to y [b,n,dim] with the option `causal`. Its file is loaded
-- when the mixer is asked for.

local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

-- The file of each mixer in this folder, and the class that the file returns.
local files = {
  attention = { "attention", "Attention" },
  conv = { "conv", "Conv" },
  dss = { "states.dss", "DSS" },
  gated_attention = { "attention", "GatedAttention" },
  gla = { "states.gla", "GLA" },
  gss = { "states.gss", "GSS" },
  gtu = { "gtu", "GTU" },
  hgrn2 = { "states.hgrn2", "HGRN2" },
  hyena = { "states.hyena", "Hyena" },
  longconv = { "states.longconv", "LongConv" },
  mamba = { "states.mamba", "Mamba" },
  s4 = { "states.s4", "S4" },
  s4d = { "states.s4d", "S4D" },
  sgconv = { "states.sgconv", "SGConv" },
  ssd = { "states.ssd", "SSD" },
  stu = { "states.stu", "STU" },
}

local mixers = { names = suggest.keys(files) }

-- Returns the class of a mixer. An unknown name is an error.
function mixers.class(name)
  local file = files[name]
  if not file then error(select(2, suggest.choose("mixer", name, mixers.names)), 0) end
  return require("toeplab.nn.mixers." .. file[1])[file[2]]
end

-- Makes the mixer name with dim channels. common holds options of the model, of which those that
-- the mixer declares are its own; given overrides them.
function mixers.make(name, dim, common, given)
  local class, all = mixers.class(name), {}
  for key, value in pairs(common) do
    if class.spec.fields[key] then all[key] = value end
  end
  for key, value in pairs(given) do all[key] = value end
  return class(dim, all)
end

-- Declares an option whose value is the name of a mixer.
function mixers.option(default)
  return options.field { default = default, choices = mixers.names }
end

return mixers
