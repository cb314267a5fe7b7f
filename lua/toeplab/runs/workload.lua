-- runs/workload.lua: finds what a trial costs without running it. It calls the trial's function
-- until that makes an optimiser or begins its loop of steps, which shows the model, and computes
-- FLOP and bytes from the model by formula. A corpus is replaced by one of its vocabulary's size,
-- unless that is known from the text alone.
--
--   local cost_of = workload.new(exp)
--   local cost = cost_of(trial.config)    nil, and why, if the function shows no model
--
-- A cost has, per step: flop, numbers (that the tape stores), modules (calls of modules), tokens;
-- and memory (bytes that training takes) and checkpoint (bytes of one file).
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local corpus = require "toeplab.tasks.corpus"
local cost = require "toeplab.train.cost"
local defer = require "toeplab.base.defer"
local errors = require "toeplab.base.errors"
local initial = require "toeplab.nn.initial"
local json = require "toeplab.base.json"
local models = require "toeplab.models"
local optim = require "toeplab.train.optim"
local options = require "toeplab.base.options"
local output = require "toeplab.report.output"
local overlay = require "toeplab.base.overlay"
local quantity = require "toeplab.base.quantity"
local tasks = require "toeplab.tasks"

local workload = {}

local SECONDS = 10.0 -- of processor time that all functions of a command's trials may take together
local CHECKED = 1e5  -- VM instructions between two looks at the clock
local TOKENS = 17    -- binary logarithm of the tokens of a corpus that stands in for another
local GPT2 = 50264   -- tokens of GPT-2 in fairseq's dictionary

-- ---- The model of a trial ----------------------------------------------------------------------

-- Sets the fields of a list of {table, name, value} until the returned value is closed.
local function replaced(list)
  local before = {}
  for i, entry in ipairs(list) do
    before[i] = entry[1][entry[2]]
    entry[1][entry[2]] = entry[3]
  end
  return defer(function()
    for i, entry in ipairs(list) do entry[1][entry[2]] = before[i] end
  end)
end

-- The number of tokens of a corpus by its tokenizer, for those that do not need its text.
local vocabularies = {
  byte = function() return core.vocab_bytes():size() end,
  gpt2 = function() return GPT2 end,
  bpe = function(o) return o.merges and core.vocab_bpe(o.merges):size() or o.vocab_size end,
}

-- Returns the ids of a corpus that stands in for another, all of them 0.
local function no_ids()
  local ids = core.ids { 0 }
  for _ = 1, TOKENS do ids = core.concat({ ids, ids }, 1) end
  return ids
end

-- Returns what stands in for a corpus with a vocabulary of that size; every part has the ids zeros.
local function stand_in(size, zeros)
  local vocab = {}
  function vocab.size() return size end
  function vocab.eos() return 0 end
  return { train = zeros, valid = zeros, test = zeros, vocab = vocab, hash = "", vocab_files = {},
    bytes_per_token = { train = 1.0, valid = 1.0, test = 1.0 },
    stream = function() return zeros end, check_lengths = function() end }
end

-- Returns a function in place of open that calls it once for the same arguments.
local function once(open)
  local known = {}
  return function(...)
    local ok, text = pcall(json.encode, { ... })
    if not ok then return open(...) end -- one of them is a function
    known[text] = known[text] or open(...)
    return known[text]
  end
end

-- Returns the functions that open data, for dry_run: {table, name, function} each. Its field corpus
-- is set to the options of the corpus that was opened last.
local function openers()
  local open, list, zeros = once(corpus.open), {}, nil
  for name, fn in pairs(tasks) do
    if name ~= "hash" then list[#list + 1] = { tasks, name, once(fn) } end
  end
  list[#list + 1] = { corpus, "open", function(name, given)
    local o = options.check("corpus", corpus.spec, given)
    list.corpus = o
    local size = vocabularies[o.tokenizer] and vocabularies[o.tokenizer](o)
    if not size then return open(name, { tokenizer = o.tokenizer }) end
    zeros = zeros or no_ids()
    return stand_in(size, zeros)
  end }
  return list
end

-- Returns the keys that were read from c.
local function reads_of(c)
  local reads = {}
  config.add_reads(c, reads)
  return reads
end

-- Adds to the list of replaced fields the kinds of models, which call made(model) with each model.
local function watch_models(list, made)
  for _, name in ipairs(models.names()) do
    local kind = models[name]
    list[#list + 1] = { models, name, setmetatable({}, { __index = kind, __call = function(_, ...)
      local model = kind(...)
      made(model)
      return model
    end }) }
  end
end

-- Calls the function of a trial until the model is known. Returns {model=, state= (bytes per
-- trained parameter in a checkpoint beside its own)}, or nil and why; and the keys that were read,
-- of a model of the library only those before it was made.
local function dry_run(exp, values, open, until_when)
  local c, found, reads = config.new(values), {}, {}
  open.corpus = nil
  local function stop(model, state)
    found.model, found.state, found.data = model, state, open.corpus or {}
    error(found, 0)
  end
  local function ignore() end
  local handle = { seed = values.seed, step = 0, say = ignore, log = ignore, text = ignore,
    steps = function(_, _, model, opt) stop(model, opt and 8 or 0) end }
  local function measures() error("its function measures, and trains no model", 0) end
  local function acts() error("its function does more than training a model", 0) end
  setmetatable(handle, { __index = acts })
  local opened = io.open
  local list = {
    { _G, "print", ignore }, { os, "execute", acts }, { os, "remove", acts },
    { os, "rename", acts }, { io, "popen", acts }, { core.sys, "sleep", acts },
    { io, "open", function(path, mode)
      return (mode or ""):find "[wa+]" and acts() or opened(path, mode)
    end },
    { optim, "adam", function(model) stop(model, 8) end },
    { optim, "sgd", function(model, given)
      stop(model, (options.given(given or {}, "momentum") or 0) > 0 and 4 or 0)
    end },
  }
  for _, name in ipairs { "seconds", "bytes", "operator", "in_turns" } do
    list[#list + 1] = { cost, name, measures }
  end
  watch_models(list, function(model) reads[model] = reads_of(c) end)
  local restore <close> = replaced(table.move(open, 1, #open, #list + 1, list))
  debug.sethook(function()
    if os.clock() > until_when then error("its function takes too long", 0) end
  end, "", CHECKED)
  local ok, why = pcall(initial.without_init, exp.trial, handle, c)
  debug.sethook()
  if found.model then return found, nil, reads[found.model] or reads_of(c) end
  why = (ok or why == found) and "its function trains no model" or errors.text(why)
  return nil, why, reads_of(c)
end

-- ---- Its cost ----------------------------------------------------------------------------------

local function count(c, name)
  local n = options.given(c, name)
  return math.type(n) == "integer" and n > 0 and n or nil
end

-- Returns the cost of training a model with the keys c; nil and why if neither they nor the options
-- of the corpus tell the length and the number of sequences of a step.
local function cost_of(found, c)
  local model = found.model
  local own = rawget(model, "opt") or {}
  local grid = rawget(own, "grid")
  local n = grid and grid[1] * grid[2] or count(c, "length") or found.data.length
    or rawget(own, "max_length")
  local batch = count(c, "batch") or found.data.batch
  if not n then return nil, "there is no key 'length'" end
  if not batch then return nil, "there is no key 'batch'" end
  local at_once = math.min(batch, count(c, "micro") or batch)
  at_once = math.max(1, at_once // (count(c, "micro_batches") or 1))
  local all, trained = model:count()
  local _, stored = model:cost(n)
  local e = models.name_of(model) and models.estimate(model, n, at_once) or {
    activation_bytes = 4 * at_once * stored }
  return {
    flop = cost.step_flop(model, n, batch), tokens = 1.0 * n * batch,
    numbers = e.activation_bytes / 4 * batch / at_once,
    modules = #model:modules() * math.ceil(batch / at_once),
    memory = 4 * all + (4 + found.state) * trained + e.activation_bytes,
    checkpoint = 4 * all + found.state * trained }
end

local function same(a, b)
  return a == b or type(a) == "table" and type(b) == "table" and json.encode(a) == json.encode(b)
end

-- Keys whose values between 0 and 1 do not change the arithmetic of a model, nor its size.
local RATES = { decay = true, dropout = true, lr = true, weight_decay = true }

local function is_rate(v) return math.type(v) == "float" and v > 0 and v < 1 end

-- Returns whether two values of a key give models of the same cost.
local function same_cost(key, a, b)
  return key == "seed" or same(a, b) or RATES[key] and is_rate(a) and is_rate(b)
end

-- Returns the first of the entries whose function has read only keys that have values of the same
-- cost in c; always: the values of keys that c may lack.
local function find(entries, c, always)
  for _, entry in ipairs(entries) do
    local equal = true
    for key in pairs(entry.reads) do
      local value = c[key]
      if value == nil then value = always[key] end
      if not same_cost(key, entry.values[key], value) then
        equal = false
        break
      end
    end
    if equal then return entry end
  end
end

-- Calls the function of a trial with the given keys, and returns an entry: values, reads, and cost
-- or why.
local function look(exp, given, open, until_when)
  local values = overlay(exp.always, config.copy(given))
  values.seed = values.seed or 1
  local found, why, reads = dry_run(exp, values, open, until_when)
  for _, key in ipairs { "batch", "length", "micro", "micro_batches" } do reads[key] = true end
  if not found then return { values = values, reads = reads, why = why } end
  local ok, cost, unknown = pcall(cost_of, found, values)
  if not ok then cost, unknown = nil, errors.text(cost) end
  return { values = values, reads = reads, cost = cost, why = unknown }
end

-- Returns a function of the configuration of a trial of exp that returns its cost; nil and why if
-- it is not known. Trials with the same values of the keys that are read until the model is known
-- share one call of their function. The limit is processor time, so that the load of the machine
-- does not decide which costs are known.
function workload.new(exp)
  local entries, open, left = {}, openers(), SECONDS
  local of = setmetatable({}, { __mode = "k" }) -- by configuration
  return function(c)
    local entry = of[c] or find(entries, c, exp.always)
    if not entry then
      if left <= 0 then
        return nil, ("plan makes models for %g s of processor time only"):format(SECONDS)
      end
      local began = os.clock()
      entry = look(exp, c, open, began + left)
      left = left - (os.clock() - began)
      entries[#entries + 1] = entry
    end
    of[c] = entry
    return entry.cost, entry.why
  end
end

-- ---- Its time ----------------------------------------------------------------------------------

-- What one step takes on a usual processor: seconds per FLOP, per number that the tape stores, and
-- per call of a module, forwards and backwards with the update. Measured by single steps of
-- language models of dim 32 to 256 on one thread; other processors mostly differ by a factor, which
-- finished trials or the limits of the machine give.
local USUAL = { flop = 1 / 30e9, number = 6.9e-9, module = 54e-6 }

-- What share of a product's FLOP rate a step reaches, and the traffic per number stored.
local SHARE, TRAFFIC = 0.45, 90

-- Returns the seconds per FLOP, number and module on a device: of the limits that bench measures
-- ({gemm = {float32 = FLOP/s}, triad = bytes/s}); nil: of a usual processor, or for a GPU in
-- proportion to the FLOP.
function workload.rates(device, precision, limits)
  if limits then
    return { flop = 1 / (SHARE * (limits.gemm[precision] or limits.gemm.float32)),
      number = TRAFFIC / limits.triad, module = USUAL.module }
  end
  return device == "cpu" and USUAL or { flop = 1.0, number = 0.0, module = 0.0 }
end

-- Returns the time of a step of that cost.
function workload.seconds(c, rates)
  return c.flop * rates.flop + c.numbers * rates.number + c.modules * rates.module
end

-- ---- Their sum ---------------------------------------------------------------------------------

local FILES = 2 -- checkpoints that a finished trial keeps, if no other has finished

local Sum = {}
Sum.__index = Sum

-- Returns an empty sum of costs: trials and unknown (how many have a known cost, and how many not),
-- flop (of all steps; nil: unknown), and of the largest trial step (FLOP), memory and checkpoint.
function workload.sum()
  return setmetatable({ trials = 0, unknown = 0, files = 0.0 }, Sum)
end

-- Adds a trial with the keys c that goes on after `step` (nil: begins). found, why: its cost.
function Sum:add(c, step, found, why)
  if not found then
    self.unknown, self.why = self.unknown + 1, self.why or why
    return
  end
  local steps = count(c, "steps")
  self.trials, self.files = self.trials + 1, self.files + found.checkpoint
  if steps then
    self.flop = (self.flop or 0.0) + found.flop * math.max(0, steps - (step or 0))
  end
  self.step = math.max(self.step or 0, found.flop)
  for _, name in ipairs { "memory", "checkpoint" } do
    self[name] = math.max(self[name] or 0, found[name])
  end
end

-- Returns a line that says all that, or nil if no trial was added.
function Sum:text()
  local parts = {}
  if self.trials > 0 then
    local part = self.unknown > 0 and (" (%d of %d trials)"):format(self.trials,
      self.trials + self.unknown) or ""
    parts[1] = ("%s%s%s; the largest: a step %s, memory %s, a checkpoint %s"):format(
      part ~= "" and self.flop and "at least " or "",
      self.flop and quantity.flop(self.flop) or "no key 'steps'", part, quantity.flop(self.step),
      output.bytes(self.memory), output.bytes(self.checkpoint))
  end
  if self.unknown > 0 then
    parts[#parts + 1] = ("not known of %s: %s"):format(output.count(self.unknown, "trial"),
      self.why:match "^[^\n]*")
  end
  return parts[1] and table.concat(parts, "; ")
end

-- Returns the bytes that `trials` trials will take, of which the sum may know some; nil if unknown.
-- bytes: the mean of finished ones, and checkpoint: of one of their checkpoints; nil: unknown.
-- like: whether all trials resemble finished ones, so that unknown checkpoints may count as equal.
function Sum:disk(bytes, checkpoint, trials, like)
  local mean = self.trials > 0 and self.files / self.trials
  if bytes and mean and checkpoint and (like or self.unknown == 0) then
    return math.floor(bytes * mean / checkpoint * trials)
  elseif bytes and like then
    return math.floor(bytes * trials)
  end
  return mean and self.unknown == 0 and math.floor(FILES * self.files) or nil
end

return workload
