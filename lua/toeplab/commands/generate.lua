-- generate.lua: toeplab generate: text from the model of a stored trial, written as it comes.
local arguments = require "toeplab.commands.arguments"
local core = require "toeplab.core"
local generate = require "toeplab.generate"
local records = require "toeplab.records"
local stop = require "toeplab.stop"
local stored = require "toeplab.stored"

local command = {
  example = 'toeplab generate @last --prompt "In the beginning" --tokens 200\n'
    .. '  toeplab generate 3f9c1a --tokens 50 --temperature 0.8 --top-k 40 --seed 7',
  usage = "toeplab generate ID [--prompt TEXT]",
  about = "Writes the prompt and what the model of a trial adds to it, token by token. The model\n"
    .. "has the parameters of its best checkpoint or, if none was kept, of its newest. ID: the\n"
    .. "beginning of a trial's id (toeplab ls), or @last. The same seed gives the same text.",
  options = {
    { name = "prompt", short = "p", value = "TEXT", help = "what the text begins with" },
    { name = "tokens", short = "n", value = "N", help = "how many to add (default 200)" },
    { name = "temperature", short = "t", value = "T",
      help = "of the softmax (default 1; 0: always the likeliest)" },
    { name = "top-k", short = "k", value = "K", help = "draw among the likeliest K" },
    { name = "seed", short = "s", value = "S", help = "of the random numbers (default 1)" },
    { name = "window", value = "N",
      help = "the model sees the last N tokens (default: the length it was trained at)" },
    { name = "last", help = "the newest checkpoint, not the best" },
    { name = "dir", short = "C", value = "DIR", help = "the results folder" },
  },
}

-- How many tokens the model sees: no more than there will be, but for the length it was trained at.
local function window(set, trained, total)
  local given = arguments.integer("generate", set, "window", 1) or trained
  return math.min(given, math.max(trained, total))
end

-- Ends the run between two tokens if a signal has come.
local function check_signals()
  local count, name = core.sys.interrupted()
  if count == 0 and not name then return end
  io.write("\n")
  stop.raise(name == "TERM" and stop.TERMINATE or name == "HUP" and stop.HANGUP
    or stop.INTERRUPT, "stopped by SIG%s", name or "INT")
end

-- The number of tokens of the prompt.
local function check_prompt(vocab, prompt)
  local fine, ids = pcall(vocab.encode, vocab, prompt)
  if not fine then stop.usage("generate: the prompt: %s", stop.plain(tostring(ids))) end
  if ids:numel() == 0 and not vocab:eos() then
    stop.usage("generate: the prompt needs at least one token: give --prompt")
  end
  return math.max(ids:numel(), 1)
end

function command.run(set, words)
  if #words ~= 1 then
    stop.usage("generate: which trial? Give one id (see toeplab ls) or @last")
  end
  local o = {
    tokens = arguments.integer("generate", set, "tokens", 0),
    temperature = arguments.number("generate", set, "temperature", 0),
    top_k = arguments.integer("generate", set, "top-k", 1),
    stream = core.stream(arguments.integer("generate", set, "seed", 0) or 1, "generate"),
  }
  local store <close> = records.open(records.folder(set.dir), "r")
  local row = store:find(words[1])
  local model, vocab, about = stored.load(store, row, {
    kind = set.last and "checkpoint" or nil,
    warn = function(...) io.stderr:write("warning: ", string.format(...), "\n") end,
  })
  if not vocab then
    stop.usage("trial %s keeps no vocabulary: give t:steps the corpus", row.id:sub(1, 12))
  end
  local prompt = set.prompt or ""
  local count = check_prompt(vocab, prompt)
  local trained = about.length or math.tointeger(store:decode(row.config).length) or 256
  o.window = window(set, trained, count + (o.tokens or 200))
  core.sys.catch_signals()
  io.write(prompt)
  function o.each(piece)
    io.write(piece)
    io.stdout:flush()
    check_signals()
  end
  generate(model, vocab, prompt, o)
  io.write("\n")
  return stop.DONE
end

return command
