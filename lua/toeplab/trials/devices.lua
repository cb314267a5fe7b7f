-- trials/devices.lua: parses the names of devices, checks that the devices are available, and
-- assigns GPUs to trials.
--
-- A name is "cpu"; "cuda", which means any GPU; "cuda:1", the second GPU; or, if it contains a
-- slash, the path of a device plugin.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local devices = {}

-- Returns the default device of processes and trials: TOEPLAB_DEVICE, or "cpu" if that is not set.
function devices.usual()
  local name = os.getenv "TOEPLAB_DEVICE"
  return name ~= "" and name or "cpu"
end

-- Splits "cuda:1" into "cuda" and 1. For "cuda" the second result is nil, which means any GPU.
local function split_name(name)
  local base, gpu = name:match "^(.+):(%d+)$"
  return base or name, math.tointeger(gpu)
end

-- Returns why the name of a device is invalid; nil if it is valid.
function devices.wrong(name)
  if type(name) ~= "string" then
    return ("a device must be a string (cpu, cuda or cuda:1), not %s"):format(tostring(name))
  end
  local base = split_name(name)
  if base:find "/" then return nil end
  local ok, why = suggest.choose("device", base, { "cpu", "cuda" })
  if not ok then return why end
  return base == "cpu" and name ~= "cpu" and "device 'cpu' has no GPU numbers" or nil
end

-- Returns why a device cannot compute products in a precision; nil if it can.
function devices.lacks(name, precision)
  local known, why = suggest.choose("precision", precision, core.precisions "cuda")
  if not known then return why end
  local there = core.precisions(name)
  for _, one in ipairs(there) do
    if one == precision then return nil end
  end
  return ("precision %s: device %s supports only %s; %s needs an NVIDIA GPU (device cuda)"):format(
    precision, name, table.concat(there, " and "), precision)
end

-- Raises unless this process computes on the device of a trial.
function devices.expect(name)
  if (name == "cpu") == (core.device() == "cpu") then return end
  error(("the trial has device = %s, but this process computes on %s"):format(name,
    (core.device())), 0)
end

-- Selects the device of this process, which must not have made a tensor before.
function devices.use(name)
  local wrong, ok, why = devices.wrong(name), nil, nil
  if wrong then errors.usage("%s", wrong) end
  ok, why = pcall(core.use_device, name)
  if not ok then errors.usage("%s", errors.text(why)) end
end

-- Returns the path of the shared object that implements a device; nil for the CPU and for a device
-- without one.
function devices.file(name)
  local path = name ~= "cpu" and core.device_file(name)
  return path and core.sys.kind(path) == "file" and path or nil
end

-- Raises unless the devices of all the trials are available.
function devices.check(exp, trials)
  local known = { cpu = true }
  for _, t in ipairs(trials) do
    local name = t.config.device
    if not known[name] then
      local count, why = core.look_at_device(name)
      if not count then errors.usage("%s: %s", exp:where("device"), why) end
    end
    known[name] = true
  end
end

-- ---- Allocation of GPUs ------------------------------------------------------------------------

local Turns = {}
Turns.__index = Turns

-- Returns an allocator that assigns each GPU to at most `share` trials at a time.
function devices.turns(share)
  return setmetatable({ share = share, users = {}, counts = {} }, Turns)
end

-- Returns the number (from 0) of the GPU that runs the fewest trials; nil if all are full. gpu: the
-- only acceptable GPU, or nil.
local function free_gpu(self, base, gpu)
  local users = self.users[base] or {}
  self.users[base] = users
  if not self.counts[base] then self.counts[base] = core.look_at_device(base) or 0 end
  local best
  for c = gpu or 0, gpu or self.counts[base] - 1 do
    local count = users[c] or 0
    if count < self.share and (not best or count < users[best]) then
      users[c], best = count, c
    end
  end
  return best
end

-- Allocates a device for one trial: {device = "cuda:1", base = "cuda", gpu = 1, about =
-- "cuda:1: ..."}, for the CPU only {device = "cpu"}; nil if every GPU that the name allows is full.
-- The caller returns the device by Turns:give.
function Turns:take(name)
  if name == "cpu" then return { device = name } end
  local base, wanted = split_name(name)
  local gpu = free_gpu(self, base, wanted)
  if not gpu then return nil end
  self.users[base][gpu] = self.users[base][gpu] + 1
  local device = ("%s:%d"):format(base, gpu)
  local _, about = core.look_at_device(device)
  return { device = device, base = base, gpu = gpu,
    about = ("%s: %s"):format(device, about) }
end

function Turns:give(place)
  if not place.gpu then return end
  self.users[place.base][place.gpu] = self.users[place.base][place.gpu] - 1
end

return devices
