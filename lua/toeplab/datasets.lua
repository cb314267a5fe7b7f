-- datasets.lua: the data sets Toeplab knows: their files, sizes and sha256, and where they come
-- from. A folder named by TOEPLAB_DATA holds them, unpacked, in subfolders named as here.
local core = require "toeplab.core"

local datasets = {}

-- The verses alone: each line begins with its reference, as in "Ge1:1 In the beginning".
local function without_references(text)
  return (("\n" .. text):gsub("\n%w+:%d+ ", "\n"):sub(2))
end

-- corpus: the file that tl.corpus(NAME) reads; clean: what makes the corpus of its text.
-- program: a command of a Debian package that prints the same text.
datasets.list = {
  {
    name = "bible-kjv", what = "the King James Bible, English text", licence = "public domain",
    program = "bible -f gen1:1-rev22:21", package = "bible-kjv",
    corpus = "bible-kjv/kjv.txt", clean = without_references,
    source = "Debian package bible-kjv",
    files = {
      { "bible-kjv/kjv.txt", 4404412,
        "cd45f0c9cedab8e4439bd6486c8952c77cc8b0ecc5d1f6ae3513f2039f47229d" },
    },
  },
  {
    name = "tinyshakespeare", what = "40,000 lines of Shakespeare", licence = "public domain",
    corpus = "tinyshakespeare/input.txt",
    source = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
      .. "tinyshakespeare/input.txt",
    files = {
      { "tinyshakespeare/input.txt", 1115394,
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed" },
    },
  },
  {
    name = "wikitext-2", what = "Wikipedia articles, word tokens", licence = "CC BY-SA 3.0",
    corpus = "wikitext-2/wiki.train.shuffled-docs.tokens",
    source = "Merity et al. 2016; train with its documents in another order",
    files = {
      { "wikitext-2/wiki.train.shuffled-docs.tokens", 10797148,
        "728c77e87e176af4730f9a80fc6008bcaff421a7202c1c048877c0eec3685f89" },
      { "wikitext-2/wiki.valid.tokens", 1121681,
        "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8" },
      { "wikitext-2/wiki.test.tokens", 1256449,
        "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0" },
    },
  },
  {
    name = "wikitext-103", what = "valid, test and the head of train", licence = "CC BY-SA 3.0",
    corpus = "wikitext-103/wiki.train.head.tokens",
    source = "Merity et al. 2016; the first 551,525 tokens of train",
    files = {
      { "wikitext-103/wiki.train.head.tokens", 2882983,
        "611df3b41f14ba024d70702dff829bfaca0f335aa93800ba7785c87a82ff88b5" },
      { "wikitext-103/wiki.valid.tokens", 1142309,
        "9aee9f52d6e77de6c7751fc5e7c44287db3ec0eaf15477098acc6b93c1c4250b" },
      { "wikitext-103/wiki.test.tokens", 1281077,
        "56db52eb157b1ab5c89646eef70510c1eca6e12a3bfdb99f0d6b05b4eacb75b9" },
    },
  },
  {
    name = "gpt2-bpe", licence = "MIT",
    what = "GPT-2's byte pair encoding and fairseq's dictionary",
    source = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
      .. " (encoder.json, vocab.bpe) and https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/dict.txt",
    files = {
      { "gpt2-bpe/encoder.json", 1042301,
        "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783" },
      { "gpt2-bpe/vocab.bpe", 456318,
        "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5" },
      { "gpt2-bpe/dict.txt", 619202,
        "dd024a00292995edaf3a070167947dfaeaa32a125fa233204f570b0411ef4e7c" },
    },
  },
  {
    name = "imdb", what = "film reviews with labels (LRA Text)", licence = "research use",
    source = "https://ai.stanford.edu/~amaas/data/sentiment/, one review a line",
    files = {
      { "imdb/imdb.train.tsv", 33390335,
        "0e4feacfaae8cfbf67c47fd0767247c0941a6b86a50cdb1a3014c5ad512fe4a8" },
      { "imdb/imdb.test.tsv", 32608464,
        "1696d670a823a97fc1fdf5117b9b44780612fd81800b5182b0e1d8f6bca1092b" },
    },
  },
  {
    name = "listops-nangia", licence = "as published",
    what = "nested list expressions with answers",
    source = "Nangia and Bowman 2018, two test sets",
    files = {
      { "listops-nangia/test_d20a.tsv", 2905315,
        "51aa6a544f3bbf66b82b016071c0f045ad4006442937b788c8f0a448c7abc4b9" },
      { "listops-nangia/test_d20s.tsv", 2804179,
        "71335416e6896e8dd8dc69281c8ed9b37316382d05d3705d660461564e843840" },
    },
  },
  {
    name = "cifar10", what = "the first 4000 training images", licence = "as published",
    source = "https://www.cs.toronto.edu/~kriz/cifar.html, binary version",
    files = {
      { "cifar10/lossless_train_0000-3999.bin", 12292000,
        "0993cf8b8e43bc207603aef9787006995746513f5e3fa5a52e06d1b069926330" },
    },
  },
}

function datasets.find(name)
  for _, set in ipairs(datasets.list) do
    if set.name == name then return set end
  end
end

function datasets.names()
  local names = {}
  for i, set in ipairs(datasets.list) do names[i] = set.name end
  return names
end

-- The folder of TOEPLAB_DATA, or nil if it is not set.
function datasets.folder()
  local folder = os.getenv("TOEPLAB_DATA")
  return folder and folder ~= "" and folder or nil
end

local function on_path(program)
  for folder in (os.getenv("PATH") or ""):gmatch("[^:]+") do
    if core.sys.exists(folder .. "/" .. program) then return true end
  end
  return false
end

-- Whether the program that prints set is installed.
function datasets.installed(set)
  return set.program ~= nil and on_path(set.program:match("^%S+"))
end

-- How to get set, as lines of text.
function datasets.advice(set)
  local lines = {}
  if set.package then lines[1] = ("install the package: apt install %s"):format(set.package) end
  local folder = datasets.folder()
  lines[#lines + 1] = ("put it at %s/%s%s"):format(folder or "$TOEPLAB_DATA", set.files[1][1],
    folder and "" or " and set TOEPLAB_DATA to that folder")
  if not set.package then lines[#lines + 1] = "source: " .. set.source end
  return lines
end

return datasets
