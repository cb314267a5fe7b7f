-- nn/mixers/attention/lag_bias.lua: defines LagBias, trained numbers that attention adds to its
-- scores, or with which it multiplies its weights, by the lag between query and key.

local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local core = require "toeplab.core"
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"

local BUCKETS, FAR = 32, 128 -- of T5: lags from FAR on share a bucket

-- bias(before, n) -> [heads,before+2n-1], as core.attention takes it for n queries after `before`
-- others: weight[row(lag),head] of the lags from before + n - 1 down to 1 - n, where weight starts
-- as N(0, 0.02^2), or as 1 with ones.
--   form "each": a row for each lag; lags from max_length - 1 on share the last one
--   (TNN, Eq. 1: a score has a term for i - j)
--   form "t5": half of the 32 rows are for one lag each, the others for lags that grow by a factor,
--   up to 128; if not causal, each sign of the lag has 16 rows (Raffel et al. 2020, Sec. 2.1)
local LagBias = class("LagBias", {
  heads = options.field { type = "int", min = 1 },
  form = options.field { default = "each", choices = { "each", "t5" } },
  causal = true,
  ones = false,
  max_length = options.field { default = 512, min = 1,
    help = "rows of lags; longer lags share the last" },
}, { "heads" })

-- Returns the row of T5 for a lag that is at least 0, among `rows`.
local function bucket(lag, rows)
  local exact = rows // 2
  if lag < exact then return lag end
  local part = math.log(lag / exact) / math.log(FAR / exact)
  return math.min(rows - 1, exact + math.floor(part * (rows - exact)))
end

-- Returns the row of a lag, from 0. Causal attention hides negative lags, which use the row of 0.
local function row_of(o, lag)
  local size = o.causal and math.max(lag, 0) or math.abs(lag)
  local rows = o.form == "each" and o.max_length or o.causal and BUCKETS or BUCKETS // 2
  local row = o.form == "each" and math.min(size, rows - 1) or bucket(size, rows)
  return lag < 0 and not o.causal and rows + row or row
end

local function rows_of(o, before, n)
  local ids = {}
  for lag = before + n - 1, 1 - n, -1 do ids[#ids + 1] = row_of(o, lag) end
  return core.ids(ids)
end

function LagBias:build(o)
  local rows = o.form == "t5" and BUCKETS or (o.causal and 1 or 2) * o.max_length
  self.weight = initial.parameter(o.ones and core.ones(rows, o.heads)
    or initial.init.normal(core.zeros(rows, o.heads), 0, 0.02))
  self.rows = cache.recent(function(n) return rows_of(o, 0, n) end)
end

function LagBias:forward(before, n)
  local rows = before == 0 and self.rows(n) or rows_of(self.opt, before, n)
  return self.weight:gather(rows):transpose(1, 2)
end

LagBias.stepwise = true -- the caller passes the positions, so a session can step it

return { LagBias = LagBias }
