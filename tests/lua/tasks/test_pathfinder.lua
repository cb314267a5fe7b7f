-- test_pathfinder.lua: the tasks Pathfinder and Path-X: their sets, the cache of their images,
-- files for other programs, and the comparison with published statistics.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local measures = require "toeplab.verify.picture_measures"
local verify = require "toeplab.verify.pathfinder"
local progress = require "toeplab.base.progress"

local few = { train = 24, valid = 8, test = 8 }

local function open(more)
  local o = {}
  for key, v in pairs(few) do o[key] = v end
  for key, v in pairs(more or {}) do o[key] = v end
  return tl.tasks.pathfinder(o)
end

-- Returns the pixels and the labels of a set.
local function content(set)
  local batch = set:each(set.count)()
  return { batch.ids:totable(), batch.labels:totable() }
end

t.test("a task has three sets of images with labels", function()
  local task = open()
  t.eq({ task.vocab, task.classes, task.grid, task.pixels },
    { 256, 2, { 32, 32 }, { mean = 0.5, deviation = 0.5 } })
  t.eq({ task.train.count, task.valid.count, task.test.count }, { 24, 8, 8 })
  local batch = task.train:batch(1, 4)
  t.eq(batch.ids:shape(), { 4, 1024 })
  t.eq(batch.lengths, { 1024, 1024, 1024, 1024 })
  local images, labels = core.pathfinder { size = 32, seed = 1, first = 16, count = 24 }
  local numbers = {}
  for i = 1, 24 do numbers[i] = i - 1 end
  t.eq(content(task.train), { images:batch(core.ids(numbers)):totable(), labels:totable() })
end)

t.test("validation and test images do not depend on the number of training images", function()
  local task, other = open(), open { train = 3 }
  t.eq(content(task.valid), content(other.valid))
  t.eq(content(task.test), content(other.test))
  t.ok(content(task.valid)[1][1] ~= content(open { data_seed = 2 }.valid)[1][1])
  -- Test images follow those that validate, as the option's help says.
  local fewer = content(open { valid = 4 }.test)
  t.eq({ table.unpack(fewer[1], 1, 4) }, { table.unpack(content(task.valid)[1], 5, 8) })
end)

t.test("Path-X has images of 128x128", function()
  local task = tl.tasks["path-x"] { train = 2, valid = 1, test = 1 }
  t.eq(task.grid, { 128, 128 })
  t.eq(task.train:batch(1, 2).ids:shape(), { 2, 16384 })
end)

t.test("wrong options are errors", function()
  t.raises(open, "'size' is 48, not 32, 64, 128 or 256", { size = 48 })
  t.raises(open, "train", { train = 0 })
  t.raises(open, "did you mean 'data_seed'", { data_sed = 1 })
  t.ok(tl.tasks.hash "pathfinder" ~= tl.tasks.hash "path-x")
end)

-- ---- Files --------------------------------------------------------------------------------------

-- Runs fn with an own cache folder in a process of its own; returns what it prints.
local function in_cache(folder, code)
  local script = folder .. "/script.lua"
  t.write(script, "local tl = require 'toeplab'\n" .. code)
  return (t.shell(("TOEPLAB_CACHE='%s' '%s' lua '%s' 2>&1"):format(folder,
    core.sys.executable(), script)))
end

local cached = [[
local task = tl.tasks.pathfinder { train = 2100, valid = 1, test = 1 }
local ids = task.train:each(2100)().ids
local sum = ids:reshape(-1):totable()
local labels = task.train:each(2100)().labels:totable()
local n = 0
for i, v in ipairs(sum) do n = (n * 31 + v) % 1000003 end
for i, v in ipairs(labels) do n = (n * 31 + v) % 1000003 end
print("sum", n)
]]

t.test("images are cached, and drawn again if their file is damaged", function()
  t.in_folder(function(folder)
    local first = in_cache(folder, cached)
    local sum = first:match "sum%s+(%d+)"
    t.ok(sum and not first:find "warning", first)
    local names = core.sys.list(folder .. "/images")
    table.sort(names)
    t.eq(#names, 3)
    local path = folder .. "/images/" .. names[1]
    local whole = t.read(path)
    t.eq(#whole, 2100 * 1025)
    t.eq(t.read(path .. ".sha256"), core.sha256(whole) .. "  " .. names[1] .. "\n")
    t.eq(in_cache(folder, cached), "sum\t" .. sum .. "\n") -- and draws nothing
    for _, case in ipairs {
      { "has 1000 bytes, not 2152500", function() t.write(path, whole:sub(1, 1000)) end },
      { "differs from its sha256", function()
        t.write(path, whole:sub(1, 5000) .. "?" .. whole:sub(5002))
      end },
      { "has no sha256 beside it", function()
        os.remove(path .. ".sha256")
        t.write(("%s/images/.%s.tmp.%s.999999999"):format(folder, names[1], core.sys.hostname()),
          "of a process that was killed")
      end },
    } do
      case[2]()
      local text = in_cache(folder, cached)
      t.ok(text:find(case[1], 1, true) and text:find("drawn again", 1, true), text)
      t.eq(text:match "sum%s+(%d+)", sum)
      t.eq(t.read(path), whole)
    end
    t.eq(#core.sys.list(folder .. "/images"), 3) -- nothing temporary is left
    os.remove(path .. ".sha256")
    assert(core.sys.mkdir(path .. ".sha256"))
    local text = in_cache(folder, cached)
    t.ok(text:find(".sha256: is a folder, not a file: move it away", 1, true), text)
  end)
end)

t.test("a generated set is written as records of a label and the pixels", function()
  t.in_folder(function(folder)
    local module = require "toeplab.tasks.pathfinder"
    local paths = module.write(folder, few, progress.new { quiet = true })
    t.eq(#paths, 3)
    local task, text = open(), t.read(folder .. "/pathfinder32_valid.bin")
    t.eq(#text, 8 * 1025)
    local pixels, labels = table.unpack(content(task.valid))
    for i = 1, 8 do
      t.eq(text:byte((i - 1) * 1025 + 1), labels[i])
      t.eq({ text:byte((i - 1) * 1025 + 2, i * 1025) }, pixels[i])
    end
  end)
end)

t.test("reports an unusable cache folder, and draws the images anyway", function()
  t.in_folder(function(folder)
    local sum = in_cache(folder, cached):match "sum%s+(%d+)"
    t.write(folder .. "/other", "no folder")
    local text = t.shell(("TOEPLAB_CACHE='%s/other' '%s' lua '%s/script.lua' 2>&1"):format(
      folder, core.sys.executable(), folder))
    t.ok(text:find("no folder to cache images in", 1, true), text)
    t.eq(text:match "sum%s+(%d+)", sum)
    -- whole images in a folder that cannot be written to (the lock cannot be opened) are read
    for _, name in ipairs(core.sys.list(folder .. "/images")) do
      if name:find "%.lock$" then
        os.remove(folder .. "/images/" .. name)
        assert(core.sys.mkdir(folder .. "/images/" .. name))
      end
    end
    text = in_cache(folder, cached)
    t.eq(text, "sum\t" .. sum .. "\n")
    for _, name in ipairs(core.sys.list(folder .. "/images")) do
      if name:find "%.bin$" then os.remove(folder .. "/images/" .. name) end
    end
    text = in_cache(folder, cached)
    t.ok(text:find("no folder to cache images in (", 1, true), text)
    t.eq(text:match "sum%s+(%d+)", sum)
  end)
end)

-- Runs toeplab data generate pathfinder FOLDER/out with more words; returns its text and exit code.
-- before and after are words of the shell around it.
local function generate(folder, words, before, after)
  return t.shell(("%s '%s' data generate -q pathfinder '%s/out' %s %s 2>&1"):format(before or "",
    core.sys.executable(), folder, words, after or ""))
end

t.test("a signal ends the writing of images, and no partial file is left", function()
  t.in_folder(function(folder)
    local text, code = generate(folder, "train=1000000 valid=8 test=8", "exec 2>&1;",
      ("& while ! ls -A '%s/out' 2>/dev/null | grep -q train; do sleep 0.05; done; kill -TERM $!; "
      .. "wait $!"):format(folder))
    t.eq({ text, code }, { "toeplab: stopped by SIGTERM\n", 143 })
    local names = core.sys.list(folder .. "/out")
    table.sort(names)
    t.eq(names, { "pathfinder32_test.bin", "pathfinder32_valid.bin" })
    local left = ("%s/out/.pathfinder32_test.bin.tmp.%s.999999999"):format(folder,
      core.sys.hostname()) -- of a process that was killed
    t.write(left, "half")
    t.eq(select(2, generate(folder, "train=8 valid=8 test=8")), 0)
    t.eq(#core.sys.list(folder .. "/out"), 3)
  end)
end)

t.test("images that cannot be written are one line of text without a traceback", function()
  t.in_folder(function(folder)
    local text, code = generate(folder, "size=33")
    t.ok(code == 2 and text:find("^toeplab: [^\n]*'size' is 33, not 32[^\n]*\n$"), text)
    text, code = generate(folder, "train=100 valid=8 test=8", "ulimit -f 40;")
    t.eq({ text, code }, { ("toeplab: %s/out/pathfinder32_train.bin: File too large\n"):format(
      folder), 6 })
    text, code = generate(folder, "size=256 train=1000000000 valid=8 test=8")
    t.ok(code == 6 and text:find("^toeplab: pathfinder needs 65537%d+.0 MB, and [^\n]+ MB free\n$"),
      text)
    t.eq(#core.sys.list(folder .. "/out"), 2) -- of the second command
  end)
end)

t.test("the experiment pathfinder-conv runs at the scale smoke", function()
  t.in_folder(function(folder)
    local script = t.root .. "experiments/pathfinder-conv.lua"
    local said, code = t.shell(("'%s' run -q -C '%s/results' '%s' scale=smoke 2>&1"):format(
      core.sys.executable(), folder, script))
    t.ok(code == 0 and said:find "32 .* 1793 ", said)
  end)
end)

-- ---- Statistics ---------------------------------------------------------------------------------

t.test("JSON of other programs is decoded", function()
  t.eq(json.decode ' {"a": [1, -2.5e1, true, null], "b\\n\\u00e4\\\\": {}, "c": "x\\"y"} ',
    { a = { 1, -25.0, true }, ["b\n\xc3\xa4\\"] = {}, c = 'x"y' })
  for text, why in pairs { ['{"a": 1'] = "line 1: expected ',' or '}'",
    ['{a: 1}'] = "expected a key",
    ['[1\n2]'] = "line 2: expected ',' or ']'", ["[1] 2"] = "expected the end", ["'x'"] = "a value",
    ['"x'] = "the end of the string", [""] = "a value", ['"\\q"'] = "an escape of JSON",
    ['"a\nb"'] = "no control character in a string", ["\v1"] = "a value" } do
    t.raises(json.decode, why, text)
  end
  t.eq(json.decode('"\\/\x7f"'), "/\x7f")
  for _, number in ipairs { "0", "-0", "10", "0.5", "-1.50", "1e5", "2E+05", "1.0e-3" } do
    t.eq(json.decode(number), tonumber(number))
  end
  for _, word in ipairs { "01", "-01", ".5", "1.", "1.e5", "+1", "1e", "1e+", "0x1", "1-5", "--1",
    "1.2.3", "-", "NaN", "inf" } do
    t.raises(json.decode, "expected a value", word)
  end
end)

t.test("a file without statistics is an error", function()
  t.in_folder(function(folder)
    local path, quiet = folder .. "/x.json", progress.new { quiet = true }
    t.write(path, "{}")
    t.raises(verify.run, "has no statistics of Pathfinder", path, 100, quiet, print)
    t.write(path, '{"pathfinder32": {"images": 100,}')
    t.raises(verify.run, "x.json: line 1", path, 100, quiet, print)
    t.write(path, '{"pathfinder32": {"images": 100}}')
    t.raises(verify.run, "statistics of 32x32 are incomplete", path, 100, quiet, print)
    t.eq(verify.statistics_of(path), path)
    t.eq(verify.statistics_of(path .. ".h5"), nil)
  end)
end)

t.test("measures of a small image", function()
  local picture = { -- two components of at least 64, three of at least 128
    200, 70, 200, 0,
    0, 0, 0, 0,
    0, 128, 0, 0,
    255, 0, 0, 0 }
  t.eq(measures.components(picture, 4, 64), 2)
  t.eq(measures.components(picture, 4, 128), 3)
  t.eq(measures.components(picture, 4, 255), 1)
end)

t.test("the spectrum of a wave is in the ring of its frequency", function()
  local rows, size = {}, 32
  for i = 0, size * size - 1 do
    rows[i + 1] = math.floor(128 + 100 * math.cos(2 * math.pi * 5 * (i % size) / size) + 0.5)
  end
  local shares = measures.spectrum(size)(core.ids { rows })[1]
  t.ok(shares[3] > 0.99, tostring(shares[3])) -- 5/32 is in 2/16..3/16
end)

local function mean_of(list)
  local sum = 0
  for _, x in ipairs(list) do sum = sum + x end
  return sum / #list
end

local function summary(list)
  local mean, squares, sorted = mean_of(list), {}, table.move(list, 1, #list, 1, {})
  for i, x in ipairs(list) do squares[i] = (x - mean) ^ 2 end
  table.sort(sorted)
  local levels = {}
  for i, level in ipairs { 0.05, 0.25, 0.5, 0.75, 0.95 } do
    levels[i] = sorted[math.ceil(level * #sorted)]
  end
  return { mean = mean, std = math.sqrt(mean_of(squares)), min = sorted[1], max = sorted[#sorted],
    quantiles_05_25_50_75_95 = levels }
end

-- Returns the values of a measure, of the images with that label if one is given.
local function values_of(rows, name, label)
  local values = {}
  for _, row in ipairs(rows) do
    if not label or row.label == label then values[#values + 1] = row[name] end
  end
  return values
end

local function each(count, fn)
  local values = {}
  for i = 1, count do values[i] = fn(i) end
  return values
end

local function histogram(values, first, last)
  local counts = {}
  for key = first, last do counts[tostring(key)] = 0 end
  for _, x in ipairs(values) do counts[("%d"):format(x)] = counts[("%d"):format(x)] + 1 end
  return counts
end

local function distances(rows)
  local edges, result = { 0, 8, 16, 48 }, {}
  result.histogram_8_bins = { edges = edges }
  for label = 0, 1 do
    local list = values_of(rows, "distance", label)
    result["label_" .. label] = summary(list)
    result.histogram_8_bins["label_" .. label] = each(3, function(bin)
      local count = 0
      for _, x in ipairs(list) do
        if x >= edges[bin] and x < edges[bin + 1] then count = count + 1 end
      end
      return count
    end)
  end
  return result
end

local function rejection(rows)
  local function mean(name) return mean_of(values_of(rows, name)) end
  local more = 0
  for _, row in ipairs(rows) do more = more + (row.pairs > 1 and 1 or 0) end
  return { tries_per_image = summary(values_of(rows, "pairs")),
    target_pairs_tried = mean "pairs" * #rows, target_pairs_rejected_share = 1 - 1 / mean "pairs",
    of_these_at_the_seeds = mean "no_seeds" * #rows,
    images_needing_more_than_one_try_share = more / #rows,
    distractor_tries = mean "tries" * #rows,
    distractor_tries_failed_share = 1 - mean "distractors" / mean "tries", distractors_wanted = 5,
    distractors_drawn_histogram = histogram(values_of(rows, "distractors"), 0, 5) }
end

-- Returns the statistics of images in the form of the published file.
local function published(rows)
  local function list(name, label) return values_of(rows, name, label) end
  local function difference(name) return mean_of(list(name, 1)) - mean_of(list(name, 0)) end
  local lit, shapes, greys, mean = {}, {}, list "first grey", mean_of(list "mean")
  for _, v in ipairs { 1, 32, 64, 128, 192 } do
    lit["grey_ge_" .. v] = summary(list("lit " .. v))
  end
  for _, v in ipairs { 64, 128 } do shapes["grey_ge_" .. v] = summary(list("components " .. v)) end
  for _, grey in ipairs(list "last grey") do greys[#greys + 1] = grey end
  return {
    images = #rows, label_share_1 = #list("mean", 1) / #rows,
    intensity = { mean = mean, std = math.sqrt(mean_of(list "square") - mean ^ 2),
      per_image_mean = summary(list "mean"), per_image_std = summary(list "std") },
    grey_histogram_16 = each(16, function(i) return mean_of(list("grey " .. i)) end),
    lit_fraction = lit, components_8_connected = shapes,
    components_ge64_histogram = histogram(list "components 64", 1, 40),
    marker_distance_pixels = distances(rows),
    marker_position = {
      first_tail = { row = summary(list "first row"), column = summary(list "first column") },
      last_head = { row = summary(list "last row"), column = summary(list "last column") } },
    marker_grey_at_centre = summary(greys),
    radial_power_8_rings = {
      mean = each(8, function(i) return mean_of(list("ring " .. i)) end),
      std = each(8, function(i) return summary(list("ring " .. i)).std end),
      corners = mean_of(list "ring 9") },
    block_mean_8x8 = each(8, function(r)
      return each(8, function(c) return mean_of(list("block " .. (r - 1) * 8 + c)) end)
    end),
    label_1_minus_label_0 = { mean_intensity = difference "mean", lit64 = difference "lit 64",
      components64 = difference "components 64" },
    unstretched = { max = summary(list "peak"), min = summary(list "floor") },
    rejection = rejection(rows),
  }
end

t.test("statistics agree with the same generator, and not with others", function()
  local quiet = progress.new { quiet = true }
  local one, two = verify.rows(32, 200, 1, quiet), verify.rows(32, 200, 2, quiet)
  local ref = published(one)
  local fine = verify.agree(verify.compare(ref, two))
  t.ok(fine, "two samples of one generator differ")
  ref = json.decode(json.encode(ref))
  t.ok(verify.agree(verify.compare(ref, two)), "the statistics do not survive JSON")
  t.in_folder(function(folder)
    local function command(text)
      t.write(folder .. "/p.json", text)
      local said, code = t.shell(("'%s' verify -q --images 120 '%s/p.json' 2>&1"):format(
        core.sys.executable(), folder))
      return code, said
    end
    local text = json.encode { pathfinder32 = ref }
    local code, said = command(text)
    t.ok(code == 0 and said:find "ok: %d+ statistics of 120 images of 32x32", said)
    ref.intensity.mean = 2 * ref.intensity.mean
    code, said = command(json.encode { pathfinder32 = ref })
    t.ok(code == 4 and said:find "intensity of all pixels, mean" and said:find "FAILED", said)
    ref.intensity.mean = ref.intensity.mean / 2
  end)
  for _, row in ipairs(two) do row.mean = row.mean * 1.05 end
  local agrees, beyond = verify.agree(verify.compare(ref, two))
  t.ok(not agrees and beyond > 0, "another brightness is not noticed")
end)

t.done()
