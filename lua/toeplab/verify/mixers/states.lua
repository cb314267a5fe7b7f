-- verify/mixers/states.lua: runs the reference cases of state space layers.

local core = require "toeplab.core"
local distance = require("toeplab.verify.distance").distance
local mixer_case = require "toeplab.verify.mixers.mixer_case"
local module_case = require "toeplab.verify.module_case"

local kinds = {}

for _, name in ipairs { "s4d", "dss", "gss" } do
  kinds[name] = function(case) return mixer_case.run(name, case) end
end

-- The case holds C as the first call left it. A second module starts from initial_C instead.
function kinds.s4(case)
  local a, results = case.attributes, mixer_case.run("s4", case)
  local fresh = mixer_case.make("s4", case)
  module_case.load(case, fresh, mixer_case.names("s4", {
    ["kernel.length"] = core.ids { 0 }, ["kernel.c"] = case:read "initial_C",
  }))
  core.no_grad(fresh.forward, fresh, core.zeros(1, a.kernel_length, a.dim))
  results[#results + 1] = { name = "C after the first call",
    error = distance(fresh.kernel.c, case:read "param/kernel.kernel.C") }
  return results
end

function kinds.selective_scan(case)
  local p, results = {}, {}
  for _, name in ipairs { "x", "delta", "z", "A", "B", "C", "D", "delta_bias" } do
    p[name] = case:read(name == "x" and name or "param/" .. name):require_grad()
  end
  local delta = core.softplus(p.delta + p.delta_bias)
  local y = core.selective_scan(p.x, delta, p.A, p.B, p.C, p.D) * core.silu(p.z);
  (y * case:read "dy"):sum():backward()
  module_case.compare(case, results, "y", y)
  module_case.compare(case, results, "dx", p.x:grad())
  for _, name in ipairs(case:children "grad") do
    results[#results + 1] = { name = "grad " .. name, grad = true,
      error = distance(p[name]:grad(), case:read("grad/" .. name)) }
  end
  return results
end

-- Our taps [taps,width] are in the order of the lags, the published ones [width,1,taps] in the
-- order of the positions.
local function taps_of(weight)
  local count, ids = weight:dim(3), {}
  for k = 1, count do ids[k] = count - k end
  return weight:reshape(weight:dim(1), count):transpose(1, 2):gather(core.ids(ids))
end

function kinds.mamba(case)
  local module = mixer_case.make("mamba", case)
  local results = module_case.run(case, module, mixer_case.names("mamba", {
    ["conv.taps"] = taps_of(case:read "param/conv1d.weight"),
  }))
  results[#results + 1] = { name = "grad conv1d.weight", grad = true,
    error = distance(module.conv.taps:grad(), taps_of(case:read "grad/conv1d.weight")) }
  return results
end

return kinds
