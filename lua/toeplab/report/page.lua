-- report/page.lua: writes the self-contained HTML page about a sweep from what summary.lua
-- collected.
local curves = require "toeplab.report.figures.curves"
local summary = require "toeplab.report.summary"
local formats = require "toeplab.report.formats"
local html = require "toeplab.report.html"
local output = require "toeplab.report.output"
local config = require "toeplab.base.config"
local progress = require "toeplab.base.progress"
local published_tables = require "toeplab.trials.published_tables"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local tables = require "toeplab.report.tables"

local pages = {}

local SMALL = { width = 480, height = 320 } -- figures that are legible on a phone
local ROWS, CURVES = 1000, 6 -- largest number of rows of a table, and of figures of metrics
local text, raw = html.text, html.raw

local function code(word) return raw(text('<span class="id">%s</span>', word)) end

-- Formats counts by status: "3 done, 1 failed".
local function standing(counts)
  local parts = {}
  for i, status in ipairs(sorted_keys(counts)) do parts[i] = counts[status] .. " " .. status end
  return table.concat(parts, ", ")
end

-- Returns the entries of a table as pairs; paths are cut to their last component.
local function pairs_of(values)
  local list = {}
  for i, key in ipairs(sorted_keys(values)) do
    local value = values[key]
    list[i] = { key, type(value) == "string" and value:gsub("^/.*/", ".../") or config.show(value) }
  end
  return html.pairs(list)
end

-- ---- Sections: each returns a title, or false, and its markup --------------------------------

-- Adds a figure in the page's size unless spec sets one; its title becomes the caption. Figures are
-- numbered over the whole page, so that their ids differ.
local function figure(page, spec, caption)
  page.figures = page.figures + 1
  local shown = { width = SMALL.width, height = SMALL.height }
  for key, value in pairs(spec) do shown[key] = value end
  shown.title, shown.key = nil, spec.key ~= "none" and spec.series and "below" or spec.key
  local markup, why = html.figure(shown, page.figures, caption)
  if markup then return markup end
  page.missing = why
  return ""
end

local function figures(list)
  local markup = table.concat(list)
  return markup ~= "" and '<div class="figures">\n' .. markup .. "</div>\n" or ""
end

local function own_parts(page)
  local list = {}
  for _, part in ipairs(page.d.own or {}) do
    if part.kind == "table" then
      list[#list + 1] = html.table(part.header, part.rows, "What the experiment reports")
    elseif part.kind == "text" then
      list[#list + 1] = text("<pre>%s</pre>\n", (part.text:gsub("^\n+", ""):gsub("\n+$", "")))
    else
      local drawn = {}
      for i, panel in ipairs(part.spec.panels or { part.spec }) do
        drawn[i] = figure(page, panel, panel.title or part.spec.title or "")
      end
      list[#list + 1] = figures(drawn)
    end
  end
  return list
end

local function results(page)
  local d, list = page.d, own_parts(page)
  if d.own_missing then list[#list + 1] = text("<p class=soft>%s.</p>\n", d.own_missing) end
  if #list == 0 or d.own_missing then
    local result = tables.fill(nil, d.frame, d.columns)
    if #result.columns > 0 and #d.axes > 0 then
      list[#list + 1] = formats.html(result)
    end
  end
  return #list > 0 and "Results", table.concat(list)
end

-- Adds the published tables that the sweep reproduces.
local function paper(page)
  local answers, list = page.d.frame.plan.answers, {}
  for _, id in ipairs(type(answers) == "string" and { answers } or answers or {}) do
    local ok, published = pcall(published_tables.read, id)
    if ok then
      list[#list + 1] = formats.html(tables.fill(published, page.d.frame))
    else
      list[#list + 1] = text("<p class=soft>It answers %s: %s</p>\n", id, errors.text(published))
    end
  end
  return #list > 0 and "Paper against measured", table.concat(list)
end

local function caption_of(spec, name)
  local what = spec.title:match ": (%l.*)$"
  return name .. (what and ": " .. what or "")
end

-- Returns the prefixes of metrics whose names differ in a number at the end.
local function families(known)
  local count, list = {}, {}
  for _, name in ipairs(sorted_keys(known)) do
    local head = name:match "^(.-[@_: ])[%d.]+$"
    if head then count[head] = (count[head] or 0) + 1 end
  end
  for _, head in ipairs(sorted_keys(count)) do
    if count[head] > 1 then list[#list + 1] = head end
  end
  return list
end

local function learning(page)
  local d, list, names = page.d, {}, {}
  for _, name in ipairs(sorted_keys(d.known)) do
    if d.known[name] > 2 then
      table.insert(names, name == "loss" and 1 or #names + 1, name)
    end
  end
  for i = 1, math.min(#names, CURVES) do
    local spec = curves.steps(d.set, names[i])
    list[#list + 1] = figure(page, spec, caption_of(spec, names[i] .. " against the step"))
  end
  for _, prefix in ipairs(families(d.known)) do
    local spec = curves.at(d.set, prefix, { logx = true })
    list[#list + 1] = figure(page, spec, caption_of(spec, prefix .. "..."))
  end
  local more = #names > CURVES and text("<p class=soft>Not drawn: %s.</p>\n",
    table.concat(names, ", ", CURVES + 1)) or ""
  local markup = figures(list) .. more
  if page.missing then
    markup = markup .. text("<p class=soft>Pictures are missing: %s.</p>\n", page.missing)
  end
  return markup ~= "" and "Curves", markup
end

local function trials(page)
  local d, rows = page.d, {}
  local header = { "trial", table.unpack(d.axes) }
  header[#header + 1], header[#header + 2] = "seed", "status"
  table.move(d.columns, 1, #d.columns, #header + 1, header)
  header[#header + 1] = "time"
  for i, t in ipairs(d.trials) do
    local row, n = {}, 0
    local function add(value) n, row[n + 1] = n + 1, value end
    add(code(t.id:sub(1, 12)))
    for _, key in ipairs(d.axes) do
      local value = t.config[key]
      add(value ~= nil and config.show(value) or nil)
    end
    add(t.seed)
    add(summary.good[t.status] and t.status or raw(text('<span class="bad">%s</span>', t.status)))
    for _, name in ipairs(d.columns) do add(t.metrics[name]) end
    add(t.seconds and progress.duration(t.seconds))
    rows[i] = row
  end
  local what = output.count(d.total, "trial") .. ": the last value of each metric"
  if d.total > #d.trials then what = ("%s; the first %d of them"):format(what, #d.trials) end
  local others = #sorted_keys(d.known) - #d.columns
  local more = others > 0 and text("<p class=soft>%s more in the store: toeplab export.</p>\n",
    output.count(others, "metric")) or ""
  return "Trials", html.table(header, rows, what) .. more
end

local function failures(page)
  local rows = {}
  for i, t in ipairs(page.d.failed) do
    rows[i] = { code(t.id:sub(1, 12)), t.label, t.status, t.step, t.error }
  end
  return #rows > 0 and "Failures", html.table({ "trial", "setting", "status", "step", "why" }, rows,
    "Trials that did not end well")
end

local function interventions(page)
  local rows = {}
  for i, e in ipairs({ table.unpack(page.d.events, 1, ROWS) }) do
    rows[i] = { code(e.trial.id:sub(1, 12)), e.trial.label, e.kind, e.step, e.text }
  end
  return #rows > 0 and "Interventions", html.table({ "trial", "setting", "what", "step",
    "why, and what was done" }, rows, "What was done to trials besides training them")
end

local function configuration(page)
  local fixed = page.d.frame.fixed
  return next(fixed) and "What all trials have in common", pairs_of(fixed)
end

local function provenance(page)
  local d, parts = page.d, {}
  parts[1] = html.table({ "trials", "command", "commit", "host", "version", "threads", "code" },
    d.origins, "What ran them")
  if #d.data > 0 then
    parts[#parts + 1] = html.table({ "data", "sha256" }, d.data, "Data, and its sha256")
  end
  local about
  for _, t in ipairs(d.trials) do about = about or t.about.build and t.about end
  if about then
    parts[#parts + 1] = html.details("Versions of libraries, and how the program was compiled",
      pairs_of(about.build))
    if next(about.environment or {}) then
      parts[#parts + 1] = html.details("Environment",
        pairs_of(secrets.environment(about.environment)))
    end
  end
  parts[#parts + 1] = html.details("The script: " .. shell.portable(d.sweep.script),
    text("<pre>%s</pre>\n", d.sweep.source))
  return "Provenance", table.concat(parts)
end

local function reproduction(page)
  local d, lines, commit, dirty = page.d, {}, nil, false
  for _, t in ipairs(d.trials) do
    commit, dirty = commit or t.git_commit, dirty or t.git_dirty == 1
  end
  if commit then lines[1] = "git checkout " .. commit:sub(1, 12) end
  for i = #d.frame.sweeps, 1, -1 do
    local s = d.frame.sweeps[i]
    local words = { "toeplab", "run", shell.portable(s.script) }
    for _, override in ipairs(s.plan.overrides or {}) do words[#words + 1] = override end
    lines[#lines + 1] = shell.line(words)
  end
  for _, t in ipairs(d.trials) do
    if t.status == "done" then
      lines[#lines + 1] = "toeplab reproduce " .. t.id:sub(1, 12)
      break
    end
  end
  lines[#lines + 1] = "toeplab report " .. shell.word(d.frame.experiment)
    .. (d.frame.scale ~= "" and " " .. shell.word("scale=" .. d.frame.scale) or "")
  local note = dirty and "<p class=soft>The sources had changes beside that commit.</p>\n" or ""
  return "Reproduction", text("<pre>%s</pre>\n", table.concat(lines, "\n")) .. note
end

-- ---- The page ---------------------------------------------------------------------------------

local sections = { results, paper, learning, trials, failures, interventions, configuration,
  provenance, reproduction }

local function head(page)
  local d = page.d
  local commits, hosts = {}, {}
  for _, row in ipairs(d.origins) do commits[row[3]], hosts[row[4] or "unknown"] = true, true end
  return text("<h1>%s</h1>\n", page.title)
    .. (d.question ~= "" and text("<p class=question>%s</p>\n", d.question) or "")
    .. html.pairs {
      { "trials", ("%s, %s in all"):format(standing(d.counts), progress.duration(d.seconds)) },
      { "command", code(shell.portable(secrets.text(d.sweep.command))) },
      { "last begun", os.date("!%Y-%m-%d %H:%M UTC", math.floor(d.sweep.created)) },
      { "commit", table.concat(sorted_keys(commits), ", ") },
      { "host", table.concat(sorted_keys(hosts), ", ") },
    }
end

-- Returns the page about the sweeps of frame (frames.lua), and why figures are missing (nil: none
-- is).
function pages.sweep(store, frame)
  local page = { d = summary.collect(store, frame), figures = 0, title = frame:title() }
  local links, parts = {}, {}
  for i, section in ipairs(sections) do
    local title, markup = section(page)
    if title then
      links[#links + 1] = text('<li><a href="#s%s">%s</a></li>', i, title)
      parts[#parts + 1] = text('<section aria-labelledby="s%s">\n<h2 id="s%s">%s</h2>\n', i, i,
        title) .. markup .. "</section>\n"
    end
  end
  local body = "<header>\n" .. head(page) .. '<nav aria-label="contents"><ul>'
    .. table.concat(links) .. "</ul></nav>\n</header>\n<main>\n" .. table.concat(parts)
    .. "</main>\n"
  return html.page(page.title, body), page.missing
end

-- Returns the name of the page's file.
function pages.name(frame)
  local name = frame.experiment .. (frame.scale ~= "" and "-" .. frame.scale or "")
  return (name:gsub("[^%w_.-]+", "-"):gsub("^%.", "-"):sub(1, 120))
end

return pages
