"""Toeplab's operators as PyTorch autograd functions, for training on the CPU."""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import torch

from .operators import Operator, tno


def _array(name: str, t: Any):
    """Return t, or a contiguous copy of it, as an array without copying."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{name} is a {type(t).__name__}, not a PyTorch tensor")
    if t.dtype != torch.float32 or t.device.type != "cpu":
        raise TypeError(f"{name} is {t.dtype} on {t.device}; Toeplab takes torch.float32 on the "
                        "cpu")
    return t.detach().contiguous().numpy()


def _tensor(t: Any) -> Optional[torch.Tensor]:
    """Return a result of the engine as a PyTorch tensor that shares its memory."""
    return None if t is None else torch.from_dlpack(t)


class TNO(torch.autograd.Function):
    """y = TNO.apply(operator, coef, x, *params), with gradients of coef, x and params.

    Contiguous arguments are not copied, and results are shared through DLPack. y is linear in x,
    and in coef and params together, which gives the higher derivatives.
    """

    @staticmethod
    def forward(ctx: Any, operator: Operator, coef: torch.Tensor, x: torch.Tensor,
                *params: torch.Tensor) -> torch.Tensor:
        ctx.operator = operator
        ctx.save_for_backward(coef, x, *params)
        return _tensor(operator.apply(_array("coef", coef), _array("x", x),
                                      [_array("a parameter", p) for p in params]))

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        return (None, *Gradients.apply(ctx.operator, ctx.needs_input_grad[1:], dy,
                                       *ctx.saved_tensors))


class Gradients(torch.autograd.Function):
    """The gradients of sum(dy y) for coef, x and params; None where its flag in need is False."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, need: Sequence[bool], dy: torch.Tensor,
                coef: torch.Tensor, x: torch.Tensor, *params: torch.Tensor
                ) -> Tuple[Optional[torch.Tensor], ...]:
        ctx.operator = operator
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dy, coef, x, *params)
        dcoef, dx, dparams = operator.gradients(
            _array("coef", coef), _array("x", x), _array("dy", dy),
            [_array("a parameter", p) for p in params], need[0], need[1], any(need[2:]))
        return tuple(_tensor(t) for t in (dcoef, dx, *(dparams or [None] * len(params))))

    @staticmethod
    def backward(ctx: Any, gcoef: Optional[torch.Tensor], gx: Optional[torch.Tensor],
                 *gparams: Optional[torch.Tensor]) -> Tuple[Optional[torch.Tensor], ...]:
        # With y = L(coef, params; x): the gradients of sum(dy L(gcoef, gparams; x)), linear in dy
        # and x, and of sum(dy L(coef, params; gx)), in dy, coef and params.
        dy, coef, x, *params = ctx.saved_tensors
        _, _, of_dy, of_coef, of_x, *of_params = ctx.needs_input_grad
        ddy = dx = None
        rest: Sequence[Optional[torch.Tensor]] = (None,) * (1 + len(params))
        if gx is not None:
            ddy = TNO.apply(ctx.operator, coef, gx, *params) if of_dy else None
            need = (of_coef, False, *of_params)
            dcoef, _, *dparams = Gradients.apply(ctx.operator, need, dy, coef, gx, *params)
            rest = (dcoef, *dparams)
        directions = [torch.zeros_like(t) if g is None else g
                      for g, t in zip((gcoef, *gparams), (coef, *params))]
        if gcoef is not None or any(g is not None for g in gparams):
            if of_dy:
                y = TNO.apply(ctx.operator, directions[0], x, *directions[1:])
                ddy = y if ddy is None else ddy + y
            need = (False, of_x, *[False] * len(params))
            dx = Gradients.apply(ctx.operator, need, dy, directions[0], x, *directions[1:])[1]
        return (None, None, ddy, rest[0], dx, *rest[1:])


def compute(x: torch.Tensor, a: torch.Tensor, backend: str = "auto",
            **options: Any) -> torch.Tensor:
    """Compute the same as Tno.compute of tnn-pytorch.

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

    A Tno is a module with a method compute(x, a, dim, n) and an encoder rpe. Returns the module;
    its parameters do not change.
    """
    found = [m for m in module.modules() if hasattr(m, "compute") and hasattr(m, "rpe")]
    if not found:
        raise ValueError(f"{type(module).__name__} has no Tno of tnn-pytorch: no module in it has "
                         "a method compute and an encoder rpe")
    for m in found:
        m.compute = lambda x, a, dim, n: compute(x, a, backend, **options)
    return module
