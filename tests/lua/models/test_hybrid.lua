-- test_hybrid.lua: models whose blocks have different token mixers, and attention within a window.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local experiment = require "toeplab.trials.experiment"
local json = require "toeplab.base.json"
local plan = require "toeplab.trials.plan"
local recurrent = require "toeplab.models.recurrent"
local saved_model = require "toeplab.models.files.saved_model"
local sizes = require "toeplab.models.sizes"

local function model_of(more)
  tl.seed(3)
  return tl.models.tnn_lm(tl.overlay({ vocab = 11, layers = 5, dim = 12, rpe_dim = 6,
    rpe_layers = 1 }, more)):eval()
end

local HYBRID = { mixer = { "gtu", "attention", "mamba" },
  mixer_options = { attention = { window = 3, heads = 2 }, mamba = { state = 4 } } }

local function ids_of(n)
  local row = {}
  for k = 1, n do row[k] = (k * k * 7) % 11 end
  return tl.ids { row }
end

t.test("blocks take the mixers of a list in turn, each with its own options", function()
  local model, kinds = model_of(HYBRID), {}
  for i, layer in model.layers:each() do kinds[i] = layer.token.kind end
  t.eq(kinds, { "GTU", "Attention", "Mamba", "GTU", "Attention" })
  local attention, mamba = model.layers[2].token, model.layers[3].token
  t.eq({ attention.opt.window, attention.opt.heads, mamba.opt.state }, { 3, 2, 4 })
  t.eq(sizes.parameters(model.opt), (model:count()) + 0.0)
  local one = tl.models.estimate(model_of { mixer = "attention" }, 64, 2).activation_bytes
  local two = tl.models.estimate(model_of { mixer = { "attention" } }, 64, 2).activation_bytes
  t.eq(one, two)
end)

t.test("a list of one mixer is that mixer", function()
  local ids = ids_of(9)
  t.eq(model_of { mixer = { "gtu" } }(ids), model_of { mixer = "gtu" }(ids))
  local function plain(dim) return tl.nn.Linear(dim, dim) end
  t.eq(model_of { mixer = { plain } }(ids), model_of { mixer = plain }(ids))
end)

t.test("a hybrid is causal, learns, runs token by token and is stored", function()
  local model, ids = model_of(HYBRID), ids_of(20)
  local want = tl.no_grad(model, ids)
  t.eq(tl.no_grad(model, ids:narrow(2, 1, 13)), want:narrow(2, 1, 13), 1e-5)
  local session, parts = recurrent.new(model, { method = "ring", lags = 20 }), {}
  for i = 1, 20 do parts[i] = tl.no_grad(session.forward, session, ids:narrow(2, i, 1)) end
  t.eq(tl.concat(parts, 2), want, 2e-5)
  model:loss(ids, ids):backward()
  for _, p in ipairs(model:parameters()) do
    t.ok(p.tensor:grad() ~= nil or not p.tensor:requires_grad(), p.name)
  end
  local about = json.decode(saved_model.texts(model).model)
  local again = saved_model.build(about, "test"):load(model:state()):eval()
  t.eq(tl.no_grad(again, ids), want)
  local custom = model_of { mixer = { "gtu", function(dim) return tl.nn.Linear(dim, dim) end } }
  t.eq(json.decode(saved_model.texts(custom).model).programmed, "mixer")
end)

t.test("refuses invalid lists of mixers", function()
  for _, case in ipairs {
    { { mixer = {} }, "option 'mixer' is a list without a mixer" },
    { { mixer = tl.nn.Linear }, "option 'mixer' is a class or a module: give function" },
    { { mixer = tl.nn.Linear(4, 4) }, "option 'mixer' is a class or a module: give function" },
    { { mixer = function() end }, "option 'mixer': the function returned no module" },
    { { mixer = { "gtu", nil, "conv" } }, "option 'mixer' at #2 must be a name or a function" },
    { { mixer = { "gtu", x = "conv" } }, "option 'mixer' is a list, but has a key 'x'" },
    { { mixer = { "gtu", "conv" }, mixer_options = { conv = 3 } },
      "mixer_options of 'conv' must be a table, got 3" },
    { { mixer = { "gtu", "atention" } }, "mixer' at #2: .*'atention'.*did you mean 'attention'" },
    { { mixer = { "gtu", 3 } }, "mixer.*#2" },
    { { mixer = { "gtu", "conv" }, mixer_options = { attention = { window = 2 } } },
      "mixer_options of a list must be tables by names: .*'attention'" },
    { { mixer = { "gtu", "conv" }, mixer_options = { taps = 2 } },
      "mixer_options of a list must be tables by names: .*'taps'" },
    { { mixer = { "gtu", "conv" }, positions = "alibi" }, "biases attention, but this mixer" },
  } do
    t.raises(model_of, case[2], case[1])
  end
  t.eq(model_of({ mixer = { "gtu", "attention" }, positions = "alibi" }).layers[2].token.opt
    .positions, "alibi")
end)

t.test("experiments sweep over hybrids, and `model` takes one", function()
  t.in_folder(function(folder)
    t.write(folder .. "/h.lua", [[local tl = require "toeplab"
      return tl.experiment "h" { fixed = { layers = 4, dim = 8 },
        grid = { mixer = { "gtu", { "gtu", "attention" } } },
        trial = function(t, c)
          t:log { parameters = tl.models.tnn_lm(5, c):count() }
        end }]])
    local labels = {}
    for i, trial in ipairs(plan.trials(experiment.load(folder .. "/h.lua"), {})) do
      labels[i] = trial.label
    end
    t.eq(#labels, 2)
    local command = ("'%s' "):format(core.sys.executable())
    local said = t.shell(("%s run '%s/h.lua' -C '%s/r' 2>&1"):format(command, folder, folder))
    t.holds(said, "2 done", "mixer=gtu,attention")
    t.holds(t.shell(command .. [[model tnn_lm vocab=5 layers=2 dim=8 'mixer={"gtu","attention"}']]),
      "token: GTU", "token: Attention")
  end)
end)

t.test("attention within a window equals a manual mask", function()
  for _, case in ipairs { { true, 1 }, { true, 4 }, { true, 30 }, { false, 1 }, { false, 4 } } do
    local causal, window = case[1], case[2]
    local o = { heads = 2, causal = causal, positions = "alibi" }
    tl.seed(5)
    local full = tl.nn.Attention(8, o)
    local near = tl.nn.Attention(8, tl.overlay(o, { window = window })):load(full:state())
    local x, n = tl.stream_of("x"):normal(core.zeros(2, 11, 8), 0, 1), 11
    -- Each token alone: the rows around it are all that it may see.
    for i = 1, n do
      local first = math.max(1, i - window + 1)
      local last = causal and i or math.min(n, i + window - 1)
      local want = full(x:narrow(2, first, last - first + 1)):narrow(2, i - first + 1, 1)
      t.eq(near(x):narrow(2, i, 1), want, 1e-5)
    end
  end
  t.raises(tl.nn.Attention, "window", 8, { window = 0 })
end)
t.done()
