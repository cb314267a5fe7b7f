-- models/files/tensor_files.lua: reads and writes tensors in the files of other programs and in
-- this program's own. The ending of a name selects the kind of file.
--
--   tl.load "w.safetensors"   name -> tensor, and the metadata   tl.save(path, tensors, options)
--   tl.load "w.npz"           name -> tensor                     tl.save(path, tensors)
--   tl.load "x.npy"           a tensor                           tl.save(path, tensor)
--   tl.load "c.h5"            a checkpoint: the nested state     tl.save(path, state)
local checkpoint = require "toeplab.models.files.checkpoint"
local class = require "toeplab.nn.class"
local errors = require "toeplab.base.errors"
local npy = require "toeplab.models.files.formats.npy"
local options = require "toeplab.base.options"
local raw_file = require "toeplab.models.files.formats.raw_file"
local safetensors = require "toeplab.models.files.formats.safetensors"

local tensor_files = {}

local kinds = {
  safetensors = { read = safetensors.read, write = safetensors.write, holds = "table" },
  npz = { read = npy.read_archive, write = npy.write_archive, holds = "table" },
  npy = { read = npy.read, write = npy.write, holds = "userdata" },
  h5 = { read = checkpoint.read, write = checkpoint.write, holds = "table" },
}

local spec = options.declare "tl.save" {
  { "bf16", false, "round float32 to bfloat16, half the size" },
  { "metadata", options.field { type = "table", optional = true }, "texts by name" },
}

local function kind_of(verb, path)
  local kind = type(path) == "string" and kinds[path:match "%.(%w+)$"]
  if not kind then
    errors.usage("%s: '%s' must end in .safetensors, .npz, .npy or .h5", verb, tostring(path))
  end
  return kind
end

-- tl.load(path)
function tensor_files.load(path)
  local kind = kind_of("load", path)
  raw_file.check(path)
  return kind.read(path)
end

-- tl.save(path, tensors [, options]): options are declared in spec, for safetensors only.
function tensor_files.save(path, tensors, given)
  local kind = kind_of("save", path)
  local o = options.check("save", spec, given)
  if type(tensors) ~= kind.holds then
    errors.usage("save: %s holds %s, not a %s", path,
      kind.holds == "table" and "tensors by name" or "one tensor", type(tensors))
  end
  if (o.bf16 or o.metadata) and kind ~= kinds.safetensors then
    errors.usage("save: bf16 and metadata require .safetensors, not %s", path)
  end
  if kind == kinds.safetensors or kind == kinds.npz then
    for name, t in pairs(tensors) do
      if type(name) ~= "string" then
        errors.usage("save: a tensor has the %s %s for a name, not a string", type(name),
          tostring(name))
      elseif not class.istensor(t) then
        errors.usage("save: '%s' is a %s, not a tensor", name, type(t))
      end
    end
  end
  kind.write(path, tensors, o)
end

return tensor_files
