-- commands/compare.lua: toeplab compare: compares two settings, paired by seed.
local arguments = require "toeplab.base.arguments"
local filter = require "toeplab.report.filter"
local claims = require "toeplab.report.claims"
local compare = require "toeplab.report.compare"
local looks = require "toeplab.report.looks"
local output = require "toeplab.report.output"
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
    .. "  toeplab compare tnn/table10",
  usage = "toeplab compare [NAME] KEY=A KEY=B [KEY=VALUE...]\n"
    .. "       toeplab compare NAME [KEY=VALUE...]",
  about = "Compares the trials of KEY=B with those of KEY=A, paired by seed: the difference B - A\n"
    .. "with its interval (Student's t), the probability that a run of B beats one of A,\n"
    .. "p with Holm's correction over the rows, what may be claimed, and how many\n"
    .. "seeds a claim would need. NAME is an experiment, a published table, or the number of a\n"
    .. "sweep; without it the newest experiment in which KEY varies. KEY=VALUE chooses trials,\n"
    .. "as for table.\n"
    .. "Without KEY=A KEY=B: whether the trials support, contradict, or cannot tell what the\n"
    .. "paper claims of the table NAME, or of the tables that the experiment NAME answers.",
  words = { "tables_or_filters", "filters" },
  options = {
    { name = "metric", short = "m", value = "NAME", of = "metrics",
      help = "the metric to compare (default: the first of the report or table)" },
    { name = "by", value = "KEYS", many = true, of = "keys_stored", list = true,
      help = "a row for each value of KEYS (A,B; default: all that vary)" },
    { name = "higher", help = "higher is better",
      more = [[
        Instead of what the experiment declares or the name of the metric says; so with
        `--lower`.]] },
    { name = "lower", help = "lower is better" },
    { name = "resolve", value = "D", help = "how many seeds a difference of D needs" },
    { name = "csv", help = "the rows as CSV" },
    output.dir,
  },
}

-- Splits the words into the name, the key with its two values, and the filters.
local function parse(words)
  local name, seen, filters, key = nil, {}, {}, nil
  for _, word in ipairs(words) do
    local k = word:match "^([%a_][%w_.]*)="
    if not k then
      if name then errors.usage("compare: one name at most, got '%s' and '%s'", name, word) end
      name = word
    elseif seen[k] then
      if key then errors.usage("compare: one key in two values; '%s' is one too many", word) end
      key = k
      seen[k] = { seen[k], word }
    else
      seen[k] = word
    end
  end
  if not key then
    if not name then
      errors.usage("compare: give one key in two values, like decay=0.99 decay=none, or the name "
        .. "of a table whose claims are to be judged, like tnn/table10")
    end
    for _, word in pairs(seen) do filters[#filters + 1] = word end
    return name, nil, nil, nil, filters
  end
  local first, second = seen[key][1]:sub(#key + 2), seen[key][2]:sub(#key + 2)
  if first == second or tonumber(first) and tonumber(first) == tonumber(second) then
    errors.usage("compare: %s is given twice: one key in two values", seen[key][1])
  end
  for _, word in ipairs(words) do
    local k = word:match "^([%a_][%w_.]*)="
    if k and k ~= key then filters[#filters + 1] = word end
  end
  return name, key, first, second, filters
end

local function find(store, name, key, filters)
  local pool, others = frames.named(store, name, filters, key)
  if pool then
    if key and not pool.axes[key] then
      errors.usage("compare: '%s' does not vary in %s%s", key, pool:title(),
        suggest.hint(key, sorted_keys(pool.axes)))
    end
    return pool
  end
  if name then frames.none_is("compare", store, name, others) end
  if #others > 0 then
    errors.usage("compare: no trials fit; there are: %s", table.concat(others, "; "))
  end
  errors.usage("compare: '%s' varies in no experiment of %s", key, store.folder)
end

local function choose_metric(pool, given)
  local logged = pool:metrics()
  local name = given or compare.metric(pool, logged)
  if not next(logged) then
    local left_out = pool:left_out()
    errors.raise(errors.FAILED, "compare: no trial of %s has logged anything yet%s", pool:title(),
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

local function rows_of(result)
  local rows = {}
  for i, row in ipairs(result.rows) do
    local d = row.difference or {}
    rows[i] = { row.label, #row.a, d.n and stats.mean(row.a),
      d.n and stats.mean(row.b), d.mean, d.low, d.high, row.chance, row.p }
  end
  return rows
end

local numbers = { [2] = true, [3] = true, [4] = true, [5] = true } -- columns on the right

-- Returns the number v, and the interval, with the decimals that the interval deserves.
local function rounded(v, low, high)
  local decimals = low and stats.decimals((high - low) / 2)
  local form = decimals and "%." .. decimals .. "f"
  local function text(x) return form and x and form:format(x) or text_table.cell(x) end
  return text(v), low and ("[%s, %s]"):format(text(low), text(high)) or "-", text
end

local function print_text(result, resolve)
  local name = result.key .. "="
  print(("%s: %s, %s is better; difference: %s minus %s, paired by seed\n"):format(
    result.pool:title(), result.metric, result.better, name .. result.b, name .. result.a))
  local lines = rows_of(result)
  for i, row in ipairs(lines) do
    local difference, interval, text = rounded(row[5], row[6], row[7])
    lines[i] = { row[1], row[2], text(row[3]), text(row[4]), difference, interval,
      row[8] and ("%.2f"):format(row[8]) or "-", row[9] and ("%.3g"):format(row[9]) or "-" }
  end
  local o = result.overall
  if o then
    local difference, interval = rounded(o.mean, o.low, o.high)
    lines[#lines + 1] = { "overall, middle half", o.pairs, "", "", difference, interval, "-",
      "bootstrap" }
  end
  local interval = looks.corrected(result.pool) and "interval" or "95 % interval"
  local header = { "", "pairs", name .. result.a, name .. result.b, "difference", interval,
    "P(better)", #result.rows > 1 and "p (Holm)" or "p" }
  for _, text in ipairs(text_table.lines(header, lines, numbers)) do print(text) end
  print()
  for _, text in ipairs(compare.words(result, resolve, progress.duration)) do print(text) end
  local left_out = result.pool:left_out()
  if left_out then print(left_out) end
end

-- ---- Claims -----------------------------------------------------------------------------------

-- Returns the published tables with claims that NAME is or answers.
local function claimed_tables(name, pool)
  local ids, list = pool.plan.answers or {}, {}
  for _, id in ipairs(published_tables.ids()) do ids = id == name and { id } or ids end
  for _, id in ipairs(ids) do
    local published = published_tables.read(id)
    if published.claims and (id == name or not published.numbers) then
      list[#list + 1] = published
    end
  end
  if #list == 0 then
    errors.usage("compare: no paper's claims are known of %s: give one key in two values, like "
      .. "decay=0.99 decay=none", name)
  end
  return list
end

-- Prints the comparisons of all claims as CSV; returns how many were measured.
local function claims_csv(list, pool)
  local rows, measured = {}, 0
  for _, published in ipairs(list) do
    local result = claims.of(published, pool)
    measured = measured + result.measured
    for i, claim in ipairs(result.claims) do
      for _, c in ipairs(claim.list) do
        rows[#rows + 1] = { published.id, i, claim.verdict, claims.title(c), c.wanted, c.paper,
          c.ratio, c.low, c.high, c.logs and #c.logs or 0, c.p, c.verdict }
      end
    end
  end
  io.write(text_table.csv({ "table", "claim", "verdict_of_claim", "ratio_of", "claimed", "paper",
    "ratio", "low", "high", "pairs", "p_holm", "verdict" }, rows))
  return measured
end

-- Prints the claims with their verdicts; returns how many comparisons were measured.
local function claims_text(list, pool)
  local measured = 0
  for i, published in ipairs(list) do
    local lines, count = claims.words(published, pool) -- raises if a filter leaves no trial
    measured = measured + count
    print(("%s%s by %s: %s\n"):format(i > 1 and "\n" or "", published.id, pool:title(),
      published.title))
    print(table.concat(lines, "\n"))
  end
  return measured
end

local function print_claims(set, store, name, filters)
  for _, option in ipairs { "metric", "resolve", "higher", "lower" } do
    if set[option] then errors.usage("compare: --%s needs KEY=A KEY=B", option) end
  end
  if set.by then errors.usage "compare: --by needs KEY=A KEY=B" end
  local pool = find(store, name, nil, filters)
  local list = claimed_tables(name, pool)
  local measured = (set.csv and claims_csv or claims_text)(list, pool)
  if measured == 0 then
    errors.raise(errors.CHECK, "compare: no claim about %s was measured", name)
  end
end

function command.run(set, words)
  if set.higher and set.lower then errors.usage("compare: choose one of --higher and --lower") end
  local resolve = arguments.number("compare", set, "resolve", 1e-300)
  local name, key, a, b, filter_words = parse(words)
  local filters = filter.read("compare", filter_words)
  local store <close> = records.snapshot(records.folder(set.dir))
  if not key then return print_claims(set, store, name, filters) end
  local pool = find(store, name, key, filters)
  local metric = choose_metric(pool, set.metric)
  local better = set.higher and "higher" or set.lower and "lower" or nil
  local result = compare.new(pool, key, a, b, metric, better,
    arguments.list("compare", set, "by"))
  if set.csv then
    io.write(text_table.csv({ "row", "pairs", "mean_a", "mean_b", "difference", "low", "high",
      "p_better", "p_holm" }, rows_of(result)))
  else
    print_text(result, resolve)
  end
end

return command
