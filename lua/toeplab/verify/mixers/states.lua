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

return kinds
