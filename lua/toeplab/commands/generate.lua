-- commands/generate.lua: toeplab generate: writes text by the model of a stored trial, token by
-- token, or converts the model to a recurrent one in a file.
local arguments = require "toeplab.base.arguments"
local converted = require "toeplab.store.converted"
local core = require "toeplab.core"
local generate = require "toeplab.models.generate"
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"
local recurrent = require "toeplab.models.recurrent"
local text_table = require "toeplab.report.text_table"
local selection = require "toeplab.store.selection"
local errors = require "toeplab.base.errors"
local saved_model = require "toeplab.store.saved_model"
local suggest = require "toeplab.base.suggest"

local command = {
  example = 'toeplab generate @last --prompt "In the beginning" --tokens 200\n'
    .. '  toeplab generate 3f9c1a --tokens 50 --temperature 0.8 --top-k 40 --seed 7\n'
    .. "  toeplab generate @last --tokens 5000 --method ring\n"
    .. "  toeplab generate @last --convert model.h5",
  usage = "toeplab generate TRIAL | FILE.h5 [--prompt TEXT]\n"
    .. "       toeplab generate TRIAL --convert FILE.h5",
  about = "Writes the prompt and what the model of a trial adds to it, token by token. The model\n"
    .. "has the parameters of its best checkpoint or, without one, of its newest. ID: the\n"
    .. "beginning of a trial's id (toeplab ls), or @last; FILE.h5: what --convert wrote.\n"
    .. "The same seed gives the same text.\n\n"
    .. "Methods: window (default) runs the model on the last tokens only. The others see all\n"
    .. "text and give the same tokens: fft runs the model on all of it for each token; ring\n"
    .. "stores the last inputs of each operator; etsc stores modes.\n\n"
    .. "--convert turns a causal model into a recurrent one without training (ETSC): each\n"
    .. "Toeplitz operator becomes modes, whose state does not grow with the text. The file has\n"
    .. "all that toeplab generate needs. Prints for each operator how far its response to an\n"
    .. "impulse is from the kernel (error), the largest answer in the next lags positions, where\n"
    .. "there should be none (after), and its state and its microseconds per token beside those\n"
    .. "of a ring of inputs, which computes the same.",
  computes = true,
  options = {
    { name = "prompt", short = "p", value = "TEXT", help = "the beginning (default: a new line)" },
    { name = "tokens", short = "n", value = "N", help = "tokens to add (default 200)" },
    { name = "temperature", short = "t", value = "T",
      help = "of the softmax (default 1; 0: always the likeliest token)" },
    { name = "top-k", short = "k", value = "K", help = "draw among the likeliest K" },
    { name = "seed", short = "s", value = "S", help = "of the random numbers (default 1)" },
    { name = "window", value = "N",
      help = "the model sees the last N tokens (default: the length it was trained at)" },
    { name = "method", short = "m", value = "METHOD", help = "window, fft, ring or etsc" },
    { name = "lags", value = "N",
      help = "an operator sees N tokens (default: all; with --convert as trained)" },
    { name = "form", value = "FORM",
      help = "of etsc: exact (default), or published: right for N tokens" },
    { name = "last", help = "the newest checkpoint, not the best" },
    { name = "convert", short = "o", value = "FILE",
      help = "write the recurrent model to FILE.h5" },
    output.dir,
  },
}

-- Returns the number of tokens that the model sees: --window or the length it was trained at, but
-- no more than are needed. trained is nil for a model from a file, which stores its own window.
local function window(set, trained, total)
  if not trained then return nil end
  local given = arguments.integer("generate", set, "window", 1) or trained
  return math.min(given, math.max(trained, total))
end

local function choose(set, name, choices)
  if not set[name] then return nil end
  local ok, why = suggest.choose("--" .. name, set[name], choices)
  if not ok then errors.usage("generate: %s", why) end
  return set[name]
end

-- Raises for options that would have no effect.
local function check_together(set, word)
  local method = set.method or "window"
  local function only(name, fits, why)
    if set[name] and not fits then errors.usage("generate: --%s is %s", name, why) end
  end
  if word:find "%.h5$" then
    for _, name in ipairs { "method", "lags", "form", "window", "last", "dir", "convert" } do
      only(name, false, "for trials; a file of --convert stores its method and lags")
    end
  end
  if set.convert then
    for _, name in ipairs { "prompt", "tokens", "temperature", "top-k", "seed", "window",
      "method" } do
      only(name, false, "for text, not for --convert")
    end
    return
  end
  only("window", method == "window", "for method window")
  only("lags", method ~= "window", "for the methods fft, ring and etsc")
  only("form", method == "etsc", "for method etsc")
end

-- Raises between two tokens if a signal has arrived.
local function check_signals()
  local name, code = errors.signal()
  if not name then return end
  io.write("\n")
  errors.raise(code, "stopped by SIG%s", name)
end

-- Returns the number of tokens of the prompt; raises if it cannot be encoded.
local function check_prompt(vocab, prompt)
  local fine, ids = pcall(vocab.encode, vocab, prompt)
  if not fine then errors.usage("generate: the prompt: %s", errors.plain(tostring(ids))) end
  return math.max(ids:numel(), 1) -- an empty prompt becomes one token
end

-- Returns the model of a stored trial, its vocabulary (nil: none is stored), and a description:
-- trial, step, and the length that it was trained at, nil if its configuration does not say.
local function load_model(set, words)
  local store <close> = records.open(records.folder(set.dir), "r")
  local row = selection.one(store, words)
  local model, vocab, about = saved_model.load(store, row, {
    kind = set.last and "checkpoint" or nil,
    warn = function(...) errors.say("warning: %s", string.format(...)) end,
  })
  about.trial = row.id
  about.length = about.length or math.tointeger(store:config(row.config).length)
  return model, vocab, about
end

local function from_trial(set, words, o)
  local model, vocab, about = load_model(set, words)
  local id = about.trial:sub(1, 12)
  if not vocab then errors.usage("trial %s has no vocabulary: pass the corpus to t:steps", id) end
  if model.causal == false then
    errors.usage("generate: the model of trial %s is not causal", id)
  end
  if o.method == "ring" or o.method == "etsc" then recurrent.operators(model) end
  return model, vocab, about.length or 256
end

local function from_file(path, o)
  local session, vocab, about = converted.open(path)
  if not vocab then errors.usage("%s has no vocabulary, as its trial had none", path) end
  if about.form == "published" then
    io.stderr:write(("note: the published form is right for %d tokens only\n"):format(about.lags))
  end
  o.session = session
  return session.model, vocab
end

-- Returns the length of the complete characters of a text, excluding a character cut off at its
-- end.
local function complete_length(text)
  local start = text:find("[\xC2-\xF4][\x80-\xBF]*$")
  local first = start and text:byte(start) or 0
  local bytes = first < 0xE0 and 2 or first < 0xF0 and 3 or 4
  return start and #text - start + 1 < bytes and start - 1 or #text
end

-- Writes what generate yields token by token; on a terminal in whole characters and without control
-- characters. If it fails at the start, it prints nothing.
local function write_text(model, vocab, prompt, o)
  local rest = prompt
  core.sys.catch_signals()
  function o.each(piece)
    rest = rest .. piece
    local count = complete_length(rest)
    io.write(output.data(rest:sub(1, count)))
    io.stdout:flush()
    rest = rest:sub(count + 1)
    check_signals()
  end
  generate(model, vocab, prompt, o)
  io.write(output.data(rest), "\n")
end

-- ---- The recurrent model ----------------------------------------------------------------------

-- Converts the model layer by layer, and measures each layer while its kernel exists.
local function session_of(model, form, lags)
  local rows = {}
  local session = recurrent.session(model, function(tno, name)
    local t, gamma = recurrent.kernel(tno, lags, name)
    local recurrence = core.recurrence(t, gamma, form)
    local row = core.no_grad(converted.measure, { recurrence = recurrence }, t, gamma)
    row.name = name
    rows[#rows + 1] = row
    return recurrence
  end)
  return session, rows
end

local function print_rows(rows)
  local header = { "operator", "lags", "modes", "error", "after", "state KiB", "ring KiB", "us",
    "ring us" }
  local lines, total = {}, { name = "all", bytes = 0, ring_bytes = 0, seconds = 0,
    ring_seconds = 0, error = 0, after = 0 }
  local function add(row)
    lines[#lines + 1] = {
      row.name, row.lags or "", row.modes or "", ("%.1e"):format(row.error),
      ("%.1e"):format(row.after), ("%.0f"):format(row.bytes / 1024),
      ("%.0f"):format(row.ring_bytes / 1024), ("%.1f"):format(row.seconds * 1e6),
      ("%.1f"):format(row.ring_seconds * 1e6),
    }
  end
  for _, row in ipairs(rows) do
    add(row)
    for _, name in ipairs { "bytes", "ring_bytes", "seconds", "ring_seconds" } do
      total[name] = total[name] + row[name]
    end
    for _, name in ipairs { "error", "after" } do total[name] = math.max(total[name], row[name]) end
  end
  add(total)
  text_table.print(header, lines)
end

local function convert(set, words)
  if not set.convert:find "[^/]%.h5$" then
    errors.usage("generate: --convert '%s' must end in .h5, by which toeplab generate knows a file",
      set.convert)
  end
  local form = choose(set, "form", recurrent.forms) or "exact"
  local lags = arguments.integer("generate", set, "lags", 1)
  local model, _, about = load_model(set, words)
  recurrent.operators(model) -- raises before any costly work
  lags = lags or about.length or 256
  local session, rows = session_of(model:eval(), form, lags)
  converted.write(set.convert, session, about, form, lags)
  print_rows(rows)
  print(("%s: trial %s, step %d, %s form, %d lags"):format(set.convert, about.trial:sub(1, 12),
    about.step, form, lags))
end

function command.run(set, words)
  if #words == 0 then
    errors.usage("generate: which trial? Give one id (see toeplab ls) or @last, or a file")
  end
  check_together(set, words[1])
  if set.convert then
    return convert(set, words)
  end
  local o = {
    tokens = arguments.integer("generate", set, "tokens", 0),
    temperature = arguments.number("generate", set, "temperature", 0),
    top_k = arguments.integer("generate", set, "top-k", 1),
    method = choose(set, "method", { "window", "fft", "ring", "etsc" }),
    form = choose(set, "form", recurrent.forms),
    lags = arguments.integer("generate", set, "lags", 1),
    stream = core.stream(arguments.integer("generate", set, "seed", 0) or 1, "generate"),
  }
  local model, vocab, trained
  if #words == 1 and words[1]:find "%.h5$" then
    model, vocab = from_file(words[1], o)
  else
    model, vocab, trained = from_trial(set, words, o)
  end
  local prompt = set.prompt or ""
  o.window = window(set, trained, check_prompt(vocab, prompt) + (o.tokens or 200))
  write_text(model, vocab, prompt, o)
end

return command
