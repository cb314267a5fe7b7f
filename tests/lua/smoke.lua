-- smoke.lua: runs experiments at scale smoke, for tests of what they leave.
local t = require "harness"
local records = require "toeplab.store.records"
local runner = require "toeplab.runs.runner"

local quiet = { write = function() end, flush = function() end }

-- Runs an experiment at scale smoke with further words, and calls check(store, path).
return function(name, words, check)
  t.in_folder(function(folder)
    local path, printed = ("../../experiments/%s.lua"):format(name), _G.print
    _G.print = function() end
    local ok, code = pcall(runner.run, path, { "scale=smoke", table.unpack(words) },
      { dir = folder, out = quiet, command = { "toeplab", "run" } })
    _G.print = printed
    t.eq({ ok, code }, { true, 0 })
    local store <close> = records.open(folder, "r")
    check(store, path)
  end)
end
