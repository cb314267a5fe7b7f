-- models/image.lua: defines tl.models.tnn_image, which assigns an image to a class by its patches
-- (TNN, Table 6).

local class = require("toeplab.nn.class").class
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local stack = require "toeplab.models.stack"

local field = options.field

local spec = stack.fields({
  { "classes", field { default = 1000, min = 1, max = 1 << 24 }, "number of classes" },
  { "patch", field { default = 16, min = 1, max = 1 << 16 }, "height and width of a patch" },
  { "channels", field { default = 3, min = 1, max = 1 << 16 }, "colours of a pixel" },
  { "final_norm", nn.norm_option "simplermsnorm", "norm of the mean over the patches" },
}, {
  layers = 12, dim = 192, rpe_dim = 48, rpe_layers = 1, decay = 0.9, causal = false,
  grid = { 14, 14 },
})

-- The model is: a linear map of each patch, positions, dropout, blocks, the mean over the patches,
-- norm, linear map. The defaults are the tiny model of the published runs, which has no positions,
-- no class token and no dropout. grid is {height, width} in patches.
--   model(x [b,channels,height,width]) -> logits [b,classes]
--   model:hidden(x) -> [b,n,dim], the patches row by row
-- A patch is mapped as a vector in the order row, column, channel.
local TnnImage = class("TnnImage", spec, nil,
  "x [b,channels,height,width] -> [b,classes]: a classifier of images")

function TnnImage:build(o)
  self.embed = nn.Linear(o.patch * o.patch * o.channels, o.dim, { init = stack.plain_init(o) })
  self.position = stack.positions(o)
  self.drop = nn.Dropout(o.dropout)
  self.layers = stack.layers("TnnImage", o)
  self.final_norm = nn.norm(o.final_norm, o.dim)
  self.head = nn.Linear(o.dim, o.classes, { init = stack.plain_init(o) })
end

-- Cuts images into patches: x [b,c,height,width] -> [b,n,p p c].
local function patches(o, x)
  local p, c, rows, columns = o.patch, o.channels, o.grid[1], o.grid[2]
  local s = x:shape()
  if #s ~= 4 or s[2] ~= c or s[3] ~= rows * p or s[4] ~= columns * p then
    error(("TnnImage: x is %s, not [b,%d,%d,%d]: a grid of %d x %d patches of %d x %d"):format(
      tostring(x), c, rows * p, columns * p, rows, columns, p, p), 0)
  end
  return x:reshape(s[1] * c, rows, p, columns, p):reshape(s[1], c, rows, p, columns, p)
    :permute { 1, 3, 5, 4, 6, 2 }:reshape(s[1], rows * columns, p * p * c)
end

-- Returns the state of each patch after the last block: x [b,c,height,width] -> [b,n,dim].
function TnnImage:hidden(x)
  local y = self.embed(patches(self.opt, x))
  if self.position then y = self.position(y) end
  y = self.drop(y)
  return stack.through(self, y)
end

function TnnImage:forward(x)
  return self.head(self.final_norm(self:hidden(x):mean(2)))
end

TnnImage.apart = { head = true } -- applied once to an image

function TnnImage:own_cost()
  return self.head:cost(1)
end

return { TnnImage = TnnImage }
