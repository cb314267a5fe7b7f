-- bench/contestant.lua: a process that measures our side of a bench: a script of `toeplab lua`,
-- which reads requests and answers each with a line, as benches/torch_peer.py does.
local core = require "toeplab.core"
local peer = require "toeplab.bench.peer"
local work = require "toeplab.bench.work"

local made

-- The most memory that this process ever held, in bytes; 0 where the system does not tell.
local function resident()
  local kib = (core.sys.read_file "/proc/self/status" or ""):match "VmHWM:%s*(%d+) kB"
  return 1024 * (math.tointeger(tonumber(kib)) or 0)
end

local answers = {}

function answers.make(words)
  if made and made.close then made.close() end
  made = nil
  collectgarbage()
  core.memory_trim()
  core.memory_reset_peak()
  made = work.make(peer.parse(words))
  made.run()
  core.synchronize()
  return ("ok parameters=%d state=%d kernels=%d"):format(made.parameters or 0, made.state or 0,
    made.kernels or 0)
end

function answers.run(words) return ("%.9g"):format(work.time(made, math.tointeger(words))) end

-- On a GPU, the memory of the device is what counts.
function answers.memory()
  local peak = core.memory().peak
  return ("rss=%d engine=%d"):format(core.device() == "cpu" and resident() or peak, peak)
end

io.stdout:setvbuf "line"
local blas = (core.build_info().blas or "none"):match "^%S+ ?[%d.]*"
local device, about = core.device()
print(("toeplab %s: %s, %d threads"):format(core.version,
  device == "cpu" and "BLAS " .. blas or about, core.threads()))
for line in io.lines() do
  if line == "" then break end
  local kind, words = line:match "^(%S+)%s*(.*)$"
  local ok, answer = pcall(answers[kind], words)
  print(ok and answer or "error " .. tostring(answer):gsub("%s+", " "))
end
