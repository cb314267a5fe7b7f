-- train/classify.lua: training and evaluation of classifiers: one update, and the share that is
-- right.

local core = require "toeplab.core"
local evaluating = require("toeplab.train.eval").evaluating
local suggest = require "toeplab.base.suggest"

local classify = {}

-- How many rows of logits [b,classes] have their largest at labels [b].
local function right(logits, labels)
  local guess, wanted, count = logits:argmax():totable(), labels:totable(), 0
  for i, label in ipairs(wanted) do
    if guess[i] == label then count = count + 1 end
  end
  return count
end

-- One update from a batch {ids= [b,n], lengths= [b], labels= [b]}. Returns the mean cross entropy
-- in nats and {step=, lr=, grad_norm=, accuracy=}, of the batch before the update.
function classify.step(model, opt, batch)
  model:train()
  opt:zero_grad()
  local logits = model(batch.ids, batch.lengths)
  local loss = core.cross_entropy(logits, batch.labels)
  loss:backward()
  local info = opt:step()
  info.accuracy = right(logits, batch.labels) / batch.labels:numel()
  return loss:item(), info
end

-- The share of the examples of set (labelled.lua) that the model gets right, and its mean cross
-- entropy in nats; examples: only so many, the first ones. Batches are of size examples in the
-- set's order; as a row sees its padding, the result depends a little on size.
function classify.accuracy(model, set, size, examples)
  local count, good, nats = 0, 0, 0.0
  evaluating(model, function()
    for batch in set:each(size) do
      local logits, rows = model(batch.ids, batch.lengths), batch.labels:numel()
      count, good = count + rows, good + right(logits, batch.labels)
      nats = nats + core.cross_entropy(logits, batch.labels):item() * rows
      if examples and count >= examples then break end
    end
  end)
  if count == 0 then error("classify: there is no example to evaluate on", 2) end
  return good / count, nats / count
end

return suggest.strict("classify", classify)
