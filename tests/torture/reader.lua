-- reader.lua: runs eight workers while a reader holds a transaction of the store for a minute.
--   toeplab lua tests/torture/reader.lua FOLDER [SECONDS]
-- Fails if anything was locked, if the reader saw anything but its snapshot, or if the store made
-- the coordinator wait for 250 ms.
local core = require "toeplab.core"
local records = require "toeplab.store.records"
local runner = require "toeplab.runs.runner"

local WORST, WORKERS, PAUSE, METRICS = 0.25, 8, 0.02, 5

local folder, seconds = arg[1], tonumber(arg[2] or "60")

local function count(store) return store:exec("SELECT count(*) AS n FROM metrics")[1].n end

-- Holds a transaction in this process, and prints how many metrics it saw at the start and at the
-- end.
local function read()
  local store
  repeat
    core.sys.sleep(0.2)
    store = core.store(folder .. "/results", "r")
  until store and count(store) > 0
  store:exec "BEGIN"
  local before, began = count(store), core.sys.clock()
  while core.sys.clock() - began < seconds do
    core.sys.sleep(0.5)
    assert(count(store) == before, "another snapshot")
  end
  store:exec "COMMIT"
  print(("%d %d"):format(before, count(store)))
end

if arg[3] == "read" then
  read()
  return
end

local script = ([[
local tl = require "toeplab"
return tl.experiment "reader" {
  fixed = { steps = %d }, seeds = %d, checkpoint = { seconds = 2 },
  trial = function(t, c)
    local x = tl.zeros(64)
    local part = { state = function() return { x = x } end, load = function() end }
    for step in t:steps(c.steps, part, part) do
      local values = {}
      for i = 1, %d do values["metric" .. i] = step end
      t:log(values)
      tl.sys.sleep(%g)
    end
  end,
}]]):format(seconds * 1.1 / PAUSE, WORKERS, METRICS, PAUSE)

local seen = {} -- name of a call -> {calls, seconds of the longest}

-- Measures how long the method of the store's rows takes.
local function watch(class, name)
  local method, about = class[name], { calls = 0, longest = 0.0 }
  seen[name] = about
  class[name] = function(...)
    local began = core.sys.clock()
    local results = table.pack(method(...))
    about.calls = about.calls + 1
    about.longest = math.max(about.longest, core.sys.clock() - began)
    return table.unpack(results, 1, results.n)
  end
end

os.execute(("rm -rf '%s'"):format(folder))
assert(core.sys.mkdir(folder))
assert(core.sys.write_file(folder .. "/reader.lua", script))
local class
do
  local store <close> = records.open(folder .. "/results", "w")
  class = getmetatable(store)
end
for _, name in ipairs { "transaction", "rows" } do watch(class, name) end

local log = folder .. "/reader.log"
local reader = assert(core.sys.spawn({ core.sys.executable(), "lua", arg[0], folder,
  tostring(seconds), "read" }, log))
local said = {}
local out = { write = function(_, ...) said[#said + 1] = table.concat { ... } end,
  flush = function() end, isatty = function() return false end }
_G.print = function() end
local ok, code = pcall(runner.run, folder .. "/reader.lua", {}, { dir = folder .. "/results",
  jobs = WORKERS, threads = 1, out = out, command = { "toeplab", "run" } })
_G.print = nil
local reader_code = reader:wait(true)
local output = core.sys.read_file(log) or ""
local before, after = output:match "^(%d+) (%d+)\n$"
local all = output .. table.concat(said) .. tostring(code)
local locked = select(2, all:lower():gsub("locked", ""))
local good = ok and code == 0 and reader_code == 0 and before
  and tonumber(after) > 10 * tonumber(before) and locked == 0
for _, about in pairs(seen) do good = good and about.longest < WORST end
io.write(("%s reader held a transaction for %g s at %s of %s metrics; %d locked"):format(
  good and "ok" or "not ok", seconds, before, after, locked))
for _, name in ipairs { "transaction", "rows" } do
  io.write(("; %d calls of %s, the longest took %.0f ms"):format(seen[name].calls, name,
    seen[name].longest * 1e3))
end
io.write "\n"
if not good then io.write(all, "\n") end
os.exit(good == true)
