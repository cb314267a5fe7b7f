-- commands/unlisted/words.lua: the kinds of words that verbs take, for completion. Each is a
-- function of offer(word, description), the word so far, and the context: the options and the words
-- before. A source that cannot be read, such as a damaged store, offers nothing, because an error
-- would disturb the prompt.
local core = require "toeplab.core"
local data = require "toeplab.commands.data"
local datasets = require "toeplab.tasks.datasets"
local experiment = require "toeplab.trials.experiment"
local models = require "toeplab.models"
local optim = require "toeplab.train.optim"
local options = require "toeplab.base.options"
local config = require "toeplab.base.config"
local published_tables = require "toeplab.trials.published_tables"
local quantity = require "toeplab.base.quantity"
local records = require "toeplab.store.records"
local selection = require "toeplab.store.selection"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local words = {}

local RECENT = 300 -- the most recently started trials, which are searched

-- ---- Files --------------------------------------------------------------------------------------

-- Offers the folders, and the files whose names fit.
local function files(offer, current, fits)
  local folder, start = current:match "^(.*/)([^/]*)$"
  folder, start = folder or "", start or current
  local place = folder:gsub("^~/", (os.getenv "HOME" or "~") .. "/")
  local names = core.sys.list(place == "" and "." or place) or {}
  table.sort(names)
  for _, name in ipairs(names) do
    local hidden = name:sub(1, 1) == "." and start:sub(1, 1) ~= "."
    local is_folder = not hidden and core.sys.kind(place .. name) == "folder"
    if is_folder then
      offer(folder .. name .. "/")
    elseif not hidden and fits(name) then
      offer(folder .. name)
    end
  end
end

function words.file(offer, current) files(offer, current, function() return true end) end
function words.folder(offer, current) files(offer, current, function() return false end) end

function words.experiment(offer, current)
  files(offer, current, function(name) return name:find "%.lua$" end)
end

function words.references(offer, current)
  files(offer, current, function(name) return name:find "%.h5$" or name:find "%.json$" end)
  words.backends(offer)
end

-- ---- Experiments --------------------------------------------------------------------------------

-- The choices that the library declares for a key of an experiment, such as a model's encoder.
local function declared_choices(key)
  for _, name in ipairs(models.names()) do
    local field = models.options(name).fields[key]
    if field and field.choices then return field.choices end
  end
  for _, spec in pairs(optim.specs) do
    local field = options.set(spec).fields[key]
    if field and field.choices then return field.choices end
  end
end

-- Returns the known values of a key: its axis or its value, and all that its declaration allows.
local function values_of(exp, key)
  if key == "scale" then return sorted_keys(exp.scale) end
  if key == "device" then return { "cpu", "cuda" } end
  if key == "precision" then return core.precisions "cuda" end
  if not exp:declares(key) then return {} end
  local list, fixed = {}, exp.fixed[key]
  local axis = exp:axes()[key]
  if fixed ~= nil then list[1] = config.show(fixed) end
  for i, value in ipairs(axis and not exp.random[key] and axis or {}) do
    list[i] = config.show(value)
  end
  local all = declared_choices(key) or {}
  if list[1] == "true" or list[1] == "false" then all = { "true", "false" } end
  if key == "corpus" then all = datasets.names() end
  for _, value in ipairs(all) do list[#list + 1] = tostring(value) end
  return list
end

local function offer_values(offer, key, text, list)
  local before, seen = key .. (text:match "^.*," or ""), {}
  for _, value in ipairs(list) do
    if not seen[value] then offer(before .. value) end
    seen[value] = true
  end
end

-- Offers the keys of the experiment whose file is the first word, and after "key=" its values. Runs
-- the file for that, as the verb does.
function words.keys(offer, current, context)
  local ok, exp = pcall(experiment.load, context.words[1] or "")
  if not ok then return end
  local key, text = current:match "^([^=]+)=(.*)$"
  if key then return offer_values(offer, key .. "=", text, values_of(exp, key)) end
  local keys = exp:keys()
  if next(exp.scale) then keys[#keys + 1] = "scale" end
  for _, name in ipairs { "seed", "seeds" } do keys[#keys + 1] = name end
  for _, name in ipairs(keys) do
    local axis, list = exp:varies(name), values_of(exp, name)
    offer(name .. "=", (axis and "axis: " or "") .. table.concat(list, ", ", 1,
      axis and #list or math.min(1, #list)))
  end
end

-- ---- The store ----------------------------------------------------------------------------------

-- Calls fn(store) with the store of the results folder, if there is one that can be read.
local function with_store(context, fn)
  pcall(function()
    local store <close> = records.open(records.folder(context.set.dir), "r")
    fn(store)
  end)
end

local function each(store, sql, values, fn)
  for _, row in ipairs(store:rows(sql, values)) do fn(row) end
end

local recent = ("(SELECT * FROM v_trials ORDER BY started DESC LIMIT %d)"):format(RECENT)

local function experiments(store, offer, before)
  each(store, "SELECT experiment, count(*) AS count FROM v_trials GROUP BY 1 ORDER BY 1", {},
    function(row) offer((before or "") .. row.experiment, quantity.count(row.count, "trial")) end)
end

local function tags(store, offer, before)
  local seen = {}
  each(store, "SELECT DISTINCT tags FROM v_trials WHERE tags IS NOT NULL", {}, function(row)
    for tag in row.tags:gmatch "[^,%s]+" do
      if not seen[tag] then offer((before or "") .. tag) end
      seen[tag] = true
    end
  end)
end

-- Offers values after a filter like "key=" or "tag!=".
local function filter_values(store, offer, name, operator, text)
  local before = name .. operator .. (text:match "^.*," or "")
  if name == "status" then
    for _, status in ipairs(selection.statuses) do offer(before .. status) end
  elseif name == "tag" then
    tags(store, offer, before)
  elseif name == "experiment" then
    experiments(store, offer, before)
  elseif name == "host" or name == "seed" then
    each(store, ("SELECT DISTINCT %s AS value FROM %s WHERE value IS NOT NULL"):format(name,
      recent), {}, function(row) offer(before .. row.value) end)
  end
  each(store, ([[SELECT DISTINCT CASE j.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false'
      ELSE CAST(j.value AS TEXT) END AS value FROM %s t, json_each(t.config) j WHERE j.key = ?
      AND j.type NOT IN ('null', 'object', 'array') ORDER BY j.value]]):format(recent), { name },
    function(row) offer(before .. row.value) end)
end

local function offer_filters(store, offer, current, names)
  local name, operator, text = current:match "^([%w_.@]+)([!<>=~]=?)(.*)$"
  if name and not current:find "^@" then
    return filter_values(store, offer, name, operator, text)
  end
  local keys = selection.names(store)
  for _, key in ipairs(keys) do offer(key .. "=", "key") end
  for _, column in ipairs(names) do offer(column .. "=", "column") end
end

local function offer_at_words(store, offer, current)
  for _, word in ipairs { "last", "all" } do offer("@" .. word) end
  for _, status in ipairs(selection.statuses) do offer("@" .. status, "all that are " .. status) end
  if not current:find "^@b" then return offer "@best:" end
  local before = current:match "^@best:m[axin]+:" or "@best:"
  local _, metrics = selection.names(store)
  for _, metric in ipairs(metrics) do offer(before .. metric, "the best by its last value") end
end

function words.trials(offer, current, context)
  with_store(context, function(store)
    if current == "" or current:find "^@" then offer_at_words(store, offer, current) end
    if current:find "^@" then return end
    each(store, ([[SELECT substr(id, 1, 12) AS id, experiment, status, json_extract(provenance,
        '$.label') AS label FROM %s]]):format(recent), {}, function(row)
      offer(row.id, ("%s, %s, %s"):format(row.experiment, row.status, row.label or ""))
    end)
    experiments(store, offer)
    offer_filters(store, offer, current, { "experiment", "status", "tag" })
  end)
end

function words.trials_or_file(offer, current, context)
  words.trials(offer, current, context)
  if current ~= "" then
    files(offer, current, function(name) return name:find "%.h5$" or name:find "%.safetensors$" end)
  end
end

function words.filters(offer, current, context)
  with_store(context, function(store)
    offer_filters(store, offer, current, { "experiment", "scale" }) -- no view has the scales
  end)
end

function words.stored(offer, _, context)
  with_store(context, function(store) experiments(store, offer) end)
end

function words.tables(offer, current, context)
  for _, id in ipairs(published_tables.ids()) do offer(id, published_tables.read(id).title) end
  words.stored(offer, current, context)
end

function words.tables_or_filters(offer, current, context)
  words.tables(offer, current, context)
  words.filters(offer, current, context)
end

function words.metrics(offer, _, context)
  with_store(context, function(store)
    for _, name in ipairs(select(2, selection.names(store))) do offer(name) end
  end)
end

-- The beginnings up to @ of metrics like ppl@512.
function words.prefixes(offer, current, context)
  local seen = {}
  words.metrics(function(name)
    local prefix = name:match "^(.*@)%d+$"
    if prefix and not seen[prefix] then offer(prefix) end
    seen[prefix or name] = true
  end, current, context)
end

function words.keys_stored(offer, _, context)
  with_store(context, function(store)
    for _, key in ipairs((selection.names(store))) do offer(key) end
  end)
end

-- Names to sort by, after - for the greatest first.
function words.columns(offer, current, context)
  local sign = current:match "^%-" or ""
  words.keys_stored(function(name) offer(sign .. name, "key") end, current, context)
  words.metrics(function(name) offer(sign .. name, "metric") end, current, context)
  for _, name in ipairs(selection.columns) do offer(sign .. name, "column") end
end

function words.tags(offer, _, context)
  with_store(context, function(store) tags(store, offer) end)
end

-- ---- The library --------------------------------------------------------------------------------

function words.backends(offer)
  for _, backend in ipairs(core.backends()) do offer(backend.name, backend.summary) end
end

function words.devices(offer)
  offer("cpu")
  offer("cuda")
end

function words.axes(offer)
  for _, axes in ipairs { "x", "y", "xy", "z" } do offer(axes) end
end

function words.bench(offer)
  local grids = require "toeplab.bench.grids"
  for _, name in ipairs(grids.names()) do offer(name, grids.get(name).about) end
  offer("all", "all of them")
  offer("gpu", "tests and measures a GPU")
end

function words.model(offer)
  for _, name in ipairs(models.names()) do offer(name, "model") end
  for _, preset in ipairs(models.presets) do offer(preset.name, preset.source) end
end

-- Offers the keys that a declaration has and, after "key=", the values that it names.
local function declared(offer, current, spec)
  local key = current:match "^([^=]+)="
  for _, o in ipairs(options.describe(spec)) do
    local field = options.set(spec).fields[o.name]
    local values = field.choices or field.type == "boolean" and { "true", "false" } or {}
    if not key then offer(o.name .. "=", o.help) end
    for _, value in ipairs(key == o.name and values or {}) do offer(key .. "=" .. value) end
  end
end

function words.model_keys(offer, current, context)
  local name = context.words[1]
  local known = suggest.choose("model", name, models.names()) or models.preset_model(name)
  if not known then return end
  declared(offer, current, models.options(known))
  if current:find "^preset=" then
    for _, preset in ipairs(models.presets) do
      if preset.model == known then offer("preset=" .. preset.name, preset.source) end
    end
  else
    for _, key in ipairs { "batch", "length", "preset" } do offer(key .. "=") end
  end
end

local function data_sets(offer)
  for _, set in ipairs(datasets.list) do offer(set.name, set.what) end
end

words.data = data_sets

-- The words after the first of toeplab data.
function words.data_of(offer, current, context)
  local verb, count = context.words[1], #context.words
  if verb ~= "generate" then
    data_sets(offer)
    if verb == "bpe" and current ~= "" then words.file(offer, current) end
  elseif count == 1 then
    for _, set in ipairs(datasets.list) do
      if set.generated then offer(set.name, set.what) end
    end
  elseif count == 2 then
    words.folder(offer, current)
  else
    local spec = data.drawing(context.words[2])
    if spec then declared(offer, current, spec) end
  end
end

return words
