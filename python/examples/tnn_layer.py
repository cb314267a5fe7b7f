"""A TNN layer in plain PyTorch with the parameters' names and the methods of tnn-pytorch.

tests/python/test_torch.py first compares it with the recorded case of the published code, so that
what is then compared with it is compared with that code.
"""
from typing import Optional

import torch
from torch import nn


class SimpleRMSNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = dim ** -0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / (x.norm(dim=-1, keepdim=True) * self.scale + 1e-8)


class Rpe(nn.Module):
    """Maps lags [p,1] to coefficients [p,out]."""

    def __init__(self, dim: int, out: int, layers: int) -> None:
        super().__init__()
        self.pos_proj = nn.Linear(1, dim)
        self.layers = nn.ModuleList(self.stage(dim, dim) for _ in range(layers))
        self.out = self.stage(dim, out)

    @staticmethod
    def stage(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(SimpleRMSNorm(inputs), nn.ReLU(), nn.Linear(inputs, outputs))

    def forward(self, lags: torch.Tensor) -> torch.Tensor:
        x = self.pos_proj(lags)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


class Tno(nn.Module):
    """Applies the operator to x [b,h,n,d], with transforms of twice the length."""

    def __init__(self, h: int, dim: int, rpe_dim: int, causal: bool, gamma: Optional[float],
                 layers: int) -> None:
        super().__init__()
        self.h, self.causal = h, causal
        if gamma is not None:
            self.gamma = nn.Parameter(torch.full((h, 1, dim), gamma), requires_grad=False)
        self.rpe = Rpe(rpe_dim, h * dim, layers)

    def lags(self, first: int, last: int) -> torch.Tensor:
        """Returns the coefficients of the lags first .. last with their decay, [h,l,d]."""
        k = torch.arange(first, last + 1, dtype=torch.float32).reshape(-1, 1)
        t = self.rpe(k).reshape(len(k), self.h, -1).permute(1, 0, 2)
        return t * self.gamma ** k.abs() if hasattr(self, "gamma") else t

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[-2]
        parts = [self.lags(0, n - 1), self.lags(0, 0)]  # no lag uses the second
        if not self.causal:
            parts.append(self.lags(1 - n, -1))
        return self.compute(x, torch.cat(parts, dim=1), -2, n)

    def compute(self, x: torch.Tensor, a: torch.Tensor, dim: int, n: int) -> torch.Tensor:
        spectrum = torch.fft.rfft(x, 2 * n, dim=dim) * torch.fft.rfft(a, 2 * n, dim=dim)
        return torch.fft.irfft(spectrum, 2 * n, dim=dim)[..., :n, :]


class Gtu(nn.Module):
    def __init__(self, dim: int, heads: int, rpe_dim: int, causal: bool, expand: int,
                 gamma: Optional[float], layers: int) -> None:
        super().__init__()
        self.heads, width = heads, expand * dim // heads * heads
        self.v_proj, self.u_proj = nn.Linear(dim, width), nn.Linear(dim, width)
        self.o = nn.Linear(width, dim)
        self.toep = Tno(heads, width // heads, rpe_dim, causal, gamma, layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, v = (nn.functional.silu(map_(x)) for map_ in (self.u_proj, self.v_proj))
        mixed = self.toep(v.unflatten(-1, (self.heads, -1)).transpose(1, 2))
        return self.o(u * mixed.transpose(1, 2).flatten(2))


class GLU(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.l1, self.l2 = nn.Linear(dim, hidden), nn.Linear(dim, hidden)
        self.l3 = nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l3(nn.functional.silu(self.l1(x)) * self.l2(x))


class TnnLayer(nn.Module):
    def __init__(self, dim: int, num_heads: int, rpe_embedding: int, glu_dim: int,
                 causal: bool = False, expand_ratio: int = 3, gamma: Optional[float] = None,
                 rpe_layers: int = 3) -> None:
        super().__init__()
        self.token_mixer = Gtu(dim, num_heads, rpe_embedding, causal, expand_ratio, gamma,
                               rpe_layers)
        self.token_norm, self.feature_norm = SimpleRMSNorm(dim), SimpleRMSNorm(dim)
        self.feature_mixer = GLU(dim, glu_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.token_mixer(self.token_norm(x))
        return x + self.feature_mixer(self.feature_norm(x))


class Tnn(nn.Module):
    """A causal language model of such layers, with the names of tests/reference.h5."""

    def __init__(self, vocab: int, layers: int, dim: int, affine: bool = True, **layer) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(TnnLayer(dim, 1, causal=True, **layer) for _ in range(layers))
        self.norm = nn.LayerNorm(dim) if affine else SimpleRMSNorm(dim)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) * self.embed.embedding_dim ** 0.5
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.embed.weight.T

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self(ids[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
