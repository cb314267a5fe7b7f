-- test_numerics.lua: the losses of some short training runs, held here as digits, so that whoever
-- changes what is computed learns of it and raises TL_NUMERICS.
local core = require "toeplab.core"
local t = require "harness"
local tl = require "toeplab"

-- Another processor or number of threads rounds differently: over eight steps by less than this.
local TOLERANCE = 1e-4

local common = { vocab = 17, layers = 2, dim = 16, expand = 2, rpe_dim = 8, rpe_layers = 1 }
local cases = { -- name, options of the model, the losses of steps 1, 4 and 8
  { "rac", { backend = "rac", decay = 0.9 },
    { 3.44756, 3.23308, 3.01544 } },
  { "fft", { backend = "fft", decay = "learnable" },
    { 3.43268, 3.33664, 3.04440 } },
  { "naive", { backend = "naive", encoder = "table" },
    { 3.39317, 3.33253, 2.97667 } },
  { "fd", { backend = "fd", decay = "none" },
    { 3.43207, 3.31620, 3.10116 } },
  { "ski", { backend = "ski", decay = "none", causal = false },
    { 3.26361, 2.97643, 2.84428 } },
  { "layout B with dropout", { backend = "fft", layout = "B", dropout = 0.1 },
    { 3.35833, 3.37326, 3.23158 } },
  { "attention", { structure = "attention+glu", heads = 2, tied = false },
    { 3.06886, 3.01027, 2.89267 } },
}

local function train(more)
  local options = {}
  for _, list in ipairs { common, more } do
    for key, value in pairs(list) do options[key] = value end
  end
  tl.seed(1)
  local model = tl.models.tnn_lm(options)
  local opt = tl.optim.adam(model, { lr = 1e-2, kind = "adamw", weight_decay = 0.1, clip = 1.0 })
  local stream, losses = tl.stream_of "numerics", {}
  for step = 1, 8 do
    local rows = {}
    for b = 1, 2 do
      rows[b] = {}
      for i = 1, 33 do rows[b][i] = stream:below(17) end
    end
    losses[step] = tl.train.lm_step(model, opt, core.ids(rows))
  end
  return losses
end
for _, case in ipairs(cases) do
  local name, options, held = table.unpack(case)
  t.test("the losses of " .. name, function()
    local losses = train(options)
    for i, step in ipairs { 1, 4, 8 } do
      local loss = losses[step]
      t.ok(math.abs(loss - held[i]) <= TOLERANCE, ("the loss of step %d is %.5f and was %.5f: "
        .. "raise TL_NUMERICS if this is meant, and put { %.5f, %.5f, %.5f } here")
        :format(step, loss, held[i], losses[1], losses[4], losses[8]))
    end
  end, "cpu")
end

t.done()
