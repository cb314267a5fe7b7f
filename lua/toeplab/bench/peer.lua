-- bench/peer.lua: starts the processes that a bench measures, Toeplab's and other
-- libraries: each reads requests from a pipe and answers every one with a line
-- (benches/torch_peer.py).
local core = require "toeplab.core"
local provenance = require "toeplab.trials.provenance"
local shell = require "toeplab.base.shell"
local sorted_keys = require "toeplab.base.sorted_keys"

local peer = {}
peer.__index = peer

-- Idle threads of OpenMP sleep at once instead of slowing down other processes.
local PASSIVE = "OMP_WAIT_POLICY=passive"

-- Returns the environment in which PyTorch does not free and reallocate memory in every call, and
-- uses AVX-512. PyTorch obeys ATEN_CPU_CAPABILITY without checking the processor. features: of the
-- processor (provenance.features).
function peer.tuned_environment(features)
  local list = { PASSIVE, "MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=99999999999",
    "MALLOC_TOP_PAD_=268435456", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1" }
  for _, name in ipairs { "avx512f", "avx512bw", "avx512vl" } do
    if not features:find(name, 1, true) then return list end
  end
  list[#list + 1] = "ATEN_CPU_CAPABILITY=avx512"
  return list
end

-- The folders of this file and of benches, and the program that uses FFTW: beside the program of a
-- build, or in the folder beside the backends of an installation.
local here = package.searchpath("toeplab.bench.peer", package.path):match "^(.*)/[^/]*$"
local benches = provenance.data "benches" or "benches"
local backends = core.backends()[1].path:match "^(.*)/[^/]*$"
local plain = { core.sys.executable():match "^(.*)/[^/]*$" .. "/fftw_plain",
  backends .. "/../benches/fftw_plain" }

-- ---- Requests and answers ---------------------------------------------------------------------

-- Formats a flat table as words "key=value"; peer.parse is the inverse.
function peer.words(t)
  local list = {}
  for _, key in ipairs(sorted_keys(t)) do list[#list + 1] = key .. "=" .. tostring(t[key]) end
  return table.concat(list, " ")
end

local constants = { ["true"] = true, ["false"] = false }

function peer.parse(text)
  local t = {}
  for key, value in text:gmatch "(%S-)=(%S+)" do
    t[key] = constants[value]
    if t[key] == nil then t[key] = math.tointeger(value) or tonumber(value) or value end
  end
  return t
end

-- ---- Processes --------------------------------------------------------------------------------

-- Starts a program, given as words, with the variables in environment; name is for messages. Does
-- not wait for it (greet does). Raises if the pipe cannot be made.
function peer.start(name, environment, words)
  local pipe, errors = os.tmpname(), os.tmpname()
  os.remove(pipe)
  if not shell.run("mkfifo " .. shell.quote(pipe)) then error("mkfifo failed", 0) end
  local line = { "env" }
  for _, list in ipairs { environment, words } do
    for _, word in ipairs(list) do line[#line + 1] = shell.quote(tostring(word)) end
  end
  local p = setmetatable({ name = name }, peer)
  -- cat reads on after the program has ended, so that writing to it does not raise SIGPIPE
  p.requests = assert(io.popen(("{ %s >%s; exec cat >/dev/null; } 2>%s"):format(
    table.concat(line, " "), shell.quote(pipe), shell.quote(errors)), "w"))
  p.answers = assert(io.open(pipe, "r")) -- blocks until the program opens its end
  p.errors = assert(io.open(errors, "r"))
  os.remove(pipe)
  os.remove(errors)
  return p
end

-- Returns ": " and the last line that a program wrote to standard error before it ended.
local function last_words(self)
  local last
  for line in self.errors:lines() do
    if line:find "%S" then last = line end
  end
  return last and ": " .. last or ""
end

-- Returns the program's description of itself; nil and the reason if there is none.
function peer:greet()
  self.about = self.about or self.answers:read "l"
  if self.about then return self.about end
  local why = self.name .. " does not run" .. last_words(self)
  self:close()
  return nil, why
end

-- Returns the answer to a request; nil and the reason if there is none.
function peer:ask(request)
  local wrote = self.requests:write(request, "\n") and self.requests:flush()
  local line = wrote and self.answers:read "l"
  if not line then return nil, self.name .. " ended without an answer" .. last_words(self) end
  local why = line:match "^error (.*)$"
  if why then return nil, why end
  return line
end

function peer:close()
  if self.closed then return end
  self.closed = true
  pcall(self.requests.close, self.requests)
  self.answers:close()
  self.errors:close()
end

-- ---- Contestants -------------------------------------------------------------------------------

-- Starts a Toeplab contestant with `threads` threads on a device (nil: the CPU).
function peer.ours(threads, device)
  return peer.start("toeplab", { PASSIVE, "TOEPLAB_DEVICE=" .. (device or "cpu") },
    { core.sys.executable(), "--threads", threads, "lua", here .. "/contestant.lua" })
end

-- Starts the program that calls FFTW directly; nil and the reason if it is missing.
function peer.fftw(threads)
  for _, path in ipairs(plain) do
    if core.sys.exists(path) then return peer.start("fftw_plain", {}, { path, threads }) end
  end
  return nil, "there is no " .. plain[1]
end

-- Returns the interpreters that TOEPLAB_PYTHON names, separated by ':' ("" for none), else python3.
function peer.pythons()
  local list = {}
  for python in (os.getenv "TOEPLAB_PYTHON" or "python3"):gmatch "[^:]+" do
    list[#list + 1] = python
  end
  return list
end

-- Starts benches/torch_peer.py by an interpreter; tuned: in tuned_environment. Returns nil and the
-- reason if there is no such program.
function peer.torch(python, tuned, threads, device)
  device = device or "cpu"
  if device:find "/" then return nil, "no PyTorch found for " .. device end
  local there = python:find "/" and core.sys.exists(python) or shell.on_path(python)
  if not there then return nil, "there is no " .. python end
  local environment = tuned and peer.tuned_environment(provenance.features()) or {}
  return peer.start(python .. " " .. benches .. "/torch_peer.py", environment,
    { python, "-B", benches .. "/torch_peer.py", threads, device }) -- -B: write no __pycache__
end

return peer
