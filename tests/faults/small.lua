-- small.lua: a sweep of two short trials for failing disks (torture_disk.sh). At step 5 the second
-- trial runs the shell command in the environment variable ATTACK, whose parent process is the
-- worker.
local tl = require "toeplab"

return tl.experiment "small" {
  fixed = { steps = 7 },
  seeds = 2,
  checkpoint = { steps = 2 },
  trial = function(t, c)
    local x = tl.zeros(64)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * 0.7 + noise:normal(tl.zeros(64), 0, 1))
      t:log { loss = (x * x):mean():item() }
      local attack = step == 5 and t.seed == 2 and os.getenv "ATTACK"
      if attack then os.execute(attack) end
    end
    t:text("note", "the sum is " .. x:sum():item())
    t:log { final = x:sum():item() }
  end,
  report = { rows = "seed", columns = { "loss", "final" } },
}
