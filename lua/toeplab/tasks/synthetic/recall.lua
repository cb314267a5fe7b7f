-- synthetic/recall.lua: generates the tasks in which a model must recall earlier tokens:
-- associative recall with one query or many, induction heads, selective copying, state tracking.
--
-- A task is {vocab=, length=} with the methods of drawn.lua, which describes a batch.

local core = require "toeplab.core"
local drawn = require "toeplab.tasks.synthetic.drawn"
local evaluating = require("toeplab.train.eval").evaluating
local groups = require "toeplab.tasks.synthetic.groups"
local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

local recall = {}

local field, count = options.field, drawn.count
local below, distinct = drawn.below, drawn.distinct

local function common(name, spec, fixed)
  return drawn.declare("recall." .. name, spec,
    { batch = 64, valid = 1000, test = 1000, train = fixed })
end

-- ---- Associative recall -----------------------------------------------------------------------

local mqar = common("mqar", {
  { "vocab", field { default = 8192, min = 4, max = 1 << 24 }, "tokens: half keys, half values" },
  { "length", field { default = 256, min = 4, max = 1 << 20 }, "tokens of an example" },
  { "pairs", count(16), "pairs of a key and its value" },
  { "power", field { default = 0.01, min = 1e-6, max = 1 },
    "query slot k = 1, 2, ... is drawn with weight k^(power - 1)" },
  { "filler", field { default = "random", choices = { "random", "zero" } },
    "the tokens between queries: any ones, or all token 0" },
}, false)

-- Returns `wanted` different slots of 0..#weights-1, each drawn with its weight among those left:
-- the smallest of -ln(u) / weight have that distribution.
local function weighted(next_, wanted, weights)
  local order, time = {}, {}
  for k, weight in ipairs(weights) do
    order[k], time[k] = k, -math.log(1 - math.min(next_(), 1 - 2 ^ -24)) / weight
  end
  table.sort(order, function(a, b)
    if time[a] ~= time[b] then return time[a] < time[b] end
    return a < b
  end)
  local list = {}
  for i = 1, wanted do list[i] = order[i] - 1 end
  return list
end

-- tl.recall.mqar(options): multi-query associative recall (Arora et al. 2023, Zoology, Section 4).
-- An example begins with pairs of different keys and values. Each key then occurs again as a query,
-- at an even distance after the pairs, and the model is to predict its value after it. All other
-- tokens are random, the harder form, or 0, as in the paper's runs. Keys are the tokens
-- 1..vocab/2-1, values those from vocab/2.
function recall.mqar(given)
  local o = options.check("mqar", mqar, given or {})
  local half, slots = o.vocab // 2, (o.length - 2 * o.pairs) // 2
  if slots < o.pairs then
    error(("mqar: pairs = %d need a length of at least %d, which is %d"):format(o.pairs,
      4 * o.pairs, o.length), 0)
  end
  if o.pairs > half - 1 then
    error(("mqar: pairs = %d need a vocab of at least %d, which is %d"):format(o.pairs,
      2 * o.pairs + 2, o.vocab), 0)
  end
  local weights = {}
  for k = 1, slots do weights[k] = k ^ (o.power - 1) end
  local function draw(next_, row, places, targets, first)
    local keys = distinct(next_, o.pairs, half - 1)
    local values = distinct(next_, o.pairs, o.vocab - half)
    for i = 1, o.length do row[i] = o.filler == "random" and below(next_, o.vocab) or 0 end
    for i, slot in ipairs(weighted(next_, o.pairs, weights)) do
      local at = 2 * o.pairs + 2 * slot
      row[2 * i - 1], row[2 * i], row[at + 1] = 1 + keys[i], half + values[i], 1 + keys[i]
      places[#places + 1], targets[#targets + 1] = first + at, half + values[i]
    end
  end
  return drawn.task { name = "mqar", options = o, vocab = o.vocab, length = o.length,
    draws = 2 * o.pairs + o.length + slots, draw = draw }
end

-- ---- One query: associative recall and induction heads ------------------------------------------

-- Tokens are numbered 0 .. vocab - 3; vocab - 2 marks the place of the query, and vocab - 1, which
-- in the published code stands for a key without a value, never occurs. In training every token is
-- a target after the one before it, most of which are random; in validation and test only the
-- answer.
local function one_query(name, default_length)
  return common(name, {
    { "vocab", field { default = 20, min = 4, max = 1 << 24 }, "tokens, with two special ones" },
    { "length", field { default = default_length, min = 4, max = 1 << 20 },
      "tokens of an example before the query" },
  }, false)
end

-- Appends the places and targets of a part: all, or the answer after the last token.
local function ask(row, places, targets, first, part, answer)
  if part == "train" then return drawn.every(row, places, targets, first, answer) end
  places[#places + 1], targets[#targets + 1] = first + #row - 1, answer
end

local associative = one_query("associative_recall", 40)

-- tl.recall.associative_recall(options): associative recall (Fu et al. 2023, H3, Section 3.1; the
-- released code). An example consists of length/2 pairs of a random key and its value, which is
-- fixed within the example; then follow the mark and one of these keys, and the model is to predict
-- its value. Keys are the first half of the tokens, values the second.
function recall.associative_recall(given)
  local o = options.check("associative_recall", associative, given or {})
  local mark = o.vocab - 2
  local keys = mark // 2
  local function draw(next_, row, places, targets, first, _, part)
    local value, seen = {}, {}
    for i = 1, o.length - 1, 2 do
      local key = below(next_, keys)
      if not value[key] then
        value[key], seen[#seen + 1] = keys + below(next_, mark - keys), key
      end
      row[i], row[i + 1] = key, value[key]
    end
    local key = seen[1 + below(next_, #seen)]
    row[#row + 1], row[#row + 2] = mark, key
    ask(row, places, targets, first, part, value[key])
  end
  return drawn.task { name = "associative recall", options = o, vocab = o.vocab,
    length = o.length // 2 * 2 + 2, draws = o.length + 1, draw = draw }
end

local induction = one_query("induction_heads", 30)

-- tl.recall.induction_heads(options): induction heads (Fu et al. 2023, H3, Section 3.1; the
-- released code). The mark stands at a random place among random tokens, and again after them; the
-- model is to predict the token that followed it the first time.
function recall.induction_heads(given)
  local o = options.check("induction_heads", induction, given or {})
  local mark = o.vocab - 2
  local function draw(next_, row, places, targets, first, _, part)
    for i = 1, o.length do row[i] = below(next_, mark) end
    local at = 1 + below(next_, o.length - 2)
    row[at], row[o.length + 1] = mark, mark
    ask(row, places, targets, first, part, row[at + 1])
  end
  return drawn.task { name = "induction heads", options = o, vocab = o.vocab,
    length = o.length + 1, draws = o.length + 1, draw = draw }
end

-- ---- Selective copying -------------------------------------------------------------------------

local copying = common("selective_copying", {
  { "symbols", field { default = 16, min = 1, max = 1 << 20 }, "kinds of tokens to copy" },
  { "marks", count(16), "tokens to copy" },
  { "span", field { default = 256, min = 1, max = 1 << 20 },
    "tokens among which those to copy are spread" },
})

-- tl.recall.selective_copying(options): selective copying (Gu & Dao 2023, Section 4.1.1). In an
-- example, `marks` random symbols stand at random places of `span` tokens; the others are noise
-- (token 0). Then follow `marks` tokens 1, after which the model is to predict the symbols in
-- order. Symbols are the tokens from 2.
function recall.selective_copying(given)
  local o = options.check("selective_copying", copying, given or {})
  if o.marks > o.span then
    error(("selective_copying: marks = %d does not fit in span = %d"):format(o.marks, o.span), 0)
  end
  local function draw(next_, row, places, targets, first)
    for i = 1, o.span + o.marks do row[i] = i > o.span and 1 or 0 end
    local spots = distinct(next_, o.marks, o.span)
    table.sort(spots)
    for i, spot in ipairs(spots) do
      local symbol = 2 + below(next_, o.symbols)
      row[spot + 1] = symbol
      places[#places + 1], targets[#targets + 1] = first + o.span + i - 1, symbol
    end
  end
  return drawn.task { name = "selective copying", options = o, vocab = o.symbols + 2,
    length = o.span + o.marks, draws = 2 * o.marks, draw = draw }
end

-- ---- State tracking ----------------------------------------------------------------------------

local tracking = common("state_tracking", {
  { "group", field { default = "z2", check = groups.table_of },
    "z2 (parity), z3, ..., s3, a5, s5" },
  { "least", count(3), "fewest tokens of an example to train or validate with" },
  { "most", count(40), "most tokens of such an example" },
  { "test_least", count(40), "fewest tokens of an example to test with" },
  { "test_most", count(256), "most tokens of such an example" },
})

-- tl.recall.state_tracking(options): the word problem of a group (Merrill et al. 2024; parity and
-- sums modulo n are the cyclic groups). Tokens are random elements; the model is to predict their
-- product so far, in training after each token, in validation and test after the last one. The
-- examples of a batch have one random length. No mixer that is linear and constant in time, such as
-- a TNO, can solve it at all lengths.
function recall.state_tracking(given)
  local o = options.check("state_tracking", tracking, given or {})
  for _, pair in ipairs { { "least", "most" }, { "test_least", "test_most" } } do
    if o[pair[1]] > o[pair[2]] then
      error(("state_tracking: %s = %d is above %s = %d"):format(pair[1], o[pair[1]], pair[2],
        o[pair[2]]), 0)
    end
  end
  local product, order = groups.table_of(o.group)
  local function draw_length(next_, part)
    local least, most = o.least, o.most
    if part == "test" then least, most = o.test_least, o.test_most end
    return least + below(next_, most - least + 1)
  end
  local function draw(next_, row, places, targets, first, length, part)
    local state = 0
    for i = 1, length do
      row[i] = below(next_, order)
      state = product[state][row[i]]
      if part == "train" or i == length then
        places[#places + 1], targets[#targets + 1] = first + i - 1, state
      end
    end
  end
  local longest = math.max(o.most, o.test_most)
  return drawn.task { name = "state tracking " .. o.group, options = o, vocab = order,
    length = longest, draws = longest, draw = draw, draw_length = draw_length }
end

-- ---- Training and evaluation -------------------------------------------------------------------

-- Returns a language model's logits after the tokens at the batch's places: [m,vocab].
local function logits(model, batch)
  local hidden = model:hidden(batch.ids)
  return model:logits(hidden:reshape(-1, hidden:dim(3)):gather(batch.places))
end

-- Updates the model from a batch. Returns the mean cross entropy in nats of its targets, and
-- {step=, lr=, grad_norm=}.
function recall.step(model, opt, batch)
  model:train()
  opt:zero_grad()
  local loss = core.cross_entropy(logits(model, batch), batch.targets)
  loss:backward()
  local info = opt:step()
  return loss:item(), info
end

-- Returns the fraction of the targets of a part that the model predicts, and their mean cross
-- entropy in nats. Batches have size examples.
function recall.accuracy(model, task, part, size)
  local good, total, nats = 0, 0, 0.0
  evaluating(model, function()
    for batch in task:each(part, size) do
      local y = logits(model, batch)
      local guess, wanted = y:argmax():totable(), batch.targets:totable()
      for i, target in ipairs(wanted) do
        if guess[i] == target then good = good + 1 end
      end
      nats = nats + core.cross_entropy(y, batch.targets):item() * #wanted
      total = total + #wanted
    end
  end)
  return good / total, nats / total
end

return suggest.strict("recall", recall)
