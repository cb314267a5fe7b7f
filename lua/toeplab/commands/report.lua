-- commands/report.lua: toeplab report: writes one page of HTML about a sweep.
local core = require "toeplab.core"
local answers = require "toeplab.report.answers"
local output = require "toeplab.report.output"
local pages = require "toeplab.report.page"
local records = require "toeplab.store.records"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"
local trial_files = require "toeplab.store.trial_files"

local command = {
  example = "toeplab report quickstart\n  toeplab report tnn-table10 scale=laptop -o table10.html",
  usage = "toeplab report EXPERIMENT|SWEEP [KEY=VALUE...]",
  about = "Writes one page of HTML about the newest sweep of an experiment, or about that of a\n"
    .. "number (toeplab status --json): its question, results, the paper's table beside them,\n"
    .. "curves, trials, failures, origin. The page needs no network and no other file.\n"
    .. "KEY=VALUE chooses trials, scale=NAME a scale. What an experiment's own report prints and\n"
    .. "draws is on the page if its script is unchanged.",
  options = {
    { name = "output", short = "o", value = "FILE",
      help = "the page (default: reports/EXPERIMENT.html of the folder)" },
    output.dir,
  },
}

-- Returns the pool of trials that the words select.
local function pool_of(store, name, filters)
  local number = math.tointeger(tonumber(name))
  local pool, others = answers.pool(store, number and "sweep" or "experiment", number or name,
    filters)
  if pool then return pool end
  if next(filters) and #others > 0 then
    errors.usage("report: no trials of %s fit; there are: %s", name,
      table.concat(others, "; "))
  end
  if number then errors.usage("report: there is no sweep %d (see toeplab status --json)",
    number) end
  local names = {}
  for i, row in ipairs(store:rows "SELECT DISTINCT experiment AS name FROM v_trials") do
    names[i] = row.name
  end
  errors.usage("report: %s holds no experiment '%s'%s", store.folder, name,
    suggest.hint(name, names))
end

local function place(store, set, pool)
  if set.output then return set.output end
  return ("%s/%s.html"):format(trial_files.make(store.folder, "reports"), pages.name(pool))
end

function command.run(set, words)
  if #words == 0 then errors.usage("report: of which experiment? (see toeplab status)") end
  local filters = answers.filters("report", table.move(words, 2, #words, 1, {}))
  local store <close> = records.open(records.folder(set.dir), "r")
  local pool = pool_of(store, words[1], filters)
  local page, missing = pages.sweep(store, pool)
  if missing then errors.say("warning: figures are missing: %s", missing) end
  local path = place(store, set, pool)
  local ok, why = core.sys.write_file(path, page)
  if not ok then errors.raise(errors.FAILED, "report: %s", why) end
  print(path)
  return errors.DONE
end

return command
