-- power.lua: the sweep of torture_power.sh, whose machine loses power. The guard rolls some of its
-- trials back. Each trial writes the steps that it trains into the folder `trained`, which is on
-- another disk, so that the test sees which steps are trained twice.
local tl = require "toeplab"

return tl.experiment "power" {
  fixed = { steps = 30, bad = 20, pause = 0.008, trained = "" },
  grid = { rate = { 0.3, 0.6, 0.9 } },
  seeds = 2,
  checkpoint = { steps = 4 },
  guard = { metric = "loss", nan = "rollback", retries = 2, lr_factor = 0.5 },
  trial = function(t, c)
    local model = tl.nn.Linear(4, 4)
    local opt = tl.optim.sgd(model, { lr = 0.1 })
    local noise = tl.stream_of "noise"
    local note <close> = assert(io.open(c.trained .. "/" .. c.rate .. "-" .. t.seed, "a"))
    note:setvbuf "no"
    for step in t:steps(c.steps, model, opt) do
      note:write(step, "\n")
      opt:zero_grad()
      local y = model(noise:normal(tl.zeros(8, 4), 0, c.rate))
      local loss = (y * y):mean()
      loss:backward()
      local lr = opt:step().lr
      local bad = step == c.bad and c.rate > 0.5 and lr > 0.07
      t:log { loss = bad and 0 / 0 or loss:item(), lr = lr }
      tl.sys.sleep(c.pause)
    end
    t:text("note", "the rate was " .. c.rate)
    t:log { final = model(tl.ones(1, 4)):sum():item() }
  end,
  report = { rows = "rate", columns = { "loss", "final" } },
}
