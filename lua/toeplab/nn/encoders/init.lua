-- nn/encoders/init.lua: makes the encoder that a TNO's options name, and checks that it is defined
-- at the points where the backend takes coefficients.

local core = require "toeplab.core"
local class = require "toeplab.nn.class"
local FrequencyTable = require("toeplab.nn.encoders.table").FrequencyTable
local options = require "toeplab.base.options"
local overlay = require "toeplab.base.overlay"
local Piecewise = require("toeplab.nn.encoders.piecewise").Piecewise
local RPE = require("toeplab.nn.encoders.rpe").RPE
local ShortConv = require("toeplab.nn.encoders.shortconv").ShortConv
local SSM = require("toeplab.nn.encoders.ssm").SSM
local sorted_keys = require "toeplab.base.sorted_keys"
local Table = require("toeplab.nn.encoders.table").Table

local encoders = {}

-- The network of the LRA models: two hidden layers without a norm, then one LayerNorm.
local lra = { layers = 2, norm = "none", output_norm = "layernorm" }

-- Maps the name of an encoder to a function that returns its class and its options for a TNO with
-- options o.
local kinds = {
  mlp = function(o) return RPE, o.rpe end,
  lra = function(o) return RPE, overlay(lra, o.rpe) end,
  table = function(o, domain)
    if domain == "frequency" then return FrequencyTable, o.encoder_options end
    return Table, overlay({ length = o.table_length }, o.encoder_options)
  end,
  piecewise = function(o) return Piecewise, o.encoder_options end,
  ssm = function(o) return SSM, overlay({ causal = o.causal }, o.encoder_options) end,
  conv = function(o) return ShortConv, overlay({ causal = o.causal }, o.encoder_options) end,
}
encoders.names = sorted_keys(kinds)
encoders.networks = { mlp = true, lra = true } -- the encoders that take the options rpe

-- The words for the points of each domain in messages.
local called = { lag = "lags", warp = "warped lags", frequency = "frequencies" }

local function words(domains)
  local list = {}
  for i, name in ipairs(sorted_keys(domains)) do list[i] = called[name] or name end
  return table.concat(list, " or ")
end

-- Lists, for a message, the encoders that take points of a domain.
local function takers(o, domain)
  local list = {}
  for _, name in ipairs(encoders.names) do
    if kinds[name](o, domain).domains[domain] then list[#list + 1] = name end
  end
  local first = #list > 0 and "encoder " .. table.concat(list, ", ") .. " or " or ""
  return first .. "a function"
end

-- Raises if an encoder, called name in the message, does not take points of a domain.
local function check(name, domains, o, domain)
  if domains[domain] then return end
  local instead = takers(o, domain)
  if encoders.networks[name] then -- only its input does not fit
    instead = domain == "frequency" and "input 'integer' (omega itself), 'cos' or 'sincos'"
      or "input 'integer' (the point itself) or 'sincos'"
    name = ("%s with input '%s'"):format(name, o.rpe.input)
  end
  error(core.error("EBACKEND", ("TNO: encoder %s takes %s, but backend '%s' works by %s: use %s")
    :format(name, words(domains), o.backend, domain, instead)), 0)
end

-- Returns the class and the resolved options of the encoder that the options o of a TNO name, for
-- width numbers per point of a domain, without making the encoder.
function encoders.resolve(o, width, domain)
  local kind, given = kinds[o.encoder](o, domain)
  local resolved = options.check(kind.kind, kind.spec, given, { dim = width })
  return kind, resolved
end

-- Makes the encoder that the options o of a TNO name, with width numbers per point of a domain. An
-- encoder that is not defined on that domain is an EBACKEND error.
function encoders.make(o, width, domain)
  local given = encoders.networks[o.encoder] and "encoder_options" or "rpe"
  if type(o.encoder) ~= "string" and not class.isclass(o.encoder) then
    given = next(o.rpe) and "rpe" or "encoder_options"
  end
  if next(o[given]) then
    error(("TNO: option '%s' cannot be combined with %s"):format(given, type(o.encoder) == "string"
      and "encoder " .. o.encoder or "an encoder given as a class, module or function"), 0)
  end
  if type(o.encoder) ~= "string" then
    local encoder = class.isclass(o.encoder) and o.encoder(width, o.encoder_options) or o.encoder
    local domains = class.ismodule(encoder) and encoder.domains
    if domains then check(encoder.kind, domains, o, domain) end
    return encoder
  end
  local kind, resolved = kinds[o.encoder](o, domain)
  check(o.encoder, kind.domains, o, domain)
  local encoder = kind(width, resolved)
  check(o.encoder, encoder.domains, o, domain)
  return encoder
end

return encoders
