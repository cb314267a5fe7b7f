-- test_carried.lua: training and evaluation in which rows read on: their batches, their losses,
-- what a resumed training makes of their states, and what only they can learn.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local ranks = require "toeplab.train.ranks"
local trials = require "trials"

local function stream_of(count)
  local list, stream = {}, tl.stream_of("test")
  for i = 1, count do list[i] = stream:below(11) end
  return core.ids(list)
end

local function model_of(more)
  tl.seed(5)
  return tl.models.tnn_lm(11, tl.overlay({ layers = 2, dim = 8, rpe_dim = 4, heads = 2 }, more))
end

-- An optimiser that changes nothing.
local function still(model)
  local adam = tl.optim.adam(model, { lr = 1e-3 })
  return setmetatable({ step = function() return { step = 1 } end }, { __index = adam })
end

t.test("row i of a batch continues row i of the one before", function()
  local stream = stream_of(64) -- 63 targets in 3 rows of 21, in windows of 8, 8 and 5
  for _, micro in ipairs { 1, 2, 3 } do
    local batches = tl.blocks(stream, { length = 8, batch = 3, micro = micro, carry = true })
    t.eq({ batches:steps(), batches.targets, batches:parts() }, { 3, 63, (3 + micro - 1) // micro })
    for epoch = 0, 1 do
      local rows = { {}, {}, {} }
      for step = 1, 3 do
        t.eq(batches:begins_epoch(3 * epoch + step), step == 1)
        t.eq(batches:ends_epoch(3 * epoch + step), step == 3)
        local list, row = batches:batch(3 * epoch + step), 0
        t.eq(#list, batches:parts())
        for _, ids in ipairs(list) do
          t.eq(ids:dim(2), step < 3 and 9 or 6)
          for _, tokens in ipairs(ids:totable()) do
            row = row + 1
            for i = step == 1 and 1 or 2, #tokens do table.insert(rows[row], tokens[i]) end
          end
        end
      end
      for row = 1, 3 do t.eq(rows[row], stream:narrow(1, 21 * (row - 1) + 1, 22):totable()) end
    end
  end
  t.raises(tl.blocks, "5 targets are too few for 6 rows", stream_of(6),
    { length = 8, batch = 6, carry = true })
end)

local kinds = {
  gtu = {}, gla = { mixer = "gla", mixer_options = { heads = 2 } }, mamba = { mixer = "mamba" },
  gru = { mixer = "gru" }, hybrid = { mixer = { "attention", "gated_delta_net" } },
}

for name, more in pairs(kinds) do
  t.test("the losses of an epoch are those of the rows as a whole: " .. name, function()
    local stream = stream_of(64)
    for _, micro in ipairs { 1, 3 } do
      local model = model_of(more)
      local states, opt = tl.carried(model, { memory = 64 }), still(model)
      local batches = tl.blocks(stream, { length = 8, batch = 3, micro = micro, carry = true })
      local nats = 0.0
      for step = 1, 6 do
        if batches:begins_epoch(step) then
          states:reset()
          nats = 0.0
        end
        local loss, info = tl.train.lm_step(model, opt, batches:batch(step), nil, nil, states)
        nats = nats + loss * info.tokens
      end
      local ids = core.windows(stream, core.ids { 0, 21, 42 }, 22)
      local whole = core.no_grad(tl.train.loss_of(model), ids):item()
      t.eq(nats / 63, whole, 1e-5)
      local alone = tl.blocks(stream, { length = 8, batch = 3, carry = true }):batch(3)[1]
      t.ok(math.abs(core.no_grad(tl.train.loss_of(model), alone):item() - whole) > 1e-4)
    end
  end)

  t.test("evaluation reads on, at any length, and leaves the states of training: " .. name,
    function()
      local model, stream = model_of(more), stream_of(64)
      local states = tl.carried(model, { memory = 64 })
      states:window(1, model, stream:reshape(2, 32))
      local before = states.parts
      local whole = tl.eval.nats_per_token(model, stream, 63)
      for _, n in ipairs { 1, 10, 21 } do
        local nats, count, groups = tl.eval.nats_per_token(model, stream, n, { carried = states,
          group = 2 })
        t.eq(count, 63)
        t.eq(nats, whole, 1e-5)
        t.eq(#groups, 63 // n // 2)
      end
      t.eq(states.parts, before)
      t.ok(math.abs(whole - tl.eval.nats_per_token(model, stream, 10)) > 1e-5)
    end)
end

t.test("blocks that are computed again begin in the same states", function()
  local stream = stream_of(64)
  for name, more in pairs(kinds) do
    local losses = {}
    for i, recompute in ipairs { false, true } do
      local model = model_of(tl.overlay(more, { recompute = recompute }))
      local states, opt = tl.carried(model, { memory = 16 }), tl.optim.adam(model, { lr = 1e-2 })
      local batches = tl.blocks(stream, { length = 7, batch = 3, carry = true })
      losses[i] = {}
      for step = 1, 3 do
        local loss, info = tl.train.lm_step(model, opt, batches:batch(step), nil, nil, states)
        losses[i][step] = { loss, info.grad_norm }
      end
    end
    t.eq({ name, losses[2] }, { name, losses[1] })
  end
end)

t.test("micro_batches cuts a batch whose rows read on alike at every step", function()
  local model, stream = model_of { mixer = "gla" }, stream_of(64)
  local losses = {}
  for parts = 1, 3 do
    local states, opt = tl.carried(model), still(model)
    local batches = tl.blocks(stream, { length = 8, batch = 3, carry = true })
    for step = 1, 2 do
      losses[parts] = tl.train.lm_step(model, opt, batches:batch(step)[1], parts, nil, states)
    end
    t.eq(losses[parts], losses[1], 1e-6)
    t.eq(#states.parts, parts)
  end
end)

t.test("states follow no documents and no ranks", function()
  local model, ids = model_of { mixer = "gla" }, core.windows(stream_of(20), core.ids { 0 }, 9)
  local states, opt = tl.carried(model), still(model)
  t.raises(tl.train.lm_step, "lm_step: packed documents begin at empty states", model, opt, ids,
    nil, 0, states)
  local other = model_of { mixer = "gla" }
  t.raises(tl.train.lm_step, "lm_step: the carried states are of another model", other,
    still(other), ids, nil, nil, states)
  t.raises(tl.eval.nats_per_token, "eval: packed documents", model, stream_of(20), 4,
    { carried = states, separator = 0 })
  t.raises(ranks.with, "lm_step: carried states are not exchanged between ranks", {}, function()
    tl.train.lm_step(model, opt, { ids }, nil, nil, states)
  end)
end)

-- Returns a text of 16 rows, each of n random tokens four times.
local function copies(n)
  local list, stream = { 0 }, tl.stream_of("copies")
  for _ = 1, 16 do
    local first = #list
    for _ = 1, n do list[#list + 1] = stream:below(11) end
    for i = 1, 3 * n do list[#list + 1] = list[first + (i - 1) % n + 1] end
  end
  return core.ids(list)
end

-- Returns the mean loss in copies, in the last steps of a training on windows of n such tokens.
local function loss_of_copies(n, more, carry)
  local model = model_of(tl.overlay({ dim = 32, layers = 1, decay = "none" }, more))
  local opt = tl.optim.adam(model, { lr = 1e-2, clip = 1.0 })
  local states, sum = tl.carried(model, { memory = n }), 0.0
  for step = 1, 100 do
    tl.seed(step)
    local batches = tl.blocks(copies(n), { length = n, batch = 16, carry = true })
    states:reset()
    for window = 1, 4 do
      local loss = tl.train.lm_step(model, opt, batches:batch(window), nil, nil, carry and states
        or nil)
      if step > 90 and window > 1 then sum = sum + loss / 30 end
    end
  end
  return sum
end

-- The last token before a copy is its first input, and predicts its last target. Without carry
-- nothing predicts the other ones, whose loss is at least log 11.
for name, case in pairs {
  gtu = { 6, { encoder = "table", table_length = 12 } },
  attention = { 2, { mixer = "attention", mixer_options = { positions = "relative", heads = 2 } } },
  gru = { 2, { mixer = "gru" } }, mamba = { 2, { mixer = "mamba" } },
  gla = { 2, { mixer = "gla" } }, delta_net = { 2, { mixer = "delta_net" } },
} do
  t.test("a copy of the window before is learnt only if rows read on: " .. name, function()
    local n, more = table.unpack(case)
    local least = math.log(11) * (n - 1) / n
    local with, without = loss_of_copies(n, more, true), loss_of_copies(n, more, false)
    t.ok(with < 0.95 * least, ("with carry %.3f, of %.3f"):format(with, least))
    t.ok(without > 0.99 * least, ("without carry %.3f, of %.3f"):format(without, least))
  end)
end

local script = [[
local tl = require "toeplab"
return tl.experiment "reading" {
  fixed = { steps = 13 }, grid = { mixer = { "gtu", "attention", "mamba", "gated_delta_net",
    "retention", "lstm" } }, checkpoint = { steps = 4 },
  trial = function(t, c)
    local text = ("the old man told the moon a tale of the young sea. "):rep(9)
    local data = tl.corpus("text:" .. text, { length = 12, batch = 3 })
    local model = tl.models.tnn_lm(data.vocab:size(), { layers = 2, dim = 8, rpe_dim = 4,
      mixer = c.mixer, dropout = 0.1, mixer_options = c.mixer == "attention"
      and { positions = "rotary" } or {} })
    local opt = tl.optim.adam(model, { lr = 1e-2 })
    local batches = tl.blocks(data:stream "train", { length = 12, batch = 3, micro = 2,
      carry = true })
    local states = tl.carried(model, { memory = 20 })
    for step in t:steps(c.steps, model, opt, data, { carried = states }) do
      if step == 9 then states:reset() end
      local loss = tl.train.lm_step(model, opt, batches:batch(step), nil, nil, states)
      t:log { loss = loss }
    end
    t:log { ppl = tl.eval.perplexity(model, data:stream "train", 12, { carried = states }) }
  end,
}
]]

-- Everything that the trials have logged, bit by bit.
local function rows(folder)
  local lines = {}
  for i, m in ipairs(trials.query(folder, [[SELECT config, name, m.step, value
    FROM v_metrics AS m, v_trials WHERE id = trial ORDER BY config, name, m.step]])) do
    lines[i] = ("%s %s %d %a"):format(m.config, m.name, m.step, m.value)
  end
  return table.concat(lines, "\n")
end

t.test("a stopped and resumed training equals an undisturbed one bit for bit", function()
  local wanted
  t.in_folder(function(folder)
    t.eq(trials.run(folder, script), 0)
    wanted = rows(folder)
  end)
  t.in_folder(function(folder)
    local code, runs = trials.run_stopped(folder, script, { "3", "6", "10" }, "step")
    t.eq({ code, runs }, { 0, 4 })
    t.eq(rows(folder), wanted)
  end)
end)

t.test("tl.lm reads on with the key carry, as an axis of the command line", function()
  t.in_folder(function(folder)
    t.write(folder .. "/reading.lua", [[
      -- reading.lua: rows that read on, or not. Which are better?
      local tl = require "toeplab"
      return tl.experiment "reading" {
        fixed = tl.lm.fixed { memory = 8, test_scored = 64 }, grid = { carry = { false, true } },
        scale = tl.lm.scales { smoke = { tokenizer = "char" } }, trial = tl.lm.trial, seeds = 1,
      }]])
    local function run(words)
      local _, code, said = t.toeplab(("run '%s/reading.lua' scale=smoke -C '%s' %s 2>&1"):format(
        folder, folder, words))
      return code, said
    end
    local code, said = run ""
    t.eq({ code, said:match "toeplab: .*" }, { 0 })
    local store <close> = require("toeplab.store.records").open(folder, "r")
    local found = store:rows [[SELECT count(*) AS trials, count(DISTINCT value) AS values_
      FROM v_last WHERE name = 'test_ppl' AND value > 1]]
    t.eq({ found[1].trials, found[1].values_ }, { 2, 2 })
    local notes = store:rows "SELECT text FROM v_events WHERE kind = 'part'"
    t.eq(#notes, 2)
    local both = "^tested on the first .*; rows read on in training, and the validation and test "
    t.eq((notes[1].text:find(both) or notes[2].text:find(both)), 1)
    code, said = run "carry=true memory=4,16 steps=3"
    t.eq({ code, said:match "toeplab: .*" }, { 0 })
    code, said = run "carry=true causal=false"
    t.ok(code ~= 0 and said:find "is not causal", said)
    code, said = run "memory=0"
    t.ok(code ~= 0 and said:find "option 'memory' = 0 must be at least 1", said)
    code, said = run "carry=3"
    t.ok(code ~= 0 and said:find "carry", said)
    t.write(folder .. "/reading.lua", [[
      -- reading.lua: packed documents that read on. Are they refused?
      local tl = require "toeplab"
      return tl.experiment "packed" {
        fixed = tl.lm.fixed { carry = true, documents = "packed" },
        scale = tl.lm.scales {}, trial = tl.lm.trial, seeds = 1,
      }]])
    code, said = run ""
    t.ok(code ~= 0 and said:find "lm: packed documents begin at empty states", said)
  end)
end)

t.test("false removes a key of tl.lm.fixed that is varied, and is the value of others", function()
  local fixed = tl.lm.fixed { decay = false, steps = false, carry = false, embed_scale = false }
  t.eq({ fixed.decay, fixed.steps, fixed.carry, fixed.embed_scale }, { nil, nil, false, false })
end)

t.done()
