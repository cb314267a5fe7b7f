-- test_bench.lua -- what benches measure, how rows are timed, compared, shown and stored; peers.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local count = require "toeplab.bench.count"
local grids = require "toeplab.bench.grids"
local result_store = require "toeplab.bench.result_store"
local measure = require "toeplab.bench.measure"
local mixers = require "toeplab.nn.mixers"
local peer = require "toeplab.bench.peer"
local records = require "toeplab.store.records"
local recurrent = require "toeplab.models.recurrent"
local shell = require "toeplab.base.shell"
local show = require "toeplab.bench.show"
local timing = require "toeplab.bench.timing"
local workloads = require "toeplab.bench.workloads"

-- ---- Times ------------------------------------------------------------------------------------

t.test("rows are timed in turns, and have medians and quartiles", function()
  local order, rows = {}, {}
  for i = 1, 2 do
    rows[i] = { rest = 0, run = function()
      order[#order + 1] = i
      return i + 0.0
    end }
  end
  timing.interleaved(rows, 3)
  t.eq(order, { 1, 2, 1, 2, 1, 2 })
  t.eq(rows[2].samples, { 2, 2, 2 })
  t.eq({ timing.quartiles { 5, 1, 4, 2, 3 } }, { 2, 3, 4 })
  t.eq(timing.mean { 2, 8 }, 4, 1e-12)
end)

t.test("slow rows have fewer repeats", function()
  t.eq({ measure.repeats(1e-3, true), measure.repeats(1, true), measure.repeats(100, true) },
    { 7, 3, 3 })
  t.eq({ measure.repeats(1e-3), measure.repeats(4), measure.repeats(100) }, { 11, 5, 5 })
end)

t.test("a GPU is measured for longer and does not rest", function()
  t.eq({ measure.sampling("cuda:1", false) }, { 0.2, 0.0 })
  t.eq({ measure.sampling("cpu", true), measure.sampling("/x.so", false) }, { 0.02, 0.02, 0.15 })
end)

t.test("work is counted by formula", function()
  t.eq({ count.of { what = "gemm", n = 10 } }, { 2000, 1200 })
  local p = { what = "tno", n = 8, b = 2, dim = 3, causal = true, pass = "fwd" }
  local flop, bytes = count.of(p) -- 5 transforms of 5 8 3, 2 products of 6 8
  t.eq({ flop, bytes }, { 3 * (5 * 120 + 96), 4 * (2 * 48 + 24) }, 1e-9)
  p.pass, p.causal = "fwd+bwd", false -- 12 transforms, 6 products
  flop, bytes = count.of(p)
  t.eq({ flop, bytes }, { 3 * (12 * 120 + 288), 4 * (4 * 48 + 2 * 45) }, 1e-9)
  t.eq(count.of { what = "ski" }, nil)
  p = { what = "peers", n = 8, b = 2, dim = 3, pass = "fwd+bwd" } -- a mixer counts its own
  flop, bytes = count.of(p, 10, { flop = 700 })
  t.eq({ flop, bytes }, { 700, 4 * (4 * 48 + 2 * 10) }, 1e-9)
  t.eq(count.of(p, 10, {}), nil)
  local made = workloads.make { what = "mixers", mixer = "linear_attention", n = 8, b = 2, dim = 4,
    heads = 1, pass = "fwd+bwd", precision = "float32" }
  t.ok(made.flop > 3 * 2 * 8 * 4 * 2 * 4 * 4, made.flop) -- more than its four maps
  local limits = { gemm = { float32 = 100 }, inplace = 10, triad = 5 }
  t.eq(count.share(50, 20, 4, "float32", limits), 0.5)
  t.eq(count.share(500, 20, 10, "float32", limits), 0.5)
  t.eq(count.share(nil, nil, 1, "float32", limits), nil)
end)

-- ---- Problems ---------------------------------------------------------------------------------

t.test("problems agree with the published table, or are narrowed by options", function()
  t.eq(#grids.problems("tno", {}), 36)
  t.eq(#grids.problems("tno", { quick = true }), 2)
  t.eq(#grids.problems("lm", {}), 7)
  t.eq(grids.problems("lm", {})[6].vocab, 50265)
  local list = grids.problems("tno", { lengths = { 16, 32 }, batches = { 1, 3 }, dim = 4 })
  t.eq(#list, 8)
  t.eq(list[2], { what = "tno", causal = true, dim = 4, n = 16, b = 3 })
  for _, name in ipairs(grids.names()) do
    t.ok(#grids.problems(name, { quick = true }) < #grids.problems(name, {}), name)
  end
end)

t.test("our contestants follow the options, in each precision", function()
  local function who(name, p, o)
    local names = {}
    for i, c in ipairs(grids.ours(name, p, o)) do names[i] = c.by .. " " .. c.precision end
    return names
  end
  local two = { precisions = { "float32", "bf16" } }
  t.eq(who("tno", { b = 8, n = 2048 }, two), { "rac float32", "fft float32" })
  t.eq({ grids.ours("tno", { b = 1, n = 1024 }, { backends = { "matrix", "naive" },
    precisions = { "float32" } }) }, { {}, { "matrix", "naive" } }) -- n^2 work is too much
  t.eq(#who("tno", { b = 1, n = 512 }, two), 4)
  t.eq(who("lm", {}, two), { "rac float32", "rac bf16" })
  two.backends = { "fft" }
  t.eq(who("lm", {}, two), { "fft float32", "fft bf16" })
  t.raises(grids.check_backends, "did you mean 'rac'", "tno", { "racc" })
  t.raises(grids.check_backends, "no backends to choose from", "encoder", { "rac" })
end)

t.test("mixers compute a token by a step if they have one, else from the whole text", function()
  local token = {}
  for _, c in ipairs(grids.ours("mixers", { n = 256, b = 2 }, { precisions = { "float32" } })) do
    local p = { what = "mixers", n = 256, b = 2, dim = 8, heads = 2, pass = "token" }
    for key, value in pairs(c.options) do p[key] = value end
    if p.pass == "token" then
      local made = workloads.make(p)
      made.run()
      token[c.by] = made.state or 0
      if made.close then made.close() end
    end
  end
  for name, size in pairs(token) do
    local class = mixers.class(name:match "^[%w_]+")
    t.ok(class.spec.fields.causal.default, name)
    t.eq({ name, size > 0 }, { name, recurrent.can_step(class) == true })
  end
  t.eq({ token.gla, token["gla etsc"] }, { 2 * 2 * 2 * 4 * 4, nil }) -- 2 rows, 2 heads of 2 x 4
  t.ok(token["gtu etsc"] and token["hyena etsc"] and token.cat == 0 and not token.fnet)
  t.eq(token.attention, 4 * 2 * 256 * 2 * 8) -- 2 rows, 256 keys and values of 8
  local rows = {}
  for i, by in ipairs { "gla", "gla", "cat", "cat" } do
    local n = i % 2 == 0 and 64 or 32
    rows[i] = { by = by, over = by, ours = true, threads = 1, pass = "token", parameters = 0,
      precision = "float32", median = by == "gla" and n or n * n, ratio = 1.0,
      made = { state = by == "gla" and 8 or 0 },
      problem = { n = n, b = 1, dim = 4, causal = true } }
  end
  t.eq(show.sentences("mixers", rows), {
    "gla, a token by a step, causal, 1 thread: time n^1.00 from 32 to 64",
    "cat, a token by the whole text, causal, 1 thread: time n^2.00 from 32 to 64" })
  for _, row in ipairs(rows) do
    if row.by == "cat" then
      row.by, row.over, row.pass = "fnet, both ways", "fnet, both ways", "fwd+bwd"
    end
  end
  t.eq(show.sentences("mixers", rows)[2],
    "fnet, both ways, fwd+bwd, 1 thread: time n^2.00 from 32 to 64")
end)

t.test("attention computes the same position in each call", function()
  local made = workloads.make { what = "mixers", mixer = "attention", n = 64, b = 1, dim = 8,
    heads = 2, pass = "token", precision = "float32" }
  local function bytes_after(calls)
    for _ = 1, calls do made.run() end
    collectgarbage()
    return core.memory().live
  end
  local before = bytes_after(2)
  t.eq(bytes_after(20), before) -- it would append 20 keys and values otherwise
  made.close()
end)

t.test("words survive a round trip", function()
  local p = { n = 5, decay = 0.99, causal = false, what = "tno", horizon = 1e-7 }
  t.eq(peer.parse(peer.words(p)), p)
  t.raises(workloads.make, "unknown work x", { what = "x", precision = "float32" })
  t.raises(workloads.make, "precision", { what = "tno", precision = "f16" })
end)

-- ---- Contestants ------------------------------------------------------------------------------

-- Runs fn(FILE) with a program that says about, needs seconds for a call and holds rss bytes; one
-- that is asked for "fail" says so.
local function with_program(about, seconds, rss, fn, flop)
  local file = os.tmpname()
  assert(core.sys.write_file(file, ([[#!/bin/sh
FLOP="%s"
echo "%s"
while read -r what rest; do
  case "$what $rest" in
  *fail*) echo "error it cannot" ;;
  stop*) exit ;;
  die*) echo "no reason" >&2; echo "out of ideas" >&2; exit 1 ;;
  make*) echo "ok parameters=7$FLOP" ;;
  run*) echo %s ;;
  memory*) echo "rss=%s" ;;
  esac
done
]]):format(flop or "", about, seconds, rss)))
  assert(shell.run("chmod +x " .. shell.quote(file)))
  local ok, why = pcall(fn, file)
  os.remove(file)
  if not ok then error(why, 0) end
end

t.test("a peer answers, refuses, ends", function()
  with_program("torch 9: $X", 0.25, 8, function(file)
    local p = peer.start("it", { "X=it's" }, { file })
    t.eq(p:greet(), "torch 9: it's")
    t.eq(p:ask "run 3", "0.25")
    t.eq({ p:ask "make fail" }, { nil, "it cannot" })
    t.eq(select(2, p:ask "stop"), "it ended without an answer")
    p:close()
    p = peer.start("it", {}, { file })
    p:greet()
    t.eq(select(2, p:ask "die"), "it ended without an answer: out of ideas")
    t.eq(select(2, p:ask "run 1"), "it ended without an answer") -- and no SIGPIPE
    p:close()
    p = peer.start("it", {}, { "sh", "-c", "echo ready" })
    t.eq({ p:greet(), select(2, p:ask "run 1") }, { "ready", "it ended without an answer" })
    p:close()
  end)
  local p = peer.start("it", {}, { "/nowhere/python" })
  local about, why = p:greet()
  t.ok(not about and why:find "^it does not run: .*/nowhere/python", why)
  t.eq({ peer.start("it", {}, { "true" }):greet() }, { nil, "it does not run" })
end)

t.test("PyTorch uses AVX-512 only if the processor has it", function()
  for features, want in pairs { ["avx avx2 avx512f avx512bw avx512vl"] = true,
    ["avx avx2 avx512f"] = false, [""] = false } do
    local list = table.concat(peer.tuned_environment(features), " ")
    t.eq(list:find("avx512", 1, true) ~= nil, want)
  end
end)

-- Runs fn with variables of the environment and functions of peer replaced.
local function instead(variables, functions, fn)
  local getenv, kept = os.getenv, {}
  os.getenv = function(name) return variables[name] or getenv(name) end
  for name, f in pairs(functions) do kept[name], peer[name] = peer[name], f end
  local ok, why = pcall(fn)
  os.getenv = getenv
  for name, f in pairs(kept) do peer[name] = f end
  if not ok then error(why, 0) end
end

t.test("runs the Python interpreters that TOEPLAB_PYTHON names", function()
  instead({ TOEPLAB_PYTHON = "/a/python:b" }, {}, function()
    t.eq(peer.pythons(), { "/a/python", "b" })
    t.eq({ peer.torch("no-such-python", false, 1) }, { nil, "there is no no-such-python" })
    t.eq({ peer.torch("/no/such", false, 1) }, { nil, "there is no /no/such" })
  end)
  instead({ TOEPLAB_PYTHON = "" }, {}, function() t.eq(peer.pythons(), {}) end)
end)

-- The rows of bench name with programs of known speed: ours needs 0.1 s for all things. measured:
-- as measure.bench takes it, or nil; flop: words that ours adds about its arithmetic, or nil.
local function rows_of(name, torch, notes, measured, flop)
  local rows
  with_program("toeplab 9", 0.1, 1000, function(ours)
    instead({ TOEPLAB_PYTHON = "x" }, {
      ours = function() return peer.start("toeplab", {}, { ours }) end,
      torch = torch and function(_, tuned)
        return peer.start("torch", { "X=1" }, { torch, tuned and "tuned" or "" })
      end or function() return nil, "there is no x" end,
      fftw = function() return nil, "there is no fftw" end,
    }, function()
      rows = measure.bench(name, { threads = { 2 }, precisions = { "float32" }, repeats = 2,
        rest = 0, lengths = { 1024 }, progress = function() end,
        say = function(...) notes[#notes + 1] = string.format(...) end },
        measured or function() end)
    end)
  end, flop)
  return rows
end

t.test("a peer that counts no arithmetic has our count", function()
  with_program("torch 9: nothing", 0.5, 3500, function(torch)
    local notes = {}
    local rows = rows_of("peers", torch, notes, nil, " flop=8e9 parts=2")
    t.holds(table.concat(notes, "\n"), "n 1024, b 1: in 2 parts, as the whole batch does not fit")
    t.eq({ rows[1].by, rows[2].by }, { "toeplab", "torch 9" })
    t.eq({ rows[1].flop, rows[2].flop }, { 8e9, 8e9 })
    t.eq(rows[2].share / rows[1].share, 0.2, 1e-9) -- 0.5 s beside 0.1 s
  end)
end)

t.test("rows have times, ratios pair by pair, shares of the limits and memory", function()
  local notes = {}
  with_program("torch 9: nothing", 0.5, 3500, function(torch)
    local rows = rows_of("lm", torch, notes)
    t.eq(#rows, 6) -- two vocabularies; ours and torch's two
    local r = rows[2]
    t.eq({ r.by, r.over, r.pass, r.threads }, { "torch 9", "rac", "step", 2 })
    t.eq({ r.median, r.ratio, r.ratio_low, r.ratio_high }, { 0.5, 5.0, 5.0, 5.0 }, 1e-12)
    t.eq(#rows[1].samples, 4) -- beside each of torch's
    t.eq(r.rss / rows[1].rss, 3.5)
    -- limits are those of the program that needs 0.1 s: least time over 0.5 s
    local limit = 2 * 2048 ^ 3 / 0.1
    t.ok(r.share >= r.flop / limit / 0.5 - 1e-12)
    local cells = show.cells(rows)
    t.eq(#cells, 6)
    t.eq(cells[2][1], "n 1024 b 1 v 8192")
    t.eq({ cells[2][6], cells[2][8] }, { "500.000", "5.00" })
    local text = table.concat(show.sentences("lm", rows), "\n")
    t.ok(text:find("torch 9 over rac, step, float32, 2 threads: 5.00, the geometric mean of 2 rows",
      1, true), text)
    t.ok(text:find("parameters: 7 each", 1, true), text)
    t.ok(text:find("memory: torch 9 over rac 3.50, torch 9 tuned over rac 3.50", 1, true), text)
    local picture = show.picture("lm", rows)
    t.eq(picture.xnames, { "n 1024 b 1 v 8192", "n 1024 b 1 v 50265" })
    t.eq(#picture.series, 3)
  end)
  t.eq(notes, { "toeplab 9", "torch 9: nothing" })
end)

t.test("stores the rows of a problem when they are measured", function()
  t.in_folder(function(folder)
    local problems = grids.problems("lm", { lengths = { 1024 } })
    local run, counts = result_store.run("lm", problems, folder, { "toeplab", "bench", "lm" }), {}
    local rows = rows_of("lm", nil, {}, function(list, limits)
      t.eq(limits.threads, 2)
      run:add(list, limits)
      local store <close> = records.open(folder, "r")
      counts[#counts + 1] = store:rows([[SELECT count(*) AS n FROM trials
        JOIN members ON trial = id WHERE status = 'done' AND seed = 1]])[1].n
    end)
    t.eq(#rows, 2)
    t.eq(counts, { 1, 2 })
    local again = result_store.run("lm", problems, folder, { "toeplab", "bench", "lm" })
    local other <close> = records.open(folder, "w")
    other:transaction(function() again:add({ rows[1] }, {}) end) -- while another writes
    t.eq({ #again.pending, again.number }, { 1, nil })
    again:add({ rows[2] }, {})
    t.eq({ #again.pending, again.number, #again.trials }, { 0, 2, 2 })
    again:close()
  end)
end)

t.test("also compares peers with the operator with a horizon", function()
  local function row(by, ours, seconds)
    return { by = by, over = "rac", ours = ours, median = seconds, ratio = seconds, threads = 1,
      pass = "fwd+bwd", precision = "float32", parameters = 0,
      problem = { n = 8, b = 1, dim = 4, causal = true } }
  end
  local lines = show.sentences("operator",
    { row("rac", true, 1.0), row("rac horizon", true, 0.5), row("torch 9", nil, 20.0) })
  t.eq(lines, { "rac horizon over rac, fwd+bwd, float32, 1 thread: 0.50",
    "torch 9 over rac, fwd+bwd, float32, 1 thread: 20.00",
    "torch 9 over rac horizon, n 8 b 1, fwd+bwd, float32, 1 thread: 40.00" })
end)

t.test("leaves out a peer that ends, and measures ours", function()
  local notes = {}
  with_program("torch 9: nothing", "''; exit", 1, function(torch)
    local rows = rows_of("layer", torch, notes)
    t.eq({ #rows, rows[1].by, rows[1].median }, { 4, "rac", 0.1 })
  end)
  t.eq(notes[3], "bench layer: n 1024, b 1, fwd: left out: torch 9: ")
  with_program("torch 9: nothing", "0.5; n=$((n + 1)); [ $n -lt 5 ] || exit", 1, function(torch)
    local rows, at = rows_of("layer", torch, notes), {}
    for i, r in ipairs(rows) do at[i] = r.pass .. " " .. r.by end
    t.eq(at, { "fwd rac", "fwd fft", "fwd torch 9", "fwd torch 9 tuned", "fwd+bwd rac",
      "fwd+bwd fft" }) -- it ends in the second pass
  end)
end)

t.test("reports a missing peer and work that cannot be done", function()
  local notes = {}
  local rows = rows_of("tno", nil, notes)
  t.eq(#rows, 8) -- rac and fft, two passes, two modes
  t.eq(notes, { "fftw plain: not measured: there is no fftw",
    "torch: not measured: there is no x (TOEPLAB_PYTHON chooses another one)", "toeplab 9" })
end)

-- Whether the program at words makes as many parameters for problem p as ours.
local function check_parameters(program, p)
  local ours = workloads.make(p)
  local answer, why = program:ask("make " .. peer.words(p))
  t.ok(answer, why)
  t.eq(peer.parse(answer).parameters, ours.parameters)
  ours.run()
end

-- Returns PyTorch's program of the first interpreter that has it; nil, and a line, without one.
local function torch_program()
  for _, python in ipairs(peer.pythons()) do
    local program = peer.torch(python, true, 1)
    if program and program:greet() then return program end
  end
  print "  skipped: no python here has torch"
end

t.test("PyTorch has the same models, if it is installed", function()
  local program = torch_program()
  if not program then return end
  for _, name in ipairs { "operator", "encoder", "layer", "lm", "generate" } do
    local bench = grids.get(name)
    local p = grids.problems(name, { lengths = { 8 }, batches = { 1 }, dim = 4, quick = true })[1]
    p.pass, p.precision, p.backend, p.method = bench.passes[1], "float32", "rac", "window"
    check_parameters(program, p)
  end
  t.eq({ program:ask "make what=hello" }, { nil, "KeyError: 'hello'" })
  program:close()
end)

t.test("PyTorch's mixers have our results, if it is installed", function()
  local program = torch_program()
  if not program then return end
  t.in_folder(function(folder)
    local problems = grids.problems("peers", { lengths = { 70 }, batches = { 1 }, dim = 16 })
    t.ok(#problems > 12)
    for _, p in ipairs(problems) do
      p.pass, p.precision, p.file = "fwd+bwd", "float32", folder .. "/weights.npz"
      check_parameters(program, p)
      t.ok(tonumber(program:ask "run 1") > 0)
      local tensors = tl.load(p.file)
      tensors.y = tensors.y + 0.01
      tl.save(p.file, tensors)
      local answer, why = program:ask("make " .. peer.words(p))
      t.ok(not answer and why:find "the result is off by 0%.%d+ of the largest", answer or why)
    end
  end)
  program:close()
end)

t.test("plain FFTW computes the operator and its adjoints", function()
  local program = assert(peer.fftw(2))
  t.ok(assert(program:greet()):find "^fftw plain: ")
  for _, words in ipairs { "n=15 b=2 dim=37 causal=false pass=fwd+bwd",
    "n=64 b=1 dim=16 causal=true pass=fwd+bwd", "n=1 b=1 dim=1 causal=true pass=fwd" } do
    local made = peer.parse(assert(program:ask("make what=tno " .. words)))
    t.ok(made.error < 1e-4, ("%s: %g"):format(words, made.error))
    t.ok(tonumber(program:ask "run 2") > 0)
  end
  t.eq({ program:ask "make what=lm n=1 b=1 dim=1" }, { nil, "not understood" })
  program:close()
end)

-- ---- The program ------------------------------------------------------------------------------

-- What `toeplab bench WORDS` prints, without peers.
local function says(words)
  local text, code = t.shell(("TOEPLAB_PYTHON=/nowhere/python '%s' bench %s 2>&1"):format(
    core.sys.executable(), words))
  return text, code == 0
end

t.test("all benches run, and are stored as trials", function()
  t.in_folder(function(folder)
    local text, good = says(("all --lengths 16 --batches 2 --dim 8 -q -r 2 -C '%s'"):format(folder))
    t.ok(good, text)
    local store = assert(core.store(folder, "r"))
    for _, name in ipairs(grids.names()) do
      local rows = store:exec([[SELECT t.id, l.value FROM v_trials t JOIN v_last l ON l.trial = t.id
        WHERE t.experiment = ? AND t.status = 'done' AND l.name = 'ms']], { "bench-" .. name })
      t.ok(#rows >= 1 and rows[1].value > 0, name .. " is not stored:\n" .. text)
      t.ok(text:find("run 1 of bench-" .. name, 1, true), name .. " is not said")
    end
    local samples = store:exec("SELECT count(*) AS n FROM v_metrics WHERE name = 'sample_ms'", {})
    local trials = store:exec("SELECT count(*) AS n FROM v_trials", {})
    t.eq(samples[1].n, 2 * trials[1].n)
    store:close()
    local _, headers = text:gsub("case +threads +pass +by +precision +ms +quartiles +ratio", "")
    t.eq(headers, #grids.names())
    t.ok(text:find("torch: not measured: there is no /nowhere/python", 1, true), text)
    t.ok(text:find("limits with %d+ threads?: GEMM "), text)
  end)
end)

t.test("--precision requires a bench with matrix products", function()
  local _, code, said = t.toeplab "bench encoder -q --lengths 8 --dim 4 --precision float32"
  t.eq(code, 2)
  t.holds(said, "bench encoder: on device cpu it has no matrix products with a choice of precision")
end)

t.test("a second run is another trial, for each number of threads", function()
  t.in_folder(function(folder)
    local words = "encoder --lengths 8 --batches 1 --dim 4 -q -r 1 --threads 1,2 "
      .. "--json -o '%s/x.svg' -C '%s'"
    local text = says(words:format(folder, folder))
    t.ok(says(words:format(folder, folder)):find "run 2 of bench%-encoder")
    local lines = {}
    for line in text:gmatch "[^\n]+" do
      if line:find "^{" then lines[#lines + 1] = line end
    end
    t.eq(#lines, 4) -- two passes, two numbers of threads
    t.ok(lines[1]:find '"threads":1' and lines[4]:find '"threads":2', text)
    t.ok(lines[1]:find '"ms":' and lines[1]:find '"flop":' and lines[1]:find '"by":"mlp"', text)
    t.ok(not shell.on_path "gnuplot" or core.sys.exists(folder .. "/x.svg"), text)
  end)
end)

t.test("refuses invalid options, with the valid ones", function()
  for words, why in pairs {
    ["tnoo"] = "did you mean 'tno'", ["tno lm"] = "one at a time",
    ["tno --lengths 1"] = "from 2 up", ["tno --lengths x"] = "got 'x'",
    ["tno --lengths ,"] = "takes words like A or A,B", ["tno --threads 0"] = "at least 1, got '0'",
    ["lm --precision tf32"] = "tf32 needs an NVIDIA GPU",
    ["lm --precision f16"] = "present: float32", ["tno --backends fdd"] = "present: rac",
    ["encoder --backends rac"] = "no backends to choose from",
    ["all --backends rac"] = "requires a single bench", ["tno -o x.pdf"] = "%.svg or %.png",
    ["tno --csv --json"] = "choose one",
  } do
    local text, good = says(words)
    t.ok(not good and text:find(why) and select(2, text:gsub("\n", "")) == 1, words .. ": " .. text)
  end
end)

t.test("step_bytes predicts a step from the bytes of its operators", function()
  local run = shell.line { core.sys.executable(), "lua", t.root .. "benches/step_bytes.lua" }
  local out = t.shell(run .. " 4 8 8 1 32 2>&1") -- 43 passes over x [4,8,24] by fft
  t.holds(out, "4 sequences of 8, 1 layers of width 8", ("| %.3g |"):format(43 * 4 * 768 / 1e9))
  t.holds(t.shell(run .. " x 2>&1"), '"x" is not a whole number above 0')
end)

t.done()
