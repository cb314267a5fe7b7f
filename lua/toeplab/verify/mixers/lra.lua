-- verify/mixers/lra.lua: runs the reference cases of the attentions that were compared on the Long
-- Range Arena (nn/mixers/approximate/, and softmax attention), and of the model around them. A case
-- of an attention stores its random choices; their consequences are compared too.

local core = require "toeplab.core"
local AttentionClassifier = require("toeplab.models.attention_classifier").AttentionClassifier
local mixers = require "toeplab.nn.mixers"
local module_case = require "toeplab.verify.module_case"

local kinds = {}

-- Published names of parameters.
local names = {
  { "W_([qkv])%.(.*)", "%1.%2" }, { "ff%.(.*)", "o.%1" }, { "attn%.E", "positions" },
  { "([qkv])_proj%.(.*)", "%1.%2" }, { "E", "positions" }, { "query_key%.(.*)", "q.%1" },
  { "value%.(.*)", "v.%1" },
}

-- The options of each mixer by the attributes of a case.
local options = {
  softmax = function() return {} end,
  kernelized = function() return {} end,
  linformer = function(a) return { rank = a.linformer_k, max_length = a.max_len or a.n } end,
  nystrom = function(a) return { landmarks = a.num_landmarks, as_published = true } end,
  informer = function(a)
    return { features = a.in_nb_features, max_length = a.n, as_published = true }
  end,
  bigbird = function(a)
    return { block = a.block_size, random_blocks = a.num_random_blocks, as_published = true }
  end,
  reformer = function(a) return { chunk = a.chunk, hashes = a.num_hash } end,
  skyformer = function(a) return { features = a.nb_features, as_published = true } end,
}

-- Returns our name of the mixer of a case.
local function name_of(a) return a.mixer == "softmax" and "attention" or a.mixer end

-- The dataset of the random choices of each mixer.
local chosen = {
  informer = "samples", bigbird = "random_blocks", reformer = "rotations", skyformer = "uniform",
}

-- ---- Consequences of the choices ----

-- Returns a map of x as the mixer sees it: [b,h,n,head_dim].
local function heads(module, name, x)
  local y = module[name](x)
  return y:reshape(x:dim(1), x:dim(2), module.opt.heads, -1):permute { 1, 3, 2, 4 }
end

-- Each returns the name of a dataset and the list of its numbers, computed by our mixer.
local derived = {}

function derived.informer(module, x, _, samples)
  local top = module:top(heads(module, "q", x), heads(module, "k", x), nil, samples)
  return "top", top:reshape(-1):totable()
end

function derived.reformer(module, x, mask, rotations)
  local more = module:aligned(x:dim(2)) - x:dim(2)
  if more > 0 then
    x = core.concat({ x, core.zeros(x:dim(1), more, x:dim(3)) }, 2)
  end
  mask = mask and mask:reshape(x:dim(1), 1, x:dim(2), 1)
  return "buckets", module:buckets(heads(module, "q", x), mask, rotations):reshape(-1):totable()
end

-- The published positions count through the rows of q, whose landmarks come first, and of k.
function derived.skyformer(_, x, _, landmarks)
  local list, f = landmarks:reshape(-1):totable(), landmarks:dim(2)
  for i, at in ipairs(list) do list[i] = (i - 1) % f < f // 2 and at or at + x:dim(2) end
  return "landmarks", list
end

-- Compares integers: the error is the number of those that differ.
local function compare_choices(case, module, results, mask, given)
  local mixer = case.attributes.mixer
  if not (given and derived[mixer]) then return end
  local name, got = core.no_grad(derived[mixer], module, case:read "x", mask, given)
  local want, wrong = case:read(name):reshape(-1):totable(), 0
  for i, value in ipairs(want) do
    if got[i] ~= value then wrong = wrong + 1 end
  end
  results[#results + 1] = { name = name, error = #got == #want and wrong or math.huge }
end

-- ---- Kinds ----

-- Returns the landmarks of Skyformer for the numbers u [f] and rows of these lengths: [b,f].
local function landmarks(u, lengths)
  local rows = {}
  for row, length in ipairs(lengths) do
    rows[row] = {}
    for i, unit in ipairs(u) do rows[row][i] = math.floor(length * unit) end
  end
  return core.ids(rows)
end

-- Reads the random choices of the case in the form in which the mixer takes them.
local function choices(case, present, mask)
  local name = chosen[case.attributes.mixer]
  if not name or not present[name] then return nil end
  local t = case:read(name)
  if name == "random_blocks" then return t:totable() end
  if name ~= "uniform" then return t end
  local x = case:read "x"
  return landmarks(t:totable(), (mask or core.ones(x:dim(1), x:dim(2))):sum(2):totable())
end

local function run(case, more)
  local a, present = case.attributes, {}
  for _, name in ipairs(case:children "") do present[name] = true end
  local given = options[a.mixer](a)
  given.heads, given.head_dim = a.heads, a.head_dim
  for key, value in pairs(more) do given[key] = value end
  local module = mixers.make(name_of(a), a.dim, { causal = false }, given)
  local mask = present.mask and case:read "mask" or nil
  local drawn = choices(case, present, mask)
  local results = module_case.run(case, module, names, mask, drawn)
  compare_choices(case, module, results, mask, drawn)
  return results
end

function kinds.sky_attention(case) return run(case, {}) end

function kinds.lra_attention(case)
  local a, more = case.attributes, { output = false }
  if a.mixer ~= "linformer" then more.padding = "tokens" end
  if a.mixer == "nystrom" or a.mixer == "reformer" then more.max_length = a.max_len end
  if a.mixer == "reformer" then more.bias = true end
  return run(case, more)
end

-- Published names of the parameters of a model.
local model_names = {
  { "model%.embeddings%.word_embeddings%.(.*)", "embed.%1" },
  { "model%.embeddings%.position_embeddings%.(.*)", "position.%1" },
  { "model%.norm%.(.*)", "final_norm.%1" },
  { "seq_classifer%.mlpblock%.0%.(.*)", "inner.%1" },
  { "seq_classifer%.mlpblock%.2%.(.*)", "head.%1" },
}
for layer = 0, 1 do
  local theirs = ("model%%.transformer_%d%%."):format(layer)
  for _, pair in ipairs {
    { "norm1", "token_norm" }, { "mha%.W_([qkv])", "token.%1", "%2" }, { "mha%.ff", "token.o" },
    { "norm2", "feature_norm" }, { "mlpblock%.0", "up" }, { "mlpblock%.3", "down" },
  } do
    model_names[#model_names + 1] = { theirs .. pair[1] .. "%.(.*)",
      ("layers.%d.%s.%s"):format(layer + 1, pair[2], pair[3] or "%1") }
  end
end

local function run_model(case, ids, pair)
  local a = case.attributes
  local given = options[a.mixer](a)
  given.head_dim = a.head_dim
  local model, results = AttentionClassifier {
    vocab = a.vocab, classes = a.classes, max_length = a.max_len, layers = a.layers, dim = a.dim,
    heads = a.heads, hidden = a.hidden, mixer = name_of(a), mixer_options = given, pair = pair,
    pad = a.pad, as_published = true,
  }, {}
  module_case.load(case, model, model_names)
  local logits = model(ids)
  local loss = core.cross_entropy(logits, case:read "labels")
  loss:backward()
  module_case.compare(case, results, "logits", logits)
  module_case.compare(case, results, "loss", loss)
  module_case.gradients(case, model, module_case.renaming(model_names), results)
  return results
end

function kinds.sky_model(case) return run_model(case, case:read "ids", false) end

function kinds.sky_pair(case)
  return run_model(case, core.concat({ case:read "ids", case:read "ids_b" }, 1), true)
end

return kinds
