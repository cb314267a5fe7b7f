-- trials/overrides.lua: applies the key=value words of a command line to the fields of an
-- experiment. Each value is parsed as the type of the declared value.
local config = require "toeplab.base.config"
local errors = require "toeplab.base.errors"
local experiment = require "toeplab.trials.experiment"
local rows = require "toeplab.trials.rows"
local sequential = require "toeplab.trials.sequential"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

-- takes: trial functions of the library -> a function key -> what takes an undeclared key: the name
-- of a function and the option's default or type; nil if nothing does.
local overrides = { takes = setmetatable({}, { __mode = "k" }) }

local function integer_list(word, text, least)
  local list = config.parse_list(text, { 1 })
  for _, seed in ipairs(list or {}) do
    if seed < least then list = nil break end
  end
  if not list then
    errors.usage("%s takes integers of at least %d%s, got '%s'", word, least,
      word == "seeds" and text:find "%a" and ', or a rule like "until 2 %"' or "", text)
  end
  return list
end

local function set_seeds(values, word, text)
  if word == "seeds" and sequential.is_text(text) then
    local rule, form = sequential.rule(text)
    if not rule then errors.usage("seeds='%s' is not valid: %s", text, form) end
    values.seeds = rule
    return
  end
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

-- Replaces the value of a key in fixed and in each row that sets it.
local function set_value(exp, values, key, value)
  local in_rows = rows.replace(values.rows, key, value)
  if exp.fixed[key] ~= nil or not in_rows then values.fixed[key] = value end
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
    local names = sorted_keys(exp.scale)
    if #names == 0 then errors.usage("%s declares no scales", exp.file) end
    errors.usage("%s: there is no scale '%s'%s", exp:where("scale"), name, suggest.hint(name,
      names))
  end
  values.scale, values.seeds = name, exp.scale_seeds[name] or values.seeds
  for key, value in pairs(set) do
    if exp:varies(key) then set_axis(values, key, value) else set_value(exp, values, key, value) end
  end
end

-- Returns sample values for the types of a key: from fixed and rows, or from a scale.
local function declared(exp, key)
  local likes = rows.values(exp, key)
  if exp.fixed[key] ~= nil then table.insert(likes, 1, exp.fixed[key]) end
  for _, name in ipairs(#likes > 0 and {} or sorted_keys(exp.scale)) do
    likes[#likes + 1] = exp.scale[name][key]
  end
  return likes
end

-- Returns sample values for the types of an axis: its own, or values that a random axis may draw.
local function samples(exp, key)
  local drawn = exp.random[key]
  if not drawn then return exp:axes()[key] end
  local real = drawn[1] == "uniform" or drawn[1] == "log"
  return real and { 0.5 } or table.move(drawn, 2, #drawn, 1, {})
end

-- Makes an axis of a key with one value. If only some named rows set the key, it varies within
-- these rows.
local function add_axis(exp, values, key, list)
  for axis, set in pairs(exp.fixed[key] == nil and values.rows or {}) do
    local names = {}
    for _, name in ipairs(set.order) do
      if set.of[name][key] ~= nil then names[#names + 1] = name end
    end
    if #names > 0 then
      values.given[key] = nil
      values.when = table.move(values.when, 1, #values.when, 1, {})
      table.insert(values.when, { where = { [axis] = names }, grid = { [key] = list } })
      return
    end
  end
  values.axes[key] = list
end

local function refuse_key(exp, key)
  if key == "draws" then
    errors.usage("%s: draws requires random, which this experiment does not declare", exp.file)
  end
  local takes = overrides.takes[exp.trial]
  local what, example = nil, nil
  if takes then what, example = takes(key) end
  if what then
    errors.usage("%s: '%s' is an option of %s, but not a key of this experiment: add %s = %s to "
      .. "fixed there, and the command line can set it", exp:where("fixed"), key, what, key,
      example)
  end
  local names = exp:keys()
  table.move({ "seed", "seeds", "scale", "draws", "compare" }, 1, 5, #names + 1, names)
  local near = suggest.nearest(key, names)
  local new = near and "" or (" (a new key, which the trial reads, must be added to fixed: %s = "
    .. "VALUE)"):format(key)
  errors.usage("%s: unknown key '%s' on the command line%s%s", near and exp:where(near)
    or exp.file, key, suggest.hint(key, names), new)
end

-- Sets a key to a value, or makes it an axis of several values. A key whose declared value is a
-- list takes a list without brackets as one value, and one whose axis has lists a single item.
local function set_key(exp, values, key, text)
  values.given[key] = true
  local varies = exp:varies(key)
  local likes = varies and samples(exp, key) or declared(exp, key)
  if #likes == 0 then refuse_key(exp, key) end
  local of_lists = type(likes[1]) == "table"
  local plain = of_lists and not varies and text:sub(1, 1) ~= "["
  local item = of_lists and varies and not text:find "[%[,]"
  local list, expected = config.parse_list(item and "[" .. text .. "]" or text,
    plain and likes[1] or likes)
  if not list then
    expected = plain and ("a list like [%s]"):format(config.text(likes[1])) or expected
    errors.usage("%s: %s takes %s, got '%s'", exp:where(key), key, expected, text)
  elseif varies then
    set_axis(values, key, list)
  elseif plain or #list == 1 then
    set_value(exp, values, key, plain and list or list[1])
  else
    add_axis(exp, values, key, list)
  end
end

-- Checks that the lists of a zip still have the same length after overrides and scales.
local function check_zips(exp, values)
  for _, axes in ipairs(values.zips) do
    local keys = sorted_keys(axes)
    for _, key in ipairs(keys) do
      if #axes[key] ~= #axes[keys[1]] then
        errors.usage("%s: zip: %s has %d value%s but %s has %d: give equal numbers",
          exp:where(key), key, #axes[key], #axes[key] == 1 and "" or "s", keys[1], #axes[keys[1]])
      end
    end
  end
end

-- If seeds is a rule, replaces it by all seeds that the rule may need, and sets rule and compared.
local function apply_rule(exp, values, given)
  local rule = values.seeds
  if not rule.looks then
    if given then errors.usage 'compare requires seeds like "until 2 %": give both' end
    return
  end
  values.rule, values.seeds = rule, {}
  for i = 1, rule.most do values.seeds[i] = i end
  values.compared = sequential.compared(exp, rule, given)
end

-- Returns the fields of exp under words ("key=value", "scale=NAME", "seeds=N", "seeds=until P %",
-- "compare=KEY=VALUE", "seed=N"): fixed, rows, axes, zips, random, draws, draw_seed, when, except,
-- seeds, scale (its name, or ""), and given (the set of the keys in words). With seeds = "until P
-- %", seeds holds all seeds that may be run, rule the rule of sequential.lua, and compared its
-- comparison. Does not change exp. Raises usage errors.
function overrides.apply(exp, words)
  local values = {
    fixed = config.copy(exp.fixed), rows = config.copy(exp.rows), axes = config.copy(exp.grid),
    zips = config.copy(exp.zips),
    random = config.copy(exp.random), draws = exp.draws, draw_seed = exp.draw_seed,
    when = exp.when, except = exp.except, seeds = exp.seeds, given = {}, scale = "",
  }
  local pairs_, seen, compared = {}, {}, nil
  for _, word in ipairs(words) do
    local key, text = word:match("^([^=]+)=(.*)$")
    if not key then errors.usage("'%s' is not a setting; write key=value", word) end
    local slot = key == "seed" and "seeds" or key
    if seen[slot] then errors.usage("%s is given twice: %s and %s", key, seen[slot], word) end
    seen[slot] = word
    if key == "scale" then set_scale(exp, values, text) else pairs_[#pairs_ + 1] = { key, text } end
  end
  for _, pair in ipairs(pairs_) do
    if pair[1] == "seed" or pair[1] == "seeds" then
      set_seeds(values, pair[1], pair[2])
    elseif pair[1] == "compare" then
      compared = pair[2]
    elseif pair[1] == "draws" and next(exp.random) then
      values.draws = integer_list("draws", pair[2], 1)[1]
    else
      set_key(exp, values, pair[1], pair[2])
    end
  end
  check_zips(exp, values)
  apply_rule(exp, values, compared and sequential.read(exp, compared, values.axes))
  for _, key in ipairs(exp:keys()) do
    if values.fixed[key] == nil and not exp:varies(key) and not values.axes[key]
        and #rows.values(exp, key) == 0 then
      errors.usage("%s: '%s' has a value only in a scale: add scale=%s", exp:where(key), key,
        table.concat(sorted_keys(exp.scale), " or scale="))
    end
  end
  return values
end

return overrides
