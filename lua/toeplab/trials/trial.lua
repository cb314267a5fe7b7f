-- trials/trial.lua: implements the object t that a trial's function receives: a training loop that
-- survives a kill at any moment, a log, and checkpoints.
--
--   for step in t:steps(1000, model, opt, data) do   resumes after the last checkpoint
--     t:log { loss = ..., kernel = tensor }          stores the values before it returns
--     if step % 500 == 0 then t:best(loss_on_the_validation_part, 3) end
--   end
--   t:load_best()                                    loads the model of the lowest t:best value
--   t:text("sample", text)                           stores a text with the result
--   t:log({ size = 0.1 }, 7)                         logs a metric with its own index
--   t:model_of("3f9c1a")                             the model of another trial
local checkpoint = require "toeplab.models.files.checkpoint"
local chosen_backends = require "toeplab.nn.chosen_backends"
local core = require "toeplab.core"
local guard = require "toeplab.trials.guard"
local log_types = require "toeplab.trials.log_types"
local logged_tensors = require "toeplab.store.logged_tensors"
local optim = require "toeplab.train.optim"
local checkpoint_parts = require "toeplab.trials.checkpoint_parts"
local prune = require "toeplab.trials.prune"
local records = require "toeplab.store.records"
local recorded = require "toeplab.tasks.recorded"
local resume = require "toeplab.trials.resume"
local open_model = require "toeplab.trials.open_model"
local errors = require "toeplab.base.errors"
local saved_model = require "toeplab.models.files.saved_model"
local sorted_keys = require "toeplab.base.sorted_keys"
local trial_files = require "toeplab.store.trial_files"
local update = require "toeplab.train.update"

local trial = {}

local Trial = {}
Trial.__index = Trial

local KEEP = { checkpoint = 2, best = 1 }

-- o: rows (the trial's rows: trial_rows.lua), folder (of the results), path (of the trial, relative
-- to folder), checkpoint ({steps=, seconds=}: the intervals), progress, seed, hear
-- (function(seconds): waits up to `seconds` for an order of the coordinator and returns it, or
-- nil), ask (function(step): asks the coordinator whether the trial continues), guard, prune
-- (fields of the experiment), memory (its budget in bytes, or nil).
function trial.new(o)
  return setmetatable({
    rows = o.rows, folder = o.folder, path = o.path, progress = o.progress, seed = o.seed,
    every_steps = o.checkpoint.steps, every_seconds = o.checkpoint.seconds, hear = o.hear,
    guard = o.guard and guard.new(o.guard), memory = o.memory,
    rungs = o.prune and prune.rungs(o.prune), ask = o.ask,
    types = log_types.new(o.rows, o.folder), step = 0, busy = false, looping = false,
  }, Trial)
end

-- ---- The log ----------------------------------------------------------------------------------

-- Formats a value for the progress line, without the meaningless sign that C prints for NaN.
local function shown(format, value) return value ~= value and "nan" or format:format(value) end

-- Returns fn(self, ...), which stores results: signals wait for its end. Keeps an error in
-- `unstored`, by which worker.lua recognises that the trial ended because of it.
local function storing(self, fn, ...)
  self.busy = true
  local ok, result = pcall(fn, self, ...)
  self.busy = false
  if ok then return result end
  self.unstored = result
  error(result, 0)
end

-- Writes a tensor of the current step to a file and then records it. A tensor replaces an earlier
-- one of its name and step, whose row is dropped before its file.
local function store_tensor(self, name, tensor)
  if self.follows then return end
  local before = self.rows:artifact(logged_tensors.kind(name), self.step)
  if before then self.rows:drop_artifact(before) end
  self.rows:add_artifact(logged_tensors.write(self.folder, self.path, name, self.step, tensor))
end

-- Logs values (name -> number or tensor) at the current step, after the loop at the last step, or
-- numbers at `index`, e.g. a lag. A tensor of one element counts as a number. A later value of the
-- same name and step replaces an earlier one.
function Trial:log(values, index)
  local rows, tensors = self.types:sort(values, index, self.step)
  for _, name in ipairs(tensors) do storing(self, store_tensor, name, values[name]) end
  if #rows == 0 then return end
  local words = rows[1].name .. " " .. shown("%.4g", rows[1].value)
  for _, row in ipairs(rows) do
    if self.looping and not index then
      if self.guard then self.guard:logged(row.name, row.value) end
      if self.rungs then self.rungs:logged(row.name, self.step) end
    end
    if row.name == "loss" then words = "loss " .. shown("%.4f", row.value) end
  end
  self.shown = words
  storing(self, function() self.rows:add_metrics(rows) end)
end

-- Writes a text to a file of the trial and then records it; a file without a row does not count.
-- number: a part of the file name, by default the step. Returns the path of the file.
local function write_text(self, kind, step, text, number)
  number = number or ("%08d"):format(step)
  local path = ("%s/%s-%s.%s"):format(self.path, kind, number, saved_model.endings[kind] or "txt")
  local ok, why, _, status = core.sys.write_file(self.folder .. "/" .. path, text)
  if not ok then error(status and core.error(status, why) or why, 0) end
  self.rows:add_artifact { kind = kind, step = step, path = path, bytes = #text,
    sha256 = core.sha256(text) }
  return self.folder .. "/" .. path
end

local function store_text(self, ...)
  if not self.follows then return storing(self, write_text, ...) end
end

-- Calls fn(...) with the backends that an earlier attempt of the trial chose for "auto", and stores
-- every new choice immediately. Each choice makes a new file, named after its sha256, whose row
-- then replaces the old row: after a kill in between, the old row still has its file.
function Trial:with_backends(fn, ...)
  local row = self.rows:artifact "backends"
  local old = row and self.folder .. "/" .. row.path
  local text = row and trial_files.text(old, row.sha256)
  if row and not text then
    errors.raise(errors.FAILED, "%s is missing or damaged: the trial does not know the backends of "
      .. "its start; after `toeplab fsck --repair` it chooses again", old)
  end
  local function store(all)
    local new = store_text(self, "backends", 0, all, core.sha256(all):sub(1, 8))
    if old and old ~= new then core.sys.remove(old) end
    old = new
  end
  return chosen_backends.with(text, store, fn, ...)
end

-- Stores a text of the current step, e.g. a sample; name becomes part of a file name.
function Trial:text(name, text)
  local good = type(name) == "string" and name:find("^[%w_%-]+$")
  if not good or type(text) ~= "string" then
    error("text: takes a name of letters, digits, _ and -, and a text", 2)
  elseif KEEP[name] or saved_model.endings[name] then
    error(("text: '%s' is a reserved name; choose another"):format(name), 2)
  end
  store_text(self, name, self.step, text)
end

-- Prints a line for the user beside the progress line.
function Trial:say(format, ...)
  self.progress:note(format, ...)
end

-- ---- Checkpoints ------------------------------------------------------------------------------

local file_names = { checkpoint = "step-%08d%s.h5", best = "best-%08d%s.h5" }

local function save(self, kind)
  local used = self.guard and self.guard.used or 0 -- protects files from before a rollback
  local path = self.path .. "/" .. file_names[kind]:format(self.step,
    used > 0 and "-r" .. used or "")
  local file = self.folder .. "/" .. path
  if self.team and self.parts.optim then self.team:order "save" end
  checkpoint.write(file, resume.state(self))
  local old = self.rows:add_checkpoint({ kind = kind, step = self.step, path = path,
    bytes = assert(core.sys.size(file)), sha256 = core.sha256_file(file) }, KEEP[kind],
    kind == "checkpoint" and self.guard and self.guard:rolls_back()
      and resume.anchors(self) or nil)
  for _, row in ipairs(old) do core.sys.remove(self.folder .. "/" .. row.path) end
  self.saved_step, self.saved_time = self.step, core.sys.clock()
end

-- Writes and records a checkpoint of the current step, of kind "checkpoint" or "best". Then removes
-- older ones of that kind beyond the number in KEEP.
function Trial:save(kind)
  if not self.follows then storing(self, save, kind or "checkpoint") end
end

-- Receives a measure of the model after this step, such as a loss; lower is better. The schedule
-- plateau goes by it. Saves a checkpoint of kind "best" if it is the lowest so far, and returns
-- whether it is. Ends the loop with this step after `patience` successive values that are not
-- lower.
function Trial:best(value, patience)
  if not self.looping then error("best: must be called inside the loop of steps", 2) end
  if type(value) ~= "number" then
    error(("best: takes a number (lower is better), got a %s"):format(type(value)), 2)
  end
  if patience ~= nil and (math.type(patience) ~= "integer" or patience < 1) then
    error(("best: patience is an integer of at least 1, got %s"):format(tostring(patience)), 2)
  end
  for _, part in pairs(self.parts) do
    if optim.is(part) then part:measured(value) end
  end
  local lowest = self.lowest or { waited = 0 }
  local better = value == value and (not lowest.value or value < lowest.value)
  if better then
    lowest, self.keep = { value = value, step = self.step, waited = 0 }, true
  else
    lowest.waited = lowest.waited + 1
    lowest.ended = patience ~= nil and lowest.waited >= patience or nil
  end
  self.lowest = lowest
  return better
end

-- Loads the parameters of the best checkpoint into the model, after the loop. Returns its step and
-- value; nil if t:best received no number, or only NaN.
function Trial:load_best()
  if not self.parts or self.looping then
    error("load_best: must be called after the loop of steps", 2)
  end
  if not self.parts.model then error("load_best: pass the model to t:steps", 2) end
  local lowest = self.lowest
  if not lowest or not lowest.step then return nil end
  if lowest.step == self.step then return lowest.step, lowest.value end
  for _, row in ipairs(self.follows and {} or self.rows:checkpoints()) do
    if row.kind == "best" then
      local state, why = resume.read(self, row, "model")
      if not state then
        error(("the best checkpoint %s/%s %s; run the same command to train again from an earlier "
          .. "checkpoint"):format(self.folder, row.path, why), 0)
      end
      self.parts.model:load(state.model)
    end
  end
  if self.team then self.team:copy(self.parts.model:state()) end
  return lowest.step, lowest.value
end

-- Returns the model of another trial in the results folder (id: the beginning of its id) or of a
-- file (id: a path with a / or a dot), as open_model.lua does. build: makes a model that comes from
-- a script.
function Trial:model_of(id, build)
  if id:find "[/.]" then return open_model.file(id, build) end
  local all <close> = records.open(self.folder, "r")
  return open_model.trial(all, id, { build = build,
    warn = function(...) self.progress:warn(...) end })
end

-- ---- The loop ---------------------------------------------------------------------------------

-- Returns the error object that ends the run if a signal has arrived; nil if none has.
function Trial:stopped()
  local name, code = errors.signal()
  return name and errors.new(code, "%s at step %d", errors.stop_text(name), self.saved_step or 0)
end

-- Raises the error that ends the run if a signal has arrived. Between steps, first writes a
-- checkpoint. Inside a step, does nothing until the end of the step, unless this is the second
-- SIGINT; nor while results are being stored.
function Trial:check_signals(inside_step)
  local stopped = self:stopped()
  if not stopped then return end
  local hurry = core.sys.interrupted() > 1
  if self.busy or inside_step and self.looping and not hurry then return end
  if self.looping and not hurry then self:save() end
  error(self:stopped(), 0)
end

-- Returns whether the loop has ended before its last step: early stopping triggered, or the script
-- left the loop.
local function ended(self)
  return self.left or self.lowest ~= nil and self.lowest.ended == true
end

-- Obeys an order of worker:hear: "prune" ends the trial here; "gone" (the coordinator has died)
-- makes it write a checkpoint and end.
local function obey(self, order)
  if order == "prune" then
    self.why_ended = "pruned"
    errors.raise(errors.DONE, "pruned at step %d", self.step)
  end
  if order ~= "gone" then return end
  self:save()
  errors.raise(errors.TERMINATE, "the coordinator died at step %d", self.step)
end

-- At a rung, waits for the coordinator's decision. The waiting time does not count.
local function await_decision(self)
  if not self.rungs or not self.rungs.due then return end
  local since = core.sys.clock()
  local order = self.rungs:wait(self)
  self.rows.began = self.rows.began + core.sys.clock() - since
  obey(self, order)
end

-- Ends the trial at a step whose loss or gradient the guard rejects.
local function diverged(self, why, where)
  self.why_ended = "guard"
  local who = self.guard and "guard: " or ""
  error(("%s%s at step %d%s"):format(who, why, self.step, where or ""), 0)
end

-- Rolls the trial back to an earlier step at a lower learning rate, and writes a checkpoint
-- immediately, so that the rollback survives a kill.
local function roll_back(self, why)
  local spec, bad, used = self.guard.spec, self.step, self.guard.used
  self.keep = nil
  local back = storing(self, resume.go_back)
  if not back then diverged(self, why, ", before the first checkpoint") end
  self.step = back
  local opt = self.parts.optim
  for _, part in pairs(self.parts) do
    if part == opt or optim.is(part) then part.factor = (part.factor or 1.0) * spec.lr_factor end
  end
  self.guard.used = used + 1
  self.rows:event(bad, "rollback", ("%s; back to step %d, learning rate times %g (%d of %d)")
    :format(why, self.step, opt.factor, self.guard.used, spec.retries))
  self.progress:warn("%s at step %d: back to step %d, learning rate times %g (%d of %d)", why, bad,
    self.step, opt.factor, self.guard.used, spec.retries)
  self:save()
end

-- Lets the guard judge the step. Returns whether it rolled the trial back. A gradient that is not
-- finite ends the trial even without a guard.
local function apply_guard(self)
  local why = self.gradient
  local verdict = why and "stop"
  self.gradient = nil
  if self.guard then verdict, why = self.guard:verdict(why) end
  if not verdict then return false end
  if verdict == "rollback" then
    roll_back(self, why)
    return true
  end
  diverged(self, why)
end

-- Receives the norm of a gradient that is not finite. Returns whether the loop will judge it.
local function judge_gradient(self, norm)
  if self.looping then self.gradient = "the gradient's norm is " .. guard.not_finite(norm) end
  return self.looping
end

-- Raises if the peak of the engine's memory (core.memory) exceeds the experiment's budget.
local function check_memory(self)
  if not self.memory then return end
  local peak = core.memory().peak
  if peak <= self.memory then return end
  self.why_ended = "budget"
  error(("budget: %.0f MB of memory used at step %d; the limit is %.0f"):format(peak / 1e6,
    self.step, self.memory / 1e6), 0)
end

-- Calls fn, the work after a step. In a team, rank 0 calls it and sends the others whether to
-- continue. leaving: whether the script has left the loop of steps. Returns whether it has left the
-- loop on rank 0, which the other ranks must follow.
local function together(self, fn, leaving)
  if not self.team then return fn(self) end
  if self.follows then
    self.keep = nil
    -- The only other message: rank 0 collects the states of the optimiser for a checkpoint.
    local word = self.team:follow_orders(function() self.parts.optim:state() end)
    if word == "end" then errors.raise(errors.DONE, "rank 0 has ended the trial") end
    if leaving and word ~= "left" then
      error(("ranks: the script left the loop at step %d here, but rank 0 continues: decide by "
        .. "values that are equal on all ranks, not by a clock"):format(self.step), 0)
    end
    return word == "left"
  end
  local ok, why = pcall(fn, self)
  self.team:order(ok and (leaving and "left" or "on") or "end")
  if not ok then error(why, 0) end
end

-- Restores the last checkpoint; all ranks of a team restore that of rank 0. Returns its step.
local function restore(self)
  local team = self.team
  if not team then return resume.restore(self) end
  if self.guard and self.guard:rolls_back() then
    error("ranks: a guard cannot roll several ranks back: use nan = 'stop' without zscore, or "
      .. "retries = 0", 0)
  end
  local found = not self.follows and resume.restore(self) or nil
  local theirs = team:share { step = found, rows = self.rows:checkpoints() }
  if not self.follows then return found end
  self.rows.artifacts = theirs.rows
  found = resume.restore(self)
  if found ~= theirs.step then
    error(("ranks: %s/%s of step %d cannot be read here: all ranks must share the results folder")
      :format(self.folder, self.path, theirs.step), 0)
  end
  return found
end

-- Writes the checkpoint that t:best has requested in this step.
local function save_best(self)
  if self.keep then self:save("best") end
  self.keep = nil
end

local function after_step(self)
  if apply_guard(self) then return end
  check_memory(self)
  self.progress:update(self.step, self.total, self.shown)
  save_best(self)
  await_decision(self)
  self:check_signals()
  obey(self, self.hear and self.hear(0))
  local steps, seconds = self.every_steps, self.every_seconds
  local due = steps and self.step % steps == 0 or self.guard and self.guard:anchors(self.step)
    or seconds and core.sys.clock() - self.saved_time >= seconds
  if self.step == self.total or ended(self) or due and self.saved_step ~= self.step then
    self:save()
  end
end

-- Ends the loop; the weights of a model become their averages, if it has any.
local function end_loop(self)
  self.looping = false
  for _, part in pairs(self.parts) do
    if optim.is(part) then part:take_average() end
  end
end

-- Ends a loop that the script has left by break or return: writes the checkpoint of its last step,
-- as at every end of the loop. A trial that resumes from it makes no more steps.
local function leave(self)
  self.left = true
  local ok, why = pcall(together, self, function()
    local why = self.guard and self.guard:found_not_finite() or self.gradient
    if why then diverged(self, why) end
    save_best(self)
    self:save()
  end, true)
  end_loop(self)
  if not ok then error(why, 0) end
end

-- Raises if the vocabulary has changed since the start of the trial, e.g. because the file of
-- merges has changed.
local function compare_vocabulary(self, texts)
  if #self.rows:checkpoints() == 0 then return end
  for _, kind in ipairs { "vocabulary", "encoder", "dictionary" } do
    local had = texts[kind] and self.rows:artifact(kind, 0)
    if had and had.sha256 ~= core.sha256(texts[kind]) then
      error(("the %s has changed since the trial started with %s/%s/%s-00000000.%s: "
        .. "restore it, or run in another folder"):format(kind, self.folder, self.path, kind,
        saved_model.endings[kind]), 0)
    end
  end
end

-- Stores the texts from which the model and its vocabulary can be rebuilt without the script.
local function store_model(self, model, data)
  local texts = saved_model.texts(model, data)
  compare_vocabulary(self, texts)
  for _, kind in ipairs(sorted_keys(texts)) do
    store_text(self, kind, 0, texts[kind])
  end
end

-- Restores everything from the last usable checkpoint and iterates over the remaining steps up to
-- n. Other arguments: as for parts.of.
function Trial:steps(n, model, opt, data, extra, ...)
  if self.parts then error("steps: a trial can have only one loop of steps", 2) end
  if math.type(n) ~= "integer" or n < 0 then error("steps: takes an integer of at least 0", 2) end
  if select("#", ...) > 0 then
    error("steps: takes the number, model, optimiser, data and { name = object }, got more", 2)
  end
  self.parts = checkpoint_parts.of(model, opt, data, extra)
  store_model(self, model, data)
  if self.guard and not opt and self.guard:rolls_back() then
    error("steps: a guard that rolls back lowers the learning rate: pass the optimiser", 2)
  end
  for _, part in pairs(self.parts) do
    if optim.is(part) then part.judge = function(norm) return judge_gradient(self, norm) end end
  end
  self.total, self.step = n, storing(self, restore)
  self.first, self.saved_step, self.saved_time = self.step, self.step, core.sys.clock()
  if self.step > n then
    error(("steps: n = %d, but the trial has a checkpoint of step %d: n must depend on the "
      .. "trial's keys alone"):format(n, self.step), 2)
  end
  local said = self.step == 0 and recorded.parts() or {}
  if #said > 0 then self.rows:event(0, "part", table.concat(said, "; ")) end -- tables show the last
  if self.step > 0 then self.progress:note("resumed after step %d of %d", self.step, n) end
  self.looping = true
  local started = false
  return function()
    local left = together(self, started and after_step or await_decision)
    started = not left and self.step < n and not ended(self)
    if not started then
      end_loop(self)
      return nil
    end
    self.step = self.step + 1
    return self.step
  end, nil, nil, setmetatable({}, { __close = function(_, why)
    update.advise(why, model)
    if self.looping and why == nil then return leave(self) end
    self.looping = false
  end })
end

return trial
