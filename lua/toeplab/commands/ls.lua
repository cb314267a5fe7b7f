-- ls.lua: toeplab ls: the trials of the results folder.
local arguments = require "toeplab.commands.arguments"
local json = require "toeplab.json"
local progress = require "toeplab.progress"
local records = require "toeplab.records"
local report = require "toeplab.report"
local stop = require "toeplab.stop"
local suggest = require "toeplab.suggest"
local core = require "toeplab.core"

local ls = {
  example = "toeplab ls\n  toeplab ls quickstart --status failed",
  usage = "toeplab ls [EXPERIMENT]",
  about = "Lists trials, the last started first.",
  options = {
    { name = "status", value = "STATUS", 
      help = "queued, running, done, failed, interrupted or killed" },
    { name = "limit", value = "N", help = "at most N trials" },
    { name = "csv", help = "as CSV" },
    { name = "json", help = "as JSON, one object a line" },
    { name = "dir", short = "C", value = "DIR", help = "the results folder" },
  },
}

-- A trial marked running whose process is gone was killed.
local function status_of(row)
  local here = row.host == core.sys.hostname() and row.pid and core.sys.exists("/proc/self")
  if row.status == "running" and here and not core.sys.exists("/proc/" .. row.pid) then
    return "killed"
  end
  return row.status
end

local function when(seconds)
  return seconds and os.date("%Y-%m-%d %H:%M", math.floor(seconds)) or nil
end

local function query(store, set, experiment)
  local sql = [[SELECT t.id, t.experiment, t.status, t.step, t.started, t.seconds, t.host, r.pid,
      json_extract(t.provenance, '$.label') AS label, l.value AS loss
    FROM v_trials t JOIN trials r ON r.id = t.id
    LEFT JOIN v_last l ON l.trial = t.id AND l.name = 'loss'
    WHERE ?1 IS NULL OR t.experiment = ?1 ORDER BY t.started DESC, t.id]]
  local limit, list = arguments.integer("ls", set, "limit", 1), {}
  local rows = store:rows(sql, { experiment, n = 1 })
  if experiment and #rows == 0 then
    stop.raise(stop.FAILED, "%s holds no trials of '%s'", store.folder, experiment)
  end
  for _, row in ipairs(rows) do
    row.status = status_of(row)
    if (not set.status or row.status == set.status) and #list < (limit or #rows) then
      list[#list + 1] = row
    end
  end
  return list
end

local statuses = { "queued", "running", "done", "failed", "interrupted", "killed" }

local function check(set, words)
  if #words > 1 then stop.usage("ls: takes one experiment, got '%s' too", words[2]) end
  if set.csv and set.json then stop.usage("ls: choose one of --csv and --json") end
  local ok, why = suggest.choose("status", set.status or statuses[1], statuses)
  if not ok then stop.usage("ls: %s", why) end
end

function ls.run(set, words)
  check(set, words)
  local store <close> = records.open(records.folder(set.dir), "r")
  local header = { "id", "experiment", "trial", "status", "step", "loss", "started", "time" }
  local rows = {}
  for i, t in ipairs(query(store, set, words[1])) do
    rows[i] = { t.id:sub(1, 12), t.experiment, t.label, t.status, t.step, t.loss,
      when(t.started), t.seconds and progress.duration(t.seconds) }
  end
  if set.json then
    for _, row in ipairs(rows) do
      local object = {}
      for c, name in ipairs(header) do object[name] = row[c] end
      print(json.line(object))
    end
  elseif set.csv then
    io.write(report.csv(header, rows))
  else
    report.print(header, rows)
  end
  return stop.DONE
end

return ls
