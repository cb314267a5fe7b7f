-- experiments.lua: experiments of the tree by two ranks: checkpoints and metrics are those of one
-- process, bit for bit.
--   toeplab lua tests/mpi/experiments.lua MPIRUN FOLDER
local root = arg[0]:match "^(.*)/tests/[^/]*/[^/]*$"
local started = dofile(root .. "/tests/mpi/started.lua")
started.begin(arg[1], arg[2])

local function runs(name, ...)
  local script = ("%s/experiments/%s.lua"):format(root, name)
  for ranks = 1, 2 do
    local text, ended = started.run(started.command(script, ranks, name .. ranks, "scale=smoke",
      "seed=1", ...))
    started.check(("%s by %d"):format(name, ranks), ended, text)
  end
  for what, say in pairs { digest = "checkpoints", metrics = "metrics" } do
    local one, two = started[what](name .. 1), started[what](name .. 2)
    started.check(("%s: the %s of two ranks are those of one process"):format(name, say),
      #one > 100 and one == two, two)
  end
end

runs("glue-mlm") -- a masked model
runs("glue", "task=text:stsb", "micro_batches=2") -- a regression
runs("lra", "task=pathfinder", "model=tnn,s4", "micro_batches=2") -- batch norm, operators on a grid
runs("image", "model=fd", "micro_batches=2") -- altered images

-- A rank without a store of its own opens the model of another trial.
local function start_from(ranks)
  local id = started.trials("glue-mlm" .. 1)[1]
  return started.run(started.command(root .. "/experiments/glue.lua", ranks, "glue-mlm1",
    "scale=smoke", "seed=1", "task=text:cola", "start=" .. id, "micro_batches=2"))
end

local text, ended = start_from(2)
started.check("a model is fine-tuned from a masked one by two ranks", ended
  and #started.trials "glue-mlm1" == 2, text)

started.done()
