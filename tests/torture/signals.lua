-- signals.lua: sends signals to a model in training and checks that they change nothing: no process
-- dies, and the loss is bit for bit that of an undisturbed run. signals.lua [RUNS [SIGNALS]] It
-- uses one thread, so that all products run in the thread that handles the signals.
local core = require "toeplab.core"

local sys = core.sys
local RUNS, SIGNALS = tonumber(arg[1] or 8), tonumber(arg[2] or 100)

local path = os.tmpname()
assert(sys.write_file(path, [[
local tl = require "toeplab"
tl.sys.catch_signals()
local ids, model = tl.stream_of "ids", tl.models.tnn_lm { vocab = 100, layers = 1, dim = 128 }
local opt = tl.optim.adam(model, { lr = 1e-3 })
print "begun"
local loss
for _ = 1, 400 do
  local batch = {}
  for i = 1, 2 * 65 do batch[i] = ids:below(100) end
  loss = tl.train.lm_step(model, opt, tl.ids(batch):reshape(2, 65))
end
print(("%a"):format(loss))
]]))

-- Returns the output of the script while signals arrive at random moments of that seed; raises if
-- the process dies.
local function train(seed)
  local log, random = path .. ".log", core.stream(seed, "moments")
  os.remove(log)
  local p = assert(sys.spawn({ sys.executable(), "--threads", "1", "lua", path }, log))
  local function over() -- p:wait returns nothing while the process runs
    return select("#", p:wait()) > 0
  end
  repeat sys.sleep(0.01) until (sys.read_file(log) or ""):find "begun" or over()
  local sent = 0
  while sent < (seed > 0 and SIGNALS or 0) and not over() do
    p:signal(sent % 2 == 0 and "HUP" or "USR1")
    sent = sent + 1
    sys.sleep(random:below(1000) / 4e5) -- all are sent before a fast machine has trained
  end
  local code, signal = p:wait(true)
  if seed > 0 and sent < SIGNALS then return ("only %d signals met it"):format(sent) end
  local said = sys.read_file(log)
  os.remove(log)
  return code == 0 and said or ("died of signal %s after %d signals: %s"):format(signal, sent, said)
end

local wanted, failed = train(0), 0
assert(wanted:find "^begun\n0x", wanted)
for seed = 1, RUNS do
  local got = train(seed)
  if got ~= wanted then
    failed = failed + 1
    print(("run %d: %s"):format(seed, got))
  end
end
os.remove(path)
print(("%d of %d runs under %d signals died or differ"):format(failed, RUNS, SIGNALS))
os.exit(failed == 0)
