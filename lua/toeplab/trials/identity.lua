-- trials/identity.lua: the id of a trial: a hash of all that its numbers depend on.
local core = require "toeplab.core"
local corpus = require "toeplab.tasks.corpus"
local devices = require "toeplab.trials.devices"
local json = require "toeplab.base.json"
local provenance = require "toeplab.trials.provenance"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

-- The keys whose values name a corpus, and the sha256 of each: { corpus = "9f..." }. known: what
-- the hashes of names were, asked before.
local function data_of(exp, values, known)
  local hashes = {}
  local names = exp.data or (values.corpus and { "corpus" }) or {}
  for _, key in ipairs(names) do
    if type(values[key]) ~= "string" then
      errors.usage("%s: data names the key '%s', which is no text", exp:where("data"), key)
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

-- Gives each of the trials of exp its id, its folder below the results folder, the text of its
-- configuration and the hashes of code and data.
return function(exp, trials)
  local codes, script = {}, core.sha256(exp.text)
  local modules, backends, known = provenance.modules_hash(), {}, {}
  for i, backend in ipairs(core.backends()) do backends[i] = backend.name end
  backends[#backends + 1] = "auto"
  for _, t in ipairs(trials) do
    check_backend(exp, t.config, backends)
    local data = data_of(exp, t.config, known)
    local device = devices.file(t.config.device)
    local code = codes[device or ""] or provenance.code_hash(device)
    codes[device or ""] = code
    t.code_hash, t.data_hash = code, next(data) and core.sha256(json.encode(data)) or ""
    t.data = data
    t.json = t.json or json.encode(t.config)
    t.id = core.sha256(json.encode { config = t.config, script = script, modules = modules,
      code = code, data = data, seed = t.seed })
    t.path = "runs/" .. t.id:sub(1, 12)
  end
end
