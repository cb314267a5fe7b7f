-- docs/make/make.lua: writes what is made of the pages of docs and of declarations:
--   toeplab lua docs/make/make.lua FOLDER      the manual pages and the types for editors
--   toeplab lua docs/make/make.lua             the made parts of the pages of docs, in place
local pages = require "pages"
local reference = require "reference"

local function write(path, text)
  local file = assert(io.open(path, "w"))
  assert(file:write(text))
  assert(file:close())
end

if arg[1] then
  for name, make in pairs(pages) do write(arg[1] .. "/" .. name, (make())) end
else
  for path, text in pairs(reference.pages()) do write(path, text) end
end
