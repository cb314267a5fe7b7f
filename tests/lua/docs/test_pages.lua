-- test_pages.lua: the pages on one's own data, on extensions and on PyTorch: their scripts run, and
-- the dictionary says what the messages say.
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

t.test("own-data.md: its experiment learns from its table, and a folder is a corpus", function()
  local text = page "own-data"
  t.in_folder(function(folder)
    local rows = block(text, "text", "label,text")
    t.write(folder .. "/reviews.csv", rows .. rows:gsub("^[^\n]*\n", ""):rep(20))
    t.write(folder .. "/reviews.lua", block(text, "lua", "-- reviews.lua"))
    local said = run(folder, "run reviews.lua steps=2 seeds=2 length=32 dim=8 batch=4")
    t.holds(said, "4 trials: 4 done", "bayes_accuracy")
    t.holds(run(folder, "compare decay=0.99 decay=none --metric test_accuracy"), "test_accuracy")
    assert(core.sys.mkdir(folder .. "/notes"))
    for _, name in ipairs { "a", "b" } do
      t.write(("%s/notes/%s.txt"):format(folder, name), ("some words of " .. name .. "\n"):rep(200))
    end
    t.write(folder .. "/table.lua", t.read "../../experiments/tnn-table10.lua")
    t.holds(run(folder, "plan table.lua scale=smoke tokenizer=char corpus=./notes"), "to run")
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
    run(folder, "data bpe text.txt --size 300 --out text.bpe")
    local small = " steps=2 warmup=1 layers=1 dim=8 length=16 lengths=16 memory=16 vocab_size=300 "
      .. "seeds=1"
    t.holds(run(folder, "run long.lua" .. small), "2 trials: 2 done", "fivegram_ppl")
    t.holds(run(folder, "run long.lua documents=packed carry=false" .. small), "1 trial: 1 done")
    t.holds(run(folder, "compare long carry=false carry=true documents=joined"), "one pair")
    local said = run(folder, "generate @best:test_ppl --prompt 'In the' --tokens 9 --seed 2")
    t.ok(said:find("In the", 1, true) and #said > #"In the" + 9, said)
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
    tl.save(folder .. "/tags.npz", { ids = tl.ids(ids), targets = tl.ids(targets) })
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
    t.write(folder .. "/image.lua", t.read "../../experiments/image.lua")
    t.holds(run(folder, "run photos.lua steps=2 seeds=1 dim=8 batch=4"), "2 trials: 2 done",
      "ridge_accuracy")
    t.holds(run(folder, "run image.lua scale=smoke data=./photos patch=4 seeds=1 model=tnn"),
      "1 trial: 1 done", "test_accuracy")
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
    local said = run(folder, "run mixers.lua steps=1 length=16 batch=2 dim=16 layers=1 "
      .. "parameters=60000 seeds=2 lr=0.01")
    t.holds(said, "6 trials: 6 done", "ngram_bits")
    for _, mixer in ipairs { "gtu", "attention", "mamba" } do
      local count = said:match("\n" .. mixer .. "%s[^\n]-%s(%d+)%s+%d+\n")
      t.ok(math.abs(tonumber(count) / 60000 - 1) < 0.03, said)
    end
    t.holds(run(folder, "compare mixers --baseline mixer=gtu"),
      "cannot tell: both sides predict worse than n-grams of their training text")
  end)
end)

t.test("extend.md: a mixer of one's own is a row of a paper's table", function()
  t.in_folder(function(folder)
    t.write(folder .. "/mine.lua", block(page "extend", "lua", "-- mine.lua"))
    t.holds(run(folder, "run mine.lua scale=smoke seeds=1"), "2 trials: 2 done")
    t.holds(run(folder, "table tnn/table10 scale=smoke"), "\n0.99 (ours) mixer=gtu ",
      "\n0.99 (ours) mixer=mine ")
    t.holds(run(folder, "compare mine mixer=gtu mixer=mine"), "mixer=mine minus mixer=gtu")
  end)
end)

t.test("from-pytorch.md: both models run, and its rows are those of the messages", function()
  local text = page "from-pytorch"
  t.in_folder(function(folder)
    write_text(folder)
    t.write(folder .. "/gpt.lua", block(text, "lua"))
    t.holds(run(folder, "run gpt.lua steps=12 seeds=1 dim=8"), "2 trials: 2 done", "ppl")
    t.holds(run(folder, "compare gpt mixer=attention mixer=tno"), "mixer=tno minus")
    t.write(folder .. "/gpt.py", (block(text, "python"):gsub(", 100\n", ", 2\n")))
    for _, python in ipairs { "python3", "/usr/bin/python3" } do
      if os.execute(python .. " -c 'import torch' 2>/dev/null") then
        local said, code = t.shell(("cd '%s' && %s gpt.py 2>&1"):format(folder, python))
        t.ok(code == 0 and tonumber(said) > 1, said)
        break
      end
    end
  end)
  local rows = {}
  for names, ours in text:match "| PyTorch | here |.*":gmatch "\n| ([^\n]-) | `([^\n]-)` |" do
    for name in names:gmatch "`([^`]+)`" do rows[name] = ours end
  end
  t.eq(rows, pytorch.ours)
end)

t.done()
