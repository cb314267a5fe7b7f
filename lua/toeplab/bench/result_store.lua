-- bench/result_store.lua: stores the rows of a bench as an experiment bench-NAME. Each row is a
-- trial whose seed is the run's number, so that a repeated bench is measured again, not skipped.
local core = require "toeplab.core"
local config = require "toeplab.base.config"
local json = require "toeplab.base.json"
local provenance = require "toeplab.trials.provenance"
local records = require "toeplab.store.records"
local sweeps = require "toeplab.store.sweeps"
local show = require "toeplab.bench.show"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"

local result_store = {}

-- The stored script of a bench raises an error, because timings cannot be reproduced.
local SOURCE = "error(%q, 0)\n"

-- Labels a row: "rac, causal n 512 b 1, fwd, float32, threads=2".
local function label_of(row, cases)
  return table.concat({ row.by, show.case(row, cases), row.pass, row.precision,
    "threads=" .. row.threads }, ", ")
end

-- Returns a row as a trial for records.lua.
local function trial_of(row, label, number, code, about)
  local values = show.record(row)
  values.bench, values.seed = nil, number
  local text = json.encode(values)
  return { id = core.sha256(json.encode { config = values, code = code, bench = row.bench }),
    experiment = "bench-" .. row.bench, json = text, seed = number, code_hash = code,
    data_hash = "", data = {}, label = label, provenance = about }
end

-- Returns the metrics of a row: a list of {name, step, value}.
local function metrics_of(row)
  local _, metrics = show.record(row)
  local list = {}
  for _, name in ipairs(sorted_keys(metrics)) do
    list[#list + 1] = { name, 0, metrics[name] + 0.0 }
  end
  for i, seconds in ipairs(row.samples) do list[#list + 1] = { "sample_ms", i, 1e3 * seconds } end
  return list
end

local Run = {}
Run.__index = Run

-- Makes an object that stores a run of bench `name` in folder. words: the command; problems: all
-- problems of the run.
function result_store.run(name, problems, folder, words)
  local cases = {}
  for i, p in ipairs(problems) do cases[i] = { problem = p } end
  return setmetatable({ name = name, cases = cases, folder = folder, trials = {}, pending = {},
    code = provenance.code_hash(), origin = provenance.collect(words),
    began = core.sys.now(), since = core.sys.clock() }, Run)
end

-- Allocates the number of the run and inserts the row of its sweep.
local function begin_run(self, store)
  local experiment, source = "bench-" .. self.name, SOURCE:format(
    "a bench cannot be reproduced, only measured again: " .. self.origin.command)
  self.number = store:rows([[SELECT coalesce(max(seed), 0) + 1 AS n FROM
    (SELECT seed FROM v_trials WHERE experiment = ?1
    UNION ALL SELECT seed FROM v_trash WHERE experiment = ?1)]], { experiment })[1].n
  self.sweep = store:sweep { experiment = experiment, script = "bench " .. self.name,
    source = source, sha256 = core.sha256(source), command = self.origin.command, scale = "",
    plan = json.encode { axes = { "by", "n", "b" }, overrides = {}, run = self.number,
      rows = "by", columns = { "ms", "ratio" }, host = self.origin.host, began = self.began } }
end

-- Stores the pending rows, in a transaction of the store.
local function write_rows(self, store)
  if not self.number then begin_run(self, store) end
  local first = #self.trials + 1
  for _, p in ipairs(self.pending) do
    local own = config.copy(self.origin)
    own.threads, own.limits, own.device = p.row.threads, p.limits, p.gpu
    self.trials[#self.trials + 1] =
      trial_of(p.row, label_of(p.row, self.cases), self.number, self.code, own)
  end
  store:enlist(self.sweep, sweeps.rows_of(self.trials))
  for i, p in ipairs(self.pending) do
    local t = self.trials[first + i - 1]
    store:begin(t, core.sys.getpid())
    store:complete(t.id, metrics_of(p.row), p.seconds)
  end
  self.pending = {}
end

-- Writes the pending rows, but leaves them pending if another process writes to the folder. Returns
-- true, or false and the reason.
local function try_write(self)
  local ok, why = pcall(function()
    local store <close> = records.open(self.folder, "w")
    store:transaction(function() write_rows(self, store) end)
  end)
  if not ok and not (errors.is(why) and why.code == errors.LOCKED) then error(why, 0) end
  return ok, why
end

-- Stores rows of one problem as soon as they are measured, so that a later kill cannot lose them.
-- limits: of the machine, with their threads; gpu: its name, or nil. If another process writes to
-- the folder, the rows wait for the next call or for close.
function Run:add(rows, limits, gpu)
  local now = core.sys.clock()
  for _, row in ipairs(rows) do
    table.insert(self.pending,
      { row = row, limits = limits, gpu = gpu, seconds = (now - self.since) / #rows })
  end
  self.since = now
  try_write(self)
end

-- Stores the pending rows. Raises if another process still blocks the folder after ten seconds.
function Run:close()
  for i = 1, #self.pending > 0 and 100 or 0 do
    local ok, why = try_write(self)
    if ok then return end
    if i == 100 then error(why, 0) end
    core.sys.sleep(0.1)
  end
end

return result_store
