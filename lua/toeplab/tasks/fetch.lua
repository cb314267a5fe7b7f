-- tasks/fetch.lua: brings a data set into the data folder, from an archive in TOEPLAB_DATA, a
-- mirror or its canonical address. curl downloads and resumes; tar or unzip unpacks into a
-- temporary folder. A file gets its final name only after its sha256 is verified.
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local temporary = require "toeplab.base.temporary"
local errors = require "toeplab.base.errors"

local fetch = {}

local quote = shell.quote
local BUSY = 75 -- exit code of flock if another process downloads the same file
local UNPACKED = 8 -- largest ratio of the unpacked files to the archive in size
local BLOCK = 512 -- bytes of ulimit -f

local function basename(path)
  return path:match("[^/]*$")
end

local function megabytes(bytes)
  return ("%.1f MB"):format(bytes / 1e6)
end

local function remove_all(path)
  shell.run("rm -rf -- " .. quote(path))
end

-- Removes the temporary folders of processes that no longer exist.
local function sweep(folder)
  for _, path in ipairs(temporary.dead(folder)) do remove_all(path) end
end

-- Returns whether this process should write to folder. The permission bits are tested too, because
-- the superuser could write to a folder that is meant to be read-only.
local function writable(folder)
  local test = 'test -w %s && test -n "$(find %s -maxdepth 0 -perm /222)"'
  return shell.run(test:format(quote(folder), quote(folder)))
end

-- Returns why there is no cache folder.
local function no_cache()
  local path = os.getenv "TOEPLAB_CACHE" or ""
  return path ~= "" and ("TOEPLAB_CACHE, %s, cannot be a folder"):format(path)
    or "there is no cache folder"
end

-- Returns the folder for new data sets: TOEPLAB_DATA if it can be written, else the cache folder.
local function destination()
  local folder = datasets.folder()
  if folder and core.sys.mkdir(folder) and writable(folder) then return folder end
  local own, why = datasets.own_folder(), nil
  if own then
    local made
    made, why = core.sys.mkdir(own)
    if made then return own end
  end
  errors.raise(errors.STORAGE, "no folder to write data to: %s, and %s", folder
    and ("TOEPLAB_DATA, %s, cannot be written to"):format(folder) or "TOEPLAB_DATA is not set",
    why or no_cache())
end

-- Raises an error about the storage if folder has fewer free bytes than `what` needs.
function fetch.need(folder, bytes, what)
  local free = core.sys.free_space(folder)
  if free and bytes and free < bytes then
    error(errors.full("%s needs %s, and %s has %s free", what, megabytes(bytes), folder,
      megabytes(free)), 0)
  end
end

-- Words in the messages of other programs that mean a full or broken disk.
local disk_words = { "no space left", "file too large", "quota exceeded", "input/output error",
  "read-only file system", "wrote only" }

local function disk_problem(text)
  for _, words in ipairs(disk_words) do
    if text:lower():find(words, 1, true) then return true end
  end
  return false
end

-- ---- Downloading ------------------------------------------------------------------------------

-- Returns the size of a file, or 0 if it does not exist.
local function size_of(path) return core.sys.size(path) or 0 end

-- Returns the largest size of a set's download: an archive is not larger than its files, except for
-- the headers. nil: some size is unknown.
local function largest(set, item)
  if item.bytes then return item.bytes end
  local sum = 1 << 20
  for _, file in ipairs(set.files) do
    if not file[2] then return nil end
    if item.file == file[1] then return file[2] end
    sum = sum + file[2] + 2 * BLOCK
  end
  return sum
end

-- Runs curl, which resumes at the end of part, and returns its exit code, its message and the HTTP
-- status (0 if there is none). setpriv ends curl however this process ends. flock waits a second
-- for the lock, which a process that was just killed may still hold. ulimit keeps curl's file below
-- about `most` bytes, because an answer need not state its length.
local function curl(item, part, most)
  local log, had = temporary.beside(part), size_of(part)
  local shown = core.sys.isatty(2) and "--progress-bar" or "--silent"
  local _, code = shell.run(((most and ("ulimit -S -f %d 2>/dev/null; "):format(most // BLOCK + 1)
    or "") .. "exec setpriv --pdeathsig TERM flock -w 1 --no-fork -E %d %s curl "
    .. "--fail --location --globoff %s --continue-at - --connect-timeout 30 --speed-limit 1 "
    .. "--speed-time 60 --output %s --write-out '%%{http_code} %%{errormsg}' --url %s >%s"):format(
    BUSY, quote(part), shown, quote(part), quote(item.url), quote(log)))
  local status, message = (core.sys.read_file(log) or ""):match "^(%d*) ?(.*)$"
  os.remove(log)
  if message == "" then
    message = code == 23 and "cannot write " .. part or "curl ended with code " .. code
  end
  if code ~= 0 and most and had <= most and size_of(part) > most then
    os.remove(part)
    errors.raise(errors.CHECK, "%s: the answer is longer than %s, the limit for the published "
      .. "file, and was removed", secrets.text(item.url), megabytes(most))
  end
  return code, secrets.text(message), tonumber(status) or 0
end

local RANGE = 416 -- the status of an answer to a range beyond the end of the file
local cannot_resume = { [33] = true, [36] = true } -- exit codes of curl

local function explain(item, code, message, advice)
  local address = secrets.text(item.url)
  if code == BUSY then
    errors.raise(errors.LOCKED, "another process is downloading %s", address)
  elseif code == 130 or code == 143 then
    errors.raise(code, "stopped; the same command continues the download")
  elseif code == 23 or disk_problem(message) then
    errors.raise(errors.STORAGE, "%s: %s; free some space and give the same command again",
      address, message)
  elseif code == 127 then
    errors.usage("curl and flock are needed: %s", shell.install("curl util-linux",
      "curl and util-linux"))
  end
  errors.raise(errors.FAILED, "%s: %s; the same command continues. Without a network, %s", address,
    message, advice)
end

-- Downloads item into folder, verifies its sha256 and returns the file's path.
local function download(set, item, folder, say)
  local part = ("%s/.%s.part"):format(folder, basename(item.url))
  local function whole()
    return size_of(part) > 0 and core.sha256_file(part) == item.sha256
  end
  if whole() then return part end
  fetch.need(folder, item.bytes and item.bytes - size_of(part), set.name)
  local had, most, address = size_of(part), largest(set, item), secrets.text(item.url)
  say("%s: %s %s%s", set.name, had > 0 and "continuing" or "downloading", address,
    item.bytes and (" (%s)"):format(megabytes(item.bytes)) or "")
  local code, message, status = curl(item, part, most)
  if had > 0 and (cannot_resume[code] or status == RANGE) then
    os.remove(part)
    code, message = curl(item, part, most)
  end
  local ways = datasets.ways(set)
  if code ~= 0 then
    if size_of(part) == 0 then os.remove(part) end
    explain(item, code, message, ways[#ways])
  end
  if not whole() then
    local got = core.sha256_file(part)
    os.remove(part)
    errors.raise(errors.CHECK, "%s: its sha256 is %s, not %s: this is not the published file, and "
      .. "it was removed", address, got, item.sha256)
  end
  return part
end

-- ---- Unpacking --------------------------------------------------------------------------------

local unpackers = {
  tar = "tar --extract --no-same-owner --directory=%s --file=%s",
  zip = "unzip -q -o -d %s %s",
}

local function unpack_into(work, archive, kind)
  local log = work .. "/.log"
  local ok, code = shell.run(unpackers[kind]:format(quote(work), quote(archive))
    .. (" >%s 2>&1 && find %s ! -type l -exec sync {} +"):format(quote(log), quote(work)))
  if ok then return end
  local text = core.sys.read_file(log) or ""
  local message = text:match("[^\n]+") or "exit code " .. code
  local tool = unpackers[kind]:match("^%S+")
  if code == 127 then errors.usage("%s is needed: %s", tool, shell.install(tool, tool)) end
  if code == 130 or code == 143 then errors.raise(code, "stopped while unpacking") end
  if disk_problem(text) then
    errors.raise(errors.STORAGE, "unpacking %s: %s; free some space and give the same command "
      .. "again", archive, message)
  end
  errors.raise(errors.FAILED, "unpacking %s: %s", archive, message)
end

local function sync(path)
  local file <close> = errors.stored(io.open(path, "rb"))
  errors.stored(core.sys.sync(file))
end

-- Moves a synced file, durably, from the folder `from` to the same path in the folder `to`; both
-- must be on one file system.
local function move(from, to, name)
  local folder = (to .. "/" .. name):match("^(.*)/")
  local ok, why = core.sys.mkdir(folder)
  if ok then ok, why = core.sys.rename(from .. "/" .. name, to .. "/" .. name) end
  if ok then ok, why = core.sys.sync_folder(folder) end
  if not ok then errors.raise(errors.STORAGE, "%s/%s: %s", to, name, why:match("[^:]*$")) end
end

-- Verifies the set's files in work and moves them to folder: with one rename if folder has nothing
-- of the set yet, else one by one.
local function install(set, work, folder)
  local top, any = set.files[1][1]:match("^[^/]+"), false
  for _, file in ipairs(set.files) do
    local path = work .. "/" .. file[1]
    local state = datasets.file_state(path, file, true)
    if state ~= "here" and state ~= "absent" then
      errors.raise(errors.CHECK, "%s: %s after unpacking", file[1], state)
    end
    any = any or state == "here"
  end
  if not any then
    errors.raise(errors.CHECK, "%s: the archive contains none of its files", set.name)
  end
  if not core.sys.exists(folder .. "/" .. top)
    and core.sys.rename(work .. "/" .. top, folder .. "/" .. top) then
    errors.stored(core.sys.sync_folder(folder))
    return
  end
  for _, file in ipairs(set.files) do
    if core.sys.exists(work .. "/" .. file[1]) then move(work, folder, file[1]) end
  end
end

-- Calls fn with a new temporary folder inside folder, and removes it afterwards.
local function in_temporary(set, folder, fn)
  local path = temporary.beside(folder .. "/" .. set.name)
  errors.stored(core.sys.mkdir(path))
  local ok, problem = pcall(fn, path)
  remove_all(path)
  if not ok then error(problem, 0) end
end

local function unpack(set, archive, kind, folder, say)
  say("%s: unpacking %s", set.name, archive)
  fetch.need(folder, UNPACKED * size_of(archive), "unpacking " .. basename(archive))
  in_temporary(set, folder, function(work)
    unpack_into(work, archive, kind)
    install(set, work, folder)
  end)
end

-- ---- A set ------------------------------------------------------------------------------------

-- Returns the address of a mirror, which may be a folder, with a slash at its end.
local function base_of(from)
  if from:find("^%a+://") then return (from:gsub("/+$", "")) .. "/" end
  if core.sys.kind(from) ~= "folder" then
    errors.usage("data: --from %s: is neither a folder nor an address", secrets.text(from))
  end
  local path = shell.absolute(from):gsub("[^%w%-._~/]", function(c)
    return ("%%%02X"):format(c:byte())
  end)
  return "file://" .. path .. "/"
end

-- Returns the downloads of a set, from a mirror if one is given, else from the canonical address.
local function items(set, from)
  if not from then return set.download or {} end
  local base = base_of(from)
  if set.archive then
    return { { url = base .. set.archive[1], sha256 = set.archive[2], unpack = "tar" } }
  end
  local list = {}
  for i, item in ipairs(set.download or {}) do
    list[i] = { url = base .. basename(item.url), sha256 = item.sha256, bytes = item.bytes,
      unpack = item.unpack, file = item.file }
  end
  return list
end

local function from_archive(set, folder, say)
  local path = datasets.archive(set)
  if core.sha256_file(path) ~= set.archive[2] then
    errors.raise(errors.CHECK, "%s: its sha256 is not %s: the archive is damaged or another one; "
      .. "replace it%s", path, set.archive[2],
      set.download and " or, to download it, remove it" or "")
  end
  unpack(set, path, "tar", folder, say)
end

local function from_address(set, folder, say, from)
  local list = items(set, from)
  if #list == 0 then
    errors.usage("%s: its address is not known. %s", set.name, datasets.advice(set))
  end
  for _, item in ipairs(list) do
    local path = item.file and folder .. "/" .. item.file
    local here = path and core.sys.exists(path) and core.sha256_file(path) == item.sha256
    local part = not here and download(set, item, folder, say)
    if here then
      say("%s: %s is here", set.name, item.file)
    elseif item.unpack then
      unpack(set, part, item.unpack, folder, say)
      os.remove(part)
    else
      in_temporary(set, folder, function(work)
        local name = item.file:match("^(.*)/")
        sync(part)
        assert(core.sys.mkdir(work .. "/" .. name))
        assert(core.sys.rename(part, work .. "/" .. item.file))
        move(work, folder, item.file)
      end)
    end
  end
end

-- Fetches a set unless it is present, and returns its folder and whether anything was fetched.
-- options: from (the base address of a mirror), say (a function of a format and values that prints
-- a message).
function fetch.set(set, options)
  local o = options or {}
  local say = o.say or function() end
  local absent = not datasets.state(set, true):find("^here")
  if absent then
    local folder = destination()
    sweep(folder)
    if not o.from and datasets.archive(set) then
      from_archive(set, folder, say)
    else
      from_address(set, folder, say, o.from)
    end
    local state = datasets.state(set, false)
    if state ~= "here" then
      errors.raise(errors.CHECK, "%s: still %s after fetching (TOEPLAB_DATA holds a wrong file?)",
        set.name, state)
    end
  end
  return fetch.folder(set), absent
end

-- Unpacks a set if only its archive in TOEPLAB_DATA is present.
function fetch.unpacked(set)
  if datasets.state(set, false) == "as archive" then
    fetch.set(set, { say = function(...) io.stderr:write(string.format(...), "\n") end })
  end
end

-- Returns the path of a file of the set called name, which a task reads, after unpacking an archive
-- in TOEPLAB_DATA. If the file is absent or not the published one, raises a usage error on how to
-- get it.
function fetch.file(name, file)
  local set = datasets.find(name)
  fetch.unpacked(set)
  local path = datasets.place(file)
  if not path then
    errors.absent("%s is not here. %s", name, datasets.advice(set))
  end
  for _, entry in ipairs(set.files) do
    local state = entry[1] == file and datasets.file_state(path, entry, true) or "here"
    if state ~= "here" then
      errors.usage("%s: %s is not the published file: %s", name, path, state)
    end
  end
  return path
end

-- Returns the sha256 of the files' sha256, which identifies them in the store.
function fetch.hash(paths)
  local keys = {}
  for i, path in ipairs(paths) do keys[i] = core.sha256_file(path) end
  return core.sha256(table.concat(keys, "\n"))
end

-- Returns the folder that holds a set's files, or nil.
function fetch.folder(set)
  for _, file in ipairs(set.files) do
    local path = datasets.place(file[1])
    if path then return path:sub(1, #path - #file[1]) .. file[1]:match("^[^/]+") end
  end
end

return fetch
