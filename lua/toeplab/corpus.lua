-- corpus.lua: a text as token ids, split into train, valid and test, and the batches of a training
-- run.
local core = require "toeplab.core"
local datasets = require "toeplab.datasets"
local options = require "toeplab.options"
local stop = require "toeplab.stop"
local suggest = require "toeplab.suggest"

local corpus = {}

local Corpus = {}
Corpus.__index = Corpus

local spec = options.set {
  { "tokens", options.field { default = "char", choices = { "char", "byte" } }, "what a token is" },
  { "length", options.field { type = "int", min = 1, max = 1 << 31, optional = true },
    "tokens predicted per row of a batch" },
  { "batch", options.field { type = "int", min = 1, max = 1 << 31, optional = true },
    "rows of a batch" },
  { "order", options.field { default = "blocks", choices = { "blocks", "random" } },
    "consecutive blocks shuffled every epoch, or random places" },
  { "valid", options.field { default = 0.05, min = 0, max = 0.9 },
    "fraction held out before the test part" },
  { "test", options.field { default = 0.05, min = 0, max = 0.9 }, "fraction held out at the end" },
  { "seed", options.field { type = "int", min = 0, optional = true },
    "seed of the order; default: the trial's" },
}

-- The seed that corpora of the running trial take; the runner sets it.
corpus.seed = 0

local function from_file(path)
  if core.sys.exists(path) and core.sys.kind(path) ~= "file" then
    stop.usage("corpus %s: is not a file", path)
  end
  local file, why = io.open(path, "rb")
  local text = file and file:read("a")
  if file then file:close() end
  if not text then stop.usage("corpus %s", why or path .. ": is not a file") end
  if text == "" then stop.usage("corpus %s: is empty", path) end
  return text
end

local function from_program(set)
  local complaints = os.tmpname()
  local pipe = io.popen(("%s 2>'%s'"):format(set.program, complaints), "r")
  local text = pipe:read("a")
  local ok = pipe:close()
  local said = core.sys.read_file(complaints) or ""
  os.remove(complaints)
  if not ok or text == "" then
    stop.usage("corpus %s: '%s' failed: %s", set.name, set.program, said:match("[^\n]*"))
  end
  return text
end

local function from_set(set)
  if not set.corpus then stop.usage("%s is a data set but not a plain text", set.name) end
  local folder = datasets.folder()
  local path = folder and folder .. "/" .. set.corpus
  local clean = set.clean or function(text) return text end
  if path and core.sys.exists(path) then return clean(from_file(path)) end
  if datasets.installed(set) then return clean(from_program(set)) end
  stop.usage("corpus %s is not here. Either %s", set.name,
    table.concat(datasets.advice(set), ",\nor "))
end

local function text_of(name)
  local literal = name:match("^text:(.+)$")
  if literal then return literal end
  local set = datasets.find(name)
  if set then return from_set(set) end
  if name:find("[/.]") then return from_file(name) end
  stop.usage("unknown corpus '%s'%s (known: %s; or a path with a / or text:...)", name,
    suggest.hint(name, datasets.names()), table.concat(datasets.names(), ", "))
end

local last = {} -- the text read last, as its trials usually follow each other

-- The text of a corpus and its sha256. Names: a data set that is a text, a path, or "text:"
-- followed by the text itself. Raises a usage error that says how to get what is not here.
function corpus.text(name)
  if last.name ~= name then
    local text = text_of(name)
    last = { name = name, text = text, hash = core.sha256(text) }
  end
  return last.text, last.hash
end

local function too_short(self, total, length)
  error(("corpus %s: %d training tokens are fewer than length + 1 = %.0f"):format(self.name, total,
    length + 1.0), 3)
end

-- tl.corpus(name, options): train, valid, test are int32 vectors of ids; vocab; hash; text.
function corpus.open(name, given)
  local o = options.check("corpus", spec, given)
  local self = setmetatable({ name = name, options = o, seed = o.seed or corpus.seed }, Corpus)
  self.text, self.hash = corpus.text(name)
  self.vocab = o.tokens == "byte" and core.vocab_bytes() or core.vocab_chars(self.text)
  self.ids = self.vocab:encode(self.text)
  local total = self.ids:numel()
  local test, valid = math.floor(total * o.test), math.floor(total * o.valid)
  local train = total - valid - test
  if train < 2 then
    error(("corpus %s: %d tokens leave nothing to train on"):format(name, total), 2)
  end
  for part, count in pairs { valid = valid, test = test } do
    if o[part] > 0 and count == 0 and given and given[part] then
      error(("corpus %s: %d tokens are too few to hold out the fraction %g"):format(name, total,
        o[part]), 2)
    end
  end
  if o.length and train <= o.length then too_short(self, train, o.length) end
  self.train = self.ids:narrow(1, 1, train)
  if valid > 0 then self.valid = self.ids:narrow(1, train + 1, valid) end
  if test > 0 then
    self.test = self.ids:narrow(1, train + valid + 1, test)
    self.test_before = self.ids:narrow(1, train + valid, 1):item() -- the token before the test part
  end
  return self
end

-- The order of the blocks in an epoch is a function of (seed, epoch) alone, so nothing has to be
-- saved to resume.
local function epoch_order(self, epoch, blocks)
  if self.epoch ~= epoch or self.blocks ~= blocks then
    local stream = core.stream(self.seed, "data.epoch." .. epoch)
    self.order = stream:permutation(blocks):totable()
    self.epoch, self.blocks = epoch, blocks
  end
  return self.order
end

local function block_starts(self, step, batch, length, total)
  local blocks = (total - 1) // length
  local starts = {}
  for row = 1, batch do
    local place = (step - 1) * batch + row - 1
    starts[row] = epoch_order(self, place // blocks, blocks)[place % blocks + 1] * length
  end
  return starts
end

local function random_starts(self, step, batch, length, total)
  local stream = core.stream(self.seed, "data.step." .. step)
  local starts = {}
  for row = 1, batch do starts[row] = stream:below(total - length) end
  return starts
end

-- The batch of a step (1, 2, ...): ids [batch, length+1] from the training part; the row's first
-- length tokens are the input, its last length the targets. Depends on the seed and the step alone.
-- In order "blocks" the targets are consecutive blocks, each epoch takes every block once, and the
-- remainder of the text is left out.
function Corpus:batch(step, batch, length)
  batch, length = batch or self.options.batch, length or self.options.length
  if not batch or not length then
    error("corpus: batch and length must be given to tl.corpus or to :batch", 2)
  end
  local total = self.train:numel()
  if total <= length then too_short(self, total, length) end
  local starts_of = self.options.order == "blocks" and block_starts or random_starts
  local starts = starts_of(self, step, batch, length, total)
  return core.windows(self.train, core.ids(starts), length + 1)
end

return setmetatable(corpus, {
  __call = function(_, name, given) return corpus.open(name, given) end,
})
