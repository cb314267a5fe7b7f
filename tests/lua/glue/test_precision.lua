-- test_precision.lua: what "bf16" means for products and their gradients, and that it ends where it
-- should.
local core = require "toeplab.core"
local t = require "harness"
local tl = require "toeplab"
local trials = require "trials"

-- x rounded to bf16, by the product of each number and 1.
local function rounded(x)
  return core.precision("bf16", core.matmul, x:reshape(-1, 1), core.ones(1, 1)):reshape(x:shape())
end

local function random(seed, ...)
  local x = core.zeros(...)
  return core.stream(seed, "precision"):normal(x, 0, 1)
end

t.test("it is set, asked for and scoped", function()
  t.eq(core.precision(), "float32")
  t.eq(core.precisions(), { "float32", "bf16" })
  t.eq(core.precision "bf16", "float32")
  t.eq(core.precision "float32", "bf16")
  local function inside(a, b) return core.precision(), a + b end
  t.eq({ tl.precision("bf16", inside, 1, 2) }, { "bf16", 3 })
  t.eq(core.precision(), "float32")
  t.raises(function() core.precision("bf16", error, "out of luck") end, "out of luck")
  t.eq(core.precision(), "float32")
  t.raises(core.precision, "invalid option 'half'", "half")
  t.raises(core.precision, "function expected", "bf16", 7)
  t.raises(core.precision, "device cpu has float32 and bf16 only", "tf32")
  t.raises(core.precision, "tf32 needs an NVIDIA GPU", "tf32", core.ones, 1)
  t.eq(core.precision(), "float32")
end)

t.test("factors are rounded, sums are not", function()
  local a, b = random(1, 5, 300), random(2, 300, 7)
  local exact, low = core.matmul(a, b), core.precision("bf16", core.matmul, a, b)
  t.eq(low, core.matmul(rounded(a), rounded(b)), 1e-4)
  local off = (low - exact):abs():amax():item()
  t.ok(off > 1e-3 and off < 1, ("rounding shows: %g"):format(off))
  t.eq(rounded(core.tensor { 1 + 2^-8, 1 + 3 * 2^-8, -1 - 2^-9 }), core.tensor { 1, 1 + 2^-6, -1 })
end)

t.test("products of several matrices too", function()
  local a, b = random(1, 4, 6, 50), random(2, 4, 9, 50)
  t.eq(core.precision("bf16", core.matmul, a, b, false, true),
    core.matmul(rounded(a), rounded(b), false, true), 1e-4)
end)

-- The gradients of sum(dy f(...)) for f = linear by their definition, of rounded factors.
t.test("gradients of linear", function()
  local x, w, bias = random(1, 2, 20, 33):require_grad(), random(2, 17, 33):require_grad(),
    random(3, 17):require_grad()
  local dy = random(4, 2, 20, 17)
  core.precision("bf16", function() core.linear(x, w, bias):backward(dy) end)
  local rows = rounded(dy):reshape(-1, 17)
  t.eq(x:grad():reshape(-1, 33), core.no_grad(core.matmul, rows, rounded(w)), 1e-4)
  t.eq(w:grad(), core.no_grad(core.matmul, rows, rounded(x:reshape(-1, 33)), true), 1e-4)
  t.eq(bias:grad(), dy:reshape(-1, 17):sum(1), 1e-4)
end)

t.test("linear cross entropy is the cross entropy of such logits", function()
  local x, w = random(1, 40, 30), random(2, 50, 30)
  local ids = {}
  for i = 1, 40 do ids[i] = i end
  local targets = core.ids(ids)
  local loss = core.precision("bf16", core.linear_cross_entropy, x, w, nil, targets):item()
  t.eq(loss, core.cross_entropy(core.linear(rounded(x), rounded(w)), targets):item(), 1e-5)
  t.ok(math.abs(loss - core.linear_cross_entropy(x, w, nil, targets):item()) > 1e-6, "it differs")
end)

t.test("the operator is not touched by it", function()
  local x, o = random(1, 1, 64, 3), core.tno("fft", 64, 3, true)
  local coef = random(2, 64, 3)
  t.eq(core.precision("bf16", o.apply, o, coef, {}, x), o:apply(coef, {}, x))
  o:close()
end)

t.test("gradients are of the precision of their product", function()
  local x, w, dy = random(1, 5, 8):require_grad(), random(2, 6, 8), random(3, 5, 6)
  local y = core.precision("bf16", core.linear, x, w)
  y:backward(dy)
  t.eq(x:grad(), core.matmul(rounded(dy), rounded(w)), 1e-5)
  t.eq(core.precision(), "float32")
  x:set_grad(nil)
  y = core.linear(x, w)
  core.precision("bf16", y.backward, y, dy)
  t.eq(x:grad(), core.matmul(dy, w), 1e-6)
end)

-- The result of a TNO under a precision, and the gradients of its parameters.
local function results(kind, o)
  tl.seed(2)
  local tno, all = tl.nn.TNO(4, o), {}
  core.precision(kind, function()
    local y = tno(random(7, 2, 30, 4))
    all[1] = y:totable()
    y:backward(random(8, 2, 30, 4))
  end)
  for _, p in ipairs(tno:parameters()) do
    local dp = p.tensor:grad()
    all[#all + 1] = dp and dp:totable()
  end
  return all
end

t.test("encoders are float32, and so are their gradients", function()
  for _, o in ipairs { { rpe = {} }, { rpe = { norm = "scalenorm" } }, { encoder = "ssm" } } do
    t.eq(results("bf16", o), results("float32", o))
  end
  local rpe = tl.nn.RPE(4, { norm = "scalenorm" }) -- which is one operator after another
  t.eq(core.precision("bf16", rpe, core.range(0, 9), 10), rpe(core.range(0, 9), 10))
end)

-- The loss after 100 steps of the same seed; its last ten steps' mean.
local function trained(kind)
  tl.seed(3)
  local model = tl.models.tnn_lm(17, { layers = 2, dim = 32, rpe_dim = 16, rpe_layers = 2 })
  local opt = tl.optim.adam(model, { lr = 3e-3 })
  local stream, last = core.stream(5, "text"), 0.0
  return core.precision(kind, function()
    for step = 1, 100 do
      local rows = {}
      for i = 1, 4 do -- each token is the one before it plus 1 or 2
        local row, at = {}, stream:below(17)
        for j = 1, 33 do
          row[j], at = at, (at + 1 + stream:below(2)) % 17
        end
        rows[i] = row
      end
      local loss = tl.train.lm_step(model, opt, core.ids(rows))
      if step > 90 then last = last + loss / 10 end
    end
    return last
  end)
end

t.test("a hundred steps of training end as float32's do, within 2 %", function()
  local full, low = trained "float32", trained "bf16"
  t.ok(full < 1.2, ("it learns: %g nats"):format(full))
  t.ok(full ~= low, "bf16 was used")
  t.eq(low, full, 0.02 * full)
end)

-- ---- As a key of experiments --------------------------------------------------------------------

local script = [[
local tl = require "toeplab"
return tl.experiment "x" {
  fixed = { %s },
  grid = { size = { 1, 2 }%s },
  trial = function(t, c)
    t:log { loss = c.size, low = tl.precision() == "bf16" and 1 or 0 }
  end,
}]]

local function run(folder, fixed, grid, words)
  return trials.run(folder, script:format(fixed, grid), words)
end

-- "1 0, 1 1": the configurations' precision beside what ran, over the trials.
local function used(folder)
  local list = {}
  for i, row in ipairs(trials.query(folder, [[SELECT json_extract(t.config, '$.precision') AS said,
      m.value AS low FROM v_trials t JOIN v_metrics m ON m.trial = t.id AND m.name = 'low'
      ORDER BY said, low]])) do
    list[i] = ("%s %d"):format(row.said, row.low)
  end
  return table.concat(list, ", ")
end

t.test("an experiment need not know it", function()
  t.in_folder(function(folder)
    t.eq(run(folder, "", ""), 0)
    t.eq(used(folder), "float32 0, float32 0")
    t.eq(run(folder, "", "", { "precision=bf16" }), 0)
    t.eq(used(folder), "bf16 1, bf16 1, float32 0, float32 0")
  end)
end)

t.test("an experiment may fix it or sweep it", function()
  t.in_folder(function(folder)
    t.eq(run(folder, "precision = 'bf16'", ""), 0)
    t.eq(used(folder), "bf16 1, bf16 1")
    t.eq(run(folder, "precision = 'bf16'", "", { "precision=float32" }), 0)
    t.eq(used(folder), "bf16 1, bf16 1, float32 0, float32 0")
  end)
  t.in_folder(function(folder)
    t.eq(run(folder, "", ", precision = { 'float32', 'bf16' }"), 0)
    t.eq(used(folder), "bf16 1, bf16 1, float32 0, float32 0")
  end)
end)

t.test("another word is refused before anything runs", function()
  t.in_folder(function(folder)
    local code, said = run(folder, "", "", { "precision=bf17" })
    t.eq(code, 2)
    t.ok(said:find("no precision 'bf17'; did you mean 'bf16'", 1, true), said)
    code, said = run(folder, "precision = 'tf32'", "")
    t.eq(code, 2)
    t.ok(said:find("x.lua:3: precision tf32: device cpu supports only float32 and bf16", 1, true),
      said)
    code, said = run(folder, "precision = 16", "")
    t.eq(code, 2)
    t.ok(said:find("x.lua:3: there is no precision '16'", 1, true), said)
  end)
end)

t.done()
