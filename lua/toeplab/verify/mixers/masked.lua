-- verify/mixers/masked.lua: runs the reference cases of the bidirectional TNN: the masked language
-- model, and the classifier that is fine-tuned from it.

local core = require "toeplab.core"
local models = require "toeplab.models"
local module_case = require "toeplab.verify.module_case"

local kinds = {}

-- Returns the options of the model of a case.
local function options_of(a)
  return {
    vocab = a.vocab, pad = a.pad, layers = a.layers, dim = a.dim, expand = a.expand,
    glu_dim = a.glu_dim, rpe_dim = a.rpe_dim, rpe_layers = a.rpe_layers, decay = a.gamma,
    init = "bert", backend = "fft",
  }
end

-- Returns the published names of the parameters and ours. The released model's are under
-- encoder.sentence_encoder; the norms of its blocks have no parameters.
local function names_of(a)
  local body = "encoder%.sentence_encoder%."
  local names = {
    { body .. "embed_tokens%.weight", "embed.weight" },
    { body .. "layernorm_embedding%.(%a+)", "embed_norm.%1" },
    { "encoder%.lm_head%.dense%.(%a+)", "head.%1" },
    { "encoder%.lm_head%.layer_norm%.(%a+)", "head_norm.%1" },
    { "encoder%.lm_head%.bias", "bias" },
    { "classification_heads%.head%.dense%.(%a+)", "dense.%1" },
    { "classification_heads%.head%.out_proj%.(%a+)", "head.%1" },
  }
  for layer = 0, a.layers - 1 do
    local theirs = ("%slayers%%.%d%%."):format(body, layer)
    local gtu, ours = theirs .. "self_attn%.gtu%.", ("layers.%d."):format(layer + 1)
    local rpe = gtu .. "toep%.rpe%."
    for _, pair in ipairs {
      { gtu .. "([uv])_proj%.(%a+)", "token.%1.%2" }, { gtu .. "o%.(%a+)", "token.o.%1" },
      { gtu .. "toep%.gamma", "token.tno.decay.gamma" },
      { rpe .. "pos_proj%.(%a+)", "token.tno.encoder.input.%1" },
      { rpe .. "out%.2%.(%a+)", "token.tno.encoder.output.linear.%1" },
      { theirs .. "glu%.(l[123]%.%a+)", "feature.%1" },
    } do
      names[#names + 1] = { pair[1], ours .. pair[2] }
    end
    for hidden = 0, a.rpe_layers - 1 do -- patterns cannot add 1
      names[#names + 1] = { ("%slayers%%.%d%%.2%%.(%%a+)"):format(rpe, hidden),
        ("%stoken.tno.encoder.layers.%d.linear.%%1"):format(ours, hidden + 1) }
    end
  end
  return names
end

-- Compares what the model computed with the case, after loss:backward().
local function compare(case, model, names, found)
  local results = {}
  found.loss:backward()
  for _, name in ipairs { "hidden", "logits", "loss" } do
    module_case.compare(case, results, name, found[name])
  end
  module_case.gradients(case, model, module_case.renaming(names), results)
  return results
end

-- The targets are the padding token wherever nothing is to be predicted.
function kinds.roberta_mlm(case)
  local a, places, targets = case.attributes, {}, {}
  for place, target in ipairs(case:read("targets"):reshape(-1):totable()) do
    if target ~= a.pad then places[#places + 1], targets[#targets + 1] = place - 1, target end
  end
  local names, model, ids = names_of(a), models.tnn_mlm(options_of(a)), case:read "ids"
  module_case.load(case, model:eval(), names)
  local chosen = core.ids(places)
  local hidden, logits = core.no_grad(function()
    local states = model:hidden(ids)
    return states, model:logits(states:reshape(-1, a.dim):gather(chosen))
  end)
  return compare(case, model, names, { hidden = hidden, logits = logits,
    loss = model:loss(ids, chosen, core.ids(targets)) })
end

function kinds.roberta_classify(case)
  local a, options = case.attributes, options_of(case.attributes)
  options.classes, options.as_published = a.classes, true
  local names, model, ids = names_of(a), models.tnn_mlm_classifier(options), case:read "ids"
  module_case.load(case, model:eval(), names)
  local logits = model(ids)
  return compare(case, model, names, { hidden = core.no_grad(model.hidden, model, ids),
    logits = logits, loss = core.cross_entropy(logits, case:read "labels") })
end

return kinds
