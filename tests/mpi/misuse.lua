-- misuse.lua: what several ranks refuse, by one clear message each.
--   toeplab lua tests/mpi/misuse.lua MPIRUN FOLDER
-- MPIRUN starts processes on this machine; FOLDER is emptied and then holds what the runs store.
local core = require "toeplab.core"

local mpirun, folder = arg[1], arg[2]
local root = arg[0]:match "^(.*)/tests/[^/]*/[^/]*$"
local started = dofile(root .. "/tests/mpi/started.lua")
started.begin(mpirun, folder)
started.scripts()
local check, write, run = started.check, started.write, started.run
local program = started.program
local apart = program:gsub("[^/]*$", "") .. "tests/apart.so"

local function command(...) return started.command(folder .. "/trial.lua", ...) end

local function refuses(name, words, message)
  local text = run(words)
  local _, times = text:gsub(message, "")
  check(name, times == 1, text)
end

refuses("one process for several ranks", { program, "run", folder .. "/trial.lua", "ranks=4" },
  "this is one process: run mpirun %-n 4 toeplab run")
-- srun --mpi=none sets nothing that tells a process its rank.
refuses("processes without a rank", { "env", "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1",
  "SLURM_LOCALID=1", program, "run", folder .. "/trial.lua", "ranks=4" },
  "this is one process: run mpirun %-n 4 toeplab run")
-- What rank 0 refuses before it joins the others needs no others.
local function first_of(ranks, ...)
  local words = command(1, "misuse", ...)
  return table.move(words, 1, #words, 4, { "env", "OMPI_COMM_WORLD_RANK=0",
    "OMPI_COMM_WORLD_SIZE=" .. ranks })
end

refuses("another number of processes", first_of(2, "ranks=4"),
  "needs 4 processes, but 2 were started")
refuses("several processes for one rank", first_of(2), "add ranks=2")
refuses("sequence ranks that do not divide the ranks", first_of(2, "ranks=2", "sequence_ranks=3"),
  "sequence_ranks = 3 does not divide ranks = 2")
refuses("an array job", first_of(2, "--on", "slurm"), "submits from one process")
refuses("one list of the trials only", command(2, "misuse", "--dry-run"), "new +%- +seed=1")
refuses("trials side by side", first_of(2, "ranks=2", "-j2"), "use %-j1")

-- No process can take the place of rank 0's worker.
refuses("a time limit", first_of(2, "ranks=2", "--timeout", "1m"),
  "ranks: %-%-timeout may end the worker of rank 0")
local function first_of_script(name, fields)
  write(("%s/%s.lua"):format(folder, name), ([[
-- %s.lua: a small language model. What does it compute?
local tl = require "toeplab"
local fixed = dofile("%s/trial.lua").fixed
fixed.device = nil
return tl.experiment "%s" { fixed = fixed, trial = tl.lm.trial, %s }
]]):format(name, folder, name, fields))
  local words = first_of(2, "ranks=2")
  for i, word in ipairs(words) do words[i] = word:gsub("trial%.lua$", name .. ".lua") end
  return words
end

refuses("a time limit of the experiment", first_of_script("limited", 'budget = { trial = "1m" }'),
  "ranks: budget.trial may end the worker")
refuses("several devices", first_of_script("devices", 'grid = { device = { "cpu", "cuda" } }'),
  "ranks: the trials have the devices cpu and cuda.*run one device at a time")
refuses("a numbered GPU", first_of(2, "ranks=2", "device=" .. apart .. ":0"),
  "apart.so:0 is one GPU, but each rank takes its own")

-- One mpirun can start two commands.
local function apart_by(first, second, ...)
  local words = command(2, "misuse", ...)
  local start, all = #words - #command(1, "misuse", ...) - 1, {}
  for part = 1, 2 do
    if part == 2 then all[#all + 1] = ":" end
    for i, word in ipairs(words) do
      if i > 1 or part == 1 then
        if i == start then word = "1" end
        all[#all + 1] = word
      end
    end
    all[#all + 1] = part == 1 and first or second
  end
  return all
end

refuses("other keys on rank 1", apart_by("steps=6", "steps=5"),
  "rank 1 on .*its command differs from rank 0")

refuses("ranks that do not divide the batch", command(3, "misuse"),
  "3 ranks do not divide the 4 micro batches")
refuses("ranks that do not divide the parts of a classifier's batch", started.command(folder
  .. "/classifier.lua", 3, "misuse"), "3 ranks do not divide the 4 micro batches of a batch")
refuses("a batch that the script cuts otherwise", command(1, "misuse", "micro_batches=2"),
  "micro_batches = 2: lm_step has a batch that the script cuts into 4 micro batches")
refuses("no micro batches", command(1, "misuse", "micro_batches=0"),
  "micro_batches must be an integer of at least 1, not 0")
refuses("sequences that do not divide", command(2, "misuse", "sequence_ranks=2", "length=15"),
  "sequence_ranks = 2 does not divide the length 15")

-- A loop of the script's own, by lm_step with a whole batch.
write(folder .. "/own.lua", [[
-- own.lua: a small language model, trained by a loop of its own. What does it compute?
local tl = require "toeplab"
local core = require "toeplab.core"
return tl.experiment "own" {
  fixed = { steps = 3, structure = "gtu+glu", dropout = 0.0, length = 16, short = 0,
    leaves = -1 },
  trial = function(t, c)
    local model = tl.models.tnn_lm(31, { layers = 1, dim = 12, expand = 2, glu_dim = 8, rpe_dim = 8,
      rpe_layers = 1, structure = c.structure, dropout = c.dropout })
    local opt = tl.optim.adam(model, { lr = 1e-2 })
    for step in t:steps(c.steps, model, opt) do
      local rows = {}
      local n = step == c.short and c.length - 3 or c.length
      for r = 1, 4 do
        rows[r] = {}
        for i = 1, n + 1 do rows[r][i] = (i * r + step) % 31 end
      end
      t:log { loss = tl.train.lm_step(model, opt, core.ids(rows)) }
      if step == 2 and os.getenv "OMPI_COMM_WORLD_RANK" == tostring(c.leaves) then break end
    end
  end }
]])
local function own(ranks, ...) return started.command(folder .. "/own.lua", ranks, "own", ...) end

refuses("a loop of the script's own with a layer that cannot be cut",
  own(2, "sequence_ranks=2", "structure=attention+glu"), "layers.1.token is a GatedAttention")
refuses("a loop of the script's own with dropout in a cut sequence",
  own(2, "sequence_ranks=2", "dropout=0.3"), "draws its mask by the place")
refuses("a loop of the script's own with a length that does not divide",
  own(3, "sequence_ranks=3"), "sequence_ranks = 3 does not divide the length 16")
refuses("a loop of the script's own with micro batches that do not divide",
  own(3, "micro_batches=4"), "3 ranks do not divide the 4 micro batches of a batch")
local text, ended = run(own(2, "sequence_ranks=2", "short=3"))
check("a shorter batch later is taken whole", ended, text)
refuses("a loop that a rank other than the first leaves alone",
  own(2, "micro_batches=2", "leaves=1"), "left the loop at step 2 here, but rank 0 continues")
text, ended = run(own(2, "micro_batches=2", "leaves=0"))
check("a loop that rank 0 leaves ends on all ranks", ended, text)

refuses("a layer that cannot be cut", command(2, "misuse", "sequence_ranks=2",
  "structure=attention+glu"), "layers.1.token is a GatedAttention")

os.execute(("mkdir -p '%s/other/results' && cp -r '%s/lua' '%s/other' && "
  .. "cp -r '%s/results/published' '%s/other/results'"):format(folder, root, folder, root, folder))
write(folder .. "/other/lua/toeplab/other.lua", "-- other.lua: a file that only this build has.\n")
local words = command(2, "misuse")
for i, word in ipairs(words) do
  if word == "2" and words[i - 1] == "-n" then words[i] = "1" end
end
local of_program
for i, word in ipairs(words) do
  if word == program then of_program = i end
end
local again = table.move(words, of_program, #words, 1, {})
for _, word in ipairs { ":", "-n", "1", "-x", "TOEPLAB_LUA=" .. folder .. "/other/lua" } do
  words[#words + 1] = word
end
table.move(again, 1, #again, #words + 1, words)
refuses("another build on one rank", words,
  "its build of Toeplab differs from rank 0 on .*: start all ranks with the same .*%-%-threads\n")

-- ---- A trial that fails on a device -------------------------------------------------------------

write(folder .. "/failing.lua", [[
-- failing.lua: the first of two trials fails. Does the second one run?
local tl = require "toeplab"
local exp = dofile "]] .. folder .. [[/trial.lua"
return tl.experiment "failing" { fixed = exp.fixed, seeds = 2,
  trial = function(t, c)
    if c.seed == 1 then error "this one fails" end
    tl.lm.trial(t, c)
  end }
]])

-- Runs it by two ranks on a device. Returns what is printed, whether it ends well, the seconds, and
-- whether checkpoints are stored.
local function failing(device, dir)
  local began = core.sys.clock()
  local text, ended = run { "env", "APART_GPUS=2",
    table.unpack(started.command(folder .. "/failing.lua", 2, dir, "device=" .. device)) }
  return text, ended, core.sys.clock() - began, started.digest(dir) ~= ""
end

local seconds, stored
text, ended, seconds, stored = failing(apart, "failed")
local _, messages = text:gsub("this one fails", "")
check("a trial that fails on a device ends the run of its ranks", not ended and seconds < 60
  and not stored, ("%s\n%.0f s, stored: %s"):format(text, seconds, stored))
check("... by one message", messages == 1 and not text:find "killed"
  and text:find("ranks cannot continue after a failure on a GPU", 1, true), text)
text, ended, seconds, stored = failing("cpu", "failed-cpu")
check("on the CPU the next trial runs", not ended and stored,
  ("%s\n%.0f s"):format(text, seconds))

started.done()
