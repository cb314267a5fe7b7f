-- test_recipe.lua: the published training recipe: blocks of a stream and their order, accumulation
-- by token count, presets; and that evaluation at any length takes bounded memory.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local sizes = require "toeplab.models.sizes"
local update = require "toeplab.train.update"

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

-- first (1 unless given), first + 1, ... last.
local function stream_of(last, first)
  local list = {}
  for i = first or 1, last do list[#list + 1] = i end
  return core.ids(list)
end

-- All rows of a batch as Lua lists.
local function rows(batch)
  local list = {}
  for _, micro in ipairs(batch) do
    for _, row in ipairs(micro:totable()) do list[#list + 1] = row end
  end
  return list
end

-- ---- Blocks -------------------------------------------------------------------------------------

test("blocks: every target once an epoch, after the token before it, the last block shorter",
  function()
    local b = tl.blocks(stream_of(23, 0), { length = 5, batch = 2 })
    eq({ b.targets, b.count, b:steps() }, { 23, 5, 3 })
    local orders = {}
    for epoch = 1, 3 do
      local seen, order = {}, {}
      for step = 1, 3 do
        local list = rows(b:batch((epoch - 1) * 3 + step))
        eq(#list, step == 3 and 1 or 2)
        for _, row in ipairs(list) do
          for i = 2, #row do
            eq(row[i], row[i - 1] + 1)
            ok(not seen[row[i]], "twice: " .. row[i])
            seen[row[i]] = true
          end
          order[#order + 1] = row[1]
          eq(row[1] % 5, 0)
          eq(#row, row[1] == 20 and 4 or 6)
        end
      end
      for i = 1, 23 do ok(seen[i], "not seen: " .. i) end
      orders[epoch] = table.concat(order, " ")
    end
    ok(orders[1] ~= orders[2] and orders[2] ~= orders[3], table.concat(orders, "; "))
  end)

test("blocks: the order is a function of seed and epoch, and may be that of the text", function()
  local function first(seed, step)
    local b = tl.blocks(stream_of(100), { length = 4, batch = 3, seed = seed })
    return rows(b:batch(step))
  end
  eq(first(1, 11), first(1, 11))
  ok(first(1, 1)[1][1] ~= first(2, 1)[1][1] or first(1, 1)[2][1] ~= first(2, 1)[2][1])
  tl.seed(7)
  local b = tl.blocks(stream_of(100), { length = 4, batch = 3 })
  eq(rows(b:batch(2)), first(7, 2))
  tl.seed(1)
  b = tl.blocks(stream_of(12), { length = 4, batch = 2, shuffle = "none" })
  eq(rows(b:batch(1)), { { 1, 2, 3, 4, 5 }, { 5, 6, 7, 8, 9 } })
  eq(rows(b:batch(2)), { { 9, 10, 11, 12 } })
  eq(rows(b:batch(3)), rows(b:batch(1)))
  eq({ b:epoch(1), b:epoch(2), b:epoch(3), b:epoch(4) }, { 1, 1, 2, 2 })
  eq({ b:ends_epoch(1), b:ends_epoch(2), b:ends_epoch(3) }, { false, true, false })
end)

test("blocks: batches of fixed contents come in a new order in every epoch", function()
  local b = tl.blocks(stream_of(62), { length = 4, batch = 3, seed = 3, shuffle = "batches" })
  eq({ b.count, b:steps() }, { 16, 6 })
  local orders, contents = {}, {}
  for epoch = 1, 3 do
    local seen, order = {}, {}
    for i = 1, 6 do
      local starts = {}
      for _, micro in ipairs(b:batch((epoch - 1) * 6 + i)) do
        for _, row in ipairs(micro:totable()) do starts[#starts + 1] = ("%02d"):format(row[1]) end
      end
      table.sort(starts)
      order[i] = table.concat(starts, " ")
      seen[i] = order[i]
    end
    table.sort(seen)
    contents[epoch], orders[epoch] = table.concat(seen, ", "), table.concat(order, ", ")
  end
  eq({ contents[2], contents[3] }, { contents[1], contents[1] })
  ok(orders[1] ~= orders[2] and orders[2] ~= orders[3], orders[1])
  local _, blocks = contents[1]:gsub("%d+", "")
  eq(blocks, 16)
  ok(contents[1] ~= "01 05 09, 13 17 21, 25 29 33, 37 41 45, 49 53 57, 61", contents[1])
end)

test("a missing part of a corpus, and a field instead of its method, are errors", function()
  local data = tl.corpus("text:" .. ("to be or not to be "):rep(20), { length = 8, batch = 2 })
  raises(data.stream, "no part of a corpus 'tests'.*did you mean 'test'", data, "tests")
  raises(data.stream, "stream is a method: write data:stream", "test")
  ok(data:stream "test":numel() > 0)
end)

test("a token mixer that returns another shape than its input is named", function()
  local made
  local Wrong = tl.nn.class("Wrong", { dim = "int" }, { "dim" })
  function Wrong:build() end
  function Wrong:forward(x) return made(x) end
  local model = tl.models.tnn_lm { vocab = 7, layers = 1, dim = 4,
    mixer = function(dim) return Wrong(dim) end }
  local ids = tl.ids { { 1, 2, 3 } }
  made = function(x) return x end
  eq(model(ids):shape(), { 1, 3, 7 })
  for _, wrong in ipairs { function(x) return x:narrow(2, 1, 2) end, function() end,
    function(x) return x:reshape(3, 4) end } do
    made = wrong
    raises(model, "the token mixer Wrong returned .* for .*: its forward must return a tensor", ids)
  end
end)

test("messages count positions from 1", function()
  raises(tl.zeros(3, 1).gather, "gather: index 9 at position 2 is outside 0..2", tl.zeros(3, 1),
    tl.ids { 0, 9 })
  raises(tl.cross_entropy, "target 9 in row 2 is not in 0..2", tl.zeros(2, 3), tl.ids { 0, 9 })
end)

test("blocks: micro batches, and a stream shorter than a block", function()
  local b = tl.blocks(stream_of(41), { length = 4, batch = 7, micro = 3, shuffle = "none" })
  local shapes = {}
  for i, micro in ipairs(b:batch(1)) do shapes[i] = micro:shape() end
  eq(shapes, { { 3, 5 }, { 3, 5 }, { 1, 5 } })
  b = tl.blocks(core.ids { 9, 1, 2, 3 }, { length = 512, batch = 8 })
  eq({ b.count, b:steps() }, { 1, 1 })
  eq(rows(b:batch(5)), { { 9, 1, 2, 3 } })
  raises(tl.blocks, "a stream of 1 tokens has nothing to predict", stream_of(1),
    { length = 2, batch = 1 })
  raises(tl.blocks, "unknown option 'lenght'; did you mean 'length'", stream_of(9), { lenght = 2 })
  raises(tl.blocks, "option 'batch' is required", stream_of(9), { length = 2 })
  for _, ids in ipairs { false, tl.zeros(3), tl.ids { { 1, 2 } }, "1 2" } do
    raises(tl.blocks, "blocks: takes a stream of ids, int32 %[t%], got", ids or nil,
      { length = 2, batch = 1 })
    raises(tl.eval.perplexity, "eval: takes a stream of ids, int32 %[t%], got", nil, ids or nil, 2)
  end
  for _, step in ipairs { 0, -1, 1.5, "1" } do
    raises(b.batch, "step must be an integer of at least 1, got", b, step)
  end
end)

-- ---- Accumulation -------------------------------------------------------------------------------

local function small()
  return tl.models.tnn_lm { vocab = 30, layers = 1, dim = 8, expand = 2, rpe_dim = 8,
    rpe_layers = 1 }
end

test("accumulation: sum of the token losses over all micro batches by their number", function()
  tl.seed(3)
  local a = small()
  local b, c = small():load(a:state()), small():load(a:state())
  local batch = tl.blocks(stream_of(23), { length = 6, batch = 9, micro = 2 }):batch(1)
  eq(#batch, 3)
  local loss, info = tl.train.lm_step(a, tl.optim.sgd(a, { lr = 0.1 }), batch)
  -- The same by hand: the losses of all tokens, and one gradient of their sum.
  local sum, tokens = nil, 0
  for _, ids in ipairs(batch) do
    local inputs, targets = tl.train.split(ids)
    local part = core.affine(b:loss(inputs, targets), targets:numel(), 0)
    sum, tokens = sum and sum + part or part, tokens + targets:numel()
  end
  eq({ tokens, info.tokens }, { 22, 22 })
  local mean = core.affine(sum, 1 / tokens, 0)
  mean:backward()
  eq(loss, mean:item(), 1e-6)
  eq(info.grad_norm, tl.optim.sgd(b, {}):step().grad_norm, 1e-5)
  -- The mean of the means would be another number, as the blocks differ.
  local means = 0
  for _, ids in ipairs(batch) do
    means = means + core.no_grad(c.loss, c, tl.train.split(ids)):item() / #batch
  end
  ok(math.abs(means - loss) > 1e-4, "the micro batches must differ")
  raises(tl.train.lm_step, "is already cut into micro batches", a, tl.optim.sgd(a, {}), batch, 2)
  raises(tl.train.lm_step, "a batch is a tensor of ids or a table of them, not nil", a)
  raises(tl.train.lm_step, "the batch has no rows", a, tl.optim.sgd(a, {}), {})
  for _, count in ipairs { #batch, #batch + 1 } do -- other batches of the script have other numbers
    raises(update.with, ("micro_batches = %d: lm_step has a batch that the script cuts into %d")
      :format(count, #batch), count, tl.train.lm_step, a, tl.optim.sgd(a, {}), batch)
  end
end)

test("accumulation: one micro batch or many, the same parameters after ten updates", function()
  tl.seed(4)
  local a = small()
  local b = small():load(a:state())
  local options = { lr = 1e-2, clip = 1.0, schedule = "inverse_sqrt", warmup = 3,
    weight_decay = 0.2 }
  local oa, ob = tl.optim.adam(a, options), tl.optim.adam(b, options)
  local one = tl.blocks(stream_of(29), { length = 4, batch = 8 })
  local many = tl.blocks(stream_of(29), { length = 4, batch = 8, micro = 2 })
  for step = 1, 10 do
    local x, y = tl.train.lm_step(a, oa, one:batch(step)), tl.train.lm_step(b, ob, many:batch(step))
    eq(x, y, 1e-5)
  end
  eq(a.embed.weight, b.embed.weight, 1e-4)
end)

-- ---- Presets ------------------------------------------------------------------------------------

-- The presets of language models of TNNs; models/test_presets.lua tests the others.
local function tnns()
  local list = {}
  for _, preset in ipairs(tl.models.presets) do
    if not preset.options.mixer and preset.model ~= "tnn_image" then list[#list + 1] = preset end
  end
  return list
end

test("presets: the published numbers of parameters, and the published settings", function()
  local checked = 0
  for _, preset in ipairs(tnns()) do
    local model = tl.models.describe(preset.model, tl.models.preset(preset.name))
    if preset.parameters then
      eq(model:count(), preset.parameters)
      checked = checked + 1
    end
    local vocab = preset.model == "tnn_lm" and 50264 or 50265
    if preset.model == "tnn_lm" then eq(sizes.parameters(model.opt), (model:count())) end
    eq({ model.opt.vocab, model.opt.dropout, model.opt.pad }, { vocab, 0.1, 1 })
    eq(model.layers[1].drop.opt.p, model.opt.structure == "gtu" and 0 or 0.1)
    model = nil
    collectgarbage()
  end
  eq(checked, 7)
  local counts = {}
  for _, preset in ipairs(tnns()) do counts[preset.name] = preset.parameters end
  eq(counts, { ["tnn-7/6"] = 48677376, ["tnn-7/3"] = 48590016, ["gtu-only-9"] = 48140288,
    ["attention+glu-8"] = 48845824, ["without-rpe-5"] = 49354752,
    ["fd-7/3"] = 48579264, ["blm-tnn-12"] = 126400089 })
  eq(tl.models.preset_model "blm-tnn-12", "tnn_mlm")
  raises(tl.models.preset, "there is no preset 'tnn%-7/4'; did you mean 'tnn%-7/3'", "tnn-7/4")
end)

-- The structures of the rows of TNN's Tables 7 to 10, as their code has them: layers, layout,
-- structure, expand, causal, encoder, its input, decay, positions.
local rows_of = {
  ["tnn-7/6"] = { 7, "A", "gtu+glu", 3, true, "mlp", "integer", 0.99, "none" },
  ["tnn-7/3"] = { 7, "A", "gtu+glu", 3, true, "mlp", "integer", 0.99, "none" },
  ["gtu-only-9"] = { 9, "A", "gtu", 3, true, "mlp", "integer", 0.99, "none" },
  ["attention+glu-8"] = { 8, "B", "attention+glu", 2, false, "mlp", "integer", 0.99, "none" },
  ["attention+glu-8-causal"] = { 8, "B", "attention+glu", 2, true, "mlp", "integer", 0.99, "none" },
  ["attention+glu-8-alibi"] = { 8, "B", "attention+glu", 2, true, "mlp", "integer", 0.99, "alibi" },
  ["fd-7/3"] = { 7, "A", "gtu+glu", 3, true, "mlp", "integer", "none", "none" },
  ["blm-tnn-12"] = { 12, "C-fairseq", "gtu+glu", 3, false, "mlp", "integer", 0.99, "none" },
  ["blm-fd-12"] = { 12, "C-fairseq", "gtu+glu", 3, false, "mlp", "integer", "none", "none" },
  ["blm-ski-12"] = { 12, "C-fairseq", "gtu+glu", 3, false, "piecewise", "integer", "none", "none" },
  normalised = { 7, "B", "gtu+glu", 3, true, "mlp", "normalised", "none", "none" },
  sincos = { 7, "B", "gtu+glu", 3, true, "mlp", "sincos", "none", "none" },
  ["without-rpe-5"] = { 5, "B", "gtu+glu", 3, true, "table", "integer", 0.99, "none" },
  ["decay-0.90"] = { 7, "B", "gtu+glu", 3, true, "mlp", "integer", 0.9, "none" },
  ["decay-0.95"] = { 7, "B", "gtu+glu", 3, true, "mlp", "integer", 0.95, "none" },
  ["decay-0.99"] = { 7, "B", "gtu+glu", 3, true, "mlp", "integer", 0.99, "none" },
  ["decay-0.999"] = { 7, "B", "gtu+glu", 3, true, "mlp", "integer", 0.999, "none" },
  ["no-decay"] = { 7, "B", "gtu+glu", 3, true, "mlp", "integer", "none", "none" },
  ["learnable-decay"] = { 7, "B", "gtu+glu", 3, true, "mlp", "integer", "learnable", "none" },
}

test("presets: each is one call, has the structure of its row, and takes a step", function()
  tl.seed(5)
  local ids = core.ids { { 2, 3, 4, 5, 6, 7 }, { 7, 6, 5, 4, 3, 2 } }
  for _, preset in ipairs(tnns()) do
    local more = { vocab = 9, dim = 8 }
    local model = tl.models[preset.model](tl.models.preset(preset.name, more))
    local o = model.opt
    eq({ #model.layers, o.layout, o.structure, o.expand, o.causal, o.encoder, o.rpe_input, o.decay,
      o.positions }, rows_of[preset.name])
    if preset.model == "tnn_lm" then
      local _, info = tl.train.lm_step(model, tl.optim.adam(model, { lr = 1e-3 }), ids)
      ok(info.grad_norm > 0 and info.tokens == 10, preset.name)
    else
      eq(model(ids):shape(), { 2, 6, 9 })
    end
  end
end)

-- ---- Evaluation of long streams -----------------------------------------------------------------

test("evaluation at 4096 tokens of 20000 kinds never holds all logits", function()
  tl.seed(6)
  local vocab, n = 20000, 4096
  local model = tl.models.tnn_lm { vocab = vocab, layers = 1, dim = 8, expand = 1, rpe_dim = 8,
    rpe_layers = 1 }
  local list, stream = {}, core.stream(1, "test")
  for i = 1, 2 * n + 1 do list[i] = stream:below(vocab) end
  local ids = core.ids(list)
  collectgarbage()
  core.memory_trim()
  core.memory_reset_peak()
  local before = core.memory().live
  local nats, count = tl.eval.nats_per_token(model, ids, n)
  local took = core.memory().peak - before
  ok(took < 4 * vocab * n / 4, ("%.0f MiB"):format(took / 2 ^ 20))
  eq(count, 2 * n)
  -- The same, block by block of the whole logits.
  local sum = 0
  for block = 0, 1 do
    local from = block * n
    local row = core.windows(ids, core.ids { from }, n + 1)
    local inputs, targets = tl.train.split(row)
    sum = sum + core.no_grad(model.loss, model, inputs, targets):item() * n
  end
  eq(nats, sum / count, 1e-5)
end)

t.done()
