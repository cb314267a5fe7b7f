-- test_packed.lua: training and evaluation on packed documents have the losses and gradients of the
-- documents one by one.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local ranks = require "toeplab.train.ranks"
local records = require "toeplab.store.records"

local SEPARATOR = 0

-- A stream of documents that begin at a separator, of which one is the separator alone.
local function stream_of()
  local list, stream = {}, tl.stream_of("test")
  for _, length in ipairs { 5, 9, 1, 3, 22, 2, 7, 4, 11, 6, 1, 1, 8 } do
    list[#list + 1] = SEPARATOR
    for _ = 2, length do list[#list + 1] = 1 + stream:below(10) end
  end
  return core.ids(list)
end

local function model_of(more)
  tl.seed(5)
  return tl.models.tnn_lm(11, tl.overlay({ layers = 2, dim = 8, rpe_dim = 4, heads = 2 }, more))
end

-- Returns the documents of rows of ids [b,n+1], each as inputs [1,m] and targets [1,m]: the target
-- of the last input is the separator that ends the document, or the token after the row.
local function documents_of(ids)
  local list = {}
  for row = 1, ids:dim(1) do
    local tokens, first = ids:totable()[row], 1
    for i = 1, #tokens - 1 do
      if i == #tokens - 1 or tokens[i + 1] == SEPARATOR then
        list[#list + 1] = ids:narrow(1, row, 1):narrow(2, first, i - first + 2)
        first = i + 1
      end
    end
  end
  return list
end

-- Returns the mean loss of documents one by one, weighted by their targets, and its gradients.
local function alone(model, documents)
  local total, sum = 0, 0.0
  for _, ids in ipairs(documents) do total = total + ids:dim(2) - 1 end
  for _, p in ipairs(model:parameters()) do p.tensor:set_grad(nil) end
  for _, ids in ipairs(documents) do
    local loss = core.affine(tl.train.loss(model, tl.train.split(ids)), (ids:dim(2) - 1) / total, 0)
    loss:backward()
    sum = sum + loss:item()
  end
  return sum, total
end

local function gradients(model)
  local list = {}
  for i, p in ipairs(model:parameters()) do
    list[i] = { p.name, (p.tensor:grad() or core.zeros(p.tensor:shape())):clone() }
  end
  return list
end

-- An optimiser that changes nothing.
local function still(model)
  local adam = tl.optim.adam(model, { lr = 1e-3 })
  return setmetatable({ step = function() return { step = 1 } end }, { __index = adam })
end

for name, more in pairs {
  gtu = { decay = "learnable", positions = "sinusoidal" }, gla = { mixer = "gla" },
  hybrid = { mixer = { "attention", "mamba" }, positions = "learned", max_length = 24 },
  performer = { mixer = "performer", layout = "B" }, gru = { mixer = "gru", norm = "layernorm" },
  ["a TNO by length"] = { rpe_input = "normalised", tied = false },
} do
  t.test("loss and gradients of separate documents: " .. name, function()
    local model, stream = model_of(more), stream_of()
    for _, micro in ipairs { 1, 2 } do
      local ids = core.windows(stream, core.ids { 0, 24, 48 - 1 }, 25)
      local batch = micro == 1 and ids or { ids:narrow(1, 1, 2), ids:narrow(1, 3, 1) }
      local loss, info = tl.train.lm_step(model, still(model), batch, nil, SEPARATOR)
      local got = gradients(model)
      local want, total = alone(model:train(), documents_of(ids))
      t.eq(info.tokens, total)
      t.eq(loss, want, 1e-5)
      for i, pair in ipairs(gradients(model)) do
        local size = math.max(core.abs(pair[2]):amax():item(), 1e-2)
        local off = core.abs(got[i][2] - pair[2]):amax():item() / size
        t.ok(off < 1e-4, ("%s is off by %g"):format(pair[1], off))
      end
    end
  end)
end

t.test("evaluation scores every target in its own document", function()
  local model, stream = model_of { positions = "sinusoidal" }, stream_of()
  local sum, count, groups = 0.0, 0, { 0.0, 0.0 }
  for block, start in ipairs { 0, 16, 32, 48, 64 } do
    local n = math.min(16, stream:numel() - 1 - start)
    local ids = core.windows(stream, core.ids { start }, n + 1)
    local mean = core.no_grad(function()
      local nats = 0.0
      for _, one in ipairs(documents_of(ids)) do
        nats = nats + tl.train.loss(model:eval(), tl.train.split(one)):item() * (one:dim(2) - 1)
      end
      return nats / n
    end)
    sum, count = sum + mean * n, count + n
    if block <= 4 then groups[(block + 1) // 2] = groups[(block + 1) // 2] + mean / 2 end
  end
  local nats, targets, found = tl.eval.nats_per_token(model, stream, 16, { separator = SEPARATOR,
    group = 2, batch_tokens = 32 })
  t.eq(targets, count)
  t.eq(nats, sum / count, 1e-5)
  t.eq(found, groups, 1e-5)
  t.ok(math.abs(nats - tl.eval.nats_per_token(model, stream, 16)) > 1e-4)
  -- Documents that fit into a block have the same loss at any length of it.
  t.eq(tl.eval.nats_per_token(model, stream, 79, { separator = SEPARATOR }), tl.eval.nats_per_token(
    model, stream, stream:numel() - 1, { separator = SEPARATOR }), 1e-6)
end)

t.test("a corpus names the token between its documents", function()
  local text = "text:" .. ("one two\nthree| four\n"):rep(30)
  local function of(o) return tl.corpus(text, o) end
  t.eq(of({}).separator, nil)
  local data = of { documents = "packed" }
  t.eq(data.vocab:decode { data.separator }, "\n")
  data = of { documents = "packed", separator = "|" }
  t.eq(data.vocab:decode { data.separator }, "|")
  data = of { documents = "packed", tokenizer = "word" }
  t.eq(data.separator, data.vocab:eos())
  data = of { documents = "packed", tokenizer = "word", separator = "two" }
  t.eq(data.vocab:decode { data.separator }:match "%S+", "two")
  for _, bad in ipairs { "#", "one", "" } do
    t.raises(of, "is not one token of this vocabulary", { documents = "packed", separator = bad })
  end
  t.raises(of, "is not one token of this vocabulary", { documents = "packed", tokenizer = "word",
    separator = "five" })
  t.raises(of, "requires documents = 'packed'", { separator = "|" })
  t.raises(of, "'pack' is not one of joined, packed", { documents = "pack" })
end)

t.test("tl.lm trains and evaluates on packed documents", function()
  local script = [[
    -- packed.lua: two ways to read documents. Which is better?
    local tl = require "toeplab"
    return tl.experiment "packed" {
      fixed = tl.lm.fixed { separator = "\n" }, grid = { documents = { "packed", "joined" } },
      scale = tl.lm.scales { smoke = { tokenizer = "char" } }, trial = tl.lm.trial, seeds = 1,
    }]]
  t.in_folder(function(folder)
    t.write(folder .. "/packed.lua", script)
    local _, code, said = t.toeplab(("run '%s/packed.lua' scale=smoke -C '%s'"):format(folder,
      folder))
    t.eq({ code, said:match "toeplab: .*" }, { 0 })
    local store <close> = records.open(folder, "r")
    local rows = store:rows [[SELECT count(*) AS trials, count(DISTINCT value) AS values_
      FROM v_last WHERE name = 'test_ppl' AND value > 1]]
    t.eq({ rows[1].trials, rows[1].values_ }, { 2, 2 })
  end)
end)

local Plain = tl.nn.class("Plain", {})
function Plain:build() self.map = tl.nn.Embedding(11, 11) end
function Plain:forward(ids) return self.map(ids) end

t.test("what cannot read documents alone is refused", function()
  local ids, plain = core.windows(stream_of(), core.ids { 0 }, 9), Plain {}
  t.raises(tl.train.lm_step, "a? ?Plain does not take documents.*takes_documents = true", plain,
    still(plain), ids, nil, SEPARATOR)
  t.raises(tl.eval.nats_per_token, "does not take documents", plain, stream_of(), 8,
    { separator = SEPARATOR })
  local model = model_of {}
  local opt = still(model)
  t.raises(tl.train.loss, "row 1 has 7 positions", model, ids:narrow(2, 1, 8), ids:narrow(2, 2, 8),
    nil, { { 3, 4 } })
  t.raises(ranks.with, "sequence_ranks = 2: a separator of documents requires whole sequences",
    { cut = 2 }, function() tl.train.lm_step(model, opt, { ids }, nil, SEPARATOR) end)
end)

t.done()
