-- bench/generate.lua: time and memory per generated token against the length of the text, for every
-- method of generation: a model of two layers whose operators see the whole text.
local core = require "toeplab.core"
local models = require "toeplab.models"
local nn = require "toeplab.nn"
local recurrent = require "toeplab.recurrent"
local report = require "toeplab.report"
local streams = require "toeplab.streams"
local timing = require "toeplab.bench.timing"

local LAYERS, DIM, VOCAB = 2, 64, 1000
local STEPS = 8 -- of a sample of a recurrence: one is too short for the clock

local methods = {
  { name = "ring", method = "ring" },
  { name = "etsc exact", method = "etsc", form = "exact" },
  { name = "etsc published", method = "etsc", form = "published" },
}

local function text(n)
  local ids = {}
  for i = 1, n do ids[i] = i * 7919 % VOCAB end
  return core.ids { ids }
end

-- A row for timing of a session that has seen n tokens.
local function stepped(model, how, n)
  local session = recurrent.new(model, { method = how.method, form = how.form, lags = n })
  session:hidden(text(n))
  local token, sizes = text(1), session:sizes()
  return {
    name = how.name, n = n, count = STEPS, session = session, state = sizes.state,
    shared = sizes.kernels,
    run = function()
      for _ = 1, STEPS do
        core.no_grad(function() return model:logits(session:hidden(token)) end)
      end
    end,
  }
end

-- A row of the model run on all n tokens; its memory is what one run takes.
local function recomputed(model, n)
  local ids = text(n)
  local function run()
    return core.no_grad(function()
      return model:logits(model:hidden(ids):narrow(2, n, 1))
    end)
  end
  run()
  collectgarbage()
  collectgarbage()
  core.memory_reset_peak()
  local before = core.memory().live
  run()
  return { name = "fft", n = n, state = core.memory().peak - before, shared = 0, run = run }
end

local function at_length(model, n, repeats)
  local rows = {}
  nn.cached(function()
    rows[1] = recomputed(model, n)
    for _, how in ipairs(methods) do rows[#rows + 1] = stepped(model, how, n) end
    timing.interleaved(rows, repeats)
  end)
  for _, row in ipairs(rows) do
    if row.session then row.session:close() end
    row.run = nil
  end
  return rows
end

local function print_exponents(first, last)
  local parts = {}
  for i, row in ipairs(first) do
    local other = last[i]
    parts[i] = ("%s n^%.2f, memory n^%.2f"):format(row.name,
      timing.exponent(row.n, row.median, other.n, other.median),
      timing.exponent(row.n, row.state, other.n, other.state))
  end
  print(("from %d to %d: time %s"):format(first[1].n, last[1].n, table.concat(parts, "; time ")))
end

local bench = { about = "a generated token against the length of the text: fft, ring, etsc" }

function bench.run(o)
  streams.seed(1)
  local model = models.tnn_lm { vocab = VOCAB, layers = LAYERS, dim = DIM }
  local lengths = o.quick and { 256, 1024 } or { 256, 512, 1024, 2048, 4096, 8192 }
  model:eval()
  print(("%d layers, %d channels in each operator, gamma 0.99, batch 1, %d threads; memory is the "
    .. "state of a\nsequence (fft: of one run), kernels are shared by all; an operator sees the "
    .. "whole text"):format(LAYERS, 3 * DIM, core.threads()))
  local all, lines = {}, {}
  for i, n in ipairs(lengths) do
    all[i] = at_length(model, n, o.repeats or (o.quick and 5 or 11))
    for _, row in ipairs(all[i]) do
      local median, quartiles = timing.cells(row)
      lines[#lines + 1] = { n, row.name, median, quartiles, ("%.0f"):format(row.state / 1024),
        ("%.0f"):format(row.shared / 1024) }
    end
  end
  report.print({ "tokens", "method", "ms/token", "quartiles", "memory KiB", "kernels KiB" }, lines)
  print_exponents(all[1], all[#all])
end

return bench
