-- test_recurrent.lua: models one position at a time: the same numbers and the same text as when
-- they see all of it, refusals, and converted files.
local t = require "harness"
local tl = require "toeplab"
local errors = require "toeplab.base.errors"
local checkpoint = require "toeplab.models.files.checkpoint"
local converted = require "toeplab.models.files.converted"
local mixers = require "toeplab.nn.mixers"
local nn = require "toeplab.nn"
local recurrent = require "toeplab.models.recurrent"

local function model_of(more)
  tl.seed(3)
  local o = { vocab = 11, layers = 2, dim = 12, rpe_dim = 6, rpe_layers = 1 }
  for name, value in pairs(more or {}) do o[name] = value end
  return tl.models.tnn_lm(o):eval()
end

local function ids_of(b, n)
  local rows = {}
  for i = 1, b do
    rows[i] = {}
    for k = 1, n do rows[i][k] = (i * 5 + k * k * 7) % 11 end
  end
  return tl.ids(rows)
end

-- The largest difference of what sessions say from what the model says of n positions at once.
local function difference(model, given, n, batch)
  given.batch = batch
  local ids = ids_of(batch or 1, n)
  return tl.no_grad(function()
    local want = model(ids)
    local session, first, off = recurrent.new(model, given), n // 2, 0
    local parts = { session:forward(ids:narrow(2, 1, first)) } -- some at once, the others singly
    for i = first + 1, n do parts[#parts + 1] = session:forward(ids:narrow(2, i, 1)) end
    off = tl.abs(tl.concat(parts, 2) - want):reshape(-1):amax():item()
    t.eq(session:reset():forward(ids:narrow(2, 1, 1)), parts[1]:narrow(2, 1, 1), 5e-6)
    return off
  end)
end

local kinds = { { decay = 0.99 }, { decay = "none" }, { decay = "learnable" },
  { decay = "alibi", heads = 4 }, { coef_act = "silu" }, { encoder = "table", table_length = 9 },
  { rpe_input = "normalised", decay = "none" }, { backend = "matrix" },
  { structure = "gtu", layout = "B" }, { mixer_norm = "layernorm", layout = "C-tnn" },
  { encoder = function(points) return tl.sin(points:reshape(-1, 1) + tl.range(1, 36)) end } }

t.test("a session agrees with the model, for every kind of coefficient", function()
  for i, kind in ipairs(kinds) do
    local model = model_of(kind)
    for _, how in ipairs { { method = "ring" }, { method = "etsc" },
      { method = "etsc", form = "published" }, { method = "relaxed" },
      { method = "relaxed", positions = 20 }, { method = "auto" } } do
      how.lags = 40
      local off = difference(model, how, 40, 1 + i % 2)
      t.ok(off < 2e-5, ("kind %d, %s: off by %g"):format(i, how.method, off))
    end
  end
end)

t.test("lags cut the kernel of each operator: ring and the exact form agree, not the published",
  function()
    local model, ids = model_of {}, ids_of(1, 100)
    local function states(how)
      how.lags = 20
      local session = recurrent.new(model, how)
      return session:hidden(ids)
    end
    local ring = states { method = "ring" }
    local function off(how) return tl.abs(states(how) - ring):reshape(-1):amax():item() end
    t.ok(off { method = "etsc" } < 2e-5)
    t.ok(off { method = "relaxed" } < 2e-5)
    t.ok(off { method = "etsc", form = "published" } > 1e-2)
    local whole = tl.no_grad(function() return model:hidden(ids) end)
    t.ok(tl.abs(whole - ring):reshape(-1):amax():item() > 1e-3, "20 lags are fewer than 100")
  end)

t.test("max_lag ends the kernel, and with it the state", function()
  local tno = nn.TNO(5, { max_lag = 7, rpe = { hidden = 4, layers = 1 } })
  local kernel, gamma = recurrent.kernel(tno, 50)
  t.eq(kernel:shape(), { 7, 5 })
  local x = tl.stream(1, "x"):normal(tl.zeros(2, 30, 5), 0, 1)
  local r = tl.recurrence(kernel, gamma, "exact", 2)
  t.eq(r:sizes().lags, 7)
  t.eq(r:step(x), tl.no_grad(tno, x), 1e-5)
end)

t.test("operators by frequency have their impulse response as kernel", function()
  local model = model_of { backend = "fd", decay = "none" }
  for _, how in ipairs { { method = "ring" }, { method = "etsc" }, { method = "relaxed" } } do
    how.lags = 30
    local off = difference(model, how, 30)
    t.ok(off < 5e-5, ("%s: off by %g"):format(how.method, off))
  end
end)

t.test("exact methods generate the same tokens, greedily and for a seed, by every backend",
  function()
    local vocab = tl.vocab_chars "abcdefghijk"
    for _, kind in ipairs { { backend = "rac" }, { backend = "fft", decay = "none" },
      { backend = "fd", decay = "none" }, { backend = "matrix", decay = "learnable" } } do
      local model, want = model_of(kind), {}
      for _, method in ipairs { "ring", "relaxed", "auto", "etsc" } do
        for _, temperature in ipairs { 0, 1 } do
          local got = model:generate(vocab, "abcdefghij", { method = method, tokens = 300,
            temperature = temperature, seed = 5 })
          want[temperature] = want[temperature] or got
          t.eq(#got, 310)
          t.ok(got == want[temperature], method .. " " .. kind.backend)
        end
      end
      t.ok(want[0] ~= want[1])
    end
  end)

t.test("a relaxed session: memory for the positions after the prompt, again after a reset",
  function()
    local model, ids = model_of { decay = "none" }, ids_of(1, 90)
    local want = tl.no_grad(model.hidden, model, ids)
    local session = recurrent.new(model, { method = "relaxed", lags = 90, positions = 30 })
    local before = session:sizes().kernels
    for _ = 1, 2 do
      t.eq(session:hidden(ids:narrow(2, 1, 60)), want:narrow(2, 1, 60), 1e-5)
      t.ok(session:sizes().kernels < before, "the kernel is no longer stored after the prompt")
      for i = 61, 90 do
        t.eq(session:hidden(ids:narrow(2, i, 1)), want:narrow(2, i, 1), 1e-5)
      end
      t.raises(session.hidden, "1 positions after 30 others.* made for 30", session,
        ids:narrow(2, 1, 1))
      session:reset()
    end
    session:close()
  end)

t.test("auto is a ring for a kernel of few lags, or else relaxed", function()
  local model = model_of {}
  for lags, kind in pairs { [32] = "ring", [33] = "relaxed" } do
    local session = recurrent.new(model, { method = "auto", lags = lags })
    for _, layer in ipairs(session.layers) do t.eq(layer.recurrence:sizes().kind, kind) end
  end
end)

t.test("refuses an operator that is not Toeplitz", function()
  local options = { inducing = 7 }
  local tno = nn.TNO(4, { backend = "ski", decay = "none", backend_options = options })
  t.raises(recurrent.kernel, "not a Toeplitz operator at 40 positions", tno, 40, "here")
  options.inducing = 40 -- a point at every position: it is one
  tno = nn.TNO(4, { backend = "ski", decay = "none", backend_options = options })
  local x = tl.stream(1, "x"):normal(tl.zeros(1, 40, 4), 0, 1)
  for _, kind in ipairs { "ring", "relaxed" } do
    local r = tl.recurrence(recurrent.kernel(tno, 40), nil, kind)
    t.eq(r:step(x), tl.no_grad(tno, x), 1e-4)
  end
end)

t.test("refuses models that cannot be stepped, with name and reason", function()
  local function refused(more, want)
    t.raises(recurrent.new, want, model_of(more), { lags = 8 })
  end
  refused({ structure = "mha+glu", causal = false }, "layers%.1%.token %(Attention%) is not causal")
  refused({ mixer = "cat" }, "layers%.1%.token %(CAT%) mixes positions, and cannot")
  refused({ causal = false }, "tno %(TNO%) is not causal")
  for name, want in pairs { classifier = "classifies a whole", mlm = "is not causal" } do
    local model = tl.models["tnn_" .. name] { vocab = 5, classes = name ~= "mlm" and 3 or nil,
      layers = 1, dim = 4, rpe_dim = 4 }
    t.raises(recurrent.operators, "the model %(%w+%) " .. want, model)
  end
  refused({ mixer = "performer", heads = 2 }, "%(Performer%) mixes positions, and cannot")
  refused({ mixer = function(d) return nn.Conv(d, { causal = false }) end },
    "%(Conv%) is not causal")
  local Own = nn.class("Own", {}, {})
  function Own.forward(_, x) return x end
  local function own() return Own() end
  refused({ mixer = own }, "%(Own%) may mix positions; .* set Own%.stepwise = true")
  Own.stepwise = true
  t.ok(difference(model_of { mixer = own }, { lags = 8 }, 8) < 1e-5)
  local function mixer(f) return function(d) return nn.Sequential { nn.Linear(d, d), f } end end
  refused({ mixer = mixer(function(x) return x:cumsum(2) end) }, "a function as step 2")
  t.ok(difference(model_of { mixer = mixer(tl.silu) }, { lags = 8 }, 8) < 1e-5)
  t.raises(recurrent.new, "option 'lags'", model_of(), {})
end)

t.test("each mixer is stepped to the same numbers, or refused with its reason", function()
  local small = { afno = { blocks = 2 }, dss = { state = 8 }, flash = { chunk = 16 },
    gss = { state = 8, inner = 6 }, hgrn2 = { head_dim = 4 }, mamba = { state = 3 },
    s4 = { state = 8 }, s4d = { state = 8 }, sgconv = { size = 4 },
    ssd = { state = 3, head_dim = 6 }, stu = { filters = 4 } }
  local known = { "attention", "conv", "delta_net", "dss", "gated_attention",
    "gated_delta_net", "gla", "gru", "gss", "gtu", "hgrn", "hgrn2", "hyena", "linear_attention",
    "longconv", "lstm", "mamba", "retention", "s4", "s4d", "sgconv", "ssd", "stu" }
  local stepped = {}
  for _, name in ipairs(mixers.names) do
    local fields = mixers.class(name).spec.fields
    local causal, given = fields.causal.default, small[name] or {}
    for _, key in ipairs { "max_length", "length" } do
      if fields[key] then given[key] = 20 end
    end
    local model = model_of { mixer = name, mixer_options = given, causal = causal, heads = 2 }
    local ok, problem = pcall(recurrent.operators, model)
    if ok then
      stepped[#stepped + 1] = name
      for _, method in ipairs { "ring", "etsc" } do
        local off = difference(model, { method = method, lags = 20 }, 20, 2)
        t.ok(off < 5e-5, ("%s, %s: off by %g"):format(name, method, off))
      end
    else
      local text = errors.text(problem)
      local want = not causal and "is not causal"
        or ("the mixers %s can"):format(table.concat(known, ", "))
      t.ok(text:find("layers%.1%.token %(%w+%) .*" .. want), name .. ": " .. text)
      t.ok(not text:find "stepwise", name .. ": " .. text)
    end
  end
  t.eq(stepped, known)
end)

t.test("attention keeps keys and values, and position encodings continue", function()
  for _, positions in ipairs { "none", "sinusoidal", "learned", "rotary", "alibi", "relative",
    "t5" } do
    for _, mixer in ipairs { "attention", "gated_attention" } do
      local model = model_of { mixer = mixer, heads = 2, mixer_options = { positions = positions } }
      t.ok(difference(model, { lags = 1 }, 12, 2) < 1e-5, mixer .. positions)
      local session, ids = recurrent.new(model, { lags = 1 }), ids_of(1, 12)
      session:hidden(ids:narrow(2, 1, 5))
      local some = session:hidden(ids:narrow(2, 6, 4)) -- several after several
      t.eq(session:hidden(ids:narrow(2, 10, 3)),
        tl.no_grad(model.hidden, model, ids):narrow(2, 10, 3), 1e-5)
      t.eq(some, tl.no_grad(model.hidden, model, ids):narrow(2, 6, 4), 1e-5)
      local width = mixer == "attention" and 24 or 12 + 2 * 12
      t.eq(session:sizes().state, 2 * 12 * width * 4) -- of 2 layers and 12 positions
    end
  end
  for _, positions in ipairs { "sinusoidal", "sinusoidal-fairseq", "learned", "learned-fairseq" } do
    local model = model_of { positions = positions, max_length = 12 }
    t.ok(difference(model, { lags = 12 }, 12, 2) < 2e-5, positions)
  end
  local model = model_of { structure = "mha+glu", positions = "learned", max_length = 4 }
  local session = recurrent.new(model, { lags = 1 })
  session:hidden(ids_of(1, 4))
  t.raises(session.hidden, "max_length = 4", session, ids_of(1, 1))
end)

t.test("carried states: their size, one for each place and sequence, and they end the session",
  function()
    local model = model_of { mixer = "gla", heads = 2 } -- states of 2 heads of 3 x 6
    local session = recurrent.new(model, { lags = 1 })
    t.eq(session:sizes(), { state = 0, kernels = 0 })
    local first = session:hidden(ids_of(1, 3))
    t.eq(session:sizes().state, 2 * 2 * 3 * 6 * 4)
    t.raises(session.hidden, "2 sequences after 1: call session:reset", session, ids_of(2, 1))
    t.eq(rawget(model.layers[1].token, "carry"), nil)
    t.eq(session:reset():hidden(ids_of(1, 3)), first)
    t.eq(session:reset():hidden(ids_of(2, 3)):narrow(1, 1, 1), first, 1e-6)
    rawset(model.layers[2], "token", model.layers[1].token)
    t.raises(recurrent.new, "layers%.2%.token %(GLA%) is used twice", model, { lags = 1 })
  end)

t.test("a user's layer continues from its state", function()
  local Sum = nn.class("Sum", {}, {})
  function Sum:forward(x)
    local carried, list = self.carry or {}, {}
    for i = 1, x:dim(2) do
      local new = x:narrow(2, i, 1)
      carried.sum = carried.sum and carried.sum + new or new
      list[i] = carried.sum
    end
    return tl.concat(list, 2)
  end
  Sum.carries = true
  local model = model_of { mixer = function() return Sum() end }
  t.ok(difference(model, { lags = 8 }, 8) < 1e-5)
  local session = recurrent.new(model, { lags = 8 })
  session:hidden(ids_of(1, 3))
  t.eq(session:sizes().state, 2 * 12 * 4) -- two layers of 12 channels
  local Both = nn.class("Both", { causal = false }, {})
  Both.carries = true
  model = model_of { mixer = function() return Both() end }
  t.raises(recurrent.new, "%(Both%) is not causal", model, { lags = 8 })
end)

t.test("a session guards its state", function()
  local model = model_of()
  local session = recurrent.new(model, { lags = 8 })
  model:train()
  t.raises(session.hidden, "call model:eval", session, ids_of(1, 1))
  model:eval()
  t.raises(session.hidden, "x is %[2,1,36%], not %[1,36%] or %[1,n,36%]", session, ids_of(2, 1))
  t.eq(rawget(model.layers[1].token.tno, "stepper"), nil)
  rawset(model.layers[2], "token", model.layers[1].token) -- one operator, two places
  session = recurrent.new(model, { lags = 8 })
  t.raises(session.hidden, "used twice", session, ids_of(1, 1))
end)

t.test("greedy decoding gives the same tokens from all methods, beyond the training length",
  function()
    local text = ("the old man of the sea told the young man a tale of the sea .\n"):rep(20)
    local vocab = tl.vocab_chars(text)
    local ids = vocab:encode(text)
    for _, more in ipairs { { decay = 0.99 }, { decay = "none" },
      { mixer = "mamba", mixer_options = { state = 4 } } } do
      more.vocab = vocab:size()
      local model = model_of(more):train()
      local opt = tl.optim.adam(model, { lr = 0.01 })
      for step = 1, 40 do
        tl.train.lm_step(model, opt, ids:narrow(1, step * 23, 33):reshape(1, 33))
      end
      local function write(o)
        o.tokens, o.temperature = 100, 0
        return model:generate(vocab, "the ", o)
      end
      local want = write { method = "fft" }
      t.ok(#want == 104, want)
      for _, o in ipairs { { method = "ring" }, { method = "ring", lags = 200 },
        { method = "etsc" }, { method = "etsc", form = "published" },
        { method = "window", window = 104 } } do
        t.eq(write(o), want)
      end
      t.eq(write { method = "ring", lags = 25 }, write { method = "etsc", lags = 25 })
      t.raises(write, "lags = 9 is less than its 103 tokens", { method = "fft", lags = 9 })
      t.ok(model.training)
    end
  end)

t.test("a converted file is complete", function()
  t.in_folder(function(folder)
    local model, path = model_of { decay = 0.9, vocab = 3 }, folder .. "/m.h5"
    local words = folder .. "/words"
    t.write(words, "abc")
    for _, form in ipairs(recurrent.forms) do
      local session = recurrent.new(model, { method = "etsc", form = form, lags = 30 })
      local about = { trial = "feed", step = 7, kind = "best", length = 16, vocabulary = "char",
        paths = { vocabulary = words, model = words } }
      converted.write(path, session, about, form, 30)
      local again, vocab, told = converted.open(path)
      t.eq({ told.form, told.lags, told.trial, told.step }, { form, 30, "feed", 7 })
      t.eq(vocab:decode(vocab:encode "cab"), "cab")
      local ids = tl.ids { { 0, 1, 2, 2, 1, 0, 1 } }
      t.eq(again:hidden(ids), session:hidden(ids))
      t.eq(again.model:generate(vocab, "ab", { tokens = 20, temperature = 0, session = again }),
        model:generate(vocab, "ab", { tokens = 20, temperature = 0, method = "fft" }))
    end
    local file = tl.h5_open(path)
    local b = file:read "recurrent/layers/layers.1.token.tno/b"
    local lambda = file:read "recurrent/layers/layers.1.token.tno/lambda"
    t.eq(b:shape(), { 15, 36, 2 })
    t.eq(lambda:shape(), { 15, 36, 2 })
    file:close()
    local whole = t.read(path)
    for _, damaged in ipairs { whole:sub(1, -25), whole .. "x", whole .. ("\0"):rep(4096) } do
      t.write(path, damaged)
      t.raises(converted.open, "m%.h5 is damaged: it does not end with the checksum", path)
    end
    checkpoint.write(path, { format = "toeplab recurrent model 1", name = "tnn_lm",
      options = { vocab = 3, dim = "x" } })
    t.raises(converted.open, "m%.h5: its model cannot be made: TnnLM: option 'dim'", path)
    local text, code, said = t.toeplab(("generate '%s' --lags 3"):format(path))
    t.eq({ text, code }, { "", 2 })
    t.holds(said, "--lags is for trials", "m.h5, a file of --convert, stores its method and lags")
    tl.h5_write(path, { { "x", tl.zeros(1) } }, {})
    t.raises(converted.open, "was not written by toeplab generate %-%-convert", path)
    t.write(path, "damaged")
    t.raises(converted.open, "m%.h5", path)
  end)
end)

t.test("converts a model without a TNO", function()
  t.in_folder(function(folder)
    local path = folder .. "/m.h5"
    local model = model_of { mixer = "mamba", mixer_options = { state = 4 } }
    local session, ids = recurrent.new(model, { method = "etsc", lags = 8 }), ids_of(1, 12)
    converted.write(path, session, { trial = "feed", step = 7, kind = "best" }, "exact", 8)
    t.eq(converted.open(path):hidden(ids), session:hidden(ids))
    t.eq(session:reset():hidden(ids), tl.no_grad(model.hidden, model, ids), 1e-5)
  end)
end)

t.test("measures a conversion against the kernel", function()
  local tno = nn.TNO(6, { rpe = { hidden = 4, layers = 1 } })
  local kernel, gamma = recurrent.kernel(tno, 64)
  for form, after in pairs { exact = 0, published = 1 } do
    local recurrence = tl.recurrence(kernel, gamma, form)
    local row = tl.no_grad(converted.measure, recurrence, kernel, gamma)
    t.ok(row.error < 1e-5 and row.error > 0, row.error)
    t.ok((row.after > 1e-3) == (after == 1), row.after)
    t.ok(row.bytes >= 64 * 16 * 4 and row.seconds > 0 and row.ring_bytes == 64 * 16 * 4)
  end
end)

t.test("forks of a session share only its kernels", function()
  for _, method in ipairs { "ring", "etsc", "relaxed" } do
    local session = recurrent.new(model_of(), { method = method, lags = 3000, positions = 20 })
    local x = tl.ids { { 1, 2, 3 } }
    local before = tl.memory().live
    local fork = session:fork()
    t.ok(tl.memory().live - before < session:sizes().state + 2 ^ 14, method)
    local want = fork:hidden(x)
    t.eq(session:hidden(x), want:totable())
    t.eq(fork:reset():hidden(x), want:totable())
    local late = session:fork() -- with kernels of its own, because the session has begun
    session:close()
    t.eq(late:hidden(x), want:totable())
    t.eq(fork:reset():hidden(x), want:totable()) -- whose parent is closed
    fork:close()
    late:close()
    local row = recurrent.new(model_of(), { method = method, lags = 50, positions = 20 })
    recurrent.step_rows(row.model, { row }, 1, row.model.hidden, tl.ids { { 1 } })
    row:fork():hidden(x)
    t.eq(row:reset():hidden(x):shape(), { 1, 3, 12 })
  end
end)

t.test("the engine's recurrence in Lua", function()
  local x = tl.tensor { { 1, 2 } }
  local r = tl.recurrence(tl.tensor { { 1, 1 }, { 1, 2 } }, tl.tensor { 0.5 }, "ring")
  t.eq(r:step(x), { { 1, 2 } })
  t.eq(r:step(x, x), { { 1.5, 4 } })
  t.eq(x, { { 1.5, 4 } })
  r:reset()
  t.eq(r:step(x), x:totable())
  local sizes = r:sizes()
  t.eq({ sizes.kind, sizes.lags, sizes.channels, sizes.sequences }, { "ring", 2, 2, 1 })
  t.raises(r.modes, "a ring has no modes", r)
  t.raises(tl.recurrence, "invalid option 'rign'", x, nil, "rign")
  r:close()
  t.raises(r.step, "recurrence is closed", r, x)
  t.raises(r.fork, "recurrence is closed", r)
  local b, lambda, decay = tl.recurrence(tl.tensor { { 1, 1 }, { 1, 2 } }, nil, "exact"):modes()
  t.eq({ b:shape(), lambda:shape(), decay:shape() }, { { 2, 2, 2 }, { 2, 2, 2 }, { 2 } })
  t.raises(tl.recurrence_of_modes, "2 modes with a period of 5", b, decay, "exact", 2, 5)
end)

t.test("kernels are float32 under every precision, as in the forward pass", function()
  for name, o in pairs { hyena = { length = 64, width = 16 }, s4d = { state = 16 },
    gss = { state = 16 }, stu = { length = 64 } } do
    local model = tl.models.tnn_lm { vocab = 5, layers = 1, dim = 8, mixer = name,
      mixer_options = o }
    local tno = recurrent.operators(model)[1].module
    tl.precision("bf16", function()
      t.eq(recurrent.kernel(tno, 64), tl.no_grad(tno.coefficients, tno, 64))
    end)
  end
end)

t.done()
