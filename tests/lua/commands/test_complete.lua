-- test_complete.lua: what shells offer for the last word of a command line, and that bash, zsh and
-- fish do.
local t = require "harness"
local tl = require "toeplab"
local complete = require "toeplab.commands.unlisted.complete"
local shell = require "toeplab.base.shell"

local source = arg[0]:match "^(.*)tests/lua/.*$"
local program = tl.sys.executable()

local script = [[
local tl = require "toeplab"
return tl.experiment "odd-words" {
  fixed = { word = "a b", flag = false, encoder = "mlp" },
  grid = { odd = { "two words", 'quo"te', "$plain" } },
  scale = { smoke = { word = "c" } },
  trial = function(t, c)
    t:log { ["loss one"] = #c.odd + #c.word + #c.encoder + (c.flag and 1 or 0), loss = 2.0 }
  end,
}
]]

-- Calls check(folder) in a folder with an experiment, its trials, and files with odd names.
local function with_runs(check)
  t.in_folder(function(folder)
    tl.sys.mkdir(folder .. "/my files")
    for name, text in pairs { ["exp one.lua"] = script, ["notes.txt"] = "", ["model.h5"] = "",
      ["my files/it's $1.lua"] = "" } do
      tl.sys.write_file(folder .. "/" .. name, text)
    end
    t.ok(shell.run(("cd %s && %s run -q -C runs 'exp one.lua' >/dev/null && %s mark -C runs "
      .. "-t paper @last >/dev/null"):format(shell.quote(folder), program, program)))
    check(folder)
  end)
end

-- What is offered after `toeplab LINE`, in which F stands for the folder.
local function offers(folder, line)
  local words = complete.split("toeplab " .. line:gsub("F/", folder .. "/"), "")
  local list = complete.offers(words)
  for i, offer in ipairs(list) do list[i] = offer[1]:gsub("^" .. folder:gsub("%p", "%%%0"), "F") end
  return list
end

local function has(list, word)
  for _, w in ipairs(list) do
    if w == word then return true end
  end
  return false
end

t.test("splits a line as bash does", function()
  for line, want in pairs {
    ["toeplab show "] = { { "toeplab", "show", "" }, "", 0 },
    ["toeplab show a=b"] = { { "toeplab", "show", "a=b" }, "", 2 },
    ["toeplab show a\\=b"] = { { "toeplab", "show", "a=b" }, "", 0 },
    ["toeplab run my\\ f"] = { { "toeplab", "run", "my f" }, "", 0 },
    ["toeplab run 'my f"] = { { "toeplab", "run", "my f" }, "'", 0 },
    ["toeplab run k=\"$x\\\"y \\n"] = { { "toeplab", "run", 'k=$x"y \\n' }, '"', 2 },
    ["toeplab run 'a'\"b\"c"] = { { "toeplab", "run", "abc" }, "", 1 },
    ["toeplab show @best:max:lo"] = { { "toeplab", "show", "@best:max:lo" }, "", 10 },
  } do
    t.eq({ complete.split(line, "=:") }, want)
  end
end)

t.test("every verb and every option declares known kinds of words",
  function()
    local commands, kinds = require "toeplab.commands", require "toeplab.commands.unlisted.words"
    local count = 0
    local function known(who, entry)
      if type(entry) == "string" then entry = { of = entry } end
      count = count + (entry.of and 1 or 0)
      t.ok(not entry.of or kinds[entry.of], ("%s: no kind %s"):format(who, entry.of))
    end
    for _, verb in ipairs(commands.verbs()) do
      local command = commands.of(verb[1]) or { options = {} }
      for _, entry in ipairs(command.words or {}) do known(verb[1], entry) end
      for _, o in ipairs(command.options) do known(verb[1] .. " --" .. o.name, o) end
    end
    t.ok(count > 30, count .. " kinds")
  end)

-- Words of a command line, in which F is a folder; words that are offered, and some that are not.
local cases = {
  { "me", { "merge" }, { "mark", "worker" } },
  { "--threads 2 ver", { "verify", "version" } }, { "--threads=2 ver", { "verify", "version" } },
  { "help exit", { "exit-codes" } },
  { "fsck --r", { "--repair" }, { "--quick" } },
  { "worker --", { "--device" }, { "--array" } },
  { "run --", { "--on", "--share" }, { "--array-task", "--shard" } },
  { "nothing ''", {}, { "ls" } },
  { "run F/", { "F/exp one.lua", "F/my files/", "F/runs/" }, { "F/notes.txt" } },
  { "run 'F/my files/'", { "F/my files/it's $1.lua" } },
  { "run 'F/exp one.lua' ''", { "word=", "odd=", "scale=", "seeds=", "precision=" }, { "lr=" } },
  { "run 'F/exp one.lua' -j 2 odd=", { "odd=two words", 'odd=quo"te', "odd=$plain" } },
  { "run 'F/exp one.lua' odd=two\\ words,q", { 'odd=two words,quo"te' } },
  { "run 'F/exp one.lua' flag=", { "flag=true", "flag=false" } },
  { "run 'F/exp one.lua' encoder=p", { "encoder=piecewise" }, { "encoder=mlp" } },
  { "run 'F/exp one.lua' scale=", { "scale=smoke" } },
  { "run F/notes.txt ''", {}, { "seeds=" } },
  { "run --on ''", { "slurm" } },
  { "plan --on=", {}, { "--on=slurm" } },
  { "generate --method=r", { "--method=ring", "--method=relaxed" }, { "--method=fft" } },
  { "generate -m e", { "etsc" } },
  { "generate F/mo", { "F/model.h5" } },
  { "ls -C F/runs ''", { "@last", "@failed", "odd-words", "word=", "status=" } },
  { "ls -C F/runs word=", { "word=a b" } },
  { "ls -CF/runs odd=", { "odd=two words", "odd=$plain" } },
  { "ls --dir=F/runs tag=", { "tag=paper" } },
  { "ls -C F/runs odd!=t", { "odd!=two words" } },
  { "ls -C F/runs status=done,f", { "status=done,failed" } },
  { "ls -C F/runs --status f", { "failed" }, { "done" } },
  { "ls -C F/runs --sort -l", { "-loss", "-loss one" } },
  { "ls -C F/runs --columns odd,l", { "odd,loss", "odd,loss one" } },
  { "show -C F/runs @best:", { "@best:loss", "@best:loss one" } },
  { "show -C F/runs @best:min:l", { "@best:min:loss" } },
  { "show -C F/none ''", {}, { "@last" } },
  { "plot -C F/runs k", { "kernel" } },
  { "plot -C F/runs --metric l", { "loss", "loss one" } },
  { "watch -C F/runs --metric l", { "loss", "loss one" } },
  { "mark -C F/runs @last -u ''", { "paper" } },
  { "status -C F/runs ''", { "odd-words" } },
  { "table -C F/runs tnn/table1", { "tnn/table1", "tnn/table10" }, { "ski/table2" } },
  { "report -C F/runs odd-words odd=", { "odd=two words" } },
  { "verify ''", { "naive" } },
  { "verify F/", { "F/model.h5" }, { "F/notes.txt" } },
  { "verify --precision ''", { "bf16" } },
  { "merge F/", { "F/runs/" }, { "F/model.h5" } },
  { "model tnn", { "tnn_lm", "tnn-7/6" } },
  { "model tnn_lm enc", { "encoder=", "encoder_options=" } },
  { "model tnn_lm encoder=t", { "encoder=table" } },
  { "model tnn-7/6 tied=", { "tied=true", "tied=false" } },
  { "data f", { "fetch" } },
  { "data fetch wiki", { "wikitext-2" } },
  { "data generate l", { "listops" }, { "list" } },
  { "data generate listops folder tr", { "train=" } },
  { "bench l", { "lm", "layer" } },
}

t.test("offers words, options, values, files and trials", function()
  with_runs(function(folder)
    for _, case in ipairs(cases) do
      local list = offers(folder, case[1])
      for _, word in ipairs(case[2]) do
        t.ok(has(list, word), ("%s: no %s in %s"):format(case[1], word, table.concat(list, ", ")))
      end
      for _, word in ipairs(case[3] or {}) do
        t.ok(not has(list, word), ("%s: offers %s"):format(case[1], word))
      end
      t.ok(#case[2] > 0 or #list == 0, case[1] .. " offers " .. table.concat(list, ", "))
    end
    local id = offers(folder, "show -C F/runs ''")
    local count = 0
    for _, word in ipairs(id) do count = count + (word:find "^%x+$" and #word == 12 and 1 or 0) end
    t.eq(count, 3)
  end)
end)

-- What bash has in COMPREPLY after the beginning of a command line.
local function reply(folder, line)
  local code = [[source "$1"; COMP_WORDS=("$2") COMP_LINE=$3 COMP_POINT=${#3}
    _toeplab; printf '%s\n' "${COMPREPLY[@]}"]]
  local bash = ("cd %s && bash -c %s - %s %s %s"):format(shell.quote(folder), shell.quote(code),
    shell.quote(source .. "docs/completion/toeplab"), shell.quote(program), shell.quote(line))
  return shell.output(bash)
end

t.test("other shells get each word with its description", function()
  t.eq(shell.output(program .. " complete -- toeplab fsck --q"),
    "--quick\tcheck sizes instead of sha256, and no journals")
  t.eq(shell.output(program .. " complete -- toeplab merg"),
    "merge\tcopy the trials of another results folder")
  t.eq(shell.output(program .. " complete -- toeplab"), nil)
end)

-- Shells, how they are called, and code that prints the words offered after "~/toeplab fsck --q";
-- its argument is the folder of the completions.
local shells = {
  { "bash", "bash -c %s bash", [==[source "$1/toeplab"; COMP_WORDS=("~/toeplab")
    COMP_LINE="~/toeplab fsck --q" COMP_POINT=${#COMP_LINE}; _toeplab; echo "$COMPREPLY"]==] },
  { "zsh", "zsh -fc %s zsh", [==[compadd() { [ $5 != whole ] || print -r -- $whole }
    offer() { words=("~/toeplab" fsck --q) CURRENT=3 PREFIX=--q; source "$1/_toeplab" }
    offer "$1"]==] },
  { "fish", "fish -Nc %s", [==[source "$argv[1]/toeplab.fish"
    complete -C "~/toeplab fsck --q" | string split -f 1 \t]==] },
}

for _, one in ipairs(shells) do
  t.test(one[1] .. " completes after a program in the home folder", function()
    if not shell.on_path(one[1]) then return print("skipped: no " .. one[1]) end
    t.in_folder(function(home)
      assert(os.execute(("ln -s %s %s/toeplab"):format(shell.quote(program), home)))
      t.eq(shell.output(("HOME=%s %s %s"):format(home, one[2]:format(shell.quote(one[3])),
        shell.quote(source .. "docs/completion"))), "--quick")
    end)
  end)
end

t.test("bash replaces the last word, or its part after = and :, and keeps quotes", function()
  if not shell.on_path "bash" then return print "skipped: no bash" end
  with_runs(function(folder)
    for line, want in pairs {
      ["toeplab repr"] = "reproduce",
      ["DIR=x toeplab gener"] = "generate",
      ["toeplab run exp"] = "exp\\ one.lua",
      ["toeplab run 'exp"] = "exp one.lua",
      ["toeplab run my\\ files/"] = "my\\ files/it\\'s\\ \\$1.lua",
      ['toeplab run "my files/i'] = "my files/it's \\$1.lua",
      ["toeplab run exp\\ one.lua wor"] = "word=",
      ["toeplab run exp\\ one.lua word="] = "a\\ b",
      ["toeplab run exp\\ one.lua 'odd=q"] = 'odd=quo"te',
      ["toeplab ls -C runs odd=q"] = 'quo\\"te',
      ['toeplab ls -C runs "odd=q'] = 'odd=quo\\"te',
      ["toeplab show -C runs @best:min:loss\\ "] = "loss\\ one",
      ["toeplab plot --fit=po"] = "power",
      ["toeplab show -C none @be"] = "",
    } do
      t.eq({ line, reply(folder, line) }, { line, want })
    end
  end)
end)

t.done()
