-- test_fetch.lua: a data set made here is fetched from a folder: whole, killed in the middle and
-- resumed, damaged, unpacked, on a full disk; and the message about a missing one.
local t = require "harness"
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"

local quote = require("toeplab.base.shell").quote

local read, write = t.read, t.write

-- A mirror with a plain file and an archive of two files, and a script that fetches them.
local driver = [==[
local fetch, stop = require "toeplab.tasks.fetch", require "toeplab.base.errors"
local sets = dofile(arg[1] .. "/sets.lua")
local from = arg[3] ~= "" and arg[3] or nil
local ok, result = pcall(fetch.set, sets[arg[2]], { from = from })
print(ok and "in " .. result or result.message or result)
os.exit(ok and 0 or stop.is(result) and result.code or 99)
]==]

local function set_text(folder, plain)
  local one, two = ("first\n"):rep(1000), ("second\n"):rep(3000)
  assert(core.sys.mkdir(folder .. "/mirror/pair"))
  write(folder .. "/mirror/plain.txt", plain)
  write(folder .. "/mirror/pair/one.txt", one)
  write(folder .. "/mirror/pair/two.txt", two)
  assert(os.execute(("cd %s/mirror && tar -cJf pair.tar.xz pair && rm -r pair"):format(folder)))
  return ([[return {
    plain = { name = "plain", source = "here", files = { { "plain/plain.txt", %d, "%s" } },
      download = { { url = "https://nowhere.invalid/plain.txt", file = "plain/plain.txt",
        sha256 = "%s" } } },
    both = { name = "both", source = "here",
      files = { { "both/plain.txt", %d, "%s" }, { "both/more.txt", 4, "%s" } },
      download = { { url = "https://nowhere.invalid/plain.txt", file = "both/plain.txt",
        sha256 = "%s" }, { url = "https://nowhere.invalid/more.txt", file = "both/more.txt",
        sha256 = "%s" } } },
    pair = { name = "pair", source = "here", archive = { "pair.tar.xz", "%s" },
      files = { { "pair/one.txt", %d, "%s" }, { "pair/two.txt", %d, "%s" } } },
  }]]):format(#plain, core.sha256(plain), core.sha256(plain), #plain, core.sha256(plain),
    core.sha256 "more", core.sha256(plain), core.sha256 "more",
    core.sha256_file(folder .. "/mirror/pair.tar.xz"), #one, core.sha256(one), #two,
    core.sha256(two))
end

-- Runs fn(folder, fetch) with fetch(name, from, before, data) -> exit code, what was said. from:
-- the mirror; before: words of the shell before the command; data: TOEPLAB_DATA.
local function with_mirror(fn)
  t.in_folder(function(folder)
    write(folder .. "/driver.lua", driver)
    write(folder .. "/sets.lua", set_text(folder, ("some text of a corpus\n"):rep(40000)))
    fn(folder, function(name, from, before, data)
      local command = ("%s env -u TOEPLAB_CACHE TOEPLAB_DATA=%s XDG_CACHE_HOME=%s %s lua "
        .. "%s/driver.lua %s %s %s"):format(before or "", quote(data or ""), folder,
        quote(core.sys.executable()), folder, folder, name, quote(from or ""))
      local _, kind, code = os.execute(("sh -c %s >%s/said 2>&1"):format(quote(command), folder))
      return kind == "signal" and 128 + code or code, read(folder .. "/said")
    end)
  end)
end

t.test("fetches a file once, and names it only when it is complete", function()
  with_mirror(function(folder, fetch)
    local code, said = fetch("plain", folder .. "/mirror")
    t.eq({ code, said }, { 0, "in " .. folder .. "/toeplab/data/plain\n" })
    t.eq(core.sys.list(folder .. "/toeplab/data"), { "plain" })
    t.eq(read(folder .. "/toeplab/data/plain/plain.txt"), read(folder .. "/mirror/plain.txt"))
    os.remove(folder .. "/mirror/plain.txt")
    t.eq(fetch("plain", folder .. "/mirror"), 0)
  end)
end)

t.test("does not fetch the present files of a set again", function()
  with_mirror(function(folder, fetch)
    local mirror = folder .. "/mirror"
    t.eq(fetch("both", mirror), 1)
    os.remove(mirror .. "/plain.txt")
    write(mirror .. "/more.txt", "more")
    local code, said = fetch("both", mirror)
    t.ok(code == 0, said)
    t.eq(core.sys.list(folder .. "/toeplab/data/both"), { "more.txt", "plain.txt" })
  end)
end)

t.test("without a writable folder, the message gives both reasons", function()
  with_mirror(function(folder)
    write(folder .. "/file", "")
    assert(core.sys.mkdir(folder .. "/fixed"))
    assert(os.execute("chmod 555 " .. folder .. "/fixed"))
    local _, _, status = os.execute(("TOEPLAB_CACHE=%s/file TOEPLAB_DATA=%s/fixed '%s' lua "
      .. "%s/driver.lua %s plain %s/mirror >%s/said 2>&1"):format(folder, folder,
      core.sys.executable(), folder, folder, folder, folder))
    t.eq(status, 6)
    t.holds(read(folder .. "/said"), ("no folder to write data to: TOEPLAB_DATA, %s/fixed, cannot "
      .. "be written to, and TOEPLAB_CACHE, %s/file, cannot be a folder"):format(folder, folder))
  end)
end)

-- Writes a curl of its own, a shell script in which $FOLDER is the folder. Returns the words of env
-- by which it is found before the real one.
local function fake_curl(folder, script)
  assert(core.sys.mkdir(folder .. "/bin"))
  script = script:gsub("$FOLDER", function() return folder end)
  write(folder .. "/bin/curl", "#!/bin/sh\n" .. script)
  assert(os.execute("chmod 755 " .. folder .. "/bin/curl"))
  return ("PATH=%s/bin:%s"):format(folder, os.getenv "PATH")
end

t.test("a killed download continues where it stopped", function()
  with_mirror(function(folder, fetch)
    -- A curl that writes the beginning of the file and then kills its whole process group.
    local path = fake_curl(folder, [[
      for word; do [ "$last" = --output ] && part=$word; last=$word; done
      head -c 300000 $FOLDER/mirror/plain.txt >"$part"
      kill -KILL 0
    ]])
    t.eq(fetch("plain", folder .. "/mirror", "setsid -w env " .. path), 137)
    local part = folder .. "/toeplab/data/.plain.txt.part"
    local had = read(part)
    t.eq(#had, 300000)
    t.ok(not core.sys.exists(folder .. "/toeplab/data/plain"))
    -- Only what is missing is read again: the beginning may be anything by now.
    local whole = read(folder .. "/mirror/plain.txt")
    write(folder .. "/mirror/plain.txt", ("x"):rep(#had) .. whole:sub(#had + 1))
    t.eq(fetch("plain", folder .. "/mirror"), 0)
    t.eq(read(folder .. "/toeplab/data/plain/plain.txt"), whole)
  end)
end)

t.test("an answer without the requested range leaves the partial file", function()
  with_mirror(function(folder, fetch)
    -- A curl that fails as with --fail, after the answer with the HTTP status in $STATUS.
    local path = fake_curl(folder, [[
      for word; do [ "$last" = --write-out ] && out=$word; last=$word; done
      echo "$out" | sed "s/%{http_code}/$STATUS/; s/%{errormsg}/answer $STATUS/"
      exit 22
    ]])
    local part = folder .. "/toeplab/data/.plain.txt.part"
    assert(core.sys.mkdir(folder .. "/toeplab/data"))
    for _, case in ipairs { { "404", true }, { "429", true }, { "503", true }, { "416", false } } do
      write(part, "a part")
      local before = ("env STATUS=%s %s"):format(case[1], path)
      local code, said = fetch("plain", folder .. "/mirror", before)
      t.eq({ code, core.sys.exists(part) }, { 1, case[2] })
      t.holds(said, "plain.txt: answer " .. case[1])
    end
  end)
end)

t.test("an endless answer is cut and removed", function()
  with_mirror(function(folder, fetch)
    -- A curl that is answered for ever, and can write no more at some time.
    local path = fake_curl(folder, [[
      for word; do [ "$last" = --output ] && part=$word; last=$word; done
      timeout 20 head -c 200000000 /dev/zero >>"$part" || { echo "000 cannot write"; exit 23; }
      echo 200
    ]])
    for name, size in pairs { plain = "0.9 MB", pair = "1.1 MB" } do
      local code, said = fetch(name, folder .. "/mirror", "trap '' XFSZ; env " .. path)
      t.eq(code, 4)
      t.holds(said, "the answer is longer than " .. size)
      t.eq(core.sys.list(folder .. "/toeplab/data"), {})
    end
  end)
end)

t.test("does not print the password of an address", function()
  with_mirror(function(folder, fetch)
    local path = fake_curl(folder, "echo '000 cannot reach http://anna:opensesame@x'; exit 7")
    local addresses = { ["http://anna:opensesame@h.invalid/"] = 1, ["anna:opensesame@h/"] = 2 }
    for from, code in pairs(addresses) do
      local got, said = fetch("plain", from, "env " .. path)
      t.eq({ got, said:find("opensesame", 1, true) }, { code })
      t.holds(said, "***@h")
    end
  end)
end)

t.test("downloads a file again if its range is refused, whatever curl's exit code", function()
  with_mirror(function(folder, fetch)
    -- A curl that exits with 0 after the status 416, as some versions do.
    local path = fake_curl(folder, [[
      for word; do [ "$last" = --output ] && part=$word; last=$word; done
      if [ -s "$part" ]; then echo 416; else cp $FOLDER/mirror/plain.txt "$part"; echo 200; fi
    ]])
    assert(core.sys.mkdir(folder .. "/toeplab/data"))
    write(folder .. "/toeplab/data/.plain.txt.part", "another file")
    t.eq(fetch("plain", folder .. "/mirror", "env " .. path), 0)
    t.eq(read(folder .. "/toeplab/data/plain/plain.txt"), read(folder .. "/mirror/plain.txt"))
  end)
end)

t.test("a download ends with the process that started it", function()
  with_mirror(function(folder, fetch)
    -- A curl that kills the program and waits to be ended itself.
    local path = fake_curl(folder, [[
      trap 'echo ended >$FOLDER/ended; exit' TERM
      kill -KILL $PPID
      for i in $(seq 100); do sleep 0.05; done
    ]])
    t.eq(fetch("plain", folder .. "/mirror", "env " .. path), 137)
    for _ = 1, 100 do
      if core.sys.exists(folder .. "/ended") then break end
      core.sys.sleep(0.05)
    end
    t.ok(core.sys.exists(folder .. "/ended"), "curl goes on")
    -- Nothing stays of the attempt, and nobody is in the way of the next one.
    t.eq(fetch("plain", folder .. "/mirror"), 0)
    t.eq(core.sys.list(folder .. "/toeplab/data"), { "plain" })
  end)
end)

t.test("a mirror is a folder of any name, or an address", function()
  with_mirror(function(folder, fetch)
    local odd = folder .. "/a b%20#[1]?"
    assert(core.sys.rename(folder .. "/mirror", odd))
    for _, case in ipairs { { "plain", odd }, { "pair", "a b%20#[1]?/" } } do
      local code, said = fetch(case[1], case[2], "cd " .. folder .. ";")
      t.ok(code == 0, said)
    end
    os.execute("rm -r " .. folder .. "/toeplab")
    t.eq(fetch("plain", "file://" .. folder .. "/a%20b%2520%23%5B1%5D%3F"), 0)
    os.execute("rm -r " .. folder .. "/toeplab")
    local code, said = fetch("plain", folder .. "/none")
    t.eq(code, 2)
    t.ok(said:find("--from " .. folder .. "/none: is neither a folder nor an address", 1, true))
  end)
end)

t.test("refuses and removes a file with another sha256", function()
  with_mirror(function(folder, fetch)
    write(folder .. "/mirror/plain.txt", "another text")
    local code, said = fetch("plain", folder .. "/mirror")
    t.eq(code, 4)
    t.ok(said:find("plain.txt: its sha256 is %x+, not %x+"), said)
    t.eq(core.sys.list(folder .. "/toeplab/data"), {})
    -- A part that is too long is thrown away, and the file fetched from its beginning.
    write(folder .. "/toeplab/data/.plain.txt.part", ("y"):rep(1000000))
    write(folder .. "/mirror/plain.txt", ("some text of a corpus\n"):rep(40000))
    t.eq(fetch("plain", folder .. "/mirror"), 0)
  end)
end)

t.test("an archive is unpacked completely or not at all", function()
  with_mirror(function(folder, fetch)
    t.eq(fetch("pair", folder .. "/mirror"), 0)
    local data = folder .. "/toeplab/data"
    t.eq(core.sys.list(data), { "pair" })
    t.eq(core.sys.list(data .. "/pair"), { "one.txt", "two.txt" })
    -- A file that was lost or damaged comes back.
    os.remove(data .. "/pair/one.txt")
    write(data .. "/pair/two.txt", ("third.\n"):rep(3000))
    assert(core.sys.mkdir(data .. "/.pair.tmp." .. core.sys.hostname() .. ".999999999"))
    local elsewhere = ".pair.tmp.another-host.999999999" -- at work there, for all we know
    assert(core.sys.mkdir(data .. "/" .. elsewhere))
    t.eq(fetch("pair", folder .. "/mirror"), 0)
    t.eq(read(data .. "/pair/one.txt"), ("first\n"):rep(1000))
    t.eq(read(data .. "/pair/two.txt"), ("second\n"):rep(3000))
    t.eq(core.sys.list(data), { elsewhere, "pair" })
  end)
end)

t.test("uses an archive in TOEPLAB_DATA without a network", function()
  with_mirror(function(folder, fetch)
    local mirror = folder .. "/mirror"
    local code, said = fetch("pair", nil, nil, "/nowhere")
    t.eq(code, 2)
    t.ok(said:find("its address is not known. Put pair/one.txt, pair/two.txt in"), said)
    t.eq(fetch("pair", nil, nil, mirror), 0)
    t.eq(core.sys.list(mirror), { "pair", "pair.tar.xz", "plain.txt" })
    -- A folder that is not to be written is left alone.
    t.ok(os.execute(("rm -r %s/pair && chmod 555 %s"):format(mirror, mirror)))
    t.eq(fetch("pair", nil, nil, mirror), 0)
    t.ok(os.execute("chmod 755 " .. mirror))
    t.eq(core.sys.list(mirror), { "pair.tar.xz", "plain.txt" })
    t.eq(core.sys.list(folder .. "/toeplab/data/pair"), { "one.txt", "two.txt" })
    -- What is in it must be what is listed.
    local sets = read(folder .. "/sets.lua")
    write(folder .. "/sets.lua", (sets:gsub('"pair/two.txt", (%d+), "%x+"',
      '"pair/two.txt", %1, "' .. core.sha256 "other" .. '"')))
    os.remove(folder .. "/toeplab/data/pair/one.txt")
    code, said = fetch("pair", nil, nil, mirror)
    t.eq({ code, core.sys.exists(folder .. "/toeplab/data/pair/one.txt") }, { 4, false })
    t.ok(said:find "pair/two.txt: differs after unpacking", said)
    write(folder .. "/sets.lua", sets)
    -- A damaged one is refused.
    write(mirror .. "/pair.tar.xz", "no archive")
    os.remove(folder .. "/toeplab/data/pair/one.txt")
    code, said = fetch("pair", nil, nil, mirror)
    t.eq(code, 4)
    t.ok(said:find("the archive is damaged or another one"), said)
  end)
end)

t.test("no network, and a full disk: the problem and the remedy", function()
  with_mirror(function(folder, fetch)
    local code, said = fetch("plain")
    t.eq(code, 1)
    t.ok(said:find("nowhere.invalid/plain.txt: .-; the same command continues"), said)
    t.ok(said:find("Without a network, put plain/plain.txt in a folder"), said)
    code, said = fetch("plain", folder .. "/mirror", "trap '' XFSZ; ulimit -f 200;")
    t.eq(code, 6)
    t.ok(said:find("free some space and give the same command again"), said)
    t.eq(fetch("plain", folder .. "/mirror"), 0)
    code, said = fetch("pair", folder .. "/mirror", "trap '' XFSZ; ulimit -f 16;")
    t.eq(code, 6)
    t.ok(said:find("unpacking .*free some space"), said)
    t.eq(fetch("pair", folder .. "/mirror"), 0)
  end)
end)

t.test("data path of a set present only as an archive says how to unpack it", function()
  t.in_folder(function(folder)
    write(folder .. "/imdb-labelled.tar.xz", "not read")
    local said, code = t.shell(("env -u TOEPLAB_CACHE TOEPLAB_DATA=%s XDG_CACHE_HOME=%s %s "
      .. "data path imdb 2>&1"):format(folder, folder, quote(core.sys.executable())))
    t.eq({ code, said }, { 1, "toeplab: imdb is here as an archive only; to unpack it: toeplab "
      .. "data fetch imdb\n" })
  end)
end)

t.test("--from is refused for sets without downloads, and skips present files", function()
  t.in_folder(function(folder)
    assert(core.sys.mkdir(folder .. "/bin"))
    write(folder .. "/bin/bible", "#!/bin/sh\n")
    assert(os.execute("chmod 755 " .. folder .. "/bin/bible"))
    for _, file in ipairs(datasets.find("aan").files) do
      assert(core.sys.mkdir((folder .. "/" .. file[1]):match "^(.*)/"))
      write(folder .. "/" .. file[1], "x")
    end
    local command = ("env -u TOEPLAB_CACHE TOEPLAB_DATA=%s XDG_CACHE_HOME=%s PATH=%s/bin:%s %s ")
      :format(folder, folder, folder, os.getenv "PATH", quote(core.sys.executable()))
    for _, case in ipairs {
      { "listops", 2, "--from is not for listops: listops is generated where it is used" },
      { "bible-kjv", 2, "--from is not for bible-kjv: bible-kjv is printed by: bible -f" },
      { "aan", 0, "aan is in " .. folder },
    } do
      local said, code = t.shell(command .. "data fetch --from /nowhere " .. case[1] .. " 2>&1")
      t.eq(code, case[2])
      t.holds(said, case[3], code == 0 and "already; nothing was fetched" or "toeplab: ")
    end
    t.holds(t.shell(command .. "doctor"),
      ("data         %s; here: bible-kjv, aan\n"):format(folder))
  end)
end)

t.test("the advice names files, and an archive only if it is the published one", function()
  local function advice(name) return datasets.advice(datasets.find(name)) end
  for _, case in ipairs {
    { "glue", "^Put the files train.tsv and dev.tsv of CoLA.* in folders glue/glue_data/NAME in " },
    { "imdb", "^Put the files imdb.train.tsv and imdb.test.tsv" },
    { "cifar10-first4000", "^Put the file lossless_train_0000%-3999.bin" },
    { "cifar10-grey", "^Put the files grey_train_more.bin and grey_test_0000%-1016.bin" },
    { "aan", "^Put the files new_aan_pairs.train.tsv" },
    { "cifar10", "^Either fetch it: .*,\nor put the archive cifar%-10%-binary.tar.gz in " },
    { "tinyshakespeare", "^Either fetch it: .*,\nor put tinyshakespeare/input.txt in " },
    { "wikitext-2", "\nor put wikitext%-2/wiki.train.tokens, wikitext%-2/wiki.valid.tokens, "
      .. "wikitext%-2/wiki.test.tokens in " },
  } do
    if not datasets.archive(datasets.find(case[1])) then
      t.ok(advice(case[1]):find(case[2]), advice(case[1]))
    end
  end
  for _, set in ipairs(datasets.list) do
    local said, many = datasets.advice(set), #datasets.ways(set) > 1
    t.eq({ said:find "^Either " ~= nil, said:find ",\nor " ~= nil }, { many, many })
  end
end)

t.test("the states of a file", function()
  t.in_folder(function(folder)
    local path, entry = folder .. "/x", { "x", 4, core.sha256 "text" }
    local function state(text, check)
      write(path, text)
      return datasets.file_state(path, entry, check)
    end
    t.eq(datasets.file_state(path, entry), "absent")
    t.eq({ state "text", state "tex", state "", state "next" },
      { "here", "wrong size", "wrong size", "here" })
    t.eq({ state("text", true), state("next", true) }, { "here", "differs" })
  end)
end)

t.test("the list of sets is complete, and every address has a hash", function()
  local function hash(text) return type(text) == "string" and text:find("^%x+$") and #text == 64 end
  local seen = {}
  for _, set in ipairs(datasets.list) do
    t.ok(not seen[set.name] and set.what and set.source and set.licence, set.name)
    seen[set.name] = true
    local files = {}
    for _, file in ipairs(set.files) do
      files[file[1]] = true
      t.ok(file[3] == nil and (set.download or set.by_hand) or hash(file[3]) and file[2] > 0,
        file[1])
    end
    for _, item in ipairs(set.download or {}) do
      t.ok(item.url:find("^https://") and hash(item.sha256), item.url)
      t.ok(item.unpack == "zip" or item.unpack == "tar" or files[item.file], item.url)
    end
    for _, names in pairs(set.parts or {}) do
      for _, name in ipairs(names) do t.ok(files[name], name) end
    end
    t.ok(not set.archive or hash(set.archive[2]), set.name)
    t.ok(set.archive or set.download or set.package or set.generated or set.by_hand, set.name)
    t.ok(#datasets.ways(set) >= 1)
  end
end)

t.done()
