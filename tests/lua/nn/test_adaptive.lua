-- test_adaptive.lua: the adaptive embedding and softmax: beside PyTorch, beside the
-- log-probabilities of all tokens, and in a language model, its texts and its scores.
local t = require "harness"
local core = require "toeplab.core"
local sizes = require "toeplab.models.sizes"
local tl = require "toeplab"
local trials = require "trials"

local nn = tl.nn

-- 0.8 sin(0.7 i + start), i = 1, 2, .., in this shape.
local function waves(start, ...)
  local x = core.zeros(...)
  local list = {}
  for i = 1, x:numel() do list[i] = 0.8 * math.sin(0.7 * i + start) end
  return x:copy(core.tensor(list):reshape(...))
end

-- A softmax over 11 tokens of 3 bands, its x [6,8], and targets of all bands.
local function example()
  local softmax = nn.AdaptiveSoftmax(8, 11, { cutoffs = { 4, 7 }, factor = 2.0 })
  softmax.first.weight:copy(waves(1, 6, 8))
  for i, shapes in ipairs { { { 4, 8 }, { 3, 4 } }, { { 2, 8 }, { 4, 2 } } } do
    softmax.maps[i].weight:copy(waves(2 * i, table.unpack(shapes[1])))
    softmax.tables[i].weight:copy(waves(2 * i + 1, table.unpack(shapes[2])))
  end
  return softmax, waves(9, 6, 8):require_grad(), core.ids { 0, 3, 4, 6, 7, 10 }
end

t.test("the softmax has the numbers of torch.nn.AdaptiveLogSoftmaxWithLoss", function()
  -- of PyTorch 1.13 in float64: cutoffs [4, 7], div_value 2, no head_bias, these weights
  local softmax, x, targets = example()
  t.eq(softmax(x):narrow(1, 3, 1):reshape(-1), { -0.436869, -1.34259, -2.820402, -4.206962,
    -12.358303, -4.88279, -10.939857, -5.674996, -8.491636, -7.988866, -5.001316 }, 1e-5)
  local loss = softmax:loss(x, targets)
  t.eq(loss:item(), 7.55948508354937, 1e-6)
  loss:backward()
  t.eq(x:grad():narrow(1, 5, 1):reshape(-1), { 0.264374, 0.311002, 0.211361, 0.012313, -0.192526,
    -0.306817, -0.276807, -0.116611 }, 1e-5)
  t.eq(softmax.maps[2].weight:grad():narrow(1, 2, 1):reshape(-1), { -0.062114, -0.075025, -0.052651,
    -0.005514, 0.044216, 0.07315, 0.067681, 0.03038 }, 1e-5)
  t.eq(core.abs(softmax.first.weight:grad()):sum():item(), 6.300239, 1e-5)
end)

-- The forms of an embedding and softmax of 11 tokens in bands of 4, 3 and 4.
local function pair(form)
  tl.seed(4)
  local o = { cutoffs = { 4, 7 }, factor = 2.0 }
  local embedding = nn.AdaptiveEmbedding(11, 8, o)
  o.embedding, o.tied_maps = form ~= "apart" and embedding or nil, form == "maps"
  return embedding, nn.AdaptiveSoftmax(8, 11, o)
end

local Both = nn.class("Both", { form = "string" }, { "form" })
function Both:build(o) self.embedding, self.softmax = pair(o.form) end
function Both:forward(ids, targets, ignore)
  return self.softmax:loss(self.embedding(ids) * 3, targets, ignore)
end

-- Parameters of each form, by hand: tables 4*8 + 3*4 + 4*2, maps 8*8 + 4*8 + 2*8.
for form, want in pairs { apart = 52 + 112 + 6 * 8 + (4 + 2) * 8 + 20,
  tables = 52 + 112 + 2 * 8 + 48, maps = 52 + 112 + 2 * 8 } do
  t.test("probabilities sum to 1, the loss is theirs, gradients are right: " .. form, function()
    local both = Both(form)
    t.eq((both:count()), want)
    local x = core.stream(1, "x"):normal(core.zeros(2, 6, 8), 0, 2)
    local logprobs = both.softmax(x)
    t.eq(logprobs:shape(), { 2, 6, 11 })
    t.eq(core.exp(logprobs):sum(3), { { 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1 } }, 1e-5)
    local targets = core.ids { { 0, 1, 3, 4, 4, 6 }, { 7, 8, 9, 10, 10, 2 } }
    for _, ignore in ipairs { -5, 4, 10, 0 } do
      local sum, count, rows = 0.0, 0, logprobs:reshape(12, 11)
      for i, id in ipairs(targets:reshape(-1):totable()) do
        if id ~= ignore then sum, count = sum - rows:get(i, id + 1), count + 1 end
      end
      t.eq(both.softmax:loss(x, targets, ignore):item(), sum / count, 1e-6)
    end
    local worst = tl.gradcheck(function()
      return both(core.ids { { 10, 4, 1, 0 }, { 4, 5, 9, 4 } },
        core.ids { { 4, 1, 0, 8 }, { 5, 9, 4, 6 } })
    end, both:parameters())
    t.ok(worst < 2e-3, worst)
  end)
end

t.test("the embedding maps the row of each id's own table", function()
  local embedding = pair "apart"
  local ids, rows = { { 10, 0, 5 }, { 4, 3, 7 } }, {}
  local y = embedding(core.ids(ids))
  t.eq(y:shape(), { 2, 3, 8 })
  for i, id in ipairs { 10, 0, 5, 4, 3, 7 } do
    local band = id < 4 and 1 or id < 7 and 2 or 3
    local row = embedding.tables[band].weight:narrow(1, id - ({ 0, 4, 7 })[band] + 1, 1)
    rows[i] = core.matmul(row, embedding.maps[band].weight, false, true)
  end
  t.eq(y:reshape(6, 8), core.concat(rows, 1):totable(), 1e-6)
  local padded = nn.AdaptiveEmbedding(11, 8, { cutoffs = { 4, 7 }, factor = 2.0, pad = 5 })
  t.eq(padded(core.ids { 5 }), { { 0, 0, 0, 0, 0, 0, 0, 0 } })
  t.eq(core.abs(padded.tables[3].weight):amax():item() > 0, true)
end)

t.test("what cannot be is refused", function()
  local embedding, softmax = pair "apart"
  local function made(o) return function() nn.AdaptiveSoftmax(8, 11, o) end end
  for want, wrong in pairs {
    ["'cutoffs' must be ascending"] = made { cutoffs = { 7, 4 } },
    ["'cutoffs' must have a number"] = made { cutoffs = {} },
    ["cutoff 11 is not below vocab = 11"] =
      function() nn.AdaptiveEmbedding(11, 8, { cutoffs = { 4, 11 } }) end,
    ["band 3 has no channels: dim = 8, factor = 4"] =
      function() nn.AdaptiveEmbedding(11, 8, { cutoffs = { 4, 7 } }) end,
    ["tied_maps requires the option embedding"] = made { cutoffs = { 4 }, tied_maps = true },
    ["must be an AdaptiveEmbedding of the same"] =
      made { cutoffs = { 5, 7 }, factor = 2, embedding = embedding },
    ["id 11 at position 2 is not in 0..10"] = function() embedding(core.ids { 1, 11 }) end,
    ["id %-1 at position 1 is not in 0..10"] =
      function() softmax:loss(waves(1, 1, 8), core.ids { -1 }) end,
    ["embed_dim is not defined with adaptive"] =
      function() tl.models.tnn_lm { vocab = 11, adaptive = { 4 }, embed_dim = 8, dim = 8 } end,
    ["output_bias is not defined with adaptive"] =
      function() tl.models.tnn_lm { vocab = 11, adaptive = { 4 }, output_bias = true, dim = 8 } end,
  } do t.raises(wrong, want) end
end)

-- ---- In a language model ------------------------------------------------------------------------

local function lm(more)
  local o = { vocab = 24, layers = 2, dim = 16, expand = 1, rpe_dim = 8, rpe_layers = 1,
    adaptive = { 8, 16 } }
  for name, value in pairs(more or {}) do o[name] = value end
  return tl.models.tnn_lm(o)
end

local function text_ids(count)
  local list, stream = {}, core.stream(7, "adaptive")
  for i = 1, count do list[i] = math.min(stream:below(24), stream:below(24)) end
  return core.ids(list)
end

t.test("a model's perplexity is that of its log-probabilities, and counts are exact", function()
  local ids = text_ids(81)
  for _, more in ipairs { {}, { tied = false }, { tied_maps = false },
    { adaptive_factor = 2.5, pad = 9 } } do
    tl.seed(5)
    local model = lm(more)
    t.eq(sizes.parameters(model.opt), (model:count()))
    local opt = tl.optim.adam(model, { lr = 1e-2 })
    local first = tl.eval.nats_per_token(model, ids, 16)
    for step = 1, 20 do
      tl.train.lm_step(model, opt, core.windows(ids, core.ids { step, 40 }, 17))
    end
    local nats = tl.eval.nats_per_token(model, ids, 16)
    t.ok(nats < first - 0.1, nats)
    local sum = 0.0
    for block = 0, 4 do
      local inputs, targets = tl.train.split(core.windows(ids, core.ids { 16 * block }, 17))
      local rows = core.no_grad(model, inputs):reshape(16, 24)
      for i, id in ipairs(targets:reshape(-1):totable()) do sum = sum - rows:get(i, id + 1) end
    end
    t.eq(nats, sum / 80, 1e-5)
  end
end)

t.test("texts and scores are of the whole vocabulary, by windows and token by token", function()
  tl.seed(6)
  local model, texts = lm(), {}
  local prompt, continuation = { 1, 20, 3 }, { 17, 2, 9, 23 }
  for _, method in ipairs { "window", "etsc", "auto" } do
    local list = {}
    for token in model:stream { prompt = prompt, n = 12, seed = 3, method = method, lags = 20,
      logprobs = true } do
      list[#list + 1] = token.id
    end
    texts[#texts + 1] = table.concat(list, " ")
  end
  t.eq({ texts[2], texts[3] }, { texts[1], texts[1] })
  local all = core.ids { { 1, 20, 3, 17, 2, 9 } }
  local rows, sum = core.no_grad(model, all):reshape(6, 24), 0.0
  for i, id in ipairs(continuation) do sum = sum + rows:get(i + 2, id + 1) end
  t.eq(model:score { prompt = prompt, continuation = continuation }.logprob, sum, 1e-5)
end)

t.test("adaptive and adaptive_factor are keys of the trainings of tl.lm", function()
  local script = [[
    local tl = require "toeplab"
    return tl.experiment "adaptive" {
      fixed = tl.lm.fixed { adaptive = { 60 }, adaptive_factor = 4.0 }, seeds = 1,
      scale = tl.lm.scales {}, trial = tl.lm.trial, report = function() end,
    }]]
  t.in_folder(function(folder)
    t.eq((trials.run(folder, script, { "scale=smoke", "steps=60", "adaptive=125,230",
      "adaptive_factor=2" })), 0)
    local row = trials.query(folder, [[SELECT max(value) AS parameters, min(value) AS ppl
      FROM v_metrics WHERE name IN ('test_ppl', 'parameters')]])[1]
    t.eq(row.parameters, 7312)
    t.ok(row.ppl > 1 and row.ppl < 200, row.ppl)
  end)
end)

t.test("no CUDA graph is captured, as the work depends on the ids", function()
  local model, plain = lm(), tl.models.tnn_lm { vocab = 24, layers = 1, dim = 8 }
  t.eq(tl.train.graph(model, tl.optim.adam(model, {})).graphs, nil)
  t.ok(os.getenv "TOEPLAB_GRAPHS" == "off"
    or tl.train.graph(plain, tl.optim.adam(plain, {})).graphs, "of another model they are")
end)

t.done()
