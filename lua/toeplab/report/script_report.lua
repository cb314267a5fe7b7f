-- report/script_report.lua: implements the argument `report` of an experiment's function report:
-- the functions of text_table.lua and mean_table.lua, and two that store a table and a figure in
-- the results folder with their origin.
--
--   report = function(trials, report)
--     report.table({ "r", "error" }, rows)          prints it, and writes tables/NAME.md
--     report.plot { series = { ... } }              writes figures/NAME.svg
--     report.scaling { metric = "test_loss", against = "training_flop", by = "model" }
--                                                   both, with fits: scaling_report.lua
--   end
--
-- NAME is the experiment's, with -SCALE appended if a scale was chosen.
local core = require "toeplab.core"
local experiment = require "toeplab.trials.experiment"
local mean_table = require "toeplab.report.mean_table"
local overlay = require "toeplab.base.overlay"
local plot = require "toeplab.report.figures.plot"
local rows_of = require "toeplab.trials.rows"
local scaling_report = require "toeplab.report.scaling_report"
local text_table = require "toeplab.base.text_table"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"
local trial_files = require "toeplab.store.trial_files"

local script_report = {}

-- Returns the script's description of itself: the comment at its beginning, up to the first empty
-- line.
function script_report.question(text)
  local words = {}
  for line in (text .. "\n"):gmatch("(.-)\n") do
    local comment = line:match("^%-%-%s*(.*)$")
    if not comment or comment == "" then break end
    words[#words + 1] = comment
  end
  return (table.concat(words, " "):gsub("^[%w_-]+%.lua:%s*", ""):gsub("^%l", string.upper))
end

-- Returns one line for each command, commit and host that produced some of the trials.
local function origins(trials)
  local lines, seeds, order = {}, {}, {}
  for _, t in ipairs(trials) do
    local command = shell.portable(t.made.command or "")
    local line = ("`%s`, %s%s, %s with %s threads"):format(command,
      t.made.commit and "commit " .. t.made.commit:sub(1, 12) or "no commit",
      t.made.dirty and " with changes" or "", t.made.host or "unknown host",
      t.made.threads or "unknown")
    if not seeds[line] then
      seeds[line], order[#order + 1] = {}, line
    end
    seeds[line][t.seed] = true
  end
  for i, line in ipairs(order) do
    local list = {}
    for seed in pairs(seeds[line]) do list[#list + 1] = seed end
    table.sort(list)
    local all = #list > 2 and list[#list] - list[1] == #list - 1
    lines[i] = ("%s, seed%s %s"):format(line, #list > 1 and "s" or "",
      all and list[1] .. " to " .. list[#list] or table.concat(list, ", "))
  end
  return lines
end

local function markdown(self, title, header, rows, note)
  local lines = { "# " .. title, "" }
  if self.question ~= "" then lines[#lines + 1] = self.question .. "\n" end
  local body = text_table.markdown(header, rows)
  table.move(body, 1, #body, #lines + 1, lines)
  lines[#lines + 1] = ""
  if note then lines[#lines + 1] = note .. "\n" end
  for _, line in ipairs(origins(self.trials)) do
    lines[#lines + 1] = "Made by " .. line .. "."
  end
  return table.concat(lines, "\n") .. "\n"
end

-- Returns the path of a file in a folder of the results folder, and creates that folder. Raises if
-- name cannot be the name of a file.
local function place(self, folder, name, ending)
  if not name:find("^[%w_-]+$") then
    error(("report: '%s' cannot be the name of a file: use letters, digits, _ and -"):format(name),
      3)
  end
  local path = trial_files.make(self.folder, folder)
  return ("%s/%s%s.%s"):format(path, name, self.scale, ending)
end

-- Raises if this report has written a file already, which it would lose.
local function check_new(self, path)
  if self.wrote[path] then
    error(("report: %s is written twice; use two names"):format(path), 3)
  end
  self.wrote[path] = true
end

local function draw(self, how, spec, name, ending)
  local path = place(self, "figures", name, ending)
  check_new(self, path)
  local ok, why, _, status = how(path, spec)
  if errors.storage_problem(status) then errors.raise(errors.STORAGE, "%s", why) end
  if ok then
    self.progress:say("wrote %s", path)
  elseif not self.told then
    self.told = true
    self.progress:warn("no figure %s: %s", path, why)
  end
end

-- o: folder (of the results), name (of the experiment), scale, text (of the script), progress,
-- trials (each with its seed and made = {command=, commit=, dirty=, host=, threads=}), row_keys
-- (the set of the keys that named rows set; nil: empty).
function script_report.new(o)
  local self = { folder = o.folder, wrote = {}, trials = o.trials, progress = o.progress,
    question = script_report.question(o.text), scale = o.scale ~= "" and "-" .. o.scale or "" }
  local given = overlay(text_table, mean_table)

  -- Prints a table, and below it a note (text) if there is one, and writes both to tables/NAME.md.
  function given.table(header, rows, name, note)
    local path = place(self, "tables", name or o.name, "md")
    check_new(self, path)
    for i, row in ipairs(rows) do
      if #row > #header then
        error(("report: row %d of the table has %d cells, its header has %d"):format(i, #row,
          #header), 2)
      end
    end
    if note ~= nil and type(note) ~= "string" then
      error(("report: the note of a table must be a string, not a %s"):format(type(note)), 2)
    end
    note = note and note ~= "" and note:gsub("[^\n]+", core.sys.clean) or nil
    text_table.print(header, rows)
    if note then print("\n" .. note) end
    local text = markdown(self, name or o.name, header, rows, note)
    errors.stored(core.sys.write_file(path, text))
    self.progress:say("wrote %s", path)
  end

  -- Draws figures/NAME.svg (tl.plot.svg, or tl.plot.heat for a matrix). If figures cannot be drawn,
  -- e.g. without gnuplot, it warns once; raises if the file cannot be stored.
  function given.plot(spec, name)
    draw(self, spec.matrix and plot.heat or plot.svg, spec, name or o.name, "svg")
  end

  -- Writes tables and a figure of how a metric falls with a size (scaling_report.lua).
  function given.scaling(spec)
    scaling_report.write(given, o.trials, spec, o.name, function(why)
      o.progress:warn("%s", why)
    end, o.row_keys or {})
  end

  return given
end

-- ---- On a page --------------------------------------------------------------------------------

-- Returns the functions that a report of the trials receives; they record their arguments in parts.
local function recorder(parts, trials, row_keys)
  local given = overlay(text_table, mean_table)
  function given.table(header, rows, _, note)
    parts[#parts + 1] = { kind = "table", header = header, rows = rows }
    if note then parts[#parts + 1] = { kind = "text", text = note } end
  end
  function given.plot(spec) parts[#parts + 1] = { kind = "plot", spec = spec } end
  given.print = given.table
  function given.scaling(spec)
    scaling_report.write(given, trials, spec, "", print, row_keys)
  end
  return given
end

-- Runs fn with print going into parts.
local function printing(parts, fn)
  local show = print
  rawset(_G, "print", function(...)
    local words = table.pack(...)
    for i = 1, words.n do words[i] = tostring(words[i]) end
    local text, last = table.concat(words, "\t"), parts[#parts]
    if last and last.kind == "text" then
      last.text = last.text .. "\n" .. text
    else
      parts[#parts + 1] = { kind = "text", text = text }
    end
  end)
  local ok, why = pcall(fn)
  rawset(_G, "print", show)
  return ok, why
end

-- Returns the output of the script's report as a list of parts {kind="table", header=, rows=},
-- {kind="plot", spec=}, {kind="text", text=}; nil if the report is a table of columns or absent, or
-- no trial is done. The second result is the reason why the output is missing or, after a failure,
-- incomplete; else nil. The script runs only if the file on disk is unchanged and lies outside the
-- results folder, which may come from somebody else, with a malicious script.
function script_report.recorded(store, sweep, trials)
  if trial_files.holds(store.folder, sweep.script) then
    return nil, ("%s lies in the results folder, which may come from somebody else, so it "
      .. "is not run"):format(sweep.script)
  end
  local text = core.sys.kind(sweep.script) == "file" and core.sys.read_file(sweep.script)
  if not text or core.sha256(text) ~= sweep.sha256 then
    return nil, ("%s is missing or has changed since it was run, so its own report is left out")
      :format(sweep.script)
  end
  local ok, exp = pcall(experiment.load, sweep.script)
  if not ok then return nil, "the script cannot be read: " .. errors.text(exp) end
  local list = store:finished(trials)
  if type(exp.report) ~= "function" or #list == 0 then return nil end
  local parts = {}
  local report = recorder(parts, list, rows_of.keys(exp.rows))
  local fine, why = printing(parts, function() exp.report(list, report) end)
  return parts, not fine and "the report of the script failed: " .. errors.text(why) or nil
end

return script_report
