-- test_mixers_attention.lua -- attention that is linear, gated, windowed or plain: each mixer
-- against its formula written out with all pairs of positions, gradients, masks and errors.

local shapes = require "toeplab.nn.shapes"
local t = require "harness"
local formula = require "all_pairs"
local tl = require "toeplab"
local core = require "toeplab.core"
local chunks = require "toeplab.nn.mixers.attention.chunks"
local LagBias = require("toeplab.nn.mixers.attention.lag_bias").LagBias
local mixers = require "toeplab.nn.mixers"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local SLOW = "cpu" -- for tests that would take an emulated GPU up to a minute

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

local function largest(x) return core.abs(x):amax():item() end

-- Makes the mixer name with dim = 4 and 2 heads, where it has heads.
local function make(name, more)
  local class, o = mixers.class(name), {}
  if class.spec.fields.heads then o.heads = 2 end
  for key, value in pairs(more or {}) do o[key] = value end
  return class(4, o)
end

-- Parameters that start at 0 or 1 become random, so that each of them matters.
local function shaken(mixer)
  for _, p in ipairs(mixer:parameters()) do
    p.tensor:copy(core.no_grad(function() return p.tensor + core.affine(random(p.tensor:shape()),
      0.5, 0) end))
  end
  return mixer
end

-- ---- The mixers ---------------------------------------------------------------------------------

local flash = { shared = 6, max_length = 12, chunk = 4 }
local quad = { shared = 6, max_length = 12 }

local function with(base, more)
  local all = {}
  for key, value in pairs(base) do all[key] = value end
  for key, value in pairs(more) do all[key] = value end
  return all
end

-- {name, options, lengths}: linear forms go beyond one chunk of 64, windows beyond several.
local cases = {
  { "linear_attention", {}, { 1, 2, 5, 64, 131 } },
  { "linear_attention", { causal = false }, { 1, 2, 5, 67 } },
  { "linear_attention", { feature_map = "elu2" }, { 1, 67 } },
  { "linear_attention", { feature_map = "exp" }, { 1, 67 } },
  { "linear_attention", { feature_map = "relu" }, { 1, 67 } },
  { "linear_attention", { feature_map = "sigmoid" }, { 1, 67 } },
  { "linear_attention", { feature_map = "softmax" }, { 1, 67 } },
  { "linear_attention", { feature_map = "softplus" }, { 1, 67 } },
  { "linear_attention", { feature_map = "taylor" }, { 1, 67 } },
  { "linear_attention", { feature_map = "taylor", causal = false }, { 1, 5 } },
  { "cosformer", { length = 140 }, { 1, 2, 5, 64, 131 } },
  { "cosformer", { length = 9, causal = false }, { 1, 2, 9 } },
  { "cosformer", { as_published = true }, { 1, 2, 67 } },
  { "performer", { features = 3 }, { 1, 2, 5, 67 } },
  { "performer", { features = 5, causal = false }, { 1, 2, 5 } },
  { "performer", { features = 5, as_published = true }, { 1, 2, 67 } },
  { "fft_rpe", { features = 3 }, { 1, 2, 5, 67 } },
  { "fft_rpe", { features = 5, length = 4, causal = false }, { 1, 2, 4, 5, 21 } },
  { "cat", {}, { 1, 2, 5, 67 } },
  { "cat", { causal = false }, { 1, 2, 5, 66, 67 } },
  { "flash_quad", quad, { 1, 2, 7, 12 } },
  { "flash_quad", with(quad, { causal = false, norm = "layernorm" }), { 1, 2, 12 } },
  { "flash_quad", with(quad, { as_published = true }), { 1, 12, 15 } },
  { "flash", flash, { 1, 2, 4, 7, 21 } },
  { "flash", with(flash, { causal = false, norm = "layernorm" }), { 1, 2, 8, 15 } },
  { "flash", with(flash, { causal = false, as_published = true }), { 1, 7, 8 } },
  { "ls_bidirectional", { landmarks = 3, window = 4 }, { 1, 2, 4, 7, 17 } },
  { "ls_bidirectional", { landmarks = 2, window = 1 }, { 1, 2, 5 } },
  { "ls_bidirectional", { landmarks = 3, window = 5, as_published = true }, { 1, 2, 5, 13 } },
  { "transformer_ls", { chunk = 2, rank = 2, window = 4 }, { 1, 2, 3, 4, 5, 8, 15 } },
  { "transformer_ls", { chunk = 3, window = 4 }, { 1, 4, 5, 13 } },
  { "transformer_ls", { chunk = 8, window = 2 }, { 1, 3, 17 } },
}

local function label(case)
  local words = {}
  for key, value in pairs(case[2]) do words[#words + 1] = (" %s=%s"):format(key, value) end
  table.sort(words)
  return case[1] .. table.concat(words)
end

for _, case in ipairs(cases) do
  test(label(case) .. ": the formula with all pairs, at every length", function()
    tl.seed(1)
    local m = shaken(make(case[1], case[2])):eval()
    for _, n in ipairs(case[3]) do
      local x = random(1, n, 4)
      local got, want = core.no_grad(m.forward, m, x), core.no_grad(formula[case[1]], m, x, n)
      eq(got:shape(), { 1, n, 4 })
      local apart = largest(got - want) / largest(want)
      local rounding = case[1] == "fft_rpe" and 1e-4 or 2e-5 -- of Fourier transforms, or of sums
      ok(apart < rounding, ("n = %d: %g apart"):format(n, apart))
      local two = core.no_grad(m.forward, m, core.concat({ random(1, n, 4), x }, 1))
      apart = largest(two:narrow(1, 2, 1) - got)
      ok(apart < 1e-5, ("n = %d: %g apart as second row of a batch"):format(n, apart))
    end
  end)
end

-- Performer as published is left out: M has no gradient although it matters there, as rows below
-- the least sum are not divided by it.
test("gradients agree with differences", function()
  for _, case in ipairs(cases) do
    if not (case[1] == "performer" and case[2].as_published) then
      tl.seed(3)
      local m, x = shaken(make(case[1], case[2])):eval(), random(2, 5, 4)
      local list = m:parameters()
      list[#list + 1] = { name = "x", tensor = x }
      local _, found = tl.gradcheck(function() return m(x) end, list, { most = 6, step = 3e-3 })
      for _, row in ipairs(found) do
        local none = math.max(math.abs(row.gradient), math.abs(row.difference)) < 1e-3
        ok(row.error < 2e-2 or none, ("%s: %s: %g, by differences %g"):format(label(case),
          row.name, row.gradient, row.difference))
      end
    end
  end
end, SLOW)

test("causal mixers see no later token; the others do", function()
  for _, case in ipairs(cases) do
    if not case[2].as_published then
      tl.seed(4)
      local m, n = shaken(make(case[1], case[2])):eval(), 12
      if case[2].length == 9 then n = 9 end
      local x = random(1, n, 4)
      local y = core.no_grad(m.forward, m, x)
      x:view(4 * (n - 3), { 12 }):fill(7)
      local z = core.no_grad(m.forward, m, x)
      local leak = largest((y - z):narrow(2, 1, n - 3))
      local rounding = case[1] == "fft_rpe" and 1e-5 or 0 -- of Fourier transforms
      ok((leak <= rounding) == m.opt.causal, ("%s: %g"):format(label(case), leak))
      ok(largest((y - z):narrow(2, n - 2, 3)) > 1e-3, label(case) .. ": the tokens must matter")
    end
  end
end)

-- ---- Parts --------------------------------------------------------------------------------------

test("sums by chunks: any size and length, and the gradients across chunks", function()
  tl.seed(5)
  local function dense(q, k, v)
    return core.matmul(core.matmul(q, k, false, true) * shapes.lower(q:dim(3)), v)
  end
  for n = 1, 9 do
    local q, k, v = random(2, 3, n, 2), random(2, 3, n, 2), random(2, 3, n, 5)
    for size = 1, 4 do
      ok(largest(chunks.summer(true, size)(q, k, v) - dense(q, k, v)) < 1e-5)
    end
  end
  local q, k, v = random(1, 2, 7, 2), random(1, 2, 7, 2), random(1, 2, 7, 3)
  local sum = chunks.summer(true, 3)
  ok(tl.gradcheck(function() return sum(q, k, v) end, { q, k, v }) < 1e-3)
  local weights = core.tensor { { { { 0.5 }, { -3 } } } }
  local y = chunks.normalised(sum, weights, core.ones(1, 1, 2, 1), core.ones(1, 1, 2, 1), 2)
  eq(y, { { { { 0.25 }, { -3 } } } }) -- both sums, 0.5 and -6, are below 2
end)

test("memory grows linearly with n in all but the quadratic mixers", function()
  local function needed(name, more, n)
    local m, x = make(name, more):eval(), random(1, n, 4)
    core.no_grad(m.forward, m, x) -- fills the caches
    collectgarbage()
    collectgarbage "stop" -- so that intermediate results are all counted
    core.memory_reset_peak()
    local before = core.memory().live
    core.no_grad(m.forward, m, x)
    collectgarbage "restart"
    return core.memory().peak - before
  end
  for _, case in ipairs(cases) do
    local name = case[1]
    local quadratic = name == "flash_quad" or name == "transformer_ls"
      or name == "cat" and case[2].causal ~= false
    local more = with(case[2], name == "cosformer" and { length = 4096 } or {})
    if not quadratic and not more.as_published then
      local ratio = needed(name, more, 4096) / needed(name, more, 1024)
      ok(ratio < 4.5, ("%s: %g times the memory for 4 times n"):format(label(case), ratio))
    end
  end
end, SLOW)

test("long-short attention with a memory: the formula, no gradient to the memory", function()
  tl.seed(6)
  for _, case in ipairs { { 1, 4, 2, 5 }, { 5, 4, 2, 3 }, { 13, 8, 2, 3 }, { 4, 2, 2, 8 },
    { 7, 12, 3, 4 } } do
    local n, before, chunk, window = table.unpack(case)
    local m = shaken(make("transformer_ls", { chunk = chunk, rank = 2, window = window }))
    local x, memory = random(1, n, 4), random(1, before, 4):require_grad()
    local y = m(x, memory)
    local want = core.no_grad(formula.transformer_ls, m, x, n, memory)
    ok(largest(core.no_grad(function() return y - want end)) < 2e-5 * largest(want))
    y:sum():backward()
    eq(memory:grad(), nil)
    ok(m.norm_chunks.weight:grad())
    raises(m, "memory of 5 positions is not a multiple of chunk = %d", x, random(1, 5, 4))
  end
end)

test("performer: rows are orthogonal and kept; as published, drawn at every call", function()
  tl.seed(7)
  local m = mixers.make("performer", 8, { heads = 2 }, { features = 7 })
  local p = m.projection
  eq({ p:shape(), (m:count()) }, { { 2, 7, 4 }, 4 * (64 + 8) })
  ok(m:state().projection, "the rows are saved")
  local dots = core.matmul(p, p, false, true):totable()
  for h = 1, 2 do
    for i = 1, 7 do
      for j = 1, i - 1 do
        local same = (i - 1) // 4 == (j - 1) // 4
        ok(not same or math.abs(dots[h][i][j]) < 1e-5)
      end
      ok(dots[h][i][i] > 0.1 and dots[h][i][i] < 40)
    end
  end
  local x = random(1, 5, 8)
  eq(core.no_grad(m.forward, m, x), core.no_grad(m.forward, m, x))
  local loose = mixers.make("performer", 8, { heads = 2 }, { as_published = true })
  local function out()
    tl.seed(8)
    return { core.no_grad(loose.forward, loose, x), core.no_grad(loose.forward, loose, x) }
  end
  local first, again = out(), out()
  ok(largest(first[1] - first[2]) > 1e-4)
  eq(first, again)
  loose:eval()
  eq(core.no_grad(loose.forward, loose, x), core.no_grad(loose.forward, loose, x))
end)

test("performer: with many features it is near softmax attention", function()
  for _, causal in ipairs { true, false } do
    tl.seed(9)
    local o = { heads = 2, causal = causal }
    local m = mixers.make("performer", 8, o, { features = 4096 })
    local a, x = nn.Attention(8, o), random(1, 20, 8)
    for _, name in ipairs { "q", "k", "v", "o" } do a[name]:load(m[name]:state()) end
    local got, want = core.no_grad(m.forward, m, x), core.no_grad(a.forward, a, x)
    eq(largest(got - want) / largest(want), 0, 0.1)
  end
end, SLOW)

test("fft_rpe: with a bias of 0 and many features it is near softmax of cosines", function()
  for _, causal in ipairs { true, false } do
    tl.seed(9)
    local m, n = mixers.make("fft_rpe", 8, { heads = 2, causal = causal }, { features = 2048 }), 20
    local x = random(1, n, 8)
    local function unit(z)
      z = z:reshape(n, 2, 4):permute { 2, 1, 3 }
      return z / core.sqrt(core.square(z):sum(3, true))
    end
    local want = core.no_grad(function()
      local weights = core.softmax(core.matmul(unit(m.q(x)), unit(m.k(x)), false, true), causal)
      local y = core.matmul(weights, m.v(x):reshape(n, 2, 4):permute { 2, 1, 3 })
      return m.o(y:permute({ 2, 1, 3 }):reshape(1, n, 8))
    end)
    eq(largest(core.no_grad(m.forward, m, x) - want) / largest(want), 0, 0.1)
  end
end, SLOW)

test("cat: both forms agree at the last token, and equal scores give the mean of the seen tokens",
  function()
    tl.seed(12)
    local n = 7
    local both, causal = make("cat", { causal = false }), make("cat")
    causal:load(both:state())
    local x = random(1, n, 4)
    local whole, seen = core.no_grad(both.forward, both, x), core.no_grad(causal.forward, causal, x)
    eq(seen:narrow(2, n, 1), whole:narrow(2, n, 1), 1e-5) -- the last token sees all scores
    ok(largest((seen - whole):narrow(2, 1, n - 1)) > 1e-3)
    causal.a.weight:fill(0) -- equal scores: the mean of the tokens so far
    local y = core.no_grad(causal.forward, causal, x)
    local mean = core.no_grad(function()
      return causal.o(causal.v(x):narrow(2, 1, 3):mean(2, true))
    end)
    eq(y:narrow(2, 3, 1), mean, 1e-5)
  end)

test("cosformer: a longer input changes nothing before, unless as published", function()
  tl.seed(10)
  for _, as_published in ipairs { false, true } do
    local m, x = make("cosformer", { length = 20, as_published = as_published }), random(1, 20, 4)
    local long = core.no_grad(m.forward, m, x):narrow(2, 1, 10)
    local short = core.no_grad(m.forward, m, x:narrow(2, 1, 10))
    eq(largest(long - short) < 1e-6, not as_published)
  end
  eq(make("cosformer", { output = false }):count(), 3 * 20)
end)

test("attention: learned and rotary positions, fairseq's sinusoids and initialisation", function()
  tl.seed(11)
  local x = random(1, 6, 4)
  local learned = nn.Attention(4, { heads = 2, positions = "learned", max_length = 6 })
  local plain = nn.Attention(4, { heads = 2 })
  for _, name in ipairs { "q", "k", "v", "o" } do plain[name]:load(learned[name]:state()) end
  eq(learned(x), plain(x + learned.position.weight), 1e-6)
  raises(learned, "Learned: x has 7 positions, but max_length = 6", random(1, 7, 4))
  local turn = nn.rotary(4)
  local q, k = random(1, 4) + core.zeros(40, 4), random(1, 4) + core.zeros(40, 4)
  local scores = core.matmul(turn(q), turn(k), false, true)
  for lag = 0, 6 do eq(scores:get(1 + lag, 1), scores:get(34 + lag, 34), 1e-5) end
  ok(math.abs(scores:get(1, 1) - scores:get(2, 1)) > 1e-3)
  local rotary = nn.Attention(4, { heads = 2, positions = "rotary", causal = false })
  local reversed = core.concat({ x:narrow(2, 2, 1), x:narrow(2, 1, 1) }, 2)
  ok(math.abs(rotary(x:narrow(2, 1, 2)):get(1, 1, 1) - rotary(reversed):get(1, 2, 1)) > 1e-4)
  local halves = nn.Sinusoidal(7, { form = "halves", first = 2 })(core.zeros(1, 3, 7)):totable()[1]
  for i = 0, 2 do
    for c = 0, 2 do
      local angle = (i + 2) * 10000 ^ (-c / 2)
      eq({ halves[i + 1][c + 1], halves[i + 1][c + 4] }, { math.sin(angle), math.cos(angle) }, 1e-6)
    end
    eq(halves[i + 1][7], 0)
  end
  local started = nn.Attention(64, { init = "xavier" })
  for name, bound in pairs { q = 3 / 128, k = 3 / 128, v = 3 / 128, o = 3 / 64 } do
    local most = largest(started[name].weight) / math.sqrt(bound)
    ok(most < 1 and most > 0.99, name)
  end
  eq({ largest(started.o.bias), largest(started.q.bias) > 0.1 }, { 0, true })
end)

test("parameters as counted in the published models", function()
  local function count(name, dim, more, heads)
    return nn.without_init(mixers.make, name, dim, { heads = heads or 8 }, more or {}):count()
  end
  local flash_lm, vocab, last = { as_published = true }, 50264, 1024
  eq(vocab * 512 + 10 * count("flash_quad", 512, flash_lm) + last, 42164992)
  eq(vocab * 512 + 10 * count("flash", 512, flash_lm) + last, 42170112)
  local ffn = 2 * 512 * 2048 + 2048 + 512
  eq(vocab * 513 + 6 * (count("transformer_ls", 512) + ffn + 2 * last), 47894664)
  for _, name in ipairs { "attention", "linear_attention", "performer", "cosformer" } do
    eq(vocab * 512 + 6 * (count(name, 512) + ffn + 2 * last) + last, 44650496)
  end
  local more = count("ls_bidirectional", 768, {}, 12) - count("attention", 768, {}, 12)
  eq(124696665 + 12 * more, 128277081)
end)

test("errors name wrong options, with right ones", function()
  local function wrong(want, name, more) raises(make, want, name, more) end
  for _, name in ipairs { "linear_attention", "cosformer", "performer", "ls_bidirectional",
    "transformer_ls", "attention", "cat", "fft_rpe" } do
    wrong("%w+: 4 channels do not divide into 3 heads", name, { heads = 3 })
  end
  for _, name in ipairs { "flash", "flash_quad" } do
    wrong(": shared = 5 must be even", name, { shared = 5 })
    wrong(": expand = 0.1 leaves no channel for dim = 4", name, { expand = 0.1 })
  end
  wrong("Flash: chunk = 9 has more distances than the bias of max_length = 8", "flash",
    { chunk = 9, max_length = 8 })
  eq(make("flash", { max_length = 6 }).chunk, 6) -- only a given chunk can be too long
  wrong("Flash: chunk = 7 has more distances than the bias of max_length = 6", "flash",
    { max_length = 6, chunk = 7 })
  raises(make("flash_quad", { max_length = 6 }), "FlashQuad: an input of 7 .* max_length = 6",
    random(1, 7, 4))
  raises(make("cosformer", { length = 6 }), "7 tokens is longer than length = 6", random(1, 7, 4))
  wrong("LSBidirectional: causal = true is impossible.*transformer_ls", "ls_bidirectional",
    { causal = true })
  wrong("TransformerLS: causal = false is impossible.*ls_bidirectional", "transformer_ls",
    { causal = false })
  raises(mixers.make, "TransformerLS: dim = 3 must be even", "transformer_ls", 3, {}, {})
  wrong("Attention: positions = 'rotary' turns pairs .* of a head, 1, must be even", "attention",
    { heads = 4, positions = "rotary" })
  raises(nn.Sinusoidal, "form = 'halves' .* dim = 3 must be at least 4", 3, { form = "halves" })
end)

-- ---- Biases by lag ------------------------------------------------------------------------------

-- The rows of T5's published function for these lags: causal, and with both signs.
test("T5 puts lags into its ranges, and a row is shared by all pairs of its lags", function()
  local causal = { [0] = 0, [1] = 1, [15] = 15, [16] = 16, [18] = 16, [19] = 17, [64] = 26,
    [127] = 31, [128] = 31, [900] = 31, [-3] = 0 }
  local both = { [0] = 0, [7] = 7, [8] = 8, [11] = 8, [12] = 9, [64] = 14, [127] = 15, [128] = 15,
    [-1] = 17, [-7] = 23, [-8] = 24, [-128] = 31 }
  for rows, is in pairs { [causal] = true, [both] = false } do
    local bias = LagBias(1, { form = "t5", causal = is })
    bias.weight:copy(core.range(0, 31):reshape(32, 1))
    local b = bias(0, 1000)
    for lag, row in pairs(rows) do
      eq({ lag, b:get(1, 1000 - lag) }, { lag, row })
    end
  end
end)

test("attention with trained biases is the softmax of scores plus a Toeplitz matrix", function()
  for _, causal in ipairs { true, false } do
    tl.seed(4)
    local mixer = make("attention", { positions = "relative", max_length = 3, causal = causal })
    tl.stream_of("test"):normal(mixer.lag_bias.weight, 0, 1)
    local x, n = random(1, 6, 4), 6
    local weight = mixer.lag_bias.weight:totable()
    local q, k, v = mixer.q(x):totable()[1], mixer.k(x):totable()[1], mixer.v(x):totable()[1]
    local y = {}
    for i = 1, n do
      y[i] = {}
      for head = 0, 1 do
        local total, sums = 0, { 0, 0 }
        for j = 1, causal and i or n do
          local lag = math.min(math.abs(i - j), 2) + (i < j and 3 or 0)
          local score = weight[lag + 1][head + 1]
          for c = 1, 2 do
            score = score + q[i][2 * head + c] * k[j][2 * head + c] / math.sqrt(2)
          end
          total = total + math.exp(score)
          for c = 1, 2 do sums[c] = sums[c] + math.exp(score) * v[j][2 * head + c] end
        end
        for c = 1, 2 do y[i][2 * head + c] = sums[c] / total end
      end
    end
    ok(largest(mixer(x) - mixer.o(core.tensor { y })) < 1e-5)
    mixer(x):sum():backward()
    ok(largest(mixer.lag_bias.weight:grad()) > 0)
    core.tape_clear()
  end
end)

t.done()
