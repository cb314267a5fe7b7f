-- test_sampler.lua: what a token is drawn among, with exact probabilities.
local t = require "harness"
local tl = require "toeplab"
local options = require "toeplab.base.options"
local sampler = require "toeplab.models.sampler"

local fields = options.set(sampler.fields())

-- Returns the probabilities with which a token is drawn. A stream that records its arguments
-- yields them: the logits, the temperature and k.
local function probabilities(given, logits, seen)
  local asked
  local stream = { sample = function(_, ...)
    asked = { ... }
    return 0
  end }
  local of = sampler.new(options.check("sampler", fields, given), stream)
  for _, id in ipairs(seen or {}) do of:note(id) end
  of:draw(tl.tensor(logits))
  local x, order, sum, result = asked[1]:totable(), {}, 0.0, {}
  for i in ipairs(x) do order[i], result[i] = i, 0.0 end
  table.sort(order, function(a, b) return x[a] > x[b] or x[a] == x[b] and a < b end)
  local kept = asked[3] == 0 and #x or math.min(asked[3], #x)
  if asked[2] == 0 then
    result[order[1]] = 1.0
    return result
  end
  for i = 1, kept do sum = sum + math.exp(x[order[i]] / asked[2]) end
  for i = 1, kept do result[order[i]] = math.exp(x[order[i]] / asked[2]) / sum end
  return result
end

local function logs(list)
  local result = {}
  for i, p in ipairs(list) do result[i] = math.log(p) end
  return result
end

local half = logs { 0.1, 0.5, 0.15, 0.25 }
local cases = {
  { "no option: the softmax", {}, half, nil, { 0.1, 0.5, 0.15, 0.25 } },
  { "temperature 2 takes square roots", { temperature = 2 }, logs { 0.64, 0.36 }, nil,
    { 0.8 / 1.4, 0.6 / 1.4 } },
  { "temperature 1/2 takes squares", { temperature = 0.5 }, logs { 0.6, 0.4 }, nil,
    { 0.36 / 0.52, 0.16 / 0.52 } },
  { "temperature 0: the likeliest", { temperature = 0, top_p = 0.01 }, half, nil, { 0, 1, 0, 0 } },
  { "top_k", { top_k = 2 }, half, nil, { 0, 2 / 3, 0, 1 / 3 } },
  { "top_k of more than there are", { top_k = 9 }, half, nil, { 0.1, 0.5, 0.15, 0.25 } },
  { "top_p is reached by the first", { top_p = 0.5 }, half, nil, { 0, 1, 0, 0 } },
  { "top_p a little above", { top_p = 0.51 }, half, nil, { 0, 2 / 3, 0, 1 / 3 } },
  { "top_p is reached by the first two", { top_p = 0.75 }, half, nil, { 0, 2 / 3, 0, 1 / 3 } },
  { "top_p leaves one out", { top_p = 0.9 }, half, nil, { 0, 0.5 / 0.9, 0.15 / 0.9, 0.25 / 0.9 } },
  { "top_p = 1 leaves none out", { top_p = 1 }, half, nil, { 0.1, 0.5, 0.15, 0.25 } },
  { "a tiny top_p keeps one", { top_p = 1e-6 }, half, nil, { 0, 1, 0, 0 } },
  { "top_p of equal ones: the first", { top_p = 0.5 }, { 0, 0, 0, 0 }, nil, { 0.5, 0.5, 0, 0 } },
  { "top_p is relative to top_k", { top_k = 2, top_p = 0.6 }, half, nil, { 0, 1, 0, 0 } },
  { "top_p sees the temperature", { temperature = 0.5, top_p = 0.7 }, half, nil, { 0, 1, 0, 0 } },
  { "the penalty divides and multiplies", { repetition_penalty = 2 }, { 2, -1, 2, -1 }, { 2, 3 },
    (function()
      local a, b, c = math.exp(2), math.exp(-1), math.exp(-2)
      local sum = a + b + math.exp(1) + c
      return { a / sum, b / sum, math.exp(1) / sum, c / sum }
    end)() },
  { "the penalty counts a token once", { repetition_penalty = 2, temperature = 0 }, { 3, 1 },
    { 0, 0, 0 }, { 1, 0 } },
  { "the penalty comes before top_k", { repetition_penalty = 4, top_k = 1 }, { 3, 1 }, { 0 },
    { 0, 1 } },
  { "a penalty below 1 prefers what was said", { repetition_penalty = 0.5, temperature = 0 },
    { 1, 1.5 }, { 0 }, { 1, 0 } },
  { "without a penalty nothing is noted", {}, { 0, 0 }, { 0 }, { 0.5, 0.5 } },
}

for _, case in ipairs(cases) do
  t.test(case[1], function()
    t.eq(probabilities(case[2], case[3], case[4]), case[5], 1e-6)
  end)
end

t.test("token frequencies agree with the probabilities", function()
  for _, case in ipairs { cases[1], cases[5], cases[9], cases[10] } do
    local of = sampler.new(options.check("sampler", fields, case[2]), tl.stream(3, "draws"))
    local logits, counts = tl.tensor(case[3]), { 0, 0, 0, 0 }
    for _ = 1, 20000 do
      local id = of:draw(logits)
      counts[id + 1] = counts[id + 1] + 1
    end
    for i, want in ipairs(case[5]) do -- within 4 standard deviations
      t.eq(counts[i] / 20000, want, 4 * math.sqrt(want * (1 - want) / 20000) + 1e-12)
    end
  end
end)

t.test("the penalty covers drawn tokens", function()
  local of = sampler.new(options.check("sampler", fields, { repetition_penalty = 10,
    temperature = 0 }), tl.stream(1, "draws"))
  local logits, drawn = tl.tensor { 1, 3, 2 }, {}
  for i = 1, 3 do
    drawn[i] = of:draw(logits)
    of:note(drawn[i])
  end
  t.eq(drawn, { 1, 2, 0 })
end)

t.test("many tokens: top_p over more than are read at once", function()
  local list, rest = {}, {}
  for i = 1, 1000 do list[i], rest[i] = 0.0, i <= 500 and 1 / 500 or 0.0 end
  t.eq(probabilities({ top_p = 0.5 }, list), rest, 1e-6)
end)

t.test("refuses options out of range, and logits that are not numbers", function()
  for _, given in ipairs { { top_p = 0 }, { top_p = 1.1 }, { top_k = -1 }, { temperature = -1 },
    { repetition_penalty = 0 } } do
    t.raises(options.check, "option '[%w_]+' = [-%d.]+ must be", "sampler", fields, given)
  end
  local of = sampler.new(options.check("sampler", fields, { top_p = 0.5 }), tl.stream(1, "draws"))
  t.raises(of.draw, "NaN", of, tl.tensor { 0, 0 / 0 })
  t.raises(of.draw, "the largest logit is inf", of, tl.tensor { 0, 1 / 0 })
end)

t.done()
