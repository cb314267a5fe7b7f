-- commands/reproduce.lua: toeplab reproduce: runs a trial again and compares the results bit for
-- bit.
local arguments = require "toeplab.base.arguments"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local metrics = require "toeplab.store.metrics"
local output = require "toeplab.report.output"
local provenance = require "toeplab.trials.provenance"
local records = require "toeplab.store.records"
local reproduce = require "toeplab.runs.reproduce"
local selection = require "toeplab.store.selection"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local command = {
  example = "toeplab reproduce @last\n  toeplab reproduce 3f9c1a --ignore steps_per_second",
  usage = "toeplab reproduce TRIAL",
  about = "Runs a done trial again in a scratch folder, from its stored script, configuration and\n"
    .. "number of threads, and compares every metric and logged tensor, the last checkpoint's\n"
    .. "tensors and the texts bit for bit. If something differs, prints where first, and what\n"
    .. "else differed (exit code 4). The same command continues after an interruption.",
  words = { "trials" },
  options = {
    { name = "threads", value = "N", help = "run with N threads (default: as the trial did)" },
    { name = "ignore", value = "NAMES", of = "metrics", list = true,
      help = "metrics to ignore, such as times" },
    { name = "keep", help = "keep the scratch folder" },
    { name = "json", help = "as one JSON object" },
    { name = "quiet", short = "q", help = "no progress" },
    output.dir,
  },
}

local say = errors.say

-- ---- Warnings ----------------------------------------------------------------------------------

local function version(commit, dirty)
  return ("commit %s%s"):format(commit and commit:sub(1, 12) or "unknown",
    dirty and " with changes" or "")
end

-- Warns about known differences before any time is spent.
local function warn(t)
  if provenance.code_hash(t.device) == t.code_hash then return end
  local was, is = version(t.commit, t.dirty == 1), version(provenance.commit())
  local what, how = { was == is and was or ("%s then, %s now"):format(was, is) }, {}
  local before, now = (t.about.environment or {}).TOEPLAB_BACKENDS, os.getenv "TOEPLAB_BACKENDS"
  if before ~= now then
    what[2] = ("TOEPLAB_BACKENDS was %s, is %s"):format(before or "not set", now or "not set")
  elseif was == is and t.dirty ~= 1 then
    what[2] = "but another build, or another backend"
  end
  if was ~= is and t.commit then how[1] = "git checkout " .. t.commit end
  if t.about.changes then how[#how + 1] = "git apply " .. t.about.changes end
  say("the program has changed since the training: %s%s", table.concat(what, "; "),
    how[1] and "; its code: " .. table.concat(how, " && ") or "")
end

-- Returns the set of the metrics that --ignore names, each of which the trial must have.
local function ignored(set, store, id)
  local known, names = {}, {}
  for i, metric in ipairs(metrics.newest(store, id)) do known[i] = metric.name end
  for name in (set.ignore or ""):gmatch "[^,]+" do -- it may have spaces
    local ok, why = suggest.choose("metric", name, known)
    if not ok then errors.usage("reproduce: --ignore: %s", why) end
    names[name] = true
  end
  return names
end

-- ---- Results -----------------------------------------------------------------------------------

local function count_line(result)
  local m = result.metrics
  return ("metrics     %d of %d the same%s"):format(m.same, m.same + m.differ, m.ignored > 0
    and (", %d not compared"):format(m.ignored) or "")
end

local function checkpoint_line(c)
  if not c then return "checkpoint  none is stored" end
  if c.why then return ("checkpoint  of step %d: not compared, %s"):format(c.step, c.why) end
  if #c.differ == 0 then
    return ("checkpoint  of step %d: %s the same"):format(c.step, output.count(c.tensors, "tensor"))
  end
  local names = table.move(c.differ, 1, math.min(3, #c.differ), 1, {})
  return ("checkpoint  of step %d: %d of %d different: %s%s"):format(c.step, #c.differ,
    #c.differ + c.tensors + c.values, table.concat(names, ", "), #c.differ > 3 and ", ..." or "")
end

local function value(v) return v and ("%.17g"):format(v) or "not there" end

local function first_line(first)
  return ("first difference at step %d: %s is %s, was %s%s"):format(first.step, first.name,
    value(first.is), value(first.was),
    first.ulps and (" (%d ulp)"):format(first.ulps) or "")
end

local function explain(t, differences, events)
  for _, d in ipairs(differences) do
    print(("  %-13s was %s, is %s"):format(d.name, d.was, d.is))
  end
  if events > 0 then
    print(("  the guard intervened %s: what it does depends on when checkpoints were "
      .. "written"):format(output.count(events, "time")))
  elseif #differences == 0 then
    print("  no recorded property differs: the trial depends on something else, such as "
      .. "the time, a file\n  or the order of pairs(), which differs in each process")
    if t.attempt > 1 then
      print(("  or on a variable of its loop that t:steps did not get: the stored trial was "
        .. "started %d times"):format(t.attempt))
    end
  end
end

local function show_comparison(t, result, differences, events)
  print(("%s  %s  %s"):format(t.id:sub(1, 12), t.experiment, t.about.label or ""))
  print(count_line(result))
  print(checkpoint_line(result.checkpoint))
  local tensors = result.tensors
  if tensors.same + tensors.differ > 0 then
    print(("tensors     %d of %d the same%s"):format(tensors.same, tensors.same + tensors.differ,
      tensors.first and ", first different: " .. tensors.first or ""))
  end
  if result.texts + #result.other_texts > 0 then
    print(("texts       %d of %d the same%s"):format(result.texts,
      result.texts + #result.other_texts,
      #result.other_texts > 0 and ", different: " .. table.concat(result.other_texts, ", ") or ""))
  end
  if result.equal then return print("bit-identical") end
  if result.metrics.first then print(first_line(result.metrics.first)) end
  print("other differences:")
  explain(t, differences, events)
end

-- An empty list stays a list in JSON.
local function list(t) return #t > 0 and t or json.none end

local function as_json(t, result, differences)
  local first, c = result.metrics.first, result.checkpoint
  print(json.show { id = t.id, equal = result.equal, same = result.metrics.same,
    different = result.metrics.differ, metrics = list(sorted_keys(result.metrics.names)),
    first = first and { step = first.step, name = first.name, was = json.named(first.was),
      is = json.named(first.is), ulps = first.ulps },
    checkpoint = c and { step = c.step, tensors = c.tensors, different = c.differ
      and list(c.differ), why = c.why },
    tensors = result.tensors.same, different_tensors = result.tensors.differ,
    texts = result.texts, different_texts = list(result.other_texts),
    provenance = list(differences) })
end

-- ---- The verb ----------------------------------------------------------------------------------

-- Compares the trial with the one in the scratch folder, except for the metrics left_out (a set),
-- and prints the result; returns whether they are equal.
local function judge(set, store, t, scratch, new_id, left_out)
  local new <close> = records.open(scratch .. "/results", "r")
  local result = reproduce.compare(store, t.id, new, new_id, left_out)
  local differences = reproduce.differences(t, reproduce.stored(new, new_id))
  local events = store:rows([[SELECT count(*) AS n FROM v_events
    WHERE trial = ? AND kind = 'rollback']], { t.id })[1].n
  if set.json then
    as_json(t, result, differences)
  else
    show_comparison(t, result, differences, events)
  end
  return result.equal
end

function command.run(set, words, all)
  if #words == 0 then
    errors.usage("reproduce: which trial? Give one id (see toeplab ls) or @last")
  end
  local threads = arguments.integer("reproduce", set, "threads", 1)
  local folder = records.folder(set.dir)
  local store <close> = records.open(folder, "r")
  local t = reproduce.stored(store, selection.one(store, words).id)
  local left_out = ignored(set, store, t.id)
  if not set.quiet then warn(t) end
  local scratch = ("%s/reproduce-%s"):format(folder, t.id:sub(1, 12))
  local new_id = reproduce.run(t, scratch, { threads = threads or t.about.threads or core.threads(),
    quiet = set.quiet, command = { "toeplab", table.unpack(all) } })
  local equal = judge(set, store, t, scratch, new_id, left_out)
  if equal and not set.keep then
    reproduce.clear(scratch)
  else
    say("the second run is in %s", scratch)
  end
  return equal and errors.DONE or errors.CHECK
end

return command
