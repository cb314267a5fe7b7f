-- tasks/source.lua: finds the text of a corpus (a data set, a file, a folder, the output of a
-- program, or the name itself), splits it into parts, and reads parts in pieces, so that a large
-- text is never in memory as a whole, except for the joined files of a folder.
local core = require "toeplab.core"
local datasets = require "toeplab.tasks.datasets"
local fetch = require "toeplab.tasks.fetch"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local source = {}

local PIECE = 1 << 20 -- bytes read at a time
local NAMES = { "train", "valid", "test" }

-- ---- Parts: { name=, key=, bytes=, path= or text=, first= } -------------------------------------
-- A part is a range of bytes, from offset first on, of a file or of a text. Parts of different
-- content have different keys. A text that joins files has files, {{path=, first=}}.

local function of_text(name, text)
  return { name = name, key = core.sha256(text), bytes = #text, text = text, first = 0 }
end

local function of_file(path)
  if core.sys.exists(path) and core.sys.kind(path) ~= "file" then
    errors.usage("corpus %s: is not a file", path)
  end
  local file, why = io.open(path, "rb")
  if not file then errors.usage("corpus %s", why) end
  local bytes = file:seek("end")
  file:seek("set")
  local first, problem = file:read(3)
  file:close()
  if not bytes or problem then
    errors.usage("corpus %s: %s", path, problem or "is not a regular file")
  end
  if not first then errors.usage("corpus %s: is empty", path) end
  local mark = first == "\xef\xbb\xbf" and 3 or 0 -- a byte order mark is not text
  if bytes == mark then errors.usage("corpus %s: is empty", path) end
  return { name = path, key = core.sha256_file(path), bytes = bytes - mark, path = path,
    first = mark }
end

-- Returns a file of a data set, which must be present, as a part. If the size or the hash of the
-- published file is known and differs, raises a usage error.
function source.of_set(set, file)
  local path = datasets.place(file)
  local part = of_file(path)
  for _, entry in ipairs(set.files) do
    local bytes = part.first + part.bytes
    if entry[1] == file and entry[2] and entry[2] ~= bytes then
      errors.usage("corpus %s: %s has %d bytes, the published file %d: truncated, or another text",
        set.name, path, bytes, entry[2])
    elseif entry[1] == file and entry[3] and entry[3] ~= part.key then
      errors.usage("corpus %s: %s differs from the published file: its sha256 is %s", set.name,
        path, part.key)
    end
  end
  return part
end

-- Returns a function (n) -> the next bytes of a part, at most n, or nil at its end; and the file to
-- close, if any.
local function reader(part)
  local left, at = part.bytes, part.first
  local file = part.path and assert(io.open(part.path, "rb"))
  if file then file:seek("set", at) end
  return function(n)
    if left == 0 then return nil end
    n = math.min(n, left)
    local block = file and (file:read(n) or "") or part.text:sub(at + 1, at + n)
    left, at = left - #block, at + #block
    if #block < n then errors.usage("corpus %s: ended early, at byte %d", part.name, at) end
    return block
  end, file
end

-- Returns the line of the whole text, from 1, in which byte offset of a part lies.
local function line_at(part, offset)
  local line, left = 1, part.first + offset
  local read, file <close> = reader { name = part.name, path = part.path, text = part.text,
    first = 0, bytes = left }
  while left > 0 do
    local block = read(math.min(left, PIECE))
    line, left = line + select(2, block:gsub("\n", "")), left - #block
  end
  return line
end

local function no_text(part, offset, byte)
  local at, from = part.first + offset, nil
  for _, file in ipairs(part.files or {}) do
    if file.first <= at then from = file end
  end
  if from then
    part, offset = { name = from.path, path = from.path, first = 0 }, at - from.first
  end
  errors.usage("corpus %s: line %d has the byte 0x%02x: this is not UTF-8 text (tokenizer "
    .. "'byte' takes any file)", part.name, line_at(part, offset), byte)
end

-- Splits a block, which begins at offset of its part, into whole characters and the remaining
-- bytes, at most three, of a character that continues in the next block. more: whether another
-- block follows.
local function whole(part, block, offset, more)
  local zero = block:find("\0", 1, true)
  if zero then no_text(part, offset + zero - 1, 0) end
  local _, bad = utf8.len(block)
  if not bad then return block, "" end
  if not more or #block - bad >= 3 then no_text(part, offset + bad - 1, block:byte(bad)) end
  return block:sub(1, bad - 1), block:sub(bad)
end

-- Calls fn(piece, bytes so far) for the pieces of a part in order. If plain, any bytes are
-- accepted; else the part must be UTF-8 text, every piece consists of whole characters, and lines
-- of a part with crlf end in "\n".
function source.each(part, plain, fn)
  local read, file <close> = reader(part)
  local done, rest = 0, ""
  for block in read, PIECE do
    local offset = done
    done = done + #block
    if not plain then
      local more = done < part.bytes
      block, rest = whole(part, rest .. block, offset - #rest, more)
      if part.crlf and more and block:sub(-1) == "\r" then
        block, rest = block:sub(1, -2), "\r" .. rest
      end
      if part.crlf then block = block:gsub("\r\n", "\n") end
    end
    if block ~= "" then fn(block, done - #rest) end
  end
end

-- Marks a part of a user's own that has lines ending in "\r\n". They are read as "\n", which
-- earlier versions did not do, so the part has another key.
local function mark_lines(part)
  local read, file <close> = reader(part)
  local before = ""
  for block in read, PIECE do
    if (before .. block):find("\r\n", 1, true) then
      part.crlf, part.key = true, part.key .. " CRLF"
      break
    end
    before = block:sub(-1)
  end
  return part
end

-- Returns the bytes of a part as source.each reads it for a tokenizer of text.
function source.bytes(part)
  if not part.crlf then return part.bytes end
  local bytes = 0
  source.each(part, false, function(piece) bytes = bytes + #piece end)
  return bytes
end

function source.text(part)
  local read, file <close> = reader(part)
  return read(part.bytes)
end

-- ---- Splitting ----------------------------------------------------------------------------------

-- Returns the first offset at or after the given one where a line begins, or, if none is near, a
-- word or a character.
local function boundary(part, offset)
  if offset <= 0 or offset >= part.bytes then return math.max(0, math.min(offset, part.bytes)) end
  local view = { name = part.name, path = part.path, text = part.text,
    first = part.first + offset - 1, bytes = math.min(PIECE, part.bytes - offset + 1) }
  local text = source.text(view)
  local at = text:find("\n", 1, true) or text:find(" ", 1, true)
    or (text:find("[\0-\x7f\xc2-\xf4]", 2) or #text + 1) - 1
  return offset - 1 + at
end

-- Splits a part into train, valid and test; the last two are these fractions of its bytes, at its
-- end. Empty parts are nil.
function source.split(part, valid, test)
  local ends = { boundary(part, math.floor(part.bytes * (1 - valid - test))),
    boundary(part, math.floor(part.bytes * (1 - test))), part.bytes }
  local parts, first = {}, 0
  for i, name in ipairs(NAMES) do
    parts[name] = { name = part.name, path = part.path, text = part.text, files = part.files,
      crlf = part.crlf,
      first = part.first + first, bytes = ends[i] - first,
      key = ("%s %d %d"):format(part.key, first, ends[i]) }
    if ends[i] == first then parts[name] = nil end
    first = ends[i]
  end
  return parts
end

-- ---- Names --------------------------------------------------------------------------------------

local function from_program(set)
  local complaints = os.tmpname()
  local pipe = io.popen(("%s 2>'%s'"):format(set.program, complaints), "r")
  local text = pipe:read("a")
  local ok = pipe:close()
  local said = core.sys.read_file(complaints) or ""
  os.remove(complaints)
  if not ok or text == "" then
    errors.usage("corpus %s: '%s' failed: %s", set.name, set.program, said:match("[^\n]*"))
  end
  return text
end

local from_name -- below

local function absent(set)
  errors.absent("corpus %s is not here. %s", set.name, datasets.advice(set))
end

-- Returns the source of a set that has a file for each part; its hash is the hash of their hashes.
local function from_parts(set)
  local files, parts, keys = datasets.parts(set), {}, {}
  for i, name in ipairs(NAMES) do
    if not files[name] then absent(set) end
    for _, file in ipairs(set.parts[name]) do
      if datasets.place(file) == files[name] then parts[name] = source.of_set(set, file) end
    end
    keys[i] = parts[name].key
  end
  return { name = set.name, parts = parts, hash = core.sha256(table.concat(keys, "\n")),
    head = set.head ~= nil and files.train == datasets.place(set.head) }
end

local function from_set(set)
  fetch.unpacked(set)
  if set.parts then return from_parts(set) end
  if not set.corpus then errors.usage("%s is a data set but not a plain text", set.name) end
  local whole_part
  if datasets.place(set.corpus) then
    whole_part = source.of_set(set, set.corpus)
  elseif datasets.installed(set) then
    whole_part = of_text(set.name, from_program(set))
  else
    absent(set)
  end
  if set.clean then whole_part = of_text(set.name, set.clean(source.text(whole_part))) end
  return { name = set.name, whole = whole_part, hash = whole_part.key }
end

-- Returns the files of a folder, sorted by name: all, and by part the one whose name without its
-- ending is the part's.
local function texts_in(folder)
  local all, by_part = {}, {}
  local names = core.sys.list(folder)
  table.sort(names)
  for _, name in ipairs(names) do
    local path = folder .. "/" .. name
    if not name:find "^%." and core.sys.kind(path) == "file" then
      all[#all + 1] = path
      for _, part in ipairs(NAMES) do
        if name:match "^[^.]*" == part then
          if by_part[part] then
            errors.usage("corpus %s: both %s and %s are its %s part", folder, by_part[part], path,
              part)
          end
          by_part[part] = path
        end
      end
    end
  end
  return all, by_part
end

-- Returns the source of three texts {train=, valid=, test=}, named as for source.find. Its hash
-- is the hash of their hashes, which are in hashes by name.
local function from_texts(names)
  local parts, keys, hashes = {}, {}, {}
  for i, part in ipairs(NAMES) do
    local from = from_name(names[part])
    if not from.whole then
      errors.usage("corpus %s: has parts of its own, and cannot be the %s part", from.name, part)
    end
    parts[part], keys[i], hashes[names[part]] = from.whole, from.hash, from.hash
  end
  return { name = names.train, parts = parts, hash = core.sha256(table.concat(keys, "\n")),
    hashes = hashes, several = true }
end

-- Returns the source of a folder: files for train, valid and test, or else its texts one after
-- another, each followed by a line end.
local function from_folder(name)
  local all, files = texts_in(name)
  if #all == 0 then errors.usage("corpus %s: has no file", name) end
  if not next(files) then
    local texts, joined, bytes = {}, {}, 0
    for i, path in ipairs(all) do
      texts[i] = source.text(of_file(path))
      if texts[i]:sub(-1) ~= "\n" then texts[i] = texts[i] .. "\n" end
      joined[i], bytes = { path = path, first = bytes }, bytes + #texts[i]
    end
    local part = of_text(name, table.concat(texts))
    part.files = joined
    mark_lines(part)
    return { name = name, whole = part, hash = part.key, several = true }
  end
  for _, part in ipairs(NAMES) do
    if not files[part] then
      errors.usage("corpus %s: has %s, but no file %s.txt", name, select(2, next(files)), part)
    end
  end
  local from = from_texts(files)
  from.name, from.hashes = name, nil
  return from
end

function from_name(name)
  if type(name) == "table" then return from_texts(name) end
  if type(name) ~= "string" then
    errors.usage("a corpus is named by a string, not by a %s", type(name))
  end
  local literal = name:match("^text:(.*)$")
  if literal == "" then errors.usage("corpus text: the text is empty") end
  local set = datasets.find(name)
  if not literal and set then return from_set(set) end
  if not literal and not name:find("[/.]") then
    local kind = core.sys.kind(name)
    if kind == "folder" or kind == "file" then
      errors.usage("unknown corpus '%s': there is a %s ./%s: write corpus=./%s", name, kind, name,
        name)
    end
    errors.usage("unknown corpus '%s'%s (or a path with a / or a dot, or text:...)", name,
      suggest.hint(name, datasets.names()))
  end
  if not literal and core.sys.kind(name) == "folder" then return from_folder(name) end
  local part = literal and of_text("text:...", literal) or of_file(name)
  local file_hash = part.key -- before mark_lines
  mark_lines(part)
  return { name = name, whole = part, hash = part.key, file_hash = file_hash }
end

local last -- a cache of the last source, because successive trials mostly have the same one

-- Returns whether the cached source is still valid for the name: a file may have changed, and its
-- hash is part of a trial's identity.
local function known(name)
  if not last or last.name ~= name or last.several then return false end
  local path = last.whole and last.whole.path
  return not path or core.sys.exists(path)
    and core.sha256_file(path) == (last.file_hash or last.hash)
end

-- Returns the names of the texts of a corpus, {train=, valid=, test=}, if its name is such a table
-- or its options o name two of them; else nil.
function source.texts(name, o)
  local named = type(name) == "table"
  if not named and not o.valid_file and not o.test_file then return nil end
  if named and (o.valid_file or o.test_file) then
    errors.usage("corpus: its name has three texts, so it does not take %s",
      o.valid_file and "valid_file" or "test_file")
  end
  local texts = named and name or { train = name, valid = o.valid_file, test = o.test_file }
  for key in pairs(texts) do
    local ok, why = suggest.choose("part of a corpus", key, NAMES)
    if not ok then errors.usage("corpus: %s", why) end
  end
  for _, part in ipairs(NAMES) do
    if not texts[part] then
      errors.usage("corpus: option '%s' is missing: name a text for each of train, valid and test",
        named and part or part .. "_file")
    elseif type(texts[part]) ~= "string" then
      errors.usage("corpus: its %s part is named by a string, not by a %s", part,
        type(texts[part]))
    end
  end
  return texts
end

-- Returns the source of a name: a data set, the path of a file or folder, or "text:" followed by
-- the text itself, or of three names {train=, valid=, test=}. It is {name=, hash=, whole=} or, for
-- three names, and a set or folder with a file for each part, {name=, hash=, parts= {train=,
-- valid=, test=}, hashes= (by name, of three names), head= (whether train is only the beginning of
-- the published one)}. If the data is absent, raises a usage error on how to get it.
function source.find(name)
  if not known(name) then last = from_name(name) end
  return last
end

-- Returns the result of fn(...), which opens data. Its errors name who, such as "csv: valid_file",
-- in the place of "corpus".
function source.naming(who, fn, ...)
  local ok, result = pcall(fn, ...)
  if ok then return result end
  if errors.is(result) then
    local rest = result.message:match "^corpus (.*)"
    result.message = rest and who .. " " .. rest or result.message
  end
  error(result, 0)
end

return source
