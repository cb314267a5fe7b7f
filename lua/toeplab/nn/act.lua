-- nn/act.lua: activations by name: nn.act.silu(x); the engine's unary functions and "none".

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

local act = { none = function(x) return x end }
for _, name in ipairs(core.unary_names()) do
  act[name] = function(x) return core.unary(name, x) end
end

-- An option that names an activation.
local function act_option(default)
  return options.field { default = default, choices = suggest.keys(act) }
end

-- act(a) * b elementwise, fused where the engine has the activation.   a, b of one shape
local function gate(name, a, b)
  return core.gate(name == "none" and "identity" or name, a, b)
end

-- An activation as a module, for Sequential: nn.Activation "relu".
local Activation = class("Activation", { kind = act_option "relu" }, { "kind" })

function Activation:build(o)
  self.f = act[o.kind]
end

function Activation:forward(x)
  return self.f(x)
end

suggest.strict("nn.act", act)

return { act = act, act_option = act_option, gate = gate, Activation = Activation }
