-- agree.lua -- the files that make packages agree with each other, with lab and with the README.
-- toeplab lua tests/packages/agree.lua [FOLDER]
local ROOT = arg[1] or arg[0]:match "^(.*)/tests/packages/[^/]*$" or "."

local function read(path)
  local file = assert(io.open(ROOT .. "/" .. path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

local function exists(path)
  local file = io.open(ROOT .. "/" .. path)
  return file ~= nil and file:close()
end

local function output(command)
  local pipe = assert(io.popen("cd '" .. ROOT:gsub("'", "'\\''") .. "' && " .. command))
  local text = pipe:read "a"
  assert(pipe:close(), command .. " failed")
  return text
end

local passed, failed = 0, 0
local function test(name, check)
  local fine, why = pcall(check)
  passed, failed = passed + (fine and 1 or 0), failed + (fine and 0 or 1)
  print((fine and "ok " or "not ok ") .. name)
  if not fine then print("  " .. tostring(why)) end
end

local function same(got, wanted, what)
  if got ~= wanted then
    error(("%s: '%s' is not '%s'"):format(what, tostring(got), tostring(wanted)), 0)
  end
end

-- The words of a list as text, sorted.
local function sorted(list)
  table.sort(list)
  return table.concat(list, " ")
end

-- ---- Versions -----------------------------------------------------------------------------------

local version = read("CMakeLists.txt"):match "project%(toeplab VERSION ([%d.]+)"

test("all files name the version of CMakeLists.txt", function()
  assert(version, "CMakeLists.txt names none")
  same(read("core/toeplab.h"):match "#define TL_VERSION \"([^\"]*)\"", version, "core/toeplab.h")
  local major, minor, patch = version:match "^(%d+)%.(%d+)%.(%d+)$"
  same(read("core/toeplab.h"):match "#define TL_VERSION_NUMBER (%d+)",
    ("%d"):format(10000 * major + 100 * minor + patch), "TL_VERSION_NUMBER")
  same(read("debian/changelog"):match "^toeplab %(([^)]*)%)", version, "debian/changelog")
  same(read("python/pyproject.toml"):match "\nversion = \"([^\"]*)\"", version, "pyproject.toml")
end)

test("the conda recipe takes it from there", function()
  local recipe = read "packaging/conda/meta.yaml"
  local file = recipe:match "load_file=\"([^\"]*)\""
  same(file, "../../CMakeLists.txt", "load_file")
  local pattern = recipe:match "regex_pattern=\"([^\"]*)\""
  same(pattern, "project.toeplab VERSION ([0-9.]+)", "regex_pattern") -- the same as a Lua pattern
  same(read("packaging/conda/" .. file):match(pattern), version, "what it finds")
end)

-- ---- The rock -----------------------------------------------------------------------------------

test("the rockspec is of the file's name, and names what is there", function()
  local path = "toeplab-dev-1.rockspec"
  local rock = {}
  assert(load(read(path), "@" .. path, "t", rock))()
  same(rock.package .. "-" .. rock.version .. ".rockspec", path, "its name")
  same(rock.build.type, "command", "build.type")
  for _, folder in ipairs(rock.build.copy_directories) do
    assert(output("ls -d " .. folder) == folder .. "\n", folder)
  end
  local made = read "CMakeLists.txt" .. read "cmake/install.cmake"
  local count = 0
  for variable in rock.build.build_command:gmatch "%-D(TL_[%w_]+)=" do
    assert(made:find(variable, 1, true), variable .. " is unknown to CMake")
    count = count + 1
  end
  assert(count > 0, "no variable")
  local component = rock.build.install_command:match "%-%-component (%w+)"
  assert(made:find("COMPONENT " .. component, 1, true), "no component " .. component)
end)

-- ---- Debian -------------------------------------------------------------------------------------

local needed, optional = {}, {} -- the packages of `lab packages`
for line in output("env -u CC ./lab packages"):gmatch "[^\n]+" do
  local list = line:find " optional" and optional or needed
  list[#list + 1] = line:match "%S+"
end

test("lab names the compiler that CC asks for", function()
  same(needed[1], "gcc", "without CC")
  same(output("CC='clang -m64' ./lab packages"):match "%S+", "clang", "with clang")
end)

-- The packages of a field of debian/control, without versions and architectures.
local function field(name)
  local text = assert(read("debian/control"):match("\n" .. name .. ":(.-)\n%f[%S]"), name)
  local list = {}
  local names = text:gsub("%b()", ""):gsub("%b[]", "")
  for word in names:gmatch "[^,%s]+" do list[#list + 1] = word end
  return list
end

-- Whether a package is for building, not for users.
local function builds(package) return package:find "%-dev$" or package:find "%-compiler$" end

test("debian/control needs what lab installs", function()
  local wanted = { "debhelper-compat", "libopenmpi-dev" } -- lab builds with MPI only where it is
  for _, package in ipairs(needed) do
    local always = package == "gcc" or package == "libc6-dev" -- build-essential
    if not always then wanted[#wanted + 1] = package end
  end
  for _, package in ipairs(optional) do
    if builds(package) then wanted[#wanted + 1] = package end
  end
  same(sorted(field "Build%-Depends"), sorted(wanted), "Build-Depends")
end)

test("the package toeplab recommends what lab installs for its users", function()
  local wanted = { "toeplab-fftw" }
  for _, package in ipairs(optional) do
    if not builds(package) then wanted[#wanted + 1] = package end
  end
  same(sorted(field "Recommends"), sorted(wanted), "Recommends")
end)

test("each file of debian/ is of a package, and names what is there", function()
  local control, count = read "debian/control", 0
  for name in output("ls debian"):gmatch "(%S+)%.install\n" do
    assert(control:find("\nPackage: " .. name .. "\n", 1, true), name .. " is no package")
    count = count + 1
  end
  same(count, select(2, control:gsub("\nPackage: ", "")), "files *.install")
  for path in read("debian/toeplab.docs"):gmatch "%S+" do assert(exists(path), path) end
  assert(read("debian/libtoeplab0.install"):find "rac", "no backend rac")
end)

test("debian/copyright has the text of LICENSE", function()
  local function words(text) return (text:gsub("\n %.\n", "\n\n"):gsub("%s+", " ")) end
  local text = words(read "LICENSE"):match "Permission is hereby.*SOFTWARE%."
  assert(words(read "debian/copyright"):find(text, 1, true), "another text")
  local who = read("LICENSE"):match "Copyright %(c%) ([^\n]*)"
  same(read("debian/copyright"):match "\nCopyright: ([^\n]*)", who, "who")
end)

-- ---- Images -------------------------------------------------------------------------------------

local stages = {} -- the stages of the Dockerfile: name of an instruction -> its last words
for line in read("Dockerfile"):gsub("\\\n%s*", ""):gmatch "[^\n]+" do
  local name, rest = line:match "^(%u+) (.*)"
  if name == "FROM" then stages[#stages + 1] = {} end
  if name then stages[#stages][name] = rest end
end

-- The words of a JSON list of strings.
local function words(text)
  local list = {}
  for word in text:gmatch "\"([^\"]*)\"" do list[#list + 1] = word end
  return table.concat(list, " ")
end

test("the images run the two commands of the README", function()
  same(#stages, 2, "stages")
  local first = read("README.md"):match "\n## Two commands\n\n    %./lab ([^\n]+)\n"
  same(words(stages[2].ENTRYPOINT), "toeplab", "ENTRYPOINT")
  same(words(stages[2].CMD), first, "the last stage")
  local second = words(stages[1].CMD)
  assert(read("README.md"):find("\n`" .. second .. "` builds and runs the tests", 1, true), second)
end)

test("the images start nothing as root", function()
  for i, stage in ipairs(stages) do same(stage.USER, "toeplab", "stage " .. i) end
end)

test("no list of packages is repeated", function()
  for _, path in ipairs { "Dockerfile", "packaging/toeplab.def", "packaging/runtime_packages",
    ".ci/run" } do
    local text = read(path)
    for _, list in ipairs { needed, optional } do
      for _, package in ipairs(list) do
        local name = package:gsub("%p", "%%%0")
        -- cmake is run there, and needs no mention
        local found = package:find "%-" and text:find("%f[%w]" .. name .. "%f[^%w-]")
        assert(not found, path .. " names " .. package)
      end
    end
  end
end)

test("Docker and Apptainer build by the same commands", function()
  local docker, definition, count = read "Dockerfile", read "packaging/toeplab.def", 0
  for line in definition:gmatch "[^\n]+" do
    local command = line:match "^    (.*)"
    local build = command and (command:find "^%./lab" or command:find "cmake"
      or command:find "^packaging/" or command:find "^xargs")
    if build then
      count = count + 1
      local shared = command:gsub("/?t?m?p?/packages$", "")
      assert(docker:find(shared, 1, true), "the Dockerfile lacks: " .. shared)
    end
  end
  same(count, 4, "commands")
end)

test("Docker's context leaves out what git ignores", function()
  local ignored = "\n" .. read ".dockerignore"
  for line in read(".gitignore"):gmatch "[^\n]+" do
    local path = line:gsub("^/", ""):gsub("/$", "")
    local found = ignored:find("\n" .. path .. "\n", 1, true)
      or ignored:find("\n**/" .. path .. "\n", 1, true)
    assert(found, line .. " is not in .dockerignore")
  end
end)

test("git ignores what commands write below results/, but not what is committed", function()
  for _, path in ipairs { "figures/quickstart-loss.svg", "reports/quickstart.html",
    "tables/theorem1.md", "runs/ab/cd/run.jnl", "sweeps/1.json", "runs.db", "runs.db-wal", "lock",
    "news", "alert.log", "changes/0.diff", "slurm/1/job.sh", "at-work/1", "claims/1" } do
    local found = false
    for line in read(".gitignore"):gmatch "[^\n]+" do
      local pattern = line:gsub("[%.%-]", "%%%0"):gsub("%*", "[^/]*")
      found = found or ("/results/" .. path):find("^" .. pattern) ~= nil
    end
    assert(found, ".gitignore lacks results/" .. path)
  end
end)

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0)
