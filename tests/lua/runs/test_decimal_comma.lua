-- test_decimal_comma.lua: a locale with a decimal comma changes neither options, labels, tables,
-- figures nor reports.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"
local t = require "harness"
local ok, eq = t.ok, t.eq

local EXPERIMENT = [[
LOCALE
local tl = require "toeplab"
return tl.experiment "comma" {
  grid = { rate = { 0.25, 0.5 } }, seeds = 2,
  trial = function(t, c)
    require("toeplab.core").tno("ski", 8, 2, true, { lambda = 0.99 })
    for step in t:steps(2) do t:log { loss = c.rate * step } end
    t:text("note", tostring(c.rate) .. (" %g"):format(c.rate))
  end,
  report = { rows = "rate", columns = { "loss" } },
}]]

-- Runs a shell command with $toeplab in folder and returns what it printed.
local function says(folder, command)
  local out = io.popen(("cd '%s'; toeplab='%s'; { %s ; } 2>&1"):format(folder,
    core.sys.executable(), command))
  local text = out:read "a"
  return text, out:close()
end

t.test("a decimal comma changes nothing", function()
  t.in_folder(function(folder)
    local made = shell.on_path "localedef"
      and os.execute(("localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >'%s/log' 2>&1"):format(folder,
        folder))
    local comma = "export LOCPATH=.; "
    ok(core.sys.write_file(folder .. "/there.lua", [[assert(os.setlocale "de_DE.UTF-8")]]))
    local _, there = says(folder, comma .. "$toeplab lua there.lua")
    if not made or not there then
      print "skipped: localedef makes no locale with a decimal comma"
      os.exit(77)
    end
    local results = {}
    for i, set in ipairs { "", [[assert(os.setlocale "de_DE.UTF-8")]] } do
      local text = EXPERIMENT:gsub("LOCALE", set, 1)
      ok(core.sys.write_file(folder .. "/comma.lua", text))
      local run, good = says(folder, comma .. ([[export TOEPLAB_DIR=results%d
        $toeplab run -q comma.lua rate=0.25,0.5 && $toeplab plan comma.lua --list &&
        $toeplab table comma --csv && $toeplab ls comma --json --columns rate,loss &&
        $toeplab report comma -o page.html && grep -c svg page.html]]):format(i))
      ok(good, run)
      results[i] = run:gsub("results%d", ""):gsub("%x%x%x%x%x%x%x%x+", "ID")
    end
    ok(results[1]:find "rate=0.25", results[1])
    eq(results[2], results[1])
  end)
end)

t.done()
