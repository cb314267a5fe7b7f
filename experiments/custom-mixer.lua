-- custom-mixer.lua: can your own token mixer replace the TNN's? It compares a gated short
-- convolution with the GTU; docs/mixer.lua explains how to write a mixer.
local tl = require "toeplab"
local nn = tl.nn

-- y = Wo(silu(Wu x) * conv(silu(Wv x))), with one causal filter of taps numbers per channel.
local GatedConv = nn.class("GatedConv", { dim = "int", taps = 8, expand = 2 }, { "dim" })

function GatedConv:build(o)
  local width = o.expand * o.dim
  self.u, self.v = nn.Linear(o.dim, width), nn.Linear(o.dim, width)
  self.o = nn.Linear(width, o.dim)
  self.taps = nn.parameter(nn.init.normal(tl.zeros(o.taps, width), 0, o.taps ^ -0.5))
end

function GatedConv:forward(x)                                           -- x [b,n,dim] -> [b,n,dim]
  local mixed = tl.depthwise_conv(nn.act.silu(self.v(x)), self.taps, 0) -- tap k weighs k tokens ago
  return self.o(nn.act.silu(self.u(x)) * mixed)
end

local mixers = {
  conv = function(c) return function(dim) return GatedConv(dim, { taps = c.taps }) end end,
  gtu = function() return nil end,
}

-- A mixer of one's own is not stored with a trial, so that commands which open its model need this
-- function: toeplab generate mixer=conv --script experiments/custom-mixer.lua
local function make(c, vocab)
  return tl.models.tnn_lm {
    vocab = vocab:size(), layers = c.layers, dim = c.dim, expand = 2, rpe_dim = 16,
    rpe_layers = 1, mixer = mixers[c.mixer](c),
  }
end

return tl.experiment "custom-mixer" {
  fixed = {
    corpus = "bible-kjv", layers = 2, dim = 64, taps = 8, length = 128, batch = 16, steps = 300,
    lr = 3e-3,
  },
  grid = { mixer = { "conv", "gtu" } },
  scale = {
    smoke = {
      layers = 1, dim = 16, length = 32, batch = 4, steps = 20,
      corpus = "text:" .. ("the quick brown fox jumps over the lazy dog. "):rep(60),
    },
  },

  check = function(c)
    if not mixers[c.mixer] then error("mixer: known are conv and gtu", 0) end
  end,
  model = make,
  trial = function(t, c)
    local data = tl.corpus(c.corpus, { length = c.length, batch = c.batch })
    local model = make(c, data.vocab)
    local opt = tl.optim.adam(model, { lr = c.lr, clip = 1.0, schedule = "cosine", steps = c.steps,
      warmup = c.steps // 10 })
    for step in t:steps(c.steps, model, opt, data) do
      t:log { loss = tl.train.lm_step(model, opt, data:batch(step)) }
    end
    local bits = tl.eval.bits_per_token(model, data:stream "test", c.length)
    t:log { bits = bits, parameters = (model:count()) }
  end,

  report = { rows = "mixer", columns = { "bits", "loss", "parameters" } },
}
