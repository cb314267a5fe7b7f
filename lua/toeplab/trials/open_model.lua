-- trials/open_model.lua: opens a stored model wherever it is, for any script: tl.model.
--
--   tl.model "3f9c1a"               the model of a trial; also "@last", "experiment", key=value
--   tl.model "w.safetensors"        what toeplab export --weights wrote
--   tl.model "runs/.../step-9.h5"   a checkpoint, beside the files that describe its model
--   tl.model "m.h5"                 what toeplab generate --convert wrote
local core = require "toeplab.core"
local converted = require "toeplab.store.converted"
local errors = require "toeplab.base.errors"
local exported = require "toeplab.store.exported"
local options = require "toeplab.base.options"
local raw_file = require "toeplab.store.formats.raw_file"
local records = require "toeplab.store.records"
local saved_model = require "toeplab.store.saved_model"
local selection = require "toeplab.store.selection"

local open_model = {}

local spec = options.declare "tl.model" {
  { "dir", options.field { type = "string", optional = true },
    "the results folder (default: TOEPLAB_DIR, else as the commands)" },
  { "last", false, "the newest checkpoint, not the best" },
  { "build", options.field { type = "function", optional = true },
    "build(c, vocab) makes a model that comes from a script, with the configuration c" },
}

-- Whether the word names a file: it ends like one.
function open_model.is_file(word)
  return type(word) == "string" and (word:find "%.h5$" or word:find "%.safetensors$") ~= nil
end

-- Raises if the command who was given a script, which has nothing to make: the model that about
-- describes is stored whole.
function open_model.check_script(who, script, about)
  if script and not about.programmed then
    errors.usage("%s: --script is for a model that its script makes; this one is stored whole", who)
  end
end

-- Opens the file at path. Returns the model, its vocabulary or nil, and its description; that of a
-- converted model has a session (recurrent.lua).
function open_model.file(path, build)
  if path:find "%.safetensors$" then return exported.open(path, build) end
  raw_file.check(path)
  local readable, why = pcall(function() core.h5_open(path):close() end)
  if not readable then errors.raise(errors.STORAGE, "%s", errors.text(why)) end
  if not converted.is(path) then return saved_model.load_file(path, build) end
  local session, vocab, about = converted.open(path)
  about.session = session
  return session.model, vocab, about
end

-- Opens the model of the one trial that the words select in a store.
function open_model.trial(store, words, o)
  return saved_model.load(store, selection.one(store, words), {
    kind = o.last and "checkpoint" or nil, build = o.build,
    warn = o.warn or function(...) errors.say("warning: %s", string.format(...)) end,
  })
end

-- tl.model(word [, options]): returns the model in evaluation mode, its vocabulary or nil, and its
-- description {step=, length=, config=, ...}.
function open_model.open(word, given)
  local o = options.check("model", spec, given)
  if type(word) ~= "string" then
    error(("model: takes the id of a trial or the path of a file, not a %s"):format(type(word)), 3)
  end
  local model, vocab, about
  if open_model.is_file(word) then
    model, vocab, about = open_model.file(word, o.build)
  else
    local store <close> = records.open(records.folder(o.dir), "r")
    model, vocab, about = open_model.trial(store, word, { last = o.last, build = o.build })
  end
  return model:eval(), vocab, about
end

return open_model
