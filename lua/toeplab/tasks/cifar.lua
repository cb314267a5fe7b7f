-- tasks/cifar.lua: loads CIFAR-10 (Krizhevsky 2009): images of 32 x 32 pixels of ten classes. In
-- grey they are the task Image of Long Range Arena, 1,024 pixels as a sequence. The task is called
-- cifar if it uses all 60,000 images, and cifar-part if it uses 9,085 of them.
--
-- A file of images is a list of records: a byte with the label, then the pixels row by row, one
-- byte each; colour images have the red plane, then the green and the blue one.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local fetch = require "toeplab.tasks.fetch"
local options = require "toeplab.base.options"
local pictures = require "toeplab.tasks.pictures"
local simple_models = require "toeplab.tasks.simple_models"

local SIDE = 32
local GREY, COLOUR = SIDE * SIDE, 3 * SIDE * SIDE -- bytes of an image

local cifar = { classes = { "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse",
  "ship", "truck" } }
local CLASSES = #cifar.classes

local field = options.field

-- Returns the options of the task `name` on these images: `more`, and these; valid is the field of
-- its name.
function cifar.spec(name, more, valid)
  local list = table.move(more, 1, #more, 1, {})
  for _, entry in ipairs {
    { "colour", false, "3,072 numbers of a colour image, the planes of red, green and blue" },
    { "valid", valid, "training images held out to validate with" },
    { "train", field { type = "int", min = 1, optional = true }, "limit of the training images" },
    { "test", field { type = "int", min = 1, optional = true }, "limit of the test images" },
    { "data_seed", field { default = 1, min = 0 }, "seed of the choice of these images" },
    { "seed", field { type = "int", min = 0, optional = true },
      "seed of the order (default: tl.seed's)" },
  } do list[#list + 1] = entry end
  return options.declare("tl.tasks." .. name)(list)
end

-- ---- Reading ----

-- Returns the grey form of a colour image: the weights of ITU-R 601 in 16 bits, rounded, as image
-- libraries compute it.
local function grey_of(colour)
  local p, grey = { colour:byte(1, COLOUR) }, {}
  for i = 1, GREY do
    grey[i] = (19595 * p[i] + 38470 * p[i + GREY] + 7471 * p[i + 2 * GREY] + 32768) >> 16
  end
  return string.char(table.unpack(grey))
end

-- Reads a source: {path=} or {name=, text=}, and size, the bytes of an image in it. Appends to the
-- lists labels and images, in grey unless colour.
local function read(who, source, colour, labels, images)
  local name, text = source.name or source.path, source.text
  if not text then
    local why
    text, why = core.sys.read_file(source.path)
    if not text then errors.usage("%s: %s", who, why) end
  end
  local record = 1 + source.size
  if #text == 0 or #text % record ~= 0 then
    errors.usage("%s: %s has %d bytes, which is not a multiple of a record of %d bytes, a label "
      .. "and %d x %d pixels%s: truncated, or images of another size", who, name, #text, record,
      SIDE, SIDE, source.size == COLOUR and " in three colours" or "")
  end
  for first = 1, #text, record do
    local label, pixels = text:byte(first), text:sub(first + 1, first + source.size)
    if label >= CLASSES then
      errors.usage("%s: %s: record %d, at byte %d, has the label %d, not 0..%d", who, name,
        first // record + 1, first - 1, label, CLASSES - 1)
    end
    labels[#labels + 1] = label
    images[#images + 1] = (colour or source.size == GREY) and pixels or grey_of(pixels)
  end
  return name
end

-- Returns the set of the images in a list of sources (read), which must cover all classes.
local function set_of(who, sources, o)
  local labels, images, seen, name = {}, {}, {}, nil
  for _, source in ipairs(sources) do name = read(who, source, o.colour, labels, images) end
  for _, label in ipairs(labels) do seen[label] = true end
  for label, class in ipairs(cifar.classes) do
    if not seen[label - 1] then
      errors.usage("%s: %s has no image of class %d (%s)", who,
        #sources > 1 and ("%d files with %s"):format(#sources, name) or name, label - 1, class)
    end
  end
  local bytes = core.images(table.concat(images), o.colour and COLOUR or GREY)
  return pictures.new(bytes, labels, CLASSES, o.seed)
end

-- Returns the first count images of a set in a random order, and the rest, which must not be empty.
local function held_out(who, set, count, o)
  if count >= set.count then
    errors.usage("%s: %d of %d training images leave none to train on", who, count, set.count)
  end
  return set:split(count, o.data_seed)
end

-- Returns the task of a training set, from which o.valid images are held out, and a test set:
-- {train=, valid=, test= (tasks/labelled.lua), vocab= 256, classes= 10, grid= {32, 32}, pixels=
-- (the mean and deviation by which the published runs normalise), yardsticks()}.
local function task_of(who, train, test, o)
  local task = { vocab = pictures.VOCAB, classes = CLASSES, grid = { SIDE, SIDE },
    pixels = { mean = 122.6 / 255, deviation = 61 / 255 } }
  task.valid, task.train = held_out(who, train, o.valid, o)
  if o.train then task.train = task.train:split(o.train, o.data_seed, who .. ": train") end
  task.test = o.test and test:split(o.test, o.data_seed, who .. ": test") or test
  function task.yardsticks() return { ridge_accuracy = simple_models.ridge(task) } end
  return task
end

-- Returns the task of two lists of sources (read) for resolved options.
function cifar.assemble(who, train, test, o)
  return task_of(who, set_of(who, train, o), set_of(who, test, o), o)
end

-- ---- All images ----

local spec = cifar.spec("cifar", {
  { "train_file", field { type = "string", optional = true },
    "another file of training images in colour" },
  { "test_file", field { type = "string", optional = true },
    "another file of test images in colour" },
}, field { default = 5000, min = 1 })

local published = { train = {}, test = { "test_batch.bin" } }
for i = 1, 5 do published.train[i] = ("data_batch_%d.bin"):format(i) end

local function place(name) return fetch.file("cifar10", "cifar-10-batches-bin/" .. name) end

local function sources(file, part)
  if file then return { { path = file, size = COLOUR } } end
  local list = {}
  for i, name in ipairs(published[part]) do list[i] = { path = place(name), size = COLOUR } end
  return list
end

-- tl.tasks.cifar(options)
function cifar.open(given)
  local o = options.check("cifar", spec, given)
  return cifar.assemble("cifar", sources(o.train_file, "train"), sources(o.test_file, "test"), o)
end

-- Returns the hash of the published files, which must be present.
function cifar.hash()
  local paths = {}
  for _, part in ipairs { "train", "test" } do
    for _, name in ipairs(published[part]) do paths[#paths + 1] = place(name) end
  end
  return fetch.hash(paths)
end

-- ---- A part of them ----

local part = {}
cifar.part = part

-- By content: the data set, the file, and the bytes of an image.
local files = {
  first = { "cifar10-first4000", "cifar10/lossless_train_0000-3999.bin", COLOUR },
  more = { "cifar10-grey", "cifar10/grey_train_more.bin", GREY },
  test = { "cifar10-grey", "cifar10/grey_test_0000-1016.bin", GREY },
}

local part_spec = cifar.spec("cifar-part", {}, field { type = "int", min = 1, optional = true })

local function source_of(what)
  local set, file, size = table.unpack(files[what])
  return { path = fetch.file(set, file), size = size }
end

-- tl.tasks["cifar-part"](options): in grey 8,068 training images, of which 1,068 are held out
-- unless valid says otherwise, and 1,017 of the published test images. In colour there are 4,000
-- training images only, of which 500 are held out to validate and, unless test says otherwise, 500
-- to test.
function part.open(given)
  local o = options.check("cifar-part", part_spec, given)
  o.valid = o.valid or o.colour and 500 or 1068
  if not o.colour then
    return cifar.assemble("cifar-part", { source_of "first", source_of "more" },
      { source_of "test" }, o)
  end
  local all = set_of("cifar-part", { source_of "first" }, o)
  local test, train = held_out("cifar-part", all, o.test or 500, o)
  o.test = nil
  return task_of("cifar-part", train, test, o)
end

-- Returns the hash of these files, which must be present.
function part.hash()
  return fetch.hash { source_of("first").path, source_of("more").path, source_of("test").path }
end

return cifar
