-- models/paired.lua: separates the two sequences of each pair in a batch of pairs, for the models
-- that classify pairs.

local paired = {}

-- Returns the states of the first sequences of b pairs and of the second ones, which follow them:
-- z [2 b,d] -> [b,d], [b,d]. who: the model's name in messages.
function paired.halves(who, z)
  local rows = z:dim(1)
  if rows % 2 ~= 0 then
    error(("%s: %d rows are not pairs of sequences, as their number is odd"):format(who, rows), 0)
  end
  return z:narrow(1, 1, rows // 2), z:narrow(1, rows // 2 + 1, rows // 2)
end

return paired
