-- models/files/formats/safetensors.lua: reads and writes safetensors files, in which PyTorch users
-- exchange weights: 8 bytes with the length of a header, a header in JSON {name: {dtype, shape,
-- data_offsets}}, and the elements of all tensors.
--
-- Files come from strangers: a file is read only if its header describes every byte of it exactly
-- once. core/store/raw.c reads and writes the elements.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local raw_file = require "toeplab.models.files.formats.raw_file"
local sorted_keys = require "toeplab.base.sorted_keys"

local safetensors = {}

local MOST = 100000000 -- the format's limit of a header, in bytes
local METADATA = "__metadata__"
local MOST_DIMS = 6
local SHOWN = 8 -- names of tensors in a warning

local bad = raw_file.bad

-- ---- Reading ------------------------------------------------------------------------------------

-- Returns the text of the header and the number of bytes after it.
local function header_text(path)
  local file <close>, size = raw_file.open(path)
  file:seek "set"
  local first = file:read(8) or ""
  if #first < 8 then
    bad(path, "has %d bytes, which is too short for a safetensors file", size)
  end
  local length = string.unpack("<I8", first)
  if length < 0 or length > MOST then
    bad(path, "is not a safetensors file: its header would have %s bytes, the format allows %d",
      ("%u"):format(length), MOST)
  end
  if length > size - 8 then
    bad(path, "the header has %d bytes, but only %d follow its length", length, size - 8)
  end
  local text = file:read(length) or ""
  if text:sub(1, 1) ~= "{" then bad(path, "the header does not begin with '{'") end
  if not utf8.len(text) then bad(path, "the header is not UTF-8 text") end
  return text, size - 8 - length, 8 + length
end

-- Returns whether list is an array of integers of at least 0, `count` of them if given.
local function integers(list, count)
  if type(list) ~= "table" then return false end
  local found = 0
  for key, v in pairs(list) do
    found = found + 1
    if math.type(key) ~= "integer" or math.type(v) ~= "integer" or v < 0 then return false end
  end
  if found == 0 and list ~= json.none then return false end -- an object
  return found == #list and (not count or found == count)
end

-- Returns {name=, type=, shape=, first=, last=, unread=} of an entry of the header; last is one
-- past the end, unread the reason why no tensor can hold it (nil: one can).
local function entry(path, name, about)
  local function wrong(format, ...) bad(path, "tensor '%s' %s", name, format:format(...)) end
  if type(about) ~= "table" then wrong "is not described by an object" end
  if type(about.dtype) ~= "string" then wrong "has no dtype" end
  local size, unread = core.raw_bytes(about.dtype), nil
  if not integers(about.shape) then wrong "has a shape that is not a list of integers" end
  if not integers(about.data_offsets, 2) then wrong "has no data_offsets [begin, end]" end
  local first, last = about.data_offsets[1], about.data_offsets[2]
  local bytes, shown = (size or 0) + 0.0, table.concat(about.shape, ",")
  for _, n in ipairs(about.shape) do bytes = bytes * n end
  if first > last then wrong("begins at byte %d and ends at %d", first, last) end
  if size and last - first ~= bytes then
    wrong("has %d bytes, but %s of shape [%s] takes %.0f", last - first, about.dtype, shown, bytes)
  end
  if not size then unread = about.dtype
  elseif #about.shape > MOST_DIMS then unread = #about.shape .. " dimensions" end
  return { name = name, type = about.dtype, shape = about.shape, first = first, last = last,
    unread = unread }
end

-- Raises unless the tensors, in the order of their offsets, cover the data without gap or overlap.
local function check_cover(path, list, size)
  local at, before = 0, nil
  for _, e in ipairs(list) do
    if e.first < at then
      bad(path, "tensors '%s' and '%s' overlap in the bytes %d to %d", before, e.name, e.first,
        math.min(at, e.last) - 1)
    elseif e.first > at then
      bad(path, "the bytes %d to %d before tensor '%s' belong to no tensor", at, e.first - 1,
        e.name)
    end
    at, before = e.last, e.name
  end
  if at > size then bad(path, "the tensors take %d bytes, but only %d follow the header", at, size)
  elseif at < size then bad(path, "%d bytes after the last tensor belong to none", size - at) end
end

local function check_metadata(path, metadata)
  if type(metadata) ~= "table" or metadata == json.none then
    bad(path, "%s is not an object", METADATA)
  end
  for key, text in pairs(metadata) do
    if type(key) ~= "string" or type(text) ~= "string" then
      bad(path, "%s holds a %s, the format allows strings only", METADATA, type(text))
    end
  end
  return metadata
end

-- Returns the entries of the header in the order of their offsets, the metadata {key = text}, and
-- the offset of the data. Reads only the header.
function safetensors.header(path)
  local text, size, offset = header_text(path)
  local ok, header = pcall(json.decode, text, false, json.none)
  if not ok then
    bad(path, "the header is not valid JSON: %s", errors.text(header):match "^[^\n]*")
  end
  local metadata, list = {}, {}
  for _, name in ipairs(sorted_keys(header)) do
    if name == METADATA then
      metadata = check_metadata(path, header[name])
    else
      list[#list + 1] = entry(path, name, header[name])
    end
  end
  table.sort(list, function(a, b)
    if a.first ~= b.first then return a.first < b.first end
    if a.last ~= b.last then return a.last < b.last end
    return a.name < b.name
  end)
  check_cover(path, list, size)
  return list, metadata, offset
end

-- Returns the tensors {name = tensor} of the file at path, float32 or int32, and its metadata.
-- Leaves out, with a warning, those that no tensor can hold, such as complex ones.
function safetensors.read(path)
  local list, metadata, offset = safetensors.header(path)
  local tensors, unread = {}, {}
  for _, e in ipairs(list) do
    if e.unread then unread[#unread + 1] = ("'%s' (%s)"):format(e.name, e.unread)
    else
      local who = ("%s: tensor '%s'"):format(path, e.name)
      tensors[e.name] = raw_file.elements(path, who, offset + e.first, e.type, e.shape)
    end
  end
  if #unread > 0 then
    errors.say("warning: %s: left out, because no tensor can hold them: %s%s", path,
      table.concat(unread, ", ", 1, math.min(#unread, SHOWN)), #unread > SHOWN and ", ..." or "")
  end
  return tensors, metadata
end

-- ---- Writing ------------------------------------------------------------------------------------

local function metadata_json(path, metadata)
  for key, text in pairs(metadata) do
    raw_file.check_text(path, "a key of the metadata", key)
    raw_file.check_text(path, ("the metadata '%s'"):format(key), text)
  end
  return json.encode(metadata)
end

-- Returns the tensors as {name=, tensor=, type=, size=}, those of 4 bytes an element first, so that
-- all are aligned.
local function in_order(path, tensors, bf16)
  local list = {}
  for name, t in pairs(tensors) do
    raw_file.check_text(path, "the name of a tensor", name)
    if name == METADATA then bad(path, "a tensor cannot be called %s", METADATA) end
    local real = t:type() == "float32"
    local low = real and bf16
    list[#list + 1] = { name = name, tensor = t, size = low and 2 or 4,
      type = low and "BF16" or real and "F32" or "I32" }
  end
  table.sort(list, function(a, b)
    if a.size ~= b.size then return a.size > b.size end
    return a.name < b.name
  end)
  return list
end

-- Writes the tensors {name = tensor} to the file at path, atomically. options: metadata {key =
-- text}; bf16, which rounds float32 to bfloat16, half the size.
function safetensors.write(path, tensors, options)
  local o = options or {}
  local list, entries, at = in_order(path, tensors, o.bf16), {}, 0
  if o.metadata and next(o.metadata) then
    entries[1] = ('"%s":%s'):format(METADATA, metadata_json(path, o.metadata))
  end
  local parts = { "" }
  for i, e in ipairs(list) do
    local last = at + e.size * e.tensor:numel()
    entries[#entries + 1] = ('%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(
      json.encode(e.name), e.type, table.concat(e.tensor:shape(), ","), at, last)
    parts[i + 1] = e.type == "BF16" and { e.tensor } or e.tensor
    at = last
  end
  local header = "{" .. table.concat(entries, ",") .. "}"
  header = header .. (" "):rep(-#header % 8)
  if #header > MOST then bad(path, "the header would have %d bytes", #header) end
  parts[1] = string.pack("<I8", #header) .. header
  core.raw_write(path, parts)
end

return safetensors
