-- trials/devices.lua: the devices that trials are to run on: what their names mean, whether they
-- are here, and whose turn a card is.
--
-- "cpu"; "cuda", any card; "cuda:1", the second one. A name with a slash is the file of a device.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local devices = {}

-- What TOEPLAB_DEVICE names: where a process computes, and trials that do not say.
function devices.usual()
  local name = os.getenv "TOEPLAB_DEVICE"
  return name ~= "" and name or "cpu"
end

-- The device without its card, and the number of that, nil if any will do.
local function split(name)
  local base, card = name:match "^(.+):(%d+)$"
  return base or name, math.tointeger(card)
end

-- nil, or what is wrong with a name.
function devices.wrong(name)
  if type(name) ~= "string" then
    return ("a device is a text: cpu, cuda or cuda:1, not %s"):format(tostring(name))
  end
  local base = split(name)
  if base:find "/" then return nil end
  local ok, why = suggest.choose("device", base, { "cpu", "cuda" })
  if not ok then return why end
  return base == "cpu" and name ~= "cpu" and "device 'cpu' has no cards" or nil
end

-- nil, or why products on a device cannot be in a precision.
function devices.lacks(name, precision)
  local known, why = suggest.choose("precision", precision, core.precisions "cuda")
  if not known then return why end
  local there = core.precisions(name)
  for _, one in ipairs(there) do
    if one == precision then return nil end
  end
  return ("precision %s: device %s has %s only, %s is of NVIDIA cards: device cuda"):format(
    precision, name, table.concat(there, " and "), precision)
end

-- Raises unless this process computes where a trial of that device does.
function devices.expect(name)
  if (name == "cpu") == (core.device() == "cpu") then return end
  error(("a trial of device '%s' cannot run on %s"):format(name, (core.device())), 0)
end

-- From here on this process computes on the device; it has made no tensor yet.
function devices.use(name)
  local wrong, ok, why = devices.wrong(name), nil, nil
  if wrong then errors.usage("%s", wrong) end
  ok, why = pcall(core.use_device, name)
  if not ok then errors.usage("%s", errors.text(why)) end
end

-- The file of a device other than the CPU, nil if there is none.
function devices.file(name)
  local path = name ~= "cpu" and core.device_file(name)
  return path and core.sys.kind(path) == "file" and path or nil
end

-- Raises unless trials can be run on their devices.
function devices.check(exp, trials)
  local known = { cpu = true }
  for _, t in ipairs(trials) do
    local name = t.config.device
    if not known[name] then
      local cards, why = core.look_at_device(name)
      if not cards then errors.usage("%s: %s", exp:where("device"), why) end
    end
    known[name] = true
  end
end

-- ---- Turns ------------------------------------------------------------------------------------

local Turns = {}
Turns.__index = Turns

-- Cards are given to share trials at a time each.
function devices.turns(share)
  return setmetatable({ share = share, users = {}, cards = {} }, Turns)
end

-- The number of the card, among those that may be taken, that has the fewest users; nil: all are
-- full.
local function free_card(self, base, card)
  local users = self.users[base] or {}
  self.users[base] = users
  if not self.cards[base] then self.cards[base] = core.look_at_device(base) or 0 end
  local best
  for c = card or 0, card or self.cards[base] - 1 do
    local count = users[c] or 0
    if count < self.share and (not best or count < users[best]) then
      users[c], best = count, c
    end
  end
  return best
end

-- A place for one trial: {device = "cuda:1", about = "cuda:1: ..."}, or nil if all are taken.
function Turns:take(name)
  if name == "cpu" then return { device = name } end
  local base, wanted = split(name)
  local card = free_card(self, base, wanted)
  if not card then return nil end
  self.users[base][card] = self.users[base][card] + 1
  local device = ("%s:%d"):format(base, card)
  local _, about = core.look_at_device(device)
  return { device = device, base = base, card = card,
    about = ("%s: %s"):format(device, about) }
end

function Turns:give(place)
  if place.card then self.users[place.base][place.card] = self.users[place.base][place.card] - 1 end
end

return devices
