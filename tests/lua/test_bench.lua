-- test_bench.lua -- what benches share: turns, quartiles, ratios, and peers in another language.

local t = require "harness"
local core = require "toeplab.core"
local peer = require "toeplab.bench.peer"
local shell = require "toeplab.shell"
local timing = require "toeplab.bench.timing"

t.test("benches take turns and tell quartiles", function()
  local order, rows = {}, {}
  for i = 1, 2 do rows[i] = { run = function() order[#order + 1] = i end } end
  timing.interleaved(rows, 3)
  t.eq(order, { 1, 2, 1, 2, 1, 2, 1, 2 })
  t.ok(rows[1].low <= rows[1].median and rows[1].median <= rows[1].high)
  t.eq(timing.quantile({ 1, 2, 3, 4, 5 }, 0.25), 2)
  local own = { { run = function() return 6 end }, { run = function() return 2 end } }
  timing.interleaved(own, 4)
  t.eq({ timing.ratio(own[1], own[2]) }, { 3.0, 3.0, 3.0 })
end)

-- Runs fn with python as the interpreter that TOEPLAB_PYTHON names.
local function with_python(python, fn)
  local getenv = os.getenv
  os.getenv = function(name)
    if name == "TOEPLAB_PYTHON" then return python end
    return getenv(name)
  end
  local ok, why = pcall(fn)
  os.getenv = getenv
  if not ok then error(why, 0) end
end

t.test("a peer answers, and one that is not there is said", function()
  local fake = os.tmpname()
  assert(core.sys.write_file(fake, "#!/bin/sh\necho \"fake $2 $X\"\n"
    .. "while read -r a b; do [ \"$a\" = stop ] && exit; echo 0.$b; done\n"))
  assert(shell.run("chmod +x " .. shell.quote(fake)))
  with_python(fake, function()
    local p = assert(peer.python("tno_torch.py", { "X=it's" }, 2))
    t.eq(p.about, "fake 2 it's")
    t.eq(p:ask("forward", 25), 0.25)
    t.eq(p:ask("both", 5), 0.5)
    t.raises(p.ask, "the peer ended", p, "stop")
    p:close()
  end)
  os.remove(fake)
  with_python("/nowhere/python", function()
    local p, why = peer.python("tno_torch.py", {}, 1)
    t.eq({ p or "none", why },
      { "none", "/nowhere/python does not run benches/tno_torch.py: no torch?" })
  end)
  with_python("no-such-python", function()
    local p, why = peer.python("tno_torch.py", {}, 1)
    t.eq({ p or "none", why }, { "none", "there is no no-such-python" })
  end)
end)

t.done()
