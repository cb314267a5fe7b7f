-- attentions.lua: the formulas of the attentions of nn/mixers/approximate for one row and head,
-- written with loops over positions in float64.
--
-- formula[mixer](q, k, v, m, module, choices, head) -> o. q, k and v are lists of vectors, one for
-- each position; m is a list of 1 for a token and 0 for padding.

local function dot(a, b)
  local sum = 0
  for i, x in ipairs(a) do sum = sum + x * b[i] end
  return sum
end

local function scaled(rows, scale, m)
  local out = {}
  for i, row in ipairs(rows) do
    out[i] = {}
    for c, x in ipairs(row) do out[i][c] = x * scale * (m and m[i] or 1) end
  end
  return out
end

-- The sum of weights[i] rows[i].
local function mixed(weights, rows)
  local out = {}
  for c = 1, #rows[1] do
    out[c] = 0
    for i, w in ipairs(weights) do out[c] = out[c] + w * rows[i][c] end
  end
  return out
end

local function softmax(scores)
  local most, sum, out = math.max(table.unpack(scores)), 0, {}
  for i, s in ipairs(scores) do
    out[i] = math.exp(s - most)
    sum = sum + out[i]
  end
  for i in ipairs(out) do out[i] = out[i] / sum end
  return out, most + math.log(sum)
end

-- The weights of query q over keys, those with m = 0 left out.
local function weights(q, keys, m)
  local scores = {}
  for j, k in ipairs(keys) do scores[j] = (m and m[j] == 0) and -1e30 or dot(q, k) end
  return softmax(scores)
end

local function attention(q, k, v, m, scale)
  local out = {}
  for i, row in ipairs(scaled(q, scale)) do out[i] = mixed(weights(row, k, m), v) end
  return out
end

local function product(a, b)
  local out = {}
  for i, row in ipairs(a) do out[i] = mixed(row, b) end
  return out
end

local function transposed(a)
  local out = {}
  for j = 1, #a[1] do
    out[j] = {}
    for i = 1, #a do out[j][i] = a[i][j] end
  end
  return out
end

-- d I - a
local function from_identity(d, a)
  local out = scaled(a, -1)
  for i = 1, #a do out[i][i] = out[i][i] + d end
  return out
end

local function inverse(a)
  local c = 0
  for _, column in ipairs(transposed(a)) do
    local sum = 0
    for _, x in ipairs(column) do sum = sum + x end
    c = math.max(c, sum)
  end
  local z = scaled(transposed(a), 1 / c)
  for _ = 1, 6 do
    local b = product(a, z)
    local inner = from_identity(13, product(b, from_identity(15, product(b, from_identity(7, b)))))
    z = scaled(product(z, inner), 0.25)
  end
  return z
end

local function gaussian(x, y)
  local out = {}
  for i, a in ipairs(x) do
    out[i] = {}
    for j, b in ipairs(y) do
      local sum = 0
      for c = 1, #a do sum = sum + (a[c] - b[c]) ^ 2 end
      out[i][j] = math.exp(-sum / 2)
    end
  end
  return out
end

local formula = {}

function formula.attention(q, k, v, m) return attention(q, k, v, m, (#q[1]) ^ -0.5) end

function formula.kernelized(q, k, v, m)
  local scale = (#q[1]) ^ -0.25
  return product(gaussian(scaled(q, scale, m), scaled(k, scale)), scaled(v, 1, m))
end

function formula.linformer(q, k, v, m, module, _, head)
  local e = {}
  for r, row in ipairs(module.positions:totable()[head]) do
    e[r] = table.move(row, 1, #q, 1, {})
  end
  return attention(q, product(e, scaled(k, 1, m)), product(e, scaled(v, 1, m)), nil, (#q[1]) ^ -0.5)
end

function formula.nystrom(q, k, v, m, module)
  local scale, group = (#q[1]) ^ -0.25, math.ceil(#q / module.opt.landmarks)
  if group == 1 then return formula.attention(scaled(q, 1, m), k, v, m) end
  q, k = scaled(q, scale, m), scaled(k, scale, m)
  local function means(rows)
    local out = {}
    for first = 1, #rows, group do
      local some, shares, count = {}, {}, 0
      for i = first, math.min(first + group - 1, #rows) do
        some[#some + 1], shares[#shares + 1], count = rows[i], 1, count + m[i]
      end
      out[#out + 1] = scaled({ mixed(shares, some) }, 1 / math.max(count, 1))[1]
    end
    return out
  end
  local q1, k1, middle = means(q), means(k), {}
  for i, row in ipairs(q1) do middle[i] = weights(row, k1) end
  return attention(q, k1, product(inverse(middle), attention(q1, k, v, m, 1)), nil, 1)
end

function formula.informer(q, k, v, m, _, samples)
  local spread, order, tokens = {}, {}, {}
  for i, row in ipairs(q) do
    local most, sum, count = -1e30, 0, 0
    for _, j in ipairs(samples[i]) do
      if m[j + 1] == 1 then
        local s = dot(row, k[j + 1])
        most, sum, count = math.max(most, s), sum + s, count + 1
      end
    end
    spread[i] = m[i] == 1 and most - sum / math.max(count, 1) or -1e31
    order[i], tokens[i] = i, 0
  end
  table.sort(order, function(a, b) return spread[a] > spread[b] end)
  local count = 0
  for i = 1, #q do count = count + m[i] end
  for i = 1, #q do tokens[i] = m[i] / count end
  local out, all = {}, attention(q, k, v, m, (#q[1]) ^ -0.5)
  for i = 1, #q do out[i] = mixed(tokens, v) end
  for i = 1, #samples[1] do out[order[i]] = all[order[i]] end
  return out
end

function formula.bigbird(q, k, v, m, module, pattern, head)
  local size, count = module.opt.block, math.ceil(#q / module.opt.block)
  local out, scale = {}, (#q[1]) ^ -0.5
  for i = 1, #q do
    local block, sees = (i - 1) // size, {}
    local all = count < 5 or block == 0 or block == count - 1
    local function see(b)
      for j = b * size + 1, math.min((b + 1) * size, #q) do
        if m[j] == 1 then sees[#sees + 1] = j end
      end
    end
    if all then
      for b = 0, count - 1 do see(b) end
    else
      local blocks = { [0] = true, [block - 1] = true, [block] = true, [block + 1] = true,
        [count - 1] = true }
      for b in pairs(blocks) do see(b) end
      for _, b in ipairs(pattern[head][block]) do if b >= 0 then see(b) end end
    end
    local keys, values = {}, {}
    for at, j in ipairs(sees) do keys[at], values[at] = k[j], v[j] end
    out[i] = scaled(attention({ q[i] }, keys, values, nil, scale), m[i])[1]
  end
  return out
end

function formula.skyformer(q, k, v, m, _, landmarks)
  local scale, s = (#q[1]) ^ -0.25, {}
  q, k = scaled(q, scale, m), scaled(k, scale, m)
  for i, at in ipairs(landmarks) do s[i] = (i > #landmarks // 2 and k or q)[at + 1] end
  local w, d = from_identity(0.1, scaled(gaussian(s, s), -1)), {}
  for i, row in ipairs(w) do
    local sum = 0
    for _, x in ipairs(row) do sum = sum + x end
    d[i] = sum ^ -0.5
  end
  local inner = inverse(scaled(transposed(scaled(w, 1, d)), 1, d))
  local last = scaled(product(gaussian(s, k), scaled(v, 1, m)), 1, d)
  return product(gaussian(q, s), scaled(product(transposed(inner), last), 1, d))
end

-- The scores of query i over positions j, in which itself and padding come last.
local function lsh_scores(q, k, m, i, seen)
  local scores = {}
  for at, j in ipairs(seen) do
    scores[at] = j == i and -1e5 or m[j] == 0 and -1e9 or dot(q[i], k[j])
  end
  return scores
end

-- The positions in the order of their buckets under the rotations [p][rounds][half] of round r;
-- padding comes last.
local function sorted(s, m, rotations, r)
  local bucket, places = {}, {}
  for i, row in ipairs(s) do
    local most = -1e30
    for sign = 1, -1, -2 do
      for b = 1, #rotations[1][1] do
        local turned = 0
        for c, x in ipairs(row) do turned = turned + sign * x * rotations[c][r][b] end
        if turned > most then most, bucket[i] = turned, (sign == 1 and 0 or 1000) + b end
      end
    end
    places[i], bucket[i] = i, m[i] == 0 and 1e6 or bucket[i]
  end
  table.sort(places, function(a, b)
    if bucket[a] ~= bucket[b] then return bucket[a] < bucket[b] end
    return a < b
  end)
  return places
end

function formula.reformer(s, _, v, m, module, rotations, head)
  local n, c, k, p = #s, module.opt.chunk, {}, #s[1]
  for i, row in ipairs(s) do
    k[i] = scaled({ row }, (dot(row, row) / p + 1e-6) ^ -0.5 * p ^ -0.5)[1]
  end
  local order, out, logs = {}, {}, {}
  if n <= c then
    for i = 1, n do order[i] = i end
    for i = 1, n do out[i] = mixed(softmax(lsh_scores(s, k, m, i, order)), v) end
    return out
  end
  for r = 1, #rotations[1][1] do
    table.move(sorted(s, m, rotations[head], r), 1, n, #order + 1, order)
  end
  for at, i in ipairs(order) do
    local first, seen, values = (at - 1) // c * c, {}, {}
    for offset = -c, c - 1 do
      seen[#seen + 1] = order[(first + offset) % #order + 1]
      values[#values + 1] = v[seen[#seen]]
    end
    local share, log = softmax(lsh_scores(s, k, m, i, seen))
    out[i], logs[i] = out[i] or {}, logs[i] or {}
    table.insert(out[i], mixed(share, values))
    table.insert(logs[i], log)
  end
  for i = 1, n do out[i] = mixed(softmax(logs[i]), out[i]) end
  return out
end

return formula
