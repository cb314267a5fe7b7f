"""tno_torch.py - the convolution of a Toeplitz neural operator in PyTorch, as the published code has
it: a product of real Fourier transforms of length 2n. The peer of `toeplab bench tno`.

First line out: what is installed. Then for each line in, "forward|both n b d causal calls", seconds
per call on a line out; an empty line ends it."""
import sys
import time

import torch

threads = int(sys.argv[1])
torch.set_num_threads(threads)
torch.manual_seed(1)


def operator(coef, x, causal):
    n = x.shape[1]
    if not causal:  # lags 0..n-1, nothing, lags -(n-1)..-1
        zero = torch.zeros(1, coef.shape[1])
        coef = torch.cat([coef[n - 1:], zero, coef[:n - 1]], 0)
    spectrum = torch.fft.rfft(x, 2 * n, dim=1) * torch.fft.rfft(coef, 2 * n, dim=0)
    return torch.fft.irfft(spectrum, 2 * n, dim=1)[:, :n]


def problem(n, b, d, causal):
    coef = torch.randn(n if causal else 2 * n - 1, d, requires_grad=True)
    x = torch.randn(b, n, d, requires_grad=True)
    return coef, x, torch.randn(b, n, d)


def call(what, coef, x, dy, causal):
    if what == "forward":
        with torch.no_grad():
            operator(coef, x, causal)
        return
    coef.grad = x.grad = None
    operator(coef, x, causal).backward(dy)


def answer(kept, line):
    what, *numbers = line.split()
    n, b, d, causal, calls = map(int, numbers)
    key = (n, b, d, causal)
    if key not in kept:
        kept.clear()
        kept[key] = problem(*key)
    coef, x, dy = kept[key]
    start = time.perf_counter()
    for _ in range(calls):
        call(what, coef, x, dy, bool(causal))
    return (time.perf_counter() - start) / calls


def libraries():
    fft = "MKL" if torch.backends.mkl.is_available() else "pocketfft"
    blas = [w for w in torch.__config__.show().replace(",", " ").split() if w.startswith("BLAS_INFO")]
    vectors = [l.split(":")[1].strip() for l in torch.__config__.show().splitlines()
               if "capability usage" in l]
    return f"PyTorch {torch.__version__}, FFT {fft}, {(blas or ['BLAS?'])[0]}, {(vectors or ['?'])[0]}"


print(f"{libraries()}, {torch.get_num_threads()} threads", flush=True)
kept = {}
for line in sys.stdin:
    if not line.strip():
        break
    print(repr(answer(kept, line)), flush=True)
