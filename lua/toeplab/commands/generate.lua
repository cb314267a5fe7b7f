-- commands/generate.lua: toeplab generate: generates text with the model of a stored trial, scores
-- texts, or converts the model to a recurrent one in a file.
local arguments = require "toeplab.base.arguments"
local characters = require "toeplab.base.characters"
local converted = require "toeplab.models.files.converted"
local core = require "toeplab.core"
local decode = require "toeplab.models.decode"
local distill = require "toeplab.models.distill"
local json = require "toeplab.base.json"
local models = require "toeplab.models"
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"
local recurrent = require "toeplab.models.recurrent"
local text_table = require "toeplab.base.text_table"
local errors = require "toeplab.base.errors"
local files = require "toeplab.base.files"
local experiment = require "toeplab.trials.experiment"
local open_model = require "toeplab.trials.open_model"
local suggest = require "toeplab.base.suggest"

local command = {
  example = 'toeplab generate @last --prompt "In the beginning" --tokens 200\n'
    .. '  toeplab generate 3f9c1a --tokens 50 --temperature 0.8 --top-p 0.9 --seed 7\n'
    .. "  toeplab generate @last --prompts questions.txt --method auto --stop '?'\n"
    .. "  toeplab generate @last --convert model.h5",
  usage = "toeplab generate TRIAL | FILE [--prompt TEXT]\n"
    .. "       toeplab generate TRIAL | FILE --prompts FILE [--score]\n"
    .. "       toeplab generate TRIAL --convert FILE.h5",
  about = "Writes the prompt and its continuation by the model of a trial, token by token. The\n"
    .. "model has the parameters of its best checkpoint or, without one, of its newest. ID: the\n"
    .. "beginning of a trial's id (toeplab ls), or @last; FILE: written by --convert (.h5) or by\n"
    .. "toeplab export --weights (.safetensors), or a checkpoint (.h5).\n"
    .. "The same seed gives the same text.\n\n"
    .. "Methods: window (default) runs the model on the last tokens only. The others see all\n"
    .. "text and give the same tokens: fft runs the model on all of it for each token; ring\n"
    .. "stores the last inputs of each operator; etsc stores modes; relaxed stores inputs and\n"
    .. "adds up old ones in blocks, which is faster from about 32 tokens on; auto chooses ring\n"
    .. "or relaxed, or fft, with a note, for a model that cannot run position by position.\n\n"
    .. "Several prompts are continued in batches, and each gives one line of JSON: prompt, text,\n"
    .. "ids, reason (stop or length), logprob in nats, perplexity and seed, which is --seed for\n"
    .. "the first prompt and one more for each after it. A text does not depend on the others.\n"
    .. "--score generates nothing: it scores what follows the first tab of each prompt.\n\n"
    .. "--convert turns a causal model into a recurrent one without training (ETSC): each\n"
    .. "Toeplitz operator becomes modes, whose state does not grow with the text. The file has\n"
    .. "all that toeplab generate needs. Prints for each operator how far its response to an\n"
    .. "impulse is from the kernel (error), the largest answer in the next lags positions, where\n"
    .. "there should be none (after), and its state and its microseconds per token beside a ring\n"
    .. "of inputs, which computes the same. --form balanced and fitted keep --modes\n"
    .. "modes only, an approximation (distillation): by balanced truncation, with a bound on the\n"
    .. "error of any output, or by least squares in the same state space.",
  computes = true,
  words = { "trials_or_file" },
  options = {
    { name = "prompt", short = "p", value = "TEXT", many = true,
      help = "the beginning (default: a new line); may be repeated",
      more = [[
        By default the text begins after a newline or, in a vocabulary without one, a space.]] },
    { name = "prompts", value = "FILE", help = "a prompt a line (- for standard input)",
      more = [[
        Writes a line of JSON about each in their order: index, prompt, text, ids of the tokens,
        reason for its end (`stop` or `length`), seed, method, log-probability of the ids in nats
        and perplexity. A text depends on its prompt, the options and its seed, which grows by
        one per line, and on nothing else.]] },
    { name = "tokens", short = "n", value = "N", help = "tokens to add (default 200)" },
    { name = "temperature", short = "t", value = "T",
      help = "softmax temperature (default 1; 0: always the likeliest token)" },
    { name = "top-k", short = "k", value = "K", help = "draw among the likeliest K" },
    { name = "top-p", value = "P",
      help = "draw among the likeliest that hold P of the probability",
      more = "Applies after `--temperature` and `--top-k`." },
    { name = "repetition-penalty", value = "R",
      help = "divide the logits of earlier tokens, multiply negative ones (default 1)" },
    { name = "seed", short = "s", value = "S", help = "random seed (default 1)" },
    { name = "stop", value = "TEXT", many = true,
      help = "end a text before TEXT; may be repeated" },
    { name = "stop-token", value = "ID", many = true,
      help = "end a text at this token; may be repeated",
      more = [[
        The output holds whole characters only: invalid bytes become U+FFFD, and a character
        that the last token leaves incomplete is dropped.]] },
    { name = "batch", value = "N", help = "texts at a time (default 16)",
      more = [[
        Each text has its own state in memory and, without --lags, its own kernels. Another
        N may round differently.]] },
    { name = "score", help = "score the text after the first tab of each prompt",
      more = [[
        Generates nothing, and writes a line of JSON with the log-probability of that text given
        the text before it, or of the whole line if it has no tab. Both are encoded as one text,
        in which no token may span the tab; if one would, blanks before the tab are scored too.]] },
    { name = "json", help = "one line of JSON for each prompt, even for one" },
    { name = "window", value = "N",
      help = "the model sees the last N tokens (default: the length it was trained at)" },
    { name = "method", short = "m", value = "METHOD",
      choices = decode.methods, help = "how to compute: " .. table.concat(decode.methods, ", "),
      more = [[
        `window`, the default, runs the model on the last tokens and cuts off the beginning of a
        longer text. The others see all of the text and give the same tokens: `fft`
        runs the model on it for each token; `ring` keeps the last inputs of each Toeplitz
        operator; `etsc` keeps complex modes instead; `relaxed` keeps inputs and adds up the old
        ones in blocks, by Fourier transforms of lengths that are powers of two; `auto` is ring
        for operators of at most 32 lags, relaxed for longer ones, and fft, with a note of the
        reason, for a model that cannot run position by position. `ring`, `etsc` and `relaxed`
        require a model whose tokens are mixed only by causal Toeplitz operators, by mixers with
        a state, such as Mamba, or by attention, which keeps its keys and values. With ring and
        etsc the cost of a token is proportional to the operator's lags.
        With relaxed n tokens cost about n log(n)^2 in all, and most of them cost little; after q
        tokens, a power of two up to 2048, one waits for a product of that length. A longer product
        is computed in the background while as many tokens are generated as it is long, and a
        token waits for it only if it has not finished. With --threads 1 these tokens compute it
        themselves, each for 16 channels of an operator at most.
        The prompt costs as much as one forward pass, and memory is allocated for the added
        tokens, not for the prompt.]] },
    { name = "lags", value = "N",
      help = "an operator sees N tokens (default: all; with --convert as trained)" },
    { name = "form", value = "FORM", choices = { "exact", "published", "balanced", "fitted" },
      help = "with etsc: exact (default), or published: right for N tokens; "
        .. "with --convert also balanced or fitted",
      more = [[
        After N tokens each operator of form `published` repeats itself. `balanced` and `fitted`
        approximate each operator by few modes (distillation): by balanced truncation, which
        prints a bound on the error of any output relative to the operator's largest gain; or by
        least squares in the same state space.]] },
    { name = "modes", value = "N", help = "modes of the forms balanced and fitted (default 16)",
      more = "The cost of a step grows with the square of N." },
    { name = "last", help = "the newest checkpoint, not the best" },
    { name = "script", value = "FILE", of = "experiment",
      help = "the experiment whose function model makes the model (of a class of its own)",
      more = [[
        Its field `model = function(c, vocab)` makes the model of a trial with the configuration
        c. Required for a model whose class or mixer comes from its script, because only its
        parameters are stored. The current version of the script is run.]] },
    { name = "convert", short = "o", value = "FILE", writes = true,
      help = "write the recurrent model to FILE.h5",
      more = [[
        Writes no text: turns the causal model of a stored trial into a recurrent one without
        training (ETSC) and writes it with its vocabulary, whole or not at all; an operator sees
        `--lags` tokens, by default as many as it was trained at. Prints for each operator the
        error of its answer to an impulse, relative to the kernel, the largest answer after the
        last lag, its state in KiB per sequence and its time per token, beside a ring of the
        last inputs, which computes the same.]] },
    output.dir,
  },
}

-- ---- Words --------------------------------------------------------------------------------------

local function choose(set, name, choices)
  if not set[name] then return nil end
  local ok, why = suggest.choose("--" .. name, set[name], choices)
  if not ok then errors.usage("generate: %s", why) end
  return set[name]
end

local of_drawing = { "tokens", "temperature", "top-k", "top-p", "repetition-penalty", "seed",
  "stop", "stop-token", "batch", "json", "window", "method" }

-- Raises for options that would have no effect.
local function check_together(set, word)
  local method = set.method or "window"
  local function only(name, fits, why)
    if set[name] and not fits then errors.usage("generate: --%s is %s", name, why) end
  end
  if open_model.is_file(word) then
    for _, name in ipairs { "last", "dir" } do only(name, false, "for trials, not for a file") end
  end
  if open_model.is_file(word) and converted.is(word) and not set.convert then
    for _, name in ipairs { "method", "lags", "form", "modes", "window" } do
      only(name, false, ("for trials; %s, a file of --convert, stores its method and lags"):format(
        word))
    end
  end
  only("modes", set.convert and distill.has(set.form),
    "for --convert with --form balanced or fitted")
  if set.convert then
    for _, name in ipairs { "prompt", "prompts", "score", table.unpack(of_drawing) } do
      only(name, false, "for text, not for --convert")
    end
    return
  end
  only("prompts", not set.prompt, "an alternative to --prompt")
  local idle, whose = decode.idle(set, method)
  if idle then only(idle, false, whose) end
  if not set.score then return end
  for _, name in ipairs(of_drawing) do only(name, false, "for text, not for --score") end
end

local MOST_PROMPTS = 1 << 28 -- bytes of a file of prompts

-- Returns the prompts, a list of {text=, at= where it stands, for messages}.
local function prompts_of(set)
  local list = {}
  for i, text in ipairs(set.prompt or { not set.prompts and "" or nil }) do
    list[i] = { text = text, at = #(set.prompt or {}) > 1 and "prompt " .. i or "the prompt" }
  end
  if not set.prompts then return list end
  local path = set.prompts ~= "-" and set.prompts or "/dev/stdin"
  local text, why = files.read(path, MOST_PROMPTS)
  if not text then
    errors.usage("generate: --prompts: %s", why)
  end
  for line in (text:gsub("\n$", "") .. "\n"):gmatch "(.-)\r?\n" do
    list[#list + 1] = { text = line, at = ("%s:%d"):format(set.prompts, #list + 1) }
  end
  if text == "" then errors.usage("generate: %s is empty: it holds no prompt", set.prompts) end
  return list
end

-- Returns whether an error reports that Lua or the engine has run out of memory.
local function is_full(why)
  return why == "not enough memory" or type(why) == "table" and rawget(why, "status") == "ENOMEM"
end

-- Sets the token count of each prompt; a prompt that cannot be encoded is a usage error. For
-- scores, splits it at its first tab into before, which may be empty, and continuation.
local function check_prompts(vocab, list, scored)
  for _, prompt in ipairs(list) do
    local function count(fn, ...)
      local fine, ids, more = pcall(fn, vocab, ...)
      if fine then return #ids + #(more or {}) end
      if is_full(ids) then
        errors.raise(errors.FAILED, "generate: %s: its %d bytes do not fit into memory as tokens",
          prompt.at, #prompt.text)
      end
      local why = errors.text(ids):gsub("^generate: ", "")
      errors.usage("generate: %s: %s", prompt.at, why)
    end
    if scored then
      local before, after = prompt.text:match "^(.-)\t(.*)$"
      prompt.before, prompt.continuation = before or "", after or prompt.text
      if prompt.continuation == "" then
        errors.usage("generate: %s: there is nothing to score%s", prompt.at,
          after and " after the tab" or "")
      end
      prompt.count = count(decode.split, prompt.before, prompt.continuation)
    else
      prompt.count = count(decode.ids, prompt.text)
    end
  end
end

-- Returns the list of strings and token ids at which a text stops.
local function stops_of(set, vocab)
  local list = table.move(set.stop or {}, 1, #(set.stop or {}), 1, {})
  for _, text in ipairs(list) do
    if text == "" then errors.usage "generate: --stop takes a string, got an empty one" end
  end
  for _, word in ipairs(set["stop-token"] or {}) do
    local id = math.tointeger(tonumber(word))
    if not id or id < 0 or id >= vocab:size() then
      errors.usage("generate: --stop-token takes the id of a token, 0 to %d, got '%s'",
        vocab:size() - 1, word)
    end
    list[#list + 1] = id
  end
  return list
end

-- ---- The model ----------------------------------------------------------------------------------

-- Returns the model of a stored trial, its vocabulary (nil: none is stored), and a description:
-- trial, step, and the length that it was trained at (nil: unknown).
local function load_model(set, words)
  local build = experiment.builder(set.script)
  local model, vocab, about
  if #words == 1 and open_model.is_file(words[1]) then
    model, vocab, about = open_model.file(words[1], build)
  else
    local store <close> = records.open(records.folder(set.dir), "r")
    model, vocab, about = open_model.trial(store, words, { last = set.last, build = build })
  end
  open_model.check_script("generate", set.script, about)
  local length = (about.config or {}).length
  about.length = about.length or math.type(length) == "integer" and length or nil
  return model, vocab, about
end

-- Returns how messages name the model.
local function name_of(words, about)
  return open_model.is_file(words[1]) and words[1] or "trial " .. about.trial:sub(1, 12)
end

-- Raises for a built-in model that does not predict the next token.
local function check_language_model(model, who)
  local name = models.name_of(model)
  if name and name ~= "tnn_lm" then
    errors.usage("generate: the model of %s is a %s, not a causal language model", who, name)
  end
end

-- Prepares to continue a converted model, which has a method of its own.
local function use_session(about, o)
  if about.form == "published" then
    errors.say("note: the published form is exact for the first %d tokens only", about.lags)
  end
  o.session = about.session
end

-- Returns the model, its vocabulary, and the length it was trained at, nil if it is converted.
local function model_for_text(set, words, o)
  local model, vocab, about = load_model(set, words)
  local who = name_of(words, about)
  if about.session then use_session(about, o) end
  check_language_model(model, who)
  if not vocab then errors.usage("%s has no vocabulary: pass the corpus to t:steps", who) end
  if model.causal == false then errors.usage("generate: the model of %s is not causal", who) end
  if o.method and not about.session then
    local method, why = decode.method_of(model, o) -- raises before any costly work
    if why then errors.say("note: each token runs the model on all text (%s): %s", method, why) end
    o.method = method
  end
  return model:eval(), vocab, not about.session and (about.length or 256) or nil
end

-- ---- Output -------------------------------------------------------------------------------------

local PIPE = 4096 -- bytes that a ready pipe accepts without blocking

-- Writes text at once, in whole characters. A signal ends the program even while nobody reads.
local function put(text)
  while #text > 0 do
    local piece = text:sub(1, PIPE)
    if #piece < #text then piece = piece:sub(1, characters.complete(piece)) end
    text = text:sub(#piece + 1)
    while not core.sys.output_ready() do errors.check_signals() end
    local fine, why = io.write(piece)
    if fine then fine, why = io.stdout:flush() end
    if not fine then errors.raise(errors.FAILED, "standard output: %s", why) end
  end
end

-- Calls fn. Turns a lack of memory into an error that names the length of the text, whose prompt
-- has `count` tokens, and what to change.
local function with_memory(count, more, advice, fn)
  local ok, why = pcall(fn)
  if ok then return end
  if not is_full(why) then error(why, 0) end
  errors.raise(errors.FAILED, "generate: a prompt of %d tokens and %d more do not fit into memory "
    .. "(%s)\ngive a shorter prompt%s", count, more, errors.text(why), advice)
end

-- Calls fn so that a signal ends it at once. Errors name the length of the longest prompt.
local function interruptible(list, more, advice, fn)
  local most = 0
  for _, prompt in ipairs(list) do most = math.max(most, prompt.count) end
  core.sys.catch_signals()
  core.sys.on_signal(function()
    core.sys.on_signal(nil)
    errors.check_signals()
  end)
  with_memory(most, more, advice, fn)
  core.sys.on_signal(nil)
end

-- Writes the prompt and its continuation token by token, in whole characters and, on a terminal,
-- without control characters. Prints nothing if it fails at the start.
local function write_text(model, prompt, o)
  local shown = characters.valid(prompt.text:sub(1, characters.complete(prompt.text)))
  interruptible({ prompt }, o.n, ", fewer --tokens or --lags", function()
    for token in decode.stream(model, o) do
      core.sys.on_signal(nil) -- from here on a signal ends the text after a token
      put(output.data(shown .. token.text))
      shown = ""
      if errors.signal() then put "\n" end
      errors.check_signals()
    end
  end)
  put(output.data(shown) .. "\n")
end

-- Writes a line of JSON for each prompt, as soon as it and those before it are done.
local function write_batch(model, list, o)
  o.prompts, o.logprobs = {}, true
  for i, prompt in ipairs(list) do o.prompts[i] = prompt.text end
  interruptible(list, o.n, ", fewer --tokens or --lags, or a smaller --batch", function()
    for result in decode.batch(model, o) do
      result.perplexity = #result.ids > 0 and math.exp(-result.logprob / #result.ids) or nil
      result.method = not o.session and (o.method or "window") or nil
      if #result.ids == 0 then result.ids = json.none end
      put(json.line(result) .. "\n")
    end
  end)
end

-- Writes a line of JSON about the continuation of each prompt.
local function write_scores(model, vocab, list, session)
  interruptible(list, 0, "", function()
    for i, prompt in ipairs(list) do
      local result = decode.score(model, { vocab = vocab, prompt = prompt.before,
        continuation = prompt.continuation, session = session })
      result.index, result.prompt, result.continuation = i, prompt.before, prompt.continuation
      put(json.line(result) .. "\n")
    end
  end)
end

-- ---- The recurrent model ----------------------------------------------------------------------

local function print_rows(rows)
  local header = { "operator", "lags", "modes", "error", "bound", "after", "state KiB",
    "ring KiB", "us", "ring us" }
  local lines, total = {}, { name = "all", bytes = 0, ring_bytes = 0, seconds = 0,
    ring_seconds = 0, error = 0, after = 0 }
  local function add(row)
    lines[#lines + 1] = {
      row.name, row.lags or "", row.modes or "", ("%.1e"):format(row.error),
      row.bound and ("%.1e"):format(row.bound) or "", ("%.1e"):format(row.after),
      ("%.0f"):format(row.bytes / 1024),
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
    if row.bound then total.bound = math.max(total.bound or 0, row.bound) end
  end
  add(total)
  text_table.print(header, lines)
end

-- Raises unless --convert names a file of the right ending in an existing folder.
local function check_output(path)
  if not path:find "[^/]%.h5$" then
    errors.usage("generate: --convert '%s' must end in .h5, so that generate takes it for a file",
      path)
  end
  local folder = path:match "^(.*/)[^/]*$"
  if folder and not core.sys.exists(folder) then
    errors.usage("generate: --convert '%s': there is no folder '%s'", path, folder)
  end
end

local function convert(set, words)
  check_output(set.convert)
  local forms = { "exact", "published", table.unpack(distill.forms) }
  local form = choose(set, "form", forms) or "exact"
  local modes = arguments.integer("generate", set, "modes", 1) or 16
  local lags = arguments.integer("generate", set, "lags", 1)
  local model, _, about = load_model(set, words)
  if about.session then errors.usage("generate: %s is converted already", words[1]) end
  if about.programmed then
    errors.usage("generate: --convert: the file would not open, because the %s of the model of %s "
      .. "comes from its script", about.programmed, name_of(words, about))
  end
  recurrent.operators(model) -- raises before any costly work
  lags = lags or about.length or 256
  local session, rows = converted.session(model:eval(), form, lags, modes)
  converted.write(set.convert, session, about, form, lags)
  print_rows(rows)
  print(("%s: trial %s, step %s, %s form, %d lags"):format(set.convert,
    (about.trial or "unknown"):sub(1, 12), about.step or "unknown", form, lags))
end

-- Returns the options of generation that can be read without the model.
local function options_of(set)
  local p = arguments.number("generate", set, "top-p", 0)
  local penalty = arguments.number("generate", set, "repetition-penalty", 1e-3, 1000)
  if p and not (p > 0 and p <= 1) then
    errors.usage("generate: --top-p takes a share above 0, at most 1, got '%s'", set["top-p"])
  end
  return {
    n = arguments.integer("generate", set, "tokens", 0) or 200,
    temperature = arguments.number("generate", set, "temperature", 0, 1000000),
    top_k = arguments.integer("generate", set, "top-k", 1, (1 << 31) - 1),
    top_p = p and math.max(p, 1e-6),
    repetition_penalty = penalty,
    method = choose(set, "method", decode.methods), form = choose(set, "form", recurrent.forms),
    lags = arguments.integer("generate", set, "lags", 1),
    seed = arguments.integer("generate", set, "seed", 0) or 1,
    batch = arguments.integer("generate", set, "batch", 1, 1 << 16),
  }
end

function command.run(set, words)
  if #words == 0 then
    errors.usage("generate: which trial? Give one id (see toeplab ls) or @last, or a file")
  end
  check_together(set, words[1])
  if set.convert then
    return convert(set, words)
  end
  local o, list = options_of(set), prompts_of(set)
  local given = arguments.integer("generate", set, "window", 1)
  local model, vocab, trained = model_for_text(set, words, o)
  check_prompts(vocab, list, set.score)
  if set.score then return write_scores(model, vocab, list, o.session) end
  o.vocab, o.stop = vocab, stops_of(set, vocab)
  o.window, o.trained = trained and (given or trained), trained
  if set.prompts or set.json or #list > 1 then return write_batch(model, list, o) end
  if set.batch then errors.usage("generate: --batch requires several prompts or --json") end
  o.prompt, o.batch = list[1].text, nil
  write_text(model, list[1], o)
end

return command
