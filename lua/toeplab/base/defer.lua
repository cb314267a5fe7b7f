-- base/defer.lua: calls a function when the enclosing block ends, also when it ends by an error.
--
--   local restore <close> = defer(function() drawing = before end)

local function defer(f)
  return setmetatable({}, { __close = f })
end

return defer
