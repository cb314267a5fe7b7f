-- test_attention_classifier.lua -- attention_classifier: published sizes, padding, pairs, pooling,
-- gradients, learning, and errors.

local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"
local sizes = require "toeplab.models.sizes"

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function make(more)
  local o = { vocab = 7, classes = 3, max_length = 12, dim = 6, hidden = 8, layers = 2 }
  for key, value in pairs(more or {}) do o[key] = value end
  return tl.models.attention_classifier(o)
end

local function largest(x) return core.abs(x):amax():item() end

-- The logits without gradients, as a tensor.
local function logits(model, ...) return core.no_grad(model, ...) end

local attentions = { "attention", "kernelized", "linformer", "nystrom", "informer", "bigbird",
  "reformer", "skyformer" }

test("the published models have their numbers of parameters, whatever the attention", function()
  for _, case in ipairs {
    { 209802, { vocab = 32, classes = 10, max_length = 2048 } },
    { 370562, { vocab = 512, classes = 2, max_length = 4096 } },
    { 395138, { vocab = 512, classes = 2, max_length = 4096, pair = true } },
    { 158602, { vocab = 256, classes = 10, max_length = 1024 } },
  } do
    for _, mixer in ipairs { "attention", "nystrom", "bigbird", "skyformer" } do
      case[2].mixer = mixer
      local model = tl.models.describe("attention_classifier", case[2])
      eq(model:count(), case[1])
      eq(tl.models.attention_classifier.parameters_of(model.opt), case[1] + 0.0)
      eq(tl.models.name_of(model), "attention_classifier")
    end
  end
  raises(tl.models.describe, "parameters take .* GiB of memory are available",
    "attention_classifier", { vocab = 1 << 30, classes = 2, max_length = 4, dim = 1 << 20 })
  ok(sizes.available())
end)

test("the estimate of memory is near the real memory of training, for softmax", function()
  for _, case in ipairs { { 1, 64, 128, 256 }, { 2, 64, 256, 512 }, { 4, 32, 64, 512 } } do
    local b, dim, hidden, n = table.unpack(case)
    local model = make { dim = dim, hidden = hidden, max_length = n, heads = 2 }
    local ids, labels = {}, {}
    for row = 1, b do
      ids[row], labels[row] = {}, 0
      for i = 1, n do ids[row][i] = i % 7 end
    end
    ids, labels = core.ids(ids), core.ids(labels)
    collectgarbage()
    core.memory_reset_peak()
    local before = core.memory().live
    core.cross_entropy(model(ids), labels):backward()
    local took = core.memory().peak - before
    local told = tl.models.estimate(model, n, b)
    local ratio = took / (told.activation_bytes + told.gradient_bytes)
    ok(ratio > 0.6 and ratio < 1.7, ("%d bytes, %.2f of the estimate"):format(took, ratio))
  end
end)

test("padding changes no logits, for every attention; token pad is padding everywhere", function()
  for _, mixer in ipairs(attentions) do
    local model = make { mixer = mixer }:eval()
    local ids = core.ids { { 1, 2, 3, 4, 5, 0, 0 }, { 6, 5, 4, 3, 2, 1, 1 } }
    local other = core.ids { { 1, 2, 3, 4, 5, 6, 2 }, { 6, 5, 4, 3, 2, 1, 1 } }
    local lengths = core.ids { 5, 7 }
    local function at(...)
      tl.seed(3) -- the random choices of evaluation
      return logits(model, ...)
    end
    ok(largest(at(ids, lengths) - at(other, lengths)) < 1e-6, mixer)
    ok(largest(at(ids) - at(other)) > 1e-4, mixer)
    local padded = make { mixer = mixer, pad = 0 }:eval():load(model:state())
    tl.seed(3)
    ok(largest(logits(padded, ids) - at(ids, lengths)) < 1e-6, mixer)
  end
  local model = make { pad = 0 }
  local gap, whole = core.ids { { 1, 0, 2 } }, core.ids { { 1, 3, 2 } }
  ok(largest(logits(model, gap) - logits(model, whole)) > 1e-4)
  eq(logits(model, core.ids { { 0, 0 } }):shape(), { 1, 3 }) -- of padding alone
end)

test("as_published, the mean is over all positions", function()
  local model = make { hidden = 6, classes = 6 }
  local published = make { hidden = 6, classes = 6, as_published = true }
  for _, map in ipairs { model.inner, model.head } do -- the logits are the mean + 10
    map.weight:fill(0)
    for i = 0, 5 do map.weight:view(7 * i, { 1 }):fill(1) end
  end
  model.inner.bias:fill(10)
  model.head.bias:fill(0)
  published:load(model:state())
  local ids, lengths = core.ids { { 1, 2, 3, 0 } }, core.ids { 3 }
  local mean, divided = logits(model, ids, lengths) - 10, logits(published, ids, lengths) - 10
  ok(largest(mean * 0.75 - divided) < 1e-5 and largest(divided) > 0.1)
  local states = core.no_grad(model.hidden, model, ids, core.tensor { { 1, 1, 1, 0 } })
  ok(largest(states:narrow(2, 1, 3):mean(2) - mean) < 1e-5)
  ids = core.ids { { 1, 2, 3 } }
  ok(largest(logits(model, ids) - logits(published, ids)) < 1e-5)
end)

test("pairs: the first half of the rows with the second", function()
  local model = make { pair = true }
  local a, b = { 1, 2, 3 }, { 4, 5, 6 }
  local both = logits(model, core.ids { a, b, b, a })
  eq(both:shape(), { 2, 3 })
  eq(logits(model, core.ids { a, b }), both:narrow(1, 1, 1), 1e-6)
  eq(logits(model, core.ids { b, a }), both:narrow(1, 2, 1), 1e-6)
  ok(largest(both:narrow(1, 1, 1) - both:narrow(1, 2, 1)) > 1e-5)
  raises(logits, "3 rows are not pairs", model, core.ids { a, b, a })
end)

test("gradients against differences, with padding and with pairs", function()
  tl.seed(4)
  local ids, lengths = core.ids { { 1, 2, 3, 4, 5 }, { 6, 5, 4, 0, 0 } }, core.ids { 5, 3 }
  for _, pair in ipairs { false, true } do
    local model = make { pair = pair, layers = 1, mixer_options = { head_dim = 2 } }
    for _, p in ipairs(model:parameters()) do -- larger, so that differences are not rounding
      if p.name:find "embed" or p.name:find "position" then
        tl.stream_of("test"):normal(p.tensor, 0, 1)
      end
    end
    slopes.check(function() return slopes.probe(model(ids, lengths)) end, slopes.trained(model),
      4e-2, { "k.bias" }) -- the same for all keys: softmax ignores it
  end
end)

test("it learns which of two tokens is first", function()
  tl.seed(5)
  local model = make { classes = 2, mixer = "nystrom", mixer_options = { landmarks = 3 },
    max_length = 6 }
  local opt = tl.optim.adam(model, { lr = 1e-2 })
  local ids = core.ids { { 1, 3, 2, 4, 5, 5 }, { 2, 3, 1, 4, 5, 5 }, { 1, 4, 4, 2, 0, 0 },
    { 2, 4, 4, 1, 0, 0 } }
  local batch = { ids = ids, lengths = core.ids { 6, 6, 4, 4 }, labels = core.ids { 0, 1, 0, 1 } }
  local first = tl.classify.step(model, opt, batch)
  local last = nil
  for _ = 1, 80 do last = tl.classify.step(model, opt, batch) end
  ok(first > 0.5 and last < 0.05, ("%g -> %g"):format(first, last))
end)

test("wrong options and inputs are clear errors", function()
  raises(make, "'gtu' does not hide padding, as .*attention, .* do; tnn_classifier takes it",
    { mixer = "gtu" })
  raises(make, "pad = 7 is not below vocab = 7", { pad = 7 })
  local model, ids = make(), core.ids { { 1, 2, 3 } }
  raises(model, "13 positions, but max_length = 12", core.ids { { 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1 } })
  raises(model, "2 lengths for 1 rows", ids, core.ids { 1, 2 })
  raises(model, "row 1 has the length 4, not 1..3", ids, core.ids { 4 })
end)

t.done()
