-- test_tensor_files.lua: tl.load and tl.save. Files of other programs are written here byte by
-- byte, as safetensors and NumPy write them.
local core = require "toeplab.core"
local t = require "harness"
local tl = require "toeplab"
local zip = require "zip"

local folder

local function path(name) return folder .. "/" .. name end

local function write(name, text)
  t.write(path(name), text)
  return path(name)
end

local function read(name) return t.read(path(name)) end

-- A test with an empty folder of its own.
local function test(name, fn)
  t.test(name, function()
    t.in_folder(function(new)
      folder = new
      fn()
    end)
  end)
end

local function some()
  return { ["layers.0.weight"] = tl.tensor { { 1, -2, 0.1 }, { 4, 5, 6 } },
    ids = tl.ids { 1, -2147483648, 2147483647 }, none = tl.zeros(0, 3), one = tl.full({}, 3.5),
    ["d\u{e9}j\u{e0} \"x\"\n"] = tl.ones(1, 2, 1) }
end

local function compare(got, want)
  for name, x in pairs(want) do
    t.eq(got[name]:shape(), x:shape())
    t.eq(got[name]:type(), x:type())
    t.eq(got[name], x)
  end
  for name in pairs(got) do t.ok(want[name], "an entry more: " .. name) end
end

-- ---- Round trips --------------------------------------------------------------------------------

for _, kind in ipairs { "safetensors", "npz" } do
  test(kind .. ": what goes in comes out, in the same bytes each time", function()
    tl.save(path("a." .. kind), some())
    compare(tl.load(path("a." .. kind)), some())
    tl.save(path("b." .. kind), some())
    t.eq(read("a." .. kind) == read("b." .. kind), true)
  end)
end

test("npy and h5: a round trip", function()
  for name, x in pairs(some()) do
    tl.save(path "x.npy", x)
    compare({ [name] = tl.load(path "x.npy") }, { [name] = x })
  end
  tl.save(path "x.h5", { model = { a = tl.ones(2) }, step = 3 })
  local state = tl.load(path "x.h5")
  t.eq(state.step, 3)
  t.eq(state.model.a, { 1, 1 })
end)

test("safetensors: metadata, and bf16 rounded to nearest even", function()
  local nan = 0 / 0
  local x = tl.tensor { 1, 1.00390625, 1.01171875, 1e-40, -nan, 3.4e38 }
  tl.save(path "low.safetensors", { x = x, ids = tl.ids { 7 } },
    { bf16 = true, metadata = { format = "pt", note = "\u{e9}" } })
  local got, metadata = tl.load(path "low.safetensors")
  t.eq(metadata, { format = "pt", note = "\u{e9}" })
  local low = got.x:totable()
  t.eq({ low[1], low[2], low[3], low[6] }, { 1, 1, 1.015625, math.huge })
  t.ok(low[5] ~= low[5], "a NaN stays one")
  t.eq(got.ids, { 7 })
  t.eq(got.ids:type(), "int32")
end)

-- ---- Types --------------------------------------------------------------------------------------

local types = { -- type, NumPy's, string.pack's, numbers, and what the tensor holds
  { "F64", "<f8", "<d", { 1, -0.5, 1e-300, -math.huge }, { 1, -0.5, 0, -math.huge } },
  { "F16", "<f2", "<I2", { 0x3C00, 0xC000, 0x0001, 0x7C00 }, { 1, -2, 2.0 ^ -24, math.huge } },
  { "BF16", nil, "<I2", { 0x3F80, 0xC000 }, { 1, -2 } },
  { "F8_E4M3", nil, "<I1", { 0x38, 0xC0, 0x01, 0x0F, 0x7E }, { 1, -2, 2.0 ^ -9, 15 / 512, 448 } },
  { "F8_E5M2", nil, "<I1", { 0x3C, 0xC0, 0x01, 0x7C }, { 1, -2, 2.0 ^ -16, math.huge } },
  { "I64", "<i8", "<i8", { 5, -7, -2147483648 }, { 5, -7, -2147483648 } },
  { "I16", "<i2", "<i2", { 5, -7 }, { 5, -7 } }, { "I8", "|i1", "<i1", { 5, -7 }, { 5, -7 } },
  { "U64", "<u8", "<I8", { 5, 2147483647 }, { 5, 2147483647 } },
  { "U32", "<u4", "<I4", { 5 }, { 5 } }, { "U16", "<u2", "<I2", { 5, 65535 }, { 5, 65535 } },
  { "U8", "|u1", "<I1", { 5, 255 }, { 5, 255 } }, { "BOOL", "|b1", "<I1", { 1, 0 }, { 1, 0 } },
}

local function packed(form, numbers)
  local parts = {}
  for i, v in ipairs(numbers) do parts[i] = form:pack(v) end
  return table.concat(parts)
end

-- A safetensors file with this header and these bytes of elements.
local function tensors(header, data) return string.pack("<s8", header) .. (data or "") end

local function one(kind, shape, bytes)
  return ('{"x":{"dtype":"%s","shape":[%s],"data_offsets":[0,%d]}}'):format(kind, shape, bytes)
end

local function array(description, shape, data)
  local text = ("{'descr': %s, 'fortran_order': False, 'shape': (%s)}\n"):format(description, shape)
  return "\x93NUMPY\1\0" .. string.pack("<s2", text) .. data
end

test("reads every type", function()
  for _, case in ipairs(types) do
    local kind, numpy, form, numbers, want = table.unpack(case)
    local data, real = packed(form, numbers), kind:find "F" ~= nil
    local x = tl.load(write("t.safetensors", tensors(one(kind, #numbers, #data), data))).x
    t.eq(x:type(), real and "float32" or "int32")
    t.eq(x, want)
    if numpy then
      t.eq(tl.load(write("t.npy", array("'" .. numpy .. "'", #numbers .. ",", data))), want)
    end
  end
end)

test("an element that the tensor cannot hold is an error", function()
  local long, large = "an integer of more than 32 bits", "a number too large for float32"
  for _, case in ipairs { { "I64", "<i8", 1 << 31, long }, { "I64", "<i8", -(1 << 31) - 1, long },
    { "U32", "<I4", 1 << 31, long }, { "U64", "<I8", -1, long }, { "F64", "<d", 1e300, large },
    { "F64", "<d", -3.5e38, large }, { "BOOL", "<B", 159, "a boolean other than 0 and 1" } } do
    local data = packed(case[2], { 0, case[3] })
    t.raises(tl.load, "/t.safetensors: tensor 'x': element 2 is " .. case[4],
      write("t.safetensors", tensors(one(case[1], 2, #data), data)))
  end
end)

test("safetensors: leaves out unsupported tensors with a warning", function()
  local unread = { { "C64", "1", 8, "C64" }, { "F4", "2", 1, "F4" },
    { "F8_E8M0", "3", 3, "F8_E8M0" }, { "F32\\u0000", "1", 4, "F32\\x00" },
    { "F32", "1,1,1,1,1,1,1", 4, "7 dimensions" } }
  for _, case in ipairs(unread) do
    local header = ('{"b":{"dtype":"%s","shape":[%s],"data_offsets":[4,%d]},'):format(case[1],
      case[2], 4 + case[3]) .. one("F32", 1, 4):sub(2)
    write("t.safetensors", tensors(header, "\0\0\x80\x3f" .. ("x"):rep(case[3])))
    local code = 'for k, x in pairs(tl.load "t.safetensors") do print(k, x:item()) end'
    local said, status = t.shell(([[cd '%s' && '%s' lua -e 'local tl = require "toeplab"
      %s' 2>&1]]):format(folder, core.sys.executable(), code))
    t.eq(status, 0)
    t.holds(said, "x\t1", ("because no tensor can hold them: 'b' (%s)\n"):format(case[4]))
    t.eq(said:find("b\t", 1, true), nil)
  end
end)

test("safetensors: names in the escapes of other JSON writers", function()
  local name = one("F32", 1, 4):gsub('"x"', '"\\ud83d\\ude00\\u00e9\\ud83d"')
  local got = tl.load(write("t.safetensors", tensors(name, "1234")))
  t.ok(got["\u{1f600}\u{e9}\u{fffd}"], next(got))
end)

test("npy: arrays in Fortran order, and headers of version 2", function()
  local text = "{'descr': '%s', 'fortran_order': True, 'shape': (2, 3), }\n"
  local function file(kind, form)
    local data = packed(form, { 1, 4, 2, 5, 3, 6 })
    return write("t.npy", "\x93NUMPY\2\0" .. string.pack("<s4", text:format(kind)) .. data)
  end
  t.eq(tl.load(file("<f4", "<f")), { { 1, 2, 3 }, { 4, 5, 6 } })
  t.raises(tl.load, "write it with numpy.ascontiguousarray", file("<i4", "<i4"))
end)

-- ---- Damaged files ------------------------------------------------------------------------------

local a, b = '"a":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}',
  '"b":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}'

local function two(a1, a2, b1, b2)
  return "{" .. a:format(a1, a2) .. "," .. b:format(b1, b2) .. "}"
end

local damaged = { -- what, bytes, message
  { "empty", "", "has 0 bytes" },
  { "a header beyond the file", string.pack("<I8", 99) .. "{}", "has 99 bytes, but only 2 follow" },
  { "a giant header", string.pack("<I8", 1 << 40), "would have 1099511627776 bytes" },
  { "a negative header", string.pack("<i8", -1), "would have 18446744073709551615 bytes" },
  { "no object", tensors "[]", "does not begin with '{'" },
  { "no JSON", tensors '{"a":}', "not valid JSON: line 1: expected a value" },
  { "nested", tensors('{"a":' .. ("["):rep(300000)), "not valid JSON" },
  { "a key twice", tensors('{"a":1,"a":2}'), "a key that is not there yet" },
  { "null", tensors '{"a":null}', "tensor 'a' is not described by an object" },
  { "a dtype that turns back", tensors('{"a":{"dtype":"C64","shape":[],"data_offsets":[4,0]}}'),
    "begins at byte 4 and ends at 0" },
  { "a dtype beyond the file", tensors(one("C64", 1, 8), "1234"), "take 8 bytes, but only 4" },
  { "no dtype", tensors('{"a":{"shape":[],"data_offsets":[0,4]}}', "1234"), "has no dtype" },
  { "a list as dtype", tensors('{"a":{"dtype":["F32"],"shape":[],"data_offsets":[0,4]}}', "1234"),
    "tensor 'a' has no dtype" },
  { "none of many", tensors(one("F32", "0,4611686018427387904", 0)), "multiply to more than 2^60" },
  { "a comma too many", tensors(one("F32", "1,", 4), "1234"), "expected a value behind the comma" },
  { "a name with %", tensors '{"%d%s":[]}', "tensor '%%d%%s' has no dtype" },
  { "a shape", tensors(one("F32", "1.5", 4), "1234"), "shape that is not a list" },
  { "a negative shape", tensors(one("F32", "-1", 4), "1234"), "shape that is not a list" },
  { "a hexadecimal shape", tensors(one("F32", "0x1", 4), "1234"), "not valid JSON" },
  { "a huge shape", tensors(one("F32", "4294967296,4294967296", 0)),
    "of shape .* takes 7378697629" },
  { "a product", tensors(one("F32", "2", 4), "1234"),
    "has 4 bytes, but F32 of shape %[2%] takes 8" },
  { "offsets", tensors('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}'), "no data_offsets" },
  { "offsets that turn back", tensors(two(4, 0, 0, 4), "1234"), "begins at byte 4 and ends at 0" },
  { "an overlap", tensors(two(0, 4, 2, 6), "123456"), "'a' and 'b' overlap in the bytes 2 to 3" },
  { "a gap", tensors(two(0, 4, 8, 12), "123456789012"), "bytes 4 to 7 before tensor 'b'" },
  { "a gap first", tensors(two(8, 12, 4, 8), "123456789012"), "bytes 0 to 3 before tensor 'b'" },
  { "too short", tensors(two(0, 4, 4, 8), "1234567"), "take 8 bytes, but only 7 follow" },
  { "too long", tensors(two(0, 4, 4, 8), "123456789"), "1 bytes after the last tensor" },
  { "metadata", tensors '{"__metadata__":{"a":1}}', "__metadata__ holds a number" },
  { "no metadata", tensors '{"__metadata__":"a"}', "__metadata__ is not an object" },
  { "a list of metadata", tensors '{"__metadata__":[]}', "__metadata__ is not an object" },
  { "an object as shape", tensors('{"a":{"dtype":"F32","shape":{},"data_offsets":[0,4]}}', "1234"),
    "shape that is not a list" },
  { "no UTF-8", tensors '{"\xff":1}', "the header is not UTF%-8 text" },
}

test("a damaged safetensors file is one clear error", function()
  for _, case in ipairs(damaged) do
    local file = write("bad.safetensors", case[2])
    local ok, why = pcall(tl.load, file)
    t.ok(not ok and tostring(why):find(case[3]), case[1] .. ": " .. tostring(why))
    t.ok(tostring(why):find(file, 1, true), case[1] .. " names the file")
  end
end)

local f4 = "\0\0\x80\x3f"
local arrays = {
  { "empty", "", "is not a .npy file" }, { "text", ("x"):rep(99), "is not a .npy file" },
  { "a header beyond the file", "\x93NUMPY\1\0\xff\xff{", "ends within its header" },
  { "version 9", "\x93NUMPY\9\0\0\0", "has version 9" },
  { "a record", array("[('a', '<f4')]", "1,", f4), "without a plain descr" },
  { "big-endian", array("'>f4'", "1,", f4), "NumPy's type '>f4' are not supported" },
  { "objects", array("'|O'", "1,", f4), "NumPy's type '|O' are not supported" },
  { "a shape", array("'<f4'", "-1,", f4), "not a tuple of integers" },
  { "a shape without commas", array("'<f4'", "1 1", f4), "the shape %(1 1%) is not a tuple" },
  { "none of many", array("'<f4'", "0, 4611686018427387904", ""), "multiply to more than 2^60" },
  { "no order", (array("'<f4'", "1,", f4):gsub("False", "Maybe")), "without a plain descr" },
  { "too short", array("'<f4'", "2,", f4), "has 4 bytes of elements, .* takes 8" },
  { "too long", array("'<f4'", "", f4 .. "x"), "has 5 bytes of elements, .* takes 4" },
}

test("an HDF5 file with two values of one name, or below one, is one clear error", function()
  for attribute, message in pairs { a = "'/a/b' is below a value",
    ["a/b"] = "'/a/b' is there twice", ["a/b/c"] = "is there twice" } do
    local file = path "both.h5"
    core.h5_write(file, { { "a/b", tl.ones(2) } }, { [attribute] = 1.5 })
    local ok, why = pcall(tl.load, file)
    t.ok(not ok and tostring(why):find(message, 1, true), attribute .. ": " .. tostring(why))
    t.ok(tostring(why):find(file, 1, true), attribute .. " names the file")
  end
end)

test("a damaged npy file is one clear error", function()
  for _, case in ipairs(arrays) do
    local ok, why = pcall(tl.load, write("bad.npy", case[2]))
    t.ok(not ok and tostring(why):find(case[3]), case[1] .. ": " .. tostring(why))
    t.ok(tostring(why):find("^" .. path "bad.npy" .. ": "), case[1] .. " names the file")
  end
end)

-- What zlib makes, at level 9, of zip.npy("<f4", { 3, 1000 }, ...) with the numbers i % 7.
local stream = ([[edc9310a02311085e1d87a8a74a39022b2562298ca6ec5c6c26a096e160b7125b19385
bd8317f0281ecdd14358fdc3bc8179df7377a8f7c78909e6216d2aa72c2b2beb6e29ce4ad7e77b8ed7a6cf6dfaf6db78
2949fb728eb7a4ffac7276e1bd77736787a9f9cdb8d1137435a3e6a579070cc3300cc3300cc3300cc3300cc3300cc330
0cc3300cc3300cc3300cc3300cc3300cfb977d00]]):gsub("%s", ""):gsub("%x%x", function(digits)
  return string.char(tonumber(digits, 16))
end)

test("a compressed npz file, and one whose compressed bytes are damaged", function()
  local list = {}
  for i = 0, 2999 do list[i + 1] = string.pack("<f", i % 7) end
  local bytes = zip.npy("<f4", { 3, 1000 }, table.concat(list))
  local ones = zip.npy("<i4", { 1 }, "\1\0\0\0")
  local function load(entry, compressed)
    zip.write(path "c.npz", { { "one", ones, zip.blocks(ones) }, { "x", entry, compressed } })
    return tl.load(path "c.npz")
  end
  local got = load(bytes, stream)
  t.eq(got.one, { 1 })
  t.eq(got.x:shape(), { 3, 1000 })
  for i, value in ipairs(got.x:reshape(-1):totable()) do t.eq(value, (i - 1) % 7) end
  local place = path "c.npz" .. ": entry 'x': "
  for _, case in ipairs { { bytes, stream:sub(1, -9), "its compressed bytes end early" },
    { bytes, "\0" .. stream, "compressed bytes are no deflate stream" },
    { bytes .. "a", stream, "expands to fewer bytes than it states" },
    { bytes:sub(1, -2), stream, "expands to more bytes than it states" },
    { ("a"):rep(#bytes), stream, "is damaged: its checksum differs" },
    { ("a"):rep(1e6), stream, "states 1000000 bytes, which its 151 compressed ones cannot hold" },
  } do
    local ok, why = pcall(load, case[1], case[2])
    t.ok(not ok and tostring(why):find(case[3], 1, true), case[3] .. ": " .. tostring(why))
    t.ok(tostring(why):find((place:gsub("'x'", "'x.npy'")), 1, true), tostring(why))
  end
end)

test("inflate refuses negative numbers", function()
  for _, n in ipairs { { -1, 4, 4 }, { 0, -4, 4 }, { 0, 4, -4 } } do
    local ok, why = pcall(core.inflate, path "c.npz", n[1], n[2], path "out", n[3])
    t.ok(not ok and tostring(why):find("none may be negative", 1, true), tostring(why))
    t.eq(core.sys.exists(path "out"), false)
  end
end)

test("a damaged npz file is one clear error", function()
  tl.save(path "good.npz", { first = tl.ones(3), other = tl.ids { 1 } })
  local good = read "good.npz"
  local at = good:find("\0\0\x80\x3f", 1, true)
  local list = good:find("PK\1\2", 1, true) -- the first entry of the table of contents
  local second = good:find("PK\1\2", list + 4, true)
  local twice = good:sub(list, second - 1) -- two names of one entry
  local overlap = good:sub(1, list - 1) .. twice .. twice:gsub("first", "third") .. "PK\5\6"
    .. string.pack("<I2I2I2I2I4I4I2", 0, 0, 2, 2, 2 * #twice, list - 1, 0)
  local cases = {
    { "entries that overlap", overlap, "entry 'third.npy': lies within another" },
    { "no archive", "x", "is not a .npz file" }, { "cut", good:sub(1, -5), "is not a .npz file" },
    { "cut in front", good:sub(200), "is truncated" },
    { "a bit", good:sub(1, at) .. "\1" .. good:sub(at + 2), "entry 'first.npy': is damaged" },
    { "another compression", good:sub(1, list + 9) .. "\9" .. good:sub(list + 11),
      "entry 'first.npy': is encrypted or compressed .*write the file with numpy.savez" },
    { "bytes that are not compressed", good:sub(1, list + 9) .. "\8" .. good:sub(list + 11),
      "entry 'first.npy': expands to fewer bytes than it states" },
    { "another file", (good:gsub("first%.npy", "first.txt")), "'first.txt': is not a .npy file" },
    { "a name twice", (good:gsub("other", "first")), "two entries 'first.npy'" },
    { "no table", good:sub(1, list) .. "X" .. good:sub(list + 2), "damaged table of contents" },
    { "no entry", "XX" .. good:sub(3), "entry 'first.npy': has no header" },
  }
  for _, case in ipairs(cases) do
    local ok, why = pcall(tl.load, write("bad.npz", case[2]))
    t.ok(not ok and tostring(why):find(case[3]), case[1] .. ": " .. tostring(why))
  end
end)

test("what cannot be written or found is an error", function()
  t.raises(tl.load, "must end in", path "x.txt")
  t.raises(tl.load, "there is no such file", path "absent.safetensors")
  t.raises(tl.load, "there is no such file", path "absent.npy")
  t.raises(tl.load, "^" .. path "absent.h5" .. ": there is no such file", path "absent.h5")
  assert(core.sys.mkdir(path "folder.npz"))
  t.raises(tl.load, "folder.npz: is not a plain file", path "folder.npz")
  t.raises(tl.save, "/none/: opening this folder failed: No such file", path "none/x.npz", {})
  t.raises(tl.save, "has the number 1 for a name", path "x.npz", { tl.ones(1) })
  t.raises(tl.save, "is not UTF%-8", path "x.npz", { ["\xff"] = tl.ones(1) })
  t.raises(tl.save, "a name has 70000 bytes, in an archive at most 65531", path "x.npz",
    { [("a"):rep(70000)] = tl.ones(1) })
  t.raises(tl.save, "the metadata 'a' is a number, not text", path "x.safetensors", {},
    { metadata = { a = 1 } })
  t.raises(tl.save, "holds one tensor, not a table", path "x.npy", {})
  t.raises(tl.save, "'a' is a number, not a tensor", path "x.npz", { a = 1 })
  t.raises(tl.save, "require .safetensors", path "x.npz", {}, { bf16 = true })
  t.raises(tl.save, "did you mean", path "x.safetensors", {}, { bf15 = true })
  t.raises(tl.save, "is not UTF%-8", path "x.safetensors", { ["\xff"] = tl.ones(1) })
  t.raises(tl.save, "cannot be called", path "x.safetensors", { __metadata__ = tl.ones(1) })
  t.raises(tl.save, "is not UTF%-8", path "x.safetensors", {}, { metadata = { a = "\xff" } })
  t.eq(core.sys.kind(path "x.safetensors"), nil)
end)

t.done()
