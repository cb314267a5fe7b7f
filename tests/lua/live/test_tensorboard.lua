-- test_tensorboard.lua: the event files about trials, read back as TensorBoard reads them: the
-- files of a folder in the order of their names, and each `restart` forgets the steps from its own
-- on.
local t = require "harness"
local core = require "toeplab.core"
local modules = require "toeplab.live.modules"
local shell = require "toeplab.base.shell"
local tensorboard = require "toeplab.live.tensorboard"
local trials = require "trials"

-- ---- Reading ----------------------------------------------------------------------------------

local function crc32c(text)
  local crc = 0xffffffff
  for i = 1, #text do
    crc = crc ~ text:byte(i)
    for _ = 1, 8 do crc = crc >> 1 ~ (0x82f63b78 & -(crc & 1)) end
  end
  return crc ~ 0xffffffff
end

local function check(text)
  local crc = crc32c(text)
  return ((crc >> 15 | crc << 17) & 0xffffffff) + 0xa282ead8 & 0xffffffff
end

-- Returns the messages of the records in text; raises if one is torn or damaged.
local function messages(text)
  local list, at = {}, 1
  while at <= #text do
    local size, of_size = ("<I8I4"):unpack(text, at)
    t.eq(of_size, check(text:sub(at, at + 7)))
    local message = text:sub(at + 12, at + 11 + size)
    t.eq(("<I4"):unpack(text, at + 12 + size), check(message))
    list[#list + 1], at = message, at + 16 + size
  end
  return list
end

local function varint(text, at)
  local value, shift = 0, 0
  repeat
    local byte = text:byte(at)
    value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
  until byte < 128
  return value, at
end

local formats = { [1] = "<d", [5] = "<f" }

-- Calls fn(number, value) for each field of a message of protocol buffers.
local function fields(text, fn)
  local at = 1
  while at <= #text do
    local key, value
    key, at = varint(text, at)
    local kind = key & 7
    if kind == 0 then
      value, at = varint(text, at)
    elseif kind == 2 then
      local size
      size, at = varint(text, at)
      value, at = text:sub(at, at + size - 1), at + size
    else
      value, at = formats[kind]:unpack(text, at)
    end
    fn(key >> 3, value)
  end
end

-- Returns the fields of a message that occur once each, by their numbers.
local function single(text)
  local set = {}
  fields(text, function(number, value) set[number] = value end)
  return set
end

-- Returns hyperparameters: names -> values.
local function hyperparameters(content)
  local set = {}
  fields(single(content)[3], function(number, entry)
    if number ~= 1 then return end
    local pair = single(entry)
    local value = single(pair[2])
    set[pair[1]] = value[2] or value[3] or value[4] == 1
  end)
  return set
end

-- Adds what the events in text say to r: {curves= (tag -> step -> value), twice= (values of a step
-- that was there), settings=, good=, restarts=}.
local function add_events(r, text)
  local list = messages(text)
  t.eq(single(list[1])[3], "brain.Event:2")
  for _, message in ipairs(list) do
    local event = single(message)
    local step = event[2] or 0
    t.ok(math.abs(event[1] - core.sys.now()) < 600, "a time")
    if event[7] then
      t.eq(single(event[7])[1], 1)
      r.restarts = r.restarts + 1
      for _, curve in pairs(r.curves) do
        for at in pairs(curve) do
          if at >= step then curve[at] = nil end
        end
      end
    end
    fields(event[5] or "", function(_, text)
      local value = single(text)
      local plugin = value[9] and single(single(value[9])[1])
      if value[1] == "_hparams_/session_start_info" then
        r.settings = hyperparameters(plugin[2])
      elseif value[1] == "_hparams_/session_end_info" then
        r.good = single(single(plugin[2])[4])[1] == 1
      else
        local curve = r.curves[value[1]] or {}
        r.twice = r.twice + (curve[step] and 1 or 0)
        r.curves[value[1]], curve[step] = curve, value[2]
      end
    end)
  end
end

-- Returns what the files in a folder say, and their number.
local function read_folder(folder)
  local r = { curves = {}, twice = 0, restarts = 0 }
  local names = core.sys.list(folder)
  for _, name in ipairs(names) do add_events(r, t.read(folder .. "/" .. name)) end
  return r, #names
end

-- Returns the folders of the trials below an experiment's folder.
local function folders(above)
  local list = core.sys.list(above) or {}
  for i, name in ipairs(list) do list[i] = above .. "/" .. name end
  return list
end

-- ---- Tests ------------------------------------------------------------------------------------

t.test("the checksum is CRC-32C", function() t.eq(crc32c "123456789", 0xe3069283) end)

t.test("a build without the module names the packages to install", function()
  local real, on_path = core.backends, shell.on_path
  core.backends = function() return { { path = "/nowhere/backends/naive.so" } } end
  shell.on_path = function() return true end -- also apt-get
  local ok, why = pcall(tensorboard.new, "x")
  local served, why_not = pcall(modules.load, "http")
  core.backends, shell.on_path = real, on_path
  t.eq({ ok, why.code, served, why_not.code }, { false, 2, false, 2 })
  t.ok(why.message:find "lacks: apt install libprotobuf%-c%-dev protobuf%-c%-compiler")
  t.ok(why_not.message:find "lacks: apt install libmicrohttpd%-dev")
end)

-- Adds a test that needs the module.
local here, missing = modules.file "tensorboard"
local function test(name, fn)
  t.test(name, here and fn or function() t.skip(missing) end)
end

-- Its trials wait until their first value is in a file, so that they fail if it comes only later.
local script = [[
local tl = require "toeplab"
return tl.experiment "watched" {
  fixed = { steps = 9, files = "", broken = false },
  grid = { width = { 1, 2 }, flag = { true } },
  checkpoint = { steps = 2 },
  trial = function(t, c)
    local model = tl.nn.Linear(1, 1)
    local opt = tl.optim.sgd(model, { lr = 0.1 })
    for step in t:steps(c.steps, model, opt) do
      t:log { loss = c.width + step / 8 }
      t:log({ lag = step }, 40)
      if c.broken and step == 7 then error "planned" end
    end
    t:log { ["val/acc"] = c.flag and 0.5 or 0 }
    local since, size = tl.sys.clock(), 0
    repeat
      for _, name in ipairs(tl.sys.list(c.files) or {}) do
        if name:find("width=" .. c.width) then
          local folder = c.files .. "/" .. name
          for _, file in ipairs(tl.sys.list(folder)) do
            local text = tl.sys.read_file(folder .. "/" .. file)
            if text:find("val/acc", 1, true) then return end
          end
        end
      end
      tl.sys.sleep(0.05)
    until tl.sys.clock() - since > 8
    error "no value is in a file while the trial runs"
  end,
  report = function() end,
}
]]

local function expect_curve(curve, width, steps)
  local count = 0
  for step, value in pairs(curve) do
    t.eq(value, width + step / 8)
    count = count + 1
  end
  t.eq(count, steps)
end

test("curves arrive while trials run, with the varied keys", function()
  t.in_folder(function(folder)
    local files = folder .. "/tb"
    local code, said = trials.run(folder, script, { "files=" .. files .. "/watched" },
      { follow = tensorboard.new(files) })
    t.ok(code == 0, said)
    local list = folders(files .. "/watched")
    t.eq(#list, 2)
    for i, path in ipairs(list) do
      local r, count = read_folder(path)
      t.eq({ count, r.twice, r.good }, { 1, 0, true })
      t.eq(r.settings, { width = i, flag = true, seed = 1 })
      expect_curve(r.curves.loss, i, 9)
      t.eq(r.curves.lag, { [40] = 9 })
      t.eq(r.curves["val/acc"], { [9] = 0.5 })
    end
  end)
end)

test("a trial that stops and resumes has each step once", function()
  t.in_folder(function(folder)
    local files = folder .. "/tb"
    local code, runs = trials.run_stopped(folder, script, { 4, 7 }, "step",
      { "files=" .. files .. "/watched", "width=2" }, { follow = tensorboard.new(files) })
    t.eq({ code, runs }, { 0, 3 })
    local list = folders(files .. "/watched")
    t.eq(#list, 1)
    local r, count = read_folder(list[1])
    t.eq({ count, r.twice, r.good }, { 3, 0, true })
    t.ok(r.restarts >= 2, "restarts")
    expect_curve(r.curves.loss, 2, 9)
  end)
end)

test("a failed trial is marked as one", function()
  t.in_folder(function(folder)
    local files = folder .. "/tb"
    local words = { "files=" .. files .. "/watched", "width=1", "broken=true" }
    t.eq(trials.run(folder, script, words, { follow = tensorboard.new(files) }), 1)
    local r = read_folder(folders(files .. "/watched")[1])
    t.eq(r.good, false)
    expect_curve(r.curves.loss, 1, 7)
  end)
end)

test("files that cannot be written are a warning, and the run continues", function()
  t.in_folder(function(folder)
    local plain = script:gsub("local since, size.-\n  end,", "  end,")
    t.write(folder .. "/tb", "a file where the folder should be")
    local code = trials.run(folder, plain, { "width=1" },
      { follow = tensorboard.new(folder .. "/tb") })
    t.eq(code, 0)
    t.eq(t.read(folder .. "/tb"), "a file where the folder should be")
  end)
end)

test("export writes the same curves from the store, and replaces older files", function()
  t.in_folder(function(folder)
    local files, plain = folder .. "/tb", script:gsub("local since, size.-\n  end,", "  end,")
    t.eq(trials.run(folder, plain, {}), 0)
    local command = ("'%s' export -C '%s/results' --tensorboard '%s' 2>&1"):format(
      core.sys.executable(), folder, files)
    for _ = 1, 2 do
      local said, code = t.shell(command)
      t.eq({ said, code }, { files .. ": 2 trials\n", 0 })
      local list = folders(files .. "/watched")
      t.eq(#list, 2)
      for i, path in ipairs(list) do
        local r, count = read_folder(path)
        t.eq({ count, r.twice, r.good, r.restarts }, { 1, 0, true, 0 })
        t.eq(r.settings, { width = i, flag = true, seed = 1 })
        expect_curve(r.curves.loss, i, 9)
      end
    end
  end)
end)

t.done()
