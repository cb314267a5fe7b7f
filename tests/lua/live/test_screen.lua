-- test_screen.lua: the lines of toeplab watch: bars, and what fits into terminals of any size.
local t = require "harness"
local screen = require "toeplab.live.screen"

t.test("bars span the least to the largest value", function()
  t.eq(screen.sparkline({ 0, 1, 2, 3, 4, 5, 6, 7 }, false), "▁▂▃▄▅▆▇█")
  t.eq(screen.sparkline({ 7, 0, 3.5 }, false), "█▁▅")
  t.eq(screen.sparkline({ -1e300, 1e300 }, true), "_#")
  t.eq(screen.sparkline({ 2, 2 }, false), "▁▁")
  t.eq(screen.sparkline({}, false), "")
  t.eq(screen.sparkline({ 0 / 0, 1, 0 / 0, 2 }, false), "x▁x█")
  t.eq(screen.sparkline({ 3 }, true) .. screen.sparkline({ 0 / 0 }, true), "_x")
end)

t.test("text is cut and padded by characters, without control characters", function()
  t.eq(screen.fit("naïve", 3), "naï")
  t.eq(screen.fit("naïve", 7), "naïve  ")
  t.eq(screen.fit("ab", 4, true), "  ab")
  t.eq(screen.fit("模型", 5), "模型 ")
  t.eq(screen.fit("模型", 3), "模 ") -- half of a character is not shown
  t.eq(screen.fit("e\u{301}bc", 2), "e\u{301}b")
  t.eq(screen.fit("a\27[2Jb\nc", 20):find("%c"), nil)
  t.eq(screen.fit("abc", 0), "")
end)

local function state(columns, rows, count, at, cards)
  local trials = {}
  for i = 1, count do
    trials[i] = { id = ("%012d"):format(i), label = "width=" .. i, status = i < 3 and "done"
      or "queued", step = i < 3 and 7 or nil, steps = 9, value = i < 3 and 0.5 or nil, seconds = 4 }
  end
  return { title = "sweep", trials = trials, at = at, metric = "loss", columns = columns,
    rows = rows, cards = cards or {}, curve = function(_, width) return screen.fit("^", width) end }
end

t.test("a list fits into every terminal, and shows the chosen trial", function()
  for _, columns in ipairs { 1, 5, 20, 45, 70, 80, 132, 300 } do
    for _, rows in ipairs { 1, 4, 5, 12, 60 } do
      for _, at in ipairs { 1, 17, 40 } do
        local s = state(columns, rows, 40, at)
        local lines = screen.list(s)
        local text = table.concat(lines, "\n")
        t.eq(#lines <= math.max(rows, 5), true)
        t.ok(text:find("\n> ", 1, true), "no trial is chosen")
        if columns >= 70 then t.ok(text:find("> width=" .. at .. " ", 1, true), text) end
        if columns >= 30 then
          for _, line in ipairs(lines) do
            t.ok(utf8.len(line) <= math.max(columns, 68), utf8.len(line) .. " in " .. columns)
          end
        end
        local drawn, cursor = screen.draw(lines, columns, rows), "\27%[%d*[HKJ]"
        local plain = drawn:gsub(cursor, "")
        local _, breaks = plain:gsub("\r\n", "")
        t.ok(breaks < rows, "more lines than rows")
        for line in plain:gmatch "[^\r\n]+" do t.ok(utf8.len(line) <= columns, line) end
      end
    end
  end
end)

t.test("wide terminals show id, status, time and curve, narrow ones the value", function()
  local wide = table.concat(screen.list(state(120, 20, 3, 1)), "\n")
  for _, word in ipairs { "width=1", "00000000", "done", "7/9", "0.5000", "4s", "^", "curve" } do
    t.ok(wide:find(word, 1, true), word)
  end
  local narrow = table.concat(screen.list(state(30, 20, 3, 1)), "\n")
  t.ok(narrow:find("0.5000", 1, true) and not narrow:find("00000000", 1, true), narrow)
end)

t.test("GPUs take at most a third of the rows of trials", function()
  local gpus = { "gpu 0 ...", "gpu 1 ...", "gpu 2 ..." }
  for _, case in ipairs { { 60, 3 }, { 12, 2 }, { 6, 0 }, { 2, 0 } } do
    local lines = screen.list(state(80, case[1], 40, 1, gpus))
    for i, line in ipairs(gpus) do t.eq(lines[i + 1] == line, i <= case[2]) end
    t.eq(#lines <= math.max(case[1], 5), true)
    t.eq(lines[case[2] + 2]:find "^  trial" ~= nil, true)
  end
end)

t.test("shows the end of a text", function()
  local lines = screen.text({ title = "log", columns = 20, rows = 5 }, "1\n2\n3\n4\n5\n")
  t.eq(lines, { "log", "3", "4", "5", "any key: back to the list   q: quit" })
end)

t.done()
