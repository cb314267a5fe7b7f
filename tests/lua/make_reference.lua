-- make_reference.lua: writes tests/reference.h5, small cases for `toeplab verify`, computed by the
-- plain Lua below: every number a float64 with its own gradient, every formula as in the papers.
-- toeplab lua tests/lua/make_reference.lua FILE.h5
local core = require "toeplab.core"
local numbers = require "numbers"

local leaf, exp, log, sqrt = numbers.leaf, numbers.exp, numbers.log, numbers.sqrt
local relu, silu, backward, random = numbers.relu, numbers.silu, numbers.backward, numbers.random
local array, zip, leaves, dot = numbers.array, numbers.zip, numbers.leaves, numbers.dot
local values, gradients = numbers.values, numbers.gradients


-- ---- The model: x is a list of rows -------------------------------------------------------------

local function linear(x, w, b)
  local y = {}
  for i, row in ipairs(x) do
    y[i] = {}
    for o, weights in ipairs(w) do
      local sum = b and b[o] + 0 or leaf(0.0)
      for k, weight in ipairs(weights) do sum = sum + row[k] * weight end
      y[i][o] = sum
    end
  end
  return y
end

-- SimpleRMSNorm of each row.
local function norm(x)
  local y = {}
  for i, row in ipairs(x) do
    local sum = leaf(0.0)
    for _, v in ipairs(row) do sum = sum + v * v end
    local size = sqrt(sum) / math.sqrt(#row) + 1e-8
    y[i] = zip(function(v) return v / size end, row)
  end
  return y
end

local function act(f, x) return zip(f, x) end
local function times(a, b) return zip(function(x, y) return x * y end, a, b) end
local function plus(a, b) return zip(function(x, y) return x + y end, a, b) end

-- The coefficients of the lags first..last: rows [d], decayed by gamma.
local function coefficients(p, prefix, first, last)
  local lags, gamma = {}, p[prefix .. "gamma"]
  for k = first, last do lags[#lags + 1] = { leaf(k) } end
  local function weights(name)
    return p[prefix .. "rpe." .. name .. ".weight"], p[prefix .. "rpe." .. name .. ".bias"]
  end
  local x = linear(lags, weights "pos_proj")
  x = linear(act(relu, norm(x)), weights "layers.0.2")
  x = linear(act(relu, norm(x)), weights "out.2")
  for i, row in ipairs(x) do
    local lag = math.abs(first + i - 1)
    for c = 1, #row do row[c] = row[c] * gamma[1][1][c] ^ lag end
  end
  return x
end

-- y_i = sum over j of t_(i-j) x_j; t: rows of the lags from first on.
local function toeplitz(t, first, x)
  local y = {}
  for i = 1, #x do
    y[i] = {}
    for c = 1, #x[1] do
      local sum = leaf(0.0)
      for j = 1, #x do
        local row = t[i - j - first + 1]
        if row then sum = sum + row[c] * x[j][c] end
      end
      y[i][c] = sum
    end
  end
  return y
end

-- One block, layout A: x + GTU(norm(x)), then x + GLU(norm(x)).
local function block(p, prefix, x)
  local function map(y, name)
    return linear(y, p[prefix .. name .. ".weight"], p[prefix .. name .. ".bias"])
  end
  local y = norm(x)
  local t = coefficients(p, prefix .. "token_mixer.toep.", 0, #x - 1)
  local mixed = toeplitz(t, 0, act(silu, map(y, "token_mixer.v_proj")))
  x = plus(x, map(times(act(silu, map(y, "token_mixer.u_proj")), mixed), "token_mixer.o"))
  y = norm(x)
  local gated = times(act(silu, map(y, "feature_mixer.l1")), map(y, "feature_mixer.l2"))
  return plus(x, map(gated, "feature_mixer.l3"))
end

-- Mean nats of the language model with one block on rows of ids.
local function language_loss(p, ids, dim)
  local sum, count = leaf(0.0), 0
  for _, row in ipairs(ids) do
    local x = {}
    for i = 1, #row - 1 do
      x[i] = zip(function(e) return e * math.sqrt(dim) end, p["embed.weight"][row[i] + 1])
    end
    local logits = linear(norm(block(p, "layers.0.", x)), p["embed.weight"])
    for i, scores in ipairs(logits) do
      local total = leaf(0.0)
      for _, s in ipairs(scores) do total = total + exp(s) end
      sum, count = sum + log(total) - scores[row[i + 1] + 1], count + 1
    end
  end
  return sum / count
end

-- ---- Parameters under their published names -----------------------------------------------------

local function add_linear(p, name, inputs, outputs)
  p[name .. ".weight"], p[name .. ".bias"] = leaves(outputs, inputs), leaves(outputs)
end

local function add_operator(p, prefix, gamma, hidden, width)
  p[prefix .. "gamma"] = array({ 1, 1, width }, function() return gamma end)
  add_linear(p, prefix .. "rpe.pos_proj", 1, hidden)
  add_linear(p, prefix .. "rpe.layers.0.2", hidden, hidden)
  add_linear(p, prefix .. "rpe.out.2", hidden, width)
end

local function add_block(p, prefix, o)
  for _, name in ipairs { "u_proj", "v_proj" } do
    add_linear(p, prefix .. "token_mixer." .. name, o.dim, o.expand * o.dim)
  end
  add_linear(p, prefix .. "token_mixer.o", o.expand * o.dim, o.dim)
  add_operator(p, prefix .. "token_mixer.toep.", o.gamma, 3, o.expand * o.dim)
  for _, name in ipairs { "l1", "l2" } do
    add_linear(p, prefix .. "feature_mixer." .. name, o.dim, o.glu_dim)
  end
  add_linear(p, prefix .. "feature_mixer.l3", o.glu_dim, o.dim)
end

local function sorted(p)
  local names = {}
  for name in pairs(p) do names[#names + 1] = name end
  table.sort(names)
  return names
end

-- ---- Cases --------------------------------------------------------------------------------------

local entries, attrs = {}, {}

local function put(case, name, a, kind)
  entries[#entries + 1] = { case .. "/" .. name, (kind or core.tensor)(values(a)) }
end

local function describe(case, attributes)
  for key, value in pairs(attributes) do attrs[case .. "/" .. key] = value end
end

local function put_parameters(case, p, group, of)
  for _, name in ipairs(sorted(p)) do put(case, group .. "/" .. name, of(p[name])) end
end

local function trained(p)
  local list = {}
  for name, a in pairs(p) do
    if not name:find "gamma$" then list[name] = a end
  end
  return list
end

-- x [n,d] as the one row of a batch: [1,n,d].
local function batch(x) return { x } end

local function time_case(name, n, d, causal, gamma)
  local t, x, dy = leaves(2 * n - 1, d), leaves(n, d), values(leaves(n, d))
  local first, used = causal and 0 or 1 - n, {}
  for k = first, n - 1 do
    used[#used + 1] = zip(function(c) return c * (gamma < 0 and 1 or gamma) ^ math.abs(k) end,
      t[k + n])
  end
  local y = toeplitz(used, first, x)
  backward(dot(y, dy))
  describe(name, { kind = "time", causal = causal, gamma = gamma })
  put(name, "t", t)
  put(name, "dt", gradients(t))
  for part, a in pairs { x = x, dy = dy, y = y, dx = gradients(x) } do put(name, part, batch(a)) end
end

-- One head: [1,n,d] becomes [1,1,n,d].
local function tno_case(name, n, d, causal)
  local p, x, dy = {}, leaves(n, d), values(leaves(n, d))
  add_operator(p, "", 0.875, 3, d)
  local first = causal and 0 or 1 - n
  local y = toeplitz(coefficients(p, "", first, n - 1), first, x)
  backward(dot(y, dy))
  describe(name, { kind = "tno", causal = causal, gamma = 0.875, h = 1, par_type = 1,
    act = "relu" })
  for part, a in pairs { x = x, dy = dy, y = y, dx = gradients(x) } do
    put(name, part, batch(batch(a)))
  end
  put_parameters(name, p, "param", values)
  put_parameters(name, trained(p), "grad", gradients)
end

local function layer_case(name, n)
  local o = { dim = 3, expand = 2, glu_dim = 4, gamma = 0.75 }
  local p, x, dy = {}, leaves(n, o.dim), values(leaves(n, o.dim))
  add_block(p, "", o)
  local y = block(p, "", x)
  backward(dot(y, dy))
  describe(name, { kind = "layer", causal = true, heads = 1, act = "silu", par_type = 1,
    norm = "simplermsnorm", dim = o.dim, expand = o.expand, glu_dim = o.glu_dim, gamma = o.gamma })
  for part, a in pairs { x = x, dy = dy, y = y, dx = gradients(x) } do put(name, part, batch(a)) end
  put_parameters(name, p, "param", values)
  put_parameters(name, trained(p), "grad", gradients)
end

-- The learning rate of an update: linear warm-up, then sqrt(warmup / u) (fairseq).
local function rate(a, step)
  local u = step - 1
  if u < a.warmup then return a.warmup_init_lr + u * (a.lr - a.warmup_init_lr) / a.warmup end
  return a.lr * math.sqrt(a.warmup / u)
end

-- An update of fairseq's Adam with clipping; returns the norm of the gradient.
local function adam(a, p, moments, step)
  local square = 0.0
  for _, name in ipairs(sorted(p)) do
    zip(function(x) square = square + x.g ^ 2 end, p[name])
  end
  local size = math.sqrt(square)
  local scale = math.min(1, a.clip / (size + 1e-6))
  local lr = rate(a, step)
  local by = lr * math.sqrt(1 - a.beta2 ^ step) / (1 - a.beta1 ^ step)
  for _, w in pairs(p) do
    zip(function(x)
      local m = moments[x] or { 0.0, 0.0 }
      moments[x] = m
      m[1] = a.beta1 * m[1] + (1 - a.beta1) * x.g * scale
      m[2] = a.beta2 * m[2] + (1 - a.beta2) * (x.g * scale) ^ 2
      x.v = x.v - lr * a.weight_decay * x.v - by * m[1] / (math.sqrt(m[2]) + a.eps)
      x.g = 0.0
    end, w)
  end
  return size, lr
end

local function train_case(name, n)
  local a = { kind = "train", layout = "prenorm", causal = true, tied = true, vocab = 7, layers = 1,
    dim = 4, expand = 2, glu_dim = 3, gamma = 0.75, norm = "simplermsnorm",
    final_norm = "simplermsnorm", par_type = 1, steps = 4, lr = 0.01, beta1 = 0.9, beta2 = 0.98,
    eps = 1e-4, clip = 1.0, weight_decay = 0.1, warmup = 2, warmup_init_lr = 1e-3 }
  local p, series, moments = {}, { loss = {}, lr = {}, grad_norm = {} }, {}
  p["embed.weight"] = leaves(a.vocab, a.dim)
  add_block(p, "layers.0.", a)
  describe(name, a)
  put_parameters(name, p, "param", values)
  local ids = array({ a.steps, 2, n + 1 }, function() return (random() + 1) * a.vocab // 2 | 0 end)
  for step = 1, a.steps do
    local loss = language_loss(p, ids[step], a.dim)
    backward(loss)
    series.loss[step] = loss.v
    series.grad_norm[step], series.lr[step] = adam(a, trained(p), moments, step)
  end
  put(name, "ids", ids, core.ids)
  for part, list in pairs(series) do put(name, part, list) end
  put_parameters(name, p, "final", values)
end

-- ---- Operators that take no lags ----------------------------------------------------------------

-- T x with T[i][j] = entry(i, j), a row of channels or nil; i, j from 0.
local function product(entry, x)
  local y = {}
  for i = 1, #x do
    y[i] = zip(function() return leaf(0.0) end, x[1])
    for j = 1, #x do
      local row = entry(i - 1, j - 1)
      if row then y[i] = plus(y[i], times(row, x[j])) end
    end
  end
  return y
end

local function scale(row, by) return zip(function(v) return v * by end, row) end

-- Goes back from y and puts x, dy, y, dx and the leaves of list, with their gradients.
local function put_operator(name, x, y, list)
  local dy = values(leaves(#x, #x[1]))
  backward(dot(y, dy))
  for part, a in pairs { x = x, dy = dy, y = y, dx = gradients(x) } do put(name, part, batch(a)) end
  for part, a in pairs(list) do
    put(name, part, a)
    put(name, "d" .. part, gradients(a))
  end
end

-- r_k, k from -(n-1), of a response re + i im [n+1,d] by the inverse transform of length 2n.
local function inverse(n, re, im)
  local r = {}
  for k = 1 - n, n - 1 do
    r[k] = zip(function() return leaf(0.0) end, re[1])
    for m = 0, n do
      local weight, angle = (m == 0 or m == n) and 1 / (2 * n) or 1 / n, math.pi * m * k / n
      r[k] = plus(r[k], scale(re[m + 1], weight * math.cos(angle)))
      if im and m > 0 and m < n then
        r[k] = plus(r[k], scale(im[m + 1], -weight * math.sin(angle)))
      end
    end
  end
  return r
end

local function causal_response_case(name, n, d)
  local spec, x = leaves(n + 1, d), leaves(n, d)
  local t = inverse(n, spec)
  for k = 1, n - 1 do t[k] = scale(t[k], 2) end
  describe(name, { kind = "fd_causal", n = n, d = d })
  local kernel = table.move(t, 0, n - 1, 1, {})
  put_operator(name, x, product(function(i, j) return i >= j and t[i - j] or nil end, x),
    { spec = spec })
  put(name, "kernel", kernel)
end

local function response_case(name, n, d)
  local re, im, x = leaves(n + 1, d), leaves(n + 1, d), leaves(n, d)
  local r = inverse(n, re, im)
  describe(name, { kind = "fd_bidir", n = n, d = d })
  put_operator(name, x, product(function(i, j) return r[i - j] end, x), { re = re, im = im })
end

-- Linear interpolation between the rows of nodes, even on [0,1], at place: a row.
local function between(nodes, place)
  local at = place * (#nodes - 1)
  local a = math.min(at // 1 | 0, #nodes - 2)
  return plus(scale(nodes[a + 1], a + 1 - at), scale(nodes[a + 2], at - a))
end

-- SKI, Algorithm 1: W A W' with A of the kernel at sign(t) lam^|t| between the r inducing points,
-- and m taps. a: the attributes.
local function ski_case(name, n, d, g, a)
  local tbl, taps, x = leaves(g, d), leaves(a.m, d), leaves(n, d)
  local nodes = table.move(tbl, 1, g, 1, {})
  nodes[(g + 1) // 2] = zip(function() return leaf(0.0) end, tbl[1]) -- whatever the table has there
  local span = a.inducing == "n" and n or n - 1
  local function kernel(lag) -- of inducing points
    local size = a.lam ^ (math.abs(lag) * span / (a.r - 1))
    if lag ~= 0 then return between(nodes, (lag > 0 and 1 + size or 1 - size) / 2) end
    if a.zero == "mean" then return scale(plus(nodes[1], nodes[g]), 0.5) end
    return between(nodes, a.zero == "plus" and 1 or 0.5)
  end
  local k, ends = {}, {} -- ends: for each token its two inducing points and their weights
  for lag = 1 - a.r, a.r - 1 do k[lag] = kernel(lag) end
  for i = 0, n - 1 do
    local at = i * (a.r - 1) / span
    local p = math.min(at // 1 | 0, a.r - 2)
    ends[i] = { { p, p + 1 - at }, { p + 1, at - p } }
  end
  a.kind, a.n, a.d, a.g = "ski", n, d, g
  describe(name, a)
  put_operator(name, x, product(function(i, j)
    local row = taps[i - j + a.m // 2 + 1]
    row = row or zip(function() return leaf(0.0) end, x[1])
    for _, p in ipairs(ends[i]) do
      for _, q in ipairs(ends[j]) do row = plus(row, scale(k[p[1] - q[1]], p[2] * q[2])) end
    end
    return row
  end, x), { table = tbl, taps = taps })
end

time_case("time_causal", 7, 3, true, 0.875)
time_case("time_bidirectional", 8, 2, false, -1.0)
tno_case("tno_causal", 6, 4, true)
tno_case("tno_bidirectional", 5, 3, false)
layer_case("layer", 6)
train_case("train", 5)
causal_response_case("fd_causal", 6, 2)
response_case("fd_bidirectional", 5, 3)
ski_case("ski", 9, 2, 7, { r = 4, m = 4, lam = 0.75, inducing = "n-1", zero = "plus" })
ski_case("ski_span", 7, 3, 5, { r = 5, m = 3, lam = 0.875, inducing = "n", zero = "mean" })
ski_case("ski_literal", 6, 2, 9, { r = 2, m = 1, lam = 0.9, inducing = "n-1", zero = "literal" })
table.sort(entries, function(a, b) return a[1] < b[1] end)
core.h5_write(assert(arg[1], "which file?"), entries, attrs)
