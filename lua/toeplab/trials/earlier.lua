-- trials/earlier.lua: finds the trials of an experiment that a store has under other ids, and says
-- why others are new although the store has trials of the same configuration and seed.
--
-- A trial has another id if it was adopted (run --adopt), or stored by a release whose ids were
-- hashes of whole scripts. The parts of its code (reach.lua) are then those that its provenance
-- has, or those of its stored script with the modules that lie beside the script now, if these are
-- still the ones that it was run with.
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local reach = require "toeplab.trials.reach"
local secrets = require "toeplab.base.secrets"
local sorted_keys = require "toeplab.base.sorted_keys"
local sweeps = require "toeplab.store.sweeps"

local earlier = {}

-- Returns the folder of a trial relative to the results folder.
function earlier.path(id) return "runs/" .. id:sub(1, 12) end

-- Returns the experiment of the script of sweep s as exp would be loaded; nil if it cannot be.
local function loaded(exp, s)
  local experiment = require "toeplab.trials.experiment" -- which requires this file's users
  local ok, old = pcall(experiment.load, exp.script, { print = function() end }, s.source)
  return ok and old or nil
end

-- Returns the experiment that a stored trial belonged to, if its script can be loaded and its
-- modules are those that the trial was run with; nil if not. known: a cache by scripts.
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

-- Returns the part of that key of a reach.
local function part_of(r, key)
  for _, part in ipairs(r.list) do
    if part.key == key then return part end
  end
end

-- Returns the line of the first token that a part has and the old one, if there is one, has not.
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

-- Says how a part of the code changed. was: the parts of the old code; old: its reach, or nil.
local function code_reason(exp, key, was, old)
  local part = part_of(exp.reach, key)
  if not part then return describe(key) .. " is gone" end
  local before = old and part_of(old, key)
  if before and before.hash ~= was[key] then before = nil end
  local same = before and before.tokens and part.tokens
    and table.concat(before.tokens, "\n") == table.concat(part.tokens, "\n")
  if same then return describe(key) .. " refers to something else" end
  local place = part.tokens and (": %s line %d"):format(part.path:gsub("^%./", ""),
    changed_line(part, before)) or ""
  return ("%s %s%s"):format(describe(key), was[key] and "changed" or "is new", place)
end

-- Returns what changed in the code since the parts `was` (nil: unknown), a list.
local function code_reasons(exp, was, old)
  if not was then return { "the script or its modules changed; the old code cannot be loaded" } end
  local now, changed, other = exp.reach.parts, {}, {}
  if now.script and not was.script then
    return { ("all of the script counts now: %s"):format(exp.reach.whole) }
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

-- Returns what changed in the data of a trial since the stored one, a list.
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

-- Sets t.earlier = {row=, reasons=} of a trial that is new.
local function explain(store, exp, t, row, known)
  local parts = parts_of(store, exp, row, known)
  local list = data_reasons(store, t, row)
  if row.numerics ~= core.numerics then
    list[#list + 1] = ("numerics %d -> %d"):format(row.numerics, core.numerics)
  end
  if not parts or reach.total(parts) ~= exp.reach.total then
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

-- Returns the trials of the experiment that have run, by the text of their configuration, those
-- that are done first, then the newest.
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

-- Finds the trials of exp that the store has under other ids, and gives them these; t.maps is then
-- set if the store has not recorded their code. Explains those that are new.
function earlier.find(store, exp, trials)
  local ids, known, found = {}, {}, nil
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
        if row.key == t.key or parts and reach.total(parts) == exp.reach.total then
          t.id, t.path, t.maps = row.id, earlier.path(row.id), not row.code
          break
        end
      end
      if t.id == t.key and list[1] then explain(store, exp, t, list[1], known) end
    end
  end
end

-- Returns why trials are new, a list of {text=, count= (of trials)}.
function earlier.reasons(trials)
  local list, by_text = {}, {}
  for _, t in ipairs(trials) do
    for _, text in ipairs(t.earlier and t.earlier.reasons or {}) do
      if not by_text[text] then
        by_text[text] = { text = text, count = 0 }
        list[#list + 1] = by_text[text]
      end
      by_text[text].count = by_text[text].count + 1
    end
  end
  return list
end

-- Whether the old results of a new trial may be adopted.
function earlier.adoptable(t) return t.earlier and t.earlier.row.status == "done" or false end

-- Gives new trials the old results of the same configuration, where these are done, and records in
-- the store why they were new. Returns how many there are.
function earlier.adopt(store, trials)
  local count = 0
  for _, t in ipairs(trials) do
    if earlier.adoptable(t) then
      local row = t.earlier.row
      store:mark(row.id, "adopt", t.key, nil, table.concat(t.earlier.reasons, "; "))
      t.id, t.path, t.earlier = row.id, earlier.path(row.id), nil
      count = count + 1
    end
  end
  return count
end

return earlier
