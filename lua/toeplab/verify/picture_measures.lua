-- verify/picture_measures.lua: measures images of Pathfinder, in the terms of its published
-- statistics: brightness, components, spectrum, and where the disks lie.
local core = require "toeplab.core"

local measures = { THRESHOLDS = { 1, 32, 64, 128, 192 }, COMPONENTS = { 64, 128 }, BLOCKS = 8,
  RINGS = 8 }

-- Returns the number of 8-connected components of the pixels [size*size] with grey >= threshold.
function measures.components(pixels, size, threshold)
  local seen, count, stack = {}, 0, {}
  for start, grey in ipairs(pixels) do
    if grey >= threshold and not seen[start] then
      count = count + 1
      local top = 1
      stack[1], seen[start] = start, true
      while top > 0 do
        local at = stack[top]
        top = top - 1
        local column = (at - 1) % size
        for right = column > 0 and -1 or 0, column < size - 1 and 1 or 0 do
          for down = -size, size, size do
            local next_ = at + down + right
            local value = pixels[next_]
            if value and value >= threshold and not seen[next_] then
              top = top + 1
              stack[top], seen[next_] = next_, true
            end
          end
        end
      end
    end
  end
  return count
end

-- The names of measures, made once: of grey levels, of the means of blocks, and by threshold.
local bin_names, block_names, lit_names = {}, {}, {}
for i = 1, 16 do bin_names[i] = "grey " .. i end
for i = 1, measures.BLOCKS ^ 2 | 0 do block_names[i] = "block " .. i end
for _, grey in ipairs(measures.THRESHOLDS) do lit_names[grey] = "lit " .. grey end

-- Adds the measures of brightness of one image to row.
local function brightness(row, pixels, size)
  local counts, bins, blocks, sum, squares = {}, {}, {}, 0, 0
  local side = size // measures.BLOCKS
  for grey = 0, 255 do counts[grey] = 0 end
  for bin = 1, #bin_names do bins[bin] = 0 end
  for i = 1, #block_names do blocks[i] = 0 end
  for i, grey in ipairs(pixels) do
    counts[grey] = counts[grey] + 1
    if grey > 0 then
      local place = i - 1
      local block = place // size // side * measures.BLOCKS + place % size // side + 1
      blocks[block] = blocks[block] + grey
    end
  end
  local lit = 0 -- pixels with at least this grey
  for grey = 255, 0, -1 do
    local count = counts[grey]
    sum, squares, lit = sum + grey * count, squares + grey * grey * count, lit + count
    if lit_names[grey] then row[lit_names[grey]] = lit / size ^ 2 end
    bins[grey // 16 + 1] = bins[grey // 16 + 1] + count
  end
  for bin, count in ipairs(bins) do row[bin_names[bin]] = count / size ^ 2 end
  row.mean, row.square = sum / 255 / size ^ 2, squares / 255 ^ 2 / size ^ 2
  row.std = math.sqrt(row.square - row.mean ^ 2)
  for i, total in ipairs(blocks) do row[block_names[i]] = total / 255 / side ^ 2 end
end

-- Returns the matrices that transform rows of the length n to cosine and sine terms, and the matrix
-- [n*n,RINGS+1] that sums powers by rings of frequency, the corners last.
local function fourier(n)
  local cosine, sine, rings = {}, {}, {}
  for k = 0, n - 1 do
    cosine[k + 1], sine[k + 1] = {}, {}
    for j = 0, n - 1 do
      local angle = 2 * math.pi * (j * k % n) / n
      cosine[k + 1][j + 1], sine[k + 1][j + 1] = math.cos(angle), math.sin(angle)
      local row, column = math.min(k, n - k) / n, math.min(j, n - j) / n
      local ring = math.sqrt(row ^ 2 + column ^ 2) * 2 * measures.RINGS // 1 | 0
      local sums = {}
      for i = 0, measures.RINGS do sums[i + 1] = i == math.min(ring, measures.RINGS) and 1 or 0 end
      rings[#rings + 1] = sums
    end
  end
  return core.tensor(cosine), core.tensor(sine), core.tensor(rings)
end

-- Returns a function from ids [b,size*size] to the share of each ring of the power: [b,RINGS+1].
function measures.spectrum(size)
  local cosine, sine, rings = fourier(size)
  local function along(x, matrix) -- transforms the columns of [b,size,size]
    local b = x:dim(1)
    return core.matmul(x:reshape(-1, size), matrix):reshape(b, size, size):transpose(2, 3)
  end
  local greys = {}
  for grey = 0, 255 do greys[grey + 1] = { grey / 255 } end
  greys = core.tensor(greys)
  return function(ids)
    local b = ids:dim(1)
    local x = greys:gather(ids:reshape(-1)):reshape(b, size * size)
    x = (x - x:mean(2):reshape(b, 1)):reshape(b, size, size)
    local c, s = along(x, cosine), along(x, sine)
    local real, imaginary = along(c, cosine) - along(s, sine), along(c, sine) + along(s, cosine)
    local power = core.matmul((real * real + imaginary * imaginary):reshape(b, size * size), rings)
    return (power / power:sum(2):reshape(b, 1)):totable()
  end
end

-- Returns the measures of each image of a set, as a list of tables. marks[i] has the row and column
-- of the disk on a first tail, then of that on a last head.
function measures.of(images, marks)
  local size = math.tointeger(math.sqrt(images:size()))
  local list, spectrum, block = {}, measures.spectrum(size), 256
  for first = 0, images:count() - 1, block do
    local numbers = {}
    for i = first, math.min(first + block, images:count()) - 1 do numbers[#numbers + 1] = i end
    local rings = spectrum(images:batch(core.ids(numbers)))
    for k, i in ipairs(numbers) do
      local row, at, pixels = {}, marks[i + 1], { images:bytes(i):byte(1, -1) }
      brightness(row, pixels, size)
      for _, threshold in ipairs(measures.COMPONENTS) do
        row["components " .. threshold] = measures.components(pixels, size, threshold)
      end
      for ring, share in ipairs(rings[k]) do row["ring " .. ring] = share end
      row["first row"], row["first column"] = at[1], at[2]
      row["last row"], row["last column"] = at[3], at[4]
      row.distance = math.sqrt((at[1] - at[3]) ^ 2 + (at[2] - at[4]) ^ 2)
      row["first grey"] = pixels[at[1] * size + at[2] + 1 | 0]
      row["last grey"] = pixels[at[3] * size + at[4] + 1 | 0]
      list[i + 1] = row
    end
  end
  return list
end

return measures
