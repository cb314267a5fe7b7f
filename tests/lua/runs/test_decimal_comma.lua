-- test_decimal_comma.lua: a locale with a decimal comma changes neither options, labels, tables,
-- figures nor reports.
local core = require "toeplab.core"
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

t.test("a decimal comma changes nothing", function()
  t.in_folder(function(folder)
    local function says(command)
      -- glibc's setlocale leaks the text of LOCPATH, which a sanitiser reports
      local text, status = t.shell(("cd '%s'; export LOCPATH=. LSAN_OPTIONS=detect_leaks=0; "
        .. "toeplab='%s'; { %s ; } 2>&1")
        :format(folder, core.sys.executable(), command))
      return text, status == 0
    end
    local _, made = says "localedef -i de_DE -f UTF-8 ./de_DE.UTF-8"
    local _, there = says [[$toeplab lua -e 'assert(os.setlocale "de_DE.UTF-8")']]
    if not (made and there) then t.skip "localedef makes no locale with a decimal comma" end
    local results = {}
    for i, set in ipairs { "", [[assert(os.setlocale "de_DE.UTF-8")]] } do
      local text = EXPERIMENT:gsub("LOCALE", set, 1)
      ok(core.sys.write_file(folder .. "/comma.lua", text))
      local run, good = says(([[export TOEPLAB_DIR=results%d
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
