-- conformance.lua: puts an operator backend beside naive, the definition, over a table of shapes:
-- forward, both adjoints and the dense form on random numbers.
local core = require "toeplab.core"
local reference = require "toeplab.reference"
local stop = require "toeplab.stop"

local conformance = {}

-- {b, n, d}: one token, even and odd, prime, powers of two and their neighbours.
local shapes = {
  { 1, 1, 1 }, { 2, 1, 3 }, { 2, 2, 3 }, { 1, 3, 2 }, { 3, 7, 4 }, { 2, 16, 3 }, { 2, 31, 5 },
  { 1, 64, 8 }, { 2, 100, 3 }, { 1, 127, 2 }, { 1, 128, 4 }, { 1, 257, 3 },
}

local function random(stream, ...)
  return stream:normal(core.zeros(...), 0, 1)
end

-- The operator of a backend that takes coefficients by lag, or nil and why it does not.
local function operator(backend, shape, causal)
  local ok, o = pcall(core.tno, backend, shape[2], shape[3], causal)
  if not ok and o.status == "EBACKEND" then return nil, stop.text(o) end
  if not ok then error(o, 0) end
  if o:domain() ~= "lag" or #o:params() > 0 then return nil, "its coefficients are not by lag" end
  return o
end

-- The matrix [lags,p] that puts the coefficients at the points of a backend, which may name some
-- lags only, in the places of all; nil if a point is no lag. One beyond the sequence has no place.
local function placement(o, all, n)
  local place, rows = {}, {}
  for i, lag in ipairs(all:points():totable()) do place[lag], rows[i] = i, {} end
  for p, lag in ipairs(o:points():totable()) do
    if lag % 1 ~= 0 or (not place[lag] and math.abs(lag) < n) then return nil end
    for i in ipairs(rows) do rows[i][p] = i == place[lag] and 1 or 0 end
  end
  return core.tensor(rows)
end

-- What an operator gives: y, the gradients and the dense form.
local function answer(o, inputs, coefficients)
  local x, coef = inputs.x:clone():require_grad(), coefficients:clone():require_grad()
  local y = o:apply(coef, {}, x);
  (y * inputs.dy):sum():backward()
  return { y = y, dx = x:grad(), dcoef = coef:grad(), dense = o:dense(coef, {}) }
end

-- The distances of a backend's answers from those of naive, whose coefficients at the lags that the
-- backend does not name are 0; or nil and why they cannot be compared.
local function compare(backend, shape, causal, stream)
  local b, n, d = table.unpack(shape)
  local o, why = operator(backend, shape, causal)
  if not o then return nil, why end
  local all = core.tno("naive", n, d, causal)
  local places = placement(o, all, n)
  if not places then return nil, "its points are not lags" end
  local inputs = { x = random(stream, b, n, d), dy = random(stream, b, n, d) }
  local coef = random(stream, places:dim(2), d)
  local got, want = answer(o, inputs, coef), answer(all, inputs, core.matmul(places, coef))
  want.dcoef = core.matmul(places, want.dcoef, true)
  local results = {}
  for i, output in ipairs { "y", "dcoef", "dx", "dense" } do
    results[i] = { name = output, error = reference.distance(got[output], want[output]) }
  end
  return results
end

-- As reference.run: found(name, kind, backend, results, why) for each shape.
function conformance.run(backend, found)
  local stream = core.stream(1, "conformance")
  for _, shape in ipairs(shapes) do
    for _, causal in ipairs { true, false } do
      local name = ("%s_b%d_n%d_d%d"):format(causal and "causal" or "bidir", table.unpack(shape))
      local ok, results, why = pcall(compare, backend, shape, causal, stream)
      core.tape_clear()
      if not ok then
        found(name, "conformance", backend,
          { { name = "run", error = math.huge, why = stop.text(results) } })
      else
        found(name, "conformance", backend, results or nil, why)
      end
    end
  end
end

return conformance
