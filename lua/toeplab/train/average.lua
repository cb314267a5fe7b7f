-- train/average.lua: averages the trained weights of a model over its updates. A model is evaluated
-- with its averages, and they are the model in checkpoints; training continues from the weights
-- themselves.
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local sorted_keys = require "toeplab.base.sorted_keys"

local average = {}

local Average = {}
Average.__index = Average

local of_model = setmetatable({}, { __mode = "k" }) -- model -> its averages

-- Returns the averages of the trained parameters params of a model, which begin as copies; nil if
-- the options o of an optimiser have none:
--   ema = e          a = e a + (1 - e) p after each update, a = p after the first
--   swa_start = s    a = the mean of p after the updates s, s + 1, ..., and a = p before
-- Both are as in torch.optim.swa_utils, with an update in place of an epoch.
function average.new(model, params, o)
  if o.ema == 0 and o.swa_start == 0 then return nil end
  local self = setmetatable({ params = params, list = {}, opt = o }, Average)
  for i, p in ipairs(params) do
    local a = p:clone():require_grad()
    a:set_grad(p) -- see Average:update
    self.list[i] = a
  end
  of_model[model] = self
  return self
end

-- Averages after an update, whose number from 1 is step: a = a + w (p - a). This is a step of
-- gradient descent at rate w on |a|^2 / 2 - a p, so it needs no memory.
function Average:update(step)
  local o = self.opt
  local w = 1 / math.max(1, step - o.swa_start + 1)
  if o.ema > 0 then w = step == 1 and 1 or 1 - o.ema end
  if w < 1 then
    core.sgd_step(self.list, nil, { lr = w, weight_decay = 1 }, -1)
  else
    for i, p in ipairs(self.params) do self.list[i]:copy(p) end
  end
end

-- Writes the averages into the parameters and ends the averaging.
function Average:finish()
  for i, p in ipairs(self.params) do p:copy(self.list[i]) end
  for model, own in pairs(of_model) do
    if own == self then of_model[model] = nil end
  end
end

-- Writes the averages of a model, if it has any, into its parameters, until the result is closed.
function average.within(model)
  local self = of_model[model]
  if not self or self.open then return nil end
  local trained = {}
  for i, p in ipairs(self.params) do trained[i] = p:clone() end
  self.open = true
  for i, p in ipairs(self.params) do p:copy(self.list[i]) end
  return defer(function()
    for i, p in ipairs(self.params) do
      p:copy(trained[i])
      trained[i]:close()
    end
    self.open = nil
  end)
end

-- Exchanges the weights and their averages in the state of a trial, {model=, optim=}: in a
-- checkpoint's file the model has the averages, so that all its readers evaluate these, and the
-- optimiser has the weights, under "trained." in place of "average.".
function average.exchange(state)
  local tensors = state.model and type(state.optim) == "table" and state.optim.tensors
  for _, key in ipairs(tensors and sorted_keys(tensors) or {}) do
    local kind, name = key:match "^(%l+)%.(.*)$"
    local other = kind == "average" and "trained." or kind == "trained" and "average."
    if other then
      tensors[other .. name], state.model[name] = state.model[name], tensors[key]
      tensors[key] = nil
    end
  end
end

return average
