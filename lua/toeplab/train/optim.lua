-- train/optim.lua: defines the optimisers: opt = tl.optim.adam(model, {lr=..}), and then at each
-- step opt:zero_grad(), loss:backward(), opt:step().

local average = require "toeplab.train.average"
local core = require "toeplab.core"
local config = require "toeplab.base.config"
local options = require "toeplab.base.options"
local pytorch = require "toeplab.tensors.pytorch"
local ranks = require "toeplab.train.ranks"
local lamb = require "toeplab.train.lamb"
local muon = require "toeplab.train.muon"
local overlay = require "toeplab.base.overlay"
local schedule = require "toeplab.train.schedule"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local field = options.field

local function positive(x)
  return x > 0 and x < math.huge, ("= %g must be above 0 and finite"):format(x)
end

local function below_one(x) return x < 1, ("= %g must be below 1"):format(x) end

-- The options beside lr that schedules declare; each schedule takes some of them.
local of_schedules = { "warmup", "warmup_init_lr", "steps", "end_lr", "power", "cooldown",
  "plateau_factor", "plateau_patience" }

-- Returns the set of the options that the schedule of this name takes; a function takes none.
local function taken_by(name)
  return type(name) == "string" and options.declared["tl.schedule." .. name].fields or {}
end

-- Raises if a table of options, which is neither shared with other parts nor resolved, has one that
-- the schedule does not take.
local function check_taken(who, given, name)
  if not given or options.is_shared(given) or options.is_resolved(given) then return end
  local takes, words = taken_by(name), "a schedule that is a function"
  if type(name) == "string" then words = ("the schedule '%s'"):format(name) end
  for _, option in ipairs { "lr", table.unpack(of_schedules) } do
    if given[option] ~= nil and not takes[option] then
      error(("%s: %s does not take %s"):format(who, words, option), 0)
    end
  end
end

local function schedule_of(o)
  if type(o.schedule) == "function" then return o.schedule end
  local given, takes = { lr = o.lr }, taken_by(o.schedule)
  for _, name in ipairs(of_schedules) do given[name] = takes[name] and o[name] or nil end
  if o.schedule == "inverse_sqrt" then given.warmup_init_lr = o.warmup_init_lr or 1e-7 end
  return schedule[o.schedule](given)
end

-- Raises an error if the resolved options o of an optimiser do not fit each other, or the schedule
-- does not take one of those given.
local function check(who, o, given)
  check_taken(who, given, o.schedule)
  schedule_of(o)
  if o.ema > 0 and o.swa_start > 0 then
    error(("%s: option 'ema' = %g cannot be combined with swa_start = %d: both average the weights")
      :format(who, o.ema, o.swa_start), 0)
  end
end

-- Returns the options that every optimiser takes, followed by more.
local function common(name, more)
  local spec = {
    { "lr", field { default = 5e-4, check = positive },
      "learning rate, the highest of a named schedule; not with a schedule that is a function" },
    { "weight_decay", field { default = 0.0, min = 0 }, "weight decay of all trained parameters" },
    { "clip", field { default = 0.0, min = 0 },
      "largest global norm of the gradient; 0: no limit" },
    { "schedule", field { type = "function|string", default = "constant",
      choices = { "constant", "inverse_sqrt", "cosine", "polynomial", "wsd",
        "one_cycle", "plateau" } },
      "schedule of the learning rate: a name, or a function of the update number" },
    { "warmup", field { default = 0, min = 0 }, "updates of linear warm-up" },
    { "warmup_init_lr", field { type = "number", min = 0, optional = true },
      "learning rate of the first update (1e-7 for inverse_sqrt, else 0)" },
    { "steps", field { type = "int", min = 1, optional = true },
      "total number of updates, for all but constant, inverse_sqrt and plateau" },
    { "end_lr", field { default = 0.0, min = 0 },
      "learning rate at the end of cosine, polynomial and wsd; the lowest one of plateau" },
    { "power", field { default = 1.0, min = 0 }, "exponent of polynomial" },
    { "cooldown", field { default = 0.2, min = 0, max = 1 },
      "share of the updates over which wsd falls" },
    { "plateau_factor", field { default = 0.1, min = 0, max = 1 },
      "plateau multiplies the rate by it" },
    { "plateau_patience", field { default = 10, min = 0 },
      "values of t:best without improvement that plateau waits for" },
    { "ema", field { default = 0.0, min = 0, check = below_one },
      "decay rate of averages of the weights, with which the model is evaluated; 0: none" },
    { "swa_start", field { default = 0, min = 0 },
      "the model is evaluated with the mean of its weights since this update; 0: none" },
  }
  spec.check = check
  return options.declare("tl.optim." .. name)(table.move(more, 1, #more, #spec + 1, spec))
end

local Optimizer = {}
Optimizer.__index = Optimizer

-- Returns whether this process updates parameter i.
local function owns(self, i) return not self.team or self.owners[i] == self.team.rank end

-- Makes an optimiser. kind is its name, moments lists the names of the tensors that it stores per
-- parameter, and update(self, lr, scale, beta) makes one update of self.own; beta is the decay rate
-- of the first moment, if the schedule gives one. In a team of ranks each rank updates its own part
-- of the parameters, whose moments it alone has, and sends them to the others (ZeRO-1, Rajbhandari
-- et al. 2020).
local function optimizer(kind, model, o, moments, update)
  if type(model) ~= "table" or not model.parameters then
    error(kind .. ": takes the model itself, as in tl.optim.adam(model, { lr = 1e-3 }), not its "
      .. "parameters", 3)
  end
  local self = setmetatable({ kind = kind, opt = o, update = update, steps = 0,
    factor = 1.0 }, Optimizer)
  self.rate = schedule_of(o)
  self.plateau = o.schedule == "plateau" and { waited = 0, lowered = 0 } or nil
  self.names, self.params, self.moments = {}, {}, {}
  for _, p in ipairs(model:parameters()) do
    if p.tensor:requires_grad() then
      self.names[#self.names + 1], self.params[#self.params + 1] = p.name, p.tensor
    end
  end
  if #self.params == 0 then error(kind .. ": the model has no parameter to train", 3) end
  self.team = ranks.current()
  self.owners = self.team and self.team:owners(self.params)
  self.own, self.own_names = {}, {}
  for i, p in ipairs(self.params) do
    if owns(self, i) then
      self.own[#self.own + 1], self.own_names[#self.own + 1] = p, self.names[i]
    end
  end
  self.average = average.new(model, self.params, o)
  for _, moment in ipairs(moments) do
    self.moments[moment] = {}
    for i, p in ipairs(self.own) do self.moments[moment][i] = core.zeros(p:shape()) end
  end
  return self
end

-- Drops the gradients of all parameters.
function Optimizer:zero_grad()
  for _, p in ipairs(self.params) do p:set_grad(nil) end
end

-- Updates the parameters from their gradients, which are clipped to the global norm clip. The
-- learning rate is the schedule's for this update times self.factor. Returns {step=, lr=,
-- grad_norm=}, with the norm before clipping. A norm or a rate that is not finite is an error, and
-- no parameter changes. If the function self.judge accepts such a norm by returning true, no
-- parameter changes either, and the norm is returned, with lr = 0 and the step of the last update.
function Optimizer:step()
  if self.team then self.team:check_update() end
  local norm = core.grad_norm(self.params)
  if norm ~= norm or norm == math.huge then
    if self.judge and self.judge(norm) then
      return { step = self.steps, lr = 0.0, grad_norm = norm }
    end
    error(("%s: the gradient's norm is %s at update %d"):format(self.kind, norm, self.steps + 1), 2)
  end
  local scale = 1.0
  if self.opt.clip > 0 then scale = math.min(1.0, self.opt.clip / (norm + 1e-6)) end
  local lr, beta = self.rate(self.steps + 1, self.plateau and self.plateau.lowered)
  if not (math.type(lr) and lr >= 0 and lr < math.huge) then
    error(("%s: the schedule returned the rate %s at update %d"):format(self.kind, tostring(lr),
      self.steps + 1), 2)
  end
  self.steps, lr = self.steps + 1, lr * self.factor
  if #self.own > 0 then self:update(lr, scale, beta) end
  for i, p in ipairs(self.team and self.params or {}) do
    self.team.world:broadcast(self.owners[i], p)
  end
  if self.average then self.average:update(self.steps) end
  return { step = self.steps, lr = lr, grad_norm = norm }
end

-- Receives a measure of the model, such as the loss on the validation part; lower is better. The
-- schedule plateau lowers the rate by these; the others ignore them.
function Optimizer:measured(value)
  local p = self.plateau
  if not p then return end
  if value < (p.lowest and p.lowest - 1e-4 * math.abs(p.lowest) or math.huge) then
    p.lowest, p.waited = value, 0
    return
  end
  p.waited = p.waited + 1
  if p.waited > self.opt.plateau_patience then p.waited, p.lowered = 0, p.lowered + 1 end
end

-- Returns the tensors of this process's moments and of the averages: "m.layers.1..." -> tensor.
local function own_tensors(self)
  local tensors, k = {}, 0
  for i, name in ipairs(self.names) do
    if self.average then tensors["average." .. name] = self.average.list[i] end
    if owns(self, i) then
      k = k + 1
      for moment, list in pairs(self.moments) do tensors[moment .. "." .. name] = list[k] end
    end
  end
  return tensors
end

-- Returns the state for a checkpoint: {step= (the number of updates made), factor=, plateau=,
-- tensors= {"m.layers.1..." -> tensor}}, with the tensors themselves, not copies. In a team all
-- ranks call it and get all tensors, other ranks' as copies.
function Optimizer:state()
  local tensors = own_tensors(self)
  for i, name in ipairs(self.team and self.names or {}) do
    for _, moment in ipairs(sorted_keys(self.moments)) do
      local key = moment .. "." .. name
      tensors[key] = tensors[key] or core.zeros(self.params[i]:shape())
      self.team.world:broadcast(self.owners[i], tensors[key])
    end
  end
  return { step = self.steps, factor = self.factor, plateau = self.plateau, tensors = tensors }
end

-- Restores the result of state(), copying its tensors. Raises for wrong names or shapes before it
-- copies anything. In a team each rank takes the part that it updates.
function Optimizer:load(state)
  if type(state) ~= "table" or type(state.tensors) ~= "table" then
    error(("%s: load takes what state() returns, got %s"):format(self.kind, config.show(state)), 2)
  end
  local wanted = {} -- name -> the parameter, which has the shape of its moments
  for i, name in ipairs(self.names) do
    for moment in pairs(self.moments) do wanted[moment .. "." .. name] = self.params[i] end
    if self.average then wanted["average." .. name] = self.params[i] end
  end
  for _, name in ipairs(sorted_keys(wanted)) do
    local t = state.tensors[name]
    if not t then error(("%s: the state lacks '%s'"):format(self.kind, name), 2) end
    if table.concat(t:shape(), ",") ~= table.concat(wanted[name]:shape(), ",") then
      error(("%s: '%s' is %s, the state has %s"):format(
        self.kind, name, tostring(wanted[name]), tostring(t)), 2)
    end
  end
  for _, name in ipairs(sorted_keys(state.tensors)) do
    if not wanted[name] then
      error(("%s: the state has an unknown '%s'"):format(self.kind, name), 2)
    end
  end
  for name, t in pairs(own_tensors(self)) do t:copy(state.tensors[name]) end
  self.steps, self.factor = state.step, state.factor or 1.0
  if self.plateau and state.plateau then self.plateau = overlay(state.plateau) end
end

-- Ends the averaging of the weights, if there is any: they become their averages.
function Optimizer:take_average()
  if self.average then self.average:finish() end
  self.average = nil
end

local function betas(value)
  if #value == 2 and type(value[1]) == "number" and type(value[2]) == "number"
    and value[1] >= 0 and value[1] < 1 and value[2] >= 0 and value[2] < 1 then
    return true
  end
  return false, "must be two numbers from 0 up to below 1"
end

local rates = { "betas", field { default = { 0.9, 0.98 }, check = betas },
  "decay rates of the two moments" }
local eps = { "eps", field { default = 1e-8, check = positive },
  "added to the root of the second moment" }

local adam_spec = common("adam", { rates, eps,
  { "kind", field { default = "fairseq", choices = { "fairseq", "adam", "adamw" } },
    "with fairseq and adamw weight decay is decoupled, with adam it is added to the gradient" },
})

local function adam_update(self, lr, scale, beta)
  local o = self.opt
  core.adam_step(self.own, self.moments.m, self.moments.v, {
    kind = o.kind, lr = lr, beta1 = beta or o.betas[1], beta2 = o.betas[2], eps = o.eps,
    weight_decay = o.weight_decay, step = self.steps,
  }, scale)
end

local sgd_spec = common("sgd", {
  { "momentum", field { default = 0.0, min = 0, max = 1 }, "momentum of the gradient" },
})

local function sgd_update(self, lr, scale, beta)
  local momentum = self.opt.momentum
  core.sgd_step(self.own, self.moments.momentum, {
    lr = lr, momentum = momentum > 0 and beta or momentum, weight_decay = self.opt.weight_decay,
  }, scale)
end

local lamb_spec = common("lamb", { rates, eps })

local muon_spec = common("muon", { rates, eps,
  { "momentum", field { default = 0.95, min = 0, max = 1 }, "momentum of the matrices" },
})

-- for options.check
local optim = { specs = { adam = adam_spec, sgd = sgd_spec, lamb = lamb_spec, muon = muon_spec } }

-- Makes the optimiser `name` from the options `given`, as the functions below. moments: a function
-- of the checked options that returns the names of the moments.
local function make(name, model, given, moments, update)
  local o = options.check("optim." .. name, optim.specs[name], given)
  return optimizer(name, model, o, moments(o), update)
end

local function two_moments() return { "m", "v" } end

-- Returns Adam (Kingma & Ba 2015) for the trained parameters of model. The papers on TNN used kind
-- "fairseq" with betas 0.9 and 0.98.
function optim.adam(model, given) return make("adam", model, given, two_moments, adam_update) end

-- Returns stochastic gradient descent, with momentum if the option is above 0, for the trained
-- parameters of model.
function optim.sgd(model, given)
  return make("sgd", model, given, function(o)
    return o.momentum > 0 and { "momentum" } or {}
  end, sgd_update)
end

-- Returns LAMB (train/lamb.lua) for the trained parameters of model.
function optim.lamb(model, given) return make("lamb", model, given, two_moments, lamb.update) end

-- Returns Muon (train/muon.lua) for the matrices of model, and AdamW for its other trained
-- parameters, at one rate.
function optim.muon(model, given) return make("muon", model, given, two_moments, muon.update) end

-- Returns whether value is an optimiser that these functions have made.
function optim.is(value) return getmetatable(value) == Optimizer end

return suggest.strict("optim", optim, pytorch.hint)
