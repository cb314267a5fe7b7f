-- report/page.lua: writes the self-contained HTML page about the sweeps of a frame: trials, their
-- metrics, the output of the experiment's own report, failures, and origins.
local curves = require "toeplab.report.figures.curves"
local formats = require "toeplab.report.formats"
local groups = require "toeplab.report.groups"
local html = require "toeplab.report.html"
local output = require "toeplab.report.output"
local config = require "toeplab.base.config"
local progress = require "toeplab.base.progress"
local published_tables = require "toeplab.trials.published_tables"
local script_report = require "toeplab.report.script_report"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local sweeps = require "toeplab.store.sweeps"
local tables = require "toeplab.report.tables"

local pages = { MOST = 1000 } -- trials that are listed one by one

local SMALL = { width = 480, height = 320 } -- figures that are legible on a phone
local ROWS, CURVES = 1000, 6 -- largest number of rows of a table, and of figures of metrics
local COLUMNS = 8 -- metrics in the table of trials
local good = { done = true, queued = true, running = true, pruned = true }
local text, raw = html.text, html.raw

local function code(word) return raw(text('<span class="id">%s</span>', word)) end

-- Formats counts by status: "3 done, 1 failed".
local function status_counts(counts)
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

-- ---- Trials ----------------------------------------------------------------------------------

local function details(store, id)
  local row = store:rows("SELECT * FROM v_trials WHERE id = ?", { id })[1]
  row.config, row.about = store:config(row.config), store:object(row.provenance)
  row.label = row.about.label or row.id:sub(1, 12)
  row.metrics = store:results(row.id)
  return row
end

-- Returns details of the first MOST of the trials (of frames.lua), and of the first MOST of those
-- that did not end well.
local function trials_of(store, all)
  local list, failed = {}, {}
  for i, t in ipairs(all) do
    local row = i <= pages.MOST and details(store, t.id)
    list[i] = row or nil
    if not good[t.status] and #failed < pages.MOST then
      failed[#failed + 1] = row or details(store, t.id)
    end
  end
  return list, failed
end

-- Natural order: "ppl@64" before "ppl@512".
local function natural(a, b)
  local function key(name)
    return (name:gsub("%d+", function(digits) return ("%012d"):format(tonumber(digits)) end))
  end
  return key(a) < key(b)
end

-- Returns the metrics that get a column: those in the experiment's report or, if it names none,
-- preferably those that were logged once.
local function columns(frame, known)
  local once, often = {}, {}
  for _, name in ipairs(sorted_keys(known)) do
    local list = known[name] == 1 and once or often
    list[#list + 1] = name
  end
  table.sort(once, natural)
  local list, taken = {}, {}
  local function add(name)
    if known[name] and not taken[name] and #list < COLUMNS then
      taken[name], list[#list + 1] = true, name
    end
  end
  for _, source in ipairs { frame.plan.columns or {}, once, { "loss" }, often } do
    for _, name in ipairs(source) do add(name) end
  end
  return list
end

-- Returns rows {number of trials, command, commit, host, version, threads, code}.
local function origins_of(trials)
  local rows, found = {}, {}
  for _, t in ipairs(trials) do
    if t.command then
      local commit = t.git_commit and t.git_commit:sub(1, 12) .. (t.git_dirty == 1
        and " with changes" or "") or "none"
      local row = { 0, shell.portable(secrets.text(t.command)), commit, t.host, t.about.version,
        t.about.threads, (t.code_hash or ""):sub(1, 12) }
      local key = ("%s\n"):rep(6):format(table.unpack(row, 2, 7))
      if not found[key] then
        found[key], rows[#rows + 1] = row, row
      end
      found[key][1] = found[key][1] + 1
    end
  end
  return rows
end

-- Returns rows {name of the data, sha256} of the data that the trials have read; each trial stores
-- them by key. The column data_hash is a hash over all of these.
local function data_of(trials)
  local rows, seen = {}, {}
  for _, t in ipairs(trials) do
    for _, key in ipairs(sorted_keys(t.about.data or {})) do
      local row = { config.show(t.config[key] or key), t.about.data[key] }
      local text = table.concat(row, "\n")
      if not seen[text] then seen[text], rows[#rows + 1] = true, row end
    end
  end
  return rows
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
  for _, part in ipairs(page.own or {}) do
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
  local list = own_parts(page)
  if page.own_missing then list[#list + 1] = text("<p class=soft>%s.</p>\n", page.own_missing) end
  if #list == 0 or page.own_missing then
    local result = tables.fill(nil, page.frame, page.columns)
    if #result.columns > 0 and #page.axes > 0 then
      list[#list + 1] = formats.html(result)
    end
  end
  return #list > 0 and "Results", table.concat(list)
end

-- Adds the published tables that the sweep reproduces.
local function paper(page)
  local answers, list = page.frame.plan.answers, {}
  for _, id in ipairs(type(answers) == "string" and { answers } or answers or {}) do
    local ok, published = pcall(published_tables.read, id)
    if ok then
      list[#list + 1] = formats.html(tables.fill(published, page.frame))
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
  local list, names = {}, {}
  for _, name in ipairs(sorted_keys(page.known)) do
    if page.known[name] > 2 then
      table.insert(names, name == "loss" and 1 or #names + 1, name)
    end
  end
  for i = 1, math.min(#names, CURVES) do
    local spec = curves.steps(page.set, names[i])
    list[#list + 1] = figure(page, spec, caption_of(spec, names[i] .. " against the step"))
  end
  for _, prefix in ipairs(families(page.known)) do
    local spec = curves.at(page.set, prefix, { logx = true })
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
  local rows = {}
  local header = { "trial", table.unpack(page.axes) }
  header[#header + 1], header[#header + 2] = "seed", "status"
  table.move(page.columns, 1, #page.columns, #header + 1, header)
  header[#header + 1] = "time"
  for i, t in ipairs(page.trials) do
    local row, n = {}, 0
    local function add(value) n, row[n + 1] = n + 1, value end
    add(code(t.id:sub(1, 12)))
    for _, key in ipairs(page.axes) do
      local value = t.config[key]
      add(value ~= nil and config.show(value) or nil)
    end
    add(t.seed)
    add(good[t.status] and t.status or raw(text('<span class="bad">%s</span>', t.status)))
    for _, name in ipairs(page.columns) do add(t.metrics[name]) end
    add(t.seconds and progress.duration(t.seconds))
    rows[i] = row
  end
  local what = output.count(page.total, "trial") .. ": the last value of each metric"
  if page.total > #page.trials then
    what = ("%s; the first %d of them"):format(what, #page.trials)
  end
  local others = #sorted_keys(page.known) - #page.columns
  local more = others > 0 and text("<p class=soft>%s more in the store: toeplab export.</p>\n",
    output.count(others, "metric")) or ""
  return "Trials", html.table(header, rows, what) .. more
end

local function failures(page)
  local rows = {}
  for i, t in ipairs(page.failed) do
    rows[i] = { code(t.id:sub(1, 12)), t.label, t.status, t.step, t.error }
  end
  return #rows > 0 and "Failures", html.table({ "trial", "setting", "status", "step", "why" }, rows,
    "Trials that did not end well")
end

local function interventions(page)
  local rows = {}
  for _, t in ipairs(page.trials) do
    for _, e in ipairs(page.store:rows([[SELECT kind, step, text FROM v_events
        WHERE trial = ? AND kind NOT IN ('part', 'unread') ORDER BY created, step]], { t.id })) do
      if #rows < ROWS then
        rows[#rows + 1] = { code(t.id:sub(1, 12)), t.label, e.kind, e.step, e.text }
      end
    end
  end
  return #rows > 0 and "Interventions", html.table({ "trial", "setting", "what", "step",
    "why, and what was done" }, rows, "Interventions in trials")
end

local function configuration(page)
  local fixed = page.frame.fixed
  return next(fixed) and "Common configuration", pairs_of(fixed)
end

local function provenance(page)
  local parts = {}
  parts[1] = html.table({ "trials", "command", "commit", "host", "version", "threads", "code" },
    page.origins, "What ran them")
  local data = data_of(page.trials)
  if #data > 0 then
    parts[#parts + 1] = html.table({ "data", "sha256" }, data, "Data, and its sha256")
  end
  local about
  for _, t in ipairs(page.trials) do about = about or t.about.build and t.about end
  if about then
    parts[#parts + 1] = html.details("Versions of libraries, and how the program was compiled",
      pairs_of(about.build))
    if next(about.environment or {}) then
      parts[#parts + 1] = html.details("Environment",
        pairs_of(secrets.environment(about.environment)))
    end
  end
  parts[#parts + 1] = html.details("The script: " .. shell.portable(page.sweep.script),
    text("<pre>%s</pre>\n", page.sweep.source))
  return "Provenance", table.concat(parts)
end

local function reproduction(page)
  local lines, commit, dirty = {}, nil, false
  for _, t in ipairs(page.trials) do
    commit, dirty = commit or t.git_commit, dirty or t.git_dirty == 1
  end
  if commit then lines[1] = "git checkout " .. commit:sub(1, 12) end
  for i = #page.frame.sweeps, 1, -1 do
    local s = page.frame.sweeps[i]
    local words = { "toeplab", "run", shell.portable(s.script) }
    for _, override in ipairs(s.plan.overrides or {}) do words[#words + 1] = override end
    lines[#lines + 1] = shell.line(words)
  end
  for _, t in ipairs(page.trials) do
    if t.status == "done" then
      lines[#lines + 1] = "toeplab reproduce " .. t.id:sub(1, 12)
      break
    end
  end
  lines[#lines + 1] = "toeplab report " .. shell.word(page.frame.experiment)
    .. (page.frame.scale ~= "" and " " .. shell.word("scale=" .. page.frame.scale) or "")
  local note = dirty and "<p class=soft>The sources had changes beside that commit.</p>\n" or ""
  return "Reproduction", text("<pre>%s</pre>\n", table.concat(lines, "\n")) .. note
end

-- ---- The page ---------------------------------------------------------------------------------

local sections = { results, paper, learning, trials, failures, interventions, configuration,
  provenance, reproduction }

local function head(page)
  local commits, hosts = {}, {}
  for _, row in ipairs(page.origins) do commits[row[3]], hosts[row[4] or "unknown"] = true, true end
  local question = script_report.question(page.sweep.source)
  return text("<h1>%s</h1>\n", page.title)
    .. (question ~= "" and text("<p class=question>%s</p>\n", question) or "")
    .. html.pairs {
      { "trials", ("%s, %s in all"):format(status_counts(page.counts),
        progress.duration(page.seconds)) },
      { "command", code(shell.portable(secrets.text(page.sweep.command))) },
      { "last started", os.date("!%Y-%m-%d %H:%M UTC", math.floor(page.sweep.created)) },
      { "commit", table.concat(sorted_keys(commits), ", ") },
      { "host", table.concat(sorted_keys(hosts), ", ") },
    }
end

-- Reads the data of the sections about the sweeps of a frame.
local function collect(store, frame)
  local all, ids, seconds, counts = frame:trials {}, {}, 0, {}
  for _, t in ipairs(all) do
    seconds, counts[t.status] = seconds + (t.seconds or 0), (counts[t.status] or 0) + 1
  end
  local page = { store = store, frame = frame, sweep = sweeps.get(store, frame.sweeps[1].id),
    total = #all, seconds = seconds, counts = counts, axes = frame:own_axes(all), figures = 0,
    title = frame:title() }
  page.trials, page.failed = trials_of(store, all)
  for i, t in ipairs(page.trials) do ids[i] = t.id end
  page.set = groups.set(store, ids)
  page.known = groups.metrics(page.set)
  page.columns, page.origins = columns(frame, page.known), origins_of(page.trials)
  if #all == #page.trials then
    page.own, page.own_missing = script_report.recorded(store, page.sweep, page.trials)
  else
    page.own_missing = ("There are more than %d trials, so the experiment's own report is left out")
      :format(pages.MOST)
  end
  return page
end

-- Returns the page about the sweeps of frame (frames.lua), and why figures are missing (nil: none
-- is).
function pages.sweep(store, frame)
  local page = collect(store, frame)
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
