-- pathfinder-conv.lua: do the generated images of Pathfinder show whether their disks lie on one
-- contour? This checks the generator; no published model takes part.
--
-- A small convolution network learns to follow contours. From the pixels around the end of a
-- segment, and the move that led there, it predicts where the next segment ends. It learns this
-- from the positions of the segments, which the generator returns with its images, not from labels.
-- Its first layer is a convolution whose kernel has the size of the window, the others are
-- convolutions of 1x1; all are computed only at the visited positions.
--
-- An image is classified from its pixels alone. The disks are its two brightest spots. The network
-- follows the contour from each of them, and the answer is 1 if it arrives at the other disk from
-- either. scale=path-x uses images of 128x128.
local tl = require "toeplab"

local TRAINING, HELD_OUT = 1, 2 -- seeds of the images
local SEGMENTS = 14             -- moves from one end of a contour to the other
-- By the size of the images: the radius of the brightest part of a disk, and the longest move.
local sizes = { [32] = { disk = 1, reach = 5 }, [128] = { disk = 2, reach = 12 } }

local Net = tl.nn.class("Net", { window = "int", reach = "int", dim = "int" }, {})

function Net:build(o)
  local moves, greys = (2 * o.reach + 1) ^ 2 | 0, {}
  self.first, self.last = tl.nn.Linear(o.window ^ 2 | 0, o.dim), tl.nn.Embedding(moves + 1, o.dim)
  self.second, self.out = tl.nn.Linear(o.dim, o.dim), tl.nn.Linear(o.dim, moves)
  for grey = 0, 255 do greys[grey + 1] = { grey / 255 } end
  self.greys = { tl.tensor(greys) } -- in a table, so that it is not a parameter
end

function Net:forward(windows, last)                        -- ids [b,window^2] and [b] -> [b,moves]
  local x = self.greys[1]:gather(windows:reshape(-1)):reshape(windows:dim(1), windows:dim(2))
  return self.out(tl.relu(self.second(tl.relu(self.first(x) + self.last(last)))))
end

-- Returns the number of the move between two positions; without a first one, the number of no move.
local function move(c, from, to)
  local reach = sizes[c.size].reach
  if not from then return (2 * reach + 1) ^ 2 | 0 end
  return (to[1] - from[1] + reach) * (2 * reach + 1) + to[2] - from[2] + reach
end

-- Returns the place, within the image, to which a move leads.
local function moved(c, from, number)
  local reach = sizes[c.size].reach
  local function within(x) return math.min(math.max(x - reach, 0), c.size - 1) end
  return { within(from[1] + number // (2 * reach + 1)), within(from[2] + number % (2 * reach + 1)) }
end

-- Returns image i with black pixels around it, so that every place has a whole window.
local function padded(images, i, c)
  local margin, bytes, rows = c.window // 2, images:bytes(i), {}
  local side, black = c.size + 2 * margin, ("\0"):rep(margin)
  for row = 1, c.size do
    rows[row] = black .. bytes:sub((row - 1) * c.size + 1, row * c.size) .. black
  end
  local band = black:rep(side)
  return { bytes = band .. table.concat(rows) .. band, side = side, margin = margin }
end

-- Returns the inputs of the network for a list of {image=, place=, last= the number of a move}.
local function inputs(c, list)
  local rows, last, all = {}, {}, {}
  for i, e in ipairs(list) do
    for row = e.place[1], e.place[1] + c.window - 1 do
      local at = row * e.image.side + e.place[2]
      rows[#rows + 1] = e.image.bytes:sub(at + 1, at + c.window)
    end
    last[i], all[i] = e.last, i - 1
  end
  local windows <close> = tl.images(table.concat(rows), c.window ^ 2 | 0)
  return windows:batch(tl.ids(all)), tl.ids(last)
end

-- Returns what the network is to learn in a step, from new images: a list for inputs, and moves.
local function examples(c, step)
  local images <close>, _, _, paths = tl.pathfinder { size = c.size, seed = TRAINING,
    first = (step - 1) * c.images, count = c.images }
  local list, moves = {}, {}
  for i, path in ipairs(paths:reshape(2 * c.images, SEGMENTS, 4):totable()) do
    local image, there, back = padded(images, (i - 1) // 2, c), { { path[1][1], path[1][2] } }, {}
    for k, segment in ipairs(path) do -- its tail and its head
      there[k + 1], back[SEGMENTS + 2 - k] = { segment[3], segment[4] }, { segment[1], segment[2] }
    end
    back[1] = there[SEGMENTS + 1]
    for _, way in ipairs { there, back } do
      for k = 1, SEGMENTS do
        list[#list + 1] = { image = image, place = way[k], last = move(c, way[k - 1], way[k]) }
        moves[#list] = move(c, way[k], way[k + 1])
      end
    end
  end
  return list, tl.ids(moves)
end

local function distance(a, b) return math.sqrt((a[1] - b[1]) ^ 2 + (a[2] - b[2]) ^ 2) end

-- Returns the places of the two brightest spots, of the radius of a disk.
local function disks(image, c)
  local spots, disk = {}, sizes[c.size].disk
  for at in image.bytes:gmatch "()[\128-\255]" do
    local spot = { (at - 1) // image.side - image.margin, (at - 1) % image.side - image.margin }
    spot.at, spot.sum, spots[#spots + 1] = at, 0, spot
    for row = -disk, disk do
      local width, middle = math.sqrt(disk ^ 2 - row ^ 2) // 1 | 0, at + row * image.side
      for _, grey in ipairs { image.bytes:byte(middle - width, middle + width) } do
        spot.sum = spot.sum + grey
      end
    end
  end
  table.sort(spots, function(a, b) return a.sum > b.sum or a.sum == b.sum and a.at < b.at end)
  for _, spot in ipairs(spots) do
    if distance(spot, spots[1]) > 2 * disk then return spots[1], spot end
  end
  return spots[1], spots[#spots]
end

-- Returns the accuracy on held-out images.
local function accuracy(model, c)
  local images <close>, labels = tl.pathfinder { size = c.size, seed = HELD_OUT, count = c.test }
  local list, none, right = {}, move(c), 0
  for i = 1, c.test do
    local image = padded(images, i - 1, c)
    local a, b = disks(image, c)
    list[2 * i - 1] = { image = image, place = a, last = none, goal = b }
    list[2 * i] = { image = image, place = b, last = none, goal = a }
  end
  for _ = 1, SEGMENTS do
    for i, number in ipairs(model(inputs(c, list)):argmax():totable()) do
      list[i].place, list[i].last = moved(c, list[i].place, number), number
    end
  end
  local near = 1.5 * sizes[c.size].disk
  local function arrived(e) return distance(e.place, e.goal) <= near end
  for i, label in ipairs(labels:totable()) do
    local joined = arrived(list[2 * i - 1]) or arrived(list[2 * i])
    if joined == (label == 1) then right = right + 1 end
  end
  return right / c.test
end

return tl.experiment "pathfinder-conv" {
  fixed = {
    size = 32, window = 13, dim = 128, images = 16, steps = 3000, lr = 2e-3, warmup = 100,
    test = 4000,
  },
  seeds = 1,
  scale = {
    smoke = { dim = 4, images = 1, steps = 2, warmup = 1, test = 8 },
    ["path-x"] = { size = 128, window = 27, images = 8, steps = 1500, test = 2000 },
  },

  check = function(c)
    if not sizes[c.size] then error("size must be 32 or 128", 0) end
    for key, least in pairs { window = 5, images = 1, test = 1 } do
      if c[key] < least then error(("%s must be at least %d"):format(key, least), 0) end
    end
    if c.window % 2 == 0 then error("window must be odd: it has a pixel in its middle", 0) end
  end,

  trial = function(t, c)
    local model = Net { window = c.window, reach = sizes[c.size].reach, dim = c.dim }
    local opt = tl.optim.adam(model, { lr = c.lr, clip = 1.0, schedule = "cosine",
      steps = c.steps, warmup = c.warmup })
    for step in t:steps(c.steps, model, opt) do
      local list, moves = examples(c, step)
      opt:zero_grad()
      local loss = tl.cross_entropy(model(inputs(c, list)), moves)
      loss:backward()
      opt:step()
      t:log { loss = loss }
    end
    t:log { test_accuracy = tl.no_grad(accuracy, model, c), parameters = (model:count()) }
  end,

  report = { rows = "size", columns = { "test_accuracy", "loss", "parameters" } },
}
