-- nn/mixers/carry.lua: lets mixers and position encodings continue a text from the state after its
-- last position, so that models/recurrent.lua can run them position by position, and training can
-- read a text window by window (models/carried.lua).
--
-- A class sets Class.carries = true if its forward pass continues from the table self.carry, which
-- a session sets, and leaves in it the state after the last position. Without it, or before the
-- first position, the state is 0. The functions here take that table, or nil outside of a session.
-- Gradients flow through a state that has them. Most states have a fixed size. A class sets
-- Class.grows = true if its state depends on the number of positions: attention's keys and values,
-- and the number itself. One position is one step of a recurrence; several are computed at once.

local core = require "toeplab.core"
local shapes = require "toeplab.nn.shapes"

local carry = {}

-- Returns carried[name], or zeros before the first position. The first number of a shape, which may
-- lack the last ones, is the number of sequences.
function carry.state_of(carried, name, shape)
  local state = carried[name]
  if state and state:dim(1) ~= shape[1] then
    error(("recurrent: %d sequences after %d: call session:reset(), or states:reset(), first")
      :format(shape[1], state:dim(1)), 0)
  end
  for axis = 2, state and #shape or 0 do
    if state:dim(axis) ~= shape[axis] then
      error(("recurrent: the state %s is %s, not [%s]: it is another layer's"):format(name,
        tostring(state), table.concat(shape, ",")), 0)
    end
  end
  return state or core.zeros(shape)
end

-- Returns the sum of g over the positions after each one.   g [b,n,h,m]
-- These sums begin at the end, as the last positions matter most: there they have no large terms.
local function sum_after(g)
  local n, order = g:dim(2), {}
  for i = 1, n do order[i] = n - i end
  local back = core.ids(order)
  local last = g:transpose(1, 2):gather(back):narrow(1, 1, n - 1)
  return shapes.pad(last, 1, 1, 0):cumsum(1):gather(back):transpose(1, 2)
end

-- Returns core.linear_recurrence(q, k, v, g).
--   q, k [b,n,h,m]   v, result [b,n,h,w]   g [b,n,h,m] or [b,n,h,1]
-- What the state adds is a product, and so is the next state: neither takes steps.
function carry.linear_recurrence(carried, q, k, v, g)
  if not carried then return core.linear_recurrence(q, k, v, g) end
  local function by_head(x) return x:permute { 1, 3, 2, 4 } end
  local shape = { q:dim(1), q:dim(3), q:dim(4), v:dim(4) }
  if q:dim(2) == 1 then
    local decay = core.exp(by_head(g):reshape(shape[1], shape[2], -1, 1))
    local state = carry.state_of(carried, "state", shape) * decay
      + by_head(k):reshape(shape[1], shape[2], -1, 1) * by_head(v)
    carried.state = state
    return by_head(core.matmul(by_head(q), state))
  end
  local state = carried.state and carry.state_of(carried, "state", shape)
  local added = core.matmul(by_head(k * core.exp(sum_after(g))), by_head(v), true)
  local y = core.linear_recurrence(q, k, v, g)
  if state then
    local seen = core.matmul(by_head(q * core.exp(g:cumsum(2))), state)
    local kept = core.exp(by_head(g):sum(3)):reshape(shape[1], shape[2], -1, 1)
    y, added = y + by_head(seen), kept * state + added
  end
  carried.state = added
  return y
end

-- Returns core.selective_scan(x, delta, a, b, c, skip).
--   x, delta, result [b,n,d]   a [d,s]   b, c [b,n,s]   skip [d]
-- The operator neither takes nor returns a state [b,d,s], but s positions before the others, of
-- which number j adds column j to the state, and s after them, which read the columns, do both. The
-- first ones have steps so small that nothing decays: exp(STEP a) is 1 in float32, and x / STEP, as
-- STEP is a power of 2, is exact.
local STEP = 2.0 ^ -40

function carry.selective_scan(carried, x, delta, a, b, c, skip)
  if not carried then return core.selective_scan(x, delta, a, b, c, skip) end
  local rows, n, d, s = x:dim(1), x:dim(2), x:dim(3), a:dim(2)
  if n == 1 then
    local step, state = delta:reshape(rows, d, 1), carry.state_of(carried, "state", { rows, d, s })
    state = state * core.exp(step * a) + step * x:reshape(rows, d, 1) * b
    carried.state = state
    return core.matmul(state, c:reshape(rows, s, 1)):reshape(rows, 1, d) + x * skip
  end
  local state = carried.state and carry.state_of(carried, "state", { rows, d, s })
  local columns = shapes.identity(s):reshape(1, s, s) * core.ones(rows, 1, 1)
  local none, blank = core.zeros(rows, s, s), core.zeros(rows, s, d)
  local function around(first, middle, last)
    return core.concat(state and { first, middle, last } or { middle, last }, 2)
  end
  local y = core.selective_scan(
    around(state and core.affine(state:transpose(2, 3), 1 / STEP, 0), x, blank),
    around(state and core.full({ rows, s, d }, STEP), delta, blank),
    a, around(columns, b, none), around(none, c, columns), skip)
  local first = state and s or 0
  carried.state = y:narrow(2, first + n + 1, s):transpose(2, 3)
  return y:narrow(2, first + 1, n)
end

-- Returns the causal convolution of x [b,n,d] with taps [m,d].
function carry.convolution(carried, x, taps)
  if not carried then return core.depthwise_conv(x, taps, 0) end
  local n, before = x:dim(2), taps:dim(1) - 1
  if before == 0 then return x * taps end
  local inputs = carry.state_of(carried, "inputs", { x:dim(1), before, x:dim(3) })
  local all = core.concat({ inputs, x }, 2)
  carried.inputs = all:narrow(2, n + 1, before)
  return core.depthwise_conv(all, taps, 0):narrow(2, before + 1, n)
end

-- Appends keys and values [b,h,n,w] to the previous ones, and returns all.
function carry.append(carried, keys, values)
  if carried.keys then
    carry.state_of(carried, "keys", { keys:dim(1) })
    keys = core.concat({ carried.keys, keys }, 3)
    values = core.concat({ carried.values, values }, 3)
  end
  carried.keys, carried.values = keys, values
  return keys, values
end

-- Returns the number of positions before the next n.
function carry.advance(carried, n)
  if not carried then return 0 end
  local before = carried.positions or 0
  carried.positions = before + n
  return before
end

-- Returns the bytes of the states in such a table.
function carry.bytes(carried)
  local bytes = 0
  for _, state in pairs(carried) do
    if type(state) == "userdata" then bytes = bytes + 4 * state:numel() end
  end
  return bytes
end

return carry
