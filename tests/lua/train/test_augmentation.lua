-- test_augmentation.lua: crops, mirrors, mixtures and smoothed labels against hand computations,
-- and that they go on after a restart as if there had been none.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local trials = require "trials"

local H, W = 4, 5

local function with(base, more)
  local all = {}
  for key, value in pairs(base) do all[key] = value end
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end

local plain = { height = H, width = W, mean = { 0.5, 0.25 }, deviation = { 0.5, 2 } }

local function make(more) return tl.augmentation(with(plain, more)) end

local function random_ids(b)
  local rows, stream = {}, tl.stream_of "test"
  for i = 1, b do
    rows[i] = {}
    for j = 1, 2 * H * W do rows[i][j] = stream:below(256) end
  end
  return core.ids(rows)
end

-- The normalised value of a level in a channel.
local function value(level, channel)
  return (level / 255 - plain.mean[channel]) / plain.deviation[channel]
end

-- The image in a row of ids, moved and mirrored, pixel by pixel: [c][i][j].
local function by_hand(row, down, right, mirrored)
  local image = {}
  for c = 1, 2 do
    image[c] = {}
    for i = 1, H do
      image[c][i] = {}
      for j = 1, W do
        local y, x = i + down, (mirrored and W + 1 - j or j) + right
        local inside = y >= 1 and y <= H and x >= 1 and x <= W
        image[c][i][j] = value(inside and row[((c - 1) * H + y - 1) * W + x] or 0, c)
      end
    end
  end
  return image
end

t.test("without options images are only normalised by channel", function()
  local ids, images = random_ids(3), {}
  for i, row in ipairs(ids:totable()) do images[i] = by_hand(row, 0, 0, false) end
  t.eq(make():images(ids), core.tensor(images), 1e-6)
  t.eq(make():images(ids, true), core.tensor(images), 1e-6)
  t.eq(make { pad = 2, flip = true } :images(ids), core.tensor(images), 1e-6)
  local x, loss_of = make():altered { ids = ids, labels = core.ids { 0, 1, 1 } }
  t.eq(x, core.tensor(images), 1e-6)
  local logits = core.tensor { { 1, 2 }, { 0, 3 }, { -1, 1 } }
  t.eq(loss_of(logits):item(), core.cross_entropy(logits, core.ids { 0, 1, 1 }):item())
end)

t.test("crops and mirror images follow the drawn offsets, with black beyond the edge", function()
  local pad, seen, mirrors = 2, {}, 0
  for _, flip in ipairs { true, false } do
    tl.seed(3)
    local ids, images = random_ids(80), {}
    local x = make { pad = pad, flip = flip } :images(ids, true)
    local draws = core.stream(3, "augment")
    for i, row in ipairs(ids:totable()) do
      local down, right = draws:below(2 * pad + 1) - pad, draws:below(2 * pad + 1) - pad
      local mirrored = flip and draws:below(2) == 1
      images[i] = by_hand(row, down, right, mirrored)
      seen[down .. "," .. right], mirrors = true, mirrors + (mirrored and 1 or 0)
    end
    t.eq(x, core.tensor(images), 1e-6)
  end
  local count = 0
  for _ in pairs(seen) do count = count + 1 end
  t.ok(count >= 23 and mirrors > 25 and mirrors < 55, ("%d offsets, %d mirrors"):format(count,
    mirrors))
end)

-- The loss with soft targets [b][classes], from its definition.
local function dense_loss(logits, targets)
  local logp = core.log_softmax(logits)
  return -(logp * core.tensor(targets)):sum():item() / logits:dim(1)
end

t.test("smoothed labels are a dense distribution of targets", function()
  local logits = core.tensor { { 1, 2, -1 }, { 0, 3, 1 } }
  local e, targets = 0.3, { { 0, 0, 0 }, { 0, 0, 0 } }
  for i, label in ipairs { 2, 0 } do
    for k = 1, 3 do targets[i][k] = e / 3 + (k == label + 1 and 1 - e or 0) end
  end
  local _, loss_of = make { smoothing = e } :altered { ids = random_ids(2),
    labels = core.ids { 2, 0 } }
  t.eq(loss_of(logits):item(), dense_loss(logits, targets), 1e-5)
end)

t.test("mixup: images and targets are mixed by the same share, with smoothing too", function()
  local labels, e = { 2, 0, 1 }, 0.2
  local logits = core.tensor { { 1, 2, -1 }, { 0, 3, 1 }, { 2, 2, 0 } }
  local ids = random_ids(3)
  local original = make():images(ids)
  tl.seed(7)
  local x, loss_of = make { mixup = 0.8, smoothing = e } :altered { ids = ids,
    labels = core.ids(labels) }
  -- The share follows from the images: row 1 = share * image 1 + (1 - share) * image 3.
  local function pixel(from, i) return from:narrow(1, i, 1):reshape(-1):totable()[1] end
  local share = (pixel(x, 1) - pixel(original, 3)) / (pixel(original, 1) - pixel(original, 3))
  t.ok(share > 0 and share < 1, share)
  local function rows(list) return core.concat(list, 1) end
  local parts = {}
  for i = 1, 3 do parts[i] = original:narrow(1, 4 - i, 1) end
  t.eq(x, core.affine(original, share, 0) + core.affine(rows(parts), 1 - share, 0), 1e-5)
  local targets = {}
  for i = 1, 3 do
    targets[i] = {}
    for k = 1, 3 do
      targets[i][k] = e / 3 + (1 - e) * ((k == labels[i] + 1 and share or 0)
        + (k == labels[4 - i] + 1 and 1 - share or 0))
    end
  end
  t.eq(loss_of(logits):item(), dense_loss(logits, targets), 1e-5)
end)

t.test("the shares of mixup have the mean and the variance of Beta(alpha, alpha)", function()
  local dark, light = {}, {}
  for j = 1, 2 * H * W do dark[j], light[j] = 0, 255 end
  local batch = { ids = core.ids { light, dark }, labels = core.ids { 0, 1 } }
  for _, alpha in ipairs { 0.2, 0.8, 2.0 } do
    tl.seed(1)
    local a, sum, squares, count = make { mixup = alpha }, 0, 0, 1500
    for _ = 1, count do
      local level = a:altered(batch):reshape(-1):totable()[1]
      local share = level * plain.deviation[1] + plain.mean[1]
      sum, squares = sum + share, squares + share * share
    end
    local mean, want = sum / count, 1 / (4 * (2 * alpha + 1))
    t.eq(mean, 0.5, 4 * math.sqrt(want / count))
    t.eq(squares / count - mean * mean, want, 0.1 * want)
  end
end)

t.test("cutmix: a box comes from another image, and the labels have the shares of the area",
  function()
    local dark, light = {}, {}
    for j = 1, 2 * H * W do dark[j], light[j] = 0, 255 end
    local batch = { ids = core.ids { light, dark }, labels = core.ids { 0, 1 } }
    local logits = core.tensor { { 1, 2 }, { 0, 3 } }
    local seen = {}
    tl.seed(1)
    local a = make { cutmix = 1.0 }
    for _ = 1, 200 do
      local x, loss_of = a:altered(batch)
      local image, inside, first, last = x:narrow(1, 1, 1):narrow(2, 1, 1), 0, nil, nil
      for i, row in ipairs(image:reshape(H, W):totable()) do
        for j, v in ipairs(row) do
          if math.abs(v - value(0, 1)) < 1e-5 then
            inside, first, last = inside + 1, first or { i, j }, { i, j }
          else
            t.eq(v, value(255, 1), 1e-5)
          end
        end
      end
      if first then t.eq((last[1] - first[1] + 1) * (last[2] - first[2] + 1), inside) end
      local share = 1 - inside / (H * W)
      seen[inside] = true
      t.eq(loss_of(logits):item(), dense_loss(logits, { { share, 1 - share },
        { 1 - share, share } }), 1e-5)
    end
    local sizes = 0
    for _ in pairs(seen) do sizes = sizes + 1 end
    t.ok(sizes >= 5, sizes)
  end)

t.test("with mixup and cutmix each has about half of the batches", function()
  local dark, light = {}, {}
  for j = 1, 2 * H * W do dark[j], light[j] = 0, 255 end
  local batch, mixed, count = { ids = core.ids { light, dark }, labels = core.ids { 0, 1 } }, 0, 200
  tl.seed(1)
  local a = make { mixup = 0.8, cutmix = 1.0 }
  for _ = 1, count do
    local first = a:altered(batch):reshape(-1):totable()[1]
    local whole = math.abs(first - value(0, 1)) < 1e-5 or math.abs(first - value(255, 1)) < 1e-5
    mixed = mixed + (whole and 0 or 1)
  end
  t.ok(mixed > 70 and mixed < 130, mixed)
end)

t.test("random erasing makes a box of some images noise, and the others stay", function()
  local ids, b = random_ids(400), 400
  tl.seed(2)
  local original, x = make():images(ids):totable(), make { erasing = 0.25 } :images(ids, true)
  local erased, sum, squares, count = 0, 0.0, 0.0, 0
  for n, image in ipairs(x:totable()) do
    local changed = 0
    for i = 1, H do
      for j = 1, W do
        if image[1][i][j] ~= original[n][1][i][j] then
          changed = changed + 1
          for c = 1, 2 do
            local v = image[c][i][j]
            sum, squares, count = sum + v, squares + v * v, count + 1
          end
        end
      end
    end
    erased = erased + (changed > 0 and 1 or 0)
    t.ok(changed <= H * W / 2, changed) -- a third, rounded
  end
  t.ok(erased > 0.18 * b and erased < 0.32 * b, erased)
  t.eq(sum / count, 0, 5 / math.sqrt(count))
  t.eq(squares / count, 1, 10 / math.sqrt(count))
  t.eq(make { erasing = 1 } :images(ids):totable(), original) -- not in an evaluation
end)

-- ---- Training -----------------------------------------------------------------------------------

local function model_of(classes)
  return tl.models.tnn_image { classes = classes, channels = 2, patch = 1, grid = { H, W },
    layers = 1, dim = 4, rpe_dim = 4, backend = "naive" }
end

t.test("a step without options equals classify's, bit for bit", function()
  local ids, labels = random_ids(4), core.ids { 0, 1, 2, 1 }
  local losses = {}
  for kind = 1, 2 do
    tl.seed(2)
    local model, a = model_of(3), make()
    local opt = tl.optim.adam(model, { lr = 0.01 })
    losses[kind] = {}
    for i = 1, 3 do
      losses[kind][i] = kind == 1 and a:step(model, opt, { ids = ids, labels = labels })
        or tl.classify.step(model, opt, { ids = a:images(ids), labels = labels })
    end
  end
  t.eq(losses[1], losses[2])
  t.ok(losses[1][3] < losses[1][1])
end)

t.test("accuracy uses unaltered images", function()
  tl.seed(4)
  local a, model = make { pad = 2, flip = true, mixup = 0.8, smoothing = 0.1 }, model_of(3)
  local ids, labels = random_ids(6), { 0, 1, 2, 1, 0, 2 }
  local set = {}
  function set:each(size)
    local first = 1 - size
    return function()
      first = first + size
      if first > 6 then return nil end
      return { ids = ids:narrow(1, first, size),
        labels = core.ids(table.move(labels, first, first + size - 1, 1, {})) }
    end
  end
  local share, nats = a:accuracy(model, set, 2)
  model:eval()
  local logits = core.no_grad(model, make():images(ids))
  t.eq(nats, core.cross_entropy(logits, core.ids(labels)):item(), 1e-5)
  local right = 0
  for i, guess in ipairs(logits:argmax():totable()) do
    right = right + (guess == labels[i] and 1 or 0)
  end
  t.eq(share, right / 6, 1e-9)
end)

t.test("the stored state of the stream gives the same images", function()
  local mixing = { pad = 2, flip = true, mixup = 0.4, cutmix = 1.0, erasing = 0.5 }
  tl.seed(5)
  local a, ids = make(mixing), random_ids(5)
  local batch = { ids = ids, labels = core.ids { 0, 1, 2, 1, 0 } }
  a:altered(batch)
  local key, offset = tl.stream_of("augment"):state()
  local want = a:altered(batch)
  tl.seed(5)
  tl.stream_of("augment"):set_state(key, offset)
  t.eq(make(mixing):altered(batch):totable(), want:totable())
  t.ok(core.abs(a:altered(batch) - want):amax():item() > 0, "the next ones differ")
end)

local script = [[
local tl = require "toeplab"
return tl.experiment "images" {
  fixed = { steps = 7 },
  checkpoint = { steps = 2 },
  trial = function(t, c)
    local a = tl.augmentation { height = 4, width = 4, mean = { 0.5 }, deviation = { 0.5 },
      pad = 1, flip = true, mixup = 0.5, cutmix = 1.0, erasing = 0.5, smoothing = 0.1,
      randaugment = 9.0 }
    local model = tl.models.tnn_image { classes = 2, channels = 1, patch = 2, grid = { 2, 2 },
      layers = 1, dim = 4, rpe_dim = 4, backend = "naive", dropout = 0.1 }
    local opt, rows = tl.optim.adam(model, { lr = 0.02 }), {}
    for i = 1, 3 do
      rows[i] = {}
      for j = 1, 16 do rows[i][j] = (i * 37 + j * 91) % 256 end
    end
    local batch = { ids = tl.ids(rows), labels = tl.ids { 0, 1, 1 } }
    for step in t:steps(c.steps, model, opt) do
      local loss = a:step(model, opt, batch)
      t:log { loss = loss }
    end
  end,
  report = function() end,
}
]]

-- An image of three channels of 4 x 5, and what Pillow 9.4 makes of it: number and amount of the
-- operation -> levels. Beyond the edge is (10, 20, 30).
local function pillow_image()
  local list = {}
  for c = 0, 2 do
    for i = 0, 3 do
      for j = 0, 4 do list[#list + 1] = (i * 37 + j * 91 + c * 50) % 256 end
    end
  end
  return list
end

local pillow = {
  { 11, 27, {
    10, 182, 69, 65, 161, 34, 179, 181, 80, 180, 38, 138, 37, 39, 184, 57, 153, 149, 36, 10, 20,
    255, 101, 135, 213, 89, 151, 0, 148, 239, 88, 203, 74, 119, 112, 107, 199, 201, 96, 20, 30,
    46, 67, 217, 241, 165, 189, 63, 176, 31, 138, 128, 60, 220, 139, 188, 93, 34, 179, 30 } },
  { 12, 0.25, {
    10, 113, 168, 12, 116, 63, 189, 162, 63, 158, 155, 56, 29, 155, 10, 206, 50, 105, 208, 10,
    60, 163, 218, 62, 166, 135, 121, 14, 151, 208, 205, 106, 79, 205, 20, 255, 100, 180, 34, 20,
    113, 177, 20, 137, 216, 185, 171, 64, 201, 255, 57, 38, 189, 95, 30, 57, 114, 233, 84, 30 } },
  { 7, 1.75, {
    0, 60, 173, 0, 77, 6, 97, 255, 23, 114, 43, 156, 0, 60, 173, 80, 193, 6, 97, 255, 56, 147,
    255, 73, 164, 93, 184, 0, 110, 201, 130, 243, 56, 147, 255, 167, 255, 93, 184, 0, 144, 235,
    0, 161, 252, 181, 255, 50, 198, 255, 218, 0, 144, 235, 0, 255, 0, 181, 255, 50 } },
  { 8, 0.5, {
    63, 109, 154, 72, 117, 82, 127, 173, 90, 136, 100, 146, 63, 109, 154, 119, 164, 82, 127, 173,
    88, 134, 179, 97, 142, 107, 152, 70, 115, 161, 125, 171, 88, 134, 179, 144, 189, 107, 152,
    70, 113, 159, 76, 122, 167, 132, 177, 95, 140, 186, 150, 68, 113, 159, 76, 169, 86, 132, 177,
    95 } },
  { 10, 1.75, {
    0, 91, 182, 17, 108, 37, 143, 255, 24, 145, 74, 194, 0, 76, 182, 111, 202, 37, 128, 219, 50,
    141, 232, 67, 158, 87, 207, 0, 89, 195, 124, 255, 5, 156, 232, 161, 252, 87, 178, 13, 100,
    191, 26, 117, 208, 137, 255, 33, 169, 245, 174, 0, 85, 220, 26, 211, 46, 137, 228, 63 } },
  { 1, 0, {
    0, 105, 211, 19, 125, 43, 149, 255, 62, 168, 86, 192, 0, 105, 211, 129, 235, 43, 149, 255,
    39, 136, 233, 57, 154, 78, 176, 0, 97, 194, 118, 215, 39, 136, 233, 157, 255, 78, 176, 0, 98,
    196, 18, 116, 215, 138, 236, 58, 156, 255, 178, 0, 98, 196, 18, 218, 39, 138, 236, 58 } },
  { 2, 0, {
    0, 91, 182, 17, 108, 37, 128, 219, 54, 145, 74, 165, 0, 91, 182, 111, 202, 37, 128, 219, 50,
    141, 232, 67, 158, 87, 178, 13, 104, 195, 124, 215, 50, 141, 232, 161, 252, 87, 178, 13, 100,
    191, 26, 117, 208, 137, 228, 63, 154, 245, 174, 9, 100, 191, 26, 211, 46, 137, 228, 63 } },
}

local function operate(list, number, amount, size)
  size = size or { channels = 3, height = 4, width = 5 }
  return core.images_alter(core.ids { list }, size, core.ids { { number } },
    core.tensor { { amount } }, core.ids(size.channels == 3 and { 10, 20, 30 } or { 9 }))
    :totable()[1]
end

t.test("operations of RandAugment: the levels that Pillow computes", function()
  for _, case in ipairs(pillow) do
    t.eq(operate(pillow_image(), case[1], case[2]), case[3])
  end
end)

t.test("operations of RandAugment: by their definitions", function()
  local x = pillow_image()
  local function levels(number, amount, fn)
    local want = {}
    for i, level in ipairs(x) do want[i] = fn(level, i) end
    t.eq(operate(x, number, amount), want)
  end
  local function pixel(c, i, j) return x[(c * 4 + i) * 5 + j + 1] end
  local fill = { 10, 20, 30 }
  -- Checks a movement of whole pixels: pixel (i, j) comes from place(i, j).
  local function moved(number, amount, place)
    levels(number, amount, function(_, k)
      local c, i, j = (k - 1) // 20, (k - 1) // 5 % 4, (k - 1) % 5
      i, j = place(i, j)
      return i >= 0 and i < 4 and j >= 0 and j < 5 and pixel(c, i, j) or fill[c + 1]
    end)
  end
  for number = 0, 15 do -- amounts that change nothing
    local same = { [4] = 8, [5] = 256, [7] = 1, [8] = 1, [9] = 1, [10] = 1 }
    if number < 1 or number > 3 then
      levels(number, same[number] or 0, function(v) return v end)
    end
  end
  levels(3, 0, function(v) return 255 - v end)
  levels(4, 3, function(v) return v // 32 * 32 end)
  levels(5, 100, function(v) return v >= 100 and 255 - v or v end)
  levels(6, 99, function(v) return v < 128 and math.min(v + 99, 255) or v end)
  levels(9, 0.5, function(v) return v // 2 end)
  levels(9, 1.5, function(v) return math.min(v + v // 2, 255) end)
  moved(11, 180, function(i, j) return 3 - i, 4 - j end)
  moved(12, 2, function(i, j) return i, j + 2 * i + 1 end)
  moved(13, -2, function(i, j) return i - 2 * j - 1, j end)
  moved(15, -0.25, function(i, j) return i - 1, j end)
  -- half a pixel along a ramp; one channel; a channel of one level stays
  local grey = { channels = 1, height = 1, width = 8 }
  t.eq(operate({ 0, 10, 20, 30, 40, 50, 60, 70 }, 14, 1 / 16, grey)[4], 35)
  t.eq(operate({ 1, 2, 3, 4, 5, 6, 7, 8 }, 14, 0.25, grey), { 3, 4, 5, 6, 7, 8, 9, 9 })
  t.eq(operate({ 1, 3, 5, 7, 9, 11, 13, 15 }, 7, 1.9, grey), { 1, 3, 5, 7, 9, 11, 13, 15 })
  for _, number in ipairs { 1, 2 } do
    t.eq(operate({ 7, 7, 7, 7, 7, 7, 7, 7 }, number, 0, grey), { 7, 7, 7, 7, 7, 7, 7, 7 })
  end
  -- each image by its own operations, one after the other
  t.eq(core.images_alter(core.ids { { 8, 250 }, { 8, 250 } }, { channels = 1, height = 1,
    width = 2 }, core.ids { { 3, 4 }, { 0, 6 } }, core.tensor { { 0, 1 }, { 0, 9 } },
    core.ids { 0 }), { { 128, 0 }, { 17, 250 } })
end)

t.test("RandAugment draws timm's operations, half of them, with increasing amounts", function()
  local o = { height = 2, width = 3, mean = { 0.5 }, deviation = { 1 }, randaugment = 9.0 }
  local rows, chosen, amounts, counts = {}, {}, {}, {}
  for i = 1, 300 do rows[i] = { i % 256, 3, 90, 200, 17, 255 - i % 256 } end
  tl.seed(5)
  local x = tl.augmentation(o):images(core.ids(rows), true)
  local draws = core.stream(5, "augment")
  for i = 1, 300 do
    chosen[i], amounts[i] = {}, {}
    for k = 1, 2 do
      local number, applied, sign = draws:below(15) + 1, draws:below(2), draws:below(2) * 2 - 1
      local radius = math.sqrt(-2 * math.log(1 - draws:unit()))
      local m = 9 + 0.5 * radius * math.cos(2 * math.pi * draws:unit())
      m = math.min(m, 10)
      local amount = 0 -- as timm's functions, by the magnitude m of 10
      if number == 4 then amount = 4 - (m * 4 // 10)
      elseif number == 5 then amount = 256 - (m * 256 // 10)
      elseif number == 6 then amount = m * 110 // 10
      elseif number >= 7 and number <= 10 then amount = math.max(0.1, 1 + sign * m * 0.09)
      elseif number == 11 then amount = sign * m * 3
      elseif number == 12 or number == 13 then amount = sign * m * 0.03
      elseif number >= 14 then amount = sign * m * 0.045 end
      chosen[i][k], amounts[i][k] = applied * number, amount
      counts[chosen[i][k]] = (counts[chosen[i][k]] or 0) + 1
    end
  end
  local want = core.images_alter(core.ids(rows), { channels = 1, height = 2, width = 3 },
    core.ids(chosen), core.tensor(amounts), core.ids { 128 }):totable()
  for i, row in ipairs(x:reshape(300, 6):totable()) do
    for j, value in ipairs(row) do t.eq(value, want[i][j] / 255 - 0.5, 1e-6) end
  end
  t.ok(counts[0] > 240 and counts[0] < 360, counts[0])
  for number = 1, 15 do t.ok(counts[number] > 5, number) end
end)

t.test("a stopped run resumes with the same images", function()
  local function losses(moments)
    local list
    t.in_folder(function(folder)
      local code, runs = trials.run_stopped(folder, script, moments, "step")
      t.eq({ code, runs }, { 0, #moments + 1 })
      list = trials.query(folder, "SELECT value FROM v_metrics WHERE name = 'loss' ORDER BY step")
    end)
    return list
  end
  local want = losses {}
  t.eq(#want, 7)
  t.eq(losses { 3, 6 }, want)
end)

t.test("wrong options and images are clear errors", function()
  t.raises(make, "2 means, but 1 deviations", { deviation = { 1 } })
  t.raises(make, "deviation 2 is 0, must be above 0", { deviation = { 1, 0 } })
  t.raises(make, "'mean' must be a list of numbers", { mean = {} })
  t.raises(make, "did you mean 'mixup'", { mixupp = 1 })
  for _, alpha in ipairs { 1 / 0, -1, 20, 1e-9 } do -- some would be drawn for ever
    t.raises(make, "'mixup' is [%w.+-]+, not 0 or a number from 0.001 to 4", { mixup = alpha })
    t.raises(make, "'cutmix' is [%w.+-]+, not 0 or a number", { cutmix = alpha })
  end
  for _, alpha in ipairs { 0.001, 4 } do
    make { mixup = alpha } :altered { ids = random_ids(5), labels = core.ids { 0, 1, 2, 0, 1 } }
  end
  t.raises(make, "randaugment requires images of 1 or 3 channels, and mean has 2",
    { randaugment = 9.0 })
  t.raises(core.images_alter, "operation 1 is 16, not in 0..15", core.ids { { 1 } },
    { channels = 1, height = 1, width = 1 }, core.ids { { 16 } }, core.tensor { { 0 } },
    core.ids { 0 })
  t.raises(make, "pad is 4, must be less than a side of images of 4 x 5", { pad = 4 })
  t.raises(make().images, "not %[b,40%]: 2 channels of 4 x 5", make(), core.ids { { 1, 2 } })
end)

t.done()
