-- verify/mixers/init.lua: collects the kinds of reference cases that concern token mixers and the
-- models around them. Each is a function of a case (verify/reference.lua) that returns its results.

local kinds = {}

for _, file in ipairs { "attention", "classifiers", "frames", "lra", "masked", "states",
  "transforms" } do
  for kind, run in pairs(require("toeplab.verify.mixers." .. file)) do kinds[kind] = run end
end

return kinds
