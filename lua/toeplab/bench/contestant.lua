-- bench/contestant.lua: the process that measures Toeplab's side of a bench. `toeplab lua` runs it;
-- it reads requests and answers each with a line, as benches/torch_peer.py does.
local core = require "toeplab.core"
local peer = require "toeplab.bench.peer"
local workloads = require "toeplab.bench.workloads"

local made

-- Returns the peak memory of this process in bytes; 0 if the system does not report it.
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
  made = workloads.make(peer.parse(words))
  made.run()
  core.synchronize()
  return ("ok parameters=%d flop=%.9g state=%d kernels=%d positions=%d longest=%.9g"):format(
    made.parameters or 0, made.flop or 0, made.state or 0, made.kernels or 0, made.positions or 0,
    made.longest or 0)
end

function answers.run(words) return ("%.9g"):format(workloads.time(made, math.tointeger(words))) end

-- On a GPU, only the memory of the device counts.
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
