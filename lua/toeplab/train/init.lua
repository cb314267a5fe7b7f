-- train/init.lua: makes one update of a language model. The script writes the loop around it.

local core = require "toeplab.core"
local class = require "toeplab.nn.class"
local documents = require "toeplab.nn.documents"
local graphs = require "toeplab.train.graphs"
local ranks = require "toeplab.train.ranks"
local update = require "toeplab.train.update"

local train = {}

-- Returns the mean loss in nats per token of targets [b,n] given ids [b,n], by the model's own loss
-- method if it has one, else by the cross entropy of its output. Targets equal to ignore are left
-- out. given: the documents of the rows (nn/documents.lua), each of which the model reads alone;
-- its class must set takes_documents = true.
function train.loss(model, ids, targets, ignore, given)
  local kind = class.ismodule(model) and model.kind
  if given and not (kind and model.takes_documents) then
    error(("loss: %s does not take documents: a class whose forward and loss take them as last "
      .. "argument sets takes_documents = true"):format(kind or "the model"), 0)
  end
  if model.loss then return model:loss(ids, targets, ignore, given) end
  return core.cross_entropy(model(ids, given), targets, ignore)
end

-- Returns n for ids [b,n+1].
local function length(ids)
  local n = ids:dim(2) - 1
  if n < 1 then
    error(("a batch of ids needs at least 2 tokens a row, got %s"):format(tostring(ids)), 3)
  end
  return n
end

-- Splits ids [b,n+1] into inputs [b,n] and targets [b,n], which are one token ahead.
function train.split(ids)
  local n = length(ids)
  return ids:narrow(2, 1, n), ids:narrow(2, 2, n)
end

-- Returns a function that returns the mean loss of a batch of ids [b,n+1] or of the table that
-- train.packed makes of it. With carried states (tl.carried) it takes {ids=, number= (of the micro
-- batch)}, which continues the last one of that number.
function train.loss_of(model, carried)
  local function loss(part)
    local packed = type(part) == "table"
    local ids, targets = train.split(packed and part.ids or part)
    return train.loss(model, ids, targets, nil, packed and part.documents or nil)
  end
  if not carried then return loss end
  return function(part) return carried:window(part.number, loss, part) end
end

-- Returns ids [b,n+1] with the documents of its inputs, which begin at the separator, as {ids=,
-- documents=}; without a separator, returns ids.
function train.packed(ids, separator)
  if not separator then return ids end
  ranks.check_whole "a separator of documents"
  return { ids = ids, documents = documents.separated((train.split(ids)), separator) }
end

-- Returns the micro batches of a batch as a list.
local function micro_list(batch, parts)
  if type(batch) ~= "userdata" and type(batch) ~= "table" then
    error(("lm_step: a batch is a tensor of ids or a table of them, not %s"):format(type(batch)), 3)
  end
  if type(batch) == "table" then
    if #batch == 0 then error("lm_step: the batch has no rows", 3) end
    if parts then error("lm_step: the batch is already cut into micro batches", 3) end
    update.check_uncut("lm_step", #batch)
    return batch
  end
  local list = {}
  for i, part in ipairs(update.cut("lm_step", batch:dim(1), parts)) do
    list[i] = part.count < batch:dim(1) and batch:narrow(1, part.first, part.count) or batch
  end
  return list
end

-- Enables CUDA graphs: lm_step with opt then captures the forward and backward pass of the model
-- after the second batch of one shape, and from then on launches it as a whole, with bitwise equal
-- results. The model must do the same at every step, because its Lua code runs during the capture
-- only (train/graphs.lua). Has no effect on the CPU, with TOEPLAB_GRAPHS=off, and for a model with
-- a layer whose class has the field by_value, as its work depends on the values of the ids. Returns
-- opt.
function train.graph(model, opt)
  if not class.ismodule(model) or type(opt) ~= "table" or type(opt.params) ~= "table" then
    error("graph: takes a module and its optimiser: tl.train.graph(model, opt)", 2)
  end
  for _, entry in ipairs(model:modules()) do
    if entry.module.by_value then return opt end
  end
  if os.getenv "TOEPLAB_GRAPHS" ~= "off" then opt.graphs = graphs.new(model, opt.params) end
  return opt
end

-- Updates the model once from a batch: ids [b,n+1], or a list of such tensors, the micro batches,
-- whose sizes may differ. micro_batches is the number of parts into which it cuts the rows of ids
-- (default: the trial's key of that name, else 1). Loss and gradient are means over all target
-- tokens of the batch, so they do not depend on the cuts. separator: the token with which a
-- document begins, if the model is to read each document of a row alone. carried: the states
-- (tl.carried) in which every row begins, and in which this leaves the ones after it. Returns the
-- loss in nats per token and {step=, lr=, grad_norm=, tokens=}.
function train.lm_step(model, opt, batch, micro_batches, separator, carried)
  if carried then carried:check("lm_step", model, separator) end
  local list, counts, parts, tokens = micro_list(batch, micro_batches), {}, {}, 0
  for i, ids in ipairs(list) do
    counts[i] = ids:dim(1) * length(ids)
    parts[i] = carried and { ids = ids, number = i } or train.packed(ids, separator)
    tokens = tokens + counts[i]
  end
  local loss, info = update.make { model = model, opt = opt, list = parts, counts = counts,
    loss_of = train.loss_of(model, carried),
    graphs = not (separator or carried) and opt.graphs or nil }
  info.tokens = tokens
  return loss, info
end

return train
