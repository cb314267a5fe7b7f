-- test_guard.lua: guards: what is a spike, ending, rolling back, and both after a kill.
local t = require "harness"
local core = require "toeplab.core"
local guard = require "toeplab.trials.guard"
local trials = require "trials"

local query, in_folder = trials.query, t.in_folder

-- Logs the values of losses; factor: of the learning rate. Where a loss is given twice, the second
-- is that after a rollback.
local script = [[
local tl = require "toeplab"
return tl.experiment "guarded" {
  fixed = { steps = 30, bad = 20, value = "1e9", fail_at = 0, flag = "" },
  checkpoint = { steps = 6 },
  guard = { metric = "loss", nan = "rollback", zscore = 6, retries = 2, lr_factor = 0.5 },
  trial = function(t, c)
    local model = tl.nn.Linear(2, 2)
    local opt = tl.optim.sgd(model, { lr = 0.1 })
    local part = { load = function() end, state = function()
      local flag = c.fail_at < 0 and opt.factor < 1 and io.open(c.flag)
      if flag then
        flag:close()
        error("no checkpoint")
      end
      return { n = 1 }
    end }
    for step in t:steps(c.steps, model, opt, nil, { part = part }) do
      opt:zero_grad()
      local loss = model(tl.ones(3, 2)):sum()
      loss:backward()
      local lr = opt:step().lr
      local bad = step == c.bad and lr > 0.03
      t:log { loss = bad and tonumber(c.value) or 1 + 0.01 * (step % 3), lr = lr }
      local flag = step == c.fail_at and io.open(c.flag)
      if flag then
        flag:close()
        error("broken")
      end
    end
  end,
}
]]

local function rows(folder)
  local lines = {}
  for i, m in ipairs(query(folder, "SELECT * FROM v_metrics ORDER BY name, step")) do
    lines[i] = ("%s %d %a"):format(m.name, m.step, m.value)
  end
  -- A resumed trial does not know which keys it read before, and stores no event of unread ones.
  for _, e in ipairs(query(folder, "SELECT * FROM v_events WHERE kind <> 'unread' "
    .. "ORDER BY step, text")) do
    lines[#lines + 1] = ("%s %d %s"):format(e.kind, e.step, e.text)
  end
  return table.concat(lines, "\n")
end

t.test("a spike stands out from the values before it, once there are enough", function()
  for _, offset in ipairs { 0.0, 1e9 } do -- a spread may be a small share of the values
    local g = guard.new { metric = "loss", zscore = 3, window = 10, retries = 1, nan = "stop" }
    for i = 1, 8 do g:logged("loss", offset + 1e-3 * (i % 2)) end
    g:logged("loss", offset + 5e-3)
    t.holds(select(2, g:verdict()), "loss is", " 8.4 deviations above its mean")
  end
  local g = guard.new { metric = "loss", zscore = 3, window = 10, retries = 1, nan = "stop" }
  for i = 1, 7 do g:logged("loss", 1 + 0.1 * (i % 2)) end
  g:logged("loss", 100.0) -- the eighth: too few to know
  t.eq(g:verdict(), nil)
  g.values = {}
  for i = 1, 12 do g:logged("loss", 1 + 0.1 * (i % 2)) end
  t.eq({ #g.values, g:verdict() == nil }, { 10, true })
  g:logged("other", 1e9)
  t.eq(g:verdict(), nil)
  g:logged("loss", 2.0)
  local verdict, why = g:verdict()
  t.eq(verdict, "rollback")
  t.ok(why:find "^loss is 2, [%d.]+ deviations above its mean 1.05", why)
  t.eq(#g.values, 10)
  g:logged("loss", 0 / 0)
  t.eq({ g:verdict() }, { "stop", "loss is nan" })
  g.spec.nan, g.used = "rollback", 1
  g:logged("loss", math.huge)
  t.eq({ g:verdict() }, { "stop", "loss is inf after 1 rollback" })
end)

t.test("a spike rolls the trial back, at a lower rate, until it passes", function()
  for _, value in ipairs { "1e9", "nan" } do
    in_folder(function(folder)
      local text = script:gsub('tonumber%(c.value%)', value == "nan" and "0/0" or "1e9")
      local code, said = trials.run(folder, text)
      t.eq(code, 0)
      t.ok(said:find "at step 20: back to step 18, learning rate times 0.5 %(1 of 2%)", said)
      t.ok(said:find "at step 20: back to step 18, learning rate times 0.25 %(2 of 2%)", said)
      local lr = query(folder, "SELECT step, value FROM v_metrics WHERE name = 'lr' ORDER BY step")
      t.eq(#lr, 30)
      t.eq({ lr[18].value, lr[19].value, lr[30].value }, { 0.1, 0.025, 0.025 }, 1e-6)
      local events = query(folder, "SELECT kind, step FROM v_events WHERE kind = 'rollback'")
      t.eq({ #events, events[1].kind, events[1].step }, { 2, "rollback", 20 })
      local path = query(folder, "SELECT path FROM v_artifacts WHERE step = 30")[1].path
      t.ok(path:find "/step%-00000030%-r2%.h5$", path) -- and nothing of before is left
      for _, name in ipairs(core.sys.list(folder .. "/results/" .. path:match "^(.*)/")) do
        t.ok(not name:find "^step%-" or name:find "%-r2%.h5$", name)
      end
    end)
  end
end)

t.test("a trial ends if rollbacks do not help, and the message says why", function()
  in_folder(function(folder)
    local code, said = trials.run(folder, (script:gsub("retries = 2", "retries = 1")))
    t.eq(code, 1)
    t.ok(said:find "guard: loss is 1e%+09, .* after 1 rollback at step 20", said)
    local row = query(folder, "SELECT status FROM v_trials")[1]
    t.eq(row.status, "guard")
  end)
  in_folder(function(folder)
    local code, said = trials.run(folder, (script:gsub('nan = "rollback"', 'nan = "stop"')
      :gsub('tonumber%(c.value%)', "-1/0")))
    t.eq(code, 1)
    t.ok(said:find "guard: loss is %-inf at step 20", said)
  end)
  in_folder(function(folder)
    local code, said = trials.run(folder, (script:gsub("model, opt, nil", "model, nil, nil")))
    t.eq(code, 1)
    t.ok(said:find "steps: a guard that rolls back .* pass the optimiser", said)
    code, said = trials.run(folder, (script:gsub("model, opt, nil", "model, nil, nil")
      :gsub('nan = "rollback"', 'nan = "stop"'))) -- for a spike it rolls back, too
    t.eq(code, 1)
    t.ok(said:find "steps: a guard that rolls back .* pass the optimiser", said)
    code, said = trials.run(folder, (script:gsub("model, opt, nil", "model, nil, nil")
      :gsub("retries = 2", "retries = 0")))
    t.ok(not said:find "give the optimiser", said)
  end)
end)

-- Its gradient at step `bad` is not finite, while its loss is.
local exploding = [[
local tl = require "toeplab"
return tl.experiment "exploding" {
  fixed = { bad = 6, leaves = false, loss = false }, checkpoint = { steps = 2 }, GUARD
  trial = function(t, c)
    local model = tl.nn.Linear(1, 1)
    local opt = tl.optim.sgd(model, { lr = 0.1 })
    local function update(step, broken)
      opt:zero_grad()
      local x = tl.zeros(1, 1)
      local loss = model(x):sum()
      if broken then loss = loss + tl.sqrt(model(x) - model(x)):sum() end
      loss:backward()
      local r = opt:step()
      t:log { loss = broken and c.loss and 0 / 0 or 1.0, lr = r.lr }
    end
    for step in t:steps(8, model, opt) do
      update(step, step == c.bad and opt.factor == 1)
      if step == c.bad and c.leaves then break end
    end
    if c.bad > 8 then update(9, true) end
  end,
}
]]

t.test("a gradient that is not finite is judged, though the loss is finite", function()
  for _, case in ipairs {
    { "", 1, "the gradient's norm is nan at step 6", "guard" },
    { 'guard = { metric = "loss" },', 1, "guard: the gradient's norm is nan at step 6", "guard" },
    { 'guard = { metric = "loss", nan = "rollback", every = 2 },', 0,
      "the gradient's norm is nan at step 6: back to step 4", "done" },
    { 'guard = { metric = "loss", nan = "rollback", every = 100 },', 1,
      "guard: the gradient's norm is nan at step 6, before the first checkpoint", "guard" },
    { "", 1, "the gradient's norm is nan at step 6", "guard", { "leaves=true" } },
    { 'guard = { metric = "loss" },', 1, "guard: loss is nan at step 6", "guard",
      { "leaves=true", "loss=true" } },
    { 'guard = { metric = "loss" },', 1, "sgd: the gradient's norm is %-?nan at update 9", "failed",
      { "bad=9" } },
  } do
    in_folder(function(folder)
      local code, said = trials.run(folder, (exploding:gsub("GUARD", case[1])), case[5])
      t.eq(code, case[2])
      t.ok(said:find(case[3]), said)
      t.eq(query(folder, "SELECT status FROM v_trials")[1].status, case[4])
    end)
  end
end)

t.test("a rollback lowers the rates of all optimisers of the library", function()
  in_folder(function(folder)
    local guarded = 'guard = { metric = "loss", nan = "rollback", every = 2 },'
    local text = exploding:gsub("GUARD", guarded)
      :gsub("local opt =", "local main = tl.optim.sgd(model, { lr = 0.1 })\n%0")
      :gsub("t:steps%(8, model, opt%)", "t:steps(8, model, main, nil, { second = opt })")
    local code, said = trials.run(folder, text)
    t.eq(code, 0)
    t.ok(said:find "back to step 4, learning rate times 0.5", said)
  end)
end)

t.test("the guard judges what the steps log: no value at an index, and none after them", function()
  local loss = "t:log({ loss = 0 / 0 }"
  for _, words in ipairs { { loss .. ", step)", "" }, { "", loss .. ")" } } do
    in_folder(function(folder)
      local text = [[
        local tl = require "toeplab"
        return tl.experiment "logs" { guard = { metric = "loss" }, trial = function(t)
          for step in t:steps(3) do t:log { loss = 1.0 } ]] .. words[1] .. " end " .. words[2]
        .. " end }"
      t.eq(trials.run(folder, text), 0)
    end)
  end
end)

t.test("an interrupted trial with a guard ends with the same bits", function()
  local wanted
  in_folder(function(folder)
    t.eq(trials.run(folder, script, { "fail_at=25", "flag=none" }), 0)
    wanted = rows(folder)
  end)
  for _, at in ipairs { 19, 20, 25, -1 } do -- -1: as the rollback is saved
    in_folder(function(folder)
      local flag = folder .. "/flag"
      local words = { "fail_at=" .. at, "flag=" .. flag }
      t.write(flag, "")
      t.eq(trials.run(folder, script, words), 1)
      os.remove(flag)
      t.eq(trials.run(folder, script, words), 0)
      t.eq(rows(folder), wanted)
    end)
  end
end)

-- The metrics and events of a trial that is stopped in each of these steps.
local function stopped_at(stops, more, text)
  local got
  in_folder(function(folder)
    t.eq({ trials.run_stopped(folder, text, stops, "step", { "steps=16", "bad=11" }, more) },
      { 0, #stops + 1 })
    got = rows(folder)
    t.ok(got:find "rollback 11 .*back to step 8", got)
  end)
  return got
end

t.test("a rollback returns to the best checkpoint, even from a better step", function()
  in_folder(function(folder)
    local text = script:gsub("t:log { loss = bad", "t:best(bad and -1 or 1 / step) %0")
    local code, said = trials.run(folder, text)
    t.eq(code, 0)
    t.ok(said:find "at step 20: back to step 19, learning rate times 0.5 %(1 of 2%)", said)
    t.ok(said:find "at step 20: back to step 19, learning rate times 0.25 %(2 of 2%)", said)
  end)
end)

t.test("a rollback returns to the same step wherever the trial was stopped", function()
  local text, all = script:gsub("checkpoint = { steps = 6 }", "checkpoint = { steps = 4 }"), {}
  local wanted = stopped_at({}, nil, text)
  for step = 7, 13 do all[#all + 1] = step end
  for _, words in ipairs { { steps = 3 }, { seconds = 1e6 }, { seconds = 0 } } do
    for _, stops in ipairs { all, { 10 }, { 11 } } do
      t.eq(stopped_at(stops, words, text), wanted)
    end
  end
end)

t.done()
