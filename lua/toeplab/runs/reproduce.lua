-- runs/reproduce.lua: runs a stored trial again from its stored script and configuration, and
-- compares the results bit for bit.
local checkpoint = require "toeplab.models.files.checkpoint"
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local experiment = require "toeplab.trials.experiment"
local json = require "toeplab.base.json"
local logged_tensors = require "toeplab.store.logged_tensors"
local overlay = require "toeplab.base.overlay"
local records = require "toeplab.store.records"
local runner = require "toeplab.runs.runner"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local sweeps = require "toeplab.store.sweeps"
local trial_files = require "toeplab.store.trial_files"
local tuning = require "toeplab.trials.tuning"

local reproduce = {}

-- ---- The stored trial --------------------------------------------------------------------------

-- Returns the newest file of each kind of trial id, rows of v_artifacts, without logged tensors.
local function files(store, id)
  return store:rows([[SELECT kind, max(step) AS step, path, sha256, trial FROM v_artifacts
    WHERE trial = ? AND kind NOT GLOB 'tensor:*' GROUP BY kind ORDER BY kind]], { id })
end

-- Returns the path of a trial's file (a row of `files`). Raises if it is missing or damaged; why:
-- the consequence.
local function intact_path(store, file, why)
  local path = trial_files.path(store.folder, file.trial, file)
  if not trial_files.intact(path, file.sha256) then
    errors.raise(errors.STORAGE, "%s is missing or damaged: %s", path,
      why:format(file.trial:sub(1, 12)))
  end
  return path
end

local function checkpoint_path(store, file)
  return intact_path(store, file, "the checkpoint of trial %s cannot be compared")
end

-- Returns the row of trial id with about (its provenance), device, source, script and overrides (of
-- the sweep that requested it) and backends (the text of chosen_backends.lua, or nil). Raises early
-- if the trial cannot be run again or compared.
function reproduce.stored(store, id)
  local t = store:rows([[SELECT id, experiment, status, config, seed, sweep, attempt, code_hash,
    data_hash, git_commit AS "commit", git_dirty AS dirty, host, provenance,
    coalesce(json_extract(config, '$.device'), 'cpu') AS device, error
    FROM v_trials WHERE id = ?]], { id })[1]
  if t.status ~= "done" then
    errors.usage("trial %s is %s: only finished trials can be reproduced", id:sub(1, 12), t.status)
  end
  local sweep = sweeps.of_trial(store, t)
  if not sweep then errors.usage("the script of trial %s is not stored", id:sub(1, 12)) end
  if t.config:find(secrets.MASK, 1, true) then
    errors.usage("trial %s was run with a secret, which is not stored: run its script with the "
      .. "secret instead", id:sub(1, 12))
  end
  t.about, t.source, t.script = store:object(t.provenance), sweep.source, sweep.script
  t.overrides = store:object(sweep.plan).overrides or {}
  t.values = store:config(t.config)
  for _, file in ipairs(files(store, id)) do
    if file.kind == "checkpoint" then checkpoint_path(store, file) end
    if file.kind == "backends" then
      t.backends = core.sys.read_file(intact_path(store, file,
        "the backends of trial %s are unknown, and other backends would change its bits"))
    end
  end
  return t
end

-- ---- The second run ---------------------------------------------------------------------------

-- Keeps an interrupted reproduction in the scratch folder, so that it continues; removes any other
-- content.
local function prepare(scratch)
  local _, link = core.sys.kind(scratch)
  -- A scratch folder behind a symbolic link is not reused.
  local _, inner = core.sys.kind(scratch .. "/results")
  if not link and not inner and trial_files.has_store(scratch .. "/results") then
    local old <close> = records.open(scratch .. "/results", "r")
    local row = old:rows("SELECT status FROM v_trials")[1]
    if not row or row.status == "running" or row.status == "interrupted" then return end
  end
  reproduce.clear(scratch)
end

-- Returns a function that gives the second run the backends that the first one chose: a different
-- choice could change the results.
local function give_backends(t)
  return function(store, trials)
    local new = trials[1]
    if not t.backends or not new then return end
    local path = new.path .. "/backends-00000000.txt"
    errors.stored(core.sys.mkdir(store.folder .. "/" .. new.path))
    errors.stored(core.sys.write_file(store.folder .. "/" .. path, t.backends))
    store:artifact(new.id, "backends", 0, path, #t.backends, core.sha256(t.backends))
  end
end

-- Returns whether a trial that the script now declares has the configuration of t.
local function matches(t, declared)
  return json.encode(secrets.config(config.result_keys(declared.config))) == t.config
end

-- Returns the overrides of t. Adds its device if neither they nor an axis of the script set it: it
-- may come from TOEPLAB_DEVICE. Sets the tuned key to the value of t, so that it is not tuned
-- again, unless t belongs to the small sweep that tunes it. Drops ranks: one process reproduces the
-- result.
local function overrides_of(t, script)
  local exp = experiment.load(script)
  local words = tuning.words_of(exp, t.overrides, t.experiment, t.values)
  local kept, device = {}, false
  for _, word in ipairs(words) do
    if not word:find "^ranks=%d" then kept[#kept + 1] = word end
    device = device or word:find "^device=" ~= nil
  end
  if not device and not exp:varies "device" then kept[#kept + 1] = "device=" .. t.device end
  return kept
end

function reproduce.clear(scratch) os.execute("rm -rf " .. shell.quote(scratch)) end

-- Copies the existing modules of the script of trial t into the folder scratch, beside the copy of
-- the script.
local function copy_modules(t, scratch)
  local ok, exp = pcall(experiment.load, t.script, { print = function() end }, t.source)
  local home = t.script:match "^.*/" or "./"
  for path, text in pairs(ok and exp.own.texts or {}) do
    local inner = path:sub(1, #home) == home and path:sub(#home + 1)
    if inner and not inner:find("..", 1, true) then
      errors.stored(core.sys.mkdir((scratch .. "/" .. inner):match "^(.*)/"))
      errors.stored(core.sys.write_file(scratch .. "/" .. inner, text))
    end
  end
end

-- Runs the trial t (as returned by reproduce.stored) again in the folder scratch. options: threads,
-- quiet, out, command. Returns its id under today's rules; raises if it cannot be run or fails.
function reproduce.run(t, scratch, options)
  prepare(scratch)
  local script = ("%s/%s"):format(scratch, t.script:match("[^/]+$"))
  errors.stored(core.sys.mkdir(scratch))
  errors.stored(core.sys.write_file(script, t.source))
  copy_modules(t, scratch)
  local code, trials = runner.run(script, overrides_of(t, script), { dir = scratch .. "/results",
    quiet = options.quiet, out = options.out, command = options.command,
    threads = options.threads, enlisted = give_backends(t),
    only = function(other) return matches(t, other) end })
  if #trials == 0 then
    errors.raise(errors.CHECK, "the stored script with its overrides (%s) no longer declares this "
      .. "trial", table.concat(t.overrides, " "))
  end
  if code ~= errors.DONE then errors.raise(errors.CHECK, "the trial failed in the second run") end
  return trials[1].id
end

-- ---- Comparison -------------------------------------------------------------------------------

local function series(store, id)
  return store:rows([[SELECT step, name, value FROM v_metrics WHERE trial = ?
    ORDER BY step, name]], { id })
end

-- Returns the distance of the doubles a and b in ulps; nil if one is missing or not finite, if
-- their signs differ, or if the distance is a million or more.
local function ulps(a, b)
  if not a or not b or a - a ~= 0 or b - b ~= 0 or (a < 0) ~= (b < 0) then return nil end
  local n = math.abs(string.unpack("j", string.pack("d", a))
    - string.unpack("j", string.pack("d", b)))
  return n < 1000000 and n or nil
end

-- Joins two series: a list of {step=, name=, was=, is= (values; NaN for NULL, nil if missing)} in
-- the order of steps and names.
local function joined(old, new)
  local list, found = {}, {}
  for side, rows in pairs { was = old, is = new } do
    for _, m in ipairs(rows) do
      local key = m.step .. " " .. m.name
      if not found[key] then
        found[key] = { step = m.step, name = m.name }
        list[#list + 1] = found[key]
      end
      found[key][side] = m.value or 0 / 0
    end
  end
  table.sort(list, function(a, b)
    if a.step ~= b.step then return a.step < b.step end
    return a.name < b.name
  end)
  return list
end

-- Compares two series step by step. Returns {same=, differ=, ignored= (counts of values), names=
-- (the set of metrics that differ), first= (the first difference, an entry of joined with ulps, or
-- nil)}. ignored: the set of metrics not to compare.
local function compare_metrics(old, new, ignored)
  local result = { same = 0, differ = 0, ignored = 0, names = {} }
  for _, m in ipairs(joined(old, new)) do
    local both_nan = m.was ~= m.was and m.is ~= m.is
    if ignored[m.name] then
      result.ignored = result.ignored + 1
    elseif m.was == m.is or both_nan then
      result.same = result.same + 1
    else
      m.ulps = ulps(m.was, m.is)
      result.differ, result.first = result.differ + 1, result.first or m
      result.names[m.name] = true
    end
  end
  return result
end

-- Compares two digests of checkpoints. Returns {differ= (the sorted names of differing entries),
-- tensors=, values= (counts of equal ones)}.
local function compare_states(old, new)
  local result, set = { tensors = 0, values = 0, differ = {} }, overlay(old, new)
  set.threads, set.device = nil, nil -- these are provenance, not results
  for _, name in ipairs(sorted_keys(set)) do
    local x, y = old[name], new[name]
    if x and y and x.text == y.text then
      local kind = x.tensor and "tensors" or "values"
      result[kind] = result[kind] + 1
    else
      table.insert(result.differ, name)
    end
  end
  return result
end

-- Compares the last checkpoints: {step=, tensors=, values=, differ=}, or {step=, why=, differ=
-- {"step"}} if the new one is missing or has a different step. Raises if one is damaged.
local function compare_checkpoints(old, new, a, b)
  local was = checkpoint_path(old, a)
  if not b or b.step ~= a.step then
    return { step = a.step, differ = { "step" },
      why = b and ("the new one is from step %d"):format(b.step) or "the new run has none" }
  end
  local is = checkpoint_path(new, b)
  local compared = compare_states(checkpoint.digest(was), checkpoint.digest(is))
  compared.step = a.step
  return compared
end

-- Compares the elements of the logged tensors; the files may differ, because their bytes depend on
-- the version of the compression. Returns {same=, differ= (counts of tensors), first= ("NAME of
-- step N", or nil)}.
local function compare_tensors(old, id, new, new_id)
  local result, there = { same = 0, differ = 0 }, {}
  local function differs(row)
    result.differ = result.differ + 1
    result.first = result.first or ("%s of step %d"):format(row.name, row.step)
  end
  for _, row in ipairs(logged_tensors.rows(new, new_id)) do
    there[row.name .. " " .. row.step] = row
  end
  for _, row in ipairs(logged_tensors.rows(old, id)) do
    local key = row.name .. " " .. row.step
    local other = there[key]
    there[key] = nil
    if other and (other.sha256 == row.sha256 or logged_tensors.digest(old, row)
      == logged_tensors.digest(new, other)) then
      result.same = result.same + 1
    else
      differs(row)
    end
  end
  for _, key in ipairs(sorted_keys(there)) do differs(there[key]) end
  return result
end

-- Compares trial id in store old with trial new_id in store new. Returns {metrics=, checkpoint=,
-- tensors=, texts= (the count of equal ones), other_texts= (the kinds that differ), equal=};
-- checkpoint is nil if the old trial has none. Raises if a checkpoint is damaged.
function reproduce.compare(old, id, new, new_id, ignored)
  local result = { metrics = compare_metrics(series(old, id), series(new, new_id), ignored or {}),
    tensors = compare_tensors(old, id, new, new_id), texts = 0, other_texts = {} }
  local there = {}
  for _, f in ipairs(files(new, new_id)) do there[f.kind] = f end
  for _, f in ipairs(files(old, id)) do
    local g = there[f.kind]
    if f.kind == "checkpoint" then
      result.checkpoint = compare_checkpoints(old, new, f, g)
    elseif f.kind ~= "best" then
      local fine = g and g.sha256 == f.sha256
      result.texts = result.texts + (fine and 1 or 0)
      if not fine then table.insert(result.other_texts, f.kind) end
    end
  end
  local differ = result.checkpoint and result.checkpoint.differ or {}
  result.equal = result.metrics.differ == 0 and #differ == 0 and result.tensors.differ == 0
    and #result.other_texts == 0
  return result
end

-- ---- Differences of provenance -----------------------------------------------------------------

local function as_text(v)
  if v == nil then return "not recorded" end
  if type(v) == "table" then return json.encode(v) end
  return tostring(v)
end

-- Compares the provenance of two trials (rows with about). Returns a list of {name=, was=, is=}. A
-- field that only one trial recorded counts as different.
function reproduce.differences(a, b)
  local list = {}
  local function add(name, was, is)
    was, is = as_text(was), as_text(is)
    if was ~= is then list[#list + 1] = { name = name, was = was, is = is } end
  end
  add("code", a.code_hash, b.code_hash)
  add("modules", a.about.modules, b.about.modules)
  add("commit", a.commit, b.commit)
  add("changes", a.about.changes or a.dirty == 1 or false, b.about.changes or b.dirty == 1 or false)
  add("data", a.data_hash, b.data_hash)
  add("threads", a.about.threads, b.about.threads)
  add("cpu features", a.about.features, b.about.features)
  add("device", a.about.device, b.about.device)
  add("host", a.host, b.host)
  for _, part in ipairs { "build", "environment" } do
    local was, is = a.about[part] or {}, b.about[part] or {}
    local set = overlay(was, is)
    set.threads = nil
    for _, name in ipairs(sorted_keys(set)) do add(name, was[name], is[name]) end
  end
  return list
end

return reproduce
