"""torch_peer.py - Toeplitz neural networks in PyTorch, as the published code computes them: the
peer of `toeplab bench`. A product of real Fourier transforms of length 2n, an encoder of linear maps,
norms and activations, gated units, Adam of torch.optim.

python torch_peer.py THREADS [DEVICE]. First line out: what is installed. Then a line out for each
line in:
  make key=value ...   "ok parameters=N", also " parts=N" of the batch if that is too large for the
                       memory of a GPU, or "error WHY": builds a problem and runs it once
  run CALLS            seconds per call
  memory               "rss=BYTES": the most that this process ever held, of the card's memory on one
An empty line ends it."""
import contextlib
import math
import re
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import torch_mixers

device = torch.device(sys.argv[2] if len(sys.argv) > 2 else "cpu")
on_gpu = device.type != "cpu"
torch.set_num_threads(int(sys.argv[1]))
if on_gpu:  # float32 is float32: no TF32
    torch.set_default_device(device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(1)


def convolution(coef, x, causal):
    """y = T x; coef holds the lags 0..n-1, or -(n-1)..n-1."""
    n = x.shape[1]
    if not causal:  # lags 0..n-1, nothing, lags -(n-1)..-1
        zero = torch.zeros(1, coef.shape[1])
        coef = torch.cat([coef[n - 1:], zero, coef[:n - 1]], 0)
    spectrum = torch.fft.rfft(x, 2 * n, dim=1) * torch.fft.rfft(coef, 2 * n, dim=0)
    return torch.fft.irfft(spectrum, 2 * n, dim=1)[:, :n]


class SimpleRMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = 1 / math.sqrt(dim)

    def forward(self, x):
        return x / (x.norm(dim=-1, keepdim=True) * self.scale + 1e-8)


class Encoder(nn.Module):
    def __init__(self, dim, p):
        super().__init__()
        h = p["rpe_dim"]

        def layer(out):
            return nn.Sequential(SimpleRMSNorm(h), nn.ReLU(), nn.Linear(h, out))

        self.input = nn.Linear(1, h)
        self.layers = nn.Sequential(*[layer(h) for _ in range(p["rpe_layers"])], layer(dim))

    def forward(self, lags):
        return self.layers(self.input(lags))


def lags_of(n, causal):
    return torch.arange(0 if causal else 1 - n, n, dtype=torch.float32).reshape(-1, 1)


class Operator(nn.Module):
    def __init__(self, dim, p):
        super().__init__()
        self.causal = p["causal"]
        self.encoder = Encoder(dim, p)
        self.gamma = nn.Parameter(torch.full((dim,), p["decay"]), requires_grad=False)

    def forward(self, x):
        lags = lags_of(x.shape[1], self.causal)
        coef = self.encoder(lags).float() * self.gamma ** lags.abs()
        return convolution(coef, x.float(), self.causal)


class Block(nn.Module):
    def __init__(self, p):
        super().__init__()
        d = p["dim"]
        self.norm1, self.norm2 = SimpleRMSNorm(d), SimpleRMSNorm(d)
        self.u, self.v, self.o = nn.Linear(d, 3 * d), nn.Linear(d, 3 * d), nn.Linear(3 * d, d)
        self.tno = Operator(3 * d, p)
        self.l1, self.l2, self.l3 = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.o(F.silu(self.u(y)) * self.tno(F.silu(self.v(y))))
        y = self.norm2(x)
        return x + self.l3(F.silu(self.l1(y)) * self.l2(y))


class LanguageModel(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.scale = math.sqrt(p["dim"])
        self.embed = nn.Embedding(p["vocab"], p["dim"])
        self.layers = nn.Sequential(*[Block(p) for _ in range(p["layers"])])
        self.norm = nn.LayerNorm(p["dim"])

    def hidden(self, ids):
        return self.layers(self.embed(ids) * self.scale)

    def forward(self, ids):
        return F.linear(self.norm(self.hidden(ids)), self.embed.weight)


def parameters(module):
    return sum(q.numel() for q in module.parameters())


def autocast(p):
    """bf16 where PyTorch's autocast thinks it right; TF32 where it was asked for."""
    torch.backends.cuda.matmul.allow_tf32 = p["precision"] == "tf32"
    if p["precision"] in ("float32", "tf32"):
        return contextlib.nullcontext()
    if p["precision"] == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    raise ValueError("no precision " + p["precision"])


def passes(p, forward, leaves, shape):
    """The function that does forward once, or forward and backward to all leaves."""
    dy = torch.randn(shape)

    def fwd():
        with torch.no_grad(), autocast(p):
            forward()

    def both():
        for leaf in leaves:
            leaf.grad = None
        with autocast(p):
            y = forward()
        y.backward(dy.to(y.dtype))

    return {"fwd": fwd, "fwd+bwd": both}[p["pass"]]


def of_module(p, module):
    shape = (p["b"], p["n"], p["dim"])
    x = torch.randn(shape, requires_grad=True)
    leaves = [x] + [q for q in module.parameters() if q.requires_grad]
    return passes(p, lambda: module(x), leaves, shape), parameters(module)


def make_tno(p):
    n, shape = p["n"], (p["b"], p["n"], p["dim"])
    coef = torch.randn(n if p["causal"] else 2 * n - 1, p["dim"], requires_grad=True)
    x = torch.randn(shape, requires_grad=True)
    return passes(p, lambda: convolution(coef, x, p["causal"]), [coef, x], shape), 0


def make_encoder(p):
    module, lags = Encoder(p["dim"], p), lags_of(p["n"], p["causal"])
    leaves, shape = list(module.parameters()), (lags.shape[0], p["dim"])
    return passes(p, lambda: module(lags), leaves, shape), parameters(module)


class InParts:
    """A step over a batch of that many sequences, in as few parts as the memory of a GPU holds:
    step(parts) is called again with twice as many when it runs out of memory."""

    def __init__(self, step, sequences):
        self.step, self.sequences, self.parts = step, sequences, 1

    def __call__(self):
        while True:
            try:
                return self.step(self.parts)
            except torch.cuda.OutOfMemoryError:
                if self.parts >= self.sequences:
                    raise
            self.parts = min(2 * self.parts, self.sequences)  # the error's tensors are free here
            torch.cuda.empty_cache()


def make_lm(p):
    model = LanguageModel(p)
    trained = [q for q in model.parameters() if q.requires_grad]
    adam = torch.optim.Adam(trained, lr=1e-4, betas=(0.9, 0.98))
    ids = torch.randint(0, p["vocab"], (p["b"], p["n"] + 1))

    def step(parts):
        adam.zero_grad(set_to_none=True)
        for rows in ids.chunk(parts):
            with autocast(p):
                logits = model(rows[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, p["vocab"]).float(), rows[:, 1:].reshape(-1))
            (loss * (len(rows) / len(ids))).backward()
        adam.step()
        loss.item()

    return InParts(step, p["b"]), parameters(model)


class Ring:
    """The operator one position at a time: the last n inputs in a buffer, which is full. The kernel is
    stored twice in a row, so that the part that fits the buffer's newest row is a view."""

    def __init__(self, operator, n, b):
        lags = lags_of(n, True)
        with torch.no_grad():
            t = (operator.encoder(lags) * operator.gamma ** lags).flip(0)
        self.kernel, self.at = torch.cat([t, t], 0), 0
        self.inputs = torch.randn(b, n, t.shape[1])

    def __call__(self, x):
        n = self.inputs.shape[1]
        self.inputs[:, self.at] = x[:, 0]
        part = self.kernel[n - 1 - self.at:2 * n - 1 - self.at]
        self.at = (self.at + 1) % n
        return (self.inputs * part).sum(1, keepdim=True)  # einsum takes up to 70 times as long


def make_generate(p):
    model = LanguageModel(p)
    count = parameters(model)
    ids = torch.randint(0, p["vocab"], (p["b"], p["n"]))
    if p.get("method") == "ring":
        ids = ids[:, -1:]
        for layer in model.layers:
            layer.tno.forward = Ring(layer.tno, p["n"], p["b"])

    def token():
        with torch.no_grad():
            F.linear(model.norm(model.hidden(ids)[:, -1:]), model.embed.weight)

    return token, count


makers = {
    "tno": make_tno, "encoder": make_encoder, "lm": make_lm, "generate": make_generate,
    "operator": lambda p: of_module(p, Operator(p["dim"], p)),
    "layer": lambda p: of_module(p, Block(p)),
    "peers": lambda p: torch_mixers.make(p, passes),
}


def value(text):
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def wait():
    if on_gpu:
        torch.cuda.synchronize(device)


def timed(run, calls):
    run()  # other processes have run in between
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    wait()
    return (time.perf_counter() - start) / calls


def answer(state, words):
    if words[0] == "memory":
        most = torch.cuda.max_memory_allocated(device) if on_gpu else (
            1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return f"rss={most}"
    if words[0] == "run":
        return repr(timed(state["run"], int(words[1])))
    p = {key: value(text) for key, text in (word.split("=", 1) for word in words[1:])}
    state.clear()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    state["run"], count = makers[p["what"]](p)
    state["run"]()
    wait()
    parts = getattr(state["run"], "parts", 1)
    return f"ok parameters={count}" + (f" parts={parts}" if parts > 1 else "")


def libraries():
    """What multiplies matrices and transforms, and the vectors that PyTorch's own kernels use."""
    if on_gpu:
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    show = torch.__config__.show().splitlines()
    vectors = [line.split(":")[1].strip() for line in show if "capability usage" in line]
    mkl = [line.strip(" -") for line in show if "Math Kernel Library" in line]
    if mkl:
        return f"{mkl[0]} for BLAS and FFT, vectors {(vectors or ['unknown'])[0]}"
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if re.search("lib(blas|openblas|blis)", line)}
    blas = ", ".join(sorted(paths)) or "unknown"
    return f"BLAS {blas}, FFT pocketfft, vectors {(vectors or ['unknown'])[0]}"


print(f"torch {torch.__version__}: {libraries()}, {torch.get_num_threads()} threads", flush=True)
state = {}
for line in sys.stdin:
    if not line.strip():
        break
    try:
        print(answer(state, line.split()), flush=True)
    except Exception as why:  # the one who asked is to know
        print(f"error {type(why).__name__}: {why}".replace("\n", " "), flush=True)
