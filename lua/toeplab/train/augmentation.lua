-- train/augmentation.lua: trains models of images on altered images: changed by RandAugment,
-- cropped, mirrored, partly erased and mixed in pairs, with smoothed labels.
--
-- All choices are drawn from the stream "augment", which checkpoints store, so that a resumed run
-- sees the same images as an uninterrupted one.

local core = require "toeplab.core"
local classify = require "toeplab.train.classify"
local options = require "toeplab.base.options"
local ranks = require "toeplab.train.ranks"
local streams = require "toeplab.base.streams"
local update = require "toeplab.train.update"

local field = options.field

local LEVELS = 256 -- levels of a byte

local function numbers(list)
  local fine = #list > 0
  for _, value in ipairs(list) do fine = fine and math.type(value) ~= nil end
  return fine, "must be a list of numbers, one per channel"
end

-- Outside these bounds, the method that draws the shares of mixtures hardly ever accepts a number.
local function check_alpha(alpha)
  return alpha == 0 or alpha >= 0.001 and alpha <= 4,
    ("is %g, not 0 or a number from 0.001 to 4"):format(alpha)
end

local spec = options.declare "tl.augmentation" {
  { "height", field { type = "int", min = 1 }, "rows of an image" },
  { "width", field { type = "int", min = 1 }, "pixels of a row" },
  { "mean", field { type = "table", check = numbers }, "mean of each channel, of 0 to 1" },
  { "deviation", field { type = "table", check = numbers }, "standard deviation of each channel" },
  { "pad", field { default = 0, min = 0 },
    "crops are as large as the image and moved by at most this many pixels; outside is black" },
  { "flip", false, "mirror each image left to right with probability 1/2" },
  { "mixup", field { default = 0.0, check = check_alpha },
    "alpha of mixup, whose shares are Beta(alpha, alpha); 0: images are not mixed" },
  { "cutmix", field { default = 0.0, check = check_alpha },
    "alpha of cutmix, in which a box comes from another image; with mixup each has half of the "
      .. "batches" },
  { "erasing", field { default = 0.0, min = 0, max = 1 },
    "probability that a box of an image, 2 to 33 % of its area, becomes noise" },
  { "randaugment", field { default = 0.0, min = 0, max = 10 },
    "magnitude of RandAugment, of 10: each image is altered by some of timm's 15 operations, each "
      .. "with probability 1/2; 0: by none" },
  { "randaugment_deviation", field { default = 0.5, min = 0, max = 10 },
    "standard deviation of the magnitude, which is drawn for each operation" },
  { "randaugment_operations", field { default = 2, min = 1, max = 15 },
    "operations that are drawn for an image" },
  { "smoothing", field { default = 0.0, min = 0, max = 0.999 },
    "share of the label that is spread evenly over all classes" },
}

local Augmentation = {}
Augmentation.__index = Augmentation

-- Returns a table of channel values as a tensor that broadcasts over images [b,c,height,width].
local function per_channel(list) return core.tensor(list):reshape(1, #list, 1, 1) end

-- Returns an augmentation of images of c channels, given as ids [b, c height width] int32, levels
-- 0..255, channel by channel and row by row.
local function new(given)
  local o = options.check("augmentation", spec, given)
  if #o.mean ~= #o.deviation then
    error(("augmentation: %d means, but %d deviations"):format(#o.mean, #o.deviation), 2)
  end
  for i, value in ipairs(o.deviation) do
    if value <= 0 then
      error(("augmentation: deviation %d is %g, must be above 0"):format(i, value), 2)
    end
  end
  if o.pad >= math.min(o.height, o.width) then
    error(("augmentation: pad is %d, must be less than a side of images of %d x %d"):format(o.pad,
      o.height, o.width), 2)
  end
  if o.randaugment > 0 and #o.mean ~= 1 and #o.mean ~= 3 then
    error(("augmentation: randaugment requires images of 1 or 3 channels, and mean has %d"):format(
      #o.mean), 2)
  end
  return setmetatable({ opt = o, mean = per_channel(o.mean), deviation = per_channel(o.deviation),
    levels = core.affine(core.range(0, LEVELS - 1):reshape(LEVELS, 1), 1 / (LEVELS - 1), 0) },
    Augmentation)
end

-- ---- Images -------------------------------------------------------------------------------------

-- Returns for each row and each column of b cropped and mirrored images its index among those of
-- all images; the index after the last one stands for black.
local function places(o, stream, b)
  local h, w, pad, rows, columns = o.height, o.width, o.pad, {}, {}
  for image = 0, b - 1 do
    local down, right = stream:below(2 * pad + 1) - pad, stream:below(2 * pad + 1) - pad
    for i = down, down + h - 1 do
      rows[#rows + 1] = i >= 0 and i < h and image * h + i or b * h
    end
    local first, last, step = right, right + w - 1, 1
    if o.flip and stream:below(2) == 1 then first, last, step = last, first, -1 end
    for j = first, last, step do
      columns[#columns + 1] = j >= 0 and j < w and image * w + j or b * w
    end
  end
  return core.ids(rows), core.ids(columns)
end

-- Returns x [b,n,c,m] with the slices along its second axis at the indices where [b n], counted
-- over all b together; the slice after the last one is 0.
local function pick(x, where)
  local s = x:shape()
  local slices = x:reshape(s[1] * s[2], s[3] * s[4])
  return core.concat({ slices, core.zeros(1, s[3] * s[4]) }, 1):gather(where):reshape(s)
end

-- Returns images cropped and mirrored at random: x [b,c,height,width], the same shape.
local function move(o, x)
  local rows, columns = places(o, streams.get "augment", x:dim(1))
  local y = pick(x:permute { 1, 3, 2, 4 }, rows)             -- [b,height,c,width]
  return pick(y:permute { 1, 4, 3, 2 }, columns):permute { 1, 3, 4, 2 } -- from [b,width,c,height]
end

-- Returns b masks [b,1,height,width] that are 1 in boxes, and 0 elsewhere. boxes: for some images
-- from 1 to b {top, left, height, width}, from 0.
local function masks_of(boxes, b, height, width)
  local rows, columns = {}, {}
  for i = 1, b do
    local top, left, tall, wide = table.unpack(boxes[i] or { 0, 0, 0, 0 })
    for r = 0, height - 1 do rows[#rows + 1] = r >= top and r < top + tall and 1 or 0 end
    for c = 0, width - 1 do columns[#columns + 1] = c >= left and c < left + wide and 1 or 0 end
  end
  return core.tensor(rows):reshape(b, 1, height, 1) * core.tensor(columns):reshape(b, 1, 1, width)
end

-- Draws a box for random erasing (Zhong et al. 2020), with timm's bounds: an area of 2 to 33 %, and
-- sides in a ratio of 0.3 to 3.3. Returns nil if ten attempts do not lie within the image.
local function erased_box(o, stream)
  for _ = 1, 10 do
    local area = (0.02 + stream:unit() * (1 / 3 - 0.02)) * o.height * o.width
    local ratio = math.exp((2 * stream:unit() - 1) * math.log(1 / 0.3))
    local tall = math.floor(math.sqrt(area * ratio) + 0.5)
    local wide = math.floor(math.sqrt(area / ratio) + 0.5)
    if tall >= 1 and wide >= 1 and tall < o.height and wide < o.width then
      return { stream:below(o.height - tall + 1), stream:below(o.width - wide + 1), tall, wide }
    end
  end
end

-- Returns normalised images x [b,c,height,width] in some of which a box is noise.
local function erase(o, x)
  local stream, boxes, b = streams.get "augment", {}, x:dim(1)
  for i = 1, b do boxes[i] = stream:unit() < o.erasing and erased_box(o, stream) or nil end
  if not next(boxes) then return x end
  local mask, noise = masks_of(boxes, b, o.height, o.width), core.zeros(table.unpack(x:shape()))
  stream:normal(noise, 0, 1)
  return x * core.affine(mask, -1, 1) + noise * mask
end

-- The 15 operations of RandAugment (Cubuk et al. 2020) as timm has them in its policies with inc1:
-- the number of each in tl_alter (toeplab-lab.h), and its amount from the level, of 0 to 1, and a
-- random sign.
local function none() return 0 end
local function factor(level, sign) return math.max(0.1, 1 + 0.9 * level * sign) end
local function shear(level, sign) return 0.3 * level * sign end
local function shift(level, sign) return 0.45 * level * sign end

local operations = {
  { 1, none },                                                              -- autocontrast
  { 2, none },                                                              -- equalize
  { 3, none },                                                              -- invert
  { 4, function(level) return 4 - math.floor(4 * level) end },              -- posterize
  { 5, function(level) return 256 - math.min(256, math.floor(256 * level)) end }, -- solarize
  { 6, function(level) return math.min(128, math.floor(110 * level)) end }, -- solarize, add
  { 7, factor }, { 8, factor },                                             -- colour, contrast
  { 9, factor }, { 10, factor },                                            -- brightness, sharpness
  { 11, function(level, sign) return 30 * level * sign end },               -- rotate
  { 12, shear }, { 13, shear }, { 14, shift }, { 15, shift },               -- by x and by y
}

-- Returns ids whose images are altered by operations of RandAugment. Beyond the edge is the mean
-- colour. In timm the crop and the mirroring come before, here after.
local function rand_augment(o, ids)
  local stream, chosen, amounts, fill = streams.get "augment", {}, {}, {}
  for i = 1, ids:dim(1) do
    chosen[i], amounts[i] = {}, {}
    for k = 1, o.randaugment_operations do
      local operation = operations[stream:below(#operations) + 1]
      local applied, sign = stream:below(2), 2 * stream:below(2) - 1
      local deviate = math.sqrt(-2 * math.log(1 - stream:unit()))
        * math.cos(2 * math.pi * stream:unit())
      local level = o.randaugment + o.randaugment_deviation * deviate
      level = math.max(0, math.min(level, 10)) / 10
      chosen[i][k] = applied * operation[1]
      amounts[i][k] = operation[2](level, sign)
    end
  end
  for i, mean in ipairs(o.mean) do
    fill[i] = math.floor(math.max(0, math.min(255 * mean, 255)) + 0.5)
  end
  return core.images_alter(ids, { channels = #o.mean, height = o.height, width = o.width },
    core.ids(chosen), core.tensor(amounts), core.ids(fill))
end

-- Returns normalised images: ids [b, c height width] -> x [b,c,height,width]. With altered, they
-- are changed by RandAugment, cropped, mirrored and erased at random.
function Augmentation:images(ids, altered)
  local o, b, c = self.opt, ids:dim(1), #self.opt.mean
  local n = o.height * o.width
  if ids:ndim() ~= 2 or ids:dim(2) ~= c * n then
    error(("augmentation: ids are %s, not [b,%d]: %d channels of %d x %d"):format(tostring(ids),
      c * n, c, o.height, o.width), 2)
  end
  if altered and o.randaugment > 0 then ids = rand_augment(o, ids) end
  local x = self.levels:gather(ids):reshape(b, c, o.height, o.width)
  if altered and (o.pad > 0 or o.flip) then x = move(o, x) end
  x = (x - self.mean) / self.deviation
  return altered and o.erasing > 0 and erase(o, x) or x
end

-- Draws from Beta(alpha, alpha) (Johnk 1964).
local function beta(stream, alpha)
  while true do
    local x, y = stream:unit() ^ (1 / alpha), stream:unit() ^ (1 / alpha)
    if x + y <= 1 and x + y > 0 then return x / (x + y) end
  end
end

-- Returns a tensor with its rows in reverse order.
local function reversed(t)
  local list, b = {}, t:dim(1)
  for i = 1, b do list[i] = b - i end
  return t:reshape(b, -1):gather(core.ids(list)):reshape(t:shape())
end

-- ---- Training -----------------------------------------------------------------------------------

-- Returns the mean cross entropy of logits [b,classes] with soft targets: a label has the weight
-- 1 - smoothing, and the rest is spread evenly over all classes. If a second label of each row is
-- given as other, the weight is divided: share of it is the first label's, 1 - share the other's.
local function soft_loss(smoothing, logits, labels, share, other)
  local loss = core.cross_entropy(logits, labels)
  if other then
    local second = core.cross_entropy(logits, other)
    loss = core.affine(loss, share, 0) + core.affine(second, 1 - share, 0)
  end
  if smoothing == 0 then return loss end
  return core.affine(loss, 1 - smoothing, 0)
    + core.affine(core.log_softmax(logits):mean(), -smoothing, 0)
end

-- Mixes images x with the images `other` by cutmix (Yun et al. 2019): a box, whose centre is
-- anywhere, comes from the other images. Returns the images and the share of x in their area.
local function cut_mix(o, x, other)
  local stream = streams.get "augment"
  local side = math.sqrt(1 - beta(stream, o.cutmix))
  local function span(length)
    local half, centre = math.floor(length * side) // 2, stream:below(length)
    local first, last = math.max(centre - half, 0), math.min(centre + half, length)
    return first, last - first
  end
  local top, tall = span(o.height)
  local left, wide = span(o.width)
  local mask = masks_of({ { top, left, tall, wide } }, 1, o.height, o.width)
  return x * core.affine(mask, -1, 1) + other * mask, 1 - tall * wide / (o.height * o.width)
end

-- Returns the altered images of a batch {ids=, labels=} and the arguments of soft_loss: labels, and
-- of mixed images share and other. Mixup (Zhang et al. 2018) and cutmix mix each image with the one
-- at the same index from the batch's end, by one share for the whole batch.
local function alter(self, batch)
  local o, x, labels = self.opt, self:images(batch.ids, true), batch.labels
  if o.mixup == 0 and o.cutmix == 0 then return x, labels end
  local list, mirrored, share = labels:totable(), {}, nil
  for i, label in ipairs(list) do mirrored[#list + 1 - i] = label end
  local stream, other = streams.get "augment", reversed(x)
  if o.mixup == 0 or o.cutmix > 0 and stream:below(2) == 1 then
    x, share = cut_mix(o, x, other)
  else
    share = beta(stream, o.mixup)
    x = core.affine(x, share, 0) + core.affine(other, 1 - share, 0)
  end
  return x, labels, share, core.ids(mirrored)
end

-- Returns the altered images of a batch {ids=, labels=}, and a function from logits to the loss.
function Augmentation:altered(batch)
  local x, labels, share, other = alter(self, batch)
  return x, function(logits)
    return soft_loss(self.opt.smoothing, logits, labels, share, other)
  end
end

-- Updates the model from a batch {ids=, labels=}, which is altered as a whole and then cut into
-- micro batches (the key micro_batches of a trial). Returns the mean loss in nats, with the altered
-- images and soft labels, and {step=, lr=, grad_norm=}.
function Augmentation:step(model, opt, batch)
  local x, labels, share, other = alter(self, batch)
  local list, counts = {}, {}
  for i, part in ipairs(update.cut("augmentation", labels:dim(1))) do
    local function own(t)
      if not t or part.count == t:dim(1) then return t end
      return t:narrow(1, part.first, part.count)
    end
    list[i], counts[i] = { x = own(x), labels = own(labels), other = own(other) }, part.count
  end
  ranks.check_whole "a classifier of images"
  local loss, info = update.make { model = model, opt = opt, list = list, counts = counts,
    loss_of = function(part)
      return soft_loss(self.opt.smoothing, model(part.x), part.labels, share, part.other)
    end }
  return loss, info
end

-- As classify.accuracy, on normalised but unaltered images.
function Augmentation:accuracy(model, set, size, examples)
  local normalised = {}
  function normalised.each(_, count)
    local batches = set:each(count)
    return function()
      local batch = batches()
      return batch and { ids = self:images(batch.ids), labels = batch.labels }
    end
  end
  return classify.accuracy(model, normalised, size, examples)
end

return new
