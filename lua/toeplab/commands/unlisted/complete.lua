-- commands/unlisted/complete.lua: toeplab complete: prints completions of the last word of a
-- command line, from what the verbs declare about their words and options.
--
-- The field `words` of a verb lists an entry for each of its words; the last entry holds for all
-- further words. An entry is the name of a kind (words.lua) or a table {of = kind, choices =
-- words}; options have the same fields `of` and `choices` for their values.
local arguments = require "toeplab.base.arguments"
local commands = require "toeplab.commands"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local words_of = require "toeplab.commands.unlisted.words"

local command = {
  example = "toeplab complete -- toeplab show @be",
  usage = "toeplab complete -- WORD...\n       toeplab complete --line LINE [--breaks CHARACTERS]",
  about = "Prints the completions of the last word of a command line, each with a tab and a\n"
    .. "description. With --line reads a line as bash does, and prints the replacements of the\n"
    .. "last word, or of its part after a character that breaks words.",
  options = {
    { name = "line", value = "LINE", help = "the command line up to the cursor" },
    { name = "breaks", value = "CHARACTERS", help = "COMP_WORDBREAKS of bash" },
  },
}

-- ---- The command line of a shell ----------------------------------------------------------------

-- Splits a line into words, without their quotes and backslashes. Returns them; the quote that is
-- open at the end, or ""; and how many bytes of the last word come before what bash completes:
-- those before an open quote, or those up to the last break that is neither quoted nor escaped.
function command.split(line, breaks)
  local words, word, quote, cut, at = {}, nil, "", 0, 1
  while at <= #line do
    local c = line:sub(at, at)
    local escapes = quote == "" and c == "\\"
      or quote == '"' and line:find('^\\["\\$`]', at) ~= nil
    if escapes then
      at = at + 1
      word = (word or "") .. line:sub(at, at)
    elseif quote ~= "" then
      if c == quote then quote = "" else word = word .. c end
    elseif c == '"' or c == "'" then
      word, quote = word or "", c
      cut = #word
    elseif c:find "%s" then
      if word then words[#words + 1] = word end
      word, cut = nil, 0
    else
      word = (word or "") .. c
      if breaks:find(c, 1, true) then cut = #word end
    end
    at = at + 1
  end
  words[#words + 1] = word or ""
  return words, quote, cut
end

-- Quotes a completion for bash: with backslashes, or to fit within an open quote. Keeps a leading
-- ~, which stands for a folder.
local function quoted(text, quote)
  if quote == "'" then return text end
  if quote == '"' then return (text:gsub('["\\$`]', "\\%0")) end
  local tilde, rest = text:match "^(~?)(.*)$"
  return tilde .. rest:gsub("[^%w_@%%+:,./=\128-\255-]", "\\%0")
end

-- ---- What may stand in the place of a word ------------------------------------------------------

local function find(options, name)
  for _, o in ipairs(options) do
    if o.name == name or o.short == name then return o end
  end
end

-- Reads the words before the last as base/arguments.lua does, but accepts errors. Returns
-- the options, the other words, the option whose value the last word is, and whether options have
-- ended by "--".
local function scan(options, words)
  local set, rest, waits, over = {}, {}, nil, false
  for _, word in ipairs(words) do
    local name, value = word:match "^%-%-([^=]+)=?(.*)$"
    local short, joined = word:match "^%-([^-])(.*)$"
    if waits then
      set[waits.name], waits = word, nil
    elseif word == "--" then
      over = true
    elseif over or not (name or short) then
      rest[#rest + 1] = word
    else
      local o = find(options, name or short)
      value = name and value or joined
      if o then set[o.name] = value end
      if o and o.value and value == "" and not word:find "=$" then waits = o end
    end
  end
  return set, rest, waits, over
end

local files = { FILE = "file", DIR = "folder" } -- the kinds of values of these names

-- Adds to list the words that an entry (of `words`, or an option) stands for, each after `prefix`.
-- With lists, commas separate several, of which the last is completed.
local function add(list, entry, prefix, current, context)
  if type(entry) == "string" then entry = { of = entry } end
  if entry.list then
    local before = current:match "^.*," or ""
    prefix, current = prefix .. before, current:sub(#before + 1)
  end
  local function offer(word, about)
    if word:sub(1, #current) ~= current or word:find "%c" then return end
    list[#list + 1] = { prefix .. word, about }
  end
  for _, word in ipairs(entry.choices or {}) do offer(word) end
  local kind = entry.of or files[entry.value]
  if kind then words_of[kind](offer, current, context) end
end

local function add_options(list, options, current)
  for _, o in ipairs(arguments.listed(options)) do
    local word = "--" .. o.name
    if word:sub(1, #current) == current then list[#list + 1] = { word, o.help } end
  end
  if ("--help"):sub(1, #current) == current then list[#list + 1] = { "--help", "how to use it" } end
end

local function add_verbs(list, current, more)
  for _, verb in ipairs(commands.verbs()) do
    if verb[1]:sub(1, #current) == current then list[#list + 1] = verb end
  end
  for _, topic in ipairs(more or {}) do
    if topic:sub(1, #current) == current then list[#list + 1] = { topic } end
  end
end

-- Returns a list of {word, what it is} for the last of the words of a command line, the first of
-- which is the program.
function command.offers(words)
  local list, current, at = {}, words[#words], 2
  while at < #words - 1 and words[at] == "--threads" do at = at + 2 end
  while at < #words and words[at]:find "^%-%-threads=" do at = at + 1 end
  if at >= #words then
    add_verbs(list, current)
    return list
  end
  if words[at] == "help" and at == #words - 1 then
    local topics = {}
    for topic in pairs(commands.topics) do topics[#topics + 1] = topic end
    table.sort(topics)
    add_verbs(list, current, topics)
    return list
  end
  local verb = commands.of(words[at])
  if not verb then return list end
  local set, rest, waits, over = scan(verb.options, table.move(words, at + 1, #words - 1, 1, {}))
  local context = { set = set, words = rest }
  local name, value = current:match "^%-%-([^=]+)=(.*)$"
  local o = not over and name and find(verb.options, name)
  if waits then
    add(list, waits, "", current, context)
  elseif o then
    add(list, o, "--" .. name .. "=", value, context)
  elseif current:find "^%-" and not over then
    add_options(list, verb.options, current)
  elseif verb.words then
    add(list, verb.words[math.min(#rest + 1, #verb.words)], "", current, context)
  end
  return list
end

function command.run(set, words)
  local quote, cut = "", 0
  if set.line then
    words, quote, cut = command.split(set.line, set.breaks or "")
    while words[2] and words[1]:find "^[%a_][%w_]*=" do table.remove(words, 1) end
  end
  if #words < 2 then errors.usage("complete: give the words of a command line after --") end
  for _, offer in ipairs(command.offers(words)) do
    if set.line then
      print(quoted(offer[1]:sub(cut + 1), quote))
    else
      print(core.sys.clean(offer[1] .. "\t" .. (offer[2] or "")))
    end
  end
end

return command
