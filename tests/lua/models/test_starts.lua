-- test_starts.lua: the distribution of every parameter of every preset before training, as the
-- published code draws it: its kind, spread and range.

local t = require "harness"
local tl = require "toeplab"

local ok = t.ok

-- ---- Distributions: functions of a parameter's shape and of the shape of the weight beside it ---

local function N(deviation)
  return function() return { kind = "normal", deviation = deviation } end
end

local function const(value)
  return function() return { kind = "constant", value = value } end
end

local function between(low, high)
  return function() return { kind = "uniform", low = low, high = high } end
end

local function U(bound)
  return function(_, weight)
    local b = bound(weight[1], weight[#weight])
    return { kind = "uniform", low = -b, high = b }
  end
end

-- A Gaussian about another mean.
local function about(mean, deviation)
  return function() return { kind = "normal", mean = mean, deviation = deviation } end
end

-- Eigenvalues: known by their range and mean alone.
local function range(low, high)
  return function() return { kind = "range", low = low, high = high } end
end

local torch = U(function(_, inputs) return inputs ^ -0.5 end)
local xavier = U(function(outputs, inputs) return (6 / (inputs + outputs)) ^ 0.5 end)
local xavier_input = U(function(outputs, inputs) return (3 / (inputs + outputs)) ^ 0.5 end)

-- ---- What is expected: lists of {pattern of a name, distribution}; the first match counts -------

local norms = { { "norm[_a-z]*%.weight$", const(1) }, { "norm[_a-z]*%.bias$", const(0) } }
local log_dt = { "kernel%.log_dt$", between(math.log(1e-3), math.log(1e-1)) }

-- The embedding of language models starts with deviation 1/sqrt(width), set below.
local linear = { { "%.weight$", torch }, { "%.bias$", torch } }
local bert = { { "%.weight$", N(0.02) }, { "%.bias$", const(0) }, { "^bias$", const(0) } }

local gamma = {}
for _, rate in ipairs { 0.90, 0.95, 0.99, 0.999 } do
  gamma[rate] = { "decay%.gamma$", const(rate) }
end
local gated = { { "token%.[uvo]%.", N(0.02) } }
local gated_attention = { { "token%.[qkv]%.weight$", xavier_input }, { "token%.", N(0.02) } }
local attention = { { "token%.[qkv]%.weight$", xavier_input }, { "token%.o%.weight$", xavier },
  { "token%.o%.bias$", const(0) } }
-- The eigenvalues of HiPPO of size 64 reach 1,303 in S4, those of size 128 reach 5,215 in DSS.
local hippo = {
  { "kernel%.a$", const(math.log(0.5)) }, { "kernel%.w$", range(-1304, 0) },
  { "kernel%.[bp]$", range(-64, 64) }, { "kernel%.c$", N(0.5 ^ 0.5) }, { "kernel%.skip$", N(1) },
  { "kernel%.length$", const(0) }, log_dt,
}
local dss = { { "kernel%.w$", N(1) }, { "kernel%.skip$", N(1) }, log_dt,
  { "kernel%.lambda$", range(-0.5, 5215) } }
local gss = { { "kernel%.", N(1) } }
local flash = { { "token%.[a-z]+_[qk]%.weight$", N(0.02) },
  { "token%.[a-z]+_[qk]%.bias$", const(0) }, { "token%.lags$", N(0.02) },
  { "token%.[ab]$", N(0.02) } }
local flash_quad = { { "token%.[qk]%.weight$", N(0.02) }, { "token%.[qk]%.bias$", const(0) },
  { "token%.lags$", N(0.02) }, { "token%.[ab]$", N(0.02) } }
local wide = { { "^project", xavier } }

-- Returns one list of rules from several.
local function rules(...)
  local all = {}
  for _, list in ipairs { ... } do
    if type(list[1]) == "string" then list = { list } end
    table.move(list, 1, #list, #all + 1, all)
  end
  return all
end

local expected = {
  ["tnn-7/6"] = rules(gamma[0.99], linear), ["tnn-7/3"] = rules(gamma[0.99], linear),
  ["fd-7/3"] = linear,
  ["gtu-only-9"] = rules(gamma[0.99], gated, linear),
  ["attention+glu-8"] = rules(gated_attention, linear),
  ["attention+glu-8-causal"] = rules(gated_attention, linear),
  ["attention+glu-8-alibi"] = rules(gated_attention, linear),
  normalised = rules(gated, linear), sincos = rules(gated, linear),
  ["without-rpe-5"] = rules(gamma[0.99], gated, { "encoder%.", N(1) }, linear),
  ["no-decay"] = rules(gated, linear),
  ["learnable-decay"] = rules({ "decay%.", about(3, 1) }, gated, linear),

  transformer = rules(attention, linear), alibi = rules(attention, linear),
  ["linear-attention"] = rules(attention, linear),
  performer = rules({ "projection$", range(-40, 40) }, linear),
  cosformer = rules({ "token%.v%.weight$", xavier_input }, attention[2], attention[3], linear),
  ["cosformer-released"] = rules({ "token%.v%.weight$", xavier_input }, linear),
  ["synthesizer-dense"] = linear, ["synthesizer-random"] = rules({ "token%.w$", N(1) }, linear),
  gmlp = linear, flash = rules(flash, linear), ["flash-quad"] = rules(flash_quad, linear),
  s4 = rules(hippo, wide, linear), dss = rules(dss, wide, linear), gss = rules(gss, linear),
  ["transformer-ls"] = rules({ { "token%.norm[_a-z]*%.weight$", about(1, 0.02) },
    { "token%.[cp][a-z]+$", N(0.02) }, { "^output_bias$", const(0) } }, norms, bert),
}
for _, rate in ipairs { 0.90, 0.95, 0.99, 0.999 } do
  local name = rate == 0.999 and "decay-0.999" or ("decay-%.2f"):format(rate)
  expected[name] = rules(gamma[rate], gated, linear)
end

for name, own in pairs {
  ["tnn-12"] = gamma[0.99], ["fd-12"] = {},
  ["ski-12"] = { { "encoder%.", N(1) }, { "taps$", N(1) } },
  transformer = {}, ["linear-attention"] = {},
  performer = { "projection$", range(-40, 40) },
  cosformer = {}, ["synthesizer-dense"] = {}, ["synthesizer-random"] = { "token%.w$", N(1) },
  gmlp = {}, flash = flash, ["flash-quad"] = flash_quad, s4 = hippo, dss = dss, gss = gss,
  ls = {}, fnet = {}, gfnet = { "filter$", N(0.02) }, afno = { "token%.[wb][12]$", N(0.02) },
} do
  expected["blm-" .. name] = rules(own, bert)
end

expected["image-tnn-tiny"] = rules(gamma[0.95], linear)
expected["image-tnn-small"] = rules(gamma[0.90], linear)
expected["image-transformer-tiny"] = bert
expected["image-transformer-small"] = bert

-- ---- Checking -----------------------------------------------------------------------------------

local function rule_for(list, name)
  for _, rule in ipairs(list) do
    if name:find(rule[1]) then return rule[2] end
  end
end

local spread = {
  normal = function(d) return d.deviation end,
  uniform = function(d) return (d.high - d.low) / 12 ^ 0.5 end,
}

-- Checks mean, deviation and range, each within five of its standard errors and 1 %, of which the
-- row of 0 for padding takes a part.
local function check(what, x, want)
  local count = x:numel()
  local low, high, mean = -(-x):amax():item(), x:amax():item(), x:mean():item()
  if want.kind == "constant" then
    ok(math.abs(low - want.value) < 1e-6 and math.abs(high - want.value) < 1e-6,
      ("%s lies in %g..%g, wanted %g"):format(what, low, high, want.value))
    return
  end
  ok(want.kind == "normal" or low >= want.low - 1e-6 and high <= want.high + 1e-6,
    ("%s lies in %g..%g, wanted %s..%s"):format(what, low, high, want.low, want.high))
  ok(high > low, what .. " is constant")
  if want.kind == "range" then return end
  local deviation = spread[want.kind](want)
  local center = want.mean or want.low and (want.low + want.high) / 2 or 0
  local found = (x - mean):square():mean():item() ^ 0.5
  local sure = 5 / count ^ 0.5
  ok(math.abs(mean - center) < (sure + 0.01) * deviation,
    ("%s has the mean %g, wanted %g"):format(what, mean, center))
  ok(math.abs(found / deviation - 1) < sure + 0.01,
    ("%s has the deviation %g, wanted %g"):format(what, found, deviation))
  local reach = math.max(high - center, center - low) / deviation
  if want.kind == "normal" and count >= 100 then
    ok(reach > 2 and reach < 6.5, ("%s reaches %g deviations"):format(what, reach))
  elseif count >= 500 then
    ok(reach > 0.97 * 3 ^ 0.5, ("%s fills %g of its range"):format(what, reach / 3 ^ 0.5))
  end
end

local named = {}
for _, preset in ipairs(tl.models.presets) do
  named[preset.name] = true
  t.test("the start of " .. preset.name, function()
    tl.seed(1)
    local list = expected[preset.name]
    ok(list, "no distributions are held for it")
    local words = preset.model ~= "tnn_image"
    local options = tl.models.preset(preset.name, { layers = 1, vocab = words and 300 or nil })
    local model = tl.models[preset.model](options)
    local parameters, checked = model:named(), 0
    local width = parameters["embed.weight"]:dim(2)
    local narrow = preset.model == "tnn_mlm" or options.init == "bert"
    local embedding = { "^embed%.weight$", N(narrow and 0.02 or width ^ -0.5) }
    local first = rules(words and { embedding } or {},
      preset.name ~= "transformer-ls" and norms or {}, list)
    for name, x in pairs(parameters) do
      local rule = rule_for(first, name)
      ok(rule, name .. " has no distribution here")
      local weight = parameters[(name:gsub("bias$", "weight"))] or x
      check(preset.name .. ": " .. name, x, rule(x:shape(), weight:shape()))
      checked = checked + 1
    end
    ok(checked > 5, "nothing was checked")
    model = nil
    collectgarbage()
  end)
end

-- The order of `pairs` differs between processes, and must not decide who draws first.
t.test("one seed gives every mixer the same initial values in every process", function()
  local script = [[
    local tl, mixers = require "toeplab", require "toeplab.nn.mixers"
    for _, name in ipairs(mixers.names) do
      tl.seed(1)
      local list = { name }
      for _, p in ipairs(mixers.make(name, 16, { heads = 2, max_length = 256, length = 256 },
        {}):parameters()) do
        list[#list + 1] = ("%s %.9g"):format(p.name, p.tensor:reshape(-1):get(1))
      end
      print(table.concat(list, "; "))
    end]]
  t.in_folder(function(folder)
    t.write(folder .. "/starts.lua", script)
    local command = ("'%s' lua '%s/starts.lua'"):format(tl.sys.executable(), folder)
    local first, count = t.shell(command), 0
    for _ in first:gmatch "[^\n]+; [^\n]+" do count = count + 1 end
    ok(count > 35, first)
    for _ = 1, 5 do t.eq(t.shell(command), first) end
  end)
end)

t.test("only presets have distributions here", function()
  for name in pairs(expected) do ok(named[name], name) end
end)

t.done()
