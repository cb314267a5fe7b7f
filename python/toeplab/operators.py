"""Toeplitz neural operators for NumPy arrays and PyTorch tensors."""
from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int64, c_void_p
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ._library import MOST_DIMS, Handle, call, engine, function, int64, text
from .tensor import Tensor


def _words(options: Dict[str, Any]) -> Tuple[str, ...]:
    """Return each option as "name=value" for the engine."""
    return tuple(f"{key}={str(value).lower() if isinstance(value, bool) else value}"
                 for key, value in sorted(options.items()))


class Operator:
    """A plan of a backend for sequences of n positions and d channels.

    Attributes: backend (the one that "auto" chose), domain ("lag", "warp" or "frequency"), width
    (numbers per point and channel), points (where the backend needs the coefficients), params
    (names and shapes of the backend's own learnable parameters; most have none).
    """

    def __init__(self, n: int, d: int, causal: bool, backend: str = "auto",
                 **options: Any) -> None:
        words = [text("an option", word) for word in _words(options)]
        texts, handle = (c_char_p * (len(words) + 1))(*words, None), c_void_p()
        self.n, self.d, self.causal = int64("n", n), int64("d", d), bool(causal)
        call("tl_tno_new", engine.context, text("backend", backend), self.n, self.d,
             int(self.causal), texts, ctypes.byref(handle))
        self._own = Handle(handle, "tl_tno_free")
        self.backend = function("tl_tno_backend_name")(self._handle).decode()
        self.domain = function("tl_tno_domain")(self._handle).decode()
        self.width: int = function("tl_tno_width")(self._handle)
        points = c_void_p()
        call("tl_tno_points", self._handle, ctypes.byref(points))
        self.points: np.ndarray = Tensor(points).numpy()
        self.params: List[Tuple[str, Tuple[int, ...]]] = [
            self._param(i) for i in range(function("tl_tno_param_count")(self._handle))]

    @property
    def _handle(self) -> c_void_p:
        return self._own.pointer

    def _param(self, i: int) -> Tuple[str, Tuple[int, ...]]:
        name, init, ndim, dims = c_char_p(), c_char_p(), c_int(), (c_int64 * MOST_DIMS)()
        call("tl_tno_param", self._handle, i, ctypes.byref(name), ctypes.byref(ndim), dims,
             ctypes.byref(init))
        return name.value.decode(), tuple(dims[:ndim.value])

    def _given(self, params: Sequence[Any]) -> Tuple[List[Tensor], Any]:
        if len(params) != len(self.params):
            names = ", ".join(name for name, _ in self.params) or "none"
            raise ValueError(f"backend '{self.backend}' has the parameters {names}, got "
                             f"{len(params)}")
        tensors = [Tensor.of(p, np.float32) for p in params]
        return tensors, (c_void_p * (len(tensors) + 1))(*[t.handle for t in tensors], None)

    def apply(self, coef: Any, x: Any, params: Sequence[Any] = ()) -> Tensor:
        """Return y[b,i,c] = sum over j of T_c[i,j] x[b,j,c], [b,n,d].

        coef [p, width d], x [b,n,d], all float32.
        """
        coef, x = Tensor.of(coef, np.float32), Tensor.of(x, np.float32)
        kept, list_ = self._given(params)
        y = c_void_p()
        call("tl_tno_apply", self._handle, coef.handle, list_, x.handle, ctypes.byref(y))
        return Tensor(y)

    def gradients(self, coef: Any, x: Any, dy: Any, params: Sequence[Any] = (),
                  need_coef: bool = True, need_x: bool = True, need_params: bool = True
                  ) -> Tuple[Optional[Tensor], Optional[Tensor], List[Tensor]]:
        """Return the gradients of sum(dy y) for coef, x and params; None if not needed."""
        coef, x, dy = (Tensor.of(a, np.float32) for a in (coef, x, dy))
        kept, list_ = self._given(params)
        dcoef, dx, dparams = c_void_p(), c_void_p(), (c_void_p * (len(kept) + 1))()
        need_params = need_params and bool(kept)
        call("tl_tno_gradients", self._handle, coef.handle, list_, x.handle, None, dy.handle,
             ctypes.byref(dcoef) if need_coef else None, dparams if need_params else None,
             ctypes.byref(dx) if need_x else None)
        return (Tensor(dcoef) if need_coef else None, Tensor(dx) if need_x else None,
                [Tensor(c_void_p(p)) for p in dparams[:len(kept)]] if need_params else [])

    def dense(self, coef: Any, params: Sequence[Any] = ()) -> np.ndarray:
        """Return the matrices T [d,n,n]."""
        coef = Tensor.of(coef, np.float32)
        kept, list_ = self._given(params)
        t = c_void_p()
        call("tl_tno_dense", self._handle, coef.handle, list_, ctypes.byref(t))
        return Tensor(t).numpy()


_plans: Dict[Any, Operator] = {}
_MOST_PLANS = 64


def plan(n: int, d: int, causal: bool, backend: str, options: Dict[str, Any]) -> Operator:
    """Return the operator of these sizes; plans are cached, because making one may measure."""
    key = (n, d, bool(causal), backend, _words(options))
    if key not in _plans:
        if len(_plans) >= _MOST_PLANS:
            del _plans[next(iter(_plans))]
        _plans[key] = Operator(n, d, causal, backend, **options)
    return _plans[key]


def is_causal(rows: int, n: int) -> bool:
    """Return whether an operator with this number of coefficients by lag is causal: n, not 2n-1."""
    if rows in (n, 2 * n - 1):
        return rows == n
    raise ValueError(f"coef has {rows} rows, but {n} positions have {n} lags (causal) or "
                     f"{2 * n - 1}; other backends need causal=")


def tno(coef: Any, x: Any, backend: str = "auto", *, causal: Optional[bool] = None,
        params: Sequence[Any] = (), **options: Any) -> Any:
    """Apply a Toeplitz operator: y[b,i,c] = sum over j of t[i-j,c] x[b,j,c].

    coef [n,d] has the lags 0..n-1 of a causal operator, coef [2n-1,d] the lags -(n-1)..n-1;
    backends that do not use lags need causal, and coefficients at Operator(...).points. x is
    [b,n,d], float32. options belong to the backend (toeplab doctor --backends). Arrays return an
    array; PyTorch tensors return a tensor with gradients.
    """
    of_x, of_coef = np.shape(x), np.shape(coef)
    if len(of_x) != 3 or len(of_coef) != 2:
        raise ValueError(f"x is {list(of_x)}, not [b,n,d], or coef is {list(of_coef)}, not [p,d]")
    n, d = int(of_x[1]), int(of_x[2])
    operator = plan(n, d, is_causal(of_coef[0], n) if causal is None else causal, backend, options)
    if type(x).__module__.split(".")[0] == "torch" or hasattr(coef, "requires_grad"):
        from .autograd import TNO

        return TNO.apply(operator, coef, x, *params)
    return operator.apply(coef, x, params).numpy()
