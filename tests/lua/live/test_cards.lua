-- test_cards.lua: the GPUs that trials of a store use, by an nvidia-smi of our own.
local t = require "harness"
local cards = require "toeplab.live.cards"
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local json = require "toeplab.base.json"
local records = require "toeplab.store.records"
local stores = require "stores"

local host, me = core.sys.hostname(), core.sys.getpid()
local ANSWER = "0, 97, 1000, 80000\n1, 3, 0, 80000\n2, [N/A], [N/A], [N/A]\n"

-- Fills a store with trials that this process runs, or the given one: {name=, device=, visible=,
-- ranks=, job=, host=, pid=, status=}.
local function fill(folder, trials)
  for i, one in ipairs(trials) do
    trials[i] = { name = one.name, experiment = "x", config = { ranks = one.ranks or 1 },
      status = one.status or "running", host = one.host or host, pid = one.pid or me, about = one }
  end
  stores.fill(folder, trials)
  local store <close> = records.open(folder, "w")
  for _, one in ipairs(trials) do
    store:rows("UPDATE trials SET provenance = json_patch(provenance, ?) WHERE id = ?",
      { json.encode { device = one.about.device, job = one.about.job,
        environment = { CUDA_VISIBLE_DEVICES = one.about.visible } }, stores.id(one.name) })
  end
end

-- Calls fn(store, starts, pass) for a store with these trials, where nvidia-smi is a script (nil:
-- none). starts: returns how often it was started; pass(seconds): lets that much time go by.
local function with(trials, script, fn)
  t.in_folder(function(folder)
    fill(folder .. "/r", trials)
    if script then
      local count = ("#!/bin/sh\necho $* >>'%s/starts'\n"):format(folder)
      core.sys.write_file(folder .. "/nvidia-smi", count .. script)
      os.execute(("chmod +x '%s/nvidia-smi'"):format(folder))
    end
    local spawn, clock, later = core.sys.spawn, core.sys.clock, 0
    local guard <close> = defer(function() core.sys.spawn, core.sys.clock = spawn, clock end)
    core.sys.spawn = function(words)
      return spawn { "/usr/bin/env", "PATH=" .. folder .. ":/usr/bin:/bin", table.unpack(words) }
    end
    core.sys.clock = function() return clock() + later end
    local store <close> = records.open(folder .. "/r", "r")
    fn(store, function()
      return select(2, (core.sys.read_file(folder .. "/starts") or ""):gsub("\n", ""))
    end, function(seconds) later = later + seconds end)
  end)
end

local answers = "printf '" .. ANSWER:gsub("\n", "\\n") .. "'\n"
local ONE = "gpu 0    97 %   1.0 GB of 83.9 GB   "
local TWO = "gpu 1     3 %   0 B of 83.9 GB   "
local THREE = "gpu 2     ? %   ? of ?   "

local function on(device, more)
  local one = more or {}
  one.name, one.device = one.name or "a", device
  return one
end

t.test("a line for each GPU with trials of this machine", function()
  for name, case in pairs {
    one = { { on "cuda:0: H200" }, { ONE .. "a" } },
    ["two on one"] = { { on "cuda:1: H200", on("cuda:1: H200", { name = "b" }) },
      { TWO .. "a, b" } },
    ["numbers that the card does not know"] = { { on "cuda:2: H200" }, { THREE .. "a" } },
    ["a plugin by its path"] = { { on "/x:3: y/cuda.so:1: H200" }, {} },
    ["a plugin by a plain path"] = { { on "/x/cuda.so:1: H200" }, { TWO .. "a" } },
    ["CUDA_VISIBLE_DEVICES"] = { { on("cuda:1: H200", { visible = "2,0" }) }, { ONE .. "a" } },
    ["... by name"] = { { on("cuda:0: H200", { visible = "GPU-8f" }) }, { ONE, TWO, THREE } },
    ["several ranks"] = { { on("cuda:0: H200", { ranks = 2 }), on("cuda:1: H200",
      { name = "b" }) }, { ONE, TWO .. "b", THREE } },
    ["a job"] = { { on("cuda:0: H200", { job = "12_1" }) }, { ONE, TWO, THREE } },
    ["another machine"] = { { on("cuda:0: H200", { host = "elsewhere" }) }, {}, 0 },
    ["a process that has died"] = { { on("cuda:0: H200", { pid = stores.gone }) }, {}, 0 },
    ["no longer"] = { { on("cuda:0: H200", { status = "done" }) }, {}, 0 },
    ["the CPU"] = { { on(nil) }, {}, 0 },
  } do
    with(case[1], answers, function(store, starts)
      t.eq({ name, cards.new():lines(store, 20) }, { name, case[2] })
      t.eq({ name, starts() }, { name, case[3] or 1 })
    end)
  end
end)

t.test("it asks every 2 seconds, for what it needs", function()
  with({ on "cuda:0: H200" }, answers, function(store, starts, pass)
    local self = cards.new()
    t.eq(self:lines(store, 20), { ONE .. "a" })
    pass(1)
    t.eq({ self:lines(store, 20), starts() }, { { ONE .. "a" }, 1 })
    pass(1.1)
    t.eq({ self:lines(store, 20), starts() }, { { ONE .. "a" }, 2 })
  end)
end)

t.test("an nvidia-smi that is missing, fails or hangs is silent, and is left alone", function()
  for name, case in pairs {
    missing = { nil, 0 },
    fails = { "echo 'NVIDIA-SMI has failed because no driver answers.'; exit 9\n", 1 },
    hangs = { "echo 0, 1, 1, 1; exec sleep 1000\n", 1 },
  } do
    with({ on "cuda:0: H200" }, case[1], function(store, starts, pass)
      local self = cards.new()
      local before = os.time()
      t.eq({ name, self:lines(store, 0.2) }, { name, {} })
      pass(6)
      t.eq({ name, self:lines(store) }, { name, {} })
      pass(50)
      t.eq({ name, self:lines(store, 0.2), starts() }, { name, {}, case[2] })
      pass(11)
      t.eq({ name, self:lines(store, 0.2), starts() }, { name, {}, 2 * case[2] })
      t.ok(os.time() - before < 60, name .. ": something waited")
    end)
  end
end)

t.test("what was shown ends when nvidia-smi begins to hang", function()
  local once = "[ -e \"$0.second\" ] && exec sleep 1000; touch \"$0.second\"\n" .. answers
  with({ on "cuda:0: H200" }, once, function(store, _, pass)
    local self = cards.new()
    t.eq(self:lines(store, 20), { ONE .. "a" })
    pass(3)
    t.eq(self:lines(store), { ONE .. "a" })
    pass(6)
    t.eq(self:lines(store), {})
  end)
end)

t.test("status shows them too", function()
  t.in_folder(function(folder)
    fill(folder .. "/r", { on "cuda:0: H200" })
    core.sys.write_file(folder .. "/nvidia-smi", "#!/bin/sh\n" .. answers)
    local text = t.shell(("chmod +x '%s/nvidia-smi'; PATH='%s':$PATH '%s' status -C '%s/r'"):format(
      folder, folder, core.sys.executable(), folder))
    t.ok(text:find("\n" .. ONE .. "a\n", 1, true), text)
  end)
end)

t.done()
