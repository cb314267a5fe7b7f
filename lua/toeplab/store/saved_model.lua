-- store/saved_model.lua: stores with a trial what is needed to rebuild its model from the results
-- folder alone, and loads such models: the options of the model, the vocabulary and the
-- checkpoints.
--
-- The files are artifacts of step 0, each of the kind in its name: model-00000000.json {model=,
-- options=, vocabulary=, length=}, vocabulary-00000000.txt, and likewise encoder and dictionary if
-- the vocabulary has them; also backends (chosen_backends.lua) if its backend is "auto", with the
-- beginning of its sha256 in place of the step.

local checkpoint = require "toeplab.store.checkpoint"
local class = require "toeplab.nn.class"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local models = require "toeplab.models"
local errors = require "toeplab.base.errors"
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

-- Rebuilds the vocabulary of a kind from its texts {name = text}.
function saved_model.vocabulary(kind, texts)
  local paths = {}
  local ok, vocab = pcall(function()
    for name, text in pairs(texts) do
      paths[name] = os.tmpname()
      assert(core.sys.write_file(paths[name], text))
    end
    return kinds[kind].open(paths)
  end)
  for _, path in pairs(paths) do os.remove(path) end
  if not ok then error(vocab, 0) end
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

-- Returns the texts {name = text} to store for a model and the vocabulary of data, a corpus; nil if
-- the model does not come from toeplab.models.
function saved_model.texts(model, data)
  local name = models.name_of(model)
  if not name then return nil end
  local about, texts = { model = name, programmed = programmed(model.opt) }, {}
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

local function describe(store, id, short)
  local paths, files = {}, artifacts(store, id)
  for _, file in ipairs(files) do
    if saved_model.endings[file.kind] then
      if not trial_files.intact(file.path, file.sha256) then
        errors.raise(errors.STORAGE, "%s is missing or damaged", file.path)
      end
      paths[file.kind] = file.path
    end
  end
  if not paths.model then
    errors.usage("trial %s has no stored model: its script built its own, or took no step", short)
  end
  local about = store:decode(read(paths.model))
  if type(about) ~= "table" or type(about.model) ~= "string" then unknown(paths.model) end
  return about, paths, files
end

-- Rebuilds the model of the trial in row (of records) with the parameters of its best checkpoint
-- or, without one, of its newest. options: kind ("best" or "checkpoint": only such), warn. Returns
-- the model, its vocabulary or nil, and {step=, kind=, length=, vocabulary = its kind or nil, paths
-- = name -> path of the source files}. Raises a usage error if only its script can build the model,
-- or if the model or a checkpoint was never stored, a storage error if a file is damaged.
function saved_model.load(store, row, options)
  local o, short = options or {}, row.id:sub(1, 12)
  local about, paths, files = describe(store, row.id, short)
  if about.programmed then
    errors.usage("trial %s has a model whose %s comes from its script; only that script can "
      .. "build it", short, about.programmed)
  end
  local state, file = parameters(files, o.kind, o.warn or function() end)
  if not state and file then
    errors.raise(errors.STORAGE, "trial %s has no undamaged checkpoint", short)
  elseif not state then
    errors.usage("trial %s has no checkpoint%s", short, o.kind and " of kind " .. o.kind or "")
  end
  local model = models.describe(about.model, about.options):load(state)
  local open = about.vocabulary and (kinds[about.vocabulary] or unknown(paths.model)).open
  return model, open and open(paths), {
    step = file.step, kind = file.kind, length = about.length, vocabulary = about.vocabulary,
    paths = paths,
  }
end

return saved_model
