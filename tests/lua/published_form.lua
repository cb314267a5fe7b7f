-- published_form.lua: the published TNN in plain Lua numbers, written from the equations of the
-- paper and with the names and options of the released code, for tests:
--   form.logits(dictionary, options, ids)
-- As load_state_dict does, it refuses a dictionary with a name that it does not use.
local form = {}

local function erf(x) -- by its series, for the small numbers of tests
  local sum, term = 0, x
  for n = 0, 60 do
    sum = sum + term / (2 * n + 1)
    term = -term * x * x / (n + 1)
  end
  return 2 / math.sqrt(math.pi) * sum
end

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end

local acts = {
  none = function(x) return x end, sigmoid = sigmoid, silu = function(x) return x * sigmoid(x) end,
  relu = function(x) return math.max(x, 0) end,
  elu = function(x) return x > 0 and x or math.exp(x) - 1 end,
  gelu = function(x) return x * (1 + erf(x / math.sqrt(2))) / 2 end,
}

local function map(f, ...)
  local y, lists = {}, { ... }
  for i = 1, #lists[1] do y[i] = f(lists[1][i], lists[2] and lists[2][i]) end
  return y
end

local function add(a, b) return map(function(p, q) return p + q end, a, b) end
local function times(a, b) return map(function(p, q) return p * q end, a, b) end

-- Returns a function that takes the parameter of a name, and one that raises if some are not taken.
local function reader(dictionary)
  local taken = {}
  local function take(name, optional)
    local t = dictionary[name]
    if not t and not optional then error(name .. " is missing", 2) end
    taken[name] = true
    return t and t:totable()
  end
  return take, function()
    for name in pairs(dictionary) do
      if not taken[name] then error(name .. " is one more", 2) end
    end
  end
end

-- Returns x -> w x + b; b: nil for none.
local function affine(w, b)
  return function(x)
    return map(function(row, bias)
      local sum = bias or 0
      for i, value in ipairs(row) do sum = sum + value * x[i] end
      return sum
    end, w, b)
  end
end

local function linear(take, name) return affine(take(name .. ".weight"), take(name .. ".bias")) end

local function norm(take, kind, name)
  if kind == "simplermsnorm" then
    return function(x)
      local square = 0
      for _, v in ipairs(x) do square = square + v * v end
      local size = math.sqrt(square) / math.sqrt(#x) + 1e-8
      return map(function(v) return v / size end, x)
    end
  end
  local w, b = take(name .. ".weight"), take(name .. ".bias")
  return function(x)
    local mean, var = 0, 0
    for _, v in ipairs(x) do mean = mean + v / #x end
    for _, v in ipairs(x) do var = var + (v - mean) ^ 2 / #x end
    return add(times(map(function(v) return (v - mean) / math.sqrt(var + 1e-5) end, x), w), b)
  end
end

local function chain(...)
  local fs = { ... }
  return function(x)
    for _, f in ipairs(fs) do x = f(x) end
    return x
  end
end

local function act(name) return function(x) return map(acts[name], x) end end

-- ---- The operator -------------------------------------------------------------------------------

local function rpe(take, o, name)
  local function stage(path)
    return chain(norm(take, o.norm_type, path .. ".0"), act(o.rpe_act), linear(take, path .. ".2"))
  end
  local first, layers, i = linear(take, name .. ".pos_proj"), {}, 0
  while take(("%s.layers.%d.2.weight"):format(name, i), true) do
    layers[i + 1], i = stage(("%s.layers.%d"):format(name, i)), i + 1
  end
  local last = stage(name .. ".out")
  return function(k)
    local x = first { k }
    for _, layer in ipairs(layers) do
      local y = layer(x)
      x = o.residual and add(x, y) or y
    end
    return last(x)
  end
end

-- T x over the positions: x is a list of vectors.
local function toeplitz(take, o, name)
  local f, gamma = rpe(take, o, name .. ".rpe"), {}
  for _, head in ipairs((o.use_decay or o.use_multi_decay) and take(name .. ".gamma") or {}) do
    for _, g in ipairs(head[1]) do
      gamma[#gamma + 1] = o.use_multi_decay and o.gamma + (1 - o.gamma) * sigmoid(g) or g
    end
  end
  return function(x)
    local n, y = #x, {}
    local function coefficients(k)
      local input = ({ k, k / (n - 1), math.exp(k / (n - 1)) })[o.par_type or 1]
      local c = f(input)
      for i in ipairs(gamma) do c[i] = c[i] * gamma[i] ^ math.abs(k) end
      return map(acts[o.act_type or "none"], c)
    end
    for i = 1, n do
      y[i] = map(function() return 0 end, x[1])
      local sum = y[i]
      for j = 1, o.causal and i or n do
        local t = coefficients(i - j)
        y[i], sum = add(y[i], times(t, x[j])), add(sum, t)
      end
      if o.normalize then y[i] = map(function(p, q) return p / q end, y[i], sum) end
    end
    return y
  end
end

-- Each function below returns a function of a sequence, a list of vectors.
local function each(f) return function(x) return map(f, x) end end

local function gtu(take, o, name)
  local f, inner = act(o.act_fun or o.gtu_act), acts.none
  local u, v = each(chain(linear(take, name .. ".u_proj"), f)),
    each(chain(linear(take, name .. ".v_proj"), f))
  local mix, out = toeplitz(take, o, name .. ".toep"), linear(take, name .. ".o")
  if o.use_norm then inner = norm(take, o.norm_type, name .. ".norm") end
  local plain = function(x)
    return map(chain(inner, out), map(times, u(x), mix(v(x))))
  end
  if o.model ~= "tnn_lm" then return plain end
  local first = each(norm(take, o.norm_type, name .. ".pre_norm"))
  return function(x) return map(add, x, plain(first(x))) end
end

local function glu(take, o, name)
  local l1, l2, l3 = linear(take, name .. ".l1"), linear(take, name .. ".l2"),
    linear(take, name .. ".l3")
  local last = act(o.fina_act or "none")
  return each(function(x) return last(l3(times(act(o.glu_act)(l1(x)), l2(x)))) end)
end

-- Where the norm and the residual connection of f stand.
local function residual(o, norm_, f)
  local before = o.prenorm
  if before == nil then before = o.decoder_normalize_before end
  if before then return function(x) return map(add, x, f(norm_(x))) end end
  if o.prenorm == false then return function(x) return map(add, x, norm_(f(x))) end end
  return function(x) return norm_(map(add, x, f(x))) end
end

local function layer(take, o, name, names)
  local function part(norm_name, f)
    return residual(o, each(norm(take, o.norm_type, name .. norm_name)), f)
  end
  return chain(part(names.token_norm, gtu(take, o, name .. names.gtu)),
    part(names.feature_norm, glu(take, o, name .. names.glu)))
end

local tnn_layer = { token_norm = "token_norm", gtu = "token_mixer", feature_norm = "feature_norm",
  glu = "feature_mixer" }
local fairseq_layer = { token_norm = "self_attn_layer_norm", gtu = "self_attn.gtu",
  feature_norm = "final_layer_norm", glu = "glu" }

local function stack(take, o, prefix, names)
  local layers, i = {}, 0
  while take(("%s%d.%s.o.weight"):format(prefix, i, names.gtu), true) do
    layers[i + 1], i = layer(take, o, ("%s%d."):format(prefix, i), names), i + 1
  end
  return chain(table.unpack(layers))
end

local function embedding(table_, scale)
  return function(id) return map(function(v) return v * scale end, table_[id + 1]) end
end

-- ---- Models -------------------------------------------------------------------------------------

local models = {}

models["tnn-pytorch"] = function(take, o)
  local w = take "embed.weight"
  return chain(each(embedding(w, o.embed_scale and math.sqrt(#w[1]) or 1)),
    stack(take, o, "layers.", tnn_layer), each(norm(take, o.final_norm, "norm")), each(affine(w)))
end

function models.tnn_lm(take, o)
  local w, head = take "decoder.embed_tokens.weight", take "decoder.output_projection.weight"
  take "decoder.version"
  return chain(each(embedding(w, o.no_scale_embedding and 1 or math.sqrt(#w[1]))),
    stack(take, o, "decoder.layers.", fairseq_layer),
    each(o.no_decoder_final_norm and acts.none or norm(take, "layernorm", "decoder.layer_norm")),
    each(affine(o.share_decoder_input_output_embed and w or head)))
end
models.tnn_v2_lm = models.tnn_lm

function models.roberta_tnn_v2(take, o)
  local body, top = "encoder.sentence_encoder.", "encoder.lm_head."
  local w, bias = take(body .. "embed_tokens.weight"), take(top .. "bias")
  local normed = norm(take, "layernorm", body .. "layernorm_embedding")
  take(top .. "weight")
  take(body .. "version")
  return chain(
    each(function(id) -- the padding, 1, is set to 0 before the first layer
      local x = normed(w[id + 1])
      return id == 1 and map(function() return 0 end, x) or x
    end),
    stack(take, o, body .. "layers.", fairseq_layer),
    each(chain(linear(take, top .. "dense"), act "gelu", norm(take, "layernorm", top
      .. "layer_norm"), affine(w))),
    each(function(x) return add(x, bias) end))
end

-- Returns the logits, a list of lists, of a list of ids by the model with the parameters of a state
-- dictionary (name -> tensor) and these options of the published code.
function form.logits(dictionary, options, ids)
  local take, check = reader(dictionary)
  local model = models[options.model or "tnn-pytorch"](take, options)
  check()
  return model(ids)
end

return form
