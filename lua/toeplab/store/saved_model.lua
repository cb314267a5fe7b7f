-- store/saved_model.lua: stores with a trial what is needed to rebuild its model from the results
-- folder alone, and loads such models: the options of the model, the vocabulary and the
-- checkpoints.
--
-- The files are artifacts of step 0, each of the kind in its name: model-00000000.json {model=,
-- options=, programmed=, vocabulary=, length=}, vocabulary-00000000.txt, and likewise encoder and
-- dictionary if the vocabulary has them; also backends (chosen_backends.lua) if its backend is
-- "auto", with the beginning of its sha256 in place of the step.
--
-- programmed says what of the model comes from the script, "class" or the name of an option. Such a
-- model has no options here: whoever loads it gives a function build(c, vocab) that makes it from
-- the configuration of its trial.

local checkpoint = require "toeplab.store.checkpoint"
local class = require "toeplab.nn.class"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local models = require "toeplab.models"
local errors = require "toeplab.base.errors"
local raw_file = require "toeplab.store.formats.raw_file"
local trial_files = require "toeplab.store.trial_files"

-- endings: kind of file -> its extension.
local saved_model = { endings = { model = "json", vocabulary = "txt", encoder = "txt",
  dictionary = "txt", backends = "txt" } }

-- ---- Vocabularies -----------------------------------------------------------------------------

local function tokens(vocab)
  local list = {}
  for id = 0, vocab:size() - 1 do list[id + 1] = vocab:token(id) end
  return list
end

local function read(path) return (errors.stored(core.sys.read_file(path))) end

-- For each tokenizer (the option of a corpus): the texts {name = text} from which its vocabulary
-- can be rebuilt, and a function that rebuilds it from files {name = path}.
local kinds = {}

kinds.byte = {
  texts = function() return {} end,
  open = function() return core.vocab_bytes() end,
}

kinds.char = {
  texts = function(vocab) return { vocabulary = table.concat(tokens(vocab)) } end,
  open = function(paths) return core.vocab_chars(read(paths.vocabulary)) end,
}

-- A word decodes to a space and itself, as does the end of a line. Reading the decoded text meets
-- each word once, which preserves the order.
kinds.word = {
  texts = function(vocab) return { vocabulary = table.concat(tokens(vocab)) } end,
  open = function(paths)
    local counter = core.counter("words")
    counter:feed(read(paths.vocabulary))
    return core.vocab_words(counter)
  end,
}

-- The files of a byte pair encoding are stored verbatim.
kinds.bpe = {
  texts = function(_, files)
    local texts = {}
    for name, path in pairs(files) do texts[name] = read(path) end
    return texts
  end,
  open = function(paths)
    return core.vocab_bpe(paths.vocabulary, paths.encoder, paths.dictionary)
  end,
}

kinds.gpt2 = kinds.bpe

-- Returns the texts {name = text} of the vocabulary that about, as returned by saved_model.load,
-- describes: those in its field texts, else in its files; none if there is no vocabulary.
function saved_model.vocabulary_texts(about)
  local texts = {}
  if not about.vocabulary then return texts end
  for _, name in ipairs { "vocabulary", "encoder", "dictionary" } do
    local path = about.paths and about.paths[name]
    texts[name] = about.texts and about.texts[name] or path and read(path) or nil
  end
  return texts
end

-- Rebuilds the vocabulary of a kind from its texts {name = text}, which the file at path holds.
function saved_model.vocabulary(path, kind, texts)
  local paths = {}
  if not kinds[kind] then
    errors.usage("%s: its vocabulary is of an unknown kind, '%s'", path, tostring(kind))
  elseif kind ~= "byte" and not texts.vocabulary then
    errors.usage("%s: its vocabulary, of kind '%s', has no text", path, kind)
  end
  local ok, vocab = pcall(function()
    for name, text in pairs(texts) do
      paths[name] = os.tmpname()
      assert(core.sys.write_file(paths[name], text))
    end
    return kinds[kind].open(paths)
  end)
  for _, temporary in pairs(paths) do os.remove(temporary) end
  if not ok then errors.usage("%s: its vocabulary: %s", path, errors.text(vocab)) end
  return vocab
end

-- ---- Writing ----------------------------------------------------------------------------------

-- Returns the name of a model option that holds a function or object, nil if there is none.
local function programmed(options)
  for name, value in pairs(options) do
    if type(value) == "function" or type(value) == "userdata" or class.isclass(value) then
      return name
    end
  end
end

-- Returns the kind of vocabulary of a corpus; nil for other data.
local function kind_of(data)
  local corpus = type(data) == "table" and data.vocab and data.options
  return corpus and kinds[data.options.tokenizer] and data.options.tokenizer or nil
end

-- Returns the texts {name = text} to store for a model and the vocabulary of data, a corpus.
function saved_model.texts(model, data)
  local name = models.name_of(model)
  local about, texts = { model = name or "script", programmed = "class" }, {}
  if name then about.programmed = programmed(model.opt) end
  if not about.programmed then about.options = model.opt end
  local kind = kind_of(data)
  if kind then
    about.vocabulary, about.length = kind, data.options.length
    texts = kinds[kind].texts(data.vocab, data.vocab_files)
  end
  texts.model = json.encode(about) .. "\n"
  return texts
end

-- ---- Reading ----------------------------------------------------------------------------------

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
-- and its row; kind: only that kind. Without any, returns nil and whether unreadable ones exist.
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

local function unknown(path)
  errors.raise(errors.STORAGE, "%s does not describe a model of toeplab", path)
end

-- Returns the content of the file that describes a model.
local function decoded(path)
  local ok, about = pcall(json.decode, read(path))
  ok = ok and type(about) == "table" and type(about.model) == "string"
  return ok and about or unknown(path)
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
  return decoded(paths.model), paths, files
end

-- Makes the model that about describes, without its parameters. who names it in messages; build(c,
-- vocab) makes one that comes from a script.
function saved_model.build(about, who, build, c, vocab)
  if not about.programmed then
    local ok, made = pcall(models.describe, about.model, about.options)
    if not ok then errors.usage("%s: its model cannot be made: %s", who, errors.text(made)) end
    return made
  end
  if not build then
    errors.usage("%s has a model whose %s comes from its script: only a function model(c, vocab) "
      .. "of that script can build it (--script FILE, or the option build of tl.model)", who,
      about.programmed)
  end
  local model = build(c, vocab)
  if not class.ismodule(model) then
    errors.usage("%s: the function that builds its model returned a %s", who, type(model))
  end
  return model
end

-- Loads state into model; who and what name them in the message if the two do not fit.
function saved_model.fill(model, state, who, what)
  local fits, why = pcall(model.load, model, state)
  if fits then return end
  local first = errors.text(why):match "^[^\n]*\n?[^\n]*" -- of a list, the first line is enough
  errors.usage("%s does not fit %s: %s", who, what, (first:gsub("\n%s*", " ")))
end

-- Makes the model that about describes, with the parameters state, and its vocabulary or nil.
local function rebuild(about, state, paths, who, build, c)
  local open = about.vocabulary and (kinds[about.vocabulary] or unknown(paths.model)).open
  local vocab = open and open(paths)
  local model = saved_model.build(about, who, build, c, vocab)
  saved_model.fill(model, state, who, paths.model or "the model that the script makes")
  return model, vocab
end

-- What both kinds of loading return of a model.
local function description(about, paths, more)
  for _, name in ipairs { "model", "options", "programmed", "length", "vocabulary" } do
    more[name] = about[name]
  end
  more.paths = paths
  return more
end

-- Rebuilds the model of the trial in row (of records) with the parameters of its best checkpoint
-- or, without one, of its newest. options: kind ("best" or "checkpoint": only such), warn, build
-- (see above). Returns the model, its vocabulary or nil, and {step=, kind=, length=, vocabulary =
-- its kind or nil, paths = name -> path of the source files, sha256= of the checkpoint, model=,
-- options=, programmed=, trial=, config=}. Raises a usage error if only its script can build the
-- model, or if the model or a checkpoint was never stored, a storage error if a file is damaged.
function saved_model.load(store, row, options)
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
  local model, vocab = rebuild(about, state, paths, "trial " .. short, o.build, c)
  return model, vocab, description(about, paths, { step = file.step, kind = file.kind,
    sha256 = file.sha256, trial = row.id, config = c })
end

-- Does the same with the checkpoint at path, beside which the files that describe the model must
-- be, as in the folder of a trial.
function saved_model.load_file(path, build)
  local folder, paths = path:match "^(.*)/[^/]*$" or ".", {}
  raw_file.check(path)
  for kind, ending in pairs(saved_model.endings) do
    local file = ("%s/%s-00000000.%s"):format(folder, kind, ending)
    if core.sys.exists(file) then paths[kind] = file end
  end
  if not paths.model then
    errors.usage("%s: the file that describes its model, model-00000000.json, is not beside it",
      path)
  end
  local about = decoded(paths.model)
  local good, state = pcall(checkpoint.read, path, "model")
  if not good or not state.model then
    errors.usage("%s is not a checkpoint: %s", path,
      good and "it has no model" or errors.text(state))
  end
  if about.vocabulary and about.vocabulary ~= "byte" and not paths.vocabulary then
    errors.usage("%s: the file of its vocabulary, vocabulary-00000000.txt, is not beside it", path)
  end
  local model, vocab = rebuild(about, state.model, paths, path, build)
  return model, vocab, description(about, paths, { sha256 = core.sha256_file(path) })
end

return saved_model
