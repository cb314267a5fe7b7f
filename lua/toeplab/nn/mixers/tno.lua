-- nn/mixers/tno.lua: TNO, the Toeplitz neural operator: an encoder, a decay, and a backend.

local core = require "toeplab.core"
local class = require("toeplab.nn.class")
local act = require "toeplab.nn.act"
local coefficients = require "toeplab.nn.coefficients"
local decays = require "toeplab.nn.mixers.decay"
local encoders = require "toeplab.nn.encoders"
local horizon = require "toeplab.nn.mixers.horizon"
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"

-- y = T x per channel,  T_ij = t_(i-j),  t_k = act(encoder(k) gamma^|k|) (TNN, Eq. 4 and 8).
--   x, y [b,n,dim]
-- The encoder is asked at the points that the backend names, for as many numbers as it wants per
-- channel, by points [p], n and the domain of the points:
--   "mlp"        nn.RPE with the options rpe
--   "lra"        the same, two hidden layers without norm, then a LayerNorm (the LRA models)
--   "table"      nn.Table; by frequency nn.FrequencyTable
--   "piecewise"  nn.Piecewise   "ssm" nn.SSM   "conv" nn.ShortConv: with encoder_options
--   a module or a function of (points, n, domain) -> [p, width dim]
-- It computes in float32 with any precision: rounded factors would put errors into its gradients
-- that are larger than these. An encoder that is not defined at the backend's points is refused
-- (encoders/init.lua). With max_lag or a horizon (horizon.lua) it is evaluated at shorter lags
-- only, and the backend rac then takes n log(lags) steps. Channels are head-major; heads matter
-- only to the decay "alibi".
local TNO = class.class("TNO", {
  { "dim", options.field { type = "int", min = 1 }, "channels" },
  { "causal", true, "position i sees only j <= i" },
  { "heads", options.field { default = 1, min = 1 }, "heads" },
  { "backend", "rac", "which plugin applies the operator; auto: the quickest of one meaning" },
  { "backend_options", {}, "options of the plugin" },
  { "encoder", options.field { type = "class|function|module|string", default = "mlp",
    choices = encoders.names }, "points -> coefficients" },
  { "rpe", {}, "options of encoders mlp and lra" },
  { "table_length", options.field { default = 512, min = 2 }, "lags of encoder table" },
  { "encoder_options", {}, "options of the other encoders" },
  { "decay", decays.decay_option(0.99, "none"), "a number, a list, or one of the words" },
  { "decay_mean", 3.0, "of the decay learnable" },
  { "decay_floor", 0.0, "of the decay learnable" },
  { "act", act.act_option "none", "of the coefficients, after the decay" },
  { "max_lag", options.field { type = "int", min = 1, optional = true },
    "coefficients of this lag and longer ones are 0" },
  { "horizon", horizon.option(), "cut where this share of the decay's sum is left" },
}, { "dim" })

local function decay(o, domain)
  if o.decay == "none" then return nil end
  if domain ~= "lag" then
    error(core.error("EBACKEND", ("TNO: backend '%s' takes coefficients by %s and a decay acts on "
      .. "lags: use decay = 'none'"):format(o.backend, domain)), 0)
  end
  return decays.Decay(o.dim, {
    kind = o.decay, heads = o.heads, mean = o.decay_mean, floor = o.decay_floor,
  })
end

local fills = {
  normal = function(t) return initial.init.normal(t, 0, 1) end,
  uniform = function(t) return initial.init.uniform(t, -1, 1) end,
  zeros = function(t) return t:fill(0) end,
  ones = function(t) return t:fill(1) end,
}

function TNO:build(o)
  if o.dim % o.heads ~= 0 then
    error(("TNO: %d channels do not divide into %d heads"):format(o.dim, o.heads), 0)
  end
  local operator = coefficients.probe(o)
  self.own, self.domain = {}, operator:domain()
  if o.max_lag and self.domain ~= "lag" then
    error(core.error("EBACKEND", ("TNO: backend '%s' takes coefficients by %s, and max_lag is a "
      .. "lag: use a backend that takes lags"):format(o.backend, self.domain)), 0)
  end
  self.cache = coefficients.new(self, operator)
  self.encoder = encoders.make(o, operator:width() * o.dim, self.domain)
  self.decay = decay(o, self.domain)
  for i, p in ipairs(operator:params()) do
    local t = core.zeros(p.shape)
    fills[p.init](t)
    self["backend_" .. p.name] = initial.parameter(t)
    self.own[i] = "backend_" .. p.name
  end
end

-- What is cached for length n: {operator=, points=, asked=, ...} (nn/coefficients.lua).
function TNO:plan(n) return self.cache:at(n) end

-- The backend in use at length n: another word than the option only for "auto".
function TNO:chosen(n) return self:plan(n).operator:chosen() end

-- The coefficients at length n: [p, width dim], rows as the backend's points.
function TNO:coefficients(n) return self.cache:get(n) end

-- How many lags are computed at length n with a horizon, and the bound on what is lost by it
-- (horizon.lua) of those that max_lag leaves: n and 0 without one.
function TNO:horizon(n)
  local o = self.opt
  if not o.horizon then return n, 0.0 end
  return horizon.at(o, math.min(n, o.max_lag or n), self.cache:largest_gamma())
end

local function parameters(self)
  local list = {}
  for i, name in ipairs(self.own) do list[i] = self[name] end
  return list
end

function TNO:forward(x)
  if x:ndim() ~= 3 then
    error(("TNO: x is %s, wanted [b,n,%d]"):format(tostring(x), self.opt.dim), 0)
  end
  if self.stepper then return self.stepper(x) end -- x holds the next positions: toeplab.recurrent
  return self.cache:apply(parameters(self), x)
end

-- The matrices T [dim,n,n] at length n, for looking at them: no gradient.
function TNO:dense(n)
  return core.no_grad(function()
    return self:plan(n).operator:dense(self:coefficients(n), parameters(self))
  end)
end

function TNO:brief()
  local o = self.opt
  local backend, chosen = o.backend, {}
  if backend == "auto" then
    for i, n in ipairs(self.cache.records.keys) do
      chosen[i] = ("%s at %d"):format(self:chosen(n), n)
    end
    backend = "auto" .. (chosen[1] and (" (%s)"):format(table.concat(chosen, ", ")) or "")
  end
  local cut = o.max_lag and ", lags below " .. o.max_lag or ""
  if o.horizon then
    cut = cut .. (", horizon %g: lags below %d"):format(o.horizon, (self:horizon(math.huge)))
  end
  return ("%d channels, %s, %s%s"):format(o.dim, o.causal and "causal" or "bidirectional",
    backend, cut)
end

return { TNO = TNO }
