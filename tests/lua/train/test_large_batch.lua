-- test_large_batch.lua: the optimisers LAMB and Muon beside their formulas, written with loops.
local t = require "harness"
local core = require "toeplab.core"
local muon = require "toeplab.train.muon"
local nn = require "toeplab.nn"
local optim = require "toeplab.train.optim"
local update = require "toeplab.train.update"

local Point = nn.class("Point", {})
function Point:build()
  self.map, self.embed = nn.Linear(3, 2), nn.Embedding(4, 3)
end

-- Makes a model with given values, and the gradients of each update.
local function model_of(seed)
  local model, stream = Point {}, core.stream(seed, "large batch")
  core.no_grad(function()
    for _, p in ipairs(model:parameters()) do stream:normal(p.tensor, 0, 0.5) end
  end)
  return model, function()
    for _, p in ipairs(model:parameters()) do
      p.tensor:set_grad(stream:normal(core.zeros(p.tensor:shape())))
    end
  end
end

local function flat(tensor) return tensor:reshape(tensor:numel()):totable() end

local function norm(list)
  local sum = 0.0
  for _, x in ipairs(list) do sum = sum + x * x end
  return math.sqrt(sum)
end

-- Adam's moments and direction after an update of lists p and g; s: its state.
local function adam(s, g, step, o)
  local direction = {}
  for i, x in ipairs(g) do
    s.m[i] = o.betas[1] * (s.m[i] or 0) + (1 - o.betas[1]) * x
    s.v[i] = o.betas[2] * (s.v[i] or 0) + (1 - o.betas[2]) * x * x
    direction[i] = s.m[i] / (1 - o.betas[1] ^ step)
      / (math.sqrt(s.v[i] / (1 - o.betas[2] ^ step)) + o.eps)
  end
  return direction
end

local function lamb_rule(s, p, g, step, o)
  local r, new = adam(s, g, step, o), {}
  for i, x in ipairs(p) do r[i] = r[i] + o.weight_decay * x end
  local ratio = norm(p) > 0 and norm(r) > 0 and norm(p) / norm(r) or 1
  for i, x in ipairs(p) do new[i] = x - o.lr * ratio * r[i] end
  return new
end

local function times(a, b, m, k, n) -- [m,k] x [k,n], as lists of rows
  local c = {}
  for i = 1, m do
    c[i] = {}
    for j = 1, n do
      c[i][j] = 0.0
      for l = 1, k do c[i][j] = c[i][j] + a[i][l] * b[l][j] end
    end
  end
  return c
end

-- The update of the map [2,3] by Muon.
local function muon_rule(s, p, g, _, o)
  local x, new, size = { {}, {} }, {}, nil
  for i, v in ipairs(g) do s.m[i] = o.momentum * (s.m[i] or 0) + v end
  for i, v in ipairs(g) do x[(i - 1) // 3 + 1][(i - 1) % 3 + 1] = v + o.momentum * s.m[i] end
  size = norm { norm(x[1]), norm(x[2]) } + 1e-7
  for _, row in ipairs(x) do
    for j in ipairs(row) do row[j] = row[j] / size end
  end
  for _ = 1, 5 do
    local turned = {}
    for j = 1, 3 do turned[j] = { x[1][j], x[2][j] } end
    local a = times(x, turned, 2, 3, 2)
    local square, b = times(a, a, 2, 2, 2), { {}, {} }
    for i = 1, 2 do
      for j = 1, 2 do b[i][j] = -4.7750 * a[i][j] + 2.0315 * square[i][j] end
    end
    local more = times(b, x, 2, 2, 3)
    for i = 1, 2 do
      for j = 1, 3 do x[i][j] = 3.4445 * x[i][j] + more[i][j] end
    end
  end
  for i, v in ipairs(p) do
    local direction = x[(i - 1) // 3 + 1][(i - 1) % 3 + 1]
    new[i] = v - o.lr * (0.2 * math.sqrt(3) * direction + o.weight_decay * v)
  end
  return new
end

local function adamw_rule(s, p, g, step, o)
  local r, new = adam(s, g, step, o), {}
  for i, x in ipairs(p) do new[i] = x - o.lr * (r[i] + o.weight_decay * x) end
  return new
end

local function rule_of(kind, name)
  if kind == "lamb" then return lamb_rule end
  return name == "map.weight" and muon_rule or adamw_rule
end

for _, kind in ipairs { "lamb", "muon" } do
  t.test(kind .. " makes the updates of its formula", function()
    local o = { lr = 0.03, weight_decay = 0.1, betas = { 0.9, 0.95 }, eps = 1e-6 }
    local model, draw = model_of(3)
    local opt, states, want = optim[kind](model, o), {}, {}
    o.momentum = 0.95
    for _, p in ipairs(model:parameters()) do
      states[p.name], want[p.name] = { m = {}, v = {} }, flat(p.tensor)
    end
    for step = 1, 4 do
      draw()
      for _, p in ipairs(model:parameters()) do
        want[p.name] = rule_of(kind, p.name)(states[p.name], want[p.name], flat(p.tensor:grad()),
          step, o)
      end
      opt:step()
      for _, p in ipairs(model:parameters()) do t.eq(flat(p.tensor), want[p.name], 2e-5) end
    end
  end)

  t.test(kind .. " goes on from its state as if it had not stopped", function()
    local function train(from, to, model, draw, opt)
      for step = 1, to do
        draw()
        if step > from then opt:step() end
      end
      return model
    end
    local whole, draw = model_of(5)
    train(0, 4, whole, draw, optim[kind](whole, { lr = 0.03 }))
    local first, again = model_of(5)
    local opt = optim[kind](first, { lr = 0.03 })
    train(0, 2, first, again, opt)
    local rest, more = model_of(5)
    for i, p in ipairs(rest:parameters()) do
      core.no_grad(function() p.tensor:copy(first:parameters()[i].tensor) end)
    end
    local other = optim[kind](rest, { lr = 0.03 })
    other:load(opt:state())
    train(2, 4, rest, more, other)
    for i, p in ipairs(rest:parameters()) do
      t.eq(core.sha256(p.tensor), core.sha256(whole:parameters()[i].tensor))
    end
  end)

  t.test(kind .. " leaves parameters without a gradient as they are", function()
    local model, draw = model_of(7)
    local opt = optim[kind](model, { lr = 0.1 })
    draw()
    model.embed.weight:set_grad(nil)
    local before = core.sha256(model.embed.weight)
    opt:step()
    t.eq(core.sha256(model.embed.weight), before)
  end)
end

t.test("parameters and gradients of zeros have finite updates", function()
  for _, kind in ipairs { "lamb", "muon" } do
    local model = model_of(9)
    local opt = optim[kind](model, { lr = 0.1 })
    for _, p in ipairs(model:parameters()) do
      core.no_grad(function() p.tensor:fill(0) end)
      p.tensor:set_grad(core.zeros(p.tensor:shape()))
    end
    opt:step()
    for _, p in ipairs(model:parameters()) do
      for _, x in ipairs(flat(p.tensor)) do t.eq(x, 0.0) end
    end
  end
end)

t.test("an orthogonal momentum has singular values near 1", function()
  for _, shape in ipairs { { 3, 16 }, { 16, 3 }, { 1, 5 }, { 1, 1 } } do
    local x = core.stream(1, "muon"):normal(core.zeros(shape))
    local _, values = core.svd(muon.orthogonal(x))
    for _, s in ipairs(flat(values)) do t.ok(s > 0.65 and s < 1.25, s) end
  end
end)

t.test("a traceback of an error in an update has the functions that led to it", function()
  local model = nn.Linear(1, 1)
  local function breaks() error "here" end
  local ok, trace = xpcall(update.make, debug.traceback, { model = model, list = { 1 },
    counts = { 1 }, opt = optim.sgd(model, { lr = 0.1 }), loss_of = function() breaks() end })
  t.eq(ok, false)
  t.holds(trace, "here", "in upvalue 'breaks'")
end)

t.done()
