-- commands/report.lua: toeplab report: writes one page of HTML about a sweep, or serves one that
-- grows with it.
local arguments = require "toeplab.base.arguments"
local filter = require "toeplab.store.filter"
local output = require "toeplab.report.output"
local pages = require "toeplab.report.page"
local frames = require "toeplab.report.frames"
local records = require "toeplab.store.records"
local errors = require "toeplab.base.errors"
local server = require "toeplab.live.server"
local trial_files = require "toeplab.store.trial_files"

local command = {
  example = "toeplab report quickstart\n  toeplab report tnn-table10 scale=laptop -o table10.html",
  usage = "toeplab report EXPERIMENT|SWEEP [KEY=VALUE...]\n"
    .. "       toeplab report --serve [--port N] [EXPERIMENT|SWEEP]",
  about = "Writes one page of HTML about all commands of an experiment, or about the\n"
    .. "sweep of a number (toeplab status --json): its question, results, the paper's table\n"
    .. "beside them, curves, trials, failures, origin. The page needs no network or other file.\n"
    .. "KEY=VALUE selects trials, scale=NAME a scale. The page includes the output of an\n"
    .. "experiment's own report if its script is unchanged.\n\n"
    .. "--serve serves a page with the curves of the newest sweep, which grows while trials run,\n"
    .. "to browsers on this machine. It prints the address, whose random token every request\n"
    .. "needs. Ctrl-C ends it.",
  words = { "stored", "filters" },
  options = {
    { name = "output", short = "o", value = "FILE", writes = true,
      help = "the page (default: reports/EXPERIMENT.html of the folder; -: standard output)",
      more = "The name ends in the number of a sweep and in filters, if they are given." },
    { name = "serve", help = "serve a page that grows with the sweep, on 127.0.0.1" },
    { name = "port", value = "N", help = "the port of --serve (default: a free one)" },
    output.dir,
  },
}

-- Returns the path of the page about a frame; different words have different paths.
local function place(store, set, frame, words)
  if set.output then return set.output end
  local name = pages.name(frame)
  if math.tointeger(tonumber(words[1])) then name = name .. "-" .. words[1] end
  return ("%s/%s.html"):format(trial_files.make(store.folder, "reports"), output.file_name(name,
    table.move(words, 2, #words, 1, {})))
end

local function serve(set, words)
  if set.output then errors.usage("report: --output cannot be combined with --serve") end
  if #words > 1 then errors.usage("report: --serve takes one sweep, got '%s' too", words[2]) end
  local port = arguments.integer("report", set, "port", 1, 65535) or 0
  return server.run { folder = records.folder(set.dir), name = words[1], port = port }
end

function command.run(set, words)
  if set.serve then return serve(set, words) end
  if set.port then errors.usage("report: --port requires --serve") end
  if #words == 0 then errors.usage("report: of which experiment? (see toeplab status)") end
  local filters = filter.read("report", table.move(words, 2, #words, 1, {}))
  local store <close> = records.snapshot(records.folder(set.dir))
  local frame, others = frames.named(store, words[1], filters)
  if not frame then frames.none_is("report", store, words[1], others) end
  local page, missing = pages.sweep(store, frame)
  if missing then errors.say("warning: figures are missing: %s", missing) end
  if set.output == "-" then
    output.write(page)
    return errors.DONE
  end
  local path = place(store, set, frame, words)
  output.save(path, page)
  print(path)
  return errors.DONE
end

return command
