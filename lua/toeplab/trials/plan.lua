-- trials/plan.lua: lists the trials of an experiment under the overrides of a command line, before
-- anything runs.
local config = require "toeplab.base.config"
local cut = require "toeplab.base.cut"
local devices = require "toeplab.trials.devices"
local experiment = require "toeplab.trials.experiment"
local json = require "toeplab.base.json"
local space = require "toeplab.trials.space"
local secrets = require "toeplab.base.secrets"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local plan = {}

local function integer_list(word, text, least)
  local list = config.parse_list(text, { 1 })
  for _, seed in ipairs(list or {}) do
    if seed < least then list = nil break end
  end
  if not list then errors.usage("%s takes integers from %d up, got '%s'", word, least, text) end
  return list
end

local function set_seeds(values, word, text)
  local list = integer_list(word, text, word == "seed" and 0 or 1)
  if word == "seeds" and #list == 1 then
    local count = list[1]
    if count > experiment.MOST_SEEDS then
      errors.usage("seeds takes a count up to %d, got '%s'", experiment.MOST_SEEDS, text)
    end
    for i = 1, count do list[i] = i end
  end
  values.seeds = list
end

-- Replaces the values of an axis of any kind.
local function set_axis(values, key, list)
  for _, axes in ipairs(values.zips) do
    if axes[key] then
      axes[key] = list
      return
    end
  end
  values.random[key] = nil
  values.axes[key] = list
end

local function set_scale(exp, values, name)
  local set = exp.scale[name]
  if not set then
    local names = suggest.keys(exp.scale)
    if #names == 0 then errors.usage("%s declares no scales", exp.file) end
    errors.usage("%s: there is no scale '%s'%s", exp:where("scale"), name, suggest.hint(name,
      names))
  end
  for key, value in pairs(set) do
    if exp:varies(key) then set_axis(values, key, value) else values.fixed[key] = value end
  end
end

-- Returns a value that shows the type of the key: the declared one, or that of a scale.
local function declared(exp, key)
  if exp.fixed[key] ~= nil then return exp.fixed[key] end
  for _, name in ipairs(suggest.keys(exp.scale)) do
    if exp.scale[name][key] ~= nil then return exp.scale[name][key] end
  end
end

local function misfit(exp, key, expected, text)
  errors.usage("%s: %s takes %s, got '%s'", exp:where(key), key, expected, text)
end

-- Returns values that show the types of an axis: its own, or those that a random axis may draw.
local function samples(exp, key)
  local drawn = exp.random[key]
  if not drawn then return exp:axes()[key] end
  local real = drawn[1] == "uniform" or drawn[1] == "log"
  return real and { 0.5 } or table.move(drawn, 2, #drawn, 1, {})
end

local function set_key(exp, values, key, text)
  values.given[key] = true
  if exp:varies(key) then
    local list, expected = config.parse_list(text, samples(exp, key))
    if not list then misfit(exp, key, expected, text) end
    set_axis(values, key, list)
    return
  end
  local like = declared(exp, key)
  if like == nil then
    local names = exp:keys()
    table.move({ "seed", "seeds", "scale", "draws" }, 1, 4, #names + 1, names)
    local near = suggest.nearest(key, names)
    errors.usage("%s: unknown key '%s' on the command line%s", near and exp:where(near) or exp.file,
      key, suggest.hint(key, names))
  end
  local value, expected = config.parse(text, like)
  if value == nil then misfit(exp, key, expected, text) end
  values.fixed[key] = value
end

-- Checks that the lists of a zip are still equally long after overrides and scales.
local function check_zips(exp, values)
  for _, axes in ipairs(values.zips) do
    local keys = suggest.keys(axes)
    for _, key in ipairs(keys) do
      if #axes[key] ~= #axes[keys[1]] then
        errors.usage("%s: %s has %d value%s and %s has %d, and they go together: give both",
          exp:where(key), key, #axes[key], #axes[key] == 1 and "" or "s", keys[1], #axes[keys[1]])
      end
    end
  end
end

local function settle(exp, words)
  local values = {
    fixed = config.copy(exp.fixed), axes = config.copy(exp.grid), zips = config.copy(exp.zips),
    random = config.copy(exp.random), draws = exp.draws, draw_seed = exp.draw_seed,
    when = exp.when, except = exp.except, seeds = exp.seeds, given = {},
  }
  local pairs_, seen = {}, {}
  for _, word in ipairs(words) do
    local key, text = word:match("^([^=]+)=(.*)$")
    if not key then errors.usage("'%s' is not an override; write key=value", word) end
    local slot = key == "seed" and "seeds" or key
    if seen[slot] then errors.usage("%s is given twice: %s and %s", key, seen[slot], word) end
    seen[slot] = word
    if key == "scale" then set_scale(exp, values, text) else pairs_[#pairs_ + 1] = { key, text } end
  end
  for _, pair in ipairs(pairs_) do
    if pair[1] == "seed" or pair[1] == "seeds" then
      set_seeds(values, pair[1], pair[2])
    elseif pair[1] == "draws" and next(exp.random) then
      values.draws = integer_list("draws", pair[2], 1)[1]
    else
      set_key(exp, values, pair[1], pair[2])
    end
  end
  check_zips(exp, values)
  for _, key in ipairs(exp:keys()) do
    if values.fixed[key] == nil and not exp:varies(key) and values.axes[key] == nil then
      errors.usage("%s: '%s' has a value only in a scale: add scale=%s", exp:where(key), key,
        table.concat(suggest.keys(exp.scale), " or scale="))
    end
  end
  return values
end

local SHOWN = 60

-- Returns the text of a value for labels: decay=0.99, lengths=64,128. Long texts are cut.
local function show(v)
  if type(v) == "string" then v = v:gsub("%c", " ") end
  if type(v) == "string" and #v > SHOWN then
    return ("%s... (%d bytes)"):format(cut(v, SHOWN - 20), #v)
  end
  if type(v) ~= "table" then return tostring(v) end
  local items = {}
  for i, x in ipairs(v) do items[i] = show(x) end
  return table.concat(items, ",")
end

plan.show = show

-- Rounds a drawn number for display.
local function short(v)
  return math.type(v) == "float" and tonumber(("%.4g"):format(v)) or v
end

local function label(point, seed, many)
  local parts = {}
  for i, key in ipairs(suggest.keys(point)) do
    parts[i] = secrets.word(key .. "=" .. show(short(point[key])))
  end
  if many or #parts == 0 then parts[#parts + 1] = "seed=" .. seed end
  return table.concat(parts, " ")
end

-- Lists the trials of exp under the overrides in words ("key=value", "scale=NAME", "seeds=N",
-- "seed=N"), in an order that depends on the declaration alone. Each trial is {config=, point=,
-- seed=, label=}. The second result describes the whole plan: axes (the names of the keys that
-- vary), left_out (the excluded points: {point=, reason=, label=}), seeds, values (the argument of
-- space.points) and counts (its third result). Raises usage errors.
function plan.trials(exp, words)
  local values = settle(exp, words)
  local points, left_out, counts = space.points(values)
  space.check_count(#points * #values.seeds)
  local trials, varied = {}, {}
  for _, point in ipairs(points) do
    for key in pairs(point) do varied[key] = true end
    for _, seed in ipairs(values.seeds) do
      local resolved = config.copy(values.fixed)
      for key, value in pairs(point) do resolved[key] = config.copy(value) end
      resolved.seed = seed
      trials[#trials + 1] = { config = resolved, point = point, seed = seed,
        label = label(point, seed, #values.seeds > 1) }
    end
  end
  plan.check(exp, trials)
  for _, out in ipairs(left_out) do out.label = label(out.point, nil, false) end
  return trials, { axes = suggest.keys(varied), left_out = left_out, seeds = values.seeds,
    values = values, counts = counts }
end

-- Explains, as far as the declaration shows it, why two trials are equal.
local function twice(exp)
  if next(exp.random) then return ", drawn by random: draw fewer, or from more values" end
  local axes = exp:axes()
  for _, rule in ipairs(exp.when) do
    for _, key in ipairs(suggest.keys(rule.fixed or {})) do
      if axes[key] then
        return (": a rule of when fixes the axis %s; where its other values make no sense, leave "
          .. "them out by except"):format(key)
      end
    end
  end
  return ""
end

-- Raises if two trials are equal or if the experiment's own check rejects one. Sets in each trial
-- the field json, the text of its configuration.
function plan.check(exp, trials)
  local seen = {}
  for _, trial in ipairs(trials) do
    local text = json.encode(trial.config)
    trial.json = text
    if seen[text] then
      errors.usage("%s: %s appears twice among the trials%s", exp.file, trial.label, twice(exp))
    end
    seen[text] = true
    local wrong = devices.wrong(trial.config.device)
    if wrong then errors.usage("%s: %s", exp:where("device"), wrong) end
    wrong = devices.lacks(trial.config.device, trial.config.precision)
    if wrong then errors.usage("%s: %s", exp:where("precision"), wrong) end
    if exp.check then
      local ok, why = pcall(exp.check, config.new(trial.config))
      if not ok then errors.usage("%s", errors.text(why)) end
    end
  end
end

return plan
