-- docs/make/make.lua: writes the pages that are made from the declarations of the program:
--   toeplab lua docs/make/make.lua FOLDER
local pages = require "pages"

local folder = arg[1] or error("make.lua: which folder?", 0)
for name, make in pairs(pages) do
  local file = assert(io.open(folder .. "/" .. name, "w"))
  assert(file:write((make())))
  assert(file:close())
end
