-- test_generate.lua: a trial's model and vocabulary, rebuilt from the results folder alone, and
-- the text that toeplab generate writes with them.
local t = require "harness"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local records, errors = require "toeplab.store.records", require "toeplab.base.errors"
local selection = require "toeplab.store.selection"
local open_model = require "toeplab.trials.open_model"
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

t.test("model and vocabulary of every tokenizer survive a round trip", function()
  for _, words in ipairs { { "tokenizer=char" }, { "tokenizer=byte" }, { "tokenizer=word" },
    { "tokenizer=bpe", "vocab_size=270" } } do
    t.in_folder(function(folder)
      t.eq(run(folder, words), 0)
      with_last(folder, function(store, row, metrics, texts)
        local model, vocab, about = open_model.load(store, row, { kind = "checkpoint" })
        t.eq({ about.step, about.kind, about.length }, { 6, "checkpoint", 12 })
        t.eq(vocab:size(), metrics.size)
        local ids = vocab:encode "the sea told\n the man"
        t.eq(table.concat(ids:totable(), " "), texts.ids)
        t.eq(vocab:decode(ids), row.config:find '"word"' and " the sea told \n the man"
          or "the sea told\n the man")
        t.ok(not model.opt.tied and model.opt.dim == 8)
        local _, _, best = open_model.load(store, row)
        t.eq({ best.step, best.kind }, { 3, "best" })
      end)
    end)
  end
end)

t.test("the parameters are the checkpoint's", function()
  in_plain(function(folder)
    with_last(folder, function(store, row, metrics)
      local model, vocab = open_model.load(store, row, { kind = "checkpoint" })
      local text = ("the old man of the sea told the young man a tale of the sea .\n"):rep(40)
      local valid = vocab:encode(text):narrow(1, #text - 2 * (#text // 20) + 1, 12)
      local sum = core.no_grad(function() return model:eval()(valid:reshape(1, 12)):sum() end)
      t.eq(sum:item(), metrics.sum, 1e-4)
      local best = open_model.load(store, row)
      local other = core.no_grad(function() return best:eval()(valid:reshape(1, 12)):sum() end)
      t.ok(math.abs(other:item() - metrics.sum) > 1e-4, "the best one is of another step")
    end)
  end)
end)

t.test("a trial resumes only with the vocabulary that it started with", function()
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
    fails "the vocabulary has changed since the trial started with .*vocabulary%-0"
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
    local line = select(2, generate(folder, "-p 'the sea' -n 9 -t 0 --json --window 100000000"))
    t.eq("the sea" .. json.decode(line).text .. "\n", wide)
    -- A run that went on differs from its best checkpoint.
    t.ok(select(2, generate(folder, "-p 'the sea' -n 30 -s 3 --last")) ~= first)
  end)
end)

t.test("toeplab generate: words and byte pairs; an empty prompt is an end of line", function()
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
    for _, words in ipairs { "-m ring", "-m etsc", "-m etsc --form published", "-m relaxed",
      "-m auto", "--window 67" } do
      t.eq(cold(words), want)
    end
    local code, text, said = converted(folder, "--lags 70", "-p 'the sea' -n 60 -t 0")
    t.eq({ code, text }, { 0, want })
    t.ok(said:find "\nall .*\n.*m%.h5: trial %x+, step 3, exact form, 70 lags\n", said)
    for _, form in ipairs { "balanced", "fitted" } do
      code, text, said = converted(folder, "--lags 70 --modes 20 --form " .. form, "-p the -n 9")
      t.eq({ code, #text }, { 0, 13 })
      t.ok(said:find "step 3, %l+ form, 70 lags\n", said)
    end
  end)
end)

t.test("toeplab generate: options that cannot be combined", function()
  in_plain(function(folder)
    for words, want in pairs {
      ["-m rign"] = "%-%-method: there is no method 'rign'; did you mean 'ring'",
      ["-m ring --window 5"] = "%-%-window is for method window",
      ["--lags 5"] = "%-%-lags is for the methods other than window",
      ["-m relaxed --modes 3"] = "%-%-modes is for %-%-convert with %-%-form balanced or fitted",
      ["-m ring --form exact"] = "%-%-form is for method etsc",
      ["-m fft --lags 5"] = "lags = 5 is less than its 202 tokens",
      ["--prompts x"] = "%-%-prompts is an alternative to %-%-prompt",
      ["--batch 2"] = "%-%-batch requires several prompts or %-%-json",
      ["--score -k 2"] = "%-%-top%-k is for text, not for %-%-score",
      ["--top-p 0"] = "%-%-top%-p takes a share above 0, at most 1, got '0'",
      ["--repetition-penalty 0"] = "takes a number from 0.001 to 1000, got '0'",
      ["--temperature 1e9"] = "%-%-temperature takes a number from 0 to 1000000, got '1e9'",
      ["--seed 99999999999999999999"] = "%-%-seed takes an integer below 2%^63, got '9+'",
      ["--stop ''"] = "%-%-stop takes a string, got an empty one",
      ["--stop-token 17"] = "%-%-stop%-token takes the id of a token, 0 to 16, got '17'",
      ["-o m.h5"] = "%-%-prompt is for text, not for %-%-convert",
    } do
      local code, text, said = generate(folder, "-p the " .. words)
      t.eq({ code, text }, { 2, "" })
      t.ok(said:find(want), said)
    end
  end)
end)

t.test("toeplab generate: wrong arguments, and models that cannot be rebuilt", function()
  in_plain(function(folder)
    local function refused(words, code, want)
      local got, _, said = generate(folder, words)
      t.eq(got, code)
      t.ok(said:find(want), said)
    end
    refused("--prompt 'X'", 2, "the prompt: character 'X' .*is not in the vocabulary of 17")
    refused("--tokens x", 2, "%-%-tokens takes a number")
    refused("--prompts " .. folder .. "/none", 2, "%-%-prompts: .*/none: No such file")
    refused("--prompts " .. folder, 2, "Is a directory")
    t.write(folder .. "/prompts", "the sea\nthe XXL sea\n")
    refused("--prompts " .. folder .. "/prompts", 2, "/prompts:2: character 'X' .*is not in the")
    refused("--score -p 'the' -p 'the\tsee Q'", 2, "prompt 2: character 'Q'")
    refused("--score -p 'the\t'", 2, "the prompt: there is nothing to score after the tab")
    t.write(folder .. "/prompts", "")
    refused("--prompts " .. folder .. "/prompts", 2, "/prompts is empty: it holds no prompt")
    refused("--top-k 0", 2, "%-%-top%-k takes a number from 1")
    refused("seed=77", 1, "no trial matches")
    t.write(folder .. "/own.lua", [[local tl = require "toeplab"
      local function mixer(d) return tl.nn.Linear(d, d) end
      return tl.experiment "own" { trial = print, model = function(c, v) return tl.models.tnn_lm {
        vocab = v:size(), layers = 1, tied = false, dim = 8, mixer = mixer } end }]])
    refused(("-p a --script %s/own.lua"):format(folder), 2, "%-%-script is only for models that")
    local words = "status=done" -- of which @last is the last
    t.eq({ generate(folder, words .. " -p the -n 2") }, { generate(folder, "-p the -n 2") })
    t.eq(run(folder, { "steps=2" }, "mixer = function(d) return tl.nn.Linear(d, d) end"), 0)
    refused("-p a", 2, "whose mixer comes from its script")
    refused(("-o %s/m.h5 --script %s/own.lua"):format(folder, folder), 2,
      "the file would not open, because the mixer of the model of trial %x+ comes from its script")
    for script, want in pairs {
      ["causal = false"] = "the model of trial %x+ is not causal",
      ['backend = "ski", encoder = "piecewise", backend_options = { inducing = 4 }'] =
        "not a Toeplitz operator at 12 positions",
    } do
      t.eq(run(folder, { "steps=2" }, script), 0)
      local options = want:find "Toeplitz" and "-m ring --lags 12" or ""
      refused("-p a " .. options, 2, want)
      t.eq(t.read(folder .. "/out"), "")
    end
    local _, _, code = os.execute(("'%s' generate -C %s/results @last -o %s/m 2>%s/err"):format(
      core.sys.executable(), folder, folder, folder))
    t.eq({ code, core.sys.exists(folder .. "/m") }, { 2, false })
    t.ok(t.read(folder .. "/err"):find "must end in %.h5", t.read(folder .. "/err"))
    refused("-o " .. folder .. "/none/m.h5", 2, "there is no folder '[^']*/none/'")
    t.ok(not core.sys.exists(folder .. "/none"))
  end)
end)

-- Returns the objects in lines of JSON.
local function objects(text)
  local list = {}
  for line in text:gmatch "[^\n]+" do list[#list + 1] = json.decode(line) end
  return list
end

t.test("toeplab generate: several prompts, each as if alone", function()
  in_plain(function(folder)
    local path = folder .. "/prompts"
    t.write(path, "the sea\nthe\r\n\nold man told")
    for _, words in ipairs { "-m relaxed --top-p 0.8", "--stop ea -k 3" } do
      local function lines(more)
        local code, text = generate(folder, ("-n 20 --batch 2 %s %s"):format(words, more))
        t.eq(code, 0)
        return objects(text)
      end
      local list = lines("--seed 5 --prompts " .. path)
      t.eq(#list, 4)
      for i, prompt in ipairs { "the sea", "the", "", "old man told" } do
        local o = list[i]
        t.eq({ o.index, o.prompt, o.seed }, { i, prompt, 4 + i })
        t.eq(o.perplexity, math.exp(-o.logprob / #o.ids), 1e-9)
        local seed = ("--seed %d -p '%s' "):format(4 + i, prompt)
        local alone = lines(seed .. "--json")[1]
        alone.index = i
        t.eq(alone, o)
        local text = i == 1 and select(2, generate(folder, seed .. "-n 20 " .. words))
        t.eq(text, i == 1 and "the sea" .. o.text .. "\n")
      end
      t.eq(lines "--seed 5 -p 'the sea' -p the", { list[1], list[2] })
    end
    local piped = ("cat %s | '%s' generate -C %s/results @last -n 3 --prompts - >%s/out"):format(
      path, core.sys.executable(), folder, folder)
    t.ok(os.execute(piped))
    t.eq(#objects(t.read(folder .. "/out")), 4)
  end)
end)

t.test("toeplab generate --score: the text after the first tab", function()
  in_plain(function(folder)
    local path = folder .. "/prompts"
    t.write(path, "the old\t man of the sea\nthe old\toooooo\nthe sea\n")
    local code, text = generate(folder, "--score --prompts " .. path)
    local list = objects(text)
    t.eq({ code, #list }, { 0, 3 })
    for i, want in ipairs { { "the old", " man of the sea" }, { "the old", "oooooo" },
      { "", "the sea" } } do
      local o, sum = list[i], 0.0
      t.eq({ o.index, o.prompt, o.continuation, o.tokens }, { i, want[1], want[2], #want[2] })
      for _, x in ipairs(o.logprobs) do sum = sum + x end
      t.eq(o.logprob, sum, 1e-9)
      t.eq(o.perplexity, math.exp(-sum / o.tokens), 1e-9)
    end
    t.ok(list[1].perplexity < list[2].perplexity)
    t.eq(objects(select(2, generate(folder, "--score -p 'the sea'")))[1].logprob, list[3].logprob)
  end)
end)

t.test("toeplab generate: auto reports that it runs a model on all text, and why", function()
  t.in_folder(function(folder)
    t.eq(run(folder, { "steps=2" }, "mixer = 'cat'"), 0)
    local _, want = generate(folder, "-p the -n 9 -t 0 -m fft")
    local code, text, said = generate(folder, "-p the -n 9 -t 0 -m auto")
    t.eq({ code, text }, { 0, want })
    t.ok(said:find "^note: each token runs the model on all text %(fft%): .*%(CAT%) mixes", said)
    code, text, said = generate(folder, "-p the -m ring")
    t.eq({ code, text }, { 2, "" })
    t.ok(said:find "layers%.1%.token %(CAT%) mixes", said)
  end)
end)

t.test("toeplab generate: whole characters only, even of bytes", function()
  t.in_folder(function(folder)
    t.eq(run(folder, { "tokenizer=byte", "steps=1" }), 0) -- untrained: any bytes
    local n = core.device() == "cpu" and 300 or 30 -- emulation is slow
    for seed = 1, 2 do
      local code, text = generate(folder, ("-n %d -p '\xe2\x82' -s %d"):format(n, seed))
      t.eq({ code, utf8.len(text) ~= nil }, { 0, true })
      code, text = generate(folder, ("-n %d -p x -p '\xff' -s %d"):format(n, seed))
      t.eq({ code, utf8.len(text) ~= nil, #objects(text) }, { 0, true, 2 })
    end
    t.eq(select(2, generate(folder, "-n 0 -p 'a\xe2\x82'")), "a\n")
    t.eq(select(2, generate(folder, "-n 0 -p 'a\xffb'")), "a\u{FFFD}b\n")
  end)
end)

t.test("toeplab generate: reports a damaged checkpoint and uses another one", function()
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

-- Returns after how many seconds a command of generate is at work, also on a busy machine.
local function at_work(folder)
  local began = core.sys.clock()
  generate(folder, "-p the -n 1")
  return 1 + 4 * (core.sys.clock() - began)
end

t.test("toeplab generate stops at a signal, at the end of a token", function()
  in_plain(function(folder)
    local seconds = at_work(folder)
    local command = ("timeout -s INT -k 5 %.1f '%s' generate -C %s/results @last -p the -n 1000000 "
      .. ">%s/out 2>%s/err"):format(seconds, core.sys.executable(), folder, folder, folder)
    local _, _, code = os.execute(command)
    t.eq({ code, t.read(folder .. "/err") }, { 124, "toeplab: stopped by SIGINT\n" })
    local text = t.read(folder .. "/out")
    t.ok(#text > 4 and text:sub(1, 3) == "the" and text:sub(-1) == "\n", #text .. " bytes")
  end)
end)

t.test("toeplab generate stops at a signal within a prompt", function()
  t.in_folder(function(folder)
    t.eq(run(folder, { "steps=2" }, "mixer = 'gru'"), 0)
    -- gru reads it token by token, which takes emulation minutes for a single operator
    local few = (os.getenv "TOEPLAB_DEVICE" or ""):find "/"
    t.write(folder .. "/prompts", ("the sea "):rep(few and 1250 or 12500))
    for _, more in ipairs { "", "--json " } do
      local _, _, code = os.execute(("timeout -s TERM -k 20 %.1f '%s' generate -C %s/results @last "
        .. "-m auto %s-p \"$(cat %s/prompts)\" >%s/out 2>%s/err"):format(at_work(folder),
        core.sys.executable(), folder, more, folder, folder, folder))
      t.eq({ code, t.read(folder .. "/out"), t.read(folder .. "/err") },
        { 124, "", "toeplab: stopped by SIGTERM\n" })
    end
  end)
end)

-- Runs a shell command with $G for toeplab generate @last; returns its exit code, and what it has
-- printed to FOLDER/out and FOLDER/err.
local function shell(folder, command)
  local program = ("'%s' generate -C %s/results @last"):format(core.sys.executable(), folder)
  t.write(folder .. "/script", command:gsub("$G", function() return program end))
  local _, _, code = os.execute(("cd %s; sh script >out 2>err"):format(folder))
  return code, t.read(folder .. "/out"), t.read(folder .. "/err")
end

t.test("toeplab generate: a stopped batch has printed whole lines", function()
  in_plain(function(folder)
    -- The signal comes when the first line has been read, however fast the machine is.
    t.write(folder .. "/prompts", ("the sea\n"):rep(10000))
    local _, text, said = shell(folder, [[
{ $G --prompts prompts -n 3 --batch 2 & echo $! >pid; wait $!; echo $? >code; } |
{ IFS= read -r line; kill -TERM $(cat pid); echo "$line"; cat; } ]])
    t.eq({ t.read(folder .. "/code"), said }, { "143\n", "toeplab: stopped by SIGTERM\n" })
    t.eq(text:sub(-1), "\n")
    for _, o in ipairs(objects(text)) do t.eq(#o.ids, 3) end
    local code
    code, text = shell(folder, ("timeout -s INT -k 5 %.1f $G -p the -n 1000000 --json"):format(
      at_work(folder)))
    t.eq({ code, text }, { 124, "" })
  end)
end, "cpu")

t.test("toeplab generate: a full pipe, one without a reader, a full disk", function()
  in_plain(function(folder)
    -- The pipe holds 65536 bytes and its reader sleeps, so that the first token waits.
    local seconds = at_work(folder)
    local code, text = shell(folder, ("{ head -c 65536 /dev/zero; timeout -s TERM -k 5 %.1f $G "
      .. "-p the -n 9; echo $? >code; } | sleep %.1f; cat code"):format(seconds, seconds + 4))
    t.eq({ code, text }, { 0, "124\n" })
    code, text = shell(folder, "{ $G -p the -n 1000000; echo $? >code; } | head -c 3; cat code")
    t.eq({ code, text }, { 0, "the141\n" }) -- 128 + SIGPIPE
    if not core.sys.exists "/dev/full" then t.skip "there is no /dev/full" end
    for _, words in ipairs { "-n 1000000", "-n 1000000 --json -m ring --lags 4 --stop e", "-n 0",
      "--score" } do
      local said
      code, text, said = shell(folder, "timeout 20 $G -p the " .. words .. " >/dev/full")
      t.eq({ code, text, said }, { 1, "",
        "toeplab: standard output: No space left on device\n" })
    end
  end)
end, "cpu")

t.test("toeplab generate: a prompt that does not fit into memory", function()
  in_plain(function(folder)
    local limit = "ulimit -v 900000; "
    if shell(folder, limit .. "$G -p the -n 1") ~= 0 then return end -- a sanitiser needs more
    t.write(folder .. "/prompts", "the\n" .. ("a"):rep(1000000))
    for words, want in pairs {
      ["-m ring"] = "a prompt of 1000000 tokens and 5 more do not fit into memory %(out of memory",
      ["-m fft"] = "fewer %-%-tokens or %-%-lags, or a smaller %-%-batch\n$",
      ["--score"] = "1000001 tokens and 0 more do not fit .*\ngive a shorter prompt\n$",
    } do
      local code, text, said = shell(folder, limit .. "$G --prompts prompts "
        .. (words == "--score" and "" or "-n 5 ") .. words)
      t.eq(code, 1)
      t.ok(said:find "^toeplab: generate: " and said:find(want), said)
      for _, o in ipairs(objects(text)) do t.eq(o.index, 1) end
    end
  end)
end, "cpu")
t.done()
