-- runs/workload.lua: finds what a trial costs without running it. A dry run (dry_run.lua) shows the
-- model, from which FLOP and bytes follow by formula.
--
--   local cost_of = workload.new(exp)
--   local cost = cost_of(trial.config)    nil, and why, if the function shows no model
--
-- A cost has, per step: flop, numbers (that the tape stores), modules (calls of modules), tokens;
-- and memory (bytes that training takes) and checkpoint (bytes of one file).
local config = require "toeplab.base.config"
local cost = require "toeplab.train.cost"
local dry_run = require "toeplab.runs.dry_run"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local models = require "toeplab.models"
local options = require "toeplab.base.options"
local output = require "toeplab.report.output"
local overlay = require "toeplab.base.overlay"
local quantity = require "toeplab.base.quantity"

local workload = {}

local SECONDS = 10.0 -- of processor time that all functions of a command's trials may take together

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
  local found, why, reads = dry_run.call(exp, values, open, until_when)
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
  local entries, open, left = {}, dry_run.openers(), SECONDS
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

-- Adds a trial t = {config=, step= (after which it goes on; nil: begins), label=}. found, why: its
-- cost.
function Sum:add(t, found, why)
  if not found then
    self.unknown, self.why, self.first = self.unknown + 1, self.why or why, self.first or t.label
    return
  end
  local steps = count(t.config, "steps")
  self.trials, self.files = self.trials + 1, self.files + found.checkpoint
  if steps then
    self.flop = (self.flop or 0.0) + found.flop * math.max(0, steps - (t.step or 0))
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
    -- Of some trials alone, it may be a wrong option in one row.
    local first = self.trials == 0 and "" or (self.unknown > 1 and ", first of " or ", ")
      .. self.first
    parts[#parts + 1] = ("not known of %s%s: %s"):format(output.count(self.unknown, "trial"), first,
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
