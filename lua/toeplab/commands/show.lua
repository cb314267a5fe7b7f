-- show.lua: toeplab show: all that is known of a trial.
local progress = require "toeplab.progress"
local records = require "toeplab.records"
local report = require "toeplab.report"
local plan = require "toeplab.plan"
local stop = require "toeplab.stop"
local suggest = require "toeplab.suggest"

local show = {
  example = "toeplab show @last\n  toeplab show 3f9c1a",
  usage = "toeplab show ID...",
  about = "Shows the configuration, results, files and provenance of trials. ID: the beginning\n"
    .. "of a trial's id (toeplab ls), or @last.",
  options = {
    { name = "script", help = "print the script it was run from, nothing else" },
    { name = "dir", short = "C", value = "DIR", help = "the results folder" },
  },
}

local function field(name, value)
  if value ~= nil and value ~= "" then print(("%-10s %s"):format(name, value)) end
end

local function show_head(row, about)
  print(("%s  %s  %s"):format(row.id:sub(1, 12), row.experiment, about.label or ""))
  field("status", row.status .. (row.error and ": " .. row.error or ""))
  field("step", row.step)
  field("attempts", row.attempt)
  field("started", row.started and os.date("%Y-%m-%d %H:%M:%S", math.floor(row.started)))
  field("time", row.seconds and progress.duration(row.seconds))
  field("command", row.command)
  local dirty = row.git_dirty == 1 and " with changes" or ""
  field("commit", row.git_commit and row.git_commit .. dirty)
  field("code", row.code_hash)
  field("data", row.data_hash)
  field("host", row.host)
  field("version", about.version)
  field("threads", about.threads)
  for _, name in ipairs(suggest.keys(about.build or {})) do
    if about[name] == nil then field(name, about.build[name]) end
  end
end

local function show_tables(store, row)
  local config = store:decode(row.config)
  print("\nconfiguration")
  for _, key in ipairs(suggest.keys(config)) do
    print("  " .. key .. " = " .. plan.show(config[key]))
  end
  local last = store:rows("SELECT * FROM v_last WHERE trial = ? ORDER BY name", { row.id })
  local rows = {}
  for i, m in ipairs(last) do rows[i] = { "  " .. m.name, m.step, m.value or 0 / 0 } end
  if #rows > 0 then
    print()
    report.print({ "  metric", "step", "value" }, rows)
  end
  local files = store:rows("SELECT * FROM v_artifacts WHERE trial = ? ORDER BY path", { row.id })
  rows = {}
  for i, f in ipairs(files) do
    rows[i] = { "  " .. store.folder .. "/" .. f.path, f.kind, f.step, f.bytes,
      f.sha256:sub(1, 12) }
  end
  if #rows > 0 then
    print()
    report.print({ "  file", "kind", "step", "bytes", "sha256" }, rows)
  end
end

function show.run(set, words)
  if #words == 0 then stop.usage("show: which trial? Give an id (see toeplab ls) or @last") end
  local store <close> = records.open(records.folder(set.dir), "r")
  for i, word in ipairs(words) do
    local row = store:find(word)
    if set.script then
      local sweep = store:rows("SELECT source FROM sweeps WHERE id = ?", { row.sweep, n = 1 })[1]
      if not sweep then stop.usage("the script of trial %s is not stored", row.id:sub(1, 12)) end
      io.write(sweep.source)
    else
      if i > 1 then print() end
      show_head(row, store:decode(row.provenance))
      show_tables(store, row)
    end
  end
  return stop.DONE
end

return show
