-- bench/peer.lua: a program in another language that is measured beside ours: it reads requests
-- from a pipe and answers each with seconds.
local shell = require "toeplab.shell"

local peer = {}
peer.__index = peer

-- What PyTorch needs so that it does not give memory back and take it again in every call.
peer.tuned = {
  "ATEN_CPU_CAPABILITY=avx512", "MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=99999999999",
  "MALLOC_TOP_PAD_=268435456", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
}

-- The folder benches beside the folder of our Lua files: of a checkout or of an installation.
local function script(name)
  local here = package.searchpath("toeplab.bench.peer", package.path)
  local root = here:match "^(.*)/lua/toeplab/bench/peer%.lua$" or "."
  return root .. "/benches/" .. name
end

-- Starts benches/NAME with the interpreter that TOEPLAB_PYTHON names, else python3, with variables
-- set as environment lists them. Returns a peer with what it says of itself in about, or nil and
-- why there is none.
function peer.python(name, environment, ...)
  local python = os.getenv "TOEPLAB_PYTHON" or "python3"
  local there = python:find "/" or shell.on_path(python)
  if not there then return nil, "there is no " .. python end
  local pipe = os.tmpname()
  os.remove(pipe)
  if not shell.run("mkfifo " .. shell.quote(pipe)) then return nil, "mkfifo failed" end
  local words = { "env", "OMP_WAIT_POLICY=passive" }
  for _, word in ipairs(environment) do words[#words + 1] = shell.quote(word) end
  for _, word in ipairs { python, script(name), ... } do
    words[#words + 1] = shell.quote(tostring(word))
  end
  local p = setmetatable({}, peer)
  p.requests = assert(io.popen(("%s 2>/dev/null >%s"):format(table.concat(words, " "),
    shell.quote(pipe)), "w"))
  p.answers = assert(io.open(pipe, "r")) -- when the program has opened its end
  os.remove(pipe)
  p.about = p.answers:read "l"
  if p.about then return p end
  p:close()
  return nil, ("%s does not run benches/%s: no torch?"):format(python, name)
end

-- The number that the program answers to a request.
function peer:ask(...)
  self.requests:write(table.concat({ ... }, " "), "\n")
  self.requests:flush()
  local line = self.answers:read "l"
  return tonumber(line) or error("the peer ended: " .. tostring(line), 0)
end

function peer:close()
  pcall(self.requests.close, self.requests)
  self.answers:close()
end

return peer
