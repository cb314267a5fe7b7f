-- train/eval.lua: evaluates how well a language model predicts a stream of tokens, at any length.
--
-- The stream is cut into consecutive blocks of n targets that do not overlap; the first input of a
-- block is the stream's previous token, and the stream's first token is not a target; the last
-- block may be shorter. Every target counts once, whatever n is, so a longer n only means that the
-- context is reset less often. With carried states it is never reset: blocks read on, one by one.

local average = require "toeplab.train.average"
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local ranks = require "toeplab.train.ranks"
local suggest = require "toeplab.base.suggest"
local train = require "toeplab.train"
local watch = require "toeplab.base.watch"

local eval = {}

local spec = options.declare "tl.eval.nats_per_token" {
  { "batch_tokens", options.field { default = 4096, min = 1 },
    "tokens per batch, at least one block" },
  { "blocks", options.field { type = "int", min = 1, optional = true },
    "score only the first blocks" },
  { "group", options.field { type = "int", min = 1, optional = true },
    "whole blocks of a group, whose mean losses are returned too" },
  { "separator", options.field { type = "int", min = 0, optional = true },
    "the token with which a document begins: the model reads each document of a block alone" },
  { "carried", options.field { type = "table", optional = true },
    "states of tl.carried, used empty: every block begins with the state after the one before" },
}

-- Calls fn() with the model in evaluation mode, with the averages of its weights if an optimiser
-- has them, without a tape and with cached coefficients, and then restores mode and weights.
-- cached: nn.cached, the default, or a result of nn.cache. Returns the results of fn.
local function evaluating(model, fn, cached)
  local training = model.training
  local restore <close> = defer(function() model:train(training) end)
  local guard <close> = average.within(model)
  model:eval()
  return core.no_grad(cached or nn.cached, fn)
end

-- Returns the sum of the nats of rows of n targets, whose inputs begin at starts (from 0).
local function score(model, stream, starts, n, o)
  local loss_of = train.loss_of(model, o.carried)
  local team = not (o.separator or o.carried) and ranks.current()
  local ids = core.windows(stream, core.ids(starts), n + 1)
  local part = o.carried and { ids = ids, number = 1 } or train.packed(ids, o.separator)
  local loss = team and team:loss(model, part, loss_of) or loss_of(part):item()
  return loss * #starts * n
end

-- Returns the batches of whole blocks and then the short block: an array of {starts=, n=}. No batch
-- holds blocks of two groups.
local function batches(targets, n, o)
  local whole, list = targets // n, {}
  if o.blocks then whole, targets = math.min(whole, o.blocks), math.min(targets, o.blocks * n) end
  local size = o.carried and 1 or math.max(1, o.batch_tokens // n)
  local group, first = o.group or math.max(whole, 1), 0
  while first < whole do
    local starts, past = {}, math.min(first + size, (first // group + 1) * group, whole)
    for block = first, past - 1 do starts[#starts + 1] = block * n end
    list[#list + 1] = { starts = starts, n = n }
    first = past
  end
  if targets > whole * n then
    list[#list + 1] = { starts = { whole * n }, n = targets - whole * n }
  end
  return list
end

-- Adds the nats of a batch to the means of its group. A last, incomplete group has none.
local function add_to_group(groups, batch, nats, group, targets)
  local size, place = group * batch.n, batch.starts[1] // (group * batch.n) + 1
  if place * size > targets then return end
  groups[place] = (groups[place] or 0.0) + nats / size
end

-- Returns the mean nats per target of a stream [t] int32, such as data:stream "test", in blocks of
-- n targets, and the number of targets. Options: batch_tokens, blocks, group, separator. With
-- group, a third result lists the means of the groups of `group` consecutive blocks, without the
-- remainder.
function eval.nats_per_token(model, stream, n, given)
  local o = options.check("eval", spec, given)
  if math.type(n) ~= "integer" or n < 1 then
    error("eval: length n must be an integer of at least 1", 2)
  end
  options.stream("eval", stream)
  if o.carried then o.carried:check("eval", model, o.separator) end
  local targets = stream:numel() - 1
  if targets < 1 then
    error(("eval: a stream of %d tokens has nothing to predict"):format(stream:numel()), 2)
  end
  if targets < n then
    error(("eval: a block of %d targets is longer than the stream, which has %d"):format(n,
      targets), 2)
  end
  local list, total, groups = batches(targets, n, o), 0, o.group and {} or nil
  for _, batch in ipairs(list) do total = total + #batch.starts * batch.n end
  local states = { separator = o.separator, carried = o.carried and o.carried:fresh() }
  local function all(part)
    local nats, count = 0.0, 0
    for _, batch in ipairs(list) do
      local of_batch = score(model, stream, batch.starts, batch.n, states)
      nats, count = nats + of_batch, count + #batch.starts * batch.n
      if groups and batch.n == n then add_to_group(groups, batch, of_batch, o.group, total) end
      part(count)
    end
    return nats / count, count, groups
  end
  return evaluating(model, function()
    return watch.work("evaluating at length " .. n, total, "tokens", all)
  end)
end

-- Returns the same in bits, nats / ln 2: bits per character or byte, if these are the tokens.
function eval.bits_per_token(model, stream, n, given)
  local nats, count = eval.nats_per_token(model, stream, n, given)
  return nats / math.log(2), count
end

-- Returns the perplexity, exp(mean nats per token), the number of targets, and with group the mean
-- nats of the groups.
function eval.perplexity(model, stream, n, given)
  local nats, count, groups = eval.nats_per_token(model, stream, n, given)
  return math.exp(nats), count, groups
end

eval.evaluating = evaluating

return suggest.strict("eval", eval)
