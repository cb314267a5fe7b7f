-- models/files/converted.lua: reads and writes causal models in recurrent form, as HDF5 files with
-- parameters, modes and vocabulary. toeplab generate --convert writes such a file, and toeplab
-- generate reads it.
--
-- The file is a state of checkpoint.lua: datasets and attributes by path.
--   model/NAME                            the parameters
--   recurrent/layers/NAME/b, lambda, decay   the modes of each operator, as core.recurrence's modes
--   recurrent/layers/NAME/a, b, c, direct    or its system, for the forms of models/distill.lua
--   recurrent/form, lags                  and of each layer: lags, period
--   vocabulary/texts/NAME                 one byte per number
--   options/..., name, length, trial, step, checkpoint   attributes: its origin
local checkpoint = require "toeplab.models.files.checkpoint"
local core = require "toeplab.core"
local distill = require "toeplab.models.distill"
local cost = require "toeplab.train.cost"
local models = require "toeplab.models"
local recurrent = require "toeplab.models.recurrent"
local errors = require "toeplab.base.errors"
local saved_model = require "toeplab.models.files.saved_model"

local converted = {}

local FORMAT = "toeplab recurrent model 1"

-- ---- Texts as tensors ---------------------------------------------------------------------------

local CHUNK = 4096 -- values per call

local function to_tensor(text)
  local bytes = {}
  for first = 1, #text, CHUNK do
    table.move({ text:byte(first, first + CHUNK - 1) }, 1, CHUNK, first, bytes)
  end
  return core.ids(bytes)
end

local function to_text(tensor)
  local bytes, parts = tensor:totable(), {}
  for first = 1, #bytes, CHUNK do
    local last = math.min(first + CHUNK - 1, #bytes)
    parts[#parts + 1] = string.char(table.unpack(bytes, first, last))
  end
  return table.concat(parts)
end

-- Returns {kind=, texts= name -> tensor of its bytes} of the vocabulary of about, nil if there is
-- none.
local function vocabulary_of(about)
  if not about.vocabulary then return nil end
  local texts = {}
  for name, text in pairs(saved_model.vocabulary_texts(about)) do
    if #text > 0 then texts[name] = to_tensor(text) end
  end
  return { kind = about.vocabulary, texts = texts }
end

-- ---- Writing ------------------------------------------------------------------------------------

-- Returns the stored part of a layer's recurrence.
local function parts_of(recurrence)
  local sizes = recurrence:sizes()
  local parts = { lags = sizes.lags, period = sizes.period }
  if sizes.kind == "distilled" then
    for name, tensor in pairs(recurrence.system) do parts[name] = tensor end
  else
    parts.b, parts.lambda, parts.decay = recurrence:modes()
  end
  return parts
end

-- Writes the model of a session of method "etsc", or of distilled operators, to the file at path.
-- about: its description (saved_model.description), and trial.
function converted.write(path, session, about, form, lags)
  local model, layers = session.model, {}
  for _, layer in ipairs(session.layers) do
    layers[layer.name] = parts_of(layer.recurrence)
  end
  checkpoint.write(path, {
    format = FORMAT, version = core.version, name = models.name_of(model), options = model.opt,
    trial = about.trial, step = about.step, checkpoint = about.kind, length = about.length,
    vocabulary = vocabulary_of(about), model = model:state(),
    recurrent = { form = form, lags = lags, layers = layers },
  })
end

-- ---- Reading ------------------------------------------------------------------------------------

local function session_of(model, path, parts)
  return recurrent.session(model, function(_, name)
    local layer = parts.layers[name]
    if not layer then errors.raise(errors.STORAGE, "%s lacks the modes of %s", path, name) end
    if layer.a then
      local system = { a = layer.a, b = layer.b, c = layer.c, direct = layer.direct }
      return distill.recurrence(system, layer.lags)
    end
    return core.recurrence_of_modes(layer.b, layer.decay, parts.form, layer.lags, layer.period)
  end)
end

-- Returns whether the file at path ends with the engine's checksum (core/store/trailer.c). The
-- engine accepts a file without one as foreign, unchecked; a converted model has no row in a store
-- that would check it otherwise.
local function ends_with_checksum(path)
  local file <close> = io.open(path, "rb")
  return file and file:seek("end", -24) and file:read(8) == "TL-SUM1\n"
end

-- Returns whether the file at path is of this kind, whatever its version.
function converted.is(path)
  local ok, format = pcall(function()
    local file <close> = core.h5_open(path)
    return file:attrs("/").format
  end)
  return ok and tostring(format):find "^toeplab recurrent model" ~= nil
end

-- Opens the file at path. Returns a session of the model in evaluation mode, its vocabulary or nil,
-- and {form=, lags=, trial=, step=, length=}. Raises a usage error if there is no such file or it
-- has another format, a storage error if it cannot be read.
function converted.open(path)
  if not core.sys.exists(path) then errors.usage("%s: there is no such file", path) end
  local ok, state = pcall(checkpoint.read, path)
  if not ok then errors.raise(errors.STORAGE, "%s", errors.text(state)) end
  if state.format ~= FORMAT then
    errors.usage("%s was not written by toeplab generate --convert%s", path,
      state.format and " in a format that this version reads" or "")
  end
  if not ends_with_checksum(path) then
    errors.raise(errors.STORAGE, "%s is damaged: it does not end with the checksum it was written "
      .. "with; convert the trial again", path)
  end
  local opened, session = pcall(function()
    local model = models.describe(state.name, state.options):load(state.model):eval()
    return session_of(model, path, state.recurrent)
  end)
  if not opened and errors.is(session) then error(session, 0) end
  if not opened then
    errors.raise(errors.STORAGE, "%s: its model cannot be made: %s", path, errors.text(session))
  end
  local vocab, texts = nil, {}
  if state.vocabulary then
    for name, tensor in pairs(state.vocabulary.texts or {}) do texts[name] = to_text(tensor) end
    vocab = saved_model.vocabulary(path, state.vocabulary.kind, texts)
  end
  return session, vocab, {
    form = state.recurrent.form, lags = state.recurrent.lags, trial = state.trial,
    step = state.step, length = state.length,
  }
end

-- ---- Accuracy and cost of a conversion ---------------------------------------------------------

local STEPS = 20 -- steps per measurement: one is too short for the clock

local function step_seconds(recurrence, dim)
  local x, y = core.zeros(1, dim), core.zeros(1, dim) -- a distilled one makes a new y
  local seconds = cost.seconds(function()
    for _ = 1, STEPS do recurrence:step(x, y) end
  end, 0.01) / STEPS
  recurrence:reset()
  return seconds
end

local function size(x) return math.sqrt(core.square(x):reshape(-1):sum():item()) end

local function largest(x) return core.abs(x):reshape(-1):amax():item() end

-- Compares the impulse response of a recurrence with the kernel itself, which a recurrence of form
-- "ring" on t [lags, d] and gamma computes exactly. Returns lags, modes and:
--   error   ||answer - kernel|| / ||kernel|| over the lags
--   after   the largest answer from lag `lags` to 2 lags - 1, where the kernel is 0, over the
--           largest coefficient
--   bytes, seconds   the state of one sequence, and the time of one step (one token, all channels)
--   ring_bytes, ring_seconds   the ring's
function converted.measure(recurrence, t, gamma)
  local lags, dim = t:dim(1), t:dim(2)
  local ring = core.recurrence(t, gamma, "ring")
  local x = core.zeros(1, 2 * lags, dim)
  x:view(0, { dim }):fill(1)
  local got, want = recurrence:step(x), ring:step(x)
  recurrence:reset()
  local kernel = want:narrow(2, 1, lags)
  local sizes, ring_sizes = recurrence:sizes(), ring:sizes()
  local result = {
    lags = lags, modes = sizes.modes,
    bytes = sizes.state_bytes, ring_bytes = ring_sizes.state_bytes,
    error = size(got:narrow(2, 1, lags) - kernel) / math.max(size(kernel), 1e-30),
    after = largest(got:narrow(2, lags + 1, lags)) / math.max(largest(kernel), 1e-30),
    seconds = step_seconds(recurrence, dim), ring_seconds = step_seconds(ring, dim),
  }
  ring:close()
  return result
end

-- ---- Converting ---------------------------------------------------------------------------------

-- Returns the distilled recurrence of a kernel, and the bound of its error relative to the largest
-- gain, the worst over all channels; nil for a form without one.
local function distilled(t, gamma, form, modes)
  local k = gamma and core.decay(t, core.range(0, t:dim(1) - 1), gamma) or t
  local system, bounds = distill.system(k, modes, form)
  local worst = bounds and 0.0
  for i, gain in ipairs(bounds and distill.gains(k) or {}) do
    worst = math.max(worst, bounds[i] / math.max(gain, 1e-30))
  end
  return distill.recurrence(system, t:dim(1)), worst
end

-- Converts a model layer by layer, each operator to the form (of ETSC, or of distill.lua with
-- `modes` modes) of its first lags. Returns a session of recurrent.lua, and for each operator the
-- result of measure, with name and bound.
function converted.session(model, form, lags, modes)
  local rows = {}
  local session = recurrent.session(model, function(tno, name)
    local t, gamma = recurrent.kernel(tno, lags, name)
    local recurrence, bound
    if distill.has(form) then
      recurrence, bound = core.no_grad(distilled, t, gamma, form, modes)
    else
      recurrence = core.recurrence(t, gamma, form)
    end
    local row = core.no_grad(converted.measure, recurrence, t, gamma)
    row.name, row.bound = name, bound
    rows[#rows + 1] = row
    return recurrence
  end)
  return session, rows
end

return converted
