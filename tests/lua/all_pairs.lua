-- all_pairs.lua: the mixers of nn/mixers/attention by their formulas, with every pair of positions
-- and one number at a time. Each is a function (mixer, x, n) that returns y [1,n,4] for x [1,n,4];
-- mixers with heads have 2.
local core = require "toeplab.core"

local function dot(a, b, first, count)
  local sum = 0
  for c = first, first + count - 1 do sum = sum + a[c] * b[c] end
  return sum
end

-- Returns rows sum_j A_ij v_j per head, A_ij = weight(i, j, first channel, channels) by pairs that
-- seen(i, j) lets through, divided by max(sum, least) unless that is nil.
local function mixed(n, heads, v, seen, weight, least)
  local w, y = #v[1] // heads, {}
  for i = 1, n do
    y[i] = {}
    for first = 1, heads * w, w do
      local total = 0
      for c = first, first + w - 1 do y[i][c] = 0 end
      for j = 1, n do
        local a = seen(i, j) and weight(i, j, first, w) or 0
        total = total + a
        for c = first, first + w - 1 do y[i][c] = y[i][c] + a * v[j][c] end
      end
      local divisor = least and math.max(total, least) or 1
      for c = first, first + w - 1 do y[i][c] = y[i][c] / divisor end
    end
  end
  return core.tensor { y }
end

local function rows(x) return core.no_grad(x.reshape, x, x:dim(-2), x:dim(-1)):totable() end

local function mask(o) return function(i, j) return j <= i or not o.causal end end

local formula = {}

-- Feature maps of one number.
local maps = {
  elu1 = function(z) return z > 0 and 1 + z or math.exp(z) end,
  elu2 = function(z) return z > 0 and 2 + z or 1 + math.exp(z) end, exp = math.exp,
  relu = function(z) return math.max(z, 0) end,
  sigmoid = function(z) return 1 / (1 + math.exp(-z)) end,
  softplus = function(z) return math.log(1 + math.exp(z)) end,
}

function formula.linear_attention(m, x, n)
  local q, k, v = rows(m.q(x)), rows(m.k(x)), rows(m.v(x))
  local name = m.opt.feature_map
  return m.o(mixed(n, 2, v, mask(m.opt), function(i, j, first, w)
    local sum, sums = 0, { 1, 1 }
    if name == "taylor" then
      local s = dot(q[i], k[j], first, w) / math.sqrt(w)
      return 1 + s + s * s / 2
    elseif name == "softmax" then
      for c = first, first + w - 1 do
        sums[1], sums[2] = sums[1] + math.exp(q[i][c]), sums[2] + math.exp(k[j][c])
      end
      sums[1], sums[2] = sums[1] - 1, sums[2] - 1
    end
    local map = maps[name] or math.exp
    for c = first, first + w - 1 do
      sum = sum + map(q[i][c]) / sums[1] * map(k[j][c]) / sums[2]
    end
    return sum
  end, 1e-6))
end

function formula.cosformer(m, x, n)
  local q, k, v = rows(core.relu(m.q(x))), rows(core.relu(m.k(x))), rows(m.v(x))
  local length = m.opt.as_published and n or m.opt.length
  return m.o(mixed(n, 2, v, mask(m.opt), function(i, j, ...)
    return dot(q[i], k[j], ...) * math.cos(math.pi * (i - j) / (2 * length))
  end, 1e-4))
end

function formula.performer(m, x, n)
  local o, q, k, v = m.opt, rows(m.q(x)), rows(m.k(x)), rows(m.v(x))
  local p, count = m.projection:totable(), m.opt.features
  local added = o.as_published and 1e-4 * math.sqrt(count) or 1e-4
  local function scaled(z, first, w)
    local list, square = {}, 0
    for r = 1, count do
      list[r] = 0
      for c = 1, w do
        list[r] = list[r] + p[(first - 1) // w + 1][r][c] * z[first + c - 1] * w ^ -0.25
      end
    end
    for c = first, first + w - 1 do square = square + z[c] ^ 2 * w ^ -0.5 / 2 end
    return list, square
  end
  local function top(first, w)
    if o.causal and not o.as_published then return 0 end
    local most = -math.huge
    for j = 1, n do most = math.max(most, table.unpack((scaled(k[j], first, w)))) end
    return most
  end
  local tops = { top(1, 2), [3] = top(3, 2) }
  return m.o(mixed(n, 2, v, mask(o), function(i, j, first, w)
    local fq, hq = scaled(q[i], first, w)
    local fk, hk = scaled(k[j], first, w)
    local most, sum = math.max(table.unpack(fq)), 0
    for r = 1, count do
      sum = sum + (math.exp(fq[r] - hq - most) + added)
        * (math.exp(fk[r] - hk - tops[first]) + added) / count
    end
    return sum
  end, o.as_published and 1e-2 or 0))
end

function formula.fft_rpe(m, x, n)
  local o, q, k, v = m.opt, rows(m.q(x)), rows(m.k(x)), rows(m.v(x))
  local p, table_ = m.projection:totable(), m.tno.encoder
  local zero, later, earlier = table_.zero:totable(), table_.pos:totable(), table_.neg:totable()
  local function bias(lag, head)
    if math.abs(lag) >= o.length then return 0 end
    local row = lag == 0 and zero[1] or lag > 0 and later[lag] or earlier[lag + o.length]
    return row[head]
  end
  local function phi(z, first, w, r)
    local size = math.sqrt(dot(z, z, first, w))
    local sum, row = 0, p[(first - 1) // w + 1][r]
    for c = 1, w do sum = sum + row[c] * z[first + c - 1] / size end
    return math.exp(sum)
  end
  return m.o(mixed(n, 2, v, mask(o), function(i, j, first, w)
    local sum = 0
    for r = 1, o.features do sum = sum + phi(q[i], first, w, r) * phi(k[j], first, w, r) end
    return math.exp(bias(i - j, (first - 1) // w + 1)) * sum
  end, 0))
end

function formula.cat(m, x, n)
  local z, v = rows(m.a(x)), rows(m.v(x))
  return m.o(mixed(n, 2, v, mask(m.opt), function(i, j, first, w)
    return math.exp(z[(i - j) % n + 1][(first - 1) // w + 1])
  end, 0))
end

-- Returns rows of z scaled, shifted and turned by their positions.
local function turned(offset, z)
  local list = rows(offset(z))
  for i, row in ipairs(list) do
    local half = #row // 2
    for c = 1, half do
      local angle = (i - 1) * 10000 ^ (-(c - 1) / half)
      local a, b = row[c], row[c + half]
      row[c] = a * math.cos(angle) - b * math.sin(angle)
      row[c + half] = b * math.cos(angle) + a * math.sin(angle)
    end
  end
  return list
end

local function gated(m, x, v, seen, weight)
  return x + m.o(core.silu(m.u(m.norm(x))) * mixed(#v, 1, v, seen, weight))
end

function formula.flash_quad(m, x, n)
  local z = core.silu(m.z(m.norm(x)))
  local q, k, lags, most = turned(m.q, z), turned(m.k, z), m.lags:totable(), m.opt.max_length
  return gated(m, x, rows(core.silu(m.v(m.norm(x)))), mask(m.opt), function(i, j)
    local score = dot(q[i], k[j], 1, #q[i]) / (n > most and n or most)
    return math.max(score + (n > most and 0 or lags[j - i + most]), 0) ^ 2
  end)
end

function formula.flash(m, x, n)
  local o, missing = m.opt, -n % m.opt.chunk
  if o.as_published and missing > 0 then x = core.concat({ x, core.zeros(1, missing, 4) }, 2) end
  local z = core.silu(m.z(m.norm(x)))
  local q, k, lags = turned(m.quad_q, z), turned(m.quad_k, z), m.lags:totable()
  local far_q, far_k, c = turned(m.lin_q, z), turned(m.lin_k, z), o.chunk
  local y = gated(m, x, rows(core.silu(m.v(m.norm(x)))), mask(o), function(i, j)
    local of_i, of_j, sum = (i - 1) // c, (j - 1) // c, 0
    if of_i == of_j then
      sum = math.max(dot(q[i], k[j], 1, #q[i]) / c + lags[j - i + o.max_length], 0) ^ 2
    end
    if of_j < of_i or not o.causal then sum = sum + dot(far_q[i], far_k[j], 1, #q[i]) / c end
    return sum
  end)
  return y:narrow(2, 1, n)
end

-- Returns sums of the rows a .. z of list with weights softmax(scores[.][column]) in w channels.
local function pooled(list, scores, a, z, column, first, w)
  local total, sum = 0, {}
  for j = a, z do
    local weight = math.exp(scores[j][column])
    total = total + weight
    for c = 1, w do sum[c] = (sum[c] or 0) + weight * list[j][first + c - 1] end
  end
  for c = 1, w do sum[c] = sum[c] / total end
  return sum
end

-- Returns pooled rows for chunks a .. z of list: r for each chunk, of 2 heads and 4 channels.
local function summaries(list, scores, chunk_rows, r)
  local all = {}
  for start = 1, #list - chunk_rows + 1, chunk_rows do
    for rank = 1, r do
      local row = {}
      for h = 0, 1 do
        local sum = pooled(list, scores, start, start + chunk_rows - 1, h * r + rank, 2 * h + 1, 2)
        table.move(sum, 1, 2, 2 * h + 1, row)
      end
      all[#all + 1] = row
    end
  end
  return all
end

-- Returns Wo of the softmax over the keys and values that logits(i, first) names by value rows.
local function by_logits(m, n, logits)
  local y = {}
  for i = 1, n do
    y[i] = {}
    for first = 1, 3, 2 do
      local total, sum = 0, { 0, 0 }
      for _, key in ipairs(logits(i, first)) do
        local weight = math.exp(key.logit)
        total = total + weight
        for c = 1, 2 do sum[c] = sum[c] + weight * key.value[first + c - 1] end
      end
      for c = 1, 2 do y[i][first + c - 1] = sum[c] / total end
    end
  end
  return m.o(core.tensor { y })
end

function formula.ls_bidirectional(m, x, n)
  local o = m.opt
  local missing = o.as_published and -n % o.window or 0
  if missing > 0 then x = core.concat({ x, core.zeros(1, missing, 4) }, 2) end
  local q, k, v = rows(m.q(x)), rows(m.norm_window(m.k(x))), rows(m.norm_window(m.v(x)))
  local scores, all = rows(m.scores(x)), n + missing
  local function far(list)
    return rows(m.norm_landmarks(core.tensor { summaries(list, scores, all, o.landmarks) }))
  end
  local far_k, far_v, reach = far(k), far(v), math.max(o.window // 2, 1)
  return by_logits(m, n, function(i, first)
    local keys, block = {}, (i - 1) // o.window
    local function add(key, value)
      keys[#keys + 1] = { logit = dot(q[i], key, first, 2) / math.sqrt(2), value = value }
    end
    for r = 1, o.landmarks do add(far_k[r], far_v[r]) end
    local last = math.min(block * o.window + o.window + reach, all)
    for j = math.max(block * o.window + 1 - reach, 1), last do add(k[j], v[j]) end
    return keys
  end)
end

local function encoded(p, map)
  local row = {}
  for k = 0, 1 do
    row[k + 1], row[k + 3] = math.sin(p * 10000 ^ (-k / 2)), math.cos(p * 10000 ^ (-k / 2))
  end
  return rows(map(core.tensor { { row } }))[1]
end

function formula.transformer_ls(m, x, n, memory)
  local o, before = m.opt, memory and memory:dim(2) or 0
  local q, c, r = rows(core.affine(m.q(x), 2 ^ -0.5, 0)), m.opt.chunk, m.opt.rank
  local all = memory and core.concat({ memory, x }, 2) or x
  local function near(map) return rows(m.norm_window(map(all))) end
  local function far(map)
    local own = summaries(rows(map(x)), rows(m.scores(x)), c, r)
    if memory then
      local old = core.tensor { summaries(rows(memory), rows(m.scores(memory)), c, r) }
      own = table.move(own, 1, #own, before // c * r + 1, rows(map(old)))
    end
    return own[1] and rows(m.norm_chunks(core.tensor { own })) or {}
  end
  local near_k, near_v, far_k, far_v = near(m.k), near(m.v), far(m.k), far(m.v)
  local content, place = m.content:reshape(-1):totable(), m.place:reshape(-1):totable()
  return by_logits(m, n, function(i, first)
    local keys, known = {}, (before // c + (i - 1) // c) * r
    for j = math.max(before + i - o.window + 1, 1), before + i do
      local e = encoded(before + i - j, m.window_place)
      keys[#keys + 1] = { value = near_v[j], logit = dot(q[i], near_k[j], first, 2)
        + dot(content, near_k[j], first, 2) + dot(q[i], e, first, 2) + dot(place, e, first, 2) }
    end
    for index = 1, known do
      local e = encoded(known - index, m.chunk_place)
      keys[#keys + 1] = { value = far_v[index],
        logit = dot(q[i], far_k[index], first, 2) + dot(q[i], e, first, 2) }
    end
    return keys
  end)
end

return formula
