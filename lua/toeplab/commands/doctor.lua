-- commands/doctor.lua: toeplab doctor: reports what this machine, the backends and the results
-- folder offer, and what is wrong.
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"
local defer = require "toeplab.base.defer"
local json = require "toeplab.base.json"
local modules = require "toeplab.live.modules"
local output = require "toeplab.report.output"
local provenance = require "toeplab.trials.provenance"
local records = require "toeplab.store.records"
local text_table = require "toeplab.base.text_table"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"

local doctor = {
  example = "toeplab doctor\n  toeplab doctor -C /scratch/results --json\n"
    .. "  toeplab doctor --backends",
  usage = "toeplab doctor [--backends] [--json]",
  about = "Reports what the program runs with: versions, the file system of the results folder,\n"
    .. "its locks, the time of an fsync, free disk, processor, threads, backends, data, tools;\n"
    .. "first what is bad, then notes. Exit code 4 if something is bad, 6 if it is the store.\n"
    .. "With --backends lists the backends of the Toeplitz operator with their options and the\n"
    .. "devices they support, and the plugin files that could not be used.\n"
    .. "TOEPLAB_BACKENDS names further folders to look into.",
  options = {
    { name = "backends", short = "b", help = "list the backends and their options instead",
      more = [[
        Also lists the devices that each supports, the first GPU or why there is none, and the
        plugin files that could not be used.]] },
    output.json, output.dir,
  },
}

local LEAST_FREE, SLOW_FSYNC, TRIES = 1 << 30, 0.1, 5

-- ---- Helpers ----------------------------------------------------------------------------------

-- Returns the first line that a command prints; nil if the command fails.
local function line_of(command)
  return (shell.output(command) or ""):match "^[^\n]+"
end

local function field_of(path, pattern)
  return (core.sys.read_file(path) or ""):match(pattern)
end

-- ---- Versions ---------------------------------------------------------------------------------

local function older(version, than)
  local numbers = {}
  for n in version:gmatch("%d+") do numbers[#numbers + 1] = tonumber(n) end
  for i, limit in ipairs(than) do
    if (numbers[i] or 0) ~= limit then return (numbers[i] or 0) < limit end
  end
  return false
end

local function versions(add)
  local info = core.build_info()
  add("toeplab", "ok", ("%s, compiler %s, %s"):format(info.version, info.compiler, _VERSION))
  local wal = older(info.sqlite, { 3, 51, 3 })
    and ": has the bug in which two connections reset a WAL at once; it cannot occur here, where "
    .. "only one process writes and readers never reset" or ""
  add("sqlite", "ok", info.sqlite .. wal)
  local locking = os.getenv("HDF5_USE_FILE_LOCKING")
  add("hdf5", "ok", info.hdf5:gsub("^HDF5 library version: ", "")
    .. (locking and ", HDF5_USE_FILE_LOCKING=" .. locking or ""))
  add("transforms", info.transforms == "none" and "bad" or "ok", info.transforms)
  add("blas", "ok", info.blas)
  add("onednn", info.onednn == "none" and "note" or "ok", info.onednn == "none"
    and "not built in: products are a little slower, in bf16 much (a build needs oneDNN 2, not 3, "
    .. "without threads or with OpenMP's: libdnnl-dev of Debian 12)"
    or info.onednn)
  for _, name in ipairs { "mpi", "nccl" } do
    local path, why = core.ranks_file(name)
    add(name, path and "ok" or "note", path or why .. " (docs/ranks.md)")
  end
  for _, name in ipairs { "tensorboard", "http" } do
    local path, why = modules.file(name)
    add(name, path and "ok" or "note", path or why)
  end
  local commit, dirty = provenance.commit()
  add("source", "ok", commit and commit:sub(1, 12) .. (dirty and " with changes" or "")
    or "not a git checkout: trials do not record a commit")
end

-- ---- The results folder -----------------------------------------------------------------------

-- Returns the median duration of a few fsyncs in the folder; nil and the reason if it fails.
local function time_fsync(path)
  core.sys.remove(path) -- a link there would redirect the write
  local opened, why = io.open(path, "wb")
  if not opened then return nil, why end
  local file <close> = opened
  local times = {}
  for i = 1, TRIES do
    local began = core.sys.clock()
    file:write(("x"):rep(4096))
    local ok, problem = core.sys.sync(file)
    if not ok then return nil, problem end
    times[i] = core.sys.clock() - began
  end
  table.sort(times)
  return times[(TRIES + 1) // 2]
end

-- Returns whether a second process is refused a held lock.
local function locks_work(path)
  local a <close> = io.open(path, "r+b") -- NFS cannot lock a file opened for reading only
  local b <close> = io.open(path, "r+b")
  return a and b and core.sys.lock(a) and not core.sys.lock(b)
end

local networks = { nfs = true, nfs4 = true, lustre = true, gpfs = true, beegfs = true, cifs = true,
  smb3 = true, afs = true, ceph = true, fuse = true }

-- Adds whether several runs can share the folder: each attempt at a trial begins with a hard link.
local function sharing(add, folder, kind)
  local path = ("%s/.doctor.tmp.%s.%d"):format(folder, core.sys.hostname(), core.sys.getpid())
  local linked = path .. ".link"
  core.sys.remove(linked)
  if not core.sys.write_file(path, "") then return end
  local made, why = core.sys.link(path, linked)
  local twice = made and core.sys.link(path, linked)
  core.sys.remove(linked)
  core.sys.remove(path)
  if not made or twice then
    return add("sharing", "note", ("runs cannot share the folder: %s"):format(twice
      and "a hard link replaces a file" or "no hard links: " .. why))
  end
  add("sharing", "ok", "hard links work: runs and array jobs can share the folder"
    .. (networks[kind:match "^%w*"] and ", if its locks work between the nodes" or ""))
end

local function probe(add, folder)
  local path = ("%s/.doctor.tmp.%s.%d"):format(folder, core.sys.hostname(), core.sys.getpid())
  local seconds, why = time_fsync(path)
  if not seconds then
    core.sys.remove(path)
    return add("folder", "bad", ("%s cannot be written: %s"):format(folder, why))
  end
  local kind = line_of("df --output=fstype " .. shell.quote(folder) .. " | tail -1")
    or "unknown file system"
  local locked = locks_work(path)
  core.sys.remove(path)
  add("folder", locked and (seconds < SLOW_FSYNC and "ok" or "note") or "bad",
    ("%s: %s, %s, fsync %.1f ms"):format(folder, kind,
      locked and "locks work" or "locks do not work: two runs could write at once", seconds * 1e3))
  sharing(add, folder, kind)
end

-- Adds the version of Slurm, where it is installed.
local function scheduler(add)
  if not shell.on_path "sbatch" then return end
  local answer = line_of "(sinfo -h -o '%P of %D nodes' | paste -sd, -)"
  add("slurm", answer and "ok" or "note", ("%s: %s"):format(line_of "sbatch --version" or "sbatch",
    answer or "its controller does not answer"))
end

local function disk(add, folder)
  local free, why = core.sys.free_space(folder)
  if not free then return add("disk", "bad", why) end
  add("disk", free < LEAST_FREE and "note" or "ok", output.bytes(free) .. " free")
end

local function stale(add, store)
  local list, bytes = trash.stale(store), 0
  for _, item in ipairs(list) do bytes = bytes + item.bytes end
  add("left behind", #list > 0 and "note" or "ok", #list == 0 and "nothing"
    or shell.named("%s, %s, the first %s: %s (toeplab rm --purge frees them)"):format(
      output.count(#list, "file"), output.bytes(bytes), list[1].path, list[1].why))
end

-- Adds the state of the store, if there is one, and of stale files.
local function database(add, folder)
  local seen, found = pcall(trial_files.has_store, folder)
  if not seen then return add("store", "bad", errors.text(found), errors.STORAGE) end
  if not found then return add("store", "ok", "no runs yet") end
  local ok, store = pcall(records.open, folder, "r")
  if not ok then return add("store", "bad", errors.text(store), errors.STORAGE) end
  local guard <close> = store
  local fine, row = pcall(function()
    local counts = store:rows([[SELECT (SELECT count(*) FROM v_trials) AS trials,
      (SELECT count(*) FROM v_trash) AS trash, (SELECT total(bytes) FROM v_artifacts) AS bytes]])[1]
    counts.journals = store:count_journals()
    return counts
  end)
  if not fine then return add("store", "bad", errors.text(row), errors.STORAGE) end
  add("store", "ok", ("%s, %s of files, %d in the trash%s%s"):format(
    output.count(row.trials, "trial"), output.bytes(row.bytes), row.trash,
    row.journals > 0 and (", %s of running or interrupted trials"):format(
      output.count(row.journals, "journal")) or "",
    trial_files.is_elsewhere(folder) and "; its database is " .. trial_files.database(folder)
      or ""))
  stale(add, store)
end

-- ---- The machine ------------------------------------------------------------------------------

local wanted = { "sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "amx_tile", "asimd", "sve" }

local function processor(add)
  local flags, found = field_of("/proc/cpuinfo", "\n[Ff][le][a-z]+%s*: ([^\n]*)") or "", {}
  for _, flag in ipairs(wanted) do
    if (" " .. flags .. " "):find(" " .. flag .. " ", 1, true) then found[#found + 1] = flag end
  end
  local info = core.build_info()
  add("processor", "ok", info.cpu .. (#found > 0 and ": " .. table.concat(found, " ") or ""))
  local allowed = field_of("/proc/self/status", "\nCpus_allowed_list:%s*(%S+)") or "unknown"
  local online = field_of("/sys/devices/system/cpu/online", "%S+") or "unknown"
  local quota, bytes = core.sys.group_limits()
  add("threads", "ok", ("%d; processors %s of %s may be used%s%s"):format(core.threads(), allowed,
    online, quota < math.huge and (", quota %.3g"):format(quota) or "",
    os.getenv("TOEPLAB_THREADS") and ", TOEPLAB_THREADS is set" or ""))
  local memory = field_of("/proc/meminfo", "MemAvailable:%s*(%d+)")
  if memory then
    add("memory", "ok", output.bytes(math.min(tonumber(memory) * 1024, bytes)) .. " available")
  end
end

local function backends(add)
  local names = {}
  for i, backend in ipairs(core.backends()) do names[i] = backend.name end
  add("backends", #names > 0 and "ok" or "bad", #names > 0 and table.concat(names, ", ")
    or "none: no plugin was found")
  for _, problem in ipairs(core.backend_problems()) do add("backend", "note", problem) end
end

-- Adds the device cuda: its first GPU with driver and libraries and the precisions of its products,
-- or why it cannot be used.
local function cuda(add)
  local count, about = core.look_at_device "cuda"
  if not count then return add("cuda", "note", about) end
  add("cuda", "ok", ("%s%s; products in %s"):format(count > 1 and count .. " GPUs, the first: "
    or "", about, table.concat(core.precisions "cuda", ", ")))
end

-- Adds the GPU that the driver reports. Containers may have neither /proc/driver nor nvidia-smi.
local function graphics(add)
  local smi = shell.on_path "nvidia-smi"
  local name = smi and line_of("nvidia-smi --format=csv,noheader "
    .. "--query-gpu=name,driver_version,memory.total")
  local usable = not name and core.look_at_device "cuda"
  local why = smi and "nvidia-smi fails" or "nvidia-smi is not in PATH"
  if name or usable then
    add("gpu", "ok", name or ("%d, by CUDA; %s"):format(usable, why))
  else
    add("gpu", "note", "none: no NVIDIA driver answers (" .. why .. "); the processor is used")
  end
  local nvcc = line_of("nvcc --version | tail -1")
  add("nvcc", nvcc and "ok" or "note", nvcc
    or "not in PATH: the device cuda cannot be compiled here")
end

local function tools(add)
  local gnuplot = shell.on_path("gnuplot")
  add("gnuplot", gnuplot and "ok" or "note", gnuplot and line_of("gnuplot --version") or
    gnuplot and "present" or ("not in PATH: plots as SVG and PNG need it (%s)"):format(
      shell.install("gnuplot-nox", "gnuplot")))
  local curl = shell.on_path("curl")
  add("curl", curl and "ok" or "note", curl and "present" or "not in PATH: no data can be fetched")
end

local function data(add)
  local folder, here = datasets.folder(), {}
  for _, set in ipairs(datasets.list) do
    local state = not set.generated and datasets.state(set, false) or ""
    if state:find "^here" then here[#here + 1] = set.name end
    if state == "as archive" then here[#here + 1] = set.name .. " (archive)" end
  end
  add("data", "ok", ("%s; here: %s"):format(folder or datasets.own_folder() or "no folder",
    #here > 0 and table.concat(here, ", ") or shell.named "no data set yet (toeplab data)"))
end

-- ---- The verb ----------------------------------------------------------------------------------

-- Returns the devices on which a backend can run, as far as this build knows.
local function devices_of(name)
  local list = { "cpu" }
  for _, device in ipairs { "cuda" } do
    if core.device_takes(device, name) then list[#list + 1] = device end
  end
  return list
end

local function print_backend(backend)
  print(("%-8s %s"):format(backend.name, backend.summary))
  print("         " .. backend.path)
  print("         on " .. table.concat(devices_of(backend.name), ", "))
  local rows = {}
  for i, o in ipairs(backend.options) do
    rows[i] = { "         " .. o.name, o.type, o.default, o.range or "", o.help }
  end
  if #rows == 0 then return end
  text_table.print({ "         option", "type", "default", "range", "" }, rows)
end

local function backend_json(backend)
  local options = {}
  for _, o in ipairs(backend.options) do
    options[o.name] = { type = o.type, default = o.default, range = o.range, help = o.help }
  end
  return json.line { name = backend.name, about = backend.summary, path = backend.path,
    devices = devices_of(backend.name), options = options }
end

local function list_backends(as_json)
  for _, backend in ipairs(core.backends()) do
    if as_json then print(backend_json(backend)) else print_backend(backend) end
  end
  if not as_json then
    local count, about = core.look_at_device "cuda"
    print(count and "cuda     " .. about or "no cuda: " .. about)
  end
  for _, problem in ipairs(core.backend_problems()) do errors.say("not usable: %s", problem) end
end

local prefixes = { bad = "BAD: ", note = "note: ", ok = "" }

-- Prints first what is wrong, then what could be better.
function doctor.run(set, words)
  if #words > 0 then errors.usage("doctor: takes no words, got '%s'", words[1]) end
  if set.backends then return list_backends(set.json) end
  local folder, code = records.folder(set.dir), errors.DONE
  local lines = { note = {}, ok = {} } -- what is bad is printed at once
  local _ <close> = defer(function()
    for _, line in ipairs(lines.note) do print(line) end
    for _, line in ipairs(lines.ok) do print(line) end
  end)
  local function add(name, state, text, worst)
    if state == "bad" then code = math.max(code, worst or errors.CHECK) end
    local line = set.json and json.line { name = name, state = state, text = text }
      or ("%-12s %s%s"):format(name, prefixes[state], text)
    if state == "bad" then print(line) else table.insert(lines[state], line) end
  end
  versions(add)
  probe(add, trial_files.nearest(folder))
  disk(add, trial_files.nearest(folder))
  database(add, folder)
  processor(add)
  backends(add)
  cuda(add)
  graphics(add)
  tools(add)
  scheduler(add)
  data(add)
  return code
end

return doctor
