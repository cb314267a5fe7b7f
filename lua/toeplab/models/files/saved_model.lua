-- models/files/saved_model.lua: writes the files from which a model can be rebuilt without its
-- script, and rebuilds such models: options, vocabulary and parameters. trials/open_model.lua finds
-- these files in the store.
--
-- The files are artifacts of step 0, each of the kind in its name: model-00000000.json {model=,
-- options=, programmed=, vocabulary=, length=}, vocabulary-00000000.txt, and likewise encoder and
-- dictionary if the vocabulary has them; also backends (chosen_backends.lua) if its backend is
-- "auto", with the beginning of its sha256 instead of the step.
--
-- programmed names the part of the model that comes from the script, "class" or an option. Such a
-- model has no options here: whoever loads it passes a function build(c, vocab) that makes it from
-- the configuration of its trial.

local checkpoint = require "toeplab.models.files.checkpoint"
local class = require "toeplab.nn.class"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local models = require "toeplab.models"
local errors = require "toeplab.base.errors"
local raw_file = require "toeplab.models.files.formats.raw_file"

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

-- A word decodes to a space and itself, as does the end of a line. Counting the decoded text meets
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

-- Returns the texts {name = text} of the vocabulary that about (saved_model.description) describes:
-- those in its field texts, else in its files; none if there is no vocabulary.
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

local function is_object(value)
  return type(value) == "function" or type(value) == "userdata" or class.isclass(value)
end

-- Returns the name of a model option that holds a function or object, itself or in a list; nil if
-- there is none.
local function programmed(options)
  for name, value in pairs(options) do
    if is_object(value) then return name end
    for _, one in ipairs(type(value) == "table" and value or {}) do
      if is_object(one) then return name end
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

local function unknown(path)
  errors.raise(errors.STORAGE, "%s does not describe a model of toeplab", path)
end

-- Returns the content of the file at path, which describes a model.
function saved_model.read(path)
  local ok, about = pcall(json.decode, read(path))
  ok = ok and type(about) == "table" and type(about.model) == "string"
  return ok and about or unknown(path)
end

-- Makes the model that about describes, without its parameters. who: its name in messages; build(c,
-- vocab) makes a model that comes from a script.
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
  local first = errors.text(why):match "^[^\n]*\n?[^\n]*" -- of a list only the first line
  errors.usage("%s does not fit %s: %s", who, what, (first:gsub("\n%s*", " ")))
end

-- Makes the model that about describes, with the parameters state, and its vocabulary or nil.
-- paths: kind of file -> path, of those that describe the model; who, build, c: as for
-- saved_model.build.
function saved_model.rebuild(about, state, paths, who, build, c)
  local open = about.vocabulary and (kinds[about.vocabulary] or unknown(paths.model)).open
  local vocab = open and open(paths)
  local model = saved_model.build(about, who, build, c, vocab)
  saved_model.fill(model, state, who, paths.model or "the model that the script makes")
  return model, vocab
end

-- Returns the description of a loaded model: more with {length=, vocabulary = its kind or nil,
-- paths = name -> path of the source files, model=, options=, programmed=}.
function saved_model.description(about, paths, more)
  for _, name in ipairs { "model", "options", "programmed", "length", "vocabulary" } do
    more[name] = about[name]
  end
  more.paths = paths
  return more
end

-- Rebuilds the model of the checkpoint at path, beside which the files that describe the model must
-- be, as in the folder of a trial. build: see saved_model.build. Returns the model, its vocabulary
-- or nil, and its description with sha256= of the checkpoint.
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
  local about = saved_model.read(paths.model)
  local good, state = pcall(checkpoint.read, path, "model")
  if not good or not state.model then
    errors.usage("%s is not a checkpoint: %s", path,
      good and "it has no model" or errors.text(state))
  end
  if about.vocabulary and about.vocabulary ~= "byte" and not paths.vocabulary then
    errors.usage("%s: the file of its vocabulary, vocabulary-00000000.txt, is not beside it", path)
  end
  local model, vocab = saved_model.rebuild(about, state.model, paths, path, build)
  return model, vocab, saved_model.description(about, paths, { sha256 = core.sha256_file(path) })
end

return saved_model
