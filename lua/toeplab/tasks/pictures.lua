-- tasks/pictures.lua: makes labelled sets (tasks/labelled.lua) of grey images. A row of a batch has
-- the pixels of an image row by row, as token ids 0..255.

local core = require "toeplab.core"
local labelled = require "toeplab.tasks.labelled"

local pictures = { VOCAB = 256 }

-- Returns a set of the images that read(numbers) returns as ids [b,size].
function pictures.over(read, size, labels, classes, seed)
  return labelled.over(function(numbers)
    local lengths = {}
    for i = 1, #numbers do lengths[i] = size end
    return read(numbers), core.ids(lengths)
  end, labels, classes, seed)
end

-- Returns a set of the images (core.images, core.images_open) with a list of integer labels
-- 0..classes-1. A nil seed stands for tl.seed's.
function pictures.new(images, labels, classes, seed)
  if images:count() ~= #labels then
    error(("pictures: %d labels for %d images: give one for each"):format(#labels,
      images:count()), 2)
  end
  return pictures.over(function(numbers) return images:batch(core.ids(numbers)) end,
    images:size(), labels, classes, seed)
end

return pictures
