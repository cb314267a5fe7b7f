-- models/padding.lua: determines which tokens of a batch are padding, by their id or by the lengths
-- of the rows.
--
-- A mask [b,n] is 1 for a token and 0 for padding, as token mixers take it (nn/block.lua).

local core = require "toeplab.core"
local shapes = require "toeplab.nn.shapes"

local padding = {}

-- Returns a function that makes the mask of ids [b,n], in which the token pad is padding. Without
-- pad, the function returns nil. who: the model's name in messages.
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
      error(("%s: row %d has the length %d, not 1..%d"):format(who, i, length, n), 0)
    end
  end
  return list
end

-- Returns the mask of rows with a list of b lengths, after which there is padding: [b,n].
function padding.by_length(list, n)
  local last = core.affine(core.tensor(list):reshape(#list, 1), 1, -1)
  return shapes.step(last - core.range(0, n - 1):reshape(1, n))
end

-- Returns the positions of the tokens of such rows, for norms that leave padding out: {tokens= [t],
-- the places of the t tokens among the b n positions, places= [b n], the index of the token at each
-- position, or t at padding}, both int32 from 0.
function padding.kept(list, n)
  local tokens, places, total = {}, {}, 0
  for _, length in ipairs(list) do total = total + length end
  for row, length in ipairs(list) do
    for i = 1, n do
      local place = (row - 1) * n + i
      places[place] = total
      if i <= length then places[place], tokens[#tokens + 1] = #tokens, place - 1 end
    end
  end
  return { tokens = core.ids(tokens), places = core.ids(places) }
end

-- Returns the mean of the states of the tokens of each row: x [b,n,d], mask [b,n] or nil -> [b,d].
-- A row of padding alone gives 0.
function padding.mean(x, mask)
  if not mask then return x:mean(2) end
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  local sum = core.matmul(mask:reshape(b, 1, n), x):reshape(b, d)
  return sum / core.max(mask:sum(2, true), 1)
end

return padding
