-- torture_index.lua: removes the database of a results folder again and again while a run goes on
-- there. The database is an index of the folder's files, so every verb prints what it printed
-- before, byte for byte, and the run loses nothing.
--   cd tests/lua && toeplab lua ../torture/torture_index.lua [MOMENTS [SEED]]
local t = require "harness"
local clusters = require "clusters"
local core = require "toeplab.core"

local MOMENTS, SEED = tonumber(arg[1] or 8), tonumber(arg[2] or 1)

-- Of six trials one fails; pauses make a long sweep of it, until there is a file "hurry".
local EXPERIMENT = [[
local tl = require "toeplab"
return tl.experiment "%s" {
  fixed = { steps = %d, pause = %s },
  grid = { rate = { 0.25, 0.5 } },
  seeds = 3,
  checkpoint = { steps = 5 },
  trial = function(t, c)
    local x = tl.zeros(16)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * c.rate + noise:normal(tl.zeros(16), 0, 1))
      t:log { loss = (x * x):mean():item(), one = step }
      if not tl.sys.exists "FOLDER/hurry" then tl.sys.sleep(c.pause) end
    end
    if c.rate == 0.5 and t.seed == 2 then error "it fails" end
    t:text("note", "the sum is " .. x:sum():item())
    t:log { final = x:sum():item() }
  end,
  report = { rows = "rate", columns = { "loss", "final" } },
}
]]

-- Verbs of what has ended before the run begins, and of all.
local ENDED = { "ls experiment=short --columns loss,step,error", "ls experiment=sweep",
  "ls experiment=short --json", "ls --tag good", "ls --trash", "ls --failures experiment=short",
  "table short", "table sweep --by rate", "compare short rate=0.25 rate=0.5",
  "export experiment=short", "show experiment=short", "status sweep",
  "ls --sql \"SELECT * FROM v_trials WHERE experiment <> 'long' ORDER BY id\"",
  "ls --sql \"SELECT m.* FROM v_metrics m JOIN v_trials t ON t.id = m.trial"
    .. " WHERE t.experiment <> 'long' ORDER BY m.trial, m.name, m.step\"" }
local ALL = { "ls", "table long", "table short", "compare long rate=0.25 rate=0.5", "export",
  "show @last", "ls --sql 'SELECT * FROM v_trials ORDER BY id'",
  "ls --sql 'SELECT * FROM v_metrics'", "ls --sql 'SELECT * FROM v_artifacts'",
  "ls --sql 'SELECT * FROM v_members'", "ls --sql 'SELECT * FROM v_trash'",
  "ls --sql 'SELECT * FROM v_events ORDER BY created'" }

-- Returns what each verb prints, and its exit code.
local function answers(c, verbs)
  local list = {}
  for i, words in ipairs(verbs) do
    local code, said = c:ask(words .. (" -C '%s'"):format(c.root))
    list[i] = ("$ %s: %d\n%s"):format(words, code, said)
  end
  return list
end

local function check(c, verbs, before, moment)
  c:wait_for(("rm -f '%s'/runs.db*"):format(c.root))
  if math.random() < 0.5 then core.sys.sleep(0.1) end -- the run or a verb makes it again
  for i, said in ipairs(answers(c, verbs)) do
    if said ~= before[i] then
      error(("moment %d: printed before:\n%s\nand now:\n%s"):format(moment, before[i], said))
    end
  end
end

local function ask(c, words, want)
  local code, said = c:ask(words .. (" -C '%s'"):format(c.root))
  t.ok(code == (want or 0), words .. ":\n" .. said)
end

-- Two sweeps, one of them asked for twice with a part of its trials, an array job of which two
-- trials wait, a tag, a note, a trial in the trash and one that came back from there.
local function fill(c)
  local short = ("run -q '%s/short.lua'"):format(c.folder)
  ask(c, short, 1)
  ask(c, short .. " rate=0.25")
  ask(c, short .. " steps=5 seeds=1")
  t.eq(c:submit(), 0)
  for i = 1, 2 do t.eq(c:task(1, i), 0) end
  c:queue { { 1, 3, "PENDING" }, { 1, 4, "PENDING" } }
  ask(c, "mark experiment=short rate=0.25 --tag good --note 'the first one'")
  ask(c, "rm experiment=short rate=0.5 seed=1")
  ask(c, "rm experiment=short rate=0.25 seed=3")
  ask(c, "rm --restore experiment=short rate=0.25 seed=3")
end

local METRICS = [[SELECT t.config, t.seed, t.status, m.name, m.step, printf('%a', m.value) AS value
  FROM v_trials t JOIN v_metrics m ON m.trial = t.id WHERE t.experiment = 'long'
  ORDER BY 1, 2, 4, 5]]

t.test(("%d removals of the database change no answer"):format(MOMENTS), function()
  math.randomseed(SEED)
  clusters.with(function(c)
    local script = EXPERIMENT:gsub("FOLDER", c.folder)
    t.write(c.folder .. "/short.lua", script:format("short", 12, "0"))
    t.write(c.folder .. "/long.lua", script:format("long", 40 * MOMENTS, "0.1"))
    fill(c)
    local before = answers(c, ENDED)
    local long = ("run -q '%s/long.lua' -j2"):format(c.folder)
    local process = core.sys.spawn({ "/bin/sh", "-c", c:line(long .. (" -C '%s'"):format(c.root)) },
      c.folder .. "/log")
    local code, during = nil, 0
    for moment = 1, MOMENTS do
      core.sys.sleep(math.random() * 0.1)
      code = code or process:wait()
      during = during + (code and 0 or 1)
      check(c, ENDED, before, moment)
    end
    t.write(c.folder .. "/hurry", "")
    code = code or process:wait(true)
    t.eq(code, 1)
    t.holds(t.read(c.folder .. "/log"), "6 trials: 5 done, 1 failed")
    print(("# %d of %d moments were during the run"):format(during, MOMENTS))
    check(c, ALL, answers(c, ALL), MOMENTS + 1)
    local rows = c:rows(METRICS)
    c.root = c.folder .. "/alone"
    ask(c, long, 1)
    t.eq(rows, c:rows(METRICS))
  end)
end)

arg[1] = nil -- the harness takes it for a pattern
t.done()
