-- tasks/images.lua: loads labelled images of the user's own: NumPy's arrays and archives, datasets
-- of HDF5, the files of CIFAR-10, and folders of PGM or PPM files.
--
-- A source of images is {path=, count=, height=, width=, channels=, labels= (a list; strings are
-- names of classes), read(numbers) -> ids [b, c height width]}. Images of bytes in a file are read
-- when a batch needs them; others become bytes in memory.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local npy = require "toeplab.models.files.formats.npy"
local options = require "toeplab.base.options"
local pictures = require "toeplab.tasks.pictures"
local recorded = require "toeplab.tasks.recorded"
local simple_models = require "toeplab.tasks.simple_models"
local sorted_keys = require "toeplab.base.sorted_keys"
local source = require "toeplab.tasks.source"

local images = {}

local SAMPLE, SIZE = 2000, 100 -- images that the means are taken of; images read at once
local RIDGE = 64 * 64 * 3      -- most numbers of an image for the yardstick
local SPAN = 4096              -- numbers made a string at once

local field = options.field

local spec = options.declare "tl.tasks.images" {
  { "file", "string", "the images: a .npy file beside NAME_labels.npy, a .npz or HDF5 file, a .bin "
    .. "file of CIFAR-10, or a folder" },
  { "valid_file", field { type = "string", optional = true }, "the same to validate with" },
  { "test_file", field { type = "string", optional = true }, "the same to test with" },
  { "images", "images", "the dataset of the images in an HDF5 file, or the array in a .npz file, "
    .. "also of one with parts" },
  { "labels", "labels", "the same of the labels" },
  { "valid", field { default = 0.1, min = 0, max = 0.9 },
    "share of the images of file held out if there is no valid_file" },
  { "test", field { default = 0.1, min = 0, max = 0.9 }, "the same if there is no test_file" },
  { "data_seed", field { default = 1, min = 0 }, "seed of the choice of these images" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" },
}

local function bad(path, format, ...) errors.usage("images: %s: %s", path, format:format(...)) end

-- ---- Arrays -------------------------------------------------------------------------------------

-- Returns height, width and channels of an array of shape dims, [N,H,W] or [N,H,W,C].
local function sides(path, dims)
  local c = #dims == 3 and 1 or dims[4]
  local shape = "[" .. table.concat(dims, ",") .. "]"
  if #dims == 4 and c > 4 and dims[2] <= 4 then
    bad(path, "has the shape %s, not [N,H,W,C]: write numpy.ascontiguousarray(x.transpose(0, "
      .. "2, 3, 1))", shape)
  elseif #dims < 3 or #dims > 4 or c < 1 or c > 4 then
    bad(path, "has the shape %s, not [N,H,W], or [N,H,W,C] with 1 to 4 channels", shape)
  end
  if dims[1] == 0 or dims[2] == 0 or dims[3] == 0 then bad(path, "has no pixels: %s", shape) end
  return dims[2], dims[3], c
end

-- Returns the values of a tensor of images, the first of which has index `first`, as a string:
-- int32 from 0 to 255, or float32 from 0 to 1, rounded to 256 levels.
local function bytes_of(path, t, first)
  local list, size = t:reshape(-1):totable(), t:numel() // t:dim(1)
  local real = t:type() == "float32"
  local most = real and 1 or 255
  for i, value in ipairs(list) do
    if not (value >= 0 and value <= most) then
      bad(path, "image %d has the value %s, not 0 to %d%s", first + (i - 1) // size, value, most,
        real and " for real numbers: divide bytes by 255" or "")
    end
    if real then list[i] = math.floor(value * 255 + 0.5) end
  end
  local parts = {}
  for i = 1, #list, SPAN do
    parts[#parts + 1] = string.char(table.unpack(list, i, math.min(i + SPAN - 1, #list)))
  end
  return table.concat(parts)
end

-- Returns a set of images (core.images) of count images of size values: read(first, n) returns a
-- tensor of n images from index first on.
local function converted(path, count, size, read)
  local parts = {}
  for first = 0, count - 1, SIZE do
    parts[#parts + 1] = bytes_of(path, read(first, math.min(SIZE, count - first)), first)
  end
  return core.images(table.concat(parts), size)
end

-- Returns a source of the pixels in a set (core.images), each with its channels one after another.
local function of_set(path, dims, set, labels)
  local height, width, channels = sides(path, dims)
  set:interleaved(channels)
  return { path = path, count = dims[1], height = height, width = width, channels = channels,
    labels = labels, read = function(numbers) return set:batch(core.ids(numbers)) end }
end

-- Returns a tensor of labels, [count] or [count,1] int32, as a list.
local function label_list(path, t, count)
  if t:type() ~= "int32" then bad(path, "labels must be integers, not %s", t:type()) end
  if t:ndim() == 2 and t:dim(2) == 1 then t = t:reshape(-1) end
  if t:ndim() ~= 1 or t:dim(1) ~= count then
    bad(path, "has labels of shape [%s], but there are %d images", table.concat(t:shape(), ","),
      count)
  end
  return t:totable()
end

-- Returns the path of the labels of a .npy file.
local function labels_of(path) return (path:gsub("%.npy$", "_labels.npy")) end

-- Returns the set of the images in an array with the header about, in the file `where`.
local function set_in(path, where, about)
  local dims, kind = about.dims, about.kind
  sides(path, dims)
  if kind ~= "U8" and kind:sub(1, 1) ~= "F" then
    bad(path, "has elements of type %s, not uint8, or float32 from 0 to 1", kind)
  end
  if about.fortran then bad(path, "is in Fortran order: write numpy.ascontiguousarray(x)") end
  local size = dims[2] * dims[3] * (dims[4] or 1)
  if kind == "U8" then
    return core.images_open(where, { offset = about.offset, stride = size, count = dims[1],
      size = size })
  end
  local stride = size * core.raw_bytes(kind)
  return converted(path, dims[1], size, function(first, n)
    return core.raw_read(where, about.offset + first * stride, kind, { n, size })
  end)
end

local function from_npy(path)
  local about, label_path = npy.header(path), labels_of(path)
  sides(path, about.dims)
  if not core.sys.exists(label_path) then bad(path, "its labels are not here: %s", label_path) end
  return of_set(path, about.dims, set_in(path, path, about),
    label_list(label_path, npy.read(label_path), about.dims[1]))
end

-- ---- Archives of NumPy --------------------------------------------------------------------------

-- By the part: how archives with several parts call it.
local part_names = { train = { "train" }, valid = { "valid", "val" }, test = { "test" } }

-- Returns the names of a part's images and labels in an archive that has several parts, such as
-- x_train and y_train, or val_images and val_labels; nil: it has no such part. present: a set.
local function pair_of(present, part)
  for _, name in ipairs(part_names[part]) do
    for _, form in ipairs { { "x_" .. name, "y_" .. name },
      { name .. "_images", name .. "_labels" } } do
      if present[form[1]] then return form[1], form[2] end
    end
  end
end

-- Returns whether the options o name arrays, which then are all that is read of an archive.
local function names_arrays(o) return o.images ~= "images" or o.labels ~= "labels" end

-- Returns the source of a part in an archive: of the arrays that o names, else of its own, else of
-- images and labels, or else x and y.
local function from_npz(path, o, part)
  local present, name, label_name = npy.names(path), nil, nil
  if not names_arrays(o) then name, label_name = pair_of(present, part) end
  if not name and o.images == "images" and present.x and not present.images then
    name, label_name = "x", "y"
  elseif not name then
    name, label_name = o.images, o.labels
  end
  for _, wanted in ipairs { name, label_name } do
    if not present[wanted] then
      bad(path, "has no array '%s' (present: %s): set the options images and labels", wanted,
        table.concat(sorted_keys(present), ", "))
    end
  end
  local who, dims = ("%s: array '%s'"):format(path, name), nil
  local set = npy.with_entry(path, name, function(where, about)
    dims = about.dims
    return set_in(who, where, about)
  end)
  return of_set(who, dims, set, label_list(("%s: array '%s'"):format(path, label_name),
    npy.with_entry(path, label_name), dims[1]))
end

local function from_h5(path, o)
  local file <close> = core.h5_open(path)
  local function read(name)
    local ok, t = pcall(file.read, file, name)
    if not ok then
      local present = {}
      for _, child in ipairs(file:children "/") do present[#present + 1] = child.name end
      bad(path, "the dataset '%s' cannot be read (present: %s): %s", name,
        table.concat(present, ", "), errors.text(t))
    end
    return t
  end
  local t = read(o.images)
  local dims = t:shape()
  sides(path, dims)
  local set = converted(path, dims[1], t:numel() // dims[1],
    function(first, n) return t:narrow(1, first + 1, n) end)
  return of_set(path, dims, set, label_list(path, read(o.labels), dims[1]))
end

-- A file of CIFAR-10: of each image the label, and the planes of red, green and blue.
local function from_cifar(path)
  local side, record, bytes = 32, 3073, core.sys.size(path)
  if bytes == 0 or bytes % record ~= 0 then
    bad(path, "has %d bytes, which is not a multiple of a record of CIFAR-10 of %d bytes", bytes,
      record)
  end
  local count, numbers = bytes // record, {}
  local function open(offset, size)
    return core.images_open(path, { offset = offset, stride = record, count = count, size = size })
  end
  for i = 1, count do numbers[i] = i - 1 end
  local marks <close>, set = open(0, 1), open(1, record - 1)
  return { path = path, count = count, height = side, width = side, channels = 3,
    labels = marks:batch(core.ids(numbers)):reshape(-1):totable(),
    read = function(wanted) return set:batch(core.ids(wanted)) end }
end

-- ---- Folders ------------------------------------------------------------------------------------

-- Returns the names in a folder that are not hidden, sorted, and how many are folders.
local function entries(folder)
  local list, folders = {}, 0
  for _, name in ipairs(core.sys.list(folder)) do
    if not name:find "^%." then
      list[#list + 1] = name
      if core.sys.kind(folder .. "/" .. name) == "folder" then folders = folders + 1 end
    end
  end
  table.sort(list)
  return list, folders
end

-- Returns the width, height, channels and pixels of a PGM or PPM file of bytes.
local function read_pnm(path)
  local text, why = core.sys.read_file(path)
  if not text then errors.usage("images: %s", why) end
  local kind, at, numbers = text:sub(1, 2), 3, {}
  for i = 1, 3 do
    local from = text:match("^%s+()", at)
    while from and text:byte(from) == 35 do from = text:match("^[^\n]*%s*()", from) end -- comments
    local digits, past = text:match("^(%d+)()", from or 1)
    numbers[i], at = tonumber(digits), past
    if not from or not digits then break end
  end
  if kind ~= "P5" and kind ~= "P6" or #numbers < 3 then
    bad(path, "is not a PGM or PPM file of bytes (P5, P6); ImageMagick converts images: mogrify "
      .. "-format ppm -resize 32x32! FILES")
  end
  local width, height, channels = numbers[1], numbers[2], kind == "P5" and 1 or 3
  if numbers[3] ~= 255 then bad(path, "has the maximal level %d, not 255", numbers[3]) end
  if #text - at ~= width * height * channels or width == 0 or height == 0 then
    bad(path, "has %d bytes of pixels, but %d x %d with %d channels take %d", #text - at, width,
      height, channels, width * height * channels)
  end
  return width, height, channels, text:sub(at + 1)
end

-- A folder with a folder for each class.
local function from_classes(folder)
  local paths, labels, width, height, channels = {}, {}, nil, nil, nil
  for _, class in ipairs(entries(folder)) do
    if core.sys.kind(folder .. "/" .. class) ~= "folder" then
      bad(folder, "%s is not a folder: images lie in a folder for each class", class)
    end
    for _, name in ipairs(entries(folder .. "/" .. class)) do
      paths[#paths + 1], labels[#labels + 1] = ("%s/%s/%s"):format(folder, class, name), class
    end
  end
  if #paths == 0 then bad(folder, "has no images in folders of classes") end
  width, height, channels = read_pnm(paths[1])
  return { path = folder, count = #paths, height = height, width = width, channels = channels,
    labels = labels, read = function(numbers)
      local texts, order = {}, {}
      for i, number in ipairs(numbers) do
        local path = paths[number + 1]
        local w, h, c, text = read_pnm(path)
        if w ~= width or h ~= height or c ~= channels then
          bad(path, "has %d x %d pixels with %d channels, but %s has %d x %d with %d", w, h, c,
            paths[1], width, height, channels)
        end
        texts[i], order[i] = text, i - 1
      end
      local set <close> = core.images(table.concat(texts), width * height * channels)
      return set:interleaved(channels):batch(core.ids(order))
    end }
end

-- Returns the path of a part within a folder: a folder or a file of this name; nil: there is none.
local function part_in(folder, part)
  for _, ending in ipairs { "", ".npy", ".npz", ".h5", ".hdf5" } do
    local path = folder .. "/" .. part .. ending
    local kind = core.sys.kind(path)
    if kind == (ending == "" and "folder" or "file") then return path end
  end
end

-- Returns the source of a part at path.
local function open_source(path, o, part)
  local kind, ending = core.sys.kind(path), path:match "%.(%w+)$"
  if not kind then bad(path, "there is no such file or folder") end
  if kind == "folder" then return from_classes(path) end
  if ending == "npy" then return from_npy(path) end
  if ending == "npz" then return from_npz(path, o, part) end
  if ending == "h5" or ending == "hdf5" then return from_h5(path, o) end
  if ending == "bin" then return from_cifar(path) end
  bad(path, "must be a folder or end in .npy, .npz, .h5, .hdf5 or .bin (of CIFAR-10); numpy.save "
    .. "writes arrays of images")
end

-- ---- The identity of the data -------------------------------------------------------------------

-- Adds a line for each file in a folder to a list.
local function list_files(folder, below, lines)
  for _, name in ipairs(entries(folder)) do
    local path = folder .. "/" .. name
    if core.sys.kind(path) == "folder" then
      list_files(path, below .. name .. "/", lines)
    else
      lines[#lines + 1] = core.sha256_file(path) .. "  " .. below .. name
    end
  end
  return lines
end

-- Returns the hash of images that are not one file: a folder of folders or of arrays, or an array
-- and its labels; nil: source.find reads the hash.
function images.hash(path)
  local kind = core.sys.kind(path)
  if kind == "folder" then
    local list, folders = entries(path)
    local whole = #list > 0 and folders == #list
    if not whole and not part_in(path, "train") then return nil end
    return core.sha256(table.concat(list_files(path, "", {}), "\n"))
  end
  local label_path = kind and path:find "%.npy$" and labels_of(path)
  if not label_path or not core.sys.exists(label_path) then return nil end
  return core.sha256(core.sha256_file(path) .. "\n" .. core.sha256_file(label_path))
end

-- ---- The task -----------------------------------------------------------------------------------

-- Returns the names of the classes of a training source: of its folders, or "0", "1", ...
local function classes_of(from)
  local seen, names = {}, {}
  for i, label in ipairs(from.labels) do
    if math.type(label) and label < 0 then
      bad(from.path, "image %d has the label %d, not 0 or more", i - 1, label)
    end
    seen[label] = true
  end
  if type(from.labels[1]) == "string" then
    for name in pairs(seen) do names[#names + 1] = name end
    table.sort(names)
    return names
  end
  local most = 0
  for label in pairs(seen) do most = math.max(most, label) end
  for label = 0, most do
    if not seen[label] then
      bad(from.path, "no image has the label %d, and labels reach %d: they must be 0, 1, ... "
        .. "without a gap", label, most)
    end
    names[label + 1] = tostring(label)
  end
  return names
end

-- Returns a labelled set of a source with these names of classes.
local function set_of(from, names, seed)
  local number, labels = {}, {}
  for i, name in ipairs(names) do number[name] = i - 1 end
  for i, label in ipairs(from.labels) do
    labels[i] = number[tostring(label)]
    if not labels[i] then
      bad(from.path, "image %d has the label '%s', and the training images have %s", i - 1, label,
        table.concat(names, ", "))
    end
  end
  return pictures.over(from.read, from.height * from.width * from.channels, labels, #names, seed)
end

-- Sets in task the mean and deviation of the channels over the training images, at most SAMPLE of
-- them at equal distances, of levels from 0 to 1; and pixels, the same of all channels.
local function measure(task)
  local set, c, levels = task.train, task.channels, core.range(0, 255) / 255
  local numbers, sums, squares = {}, {}, {}
  local count = math.min(SAMPLE, set.count)
  for i = 1, count do numbers[i] = (i - 1) * set.count // count end
  for k = 1, c do sums[k], squares[k] = 0.0, 0.0 end
  for batch in set:part(numbers):each(SIZE) do
    local x = levels:gather(batch.ids):reshape(batch.ids:dim(1), c, -1)
    local one, two = x:sum(1):mean(2):totable(), core.square(x):sum(1):mean(2):totable()
    for k = 1, c do sums[k], squares[k] = sums[k] + one[k], squares[k] + two[k] end
  end
  local function deviation(mean, square)
    return square - mean ^ 2 > 1e-6 and math.sqrt(square - mean ^ 2) or 1.0
  end
  local mean, square = 0.0, 0.0
  task.mean, task.deviation = {}, {}
  for k = 1, c do
    task.mean[k] = sums[k] / count
    task.deviation[k] = deviation(task.mean[k], squares[k] / count)
    mean, square = mean + task.mean[k] / c, square + squares[k] / count / c
  end
  task.pixels = { mean = mean, deviation = deviation(mean, square) }
end

-- tl.tasks.images(options): returns {train=, valid=, test= (tasks/labelled.lua; a part of no images
-- is nil), vocab= 256, classes= (their number), labels= (their names, of class 0 first), height=,
-- width=, channels=, grid=, mean=, deviation= (of the channels), pixels=, yardsticks()}. A row has
-- the channels one after another, each row by row.
function images.open(given)
  local o = options.check("images", spec, given)
  local paths = { train = o.file, valid = o.valid_file, test = o.test_file }
  if core.sys.kind(o.file) == "folder" and part_in(o.file, "train") then
    paths.train = part_in(o.file, "train")
    paths.valid = paths.valid or part_in(o.file, "valid")
    paths.test = paths.test or part_in(o.file, "test")
  end
  if o.file:find "%.npz$" and core.sys.exists(o.file) and not names_arrays(o) then
    local present = npy.names(o.file)
    for part in pairs(part_names) do
      paths[part] = paths[part] or pair_of(present, part) and o.file
    end
  end
  local first = open_source(paths.train, o, "train")
  for _, path in pairs { o.file, o.valid_file, o.test_file } do
    recorded.check_file(path, "images " .. path, function()
      return images.hash(path) or source.find(path).hash
    end)
  end
  local names = classes_of(first)
  local task = { vocab = pictures.VOCAB, classes = #names, labels = names, height = first.height,
    width = first.width, channels = first.channels, grid = { first.height, first.width } }
  task.train = set_of(first, names, o.seed)
  local all = first.count
  for _, part in ipairs { "valid", "test" } do
    local count = math.ceil(o[part] * all)
    if paths[part] then
      local from = open_source(paths[part], o, part)
      if from.height ~= first.height or from.width ~= first.width
          or from.channels ~= first.channels then
        bad(from.path, "has images of %d x %d with %d channels, but %s of %d x %d with %d",
          from.height, from.width, from.channels, first.path, first.height, first.width,
          first.channels)
      end
      task[part] = set_of(from, names, o.seed)
    elseif count > 0 then
      if count >= task.train.count then
        errors.usage("images: valid = %g and test = %g of %d leave none to train on",
          o.valid, o.test, all)
      end
      task[part], task.train = task.train:split(count, o.data_seed)
    end
  end
  measure(task)
  if first.height * first.width * first.channels <= RIDGE and task.valid and task.test then
    function task.yardsticks() return { ridge_accuracy = simple_models.ridge(task) } end
  end
  return task
end

return images
