-- commands/model.lua: toeplab model: prints the parts of a model and its costs.
local models = require "toeplab.models"
local options = require "toeplab.base.options"
local quantity = require "toeplab.base.quantity"
local text_table = require "toeplab.base.text_table"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"
local tree = require "toeplab.nn.tree"

local model = {
  example = "toeplab model tnn_lm layers=7 dim=512 batch=8 length=512\n"
    .. "  toeplab model gtu-only-9",
  usage = "toeplab model NAME|PRESET [key=value...]",
  about = "Shows the tree of a model with its parameters, the FLOP of a token, and an estimate of\n"
    .. "the memory that training takes, for batch sequences of a length (defaults: 1 and the\n"
    .. "model's own: 512, or the size of its grid). Without keys tnn_lm is the published causal\n"
    .. "language model; vocab defaults to its 50264. PRESET, or preset=NAME, selects a published\n"
    .. "model; keys override its values.",
  words = { "model", "model_keys" },
  options = {
    { name = "keys", short = "k", help = "list the keys of the model" },
    { name = "presets", short = "p", help = "list the published models and their parameters" },
  },
}

local VOCAB = 50264

local MOST = 1 << 31

-- Splits batch=, length= and preset= from the words; the rest are options of the model.
local function split(model_name, words)
  local known = { "batch", "length", "preset" }
  for _, o in ipairs(options.describe(models.options(model_name))) do known[#known + 1] = o.name end
  local sizes, rest, given = { batch = 1 }, {}, {}
  local vocab = not models.options(model_name).fields.vocab
  for _, word in ipairs(words) do
    local key, text = word:match("^([%w_]+)=(.*)$")
    if key and given[key] then errors.usage("model: %s is given twice", key) end
    given[key or word] = true
    if key == "batch" or key == "length" then
      sizes[key] = math.tointeger(tonumber(text))
      if not sizes[key] or sizes[key] < 1 or sizes[key] > MOST then
        errors.usage("model: %s takes an integer of at least 1 and at most %d, got '%s'", key, MOST,
          text)
      end
    elseif key == "preset" then
      sizes.preset = text
    elseif key and not suggest.choose("key", key, known) then
      errors.usage("model: unknown option '%s'%s", key, suggest.hint(key, known))
    else
      rest[#rest + 1] = word
      vocab = vocab or key == "vocab"
    end
  end
  if not vocab and not sizes.preset then rest[#rest + 1] = "vocab=" .. VOCAB end
  return sizes, rest
end

local LINE = 100 -- characters of a line of the list of keys

-- Prints for each key its default, what it is, and in brackets its type and range.
local function show_keys(name)
  local list, first, second = options.describe(models.options(name)), 0, 0
  for _, o in ipairs(list) do
    first, second = math.max(first, #o.name), math.max(second, #o.default)
  end
  print(name .. ": key=value; key, default, meaning [type: range]")
  local indent = (" "):rep(first + second + 6)
  for _, o in ipairs(list) do
    local range = o.range ~= "" and ": " .. o.range or ""
    local lines = text_table.wrap(("%s [%s%s]"):format(o.help, o.type, range),
      LINE - #indent, "")
    for i, line in ipairs(lines) do
      print(i > 1 and indent .. line
        or ("  %-" .. first .. "s  %-" .. second .. "s  %s"):format(o.name, o.default, line))
    end
  end
end

-- Returns the number of parameters of a preset and whether it is the published one; "not here" if
-- the preset cannot be built, e.g. because its backend is missing.
local function count(preset)
  local ok, built = pcall(models.describe, preset.model, preset.options)
  if not ok then return "not here", "" end
  local all = built:count()
  built = nil
  collectgarbage()
  local word = preset.parameters == all and "as published" or "differs"
  return tree.thousands(all), preset.parameters and word or ""
end

local function show_presets(name)
  local rows = {}
  for _, preset in ipairs(models.presets) do
    if preset.model == name then
      local number, word = count(preset)
      rows[#rows + 1] = { preset.name, number, word, preset.source }
    end
  end
  if #rows == 0 then errors.usage("model: there are no presets of %s", name) end
  text_table.print({ "preset", "parameters", "", "paper and table" }, rows)
end

local function mebibytes(bytes)
  return ("%10.1f MiB"):format(bytes / 2 ^ 20)
end

-- Returns a number of FLOP in a column.
local function flop(number) return ("%12s"):format(quantity.flop(number)) end

-- Prints the cost of a sequence. A gradient takes two products for each product of the forward
-- pass, so a training step takes three times as much.
local function show_arithmetic(built, sizes)
  local forward, n = built:cost(sizes.length), sizes.length
  print(("\narithmetic at length %d, by formula      a token         a sequence"):format(n))
  print(("  forward pass                       %s     %s"):format(flop(forward / n), flop(forward)))
  print(("  training step, 3 times as much     %s     %s"):format(flop(3 * forward / n),
    flop(3 * forward)))
  print "  counted: matrix products, transforms, convolutions, recurrences; coefficients once"
  print "  not counted: norms, activations, softmax, dropout, embedding, loss, optimiser,"
  print "  recomputation, and all but the linear maps of your own mixers"
end

local function show_memory(e, sizes)
  print(("\nmemory to train, batch %d x length %d, by formula"):format(sizes.batch, sizes.length))
  print("  parameters      " .. mebibytes(e.parameter_bytes))
  print("  gradients       " .. mebibytes(e.gradient_bytes))
  print("  Adam's moments  " .. mebibytes(e.optimizer_bytes))
  print("  activations     " .. mebibytes(e.activation_bytes))
  print("  total           " .. mebibytes(e.total_bytes))
  print(("  activations     %10.1f KiB a token"):format(
    e.activation_bytes / (sizes.batch * sizes.length) / 2 ^ 10))
end

-- Removes the model's name from the words and returns it; a preset's name becomes preset=NAME.
local function take_name(words)
  local name, names = table.remove(words, 1), models.names()
  if not name then errors.usage("model: which one? Known: %s", table.concat(names, ", ")) end
  local whose = models.preset_model(name)
  if whose then
    for _, word in ipairs(words) do
      if word:find "^preset=" then
        errors.usage("model: %s is already a preset: remove %s", name, word)
      end
    end
    table.insert(words, 1, "preset=" .. name)
    return whose
  end
  local found, why = suggest.choose("model", name, names)
  if not found then errors.usage("%s; presets: toeplab model tnn_lm --presets", why) end
  return name
end

-- Sets the length to the model's own unless one was given, and checks that the model takes it.
local function settle_length(built, sizes)
  local grid = rawget(built.opt, "grid")
  local positions = grid and grid[1] * grid[2]
  if grid and (sizes.length or positions) ~= positions then
    error(("length = %d, but the grid has %d x %d positions"):format(sizes.length, grid[1],
      grid[2]), 0)
  end
  sizes.length = sizes.length or positions or built.opt.max_length
  built:cost(sizes.length) -- raises if a layer has weights for fewer positions
end

-- Raises for words that have no effect beside --keys or --presets.
local function check_alone(set, words)
  local list = set.keys and "keys" or set.presets and "presets"
  if set.keys and set.presets then errors.usage("model: choose one of --keys and --presets") end
  if list and #words > 1 then
    errors.usage("model: --%s takes only the name of a model, got '%s' too", list, words[2])
  end
end

function model.run(set, words)
  check_alone(set, words)
  local name = take_name(words)
  if set.keys then
    return show_keys(name)
  end
  if set.presets then
    return show_presets(name)
  end
  local sizes, rest = split(name, words)
  local ok, built = pcall(function()
    local given = options.parse(name, models.options(name), rest)
    local whose = sizes.preset and models.preset_model(sizes.preset)
    if whose and whose ~= name then
      error(("preset %s belongs to the model %s"):format(sizes.preset, whose), 0)
    end
    if sizes.preset then given = models.preset(sizes.preset, given) end
    local described = models.describe(name, given)
    settle_length(described, sizes)
    return described
  end)
  if not ok then errors.usage("%s", errors.text(built)) end
  print(tostring(built))
  local parameters, trained = built:count()
  print(("\nparameters %s, of which %s are trained"):format(tree.thousands(parameters),
    tree.thousands(trained)))
  show_arithmetic(built, sizes)
  show_memory(models.estimate(built, sizes.length, sizes.batch), sizes)
end

return model
