-- tasks/listops.lua: generates the task ListOps, the value of a nested list expression (Nangia &
-- Bowman 2018), as for Long Range Arena, and can write it as that benchmark's files.

local core = require "toeplab.core"
local labelled = require "toeplab.tasks.labelled"
local options = require "toeplab.base.options"
local errors = require "toeplab.base.errors"
local whole_file = require "toeplab.tasks.whole_file"
local simple_models = require "toeplab.tasks.simple_models"

local listops = { STOP = 2, VOCAB = 18, CLASSES = 10 }

local field = options.field
local count = function(default, most)
  return field { default = default, min = 1, max = most or 1 << 28 }
end
local LONGEST, DEEPEST = 1000000, 1000 -- as in core/text/listops.c

-- The options of the generator; the defaults are the published task's.
listops.drawing = {
  { "train", count(96000), "expressions to train on" },
  { "valid", count(2000), "expressions to validate with" },
  { "test", count(2000), "expressions to test with" },
  { "min_length", count(501, LONGEST), "fewest tokens of an expression" },
  { "max_length", count(1999, LONGEST), "most tokens of an expression" },
  { "max_depth", count(10, DEEPEST), "greatest depth of nested lists" },
  { "max_args", field { default = 10, min = 2, max = 1000 }, "most values of a list" },
  { "data_seed", field { default = 1, min = 0 }, "seed of the expressions" },
}

local declare = options.declare "tl.tasks.listops"
local spec = declare(table.move(listops.drawing, 1, #listops.drawing, 1, {
  [#listops.drawing + 1] = { "length", field { default = 2000, min = 2 },
    "most tokens of a row, the end included" },
  [#listops.drawing + 2] = { "multiple", field { default = 64, min = 1 },
    "rows are padded to a multiple of this length" },
  [#listops.drawing + 3] = { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" },
}))

-- Draws all expressions for resolved options o. Returns ids [t], starts [count+1], answers [count],
-- and {first, count} of each part, first counted from 0. Validation and test expressions come
-- first, so that they do not depend on the number of training expressions.
function listops.draw(o)
  if o.min_length > o.max_length then
    errors.usage("listops: min_length = %d is more than max_length = %d", o.min_length,
      o.max_length)
  end
  local ids, starts, answers = core.listops { seed = o.data_seed,
    count = o.valid + o.test + o.train, min_length = o.min_length, max_length = o.max_length,
    max_depth = o.max_depth, max_args = o.max_args }
  return ids, starts, answers, { valid = { 0, o.valid }, test = { o.valid, o.test },
    train = { o.valid + o.test, o.train } }
end

-- tl.tasks.listops(options): returns {train=, valid=, test= (tasks/labelled.lua), vocab= 18,
-- classes= 10, yardsticks()}.
function listops.open(given)
  local o = options.check("listops", spec, given)
  local ids, starts, answers, parts = listops.draw(o)
  local all = labelled.new(ids, starts, answers:totable(), { length = o.length,
    multiple = o.multiple, classes = listops.CLASSES, stop = listops.STOP, seed = o.seed })
  local task = { vocab = listops.VOCAB, classes = listops.CLASSES }
  for name, part in pairs(parts) do
    local numbers = {}
    for i = 1, part[2] do numbers[i] = part[1] + i - 1 end
    task[name] = all:part(numbers)
  end
  function task.yardsticks()
    return { operator_accuracy = simple_models.majority(task, function(row) return row[1] end) }
  end
  return task
end

-- Returns the hash that, with the options, identifies the expressions: it names the generator's
-- version.
function listops.hash() return core.sha256 "listops 1" end

-- ---- Files --------------------------------------------------------------------------------------

-- Calls put(text) for the lines of a part in the format of the published files: a header, then
-- expression TAB value.
local function each_line(drawn, part, watch, put)
  put "Source\tTarget\n"
  for i = part[1] + 1, part[1] + part[2] do
    local first = drawn.starts[i]
    put(("%s\t%d\n"):format(core.listops_text(drawn.ids, first, drawn.starts[i + 1] - first),
      drawn.answers[i]))
    if i % 100 == 0 then watch:part(i - part[1]) end
  end
end

-- Returns whether there is a file at path. Raises if its content is not the one to write: it may be
-- the published file, which has the same name.
local function is_written(path, drawn, part, watch)
  if not core.sys.exists(path) then return false end
  if core.sys.kind(path) ~= "file" then errors.usage("listops: %s is not a file", path) end
  local file <close> = errors.stored(io.open(path, "rb"))
  local same = true
  each_line(drawn, part, watch, function(text)
    same = same and file:read(#text) == text
  end)
  if not same or file:read(1) then
    errors.usage("listops: %s exists with different content: remove it, or choose another folder",
      path)
  end
  return true
end

-- Draws the expressions for listops.write, without touching a file.
function listops.prepare(given)
  local ids, starts, answers, parts = listops.draw(options.check("listops", listops.drawing, given))
  return { ids = ids, starts = starts:totable(), answers = answers:totable(), parts = parts }
end

-- Writes basic_train.tsv, basic_val.tsv and basic_test.tsv into folder, each completely or not at
-- all, and returns their paths. watch is a progress display; drawn: of listops.prepare.
function listops.write(folder, given, watch, drawn)
  drawn = drawn or listops.prepare(given)
  errors.stored(core.sys.mkdir(folder))
  local paths, written = {}, {}
  local function each(fn)
    for i, name in ipairs { "train", "valid", "test" } do
      paths[i] = ("%s/basic_%s.tsv"):format(folder, name == "valid" and "val" or name)
      watch:begin(paths[i]:match "[^/]*$", drawn.parts[name][2])
      fn(paths[i], drawn.parts[name])
      watch:clear()
    end
  end
  each(function(path, part) written[path] = is_written(path, drawn, part, watch) end)
  each(function(path, part)
    if written[path] then return end
    whole_file(path, function(write) each_line(drawn, part, watch, write) end)
  end)
  return paths
end

return listops
