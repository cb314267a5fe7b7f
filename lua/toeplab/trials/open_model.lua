-- trials/open_model.lua: opens stored models for any script: tl.model.
--
--   tl.model "3f9c1a"               the model of a trial; also "@last", "experiment", key=value
--   tl.model "w.safetensors"        a file of toeplab export --weights
--   tl.model "runs/.../step-9.h5"   a checkpoint, beside the files that describe its model
--   tl.model "m.h5"                 a file of toeplab generate --convert
local checkpoint = require "toeplab.models.files.checkpoint"
local core = require "toeplab.core"
local converted = require "toeplab.models.files.converted"
local errors = require "toeplab.base.errors"
local exported = require "toeplab.models.files.exported"
local options = require "toeplab.base.options"
local raw_file = require "toeplab.models.files.formats.raw_file"
local records = require "toeplab.store.records"
local saved_model = require "toeplab.models.files.saved_model"
local selection = require "toeplab.store.selection"
local trial_files = require "toeplab.store.trial_files"

local open_model = {}

local spec = options.declare "tl.model" {
  { "dir", options.field { type = "string", optional = true },
    "the results folder (default: TOEPLAB_DIR, else as the commands)" },
  { "last", false, "the newest checkpoint, not the best" },
  { "build", options.field { type = "function", optional = true },
    "build(c, vocab) makes a model that comes from a script, with the configuration c" },
}

-- Returns whether the word has the ending of a file.
function open_model.is_file(word)
  return type(word) == "string" and (word:find "%.h5$" or word:find "%.safetensors$") ~= nil
end

-- Raises if the command `who` was given a script although the model that `about` describes needs
-- none.
function open_model.check_script(who, script, about)
  if script and not about.programmed then
    errors.usage("%s: --script is only for models that a script makes; this model is stored "
      .. "completely", who)
  end
end

-- Opens the file at path. Returns the model, its vocabulary or nil, and its description; for a
-- converted model, the description has a session (recurrent.lua).
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

local function artifacts(store, id)
  local files = {}
  local sql = "SELECT kind, step, path, sha256 FROM v_artifacts WHERE trial = ? ORDER BY step"
  for _, row in ipairs(store:rows(sql, { id })) do
    row.path = trial_files.path(store.folder, id, row)
    files[#files + 1] = row
  end
  return files
end

-- Returns the parameters in the newest readable checkpoint of kind "best", else of "checkpoint",
-- and its row. kind: only this kind. If there are none, returns nil and whether unreadable ones
-- exist.
local function parameters(files, kind, warn)
  local damaged = false
  for _, wanted in ipairs(kind and { kind } or { "best", "checkpoint" }) do
    for i = #files, 1, -1 do
      local file = files[i]
      if file.kind == wanted then
        local ok, state = trial_files.intact(file.path, file.sha256), nil
        if ok then ok, state = pcall(checkpoint.read, file.path, "model") end
        if ok then return state.model, file end
        warn("%s is missing or damaged", file.path)
        damaged = true
      end
    end
  end
  return nil, damaged
end

local function describe(store, id, short, build)
  local paths, files = {}, artifacts(store, id)
  for _, file in ipairs(files) do
    if saved_model.endings[file.kind] then
      if not trial_files.intact(file.path, file.sha256) then
        errors.raise(errors.STORAGE, "%s is missing or damaged", file.path)
      end
      paths[file.kind] = file.path
    end
  end
  if not paths.model and build then
    return { model = "script", programmed = "class" }, paths, files
  elseif not paths.model then
    errors.usage("trial %s has no stored model: it took no step", short)
  end
  return saved_model.read(paths.model), paths, files
end

-- Rebuilds the model of the trial in row (of Records) with the parameters of its best checkpoint
-- or, without one, of its newest. options: kind ("best" or "checkpoint": only this kind), warn,
-- build (saved_model.build). Returns the model, its vocabulary or nil, and its description
-- (saved_model.description) with {step=, kind=, sha256= of the checkpoint, trial=, config=}. Raises
-- a usage error if only its script can build the model, or if the model or a checkpoint was never
-- stored; a storage error if a file is damaged.
function open_model.load(store, row, options)
  local o, short = options or {}, row.id:sub(1, 12)
  local about, paths, files = describe(store, row.id, short, o.build)
  local state, file = parameters(files, o.kind, o.warn or function() end)
  local buildable = not about.programmed or o.build
  if buildable and not state and file then
    errors.raise(errors.STORAGE, "trial %s has no undamaged checkpoint", short)
  elseif buildable and not state then
    errors.usage("trial %s has no checkpoint%s", short, o.kind and " of kind " .. o.kind or "")
  end
  local c = store:config(row.config)
  local model, vocab = saved_model.rebuild(about, state, paths, "trial " .. short, o.build, c)
  return model, vocab, saved_model.description(about, paths, { step = file.step, kind = file.kind,
    sha256 = file.sha256, trial = row.id, config = c })
end

-- Opens the model of the only trial that the words select in a store.
function open_model.trial(store, words, o)
  return open_model.load(store, selection.one(store, words), {
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
