-- commands/bench.lua: toeplab bench: measures time and memory beside PyTorch.
local arguments = require "toeplab.base.arguments"
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local gpu = require "toeplab.bench.gpu"
local grids = require "toeplab.bench.grids"
local result_store = require "toeplab.bench.result_store"
local json = require "toeplab.base.json"
local measure = require "toeplab.bench.measure"
local output = require "toeplab.report.output"
local plot = require "toeplab.report.figures.plot"
local progress = require "toeplab.base.progress"
local records = require "toeplab.store.records"
local text_table = require "toeplab.base.text_table"
local show = require "toeplab.bench.show"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local command = {
  example = "toeplab bench tno --quick\n  toeplab bench lm --threads 1,2\n"
    .. "  toeplab bench gpu --seconds 500 -o gpu",
  usage = "toeplab bench [WHAT]",
  about = "Measures WHAT, or all, in turns with PyTorch if that is installed. Prints medians and\n"
    .. "quartiles, pairwise ratios, and how close each comes to the machine's limits. The\n"
    .. "rows are stored as trials of the experiment bench-WHAT, with a figure. Without WHAT,\n"
    .. "lists what can be measured. Close other programs first. gpu: tests a GPU, then\n"
    .. "measures on it; without one, checks its kernels on the CPU.",
  words = { "bench" },
  options = {
    { name = "quick", short = "q", help = "under a minute each: fewer problems, repeats, peers" },
    { name = "repeats", short = "r", value = "N", help = "samples of each (default: by time)" },
    { name = "threads", value = "N,N", help = "thread counts, for all contestants" },
    { name = "lengths", value = "N,N", help = "only these lengths" },
    { name = "batches", value = "N,N", help = "only these batches" },
    { name = "dim", value = "N", help = "channels" },
    { name = "backends", value = "NAMES", of = "backends", list = true,
      help = "only these Toeplab backends" },
    { name = "precision", value = "NAMES", choices = core.precisions "cuda", list = true,
      help = "for matrix products (default: all available; on GPUs float32)",
      more = "On a GPU also for the operator, by the backends matrix and auto." },
    { name = "device", short = "d", value = "DEVICE", of = "devices",
      help = "the device: cpu, cuda, or cuda:1 for the second GPU",
      more = "All compute there. On a GPU the grid is another, and the memory is the GPU's." },
    { name = "seconds", value = "N", help = "begin nothing after N seconds (gpu: not even a check)",
      more = [[
        The most valuable comes first. With gpu, checks take at most 40 % of the time, several at
        once, and each measurement takes fewer samples.]] },
    { name = "output", short = "o", value = "FILE", writes = true,
      help = "the figure: FILE.svg or FILE.png; of gpu: a folder for results.jsonl" },
    output.csv, output.json, output.dir,
  },
}

-- ---- Options -----------------------------------------------------------------------------------

-- Returns an option as an ascending list of distinct positive integers, which exponents and
-- crossovers rely on; nil if it is not given.
local function integers(set, name)
  local words, list, seen = arguments.list("bench", set, name), {}, {}
  if not words then return nil end
  for _, word in ipairs(words) do
    local number = arguments.integer("bench", { [name] = word }, name, 1)
    if not seen[number] then list[#list + 1] = number end
    seen[number] = true
  end
  table.sort(list)
  return list
end

local function names(set, name, what, known)
  local list = arguments.list("bench", set, name)
  for _, word in ipairs(list or {}) do
    local ok, why = suggest.choose(what, word, known)
    if not ok then errors.usage("bench: %s", why) end
  end
  return list
end

local function parse_options(set, list, device, is_gpu)
  local o = {
    quick = set.quick, repeats = arguments.integer("bench", set, "repeats", 1),
    threads = integers(set, "threads") or { core.threads() }, lengths = integers(set, "lengths"),
    batches = integers(set, "batches"), dim = arguments.integer("bench", set, "dim", 1),
    backends = arguments.list("bench", set, "backends"),
    device = device,
  }
  local seconds = arguments.integer("bench", set, "seconds", 1)
  o.deadline = seconds and core.sys.now() + seconds
  local wrong = devices.wrong(o.device)
  if wrong then errors.usage("bench: %s", wrong) end
  o.precisions = names(set, "precision", "precision", core.precisions "cuda")
    or o.device == "cpu" and core.precisions "cpu" or { "float32" }
  for _, precision in ipairs(o.precisions) do
    wrong = devices.lacks(o.device, precision)
    if wrong then errors.usage("bench: %s", wrong) end
  end
  if #list > 1 and (set.backends or set.output and not is_gpu) then
    errors.usage("bench: --%s requires a single bench", set.backends and "backends" or "output")
  end
  if o.backends then grids.check_backends(list[1], o.backends) end
  for _, n in ipairs(o.lengths or {}) do
    if n < 2 then errors.usage("bench: --lengths takes integers from 2 up, got '%d'", n) end
  end
  local name = not is_gpu and set.output and set.output:lower()
  if name and not name:find "%.svg$" and not name:find "%.png$" then
    errors.usage("bench: --output %s: its name must end in .svg or .png", set.output)
  end
  return o
end

-- ---- Output ------------------------------------------------------------------------------------

-- Returns the function that prints notes: to stdout, or to stderr if stdout holds data.
local function say(set)
  local out = (set.json or set.csv) and io.stderr or io.stdout
  return function(format, ...)
    out:write(string.format(format, ...), "\n")
    out:flush()
  end
end

-- Returns a function that shows text as the progress line, or clears the line for "".
local function progress_line()
  local line = progress.new()
  line.last = core.sys.clock() -- quick steps show no progress
  return function(text)
    if text == "" then line:clear() else line:line(text) end
  end
end

-- Returns a row with its measurements as one flat table.
local function flat(row)
  local record, metrics = show.record(row)
  for key, value in pairs(metrics) do record[key] = value end
  return record
end

-- Returns the function that adds a line of JSON to results.jsonl in a new folder; one that does
-- nothing without a folder.
local function recorder(folder)
  if not folder then return function() end end
  errors.stored(core.sys.mkdir(folder))
  local path = folder .. "/results.jsonl"
  errors.stored(core.sys.write_file(path, ""))
  return function(t)
    local file <close> = assert(io.open(path, "a"))
    file:write(json.line(t), "\n")
  end
end

local function print_rows(set, name, rows, o)
  if set.json or set.csv then
    local list = {}
    for i, r in ipairs(rows) do list[i] = flat(r) end
    output.rows(set, output.columns(list))
    return
  end
  text_table.print(show.header, show.cells(rows))
  for _, line in ipairs(show.sentences(name, rows)) do o.say("%s", line) end
end

-- Draws the figure at the requested path, or among the figures of the results.
local function draw_figure(set, name, rows, number, folder, o)
  local path = not o.programs and set.output -- of gpu: a folder
  if not path then
    errors.stored(core.sys.mkdir(folder .. "/figures"))
    path = ("%s/figures/bench-%s-%d.svg"):format(folder, name, number)
  end
  local ok, why = plot.svg(path, show.picture(name, rows))
  if not ok and path == set.output then errors.raise(errors.FAILED, "bench: %s", why) end
  o.say("%s", ok and path or "no figure: " .. why)
end

-- ---- Running ----------------------------------------------------------------------------------

local function run_one(set, name, o, words)
  local folder = records.folder(set.dir)
  local run = result_store.run(name, grids.problems(name, o), folder, words)
  local gpu_name = o.device ~= "cpu" and select(2, core.look_at_device(o.device)) or nil
  local rows = measure.bench(name, o, function(list, limits)
    run:add(list, limits, gpu_name)
    for _, r in ipairs(list) do o.record(flat(r)) end
  end)
  o.progress ""
  if #rows == 0 then errors.raise(errors.FAILED, "bench %s: nothing could be measured", name) end
  for _, threads in ipairs(o.threads) do o.say("%s", show.limits(o.limits[threads])) end
  if not grids.get(name).peers then
    o.say("torch is not measured: bench %s has only Toeplab's backends", name)
  end
  print_rows(set, name, rows, o)
  run:close()
  o.say("run %d of bench-%s, stored in %s", run.number, name, folder)
  draw_figure(set, name, rows, run.number, folder, o)
end

local function device_of(set, what)
  local device = set.device or devices.usual()
  if what ~= "gpu" or device ~= "cpu" then return device end
  if set.device then errors.usage("bench gpu: the device 'cpu' is not a GPU") end
  return "cuda"
end

local function list_all()
  local rows = {}
  for i, name in ipairs(grids.names()) do rows[i] = { name, grids.get(name).about } end
  rows[#rows + 1] = { "all", "all of these" }
  rows[#rows + 1] = { "gpu", "ops, tno and lm on a GPU, after its tests" }
  text_table.print({ "what", "" }, rows)
end

function command.run(set, words, command_line)
  if #words == 0 and not next(set) then return list_all() end
  if #words == 0 then errors.usage("bench: which one? toeplab bench lists them") end
  output.check("bench", set)
  local known = grids.names()
  table.move({ "all", "gpu" }, 1, 2, #known + 1, known)
  local ok, why = suggest.choose("bench", words[1], known)
  if not ok then errors.usage("%s", why) end
  local device = device_of(set, words[1])
  local list = words[1] == "all" and grids.names(set.precision and { device = device })
    or words[1] == "gpu" and gpu.measured or { words[1] }
  if #words > 1 then errors.usage("bench: one at a time, got '%s' too", words[2]) end
  local o = parse_options(set, list, device, words[1] == "gpu")
  o.say, o.progress = say(set), progress_line()
  o.record = recorder(words[1] == "gpu" and set.output)
  local function measured(name, own)
    run_one(set, name, own, { "toeplab", table.unpack(command_line) })
  end
  if words[1] == "gpu" then return gpu.run(o, measured) end
  if o.device ~= "cpu" then
    local count, missing = core.look_at_device(o.device)
    if not count then errors.usage("bench: %s", missing) end
  end
  if set.precision and #list == 1 and not grids.takes_precision(list[1], o) then
    errors.usage("bench %s: on device %s it has no matrix products with a choice of precision, so "
      .. "--precision has no effect", list[1], device)
  end
  for _, name in ipairs(list) do measured(name, o) end
end

return command
