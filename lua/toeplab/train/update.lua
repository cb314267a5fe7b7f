-- train/update.lua: computes the gradients of a batch from its micro batches, by one process or by
-- a team of ranks, and makes the update. The steps of language models, masked models, classifiers
-- and image models use it.

local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local nn = require "toeplab.nn"
local ranks = require "toeplab.train.ranks"
local suggest = require "toeplab.base.suggest"

local update = {}

-- ---- Cutting a batch ----------------------------------------------------------------------------

local asked = { count = 1, cut = false }

-- Calls fn(...), during which updates cut their batches into `count` micro batches. Returns whether
-- one did, or count is 1.
function update.with(count, fn, ...)
  local outer = asked
  local restore <close> = defer(function() asked = outer end)
  if math.type(count) ~= "integer" or count < 1 then
    error(("micro_batches = %s is not an integer of at least 1"):format(tostring(count)), 0)
  end
  asked = { count = count, cut = count == 1 }
  fn(...)
  return asked.cut
end

-- Raises if updates are to cut batches, for a batch that the script has cut into `count` micro
-- batches. This raises even if the numbers agree: the short block at the end of an epoch is an
-- additional micro batch, and the training would stop there.
function update.check_uncut(who, count)
  if asked.count == 1 then return end
  error(("micro_batches = %d: %s has a batch that the script cuts into %d micro batches: leave "
    .. "micro_batches out; if the script has the key micro, choose that"):format(asked.count, who,
    count), 0)
end

-- Raises if updates are to cut batches into another number of micro batches than `count`, which all
-- batches of this script have.
function update.check_cut(who, count)
  if count ~= asked.count then update.check_uncut(who, count) end
  asked.cut = true
end

-- Cuts rows 1 .. count of a batch into nearly equal parts. Returns {{first=, count=}, ...}. parts:
-- their number by the script; nil: update.with's.
function update.cut(who, count, parts)
  parts = parts or asked.count
  if math.type(parts) ~= "integer" or parts < 1 or parts > count then
    error(("%s: micro_batches = %s, must be 1 to the %d rows of the batch"):format(who,
      tostring(parts), count), 0)
  end
  update.check_cut(who, parts)
  ranks.check_cut(parts)
  local list = {}
  for part = 1, parts do
    local first, last = (part - 1) * count // parts + 1, part * count // parts
    list[part] = { first = first, count = last - first + 1 }
  end
  return list
end

-- ---- Gradients ----------------------------------------------------------------------------------

-- Runs forward and backward over the micro batches here. Returns the weighted losses and the second
-- results of loss_of, numbers.
local function pass_here(o)
  local numbers = {}
  local function pass(list)
    local losses = {}
    local function all()
      for i, part in ipairs(list) do
        local loss, number = o.loss_of(part)
        if o.shares[i] ~= 1 then loss = core.affine(loss, o.shares[i], 0) end
        loss:backward()
        losses[i], numbers[i] = loss, number
      end
    end
    if #list > 1 then nn.share(all) else all() end
    return losses
  end
  local graphed, losses = o.graphs and o.graphs.model == o.model, {}
  for i, loss in ipairs(graphed and o.graphs:run(o.list, pass) or pass(o.list)) do
    losses[i] = loss:item()
  end
  for i, number in ipairs(numbers) do numbers[i] = number() end
  return losses, numbers
end

local function sum_of(list)
  local sum = 0.0
  for _, value in ipairs(list) do sum = sum + value end
  return sum
end

-- Adds to the error why, if it says that the GPU is full, what is off and would need less memory.
-- parts: the number of micro batches; nil: unknown. model: what is trained.
function update.advise(why, model, parts)
  local full = type(why) == "table" and rawget(why, "status") == "ENOMEM"
  if not full or core.device() == "cpu" or why.message:find("\n  less memory: ", 1, true) then
    return
  end
  local list = { parts and ("more micro batches than %d"):format(parts) or "a smaller batch" }
  for _, entry in ipairs(type(model) == "table" and model.modules and model:modules() or {}) do
    if rawget(entry.module.opt or {}, "recompute") == false then
      list[2] = "recompute = true"
    end
  end
  if core.precision() ~= "bf16" then list[#list + 1] = "precision bf16" end
  why.message = ("%s\n  less memory: %s"):format(why.message, table.concat(list, ", "))
end

-- Closed by an error of an update. Unlike pcall, it leaves the functions that led to the error to a
-- traceback.
local Advising = { __close = function(o, why) update.advise(why, o.model, #o.list) end }

-- Returns the losses of the micro batches of o, {step=, lr=, grad_norm=}, and the second results.
local function pass_and_step(o)
  local team = ranks.current()
  local losses, numbers
  if team then losses, numbers = team:pass(o) else losses, numbers = pass_here(o) end
  return losses, o.opt:step(), numbers
end

-- Updates o.model once by the optimiser o.opt. Loss and gradient are means over the units that the
-- micro batches of o.list count (o.counts: rows, or tokens), so they do not depend on how a batch
-- is cut, except by batch norms; encoders run once for all (nn.share). o.loss_of(part) returns the
-- mean loss of a micro batch and, optionally, a function that returns a number, called after the
-- backward passes. o.graphs: for CUDA graphs of micro batches that are tensors, or nil. Returns the
-- loss, {step=, lr=, grad_norm=}, and the sum of those numbers.
function update.make(o)
  local all = 0
  o.shares = {}
  for _, count in ipairs(o.counts) do all = all + count end
  for i, count in ipairs(o.counts) do o.shares[i] = count / all end
  o.params = o.opt.params
  o.model:train()
  o.opt:zero_grad()
  local guard <close> = setmetatable(o, Advising)
  local losses, info, numbers = pass_and_step(o)
  return sum_of(losses), info, sum_of(numbers)
end

return suggest.strict("update", update)
