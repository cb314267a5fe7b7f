-- report/verdicts/text_error.lua: how far a difference of two models may come from the test text
-- alone. The seeds' interval holds for this test text; with other texts of the same kind even the
-- mean over all seeds would differ. Trials log the mean losses of consecutive parts of the test
-- part (recipes/lm.lua), and the differences of two models over these parts have a standard error.
local logged_tensors = require "toeplab.store.logged_tensors"
local stats = require "toeplab.report.stats"

local text_error = { metrics = { test_ppl = true, test_loss = true } }

local NAME = "test_loss_parts"

local function read(store, id)
  for _, kept in ipairs(logged_tensors.names(store, id)) do
    if kept.name == NAME then
      local rows = logged_tensors.rows(store, id, NAME)
      return logged_tensors.read(store, rows[#rows]):totable()
    end
  end
end

-- Returns the losses of the parts in a trial; false if it logged none. Caches them, since a
-- baseline is compared with many settings.
local function parts_of(store, t)
  if t.loss_parts == nil then t.loss_parts = read(store, t.id) or false end
  return t.loss_parts
end

-- Returns the standard error, over the parts, of the mean log perplexity of b minus a, and the
-- number of parts. a and b: seed -> trial; seeds: the common ones. Returns nil unless all of these
-- trials have logged the losses of equally many parts.
function text_error.of(store, a, b, seeds)
  local sums
  for _, seed in ipairs(seeds) do
    local x, y = parts_of(store, a[seed]), parts_of(store, b[seed])
    if not x or not y or #x ~= #y or sums and #sums ~= #x then return nil end
    sums = sums or {}
    for i in ipairs(x) do sums[i] = (sums[i] or 0.0) + (y[i] - x[i]) / #seeds end
  end
  if not sums or #sums < 2 then return nil end
  return stats.deviation(sums) / math.sqrt(#sums), #sums
end

return text_error
