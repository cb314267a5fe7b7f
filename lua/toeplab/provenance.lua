-- provenance.lua: what a result came from: code, command, machine, versions, environment.
local core = require "toeplab.core"
local shell = require "toeplab.shell"
local stop = require "toeplab.stop"

local provenance = {}

-- The output of a command without its last newline; nil if it fails.
local function output(command)
  local pipe = io.popen(command .. " 2>/dev/null", "r")
  local text = pipe:read("a")
  if not pipe:close() then return nil end
  return (text:gsub("\n$", ""))
end

-- The folder of the Lua library.
function provenance.library()
  local path = package.searchpath("toeplab.stop", package.path)
  return path and path:match("^(.*)/[^/]*$") or "."
end

-- Files that show results but do not make them: a change of theirs makes no trial another one.
local bystanders = {
  ["progress.lua"] = true, ["report.lua"] = true, ["provenance.lua"] = true, ["records.lua"] = true,
  ["runner.lua"] = true, ["datasets.lua"] = true, ["stop.lua"] = true, ["plan.lua"] = true,
  ["fetch.lua"] = true, ["shell.lua"] = true,
}

local function add_files(folder, list)
  for _, name in ipairs(core.sys.list(folder) or {}) do
    local path = folder .. "/" .. name
    if name:find("%.lua$") then
      if not bystanders[name] then list[#list + 1] = path end
    elseif name ~= "commands" and not name:find("%.") then
      add_files(path, list)
    end
  end
end

-- sha256 of the engine's version and of the library's files that a trial's numbers depend on.
function provenance.code_hash()
  local files, hashes = {}, { core.version }
  add_files(provenance.library(), files)
  table.sort(files)
  for _, path in ipairs(files) do
    local text, why = core.sys.read_file(path)
    if not text then stop.raise(stop.FAILED, "the library cannot be read: %s", why) end
    hashes[#hashes + 1] = core.sha256(text)
  end
  return core.sha256(table.concat(hashes, "\n"))
end

local shown = { "^TOEPLAB_", "^OMP_", "^OPENBLAS_", "^CUDA_", "^SLURM_", "^HDF5_", "^LANG$", "^LC_",
  "^TZ$", "^MALLOC_" }
local secret = { "key", "token", "secret", "password", "passwd", "credential" }

local function matches(name, patterns, plain)
  for _, pattern in ipairs(patterns) do
    if name:find(pattern, 1, plain) then return true end
  end
  return false
end

local function environment()
  local set = {}
  for line in (output("env") or ""):gmatch("[^\n]+") do
    local name, value = line:match("^([%w_]+)=(.*)$")
    if name and matches(name, shown, false) then
      set[name] = matches(name:lower(), secret, true) and "***" or value
    end
  end
  return set
end

-- commit and dirty are nil outside a git checkout.
function provenance.commit()
  local git = "git -C " .. shell.quote(provenance.library())
  local commit = output(git .. " rev-parse HEAD")
  if not commit then return nil end
  return commit, (output(git .. " status --porcelain --untracked-files=no") or "") ~= ""
end

-- A table of what can be known about this process; words: its command line.
function provenance.collect(words)
  local commit, dirty = provenance.commit()
  return {
    commit = commit, dirty = dirty, command = table.concat(words, " "),
    host = core.sys.hostname(), pid = core.sys.getpid(), threads = core.threads(),
    version = core.version, build = core.build_info(), environment = environment(),
  }
end

return provenance
