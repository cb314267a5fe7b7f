-- test_csv.lua: labelled texts of a user's own, from tables with commas or tabs.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"

local TABLE = "label,id,text\n" .. ("spam,1,buy now\nham,2,see you\n"):rep(20)

local function open(more)
  return tl.tasks.csv(tl.overlay({ file = "text:" .. TABLE, length = 16, multiple = 1 }, more))
end

-- Returns the texts and labels of a set as "label text" lines, sorted.
local function lines(task, set)
  local list = {}
  for batch in set:each(1) do
    local text = task.characters:decode(batch.ids:totable()[1])
    list[#list + 1] = ("%s %s"):format(task.labels[batch.labels:get(1) + 1],
      text:gsub("<eos>.*", ""))
  end
  table.sort(list)
  return list
end

t.test("columns are found by name; labels are strings; parts are held out", function()
  local task = open()
  t.eq({ task.labels, task.classes }, { { "ham", "spam" }, 2 })
  t.eq({ task.train.count, task.valid.count, task.test.count }, { 32, 4, 4 })
  for _, line in ipairs(lines(task, task.train)) do
    t.ok(line == "spam buy now" or line == "ham see you", line)
  end
  local again = open { data_seed = 2 }
  t.ok(lines(again, again.test)[1] ~= nil)
  task = open { valid = 0, test = 0 }
  t.eq({ task.train.count, task.valid, task.test }, { 40, nil, nil })
  t.ok(open().yardsticks().bayes_accuracy == 1)
end)

t.test("quoted fields hold separators, line ends and quotes; drops CRLF and a byte order mark",
  function()
    for _, case in ipairs {
      { 'text,label\n"a, b",1\n', "1 a, b" }, { 'text,label\r\n"say ""hi""",1\r\n', '1 say "hi"' },
      { 'text,label\n"two\nlines",1', "1 two\nlines" }, { 'label;text\n1;a,b\n', "1 a,b", ";" },
      { "text\tlabel\na \"b\tx\n", 'x a "b', "\t" }, { 'text,label\n"",1\n', "1 " },
      { "\n\ntext,label\n\nab,1\n\n", "1 ab" },
    } do
      local task = open { file = "text:" .. case[1], valid = 0, test = 0, separator = case[3] }
      t.eq(lines(task, task.train), { case[2] })
    end
    t.in_folder(function(folder)
      t.write(folder .. "/x.tsv", "\xef\xbb\xbftext\tlabel\r\na,b\tx\r\n")
      local task = open { file = folder .. "/x.tsv", valid = 0, test = 0 }
      t.eq(lines(task, task.train), { "x a,b" })
    end)
  end)

t.test("separate files for parts share the classes and characters of the first", function()
  local task = open { valid_file = "text:text,label\nsee,ham\n", test_file = "text:" .. TABLE }
  t.eq({ task.train.count, task.valid.count, task.test.count }, { 40, 1, 40 })
  t.eq(lines(task, task.valid), { "ham see" })
  t.raises(open, "csv: text:2: the label 'eggs' is not one of ham, spam",
    { valid_file = "text:text,label\nsee,eggs\n" })
end)

t.test("numeric labels are classes in numeric order", function()
  local rows = { "text,label" }
  for i = 1, 12 do rows[#rows + 1] = "a," .. 13 - i end
  t.eq(open { file = "text:" .. table.concat(rows, "\n"), valid = 0, test = 0 }.labels,
    { "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12" })
end)

t.test("errors name the line", function()
  for content, want in pairs {
    ["text,labels\na,1\n"] = "csv: text:1: there is no column 'label'; did you mean 'labels'%? "
      .. "%(present: text, labels%)",
    ["x,y\na,1\n"] = "csv: text:1: there is no column 'text' %(present: x, y%)",
    ["text,text,label\na,b,1\n"] = "csv: text:1: there are two columns 'text'",
    ["text,label\na,1\nb,\n"] = "csv: text:3: the label is empty",
    ["text;label\na;1\n"] = "csv: text:1: one column 'text;label': set separator = ",
    ["text,label\na,1\nb\n"] = "csv: text:3: must have 2 columns, as in the first row, not 1",
    ['text,label\n"a,1\n'] = "csv: text:2: a quote is not closed",
    ['text,label\n"a"b,1\n'] = "csv: text:2: after a closing quote comes 'b'",
    ['text,label\n"a\nb",1\n"c" ,2\n'] = "csv: text:4: after a closing quote comes ' '",
    ["text,label\n\xff,1\n"] = "csv: text:2: byte 1 of the text is not UTF%-8",
    ["text,label\n"] = "csv: text has no row below its column names",
  } do
    t.raises(open, want, { file = "text:" .. content })
  end
  t.raises(open, "of 40 examples valid = 0.6 and test = 0.6 leave none",
    { valid = 0.6, test = 0.6 })
  t.raises(open, "of 2 examples valid = 0.1 and test = 0.1 leave none to train on",
    { file = "text:text,label\na,1\nb,2\n" })
  t.raises(open { test = 0 }.yardsticks, "requires examples to test with")
  t.raises(open, "nothing%.csv", { file = "./nothing.csv" })
  t.in_folder(function(folder)
    t.write(folder .. "/a.csv", "text,label\nx,1\n")
    t.raises(open, "csv: " .. folder .. " is not a file", { file = folder })
  end)
end)

t.test("an experiment on such a table: another file makes another trial", function()
  t.in_folder(function(folder)
    t.write(folder .. "/a.csv", TABLE)
    t.write(folder .. "/x.lua", ([[local tl = require "toeplab"
      return tl.experiment "own" { fixed = { file = "%s/a.csv", steps = 2 }, data = { "file" },
        trial = function(t, c)
          local data = tl.tasks.csv { file = c.file, length = 16 }
          local model = tl.models.tnn_classifier { vocab = data.vocab, classes = data.classes,
            layers = 1, dim = 8, rpe_dim = 4, rpe_layers = 1 }
          local opt = tl.optim.adam(model, { lr = 1e-3 })
          for step in t:steps(c.steps, model, opt) do
            t:log { loss = (tl.classify.step(model, opt, data.train:batch(step, 8))) }
          end
          t:log { test_accuracy = (tl.classify.accuracy(model, data.test, 4)) }
          t:log(data.yardsticks())
        end }]]):format(folder))
    local command = ("'%s' run '%s/x.lua' -C '%s/r' 2>&1"):format(core.sys.executable(), folder,
      folder)
    t.holds(t.shell(command), "1 trial: 1 done")
    t.holds(t.shell(command), "1 trial: 1 already done")
    t.write(folder .. "/a.csv", TABLE .. "ham,3,x\n")
    t.holds(t.shell(command), "1 trial: 1 done")
    local plan = command:gsub(" run ", " plan ", 1)
    for name, why in pairs { ["no/a.csv"] = "no such file (a path is read from the folder in which "
      .. "the command is given)\n", [folder .. "/b.csv"] = "no such file\n" } do
      t.holds(t.shell(plan:gsub("2>&1", "file=" .. name .. " %0")), ("key file: %s: %s"):format(
        name, why))
    end
  end)
end)

t.test("an empty part is named by its key", function()
  t.in_folder(function(folder)
    local path = folder .. "/none.csv"
    t.write(path, "")
    t.raises(open, "^csv: valid_file .*none%.csv: is empty$", { valid_file = path })
    t.raises(open, "^csv: test_file text: the text is empty$", { test_file = "text:" })
    t.write(folder .. "/x.lua", ([[local tl = require "toeplab"
return tl.experiment "x" { fixed = { test_file = %q }, trial = function(t, c) end }]]):format(path))
    local _, code, said = t.toeplab(("plan '%s/x.lua' -C '%s'"):format(folder, folder))
    t.eq(code, 2)
    t.holds(said, "key test_file: ", "none.csv: is empty")
  end)
end)

t.done()
