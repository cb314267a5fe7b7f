-- mixer.lua -- a token mixer of one's own in a language model: a running average per channel, with
-- learnt memory. toeplab lua docs/mixer.lua [CORPUS [STEPS]]; compare experiments/custom-mixer.lua.
local tl = require "toeplab"
local nn = tl.nn

-- y_i = out((1-g) sum over k >= 0 of g^k x_(i-k)), g = sigmoid(theta) per channel.   x, y [b,n,dim]
local Average = nn.class("Average", { dim = "int", backend = "rac" }, { "dim" })

function Average:build(o)
  self.theta = nn.parameter(nn.init.normal(tl.zeros(o.dim), 2, 1))
  self.out = nn.Linear(o.dim, o.dim) -- assignment to self registers it
  self.operators = {} -- by length
end

function Average:forward(x)
  local n, d = x:dim(2), x:dim(3)
  local operator = self.operators[n] or tl.tno(self.opt.backend, n, d, true)
  self.operators[n] = operator
  local g = tl.sigmoid(self.theta)
  local coef = tl.decay(tl.ones(n, d), operator:points(), g) * (1 - g)
  return self.out(operator:apply(coef, {}, x))
end

tl.seed(1)
local corpus, steps = arg[1] or "bible-kjv", tonumber(arg[2] or 200)
local data = tl.corpus(corpus, { length = 128, batch = 8 })
local model = tl.models.tnn_lm {
  vocab = data.vocab:size(), layers = 2, dim = 64, mixer = function(dim) return Average(dim) end,
}
local opt = tl.optim.adam(model, { lr = 3e-3, schedule = "cosine", steps = steps })
print(model)
for step = 1, steps do
  local loss, info = tl.train.lm_step(model, opt, data:batch(step))
  if step % 20 == 0 then print(("step %d: loss %.3f, lr %.1e"):format(step, loss, info.lr)) end
end
for _, n in ipairs { 128, 512 } do
  local bits = tl.eval.bits_per_token(model, data:stream "test", n)
  print(("%.3f bits per character at length %d"):format(bits, n))
end
