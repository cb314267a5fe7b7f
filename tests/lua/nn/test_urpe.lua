-- test_urpe.lua: attention whose weights are multiplied by numbers of the lag (urpe), beside its
-- formula written with loops.
local t = require "harness"
local core = require "toeplab.core"
local tl = require "toeplab"

local B, N, D, H = 2, 6, 4, 2

local function random(seed, ...) return core.stream(seed, "urpe"):normal(core.zeros(...), 0, 1) end

-- Attention whose numbers by lag are random.
local function attention(kind, more)
  tl.seed(2)
  local o = { heads = H, max_length = 4, urpe = true }
  for name, value in pairs(more) do o[name] = value end
  local layer = tl.nn[kind](D, o)
  if layer.urpe then
    local weight = layer.urpe.lags.weight
    t.eq({ core.abs(weight - 1):amax():item() }, { 0 })
    weight:copy(random(3, table.unpack(weight:shape())))
  end
  return layer
end

-- The row of a lag in a table of max_length 4.
local function row_of(lag, causal)
  local row = math.min(math.abs(lag), 3)
  return (lag < 0 and not causal and 4 + row or row) + 1
end

-- y [B,N,D] of Attention by loops over heads, queries and keys.
local function by_loops(layer, x, mask)
  local o, y, width = layer.opt, {}, D // H
  local q, k, v = layer.q(x):totable(), layer.k(x):totable(), layer.v(x):totable()
  local c = layer.urpe.lags.weight:totable()
  local w = layer.lag_bias and layer.lag_bias.weight:totable()
  for b = 1, B do
    y[b] = {}
    for i = 1, N do
      y[b][i] = {}
      for h = 1, H do
        local weights, sum = {}, 0.0
        for j = 1, N do
          local seen = (j <= i or not o.causal) and math.abs(i - j) < (rawget(o, "window") or N)
            and (not mask or mask[b][j] == 1)
          local score = w and w[row_of(i - j, o.causal)][h] or 0.0
          for a = (h - 1) * width + 1, h * width do
            score = score + q[b][i][a] * k[b][j][a] / math.sqrt(width)
          end
          weights[j] = seen and math.exp(score) or 0.0
          sum = sum + weights[j]
        end
        for a = (h - 1) * width + 1, h * width do
          y[b][i][a] = 0.0
          for j = 1, N do
            local part = sum > 0 and weights[j] / sum * c[row_of(i - j, o.causal)][h] or 0.0
            y[b][i][a] = y[b][i][a] + part * v[b][j][a]
          end
        end
      end
    end
  end
  return layer.o(core.tensor(y))
end

local cases = {
  {}, { causal = false }, { window = 3 }, { causal = false, window = 2 },
  { positions = "relative" }, { causal = false, positions = "relative" },
  { mask = { { 1, 1, 0, 1, 1, 0 }, { 0, 0, 1, 1, 1, 1 } } },
  { causal = false, mask = { { 0, 0, 0, 0, 0, 0 }, { 1, 1, 1, 0, 0, 0 } } },
}

t.test("urpe multiplies the weights after the softmax, with every other option", function()
  for _, case in ipairs(cases) do
    local more, mask = {}, case.mask
    for name, value in pairs(case) do more[name] = name ~= "mask" and value or nil end
    local layer, x = attention("Attention", more), random(5, B, N, D)
    local given = mask and core.tensor(mask)
    t.eq(layer(x, given), by_loops(layer, x, mask):totable(), 1e-5)
    local list = {}
    for _, p in ipairs(layer:parameters()) do -- scores do not depend on the bias of keys
      list[#list + 1] = p.name ~= "k.bias" and p or nil
    end
    local worst = tl.gradcheck(function() return layer(x, given) end, list)
    t.ok(worst < 2e-3, worst)
  end
end)

t.test("with numbers of 1 it is plain attention, and its dropout is of the weights", function()
  for _, kind in ipairs { "Attention", "GatedAttention" } do
    for _, more in ipairs { {}, { causal = false, positions = "alibi" }, { positions = "t5" },
      { positions = "rotary" } } do
      local layer, x = attention(kind, more), random(5, B, N, D)
      more.urpe = false
      local plain, state = attention(kind, more), layer:state()
      layer.urpe.lags.weight:fill(1)
      state["urpe.lags.weight"] = nil
      t.eq(layer(x), plain:load(state)(x):totable(), 1e-5)
    end
  end
  local dropped = attention("Attention", { dropout = 0.5 })
  local x = random(5, B, N, D)
  local first = dropped(x):totable()
  t.ok(core.abs(dropped(x) - core.tensor(first)):amax():item() > 1e-3, "dropout must draw")
  t.eq(dropped:eval()(x), by_loops(dropped, x):totable(), 1e-5)
end)

t.test("it can tell positions of equal tokens, which a softmax alone cannot", function()
  local layer = attention("Attention", { causal = false })
  local y = layer(core.ones(1, N, D))
  t.ok(core.abs(y:narrow(2, 1, 1) - y:narrow(2, 4, 1)):amax():item() > 1e-2)
  layer.urpe.lags.weight:fill(1)
  y = layer(core.ones(1, N, D))
  t.eq(core.abs(y:narrow(2, 1, 1) - y:narrow(2, 4, 1)):amax():item(), 0, 1e-6)
end)

t.test("as an option of a model it trains, and continues a text token by token", function()
  tl.seed(4)
  local model = tl.models.tnn_lm { vocab = 9, layers = 2, dim = 8, mixer = "attention",
    mixer_options = { heads = 2, urpe = true, max_length = 4 } }
  local opt = tl.optim.adam(model, { lr = 0.05 })
  local batch = core.ids { { 1, 2, 3, 4, 5, 6 }, { 6, 5, 4, 3, 2, 1 } }
  local first, last = tl.train.lm_step(model, opt, batch), nil
  for _ = 1, 30 do last = tl.train.lm_step(model, opt, batch) end
  t.ok(last < first / 2, last)
  local numbers = model.layers[2].token.urpe.lags.weight
  t.ok(core.abs(numbers - 1):amax():item() > 0.05, "they must be trained")
  local texts = {}
  for _, method in ipairs { "window", "etsc" } do
    local list = {}
    for token in model:stream { prompt = { 1, 2 }, n = 10, seed = 3, method = method, lags = 20 } do
      list[#list + 1] = token.id
    end
    texts[#texts + 1] = table.concat(list, " ")
  end
  t.eq(texts[2], texts[1])
end)

t.done()
