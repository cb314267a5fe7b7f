-- tasks/datasets.lua: lists the data sets that Toeplab knows, with the sizes, sha256 and sources of
-- their files, and finds them on this machine. The folder TOEPLAB_DATA holds data sets, unpacked
-- into subfolders named as here, or as archives; without it, data sets are fetched into the cache
-- folder.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"

local datasets = {}

-- Removes the reference at the beginning of each line, as in "Ge1:1 In the beginning".
local function without_references(text)
  return (("\n" .. text):gsub("\n%w+:%d+ ", "\n"):sub(2))
end

-- The fields of a data set:
--   files      {path, bytes, sha256} each; size and hash are absent where only those of the whole
--              download are known
--   parts      the files of train, valid and test; of alternatives, the first that is present
--   corpus     the file that tl.corpus(NAME) reads; clean is a function applied to its text
--   program    a command of a Debian package that prints the same text
--   generated  true if the data is generated when it is used, and has no files
--   archive    {name, sha256} of the archive that TOEPLAB_DATA or a mirror may hold instead
--   by_hand    a description of the files for TOEPLAB_DATA, if their names do not suffice
--   download   {{url=, sha256=, bytes=, file= or unpack=}}: the canonical address, if it is known
--              for certain; file is the path it gets, unpack = "zip" or "tar" unpacks it
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
    source = "https://github.com/karpathy/char-rnn",
    archive = { "tinyshakespeare.tar.xz",
      "938e3baab98bd7b47ce3659f761ff2b0e5538fce015b6309ba53b67f6cc15b93" },
    download = {
      { url = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
          .. "input.txt",
        file = "tinyshakespeare/input.txt", bytes = 1115394,
        sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed" },
    },
    files = {
      { "tinyshakespeare/input.txt", 1115394,
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed" },
    },
  },
  {
    name = "wikitext-2", what = "Wikipedia articles, word tokens", licence = "CC BY-SA 3.0",
    corpus = "wikitext-2/wiki.train.shuffled-docs.tokens",
    source = "Merity et al. 2016; the archive's train has its documents in another order",
    parts = {
      train = { "wikitext-2/wiki.train.tokens", "wikitext-2/wiki.train.shuffled-docs.tokens" },
      valid = { "wikitext-2/wiki.valid.tokens" }, test = { "wikitext-2/wiki.test.tokens" },
    },
    archive = { "wikitext-2.tar.xz",
      "37104003dac7a75bcc7c5285fd61525e275ad4267e04e9788ae037d43b2c458c" },
    download = {
      { url = "https://wikitext.smerity.com/wikitext-2-v1.zip", unpack = "zip",
        sha256 = "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c" },
    },
    files = {
      { "wikitext-2/wiki.train.tokens" },
      { "wikitext-2/wiki.train.shuffled-docs.tokens", 10797148,
        "728c77e87e176af4730f9a80fc6008bcaff421a7202c1c048877c0eec3685f89" },
      { "wikitext-2/wiki.valid.tokens", 1121681,
        "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8" },
      { "wikitext-2/wiki.test.tokens", 1256449,
        "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0" },
    },
  },
  {
    name = "wikitext-103", what = "more Wikipedia articles, word tokens",
    licence = "CC BY-SA 3.0",
    corpus = "wikitext-103/wiki.train.head.tokens",
    source = "Merity et al. 2016; the archive has the first 551,525 tokens of train",
    head = "wikitext-103/wiki.train.head.tokens", -- the beginning of the training part
    parts = {
      train = { "wikitext-103/wiki.train.tokens", "wikitext-103/wiki.train.head.tokens" },
      valid = { "wikitext-103/wiki.valid.tokens" }, test = { "wikitext-103/wiki.test.tokens" },
    },
    archive = { "wikitext-103-parts.tar.xz",
      "e335e8e9546672a1abf6945030471cc26177fa6b7e4f841068907a4b9db0df33" },
    download = {
      { url = "https://wikitext.smerity.com/wikitext-103-v1.zip", unpack = "zip",
        sha256 = "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590" },
    },
    files = {
      { "wikitext-103/wiki.train.tokens" },
      { "wikitext-103/wiki.train.head.tokens", 2882983,
        "611df3b41f14ba024d70702dff829bfaca0f335aa93800ba7785c87a82ff88b5" },
      { "wikitext-103/wiki.valid.tokens", 1142309,
        "9aee9f52d6e77de6c7751fc5e7c44287db3ec0eaf15477098acc6b93c1c4250b" },
      { "wikitext-103/wiki.test.tokens", 1281077,
        "56db52eb157b1ab5c89646eef70510c1eca6e12a3bfdb99f0d6b05b4eacb75b9" },
    },
  },
  {
    name = "wikitext-103-raw", what = "the same as plain text, for BPE", licence = "CC BY-SA 3.0",
    source = "Merity et al. 2016",
    parts = {
      train = { "wikitext-103-raw/wiki.train.raw" }, valid = { "wikitext-103-raw/wiki.valid.raw" },
      test = { "wikitext-103-raw/wiki.test.raw" },
    },
    download = {
      { url = "https://wikitext.smerity.com/wikitext-103-raw-v1.zip", unpack = "zip",
        bytes = 191984949,
        sha256 = "91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794" },
    },
    files = {
      { "wikitext-103-raw/wiki.train.raw" }, { "wikitext-103-raw/wiki.valid.raw" },
      { "wikitext-103-raw/wiki.test.raw" },
    },
  },
  {
    name = "gpt2-bpe", licence = "MIT",
    what = "GPT-2's byte pair encoding and fairseq's dictionary",
    source = "OpenAI (encoder.json, vocab.bpe) and fairseq (dict.txt)",
    archive = { "gpt2-bpe.tar.xz",
      "46c8d530b627b801d099eb8687d918d36044b0c0cb12da52ed22d56be468755d" },
    download = {
      { url = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json",
        file = "gpt2-bpe/encoder.json", bytes = 1042301,
        sha256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783" },
      { url = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe",
        file = "gpt2-bpe/vocab.bpe", bytes = 456318,
        sha256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5" },
      { url = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/dict.txt",
        file = "gpt2-bpe/dict.txt", bytes = 619202,
        sha256 = "dd024a00292995edaf3a070167947dfaeaa32a125fa233204f570b0411ef4e7c" },
    },
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
    source = "https://ai.stanford.edu/~amaas/data/sentiment/",
    by_hand = "the files imdb.train.tsv and imdb.test.tsv, with a review a line, in a folder imdb",
    archive = { "imdb-labelled.tar.xz",
      "63483c9b83c3f1eb24ba64061a0d476691c100792e298c67950e7b3d59c68901" },
    files = {
      { "imdb/imdb.train.tsv", 33390335,
        "0e4feacfaae8cfbf67c47fd0767247c0941a6b86a50cdb1a3014c5ad512fe4a8" },
      { "imdb/imdb.test.tsv", 32608464,
        "1696d670a823a97fc1fdf5117b9b44780612fd81800b5182b0e1d8f6bca1092b" },
    },
  },
  {
    name = "listops", what = "nested list expressions (LRA ListOps)", licence = "none needed",
    source = "drawn by tl.tasks.listops, as Long Range Arena's generator does", generated = true,
    files = {},
  },
  {
    name = "pathfinder", what = "images of dashed contours (LRA Pathfinder)",
    licence = "none needed", generated = true, files = {},
    source = "drawn by tl.tasks.pathfinder, by the rules of the published generator",
  },
  {
    name = "path-x", what = "the same of 128x128 pixels (LRA Path-X)", licence = "none needed",
    source = "drawn by tl.tasks[\"path-x\"]", generated = true, files = {},
  },
  {
    name = "cifar10", what = "60,000 colour images (LRA Image)", licence = "as published",
    source = "https://www.cs.toronto.edu/~kriz/cifar.html, binary version",
    archive = { "cifar-10-binary.tar.gz",
      "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd" },
    download = {
      { url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", unpack = "tar",
        bytes = 170052171,
        sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd" },
    },
    files = {
      { "cifar-10-batches-bin/data_batch_1.bin", 30730000 },
      { "cifar-10-batches-bin/data_batch_2.bin", 30730000 },
      { "cifar-10-batches-bin/data_batch_3.bin", 30730000 },
      { "cifar-10-batches-bin/data_batch_4.bin", 30730000 },
      { "cifar-10-batches-bin/data_batch_5.bin", 30730000 },
      { "cifar-10-batches-bin/test_batch.bin", 30730000 },
    },
  },
  {
    name = "cifar10-first4000", what = "its training images 0 to 3999", licence = "as published",
    source = "https://www.cs.toronto.edu/~kriz/cifar.html, binary version",
    by_hand = "the file lossless_train_0000-3999.bin, 4,000 records of CIFAR-10's binary version, "
      .. "in a folder cifar10",
    archive = { "cifar10-lossless-first4000.tar.xz",
      "d360c049012aaddd2a8140ce9566382069f0c07c38c75149ba5bc781d77b37dc" },
    files = {
      { "cifar10/lossless_train_0000-3999.bin", 12292000,
        "0993cf8b8e43bc207603aef9787006995746513f5e3fa5a52e06d1b069926330" },
    },
  },
  {
    name = "cifar10-grey", what = "4,068 more of them and 1,017 test images, in grey",
    licence = "as published",
    source = "https://www.cs.toronto.edu/~kriz/cifar.html, binary version",
    by_hand = "the files grey_train_more.bin and grey_test_0000-1016.bin, records of a label and "
      .. "1,024 grey levels, in a folder cifar10",
    archive = { "cifar10-grey-more.tar.xz",
      "f5b2b969e58ec78ca7883ca2870626333e48c096447002d8b9c9f1b7f4d7e1fa" },
    files = {
      { "cifar10/grey_train_more.bin", 4169700,
        "0b0b9d7d0890dcc631d341e3a973c059f872eb166637cbe825c055caa849b0b5" },
      { "cifar10/grey_test_0000-1016.bin", 1042425,
        "7fad33b04b93d9c84a622be30516bac4d20ed4ec62309ca74695210cde89ba03" },
    },
  },
  {
    name = "cifar-standin", what = "images of stripes, a stand-in for cifar10",
    licence = "none needed", generated = true,
    source = "drawn by tl.tasks['cifar-standin']", files = {},
  },
  {
    name = "aan", what = "pairs of scientific papers (LRA Retrieval)", licence = "as published",
    source = "the files tsv_data/new_aan_pairs.* of lra_release.gz, "
      .. "https://github.com/google-research/long-range-arena",
    by_hand = "the files new_aan_pairs.train.tsv, .eval.tsv and .test.tsv in a folder aan",
    files = {
      { "aan/new_aan_pairs.train.tsv" }, { "aan/new_aan_pairs.eval.tsv" },
      { "aan/new_aan_pairs.test.tsv" },
    },
  },
  {
    name = "retrieval-standin", what = "documents of random words, a stand-in for aan",
    licence = "none needed", generated = true,
    source = "drawn by tl.tasks['retrieval-standin']", files = {},
  },
  {
    name = "glue", what = "CoLA, SST-2, MRPC, RTE, STS-B and WNLI", licence = "as published",
    source = "https://gluebenchmark.com/",
    by_hand = "the files train.tsv and dev.tsv of CoLA, RTE, SST-2, STS-B and WNLI, and "
      .. "train.rebuilt.tsv and dev.rebuilt.tsv of MRPC, in folders glue/glue_data/NAME",
    archive = { "glue-CoLA-SST2-MRPC-RTE-STSB-WNLI.tar.xz",
      "909f8da045ad96ca6cb29ef6581f595f6c769fa1ef8f9622dc8a823fcc8d7cf7" },
    files = {
      { "glue/glue_data/CoLA/train.tsv", 428590,
        "cb368ebeb9f27d7ad03720d27ddc95687a311bdb100781a2fe59a5f5b1bc0624" },
      { "glue/glue_data/RTE/train.tsv", 846226,
        "41e3a9b063433392343fad9e962cf2f58b681c78d8f71592f4186f0837246c5c" },
      { "glue/glue_data/SST-2/train.tsv", 3806081,
        "48eac26399f8456935f81dd9e3a745c1430adb6c62e233ccfe22db4a0d15d1d1" },
      { "glue/glue_data/STS-B/train.tsv", 984099,
        "41c4d978b6162abdcada7e49a982211954cca5459c228db478af333124b257a2" },
      { "glue/glue_data/WNLI/train.tsv", 99411,
        "9a88e9d54b6861cc796a088e9acf4f5f65064a9ef65ae6fa7a688b28391e5c9a" },
      { "glue/glue_data/CoLA/dev.tsv", 53717,
        "8c013e21dc39957cac37378d87bebe225b694a0d5fe13eded66c2856628833fd" },
      { "glue/glue_data/RTE/dev.tsv", 90343,
        "80230dfa1347282e7b532b06a1004a76a710087541189bf874223ddf0e3819fb" },
      { "glue/glue_data/SST-2/dev.tsv", 94931,
        "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0" },
      { "glue/glue_data/STS-B/dev.tsv", 276928,
        "fe7dc0632a5033562f3cadff991f6e8d9b9b6311861660e78c3c82eb7db67f59" },
      { "glue/glue_data/WNLI/dev.tsv", 11261,
        "cba00490596dd14be8cf53b4f53bb744abe3a7b89f81ab210528d80225338ed5" },
      { "glue/glue_data/MRPC/train.rebuilt.tsv", 941468,
        "15d9c71e62d662b1cc9237e2015047cad4c1f62552d49858a9bce2b944d79897" },
      { "glue/glue_data/MRPC/dev.rebuilt.tsv", 105613,
        "320459df9454dbdc8eea69ad1eb294967e7dfe03e7cf791f37d954a316f5253d" },
    },
  },
  {
    name = "MNLI", what = "pairs of sentences: entailment (GLUE)", licence = "as published",
    source = "https://gluebenchmark.com/",
    download = {
      { url = "https://dl.fbaipublicfiles.com/glue/data/MNLI.zip", unpack = "zip",
        bytes = 312783507,
        sha256 = "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633" },
    },
    files = { { "MNLI/train.tsv" }, { "MNLI/dev_matched.tsv" }, { "MNLI/dev_mismatched.tsv" } },
  },
  {
    name = "QNLI", what = "questions and sentences that may answer (GLUE)",
    licence = "as published", source = "https://gluebenchmark.com/",
    download = {
      { url = "https://dl.fbaipublicfiles.com/glue/data/QNLIv2.zip", unpack = "zip",
        bytes = 10627589,
        sha256 = "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5" },
    },
    files = { { "QNLI/train.tsv" }, { "QNLI/dev.tsv" } },
  },
  {
    name = "QQP", what = "pairs of questions: the same or not (GLUE)", licence = "as published",
    source = "https://gluebenchmark.com/",
    download = {
      { url = "https://dl.fbaipublicfiles.com/glue/data/QQP-clean.zip", unpack = "zip",
        bytes = 41696084,
        sha256 = "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0" },
    },
    files = { { "QQP/train.tsv" }, { "QQP/dev.tsv" } },
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

function datasets.folder()
  local folder = os.getenv("TOEPLAB_DATA")
  return folder and folder ~= "" and folder or nil
end

-- Returns the folder for data sets when TOEPLAB_DATA is not set or cannot be written; nil without a
-- cache folder.
function datasets.own_folder()
  local cache = core.sys.cache_dir()
  return cache and cache .. "/data"
end

-- Returns the path of a file of a data set, named as in files; nil if it is absent.
function datasets.place(file)
  for _, folder in ipairs { datasets.folder() or false, datasets.own_folder() or false } do
    local path = folder and folder .. "/" .. file
    if path and core.sys.exists(path) then return path end
  end
end

-- Returns {train = path, valid = path, test = path} for the parts of a set that are present; nil
-- for a set without parts.
function datasets.parts(set)
  if not set.parts then return nil end
  local found = {}
  for name, files in pairs(set.parts) do
    for _, file in ipairs(files) do found[name] = found[name] or datasets.place(file) end
  end
  return found
end

-- Returns the state of the file (an entry of files) at path: "here", "absent", "wrong size" or, if
-- check is set and its hash differs, "differs".
function datasets.file_state(path, file, check)
  local size = path and core.sys.size(path)
  if not size then return "absent" end
  if file[2] and size ~= file[2] or size == 0 then return "wrong size" end
  if check and file[3] and core.sha256_file(path) ~= file[3] then return "differs" end
  return "here"
end

-- Returns the files of a set in groups of alternatives, one of which is enough.
local function groups(set)
  local entries, list = {}, {}
  for _, file in ipairs(set.files) do entries[file[1]] = file end
  for _, names in pairs(set.parts or {}) do
    local group = {}
    for _, name in ipairs(names) do
      group[#group + 1], entries[name] = entries[name], nil
    end
    list[#list + 1] = group
  end
  for _, file in ipairs(set.files) do
    if entries[file[1]] then list[#list + 1] = { file } end
  end
  return list
end

-- Returns the state of a set: the worst state of its files, "here (program)" if a program prints
-- it, "here (generated)" if it is generated, or "as archive".
function datasets.state(set, check)
  if set.generated then return "here (generated)" end
  local worst = "here"
  for _, group in ipairs(groups(set)) do
    local best
    for _, file in ipairs(group) do
      local state = datasets.file_state(datasets.place(file[1]), file, check)
      if not best or best == "absent" or state == "here" then best = state end
    end
    if best ~= "here" and worst ~= "wrong size" and worst ~= "differs" then worst = best end
  end
  if worst == "absent" and datasets.installed(set) then return "here (program)" end
  if worst == "absent" and datasets.archive(set) then return "as archive" end
  return worst
end

function datasets.archive(set)
  local folder = datasets.folder()
  local path = folder and set.archive and folder .. "/" .. set.archive[1]
  return path and core.sys.exists(path) and path or nil
end

function datasets.installed(set)
  return set.program ~= nil and shell.on_path(set.program:match("^%S+"))
end

-- Returns the words "the archive NAME" if the set's archive is the published download; nil if it
-- was packed from the published files.
local function published_archive(set)
  local archive = set.archive
  for _, item in ipairs(archive and set.download or {}) do
    if item.sha256 == archive[2] then return "the archive " .. archive[1] end
  end
end

-- Returns the names of a set's files; of alternatives, the first, which is the published one.
local function file_names(set)
  local later, names = {}, {}
  for _, files in pairs(set.parts or {}) do
    for i = 2, #files do later[files[i]] = true end
  end
  for _, file in ipairs(set.files) do
    if not later[file[1]] then names[#names + 1] = file[1] end
  end
  return table.concat(names, ", ")
end

-- Returns a list of strings on how to get a set; the last way needs no network.
function datasets.ways(set)
  if set.generated then return { "use it: it is generated when it is used" } end
  local ways, folder = {}, datasets.folder()
  if set.package and shell.on_path "apt-get" then
    ways[#ways + 1] = "install the package: apt install " .. set.package
  end
  if set.download or datasets.archive(set) then
    ways[#ways + 1] = shell.named("fetch it: toeplab data fetch ") .. set.name
  end
  ways[#ways + 1] = ("put %s in %s (source: %s)"):format(
    published_archive(set) or set.by_hand or file_names(set),
    folder and folder .. ", which TOEPLAB_DATA names" or "a folder that TOEPLAB_DATA names",
    set.source)
  return ways
end

-- Returns these ways as a sentence without its full stop.
function datasets.advice(set)
  local ways = datasets.ways(set)
  if #ways > 1 then return "Either " .. table.concat(ways, ",\nor ") end
  return (ways[1]:gsub("^%l", string.upper))
end

return datasets
