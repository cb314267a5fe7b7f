-- nn/mixers/states/rnn.lua: defines GRU and LSTM, recurrent networks whose steps are not linear, so
-- that each waits for the one before.

local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local Linear = require("toeplab.nn.linear").Linear
local options = require "toeplab.base.options"
local steps = require "toeplab.nn.mixers.states.steps"

local function spec(kind)
  return { dim = options.field { type = "int", min = 1 }, causal = steps.causal(kind) }
end

-- Makes the maps of the input and of the state to the gates, which lie one after another.
local function build(self, dim, gates)
  self.ih = Linear(dim, gates * dim)
  self.hh = Linear(dim, gates * dim)
end

-- Returns `count` (1) gates of u [b,k d], which lie beside one another, from gate i on.
local function cut(u, d, i, count) return u:narrow(2, (i - 1) * d + 1, (count or 1) * d) end

-- Returns y [b,n,dim]: h_t = step(a, h_(t-1)), where a [b,k dim] are the input's gates. A step of
-- one sequence is bound by reading the weights; few operators leave it little more than that.
local function run(self, x, step)
  local b, n, d, list = x:dim(1), x:dim(2), x:dim(3), {}
  local all = self.ih(x)
  local h = self.carry and carry.state_of(self.carry, "state", { b, d }) or core.zeros(b, d)
  for t = 1, n do
    h = step(all:narrow(2, t, 1):reshape(b, -1), h)
    list[t] = h:reshape(b, 1, d)
  end
  if self.carry then self.carry.state = h end
  return core.concat(list, 2)
end

-- r = sigmoid(x Wr + br + h Ur + cr),  z = sigmoid(x Wz + bz + h Uz + cz),
-- m = tanh(x Wm + bm + r * (h Um + cm)),  h <- (1 - z) * m + z * h;  y_t = h
-- (Cho et al. 2014, Learning phrase representations using RNN encoder-decoder; as torch.nn.GRU).
--   x, y [b,n,dim]   ih, hh [3 dim,dim] hold r, z, m
local GRU = class("GRU", spec "GRU", { "dim" })

function GRU:build(o) build(self, o.dim, 3) end

function GRU:forward(x)
  local d = self.opt.dim
  return run(self, x, function(a, h)
    local u = self.hh(h)
    local r = core.sigmoid(cut(a, d, 1) + cut(u, d, 1))
    local z = core.sigmoid(cut(a, d, 2) + cut(u, d, 2))
    local m = core.tanh(cut(a, d, 3) + r * cut(u, d, 3))
    return m + z * (h - m)
  end)
end

-- i, f, o = sigmoid(x W + b + h U + c),  g = tanh(x Wg + bg + h Ug + cg),
-- cell <- f * cell + i * g,  h <- o * tanh(cell);  y_t = h
-- (Hochreiter and Schmidhuber 1997, Long short-term memory; Gers et al. 2000; as torch.nn.LSTM).
--   x, y [b,n,dim]   ih, hh [4 dim,dim] hold i, f, g, o
local LSTM = class("LSTM", spec "LSTM", { "dim" })

function LSTM:build(o) build(self, o.dim, 4) end

function LSTM:forward(x)
  local d, carried, cell = self.opt.dim, self.carry, nil
  cell = carried and carry.state_of(carried, "cell", { x:dim(1), d }) or core.zeros(x:dim(1), d)
  local y = run(self, x, function(a, h)
    local u = a + self.hh(h)
    local i_f = core.sigmoid(cut(u, d, 1, 2))
    cell = cut(i_f, d, 2) * cell + cut(i_f, d, 1) * core.tanh(cut(u, d, 3))
    return core.sigmoid(cut(u, d, 4)) * core.tanh(cell)
  end)
  if carried then carried.cell = cell end
  return y
end

GRU.carries, LSTM.carries = true, true

-- The tape keeps the results of every step.
function GRU:own_cost(n) return 10.0 * n * self.opt.dim, 5.0 * n * self.opt.dim end

function LSTM:own_cost(n) return 10.0 * n * self.opt.dim, 7.0 * n * self.opt.dim end

return { GRU = GRU, LSTM = LSTM }
