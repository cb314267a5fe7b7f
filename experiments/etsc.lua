-- etsc.lua: how far is a trained TNN from its recurrent forms, within its training length and
-- beyond, and what do they cost? (ETSC; distillation to few modes)
--
-- Each form is made from the kernel of the first `length` lags. The TNN itself has the kernel up to
-- `reach` times as many lags. exact: ETSC with these lags and zeros beyond; published: the same,
-- then periodic; balanced and fitted: state spaces of few modes (models/distill.lua). Perplexity is
-- measured on streams of reach * length tokens.
local tl = require "toeplab"

-- ---- Forms ----------------------------------------------------------------------------------

-- Returns the forms {name=, make= (kernel t [lags,d], gamma, sequences -> recurrence)} to compare.
local function forms_of(c)
  local list = {}
  for _, form in ipairs { "exact", "published" } do
    list[#list + 1] = { name = form, make = function(t, gamma, sequences)
      return tl.recurrence(t, gamma, form, sequences)
    end }
  end
  for _, form in ipairs(tl.distill.forms) do
    for _, modes in ipairs(c.modes) do
      local known = {} -- layer -> system: an impulse and the streams share it
      list[#list + 1] = { name = form .. modes, make = function(t, gamma, sequences, layer)
        local k = gamma and tl.decay(t, tl.range(0, t:dim(1) - 1), gamma) or t
        known[layer] = known[layer] or tl.distill.system(k, modes, form)
        return tl.distill.recurrence(known[layer], t:dim(1), sequences)
      end }
    end
  end
  return list
end

-- ---- Measurements ---------------------------------------------------------------------------

-- Returns the kernel [lags,d] of a TNO with its decay, and as recurrences take it, t and gamma.
local function kernel_of(layer, lags)
  local t, gamma = tl.recurrent.kernel(layer.module, lags, layer.name)
  return gamma and tl.decay(t, tl.range(0, lags - 1), gamma) or t, t, gamma
end

local function sum_of_squares(x) return x:square():sum():item() end

-- Returns the errors of a form's responses to an impulse, norms over all layers and channels
-- relative to the kernel's norm: within c.length lags, and from there to c.length * c.reach.
local function errors_of(layers, form, c)
  local n, all = c.length, c.length * c.reach
  local within, beyond, size = 0.0, 0.0, 0.0
  for _, layer in ipairs(layers) do
    local far = kernel_of(layer, all)
    local _, t, gamma = kernel_of(layer, n)
    local recurrence, d = form.make(t, gamma, 1, layer.name), far:dim(2)
    local impulse = tl.concat({ tl.ones(1, d), tl.zeros(all - 1, d) }, 1):reshape(1, all, d)
    local off = recurrence:step(impulse):reshape(all, d) - far
    within = within + sum_of_squares(off:narrow(1, 1, n))
    beyond = beyond + sum_of_squares(off:narrow(1, n + 1, all - n))
    size = size + sum_of_squares(far)
    recurrence:close()
  end
  return math.sqrt(within / size), math.sqrt(beyond / size)
end

-- Returns the perplexity of a session on ids [b, reach*length+1].
local function perplexity(session, ids, c)
  local b, nats = ids:dim(1), 0.0
  for i = 0, c.reach - 1 do
    local x = ids:narrow(2, i * c.length + 1, c.length)
    local y = ids:narrow(2, i * c.length + 2, c.length)
    local logits = session:forward(x)
    nats = nats + tl.cross_entropy(logits:reshape(b * c.length, -1), y:reshape(-1)):item()
  end
  return math.exp(nats / c.reach)
end

-- Returns the number of tokens of the test part that are read.
local function tokens_of(c) return c.streams * (c.length * c.reach + 1) end

local function measure(t, c, model, data)
  local all = c.length * c.reach
  local ids = data.test:narrow(1, 1, tokens_of(c)):reshape(c.streams, all + 1)
  local layers = tl.recurrent.operators(model)
  local function run(name, make)
    local session <close> = setmetatable({ of = tl.recurrent.session(model, make) },
      { __close = function(s) s.of:close() end })
    local sizes = session.of:sizes()
    t:log { [name .. "_ppl"] = perplexity(session.of, ids, c),
      [name .. "_state_kib"] = sizes.state / c.streams / 1024,
      [name .. "_kernel_kib"] = sizes.kernels / 1024 }
  end
  run("tnn", function(tno, name)
    local kernel, gamma = tl.recurrent.kernel(tno, all, name)
    return tl.relaxed_recurrence(kernel, gamma, c.streams, 0)
  end)
  for _, form in ipairs(forms_of(c)) do
    t:say("%s", form.name)
    local within, beyond = errors_of(layers, form, c)
    t:log { [form.name .. "_within"] = within, [form.name .. "_beyond"] = beyond }
    run(form.name, function(tno, name)
      local kernel, gamma = tl.recurrent.kernel(tno, c.length, name)
      return form.make(kernel, gamma, c.streams, name)
    end)
  end
end

-- ---- The experiment --------------------------------------------------------------------------

local columns = { "within", "beyond", "ppl", "state_kib", "kernel_kib" }

return tl.experiment "etsc" {
  fixed = tl.lm.fixed { corpus = "wikitext-2", tokenizer = "bpe", scored = 65536,
    batch = 16, micro = 16, steps = 1000, schedule = "inverse_sqrt", warmup = 100,
    decay = false, lengths = { 128 }, reach = 8, streams = 16, modes = { 4, 8, 16, 32 } },
  grid = { decay = { 0.99, "none" } },
  seeds = 3,
  scale = tl.lm.scales { smoke = { modes = { 2, 4 }, reach = 2, streams = 2, lengths = { 16 } },
    gpu = { reach = 8 } },
  check = function(c)
    tl.lm.check(c)
    if c.reach < 2 then error("reach must be at least 2: nothing would lie beyond", 0) end
    for _, modes in ipairs(c.modes) do
      if modes >= c.length then error("modes must be fewer than length, got " .. modes, 0) end
    end
  end,

  trial = function(t, c)
    tl.corpus(c.corpus, c):check_lengths("test", { tokens_of(c) })
    local model, data = tl.lm.train(t, c, { every = math.max(c.steps // 8, 1),
      blocks = math.max(1, c.scored // c.length) })
    model:eval()
    tl.no_grad(measure, t, c, model, data)
  end,

  -- Prints a row for each form of each decay: means over the seeds.
  report = function(trials, report)
    local rows, by = {}, {}
    for _, t in ipairs(trials) do
      local decay = tostring(t.config.decay)
      if not by[decay] then by[#by + 1], by[decay] = decay, {} end
      table.insert(by[decay], t)
    end
    for _, decay in ipairs(by) do
      local names = { "tnn" }
      for _, form in ipairs(forms_of(trials[1].config)) do names[#names + 1] = form.name end
      for _, name in ipairs(names) do
        local row = { decay, name }
        for i, column in ipairs(columns) do
          local values = {}
          for k, t in ipairs(by[decay]) do values[k] = t.metrics[name .. "_" .. column] end
          row[2 + i] = #values > 0 and report.mean(values) or nil
        end
        rows[#rows + 1] = row
      end
    end
    report.table({ "decay", "form", table.unpack(columns) }, rows, nil,
      "within, beyond: errors of the kernel relative to its norm; KiB of all layers")
  end,
}
