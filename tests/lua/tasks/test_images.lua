-- test_images.lua: images of one's own from every kind of file, with the same pixels, parts and
-- means; wrong files.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local zip = require "zip"

local N, H, W = 24, 2, 3

-- The level of a pixel, of image i and channel c, all from 0; and the label of an image.
local function level(i, y, x, c) return (i * 31 + y * 17 + x * 5 + c * 83 + i % 3 * 60) % 256 end
local function label(i) return i % 3 end

-- The values of all images as a list, with channels last.
local function values(channels, count)
  local list = {}
  for i = 0, (count or N) - 1 do
    for y = 0, H - 1 do
      for x = 0, W - 1 do
        for c = 0, channels - 1 do list[#list + 1] = level(i, y, x, c) end
      end
    end
  end
  return list
end

-- A row of a batch: the channels of an image one after another.
local function row(i, channels)
  local list = {}
  for c = 0, channels - 1 do
    for y = 0, H - 1 do
      for x = 0, W - 1 do list[#list + 1] = level(i, y, x, c) end
    end
  end
  return list
end

local function npy(path, ...) t.write(path, zip.npy(...)) end

-- The labels of images as a .npy file.
local function label_array(count, of)
  local list = {}
  for i = 0, (count or N) - 1 do list[i + 1] = string.pack("<i8", (of or label)(i)) end
  return zip.npy("<i8", { count or N }, table.concat(list))
end

local function labels(path, ...) t.write(path, label_array(...)) end

local function arrays(folder, channels)
  local path = ("%s/x%d.npy"):format(folder, channels)
  local dims = channels == 1 and { N, H, W } or { N, H, W, channels }
  npy(path, "|u1", dims, string.char(table.unpack(values(channels))))
  labels((path:gsub("%.npy$", "_labels.npy")))
  return path, dims
end

-- Checks that a task has the images, each once over all parts.
local function check(data, channels, name_of)
  t.eq({ data.classes, data.height, data.width, data.channels }, { 3, H, W, channels })
  local left, sets = {}, { data.train, data.valid, data.test }
  for i = 0, N - 1 do left[table.concat(row(i, channels), " ")] = label(i) end
  for k, count in ipairs { N - 6, 3, 3 } do
    t.eq(sets[k].count, count)
    for batch in sets[k]:each(4) do
      local of = batch.labels:totable()
      for i, ids in ipairs(batch.ids:totable()) do
        local key = table.concat(ids, " ")
        t.ok(left[key] and data.labels[of[i] + 1] == name_of(left[key]), key)
        left[key] = nil
      end
      t.eq(batch.lengths:totable()[1], H * W * channels)
    end
  end
  t.ok(next(left) == nil, "an image is missing")
end

t.test("arrays of bytes and of real numbers, HDF5 and folders of classes hold the same", function()
  t.in_folder(function(folder)
    for _, channels in ipairs { 1, 3 } do
      local path, dims = arrays(folder, channels)
      check(tl.tasks.images { file = path }, channels, tostring)
      local real, list = folder .. "/real.npy", values(channels)
      local all = core.ids(list):reshape(table.unpack(dims))
      tl.save(folder .. "/x.h5", { images = all, labels = core.ids(values(1, 0)) })
      for i, value in ipairs(list) do list[i] = string.pack("<f", value / 255) end
      npy(real, "<f4", dims, table.concat(list))
      labels(folder .. "/real_labels.npy")
      check(tl.tasks.images { file = real }, channels, tostring)
      local numbers, classes = {}, folder .. "/classes" .. channels
      for i = 0, N - 1 do
        numbers[i + 1] = label(i)
        local text = { channels == 3 and "P6" or "P5", " # a comment\n", "3 2\n255\n" }
        for y = 0, H - 1 do
          for x = 0, W - 1 do
            for c = 0, channels - 1 do text[#text + 1] = string.char(level(i, y, x, c)) end
          end
        end
        core.sys.mkdir(("%s/class %d"):format(classes, label(i)))
        t.write(("%s/class %d/%d.ppm"):format(classes, label(i), i), table.concat(text))
      end
      check(tl.tasks.images { file = classes }, channels, function(i) return "class " .. i end)
      tl.save(folder .. "/x.h5", { images = all, labels = core.ids(numbers) })
      check(tl.tasks.images { file = folder .. "/x.h5" }, channels, tostring)
    end
  end)
end)

t.test("parts, means and deviations; files of CIFAR-10; a model and its augmentation", function()
  t.in_folder(function(folder)
    local path = arrays(folder, 3)
    local other = tl.tasks.images { file = path, valid = 0, test_file = path }
    t.eq({ other.train.count, other.test.count }, { N, N })
    t.ok(not other.valid and not other.yardsticks)
    for c = 0, 2 do
      local sum, squares = 0, 0
      for i = 0, N - 1 do
        for k = 0, H * W - 1 do
          local value = level(i, k // W, k % W, c) / 255
          sum, squares = sum + value / (N * H * W), squares + value ^ 2 / (N * H * W)
        end
      end
      t.eq(other.mean[c + 1], sum, 1e-6)
      t.eq(other.deviation[c + 1], math.sqrt(squares - sum ^ 2), 1e-5)
    end
    core.sys.mkdir(folder .. "/parts")
    for _, part in ipairs { "train", "valid", "test" } do
      t.write(("%s/parts/%s.npy"):format(folder, part), t.read(path))
      labels(("%s/parts/%s_labels.npy"):format(folder, part))
    end
    local data = tl.tasks.images { file = folder .. "/parts" }
    t.eq({ data.train.count, data.valid.count, data.test.count }, { N, N, N })
    t.ok(data.yardsticks().ridge_accuracy >= 0)
    local hash = tl.corpus.hash(folder .. "/parts")
    labels(folder .. "/parts/test_labels.npy", N, function() return 1 end)
    t.ok(tl.corpus.hash(folder .. "/parts") ~= hash, "the hash covers all files")
    hash = tl.corpus.hash(path)
    labels(folder .. "/x3_labels.npy", N, function(i) return (i + 1) % 3 end)
    t.ok(tl.corpus.hash(path) ~= hash, "the hash covers the labels")

    local a = tl.augmentation { height = H, width = W, mean = data.mean,
      deviation = data.deviation, randaugment = 9.0 }
    local x, loss_of = a:altered(data.train:batch(1, 5))
    t.eq(x:shape(), { 5, 3, H, W })
    t.ok(loss_of(core.zeros(5, 3)):item() > 1)

    local records = {}
    for i = 0, 39 do records[i + 1] = string.char(i % 4) .. string.char(i):rep(3072) end
    t.write(folder .. "/batch.bin", table.concat(records))
    local cifar = tl.tasks.images { file = folder .. "/batch.bin" }
    t.eq({ cifar.classes, cifar.height, cifar.channels, cifar.train.count }, { 4, 32, 3, 32 })
    local batch = cifar.test:batch(1, 4)
    for i, ids in ipairs(batch.ids:totable()) do t.eq(ids[3072] % 4, batch.labels:totable()[i]) end
  end)
end)

t.test("archives, stored or compressed, of two arrays or of those of each part", function()
  t.in_folder(function(folder)
    local path = folder .. "/x.npz"
    for _, channels in ipairs { 1, 3 } do
      local dims = channels == 1 and { N, H, W } or { N, H, W, channels }
      local real = values(channels)
      for i, value in ipairs(real) do real[i] = string.pack("<f", value / 255) end
      local pixels = { bytes = zip.npy("|u1", dims, string.char(table.unpack(values(channels)))),
        real = zip.npy("<f4", dims, table.concat(real)) }
      for kind, x in pairs(pixels) do
        for _, names in ipairs { { "x", "y" }, { "images", "labels" }, { "a", "b" } } do
          local y = label_array()
          zip.write(path, { { names[2], y, zip.blocks(y) },
            { names[1], x, kind == "bytes" and zip.blocks(x) or nil } })
          local own = names[1] == "a"
          check(tl.tasks.images { file = path, images = own and "a" or nil,
            labels = own and "b" or nil }, channels, tostring)
        end
      end
    end
    local entries = {}
    for i, part in ipairs { "train", "val", "test" } do
      local x = zip.npy("|u1", { 3 + i, 1, 1 }, ("abcdef"):sub(1, 3 + i))
      entries[2 * i - 1] = { part .. "_images", x, zip.blocks(x) }
      entries[2 * i] = { part .. "_labels",
        zip.npy("|u1", { 3 + i, 1 }, ("\0\1\2\0\1\2"):sub(1, 3 + i)) }
    end
    zip.write(path, entries)
    local data = tl.tasks.images { file = path }
    t.eq({ data.classes, data.train.count, data.valid.count, data.test.count }, { 3, 4, 5, 6 })
    t.eq(data.test:batch(1, 6).ids:dim(2), 1)
    data = tl.tasks.images { file = path, images = "test_images", labels = "test_labels",
      valid = 0 }
    t.eq({ data.train.count, data.valid, data.test.count }, { 5, nil, 1 })
    t.raises(tl.tasks.images, "x.npz: has no array 'none'", { file = path, images = "none" })
    for i = 1, 6 do entries[i][1] = entries[i][1]:gsub("(%l+)_(%l)%l+", function(part, first)
      return (first == "i" and "x_" or "y_") .. part:gsub("val", "valid")
    end) end
    zip.write(path, { entries[1], entries[2], entries[5], entries[6] })
    data = tl.tasks.images { file = path, valid = 0.25 }
    t.eq({ data.train.count, data.valid.count, data.test.count }, { 3, 1, 6 })
    zip.write(path, { entries[1] })
    t.raises(tl.tasks.images, "x.npz: has no array 'y_train' %(present: x_train%)", { file = path })
    zip.write(path, { { "pixels", entries[1][2] } })
    t.raises(tl.tasks.images, "x.npz: has no array 'images' %(present: pixels%): set the options",
      { file = path })
    zip.write(path, { { "x", zip.npy("|u1", { 2, 2 }, "abcd") }, { "y", label_array(2) } })
    t.raises(tl.tasks.images, "x.npz: array 'x': has the shape %[2,2%]", { file = path })
    t.ok(#core.sys.list(folder) == 1, "only the archive is left")
  end)
end)

t.test("wrong files are errors that name the file and the value", function()
  t.in_folder(function(folder)
    local function wrong(want, file, more)
      local o = { file = folder .. "/" .. file }
      for key, value in pairs(more or {}) do o[key] = value end
      t.raises(tl.tasks.images, want, o)
    end
    local function array(name, description, dims, elements, of)
      npy(folder .. "/" .. name .. ".npy", description, dims, elements)
      labels(folder .. "/" .. name .. "_labels.npy", dims[1], of)
    end
    wrong("none.npy: there is no such file or folder", "none.npy")
    t.write(folder .. "/x.jpg", "JFIF")
    wrong("x.jpg: must be a folder or end in .npy", "x.jpg")
    npy(folder .. "/alone.npy", "|u1", { 1, 1, 1 }, "a")
    wrong("alone.npy: its labels are not here: .*alone_labels.npy", "alone.npy")
    array("flat", "|u1", { 2, 2 }, "abcd")
    wrong("flat.npy: has the shape %[2,2%], not %[N,H,W%]", "flat.npy")
    array("first", "|u1", { 1, 3, 8, 8 }, ("a"):rep(192))
    wrong("first.npy: has the shape %[1,3,8,8%].*transpose", "first.npy")
    array("short", "<i2", { 1, 1, 1 }, "ab")
    wrong("short.npy: has elements of type I16, not uint8", "short.npy")
    array("large", "<f4", { 2, 1, 1 }, string.pack("<ff", 1, 7))
    wrong("large.npy: image 1 has the value 7.0, not 0 to 1 .*divide", "large.npy")
    array("gap", "|u1", { 4, 1, 1 }, "abcd", function(i) return i + 1 end)
    wrong("gap.npy: no image has the label 0, and labels reach 4", "gap.npy")
    array("less", "|u1", { 4, 1, 1 }, "abcd", function(i) return i - 1 end)
    wrong("less.npy: image 0 has the label %-1", "less.npy")
    array("good", "|u1", { 4, 1, 1 }, "abcd", function() return 0 end)
    wrong("x1.npy: has images of 2 x 3 with .*good.npy of 1 x 1", "good.npy",
      { test_file = (arrays(folder, 1)) })
    array("other", "|u1", { 4, 1, 1 }, "abcd", function() return 5 end)
    wrong("other.npy: image 0 has the label '5', and the training images have 0", "good.npy",
      { valid_file = folder .. "/other.npy" })
    wrong("valid = 0.5 and test = 0.5 of 4 leave none", "good.npy",
      { valid = 0.5, test = 0.5 })
    labels(folder .. "/good_labels.npy", 3)
    wrong("good_labels.npy: has labels of shape %[3%], but there are 4 images", "good.npy")
    t.write(folder .. "/cut.bin", "ab")
    wrong("cut.bin: has 2 bytes, which is not a multiple .* of 3073", "cut.bin")
    core.sys.mkdir(folder .. "/classes/a")
    wrong("classes: has no images in folders of classes", "classes")
    t.write(folder .. "/classes/a/x.jpg", "JFIF")
    wrong("x.jpg: is not a PGM or PPM file.*mogrify", "classes")
    t.write(folder .. "/classes/a/x.jpg", "P5 2 2 255\nabc")
    wrong("x.jpg: has 3 bytes of pixels, but 2 x 2 with 1 channels take 4", "classes")
    t.write(folder .. "/classes/a/x.jpg", "P5 2 2 255\nabcd")
    t.write(folder .. "/classes/a/y.pgm", "P5 1 2 255\nab")
    wrong("y.pgm: has 1 x 2 pixels with 1 channels, but .*x.jpg has 2 x 2", "classes",
      { valid = 0, test = 0 })
    t.write(folder .. "/classes/README", "")
    wrong("classes: README is not a folder", "classes")
  end)
end)

t.done()
