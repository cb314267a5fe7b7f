-- test_docs.lua: the pages of docs against the program: nothing missing, nothing that is not there.
local t = require "harness"
local tl = require "toeplab"
local arguments = require "toeplab.base.arguments"
local experiment = require "toeplab.trials.experiment"
local mixers = require "toeplab.nn.mixers"
local plan = require "toeplab.trials.plan"
local records = require "toeplab.store.records"
local stores = require "stores"

local docs = t.root .. "docs/"
package.path = docs .. "make/?.lua;" .. package.path
local reference = require "reference"

local read = reference.read

-- The names of the pages of docs, and of those of them that are the reference.
local pages, of_reference = {}, {}
for _, folder in ipairs { "", "reference/" } do
  for _, name in ipairs(tl.sys.list(docs .. folder)) do
    if name:find "%.md$" then
      pages[#pages + 1] = folder .. name
      if folder ~= "" then of_reference[#of_reference + 1] = read(folder .. name) end
    end
  end
end
of_reference = table.concat(of_reference, "\n")

-- All pages of the tree, by their paths from docs, and those of results/tables.
local every_page, of_results = { "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md",
  "../experiments/README.md", table.unpack(pages) }, {}
for _, name in ipairs(tl.sys.list(docs .. "../results/tables")) do
  if name:find "%.md$" then
    of_results[#of_results + 1] = "../results/tables/" .. name
    every_page[#every_page + 1] = of_results[#of_results]
  end
end

-- What the program prints for words.
local function says(words)
  local text, code = t.shell("'" .. tl.sys.executable() .. "' " .. words .. " 2>&1")
  t.ok(code == 0, "toeplab " .. words .. " failed: " .. text)
  return text
end

local function verbs()
  local list = {}
  for verb in says("help"):gmatch "\n  (%l+) +" do list[#list + 1] = verb end
  t.ok(#list >= 10, "the help lists " .. #list .. " verbs")
  return list
end

t.test("what the reference names exists", function()
  local count = 0
  for name in of_reference:gmatch "%f[%w]tl%.([%a_][%w_.-]*)" do
    local value = tl
    for part in name:gmatch "[^.]+" do value = value[part] end
    t.ok(value ~= nil, "there is no tl." .. name)
    count = count + 1
  end
  t.ok(count > 100, "the page names " .. count)
end)

-- Returns the links of a page of Markdown, and its words in backquotes that begin with a folder of
-- the tree. Words like NAME stand for any name.
local function paths_in(text)
  local links, words, folders = {}, {}, { core = 1, backends = 1, lua = 1, experiments = 1,
    tests = 1, docs = 1, results = 1 }
  text = text:gsub("\n```.-\n```", "")
  for link in text:gmatch "%]%(([^)%s:]+)%)" do links[#links + 1] = link end
  for path in text:gmatch "`([%w_./-]+)`" do
    if folders[path:match "^(%w+)/"] and not path:find "%u%u" then words[#words + 1] = path end
  end
  return links, words
end

-- The set of the anchors that GitHub gives the headings of a page: of those alike, the second ends
-- in -1.
local function anchors_of(text)
  local set, count = {}, {}
  for heading in ("\n" .. text:gsub("\n```.-\n```", "")):gmatch "\n#+ ([^\n]+)" do
    local anchor = heading:gsub("%]%([^)]*%)", ""):lower():gsub("[^%w_ \128-\255-]", "")
      :gsub(" ", "-")
    local before = count[anchor] or 0
    count[anchor] = before + 1
    set[before > 0 and anchor .. "-" .. before or anchor] = true
  end
  return set
end

-- Returns what is wrong with a link of a page, nil if nothing is. anchors: file -> its anchors, as
-- far as they are known.
local function dead(page, link, anchors)
  local path, anchor = link:match "^([^#]*)#?(.*)$"
  local file = path == "" and page or page:match "^.*/" .. path
  if path ~= "" and not tl.sys.exists(file) then return page .. " has a dead link: " .. link end
  if anchor == "" then return nil end
  anchors[file] = anchors[file] or anchors_of(t.read(file))
  if not anchors[file][anchor] then return ("%s: no #%s in %s"):format(page, anchor, file) end
end

t.test("every path and heading that the pages name exists", function()
  local anchors, wrong, count, headings = {}, {}, 0, 0
  t.ok(#every_page >= 50, #every_page .. " pages")
  for _, page in ipairs(every_page) do
    page = docs .. page
    local links, words = paths_in(t.read(page))
    for _, link in ipairs(links) do
      headings = headings + (link:find "#" and 1 or 0)
      wrong[#wrong + 1] = dead(page, link, anchors)
    end
    for _, path in ipairs(words) do
      local found = tl.sys.exists(docs .. "../" .. path) or tl.sys.exists(page:match "^.*/" .. path)
      wrong[#wrong + 1] = not found and page .. " names " .. path or nil
    end
    count = count + #links + #words
  end
  t.ok(#wrong == 0, table.concat(wrong, "\n"))
  t.ok(count > 300 and headings > 50, count .. " paths, " .. headings .. " headings")
end)

t.test("a planted dead anchor is found", function()
  local page = docs .. "x.md"
  local text = "# A `b`: c, d_e\n\n## Same\n\n```\n# no heading\n```\n\n## Same\n\n[a](#same-1)"
  local set = { [page] = anchors_of(text) }
  t.eq(set[page], { ["a-b-c-d_e"] = true, same = true, ["same-1"] = true })
  t.eq(paths_in(text), { "#same-1" })
  t.ok(not dead(page, "#same-1", set) and not dead(page, "guide.md", set))
  t.holds(dead(page, "#same-2", set), "no #same-2 in")
  t.holds(dead(page, "guide.md#no-heading", set), "no #no-heading in " .. docs .. "guide.md")
  t.holds(dead(page, "no-such.md#same", set), "dead link: no-such.md#same")
end)

t.test("every page of results/tables begins with a verdict", function()
  for _, page in ipairs(of_results) do
    t.ok(read(page):find "^# [^\n]+\n\n%*%*Verdict: ", page)
  end
  t.ok(#of_results >= 18, #of_results .. " pages")
end)

t.test("lines of text that are written by hand have at most 125 columns", function()
  local wrong = {}
  for _, page in ipairs(every_page) do
    local made, fence
    for line in (page:find "/results/" and "" or read(page)):gmatch "[^\n]+" do
      if line:find "^%s*```" then fence = not fence end
      if line:find "^<!%-%- %l+" then made = line:find "^<!%-%- made:" end
      if not made and not fence and not line:find "^|" and (utf8.len(line) or #line) > 125 then
        wrong[#wrong + 1] = page .. ": " .. line
      end
    end
  end
  t.ok(#wrong == 0, table.concat(wrong, "\n"))
end)

-- Returns the set of the paths and names of the sources below a folder of the tree.
local function sources(top, folder, set)
  for _, name in ipairs(tl.sys.list(top .. folder) or {}) do
    local path = folder .. "/" .. name
    if tl.sys.kind(top .. path) == "folder" then sources(top, path, set) end
    set[path], set[name] = true, true
  end
  return set
end

t.test("every source file that the comments of the public headers name exists", function()
  local top, known, count = docs .. "../", {}, 0
  for _, folder in ipairs { "core", "backends", "lua", "tests", "docs", "experiments" } do
    sources(top, folder, known)
  end
  for _, header in ipairs { "toeplab.h", "toeplab-lab.h", "backend.h", "status.h" } do
    local text = t.read(top .. "core/" .. header):gsub("#include[^\n]*", "")
    for name, ending in text:gmatch "([%w_][%w_./-]*%.(%l+))%f[^%w_]" do
      if ("c h lua md cu sql sh cmake tex pdf py 1 7 "):find(ending .. " ", 1, true) then
        count = count + 1
        t.ok(known[name], header .. " names " .. name)
      end
    end
  end
  t.ok(count >= 8, count .. " names")
end)

t.test("the README is read in two minutes", function()
  local _, lines = t.read(docs .. "../README.md"):gsub("\n", "")
  t.ok(lines <= 90, lines .. " lines")
end)

-- The names in a part of the library: those that it says are known when asked for another.
local function names_in(part)
  local list = {}
  local _, why = pcall(function() return part["no such name there"] end)
  for name in why:match "known: (.*)$":gmatch "[^, ]+" do list[#list + 1] = name end
  return list
end

t.test("every name of the Lua library is in the reference", function()
  local page, count = of_reference, 0
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

t.test("the keys of the ablations are in experiments.md", function()
  local said = read "reference/experiments.md":match "keys of `tl.lm.fixed`.-\n\n"
  local set = {}
  for name in said:gmatch "[%w_]+" do set[name] = true end
  for key in pairs(tl.lm.fixed {}) do t.ok(set[key], key) end
end)

t.test("the keys of a model are listed with all that they take, in 100 columns", function()
  for _, name in ipairs(tl.models.names()) do
    local said, count = says("model " .. name .. " --keys"), 0
    for line in said:gmatch "[^\n]+" do
      t.ok(utf8.len(line) <= 100, line)
      count = count + 1
    end
    local words = said:gsub("%s+", " ")
    for _, option in ipairs(tl.options.describe(tl.models.options(name))) do
      t.ok(said:find("\n  " .. option.name .. " ", 1, true), name .. " lacks " .. option.name)
      t.ok(words:find(option.type .. (option.range ~= "" and ": " .. option.range or "") .. "]", 1,
        true), option.name)
    end
    t.ok(count > 20, name)
  end
end)

-- ---- The commands of the pages ------------------------------------------------------------------

-- Splits a command line into words as a shell does, without what follows " #".
local function words_of(line)
  local words, word, quote = {}, nil, nil
  for c in (line:gsub("%s#.*$", "") .. " "):gmatch "." do
    if quote then
      if c == quote then quote = nil else word = word .. c end
    elseif c == "'" or c == '"' then
      quote, word = c, word or ""
    elseif c:find "[%s;|&>]" then
      words[#words + 1], word = word, nil
      if c:find "[;|&>]" then break end
    else
      word = (word or "") .. c
    end
  end
  return words
end

-- Returns the commands of this program in a page: in blocks, by their indentation or fence, and in
-- backquotes within a line. Each is a list of words that begins with the verb.
local function commands_in(text)
  local list = {}
  local function add(line)
    local rest = (" " .. line):match " %./lab (.*)$" or line:match "^%s*toeplab (.*)$"
    local words = rest and words_of(rest)
    if words and words[1] == "--threads" then words = table.move(words, 3, #words, 1, {}) end
    if words and words[1] and words[1]:find "^%l+$" then list[#list + 1] = words end
  end
  text = text:gsub("\\\n%s*", "")
  for line in text:gmatch "[^\n]+" do
    if line:find "^    " or line:find "^%./lab " or line:find "^timeout "
      or line:find "^toeplab " then add(line) end
  end
  for span in text:gmatch "`([^`\n]+)`" do add(span) end
  return list
end

-- Raises unless the words that follow `run FILE` or `plan FILE` fit the experiment in FILE. A word
-- in capitals stands for any.
local function check_keys(words)
  local path = words[2]:match "^experiments/[%w/-]+%.lua$"
  if not path then return end
  local keys = {}
  for i = 3, #words do
    if words[i]:find "^[%l_]+=" and not words[i]:find "%f[%w]%u%u+%f[%W]"
      and not words[i]:find "%.%.%." then keys[#keys + 1] = words[i] end
  end
  plan.trials(experiment.load(docs .. "../" .. path), keys)
end

t.test("every command of the pages names a verb, options, files and keys that exist", function()
  local known, count, keyed = {}, 0, 0
  for _, verb in ipairs { "test", "wheel", "bundle", "packages", "clean", "help", "complete" } do
    known[verb] = true
  end
  for _, verb in ipairs(verbs()) do known[verb] = true end
  for _, page in ipairs(every_page) do
    for _, words in ipairs(commands_in(read(page))) do
      local verb, line = words[1], page .. ": " .. table.concat(words, " ")
      count = count + 1
      t.ok(known[verb], line)
      local found, command = pcall(require, "toeplab.commands." .. verb)
      if found and type(command) == "table" and command.options then
        local ok, set, rest = pcall(arguments.parse, verb, command.options,
          table.move(words, 2, #words, 1, {}))
        local why = tostring(ok or set.message or set)
        t.ok(ok or why:find ": %-%S+ needs %u+$", line .. ": " .. why) -- `mark --note`
        -- A page of results names the keys of its commit.
        if ok and (verb == "run" or verb == "plan") and rest[1] and not page:find "/results/" then
          local fine, problem = pcall(check_keys, { verb, table.unpack(rest) })
          t.ok(fine, line .. ": " .. tostring(fine or problem.message or problem))
          keyed = keyed + 1
        end
      end
    end
  end
  t.ok(count > 150 and keyed > 50, count .. " commands, " .. keyed .. " of experiments")
end)

t.test("features.md has 39 rows, each of which shows something, and its fields exist", function()
  local count, fields = 0, 0
  for number, shown in read("features.md"):gmatch "\n| (%d+) | [^|]+ | ([^\n]+) |" do
    count = count + 1
    t.eq(tonumber(number), count)
    t.ok(shown:find "`" or shown:find "the same command again", number)
    for field in shown:gmatch "`(%l+) = " do
      local _, why = pcall(experiment "x", { trial = function() end, [field] = 1 })
      why = tostring(type(why) == "table" and why.message or why)
      t.ok(not why:find("has no field", 1, true), why)
      fields = fields + 1
    end
  end
  t.eq(count, 39)
  t.ok(fields >= 10, fields .. " fields")
end)

t.test("the README's ablation runs, and its models generate", function()
  local readme, count = t.read(docs .. "../README.md"), 0
  local code = readme:match "\n(    local tl = .-\n    })\n"
  t.in_folder(function(folder)
    t.write(folder .. "/width.lua", (code:gsub("\n    ", "\n"):gsub("^ +", "")))
    local function run(words)
      local text, status = t.shell(("cd '%s' && '%s' %s 2>&1"):format(folder, tl.sys.executable(),
        words))
      t.ok(status == 0, text)
      return text
    end
    local small = " steps=1 corpus='text:" .. ("some text "):rep(100) .. "'"
    for words in readme:gmatch "\n    %./lab (%l+ [^\n]-) +#" do
      count = count + 1
      run(words .. (count <= 2 and small or "")) -- plan and run, then what reads
    end
    t.eq(count, 4)
    t.ok(run "generate @last -p some -n 2":find "^some..\n")
  end)
end)

-- ---- The guide ----------------------------------------------------------------------------------

-- Returns the blocks of a page that are fenced as ```kind.
local function blocks_of(page, kind)
  local list = {}
  for block in read(page):gmatch("\n```" .. kind .. "\n(.-)\n```") do list[#list + 1] = block end
  return list
end

-- Returns a command of the guide as this test runs it: the program in the place of ./lab, trials at
-- the scale smoke. nil: it is not run here.
local function as_tested(line)
  if line:find "^PYTHONPATH" then return nil end -- tests/program/python.sh tests the package
  local program = (" '" .. tl.sys.executable() .. "' "):gsub("%%", "%%%%")
  local command = (" " .. line):gsub(" +# an error$", ""):gsub(" %./lab ", program)
    :gsub("^ timeout %-s INT 20", " timeout -s INT 600") -- a loaded machine is slow
  if command:find " run " or command:find " plan " then
    command = command:gsub(" scale=%l+", ""):gsub(" steps=%d+ scored=%d+", "") .. " scale=smoke"
  end
  return command:gsub("dim=32", "dim=8")
end

-- Runs a line of the guide in a folder. Returns whether it is one that is run here.
local function run_line(folder, line)
  local command = as_tested(line)
  if not command then return false end
  local said, code = t.shell(("cd '%s' && TOEPLAB_THREADS=1 TOEPLAB_DIR=results %s 2>&1"):format(
    folder, command))
  local wrong = line:find "# an error$" ~= nil
  t.ok((code ~= 0) == wrong and #said > 0, line .. " said: " .. said)
  return true
end

t.test("the commands of the guide do what it says, at scale smoke", function()
  t.in_folder(function(folder)
    tl.sys.mkdir(folder .. "/experiments")
    for _, name in ipairs { "quickstart", "tnn-table10" } do
      local path = "/experiments/" .. name .. ".lua"
      t.write(folder .. path, t.read(docs .. ".." .. path))
    end
    for _, script in ipairs(blocks_of("guide.md", "lua")) do
      t.write(folder .. "/" .. script:match "^%-%- ([%w-]+%.lua):", script .. "\n")
    end
    local count = 0
    for _, block in ipairs(blocks_of("guide.md", "sh")) do
      for line in block:gmatch "[^\n]+" do
        if run_line(folder, line) then count = count + 1 end
      end
    end
    t.ok(count >= 25, count .. " commands")
    for _, picture in ipairs { "curves.svg", "reach.svg", "kernel.svg", "reach.html" } do
      t.ok(t.read(folder .. "/" .. picture), picture)
    end
  end)
end)

-- ---- The database -------------------------------------------------------------------------------

t.test("database.md has the columns of every view, and its queries run", function()
  t.in_folder(function(folder)
    stores.fill(folder, { { name = "a", experiment = "reach", config = { max_lag = 8 },
      metrics = { loss = { 3, 2 }, bits = { 4 } }, files = { checkpoint = "x" } },
      { name = "b", experiment = "reach", config = { max_lag = 2 }, status = "failed" } })
    local store <close> = records.open(folder, "r")
    local text, views = read "database.md", 0
    for _, row in ipairs(store:rows
      "SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name") do
      local part, columns = text:match("\n## [^\n]*" .. row.name .. "[^\n]*\n(.-)\n## "), {}
      t.ok(part, "no " .. row.name)
      for name in part:gmatch "\n| `([%w_]+)` |[^|\n]*| [^|\n]+ |" do
        columns[#columns + 1] = name
      end
      local real = {}
      for i, c in ipairs(store:rows("SELECT name FROM pragma_table_info(?)", { row.name })) do
        real[i] = c.name
      end
      table.sort(real)
      table.sort(columns)
      t.eq({ row.name, columns }, { row.name, real })
      views = views + 1
    end
    t.eq(views, 7)
    local answers = {}
    for i, query in ipairs(blocks_of("database.md", "sql")) do answers[i] = #store:rows(query) end
    t.eq(answers, { 1, 2, 1, 1, 1 })
  end)
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
  t.eq(count, #mixers.names)
  for _, name in ipairs(mixers.names) do
    local row, fields = rows[name], mixers.class(name).spec.fields
    t.ok(row, "no " .. name)
    for option in row.options:gmatch "`([%w_]+)`" do
      t.ok(fields[option], ("%s has no option %s"):format(name, option))
    end
    t.eq({ name, row.published ~= "" }, { name, fields.as_published ~= nil })
    local is = {}
    for _, causal in ipairs { true, false } do
      local common = { heads = 2, max_length = 512, length = 64, causal = causal }
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
