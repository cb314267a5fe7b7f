-- base/defer.lua: a function to be called when the enclosing block ends, by an error as well.
--
--   local restore <close> = defer(function() drawing = before end)

local function defer(f)
  return setmetatable({}, { __close = f })
end

return defer
