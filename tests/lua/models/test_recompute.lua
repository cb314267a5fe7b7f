-- test_recompute.lua -- modules computed again in the backward pass: the same numbers, less memory.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local D, N = 8, 20

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

-- The bits of a tensor, as a table of numbers; 0 and -0, and all NaN, are alike.
local function bits(x) return core.no_grad(x.clone, x):totable() end

-- Returns what fn(...), which returns a loss, leaves behind: the loss, all gradients of model, its
-- buffers and the positions of the random streams.
local function traces(model, fn, ...)
  for _, p in ipairs(model:parameters()) do p.tensor:set_grad(nil) end
  local loss = fn(...)
  local list = { loss = bits(loss), grads = {}, state = {}, streams = {} }
  loss:backward()
  for _, p in ipairs(model:parameters()) do
    list.grads[p.name] = p.tensor:requires_grad() and p.tensor:grad() and bits(p.tensor:grad())
      or "none"
  end
  for name, tensor in pairs(model:state()) do list.state[name] = bits(tensor) end
  for _, s in ipairs(tl.streams()) do list.streams[s.name] = { s.stream:state() } end
  return list
end

-- Returns the traces of two passes of a model that is made anew, with and without recompute.
-- make(again) returns the model, loss(model) its loss.
local function both(make, loss)
  local found = {}
  for i, again in ipairs { false, true } do
    tl.seed(5)
    local model = make(again)
    found[i] = { traces(model, loss, model), traces(model, loss, model) }
    ok(core.tape_length() == 0 and core.recording())
  end
  return found
end

-- Checks that both are equal, and that a gradient is not 0.
local function same(who, make, loss)
  local found = both(make, loss)
  local fine, why = pcall(eq, found[1], found[2])
  ok(fine, ("%s: %s"):format(who, why))
  ok(next(found[1][1].grads), who)
end

-- Options with which N positions are more than one group, block or chunk.
local small = {
  afno = { blocks = 2 }, bigbird = { block = 2, random_blocks = 1 }, dss = { state = 4 },
  flash = { chunk = 4 }, gss = { state = 4, inner = 6 }, hgrn2 = { head_dim = 4 },
  informer = { features = 4 }, linformer = { rank = 3 }, ls_bidirectional = { landmarks = 3,
    window = 4 }, mamba = { state = 3 }, nystrom = { landmarks = 4 }, performer = { features = 5 },
  reformer = { chunk = 4 }, s4 = { state = 4 }, s4d = { state = 4 }, sgconv = { size = 4 },
  skyformer = { features = 6 }, ssd = { state = 3, head_dim = 4 }, stu = { filters = 4 },
  transformer_ls = { window = 4, chunk = 4, rank = 2 },
}

-- Returns a stack of two blocks with a named mixer, called with recompute or directly.
local function stack_of(name, causal, more)
  local fields, o = mixers.class(name).spec.fields, tl.overlay(small[name] or {}, more)
  for _, key in ipairs { "max_length", "length" } do
    if fields[key] then o[key] = N end
  end
  if fields.heads then o.heads = 2 end
  local layers = nn.ModuleList()
  for i = 1, 2 do
    layers:append(nn.Block(D, mixers.make(name, D, { causal = causal }, o), nn.GLU(D),
      { dropout = 0.2, norm = i == 1 and "batchnorm" or "layernorm", drop_path = 0.3 }))
  end
  return layers
end

local function through(layers, again, x, ...)
  for _, layer in layers:each() do
    if again then x = tl.recompute(layer, x, ...) else x = layer(x, ...) end
  end
  return x
end

test("every mixer: results, gradients, statistics and streams are equal", function()
  local weights, checked = core.sin(core.range(1, 2 * N * D):reshape(2, N, D)), 0
  for _, name in ipairs(mixers.names) do
    for _, causal in ipairs { true, false } do
      if pcall(stack_of, name, causal) then
        local kept, mask = nil, nil
        local takes_mask = mixers.class(name).takes_mask
        if takes_mask then
          mask = core.where(core.lt(core.range(0, N - 1):reshape(1, N), core.tensor { 15, 20 }
            :reshape(2, 1)), core.ones(1), core.zeros(1))
        end
        same(("%s, causal = %s"):format(name, causal), function(again)
          local model = stack_of(name, causal)
          rawset(model, "again", again)
          return model
        end, function(model)
          local x = core.sin(core.range(1, 2 * N * D):reshape(2, N, D))
          return (through(model, model.again, x, mask, kept) * weights):reshape(-1):sum()
        end)
        checked = checked + 1
      end
    end
  end
  ok(checked > 60, checked)
end)

local ids = core.ids { { 1, 2, 3, 4, 5, 6, 7, 8, 9 }, { 9, 7, 5, 3, 1, 2, 4, 6, 8 } }

-- Checks a language model of these options, with micro batches and one update by Adam.
local function check_model(who, options, loss)
  same(who, function(again)
    return tl.models.tnn_lm(tl.overlay({ vocab = 10, layers = 3, dim = D, rpe_dim = 4,
      rpe_layers = 1, recompute = again, dropout = 0.1 }, options))
  end, loss or function(model) return model:loss(ids:narrow(2, 1, 8), ids:narrow(2, 2, 8)) end)
end

test("language models: layouts, learnt decay, shared encoders, packed documents", function()
  for _, layout in ipairs { "A", "B", "C-fairseq", "C-tnn" } do
    check_model(layout, { layout = layout, norm = "batchnorm" })
  end
  check_model("learnable", { decay = "learnable", coef_taps = 2, normalize = true })
  check_model("table", { encoder = "table", table_length = 8, decay = "none" })
  same("a shared encoder", function(again)
    local model = tl.models.tnn_lm { vocab = 10, layers = 3, dim = D, rpe_dim = 4, rpe_layers = 1,
      recompute = again }
    for i = 2, 3 do model.layers[i].token.tno.encoder = model.layers[1].token.tno.encoder end
    return model
  end, function(model) return model:loss(ids:narrow(2, 1, 8), ids:narrow(2, 2, 8)) end)
  check_model("mixers in turn", { mixer = { "gla", "attention", "mamba" }, heads = 2 })
  check_model("documents", {}, function(model)
    return model:loss(ids:narrow(2, 1, 8), ids:narrow(2, 2, 8), nil, { { 3, 5 }, { 8 } })
  end)
end)

test("classifiers, masked models and images", function()
  local lengths = core.ids { 9, 6 }
  local made = {
    tnn_classifier = function(again, o) return tl.models.tnn_classifier(tl.overlay(o,
      { vocab = 10, classes = 3, padding = "masked", norm = "batchnorm", recompute = again })) end,
    attention_classifier = function(again) return tl.models.attention_classifier { vocab = 10,
      classes = 3, layers = 2, dim = D, hidden = 6, heads = 2, max_length = 9, mixer = "attention",
      dropout = 0.2, recompute = again } end,
    tnn_mlm_classifier = function(again, o) return tl.models.tnn_mlm_classifier(tl.overlay(o,
      { vocab = 10, classes = 3, recompute = again })) end,
  }
  for name, make in pairs(made) do
    same(name, function(again)
      return make(again, { layers = 2, dim = D, rpe_dim = 4, rpe_layers = 1, dropout = 0.2 })
    end, function(model)
      return core.square(model(ids, lengths)):sum()
    end)
  end
  same("tnn_image", function(again)
    return tl.models.tnn_image { classes = 3, patch = 2, grid = { 2, 3 }, channels = 1, layers = 2,
      dim = D, rpe_dim = 4, rpe_layers = 1, dropout = 0.2, recompute = again }
  end, function(model)
    return core.square(model(core.sin(core.range(1, 48)):reshape(2, 1, 4, 6))):sum()
  end)
end)

test("trainings of several updates, in micro batches, are equal", function()
  for _, options in ipairs { {}, { encoder = "table" }, { mixer = "hgrn2" } } do
    local found = {}
    for i, again in ipairs { false, true } do
      tl.seed(2)
      local model = tl.models.tnn_lm(tl.overlay({ vocab = 10, layers = 2, dim = D, rpe_dim = 4,
        rpe_layers = 1, dropout = 0.2, norm = "batchnorm", recompute = again }, options))
      local opt = tl.optim.adam(model, { lr = 1e-2 })
      local losses = {}
      for step = 1, 4 do
        losses[step] = tl.train.lm_step(model, opt, { ids:narrow(1, 1, 1), ids:narrow(1, 2, 1) })
      end
      found[i] = { losses = losses }
      for name, tensor in pairs(model:state()) do found[i][name] = bits(tensor) end
    end
    eq(found[1], found[2])
    ok(found[1].losses[4] < found[1].losses[1])
  end
end)

test("the peak memory hardly grows with the depth", function()
  local function peak(layers, again)
    tl.seed(1)
    local model = tl.models.tnn_lm { vocab = 10, layers = layers, dim = 16, rpe_dim = 4,
      rpe_layers = 1, recompute = again }
    local x = core.stream(1, "ids"):integers(10, 8, 257)
    local bytes
    for _ = 1, 2 do
      for _, p in ipairs(model:parameters()) do p.tensor:set_grad(nil) end
      collectgarbage()
      local before = core.memory().live
      core.memory_reset_peak()
      model:loss(x:narrow(2, 1, 256), x:narrow(2, 2, 256)):backward()
      bytes = core.memory().peak - before
    end
    local e = tl.models.estimate(model, 256, 8)
    local ratio = bytes / (e.activation_bytes + e.gradient_bytes)
    -- 4 MiB of garbage are not worth a collection
    ok(ratio > 0.5 and ratio < 2, ("%d layers, %s: %.2f of the estimate"):format(layers, again,
      ratio))
    return bytes
  end
  local plain, less = peak(12, false), peak(12, true)
  ok(less < 0.4 * plain, ("%d of %d bytes"):format(less, plain))
  local added = (less - peak(4, true)) / 8
  local stored = (plain - peak(4, false)) / 8
  ok(added < 0.25 * stored, ("%d of %d bytes per block"):format(added, stored))
end, "cpu")

test("nested, unrecorded, and around a module that trains no parameter", function()
  local Outer = nn.class("Outer", { again = "boolean" }, { "again" })
  function Outer:build()
    self.one, self.two = nn.Linear(D, D), nn.Linear(D, D)
    self.drop = nn.Dropout(0.5)
  end
  function Outer:forward(x)
    local function call(m, y) if self.opt.again then return tl.recompute(m, y) end return m(y) end
    return self.drop(call(self.two, core.gelu(call(self.one, x))))
  end
  local x = random(3, D)
  same("nested", function(again)
    local m = Outer(again)
    rawset(m, "outside", again)
    return m
  end, function(m)
    local y = m.outside and tl.recompute(m, x) or m(x)
    return core.square(y):sum()
  end)
  local m = nn.Linear(D, D)
  local y = core.no_grad(tl.recompute, m, x)
  ok(not y:requires_grad() and core.tape_length() == 0)
  eq(y, m(x))
  core.tape_clear()
  for _, p in ipairs(m:parameters()) do p.tensor:require_grad(false) end
  ok(not tl.recompute(m, x):requires_grad())
  local leaf = random(3, D):require_grad()
  core.square(tl.recompute(m, leaf)):sum():backward()
  local g = bits(leaf:grad())
  leaf:set_grad(nil)
  core.square(m(leaf)):sum():backward()
  eq(leaf:grad(), g)
end)

test("tl.grad computes the chosen gradients alone", function()
  for _, again in ipairs { false, true } do
    tl.seed(4)
    local one, two = nn.Linear(D, D), nn.Linear(D, D)
    local x = random(3, D):require_grad()
    local function loss()
      local y = core.gelu(one(x))
      y = again and tl.recompute(two, y) or two(y)
      return core.square(y):sum()
    end
    local list = tl.grad(loss(), { x, two.weight })
    for _, tensor in ipairs { one.weight, one.bias, two.weight, two.bias, x } do
      eq(tensor:grad(), nil)
    end
    eq(core.tape_length(), 0)
    loss():backward()
    eq(list, { bits(x:grad()), bits(two.weight:grad()) })
  end
end)

test("modules that return their argument, a parameter or a constant", function()
  local x, w = random(2, 3):require_grad(), nn.parameter(random(2, 3))
  local one = core.ones(2, 3)
  local drop = nn.Dropout(0.5):eval()
  for _, f in ipairs { function(y) return y end, function() return w end, drop } do
    local module = f == drop and drop or nn.Sequential(f)
    for _, tensor in ipairs { x, w } do tensor:set_grad(nil) end
    (tl.recompute(module, x) * 3 + x + w):sum():backward()
    local gx, gw = x:grad():totable(), w:grad():totable()
    for _, tensor in ipairs { x, w } do tensor:set_grad(nil) end
    (module(x) * 3 + x + w):sum():backward()
    eq({ gx, gw }, { x:grad():totable(), w:grad():totable() })
  end
  eq(tl.recompute(nn.Sequential(function() return one end), x), one)
end)

test("a change between training and evaluation before the backward pass is an error", function()
  local module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
  local loss = tl.recompute(module, random(2, 3)):sum()
  module:eval()
  raises(loss.backward, "changed between training and evaluation", loss)
end)

test("errors name the module, and leave nothing behind", function()
  local Faulty = nn.class("Faulty", {})
  function Faulty:build() self.inner, self.calls = nn.Linear(D, D), 0 end
  function Faulty:forward(x)
    rawset(self, "calls", self.calls + 1)
    if self.calls == self.fails then error("it is broken", 0) end
    return self.calls == self.empty and 1 or nn.Dropout(0.5)(self.inner(x))
  end
  local x = random(2, D)
  local first, second, empty = Faulty(), Faulty(), Faulty()
  rawset(first, "fails", 1)
  rawset(second, "fails", 2)
  rawset(empty, "empty", 1)
  raises(tl.recompute, "it is broken.*in Faulty", first, x)
  raises(tl.recompute, "recompute: Faulty returned a number, not a tensor", empty, x)
  raises(tl.recompute, "recompute: takes a module, got a function", function() end, x)
  local y = tl.recompute(second, x):sum()
  local stream = tl.stream_of "dropout"
  local position = { stream:state() }
  raises(y.backward, "it is broken.*in Faulty", y)
  eq({ core.tape_length(), core.recording() }, { 0, true })
  ok(rawequal(tl.stream_of "dropout", stream))
  eq({ stream:state() }, position)
  local third = Faulty()
  y = tl.recompute(third, x):sum()
  core.no_grad(third.inner.weight.fill, third.inner.weight, 0)
  raises(y.backward, "changed in place", y)
end)

t.done()
