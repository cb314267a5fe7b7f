-- test_questions.lua: the commands of docs/questions.md, whose answers are computed again here from
-- the stored values.
local t = require "harness"
local core = require "toeplab.core"
local records = require "toeplab.store.records"
local stats = require "toeplab.report.stats"

local page = t.read(t.root .. "docs/questions.md")

-- ---- The page -----------------------------------------------------------------------------------

-- Returns the script of the page, the commands that run it, and the questions: {title=, commands=,
-- shown= (the lines below them)}.
local function parts_of(text)
  local script, first = text:match "```lua\n(.-)```.-```sh\n(.-)```"
  local list = {}
  for part in text:gsub("\n## ", "\0"):gmatch "%z([^%z]+)" do
    list[#list + 1] = { title = part:match "^%d+%. ([^\n]+)",
      commands = part:match "```sh\n(.-)```", shown = part:match "```text\n(.-)```" }
  end
  return script, first, list
end

-- Calls fn for the words of each command of a block.
local function each(block, fn)
  for line in block:gmatch "[^\n]+" do fn((line:gsub("^%./lab ", ""):gsub("%s+#.*$", ""))) end
end

-- ---- The answers --------------------------------------------------------------------------------

-- Returns all trials: config, with id, seed, seconds and status, and their last values.
local function trials_of(store)
  local list = {}
  for i, row in ipairs(store:rows "SELECT * FROM v_trials ORDER BY started, id") do
    list[i] = store:config(row.config)
    list[i].id, list[i].seconds, list[i].status = row.id, row.seconds, row.status
    list[i].values = store:results(row.id)
  end
  return list
end

-- Returns the trials with these keys that are done, by seed.
local function chosen(trials, keys)
  local list = {}
  for _, trial in ipairs(trials) do
    local fits = trial.status == "done"
    for key, value in pairs(keys) do fits = fits and trial[key] == value end
    if fits then list[trial.seed] = trial end
  end
  t.eq(#list, 5)
  return list
end

local function values(trials, keys, metric)
  local list = {}
  for i, trial in ipairs(chosen(trials, keys)) do list[i] = trial.values[metric or "bits"] end
  return list
end

local function differences(a, b)
  local list = {}
  for i, x in ipairs(a) do list[i] = b[i] - x end
  return list
end

-- Returns the numbers of the line that begins with a label.
local function row(said, label)
  local line = ("\n" .. said):match("\n" .. label:gsub("%p", "%%%0") .. "%s+([^\n]+)")
  t.ok(line, "no row " .. label .. " in\n" .. said)
  local list = {}
  for number in line:gmatch "%-?%d[%d.]*e?%-?%d*" do list[#list + 1] = tonumber(number) end
  return list
end

-- got shows want with the decimals that it has.
local function near(got, want, tolerance)
  t.ok(got and math.abs(got - want) <= (tolerance or 0.0051),
    ("%s is not %g"):format(tostring(got), want))
end

local function p_of(x)
  local spread = stats.deviation(x) / math.sqrt(#x)
  return 2 * stats.t_tail(math.abs(stats.mean(x)) / spread, #x - 1)
end

local RATES, REACHES = { 0.003, 0.01, 0.03 }, { 2, 4, 16 }
local NEAR, FAR = { blind = 0, lr = 0.01, max_lag = 2 }, { blind = 0, lr = 0.01, max_lag = 16 }

-- By number of the question: each receives what its last command printed, and the trials.
local answers = {}

answers[1] = function(said, trials)
  for _, lr in ipairs(RATES) do
    for _, max_lag in ipairs(REACHES) do
      local keys = { blind = 0, lr = lr, max_lag = max_lag }
      local got = row(said, ("lr=%g max_lag=%d"):format(lr, max_lag))
      near(got[1], stats.mean(values(trials, keys)))
      near(got[3], stats.mean(values(trials, keys, "bits_long")))
    end
  end
end

answers[2] = function(said, trials)
  for _, max_lag in ipairs(REACHES) do
    local got = row(said, tostring(max_lag))
    for i, lr in ipairs(RATES) do
      near(got[2 * i - 1], stats.mean(values(trials, { blind = 0, lr = lr, max_lag = max_lag })))
    end
  end
end

answers[3] = function(said, trials)
  for _, max_lag in ipairs(REACHES) do
    local got = row(said, tostring(max_lag))
    for seed, value in ipairs(values(trials, { blind = 0, lr = 0.01, max_lag = max_lag })) do
      near(got[seed], value, 1e-4)
    end
  end
end

answers[4] = function(said, trials)
  local got, x = row(said, "all"), differences(values(trials, NEAR), values(trials, FAR))
  near(got[4], stats.mean(x))
  near(got[#got] / p_of(x), 1, 0.01)
  t.eq(said:find("max_lag=16 is better than max_lag=2", 1, true) ~= nil, p_of(x) < 0.05)
end

answers[5] = function(said, trials)
  for _, lr in ipairs(RATES) do
    local a = values(trials, { blind = 0, lr = lr, max_lag = 2 })
    local b, logs = values(trials, { blind = 0, lr = lr, max_lag = 16 }), {}
    for i in ipairs(a) do logs[i] = math.log(b[i] / a[i]) end
    near(row(said, ("lr=%g"):format(lr))[4], math.exp(stats.mean(logs)))
  end
end

answers[6] = function(said, trials)
  local base, p = values(trials, NEAR, "loss"), {}
  for blind = 1, 2 do
    local x = differences(base, values(trials, { blind = blind, lr = 0.01, max_lag = 2 }, "loss"))
    near(row(said, "blind=" .. blind)[4], stats.mean(x), 5.1e-4)
    p[blind] = p_of(x)
  end
  for blind, corrected in ipairs(stats.holm(p)) do
    local got = row(said, "blind=" .. blind)
    near(got[#got] / corrected, 1, 0.01)
  end
end

answers[7] = function(said, trials)
  local x = differences(values(trials, { blind = 0, lr = 0.01, max_lag = 4 }), values(trials, FAR))
  local seeds = stats.pairs_needed(stats.deviation(x), 0.02, nil, 0.99) -- of a second look
  t.holds(said, ("about %d seeds in all, %d trials more"):format(seeds, 2 * (seeds - 5)),
    ("toeplab run tiny.lua blind=0 lr=0.01 max_lag=4,16 seeds=%d"):format(seeds))
end

answers[8] = function(said, trials, store)
  local tenths = {}
  for sign, keys in pairs { [-1] = NEAR, [1] = FAR } do
    for _, trial in ipairs(chosen(trials, keys)) do
      for _, m in ipairs(store:rows("SELECT step, value FROM v_metrics WHERE trial = ? AND "
        .. "name = 'loss'", { trial.id })) do
        local i = (m.step - 1) // 10 + 1
        tenths[i] = (tenths[i] or 0.0) + sign * m.value / 50
      end
    end
  end
  local places = {}
  for i, x in ipairs(tenths) do
    near(row(said, ("step %d to %d"):format(10 * i - 9, 10 * i))[4], x)
    local next = tenths[i + 1]
    if next and (x < 0) ~= (next < 0) then
      places[#places + 1] = ("%.0f"):format(10 * i - 4.5 + 10 * x / (x - next))
    end
  end
  t.ok(#places > 0, "the curves do not cross")
  t.holds(said, ("cross near step %s, after which max_lag=%d is better"):format(
    table.concat(places, " and "), tenths[10] < 0 and 16 or 2))
end

answers[9] = function(said, trials)
  local x, y, xy, xx, yy = 0.0, 0.0, 0.0, 0.0, 0.0
  for _, trial in ipairs(trials) do
    local a, b = trial.values.loss, trial.values.bits
    x, y, xy, xx, yy = x + a, y + b, xy + a * b, xx + a * a, yy + b * b
  end
  local n, got = #trials, row(said, "loss  bits")
  near(got[1], n, 0)
  near(got[2], (n * xy - x * y) / math.sqrt((n * xx - x * x) * (n * yy - y * y)), 1e-4)
  t.ok(got[3] < got[2] and got[2] < got[4], said)
end

-- The ids in the first column are those of the trials in an order.
local function first(said, trials, before, count)
  local sorted, place = table.move(trials, 1, #trials, 1, {}), 1
  table.sort(sorted, before)
  for i = 1, count do
    place = t.ok(said:find("\n" .. sorted[i].id:sub(1, 12), place, true), said)
  end
  t.eq(select(2, said:gsub("\n", "")), count + 1)
end

local function better(a, b) return a.values.bits < b.values.bits end

answers[10] = function(said, trials) first(said, trials, better, 3) end

answers[11] = function(said, trials)
  first(said, trials, function(a, b) return a.seconds > b.seconds end, 1)
end

answers[12] = function(said, trials)
  local last = trials[#trials]
  table.sort(trials, better)
  t.holds(said, ("configuration  %s  %s"):format(trials[1].id:sub(1, 12), last.id:sub(1, 12)))
  for _, key in ipairs { "lr", "max_lag", "blind" } do
    t.eq(said:find("\n  " .. key .. " ", 1, true) ~= nil, trials[1][key] ~= last[key])
  end
  near(row(said, "  bits")[3], last.values.bits - trials[1].values.bits, 1.1e-4)
end

answers[13] = function(said, trials)
  table.sort(trials, better)
  t.holds("\n" .. said, "\n" .. trials[1].id:sub(1, 12), "102 of 102 the same\n",
    "\nbit-identical\n")
end

answers[14] = function(said)
  near(row(said, "  to run")[1], 1, 0)
  local whole, step = said:match "cost +([%d.]+) GFLOP; the largest: a step ([%d.]+) MFLOP"
  near(100 * step / 1000, tonumber(whole), 0.06)
end

answers[15] = function(said, trials)
  local count = 0
  for _, trial in ipairs(trials) do count = count + (trial.status == "failed" and 1 or 0) end
  t.eq(count, 3)
  t.holds(said, "A  3x  tiny  failed", "2520 training tokens are fewer than length + 1 = 4001",
    "again: toeplab run tiny.lua length=4000 seeds=1")
end

-- ---- The test -----------------------------------------------------------------------------------

-- The rows that the page shows have labels that the program prints.
local function check_shown(shown, said)
  for line in shown:gmatch "[^\n]+" do
    local label = line:match "^([%l_]+=%S*)  " or line:match "^(step %d+ to %d+)  "
      or line:match "^(%l[%l_]+ ?[%l_]*)  +%-?%d"
    if label then t.holds(said, "\n" .. label) end
  end
end

t.test("the commands of questions.md answer its fifteen questions", function()
  local script, commands, questions = parts_of(page)
  t.eq({ #questions, #answers }, { 15, 15 })
  t.in_folder(function(folder)
    t.write(folder .. "/tiny.lua", script)
    local function toeplab(words)
      local text, code = t.shell(("cd '%s' && TOEPLAB_THREADS=1 '%s' %s 2>said"):format(folder,
        core.sys.executable(), words))
      return text, code, t.read(folder .. "/said")
    end
    each(commands, function(words)
      local _, code, why = toeplab(words)
      t.ok(code == 0, words .. ": " .. why)
    end)
    for i, question in ipairs(questions) do
      local said, code, why
      each(question.commands, function(words) said, code, why = toeplab(words) end)
      t.ok(code == 0, ("%d. %s\n%s"):format(i, question.title, why))
      local store <close> = records.open(folder .. "/results", "r")
      local ok, problem = pcall(answers[i], said, trials_of(store), store)
      t.ok(ok, ("%d. %s\n%s\n%s"):format(i, question.title, tostring(problem), said))
      check_shown(question.shown, "\n" .. said)
    end
  end)
end)

t.done()
