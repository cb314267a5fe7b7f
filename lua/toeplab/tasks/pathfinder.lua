-- tasks/pathfinder.lua: the task Pathfinder, and Path-X: whether two disks lie on the ends of one
-- dashed contour or of two (Linsley et al. 2018), as for Long Range Arena.
--
-- The images are drawn (core/images/pathfinder.c) on first use, then cached: the cache folder has a
-- file for each part, named by the hash of the options that decide its content. A file has records
-- of a label and the pixels, one byte each, like CIFAR-10's; its sha256 lies beside it, in the
-- format of sha256sum. Small parts are drawn each time.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local fetch = require "toeplab.tasks.fetch"
local options = require "toeplab.base.options"
local pictures = require "toeplab.tasks.pictures"
local progress = require "toeplab.base.progress"
local whole_file = require "toeplab.tasks.whole_file"
local simple_models = require "toeplab.tasks.simple_models"

local VERSION = 1 -- of the generator: raise it with each change of a seed's images
local CACHED = 1 << 21 -- bytes from which a part is cached
local CLASSES = 2

local field = options.field
local count = function(default) return field { default = default, min = 1, max = 1 << 30 } end

local function drawing(size)
  return {
    { "size", field { default = size, min = 32, max = 256, check = function(side)
      return side & side - 1 == 0, ("is %d, not 32, 64, 128 or 256"):format(side)
    end }, "pixels of a side: 32, 64, 128 or 256" },
    { "train", count(160000), "images to train on" },
    { "valid", count(20000), "images to validate with; the test images depend on this number" },
    { "test", count(20000), "images to test with" },
    { "data_seed", field { default = 1, min = 0 }, "seed of the images" },
  }
end

-- ---- Drawing ------------------------------------------------------------------------------------

-- Returns where each part begins, and its number of images. Validation and test images come first,
-- so that they do not depend on the number of training images. The test images depend on the number
-- of validation images, and the training images on both.
local function parts_of(o)
  return { { name = "valid", first = 0, count = o.valid },
    { name = "test", first = o.valid, count = o.test },
    { name = "train", first = o.valid + o.test, count = o.train } }
end

local function line_of(o, part)
  return ("pathfinder %d size=%d seed=%d first=%d count=%d"):format(VERSION, o.size, o.data_seed,
    part.first, part.count)
end

-- Calls take(text) with the records of a part, block by block. Blocks are small, to need little
-- memory and to notice a signal soon.
local function draw(o, part, watch, take)
  local block = o.size < 128 and 512 or 64
  watch:start(("drawing %d images of %dx%d"):format(part.count, o.size, o.size))
  for done = 0, part.count - 1, block do
    local images <close>, labels = core.pathfinder { size = o.size, seed = o.data_seed,
      first = part.first + done, count = math.min(block, part.count - done) }
    local list, records = labels:totable(), {}
    for i, label in ipairs(list) do
      records[2 * i - 1], records[2 * i] = string.char(label), images:bytes(i - 1)
    end
    take(table.concat(records))
    if part.count > block then watch:update(done + #list, part.count) end
  end
  watch:clear()
end

local function bytes_of(o, part) return part.count * (1 + o.size ^ 2 | 0) end

-- Writes the records of a part to path, completely or not at all.
local function write(path, o, part, watch)
  whole_file(path, function(append) draw(o, part, watch, append) end)
end

-- ---- The cache ----------------------------------------------------------------------------------

-- Returns the sha256 stored beside the file at path, or nil.
local function recorded(path)
  local text = core.sys.read_file(path .. ".sha256")
  return text and text:match "^(%x+)  "
end

-- Returns whether the file of a part is complete and unchanged. Warns if it is not.
local function whole(path, bytes, watch)
  if not core.sys.exists(path) then return false end
  local why
  if core.sys.size(path) ~= bytes then
    why = ("has %d bytes, not %d"):format(core.sys.size(path), bytes)
  elseif not recorded(path) then
    why = "has no sha256 beside it"
  elseif core.sha256_file(path) ~= recorded(path) then
    why = "differs from its sha256"
  end
  if why then watch:warn("%s %s; drawn again", path, why) end
  return not why
end

-- Returns the path of the file of a part, which is drawn if it is absent or damaged; nil and why if
-- it cannot be written. If several processes need it, one draws and the others wait.
local function cached(folder, o, part, watch)
  local name = ("pathfinder%d-%s.bin"):format(o.size, core.sha256(line_of(o, part)):sub(1, 16))
  local path, bytes = folder .. "/" .. name, bytes_of(o, part)
  for _, file in ipairs { path, path .. ".sha256" } do
    if core.sys.kind(file) == "folder" then
      errors.raise(errors.STORAGE, "%s: is a folder, not a file: move it away", file)
    end
  end
  local lock <close>, why = io.open(path .. ".lock", "a")
  if not lock then -- the folder cannot be written to
    if whole(path, bytes, watch) then return path end
    return nil, why
  end
  while not core.sys.lock(lock) do core.sys.sleep(0.1) end
  if whole(path, bytes, watch) then return path end
  fetch.need(folder, bytes, name)
  write(path, o, part, watch)
  errors.stored(core.sys.write_file(path .. ".sha256",
    ("%s  %s\n"):format(core.sha256_file(path), name)))
  return path
end

local function cache_folder()
  local cache = core.sys.cache_dir()
  local folder = cache and cache .. "/images"
  return folder and core.sys.mkdir(folder) and folder or nil
end

-- Returns the images and the labels of a part.
local function load(o, part, watch)
  local size, folder = o.size ^ 2 | 0, cache_folder()
  local record, small = { stride = size + 1, count = part.count }, part.count * size < CACHED
  local path, why = nil, "there is none"
  if folder and not small then path, why = cached(folder, o, part, watch) end
  if not path and not small then
    watch:warn("no folder to cache images in (%s), and they are drawn each time: set "
      .. "TOEPLAB_CACHE", why)
  end
  if not path then
    local texts, labels = {}, {}
    draw(o, part, watch, function(text) texts[#texts + 1] = text end)
    local text, pixels = table.concat(texts), {}
    for i = 1, part.count do
      local at = (i - 1) * record.stride + 1
      labels[i], pixels[i] = text:byte(at), text:sub(at + 1, at + size)
    end
    return core.images(table.concat(pixels), size), labels
  end
  local function open(offset, bytes)
    return core.images_open(path, { offset = offset, stride = record.stride, count = part.count,
      size = bytes })
  end
  local marks <close>, all = open(0, 1), {}
  for i = 1, part.count do all[i] = i - 1 end
  return open(1, size), marks:batch(core.ids(all)):reshape(-1):totable()
end

-- ---- The tasks ----------------------------------------------------------------------------------

-- Returns the task of a name and size: open(options), write(folder, options, progress), hash() and
-- drawing, as in listops.
local function task_of(name, size)
  local task = { drawing = drawing(size) }
  local spec = drawing(size)
  spec[#spec + 1] = { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" }
  spec = options.declare("tl.tasks." .. name)(spec)

  -- Returns {train=, valid=, test= (tasks/labelled.lua), vocab= 256, classes= 2, grid= {size,
  -- size}, pixels= (the mean and deviation by which the published runs normalise), and
  -- yardsticks() unless the images are too large for a regression on all pixels}.
  function task.open(given)
    local o = options.check(name, spec, given)
    local made = { vocab = pictures.VOCAB, classes = CLASSES, grid = { o.size, o.size },
      pixels = { mean = 0.5, deviation = 0.5 } }
    for _, part in ipairs(parts_of(o)) do
      local images, labels = load(o, part, progress.new())
      made[part.name] = pictures.new(images, labels, CLASSES, o.seed)
    end
    if o.size <= 64 then
      function made.yardsticks() return { ridge_accuracy = simple_models.ridge(made) } end
    end
    return made
  end

  -- Writes the parts as files of records into folder, each completely or not at all, and returns
  -- their paths. watch is a progress display.
  function task.write(folder, given, watch)
    local o = options.check(name, task.drawing, given)
    local paths, bytes = {}, 0
    for _, part in ipairs(parts_of(o)) do bytes = bytes + bytes_of(o, part) end
    errors.stored(core.sys.mkdir(folder))
    fetch.need(folder, bytes, name)
    for i, part in ipairs(parts_of(o)) do
      paths[i] = ("%s/pathfinder%d_%s.bin"):format(folder, o.size, part.name)
      write(paths[i], o, part, watch)
    end
    return paths
  end

  -- Returns the hash that, with the options, identifies the images.
  function task.hash() return core.sha256(("%s %d"):format(name, VERSION)) end

  return task
end

local pathfinder = task_of("pathfinder", 32)
pathfinder.path_x = task_of("path-x", 128)

return pathfinder
