-- verify/conformance.lua: compares an operator backend with the definition over a table of shapes:
-- forward, both adjoints and the dense form, on random numbers.
--
-- For coefficients by lag or frequency, the definition is the backend naive with the same kernel.
-- Otherwise it is a matrix that is linear in the coefficients and in the backend's parameters, from
-- definition.lua or else from the backend's own dense form for unit coefficients, which only checks
-- that the backend is consistent.
local core = require "toeplab.core"
local definition = require "toeplab.verify.definition"
local overlay = require "toeplab.base.overlay"
local reference = require "toeplab.verify.reference"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"

local conformance = {}

-- The shapes {b, n, d}: one token, even and odd, prime, powers of two and their neighbours, and
-- many blocks of a backend that computes by blocks.
local shapes = {
  { 1, 1, 1 }, { 2, 1, 3 }, { 2, 2, 3 }, { 1, 3, 2 }, { 3, 7, 4 }, { 2, 16, 3 }, { 2, 31, 5 },
  { 1, 64, 8 }, { 2, 100, 3 }, { 1, 127, 2 }, { 1, 128, 4 }, { 1, 257, 3 },
  { 2, 449, 2 }, { 1, 1000, 2 }, { 1, 2049, 1 },
}

-- For each backend with options that change the operator, the options to test.
local variants = {
  fd = { {}, { size = "power2" }, { size = "good" } },
  ski = {
    { inducing = 4, taps = 3, lambda = 0.9 },
    { inducing = 5, taps = 4, lambda = 0.9, span = "n", zero = "literal" },
    { inducing = 3, taps = 2, lambda = 0.9, zero = "mean" },
    { inducing = 6, taps = 1, lambda = 0.9, interpolation = "cubic" },
    { inducing = 4, lambda = 0.9, parts = "low-rank" },
    { taps = 5, parts = "sparse" },
    { inducing = 4, taps = 4, lambda = 0.9, as_published = true },
  },
}

-- The longest sequence for which a definition that is not by lag is written out as matrices.
local LONGEST = { frequency = 1000, warp = 257 }
local ENTRIES = 4000000 -- largest number of entries of the matrices of unit coefficients

local function random(stream, ...)
  return stream:normal(core.zeros(...), 0, 1)
end

-- Returns a backend's operator, or nil and why the backend refuses it.
local function operator(backend, shape, causal, options)
  local ok, o = pcall(core.tno, backend, shape[2], shape[3], causal, options)
  if ok then return o end
  if o.status ~= "EBACKEND" then error(o, 0) end
  local why = errors.text(o)
  -- Drops the shape from the message, so that equal reasons are printed once.
  return nil, why:match "does not take n %d+, d %d+, [%a ]+: (.*)" or why
end

local function random_inputs(o, shape, stream)
  local b, n, d = table.unpack(shape)
  local inputs = { x = random(stream, b, n, d), dy = random(stream, b, n, d), params = {} }
  inputs.coef = random(stream, o:points():dim(1), o:width() * d)
  for i, p in ipairs(o:params()) do inputs.params[i] = random(stream, table.unpack(p.shape)) end
  return inputs
end

-- Collects y and the gradients of apply(coef, params, x), and the result of dense(coef, params).
local function answer(o, inputs, apply, dense)
  local x, coef = inputs.x:clone():require_grad(), inputs.coef:clone():require_grad()
  local params, outputs = {}, {}
  for i, p in ipairs(inputs.params) do params[i] = p:clone():require_grad() end
  local y = apply(coef, params, x);
  (y * inputs.dy):sum():backward()
  outputs[1] = { "y", y }
  outputs[2] = { "dcoef", coef:grad() }
  for i, p in ipairs(o:params()) do table.insert(outputs, { "d" .. p.name, params[i]:grad() }) end
  table.insert(outputs, { "dx", x:grad() })
  table.insert(outputs, { "dense", core.no_grad(dense, coef, params) })
  return outputs
end

local function compare(o, inputs, apply, dense)
  local results, want = {}, answer(o, inputs, apply, dense) -- one per non-empty output
  local got = answer(o, inputs, function(...) return o:apply(...) end,
    function(...) return o:dense(...) end)
  for i, output in ipairs(got) do
    local name, t = output[1], output[2]
    if t:numel() > 0 then
      table.insert(results, { name = name, error = reference.distance(t, want[i][2]) })
    end
  end
  return results
end

-- ---- By lag and by frequency --------------------------------------------------------------------

-- Returns, for each lag from 0 on, the index of the backend's point at this lag, or the number of
-- points if there is none; nil if a point is not a lag, or two are the same. Lags beyond the
-- sequence are dropped.
local function placement(points, lags, n)
  local place, rows = {}, {}
  for i, lag in ipairs(lags) do place[lag], rows[i] = i, #points end
  for p, lag in ipairs(points) do
    local i = place[lag]
    if i and rows[i] ~= #points or not i and (lag % 1 ~= 0 or math.abs(lag) < n) then return nil end
    if i then rows[i] = p - 1 end
  end
  return core.ids(rows)
end

-- Computes by naive with the coefficients kernel(coef) by lag.
local function by_naive(o, inputs, causal, kernel)
  local n, d = inputs.x:dim(2), inputs.x:dim(3)
  local naive = core.tno("naive", n, d, causal)
  local function apply(coef, _, x) return naive:apply(kernel(coef), {}, x) end
  return compare(o, inputs, apply, function(coef) return naive:dense(kernel(coef), {}) end)
end

local compares = {} -- domain -> function of (o, inputs, causal): results, or nil and the reason

function compares.lag(o, inputs, causal)
  local n = inputs.x:dim(2)
  local all = core.tno("naive", n, 1, causal):points():totable()
  local places = placement(o:points():totable(), all, n)
  if not places then return nil, "its points are not lags, each once" end
  local none = core.zeros(1, inputs.coef:dim(2))
  return by_naive(o, inputs, causal, function(coef)
    return core.concat({ coef, none }, 1):gather(places)
  end)
end

function compares.frequency(o, inputs, causal)
  local d, points = inputs.x:dim(3), o:points():totable()
  local half = #points - 1
  for m, omega in ipairs(points) do
    if not (math.abs(omega - math.pi * (m - 1) / half) < 1e-5) then
      return nil, "its points are not even frequencies from 0 to pi"
    end
  end
  local cosines, sines = definition.frequency(half, inputs.x:dim(2), causal)
  return by_naive(o, inputs, causal, function(coef)
    local kernel = core.matmul(cosines, coef:narrow(2, 1, d))
    if o:width() == 1 then return kernel end
    return kernel + core.matmul(sines, coef:narrow(2, d + 1, d))
  end)
end

-- ---- By a matrix --------------------------------------------------------------------------------

-- Returns the matrices that o produces for unit entries of t, a zero tensor among all = {coef,
-- params...} whose last axis is the channels: [d, entries of a channel, n n].
local function units(o, all, t, d)
  local list, rows = {}, t:numel() // d
  local params = table.move(all, 2, #all, 1, {})
  for i = 1, rows do
    local one = t:view((i - 1) * d, { d })
    one:fill(1)
    list[i] = o:dense(all[1], params):reshape(d, 1, -1)
    one:fill(0)
  end
  return core.concat(list, 2)
end

-- Returns the matrices of units for the coefficients and each parameter, or nil and why there are
-- none.
local function all_units(o, inputs)
  local n, d, all, list = inputs.x:dim(2), inputs.x:dim(3), {}, {}
  for i, t in ipairs { inputs.coef, table.unpack(inputs.params) } do
    all[i] = core.zeros(t:shape())
    if t:dim(-1) % d ~= 0 then return nil, "one of its parameters is not per channel" end
    if t:numel() * n * n > ENTRIES then return nil, "its matrices of units are too large" end
  end
  for i, t in ipairs(all) do list[i] = t:numel() > 0 and units(o, all, t, d) end
  return list
end

-- Returns [d,n,n]: the sum over t in {coef, params...} and entries e of t_e unit_e.
local function total(tensors, list, n, d)
  local sum
  for i, t in ipairs(tensors) do
    if t:numel() > 0 then
      local rows = t:reshape(-1, d):transpose(1, 2):reshape(d, 1, -1)
      local part = core.matmul(rows, list[i])
      sum = sum and sum + part or part
    end
  end
  return sum:reshape(d, n, n)
end

local function by_matrix(o, inputs, list)
  local n, d = inputs.x:dim(2), inputs.x:dim(3)
  local function dense(coef, params) return total({ coef, table.unpack(params) }, list, n, d) end
  return compare(o, inputs, function(coef, params, x)
    local y = core.matmul(x:permute { 3, 1, 2 }, dense(coef, params), false, true)
    return y:permute { 2, 3, 1 }
  end, dense)
end

local function by_itself(o, inputs)
  local list, why = core.no_grad(all_units, o, inputs)
  if not list then return nil, why end
  return by_matrix(o, inputs, list)
end

-- ---- Shapes -------------------------------------------------------------------------------------

local function check(backend, shape, causal, options, stream)
  local o, why = operator(backend, shape, causal, options)
  if not o then return nil, why end
  if shape[2] > (LONGEST[o:domain()] or shape[2]) then
    return nil, "the matrices of its definition are too large"
  end
  local inputs = random_inputs(o, shape, stream)
  local by_domain = compares[o:domain()]
  if by_domain and #o:params() == 0 then return by_domain(o, inputs, causal) end
  local list = backend == "ski" and definition.ski(options, shape[2], causal)
  if list then return by_matrix(o, inputs, list) end
  return by_itself(o, inputs)
end

local function name_of(shape, causal, options)
  local words = { ("%s_b%d_n%d_d%d"):format(causal and "causal" or "bidir", table.unpack(shape)) }
  for _, key in ipairs(sorted_keys(options)) do
    words[#words + 1] = key .. "=" .. tostring(options[key])
  end
  return table.concat(words, " ")
end

-- Compares a backend on each shape, with the options `given` over its first variant's, or else with
-- all its variants; found(name, kind, backend, results, why) is called as in reference.run.
function conformance.run(backend, given, found)
  local stream, list = core.stream(1, "conformance"), variants[backend] or { {} }
  for _, options in ipairs(next(given) and { overlay(list[1], given) } or list) do
    for _, shape in ipairs(shapes) do
      for _, causal in ipairs { true, false } do
        local name = name_of(shape, causal, options)
        local ok, results, why = pcall(check, backend, shape, causal, options, stream)
        core.tape_clear()
        if not ok then
          results = { { name = "run", error = math.huge, why = errors.text(results) } }
        end
        found(name, "conformance", backend, results or nil, why)
      end
    end
  end
end

return conformance
