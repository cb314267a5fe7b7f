-- stores.lua: stores of runs made by hand, for tests of what asks them.
local core = require "toeplab.core"
local harness = require "harness"
local json = require "toeplab.base.json"
local records = require "toeplab.store.records"
local replay = require "toeplab.store.replay"

local stores = {}

stores.gone = 2 ^ 22 // 1 | 0 -- more than any process has

-- Trials in every state, for stores.fill.
stores.sample = {
  { name = "a", experiment = "decay", config = { decay = 0.9, op = "tno", causal = true, seed = 1,
    lengths = { 8, 16 }, steps = 4 }, metrics = { loss = { 5, 4, 3, 2 }, acc = { 0.1, 0.5 } },
    files = { step = "state a" }, step = 4 },
  { name = "b", experiment = "decay", config = { decay = 0.99, op = "ski", causal = true, seed = 2,
    lengths = { 8 }, steps = 4 }, metrics = { loss = { 5, 1 }, acc = { 0.1, 0.3 } } },
  { name = "c", experiment = "decay", config = { decay = "learnable", op = "ski", causal = false,
    seed = 1, lengths = { 8 }, steps = 4 }, status = "failed", error = "NaN in loss at step 3",
    metrics = { loss = { 5, 0.5 } } },
  { name = "d", experiment = "other", config = { width = 4, note = "x=1" }, status = "failed",
    ended = "timeout", error = "took longer than 3 seconds", metrics = { gap = { 1, 0 / 0 } } },
  { name = "e", experiment = "other", config = { width = 8, note = "y" }, status = "running",
    host = core.sys.hostname(), pid = stores.gone },
  { name = "f", experiment = "other", config = { width = 16, note = "y" }, status = "running",
    host = core.sys.hostname(), pid = core.sys.getpid() },
}

-- The id of a trial by a short name: as long as a real one.
function stores.id(name) return core.sha256(name) end

local function add_files(store, id, files)
  for kind, text in pairs(files) do
    local path = ("runs/%s/%s-00000004.h5"):format(id:sub(1, 12), kind)
    core.sys.mkdir(store.folder .. "/runs/" .. id:sub(1, 12))
    harness.write(store.folder .. "/" .. path, text)
    store:rows([[INSERT INTO artifacts (trial, kind, step, path, bytes, sha256)
      VALUES (?, ?, 4, ?, ?, ?)]], { id, kind, path, #text, core.sha256(text) })
  end
end

-- Adds trials to the store in folder, started one after the other: each {name=, experiment=,
-- config=, and as wanted status, ended, error, step, host, pid, command, metrics = {name = {values
-- of steps}}, files = {kind = text}, seconds}.
function stores.fill(folder, trials)
  local store <close> = records.open(folder, "w")
  local sweep = store:sweep { experiment = trials[1].experiment, script = "x.lua", source = "-- x",
    sha256 = core.sha256 "x", command = "toeplab run x.lua", scale = "smoke", plan = "{}" }
  for i, t in ipairs(trials) do
    local id, host, command = stores.id(t.name), t.host or "elsewhere", t.command
      or "toeplab run x.lua"
    store:rows([[INSERT INTO trials (id, sweep, experiment, config, seed, status, ended, error,
      step, host, pid, command, started, finished, seconds, attempt, provenance)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?)]],
      { id, sweep, t.experiment, json.encode(t.config), t.config.seed or 1, t.status or "done",
        t.ended, t.error, t.step or nil, host, t.pid, command, 1000.0 + i,
        t.status ~= "running" and 2000.0 + i or nil,
        t.seconds or 10.0 * (t.name:byte() - 96), json.encode { label = t.name, host = host,
          command = command }, n = 16 })
    store:rows("INSERT INTO members VALUES (?, ?, ?)", { sweep, i, id })
    for name, values in pairs(t.metrics or {}) do
      for step, value in ipairs(values) do
        replay.apply(store, id, { "metric", step, name, value + 0.0 })
      end
    end
    add_files(store, id, t.files or {})
  end
end

-- Makes the store of this version in folder one of schema 5.
function stores.make_old(folder)
  local schema = harness.read(harness.root .. "core/store/schema.sql")
  local view = schema:match "-- version 4\n.-(CREATE VIEW v_trials.-;)"
  local store <close> = records.open(folder, "w")
  for _, sql in ipairs { "DROP TABLE news", "DROP VIEW v_trials",
    "ALTER TABLE trials DROP COLUMN numerics", view, "PRAGMA user_version = 5" } do
    store.store:exec(sql)
  end
end

-- All rows of a table of the store in folder, as sorted texts.
function stores.dump(folder, sql)
  local store <close> = records.open(folder, "r")
  local lines = {}
  for i, row in ipairs(store:rows(sql)) do lines[i] = json.encode(row) end
  table.sort(lines)
  return lines
end

return stores
