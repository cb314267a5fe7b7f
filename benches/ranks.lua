-- ranks.lua: measures training steps of a TNN by 1, 2 and 4 ranks and writes a page with the table
-- (docs/ranks.md).
--   ./lab --threads 1 lua benches/ranks.lua PAGE [RANKS LENGTHS STEPS]
-- PAGE is a file such as results/tables/ranks.md. RANKS and LENGTHS are lists, by default 1,2,4 and
-- 16384,32768,65536,131072,262144; STEPS is 3 by default. It takes some five minutes on two idle
-- processors. The program starts itself by mpirun, one length at a time, as
--   mpirun -n P toeplab --threads 1 lua benches/ranks.lua rank sequence|rows N STEPS
-- sequence: the ranks share one sequence of N tokens. rows: each has one of its own.
local tl = require "toeplab"
local core = require "toeplab.core"
local provenance = require "toeplab.trials.provenance"
local ranks = require "toeplab.train.ranks"
local streams = require "toeplab.base.streams"

local DIM, LAYERS, VOCAB = 64, 2, 256
local LINK = 12.5e9 -- bytes a second at 100 Gbit/s
local MPIRUN = "mpirun --allow-run-as-root --oversubscribe"

-- ---- One rank -----------------------------------------------------------------------------------

local function largest(world, value)
  local all = {}
  for i = 1, world:size() do all[i] = 0.0 end
  all[world:rank() + 1] = value
  local t = core.tensor(all)
  world:sum(t)
  return math.max(table.unpack(t:totable()))
end

local function batch(n, count)
  local stream, list = core.stream(1, "bench"), {}
  for i = 1, count do list[i] = stream:integers(VOCAB, 1, n + 1) end
  return list
end

-- Returns the seconds of the forward and backward pass of the encoders at length n.
local function encoders(model, n)
  local total = 0.0
  for _, entry in ipairs(model:modules()) do
    if getmetatable(entry.module).__name == "TNO" then
      local began = core.sys.clock()
      entry.module:coefficients(n):sum():backward()
      total = total + core.sys.clock() - began
    end
  end
  return total
end

-- Returns the most memory that this process has held, in bytes.
local function resident()
  local file <close> = assert(io.open "/proc/self/status")
  return 1024 * tonumber(file:read("a"):match "VmHWM:%s*(%d+)")
end

-- Returns the bytes that a rank sends in a step, on average over the p ranks: computed, not
-- measured. A tensor that one rank gives to all counts p - 1 times.
--   sequence: each layer makes two exchanges forward and two backward, of n/p tokens of DIM
--     channels; the gradients are summed over the ranks, each of which sends 2 (p-1)/p of them
--     (tl_ranks_sum).
--   rows: the sums of the gradients of parameters and coefficients go from each rank to the next
--     one, and those of the parameters from the last one to all.
--   both: the owner of each parameter sends it to all after the update.
local function sent_by_one(form, p, n, parameters)
  local others = (p - 1) / p
  local pass = form == "sequence" and LAYERS * 4 * (n // p) * DIM + 2 * parameters
    or parameters + LAYERS * n * DIM + parameters
  return 4 * others * (pass + parameters)
end

-- Measures as one of the ranks. Rank 0 prints the seconds of a step (the shortest one), of the
-- ranks the largest peak of tensors and of the whole process, in bytes, what sent_by_one computes,
-- and the seconds of the encoders, whose hidden layers each rank computes whole.
local function measure(form, n, steps)
  local world = core.ranks_open()
  local p, best = world:size(), math.huge
  local team = ranks.team(world, form == "sequence" and p or 1)
  streams.seed(1)
  local model = tl.models.tnn_lm(VOCAB, { layers = LAYERS, dim = DIM, expand = 1, glu_dim = DIM,
    rpe_dim = 8, rpe_layers = 1, backend = "fft" })
  local opt = tl.optim.adam(model, { lr = 1e-3 })
  local list = batch(n, form == "rows" and p or 1)
  for _ = 1, steps do
    world:barrier()
    local began = core.sys.clock()
    ranks.with(p > 1 and team or nil, tl.train.lm_step, model, opt, list)
    best = math.min(best, core.sys.clock() - began)
  end
  local seconds, peak = largest(world, best), largest(world, core.memory().peak)
  local held = largest(world, resident())
  local sent = sent_by_one(form, p, n, model:count())
  local hidden = p == 1 and encoders(model, n) or 0.0
  if world:rank() == 0 then
    print(("RANKS %.4f %.0f %.0f %.0f %.4f"):format(seconds, peak, held, sent, hidden))
  end
  team:close()
  world:close()
end

-- ---- The page -----------------------------------------------------------------------------------

local function numbers(text)
  local list = {}
  for word in text:gmatch "[^,]+" do
    local n = math.tointeger(tonumber(word))
    if not n or n < 1 then error(("'%s' is not a list of integers from 1 up"):format(text), 0) end
    list[#list + 1] = n
  end
  return list
end

-- Starts p ranks that measure. Returns {seconds=, peak=, held=, sent=, encoders=}.
local function started(form, p, n, steps)
  local command = ("%s -n %d '%s' --threads 1 lua '%s' rank %s %d %d 2>&1"):format(MPIRUN,
    p, core.sys.executable(), arg[0], form, n, steps)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  local ended = pipe:close()
  local row, names = {}, { "seconds", "peak", "held", "sent", "encoders" }
  for word in (text:match "RANKS ([^\n]*)" or ""):gmatch "%S+" do
    row[names[1]] = tonumber(word)
    table.remove(names, 1)
  end
  if not ended or #names > 0 then error(("%s\n%s"):format(command, text), 0) end
  io.stderr:write(("%s, %d tokens, ranks %d: %.2f s, %.0f MB\n"):format(form, n, p, row.seconds,
    row.peak / 1e6))
  return row
end

local function cells(list) return "| " .. table.concat(list, " | ") .. " |" end

local function tokens(n)
  local power = math.log(n, 2) // 1 | 0
  return 1 << power == n and "2^" .. power or tostring(n)
end

-- Appends the table of one form to lines, without seconds if o.busy. one: rows of one rank by
-- length, which the model of the cost needs. Returns one, and the peaks of tensors at the last
-- length, in MB.
local function add_table(lines, form, o, lengths, one)
  lines[#lines + 1] = cells { "tokens", "ranks", "step, s", "peak of a rank's tensors, MB",
    "of its process, MB", "computed to be sent by a rank, MB", "model at 100 Gbit/s, s" }
  lines[#lines + 1] = "| --- |" .. (" ---: |"):rep(6)
  local peaks
  for _, n in ipairs(lengths) do
    peaks = {}
    for _, p in ipairs(o.ranks) do
      local row = p == 1 and one[n] or started(form, p, n, o.steps)
      if p == 1 then one[n] = row end
      local first, link = one[n], row.sent / LINK
      local model = ""
      if first and p > 1 then
        model = ("%.2f"):format(link + (form == "rows" and first.seconds
          or (first.seconds - first.encoders) / p + first.encoders))
      end
      peaks[#peaks + 1] = ("%.0f"):format(row.peak / 1e6)
      if o.busy then model = "-" end
      lines[#lines + 1] = cells { tokens(n), p, o.busy and "-" or ("%.2f"):format(row.seconds),
        peaks[#peaks], ("%.0f"):format(row.held / 1e6),
        ("%.1f"):format(row.sent / 1e6), model }
    end
  end
  return one, peaks
end

-- Returns the load of the machine, its processor and how many there are.
local function machine()
  local load_file <close> = assert(io.open "/proc/loadavg")
  local info_file <close> = assert(io.open "/proc/cpuinfo")
  local info = info_file:read "a"
  local _, count = info:gsub("processor%s*:", "")
  return tonumber(load_file:read("l"):match "^%S+"), info:match "model name%s*:%s*([^\n]*)"
    or "unknown", count
end

local PROSE = "A TNN of %d layers, dim %d, expand 1, backend fft, one sequence in a micro batch, "
  .. "one thread a rank; the shortest of the steps (%d), and of the ranks the largest peak. On %d "
  .. "processors (%s). So few processors show what memory a rank needs, not speed: more ranks "
  .. "than processors take turns, and all share one memory. %s The last column estimates what "
  .. "the ranks would take with a processor each, joined by 100 Gbit/s, from the step of one "
  .. "process (docs/ranks.md)."

local VERDICT = "**Verdict: if %s ranks share a sequence of %s tokens, the tensors of a rank take "
  .. "at most %s MB. Nothing is decided about speed.**"

local MADE = "Made by `./lab --threads 1 lua benches/ranks.lua %s` at %s. Nothing here is written "
  .. "by hand: give the command again."

-- Returns a text in lines of at most 100 characters.
local function wrap(text)
  local lines = { "" }
  for word in text:gmatch "%S+" do
    if #lines[#lines] + #word >= 100 then lines[#lines + 1] = "" end
    lines[#lines] = lines[#lines] .. (lines[#lines] ~= "" and " " or "") .. word
  end
  return table.concat(lines, "\n")
end

-- Says whether other programs have disturbed the measurement.
local function disturbance(load, busy)
  if not busy then return ("The load of the machine before was %.2f."):format(load) end
  return ("Other programs were running (a load of %.1f before), so the seconds are left out; the "
    .. "memory does not depend on that."):format(load)
end

local function page(path, o)
  local load, processor, count = machine()
  o.busy = load >= 0.25 * count
  local about = provenance.collect {}
  local commit = about.commit and "commit " .. about.commit:sub(1, 12)
    .. (about.dirty and ", with changes" or "") or "no commit that is known"
  local lines = { "# Training steps by several processes\n",
    wrap(PROSE:format(LAYERS, DIM, o.steps, count, processor, disturbance(load, o.busy))), "",
    wrap(MADE:format(table.concat(arg, " "), commit)),
    "\nThe ranks share one sequence (`sequence_ranks`):\n" }
  local one, peaks = add_table(lines, "sequence", o, o.lengths, {})
  table.insert(lines, 2, wrap(VERDICT:format(table.concat(o.ranks, ", "),
    tokens(o.lengths[#o.lengths]), table.concat(peaks, ", "))) .. "\n")
  local several, shorter = {}, {}
  for _, p in ipairs(o.ranks) do several[#several + 1] = p > 1 and p or nil end
  for _, n in ipairs(o.lengths) do shorter[#shorter + 1] = n <= 1 << 16 and n or nil end
  lines[#lines + 1] = "\nEach rank has a sequence of its own, so that p ranks do p times the "
    .. "work:\n"
  add_table(lines, "rows", { ranks = several, steps = o.steps, busy = o.busy }, shorter, one)
  local ok, why = core.sys.write_file(path, table.concat(lines, "\n") .. "\n")
  if not ok then error(why, 0) end
end

if arg[1] == "rank" then
  measure(arg[2], math.tointeger(tonumber(arg[3])), math.tointeger(tonumber(arg[4])))
elseif arg[1] then
  page(arg[1], { ranks = numbers(arg[2] or "1,2,4"),
    lengths = numbers(arg[3] or "16384,32768,65536,131072,262144"),
    steps = numbers(arg[4] or "3")[1] })
else
  error("wanted: toeplab lua benches/ranks.lua PAGE [RANKS LENGTHS STEPS]", 0)
end
