-- nn/encoders.lua -- encoders by name, and which of them a backend can ask.

local core = require "toeplab.core"
local class = require "toeplab.class"
local FrequencyTable = require("toeplab.nn.table").FrequencyTable
local options = require "toeplab.options"
local Piecewise = require("toeplab.nn.piecewise").Piecewise
local RPE = require("toeplab.nn.rpe").RPE
local ShortConv = require("toeplab.nn.shortconv").ShortConv
local SSM = require("toeplab.nn.ssm").SSM
local suggest = require "toeplab.suggest"
local Table = require("toeplab.nn.table").Table

local encoders = {}

-- The network of the LRA models: two hidden layers without a norm, then one LayerNorm.
local lra = { layers = 2, norm = "none", output_norm = "layernorm" }

local function with(given, more)
  local all = {}
  for name, value in pairs(more) do all[name] = value end
  for name, value in pairs(given) do all[name] = value end
  return all
end

-- Name -> the class and the options of an encoder for a TNO with options o.
local kinds = {
  mlp = function(o) return RPE, o.rpe end,
  lra = function(o) return RPE, with(o.rpe, lra) end,
  table = function(o, domain)
    if domain == "frequency" then return FrequencyTable, o.encoder_options end
    return Table, with(o.encoder_options, { length = o.table_length })
  end,
  piecewise = function(o) return Piecewise, o.encoder_options end,
  ssm = function(o) return SSM, with(o.encoder_options, { causal = o.causal }) end,
  conv = function(o) return ShortConv, with(o.encoder_options, { causal = o.causal }) end,
}
local networks = { mlp = true, lra = true } -- of the options rpe

encoders.names = suggest.keys(kinds)
encoders.lra = lra

-- Domain of points -> what they are called, and the names of the encoders that take them.
local asks = {
  lag = { "lags", "mlp, lra, table, piecewise, ssm, conv" },
  warp = { "warped lags", "piecewise, mlp, lra" },
  frequency = { "frequencies", "mlp, lra, table" },
}

local function words(domains)
  local list = {}
  for _, name in ipairs(suggest.keys(domains)) do
    list[#list + 1] = asks[name] and asks[name][1] or name
  end
  return table.concat(list, " or ")
end

-- Raises if an encoder, called name in the message, does not take points of a domain.
local function check(name, domains, o, domain)
  if not domains or domains[domain] then return end
  local instead = asks[domain] and "encoder " .. asks[domain][2] .. " or a function"
    or "a function"
  if networks[name] then -- its input is what does not fit
    instead = domain == "frequency" and "input 'integer' (omega itself), 'cos' or 'sincos'"
      or "input 'integer' (the point itself) or 'sincos'"
    name = ("%s with input '%s'"):format(name, o.rpe.input)
  end
  error(core.error("EBACKEND", ("TNO: encoder %s takes %s, and backend '%s' asks by %s: use %s")
    :format(name, words(domains), o.backend, domain, instead)), 0)
end

-- The class and the resolved options of the encoder that the options o of a TNO name, for width
-- numbers per point of a domain. Nothing is made.
function encoders.resolve(o, width, domain)
  local kind, given = kinds[o.encoder](o, domain)
  local resolved = options.check(kind.kind, kind.spec, given, { dim = width })
  return kind, resolved
end

-- The encoder that the options o of a TNO ask for: width numbers per point of a domain.
function encoders.make(o, width, domain)
  local given = networks[o.encoder] and "encoder_options" or "rpe"
  if type(o.encoder) ~= "string" then
    given = next(o.rpe) and "rpe" or "encoder_options"
  end
  if next(o[given]) then
    error(("TNO: option '%s' is not for %s"):format(given, type(o.encoder) == "string"
      and "encoder " .. o.encoder or "an encoder of one's own"), 0)
  end
  if type(o.encoder) ~= "string" then
    local domains = class.ismodule(o.encoder) and o.encoder.domains
    if domains then check(o.encoder.kind, domains, o, domain) end
    return o.encoder
  end
  local kind, resolved = kinds[o.encoder](o, domain)
  if kind.domains then check(o.encoder, kind.domains, o, domain) end
  local encoder = kind(width, resolved)
  check(o.encoder, encoder.domains, o, domain)
  return encoder
end

return encoders
