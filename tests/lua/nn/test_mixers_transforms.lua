-- test_mixers_transforms.lua -- Synthesizers, gMLP, FNet, GFNet and AFNO against their formulas
-- written out, their gradients, what each position sees, and wrong options.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local DIM, LONGEST = 6, 8

-- For each mixer: whether it can be causal as meant, and its options. All are of LONGEST positions
-- where they have a largest length.
local table_ = {
  synthesizer_dense = { causal = true, max_length = LONGEST },
  synthesizer_random = { causal = true, max_length = LONGEST },
  gmlp = { causal = true, max_length = LONGEST, ffn_dim = 10 },
  fnet_mixing = {},
  fnet = { ffn_dim = 7 },
  gfnet = { length = LONGEST },
  afno = { blocks = 2, shrink = 0.05 },
}
local names = {}
for name in pairs(table_) do names[#names + 1] = name end
table.sort(names)

local function random(...)
  return tl.stream_of "test":normal(core.zeros(...), 0, 1)
end

-- Makes a mixer with parameters ~ N(0, 0.5^2), so that no part of it is too small to matter.
local function make(name, more)
  local given = {}
  for key, value in pairs(table_[name]) do given[key] = value end
  given.causal = false
  for key, value in pairs(more or {}) do given[key] = value end
  local mixer = mixers.class(name)(DIM, given)
  for _, p in ipairs(mixer:parameters()) do
    tl.stream_of "test":normal(p.tensor, 0, 0.5)
  end
  return mixer
end

-- Calls fn(name, mixer) for each mixer, in each form that it has.
local function each(fn)
  for _, name in ipairs(names) do
    fn(name, make(name))
    fn(name, make(name, { as_published = true }))
    if table_[name].causal then fn(name, make(name, { causal = true })) end
    fn(name, make(name, { causal = true, as_published = true }))
  end
end

local function output(mixer, x)
  return core.no_grad(function() return mixer(x) end)
end

-- ---- Every mixer --------------------------------------------------------------------------------

test("gradients agree with differences", function()
  tl.seed(1)
  each(function(name, mixer)
    local x = random(2, 5, DIM)
    if name == "afno" then -- no difference shall pass a kink of relu or the threshold
      local far = core.tensor { { { 1, -1, 1 }, { -1, 1, 1 } }, { { -1, 1, 1 }, { 1, -1, 1 } } }
      mixer.b1:copy(core.affine(far, 4, 0))
      mixer.b2:copy(core.affine(far, 16, 0))
    end
    local list = { { name = "x", tensor = x } }
    for _, p in ipairs(mixer:parameters()) do
      -- as_published, the bias of gMLP's gate is not used.
      if not (mixer.opt.as_published and p.name == "gate.bias") then list[#list + 1] = p end
    end
    local function run() return mixer(x) end
    local worst, rows = tl.gradcheck(run, list, { most = 8, step = 1e-3 })
    for _, row in ipairs(rows) do
      ok(row.error < 0.02, ("%s %s: %g"):format(name, row.name, row.error))
    end
    ok(worst < 0.02)
  end)
end)

test("every length gives a result of its shape that depends on the input", function()
  tl.seed(2)
  each(function(name, mixer)
    for _, n in ipairs { 1, 2, 5, 7, 8 } do
      local x = random(2, n, DIM)
      local y = output(mixer, x)
      eq(y:shape(), { 2, n, DIM })
      ok(core.abs(y - output(mixer, x + random(2, n, DIM))):amax():item() > 1e-3, name)
      eq(output(mixer, x:narrow(1, 2, 1)), y:narrow(1, 2, 1), 1e-5) -- sequences stand alone
    end
  end)
end)

test("causal mixers do not see later tokens, and the others do", function()
  tl.seed(3)
  each(function(name, mixer)
    local x, n = random(1, 7, DIM), 4
    local other = core.concat({ x:narrow(2, 1, n), random(1, 7 - n, DIM) }, 2)
    local apart = core.abs(output(mixer, x) - output(mixer, other))
    local before = apart:narrow(2, 1, n):amax():item()
    if mixer.opt.causal then
      ok(before < 1e-5, ("%s: %g"):format(name, before))
    else
      ok(before > 1e-3, name)
    end
    ok(apart:narrow(2, n + 1, 7 - n):amax():item() > 1e-3, name)
  end)
end)

-- ---- Formulas -----------------------------------------------------------------------------------

-- Softmax of a row of numbers, over the first `seen` of them.
local function softmax(row, seen)
  local top, sum, list = -math.huge, 0.0, {}
  for j = 1, seen do top = math.max(top, row[j]) end
  for j = 1, #row do
    list[j] = j <= seen and math.exp(row[j] - top) or 0.0
    sum = sum + list[j]
  end
  for j = 1, #row do list[j] = list[j] / sum end
  return list
end

-- Returns the sum over j of m_ij x_j for lists of rows.
local function product(m, x)
  local y = {}
  for i = 1, #x do
    y[i] = {}
    for c = 1, #x[1] do
      y[i][c] = 0.0
      for j = 1, #x do y[i][c] = y[i][c] + m[i][j] * x[j][c] end
    end
  end
  return y
end

test("Synthesizers: rows of weights are softmaxes over the first n scores", function()
  tl.seed(4)
  for _, causal in ipairs { true, false } do
    for _, name in ipairs { "synthesizer_dense", "synthesizer_random" } do
      local mixer, x, n = make(name, { causal = causal }), random(1, 5, DIM), 5
      local scores = name == "synthesizer_dense"
        and mixer.w2(core.relu(mixer.w1(x))):reshape(n, LONGEST):totable() or mixer.w:totable()
      local p = {}
      for i = 1, n do p[i] = softmax(table.move(scores[i], 1, n, 1, {}), causal and i or n) end
      eq(output(mixer, x):reshape(n, DIM), product(p, x:reshape(n, DIM):totable()), 1e-5)
    end
  end
end)

test("gMLP: the gate is a matrix over positions with a bias per position", function()
  tl.seed(5)
  for _, causal in ipairs { true, false } do
    local mixer, x, n = make("gmlp", { causal = causal }), random(1, 5, DIM), 5
    local h = core.gelu(mixer.i(mixer.norm(x)))
    local v = mixer.gate_norm(h:narrow(3, 6, 5)):reshape(n, 5):totable()
    local m, bias = mixer.gate.weight:totable(), mixer.gate.bias:totable()
    for i = 1, n do
      for j = 1, LONGEST do
        if causal and j > i then m[i][j] = 0.0 end
      end
    end
    local gate = product(m, v)
    for i = 1, n do
      for c = 1, 5 do gate[i][c] = gate[i][c] + bias[i] end
    end
    local u = h:narrow(3, 1, 5)
    eq(output(mixer, x), x + mixer.o(u * core.tensor(gate):reshape(1, n, 5)), 1e-5)
  end
end)

test("gMLP starts as a network without mixing, and as published does not", function()
  tl.seed(6)
  local function gate(more)
    more.max_length, more.ffn_dim = 64, 8
    return mixers.make("gmlp", 4, {}, more).gate
  end
  local near = gate {}
  eq(near.bias, core.ones(64))
  ok(core.abs(near.weight):amax():item() < 1e-4)
  ok(core.abs(gate { as_published = true }.weight):amax():item() > 0.1)
end)

-- Returns the sum over j of x_j exp(-2 pi i jk/n): real and imaginary part, k from 0.
local function fourier(x, k)
  local re, im = 0.0, 0.0
  for j = 0, #x - 1 do
    local angle = -2 * math.pi * j * k / #x
    re, im = re + x[j + 1] * math.cos(angle), im + x[j + 1] * math.sin(angle)
  end
  return re, im
end

-- Returns channel c of a list of rows.
local function column(x, c)
  local list = {}
  for i = 1, #x do list[i] = x[i][c] end
  return list
end

test("FNet mixes by the real part of both transforms", function()
  tl.seed(7)
  for _, n in ipairs { 1, 2, 5, 8 } do
    local x = random(1, n, DIM)
    local rows, want = x:reshape(n, DIM):totable(), {}
    for k = 0, n - 1 do
      want[k + 1] = {}
      for c = 0, DIM - 1 do
        local sum = 0.0
        for i = 0, n - 1 do
          local re, im = fourier(rows[i + 1], c)
          local angle = -2 * math.pi * i * k / n
          sum = sum + re * math.cos(angle) - im * math.sin(angle)
        end
        want[k + 1][c + 1] = sum
      end
    end
    eq(output(make "fnet_mixing", x):reshape(n, DIM), want, 1e-4)
    local fnet = make "fnet"
    local z = fnet.mixing_norm(x + core.tensor { want })
    eq(output(fnet, x), fnet.output_norm(z + fnet.o(core.gelu(fnet.i(z)))), 1e-4)
  end
end)

-- Returns the real sequence of length n whose frequencies 0 .. n//2 are the pairs of z.
local function inverse(z, n)
  local y = {}
  for i = 0, n - 1 do
    y[i + 1] = 0.0
    for m = 0, n // 2 do
      local twice = (m == 0 or 2 * m == n) and 1 or 2
      local angle = 2 * math.pi * i * m / n
      y[i + 1] = y[i + 1] + twice / n * (z[m][1] * math.cos(angle) - z[m][2] * math.sin(angle))
    end
  end
  return y
end

-- Checks that mixer gives what change(m, c, re, im) -> re, im makes of frequency m of channel c.
local function acts_on_frequencies(mixer, x, change, shortcut)
  local n, y = x:dim(2), output(mixer, x):reshape(-1, DIM):totable()
  local rows = x:reshape(n, DIM):totable()
  for c = 1, DIM do
    local z, own = {}, column(rows, c)
    for m = 0, n // 2 do z[m] = { change(m, c, fourier(own, m)) } end
    local want = inverse(z, n)
    for i = 1, n do eq(y[i][c], want[i] + (shortcut and own[i] or 0.0), 1e-4) end
  end
end

test("GFNet multiplies frequencies by a filter that is interpolated to the length", function()
  tl.seed(8)
  for _, as_published in ipairs { true, false } do
    for _, n in ipairs { 1, 2, 5, 8, 11 } do
      local mixer = make("gfnet", { as_published = as_published })
      local w = mixer.filter:totable()
      acts_on_frequencies(mixer, random(1, n, DIM), function(m, c, re, im)
        local at = as_published and m or math.min(m * LONGEST / n, #w - 1)
        local low, f = at // 1 | 0, { 0.0, 0.0 }
        for k = 1, 2 do
          local a, b = w[low + 1], w[low + 2]
          f[k] = (a and a[c][k] * (1 - (at - low)) or 0) + (b and b[c][k] * (at - low) or 0)
        end
        return re * f[1] - im * f[2], re * f[2] + im * f[1]
      end)
    end
  end
end)

test("AFNO applies a network of complex blocks to each frequency, and adds its input", function()
  tl.seed(9)
  for _, n in ipairs { 1, 2, 7, 8 } do
    local mixer, x, s = make "afno", random(1, n, DIM), DIM // 2
    local w1, b1, w2, b2 = mixer.w1:totable(), mixer.b1:totable(), mixer.w2:totable(),
      mixer.b2:totable()
    local rows = x:reshape(n, DIM):totable()
    local function layer(w, b, k, z, act)
      local out = {}
      for o = 1, s do
        local re, im = b[1][k][o], b[2][k][o]
        for i = 1, s do
          re = re + z[i][1] * w[1][k][i][o] - z[i][2] * w[2][k][i][o]
          im = im + z[i][1] * w[2][k][i][o] + z[i][2] * w[1][k][i][o]
        end
        out[o] = { act(re), act(im) }
      end
      return out
    end
    local function relu(v) return math.max(v, 0) end
    local function shrink(v) return math.max(v - 0.05, 0) - math.max(-v - 0.05, 0) end
    acts_on_frequencies(mixer, x, function(m, c)
      local k, z = (c - 1) // s + 1, {}
      for i = 1, s do
        local re, im = fourier(column(rows, (k - 1) * s + i), m)
        z[i] = { re / math.sqrt(n), im / math.sqrt(n) }
      end
      local y = layer(w2, b2, k, layer(w1, b1, k, z, relu), shrink)[c - (k - 1) * s]
      return y[1] * math.sqrt(n), y[2] * math.sqrt(n)
    end, true)
  end
end)

-- ---- Lengths and wrong options ------------------------------------------------------------------

test("beyond max_length: an error, and as published positions without mixing", function()
  tl.seed(10)
  local x = random(2, 11, DIM)
  for name, kind in pairs { synthesizer_dense = "SynthesizerDense",
    synthesizer_random = "SynthesizerRandom", gmlp = "GMLP" } do
    raises(output, kind .. ": a sequence has 11 positions, .* set max_length", make(name), x)
    for _, causal in ipairs { true, false } do
      local mixer = make(name, { as_published = true, causal = causal })
      local y, inside = output(mixer, x), output(mixer, x:narrow(2, 1, LONGEST))
      eq(y:narrow(2, 1, LONGEST), inside, 1e-5)
      local rest = y:narrow(2, LONGEST + 1, 3)
      eq(rest, name == "gmlp" and x:narrow(2, LONGEST + 1, 3) + mixer.o.bias
        or core.zeros(2, 3, DIM), 1e-5)
    end
  end
end)

test("errors name wrong options", function()
  for _, name in ipairs { "fnet_mixing", "fnet", "gfnet", "afno" } do
    raises(mixers.make, "sees all positions: set causal = false, or as_published", name, 6,
      { causal = true }, {})
  end
  raises(mixers.make, "6 channels do not divide into blocks = 4: use a divisor", "afno", 6, {},
    { blocks = 4 })
  raises(mixers.make, "ffn_dim = 7 must be even", "gmlp", 6, {}, { ffn_dim = 7 })
  raises(mixers.make, "unknown option 'max_lenght'", "gmlp", 6, {}, { max_lenght = 7 })
end)

t.done()
