-- verify/pathfinder.lua: compares images that we draw with the statistics of the published
-- generator of Pathfinder (a file pathfinder.json), each in units of the standard error of the
-- difference of both samples.
--
-- The standard errors come from the spread of our images, which are more; they are standard errors
-- of means, of standard deviations (by the fourth moment) and of shares. A quantile is compared as
-- the share of our images below it. An extreme of n published images is compared by the probability
-- that n of ours stay within it.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local measures = require "toeplab.verify.picture_measures"

-- Some of many independent statistics are far apart by chance: 0.27 % more than 3 standard errors.
-- The comparison fails if 1 % are, or one is more than 4 apart.
local pathfinder = { LIMIT = 3, FAR = 4, SHARE = 0.01 }

local IMAGES = { [32] = 20000, [128] = 1000 } -- the default numbers of images by size

-- ---- Samples ------------------------------------------------------------------------------------

-- Returns the mean and the standard deviation of a list, and the list of squared deviations.
local function moments(list)
  local sum, squares, deviations = 0, 0, {}
  for _, x in ipairs(list) do sum = sum + x end
  local mean = sum / #list
  for i, x in ipairs(list) do
    deviations[i] = (x - mean) ^ 2
    squares = squares + deviations[i]
  end
  return mean, math.sqrt(squares / #list), deviations
end

-- Returns the standard error of the difference of the means of list and of n other draws.
local function error_of_mean(list, n)
  local _, deviation = moments(list)
  return deviation * math.sqrt(1 / #list + 1 / n)
end

-- Returns the shares of list below x and not above x.
local function shares(list, x)
  local below, up_to, slack = 0, 0, 1e-5 * math.abs(x) + 1e-9 -- the published ones have 6 digits
  for _, v in ipairs(list) do
    if v < x - slack then below = below + 1 end
    if v <= x + slack then up_to = up_to + 1 end
  end
  return below / #list, up_to / #list
end

-- Returns the x for which a normal variable is below x with probability p.
local function normal_quantile(p)
  local low, high = -9, 9
  local function below(x) -- as a sum of rectangles
    local sum, step = 0, 1 / 64
    for i = -9 * 64, math.floor(x * 64) do sum = sum + math.exp(-(i * step) ^ 2 / 2) * step end
    return sum / math.sqrt(2 * math.pi)
  end
  for _ = 1, 30 do
    local middle = (low + high) / 2
    if below(middle) < p then low = middle else high = middle end
  end
  return low
end

-- ---- Comparisons --------------------------------------------------------------------------------

local Table = {}
Table.__index = Table

-- Adds a row. apart: standard errors between the two, or nil to compute it from their difference.
function Table:add(name, theirs, ours, error_, apart)
  if not apart then
    local difference = math.abs(theirs - ours)
    local rounding = 5e-6 * math.abs(theirs) + 1e-9
    apart = difference <= rounding and 0 or difference / error_
  end
  self.rows[#self.rows + 1] = { name = name, theirs = theirs, ours = ours, apart = apart }
end

function Table:share(name, theirs, ours, count, n)
  local pooled = (theirs * n + ours * count) / (n + count)
  self:add(name, theirs, ours, math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / count)))
end

function Table:mean(name, theirs, list, n)
  self:add(name, theirs, moments(list), error_of_mean(list, n))
end

local LEVELS = { 0.05, 0.25, 0.5, 0.75, 0.95 }

-- Compares the mean, deviation, extremes and quantiles of a measure of n published images.
function Table:summary(name, theirs, list, n)
  local mean, deviation, deviations = moments(list)
  self:mean(name .. ", mean", theirs.mean, list, n)
  self:add(name .. ", std", theirs.std, deviation,
    error_of_mean(deviations, n) / math.max(2 * deviation, 1e-300))
  for i, level in ipairs(LEVELS) do
    local theirs_i = theirs.quantiles_05_25_50_75_95[i]
    local below, up_to = shares(list, theirs_i)
    local off = math.max(0, below - level, level - up_to)
    self:add(("%s, share below %.4g"):format(name, theirs_i), level,
      math.min(math.max(level, below), up_to), nil,
      off / math.sqrt(level * (1 - level) * (1 / n + 1 / #list)))
  end
  for _, side in ipairs { "min", "max" } do
    local below, up_to = shares(list, theirs[side])
    if side == "max" then below, up_to = 1 - up_to, 1 - below end
    -- of n of ours, none lies beyond theirs, and one lies at least there; our next image might
    up_to = (up_to * #list + 1) / (#list + 1)
    local chance = math.min((1 - below) ^ n, 1 - (1 - up_to) ^ n, 0.5)
    local own = list[1]
    for _, x in ipairs(list) do own = math[side](own, x) end
    self:add(name .. ", " .. side, theirs[side], own, nil, math.max(0, -normal_quantile(chance)))
  end
  return mean
end

-- ---- The statistics -----------------------------------------------------------------------------

-- Returns a measure of all images, or of the images with a label, as a list.
local function column(rows, name, label)
  local list = {}
  for _, row in ipairs(rows) do
    if label == nil or row.label == label then list[#list + 1] = row[name] end
  end
  return list
end

local function compare_brightness(t, ref, rows, n)
  t:summary("intensity of an image", ref.intensity.per_image_mean, column(rows, "mean"), n)
  t:summary("deviation in an image", ref.intensity.per_image_std, column(rows, "std"), n)
  local mean, square = moments(column(rows, "mean")), moments(column(rows, "square"))
  local std, influence = math.sqrt(square - mean ^ 2), {}
  for i, row in ipairs(rows) do influence[i] = (row.square - 2 * mean * row.mean) / (2 * std) end
  t:mean("intensity of all pixels, mean", ref.intensity.mean, column(rows, "mean"), n)
  t:add("intensity of all pixels, std", ref.intensity.std, std, error_of_mean(influence, n))
  for i, share in ipairs(ref.grey_histogram_16) do
    t:mean(("pixels of grey %d..%d"):format(16 * i - 16, 16 * i - 1), share,
      column(rows, "grey " .. i), n)
  end
  for _, threshold in ipairs(measures.THRESHOLDS) do
    t:summary("pixels of grey >= " .. threshold, ref.lit_fraction["grey_ge_" .. threshold],
      column(rows, "lit " .. threshold), n)
  end
end

-- Compares the shares of the images with each number of components that the published ones have.
local function compare_components(t, theirs, list, n)
  local counts, numbers = {}, {}
  for _, x in ipairs(list) do counts[x] = (counts[x] or 0) + 1 end
  for number in pairs(theirs) do numbers[#numbers + 1] = math.tointeger(tonumber(number)) end
  table.sort(numbers)
  for _, number in ipairs(numbers) do
    t:share(("images of %d components"):format(number), theirs[tostring(number)] / n,
      (counts[number] or 0) / #list, #list, n)
  end
end

local function compare_shapes(t, ref, rows, n)
  for _, threshold in ipairs(measures.COMPONENTS) do
    t:summary("components of grey >= " .. threshold,
      ref.components_8_connected["grey_ge_" .. threshold],
      column(rows, "components " .. threshold), n)
  end
  compare_components(t, ref.components_ge64_histogram, column(rows, "components 64"), n)
  for ring, share in ipairs(ref.radial_power_8_rings.mean) do
    local list = column(rows, "ring " .. ring)
    local _, deviation, deviations = moments(list)
    t:mean(("power in ring %d, mean"):format(ring), share, list, n)
    t:add(("power in ring %d, std"):format(ring), ref.radial_power_8_rings.std[ring], deviation,
      error_of_mean(deviations, n) / (2 * deviation))
  end
  t:mean("power in the corners", ref.radial_power_8_rings.corners,
    column(rows, "ring " .. measures.RINGS + 1), n)
  for r, line in ipairs(ref.block_mean_8x8) do
    for c, mean in ipairs(line) do
      -- published with 5 decimals
      local list = column(rows, "block " .. (r - 1) * measures.BLOCKS + c)
      local ours = moments(list)
      t:add(("intensity of block %d, %d"):format(r, c), mean, ours, nil,
        math.max(0, math.abs(mean - ours) - 5e-6) / error_of_mean(list, n))
    end
  end
end

local function compare_markers(t, ref, rows, n)
  for label = 0, 1 do
    local list, share = column(rows, "distance", label), ref.label_share_1
    local count = (label == 1 and share or 1 - share) * n
    local name = ("distance of disks, label %d"):format(label)
    t:summary(name, ref.marker_distance_pixels["label_" .. label], list, count)
    local histogram = ref.marker_distance_pixels.histogram_8_bins
    for bin, theirs in ipairs(histogram["label_" .. label]) do
      local low, high, ours = histogram.edges[bin], histogram.edges[bin + 1], 0
      for _, x in ipairs(list) do if x >= low and x < high then ours = ours + 1 end end
      if theirs > 0 or ours > 0 then
        t:share(("%s, in %g..%g"):format(name, low, high), theirs / count, ours / #list, #list,
          count)
      end
    end
  end
  for _, which in ipairs { "first_tail", "last_head" } do
    for _, axis in ipairs { "row", "column" } do
      t:summary(("%s of the disk on a %s"):format(axis, which:gsub("_", " ")),
        ref.marker_position[which][axis], column(rows, which:match "^[^_]*" .. " " .. axis), n)
    end
  end
  local greys = column(rows, "first grey")
  table.move(column(rows, "last grey"), 1, #rows, #greys + 1, greys)
  t:summary("grey at the centre of a disk", ref.marker_grey_at_centre, greys, 2 * n)
end

local function compare_labels(t, ref, rows, n)
  local ones = #column(rows, "label", 1)
  t:share("label 1", ref.label_share_1, ones / #rows, #rows, n)
  for _, pair in ipairs { { "mean_intensity", "mean" }, { "lit64", "lit 64" },
    { "components64", "components 64" } } do
    local name, key = table.unpack(pair)
    local one, zero = column(rows, key, 1), column(rows, key, 0)
    local error_ = math.sqrt(error_of_mean(one, ref.label_share_1 * n) ^ 2
      + error_of_mean(zero, (1 - ref.label_share_1) * n) ^ 2)
    t:add("label 1 less label 0: " .. key, ref.label_1_minus_label_0[name],
      moments(one) - moments(zero), error_)
  end
end

local function compare_tries(t, ref, rows, n)
  t:summary("value of the brightest pixel", ref.unstretched.max, column(rows, "peak"), n)
  t:summary("value of the darkest pixel", ref.unstretched.min, column(rows, "floor"), n)
  local theirs, tries = ref.rejection, column(rows, "pairs")
  local mean = t:summary("pairs tried for an image", theirs.tries_per_image, tries, n)
  t:add("pairs rejected", theirs.target_pairs_rejected_share, 1 - 1 / mean,
    error_of_mean(tries, n) / mean ^ 2)
  local pairs_, seeds, more = 0, 0, 0
  for _, row in ipairs(rows) do
    pairs_, seeds = pairs_ + row.pairs, seeds + row.no_seeds
    if row.pairs > 1 then more = more + 1 end
  end
  t:share("pairs rejected at the first segments",
    theirs.of_these_at_the_seeds / theirs.target_pairs_tried, seeds / pairs_, pairs_,
    theirs.target_pairs_tried)
  t:share("images of more than one pair", theirs.images_needing_more_than_one_try_share,
    more / #rows, #rows, n)
  local distractors, drawn = column(rows, "tries"), column(rows, "distractors")
  local mean_tries, mean_drawn = moments(distractors), moments(drawn)
  local failed, influence = 1 - mean_drawn / mean_tries, {}
  for i, row in ipairs(rows) do
    influence[i] = ((1 - failed) * row.tries - row.distractors) / mean_tries
  end
  t:mean("distractors tried for an image", theirs.distractor_tries / n, distractors, n)
  t:add("distractors that failed", theirs.distractor_tries_failed_share, failed,
    error_of_mean(influence, n))
  for count = 0, theirs.distractors_wanted do
    local ours, share = 0, (theirs.distractors_drawn_histogram[tostring(count)] or 0) / n
    for _, x in ipairs(drawn) do if x == count then ours = ours + 1 end end
    if share > 0 or ours > 0 then
      t:share(("images of %d distractors"):format(count), share, ours / #rows, #rows, n)
    end
  end
  for margin = 1, 3 do
    local ours, share = 0, ref.margin_share and ref.margin_share[tostring(margin)]
    for _, row in ipairs(rows) do if row.margin == margin then ours = ours + 1 end end
    if share then t:share("images of margin " .. margin, share, ours / #rows, #rows, n) end
  end
end

-- ---- Drawing and comparing ----------------------------------------------------------------------

-- By their places in the facts of core.pathfinder, after the rows and columns of both disks.
local FACTS = { [5] = "margin", [6] = "pairs", [7] = "no_seeds", [8] = "tries", [9] = "distractors",
  [10] = "peak", [11] = "floor" }

-- Draws count images of size*size pixels and returns their measures, as a list of tables.
function pathfinder.rows(size, count, seed, watch)
  local rows, block = {}, size <= 64 and 1000 or 100
  watch:start(("drawing and measuring %d images of %dx%d"):format(count, size, size))
  for first = 0, count - 1, block do
    local images <close>, labels, facts = core.pathfinder { size = size, seed = seed,
      first = first, count = math.min(block, count - first) }
    local list = facts:totable()
    for i, row in ipairs(measures.of(images, list)) do
      row.label = labels:get(i)
      for place, name in pairs(FACTS) do row[name] = list[i][place] end
      rows[first + i] = row
    end
    watch:update(first + images:count(), count)
  end
  watch:clear()
  return rows
end

-- Compares the measures of our images with published statistics: returns a list of
-- {name=, theirs=, ours=, apart= (in standard errors)}.
function pathfinder.compare(ref, rows)
  local t = setmetatable({ rows = {} }, Table)
  for _, part in ipairs { compare_labels, compare_brightness, compare_shapes, compare_markers,
    compare_tries } do
    part(t, ref, rows, ref.images)
  end
  return t.rows
end

-- Reads the published statistics in the file at path.
local function read(path)
  local text, why = core.sys.read_file(path)
  if not text then errors.usage("%s", why) end
  local ok, ref = pcall(json.decode, text)
  if not ok then errors.usage("%s: %s", path, errors.text(ref)) end
  if type(ref) ~= "table" or not ref.pathfinder32 then
    errors.usage("%s: has no statistics of Pathfinder ('pathfinder32')", path)
  end
  return ref
end

-- Returns whether the HDF5 file at path has the example images of the published statistics.
local function has_examples(path)
  local ok, file = pcall(core.h5_open, path)
  if not ok then return false end
  local found = pcall(file.read, file, "/images_32")
  file:close()
  return found
end

-- Returns the path of the published statistics for a file given to verify: the file itself, if its
-- name ends in .json; the one of the same name beside a file with the example images; else nil.
function pathfinder.statistics_of(path)
  if path:find "%.json$" then return path end
  return has_examples(path) and path:gsub("%.h5$", "") .. ".json" or nil
end

-- Draws images of each size of the statistics at path and compares them. count: images of each
-- size; nil: IMAGES. found(size, count, rows) is called for each size; rows are
-- {name=, theirs=, ours=, apart= (in standard errors)}.
function pathfinder.run(path, count, watch, found)
  local ref = read(path)
  for _, size in ipairs { 32, 128 } do
    local theirs, images = ref["pathfinder" .. size], count or IMAGES[size]
    if theirs then
      local drawn = pathfinder.rows(size, images, 1, watch)
      local ok, rows = pcall(pathfinder.compare, theirs, drawn)
      if not ok then
        errors.usage("%s: its statistics of %dx%d are incomplete: %s", path, size, size,
          errors.text(rows))
      end
      found(size, images, rows)
    end
  end
end

-- Returns whether the rows of a comparison agree, and how many are more than LIMIT apart.
function pathfinder.agree(rows)
  local beyond, far = 0, 0
  for _, row in ipairs(rows) do
    if not (row.apart <= pathfinder.LIMIT) then beyond = beyond + 1 end
    if not (row.apart <= pathfinder.FAR) then far = far + 1 end
  end
  return #rows > 0 and far == 0 and beyond <= pathfinder.SHARE * #rows, beyond
end

return pathfinder
