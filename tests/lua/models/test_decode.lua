-- test_decode.lua: texts token by token, many at once, and given ones scored: the same tokens from
-- every method and every mixer, and from a batch as from each prompt alone.
local t = require "harness"
local tl = require "toeplab"
local mixers = require "toeplab.nn.mixers"
local recurrent = require "toeplab.models.recurrent"

local VOCAB = tl.vocab_chars "abcdefghij\n"

local function model_of(more)
  tl.seed(3)
  local o = { vocab = VOCAB:size(), layers = 2, dim = 12, rpe_dim = 6, rpe_layers = 1,
    tied = false }
  for name, value in pairs(more or {}) do o[name] = value end
  return tl.models.tnn_lm(o):eval()
end

-- Returns the tokens of a stream: their texts joined, the list of their ids, the last reason.
local function all(model, o)
  local parts, ids, reason = {}, {}, nil
  for token in model:stream(o) do
    parts[#parts + 1], ids[#ids + 1], reason = token.text, token.id, token.reason
  end
  return table.concat(parts), ids, reason
end

-- ---- Methods ------------------------------------------------------------------------------------

local small = { afno = { blocks = 2 }, dss = { state = 8 }, flash = { chunk = 16 },
  gss = { state = 8, inner = 6 }, hgrn2 = { head_dim = 4 }, mamba = { state = 3 },
  s4 = { state = 8 }, s4d = { state = 8 }, sgconv = { size = 4 },
  ssd = { state = 3, head_dim = 6 }, stu = { filters = 4 } }
local N, PROMPT = 14, "abcabd"
local TOTAL = #PROMPT + N - 1

local function model_with(name)
  local fields = mixers.class(name).spec.fields
  local given = small[name] or {}
  for _, key in ipairs { "max_length", "length" } do
    if fields[key] then given[key] = TOTAL end
  end
  return model_of { mixer = name, mixer_options = given, heads = 2 }
end

local steps, whole = {}, {} -- names of the mixers that run position by position, and of the others

for _, name in ipairs(mixers.names) do
  local class = mixers.class(name)
  if class.spec.fields.causal.default then
    t.test("every method generates the same tokens: " .. name, function()
      local model = model_with(name)
      local can = pcall(recurrent.operators, model)
      table.insert(can and steps or whole, name)
      local methods = can and { "ring", "etsc", "relaxed", "auto", "window" }
        or { "auto", "window" }
      for _, how in ipairs { { temperature = 0 }, { top_k = 4, top_p = 0.9 } } do
        local function tokens(method)
          local o = { vocab = VOCAB, prompt = PROMPT, n = N, seed = 5, method = method,
            window = TOTAL }
          for key, value in pairs(how) do o[key] = value end
          return select(2, all(model, o))
        end
        local want = tokens "fft"
        t.eq(#want, N)
        for _, method in ipairs(methods) do t.eq(tokens(method), want) end
      end
      local method, why = tl.decode.method_of(model, { method = "auto" })
      t.eq({ method, why == nil }, { can and "auto" or "fft", can })
      t.ok(can or why:find "layers%.1%.token %(%w+%) ", why)
      if not can then
        t.raises(all, "layers%.1%.token", model, { vocab = VOCAB, n = 1, method = "ring" })
      end
    end)
  end
end

t.test("some mixers run position by position, some by the whole text", function()
  t.ok(#steps >= 15 and #whole >= 5, #steps .. " and " .. #whole)
end)

t.test("a text without a limit: window, and ring and relaxed with lags", function()
  local model = model_of()
  for _, o in ipairs { { window = 8 }, { method = "ring", lags = 8 },
    { method = "relaxed", lags = 40 } } do
    o.vocab, o.prompt = VOCAB, "abc"
    local count = 0
    for token in model:stream(o) do
      count = count + 1
      t.eq({ token.reason, #token.text }, { nil, 1 })
      if count == 300 then break end
    end
  end
  t.raises(all, "without a limit a text requires lags", model, { vocab = VOCAB, method = "ring" })
  t.raises(all, "without a limit a text requires a method other than fft", model,
    { vocab = VOCAB, method = "fft" })
  t.raises(all, "without a limit a text requires method window: .*%(CAT%) mixes",
    model_of { mixer = "cat" }, { vocab = VOCAB, method = "auto" })
end)

t.test("window = n equals lags = n if one layer mixes", function()
  local model = model_of { layers = 1, decay = 0.9 }
  local o = { vocab = VOCAB, prompt = "abc", n = 60, seed = 2 }
  o.window = 9
  local want = select(2, all(model, o))
  o.method, o.lags = "ring", 9
  t.eq(select(2, all(model, o)), want)
end)

-- ---- Streams ------------------------------------------------------------------------------------

t.test("a stream: ids or texts, stops, probabilities, and the mode of the model", function()
  local model = model_of()
  local o = { vocab = VOCAB, prompt = "abc", n = 40, seed = 1 }
  local text, ids, reason = all(model, o)
  t.eq({ #text, #ids, reason }, { 40, 40, "length" })
  t.eq(VOCAB:decode(ids), text)
  t.eq({ select(2, all(model, { prompt = VOCAB:encode "abc":totable(), n = 40, seed = 1 })) },
    { ids, "length" })
  local stop = text:sub(11, 13)
  local first = text:find(stop, 1, true)
  o.stop = { stop }
  t.eq({ all(model, o) }, { text:sub(1, first - 1), table.move(ids, 1, first + 2, 1, {}), "stop" })
  o.stop = { ids[8] }
  for i = 1, 8 do
    if ids[i] == ids[8] then first = i break end
  end
  t.eq({ all(model, o) }, { text:sub(1, first - 1), table.move(ids, 1, first, 1, {}), "stop" })
  o.stop, o.n = {}, 0
  t.eq({ all(model, o) }, { "", {} })
  model:train()
  o.n, o.logprobs = 40, true
  local sum = 0.0
  for token in model:stream(o) do
    t.ok(model.training and token.logprob <= 0)
    sum = sum + token.logprob
  end
  model:eval()
  local score = model:score { vocab = VOCAB, prompt = "abc", continuation = text }
  t.eq({ score.tokens, #score.logprobs }, { 40, 40 })
  t.eq(score.logprob, sum, 1e-3)
  t.eq(score.perplexity, math.exp(-sum / 40), 1e-3)
end)

t.test("tl.generate is a stream as one text", function()
  local model = model_of()
  local text = all(model, { vocab = VOCAB, prompt = "abc", n = 9, seed = 4, top_p = 0.7 })
  t.eq(model:generate(VOCAB, "abc", { tokens = 9, seed = 4, top_p = 0.7 }), "abc" .. text)
  t.eq(tl.generate(model, VOCAB, "", { tokens = 0 }), "")
  t.eq(tl.generate(model, VOCAB, "", { tokens = 9, seed = 4 }),
    (all(model, { vocab = VOCAB, n = 9, seed = 4 })))
  for want, o in pairs {
    ["no option 'prompt'"] = { prompt = "b" },
    ["no option 'token'; did you mean 'tokens'"] = { token = 3 },
    ["no option 'zzzzzzzzz' %(present: tokens, "] = { zzzzzzzzz = 3 },
    ["option 'lags' is for the methods other than window"] = { lags = 3 },
    ["option 'window' is for method window"] = { window = 3, method = "ring" },
    ["option 'form' is for method etsc"] = { form = "exact", method = "ring" },
    ["option 'window' cannot be combined with a session"] = { window = 3,
      session = recurrent.new(model, { method = "ring", lags = 9 }) },
  } do
    t.raises(tl.generate, want, model, VOCAB, "abc", o)
  end
end)

t.test("misuse of a stream", function()
  local model = model_of()
  local function refused(o, want) t.raises(all, want, model, o) end
  refused({ prompt = "abc" }, "the prompt is a string, which requires the option vocab")
  refused({}, "the prompt needs at least one token")
  refused({ prompt = { 1, "x" } }, "value 2 is x, not the id of a token")
  refused({ prompt = { 1 }, stop = { "a" } }, "a string in stop requires the option vocab")
  refused({ vocab = VOCAB, stop = { "" } }, "has an empty string")
  refused({ vocab = VOCAB, stop = { {} } }, "value 1 is a table")
  refused({ vocab = VOCAB, stopp = {} }, "did you mean 'stop'")
  refused({ vocab = VOCAB, prompt = "X" }, "'X'")
  refused({ vocab = VOCAB, n = -1 }, "option 'n' = %-1")
  refused({ vocab = VOCAB, n = 5, method = "fft", lags = 3 }, "lags = 3 is less than its 5 tokens")
  refused({ vocab = VOCAB, n = 5, method = "rign" }, "'rign' is not one of")
  t.raises(all, "not causal", model_of { causal = false }, { vocab = VOCAB })
  t.raises(model.score, "no token", model, { vocab = VOCAB, continuation = "" })
  t.raises(model.score, "'continuation' is required", model, { vocab = VOCAB })
end)

-- ---- Batches ------------------------------------------------------------------------------------

local prompts = { "abc", "", "jihgfedcba", "a", "bbbbbb", "cabbage", "abc" }

local STOPS = { "ej", "jb", "hh", "cc" }

-- Returns the results of a batch, a list.
local function batch(model, o)
  local list = {}
  for result in model:batch(o) do list[#list + 1] = result end
  return list
end

for _, case in ipairs { { "relaxed" }, { "ring" }, { "etsc" }, { "auto", lags = 20 }, { "window" },
  { "fft" }, { "ring", "mamba" }, { "ring", "hyena" }, { "auto", "attention" },
  { "auto", "cat" }, { "relaxed", lags = 60 }, { "etsc", lags = 60 } } do
  t.test(("a text of a batch depends on nothing else: %s %s"):format(case[1],
    case[2] or case.lags or ""),
    function()
      local model = case[2] and model_with(case[2]) or model_of()
      local function of(list, seed)
        return batch(model, { vocab = VOCAB, prompts = list, seed = seed, n = 25, batch = 3,
          method = case[1], lags = case.lags, stop = STOPS, logprobs = true, top_p = 0.95 })
      end
      local list, reasons = of(prompts, 7), {}
      t.eq(#list, #prompts)
      for i, result in ipairs(list) do
        t.eq({ result.index, result.prompt, result.seed }, { i, prompts[i], 6 + i })
        local alone = of({ prompts[i] }, 6 + i)
        alone[1].index = i
        t.eq(alone, { result }) -- bit for bit: also the sums of log-probabilities
        reasons[result.reason] = true
        for _, stop in ipairs(STOPS) do t.ok(not result.text:find(stop)) end
        local text, ids = all(model, { vocab = VOCAB, prompt = prompts[i], seed = 6 + i, n = 25,
          method = case[1], lags = case.lags, stop = STOPS, top_p = 0.95 })
        t.eq({ result.text, result.ids }, { text, ids })
      end
      t.ok(list[1].text ~= list[7].text, "seeds differ")
      t.ok(reasons.stop and reasons.length, "some stop, some do not")
    end)
end

t.test("a batch of a converted model, and of distilled operators", function()
  local model = model_of { max_lag = 20 }
  local exact = recurrent.new(model, { method = "etsc", lags = 20 })
  local list = batch(model, { vocab = VOCAB, prompts = prompts, session = exact, n = 12,
    batch = 2 })
  for i, result in ipairs(list) do
    local _, ids = all(model, { vocab = VOCAB, prompt = prompts[i], seed = i, n = 12,
      method = "fft" })
    t.eq(result.ids, ids)
  end
  local distilled = recurrent.session(model, function(tno)
    local k, gamma = recurrent.kernel(tno, 20)
    k = gamma and tl.decay(k, tl.range(0, 19), gamma) or k
    return tl.distill.recurrence(tl.distill.system(k, 12, "balanced"), 20)
  end)
  local o = { vocab = VOCAB, prompts = prompts, session = distilled, n = 12, batch = 4 }
  local some = batch(model, o)
  o.prompts, o.seed = { prompts[3] }, 3
  t.eq({ #some, some[3].ids }, { #prompts, batch(model, o)[1].ids })
end)

t.test("a batch without tokens, without prompts, and one that is left early", function()
  local model = model_of()
  local list = batch(model, { vocab = VOCAB, prompts = { "a", "b" }, n = 0 })
  t.eq({ #list, list[2].text, list[2].ids, list[2].reason }, { 2, "", {}, "length" })
  t.eq(batch(model, { vocab = VOCAB, prompts = {} }), {})
  local each = model:batch { vocab = VOCAB, prompts = prompts, n = 5, method = "ring" }
  t.eq(#each().ids, 5) -- and the others are never asked for
  t.raises(batch, "'X'", model, { vocab = VOCAB, prompts = { "a", "X" } })
end)

t.test("scores equal the whole text's, in pieces and from a session", function()
  local model = model_of()
  local long = ("abcdefghij"):rep(60) -- more than one piece
  local whole_text = model:score { vocab = VOCAB, prompt = "a", continuation = long }
  local ids = VOCAB:encode("a" .. long):reshape(1, -1)
  local nats = tl.no_grad(function()
    return model:loss(ids:narrow(2, 1, 600), ids:narrow(2, 2, 600))
  end):item()
  t.eq({ whole_text.tokens, #whole_text.logprobs }, { 600, 600 })
  t.eq(whole_text.logprob, -nats * 600, 0.05)
  local session = recurrent.new(model, { method = "ring", lags = 700 })
  local stepped = model:score { vocab = VOCAB, prompt = "a", continuation = long,
    session = session }
  t.eq(stepped.logprobs, whole_text.logprobs, 1e-4)
end)

t.test("a score counts the tokens of prompt and continuation encoded as one text", function()
  local vocab = tl.vocab_bpe(t.root .. "tests/small.bpe")
  local model = model_of { vocab = vocab:size() }
  local whole_text = vocab:encode "about the house":totable()
  local before = vocab:encode "about":totable()
  local o = { prompt = before, continuation = table.move(whole_text, #before + 1, #whole_text, 1,
    {}) }
  local want = model:score(o)
  t.eq(model:score { vocab = vocab, prompt = "about", continuation = " the house" }, want)
  t.eq(model:score { vocab = vocab, prompt = "about ", continuation = "the house" }, want)
  local cuts = { size = function() return VOCAB:size() end, -- a "b" at the beginning of a text
    encode = function(_, text) return VOCAB:encode((text:gsub("^b", ""))) end }
  t.eq(model_of():score { vocab = cuts, prompt = "a", continuation = "bc" },
    model_of():score { vocab = VOCAB, prompt = "a", continuation = "bc" })
  t.raises(model.score, "a token spans the prompt and the continuation", model,
    { vocab = vocab, prompt = "about t", continuation = "he house" })
end)

t.test("attention with positions: a text in a batch equals the text alone", function()
  for _, mixer in ipairs { "attention", "gated_attention" } do
    for _, positions in ipairs { "sinusoidal", "learned", "rotary", "alibi" } do
      local model = model_of { mixer = mixer, heads = 2, mixer_options = { positions = positions } }
      local o = { vocab = VOCAB, prompts = prompts, n = 9, seed = 4, method = "ring", batch = 3 }
      for i, result in ipairs(batch(model, o)) do
        local _, ids = all(model, { vocab = VOCAB, prompt = prompts[i], n = 9, seed = 3 + i,
          method = "ring" })
        t.eq(result.ids, ids)
      end
    end
  end
end)

t.test("a prompt that ends within a character: its bytes are written once", function()
  local vocab = tl.vocab_bytes()
  local Next = tl.nn.class("Next", {}, {}) -- says that the next byte is 0xA9
  function Next:build() self.w = tl.nn.parameter(tl.zeros(1)) end
  function Next:forward(ids)
    local row = tl.zeros(256)
    row:view(0xA9, { 1 }):fill(50)
    return tl.zeros(ids:dim(1), ids:dim(2), 256) + row:reshape(1, 1, 256)
  end
  t.eq(tl.generate(Next(), vocab, "caf\xc3", { tokens = 1 }), "caf\u{e9}")
  t.eq(tl.generate(Next(), vocab, "caf\xc3", { tokens = 0 }), "caf")
end)

t.done()
