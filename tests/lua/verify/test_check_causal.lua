-- test_check_causal.lua: tl.check_causal passes what is causal, and names the first position that
-- sees a later one.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"

local test, ok, raises = t.test, t.ok, t.raises

local N = 24

test("every causal mixer passes up to rounding, by transforms or not; both ways fails", function()
  for _, name in ipairs(mixers.names) do
    tl.seed(2)
    local class, given = mixers.class(name), {}
    for _, key in ipairs { "length", "max_length" } do
      given[key] = class.spec.fields[key] and N or nil
    end
    local mixer = class(8, given):eval()
    if mixer.opt.causal then
      ok(tl.check_causal(mixer, { length = N }) < 1e-5, name)
    elseif name ~= "informer" and name ~= "skyformer" then -- these draw what they look at
      raises(tl.check_causal, "is not causal: position 1 of 24 changes with later ones", mixer,
        { length = N })
    end
  end
end)

-- Returns a function that shifts x to the left from position `from` on.
local function shifted(from, n)
  return function(x)
    return core.concat({ x:narrow(2, 1, from), x:narrow(2, from + 2, n - from - 1),
      x:narrow(2, n, 1) }, 2)
  end
end

test("the first position is named, wherever it is", function()
  for _, from in ipairs { 1, 5, 22 } do
    raises(tl.check_causal, ("the function is not causal: position %d of %d changes"):format(
      from + 1, N), shifted(from, N), { dim = 3, length = N })
  end
  local function faint(x) return x + x:sum(2, true) * 1e-3 end
  raises(tl.check_causal, "position 1 of 33 changes with later ones, by 0.00", faint, { dim = 3 })
  ok(tl.check_causal(faint, { dim = 3, tolerance = 0.1 }) > 1e-4)
end)

test("models of ids are checked with ids", function()
  for _, causal in ipairs { true, false } do
    local model = tl.models.tnn_lm { vocab = 2, layers = 1, dim = 8, rpe_dim = 4, causal = causal }
    if causal then
      ok(tl.check_causal(model) < 1e-5)
    else
      raises(tl.check_causal, "TnnLM is not causal: position 1 of 33", model)
    end
  end
  local table_of = tl.nn.Embedding(5, 3)
  t.eq(tl.check_causal(function(ids) return table_of(ids) end, { vocab = 5 }), 0.0)
end)

test("a check that checks nothing is an error", function()
  for want, case in pairs {
    ["does not depend on its input"] = { function(x) return x * 0.0 end, { dim = 3 } },
    ["two calls of Dropout differ: call eval"] = { tl.nn.Dropout(0.5), { dim = 3 } },
    ["the output of the function is not finite"] =
      { function(x) return tl.log(x * 0.0 - 1.0) end, { dim = 3 } },
    ["the output for tensor %[1,33,3%] .*is tensor %[%] float32, not a"] =
      { function(x) return x:sum() end, { dim = 3 } },
    ["is tensor %[1,33%] int32.*not a tensor %[1,33,..%] float32"] =
      { function(ids) return ids end, { vocab = 3 } },
    ["the first argument is a module or a function, got number"] = { 3, { dim = 3 } },
    ["give dim, the channels of the input, or vocab"] = { tl.nn.Dropout(0.5) },
    ["did you mean 'length'"] = { tl.nn.GTU(8), { lenght = 3 } },
  } do raises(tl.check_causal, want, table.unpack(case)) end
end)

t.done()
