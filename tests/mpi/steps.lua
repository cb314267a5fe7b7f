-- steps.lua: updates by several ranks against those of one process, which every rank makes too.
--   mpirun -n P toeplab lua tests/mpi/steps.lua [few]
-- few: some of the cases, for a device that is slow. On one, the ranks exchange by NCCL.
-- Rank 0 prints a line for each comparison; every rank ends with status 1 if one of its own failed.
local tl = require "toeplab"
local core = require "toeplab.core"
local ranks = require "toeplab.train.ranks"
local streams = require "toeplab.base.streams"

local world = core.ranks_open()
local p = world:size()
local failed = 0

local function check(name, good, why)
  if not good then failed = failed + 1 end
  if world:rank() == 0 or not good then
    print(("%s %s, rank %d of %d%s"):format(good and "ok" or "not ok", name, world:rank(), p,
      good and "" or ": " .. tostring(why)))
  end
end

local common = { layers = 2, dim = 8, expand = 2, glu_dim = 8, rpe_dim = 8, rpe_layers = 1 }

local function model_of(more)
  local o = {}
  for _, t in ipairs { common, more } do
    for key, value in pairs(t) do o[key] = value end
  end
  return tl.models.tnn_lm(31, o)
end

-- The micro batches of a step: four of one row, and at every third step a shorter one.
local function batch(step, n, rows)
  local stream, list = core.stream(step, "test.batch"), {}
  local function ids(b, length)
    local t = {}
    for r = 1, b do
      t[r] = {}
      for i = 1, length + 1 do t[r][i] = stream:below(31) end
    end
    return core.ids(t)
  end
  for i = 1, 4 do list[i] = ids(rows, n) end
  if step % 3 == 0 then list[5] = ids(1, n - 3) end
  return list
end

local function digest(model, opt)
  local words = {}
  local function add(tensors)
    local names = {}
    for name in pairs(tensors) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do words[#words + 1] = core.sha256(tensors[name]) end
  end
  add(model:state())
  add(opt:state().tensors)
  return core.sha256(table.concat(words))
end

-- Trains for `steps` updates; returns the digest and the loss after each, and the parameters.
-- separator: of documents that the model reads alone; nil: none.
local function train(more, team, steps, n, separator)
  local digests, losses, model = {}, {}, nil
  streams.with(3, ranks.with, team, function()
    model = model_of(more)
    local opt = tl.optim.adam(model, { lr = 1e-2, clip = 1.0 })
    for step = 1, steps do
      losses[step] = tl.train.lm_step(model, opt, batch(step, n, 1), nil, separator)
      digests[step] = digest(model, opt)
    end
    local own, all, trained = 0, 0, 0
    for _, t in ipairs(opt.moments.m) do own = own + t:numel() end
    for _, t in ipairs(opt.params) do trained = trained + t:numel() end
    local sum = core.tensor { own }
    if team then team.world:sum(sum) end
    all = sum:item()
    check("the states of the optimiser are shared out", not team or p == 1
      or all == trained and own < 0.6 * trained, ("%d of %d here"):format(own, trained))
  end)
  return digests, losses, model
end

-- ---- Rows of ranks: bit for bit -----------------------------------------------------------------

local cases = {
  { "rac", { backend = "rac" } }, { "fft", { backend = "fft" } },
  { "ski", { backend = "ski", decay = "none", backend_options = { inducing = 8, taps = 4 } } },
  { "fd", { backend = "fd", decay = "none", rpe_input = "cos" } },
  { "dropout", { dropout = 0.1 } }, { "untied", { tied = false } },
  { "learnable decay", { decay = "learnable" } }, { "table", { encoder = "table" } },
  { "recompute", { recompute = true, dropout = 0.1, norm = "batchnorm" } },
  { "packed documents", { dropout = 0.1, positions = "sinusoidal" }, separator = 7 },
  { "packed documents by length", { rpe_input = "normalised" }, separator = 7 },
}

local few = arg[1] == "few"
local data = ranks.team(world)
check("the GPUs exchange directly", core.device() == "cpu" or data.world:link() == "nccl"
  and data.column:link() == "nccl", data.world:link())
for _, case in ipairs(few and { cases[1], cases[5] } or cases) do
  local want, loss = train(case[2], nil, 3, 12, case.separator)
  local got, its = train(case[2], data, 3, 12, case.separator)
  for step = 1, 3 do
    local same = want[step] == got[step] and loss[step] == its[step]
    check(("%s, step %d"):format(case[1], step), same,
      ("loss %.9g, one process has %.9g"):format(its[step], loss[step]))
  end
end
data:close()

-- ---- Sequences cut among ranks ------------------------------------------------------------------

-- The largest difference between two models' parameters, over the largest parameter.
local function distance(a, b)
  local worst, most, own = 0.0, 0.0, b:state()
  for name, t in pairs(a:state()) do
    local d = t - own[name]
    worst = math.max(worst, core.abs(d):amax():item())
    most = math.max(most, core.abs(t):amax():item())
  end
  return worst / most
end

for _, case in ipairs(few and { cases[1] }
  or { cases[1], cases[2], cases[3], cases[4], cases[7], cases[8],
    { "recompute", { recompute = true } } }) do
  local team = ranks.team(world, p)
  local _, loss, one = train(case[2], nil, 3, 16)
  local _, its, cut = train(case[2], team, 3, 16)
  local d = core.no_grad(distance, one, cut)
  check(case[1] .. " cut", d < 2e-4, "parameters differ by " .. d)
  for step = 1, 3 do
    local near = math.abs(loss[step] - its[step]) < 1e-5
    check(("%s cut, loss of step %d"):format(case[1], step), near,
      ("%.9g, one process has %.9g"):format(its[step], loss[step]))
  end
  team:close()
end

if p == 4 and not few then -- both at once: rows do not change a bit
  local both = ranks.team(world, 2)
  local pair = world:split(world:rank() // 2)
  local alone = ranks.team(pair, 2)
  for _, case in ipairs { cases[1], cases[4] } do
    local want, got = train(case[2], alone, 3, 16), train(case[2], both, 3, 16)
    for step = 1, 3 do
      check(("%s, 2 x 2, step %d"):format(case[1], step), want[step] == got[step], "other bits")
    end
  end
  alone:close()
  both:close()
  pair:close()
end

-- ---- The operator itself, bit for bit -----------------------------------------------------------

local sequence = require "toeplab.nn.sequence"
local cosine = { input = "cos" }
for _, case in ipairs {
  { "rac", {} }, { "fft", {} },
  { "ski", { decay = "none", backend_options = { inducing = 8, taps = 4 } } },
  { "fd", { decay = "none", rpe = cosine } },
  { "fd", { decay = "none", rpe = cosine, causal = false } },
} do
  local n, d = 16 * p, 4 * p
  local o = { backend = case[1] }
  for key, value in pairs(case[2]) do o[key] = value end
  local tno = streams.with(5, tl.nn.TNO, d, o)
  local stream = core.stream(7, "test.x")
  local x = stream:normal(core.zeros(2, n, d), 0, 1)
  local dy = stream:normal(core.zeros(2, n, d), 0, 1)
  local m, first = n // p, world:rank() * (n // p) + 1
  local own, own_dy = x:narrow(2, first, m):require_grad(), dy:narrow(2, first, m)
  x:require_grad()
  local y = tno(x)
  y:backward(dy)
  local part = sequence.with(world, tno, own)
  part:backward(own_dy)
  local name = ("operator of %s%s"):format(case[1], o.causal == false and ", two-sided" or "")
  core.no_grad(function()
    check(name .. ": y", core.sha256(part) == core.sha256(y:narrow(2, first, m)), "other bits")
    check(name .. ": dx", core.sha256(own:grad()) == core.sha256(x:grad():narrow(2, first, m)),
      "other bits")
  end)
end

-- ---- A gradient from a pass inside another ------------------------------------------------------

local w = core.full({ 2 }, 3):require_grad()
local hidden = tl.func { forward = function(_, v) return v * w end,
  backward = function(_, dy)
    core.recording(true)
    local inner = w * 1
    inner:backward(dy)
    return dy * w
  end }
local rank = world:rank()
local loss = hidden(core.full({ 2 }, rank + 1):require_grad()):sum()
world:backward(loss, { w }, rank > 0 and rank - 1 or nil, rank < p - 1 and rank + 1 or nil)
check("the sum has what a function's own pass added", w:grad():get(1) == rank + 1,
  w:grad():get(1))

-- The outer pass uses w after the function, and so sends its sum before the function adds to it.
w = core.full({ 2 }, 3):require_grad()
loss = (hidden(core.full({ 2 }, rank + 1):require_grad()) * w):sum()
local ok, why = pcall(world.backward, world, loss, { w }, rank > 0 and rank - 1 or nil,
  rank < p - 1 and rank + 1 or nil)
check("a sum that changes after it was sent is an error",
  ok == (rank == p - 1) and (ok or tostring(why):find("changed after it was sent", 1, true)), why)

world:barrier()
world:close()
os.exit(failed == 0)
