-- tasks.lua: updates of classifiers, image models and masked models by several ranks, bit for bit
-- those of one process with as many micro batches, which every rank makes too.
--   mpirun -n P toeplab lua tests/mpi/tasks.lua [few]
-- few: some of the cases, for a device that is slow. On one, the ranks exchange by NCCL.
-- Rank 0 prints a line for each comparison; every rank ends with status 1 if one of its own failed.
local tl = require "toeplab"
local core = require "toeplab.core"
local ranks = require "toeplab.train.ranks"
local streams = require "toeplab.base.streams"
local sorted_keys = require "toeplab.base.sorted_keys"
local update = require "toeplab.train.update"

local world = core.ranks_open()
local p = world:size()
local failed, count = 0, 0

local function check(name, good, why)
  count = count + 1
  if not good then failed = failed + 1 end
  if world:rank() == 0 or not good then
    print(("%s %s, rank %d of %d%s"):format(good and "ok" or "not ok", name, world:rank(), p,
      good and "" or ": " .. tostring(why)))
  end
end

-- ---- Batches ------------------------------------------------------------------------------------

local ROWS, STEPS = 8, 3

local function integers(name, step, most, ...)
  return core.stream(step, name):integers(most, ...)
end

-- Returns the batch of a step: rows of 12 tokens, some of them padding, and labels of 3 classes.
local function tokens(step)
  local lengths = integers("lengths", step, 8, ROWS):totable()
  for i, length in ipairs(lengths) do lengths[i] = length + 5 end
  return { ids = integers("ids", step, 11, ROWS, 12), lengths = core.ids(lengths),
    labels = integers("labels", step, 3, ROWS) }
end

local function pairs_of(step)
  return { ids = integers("ids", step, 11, 2 * ROWS, 12),
    labels = integers("labels", step, 3, ROWS) }
end

local function numbers(step)
  local batch = tokens(step)
  batch.labels = core.stream(step, "numbers"):normal(core.zeros(ROWS), 0, 1)
  return batch
end

-- Returns the batch of a step: images of 6 x 6 pixels with c channels.
local function images(c)
  return function(step)
    return { ids = integers("ids", step, 256, ROWS, c * 36), labels = integers("labels", step, 3,
      ROWS) }
  end
end

-- ---- Cases --------------------------------------------------------------------------------------

local frame = { vocab = 256, classes = 3, layers = 2, dim = 8, glu_dim = 12, rpe_dim = 4,
  rpe_layers = 1, heads = 2, dropout = 0.1, gate_dropout = 0.1 }

local function with(base, more)
  local all = {}
  for _, t in ipairs { base, more or {} } do
    for key, value in pairs(t) do all[key] = value end
  end
  return all
end

local function classifier(more, batch)
  return { make = function() return tl.models.tnn_classifier(with(frame, more)) end,
    batch = batch or tokens, step = tl.classify.step }
end

local augmentation = { height = 6, width = 6, mean = { 0.5, 0.5, 0.5 }, deviation = { 1, 1, 1 },
  pad = 2, flip = true, mixup = 0.8, smoothing = 0.1 }

local mlm = { vocab = 23, layers = 2, dim = 8, expand = 2, rpe_dim = 4, rpe_layers = 1,
  dropout = 0.1, decay = 0.9 }

-- Returns a model whose batch norm is used twice.
local function twice()
  local Twice = tl.nn.class("Twice", { dim = "int" }, { "dim" })
  function Twice:build(o)
    self.embed = tl.nn.Embedding(256, o.dim)
    self.norm = tl.nn.BatchNorm(o.dim)
    self.head = tl.nn.Linear(o.dim, 3)
  end
  function Twice:forward(ids)
    return self.head(self.norm(tl.relu(self.norm(self.embed(ids)))):mean(2))
  end
  return Twice(8)
end

local cases = {
  { "batch norm and padding", classifier {} },
  { "layer norm, pool last", classifier { norm = "layernorm", final_norm = "layernorm",
    pool = "last" } },
  { "masked padding", classifier { padding = "masked" } },
  { "pairs", classifier({ pair = true }, pairs_of) },
  { "numbers", classifier({ classes = 1 }, numbers) },
  { "pixels on a grid", classifier({ grid = { 6, 6 }, tno_dropout = 0.1,
    pixels = { mean = 0.5, deviation = 0.25 } }, images(1)) },
  { "product on a grid", classifier({ grid = { 6, 6 }, grid_form = "product", encoder = "mlp",
    decay = 0.9 }, images(1)) },
  { "ski", classifier { backend = "ski", encoder = "piecewise",
    backend_options = { inducing = 4, taps = 3 } } },
  { "fd", classifier { backend = "fd", encoder = "mlp" } },
  { "one norm twice", { make = twice, batch = tokens, step = tl.classify.step } },
  { "images", {
    make = function()
      return tl.models.tnn_image { classes = 3, patch = 2, grid = { 3, 3 }, layers = 2, dim = 8,
        dropout = 0.1 }
    end,
    batch = images(3),
    step = function(...) return tl.augmentation(augmentation):step(...) end } },
  { "masked model", { lists = true,
    make = function() return tl.models.tnn_mlm(with(mlm, { pad = 21 })) end,
    batch = function(step, parts)
      local data = tl.masking(integers("text", 1, 20, 400), { vocab = 20, eos = 0, length = 16,
        batch = ROWS // parts, multiple = 4, seed = 5 })
      return data:batches(step, parts)
    end,
    step = tl.masking.step } },
}

for _, mixer in ipairs { "attention", "reformer", "informer", "nystrom", "linformer", "s4" } do
  cases[#cases + 1] = { mixer, classifier { mixer = mixer } }
end

-- ---- Comparisons --------------------------------------------------------------------------------

local function digest(model, opt)
  local words = {}
  for _, tensors in ipairs { model:state(), opt:state().tensors } do
    for _, name in ipairs(sorted_keys(tensors)) do
      words[#words + 1] = core.sha256(tensors[name])
    end
  end
  for _, s in ipairs(tl.streams()) do
    local key, offset = s.stream:state()
    words[#words + 1] = ("%s %s %s"):format(s.name, tostring(key), tostring(offset))
  end
  return core.sha256(table.concat(words))
end

-- Trains with `parts` micro batches by the team, or alone. Returns a line for each step, with all
-- that is compared.
local function train(case, team, parts)
  local lines = {}
  streams.with(3, ranks.with, team, update.with, parts, function()
    local model = case.make()
    local opt = tl.optim.adam(model, { lr = 1e-2, clip = 1.0 })
    for step = 1, STEPS do
      local loss, info = case.step(model, opt, case.batch(step, parts))
      lines[step] = ("loss %.9g, norm %.9g, accuracy %s, state %s"):format(loss, info.grad_norm,
        tostring(info.accuracy), digest(model, opt))
    end
  end)
  return lines
end

local few = arg[1] == "few"
local team = ranks.team(world)
check("the GPUs exchange directly", core.device() == "cpu" or team.world:link() == "nccl"
  and team.column:link() == "nccl", team.world:link())
for _, case in ipairs(few and { cases[1], cases[12] } or cases) do
  for _, parts in ipairs(few and { 4 } or { 4, 8 }) do
    local want, got = train(case[2], nil, parts), train(case[2], team, parts)
    check(("%s, %d micro batches"):format(case[1], parts), table.concat(want) == table.concat(got),
      table.concat(got, "\n") .. "\n  one process:\n" .. table.concat(want, "\n"))
  end
end
-- The comparison can fail: other micro batches are another computation.
check("the number of micro batches counts", table.concat(train(cases[1][2], team, 4))
  ~= table.concat(train(cases[1][2], team, 8)))

-- ---- Refusals -----------------------------------------------------------------------------------

local function refuses(name, message, fn, ...)
  local ok, why = pcall(fn, ...)
  core.tape_clear()
  check(name, not ok and tostring(why):find(message, 1, true), why)
end

refuses("too few micro batches", "do not divide the 1 micro batches of a batch: choose "
  .. "micro_batches", train, cases[1][2], team, 1)
refuses("draws that depend on values", "drew 1 numbers from the stream 'coin'", train, {
  make = function()
    local Coin = tl.nn.class("Coin", { dim = "int" }, { "dim" })
    function Coin:build(o)
      self.embed, self.head = tl.nn.Embedding(256, o.dim), tl.nn.Linear(o.dim, 3)
    end
    function Coin:forward(ids)
      if core.recording() then tl.stream_of "coin":unit() end
      return self.head(self.embed(ids):mean(2))
    end
    return Coin(8)
  end, batch = tokens, step = tl.classify.step }, team, 4)
refuses("an update of the script's own", "a script that computes gradients itself", train, {
  make = function() return tl.models.tnn_classifier(frame) end, batch = tokens,
  step = function(model, opt, batch)
    model(batch.ids):sum():backward()
    return 0.0, opt:step()
  end }, team, 4)
team:close()

local cut = ranks.team(world, p)
refuses("sequence ranks of a classifier",
  ("sequence_ranks = %d: a classifier requires whole"):format(p), train, cases[1][2], cut, 4)
refuses("sequence ranks of a masked model", "a masked language model requires whole", train,
  cases[12][2], cut, 4)
cut:close()

local other = world:rank() == 0 and 1 or 0
refuses("a message without a tag", "32767", world.send, world, other, 0, tl.ones(2))
refuses("a word without a tag", "32767", world.send_word, world, other, 0, 1)
refuses("a word that is taken without a tag", "32767", world.take_word, world, other, 0)
local group = world:split(0)
for name, r in pairs { ["of all"] = world, ["of the split group"] = group } do
  refuses("a message to oneself, " .. name, "to itself", r.send, r, world:rank(), 1, tl.ones(2))
end
check("the split group has a link on devices", (group:link() ~= nil) == (core.device() ~= "cpu"),
  group:link())
if group:link() then
  local ids = core.ids { 1, 2 }
  refuses("int32 that is sent", "int32 tensors cannot be sent", group.send, group, other, 1, ids)
  refuses("int32 that is received", "int32 tensors cannot be sent", group.receive, group, other, 1,
    ids)
end
group:close()

world:barrier()
world:close()
os.exit(failed == 0 and count > 0)
