-- test_documents.lua: documents in one row of a batch have the results and the gradients that each
-- has alone, for every mixer; bad lengths are refused.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"
local sequence = require "toeplab.nn.sequence"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local D, N = 8, 20

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

local function largest(x) return core.abs(x):amax():item() end

-- Options with which N positions are more than one group, block or chunk.
local small = {
  afno = { blocks = 2 }, bigbird = { block = 2, random_blocks = 1 }, dss = { state = 4 },
  flash = { chunk = 4 }, gss = { state = 4, inner = 6 }, hgrn2 = { head_dim = 4 },
  informer = { features = 4 }, linformer = { rank = 3 }, longconv = { dropout = 0 },
  ls_bidirectional = { landmarks = 3, window = 4 }, mamba = { state = 3 },
  nystrom = { landmarks = 4 }, performer = { features = 5 }, reformer = { chunk = 4 },
  s4 = { state = 4 }, s4d = { state = 4 }, sgconv = { size = 4 }, skyformer = { features = 6 },
  ssd = { state = 3, head_dim = 4 }, stu = { filters = 4 },
  transformer_ls = { window = 4, chunk = 4, rank = 2 },
}

-- The padding and the lengths of the documents of each row, by name. N is 20.
local layouts = {
  { "documents of several lengths, one of them of length 1", { { 7, 1, 12 }, { 3, 17 } } },
  { "a document that fills its row", { { N }, { 9, 11 } } },
  { "rows of one document", { { N }, { N } } },
  { "padding at the beginning and at the end", { { 4, 6, before = 10 }, { 1, 13, after = 6 } } },
  { "padding around, and a row of padding", { { 11, before = 3, after = 6 }, { before = N } } },
  { "documents of length 1", { { 1, 1, 1, after = 17 }, { 5, 5, 10 } } },
}

-- Calls fn with the random choices that every call begins with.
local function again(fn, ...)
  tl.seed(3)
  return fn(...)
end

-- Returns the results of the documents one by one, [b,n,d], and 0 at padding.
local function alone(module, x, lengths)
  local rows = {}
  for i, row in ipairs(lengths) do
    local parts, first = {}, (row.before or 0) + 1
    if row.before and row.before > 0 then parts[1] = core.zeros(1, row.before, D) end
    for _, length in ipairs(row) do
      parts[#parts + 1] = again(module, x:narrow(1, i, 1):narrow(2, first, length))
      first = first + length
    end
    if first <= N then parts[#parts + 1] = core.zeros(1, N - first + 1, D) end
    rows[i] = core.concat(parts, 2)
  end
  return core.concat(rows, 1)
end

-- Returns {y, gradient of x, gradients of the parameters...} of fn(x).
local function results(module, x, fn)
  local list, weights = {}, core.sin(core.range(1, 2 * N * D):reshape(2, N, D))
  for _, p in ipairs(module:parameters()) do p.tensor:set_grad(nil) end
  x:set_grad(nil)
  local y = fn()
  local loss = (y * weights):reshape(-1):sum()
  list[1] = core.no_grad(y.clone, y)
  loss:backward()
  list[2] = x:grad()
  for _, p in ipairs(module:parameters()) do
    list[#list + 1] = p.tensor:requires_grad() and p.tensor:grad() or nil
  end
  return list
end

-- Checks that documents in a row have the results of each alone.
local function check(who, module, lengths)
  local x = random(2, N, D):require_grad()
  local documents, mix = nn.documents(lengths, N), module
  if module.by_length then mix = function(...) return again(module, ...) end end -- it draws numbers
  if module.kind == "S4" then core.no_grad(module, x) end -- its weights are of the longest x so far
  local packed = results(module, x, function() return again(documents.apply, documents, mix, x) end)
  local separate = results(module, x, function() return alone(module, x, lengths) end)
  eq(#packed, #separate)
  for i, want in ipairs(separate) do
    local off = largest(packed[i] - want) / math.max(largest(want), 1e-2)
    ok(off < 2e-4, ("%s: result %d is off by %g"):format(who, i, off))
  end
end

-- Returns a mixer with random parameters.
local function mixer_of(name, causal, more)
  tl.seed(1)
  local fields, o = mixers.class(name).spec.fields, tl.overlay(small[name] or {}, more)
  for _, key in ipairs { "max_length", "length" } do
    if fields[key] then o[key] = N end
  end
  if fields.heads then o.heads = 2 end
  return mixers.make(name, D, { causal = causal }, o):eval()
end

for _, layout in ipairs(layouts) do
  local title, lengths = table.unpack(layout)
  test("every mixer: " .. title, function()
    local checked = 0
    for _, name in ipairs(mixers.names) do
      for _, causal in ipairs { true, false } do
        local made, mixer = pcall(mixer_of, name, causal)
        if made then
          check(("%s, causal = %s"):format(name, causal), mixer, lengths)
          checked = checked + 1
        end
      end
    end
    ok(checked > 60, checked)
  end)
end

local SEVERAL = { { 7, 1, 12 }, { 2, 6, 3, 4, after = 5 } }

test("mixers as published, and with other options", function()
  for _, name in ipairs(mixers.names) do
    local fields = mixers.class(name).spec.fields
    local variants = { fields.as_published and { as_published = true } or nil,
      fields.padding and { padding = "tokens" } or nil }
    for _, more in pairs(variants) do
      for _, causal in ipairs { true, false } do
        local made, mixer = pcall(mixer_of, name, causal, more)
        -- Performer draws features for each call, and Skyformer has one first iterate for a batch.
        if made and name ~= "performer" and name ~= "skyformer" and name ~= "nystrom" then
          check(("%s, causal = %s, %s"):format(name, causal, next(more)), mixer, SEVERAL)
        end
      end
    end
  end
  for _, more in ipairs { { positions = "rotary" }, { positions = "alibi" }, { positions = "t5" },
    { positions = "relative" }, { window = 3 }, { urpe = true } } do
    for _, causal in ipairs { true, false } do
      for _, name in ipairs { "attention", "gated_attention" } do
        check(name .. " " .. tostring(select(2, next(more))), mixer_of(name, causal, more), SEVERAL)
      end
    end
  end
  local tmm = { act = "sigmoid", normalize = true, expanded = true }
  check("tmm", mixer_of("tmm", true, tmm), SEVERAL)
end)

test("a TNO and a GTU of every encoder and backend", function()
  local lags = { "mlp", "lra", "table", "piecewise", "ssm", "conv" }
  local cases = { { encoder = "mlp", backend = "ski", decay = "none" },
    { encoder = "mlp", backend = "fd", decay = "none", rpe = { input = "cos" } },
    { encoder = "mlp", rpe = { input = "normalised" } }, { encoder = "mlp", max_lag = 4 },
    { encoder = "table", horizon = 0.1, decay = 0.7 }, { encoder = "mlp", nodes = 4 },
    -- act keeps the divisors of normalize from 0, beside which a gradient is the rounding.
    { encoder = "mlp", act = "sigmoid", act_first = true, normalize = true },
    { encoder = "piecewise", taps = 3 },
    { encoder = "mlp", rpe = { input = "sincos" }, backend = "fft" },
    { encoder = function(points, n)
      return core.affine(points, 1 / n, 0):reshape(-1, 1) * core.ones(1, D)
    end } }
  for _, encoder in ipairs(lags) do
    cases[#cases + 1] = { encoder = encoder }
    cases[#cases + 1] = { encoder = encoder, backend = "naive", decay = "learnable" }
  end
  for i, o in ipairs(cases) do
    for _, causal in ipairs { true, false } do
      tl.seed(1)
      local who = ("case %d, %s, causal = %s"):format(i, tostring(o.encoder), causal)
      check("TNO, " .. who, nn.TNO(D, tl.overlay(o, { causal = causal })), SEVERAL)
      check("GTU, " .. who, nn.GTU(D, { causal = causal, expand = 1, tno = o }), SEVERAL)
    end
  end
end)

-- Returns how often a module is called for documents of all lengths from 1 to N - 1.
local function calls_of(module)
  local lengths, count = {}, 0
  for i = 1, N // 2 do lengths[i] = { i, N - i } end
  local class = getmetatable(module)
  rawset(module, "forward", function(...)
    count = count + 1
    return class.forward(...)
  end)
  core.no_grad(function() nn.documents(lengths, N):apply(module, random(#lengths, N, D)) end)
  return count
end

test("documents of many lengths take four calls where padding changes nothing", function()
  for _, name in ipairs { "gtu", "conv", "s4", "gru", "mamba", "hyena", "attention", "tmm" } do
    eq(calls_of(mixer_of(name, true)), 4)
  end
  for _, name in ipairs { "gtu", "conv", "s4", "attention", "kernelized", "linformer" } do
    eq(calls_of(mixer_of(name, false)), 4)
  end
  eq(calls_of(nn.TNO(D, {})), 4)
  eq(calls_of(nn.TNO(D, { causal = false })), 4)
  for _, name in ipairs { "fnet", "reformer" } do eq(calls_of(mixer_of(name, false)), N - 1) end
  eq(calls_of(nn.TNO(D, { rpe = { input = "normalised" } })), N - 1)
end)

test("a mixer takes documents up to its greatest length in longer rows", function()
  local mixer = mixers.make("tmm", D, {}, { length = 9 })
  check("tmm", mixer, { { 9, 1, 8, after = 2 }, { 6, 5, 9 } })
  local positions = nn.Learned(D, 7)
  check("learned", positions, { { 7, 7, 6 }, { 1, 6, 6, 7 } })
  local x = random(1, N, D)
  raises(function() nn.documents({ { 8, 12 } }, N):apply(positions, x) end, "max_length = 7")
end)

test("positions begin again with every document", function()
  for _, positions in ipairs { nn.Sinusoidal(D), nn.Learned(D, N) } do
    local y = nn.documents({ { 5, 15 } }, N):apply(positions, core.zeros(1, N, D))
    eq(y:narrow(2, 6, 5), y:narrow(2, 1, 5))
  end
end)

test("a language model reads each document alone", function()
  for _, more in ipairs { {}, { mixer = { "attention", "gtu", "gla" }, positions = "learned" },
    { layout = "B", positions = "sinusoidal" }, { causal = false } } do
    tl.seed(2)
    local model = tl.models.tnn_lm(11, tl.overlay({ layers = 2, dim = D, rpe_dim = 4 }, more))
    model:eval()
    local ids = core.ids { { 1, 2, 3, 4, 5, 6, 7, 8 }, { 6, 7, 8, 9, 1, 2, 3, 0 } }
    local y = core.no_grad(model, ids, { { 3, 5 }, { 4, 3, after = 1 } })
    local function alone_of(row, first, n)
      return core.no_grad(model, ids:narrow(1, row, 1):narrow(2, first, n))
    end
    eq(y:narrow(1, 1, 1):narrow(2, 4, 5), alone_of(1, 4, 5), 1e-5)
    eq(y:narrow(1, 2, 1):narrow(2, 5, 3), alone_of(2, 5, 3), 1e-5)
    ok(largest(core.no_grad(model, ids):narrow(2, 4, 5) - y:narrow(2, 4, 5)) > 1e-3)
  end
end)

test("bad documents are refused", function()
  for message, lengths in pairs {
    ["row 1 has 7 positions in 2 documents and padding, not n = 8"] = { { 3, 4 } },
    ["row 2 has 9 positions"] = { { 8 }, { 4, 4, after = 1 } },
    ["row 1 has the length 0, must be an integer of at least 1"] = { { 8, 0 } },
    ["row 1 has the length 2.5"] = { { 2.5, 5.5 } },
    ["row 1 has before = %-1, must be an integer of at least 0"] = { { 9, before = -1 } },
    ["row 1 has the key 'befor'; did you mean 'before'?"] = { { 6, befor = 2 } },
    ["row 1 is a number, not a list of lengths"] = { 3, 5 },
    ["a list of lengths for each row"] = {},
    ["the batch has no documents"] = { { after = 8 } },
  } do
    raises(nn.documents, message, lengths, 8)
  end
  local documents = nn.documents({ { 3, 5 } }, 8)
  raises(documents.apply, "the documents are of %[1,8,d%]", documents, nn.TNO(D), random(2, 8, D))
  raises(documents.apply, "of %[1,8,d%]", documents, nn.TNO(D), random(1, 7, D))
  local block = nn.Block(D, nn.TNO(D))
  raises(block, "a mask or documents", random(1, 8, D), core.ones(1, 8), nil, documents)
  raises(sequence.with, "leave sequence_ranks out", {}, function()
    documents:apply(nn.TNO(D), random(1, 8, D))
  end)
end)

t.done()
