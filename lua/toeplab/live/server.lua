-- live/server.lua: `toeplab report --serve`: serves a page about a sweep that grows with it, by
-- HTTP on the loopback interface (lua/live/http.c). The page (page.lua) requests two kinds of text,
-- which this file makes from the store every second and the server returns:
--   state.json     the trials, the keys that vary, the metrics, and a version of each metric
--   curve-I.json   the curves of metric I: the id of a trial -> [steps, values]
local cards = require "toeplab.live.cards"
local core = require "toeplab.core"
local curves = require "toeplab.live.curves"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local metrics = require "toeplab.store.metrics"
local modules = require "toeplab.live.modules"
local page = require "toeplab.live.page"
local config = require "toeplab.base.config"
local alive = require "toeplab.store.alive"
local records = require "toeplab.store.records"
local sweep_progress = require "toeplab.live.sweep_progress"

local server = {}

local TRIALS, METRICS, POINTS = 300, 40, 300 -- largest numbers on the page
local LOOK_SECONDS = 0.2 -- between two looks at signals
local JSON = "application/json; charset=utf-8"

-- Returns 128 random bits as a word.
local function new_token()
  local file <close> = assert(io.open("/dev/urandom", "rb"))
  file:setvbuf "no"
  return (file:read(16):gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

-- Returns a number as JSON. Lines have gaps where a value is not finite.
local function number(v)
  return v - v == 0 and ("%.15g"):format(v) or "null"
end

-- Returns the curve of a trial as JSON.
local function curve_of(self, store, id, row)
  local curve = self.curves:get(store, id, row.name, POINTS, row)
  if curve.text then return curve.text end
  local xs, ys = {}, {}
  for i, step in ipairs(curve.steps) do
    xs[i], ys[i] = ("%d"):format(step), number(curve.values[i])
  end
  curve.text = ("[[%s],[%s]]"):format(table.concat(xs, ","), table.concat(ys, ","))
  return curve.text
end

-- Reads the curves of all metrics, and sets the texts that have changed.
local function set_curves(self, store, trials, names)
  local place, parts = {}, {}
  for i, name in ipairs(names) do place[name], parts[i] = i, {} end
  for _, t in ipairs(trials) do
    for _, row in ipairs(metrics.newest(store, t.id)) do
      local i = place[row.name]
      if i then
        table.insert(parts[i], ('"%s":%s'):format(t.id:sub(1, 12),
          curve_of(self, store, t.id, row)))
      end
    end
  end
  for i = 1, #names do
    local text = ("{%s}"):format(table.concat(parts[i], ","))
    if self.set[i] ~= text then
      self.server:set(("curve-%d.json"):format(i), JSON, text)
      self.set[i], self.versions[i] = text, (self.versions[i] or 0) + 1
    end
  end
end

-- Returns the trials of a sweep in the form that the page takes.
local function described(store, trials, axes)
  local list = {}
  for i, t in ipairs(trials) do
    if t.status == "running" and not alive.possibly(store.folder, t) then
      t.status = "killed"
    end
    local row = store:rows("SELECT config, seed FROM v_trials WHERE id = ?", { t.id })[1]
    local values, keys = store:config(row.config), {}
    for k, axis in ipairs(axes) do
      keys[k] = values[axis] ~= nil and config.show(values[axis]) or "-"
    end
    keys[#axes + 1] = tostring(row.seed)
    list[i] = { id = t.id:sub(1, 12), label = t.label or t.id:sub(1, 12), status = t.status,
      far = sweep_progress.far(t), keys = keys }
  end
  return list
end

local function refresh(self)
  local store <close> = records.snapshot(self.folder)
  local sweep = sweep_progress.sweep(store, self.name, "report")
  self.name = self.name or sweep.experiment
  local names = metrics.names(store, sweep.id)
  local more = math.max(0, #names - METRICS)
  names = { table.unpack(names, 1, METRICS) }
  local trials = metrics.trials(store, sweep.id, "loss")
  local hidden = math.max(0, #trials - TRIALS)
  trials = { table.unpack(trials, 1, TRIALS) }
  set_curves(self, store, trials, names)
  local axes = store:object(sweep.plan).axes or {}
  local by_status, all, list, seconds = sweep_progress.of(store, sweep)
  local keys = { table.unpack(axes) }
  keys[#keys + 1] = "seed"
  local state = json.show { title = sweep.experiment, metrics = names, keys = keys,
    line = sweep_progress.line(sweep, by_status, all, seconds), working = #list, hidden = hidden,
    cards = table.concat(self.cards:lines(store), "\n"), more = more, versions = self.versions,
    trials = described(store, trials, axes) }
  if state ~= self.state then self.server:set("state.json", JSON, state) end
  self.state = state
end

-- Refreshes the texts. If that fails, the page stays as it is, and the reason is printed once.
local function try_refresh(self)
  local ok, why = pcall(refresh, self)
  local text = not ok and errors.text(why) or nil
  if text and text ~= self.said then
    errors.say("report: the page stays as it is, and is tried again every second: %s", text)
  end
  self.said = text
end

-- Serves the page about a sweep until a signal ends it. o: folder, name (of the experiment, or the
-- number of a sweep), port (0: any free one). Returns the exit code.
function server.run(o)
  local http, token = modules.load "http", new_token()
  local listening, why = http.open(o.port, token)
  if not listening then errors.raise(errors.FAILED, "report: %s", why) end
  local guard <close> = listening
  local self = { server = listening, folder = o.folder, name = o.name, curves = curves.new(),
    cards = cards.new(), set = {}, versions = {} }
  refresh(self)
  listening:set("", "text/html; charset=utf-8", page)
  core.sys.catch_signals()
  local address = ("http://127.0.0.1:%d/%s/\n"):format(listening:port(), token)
  local printed, lost = io.stdout:write(address)
  if printed then printed, lost = io.stdout:flush() end
  if not printed then
    errors.raise(errors.FAILED, "report: the address cannot be printed, so nobody could open the "
      .. "page: standard output: %s", lost)
  end
  errors.say("only this address opens the page; Ctrl-C ends it")
  local looked = core.sys.clock()
  repeat
    core.sys.sleep(LOOK_SECONDS)
    if core.sys.clock() - looked >= 1 then
      try_refresh(self)
      looked = core.sys.clock()
    end
  until errors.signal()
  return select(2, errors.signal())
end

return server
