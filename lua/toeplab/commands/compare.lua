-- commands/compare.lua: toeplab compare: compares settings with a baseline, paired by seed.
local arguments = require "toeplab.base.arguments"
local filter = require "toeplab.store.filter"
local claims = require "toeplab.report.verdicts.claims"
local compare = require "toeplab.report.verdicts.compare"
local differences = require "toeplab.report.figures.differences"
local judgement = require "toeplab.report.verdicts.judgement"
local labels = require "toeplab.report.labels"
local output = require "toeplab.report.output"
local style = require "toeplab.report.figures.style"
local sentences = require "toeplab.report.verdicts.sentences"
local progress = require "toeplab.base.progress"
local published_tables = require "toeplab.trials.published_tables"
local frames = require "toeplab.report.frames"
local records = require "toeplab.store.records"
local text_table = require "toeplab.base.text_table"
local stats = require "toeplab.report.stats"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local command = {
  example = "toeplab compare decay=0.99 decay=none --metric best_val_ppl\n"
    .. "  toeplab compare ski/table2 model=tnn model=fd --by task\n"
    .. "  toeplab compare lra model=tnn --ratio\n"
    .. "  toeplab compare lra model=tnn --size 3.25x2.2 -o differences.pdf\n"
    .. "  toeplab compare tnn/table10",
  usage = "toeplab compare [NAME] KEY=A [KEY=B...] [KEY=VALUE...]\n"
    .. "       toeplab compare NAME [KEY=VALUE...]",
  about = "Compares trials with KEY=B to trials with KEY=A, paired by seed: the difference B - A\n"
    .. "with its interval (Student's t), the probability that a run of B beats one of A,\n"
    .. "p with Holm's correction over the rows, what may be claimed, and how many\n"
    .. "seeds a claim would need. KEY=A KEY=B KEY=C, or KEY=A,B,C, compares B and C with A;\n"
    .. "KEY=A alone, of a key that varies, compares all its other values with A. NAME is an\n"
    .. "experiment, a published table, or the number of a sweep; without it the newest\n"
    .. "experiment in which KEY varies. Further words KEY=VALUE select trials, as for table.\n"
    .. "For a published table without KEY=A KEY=B, and where no KEY varies, prints whether the\n"
    .. "trials support, contradict, or cannot decide the paper's claims about the table NAME, or\n"
    .. "about the tables that the experiment NAME answers. --output draws the rows with their\n"
    .. "intervals.",
  words = { "tables_or_filters", "filters" },
  options = {
    { name = "metric", short = "m", value = "NAME", of = "metrics",
      help = "the metric to compare (default: the first of the report or table)" },
    { name = "baseline", value = "KEY=A", help = "compare all other values of KEY with A",
      more = [[
        All other words then select trials. Required where several of them name keys that vary,
        and for a published table.]] },
    { name = "ratio", help = "ratios B/A instead of differences",
      more = [[
        Ratios of geometric means, with intervals of Student's t on the logarithms; all values must
        be above 0.]] },
    { name = "by", value = "KEYS", many = true, of = "keys_stored", list = true,
      help = "a row for each value of KEYS (A,B; default: all that vary)",
      more = [[
        `--by step` compares the learning curves: a row for each tenth of the steps, with the mean
        of the metric in it, and where the curves cross.]] },
    { name = "higher", help = "higher is better",
      more = [[
        Overrides what the experiment declares or the metric's name implies, as does
        `--lower`.]] },
    { name = "lower", help = "lower is better" },
    { name = "resolve", value = "D",
      help = "how many seeds a difference of D (a ratio of 1 + D) needs" },
    { name = "csv", help = "the rows as CSV" },
    output.dir,
  },
}
table.move(style.options, 1, #style.options, #command.options + 1, command.options)

-- ---- What is compared -------------------------------------------------------------------------

-- Splits the words into the name and a list of {key=, value, ...}, one for each key.
local function parse(words)
  local name, keys, of = nil, {}, {}
  for _, word in ipairs(words) do
    local key, text = word:match "^([%a_][%w_.]*)=(.*)$"
    if not key then
      if name then errors.usage("compare: one name at most, got '%s' and '%s'", name, word) end
      name = word
    elseif of[key] then
      table.insert(of[key], text)
    else
      of[key] = { key = key, text }
      keys[#keys + 1] = of[key]
    end
  end
  return name, keys
end

-- Returns the filters (filter.read) of all keys but the compared one.
local function filters_of(keys, compared)
  local words = {}
  for _, k in ipairs(keys) do
    for _, text in ipairs(k ~= compared and k or {}) do words[#words + 1] = k.key .. "=" .. text end
  end
  return filter.read("compare", words)
end

-- Returns the frame that a name selects or, without one, the newest in which key varies; raises a
-- usage error if there is none (or returns nil, with `try`).
local function find(store, name, key, filters, try)
  local frame, others = frames.named(store, name, filters, key)
  if frame or try then return frame end
  if name then frames.none_is("compare", store, name, others) end
  if #others > 0 then
    errors.usage("compare: no trial matches; there are: %s", table.concat(others, "; "))
  end
  errors.usage("compare: '%s' varies in no experiment of %s", key, store.folder)
end

-- Returns the key of a single word that varies among the trials that the other words select, and
-- its frame; nil if none does. If several do, a key that varies only from command to command, such
-- as the steps of a short try, selects. Raises a usage error if several are left.
local function only_varying(store, name, keys)
  local found, frame_of, declared = {}, {}, {}
  for _, k in ipairs(keys) do
    local frame = find(store, name, k.key, filters_of(keys, k), true)
    if frame and frame.axes[k.key] and #compare.values(frame:trials {}, k.key) > 1 then
      found[#found + 1], frame_of[k] = k, frame
      declared[#declared + 1] = not frame.between[k.key] and k or nil
    end
  end
  if #declared > 0 then found = declared end
  local first, second = found[1], found[2]
  if second then
    errors.usage("compare: both '%s' and '%s' vary: name the one to compare, like "
      .. "--baseline %s=%s", first.key, second.key, first.key, first[1])
  end
  return first, frame_of[first]
end

-- Returns the key to compare: the one that several words give; else, unless a published table is
-- named, the only one that varies among the selected trials; nil: none. Also returns its frame, if
-- it was searched for.
local function choose_key(store, name, keys)
  local found, frame = nil, nil
  for _, k in ipairs(keys) do
    if found and k[2] then
      errors.usage("compare: one key at a time; '%s=%s' varies another", k.key, k[2])
    end
    found = found or k[2] and k
  end
  if found or name and suggest.choose("table", name, published_tables.ids()) then return found end
  found, frame = only_varying(store, name, keys)
  if not name and not keys[1] then
    errors.usage("compare: give two values of one key, like decay=0.99 decay=none, or a published "
      .. "table whose claims to check, like tnn/table10")
  end
  return found or not name and keys[1], frame
end

-- Returns the values to compare, the baseline first: the given ones (A,B counts as two), or a
-- single one and then all others. Raises a usage error if there are fewer than two.
local function settings(frame, k)
  local trials, texts = frame:trials({}, { [k.key] = true }), {}
  local there = k[2] and {} or compare.values(trials, k.key)
  local function add(text)
    local new = not filter.matches(tonumber(text) or text, texts)
    texts[#texts + 1] = new and text or nil
    return new
  end
  local pattern = (k[2] or filter.matches(k[1], there)) and ".*" or "[^,]+"
  for _, word in ipairs(k) do
    for text in word:gmatch(pattern) do
      if not add(text) then
        errors.usage("compare: %s=%s is given twice; give two different values", k.key, text)
      end
    end
  end
  if #texts == 0 then errors.usage("compare: %s=%s has no value", k.key, k[1]) end
  for _, text in ipairs(texts[2] and {} or there) do add(text) end
  local word = not texts[2] and frame.filters[k.key]
  if word then
    errors.usage("compare: the word %s=%s beside --baseline leaves only %s: drop the word", k.key,
      word[1], table.concat(there, ", "))
  end
  return texts[2] and texts
    or errors.usage("compare: %s has no other value in %s", k.key, frame:title())
end

local function choose_metric(frame, given)
  local logged = frame:metrics()
  local name = given or compare.metric(frame, logged)
  if not next(logged) then
    local left_out = frame:left_out()
    errors.raise(errors.FAILED, "compare: no trial of %s has logged anything yet%s", frame:title(),
      left_out and "; " .. left_out or "")
  end
  if not name then
    errors.usage("compare: which metric? Give --metric, one of: %s",
      table.concat(sorted_keys(logged), ", "))
  end
  local ok, why = suggest.choose("metric", name, sorted_keys(logged))
  if not ok then errors.usage("compare: %s", why) end
  return name
end

-- Returns the rows of the CSV output. With ratios, the means are geometric.
local function rows_of(result)
  local rows = {}
  local function mean(x)
    if not result.ratio then return #x > 0 and stats.mean(x) or nil end
    local logs = {}
    for i, v in ipairs(x) do logs[i] = math.log(v) end
    return #x > 0 and math.exp(stats.mean(logs)) or nil
  end
  for i, row in ipairs(result.rows) do
    local middle, low, high = judgement.range(row)
    rows[i] = { row.place, #row.x, mean(row.a), mean(row.b), middle, low, high, row.chance, row.p }
  end
  return rows
end

-- Prints the rows as CSV, with the settings if there are several.
local function print_csv(result)
  local rows, header = rows_of(result), { "row", "pairs", "mean_a", "mean_b",
    result.ratio and "ratio" or "difference", "low", "high", "p_better", "p_holm" }
  if #result.sides > 2 then
    header = { "a", "b", table.unpack(header) }
    for i, row in ipairs(result.rows) do
      rows[i] = { result.sides[1].text, row.setting, table.unpack(rows[i], 1, #header - 2) }
    end
  end
  io.write(text_table.csv(header, rows))
end

local numbers = { [2] = true, [3] = true, [4] = true, [5] = true } -- columns on the right

-- Returns v and its interval as text, and a formatter, with as many decimals as the width of the
-- interval supports.
local function rounded(v, low, high)
  local decimals = low and stats.decimals((high - low) / 2)
  local form = decimals and "%." .. decimals .. "f"
  local function text(x) return form and x and form:format(x) or text_table.cell(x) end
  return text(v), low and ("[%s, %s]"):format(text(low), text(high)) or "-", text
end

local function print_text(result, resolve)
  local name, base, b = result.key .. "=", result.sides[1].text, result.sides[2].text
  local several, what = #result.sides > 2, result.ratio and "ratio" or "difference"
  print(("%s: %s, %s is better; %s: %s%s %s, paired by seed\n"):format(result.frame:title(),
    result.metric, result.better, what, several and "each setting" or name .. b,
    result.ratio and " over" or " minus", name .. base))
  local lines = rows_of(result)
  for i, row in ipairs(lines) do
    local middle, interval, text = rounded(row[5], row[6], row[7])
    lines[i] = { result.rows[i].label, row[2], text(row[3]), text(row[4]), middle, interval,
      row[8] and ("%.2f"):format(row[8]) or "-", row[9] and ("%.3g"):format(row[9]) or "-" }
  end
  for _, side in ipairs(result.sides) do
    if side.overall then
      local middle, interval = rounded(judgement.range(side.overall))
      lines[#lines + 1] = { (several and name .. side.text .. " " or "") .. "overall, middle half",
        side.overall.n, "", "", middle, interval, "-", "bootstrap" }
    end
  end
  local interval = #judgement.corrected(result.rows) > 0 and "interval" or "95 % interval"
  local header = { "", "pairs", name .. base, several and "setting" or name .. b, what, interval,
    "P(better)", #result.rows > 1 and "p (Holm)" or "p" }
  for _, text in ipairs(text_table.lines(header, lines, numbers)) do print(text) end
  print()
  for _, text in ipairs(sentences.of(result, resolve, progress.duration)) do print(text) end
  local left_out = result.frame:left_out()
  if left_out then print(left_out) end
end

-- Draws the rows with their intervals into the file of --output.
local function draw(result, set)
  local spec = differences(result, labels.new(result.frame.plan.labels))
  if not spec then
    errors.raise(errors.FAILED, "compare: no seed has values of both: there is nothing to draw")
  end
  local caption = spec.title
  style.apply("compare", set, spec, caption)
  style.draw("compare", spec, set.output, caption, set.csv)
end

-- ---- Claims -----------------------------------------------------------------------------------

-- Returns the published tables with claims: the table NAME, or those that experiment NAME answers.
local function claimed_tables(name, frame)
  local ids, list = frame.plan.answers or {}, {}
  for _, id in ipairs(published_tables.ids()) do ids = id == name and { id } or ids end
  for _, id in ipairs(ids) do
    local published = published_tables.read(id)
    if published.claims and (id == name or not published.numbers) then
      list[#list + 1] = published
    end
  end
  if #list == 0 then
    errors.usage("compare: no paper's claims are known about %s: give two values of one key, like "
      .. "decay=0.99 decay=none", name)
  end
  return list
end

-- Prints the comparisons of all claims as CSV; returns how many were measured.
local function claims_csv(list, frame)
  local rows, measured = {}, 0
  for _, published in ipairs(list) do
    local result = claims.of(published, frame)
    measured = measured + result.measured
    for i, claim in ipairs(result.claims) do
      for _, c in ipairs(claim.list) do
        local pair = c.pair or { x = {} }
        local ratio, low, high = judgement.range(pair)
        rows[#rows + 1] = { published.id, i, claim.verdict, claims.title(c), c.wanted, c.paper,
          ratio, low, high, #pair.x, pair.p, c.verdict }
      end
    end
  end
  io.write(text_table.csv({ "table", "claim", "verdict_of_claim", "ratio_of", "claimed", "paper",
    "ratio", "low", "high", "pairs", "p_holm", "verdict" }, rows))
  return measured
end

-- Prints the claims with their verdicts; returns how many comparisons were measured.
local function claims_text(list, frame)
  local measured = 0
  for i, published in ipairs(list) do
    local lines, count = claims.words(published, frame) -- raises if a filter leaves no trial
    measured = measured + count
    print(("%s%s by %s: %s\n"):format(i > 1 and "\n" or "", published.id, frame:title(),
      published.title))
    print(table.concat(lines, "\n"))
  end
  return measured
end

local function print_claims(set, store, name, filters)
  for _, option in ipairs { "metric", "ratio", "by", "resolve", "higher", "lower", "output" } do
    if set[option] then errors.usage("compare: --%s needs KEY=A KEY=B", option) end
  end
  local frame = find(store, name, nil, filters)
  local list = claimed_tables(name, frame)
  local measured = (set.csv and claims_csv or claims_text)(list, frame)
  if measured == 0 then
    errors.raise(errors.CHECK, "compare: no claim about %s was measured", name)
  end
end

function command.run(set, words)
  if set.higher and set.lower then errors.usage("compare: choose one of --higher and --lower") end
  style.check("compare", set)
  for _, option in ipairs { "title", "xlabel", "ylabel", "size", "font" } do
    if set[option] and not set.output then
      errors.usage("compare: --%s needs --output FILE", option)
    end
  end
  local resolve = arguments.number("compare", set, "resolve", 1e-300)
  local name, keys = parse(words)
  local baseline = set.baseline and (select(2, parse { set.baseline })[1]
    or errors.usage("compare: --baseline takes KEY=A, got '%s'", set.baseline))
  local store <close> = records.snapshot(records.folder(set.dir))
  local k, frame = baseline, nil
  if not k then k, frame = choose_key(store, name, keys) end
  local filters = filters_of(keys, k)
  if not k then return print_claims(set, store, name, filters) end
  frame = frame or find(store, name, k.key, filters)
  if not frame.axes[k.key] then
    errors.usage("compare: '%s' does not vary in %s%s", k.key, frame:title(),
      suggest.hint(k.key, sorted_keys(frame.axes)))
  end
  local texts, metric = settings(frame, k), choose_metric(frame, set.metric)
  local result = compare.new(frame, k.key, texts, metric, { ratio = set.ratio,
    better = set.higher and "higher" or set.lower and "lower" or nil,
    by = arguments.list("compare", set, "by") })
  if set.csv then print_csv(result) else print_text(result, resolve) end
  if set.output then draw(result, set) end
end

return command
