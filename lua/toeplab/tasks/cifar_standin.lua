-- tasks/cifar_standin.lua: generates images in the format of CIFAR-10, for tests and for machines
-- without the published ones.
--
-- It is a separate task, cifar-standin, so that its results are never mistaken for the task
-- Image's. A class is the direction and the width of stripes; their place, colours and noise are
-- random.

local cifar = require "toeplab.tasks.cifar"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local options = require "toeplab.base.options"

local standin = {}

local SIDE = 32

-- By class: the slope along a row and along a column of the striped value, and the stripes' width.
local stripes = { { 1, 0, 2 }, { 0, 1, 2 }, { 1, 1, 3 }, { 1, -1, 3 }, { 1, 0, 6 }, { 0, 1, 6 },
  { 1, 1, 9 }, { 1, -1, 9 }, { 2, 1, 5 }, { 1, 2, 5 } }

local field = options.field
local count = function(default) return field { default = default, min = 10, max = 1 << 24 } end

-- The options of the generator; a part has all ten classes.
standin.drawing = {
  { "images", count(2000), "images to train and validate with" },
  { "test_images", count(500), "images to test with" },
  { "noise", field { default = 64, min = 1, max = 128 }, "noise is below this, of 256 levels" },
  { "drawing_seed", field { default = 1, min = 0 }, "seed of the images" },
}

-- Returns an image of a class: the planes of red, green and blue.
local function draw_image(stream, noise, class)
  local dx, dy, width = table.unpack(stripes[class + 1])
  local from, bytes = 256 + stream:below(2 * width), {}
  for plane = 0, 2 do
    local dark, light = stream:below(64), 128 + stream:below(256 - 128 - noise + 1)
    for y = 0, SIDE - 1 do
      for x = 0, SIDE - 1 do
        local level = (from + dx * x + dy * y) // width % 2 == 0 and dark or light
        bytes[(plane * SIDE + y) * SIDE + x + 1] = math.min(level + stream:below(noise), 255)
      end
    end
  end
  return string.char(table.unpack(bytes))
end

-- Returns the records of a part, whose classes take turns.
local function draw(o, part)
  local stream, records = core.stream(o.drawing_seed, "cifar." .. part), {}
  for i = 1, part == "train" and o.images or o.test_images do
    local class = (i - 1) % #stripes
    records[i] = string.char(class) .. draw_image(stream, o.noise, class)
  end
  return table.concat(records)
end

local spec = cifar.spec("cifar-standin", standin.drawing, field { default = 200, min = 1 })

-- tl.tasks["cifar-standin"](options): as tl.tasks.cifar, of generated images.
function standin.open(given)
  local o, sources = options.check("cifar-standin", spec, given), {}
  for i, part in ipairs { "train", "test" } do
    sources[i] = { { name = "generated " .. part, text = draw(o, part), size = 3 * SIDE * SIDE } }
  end
  return cifar.assemble("cifar-standin", sources[1], sources[2], o)
end

-- Returns the hash that, with the options, identifies the images: it names the generator's version.
function standin.hash() return core.sha256 "cifar-standin 1" end

-- Writes standin_train.bin and standin_test.bin into folder, each completely or not at all, and
-- returns their paths. The names differ from the published files', so that the two cannot be
-- confused.
function standin.write(folder, given)
  local o = options.check("cifar-standin", standin.drawing, given)
  errors.stored(core.sys.mkdir(folder))
  local paths = {}
  for i, part in ipairs { "train", "test" } do
    paths[i] = ("%s/standin_%s.bin"):format(folder, part)
    errors.stored(core.sys.write_file(paths[i], draw(o, part)))
  end
  return paths
end

return standin
