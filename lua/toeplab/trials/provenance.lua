-- trials/provenance.lua: records where a result came from: code, command, machine, versions and
-- environment.
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"

local provenance = {}

-- Returns the folder of the Lua library.
function provenance.library()
  local path = package.searchpath("toeplab", package.path)
  return path and path:match("^(.*)/[^/]*$") or "."
end

-- Returns the folder `name` in the sources of a build, or in the data of an installation; nil if
-- there is none.
function provenance.data(name)
  local library = provenance.library()
  for _, root in ipairs { "/../../", "/../../../toeplab/" } do
    if core.sys.exists(library .. root .. name) then return library .. root .. name end
  end
end

local function add_files(folder, list)
  for _, name in ipairs(core.sys.list(folder) or {}) do
    local path = folder .. "/" .. name
    if name:find "%.lua$" then
      list[#list + 1] = path
    elseif not name:find "%." then
      add_files(path, list)
    end
  end
end

-- Lists the compiled files: the program, the engine that it runs with, and every backend.
local function engine_files()
  local list = { core.sys.executable() }
  local maps = core.sys.read_file("/proc/self/maps") or ""
  for _, name in ipairs { "libtoeplab", "libtoeplab%-lab" } do
    list[#list + 1] = maps:match("(/[^\n]*/" .. name .. "%.so[%d.]*)\n")
  end
  for _, backend in ipairs(core.backends()) do list[#list + 1] = backend.path end
  return list
end

-- Returns the sha256 of all the code that runs a trial on a device ("cpu" by default): the engine
-- with its backends, the device plugin, and every file of the Lua library.
function provenance.code_hash(device)
  local files, hashes = engine_files(), { core.version }
  add_files(provenance.library(), files)
  files[#files + 1] = devices.file(device or "cpu")
  for i, path in ipairs(files) do
    local ok, hash = pcall(core.sha256_file, path)
    if not ok then errors.raise(errors.FAILED, "the program cannot be read: %s", tostring(hash)) end
    hashes[i + 1] = hash
  end
  table.sort(hashes)
  return core.sha256(table.concat(hashes, "\n"))
end

local shown = { "^TOEPLAB_", "^OMP_", "^OPENBLAS_", "^CUDA_", "^SLURM_", "^HDF5_", "^LANG$", "^LC_",
  "^TZ$", "^MALLOC_" }

local function is_shown(name)
  for _, pattern in ipairs(shown) do
    if name:find(pattern) then return true end
  end
  return false
end

local function environment()
  local set = {}
  for line in (shell.output("env") or ""):gmatch("[^\n]+") do
    local name, value = line:match("^([%w_]+)=(.*)$")
    if name and is_shown(name) then set[name] = value end
  end
  return secrets.environment(set)
end

-- Returns a git command for the checkout. --no-optional-locks keeps status and diff from locking
-- the index: a kill would leave the lock behind, and the user could no longer commit.
local function in_checkout()
  return "git --no-optional-locks -c diff.autoRefreshIndex=false -C "
    .. shell.quote(provenance.library())
end

-- Returns the commit and whether tracked files of the checkout have changes; both are nil outside a
-- git checkout.
function provenance.commit()
  local git = in_checkout()
  local commit = shell.output(git .. " rev-parse HEAD")
  if not commit then return nil end
  return commit, (shell.output(git .. " status --porcelain --untracked-files=no") or "") ~= ""
end

local features = { "sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "amx_tile",
  "asimd", "sve" }

-- Returns the features of the processor on which results may depend: "avx2 fma".
function provenance.features()
  local info, found = core.sys.read_file("/proc/cpuinfo") or "", {}
  local flags = info:match("\nflags%s*: ([^\n]*)") or info:match("\nFeatures%s*: ([^\n]*)") or ""
  for _, name in ipairs(features) do
    if (" " .. flags .. " "):find(" " .. name .. " ", 1, true) then found[#found + 1] = name end
  end
  return table.concat(found, " ")
end

-- ---- Changes that are not committed -------------------------------------------------------------

local MOST = 1 << 20 -- bytes of a stored diff

local LONGEST = 2000 -- bytes of a line of a diff to search for secrets

-- Returns whether a line may assign a secret or be part of a key.
local function reveals(line)
  if #line > LONGEST then return true end -- unlikely to be source code, and slow to search
  if line:find("PRIVATE KEY", 1, true) or line:find("AKIA%w%w%w%w%w%w%w%w%w%w%w%w") then
    return true
  end
  if secrets.text(line) ~= line then return true end
  local name, value = line:match("([%w_%-]+)[\"']?%s*[=:]%s*[\"']?([%w+/_%-.]+)")
  return name and (#value >= 16 and value:find("%d") and secrets.variable(name)
    or not tonumber(value) and name:lower() ~= "token" and secrets.certain(name)) -- of a parser
end

-- Returns a part of a diff, which begins with "diff --git", with its secrets masked.
function provenance.masked(part)
  local head = part:match("^[^\n]*"):lower()
  local hidden = head:find("%.env%f[^%w]") or head:find("%.pem%f[^%w]") or head:find("id_rsa")
    or head:find("credential") or head:find("secret") or head:find("password")
  if hidden then return part:match("^[^\n]*\n") .. "(left out: its name suggests a secret)\n" end
  return (part:gsub("[^\n]+", function(line)
    return line:find("^[-+ ]") and reveals(line) and line:sub(1, 1) .. "(masked)" or nil
  end))
end

-- Returns the uncommitted changes of the checkout in the format of git diff, with secrets masked;
-- nil if there are none. The second result is whether they were cut.
function provenance.changes()
  local text = shell.output(in_checkout()
    .. " -c core.quotepath=off diff HEAD --no-color --no-ext-diff --no-textconv")
  if not text or text == "" then return nil end
  local parts, from = {}, 1
  while from do
    local next_from = text:find("\ndiff --git ", from, true)
    parts[#parts + 1] = provenance.masked(text:sub(from, next_from or -1))
    from = next_from and next_from + 1
  end
  local kept = table.concat(parts)
  if kept:sub(-1) ~= "\n" then kept = kept .. "\n" end
  if #kept <= MOST then return kept, false end
  return kept:sub(1, MOST) .. ("\n(cut: %d bytes in all)\n"):format(#kept), true
end

-- Returns a table that describes this process. words: its command line; exp: the experiment whose
-- trials it runs, nil if it runs none.
function provenance.collect(words, exp)
  local commit, dirty = provenance.commit()
  local own = exp and exp.own
  return {
    commit = commit, dirty = dirty, command = shell.line(secrets.words(words)),
    modules = own and own.bytes or "", module_tokens = own and own.tokens,
    code = exp and exp.reach.parts,
    host = core.sys.hostname(), pid = core.sys.getpid(), threads = core.threads(),
    version = core.version, build = core.build_info(), environment = environment(),
    features = provenance.features(),
  }
end

return provenance
