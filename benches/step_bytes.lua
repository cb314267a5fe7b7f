-- step_bytes.lua: predicts the milliseconds of a language model's training step on a GPU from the
-- bytes and FLOP of its operators, as Markdown tables.
--   ./lab lua benches/step_bytes.lua [SEQUENCES [LENGTH [DIM [LAYERS [VOCAB]]]]]
-- The bytes are those of the tensors that each operator is given. tl.profile counts them in steps
-- of the same model with 6 and 7 sequences: they grow with the sequences along a line. What the
-- kernels of a GPU move beside them, within an operator, is added by formula (docs/gpu.md).
local core = require "toeplab.core"
local cost = require "toeplab.train.cost"
local models = require "toeplab.models"
local optim = require "toeplab.train.optim"
local profile = require "toeplab.train.profile"
local train = require "toeplab.train"

local sequences, n, dim, layers, vocab = 128, 512, 512, 7, 50264
do
  local given = {}
  for i, word in ipairs(arg) do
    given[i] = math.tointeger(tonumber(word))
    if not given[i] or given[i] < 1 then
      error(("step_bytes.lua: %q is not a whole number above 0"):format(word), 0)
    end
  end
  sequences, n, dim = given[1] or sequences, given[2] or n, given[3] or dim
  layers, vocab = given[4] or layers, given[5] or vocab
end

-- What an H100 reaches: FLOP a second of products in each precision, bytes a second of the others.
local RATES = { float32 = 48e12, tf32 = 300e12, bf16 = 550e12 }
local BANDWIDTH = 2.5e12

-- ---- Counting -----------------------------------------------------------------------------------

local model = models.tnn_lm { vocab = vocab, layers = layers, dim = dim, backend = "fft",
  rpe_dim = 64, rpe_layers = 3 }
local opt = optim.adam(model, { lr = 1e-4 })

-- Returns the bytes of each operator in a step, by name.
local function count(rows)
  local batch, bytes = cost.tokens(rows, n + 1, vocab), {}
  for _, k in ipairs(profile(train.lm_step, model, opt, batch).kernels) do
    bytes[k.name] = k.bytes
  end
  return bytes
end

local FEW = 6 -- so many that large activations are computed again, as with more
for b = FEW, FEW + 1 do count(b) end -- makes plans and the state of the optimiser
local few, more, operators = count(FEW), count(FEW + 1), {}
for name, bytes in pairs(few) do
  operators[name] = bytes + (sequences - FEW) * (more[name] - bytes)
end
operators.adam = 28.0 * model:count() -- reads p, g, m, v and writes p, m, v
operators.norm2 = operators.norm2 and 4.0 * model:count()

-- ---- Formulas -----------------------------------------------------------------------------------

local rows = sequences * n
local width = 3 * dim -- channels of the Toeplitz operators
local PRODUCTS = { matmul = true, mlp = true, mlp_grad = true }
local APART = { tno = true, tno_grad = true, cross_entropy = true }

-- Bytes of the parts of a step. then_: as the kernels were when the steps in docs/gpu.md were
-- measured: the loss read its logits once more, and rounded them and the weights in each product.
local function parts_of(precision, then_)
  local low, p = precision == "bf16", { products = 0.0, rest = 0.0 }
  for name, bytes in pairs(operators) do
    if PRODUCTS[name] then
      p.products = p.products + bytes
    elseif not APART[name] then
      p.rest = p.rest + bytes
    end
  end
  -- Each product rounds both factors: it reads 4 bytes and writes 2 of each number. In a forward
  -- pass and its two gradients each operand is a factor twice and a result once.
  p.rounding = low and 6 / 4 * (2 / 3) * operators.matmul or 0.0
  p.tno = layers * (17 + 26) * 4.0 * rows * width -- backend fft
  local logits = 1.0 * rows * vocab
  p.loss = logits * (8 + (low and not then_ and 2 or 4) + (then_ and 4 or 0))
  if low then
    local blocks = then_ and 2 * math.ceil(rows / math.max(64, (256 << 20) // 4 // vocab)) or 1
    p.rounding = p.rounding + 6.0 * vocab * dim * blocks
    p.loss = p.loss + (then_ and 2 * 6 * logits or 0)
  end
  return p
end

-- The products' bytes are moved while tensor cores compute.
local function milliseconds(precision, p)
  local flop = cost.step_flop(model, n, sequences)
  local products = math.max(flop / RATES[precision], p.products / BANDWIDTH)
  return 1e3 * (products + (p.rounding + p.tno + p.loss + p.rest) / BANDWIDTH), 1e3 * products
end

-- ---- Tables -------------------------------------------------------------------------------------

local names = {}
for name, bytes in pairs(operators) do names[#names + 1] = bytes > 1e8 and name or nil end
table.sort(names, function(a, b) return operators[a] > operators[b] end)
print("| operator | GB of its tensors |\n| --- | --: |")
for _, name in ipairs(names) do print(("| %s | %.3g |"):format(name, operators[name] / 1e9)) end
print(("\n%.2f TFLOP; %d sequences of %d, %d layers of width %d, %d tokens, %s\n"):format(
  cost.step_flop(model, n, sequences) / 1e12, sequences, n, layers, dim, vocab, core.device()))
print("| precision | kernels | products GB | rounding | TNO | loss | rest | products ms | all ms |")
print("| --- | --- | --: | --: | --: | --: | --: | --: | --: |")
for _, precision in ipairs { "float32", "tf32", "bf16" } do
  for _, then_ in ipairs { true, false } do
    local p = parts_of(precision, then_)
    local all, products = milliseconds(precision, p)
    print(("| %s | %s | %.3g | %.3g | %.3g | %.3g | %.3g | %.3g | %.3g |"):format(precision,
      then_ and "when measured" or "now", p.products / 1e9, p.rounding / 1e9, p.tno / 1e9,
      p.loss / 1e9, p.rest / 1e9, products, all))
  end
end
