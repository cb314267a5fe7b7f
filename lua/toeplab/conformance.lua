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

-- What backend gives for coefficients by lag: y and the gradients, or nil and why it refuses.
local function answer(backend, inputs, causal)
  local n, d = inputs.x:dim(2), inputs.x:dim(3)
  local ok, o = pcall(core.tno, backend, n, d, causal)
  if not ok and o.status == "EBACKEND" then return nil, stop.text(o) end
  if not ok then error(o, 0) end
  if o:domain() ~= "lag" or #o:params() > 0 then return nil, "its coefficients are not by lag" end
  local x, coef = inputs.x:clone():require_grad(), inputs.coef:clone():require_grad()
  local y = o:apply(coef, {}, x);
  (y * inputs.dy):sum():backward()
  return { y = y, dx = x:grad(), dcoef = coef:grad(), dense = o:dense(coef, {}) }
end

-- As reference.run: found(name, kind, backend, results, why) for each shape.
function conformance.run(backend, found)
  local stream = core.stream(1, "conformance")
  for _, shape in ipairs(shapes) do
    for _, causal in ipairs { true, false } do
      local b, n, d = table.unpack(shape)
      local name = ("%s_b%d_n%d_d%d"):format(causal and "causal" or "bidir", b, n, d)
      local inputs = { x = random(stream, b, n, d), dy = random(stream, b, n, d),
        coef = random(stream, causal and n or 2 * n - 1, d) }
      local ok, got, why = pcall(answer, backend, inputs, causal)
      core.tape_clear()
      if not ok then
        found(name, "conformance", backend,
          { { name = "run", error = math.huge, why = stop.text(got) } })
      elseif not got then
        found(name, "conformance", backend, nil, why)
      else
        local want, results = answer("naive", inputs, causal), {}
        for i, output in ipairs { "y", "dcoef", "dx", "dense" } do
          results[i] = { name = output, error = reference.distance(got[output], want[output]) }
        end
        found(name, "conformance", backend, results)
      end
    end
  end
end

return conformance
