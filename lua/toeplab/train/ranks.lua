-- train/ranks.lua: one update of a model by several processes, the ranks of a team (docs/ranks.md).
--
-- A team of p = data * sequence ranks has `data` rows of `sequence` ranks each; rank w is in row
-- w // sequence. The rows take the micro batches of a batch in turn. The ranks of a row work on one
-- micro batch together, each on some tokens of its sequences (nn/sequence.lua).
--
-- Gradients are added in the order of one process: each micro batch begins with the sums of the one
-- before it (core: r:backward). So the parameters of a team without sequence ranks equal one
-- process's bit for bit, and a team's do not depend on the number of its rows.

local core = require "toeplab.core"
local coefficient_cache = require "toeplab.nn.coefficient_cache"
local defer = require "toeplab.base.defer"
local BatchNorm = require("toeplab.nn.norm").BatchNorm
local rehearsal = require "toeplab.train.rehearsal"
local sequence = require "toeplab.nn.sequence"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
local wire = require "toeplab.base.wire"

local ranks = {}

local Team = {}
Team.__index = Team

local current

local warned = false

-- Warns once, on rank 0, if the ranks of a group have GPUs that cannot exchange directly.
local function check_link(group)
  if warned or group:rank() > 0 or group:link() or core.device() == "cpu" then return end
  warned = true
  local _, why = core.ranks_file "nccl"
  warn("toeplab: the GPUs exchange through the memory of the CPU: ",
    why or "not all ranks have NCCL")
end

-- Returns the team of a group of ranks (core.ranks_open), of which `cut` share a sequence (default
-- 1): {world= (a group of all, made now that the device is chosen), rank=, size=; rows= and cut=
-- (ranks in a row); row= and place= of this rank in its row, from 0; column= (the group of the
-- ranks with this place) and line= (the row's group, nil for rows of one); known= (of rehearsal.of,
-- by model); fresh= (whether there are gradients that no update has taken); length= (of the longest
-- sequences so far)}.
function ranks.team(world, cut)
  cut = cut or 1
  local size, rank = world:size(), world:rank()
  if math.type(cut) ~= "integer" or cut < 1 or size % cut ~= 0 then
    error(("sequence_ranks = %s does not divide ranks = %d"):format(tostring(cut), size), 2)
  end
  local all = world:split(0)
  if size > 1 then check_link(all) end
  return setmetatable({
    world = all, rank = rank, size = size, rows = size // cut, cut = cut, row = rank // cut,
    place = rank % cut, column = world:split(rank % cut),
    line = cut > 1 and world:split(rank // cut) or nil,
    known = setmetatable({}, { __mode = "k" }), length = 0,
  }, Team)
end

-- Calls fn(...) while the team trains: train.lm_step then makes its updates together. Returns the
-- results of fn.
function ranks.with(team, fn, ...)
  local outer = current
  local restore <close> = defer(function() current = outer end)
  current = team
  return fn(...)
end

-- Returns the team that is training; nil: this process trains alone.
function ranks.current() return current end

-- Leaves the groups of the team, but not the one that it was made of.
function Team:close()
  if self.line then self.line:close() end
  self.column:close()
  self.world:close()
end

-- Raises unless the rows divide the `count` micro batches of a batch. how: the way to choose this
-- number.
local function check_count(self, count, how)
  if count % self.rows == 0 then return end
  error(("ranks: %d ranks%s do not divide the %d micro batches of a batch: choose %s%s"):format(
    self.size, self.cut > 1 and (" in rows of %d"):format(self.cut) or "", count, how,
    self.cut > 1 and " / sequence_ranks" or ""), 0)
end

-- Raises if the team is to cut sequences of n tokens and cannot. A shorter block at the end of a
-- text may have any length.
local function check_length(self, n)
  if n <= self.length then return end
  if n % self.cut ~= 0 then
    error(("sequence_ranks = %d does not divide the length %d"):format(self.cut, n), 0)
  end
  self.length = n
end

-- Raises if a team is training and cannot train a language model with batches of `count` micro
-- batches of length n.
function ranks.check_blocks(count, n)
  if not current then return end
  check_count(current, count, "ranks and micro so that batch / micro is a multiple of ranks")
  check_length(current, n)
end

-- Raises if a team is training and its rows do not divide the `count` micro batches of a batch.
function ranks.check_cut(count)
  if current then
    check_count(current, count, "micro_batches, or batch / micro where the script has the key "
      .. "micro, as a multiple of ranks")
  end
end

-- Raises if a team that cuts sequences is training and `what` needs them whole.
function ranks.check_whole(what)
  if current and current.cut > 1 then
    error(("sequence_ranks = %d: %s requires whole sequences on each rank: use ranks alone"):format(
      current.cut, what), 0)
  end
end

-- ---- One micro batch ----------------------------------------------------------------------------

-- Returns whether a row cuts sequences of n tokens. A shorter block at the end of a text may not
-- divide; then the first rank of the row takes it whole, and the others take nothing.
local function cuts(self, n) return self.line and n % self.cut == 0 end

-- Returns the loss of the micro batch `part` times its share in the batch, and the second result of
-- loss_of. In a row that cuts sequences, part is ids [b,n+1], and the loss is over this rank's
-- tokens: nil if it has none.
local function own_loss(self, part, share, loss_of)
  if self.line then
    local n = part:dim(2) - 1
    if cuts(self, n) then
      local m = n // self.cut
      local own = part:narrow(2, self.place * m + 1, m + 1)
      return core.affine(sequence.with(self.line, loss_of, own), share / self.cut, 0)
    end
    if self.place > 0 then return nil end
  end
  local loss, count = loss_of(part)
  return share ~= 1 and core.affine(loss, share, 0) or loss, count
end

-- The micro batches update the running statistics of the batch norms one after the other, each on
-- its own row. Returns the value for BatchNorm.carried: take(norm) receives the statistics of a
-- norm from row `from` (nil: from none) before its first use, and hand_on(norm) sends them to row
-- `to` (nil: to none) after its last use. first: the first tag of these messages.
local function relay(self, found, from, to, first)
  local used, tag_of = {}, {}
  for k, norm in ipairs(found.norms) do tag_of[norm], used[norm] = first + 2 * (k - 1), 0 end
  return {
    take = function(norm)
      local mean, var, tag = norm.running_mean, norm.running_var, tag_of[norm]
      if used[norm] == 0 and from then
        self.column:receive(from, tag, mean)
        self.column:receive(from, tag + 1, var)
      end
      used[norm] = used[norm] + 1
      return mean, var
    end,
    hand_on = function(norm)
      if used[norm] < found.uses[norm] or not to then return end
      self.column:send(to, tag_of[norm], norm.running_mean:clone())
      self.column:send(to, tag_of[norm] + 1, norm.running_var:clone())
    end,
  }
end

-- Runs forward and backward over micro batch i, between rows from and to. Returns own_loss's
-- results, with the loss as a number. leaves() returns the tensors that the backward pass passes
-- on.
local function run_one(self, o, i, from, to)
  local found, before, loss, count = o.found[i], rehearsal.positions(), nil, nil
  local leaves = o.leaves()
  local statistics = relay(self, found, from, to, #leaves + 1)
  BatchNorm.carried(statistics, function()
    loss, count = own_loss(self, o.list[i], o.shares[i], o.loss_of)
  end)
  rehearsal.check(found, before)
  if loss or from or to then self.column:backward(loss, leaves, from, to) end
  return loss and loss:item(), count
end

-- Runs forward and backward over the micro batches of this row. Returns their losses and the second
-- results of loss_of, by number.
local function run_row(self, o)
  local losses, counts, rows, last = {}, {}, self.rows, #o.list
  for i = 1, last do
    if (i - 1) % rows == self.row then
      local from = i > 1 and rows > 1 and (i - 2) % rows or nil
      local to = i < last and rows > 1 and i % rows or nil
      losses[i], counts[i] = run_one(self, o, i, from, to)
    else
      rehearsal.skip(o.found[i])
    end
  end
  self.column:finish()
  return losses, counts
end

-- Returns the uses of each micro batch (rehearsal), and all shared coefficients in order of first
-- use.
local function rehearse(self, o)
  local found, entries, seen = {}, {}, {}
  self.known[o.model] = self.known[o.model] or {}
  for i, part in ipairs(o.list) do
    found[i] = rehearsal.of(self.known[o.model], part, function()
      own_loss(self, part, 1, o.loss_of)
    end)
    if #found[i].norms ~= #found[1].norms then
      error("ranks: the micro batches of a batch use different batch norms", 0)
    end
    for _, entry in ipairs(found[i].entries) do
      local lengths = seen[entry.of] or {}
      seen[entry.of] = lengths
      if not lengths[entry.n] then entries[#entries + 1] = entry end
      lengths[entry.n] = true
    end
  end
  return found, entries
end

-- ---- The sums -----------------------------------------------------------------------------------

-- Adds the gradients of the ranks of the last row, and sends them to all rows, with the running
-- statistics of the norms. A parameter that no rank's pass has used keeps no gradient.
local function spread(self, params, all_norms, last)
  for _, norm in ipairs(all_norms) do
    self.column:broadcast(last, norm.running_mean)
    self.column:broadcast(last, norm.running_var)
  end
  local used = {}
  for i, p in ipairs(params) do used[i] = self.row == last and p:grad() and 1 or 0 end
  local known = core.tensor(used)
  self.world:sum(known)
  for i, count in ipairs(known:totable()) do
    local p = params[i]
    if count > 0 then
      local g = self.row == last and p:grad() or core.zeros(p:shape())
      if self.line and self.row == last then self.line:sum(g) end
      if self.rows > 1 then self.column:broadcast(last, g) end
      p:set_grad(g)
    else
      p:set_grad(nil)
    end
  end
end

-- Returns a number for each of count micro batches, given this rank's in own: adds the parts of the
-- ranks of a row in their order.
local function gathered(self, own, count)
  local parts = {}
  for i = 1, count * self.cut do parts[i] = 0.0 end
  for i, value in pairs(own) do parts[(i - 1) * self.cut + self.place + 1] = value end
  local t = core.tensor(parts)
  self.world:sum(t)
  local all, list = t:totable(), {}
  for i = 1, count do
    list[i] = 0.0
    for k = 1, self.cut do list[i] = list[i] + all[(i - 1) * self.cut + k] end
  end
  return list
end

-- Computes the gradients of a batch together. o: model, list (its micro batches, the same on all
-- ranks), shares (of the loss), params (trained by the optimiser) and loss_of(part), which returns
-- the mean loss of a micro batch and, optionally, a function without arguments that returns a
-- number. Returns the weighted losses of the micro batches and these numbers. As in one process,
-- the encoders run once if there are several micro batches; the last one's row backpropagates the
-- sums through them.
function Team:pass(o)
  if self.line then
    sequence.check(o.model)
    local longest = 0
    for _, ids in ipairs(o.list) do longest = math.max(longest, ids:dim(2) - 1) end
    check_length(self, longest)
  end
  self.fresh, self.passes = true, (self.passes or 0) + 1
  local count, last, losses, counts = #o.list, (#o.list - 1) % self.rows, nil, nil
  local found, entries = rehearse(self, o)
  local function leaves()
    local list = table.move(o.params, 1, #o.params, 1, {})
    local more = coefficient_cache.leaves(entries)
    return table.move(more, 1, #more, #list + 1, list)
  end
  local job = setmetatable({ found = found, leaves = leaves }, { __index = o })
  local function all() losses, counts = run_row(self, job) end
  if count > 1 then
    coefficient_cache.share_some(all, self.row == last and entries or {})
  else
    all()
  end
  spread(self, o.params, found[1].norms, last)
  for i, number in pairs(counts) do counts[i] = number() end
  return gathered(self, losses, count), gathered(self, counts, count)
end

-- Raises unless the gradients of an update that is about to be made come from pass().
function Team:check_update()
  if not self.fresh then
    error("ranks: a script that computes gradients itself can train on one rank only; several "
      .. "ranks require tl.train.lm_step, tl.classify.step, tl.masking.step or "
      .. "augmentation:step", 0)
  end
  self.fresh = false
end

-- Returns loss_of(ids) of a model, without a tape and the same on all ranks. The ranks of a row
-- compute it together if they cut sequences of its length.
function Team:loss(model, ids, loss_of)
  local n = ids:dim(2) - 1
  if not cuts(self, n) then return loss_of(ids):item() end
  sequence.check(model)
  local parts, m, sum = {}, n // self.cut, 0.0
  for i = 1, self.cut do parts[i] = 0.0 end
  local part = ids:narrow(2, self.place * m + 1, m + 1)
  parts[self.place + 1] = sequence.with(self.line, loss_of, part):item()
  local all = core.tensor(parts)
  self.line:sum(all)
  for _, loss in ipairs(all:totable()) do sum = sum + loss end
  return sum / self.cut
end

-- Returns the rank that updates each parameter: assigns the largest parameters first, each to the
-- rank with the fewest numbers so far.
function Team:owners(params)
  local order, load, owners = {}, {}, {}
  for i = 1, #params do order[i] = i end
  table.sort(order, function(i, j)
    local a, b = params[i]:numel(), params[j]:numel()
    return a > b or a == b and i < j
  end)
  for rank = 0, self.size - 1 do load[rank] = 0 end
  for _, i in ipairs(order) do
    local least = 0
    for rank = 1, self.size - 1 do
      if load[rank] < load[least] then least = rank end
    end
    owners[i], load[least] = least, load[least] + params[i]:numel()
  end
  return owners
end

-- Sends a word from rank 0 to the other ranks, which are in follow_orders.
function Team:order(word) self.world:text(0, word) end

-- Calls obey(word) for each word that rank 0 sends (Team:order), until it is "on", "left" or "end".
-- Returns that word.
function Team:follow_orders(obey)
  while true do
    local word = self.world:text(0)
    if word == "on" or word == "left" or word == "end" then return word end
    obey(word)
  end
end

-- Returns rank 0's table, which holds numbers, strings and tables of these.
function Team:share(value)
  return wire.unpack(self.world:text(0, wire.pack(value)))
end

-- Copies the tensors of a table from rank 0 to all ranks; every rank has tensors of the same names
-- and shapes.
function Team:copy(tensors)
  for _, name in ipairs(sorted_keys(tensors)) do self.world:broadcast(0, tensors[name]) end
end

return suggest.strict("ranks", ranks)
