-- test_logged_tensors.lua: tensors that trials log: one file for each name and step, which a kill,
-- a rollback or a second value leave in step with its row.
local t = require "harness"
local core = require "toeplab.core"
local log_types = require "toeplab.trials.log_types"
local logged_tensors = require "toeplab.store.logged_tensors"
local records = require "toeplab.store.records"
local tl = require "toeplab"
local trial_rows = require "toeplab.runs.trial_rows"
local trials = require "trials"

local script = [[
local tl = require "toeplab"
return tl.experiment "kept" {
  fixed = { steps = 9 }, checkpoint = { steps = 4 },
  GUARD
  trial = function(t, c)
    local model = tl.nn.Linear(2, 2)
    local opt = tl.optim.sgd(model, { lr = 0.1 })
    local x = tl.zeros(3)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    t:log { start = tl.ids { { 1, 2 }, { 3, -4 } } }
    for step in t:steps(c.steps, model, opt, nil, { part = part }) do
      x:copy(x + noise:normal(tl.zeros(3), 0, 1))
      if step % 2 == 1 then t:log { kernel = x } end
      t:log { loss = LOSS }
    end
    t:log { last = tl.zeros(2) }
    t:log { last = tl.tensor { 0 / 0, 1 / 0 } }
  end,
  report = function(list, report)
    local steps, kernel = list[1]:tensors "kernel"
    local shape = table.concat(kernel:shape(), "x")
    assert(table.concat(steps, " ") == "1 3 5 7 9" and shape == "5x3" and report, shape)
  end,
}
]]

local function text_of(put)
  return (script:gsub("GUARD", put.guard or ""):gsub("LOSS", put.loss or "x:sum()"))
end

-- Everything that the trial there has kept of tensors: rows, and what the files say.
local function kept(folder)
  local store <close> = records.open(folder .. "/results", "r")
  local lines = {}
  local id = store:rows("SELECT id FROM v_trials")[1].id
  for i, row in ipairs(logged_tensors.rows(store, id)) do
    local tensor = logged_tensors.read(store, row)
    lines[i] = ("%s %d %s %s"):format(row.name, row.step, row.sha256:sub(1, 8), core.sha256(tensor))
  end
  return lines, store:rows("SELECT kind FROM v_artifacts WHERE kind NOT GLOB 'tensor:*'")
end

-- Returns the trial's folder.
local function home(folder)
  return folder .. "/results/runs/" .. core.sys.list(folder .. "/results/runs")[1]
end

t.test("tensors are stored by step, and a report reads them as one array", function()
  t.in_folder(function(folder)
    t.eq((trials.run(folder, text_of {})), 0)
    local store <close> = records.open(folder .. "/results", "r")
    local id = store:rows("SELECT id FROM v_trials")[1].id
    local names = logged_tensors.names(store, id)
    for i, want in ipairs { "kernel 5 1 9", "last 1 9 9", "start 1 0 0" } do
      t.eq(("%s %d %d %d"):format(names[i].name, names[i].count, names[i].first, names[i].last),
        want)
    end
    local shown = t.toeplab(("show @last -C '%s/results'"):format(folder))
    t.ok(shown:find "kernel +5 +1 +9" and not shown:find("tensor-", 1, true), shown)
    local steps, start = logged_tensors.series(store, id, "start")
    t.eq({ steps, start:type(), start }, { { 0 }, "int32", { { { 1, 2 }, { 3, -4 } } } })
    local _, last = logged_tensors.series(store, id, "last") -- of two the later one
    t.eq({ last:get(1, 1) ~= last:get(1, 1), last:get(1, 2) }, { true, math.huge })
    t.raises(logged_tensors.series, "has no tensor 'kernl'.*kernel", store, id, "kernl")
    local metrics, texts = store:results(id)
    t.eq({ metrics.kernel, texts["tensor:kernel"] }, {})
  end)
end)

t.test("export writes one array of each name, with its steps", function()
  t.in_folder(function(folder)
    t.eq((trials.run(folder, text_of {})), 0)
    local store <close> = records.open(folder .. "/results", "r")
    local id = store:rows("SELECT id FROM v_trials")[1].id
    local steps, kernel = logged_tensors.series(store, id, "kernel")
    for _, ending in ipairs { "npz", "h5", "safetensors" } do
      local path = ("%s/k.%s"):format(folder, ending)
      local said = t.toeplab(("export @last -C '%s/results' --tensors '%s'"):format(folder, path))
      t.holds(said, "kernel, 5 x 3, of steps 1 to 9")
      local all = tl.load(path)
      t.eq({ all["kernel.steps"], all.kernel, all.start:type() }, { steps, kernel, "int32" })
    end
    for _, case in ipairs { { "k.npy", "'k.npy' must end in .npz, .h5 or .safetensors" },
      { "k.npz --csv", "--csv and --tensors: choose one" } } do
      local _, code, why = t.toeplab(("export @last -C '%s/results' --tensors %s"):format(folder,
        case[1]))
      t.eq(code, 2)
      t.holds(why, case[2])
    end
  end)
end)

for _, case in ipairs {
  { "kills", {}, { 2, 4, 5, 9 } },
  { "a rollback and kills", { loss = "(step == 7 and opt.factor == 1) and 0 / 0 or 1",
    guard = 'guard = { metric = "loss", nan = "rollback", retries = 1, every = 4, window = 8 },' },
    { 6, 7, 9 } },
} do
  t.test("after " .. case[1] .. " a trial has kept what an undisturbed one has", function()
    local wanted
    t.in_folder(function(folder)
      t.eq(trials.run(folder, text_of(case[2])), 0)
      wanted = kept(folder)
      t.eq(#wanted, 7)
    end)
    t.in_folder(function(folder)
      local code, runs = trials.run_stopped(folder, text_of(case[2]), case[3], "step")
      t.eq({ code, runs > #case[3] - 1 }, { 0, true })
      t.eq(kept(folder), wanted)
      local count = 0
      for _, name in ipairs(core.sys.list(home(folder))) do
        if name:find "^tensor%-" then count = count + 1 end
      end
      t.eq(count, #wanted)
      t.eq(select(2, t.toeplab(("fsck -C '%s/results'"):format(folder))), 0)
    end)
  end)
end

t.test("a tensor's file that is damaged or missing is found, and not read", function()
  t.in_folder(function(folder)
    t.eq(trials.run(folder, text_of {}), 0)
    local path = home(folder) .. "/tensor-kernel-00000003.h5"
    t.write(path, t.read(path):sub(1, -2) .. "x")
    local store <close> = records.open(folder .. "/results", "r")
    local id = store:rows("SELECT id FROM v_trials")[1].id
    t.raises(logged_tensors.series, "kernel%-00000003.h5 is missing or damaged", store, id,
      "kernel")
    local said, code = t.toeplab(("fsck -C '%s/results'"):format(folder))
    t.eq(code, 6)
    t.holds(said, "tensor-kernel-00000003.h5 (tensor:kernel of step 3) has a different sha256")
  end)
end)

t.test("a tensor of a different form is refused, and the error names both forms", function()
  t.in_folder(function(folder)
    core.sys.mkdir(folder .. "/x")
    local old = logged_tensors.write(folder, "x", "old", 4, core.zeros(2, 3))
    local rows = trial_rows.new(nil, { old }, 0.0)
    local values = log_types.new(rows, folder)
    values:sort({ loss = 1, one = core.zeros(1), kernel = core.zeros(3) }, nil, 1)
    for _, case in ipairs {
      { { loss = core.zeros(3) }, "'loss' is a tensor %[3%] of type float32, and was a number" },
      { { kernel = 1 }, "'kernel' is a number, and was a tensor %[3%] of type float32 before" },
      { { kernel = core.zeros(4) }, "'kernel' is a tensor %[4%].*was a tensor %[3%]" },
      { { kernel = core.ids { 1, 2, 3 } }, "'kernel' is a tensor %[3%] of type int32, and was" },
      { { old = core.zeros(3, 2) }, "'old' is a tensor %[3,2%].*was a tensor %[2,3%]" },
      { { old = 2 }, "'old' is a number, and was a tensor %[2,3%]" },
      { { kernel = core.zeros(3) }, "tensors are stored by step and cannot have an index", 7 },
      { { kernel = core.zeros(2, 1, 1, 1, 1, 1) }, "would have more than 6 axes" },
      { { ["a/b"] = core.zeros(3) }, "'a/b' of a tensor %[3%].* becomes part of a file name" },
      { { none = core.zeros(0) }, "0 elements" },
    } do
      t.raises(values.sort, case[2], values, case[1], case[3], 2)
    end
    values:sort({ ["a/b"] = 1, old = core.ones(2, 3) }, nil, 2)
  end)
end)

t.test("logging a tensor takes as long after a thousand as after ten", function()
  local rows, count = trial_rows.new({ add = function() end }, {}, 0.0), 0
  local function cost(first, last)
    count = 0
    debug.sethook(function() count = count + 1 end, "", 1)
    for step = first, last do
      local kind = logged_tensors.kind "kernel"
      if rows:artifact(kind, step) then error "there is none yet" end
      rows:add_artifact { kind = kind, step = step, path = "p" .. step, bytes = 1, sha256 = "" }
      rows:checkpoints()
    end
    debug.sethook()
    return count
  end
  local early = cost(1, 10)
  cost(11, 1000)
  t.ok(cost(1001, 1010) <= early, "it takes longer")
  rows:forget_after(1005)
  t.eq({ rows:artifact("tensor:kernel", 1006), rows:artifact("tensor:kernel", 1005).path },
    { nil, "p1005" })
end)

t.done()
