-- test_reference.lua: the reference in Markdown: what is made of declarations is up to date,
-- nothing is missing, and the manual pages that are made of it are sound.
local t = require "harness"
local shell = require "toeplab.base.shell"
local tl = require "toeplab"

local docs = t.root .. "docs/"
package.path = docs .. "make/?.lua;" .. package.path
local functions = require "functions"
local markdown = require "markdown"
local pages = require "pages"
local reference = require "reference"
local roff = require "roff"

local command = reference.read "reference/command.md"

t.test("a page is read into blocks", function()
  local page = "# A `b`\nwords\nmore\n\n- one\n  two\n- three\n<!-- note -->\n"
    .. "| x | y |\n|---|---|\n| a \\| b | |\n```lua\nx = 1\n\n```\n"
  t.eq(markdown.read(page), {
    { kind = "heading", level = 1, text = "A `b`" }, { kind = "text", text = "words\nmore" },
    { kind = "list", items = { "one\ntwo", "three" } },
    { kind = "table", header = { "x", "y" }, rows = { { "a | b", "" } } },
    { kind = "code", info = "lua", lines = { "x = 1", "" } } })
  t.raises(markdown.read, "has no end: x", "```\nx\n")
end)

t.test("the parts that are made from declarations are up to date", function()
  local count = 0
  for path, text in pairs(reference.pages()) do
    count = count + 1
    t.ok(t.read(path) == text, path .. " is out of date: ninja -C build reference")
  end
  t.ok(count > 0)
end)

t.test("the page of the program has every verb, and no other", function()
  local known, count = { help = true, version = true }, 0
  for verb in t.toeplab "help":gmatch "\n  (%l+) +" do
    count = count + 1
    if not known[verb] then
      t.holds(command, "\n### " .. verb .. "\n", "\n<!-- made: verb " .. verb .. " -->\n",
        "\n<!-- made: options " .. verb .. " -->\n")
    end
    known[verb] = true
  end
  t.ok(count > 20, count .. " verbs")
  for verb in command:gmatch "\n### (%l+)\n" do t.ok(known[verb], "there is no verb " .. verb) end
end)

t.test("the page of the program has every exit code and variable that the help has", function()
  for code in t.toeplab "help exit-codes":gmatch "\n  (%d+)" do
    t.holds(command, "\n| " .. code .. " |")
  end
  for name in t.toeplab "help environment":gmatch "%f[%u](TOEPLAB_%u+)" do
    t.holds(command, "\n| `" .. name .. "` |")
  end
end)

-- Runs an example. Returns the lines that it prints, and those of its comments -->.
local function run_example(page, code)
  local printed, said = {}, {}
  local function keep(...)
    local words = table.pack(...)
    for i = 1, words.n do words[i] = tostring(words[i]) end
    for line in (table.concat(words, " ") .. "\n"):gmatch "([^\n]*)\n" do
      printed[#printed + 1] = line
    end
  end
  local env = setmetatable({ tl = tl, print = keep }, { __index = _G })
  tl.seed(1)
  tl.tape_clear()
  assert(load(code, "=" .. page, "t", env))()
  for line in code:gmatch "%-%-> ?([^\n]*)" do said[#said + 1] = line end
  return printed, said
end

t.test("the examples print what they say", function()
  local count = 0
  for path, text in pairs(reference.pages()) do
    for code in text:gmatch "\n```lua\n(.-)\n```" do
      local printed, said = run_example(path:match "[^/]*$", code)
      t.eq({ path, printed }, { path, said })
      count = count + 1
    end
  end
  t.ok(count >= 25, count .. " examples")
end)

-- ---- What no example calls ----------------------------------------------------------------------

-- The sections, or functions, that no example calls, and why.
local uncalled = {}
for why, names in pairs {
  ["needs several processes: tests/mpi"] = { "store: Ranks" },
  ["needs a GPU"] = { "tl.use_device", "tl.capture", "g:run", "g:close" },
  ["needs a terminal"] = { "tl.sys.keys", "Keys:read", "Keys:close" },
  ["needs a trial of its own"] = { "Trial:model_of", "tl.model", "tl.cost.timer" },
  ["needs a file of others"] = { "tl.load_backend", "tl.inflate", "tl.published.module" },
  ["needs data that are not here, or large"] = { "tl.tasks.imdb", "tl.tasks.retrieval",
    "tl.tasks.cifar", "tl.tasks.cifar-part", "tl.tasks.pathfinder", "tl.tasks.path-x",
    "tl.tasks.glue", "tl.tasks.images" },
  ["a part of experiments/glue-mlm.lua"] = { "tl.mlm.sizes", "tl.mlm.options",
    "tl.mlm.options_of_model", "tl.mlm.check_model", "tl.mlm.corpus", "tl.mlm.start",
    "tl.mlm.check", "tl.mlm.trial" },
  ["a part of what an example calls"] = { "tl.adam_step", "tl.sgd_step" },
  ["the sum of what the example calls"] = { "tl.lm.trial" },
} do
  for _, name in ipairs(names) do uncalled[name] = why end
end

-- Returns the entries of a block of signatures.
local function entries_of(block)
  local lines = {}
  for line in block:gmatch "[^\n]+" do lines[#lines + 1] = line end
  return functions.entries(lines)
end

-- Returns the functions of a section that neither its examples nor code call.
local function uncalled_in(section, code)
  local list = {}
  for example in section:gmatch "\n```lua\n(.-)\n```" do code = code .. "\n" .. example end
  code = code:gsub("%-%-[^\n]*", ""):gsub('%["([%w_-]+)"%]', ".%1")
  for block in section:gmatch "\n```signatures\n(.-)\n```" do
    for _, entry in ipairs(entries_of(block)) do
      for _, d in ipairs(entry.list) do
        local method = d.path and not d.path:find "^tl%." and d.path:match "[%w_]+$"
        local call = d.path and (method and "[.:]" .. method
          or "%f[%w]" .. d.path:gsub("%p", "%%%0"))
        if d.path and not code:find(call .. "%f[^%w_-]") then list[#list + 1] = d.path end
      end
    end
  end
  return list
end

t.test("a function that no example calls is found", function()
  local section = "\n```signatures\ntl.f(x)  tl.g(x)\nx:h(): Tensor\nT:i()\ntl.a-b(x)\ntl.c-d(x)\n"
    .. "```\n```lua\ntl.ff(x) -- tl.f(x)\ntl.g(x):h()\ntl[\"a-b\"](x)\n```"
  t.eq(uncalled_in(section, ""), { "tl.f", "T:i", "tl.c-d" })
  t.eq(uncalled_in(section, "tl.f(t:i())"), { "tl.c-d" })
end)

t.test("the examples of a section call its functions, unless a reason is listed", function()
  local missing, needed = {}, {}
  for path, text in pairs(reference.pages()) do
    local page, fence = path:match "([%w_]+)%.md$", false
    local sections = { { title = "", text = "\n" } }
    for line in text:gmatch "([^\n]*)\n" do
      if line:find "^```" then fence = not fence end
      local title = not fence and line:match "^#+ (.*)"
      if title then sections[#sections + 1] = { title = title, text = "\n" } end
      sections[#sections].text = sections[#sections].text .. line .. "\n"
    end
    local first = sections[2].text:match "\n```lua\n(.-)\n```" or "" -- of the page's head
    for _, section in ipairs(sections) do
      for _, name in ipairs(uncalled_in(section.text, first)) do
        local of = page .. ": " .. section.title
        if uncalled[of] then needed[of] = true
        elseif uncalled[name] then needed[name] = true
        else missing[#missing + 1] = of .. ": " .. name end
      end
    end
  end
  table.sort(missing)
  t.ok(#missing == 0, "called by no example:\n" .. table.concat(missing, "\n"))
  for name in pairs(uncalled) do t.ok(needed[name], name .. " is called, or not there") end
end)

t.test("the experiments of the pages run", function()
  local count = 0
  for path, text in pairs(reference.pages()) do
    for code, name in text:gmatch '\n```lua\n(return tl%.experiment "(%w+)" .-)\n```' do
      t.in_folder(function(folder)
        t.write(folder .. "/x.lua", 'local tl = require "toeplab"\n' .. code .. "\n")
        local scale = code:find "\n  scale = " and "scale=smoke" or ""
        local said, status = t.shell(("cd '%s' && '%s' run -q x.lua seeds=%s 2>&1"):format(folder,
          tl.sys.executable(), name == "falls" and "2" or "1 " .. scale))
        t.ok(status == 0 and said:find "%d%.%d", path .. ": " .. name .. ": " .. said)
        count = count + 1
      end)
    end
  end
  t.ok(count >= 4, count .. " experiments")
end)

t.test("every declaration of a function says what it does", function()
  local count = 0
  for path, text in pairs(reference.pages()) do
    for block in text:gmatch "\n```signatures\n(.-)\n```" do
      for _, entry in ipairs(entries_of(block)) do
        if entry.list[1].path then
          t.ok(entry.text:gsub("%([^()]*%)$", ""):find "%S", path .. ": " .. entry.head)
          count = count + 1
        end
      end
    end
  end
  t.ok(count > 400, count .. " declarations")
end)

t.test("every function that declares options has a table of them", function()
  local text = ""
  for _, page in pairs(reference.pages()) do text = text .. page end
  for name in pairs(tl.options.declared) do
    t.ok(text:find("<!-- made: " .. name .. " -->", 1, true), name)
  end
end)

t.test("Markdown becomes roff", function()
  local made = roff.page { name = "x", section = 1, version = "1", about = "a page",
    names = { ["b.md"] = "b(7)" }, see = { "b(7)" },
    pages = { "# X\n\n'a' is `-b`, **not** \\<c>\n.d\n\n## E f\n\n- see "
      .. "[b.md](b.md), [g.md](../g.md)\n  and [h](i.md)\n\n| k | l | m |\n|---|---|---|\n"
      .. "| `n` | o | p |\n| é | | |\n\n```sh\n.q\\\n```\n"
      .. "```signatures\nwith x: Tensor\ntl.f(x): Tensor  of x\n    and y\n```\n" } }
  t.eq(made:match "%.ad l\n(.*)$", [[
.SH NAME
x \- a page
.SH DESCRIPTION
.PP
\(aqa\(aq is \fB\-b\fR, \fBnot\fR <c>
\&.d
.SH E F
.IP \(bu 2
see b(7), docs/g.md
and h
.TP
\fBn\fR
o (m: p)
.TP
\[u00E9]
.PP
.RS 4
.EX
\&.q\e
.EE
.RE
.PP
with x: Tensor
.TP
\fBtl.f(x): Tensor\fR
of x and y
.SH SEE ALSO
b(7)
]])
end)

t.test("the manual pages are sound to groff", function()
  if not shell.on_path "groff" then t.skip "there is no groff" end
  for name, make in pairs(pages) do
    if name:find "%.%d$" then
      local path = os.tmpname()
      tl.sys.write_file(path, make())
      t.eq(shell.output("groff -mandoc -ww -Tutf8 " .. path .. " 2>&1 >/dev/null"), "")
      os.remove(path)
    end
  end
end)

t.done()
