-- commands/diff.lua: toeplab diff: in what two trials differ.
local json = require "toeplab.base.json"
local output = require "toeplab.report.listing"
local plan = require "toeplab.trials.plan"
local records = require "toeplab.store.records"
local report = require "toeplab.report.table_text"
local select = require "toeplab.store.select"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local diff = {
  example = "toeplab diff 3f9c1a @last\n  toeplab diff @best:val_ppl @last --csv",
  usage = "toeplab diff TRIAL TRIAL",
  about = "Shows what differs between two trials: keys of the configuration, last values of\n"
    .. "metrics, and where they came from. TRIAL as for toeplab show; each means one trial.",
  options = { output.csv, output.json, output.dir },
}

local from = { "experiment", "status", "seed", "step", "seconds", "host", "command", "git_commit",
  "git_dirty", "code_hash", "data_hash", "error" }

-- What is compared of a trial: three tables of values by name.
local function sides(store, row)
  local metrics, about, provenance = {}, {}, store:object(row.provenance)
  for _, m in ipairs(store:rows("SELECT name, value FROM v_last WHERE trial = ?", { row.id })) do
    metrics[m.name] = m.value or 0 / 0
  end
  for _, name in ipairs(from) do about[name] = row[name] end
  about.version, about.threads = provenance.version, provenance.threads
  for name, value in pairs(provenance.build or {}) do about[name] = about[name] or value end
  return { config = store:config(row.config), metric = metrics, trial = about }
end

local function same(a, b)
  if a == nil or b == nil then return a == b end
  if a ~= a then return b ~= b end
  return json.line { v = a } == json.line { v = b }
end

local function all_keys(a, b)
  local set = {}
  for key in pairs(a) do set[key] = true end
  for key in pairs(b) do set[key] = true end
  return suggest.keys(set)
end

local function text(v)
  if v == nil or math.type(v) == "float" then return v end
  return type(v) == "table" and plan.show(v) or v
end

-- How far b is from a, if both are finite numbers.
local function change(a, b)
  if math.type(a) and math.type(b) and a - a == 0 and b - b == 0 then return b - a end
end

local function differences(a, b)
  local rows = {}
  for _, kind in ipairs { "config", "metric", "trial" } do
    for _, key in ipairs(all_keys(a[kind], b[kind])) do
      local x, y = a[kind][key], b[kind][key]
      if not same(x, y) then
        local row = { kind, key }
        row[3], row[4], row[5] = text(x), text(y), kind == "metric" and change(x, y) or nil
        rows[#rows + 1] = row
      end
    end
  end
  return rows
end

local titles = { config = "configuration", metric = "metrics (last values)", trial = "origin" }

local function show(header, rows)
  for _, kind in ipairs { "config", "metric", "trial" } do
    local part = {}
    for _, row in ipairs(rows) do
      if row[1] == kind then part[#part + 1] = { "  " .. row[2], row[3], row[4], row[5] } end
    end
    local head = { "  " .. titles[kind], header[3], header[4] }
    if kind == "metric" then head[4] = "change" end
    if #part > 0 then report.print(head, part) end
  end
end

function diff.run(set, words)
  output.check("diff", set)
  if #words ~= 2 then errors.usage("diff: takes two trials, got %d", #words) end
  local store <close> = records.open(records.folder(set.dir), "r")
  local a, b = select.one(store, words[1]), select.one(store, words[2])
  local rows = differences(sides(store, a), sides(store, b))
  local header = { "kind", "name", a.id:sub(1, 12), b.id:sub(1, 12), "change" }
  if set.csv or set.json then
    header[3], header[4] = "a", "b"
    output.rows(set, header, rows)
  else
    show(header, rows)
  end
  return errors.DONE
end

return diff
