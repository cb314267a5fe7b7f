-- nn/coefficient_cache.lua: computes and caches the coefficients and the plans of a Toeplitz
-- operator (nn/mixers/tno.lua).
--
-- Every TNO owns one cache, which holds a record for each of its last four lengths:
--   operator   the backend's plan, shared by equal layers, freed with the last record that uses it
--   points     the points at which the backend takes coefficients, one row each
--   asked      the part of points at which the encoder is evaluated. max_lag or a horizon cuts the
--              rest, which becomes `before` and `after` rows of zeros (nil: nothing is cut).
-- A record becomes stale only when the largest gamma changes, from which a horizon was computed.
--
-- Coefficients depend on the parameters, so they are cached only while cached() or share() runs,
-- whose callers promise to write no parameter. Each opens a scope that holds, for each layer and
-- length, the coefficients or what the backend prepared from them (such as their spectrum), and is
-- freed when the call ends. The key needs no device, as a program uses one, and no precision, as
-- encoders always compute in float32.

local core = require "toeplab.core"
local act = require "toeplab.nn.act"
local cache = require "toeplab.nn.cache"
local chosen_backends = require "toeplab.nn.chosen_backends"
local class = require "toeplab.nn.class"
local defer = require "toeplab.base.defer"
local horizon = require "toeplab.nn.horizon"
local rows = require "toeplab.nn.encoders.rows"
local shapes = require "toeplab.nn.shapes"
local sorted_keys = require "toeplab.base.sorted_keys"

local coefficient_cache = {}

local Coefficients = {}
Coefficients.__index = Coefficients

-- ---- Plans --------------------------------------------------------------------------------------

local plans = setmetatable({}, { __mode = "v" }) -- problem key -> a plan that a layer still uses

local function problem_key(backend, given, ...)
  local words = { backend, ... }
  for _, name in ipairs(sorted_keys(given)) do
    local value = given[name] -- with all digits of a float, as the engine gets it
    local text = math.type(value) == "float" and ("%.17g"):format(value) or tostring(value)
    words[#words + 1] = name .. "=" .. text
  end
  return table.concat(words, " ")
end

-- dim: the plan's channels; nil: all of o.
local function plan(o, n, backend, given, dim)
  dim = dim or o.dim
  local key = problem_key(backend, given, n, dim, tostring(o.causal))
  if not plans[key] then
    local operator = core.tno(backend, n, dim, o.causal, given)
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

-- Returns a plan for the lags below count if the backend has the option "lags"; else nil, and the
-- caller fills the other lags with zeros.
local function short_plan(o, n, count, dim)
  local backend, own = o.backend == "auto" and "rac" or o.backend, o.backend_options.lags
  if not takes_lags(backend) then return nil end
  local given = {}
  for name, value in pairs(o.backend_options) do given[name] = value end
  own = math.tointeger(own) or 0 -- 0: all
  given.lags = own > 0 and math.min(own, count) or count
  return plan(o, n, backend, given, dim)
end

-- Returns a string of what a layer's parameters depend on: the operator's coefficients per channel,
-- their domain, and its own parameters. A layer cannot change these with the length.
local function requirements(operator)
  local list = { ("%d numbers per channel by %s"):format(operator:width(), operator:domain()) }
  for _, p in ipairs(operator:params()) do
    list[#list + 1] = ("%s [%s]"):format(p.name, table.concat(p.shape, ","))
  end
  return table.concat(list, ", ")
end

-- Returns an operator of length 2 for the options o of a TNO. It shows the backend's requirements
-- at every length; the backends that "auto" chooses from all have the same. dim: as of plan.
function coefficient_cache.probe(o, dim)
  local backend = o.backend == "auto" and not next(o.backend_options) and "rac" or o.backend
  return plan(o, 2, backend, o.backend_options, dim).operator
end

-- ---- Records ------------------------------------------------------------------------------------

local warned = {} -- backends, with their options, whose warning has been printed already

local function check(self, operator, n)
  local o, now = self.layer.opt, requirements(operator)
  if now ~= self.requirements then
    error(core.error("EBACKEND", ("TNO: backend '%s' takes %s at length %d, but took %s when the "
      .. "layer was made: its parameters cannot depend on the length"):format(
      o.backend, now, n, self.requirements)), 0)
  end
  local why, what = operator:warning(), problem_key(o.backend, o.backend_options)
  if why and not warned[what] then
    warned[what] = true
    warn("toeplab: ", why)
  end
end

-- Returns {points = count lags, evenly spaced from the first of asked to the last, places = where
-- those of asked fall between them}; nil if there are not more of these than count.
local function nodes(asked, count)
  local p = asked:dim(1)
  if not count or p <= count then return nil end
  local first, last = rows.span(asked)
  local step = (last - first) / (count - 1)
  return { points = core.affine(core.range(0, count - 1), step, first),
    places = rows.between(asked, function(k) return rows.cell((k - first) / step, count) end) }
end

local function record(self, n)
  local o, count, dim = self.layer.opt, self.lags, self.part and self.part.count
  local cut = count and count < n
  local short = cut and short_plan(o, n, count, dim)
  local backend = o.backend == "auto" and not short and chosen_backends.of(n, o.dim, o.causal)
    or o.backend
  local shared = short or plan(o, n, backend, o.backend_options, dim)
  local operator, points = shared.operator, shared.points
  check(self, operator, n)
  local r = { shared = shared, operator = operator, points = points, asked = points }
  if cut and not short then
    r.before, r.after = o.causal and 0 or n - count, n - count
    r.asked = points:narrow(1, r.before + 1, points:dim(1) - r.before - r.after)
  end
  r.nodes = nodes(r.asked, o.nodes)
  return r
end

-- Drops all records, and makes new ones for the lags that a horizon leaves at the largest gamma.
local function restart(self, gamma)
  self.gamma, self.lags = gamma, horizon.lags(self.layer.opt, gamma)
  self.records = cache.recent(function(n) return record(self, n) end)
end

local largest = cache.reading(function(gamma) return core.no_grad(gamma.amax, gamma):item() end)

-- Returns the largest gamma in use, on which a horizon depends. It is read from the decay rather
-- than from the options, because Module:load may have replaced it.
function Coefficients:largest_gamma() return largest(self.layer.decay:value()) end

function Coefficients:at(n)
  if self.layer.opt.horizon then
    local gamma = self:largest_gamma()
    if gamma ~= self.gamma then restart(self, gamma) end
  end
  return self.records(n)
end

-- Returns the cache of layer, a TNO, whose operators at all lengths must have the requirements of
-- the given one (coefficient_cache.probe). part: the channels that it serves (shapes.part); nil:
-- all.
function coefficient_cache.new(layer, operator, part)
  local self = setmetatable({ layer = layer, requirements = requirements(operator),
    part = part }, Coefficients)
  restart(self)
  return self
end

-- ---- Coefficients -------------------------------------------------------------------------------

-- Returns the encoder's output at length n at the points asked, for the channels of the cache, of
-- which a network computes only these. It is before decay and activation, but for factors (may be
-- nil), which the encoder multiplies in.
function Coefficients:encoded(n, factors)
  local layer, part, r = self.layer, self.part, self:at(n)
  local encoder, asked = layer.encoder, r.nodes and r.nodes.points or r.asked
  local coef
  if part and class.ismodule(encoder) and encoder.scales then
    coef = core.precision("float32", encoder, asked, n, layer.domain, factors, part)
  else
    coef = shapes.part(core.precision("float32", encoder, asked, n, layer.domain, factors), 2, part)
  end
  return r.nodes and rows.interpolate(coef, r.nodes.places) or coef
end

local function compute(self, n)
  local layer, r = self.layer, self:at(n)
  local o, encoder, decay = layer.opt, layer.encoder, layer.decay
  local scales = decay and class.ismodule(encoder) and encoder.scales
    and not (o.act_first or r.nodes)
  local factors = scales and decay:factors(r.asked) or nil
  local coef = self:encoded(n, factors)
  if o.act_first then coef = act.act[o.act](coef) end
  if decay and not factors then coef = decay(coef, r.asked, self.part) end
  if not o.act_first then coef = act.act[o.act](coef) end
  if o.taps > 0 then
    local first = o.causal and 0 or -(o.taps // 2)
    coef = coef + rows.place(shapes.part(layer.taps, 2, self.part), first, r.asked)
  end
  return r.after and shapes.pad(coef, 1, r.before, r.after) or coef
end

-- The open scopes: scopes[false], opened by cached(), serves passes without a tape, scopes[true],
-- opened by share(), passes with one. A scope maps a layer's cache to a table length -> entry
-- {of=, n=, coef=, prepared=, shared=}; a scope also lists its entries in order of first use. The
-- coefficients of share()'s scope, which has shared = true, are leaves.
local scopes = {}

local function within(recorded, scope, fn, ...)
  local outer = scopes[recorded]
  local restore <close> = defer(function() scopes[recorded] = outer end)
  scopes[recorded] = scope
  return fn(...)
end

-- nn.cached(fn, ...): calls fn(...), which must not write any parameter, and computes the
-- coefficients of each TNO only once per length wherever no tape is recorded. Evaluation and
-- generation use it. Returns the results of fn.
function coefficient_cache.cached(fn, ...)
  return within(false, scopes[false] or {}, fn, ...)
end

-- nn.cache(): returns a function like nn.cached, whose calls share one cache until nothing refers
-- to the function any more. No parameter may be written between the calls either.
function coefficient_cache.cache()
  local scope = {}
  return function(fn, ...) return within(false, scope, fn, ...) end
end

-- Backpropagates the gradients of entries through their encoders, in the order of the list.
local function through_encoders(entries)
  for _, entry in ipairs(entries) do
    local gradient = entry.coef:grad()
    local coef = gradient and compute(entry.of, entry.n)
    if coef and coef:requires_grad() then coef:backward(gradient) end
  end
end

-- nn.share(fn, ...): runs each encoder once for several losses. fn calls backward for each loss and
-- must not write any parameter. During the call the coefficients of each TNO are leaf tensors,
-- computed once per length, which accumulate their gradients; then one backward pass takes these
-- through the encoders. A user's encoder may draw random numbers, so it still runs at every call.
-- Returns the results of fn.
function coefficient_cache.share(fn, ...)
  local scope = { shared = true }
  local results = table.pack(within(true, scope, fn, ...))
  through_encoders(scope)
  return table.unpack(results, 1, results.n)
end

-- The same for a process that computes some of the losses. wanted: the entries (of noted()) whose
-- gradients it takes through the encoders, in that order.
function coefficient_cache.share_some(fn, wanted)
  local scope, entries = { shared = true }, {}
  within(true, scope, fn)
  for _, w in ipairs(wanted) do entries[#entries + 1] = scope[w.of] and scope[w.of][w.n] end
  through_encoders(entries)
end

-- Calls fn without a tape. Returns the entries that share() would make for it, {{of=, n=}, ...}, in
-- order of first use.
function coefficient_cache.noted(fn)
  local scope, list = {}, {}
  within(false, scope, core.no_grad, fn)
  for _, entry in ipairs(scope) do
    if type(entry.of.layer.opt.encoder) == "string" then
      list[#list + 1] = { of = entry.of, n = entry.n }
    end
  end
  return list
end

local used -- the list of as_recorded; nil: it does not run

-- Calls fn(...) without a tape, as the rehearsal of a call with one: in share(), both use the same
-- coefficients. Returns the result of fn, and a list of these coefficients.
function coefficient_cache.as_recorded(fn, ...)
  local outer, leaves = used, {}
  local restore <close> = defer(function() used = outer end)
  used = leaves
  local y = within(false, scopes[true] or scopes[false], core.no_grad, fn, ...)
  return y, leaves
end

-- Returns the entry of length n in the open scope, or nil if the coefficients must be computed.
local function entry_of(self, n)
  local scope = scopes[core.recording()]
  local shared = scope and scope.shared
  if not scope or shared and type(self.layer.opt.encoder) ~= "string" then return nil end
  local entries = scope[self] or {}
  scope[self] = entries
  if not entries[n] then
    local coef = core.no_grad(compute, self, n)
    if shared and coef:requires_grad() then return nil end -- the encoder returned a parameter
    entries[n] = { of = self, n = n, coef = coef, prepared = true, shared = shared }
    scope[#scope + 1] = entries[n]
    if shared then coef:require_grad() end
  end
  if shared and used then used[#used + 1] = entries[n].coef end
  return entries[n]
end

-- Returns the coefficients of entries (of noted) that share() holds, as leaves; computes those that
-- this process has not used yet. An encoder that returns a parameter has none.
function coefficient_cache.leaves(entries)
  local leaves = {}
  for _, entry in ipairs(entries) do
    local held = entry_of(entry.of, entry.n)
    leaves[#leaves + 1] = held and held.coef or nil
  end
  return leaves
end

-- Returns the coefficients at length n: [p, width dim], one row per point of the backend.
function Coefficients:get(n)
  local entry = entry_of(self, n)
  return entry and entry.coef or compute(self, n)
end

-- Applies the operator to x [b,n,dim], with the list params of the backend's own parameters, and
-- returns y [b,n,dim].
function Coefficients:apply(params, x)
  local n = x:dim(2)
  local entry = entry_of(self, n)
  local operator, prepared = self:at(n).operator, entry and entry.prepared
  if not entry then return (operator:apply(compute(self, n), params, x)) end
  local y, now = operator:apply(entry.coef, params, x, prepared)
  entry.prepared = now
  if now and not entry.shared then entry.coef = nil end -- only the prepared form is reused
  return y
end

return coefficient_cache
