-- commands/verify.lua: toeplab verify: runs reference cases, and compares backends with the
-- definition.
local conformance = require "toeplab.verify.conformance"
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local progress = require "toeplab.base.progress"
local reference = require "toeplab.verify.reference"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local verify = {
  example = "toeplab verify --backend fft reference/operators.h5\n  toeplab verify mybackend",
  usage = "toeplab verify [--backend NAME]... [--precision P] [--device D] FILE.h5...\n"
    .. "       toeplab verify NAME...",
  about = "Runs the cases of reference files and prints the worst relative error of each output,\n"
    .. "max |got - want| / max |want|; a case runs on the backends whose coefficients have its\n"
    .. "form: by lag, by frequency or by warped lag. NAME: compares a backend with the\n"
    .. "definition over a table of shapes. Exit code 4 if an error is above tolerance (1e-5; for\n"
    .. "the parameters after a training run 1e-4; with --precision bf16 all 2e-2, with tf32\n"
    .. "5e-3), or if nothing was compared.",
  computes = true,
  options = {
    { name = "backend", short = "b", value = "NAME", many = true,
      help = "only this backend (may be repeated); without a file as NAME" },
    { name = "precision", short = "p", value = "P",
      help = "of products in layers and models: float32 (the default), bf16, on GPUs tf32" },
    { name = "device", short = "d", value = "D",
      help = "the device: cpu, cuda, or cuda:1 for the second GPU" },
    { name = "all", short = "a", help = "print each parameter's gradient, not only the worst" },
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
  for i, name in ipairs(suggest.keys(of)) do parts[i] = ("%s %d"):format(name, of[name]) end
  return table.concat(parts, ", ")
end

local function summary(title, t, of_file)
  local good = t.failed == 0 and t.passed > 0
  local text = ("%s: %d passed, %d failed, %d skipped"):format(title, t.passed, t.failed, t.skipped)
  if t.at then text = text .. (", worst %.1e (%s)"):format(t.worst, t.at) end
  if progress.colour(1) then io.write(good and "\27[32m" or "\27[31m") end
  print(text)
  if progress.colour(1) then io.write("\27[0m") end
  for _, why in ipairs(suggest.keys(t.reasons)) do
    print(("  skipped: %d x %s"):format(t.reasons[why], why))
  end
  for _, domain in ipairs(suggest.keys(t.apart)) do
    print(("  not run: %d cases by %s, which no chosen backend takes"):format(t.apart[domain],
      domain))
  end
  if of_file and t.passed + t.failed > 0 then print("  cases run by: " .. counts(t.ran)) end
  if t.passed + t.failed == 0 then print("  nothing was compared, which is a failure") end
  return good
end

function verify.run(set, words)
  if #words == 0 then words = set.backend or {} end
  if #words == 0 then errors.usage("verify: give reference files, or the name of a backend") end
  local wrong = devices.lacks(core.device(), set.precision or "float32")
  if wrong then errors.usage("verify: %s", wrong) end
  local names, good = known_backends(), true
  local chosen = set.backend or names
  local device, about = core.device()
  if device ~= "cpu" and not set.quiet then print(("on %s: %s"):format(device, about)) end
  for _, name in ipairs(chosen) do check_backend(name, names) end
  for _, word in ipairs(words) do
    if not word:find("[./]") then
      check_backend(word, names)
      if set.precision then
        errors.usage("verify: --precision is for files: the backend %s is float32 in each", word)
      end
    end
  end
  for _, word in ipairs(words) do
    local t, of_file = tally(set), word:find("[./]") ~= nil
    if of_file then
      if not core.sys.exists(word) then errors.usage("%s: there is no such file", word) end
      core.precision(set.precision or "float32", reference.run, word, chosen, t.found, t.aside)
    else
      conformance.run(word, t.found)
    end
    good = summary(word, t, of_file) and good
  end
  return good and errors.DONE or errors.CHECK
end

return verify
