-- tensors/pytorch.lua: hints for error messages: our equivalents of PyTorch's names.

local range, concat, part = "tl.range(first, last)", "tl.concat({tensors}, axis)",
  "x:narrow(axis, first, count)"
local reshape, same = "x:reshape(...)", "x itself: a tensor is always dense"
local conv = "tl.nn.ShortConv, by channel"
local device = "tl.use_device(name) before the first tensor"

local pytorch = {}

-- By name of PyTorch.
pytorch.ours = {
  arange = range,
  linspace = "tl.range(first, last, (last - first) / (n - 1))",
  rand = "tl.stream_of(name):uniform(t, 0, 1)", randn = "tl.stream_of(name):normal(t, 0, 1)",
  randperm = "tl.stream_of(name):permutation(n)", manual_seed = "tl.seed(n)",
  eye = "tl.tensor { ... }", empty = "tl.zeros(...)", ones_like = "tl.ones(x:shape())",
  zeros_like = "tl.zeros(x:shape())", full_like = "tl.full(x:shape(), v)",
  Tensor = "tl.tensor { ... }", LongTensor = "tl.ids { ... }", long = "tl.ids { ... }",
  from_numpy = "tl.load(path)", cat = concat, stack = concat .. " of x:reshape(1, ...)",
  chunk = part, split = part, select = part, index_select = "x:gather(ids)",
  embedding = "x:gather(ids), or tl.nn.Embedding", masked_fill = "tl.where(mask, v, x)",
  sort = "x:argsort()", argmin = "(-x):argmax()", add = "a + b", sub = "a - b", mul = "a * b",
  div = "a / b", cmul = "a * b", cdiv = "a / b", mm = "tl.matmul(a, b)", bmm = "tl.matmul(a, b)",
  mv = "tl.matmul(a, b)", dot = "(a * b):sum()", maximum = "tl.max(a, b)",
  minimum = "tl.min(a, b)", amin = "-(-x):amax(axis)", sum = "x:sum(axis)", mean = "x:mean(axis)",
  amax = "x:amax(axis)", argmax = "x:argmax()", cumsum = "x:cumsum(axis)",
  argsort = "x:argsort()", topk = "x:topk(k)", norm = "tl.sqrt(tl.square(x):sum())",
  prod = "tl.exp(tl.log(x):sum(axis)), of positive numbers",
  logsumexp = "x - tl.log_softmax(x), at any one index",
  max = "x:amax(axis), or tl.max(a, b)", min = "-(-x):amax(axis), or tl.min(a, b)",
  matmul = "tl.matmul(a, b)", softmax = "tl.softmax(x)", log_softmax = "tl.log_softmax(x)",
  t = "x:transpose(1, 2)", T = "x:transpose(1, 2)", transpose = "x:transpose(axis1, axis2)",
  permute = "x:permute {axes}", swapaxes = "x:transpose(axis1, axis2)", unsqueeze = reshape,
  squeeze = reshape, flatten = reshape, unflatten = reshape, reshape = reshape,
  expand = "x itself: axes of size 1 stretch", broadcast_to = "x itself: axes of size 1 stretch",
  ["repeat"] = concat, contiguous = same, size = "x:shape(), or x:dim(axis)",
  tolist = "x:totable()", numpy = "x:totable()", to = device, cuda = device,
  cpu = "x itself: reading it copies it to the CPU", detach = "x:clone()",
  requires_grad_ = "x:require_grad()", fill_ = "x:fill(v)", zero_ = "x:fill(0)",
  copy_ = "x:copy(y)", autograd = "tl.func, tl.grad", set_grad_enabled = "tl.no_grad(fn, ...)",
  Module = "tl.nn.class", Linear = "tl.nn.Linear", functional = "tl", device = device,
  Adam = "tl.optim.adam", AdamW = 'tl.optim.adam(model, { kind = "adamw" })', float = "ids:float()",
  int = "tl.ids(x:totable())", tril = "tl.where(tl.ge(i:reshape(n, 1), i), x, tl.zeros(1)), where "
    .. "i = tl.range(1, n)", triu = "tl.where(tl.le(i:reshape(n, 1), i), x, tl.zeros(1)), where "
    .. "i = tl.range(1, n)",
  randint = "tl.stream_of(name):integers(n, ...)", dropout = "tl.nn.Dropout(p)",
  mse_loss = "tl.square(y - x):mean()", conv1d = conv, Conv1d = conv, Parameter =
  "tl.nn.parameter(t)", register_buffer = "m:buffer(name, t)", state_dict = "m:state()",
  load_state_dict = "m:load(state)", ReLU = 'tl.nn.Activation "relu"',
  GELU = 'tl.nn.Activation "gelu"', SiLU = 'tl.nn.Activation "silu"',
  Tanh = 'tl.nn.Activation "tanh"', Sigmoid = 'tl.nn.Activation "sigmoid"',
  Softmax = "tl.softmax(x)", GRU = 'mixer = "gru" of a model', LSTM = 'mixer = "lstm" of a model',
  lr_scheduler = 'the option schedule of tl.optim.adam, e.g. "cosine", or a function',
  swa_utils = "the options ema and swa_start of tl.optim.adam",
  MultiheadAttention = "tl.nn.Attention", clip_grad_norm_ = "tl.optim.adam(model, { clip = 1.0 })",
  DataLoader = "data:batch(step), where data = tl.corpus(...)",
}

-- Returns the end of a message about an unknown name that is one of PyTorch's, else nil. A name
-- that ends in _ is an operation in place.
function pytorch.hint(name)
  local ours, base = pytorch.ours[name], tostring(name):match "^(%a[%w_]*[^_])_$"
  if not ours and base then
    return ("; x:fill(v) and x:copy(y) alone change a tensor in place: assign the result, as in "
      .. "x = %s"):format(pytorch.ours[base] or ("x:%s(...)"):format(base))
  end
  return ours and ("; for PyTorch's '%s' write %s"):format(name, ours)
end

return pytorch
