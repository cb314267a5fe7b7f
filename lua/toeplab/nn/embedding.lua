-- nn/embedding.lua: defines Embedding, which looks up one row of a table per token, and for large
-- vocabularies AdaptiveEmbedding and AdaptiveSoftmax, in which rarer tokens have fewer numbers.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local ModuleList = require("toeplab.nn.container").ModuleList
local options = require "toeplab.base.options"

-- y = weight[ids].   ids [..] int32, from 0   weight [vocab,dim]   y [..,dim]
-- weight ~ N(0, deviation^2), by default with deviation 1/sqrt(dim), as in fairseq. The row of the
-- token pad, if given, starts at 0.
local Embedding = class("Embedding", {
  vocab = options.field { type = "int", min = 1, help = "number of tokens" },
  dim = options.field { type = "int", min = 1 },
  deviation = options.field { type = "number", min = 0, optional = true,
    help = "standard deviation of initial values (dim^-1/2)" },
  pad = options.field { type = "int", min = 0, optional = true,
    help = "token whose row starts at 0" },
}, { "vocab", "dim" }, "ids [..] -> [..,dim]: the row of a table for each id")

function Embedding:build(o)
  local weight = core.zeros(o.vocab, o.dim)
  initial.init.normal(weight, 0, o.deviation or 1 / math.sqrt(o.dim))
  if o.pad then
    if o.pad >= o.vocab then
      error(("Embedding: pad = %d is not below vocab = %d"):format(o.pad, o.vocab), 0)
    end
    weight:view(o.pad * o.dim, { o.dim }):fill(0)
  end
  self.weight = initial.parameter(weight)
end

function Embedding:forward(ids)
  return self.weight:gather(ids)
end

function Embedding:brief()
  return ("%d x %d"):format(self.opt.vocab, self.opt.dim)
end

-- ---- Bands of tokens ----------------------------------------------------------------------------

-- Cutoffs c1 < c2 < .. divide the ids, which are ordered by frequency, into bands: 0 to c1 - 1, c1
-- to c2 - 1, and so on up to the vocabulary's end. Band i has dim / factor^(i-1) numbers for each
-- token (Baevski & Auli 2019; Grave et al. 2017).

local function are_cutoffs(list)
  for i, cutoff in ipairs(list) do
    if math.type(cutoff) ~= "integer" or cutoff <= (list[i - 1] or 0) then
      return false, "must be ascending numbers of tokens"
    end
  end
  return #list > 0, "must have a number of tokens"
end

local function fields(more)
  more.vocab = options.field { type = "int", min = 1, help = "number of tokens" }
  more.dim = options.field { type = "int", min = 1 }
  more.cutoffs = options.field { type = "table", check = are_cutoffs,
    help = "first tokens of the bands after the first one, ordered by frequency" }
  more.factor = options.field { default = 4.0, min = 1,
    help = "ratio of the widths of a band and the next" }
  return more
end

-- Returns the bands {first=, count= (of tokens), width=} of the options o.
local function bands_of(who, o)
  local list, first = {}, 0
  for i = 1, #o.cutoffs + 1 do
    local past, width = o.cutoffs[i] or o.vocab, o.dim // o.factor ^ (i - 1) // 1 | 0
    if past <= first then
      error(("%s: cutoff %d is not below vocab = %d"):format(who, first, o.vocab), 0)
    end
    if width < 1 then
      error(("%s: band %d has no channels: dim = %d, factor = %g"):format(who, i, o.dim, o.factor),
        0)
    end
    list[i], first = { first = first, count = past - first, width = width }, past
  end
  return list
end

-- Sorts ids [..] by bands, without those equal to ignore. Returns for each band {places= (from 0,
-- in the order of the ids), ids= (from 0 in the band)}, and the number of ids.
local function sorted(who, bands, ids, ignore)
  local list, last, count = {}, bands[#bands], 0
  for i in ipairs(bands) do list[i] = { places = {}, ids = {} } end
  for place, id in ipairs(ids:reshape(-1):totable()) do
    if id ~= ignore then
      if id < 0 or id >= last.first + last.count then
        error(("%s: id %d at position %d is not in 0..%d"):format(who, id, place,
          last.first + last.count - 1), 0)
      end
      local i = 1
      while id >= bands[i].first + bands[i].count do i = i + 1 end
      local n = #list[i].ids + 1
      list[i].places[n], list[i].ids[n], count = place - 1, id - bands[i].first, count + 1
    end
  end
  return list, count
end

local plain = { bias = false, init = "xavier" }

-- y = A_i row, the row of the token in the table of its band i, A_i a map to dim channels.
--   ids [..] int32   tables.i.weight [count,width]   maps.i.weight [dim,width]   y [..,dim]
local AdaptiveEmbedding = class("AdaptiveEmbedding", fields {
  deviation = Embedding.spec.fields.deviation,
  pad = Embedding.spec.fields.pad,
}, { "vocab", "dim" }, "ids [..] -> [..,dim]: rows of tables that are narrower for rarer ids")

AdaptiveEmbedding.stepwise = true
AdaptiveEmbedding.by_value = true -- which products it computes depends on the values of the ids
AdaptiveEmbedding.apart = { tables = true, maps = true }

function AdaptiveEmbedding:build(o)
  self.bands = bands_of("AdaptiveEmbedding", o)
  self.tables, self.maps = ModuleList {}, ModuleList {}
  for _, band in ipairs(self.bands) do
    local pad = o.pad and o.pad - band.first
    self.tables:append(Embedding(band.count, band.width, {
      deviation = o.deviation, pad = pad and pad >= 0 and pad < band.count and pad or nil,
    }))
    self.maps:append(Linear(band.width, o.dim, plain))
  end
end

function AdaptiveEmbedding:forward(ids)
  local parts, rows, n, shape = {}, {}, 0, ids:shape()
  for i, part in ipairs((sorted("AdaptiveEmbedding", self.bands, ids))) do
    if #part.ids > 0 then
      parts[#parts + 1] = self.maps[i](self.tables[i](core.ids(part.ids)))
      for k, place in ipairs(part.places) do rows[place + 1] = n + k - 1 end
      n = n + #part.ids
    end
  end
  shape[#shape + 1] = self.opt.dim
  return core.concat(parts, 1):gather(core.ids(rows)):reshape(table.unpack(shape))
end

-- As if all tokens were of the first band; the others take less.
function AdaptiveEmbedding:own_cost(n)
  return self.maps[1]:cost(n)
end

function AdaptiveEmbedding:brief()
  local o = self.opt
  return ("%d x %d by %s"):format(o.vocab, o.dim, table.concat(o.cutoffs, ", "))
end

-- log p(token | x): for the first band by the softmax of its tokens and of the other bands; for a
-- token of band i > 1 the log-probability of the band, plus that of the token by the softmax of
-- B_i M_i x.
--   x [..,dim]   y [..,vocab]
-- With an embedding, the tables B_i are its tables, and with tied_maps M_i is A_i transposed.
local AdaptiveSoftmax = class("AdaptiveSoftmax", fields {
  embedding = options.field { type = "any", optional = true,
    help = "an AdaptiveEmbedding of the same bands, whose tables this shares" },
  tied_maps = options.field { default = false, help = "share the maps of the embedding too" },
}, { "dim", "vocab" }, "x [..,dim] -> [..,vocab]: log-probabilities, by bands of tokens")

AdaptiveSoftmax.stepwise, AdaptiveSoftmax.by_value = true, true
AdaptiveSoftmax.apart = { first = true, clusters = true, maps = true, tables = true }

-- Raises unless the embedding has the bands of this.
local function check_same(bands, embedding)
  local other = type(embedding) == "table" and embedding.kind == "AdaptiveEmbedding"
    and embedding.bands or {}
  for i = 1, math.max(#bands, #other) do
    local a, b = bands[i] or {}, other[i] or {}
    if a.first ~= b.first or a.count ~= b.count or a.width ~= b.width then
      error("AdaptiveSoftmax: option 'embedding' must be an AdaptiveEmbedding of the same vocab, "
        .. "dim, cutoffs and factor", 0)
    end
  end
end

function AdaptiveSoftmax:build(o)
  local bands, embedding = bands_of("AdaptiveSoftmax", o), o.embedding
  self.bands = bands
  if embedding then
    check_same(bands, embedding)
    self.first = embedding.tables[1]
    self.clusters = Linear(o.dim, #bands - 1, plain)
  elseif o.tied_maps then
    error("AdaptiveSoftmax: tied_maps requires the option embedding", 0)
  else
    self.first = Linear(o.dim, bands[1].count + #bands - 1, plain)
  end
  self.maps, self.tables = ModuleList {}, ModuleList {}
  for i = 2, #bands do
    self.maps:append(o.tied_maps and embedding.maps[i] or Linear(o.dim, bands[i].width, plain))
    self.tables:append(embedding and embedding.tables[i]
      or Linear(bands[i].width, bands[i].count, plain))
  end
end

-- Returns the weight [count+bands-1,dim] of the first softmax.
local function first_weight(self)
  if not self.clusters then return self.first.weight end
  return core.concat({ self.first.weight, self.clusters.weight }, 1)
end

-- Returns the input of the softmax of band i: [..,dim] -> [..,width].
local function narrowed(self, i, x)
  local map = self.maps[i - 1]
  return self.opt.tied_maps and core.matmul(x, map.weight) or map(x)
end

function AdaptiveSoftmax:forward(x)
  local count, axis = self.bands[1].count, #x:shape()
  local first = core.log_softmax(core.linear(x, first_weight(self)))
  local parts = { first:narrow(axis, 1, count) }
  for i = 2, #self.bands do
    local within = core.log_softmax(core.linear(narrowed(self, i, x), self.tables[i - 1].weight))
    parts[i] = within + first:narrow(axis, count + i - 1, 1)
  end
  return core.concat(parts, axis)
end

-- Returns the mean of -log p of targets [..], without those equal to ignore, computed for each band
-- on its own tokens only. x [..,dim]
function AdaptiveSoftmax:loss(x, targets, ignore)
  local bands, first = self.bands, {}
  local list, count = sorted("AdaptiveSoftmax", bands, targets, ignore)
  x = x:reshape(-1, self.opt.dim)
  for i = 1, x:dim(1) do first[i] = -1 end
  for i, part in ipairs(list) do
    for k, place in ipairs(part.places) do
      first[place + 1] = i == 1 and part.ids[k] or bands[1].count + i - 2
    end
  end
  local loss = core.linear_cross_entropy(x, first_weight(self), nil, core.ids(first), -1)
  for i = 2, #bands do
    local own = list[i]
    if #own.ids > 0 then
      local rows = narrowed(self, i, x:gather(core.ids(own.places)))
      local part = core.linear_cross_entropy(rows, self.tables[i - 1].weight, nil,
        core.ids(own.ids))
      loss = loss + core.affine(part, #own.ids / count, 0)
    end
  end
  return loss
end

-- As if all targets were of the first band; the others take a second softmax.
function AdaptiveSoftmax:own_cost(n)
  return 2.0 * n * self.opt.dim * (self.bands[1].count + #self.bands - 1), 0.0
end

AdaptiveSoftmax.brief = AdaptiveEmbedding.brief

return { Embedding = Embedding, AdaptiveEmbedding = AdaptiveEmbedding,
  AdaptiveSoftmax = AdaptiveSoftmax }
