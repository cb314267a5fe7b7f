-- models/masked.lua: defines tl.models.tnn_mlm, the bidirectional language model of TNN's Table 3,
-- which predicts masked tokens.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local padding = require "toeplab.models.padding"
local stack = require "toeplab.models.stack"

local field = options.field

local spec = stack.fields({
  { "vocab", field { type = "int", min = 1, max = 1 << 31 }, "number of tokens, <mask> included" },
  { "pad", field { type = "int", min = 0, optional = true },
    "token whose embedding starts at 0 and whose state is 0 before the first block; at the end of "
    .. "a row only, and mixers that take a mask do not see it" },
}, {
  layers = 12, dim = 768, layout = "C-fairseq", causal = false, init = "bert",
})

-- The model is: embedding, layer norm, dropout, blocks; then Linear, GELU, layer norm, and the
-- weights of the embedding with a bias give the logits. The defaults are the published sizes; the
-- published model however was trained with dropout 0.1 and with a padding token.
--   model(ids [b,n]) -> logits [b,n,vocab]   model:hidden(ids) -> [b,n,dim]
--   model:loss(ids, places, targets) -> nats per masked token
local TnnMLM = class("TnnMLM", spec)

function TnnMLM:build(o)
  self.mask_by_token = padding.by_token("TnnMLM", o.pad, o.vocab)
  self.embed = nn.Embedding(o.vocab, o.dim, { pad = o.pad, deviation = 0.02 })
  self.position = stack.positions(o)
  self.embed_norm = nn.LayerNorm(o.dim)
  self.drop = nn.Dropout(o.dropout)
  self.layers = stack.layers("TnnMLM", o)
  self.head = nn.Linear(o.dim, o.dim, { init = stack.plain_init(o) })
  self.head_norm = nn.LayerNorm(o.dim)
  self.bias = nn.parameter(core.zeros(o.vocab))
end

-- Returns the state of each token after the last block: ids [b,n] int32 -> [b,n,dim].
function TnnMLM:hidden(ids)
  local x = self.embed(ids)
  if self.position then x = self.position(x) end
  x = self.drop(self.embed_norm(x))
  local mask = self.mask_by_token(ids)
  if mask then x = x * mask:reshape(ids:dim(1), ids:dim(2), 1) end
  for _, layer in self.layers:each() do x = layer(x, mask) end
  return x
end

-- Returns the features of states to which the output map is applied: [..,dim] -> [..,dim].
local function features(self, hidden)
  return self.head_norm(core.gelu(self.head(hidden)))
end

-- Returns the logits of states: [..,dim] -> [..,vocab].
function TnnMLM:logits(hidden)
  return core.linear(features(self, hidden), self.embed.weight, self.bias)
end

function TnnMLM:forward(ids)
  return self:logits(self:hidden(ids))
end

-- Returns the mean cross entropy in nats of the tokens targets [m] at the places [m] of ids [b,n],
-- counted from 0 along the rows. Logits are computed at these places only, and never all stored.
function TnnMLM:loss(ids, places, targets)
  local hidden = self:hidden(ids):reshape(-1, self.opt.dim):gather(places)
  return core.linear_cross_entropy(features(self, hidden), self.embed.weight, self.bias, targets)
end

-- Counts the logits of all positions; training computes them at masked ones only.
function TnnMLM:own_cost(n)
  return 2.0 * n * self.opt.vocab * self.opt.dim, 0.0
end

return { TnnMLM = TnnMLM }
