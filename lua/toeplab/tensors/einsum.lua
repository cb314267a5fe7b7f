-- tensors/einsum.lua: sums of products of tensors whose axes have letters, as one matrix product.
--
--   tl.einsum("bhnd,bhmd->bhnm", q, k)
--
-- Letters that both operands and the result have are batch axes of the product; letters that both
-- have and the result lacks are summed over; a letter of one operand alone is kept or summed there.

local core = require "toeplab.core"

local function fail(equation, ...)
  error(("einsum '%s': "):format(equation) .. string.format(...), 0)
end

-- Returns the letters of text as a list, and each letter's index.
local function letters_of(equation, text, what)
  local list, place = {}, {}
  for letter in text:gmatch "." do
    if not letter:find "%a" then fail(equation, "'%s' is not a letter", letter) end
    if place[letter] then
      fail(equation, "letter '%s' occurs twice in %s%s", letter, what,
        what == "the result" and "" or ": diagonals are not computed")
    end
    list[#list + 1] = letter
    place[letter] = #list
  end
  return list, place
end

-- The letters of the result by NumPy's rule: those that occur in one operand, sorted.
local function implicit(operands)
  local list = {}
  for i, own in ipairs(operands) do
    local other = operands[3 - i]
    for _, letter in ipairs(own.letters) do
      if not (other and other.place[letter]) then list[#list + 1] = letter end
    end
  end
  table.sort(list)
  return table.concat(list)
end

-- Returns the operands, a list of {tensor=, letters=, place=}, the letters of the result and their
-- indices, and the size of each letter.
local function parse(equation, tensors)
  local plain = equation:gsub("%s", "")
  local left, right = plain:match "^(.-)%->(.*)$"
  local operands, sizes = {}, {}
  for text in ((left or plain) .. ","):gmatch "([^,]*)," do
    local what = "operand " .. #operands + 1
    local list, place = letters_of(equation, text, what)
    operands[#operands + 1] = { letters = list, place = place, what = what }
  end
  if #operands ~= tensors.n or #operands > 2 then
    fail(equation, "%d operands and %d tensors: give as many tensors as operands, one or two",
      #operands, tensors.n)
  end
  for i, own in ipairs(operands) do
    own.tensor = tensors[i]
    if type(own.tensor) ~= "userdata" then
      fail(equation, "operand %d is a %s, not a tensor", i, type(own.tensor))
    end
    local shape = own.tensor:shape()
    if #shape ~= #own.letters then
      fail(equation, "%s is [%s], which has %d axes, not %d", own.what, table.concat(shape, ","),
        #shape, #own.letters)
    end
    for k, letter in ipairs(own.letters) do
      local size = sizes[letter] or shape[k]
      if size ~= shape[k] then
        fail(equation, "'%s' is %d in operand 1 but %d in operand 2", letter, size, shape[k])
      end
      sizes[letter] = size
    end
  end
  local result, place = letters_of(equation, right or implicit(operands), "the result")
  for _, letter in ipairs(result) do
    if not sizes[letter] then fail(equation, "no operand has the letter '%s'", letter) end
  end
  if #result > 6 then fail(equation, "the result has %d axes, at most 6 are possible", #result) end
  return operands, result, place, sizes
end

-- Sums x over its letters that neither the result nor the other operand has. Returns the rest.
local function reduced(own, kept, other)
  local x, list = own.tensor, {}
  for _, letter in ipairs(own.letters) do
    if kept[letter] or other and other[letter] then
      list[#list + 1] = letter
    else
      x = x:sum(#list + 1)
    end
  end
  return x, list
end

-- Returns x, whose axes have the letters of `from`, with its axes in the order of `to`.
local function ordered(x, from, to)
  local place, axes, same = {}, {}, true
  for i, letter in ipairs(from) do place[letter] = i end
  for i, letter in ipairs(to) do
    axes[i] = place[letter]
    same = same and axes[i] == i
  end
  return same and x or x:permute(axes)
end

-- Returns the letters of list for which the function is true.
local function those(list, f)
  local found = {}
  for _, letter in ipairs(list) do
    if f(letter) then found[#found + 1] = letter end
  end
  return found
end

local function joined(...)
  local all = {}
  for _, list in ipairs { ... } do table.move(list, 1, #list, #all + 1, all) end
  return all
end

local function product(a, b, kept, sizes)
  local x, of_x = reduced(a, kept, b.place)
  local y, of_y = reduced(b, kept, a.place)
  local batch = those(of_x, function(l) return b.place[l] and kept[l] end)
  local summed = those(of_x, function(l) return b.place[l] and not kept[l] end)
  local rows = those(of_x, function(l) return not b.place[l] end)
  local columns = those(of_y, function(l) return not a.place[l] end)
  local function size(list)
    local n = 1
    for _, letter in ipairs(list) do n = n * sizes[letter] end
    return n
  end
  local shape, all = {}, joined(batch, rows, columns)
  for i, letter in ipairs(all) do shape[i] = sizes[letter] end
  x = ordered(x, of_x, joined(batch, rows, summed))
    :reshape(size(batch), size(rows), size(summed))
  y = ordered(y, of_y, joined(batch, summed, columns))
    :reshape(size(batch), size(summed), size(columns))
  return core.matmul(x, y):reshape(table.unpack(shape)), all
end

return function(equation, ...)
  if type(equation) ~= "string" then
    error("einsum: the equation is a " .. type(equation) .. ", not a string like 'ij,jk->ik'", 0)
  end
  local operands, result, kept, sizes = parse(equation, table.pack(...))
  local y, letters
  if operands[2] then
    y, letters = product(operands[1], operands[2], kept, sizes)
  else
    y, letters = reduced(operands[1], kept)
  end
  return ordered(y, letters, result)
end
