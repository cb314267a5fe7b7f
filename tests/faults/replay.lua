-- replay.lua: writes a folder as ext4 may have left it if power was lost after one of the calls
-- that record.c recorded, and prints the trials that had been reported as done before it. toeplab
-- lua replay.lua LOG BEFORE FOLDER SEED
--
-- BEFORE is a copy of the folder when recording began. SEED chooses the call. A file has the data
-- of its last sync, or all its data if the kernel happened to write it, which some SEEDs let
-- happen. Changes of names keep their order, and those before the last sync of any file survive,
-- because a sync writes ext4's journal. The shared memory of the database is lost.
local core = require "toeplab.core"

local log, before, folder, seed = table.unpack(arg)
local stream = core.stream(math.tointeger(seed), "power")

-- ---- Reading ----------------------------------------------------------------------------------

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read("a")
end

-- Returns the calls as lists of words; for a write the last word is its data.
local function recorded()
  local text, calls, at = read(log), {}, 1
  while at <= #text do
    local stop = text:find("\n", at, true)
    local call = {}
    for word in text:sub(at, stop - 1):gmatch("[^\t]+") do call[#call + 1] = word end
    at = stop + 1
    if call[1] == "write" then
      local bytes = math.tointeger(call[4])
      call[4] = text:sub(at, at + bytes - 1)
      at = at + bytes
    end
    calls[#calls + 1] = call
  end
  return calls
end

-- Adds the contents of the folder at path to tree: name -> true for a folder, {data=, synced=} for
-- a file.
local function add_folder(tree, path, name)
  local names = core.sys.list(path)
  if not names then
    local data = read(path)
    tree[name] = { data = data, synced = data }
    return
  end
  if name ~= "" then tree[name] = true end
  for _, child in ipairs(names) do
    add_folder(tree, path .. "/" .. child, (name == "" and "" or name .. "/") .. child)
  end
end

-- ---- Replaying --------------------------------------------------------------------------------

local actions = {}

function actions.make(tree, name) tree[name] = { data = "", synced = "" } end

function actions.folder(tree, name) tree[name] = true end

function actions.move(tree, from, to) tree[to], tree[from] = tree[from], nil end

function actions.link(tree, from, to) tree[to] = tree[from] end

function actions.gone(tree, name) tree[name] = nil end

function actions.size(tree, name, bytes)
  local file, size = tree[name], math.tointeger(bytes)
  file.data = file.data:sub(1, size) .. ("\0"):rep(size - #file.data)
  file.synced = file.synced:sub(1, size)
end

function actions.write(tree, name, offset, data)
  local file, at = tree[name], math.tointeger(offset)
  if not file then return end -- a log that was open before
  local old = file.data .. ("\0"):rep(at - #file.data)
  file.data = old:sub(1, at) .. data .. old:sub(at + #data + 1)
end

function actions.sync(tree, name)
  local file = tree[name]
  if type(file) == "table" then file.synced = file.data end
end

local function replay(calls, count)
  local tree = { messages = { data = "", synced = "" } }
  add_folder(tree, before, "")
  for i = 1, count do actions[calls[i][1]](tree, table.unpack(calls[i], 2)) end
  return tree
end

local function last_sync(calls, count)
  for i = count, 1, -1 do
    if calls[i][1] == "sync" then return i end
  end
  return 0
end

local calls = recorded()
local lost = 1 + stream:below(#calls)
local synced = last_sync(calls, lost)
local tree = replay(calls, synced + stream:below(lost - synced + 1))
local lazy, names = stream:below(2) == 0, {}
for name in pairs(tree) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  local file = tree[name]
  if file == true then
    assert(core.sys.mkdir(folder .. "/" .. name))
  elseif name ~= "messages" and not name:find("%-shm$") then
    local written = not lazy and stream:below(2) == 0
    local out <close> = assert(io.open(folder .. "/" .. name, "wb"))
    out:write(written and file.data or file.synced)
  end
end
local messages = replay(calls, lost).messages.data
for rate, number in messages:gmatch("rate=([%d.]+) seed=(%d+)  done ") do
  print(("%s-%s done"):format(rate, number))
end
