-- test_identity.lua: what makes a trial another one, and what does not: comments in any file,
-- another engine, an older store.
local code = require "toeplab.trials.code"
local core = require "toeplab.core"
local corpus = require "toeplab.tasks.corpus"
local experiment = require "toeplab.trials.experiment"
local identity = require "toeplab.trials.identity"
local plan = require "toeplab.trials.plan"
local provenance = require "toeplab.trials.provenance"
local t = require "harness"
local trials = require "trials"

local in_folder = t.in_folder

local script = [[
local tl = require "toeplab"
return tl.experiment "same" {
  fixed = { steps = 2 },
  grid = { a = { 1, 2 } },
  trial = function(t, c)
    local x = tl.zeros(1)
    local part = { state = function() return { x = x } end, load = function(_, s) x:copy(s.x) end }
    for step in t:steps(c.steps, part, part) do t:log { loss = c.a + step } end
  end,
}
]]

-- What of the code that may change without making it other code, and what may not.
local alike = {
  { "blanks and line ends", "a=b\nc = -1", "  a\t= b ;\r\n c= - 1", false },
  { "layout", "f(a, b)\nlocal x = {1,\n  2}", "f ( a,b )local x={ 1, 2 }", true },
  { "a comment", "f() -- one\ng()", "f()\n--[[ two\nlines ]] --[==[ ]] ]==]\ng()--", true },
  { "the line for the shell", "#!/usr/bin/env toeplab\nf()", "f()", true },
  { "a byte order mark", "\xEF\xBB\xBFf()", "f()", true },
  { "both", "\xEF\xBB\xBF#!/usr/bin/env toeplab\nf()", "f()", true },
  { "line ends in a long text", "f [[a\nb\n\nc]]", "f [[a\r\nb\r\n\r\nc]]", true },
  { "the line ends of old Macintoshes", "f [[a\nb]]", "f [[a\rb]]", true },
  { "line ends in a text", "f 'a\\\nb'", "f 'a\\\r\nb'", true },
  { "a line more in a long text", "f [[a\nb]]", "f [[a\n\nb]]", false },
  { "a name", "f(a)", "f(b)", false },
  { "a text", "f 'a  b'", "f 'a b'", false },
  { "dashes in a text", "f '-- a'", "f '-- b'", false },
  { "a quote in a text", [[f "\" -- a"]], [[f "\" -- b"]], false },
  { "a long text", "f [==[ a]] -- x\n]==]", "f [==[ a]] -- y\n]==]", false },
  { "numbers apart from points", "x = 1 .. .2", "x = 1. .. 2", false },
  { "an exponent", "x = 1e-5", "x = 1e -5", false },
  { "a hexadecimal number", "x = 0xAp-1", "x=0xAp-1 -- 5.0", true },
  { "operators", "x = a // b == c", "x=a//b==c", true },
}

t.test("the hash of code depends only on its tokens", function()
  for _, case in ipairs(alike) do
    local name, a, b, same = table.unpack(case)
    t.eq({ name, code.hash(a) == code.hash(b) }, { name, same })
  end
end)

t.test("the tokens of each library file compile to the same program", function()
  local function walk(folder)
    for _, name in ipairs(core.sys.list(folder)) do
      local path = folder .. "/" .. name
      if core.sys.kind(path) == "folder" then
        walk(path)
      else
        local text = core.sys.read_file(path)
        local bare = code.tokens(text)
        t.ok(load(bare, "=bare", "t"), path)
        t.eq(code.tokens(bare), bare)
      end
    end
  end
  walk(provenance.library())
end)

t.test("hashing a table of a megabyte takes a few passes of gmatch", function()
  local rows = {}
  for i = 1, 2^16 do rows[i] = "{1.25, 'ab', x2}" end
  local text = "return {" .. table.concat(rows, ",") .. "}"
  local function seconds(read)
    local least = math.huge
    for _ = 1, 3 do
      local began = os.clock()
      read()
      least = math.min(least, os.clock() - began)
    end
    return least
  end
  local pass = seconds(function()
    local list = {}
    for token in text:gmatch "[^%s]" do list[#list + 1] = token end
  end)
  local ratio = seconds(function() code.tokens(text) end) / pass
  t.ok(ratio < 5, ratio)
end)

t.test("an experiment may begin with a byte order mark", function()
  in_folder(function(folder)
    t.eq(trials.run(folder, script), 0)
    local code, said = trials.run(folder, "\xEF\xBB\xBF" .. script)
    t.eq({ code, said }, { 0, said })
    t.ok(said:find "2 trials: 2 already done", said)
  end)
end)

-- ---- Sweeps -----------------------------------------------------------------------------------

local function count(folder, condition)
  return trials.query(folder, "SELECT count(*) AS n FROM v_trials WHERE " .. condition)[1].n
end

local function append(path, text)
  local file <close> = assert(io.open(path, "ab"))
  file:write(text)
end

-- A copy of the program in folder; returns a function that runs x.lua there with it, under more
-- words, and returns the exit code and what it printed.
local function copy_program(folder)
  local here = core.sys.executable():match "^(.*)/"
  assert(os.execute(("cp -r '%s' '%s/lua' && cp '%s' '%s/toeplab'"):format(
    provenance.library():match "^(.*)/", folder, core.sys.executable(), folder)))
  local command = ("cd '%s' && LUA_PATH='./?.lua;;' TOEPLAB_LUA='%s/lua' TOEPLAB_BACKENDS="
    .. "'%s/backends' ./toeplab run x.lua -C results "):format(folder, folder, here)
  return function(words)
    local text, code = t.shell(command .. (words or "") .. " 2>&1")
    return code, text
  end
end

t.test("a finished sweep stays finished after a comment in any file, the script too", function()
  in_folder(function(folder)
    t.write(folder .. "/own.lua", "return 7 -- seven\n")
    t.write(folder .. "/x.lua", "local own = require 'own'\n"
      .. script:gsub("c%.a %+ step", "c.a + own * step"))
    local run = copy_program(folder)
    local status, said = run()
    t.eq(status, 0)
    t.holds(said, "2 trials: 2 done")
    append(folder .. "/own.lua", "-- a comment\n")
    append(folder .. "/x.lua", "-- a comment\n")
    status, said = run()
    t.eq(status, 0)
    t.holds(said, "2 trials: 2 already done")
    t.ok(not said:find "other code", said)
    local nn, curves = "lua/toeplab/nn/init.lua", "lua/toeplab/report/figures/curves.lua"
    for _, file in ipairs { nn, curves, "toeplab" } do
      append(folder .. "/" .. file, "-- a comment\n")
      status, said = run()
      t.eq({ file, status }, { file, 0 })
      t.holds(said, "2 trials: 2 already done")
      t.holds(said, "2 finished trials made by other code: kept (run --redo runs them again)")
    end
    t.holds(select(2, run "-n --redo"), "redo")
    t.holds(select(2, run "--redo"), "2 trials: 2 done")
    t.ok(not select(2, run()):find "other code")
    t.eq(count(folder, "1"), 2)
    t.eq(#trials.query(folder, "SELECT 1 FROM v_events WHERE kind = 'redo'"), 2)
    t.write(folder .. "/own.lua", "return 8\n")
    t.holds(select(2, run()), "2 trials: 2 done")
    t.eq(count(folder, "status = 'done'"), 4)
  end)
end)

-- A trial that tokenises a text by a file of merges; where the file `change` exists, its content
-- replaces that of the file TARGET before the trial reads it.
local reading = [[
local tl = require "toeplab"
return tl.experiment "reading" {
  fixed = { corpus = "FOLDER/a.txt", tokenizer = "bpe", merges = "FOLDER/a.bpe", steps = 1 },
  trial = function(t, c)
    local change = io.open("FOLDER/change")
    if change then io.open("FOLDER/TARGET", "w"):write(change:read "a"):close() end
    tl.corpus(c.corpus, c)
    for _ in t:steps(c.steps) do t:log { loss = 1 } end
  end,
}
]]

local function merges(folder, name, text)
  t.write(folder .. "/text", text)
  t.ok(select(2, t.toeplab(("data bpe %s/text --size 258 --out %s/%s -q"):format(folder, folder,
    name))) == 0)
end

local function text_of(word) return (word .. " and "):rep(200) end

t.test("a different file of merges makes a different trial", function()
  in_folder(function(folder)
    local code_of = reading:gsub("FOLDER", folder)
    t.write(folder .. "/a.txt", text_of "one")
    merges(folder, "a.bpe", text_of "one")
    t.holds(select(2, trials.run(folder, code_of)), "1 trial: 1 done")
    t.holds(select(2, trials.run(folder, code_of)), "1 already done")
    merges(folder, "a.bpe", text_of "two")
    t.holds(select(2, trials.run(folder, code_of)), "1 trial: 1 done")
    t.eq(count(folder, "status = 'done'"), 2)
  end)
end)

t.test("a file that two keys name has the hash of each", function()
  in_folder(function(folder)
    local path = folder .. "/a.txt"
    t.write(path, "one\r\ntwo\r\n") -- a corpus counts without carriage returns
    t.write(folder .. "/x.lua", (reading:gsub("a%.bpe", "a.txt"):gsub("FOLDER", folder)))
    local exp = experiment.load(folder .. "/x.lua")
    local list = plan.trials(exp, {})
    identity.identify(exp, list)
    t.eq(list[1].data, { corpus = corpus.hash(path), merges = core.sha256_file(path) })
    t.ok(list[1].data.corpus ~= list[1].data.merges)
  end)
end)

t.test("a corpus or merges that change while a sweep runs end their trials", function()
  for target, want in pairs { ["a.txt"] = "corpus FOLDER/a.txt has changed since the run began",
    ["a.bpe"] = "the file of merges FOLDER/a.bpe has changed since the run began" } do
    in_folder(function(folder)
      t.write(folder .. "/a.txt", text_of "one")
      merges(folder, "a.bpe", text_of "one")
      merges(folder, "change", text_of "two")
      local status, said = trials.run(folder, (reading:gsub("TARGET", target)
        :gsub("FOLDER", folder)))
      t.eq(status, 1)
      t.holds(said, (want:gsub("FOLDER", folder)))
      t.eq(count(folder, "status = 'done'"), 0)
    end)
  end
end)

-- A trial of images with a part in a file elsewhere; with the key change it copies the file
-- `change` over that part before it reads it.
local seeing = [[
local tl = require "toeplab"
return tl.experiment "seeing" {
  fixed = { file = "FOLDER/x.npy", PART_file = "FOLDER/else/y.npy", change = false, steps = 1 },
  data = { "file" },
  trial = function(t, c)
    if c.change then os.execute "cp FOLDER/change FOLDER/else/y.npy" end
    tl.tasks.images { file = c.file, PART_file = c.PART_file }
    for _ in t:steps(c.steps) do t:log { loss = 1 } end
  end,
}
]]

t.test("images of another file to validate or test with are part of a trial", function()
  for _, part in ipairs { "valid", "test" } do
    in_folder(function(folder)
      local function array(name, description, dims, elements)
        t.write(folder .. "/" .. name, "\x93NUMPY\1\0" .. string.pack("<s2",
          ("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n"):format(description, dims))
          .. elements)
      end
      core.sys.mkdir(folder .. "/else")
      for _, name in ipairs { "x", "else/y" } do
        array(name .. ".npy", "|u1", "20, 1, 1", ("ab"):rep(10))
        array(name .. "_labels.npy", "|u1", "20,", ("\0\1"):rep(10))
      end
      array("change", "|u1", "20, 1, 1", ("ba"):rep(10))
      local code_of = seeing:gsub("FOLDER", folder):gsub("PART", part)
      local function run(...) return select(2, trials.run(folder, code_of, { ... })) end
      t.holds(run(), "1 trial: 1 done")
      t.holds(run(), "1 already done")
      array("else/y_labels.npy", "|u1", "20,", ("\1\0"):rep(10))
      t.holds(run(), "1 trial: 1 done")
      t.holds(run "change=true", ("images %s/else/y.npy has changed since the run began"):format(
        folder))
    end)
  end
end)

-- A trial of a language model of three texts; with the key change it copies the file `change` over
-- the text to test with before it reads it.
local telling = [[
local tl = require "toeplab"
return tl.experiment "telling" {
  fixed = { corpus = "FOLDER/a.txt", valid_file = "FOLDER/b.txt",
    test_file = "FOLDER/c.txt", change = false, steps = 1 },
  check = CHECK,
  trial = function(t, c)
    if c.change then os.execute "cp FOLDER/change FOLDER/c.txt" end
    local data = tl.corpus(c.corpus, c)
    for _ in t:steps(c.steps) do t:log { loss = data.test:numel() } end
  end,
}
]]

t.test("the texts of a corpus to validate and test with are part of a trial", function()
  in_folder(function(folder)
    local code_of = telling:gsub("FOLDER", folder):gsub("CHECK", "nil")
    local function run(...) return select(2, trials.run(folder, code_of, { ... })) end
    for name, text in pairs { ["a.txt"] = "one", ["b.txt"] = "two", change = "four" } do
      t.write(folder .. "/" .. name, text)
    end
    t.holds(run(), ("x.lua:4: key test_file: %s/c.txt: no such file"):format(folder))
    t.write(folder .. "/c.txt", "three")
    t.holds(run(), "1 trial: 1 done")
    t.holds(run(), "1 already done")
    t.write(folder .. "/b.txt", "another")
    t.holds(run(), "1 trial: 1 done")
    t.holds(run "change=true", ("corpus %s/c.txt has changed since the run began"):format(folder))
    code_of = code_of:gsub("check = nil", "check = tl.lm.check"):gsub('test_file = "[^"]*", ', "")
    t.holds(run(), "x.lua:5: corpus: option 'test_file' is missing")
  end)
end)

t.test("a raised TL_NUMERICS makes every trial new", function()
  in_folder(function(folder)
    t.write(folder .. "/x.lua", script)
    local run = copy_program(folder)
    run()
    local path = folder .. "/lua/toeplab/trials/code.lua"
    t.write(path, ("require('toeplab.core').numerics = %d\n"):format(core.numerics + 1)
      .. core.sys.read_file(path))
    t.holds(select(2, run()), "2 trials: 2 done")
    t.eq(trials.query(folder, "SELECT numerics, count(*) AS n FROM v_trials GROUP BY 1"),
      { { numerics = core.numerics, n = 2 }, { numerics = core.numerics + 1, n = 2 } })
  end)
end)

t.test("a computed experiment name distinguishes two experiments", function()
  in_folder(function(folder)
    local text = script:gsub('"same"', ('(io.open "%s/name":read "a")'):format(folder))
    local function run_as(name, steps)
      t.write(folder .. "/name", name)
      return trials.run(folder, (text:gsub("steps = 2", steps)))
    end
    t.eq(run_as("one", "steps = 2"), 0)
    local status, said = run_as("two", "steps = 2")
    t.eq(status, 0)
    t.holds(said, "2 trials: 2 done")
    local of_length = "steps = #io.open('" .. folder .. "/name'):read 'a'"
    t.eq(run_as("one", of_length), 0)
    t.eq(run_as("three", of_length), 0)
    t.eq(trials.query(folder, [[SELECT s.experiment, count(*) AS n FROM v_members m
      JOIN sweeps s ON s.id = m.sweep GROUP BY s.id ORDER BY s.id]]), {
      { experiment = "one", n = 2 }, { experiment = "two", n = 2 },
      { experiment = "one", n = 2 }, { experiment = "three", n = 2 } })
  end)
end)

t.test("a trial that is continued by other code has an event", function()
  in_folder(function(folder)
    t.write(folder .. "/x.lua", (script:gsub("steps = 2", "steps = 400"):gsub("do t:log",
      "do if step == 200 and os.remove 'stop' then " .. trials.STOP .. " end t:log")))
    t.write(folder .. "/stop", "")
    local run = copy_program(folder)
    t.eq(run "a=1", 143)
    append(folder .. "/lua/toeplab/nn/init.lua", "-- a comment\n")
    t.eq(run "a=1", 0)
    local events = trials.query(folder, "SELECT kind, step, text FROM v_events")
    t.eq({ #events, events[1].kind }, { 1, "code" })
    t.ok(events[1].step >= 199, events[1].step)
    t.ok(events[1].text:find "^by code %x+ up to this step, by %x+ from here on$", events[1].text)
    append(folder .. "/lua/toeplab/nn/init.lua", "-- a comment\n")
    t.eq(run "a=1 --redo", 0)
    events = trials.query(folder, "SELECT kind, text FROM v_events")
    t.eq({ #events, events[1].kind }, { 1, "redo" })
    t.ok(events[1].text:find "^done by code %x+$", events[1].text)
  end)
end)

t.done()
