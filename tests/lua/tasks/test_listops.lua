-- test_listops.lua: ListOps: published expressions and answers, drawn ones, their parts and
-- batches, their files; and batches of labelled sequences.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local labelled = require "toeplab.tasks.labelled"
local whole_file = require "toeplab.tasks.whole_file"

local function value(text) return core.listops_value(core.listops_parse(text)) end

-- Lines of the published test sets (Nangia & Bowman 2018): answer TAB expression.
local published = [==[
6	( ( ( ( ( [MED 7 ) ( ( ( ( [MED 9 ) 5 ) 0 ) ] ) ) 8 ) 5 ) ] )
4	( ( ( [MAX ( ( ( [MIN ( ( ( ( ( [MED 8 ) 8 ) 2 ) 7 ) ] ) ) 4 ) ] ) ) 4 ) ] )
8	( ( ( ( ( [MAX 8 ) ( ( ( ( [MIN 8 ) 7 ) 5 ) ] ) ) 7 ) 8 ) ] )
6	( ( ( ( [SM 5 ) 4 ) ( ( ( ( ( ( [MED 7 ) 1 ) 9 ) 1 ) 9 ) ] ) ) ] )
8	( ( ( ( [MAX 6 ) 8 ) ( ( ( [MED 5 ) 7 ) ] ) ) ] )
5	( ( ( ( [MAX 1 ) 5 ) ( ( ( ( [MIN 9 ) 2 ) 5 ) ] ) ) ] )
9	( ( ( ( ( [MAX 6 ) 2 ) 9 ) ( ( ( ( [MIN 7 ) 3 ) 2 ) ] ) ) ] )
]==]

t.test("published expressions have the published answers and texts", function()
  local count = 0
  for line in published:gmatch "[^\n]+" do
    local answer, text = line:match "^(%d)\t(.*)$"
    t.eq(value(text), tonumber(answer))
    t.eq(core.listops_text(core.listops_parse(text)), text)
    t.eq(value((text:gsub("[()] ?", ""):gsub("%]", "X"))), tonumber(answer))
    count = count + 1
  end
  t.eq(count, 7)
end)

t.test("an invalid expression is an error with its place", function()
  t.raises(value, "'%[AVG' at offset 0 is not a token", "[AVG 1 ]")
  t.raises(value, "does not end", "[MIN 1 ")
  t.raises(core.listops_text, "ids have no 4 tokens from 2 on, but 5 in all",
    core.listops_parse "[MIN 1 2 3 ]", 2, 4)
  t.raises(core.listops_value, "positions begin at 0", core.ids { 3 }, math.mininteger)
  t.raises(core.listops, "unknown.*'length'", { seed = 1, count = 2, length = 3 })
  t.raises(core.listops, "option 'count' is not an integer %(nil%)", { seed = 1 })
  t.raises(core.listops, "option 'seed' is not an integer", { seed = 1.5, count = 2 })
  t.raises(core.listops, "max_depth is %-1",
    { seed = 1, count = 2, min_length = 1, max_length = 9, max_depth = -5 })
end)

local small = { train = 60, valid = 11, test = 12, min_length = 8, max_length = 50, length = 40,
  multiple = 16 }

local function with(more)
  local o = {}
  for key, v in pairs(small) do o[key] = v end
  for key, v in pairs(more) do o[key] = v end
  return o
end

-- The examples of a set as texts of ids with their labels.
local function examples(set)
  local list = {}
  for batch in set:each(7) do
    local lengths, labels = batch.lengths:totable(), batch.labels:totable()
    for i, row in ipairs(batch.ids:totable()) do
      list[#list + 1] = table.concat(row, " ", 1, lengths[i]) .. " = " .. labels[i]
      for j = lengths[i] + 1, #row do t.eq(row[j], 0) end
      t.eq(row[lengths[i]], 2)
    end
  end
  return list
end

t.test("parts are distinct, complete, and independent of the training part", function()
  local task = tl.tasks.listops(small)
  t.eq({ task.vocab, task.classes }, { 18, 10 })
  t.eq({ task.train.count, task.valid.count, task.test.count }, { 60, 11, 12 })
  local seen, all = {}, {}
  for _, part in ipairs { "train", "valid", "test" } do
    all[part] = examples(task[part])
    for _, text in ipairs(all[part]) do
      if #text < 60 then -- not cut
        t.ok(not seen[text], text)
        seen[text] = true
      end
    end
  end
  t.eq(#all.train, 60)
  local more = tl.tasks.listops(with { train = 90 })
  t.eq({ examples(more.valid), examples(more.test) }, { all.valid, all.test })
  t.ok(examples(tl.tasks.listops(with { data_seed = 2 }).valid)[1] ~= all.valid[1])
  local chance = task.test:chance()
  t.ok(chance >= 0.1 and chance < 0.6, chance)
end)

t.test("answers agree with the expressions", function()
  local task = tl.tasks.listops(with { length = 51 })
  for _, text in ipairs(examples(task.test)) do
    local ids = {}
    for id in text:match "^(.*) 2 =":gmatch "%d+" do ids[#ids + 1] = math.tointeger(id) end
    t.eq(core.listops_value(core.ids(ids)), tonumber(text:match "= (%d)$"))
  end
end)

t.test("batches: every example once an epoch, in an order of seed and epoch alone", function()
  local task = tl.tasks.listops(with { seed = 3 })
  local train, seen = task.train, {}
  t.eq(train:steps(8), 7)
  for step = 1, 7 do
    local batch, epoch = train:batch(step, 8)
    t.eq({ batch.ids:dim(1), epoch }, { 8, 1 })
    t.ok(batch.ids:dim(2) % 16 == 0 or batch.ids:dim(2) == 40)
    local lengths = batch.lengths:totable()
    for i, row in ipairs(batch.ids:totable()) do
      local text = table.concat(row, " ", 1, lengths[i])
      t.ok(not seen[text] or lengths[i] == 40, "twice: " .. text)
      seen[text] = true
    end
  end
  local again = tl.tasks.listops(with { seed = 3 }).train
  t.eq(again:batch(17, 8).ids, train:batch(17, 8).ids)
  t.eq(select(2, train:batch(8, 8)), 2)
  t.ok(t.bits { train:batch(1, 8) } ~= t.bits { train:batch(8, 8) })
  local other = tl.tasks.listops(with { seed = 4 }).train
  t.ok(t.bits { train:batch(1, 8) } ~= t.bits { other:batch(1, 8) })
end)

t.test("labelled sequences: cut, ended, padded, split", function()
  local ids, starts = core.ids { 5, 6, 7, 8, 9 }, core.ids { 0, 3, 3, 5 }
  local set = labelled.new(ids, starts, { 0, 1, 1 }, { length = 3, classes = 2, stop = 2,
    multiple = 1 })
  local batch = set:each(3)()
  t.eq(batch.ids, { { 5, 6, 2 }, { 2, 0, 0 }, { 8, 9, 2 } })
  t.eq({ batch.lengths, batch.labels }, { { 3, 1, 3 }, { 0, 1, 1 } })
  t.eq(set:chance(), 2 / 3)
  t.eq(set:part({ 1 }):each(3)().ids, { { 2 } })
  local some, rest = set:split(2, 1)
  t.eq({ some.count, rest.count, set:split(3, 1).count, set:split(nil, 1).count }, { 2, 1, 3, 3 })
  t.raises(set.split, "count = 9, but there are 3", set, 9, 1)
  local seen = {}
  for _, part in ipairs { some, rest } do
    for one in part:each(1) do seen[#seen + 1] = one.ids:numel() end
  end
  table.sort(seen)
  t.eq(seen, { 1, 3, 3 })
  t.eq(set:batch(1, 5).ids:dim(1), 3) -- fewer than a batch are one
  -- A part has its own order, whatever the whole was used for before.
  t.eq(some:batch(1, 2).ids:dim(1), 2)
  t.raises(labelled.new, "label 2 is 2, not in 0..1", ids, starts, { 0, 2, 1 },
    { length = 3, classes = 2 })
  t.raises(labelled.new, "2 labels for 3 sequences", ids, starts, { 0, 1 },
    { length = 3, classes = 2 })
  local none = set:part {}
  t.raises(none.batch, "the set has no examples", none, 1, 4)
  t.raises(set.batch, "size must be an integer of at least 1, got 0", set, 1, 0)
  t.raises(set.each, "size must be an integer of at least 1, got 0", set, 0)
end)

-- ---- Files --------------------------------------------------------------------------------------

local function program(words)
  return t.shell(("'%s' %s 2>&1"):format(core.sys.executable(), words))
end

t.test("toeplab data generate listops writes the published files", function()
  t.in_folder(function(folder)
    local words = "data generate listops '" .. folder
      .. "/out' train=30 valid=4 test=5 min_length=10 max_length=40 --quiet"
    local said, code = program(words)
    t.eq(code, 0)
    t.eq(said, ("%s/out/basic_train.tsv\n%s/out/basic_val.tsv\n%s/out/basic_test.tsv\n"):format(
      folder, folder, folder))
    t.eq(core.sys.list(folder .. "/out"), { "basic_test.tsv", "basic_train.tsv", "basic_val.tsv" })
    local first = t.read(folder .. "/out/basic_test.tsv")
    local count = 0
    for line in first:gmatch "[^\n]+" do
      local text, answer = line:match "^(.*)\t(%d)$"
      if count == 0 then t.eq(line, "Source\tTarget") else t.eq(value(text), tonumber(answer)) end
      count = count + 1
    end
    t.eq(count, 6)
    t.eq({ program(words) }, { said, 0 })
    os.remove(folder .. "/out/basic_val.tsv")
    said, code = program((words:gsub("train=30", "train=9")))
    t.eq(code, 2)
    t.holds(said, "out/basic_train.tsv exists with different content")
    t.ok(not t.read(folder .. "/out/basic_val.tsv"))
    program((words:gsub("train=30", "train=9"):gsub("/out", "/fewer")))
    t.eq(t.read(folder .. "/fewer/basic_test.tsv"), first)
    t.eq(select(2, t.read(folder .. "/fewer/basic_train.tsv"):gsub("\n", "")), 10)
  end)
end)

t.test("a whole file is synced before it gets its name, and its folder afterwards", function()
  local calls, own = {}, {}
  local restore <close> = defer(function()
    for name, fn in pairs(own) do core.sys[name] = fn end
  end)
  for _, name in ipairs { "sync", "rename", "sync_folder" } do
    own[name] = core.sys[name]
    core.sys[name] = function(...)
      calls[#calls + 1] = name
      return own[name](...)
    end
  end
  t.in_folder(function(folder)
    whole_file(folder .. "/x", function(write) write("a", "b") end)
    t.eq({ t.read(folder .. "/x"), calls }, { "ab", { "sync", "rename", "sync_folder" } })
  end)
end)

t.test("wrong arguments of the command are errors", function()
  for words, want in pairs {
    ["generate"] = "takes a name, a folder", ["generate listops"] = "takes a name, a folder",
    ["generate listops train=3"] = "takes a name, a folder",
    ["generate imdb x"] = "imdb is not generated", ["generate listop x"] = "did you mean 'listops'",
    ["generate listops x trian=3"] = "unknown option 'trian'; did you mean 'train'",
    ["fetch imdb --check"] = "%-%-check is an option of data list, show, path",
    ["generate listops x --check"] = "%-%-check is an option of data list, show, path",
    ["list --quiet"] = "%-%-quiet is an option of data fetch, generate, bpe",
    ["path imdb -q"] = "%-%-quiet is an option of data fetch, generate, bpe",
    ["path listops"] = "generated where it is used",
  } do
    local said, code = program("data " .. words)
    t.ok(code == 2 and said:find(want), said)
  end
  t.in_folder(function(folder)
    for words, want in pairs {
      ["max_length=1000001"] = "'max_length' = 1000001 must be between 1 and 1000000",
      ["max_depth=1001"] = "'max_depth' = 1001 must be between 1 and 1000",
      ["min_length=9 max_length=8"] = "min_length = 9 is more than max_length = 8",
      ["train=3 train=4"] = "train is given twice",
    } do
      local said, code = program(("data generate listops %s/out %s"):format(folder, words))
      t.eq({ code, core.sys.exists(folder .. "/out") }, { 2, false })
      t.holds(said, want)
    end
    -- Few expressions are that long, so that drawing takes long; a signal ends it at once.
    local _, code = program(("data generate listops %s/out min_length=1999 & "
      .. "pid=$!; until [ \"$(ps -o cputimes= -p $pid)\" -ge 1 ]; do sleep 0.1; done; "
      .. "kill -TERM $pid; wait $pid"):format(folder))
    t.eq({ code, core.sys.exists(folder .. "/out") }, { 143, false })
  end)
  local said, code = program "data generate listops /proc/none train=3"
  t.ok(code == 6 and said:find "/proc/none", said)
  t.ok(program "data":find "\nlistops +%- +here %(generated%)")
  t.ok(program "data listops":find "\n  min_length +501 ")
  t.eq(program "data fetch listops", "listops is generated where it is used\n")
  t.raises(tl.tasks.listops, "min_length = 9 is more than max_length = 8",
    with { min_length = 9, max_length = 8 })
  t.raises(tl.corpus, "is a data set but not a plain text", "listops")
end)

t.done()
