-- test_settings.lua: which of the trials at one setting count, where several commands made them.
local t = require "harness"
local versions = require "toeplab.report.versions"

-- Each case: its name, the trials, newest sweep first, as words "sweep setting seed version", with
-- "-" for the version of one that is queued, and the numbers of those that are replaced.
local cases = {
  { "more seeds of one version add up", { "2 a 4 x", "1 a 1 x", "1 a 2 x" }, {} },
  { "other settings of an older version stay", { "2 a 1 y", "1 b 1 x" }, {} },
  { "an older version goes, its other seeds too", { "2 a 1 y", "1 a 1 x", "1 a 2 x" }, { 2, 3 } },
  { "what one command asked for counts, adopted or new", { "2 a 1 x", "2 a 2 y", "1 a 3 x" }, {} },
  { "a queued trial takes its seed, and the older version goes",
    { "2 a 1 -", "2 a 2 -", "1 a 1 x", "1 a 3 x" }, { 3, 4 } },
  { "a queued trial of a new seed replaces none", { "2 a 3 -", "1 a 1 x", "1 a 2 x" }, {} },
  { "of three versions the newest counts",
    { "3 a 1 z", "2 a 1 y", "2 a 2 y", "1 a 3 x", "1 b 1 x" }, { 2, 3, 4 } },
}

for _, case in ipairs(cases) do
  t.test(case[1], function()
    local points, rows, want = {}, {}, {}
    for i, words in ipairs(case[2]) do
      local sweep, at, seed, version = words:match "(%S+) (%S+) (%S+) (%S+)"
      points[at] = points[at] or {}
      rows[i] = { id = i, sweep = tonumber(sweep), point = points[at], seed = tonumber(seed),
        status = version == "-" and "queued" or "done", made = { version = version } }
    end
    for _, id in ipairs(case[3]) do want[id] = true end
    t.eq(versions.replaced(rows), want)
  end)
end

t.test("the newest choice of a key for a setting counts", function()
  local counts = versions.newest_choice "lr"
  for _, case in ipairs { { { op = "a", lr = 1 }, 9, true }, { { op = "a", lr = 3 }, 9, true },
    { { op = "a", lr = 2 }, 8, false }, { { op = "b", lr = 2 }, 8, true },
    { { op = "a", lr = 1 }, 7, true }, { { op = "b", lr = 1 }, 7, false } } do
    t.eq(counts(case[1], case[2]), case[3])
  end
  t.ok(versions.newest_choice(nil)({ lr = 3 }, 1))
end)

t.test("the value with the fewest diverged seeds and the best mean counts",
  function()
    for _, case in ipairs {
      { { { 2, 3 }, { 1, 3 } }, "min", 2 }, { { { 2, 3 }, { 1, 3 } }, "max", 1 },
      { { { 2, false }, { 9, 9 } }, "min", 2 }, { { { 2, false }, { 1, false } }, "min", 2 },
      { { { 2 }, { 1 } }, "min", 2 }, { { { 2, 9 }, { 3 } }, "min", 1 }, -- the seeds of both
      { { {}, {} }, "min", 1 }, { { { 1, 1 }, { 1, 1 } }, "min", 1 },
      { { { 5, 5 }, { [2] = 4 }, { 3, 6 } }, "min", 2 },
      { { { false, 1 }, { 3, 2 }, { 2, 2, 1 } }, "min", 3 }, -- the first one's seeds do not matter
      { { {}, { 2, 2 }, { 1, 1 } }, "min", 3 }, { { {}, { false } }, "min", 2 },
    } do
      t.eq(versions.best(case[1], case[2]), case[3])
    end
  end)

t.test("a value whose trials ended without a result loses", function()
  for _, status in ipairs { "guard", "failed", "timeout", "budget", "pruned", "done" } do
    local rows = {}
    for seed = 1, 3 do
      rows[#rows + 1] = { at = { op = "a", lr = 1 }, seed = seed, status = "done", result = 5.0 }
      rows[#rows + 1] = { at = { op = "a", lr = 2 }, seed = seed, status = seed == 2 and status
        or "done", result = seed ~= 2 and 4.0 or nil }
    end
    local counts = versions.chosen(rows, "lr", "min")
    t.eq({ counts { op = "a", lr = 1 }, counts { op = "a", lr = 2 } }, { true, false })
    rows[4].status, rows[4].result = "interrupted", nil -- it may still come to anything
    counts = versions.chosen(rows, "lr", "min")
    t.eq({ counts { op = "a", lr = 1 }, counts { op = "a", lr = 2 } }, { false, true })
  end
end)

t.done()
