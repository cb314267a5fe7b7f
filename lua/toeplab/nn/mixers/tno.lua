-- nn/mixers/tno.lua -- TNO, the Toeplitz neural operator: an encoder, a decay, and a backend.

local core = require "toeplab.core"
local choices = require "toeplab.nn.choices"
local class = require("toeplab.nn.class")
local act = require "toeplab.nn.act"
local decays = require "toeplab.nn.mixers.decay"
local encoders = require "toeplab.nn.encoders"
local horizon = require "toeplab.nn.mixers.horizon"
local initial = require "toeplab.nn.initial"
local keep = require "toeplab.nn.kept"
local memo = require "toeplab.nn.memo"
local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

-- Plans in use by any layer, by problem: equal layers share one. A layer keeps those of its last
-- few lengths.
local plans = setmetatable({}, { __mode = "v" })

local function problem(backend, given, ...)
  local words = { backend, ... }
  for _, name in ipairs(suggest.keys(given)) do
    words[#words + 1] = name .. "=" .. tostring(given[name])
  end
  return table.concat(words, " ")
end

local function plan(o, n, backend, given)
  local key = problem(backend, given, n, o.dim, tostring(o.causal))
  if not plans[key] then
    local operator = core.tno(backend, n, o.dim, o.causal, given)
    plans[key] = { operator = operator, points = operator:points() }
  end
  return plans[key]
end

local function takes_lags(backend)
  for _, b in ipairs(core.backends()) do
    for _, option in ipairs(b.name == backend and b.options or {}) do
      if option.name == "lags" then return true end
    end
  end
  return false
end

-- A plan for lags nearer than count, by a backend that need not be told of the others; or nil.
local function short_plan(o, n, count)
  local backend, own = o.backend == "auto" and "rac" or o.backend, o.backend_options.lags
  if not takes_lags(backend) then return nil end
  local given = {}
  for name, value in pairs(o.backend_options) do given[name] = value end
  own = math.tointeger(own) or 0 -- 0: all
  given.lags = own > 0 and math.min(own, count) or count
  return plan(o, n, backend, given)
end

-- The backend in use at length n.
local function backend_of(o, n)
  return o.backend == "auto" and choices.of(n, o.dim, o.causal) or o.backend
end

-- While nn.cached runs, and nn.shared: module -> length -> {coef =, own = what the backend keeps}.
local kept, shared
local order -- of shared: a list of {module, length}

-- Runs fn(...), in which no parameter may change, and computes the coefficients of each TNO once
-- per length as long as nothing is recorded. For evaluation and generation.
local function cached(fn, ...)
  local outer = kept
  kept = kept or setmetatable({}, { __mode = "k" })
  local results = table.pack(pcall(fn, ...))
  kept = outer
  if not results[1] then error(results[2], 0) end
  return table.unpack(results, 2, results.n)
end

-- Runs fn(...), which goes backward from several losses and changes no parameter, and then backward
-- through the encoders, once for all of them: meanwhile the coefficients of each TNO are leaves,
-- computed once per length, where their gradients gather. Encoders of the user's own, which might
-- draw random numbers, run each time.
local function share(fn, ...)
  local outer, outer_order = shared, order
  local mine, list = {}, {}
  shared, order = mine, list
  local results = table.pack(pcall(fn, ...))
  shared, order = outer, outer_order
  if not results[1] then error(results[2], 0) end
  for _, use in ipairs(list) do
    local module, n = table.unpack(use)
    module:descend(n, mine[module][n].coef:grad())
  end
  return table.unpack(results, 2, results.n)
end

-- y = T x per channel,  T_ij = t_(i-j),  t_k = act(encoder(k) gamma^|k|) (TNN, Eq. 4 and 8).
--   x, y [b,n,dim]
-- The encoder is asked at the points that the backend names, for as many numbers as it wants per
-- channel, by points [p], n and the domain of the points:
--   "mlp"        nn.RPE with the options rpe
--   "lra"        the same, two hidden layers without norm, then a LayerNorm (the LRA models)
--   "table"      nn.Table; by frequency nn.FrequencyTable
--   "piecewise"  nn.Piecewise   "ssm" nn.SSM   "conv" nn.ShortConv: with encoder_options
--   a module or a function of (points, n, domain) -> [p, width dim]
-- It is float32 with any precision: rounded factors would make its gradients wrong by more than
-- they are. One that cannot be asked there is refused (encoders.lua). With max_lag or a horizon
-- (horizon.lua) it is asked at shorter lags only, and the backend rac then takes n log(lags) steps.
-- Channels are head-major; heads matter only to the decay "alibi".
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

-- What of an operator a layer cannot change with the length, as text.
local function wants(operator)
  local list = { ("%d numbers per channel by %s"):format(operator:width(), operator:domain()) }
  for _, p in ipairs(operator:params()) do
    list[#list + 1] = ("%s [%s]"):format(p.name, table.concat(p.shape, ","))
  end
  return table.concat(list, ", ")
end

function TNO:build(o)
  if o.dim % o.heads ~= 0 then
    error(("TNO: %d channels do not divide into %d heads"):format(o.dim, o.heads), 0)
  end
  self.plans, self.own = {}, {}
  -- A small one, to learn what the backend wants; what auto chooses from are alike in that.
  local asked = o.backend == "auto" and not next(o.backend_options) and "rac" or o.backend
  local operator = plan(o, 2, asked, o.backend_options).operator
  self.domain, self.wants = operator:domain(), wants(operator)
  if o.max_lag and self.domain ~= "lag" then
    error(core.error("EBACKEND", ("TNO: backend '%s' takes coefficients by %s, and max_lag is a "
      .. "lag: use a backend that takes lags"):format(o.backend, self.domain)), 0)
  end
  self.lags = horizon.lags(o)
  self.encoder = encoders.make(o, operator:width() * o.dim, self.domain)
  self.decay = decay(o, self.domain)
  for i, p in ipairs(operator:params()) do
    local t = core.zeros(p.shape)
    fills[p.init](t)
    self["backend_" .. p.name] = initial.parameter(t)
    self.own[i] = "backend_" .. p.name
  end
end

local warned = {} -- backends with their options: what is true of a layer is so of the others

local function check_wants(self, operator, n)
  local now = wants(operator)
  if now == self.wants then return end
  error(core.error("EBACKEND", ("TNO: backend '%s' wants %s at length %d, and wanted %s when "
    .. "the layer was made: its parameters cannot depend on the length"):format(
    self.opt.backend, now, n, self.wants)), 0)
end

-- What TNO:plan keeps for length n, checked against what the layer was made for.
local function planned(self, n)
  local o, count = self.opt, self.lags
  local cut = count and count < n
  local short = cut and short_plan(o, n, count)
  local shared = short or plan(o, n, backend_of(o, n), o.backend_options)
  local operator, points = shared.operator, shared.points
  check_wants(self, operator, n)
  local why, what = operator:warning(), problem(o.backend, o.backend_options)
  if why and not warned[what] then
    warned[what] = true
    warn("toeplab: ", why)
  end
  local entry = { shared = shared, operator = operator, points = points, asked = points }
  if cut and not short then
    entry.after = n - count
    entry.before = o.causal and 0 or n - count
    entry.asked = points:narrow(1, entry.before + 1, points:dim(1) - entry.before - entry.after)
  end
  return entry
end

local largest = memo.of(function(gamma) return core.no_grad(gamma.amax, gamma):item() end)

-- The largest gamma in use: it is part of the state, and another may have been loaded.
local function gamma_in_use(self) return largest(self.decay:value()) end

-- Forgets plans whose horizon is of another gamma.
local function follow_gamma(self)
  if not self.opt.horizon then return end
  local gamma = gamma_in_use(self)
  if gamma == self.largest then return end
  self.lags, self.plans = horizon.lags(self.opt, gamma), {}
  self.largest = gamma
end

-- The plan for length n: {operator=, points=, asked=}; asked: those points that are not cut off.
function TNO:plan(n)
  follow_gamma(self)
  return keep(self.plans, n, planned, self, n)
end

local function padded(coef, entry)
  local width = coef:dim(2)
  local parts = { coef, core.zeros(entry.after, width) }
  if entry.before > 0 then table.insert(parts, 1, core.zeros(entry.before, width)) end
  return core.concat(parts, 1)
end

-- The backend in use at length n: another word than the option only for "auto".
function TNO:chosen(n) return self:plan(n).operator:chosen() end

-- How many lags are kept at length n with a horizon, and the bound on what is lost by it
-- (horizon.lua) of those that max_lag leaves: n and 0 without one.
function TNO:horizon(n)
  local o = self.opt
  if not o.horizon then return n, 0.0 end
  return horizon.at(o, math.min(n, o.max_lag or n), gamma_in_use(self))
end

local function compute(self, n)
  local entry = self:plan(n)
  local scales = self.decay and class.ismodule(self.encoder) and self.encoder.scales
  local factors = scales and self.decay:factors(entry.asked) or nil
  local coef = core.precision("float32", self.encoder, entry.asked, n, self.domain, factors)
  if self.decay and not factors then coef = self.decay(coef, entry.asked) end
  coef = act.act[self.opt.act](coef)
  return entry.after and padded(coef, entry) or coef
end

-- Backward from the coefficients at length n, whose gradient is given.
function TNO:descend(n, gradient)
  local coef = gradient and compute(self, n)
  if coef and coef:requires_grad() then coef:backward(gradient) end
end

-- What the calls of a module at length n have in common, if they have anything.
local function entry_of(self, n)
  local all = kept
  if core.recording() then all = type(self.opt.encoder) == "string" and shared end
  if not all then return end
  all[self] = all[self] or {}
  local lengths = all[self]
  if lengths[n] then return lengths[n] end
  local coef = core.no_grad(compute, self, n)
  if all == shared and coef:requires_grad() then return end -- a parameter as it is
  lengths[n] = { coef = coef, own = true }
  if all == shared then
    coef:require_grad()
    order[#order + 1] = { self, n }
  end
  return lengths[n]
end

-- The coefficients at length n, and if they are kept the entry that keeps them: nil where it has
-- what the backend made of them.
local function coefficients(self, n)
  local entry = entry_of(self, n)
  if entry then return entry.coef, entry end
  return compute(self, n)
end

-- The coefficients at length n: [p, width dim], rows as the backend's points.
function TNO:coefficients(n) return (coefficients(self, n)) or compute(self, n) end

local function parameters(self)
  local list = {}
  for i, name in ipairs(self.own) do list[i] = self[name] end
  return list
end

function TNO:forward(x)
  if x:ndim() ~= 3 then
    error(("TNO: x is %s, wanted [b,n,%d]"):format(tostring(x), self.opt.dim), 0)
  end
  if self.stepper then return self.stepper(x) end -- the next positions: toeplab.recurrent
  local n = x:dim(2)
  local coef, entry = coefficients(self, n)
  local y, own = self:plan(n).operator:apply(coef, parameters(self), x, entry and entry.own)
  if entry then
    entry.own = own
    if own and not core.recording() then entry.coef = nil end -- whose place it takes
  end
  return y
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
    for i, n in ipairs(self.plans.keys or {}) do
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

return { TNO = TNO, cached = cached, share = share }
