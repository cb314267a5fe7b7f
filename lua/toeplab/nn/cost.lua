-- nn/cost.lua: gives the arithmetic of operations that several layers share, by formula, for their
-- methods own_cost (class.lua). All counts are floats, because products of integers would wrap.

local cost = {}

-- Returns the FLOP of a Fourier transform of n real numbers: 2.5 n log2 n, the usual count,
-- whatever algorithm computes it.
function cost.transform(n)
  return 2.5 * n * math.log(math.max(n, 1), 2)
end

-- Returns the FLOP of a convolution of n numbers with a kernel of `lags` lags, by transforms of
-- pieces twice as long: forwards, times the spectrum, and back, without transforming the kernel.
function cost.convolution(n, lags)
  return n / lags * (2 * cost.transform(2.0 * lags) + 6.0 * lags)
end

-- Returns the FLOP of n queries that attend to m keys, and how many numbers are stored: the weights
-- of each head and the results. keys and values are the widths of all heads together.
function cost.attention(n, m, keys, values, heads)
  return 2.0 * n * m * (keys + values), 1.0 * n * (heads * m + values)
end

-- Returns the same for core.attention, which stores the results and two numbers for each query and
-- head.
function cost.blockwise(n, m, keys, values, heads)
  return 2.0 * n * m * (keys + values), 1.0 * n * (2 * heads + values)
end

return cost
