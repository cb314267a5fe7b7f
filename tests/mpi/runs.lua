-- runs.lua: trials by several ranks: equal results, and killed ranks.
--   toeplab lua tests/mpi/runs.lua MPIRUN FOLDER
-- MPIRUN starts processes on this machine; FOLDER is emptied and then holds what the runs store.
local core = require "toeplab.core"

local mpirun, folder = arg[1], arg[2]
local root = arg[0]:match "^(.*)/tests/[^/]*/[^/]*$"
local started = dofile(root .. "/tests/mpi/started.lua")
started.begin(mpirun, folder)
local check, write, run, digest = started.check, started.write, started.run, started.digest
started.scripts()

-- ---- Runs ---------------------------------------------------------------------------------------

local function command(...) return started.command(folder .. "/trial.lua", ...) end

run(command(1, "one"))
local want = digest "one"
check("one process stores checkpoints", #want > 1000, want)
for _, ranks in ipairs { 2, 4 } do
  local text, ended = run(command(ranks, "of" .. ranks))
  check(("%d ranks store the bits of one process"):format(ranks),
    ended and digest("of" .. ranks) == want and started.metrics("of" .. ranks)
      == started.metrics "one", text)
end

-- ---- A trial that is stopped after its last step ------------------------------------------------

write(folder .. "/late.lua", [[
-- late.lua: a trial that fails after its last step while the file beside it exists. Does it go on?
local tl = require "toeplab"
local exp = dofile "]] .. folder .. [[/trial.lua"
return tl.experiment "late" { fixed = exp.fixed,
  trial = function(t, c)
    tl.lm.trial(t, c)
    if tl.sys.exists "]] .. folder .. [[/stop" then error "stopped" end
  end }
]])
write(folder .. "/stop", "")
local late = command(2, "late")
for i, word in ipairs(late) do late[i] = word:gsub("trial%.lua$", "late.lua") end
local stopped, ended_well = run(late)
check("a trial fails after its last step", not ended_well and stopped:find("stopped", 1, true),
  stopped)
os.remove(folder .. "/stop")
local continued, finished = run(late)
check("several ranks finish it, although no update is left", finished, continued)

-- ---- A killed rank ------------------------------------------------------------------------------

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a" or ""
end

-- Returns the processes below a process, by their ids.
local function below(pid, list)
  list = list or {}
  for child in read(("/proc/%d/task/%d/children"):format(pid, pid)):gmatch "%d+" do
    list[#list + 1] = math.tointeger(tonumber(child))
    below(list[#list], list)
  end
  return list
end

local function rank_of(pid)
  local rank = read(("/proc/%d/environ"):format(pid)):match "OMPI_COMM_WORLD_RANK=(%d+)"
  return math.tointeger(tonumber(rank or ""))
end

local function has_checkpoint(dir)
  for _, id in ipairs(started.trials(dir)) do
    for _, name in ipairs(core.sys.list(folder .. "/" .. dir .. "/runs/" .. id) or {}) do
      if name:find "^step%-.*%.h5$" then return true end
    end
  end
end

local long = { "steps=300", "--checkpoint-steps=20" }

-- Starts a run of a script by `ranks` processes in dir, kills a process of a rank once there is a
-- checkpoint, and returns what was printed and the seconds until all processes had ended. own: the
-- process that trains, which on rank 0 is the worker.
local function kill_one(script, dir, ranks, rank)
  local log = ("%s/%s.log"):format(folder, dir)
  local p = assert(core.sys.spawn(started.command(script, ranks, dir, table.unpack(long)), log))
  local began = core.sys.clock()
  while not has_checkpoint(dir) and core.sys.clock() - began < 20 do core.sys.sleep(0.02) end
  local all, victim = below(p:pid()), nil
  for _, pid in ipairs(all) do
    if rank_of(pid) == rank then victim = pid end -- the last: a child comes after its parent
  end
  core.sys.kill(victim)
  local killed = core.sys.clock()
  p:wait(true)
  local function alive()
    for _, pid in ipairs(all) do
      local state = read(("/proc/%d/stat"):format(pid)):match "%) (%a)"
      if state and state ~= "Z" then return true end
    end
  end
  while alive() and core.sys.clock() - killed < 20 do core.sys.sleep(0.05) end
  return read(log), core.sys.clock() - killed
end

for _, case in ipairs { { "trial", 4, 3, 2 }, { "trial", 2, 0, 4 }, { "classifier", 4, 1, 2 } } do
  local name, ranks, rank, next_ranks = table.unpack(case)
  local dir, whole = name .. "-killed" .. ranks, name .. "-long"
  local script = ("%s/%s.lua"):format(folder, name)
  if #started.trials(whole) == 0 then
    run(started.command(script, 1, whole, table.unpack(long)))
  end
  want = digest(whole)
  local text, seconds = kill_one(script, dir, ranks, rank)
  check(("%s: all end within 10 s once rank %d of %d is killed"):format(name, rank, ranks),
    seconds < 10, seconds)
  local _, messages = text:gsub("rank %d", "")
  check("one message names the rank", messages == 1 and text:find("rank " .. rank, 1, true), text)
  check("its checkpoint is kept, and it has not ended", has_checkpoint(dir) and digest(dir) ~= want)
  text = run(started.command(script, next_ranks, dir, table.unpack(long)))
  check(("%s: %d ranks continue and store the bits of one process"):format(name, next_ranks),
    #want > 1000 and digest(dir) == want and started.metrics(dir) == started.metrics(whole), text)
end

-- ---- On devices ---------------------------------------------------------------------------------

local apart = core.sys.executable():gsub("[^/]*$", "") .. "tests/apart.so"
local on_devices = { "device=" .. apart, "steps=3" }
run(started.command(folder .. "/classifier.lua", 1, "device", table.unpack(on_devices)))
local on_two = started.command(folder .. "/classifier.lua", 2, "devices", table.unpack(on_devices))
table.insert(on_two, 1, "APART_GPUS=2")
table.insert(on_two, 1, "env")
local of_two, trained = run(on_two)
check("two ranks, each on a device of its own, store the bits of one on one", trained
  and #digest "device" > 1000 and digest "devices" == digest "device", of_two)
check("... and exchange directly", not of_two:find("the memory of the CPU", 1, true), of_two)
-- As by srun --gpus-per-task=1, which shows each process one GPU.
on_two = started.command(folder .. "/classifier.lua", 2, "shown", table.unpack(on_devices))
of_two, trained = run { "env", "APART_GPUS=1", table.unpack(on_two) }
check("... also if each process sees one device, number 0", trained
  and digest "shown" == digest "device", of_two)

-- ---- The bench ----------------------------------------------------------------------------------

local page = folder .. "/page.md"
local said, measured = run { started.program, "--threads", "1", "lua", root
  .. "/benches/ranks.lua", page, "1,2", "256", "1" }
local _, shared = read(page):gsub("\n| 2%^8 | [12] |", "")
check("the bench writes a page of one and two ranks", measured and shared == 3, said)
check("... that begins with a verdict", read(page):gsub("%s+", " "):find("^[^*]+%*%*Verdict: "
  .. "if 1, 2 ranks share a sequence of 2%^8 tokens, the tensors of a rank take at most %d+, "
  .. "%d+ MB%."), said)

started.done()
