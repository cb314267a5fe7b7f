-- test_pictures.lua: sets of images and their labelled sets.
local t = require "harness"
local core = require "toeplab.core"
local pictures = require "toeplab.tasks.pictures"

local function squares(count)
  local bytes, labels = {}, {}
  for i = 1, count do
    bytes[i], labels[i] = string.char(i, 255 - i, 0, i), i % 2
  end
  return core.images(table.concat(bytes), 4), labels
end

t.test("a set of images has a count, a size and the bytes of each", function()
  local images <close> = squares(3)
  t.eq({ images:count(), images:size() }, { 3, 4 })
  t.eq(images:bytes(2), "\3\252\0\3")
  t.eq(images:batch(core.ids { 2, 0 }), { { 3, 252, 0, 3 }, { 1, 254, 0, 1 } })
  t.raises(images.bytes, "index 3 is not in 0..2", images, 3)
  t.raises(images.batch, "index 1 is 7, not in 0..2", images, core.ids { 7 })
end)

t.test("a set of images is read from records of a file", function()
  t.in_folder(function(folder)
    local path = folder .. "/records"
    t.write(path, "\0abcd\1efgh")
    local images <close> = core.images_open(path, { offset = 1, stride = 5, count = 2, size = 4 })
    local labels <close> = core.images_open(path, { offset = 0, stride = 5, count = 2, size = 1 })
    t.eq({ images:bytes(0), images:bytes(1) }, { "abcd", "efgh" })
    t.eq(labels:batch(core.ids { 0, 1 }):reshape(-1), { 0, 1 })
    t.raises(core.images_open, "has 10 bytes, and 3 images of 4 bytes need 15", path,
      { offset = 1, stride = 5, count = 3, size = 4 })
    t.raises(core.images_open, "unknown option 'width'", path, { width = 3 })
    t.raises(core.images_open, "'stride' is not an integer", path,
      { offset = 1, stride = "x", count = 3, size = 4 })
  end)
end)

t.test("batches have pixels as ids, whole rows and the labels", function()
  local images, labels = squares(10)
  local set = pictures.new(images, labels, 2, 1)
  t.eq({ set.count, set:steps(4) }, { 10, 2 })
  t.eq(set:chance(), 0.5)
  local batch = set:each(3)()
  t.eq(batch, { ids = { { 1, 254, 0, 1 }, { 2, 253, 0, 2 }, { 3, 252, 0, 3 } },
    lengths = { 4, 4, 4 }, labels = { 1, 0, 1 } })
  local seen, epoch = {}, nil
  for step = 1, 2 do
    batch, epoch = set:batch(step, 5)
    for i, row in ipairs(batch.ids:totable()) do
      seen[row[1]] = true
      t.eq(batch.labels:totable()[i], row[1] % 2)
    end
  end
  t.eq({ #seen, epoch }, { 10, 1 })
  local held, rest = set:split(4, 1)
  t.eq({ held.count, rest.count }, { 4, 6 })
  t.eq(held:part({ 1 }):each(1)().ids, { held:each(4)().ids:totable()[2] })
end)

t.test("wrong labels are refused", function()
  local images, labels = squares(3)
  t.raises(pictures.new, "2 labels for 3 images", images, { 0, 1 }, 2)
  t.raises(pictures.new, "label 1 is 1, not in 0..0", images, labels, 1)
end)

t.test("a part with unknown examples, and step 0, are errors", function()
  local labelled = require "toeplab.tasks.labelled"
  local set = labelled.new(core.ids { 1, 2, 3 }, core.ids { 0, 1, 2, 3 }, { 0, 1, 1 },
    { length = 2, classes = 2 })
  t.raises(set.part, "labelled: there is no example 7, only 0..2", set, { 0, 7 })
  t.raises(set.batch, "labelled: step must be an integer of at least 1, got 0", set, 0, 2)
end)

t.done()
