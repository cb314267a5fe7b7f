-- symbols.lua -- libtoeplab and libtoeplab-lab export the functions that their public headers
-- declare, and no others; what private headers mark as TL_PRIVATE has a version of its own. The
-- static library defines the names of both kinds.
-- toeplab lua tests/program/symbols.lua FOLDER LIBTOEPLAB LIBTOEPLAB_LAB STATIC NM [PLUGIN ...]
-- STATIC is none where the build has no static library.
-- A plugin is a backend, a device or a module of Lua; it exports the entry by which it is loaded.
local ROOT, ENGINE, LAB, STATIC, NM = table.unpack(arg, 1, 5)

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  assert(pipe:close(), command .. " failed")
  return text
end

local function quoted(path) return "'" .. path:gsub("'", "'\\''") .. "'" end

local function read(path)
  local file <close> = assert(io.open(path))
  return file:read "a"
end

-- The functions that a header declares: the name before the first parenthesis of a statement. With
-- mark, only those marked by it.
local function declared(text, mark)
  local names = {}
  local code = ("\n" .. text):gsub("/%*.-%*/", ""):gsub("\n#[^\n]*", "\n")
    :gsub("\n%u[%u_]*%b()\n", "\n") -- a list that a macro expands
  code = code:gsub('extern "C" {', ""):gsub("%b{}", "{}")
  for statement in code:gmatch "[^;]+" do
    local before, name = statement:match "^([^(]-)(tl_%w+[%w_]*)%s*%("
    if name and not before:find "typedef" and (not mark or before:find(mark, 1, true)) then
      names[name] = true
    end
  end
  return names
end

local function add(names, more)
  for name in pairs(more) do names[name] = true end
end

-- version -> the names that a library exports in it.
local function exported(library)
  local versions = {}
  for line in output(quoted(NM) .. " -D --defined-only " .. quoted(library)):gmatch "[^\n]+" do
    local kind, name, version = line:match "^%x* *(%a) ([^@]+)@*(%S*)$"
    if kind ~= "A" then -- the versions themselves
      versions[version] = versions[version] or {}
      versions[version][name] = true
    end
  end
  return versions
end

-- Says which names are in one set only.
local function difference(got, wanted)
  local lines = {}
  for name in pairs(got) do
    if not wanted[name] then lines[#lines + 1] = "exported, but not declared: " .. name end
  end
  for name in pairs(wanted) do
    if not got[name] then lines[#lines + 1] = "declared, but not exported: " .. name end
  end
  table.sort(lines)
  return lines
end

local passed, failed = 0, 0
local function test(name, lines)
  passed, failed = passed + (#lines == 0 and 1 or 0), failed + (#lines == 0 and 0 or 1)
  print((#lines == 0 and "ok " or "not ok ") .. name)
  for _, line in ipairs(lines) do print("  " .. line) end
end

local public, private = {}, {}
for _, name in ipairs { "status", "backend", "toeplab" } do
  add(public, declared(read(ROOT .. "/core/" .. name .. ".h")))
end
for path in output("ls " .. quoted(ROOT) .. "/core/*/*.h"):gmatch "[^\n]+" do
  add(private, declared(read(path), "TL_PRIVATE"))
end

local found, versions = {}, 0
for _, library in ipairs { ENGINE, LAB } do
  for version, names in pairs(exported(library)) do
    versions = versions + 1
    found[version:match "^TOEPLAB_%u+_" or version:match "^TOEPLAB_%d+" or "none"] = names
  end
end
test("libtoeplab exports what toeplab.h declares", difference(found.TOEPLAB_0 or {}, public))
test("and privately what is marked as TL_PRIVATE",
  difference(found.TOEPLAB_PRIVATE_ or {}, private))
test("libtoeplab-lab exports what toeplab-lab.h declares",
  difference(found.TOEPLAB_LAB_ or {}, declared(read(ROOT .. "/core/toeplab-lab.h"))))
if STATIC ~= "none" then
  local both, names = {}, {}
  add(both, public)
  add(both, private)
  for line in output(quoted(NM) .. " -g --defined-only " .. quoted(STATIC)):gmatch "[^\n]+" do
    local name = line:match "^%x+ %a (%S+)$"
    if name then names[name] = true end
  end
  test("libtoeplab.a defines both and hides the rest", difference(names, both))
end
test("they have these versions alone", versions == 3 and {} or { versions .. " versions" })

local entries, others = {}, {}
for i = 6, #arg do
  for _, names in pairs(exported(arg[i])) do
    for name in pairs(names) do
      -- Templates of C++'s library are weak, and the address sanitiser marks each variable.
      local added = name:find "^_ZN?K?St" or name:find "^__odr_asan%."
      if name:find "^tl_[%w_]*entry$" or name:find "^luaopen_" then entries[arg[i]] = true
      elseif not added then others[#others + 1] = ("%s: %s"):format(arg[i], name) end
    end
  end
  if not entries[arg[i]] then others[#others + 1] = arg[i] .. ": no entry" end
end
test("each plugin exports its entry alone", #arg > 5 and others or { "there is none" })

-- The comparison itself.
local header = [[
#define X tl_x()
/* tl_no(); */
TL_API int tl_a(int x);
TL_API void *tl_c(int (*f)(void));]]
local sins = difference({ tl_a = true, store_b = true }, declared(header))
test("a name too many and one too few are found",
  table.concat(sins, "|") == "declared, but not exported: tl_c|exported, but not declared: store_b"
  and {} or sins)

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and passed == (STATIC == "none" and 6 or 7) and 0 or 1)
