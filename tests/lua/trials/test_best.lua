-- test_best.lua: the best checkpoint and early stopping: kept, resumed, lost.
local t = require "harness"
local checkpoint = require "toeplab.models.files.checkpoint"
local core = require "toeplab.core"
local trials = require "trials"

-- Every two steps the next of the values is told. Dropout, so that a lost stream would show.
local script = [[
local tl = require "toeplab"
return tl.experiment "best" {
  fixed = { steps = 16, patience = 3, values = { 5, 4, 6, 3, 7, 7, 7, 1 }, fail_at = 0, flag = "" },
  checkpoint = { steps = 3 },
  trial = function(t, c)
    local data = tl.corpus("text:" .. ("a bc def ghij "):rep(20), { batch = 2, length = 8 })
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 1, dim = 4, rpe_dim = 4,
      rpe_layers = 1, dropout = 0.2, backend = "naive" }
    local opt = tl.optim.adam(model, { lr = 0.01 })
    local function size() return (model.embed.weight * model.embed.weight):sum():item() end
    for step in t:steps(c.steps, model, opt, data) do
      t:log { loss = tl.train.lm_step(model, opt, data:batch(step)), size = size() }
      if step % 2 == 0 then
        local better = t:best(c.values[step // 2], c.patience)
        t:log { better = better and 1 or 0 }
      end
      local flag = step == c.fail_at and io.open(c.flag)
      if flag then
        flag:close()
        error("broken at " .. step)
      end
    end
    local step, value = t:load_best()
    t:log { best_step = step or -1, best = value or -1, best_size = size() }
  end,
  report = function() end,
}
]]

local query = trials.query

local function run(folder, words, text) return trials.run(folder, text or script, words) end

local function metric(folder, name, step)
  local row = query(folder, ("SELECT value FROM v_metrics WHERE name = '%s' AND step = %s"):format(
    name, step or "(SELECT max(step) FROM metrics)"))[1]
  return row and row.value
end

local function artifacts(folder)
  local list = {}
  for i, row in ipairs(query(folder, [[SELECT kind || ' ' || step AS name FROM v_artifacts
    WHERE kind IN ('best', 'checkpoint') ORDER BY kind, step]])) do list[i] = row.name end
  return list
end

-- All metrics and the sha256 of the best and the newest checkpoint.
local function result(folder)
  local lines = {}
  for _, m in ipairs(query(folder, "SELECT * FROM v_metrics ORDER BY name, step")) do
    lines[#lines + 1] = ("%s %d %a"):format(m.name, m.step, m.value)
  end
  for _, row in ipairs(query(folder, [[SELECT kind, max(step) AS step, sha256 FROM v_artifacts
    WHERE kind IN ('best', 'checkpoint') GROUP BY kind ORDER BY kind]])) do
    lines[#lines + 1] = ("%s %d %s"):format(row.kind, row.step, row.sha256)
  end
  return table.concat(lines, "\n")
end

t.test("the best checkpoint is kept, and early stopping ends the loop", function()
  t.in_folder(function(folder)
    t.eq(run(folder), 0)
    t.eq({ metric(folder, "best_step"), metric(folder, "best") }, { 8, 3 })
    t.eq(query(folder, "SELECT max(step) AS last FROM v_metrics WHERE name = 'loss'")[1].last, 14)
    local better = {}
    for i = 1, 7 do better[i] = metric(folder, "better", 2 * i) end
    t.eq(better, { 1, 1, 0, 1, 0, 0, 0 })
    t.eq(artifacts(folder), { "best 8", "checkpoint 12", "checkpoint 14" })
    t.eq(metric(folder, "best_size"), metric(folder, "size", 8))
    -- The best one is a whole checkpoint.
    local path = query(folder, "SELECT path FROM v_artifacts WHERE kind = 'best'")[1].path
    local state = checkpoint.read(folder .. "/results/" .. path)
    t.eq({ state.step, state.optim.step }, { 8, 8 })
    t.eq(state.best, { value = 3, step = 8, waited = 0 })
    t.eq(checkpoint.read(folder .. "/results/" .. path, "best"), { best = state.best })
    t.eq(core.sys.list(folder .. "/results/" .. path:match "^(.*)/"), { "best-00000008.h5",
      "events-1.jnl", "model-00000000.json", "step-00000012.h5", "step-00000014.h5",
      "vocabulary-00000000.txt" })
  end)
end)

t.test("without patience the loop runs to its end; the last step may be the best", function()
  t.in_folder(function(folder)
    t.eq(run(folder, { "patience=9" }), 0)
    t.eq({ metric(folder, "best_step"), metric(folder, "best") }, { 16, 1 })
    t.eq(artifacts(folder), { "best 16", "checkpoint 15", "checkpoint 16" })
    t.eq(metric(folder, "best_size"), metric(folder, "size", 16))
  end)
end)

t.test("NaN counts as a value that is not better", function()
  t.in_folder(function(folder)
    local function telling(value) return (script:gsub("c.values%[step // 2%]", value)) end
    t.eq(run(folder, { "patience=4", "steps=40" }, telling "step == 6 and 2.5 or 0/0"), 0)
    t.eq({ metric(folder, "best_step"), metric(folder, "best") }, { 6, 2.5 })
    t.eq(query(folder, "SELECT max(step) AS last FROM v_metrics WHERE name = 'loss'")[1].last, 14)
    t.eq(run(folder, { "patience=2" }, telling "0/0"), 0)
    local sql = "SELECT min(value) AS none FROM v_metrics WHERE name = 'best_step'"
    t.eq(query(folder, sql)[1].none, -1)
  end)
end)

-- Breaks the run at a step, applies damage to the trial's folder, goes on, and compares with a run
-- that nothing broke.
local function goes_on(at, damage, want)
  t.in_folder(function(folder)
    local flag = folder .. "/flag"
    local words = { "fail_at=" .. at, "flag=" .. flag }
    t.write(flag, "")
    t.eq(run(folder, words), 1)
    os.remove(flag)
    local id = query(folder, "SELECT id FROM v_trials")[1].id
    if damage then damage(folder .. "/results/runs/" .. id:sub(1, 12)) end
    local code, said = run(folder, words)
    t.eq(code, 0)
    t.ok(said:find(want), said)
    local got = result(folder)
    t.in_folder(function(other)
      t.eq(run(other, { "fail_at=" .. at, "flag=none" }), 0)
      t.eq(got, result(other))
    end)
  end)
end

t.test("interrupted anywhere, a trial resumes to the same bits", function()
  for _, at in ipairs { 2, 8, 11, 14 } do
    goes_on(at, nil, at > 2 and "resumed after step" or "1 done")
  end
end)

t.test("a trial stopped in any step ends with the same bits", function()
  local wanted
  t.in_folder(function(folder)
    t.eq(run(folder), 0)
    wanted = result(folder)
  end)
  for _, more in ipairs { { steps = 3 }, { seconds = 1e6 } } do
    for _, moments in ipairs { { 7, 8, 9, 13, 14 }, { 14 } } do -- the best one is 8, the last 14
      t.in_folder(function(folder)
        t.eq({ trials.run_stopped(folder, script, moments, "step", {}, more) },
          { 0, #moments + 1 })
        t.eq(result(folder), wanted)
      end)
    end
  end
end)

t.test("a loop that the script leaves ends there, with the checkpoint of that step", function()
  t.in_folder(function(folder)
    local text = script:gsub("local flag = step", "if step == 8 then break end local flag = step")
      :gsub("local step, value", [[if c.fail_at == 99 and os.remove(c.flag) then error "once" end
    local step, value]])
    t.eq(run(folder, { "patience=9" }, text), 0)
    t.eq(artifacts(folder), { "best 8", "checkpoint 6", "checkpoint 8" })
    t.eq({ metric(folder, "best_step"), metric(folder, "best") }, { 8, 3 })
    t.in_folder(function(other) -- it goes on after the loop, not in it
      t.write(other .. "/flag", "")
      local words = { "patience=9", "fail_at=99", "flag=" .. other .. "/flag" }
      t.eq(run(other, words, text), 1)
      local code, said = run(other, words, text)
      t.eq(code, 0)
      t.holds(said, "resumed after step 8 of 16")
      t.eq(result(other), result(folder))
    end)
  end)
end)

t.test("a trial can resume from a best checkpoint", function()
  goes_on(9, nil, "resumed after step 8 of 16")
end)

t.test("checkpoints after a lost best checkpoint are not used", function()
  goes_on(13, function(folder) os.remove(folder .. "/best-00000008.h5") end,
    "step%-00000012.h5 cannot be used: the best checkpoint, of step 8, is missing")
  goes_on(13, function(folder)
    local path = folder .. "/best-00000008.h5"
    t.write(path, t.read(path):sub(1, 900))
  end, "cannot be used: the best checkpoint, of step 8, is damaged")
end)

t.test("wrong calls of t:best and t:load_best are errors", function()
  t.in_folder(function(folder)
    local function fails(old, new, want)
      local code, said = run(folder, {}, (script:gsub(old, new)))
      t.eq(code, 1)
      t.ok(said:find(want), said)
    end
    fails("local data", "t:best(1) local data", "best: must be called inside the loop")
    fails("local data", "t:load_best() local data", "load_best: must be called after the loop")
    fails("model, opt, data%) do.-\n    end\n", "nil) do t:best(step) end\n",
      "x%.lua:%d+: load_best: pass the model to t:steps")
    fails("c.values%[step // 2%]", "1, 0", "best: patience is an integer of at least 1, got 0")
    fails("c.values%[step // 2%]", "1, 'x'", "best: patience is an integer of at least 1, got x")
    fails("c.values%[step // 2%]", "'low'", "takes a number %(lower is better%), got a string")
  end)
end)

t.done()
