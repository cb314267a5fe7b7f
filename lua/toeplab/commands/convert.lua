-- commands/convert.lua: toeplab convert: the model of a stored trial as a recurrent one, in a file.
local arguments = require "toeplab.commands.arguments"
local converted = require "toeplab.store.converted"
local core = require "toeplab.core"
local records = require "toeplab.store.records"
local recurrent = require "toeplab.models.recurrent"
local report = require "toeplab.report.table_text"
local select = require "toeplab.store.select"
local errors = require "toeplab.base.errors"
local stored = require "toeplab.store.saved_model"
local suggest = require "toeplab.base.suggest"

local command = {
  example = "toeplab convert @last -o model.h5\n  toeplab generate model.h5 --prompt \"In the\"",
  usage = "toeplab convert TRIAL [-o FILE.h5]",
  about = "Turns the causal model of a trial into a recurrent one without training (ETSC): each\n"
    .. "Toeplitz operator becomes modes, whose state does not grow with the text. The file has\n"
    .. "all that toeplab generate needs. Prints for each operator how far its answer to an\n"
    .. "impulse is from the kernel (error), the largest answer in the next lags positions, where\n"
    .. "there should be none (after), and its state and its microseconds per token beside\n"
    .. "those of a ring of inputs, which computes the same.",
  options = {
    { name = "output", short = "o", value = "FILE", help = "what to write (ID.h5)" },
    { name = "form", value = "FORM",
      help = "exact (default): at any length; published: as in the paper, for N tokens" },
    { name = "lags", value = "N",
      help = "an operator sees N tokens (default: the length it was trained at)" },
    { name = "last", help = "the newest checkpoint, not the best" },
    { name = "dir", short = "C", value = "DIR", help = "the results folder" },
  },
}

-- Makes the session layer by layer, each measured while its kernel is there.
local function convert(model, form, lags)
  local rows = {}
  local session = recurrent.session(model, function(tno, name)
    local t, gamma = recurrent.kernel(tno, lags, name)
    local recurrence = core.recurrence(t, gamma, form)
    local row = core.no_grad(converted.measure, { recurrence = recurrence }, t, gamma)
    row.name = name
    rows[#rows + 1] = row
    return recurrence
  end)
  return session, rows
end

local function print_rows(rows)
  local header = { "operator", "lags", "modes", "error", "after", "state KiB", "ring KiB", "us",
    "ring us" }
  local lines, total = {}, { name = "all", bytes = 0, ring_bytes = 0, seconds = 0,
    ring_seconds = 0, error = 0, after = 0 }
  local function add(row)
    lines[#lines + 1] = {
      row.name, row.lags or "", row.modes or "", ("%.1e"):format(row.error),
      ("%.1e"):format(row.after), ("%.0f"):format(row.bytes / 1024),
      ("%.0f"):format(row.ring_bytes / 1024), ("%.1f"):format(row.seconds * 1e6),
      ("%.1f"):format(row.ring_seconds * 1e6),
    }
  end
  for _, row in ipairs(rows) do
    add(row)
    for _, name in ipairs { "bytes", "ring_bytes", "seconds", "ring_seconds" } do
      total[name] = total[name] + row[name]
    end
    for _, name in ipairs { "error", "after" } do total[name] = math.max(total[name], row[name]) end
  end
  add(total)
  report.print(header, lines)
end

local function load(set, words)
  local store <close> = records.open(records.folder(set.dir), "r")
  local row = select.one(store, words)
  local model, _, about = stored.load(store, row, {
    kind = set.last and "checkpoint" or nil,
    warn = function(...) errors.say("warning: %s", string.format(...)) end,
  })
  about.trial = row.id
  about.length = about.length or math.tointeger(store:config(row.config).length)
  recurrent.operators(model) -- refuses before anything is computed
  return model:eval(), about
end

function command.run(set, words)
  if #words == 0 then
    errors.usage("convert: which trial? Give one id (see toeplab ls) or @last")
  end
  local form = set.form or "exact"
  local ok, why = suggest.choose("--form", form, recurrent.forms)
  if not ok then errors.usage("convert: %s", why) end
  if set.output and not set.output:find "[^/]%.h5$" then
    errors.usage("convert: '%s' must end in .h5, by which toeplab generate knows a file",
      set.output)
  end
  local lags = arguments.integer("convert", set, "lags", 1)
  local model, about = load(set, words)
  lags = lags or about.length or 256
  local path = set.output or about.trial:sub(1, 12) .. ".h5"
  local session, rows = convert(model, form, lags)
  converted.write(path, session, about, form, lags)
  print_rows(rows)
  print(("%s: trial %s, step %d, %s form, %d lags"):format(path, about.trial:sub(1, 12),
    about.step, form, lags))
  return errors.DONE
end

return command
