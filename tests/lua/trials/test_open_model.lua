-- test_open_model.lua: a stored model opens from any script, by its trial and from a file, with the
-- weights it was stored with; one made by a script opens with a function of that script.
local core = require "toeplab.core"
local experiment = require "toeplab.trials.experiment"
local exported = require "toeplab.models.files.exported"
local runner = require "toeplab.runs.runner"
local t = require "harness"
local tl = require "toeplab"

local script = [[
local tl = require "toeplab"

local Own = tl.nn.class("Own", { vocab = "int", dim = "int" }, { "vocab", "dim" })
function Own:build(o)
  self.embed, self.out = tl.nn.Embedding(o.vocab, o.dim), tl.nn.Linear(o.dim, o.vocab)
end
function Own:forward(ids) return self.out(self.embed(ids)) end
function Own:loss(ids, targets) return tl.cross_entropy(self(ids), targets) end

local function make(c, vocab)
  if c.kind == "own" then return Own(vocab:size(), c.dim) end
  return tl.models.tnn_lm { vocab = vocab:size(), layers = 2, dim = c.dim, rpe_dim = 4,
    rpe_layers = 1, glu_dim = 5, backend = "naive" }
end

return tl.experiment "open" {
  fixed = { dim = 4, length = 8 }, grid = { kind = { "tnn", "own" } },
  model = make,
  trial = function(t, c)
    local data = tl.corpus("text:" .. ("a b\u{e9} def ghij "):rep(20), { batch = 2, length = 8,
      tokenizer = c.kind == "own" and "word" or "char" })
    local model = make(c, data.vocab)
    local opt = tl.optim.adam(model, { lr = 0.01 })
    for step in t:steps(3, model, opt, data) do
      t:log { loss = tl.train.lm_step(model, opt, data:batch(step)) }
    end
    t:log { size = model.embed.weight:sum():item() }
  end,
}
]]

local quiet = { write = function() end, flush = function() end }

-- Calls check(folder, build) with the results of the script, and its function model.
local function with_trials(check)
  t.in_folder(function(folder)
    local path, printed = folder .. "/open.lua", _G.print
    t.write(path, script)
    _G.print = function() end
    local ok, code = pcall(runner.run, path, {}, { dir = folder .. "/r", out = quiet,
      command = { "toeplab", "run" } })
    _G.print = printed
    t.eq({ ok, code }, { true, 0 })
    check(folder .. "/r", experiment.builder(path))
  end)
end

-- What the program answers to words; raises unless it ends with the code.
local function says(code, ...)
  local words = {}
  for i, word in ipairs { ... } do words[i] = "'" .. word .. "'" end
  local text, status = t.shell(("'%s' %s 2>&1"):format(core.sys.executable(),
    table.concat(words, " ")))
  t.ok(status == code, ("code %s: %s"):format(status, text))
  return text
end

local function bits(model) return t.bits(model:state()) end

t.test("a model opens by its trial, by its checkpoint and from a file of weights", function()
  with_trials(function(dir)
    local model, vocab, about = tl.model("kind=tnn", { dir = dir })
    t.eq({ model.kind, model.training, about.step, about.length, about.config.dim },
      { "TnnLM", false, 3, 8, 4 })
    t.eq(vocab:decode(vocab:encode "b\u{e9} a"), "b\u{e9} a")
    local text = tl.generate(model, vocab, "a", { tokens = 9, temperature = 0 })
    local files = { ("%s/runs/%s/step-00000003.h5"):format(dir, about.trial:sub(1, 12)) }
    for _, names in ipairs { "toeplab", "tnn-pytorch", "fairseq" } do
      files[#files + 1] = ("%s/%s.safetensors"):format(dir, names)
      local said = says(0, "export", about.trial, "-w", files[#files], "--names", names, "--dir",
        dir)
      t.ok(said:find("trial " .. about.trial:sub(1, 12), 1, true))
      t.eq(said:match "the same function there with .* (rpe_act=%l+)",
        names ~= "toeplab" and "rpe_act=relu" or nil)
    end
    for _, file in ipairs(files) do
      local again, other = tl.model(file)
      t.eq(bits(again), bits(model))
      t.eq(tl.generate(again, other, "a", { tokens = 9, temperature = 0 }), text)
      t.eq(says(0, "generate", file, "-p", "a", "-n", "9", "-t", "0"), text .. "\n")
    end
    says(0, "generate", files[2], "--convert", dir .. "/from.h5", "--lags", "8")
    t.eq(select(2, tl.model(dir .. "/from.h5")):decode(vocab:encode "b\u{e9}"), "b\u{e9}")
    local low = dir .. "/low.safetensors"
    says(0, "export", about.trial, "-w", low, "--bf16", "--dir", dir)
    t.ok(core.sys.size(low) < core.sys.size(files[2]))
    local rounded = tl.model(low)
    t.eq(rounded.embed.weight, model.embed.weight, 2 ^ -8)
  end)
end)

t.test("a model of a script's class opens with the script's function", function()
  with_trials(function(dir, build)
    local model, vocab, about = tl.model("kind=own", { dir = dir, build = build })
    t.eq({ model.kind, about.step, about.vocabulary }, { "Own", 3, "word" })
    local path, file = dir .. "/../open.lua", dir .. "/own.safetensors"
    says(0, "export", "kind=own", "-w", file, "--script", path, "--dir", dir)
    t.eq(bits((tl.model(file, { build = build }))), bits(model))
    local text = tl.generate(model, vocab, "a", { tokens = 4, temperature = 0 }):match "^ *(.*)"
    t.eq(says(0, "generate", "kind=own", "-p", "a", "-n", "4", "-t", "0", "--script", path, "--dir",
      dir), text .. "\n")
    t.eq(says(0, "generate", file, "-p", "a", "-n", "4", "-t", "0", "--script", path), text .. "\n")
    t.raises(tl.model, "whose class comes from its script.*option build", "kind=own", { dir = dir })
    t.raises(tl.model, "whose class comes from its script", file)
    t.raises(tl.model, "returned a number", "kind=own",
      { dir = dir, build = function() return 1 end })
    t.raises(tl.model, "does not fit .*Linear cannot load this state: missing: bias", "kind=own",
      { dir = dir, build = function(c) return tl.nn.Linear(c.dim, 2) end })
    local said = says(2, "export", "kind=own", "-w", file, "--script", path, "--names", "fairseq",
      "--dir", dir)
    t.ok(said:find "fairseq has no model of a class of the script's own", said)
  end)
end)

t.test("files and trials without a model are errors with a clear message", function()
  t.in_folder(function(dir)
    local file = dir .. "/x.safetensors"
    tl.save(file, { x = core.ones(1) })
    t.raises(tl.model, "does not say which model", file)
    tl.save(file, {}, { metadata = { toeplab = '{"model":"tnn_lm","names":"toeplab","options":'
      .. '{"vocab":3,"dim":4,"layers":1}}' } })
    t.raises(tl.model, "x.safetensors does not fit its description: .*missing", file)
    for about, want in pairs {
      ['{"model":"tnn_ln"}'] = "cannot be made: models has no 'tnn_ln'; did you mean 'tnn_lm'",
      ['{"model":"tnn_lm","options":"x"}'] = "'options' is of type string, not table",
      ['{"model":"tnn_lm","options":{"vocab":"x"}}'] = "cannot be made: TnnLM: option 'vocab' must",
      ['{"model":"tnn_lm","programmed":3}'] = "'programmed' is of type integer, not string",
      ['{"model":"tnn_lm","length":"8"}'] = "'length' is of type string, not integer",
      ['{"model":"tnn_lm","names":"fairsek"}'] = "no form of names 'fairsek'; did you mean",
      ['{"model":"tnn_lm","vocabulary":"char"}'] = "its vocabulary, of kind 'char', has no",
      ['{"model":"tnn_lm","vocabulary":"chars"}'] = "its vocabulary is of an unknown kind, 'chars'",
    } do
      tl.save(file, {}, { metadata = { toeplab = about } })
      t.raises(tl.model, "^" .. file .. ": .*" .. want, file)
    end
    t.raises(tl.model, "there is no such file", dir .. "/none.h5")
    local o = { vocab = 256, classes = 2, layers = 1, dim = 4, glu_dim = 3, expand = 1.0 }
    exported.write(file, tl.models.tnn_classifier(o),
      { model = "tnn_classifier", options = o, vocabulary = "byte" }, {})
    t.holds(says(2, "generate", file, "--score"), "is a tnn_classifier, not a causal language")
    for _, content in ipairs { "", "no HDF5 at all" } do
      t.write(dir .. "/damaged.h5", content)
      t.ok(says(6, "generate", dir .. "/damaged.h5"):find("damaged.h5", 1, true))
    end
    t.raises(tl.model, "there is no such file", dir .. "/none.safetensors")
    t.raises(tl.model, "takes the id of a trial", 7)
    t.raises(tl.model, "did you mean 'build'", "x", { bild = 1 })
    t.ok(says(2, "export", "@last", "-w", dir .. "/x.bin"):find "must end in .safetensors")
    t.ok(says(2, "export", "@last", "--bf16"):find "is for %-%-weights")
    t.ok(says(2, "export", "@last", "-w", file, "--csv"):find "is not for %-%-weights")
    t.ok(says(2, "export", "@last", "-w", file, "--names", "fairsek"):find "did you mean")
  end)
end)

t.done()
