-- test_strangers.lua: what comes from others, or goes to them: names and files of a results folder,
-- texts for a terminal and for other programs, and secrets.
local t = require "harness"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local provenance = require "toeplab.trials.provenance"
local records = require "toeplab.store.records"
local rebuild = require "toeplab.store.rebuild"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local trial_files = require "toeplab.store.trial_files"

-- ---- Names and files --------------------------------------------------------------------------

t.test("a file is runs/ID/NAME of its trial, and nothing else", function()
  local id, other = core.sha256 "a", core.sha256 "b"
  local short = id:sub(1, 12)
  for path, good in pairs {
    ["runs/" .. short .. "/step-00000010.h5"] = true, ["runs/" .. short .. "/a b"] = true,
    ["runs/" .. short .. "/.hidden"] = false, ["runs/" .. short .. "/a/b"] = false,
    ["runs/" .. short .. "/.."] = false, ["runs/" .. short .. "/"] = false,
    ["runs/" .. other:sub(1, 12) .. "/a"] = false, ["/runs/" .. short .. "/a"] = false,
    ["runs/" .. short .. "/a\n"] = false, ["runs/" .. short .. "/../x"] = false,
    ["runs/" .. short:upper() .. "/a"] = false, [""] = false,
  } do
    local ok, why = pcall(trial_files.check_row, "folder", id, { path = path })
    t.ok(ok == good, path)
    t.ok(ok or why.code == 6 and why.message:find(path, 1, true), path)
  end
  for _, bad in ipairs { "../../x", id:upper(), id:sub(2), id .. "0", id:gsub(".", "g", 1), 7 } do
    t.ok(not trial_files.is_id(bad))
    t.raises(trial_files.folder, "is not a sha256", "folder", bad)
  end
end)

t.test("links and pipes in a folder are refused", function()
  t.in_folder(function(folder)
    local id = core.sha256 "a"
    local path = "runs/" .. id:sub(1, 12) .. "/x"
    assert(core.sys.mkdir(folder .. "/runs/" .. id:sub(1, 12)))
    t.eq(trial_files.path(folder, id, { path = path }), folder .. "/" .. path)
    os.execute(("ln -s /etc/passwd '%s/%s'"):format(folder, path))
    t.raises(trial_files.path, "is a symbolic link", folder, id, { path = path })
    t.raises(trial_files.check_all, "is a symbolic link", folder, id)
    os.execute(("cd '%s' && rm %s && mkfifo %s"):format(folder, path, path))
    t.raises(trial_files.path, "is not a regular file", folder, id, { path = path })
    os.remove(folder .. "/" .. path)
    os.execute(("cd '%s/runs' && mv * ../away && ln -s ../away %s"):format(folder, id:sub(1, 12)))
    t.raises(trial_files.folder, "is a symbolic link", folder, id)
    os.execute(("cd '%s' && ln -s away reports"):format(folder))
    t.raises(trial_files.make, "is a symbolic link", folder, "reports")
  end)
end)

t.test("a database is not rebuilt where one of its files is a link", function()
  for _, name in ipairs { "runs.db", "runs.db-wal", "runs.db-shm", "runs.db-journal", "lock",
      "runs" } do
    t.in_folder(function(folder)
      t.write(folder .. "/outside", "precious")
      assert(core.sys.mkdir(folder .. "/results"))
      if name ~= "runs.db" then t.write(folder .. "/results/runs.db", "damaged") end
      os.execute(("cd '%s/results' && ln -s ../outside '%s'"):format(folder, name))
      t.raises(rebuild.set_aside, "is a symbolic link", folder .. "/results")
    end)
  end
end)

t.test("what lies in a folder is known by any path to it", function()
  t.in_folder(function(folder)
    assert(core.sys.mkdir(folder .. "/results/deep/er"))
    assert(core.sys.mkdir(folder .. "/beside"))
    os.execute(("ln -s results '%s/link'"):format(folder))
    local root = folder .. "/results"
    for path, inside in pairs { ["/results/x.lua"] = true, ["/results/deep/er/x.lua"] = true,
      ["/link/deep/x.lua"] = true, ["/beside/../results/x.lua"] = true, ["/x.lua"] = false,
      ["/beside/x.lua"] = false, ["/results/../beside/x.lua"] = false } do
      t.ok(trial_files.holds(root, folder .. path) == inside, path)
    end
    t.ok(not trial_files.holds(root, "x.lua"))
  end)
end)

-- ---- Texts ------------------------------------------------------------------------------------

t.test("control characters and what is no UTF-8 are written out", function()
  for text, want in pairs {
    ["plain\ttext\nof two lines"] = "plain\ttext\nof two lines", ["é ∞ 𝄞"] = "é ∞ 𝄞",
    ["\27[31mred\27[0m"] = "\\x1b[31mred\\x1b[0m", ["\27]0;title\7"] = "\\x1b]0;title\\x07",
    ["a\0b\r\8\127"] = "a\\x00b\\x0d\\x08\\x7f", ["\194\155 2J"] = "\\u{9b} 2J",
    ["\155 2J"] = "\\x9b 2J", ["\226\128\174txt"] = "\\u{202e}txt", ["\255\254"] = "\\xff\\xfe",
    ["\226\128"] = "\\xe2\\x80", ["\237\160\128"] = "\\xed\\xa0\\x80", ["\192\128"] = "\\xc0\\x80",
    ["\244\144\128\128"] = "\\xf4\\x90\\x80\\x80", [""] = "", ["\194\160"] = "\194\160",
  } do
    t.eq(core.sys.clean(text), want)
    t.eq(core.sys.clean(want), want)
  end
end)

t.test("JSON for others is valid whatever its texts are; what is hashed stays", function()
  local line = json.line { ["n\255\27ame"] = "a\226\128 \194\155 é \127" }
  t.eq(line, [[{"n]] .. "\u{FFFD}" .. [[\u001bame":"a]] .. "\u{FFFD}\u{FFFD}"
    .. [[ \u009b é \u007f"}]])
  t.eq(json.show { { "\255" }, "x" }, "[[\"\u{FFFD}\"],\"x\"]")
  t.eq(json.encode { a = "é\255" }, '{"a":"é\255"}')
  for byte = 0, 255 do
    t.ok(utf8.len(json.show { a = ("x%cy"):format(byte) }), byte)
  end
end)

-- ---- Secrets ----------------------------------------------------------------------------------

t.test("words with a secret are masked, others stay", function()
  for word, want in pairs {
    ["https://user:pw@host/x"] = "https://***@host/x", ["https://tok@host"] = "https://***@host",
    ["corpus=s3://a:b@c"] = "corpus=s3://***@c", ["https://u:p@ss@h/"] = "https://***@h/",
    ["me:pw@proxy:3128"] = "me:***@proxy:3128", ["api_key=abc"] = "api_key=***",
    ["password=hunter2"] = "password=***", ["--token=abc"] = "--token=***",
    ["HF_TOKEN=x"] = "HF_TOKEN=***", ["ssh://git@host/x"] = "ssh://git@host/x",
    ["tokens=512"] = "tokens=512", ["mask_token=[MASK]"] = "mask_token=[MASK]",
    ["token_shift=half"] = "token_shift=half", ["n_tokens=7"] = "n_tokens=7",
    ["monkey=george"] = "monkey=george", ["keyboard=de"] = "keyboard=de", ["key=relu"] = "key=relu",
    ["password=3"] = "password=3", ["me@host.org"] = "me@host.org", ["@best:loss"] = "@best:loss",
    ["http://host/a@b:c"] = "http://host/a@b:c", ["lr=1e-3"] = "lr=1e-3",
  } do
    t.eq(secrets.word(word), want)
  end
  t.eq(secrets.words { "run", "--password", "x", "--steps", "5" },
    { "run", "--password", "***", "--steps", "5" })
  t.eq(secrets.environment { SLURM_JWT = "a", X_PASSPHRASE = "b", OMP_NUM_THREADS = "2",
    TL_AUTH = "c", SLURM_URL = "http://u:p@h" }, { SLURM_JWT = "***", X_PASSPHRASE = "***",
    OMP_NUM_THREADS = "2", TL_AUTH = "***", SLURM_URL = "http://***@h" })
  local plain = { tokens = 512, key = "relu", list = { "a" } }
  t.ok(secrets.config(plain) == plain)
  for text, want in pairs { ["loss at 12:30@gpu0"] = "loss at 12:30@gpu0",
    ["https://x.com?to=me@y.org"] = "https://x.com?to=me@y.org",
    ["git clone ssh://git@host/x"] = "git clone ssh://git@host/x",
    ["scp joe:pw1@host:f"] = "scp joe:***@host:f" } do
    t.eq(secrets.text(text), want)
  end
  local long = ("x.y-"):rep(250000) -- what looks back from every letter would take minutes
  t.eq(#secrets.text(long .. "@"), 1000001)
  for name, want in pairs { openaiKey = true, hf_token = true, db_pass = true, token = true,
    mask_token = false, tokens = false, key = false, keys = false, passes = false } do
    t.eq({ name, secrets.certain(name) }, { name, want })
  end
  t.eq(secrets.config { url = "http://u:p@h", list = { "x", "y://a:b@c" }, n = 1 },
    { url = "http://***@h", list = { "x", "y://***@c" }, n = 1 })
  for line, hidden in pairs { ["+url = http://u:p@h"] = true, ["+password = hunter"] = true,
    ["+tokens = 512"] = false, ["+local author = 'abcdefghijklmnop1'"] = false } do
    local text = provenance.masked("diff --git a/x b/x\n" .. line .. "\n")
    t.ok((text:find("masked", 1, true) ~= nil) == hidden, line)
  end
end)

local SCRIPT = [[
local tl = require "toeplab"
return tl.experiment "private" {
  fixed = { url = "none", fails = true, name = "loss" },
  trial = function(t, c)
    t:log { [c.name] = 1 }
    if c.fails then error("cannot reach " .. c.url) end
  end,
}
]]

-- Runs the program with more words of the environment; its exit code and what it printed.
local function run(folder, environment, words)
  local _, _, code = os.execute(("cd '%s' && env %s '%s' %s >out 2>&1 </dev/null"):format(folder,
    environment, core.sys.executable(), words))
  return code, t.read(folder .. "/out")
end

t.test("a run stores no secret, and shows none", function()
  t.in_folder(function(folder)
    t.write(folder .. "/private.lua", SCRIPT)
    local word = "q" .. core.sha256(folder):sub(1, 12) -- in no file of the checkout either
    local function prints(want, environment, words)
      local code, shown = run(folder, environment, words)
      t.eq(code, want)
      t.ok(not shown:find(word, 1, true), shown)
      return shown
    end
    prints(1, ("SLURM_JWT=%s TOEPLAB_PASSPHRASE=%s TOEPLAB_X=http://a:%s@h"):format(word, word,
      word), ("run -C results private.lua url=https://me:%s@host/data"):format(word))
    t.holds(prints(0, "X=1", "show -C results @last"), "https://***@host/data", "SLURM_JWT=***")
    for _, words in ipairs { "ls", "ls --failures", "ls --json", "export", "export --metrics",
      "report private", "status" } do
      prints(0, "X=1", words .. " -C results")
    end
    t.eq({ t.shell(("grep -rla %s '%s/results'"):format(word, folder)) }, { "", 1 }) -- 1: nothing
    t.eq(run(folder, "X=1", "run -C results private.lua fails=false"), 0)
  end)
end)

t.test("a metric's name is a line of UTF-8", function()
  t.in_folder(function(folder)
    t.write(folder .. "/private.lua", SCRIPT)
    for name, good in pairs { ["vål/∞ @ 3"] = true, ["a\27[2J"] = false, ["a\nb"] = false } do
      local word = shell.quote("name=" .. name)
      local code, said = run(folder, "X=1", "run -C results private.lua fails=false " .. word)
      t.eq(code, good and 0 or 1)
      t.ok(good or said:find("must be one line of UTF-8", 1, true), said)
    end
    local store <close> = records.open(folder .. "/results", "r")
    t.eq(#store:rows "SELECT DISTINCT name FROM v_metrics", 1)
  end)
end)

t.done()
