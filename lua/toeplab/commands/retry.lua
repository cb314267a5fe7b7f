-- commands/retry.lua: toeplab retry: queues trials that did not end well to be run again.
local changes = require "toeplab.store.changes"
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"
local requests = require "toeplab.store.requests"
local selection = require "toeplab.store.selection"
local secrets = require "toeplab.base.secrets"
local errors = require "toeplab.base.errors"

local retry = {
  example = "toeplab retry\n  toeplab retry decay @timeout\n  toeplab retry 3f9c1a",
  usage = "toeplab retry [TRIAL...]",
  about = "Queues trials that failed, timed out, were stopped by a guard, a gradient that was not\n"
    .. "finite or a budget, interrupted or killed, and prints the commands that run them: each\n"
    .. "continues from its checkpoint. Finished, queued and running trials stay as they are.\n"
    .. "Without words: all.\n"
    .. selection.help,
  words = { "trials" },
  options = {
    output.dry_run,
    output.dir,
  },
}

-- Queues the trials, or only finds out which they are.
local function queue(set, words)
  local folder, dry = records.folder(set.dir), set["dry-run"]
  local arguments = { words = words, dry = dry }
  if not dry then return requests.perform(folder, "retry", arguments) end
  local store <close> = records.open(folder, "r")
  return changes.retry(store, arguments)
end

function retry.run(set, words)
  local done, seen = queue(set, words), {}
  print(("%s%s"):format(output.count(done.trials, "trial"),
    set["dry-run"] and " would be queued" or " queued"))
  for _, command in ipairs(done.commands) do
    command = output.again(command)
    if not seen[command] then
      local hidden = command:find(secrets.MASK, 1, true)
      print("  " .. command .. (hidden and "  (with the secret in place of ***)" or ""))
    end
    seen[command] = true
  end
  return errors.DONE
end

return retry
