-- test_classifiers.lua: toeplab verify runs cases of the kinds lra_model, image_model and schedule:
-- published names reach the parameters that they mean, and a wrong number is found.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local reference = require "toeplab.verify.reference"

-- Writes a case of the attributes a and the datasets, a list of {name, tensor}, runs it, and
-- returns its worst error by result.
local function verify(a, datasets)
  local entries, attrs, errors = {}, {}, {}
  for i, entry in ipairs(datasets) do entries[i] = { "case/" .. entry[1], entry[2] } end
  for name, value in pairs(a) do attrs["case/" .. name] = value end
  table.sort(entries, function(one, other) return one[1] < other[1] end)
  t.in_folder(function(folder)
    core.h5_write(folder .. "/x.h5", entries, attrs)
    reference.run(folder .. "/x.h5", {}, function(_, kind, _, results, why)
      t.eq({ kind, why }, { a.kind })
      for _, r in ipairs(results) do errors[r.name] = r.why and { r.why } or r.error end
    end, function() error "the case was run by no backend" end, function() end)
  end)
  return errors
end

-- Returns the datasets of a case with the parameters of model: named maps each published name to
-- ours. Those of the operators have a shape of their own.
local function datasets_of(model, named)
  local list, own = {}, model:named()
  for theirs, ours in pairs(named) do
    local p = assert(own[ours], ours)
    local value = p:clone()
    if theirs:find "gamma$" then value = value:reshape(1, 1, -1) end
    list[#list + 1] = { "param/" .. theirs, value }
    if p:grad() then list[#list + 1] = { "grad/" .. theirs, p:grad():clone() } end
    own[ours] = nil
  end
  t.eq(next(own), nil) -- every parameter has a published name
  return list
end

local function expand(named, theirs, ours)
  for _, part in ipairs { "weight", "bias" } do
    named[theirs .. "." .. part] = ours .. "." .. part
  end
end

-- The smallest error that counts as one, and the largest that does not.
local SMALL, LARGE = 1e-5, 1e-3

-- Checks that a case passes, and that it fails when one of its datasets is changed.
local function check(a, datasets, spoilt)
  local count = 0
  for name, e in pairs(verify(a, datasets)) do
    local fine = type(e) == "number" and e < SMALL
    t.ok(fine, ("%s: %s"):format(name, type(e) == "table" and e[1] or e))
    count = count + 1
  end
  t.ok(count > 4, count)
  for _, wrong in ipairs(spoilt) do
    local list = {}
    for i, entry in ipairs(datasets) do
      list[i] = entry[1] == wrong[1] and { entry[1], core.affine(entry[2], 1, 0.1) } or entry
    end
    t.ok(verify(a, list)[wrong[2]] > LARGE, wrong[1])
  end
end

t.test("image_model", function()
  tl.seed(1)
  local a = { kind = "image_model", b = 2, channels = 2, classes = 3, dim = 4, expand = 2,
    gamma = 0.9, glu_dim = 5, height = 4, width = 6, patch = 2, layers = 1, rpe_dim = 3,
    rpe_layers = 1, layout = "prenorm", norm = "simplermsnorm" }
  local model = tl.models.tnn_image { channels = 2, classes = 3, dim = 4, expand = 2, decay = 0.9,
    glu_dim = 5, grid = { 2, 3 }, patch = 2, layers = 1, rpe_dim = 3, rpe_layers = 1 }
  local x = tl.stream_of "test":normal(core.zeros(2, 2, 4, 6), 0, 1):require_grad()
  local labels = core.ids { 2, 0 }
  local logits = model(x)
  local loss = core.cross_entropy(logits, labels)
  loss:backward()
  local named = {}
  expand(named, "to_patch_embedding.1", "embed")
  expand(named, "head.1", "head")
  for theirs, ours in pairs { u_proj = "u", v_proj = "v", o = "o" } do
    expand(named, "layers.0.token_mixer." .. theirs, "layers.1.token." .. ours)
  end
  for i = 1, 3 do
    expand(named, "layers.0.feature_mixer.l" .. i, "layers.1.feature.l" .. i)
  end
  for theirs, axis in pairs { toep1 = "along_width", toep2 = "along_height" } do
    local inside, place = "layers.0.token_mixer." .. theirs .. ".", "layers.1.token.tno." .. axis
    named[inside .. "gamma"] = place .. ".decay.gamma"
    expand(named, inside .. "rpe.pos_proj", place .. ".encoder.input")
    expand(named, inside .. "rpe.layers.0.2", place .. ".encoder.layers.1.linear")
    expand(named, inside .. "rpe.out.2", place .. ".encoder.output.linear")
  end
  local datasets = datasets_of(model, named)
  for name, tensor in pairs { x = x:clone(), dx = x:grad(), labels = labels,
    logits = logits:clone(), loss = loss:clone() } do
    datasets[#datasets + 1] = { name, tensor }
  end
  check(a, datasets, { { "logits", "logits" }, { "dx", "dx" }, { "loss", "loss" },
    { "param/layers.0.token_mixer.toep1.rpe.out.2.bias", "logits" },
    { "grad/layers.0.token_mixer.toep2.rpe.pos_proj.weight",
      "grad layers.0.token_mixer.toep2.rpe.pos_proj.weight" } })
end)

t.test("lra_model: pairs, with the statistics of batch norms", function()
  tl.seed(2)
  local a = { kind = "lra_model", arch = "tno", layout = "A", norm = "batch", gamma = 0.6, n = 5,
    decoder = "retrieval", classes = 2, dim = 4, expand = 1, glu_dim = 5, layers = 1, rpe_dim = 3,
    max_lag = 4, vocab = 7 }
  local model = tl.models.tnn_classifier { vocab = 7, classes = 2, pair = true, dim = 4, expand = 1,
    glu_dim = 5, layers = 1, rpe_dim = 3, max_lag = 4, decay = 0.6 }
  local ids = core.ids { { 1, 2, 3, 4, 0 }, { 6, 5, 4, 0, 0 }, { 1, 1, 1, 2, 2 },
    { 3, 0, 0, 0, 0 } }
  local lengths, labels = core.ids { 4, 3, 5, 1 }, core.ids { 1, 0 }
  local logits = model(ids, lengths)
  local loss = core.cross_entropy(logits, labels)
  loss:backward()
  local named = {}
  named["encoder.0.weight"] = "embed.weight"
  local token, feature = "model.layers.0.", "model.layers.1."
  expand(named, token .. "norm.norm", "layers.1.token_norm")
  expand(named, feature .. "norm.norm", "layers.1.feature_norm")
  expand(named, "model.norm.norm", "final_norm")
  for theirs, ours in pairs { u_proj = "u", v_proj = "v", o = "o" } do
    expand(named, token .. "layer." .. theirs, "layers.1.token." .. ours)
  end
  for i = 1, 3 do expand(named, feature .. "layer.l" .. i, "layers.1.feature.l" .. i) end
  named[token .. "layer.toep.gamma"] = "layers.1.token.tno.decay.gamma"
  for theirs, ours in pairs { pos_proj = "input", ["pos1.1"] = "layers.1.linear",
    ["pos2.1"] = "layers.2.linear", ["pos3.0"] = "output.norm", ["pos3.2"] = "output.linear" } do
    expand(named, token .. "layer.toep.dpb." .. theirs, "layers.1.token.tno.encoder." .. ours)
  end
  expand(named, "decoder.retrieval.classifier.0", "inner")
  expand(named, "decoder.retrieval.classifier.2", "head")
  local datasets = datasets_of(model, named)
  for theirs, norm in pairs { [token] = model.layers[1].token_norm,
    [feature] = model.layers[1].feature_norm, ["model."] = model.final_norm } do
    for _, name in ipairs { "running_mean", "running_var" } do
      datasets[#datasets + 1] = { "buffer/" .. theirs .. "norm.norm." .. name, norm[name]:clone() }
    end
  end
  local eval = core.no_grad(model:eval().forward, model, ids, lengths)
  local hidden = core.no_grad(model:train().hidden, model, ids)
  for name, tensor in pairs { ids = ids, lengths = lengths, labels = labels, hidden = hidden,
    eval_logits = eval, logits = logits:clone(), loss = loss:clone() } do
    datasets[#datasets + 1] = { name, tensor }
  end
  check(a, datasets, { { "logits", "logits" }, { "eval_logits", "eval_logits" },
    { "hidden", "hidden" }, { "buffer/model.norm.norm.running_var", "statistics(6)" },
    { "param/decoder.retrieval.classifier.0.bias", "logits" },
    { "grad/model.layers.0.layer.toep.dpb.pos3.0.bias",
      "grad model.layers.0.layer.toep.dpb.pos3.0.bias" } })
end)

t.test("schedule: the cosine continues after its end, one_cycle drives beta1", function()
  local rates, both = {}, { lr = {}, beta1 = {} }
  for s = 0, 9 do
    rates[s + 1] = s < 2 and s / 2 or (1 + math.cos(math.pi * (s - 2) / 4)) / 2
    local up = s <= 1 and s or nil -- 2 updates of warm-up of 6 in all
    local down = math.min((s - 1) / 4, 1)
    both.lr[s + 1] = up and 0.04 + 0.96 * up or 1 - down * (1 - 4e-6)
    both.beta1[s + 1] = up and 0.95 - 0.1 * up or 0.85 + 0.1 * down
  end
  local cosine = { kind = "schedule", schedule = "cosine_warmup", lr_max = 1.0, warmup = 2,
    total = 6, steps = 10 }
  t.ok(verify(cosine, { { "lr", core.tensor(rates) } }).lr < SMALL)
  local cycle = { kind = "schedule", schedule = "one_cycle", lr_max = 1.0, warmup = 2, total = 6,
    steps = 10 }
  local errors = verify(cycle, { { "lr", core.tensor(both.lr) },
    { "beta1", core.tensor(both.beta1) } })
  t.ok(errors.lr < SMALL and errors.beta1 < SMALL, errors.lr)
  rates[8] = rates[8] + 0.01
  t.ok(verify(cosine, { { "lr", core.tensor(rates) } }).lr > LARGE)
end)

t.done()
