-- models/files/exported.lua: reads and writes a model as a safetensors file. toeplab export
-- --weights writes such a file; tl.model and toeplab generate open it, and PyTorch reads its
-- tensors with safetensors.torch.load_file.
--
-- The metadata holds format = "pt", without which some of PyTorch's tools refuse a file, and:
--   toeplab            JSON: the fields that saved_model.lua stores (model, options, programmed,
--                      vocabulary, length), and names, trial, step, checkpoint, config; published:
--                      the options with which the published code computes the same
--   vocabulary.NAME    the texts from which the vocabulary is rebuilt
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local published = require "toeplab.models.published"
local safetensors = require "toeplab.models.files.formats.safetensors"
local saved_model = require "toeplab.models.files.saved_model"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local exported = {}

-- The names of parameters: ours, and published models'.
exported.names = { "toeplab", table.unpack(published.forms) }

-- Writes the model to path. about: its description (saved_model.description), with config.
-- options: names (of exported.names), bf16. Returns the options {name = value} that the published
-- model of these names requires, or nil.
function exported.write(path, model, about, options)
  local names, tensors, there = options.names or "toeplab", model:state(), nil
  if names ~= "toeplab" then
    local ok, why = pcall(function()
      local kind = published.kind(names, model)
      tensors, there = published.dictionary(kind, model), published.options(kind, model)
    end)
    if not ok then errors.usage("%s", errors.text(why)) end
  end
  local metadata = { format = "pt", toeplab = json.encode {
    model = about.model, options = about.options, programmed = about.programmed,
    vocabulary = about.vocabulary, length = about.length, names = names, trial = about.trial,
    step = about.step, checkpoint = about.kind, config = about.config, version = core.version,
    published = there,
  } }
  for name, text in pairs(saved_model.vocabulary_texts(about)) do
    metadata["vocabulary." .. name] = text
  end
  safetensors.write(path, tensors, { metadata = metadata, bf16 = options.bf16 })
  return there
end

-- The types of the metadata's fields about a model; all but model may be absent.
local types = { model = "string", options = "table", programmed = "string", names = "string",
  vocabulary = "string", length = "integer", trial = "string", step = "integer",
  checkpoint = "string", config = "table" }

-- Returns the metadata's description of the model in the file at path, checked, because the file
-- may come from anybody.
local function description(path, metadata)
  local known, about = pcall(json.decode, metadata.toeplab or "")
  if not known or type(about) ~= "table" or about.model == nil then
    errors.usage("%s does not name the model of its tensors, as toeplab export --weights does; "
      .. "load others with tl.load, and pass them to a model's load", path)
  end
  for _, name in ipairs(sorted_keys(types)) do
    local kind = math.type(about[name]) or type(about[name])
    if about[name] ~= nil and kind ~= types[name] then
      errors.usage("%s: '%s' of its model is of type %s, not %s", path, name, kind, types[name])
    end
  end
  local ok, why = suggest.choose("form of names", about.names or "toeplab", exported.names)
  if not ok then errors.usage("%s: %s", path, why) end
  return about
end

-- Opens the file at path. Returns the model, its vocabulary or nil, and its description. build: as
-- for saved_model.build.
function exported.open(path, build)
  local state, metadata = safetensors.read(path)
  local about, texts = description(path, metadata), {}
  for key, text in pairs(metadata) do
    local name = key:match "^vocabulary%.(%l+)$"
    if name then texts[name] = text end
  end
  local vocab = about.vocabulary and saved_model.vocabulary(path, about.vocabulary, texts)
  local model = saved_model.build(about, path, build, about.config, vocab)
  if about.names and about.names ~= "toeplab" then
    state = published.state(published.kind(about.names, model), state, model)
  end
  saved_model.fill(model, state, path, "its description")
  about.kind, about.texts = about.checkpoint, texts
  return model, vocab, about
end

return exported
