-- test_resume.lua: checkpoints that are damaged while their trial runs, or are of other parts.
local t = require "harness"
local trials = require "trials"

-- Its loss is too large at step 20, until a rollback lowers the rate. The file FLAG breaks it once.
local script = [[
local tl = require "toeplab"
local function once() return os.remove "FLAG" end
local function cut(name)
  local run = "FOLDER/results/runs/" .. tl.sys.list("FOLDER/results/runs")[1]
  local text = assert(tl.sys.read_file(run .. "/" .. name))
  assert(tl.sys.write_file(run .. "/" .. name, text:sub(1, 900)))
end
return tl.experiment "resumed" {
  fixed = { steps = 24 }, checkpoint = { steps = 6 },
  guard = { metric = "loss", nan = "rollback", zscore = 6, retries = 2, lr_factor = 0.5 },
  trial = function(t, c)
    local model = tl.nn.Linear(2, 2)
    local opt = tl.optim.sgd(model, { lr = 0.1 })
    local noise = tl.stream_of "noise"
    local part = { load = function() end, state = function() return { n = 1 } end }
    for step in t:steps(c.steps, model, opt, nil, { [PART] = part }) do
      opt:zero_grad()
      model(noise:normal(tl.zeros(3, 2), 0, 1)):sum():backward()
      local lr = opt:step().lr
      t:best(step == 9 and -1 or step)
      IN_LOOP
      t:log { loss = step == 20 and lr > 0.06 and 1e9 or 1 + 0.01 * (step % 3) }
    end
    AFTER_LOOP
    t:log { best_step = t:load_best(), size = (model.weight * model.weight):sum():item() }
  end,
}
]]

-- Everything that a trial has logged.
local function rows(folder)
  local lines = {}
  for i, m in ipairs(trials.query(folder, "SELECT * FROM v_metrics ORDER BY name, step")) do
    lines[i] = ("%s %d %a"):format(m.name, m.step, m.value)
  end
  return table.concat(lines, "\n")
end

local function text_of(folder, put)
  return (script:gsub("PART", put.part or '"part"'):gsub("IN_LOOP", put.in_loop or "")
    :gsub("AFTER_LOOP", put.after_loop or ""):gsub("FLAG", folder .. "/flag")
    :gsub("FOLDER", folder))
end

local cases = {
  { "a rollback to a checkpoint that is damaged ends the trial",
    { in_loop = 'if step == 20 and once() then cut "step-00000018.h5" end' },
    "guard: checkpoint %S+/step%-00000018%.h5 is damaged %(.-%); run the same command to train "
      .. "again from an earlier checkpoint" },
  { "so does one to a checkpoint whose best one is damaged",
    { in_loop = 'if step == 20 and once() then cut "best-00000009.h5" end' },
    "guard: checkpoint %S+/step%-00000018%.h5 cannot be used: the best checkpoint, of step 9, " },
  { "a best checkpoint that is damaged before it is loaded ends the trial",
    { after_loop = 'if once() then cut "best-00000009.h5" end' },
    "the best checkpoint %S+/best%-00000009%.h5 is damaged %(.-%); run the same command to train "
      .. "again from an earlier checkpoint" },
}

for _, case in ipairs(cases) do
  t.test(case[1] .. ", and the same command ends as undisturbed", function()
    local wanted
    t.in_folder(function(folder)
      t.eq(trials.run(folder, text_of(folder, case[2])), 0)
      wanted = rows(folder)
    end)
    t.in_folder(function(folder)
      t.write(folder .. "/flag", "")
      local code, said = trials.run(folder, text_of(folder, case[2]))
      t.eq(code, 1)
      t.ok(said:find(case[3]), said)
      t.eq(trials.query(folder, "SELECT status FROM v_trials")[1].status, "failed")
      t.eq(trials.run(folder, text_of(folder, case[2])), 0)
      t.eq(rows(folder), wanted)
    end)
  end)
end

t.test("refuses to resume from a checkpoint that lacks a part's state", function()
  t.in_folder(function(folder)
    local text = text_of(folder, { part = 'tl.sys.exists "FLAG" and "old" or "new"',
      in_loop = 'if step == 8 and once() then error "broken" end' })
    t.write(folder .. "/flag", "")
    t.eq(trials.run(folder, text), 1)
    local code, said = trials.run(folder, text)
    t.eq(code, 1)
    t.ok(said:find("it lacks the state of 'new'", 1, true), said)
  end)
end)

t.done()
