-- synthetic/mad.lua: generates the six tasks of MAD, mechanistic architecture design (Poli et al.
-- 2024), with the settings that its score averages over.
--
-- A task is {vocab=, length=} with the methods of drawn.lua; each epoch uses the `train` fixed
-- examples in a new order. The options default to the baseline of the published configurations;
-- mad.settings lists the benchmark's changes to it. In training the recall tasks have a target
-- after every token; the score counts the tokens that earlier ones determine.

local core = require "toeplab.core"
local drawn = require "toeplab.tasks.synthetic.drawn"
local options = require "toeplab.base.options"
local streams = require "toeplab.base.streams"
local suggest = require "toeplab.base.suggest"

local mad = {}

local field, count = options.field, drawn.count
local below, distinct = drawn.below, drawn.distinct

local function vocab(default, help)
  return { "vocab", field { default = default, min = 4, max = 1 << 24 }, help }
end

local function length(default, help)
  return { "length", field { default = default, min = 4, max = 1 << 20,
    check = function(n) return n % 2 == 0, "must be even" end }, help }
end

local function common(name, spec, train)
  return drawn.declare("mad." .. name, spec,
    { batch = 128, valid = 1280, test = 1280, train = train or 12800 })
end

-- ---- In-context recall, without and with noise -------------------------------------------------

-- Returns a task of pairs of a random key and its value, which is fixed within the example. The
-- last pair has a key that occurred before, and its value ends the sequence. A share of the other
-- pairs are two noise tokens instead. Keys are the first half of the tokens that are not noise,
-- values the second half. The score counts the values of keys that occurred before.
local function pairs_task(name, o, noise, share)
  local kinds, slots = o.vocab - noise, o.length // 2
  local keys = kinds // 2
  if keys < 1 or kinds - keys < 1 then
    error(("%s: noise = %d leaves no keys and values of vocab = %d"):format(name, noise, o.vocab),
      0)
  end
  local function draw(next_, row, places, targets, first, _, part)
    local value, seen = {}, {}
    local sure = below(next_, slots - 1) -- holds a pair, so that there is a key for the query
    for slot = 0, slots - 1 do
      local a, b
      if slot < slots - 1 and slot ~= sure and share > 0 and next_() < share then
        a, b = kinds + below(next_, noise), kinds + below(next_, noise)
      else
        a = slot < slots - 1 and below(next_, keys) or seen[1 + below(next_, #seen)]
        if value[a] and part ~= "train" then
          places[#places + 1], targets[#targets + 1] = first + 2 * slot, value[a]
        elseif not value[a] then
          value[a], seen[#seen + 1] = keys + below(next_, kinds - keys), a
        end
        b = value[a]
      end
      row[2 * slot + 1], row[2 * slot + 2] = a, b
    end
    local last = table.remove(row)
    if part == "train" then drawn.every(row, places, targets, first, last) end
  end
  return drawn.task { name = name, options = o, vocab = o.vocab, length = o.length - 1,
    draws = 3 * slots + 1, draw = draw }
end

local in_context = common("in_context_recall", {
  vocab(16, "tokens: half keys, half values"),
  length(128, "tokens of an example, the last answer included"),
})

-- tl.mad.in_context_recall(options): recall of values by keys of one token.
function mad.in_context_recall(given)
  local o = options.check("in_context_recall", in_context, given or {})
  return pairs_task("in_context_recall", o, 0, 0)
end

local noisy = common("noisy_recall", {
  vocab(32, "tokens, noise included"), length(128, "tokens of an example"),
  { "noise", count(16), "kinds of noise tokens" },
  { "share", field { default = 0.2, min = 0, max = 0.999 }, "share of the pairs that are noise" },
})

-- tl.mad.noisy_recall(options): the same among noise tokens, the last ones of the vocabulary.
function mad.noisy_recall(given)
  local o = options.check("noisy_recall", noisy, given or {})
  return pairs_task("noisy_recall", o, o.noise, o.share)
end

-- ---- Fuzzy recall -------------------------------------------------------------------------------

local fuzzy = common("fuzzy_recall", {
  vocab(16, "tokens: half keys, half values, and one that fills the beginning"),
  length(128, "tokens of an example"),
  { "motif", field { default = 3, min = 1, max = 64 }, "most tokens of a key and of a value" },
})

-- tl.mad.fuzzy_recall(options): in-context recall of values of 1 to `motif` different tokens by
-- keys of 1 to `motif` different ones, in validation and test of exactly `motif`. The published
-- code sometimes leaves the last key out of the sequence, so that its value cannot be known; here
-- it always occurs before.
function mad.fuzzy_recall(given)
  local o = options.check("fuzzy_recall", fuzzy, given or {})
  local pad, most = o.vocab - 1, o.motif
  local keys = pad // 2
  if keys < most or o.length < 6 * most then
    error(("fuzzy_recall: motif = %d needs a vocab of at least %d and a length of at least %d")
      :format(most, 2 * most + 1, 6 * most), 0)
  end
  local function draw(next_, row, places, targets, first, _, part)
    local body, scored, value, seen = {}, {}, {}, {}
    local function motif(kinds, base, size)
      local list = distinct(next_, size or 1 + below(next_, most), kinds)
      for i, token in ipairs(list) do list[i] = base + token end
      return list
    end
    local function new_key()
      local key = motif(keys, 0, part ~= "train" and most or nil)
      local name = table.concat(key, " ")
      value[name] = value[name] or motif(pad - keys, keys)
      return key, name
    end
    local function add(key, name)
      table.move(key, 1, #key, #body + 1, body)
      for _, token in ipairs(value[name]) do
        body[#body + 1] = token
        if seen[name] then scored[#scored + 1] = #body end
      end
      seen[name] = true
    end
    local asked, name = new_key()
    local room = o.length - #asked - #value[name] - 2 * most
    local at = below(next_, room - 2 * most + 1)
    while #body < room do
      if #body >= at and not seen[name] then add(asked, name) else add(new_key()) end
    end
    add(asked, name)
    local lead = o.length + 1 - #body
    for i = 1, o.length do row[i] = i > lead and body[i - lead] or pad end
    if part == "train" then return drawn.every(row, places, targets, first, body[#body]) end
    for i, at_ in ipairs(scored) do places[i], targets[i] = first + lead + at_ - 2, body[at_] end
  end
  return drawn.task { name = "fuzzy_recall", options = o, vocab = o.vocab, length = o.length,
    draws = 2 * o.length + 2 * most + 3, draw = draw }
end

-- ---- Memorization -------------------------------------------------------------------------------

local memorization = common("memorization", {
  vocab(256, "tokens: half keys, half values, and one for the query"),
  length(32, "tokens of an example"),
}, 256)

-- tl.mad.memorization(options): each key has a value that is the same in all examples of a seed,
-- and the model is to predict it after the key and the last token of the vocabulary.
function mad.memorization(given)
  local o = options.check("memorization", memorization, given or {})
  local ask = o.vocab - 1
  local keys = ask // 2
  local value = core.stream(o.seed or streams.seed_of(), "memorization values")
    :permutation(ask - keys):totable()
  local function draw(next_, row, places, targets, first)
    for i = 1, o.length, 2 do
      row[i], row[i + 1] = below(next_, keys), ask
      places[#places + 1], targets[#targets + 1] = first + i, keys + value[row[i] + 1]
    end
  end
  return drawn.task { name = "memorization", options = o, vocab = o.vocab, length = o.length,
    draws = o.length // 2, draw = draw }
end

-- ---- Compression --------------------------------------------------------------------------------

local compression = common("compression", {
  vocab(16, "tokens, and one that ends the example"), length(32, "tokens of an example"),
})

-- tl.mad.compression(options): random tokens and the last one of the vocabulary. The target of each
-- place is its own token: a model must recover all of them from its state after the last one.
function mad.compression(given)
  local o = options.check("compression", compression, given or {})
  local function draw(next_, row, places, targets, first)
    for i = 1, o.length do
      row[i] = i < o.length and below(next_, o.vocab - 1) or o.vocab - 1
      places[i], targets[i] = first + i - 1, row[i]
    end
  end
  return drawn.task { name = "compression", options = o, vocab = o.vocab, length = o.length,
    draws = o.length, draw = draw }
end

-- ---- Selective copying --------------------------------------------------------------------------

local copying = common("selective_copying", {
  vocab(16, "tokens to copy, a blank, and one that requests the copy"),
  length(256, "tokens of an example"), { "marks", count(16), "tokens to copy" },
})

-- tl.mad.selective_copying(options): `marks` random tokens, each after a random number of blanks
-- (the last but one token of the vocabulary), then the last one, and `marks` blanks, after which
-- the model is to predict these tokens in order.
function mad.selective_copying(given)
  local o = options.check("selective_copying", copying, given or {})
  local blank, blanks = o.vocab - 2, o.length - 2 * o.marks - 1
  if blanks < 0 then
    error(("selective_copying: marks = %d need a length of at least %d, which is %d"):format(
      o.marks, 2 * o.marks + 2, o.length), 0)
  end
  local function draw(next_, row, places, targets, first)
    local before = {}
    for i = 1, o.marks do before[i] = 0 end
    for _ = 1, blanks do
      local i = 1 + below(next_, o.marks)
      before[i] = before[i] + 1
    end
    local start = o.length - o.marks
    for i = 1, o.length do row[i] = i == start and blank + 1 or blank end
    local at = 0
    for i = 1, o.marks do
      at = at + before[i] + 1
      row[at] = below(next_, blank)
      places[i], targets[i] = first + start + i - 1, row[at]
    end
  end
  return drawn.task { name = "selective_copying", options = o, vocab = o.vocab, length = o.length,
    draws = blanks + o.marks, draw = draw }
end

-- ---- The benchmark ------------------------------------------------------------------------------

local fewer = { "train", { 6400, 3200, 1600, 800 } }
local wider, longer = { "vocab", { 32, 64, 128 } }, { "length", { 256, 512, 1024 } }

-- By task: the options that the benchmark changes, one at a time, and their values.
local changes = {
  { "in_context_recall", { wider, longer, fewer } },
  { "fuzzy_recall", { wider, longer, fewer } },
  { "noisy_recall", { { "vocab", { 48, 80, 144 } }, longer, fewer,
    { "share", { 0.4, 0.6, 0.8 } } } },
  { "selective_copying", { wider, { "length", { 512, 1024 } }, fewer,
    { "marks", { 32, 64, 96 } } } },
  { "compression", { wider, { "length", { 64, 128, 256 } }, fewer } },
  { "memorization", { { "vocab", { 512, 1024, 2048, 4096, 8192 } } } },
}

-- Returns the settings of the benchmark: a list of {task=, options=}, first the baseline of each
-- task, with options {}, then the settings that change one option of it.
function mad.settings()
  local list = {}
  for _, of in ipairs(changes) do
    list[#list + 1] = { task = of[1], options = {} }
    for _, change in ipairs(of[2]) do
      for _, value in ipairs(change[2]) do
        list[#list + 1] = { task = of[1], options = { [change[1]] = value } }
      end
    end
  end
  return list
end

return suggest.strict("mad", mad)
