-- models/files/formats/npy.lua: reads and writes the files of NumPy: .npy with one array, .npz (a
-- zip archive of .npy files) with several by name.
--
-- Entries of a .npz are written uncompressed, as numpy.savez stores them. Those that
-- numpy.savez_compressed writes are expanded into a temporary file, from which they are read. An
-- archive has less than 4 GiB.
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local raw_file = require "toeplab.models.files.formats.raw_file"
local sorted_keys = require "toeplab.base.sorted_keys"

local npy = {}

local MAGIC, MOST = "\x93NUMPY", 1 << 32
local MOST_ENTRIES, MOST_LETTERS = 0xFFFE, 0xFFFF -- in an archive; in the name of an entry
local CHUNK = 1 << 20 -- bytes read at a time for a checksum
local STORED, DEFLATED = 0, 8 -- how an archive holds an entry
local MOST_TIMES = 1032 -- most bytes that one byte of a deflate stream expands to

-- NumPy's names of types -> core.raw_read's.
local types = {
  ["<f4"] = "F32", ["<f8"] = "F64", ["<f2"] = "F16", ["<i4"] = "I32", ["<i8"] = "I64",
  ["<i2"] = "I16", ["|i1"] = "I8", ["<u8"] = "U64", ["<u4"] = "U32", ["<u2"] = "U16",
  ["|u1"] = "U8", ["|b1"] = "BOOL",
}
local descriptions = { float32 = "<f4", int32 = "<i4" }

local bad = raw_file.bad

-- ---- One array ----------------------------------------------------------------------------------

-- Returns the dimensions in a tuple's text such as "3, 4" or "5,".
local function dimensions(path, text)
  local dims = {}
  for word in text:gmatch "[^,]+" do
    local digits = word:match "^%s*(%d+)L?%s*$"
    if digits or word:find "%S" then
      dims[#dims + 1] = math.tointeger(tonumber(digits))
        or bad(path, "the shape (%s) is not a tuple of integers", text)
    end
  end
  return dims
end

-- Returns what the header of the array in the bytes first .. last-1 of an open file says: {kind=
-- (core.raw_read's), dims=, fortran= (whether the first axis varies fastest), offset= (where the
-- elements begin)}. Messages call the array who.
local function read_header(who, file, first, last)
  file:seek("set", first)
  local start = file:read(10) or ""
  if #start < 10 or start:sub(1, 6) ~= MAGIC then bad(who, "is not a .npy file of NumPy") end
  local version, length = start:byte(7), string.unpack("<I2", start, 9)
  local offset = first + 10
  if version > 1 then -- 2 further bytes of the length
    length = length | string.unpack("<I2", (file:read(2) or "") .. "\0\0") << 16
    offset = offset + 2
  end
  if version < 1 or version > 3 then bad(who, "has version %d of .npy, not 1 to 3", version) end
  if offset + length > last then bad(who, "ends within its header") end
  local header = file:read(length) or ""
  local description = header:match "'descr': *'([^']*)'"
  local order, shape = header:match "'fortran_order': *(%a+)", header:match "'shape': *(%b())"
  if not description or order ~= "True" and order ~= "False" or not shape then
    bad(who, "has a header without a plain descr, a fortran_order and a shape: %s",
      core.sys.clean(header:sub(1, 60)))
  end
  local kind, dims = types[description], dimensions(who, shape:sub(2, -2))
  if not kind then bad(who, "elements of NumPy's type '%s' are not supported", description) end
  local bytes = core.raw_bytes(kind) + 0.0
  for _, n in ipairs(dims) do bytes = bytes * n end
  if offset + length + bytes ~= last then
    bad(who, "has %d bytes of elements, but '%s' of shape %s takes %.0f",
      last - offset - length, description, shape, bytes)
  end
  if #dims > 6 then bad(who, "has %d dimensions, but a tensor has at most 6", #dims) end
  return { kind = kind, dims = dims, fortran = order == "True" and #dims > 1,
    offset = offset + length }
end

-- Reads the array with the header about from the file at path; messages call it who.
local function read_array(who, path, about)
  local kind, dims = about.kind, about.dims
  if not about.fortran then return raw_file.elements(path, who, about.offset, kind, dims) end
  if kind:sub(1, 1) ~= "F" then
    bad(who, "holds integers in Fortran order; write it with numpy.ascontiguousarray")
  end
  local back, axes = {}, {} -- the first axis varies fastest
  for i = 1, #dims do back[i], axes[i] = dims[#dims + 1 - i], #dims + 1 - i end
  return raw_file.elements(path, who, about.offset, kind, back):permute(axes)
end

-- Returns the header of the .npy file at path, as read_header.
function npy.header(path)
  local file <close>, size = raw_file.open(path)
  return read_header(path, file, 0, size)
end

-- Returns the array in the .npy file at path as a tensor, float32 or int32.
function npy.read(path) return read_array(path, path, npy.header(path)) end

-- Returns the header of a .npy file.
local function header(t)
  local dims = table.concat(t:shape(), ", ")
  local text = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }"):format(
    descriptions[t:type()], dims, #t:shape() == 1 and "," or "")
  text = text .. (" "):rep(-(#text + 11) % 64) .. "\n"
  return MAGIC .. string.pack("<BBI2", 1, 0, #text) .. text
end

-- Writes the tensor to the .npy file at path, atomically.
function npy.write(path, t) core.raw_write(path, { header(t), t }) end

-- ---- Archives -----------------------------------------------------------------------------------

-- Returns the offset and the bytes of the zip archive's table of contents, and how many entries it
-- lists.
local function contents(path, file, size)
  local from = math.max(0, size - 65557) -- a comment of at most 65535 bytes may follow
  file:seek("set", from)
  local tail = file:read(size - from) or ""
  local at
  for i = #tail - 21, 1, -1 do
    if tail:sub(i, i + 3) == "PK\5\6" then
      at = i
      break
    end
  end
  if not at then bad(path, "is not a .npz file: it has no zip table of contents") end
  local count, bytes, offset = string.unpack("<I2I4I4", tail, at + 10)
  if count == 0xFFFF or offset >= MOST - 1 then
    bad(path, "has 4 GiB or more, which is not supported")
  end
  if offset + bytes > size then bad(path, "is truncated: its table of contents is cut off") end
  file:seek("set", offset)
  return file:read(bytes) or "", count
end

-- Raises unless the bytes first .. last-1 have the checksum. who: the entry.
local function check_sum(who, file, first, last, sum)
  local found = 0
  file:seek("set", first)
  for at = first, last - 1, CHUNK do
    found = core.crc32(file:read(math.min(CHUNK, last - at)) or "", found)
  end
  if found ~= sum then bad(who, "is damaged: its checksum differs") end
end

-- Returns where the elements of an entry begin, after its own header.
local function begin_of(who, file, offset)
  file:seek("set", offset)
  local text = file:read(30) or ""
  if text:sub(1, 4) ~= "PK\3\4" or #text < 30 then bad(who, "has no header") end
  local names, extra = string.unpack("<I2I2", text, 27)
  return offset + 30 + names + extra
end

-- Returns the arrays in the archive at path, in order: {name=, who= (for messages), method=, sum=,
-- first= (where its bytes begin), packed= (their number), bytes= (expanded)}; and the set of their
-- names.
local function entries(path, file, size)
  local list, count = contents(path, file, size)
  local found, names, at, behind = {}, {}, 1, 0
  for i = 1, count do
    if list:sub(at, at + 3) ~= "PK\1\2" or at + 45 > #list then
      bad(path, "has a damaged table of contents")
    end
    local flags, method = string.unpack("<I2I2", list, at + 8)
    local sum, packed, bytes, letters, extra, comment = string.unpack("<I4I4I4I2I2I2", list,
      at + 16)
    local offset = string.unpack("<I4", list, at + 42)
    local name = list:sub(at + 46, at + 45 + letters)
    local who = ("%s: entry '%s'"):format(path, name)
    if method ~= STORED and method ~= DEFLATED or flags & 1 ~= 0 then
      bad(who, "is encrypted or compressed in a way of its own; write the file with numpy.savez")
    end
    if bytes >= MOST - 1 or method == STORED and packed ~= bytes then bad(who, "is too large") end
    if method == DEFLATED and bytes > MOST_TIMES * packed then
      bad(who, "states %d bytes, which its %d compressed ones cannot hold", bytes, packed)
    end
    local first = begin_of(who, file, offset)
    if first + packed > size then bad(who, "is truncated") end
    -- The same bytes could otherwise be read as any number of arrays.
    if offset < behind then bad(who, "lies within another or before it") end
    behind = first + packed
    local short = name:match "^(.*)%.npy$" or bad(who, "is not a .npy file")
    if names[short] then bad(path, "there are two entries '%s'", name) end
    names[short] = true
    found[i] = { name = short, who = who, method = method, sum = sum, first = first,
      packed = packed, bytes = bytes }
    at = at + 46 + letters + extra + comment
  end
  return found, names
end

-- Returns fn(where, about) with the path of the file that holds an entry's array, expanded, until
-- fn returns, and the array's header.
local function with_entry(path, file, e, fn)
  if e.method == STORED then
    check_sum(e.who, file, e.first, e.first + e.bytes, e.sum)
    return fn(path, read_header(e.who, file, e.first, e.first + e.bytes))
  end
  local where = os.tmpname()
  local guard <close> = defer(function() os.remove(where) end)
  local ok, why = pcall(core.inflate, path, e.first, e.packed, where, e.bytes)
  if not ok then raw_file.about(e.who, path, why) end
  local expanded <close> = raw_file.open(where)
  check_sum(e.who, expanded, 0, e.bytes, e.sum)
  return fn(where, read_header(e.who, expanded, 0, e.bytes))
end

-- Returns the set of the names of the arrays in the .npz file at path.
function npy.names(path)
  local file <close>, size = raw_file.open(path)
  return select(2, entries(path, file, size))
end

-- Returns fn(where, about) for the array of a name in the .npz file at path: where is the path of
-- the file that holds its elements until fn returns, about its header (read_header). fn: default
-- returns the array as a tensor.
function npy.with_entry(path, name, fn)
  local file <close>, size = raw_file.open(path)
  for _, e in ipairs((entries(path, file, size))) do
    if e.name == name then
      return with_entry(path, file, e, fn or function(where, about)
        return read_array(e.who, where, about)
      end)
    end
  end
  bad(path, "has no entry '%s.npy'", name)
end

-- Returns {name = tensor} of the .npz file at path.
function npy.read_archive(path)
  local file <close>, size = raw_file.open(path)
  local tensors = {}
  for _, e in ipairs((entries(path, file, size))) do
    tensors[e.name] = with_entry(path, file, e, function(where, about)
      return read_array(e.who, where, about)
    end)
  end
  return tensors
end

-- Writes the tensors {name = tensor} to the .npz file at path, atomically.
function npy.write_archive(path, tensors)
  local parts, list, at, names = {}, {}, 0, sorted_keys(tensors)
  if #names > MOST_ENTRIES then
    bad(path, "would have %d entries, an archive has at most %d", #names, MOST_ENTRIES)
  end
  for i, name in ipairs(names) do
    local t, file = tensors[name], name .. ".npy"
    raw_file.check_text(path, "the name of a tensor", name)
    if #file > MOST_LETTERS then
      bad(path, "a name has %d bytes, in an archive at most %d", #name, MOST_LETTERS - #".npy")
    end
    local start = header(t)
    local bytes = #start + 4 * t:numel()
    local sum = core.crc32(t, core.crc32(start))
    -- version 2.0, names in UTF-8, stored, the date 1980-01-01 00:00, checksum, sizes, name
    local about = string.pack("<I2I2I2I2I2I4I4I4I2I2", 20, 0x800, 0, 0, 0x21, sum, bytes & MOST - 1,
      bytes & MOST - 1, #file, 0)
    parts[3 * i - 2], parts[3 * i - 1], parts[3 * i] = "PK\3\4" .. about .. file, start, t
    list[i] = "PK\1\2" .. string.pack("<I2", 20) .. about
      .. string.pack("<I2I2I2I4I4", 0, 0, 0, 0, at & MOST - 1) .. file
    at = at + 30 + #file + bytes
  end
  if at >= MOST - 1 then bad(path, "would have %d bytes, an archive has less than 4 GiB", at) end
  local all = table.concat(list)
  parts[#parts + 1] = all .. "PK\5\6"
    .. string.pack("<I2I2I2I2I4I4I2", 0, 0, #list, #list, #all, at, 0)
  core.raw_write(path, parts)
end

return npy
