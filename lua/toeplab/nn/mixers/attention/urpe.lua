-- nn/mixers/attention/urpe.lua: defines Urpe, attention whose weights are multiplied by trained
-- numbers of the lag between query and key (Luo et al. 2022, Eq. 6).

local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local core = require "toeplab.core"
local heads = require "toeplab.nn.mixers.heads"
local LagBias = require("toeplab.nn.mixers.attention.lag_bias").LagBias
local options = require "toeplab.base.options"

-- attend(q, k, v, scale, more) -> (softmax(scale q k^T + bias) * C) v, C_ij = c_(i-j) by head, with
-- the arguments of heads.attend. c starts at 1, where this is plain attention. Softmax alone gives
-- every row of weights the sum 1, so that it cannot compute all functions of positions; this can.
-- Time and memory grow as n^2.
local Urpe = class("Urpe", {
  heads = options.field { type = "int", min = 1 },
  causal = true,
  max_length = LagBias.spec.fields.max_length,
}, { "heads" })

Urpe.stepwise = true -- the caller passes all keys

function Urpe:build(o)
  self.lags = LagBias(o.heads, { causal = o.causal, max_length = o.max_length, ones = true })
  self.columns = cache.recent(function(n) return Urpe.columns_of(0, n) end)
end

-- Returns the ids [n,before+n] by which a tensor [heads,before+2n-1] becomes a Toeplitz matrix for
-- each head.
function Urpe.columns_of(before, n)
  local ids = {}
  for i = 1, n do
    ids[i] = {}
    for j = 1, before + n do ids[i][j] = j - i + n - 1 end
  end
  return core.ids(ids)
end

-- Returns 1 where key j is visible to query i, else 0, [n,before+n].
local function visible(o, before, n)
  local i = core.range(before + 1, before + n):reshape(n, 1)
  local lag = i - core.range(1, before + n):reshape(1, before + n)
  local seen = o.causal and core.ge(lag, 0) or core.ge(lag, -math.huge)
  if not o.window then return seen end
  return seen * core.lt(core.abs(lag), o.window)
end

function Urpe:forward(q, k, v, scale, more)
  local n, all = q:dim(3), k:dim(3)
  local before = all - n
  local columns = before == 0 and self.columns(n) or Urpe.columns_of(before, n)
  local function matrix(lags) return lags:transpose(1, 2):gather(columns):permute { 3, 1, 2 } end
  local seen = visible(more, before, n):reshape(1, 1, n, all)
  if more.mask then seen = seen * more.mask:reshape(-1, 1, 1, all) end
  local scores = core.affine(core.matmul(q, k, false, true), scale, 0) + heads.hide(seen)
  if more.bias then scores = scores + matrix(more.bias) end
  local weights = core.softmax(scores) * seen -- 0 where a query sees no key
  if more.drop then weights = more.drop(weights) end
  return core.matmul(weights * matrix(self.lags(before, n)), v)
end

return { Urpe = Urpe }
