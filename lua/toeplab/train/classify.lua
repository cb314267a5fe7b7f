-- train/classify.lua: trains and evaluates classifiers: one update, predictions for a set, and the
-- accuracy. A model with one output and float32 labels is a regression.

local core = require "toeplab.core"
local evaluating = require("toeplab.train.eval").evaluating
local metrics = require "toeplab.train.metrics"
local ranks = require "toeplab.train.ranks"
local suggest = require "toeplab.base.suggest"
local update = require "toeplab.train.update"
local watch = require "toeplab.base.watch"

local classify = {}

local function is_real(labels) return labels:type() == "float32" end

-- Returns the mean cross entropy in nats of logits [b,classes] and labels [b] int32, or the mean
-- squared error of logits [b,1] and labels [b] float32.
local function loss_of(logits, labels)
  if not is_real(labels) then return core.cross_entropy(logits, labels) end
  local difference = logits:reshape(-1) - labels
  return (difference * difference):mean()
end

-- Returns the prediction for each row as a list: the class of the largest logit, or the number.
local function guesses(logits, labels)
  return (is_real(labels) and logits:reshape(-1) or logits:argmax()):totable()
end

-- Returns how many rows logits assign to the class of their label.
local function right_of(logits, labels)
  local predicted, count = guesses(logits, labels), 0
  for i, label in ipairs(labels:totable()) do
    if predicted[i] == label then count = count + 1 end
  end
  return count
end

-- Returns the examples first .. first + count - 1 of a batch. For pairs, ids and lengths have the
-- first sequences of all pairs and then the second ones.
local function examples_of(batch, first, count)
  local b = batch.labels:dim(1)
  if count == b then return batch end
  local part = { labels = batch.labels:narrow(1, first, count) }
  for _, name in ipairs { "ids", "lengths" } do
    local whole, list = batch[name], {}
    for start = first, whole and whole:dim(1) or 0, b do
      list[#list + 1] = whole:narrow(1, start, count)
    end
    part[name] = #list > 1 and core.concat(list, 1) or list[1]
  end
  return part
end

-- Updates the model from a batch {ids= [b,n], lengths= [b], labels= [b]}, which the key
-- micro_batches of a trial cuts into micro batches. Returns the loss (see loss_of) and {step=, lr=,
-- grad_norm=, accuracy=}; loss and accuracy are the batch's before the update; a
-- regression has no accuracy.
function classify.step(model, opt, batch)
  local list, counts, rows, real = {}, {}, batch.labels:dim(1), is_real(batch.labels)
  for i, part in ipairs(update.cut("classify.step", rows)) do
    list[i], counts[i] = examples_of(batch, part.first, part.count), part.count
  end
  ranks.check_whole "a classifier"
  local loss, info, right = update.make { model = model, opt = opt, list = list, counts = counts,
    loss_of = function(part)
      local logits, labels = model(part.ids, part.lengths), part.labels
      return loss_of(logits, labels), not real and function() return right_of(logits, labels) end
        or nil
    end }
  if not real then info.accuracy = right / rows end
  return loss, info
end

-- Returns the model's predictions for the examples of set (tasks/labelled.lua), a list of classes
-- or numbers, the list of the labels, and the mean loss. Batches have size examples, in the set's
-- order; examples limits the evaluation to about the first ones. The result depends slightly on
-- size, because the model sees the padding of a row.
function classify.predict(model, set, size, examples)
  local predicted, labels, sum = {}, {}, 0.0
  local function all(part)
    for batch in set:each(size) do
      local logits = model(batch.ids, batch.lengths)
      local some, wanted = guesses(logits, batch.labels), batch.labels:totable()
      table.move(some, 1, #some, #predicted + 1, predicted)
      table.move(wanted, 1, #wanted, #labels + 1, labels)
      sum = sum + loss_of(logits, batch.labels):item() * #some
      part(#predicted)
      if examples and #predicted >= examples then break end
    end
  end
  local count = set.count -- nil: the set is the user's own
  local total = count and math.min(examples or count, count)
  evaluating(model, function() watch.work("evaluating", total, "examples", all) end)
  if #predicted == 0 then error("classify: there is no example to evaluate on", 2) end
  return predicted, labels, sum / #predicted
end

-- Returns the model's accuracy on set and its mean cross entropy in nats; arguments as for predict.
function classify.accuracy(model, set, size, examples)
  local predicted, labels, nats = classify.predict(model, set, size, examples)
  return metrics.accuracy(predicted, labels), nats
end

return suggest.strict("classify", classify)
