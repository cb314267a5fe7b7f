"""Converts tensors of the engine to arrays and back, without a copy."""
from __future__ import annotations

import ctypes
from ctypes import c_int64, c_void_p
from typing import Any, Dict, Optional, Tuple

import numpy as np

from ._library import F32, I32, Handle, call, engine, function

_CPU = 1  # kDLCPU


class Tensor:
    """A tensor of the engine on the CPU, float32 or int32.

    numpy.asarray(t), numpy.from_dlpack(t) and torch.from_dlpack(t) share its memory.
    """

    def __init__(self, handle: c_void_p, owner: Any = None) -> None:
        """Take over handle, a tl_tensor; owner: the object that owns its memory, if not itself."""
        self._own = Handle(handle, "tl_tensor_free", owner)
        ndim = function("tl_tensor_ndim")(handle)
        self.shape: Tuple[int, ...] = tuple(
            function("tl_tensor_dim")(handle, i) for i in range(ndim))
        self.is_float = function("tl_tensor_type")(handle) == F32

    def __deepcopy__(self, memo: Any) -> "Tensor":
        return Tensor.of(self.numpy().copy())

    @property
    def handle(self) -> c_void_p:
        """The tl_tensor, which this object or a copy of it frees."""
        return self._own.pointer

    @classmethod
    def of(cls, array: Any, dtype: Any = None) -> "Tensor":
        """Make a tensor of an array; it shares the array's memory if the type allows."""
        array = np.asarray(array)
        if dtype is None:
            dtype = np.float32 if array.dtype.kind == "f" else np.int32
        dtype = np.dtype(dtype)
        if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise TypeError(f"elements of type {array.dtype} are not {dtype.name}")
        if dtype == np.int32 and array.dtype != dtype and array.dtype.kind in "iu" and array.size:
            least, most, limits = int(array.min()), int(array.max()), np.iinfo(dtype)
            if least < limits.min or most > limits.max:
                raise OverflowError(f"elements from {least} to {most} do not fit in int32")
        array = np.require(array, dtype, ["C", "A"])
        dims = (c_int64 * max(array.ndim, 1))(*array.shape)
        handle = c_void_p()
        call("tl_tensor_borrow", engine.context, F32 if array.dtype == np.float32 else I32,
             array.ndim, dims, array.ctypes.data, ctypes.byref(handle))
        return cls(handle, array)

    @property
    def data_pointer(self) -> int:
        """The address of the first element."""
        name = "tl_tensor_f32" if self.is_float else "tl_tensor_i32"
        return function(name)(self.handle) or 0

    @property
    def dtype(self) -> np.dtype:
        """float32 or int32."""
        return np.dtype(np.float32 if self.is_float else np.int32)

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str,
                "data": (self.data_pointer, False)}

    def numpy(self) -> np.ndarray:
        """Return an array on the memory of the tensor."""
        return np.asarray(self)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _CPU, 0

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: Optional[bool] = None) -> Any:
        """Return a DLPack capsule on the memory of the tensor.

        NumPy makes it: a consumer may free it while an exception is raised or without the global
        interpreter lock, where a deleter written in Python would fail.
        """
        if copy or (dl_device is not None and tuple(dl_device) != (_CPU, 0)):
            raise BufferError("a tensor of Toeplab is shared only on the CPU and without a copy")
        return self.numpy().__dlpack__()

    def __repr__(self) -> str:
        return f"Tensor{list(self.shape)} {self.dtype.name}"
