-- test_reference.lua: the reference in Markdown: what is made of declarations is up to date,
-- nothing is missing, and the manual pages that are made of it are sound.
local t = require "harness"
local shell = require "toeplab.base.shell"
local tl = require "toeplab"

local docs = t.root .. "docs/"
package.path = docs .. "make/?.lua;" .. package.path
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

t.test("the experiment of experiments.md runs", function()
  local code = reference.read "reference/experiments.md":match "\n```lua\n(.-)\n```"
  t.in_folder(function(folder)
    t.write(folder .. "/width.lua", 'local tl = require "toeplab"\n' .. code .. "\n")
    local said, status = t.shell(("cd '%s' && '%s' run -q width.lua seeds=1 2>&1"):format(folder,
      tl.sys.executable()))
    t.ok(status == 0 and said:find "loss", said)
  end)
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
