-- nn/mixers/carry.lua: lets mixers and position encodings continue a text from the state after its
-- last position, so that models/recurrent.lua can run them position by position.
--
-- A class sets Class.carries = true if its forward pass continues from the table self.carry, which
-- a session sets, and leaves in it the state after the last position. Without it, or before the
-- first position, the state is 0. The functions here take that table, or nil outside of a session,
-- where they compute all positions at once. Most states have a fixed size. A class sets Class.grows
-- = true if its state depends on the number of positions: attention's keys and values, and the
-- number itself. In a session mixers loop over the positions: it needs no gradients and mostly
-- receives one position, but a long prompt takes as many steps as it has positions.

local core = require "toeplab.core"

local carry = {}

-- Returns carried[name], or zeros before the first position. The first number of a shape is the
-- number of sequences.
function carry.state_of(carried, name, shape)
  local state = carried[name]
  if state and state:dim(1) ~= shape[1] then
    error(("recurrent: %d sequences after %d: call session:reset() first"):format(shape[1],
      state:dim(1)), 0)
  end
  return state or core.zeros(shape)
end

-- Returns position t of x [b,n,..] as a tensor of a shape.
local function at(x, t, ...) return x:narrow(2, t, 1):reshape(...) end

-- Returns core.linear_recurrence(q, k, v, g), where g = nil means no decay.
--   q, k [b,n,h,m]   v, result [b,n,h,w]   g [b,n,h,m] or [b,n,h,1]
function carry.linear_recurrence(carried, q, k, v, g)
  if not carried then return core.linear_recurrence(q, k, v, g) end
  local b, h, m, w, list = q:dim(1), q:dim(3), q:dim(4), v:dim(4), {}
  local state = carry.state_of(carried, "state", { b, h, m, w })
  for t = 1, q:dim(2) do
    if g then state = state * core.exp(at(g, t, b, h, -1, 1)) end
    state = state + at(k, t, b, h, m, 1) * at(v, t, b, h, 1, w)
    list[t] = core.matmul(at(q, t, b, h, 1, m), state):reshape(b, 1, h, w)
  end
  carried.state = state
  return core.concat(list, 2)
end

-- Returns core.selective_scan(x, delta, a, b, c, skip).
--   x, delta, result [b,n,d]   a [d,s]   b, c [b,n,s]   skip [d]
function carry.selective_scan(carried, x, delta, a, b, c, skip)
  if not carried then return core.selective_scan(x, delta, a, b, c, skip) end
  local rows, d, s, list = x:dim(1), x:dim(3), a:dim(2), {}
  local state = carry.state_of(carried, "state", { rows, d, s })
  for t = 1, x:dim(2) do
    local step = at(delta, t, rows, d, 1)
    state = state * core.exp(step * a)
      + step * at(x, t, rows, d, 1) * at(b, t, rows, 1, s)
    list[t] = core.matmul(state, at(c, t, rows, s, 1)):reshape(rows, 1, d)
  end
  carried.state = state
  return core.concat(list, 2) + x * skip
end

-- Returns the causal convolution of x [b,n,d] with taps [m,d].
function carry.convolution(carried, x, taps)
  if not carried then return core.depthwise_conv(x, taps, 0) end
  local n, before = x:dim(2), taps:dim(1) - 1
  if before == 0 then return x * taps end
  local inputs = carry.state_of(carried, "inputs", { x:dim(1), before, x:dim(3) })
  local all = core.concat({ inputs, x }, 2)
  carried.inputs = all:narrow(2, n + 1, before):clone()
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
