-- trials/identity.lua: computes the id of a trial: a hash of its configuration with the seed, of
-- the code of its script and of the files of code that this loads, of its data, and of the engine's
-- TL_NUMERICS.
--
-- The id excludes the code of the engine and of the library, so that a mended comment there makes
-- no trial new; whoever changes what that code computes raises TL_NUMERICS. Each trial stores the
-- hash of that code separately (provenance.code_hash).
local code = require "toeplab.trials.code"
local core = require "toeplab.core"
local corpus = require "toeplab.tasks.corpus"
local json = require "toeplab.base.json"
local provenance = require "toeplab.trials.provenance"
local secrets = require "toeplab.base.secrets"
local sweeps = require "toeplab.store.sweeps"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local identity = {}

-- The value of TL_NUMERICS when it first entered the id; older trials count as made with it.
local FIRST = 1

-- Returns the sha256 of each corpus that a key of the configuration names: { corpus = "9f..." }.
-- known: a cache of these hashes by the name of the corpus.
local function data_of(exp, values, known)
  local hashes = {}
  local names = exp.data or (values.corpus and { "corpus" }) or {}
  for _, key in ipairs(names) do
    if type(values[key]) ~= "string" then
      errors.usage("%s: data names the key '%s', which is not a text", exp:where("data"), key)
    end
    local name = values[key]
    known[name] = known[name] or corpus.hash(name)
    hashes[key] = known[name]
  end
  return hashes
end

local function check_backend(exp, values, names)
  if type(values.backend) ~= "string" then return end
  local ok, why = suggest.choose("backend", values.backend, names)
  if not ok then errors.usage("%s: %s", exp:where("backend"), why) end
end

-- Returns a hash of the code of an experiment's script and of the files of code that it loads.
function identity.script(exp)
  return core.sha256(code.hash(exp.text) .. (exp.own and exp.own.tokens or ""))
end

-- config: the JSON text of the configuration, including the seed; script: a hash of the code of the
-- script and of its modules; data: key -> sha256.
local function id_of(config, script, data, numerics)
  return core.sha256(json.encode { config = config, script = script, data = data,
    numerics = numerics })
end

-- Sets in each trial of exp its id, its folder relative to the results folder, the text of its
-- configuration, and the hashes of its code and data.
function identity.identify(exp, trials)
  local script = identity.script(exp)
  local codes, backends, known = {}, {}, {}
  for i, backend in ipairs(core.backends()) do backends[i] = backend.name end
  backends[#backends + 1] = "auto"
  for _, t in ipairs(trials) do
    check_backend(exp, t.config, backends)
    t.data = data_of(exp, t.config, known)
    local device = t.config.device
    codes[device] = codes[device] or provenance.code_hash(device)
    t.code_hash = codes[device]
    t.data_hash = next(t.data) and core.sha256(json.encode(t.data)) or ""
    t.json = t.json or json.encode(t.config)
    t.id = id_of(t.json, script, t.data, core.numerics)
    t.path = "runs/" .. t.id:sub(1, 12)
  end
end

-- ---- Trials of earlier programs ---------------------------------------------------------------

-- The keys that every experiment has, with the values of trials that are older than these keys.
local usual = { device = "cpu", precision = "float32" }

local function whole_config(store, text)
  local values, complete = store:config(text), true
  for key, value in pairs(usual) do
    if values[key] == nil then values[key], complete = value, false end
  end
  return complete and text or json.encode(values)
end

-- Maps the ids that the experiment's trials from before schema 6 would have today to their stored
-- ids; if several share one, the trial that got furthest counts. If an earlier program ran the
-- trial last, the script's own modules must be unchanged to the byte, since it stored only the hash
-- of their text.
local function earlier_ids(store, exp)
  local found, scripts = {}, {}
  local own = exp.own or { bytes = "", tokens = "" }
  local function same_modules(about)
    if about.module_tokens then return about.module_tokens == own.tokens end
    return (about.modules or "") == own.bytes
  end
  local function script_of(sweep)
    local row = sweeps.get(store, sweep)
    return row and core.sha256(code.hash(row.source) .. own.tokens) or ""
  end
  for _, row in ipairs(store:rows([[SELECT id, sweep, config, provenance FROM v_trials
      WHERE experiment = ? AND numerics IS NULL AND sweep IS NOT NULL
      ORDER BY status = 'done', status = 'pruned', status IN ('timeout', 'budget', 'guard'),
      started]], { exp.name })) do
    local about = store:object(row.provenance)
    if same_modules(about) and not row.config:find(secrets.MASK, 1, true) then
      scripts[row.sweep] = scripts[row.sweep] or script_of(row.sweep)
      found[id_of(whole_config(store, row.config), scripts[row.sweep], about.data or {}, FIRST)] =
        row.id
    end
  end
  return found
end

-- Gives trials that the store knows by an id of an earlier rule that stored id, so that they count
-- as finished or resume.
function identity.find_earlier(store, exp, trials)
  local found = core.numerics == FIRST and earlier_ids(store, exp) or {}
  for _, t in ipairs(trials) do
    local id = found[t.id]
    if id and not store:status(t.id) then t.id, t.path = id, "runs/" .. id:sub(1, 12) end
  end
end

return identity
