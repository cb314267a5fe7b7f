"""Toeplab's operators in PyTorch's graph of gradients, for training on the CPU."""
from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from .operators import Operator, tno


def _array(name: str, t: Any):
    """Return the memory of t as an array, or of a contiguous copy."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{name} is a {type(t).__name__}, not a tensor of PyTorch")
    if t.dtype != torch.float32 or t.device.type != "cpu":
        raise TypeError(f"{name} is {t.dtype} on {t.device}; Toeplab takes torch.float32 on the "
                        "cpu")
    return t.detach().contiguous().numpy()


class TNO(torch.autograd.Function):
    """y = TNO.apply(operator, coef, x, *params), with gradients of coef, x and params.

    The arguments' memory is read where it is, and results are taken over by DLPack.
    """

    @staticmethod
    def forward(ctx: Any, operator: Operator, coef: torch.Tensor, x: torch.Tensor,
                *params: torch.Tensor) -> torch.Tensor:
        ctx.operator = operator
        ctx.save_for_backward(coef, x, *params)
        y = operator.apply(_array("coef", coef), _array("x", x),
                           [_array("a parameter", p) for p in params])
        return torch.from_dlpack(y)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        coef, x, *params = ctx.saved_tensors
        need = ctx.needs_input_grad
        dcoef, dx, dparams = ctx.operator.gradients(
            _array("coef", coef), _array("x", x), _array("dy", dy),
            [_array("a parameter", p) for p in params], need[1], need[2], any(need[3:]))
        found = [dcoef, dx, *(dparams or [None] * len(params))]
        return (None, *(torch.from_dlpack(t) if t is not None else None for t in found))


def compute(x: torch.Tensor, a: torch.Tensor, backend: str = "auto",
            **options: Any) -> torch.Tensor:
    """Compute what Tno.compute of tnn-pytorch does.

    x [b,h,n,d], or [b,h,n,1] if it is the same in all channels; a [h,l,d] has the lags 0..n-1, one
    number that no lag uses, and then, unless the operator is causal, the lags -(n-1)..-1.
    """
    x = x.expand(*x.shape[:-1], a.shape[-1])
    b, h, n, d = x.shape
    lags = a[:, :n] if a.shape[1] <= n + 1 else torch.cat([a[:, n + 1:], a[:, :n]], dim=1)
    coef = lags.permute(1, 0, 2).reshape(lags.shape[1], h * d)
    merged = x.permute(0, 2, 1, 3).reshape(b, n, h * d)
    y = tno(coef, merged, backend, causal=a.shape[1] <= n + 1, **options)
    return y.reshape(b, n, h, d).permute(0, 2, 1, 3)


def use_backend(module: torch.nn.Module, backend: str = "rac", **options: Any) -> torch.nn.Module:
    """Make every Tno of tnn-pytorch in module compute with a backend of Toeplab.

    What they are is told by their method compute(x, a, dim, n) and their encoder rpe. Returns the
    module; its parameters stay as they are.
    """
    found = [m for m in module.modules() if hasattr(m, "compute") and hasattr(m, "rpe")]
    if not found:
        raise ValueError(f"{type(module).__name__} has no Tno of tnn-pytorch: no module in it has "
                         "a method compute and an encoder rpe")
    for m in found:
        m.compute = lambda x, a, dim, n: compute(x, a, backend, **options)
    return module
