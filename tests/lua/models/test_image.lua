-- test_image.lua: tnn_image: its patches, its two layouts, backends and mixers, gradients,
-- learning, and its costs.
local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"

local function with(base, more)
  local all = {}
  for key, value in pairs(base) do all[key] = value end
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end

local small = { classes = 3, channels = 2, patch = 2, grid = { 2, 3 }, layers = 2, dim = 6,
  rpe_dim = 4, expand = 2, backend = "naive" }

local function make(more) return tl.models.tnn_image(with(small, more)) end

local function images(b)
  return tl.stream_of "test":normal(core.zeros(b, 2, 4, 6), 0, 1)
end

t.test("a patch is a vector in the order row, column, channel; patches lie row by row", function()
  local model, seen = make(), nil
  rawset(model.embed, "forward", function(_, x)
    seen = x
    return core.zeros(x:dim(1), x:dim(2), 6)
  end)
  local values = {} -- each number says where it is: channel, row, column
  for c = 1, 2 do
    values[c] = {}
    for i = 1, 4 do
      values[c][i] = {}
      for j = 1, 6 do values[c][i][j] = 100 * c + 10 * i + j end
    end
  end
  core.no_grad(model, core.tensor { values, values })
  t.eq(seen:shape(), { 2, 6, 8 })
  t.eq(seen:totable()[2][1], { 111, 211, 112, 212, 121, 221, 122, 222 })
  t.eq(seen:totable()[1][3], { 115, 215, 116, 216, 125, 225, 126, 226 })
  t.eq(seen:totable()[1][4], { 131, 231, 132, 232, 141, 241, 142, 242 })
end)

t.test("the model equals its parts: embedding, blocks, mean, norm, linear map", function()
  for layout, place in pairs {
    A = function(x, f) return x + f(core.simple_rms_norm(x, 1e-8)) end,
    ["C-tnn"] = function(x, f) return x + core.simple_rms_norm(f(x), 1e-8) end,
  } do
    tl.seed(1)
    local model, x = make { layout = layout }, images(2)
    model:eval()
    local want = core.no_grad(function()
      local cut = x:reshape(4, 2, 2, 3, 2):reshape(2, 2, 2, 2, 3, 2):permute { 1, 3, 5, 4, 6, 2 }
      local y = model.embed(cut:reshape(2, 6, 8))
      for _, layer in model.layers:each() do
        y = place(y, function(z) return layer.token(z) end)
        y = place(y, function(z) return layer.feature(z) end)
      end
      return model.head(core.simple_rms_norm(y:mean(2), 1e-8))
    end)
    t.eq(core.no_grad(model, x), want, 1e-6)
    t.eq(want:shape(), { 2, 3 })
  end
end)

t.test("an image of another size is an error with the right one", function()
  local model = make()
  t.raises(model, "not %[b,2,4,6%]: a grid of 2 x 3 patches of 2 x 2", core.zeros(1, 2, 6, 4))
  t.raises(model, "not %[b,2,4,6%]", core.zeros(1, 3, 4, 6))
  t.raises(model, "not %[b,2,4,6%]", core.zeros(2, 4, 6))
  t.raises(make, "grid.*two integers", { grid = { 2 } })
end)

-- The models that experiments/image.lua compares, made small.
local kinds = {
  tnn = {}, fd = { backend = "fd", decay = "none" },
  ski = { backend = "ski", decay = "none", encoder = "piecewise",
    backend_options = { inducing = 2, taps = 2 } },
  product = { grid_form = "product", backend = "rac" },
  attention = { mixer = "attention", heads = 2, channel = "ffn", act = "gelu", norm = "layernorm",
    final_norm = "layernorm", positions = "learned", max_length = 6 },
  gfnet = { mixer = "gfnet", mixer_options = { length = 6 }, channel = "ffn", act = "gelu",
    norm = "layernorm" },
  afno = { mixer = "afno", mixer_options = { blocks = 2 }, channel = "ffn", act = "gelu",
    norm = "layernorm" },
}

t.test("every operator and mixer has gradients that agree with differences", function()
  for _, name in ipairs { "tnn", "fd", "ski", "product", "attention", "gfnet" } do
    tl.seed(2)
    local model, x = make(with({ layers = 1, rpe_act = "silu" }, kinds[name])), images(2)
    slopes.check(function() return core.cross_entropy(model(x), core.ids { 2, 0 }) end,
      slopes.trained(model), 0.05, { "k.bias" }) -- the same for all keys: softmax ignores it
  end
end)

t.test("every model learns the place of light in an image", function()
  local rows, labels = {}, {}
  for i = 1, 12 do
    rows[i], labels[i] = {}, i % 3
    for c = 1, 2 do
      rows[i][c] = {}
      for y = 1, 4 do
        rows[i][c][y] = {}
        for x = 1, 6 do rows[i][c][y][x] = ((x + 1) // 2 - 1 == i % 3 and 2 or 0) + y / (i + c) end
      end
    end
  end
  local x, wanted = core.tensor(rows), core.ids(labels)
  for name, more in pairs(kinds) do
    tl.seed(3)
    local model = make(more)
    local opt, first, loss = tl.optim.adam(model, { kind = "adamw", lr = 0.02 }), nil, nil
    for _ = 1, 80 do
      opt:zero_grad()
      loss = core.cross_entropy(model(x), wanted)
      loss:backward()
      opt:step()
      first = first or loss:item()
    end
    t.ok(loss:item() < 0.5 * first, ("%s: %g to %g"):format(name, first, loss:item()))
  end
end)

t.test("estimates: parameters exactly, memory within a third, FLOP as the sum of parts", function()
  local sizes = require "toeplab.models.sizes"
  for name, more in pairs { tnn = {}, transformer = with(kinds.attention, { max_length = 36 }) } do
    tl.seed(4)
    local model = make(with({ dim = 48, grid = { 6, 6 }, layers = 3 }, more))
    local o = model.opt
    local outside = model.embed:count() + model.head:count() + model.final_norm:count()
      + (model.position and model.position:count() or 0)
    t.eq(sizes.blocks(o) + outside, (model:count()))
    local flop = model:cost(36)
    t.eq(flop, 3 * model.layers[1]:cost(36) + 2.0 * 36 * 8 * 48 + 2.0 * 48 * 3, 1.0)
    local opt = tl.optim.adam(model)
    local x = tl.stream_of "test":normal(core.zeros(8, 2, 12, 12), 0, 1)
    local function step()
      opt:zero_grad()
      core.cross_entropy(model(x), core.ids { 0, 1, 2, 0, 1, 2, 0, 1 }):backward()
      opt:step()
    end
    step()
    collectgarbage()
    core.memory_reset_peak()
    step()
    local ratio = core.memory().peak / tl.models.estimate(model, 36, 8).total_bytes
    t.ok(ratio > 0.6 and ratio < 1.4, ("%s: measured over estimated %.2f"):format(name, ratio))
  end
end, "cpu")

t.test("toeplab model tnn_image: takes only the grid's length", function()
  local function say(words)
    return (t.shell(("'%s' model %s 2>&1"):format(core.sys.executable(), words)))
  end
  t.ok(say "image-tnn-tiny":find "6,422,056.*at length 196", "tiny")
  t.ok(say "tnn_image patch=4 grid={8,8} classes=10":find "at length 64", "patch 4")
  t.ok(say "tnn_image length=512":find "length = 512, but the grid has 14 x 14", "length")
end)

t.done()
