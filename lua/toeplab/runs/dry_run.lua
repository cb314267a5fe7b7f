-- runs/dry_run.lua: calls the function of a trial until it makes an optimiser or begins its loop of
-- steps, which shows the model. A corpus is replaced by one of its vocabulary's size, unless that
-- is known from the text alone. What the function prints is dropped. Its dry run ends where it
-- would end a process or start one, or its script would write a file. This holds for what the
-- script calls by a local variable, too (local print = print).
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local corpus = require "toeplab.tasks.corpus"
local cost = require "toeplab.train.cost"
local defer = require "toeplab.base.defer"
local errors = require "toeplab.base.errors"
local initial = require "toeplab.nn.initial"
local json = require "toeplab.base.json"
local models = require "toeplab.models"
local optim = require "toeplab.train.optim"
local options = require "toeplab.base.options"
local own_code = require "toeplab.trials.own_code"
local source = require "toeplab.tasks.source"
local tasks = require "toeplab.tasks"
local tensor_files = require "toeplab.models.files.tensor_files"

local dry_run = {}

local CHECKED = 1e5 -- VM instructions between two looks at the clock
local TOKENS = 17   -- binary logarithm of the tokens of a corpus that stands in for another
local GPT2 = 50264  -- tokens of GPT-2 in fairseq's dictionary

-- Sets the fields of a list of {table, name, value} until the returned value is closed.
local function replaced(list)
  local before = {}
  for i, entry in ipairs(list) do
    before[i] = entry[1][entry[2]]
    entry[1][entry[2]] = entry[3]
  end
  return defer(function()
    for i, entry in ipairs(list) do entry[1][entry[2]] = before[i] end
  end)
end

-- Replaces, until the returned value is closed, the values that fn, a function of the script, and
-- the script's functions that it closes over hold in local variables: value -> replacement.
local function rebound(fn, by)
  local list, seen = {}, {}
  local function visit(f)
    seen[f] = true
    for i = 1, 255 do
      local name, value = debug.getupvalue(f, i)
      if not name then return end
      if value ~= nil and by[value] then
        list[#list + 1] = { f, i, value }
        debug.setupvalue(f, i, by[value])
      elseif type(value) == "function" and not seen[value] and errors.own_file(value) then
        visit(value)
      end
    end
  end
  if errors.own_file(fn) then visit(fn) end
  return defer(function()
    for _, one in ipairs(list) do debug.setupvalue(one[1], one[2], one[3]) end
  end)
end

-- The number of tokens of a corpus by its tokenizer, for those that do not need its text.
local vocabularies = {
  byte = function() return core.vocab_bytes():size() end,
  gpt2 = function() return GPT2 end,
  bpe = function(o) return o.merges and core.vocab_bpe(o.merges):size() or o.vocab_size end,
}

-- Returns the ids of a corpus that stands in for another, all of them 0.
local function no_ids()
  local ids = core.ids { 0 }
  for _ = 1, TOKENS do ids = core.concat({ ids, ids }, 1) end
  return ids
end

-- Returns what stands in for a corpus with a vocabulary of that size, of which each token is a
-- character; every part has the ids zeros.
local function stand_in(size, zeros)
  local characters = { "\n" }
  for i = 2, size do characters[i] = utf8.char(0x10000 + i) end
  return { train = zeros, valid = zeros, test = zeros, hash = "", vocab_files = {},
    vocab = core.vocab_chars(table.concat(characters)),
    bytes_per_token = { train = 1.0, valid = 1.0, test = 1.0 },
    stream = function() return zeros end, check_lengths = function() end }
end

-- Returns a function in place of open that calls it once for the same arguments.
local function once(open)
  local known = {}
  return function(...)
    local ok, text = pcall(json.encode, { ... })
    if not ok then return open(...) end -- one of them is a function
    known[text] = known[text] or open(...)
    return known[text]
  end
end

-- Returns the functions that open data, for dry_run.call: {table, name, function} each. Its field
-- corpus is set to the options of the corpus that was opened last.
function dry_run.openers()
  local open, list, zeros = once(corpus.open), {}, nil
  for name, fn in pairs(tasks) do
    if name ~= "hash" then list[#list + 1] = { tasks, name, once(fn) } end
  end
  list[#list + 1] = { corpus, "open", function(name, given)
    local o = options.check("corpus", corpus.spec, given)
    list.corpus = o
    local size = vocabularies[o.tokenizer] and vocabularies[o.tokenizer](o)
    if not size then return open(source.texts(name, o) or name, { tokenizer = o.tokenizer }) end
    zeros = zeros or no_ids()
    return stand_in(size, zeros)
  end }
  return list
end

-- Returns the keys that were read from c.
local function reads_of(c)
  local reads = {}
  config.add_reads(c, reads)
  return reads
end

-- Adds to the list of replaced fields the kinds of models, which call made(model) with each model.
local function watch_models(list, made)
  for _, name in ipairs(models.names()) do
    local kind = models[name]
    list[#list + 1] = { models, name, setmetatable({}, { __index = kind, __call = function(_, ...)
      local model = kind(...)
      made(model)
      return model
    end }) }
  end
end

local function acts() error("its function does more than training a model", 0) end

-- Returns fn for the library, whose tasks cache their data, expand it into temporary files and read
-- what a program prints (bible-kjv); a call of the script ends the dry run.
local function of_library(fn)
  return function(...)
    local caller, own = debug.getinfo(2, "S").source:match "^@(.*)", debug.getinfo(1, "t")
    if own.istailcall or not caller or own_code.is_own(caller) then acts() end
    return fn(...)
  end
end

-- Stands for io.stdout and io.stderr: each method does nothing and returns the file.
local silent = setmetatable({}, { __index = function() return function(self) return self end end })

-- Adds to the list of replaced fields what prints, ends a process, or changes files.
local function block(list)
  local opened = io.open
  local function open(path, mode)
    return (mode or ""):find "[wa+]" and acts() or opened(path, mode)
  end
  local function say() return silent end
  local function output(path) return path and acts() or silent end
  for _, entry in ipairs {
    { _G, "print", function() end }, { _G, "warn", function() end }, { io, "write", say },
    { io, "stdout", silent }, { io, "stderr", silent }, { io, "output", output },
    { io, "open", open }, { io, "popen", of_library(io.popen) }, { os, "execute", acts },
    { os, "exit", acts },
    { os, "remove", of_library(os.remove) }, { os, "rename", of_library(os.rename) },
    { core, "raw_write", acts }, { tensor_files, "save", acts }, { core.sys, "sleep", acts } } do
    list[#list + 1] = entry
  end
  for _, name in ipairs { "kill", "link", "mkdir", "remove", "rename", "spawn", "write_file" } do
    list[#list + 1] = { core.sys, name, of_library(core.sys[name]) }
  end
end

-- Adds to the list of replaced fields the functions that make coroutines, in each of which hook is
-- called, too: a hook belongs to one coroutine.
local function hook_coroutines(list, hook)
  local create, resume = coroutine.create, coroutine.resume
  local function hooked(fn)
    local co = create(fn)
    debug.sethook(co, hook, "", CHECKED)
    return co
  end
  local function results(ok, ...)
    if not ok then error((...), 0) end
    return ...
  end
  list[#list + 1] = { coroutine, "create", hooked }
  list[#list + 1] = { coroutine, "wrap", function(fn)
    local co = hooked(fn)
    return function(...) return results(resume(co, ...)) end
  end }
end

-- For handlers of errors: returns whether the library has raised e because of an option: in a check
-- of options, or while it made a module, as of heads that do not divide its channels. stands_in:
-- whether the data is not that of the trial, which tasks may refuse.
local function is_of_option(e, stands_in)
  local raised, checked = debug.getinfo(3, "f"), false
  if type(e) ~= "string" or not raised or raised.func ~= error then return false end
  if e:find "\n" then return false end -- of a forward pass: it ends with the path of the module
  for level = 4, 1000 do
    local info = debug.getinfo(level, "S")
    local path = info and info.source:match "^@(.*)"
    if not info or path and own_code.is_own(path) then return checked end
    if path and path:find "/nn/class%.lua$" then return true end
    if path and path:find "/base/options%.lua$" then
      checked = true
    elseif checked then
      return not (stands_in and path and path:find "/tasks/")
    end
  end
end

-- Calls the function of a trial until the model is known. Returns {model=, state= (bytes per
-- trained parameter in a checkpoint beside its own)}, or nil and why; the keys that were read, of a
-- model of the library only those before it was made; and whether an option is wrong.
function dry_run.call(exp, values, open, until_when)
  local c, found, reads, of_option = config.new(values), {}, {}, false
  open.corpus = nil
  local function stop(model, state)
    found.model, found.state, found.data = model, state, open.corpus or {}
    error(found, 0)
  end
  local function ignore() end
  local handle = { seed = values.seed, step = 0, say = ignore, log = ignore, text = ignore,
    steps = function(_, _, model, opt) stop(model, opt and 8 or 0) end }
  local function measures() error("its function measures, and trains no model", 0) end
  setmetatable(handle, { __index = acts })
  local list = {}
  for name, spec in pairs(optim.specs) do
    list[#list + 1] = { optim, name, function(model, given)
      local o = options.check("optim." .. name, spec, given)
      local moments = name ~= "sgd" and 2 or o.momentum > 0 and 1 or 0
      stop(model, 4 * (moments + ((o.ema > 0 or o.swa_start > 0) and 1 or 0)))
    end }
  end
  for _, name in ipairs { "seconds", "bytes", "operator", "in_turns" } do
    list[#list + 1] = { cost, name, measures }
  end
  block(list)
  watch_models(list, function(model) reads[model] = reads_of(c) end)
  local over = false
  local function late()
    if os.clock() <= until_when then return end
    -- A script that catches the error and goes on gets it at each of its instructions.
    local caller = debug.getinfo(2, "S").source:match "^@(.*)"
    if over and not (caller and own_code.is_own(caller)) then return end
    over = true
    debug.sethook(late, "", 1)
    error("its function takes too long", 0)
  end
  hook_coroutines(list, late)
  table.move(open, 1, #open, #list + 1, list)
  local by = {}
  for _, entry in ipairs(list) do by[entry[1][entry[2]]] = entry[3] end
  local restore <close> = replaced(list)
  local guard <close> = rebound(exp.trial, by)
  debug.sethook(late, "", CHECKED)
  local ok, why = xpcall(initial.without_init, function(e)
    of_option = not over and is_of_option(e, open.corpus ~= nil)
    return e
  end, exp.trial, handle, c)
  debug.sethook()
  if found.model then return found, nil, reads[found.model] or reads_of(c) end
  why = (ok or why == found) and "its function trains no model" or errors.text(why)
  return nil, why, reads_of(c), of_option
end

return dry_run
