-- tasks/recorded.lua: the hashes of the data that the id of the running trial covers: data that has
-- changed since then is an error, not a result under the hash of another text.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"

local recorded = {}

local hashes = {} -- by the name of a corpus or file; of the newest trial
local parts = {} -- the texts of add_part, a list and a set

-- Begins a trial with the configuration values; of: the sha256 by the key that names the data.
function recorded.begin(values, of)
  hashes, parts = {}, {}
  for key, hash in pairs(of) do hashes[values[key]] = hash end
end

-- Adds a sentence about data of which the running trial uses only a part.
function recorded.add_part(text)
  if not parts[text] then parts[#parts + 1] = text end
  parts[text] = true
end

-- Lists the sentences of add_part.
function recorded.parts() return parts end

-- Raises if the running trial has another hash for the corpus or file `name`, which messages call
-- `shown`.
function recorded.check(name, hash, shown)
  if hashes[name] and hashes[name] ~= hash then
    errors.raise(errors.FAILED, "%s has changed since the run began", shown)
  end
end

-- Raises as recorded.check for the file at path, whose hash is hash_of(path), by default of its
-- bytes. Without a recorded hash the file is not read.
function recorded.check_file(path, shown, hash_of)
  if hashes[path] then recorded.check(path, (hash_of or core.sha256_file)(path), shown) end
end

return recorded
