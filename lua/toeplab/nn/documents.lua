-- nn/documents.lua: mixes several documents in one row of a batch, each as if it were alone.
--
--   local documents = nn.documents({ { 3, 5 }, { 6, after = 2 } }, 8)  -- two rows of 8 positions
--   local y = documents:apply(mixer, x)                                -- x, y [2,8,d]
--
-- The documents become the rows of batches, on which the module is called, and the results return
-- to their places. Every document begins at position 0. Documents of several lengths share a batch
-- if padding after them does not change their results (form_of), else every length has its own.

local class = require "toeplab.nn.class"
local core = require "toeplab.core"
local sequence = require "toeplab.nn.sequence"
local suggest = require "toeplab.base.suggest"

local Documents = {}
Documents.__index, Documents.__name = Documents, "Documents"

-- ---- The documents of a batch -------------------------------------------------------------------

local PADDING = { "after", "before" }

-- Returns row number `at` of the lengths, checked: a list {first= (its first position, from 0),
-- length=}.
local function documents_of(row, at, n)
  local function refuse(format, ...)
    error(("documents: row %d %s"):format(at, format:format(...)), 0)
  end
  if type(row) ~= "table" then refuse("is a %s, not a list of lengths", type(row)) end
  for key, count in pairs(row) do
    local is_length = math.type(key) == "integer" and key >= 1 and key <= #row
    if not is_length then
      if key ~= "after" and key ~= "before" then
        key = tostring(key)
        refuse("has the key '%s'%s", key, suggest.hint(key, PADDING))
      end
    end
    if math.type(count) ~= "integer" or count < (is_length and 1 or 0) then
      local what = is_length and "the length" or key .. " ="
      refuse("has %s %s, must be an integer of at least %d", what, tostring(count),
        is_length and 1 or 0)
    end
  end
  local list, first = {}, row.before or 0
  for i, length in ipairs(row) do
    list[i] = { first = first, length = length }
    first = first + length
  end
  local total = first + (row.after or 0)
  if total ~= n then
    refuse("has %d positions in %d documents and padding, not n = %d", total, #list, n)
  end
  return list
end

-- nn.documents(lengths, n): returns the documents of the rows of a batch of n positions. lengths
-- has a list of the documents' lengths for each row; its keys before and after count positions of
-- padding. A result of this function is returned unchanged.
local function new(lengths, n)
  if getmetatable(lengths) == Documents then return lengths end
  if type(lengths) ~= "table" or #lengths == 0 then
    error("documents: takes a list of lengths for each row of a batch, as {{3, 5}, {8}}", 0)
  end
  if math.type(n) ~= "integer" then
    error(("documents: n is %s, not the positions of a row"):format(tostring(n)), 0)
  end
  local self = setmetatable({ b = #lengths, n = n, list = {}, groups = {} }, Documents)
  for at, row in ipairs(lengths) do
    for _, document in ipairs(documents_of(row, at, n)) do
      document.first = document.first + (at - 1) * n
      self.list[#self.list + 1] = document
    end
  end
  if #self.list == 0 then error("documents: the batch has no documents", 0) end
  return self
end

-- nn.separated(ids, separator): returns the documents of rows of tokens, ids [b,n], in which a
-- document begins at each separator, an id. The last document of a row may go on in another row.
local function separated(ids, separator)
  if ids:ndim() ~= 2 or math.type(separator) ~= "integer" then
    error(("separated: takes ids [b,n] and the id of a separator, got %s and %s"):format(
      tostring(ids), tostring(separator)), 0)
  end
  local lengths = {}
  for at, row in ipairs(ids:totable()) do
    local first = 1
    lengths[at] = {}
    for i = 2, #row do
      if row[i] == separator then
        table.insert(lengths[at], i - first)
        first = i
      end
    end
    table.insert(lengths[at], #row - first + 1)
  end
  return new(lengths, ids:dim(2))
end

-- ---- How padding acts on a module ---------------------------------------------------------------

-- Returns how documents may be padded at their end for a module: "after" (padding may hold any
-- numbers, because nothing before it sees it), "zeros" (it must hold 0), "mask" (forward takes a
-- mask), or nil, if results depend on the length.
local function form_of(module)
  local kind, o = class.ismodule(module) and getmetatable(module), nil
  if not kind or kind.by_length then return nil end
  o = module.opt
  local causal = rawget(o, "causal") ~= false
  for _, entry in ipairs(module:modules()) do
    local m, name = entry.module, entry.module.kind
    if name == "TNO" and not m:is_steady() or name == "TNO2d" or name == "BatchNorm" then
      return nil
    end
    causal = causal and (name ~= "TNO" or m.opt.causal)
  end
  local later = kind.ignores_later and not rawget(o, "as_published")
  if causal and (kind.carries or later) then return "after" end
  if kind.ignores_zeros or kind.kind == "TNO" then return "zeros" end
  local masks = kind.takes_mask and rawget(o, "padding") ~= "tokens" or kind.hide_padding
  return masks and "mask" or nil
end

-- ---- Groups of documents ------------------------------------------------------------------------

-- The padded lengths of documents: n, n/2, n/4 and n/8. They are few, because a TNO keeps the plans
-- of its last four lengths, and a document is at most twice as long with its padding, unless it is
-- very short.
local HALVINGS = 3

-- Returns the padded length of a document. most: the greatest length that the module takes.
local function padded(n, length, most)
  if length > most then return length end
  local size = n
  for _ = 1, HALVINGS do
    local half = (size + 1) // 2
    if half < length then break end
    size = half
  end
  return math.min(size, most)
end

-- Returns the mask of a group, 1 at tokens and 0 at padding: [documents,n], or nil if it has no
-- padding, or the form needs no mask.
local function mask_of(group, form)
  local rows, has_padding = {}, false
  if form ~= "mask" and form ~= "zeros" then return nil end
  if group.mask ~= nil then return group.mask or nil end
  for i, document in ipairs(group) do
    rows[i] = {}
    for k = 1, group.n do rows[i][k] = k <= document.length and 1 or 0 end
    has_padding = has_padding or document.length < group.n
  end
  group.mask = has_padding and core.tensor(rows)
  return group.mask or nil
end

-- Returns the groups of documents of equal size_of(length), each a list of its documents with n=
-- and places= (the positions that it takes from the batch, padding from the document's last one);
-- and with back= where the results of all positions are among those of the groups.
local function grouped(self, size_of)
  local groups, by_size, back, total = {}, {}, {}, 0
  for _, document in ipairs(self.list) do
    local size = size_of(document.length)
    if not by_size[size] then
      by_size[size] = { n = size }
      groups[#groups + 1] = by_size[size]
    end
    table.insert(by_size[size], document)
  end
  for _, group in ipairs(groups) do
    local places = {}
    for _, document in ipairs(group) do
      for k = 0, group.n - 1 do
        places[#places + 1] = document.first + math.min(k, document.length - 1)
        if k < document.length then back[document.first + k + 1] = total + #places - 1 end
      end
    end
    total = total + #places
    group.places = core.ids(places)
  end
  for i = 1, self.b * self.n do
    groups.has_padding = groups.has_padding or not back[i]
    back[i] = back[i] or total
  end
  groups.back = core.ids(back)
  return groups
end

-- Returns the groups for a module whose results padding changes as `form` says.
local function groups_for(self, module, form)
  local most = form and (rawget(module.opt, "max_length") or rawget(module.opt, "length")) or self.n
  local key = form and most or "own"
  self.groups[key] = self.groups[key] or grouped(self, function(length)
    return form and padded(self.n, length, most) or length
  end)
  return self.groups[key]
end

-- Returns whether every row is one document without padding.
local function is_whole(self)
  for _, document in ipairs(self.list) do
    if document.length < self.n then return false end
  end
  return #self.list == self.b
end

-- Returns y [b,n,..], the results of module(x) for each document alone, and 0 at padding.
--   x [b,n,d]
function Documents:apply(module, x)
  local b, n = self.b, self.n
  if x:ndim() ~= 3 or x:dim(1) ~= b or x:dim(2) ~= n then
    error(("documents: x is %s, but the documents are of [%d,%d,d]"):format(tostring(x), b, n), 0)
  end
  if sequence.group() then
    error("documents: ranks that cut sequences cannot mix documents in a row: leave sequence_ranks "
      .. "out", 0)
  end
  if is_whole(self) then return module(x) end
  if class.ismodule(module) and rawget(module.opt, "grid") then
    error("documents: the images of a grid are not documents", 0)
  end
  local form, d = form_of(module), x:dim(3)
  local groups, flat, results = groups_for(self, module, form), x:reshape(b * n, d), {}
  for i, group in ipairs(groups) do
    local part, mask = flat:gather(group.places):reshape(#group, group.n, d), mask_of(group, form)
    if form == "zeros" and mask then part = part * mask:reshape(#group, group.n, 1) end
    local y = module(part, form == "mask" and mask or nil)
    results[i] = y:reshape(#group * group.n, -1)
  end
  local width = results[1]:dim(2)
  if groups.has_padding then results[#results + 1] = core.zeros(1, width) end
  return core.concat(results, 1):gather(groups.back):reshape(b, n, width)
end

return { documents = new, separated = separated }
