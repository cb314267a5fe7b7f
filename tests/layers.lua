-- layers.lua -- the rooms of the house, the direction through them, and style that can be checked.
-- toeplab lua tests/layers.lua [FOLDER [order]]: checks the tree, then itself on planted faults. It
-- prints the rooms of core, each with those that it uses and after them; order: also the files of
-- core/engine in such an order.

local ROOT = arg[1] or arg[0]:match("^(.*)/tests/[^/]*$") or "."
local MAX = { columns = 100, lines = 500, body = 60, files = 25 }
-- Files with more lines and folders with more files than that, each with the reason for which it
-- stays whole: a number alone is no reason to cut what a reader would not.
local WHOLE = {
  ["core/toeplab.h"] = "users read the public interface from one file",
  ["tests/layers.lua"] = "the rules and the planted faults that prove them are read together",
}

-- ---- What each room may use ----

local may_include = { -- header -> the only files that may include it
  { "^lua%.h$",       "^lua/", "^tests/glue/" },
  { "^lauxlib%.h$",   "^lua/", "^tests/glue/" },
  { "^lualib%.h$",    "^lua/", "^tests/glue/" },
  { "^sqlite3",       "^core/store/store[%w_]*%.[ch]$", "^core/text/json%.c$" },
  { "^pcre2",         "^core/text/pieces%.c$" },
  { "^hdf5",          "^core/store/h5%w*%.[ch]$" },
  { "^zlib",          "^core/store/inflate%.c$" },
  { "^dlfcn%.h$",     "^core/base/shared%.c$", "^core/base/cuda_libraries%.c$", "^tests/faults/" },
  { "^fftw3",         "^backends/fft/", "^benches/" },
  { "^cblas",         "^core/products/gemm%.c$" },
  { "^openblas",      "^core/products/gemm%.c$" },
  { "^dnnl",          "^core/products/onednn%.c$" },
  { "^mpi%.h$",       "^core/ranks/mpi/", "^tests/device/", "^tests/mpi/" },
  { "^nccl%.h$",      "^core/ranks/nccl/" },
  { "^event%.pb%-c",  "^lua/live/tensorboard%.c$" },
  { "^microhttpd",    "^lua/live/http%.c$" },
  { "^backend%.h$",   "^core/", "^backends/", "^tests/" },
  { "^toeplab%-lab%.h$", "^core/images/", "^core/store/", "^core/text/", "^core/lab%.c$", "^lua/",
    "^tests/", "^docs/%w+%.c$" },
  { "^toeplab%.h$",   "^core/", "^lua/", "^tests/", "^docs/%w+%.c$" },
}

-- The headers of core that everybody may include.
local PUBLIC = "^core/[%w-]+%.h$"
local BASE, ENGINE, PRODUCTS = "^core/base/", "^core/engine/", "^core/products/"
local OPS, SCAN, TNO, CUDA = "^core/ops/", "^core/scan/", "^core/tno/", "^core/cuda/"

local may_quote = { -- room -> what its files include in quotes and call, beside their own folder
  { "^core/products/.*%.cuh?$", PUBLIC, BASE, ENGINE, CUDA },
  { "^core/ops/.*%.cuh?$", PUBLIC, BASE, ENGINE, PRODUCTS, CUDA },
  { "^core/scan/.*%.cuh?$", PUBLIC, BASE, ENGINE, CUDA },
  { "^core/tno/.*%.cuh?$", PUBLIC, BASE, ENGINE, CUDA },
  { "^core/cuda/",   PUBLIC, BASE, ENGINE, "^tests/device/emulate" },
  { "^core/device%.cu$", PUBLIC, BASE, ENGINE, OPS, TNO, CUDA },
  { "^core/base/",   PUBLIC },
  { "^core/engine/", PUBLIC, BASE },
  { "^core/products/", PUBLIC, BASE, ENGINE },
  { "^core/ops/",    PUBLIC, BASE, ENGINE, PRODUCTS },
  { "^core/scan/",   PUBLIC, BASE, ENGINE },
  { "^core/tno/",    PUBLIC, BASE, ENGINE, PRODUCTS, OPS },
  { "^core/text/",   PUBLIC, BASE, ENGINE, PRODUCTS, OPS },
  { "^core/images/", PUBLIC, BASE, ENGINE },
  { "^core/store/",  PUBLIC, BASE, ENGINE, PRODUCTS, OPS },
  { "^core/ranks/%w+/", PUBLIC, BASE, ENGINE, "^core/ranks/[^/]+$", "^tests/device/emulate" },
  { "^core/ranks/",  PUBLIC, BASE, ENGINE, PRODUCTS, OPS },
  { "^core/[%w-]+%.h$", PUBLIC },
  { "^core/lab%.c$", PUBLIC, "^core/store/", "^core/text/" },
  { "^core/",        PUBLIC, BASE, ENGINE, PRODUCTS, OPS, SCAN, TNO, "^core/context%.c$" },
  { "^backends/.*%.cuh?$", PUBLIC, BASE, ENGINE, PRODUCTS, OPS, TNO, CUDA, "^backends/common/" },
  { "^backends/fd/",   "^core/backend%.h$", "^core/status%.h$", "^backends/common/",
    "^backends/rac/rac%.h$" }, -- whose transforms it is built of
  { "^backends/",      "^core/backend%.h$", "^core/status%.h$", "^backends/common/" },
  { "^lua/",           "^core/toeplab%-lab%.h$", "^core/toeplab%.h$", "^lua/glue/" },
  { "^tests/plugin/",  "^core/backend%.h$" },
  { "^tests/glue/",    "^core/", "^lua/glue/", "^tests/core/" },
  { "^tests/",         "^core/", "^tests/core/" },
}

local may_require = { -- Lua room -> the modules it may ask for; tests may ask for any
  { "^lua/",         "^toeplab$", "^toeplab%." },
  { "^experiments/", "^toeplab$" },
}

-- The rooms of lua/toeplab from the top down: a file requires files of its own room and of rooms
-- below it. init.lua, which opens the library, stands above them all.
local lua_rooms = { "commands", "bench", "verify", "live", "runs", "report", "recipes", "trials",
  "store", "tasks", "models", "train", "nn", "tensors", "base" }

local known = {} -- the globals that Lua files may read
for name in ([[_G _VERSION arg assert collectgarbage coroutine debug dofile error getmetatable io
  ipairs load loadfile math next os package pairs pcall print rawequal rawget rawlen rawset require
  select setmetatable string table tonumber tostring type utf8 warn xpcall]]):gmatch "%S+" do
  known[name] = true
end

local voice = { -- functions that print or end the process; a child of h5apart.c may _exit
  "printf", "vprintf", "puts", "putchar", "perror", "exit", "_exit", "_Exit", "quick_exit", "abort",
}

-- ---- Reading ----

local function matches(path, row)
  for i = 2, #row do
    if path:find(row[i]) then return true end
  end
  return false
end

local function room(rows, path)
  for _, row in ipairs(rows) do
    if path:find(row[1]) then return row end
  end
end

local function each_line(text)
  local n = 0
  return coroutine.wrap(function()
    for line in (text:sub(-1) == "\n" and text or text .. "\n"):gmatch "(.-)\n" do
      n = n + 1
      coroutine.yield(n, line)
    end
  end)
end

-- C text with comments and the insides of strings blanked, line by line as it was.
local function bare(text)
  local out, at = {}, 1
  local function blank(s) return (s:gsub("[^\n]", " ")) end
  while at <= #text do
    local start = text:find("[/\"']", at)
    if not start then break end
    out[#out + 1] = text:sub(at, start - 1)
    local two, stop = text:sub(start, start + 1), start
    if two == "/*" then
      stop = select(2, text:find("*/", start + 2, true)) or #text
    elseif two == "//" then
      stop = (text:find("\n", start, true) or #text + 1) - 1
    elseif two:sub(1, 1) ~= "/" then
      local quote = two:sub(1, 1)
      stop = start + 1
      while stop < #text and text:sub(stop, stop) ~= quote do
        stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
      end
    end
    out[#out + 1] = stop == start and text:sub(start, start) or blank(text:sub(start, stop))
    at = stop + 1
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

local function is_c(path) return path:find "%.[ch]$" ~= nil end
local function is_c_or_cuda(path) return is_c(path) or path:find "%.cuh?$" ~= nil end
local function is_lua(path) return path:find "%.lua$" ~= nil end

-- ---- The rules: a name, and a function (path, text, fault) that calls fault(line, message) ----

local rules = {}
local function rule(name, check) rules[#rules + 1] = { name = name, check = check } end

rule("a header is included only where its concept lives", function(path, text, fault)
  if not is_c_or_cuda(path) then return end
  for n, line in each_line(text) do
    local header = line:match "^%s*#%s*include%s*[<\"]([^>\"]+)[>\"]"
    for _, row in ipairs(header and may_include or {}) do
      if header:find(row[1]) and not matches(path, row) then
        fault(n, header .. " does not belong here")
      end
    end
  end
end)

-- The file that #include "name" in path means: the one beside path, else that in core, in the
-- glue or among the tools of tests. A header that is made from SQL counts as that.
local function included(path, name, exists)
  local beside = path:match "^(.*)/" .. "/" .. name
  while beside:find "[^/]+/%.%./" do beside = beside:gsub("[^/]+/%.%./", "", 1) end
  local made = "core/store/" .. name:gsub("%.h$", ".sql")
  for _, file in ipairs { beside, "core/" .. name, "lua/glue/" .. name,
    "tests/core/" .. name, "tests/device/" .. name, made } do
    if exists(file) then return file end
  end
end

rule("a room includes files of rooms below it", function(path, text, fault, exists)
  local row = is_c_or_cuda(path) and room(may_quote, path)
  if not row then return end
  for n, line in each_line(text) do
    local name = line:match "^%s*#%s*include%s*\"([^\"]+)\""
    local file = name and included(path, name, exists)
    local same = file and file:match "^(.*)/" == path:match "^(.*)/"
    if name and not (same or file and matches(file, row)) then
      fault(n, name .. " is not in a room that this one may use")
    end
  end
end)

-- The modules that a Lua text requires, with their lines.
local function required(text)
  local list = {}
  for n, line in each_line(text) do
    local code = line:gsub("^%s*%-%-.*", "")
    for name in code:gmatch "require%s*%(?%s*[\"']([^\"']+)[\"']" do
      list[#list + 1] = { name = name, line = n }
    end
  end
  return list
end

rule("Lua asks only for the modules of its room", function(path, text, fault)
  local row = is_lua(path) and room(may_require, path)
  if not row then return end
  for _, r in ipairs(required(text)) do
    if not matches(r.name, row) then fault(r.line, "requires " .. r.name) end
  end
end)

local floor_of = {} -- name of a Lua room -> its place in lua_rooms
for i, name in ipairs(lua_rooms) do floor_of[name] = i end

rule("a Lua room requires rooms below it", function(path, text, fault)
  local name = path:match "^lua/toeplab/([^/]+)/"
  if not name or not is_lua(path) then return end
  local floor = floor_of[name]
  if not floor then return fault(1, name .. " is not a room that lua_rooms lists") end
  for _, r in ipairs(required(text)) do
    local other = r.name:match "^toeplab%.([%w_]+)"
    local above = r.name == "toeplab" and name ~= "commands"
    if above or floor_of[other] and floor_of[other] < floor then
      fault(r.line, r.name .. " is above this room")
    end
  end
end)

-- Global reads and writes of Lua code, from the compiler's own listing. LUAC names the compiler.
local luac = os.getenv "LUAC" or "luac5.4"

rule("no Lua global is made, and only standard ones are read", function(path, text, fault)
  if not is_lua(path) then return end
  local name = os.tmpname()
  local file = assert(io.open(name, "w"))
  file:write(text)
  file:close()
  local pipe = assert(io.popen(luac .. " -l -p '" .. name .. "' 2>&1"))
  local listing = pipe:read "a"
  local ok = pipe:close()
  os.remove(name)
  if not ok then return fault(1, "luac: " .. listing:gsub(name, path)) end
  local instruction = "%[(%d+)%]%s+([GS]ETTABUP)[^\n]-; _ENV \"([^\"\n]*)\""
  for line, op, global in listing:gmatch(instruction) do
    if op == "SETTABUP" then fault(tonumber(line), "sets the global " .. global) end
    if op == "GETTABUP" and not known[global] then
      fault(tonumber(line), "reads the global " .. global)
    end
  end
end)

rule("the engine and its plugins are silent and never end the process", function(path, text, fault)
  if not (is_c_or_cuda(path) and (path:find "^core/" or path:find "^backends/")) then return end
  for n, line in each_line(bare(text)) do
    for _, name in ipairs(voice) do
      local apart = path .. name == "core/store/h5apart.c_exit"
      if not apart and line:find("%f[%w_]" .. name .. "%s*%(") then fault(n, "calls " .. name) end
    end
    local stream = line:match "%f[%w_]std(%l+)%f[^%w_]"
    if stream == "out" or stream == "err" then fault(n, "uses std" .. stream) end
  end
end)

-- A variable definition at the margin, or after static, whose type does not say const. A lock is
-- let through: it guards what a library below has but one of. So is the count of the groups that
-- use MPI, which a process can begin and end only once.
local function mutable(line)
  local head = line:match "^%s*static%s+([^=;({]+)[=;]"
    or line:match "^([%a_][%w_ *]*[ *][%w_]+[%[%]%w_]*)%s*[=;]"
  if not head or head:find "%f[%w_]const%f[^%w_]" then return nil end
  for _, word in ipairs { "typedef", "struct%s+[%w_]+$", "union%s+[%w_]+$", "extern", "inline",
    "pthread_mutex_t" } do
    if head:find("^" .. word) then return nil end
  end
  return head:gsub("%b[]", ""):match "([%w_]+)%s*$"
end

rule("the engine and its plugins have no mutable globals", function(path, text, fault)
  if not (is_c_or_cuda(path) and (path:find "^core/" or path:find "^backends/")) then return end
  for n, line in each_line(bare(text)) do
    local name = mutable(line)
    local apart = name and path .. name == "core/ranks/mpi/mpi.copened"
    if name and not apart then fault(n, name .. " is a mutable global") end
  end
end)

rule("lines and files are short", function(path, text, fault)
  local read = is_c_or_cuda(path) or is_lua(path) or path:find "%.py$" or path == "lab"
    or path == "CMakeLists.txt"
  if not read then return end
  local most, count = path == "CMakeLists.txt" and 150 or MAX.lines, 0
  for n, line in each_line(text) do
    count = n
    local columns = utf8.len(line) or #line
    if columns > MAX.columns then fault(n, columns .. " columns") end
  end
  if count > most and not WHOLE[path] then
    fault(count, ("%d lines, more than %d: cut the file, or give a reason in WHOLE"):format(count,
      most))
  end
end)

-- From the line that opens a function to its end: C's at the margin, Lua's in the column it began.
rule("functions are short", function(path, text, fault)
  local open = {}
  for n, line in each_line(is_c_or_cuda(path) and bare(text) or is_lua(path) and text or "") do
    local indent = line:match "^%s*"
    if is_c_or_cuda(path) then
      if line == "{" then open[""] = n end
      if line:find "^}" and open[""] then indent = "" else indent = nil end
    elseif line:find "%f[%w_]function[%s%w_.:]*%b()%s*$" then
      open[indent], indent = n, nil
    elseif not line:find "^%s*end%f[^%w_]" then
      indent = nil
    end
    if indent and open[indent] then
      local length = n - open[indent] + 1
      if length > MAX.body then fault(open[indent], "a function of " .. length .. " lines") end
      open[indent] = nil
    end
  end
end)

rule("a source file begins by saying what it is", function(path, text, fault)
  if is_lua(path) and not text:find "^#?[^\n]*%-%- " then fault(1, "no comment") end
  if is_c_or_cuda(path) and not text:find "^/%*" then fault(1, "no comment") end
end)

rule("nothing names a folder of one machine, or is left undone", function(path, text, fault)
  if path == "tests/layers.lua" then return end
  for n, line in each_line(text) do
    for _, folder in ipairs { "work", "root", "home", "Users" } do
      if (" " .. line):find("[^%w_.$}]/" .. folder .. "/%w") then fault(n, "an absolute path") end
    end
    for _, word in ipairs { "TODO", "FIXME", "XXX" } do
      if line:find("%f[%w_]" .. word .. "%f[^%w_]") then fault(n, word) end
    end
  end
end)

-- ---- Calls between the files of core ----

local defined = {} -- a function or table of core that other files see -> the file that defines it
local calls = {}   -- a file of core -> the files whose functions or tables it uses

local function is_core(path) return path:find "^core/.*%.cu?$" ~= nil end

-- Calls each with the name of every definition in bare C text that other files can see: its head
-- begins at the margin, without static, and runs to a brace or an equals sign.
local function each_definition(text, each)
  local head = ""
  for line in text:gmatch "[^\n]*" do
    if line:find "^[%a_]" then head = line elseif head ~= "" then head = head .. " " .. line end
    local stop = head:find "[{;=]"
    if stop then
      local what = head:sub(1, stop - 1)
      local seen = not (what:find "^static" or what:find "^typedef") and head:sub(stop, stop) ~= ";"
      local name = what:match "([%w_]+)%s*%b()%s*$" or what:match "([%w_]+)[%[%]%w%s]*$"
      if seen and name and name:find "_" and not what:find "^struct [%w_]+%s*$" then each(name) end
      head = ""
    end
  end
end

-- The files of core that text of path uses, each with the line and the name of its first use.
local function used(path, text)
  local own, uses, code = {}, {}, bare(text)
  for name in code:gmatch "static[^(;={]-([%w_]+)%s*%(" do own[name] = true end
  for n, line in each_line(code) do
    for before, name in line:gmatch "([.>]?)%f[%w_]([%a_][%w_]*)" do
      local file = before == "" and not own[name] and defined[name]
      if file and file ~= path and not uses[file] then uses[file] = { line = n, name = name } end
    end
  end
  return uses
end

rule("a room of core calls functions of rooms below it", function(path, text, fault)
  if not is_core(path) then return end
  local row = room(may_quote, path)
  for file, use in pairs(used(path, text)) do
    local same = file:match "^(.*)/" == path:match "^(.*)/"
    if not (same or matches(file, row)) then
      fault(use.line, ("uses %s of %s, which is not below"):format(use.name, file))
    end
  end
end)

rule("no two files of core need one another", function(path, text, fault)
  if not is_core(path) then return end
  local first, seen = used(path, text), {}
  local function leads_back(file)
    if file == path then return true end
    if seen[file] then return false end
    seen[file] = true
    for next_file in pairs(calls[file] or {}) do
      if leads_back(next_file) then return true end
    end
    return false
  end
  for file, use in pairs(first) do
    if leads_back(file) then
      fault(use.line, ("uses %s of %s, which needs this file"):format(use.name, file))
    end
  end
end)

local backends = { naive = 1, matrix = 1, fft = 1, rac = 1, ski = 1, fd = 1 }

rule("core names no backend", function(path, text, fault)
  if not (is_c_or_cuda(path) and path:find "^core/") then return end
  if path == "core/ops/transform.c" then return end -- fft is the name of its operator too
  for n, line in each_line((text:gsub("/%*.-%*/", function(s) return (s:gsub("[^\n]", "")) end))) do
    for name in line:gmatch "\"(%l+)\"" do
      if backends[name] then fault(n, "names the backend " .. name) end
    end
  end
end)

-- A number for a name would compile whatever it means: a->list.in[3] for a->norm.stats.
rule("operators name their arguments and never number their places", function(path, text, fault)
  local rooms = { "their rooms", OPS, SCAN, TNO, PRODUCTS, CUDA }
  if not (is_c_or_cuda(path) and matches(path, rooms)) then return end
  for n, line in each_line(bare(text)) do
    for _, place in ipairs { "%f[%w_]in%[%d", "[.>]out%[%d", "[.>][if]%[%d", "%.list%s*=" } do
      if line:find(place) then fault(n, "numbers a place: " .. line:match "^%s*(.*)") end
    end
  end
end)

-- ---- Tables of the store ----

local tables = {} -- the tables of schema.sql, which other rooms read by its views v_*
do
  local file = assert(io.open(ROOT .. "/core/store/schema.sql"))
  for name in file:read("a"):gmatch "\nCREATE TABLE ([%w_]+)" do tables[name] = true end
  file:close()
end

-- The words of SQL that stand before the name of a table, FROM before a list of names.
local before_table = { FROM = true, JOIN = true, INTO = true, UPDATE = true, TABLE = true }

rule("only the room store names the tables of the store in SQL", function(path, text, fault)
  if not path:find "^lua/toeplab/" or path:find "^lua/toeplab/store/" then return end
  for word, at in text:gmatch "%f[%w_](%u+)%s+()" do
    local list = before_table[word] and text:match("^[%w_%s,]*", at) or ""
    for item in list:gsub("%f[%w_]%u%u.*", ""):gmatch "[^,]+" do
      local name = item:match "[%w_]+"
      if tables[name] then
        fault(select(2, text:sub(1, at):gsub("\n", "")) + 1, "names the table " .. name)
      end
    end
  end
end)

-- ---- The English ----

-- Phrases that are read twice, what to write instead, and what may stand nevertheless. only: the
-- pattern of the paths in which they are looked for.
local phrases = {
  { "%f[%a]is no %l", "is not a", { "here is no ", "is no longer", "is no more", "is no less",
    "is no other", "is no matter" } },
  { "%f[%a]goes? with%f[%A]", "requires" },
  { "%f[%a]goes? without%f[%A]", "cannot be combined with" },
  { "%f[%a][ia][sr]e? told%f[%A]", "is reported", { "told apart" } },
  { "%f[%a]tells of%f[%A]", "reports" },
  { "%f[%a]at work%f[%A]", "running" },
  { "%f[%a]what came of%f[%A]", "the result of" },
  { "%f[%a]anew%f[%A]", "again" },
  { "%f[%a]by hand%f[%A]", "manually", { "written by hand" } },
  { "%f[%a]so many %l", "the name of the number" },
  { "%f[%a]no trial fits", "no trial matches" },
  { "%f[%a]no news%f[%A]", "do not alert" },
  { "%f[%a]without a word%f[%A]", "without reporting a status" },
  { "%f[%a]to the last bit%f[%A]", "exactly" },
  { "%f[%a]th[ao][ts]e? of%f[%A]", "the noun again", only = "%.md$" },
}

rule("texts avoid the phrases that are read twice", function(path, text, fault)
  for n, line in each_line(text) do
    if path:find "^tests/" then line = line:match "%f[%w_]test%((\".*)" or "" end -- only names
    for _, phrase in ipairs(phrases) do
      local allowed = path:find(phrase.only or "") and line or ""
      for _, fine in ipairs(phrase[3] or {}) do allowed = allowed:gsub(fine, "") end
      local found = allowed:match(phrase[1])
      if found then fault(n, ("says '%s': write '%s'"):format(found, phrase[2])) end
    end
  end
end)

-- ---- The tree ----

-- In a checkout of git the files that git knows, since users keep experiments of their own there.
local function files()
  local quoted = "'" .. ROOT:gsub("'", "'\\''") .. "'"
  local where = "core backends lua experiments python tests docs lab .ci README.md CMakeLists.txt"
  local pipe = assert(io.popen("cd " .. quoted .. " && { git ls-files " .. where .. " || find " ..
    where .. " -type f ! -path 'python/build/*'; } 2>/dev/null | " ..
    "while read -r f; do [ ! -f \"$f\" ] || echo \"$f\"; done | grep -v '[.]h5$' | LC_ALL=C sort"))
  local list = {}
  for path in pipe:lines() do list[#list + 1] = path end
  pipe:close()
  return list
end

local function exists(path)
  local file = io.open(ROOT .. "/" .. path)
  return file ~= nil and file:close()
end

local function check(path, text, report)
  for _, r in ipairs(rules) do
    local function fault(line, message) report(r, ("%s:%d: %s"):format(path, line, message)) end
    r.check(path, text, fault, exists)
  end
end

-- ---- Planted faults: each must be found, by its rule and no other ----

local function c(line) return "/* x.c - planted. */\n" .. line .. "\n" end
local function lua(line) return "-- x.lua -- planted.\n" .. line .. "\n" end
local function body(lines) return "int f(void)\n{\n" .. ("    g();\n"):rep(lines - 2) .. "}" end

local planted = { -- rule, path, text
  { 1, "core/x.c",        c "#include <lua.h>" },
  { 1, "core/x.c",        c "#include <sqlite3.h>" },
  { 1, "core/store/store.c", c "# include <hdf5.h>" },
  { 1, "core/text/bpe.c", c "#include <pcre2.h>" },
  { 1, "backends/fft/x.c", c "#include <dlfcn.h>" },
  { 1, "backends/naive/x.c", c "#include <fftw3.h>" },
  { 1, "core/x.c",        c "#include <cblas.h>" },
  { 1, "lua/glue/x.c",    c "#include <hdf5.h>" },
  { 1, "backends/naive/x.c", c "#include <toeplab.h>" },
  { 2, "core/x.c",        c "#include \"../tests/test.h\"" },
  { 2, "backends/naive/x.c", c "#include \"base/vecmath.h\"" },
  { 2, "backends/fft/x.c", c "#include \"../naive/naive.c\"" },
  { 2, "lua/glue/x.c",    c "#include \"base/vecmath.h\"" },
  { 3, "experiments/x.lua", lua "local a = require \"decay\"" },
  { 3, "experiments/x.lua", lua "local a = require(\"toeplab.core\")" },
  { 3, "lua/toeplab/x.lua", lua "local a = require \"lfs\"" },
  { 3, "lua/toeplab/x.lua", lua "local a = require \"harness\"" },
  { 4, "lua/toeplab/x/x.lua", lua "local a = 1" },
  { 4, "lua/toeplab/runs/x.lua", lua "local a = require \"toeplab\"" },
  { 5, "lua/toeplab/x.lua", lua "count = 1" },
  { 5, "experiments/x.lua", lua "local function f() total = total end" },
  { 5, "tests/lua/x.lua", lua "local a = pirnt" },
  { 5, "tests/lua/x.lua", lua "local = 1" },
  { 6, "core/x.c",        c "void f(void) { printf(\"x\"); }" },
  { 6, "core/x.c",        c "void f(void) { fprintf(stderr, \"x\"); }" },
  { 6, "backends/naive/x.c", c "void f(void) { if (g()) abort(); }" },
  { 6, "core/x.c",        c "void f(void) { exit (1); }" },
  { 7, "core/x.c",        c "static int counter;" },
  { 7, "core/x.c",        c "void f(void) { }\n    static float table[8] = {0};" },
  { 7, "backends/naive/x.c", c "int64_t calls = 0;" },
  { 8, "core/x.c",        c("/* " .. ("x"):rep(95) .. " */") },
  { 8, "core/x.c",        c(("int a;\n"):rep(500)):gsub("int a;", "/* */") },
  { 8, "core/cuda/x.cu",  c("/* " .. ("x"):rep(95) .. " */") },
  { 8, "lua/toeplab/x.lua", lua(("-- \n"):rep(500)) },
  { 9, "core/x.c",        c(body(61)) },
  { 9, "lua/toeplab/x.lua",
    lua("local function f()\n" .. ("  print()\n"):rep(59) .. "end") },
  { 9, "experiments/x.lua",
    lua("return {\n  trial = function(t)\n" .. ("    print(t)\n"):rep(60) .. "  end,\n}") },
  { 10, "core/x.c",        "int f(void);\n" },
  { 10, "lua/toeplab/x.lua", "local x\n" },
  { 11, "README.md",      "see /" .. "work/main" },
  { 11, "core/x.c",       c("/* TO" .. "DO: everything */") },
  { 2, "core/cuda/x.cu",  c "#include \"../../backends/ski/weights.c\"" },
  { 2, "core/cuda/x.cuh", c "#include \"../../backends/ski/runs.cuh\"" },
  { 2, "backends/fd/x.cu", c "#include \"../ski/weights.c\"" },
  { 2, "backends/fd/x.cuh", c "#include \"text/vocab.h\"" },
  { 2, "core/base/x.h",   c "#include \"engine/tensor.h\"" },
  { 2, "core/toeplab.h",  c "#include \"base/context.h\"" },
  { 1, "core/cuda/x.cuh", c "#include <lua.h>" },
  { 6, "core/cuda/x.cu",  c "void f(void) { printf(\"x\"); }" },
  { 7, "core/cuda/x.cu",  c "static int counter;" },
  { 13, "core/base/errors.c", c "void f(void) { tl_alloc(0, 0); }" },
  { 13, "core/engine/tensor.c", c "void f(void) { tl_accumulate(0, 0, 0); }" },
  { 13, "core/cuda/memory.cu", c "void f(void) { gpu_graph_begin(0, 0, 0, 0); }" },
  { 14, "core/tno/tno.c", c "const char *const f = \"fft\";" },
  { 14, "core/cuda/tno.cu", c "const char *const f = \"ski\";" },
  { 15, "core/ops/x.c", c "static void f(const tl_args *a) { g(a->list.in[3]); }" },
  { 17, "lua/toeplab/x.lua", lua "-- what is no list" },
  { 17, "core/x.c", c "/* is told by its name */" },
  { 17, "docs/x.md", "This goes with that." },
  { 17, "tests/lua/x.lua", lua("local t, f = 1, 2\nt.te" .. "st(\"what is told\", f)") },
  { 15, "core/scan/x.c", c "static void f(tl_tensor *const *in) { g(in[0]); }" },
  { 15, "core/tno/x.c", c "static void f(const tl_args *a) { g(a->list.out[0]); }" },
  { 15, "core/cuda/x.cu", c "static void f(const tl_args *a) { g(a->list.i[1]); }" },
  { 15, "core/ops/x.c", c "static void f(void) { g(&(tl_args){.list = {.f = {1}}}); }" },
  { 16, "lua/toeplab/runs/x.lua", lua "local a = \"SELECT id FROM trials WHERE id = ?\"" },
  { 16, "lua/toeplab/report/x.lua", lua "local a = [[SELECT 1 FROM v_trials t, events e]]" },
  { 16, "lua/toeplab/report/x.lua", lua "local a = [[FROM v_last l\n  JOIN\n  sweeps s]]" },
  { 16, "lua/toeplab/commands/x.lua", lua "local a = \"INSERT OR REPLACE INTO artifacts VALUES\"" },
  { 16, "lua/toeplab/trials/x.lua", lua "local a = \"UPDATE trials SET tags = ''\"" },
}

for i = 2, #lua_rooms do -- each arrow from a room to the one above it
  planted[#planted + 1] = { 4, ("lua/toeplab/%s/x.lua"):format(lua_rooms[i]),
    lua(("local a = require \"toeplab.%s.x\""):format(lua_rooms[i - 1])) }
end

local clean = { -- path, text: near misses, in which nothing may be found
  { "core/x.c", c "/* printf(x), exit(1) */ int f(char *s) { snprintf(s, 1, \"abort()\"); }" },
  { "core/x.c", c "static const int a[] = {1};\nstatic int f(void);\ntypedef struct x y;" },
  { "core/x.c", c "const int z = 1;\nconst char quotes[2] = {'\\'', '\"'}; /* exit(1) */" },
  { "core/x.c", c(body(60)) },
  { "core/x.c", c("/* " .. ("é"):rep(94) .. " */") },
  { "core/store/store.c", c "#include <sqlite3.h>\n#include \"base/file.h\"" },
  { "lua/glue/x.c", c "#include <lua.h>\n#include \"toeplab.h\"" },
  { "backends/naive/x.c",
    c "#include \"backend.h\"\n#include \"../common/lag.h\"\n#include <stdlib.h>" },
  { "backends/naive/x.cu", c "#include \"../common/apply.cuh\"" },
  { "lua/toeplab/nn/x.lua",
    lua "local M = {}\nfunction M.f() return require \"toeplab.nn\" end" },
  { "tests/lua/x.lua", lua "-- is told\nlocal t = require \"harness\"\nt.test(\"a name\")" },
  { "docs/x.md", "There is no key that is no longer told apart." },
  { "lua/toeplab/runs/x.lua", lua "local a = require \"toeplab.base.json\"" },
  { "lua/toeplab/store/x.lua", lua "local a = \"SELECT id FROM trials\"" },
  { "lua/toeplab/runs/x.lua", lua("-- the last events\nlocal a = "
    .. "\"SELECT step FROM v_events, v_last ORDER BY name, last\", \"trials\"") },
  { "experiments/x.lua", lua "-- require \"decay\"\nlocal tl = require \"toeplab\"" },
}

-- Each arrow between rooms of core that is not allowed is planted, as an include and as a call.
local offer = { -- a room -> a header and a function of it
  ["core/base/"] = { "base/memory.h", "tl_alloc" },
  ["core/engine/"] = { "engine/tensor.h", "tl_new" },
  ["core/products/"] = { "products/gemm.h", "tl_gemm" },
  ["core/ops/"] = { "ops/mlp.h", "tl_matmul" },
  ["core/tno/"] = { "tno/tno.h", "tl_choose" },
  ["core/text/"] = { "text/vocab.h", "tl_vocab_add" },
  ["core/images/"] = { "images/images.h", "tl_images_alloc" },
  ["core/store/"] = { "store/lock.h", "tl_lock" },
  ["core/cuda/"] = { "cuda/cuda.cuh", "gpu_alloc" },
}
for from in pairs(offer) do
  local path = from .. (from == "core/cuda/" and "x.cu" or "x.c")
  local row = room(may_quote, path)
  for to, it in pairs(offer) do
    if from ~= to and not matches(to .. "x", row) then
      planted[#planted + 1] = { 2, path, c("#include \"" .. it[1] .. "\"") }
      planted[#planted + 1] = { 12, path, c("void f(void) { " .. it[2] .. "(); }") }
    end
  end
  planted[#planted + 1] = { 12, path, c "void f(void) { tl_ctx_new(0, 0); }" }
end

local passed, failed = 0, 0
local function result(ok, name)
  passed, failed = passed + (ok and 1 or 0), failed + (ok and 0 or 1)
  print((ok and "ok " or "not ok ") .. name)
end

local function text_of(path)
  local file = assert(io.open(ROOT .. "/" .. path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

local all = files()
for _, path in ipairs(all) do
  if is_core(path) then
    each_definition(bare(text_of(path)), function(name) defined[name] = path end)
  end
end
for _, path in ipairs(all) do
  if is_core(path) then calls[path] = used(path, text_of(path)) end
end

-- The folders of product code that hold too many files, as text; nil if there is none. x.c, x.h,
-- x.cu and x.cuh count as one.
local function crowded(paths)
  local count, found, seen = {}, {}, {}
  for _, path in ipairs(paths) do
    local folder = path:match "^core.*/" or path:match "^backends.*/" or path:match "^lua.*/"
    local name = path:gsub("%.cuh?$", ""):gsub("%.[ch]$", "")
    if folder and not seen[name] then
      seen[name] = true
      count[folder] = (count[folder] or 0) + 1
    end
  end
  for folder, n in pairs(count) do
    if n > MAX.files and not WHOLE[folder] then
      found[#found + 1] = ("%s %d files: divide it, or give a reason in WHOLE"):format(folder, n)
    end
  end
  table.sort(found)
  return found[1] and table.concat(found, ", ")
end

local faults, read = {}, {} -- faults of each rule, files of each room
local modules = {} -- Lua module -> names of those that it requires
for _, path in ipairs(all) do
  local text = text_of(path)
  local name = path:match "^[^/]+"
  read[name] = (read[name] or 0) + 1
  local module = path:match "^lua/(toeplab/.*)%.lua$"
  if module and path ~= "lua/toeplab/init.lua" then
    local names = {}
    for _, r in ipairs(required(text)) do names[#names + 1] = r.name end
    modules[module:gsub("/init$", ""):gsub("/", ".")] = names
  end
  check(path, text, function(r, message)
    faults[r] = (faults[r] or 0) + 1
    print(message)
  end)
end
for _, r in ipairs(rules) do result(not faults[r], r.name) end
for _, name in ipairs { "core", "backends", "lua", "tests", "experiments", "python" } do
  result(read[name], ("%d files read in %s"):format(read[name] or 0, name))
end

-- A circle of modules, by what they use anywhere, as text; nil if there is none. Appends each
-- module to order, if it is given, after those that it uses.
local function circle(modules, order) -- name -> list of names
  local state = {} -- name -> 1: on the way, 2: done
  local function visit(name, trail)
    if state[name] == 2 or not modules[name] then return nil end
    if state[name] == 1 then return trail .. name end
    state[name] = 1
    for _, other in ipairs(modules[name]) do
      local found = visit(other, trail .. name .. " -> ")
      if found then return found end
    end
    state[name] = 2
    if order then order[#order + 1] = name end
  end
  local names = {}
  for name in pairs(modules) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local found = visit(name, "")
    if found then return found end
  end
end

-- x.c and x.h of core/engine are one module.
local function engine_module(path) return path:match "^core/engine/([%w_]+)%.[ch]$" end

-- The room of a file of core. The files beside the rooms are one each, but for the public headers,
-- which everybody may include.
local function core_room(path)
  return not path:find(PUBLIC) and (path:match "^core/(.+)/[^/]+$" or path:match "^core/([^/]+)$")
end

-- The modules, by the names that module_of gives to paths, each with a sorted list of those whose
-- headers its files include or whose functions they call. texts: path -> text
local function modules_of(module_of, texts)
  local modules, seen = {}, {}
  for path, text in pairs(texts) do
    local name = module_of(path)
    local uses = name and modules[name] or {}
    local function use(file)
      local other = name and file and module_of(file)
      if other and other ~= name and not seen[name .. " " .. other] then
        seen[name .. " " .. other] = true
        uses[#uses + 1] = other
      end
    end
    if name then modules[name] = uses end
    for header in text:gmatch "#%s*include%s*\"([^\"]+)\"" do
      use(included(path, header, function(file) return texts[file] or exists(file) end))
    end
    -- A header's lines at the margin declare functions, its other lines call them.
    local calling = path:find "%.cu?$" and text or ("\n" .. text):gsub("\n%a[^\n]*", "\n")
    for file in pairs(name and used(path, calling) or {}) do use(file) end
  end
  for _, uses in pairs(modules) do table.sort(uses) end
  return modules
end

local found = circle(modules)
if found then print(found) end
result(not found, "Lua modules require each other in no circle")
local core, order, rooms = {}, {}, {}
for _, path in ipairs(all) do
  if path:find "^core/.*%.[ch]" then core[path] = text_of(path) end
end
found = circle(modules_of(engine_module, core), order)
if found then print(found) end
if arg[2] == "order" then print(table.concat(order, " ")) end
result(not found and #order > 1, "the files of core/engine use each other in no circle")
local arrows = modules_of(core_room, core)
found = circle(arrows, rooms)
if found then print(found) end
for _, name in ipairs(rooms) do print(name .. " -> " .. table.concat(arrows[name], ", ")) end
result(not found and #rooms > 1, "the rooms of core use each other in no circle")
local function closed(module_of, texts) return circle(modules_of(module_of, texts)) end
local a, b = "#include \"engine/a.h\"\n", "#include \"engine/b.h\"\n"
result(closed(engine_module, { ["core/engine/a.c"] = a .. b, ["core/engine/a.h"] = "",
    ["core/engine/b.h"] = a })
  and closed(engine_module, { ["core/engine/tensor.h"] = "#include \"engine/launch.h\"",
    ["core/engine/launch.c"] = c "void f(void) { tl_new_like(0, 0); }" })
  and not closed(engine_module, { ["core/engine/a.c"] = a .. b, ["core/engine/b.c"] = b }),
  "a planted circle of the engine is found")
local up = c "void f(void) { gpu_spectra_close(0); }" -- of core/ops/transform.cu
local down = "#include \"cuda/cuda.cuh\""
result(closed(core_room, { ["core/cuda/a.cu"] = up, ["core/ops/b.cu"] = down })
  and closed(core_room, { ["core/cuda/a.cuh"] = c("static inline void f(void)\n{\n    "
    .. "gpu_spectra_close(0);\n}"), ["core/ops/b.cuh"] = down })
  and closed(core_room, { ["core/cuda/a.cuh"] = c "#include \"../ops/b.cuh\"",
    ["core/ops/b.cuh"] = down })
  and not closed(core_room, { ["core/tno/a.cu"] = up, ["core/ops/b.cu"] = down,
    ["core/cuda/a.cuh"] = c "void gpu_spectra_close(tl_ctx *ctx);" }),
  "a planted circle of rooms is found, in CUDA too")
local stale = {}
for path in pairs(WHOLE) do -- folders end in a slash
  local _, lines = (path:find "/$" and "" or text_of(path)):gsub("\n", "")
  if not path:find "/$" and lines <= MAX.lines then stale[#stale + 1] = path end
end
result(#stale == 0, "each reason in WHOLE is still needed " .. table.concat(stale, " "))
local full, one_more = {}, { "tests/x.lua" }
for i = 1, MAX.files do
  for _, ext in ipairs { "c", "h", "cu", "cuh" } do
    full[#full + 1] = ("core/x/%d.%s"):format(i, ext)
  end
end
table.move(full, 1, #full, 2, one_more)
one_more[#one_more + 1] = "core/x/more.c"
found = crowded(all)
if found then print(found) end
result(not found, "a folder of product code has at most " .. MAX.files .. " files, or a reason")
result(crowded(one_more) and not crowded(full), "a planted folder with one file too many is found")

result(circle { a = { "b" }, b = { "c", "a" }, c = {} } ~= nil
  and not circle { a = { "b" }, b = {} }, "a planted circle is found")

local missed = 0
for i, p in ipairs(planted) do
  local own, other = false, false
  check(p[2], p[3], function(r)
    if r == rules[p[1]] then own = true else other = true end
  end)
  if not own or other then
    missed = missed + 1
    print("planted fault", i, "rule", p[1], "found", own, "other rules", other, p[3])
  end
end
result(missed == 0, #planted .. " planted faults are found, each by its rule alone")

local wrong = 0
for _, p in ipairs(clean) do
  check(p[1], p[2], function(_, message)
    wrong = wrong + 1
    print("in a sound file: " .. message)
  end)
end
result(wrong == 0, "nothing is found in " .. #clean .. " sound files")
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0)
