-- tensors/errors.lua: turns mistakes with tensors into errors that say what to write instead: an
-- unknown method (x:sun()), and indexing, for which Lua would return nil (x[1]) or report userdata
-- (x[1] = 5, x < y).
local sorted_keys = require "toeplab.base.sorted_keys"
local pytorch = require "toeplab.tensors.pytorch"
local suggest = require "toeplab.base.suggest"

-- The metatable that all tensors share, by the name that lua/glue/tensor.c gives it.
local tensors = debug.getregistry()["toeplab.tensor"]
local methods = tensors.__index

-- Returns "x[2]" or "x.width", as the key was probably written.
local function written(key)
  local word = type(key) == "string" and key:find "^[%a_][%w_]*$"
  return word and "x." .. key or ("x[%s]"):format(tostring(key))
end

setmetatable(methods, {
  __index = function(_, key)
    if type(key) == "string" then
      error(("a tensor has no method '%s'%s"):format(key, pytorch.hint(key)
        or suggest.hint(key, sorted_keys(methods))), 2)
    end
    error(("a tensor is not indexed as %s: x:get(i, j) reads an element, x:view(offset, shape) "
      .. "shares a part, x:totable() copies all into a table"):format(written(key)), 2)
  end,
})

function tensors.__newindex(_, key)
  error(("nothing can be assigned to %s of a tensor: x:fill(v) and x:copy(y) write all of x, "
    .. "x:view(offset, shape):fill(v) a part"):format(written(key)), 2)
end

-- Lua converts the results of < and <= to booleans, so they cannot compare elements.
for event, names in pairs { __lt = "tl.lt(a, b) or tl.gt(a, b)", __le =
  "tl.le(a, b) or tl.ge(a, b)" } do
  tensors[event] = function()
    error("Lua cannot compare a tensor by < or <=: write " .. names .. " to compare elements, "
      .. "x:item() < y if x has one element", 2)
  end
end
