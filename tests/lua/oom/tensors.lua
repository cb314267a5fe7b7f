-- tensors.lua: for lua_oom; tensors, operators, gradients, streams, optimisers, vocabularies, and
-- operators of backends.
local core = require "toeplab.core"

local stream = core.stream(1, "test")
local x = core.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
local w = stream:normal(core.zeros(4, 3), 0, 0.1):require_grad()
local b = core.zeros { 4 }:require_grad()
local ids = core.ids { 0, 3 }

local hidden = core.linear(x, w, b):silu() * 2 + 1 / core.full({ 4 }, 3)
hidden = core.layer_norm(hidden, nil, nil, 1e-5)
hidden = core.concat({ hidden:narrow(2, 1, 2), hidden:narrow(2, 3, 2) }, 2):reshape(2, -1)
hidden = hidden:transpose(1, 2):permute { 2, 1 }
local loss = core.cross_entropy(stream:dropout(hidden, 0.5), ids)
loss:backward()
assert(w:grad():shape()[1] == 4 and core.grad_norm { w, b } > 0)
core.adam_step({ w, b }, { core.zeros(4, 3), core.zeros(4) }, { core.zeros(4, 3), core.zeros(4) },
  { lr = 0.1, step = 1 })
core.no_grad(function()
  local kept <close> = x:clone()
  assert(core.unary("exp", kept):sum():item() > 0 and x:argmax():get(1) == 2)
end)
assert(#x:totable() == 2 and tostring(x) == "tensor [2,3] float32" and #x:show() > 20)
assert(not pcall(core.matmul, x, x))

local vocab = core.vocab_chars "hello"
assert(vocab:decode(vocab:encode "hole") == "hole")
assert(core.windows(vocab:encode "hello", core.ids { 0, 1 }, 2):dim(1) == 2)
assert(stream:permutation(3):numel() == 3)
local order, rank = x:argsort()
local places, slots = x:topk(2)
assert(x:batch_gather(places):numel() == 4 and order:dim(2) + rank:dim(2) + slots:dim(2) == 9)
assert(stream:integers(5, 3):numel() + stream:places(core.ones(2), 4):numel() == 11)

local product = core.func {
  forward = function(saved, a, b)
    saved.a, saved.b = a, b
    return a * b, a
  end,
  backward = function(saved, dy, da) return dy * saved.b + da, dy * saved.a end,
}
local left = core.full({ 2 }, 3):require_grad()
local y, same = product(left, core.full({ 2 }, 5):require_grad());
(y + same):sum():backward()
assert(left:grad():get(2) == 6.0)
assert(core.grad(product(left, left):sum(), left):get(1) == 6.0 and left:grad():get(2) == 6.0)
assert(core.where(core.gt(left, 2), left ^ 2, 0):get(1) == 9.0)

for _, backend in ipairs { "naive", "matrix", "fft", "fd", "ski" } do
  local tno = core.tno(backend, 4, 2, true)
  local coef, params = core.ones(tno:points():numel(), 2):require_grad(), {}
  for i, p in ipairs(tno:params()) do params[i] = core.ones(p.shape):require_grad() end
  local scaled = core.decay(coef, tno:points(), core.full({}, 0.9))
  tno:apply(scaled, params, core.ones(1, 4, 2)):sum():backward()
  assert(tno:dense(coef, params):dim(1) == 2 and #params == (backend == "ski" and 1 or 0))
end
local _, sizes = core.svd(x)
assert(sizes:numel() == 2 and core.solve(core.tensor { { 2, 0 }, { 0, 4 } }, x):dim(2) == 3)
for _, kind in ipairs { "ring", "exact", "relaxed" } do
  local r <close> = core.recurrence(core.ones(3, 2), nil, kind)
  assert(r:sizes().lags == 3)
  local step = core.device() == "cpu" -- which no device has
  assert(not step or r:step(x:narrow(2, 1, 2):narrow(1, 1, 1)):dim(2) == 2)
  assert(kind ~= "exact" or select("#", r:modes()) == 3)
end
assert(#core.backends() >= 3 and core.build_info().version == core.version)
