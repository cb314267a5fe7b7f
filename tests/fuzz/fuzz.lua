-- fuzz.lua: feeds mutated inputs to a program built with sanitisers. It must not crash, hang, or
-- fail other than with an intended error.
--   toeplab lua tests/fuzz/fuzz.lua TARGET [SECONDS [SEED]]
--     TARGET: config, journal, database, checkpoint, hdf5, bpe, json, safetensors, npz, npy
--   cd EMPTY_FOLDER && toeplab lua .../tests/fuzz/fuzz.lua words [SECONDS [SEED]] </dev/null
--
-- SECONDS are processor time: on a busy machine the test takes longer, and tries as many inputs.
-- FOLDER/input holds the current input, so that one that crashes is not lost. The folder is printed
-- first, and removed if nothing is found.
local core = require "toeplab.core"
local checkpoint = require "toeplab.models.files.checkpoint"
local config = require "toeplab.base.config"
local experiment = require "toeplab.trials.experiment"
local identity = require "toeplab.trials.identity"
local journal = require "toeplab.store.journal"
local plan = require "toeplab.trials.plan"
local records = require "toeplab.store.records"
local sweeps = require "toeplab.store.sweeps"
local errors = require "toeplab.base.errors"
local tensor_files = require "toeplab.models.files.tensor_files"
local wire = require "toeplab.base.wire"

local SLOW = 5 -- no input may take so many seconds

local which, seconds = arg[1] or "", tonumber(arg[2] or 10)
local seed = math.tointeger(tonumber(arg[3] or os.time()))
local tests = arg[0]:match "^(.*)fuzz/[^/]*$"
local stream = core.stream(seed, "fuzz")
local folder = "."
if which ~= "words" then
  folder = os.tmpname()
  os.remove(folder)
  assert(core.sys.mkdir(folder))
elseif #core.sys.list(folder) > 0 then
  error("words: the current folder is not empty, and what they write goes there")
end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function below(n) return stream:below(n) end

local function pick(list) return list[1 + below(#list)] end

-- ---- Mutations --------------------------------------------------------------------------------

local numbers = { "0", "-1", "1", "255", "256", "65536", "2147483647", "2147483648", "-2147483648",
  "4294967296", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e308",
  "1e999", "-1e999", "nan", "inf", "0x7fffffffffffffff", "1e-320", "0.1", "", " ", "%", "\0",
  "\n", ",", "=", "-", "+", "'", "\xff\xfe", "true", "nil" }

local mutations = {
  function(s, at) -- flips a bit
    if #s == 0 then return s end
    return s:sub(1, at - 1) .. string.char(s:byte(at) ~ (1 << below(8))) .. s:sub(at + 1)
  end,
  function(s, at) return s:sub(1, at - 1) .. string.char(below(256)) .. s:sub(at + 1) end,
  function(s, at) return s:sub(1, at - 1) .. s:sub(at + 1 + below(16)) end, -- removes a piece
  function(s, at) -- repeats a piece
    local piece = s:sub(at, at + below(64))
    return s:sub(1, at) .. piece .. s:sub(at + 1)
  end,
  function(s, at) return s:sub(1, at) .. pick(numbers) .. s:sub(at + 1) end,
  function(s, at) return s:sub(1, at - 1) end, -- cut
  function(s, at) -- replaces a few bytes by those of a number
    local bytes = string.pack(pick { "<i4", "<i8", ">i4", ">i8", "<i2" }, pick { 0, 1, -1, 32767 })
    return s:sub(1, at - 1) .. bytes .. s:sub(at + #bytes)
  end,
  function(s, at) -- replaces a number in the text by another
    local from, to = s:find("%-?%d+%.?%d*", at)
    if not from then return s end
    return s:sub(1, from - 1) .. pick(numbers) .. s:sub(to + 1)
  end,
}

-- Changes only values, so that the text keeps its form.
local function revalue(s)
  for _ = 1, 1 + below(3) do
    local at = 1 + below(#s)
    local from, to = s:find(pick { "%-?%d+%.?%d*", '"[^"\n]*"', "true" }, at)
    if from then
      local value = below(3) == 0 and ("%q"):format(pick(numbers)) or pick { "-1", "0", "1e999",
        "2147483648", "0.5", "nil", "{}", "{ 1 }", '"x"', "false", "print", "0/0", "{ a = 1 }" }
      s = s:sub(1, from - 1) .. value .. s:sub(to + 1)
    end
  end
  return s
end

local function mutate(s)
  for _ = 1, 1 + below(4) do s = pick(mutations)(s, 1 + below(math.max(1, #s))) end
  return s
end

-- Changes bytes in place: nothing after them moves, so that more of the file is read.
local function in_place(s)
  for _ = 1, 1 + below(4) do s = mutations[pick { 1, 2, 7 }](s, 1 + below(#s)) end
  return s
end

-- Errors of Lua itself are defects of the library, unless a mutated script made them.
local function slip(why)
  if errors.is(why) then return false end
  local text = tostring(type(why) == "table" and why.message or why)
  if which == "config" then return not text:find "x%.lua:%d+:" end -- a usage error is expected
  local ours = text:find "attempt to " or text:find "bad argument" or text:find "stack overflow"
    or text:find "number has no integer representation"
  return ours and not text:find "x%.lua:%d+:"
end

-- ---- Targets ----------------------------------------------------------------------------------

-- Each target returns a function that tries one mutated input.
local targets = {}

local script = [[
local tl = require "toeplab"
return tl.experiment "fuzz" {
  fixed = { steps = 10, lr = 0.1, name = "a", deep = true, sizes = { 1, 2 } },
  grid = { decay = { 0.99, "learnable" }, width = { 4, 8 } },
  zip = { length = { 8, 16 }, batch = { 4, 2 } },
  random = { draws = 2, seed = 0, rate = { "log", 1e-4, 1e-2 }, act = { "choice", "a", "b" } },
  when = { { where = { width = 4 }, grid = { layers = { 1, 2 } } } },
  except = { { where = { width = 8, length = 16 }, reason = "none" } },
  guard = { metric = "loss", nan = "rollback", zscore = 6, window = 16, retries = 1 },
  prune = { metric = "loss", rule = "asha", eta = 3, min_steps = 2 },
  budget = { trial = "30m", total = "4h", memory = "6G" },
  scale = { smoke = { steps = 2, layers = 1 }, paper = { steps = 5, layers = 3 } },
  checkpoint = { steps = 5 }, seeds = 2,
  trial = function() end,
  report = { rows = "decay", columns = { "loss" } },
}
]]

local words = { "scale=smoke", "seeds=3", "seed=1,2", "draws=3", "steps=7", "lr=1e-3", "name=x",
  "deep=false", "sizes=1,2,3", "decay=0.5,learnable", "width=4,16", "length=8,16,32", "batch=1,2,3",
  "rate=0.1,0.2", "act=a", "layers=1,2", "scale=paper" }

-- A valid large count makes as many trials, which is not a finding.
local function huge(text)
  for count in text:gmatch "%d[%d.eExXa-f]*" do
    if (tonumber(count) or 0) > 200 then return true end
  end
  return false
end

function targets.config()
  local path = folder .. "/input"
  return function()
    local text, given = script, { "scale=smoke" }
    local kind = below(8)
    if kind < 4 then
      text = kind == 0 and mutate(script) or revalue(script)
    else
      for i = 1, 1 + below(3) do
        local key, value = pick(words):match "^(.-=)(.*)$"
        given[i] = below(8) == 0 and mutate(key .. value) or key .. mutate(value)
      end
      if below(2) == 0 then given[#given + 1] = "scale=smoke" end
      for i = #given, 1, -1 do
        if given[i]:find "^s?e?e?d" and huge(given[i]) then table.remove(given, i) end
      end
    end
    if text:find "seeds%s*=%s*%d%d%d%d" or text:find "draws%s*=%s*%d%d%d%d" then return end
    write(path, text .. "\n-- " .. table.concat(given, " "):gsub("%c", "?"))
    write(folder .. "/x.lua", text)
    local exp = experiment.load(folder .. "/x.lua")
    local trials = plan.trials(exp, given)
    identity.identify(exp, trials)
    local c = config.new(trials[1].config)
    return c.steps
  end
end

-- Makes a store with a trial, its journal and checkpoint, in folder/NAME.
local function make_store(name)
  local where = folder .. "/" .. name
  local store <close> = records.open(where, "w")
  local sweep = store:sweep { experiment = "x", script = "x.lua", sha256 = core.sha256 "x",
    source = "x", command = "toeplab run x.lua", scale = "", plan = '{"overrides":[]}' }
  local t = { id = core.sha256 "x", experiment = "x", json = '{"a":1,"seed":1}', seed = 1,
    code_hash = "c", data_hash = "", data = {}, label = "a=1", provenance = {},
    path = "runs/" .. core.sha256("x"):sub(1, 12) }
  store:enlist(sweep, sweeps.rows_of { t })
  assert(core.sys.mkdir(where .. "/" .. t.path))
  store:begin(t, 1)
  local out = journal.writer(where .. "/" .. journal.path(t.path, 1))
  for step = 1, 40 do
    out:add { { "metric", step, "loss", 1 / step }, { "metric", step, "a b%", 0 / 0 } }
  end
  out:add { { "artifact", "checkpoint", 40, t.path .. "/step-00000040.h5", 100, ("0"):rep(64) },
    { "step", 40, 1.5 }, { "event", 3, "rollback", "why" }, { "forget", 39 },
    { "drop", "runs/x" } }
  out:add { { "end", "done", nil, nil, 2.5, n = 5 } }
  out:close()
  return where, t
end

-- Gives the records of a journal the hashes that match their text.
local function seal(text)
  local parts = {}
  for lines in (text .. "= \n"):gmatch "(.-)= [^\n]*\n" do
    parts[#parts + 1] = lines .. ("= %s\n"):format(core.sha256(lines):sub(1, 16))
  end
  return table.concat(parts)
end

function targets.journal()
  local where, t = make_store "store"
  local path = where .. "/" .. journal.path(t.path, 1)
  local whole = read(path)
  local reader = wire.reader()
  return function()
    local text = mutate(whole)
    if below(3) == 0 then text = seal(text) end
    write(folder .. "/input", text)
    write(path, text)
    reader(text:sub(1, 1 + below(#text + 1)))
    local store <close> = records.open(where, "w")
    store:rows "UPDATE journals SET bytes = 0"
    store:rows "DELETE FROM metrics"
    return store:take(t)
  end
end

local questions = {
  "SELECT * FROM v_trials ORDER BY started DESC", "SELECT * FROM v_metrics ORDER BY name, step",
  "SELECT * FROM v_last", "SELECT * FROM v_artifacts", "SELECT * FROM v_members",
  "SELECT * FROM v_events", "SELECT count(*) FROM v_trash", "PRAGMA integrity_check",
  "SELECT json_extract(config, '$.a') FROM v_trials",
}

function targets.database()
  local where, t = make_store "store"
  do
    local store <close> = records.open(where, "w")
    store:take(t)
    store:rows "PRAGMA wal_checkpoint(TRUNCATE)"
  end
  local path = where .. "/runs.db"
  local whole = read(path)
  return function()
    local text = mutate(whole)
    write(folder .. "/input", text)
    for _, name in ipairs { "-wal", "-shm" } do os.remove(path .. name) end
    write(path, text)
    local store <close> = records.open(where, below(2) == 0 and "r" or "w")
    for _, sql in ipairs(questions) do
      local ok, why = pcall(store.rows, store, sql)
      if not ok and below(2) == 0 then error(why, 0) end
    end
    store:status(t.id)
    store:results(t.id)
    return store:open_journals()
  end
end

function targets.checkpoint()
  local path = folder .. "/x.h5"
  checkpoint.write(path, { step = 3, model = { ["a.weight"] = core.range(1, 600),
    ["b.bias"] = core.zeros(3, 5), [2] = core.ids { 1, 2, 3 } },
    best = { value = 0.5, ended = true }, name = "some text", empty = {},
    streams = { init = { key = 1, offset = 2 } } })
  local whole = read(path)
  return function()
    -- Without our trailer (core/store/trailer.c) the damage reaches HDF5.
    local text = mutate(below(3) == 0 and whole or whole:sub(1, -25))
    write(folder .. "/input", text)
    write(path, text)
    local state = checkpoint.read(path, below(3) == 0 and "model" or nil)
    collectgarbage()
    return state
  end
end

-- Calls fn, in which the engine may use only a little more memory than bytes.
local function thrifty(bytes, fn)
  collectgarbage()
  core.memory_reset_peak()
  local before = core.memory().live
  local ok, why = pcall(fn)
  local most = core.memory().peak - before
  if most > bytes + (1 << 22) then
    error(("attempt to use %d bytes where %d are meant"):format(most, bytes), 0)
  end
  if not ok then error(why, 0) end
end

-- Reads everything in a file, as far as it can be read.
local function walk(file, path)
  pcall(file.attrs, file, path == "" and "/" or path)
  for _, child in ipairs(file:children(path == "" and "/" or path)) do
    local name = path .. "/" .. child.name
    local ok, why = pcall(child.kind == "group" and walk or file.read, file, name)
    if not ok and slip(why) then error(why, 0) end
  end
end

-- Files without our trailer have no checksum, so that damage reaches libhdf5.
function targets.hdf5()
  local path = folder .. "/input"
  local whole = {}
  for i, name in ipairs { "foreign.h5", "reference.h5", "strange.h5", "partly.h5" } do
    whole[i] = read(tests .. name)
  end
  return function()
    local text = pick(whole)
    text = below(4) == 0 and mutate(text) or in_place(text)
    write(path, text)
    thrifty(1100 * #text, function() -- what deflate can expand to
      local file <close> = core.h5_open(path)
      walk(file, "")
    end)
  end
end

local function files() -- the interface of vocabularies.lua
  return { folder = folder, tests = tests, read = read, write = write, below = below,
    mutate = mutate, thrifty = thrifty }
end

function targets.bpe() return require "vocabularies" (files(), 1, 3) end

function targets.json() return require "vocabularies" (files(), 2, 2) end

-- Files of tensors of other programs; elements of 16 bits are read into 32.
local function tensor_target(ending)
  local path = ("%s/x.%s"):format(folder, ending)
  local some = { ["a.weight"] = core.range(1, 60), ["b.bias"] = core.zeros(3, 5),
    c = core.ids { 1 } }
  tensor_files.save(path, ending == "npy" and some["a.weight"] or some,
    ending == "safetensors" and { bf16 = true, metadata = { format = "pt" } } or nil)
  local whole = read(path)
  return function()
    local text = below(2) == 0 and mutate(whole) or in_place(whole)
    write(folder .. "/input", text)
    write(path, text)
    thrifty(8 * #text, function() tensor_files.load(path) end)
  end
end

for _, ending in ipairs { "safetensors", "npz", "npy" } do
  targets[ending] = function() return tensor_target(ending) end
end

function targets.words()
  return require "words" { script = script, store = make_store, read = read, write = write,
    below = below, pick = pick, mutate = mutate }
end

-- ---- The loop ---------------------------------------------------------------------------------

local make = targets[which]
if not make then
  io.stderr:write("usage: fuzz.lua config|journal|database|checkpoint|hdf5|bpe|json|safetensors|"
    .. "npz|npy|words [SECONDS [SEED]]\n")
  os.exit(2)
end
print(("%s, seed %d, in %s"):format(which, seed, folder))
io.stdout:flush()
local try = make()
local clock = which == "hdf5" and core.sys.clock or os.clock -- a child process reads the files
local count, refused, found = 0, 0, 0
while os.clock() < seconds do
  local start = clock()
  local ok, why = xpcall(try, function(e)
    return slip(e) and debug.traceback(tostring(e)) or e
  end)
  count = count + 1
  if not ok then refused = refused + 1 end
  local took = clock() - start
  if took > SLOW or not ok and slip(why) then
    found = found + 1
    local saved = ("%s/found-%d"):format(folder, found)
    core.sys.rename(folder .. "/input", saved)
    print(("found, %s (%.1f s): %s"):format(saved, took, tostring(why)))
    if found >= 10 then break end
  end
end
print(("%s: %d inputs in %.0f s of processor time, %d refused, %d found"):format(which, count,
  os.clock(), refused, found))
if found == 0 and which == "words" then
  os.execute "rm -rf ./* ./.[!.]*"
elseif found == 0 then
  os.execute("rm -rf '" .. folder .. "'")
end
os.exit(found == 0)
