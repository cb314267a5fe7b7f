-- commands/fsck.lua: toeplab fsck: whether the results folder is whole, and mending what can be
-- mended.
local core = require "toeplab.core"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local output = require "toeplab.report.listing"
local rebuild = require "toeplab.store.rebuild"
local records = require "toeplab.store.records"
local select = require "toeplab.store.select"
local errors = require "toeplab.base.errors"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"

local fsck = {
  example = "toeplab fsck\n  toeplab fsck --repair",
  usage = "toeplab fsck",
  about = "Checks the database, the sha256 of every file that a trial keeps, files without rows,\n"
    .. "journals that are not taken over, and trials marked running whose process is gone. With\n"
    .. "--repair, mends what can be mended, after a copy of the database. A damaged database is\n"
    .. "made anew of what can be read of it, and the old one kept; trials of which rows may be\n"
    .. "lost are run again by their commands. Exit code 6 if damage remains.",
  options = {
    { name = "repair", help = "mend, after a copy of the database beside it" },
    { name = "quick", short = "q", help = "sizes instead of sha256, fewer looks at the rows" },
    { name = "json", help = "as JSON: an object for each finding, then one of the whole" },
    output.dir,
  },
}

-- What is found: each {text=, mend= (a function that mends it and says how, or nil), lost= (it is
-- damage, not only disorder)}.
local Check = {}
Check.__index = Check

function Check:found(lost, mend, format, ...)
  table.insert(self.list, { lost = lost, mend = mend, text = format:format(...) })
end

-- ---- The database -----------------------------------------------------------------------------

local function problems(store, quick)
  local texts = {}
  local sql = quick and "PRAGMA quick_check" or "PRAGMA integrity_check"
  local ok, rows = pcall(store.rows, store, sql)
  if not ok then return { errors.text(rows) } end
  for _, row in ipairs(rows) do
    local text = row.integrity_check or row.quick_check
    if text ~= "ok" then texts[#texts + 1] = text end
  end
  return texts
end

-- What a rebuild kept and lost, in words.
local function rebuilt(counts)
  local parts = {}
  for _, name in ipairs { "trials", "metrics", "artifacts", "events", "sweeps" } do
    local count = counts[name] or { kept = 0, dropped = 0 }
    parts[#parts + 1] = ("%d %s%s"):format(count.kept, name, count.dropped > 0
      and (" (%d more are twice there or broken)"):format(count.dropped) or "")
  end
  return ("made anew: %s; %d of %d pages cannot be read; of %s rows may be lost, and the same "
    .. "command runs them again; the old one is %s"):format(table.concat(parts, ", "), counts.bad,
    counts.pages, output.count(counts.again, "trial"), counts.copy)
end

-- Makes the database anew and opens it.
local function remake(check)
  check.store:close()
  local counts = rebuild.run(check.store.folder)
  check.store = records.open(check.store.folder, "u")
  return rebuilt(counts)
end

local function check_database(check)
  local store = check.store
  local texts = problems(store, check.quick)
  if #texts > 0 then
    check:found(true, function()
      if pcall(store.rows, store, "REINDEX") and #problems(store, check.quick) == 0 then
        return "indices made again"
      end
      return remake(check)
    end, "runs.db: %s%s", texts[1], #texts > 1 and (" (and %d more)"):format(#texts - 1) or "")
  end
  local ok, orphans = pcall(store.rows, store, "PRAGMA foreign_key_check")
  if ok and #orphans > 0 then
    check:found(true, nil, "runs.db: %d rows refer to others that are not there, the first in %s",
      #orphans, orphans[1].table)
  end
end

-- The table of last values must say what the metrics say.
local function check_last(check)
  local store = check.store
  local wrong = store:rows([[SELECT count(*) AS n FROM last l WHERE NOT EXISTS (SELECT 1
    FROM metrics m WHERE m.trial = l.trial AND m.name = l.name AND m.step = l.step
    AND m.value IS l.value)]])[1].n
  if not check.quick then
    wrong = wrong + store:rows([[SELECT count(*) AS n FROM (SELECT trial, name, max(step) AS step
      FROM metrics GROUP BY trial, name) m WHERE NOT EXISTS (SELECT 1 FROM last l
      WHERE l.trial = m.trial AND l.name = m.name AND l.step = m.step)]])[1].n
  end
  if wrong == 0 then return end
  check:found(true, function()
    store:transaction(function()
      store:rows "DELETE FROM last"
      store:rows [[INSERT INTO last SELECT trial, name, step, value FROM metrics m WHERE step =
        (SELECT max(step) FROM metrics WHERE trial = m.trial AND name = m.name)]]
    end)
    return "made again from the metrics"
  end, "%s of metrics are not what the metrics say", output.count(wrong, "last value"))
end

local function check_sweeps(check)
  local rows = check.store:rows [[SELECT s.id, s.experiment,
    iif(json_valid(s.plan), s.plan ->> '$.trials', NULL) AS planned,
    (SELECT count(*) FROM members WHERE sweep = s.id) AS members FROM sweeps s]]
  for _, s in ipairs(rows) do
    if s.planned and s.members > 0 and s.members < s.planned then
      check:found(false, nil, "sweep %d of %s has %d of its %d trials; its command brings the rest",
        s.id, s.experiment, s.members, s.planned)
    end
  end
end

-- ---- Trials -----------------------------------------------------------------------------------

local function check_running(check)
  local sql = "SELECT id, status, host, pid FROM trials WHERE status = 'running'"
  for _, row in ipairs(check.store:rows(sql)) do
    if select.killed(row) then
      check:found(false, function()
        check.store:rows([[UPDATE trials SET status = 'interrupted', error = ? WHERE id = ?
          AND status = 'running']], { "its process is gone", row.id })
        return "marked as interrupted"
      end, "trial %s is marked running, but process %d is gone", row.id:sub(1, 12), row.pid)
    end
  end
end

-- A journal is taken over before anything else is said of its trial.
local function check_journals(check)
  local store = check.store
  for _, open in ipairs(store:open_journals()) do
    local path = journal.path(open.path, open.attempt)
    if not journal.in_use(store.folder .. "/" .. path) then
      check:found(false, function()
        local _, damage = store:take(open.id, open.path)
        if not damage then store:end_journal(open.id, open.path) end
        return not damage and "taken over" or nil
      end, "%s is not taken over: a run was killed, and the next one does it", path)
    end
  end
end

-- ---- Files ------------------------------------------------------------------------------------

local function state_of(path, row, quick)
  local file <close> = io.open(path, "rb")
  if not file then return "is missing" end
  if file:seek("end") ~= row.bytes then return "has another size than it was stored with" end
  if quick then return nil end
  local ok, hash = pcall(core.sha256_file, path)
  if not ok then return "cannot be read: " .. tostring(hash) end
  return hash ~= row.sha256 and "has another sha256 than it was stored with" or nil
end

-- The trials that are at work: their files come and go. Of one that was killed the journal still
-- has to say which went.
local function busy_trials(store)
  local busy = {}
  local sql = "SELECT id, status, host, pid FROM trials WHERE status = 'running'"
  for _, row in ipairs(store:rows(sql)) do busy[row.id] = not select.killed(row) end
  for _, row in ipairs(store:rows "SELECT trial FROM journals") do busy[row.trial] = true end
  return busy
end

-- Rows that this program does not write lead outside the folder, or to a name of several files.
local function check_names(check)
  local store = check.store
  local function refuse(sql, values, ok, why)
    if ok then return end
    check:found(true, function()
      store:rows(sql, values)
      return "its row was dropped"
    end, "%s", why.message)
  end
  for _, row in ipairs(store:rows "SELECT rowid AS row, id FROM trials") do
    if not trial_files.is_id(row.id) then
      refuse("DELETE FROM trials WHERE rowid = ?", { row.row },
        pcall(trial_files.folder, store.folder, row.id))
    end
  end
  for _, row in ipairs(store:rows "SELECT trial, kind, step, path FROM artifacts") do
    refuse("DELETE FROM artifacts WHERE trial = ? AND kind = ? AND step = ?",
      { row.trial, row.kind, row.step }, pcall(trial_files.path, store.folder, row.trial, row))
  end
end

-- A damaged file is put aside, not deleted: part of it may be of use.
local function check_artifacts(check)
  local store, busy, count = check.store, busy_trials(check.store), 0
  store.store:each("SELECT trial, kind, step, path, bytes, sha256 FROM artifacts ORDER BY path", {},
    function(row)
      count = count + 1
      local ours, path = pcall(trial_files.path, store.folder, row.trial, row)
      local why = ours and not busy[row.trial] and state_of(path, row, check.quick)
      if not why then return end
      check:found(true, function()
        store:rows("DELETE FROM artifacts WHERE path = ?", { row.path })
        store:rows([[UPDATE trials SET step = (SELECT max(step) FROM artifacts WHERE trial = ?1
          AND kind = 'checkpoint') WHERE id = ?1 AND status <> 'done']], { row.trial })
        if core.sys.exists(path) then core.sys.rename(path, path .. ".damaged") end
        return "its row was dropped" .. (core.sys.exists(path .. ".damaged")
          and ", the file is kept as " .. row.path .. ".damaged" or "")
      end, "%s (%s of step %d) %s", row.path, row.kind, row.step, why)
    end)
  check.files = count
end

local function check_stale(check)
  for _, item in ipairs(trash.stale(check.store)) do
    check:found(false, nil, "%s: %s (toeplab rm --purge frees it)", item.path, item.why)
  end
end

-- ---- All of it --------------------------------------------------------------------------------

-- A copy of the database, made by itself or, if it is too damaged for that, byte by byte.
local function backup(store)
  local path = ("%s/runs.db.before-fsck-%s"):format(store.folder, os.date "%Y%m%d-%H%M%S")
  if not pcall(store.rows, store, "VACUUM INTO ?", { path }) then
    for _, ending in ipairs { "", "-wal" } do
      local text = core.sys.read_file(store.folder .. "/runs.db" .. ending)
      local ok, why = true, nil
      if text then ok, why = core.sys.write_file(path .. ending, text) end
      if not ok then errors.raise(errors.STORAGE, "%s", why) end
    end
  end
  return path
end

-- Tells of what was found since, and mends what can be.
local function settle(check, repair)
  for _, item in ipairs(check.list) do
    local how
    if repair and item.mend then
      if check.store and not check.copy then
        check.copy = backup(check.store)
        if not check.json then print("the database was copied to " .. check.copy) end
      end
      how = item.mend()
    end
    local state = how and "mended" or item.lost and "damage" or "note"
    print(check.json and json.line { state = state, text = item.text, how = how }
      or ("%-7s %s%s"):format(state, item.text, how and ": " .. how or ""))
    if item.lost and not how then check.left = check.left + 1 end
    check.mendable, check.all = check.mendable or item.mend ~= nil, check.all + 1
  end
  check.list = {}
end

-- What journals say comes before what is said of their trials.
local rounds = { { check_database }, { check_names }, { check_journals },
  { check_last, check_sweeps, check_running, check_artifacts, check_stale } }

-- Looks at something; what cannot be read is damage.
local function look_at(check, look)
  local ok, why = pcall(look, check)
  if ok then return end
  local damaged = errors.storage_problem(why) or errors.is(why) and why.code == errors.STORAGE
  if not damaged then error(why, 0) end
  local mend = rawget(why, "status") == "ECORRUPT" and function() return remake(check) end or nil
  check:found(true, mend, "%s", errors.text(why))
end

local function summary(check)
  local trials = check.store:rows("SELECT count(*) AS n FROM trials")[1].n
  if check.json then
    print(json.line { trials = trials, files = check.files, damage = check.left,
      copy = check.copy })
    return
  end
  print(("%s, %s: %s"):format(output.count(trials, "trial"), output.count(check.files, "file"),
    check.left > 0 and "damage remains" or check.all == 0 and "all is whole" or "no damage"))
end

-- Opens the store; one that cannot be opened is made anew if that is wanted.
local function open(check, folder, repair)
  local ok, store = pcall(records.open, folder, repair and "u" or "r")
  if ok then
    check.store = store
    return
  end
  local text = errors.text(store)
  local damaged = errors.is(store) and store.status == "ECORRUPT"
    and not text:find("newer than", 1, true)
  if not damaged then error(store, 0) end
  if not repair then
    errors.raise(errors.STORAGE, "%s\ntoeplab fsck --repair makes it anew of what can be read",
      text)
  end
  check:found(true, function()
    local counts = rebuild.run(folder)
    check.store = records.open(folder, "u")
    return rebuilt(counts)
  end, "%s", text)
  settle(check, true)
end

function fsck.run(set, words)
  if #words > 0 then errors.usage("fsck: takes no words, got '%s'", words[1]) end
  local check = setmetatable({ quick = set.quick, json = set.json, list = {}, left = 0, all = 0,
    files = 0 }, Check)
  local guard <close> = setmetatable({}, { __close = function()
    if check.store then check.store:close() end
  end })
  open(check, records.folder(set.dir), set.repair)
  for _, round in ipairs(rounds) do
    for _, look in ipairs(round) do look_at(check, look) end
    settle(check, set.repair)
  end
  summary(check)
  if check.mendable and not set.repair then
    io.stderr:write("toeplab fsck --repair mends what can be mended\n")
  end
  return check.left > 0 and errors.STORAGE or errors.DONE
end

return fsck
