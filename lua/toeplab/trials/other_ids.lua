-- trials/other_ids.lua: finds the trials of an experiment that a store has under other ids, and
-- explains why others are new although the store has trials of the same configuration and seed.
--
-- A trial has another id if it was adopted (run --adopt), or stored by a release whose ids were
-- hashes of whole scripts. The parts of its code (reachable_code.lua) are stored in its provenance,
-- or come from its stored script and the modules beside the script, if these have not changed since
-- its run.
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local reachable_code = require "toeplab.trials.reachable_code"
local secrets = require "toeplab.base.secrets"
local sorted_keys = require "toeplab.base.sorted_keys"
local sweeps = require "toeplab.store.sweeps"

local other_ids = {}

-- Returns the folder of a trial relative to the results folder.
function other_ids.path(id) return "runs/" .. id:sub(1, 12) end

-- Loads the experiment of the stored script of sweep s like exp; nil if that fails.
local function loaded(exp, s)
  local experiment = require "toeplab.trials.experiment" -- which requires this file's users
  local ok, old = pcall(experiment.load, exp.script, { print = function() end }, s.source)
  return ok and old or nil
end

-- Returns the experiment of a stored trial, if its script can be loaded and its modules have not
-- changed since its run; otherwise nil. known: a cache by script.
local function old_experiment(store, exp, row, known)
  local s = sweeps.of_trial(store, row)
  if not s then return nil end
  if known[s.sha256] == nil then known[s.sha256] = loaded(exp, s) or false end
  local old = known[s.sha256]
  return old and old.own.tokens == (row.modules or "") and old or nil
end

-- Returns the parts of the code that made a stored trial, part -> hash; nil if they are unknown.
local function parts_of(store, exp, row, known)
  if row.code then
    known[row.code] = known[row.code] or store:decode(row.code)
    return known[row.code]
  end
  local old = old_experiment(store, exp, row, known)
  return old and old.reach.parts
end

-- ---- Reasons ------------------------------------------------------------------------------------

-- Returns the part with this key in the result of reachable_code.of.
local function part_of(r, key)
  for _, part in ipairs(r.list) do
    if part.key == key then return part end
  end
end

-- Returns the line of the first token in which a part differs from the old one (nil: none).
local function changed_line(part, old)
  for i, token in ipairs(part.tokens) do
    if not old or not old.tokens or token ~= old.tokens[i] then return part.lines[i] end
  end
  return part.lines[#part.lines]
end

local function describe(key)
  local kind, name = key:match "^(%a+) (.*)$"
  return kind and ("%s '%s'"):format(kind, name) or key
end

-- Describes how a part of the code changed. was: the parts of the old code; old: its reach, or nil.
local function code_reason(exp, key, was, old)
  local part = part_of(exp.reach, key)
  if not part then return describe(key) .. " was removed" end
  local before = old and part_of(old, key)
  if before and before.hash ~= was[key] then before = nil end
  local same = before and before.tokens and part.tokens
    and table.concat(before.tokens, "\n") == table.concat(part.tokens, "\n")
  if same then return describe(key) .. " refers to a different value" end
  local place = part.tokens and (": %s line %d"):format(part.path:gsub("^%./", ""),
    changed_line(part, before)) or ""
  return ("%s %s%s"):format(describe(key), was[key] and "changed" or "is new", place)
end

-- Returns a list of the changes of the code since the parts `was` (nil: unknown).
local function code_reasons(exp, was, old)
  if not was then return { "the script or its modules changed; the old code cannot be loaded" } end
  local now, changed, other = exp.reach.parts, {}, {}
  if now.script and not was.script then
    return { ("the id now covers the whole script: %s"):format(exp.reach.whole) }
  elseif was.script and not now.script then
    return { "all of the script counted before" }
  end
  for _, key in ipairs(sorted_keys(now)) do
    if was[key] and was[key] ~= now[key] then changed[#changed + 1] = key end
    if not was[key] then other[#other + 1] = key end
  end
  for _, key in ipairs(sorted_keys(was)) do
    if not now[key] then other[#other + 1] = key end
  end
  local list = #changed > 0 and changed or other
  for i, key in ipairs(list) do list[i] = code_reason(exp, key, was, old) end
  return list
end

-- Returns a list of the changes of the data of a trial since the stored one.
local function data_reasons(store, t, row)
  if row.data_hash == t.data_hash then return {} end
  local was, list = row.data and store:decode(row.data) or {}, {}
  for _, key in ipairs(sorted_keys(t.data)) do
    if was[key] ~= t.data[key] then
      list[#list + 1] = ("data %s changed"):format(secrets.word(tostring(t.config[key])))
    end
  end
  return #list > 0 and list or { "data changed" }
end

-- Sets t.earlier = {row=, reasons=} of a new trial.
local function explain(store, exp, t, row, known)
  local parts = parts_of(store, exp, row, known)
  local list = data_reasons(store, t, row)
  if row.numerics ~= core.numerics then
    list[#list + 1] = ("numerics %d -> %d"):format(row.numerics, core.numerics)
  end
  if not parts or reachable_code.total(parts) ~= exp.reach.total then
    known.reasons = known.reasons or {}
    local text = parts and json.encode(parts) or ""
    if not known.reasons[text] then
      local old = parts and old_experiment(store, exp, row, known)
      known.reasons[text] = code_reasons(exp, parts, old and old.reach)
    end
    table.move(known.reasons[text], 1, #known.reasons[text], #list + 1, list)
  end
  t.earlier = { row = row, reasons = list }
end

-- ---- The search ---------------------------------------------------------------------------------

-- Returns the trials of the experiment that have run, by the JSON of their configuration; finished
-- ones first, then the newest.
local function stored(store, name)
  local found = {}
  for _, row in ipairs(store:rows([[SELECT id, sweep, status, config, data_hash,
      coalesce(numerics, 1) AS numerics, provenance ->> '$.key' AS key,
      provenance -> '$.code' AS code, provenance -> '$.data' AS data,
      provenance ->> '$.module_tokens' AS modules
    FROM v_trials WHERE experiment = ? AND attempt > 0
    ORDER BY status <> 'done', started DESC]], { name })) do
    found[row.config] = found[row.config] or {}
    table.insert(found[row.config], row)
  end
  return found
end

-- Returns the sets of keys of stored configurations: lists of the names in each.
local function key_sets(store, found)
  local sets, known = {}, {}
  for text in pairs(found) do
    local names = sorted_keys(store:config(text))
    local name = table.concat(names, ",")
    if not known[name] then known[name], sets[#sets + 1] = true, names end
  end
  return sets
end

-- Returns "new key rpe_act" if the store has trials that have no such key and are otherwise equal
-- to t; nil if not. sets: of key_sets.
local function new_keys(t, found, sets)
  for _, names in ipairs(sets) do
    local rest, added = {}, config.result_keys(t.config)
    for _, name in ipairs(names) do rest[name], added[name] = t.config[name], nil end
    local list = sorted_keys(added)
    if #list > 0 and found[json.encode(rest)] then
      return ("new key%s %s"):format(#list == 1 and "" or "s", table.concat(list, ", "))
    end
  end
end

-- Gives the trials of exp that the store has under other ids these ids. Sets t.maps if the store
-- has not recorded their code. Explains new trials.
function other_ids.find(store, exp, trials)
  local ids, known, found, sets = {}, {}, nil, nil
  for _, row in ipairs(store:rows("SELECT id FROM v_trials WHERE experiment = ?", { exp.name })) do
    ids[row.id] = true
  end
  if not next(ids) then return end
  for _, t in ipairs(trials) do
    local hidden = not ids[t.id] and secrets.config(t.config) ~= t.config -- its text is masked
    if not ids[t.id] and not hidden then
      found = found or stored(store, exp.name)
      local list = found[t.json] or {}
      for _, row in ipairs(list) do
        local parts = row.key ~= t.key and row.data_hash == t.data_hash
          and row.numerics == core.numerics and parts_of(store, exp, row, known)
        if row.key == t.key or parts and reachable_code.total(parts) == exp.reach.total then
          t.id, t.path, t.maps = row.id, other_ids.path(row.id), not row.code
          break
        end
      end
      if t.id == t.key and list[1] then explain(store, exp, t, list[1], known) end
      if not list[1] then
        sets = sets or key_sets(store, found)
        t.new_keys = new_keys(t, found, sets)
      end
    end
  end
end

-- Returns the reasons why trials are new, a list of {text=, count= (of trials)}.
function other_ids.reasons(trials)
  local list, by_text = {}, {}
  for _, t in ipairs(trials) do
    for _, text in ipairs(t.earlier and t.earlier.reasons or { t.new_keys }) do
      if not by_text[text] then
        by_text[text] = { text = text, count = 0 }
        list[#list + 1] = by_text[text]
      end
      by_text[text].count = by_text[text].count + 1
    end
  end
  return list
end

-- Returns whether the old results of a new trial may be adopted.
function other_ids.adoptable(t) return t.earlier and t.earlier.row.status == "done" or false end

-- Gives new trials the old finished results of the same configuration, and records in the store why
-- they were new. Returns the number of these trials.
function other_ids.adopt(store, trials)
  local count = 0
  for _, t in ipairs(trials) do
    if other_ids.adoptable(t) then
      local row = t.earlier.row
      store:mark(row.id, "adopt", t.key, nil, table.concat(t.earlier.reasons, "; "))
      t.id, t.path, t.earlier = row.id, other_ids.path(row.id), nil
      count = count + 1
    end
  end
  return count
end

return other_ids
