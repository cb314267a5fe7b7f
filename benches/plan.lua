-- plan.lua: compares what `plan` predicts with what `run` takes.
--   ./lab --threads 1 lua benches/plan.lua FOLDER
-- Runs a small language model in FOLDER, a new one. From that trial alone `plan` predicts it four
-- times as wide, as long, and with four times the batch or the steps, and with eight times the
-- vocabulary; then these are run. It takes half a minute on an idle processor, and fails if a
-- prediction is wrong by more than a factor of 2. The first line predicts the small model itself,
-- from FLOP, bytes and the rates of the machine.
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local records = require "toeplab.store.records"
local text_table = require "toeplab.base.text_table"

local folder = arg[1] or error("plan.lua: which folder?", 0)

local SCRIPT = [[
local tl = require "toeplab"
return tl.experiment "small" {
  fixed = tl.lm.fixed { corpus = %q, vocab_size = 270, layers = 2, dim = 32, glu_dim = 32,
    rpe_dim = 16, rpe_layers = 2, table_length = 64, length = 64, batch = 4, micro = 4,
    steps = 300, warmup = 30, lengths = { 64 }, scored = 2048 },
  trial = tl.lm.trial, report = { rows = "seed", columns = { "test_ppl" } },
}
]]

local CASES = { "", "dim=128", "length=256", "batch=16 micro=16", "vocab_size=2160", "steps=1200" }

-- Returns what the program prints for a verb with the experiment and the words.
local function toeplab(verb, words)
  local pipe <close> = assert(io.popen(("'%s' --threads %d %s '%s/small.lua' -C '%s' %s"):format(
    core.sys.executable(), core.threads(), verb, folder, folder, words)))
  return pipe:read "a"
end

local function predict(words) return json.decode(toeplab("plan --json", words)).seconds end

-- Returns the seconds that the trial of these words takes.
local function run(words)
  toeplab("run -q", words)
  local store <close> = records.open(folder, "r")
  return store:rows("SELECT seconds FROM trials WHERE status = 'done' ORDER BY finished DESC")[1]
    .seconds
end

local function write(name, text)
  local file <close> = assert(io.open(folder .. "/" .. name, "w"))
  file:write(text)
end

-- Returns a text that has 2,160 byte pairs: the manuals.
local function corpus()
  local docs, parts = (arg[0]:match "^(.*)/benches/" or ".") .. "/docs", {}
  for _, name in ipairs(core.sys.list(docs)) do
    if name:find "%.md$" or name:find "%.in$" then
      parts[#parts + 1] = core.sys.read_file(docs .. "/" .. name)
    end
  end
  return table.concat(parts)
end

assert(core.sys.mkdir(folder))
write("corpus.txt", corpus())
write("small.lua", SCRIPT:format(folder .. "/corpus.txt"))
local predicted, rows, wrong = {}, {}, 0
predicted[1] = predict ""
local took = { run "" }
for i = 2, #CASES do predicted[i] = predict(CASES[i]) end
for i, words in ipairs(CASES) do
  took[i] = took[i] or run(words)
  local ratio = predicted[i] / took[i]
  if ratio > 2 or ratio < 0.5 then wrong = wrong + 1 end
  rows[i] = { i == 1 and "as it is" or words, ("%.2f"):format(predicted[i]),
    ("%.2f"):format(took[i]), ("%.2f"):format(ratio) }
end
text_table.print({ "trial", "predicted s", "took s", "ratio" }, rows)
if wrong > 0 then
  error(("%d predictions are wrong by more than a factor of 2"):format(wrong), 0)
end
