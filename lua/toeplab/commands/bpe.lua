-- commands/bpe.lua: toeplab bpe: learns byte pairs from a text.
local arguments = require "toeplab.commands.arguments"
local core = require "toeplab.core"
local progress = require "toeplab.base.progress"
local source = require "toeplab.tasks.source"
local errors = require "toeplab.base.errors"
local tokenizer = require "toeplab.tasks.tokenizer"

local bpe = {
  example = "toeplab bpe train wikitext-2 --size 8000 --out wikitext-2.bpe",
  usage = "toeplab bpe train CORPUS --size N --out FILE",
  about = "Learns N tokens, the 256 bytes among them, from the training text of a data set or of\n"
    .. "a file, cut into pieces and merged as GPT-2 does, and writes the merges to FILE. The same\n"
    .. "text and N give the same file. An experiment uses it by\n"
    .. "  tl.corpus(name, { tokenizer = \"bpe\", merges = \"FILE\" })",
  options = {
    { name = "size", short = "s", value = "N", help = "tokens in the vocabulary, at least 256" },
    { name = "out", short = "o", value = "FILE", help = "where the merges go" },
    { name = "quiet", short = "q", help = "no progress" },
  },
}

-- Whether the merges may go to path: into a folder that is there, over nothing but other merges.
local function check_out(path)
  local folder = path:match("^(.*/)[^/]*$") or "."
  if core.sys.kind(folder) ~= "folder" then
    errors.usage("bpe: --out %s: there is no folder %s", path, folder)
  end
  local kind = core.sys.kind(path)
  if not kind then return end
  if kind ~= "file" then errors.usage("bpe: --out %s: is no plain file", path) end
  local text = core.sys.read_file(path)
  if text ~= "" and not (text and text:find("^#version")) then
    errors.usage("bpe: --out %s is there and holds no merges; choose another name", path)
  end
end

function bpe.run(set, words)
  local size = arguments.integer("bpe", set, "size", 256)
  if words[1] ~= "train" or #words ~= 2 or not size or not set.out then
    errors.usage("usage: %s (see toeplab bpe --help)", bpe.usage)
  end
  check_out(set.out)
  local from = source.find(words[2])
  local part = from.whole or from.parts.train
  local start = core.sys.clock()
  tokenizer.learn(part, size, set.out, progress.new { quiet = set.quiet })
  local vocab = core.vocab_bpe(set.out)
  if not set.quiet then
    print(("%s: %d tokens learnt from %.1f MB of %s in %.1f s"):format(set.out, vocab:size(),
      part.bytes / 1e6, part.name, core.sys.clock() - start))
  end
  return errors.DONE
end

return bpe
