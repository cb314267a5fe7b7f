-- test_generate.lua: a trial's model and vocabulary, made again from the results folder alone, and
-- the text that toeplab generate writes with them.
local t = require "harness"
local core = require "toeplab.core"
local records = require "toeplab.store.records"
local selection = require "toeplab.store.selection"
local errors = require "toeplab.base.errors"
local saved_model = require "toeplab.store.saved_model"
local trials = require "trials"

local script = [[
local tl = require "toeplab"
return tl.experiment "stored" {
  fixed = { steps = 6, length = 12, vocab_size = 0, corpus = "text:" ..
    ("the old man of the sea told the young man a tale of the sea .\n"):rep(40) },
  grid = { tokenizer = { "char" } },
  checkpoint = { steps = 2 },
  trial = function(t, c)
    local data = tl.corpus(c.corpus, { tokenizer = c.tokenizer, length = c.length, batch = 2,
      vocab_size = c.tokenizer == "bpe" and c.vocab_size or nil })
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 1, dim = 8, rpe_dim = 4,
      rpe_layers = 1, decay = "none", tied = false, MIXER }
    local opt = tl.optim.adam(model, { lr = 0.01 })
    for step in t:steps(c.steps, model, opt, data) do
      t:log { loss = tl.train.lm_step(model, opt, data:batch(step)) }
      if step == 3 then t:best(1) end
    end
    local ids = data.valid:narrow(1, 1, 12):reshape(1, 12)
    t:log { sum = tl.no_grad(function() return model:eval()(ids):sum() end),
      size = data.vocab:size() }
    t:text("ids", table.concat(data.vocab:encode("the sea told\n the man"):totable(), " "))
  end,
  report = function() end,
}
]]

local function run(folder, words, mixer)
  return (trials.run(folder, (script:gsub("MIXER", mixer or "")), words))
end

local kept -- name -> content: the files of the trial without words, which is run once only

local function keep(folder, name)
  local path = folder .. "/" .. name
  local names = core.sys.list(path)
  if not names then kept[name] = t.read(path) end
  for _, below in ipairs(names or {}) do keep(folder, name .. "/" .. below) end
end

-- fn(folder with the results of the trial without words).
local function in_plain(fn)
  t.in_folder(function(folder)
    if not kept then
      t.eq(run(folder, {}), 0)
      kept = {}
      keep(folder, "results")
    else
      for name, content in pairs(kept) do
        assert(core.sys.mkdir((folder .. "/" .. name):match "^(.*)/"))
        t.write(folder .. "/" .. name, content)
      end
    end
    fn(folder)
  end)
end

-- fn(store, row of the last trial, its metrics, its texts).
local function with_last(folder, fn)
  local store <close> = records.open(folder .. "/results", "r")
  local row = selection.one(store, "@last")
  fn(store, row, store:results(row.id))
end

-- Runs toeplab generate; returns the exit code, standard output and standard error.
local function generate(folder, words)
  local _, _, code = os.execute(("'%s' generate -C %s/results @last %s >%s/out 2>%s/err"):format(
    core.sys.executable(), folder, words, folder, folder))
  return code, t.read(folder .. "/out"), t.read(folder .. "/err")
end

-- Writes the last trial's model to FOLDER/m.h5; returns as generate, of words with that.
local function converted(folder, options, words)
  local program, out = core.sys.executable(), folder .. "/out"
  local _, _, code = os.execute(("'%s' generate -C %s/results @last %s -o %s/m.h5 >%s"):format(
    program, folder, options, folder, out))
  t.eq(code, 0)
  local said = t.read(out)
  _, _, code = os.execute(("'%s' generate %s/m.h5 %s >%s"):format(program, folder, words, out))
  return code, t.read(out), said
end

t.test("model and vocabulary of every tokenizer come back as they were", function()
  for _, words in ipairs { { "tokenizer=char" }, { "tokenizer=byte" }, { "tokenizer=word" },
    { "tokenizer=bpe", "vocab_size=270" } } do
    t.in_folder(function(folder)
      t.eq(run(folder, words), 0)
      with_last(folder, function(store, row, metrics, texts)
        local model, vocab, about = saved_model.load(store, row, { kind = "checkpoint" })
        t.eq({ about.step, about.kind, about.length }, { 6, "checkpoint", 12 })
        t.eq(vocab:size(), metrics.size)
        local ids = vocab:encode "the sea told\n the man"
        t.eq(table.concat(ids:totable(), " "), texts.ids)
        t.eq(vocab:decode(ids), row.config:find '"word"' and " the sea told \n the man"
          or "the sea told\n the man")
        t.ok(not model.opt.tied and model.opt.dim == 8)
        local _, _, best = saved_model.load(store, row)
        t.eq({ best.step, best.kind }, { 3, "best" })
      end)
    end)
  end
end)

t.test("the parameters are those of the checkpoint", function()
  in_plain(function(folder)
    with_last(folder, function(store, row, metrics)
      local model, vocab = saved_model.load(store, row, { kind = "checkpoint" })
      local text = ("the old man of the sea told the young man a tale of the sea .\n"):rep(40)
      local valid = vocab:encode(text):narrow(1, #text - 2 * (#text // 20) + 1, 12)
      local sum = core.no_grad(function() return model:eval()(valid:reshape(1, 12)):sum() end)
      t.eq(sum:item(), metrics.sum, 1e-4)
      local best = saved_model.load(store, row)
      local other = core.no_grad(function() return best:eval()(valid:reshape(1, 12)):sum() end)
      t.ok(math.abs(other:item() - metrics.sum) > 1e-4, "the best one is of another step")
    end)
  end)
end)

t.test("a trial goes on with the vocabulary it was begun with only", function()
  t.in_folder(function(folder)
    local saved, merges = script, folder .. "/x.bpe"
    script = saved:gsub("vocab_size = c.tokenizer[^}]*", ("merges = %q"):format(merges))
      :gsub("if step == 3", "if step == 4 then error 'broken' end %0")
    local function learn(text)
      local counter = core.counter "pieces"
      counter:feed(text)
      core.bpe_train(counter, 262, merges)
    end
    local function fails(want)
      t.eq(run(folder, { "tokenizer=bpe" }), 1)
      with_last(folder, function(_, row) t.ok(row.error:find(want), row.error) end)
    end
    learn(("the old man of the sea "):rep(9))
    local first = t.read(merges)
    fails "broken"
    learn(("a young moon and a tale "):rep(9))
    fails "the vocabulary differs from the one that the trial started with, .*vocabulary%-0"
    t.write(merges, first)
    fails "broken"
    script = saved
  end)
end)

t.test("toeplab generate: the same text for a seed, from the prompt on", function()
  in_plain(function(folder)
    local code, first = generate(folder, "--prompt 'the sea' --tokens 30 --seed 3")
    t.eq({ code, #first }, { 0, 38 })
    t.eq(first:sub(1, 7), "the sea")
    t.eq(select(2, generate(folder, "--prompt 'the sea' --tokens 30 --seed 3")), first)
    t.ok(select(2, generate(folder, "--prompt 'the sea' --tokens 30 --seed 4")) ~= first)
    local _, cold = generate(folder, "-p 'the sea' -n 9 -t 0 -s 3")
    t.eq(select(2, generate(folder, "-p 'the sea' -n 9 -k 1 -s 4")), cold)
    t.eq(select(2, generate(folder, "-p 'the sea' -n 0")), "the sea\n")
    -- A window is no wider than the text can become: this one would take all memory.
    local wide = select(2, generate(folder, "-p 'the sea' -n 9 -t 0 --window 100000000"))
    t.eq(#wide, #cold)
    -- A run that went on differs from its best checkpoint.
    t.ok(select(2, generate(folder, "-p 'the sea' -n 30 -s 3 --last")) ~= first)
  end)
end)

t.test("toeplab generate: words and byte pairs; an empty prompt is the end of a line", function()
  t.in_folder(function(folder)
    t.eq(run(folder, { "tokenizer=word" }), 0)
    local code, text = generate(folder, "--prompt 'the old man' --tokens 5 --temperature 0")
    t.eq(code, 0)
    t.ok(text:find "^the old man", text)
    code, text = generate(folder, "--tokens 5")
    t.eq(code, 0)
    t.ok(#text > 5, text)
    t.eq(run(folder, { "tokenizer=char" }), 0)
    for _, words in ipairs { "", "--method ring" } do
      code, text = generate(folder, "--tokens 5 " .. words)
      t.eq({ code, #text }, { 0, 6 })
    end
    t.eq(run(folder, { "tokenizer=bpe", "vocab_size=270" }), 0)
    code, text = generate(folder, "--prompt 'any bytes: \xe2\x82\xac' --tokens 5")
    t.eq({ code, text:sub(1, 14) }, { 0, "any bytes: \xe2\x82\xac" })
    local _, want = generate(folder, "-p the -n 5 -t 0")
    code, text = converted(folder, "", "-p the -n 5 -t 0")
    t.eq({ code, text }, { 0, want })
  end)
end)

t.test("toeplab generate and convert: the same text from every method", function()
  in_plain(function(folder)
    local function cold(words)
      return select(2, generate(folder, "-p 'the sea' -n 60 -t 0 " .. words))
    end
    local want = cold "-m fft"
    t.eq(#want, 68)
    for _, words in ipairs { "-m ring", "-m etsc", "-m etsc --form published", "--window 67" } do
      t.eq(cold(words), want)
    end
    local code, text, said = converted(folder, "--lags 70", "-p 'the sea' -n 60 -t 0")
    t.eq({ code, text }, { 0, want })
    t.ok(said:find "\nall .*\n.*m%.h5: trial %x+, step 3, exact form, 70 lags\n", said)
  end)
end)

t.test("toeplab generate: options that do not go together", function()
  in_plain(function(folder)
    for words, want in pairs {
      ["-m rign"] = "no %-%-method 'rign'.*did you mean 'ring'",
      ["-m ring --window 5"] = "%-%-window is for method window",
      ["--lags 5"] = "%-%-lags is for the methods fft, ring and etsc",
      ["-m ring --form exact"] = "%-%-form is for method etsc",
      ["-m fft --lags 5"] = "lags = 5 is less than its 202 tokens",
    } do
      local code, text, said = generate(folder, "-p the " .. words)
      t.eq({ code, text }, { 2, "" })
      t.ok(said:find(want), said)
    end
  end)
end)

t.test("toeplab generate: wrong words, and what cannot be made again", function()
  in_plain(function(folder)
    local function refused(words, code, want)
      local got, _, said = generate(folder, words)
      t.eq(got, code)
      t.ok(said:find(want), said)
    end
    refused("--prompt 'X'", 2, "the prompt: character 'X' .*is not among the 17 known")
    refused("--tokens x", 2, "%-%-tokens takes a number")
    refused("--top-k 0", 2, "%-%-top%-k takes a number of at least 1")
    refused("seed=77", 2, "holds no trials that fit")
    local words = "status=done" -- of which @last is the last
    t.eq({ generate(folder, words .. " -p the -n 2") }, { generate(folder, "-p the -n 2") })
    t.eq(run(folder, { "steps=2" }, "mixer = function(d) return tl.nn.Linear(d, d) end"), 0)
    refused("-p a", 2, "whose mixer comes from its script")
    for words, want in pairs {
      ["causal = false"] = "the model of trial %x+ is not causal",
      ['backend = "ski", encoder = "piecewise", backend_options = { inducing = 4 }'] =
        "not a Toeplitz operator at 12 positions",
    } do
      t.eq(run(folder, { "steps=2" }, words), 0)
      local options = want:find "Toeplitz" and "-m ring --lags 12" or ""
      refused("-p a " .. options, 2, want)
      t.eq(t.read(folder .. "/out"), "")
    end
    local _, _, code = os.execute(("'%s' generate -C %s/results @last -o %s/m 2>%s/err"):format(
      core.sys.executable(), folder, folder, folder))
    t.eq({ code, core.sys.exists(folder .. "/m") }, { 2, false })
    t.ok(t.read(folder .. "/err"):find "must end in %.h5", t.read(folder .. "/err"))
  end)
end)

t.test("toeplab generate: a damaged checkpoint is told and another one taken", function()
  in_plain(function(folder)
    local id = core.sys.list(folder .. "/results/runs")[1]
    local path = folder .. "/results/runs/" .. id
    t.write(path .. "/best-00000003.h5", "damaged")
    local code, text, said = generate(folder, "-p the -n 3")
    t.eq({ code, #text }, { 0, 7 })
    t.ok(said:find "best%-00000003%.h5 is missing or damaged", said)
    os.remove(path .. "/step-00000006.h5")
    os.remove(path .. "/step-00000004.h5")
    code, text, said = generate(folder, "-p the")
    t.eq({ code, text }, { errors.STORAGE, "" })
    t.ok(said:find "has no undamaged checkpoint", said)
    t.write(path .. "/vocabulary-00000000.txt", "abc")
    code, text, said = generate(folder, "-p the")
    t.eq({ code, text }, { errors.STORAGE, "" })
    t.ok(said:find "vocabulary%-00000000%.txt is missing or damaged", said)
  end)
end)

t.test("toeplab generate stops at a signal, at the end of a token", function()
  in_plain(function(folder)
    local command = ("timeout -s INT -k 5 1 '%s' generate -C %s/results @last -p the -n 1000000 "
      .. ">%s/out 2>%s/err"):format(core.sys.executable(), folder, folder, folder)
    local _, _, code = os.execute(command)
    t.eq({ code, t.read(folder .. "/err") }, { 124, "toeplab: stopped by SIGINT\n" })
    local text = t.read(folder .. "/out")
    t.ok(#text > 4 and text:sub(1, 3) == "the" and text:sub(-1) == "\n", #text .. " bytes")
  end)
end)

t.done()
