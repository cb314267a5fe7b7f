-- test_nanogpt.lua: the Transformer of experiments/nanogpt.lua reaches the loss that nanoGPT's
-- README reports (label long: it trains 2,000 steps, three minutes of one processor).
local t = require "harness"
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"
local published_tables = require "toeplab.trials.published_tables"
local trials = require "trials"

-- nanoGPT's 1.88 is the mean over 20 batches, with a standard error of about 0.015, and seeds of
-- ours differ by about 0.01: 0.05 on either side of 1.90 is more than 2 standard errors.
local LEAST, MOST = 1.85, 1.95

t.test("the published loss is reached on the whole held-out part", function()
  if not datasets.place "tinyshakespeare/input.txt" then
    t.skip "tinyshakespeare is not here; TOEPLAB_DATA may hold it"
  end
  t.in_folder(function(folder)
    local said, code = t.shell(
      ("'%s' --threads 1 run -q -C '%s/results' '%s' model=attention seeds=1 2>&1"):format(
        core.sys.executable(), folder, t.root .. "experiments/nanogpt.lua"))
    t.eq(code, 0)
    local last = {}
    for _, row in ipairs(trials.query(folder, "SELECT name, value FROM v_last")) do
      last[row.name] = row.value
    end
    print(("loss %.4f, published %.2f, 5-gram %.4f"):format(last.val_loss, last.published_loss,
      last.fivegram_loss))
    t.ok(last.val_loss > LEAST and last.val_loss < MOST, said)
    t.eq(last.published_loss, published_tables.read("field/nanogpt").rows[1][2])
  end)
end)

t.done()
