-- test_docs.lua: the manual pages against the program: nothing missing, nothing that is not there.
local t = require "harness"
local tl = require "toeplab"
local mixers = require "toeplab.nn.mixers"

local docs = arg[0]:match("^(.*)tests/lua/.*$") .. "docs/"

local function read(name)
  local file = assert(io.open(docs .. name))
  local text = file:read "a"
  file:close()
  return text
end

-- What the program prints for words.
local function says(words)
  local pipe = assert(io.popen("'" .. tl.sys.executable() .. "' " .. words .. " 2>&1"))
  local text = pipe:read "a"
  t.ok(pipe:close(), "toeplab " .. words .. " failed: " .. text)
  return text
end

local function verbs()
  local list = {}
  for verb in says("help"):gmatch "\n  (%l+) +" do list[#list + 1] = verb end
  t.ok(#list >= 10, "the help lists " .. #list .. " verbs")
  return list
end

t.test("the manual page has every verb, and no other", function()
  local page, known = read "toeplab.1", {}
  for _, verb in ipairs(verbs()) do
    known[verb] = true
    t.ok(page:find("\n.It Ic " .. verb .. "%f[^%w]"), "no verb " .. verb)
  end
  for verb in page:gmatch "\n%.It Ic (%l+)" do t.ok(known[verb], "there is no verb " .. verb) end
end)

t.test("the manual page has every option of every verb", function()
  local page, count, forms = read "toeplab.1", 0, 1
  while forms > 0 do -- a verb with several forms has as many lines above its text
    page, forms = page:gsub("(\n%.It Ic (%l+)%f[^%w][^\n]*)\n%.It Ic %2%f[^%w]", "%1")
  end
  local all = page:match "\n%.Sh VERBS.-\n%.It" -- options of every verb
  for _, verb in ipairs(verbs()) do
    local entry = page:match("\n%.It Ic " .. verb .. "%f[^%w].-\n%.It Ic ") or page
    for option in says("help " .. verb):gmatch "\n  %s*%-?%a?,? ?%-%-([%l-]+)" do
      count = count + 1
      t.ok((all .. entry):find("Fl Fl " .. option, 1, true), verb .. ": no --" .. option)
    end
  end
  t.ok(count >= 15, "the help lists " .. count .. " options")
end)

t.test("the manual page has every exit code and variable that the help has", function()
  local page = read "toeplab.1"
  for code in says("help exit-codes"):gmatch "\n  (%d+)" do
    t.ok(page:find("\n.It " .. code .. "\n", 1, true), "no exit code " .. code)
  end
  for name in says("help environment"):gmatch "%f[%u](TOEPLAB_%u+)" do
    t.ok(page:find("Ev " .. name, 1, true), "no variable " .. name)
  end
end)

t.test("what toeplab-lua.7 names exists", function()
  local count = 0
  for name in read("toeplab-lua.7"):gmatch "%f[%w]tl%.([%a_][%w_.]*)" do
    local value = tl
    for part in name:gmatch "[^.]+" do value = value[part] end
    t.ok(value ~= nil, "there is no tl." .. name)
    count = count + 1
  end
  t.ok(count > 100, "the page names " .. count)
end)

t.test("every function of the engine is in toeplab-lua.7", function()
  local page, units = read "toeplab-lua.7", {}
  for _, name in ipairs(tl.unary_names()) do units[name] = true end
  for name in pairs(require "toeplab.core") do
    t.ok(units[name] or page:find("tl." .. name, 1, true), "tl." .. name .. " is not there")
  end
end)

-- The paths in a page of Markdown: its links, and words in backquotes that begin with a folder of
-- the tree. Words like NAME stand for any name.
local function paths_in(text)
  local list, folders = {}, { core = 1, backends = 1, lua = 1, experiments = 1, tests = 1, docs = 1,
    results = 1 }
  for path in text:gmatch "%]%(([^)#:]+)%)" do list[#list + 1] = path end
  for path in text:gmatch "`([%w_./-]+)`" do
    if folders[path:match "^(%w+)/"] and not path:find "%u%u" then list[#list + 1] = path end
  end
  return list
end

t.test("every path that the README and the pages of docs name exists", function()
  local top = docs .. "../"
  local pages = { top .. "README.md", top .. "experiments/README.md" }
  for _, name in ipairs(tl.sys.list(docs)) do
    if name:find "%.md$" then pages[#pages + 1] = docs .. name end
  end
  t.ok(#pages >= 7, #pages .. " pages")
  local count = 0
  for _, page in ipairs(pages) do
    local folder = page:match "^(.*)/"
    for _, path in ipairs(paths_in(t.read(page))) do
      count = count + 1
      t.ok(tl.sys.exists(top .. path) or tl.sys.exists(folder .. "/" .. path),
        page .. " names " .. path)
    end
  end
  t.ok(count > 40, count .. " paths")
end)

t.test("the README is read in five minutes", function()
  local _, lines = t.read(docs .. "../README.md"):gsub("\n", "")
  t.ok(lines <= 130, lines .. " lines")
end)

-- The names in a part of the library: those that it says are known when asked for another.
local function names_in(part)
  local list = {}
  local _, why = pcall(function() return part["no such name there"] end)
  for name in why:match "known: (.*)$":gmatch "[^, ]+" do list[#list + 1] = name end
  return list
end

t.test("every name of the Lua library is in toeplab-lua.7", function()
  local page, count = read "toeplab-lua.7", 0
  for _, part in ipairs { "nn", "models", "optim", "eval", "published" } do
    for _, name in ipairs(names_in(tl[part])) do
      count = count + 1
      t.ok(page:find("tl." .. part .. "." .. name .. "%f[^%w_]"), part .. "." .. name)
    end
  end
  for _, part in ipairs { "train", "schedule", "options" } do
    for name in pairs(tl[part]) do
      count = count + 1
      t.ok(page:find("tl." .. part .. "." .. name .. "%f[^%w_]"), part .. "." .. name)
    end
  end
  local units = {}
  for _, name in ipairs(tl.unary_names()) do units[name] = true end
  for _, name in ipairs(names_in(tl)) do
    t.ok(units[name] or page:find("tl." .. name .. "%f[^%w_]"), "tl." .. name .. " is not there")
  end
  t.ok(count > 60, "the library has " .. count)
end)

t.test("every option of the model that the page names exists, and its keys are listed", function()
  local said = says "model tnn_lm --keys"
  t.ok(said:find "\n  mixer_norm +string", said)
end)

-- The rows of docs/mixers.md: name -> {causal=, options=, published=}, the texts of its cells.
local function mixer_rows()
  local rows, count = {}, 0
  for line in read("mixers.md"):gmatch "[^\n]+" do
    local cells = {}
    for cell in line:gmatch "| ([^|]*)" do cells[#cells + 1] = cell:gsub(" *$", "") end
    local name = #cells == 6 and cells[1]:match "^`([%w_]+)`$"
    if name then
      t.ok(not rows[name], name .. " is there twice")
      rows[name], count = { causal = cells[3], options = cells[5], published = cells[6] }, count + 1
    end
  end
  return rows, count
end

t.test("mixers.md has every mixer and no other, its options, and whether it is causal", function()
  local rows, count = mixer_rows()
  local page = read "toeplab-lua.7":match "another token mixer, by its name(.-)docs/mixers.md"
  t.eq(count, #mixers.names)
  for _, name in ipairs(mixers.names) do
    local row, fields = rows[name], mixers.class(name).spec.fields
    t.ok(row and page:find("[ \n]" .. name .. "[,;:]"), "no " .. name)
    for option in row.options:gmatch "`([%w_]+)`" do
      t.ok(fields[option], ("%s has no option %s"):format(name, option))
    end
    t.eq({ name, row.published ~= "" }, { name, fields.as_published ~= nil })
    local is = {}
    for _, causal in ipairs { true, false } do
      local common = { heads = 2, max_len = 8, length = 64, causal = causal }
      is[causal] = pcall(mixers.make, name, 16, common, {})
    end
    t.eq({ name, row.causal },
      { name, is[true] and is[false] and "either" or is[true] and "causal" or "no" })
  end
end)

t.test("the documented token mixer is short, and trains", function()
  local _, lines = read("mixer.lua"):gsub("\n", "")
  t.ok(lines < 40, lines .. " lines")
  local text = ("the quick brown fox jumps over the lazy dog. "):rep(300)
  local said = says(("lua '%smixer.lua' 'text:%s' 40"):format(docs, text))
  local first, last = said:match "step 20: loss (%S+),.*step 40: loss (%S+),"
  t.ok(tonumber(last) < tonumber(first), said)
  t.ok(tonumber(said:match "(%S+) bits per character at length 512") < 4, said)
end)

t.done()
