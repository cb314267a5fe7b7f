-- verify/check_causal.lua: checks that no position of a module's output depends on a later input,
-- for the user's own mixers and models.
--
--   tl.check_causal(Mixer(8))                       -- raises if a position sees a later one
--   tl.check_causal(function(x) return f(x) end, { dim = 8, length = 100 })
local class = require "toeplab.nn.class"
local core = require "toeplab.core"
local options = require "toeplab.base.options"

local field = options.field

local spec = options.declare "tl.check_causal" {
  { "dim", field { type = "int", min = 1, optional = true },
    "channels of the input (default: the module's own option dim)" },
  { "vocab", field { type = "int", min = 2, optional = true },
    "tokens, for a module of ids [1,n] (default: the module's own option vocab)" },
  { "length", field { default = 33, min = 2 }, "positions of the input" },
  { "tolerance", field { default = 1e-5, min = 0 },
    "change that counts as rounding, as a part of the largest output" },
  { "seed", field { default = 1, min = 0 }, "seed of the inputs" },
}

local function largest(y)
  local sum = core.abs(y):sum():item()
  return sum == sum and core.abs(y):amax():item() or math.huge -- amax may pass over a nan
end

-- Returns two inputs that differ at every position.
local function inputs(o, stream)
  local n = o.length
  if not o.vocab then
    local function normal() return stream:normal(core.zeros(1, n, o.dim), 0, 1) end
    return normal(), normal()
  end
  local ids = stream:integers(o.vocab, n):totable()
  local other = stream:integers(o.vocab - 1, n):totable()
  for i, id in ipairs(ids) do
    if other[i] >= id then other[i] = other[i] + 1 end
  end
  return core.ids { ids }, core.ids { other }
end

-- Returns the output of fn for x [1,n,..], as [1,n,k].
local function output(fn, x)
  local y, n = core.no_grad(fn, x), x:dim(2)
  if not class.istensor(y) or y:type() ~= "float32" or y:ndim() < 2 or y:dim(1) ~= 1
      or y:dim(2) ~= n then
    error(("check_causal: the output for %s is %s, not a tensor [1,%d,..] float32"):format(
      tostring(x), tostring(y), n), 0)
  end
  return y:reshape(1, n, -1)
end

-- Checks that changes of the inputs after a position leave the output at it, and before it, as it
-- is, for every position of a module or function fn from x [1,n,dim] or ids [1,n] to y [1,n,..].
-- given: dim, vocab, length, tolerance, seed. Returns the largest change, as a part of the largest
-- output; raises an error that names the first position that sees a later one.
return function(fn, given)
  local is_module = class.ismodule(fn)
  if not is_module and type(fn) ~= "function" then
    error("check_causal: the first argument is a module or a function, got " .. type(fn), 2)
  end
  local o, own = options.check("check_causal", spec, given or {}), is_module and fn.opt or {}
  o = { length = o.length, tolerance = o.tolerance, seed = o.seed, dim = o.dim,
    vocab = o.vocab or not o.dim and rawget(own, "vocab") or nil }
  o.dim = o.dim or rawget(own, "dim")
  if not o.dim and not o.vocab then
    error("check_causal: give dim, the channels of the input, or vocab, if it takes ids", 2)
  end
  local name = is_module and fn.kind or "the function"
  local x, other = inputs(o, core.stream(o.seed, "check_causal"))
  local y, n, worst, matters = output(fn, x), o.length, 0.0, false
  local size = largest(y)
  if size == math.huge then
    error(("check_causal: the output of %s is not finite"):format(name), 2)
  end
  if largest(output(fn, x) - y) ~= 0 then
    error(("check_causal: two calls of %s differ: call eval() of a module with dropout"):format(
      name), 2)
  end
  for i = 1, n - 1 do
    local z = output(fn, core.concat({ x:narrow(2, 1, i), other:narrow(2, i + 1, n - i) }, 2)) - y
    local change = largest(z:narrow(2, 1, i)) / math.max(size, 1e-30)
    if change > o.tolerance then
      error(("check_causal: %s is not causal: position %d of %d changes with later ones, by %.2g "
        .. "of the largest output"):format(name, i, n, change), 2)
    end
    worst, matters = math.max(worst, change), matters or largest(z) > o.tolerance * size
  end
  if not matters then
    error(("check_causal: the output of %s does not depend on its input, as with weights of 0: "
      .. "nothing was checked"):format(name), 2)
  end
  return worst
end
