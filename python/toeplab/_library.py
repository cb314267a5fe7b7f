"""Finds libtoeplab and libtoeplab-lab, declares their functions, and owns the context.

The library is loaded so that calls keep Python's global lock: a context may be used by one thread
at a time, and the engine has threads of its own.
"""
from __future__ import annotations

import ctypes
import ctypes.util
import operator
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint8, c_void_p
from pathlib import Path
from typing import Any, List, Optional

F32, I32 = 0, 1
MOST_DIMS = 6
MOST_THREADS = 4096
STORE_READ = 0
NOT_FOUND = -10


class ToeplabError(RuntimeError):
    """An error of the engine; status is its name, such as "ESHAPE"."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class Attr(ctypes.Structure):
    """An attribute of an HDF5 file: tl_attr."""

    _fields_ = [("name", c_char_p), ("kind", c_uint8), ("i", c_int64), ("f", c_double),
                ("s", c_char_p)]


class Value(ctypes.Structure):
    """An SQL value: tl_value."""

    _fields_ = [("kind", c_uint8), ("i", c_int64), ("f", c_double), ("s", c_void_p),
                ("bytes", c_size_t)]


ROW = ctypes.PYFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_char_p), POINTER(Value))

_pointer, _dims, _tensors = c_void_p, POINTER(c_int64), POINTER(c_void_p)

# name -> (result, arguments); a result of None is a status, which call() checks.
_functions = {
    "tl_status_name": (c_char_p, [c_int]),
    "tl_status_text": (c_char_p, [c_int]),
    "tl_errmsg": (c_char_p, [_pointer]),
    "tl_threads": (c_int, [_pointer]),
    "tl_ctx_new": (None, [c_int, POINTER(_pointer)]),
    "tl_tensor_borrow": (None, [_pointer, c_int, c_int, _dims, _pointer, POINTER(_pointer)]),
    "tl_tensor_free": ("void", [_pointer]),
    "tl_tensor_type": (c_int, [_pointer]),
    "tl_tensor_ndim": (c_int, [_pointer]),
    "tl_tensor_dim": (c_int64, [_pointer, c_int]),
    "tl_tensor_f32": (c_void_p, [_pointer]),
    "tl_tensor_i32": (c_void_p, [_pointer]),
    "tl_tno_new": (None, [_pointer, c_char_p, c_int64, c_int64, c_int, POINTER(c_char_p),
                          POINTER(_pointer)]),
    "tl_tno_free": ("void", [_pointer]),
    "tl_tno_points": (None, [_pointer, POINTER(_pointer)]),
    "tl_tno_width": (c_int, [_pointer]),
    "tl_tno_backend_name": (c_char_p, [_pointer]),
    "tl_tno_domain": (c_char_p, [_pointer]),
    "tl_tno_param_count": (c_int, [_pointer]),
    "tl_tno_param": (None, [_pointer, c_int, POINTER(c_char_p), POINTER(c_int), _dims,
                            POINTER(c_char_p)]),
    "tl_tno_apply": (None, [_pointer, _pointer, _tensors, _pointer, POINTER(_pointer)]),
    "tl_tno_gradients": (None, [_pointer, _pointer, _tensors, _pointer, _pointer, _pointer,
                                POINTER(_pointer), _tensors, POINTER(_pointer)]),
    "tl_tno_dense": (None, [_pointer, _pointer, _tensors, POINTER(_pointer)]),
    "tl_raw_bytes": (c_size_t, [c_char_p]),
    "tl_raw_read": (None, [_pointer, c_char_p, c_int64, c_char_p, c_int, _dims,
                           POINTER(_pointer)]),
    "tl_h5_open": (None, [_pointer, c_char_p, POINTER(_pointer)]),
    "tl_h5_close": ("void", [_pointer]),
    "tl_h5_child": (c_int, [_pointer, c_char_p, c_int64, POINTER(c_char_p), POINTER(c_uint8)]),
    "tl_h5_attr": (c_int, [_pointer, c_char_p, c_int64, POINTER(Attr)]),
    "tl_h5_read": (None, [_pointer, c_char_p, POINTER(_pointer)]),
    "tl_store_open": (None, [_pointer, c_char_p, c_int, POINTER(_pointer)]),
    "tl_store_close": ("void", [_pointer]),
    "tl_store_exec": (None, [_pointer, c_char_p, c_int, POINTER(Value), ROW, _pointer]),
}


def _candidates() -> List[Path]:
    """Return the paths where the library may be, the likeliest first."""
    given = os.environ.get("TOEPLAB_LIBRARY")
    if given:
        return [Path(given)]
    here = Path(__file__).resolve().parent
    found = [*(here / "lib").glob("libtoeplab.so.*"),  # of a wheel
             here.parents[1] / "build" / "libtoeplab.so"]
    try:
        from ._checkout import BUILD  # written by setup.py

        found.append(Path(BUILD) / "libtoeplab.so")
    except ImportError:
        pass
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found.append(Path(folder) / ".." / "lib" / "libtoeplab.so")
    system = ctypes.util.find_library("toeplab")
    return found + ([Path(system)] if system else [])


class _Engine:
    """The library and the one context of this process, created at the first use."""

    def __init__(self) -> None:
        self.library: Optional[ctypes.PyDLL] = None
        self.path: Optional[Path] = None
        self._context: Optional[c_void_p] = None

    def load(self) -> ctypes.PyDLL:
        if self.library is not None:
            return self.library
        tried = _candidates()
        for path in tried:
            if path.exists() or not path.parent.name:
                break
        else:
            raise ToeplabError("libtoeplab.so was not found: build Toeplab with ./lab version, "
                               "or set TOEPLAB_LIBRARY to the file; tried "
                               + ", ".join(str(p) for p in tried[:3]), "ENOTFOUND")
        # Functions of the engine are found through libtoeplab-lab, which is linked with it.
        lab = path.with_name(path.name.replace("libtoeplab.", "libtoeplab-lab."))
        library = ctypes.PyDLL(str(lab))
        for name, (result, arguments) in _functions.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise ToeplabError(f"{path} has no function {name}: it is not Toeplab, or its "
                                   "version differs from this package", "ENOTFOUND") from None
            function.argtypes = arguments
            function.restype = {None: c_int, "void": None}.get(result, result)
        self.library, self.path = library, path
        return library

    @property
    def context(self) -> c_void_p:
        if self._context is None:
            library, made = self.load(), c_void_p()
            count = os.environ.get("TOEPLAB_THREADS") or "0"
            if not count.isdecimal() or int(count) > MOST_THREADS:
                raise ToeplabError(f"TOEPLAB_THREADS is '{count}', not a number up to "
                                   f"{MOST_THREADS}", "EINVAL")
            status = library.tl_ctx_new(int(count), ctypes.byref(made))
            if status != 0:
                text = library.tl_status_text(status).decode()
                raise ToeplabError(f"cannot start the engine: {text}", "EINVAL")
            self._context = made
        return self._context


engine = _Engine()


class Handle:
    """Owns an object of the engine, which is freed once, however many Python objects share it."""

    def __init__(self, pointer: c_void_p, free: str, kept: Any = None) -> None:
        """kept: the object that owns the memory, if not itself."""
        self.pointer, self._free, self._kept = pointer, function(free), kept

    def __del__(self) -> None:
        self._free(self.pointer)

    def __deepcopy__(self, memo: Any) -> "Handle":
        return self


def text(name: str, value: Any) -> bytes:
    """Return a string for C; raise if it contains a NUL, where C would end it."""
    if "\0" in str(value):
        raise ValueError(f"{name} is {str(value)!r}: it must not contain a NUL")
    return str(value).encode(errors="surrogateescape")


def int64(name: str, value: Any) -> int:
    """Return an integer for C; raise if it does not fit in 64 bits."""
    if not -2**63 <= operator.index(value) < 2**63:
        raise OverflowError(f"{name} is {value}, which does not fit in 64 bits")
    return operator.index(value)


def check(status: int) -> None:
    """Raise ToeplabError unless status is TL_OK."""
    if status != 0:
        message = engine.library.tl_errmsg(engine.context).decode(errors="replace")
        raise ToeplabError(message, engine.library.tl_status_name(status).decode())


def call(name: str, *arguments) -> None:
    """Call a function that returns a status, and check it."""
    check(getattr(engine.load(), name)(*arguments))


def function(name: str):
    """Return a function of the library."""
    return getattr(engine.load(), name)


def threads() -> int:
    """Return the number of threads of the engine, which TOEPLAB_THREADS sets at the start."""
    return function("tl_threads")(engine.context)
