-- train/classify.lua: trains and evaluates classifiers: one update, and the accuracy on a set.

local core = require "toeplab.core"
local evaluating = require("toeplab.train.eval").evaluating
local suggest = require "toeplab.base.suggest"

local classify = {}

-- Returns for how many rows of logits [b,classes] the largest is at the label, of labels [b].
local function count_correct(logits, labels)
  local guess, wanted, count = logits:argmax():totable(), labels:totable(), 0
  for i, label in ipairs(wanted) do
    if guess[i] == label then count = count + 1 end
  end
  return count
end

-- Updates the model from a batch {ids= [b,n], lengths= [b], labels= [b]}. Returns the mean cross
-- entropy in nats and {step=, lr=, grad_norm=, accuracy=}; loss and accuracy are those of the batch
-- before the update.
function classify.step(model, opt, batch)
  model:train()
  opt:zero_grad()
  local logits = model(batch.ids, batch.lengths)
  local loss = core.cross_entropy(logits, batch.labels)
  loss:backward()
  local info = opt:step()
  info.accuracy = count_correct(logits, batch.labels) / batch.labels:numel()
  return loss:item(), info
end

-- Returns the model's accuracy on set (tasks/labelled.lua) and its mean cross entropy in nats.
-- Batches have size examples, in the set's order; examples limits the evaluation to about so many,
-- the first ones. The result depends slightly on size, because the model sees the padding of a row.
function classify.accuracy(model, set, size, examples)
  local count, good, nats = 0, 0, 0.0
  evaluating(model, function()
    for batch in set:each(size) do
      local logits, rows = model(batch.ids, batch.lengths), batch.labels:numel()
      count, good = count + rows, good + count_correct(logits, batch.labels)
      nats = nats + core.cross_entropy(logits, batch.labels):item() * rows
      if examples and count >= examples then break end
    end
  end)
  if count == 0 then error("classify: there is no example to evaluate on", 2) end
  return good / count, nats / count
end

return suggest.strict("classify", classify)
