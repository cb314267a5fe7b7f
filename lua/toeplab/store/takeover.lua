-- store/takeover.lua: copies what array tasks of a cluster have written (claims.lua, journal.lua)
-- into the store. They never write to it themselves.
--
-- The number of the last attempt that is in the store, with the bytes of its journal that have been
-- read, says where to go on, so that a call that is killed is continued by the next.
local claims = require "toeplab.store.claims"
local core = require "toeplab.core"
local sorted_keys = require "toeplab.base.sorted_keys"
local trial_files = require "toeplab.store.trial_files"

local takeover = {}

local BATCH_SECONDS = 1

-- Returns the row of the trial with this short id: {id=, attempt=, status=, open= (whether its
-- journal is still to be read)}; nil if there is none.
local function find_row(store, short)
  return store:rows([[SELECT t.id, t.attempt, t.status, j.trial IS NOT NULL AS open FROM trials t
    LEFT JOIN journals j ON j.trial = t.id WHERE t.id >= ? AND t.id < ? LIMIT 1]],
    { short, short .. "g" })[1]
end

local function take(store, row, warn)
  row.path = trial_files.folder(store.folder, row.id)
  local _, damage = store:take(row)
  if damage then warn("%s/%s: %s; what follows it is lost", store.folder, row.path, damage) end
end

-- Marks the trial as running as its claim says.
local function begin(store, row, attempt, claim, warn)
  if row.open == 1 then take(store, row, warn) end -- its holder may have written until the end
  store:transaction(function()
    store:mark_running(row.id, attempt, claim.started, claim.pid, claim.code,
      store:object(claim.provenance))
  end)
  row.attempt, row.status, row.open = attempt, "running", 1
end

-- Records an end, unless the rows have it from the journal.
local function set_end(store, row, status, why, ended)
  local said = store:outcome(row.id)
  if said.status ~= status or said.error ~= why or said.ended ~= ended then
    store:finish(row, status, why, ended)
  end
  row.status = status
end

-- Ends an attempt that has an ending of this status: its task wrote it, or bury. The journal of
-- what bury has ended stays open, and an end that it records counts more than "interrupted".
local function settle(store, row, attempt, status)
  local said = store:outcome(row.id).status
  if status == "interrupted" and said == status and row.status == status then return end
  if status == "interrupted" and (said == "done" or said == "failed") then
    row.status = said
  else
    local e = claims.ending(store.folder, claims.short(row.id), attempt, status)
    if not e then return end
    set_end(store, row, e.status, e.why, e.ended)
  end
  store:end_journal(row)
  row.open = 0
end

-- Ends an attempt whose task has left the queue without recording its end. The journal may record
-- it. It stays open until the next attempt begins or takeover.clear removes the claim, because what
-- is taken for dead may yet write to it. Returns the arguments of claims.finish, but the folder:
-- the ending is written once the row is stored, since a call that is killed in between would
-- otherwise leave one that seems to be of the task itself.
local function bury(store, row, attempt, claim)
  local said = store:outcome(row.id)
  if said.status == "running" then
    said = { status = "interrupted", error = ("job %s_%s on %s ended without a word: it ran out "
      .. "of memory, or its node was lost"):format(claim.job, claim.task, claim.host) }
    set_end(store, row, said.status, said.error)
  end
  local known = said.status == "done" or said.status == "failed"
  return { row.id, attempt, known and said.status or "interrupted", said.error, said.ended,
    core.sys.now(), n = 6 }
end

-- Copies what is new of one trial. Returns its last claim if that is held, else nil, and what bury
-- returns if it was called.
local function follow(store, row, short, one, alive, warn)
  for attempt = math.max(row.attempt, one.first), one.attempt do
    local claim = claims.read(store.folder, short, attempt)
    if attempt > row.attempt and claim then begin(store, row, attempt, claim, warn) end
    if attempt == row.attempt and row.open == 1 then
      take(store, row, warn)
      local status = one.ends[attempt]
      if status then
        settle(store, row, attempt, status)
      elseif attempt == one.attempt and claim then
        if alive(claim) ~= false then return claim end
        return nil, bury(store, row, attempt, claim)
      end
    end
  end
end

-- Copies what is new of the trials in names (short ids) from place `first` on in one transaction,
-- since each waits for the disk; stops after a second. Returns the number of trials that were
-- looked at.
local function follow_some(store, list, names, first, held, alive, warn)
  local since, buried, done = core.sys.clock(), {}, first - 1
  store:transaction(function()
    while done < #names and core.sys.clock() - since < BATCH_SECONDS do
      done = done + 1
      local short = names[done]
      local row, one = find_row(store, short), list[short]
      local open = row and row.open == 1 or row and row.attempt < one.attempt
      local claim, burial
      if open then claim, burial = follow(store, row, short, one, alive, warn) end
      if claim then held[row.id] = claim end
      buried[#buried + 1] = burial
    end
  end)
  for _, b in ipairs(buried) do claims.finish(store.folder, table.unpack(b, 1, b.n)) end
  return done - first + 1
end

-- Copies all that tasks have written so far into the store (of records, opened for writing).
-- alive(claim): whether the task is in the queue; nil if that is unknown. It must have been found
-- out before the call. warn(format, ...) tells of damaged journals. Returns the claims of the
-- trials that are held: id of the trial -> claim.
function takeover.run(store, alive, warn)
  local held, list, first = {}, claims.list(store.folder), 1
  local names = sorted_keys(list)
  while first <= #names do
    first = first + follow_some(store, list, names, first, held, alive, warn)
  end
  return held
end

-- Deletes all claims but those of the trials in the set kept (by id), once no array job is in the
-- queue that may ask for them. A task that is taken for
-- dead may still be at work: it ends when it misses its claim (Claimed:check). The claim goes
-- first, since a task writes the end of an attempt to the journal, then looks whether it holds the
-- claim, and only then takes the attempt as ended. So what it takes as ended is read here. A call
-- that is killed after the claim is removed leaves a journal that the next run reads, as it reads
-- that of a run that was killed (prepared.replay).
function takeover.clear(store, kept)
  local keep, list = {}, claims.list(store.folder)
  for id in pairs(kept) do keep[claims.short(id)] = true end
  for short, one in pairs(list) do
    local row = not keep[short] and find_row(store, short)
    if not keep[short] then claims.remove(store.folder, short, one) end
    if row and row.open == 1 and row.attempt <= one.attempt then -- later ones have no claim
      row.path = trial_files.folder(store.folder, row.id)
      store:take(row) -- takeover.run has told of damage
      store:end_journal(row)
    end
  end
  claims.remove_orphans(store.folder, keep)
end

return takeover
