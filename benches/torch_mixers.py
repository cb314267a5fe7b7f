"""torch_mixers.py - token mixers in PyTorch, as the reference code of their papers computes them: the
peers of `toeplab bench peers`. Each is a function of the weights of Toeplab's module w, by its
names, the input x [b,n,d], and the problem p."""
import math

import torch
from torch.nn import functional as F

CHUNK = 64


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def split(x, h):
    """[b,n,h w] -> [b,h,n,w]"""
    return x.reshape(*x.shape[:2], h, -1).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).flatten(2)


def attend(q, k, v, bias=None, causal=False):
    if hasattr(F, "scaled_dot_product_attention"):
        if causal and bias is not None:
            bias, causal = bias + triangle(q.shape[2]), False
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = scores + triangle(q.shape[2])
    return scores.softmax(-1) @ v


def triangle(n):
    return torch.full((n, n), -math.inf).triu(1)


def heads_of(w, x, p):
    return [split(linear(w, name, x), p["heads"]) for name in "qkv"]


def attention(w, x, p):
    bias = None
    if p.get("positions") == "alibi":
        at = torch.arange(x.shape[1])
        slopes = 2 ** (-8 * torch.arange(1, p["heads"] + 1) / p["heads"])
        bias = -slopes.reshape(-1, 1, 1) * (at[:, None] - at).abs()
    return linear(w, "o", join(attend(*heads_of(w, x, p), bias, p["causal"])))


def linformer(w, x, p):
    q, k, v = heads_of(w, x, p)
    e = w["positions"][:, :, :x.shape[1]]
    return linear(w, "o", join(attend(q, e @ k, e @ v)))


def recurrence(q, k, v, g=None, c=CHUNK):
    """s_t = S_t^T q_t of S_t = exp(g_t) S_(t-1) + k_t v_t^T, by products within chunks of c positions.
    q, k [b,h,n,w], v [b,h,n,u]; g [b,h,n,1] for a head, or [b,h,n,w]."""
    n = q.shape[2]
    pad = -n % c

    def chunks(t):
        return F.pad(t, (0, 0, 0, pad)).unflatten(2, (-1, c))

    q, k, v = chunks(q), chunks(k), chunks(v)
    lower = torch.ones(c, c).tril()
    if g is None:
        inner, grown, rest, last = q @ k.transpose(-1, -2) * lower, q, k, None
    else:
        sums = chunks(g).cumsum(3)
        last = sums[:, :, :, -1:]
        if sums.shape[-1] == 1:  # differences first: their exponentials cannot overflow
            steps = (sums - sums.transpose(-1, -2)).masked_fill(lower == 0, -math.inf)
            inner = q @ k.transpose(-1, -2) * steps.exp()
        else:
            inner = (q * sums.exp()) @ (k * (-sums).exp()).transpose(-1, -2) * lower
        grown, rest = q * sums.exp(), k * (last - sums).exp()
    y, added, state, outer = inner @ v, rest.transpose(-1, -2) @ v, 0, []
    for i in range(y.shape[2]):
        outer.append(grown[:, :, i] @ state if i else torch.zeros_like(y[:, :, 0]))
        decay = 1 if last is None else last[:, :, i].exp().transpose(-1, -2)
        state = decay * state + added[:, :, i] if i else added[:, :, i]
    return (y + torch.stack(outer, 2)).flatten(2, 3)[:, :, :n]


def linear_attention(w, x, p):
    q, k, v = heads_of(w, x, p)
    q, k, v = F.elu(q) + 1, F.elu(k) + 1, F.pad(v, (0, 1), value=1)
    if p["causal"]:
        y = recurrence(q, k, v)
    else:
        y = q @ (k.transpose(-1, -2) @ v)
    return linear(w, "o", join(y[..., :-1] / y[..., -1:].clamp(min=1e-6)))


def head_norm(y):
    return F.layer_norm(y, y.shape[-1:])


def gla(w, x, p):
    h = p["heads"]
    q, k, v = split(linear(w, "q", x), h), split(linear(w, "k", x), h), split(linear(w, "v", x), h)
    g = F.logsigmoid(split(linear(w, "gate", linear(w, "narrow_gate", x)), h)) / 16
    s = recurrence(q / math.sqrt(q.shape[-1]), k, v, g)
    return linear(w, "o", F.silu(linear(w, "r", x)) * join(head_norm(s)))


def rotary(x):
    n, width = x.shape[2:]
    angle = torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
    sin, cos = angle.sin(), angle.cos()
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def retention(w, x, p):
    h = p["heads"]
    q, k, v = (split(linear(w, name, x), h) for name in "qkv")
    decay = torch.log(1 - 2.0 ** (-5 - torch.arange(h)))
    g = decay.reshape(1, h, 1, 1).expand(x.shape[0], h, x.shape[1], 1)
    s = recurrence(rotary(q) / math.sqrt(q.shape[-1]), rotary(k), v, g)
    return linear(w, "o", F.silu(linear(w, "gate", x)) * join(head_norm(s)))


def short_conv(w, x):
    taps = w["conv.taps"]  # [taps,d], of lag 0 first
    weight = taps.flip(0).t().unsqueeze(1)
    y = F.conv1d(x.transpose(1, 2), weight, w["conv_bias"], padding=taps.shape[0] - 1,
                 groups=x.shape[2])
    return y[..., :x.shape[1]].transpose(1, 2)


def rms_norm(x, weight):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def ssd(w, x, p):
    width, heads = w["norm.weight"].shape[0], w["a_log"].shape[0]
    state = (w["conv_bias"].shape[0] - width) // 2
    z, mixed, r = linear(w, "input", x).split([width, width + 2 * state, heads], -1)
    u, k, q = F.silu(short_conv(w, mixed)).split([width, state, state], -1)
    delta = F.softplus(r + w["step_bias"]).transpose(1, 2).unsqueeze(-1)
    u, g = split(u, heads), -w["a_log"].exp().reshape(-1, 1, 1) * delta
    s = recurrence(q.unsqueeze(1), k.unsqueeze(1), u * delta, g)
    s = join(s + u * w["skip"].reshape(-1, 1, 1))
    return linear(w, "o", rms_norm(s * F.silu(z), w["norm.weight"]))


def scan(u, delta, a, b, c):
    """h_t = exp(delta_t a) h_(t-1) + delta_t u_t b_t, y_t = h_t c_t; all chunks of sqrt n positions at
    once, then from chunk to chunk. u, delta [b,n,w], a [w,s], b, c [b,n,s]."""
    n = u.shape[1]
    size = max(math.isqrt(n), 1)
    pad = -n % size

    def chunks(t):
        return F.pad(t, (0, 0, 0, pad)).unflatten(1, (-1, size))

    u, delta, b, c = chunks(u), chunks(delta), chunks(b), chunks(c)
    decay = (delta.unsqueeze(-1) * a).cumsum(2)
    step = (delta.unsqueeze(-1) * a).exp()
    added = (delta * u).unsqueeze(-1) * b.unsqueeze(3)
    h, local = 0, []
    for i in range(size):
        h = step[:, :, i] * h + added[:, :, i]
        local.append(h)
    h, before = torch.zeros_like(local[0][:, 0]), []
    for m in range(u.shape[1]):
        before.append(h)
        h = decay[:, m, -1].exp() * h + local[-1][:, m]
    state = torch.stack(local, 2) + decay.exp() * torch.stack(before, 1).unsqueeze(2)
    return (state * c.unsqueeze(3)).sum(-1).flatten(1, 2)[:, :n]


def mamba(w, x, p):
    width, state = w["a_log"].shape
    both, z = linear(w, "input", x).chunk(2, -1)
    u = F.silu(short_conv(w, both))
    r, b, c = linear(w, "choice", u).split([w["step.weight"].shape[1], state, state], -1)
    delta = F.softplus(linear(w, "step", r) + w["step_bias"])
    y = scan(u, delta, -w["a_log"].exp(), b, c) + u * w["skip"]
    return linear(w, "o", y * F.silu(z))


def convolution(x, kernel, skip):
    """kernel [n,d]"""
    n = x.shape[1]
    spectrum = torch.fft.rfft(x, 2 * n, dim=1) * torch.fft.rfft(kernel, 2 * n, dim=0)
    return torch.fft.irfft(spectrum, 2 * n, dim=1)[:, :n] + x * skip


def s4d(w, x, p):
    dt = w["kernel.log_dt"].exp().unsqueeze(-1)
    a = torch.complex(-w["kernel.a"].exp(), w["kernel.w"])
    c = torch.view_as_complex(w["kernel.c"][0].contiguous()) * ((dt * a).exp() - 1) / a
    powers = (dt * a).unsqueeze(-1) * torch.arange(x.shape[1])
    kernel = 2 * torch.einsum("dm,dmn->nd", c, powers.exp()).real
    return F.glu(linear(w, "o", F.gelu(convolution(x, kernel, w["kernel.skip"]))))


def longconv(w, x, p):
    kernel = F.softshrink(w["kernel.k"][0, :x.shape[1]], 0.003)
    return F.glu(linear(w, "o", F.gelu(convolution(x, kernel, w["kernel.skip"]))))


def hyena(w, x, p):
    n, d = x.shape[1:]
    lag = torch.arange(n, dtype=torch.float32)[:, None]
    angle = 2 * math.pi * 1e-4 * lag / p["n"]
    z = torch.cat([lag / (p["n"] - 1), angle.cos(), -angle.sin()], 1)
    for name in ("first", "second", "third"):
        z = torch.sin(linear(w, "kernel." + name, z) * w["kernel.freq"])
    rates = torch.linspace(math.log(1e-2) / 1.5, math.log(1e-2) / 0.3, d)
    kernel = linear(w, "kernel.last", z) * torch.exp(lag / (p["n"] - 1) * rates)
    v, u, gate = short_conv(w, linear(w, "input", x)).chunk(3, -1)
    return linear(w, "o", gate * convolution(u * v, kernel, w["kernel.skip"]))


def norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"])


def gmlp(w, x, p):
    n = x.shape[1]
    u, v = F.gelu(linear(w, "i", norm(w, "norm", x))).chunk(2, -1)
    gate = w["gate.weight"][:n, :n].tril() if p["causal"] else w["gate.weight"][:n, :n]
    mixed = gate @ norm(w, "gate_norm", v) + w["gate.bias"][:n, None]
    return x + linear(w, "o", u * mixed)


def fnet(w, x, p):
    z = norm(w, "mixing_norm", x + torch.fft.fft2(x).real)
    return norm(w, "output_norm", z + linear(w, "o", F.gelu(linear(w, "i", z))))


def of_torch(kind):
    """PyTorch's own recurrent layer, with our weights."""
    def made(w, x, p):
        d = x.shape[2]
        if "module" not in p:
            p["module"] = kind(d, d, batch_first=True, device=x.device)
        names = {"weight_ih_l0": "ih.weight", "weight_hh_l0": "hh.weight", "bias_ih_l0": "ih.bias",
                 "bias_hh_l0": "hh.bias"}
        module = p["module"]
        for own, name in names.items():
            if getattr(module, own) is not w[name]:
                setattr(module, own, w[name])
        return module(x)[0]

    return made


mixers = {
    "attention": attention, "linear_attention": linear_attention, "gla": gla,
    "retention": retention, "ssd": ssd, "mamba": mamba, "s4d": s4d, "hyena": hyena,
    "longconv": longconv, "gmlp": gmlp, "fnet": fnet, "linformer": linformer,
    "gru": of_torch(torch.nn.GRU), "lstm": of_torch(torch.nn.LSTM),
}


def make(p, passes):
    """The work of p["mixer"] with the weights of the file, which also has an input and our result."""
    import numpy

    with numpy.load(p["file"]) as file:
        w = {name: torch.nn.Parameter(torch.as_tensor(file[name])) for name in file.files}
    x, want = w.pop("x").detach(), w.pop("y").detach()
    mixer = mixers[p["mixer"]]
    with torch.no_grad():
        off = (mixer(w, x, p) - want).abs().max() / want.abs().max()
    if not off < 1e-4:
        raise ValueError(f"{p['mixer']}: the result is off by {off:.2g} of the largest")
    shape = (p["b"], p["n"], p["dim"])
    x = torch.randn(shape, requires_grad=True)
    leaves = [x] + list(w.values())
    return passes(p, lambda: mixer(w, x, p), leaves, shape), sum(q.numel() for q in w.values())
