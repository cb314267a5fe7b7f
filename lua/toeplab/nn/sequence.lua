-- nn/sequence.lua: the group of ranks that cuts sequences, if there is one (docs/ranks.md).
--
-- While sequence.with runs, every rank of the group has n/p consecutive tokens of each sequence.
-- Layers that work on each token alone are not affected. A Toeplitz operator exchanges them for all
-- n tokens of d/p channels and back (nn/mixers/tno.lua); a model with any other layer that mixes
-- tokens is refused (sequence.check).

local defer = require "toeplab.base.defer"
local suggest = require "toeplab.base.suggest"

local sequence = {}

local current

-- Calls fn(...) while sequences are cut among the ranks of group (nil: they are whole). Returns the
-- results of fn.
function sequence.with(group, fn, ...)
  local outer = current
  local restore <close> = defer(function() current = outer end)
  current = group
  return fn(...)
end

-- Returns the group, nil if sequences are whole.
function sequence.group() return current end

-- Returns this rank's channels of `dim` in the group, in the form of shapes.part.
function sequence.part(group, dim)
  local p = group:size()
  if dim % p ~= 0 then
    error(("sequence_ranks = %d does not divide the %d channels of an operator (expand * dim)")
      :format(p, dim), 0)
  end
  return { first = group:rank() * dim // p + 1, count = dim // p, of = dim }
end

-- The classes whose modules work on each token alone, or support cut sequences.
local local_in_tokens = {}
for name in ([[Embedding AdaptiveEmbedding AdaptiveSoftmax Linear GLU FeedForward Block GTU TNO
  Dropout ModuleList Sequential TnnLM LayerNorm RMSNorm SimpleRMSNorm ScaleNorm GatedRMSNorm
  NoNorm]]):gmatch "%S+" do
  local_in_tokens[name] = true
end

-- Raises if the model has a layer that mixes tokens and is not a Toeplitz operator, or that draws
-- random numbers or adds values by the place of a token in the whole sequence.
function sequence.check(model)
  local inside = {}
  for _, entry in ipairs(model:modules()) do
    local m = entry.module
    local kind = getmetatable(m).__name
    if kind == "TNO" then
      inside[#inside + 1] = entry.name .. "."
    elseif kind == "Dropout" and m.opt.p > 0 then
      local option = entry.name:find "path$" and "drop_path" or "dropout"
      error(("sequence_ranks: %s draws its mask by the place of a number in the whole sequence: "
        .. "use %s = 0"):format(entry.name, option), 0)
    end
    local of_operator = false
    for _, prefix in ipairs(inside) do
      of_operator = of_operator or entry.name:sub(1, #prefix) == prefix
    end
    if not of_operator and not local_in_tokens[kind] then
      error(("sequence_ranks: %s is a %s, which does not work on each token alone; only Toeplitz "
        .. "operators (TNO, GTU) can be cut"):format(entry.name, tostring(kind)), 0)
    end
  end
end

return suggest.strict("sequence", sequence)
