-- trials/experiment.lua: checks the declaration in an experiment file and makes it an Experiment.
--
-- tl.experiment "name" {
--   answers    = "tnn/table10",                     -- the published table it answers, or a list
--   fixed      = { layers = 6 },                    -- keys with one value
--   grid       = { decay = {0.99, "learnable"} },   -- with several: each combination is a trial
--   rows       = { model = { { "ski", backend = "ski" }, ... } }, -- named sets of keys: rows.lua
--   zip, random, when, except,                      -- more axes and rules: declared.lua
--   guard, prune, budget,                           -- supervision: declared.lua
--   title      = "Perplexity by length",            -- caption of tables and figures
--   label      = { ["mixer=tnn"] = "TNN" },         -- names in these: presentation.lua
--   better     = { margin = "higher" },             -- or "lower", of metrics whose names do not
--                                                   -- say it (base/direction.lua)
--   success    = { metric = "test_accuracy", above = 0.8 }, -- reports count successful seeds
--   tune       = { key = "lr", values = {...}, ... }, -- chosen for each point first: tuning.lua
--   seeds      = 3,                                 -- 1..3, a list of seeds, or "until 2 %":
--   compare    = { with = { decay = 0.99 } },       -- the comparison to decide: sequential.lua
--   scale      = { smoke = { layers = 1 }, ... },   -- named sets of values, and seeds: other
--                                                   -- budgets
--   data       = { "corpus" },                      -- keys that name a corpus (default: corpus)
--   check      = function(c) ... end,               -- raises if the keys make no sense
--   checkpoint = { steps = 500, seconds = 60 },     -- when t:steps saves (default: each minute)
--   trial      = function(t, c) ... end,            -- runs one trial
--   model      = function(c, vocab) ... end,        -- makes the model of a trial, for commands
--                                                   -- that open it later (experiment.builder)
--   report     = { rows = "decay", columns = {"loss"} } or function(trials, report) ... end,
--                                                   -- rows: a key, or a list of keys
-- }
--
-- Every experiment also has the keys precision ("float32" unless declared otherwise;
-- core.precision), device (TOEPLAB_DEVICE or "cpu" unless declared otherwise; devices.lua), ranks
-- and sequence_ranks (1): the number of processes that train together, and of those that share a
-- sequence (docs/ranks.md), and micro_batches (1): the number of parts of a batch in an update
-- (train/update.lua).
local code = require "toeplab.trials.code"
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local declared = require "toeplab.trials.declared"
local devices = require "toeplab.trials.devices"
local errors = require "toeplab.base.errors"
local own_code = require "toeplab.trials.own_code"
local presentation = require "toeplab.trials.presentation"
local reachable_code = require "toeplab.trials.reachable_code"
local rows = require "toeplab.trials.rows"
local sequential = require "toeplab.trials.sequential"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local experiment = { MOST_SEEDS = 1000000 }

local is_list = config.is_list

local fields = {
  answers = { "string", "table" }, fixed = { "table" }, grid = { "table" },
  seeds = { "number", "table", "string" }, compare = { "table" },
  scale = { "table" }, data = { "table" }, check = { "function" }, checkpoint = { "table" },
  trial = { "function" }, model = { "function" }, report = { "table", "function" },
  rows = { "table" }, zip = { "table" }, random = { "table" },
  when = { "table" }, except = { "table" }, guard = { "table" }, prune = { "table" },
  budget = { "table" }, tune = { "table" }, better = { "table" }, title = { "string" },
  success = { "table" },
  label = { "table" },
}
local report_fields = { rows = true, columns = true }
local reserved = { seed = true, seeds = true, scale = true, draws = true, compare = true }

local Experiment = {}
Experiment.__index = Experiment

-- Returns "FILE:LINE" of the line that declares the key, found by searching the text of the script;
-- if there is none, of the line where the declaration starts.
function Experiment:where(key)
  local name = key:match "[^.]+$" or key
  local number, pattern = 0, "%f[%w_]" .. name:gsub("%p", "%%%0") .. "%f[^%w_][\"'%]]*%s*=[^=]"
  for line in (self.text .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    if number >= self.line and (line:gsub("%-%-.*", "") .. " "):find(pattern) then
      return ("%s:%d"):format(self.file, number)
    end
  end
  return ("%s:%d"):format(self.file, self.line)
end

-- Prefixes an error message with the line of the script that led to it, unless it names the script.
local function located(self, message)
  local place = not message:find(self.file, 1, true)
    and errors.innermost(function(path) return path == self.file end)
  return place and place .. ": " .. message or message
end

-- Returns whether an error object has a more specific exit code than FAILED or USAGE.
local function is_specific(e)
  return errors.is(e) and (e.status or e.code ~= errors.FAILED and e.code ~= errors.USAGE)
end

-- Returns a handler for xpcall of functions of the script: it adds the line of the script to
-- errors, and keeps the status of errors of the engine.
function Experiment:handler()
  return function(e)
    if is_specific(e) then return e end
    local message = located(self, errors.text(e))
    if os.getenv("TOEPLAB_TRACEBACK") then message = debug.traceback(message, 2) end
    local status = type(e) == "table" and rawget(e, "status")
    return type(status) == "string" and core.error(status, message) or message
  end
end

local function complain(self, key, format, ...)
  errors.usage("%s: %s", self:where(key), format:format(...))
end

-- Raises if a key is not a string: the store would lose such a key.
local function check_names(self, what, values)
  for key, value in pairs(values) do
    if type(key) ~= "string" then
      local place = key == 1 and "a value" or ("[%s]"):format(tostring(key))
      complain(self, what, "%s has %s, %s, without a name: write name = value", what, place,
        type(value) == "table" and "a table" or tostring(value))
    end
  end
end

local function check_fields(self, spec)
  check_names(self, self.name, spec)
  for _, key in ipairs(sorted_keys(spec)) do
    local kinds = fields[key]
    if not kinds then
      complain(self, key, "an experiment has no field '%s'%s", key,
        suggest.hint(key, sorted_keys(fields)))
    end
    local fits = false
    for _, kind in ipairs(kinds) do fits = fits or type(spec[key]) == kind end
    if not fits then
      complain(self, key, "%s must be a %s, not a %s", key, table.concat(kinds, " or a "),
        type(spec[key]))
    end
  end
  if not spec.trial then
    complain(self, self.name, "experiment '%s' has no trial = function(t, c) ... end", self.name)
  end
end

-- Returns config.flat of values that the script declares; raises errors with the script's line.
function Experiment:flat(values)
  return config.flat(values, function(key, why)
    complain(self, tostring(key), "%s %s", key, why)
  end)
end

-- Raises unless the value is a number, a string, a boolean, or a list of these. around: the set of
-- the enclosing lists; nil: none.
function Experiment:check_value(key, value, around)
  for name in (tostring(key) .. "."):gmatch "([^.]*)%." do
    if type(key) ~= "string" or not name:find "^[%a_][%w_]*$" then
      complain(self, tostring(key), "'%s' cannot be a key: use letters, digits and _",
        tostring(key))
    end
  end
  if reserved[key] then
    complain(self, key, "the key '%s' is set by the runner; choose another name", key)
  end
  local kind = type(value)
  if kind == "table" and is_list(value) then
    around = around or {}
    if around[value] then complain(self, key, "%s contains itself", key) end
    around[value] = true
    for _, item in ipairs(value) do self:check_value(key, item, around) end
    around[value] = nil
  elseif kind == "number" and (value ~= value or math.abs(value) == math.huge) then
    complain(self, key, "%s must be a finite number, not %s", key,
      value ~= value and "nan" or tostring(value))
  elseif kind == "string" and value:find "\0" then
    complain(self, key, "%s must be a string without NUL bytes, where SQLite would cut it", key)
  elseif kind ~= "number" and kind ~= "string" and kind ~= "boolean" then
    complain(self, key, "%s must be a number, a string, true, false or a list of these, not a %s",
      key, kind == "table" and "table with names" or kind)
  end
end

local function check_grid(self)
  for _, key in ipairs(sorted_keys(self.grid)) do
    local axis = self.grid[key]
    if not is_list(axis) or #axis == 0 then
      complain(self, key, "grid: %s must be a list of at least one value", key)
    end
    if self.fixed[key] ~= nil then
      complain(self, key, "%s is declared twice, in fixed and in grid: remove one (tl.lm.fixed { "
        .. "%s = false } leaves it out)", key, key)
    end
    self:check_value(key, axis)
  end
end

-- Returns a list of seeds, or the rule of a string (sequential.lua).
local function check_seeds(self, seeds)
  if type(seeds) == "string" then
    local rule, form = sequential.rule(seeds)
    if not rule then complain(self, "seeds", "seeds = '%s' is not valid: %s", seeds, form) end
    return rule
  end
  if math.type(seeds) == "integer" and seeds >= 1 and seeds <= experiment.MOST_SEEDS then
    local list = {}
    for i = 1, seeds do list[i] = i end
    return list
  end
  local good = is_list(seeds) and #seeds > 0
  for _, seed in ipairs(good and seeds or {}) do
    good = good and math.type(seed) == "integer" and seed >= 0
  end
  if not good then
    complain(self, "seeds", "seeds must be a count from 1 to %d, a list of integers of at least 0, "
      .. "or a rule like \"until 2 %%\"", experiment.MOST_SEEDS)
  end
  return seeds
end

-- Returns whether the scales declare the key: there are at least two, and each sets it.
local function in_all_scales(self, names, key)
  for _, name in ipairs(names) do
    if self.scale[name][key] == nil then return false end
  end
  return #names > 1
end

local function near(self, key)
  local set = {}
  for name in pairs(self.fixed) do set[name] = true end
  for name in pairs(self:axes()) do set[name] = true end
  for name in pairs(rows.keys(self.rows)) do set[name] = true end
  return suggest.hint(key, sorted_keys(set))
end

local function check_scale(self, names, name)
  for _, key in ipairs(sorted_keys(self.scale[name])) do
    local value = self.scale[name][key]
    self:check_value(key, value)
    if not self:varies(key) and self.fixed[key] == nil and not rows.values(self, key)[1]
      and not in_all_scales(self, names, key) then
      complain(self, key, "scale %s sets '%s', which neither fixed nor grid nor rows nor every "
        .. "scale declares%s", name, key, near(self, key))
    end
    if self:varies(key) and not is_list(value) then
      complain(self, key, "scale %s: %s is an axis and needs a list of values", name, key)
    end
  end
end

local function check_scales(self)
  check_names(self, "scale", self.scale)
  local names = sorted_keys(self.scale)
  for _, name in ipairs(names) do
    if type(self.scale[name]) ~= "table" then
      complain(self, name, "scale: %s must be a table of values", name)
    end
    if not name:find("^%w[%w_.%-]*$") then -- it becomes part of file names
      complain(self, "scale", "scale: '%s' cannot be a name: use letters, digits, _, - and .", name)
    end
    check_names(self, name, self.scale[name])
  end
  local declared_scales = self.scale
  self.scale, self.scale_seeds = {}, {}
  for _, name in ipairs(names) do self.scale[name] = self:flat(declared_scales[name]) end
  for _, name in ipairs(names) do
    local seeds = self.scale[name].seeds
    self.scale_seeds[name], self.scale[name].seeds = seeds and check_seeds(self, seeds), nil
  end
  for _, name in ipairs(names) do check_scale(self, names, name) end
end

-- Checks that a report given as a table names declared keys (or seed) as rows, and strings as
-- columns; the names of metrics are known only after a run.
local function check_report(self)
  local wanted = self.report
  if type(wanted) ~= "table" then return end
  check_names(self, "report", wanted)
  for _, field in ipairs(sorted_keys(wanted)) do
    if not report_fields[field] then
      complain(self, field, "report has no field '%s'%s", field,
        suggest.hint(field, sorted_keys(report_fields)))
    end
  end
  local keys = self:keys()
  keys[#keys + 1] = "seed"
  local rows = type(wanted.rows) == "string" and { wanted.rows } or wanted.rows
  if rows and (not is_list(rows) or #rows == 0) then
    complain(self, "rows", "report: rows must be a key or a list of keys (default: all axes)")
  end
  for _, key in ipairs(rows or {}) do
    local ok, why = suggest.choose("key", key, keys)
    if not ok then complain(self, "rows", "report: rows: %s", why) end
  end
  local columns = wanted.columns
  local good = is_list(columns) and #columns > 0
  for _, name in ipairs(good and columns or {}) do good = good and type(name) == "string" end
  if not good then
    complain(self, columns and "columns" or "report", "report: columns must be a list of metrics")
  end
end

-- Returns the keys that vary: key -> the list of its values, or its distribution.
function Experiment:axes()
  local set = {}
  for key, list in pairs(self.grid) do set[key] = list end
  for _, axes in ipairs(self.zips) do
    for key, list in pairs(axes) do set[key] = list end
  end
  for key, distribution in pairs(self.random) do set[key] = distribution end
  return set
end

function Experiment:varies(key) return self:axes()[key] ~= nil end

-- Returns whether the script, or code that it loads, sets a field of a metric's name, and so may
-- log it, as in t:log { name = value }: a value of nil, such as the rate of a few steps, is not
-- logged. A string or a table belongs to a declaration, such as better = { name = "lower" }.
function Experiment:sets(name)
  local field = "%f[%w_]" .. name:gsub("%p", "%%%0") .. "%s*=%s*[^=%s\"'{]"
  if self.text:find(field) then return true end
  for _, text in pairs(self.own.texts) do
    if text:find(field) then return true end
  end
  return false
end

-- Returns all declared keys, sorted.
function Experiment:keys()
  local set = self:axes()
  for key in pairs(rows.keys(self.rows)) do set[key] = true end
  for key in pairs(self.fixed) do set[key] = true end
  for _, values in pairs(self.scale) do
    for key in pairs(values) do set[key] = true end
  end
  return sorted_keys(set)
end

function Experiment:declares(key)
  if self.fixed[key] ~= nil or self:varies(key) or rows.values(self, key)[1] ~= nil then
    return true
  end
  for _, values in pairs(self.scale) do
    if values[key] ~= nil then return true end
  end
  return false
end

-- Adds the keys that every experiment has. The worker reads them, not the script.
local function add_keys(self)
  self.always = { precision = "float32", device = devices.usual(), ranks = 1, sequence_ranks = 1,
    micro_batches = 1 }
  for key, value in pairs(self.always) do
    if self.fixed[key] == nil and not self:varies(key) then self.fixed[key] = value end
  end
end

local function source(level)
  local info = debug.getinfo(level + 1, "Sl")
  local path = info.source:match("^@(.*)")
  local file = path and io.open(path, "rb")
  local text = file and file:read("a") or info.source
  if file then file:close() end
  return path or info.short_src, text, info.currentline
end

-- Implements tl.experiment "name" { ... }. level: the level of the script on the call stack, seen
-- from this function.
function experiment.define(name, level)
  local file, text, line = source(level or 2)
  if type(name) ~= "string" or not name:find("^[%w][%w_%-]*$") then
    errors.usage("%s:%d: an experiment needs a name of letters, digits, _ and -, got %s", file,
      line, type(name) == "string" and "'" .. name .. "'" or tostring(name))
  end
  return function(spec)
    local self = setmetatable({ name = name, file = file, text = text, line = line }, Experiment)
    if type(spec) ~= "table" then
      errors.usage("%s:%d: experiment '%s' needs a table", file, line, name)
    end
    check_fields(self, spec)
    for key, value in pairs(spec) do self[key] = value end
    self.fixed, self.grid = self:flat(self.fixed or {}), self:flat(self.grid or {})
    self.scale, self.checkpoint = self.scale or {}, self.checkpoint or {}
    check_names(self, "fixed", spec.fixed or {})
    for _, key in ipairs(sorted_keys(self.fixed)) do self:check_value(key, self.fixed[key]) end
    check_names(self, "grid", spec.grid or {})
    check_grid(self)
    declared.axes(self)
    rows.check(self)
    add_keys(self)
    check_scales(self)
    declared.rules(self)
    presentation(self)
    check_report(self)
    if self.data and not is_list(self.data) then
      complain(self, "data", "data must be a list of keys")
    end
    self.seeds = check_seeds(self, self.seeds or 1)
    return self
  end
end

function experiment.is(v) return getmetatable(v) == Experiment end

-- Returns the text of the script at path; raises if it cannot be read.
local function script_at(path)
  local kind = core.sys.kind(path)
  if kind == "folder" or kind == "other" or path:find "^/dev/" or path:find "^/proc/" then
    errors.usage("%s: must be a regular file, because every worker reads it again", path)
  end
  local file, why = io.open(path, "rb")
  if not file then errors.usage("%s", why) end
  local text = file:read("a")
  file:close()
  return text or errors.usage("%s: the file cannot be read", path)
end

-- Runs the script at path and returns its experiment. The script may read every global but must not
-- set any. names: name -> value that replaces a global for the script, or nil. text: the source to
-- run; nil: the content of the file.
function experiment.load(path, names, text)
  text = text or script_at(path)
  own_code.beside(path)
  local globals, exit = config.copy(names or {}), os.exit
  local function refuse()
    error("os.exit would end the program: a script returns an experiment", 2)
  end
  globals.os = setmetatable({ exit = refuse }, { __index = os, __newindex = os })
  local strict = setmetatable(globals, {
    __index = function(_, key)
      local value = _G[key]
      if value == nil then
        error(("'%s' is not declared%s"):format(key, suggest.hint(key, sorted_keys(_G))), 2)
      end
      return value
    end,
    __newindex = function(_, key)
      error(("global '%s' is not allowed; write: local %s"):format(key, key), 2)
    end,
  })
  local chunk, problem = load(code.source(text), "@" .. path, "t", strict)
  if not chunk then
    errors.usage("%s", problem:find(path, 1, true) and problem or path .. ": " .. problem)
  end
  rawset(os, "exit", refuse) -- also what the script loads sees it
  local own, ok, value = own_code.watch(xpcall, chunk, function(e)
    if errors.is(e) then return e end
    local message = errors.text(e)
    return { message = message, trace = debug.traceback(message, 2) }
  end)
  rawset(os, "exit", exit)
  if not ok and errors.is(value) then error(value, 0) end
  if not ok then
    errors.usage("%s", os.getenv("TOEPLAB_TRACEBACK") and value.trace or value.message)
  end
  if not experiment.is(value) then
    errors.usage('%s: an experiment file ends with: return tl.experiment "name" { ... }', path)
  end
  value.text, value.own, value.script = text, own, path
  value.reach = reachable_code.of(value, path, strict)
  return value
end

-- Returns the function build(c, vocab) of the experiment in the script at path, with which
-- trials/open_model.lua makes models; nil without a path.
function experiment.builder(path)
  if not path then return nil end
  local exp = experiment.load(path)
  if not exp.model then
    errors.usage("%s: experiment '%s' has no model = function(c, vocab) ... end", path, exp.name)
  end
  return function(c, vocab) return exp.model(config.new(c), vocab) end
end

return setmetatable(experiment, {
  __call = function(_, name)
    local maker = experiment.define(name, 3)
    return maker
  end,
})
