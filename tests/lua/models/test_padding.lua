-- test_padding.lua: what stands at padding changes no token, in a block and in models, for every
-- mixer that takes a mask.

local t = require "harness"
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
  attention = {}, kernelized = {}, linformer = { rank = 3, max_len = 20 },
  nystrom = { landmarks = 4 }, informer = { features = 4, max_len = 20 },
  bigbird = { block = 2, random_blocks = 1 }, reformer = { chunk = 4 },
  skyformer = { features = 6 },
}

-- Options with which few positions are attended to exactly, so that added padding changes nothing.
local exact = {
  linformer = { max_len = 8 }, nystrom = { landmarks = 8 }, informer = { features = 64 },
  bigbird = { block = 2 }, reformer = { chunk = 8 },
}

test("each mixer that takes a mask is tried here", function()
  for _, name in ipairs(mixers.names) do
    eq(mixers.class(name).takes_mask or false, approximate[name] ~= nil)
  end
end)

-- Calls fn with the random choices of evaluation that every call begins with.
local function again(fn, ...)
  tl.seed(3)
  return core.no_grad(fn, ...)
end

test("a block hands the mask to its mixer", function()
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

test("masks by token and by length", function()
  local ids = core.ids { { 1, 2, 0 }, { 0, 0, 3 } }
  eq(padding.by_token("M", 0, 4)(ids), { { 1, 1, 0 }, { 0, 0, 1 } })
  eq(padding.by_token("M", nil, 4)(ids), nil)
  eq(padding.by_length({ 1, 3 }, 3), { { 1, 0, 0 }, { 1, 1, 1 } })
  eq(padding.lengths("M", core.ids { 1, 3 }, ids), { 1, 3 })
  raises(padding.by_token, "M: pad = 4 is not below vocab = 4", "M", 4, 4)
end)

t.done()
