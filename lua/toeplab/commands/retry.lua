-- commands/retry.lua: toeplab retry: queues trials that did not end well to be run again.
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"
local selection = require "toeplab.store.selection"
local secrets = require "toeplab.base.secrets"
local errors = require "toeplab.base.errors"

local retry = {
  example = "toeplab retry\n  toeplab retry @timeout experiment=decay\n  toeplab retry 3f9c1a",
  usage = "toeplab retry [TRIAL...]",
  about = "Queues trials that failed, timed out, were stopped by a guard or a budget, interrupted\n"
    .. "or killed, and prints the commands that run them: each continues from its checkpoint.\n"
    .. "Finished, queued and running trials stay as they are. Without words: all.\n"
    .. selection.help,
  options = {
    { name = "dry-run", short = "n", help = "only print what would be done" },
    output.dir,
  },
}

function retry.run(set, words)
  local store <close> = records.open(records.folder(set.dir), set["dry-run"] and "r" or "u")
  local query = selection.new(store, words)
  local list = query:rows("t.id, t.step, t.error, t.command, " .. query.status .. " AS status",
    ("AND (t.status IN ('failed', 'interrupted') OR %s = 'killed') ORDER BY t.started, t.id")
      :format(query.status))
  if not set["dry-run"] then store:retry(list) end
  print(("%s%s"):format(output.count(#list, "trial"),
    set["dry-run"] and " would be queued" or " queued"))
  local seen = {}
  for _, t in ipairs(list) do
    local command = t.command and output.again(t.command)
    if command and not seen[command] then
      local hidden = command:find(secrets.MASK, 1, true)
      print("  " .. command .. (hidden and "  (with the secret in place of ***)" or ""))
    end
    seen[command or ""] = true
  end
  return errors.DONE
end

return retry
