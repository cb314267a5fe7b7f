-- trials/identity.lua: computes the id of a trial: a hash of its experiment's name, of its
-- configuration with the seed, of the code that its trial function can reach (reachable_code.lua),
-- of its data, and of the engine's TL_NUMERICS. Nothing else that a script declares is part of it.
--
-- The id excludes the code of the engine and of the library, so that an edited comment there makes
-- no trial new; a change of what that code computes must raise TL_NUMERICS. Each trial stores the
-- hash of that code separately (provenance.code_hash).
local code = require "toeplab.trials.code"
local core = require "toeplab.core"
local corpus = require "toeplab.tasks.corpus"
local json = require "toeplab.base.json"
local provenance = require "toeplab.trials.provenance"
local other_ids = require "toeplab.trials.other_ids"
local errors = require "toeplab.base.errors"
local source = require "toeplab.tasks.source"
local suggest = require "toeplab.base.suggest"

local identity = {}

-- Keys that name the other parts of the data of `corpus` (tl.corpus) or `file` (tl.tasks.csv,
-- tl.tasks.images).
local PARTS = { "train_file", "valid_file", "test_file" }

-- Returns hash(name), or what the cache known has of it, by function and name.
local function cached(known, hash, name)
  known[hash] = known[hash] or {}
  known[hash][name] = known[hash][name] or hash(name)
  return known[hash][name]
end

-- Returns the sha256 of each corpus that a key of the configuration names: { corpus = "9f..." }, of
-- the files and folders that PARTS name, and of the file of byte pairs that the key merges names,
-- because the tokens depend on it. known: a cache of these hashes.
local function data_of(exp, values, known)
  local hashes = {}
  local function add(key, name)
    if name:find "[/.]" and not name:find "^text:" and not core.sys.exists(name) then
      errors.usage("%s: key %s: %s: no such file%s", exp:where(key), key, name, name:find "^/"
        and "" or " (a path is read from the folder in which the command is given)")
    end
    hashes[key] = cached(known, corpus.hash, name)
  end
  local names = exp.data or (values.corpus and { "corpus" }) or {}
  for _, key in ipairs(names) do
    if type(values[key]) ~= "string" then
      errors.usage("%s: data names the key '%s', which is not a string", exp:where("data"), key)
    end
    add(key, values[key])
  end
  for _, key in ipairs(PARTS) do
    local name = values[key]
    if type(name) == "string" and not hashes[key] and not name:find "^text:"
        and (name:find "[/.]" or core.sys.exists(name)) then
      source.naming("key " .. key .. ":", add, key, name)
    end
  end
  local merges = values.merges
  if type(merges) == "string" and not hashes.merges and core.sys.kind(merges) == "file" then
    hashes.merges = cached(known, core.sha256_file, merges)
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

-- Sets in each trial of exp its id, its folder relative to the results folder, the JSON of its
-- configuration, and the hashes of its code and data. store: takes over the ids under which the
-- store has the trials (other_ids.lua); nil: none.
function identity.identify(exp, trials, store)
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
    t.key = core.sha256(json.encode { experiment = exp.base or exp.name, config = t.json,
      code = exp.reach.total, data = t.data, numerics = core.numerics })
    t.id, t.path = t.key, other_ids.path(t.key)
  end
  if store then other_ids.find(store, exp, trials) end
end

-- Like identity.identify, but if data of the trials is not on this machine, sets no ids and returns
-- a message.
function identity.identify_if_here(exp, trials, store)
  local ok, why = pcall(identity.identify, exp, trials, store)
  if ok then return nil end
  if not (errors.is(why) and why.absent) then error(why, 0) end
  for _, t in ipairs(trials) do t.id, t.key = nil, nil end
  return why.message:match "^[^\n]- is not here"
end

return identity
