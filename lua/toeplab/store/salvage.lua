-- store/salvage.lua: reads the records of a damaged SQLite file page by page, without its trees, so
-- that a page which is no longer linked still gives its rows.
--
-- SQLite's own recovery needs sqlite_dbpage, which Debian's library lacks. Besides, this second,
-- independent reading tells rebuild.lua whether a trial is complete: a row that a damaged key hides
-- from SQLite would otherwise be missing on both sides.
--
-- The input may be arbitrary, so every length is checked against the bytes that exist.
local salvage = {}

local MAGIC, SIZE = "SQLite format 3\0", 4096 -- the page size of every store
local LEAF, INDEX, INNER = 13, 10, 2 -- the page types that hold rows

-- ---- Pages ------------------------------------------------------------------------------------

-- Adds pairs of words to the checksum of a write-ahead log.
local function checksum(text, format, a, b)
  for at = 1, #text - 7, 8 do
    local x, y = format:unpack(text, at)
    a = (a + x + b) & 0xFFFFFFFF
    b = (b + y + a) & 0xFFFFFFFF
  end
  return a, b
end

-- Returns where in a write-ahead log the committed content of pages is ({page = offset}), and the
-- number of pages after the last commit (nil: no commit).
local function committed(wal)
  local header = wal:read(32) or ""
  if #header < 32 then return {}, nil end
  local magic, _, own, _, salt1, salt2, sum1, sum2 = (">I4I4I4I4I4I4I4I4"):unpack(header)
  local format = magic == 0x377F0682 and "<I4I4" or magic == 0x377F0683 and ">I4I4"
  if not format or own ~= SIZE then return {}, nil end
  local a, b = checksum(header:sub(1, 24), format, 0, 0)
  if a ~= sum1 or b ~= sum2 then return {}, nil end
  local pages, pending, count, offset = {}, {}, nil, 32
  while true do
    local frame, page = wal:read(24) or "", wal:read(SIZE) or ""
    if #frame < 24 or #page < SIZE then return pages, count end
    local number, commit, s1, s2, c1, c2 = (">I4I4I4I4I4I4"):unpack(frame)
    a, b = checksum(page, format, checksum(frame:sub(1, 8), format, a, b))
    if s1 ~= salt1 or s2 ~= salt2 or a ~= c1 or b ~= c2 then return pages, count end
    pending[number] = offset + 24
    if commit > 0 then
      for n, at in pairs(pending) do pages[n] = at end
      pending, count = {}, commit
    end
    offset = offset + 24 + SIZE
  end
end

local File = {}
File.__index = File

-- Returns the content of page number; "" if there is none.
function File:page(number)
  local at = self.pages[number]
  local file = at and self.wal or self.file
  if not file:seek("set", at or (number - 1) * SIZE) then return "" end
  return file:read(SIZE) or ""
end

-- Returns the set of the pages on the free list; of a damaged list, the readable part.
function File:free()
  local free, head = {}, self:page(1)
  local trunk = #head >= 40 and (">I4"):unpack(head, 33) or 0
  while trunk > 1 and trunk <= self.count and not free[trunk] do
    local page = self:page(trunk)
    if #page < SIZE then break end
    free[trunk] = true
    local next_trunk, leaves = (">I4I4"):unpack(page)
    for i = 1, math.min(leaves, SIZE // 4 - 2) do
      free[(">I4"):unpack(page, 5 + 4 * i)] = true
    end
    trunk = next_trunk
  end
  return free
end

-- Opens the database at path with its write-ahead log, if there is one.
function salvage.open(path)
  local file = assert(io.open(path, "rb"))
  local wal = io.open(path .. "-wal", "rb")
  local self = setmetatable({ file = file, wal = wal, pages = {} }, File)
  local count
  if wal then self.pages, count = committed(wal) end
  self.count = math.max(count or 0, file:seek("end") // SIZE)
  return self
end

function File:close()
  self.file:close()
  if self.wal then self.wal:close() end
end

-- ---- Records ----------------------------------------------------------------------------------

-- Returns the variable-length integer at a position and where it ends; nil if the text ends before.
local function varint(text, at)
  local value = 0
  for i = at, at + 7 do
    local byte = text:byte(i)
    if not byte then return nil end
    value = value << 7 | byte & 127
    if byte < 128 then return value, i + 1 end
  end
  local byte = text:byte(at + 8)
  if byte then return value << 8 | byte, at + 9 end
end

-- Returns the payload of so many bytes that begins at a position of page and may continue on
-- overflow pages; nil if part of it is missing.
function File:payload(page, at, bytes, kind)
  local most = kind == LEAF and SIZE - 35 or (SIZE - 12) * 64 // 255 - 23
  if bytes < 2 or bytes > self.count * SIZE then return nil end
  if bytes <= most then return #page >= at + bytes - 1 and page:sub(at, at + bytes - 1) or nil end
  local least = (SIZE - 12) * 32 // 255 - 23
  local here = least + (bytes - least) % (SIZE - 4)
  if here > most then here = least end
  if #page < at + here + 3 then return nil end
  local parts, left = { page:sub(at, at + here - 1) }, bytes - here
  local number = (">I4"):unpack(page, at + here)
  while left > 0 do
    local more = number > 1 and number <= self.count and self:page(number) or ""
    if #more < SIZE then return nil end
    parts[#parts + 1] = more:sub(5, 4 + math.min(left, SIZE - 4))
    left, number = left - #parts[#parts], (">I4"):unpack(more)
  end
  return table.concat(parts)
end

local integers = { ">i1", ">i2", ">i3", ">i4", ">i6", ">i8" }

-- Returns the value of a serial type at a position (a blob as false) and the position after it; no
-- position if the type is invalid or text ends before.
local function value_of(text, at, serial)
  if serial == 0 then return nil, at end
  if serial == 8 or serial == 9 then return serial - 8, at end
  if serial == 10 or serial == 11 then return nil end
  if serial >= 12 then
    local stop = at + (serial - 12) // 2
    if stop - 1 > #text then return nil end
    return serial % 2 == 1 and text:sub(at, stop - 1) or false, stop -- the store writes no blobs
  end
  local format = serial == 7 and ">d" or integers[serial]
  if at + format:packsize() - 1 > #text then return nil end
  return format:unpack(text, at)
end

-- Returns the values of a record as a list with n, a blob as false; nil if the text is no record.
local function record(text)
  local head, at = varint(text, 1)
  if not head or head < at or head > #text then return nil end
  local values, body = { n = 0 }, head + 1
  while at <= head do
    local serial, next_at = varint(text, at)
    if not serial or serial < 0 or next_at > head + 1 then return nil end
    local value, stop = value_of(text, body, serial)
    if not stop then return nil end
    values.n, at, body = values.n + 1, next_at, stop
    values[values.n] = value
  end
  return body == #text + 1 and values or nil
end

-- Returns the record of the cell at a position (nil: it is no record), its rowid if the page
-- belongs to a table, and the bytes of its payload (nil: it cannot be read).
function File:cell(page, at, kind)
  if kind == INNER then at = at + 4 end
  local bytes, rowid
  bytes, at = varint(page, at)
  if bytes and kind == LEAF then rowid, at = varint(page, at) end
  local text = at and self:payload(page, at, bytes, kind)
  local values = text and record(text)
  return values, rowid, text and #text
end

-- Calls each(values, rowid) for every record in pages that are not free; rowid is nil for an index
-- and for a table without rowids. Returns the number of pages that are cut off or hold only zeros.
function File:records(each)
  local free, bad, bytes = self:free(), 0, 0
  for number = 2, self.count do
    local page = not free[number] and self:page(number) or ""
    local kind = page:byte(1)
    local first = (kind == INNER or kind == 5) and 13 or 9
    local cells = #page == SIZE and (">I2"):unpack(page, 4) or 0
    if kind == LEAF or kind == INDEX or kind == INNER then
      for i = 0, math.min(cells, SIZE // 2 - 8) - 1 do
        local values, rowid, size = self:cell(page, (">I2"):unpack(page, first + 2 * i) + 1, kind)
        bytes = bytes + (size or 0)
        if bytes > self.count * SIZE then return bad end -- the file cannot hold more
        if values then each(values, rowid) end
      end
    elseif not free[number] and kind ~= 5 and (#page < SIZE or not page:find "[^\0]") then
      bad = bad + 1
    end
  end
  return bad
end

-- ---- The first page ---------------------------------------------------------------------------

-- Repairs the first page of the file at path in place: takes from model, the first page of a sound
-- store, the header fields that never differ, or the whole page if `whole`.
function salvage.mend_header(path, model, whole)
  local file <close> = assert(io.open(path, "r+b"))
  local head, pages = file:read(100) or "", file:seek "end" // SIZE
  if #head < 100 or whole then head = model:sub(1, 100) end
  local version = (">I4"):unpack(head, 61)
  if version < 1 or version > (">I4"):unpack(model, 61) then version = (">I4"):unpack(model, 61) end
  local counter = head:sub(25, 28)
  head = MAGIC .. model:sub(17, 24) .. counter .. (">I4"):pack(pages) .. ("\0"):rep(8)
    .. head:sub(41, 44) .. model:sub(45, 60) .. (">I4"):pack(version) .. model:sub(65, 92)
    .. counter .. model:sub(97, 100)
  file:seek("set", 0)
  file:write(head, whole and model:sub(101) or "")
end

return salvage
