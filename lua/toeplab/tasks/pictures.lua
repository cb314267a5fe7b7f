-- tasks/pictures.lua: makes labelled sets (tasks/labelled.lua) of grey images. A row of a batch has
-- the pixels of an image row by row, as token ids 0..255.

local core = require "toeplab.core"
local labelled = require "toeplab.tasks.labelled"

local pictures = { VOCAB = 256 }

-- Returns a set of the images (core.images, core.images_open) with a list of integer labels
-- 0..classes-1. A nil seed stands for tl.seed's.
function pictures.new(images, labels, classes, seed)
  if images:count() ~= #labels then
    error(("pictures: %d labels for %d images"):format(#labels, images:count()), 2)
  end
  local n = images:size()
  return labelled.over(function(numbers)
    local lengths = {}
    for i = 1, #numbers do lengths[i] = n end
    return images:batch(core.ids(numbers)), core.ids(lengths)
  end, labels, classes, seed)
end

return pictures
