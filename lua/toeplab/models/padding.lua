-- models/padding.lua: says which tokens of a batch are padding, by their number or by the lengths
-- of the rows.
--
-- A mask [b,n] is 1 for a token and 0 for padding, as token mixers take it (nn/block.lua).

local core = require "toeplab.core"
local shapes = require "toeplab.nn.shapes"

local padding = {}

-- Returns a function that makes the mask of ids [b,n], in which the token pad is padding. Without
-- pad there is none: the function returns nil. who is the name of the model in messages.
function padding.by_token(who, pad, vocab)
  if not pad then return function() end end
  if pad >= vocab then
    error(("%s: pad = %d is not below vocab = %d"):format(who, pad, vocab), 0)
  end
  local is_token = core.ones(vocab)
  is_token:view(pad, { 1 }):fill(0)
  return function(ids) return is_token:gather(ids) end
end

-- Returns the lengths [b] of the rows of ids [b,n] as a list; each must be in 1..n.
function padding.lengths(who, lengths, ids)
  local b, n, list = ids:dim(1), ids:dim(2), lengths:totable()
  if #list ~= b then error(("%s: %d lengths for %d rows"):format(who, #list, b), 0) end
  for i, length in ipairs(list) do
    if length < 1 or length > n then
      error(("%s: row %d has the length %d, wanted 1..%d"):format(who, i, length, n), 0)
    end
  end
  return list
end

-- Returns the mask of rows with a list of b lengths, after which there is padding: [b,n].
function padding.by_length(list, n)
  local last = core.affine(core.tensor(list):reshape(#list, 1), 1, -1)
  return shapes.step(last - core.range(0, n - 1):reshape(1, n))
end

return padding
