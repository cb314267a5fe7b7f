-- train.lua -- one update of a language model. The loop around it belongs to the script.

local core = require "toeplab.core"

local train = {}

-- The mean loss in nats of targets given ids: the model's own loss method, or the cross entropy of
-- its output.
function train.loss(model, ids, targets, ignore)
  if model.loss then return model:loss(ids, targets, ignore) end
  return core.cross_entropy(model(ids), targets, ignore)
end

-- ids [b,n+1] -> inputs [b,n], targets [b,n], the targets being one token ahead.
function train.split(ids)
  local n = ids:dim(2) - 1
  if n < 1 then
    error(("a batch of ids needs at least 2 tokens a row, got %s"):format(tostring(ids)), 2)
  end
  return ids:narrow(2, 1, n), ids:narrow(2, 2, n)
end

local function counted(targets, ignore)
  if not ignore then return targets:numel() end
  local count = 0
  for _, row in ipairs(targets:totable()) do
    for _, id in ipairs(row) do
      if id ~= ignore then count = count + 1 end
    end
  end
  return count
end

-- Adds the gradient of share times the loss of some rows; returns the share of the loss.
local function accumulate(model, ids, share, ignore)
  local inputs, targets = train.split(ids)
  local loss = train.loss(model, inputs, targets, ignore)
  if share ~= 1 then loss = core.affine(loss, share, 0) end
  loss:backward()
  return loss:item()
end

-- One update from a batch: ids [b,n+1], or a table with them as ids and perhaps ignore, a target
-- that does not count. The gradient is that of the mean over all target tokens, however many
-- micro_batches the rows are split into. Returns the loss in nats per token and {step=, lr=,
-- grad_norm=, tokens=}.
function train.lm_step(model, opt, batch, micro_batches)
  local ids, ignore = batch, nil
  if type(batch) == "table" then ids, ignore = batch.ids, batch.ignore end
  local rows, parts = ids:dim(1), micro_batches or 1
  if math.type(parts) ~= "integer" or parts < 1 or parts > rows then
    error(("lm_step: %s micro batches of %d rows"):format(tostring(parts), rows), 2)
  end
  model:train()
  opt:zero_grad()
  local _, targets = train.split(ids)
  local tokens, loss = counted(targets, ignore), 0.0
  for part = 1, parts do
    local first, last = (part - 1) * rows // parts + 1, part * rows // parts
    local mine = parts == 1 and ids or ids:narrow(1, first, last - first + 1)
    local share = parts == 1 and 1
      or counted(targets:narrow(1, first, last - first + 1), ignore) / math.max(tokens, 1)
    loss = loss + accumulate(model, mine, share, ignore)
  end
  local info = opt:step()
  info.tokens = tokens
  return loss, info
end

return train
