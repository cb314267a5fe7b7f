-- test_cifar.lua: CIFAR-10: reading records, grey and colour, held out images, damaged files and
-- wrong labels, and the stand-in.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"

-- A record of a label and an image whose planes have one value each.
local function record(label, red, green, blue)
  local function plane(value) return string.char(value):rep(1024) end
  return string.char(label) .. plane(red) .. plane(green) .. plane(blue)
end

-- 10 k records, of each class k; the image i has the red level i.
local function records(k)
  local list = {}
  for i = 0, 10 * k - 1 do list[i + 1] = record(i % 10, i, 0, 0) end
  return table.concat(list)
end

-- Runs fn(open, folder) with a function that opens the task of the files train.bin and test.bin.
local function with_files(train, test, fn)
  t.in_folder(function(folder)
    t.write(folder .. "/train.bin", train)
    t.write(folder .. "/test.bin", test)
    fn(function(more)
      local o = { train_file = folder .. "/train.bin", test_file = folder .. "/test.bin",
        valid = 5 }
      for key, v in pairs(more or {}) do o[key] = v end
      return tl.tasks.cifar(o)
    end, folder)
  end)
end

-- The content of a set as a text for each image, sorted: its label and its first number.
local function content(set)
  local list = {}
  for batch in set:each(7) do
    local first = batch.ids:narrow(2, 1, 1):totable()
    for i, label in ipairs(batch.labels:totable()) do
      list[#list + 1] = ("%d:%03d"):format(label, first[i][1])
    end
  end
  table.sort(list)
  return list
end

t.test("grey is 0.299 red + 0.587 green + 0.114 blue, rounded", function()
  local colours = { { 255, 0, 0 }, { 0, 255, 0 }, { 0, 0, 255 }, { 255, 255, 255 }, { 0, 0, 0 },
    { 1, 2, 3 }, { 10, 20, 30 }, { 200, 100, 50 }, { 3, 1, 0 }, { 128, 64, 32 } }
  local list = {}
  for i, c in ipairs(colours) do list[i] = record(i - 1, c[1], c[2], c[3]) end
  with_files(records(1), table.concat(list), function(open)
    local task = open()
    local batch = task.test:each(10)()
    t.eq(batch.ids:shape(), { 10, 1024 })
    t.eq(batch.ids:narrow(2, 1024, 1):reshape(10), { 76, 150, 29, 255, 0, 2, 18, 124, 1, 79 })
    t.eq({ task.vocab, task.classes, task.grid }, { 256, 10, { 32, 32 } })
    t.eq(task.pixels, { mean = 0.48078, deviation = 0.23922 }, 1e-5)
  end)
end)

t.test("colour images are their three planes", function()
  with_files(records(1), record(0, 1, 2, 3) .. records(1), function(open)
    local batch = open({ colour = true }).test:each(1)()
    t.eq(batch.ids:shape(), { 1, 3072 })
    for i, place in ipairs { 1, 1025, 3072 } do t.eq(batch.ids:get(1, place), i) end
  end)
end)

t.test("held-out images are not training images, and do not depend on the order", function()
  with_files(records(3), records(2), function(open)
    local one, two = open { seed = 1, colour = true }, open { seed = 2, colour = true }
    t.eq({ one.train.count, one.valid.count, one.test.count }, { 25, 5, 20 })
    t.eq(content(one.valid), content(two.valid))
    local all = content(one.train)
    for _, image in ipairs(content(one.valid)) do all[#all + 1] = image end
    table.sort(all)
    for i = 1, 30 do
      t.ok(all[i] ~= all[i + 1], "an image is in two parts")
    end
    t.ok(t.bits(one.train:batch(1, 20)) ~= t.bits(two.train:batch(1, 20)))
    local few = open { train = 7, test = 3, colour = true }
    t.eq({ few.train.count, few.valid.count, few.test.count }, { 7, 5, 3 })
    t.eq(content(few.valid), content(one.valid))
    t.raises(open, "cifar: 30 of 30 training images leave none to train on", { valid = 30 })
  end)
end)

t.test("damaged files, wrong labels and a missing class", function()
  local good = records(1)
  for bad, want in pairs {
    [""] = "test.bin has 0 bytes",
    [good:sub(1, -2)] = "test.bin has 30729 bytes, which is not a multiple of a record of 3073 "
      .. "bytes, a label and 32 x 32 pixels in three colours: truncated, or images of another size",
    [good .. record(10, 0, 0, 0)] =
      "test.bin: record 11, at byte 30730, has the label 10, not 0..9",
    [good:sub(1, 9 * 3073)] = "test.bin has no image of class 9 %(truck%)",
  } do
    with_files(good, bad, function(open) t.raises(open, want) end)
  end
  with_files(good, good, function(open, folder)
    t.raises(open, "cifar: .*none.bin: No such file", { train_file = folder .. "/none.bin" })
    t.raises(open, "unknown option 'color'.*colour", { color = true })
  end)
end)

t.test("refuses data that are not the published ones, with how to get them", function()
  t.in_folder(function(folder)
    local data = folder .. "/data"
    assert(core.sys.mkdir(data .. "/cifar-10-batches-bin"))
    local function says(task)
      local form = "XDG_CACHE_HOME=%s TOEPLAB_DATA=%s '%s' lua -e '%s' 2>&1"
      return (t.shell(form:format(folder, data, core.sys.executable(),
        ('require "toeplab".tasks["%s"] {}'):format(task))))
    end
    local said = says "cifar"
    t.ok(said:find("cifar10 is not here. Either fetch it: toeplab data fetch cifar10", 1, true),
      said)
    t.write(data .. "/cifar-10-batches-bin/data_batch_1.bin", records(1))
    said = says "cifar"
    t.ok(said:find("data_batch_1.bin is not the published file: wrong size", 1, true), said)
    said = says "cifar-part"
    t.ok(said:find("is not here. Put the file lossless_train_0000-3999.bin", 1, true), said)
    t.write(data .. "/cifar10-lossless-first4000.tar.xz", "damaged")
    said = says "cifar-part"
    t.ok(said:find("cifar10-lossless-first4000.tar.xz: its sha256 is not d360c049", 1, true), said)
    t.eq(core.sys.list(data), { "cifar-10-batches-bin", "cifar10-lossless-first4000.tar.xz" })
  end)
end)

t.test("the stand-in has all classes and is a separate task", function()
  local function open(more)
    local o = { images = 30, test_images = 20, valid = 8 }
    for key, v in pairs(more or {}) do o[key] = v end
    return tl.tasks["cifar-standin"](o)
  end
  local task = open()
  t.eq({ task.train.count, task.valid.count, task.test.count }, { 22, 8, 20 })
  t.eq(task.test:chance(), 0.1, 1e-9)
  t.eq(t.bits(task.test:each(20)()), t.bits(open({ images = 40 }).test:each(20)()))
  t.ok(t.bits(task.test:each(20)()) ~= t.bits(open({ drawing_seed = 2 }).test:each(20)()))
  t.ok(datasets.find("cifar-standin").generated)
  t.ok(require("toeplab.tasks").hash "cifar-standin" ~= nil)
end)

t.test("toeplab data generate writes files that the task reads", function()
  t.in_folder(function(folder)
    local command = "'%s' data generate -q cifar-standin %s/x images=20 test_images=10"
    local said, code = t.shell(command:format(core.sys.executable(), folder))
    t.ok(code == 0, said)
    t.eq(core.sys.list(folder .. "/x"), { "standin_test.bin", "standin_train.bin" })
    local read = tl.tasks.cifar { train_file = folder .. "/x/standin_train.bin",
      test_file = folder .. "/x/standin_test.bin", valid = 4 }
    local drawn = tl.tasks["cifar-standin"] { images = 20, test_images = 10, valid = 4 }
    for _, part in ipairs { "train", "valid", "test" } do
      t.eq(t.bits(read[part]:each(20)()), t.bits(drawn[part]:each(20)()))
    end
  end)
end)

t.test("the small part of the images", function()
  for _, name in ipairs { "cifar10-first4000", "cifar10-grey" } do
    if datasets.state(datasets.find(name), false) == "absent" then
      t.skip(name .. " is not here; TOEPLAB_DATA may hold it")
    end
  end
  local task = tl.tasks["cifar-part"] {}
  t.eq({ task.train.count, task.valid.count, task.test.count }, { 7000, 1068, 1017 })
  t.ok(task.train:chance() < 0.12 and task.test:chance() < 0.12)
  local colour = tl.tasks["cifar-part"] { colour = true }
  t.eq({ colour.train.count, colour.valid.count, colour.test.count }, { 3000, 500, 500 })
end)

t.done()
