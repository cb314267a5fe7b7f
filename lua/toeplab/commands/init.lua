-- commands/init.lua: dispatches the verbs of the toeplab program; main runs one and returns its
-- exit code.
local arguments = require "toeplab.base.arguments"
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local errors = require "toeplab.base.errors"
local internal_files = require "toeplab.store.internal_files"
local manual = require "toeplab.commands.unlisted.manual"
local shell = require "toeplab.base.shell"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local commands = {}

-- The verbs in the order of the help. now: the command that replaces a former verb.
local verbs = {
  { "run", "run an experiment: start it, continue it, repair it" },
  { "plan", "count what a run would do, with the time and disk it takes; run nothing" },
  { "status", "show the progress of sweeps, also while they run" },
  { "watch", "follow a sweep in the terminal: curves, logs, stopping a trial" },
  { "ls", "list trials; group failed ones by cause; ask the store in SQL" },
  { "show", "show all that is known of a trial, or how two differ" },
  { "table", "print a published table beside measured values, or an experiment's" },
  { "compare", "compare two settings, paired by seed: what may be claimed" },
  { "mark", "give trials tags and notes to find them by" },
  { "rm", "move trials to the trash or back, or empty it" },
  { "merge", "copy the trials of another results folder" },
  { "reproduce", "run a trial again: bit-identical, or where it differs and why" },
  { "plot", "draw learning curves, sweeps, Toeplitz matrices, kernels and responses" },
  { "report", "write one page of HTML about a sweep, to keep or to send" },
  { "export", "write trials or metrics as CSV or JSON" },
  { "doctor", "report what this machine, the backends and the results folder offer" },
  { "fsck", "check the results folder, and repair it" },
  { "generate", "write text with the model of a trial, or make the model recurrent" },
  { "verify", "run reference cases on backends and layers" },
  { "model", "show a model: its tree, parameters and memory" },
  { "bench", "measure time and memory of operators and models" },
  { "data", "list and fetch data sets; learn a vocabulary of byte pairs" },
  { "lua", "run a Lua script with the library, or Lua line by line" },
  { "help", "help on a verb, exit-codes or environment; find words in the manual" },
  { "version", "print the version and the build options" },
  { "worker", "run the trials that a run hands out", unlisted = true },
  { "complete", "print the completions of the last word of a command line", unlisted = true },
  { "cancel", now = "status --cancel" },
  { "backends", now = "doctor --backends" },
  { "bpe", now = "data bpe CORPUS --size N --out FILE" },
  { "convert", now = "generate TRIAL --convert FILE.h5" },
  { "diff", now = "show --diff TRIAL TRIAL" },
  { "failures", now = "ls --failures [TRIAL...]" },
  { "gc", now = "rm --purge" },
  { "note", now = "mark TRIAL... --note TEXT" },
  { "repl", now = "lua -i" },
  { "restore", now = "rm --restore TRIAL..." },
  { "sql", now = "ls --sql QUERY" },
  { "tag", now = "mark TRIAL... --tag TAG" },
}

commands.topics = {}
local topics = commands.topics

topics["exit-codes"] = [[
Exit codes
  0    all done
  1    at least one trial failed, or was stopped alone; or a download failed
  2    wrong usage, configuration or script; nothing was started
  3    the experiment's budget is used up; the same command continues with as much again
  4    a check failed (verify, doctor, reproduce, table --tolerance), no claim was measured
       (compare), results differ (merge), or a file's sha256 is not the published one (data)
  5    another process is writing to the results folder
  6    the storage is damaged or full (fsck: damage remains)
  130  stopped by SIGINT (129: SIGHUP, 143: SIGTERM, SIGUSR1, SIGUSR2): the same command continues]]

topics.environment = [[
Environment
  TOEPLAB_DIR        the results folder (default: results, here or in a folder above)
  TOEPLAB_DATA       the folder of the data sets, unpacked or as archives
  TOEPLAB_BACKENDS   folders with further backends, separated by ':'
  TOEPLAB_CACHE      the folder for tuning results, tokenised texts and, where TOEPLAB_DATA is
                     not writable, data sets (default: ~/.cache/toeplab);
                     empty: none
  TOEPLAB_THREADS    the number of threads, as --threads N before the verb
  TOEPLAB_DEVICE     where lua, generate, verify and bench compute, and the key device of
                     experiments that do not declare it: cpu (the default), cuda, or cuda:1, the
                     second GPU
  TOEPLAB_GRAPHS     off: no CUDA graphs of training steps on a GPU
  TOEPLAB_PYTHON     the Python interpreters whose PyTorch bench measures, separated by ':'
                     (default: python3); empty: none
  TOEPLAB_TESTS      the folder tests of a checkout, whose tests bench gpu runs
  TOEPLAB_CUDA       folders of CUDA's libraries, separated by ':', if they are neither found by
                     the loader nor beside PyTorch nor in a toolkit
  TOEPLAB_LUA        the folder of the Lua library, if not the installed one
  TOEPLAB_TRACEBACK  set: errors in scripts print a traceback
  NO_COLOR           set: no colour; FORCE_COLOR: colour also without a terminal
  COLUMNS, TERM, XDG_CACHE_HOME   as usual]]

-- Returns the verbs that the help lists, {name, what it does} each.
function commands.verbs()
  local list = {}
  for _, verb in ipairs(verbs) do
    if not verb.unlisted and not verb.now then list[#list + 1] = verb end
  end
  return list
end

-- Returns the module of a verb; nil for help and version, which this file implements.
function commands.of(name)
  if name == "help" or name == "version" then return nil end
  for _, verb in ipairs(verbs) do
    if verb[1] == name and not verb.now then
      return require("toeplab.commands." .. (verb.unlisted and "unlisted." or "") .. name)
    end
  end
end

local function overview()
  local lines = {
    "toeplab run experiments/quickstart.lua", "",
    "usage: toeplab [--threads N] VERB [ARGUMENTS]      toeplab VERB --help says more", "",
  }
  for _, verb in ipairs(commands.verbs()) do
    lines[#lines + 1] = ("  %-10s %s"):format(verb[1], verb[2])
  end
  lines[#lines + 1] = "\nmore help: toeplab help exit-codes, toeplab help environment,"
    .. "\n           toeplab help WORDS (where the manual has them)"
  return shell.named(table.concat(lines, "\n"))
end

-- Returns the help of a verb's module, which begins with an example.
local function help_of(command)
  local lines = { command.example, "", "usage: " .. command.usage, "", command.about }
  if #command.options > 0 then lines[#lines + 1] = "" end
  for _, o in ipairs(arguments.listed(command.options)) do
    local left = (o.short and "-" .. o.short .. ", " or "    ") .. "--" .. o.name
      .. (o.value and " " .. o.value or "")
    lines[#lines + 1] = ("  %-28s %s"):format(left, o.help)
  end
  return shell.named(table.concat(lines, "\n"))
end

-- Returns the names of verbs, after the keys of more, if given.
local function names_with(more)
  local names = sorted_keys(more or {})
  for _, verb in ipairs(commands.verbs()) do names[#names + 1] = verb[1] end
  return names
end

-- Returns the entry of a verb; more: a table whose keys are suggested, too.
local function find(name, more)
  for _, verb in ipairs(verbs) do
    if verb[1] == name and verb.now then
      errors.usage("'%s' is now: toeplab %s", name, verb.now)
    elseif verb[1] == name then
      return verb
    end
  end
  errors.usage("unknown verb%s '%s'%s (see toeplab help)", more and " or topic" or "", name,
    suggest.hint(name, names_with(more)))
end

-- Whether the name is a verb's, or begins a topic's, which is probably meant.
local function is_verb(name)
  for _, verb in ipairs(verbs) do
    if verb[1] == name then return true end
  end
  for topic in pairs(topics) do
    if topic:sub(1, #name) == name then return true end
  end
  return false
end

local function show_help(topic)
  if not topic then
    print(overview())
  elseif topics[topic] then
    print(topics[topic])
  else
    local found, why
    if not is_verb(topic) then found, why = manual.find(topic) end
    if found then
      print(found)
      local slip = not found:lower():find("%f[%w]" .. topic:lower():gsub("%p", "%%%0") .. "%f[%W]")
      local near = slip and suggest.nearest(topic, names_with(topics))
      if near then print(("Did you mean '%s'?"):format(near)) end
      return errors.DONE
    end
    if topic:find "%s" or topic:find "^tl%." then errors.usage("help: %s", why) end
    local verb = find(topic, topics)
    local command = commands.of(topic)
    print(command and help_of(command) or shell.named("toeplab %s\n\n%s"):format(topic, verb[2]))
  end
  return errors.DONE
end

local function show_version(words)
  if #words > 0 then errors.usage("version: takes no words, got '%s'", words[1]) end
  print("toeplab " .. core.version)
  local info = core.build_info()
  for _, name in ipairs(sorted_keys(info)) do print(("  %-10s %s"):format(name, info[name])) end
  return errors.DONE
end

local function dispatch(words)
  local name = words[1]
  local rest = table.move(words, 2, #words, 1, {})
  if not name or name == "--help" or name == "-h" then return show_help() end
  if name == "--version" then return show_version(rest) end
  if name:find "^%-C" or name:find "^%-%-dir%f[^%w]" then -- before the verb, as git takes its -C
    errors.usage("%s, the results folder, follows the verb: toeplab ls -C results", name)
  end
  if name:find("^%-") then errors.usage("unknown option '%s' (see toeplab help)", name) end
  find(name)
  local command = commands.of(name)
  local set, others = arguments.parse(name, command and command.options or {}, rest,
    command and (command.words or {})[2] == "keys")
  if not set then return show_help(name) end
  if name == "version" then return show_version(others) end
  if name == "help" then return show_help(others[1] and table.concat(others, " ")) end
  for _, o in ipairs(command.options) do
    if o.writes and set[o.name] then internal_files.refuse(name, o.name, set[o.name]) end
  end
  if command.computes then devices.use(set.device or devices.usual()) end
  return command.run(set, others, words) or errors.DONE
end

local function complain(message) errors.say("toeplab: %s", errors.shown(message)) end

-- Adds a traceback to errors that are not of class stop: those are bugs of the program or a script.
local function handler(e)
  if errors.is(e) then return e end
  local message = errors.text(e)
  local trace = os.getenv("TOEPLAB_TRACEBACK") and debug.traceback(message, 2) or message
  return { message = trace, code = errors.code_of(e) }
end

-- Runs the verb in words (the program's arguments without its name). Returns the exit code, and
-- whether it has printed an error.
function commands.main(words)
  local ok, result = xpcall(dispatch, handler, words)
  if ok then return result, false end
  -- Without memory, Lua calls no handler.
  if type(result) == "string" then result = handler(result) end
  complain(result.message)
  return result.code, true
end

return commands
