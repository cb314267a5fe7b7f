-- verify/mixers/mixer_case.lua: runs the reference case of one mixer by its form (forms.lua).

local forms = require "toeplab.verify.mixers.forms"
local mixers = require "toeplab.nn.mixers"
local module_case = require "toeplab.verify.module_case"

local mixer_case = {}

-- Makes the mixer whose form is called name with the options of the case.
function mixer_case.make(name, case)
  local a, form = case.attributes, forms[name]
  return mixers.make(form.mixer or name, a.dim, { causal = a.causal, heads = a.heads },
    form.options(a))
end

-- Returns the names of the form (module_case.lua), with further entries of the module's state.
function mixer_case.names(name, state)
  local names = table.move(forms[name].names, 1, #forms[name].names, 1, {})
  names.state = state
  return names
end

-- Runs it on the case; further arguments are passed to the mixer after x.
function mixer_case.run(name, case, ...)
  local form = forms[name]
  if form.joined then case = module_case.joined(case, form.joined) end
  local state = form.state and form.state(case.attributes)
  return module_case.run(case, mixer_case.make(name, case), mixer_case.names(name, state), ...)
end

return mixer_case
