-- nn/mixers/tno.lua: defines TNO, the Toeplitz neural operator, which joins an encoder, a decay and
-- a backend.

local core = require "toeplab.core"
local class = require("toeplab.nn.class")
local act = require "toeplab.nn.act"
local carry = require "toeplab.nn.mixers.carry"
local coefficient_cache = require "toeplab.nn.coefficient_cache"
local cost = require "toeplab.nn.cost"
local decays = require "toeplab.nn.decay"
local encoders = require "toeplab.nn.encoders"
local horizon = require "toeplab.nn.horizon"
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local sequence = require "toeplab.nn.sequence"
local shapes = require "toeplab.nn.shapes"

-- y = T x per channel,  T_ij = t_(i-j),  t_k = act(encoder(k) gamma^|k|) (TNN, Eq. 4 and 5).
--   x, y [b,n,dim]
-- The backend names the points at which it takes coefficients, their domain ("lag", "warp" or
-- "frequency"), and how many numbers it takes per channel. The encoder computes them:
--   "mlp"        nn.RPE with the options rpe
--   "lra"        the same, two hidden layers without norm, then a LayerNorm (the LRA models)
--   "table"      nn.Table; by frequency nn.FrequencyTable
--   "piecewise"  nn.Piecewise   "ssm" nn.SSM   "conv" nn.ShortConv: with encoder_options
--   a module or a function of (points, n, domain) -> [p, width dim]
-- The encoder always computes in float32, because rounded factors would cause errors larger than
-- its gradients. An encoder that is not defined on the backend's domain is an EBACKEND error
-- (encoders/init.lua). With max_lag or a horizon (horizon.lua) the encoder is evaluated at shorter
-- lags only, and the backend rac then takes n log(lags) steps. Channels are head-major; heads
-- matter to the decay "alibi" only. Options of the published code:
--   act_first   t_k = gamma^|k| act(encoder(k)); with act "exp" its use_exp
--   normalize   y_i = (T x)_i / (T 1)_i, where 1 is a sequence of ones
--   nodes       the encoder is evaluated at this many lags only, evenly spaced, and linear between
--   taps        as many free numbers ~ N(0,1) per channel are added to t_k in the end: of lags
--               0..taps-1 if causal, else of lags from -(taps//2) on
-- The causal code of SKI has encoder "piecewise", decay "none", nodes = r and taps = m//2 + 1.
local TNO = class.class("TNO", {
  { "dim", options.field { type = "int", min = 1 }, "channels" },
  { "causal", true, "position i sees only j <= i" },
  { "heads", options.field { default = 1, min = 1 }, "heads of the decay alibi" },
  { "backend", "rac", "the plugin that applies the operator; auto: the fastest exact one" },
  { "backend_options", {}, "options of the plugin" },
  { "encoder", options.field { type = "class|function|module|string", default = "mlp",
    choices = encoders.names }, "points -> coefficients" },
  { "rpe", {}, "options of encoders mlp and lra" },
  { "table_length", options.field { default = 512, min = 2 }, "lags of the encoder table" },
  { "encoder_options", {}, "options of the other encoders" },
  { "decay", decays.decay_option(0.99, "none"), "gamma: a number, one per channel, or a word" },
  { "decay_mean", 3.0, "mean of the initial parameters of the decay learnable" },
  { "decay_floor", 0.0, "smallest gamma of the decay learnable" },
  { "act", act.act_option "none", "activation of the coefficients, after the decay" },
  { "act_first", false, "apply act before the decay" },
  { "normalize", false, "divide the output by that for a sequence of ones" },
  { "nodes", options.field { type = "int", min = 2, optional = true },
    "lags at which the encoder lra, mlp or piecewise is evaluated; linear between them" },
  { "taps", options.field { default = 0, min = 0 },
    "lags, from 0 or around it, to whose coefficients free numbers are added" },
  { "max_lag", options.field { type = "int", min = 1, optional = true },
    "coefficients of this lag and longer ones are 0" },
  { "horizon", horizon.option(), "cut lags that hold less than this fraction of the decay's sum" },
}, { "dim" },
  "x [b,n,dim] -> [b,n,dim]: a Toeplitz matrix for each channel, of coefficients by an encoder")

local function decay(o, domain)
  if o.decay == "none" then return nil end
  if domain ~= "lag" then
    error(core.error("EBACKEND", ("TNO: backend '%s' takes coefficients by %s, but a decay acts on "
      .. "lags: use decay = 'none'"):format(o.backend, domain)), 0)
  end
  return decays.Decay(o.dim, {
    kind = o.decay, heads = o.heads, mean = o.decay_mean, floor = o.decay_floor,
  })
end

-- Raises if an option that counts lags cannot be used.
local function check_lags(o, domain)
  local smooth = encoders.networks[o.encoder] or o.encoder == "piecewise"
  if o.nodes and not smooth then
    error(("TNO: nodes requires encoder lra, mlp or piecewise, not %s"):format(
      type(o.encoder) == "string" and o.encoder or "one of your own"), 0)
  end
  for name, given in pairs { max_lag = o.max_lag ~= nil, nodes = o.nodes ~= nil,
    taps = o.taps > 0 } do
    if given and domain ~= "lag" then
      error(core.error("EBACKEND", ("TNO: backend '%s' takes coefficients by %s, but %s is for "
        .. "lags: use a backend that takes lags"):format(o.backend, domain, name)), 0)
    end
  end
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
  local operator = coefficient_cache.probe(o)
  self.own, self.domain = {}, operator:domain()
  check_lags(o, self.domain)
  self.cache = coefficient_cache.new(self, operator)
  self.encoder = encoders.make(o, operator:width() * o.dim, self.domain)
  self.decay = decay(o, self.domain)
  if o.taps > 0 then
    self.taps = initial.parameter(initial.init.normal(core.zeros(o.taps, o.dim), 0, 1))
  end
  for i, p in ipairs(operator:params()) do
    local t = core.zeros(p.shape)
    fills[p.init](t)
    self["backend_" .. p.name] = initial.parameter(t)
    self.own[i] = "backend_" .. p.name
  end
end

-- Returns the cached record of length n: {operator=, points=, asked=, ...}.
function TNO:plan(n) return self.cache:at(n) end

-- Returns the name of the backend at length n, which differs from the option only for "auto".
function TNO:chosen(n) return self:plan(n).operator:chosen() end

-- Returns the coefficients at length n: [p, width dim], one row per point of the backend.
function TNO:coefficients(n) return self.cache:get(n) end

-- The backends whose operator is the same at any length, but for rounding.
local exact = { auto = true, fft = true, matrix = true, naive = true, rac = true }

-- Returns whether the coefficients of a lag, and the sums of them, are the same at any length.
function TNO:is_steady()
  local o = self.opt
  return exact[o.backend] and self.domain == "lag" and class.ismodule(self.encoder)
    and self.encoder.by_point and not o.nodes and (o.causal or not o.normalize) or false
end

-- Returns how many lags a horizon leaves at length n, and the bound on the error of cutting the
-- others (horizon.lua), among the lags below max_lag; n and 0 without a horizon.
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

-- Returns the cache for this rank's channels in the group that cuts sequences.
local function part_cache(self, group)
  local part = sequence.part(group, self.opt.dim)
  local key = part.first .. " " .. part.count
  self.parts = self.parts or {}
  if not self.parts[key] then
    local operator = coefficient_cache.probe(self.opt, part.count)
    self.parts[key] = coefficient_cache.new(self, operator, part)
  end
  return self.parts[key]
end

-- Exchanges this rank's tokens of all channels for all tokens of its channels, applies the operator
-- to these, and exchanges the results back.
local function among_ranks(self, x, group)
  local cache, own = part_cache(self, group), parameters(self)
  for i, p in ipairs(own) do own[i] = shapes.part(p, 2, cache.part) end
  return group:to_tokens(cache:apply(own, group:to_channels(x)))
end

-- Returns T x.
local function product(self, x)
  local group = sequence.group()
  if group then return among_ranks(self, x, group) end
  return self.cache:apply(parameters(self), x)
end

-- Returns T x / T 1. The sequence of ones is one more row of the batch.
local function normalized(self, x)
  local b = x:dim(1)
  local y = product(self, core.concat({ x, core.ones(1, x:dim(2), x:dim(3)) }, 1))
  return y:narrow(1, 1, b) / y:narrow(1, b + 1, 1)
end

-- Returns T x of the positions of x, which follow those of self.carry (carry.lua): a product of the
-- inputs kept there and these.
local function continued(self, x)
  local before = self.carry.inputs
  local kept = before and carry.state_of(self.carry, "inputs", { x:dim(1) }):dim(2) or 0
  local all = before and core.concat({ before, x }, 2) or x
  self.carry.inputs = all
  return product(self, all):narrow(2, kept + 1, x:dim(2))
end

function TNO:forward(x)
  if x:ndim() ~= 3 then
    error(("TNO: x is %s, not [b,n,%d]"):format(tostring(x), self.opt.dim), 0)
  end
  if self.stepper then return self.stepper(x) end -- x holds the next positions: toeplab.recurrent
  if self.carry then return continued(self, x) end
  return (self.opt.normalize and normalized or product)(self, x)
end

-- ---- What it costs -----------------------------------------------------------------------------

TNO.apart = { encoder = true } -- applied to points, not to positions

-- Returns how many lags of each sign max_lag or a horizon leaves at length n.
local function lags(self, n)
  return math.min(n, self.cache.lags or n)
end

-- Returns at how many points the encoder is evaluated at length n.
local function points(self, n)
  local o = self.opt
  if self.domain ~= "lag" then
    local operator <close> = core.tno(o.backend, n // 1 | 0, 1, o.causal, o.backend_options)
    return operator:points():dim(1)
  end
  return o.causal and lags(self, n) or 2 * lags(self, n) - 1
end

-- The FLOP of one channel of n positions by backends that use no transforms of n numbers.
local arithmetic = {
  naive = function(o, n, count)
    local cut = (count - 1.0) * count / 2 -- missing products at an end of the sequence
    return 2 * (o.causal and n * count - cut or n * (2.0 * count - 1) - 2 * cut)
  end,
  matrix = function(_, n) return 2.0 * n * n end,
  ski = function(o, n)
    local r, taps = o.backend_options.inducing or 64, o.backend_options.taps or 32
    return n * (2.0 * taps + 8) + (o.causal and 2.0 * r * r or cost.convolution(r, r))
  end,
}

-- Returns the FLOP and the numbers stored for the coefficients and their transform, which all
-- sequences share.
function TNO:coefficients_cost(n)
  local o, p, flop, numbers = self.opt, points(self, n), 0.0, 0.0
  if class.ismodule(self.encoder) then
    flop, numbers = self.encoder:cost(math.min(p, o.nodes or p))
  end
  if not arithmetic[o.backend] then flop = flop + o.dim * cost.transform(2 * lags(self, n)) end
  return flop, numbers + 1.0 * p * o.dim
end

-- Returns the FLOP and the numbers stored to apply the operator to a sequence of n positions. auto
-- counts as rac.
function TNO:lines_cost(n)
  local o = self.opt
  local formula, count = arithmetic[o.backend], lags(self, n)
  local each = formula and formula(o, n, count) or cost.convolution(n, count)
  return each * o.dim, 2.0 * n * o.dim
end

function TNO:own_cost(n)
  local flop, numbers = self:coefficients_cost(n)
  local more, more_numbers = self:lines_cost(n)
  return flop + more, numbers + more_numbers
end

-- Returns the matrices T [dim,n,n] at length n, with normalize those of rows divided by their sums.
function TNO:dense(n)
  local t = self:plan(n).operator:dense(self:coefficients(n), parameters(self))
  return self.opt.normalize and t / t:sum(3):reshape(-1, n, 1) or t
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

TNO.ignores_later = true

return { TNO = TNO }
