-- runs/option_check.lua: finds wrong options of a run before its first trial starts. A worker
-- process makes one model of each value of an axis that is new to the store, by a dry run of a
-- trial (dry_run.lua). Only errors about options refuse the run; any other, such as missing data,
-- is left to the trial.
--
-- The worker reads lines "check CONFIG", says "checking" before the first, and answers each by a
-- line "checked WHY LATE": the error about an option, if there is one, and whether time is over.
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local dry_run = require "toeplab.runs.dry_run"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local wire = require "toeplab.base.wire"
local worker_process = require "toeplab.runs.worker_process"

local option_check = {}

local SECONDS = 0.5  -- of processor time that the models of a run may take
local WAIT = 1.0     -- seconds until a process that still works, e.g. reads its data, is killed
local START = 10.0   -- seconds until a process that does not begin is killed
local MAX_ERRORS = 5 -- to print

-- ---- The worker -------------------------------------------------------------------------------

-- Returns a function of the configuration of a trial of exp that returns the error about an option,
-- or nil, and whether the time is over.
function option_check.checker(exp)
  local open, until_when = dry_run.openers(), os.clock() + SECONDS
  return function(c)
    if os.clock() > until_when then return nil, true end
    local found, why, _, of_option = dry_run.call(exp, c, open, until_when)
    if of_option then return why, false end
    return nil, not found and os.clock() > until_when
  end
end

-- ---- The run ----------------------------------------------------------------------------------

-- Returns the values of the axes at a trial: {key=, value=, text= (unique)} each.
local function values_at(axes, t)
  local list = {}
  for _, key in ipairs(axes) do
    local value = t.point[key]
    list[#list + 1] = value ~= nil
      and { key = key, value = value, text = key .. "=" .. json.encode { value } } or nil
  end
  return list
end

-- Returns the trials that a run does not have in its store, and of these each that is the first
-- with a value of an axis.
local function new_trials(run)
  local fresh, list, seen = {}, {}, {}
  local function has_new(t)
    local new = false
    for _, v in ipairs(values_at(run.axes, t)) do
      new, seen[v.text] = new or not seen[v.text], true
    end
    return new
  end
  for _, t in ipairs(run.trials) do
    -- Of a trial that the store has, prepare.to_do has set one of them.
    if t.status or t.attempt then has_new(t) else fresh[#fresh + 1] = t end
  end
  for _, t in ipairs(fresh) do
    if has_new(t) then list[#list + 1] = t end
  end
  return fresh, list
end

-- Sends a trial's configuration to the worker w, and returns its answer, the line "checked"; nil if
-- there is none until the time w.ends.
local function answer_of(w, t)
  w.process:send(wire.line("check", wire.pack(t.config)))
  while core.sys.clock() < w.ends do
    core.sys.poll({ w.process }, 0.1)
    errors.check_signals()
    local text = w.process:receive()
    for _, line in ipairs(w.read(text or "")) do
      if line[1] == "checking" then w.ends = core.sys.clock() + WAIT end
      if line[1] == "checked" then return line end
    end
    if not text then return nil end
  end
end

-- Checks the trials of list. Returns the errors about options in their order, the trials of each
-- (text -> list), the set of the values (values_at) of the other trials, and how many trials are
-- left.
local function check(w, axes, list)
  local texts, wrong, good = {}, {}, {}
  w.ends = core.sys.clock() + START
  for i, t in ipairs(list) do
    local answer = answer_of(w, t)
    if not answer or answer[3] then return texts, wrong, good, #list - i + 1 end
    local text = answer[2]
    if not text then
      for _, v in ipairs(values_at(axes, t)) do good[v.text] = true end
    else
      texts[#texts + 1] = not wrong[text] and text or nil
      wrong[text] = wrong[text] or {}
      table.insert(wrong[text], t)
    end
  end
  return texts, wrong, good, 0
end

-- Returns the set of the axes that have one value in all trials of a run.
local function constant(run)
  local first, same = {}, {}
  for _, t in ipairs(run.trials) do
    for _, v in ipairs(values_at(run.axes, t)) do
      first[v.key] = first[v.key] or v.text
      same[v.key] = same[v.key] ~= false and first[v.key] == v.text
    end
  end
  return same
end

-- Returns the only value of an axis that all trials of list have and no other trial has (good); of
-- several, the value of the key that the error names. nil if that says nothing, as of an axis of
-- one value with another name.
local function culprit(run, list, good, named)
  local counts, found, same = {}, {}, constant(run)
  for _, t in ipairs(list) do
    for _, v in ipairs(values_at(run.axes, t)) do
      counts[v.text] = (counts[v.text] or 0) + 1
      if counts[v.text] == #list and not good[v.text] and (v.key == named or not same[v.key]) then
        found[#found + 1] = v
      end
    end
  end
  for _, v in ipairs(found) do
    if #found == 1 or v.key == named then return v end
  end
end

-- Returns the error of the trials of list with the line of the key that is wrong.
local function located(run, why, list, good)
  local exp, named = run.exp, why:match "option '([%w_]+)'"
  local one = culprit(run, list, good, named)
  local key = one and one.key or named and exp:declares(named) and named or "trial"
  local place = why:find(exp.file, 1, true) and "" or exp:where(key) .. ": "
  if not one then return ("%s%s (trial %s)"):format(place, why, list[1].label) end
  if key == named then return place .. why end
  return ("%s%s = %s: %s"):format(place, key, config.show(one.value), why)
end

-- Raises a usage error if a value of an axis that is new to the store is not valid.
function option_check.run(run)
  local fresh, list = new_trials(run)
  if #fresh < 2 or #list == 0 then return end -- a single trial itself says soon what is wrong
  local w = worker_process.start(run, 0, "cpu", { device = "cpu" })
  local ok, texts, wrong, good, left = pcall(check, w, run.axes, list)
  w:kill()
  if not ok then error(texts, 0) end
  local lines = {}
  for i = 1, math.min(#texts, MAX_ERRORS) do
    lines[i] = located(run, texts[i], wrong[texts[i]], good)
  end
  if #texts > #lines then lines[#lines + 1] = ("and %d more errors"):format(#texts - #lines) end
  if lines[1] then errors.usage("%s", table.concat(lines, "\n")) end
  if left > 0 then
    run.progress:note("the options of %d of %d models were not checked before the first trial, "
      .. "because that takes too long", left, #list)
  end
end

return option_check
