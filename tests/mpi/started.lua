-- started.lua: what the tests of runs by several ranks share.
--   local started = dofile(...)
--   started.begin(MPIRUN, FOLDER)
-- MPIRUN starts processes on this machine; FOLDER is emptied and then holds what the runs store.
local checkpoint = require "toeplab.models.files.checkpoint"
local core = require "toeplab.core"
local records = require "toeplab.store.records"

local program = core.sys.executable()

local started, failed, count = { program = program }, 0, 0
local mpirun, folder

function started.begin(starter, place)
  mpirun, folder = starter, place
  os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(folder, folder))
end

function started.check(name, good, why)
  count = count + 1
  if not good then failed = failed + 1 end
  print((good and "ok " or "not ok ") .. name .. (good and "" or ": " .. tostring(why)))
end

-- Prints the counts and ends the program, with status 1 if a check failed or there was none.
function started.done()
  print(("%d passed, %d failed"):format(count - failed, failed))
  os.exit(failed == 0 and count > 0)
end

function started.write(path, text)
  local file <close> = assert(io.open(path, "w"))
  assert(file:write(text))
end

-- Writes the scripts of most tests to FOLDER: trial.lua and classifier.lua.
function started.scripts()
  started.write(folder .. "/trial.lua", [[
-- trial.lua: a small language model. What does it compute?
local tl = require "toeplab"
return tl.experiment "ranks" {
  fixed = tl.lm.fixed { corpus = "text:" .. ("the old man told a tale of the sea .\n"):rep(240),
    tokenizer = "bpe", vocab_size = 270, layers = 1, dim = 16, glu_dim = 16,
    rpe_dim = 8, rpe_layers = 1, length = 16, batch = 4, micro = 1, steps = 6, warmup = 4,
    scored = 256, lengths = { 16 } },
  trial = tl.lm.trial,
}
]])

  -- A classifier with batch norm and dropout, whose batches of 4 are cut into 4 micro batches.
  started.write(folder .. "/classifier.lua", [[
-- classifier.lua: a small classifier. What does it compute?
local tl = require "toeplab"
return tl.experiment "classifier" {
  fixed = { steps = 6, micro_batches = 4 },
  trial = function(t, c)
    local data = tl.tasks.listops { length = 32, min_length = 10, max_length = 31, train = 24,
      valid = 8, test = 8 }
    local model = tl.models.tnn_classifier { vocab = data.vocab, classes = data.classes, layers = 1,
      dim = 8, glu_dim = 8, rpe_dim = 4, dropout = 0.1 }
    local opt = tl.optim.adam(model, { lr = 1e-2 })
    for step in t:steps(c.steps, model, opt) do
      local loss, info = tl.classify.step(model, opt, data.train:batch(step, 4))
      t:log { loss = loss, accuracy = info.accuracy }
      if step % 100 == 0 then t:best(1 - tl.classify.accuracy(model, data.valid, 4)) end
    end
    t:load_best()
    t:log { test_accuracy = tl.classify.accuracy(model, data.test, 4) }
  end,
}
]])
end

-- Returns the words that run a script: by `ranks` processes, into a folder, with more words.
function started.command(script, ranks, dir, ...)
  local words = { program, "run", script, "-C", folder .. "/" .. dir, "-q", ... }
  if ranks > 1 then
    local start = {}
    for word in (mpirun .. " -n " .. ranks):gmatch "%S+" do start[#start + 1] = word end
    words = table.move(words, 1, #words, #start + 1, start)
    words[#words + 1] = "ranks=" .. ranks
  end
  return words
end

-- Runs words. Returns what they print, and whether they succeeded.
function started.run(words)
  local quoted = {}
  for i, word in ipairs(words) do quoted[i] = "'" .. word .. "'" end
  local pipe = assert(io.popen("timeout 120 " .. table.concat(quoted, " ") .. " 2>&1"))
  local text = pipe:read "a"
  return text, pipe:close()
end

-- Returns the ids of the trials in a folder of results, by their folders.
function started.trials(dir) return core.sys.list(folder .. "/" .. dir .. "/runs") or {} end

-- Returns the digest of every checkpoint in a folder of results, one text.
function started.digest(dir)
  local lines, runs = {}, folder .. "/" .. dir .. "/runs"
  for _, id in ipairs(started.trials(dir)) do
    for _, name in ipairs(core.sys.list(runs .. "/" .. id)) do
      local path = runs .. "/" .. id .. "/" .. name
      for key, part in pairs(name:find "%.h5$" and checkpoint.digest(path) or {}) do
        lines[#lines + 1] = ("%s/%s %s %s"):format(id, name, key, part.text)
      end
    end
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end

-- Returns the metrics in a folder of results, one text, without those of time and memory.
function started.metrics(dir)
  local lines = {}
  local all <close> = records.open(folder .. "/" .. dir, "r")
  for i, row in ipairs(all:rows [[SELECT trial, name, step, value FROM v_metrics
      WHERE name NOT LIKE '%per_second' AND name NOT LIKE 'peak%' ORDER BY 1, 2, 3]]) do
    lines[i] = ("%s %s %d %.17g"):format(row.trial, row.name, row.step, row.value or 0 / 0)
  end
  return table.concat(lines, "\n")
end

return started
