"""Tensors of the engine as arrays, and arrays as tensors, without a copy in either direction."""
from __future__ import annotations

import ctypes
from ctypes import c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, Dict, Optional, Tuple

import numpy as np

from ._library import F32, I32, call, engine, function

_CPU = 1  # kDLCPU


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int), ("device_id", c_int),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", ctypes.POINTER(c_int64)), ("strides", ctypes.POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _DLTensor), ("context", c_void_p), ("deleter", _DELETER)]

# What consumers of DLPack hold: address of the struct -> what must live as long.
_lent: Dict[int, Any] = {}


@_DELETER
def _delete(managed) -> None:
    _lent.pop(ctypes.addressof(managed.contents), None)


_NAME = b"dltensor"
_python = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, ctypes.c_char_p, c_void_p)(
    ("PyCapsule_New", _python))
# These get the capsule as a plain address: in its destructor it has no references left.
_is_valid = ctypes.PYFUNCTYPE(c_int, c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_pointer_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python))


@ctypes.PYFUNCTYPE(None, c_void_p)
def _destroy(capsule) -> None:
    """Free what nobody has taken out of the capsule; a consumer renames a capsule that it took."""
    if _is_valid(capsule, _NAME):
        _lent.pop(_pointer_of(capsule, _NAME), None)


class Tensor:
    """A tensor of the engine on the CPU, float32 or int32.

    numpy.asarray(t), numpy.from_dlpack(t) and torch.from_dlpack(t) share its memory.
    """

    def __init__(self, handle: c_void_p, owner: Any = None) -> None:
        """Take over handle, a tl_tensor. owner is what its memory belongs to, if not to itself."""
        self._handle = handle
        self._owner = owner
        self._free = function("tl_tensor_free")
        ndim = function("tl_tensor_ndim")(handle)
        self.shape: Tuple[int, ...] = tuple(
            function("tl_tensor_dim")(handle, i) for i in range(ndim))
        self.is_float = function("tl_tensor_type")(handle) == F32

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._free(self._handle)
            self._handle = None

    @classmethod
    def of(cls, array: Any, dtype: Any = None) -> "Tensor":
        """Make a tensor of an array, of which it shares the memory if the type allows that."""
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
        return function(name)(self._handle) or 0

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
        """Return a DLPack capsule on the memory of the tensor."""
        if copy or (dl_device is not None and tuple(dl_device) != (_CPU, 0)):
            raise BufferError("a tensor of Toeplab is lent on the CPU and without a copy only")
        shape = (c_int64 * max(len(self.shape), 1))(*self.shape)
        strides, step = (c_int64 * max(len(self.shape), 1))(), 1
        for i in reversed(range(len(self.shape))):
            strides[i] = step
            step *= self.shape[i]
        managed = _Managed(_DLTensor(
            self.data_pointer, _CPU, 0, len(self.shape), 2 if self.is_float else 0, 32, 1, shape,
            strides, 0), None, _delete)
        address = ctypes.addressof(managed)
        _lent[address] = (managed, shape, strides, self)
        return _new(address, _NAME, ctypes.cast(_destroy, c_void_p))

    def __repr__(self) -> str:
        return f"Tensor{list(self.shape)} {self.dtype.name}"
