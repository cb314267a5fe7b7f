-- test_masked.lua: masked language models: blocks of whole lines, masks, the model's size, its
-- gradients and padding, learning, and experiments/mlm.lua.
local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"
local trials = require "trials"

-- ---- Blocks -------------------------------------------------------------------------------------

-- Lines of the given lengths over the ids 1.., each ended by 0.
local function stream(lengths)
  local ids, next_id = {}, 1
  for _, length in ipairs(lengths) do
    for _ = 1, length - 1 do
      ids[#ids + 1] = next_id
      next_id = next_id + 1
    end
    ids[#ids + 1] = 0
  end
  return core.ids(ids), next_id
end

local function blocks(lengths, more)
  local ids, vocab = stream(lengths)
  local o = { vocab = vocab, eos = 0, length = 8, batch = 3, share = 0, multiple = 1, seed = 1 }
  for key, v in pairs(more or {}) do o[key] = v end
  return tl.masking(ids, o), vocab
end

-- What the blocks of an epoch hold, as texts, sorted. One token is always told: it is put back.
local function contents(data, epoch)
  local list = {}
  for step = (epoch - 1) * data:steps() + 1, epoch * data:steps() do
    local batch = data:batch(step)
    local rows, places = batch.ids:totable(), batch.places:totable()
    for i, place in ipairs(places) do
      rows[place // #rows[1] + 1][place % #rows[1] + 1] = batch.targets:get(i)
    end
    for _, row in ipairs(rows) do
      local kept = {}
      for _, id in ipairs(row) do
        if id ~= data.pad then kept[#kept + 1] = id end
      end
      list[#list + 1] = table.concat(kept, " ")
    end
  end
  table.sort(list)
  return list
end

t.test("blocks hold whole lines, each after <s>; a long line is cut", function()
  local data, vocab = blocks { 3, 4, 2, 1, 1, 4, 17, 2 }
  t.eq({ data.first, data.pad, data.mask, data.vocab }, { vocab, vocab + 1, vocab + 2, vocab + 3 })
  local s = tostring(vocab)
  local want = {
    s .. " 1 2 0 3 4 5 0",        -- 3 and 4 are 7
    s .. " 6 0 0 0",              -- 2, 1, 1; then 4 would be 8
    s .. " 7 8 9 0",              -- the long line begins a block: 7 of its tokens fill one
    s .. " 10 11 12 13 14 15 16",
    s .. " 17 18 19 20 21 22 23",
    s .. " 24 25 0 26 0",         -- its end, and the line after it
  }
  table.sort(want)
  t.eq({ data.count, data:steps() }, { 6, 2 })
  for epoch = 1, 3 do t.eq(contents(data, epoch), want) end
  t.eq({ data:epoch(2) }, { 1, true })
  t.eq({ data:epoch(3) }, { 2, false })
end)

t.test("without line ends blocks are full", function()
  local data = tl.masking(core.ids { 1, 2, 3, 4, 5, 6, 7 }, { vocab = 9, length = 4, batch = 2,
    share = 0, multiple = 1 })
  t.eq(contents(data, 1), { "9 1 2 3", "9 4 5 6", "9 7" })
end)

t.test("batches hold blocks of similar length, padded to a multiple", function()
  local lengths = {}
  for i = 1, 40 do lengths[i] = 2 + i * 7 % 23 end
  local data = blocks(lengths, { length = 24, batch = 4, multiple = 5, share = 0.3 })
  local total, widths = 0, {}
  for step = 1, data:steps() do
    local batch = data:batch(step)
    local n = batch.ids:dim(2)
    t.ok(n % 5 == 0 or n == 24, n)
    widths[#widths + 1] = n
    total = total + batch.ids:dim(1)
  end
  t.eq(total, data.count)
  table.sort(widths)
  t.ok(widths[1] < widths[#widths])
end)

-- ---- Masks --------------------------------------------------------------------------------------

-- Counts over an epoch: tokens to tell, and what they became.
local function count_masks(data, epoch)
  local c = { told = 0, mask = 0, kept = 0, other = 0, all = 0, untold = 0 }
  for step = (epoch - 1) * data:steps() + 1, epoch * data:steps() do
    local batch = data:batch(step)
    local flat, told = batch.ids:reshape(-1):totable(), {}
    for i, place in ipairs(batch.places:totable()) do
      local now, was = flat[place + 1], batch.targets:get(i)
      t.ok(not told[place], "told twice")
      told[place] = true
      c.told = c.told + 1
      local kind = now == data.mask and "mask" or now == was and "kept" or "other"
      c[kind] = c[kind] + 1
      t.ok(was < data.pad and now ~= data.pad and (kind ~= "other" or now < data.first))
    end
    for place, id in ipairs(flat) do
      if id ~= data.pad then c.all = c.all + 1 end
      if id == data.mask and not told[place - 1] then c.untold = c.untold + 1 end
    end
  end
  return c
end

t.test("15 % are predicted, of which 80, 10 and 10 % are masked, kept, replaced", function()
  local lengths = {}
  for i = 1, 600 do lengths[i] = 3 + i * 5 % 17 end
  local ids, vocab = stream(lengths)
  local function check(share, kept, replaced)
    local c = count_masks(tl.masking(ids, { vocab = vocab, eos = 0, length = 30, batch = 16,
      seed = 3, share = share, kept = kept, replaced = replaced }), 1)
    kept, replaced = kept or 0.1, replaced or 0.1
    t.eq(c.untold, 0)
    t.ok(math.abs(c.told / c.all - (share or 0.15)) < 0.01, c.told / c.all)
    t.ok(math.abs(c.mask / c.told - (1 - kept - replaced)) < 0.04, c.mask / c.told)
    t.ok(math.abs(c.kept / c.told - kept) < 0.03, c.kept / c.told)
    t.ok(math.abs(c.other / c.told - replaced) < 0.03, c.other / c.told)
    t.eq(c.mask + c.kept + c.other, c.told)
  end
  check()
  check(0.5, 0.3, 0.05)
end)

t.test("masks depend on seed, epoch and block alone", function()
  local lengths = {}
  for i = 1, 60 do lengths[i] = 3 + i % 5 end
  local function batch(seed, step)
    return t.bits(blocks(lengths, { share = 0.3, seed = seed }):batch(step))
  end
  local steps = blocks(lengths):steps()
  t.eq(batch(1, 4), batch(1, 4))
  t.ok(batch(1, 4) ~= batch(2, 4))
  local one = blocks(lengths, { share = 0.3, batch = 1000 })
  t.ok(t.bits(one:batch(1)) ~= t.bits(one:batch(2)), "two epochs mask alike")
  local data = blocks(lengths, { share = 0.3, seed = 1 })
  data:batch(steps + 2)
  t.eq(t.bits(data:batch(4)), batch(1, 4))
end)

t.test("a vocabulary with its own <s> and padding gets <mask> only", function()
  local ids = {}
  for i = 1, 400 do ids[i] = i % 9 == 0 and 2 or 4 + i % 16 end
  local vocab = { size = function() return 20 end, eos = function() return 2 end }
  t.eq(tl.masking.specials(vocab, "word"), { vocab = 20, eos = 2 })
  local o = tl.masking.specials(vocab, "gpt2")
  t.eq(o, { vocab = 20, eos = 2, first = 0, pad = 1, special = 4 })
  o.length, o.batch, o.share, o.kept, o.replaced, o.seed = 30, 4, 0.5, 0.0, 1.0, 1
  local data, replaced = tl.masking(core.ids(ids), o), {}
  t.eq({ data.first, data.pad, data.mask, data.vocab }, { 0, 1, 20, 21 })
  for step = 1, 3 * data:steps() do
    local batch = data:batch(step)
    local flat = batch.ids:reshape(-1)
    for i, place in ipairs(batch.places:totable()) do
      local now = flat:get(place + 1)
      replaced[now] = batch.targets:get(i)
      t.ok(now >= 4 and now < 20, now) -- no special token, and never the end of a line
    end
  end
  for id = 4, 19 do t.ok(replaced[id], id) end
end)

t.test("with byte pairs, </s> replaces every token with a newline", function()
  local text = ("the old man told it . \n to the young man . \n \n"):rep(30)
  local corpus = tl.corpus("text:" .. text, { tokenizer = "bpe", vocab_size = 270 })
  t.eq(tl.masking.specials(core.vocab_bytes()), { vocab = 256, eos = 10 })
  local vocab, ids = corpus.vocab, corpus.train
  local o = tl.masking.specials(vocab, "bpe")
  local size = vocab:size()
  t.ok(#o.newlines > 1 and not o.eos, "a newline is merged with nothing")
  o.length, o.batch, o.kept, o.replaced, o.share, o.seed = 24, 4, 0.0, 1.0, 0.5, 1
  local data, lines = tl.masking(ids, o), 0
  t.eq({ data.first, data.pad, data.mask, data.eos, data.vocab },
    { size, size + 1, size + 2, size + 3, size + 4 })
  t.eq(tl.masking.tokens(o), { first = size, pad = size + 1, mask = size + 2, eos = size + 3,
    vocab = size + 4 })
  local newline = {}
  for _, id in ipairs(o.newlines) do newline[id] = true end
  local stream, starts = data.stream:totable(), data.starts:totable()
  for i, id in ipairs(stream) do
    t.ok(not newline[id], "a newline is left")
    if id == data.eos then lines = lines + 1 end
    t.eq(id == data.first, i == 1 or stream[i - 1] == data.eos and id == size)
  end
  for i = 2, #starts do t.eq(stream[starts[i]], data.eos) end -- blocks are whole lines
  t.ok(lines > 30, lines)
  for step = 1, data:steps() do
    local batch = data:batch(step).ids:reshape(-1)
    for i = 1, batch:numel() do t.ok(not newline[batch:get(i)], "a newline replaces a token") end
  end
end)

t.test("wrong options are errors", function()
  local ids = core.ids { 1, 2, 3 }
  t.raises(tl.masking, "special = 3 leaves no token of 4 to replace by", ids,
    { vocab = 4, length = 8, batch = 1, special = 3 })
  t.raises(tl.masking, "kept = 0.6 and replaced = 0.6 exceed 1 together", ids,
    { vocab = 4, length = 8, batch = 1, kept = 0.6, replaced = 0.6 })
  for want, more in pairs {
    ["first = 4 is not in 0..vocab %- 1 = 3"] = { first = 4 },
    ["pad = 9 is not in 0..vocab %- 1 = 3"] = { pad = 9 },
    ["eos = 4 is not in 0..vocab %- 1 = 3"] = { eos = 4 },
    ["newlines%[2%] = 7 is not in 0..vocab %- 1 = 3"] = { newlines = { 1, 7 } },
    ["newlines%[1%] = x is not in 0..vocab"] = { newlines = { "x" } },
    ["give one of newlines and eos"] = { newlines = { 1 }, eos = 2 },
    ["no token from special = 1 on may replace another"] = { newlines = { 1, 2, 3 }, special = 1 },
  } do
    more.vocab, more.length, more.batch = 4, 8, 1
    t.raises(tl.masking, want, ids, more)
  end
  t.raises(tl.masking, "the stream is empty", core.ids {}, { vocab = 4, length = 8, batch = 1 })
  t.raises(tl.masking, "'vocab' is required", ids, { length = 8, batch = 1 })
end)

-- ---- The model ----------------------------------------------------------------------------------

t.test("the published size: 126,400,089 parameters", function()
  local model = tl.models.describe("tnn_mlm", { vocab = 50265 })
  t.eq(model:count(), 126400089)
  t.eq(tl.models.name_of(model), "tnn_mlm")
end)

local function tiny(more)
  local o = { vocab = 9, layers = 1, dim = 4, expand = 1.5, rpe_dim = 4, rpe_layers = 1,
    backend = "naive", pad = 7 }
  for key, v in pairs(more or {}) do o[key] = v end
  return tl.models.tnn_mlm(o)
end

t.test("the initial values are BERT's, and its zero rows leave all gradients finite", function()
  tl.seed(3)
  local model = tiny { dim = 16, layers = 2 }
  for name, p in pairs(model:named()) do
    if name:find "bias$" and not name:find "norm" then
      t.eq(core.abs(p):amax():item(), 0)
    end
  end
  local tno = model.layers[1].token.tno
  local coef = core.no_grad(tno.coefficients, tno, 5)
  t.eq(core.abs(coef:narrow(1, 5, 1)):amax():item(), 0) -- t_0 = 0
  local c = coef:narrow(1, 6, 4):totable() -- t_k = c_+ gamma^k
  for k = 2, 4 do
    for channel, v in ipairs(c[k]) do t.eq(v, c[1][channel] * 0.99 ^ (k - 1), 1e-7) end
  end
  local loss = model:loss(core.ids { { 1, 2, 3, 8, 7 }, { 4, 8, 8, 5, 6 } }, core.ids { 3, 6, 7 },
    core.ids { 1, 2, 3 })
  t.eq(loss:item(), math.log(9), 0.1)
  loss:backward()
  local norms = {}
  for name, p in pairs(model:named()) do
    if p:requires_grad() then
      local size = math.sqrt((p:grad() * p:grad()):sum():item())
      t.ok(size == size and size < 100, ("%s: gradient %g"):format(name, size))
      norms[#norms + 1] = size
    end
  end
  t.ok(#norms > 20)
end)

-- As published, each of these blocks would multiply the gradient by about 1e16 at the padding.
t.test("padding leaves the gradients of twelve blocks finite at BERT's initial values", function()
  tl.seed(5)
  local model = tiny { dim = 8, layers = 12 }
  model:loss(core.ids { { 1, 8, 7, 7 }, { 4, 2, 8, 5 } }, core.ids { 1, 6 },
    core.ids { 2, 3 }):backward()
  for name, p in pairs(model:named()) do
    if p:requires_grad() then
      local size = core.abs(p:grad()):sum():item()
      t.ok(size < 1000, ("%s: gradient %g"):format(name, size))
    end
  end
end)

t.test("a list of batches updates as one batch of all their rows", function()
  local function updated(batch)
    tl.seed(6)
    local model = tiny { init = "torch" }
    local opt = tl.optim.adam(model, { lr = 0.1 })
    local loss, info = tl.masking.step(model, opt, batch)
    return loss, info.tokens, model.head.weight:totable()
  end
  local function part(ids, places, targets)
    return { ids = core.ids(ids), places = core.ids(places), targets = core.ids(targets) }
  end
  local one, tokens, weight = updated(part({ { 1, 8, 3, 5 }, { 8, 8, 2, 4 } }, { 1, 4, 5 },
    { 2, 6, 1 }))
  local two, same, other = updated { part({ { 1, 8, 3, 5 } }, { 1 }, { 2 }),
    part({ { 8, 8, 2, 4 } }, { 0, 1 }, { 6, 1 }) }
  t.eq({ tokens, same }, { 3, 3 })
  t.eq(two, one, 1e-6)
  for i, row in ipairs(weight) do
    for j, v in ipairs(row) do t.eq(other[i][j], v, 1e-5) end
  end
end)

t.test("gradients against differences", function()
  tl.seed(4)
  local model = tiny { init = "torch" }
  local ids, places, targets = core.ids { { 1, 8, 3, 5 }, { 4, 8, 7, 7 } }, core.ids { 1, 5, 0 },
    core.ids { 2, 6, 1 }
  for _, p in ipairs(model:parameters()) do -- away from 0, where relu has no derivative
    if p.name:find "embed.weight" then core.stream(1, "x"):normal(p.tensor, 0, 1) end
  end
  local function loss() return model:loss(ids, places, targets) end
  slopes.check(loss, slopes.trained(model), 0.06)
end)

t.test("the loss is the loss of the logits at the places; padding enters as 0", function()
  local model = tiny { init = "torch" }
  local ids = core.ids { { 1, 8, 3, 5 }, { 4, 8, 7, 7 } }
  local logits = core.no_grad(model, ids)
  t.eq(logits:shape(), { 2, 4, 9 })
  local want = core.cross_entropy(logits:reshape(8, 9):gather(core.ids { 5, 0 }), core.ids { 6, 1 })
  local got = core.no_grad(function()
    return model:loss(ids, core.ids { 5, 0 }, core.ids { 6, 1 })
  end)
  t.eq(got:item(), want:item(), 1e-5)
  -- Its embedding does not matter where it is padding; another token's does.
  local function moved(token)
    local before = core.no_grad(model.hidden, model, ids)
    model.embed.weight:view(token * 4, { 4 }):copy(core.tensor { 3, -1, 0, 2 })
    return core.abs(core.no_grad(model.hidden, model, ids) - before):reshape(-1):amax():item()
  end
  t.eq(moved(7), 0)
  t.ok(moved(3) > 1e-3)
  t.raises(tiny, "pad = 9 is not below vocab = 9", { pad = 9 })
end)

t.test("refuses to generate text", function()
  t.raises(tl.generate, "the model is not causal", tiny { vocab = 256 + 3 }, core.vocab_bytes(),
    "a")
end)

t.test("learns a small text, by masked perplexity", function()
  tl.seed(2)
  local ids = {}
  for i = 1, 400 do ids[i] = i % 4 == 0 and 0 or i % 4 end
  local data = tl.masking(core.ids(ids), { vocab = 4, eos = 0, length = 9, batch = 8,
    multiple = 4 })
  local model = tiny { vocab = data.vocab, pad = data.pad, dim = 16, rpe_dim = 8, init = "torch" }
  local opt = tl.optim.adam(model, { lr = 0.02, clip = 1.0, schedule = "polynomial", warmup = 10,
    steps = 200 })
  local before, count = tl.masking.perplexity(model, data)
  t.eq({ tl.masking.perplexity(model, data) }, { before, count })
  t.ok(count > 30 and before > 4, before)
  local _, part = tl.masking.perplexity(model, data, 2)
  t.ok(part < count)
  local info
  for step = 1, 200 do
    local _
    _, info = tl.masking.step(model, opt, data:batch(step))
  end
  t.ok(info.tokens > 0 and info.step == 200 and model.training)
  local after = tl.masking.perplexity(model, data)
  t.ok(after < 1.5, after)
end)

t.test("n-grams of both sides see the masks, and no token beyond the rows", function()
  local ids = {}
  for i = 1, 400 do ids[i] = i % 10 == 0 and 0 or 1 + (i * i // 7) % 5 end
  local function data(more)
    return tl.masking(core.ids(ids), tl.overlay({ vocab = 6, eos = 0, length = 24, batch = 1000,
      multiple = 1, seed = 3 }, more))
  end
  -- the whole epoch is one batch; every token of the test is predicted, and stays
  local train, test = data { share = 0.3 }, data { share = 1, kept = 1, replaced = 0 }
  local function rows(batch)
    local seen, own, list = batch.ids:totable(), batch.ids:totable(), {}
    for i, place in ipairs(batch.places:totable()) do
      own[place // #own[1] + 1][place % #own[1] + 1] = batch.targets:get(i)
    end
    local flat = { train.pad, train.pad }
    for _, row in ipairs(seen) do table.move(row, 1, #row, #flat + 1, flat) end
    table.move({ train.pad, train.pad }, 1, 2, #flat + 1, flat)
    for i, row in ipairs(own) do
      for j, id in ipairs(row) do
        local k = 2 + (i - 1) * #row + j
        if id ~= train.pad then
          list[#list + 1] = { flat[k + 2], flat[k - 2], flat[k + 1], flat[k - 1], id }
        end
      end
    end
    return core.ids(list)
  end
  local bits = core.ngram_bits(rows(train:batch(1)), rows(test:batch(1)), 5, train.vocab,
    "kneser-ney")
  t.eq(tl.masking.both_sides(train, test), 2 ^ bits, 1e-9)
  t.ok(tl.masking.both_sides(data { share = 0 }, test) < 2 ^ bits) -- it learns from masked contexts
  t.ok(tl.masking.both_sides(data {}, data { batch = 4 }) < train.vocab)
end)

t.test("experiments/mlm.lua runs in its scale smoke", function()
  t.in_folder(function(folder)
    local script = t.root .. "experiments/mlm.lua"
    local said, code = t.shell(("'%s' run -q -C '%s/results' '%s' scale=smoke seeds=1 2>&1")
      :format(core.sys.executable(), folder, script))
    t.ok(code == 0, said)
    for _, model in ipairs { "tnn", "ski", "ski%-published", "fd" } do
      t.ok(said:find("\n" .. model .. " +%d+%.%d+ +%d+%.%d+"), said)
    end
    t.eq(trials.losses(folder, 12), 4) -- no two of them are the same model
    t.holds(t.shell(("'%s' table mlm scale=smoke -C '%s/results' 2>&1"):format(
      core.sys.executable(), folder)), "n-gram of two tokens on either side ")
  end)
end)

t.test("a stream has ids below vocab only, and steps count from 1", function()
  local o = { vocab = 5, length = 4, batch = 1 }
  t.raises(tl.masking, "token 3 of the stream is 6, which is not in 0..vocab %- 1 = 4",
    core.ids { 1, 2, 6 }, o)
  t.raises(tl.masking, "takes a stream of ids, int32 %[t%], got tensor %[3%] float32",
    core.ones(3), o)
  local data = tl.masking(core.ids { 1, 2, 3 }, o)
  t.raises(data.batch, "masking: step must be an integer of at least 1, got 0", data, 0)
  t.raises(function() local _ = data:batch(0) end, "test_masked.lua:%d+: masking: step must be")
end)

t.done()
