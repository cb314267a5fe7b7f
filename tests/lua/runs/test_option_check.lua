-- test_option_check.lua: a sweep with a wrong option is refused before its first trial starts, and
-- one with any other fault is not.
local t = require "harness"
local core = require "toeplab.core"
local trials = require "trials"

-- fields: of the experiment, in which a key takes the place of its usual value; first: what the
-- trial does before it makes a model.
local function script(fields, first)
  local fixed = ""
  for key, value in pairs { mixer = "'gtu'", dim = 8, heads = 1, lr = 0.1 } do
    if not fields:find(key .. " =") then fixed = ("%s%s = %s, "):format(fixed, key, value) end
  end
  return ([[
local tl = require "toeplab"
return tl.experiment "x" {
  %s,
  trial = function(t, c)
    %s
    local model = tl.models.tnn_lm(9, { layers = 1, dim = c.dim, mixer = c.mixer, heads = c.heads,
      glu_dim = 8 })
    local opt = tl.optim.adam(model, c)
    for _ in t:steps(1, model, opt) do t:log { loss = 1 } end
  end }
]]):format(fields:find "fixed = {" and fields:gsub("fixed = {", "%0 " .. fixed)
    or "fixed = { " .. fixed .. "}, " .. fields, first or "")
end

-- name, fields, how the lines of the error begin and what they hold
local wrong = {
  { "the last value of an axis", "grid = { mixer = { 'gtu', 'conv', 'typo' } }",
    { "/x.lua:3: TnnLM: option 'mixer' = 'typo' is not one of " } },
  { "a width that the heads do not divide",
    "fixed = { mixer = 'attention', heads = 3 }, grid = { dim = { 6, 12, 16 } }",
    { "/x.lua:3: dim = 16: ", "16 channels do not divide into 3 heads" } },
  { "a key that is fixed", "fixed = { heads = 0 }, grid = { dim = { 6, 12 } }",
    { "/x.lua:3: TnnLM: option 'heads' = 0 must be at least 1" } },
  { "an option of the optimiser", "grid = { dim = { 4, 8 }, lr = { 0.1, -0.1 } }",
    { "/x.lua:3: optim.adam: option 'lr' = -0.1 must be " } },
  { "two options of the optimiser",
    "fixed = { ema = 0.5, swa_start = 3 }, grid = { dim = { 4, 8 } }",
    { "/x.lua:3: optim.adam: option 'ema' = 0.5 cannot be combined with swa_start = 3: " } },
  { "a schedule that lacks an option", "fixed = { schedule = 'cosine' }, grid = { dim = { 4, 8 } }",
    { "/x.lua:", "schedule.cosine: option 'steps' is required" } },
  { "a key that is fixed, beside an axis of one value",
    "fixed = { heads = 0 }, grid = { dim = { 6 }, lr = { 0.1, 0.2 } }",
    { "/x.lua:3: TnnLM: option 'heads' = 0 must be at least 1" } },
  { "an option of a row", "rows = { row = { { 'a', mixer = 'gtu' }, { 'b', mixer = 'typo' } } }",
    { "/x.lua:3: row = b: TnnLM: option 'mixer' = 'typo' is not one of " } },
  { "two values of two axes", "grid = { dim = { 4, 0 }, mixer = { 'typo', 'gtu' } }",
    { "/x.lua:3: TnnLM: option 'dim' = 0 must be", "\n", "option 'mixer' = 'typo' is not one" } },
}

for _, case in ipairs(wrong) do
  t.test("no trial starts if an option is wrong: " .. case[1], function()
    t.in_folder(function(folder)
      local code, said = trials.run(folder, script(case[2]))
      t.eq(code, 2)
      t.holds(said, table.unpack(case[3]))
      t.eq(#trials.query(folder, "SELECT 1 FROM v_trials"), 0)
      t.eq(core.sys.list(folder .. "/results/runs"), nil)
    end)
  end)
end

t.test("no trial starts if an option is wrong beside data that a program prints", function()
  t.in_folder(function(folder)
    core.sys.mkdir(folder .. "/bin")
    t.write(folder .. "/bin/bible", "#!/bin/sh\nseq 400\n")
    t.write(folder .. "/x.lua", script("grid = { mixer = { 'gtu', 'typo' } }",
      "tl.corpus 'bible-kjv'"))
    local said, code = t.shell(("cd '%s' && chmod +x bin/bible && env TOEPLAB_DATA=none "
      .. "PATH=\"$PWD/bin:$PATH\" '%s' run x.lua 2>&1"):format(folder, core.sys.executable()))
    t.eq(code, 2)
    t.holds(said, "x.lua:3: TnnLM: option 'mixer' = 'typo' is not one of ")
  end)
end)

local good = "grid = { mixer = { 'gtu', 'conv' } }"

-- name, what the trial does first, how the trials end, what else is said
local others = {
  { "nothing", "", "2 done" },
  { "missing data", "tl.corpus 'no/such.txt'", "2 failed" },
  { "an error of the script", "error 'option it does not know'", "2 failed" },
  { "a function without a model", "do return end", "2 done" },
  { "an option error that the script catches", "pcall(tl.models.tnn_lm, 9, { layers = 'x' })",
    "2 done" },
  { "data that tasks refuse if it is not the trial's", "tl.tasks.glue { task = 'cola', vocab = "
    .. "tl.corpus('none', { tokenizer = 'gpt2' }).vocab, length = 1 }", "2 failed" },
  { "a long wait for the model", "local from = os.clock() while os.clock() < from + 0.7 do end",
    "2 done", "the options of 2 of 2 models were not checked before the first trial" },
  { "many modules, in one of which the time is over", "local from = os.clock() "
    .. "while os.clock() < from + 0.7 do tl.nn.TNO { dim = 4 } end", "2 done",
    "the options of 2 of 2 models were not checked before the first trial" },
}

for _, case in ipairs(others) do
  t.test("the trials run whatever else there is: " .. case[1], function()
    t.in_folder(function(folder)
      local _, said = trials.run(folder, script(good, case[2]))
      t.holds(said, "2 trials: " .. case[3], case[4] or "")
      t.eq(said:find("not checked", 1, true) ~= nil, case[4] ~= nil)
    end)
  end)
end

-- Counts the workers that are started for fn.
local function started(fn)
  local spawn, count = core.sys.spawn, 0
  core.sys.spawn = function(...)
    count = count + 1
    return spawn(...)
  end
  local ok, why = pcall(fn)
  core.sys.spawn = spawn
  t.ok(ok, why)
  return count
end

t.test("values that the store has are not checked again, and new ones are", function()
  t.in_folder(function(folder)
    local broken = "if c.mixer == 'conv' and io.open '" .. folder .. "/flag' then error 'x' end"
    local function run(words)
      return trials.run(folder, script(good, broken), words)
    end
    t.write(folder .. "/flag", "")
    for _, case in ipairs {
      { "one checks, and one runs both trials", {}, 1, 2 },
      { "the same command continues", {}, 0, 1 },
      { "more seeds", { "seeds=3" }, 0, 1 },
      { "a new value", { "mixer=gtu,typo", "seeds=2" }, 2, 1 },
      { "a single trial says itself what is wrong", { "mixer=typo" }, 1, 1 },
    } do
      local code
      local count = started(function() code = run(case[2]) end)
      t.eq({ case[1], code, count }, { case[1], case[3], case[4] })
      os.remove(folder .. "/flag")
    end
  end)
end)

t.done()
