-- commands/verify.lua: toeplab verify: runs reference cases, and compares backends with the
-- definition.
local conformance = require "toeplab.verify.conformance"
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local pathfinder = require "toeplab.verify.pathfinder"
local progress = require "toeplab.base.progress"
local reference = require "toeplab.verify.reference"
local arguments = require "toeplab.base.arguments"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
local text_table = require "toeplab.base.text_table"

local verify = {
  example = "toeplab verify --backend fft reference/operators.h5\n"
    .. "  toeplab verify mybackend block=64",
  usage = "toeplab verify [--backend NAME]... [--precision P] [--device D] FILE.h5...\n"
    .. "       toeplab verify NAME [OPTION=VALUE]...",
  about = "Runs the cases of reference files and prints the worst relative error of each output,\n"
    .. "max |got - want| / max |want|; a case runs on the backends whose coefficients have its\n"
    .. "form: by lag, by frequency or by warped lag. NAME: compares a backend, with these of its\n"
    .. "options, with the definition over a table of shapes. Exit code 4 if an error is above\n"
    .. "tolerance (1e-5; for the parameters after a training run 1e-4; with --precision bf16 all\n"
    .. "2e-2, with tf32 5e-3), or if nothing was compared. The statistics of Pathfinder\n"
    .. "(pathfinder.json, or pathfinder.h5 beside it) are compared with images drawn now, each\n"
    .. "in standard errors of the difference; exit code 4 if 1 % are more than 3\n"
    .. "apart, or one is more than 4.",
  computes = true,
  words = { "references" },
  options = {
    { name = "backend", short = "b", value = "NAME", many = true, of = "backends",
      help = "only this backend (may be repeated); without a file as NAME" },
    { name = "precision", short = "p", value = "PRECISION", choices = core.precisions "cuda",
      help = "of products in layers and models: float32 (the default), bf16, on GPUs tf32",
      more = [[
        Errors up to 2e-2 pass with bf16, up to 5e-3 with tf32. The operators of backends and
        their encoders always compute in float32.]] },
    { name = "device", short = "d", value = "DEVICE", of = "devices",
      help = "the device: cpu, cuda, or cuda:1 for the second GPU",
      more = [[
        Also the path of a device file, such as the emulated GPU of the tests.]] },
    { name = "all", short = "a", help = "print each parameter's gradient, not only the worst" },
    { name = "images", short = "i", value = "N",
      help = "for Pathfinder: images to draw (20,000 of 32x32, 1,000 of 128x128)" },
    { name = "quiet", short = "q", help = "print failures and the summary of each file" },
  },
}

local function known_backends()
  local names = {}
  for i, backend in ipairs(core.backends()) do names[i] = backend.name end
  return names
end

local function check_backend(name, names)
  local ok, why = suggest.choose("backend", name, names)
  if not ok then errors.usage("%s", why) end
end

-- Reduces the gradients of many parameters to the worst one.
local function shorten(results)
  local short, worst, count = {}, nil, 0
  for _, r in ipairs(results) do
    if r.grad then
      count = count + 1
      if not worst or r.error > worst.error then worst = r end
    else
      short[#short + 1] = r
    end
  end
  if worst then
    short[#short + 1] = { name = ("grads(%d)"):format(count), error = worst.error, at = worst.name }
  end
  return short
end

local low = { bf16 = 2e-2, tf32 = 5e-3 } -- tolerances of these precisions

local function tolerance(r)
  return low[core.precision()] or r.tolerance or reference.tolerance
end

local function line_of(name, backend, results, good, all)
  local parts = {}
  for _, r in ipairs(all and results or shorten(results)) do
    local bad = not (r.error <= tolerance(r))
    parts[#parts + 1] = ("%s %.1e%s"):format(r.name, r.error, bad and "!" or "")
    if bad and r.at then parts[#parts + 1] = "(" .. r.at .. ")" end
    if r.why then parts[#parts + 1] = "(" .. r.why .. ")" end
  end
  return ("%-6s %-34s %-7s %s"):format(good and "ok" or "FAILED", name, backend,
    table.concat(parts, "  "))
end

-- Names the running backend, which main.c reports if it crashes; nil: no single backend.
local function begin(backend)
  core.sys.tell(backend and ("backend '%s'"):format(backend) or "a plugin or a library")
end

-- Counts and prints the results of one file or backend.
local function tally(set)
  local t = { passed = 0, failed = 0, skipped = 0, worst = 0.0, reasons = {}, ran = {}, apart = {} }
  function t.aside(_, _, domain) t.apart[domain] = (t.apart[domain] or 0) + 1 end
  function t.found(name, kind, backend, results, why)
    if not results then
      t.skipped = t.skipped + 1
      t.reasons[why] = (t.reasons[why] or 0) + 1
      if not set.quiet then
        print(("%-6s %-34s %-7s %s: %s"):format("-", name, backend or "-", kind or "?", why))
      end
      return
    end
    t.ran[backend] = (t.ran[backend] or 0) + 1
    local good = #results > 0
    for _, r in ipairs(results) do
      good = good and r.error <= tolerance(r)
      if r.error > t.worst and not r.tolerance then
        t.worst, t.at = r.error, name .. " " .. r.name
      end
    end
    t[good and "passed" or "failed"] = t[good and "passed" or "failed"] + 1
    if not good or not set.quiet then print(line_of(name, backend, results, good, set.all)) end
  end
  return t
end

-- Formats counts: "fd 2, fft 6".
local function counts(of)
  local parts = {}
  for i, name in ipairs(sorted_keys(of)) do parts[i] = ("%s %d"):format(name, of[name]) end
  return table.concat(parts, ", ")
end

local function summary(title, t, of_file)
  local good = t.failed == 0 and t.passed > 0
  local text = ("%s: %d passed, %d failed, %d skipped"):format(title, t.passed, t.failed, t.skipped)
  if t.at then text = text .. (", worst %.1e (%s)"):format(t.worst, t.at) end
  if progress.colour(1) then io.write(good and "\27[32m" or "\27[31m") end
  print(text)
  if progress.colour(1) then io.write("\27[0m") end
  for _, why in ipairs(sorted_keys(t.reasons)) do
    print(("  skipped: %d x %s"):format(t.reasons[why], why))
  end
  for _, domain in ipairs(sorted_keys(t.apart)) do
    print(("  not run: %d cases by %s, which no chosen backend takes"):format(t.apart[domain],
      domain))
  end
  if of_file and t.passed + t.failed > 0 then print("  cases run by: " .. counts(t.ran)) end
  if t.passed + t.failed == 0 then print("  nothing was compared, which is a failure") end
  return good
end

-- Compares images that are drawn now with the statistics of Pathfinder at path.
local function compare_pathfinder(path, set)
  local good = true
  local count = arguments.integer("verify", set, "images", 100)
  pathfinder.run(path, count, progress.new { quiet = set.quiet }, function(size, images, rows)
    local fine, beyond = pathfinder.agree(rows)
    good = good and fine
    local cells = {}
    for _, row in ipairs(rows) do
      local wrong = not (row.apart <= pathfinder.LIMIT)
      if wrong or not set.quiet then
        cells[#cells + 1] = { row.name, ("%.6g"):format(row.theirs), ("%.6g"):format(row.ours),
          ("%.2f%s"):format(row.apart, wrong and " !" or "") }
      end
    end
    if #cells > 0 then
      text_table.print({ ("%dx%d"):format(size, size), "published", "ours", "standard errors" },
        cells)
    end
    print(("%s: %d statistics of %d images of %dx%d, %d more than %d standard errors apart "
      .. "(%.1f expected by chance)"):format(fine and "ok" or "FAILED", #rows, images, size, size,
      beyond, pathfinder.LIMIT, 0.0027 * #rows))
  end)
  return good
end

-- Runs the cases of the reference file at path, or compares its statistics.
local function check_file(path, set, chosen)
  if not core.sys.exists(path) then errors.usage("%s: there is no such file", path) end
  local statistics = pathfinder.statistics_of(path)
  if statistics then return compare_pathfinder(statistics, set) end
  local t = tally(set)
  core.precision(set.precision or "float32", reference.run, path, chosen, t.found, t.aside, begin)
  return summary(path, t, true)
end

-- Returns whether a word is the path of a file; others are backends.
local function is_path(word) return word:find "[./]" ~= nil end

-- Returns the words that are not options, and the options of each backend.
local function split(words)
  local rest, options = {}, {}
  for _, word in ipairs(words) do
    local key, value = word:match "^([%a_][%w_]*)=(.*)$"
    local backend = rest[#rest]
    if key and (not backend or is_path(backend)) then
      errors.usage("verify: '%s' follows no backend: write NAME %s", word, word)
    elseif key then
      options[backend][key] = value
    else
      rest[#rest + 1], options[word] = word, options[word] or {}
    end
  end
  return rest, options
end

-- Raises if a backend rejects its options.
local function check_backend_options(backend, options)
  begin(backend)
  local ok, why = pcall(core.tno, backend, 8, 2, true, options)
  if not ok and why.status == "EINVAL" then errors.usage("verify: %s", errors.text(why)) end
end

-- Raises for unknown backends, and for options that would have no effect. asked: the words as the
-- user gave them.
local function check_options(set, words, names, asked, options)
  local files, statistics = 0, 0
  for _, word in ipairs(words) do
    if is_path(word) then
      files = files + 1
      local some = core.sys.exists(word) and pathfinder.statistics_of(word)
      statistics = statistics + (some and 1 or 0)
    else
      check_backend(word, names)
      check_backend_options(word, options[word])
      if set.precision then
        errors.usage("verify: --precision requires a reference file, got the backend '%s'", word)
      end
    end
  end
  if set.images and statistics == 0 then
    errors.usage "verify: --images requires the statistics of Pathfinder"
  end
  if files > 0 then return end
  if set.all then errors.usage "verify: --all requires a reference file" end
  if set.backend and #asked > 0 then
    errors.usage("verify: give %s as a name or by --backend, not both", set.backend[1])
  end
end

function verify.run(set, asked)
  local words, options = split(#asked > 0 and asked or set.backend or {})
  if #words == 0 then errors.usage("verify: give reference files, or the name of a backend") end
  local wrong = devices.lacks(core.device(), set.precision or "float32")
  if wrong then errors.usage("verify: %s", wrong) end
  local names, good = known_backends(), true
  local chosen = set.backend or names
  local device, about = core.device()
  if device ~= "cpu" and not set.quiet then print(("on %s: %s"):format(device, about)) end
  for _, name in ipairs(chosen) do check_backend(name, names) end
  check_options(set, words, names, asked, options)
  for _, word in ipairs(words) do
    if is_path(word) then
      good = check_file(word, set, chosen) and good
    else
      local t = tally(set)
      begin(word)
      conformance.run(word, options[word], t.found)
      good = summary(word, t, false) and good
    end
  end
  begin(nil)
  return good and errors.DONE or errors.CHECK
end

return verify
