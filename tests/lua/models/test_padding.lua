-- test_padding.lua: what stands at padding changes no token, in a block and in models, for every
-- mixer that takes a mask, and for others where padding is masked.

local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"
local padding = require "toeplab.models.padding"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

local function largest(x) return core.abs(x):amax():item() end

-- The mixers that take a mask, and options with which 20 positions are more than one group, block
-- or chunk.
local approximate = {
  attention = {}, kernelized = {}, linformer = { rank = 3, max_length = 20 },
  nystrom = { landmarks = 4 }, informer = { features = 4, max_length = 20 },
  bigbird = { block = 2, random_blocks = 1 }, reformer = { chunk = 4 },
  skyformer = { features = 6 },
}

-- Options with which few positions are attended to exactly, so that added padding changes nothing.
local exact = {
  linformer = { max_length = 8 }, nystrom = { landmarks = 8 }, informer = { features = 64 },
  bigbird = { block = 2 }, reformer = { chunk = 8 },
}

test("tests every mixer that takes a mask", function()
  for _, name in ipairs(mixers.names) do
    eq(mixers.class(name).takes_mask or false, approximate[name] ~= nil)
  end
end)

-- Calls fn with the random choices of evaluation that every call begins with.
local function again(fn, ...)
  tl.seed(3)
  return core.no_grad(fn, ...)
end

test("a block passes the mask to its mixer", function()
  for name, options in pairs(approximate) do
    tl.seed(1)
    local token = mixers.make(name, 6, { heads = 2, causal = false }, options)
    local block = nn.Block(6, token, nn.GLU(6, { hidden = 5 }), { layout = "C-fairseq" }):eval()
    local mask, x = padding.by_length({ 14, 17 }, 20), random(2, 20, 6)
    local tokens = mask:reshape(2, 20, 1)
    local other = x * tokens + random(2, 20, 6) * (1 - tokens)
    local function at_tokens(...) return again(block, ...) * tokens end
    ok(largest(at_tokens(x, mask) - at_tokens(other, mask)) < 1e-5, name)
    ok(largest(at_tokens(x) - at_tokens(other)) > 1e-4, name)
  end
end)

test("padding after a row changes no logits of tnn_mlm", function()
  for name in pairs(approximate) do
    tl.seed(2)
    local model = tl.models.tnn_mlm { vocab = 11, layers = 2, dim = 8, mixer = name, heads = 2,
      channel = "ffn", norm = "layernorm", pad = 1, positions = "learned-fairseq", init = "torch",
      mixer_options = exact[name] }
    model:eval()
    local short, long = core.ids { { 4, 5, 6, 2, 3 } }, core.ids { { 4, 5, 6, 2, 3, 1, 1 } }
    local before, after = again(model, short), again(model, long):narrow(2, 1, 5)
    ok(largest(before - after) < 1e-5, name)
    local layers = model.layers
    for _, layer in layers:each() do rawset(layer.token, "takes_mask", false) end
    ok(largest(again(model, long):narrow(2, 1, 5) - before) > 1e-4, name)
  end
end)

test("tokens after the length of a row change no logits of tnn_classifier", function()
  for name, options in pairs(approximate) do
    tl.seed(4)
    local model = tl.models.tnn_classifier { vocab = 7, classes = 3, dim = 8, layers = 2, heads = 2,
      norm = "layernorm", final_norm = "layernorm", mixer = name, mixer_options = options }
    model:eval()
    local rows = {}
    for i = 1, 3 do
      rows[i] = {}
      for j = 1, 20 do rows[i][j] = (i * j * j + i) % 7 end
    end
    for j = 15, 20 do rows[2][j] = (rows[1][j] + 3) % 7 end
    table.move(rows[1], 1, 14, 1, rows[2])
    local lengths = core.ids { 14, 14, 20 }
    local logits = again(model, core.ids(rows), lengths)
    ok(largest(logits:narrow(1, 1, 1) - logits:narrow(1, 2, 1)) < 1e-5, name)
    logits = again(model, core.ids(rows))
    ok(largest(logits:narrow(1, 1, 1) - logits:narrow(1, 2, 1)) > 1e-4, name)
  end
end)

-- ---- padding = "masked" -------------------------------------------------------------------------

-- Three rows with their lengths, padded by tokens that are no padding token.
local function rows_of(longest)
  local rows = {}
  for i, length in ipairs { 9, 5, longest } do
    rows[i] = {}
    for j = 1, longest do rows[i][j] = (i * j * j + j + (j > length and longest or 0)) % 7 end
  end
  return core.ids(rows), core.ids { 9, 5, longest }
end

-- The largest change of the first two rows' logits when the third row is longer.
local function change(model)
  local short, long = again(model, rows_of(9)), again(model, rows_of(20))
  return largest(short:narrow(1, 1, 2) - long:narrow(1, 1, 2))
end

local function classifier(more)
  local o = { vocab = 7, classes = 3, dim = 8, glu_dim = 6, layers = 2, heads = 2, rpe_dim = 4,
    init = "torch" }
  for key, value in pairs(more) do o[key] = value end
  tl.seed(5)
  local model = tl.models.tnn_classifier(o)
  for step = 1, 3 do -- running statistics of batch norm that are not those of the start
    model:train()
    model(rows_of(10 + step))
    core.tape_clear()
  end
  return model:eval()
end

-- What is not touched by padding, by the mixers' names; the others are refused.
local sound = { conv = {}, gtu = {}, s4 = {}, s4d = {}, longconv = { length = 24 },
  sgconv = { length = 24 } }

test("with padding masked the logits of a row do not depend on the longest row", function()
  for name, mixer_options in pairs(sound) do
    for _, norm in ipairs { "batchnorm", "layernorm" } do
      local o = { mixer = name, mixer_options = mixer_options, norm = norm, final_norm = norm }
      local seen = change(classifier(o))
      o.padding = "masked"
      local masked = change(classifier(o))
      ok(masked < 1e-5, ("%s %s: %g"):format(name, norm, masked))
      ok(seen > 1e-4, ("%s %s: padding is not seen: %g"):format(name, norm, seen))
    end
  end
end)

test("padding is masked in layout B, with pairs, and the last token is pooled", function()
  for _, o in ipairs { { layout = "B", inner_norm = "layernorm" }, { pool = "last" },
    { layout = "C-fairseq" } } do
    o.padding = "masked"
    ok(change(classifier(o)) < 1e-5)
  end
  local model = tl.models.tnn_classifier { vocab = 7, classes = 2, dim = 8, pair = true,
    init = "torch", padding = "masked" }
  model:eval()
  local ids, lengths = core.ids { { 1, 2, 3, 4 }, { 5, 4, 3, 2 } }, core.ids { 3, 4 }
  local longer = core.ids { { 1, 2, 3, 0, 0, 0 }, { 5, 4, 3, 2, 6, 6 } }
  ok(largest(again(model, ids, lengths) - again(model, longer, lengths)) < 1e-5)
end)

test("batch norm counts tokens only, in training too", function()
  local norm, x = nn.BatchNorm(4), random(2, 5, 4)
  local kept = padding.kept({ 2, 5 }, 5)
  eq(kept.tokens, { 0, 1, 5, 6, 7, 8, 9 })
  eq(kept.places, { 0, 1, 7, 7, 7, 2, 3, 4, 5, 6 })
  local y = core.no_grad(norm, x, kept)
  local tokens = x:reshape(10, 4):gather(kept.tokens)
  local mean = tokens:mean(1, true)
  local deviation = core.sqrt(core.square(tokens - mean):mean(1, true) + 1e-5)
  eq(y:reshape(10, 4):gather(kept.tokens), (tokens - mean) / deviation, 1e-5)
  eq(largest(y:narrow(1, 1, 1):narrow(2, 3, 3)), 0)
  eq(norm.running_mean, core.affine(mean:reshape(4), 0.1, 0), 1e-6)
end)

-- The norm after these takes the mean of each channel away.
local BEFORE_NORM = { "token.o.bias", "feature.l3.bias" }

test("gradients with masked padding agree with differences", function()
  local model = classifier { layers = 1, dim = 4, glu_dim = 4, padding = "masked",
    backend = "naive", rpe_act = "silu" }
  local ids, lengths = core.ids { { 1, 2, 3, 4 }, { 5, 4, 3, 2 } }, core.ids { 2, 4 }
  model:train()
  slopes.check(function() return slopes.probe(model(ids, lengths)) end, model:parameters(), 0.05,
    BEFORE_NORM)
end)

test("refuses mixers that see padding anyway", function()
  for _, name in ipairs(mixers.names) do
    local class = mixers.class(name)
    local sees = not class.takes_mask and not class.hide_padding and not class.ignores_zeros
    eq(sees, approximate[name] == nil and sound[name] == nil)
  end
  for name, kind in pairs { nystrom = "Nystrom", skyformer = "Skyformer", bigbird = "BigBird",
    informer = "Informer", reformer = "Reformer" } do
    raises(tl.models.tnn_classifier, kind .. " sees padding or depends on the length",
      { vocab = 7, classes = 2, mixer = name, padding = "masked" })
  end
  for name, options in pairs(approximate) do
    if not mixers.class(name).by_length then
      local masked = change(classifier { mixer = name, mixer_options = options,
        padding = "masked" })
      ok(masked < 1e-5, ("%s: %g"):format(name, masked))
    end
  end
  raises(tl.models.tnn_classifier, "padding = 'masked': FNet sees padding or depends on the length",
    { vocab = 7, classes = 2, mixer = "fnet", padding = "masked" })
  raises(tl.models.tnn_classifier, "the images of a grid have no padding",
    { vocab = 7, classes = 2, grid = { 4, 4 }, padding = "masked" })
  raises(tl.models.tnn_classifier, "option 'padding' = 'hidden' is not one of",
    { vocab = 7, classes = 2, padding = "hidden" })
end)

test("masks by token and by length", function()
  local ids = core.ids { { 1, 2, 0 }, { 0, 0, 3 } }
  eq(padding.by_token("M", 0, 4)(ids), { { 1, 1, 0 }, { 0, 0, 1 } })
  eq(padding.by_token("M", nil, 4)(ids), nil)
  eq(padding.by_length({ 1, 3 }, 3), { { 1, 0, 0 }, { 1, 1, 1 } })
  eq(padding.lengths("M", core.ids { 1, 3 }, ids), { 1, 3 })
  raises(padding.by_token, "M: pad = 4 is not below vocab = 4", "M", 4, 4)
end)

t.done()
