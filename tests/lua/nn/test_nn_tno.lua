-- test_nn_tno.lua -- TNOs in one and two dimensions over every backend: truncation, warnings, what
-- backends agree on, and that causal models see no future.

local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

local has = {}
for _, b in ipairs(core.backends()) do has[b.name] = true end

local function largest(x) return core.abs(x):amax():item() end

-- ---- Truncation, warnings, lengths --------------------------------------------------------------

test("max_lag: zeros beyond it, where the encoder is not evaluated", function()
  local asked
  local function encoder(points)
    asked = points:totable()
    return core.affine(core.ones(points:dim(1), 1), 3, 0)
  end
  local function coefficients(causal, n, more)
    local o = { encoder = encoder, causal = causal, decay = 0.5, max_lag = 3, backend = "fft" }
    for name, value in pairs(more or {}) do o[name] = value end
    return nn.TNO(1, o):coefficients(n):reshape(-1):totable()
  end
  eq(coefficients(true, 5), { 3, 1.5, 0.75, 0, 0 })
  eq(asked, { 0, 1, 2 })
  eq(coefficients(false, 5), { 0, 0, 0.75, 1.5, 3, 1.5, 0.75, 0, 0 })
  eq(asked, { -2, -1, 0, 1, 2 })
  eq(coefficients(true, 2), { 3, 1.5 })
  eq(coefficients(false, 3), { 0.75, 1.5, 3, 1.5, 0.75 })
  eq(coefficients(true, 1), { 3 })
  eq(coefficients(true, 4, { act = "exp", decay = "none" })[4], 0)
  for _, backend in ipairs { "rac", "auto" } do -- told of those lags alone
    local short = { backend = backend }
    eq(coefficients(true, 5, short), { 3, 1.5, 0.75 })
    eq(coefficients(false, 5, short), { 0.75, 1.5, 3, 1.5, 0.75 })
    eq(asked, { -2, -1, 0, 1, 2 })
    eq(coefficients(true, 2, short), { 3, 1.5 })
  end
end)

test("max_lag with every encoder: the coefficients of the same encoder, cut", function()
  tl.seed(1)
  for _, name in ipairs { "mlp", "lra", "table", "piecewise", "ssm", "conv" } do
    for _, causal in ipairs { true, false } do
      local o = { encoder = name, causal = causal, table_length = 5 }
      local whole = nn.TNO(2, o)
      o.max_lag = 3
      local cut = nn.TNO(2, o):load(whole:state())
      for _, n in ipairs { 1, 2, 3, 4, 9 } do
        local a, b = whole:dense(n), cut:dense(n)
        for i = 1, n do
          for j = 1, n do
            eq(b:get(2, i, j), math.abs(i - j) < 3 and a:get(2, i, j) or 0, 1e-5)
          end
        end
      end
      core.tape_clear()
    end
  end
end)

test("a backend's prepared coefficients change no bit, and are freed with them", function()
  local o = core.tno("rac", 70, 20, false)
  local coef, x = random(139, 20), random(3, 70, 20)
  local y, kept = o:apply(coef, nil, x, true)
  eq(kept:type(), "float32")
  local again, same = o:apply(coef:fill(0), nil, x, kept)
  ok(same == kept)
  eq({ largest((again - y):reshape(-1)), largest((o:apply(coef, nil, x)):reshape(-1)) }, { 0, 0 })
  eq(select("#", o:apply(coef, nil, x)), 1)
  eq(select(2, core.tno("naive", 70, 20, false):apply(coef, nil, x, true)), nil)
  raises(o.apply, "the cache is %[139,20%], backend 'rac' needs %[", o, coef, nil, x, coef)
  local tno = nn.TNO(4, { rpe = { hidden = 4 } })
  local z = random(1, 50, 4)
  local want = core.no_grad(tno, z)
  nn.cached(core.no_grad, function()
    for _ = 1, 3 do eq(largest((tno(z) - want):reshape(-1)), 0) end
    eq(tno:coefficients(50):shape(), { 50, 4 })
  end)
end)

-- Calls fn while core.tno makes of every operator what change(operator, n) says.
local function with_operator(change, fn)
  local tno = core.tno
  core.tno = function(backend, n, ...)
    local o = tno(backend, n, ...)
    local fake = {
      width = function() return o:width() end, domain = function() return o:domain() end,
      points = function() return o:points() end, params = function() return o:params() end,
      apply = function(_, ...) return o:apply(...) end, warning = function() end,
    }
    return change(fake, n)
  end
  local fine, why = pcall(fn)
  core.tno = tno
  if not fine then error(why, 0) end
end

test("a backend whose parameters depend on the length is a clean error", function()
  with_operator(function(o, n)
    o.params = function() return { { name = "taps", shape = { n, 3 }, init = "ones" } } end
    return o
  end, function()
    local fine, e = pcall(nn.TNO(3), core.ones(1, 7, 3))
    eq({ fine, e.status }, { false, "EBACKEND" })
    ok(e.message:find("takes 1 numbers per channel by lag, taps %[7,3%] at length 7, but took "
      .. ".*taps %[2,3%]"), e.message)
  end)
end)

test("a backend's warning is printed once, whatever layers and lengths follow", function()
  local said, before = {}, warn
  rawset(_G, "warn", function(...) said[#said + 1] = table.concat { ... } end)
  local fine, why = pcall(with_operator, function(o, n)
    o.warning = function() return n > 2 and "lambda is small at " .. n or nil end
    return o
  end, function()
    for _ = 1, 3 do
      local tno = nn.TNO(5)
      for _, n in ipairs { 5, 6 } do tno(core.ones(1, n, 5)) end
    end
  end)
  rawset(_G, "warn", before)
  ok(fine, why)
  eq(said, { "toeplab: lambda is small at 5" })
end)

-- ---- Two dimensions -----------------------------------------------------------------------------

local function grid(form, more)
  local tno = { causal = false, decay = 0.9, rpe = { hidden = 4, layers = 0 }, backend = "matrix" }
  for name, value in pairs(more or {}) do tno[name] = value end
  return nn.TNO2d(2, { form = form, tno = tno })
end

test("gradients flow through the matrices, as through the operator", function()
  tl.seed(4)
  local x = random(3, 5, 2)
  for _, more in ipairs { { backend = "naive" }, { backend = "rac", causal = true },
    { backend = "rac" }, { backend = "matrix" }, { backend = "fd", decay = "none" },
    { backend = "ski", decay = "none", backend_options = { inducing = 3, taps = 3 } } } do
    local o = { causal = false, decay = "learnable", encoder = "table", table_length = 8 }
    if more.backend == "ski" then o.encoder = "piecewise" end
    for name, value in pairs(more) do o[name] = value end
    local tno, of = nn.TNO(2, o), {}
    local function by_matrix()
      return core.matmul(tno:dense(5), x:permute { 3, 2, 1 }):permute { 3, 2, 1 }
    end
    if not o.causal then -- else the coefficients of later positions have no gradient
      slopes.check(function() return slopes.probe(by_matrix()) end, slopes.trained(tno))
    end
    for i, apply in ipairs { by_matrix, function() return tno(x) end } do
      for _, p in ipairs(tno:parameters()) do p.tensor:set_grad(nil) end
      slopes.probe(apply()):backward()
      of[i] = {}
      for _, p in ipairs(tno:parameters()) do
        local g = p.tensor:grad()
        of[i][p.name] = g and g:totable()
      end
    end
    ok(next(of[1]))
    eq(of[1], of[2], 1e-4)
    eq(core.no_grad(tno.dense, tno, 5):requires_grad(), false)
  end
end)

test("2-D: sum and product agree with the matrices of the axes", function()
  tl.seed(2)
  local h, w = 3, 4
  local kinds = { {}, { backend = "naive" }, { backend = "rac" },
    { backend = "fd", decay = "none" }, { backend = "ski", decay = "none", encoder = "piecewise",
      rpe = {}, backend_options = { inducing = 3, taps = 3 } } }
  for case = 1, 2 * #kinds do
    local form, more = case % 2 == 0 and "sum" or "product", kinds[(case + 1) // 2]
    local two = grid(form, more)
    local x = random(2, h * w, 2)
    local y = core.no_grad(two.forward, two, x, h, w)
    local function matrices(tno, n)
      local dense = tno:dense(n)
      return core.concat({ dense, dense }, 1):reshape(2, 2, n, n)
    end
    local image = x:permute({ 1, 3, 2 }):reshape(2, 2, h, w)
    local down, along = matrices(two.along_height, h), matrices(two.along_width, w)
    local by_height = core.matmul(down, image)
    local function by_width(z) return core.matmul(z, along, false, true) end
    local want = form == "product" and core.affine(by_width(by_height), 2, 0)
      or by_height + by_width(image)
    eq(y, want:reshape(2, 2, h * w):permute { 1, 3, 2 }, 2e-5)
  end
end)

test("2-D: a chain is half a product; one operator may serve both axes", function()
  tl.seed(5)
  for _, form in ipairs { "sum", "product", "chain" } do
    local o = { form = form, tno = grid(form).opt.tno, grid = { 3, 4 } }
    local two = nn.TNO2d(2, o)
    o.shared = true
    local one = nn.TNO2d(2, o)
    local state = {}
    for name, x in pairs(one:state()) do
      state[name:gsub("^along", "along_height")] = x
      state[name:gsub("^along", "along_width")] = x
    end
    two:load(state)
    local x = random(2, 12, 2)
    eq(one(x), two(x), 1e-6)
    local all = one:count()
    eq(2 * all, (two:count()))
    eq({ one:cost(12) }, { two:cost(12) })
    o.tno = { causal = false, rpe = { hidden = 3, layers = 0, act = "silu", norm = "none" } }
    one = nn.TNO2d(2, o)
    slopes.check(function() return slopes.probe(one(x)) end, slopes.trained(one), 3e-2)
    if form == "product" then
      local chain = nn.TNO2d(2, { form = "chain", tno = two.opt.tno }):load(two:state())
      eq(core.affine(chain(x, 3, 4), 2, 0), two(x, 3, 4), 1e-6)
    end
  end
  raises(nn.TNO2d, "form", 2, { form = "difference" })
end)

test("2-D: the operators commute; the released sum of both orders is the product", function()
  tl.seed(3)
  for _, backend in ipairs { "naive", "matrix", "fft" } do
    local h, w = 5, 3
    local two = grid("product", { backend = backend })
    local function only(axis, x)
      local other = two[axis == "along_height" and "along_width" or "along_height"]
      rawset(other, "forward", function(_, z) return z end)
      local y = core.no_grad(two.forward, two, x, h, w)
      rawset(other, "forward", nil)
      return core.affine(y, 0.5, 0)
    end
    local x = random(1, h * w, 2)
    local a = only("along_height", only("along_width", x))
    local b = only("along_width", only("along_height", x))
    eq(largest(a - b) / largest(a), 0, 1e-5)
    eq(core.no_grad(two.forward, two, x, h, w), a + b, 1e-5 * largest(a) * 4)
  end
end)

test("2-D: gradients agree with differences, and wrong grids are named", function()
  tl.seed(4)
  for _, form in ipairs { "sum", "product" } do
    local gtu = nn.GTU(2, { expand = 1, grid = { 2, 3 }, grid_form = form, dropout = 0.5,
      tno = { causal = false, rpe = { hidden = 3, layers = 0, act = "silu", norm = "layernorm" } },
    }):eval()
    local x = random(1, 6, 2)
    slopes.check(function() return slopes.probe(gtu(x)) end, slopes.trained(gtu))
  end
  raises(grid "sum", "not %[b,6,2%]: a grid of 2 x 3", core.ones(1, 5, 2), 2, 3)
  raises(grid "sum", "give height and width", core.ones(1, 5, 2))
  raises(grid "sum", "the grid must be two integers", core.ones(1, 6, 2), -2, -3)
  raises(grid "sum", "the grid must be two integers", core.ones(1, 6, 2), 1.5, 4)
  raises(nn.TNO2d, "must be two integers {height, width}", 2, { grid = { 3 } })
  raises(nn.GTU, "must be two integers", 2, { grid = { 3, 0 } })
end)

test("2-D: sizes of the published image models", function()
  local stack, sizes = require "toeplab.models.stack", require "toeplab.models.sizes"
  for dim, want in pairs { [192] = 6422056, [384] = 23401192 } do
    local o = tl.options.check("blocks", stack.fields({}, {
      layers = 12, dim = dim, rpe_dim = 48, rpe_layers = 1, causal = false, decay = 0.9,
      grid = { 14, 14 },
    }))
    local patches, head = (768 + 1) * dim, (dim + 1) * 1000
    eq(nn.without_init(stack.layers, "test", o):count() + patches + head, want)
    eq(sizes.blocks(o) + patches + head, want)
  end
end)

-- ---- What backends agree on ---------------------------------------------------------------------

test("naive, matrix and fft: a model from one seed has one loss for 100 steps", function()
  local function losses(backend)
    tl.seed(5)
    local model = tl.models.tnn_lm {
      vocab = 9, layers = 2, dim = 8, expand = 2, rpe_dim = 8, rpe_layers = 1, backend = backend,
    }
    local opt = tl.optim.adam(model, { lr = 3e-3, clip = 1 })
    local stream, list = core.stream(5, "tokens"), {}
    for step = 1, 100 do
      local ids = {}
      for row = 1, 4 do
        ids[row] = { stream:below(9) }
        for i = 2, 17 do ids[row][i] = (ids[row][i - 1] * 2 + stream:below(2)) % 9 end
      end
      list[step] = tl.train.lm_step(model, opt, core.ids(ids))
    end
    return list
  end
  local naive = losses "naive"
  ok(naive[100] < 0.75 * naive[1], ("from %.3f to %.3f"):format(naive[1], naive[100]))
  for _, backend in ipairs { "matrix", "fft" } do
    for step, loss in ipairs(losses(backend)) do eq(loss / naive[step], 1, 1e-4) end
  end
end)

-- The response of coefficients t [p,d] of the lags first .. at frequencies omega: [f,d] real parts,
-- and beside them the imaginary ones unless causal.
local function response(coef, first, omega, causal)
  local lags = core.range(first, first + coef:dim(1) - 1)
  local angle = omega:reshape(-1, 1) * lags:reshape(1, -1)
  local re = core.matmul(core.cos(angle), coef)
  return causal and re or core.concat({ re, -core.matmul(core.sin(angle), coef) }, 2)
end

test("fft and fd agree for the same kernel", function()
  tl.seed(6)
  for _, causal in ipairs { true, false } do
    for _, n in ipairs { 1, 2, 9, 32 } do
      local first = causal and 0 or 1 - n
      local coef = random(n - first, 3)
      local function encoder(points, _, domain)
        return domain == "lag" and coef or response(coef, first, points, causal)
      end
      local x, y = random(2, n, 3), {}
      for _, backend in ipairs { "fft", "fd" } do
        local tno = nn.TNO(3, { encoder = encoder, backend = backend, causal = causal,
          decay = "none" })
        y[backend] = tno(x)
      end
      eq(largest(y.fft - y.fd) / largest(y.fft), 0, 2e-5)
    end
  end
end)

-- Those that convolve by transforms see the future to rounding; of the others nothing may come.
local by_transform = { fft = true, rac = true, fd = true }
local options = { fd = { decay = "none" }, ski = { decay = "none", encoder = "piecewise" } }

test("causal models see no future: exactly, or to rounding where a transform is used", function()
  for name in pairs(has) do
    tl.seed(7)
    local o = { vocab = 11, layers = 2, dim = 8, expand = 2, rpe_dim = 8, rpe_layers = 1,
      backend = name }
    for key, value in pairs(options[name] or {}) do o[key] = value end
    local fine, model = pcall(tl.models.tnn_lm, o)
    if fine then
      model:eval()
      local ids = {}
      for i = 1, 24 do ids[i] = i * 7 % 11 end
      local a = core.no_grad(model.forward, model, core.ids { ids })
      for i = 14, 24 do ids[i] = (ids[i] + i) % 11 end
      local b = core.no_grad(model.forward, model, core.ids { ids })
      local leak = largest((a - b):narrow(2, 1, 13))
      eq(leak, 0, by_transform[name] and 1e-5 or 0.0)
      ok(largest((a - b):narrow(2, 14, 11)) > 1e-2, name .. ": the tokens themselves must matter")
    else
      ok(type(model) == "table" and model.status == "EBACKEND", tostring(model))
    end
  end
end)

test("causal operators: the matrix is 0 above the diagonal", function()
  tl.seed(8)
  for name in pairs(has) do
    local o = { backend = name, causal = true }
    for key, value in pairs(options[name] or {}) do o[key] = value end
    local fine, tno = pcall(nn.TNO, 2, o)
    if fine then
      local dense, n = tno:dense(12):totable(), 12
      for c = 1, 2 do
        for i = 1, n do
          for j = i + 1, n do eq(dense[c][i][j], 0.0) end
          ok(dense[c][i][i] ~= 0, name)
        end
      end
    end
  end
end)

-- ---- Sizes --------------------------------------------------------------------------------------

test("the model of SKI's preset: a table and taps instead of the network", function()
  local ski, n = tl.models.describe("tnn_mlm", tl.models.preset "blm-ski-12"):count(), 12 * 2304
  local network = 128 + 6 * 65 * 64 + 2304 * 65
  eq(ski, 126400089 - 12 * (network + 2304) + n * (2 * 32 + 17))
end)

local kinds = { -- options of a model, and the backend that it needs
  { { encoder = "lra" } }, { { encoder = "ssm", mixer_norm = "rmsnorm" } },
  { { encoder = "conv", causal = false, encoder_options = { taps = 3 } } },
  { { encoder = "piecewise", encoder_options = { nodes = 17 } } }, { { max_lag = 16 } },
  { { encoder = "ssm", causal = false, encoder_options = { state = 8, skip = false } } },
  { { causal = false, grid = { 8, 8 }, layout = "B", inner_norm = "layernorm" } },
  { { causal = false, grid = { 4, 16 }, grid_form = "product", encoder = "lra" } },
  { { backend = "fd", decay = "none" }, "fd" },
  { { backend = "fd", decay = "none", rpe_input = "cos", causal = false }, "fd" },
  { { backend = "fd", decay = "none", encoder = "table", encoder_options = { dc = true } }, "fd" },
  { { backend = "ski", decay = "none", encoder = "piecewise", causal = false }, "ski" },
  { { backend = "ski", decay = "none", encoder = "piecewise",
    backend_options = { inducing = 8, taps = 5 } }, "ski" },
}

test("parameters and memory are known from the options, whatever encoder and backend", function()
  local sizes = require "toeplab.models.sizes"
  for _, case in ipairs(kinds) do
    if not case[2] or has[case[2]] then
      tl.seed(9)
      local o = { vocab = 11, layers = 3, dim = 48, expand = 2, rpe_dim = 8, rpe_layers = 1 }
      for name, value in pairs(case[1]) do o[name] = value end
      local model = tl.models.tnn_lm(o)
      eq(sizes.parameters(model.opt), (model:count()))
      local opt, rows = tl.optim.adam(model), {}
      for i = 1, 8 do
        rows[i] = {}
        for j = 1, 65 do rows[i][j] = i * j % 11 end
      end
      tl.train.lm_step(model, opt, core.ids(rows))
      collectgarbage()
      core.memory_reset_peak()
      tl.train.lm_step(model, opt, core.ids(rows))
      local ratio = core.memory().peak / tl.models.estimate(model, 64, 8).total_bytes
      ok(ratio > 0.7 and ratio < 1.3, ("%s, %s: measured over estimated %.2f"):format(
        tostring(o.encoder), tostring(o.backend), ratio))
    end
  end
end, "cpu")

test("any length at evaluation, for every encoder and backend", function()
  for _, case in ipairs(kinds) do
    if (not case[2] or has[case[2]]) and not case[1].grid then
      tl.seed(10)
      local o = { vocab = 5, layers = 1, dim = 4, expand = 2, rpe_dim = 4, rpe_layers = 1 }
      for name, value in pairs(case[1]) do o[name] = value end
      local model = tl.models.tnn_lm(o)
      for _, n in ipairs { 1, 2, 3, 17, 64 } do
        local ids = {}
        for i = 1, n do ids[i] = i % 5 end
        local y = core.no_grad(model.forward, model, core.ids { ids })
        eq(y:shape(), { 1, n, 5 })
        ok(largest(y) < 1e4, "the logits must be finite")
      end
    end
  end
end)

-- What docs/reference/operators.md says of later tokens.
test("no later token reaches an output of a backend that is exactly causal", function()
  local n, d = 600, 4
  for _, case in ipairs { { "naive", "mlp", 0 / 0 }, { "ski", "piecewise", 0 / 0 },
    { "matrix", "mlp", 1e30 } } do
    local backend, encoder, last = table.unpack(case)
    local tno = nn.TNO(d, { backend = backend, encoder = encoder, causal = true, decay = "none",
      backend_options = backend == "ski" and { inducing = 16, taps = 8 } or nil })
    local x = random(1, n, d)
    local new = core.affine(core.ones(1, 1, d), last, 0)
    local other = core.concat({ x:narrow(2, 1, n - 1), new }, 2)
    local function before(input)
      return core.no_grad(tno.forward, tno, input):narrow(2, 1, n - 1):totable()
    end
    eq(before(other), before(x))
  end
end)

test("auto: names its choice, and is that backend", function()
  local tno = nn.TNO(3, { backend = "auto", encoder = "table" })
  ok(tno:brief():find("auto$"))
  local x = random(2, 40, 3)
  local y, name = tno(x), tno:chosen(40)
  ok(name == "rac" or name == "fft" or name == "matrix", name)
  ok(tno:brief():find(("auto (%s at 40)"):format(name), 1, true))
  local same = core.tno(name, 40, 3, true):apply(tno:coefficients(40), {}, x)
  eq(same:totable(), y:totable())
  raises(nn.TNO, "backend 'auto' has no option 'isa=avx2'", 3,
    { backend = "auto", backend_options = { isa = "avx2" } })
end)

t.done()
