-- bench/show.lua: presents the rows of a bench as a table, as sentences, and as a figure.
local cost = require "toeplab.train.cost"
local grids = require "toeplab.bench.grids"
local sorted_keys = require "toeplab.base.sorted_keys"
local timing = require "toeplab.bench.timing"

local show = {}

-- Formats a number with about three digits.
local function short(x)
  if not x then return nil end
  if x >= 100 or x == 0 then return ("%.0f"):format(x) end
  return ("%.3g"):format(x)
end

-- Formats seconds as milliseconds.
local function ms(seconds) return (seconds < 1e-4 and "%.3g" or "%.3f"):format(1e3 * seconds) end

-- ---- The table --------------------------------------------------------------------------------

local fields = { { "n", "n" }, { "b", "b" }, { "vocab", "v" }, { "layers", "layers" },
  { "dim", "d" } }

local function mode(p) return p.causal and "causal" or "bidirectional" end

-- Returns whether a contestant's name says that it runs both ways, whatever the problem says (bench
-- mixers).
local function both_ways(r) return r.by:find(", both ways", 1, true) ~= nil end

local function words_of(p, count)
  local words = { p.op or p.mixer }
  if p.positions then words[#words + 1] = p.positions end
  for i = 1, count do
    local value = p[fields[i][1]]
    if value then words[#words + 1] = fields[i][2] .. " " .. value end
  end
  return table.concat(words, " ")
end

-- Returns how many fields are enough to distinguish the problems of rows.
local function enough(rows)
  for count = 2, #fields do
    local seen, distinct = {}, true
    for _, r in ipairs(rows) do
      local few, all = words_of(r.problem, count), words_of(r.problem, #fields)
      distinct = distinct and (seen[few] or all) == all
      seen[few] = all
    end
    if distinct then return count end
  end
  return #fields
end

-- Returns what distinguishes the problem of a row from the others: "causal n 512 b 8".
function show.case(row, rows)
  local words = words_of(row.problem, enough(rows))
  for _, other in ipairs(rows) do
    if other.problem.causal ~= row.problem.causal then return mode(row.problem) .. " " .. words end
  end
  return words
end

show.header = { "case", "threads", "pass", "by", "precision", "ms", "quartiles", "ratio",
  "quartiles", "GF/s", "GB/s", "limit %", "MiB" }

-- Returns rows as cells under show.header. limit %: the minimal time that the limits allow, as a
-- share of the measured one; MiB: the peak memory of the process.
function show.cells(rows)
  local lines = {}
  for i, r in ipairs(rows) do
    local share = r.share and ("%.0f"):format(100 * r.share) or nil
    lines[i] = { show.case(r, rows), r.threads, r.pass, r.by, r.precision,
      ms(r.median), ms(r.low) .. "-" .. ms(r.high), ("%.2f"):format(r.ratio),
      ("%.2f-%.2f"):format(r.ratio_low, r.ratio_high), short(r.flop and r.flop / r.median / 1e9),
      short(r.bytes and r.bytes / r.median / 1e9), share, short(r.rss / 2 ^ 20) }
  end
  return lines
end

-- Returns a row as a flat record for JSON and the store: names and numbers in SI units.
function show.record(r)
  local record = { bench = r.bench, by = r.by, threads = r.threads, precision = r.precision,
    pass = r.pass, over = r.over, device = r.device }
  for key, value in pairs(r.problem) do record[key] = value end
  record.what = nil
  return record, { ms = 1e3 * r.median, ms_least = 1e3 * r.least, ms_low = 1e3 * r.low,
    ms_high = 1e3 * r.high, ratio = r.ratio, ratio_low = r.ratio_low, ratio_high = r.ratio_high,
    flop = r.flop, bytes = r.bytes, share = r.share, rss_bytes = r.rss, engine_bytes = r.engine,
    parameters = r.parameters, state_bytes = r.made.state, kernel_bytes = r.made.kernels,
    longest_ms = (r.made.longest or 0) > 0 and 1e3 * r.made.longest or nil }
end

-- ---- Sentences --------------------------------------------------------------------------------

local function grouped(rows, key)
  local groups, order = {}, {}
  for _, r in ipairs(rows) do
    local name = key(r)
    if name and not groups[name] then
      groups[name] = {}
      order[#order + 1] = name
    end
    if name then table.insert(groups[name], r) end
  end
  return groups, order
end

function show.threads(count) return count == 1 and "1 thread" or count .. " threads" end

-- Returns sentences such as "torch 1.13 tuned over rac, fwd+bwd, float32, 2 threads: 21.3, the
-- geometric mean of 24 rows, from 12.1 to 40.5". Models of different widths get separate means, as
-- do modes if only our backends are compared.
local function means(name, rows)
  local lines, widths = {}, false
  for _, r in ipairs(rows) do widths = widths or r.problem.dim ~= rows[1].problem.dim end
  local groups, order = grouped(rows, function(r)
    if r.by == r.over then return nil end
    local words = { r.by .. " over " .. r.over, r.pass, r.precision, show.threads(r.threads) }
    if widths then words[#words + 1] = "d " .. r.problem.dim end
    if not grids.get(name).peers and not both_ways(r) then words[#words + 1] = mode(r.problem) end
    return table.concat(words, ", ")
  end)
  for _, group in ipairs(order) do
    local ratios = {}
    for i, r in ipairs(groups[group]) do ratios[i] = r.ratio end
    table.sort(ratios)
    lines[#lines + 1] = #ratios == 1 and ("%s: %.2f"):format(group, ratios[1])
      or ("%s: %.2f, the geometric mean of %d rows, from %.2f to %.2f"):format(group,
        timing.mean(ratios), #ratios, ratios[1], ratios[#ratios])
  end
  return lines
end

-- Compares the peers of each case with the backend `by` instead of the first, by their medians.
local function others(rows, by)
  local under, lines = {}, {}
  local function key(r)
    return table.concat({ show.case(r, rows), r.pass, r.precision, show.threads(r.threads) }, ", ")
  end
  for _, r in ipairs(rows) do
    if r.by == by then under[key(r)] = r end
  end
  for _, r in ipairs(rows) do
    local other = not r.ours and under[key(r)]
    if other then
      lines[#lines + 1] = ("%s over %s, %s: %.2f"):format(r.by, by, key(r), r.median / other.median)
    end
  end
  return lines
end

-- Names the pass of a row. A token was computed by a step if the contestant has a state, else from
-- the whole text.
local function pass_of(r)
  if r.pass ~= "token" then return r.pass end
  return (r.made.state or 0) > 0 and "a token by a step" or "a token by the whole text"
end

-- Returns sentences such as "ski, bidirectional: time n^1.02 from 4096 to 16384".
local function exponents(rows, several)
  local lines = {}
  local groups, order = grouped(rows, function(r)
    local words = { r.by, show.threads(r.threads) }
    if not both_ways(r) then table.insert(words, 2, mode(r.problem)) end
    if several then table.insert(words, 2, pass_of(r)) end
    return table.concat(words, ", ")
  end)
  for _, name in ipairs(order) do
    local lengths, seconds = {}, {}
    for i, r in ipairs(groups[name]) do lengths[i], seconds[i] = r.problem.n, r.median end
    local e = cost.exponent(lengths, seconds)
    if e then
      lines[#lines + 1] = ("%s: time n^%.2f from %d to %d"):format(name, e, lengths[1],
        lengths[#lengths])
    end
  end
  return lines
end

-- Returns sentences such as "relaxed, n 1024 b 1: the slowest position took 0.3 ms".
local function longest(rows)
  local lines = {}
  for _, r in ipairs(rows) do
    if r.pass == "token" and (r.made.longest or 0) > 0 then
      lines[#lines + 1] = ("%s, %s, %s: the slowest position took %s ms"):format(r.by,
        show.case(r, rows), show.threads(r.threads), ms(r.made.longest))
    end
  end
  return lines
end

-- Returns sentences such as "relaxed is faster than full ring, b 1, 1 thread: from n 64 on" for the
-- contestant that the others are compared with. "From" is the least length above which it is faster
-- at all lengths.
local function crossovers(rows)
  local lines = {}
  local groups, order = grouped(rows, function(r)
    if r.by == r.over then return nil end
    return ("%s is faster than %s, b %d, %s"):format(r.over, r.by, r.problem.b,
      show.threads(r.threads))
  end)
  for _, name in ipairs(order) do
    local from
    for _, r in ipairs(groups[name]) do
      if r.ratio <= 1 then from = nil else from = from or r.problem.n end
    end
    lines[#lines + 1] = from and ("%s: from n %d on"):format(name, from) or name .. ": never"
  end
  return lines
end

-- Groups the cases by the sentence that f returns for the rows of each: "NAME, case; case:
-- SENTENCE".
local function by_case(name, rows, f)
  local cases, sayings, lines = {}, {}, {}
  local groups, order = grouped(rows, function(r) return show.case(r, rows) end)
  for _, case in ipairs(order) do
    local text = f(groups[case])
    if text and not cases[text] then
      cases[text] = {}
      sayings[#sayings + 1] = text
    end
    if text then table.insert(cases[text], case) end
  end
  for i, text in ipairs(sayings) do
    lines[i] = #sayings == 1 and ("%s: %s"):format(name, text)
      or ("%s, %s: %s"):format(name, table.concat(cases[text], "; "), text)
  end
  return lines
end

-- Compares the numbers of parameters, which must be equal if both sides have the same model.
local function parameters(rows)
  return by_case("parameters", rows, function(list)
    local groups, order = grouped(list, function(r) return tostring(r.parameters) end)
    local parts = {}
    for i, count in ipairs(order) do
      local names, seen = {}, {}
      for _, r in ipairs(groups[count]) do
        if not seen[r.by] then names[#names + 1] = r.by end
        seen[r.by] = true
      end
      parts[i] = #order == 1 and count .. " each" or count .. " " .. table.concat(names, ", ")
    end
    return list[1].parameters > 0 and table.concat(parts, "; ") or nil
  end)
end

-- Compares the peak memory of a training step with the Toeplab process's.
local function memory(rows)
  return by_case("memory", rows, function(list)
    local under, parts = {}, {}
    for _, r in ipairs(list) do
      local key = r.precision .. r.threads
      under[key] = under[key] or r
      if not r.ours and under[key].rss > 0 then
        parts[#parts + 1] = ("%s over %s %.2f"):format(r.by, r.over, r.rss / under[key].rss)
          .. (r.precision == "float32" and "" or " " .. r.precision)
      end
    end
    return #parts > 0 and table.concat(parts, ", ") or nil
  end)
end

-- Returns the sentences below the table.
function show.sentences(name, rows)
  local lines = means(name, rows)
  local bench = grids.get(name)
  local more = { bench.second and others(rows, bench.second) or {},
    bench.exponents and exponents(rows, #bench.passes > 1) or {}, longest(rows),
    bench.crossovers and crossovers(rows) or {}, parameters(rows),
    bench.passes[1] == "step" and memory(rows) or {} }
  for _, list in ipairs(more) do table.move(list, 1, #list, #lines + 1, lines) end
  return lines
end

-- Returns "2 threads: GEMM 205 GF/s float32; 92 GB/s in place (Adam), 41 GB/s triad".
function show.limits(limits)
  local parts = {}
  for _, precision in ipairs(sorted_keys(limits.gemm)) do
    parts[#parts + 1] = ("%s GF/s %s"):format(short(limits.gemm[precision] / 1e9), precision)
  end
  local words = "limits with %s: GEMM %s; %s GB/s in place (Adam), %s GB/s triad (x + y)"
  return words:format(show.threads(limits.threads), table.concat(parts, ", "),
    short(limits.inplace / 1e9), short(limits.triad / 1e9))
end

-- ---- The figure --------------------------------------------------------------------------------

local function name_of(r, rows)
  for _, other in ipairs(rows) do
    if other.precision ~= r.precision then return r.by .. " " .. r.precision end
  end
  return r.by
end

-- Returns the names at positions 1, 2, ... in order of first appearance.
local function places_of(rows, name)
  local places, names = {}, {}
  for _, r in ipairs(rows) do
    local text = name(r)
    if not places[text] then
      names[#names + 1] = text
      places[text] = #names
    end
  end
  return places, names
end

-- Returns one panel: time against the length, or one position per case. colours: by contestant.
local function panel(title, rows, all, by_length, colours)
  local spec = { title = title, ylabel = "ms", logy = true, key = "outside", series = {} }
  local places, names = places_of(rows, function(r) return show.case(r, all) end)
  if by_length then spec.xlabel, spec.logx = "n", 2 else spec.xnames = names end
  local groups, order = grouped(rows, function(r) return name_of(r, all) end)
  for _, name in ipairs(order) do
    local s = { name = name, x = {}, y = {}, style = by_length and "both" or "points",
      colour = colours[name] }
    for i, r in ipairs(groups[name]) do
      s.x[i] = by_length and r.problem.n or places[show.case(r, all)]
      s.y[i] = 1e3 * r.median
    end
    spec.series[#spec.series + 1] = s
  end
  spec.width = by_length and 620 or math.max(620, 320 + 150 * #names)
  return spec
end

-- Returns a spec for tl.plot: a panel for each pass and number of threads and, along lengths, for
-- each mode and batch.
function show.picture(name, rows)
  local panels, width = {}, 0
  local _, lengths = places_of(rows, function(r) return tostring(r.problem.n) end)
  local by_length = grids.get(name).axis and #lengths > 2
  local colours = places_of(rows, function(r) return name_of(r, rows) end)
  local mixed = false
  for _, r in ipairs(rows) do mixed = mixed or both_ways(r) end
  local groups, order = grouped(rows, function(r)
    local words = { r.pass, show.threads(r.threads) }
    if by_length then
      if not mixed then words[#words + 1] = mode(r.problem) end
      words[#words + 1] = "batch " .. r.problem.b
    end
    return table.concat(words, ", ")
  end)
  for i, title in ipairs(order) do
    panels[i] = panel(title, groups[title], rows, by_length, colours)
    width = math.max(width, panels[i].width)
  end
  if #panels == 1 then
    panels[1].title = ("bench %s: %s"):format(name, panels[1].title)
    return panels[1]
  end
  return { panels = panels, title = "bench " .. name, columns = by_length and 2 or 1, width = width,
    height = 380 }
end

return show
