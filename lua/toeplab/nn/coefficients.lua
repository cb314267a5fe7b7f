-- nn/coefficients.lua: the cache of a Toeplitz operator (nn/mixers/tno.lua): what the operator
-- applies at each length, how it is computed, and how long it is held.
--
-- Every TNO owns one cache, which holds for each of its last four lengths a record:
--   operator   the plan of the backend: equal layers share one, freed with the last record of it
--   points     where the backend wants coefficients, one row each
--   asked      the part of points at which the encoder is evaluated: max_lag or a horizon cut the
--              rest, which becomes before and after rows of zeros (nil: nothing is cut)
-- A record is stale only when the largest gamma changes that a horizon was computed from.
--
-- Coefficients depend on the parameters, so they are cached only while cached() or share() run,
-- whose callers promise that no parameter is written meanwhile. They open a scope that holds for
-- each layer and length the coefficients, or what the backend prepared from them (their spectrum,
-- say); all of it is freed when the call ends. The device is no part of a key, as a program has
-- one; nor is the precision, as encoders are float32 in all of them.

local core = require "toeplab.core"
local act = require "toeplab.nn.act"
local cache = require "toeplab.nn.cache"
local choices = require "toeplab.nn.choices"
local class = require "toeplab.nn.class"
local defer = require "toeplab.base.defer"
local horizon = require "toeplab.nn.mixers.horizon"
local suggest = require "toeplab.base.suggest"

local coefficients = {}

local Coefficients = {}
Coefficients.__index = Coefficients

-- ---- Plans --------------------------------------------------------------------------------------

local plans = setmetatable({}, { __mode = "v" }) -- in use by any layer, by problem

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

-- A plan for lags below count, by a backend that need not be given the others; or nil.
local function short_plan(o, n, count)
  local backend, own = o.backend == "auto" and "rac" or o.backend, o.backend_options.lags
  if not takes_lags(backend) then return nil end
  local given = {}
  for name, value in pairs(o.backend_options) do given[name] = value end
  own = math.tointeger(own) or 0 -- 0: all
  given.lags = own > 0 and math.min(own, count) or count
  return plan(o, n, backend, given)
end

-- What of an operator a layer cannot change with the length, as text.
local function wants(operator)
  local list = { ("%d numbers per channel by %s"):format(operator:width(), operator:domain()) }
  for _, p in ipairs(operator:params()) do
    list[#list + 1] = ("%s [%s]"):format(p.name, table.concat(p.shape, ","))
  end
  return table.concat(list, ", ")
end

-- An operator of length 2 for the options o of a TNO, which tells what the backend wants of every
-- length. The backends that "auto" chooses from want the same.
function coefficients.probe(o)
  local backend = o.backend == "auto" and not next(o.backend_options) and "rac" or o.backend
  return plan(o, 2, backend, o.backend_options).operator
end

-- ---- Records ------------------------------------------------------------------------------------

local warned = {} -- backends with their options, whose warning has been given once

local function check(self, operator, n)
  local o, now = self.layer.opt, wants(operator)
  if now ~= self.wants then
    error(core.error("EBACKEND", ("TNO: backend '%s' wants %s at length %d, and wanted %s when "
      .. "the layer was made: its parameters cannot depend on the length"):format(
      o.backend, now, n, self.wants)), 0)
  end
  local why, what = operator:warning(), problem(o.backend, o.backend_options)
  if why and not warned[what] then
    warned[what] = true
    warn("toeplab: ", why)
  end
end

local function record(self, n)
  local o, count = self.layer.opt, self.lags
  local cut = count and count < n
  local short = cut and short_plan(o, n, count)
  local backend = o.backend == "auto" and not short and choices.of(n, o.dim, o.causal) or o.backend
  local shared = short or plan(o, n, backend, o.backend_options)
  local operator, points = shared.operator, shared.points
  check(self, operator, n)
  local r = { shared = shared, operator = operator, points = points, asked = points }
  if cut and not short then
    r.before, r.after = o.causal and 0 or n - count, n - count
    r.asked = points:narrow(1, r.before + 1, points:dim(1) - r.before - r.after)
  end
  return r
end

-- Drops all records; from now on they hold the lags that gamma, the largest in use, leaves.
local function restart(self, gamma)
  self.gamma, self.lags = gamma, horizon.lags(self.layer.opt, gamma)
  self.records = cache.recent(function(n) return record(self, n) end)
end

local largest = cache.reading(function(gamma) return core.no_grad(gamma.amax, gamma):item() end)

-- The largest gamma in use, for a horizon: the decay is part of the state, and another one may have
-- been loaded.
function Coefficients:largest_gamma() return largest(self.layer.decay:value()) end

-- The record of length n.
function Coefficients:at(n)
  if self.layer.opt.horizon then
    local gamma = self:largest_gamma()
    if gamma ~= self.gamma then restart(self, gamma) end
  end
  return self.records(n)
end

-- The cache of a TNO that applies operators like the given one.
function coefficients.new(layer, operator)
  local self = setmetatable({ layer = layer, wants = wants(operator) }, Coefficients)
  restart(self)
  return self
end

-- ---- Coefficients -------------------------------------------------------------------------------

local function padded(coef, r)
  local width = coef:dim(2)
  local parts = { coef, core.zeros(r.after, width) }
  if r.before > 0 then table.insert(parts, 1, core.zeros(r.before, width)) end
  return core.concat(parts, 1)
end

local function compute(self, n)
  local layer, r = self.layer, self:at(n)
  local encoder, decay = layer.encoder, layer.decay
  local scales = decay and class.ismodule(encoder) and encoder.scales
  local factors = scales and decay:factors(r.asked) or nil
  local coef = core.precision("float32", encoder, r.asked, n, layer.domain, factors)
  if decay and not factors then coef = decay(coef, r.asked) end
  coef = act.act[layer.opt.act](coef)
  return r.after and padded(coef, r) or coef
end

-- Scopes that are open, by whether they are for passes that are recorded: that of cached() under
-- false, that of share() under true. A scope is layer's cache -> length -> entry {coef =,
-- prepared =}; one of share() lists its entries in the order of their first use as well.
local scopes = {}

local function within(recorded, scope, fn, ...)
  local outer = scopes[recorded]
  local restore <close> = defer(function() scopes[recorded] = outer end)
  scopes[recorded] = scope
  return fn(...)
end

-- Calls fn(...), in which no parameter may be written, and computes the coefficients of each TNO
-- once per length as long as nothing is recorded. For evaluation and generation.
function coefficients.cached(fn, ...)
  return within(false, scopes[false] or {}, fn, ...)
end

-- Calls fn(...), which goes backward from several losses and writes no parameter, and then goes
-- backward through the encoders, once for all losses: meanwhile the coefficients of each TNO are
-- leaves, computed once per length, which accumulate their gradients. Encoders of the user's own,
-- which might draw random numbers, run at each call.
function coefficients.share(fn, ...)
  local scope = {}
  local results = table.pack(within(true, scope, fn, ...))
  for _, entry in ipairs(scope) do
    local gradient = entry.coef:grad()
    local coef = gradient and compute(entry.of, entry.n)
    if coef and coef:requires_grad() then coef:backward(gradient) end
  end
  return table.unpack(results, 1, results.n)
end

-- The entry of length n in the scope that is open, or nil.
local function entry_of(self, n)
  local recorded = core.recording()
  local scope = scopes[recorded]
  if not scope or recorded and type(self.layer.opt.encoder) ~= "string" then return nil end
  local entries = scope[self] or {}
  scope[self] = entries
  if entries[n] then return entries[n] end
  local coef = core.no_grad(compute, self, n)
  if recorded and coef:requires_grad() then return nil end -- a parameter itself is no new leaf
  entries[n] = { of = self, n = n, coef = coef, prepared = true }
  if recorded then
    coef:require_grad()
    scope[#scope + 1] = entries[n]
  end
  return entries[n]
end

-- The coefficients at length n: [p, width dim], rows as the backend's points.
function Coefficients:get(n)
  local entry = entry_of(self, n)
  return entry and entry.coef or compute(self, n)
end

-- The operator of x's length on x [b,n,dim], with the backend's own parameters params.
function Coefficients:apply(params, x)
  local n = x:dim(2)
  local entry = entry_of(self, n)
  local operator, prepared = self:at(n).operator, entry and entry.prepared
  if not entry then return (operator:apply(compute(self, n), params, x)) end
  local y, now = operator:apply(entry.coef, params, x, prepared)
  entry.prepared = now
  if now and not core.recording() then entry.coef = nil end -- what is prepared replaces it
  return y
end

return coefficients
