-- commands/data.lua: toeplab data: lists the known data sets, downloads or generates them, and
-- learns vocabularies of byte pairs from them.
local arguments = require "toeplab.base.arguments"
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"
local fetch = require "toeplab.tasks.fetch"
local options = require "toeplab.base.options"
local corpus = require "toeplab.tasks.corpus"
local progress = require "toeplab.base.progress"
local shell = require "toeplab.base.shell"
local text_table = require "toeplab.base.text_table"
local errors = require "toeplab.base.errors"
local source = require "toeplab.tasks.source"
local suggest = require "toeplab.base.suggest"
local tokenizer = require "toeplab.tasks.tokenizer"
local watch = require "toeplab.base.watch"

local data = {
  example = "toeplab data\n  toeplab data wikitext-2\n  toeplab data fetch wikitext-2\n"
    .. "  toeplab data path wikitext-2\n  toeplab data generate listops lra/ train=1000\n"
    .. "  toeplab data bpe wikitext-2 --size 8000 --out wikitext-2.bpe",
  usage = "toeplab data [list | [show] NAME... | fetch NAME... | path NAME\n"
    .. "         | generate NAME FOLDER [key=value...] | bpe CORPUS --size N --out FILE]",
  about = "Lists the data sets, shows the files of some, fetches some, or prints the folder of\n"
    .. "one. TOEPLAB_DATA is the folder that holds the sets, as the files or the archive that\n"
    .. "toeplab data NAME lists. Downloads go there too or, if it is not writable, to the cache\n"
    .. "folder. An interrupted download continues; a file with a different sha256 is refused.\n"
    .. "Generated sets need no download; generate writes one to files for other programs:\n"
    .. "listops as Long Range Arena's basic_train.tsv, basic_val.tsv and basic_test.tsv, the\n"
    .. "stand-ins in the formats of the sets that they replace. bpe learns N tokens, including\n"
    .. "the 256 bytes, from the training text of a data set (the first 90 % of a set without\n"
    .. "parts of its own, as tl.corpus splits it) or from a whole file, cut into pieces and\n"
    .. "merged as GPT-2 does, and writes the merges to FILE. The same text and N give the same\n"
    .. "file. In a script:\n"
    .. "  tl.corpus(name, { tokenizer = \"bpe\", merges = \"FILE\" })",
  words = { { of = "data", choices = { "list", "show", "fetch", "path", "generate", "bpe" } },
    "data_of" },
  options = {
    { name = "check", help = "also compare the sha256 of every file" },
    { name = "from", value = "URL", help = "fetch from this folder or address instead",
      more = "Not for sets that are generated or printed by a program." },
    { name = "size", short = "s", value = "N", help = "for bpe: tokens, at least 256" },
    { name = "out", short = "o", value = "FILE", writes = true,
      help = "for bpe: the file for the merges" },
    { name = "quiet", short = "q", help = "no progress" },
  },
}

local function find(name)
  return datasets.find(name)
    or errors.usage("unknown data set '%s'%s", name, suggest.hint(name, datasets.names()))
end

-- Generators of data sets by name: modules with drawing (its options), write(folder, options,
-- progress, drawn) -> paths and, if drawing all takes long, prepare(options) -> drawn.
local makers = { listops = "toeplab.tasks.listops",
  ["cifar-standin"] = "toeplab.tasks.cifar_standin",
  ["retrieval-standin"] = "toeplab.tasks.retrieval_standin",
  pathfinder = "toeplab.tasks.pathfinder", ["path-x"] = "toeplab.tasks.pathfinder" }

local function maker_of(name)
  local module = require(makers[name])
  return name == "path-x" and module.path_x or module
end

-- Returns the options of a generator; nil if no generator has that name.
function data.drawing(name) return makers[name] and maker_of(name).drawing end

local function show_keys(name)
  local rows = {}
  for i, o in ipairs(options.describe(data.drawing(name))) do
    rows[i] = { "  " .. o.name, o.default, o.range, o.help }
  end
  text_table.print({ "  key", "default", "range", "" }, rows)
end

local function show_source(set)
  print("  source: " .. set.source)
  for _, item in ipairs(set.download or {}) do
    local size = item.bytes and (", %d bytes"):format(item.bytes) or ""
    print("  address: " .. item.url .. size)
    if item.unpack then print("    sha256 " .. item.sha256) end
  end
  if set.archive then
    print(("  archive: %s\n    sha256 %s"):format(set.archive[1], set.archive[2]))
  end
end

local function detail(set, check)
  print(("%s: %s (%s)"):format(set.name, set.what, set.licence))
  show_source(set)
  if set.generated then
    print(shell.named("  as files: toeplab data generate %s FOLDER"):format(set.name))
    return show_keys(set.name)
  end
  local rows = {}
  for i, file in ipairs(set.files) do
    local state = datasets.file_state(datasets.place(file[1]), file, check)
    rows[i] = { "  " .. file[1], file[2], file[3], state }
  end
  text_table.print({ "  file", "bytes", "sha256", "state" }, rows)
  local state = datasets.state(set, check)
  if not state:find("^here") then
    print("  to get it: " .. table.concat(datasets.ways(set), "\n         or: "))
  elseif state ~= "here" then
    print(("  printed by: %s (package %s)"):format(set.program, set.package))
  end
end

local function list(check)
  local rows = {}
  for i, set in ipairs(datasets.list) do
    local bytes = 0
    for _, file in ipairs(set.files) do bytes = bytes + (file[2] or 0) end
    rows[i] = { set.name, bytes > 0 and bytes or nil, datasets.state(set, check), set.what,
      set.licence }
  end
  text_table.print({ "name", "bytes", "state", "what", "licence" }, rows)
  local folder = datasets.folder()
  local missing = folder and core.sys.kind(folder) ~= "folder" and ", which is not a folder" or ""
  print(folder and "\nTOEPLAB_DATA is " .. folder .. missing or "\nTOEPLAB_DATA is not set")
  print(shell.named "toeplab data NAME shows a set's files, sha256 and how to get it")
end

local verbs = {}

function verbs.list(set, names)
  if #names > 0 then errors.usage("data list: takes no name (toeplab data NAME shows a set)") end
  list(set.check)
end

function verbs.show(set, names)
  if #names == 0 then errors.usage("data show: which set? (see toeplab data)") end
  for i, name in ipairs(names) do
    if i > 1 then print() end
    detail(find(name), set.check)
  end
end

-- Returns a sentence on the origin of a set that is never fetched; nil for other sets.
local function source_sentence(set)
  if set.generated then return ("%s is generated where it is used"):format(set.name) end
  if datasets.state(set, false) == "here (program)" then
    return ("%s is printed by: %s"):format(set.name, set.program)
  end
end

function verbs.fetch(set, names)
  local sets = {}
  for i, name in ipairs(names) do
    sets[i] = find(name)
    local how = set.from and source_sentence(sets[i])
    if how then errors.usage("data fetch: --from is not for %s: %s", name, how) end
  end
  if #sets == 0 then errors.usage("data fetch: which set? (see toeplab data)") end
  local function say(format, ...)
    if not set.quiet then errors.say(format, ...) end
  end
  for _, one in ipairs(sets) do
    local line = source_sentence(one)
    if not line then
      local folder, fetched = fetch.set(one, { from = set.from, say = say })
      line = ("%s is in %s%s"):format(one.name, folder, set.from and not fetched
        and " already; nothing was fetched" or "")
    end
    print(line)
  end
end

function verbs.path(set, names)
  if #names ~= 1 then errors.usage("data path: takes the name of one set") end
  local one = find(names[1])
  if one.generated then
    errors.usage("%s has no folder: it is generated where it is used", one.name)
  end
  local state = datasets.state(one, set.check)
  if state == "here (program)" then
    errors.raise(errors.FAILED, "%s has no folder; this command prints it: %s", one.name,
      one.program)
  elseif state == "as archive" then
    errors.raise(errors.FAILED, "%s is here as an archive only; to unpack it: "
      .. "toeplab data fetch %s", one.name, one.name)
  elseif state ~= "here" then
    errors.raise(errors.FAILED, "%s is not here. %s", one.name, datasets.advice(one))
  end
  print(fetch.folder(one))
end

function verbs.generate(set, words)
  local name, folder = words[1], words[2]
  if not name or not folder or folder == "" or folder:find "=" then
    errors.usage("data generate: takes a name, a folder and key=value (see toeplab data --help)")
  end
  if not find(name).generated then errors.usage("%s is not generated; fetch it", name) end
  local maker, rest = maker_of(name), table.move(words, 3, #words, 1, {})
  local ok, given = pcall(options.parse, name, maker.drawing, rest)
  if not ok then errors.usage("%s", errors.text(given)) end
  -- A signal ends the program at once while examples are drawn, before anything is written.
  local drawn = maker.prepare and maker.prepare(given)
  core.sys.catch_signals() -- so that partial files are removed
  core.sys.on_signal(function()
    core.sys.on_signal(nil)
    errors.check_signals()
  end)
  local paths = maker.write(folder, given, progress.new { quiet = set.quiet }, drawn)
  core.sys.on_signal(nil)
  for _, path in ipairs(paths) do print(path) end
end

-- Checks that the merges can be written to path: its folder exists, and a file there holds merges.
local function check_out(path)
  local folder = path:match("^(.*/)[^/]*$") or "."
  if core.sys.kind(folder) ~= "folder" then
    errors.usage("data bpe: --out %s: there is no folder %s", path, folder)
  end
  local kind = core.sys.kind(path)
  if not kind then return end
  if kind ~= "file" then errors.usage("data bpe: --out %s: is not a plain file", path) end
  local text = core.sys.read_file(path)
  if text ~= "" and not (text and text:find("^#version")) then
    errors.usage("data bpe: --out %s exists and holds no merges; choose another name", path)
  end
end

function verbs.bpe(set, words)
  local size = arguments.integer("data bpe", set, "size", 256, (1 << 31) - 1)
  if #words ~= 1 or not size or not set.out then
    errors.usage("usage: toeplab data bpe CORPUS --size N --out FILE (see toeplab data --help)")
  end
  check_out(set.out)
  local from = source.find(words[1])
  local held = corpus.spec.fields -- the fractions that tl.corpus holds out
  local part = from.parts and from.parts.train or datasets.find(words[1])
    and source.split(from.whole, held.valid.default, held.test.default).train or from.whole
  local start = core.sys.clock()
  watch.progress = progress.new { quiet = set.quiet }
  tokenizer.learn(part, size, set.out)
  local vocab = core.vocab_bpe(set.out)
  if not set.quiet then
    print(("%s: %d tokens learnt from %.1f MB of %s in %.1f s"):format(set.out, vocab:size(),
      part.bytes / 1e6, part.name, core.sys.clock() - start))
  end
end

local takers = { -- an option, and the verbs that take it
  { "check", { "list", "show", "path" } }, { "from", { "fetch" } }, { "out", { "bpe" } },
  { "quiet", { "fetch", "generate", "bpe" } }, { "size", { "bpe" } },
}

function data.run(set, words)
  local verb = verbs[words[1] or "list"] and table.remove(words, 1) or nil
  verb = verb or (#words > 0 and "show" or "list")
  for _, taker in ipairs(takers) do
    local name, fits = taker[1], false
    for _, other in ipairs(taker[2]) do fits = fits or other == verb end
    if set[name] and not fits then
      errors.usage("data: --%s is an option of data %s", name, table.concat(taker[2], ", "))
    end
  end
  verbs[verb](set, words)
end

return data
