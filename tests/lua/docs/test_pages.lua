-- test_pages.lua: the pages on one's own data, on extensions, on PyTorch and for papers: their
-- scripts and commands run, and the dictionary says what the messages say.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local pytorch = require "toeplab.tensors.pytorch"

local function page(name) return t.read("../../docs/" .. name .. ".md") end

local function block(text, kind, start)
  for found in text:gmatch("\n```" .. kind .. "\n(.-\n)```") do
    if not start or found:find(start, 1, true) then return found end
  end
end

-- Runs the program with these words in a folder; returns what it prints.
local function run(folder, words)
  local said, code = t.shell(("cd '%s' && '%s' %s 2>&1"):format(folder, core.sys.executable(),
    words))
  t.ok(code == 0, said)
  return said
end

local ran = {} -- the blocks ```sh that were run

-- Runs the commands of the first block ```sh of a page after a text, in a folder, with more words
-- for those that run or plan. change, if given: old -> new, the numbers that are smaller here.
-- Returns what they print.
local function run_commands(folder, text, after, more, change)
  local at = assert(text:find(after, 1, true), after)
  local said, commands = {}, text:match("\n```sh\n(.-)\n```", at)
  ran[commands] = true
  for line in commands:gsub("\\\n *", ""):gmatch "[^\n]+" do
    local words = line:gsub(" +# .*$", ""):match "^%./lab (.*)$"
    t.ok(words, line)
    for old, new in pairs(change or {}) do
      words = (" " .. words):gsub("([ =])" .. old .. "%f[%W]", "%1" .. new):sub(2)
    end
    local takes = words:find "^run " or words:find "^plan "
    said[#said + 1] = run(folder, words .. (takes and " " .. more or ""))
  end
  return said
end

-- Runs Python on a script in a folder if a Python has this module. Returns what it prints, or nil.
local function python(folder, module, script)
  for _, name in ipairs { "python3", "/usr/bin/python3" } do
    if os.execute(name .. " -c 'import " .. module .. "' 2>/dev/null") then
      t.write(folder .. "/script.py", script)
      local said, code = t.shell(("cd '%s' && %s script.py 2>&1"):format(folder, name))
      t.ok(code == 0, said)
      return said
    end
  end
end

t.test("own-data.md: its experiment learns from its table, and a folder is a corpus", function()
  local text = page "own-data"
  t.in_folder(function(folder)
    local rows = block(text, "text", "label,text")
    t.write(folder .. "/reviews.csv", rows .. rows:gsub("^[^\n]*\n", ""):rep(20))
    t.write(folder .. "/reviews.lua", block(text, "lua", "-- reviews.lua"))
    local said = run_commands(folder, text, "label,text\n",
      "steps=2 seeds=2 length=32 dim=8 batch=4")
    t.holds(said[1], "4 trials: 4 done", "bayes_accuracy")
    t.holds(said[2], "test_accuracy")
    assert(core.sys.mkdir(folder .. "/notes") and core.sys.mkdir(folder .. "/experiments"))
    for _, name in ipairs { "a", "diary" } do
      t.write(("%s/notes/%s.txt"):format(folder, name), ("some words of " .. name .. "\n"):rep(200))
    end
    local table10 = "experiments/tnn-table10.lua"
    t.write(folder .. "/" .. table10, t.read("../../" .. table10))
    t.holds(run_commands(folder, text, "takes a path as its corpus", "tokenizer=char",
      { run = "plan", quick = "smoke" })[1], "to run")
    t.holds(run(folder, "plan " .. table10 .. " scale=smoke tokenizer=char corpus=./notes"),
      "to run")
  end)
end)

-- Writes text.txt, lines of words in an order that repeats only after long.
local function write_text(folder)
  local lines = {}
  for i = 1, 400 do lines[i] = ("the %d saw the %d by the sea"):format(i * i % 97, i * i % 31) end
  t.write(folder .. "/text.txt", table.concat(lines, "\n"))
end

t.test("own-data.md: its long text is learnt in byte pairs, carried, packed, continued", function()
  t.in_folder(function(folder)
    write_text(folder)
    t.write(folder .. "/long.lua", block(page "own-data", "lua", "-- long.lua"))
    local said = run_commands(folder, page "own-data", "-- long.lua", "steps=2 warmup=1 layers=1 "
      .. "dim=8 length=16 lengths=16 memory=16 vocab_size=300 seeds=1", { ["1000"] = 300 })
    t.eq(#said, 5)
    t.holds(said[2], "2 trials: 2 done", "fivegram_ppl")
    t.holds(said[3], "1 trial: 1 done")
    t.holds(said[4], "one pair")
    t.ok(said[5]:find("In the", 1, true) and #said[5] > #"In the" + 9, said[5])
  end)
end)

t.test("own-data.md: its rows of tokens are learnt", function()
  t.in_folder(function(folder)
    local ids, targets = {}, {}
    for i = 1, 120 do
      ids[i], targets[i] = {}, {}
      for k = 1, 8 do
        ids[i][k] = (i * i + k * k * i) % 5
        targets[i][k] = k > 1 and ids[i][k] == ids[i][k - 1] and 1 or 0
      end
    end
    local made = python(folder, "numpy", block(page "own-data", "python", "tags.npz"))
    if not made then
      tl.save(folder .. "/tags.npz", { ids = tl.ids(ids), targets = tl.ids(targets) })
    end
    t.write(folder .. "/tags.lua", block(page "own-data", "lua", "-- tags.lua"))
    t.holds(run(folder, "run tags.lua steps=2 seeds=1 dim=8"), "2 trials: 2 done", "always_0")
  end)
end)

t.test("own-data.md: its images are classified, and image.lua takes them", function()
  t.in_folder(function(folder)
    for i = 0, 29 do
      local class = ("%s/photos/%s"):format(folder, i % 2 == 0 and "cat" or "dog")
      assert(core.sys.mkdir(class))
      t.write(("%s/%d.pgm"):format(class, i), "P5 8 8 255\n" .. string.char(i + 1):rep(64))
    end
    t.write(folder .. "/photos.lua", block(page "own-data", "lua", "-- photos.lua"))
    assert(core.sys.mkdir(folder .. "/experiments"))
    t.write(folder .. "/experiments/image.lua", t.read "../../experiments/image.lua")
    t.holds(run(folder, "run photos.lua steps=2 seeds=1 dim=8 batch=4"), "2 trials: 2 done",
      "ridge_accuracy")
    t.holds(run_commands(folder, page "own-data", "## Labelled images",
      "scale=smoke seeds=1 model=tnn")[1], "1 trial: 1 done", "test_accuracy")
  end)
end)

t.test("own-data.md: its series is predicted", function()
  local text = page "own-data"
  t.in_folder(function(folder)
    local lines = { block(text, "text", "time,load,heat"):match "^[^\n]*" }
    for i = 1, 300 do
      lines[i + 1] = ("%d,%.4f,%d"):format(i, math.sin(i / 5), i % 7)
    end
    t.write(folder .. "/series.csv", table.concat(lines, "\n"))
    t.write(folder .. "/series.lua", block(text, "lua", "-- series.lua"))
    t.holds(run(folder, "run series.lua steps=2 seeds=1 length=16 dim=8"), "2 trials: 2 done",
      "linear_mse")
  end)
end)

t.test("own-data.md: its mixers are compared at equal parameters", function()
  t.in_folder(function(folder)
    local words = {}
    for i = 1, 400 do words[i] = ("word %d of the notes"):format(i * i % 97) end
    assert(core.sys.mkdir(folder .. "/notes"))
    t.write(folder .. "/notes/a.txt", table.concat(words, "\n"))
    t.write(folder .. "/mixers.lua", block(page "own-data", "lua", "-- mixers.lua"))
    local said = run_commands(folder, page "own-data", "-- mixers.lua", "steps=1 length=16 batch=2 "
      .. "dim=16 layers=1 parameters=60000 seeds=2 lr=0.01")
    t.holds(said[1], "to run")
    t.holds(said[2], "6 trials: 6 done", "ngram_bits")
    for _, mixer in ipairs { "gtu", "attention", "mamba" } do
      local count = said[2]:match("\n" .. mixer .. "%s[^\n]-%s(%d+)%s+%d+\n")
      t.ok(math.abs(tonumber(count) / 60000 - 1) < 0.03, said[2])
    end
    t.holds(said[3],
      "cannot tell: both sides predict worse than n-grams of their training text")
  end)
end)

t.test("extend.md: a mixer of one's own is a row of a paper's table", function()
  t.in_folder(function(folder)
    t.write(folder .. "/mine.lua", block(page "extend", "lua", "-- mine.lua"))
    local said = run_commands(folder, page "extend", "-- mine.lua", "seeds=1")
    t.holds(said[1], "2 trials: 2 done")
    t.holds(said[2], "\n0.99 (ours) mixer=gtu ", "\n0.99 (ours) mixer=mine ")
    t.holds(said[3], "mixer=mine minus mixer=gtu")
  end)
end)

t.test("from-pytorch.md: both models run, and its rows are those of the messages", function()
  local text = page "from-pytorch"
  t.in_folder(function(folder)
    write_text(folder)
    t.write(folder .. "/gpt.lua", block(text, "lua"))
    local said = run_commands(folder, text, "-- gpt.lua", "steps=12 seeds=1 dim=8")
    t.holds(said[1], "2 trials: 2 done", "ppl")
    t.holds(said[2], "mixer=tno minus")
    local ppl = python(folder, "torch", (block(text, "python"):gsub(", 100\n", ", 2\n")))
    t.ok(not ppl or tonumber(ppl) > 1, ppl)
  end)
  local rows = {}
  for names, ours in text:match "| PyTorch | here |.*":gmatch "\n| ([^\n]-) | `([^\n]-)` |" do
    for name in names:gmatch "`([^`]+)`" do rows[name] = ours end
  end
  t.eq(rows, pytorch.ours)
end)

t.test("papers.md: its run is drawn, compared and printed", function()
  local text, table10 = page "papers", "experiments/tnn-table10.lua"
  t.in_folder(function(folder)
    write_text(folder)
    assert(core.sys.mkdir(folder .. "/experiments"))
    t.write(folder .. "/" .. table10, t.read("../../" .. table10))
    local said = run_commands(folder, text, "# ", "scale=smoke corpus=./text.txt decay=0.9,0.99",
      { ["16"] = 2, ["65536"] = 64, ["250"] = 2, ["3"] = 2 })
    t.holds(said[1], "4 trials: 4 done")
    run_commands(folder, text, "## A figure")
    t.ok(core.sys.exists(folder .. "/ppl.pdf"))
    said = run_commands(folder, text, "figures/papers-length.svg", "", { ["ppl@2048"] = "ppl@64" })
    t.holds(said[1], "decay=0.9 minus decay=0.99")
    t.ok(core.sys.exists(folder .. "/differences.svg"))
    run_commands(folder, text, "## A table")
    t.holds(t.read(folder .. "/table.tex"), "\\toprule", "0.99")
  end)
end)

t.test("every block of commands of these pages was run", function()
  if arg[1] then t.skip "only some tests ran" end
  local count = 0
  for _, name in ipairs { "own-data", "extend", "from-pytorch", "papers" } do
    for commands in page(name):gmatch "\n```sh\n(.-)\n```" do
      t.ok(ran[commands], name .. ".md: " .. commands)
      count = count + 1
    end
  end
  t.ok(count >= 11, count .. " blocks")
end)

t.done()
