-- test_long_text.lua: 16,384 tokens by every exact method are the same ones, and the likeliest ones
-- by one pass of the model over all of them. It takes minutes, so it is run manually (label long).
local t = require "harness"
local tl = require "toeplab"

local TOKENS, VOCAB = tonumber(arg[2] or 16384), 11

local function model_of(kind)
  tl.seed(3)
  local o = { vocab = VOCAB, layers = 2, dim = 8, rpe_dim = 6, rpe_layers = 1 }
  for name, value in pairs(kind) do o[name] = value end
  return tl.models.tnn_lm(o):eval()
end

-- Returns the ids that the model adds to a prompt.
local function ids_of(model, method, temperature)
  local ids = {}
  for token in model:stream { prompt = { 1, 2, 3 }, n = TOKENS, method = method, seed = 5,
    temperature = temperature } do
    ids[#ids + 1] = token.id
  end
  return ids
end

-- The most by which a token is less likely than the likeliest one after those before it, by one
-- pass over all: the difference of their logits, relative to the range of the logits there.
local function shortfall(model, ids)
  local all, worst = table.move(ids, 1, #ids - 1, 4, { 1, 2, 3 }), 0.0
  local logits = tl.no_grad(model, tl.ids { all }):narrow(2, 3, #ids):reshape(#ids, VOCAB)
  for i, row in ipairs(logits:totable()) do
    local most, least = math.max(table.unpack(row)), math.min(table.unpack(row))
    worst = math.max(worst, (most - row[ids[i] + 1]) / (most - least))
  end
  return worst
end

-- Without decay the sums of 16,384 lags round so that some tokens are as likely as another one;
-- from there on the texts of two methods may differ.
for _, kind in ipairs { { backend = "rac" }, { backend = "fft" },
  { backend = "rac", decay = "none" }, { backend = "fd", decay = "none" } } do
  t.test(kind.backend .. (kind.decay and ", decay none" or ""), function()
    local model, want = model_of(kind), {}
    for _, method in ipairs { "relaxed", "ring", "etsc" } do
      for _, temperature in ipairs { 0, not kind.decay and 1 or nil } do
        local ids = ids_of(model, method, temperature)
        t.eq(#ids, TOKENS)
        if temperature == 0 then t.ok(shortfall(model, ids) < 1e-4, method) end
        want[temperature] = want[temperature] or ids
        if not kind.decay then t.eq(ids, want[temperature]) end
      end
    end
  end)
end

t.test("refuses ski, which has no kernel", function()
  local model = model_of { backend = "ski", decay = "none", backend_options = { inducing = 64 } }
  t.raises(ids_of, "not a Toeplitz operator", model, "relaxed", 0)
end)

t.done()
