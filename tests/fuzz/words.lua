-- words.lua: mutates the words of command lines for fuzz.lua. It runs every verb but those that
-- train or measure, on a small store, with words changed, lost, doubled or taken from another verb.
--
-- What they write, such as -o FILE, goes to the current folder or below, which must be a scratch
-- one.
package.path = arg[0]:match "^(.*)fuzz/[^/]*$" .. "lua/?.lua;" .. package.path
local commands = require "toeplab.commands"
local core = require "toeplab.core"
local runner = require "toeplab.runs.runner"
local errors = require "toeplab.base.errors"
local sweeps = require "sweeps"

-- inputs before a new store is made; one of SPAWN inputs runs in a process
local REFRESH, SPAWN = 40, 60

-- FILE stands for the script, and ^ in a word for a space.
local lines = {
  "run FILE -n -j2 --timeout 30m --fail-fast",
  "run FILE -n --on slurm -j2 --time 2h --gpus 1 --limit 3 --line x --trials 4",
  "run FILE -qn scale=smoke",
  "plan FILE scale=smoke seeds=3 -j4 --list", "plan FILE --csv decay=0.5,learnable scale=smoke",
  "status", "status tnn-table10 --json", "ls --limit 3 --csv age<2d", "ls --trash", "show @last",
  "ls tnn-table10 status=done deep=true --sort loss --columns seed,decay,loss",
  "show @best:loss --json", "show @failed", "table", "table tnn-table10 --md",
  "table tnn/table10 --tex", "table tnn/table10 --why 0.95/val",
  "table tnn/table10 --html scale=smoke",
  "compare decay=0.9 decay=0.95 --metric loss --by lr", "show --diff @last @failed --csv",
  "compare tnn/table10 decay=0.9 decay=learnable --resolve 0.1 --csv --lower",
  "compare decay=0.9 --ratio", "compare tnn/table10 --baseline decay=0.9 seed=1,2 --csv",
  "ls --failures tnn-table10 --json", "mark @last --tag good",
  "mark @last", "mark @all --untag good", "mark @last --note it^was^long",
  "rm tnn-table10 status=done", "rm --restore @last", "rm --purge --dry-run",
  "rm --purge --days 0", "merge other --dry-run", "merge other",
  "plot tnn-table10 --metric loss --log y --term", "plot @last kernel --n 8 --term",
  "plot tnn-table10 --at ppl@ --by decay --term", "plot tnn-table10 --against lr --term",
  "report tnn-table10", "report 1 -o page.html", "export tnn-table10 --csv -o trials.csv",
  "export @all --metrics --json", "export note~long lr<0.01 loss>=0.2 ppl@16!=20",
  "ls --sql SELECT^name,avg(value)^FROM^v_last^GROUP^BY^1",
  "ls --csv --sql SELECT^*^FROM^v_trials",
  "fsck", "fsck --repair", "reproduce @last --ignore loss", "generate @last --prompt In",
  "generate @last -o model.h5", "verify --backend fft cases.h5", "doctor --backends", "data",
  "data show imdb",
  "data path wikitext-2", "model tnn_lm layers=1 dim=8 batch=2 length=8", "help run", "help ls",
  "help exit-codes", "version", "--version", "-h", "bench",
  "data bpe FILE --size 270 --out pairs.bpe", "doctor --json", "worker FILE --dir .",
}

local whole = {} -- the original contents of the store's files

-- Verbs that do more than query the store are stopped at their start.
local function disarm()
  local function refuse() errors.raise(errors.FAILED, "not here") end
  runner.run = refuse
  require "toeplab.runs.worker".main = refuse
  require "toeplab.runs.reproduce".run = refuse
end

local function say() return io.stdout end

-- Runs main(words) and discards its output; returns its exit code and its error message.
local function main(words)
  local complaint, out, err, write, show = {}, io.stdout, io.stderr, io.write, print
  local silent = setmetatable({ write = function(self) return self end, setvbuf = say,
    flush = say, close = say }, { __index = function() return say end })
  io.stdout, io.write = silent, function() return silent end
  rawset(_G, "print", say)
  io.stderr = setmetatable({ write = function(self, ...)
    for _, text in ipairs { ... } do complaint[#complaint + 1] = tostring(text) end
    return self
  end }, { __index = silent })
  local ok, code = pcall(commands.main, words)
  io.stdout, io.stderr, io.write = out, err, write
  rawset(_G, "print", show)
  if not ok then error(code, 0) end
  return code, table.concat(complaint)
end

-- Does the same in a process of its own, as a shell would.
local function spawned(folder, words)
  local log = folder .. "/log"
  core.sys.remove(log)
  local process = assert(core.sys.spawn({ core.sys.executable(), table.unpack(words) }, log))
  local code, signal = process:wait(true)
  if not code then error("attempt to die of signal " .. tostring(signal), 0) end
  return code, core.sys.read_file(log) or ""
end

local own = { -- verbs that do more than query, when run in a process of their own
  run = true, worker = true, lua = true, bench = true,
  reproduce = true,
}

-- Keeps the words within the current folder and the sizes small.
local function harmless(words)
  for _, word in ipairs(words) do
    local away = word:find "^/" or word:find "=/" or word:find("..", 1, true) or word:find "^%-%a/"
      or word:find "^~" or word == "fetch" or word == "-"
    local large = word:find "%d%d%d%d%d" or word:find "%de%+?%d" or word:find "0x"
    if away or large and (words[1] == "model" or words[1] == "data") then return false end
  end
  return words[1] ~= "lua"
end

local apart = "data model verify bench help version --version -h worker" -- without a results folder

-- Returns one input: a line of the list, changed.
local function input(m)
  local words = {}
  for word in m.pick(lines):gmatch "%S+" do
    words[#words + 1] = word == "FILE" and "x.lua" or (word:gsub("%^", " "))
  end
  for _ = 1, m.below(3) do
    local at, kind = 1 + m.below(math.max(1, #words)), m.below(6)
    if kind < 3 then
      words[at] = m.mutate(words[at] or "")
    elseif kind == 3 then
      table.remove(words, at)
    elseif kind == 4 then
      table.insert(words, at, words[at] or "")
    else
      local others = {}
      for word in m.pick(lines):gmatch "%S+" do others[#others + 1] = word end
      table.insert(words, at, m.pick(others))
    end
  end
  local lonely = words[1] and apart:find(words[1], 1, true)
  if not lonely and m.below(8) > 0 then table.move({ "-C", "store" }, 1, 2, #words + 1, words) end
  return words
end

-- Makes a sweep that varies decay, with three seeds and one failed trial, beside the trial of m.
local function make_stores(m)
  m.store "store"
  m.store "other"
  local trials = {}
  for i, decay in ipairs { 0.9, 0.95, "learnable", 0.9, 0.95, "learnable", 0.9, 0.95 } do
    trials[i] = { config = { decay = decay, lr = 0.001 * i, corpus = "a b", deep = i > 2 },
      seed = (i + 2) // 3, status = i == 5 and "failed" or "done",
      metrics = { loss = 1 / i, best_val_ppl = 20 + i, ["ppl@16"] = 30 - i, ["ppl@32"] = 31 } }
  end
  sweeps.write("store", { experiment = "tnn-table10", answers = "tnn/table10", scale = "smoke",
    columns = { "loss", "best_val_ppl" }, axes = { "decay" }, trials = trials })
end

-- Takes m with script, store(name), which makes a store with a trial, below, pick and mutate of
-- fuzz.lua. Returns a function that tries one input.
return function(m)
  disarm()
  m.write("x.lua", m.script)
  make_stores(m)
  for _, name in ipairs { "store/runs.db", "other/runs.db" } do whole[name] = m.read(name) end
  local count = 0
  return function()
    if count % REFRESH == 0 then
      for name, text in pairs(whole) do
        for _, ending in ipairs { "-wal", "-shm" } do os.remove(name .. ending) end
        m.write(name, text)
      end
    end
    count = count + 1
    local words = input(m)
    if not harmless(words) then return end
    m.write("input", table.concat(words, "\n"))
    local alone = m.below(SPAWN) == 0 and not own[words[1]]
    local code, text = (alone and spawned or function(_, list) return main(list) end)(".", words)
    -- A position in the library shows a defect; one in the script is part of a message.
    local place = text:match "[^%s]*%.lua:%d+:"
    if place and not place:find "x%.lua" or text:find "Sanitizer" or code < 0 or code > 6 then
      error(("attempt to go on: exit code %d, %s"):format(code, text), 0)
    end
    if code > 0 then error(text, 0) end
  end
end
