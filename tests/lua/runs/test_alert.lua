-- test_alert.lua: the user's command on failure, divergence and the end of a run.
local t = require "harness"
local core = require "toeplab.core"
local alert = require "toeplab.runs.alert"
local errors = require "toeplab.base.errors"
local trials = require "trials"

local script = [[
local tl = require "toeplab"
return tl.experiment "alarm" {
  fixed = { steps = 3, guarded = false }, grid = { kind = { %s } }, %s
  trial = function(t, c)
    for step in t:steps(c.steps) do
      if c.kind == "fails" and step == 2 then error("it's $(touch bad) `touch bad` broken") end
      t:log { loss = c.kind == "nan" and step >= 2 and 0 / 0 or 1.0 * step }
    end
  end,
}
]]

-- Runs the script with a command that appends what it is told to a file; returns the exit code, the
-- lines of the file once there are `count` of them, sorted, and what was said.
local function told(folder, kinds, more, count, words, command)
  local path = folder .. "/told"
  local code, said = trials.run(folder, script:format(kinds, more or ""), words, {
    alert = command or ([[printf '%%s|%%s|%%s|%%s\n' "$TOEPLAB_EVENT" "$TOEPLAB_EXPERIMENT" \
      "${TOEPLAB_TRIAL:-none}" "$TOEPLAB_TEXT" >>'%s']]):format(path),
    command = { "toeplab", "run", "--alert", "curl secret", "x.lua", "--alert=secret" } })
  local lines
  for _ = 1, 250 do
    lines = {}
    for line in (t.read(path) or ""):gmatch "[^\n]+" do lines[#lines + 1] = line end
    if #lines >= count then break end
    core.sys.sleep(0.02)
  end
  table.sort(lines)
  return code, lines, said
end

local function id_of(folder, kind)
  return trials.query(folder, ([[SELECT id FROM v_trials
    WHERE json_extract(config, '$.kind') = '%s']]):format(kind))[1].id
end

t.test("alerts report a failure, a divergence and the end, and never execute their text", function()
  t.in_folder(function(folder)
    local code, lines = told(folder, [["fails", "fine", "nan"]], nil, 3)
    t.eq(code, 1)
    t.eq(#lines, 3)
    t.eq(lines[1], ("diverged|alarm|%s|kind=nan: loss is nan at step 2"):format(
      id_of(folder, "nan")))
    t.eq(lines[2], "end|alarm|none|3 trials: 2 done, 1 failed")
    t.ok(lines[3]:find(("failed|alarm|%s|kind=fails: x.lua:6: it's $(touch bad) `touch bad` broken")
      :format(id_of(folder, "fails")):gsub("x.lua", folder .. "/x.lua"), 1, true), lines[3])
    t.ok(not core.sys.exists "bad" and not core.sys.exists(folder .. "/bad"))
    local row = trials.query(folder, "SELECT command FROM sweeps")[1]
    t.eq(row.command, "toeplab run x.lua") -- the command may hold a secret
  end)
end)

t.test("a value that is not finite, and the guard's stop for it, give one alert", function()
  t.in_folder(function(folder)
    local code, lines = told(folder, [["nan"]], [[guard = { metric = "loss", nan = "stop" },]], 2)
    t.eq({ code, #lines }, { 1, 2 })
    t.ok(lines[1]:find "^diverged.*kind=nan: loss is nan at step 2", lines[1])
    t.eq(lines[2], "end|alarm|none|1 trial: 1 failed")
  end)
end)

t.test("the number of alerts is limited, and does not change the run", function()
  t.in_folder(function(folder)
    local most = alert.MOST
    alert.MOST = 2
    local code, lines = told(folder, [["fails"]], "seeds = 4,", 3)
    alert.MOST = most
    t.eq({ code, #lines }, { 1, 3 })
    t.ok(lines[2]:find("this is the last alert before the end", 1, true)
      or lines[3]:find("this is the last alert before the end", 1, true), lines[3])
    t.eq(lines[1], "end|alarm|none|4 trials: 4 failed")
    t.eq(told(folder, [["fine"]], nil, 0, {}, "exit 7"), 0) -- a command that fails
    t.eq(told(folder, [["fine"]], nil, 0, { "steps=x" }), 2) -- nothing began: nothing is told
    t.eq(#select(2, told(folder, [["fine"]], nil, 3)), 3)
  end)
end)

t.test("toeplab run takes the command, which sees the results folder", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", script:format([["fine"]], ""))
    local said, code = t.shell(("cd '%s' && '%s' run -q x.lua -C r --alert "
      .. [['echo "$TOEPLAB_EVENT in $TOEPLAB_DIR" >told' 2>&1]]):format(folder,
      core.sys.executable()))
    t.ok(code == 0, said)
    t.eq(t.read(folder .. "/told"), "end in r\n")
    said, code = t.shell(("cd '%s' && '%s' run -q x.lua -C r --alert ' ' 2>&1"):format(folder,
      core.sys.executable()))
    t.eq({ said, code }, { "toeplab: run: --alert takes a command for sh\n", 2 })
  end)
end)

t.test("a command that hangs is stopped, and does not block the run's standard error", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", ([[local alert = require "toeplab.runs.alert"
      alert.LIMIT = 3
      local function of(command) return alert.new(command, "%s") end
      of("sleep 30"):trial("failed", { experiment = "x", id = "1", label = "y" }, "why")
      print(of("echo no server >&2"):finish("x", "quick"))
      print(of("sleep 30"):finish("x", "slow"))]]):format(folder))
    local start = core.sys.clock()
    t.eq(t.shell(("'%s' lua '%s/x.lua' 2>&1"):format(core.sys.executable(), folder)),
      ("true\nwaiting for the command of --alert, 3 s at most; its errors are in %s/alert.log\n"
        .. "warning: the command of --alert was stopped after 3 s\nfalse\n"):format(folder))
    t.ok(core.sys.clock() - start < 15)
    t.eq(t.read(folder .. "/alert.log"):match "no server\n", "no server\n")
  end)
end)

t.test("an alert runs without its log file, and may exit with the code of a timeout", function()
  t.in_folder(function(folder)
    local sent = folder .. "/sent"
    t.ok(alert.new("touch " .. sent, folder .. "/gone"):finish("x", "y"))
    t.ok(core.sys.exists(sent))
    local said, say = {}, errors.say
    errors.say = function(...) said[#said + 1] = (...) end
    local ok = alert.new("exit 124", folder):finish("x", "y")
    errors.say = say
    t.eq({ ok, said }, { false, {} })
  end)
end)

t.done()
