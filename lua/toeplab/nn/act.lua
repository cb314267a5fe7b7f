-- nn/act.lua: defines the activations by name, as in nn.act.silu(x): every unary function of the
-- engine, and "none", the identity.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local options = require "toeplab.base.options"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local act = { none = function(x) return x end }
for _, name in ipairs(core.unary_names()) do
  act[name] = function(x) return core.unary(name, x) end
end

-- Declares an option whose value is the name of an activation.
local function act_option(default)
  return options.field { default = default, choices = sorted_keys(act) }
end

-- Returns act(a) * b elementwise, in one kernel where the engine can. a and b have one shape.
local function gate(name, a, b)
  return core.gate(name == "none" and "identity" or name, a, b)
end

-- Wraps an activation as a module, so that it can stand in a Sequential: nn.Activation "relu".
local Activation = class("Activation", { { "kind", act_option "relu", "activation" } }, { "kind" },
  "x [..] -> [..]: an activation by its name")

function Activation:build(o)
  self.f = act[o.kind]
end

function Activation:forward(x)
  return self.f(x)
end

suggest.strict("nn.act", act)

return { act = act, act_option = act_option, gate = gate, Activation = Activation }
