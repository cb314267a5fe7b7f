-- kernels.lua: prints what each CUDA kernel takes of a GPU's multiprocessor, as a Markdown table.
--   ./lab lua benches/kernels.lua [BUILD]
-- Compiles each .cu file of the folder BUILD (build), which has to be configured for CUDA, once
-- more with ptxas -v, and stores nothing. Needs nvcc and no GPU, and takes minutes. A row has all
-- variants of one template and, per compute capability, the most of them: registers of a thread,
-- bytes of static shared memory of a block, and bytes that a thread spills to memory.
-- What is not known here: shared memory whose size is chosen at launch (tile_rows, sum_tiles).
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local shell = require "toeplab.base.shell"

local build = arg[1] or "build"

-- Returns all that a command prints; raises if it fails.
local function output_of(command)
  return shell.output(command .. " 2>&1") or error("kernels.lua: failed: " .. command, 0)
end

-- Adds the kernels of a file to rows: name -> {name=, file=, variants=, [capability] = {registers=,
-- shared=, spilled=}}.
local function add(rows, file, text)
  local names = {}
  for mangled in text:gmatch "entry function '([^']+)'" do names[#names + 1] = mangled end
  if #names == 0 then return end
  local plain = output_of("c++filt " .. shell.line(names)):gmatch "[^\n]+"
  local pattern = "entry function '[^']+' for 'sm_(%w+)'.-(%d+) bytes spill stores.-"
    .. "Used (%d+) registers([^\n]*)"
  for capability, spilled, registers, rest in text:gmatch(pattern) do
    local name = plain():gsub("%b()", ""):gsub("%b<>", ""):match "([%w_]+)%s*$"
    local row = rows[name .. file] or { name = name, file = file, variants = 0 }
    rows[name .. file] = row
    local of = row[capability] or { registers = 0, shared = 0, spilled = 0, variants = 0 }
    row[capability] = of
    of.spilled = math.max(of.spilled, math.tointeger(spilled))
    of.registers = math.max(of.registers, math.tointeger(registers))
    of.shared = math.max(of.shared, math.tointeger(rest:match "(%d+) bytes smem" or 0))
    of.variants = of.variants + 1
    row.variants = math.max(row.variants, of.variants)
    rows.capabilities[capability] = true
  end
end

local rows, files = { capabilities = {} }, 0
local commands = build .. "/compile_commands.json"
for _, entry in ipairs(json.decode(assert(core.sys.read_file(commands)))) do
  if entry.file:find "%.cu$" and entry.command:find "nvcc" then
    local command = entry.command:gsub("^.-(%S*nvcc )", "%1"):gsub(" %-o %S+", "")
    files = files + 1
    io.stderr:write(("%d: %s\n"):format(files, entry.file))
    add(rows, entry.file:match "([%w_]+/[%w_]+%.cu)$", output_of(("cd %s && %s -o /dev/null "
      .. "-Xptxas -v"):format(shell.quote(entry.directory), command)))
  end
end
if files == 0 then error(commands .. " has no .cu file: configure with -DTL_CUDA=ON", 0) end

local capabilities, list = {}, {}
for name in pairs(rows.capabilities) do capabilities[#capabilities + 1] = name end
rows.capabilities = nil
for _, row in pairs(rows) do list[#list + 1] = row end
table.sort(capabilities)
table.sort(list, function(a, b) return a.file .. a.name < b.file .. b.name end)
local header, rule = "| kernel | file | variants |", "| --- | --- | --: |"
for _, what in ipairs { "registers", "shared", "spilled" } do
  for _, capability in ipairs(capabilities) do
    header, rule = header .. (" %s %s |"):format(what, capability), rule .. " --: |"
  end
end
print(header .. "\n" .. rule)
for _, row in ipairs(list) do
  local cells = { row.name, row.file, row.variants }
  for _, what in ipairs { "registers", "shared", "spilled" } do
    for _, capability in ipairs(capabilities) do
      cells[#cells + 1] = (row[capability] or {})[what] or "-"
    end
  end
  print("| " .. table.concat(cells, " | ") .. " |")
end
